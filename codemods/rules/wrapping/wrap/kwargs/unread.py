"""Entries of a dict that nothing takes out of it any more: FSDP2 needs none, or the calls say it themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst as cst

from codemods.api import Context, Edit
from codemods.reading.edits.layout import comments_in, removal
from codemods.tables.arguments import DROPPED

from ..draft import Draft, Entry


def drop_unread(entries: Mapping[str, Entry], said: Collection[str], draft: Draft) -> None:
    """Take them out of the dicts that they are written in; `said` are those that the new calls have as literals."""
    gone: dict[cst.Dict, list[cst.DictElement]] = {}
    files: dict[cst.Dict, Context] = {}
    for name, value in entries.items():
        if not _is_unread(name, value, said, draft):
            continue
        for where, stored in value.stored:
            element = where.parent(stored)
            display = where.parent(element) if isinstance(element, cst.DictElement) else None
            if isinstance(element, cst.DictElement) and isinstance(display, cst.Dict):
                gone.setdefault(display, []).append(element)
                files[display] = where
                draft.keeps -= {origin.node for origin in where.origins(stored)} if name in said else set()
    for display, elements in gone.items():
        draft.definitions.add(display)
        draft.edits += [(files[display], edit) for edit in removals(files[display], display, elements)]


def _is_unread(name: str, value: Entry, said: Collection[str], draft: Draft) -> bool:
    nothing = name == "cpu_offload" and all(origin.is_none for origin in value.values)
    is_needless = name in DROPPED or name in said or nothing
    return value.is_only_given and is_needless and not value.displays & draft.left


NEEDLESS = frozenset({*DROPPED, "device_id"})
"""What can go where the new code does not read it: of a device it asks the program itself."""


def removals(ctx: Context, display: cst.Dict, gone: Collection[cst.DictElement]) -> list[Edit]:
    """Edits that take entries away, with their lines where each stands on its own; else the rest is written anew."""
    emptied = _emptied_update(ctx, display, gone)
    if emptied is not None:
        return [removal(ctx, emptied)]
    lines = [ctx.whole_lines(element) for element in gone]
    alone = [_is_alone(ctx, element) for element in gone]
    kept = [element for element in display.elements if element not in gone]
    said = [line for line in ctx.code(display).splitlines() if line.lstrip().startswith("#")]
    if all(alone) and (kept or said):
        return [Edit(start, end, "") for start, end in lines]
    if all(alone):
        return [Edit(*ctx.bare_span(display), "{}")]
    if comments_in(ctx.code(display)) or not all(isinstance(element, cst.DictElement) for element in kept):
        return []
    texts = [
        ctx.quote_text(ctx.span(each.key)[0], ctx.span(each.value)[1])
        for each in kept
        if isinstance(each, cst.DictElement)
    ]
    return [Edit(*ctx.bare_span(display), f"{{{', '.join(texts)}}}")]


def _emptied_update(
    ctx: Context, display: cst.Dict, gone: Collection[cst.DictElement]
) -> cst.SimpleStatementLine | None:
    """The line of `settings.update({…})` where nothing is left to update, and nothing is said of it."""
    line = next((outer for outer in ctx.ancestors(display) if isinstance(outer, cst.SimpleStatementLine)), None)
    small = line.body[0] if line is not None and len(line.body) == 1 else None
    update = small.value if isinstance(small, cst.Expr) else None
    if not isinstance(update, cst.Call) or [argument.value for argument in update.args] != [display]:
        return None
    if not isinstance(update.func, cst.Attribute) or not isinstance(update.func.value, cst.Name):
        return None
    is_emptied = all(element in gone for element in display.elements) and not comments_in(ctx.code(display))
    return line if update.func.attr.value == "update" and is_emptied else None


def _is_alone(ctx: Context, element: cst.DictElement) -> bool:
    """Whether nothing else stands on the lines of an entry, but for a comma and a comment."""
    start, end = ctx.whole_lines(element)
    first, last = ctx.span(element.key)[0], ctx.span(element.value)[1]
    behind = ctx.text[last:end].lstrip(" \t,").strip()
    return not ctx.text[start:first].strip() and (not behind or behind.startswith("#"))
