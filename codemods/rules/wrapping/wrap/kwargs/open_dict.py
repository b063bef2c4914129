"""`**kwargs` that are an object's fields, or that nothing spells out: run time is asked for what FSDP2 needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import names_around
from codemods.reading.code.shapes import callee, is_call_to, key_of
from codemods.reading.values.attribute_stores import stored
from codemods.reading.values.defaults import is_rest_of
from codemods.tables.arguments import DROPPED, POSITIONS

from ..draft import Draft, Entry, Note
from .spread import Spread

_NAMES = ("fsdp_kwargs", "shard_kwargs", "wrap_kwargs")
"""What a dict is called that had no name."""

_OF_DATA = frozenset({"sync_module_states"})
"""What a file or a command line can give as well; the rest are objects, which code makes and puts under their names."""

_DEPTH = 3
"""How many functions hand `**kwargs` on."""

_REFUSED = "of `{text}`, an argument of FSDP1's that no file of the program names raises a TypeError"


def of_fields(ctx: Context, value: cst.BaseExpression) -> Spread | None:
    """An entry for each field of `asdict(config)` and `vars(config)`, where that is a dataclass of the program.

    None for anything else, and for an object whose fields are not all seen.
    """
    if not isinstance(value, cst.Call) or len(value.args) != 1 or value.args[0].star:
        return None
    if not is_call_to(value, "vars") and ctx.dotted(value.func) != "dataclasses.asdict":
        return None
    config = value.args[0].value
    made = [(origin.file, origin.node) for origin in ctx.origins(config)] if _is_read_again(config) else []
    classes = {
        (each.file, each.node)
        for where, node in made
        for each in (where.origins(node.func) if isinstance(node, cst.Call) else [Origin(where, None)])
    }
    if len(classes) != 1:
        return None
    ((where, owner),) = classes
    if not isinstance(owner, cst.ClassDef) or owner.bases or not _is_dataclass(where, owner):
        return None
    found = Spread()
    for field in (node for node in where.nodes(cst.AnnAssign) if where.scope(node) is owner):
        name = cst.ensure_type(field.target, cst.Name).value
        known = stored(ctx, name)
        places = tuple(known.values) if known is not None else ()
        values = tuple(origin for file, each in places for origin in file.origins(each))
        found.keeps.update(origin.node for origin in values if origin.node is not None and not origin.is_none)
        unseen_value = (Origin(ctx, None, f"comes out of {ctx.code(value)}"),)
        found.values[name] = Entry(f"{ctx.quote(config)}.{name}", values or unseen_value, stored=places)
    return found


def _is_dataclass(ctx: Context, owner: cst.ClassDef) -> bool:
    return any(ctx.dotted(callee(each.decorator)) == "dataclasses.dataclass" for each in owner.decorators)


def of_open_dict(ctx: Context, call: cst.Call, value: cst.BaseExpression, given: Collection[str]) -> Spread:
    """An entry for each argument that the call is not given besides, and that some file of the program names.

    What else comes with it is refused by the new code.
    """
    found, text = Spread(), ctx.quote(value)
    if not _is_read_again(value):
        taken = names_around(ctx, call)
        found.made_by, text = text, next(name for name in _NAMES if name not in taken)
        found.name = text
    known = tuple(origin for origin in ctx.items(value) if origin.node is not None)
    found.keeps.update(origin.node for origin in known if origin.node is not None and not origin.is_none)
    for name in POSITIONS[1:]:
        if name in DROPPED or name in given or not (name in _OF_DATA or ctx.mentions(name)):
            continue
        unseen_value = Origin(ctx, None, "comes out of a dict")
        found.values[name] = Entry(f'{text}.get("{name}")', (unseen_value,), may_lack=True, whole=text)
    found.open[text] = frozenset((*given, *found.values))
    return found


def is_given_from_outside(ctx: Context, at: cst.CSTNode, value: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether the `**kwargs` are in it of a function that the program never calls, so that others do."""
    around = [outer for outer in ctx.ancestors(at) if isinstance(outer, cst.FunctionDef)]
    names = [node for node in ctx.inside(value) if isinstance(node, cst.Name)]
    taking = next((outer for outer in around if any(is_rest_of(name, outer) for name in names)), None)
    if taking is None:
        return False
    calls = ctx.callers(taking.body) if depth else ()
    handed = ((where, call, argument) for where, call in calls for argument in call.args if argument.star == "**")
    return not calls or any(is_given_from_outside(where, call, each.value, depth - 1) for where, call, each in handed)


def refuse_others(found: Spread, draft: Draft) -> None:
    """Statements that raise for an argument of FSDP1's which the new code does not ask for."""
    unread, name = draft.fresh("unread", "unread_names"), draft.fresh("name", "argument")
    refused: list[str] = []
    for text, known in found.closed.items():
        names = _names(sorted(known, key=POSITIONS.index), draft)
        refused.append(f"{unread} = {text}.keys() - {{{names}}}")
    for text, known in found.open.items():
        given = draft.fresh("value", "given")
        read = [each for each in POSITIONS[1:] if each in DROPPED or isinstance(found.values.get(each), Entry)]
        others = [each for each in POSITIONS[1:] if each not in DROPPED and each not in known]
        names_read = len(read) < len(others)
        several = _held(read if names_read else others, refused, draft)
        loop, test = f"for {name} in {several}", f"{text}.get({name}) is not None"
        if names_read:
            loop, test = f"for {name}, {given} in {text}.items()", f"{given} is not None and {name} not in {several}"
        line = f"{unread} = [{name} {loop} if {test}]"
        refused.append(line if draft.fits(line) else f"{unread} = [\n    {name}\n    {loop}\n    if {test}\n]")
        draft.notes.append(Note(_REFUSED.format(text=draft.file.plain(text)), "read them there as well"))
    if refused:
        said = f'f"not read for FSDP2: {{{unread}}}"'
        draft.before.append("\n".join([*refused, f"if {unread}:\n    raise TypeError({said})"]))


def _held(names: Sequence[str], lines: list[str], draft: Draft) -> str:
    """The text of several names; it gets a name above where it goes over several lines."""
    text = f"({_names(names, draft)})"
    if "\n" not in text:
        return text
    several = draft.fresh("known", "known_names")
    lines.append(f"{several} = {text}")
    return several


def _names(names: Sequence[str], draft: Draft) -> str:
    """The texts between two brackets, on several lines where one would be too long."""
    texts = [f'"{each}"' for each in names]
    line = ", ".join(texts)
    if draft.fits(f"{line}{' ' * 24}"):
        return line
    inner = f"    {line}" if draft.fits(f"    {line}") else "\n".join(f"    {text}," for text in texts)
    return f"\n{inner}\n"


def _is_read_again(value: cst.BaseExpression) -> bool:
    """`cfg.fsdp`, `cfg["fsdp"]`: reading it several times gives the same dict."""
    if isinstance(value, cst.Attribute):
        return _is_read_again(value.value)
    if isinstance(value, cst.Subscript):
        return key_of(value) is not None and _is_read_again(value.value)
    return isinstance(value, cst.Name)
