"""A parameter that only rewritten code read goes, and with it what the program's calls pass for it.

One that was not read before stays. So does one of a function that the program calls in a way that cannot be edited, or
not at all. In a file that others may import, parameters behind it are passed by keyword alone from then on, where the
program does so: a call out of sight gets a TypeError, and not another parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Edit, Fix
from codemods.plan import Plan
from codemods.reading.code.scripts import is_script
from codemods.reading.edits.call_layout import argument_removal

from ..edit.apply import Rendered
from ..pyanalysis.tree import Tree
from .collect import Collected, is_left
from .docstrings import entry_removals
from .unused_locals import is_plain, is_read, is_read_at, path_of, reads_locals


def unused_parameters(file: Context, plan: Plan, made: Collected) -> Iterator[Fix]:
    """The fixes, a function each."""
    rendered = made.rendered(file)
    tree: Tree | None = None
    for function, names in _lost(file, rendered).items():
        try:
            tree = tree or Tree(file.path, rendered.text)
        except cst.ParserSyntaxError:  # it is reported when the files are written
            return
        path = path_of(file, function)
        unread = [param for param in _parameters(function) if param.name.value in names]
        unread = [param for param in unread if is_left(file, param.name, rendered)]
        unread = [param for param in unread if not is_read(tree, path, param.name.value)]
        fix = _without(function, unread, file, plan, made) if unread else None
        if fix is not None:
            yield fix


def _lost(file: Context, rendered: Rendered) -> dict[cst.FunctionDef, set[str]]:
    """The functions whose parameters were read in a place that is gone, and those parameters."""
    found: dict[cst.FunctionDef, set[str]] = {}
    for function in file.nodes(cst.FunctionDef):
        if rendered.keeps(file.span(function)) or not _is_plain_function(function, file):
            continue
        names = {param.name.value for param in _parameters(function)}
        for node in file.inside(function.body):
            if reads_locals(node):
                found.pop(function, None)
                break
            if not isinstance(node, cst.Name) or node.value not in names or not _is_of(function, node, file):
                continue
            if is_read_at(file, node) and not is_left(file, node, rendered):
                found.setdefault(function, set()).add(node.value)
    return found


def _is_of(function: cst.FunctionDef, name: cst.Name, file: Context) -> bool:
    """Whether a name in a function is its own, be it in a function inside of it."""
    at: cst.CSTNode = name
    while file.scope(at) is not function and not file.is_local(name.value, at):
        at = file.scope(at)
    return file.scope(at) is function


def _is_plain_function(function: cst.FunctionDef, file: Context) -> bool:
    """Whether it is no method, nothing changes it, and what it takes is spelled out."""
    scope, params = file.scope(function), function.params
    takes_more = isinstance(params.star_arg, cst.Param) or params.star_kwarg is not None or params.posonly_params
    if function.decorators or takes_more or isinstance(scope, cst.ClassDef):
        return False
    return sum(each.name.value == function.name.value for each in file.nodes(cst.FunctionDef)) == 1


def _parameters(function: cst.FunctionDef) -> list[cst.Param]:
    return [*function.params.params, *function.params.kwonly_params]


@dataclass(frozen=True)
class _Given:
    """What one call gives a function, or a partial of it."""

    where: Context
    call: cst.Call
    arguments: Sequence[cst.Arg]

    def of(self, param: cst.Param, index: int) -> cst.Arg | None:
        """What it gives for a parameter, the one of that number by place."""
        by_place = [argument for argument in self.arguments if argument.keyword is None]
        named = (each for each in self.arguments if each.keyword is not None and each.keyword.value == param.name.value)
        return by_place[index] if index < len(by_place) else next(named, None)

    def reaches(self, index: int) -> bool:
        """Whether it gives something by place for parameters from that number on."""
        return sum(argument.keyword is None for argument in self.arguments) > index


def _without(
    function: cst.FunctionDef, unread: Collection[cst.Param], file: Context, plan: Plan, made: Collected
) -> Fix | None:
    calls = _calls(function, file, plan)
    if not calls:
        return None
    params = _parameters(function)
    gone: list[tuple[_Given, list[cst.Arg]]] = [(call, []) for call in calls]
    left: list[cst.Param] = []
    for param in params:
        if param not in unread:
            continue
        given = [call.of(param, params.index(param)) for call in calls]
        known = {argument.value for argument in given if argument is not None}
        passed = [value for _, _, value in file.passed_to(function.body, param.name.value)]
        can_go = all(
            argument is None or _is_as_it_was(call.where, argument, made)
            for call, argument in zip(calls, given, strict=True)
        )
        if not can_go or not known.issuperset(passed) or _is_stored(function, param, file, made):
            left.append(param)
            continue
        for (_, arguments), argument in zip(gone, given, strict=True):
            arguments += [argument] if argument is not None else []
    taken = [param for param in params if param in unread and param not in left]
    if not taken or _shifts(function, min(params.index(param) for param in taken), calls, file):
        return None
    edits = _signature(function, taken, calls, file)
    edits += entry_removals(function, {param.name.value for param in taken}, file)
    elsewhere = [
        (call.where, Fix(edits=argument_removal(call.where, call.call, argument, arguments)))
        for call, arguments in gone
        for argument in arguments
    ]
    return Fix(edits=edits, elsewhere=elsewhere)


def _calls(function: cst.FunctionDef, file: Context, plan: Plan) -> list[_Given]:
    """All that the program does with the function, where that is to call it, or a partial of it; else nothing."""
    found = []
    for where, reference in file.references_to(function):
        holder = where.parent(reference)
        if isinstance(holder, cst.Call) and holder.func is reference:
            given = _Given(where, holder, holder.args)
        else:
            call = where.parent(holder) if isinstance(holder, cst.Arg) else None
            if not isinstance(call, cst.Call) or where.dotted(call.func) != "functools.partial":
                return []
            if call.args[0] is not holder:
                return []
            given = _Given(where, call, call.args[1:])
        if plan.is_kept(where.path) or any(argument.star for argument in given.arguments):
            return []
        found.append(given)
    return found


def _is_as_it_was(where: Context, argument: cst.Arg, made: Collected) -> bool:
    """Whether an argument stands in the new text as in the old, and nothing is lost with it."""
    start, end = where.span(argument)
    is_plain_name = argument.keyword is not None or "\n" not in where.code(argument)
    return is_plain_name and made.rendered(where).keeps((start, end)) and is_plain(where, argument.value)


def _is_stored(function: cst.FunctionDef, param: cst.Param, file: Context, made: Collected) -> bool:
    """Whether the new text gives the name another value."""
    rendered = made.rendered(file)
    return any(
        isinstance(node, cst.Name) and node.value == param.name.value and not is_read_at(file, node)
        for node in file.inside(function.body)
        if rendered.keeps(file.span(node)) and not isinstance(file.parent(node), (cst.Arg, cst.Attribute))
    )


def _shifts(function: cst.FunctionDef, first: int, calls: Sequence[_Given], file: Context) -> bool:
    """Whether a call of something else than the function, as of a partial, gives by place what comes behind."""
    seen = {id(call.call) for call in calls}
    for param in function.params.params[first:]:
        for where, call, value in file.passed_to(function.body, param.name.value):
            holder = where.parent(value)
            if id(call) not in seen and not (isinstance(holder, cst.Arg) and holder.keyword is not None):
                return True
    return False


def _signature(
    function: cst.FunctionDef, taken: Sequence[cst.Param], calls: Sequence[_Given], file: Context
) -> list[Edit]:
    """The edits of the list of parameters."""
    by_place = function.params.params
    last = max((index for index, param in enumerate(by_place) if param in taken), default=len(by_place))
    first = next((index for index, param in enumerate(by_place) if param in taken), len(by_place))
    # Without a default among them a call out of sight gives one value too many.
    is_open = any(param.default is not None for param in by_place[first:])
    can_shift = is_open and any(param not in taken for param in by_place[last + 1 :])
    is_for_others = not is_script(file) and isinstance(file.scope(function), cst.Module)
    starred = can_shift and is_for_others and not any(call.reaches(last) for call in calls)
    items: list[tuple[int, int, bool]] = [(*_span(param, file), param in taken) for param in by_place]
    if function.params.kwonly_params:
        star = file.text.index("*", items[-1][1] if items else file.text.index("(", file.span(function.name)[1]))
        items.append((star, star + 1, starred or all(param in taken for param in function.params.kwonly_params)))
        items += [(*_span(param, file), param in taken) for param in function.params.kwonly_params]
    edits = []
    ends = max(index for index, item in enumerate(items) if not item[2]) if not all(i[2] for i in items) else -1
    for index, (start, end, goes) in enumerate(items[: ends + 1]):
        if not goes:
            continue
        if starred and index == last:
            edits.append(Edit(start, end, "*"))
        elif _has_lines(start, end, file):
            edits.append(Edit(*_lines(start, end, file), ""))
        else:
            edits.append(Edit(start, items[index + 1][0], ""))
    behind = items[ends + 1 :]
    if behind and all(_has_lines(start, end, file) for start, end, _ in behind):
        edits += [Edit(*_lines(start, end, file), "") for start, end, _ in behind]
    elif behind:
        edits.append(Edit(items[ends][1] if ends >= 0 else behind[0][0], behind[-1][1], ""))
    return edits


def _span(param: cst.Param, file: Context) -> tuple[int, int]:
    held = param.default or (param.annotation.annotation if param.annotation is not None else param.name)
    return file.span(param.name)[0], file.span(held)[1]


def _has_lines(start: int, end: int, file: Context) -> bool:
    """Whether nothing else stands on its lines, but for a comma and a comment."""
    first, behind = _lines(start, end, file)
    rest = file.text[end:behind].strip().removeprefix(",").lstrip()
    is_alone = file.text[end:behind].lstrip(" \t").startswith(",") and (not rest or rest.startswith("#"))
    return is_alone and not file.text[first:start].strip()


def _lines(start: int, end: int, file: Context) -> tuple[int, int]:
    newline = file.text.find("\n", end)
    return file.text.rfind("\n", 0, start) + 1, newline + 1 if newline >= 0 else len(file.text)
