"""What a call in a loop needs, and no turn of the loop changes, is computed once, above the loop.

Above its statement, where the loop, or a condition, is a part of that: `ModuleList(FSDP(b, …) for b in blocks)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, Edit
from codemods.plan import PlannedContext
from codemods.reading.edits.call_layout import line_above

from ..draft import Draft
from ..emit import joined_lines
from .shared import read_block

_TARGETS = (cst.AssignTarget, cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr)


def hoist(draft: Draft) -> None:
    """Take out of the statements before a call what can stand above a loop around it."""
    if draft.is_function or draft.chosen is not None:
        return
    places, kept, left = list(_places_above(draft)), list[str](), set[str]()
    for text in draft.before:
        block = read_block(text, draft)
        place = _outermost(places, block.reads) if block.is_pure and not left & block.reads else None
        if place is None:
            kept.append(text)
            left |= block.binds
        else:
            draft.above.append((place, text))
    draft.before = kept


def edits_above(draft: Draft, ctx: PlannedContext) -> list[Edit]:
    """What stands above each of them."""
    lines: dict[cst.CSTNode, list[str]] = {}
    for place, text in draft.above:
        lines.setdefault(place, []).extend(text.split("\n"))
    return [line_above(ctx, place, *joined_lines(each, "", ctx).split(ctx.newline)) for place, each in lines.items()]


def _places_above(draft: Draft) -> Iterator[tuple[cst.CSTNode, frozenset[str]]]:
    """The statements that hold the call and may run it more than once, or not at all, and what each binds; the nearest
    first.
    """
    inside: list[cst.CSTNode] = []
    for node in draft.file.ancestors(draft.call):
        if isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Lambda, cst.While, cst.Try)):
            return
        if isinstance(node, (cst.BaseComp, cst.IfExp)):
            inside.append(node)
        if isinstance(node, cst.For) or (inside and isinstance(node, cst.SimpleStatementLine)):
            yield node, _bound(node, draft.file)


def _outermost(places: Sequence[tuple[cst.CSTNode, frozenset[str]]], reads: frozenset[str]) -> cst.CSTNode | None:
    """The last of some statements, each in the next, in which none of these names is bound."""
    found = None
    for place, bound in places:
        if not reads.isdisjoint(bound):
            break
        found = place
    return found


def _bound(place: cst.CSTNode, ctx: Context) -> frozenset[str]:
    """The names that a statement binds, or into which it puts something."""
    targets: list[cst.CSTNode] = [node.target for node in ctx.inside(place) if isinstance(node, _TARGETS)]
    targets += [node for node in ctx.inside(place) if isinstance(node, (cst.AsName, cst.Del))]
    names = (name for target in targets for name in ctx.inside(target) if isinstance(name, cst.Name))
    return frozenset(name.value for name in names)
