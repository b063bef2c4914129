"""**What it does.** Finds parameter names that are searched for the parts that FSDP1 put into them.

**Why.** FSDP2 has the model's own names. Taking `_fsdp_wrapped_module.` out of a name changes nothing any more, but
asking whether it is there is False for all of them.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrapped(net):
    model = FSDP(net, use_orig_params=True)
    return [name for name, _ in model.named_parameters() if "_fsdp_wrapped_module" in name]
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def cleaned(net):
    model = FSDP(net, use_orig_params=True)
    return [name.replace("_fsdp_wrapped_module.", "") for name, _ in model.named_parameters()]
```

## Fix safety

Nothing is changed: it is reported, for you to decide. `replace` and `removeprefix` do nothing now, and may stay.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.code.shapes import called_on, went_over

CODE = "FM418"

_MESSAGE = "names are searched for what FSDP1 put into them, and FSDP2's names are those of the model"
_HINT = "ask for what is meant: isinstance(module, FSDPModule), or the name without it"

_PARTS = ("_fsdp_wrapped_module", "_flat_param", "_fpw_module")


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each question."""
    for node in ctx.nodes(cst.SimpleString):
        if not any(part in node.value for part in _PARTS) and not _is_in_names(ctx, node):
            continue
        holder = ctx.parent(node)
        if (
            not _is_in_names(ctx, node)
            and not _is_filter(ctx, node)
            and not _is_asked(ctx, holder)
            and not _is_whole_name(ctx, node)
        ):
            continue
        yield finding(CODE, Level.MANUAL, ctx, node, _MESSAGE, _HINT)


def _is_in_names(ctx: Context, node: cst.SimpleString) -> bool:
    """`"fsdp" in name` of a loop over the names of a sharded model."""
    if "fsdp" not in str(node.evaluated_value) or str(node.evaluated_value) not in _PARTS[0]:
        return False
    asked = ctx.parent(node)
    if not isinstance(asked, cst.Comparison) or len(asked.comparisons) != 1 or asked.left is not node:
        return False
    name = asked.comparisons[0].comparator
    if not isinstance(asked.comparisons[0].operator, (cst.In, cst.NotIn)) or not isinstance(name, cst.Name):
        return False
    loops = [outer for outer in ctx.ancestors(node) if isinstance(outer, (cst.For, cst.BaseSimpleComp))]
    turns = [went_over(loop if isinstance(loop, cst.For) else loop.for_in) for loop in loops]
    return any(_names_of_model(ctx, over) for target, over in turns if _binds_first(target, name.value))


def _binds_first(target: cst.BaseExpression, name: str) -> bool:
    first = target.elements[0].value if isinstance(target, cst.Tuple) and target.elements else None
    return isinstance(first, cst.Name) and first.value == name


def _names_of_model(ctx: Context, called: cst.BaseExpression) -> bool:
    if not isinstance(called, cst.Call) or not isinstance(called.func, cst.Attribute):
        return False
    model = called.func.value
    is_walk = called.func.attr.value in {"named_buffers", "named_modules", "named_parameters"}
    return is_walk and (ModelKind.FSDP in ctx.kinds(model) or ctx.holds_parts(model))


def _is_filter(ctx: Context, node: cst.SimpleString) -> bool:
    """`[… if "…" in name]`; a test before a `replace` only spares the call."""
    for outer in ctx.ancestors(node):
        if isinstance(outer, cst.CompIf):
            return True
        if not isinstance(outer, (cst.Comparison, cst.ComparisonTarget, cst.UnaryOperation, cst.BooleanOperation)):
            return False
    return False


def _is_asked(ctx: Context, holder: cst.CSTNode | None) -> bool:
    """`name.startswith("…")`, `name.endswith("…")`, `name.split("…")`."""
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    asks = called_on(call, "startswith", "endswith", "split", "find", "index")
    return isinstance(call, cst.Call) and asks is not None and not _only_spares(ctx, call)


def _only_spares(ctx: Context, asked: cst.Call) -> bool:
    """Whether a test for a prefix decides nothing but whether that is taken off: a name of FSDP2's has none."""
    owner, choice = called_on(asked, "startswith"), ctx.parent(asked)
    if owner is None or len(asked.args) != 1 or not isinstance(choice, (cst.If, cst.IfExp)):
        return False
    name = ctx.code(owner)
    if isinstance(choice, cst.IfExp):
        return ctx.code(choice.orelse) == name and _takes_off(ctx, choice.body, name, ctx.code(asked.args[0].value))
    line = choice.body.body[0] if len(choice.body.body) == 1 else None
    made = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if choice.orelse is not None or not isinstance(made, cst.Assign) or len(made.targets) != 1:
        return False
    is_same = ctx.code(made.targets[0].target) == name
    return is_same and _takes_off(ctx, made.value, name, ctx.code(asked.args[0].value))


def _takes_off(ctx: Context, value: cst.BaseExpression, name: str, prefix: str) -> bool:
    """`name.replace(prefix, …)`, `name.removeprefix(prefix)`, `name[len(prefix):]`."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.args:
        is_taken = value.func.attr.value in {"replace", "removeprefix"} and ctx.code(value.func.value) == name
        return is_taken and ctx.code(value.args[0].value) == prefix
    if not isinstance(value, cst.Subscript) or ctx.code(value.value) != name or len(value.slice) != 1:
        return False
    part = value.slice[0].slice
    if not isinstance(part, cst.Slice) or part.upper is not None or part.step is not None:
        return False
    return isinstance(part.lower, cst.Call) and ctx.code(part.lower) == f"len({prefix})"


def _is_whole_name(ctx: Context, node: cst.SimpleString) -> bool:
    """`name == "_fsdp_wrapped_module.emb"`, `name in ["_fsdp_wrapped_module.emb"]`, a key of a table of names."""
    if str(node.evaluated_value).strip(".") in _PARTS:
        return False
    holder = ctx.parent(node)
    if isinstance(holder, cst.ConcatenatedString):
        return False
    return isinstance(holder, (cst.Comparison, cst.ComparisonTarget, cst.Element, cst.DictElement, cst.Index))


CHECK = Check(
    CODE, "wrapper-in-names", __doc__, words=("_fsdp_wrapped_module", "_flat_param", "_fpw_module", "fsdp"), find=find
)
