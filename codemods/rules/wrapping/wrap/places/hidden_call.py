"""A constructor call that no statement can stand before: `[FSDP(m, …) for m in models]`, `a, b = FSDP(…), FSDP(…)`.

What would stand there goes into a function of the module above the statement, and `shard(m)` takes the call's place.
Calls of one statement that say the same call one function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.enclosing import contains, enclosing, names_around
from codemods.reading.code.places import bound
from codemods.reading.wraps.manual import is_constructor

from ..draft import Draft
from ..emit import body_of_function
from ..plan import draft as drafted
from .above_loop import hoist
from .as_function import FUNCTION_NAMES, definition_above

_HIDING = (cst.BaseComp, cst.BooleanOperation, cst.IfExp, cst.Lambda)
_MODULES = ("module", "part", "wrapped")


def in_function(
    ctx: Context, call: cst.Call, asked: frozenset[cst.CSTNode], left: frozenset[cst.CSTNode], reason: str
) -> Draft:
    """Raises NotStatic, for a reason, where the function cannot be written, or would not see what the call does."""
    line, scope = enclosing(ctx, call, cst.SimpleStatementLine), ctx.scope(call)
    calls = [each for each in ctx.calls(scope) if is_constructor(ctx, each)]
    beside = [each for each in calls if enclosing(ctx, each, cst.SimpleStatementLine) is line]
    is_seen = call in beside and _are_hidden(beside, calls, ctx)  # no call of a class that run time chooses
    if line is None or isinstance(scope, cst.ClassDef) or not is_seen:
        raise NotStatic(reason)
    taken = names_around(ctx, call)
    names = [name for name in FUNCTION_NAMES if name not in taken]
    module = next((name for name in _MODULES if name not in taken), "")
    drafts = {each: _as_function(ctx, each, module, asked, left) for each in beside}
    texts = {each: _text(made) for each, made in drafts.items()}
    kinds = list(dict.fromkeys(texts.values()))
    made, kind = drafts[call], kinds.index(texts[call])
    if len(names) < len(kinds) or not module or any(not each.has_root or each.chosen for each in drafts.values()):
        raise NotStatic(reason)
    own = {each for outer in _hiding(call, ctx) for each in _bound(outer)}
    # What is spread may be taken apart below; what the function around was passed stays one dict.
    spread = {arg.value.value for arg in call.args if arg.star and isinstance(arg.value, cst.Name)}
    own |= spread - _passed_on(scope)
    if own & {node.id for node in ast.walk(ast.parse(texts[call])) if isinstance(node, ast.Name)}:
        raise NotStatic(f"{reason}, whose names it reads")
    if any(texts[each] == texts[call] for each in beside[: beside.index(call)]):
        made.above = []
    else:
        head, is_first = f"def {names[kind]}({module}):", not made.above and kind == 0
        lines = definition_above(made, line, head, lambda indent: body_of_function(made, indent), is_first)
        made.above.append((line, "\n".join(lines)))
    made.before, made.helper = [], names[kind]
    made.quoted.add(names[kind])
    return made


def _passed_on(scope: cst.CSTNode) -> set[str]:
    """`kwargs` of `def build(nets, **kwargs)`."""
    rest = scope.params.star_kwarg if isinstance(scope, cst.FunctionDef) else None
    return {rest.name.value} if rest is not None else set()


def _are_hidden(beside: Sequence[cst.Call], calls: Sequence[cst.Call], ctx: Context) -> bool:
    """Whether the calls of one statement, of which none stands in another, are all that need functions."""
    hidden = [each for each in calls if _hiding(each, ctx)]
    is_nested = any(contains(ctx, outer, each) for outer in beside for each in beside if each is not outer)
    return not is_nested and set(hidden) <= set(beside) and (hidden == list(beside) or len(beside) > 1)


def _as_function(
    ctx: Context, call: cst.Call, module: str, asked: frozenset[cst.CSTNode], left: frozenset[cst.CSTNode]
) -> Draft:
    made = drafted(ctx, call, module, asked, left)
    hoist(made)
    return made


def _text(made: Draft) -> str:
    """What stands above a call, and its function."""
    above = [text for _, text in made.above]
    body = [f"    {line}" for line in body_of_function(made, "")]
    return made.file.plain("\n".join([*above, f"def {made.model}():", *body]))


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
