"""The names that `model.named_parameters()` gives: which variables hold them, and which collections."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.model_parameters import Loop
from codemods.reading.parameter_lists import heads
from codemods.reading.places import bound

_OF_ONE = (cst.ListComp, cst.SetComp, cst.GeneratorExp)


def read_of(call: cst.Call) -> cst.BaseExpression | None:
    """`model` of `model.named_parameters()` and of `model._parameters.items()`."""
    if not isinstance(call.func, cst.Attribute):
        return None
    if call.func.attr.value == "named_parameters":
        return call.func.value
    own = call.func.value
    is_own = call.func.attr.value == "items" and isinstance(own, cst.Attribute) and own.attr.value == "_parameters"
    return own.value if is_own and isinstance(own, cst.Attribute) else None


def names_of(loop: Loop) -> set[str]:
    """`name` of `for name, p in`, `i` and `name` of `for i, (name, p) in enumerate(`."""
    named = list(bound(loop.target if isinstance(loop, cst.For) else loop.for_in.target))
    return set(named[:-1])


def is_name(node: cst.CSTNode, names: set[str]) -> bool:
    return isinstance(node, cst.Name) and node.value in names


def has_these_names(table: cst.BaseExpression, ctx: Context) -> bool:
    """Whether all that a collection is seen to be filled with are names that a wrapped model gave: flat ones, too."""
    origins = ctx.origins(table)
    if origins and all(origin.is_none for origin in origins):
        return True  # nobody passes any
    made = [(origin.file, origin.node) for origin in origins if not _is_empty(origin.node)]
    made += [(ctx, node) for node in _put_in(ctx.code(table), ctx)]
    return bool(made) and all(node is not None and _gives_names(node, where) for where, node in made)


def _is_empty(made: cst.CSTNode | None) -> bool:
    """`{}`, `[]` and `set()`, which are filled later."""
    if isinstance(made, (cst.Dict, cst.List)):
        return not made.elements
    return isinstance(made, cst.Call) and not made.args and isinstance(made.func, cst.Name)


def _put_in(table: str, ctx: Context) -> Iterator[cst.CSTNode]:
    """`name` of `table[name] = p`, `table.add(name)` and `table.append(name)`."""
    for assigned in ctx.nodes(cst.AssignTarget):
        target = assigned.target
        if isinstance(target, cst.Subscript) and ctx.code(target.value) == table and len(target.slice) == 1:
            yield target.slice[0].slice
    for call in ctx.nodes(cst.Call):
        if ctx.code(call.func) in {f"{table}.add", f"{table}.append"}:
            yield from (argument.value for argument in call.args)


def _gives_names(made: cst.CSTNode, ctx: Context) -> bool:
    """Whether it is a name of a wrapped model's parameter, or a collection of such names."""
    if isinstance(made, cst.Call):
        return any(_reads_wrapped(node, ctx) for node in ctx.inside(made))
    if isinstance(made, cst.BaseComp):
        key = made.key if isinstance(made, cst.DictComp) else made.elt if isinstance(made, _OF_ONE) else None
        loops: list[cst.CSTNode] = [made]
    else:
        key = made.value if isinstance(made, cst.Index) else made if isinstance(made, cst.Name) else None
        loops = list(ctx.ancestors(made))
    return any(
        isinstance(loop, Loop)
        and key is not None
        and is_name(key, names_of(loop))
        and any(_reads_wrapped(node, ctx) for head in heads(loop) for node in ctx.inside(head.iter))
        for loop in loops
    )


def _reads_wrapped(node: cst.CSTNode, ctx: Context) -> bool:
    read = read_of(node) if isinstance(node, cst.Call) else None
    return read is not None and ModelKind.FSDP in ctx.kinds(read)
