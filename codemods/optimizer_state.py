"""**What it does.** Rewrites FSDP1's static methods that read or load an optimizer's state.

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

Same keys and values (torch 2.13). Inside a `state_dict_type` context the context's rule takes the call. What is
not loaded in one place is reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import libcst as cst

from codemods.layout import call_text, is_inside, removal
from codemods.optimizer_loading import arguments_by_name, optimizer_loading
from codemods.tables.leftovers import LEFTOVERS
from codemods.tables.state_dicts import CONTEXT, DCP, OPTIMIZER_READS, TO_LOAD
from codemods.vocabulary import SUPPORT, Edit, File, Import, Level, Outcome, Rule, Undecided, finding

CODE = "FM303"


def match(node: cst.CSTNode, file: File) -> cst.Call | None:
    if not isinstance(node, cst.Call) or file.fsdp1(node.func) not in {*OPTIMIZER_READS, TO_LOAD}:
        return None
    inside = bool(node.args) and is_inside(node, CONTEXT, file.code(node.args[0].value), file)
    return None if inside and not file.state_dicts_at_run_time else node


def edit(call: cst.Call, file: File) -> Outcome:
    try:
        return _load(call, file) if file.fsdp1(call.func) == TO_LOAD else _read(call, file)
    except Undecided as undecided:
        row = LEFTOVERS[TO_LOAD]
        return Outcome(findings=[finding(CODE, Level.MANUAL, file, call, f"{row.message}: {undecided}", row.cure)])


def _read(call: cst.Call, file: File) -> Outcome:
    name = file.fsdp1(call.func) or ""
    given = arguments_by_name(call)
    if set(given) != {"model", "optim"}:
        raise Undecided("the optimizer's state is read with arguments that are not followed")
    arguments = ", ".join(file.code(given[key]) for key in ("model", "optim"))
    if file.state_dicts_at_run_time and name.endswith(".optim_state_dict"):
        imports = [file.named(Import(SUPPORT, "optim_state_dict"), call)]
    else:
        imports = [file.named(Import(DCP, "get_optimizer_state_dict"), call)]
        if OPTIMIZER_READS[name]:
            imports.append(file.named(Import(DCP, "StateDictOptions"), call))
            arguments += f", options={imports[1].local}({OPTIMIZER_READS[name]})"
    text = call_text(file, call, imports[0].local, arguments)
    message = f"{file.code(call.func)} becomes {imports[0].name}"
    return Outcome([Edit(*file.span(call), text)], [finding(CODE, Level.REWRITTEN, file, call, message)], imports)


def _load(call: cst.Call, file: File) -> Outcome:
    loading = optimizer_loading(call, file)
    item = file.named(Import(SUPPORT, "load_optim_state_dict"), call)
    edits = [loading.edit(file, item.local), *(removal(file, statement) for statement in loading.emptied)]
    message = "optim_state_dict_to_load and load_state_dict become load_optim_state_dict of the support module"
    return Outcome(edits, [finding(CODE, Level.REWRITTEN, file, call, message)], [item])


RULE: Rule[cst.Call] = Rule(
    CODE, "optimizer-state-method", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit
)
