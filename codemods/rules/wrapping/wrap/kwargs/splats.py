"""`**kwargs` that the program spells out: a dict display, and what is put into it on the way to the constructor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.code.enclosing import bound_once, call_by, contains, is_label, upward
from codemods.reading.code.shapes import called_on, is_call_to, key_of, keywords, only_target, parameter_names
from codemods.reading.code.words import is_name
from codemods.reading.values.attribute_stores import stored
from codemods.reading.values.defaults import is_never_given_more, is_rest_of
from codemods.reading.wraps.chosen_class import takes_alone
from codemods.reading.wraps.wrapped import is_on_another_way
from codemods.tables.arguments import DROPPED

from ..draft import Entry, Switch, Value
from .entries import of_dict
from .open_dict import of_fields
from .spread import Spread, copied_dict, unseen

_BLOCKS = (cst.IndentedBlock, cst.SimpleStatementLine, cst.If, cst.Else)


@dataclass(frozen=True)
class _Store:
    """Arguments that one statement puts into the dict, and under which conditions."""

    statement: cst.CSTNode
    tests: tuple[tuple[cst.BaseExpression, bool], ...]
    """Each with whether it has to hold."""
    given: Spread
    only_new: bool = False
    """Whether it leaves those that are there."""


def spread(ctx: Context, call: cst.Call, value: cst.BaseExpression) -> Spread:
    """The arguments that `**value` gives to a call. Raises NotStatic where the program does not spell them out."""
    found = Spread()
    if isinstance(value, cst.IfExp):
        chosen, other = spread(ctx, call, value.body), spread(ctx, call, value.orelse)
        for name in {**chosen.values, **other.values}:
            found.values[name] = Switch(value.test, chosen.values.get(name), other.values.get(name))
        return found
    function = ctx.scope(call)
    if isinstance(function, cst.FunctionDef) and is_rest_of(value, function) and is_never_given_more(ctx, function):
        found.rest = ctx.quote(value)
        return found
    around = [outer for outer in ctx.ancestors(call) if isinstance(outer, cst.FunctionDef)]
    taking = next((outer for outer in around if is_rest_of(value, outer)), None)
    if taking is not None:
        return of_rest(ctx, value, taking)
    if isinstance(value, (cst.Name, cst.Attribute)):
        try:
            return _of_variable(ctx, call, value) if isinstance(value, cst.Name) else of_dict(ctx, call, value)
        except NotStatic:
            return of_dict(ctx, call, value)
    if isinstance(value, cst.Call) and ctx.runs(value) and of_fields(ctx, value) is None:
        return of_dict(ctx, call, value)
    return _of_display(ctx, call, value)


def _of_display(ctx: Context, call: cst.Call, value: cst.BaseExpression) -> Spread:
    """What a display holds, and what it takes over from other dicts."""
    found, copied = Spread(), copied_dict(ctx, value)
    fields = of_fields(ctx, value)
    if fields is not None:
        return fields
    if copied is not None:
        found.put(spread(ctx, call, copied))
    elif isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.BitOr):
        found.put(spread(ctx, call, value.left))
        found.put(spread(ctx, call, value.right))
    elif isinstance(value, cst.Dict):
        for element in value.elements:
            if not isinstance(element, cst.DictElement):
                found.put(spread(ctx, call, element.value))
            elif isinstance(element.key, cst.SimpleString):
                found.values[str(element.key.evaluated_value)] = element.value
            else:
                raise unseen(ctx, value)
    elif is_call_to(value, "dict"):
        for argument in value.args:
            if argument.keyword is not None:
                found.values[argument.keyword.value] = argument.value
            elif argument.star == "*":
                raise unseen(ctx, value)
            else:
                found.put(spread(ctx, call, argument.value))
    else:
        raise unseen(ctx, value)
    return found


def _of_variable(ctx: Context, call: cst.Call, name: cst.Name) -> Spread:
    """A dict in a local variable, with what is stored into it above the call."""
    added = _added(ctx, name)
    display = bound_once(ctx, name) if not added else _bound_before(ctx, name, added)
    if display is None:
        raise unseen(ctx, name)
    statement = ctx.parent(display)
    if not isinstance(statement, cst.Assign) or ctx.scope(statement) is not ctx.scope(call):
        raise unseen(ctx, name)
    target = statement.targets[0].target
    found = _of_display(ctx, call, display)
    found.made = {display}
    line = ctx.parent(statement)
    stores: list[_Store] = []
    kept: list[cst.CSTNode] = []
    loops = [outer for outer in ctx.ancestors(call) if isinstance(outer, (cst.For, cst.While))]
    only_for_calls = True
    uses = {use for each in (statement, *added) for use in ctx.uses(each)}
    for use in sorted(uses, key=ctx.span):
        argument = ctx.parent(use)
        if isinstance(argument, cst.Arg) and argument.star == "**" and takes_alone(ctx, argument):
            continue
        unread = _unread_attribute(ctx, use)
        if unread is not None:
            kept.append(unread)
            continue
        store = _store(ctx, call, use)
        if store is None:
            only_for_calls = False
            if not _is_read(ctx, use):
                raise unseen(ctx, name)
        elif ctx.span(use)[0] < ctx.span(call)[0]:
            stores.append(store)
        elif any(contains(ctx, loop, use) and not contains(ctx, loop, statement) for loop in loops):
            raise unseen(ctx, name)  # the next turn has it
        else:
            only_for_calls = False
    for store in stores:
        if not is_on_another_way(ctx, store.statement, call):
            _put(found, store)
    for last in found.values.values():  # what was replaced on the way can have meant something else
        _check_meaning(ctx, call, last)
    if only_for_calls and line is not None:
        found.freed = {target.value} if isinstance(target, cst.Name) else set()
        found.dead = _whole_branches(ctx, [line, *(store.statement for store in stores), *kept])
    return found


def _added(ctx: Context, name: cst.Name) -> list[cst.AugAssign]:
    """The statements `kwargs |= {…}` of its function."""
    inside = ctx.inside(ctx.scope(name))
    return [node for node in inside if isinstance(node, cst.AugAssign) and is_name(node.target, name.value)]


def _bound_before(ctx: Context, name: cst.Name, added: Sequence[cst.AugAssign]) -> cst.BaseExpression | None:
    """What a variable is set to which such statements alone bind as well."""
    named = [each for each in ctx.inside(ctx.scope(name)) if is_name(each, name.value) and not is_label(each, ctx)]
    makers = [statement for each in named if isinstance(statement := ctx.parent(ctx.parent(each) or each), cst.Assign)]
    made = [each for each in makers if is_name(only_target(each), name.value)]
    if len(made) != 1 or any(ctx.scope(each) is not ctx.scope(made[0]) for each in added):
        return None
    uses = {use for statement in (made[0], *added) for use in ctx.uses(statement)}
    return made[0].value if all(each in uses or each is only_target(made[0]) for each in named) else None


def _is_read(ctx: Context, use: cst.Name) -> bool:
    """`kwargs["key"]`, `print(kwargs)`, `{**kwargs}`: it is the same dict afterwards."""
    holder = ctx.parent(use)
    if isinstance(holder, (cst.StarredDictElement, cst.BinaryOperation)):
        return True
    if isinstance(holder, cst.Arg) and holder.star == "**":
        return True
    if isinstance(holder, cst.Attribute):
        return holder.attr.value in {"copy", "get"} and called_on(ctx.parent(holder), holder.attr.value) is use
    if isinstance(holder, cst.Subscript) and holder.value is use:
        return not isinstance(ctx.parent(holder), (cst.AssignTarget, cst.Del, cst.AugAssign))
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    return is_call_to(call, "print", "str", "repr") or copied_dict(ctx, call) is use


def _unread_attribute(ctx: Context, use: cst.Name) -> cst.CSTNode | None:
    """`self.kwargs = kwargs`, which nothing reads: the line. None for any other use."""
    statement = ctx.parent(use)
    if not isinstance(statement, cst.Assign) or statement.value is not use or len(statement.targets) != 1:
        return None
    target, line = statement.targets[0].target, ctx.parent(statement)
    if not isinstance(target, cst.Attribute) or not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    known = stored(ctx, target.attr.value)
    return line if known is not None and not known.reads and len(known.values) == 1 else None


def _store(ctx: Context, call: cst.Call, use: cst.Name) -> _Store | None:
    """`kwargs["key"] = value`, `kwargs.update(…)`, `kwargs |= {…}` or `kwargs.setdefault("key", value)`; None for any
    other use.

    Raises NotStatic inside of a loop.
    """
    holder = ctx.parent(use)
    given: Spread | None = None
    statement: cst.CSTNode | None = None
    if isinstance(holder, cst.Subscript) and holder.value is use and isinstance(ctx.parent(holder), cst.AssignTarget):
        assignment = cst.ensure_type(ctx.parent(cst.ensure_type(ctx.parent(holder), cst.AssignTarget)), cst.Assign)
        key = key_of(holder)
        if len(assignment.targets) != 1 or key is None:
            raise unseen(ctx, use)
        given, statement = Spread({key: assignment.value}), assignment
    elif isinstance(holder, cst.Attribute) and holder.attr.value == "update":
        update = ctx.parent(holder)
        if not isinstance(update, cst.Call) or not isinstance(ctx.parent(update), cst.Expr):
            raise unseen(ctx, use)
        given, statement = Spread(), ctx.parent(update)
        for argument in update.args:
            if argument.keyword is not None:
                given.values[argument.keyword.value] = argument.value
            elif isinstance(argument.value, cst.Name):
                given.put(spread(ctx, call, argument.value))
            else:
                given.put(_of_display(ctx, call, argument.value))
    elif isinstance(holder, cst.AugAssign) and holder.target is use and isinstance(holder.operator, cst.BitOrAssign):
        if any(is_name(each, use.value) for each in ctx.inside(holder.value)):
            raise unseen(ctx, use)
        of_name = isinstance(holder.value, cst.Name)
        given = spread(ctx, call, holder.value) if of_name else _of_display(ctx, call, holder.value)
        statement = holder
    default = _default(ctx, holder)
    if default is not None:
        given, statement = default
    if given is None or statement is None:
        return None
    line = ctx.parent(statement)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        raise unseen(ctx, use)
    tests = tuple(_tests(ctx, call, line))
    return _Store(line, tests, given, default is not None)


def _default(ctx: Context, holder: cst.CSTNode | None) -> tuple[Spread, cst.Expr] | None:
    """What `kwargs.setdefault("key", value)` gives, and the statement; None for any other use of an attribute."""
    call = call_by(holder, ctx)
    statement = ctx.parent(call) if call is not None else None
    if call is None or called_on(call, "setdefault") is None or not isinstance(statement, cst.Expr):
        return None
    if len(call.args) != 2 or any(each.star or each.keyword for each in call.args):
        return None
    key, value = (each.value for each in call.args)
    return (Spread({str(key.evaluated_value): value}), statement) if isinstance(key, cst.SimpleString) else None


def _tests(ctx: Context, call: cst.Call, line: cst.SimpleStatementLine) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """The conditions under which a statement runs, when the call does; the outermost first."""
    around = set(ctx.ancestors(call))
    asked = {ctx.code(each.test) for each in around if isinstance(each, cst.If) and each.body in around}
    found: list[tuple[cst.BaseExpression, bool]] = []
    for inner, outer in upward(ctx, line):
        if outer in around:
            break
        if not isinstance(outer, _BLOCKS):
            raise NotStatic("arguments are put into a dict in a loop, or in another block")
        if isinstance(outer, cst.If):
            if not ctx.same_meaning(outer.test, call):
                raise NotStatic(f"`{ctx.code(outer.test)}` may be something else at the call")
            if not (inner is outer.body and ctx.code(outer.test) in asked):
                found.append((outer.test, inner is outer.body))
    return reversed(found)


def _check_meaning(ctx: Context, call: cst.Call, value: Value | None) -> None:
    """Raises NotStatic for a value that means something else at the call."""
    if isinstance(value, Switch):
        _check_meaning(ctx, call, value.body)
        _check_meaning(ctx, call, value.orelse)
    elif isinstance(value, cst.BaseExpression) and not ctx.same_meaning(value, call):
        raise NotStatic(f"`{ctx.code(value)}` may be something else at the call")


def _put(found: Spread, store: _Store) -> None:
    if store.only_new:
        there = store.given.values.keys() & found.values.keys()
        is_seen = all(isinstance(found.values[name], cst.BaseExpression) for name in there)
        if not is_seen or found.open or found.closed:
            raise NotStatic("arguments are put into a dict that may have them")
        store = replace(store, given=Spread({k: v for k, v in store.given.values.items() if k not in there}))
    if not store.tests:
        found.put(store.given)
        return
    if store.given.open or store.given.closed:
        raise NotStatic("a dict that may hold more is put into another one under a condition")
    values = found.values
    for name, value in store.given.values.items():
        before = values.get(name)
        if name in DROPPED:
            values.setdefault(name, value)  # whichever it is, FSDP2 needs none
            continue
        if len(store.tests) > 1:
            raise NotStatic(f"{name} is set under several conditions")
        ((test, holds),) = store.tests
        if isinstance(before, Switch) and before.test is test:  # the other branch of the same `if`
            values[name] = Switch(test, value, before.orelse) if holds else Switch(test, before.body, value)
        else:
            values[name] = Switch(test, value, before) if holds else Switch(test, before, value)


def _whole_branches(ctx: Context, statements: list[cst.CSTNode]) -> list[cst.CSTNode]:
    """An `if` of which nothing would be left in the place of what stands in it."""
    gone = set(statements)
    for statement in statements:
        choices = [node for node in ctx.ancestors(statement) if isinstance(node, cst.If)]
        for choice in reversed(choices):  # the outermost first; an `elif` is part of the `if` before it
            inside = list(_statements(choice))
            if not isinstance(ctx.parent(choice), cst.If) and all(each in gone for each in inside):
                gone = {*(gone - set(inside)), choice}
                break
    return list(gone)


def _statements(choice: cst.If) -> Iterator[cst.CSTNode]:
    """What stands in the branches, an inner `if` taken apart."""
    blocks = [choice.body]
    if isinstance(choice.orelse, cst.Else):
        blocks.append(choice.orelse.body)
    for block in blocks:
        for node in block.body:
            yield from _statements(node) if isinstance(node, cst.If) else [node]
    if isinstance(choice.orelse, cst.If):
        yield from _statements(choice.orelse)


# `**kwargs` of the function around the constructor: what the program's calls of it give, read at run time.


def of_rest(ctx: Context, value: cst.BaseExpression, function: cst.FunctionDef) -> Spread:
    """An entry for each keyword that a call of the function gives beyond its parameters.

    What is read by name would pass over the rest without a word: where another file can call the function, and give
    others, they are refused. Raises NotStatic where something else gets hold of the dict.
    """
    named = [(where, where.parent(name), name) for where, name in ctx.references_to(function)]
    own = [(where, call) for where, call, name in named if isinstance(call, cst.Call) and call.func is name]
    is_closed = len(own) == len(named) and all(where.path == ctx.path for where, _ in own)
    calls = own if is_closed else ctx.callers(function.body)
    if not calls or function.decorators or not _is_only_spread(ctx, value, function):
        raise unseen(ctx, value)
    taken = set(parameter_names(function))
    given: list[dict[str, tuple[Context, cst.BaseExpression]]] = []
    for where, call in calls:
        if _is_recursive(where, call, value, function):
            continue
        if any(argument.star for argument in call.args):
            raise unseen(ctx, value)
        given.append({key: (where, each) for key, each in keywords(call.args).items() if key not in taken})
    result, text = Spread(), ctx.quote(value)
    for key in dict.fromkeys(key for each in given for key in each):
        stored = tuple(each[key] for each in given if key in each)
        values: tuple[Origin, ...] = tuple(origin for where, each in stored for origin in where.origins(each))
        result.keeps.update(origin.node for origin in values if origin.node is not None and not origin.is_none)
        may_lack = len(stored) < len(given)
        taken_out = f'{text}.get("{key}")' if may_lack else f'{text}["{key}"]'
        result.values[key] = Entry(taken_out, values, may_lack, stored, is_only_given=True, whole=text)
    if not is_closed and isinstance(ctx.scope(function), (cst.Module, cst.ClassDef)):
        result.closed[text] = frozenset(result.values)
    return result


def _is_only_spread(ctx: Context, value: cst.BaseExpression, function: cst.FunctionDef) -> bool:
    """Whether all that the function does with its `**kwargs` is to hand them to constructor calls."""
    names = [node for node in ctx.inside(function.body) if isinstance(node, cst.Name) and node.value == ctx.code(value)]
    return all(_is_handed_to_wrapper(ctx, name, function) for name in names)


def _is_recursive(ctx: Context, call: cst.Call, rest: cst.BaseExpression, function: cst.FunctionDef) -> bool:
    """Whether a function calls itself with what it was given: `wrap(child, **kwargs)`."""
    starred = [argument for argument in call.args if argument.star]
    is_own = function in ctx.ancestors(call) and len(starred) == 1 and starred[0].star == "**"
    named = {argument.keyword.value for argument in call.args if argument.keyword is not None}
    return is_own and ctx.code(starred[0].value) == ctx.code(rest) and named <= set(parameter_names(function))


def _is_handed_to_wrapper(ctx: Context, name: cst.Name, function: cst.FunctionDef) -> bool:
    argument, scope = ctx.parent(name), ctx.scope(name)
    call = ctx.parent(argument) if isinstance(argument, cst.Arg) else None
    if isinstance(call, cst.Call) and any(each is function for _, each in ctx.runs(call)):
        return _is_recursive(ctx, call, name, function)
    own = (scope.params.star_kwarg, *scope.params.params) if isinstance(scope, cst.FunctionDef) else ()
    if isinstance(argument, cst.Param) or (scope is not function and any(_is(each, name) for each in own)):
        return True  # the parameter of a function inside, or what that does with it
    if called_on(call, "update") is not None and not isinstance(argument, cst.Param):
        return isinstance(argument, cst.Arg) and argument.keyword is None  # another dict takes it over
    return isinstance(argument, cst.Arg) and argument.star == "**" and takes_alone(ctx, argument)


def _is(parameter: cst.Param | None, name: cst.Name) -> bool:
    return parameter is not None and parameter.name.value == name.value
