"""`(FSDP if dist.is_initialized() else DDP)(model, …)`: a call of one of several classes, which a condition decides.

What it gives goes to the other class too, where that looks at it: `def __init__(self, net, *args, **kwargs)` may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Origin
from codemods.tables.names import WRAPPER

from .enclosing import enclosing
from .manual import class_given, is_constructor, is_factory
from .only_asks import only_asks


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
    statement: cst.SimpleStatementLine | None
    """`wrapper = FSDP if sharded else DDP`, where that stands above and for this call alone."""


def chosen_class(ctx: Context, call: cst.Call) -> ChosenClass | None:
    """The choice by which a call is FSDP's constructor, where it can be made at the call."""
    if is_constructor(ctx, call):
        return None
    statement = None
    choice: cst.BaseExpression = call.func
    if isinstance(choice, cst.Name):
        bound = ctx.bound(choice)
        if bound is None or len(bound) != 1 or bound[0][0] is not ctx:
            return None
        choice = bound[0][1]
        statement = _made_for(ctx, choice, call)
        if statement is None:
            return None
    branches = tuple(_branches(choice))
    ours = [branch for branch in branches if _is_wrapper(ctx, branch.called)]
    return ChosenClass(branches, statement) if len(branches) > 1 and len(ours) == 1 else None


def is_fsdps(ctx: Context, branch: Branch) -> bool:
    return _is_wrapper(ctx, branch.called)


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


def _is_wrapper(ctx: Context, called: cst.BaseExpression) -> bool:
    return isinstance(called, (cst.Name, cst.Attribute)) and ctx.fsdp1(called) == WRAPPER


def _made_for(ctx: Context, choice: cst.BaseExpression, call: cst.Call) -> cst.SimpleStatementLine | None:
    """The statement that binds the choice, where it can as well be made at the call, which alone reads it."""
    assignment = ctx.parent(choice)
    line = ctx.parent(assignment) if isinstance(assignment, cst.Assign) else None
    below = enclosing(ctx, call, cst.SimpleStatementLine)
    if not isinstance(choice, cst.IfExp) or not isinstance(line, cst.SimpleStatementLine) or below is None:
        return None
    block = ctx.parent(line)
    is_local = isinstance(ctx.scope(line), cst.FunctionDef) and block is ctx.parent(below) and len(line.body) == 1
    if not is_local or list(ctx.uses(line.body[0])) != [call.func] or not isinstance(block, cst.IndentedBlock):
        return None
    tests = [branch.test for branch in _branches(choice) if branch.test is not None]
    if not all(ctx.same_meaning(each.test or each.called, call) for each in _branches(choice)):
        return None
    statements = list(block.body)
    between = statements[statements.index(line) + 1 : statements.index(below)]
    if not any(isinstance(node, cst.Call) for test in tests for node in ctx.inside(test)):
        return line
    return line if all(only_asks(ctx, node) for node in (*tests, *between)) else None


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
    if argument.keyword is not None and any(
        each.name.value == argument.keyword.value for each in (*positional, *parameters.kwonly_params)
    ):
        return False
    if not argument.star and argument.keyword is None:
        more = parameters.star_arg if isinstance(parameters.star_arg, cst.Param) else None
        rest = more if given.index(argument) >= len(positional) else None
    if rest is None:
        return False
    inside = [node for node in ctx.inside(function.body) if isinstance(node, cst.Name)]
    return all(node.value not in {rest.name.value, "locals", "eval", "exec"} for node in inside)
