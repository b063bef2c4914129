"""**What it does.** Names every use of FSDP1 that no other rule rewrote, and stops the program before those that
an FSDP2 model would silently ignore.

**Why.** `FSDP.summon_full_params`, `FSDP.state_dict_type`, `FSDP.set_state_dict_type` and `FSDP.fsdp_modules` do
nothing on an FSDP2 model and raise nothing: left in place, a run goes on with wrong results.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def roots(net):
    model = FSDP(net)
    return FSDP.fsdp_modules(model, root_only=True)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def roots(net):
    model = fully_shard(net)
    return [model]
```

## Fix safety

Nothing is guessed: the line stays, and where leaving it would be silent a `raise NotImplementedError` stands
before it.

## References

- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from codemods.api import Context, Edit, Finding, Fix, Import, Level, ModelKind, Raise, finding, left, replaced
from codemods.reading.code.enclosing import call_by
from codemods.reading.code.program import (
    defines_method,
    may_be_models_own,
    reads_attribute,
    sets_attribute,
    sets_on_itself,
)
from codemods.reading.code.texts import is_compared_with_text
from codemods.reading.code.words import is_name, last_name, words
from codemods.reading.wrappers.asked_classes import model_of
from codemods.tables.leftovers import (
    ALSO_OF_MODELS,
    BY_CLASS,
    CLASS,
    GONE,
    HARMLESS,
    HOOK_HINT,
    INTERNALS,
    LEFTOVERS,
    OF_WRAPPER,
    ON_MODEL,
    ON_MODEL_HINTS,
    OTHER,
    PRIVATE,
    RESHARDING,
    RESHARDING_HINT,
    SETTINGS,
    SPEED_ONLY,
    STATIC,
    Leftover,
)
from codemods.tables.names import PLAIN_DATA, SILENT_ON_FSDP2, WRAPPER

CODE = "FM100"


def report(node: cst.BaseExpression, name: str, ctx: Context, migrated: bool) -> Fix:
    """The finding for one leftover; `migrated` says whether the program's models are FSDP2 now."""
    call = ctx.parent(node)
    if migrated and name.endswith("_is_fsdp_flattened") and isinstance(call, cst.Call) and call.func is node:
        return _sharded_parameter(call, ctx)
    if name.split(".")[0] in GONE:
        message = f"torch has no {name} any more: importing it failed before, and does now"
        return left(CODE, Level.REVIEW, ctx, node, message)
    row = _row(node, name, ctx)
    stays = _stays(node, name, ctx) if row is PRIVATE else ""
    if stays:
        return left(CODE, Level.REVIEW, ctx, node, stays)
    if row is PRIVATE:
        row = _internals_of(ctx)
    owner, _, method = name.rpartition(".")
    if row is OTHER and owner == WRAPPER and method in BY_CLASS:
        message = f"{method} is called by FSDP1's class, of which no model is one any more"
        row = replace(row, message=message, hint=f"write model.{method}(...), and run again")
    elif row is OTHER:
        row = replace(row, message=f"{name} is FSDP1's, and no FSDP2 is known that replaces it")
    model = model_of(ctx, node)
    stops = migrated and _is_silent(node, name, ctx) and not (row.code == PRIVATE.code and _is_inner(model, ctx))
    raises = [Raise(node, row.code, row.message, model)] if stops else []
    return left(row.code, Level.MANUAL, ctx, node, row.message, row.hint, raises)


def _is_inner(given: cst.BaseExpression | None, ctx: Context) -> bool:
    """Whether what a private function is given is no model, but a set, or what came out of another one: no test of its
    class would stop anything.
    """
    if given is None or ModelKind.FSDP in ctx.kinds(given):
        return False
    return not words(last_name(given)) & _MODELS


_MODELS = frozenset(
    {"m", "mod", "model", "models", "module", "modules", "net", "network", "root", "self", "unit", "unet"}
)
_MODELS |= {"actor", "critic", "policy", "student", "submodule", "teacher", "transformer"}


def _sharded_parameter(call: cst.Call, ctx: Context) -> Fix:
    """`_is_fsdp_flattened(param)`: whether FSDP has the parameter, which a DTensor says."""
    item = ctx.named(Import("torch.distributed.tensor", "DTensor"), call)
    given = ", ".join([ctx.quote(call.args[0].value), item.local])
    message = "_is_fsdp_flattened becomes a test for DTensor, which a parameter is that FSDP2 shards"
    return replaced("FM401", ctx, call.func, f"isinstance({given})", message, [item], around=call)


def is_plain_data(name: str) -> bool:
    """Whether it is an enum, a record of settings or a policy, which FSDP2 code can use as well."""
    return name.split(".")[0] in PLAIN_DATA


def plain_data(found: Sequence[tuple[cst.BaseExpression, str]], ctx: Context) -> Fix:
    """One note a file about settings that stay torch's own: other programs and libraries fill and compare them."""
    if not found:
        return Fix()
    names = sorted({name.split(".")[0] for _, name in found})
    message = f"{', '.join(names)} {_STAYS}"
    return left(CODE, Level.REVIEW, ctx, found[0][0], message)


def is_about_data(found: Finding) -> bool:
    """Whether a finding only says which settings stay, or that an annotation in quotes does."""
    return found.rule == CODE and found.level is Level.REVIEW


def is_without_a_cure(found: Finding) -> bool:
    """Whether a finding is about a name that nothing is known to replace."""
    return found.rule == CODE and found.hint == OTHER.hint


def quoted(node: cst.BaseExpression, name: str, ctx: Context, migrated: bool) -> Fix:
    """An annotation in quotes, which nothing runs."""
    if migrated and name == WRAPPER and isinstance(node, cst.SimpleString) and str(node.evaluated_value).isidentifier():
        nn = ctx.named(Import("torch", "nn"), node)
        changed = Edit(*ctx.span(node), f"{node.quote}{nn.local}.Module{node.quote}")
        message = "annotation becomes nn.Module: fully_shard works in place"
        return Fix([changed], [finding(CODE, Level.REWRITTEN, ctx, node, message)], [nn])
    message = f"{name} is named in an annotation in quotes, which stays as it is"
    hint = "write FSDPModule, or nn.Module where nothing of a unit is used" if name == WRAPPER else ""
    return left(CODE, Level.REVIEW, ctx, node, message, hint)


_STAYS = "of torch.distributed.fsdp stays in use: settings and policies, which have no behaviour of FSDP1"


def _is_silent(node: cst.BaseExpression, name: str, ctx: Context) -> bool:
    """Whether FSDP2 would pass over it: most of FSDP1's functions look for its own modules, and find none.

    What only runs when the file is imported (an annotation, a table) does no harm, and may never be used.
    """
    if name in SILENT_ON_FSDP2:
        return True
    if name == WRAPPER:  # `type(model) is FSDP` would be False for ever
        return isinstance(ctx.parent(node), (cst.ComparisonTarget, cst.Comparison))
    holders = list(ctx.ancestors(node))
    runs = isinstance(ctx.scope(node), cst.FunctionDef) and not any(isinstance(h, cst.Annotation) for h in holders)
    first = name.split(".")[0]
    is_function = first == WRAPPER or first.startswith("_") or first in {"FlatParameter", "enable_wrap", "wrap"}
    return runs and is_function and not HARMLESS & set(name.split("."))


def internals(ctx: Context, attributes: Sequence[cst.Attribute], migrated: bool) -> Fix:
    """Attributes of FSDP1's own objects, in a file that deals with FSDP1. Reading one raises; setting one would not."""
    found: list[Finding] = []
    raises: list[Raise] = []
    for attribute in attributes:
        for row in _rows_of(attribute, ctx):
            found.append(finding(row.code, Level.MANUAL, ctx, attribute, row.message, row.hint))
            is_set = isinstance(ctx.parent(attribute), cst.AssignTarget)
            if migrated and is_set and ModelKind.FSDP in ctx.kinds(attribute.value):
                raises.append(Raise(attribute, row.code, row.message, attribute.value))
    return Fix(findings=found, raises=raises)


def _rows_of(attribute: cst.Attribute, ctx: Context) -> Iterator[Leftover]:
    if _is_internal(attribute, ctx):
        yield _internals_of(ctx)
    row = _method_row(attribute, ctx)
    if row is not None:
        yield _internals_of(ctx) if uses_internals(ctx.scope(attribute), ctx) else row


def _is_internal(attribute: cst.Attribute, ctx: Context) -> bool:
    """Whether FSDP1's own objects have it, and no object of the program's."""
    owner = attribute.value
    if attribute.attr.value not in INTERNALS or _is_wrapped_module(attribute, ctx):
        return False
    if isinstance(owner, cst.Attribute) and owner.attr.value in INTERNALS:
        return False  # told of what it begins with
    if is_name(owner, "self") and ctx.defines(attribute.attr.value):
        return False  # a method of the program's
    if any(isinstance(outer, (cst.Import, cst.ImportFrom)) for outer in ctx.ancestors(attribute)):
        return False
    held = ctx.kinds(owner)
    if held - {ModelKind.OTHER}:
        is_of_handles = attribute.attr.value == "flat_param"  # no module of FSDP1's has it
        return (ModelKind.FSDP in held and not is_of_handles) or not _is_of_own_class(attribute.attr.value, ctx)
    return not sets_attribute(ctx, attribute.attr.value)


def _is_of_own_class(name: str, ctx: Context) -> bool:
    """Whether a class of the file sets it on itself (`self.flat_param = torch.cat(…)`)."""
    stores = [node for where, node in ctx.attributes(name) if where is ctx and is_name(node.value, "self")]
    return any(isinstance(ctx.parent(node), (cst.AnnAssign, cst.AssignTarget)) for node in stores)


def uses_internals(scope: cst.CSTNode, ctx: Context) -> bool:
    """Whether a function works on FSDP1's own objects: what else it asks of the wrapper goes with them."""
    if not isinstance(scope, cst.FunctionDef):
        return False
    held = any(ctx.scope(node) is scope and _is_internal(node, ctx) for node in ctx.nodes(cst.Attribute))
    return held or any(ctx.scope(node) is scope and _is_private(node, name, ctx) for node, name in ctx.references())


def _internals_of(ctx: Context) -> Leftover:
    """What is said of each use in the file: one finding for all of them."""
    used: dict[cst.CSTNode, str] = {n: n.attr.value for n in ctx.nodes(cst.Attribute) if _is_internal(n, ctx)}
    used |= {n: name.rpartition(".")[2] for n, name in ctx.references() if _is_private(n, name, ctx)}
    names = dict.fromkeys(used[n] for n in sorted(used, key=ctx.position))
    shown = ", ".join(f"`{name}`" for name in [*names][:_SHOWN]) + (" and more" if len(names) > _SHOWN else "")
    is_own = "is FSDP1's own" if len(names) == 1 else "are FSDP1's own"
    hint = RESHARDING_HINT if names and RESHARDING.issuperset(names) else PRIVATE.hint
    hint = HOOK_HINT if any(name.endswith("_hook") for name in names) else hint
    return replace(PRIVATE, message=f"{shown} {is_own}: {PRIVATE.message}", hint=hint)


def _is_private(node: cst.BaseExpression, name: str, ctx: Context) -> bool:
    return _row(node, name, ctx) is PRIVATE and not _stays(node, name, ctx)


def _stays(node: cst.BaseExpression, name: str, ctx: Context) -> str:
    """What is said of a private name that does as much with FSDP2's models."""
    if _is_harmless(name):
        return f"`{name.rpartition('.')[2]}` deals in names alone, and finds nothing to take away from FSDP2's"
    if _wraps_otherwise(node, name, ctx):
        return "`_recursive_wrap` wraps in something else than FSDP1 here, and finds the same modules in FSDP2's"
    return ""


def _wraps_otherwise(node: cst.BaseExpression, name: str, ctx: Context) -> bool:
    """`_recursive_wrap(model, policy, checkpoint_wrapper, …)`, as torch's own activation checkpointing calls it."""
    call = ctx.parent(node)
    if not name.endswith("_recursive_wrap") or not isinstance(call, cst.Call) or call.func is not node:
        return False
    named = [each.value for each in call.args if each.keyword is not None and each.keyword.value == "wrapper_cls"]
    given = named or [each.value for each in call.args[2:3] if each.keyword is None]
    made = [origin for wrapper in given for origin in ctx.origins(wrapper)]
    return bool(made) and not any(_is_wrapper(origin.file, origin.node) for origin in made)


def _is_wrapper(ctx: Context, node: cst.CSTNode | None) -> bool:
    return isinstance(node, (cst.Name, cst.Attribute)) and ctx.fsdp1(node) == WRAPPER


def _is_harmless(name: str) -> bool:
    """`FSDP_WRAPPED_MODULE` is not: what it names is asked for."""
    return name.rpartition(".")[2] in HARMLESS - {"FSDP_WRAPPED_MODULE"}


_SHOWN = 4


def _is_wrapped_module(attribute: cst.Attribute, ctx: Context) -> bool:
    """`model._fsdp_wrapped_module` of a model that is known has become the model; a wrapper of one's own has it."""
    name = attribute.attr.value
    return name == "_fsdp_wrapped_module" and (
        ModelKind.FSDP in ctx.kinds(attribute.value) or sets_on_itself(ctx, name)
    )


def _method_row(attribute: cst.Attribute, ctx: Context) -> Leftover | None:
    """`model.state_dict_type(model)`, `model.process_group`: what the wrapper has is found on the model too."""
    name = attribute.attr.value
    if not _is_of_wrapper(attribute, ctx) and not (call_by(attribute, ctx) and name in STATIC):
        return None
    if ctx.fsdp1(attribute) is not None or (name in SPEED_ONLY and _is_asked_for(attribute, ctx)):
        return None
    held = ctx.kinds(attribute.value)
    if ModelKind.FSDP not in held and not (ModelKind.UNKNOWN in held and _can_only_be_fsdp1(attribute, ctx)):
        return None
    if is_compared_with_text(attribute, ctx):
        return None  # nothing that the wrapper has is a text: it is the program's own settings
    hint = ON_MODEL_HINTS.get(name, ON_MODEL.hint)
    return replace(ON_MODEL, message=ON_MODEL.message.format(name=name), hint=hint)


def _is_asked_for(attribute: cst.Attribute, ctx: Context) -> bool:
    """Whether it stands in `if hasattr(model, "its name"):`, where no FSDP2 model comes."""
    tests = [outer.test for outer in ctx.ancestors(attribute) if isinstance(outer, cst.If)]
    calls = [test for test in tests if isinstance(test, cst.Call) and len(test.args) == 2]
    asked = [call.args[1].value for call in calls if ctx.code(call.func) == "hasattr"]
    return any(isinstance(name, cst.SimpleString) and name.raw_value == attribute.attr.value for name in asked)


def _can_only_be_fsdp1(attribute: cst.Attribute, ctx: Context) -> bool:
    """Of what is not seen: a method of FSDP1's own, or a setting that nothing in the program reads."""
    name = attribute.attr.value
    if name in STATIC:  # which take the model first
        call = ctx.parent(attribute)
        first = call.args[0].value if isinstance(call, cst.Call) and call.args else None
        return not defines_method(ctx, name) and not isinstance(first, cst.BaseString)
    return isinstance(ctx.parent(attribute), cst.AssignTarget) and name in SETTINGS and not reads_attribute(ctx, name)


def _is_of_wrapper(attribute: cst.Attribute, ctx: Context) -> bool:
    name = attribute.attr.value
    return name in OF_WRAPPER or (name in ALSO_OF_MODELS and not may_be_models_own(ctx, attribute.value, name))


def _row(node: cst.BaseExpression, name: str, ctx: Context) -> Leftover:
    if name in LEFTOVERS:
        return LEFTOVERS[name]
    if name == WRAPPER:
        return CLASS
    if not is_plain_data(name) and any(part.startswith(("_", "FlatParam")) for part in name.split(".")):
        return PRIVATE
    return OTHER
