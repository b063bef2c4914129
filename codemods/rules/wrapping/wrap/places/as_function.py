"""`partial(FSDP, …)` as a function: what it was given when it was made is read when it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import libcst as cst

from codemods.api import Context, Edit, NotStatic
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import call_by, enclosing
from codemods.reading.code.shapes import alone
from codemods.reading.code.words import last_name
from codemods.reading.edits.call_layout import argument_removal, line_above
from codemods.reading.edits.layout import removal, statement_start
from codemods.reading.wraps.configuration import move
from codemods.reading.wraps.manual import argument_name, context_of, is_factory, is_map, opening_of
from codemods.reading.wraps.passed_on import attribute_holding, calls_of, mapped_over
from codemods.tables.arguments import POSITIONS

from ..draft import Draft
from ..emit import body_of_function, joined_lines, line_indent, partial_of
from .shared import read_block

FUNCTION_NAMES = ("shard", "shard_module", "apply_fsdp2")

_BINDING = (cst.AssignTarget, cst.AugAssign, cst.For, cst.Tuple, cst.NamedExpr)
_LOOPS = (cst.For, cst.While, cst.BaseComp, cst.Lambda)


def reads_later(ctx: Context, call: cst.Call) -> bool:
    """Whether a function in the place of `partial(…)` may read other values than it was given."""
    if isinstance(ctx.scope(call), cst.ClassDef) or any(isinstance(node, _LOOPS) for node in ctx.ancestors(call)):
        return True
    return _is_bound_below(ctx, call)


def is_statement(ctx: Context, call: cst.Call) -> bool:
    """Whether a statement does no more than to name the partial, or to return it."""
    return not is_map(call) and _name(alone(enclosing(ctx, call, cst.SimpleStatementLine)), call) is not None


def refuse_bound_below(ctx: Context, call: cst.Call) -> None:
    """Raise NotStatic where what a call reads is bound again below it."""
    if _is_bound_below(ctx, call):
        raise NotStatic("the constructor is passed on as a value, with a name that is bound again")


def _is_bound_below(ctx: Context, call: cst.Call) -> bool:
    scope = ctx.scope(call)
    read = {node.value for node in ctx.inside(call) if isinstance(node, cst.Name)}
    below = ctx.span(call)[1]
    bound = [node for node in ctx.inside(scope) if isinstance(node, cst.Name) and node.value in read]
    return any(ctx.span(node)[0] >= below and isinstance(ctx.parent(node), _BINDING) for node in bound)


def _name(statement: cst.CSTNode | None, call: cst.Call) -> str | None:
    """The name that holds the partial; nothing where it is returned; None for anything else."""
    if isinstance(statement, cst.Return) and statement.value is call:
        return ""
    if isinstance(statement, cst.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0].target
        return target.value if isinstance(target, cst.Name) else None
    return None


def is_called_plainly(ctx: Context, value: cst.Call) -> bool:
    """Whether all that is done with a partial is to call it with the model alone."""
    if mapped_over(ctx, value) is not None:
        return True
    name = attribute_holding(ctx, value)
    if name:
        return all(_is_set_or_called(where, node) for where, node in ctx.attributes(name))
    calls = calls_of(ctx, value)
    return calls is not None and all(_is_plain(call) for _, call in calls)


def _is_set_or_called(ctx: Context, node: cst.Attribute) -> bool:
    call = call_by(node, ctx)
    if call is not None:
        return _is_plain(call)
    is_module = enclosing(ctx, node, cst.Import, cst.ImportFrom) is not None
    return is_module or isinstance(ctx.parent(node), cst.AssignTarget)


def _is_plain(call: cst.Call) -> bool:
    return len(call.args) == 1 and not call.args[0].star and call.args[0].keyword is None


def given_later(made: Draft) -> dict[str, cst.BaseExpression]:
    """What the one call of a partial gives besides the model: it moves into the function, and the call is without it.

    Raises NotStatic where several calls are made of which one gives more, or where it would mean something else there.
    """
    ctx, factory = made.file, made.call
    calls = dict.fromkeys((where, call) for name in POSITIONS[1:] for where, call in ctx.passing(name))
    if any(_is_given_more(where, call, factory) for where, call in calls):
        raise NotStatic("the constructor is passed on as a value, and by another partial with more arguments")
    if any(True for _ in _given_dicts(ctx, factory)):
        raise NotStatic("the constructor is passed on as a value, and given a dict of more where it is called")
    given = [each for each in calls if any(origin.node is factory for origin in each[0].origins(each[1].func))]
    if not given:
        return {}
    (where, call), others = given[0], given[1:]
    line = enclosing(ctx, factory, cst.SimpleStatementLine)
    is_alone = where.path == ctx.path and not others and line is not None and ctx.uses(line.body[0]) == [call.func]
    later = [argument for argument in call.args[1:] if argument.keyword is not None]
    if not is_alone or len(later) != len(call.args) - 1 or call.args[0].keyword is not None:
        raise NotStatic("the constructor is passed on as a value, and given more arguments where it is called")
    if not all(ctx.same_meaning(argument.value, factory) for argument in later):
        raise NotStatic("the constructor is passed on as a value, and given what is not known before it is called")
    made.edits += [(ctx, edit) for argument in later for edit in argument_removal(ctx, call, argument, later)]
    return {argument_name(argument): argument.value for argument in later}


def _given_dicts(ctx: Context, factory: cst.Call) -> Iterator[cst.Call]:
    """`shard(net, **options)`, by the name of the partial: here and where that is imported."""
    name = _name(alone(enclosing(ctx, factory, cst.SimpleStatementLine)), factory)
    for where in ctx.files(name) if name else ():
        for call in where.nodes(cst.Call):
            if last_name(call.func) == name and any(each.star for each in call.args):
                if any(origin.node is factory for origin in where.origins(call.func)):
                    yield call


def _is_above_another(line: cst.SimpleStatementLine, ctx: Context) -> bool:
    """Whether another such partial follows, which becomes a function with its own empty lines."""
    block = ctx.parent(line)
    lines = block.body if isinstance(block, (cst.IndentedBlock, cst.Module)) else ()
    below = next((each for each in lines if ctx.span(each)[0] > ctx.span(line)[0]), None)
    made = alone(below)
    value = made.value if isinstance(made, cst.Assign) else None
    return isinstance(value, cst.Call) and is_factory(ctx, value)


def _is_given_more(ctx: Context, call: cst.Call, factory: cst.Call) -> bool:
    """`partial(kinds[name], device_id=device)`, of which one is `partial(FSDP, …)`."""
    if ctx.dotted(call.func) != "functools.partial" or not call.args or call is factory or is_factory(ctx, call):
        return False  # what is seen to be a partial of this one is written for itself
    return any(origin.node is factory for origin in ctx.origins(call.args[0].value))


def function_edit(made: Draft) -> Edit:
    """`def wrapper(model): …` in the place of the statement."""
    ctx = made.file
    line = enclosing(ctx, made.call, cst.SimpleStatementLine)
    assert line is not None
    indent = line_indent(made, line)
    held = _name(line.body[0], made.call)
    name = held or made.fresh("shard", "shard_module")
    lines = [f"def {name}({made.model}):", *(f"    {each}" for each in body_of_function(made, indent))]
    start, end = ctx.span(line.body[0])
    first, last = ctx.whole_lines(line)
    above, below = ctx.text[: _first_that_stays(made, first)], ctx.text[last:]
    wanted = 2 if isinstance(ctx.scope(made.call), cst.Module) else 1
    gap = 0
    if above and not above.endswith(":" + ctx.newline):
        gap = wanted - _blank_lines(above[::-1], ctx) + 1
    if not held:
        lines += ["", f"return {name}"]
    elif below.strip() and not _is_above_another(line, ctx):
        lines += [""] * (wanted - _blank_lines(below, ctx))
    margin = ctx.newline * gap + indent if gap > 0 and not context_of(ctx, made.call) else ""
    return Edit(start - len(indent) if margin else start, end, margin + joined_lines(lines, indent, ctx))


def is_partial(made: Draft) -> bool:
    """Whether a partial stays one, of `fully_shard`."""
    if not made.has_root or made.before or made.after or made.unit_steps or made.selector:
        return False
    text = partial_of(made)
    if is_map(made.call) and not text.isidentifier():
        return False
    made.helper = text
    return True


def in_expression(made: Draft) -> None:
    """A function above the statement.

    Raises NotStatic where it would read other values than the partial was given.
    """
    ctx, call = made.file, made.call
    line = enclosing(ctx, call, cst.SimpleStatementLine)
    inside = [node for node in ctx.inside(line) if isinstance(node, cst.Call)] if line is not None else []
    if (
        line is None
        or reads_later(ctx, call)
        or _may_be_set(ctx, call)
        or sum(is_factory(ctx, each) for each in inside) > 1
    ):
        raise NotStatic("the constructor is passed on as a value, in an expression")
    made.helper = made.fresh(*FUNCTION_NAMES)
    head = f"def {made.helper}({made.model}):"
    lines = definition_above(made, line, head, lambda indent: body_of_function(made, indent))
    made.above.append((line, "\n".join(lines)))
    made.before = []


def _may_be_set(ctx: Context, call: cst.Call) -> bool:
    """Whether the program sets, more than once, an attribute that the arguments read."""
    read = [node for node in ctx.inside(call) if isinstance(node, cst.Attribute) and ctx.dotted(node) is None]
    names = {node.attr.value for node in read if ctx.fsdp1(node) is None}
    found = [(ctx.parent(node), node.attr.value) for _, node in (ctx.attributes(*names) if names else ())]
    stored = [name for holder, name in found if isinstance(holder, (cst.AssignTarget, cst.AugAssign))]
    return len(stored) > len(set(stored))


def statement_making(ctx: Context, context: cst.Call) -> cst.BaseStatement:
    """The statement that makes a context, for the function that it is given to stand above.

    Raises NotStatic where the function would read other values than the context was given.
    """
    kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
    statement = next((node for node in ctx.ancestors(context) if isinstance(node, kinds)), None)
    is_same = opening_of(ctx, context) is not None or not reads_later(ctx, context)
    if is_same and isinstance(statement, (cst.SimpleStatementLine, cst.With)):
        return statement
    raise NotStatic("enable_wrap is given what may have changed where wrap is called")


def context_edits(made: Draft, ctx: PlannedContext) -> list[Edit]:
    """The function above what makes it, and `enable_wrap` of the support module that is given it."""
    context = statement_making(ctx, made.call)
    name = made.fresh("shard", "shard_module", "apply_fsdp2")
    inside = [text for text in made.before if made.model in read_block(text, made).names]
    above = [line for text in made.before if text not in inside for line in text.split("\n")]
    again = replace(made, before=inside)
    head = f"def {name}({made.model}):"
    lines = definition_above(made, context, head, lambda indent: body_of_function(again, indent), not above)
    edit = line_above(ctx, context, *joined_lines([*above, *lines], "", ctx).split(ctx.newline))
    moved = move(made.call.func, "enable_wrap", ctx)
    made.imports |= {*again.imports, *moved.imports}
    given = Edit(*ctx.bare_span(made.call), f"{ctx.quote(made.call.func)}(wrapper_cls={name})")
    return [edit, given, *moved.edits]


def definition_above(
    made: Draft, statement: cst.CSTNode, head: str, body: Callable[[str], Iterable[str]], is_first: bool = True
) -> Iterator[str]:
    """The lines of a function above a statement, with the empty ones around; `body` is told how far in it stands."""
    ctx = made.file
    start, line = statement_start(ctx, statement)
    gap = [""] * (2 if isinstance(ctx.parent(statement), cst.Module) else 1)
    above = ctx.text[: _first_that_stays(made, line)].rpartition("\n")[0].rpartition("\n")[2].strip()
    if not is_first or (above and not above.endswith(":")):
        yield from gap
    yield head
    yield from (f"    {each}" if each else "" for each in body(ctx.text[line:start]))
    yield from gap


def _first_that_stays(made: Draft, line: int) -> int:
    """Where a line stands, but for the statements above it that go."""
    gone = {edit.end: edit.start for edit in (removal(made.file, each) for each in made.dead) if not edit.text}
    while line in gone:
        line = gone[line]
    return line


def _blank_lines(text: str, ctx: Context) -> int:
    """How many line ends a text begins with, read in either direction."""
    return (len(text) - len(text.lstrip("\r\n"))) // len(ctx.newline)
