"""**What it does.** Puts `model.apply(...)` of a wrapped model inside of `full_params` of the support module,
unless the function is seen to write to no parameter, or is called for what it switches (`disable_fake_quant`).

**Why.** FSDP1's `apply` gathers the parameters, calls the function with whole tensors and keeps what it writes. On an
FSDP2 model the function sees shards: a random initialisation gives other values (a loss of 4.40 in place of 3.23,
measured on torch 2.13).

## Example

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def init(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight)


def build(net):
    model = FSDP(net)
    model.apply(init)
    return model
```

## Use instead

```python
from torch import nn
from torch.distributed.fsdp import fully_shard

from fsdp2_support import full_params


def init(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight)


def build(net):
    model = fully_shard(net)
    with full_params(model):
        model.apply(init)
    return model
```

## Fix safety

The same values as before, on every rank. `apply` before the model is sharded needs no gathering, and draws the same
random numbers where nothing else does in between. A function that is not seen, and is named `enable_…` or `disable_…`,
is taken to set flags of modules alone, which a finding says.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.apply
"""

from __future__ import annotations

import re

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, Rule, left, rewritten
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import place
from codemods.reading.code.words import last_name
from codemods.reading.edits.block_layout import indented
from codemods.reading.parameters.of_model import is_summoned

CODE = "FM403"

_WRITES = re.compile(r"init|\.data\b|weight|bias|_\(|param|buffer|no_grad|copy|\bto\(")


_SWITCHES = ("disable_", "enable_")


def fix(call: cst.Call, ctx: Context) -> Fix | None:
    method = call.func
    if not isinstance(method, cst.Attribute) or method.attr.value != "apply" or len(call.args) != 1:
        return None
    if ctx.fsdp1(method) is not None or ctx.dotted(method) is not None or ModelKind.FSDP not in ctx.kinds(method.value):
        return None
    if _writes_nothing(ctx, call.args[0].value) or is_summoned(call, ctx):
        return None
    if _switches(ctx, call.args[0].value):
        message = f"{ctx.code(call)} stays: `{ctx.code(call.args[0].value)}` is taken to write to no parameter"
        return left(CODE, Level.REVIEW, ctx, method, message, "check proves it")
    line = enclosing(ctx, call, cst.SimpleStatementLine)
    text = ctx.code(line.body[0]) if line is not None and len(line.body) == 1 else ""
    if not _is_whole(ctx, call) or place(method.value) is None or not text:
        message = "apply runs on sharded DTensors: FSDP1 gathered the parameters first, and random values differ"
        hint = "apply it before the model is sharded, or in a statement of its own inside of full_params"
        return left(CODE, Level.MANUAL, ctx, method, message, hint)
    assert line is not None
    start, end = ctx.span(line.body[0])
    indent = ctx.text[ctx.whole_lines(line)[0] : start] + ctx.indent
    item = ctx.named(Import(SUPPORT, "full_params"), call)
    block = f"with {item.local}({ctx.quote(method.value)}):{ctx.newline}{indent}{ctx.quote(line.body[0])}"
    message = "apply of a wrapped model moves into full_params, a support function"
    return rewritten(CODE, ctx, method, [Edit(start, end, block), *indented(ctx, line.body[0])], message, [item])


def _is_whole(ctx: Context, call: cst.Call) -> bool:
    """Whether the call is all that its statement does, apart from binding the result."""
    holder = ctx.parent(call)
    return isinstance(holder, cst.Expr) or (isinstance(holder, cst.Assign) and len(holder.targets) == 1)


def _writes_nothing(ctx: Context, function: cst.BaseExpression) -> bool:
    """Whether the function is seen, and nothing in it looks like a write to parameters or buffers."""
    made = ctx.origins(function)
    return all(
        isinstance(origin.node, (cst.FunctionDef, cst.Lambda)) and not _WRITES.search(origin.file.code(origin.node))
        for origin in made
    )


def _switches(ctx: Context, function: cst.BaseExpression) -> bool:
    """Whether a function's name says that it sets flags, and none is seen that it could be instead."""
    if any(isinstance(origin.node, (cst.FunctionDef, cst.Lambda)) for origin in ctx.origins(function)):
        return False
    return last_name(function).startswith(_SWITCHES)


RULE = Rule(CODE, "init-after-sharding", __doc__, nodes=(cst.Call,), fix=fix)
