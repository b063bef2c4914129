"""What several calls of one function do alike, in more than a few lines, goes into a function above the first of them.

`shard(model)` stands where `FSDP(model, …)` stood.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import libcst as cst

from codemods.api import NotStatic
from codemods.reading.code.enclosing import contains, is_label, names_around
from codemods.reading.wraps.manual import block_of, context_of
from codemods.template import has_word, pieces

from ..argument_comments import kept_comments
from ..draft import Draft
from ..emit import body_of_function, body_of_root, is_in_place
from ..plan import draft as drafted
from .as_function import definition_above
from .shared import Block, read_block

_NAMES = ("shard", "shard_module", "apply_fsdp2")
_MODULES = ("module", "part", "wrapped")
_DICTS = ("kwargs", "arguments", "given")
_BLOCKS = (cst.IndentedBlock, cst.Module)
_LOOPS = (cst.For, cst.While)
_LINES, _SAVED = 3, 3
"""A function of fewer lines, or for fewer that it saves, is not worth a name."""


@dataclass(frozen=True, eq=False)
class _Member:
    """A call, and what it would be as a function of its module."""

    draft: Draft
    again: Draft
    blocks: tuple[str, ...]
    """What stands before, but for what is shared with the calls above."""
    own_dict: str = ""
    """The dict of arguments that the function is given as well, since other calls have another one."""
    parameter: str = ""
    """Its name in the function."""

    def body(self, indent: str = "", without: Sequence[str] = (), returns: bool = False) -> list[str]:
        """The lines of the function."""
        made = replace(self.again, before=[text for text in self.blocks if text not in without])
        lines = body_of_function(made, indent) if returns else body_of_root(made, indent)
        return "".join(self._with_parameter("\n".join(lines))).split("\n") if self.own_dict else lines

    def text(self, without: Sequence[str] = ()) -> str:
        return self.draft.file.plain("\n".join(self.body(without=without)))

    def is_inside(self, text: str) -> bool:
        """Whether a block says something of what the function is given."""
        return not read_block(text, self.again).names.isdisjoint({self.again.model, self.own_dict})

    def _with_parameter(self, text: str) -> Iterator[str]:
        """The parameter in the place of the dict."""
        for piece in pieces(text):
            if isinstance(piece, str):
                yield piece
            else:
                yield self.parameter if _is_name(self.draft.file.plain(piece.text), self.own_dict) else piece.text


class _Function(NamedTuple):
    """The calls that say the same."""

    calls: Sequence[_Member]
    above: Sequence[str]
    """What of the first call's stays above the function, since it says nothing of the module."""


class _Place(NamedTuple):
    """Where the function stands: above this statement."""

    statement: cst.CSTNode
    is_of_first: bool
    """Whether the statement of the first call stands there, in no loop, and under no condition."""


def put_in_functions(drafts: Iterable[Draft]) -> None:
    """Let the calls of each function that say the same call one function."""
    by_scope: dict[cst.CSTNode, list[Draft]] = {}
    for each in drafts:
        by_scope.setdefault(each.file.scope(each.call), []).append(each)
    for scope, found in by_scope.items():
        if len(found) < 2 or isinstance(scope, cst.ClassDef):
            continue
        found.sort(key=lambda each: each.file.span(each.call))
        long = [each for each in found if not _is_other(each) and len(body_of_root(each)) >= _LINES]
        for function in _best(long) if len(long) > 1 else ():
            _put(function, found)


def _best(drafts: Sequence[Draft]) -> Sequence[_Function]:
    """What one model is seen not to need does nothing for it, so that one function can be for all."""
    found: list[Sequence[_Function]] = []
    for for_others in (False, True):
        members = [member for each in drafts if (member := _member(each, drafts, for_others)) is not None]
        found.append(list(_functions(members)))
        dicts = {member: _own_dict(member) for member in members}
        if len({*dicts.values()} - {""}) > 1:
            name = next((each for each in _DICTS if each not in names_around(drafts[0].file, drafts[0].call)), "")
            given = [replace(each, own_dict=own, parameter=name) for each, own in dicts.items() if own and name]
            found.append(list(_functions(given)))
    return max(found, key=lambda found: (sum(len(each.calls) for each in found), -len(found)))


def _own_dict(member: _Member) -> str:
    """The name of the dict that a call takes its arguments out of, where a function can be given it."""
    starred = [argument.value for argument in member.draft.call.args if argument.star]
    (value,) = starred if len(starred) == 1 else (None,)
    if not isinstance(value, cst.Name):
        return ""
    written = [piece for piece in pieces("\n".join(member.body())) if isinstance(piece, str)]
    return "" if any(has_word(piece, value.value) for piece in written) else value.value


def _is_other(draft: Draft) -> bool:
    """Whether something else becomes of the call than statements in its place, or the user said something in it."""
    is_plain = draft.has_root and draft.chosen is None and not draft.is_function and not draft.helper
    return not is_plain or bool(draft.unit_comments or kept_comments(draft))


def _member(draft: Draft, others: Sequence[Draft], for_others: bool) -> _Member | None:
    """None where the call stands in a lambda or a comprehension that stays, or something is named otherwise there."""
    ctx = draft.file
    is_hidden = any(isinstance(node, (cst.BaseComp, cst.Lambda)) for node in _around(draft))
    if is_hidden and not is_in_place(draft):
        return None
    names = [node for node in ctx.inside(ctx.scope(draft.call)) if isinstance(node, cst.Name)]
    taken = {node.value for node in names if not is_label(node, ctx)}.union(*(each.quoted for each in others))
    module = next((name for name in _MODULES if name not in taken), "")
    try:
        again = drafted(ctx, draft.call, module or None, draft.asked, draft.left, for_others)
    except NotStatic:
        return None
    again.root_kwargs |= {key: text for key, text in draft.root_kwargs.items() if key == "reshard_after_forward"}
    kept = {ctx.plain(text) for text in (*draft.before, *(text for _, text in draft.above))}
    known = kept | {ctx.plain(text) for text in draft.shared}
    free = [text for text in again.before if module not in read_block(text, again).names]
    if not module or any(ctx.plain(text) not in known for text in free):
        return None
    return _Member(draft, again, tuple(text for text in again.before if text not in free or ctx.plain(text) in kept))


def _around(draft: Draft) -> Iterator[cst.CSTNode]:
    """What stands around a call in its statement."""
    for node in draft.file.ancestors(draft.call):
        if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            return
        yield node


def _functions(members: Sequence[_Member]) -> Iterator[_Function]:
    """Those that say the same, where a function of it is worth a name."""
    left = list(members)
    while left:
        first, *others = left
        found = _Function([first], [])
        for other in others:
            above = found.above if len(found.calls) > 1 else _above(first, other)
            if not other.draft.above and first.text(above) == other.text():
                found = _Function([*found.calls, other], above)
        left = [each for each in left if each not in found.calls]
        lines, calls = len(first.body(without=found.above)), len(found.calls)
        if calls > 1 and lines >= _LINES and lines * calls - (lines + calls + 2) >= _SAVED:
            yield found


def _above(first: _Member, other: _Member) -> list[str]:
    """What the other call has not, as it is computed above, and may be computed before the rest of the first."""
    ctx = first.draft.file
    theirs = {ctx.plain(text) for text in other.blocks}
    above, inside = list[str](), list[Block]()
    for text in first.blocks:
        block = read_block(text, first.again)
        is_free = block.is_pure and not first.is_inside(text) and all(_is_apart(block, each) for each in inside)
        if ctx.plain(text) not in theirs and is_free:
            above.append(text)
        else:
            inside.append(block)
    return above


def _is_apart(one: Block, other: Block) -> bool:
    """Whether it does not matter which of them comes first."""
    return not (one.binds & other.names or other.binds & one.names)


def _put(function: _Function, everything: Sequence[Draft]) -> None:
    """Write it above the first call, where no name in it means something else outside."""
    first, calls = function.calls[0], [member.draft for member in function.calls]
    ctx, draft = first.draft.file, first.draft
    above = {ctx.plain(text) for text in function.above}
    own = [text for text in draft.before if ctx.plain(text) in above]
    outside = {*names_around(ctx, draft.call), *(name for text in above for name in _names(text))}
    read = {name for each in everything if each not in calls for name in _read(_written(each))}
    taken = {name for each in everything for name in each.quoted} | first.again.quoted
    name = next((each for each in _NAMES if each not in outside | taken), "")
    place = _place(calls)
    if place is None or not name or (own and not place.is_of_first):
        return
    if _bound(first.text(function.above)) & (outside | read):
        return
    returns = not all(map(is_in_place, calls))
    draft.above += [(place.statement, text) for text in own]
    head = f"def {name}({first.again.model}{f', {first.parameter}' if first.parameter else ''}):"
    lines = definition_above(
        draft, place.statement, head, lambda indent: first.body(indent, function.above, returns), is_first=not own
    )
    draft.above.append((place.statement, "\n".join(lines)))
    for each in function.calls:
        each.draft.helper, each.draft.before = name, []
        each.draft.helper_arguments = f", {each.own_dict}" if each.own_dict else ""
        each.draft.quoted.add(name)


def _place(calls: Sequence[Draft]) -> _Place | None:
    """Above each of the calls, and above the loops around them."""
    ctx, first = calls[0].file, calls[0].call
    around = [first, *ctx.ancestors(first)]
    gone = context_of(ctx, first)
    block = block_of(ctx, gone) if gone is not None else None
    place = None
    for inner, outer in pairwise(around):
        if isinstance(outer, _BLOCKS) and place is None and all(contains(ctx, outer, each.call) for each in calls):
            place = inner
        elif place is not None and (isinstance(outer, _LOOPS) or outer is block):
            place = outer
        if outer is ctx.scope(first):
            break
    if place is None:
        return None
    inside = around[1 : around.index(place) + 1]
    is_beside = all(not isinstance(node, cst.BaseCompoundStatement) or node is block for node in inside)
    return _Place(place, is_beside)


def _written(draft: Draft) -> str:
    return draft.file.plain("\n".join([*(text for _, text in draft.above), *body_of_root(draft)]))


def _is_name(text: str, name: str) -> bool:
    """Whether an expression is a name, be it in brackets."""
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    return text == name


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _read(text: str) -> set[str]:
    """What a text reads, and does not bind itself."""
    return _names(text) - _bound(text)


def _bound(text: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
