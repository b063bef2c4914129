"""**What it does.** Rewrites FSDP1's static methods that read or load an optimizer's state into functions of the same
names in the support module.

**Why.** They read flat parameters, which an FSDP2 model does not have. Torch's own `get_optimizer_state_dict` and
`set_optimizer_state_dict` train on differently: the one counts a step on an optimizer that has not stepped yet, the
other lets parameters share the one `step` tensor that FSDP1 saved for a unit, and refuses parameters without a state.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(net, optimizer, path):
    model = FSDP(net)
    saved = torch.load(path) if torch.distributed.get_rank() == 0 else None
    optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer))
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard

from fsdp2_support import scatter_full_optim_state_dict


def resume(net, optimizer, path):
    model = fully_shard(net)
    saved = torch.load(path) if torch.distributed.get_rank() == 0 else None
    optimizer.load_state_dict(scatter_full_optim_state_dict(saved, model, optim=optimizer))
```

## Fix safety

Same keys, order, dtypes and values, and the same training after a file that FSDP1 saved (torch 2.13, 2 and 4 ranks).
Without `use_orig_params` FSDP1 had another order of the keys, which `flat_order=True` keeps; `shard_model` of the
support module sees it by itself. A file whose keys are parameter ids raises.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

import libcst as cst

from codemods.api import (
    SUPPORT,
    Context,
    Edit,
    Emission,
    Fix,
    Import,
    Level,
    ModelKind,
    NotStatic,
    Rule,
    finding,
)
from codemods.plan import PlannedContext
from codemods.reading.call_layout import argument_removal, renaming, space_behind
from codemods.reading.dcp_format import is_saved_by_dcp
from codemods.reading.flat_parameters import constructor_calls, had_flat_parameters
from codemods.reading.optimizers import optimizer_loaded
from codemods.reading.process_groups import has_group_of_its_own, is_default, is_of_model
from codemods.reading.state_dict_settings import context_of, default, settings
from codemods.tables.leftovers import LEFTOVERS
from codemods.tables.state_dicts import OPTIMIZER_CALLS

CODE = "FM303"

_PREFIX = "FullyShardedDataParallel."
_READERS = frozenset({"full_optim_state_dict", "optim_state_dict", "sharded_optim_state_dict"})
_LOADERS = frozenset({"scatter_full_optim_state_dict", "shard_full_optim_state_dict"})
"""What takes an optimizer over all parameters for granted where none is given."""
_MODEL = re.compile(r"model|module|net\b", re.IGNORECASE)


def match(node: cst.CSTNode, ctx: Context) -> cst.Call | None:
    return node if isinstance(node, cst.Call) and _function(node, ctx) is not None else None


def _function(call: cst.Call, ctx: Context) -> str | None:
    """The static method that is called: on the class, or on a model, which has it too."""
    name = ctx.fsdp1(call.func)
    if name is not None:
        name = name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None
    elif isinstance(call.func, cst.Attribute) and call.func.attr.value in OPTIMIZER_CALLS:
        held = ctx.kinds(call.func.value)
        name = call.func.attr.value if ModelKind.FSDP in held else None
    return name if name in OPTIMIZER_CALLS else None


def edit(call: cst.Call, ctx: PlannedContext) -> Fix:
    name = _function(call, ctx) or ""
    try:
        return _rewrite(call, name, ctx)
    except NotStatic as undecided:
        if ctx.fsdp1(call.func) is None:
            return Fix()  # an attribute of the wrapper, which is named as such
        row = LEFTOVERS[_PREFIX + name]
        return Fix(findings=[finding(CODE, Level.MANUAL, ctx, call, f"{row.message}: {undecided}", row.hint)])


def _rewrite(call: cst.Call, name: str, ctx: PlannedContext) -> Fix:
    given = _by_name(call, name, ctx)
    function, more = _read(call, given, ctx) if name == "optim_state_dict" else (name, "")
    if function not in _READERS and _has_group_of_its_own(given, ctx):
        # A state to load comes from the first of all ranks, and another group's model has other values.
        raise NotStatic("the model is sharded over a process group of its own")
    if function in _READERS and _has_flat_order(given["model"].value, ctx):
        more += ", flat_order=True"
    left_out = OPTIMIZER_CALLS[name].dropped
    if function == "full_optim_state_dict" and is_saved_by_dcp(call, ctx):
        function, more, left_out = "sharded_optim_state_dict", "", (*left_out, "rank0_only")
    if function in _LOADERS and "optim" not in given:
        optimizer = optimizer_loaded(call, ctx)
        more += f", optim={ctx.quote(optimizer)}" if optimizer is not None else ""
    item = ctx.named(Import(SUPPORT, function), call)
    dropped = [given[key] for key in left_out if key in given]
    edits = renaming(ctx, call, item.local, dropped)
    for argument in dropped:
        edits += argument_removal(ctx, call, argument)
    if more:
        last = [argument for argument in call.args if argument not in dropped][-1]
        end = ctx.span(last.value)[1]
        more = f",{space_behind(ctx, last)}{more.removeprefix(', ')}"
        behind = next((removal for removal in edits if removal.start == end), Edit(end, end, ""))
        edits = [*(other for other in edits if other != behind), Edit(end, behind.end, more)]
    if name == "optim_state_dict_to_load":
        edits += _in_order(given, ctx)
    message = f"{ctx.code(call.func)} becomes {function} of the support module"
    return Fix(edits, [finding(CODE, Level.REWRITTEN, ctx, call, message)], [item])


def _by_name(call: cst.Call, name: str, ctx: Context) -> Mapping[str, cst.Arg]:
    """The arguments by FSDP1's names. Raises NotStatic for one that the support module's function cannot do without."""
    row = OPTIMIZER_CALLS[name]
    found = {}
    for index, argument in enumerate(call.args):
        if argument.star or (argument.keyword is None and index >= len(row.parameters)):
            raise NotStatic("its arguments are not followed")
        found[argument.keyword.value if argument.keyword is not None else row.parameters[index]] = argument
    for key, argument in found.items():
        if key in row.dropped and not _is_needless(key, argument.value, found, ctx):
            raise NotStatic(f"its {key} is `{ctx.code(argument.value)}`")
    return found


def _is_needless(key: str, value: cst.BaseExpression, given: Mapping[str, cst.Arg], ctx: Context) -> bool:
    """Whether an argument says no more than what holds without it."""
    text = ctx.code(value)
    if text in {"None", "False"}:
        return True
    if key == "group":
        return is_default(ctx, value) or ("model" in given and is_of_model(ctx, value, given["model"].value))
    optimizer = ctx.code(given["optim"].value) if "optim" in given else ""
    if key == "optim_input":
        return bool(optimizer) or text == f"{ctx.code(given['model'].value)}.parameters()"
    return key == "optim_state_dict" and text == f"{optimizer}.state_dict()"


def _read(call: cst.Call, given: Mapping[str, cst.Arg], ctx: PlannedContext) -> tuple[str, str]:
    """The support module's function that reads what `optim_state_dict` would, and what to add to the arguments."""
    if not {"model", "optim"} <= set(given):
        raise NotStatic("the model or the optimizer is not among its arguments")
    if ctx.plan.state_dicts_at_run_time:
        return "optim_state_dict", ""
    context = context_of(call, ctx)
    if context is None:
        return default(given["model"].value).optimizer_reading
    chosen = settings(context, ctx)
    if ctx.code(chosen.model) != ctx.code(given["model"].value):
        raise NotStatic(f"the context around it is for `{ctx.code(chosen.model)}`")
    return chosen.optimizer_reading


def _has_group_of_its_own(given: Mapping[str, cst.Arg], ctx: Context) -> bool:
    """Whether the model can be sharded over other ranks than all."""
    if "group" in given and not is_default(ctx, given["group"].value):
        return True
    model = given.get("model")
    return model is not None and has_group_of_its_own(ctx, model.value)


def _has_flat_order(model: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether FSDP1 is seen to have flat parameters; `shard_model` of the support module sees that by itself."""
    calls = constructor_calls(model, ctx)
    if had_flat_parameters(model, ctx):
        return all(ctx.plan.emission(call) is not Emission.SUPPORT for _, call in calls)
    return bool(calls) and all(_is_spread_flat(where, call, ctx) for where, call in calls)


def _is_spread_flat(where: Context, call: cst.Call, ctx: PlannedContext) -> bool:
    """The same for a call whose arguments come by a `**kwargs` that the program spells out."""
    draft = ctx.plan.wraps[call].draft if call in ctx.plan.wraps else None
    if draft is None:
        return False
    given = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "use_orig_params"]
    given += [v for v, n in draft.spread.items() if n == "use_orig_params" and isinstance(v, cst.BaseExpression)]
    made = [origin for value in given for origin in where.origins(value)]
    if not made:
        return "use_orig_params" not in draft.given
    return all(origin.node is not None and origin.file.code(origin.node) == "False" for origin in made)


def _in_order(given: Mapping[str, cst.Arg], ctx: Context) -> list[Edit]:
    """Before torch 2.1 the arguments were `(optim_state_dict, model, optim)`."""
    first, second = given.get("model"), given.get("optim")
    if first is None or second is None or first.keyword is not None or second.keyword is not None:
        return []
    third = given["optim_state_dict"]
    if _is_model(first, ctx):
        return []
    if third.keyword is not None or not _is_model(second, ctx):
        raise NotStatic("it cannot be seen which of its arguments is the model: torch 2.1 changed their order")
    places = [ctx.span(argument.value) for argument in (first, second, third)]
    texts = [ctx.quote(argument.value) for argument in (second, third, first)]
    gaps = [ctx.quote_text(here[1], following[0]) for here, following in pairwise(places)]
    return [Edit(places[0][0], places[2][1], "".join([texts[0], gaps[0], texts[1], gaps[1], texts[2]]))]


def _is_model(argument: cst.Arg, ctx: Context) -> bool:
    held = ctx.kinds(argument.value)
    if ModelKind.FSDP in held or ModelKind.UNKNOWN not in held:
        return ModelKind.FSDP in held
    text = ctx.code(argument.value)
    return bool(_MODEL.search(text)) and "state" not in text


RULE: Rule[cst.Call] = Rule(
    CODE,
    "optimizer-state-method",
    __doc__,
    nodes=(cst.Call,),
    methods=tuple(sorted(OPTIMIZER_CALLS)),
    match=match,
    edit=edit,
)
