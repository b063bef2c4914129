"""Manual wrapping: `with enable_wrap(wrapper_cls=FSDP, ...)` around calls of `wrap(module)`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeGuard

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import bound_once, call_by, call_given, contains
from codemods.reading.code.exit_stack import entered, entered_above
from codemods.reading.code.shapes import alone, is_call_to, only_target
from codemods.reading.code.words import last_name
from codemods.tables.arguments import FORMER
from codemods.tables.names import WRAPPER


def context_of(ctx: Context, call: cst.Call) -> cst.Call | None:
    """The `enable_wrap(...)` that a `wrap(...)` stands in, in the same function, and the partial that is written out
    where it is called; None for any other call.
    """
    if ctx.fsdp1(call.func) != "wrap":
        return _partial_called(ctx, call)
    for node in ctx.ancestors(call):
        if isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            return None
        if isinstance(node, cst.With):
            found = next((each for each in _entered(ctx, node, call) if ctx.fsdp1(each.func) == "enable_wrap"), None)
            if found is not None:
                return found
    return None


def _entered(ctx: Context, block: cst.With, call: cst.Call) -> Iterator[cst.Call]:
    """What a `with` enters itself, and the statements above a call in it."""
    yield from (item.item for item in block.items if isinstance(item.item, cst.Call))
    yield from entered_above(ctx, block, call)


def _partial_called(ctx: Context, call: cst.Call) -> cst.Call | None:
    """`partial(FSDP, …)` of `wrapper = partial(FSDP, …)`, for `wrapper(net, …)`, where that is written out."""
    made = bound_once(ctx, call.func) if isinstance(call.func, cst.Name) and ctx.mentions("partial") else None
    return made if isinstance(made, cst.Call) and is_written_out(ctx, made) else None


def is_written_out(ctx: Context, factory: cst.Call) -> bool:
    """Whether each call of a partial becomes a constructor call with what both are given, and the partial goes.

    One of them gives it more than the model; nothing but calls has its name, and each would make the same of what the
    partial was given.
    """
    assignment = ctx.parent(factory)
    name = only_target(assignment)
    if not isinstance(assignment, cst.Assign) or not isinstance(name, cst.Name) or not is_factory(ctx, factory):
        return False
    if alone(ctx.parent(assignment)) is not assignment or is_map(factory):
        return False
    if isinstance(ctx.scope(factory), cst.Module) and ctx.is_read_elsewhere(name.value):
        return False
    calls = [call_by(use, ctx) for use in ctx.uses(assignment)]
    given = [argument.value for argument in arguments(ctx, factory)[1:]]
    return (
        any(call is not None and len(call.args) > 1 for call in calls)
        and all(call is not None and bound_once(ctx, call.func) is factory for call in calls)
        and not any(is_made_each_time(value, ctx) for value in given)
        and all(ctx.same_meaning(value, call) for value in given for call in calls if call is not None)
    )


_SAME_EACH_TIME = frozenset({"functools.partial", "torch.cuda.current_device", "torch.device"})


def is_made_each_time(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether another call of it could give something else: not a setting, and not a policy that holds no state."""
    if not isinstance(value, cst.Call) or ctx.fsdp1(value.func) is not None:
        return False
    return ctx.dotted(value.func) not in _SAME_EACH_TIME


def class_given(ctx: Context, call: cst.Call) -> cst.BaseExpression | None:
    """The `FSDP` of `enable_wrap(wrapper_cls=FSDP)`, be that out of a dict by `**`; None for any other call."""
    if ctx.fsdp1(call.func) != "enable_wrap":
        return None
    given = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "wrapper_cls"]
    for argument in call.args if not given else ():
        made = bound_once(ctx, argument.value) or argument.value if argument.star == "**" else None
        if isinstance(made, cst.Dict):
            elements = [each for each in made.elements if isinstance(each, cst.DictElement)]
            given += [each.value for each in elements if _is_text(each.key, "wrapper_cls")]
        elif is_call_to(made, "dict"):
            given += [a.value for a in made.args if a.keyword is not None and a.keyword.value == "wrapper_cls"]
    return next((value for value in given if ctx.fsdp1(value) == WRAPPER), None)


def _is_text(node: cst.BaseExpression, text: str) -> bool:
    return isinstance(node, cst.SimpleString) and node.evaluated_value == text


def block_of(ctx: Context, context: cst.Call) -> cst.With | None:
    """The `with` statement that enters nothing but this context, and goes with it."""
    opened = opening_of(ctx, context)
    if isinstance(opened, cst.With):
        return opened if len(opened.items) == 1 else None
    by_stack = entered(ctx, context)
    return by_stack.block if by_stack is not None and by_stack.is_only else None


def opening_of(ctx: Context, context: cst.Call) -> cst.With | cst.SimpleStatementLine | None:
    """The statement that enters this context, and could do without: a `with`, or `stack.enter_context(…)`."""
    item = ctx.parent(context)
    if isinstance(item, cst.WithItem) and item.asname is None:
        block = ctx.parent(item)
        return block if isinstance(block, cst.With) else None
    by_stack = entered(ctx, context)
    return by_stack.line if by_stack is not None else None


def arguments(ctx: Context, call: cst.Call) -> list[cst.Arg]:
    """What the constructor gets: of `wrap` inside of `enable_wrap` both calls' arguments, the inner one's first, and of
    a partial's call, or of a partial of a partial, those of both, for which the outer one's hold.
    """
    if is_map(call):
        return list(call.args[:1])
    own = {argument.keyword.value for argument in call.args if argument.keyword is not None} | {"wrapper_cls"}
    context, given = context_of(ctx, call), factory_inside(ctx, call)
    if given is not None:
        first, *more = arguments(ctx, given)
        return [first, *call.args[1:], *_without(more, own)]
    around = context.args if context is not None else ()
    if context is not None and is_factory(ctx, context):
        _, *around = arguments(ctx, context)
    return [*call.args, *_without(around, own)]


def _without(given: Iterable[cst.Arg], names: Collection[str]) -> list[cst.Arg]:
    return [argument for argument in given if argument.keyword is None or argument.keyword.value not in names]


def argument_name(argument: cst.Arg) -> str:
    """What FSDP1 calls an argument now; empty for one that has no name in the call."""
    name = argument.keyword.value if argument.keyword is not None else ""
    return FORMER.get(name, name)


def is_constructor(ctx: Context, call: cst.Call) -> bool:
    """`FSDP(...)`, `wrap(...)` where the `enable_wrap` around it is seen, a call of a partial that is written out."""
    if ctx.fsdp1(call.func) == WRAPPER:
        return True
    context = context_of(ctx, call)
    if context is None or is_factory(ctx, context):
        return context is not None
    return ctx.wrapping.is_in_sight and class_given(ctx, context) is not None


def is_factory(ctx: Context, call: cst.Call) -> bool:
    """`functools.partial(FSDP, ...)`, a partial of such a one, and `map(FSDP, modules)`."""
    if not call.args:
        return False
    if ctx.fsdp1(call.args[0].value) == WRAPPER:
        return ctx.dotted(call.func) == "functools.partial" or is_map(call)
    return factory_inside(ctx, call) is not None


def factory_inside(ctx: Context, call: cst.Call) -> cst.Call | None:
    """The `partial(FSDP, …)` that a partial gives more to: as its argument, or by the name of a variable."""
    if not call.args or last_name(call.func) != "partial" or ctx.dotted(call.func) != "functools.partial":
        return None
    given = call.args[0].value
    made = bound_once(ctx, given) if isinstance(given, cst.Name) else given
    if not isinstance(made, cst.Call) or is_map(made) or ctx.span(made)[1] >= ctx.span(call)[1]:
        return None  # of a loop, which gives more to what it made before
    return made if is_factory(ctx, made) else None


def is_only_given_on(ctx: Context, factory: cst.Call) -> bool:
    """Whether a partial has a name that is for no more than to make other partials of it."""
    assignment = ctx.parent(factory)
    name = only_target(assignment)
    if not isinstance(assignment, cst.Assign) or not isinstance(name, cst.Name):
        return False
    if alone(ctx.parent(assignment)) is not assignment:
        return False
    if isinstance(ctx.scope(factory), cst.Module) and ctx.is_read_elsewhere(name.value):
        return False
    given = [call_given(use, ctx) for use in ctx.uses(assignment)]
    return bool(given) and all(call is not None and factory_inside(ctx, call) is factory for call in given)


def first_factory(ctx: Context, call: cst.Call) -> cst.Call:
    """The statement's partial that a chain of them begins with: itself where it is of FSDP's class."""
    first: cst.Call = call
    given = factory_inside(ctx, call)
    while given is not None:
        if not contains(ctx, first, given):
            first = given
        given = factory_inside(ctx, given)
    return first


def is_map(call: cst.CSTNode | None) -> TypeGuard[cst.Call]:
    """`map(function, values)`."""
    return is_call_to(call, "map") and len(call.args) == 2 and not any(each.star or each.keyword for each in call.args)
