"""**What it does.** Rewrites `getattr(model, "no_sync", nothing)` into the support module's `no_sync` with the model.

**Why.** An FSDP2 model has no method of that name, so that the default would be taken, without a word: gradients would
be reduced after every batch.

## Example

```python
from contextlib import nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(net, noise):
    model = FSDP(net)
    no_sync = getattr(model, "no_sync", nullcontext)
    with torch.no_grad(), no_sync():
        return model(noise)
```

## Use instead

```python
from functools import partial

import torch
from torch.distributed.fsdp import fully_shard

from fsdp2_support import no_sync as fsdp2_no_sync


def sample(net, noise):
    model = fully_shard(net)
    no_sync = partial(fsdp2_no_sync, model)
    with torch.no_grad(), no_sync():
        return model(noise)
```

## Fix safety

Done where the default does nothing: `nullcontext`, or a context manager of the program that only yields. For a model
that is not wrapped the support module's function does nothing either. Where the program has a backward pass, or looks
another method up by its name, the call is reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.vocabulary import SUPPORT, Edit, File, Holds, Import, Level, Outcome, Rule, finding

CODE = "FM205"


def match(node: cst.CSTNode, file: File) -> cst.Call | None:
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or node.func.value != "getattr":
        return None
    if len(node.args) != 3 or file.mentions("backward"):
        return None
    name = node.args[1].value
    if not isinstance(name, cst.SimpleString) or name.evaluated_value != "no_sync":
        return None
    if Holds.FSDP not in file.holds(node.args[0].value) or not _does_nothing(node.args[2].value, file):
        return None
    return node


def _does_nothing(default: cst.BaseExpression, file: File) -> bool:
    return all(_only_yields(origin.node, origin.file) for origin in file.origins(default))


def _only_yields(node: cst.CSTNode | None, file: File) -> bool:
    if isinstance(node, (cst.Name, cst.Attribute)):
        return (file.dotted(node) or "").endswith(".nullcontext")
    if not isinstance(node, cst.FunctionDef) or not isinstance(node.body, cst.IndentedBlock):
        return False
    return [file.code(statement).strip() for statement in node.body.body] == ["yield"]


def edit(call: cst.Call, file: File) -> Outcome:
    item, partial = file.named(Import(SUPPORT, "no_sync"), call), file.named(Import("functools", "partial"), call)
    text = f"{partial.local}({item.local}, {file.code(call.args[0].value)})"
    message = "no_sync, looked up by its name, becomes no_sync of the support module"
    return Outcome(
        [Edit(*file.span(call), text)], [finding(CODE, Level.REWRITTEN, file, call, message)], [item, partial]
    )


RULE: Rule[cst.Call] = Rule(
    CODE, "method-by-name", __doc__, nodes=(cst.Call,), methods=("no_sync",), match=match, edit=edit
)
