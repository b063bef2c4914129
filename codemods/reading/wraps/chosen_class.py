"""`(FSDP if dist.is_initialized() else DDP)(model, …)`: a call of one of several classes, which a condition decides.

What it gives goes to the other class too, where that looks at it: `def __init__(self, net, *args, **kwargs)` may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.shapes import alone
from codemods.tables.names import WRAPPER

from ..code.enclosing import enclosing
from ..code.only_asks import only_asks
from ..edits.layout import comments_in
from .manual import class_given, is_constructor, is_factory


@dataclass(frozen=True, slots=True)
class Branch:
    """One of the classes."""

    test: cst.BaseExpression | None
    """Asked where no test before it held; None for the last."""
    called: cst.BaseExpression


@dataclass(frozen=True, slots=True)
class ChosenClass:
    """All of them, of which exactly one is FSDP1's."""

    branches: tuple[Branch, ...]
    statement: cst.SimpleStatementLine | cst.If | None
    """`wrapper = FSDP if sharded else DDP`, or an `if` that does so, where it stands above and for this call alone."""


def chosen_class(ctx: Context, call: cst.Call) -> ChosenClass | None:
    """The choice by which a call is FSDP's constructor, where it can be made at the call."""
    if is_constructor(ctx, call):
        return None
    found = _above(ctx, call.func, call) if isinstance(call.func, cst.Name) else None
    if isinstance(call.func, cst.IfExp):
        found = ChosenClass(tuple(_branches(call.func)), None)
    if found is None or sum(is_fsdps(ctx, branch) for branch in found.branches) != 1:
        return None
    return found


def is_fsdps(ctx: Context, branch: Branch) -> bool:
    """Whether its class is FSDP1's."""
    return isinstance(branch.called, (cst.Name, cst.Attribute)) and ctx.fsdp1(branch.called) == WRAPPER


def takes_alone(ctx: Context, argument: cst.Arg) -> bool:
    """Whether FSDP1's constructor takes an argument, and no other class that the call may be of looks at it."""
    call = ctx.parent(argument)
    if not isinstance(call, cst.Call):
        return False
    if is_constructor(ctx, call) or is_factory(ctx, call) or class_given(ctx, call) is not None:
        return True
    found = chosen_class(ctx, call)
    others = [each for each in found.branches if not is_fsdps(ctx, each)] if found is not None else []
    return bool(others) and all(is_ignored(ctx, each.called, call, argument) for each in others)


def is_ignored(ctx: Context, called: cst.BaseExpression, call: cst.Call, argument: cst.Arg) -> bool:
    """Whether none of the functions that a class or function comes to looks at an argument of the call."""
    origins = ctx.origins(called)
    return bool(origins) and all(_passes_over(origin, call, argument) for origin in origins)


def _branches(choice: cst.BaseExpression) -> Iterator[Branch]:
    """An `else` that chooses again is asked in its turn."""
    while isinstance(choice, cst.IfExp):
        yield Branch(choice.test, choice.body)
        choice = choice.orelse
    yield Branch(None, choice)


def _above(ctx: Context, name: cst.Name, call: cst.Call) -> ChosenClass | None:
    """The choice that a name holds, where it can as well be made at the call, which alone reads it."""
    bound = ctx.bound(name) or ()
    values = sorted((value for where, value in bound if where is ctx), key=ctx.span)
    if not 0 < len(values) == len(bound) < 3:
        return None
    lines = [_line(ctx, value, name) for value in values]
    line, branches = lines[0], tuple(_branches(values[0]))
    if line is None:
        return None
    statement: cst.SimpleStatementLine | cst.If = line
    if len(values) == 2:
        choice = enclosing(ctx, line, cst.If)
        if choice is None or not _is_all_of(ctx, choice, lines):
            return None
        statement, branches = choice, (Branch(choice.test, values[0]), Branch(None, values[1]))
    is_choice = len(branches) > 1 and _can_wait(ctx, statement, branches, call)
    return ChosenClass(branches, statement) if is_choice else None


def _line(ctx: Context, value: cst.BaseExpression, name: cst.Name) -> cst.SimpleStatementLine | None:
    """`wrapper = …`, which nothing reads but the call."""
    assignment = ctx.parent(value)
    line = ctx.parent(assignment) if isinstance(assignment, cst.Assign) else None
    small = alone(line)
    is_read_there = small is not None and list(ctx.uses(small)) == [name]
    return line if isinstance(line, cst.SimpleStatementLine) and is_read_there else None


def _is_all_of(ctx: Context, choice: cst.If, lines: list[cst.SimpleStatementLine | None]) -> bool:
    """Whether an `if` does no more than to choose between these lines, and says nothing of it."""
    other = choice.orelse.body if isinstance(choice.orelse, cst.Else) else None
    is_plain = not isinstance(ctx.parent(choice), cst.If) and not comments_in(ctx.text[slice(*ctx.whole_lines(choice))])
    return is_plain and other is not None and [*choice.body.body, *other.body] == lines


def _can_wait(
    ctx: Context, statement: cst.SimpleStatementLine | cst.If, branches: tuple[Branch, ...], call: cst.Call
) -> bool:
    """Whether a choice comes to the same where the call stands, below in the same block."""
    below, block = enclosing(ctx, call, cst.SimpleStatementLine), ctx.parent(statement)
    if below is None or not isinstance(block, cst.IndentedBlock) or block is not ctx.parent(below):
        return False
    tests = [branch.test for branch in branches if branch.test is not None]
    if not all(ctx.same_meaning(each, call) for each in (*tests, *(branch.called for branch in branches))):
        return False
    statements = list(block.body)
    between = statements[statements.index(statement) + 1 : statements.index(below)]
    asked = [node for test in tests for node in ctx.inside(test)]
    if any(isinstance(node, cst.Call) for node in asked):
        return all(only_asks(ctx, node) for node in (*tests, *between))
    named = {node.attr.value for node in asked if isinstance(node, cst.Attribute)}
    inside = [node for each in between for node in ctx.inside(each)]
    stored = [node.target for node in inside if isinstance(node, cst.AssignTarget)]
    return not any(isinstance(target, cst.Attribute) and target.attr.value in named for target in stored)


def _passes_over(origin: Origin, call: cst.Call, argument: cst.Arg) -> bool:
    ctx, made = origin.file, origin.node
    if isinstance(made, cst.ClassDef):
        inits = [each for each in made.body.body if isinstance(each, cst.FunctionDef) and each.name.value == "__init__"]
        if len(inits) != 1 or made.decorators or made.keywords or inits[0].decorators or _has_new(ctx, made):
            return False
        return _drops(ctx, inits[0], call, argument, 1)
    if isinstance(made, (cst.FunctionDef, cst.Lambda)):
        is_method = isinstance(ctx.scope(made), cst.ClassDef)
        is_plain = isinstance(made, cst.Lambda) or (not made.decorators and made.asynchronous is None)
        return not is_method and is_plain and _drops(ctx, made, call, argument, 0)
    return False


def _has_new(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether something else may look at the arguments first: a `__new__`, there or in a base that is not torch's."""
    named = {each.name.value for each in owner.body.body if isinstance(each, cst.FunctionDef)}
    known = {"torch.nn.Module", "torch.nn.modules.Module", "object"}
    return "__new__" in named or any(ctx.dotted(base.value) not in known for base in owner.bases)


def _drops(ctx: Context, function: cst.FunctionDef | cst.Lambda, call: cst.Call, argument: cst.Arg, bound: int) -> bool:
    """Whether it goes to `*args` or `**kwargs` of which the function makes no use."""
    parameters = function.params
    positional = [*parameters.posonly_params, *parameters.params][bound:]
    given = [each for each in call.args if not each.star and each.keyword is None]
    named = {each.keyword.value for each in call.args if each.keyword is not None}
    free = {each.name.value for each in (*positional[len(given) :], *parameters.kwonly_params)} - named
    rest = parameters.star_kwarg
    if argument.star == "*" or (argument.star and free):  # what is in a dict may be one of them
        return False
    taken = {each.name.value for each in (*positional, *parameters.kwonly_params)}
    if argument.keyword is not None and argument.keyword.value in taken:
        return False
    if not argument.star and argument.keyword is None:
        more = parameters.star_arg if isinstance(parameters.star_arg, cst.Param) else None
        rest = more if given.index(argument) >= len(positional) else None
    if rest is None:
        return False
    inside = [node for node in ctx.inside(function.body) if isinstance(node, cst.Name)]
    return all(node.value not in {rest.name.value, "locals", "eval", "exec"} for node in inside)
