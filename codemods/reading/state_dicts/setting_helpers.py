"""Functions of the program's own whose call in a `with` is a `state_dict_type`: they return one, or yield in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.code.arguments import by_parameter
from codemods.reading.code.enclosing import is_self
from codemods.reading.code.shapes import alone
from codemods.reading.values.choices import Place
from codemods.tables.state_dicts import CONTEXT

_NAME = CONTEXT.rpartition(".")[2]


@dataclass(frozen=True)
class Helper:
    """Such a function, as a call runs it."""

    file: Context
    function: cst.FunctionDef
    inner: cst.Call
    """The `state_dict_type` in it."""
    given: Mapping[str, Place]
    """What each parameter is: an argument of the call, or a default."""

    def meant(self, value: cst.BaseExpression) -> Place:
        """Where an expression of the function stands that gives its value: a parameter is what is passed."""
        place = self.given.get(value.value) if isinstance(value, cst.Name) else None
        return place if place is not None else (self.file, value)


def is_context(call: cst.CSTNode, ctx: Context) -> bool:
    """Whether a call enters a kind of state dict, itself or by a function of the program's own."""
    return isinstance(call, cst.Call) and (ctx.fsdp1(call.func) == CONTEXT or helper_of(call, ctx) is not None)


def helper_of(call: cst.Call, ctx: Context) -> Helper | None:
    """The function that a call runs whose result a `with` enters; None where it does more than that."""
    if not isinstance(ctx.parent(call), cst.WithItem) or not _is_any(ctx):
        return None
    runs = ctx.runs(call)
    if len(runs) != 1:
        return None
    ((where, function),) = runs
    inner = context_made(where, function)
    given = _given(call, ctx, where, function) if inner is not None else None
    return Helper(where, function, inner, given) if inner is not None and given is not None else None


def _is_any(ctx: Context) -> bool:
    """Whether the program has such a function at all: what each `with` runs is asked only then."""
    found = (
        (file, file.scope(name)) for file in ctx.files(_NAME) for name, meant in file.references() if meant == CONTEXT
    )
    return any(isinstance(scope, cst.FunctionDef) and context_made(file, scope) is not None for file, scope in found)


def context_made(ctx: Context, function: cst.FunctionDef) -> cst.Call | None:
    """The `state_dict_type` that is all there is to a function, besides names for what it is given."""
    *above, last = function.body.body if isinstance(function.body, cst.IndentedBlock) else (function,)
    if not all(_is_quiet(line, ctx) for line in above):
        return None
    decorators = [ctx.dotted(each.decorator) for each in function.decorators]
    made: cst.BaseExpression | None = None
    if isinstance(last, cst.With) and decorators == ["contextlib.contextmanager"] and len(last.items) == 1:
        yields = [alone(line) for line in last.body.body]
        is_bare = len(yields) == 1 and isinstance(yields[0], cst.Expr) and isinstance(yields[0].value, cst.Yield)
        made = last.items[0].item if is_bare and last.items[0].asname is None else None
        if is_bare and cst.ensure_type(cst.ensure_type(yields[0], cst.Expr).value, cst.Yield).value is not None:
            return None
    elif not decorators:
        returned = alone(last)
        made = returned.value if isinstance(returned, cst.Return) else None
    return made if isinstance(made, cst.Call) and ctx.fsdp1(made.func) == CONTEXT else None


def _is_quiet(line: cst.CSTNode, ctx: Context) -> bool:
    """A docstring, an import, and a name for what is a setting of FSDP1's or no call at all."""
    small = alone(line)
    if isinstance(small, (cst.Import, cst.ImportFrom)):
        return True
    if isinstance(small, cst.Expr):
        return isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))
    if not isinstance(small, (cst.Assign, cst.AnnAssign)):
        return False
    return all(ctx.fsdp1(node.func) is not None for node in ctx.inside(small) if isinstance(node, cst.Call))


def _given(call: cst.Call, ctx: Context, where: Context, function: cst.FunctionDef) -> dict[str, Place] | None:
    """None for a method of another object, and where it is not seen what is passed."""
    params = [*function.params.params, *function.params.kwonly_params]
    names = [param.name.value for param in params]
    if isinstance(where.scope(function), cst.ClassDef):
        if not isinstance(call.func, cst.Attribute) or not names:
            return None
        del params[0], names[0]
    passed = by_parameter(call.args, names)
    bound = {target for node in where.inside(function.body) for target in _targets(node)}
    if passed is None or function.params.star_kwarg is not None or bound & {*names}:
        return None
    found = {name: (ctx, argument.value) for name, argument in passed.items()}
    defaults = {param.name.value: (where, param.default) for param in params if param.default is not None}
    complete = {**defaults, **found}
    return complete if complete.keys() == {*names} else None


def _targets(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name):
        yield node.target.value


def is_of_this_object(helper: Helper, call: cst.Call, ctx: Context) -> bool:
    """Whether `self` in a method is `self` at its call."""
    return ctx is helper.file and isinstance(call.func, cst.Attribute) and is_self(call.func.value, ctx)


def entered_by(ctx: Context, function: cst.FunctionDef) -> list[tuple[Context, cst.Call]] | None:
    """The calls of such a function, where that is all the program does with it; None where it is not."""
    found = []
    for where, name in ctx.references_to(function):
        call = where.parent(name)
        if not isinstance(call, cst.Call) or call.func is not name or helper_of(call, where) is None:
            return None
        found.append((where, call))
    return found or None
