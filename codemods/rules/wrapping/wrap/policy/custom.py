"""`CustomPolicy` of a function that gives units arguments of their own: it gives them `fully_shard`'s instead.

`{}` for a unit without any, None for what is no unit.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit, Import, NotStatic, Origin
from codemods.reading.code.shapes import is_call_to
from codemods.reading.code.words import is_name
from codemods.reading.units.policy_functions import stores
from codemods.reading.wraps.manual import argument_name, arguments
from codemods.reading.wraps.precision import KEPT, flag, precision_fields
from codemods.tables.arguments import DROPPED
from codemods.tables.names import PACKAGE

from ..draft import Draft, UnitSelector
from ..strategy.names import names_of
from .condition import excludes_containers, function_targets, is_bool

_REFUSED = "auto_wrap_policy: CustomPolicy, which may give units arguments of their own"
_NAMES = {"sharding_strategy": "reshard_after_forward", "mixed_precision": "mp_policy"}
"""What some of FSDP1's arguments become."""
_FREES = {"FULL_SHARD": "True", "SHARD_GRAD_OP": "False"}
"""Strategies that need no mesh of their own, and their `reshard_after_forward`."""


def custom_units(origin: Origin, function: cst.BaseExpression, draft: Draft) -> UnitSelector:
    """The units that such a function chooses. Raises NotStatic where others ask it too, or it gives other things."""
    found = draft.file.origins(function) if isinstance(function, cst.Name) else []
    defined = found[0].node if len(found) == 1 and found[0].file is draft.file else None
    if not isinstance(defined, cst.FunctionDef) or len(defined.params.params) != 1 or defined.decorators:
        raise NotStatic(_REFUSED)
    ctx = draft.file
    used = [where.parent(name) for where, name in ctx.references_to(defined)]
    if len(used) != 1 or used[0] is not ctx.parent(function) or stores(defined, ctx):
        raise NotStatic(_REFUSED)
    given = list(_returned(defined, ctx))
    if all(is_bool(each) for each in given):
        return function_targets(origin, function, draft)
    edits = [edit for each in given for edit in _edits(each, draft)]
    draft.edits += [(ctx, edit) for edit in edits]
    asked = f"{ctx.quote(function)}({{module}})"
    owned = frozenset(_NAMES[name] for each in given for name in _names(each) if name in _NAMES)
    container = not _are_layers(defined, ctx)
    return UnitSelector("", nested=True, may_be_root=True, may_be_container=container, own=asked, owned=owned)


def _returned(function: cst.FunctionDef, ctx: Context) -> Iterator[cst.BaseExpression]:
    """What it returns; FSDP1 refused None."""
    for node in ctx.inside(function.body):
        if isinstance(node, (cst.Yield, cst.Await)):
            raise NotStatic(_REFUSED)
        if isinstance(node, cst.Return) and ctx.scope(node) is function:
            if node.value is None:
                raise NotStatic(_REFUSED)
            yield node.value


def _names(value: cst.BaseExpression) -> Iterator[str]:
    """The arguments that a unit may be given."""
    sides = (value.body, value.orelse) if isinstance(value, cst.IfExp) else ()
    for side in sides:
        yield from _names(side)
    yield from (name for name, _ in _entries(value))


def _edits(value: cst.BaseExpression, draft: Draft) -> Iterator[Edit]:
    ctx = draft.file
    if isinstance(value, cst.IfExp):
        yield from _edits(value.body, draft)
        yield from _edits(value.orelse, draft)
    elif isinstance(value, cst.Dict) or is_call_to(value, "dict"):
        yield Edit(*ctx.span(value), _own_arguments(value, draft))
    elif is_name(value, "True") or is_name(value, "False"):
        yield Edit(*ctx.span(value), "{}" if is_name(value, "True") else "None")
    elif is_bool(value):
        yield Edit(*ctx.span(value), f"{{}} if {ctx.quote(value)} else None")
    else:
        raise NotStatic(_REFUSED)


def _own_arguments(given: cst.BaseExpression, draft: Draft) -> str:
    """A dict of what the arguments of one unit become."""
    written = [text for name, value in _entries(given) for text in _entry(name, value, draft)]
    if not written and not list(_entries(given)):
        return "None"  # an empty dict was no unit to FSDP1
    return f"{{{', '.join(written)}}}"


def _entries(given: cst.BaseExpression) -> Iterator[tuple[str, cst.BaseExpression]]:
    if isinstance(given, cst.Dict):
        for element in given.elements:
            if not isinstance(element, cst.DictElement) or not isinstance(element.key, cst.SimpleString):
                raise NotStatic(_REFUSED)
            yield str(element.key.evaluated_value), element.value
    elif is_call_to(given, "dict"):
        for argument in given.args:
            if argument.keyword is None:
                raise NotStatic(_REFUSED)
            yield argument.keyword.value, argument.value


def _entry(name: str, value: cst.BaseExpression, draft: Draft) -> Iterator[str]:
    ctx = draft.file
    if name == "sharding_strategy":
        names = names_of(ctx.origins(value))
        if len(names) != 1 or not names <= _FREES.keys() or not _is_without_mesh(draft):
            raise NotStatic(_REFUSED)
        yield f'"{_NAMES[name]}": {_FREES[names.pop() or ""]}'
    elif name == "mixed_precision":
        yield f'"{_NAMES[name]}": {_precision(value, draft)}'
    elif name not in DROPPED:
        raise NotStatic(_REFUSED)


def _is_without_mesh(draft: Draft) -> bool:
    """Whether the call is given no strategy that lies over a mesh of its own."""
    ctx = draft.file
    for argument in arguments(ctx, draft.call):
        if argument.star or argument_name(argument) == "sharding_strategy":
            names = names_of(ctx.origins(argument.value)) if not argument.star else frozenset({None})
            if not names or not names <= _FREES.keys():
                return False
    return True


def _precision(value: cst.BaseExpression, draft: Draft) -> str:
    """Raises NotStatic where it casts buffers, or is not written there."""
    if draft.float32_class or draft.file.mentions("buffer_dtype"):
        raise NotStatic(_REFUSED)
    ctx = draft.file
    policy = draft.imported_at(ctx, value, Import(PACKAGE, "MixedPrecisionPolicy"))
    if is_name(value, "None"):
        return f"{policy}()"
    origin = Origin(ctx, value)
    fields = precision_fields(origin)
    texts = [f"{name}={ctx.quote(fields[name])}" for name in KEPT if name in fields]
    if not flag(fields, "cast_forward_inputs", False, ctx):
        texts.append("cast_forward_inputs=False")
    draft.inlined.add(value)
    return f"{policy}({', '.join(texts)})"


def _are_layers(function: cst.FunctionDef, ctx: Context) -> bool:
    """Whether it chooses no list or dict of modules: `if isinstance(module, Block): return …`, and False at the end."""
    parameter = function.params.params[0].name.value
    *tests, last = function.body.body
    returned = last.body[0] if isinstance(last, cst.SimpleStatementLine) else None
    if not isinstance(returned, cst.Return) or returned.value is None or not is_name(returned.value, "False"):
        return False
    return all(isinstance(each, cst.If) and _is_no_container(each, parameter, ctx) for each in tests)


def _is_no_container(branch: cst.If, parameter: str, ctx: Context) -> bool:
    given = [node.value for node in ctx.inside(branch) if isinstance(node, cst.Return)]
    refuses = all(value is not None and is_name(value, "False") for value in given)
    return refuses or (branch.orelse is None and excludes_containers(ctx, branch.test, parameter))
