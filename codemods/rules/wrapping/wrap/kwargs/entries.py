"""`**kwargs` of a dict that is filled elsewhere: its keys are seen, and its values are read at run time."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.enclosing import names_around
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import is_call_to, key_of
from codemods.reading.code.words import last_name
from codemods.reading.values.choices import Place, readers
from codemods.reading.wraps.chosen_class import takes_alone

from ..draft import Entry
from .handed_dict import Way, way_of
from .spread import Spread, copied_dict, unseen

_NAMES = ("fsdp_kwargs", "shard_kwargs", "wrap_kwargs", "made_kwargs")
"""What a dict is called that had no name."""

_Values = dict[str, list[tuple[Context, cst.BaseExpression]]]


def of_dict(ctx: Context, call: cst.BaseExpression, value: cst.Name | cst.Attribute | cst.Call) -> Spread:
    """An entry for each key that the program puts into the dict. Raises NotStatic where a key may be any.

    One that a call in the place of a name makes gets a name.
    """
    origins = ctx.origins(value)
    displays = [(origin.file, origin.node) for origin in origins if isinstance(origin.node, cst.BaseExpression)]
    if not displays or len(displays) < len(origins):
        raise unseen(ctx, value)
    way = way_of(ctx, call, value, [display for _, display in displays])
    names = {*way.names} if isinstance(value, cst.Call) else {last_name(value), *way.names}
    values: _Values = {}
    always: set[str] | None = None
    scopes = [(ctx, ctx.scope(call)), *((where, where.scope(display)) for where, display in displays), *way.scopes]
    copied: set[str] = set()
    for where, display in displays:
        made, known = _Values(), set[str]()
        for key, node in _parts(where, display, unseen(ctx, value)):
            if key is not None:
                made[key] = [(where, node)]
                known.add(key)
                continue
            base = of_dict(where, display, cst.ensure_type(node, cst.Name))
            for each, entry in base.values.items():
                assert isinstance(entry, Entry)
                made[each] = [*(made.get(each, ()) if entry.may_lack else ()), *entry.stored]
                known |= set() if entry.may_lack else {each}
                copied.add(each)
        always = known if always is None else always & known
        for key, nodes in made.items():
            values.setdefault(key, []).extend(nodes)
        names.update(_assigned_to(where, display))
        if not _is_handed_over(ctx, call, value, where, display):
            raise unseen(ctx, value)
    if any(_is_passed(where, each) for where, scope in scopes for each in _named(where, scope, names) - way.handed):
        raise unseen(ctx, value)  # something else gets hold of the dict, and may put more into it
    is_everywhere = way.is_attribute or any(isinstance(scope, cst.Module) for _, scope in scopes)
    if is_everywhere and _is_passed_anywhere(ctx, names, way):
        raise unseen(ctx, value)
    is_local = not isinstance(value, cst.Attribute) and not way.is_attribute
    is_local = is_local and all(isinstance(scope, cst.FunctionDef) for _, scope in scopes)
    for where, statements in _reach(ctx, scopes if is_local else (), names):
        for name in names:
            for key, node in _stored(where, statements, name, ctx, value):
                values.setdefault(key, []).append((where, node))
    result, text, read = Spread(), ctx.quote(value), keys_read(ctx, value, displays, names)
    if isinstance(value, cst.Call):
        taken_names = names_around(ctx, call)
        result.made_by, text = text, next(name for name in _NAMES if name not in taken_names)
        result.name = text
    for key, places in values.items():
        found_at = tuple(origin for where, node in places for origin in where.origins(node))
        result.keeps.update(origin.node for origin in found_at if origin.node is not None and not origin.is_none)
        is_there = always is not None and key in always
        taken = f'{text}["{key}"]' if is_there else f'{text}.get("{key}")'
        is_only_given = read is not None and key not in read and key not in copied
        dicts = frozenset(display for _, display in displays)
        result.values[key] = Entry(taken, found_at, not is_there, tuple(places), is_only_given, dicts, text)
    return result


def _reach(
    ctx: Context, scopes: Collection[tuple[Context, cst.CSTNode]], names: set[str]
) -> Iterator[tuple[Context, list[cst.CSTNode]]]:
    """The nodes among which something can be stored into the dict.

    One that a function makes anew is met in some `scopes`; one of a module or a class is seen from everywhere.
    """
    if scopes:
        yield from ((where, list(where.inside(scope))) for where, scope in dict.fromkeys(scopes))
        return
    for where in {where.path: where for name in names for where in ctx.files(name)}.values():
        yield where, [*where.nodes(cst.Assign), *where.nodes(cst.Call), *where.nodes(cst.Del)]


def _is_handed_over(
    ctx: Context,
    call: cst.BaseExpression,
    value: cst.Name | cst.Attribute | cst.Call,
    where: Context,
    display: cst.BaseExpression,
) -> bool:
    """Whether the dict comes straight from where it is made: by the same name, or from the function that makes it."""
    home = where.scope(display)
    if isinstance(value, cst.Call):
        return any(function is home for _, function in ctx.runs(value))
    if isinstance(value, cst.Attribute):
        return value.attr.value in _assigned_to(where, display)
    if home is ctx.scope(call):
        return value.value in _assigned_to(where, display)
    if isinstance(home, cst.Module):  # by its own name, or by that of an import
        return bool(list(_assigned_to(where, display))) and not _is_bound_in_function(ctx, call, value)
    for assignment in ctx.nodes(cst.Assign):
        if ctx.scope(assignment) is not ctx.scope(call) or len(assignment.targets) != 1:
            continue
        target = assignment.targets[0].target
        bound = [element.value for element in target.elements] if isinstance(target, cst.Tuple) else [target]
        if not any(isinstance(each, cst.Name) and each.value == value.value for each in bound):
            continue
        if value not in ctx.uses(assignment):
            continue  # another dict, which goes by the same name above or below
        made = assignment.value
        if not isinstance(made, cst.Call) or not any(function is home for _, function in ctx.runs(made)):
            return False
    return isinstance(home, cst.FunctionDef)


def _is_bound_in_function(ctx: Context, call: cst.BaseExpression, value: cst.Name) -> bool:
    here = (node for node in ctx.nodes(cst.Assign) if ctx.scope(node) is ctx.scope(call))
    return any(value.value in bound(target.target) for assignment in here for target in assignment.targets)


def _is_passed_anywhere(ctx: Context, names: set[str], way: Way) -> bool:
    files = {where.path: where for name in names for where in ctx.files(name)}.values()
    return any(
        node not in way.handed and last_name(node) in names and _is_passed(where, node)
        for where in files
        for node in (*where.nodes(cst.Name), *where.nodes(cst.Attribute))
        if isinstance(node, (cst.Name, cst.Attribute))
    )


def _named(where: Context, scope: cst.CSTNode, names: set[str]) -> set[cst.CSTNode]:
    """What goes by one of the names in a function."""
    nodes = (node for node in where.inside(scope) if isinstance(node, (cst.Name, cst.Attribute)))
    return {node for node in nodes if last_name(node) in names}


def _is_passed(where: Context, node: cst.CSTNode) -> bool:
    """Whether a whole dict is an argument, but for `**`, or gets another name."""
    holder = where.parent(node)
    if isinstance(holder, cst.Arg):
        call = where.parent(holder)
        is_read = is_call_to(call, "len", "print", "repr", "str", "dict") or copied_dict(where, call) is node
        return holder.value is node and not holder.star and not is_read
    return isinstance(holder, (cst.Assign, cst.AnnAssign)) and holder.value is node


def _literal(
    where: Context, display: cst.BaseExpression, otherwise: NotStatic
) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The entries of a display whose keys are literals."""
    for key, node in _parts(where, display, otherwise):
        if key is None:
            raise otherwise
        yield key, node


def _parts(
    where: Context, display: cst.BaseExpression, otherwise: NotStatic
) -> Iterator[tuple[str | None, cst.BaseExpression]]:
    """The same, with no key for a variable that holds another dict, whose entries it takes over."""
    base = copied_dict(where, display)
    if isinstance(base, cst.Name):
        yield None, base
    elif isinstance(display, cst.BinaryOperation) and isinstance(display.operator, cst.BitOr):
        for side in (display.left, display.right):
            yield from [(None, side)] if isinstance(side, cst.Name) else _parts(where, side, otherwise)
    elif isinstance(display, cst.Dict):
        for element in display.elements:
            if isinstance(element, cst.StarredDictElement) and isinstance(element.value, cst.Name):
                yield None, element.value
            elif isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
                yield str(element.key.evaluated_value), element.value
            else:
                raise otherwise
    elif is_call_to(display, "dict"):
        for argument in display.args:
            if argument.keyword is None and argument.star == "*":
                raise otherwise
            if argument.keyword is None and not isinstance(argument.value, cst.Name):
                raise otherwise
            yield argument.keyword.value if argument.keyword is not None else None, argument.value
    else:
        raise otherwise


def _assigned_to(where: Context, display: cst.BaseExpression) -> Iterator[str]:
    statement = where.parent(display)
    if isinstance(statement, cst.Assign):
        targets = [target.target for target in statement.targets]
    elif isinstance(statement, cst.AnnAssign):
        targets = [statement.target]
    else:
        return
    yield from (last_name(target) for target in targets if isinstance(target, (cst.Name, cst.Attribute)))


def _stored(
    where: Context, nodes: list[cst.CSTNode], name: str, ctx: Context, value: cst.BaseExpression
) -> Iterator[tuple[str, cst.BaseExpression]]:
    """What is put into anything of this name: `kwargs["key"] = …`, `kwargs.update(…)`."""
    for assignment in (node for node in nodes if isinstance(node, cst.Assign)):
        for target in (each.target for each in assignment.targets):
            if not isinstance(target, cst.Subscript) or not _is_called(target.value, name):
                continue
            key = key_of(target)
            if key is None:
                raise unseen(ctx, value)
            yield key, assignment.value
    for call in (node for node in nodes if isinstance(node, cst.Call)):
        if not isinstance(call.func, cst.Attribute) or not _is_called(call.func.value, name):
            continue
        if call.func.attr.value == "update":
            for argument in call.args:
                if argument.keyword is not None:
                    yield argument.keyword.value, argument.value
                else:
                    yield from _literal(where, argument.value, unseen(ctx, value))
        elif call.func.attr.value in {"clear", "pop", "popitem", "setdefault"}:
            raise unseen(ctx, value)
    for gone in (node for node in nodes if isinstance(node, cst.Del)):
        if any(isinstance(part, cst.Subscript) and _is_called(part.value, name) for part in where.inside(gone)):
            raise unseen(ctx, value)


def _is_called(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, (cst.Name, cst.Attribute)) and last_name(node) == name


# Who else reads a dict that is spread into constructor calls.


def keys_read(
    ctx: Context, value: cst.Name | cst.Attribute | cst.Call, displays: Collection[Place], names: Collection[str]
) -> frozenset[str] | None:
    """The keys whose values something else takes than a constructor call; None where that may be any.

    `displays` is where the dict is made, `names` what it is called on its way.
    """
    if not isinstance(value, cst.Attribute) and all(
        isinstance(where.scope(node), cst.FunctionDef) for where, node in displays
    ):
        uses: list[Place] = []
        for where, display in displays:
            found = readers(where, display, value)
            if found is None:
                return None
            uses += found
    else:
        uses = list(_places(ctx, names))
    keys: set[str] = set()
    for where, use in uses:
        taken = _taken(where, use)
        if taken is None:
            return None
        keys |= taken
    return frozenset(keys)


def _places(ctx: Context, names: Collection[str]) -> Iterator[Place]:
    """Everything of these names, in all files of the program."""
    for name in names:
        for where in ctx.files(name):
            for attribute in where.nodes(cst.Attribute):
                if attribute.attr.value == name:
                    yield where, attribute
            for node in where.nodes(cst.Name):
                holder = where.parent(node)
                is_part = isinstance(holder, cst.Attribute) and holder.attr is node
                is_label = isinstance(holder, (cst.Arg, cst.Param)) and holder.children[0] is node
                if node.value == name and not is_part and not (is_label and getattr(holder, "value", None) is not node):
                    yield where, node


def _taken(where: Context, use: cst.BaseExpression) -> set[str] | None:
    """The keys that are read where a dict stands; None where they may be any."""
    holder = where.parent(use)
    if isinstance(holder, (cst.AssignTarget, cst.AnnAssign)):
        return set()
    if isinstance(holder, cst.Arg):
        return set() if holder.star == "**" and takes_alone(where, holder) else None
    if isinstance(holder, cst.Subscript) and holder.value is use:
        key = key_of(holder)
        if key is None:
            return None
        return set() if isinstance(where.parent(holder), cst.AssignTarget) else {key}
    if isinstance(holder, cst.Attribute) and holder.attr.value == "update":
        return set()  # seen where what is put into it is gathered
    return None
