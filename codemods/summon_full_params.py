"""**What it does.** Rewrites `FSDP.summon_full_params(model, ...)` into `summon_full_params` of the support
module, or takes it away around calls of the model itself.

**Why.** On an FSDP2 model FSDP1's context does nothing, and says nothing: the parameters stay sharded, and what is
written to a gathered copy is lost.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(net, prompt):
    model = FSDP(net)
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        return model.generate(prompt)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def sample(net, prompt):
    model = fully_shard(net)
    return model.generate(prompt)
```

## Fix safety

The support module's context reads and writes whole parameters and writes back as FSDP1 did (torch 2.13, 2 ranks). The
model must not be called inside it: it gathers by itself. `writeback=False, recurse=False` was the way to call
`generate` on FSDP1; there the context goes. A body that does both, or hands the model on, is reported and raises.

## References

- https://github.com/pytorch/pytorch/issues/100069
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.layout import replace_head, stop
from codemods.tables.leftovers import LEFTOVERS
from codemods.vocabulary import SUPPORT, Edit, File, Import, Level, Outcome, Rule, finding

CODE = "FM203"

_NAME = "FullyShardedDataParallel.summon_full_params"
_READS = frozenset({"apply", "buffers", "children", "modules", "named_buffers", "named_children", "named_modules"})
_READS |= {"named_parameters", "parameters", "get_parameter", "get_submodule"}


def match(node: cst.CSTNode, file: File) -> cst.Call | None:
    return node if isinstance(node, cst.Call) and file.fsdp1(node.func) == _NAME else None


def edit(call: cst.Call, file: File) -> Outcome:
    block = _block(call, file)
    if _only_root_read(call):
        return _without_context(call, block, file)
    if block is None or not call.args or _uses_model(block, file.code(call.args[0].value), file):
        row = LEFTOVERS[_NAME]
        edits = stop(file, call, CODE, row.message)
        return Outcome(edits, [finding(CODE, Level.MANUAL, file, call, row.message, row.cure)])
    item = file.named(Import(SUPPORT, "summon_full_params"), call)
    message = "summon_full_params becomes summon_full_params of the support module"
    return Outcome(
        [Edit(*file.span(call.func), item.local)], [finding(CODE, Level.REWRITTEN, file, call, message)], [item]
    )


def _without_context(call: cst.Call, block: cst.With | None, file: File) -> Outcome:
    message = "summon_full_params around calls of the model goes: an FSDP2 model gathers by itself"
    cure = "parameters that are read here directly are DTensors: use p.full_tensor()"
    found = [finding(CODE, Level.REVIEW, file, call, message, cure)]
    if block is not None and len(block.items) == 1 and isinstance(block.body, cst.IndentedBlock):
        return Outcome(replace_head(file, block), found)
    item = file.named(Import("contextlib", "nullcontext"), call)
    return Outcome([Edit(*file.span(call), f"{item.local}()")], found, [item])


def _block(call: cst.Call, file: File) -> cst.With | None:
    item = file.parent(call)
    block = file.parent(item) if isinstance(item, cst.WithItem) else None
    return block if isinstance(block, cst.With) else None


def _only_root_read(call: cst.Call) -> bool:
    given = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    return all(isinstance(v := given.get(n), cst.Name) and v.value == "False" for n in ("writeback", "recurse"))


def _uses_model(block: cst.With, model: str, file: File) -> bool:
    """Whether the body calls the model, or hands it to other code."""
    for node in _inside(block.body):
        if not isinstance(node, cst.Call):
            continue
        if any(file.code(argument.value) == model for argument in node.args):
            return True
        if file.code(node.func) == model:
            return True
        if isinstance(node.func, cst.Attribute) and node.func.attr.value not in _READS:
            if file.code(node.func.value) == model:
                return True
    return False


def _inside(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _inside(child)


RULE: Rule[cst.Call] = Rule(CODE, "summon-full-params", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit)
