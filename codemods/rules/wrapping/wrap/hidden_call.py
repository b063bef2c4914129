"""A constructor call that no statement can stand before: `[FSDP(m, …) for m in models]`, `lambda m: FSDP(m, …)`.

What would stand there goes into a function of the module above the statement, and `shard(m)` takes the call's place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.enclosing import enclosing, names_around
from codemods.reading.manual import is_constructor
from codemods.reading.places import bound

from .above_loop import hoist
from .as_function import definition_above
from .draft import Draft
from .emit import body_of_function
from .plan import draft as drafted

_HIDING = (cst.BaseComp, cst.BooleanOperation, cst.IfExp, cst.Lambda)
_NAMES = ("shard", "shard_module", "apply_fsdp2")
_MODULES = ("module", "part", "wrapped")


def in_function(
    ctx: Context, call: cst.Call, asked: frozenset[cst.CSTNode], left: frozenset[cst.CSTNode], reason: str
) -> Draft:
    """Raises NotStatic, for a reason, where the function cannot be written, or would not see what the call does."""
    line, scope = enclosing(ctx, call, cst.SimpleStatementLine), ctx.scope(call)
    hidden = [each for each in ctx.calls(scope) if is_constructor(ctx, each) and _hiding(each, ctx)]
    if line is None or isinstance(scope, cst.ClassDef) or hidden != [call]:
        raise NotStatic(reason)
    taken = names_around(ctx, call)
    name, module = (next((n for n in names if n not in taken), "") for names in (_NAMES, _MODULES))
    made = drafted(ctx, call, module, asked, left)
    if not name or not module or not made.has_root or made.chosen is not None:
        raise NotStatic(reason)
    hoist(made)
    own = {each for outer in _hiding(call, ctx) for each in _bound(outer)}
    head = f"def {name}({module}):"
    text = "\n".join(definition_above(made, line, head, lambda indent: body_of_function(made, indent), not made.above))
    # What is spread may be taken apart below.
    own |= {arg.value.value for arg in call.args if arg.star and isinstance(arg.value, cst.Name)}
    if own & {node.id for node in ast.walk(ast.parse(ctx.plain(text).strip())) if isinstance(node, ast.Name)}:
        raise NotStatic(f"{reason}, whose names it reads")
    made.above.append((line, text))
    made.before, made.helper = [], name
    made.quoted.add(name)
    return made


def _hiding(call: cst.Call, ctx: Context) -> list[cst.BaseExpression]:
    """What around a call in its statement may run it not at all, or more than once, or later."""
    found: list[cst.BaseExpression] = []
    for node in ctx.ancestors(call):
        if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            break
        if isinstance(node, _HIDING):
            found.append(node)
    return found


def _bound(outer: cst.BaseExpression) -> Iterator[str]:
    """The names that a comprehension or a lambda binds."""
    if isinstance(outer, cst.Lambda):
        params = outer.params
        yield from (each.name.value for each in (*params.params, *params.kwonly_params, *params.posonly_params))
        yield from (each.name.value for each in (params.star_arg, params.star_kwarg) if isinstance(each, cst.Param))
    loop = getattr(outer, "for_in", None)
    while loop is not None:
        yield from bound(loop.target)
        loop = loop.inner_for_in
