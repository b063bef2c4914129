"""What several calls of one function need is computed once, above the first of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import dedent

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains, enclosing
from codemods.reading.wraps.wrapped import same_unit_inside

from ..draft import Draft
from ..kwargs.beside_maker import put_beside_maker

_LOOPS = (cst.For, cst.While, cst.BaseComp, cst.Lambda)
_ROOTS = frozenset({"TypeError", "ValueError", "dist", "isinstance", "torch"})
_DEVICE = "set_device"
"""What a statement that sets the current device binds: a name that other such statements hold too."""


@dataclass(frozen=True)
class Block:
    """Statements before a call, as far as sharing them needs to know."""

    text: str
    reads: frozenset[str]
    binds: frozenset[str]
    is_pure: bool
    """Whether they only bind names, and running them twice is running them once: no function of the program is called,
    and nothing is changed."""
    above: cst.CSTNode | None = None
    """The statement that they stand above, where that is not the call's own place."""

    @property
    def names(self) -> frozenset[str]:
        return self.reads | self.binds


def share(drafts: Iterable[Draft]) -> None:
    """Drop statements that the draft of an earlier call has as well, where nothing in between changes what they say."""
    by_function: dict[cst.CSTNode, list[Draft]] = {}
    # What those of several classes say holds in one branch alone; of two calls around one module the inner one stays.
    drafts = [each for each in drafts if each.chosen is None and same_unit_inside(each.file, each.call) is None]
    put_beside_maker(drafts)
    for draft in drafts:
        if draft.helper or draft.is_function:  # what stands in a function is seen nowhere else
            continue
        by_function.setdefault(draft.file.scope(draft.call), []).append(draft)
    for found in by_function.values():
        if len(found) > 1:
            _share(sorted(found, key=lambda draft: draft.file.span(draft.call)))


def _share(drafts: Sequence[Draft]) -> None:
    blocks = [_blocks(draft) for draft in drafts]
    texts = [_texts(draft) for draft in drafts]
    written = [list(each) for each in blocks]
    for here, draft in enumerate(drafts):
        kept: list[int] = []
        for place, block in enumerate(blocks[here]):
            own = frozenset(name for index in kept for name in blocks[here][index].binds)
            known = block.is_pure and not own & block.names
            lending = [there for there in range(here) if known and _has(block, there, here, drafts, blocks, written)]
            if not lending:
                kept.append(place)
            for there in lending:
                index = next(index for index, other in enumerate(blocks[there]) if other.text == block.text)
                drafts[there].lent.append(texts[there][index])
        written[here] = [blocks[here][place] for place in kept]
        above = len(draft.above)
        draft.shared = [text for at, text in enumerate(_texts(draft)) if at not in kept]
        draft.before = [draft.before[place - above] for place in kept if place >= above]
        draft.above = [draft.above[place] for place in kept if place < above]


def _blocks(draft: Draft) -> list[Block]:
    above = [replace(read_block(text, draft), above=place) for place, text in draft.above]
    return [*above, *(read_block(text, draft) for text in draft.before)]


def _texts(draft: Draft) -> list[str]:
    return [*(text for _, text in draft.above), *draft.before]


def _has(
    block: Block,
    there: int,
    here: int,
    drafts: Sequence[Draft],
    blocks: Sequence[Sequence[Block]],
    written: Sequence[Sequence[Block]],
) -> bool:
    """Whether an earlier call has bound the same, and it still holds at this one."""
    place = next((index for index, other in enumerate(blocks[there]) if other.text == block.text), None)
    if place is None:
        return False
    file = drafts[there].file
    line = blocks[there][place].above or enclosing(file, drafts[there].call, cst.SimpleStatementLine)
    if not _is_below(line, block.above or drafts[here].call, file):
        return False
    later = [*blocks[there][place + 1 :], *(each for between in written[there + 1 : here] for each in between)]
    if any(other.binds & block.names and other.text != block.text for other in later):
        return False
    between = list(_between(drafts[there], drafts[here], drafts))
    is_set_by_others = _DEVICE in block.binds and drafts[here].file.mentions(_DEVICE)
    if is_set_by_others and any(isinstance(node, cst.Call) for node in between):
        return False  # it may set another one
    return block.names.isdisjoint(node.value for node in between if isinstance(node, cst.Name))


def _is_below(line: cst.CSTNode | None, place: cst.CSTNode, ctx: Context) -> bool:
    """Whether a place is come to only behind a statement, and as often."""
    block = ctx.parent(line) if line is not None else None
    if block is None or not contains(ctx, block, place):
        return False
    inner = [node for node in ctx.ancestors(place) if contains(ctx, block, node) and node is not block]
    return not any(isinstance(node, _LOOPS) for node in inner)


def _between(first: Draft, second: Draft, drafts: Sequence[Draft]) -> Iterator[cst.CSTNode]:
    """What stands between two calls, but for calls that are rewritten, which change nothing."""
    ctx = first.file
    lines = [enclosing(ctx, each.call, cst.SimpleStatementLine) for each in (first, second)]
    start, end = ctx.span(lines[0] or first.call)[0], ctx.span(lines[1] or second.call)[0]
    calls = [ctx.span(each.call) for each in drafts]
    for node in ctx.inside(ctx.scope(first.call)):
        at = ctx.span(node)[0] if isinstance(node, (cst.Name, cst.Call)) else end
        if start <= at < end and not any(low <= at < high for low, high in calls):
            yield node


def read_block(text: str, draft: Draft) -> Block:
    plain = dedent(draft.file.plain(text))
    try:
        tree = ast.parse(plain)
    except SyntaxError:
        return Block(plain, frozenset(), frozenset(), False)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    binds = frozenset(node.id for node in names if isinstance(node.ctx, ast.Store))
    binds |= {_DEVICE for node in ast.walk(tree) if isinstance(node, ast.stmt) and _sets_device(node)}
    reads = frozenset(node.id for node in names if isinstance(node.ctx, ast.Load))
    imported = {item.local for item in draft.imports}
    known = frozenset(imported | {name.partition(".")[0] for name in imported} | _ROOTS)
    is_pure = bool(binds) and all(_only_binds(statement) for statement in tree.body)
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    is_pure &= all(_root(node.func) in known or _takes_out(node) for node in called)
    return Block(ast.unparse(tree), reads - known, binds, is_pure)  # in whichever layout


def _only_binds(statement: ast.stmt) -> bool:
    if _sets_device(statement):
        return True
    if isinstance(statement, ast.If):
        raises = [isinstance(each, ast.Raise) for each in statement.body]  # which it does the first time
        body = () if all(raises) else statement.body
        return all(_only_binds(each) for each in (*body, *statement.orelse))
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    # `fsdp_kwargs["mesh"] = …` is of a dict that the same statements make.
    return isinstance(target.value if isinstance(target, ast.Subscript) else target, ast.Name)


def _sets_device(statement: ast.stmt) -> bool:
    function = (
        statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    )
    return isinstance(function, ast.Attribute) and function.attr == _DEVICE


def _takes_out(call: ast.Call) -> bool:
    """`kwargs.pop("policy")`: what an earlier call took out of the dict is not there any more. A look-up, too."""
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return False
    return call.func.attr in {"get", "items", "keys", "pop"}


def _root(function: ast.expr) -> str:
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""
