"""Values that a program chooses from several that are seen: where each of them stands, and who reads it.

`{"fsdp": A, "sdp": B}[mode]`, `A if flag else B`, `strategy = A` in a branch: a choice stays the choice it is, and only
what is chosen is written anew, where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.enclosing import call_by, is_label
from codemods.reading.code.shapes import is_call_to
from codemods.reading.wraps.passed_on import all_of

Place = tuple[Context, cst.BaseExpression]
"""An expression of the program, and the file it stands in."""

_KEYS_ONLY = frozenset({"iter", "len", "list", "set", "sorted", "tuple"})
"""Builtins that read no more than the keys of a dict."""


@dataclass(frozen=True, slots=True)
class Option:
    """One of the values that can be chosen."""

    file: Context
    node: cst.BaseExpression
    eager: bool
    """Whether it is made even when it is not chosen: an entry of a dict, or what a module holds."""


def options(
    ctx: Context, value: cst.BaseExpression, is_known: Callable[[Context, cst.BaseExpression], bool]
) -> list[Option]:
    """What can be chosen, each once. Raises NotStatic where a value is not seen, or may be changed on its way."""
    return list(dict.fromkeys(_options(ctx, value, is_known, False, ())))


def _options(
    ctx: Context,
    value: cst.BaseExpression,
    is_known: Callable[[Context, cst.BaseExpression], bool],
    eager: bool,
    seen: tuple[cst.CSTNode, ...],
) -> Iterator[Option]:
    if value in seen:
        raise NotStatic(f"`{ctx.code(value)}` depends on itself")
    seen = (*seen, value)
    if is_known(ctx, value):
        at_import = not isinstance(ctx.scope(value), cst.FunctionDef)
        yield Option(ctx, value, eager or at_import)
        return
    parts: Sequence[Place] | None = None
    if isinstance(value, cst.IfExp):
        parts = [(ctx, value.body), (ctx, value.orelse)]
    elif isinstance(value, cst.Name):
        parts = ctx.bound(value) or _unpacked(ctx, value)
    elif isinstance(value, (cst.Call, cst.Subscript)):
        looked_up = lookup(ctx, value)
        if looked_up is not None:
            parts, eager = looked_up.values, True
        elif isinstance(value, cst.Call):
            parts = _returned(ctx, value)
    if not parts:
        raise NotStatic(" ".join(ctx.code(value).split())[:60])
    for where, part in parts:
        yield from _options(where, part, is_known, eager, seen)


@dataclass(frozen=True, slots=True)
class Lookup:
    """`TABLE[key]`, `TABLE.get(key)` or `TABLE.get(key, default)`, with a table that nothing else changes."""

    file: Context
    """Where the table stands."""
    entries: Sequence[tuple[str, cst.BaseExpression]]
    """What is in it, by the text of the key."""
    key: cst.BaseExpression
    default: cst.BaseExpression | None
    values: Sequence[Place]
    """What can come out of it."""


def lookup(ctx: Context, value: cst.BaseExpression) -> Lookup | None:
    """The look-up that an expression is, if it is one in a dict that is seen whole."""
    default: cst.BaseExpression | None = None
    if isinstance(value, cst.Subscript) and len(value.slice) == 1 and isinstance(value.slice[0].slice, cst.Index):
        holder, key = value.value, value.slice[0].slice.value
    elif isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "get":
        if len(value.args) not in (1, 2) or any(a.keyword is not None or a.star for a in value.args):
            return None
        holder, key = value.func.value, value.args[0].value
        default = value.args[1].value if len(value.args) == 2 else None
        if default is None:
            return None  # None may come out of it
    else:
        return None
    table = _table(ctx, holder)
    if table is None:
        return None
    where, entries = table
    values: list[Place] = [(where, entry) for _, entry in entries]
    return Lookup(where, entries, key, default, [*values, *([(ctx, default)] if default is not None else [])])


def _table(ctx: Context, holder: cst.BaseExpression) -> tuple[Context, list[tuple[str, cst.BaseExpression]]] | None:
    where, display = ctx, holder
    if isinstance(holder, cst.Name):
        bound = ctx.bound(holder)
        if bound is None or len(bound) != 1:
            return None
        where, display = bound[0]
        if _entries(where, display) is None or _uses_of_table(where, display) is None:
            return None
    elif isinstance(holder, cst.Attribute):
        found = _of_class(ctx, holder)
        if found is None or _uses_of_table(*found) is None:
            return None
        where, display = found
    entries = _entries(where, display)
    return None if entries is None else (where, entries)


def _of_class(ctx: Context, attribute: cst.Attribute) -> Place | None:
    """The table that the body of one class of this file, and nothing else, sets as an attribute of this name."""
    name = attribute.attr.value
    set_at = [node for node in ctx.nodes(cst.Assign) if _sets(ctx, node, name)]
    if len(set_at) != 1 or any(
        _sets(where, node, name)
        for where in ctx.files(name)
        for node in where.nodes(cst.Assign)
        if node is not set_at[0]
    ):
        return None
    if any(text.raw_value == name for where in ctx.files(name) for text in where.nodes(cst.SimpleString)):
        return None
    return ctx, set_at[0].value


def _sets(ctx: Context, statement: cst.Assign, name: str) -> bool:
    targets = [each.target for each in statement.targets]
    is_named = any(isinstance(each, cst.Name) and each.value == name for each in targets)
    return is_named and isinstance(ctx.scope(statement), cst.ClassDef)


def _entries(ctx: Context, display: cst.BaseExpression) -> list[tuple[str, cst.BaseExpression]] | None:
    """The entries of a dict display or a call of `dict`, by the text of the key; None where they are not all seen."""
    if isinstance(display, cst.Dict):
        found = [(ctx.code(e.key), e.value) for e in display.elements if isinstance(e, cst.DictElement)]
        return found if len(found) == len(display.elements) else None
    if is_call_to(display, "dict"):
        arguments = cst.ensure_type(display, cst.Call).args
        named = [(f'"{a.keyword.value}"', a.value) for a in arguments if a.keyword is not None]
        return named if len(named) == len(arguments) else None
    return None


def _returned(ctx: Context, call: cst.Call) -> Sequence[Place] | None:
    """What the functions of the program return that a call can run; None for others, and for those that may not."""
    found: list[Place] = []
    for where, function in ctx.runs(call):
        body = function.body
        if function.asynchronous is not None or not isinstance(body, cst.IndentedBlock) or function.decorators:
            return None
        if not _always_returns(body):
            return None
        for node in where.inside(body):
            if isinstance(node, cst.Return) and where.scope(node) is function:
                if node.value is None:
                    return None
                found.append((where, node.value))
            elif isinstance(node, cst.Yield):
                return None
    return found or None


def _unpacked(ctx: Context, name: cst.Name) -> Sequence[Place] | None:
    """What `_, name = function()` takes out of the tuples that the function returns."""
    assigned = (node for node in ctx.inside(ctx.scope(name)) if isinstance(node, cst.Assign))
    found = next((node for node in assigned if any(use is name for use in ctx.uses(node))), None)
    part = _part_named(ctx, found, name.value) if found is not None else None
    if found is None or part is None or not isinstance(found.value, cst.Call):
        return None
    taken = [(where, _element(value, *part)) for where, value in _returned(ctx, found.value) or ()]
    return [(where, value) for where, value in taken if value is not None] if all(v for _, v in taken) else None


def _part_named(ctx: Context, statement: cst.Assign, name: str) -> tuple[int, int] | None:
    """Which element of how many a tuple of names takes, where nothing else in the function binds that name."""
    target = statement.targets[0].target
    if len(statement.targets) != 1 or not isinstance(target, cst.Tuple):
        return None
    names = [each.value for each in target.elements if isinstance(each, cst.Element)]
    own = [index for index, each in enumerate(names) if isinstance(each, cst.Name) and each.value == name]
    if len(own) != 1 or len(names) != len(target.elements):
        return None
    uses = ctx.uses(statement)
    same = (n for n in ctx.inside(ctx.scope(statement)) if isinstance(n, cst.Name) and n.value == name)
    others = [n for n in same if n not in uses and not is_label(n, ctx)]
    return (own[0], len(names)) if others == [names[own[0]]] else None


def _element(value: cst.BaseExpression, index: int, count: int) -> cst.BaseExpression | None:
    """One element of a tuple that is written out with so many of them."""
    elements = value.elements if isinstance(value, cst.Tuple) else ()
    if len(elements) != count or not all(isinstance(element, cst.Element) for element in elements):
        return None
    return elements[index].value


def _always_returns(block: cst.BaseSuite) -> bool:
    """Whether the end of a block is never reached."""
    last = block.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        return isinstance(last.body[-1], (cst.Return, cst.Raise))
    if isinstance(last, cst.If):
        orelse = last.orelse
        rest = (
            _always_returns(cst.IndentedBlock([orelse]))
            if isinstance(orelse, cst.If)
            else (isinstance(orelse, cst.Else) and _always_returns(orelse.body))
        )
        return rest and _always_returns(last.body)
    return isinstance(last, cst.With) and _always_returns(last.body)


def readers(ctx: Context, value: cst.BaseExpression, asked: cst.BaseExpression) -> list[Place] | None:
    """The expressions by which a value is used and not only passed on; None where it is lost from sight.

    What a parameter or an attribute takes on belongs to others too, and counts as lost. `asked` is one such use.
    """
    if value is asked:
        return [(ctx, value)]
    holder = ctx.parent(value)
    if isinstance(holder, cst.IfExp) and holder.test is not value:
        return readers(ctx, holder, asked)
    if isinstance(holder, cst.DictElement) and holder.value is value:
        return _readers_of_table(ctx, holder, asked)
    if isinstance(holder, cst.Arg) and holder.keyword is not None and is_call_to(ctx.parent(holder), "dict"):
        return _readers_of_table(ctx, holder, asked)
    if isinstance(holder, cst.Arg) and _is_default(ctx, holder):
        return readers(ctx, cst.ensure_type(ctx.parent(holder), cst.Call), asked)
    if isinstance(holder, (cst.Assign, cst.AnnAssign)):
        uses = _uses(ctx, holder)
        return all_of(readers(where, use, asked) for where, use in uses) if uses is not None else None
    if isinstance(holder, cst.Return):
        return _readers_of_result(ctx, holder, asked)
    if isinstance(holder, cst.Element):
        return _readers_of_part(ctx, holder, asked)
    if isinstance(holder, (cst.Param, cst.Tuple, cst.List, cst.Element)):
        return None
    return [(ctx, value)]


def _is_default(ctx: Context, argument: cst.Arg) -> bool:
    """Whether it is the second argument of a look-up by `get`."""
    call = ctx.parent(argument)
    return isinstance(call, cst.Call) and lookup(ctx, call) is not None and call.args[-1] is argument


def _uses(ctx: Context, statement: cst.Assign | cst.AnnAssign) -> Sequence[Place] | None:
    """Where the one name is read that a statement binds, in other files too; None for other targets."""
    target = statement.targets[0].target if isinstance(statement, cst.Assign) else statement.target
    several = isinstance(statement, cst.Assign) and len(statement.targets) > 1
    if several or not isinstance(target, cst.Name) or not _is_seen_whole(ctx, statement, target.value):
        return None
    return [(ctx, use) for use in ctx.uses(statement)]


def _is_seen_whole(ctx: Context, statement: cst.Assign | cst.AnnAssign, name: str) -> bool:
    """Whether what a statement binds to a name is read by that name in this file, and nowhere else."""
    scope = ctx.scope(statement)
    is_shared = isinstance(scope, cst.Module) and ctx.is_read_elsewhere(name)
    return not is_shared and not isinstance(scope, cst.ClassDef)


def _readers_of_table(
    ctx: Context, element: cst.DictElement | cst.Arg, asked: cst.BaseExpression
) -> list[Place] | None:
    display = ctx.parent(element)
    found = _uses_of_table(ctx, display) if isinstance(display, (cst.Dict, cst.Call)) else None
    return all_of(readers(ctx, use, asked) for use in found) if found is not None else None


def _uses_of_table(ctx: Context, display: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """The look-ups in a dict; None when it is used in any other way, by which it could be changed."""
    holder = ctx.parent(display)
    if isinstance(holder, cst.Assign) and isinstance(ctx.scope(holder), cst.ClassDef):
        name = holder.targets[0].target
        if len(holder.targets) != 1 or not isinstance(name, cst.Name) or ctx.uses(holder):
            return None
        named = list(ctx.attributes(name.value))
        found = [_of_look_up(ctx, use) if where.path == ctx.path else None for where, use in named]
    elif isinstance(holder, (cst.Assign, cst.AnnAssign)):
        uses = _uses(ctx, holder)
        if uses is None:
            return None
        found = [_of_look_up(ctx, use) for _, use in uses]
    else:
        found = [_of_look_up(ctx, display)]
    return all_of(found)


def _of_look_up(ctx: Context, use: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    holder = ctx.parent(use)
    if isinstance(holder, cst.Subscript) and holder.value is use:
        is_read = not isinstance(ctx.parent(holder), (cst.AssignTarget, cst.Del, cst.AugAssign))
        return [holder] if is_read else None
    if isinstance(holder, (cst.ComparisonTarget, cst.FormattedStringExpression)):
        return []  # `name in TABLE`
    if isinstance(holder, cst.Arg):
        call = ctx.parent(holder)
        name = call.func.value if isinstance(call, cst.Call) and isinstance(call.func, cst.Name) else ""
        return [] if name in _KEYS_ONLY else None
    call = call_by(holder, ctx)
    if not isinstance(holder, cst.Attribute) or call is None:
        return None
    if holder.attr.value == "keys":
        return []
    return [call] if holder.attr.value == "get" else None


def _readers_of_result(ctx: Context, statement: cst.Return, asked: cst.BaseExpression) -> list[Place] | None:
    function = ctx.scope(statement)
    if not isinstance(function, cst.FunctionDef):
        return None
    found: list[list[Place] | None] = []
    for where, name in ctx.references_to(function):
        call = where.parent(name)
        found.append(readers(where, call, asked) if isinstance(call, cst.Call) and call.func is name else None)
    return all_of(found)


def _readers_of_part(ctx: Context, element: cst.Element, asked: cst.BaseExpression) -> list[Place] | None:
    """Of an element of a tuple that a function returns, and that its callers take apart."""
    display = ctx.parent(element)
    statement = ctx.parent(display) if isinstance(display, cst.Tuple) else None
    function = ctx.scope(statement) if isinstance(statement, cst.Return) else None
    if not isinstance(display, cst.Tuple) or not isinstance(function, cst.FunctionDef):
        return None
    index = [*display.elements].index(element)
    found: list[list[Place] | None] = []
    for where, name in ctx.references_to(function):
        call = where.parent(name)
        taken = where.parent(call) if isinstance(call, cst.Call) and call.func is name else None
        target = taken.targets[0].target if isinstance(taken, cst.Assign) else None
        if not isinstance(taken, cst.Assign) or not isinstance(target, cst.Tuple) or taken.value is not call:
            return None
        one = _element(target, index, len(display.elements))
        if not isinstance(one, cst.Name) or not _is_seen_whole(where, taken, one.value):
            return None
        found += [readers(where, use, asked) for use in where.uses(taken) if use.value == one.value]
    return all_of(found)


def written(ctx: Context, value: cst.BaseExpression, texts: Mapping[cst.CSTNode, str]) -> str:
    """An expression with other text for some of the nodes in it, on one line where no comment and no string is lost."""
    start, end = ctx.span(value)
    text = ctx.text[start:end]
    holes = {ctx.span(node): text for node, text in texts.items()}
    if "\n" not in text or any(mark in text for mark in ("#", "\\", '"""', "'''")):
        return _filled(ctx, start, end, holes)
    lines: list[tuple[int, int]] = []
    for line in text.splitlines(keepends=True):
        first = start + len(line) - len(line.lstrip())
        if line.strip():
            lines.append((first, first + len(line.strip())))
        start += len(line)
    if any(not any(first <= hole[0] and hole[1] <= last for first, last in lines) for hole in holes):
        return _filled(ctx, *ctx.span(value), holes)
    pieces = ""
    for index, (first, last) in enumerate(lines):
        behind = ctx.text[lines[index + 1][0]] if index + 1 < len(lines) else ""
        is_closed = behind in {")", "]", "}"}
        if is_closed and ctx.text[last - 1] == ",":
            last -= 1
        is_open = ctx.text[last - 1] in {"(", "[", "{"}
        pieces += _filled(ctx, first, last, holes) + ("" if is_closed or is_open or not behind else " ")
    return pieces


def _filled(ctx: Context, start: int, end: int, holes: Mapping[tuple[int, int], str]) -> str:
    pieces, position = "", start
    for first, last in sorted(hole for hole in holes if start <= hole[0] and hole[1] <= end):
        if position < first:
            pieces += ctx.quote_text(position, first)
        pieces += holes[first, last]
        position = last
    return pieces + (ctx.quote_text(position, end) if position < end else "")
