"""**What it does.** Rewrites FSDP1's static methods that read an optimizer's state into `get_optimizer_state_dict`.

**Why.** They read flat parameters, which an FSDP2 model does not have. The new function returns the same
dictionary, keyed by parameter name.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def optimizer_state(net, optimizer):
    model = FSDP(net)
    return FSDP.full_optim_state_dict(model, optimizer)
```

## Use instead

```python
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard


def optimizer_state(net, optimizer):
    model = fully_shard(net)
    return get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
```

## Fix safety

Same keys and values (torch 2.13). Inside a `state_dict_type` context the context's rule takes the call. Loading
through the old methods outside a context is reported, not rewritten: what is loaded, and where, is not seen in one
place.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import libcst as cst

from codemods.layout import call_text, is_inside
from codemods.tables.state_dicts import CONTEXT, DCP, OPTIMIZER_READS
from codemods.vocabulary import Edit, File, Import, Level, Outcome, Rule, finding

CODE = "FM303"


def match(node: cst.CSTNode, file: File) -> cst.Call | None:
    if not isinstance(node, cst.Call) or file.fsdp1(node.func) not in OPTIMIZER_READS:
        return None
    if len(node.args) != 2 or any(argument.star or argument.keyword is not None for argument in node.args):
        return None
    if file.mentions("set_state_dict_type") or is_inside(node, CONTEXT, file.code(node.args[0].value), file):
        return None
    return node


def edit(call: cst.Call, file: File) -> Outcome:
    options = OPTIMIZER_READS[file.fsdp1(call.func) or ""]
    arguments = ", ".join(file.code(argument.value) for argument in call.args)
    imports = [Import(DCP, "get_optimizer_state_dict")]
    if options:
        arguments += f", options={options}"
        imports.append(Import(DCP, "StateDictOptions"))
    text = call_text(file, call, "get_optimizer_state_dict", arguments)
    message = f"{file.code(call.func)} becomes get_optimizer_state_dict"
    return Outcome(
        edits=[Edit(*file.span(call), text)],
        findings=[finding(CODE, Level.REWRITTEN, file, call, message)],
        imports=imports,
    )


RULE: Rule[cst.Call] = Rule(
    CODE, "optimizer-state-method", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit
)
