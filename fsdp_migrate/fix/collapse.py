"""`m.net if isinstance(m, FSDP) else m.inner.net` whose sides the edits made the same is one of them."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit, Fix

from ..edit.apply import Overlap, part
from .collect import Collected

_ONLY_ASKS = frozenset(
    {
        "callable",
        "hasattr",
        "isinstance",
        "issubclass",
        "torch.distributed.is_initialized",
        "torch.distributed.is_available",
    }
)

_Choice = cst.IfExp | cst.BooleanOperation


def collapsed(file: Context, made: Collected) -> Iterator[Fix]:
    """The fixes, inner choices first: what holds one can come to the same by it."""
    starts = sorted(edit.start for edit in made.wanted[file.path].edits)
    choices: list[_Choice] = [*file.nodes(cst.IfExp), *file.nodes(cst.BooleanOperation)]
    touched = []
    for choice in choices:
        start, end = file.span(choice)
        at = bisect_left(starts, start)
        if at < len(starts) and starts[at] < end:
            touched.append(choice)
    for choice in sorted(touched, key=lambda each: file.span(each)[1] - file.span(each)[0]):
        side = _same(choice, file, made)
        if side is not None:
            yield Fix([Edit(*file.bare_span(choice), file.quote(side))])


def _same(choice: _Choice, file: Context, made: Collected) -> cst.BaseExpression | None:
    """The side that says it all."""
    if isinstance(choice, cst.IfExp):
        if not _became_same(choice.body, choice.orelse, file, made) or not _only_asks(choice.test, file):
            return None
        return choice.orelse
    if not isinstance(choice.operator, cst.Or):
        return None
    for kept, other in ((choice.left, choice.right), (choice.right, choice.left)):
        parts = _conjuncts(other)
        same = [each for each in parts if _became_same(each, kept, file, made)]
        rest = [each for each in parts if each not in same]
        if same and all(_only_asks(each, file) for each in (kept, *rest)):
            return kept
    return None


def _became_same(one: cst.BaseExpression, other: cst.BaseExpression, file: Context, made: Collected) -> bool:
    """Whether two expressions that differed say the same now."""
    if _tree(file.code(one)) == _tree(file.code(other)):
        return False
    meaning = _meaning(one, file, made)
    return bool(meaning) and meaning == _meaning(other, file, made)


def _meaning(node: cst.BaseExpression, file: Context, made: Collected) -> str:
    """The new text of an expression, whatever its layout; "" where it has none."""
    try:
        return _tree(part(file.path, file.text, made.wanted[file.path].edits, *file.span(node)))
    except (Overlap, SyntaxError):
        return ""


def _tree(text: str) -> str:
    return ast.dump(ast.parse(f"({text})", mode="eval"))


def _conjuncts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.And):
        return [*_conjuncts(node.left), *_conjuncts(node.right)]
    return [node]


def _only_asks(node: cst.BaseExpression, file: Context) -> bool:
    """Whether an expression does nothing else than to look at something."""
    for each in file.inside(node):
        if isinstance(each, (cst.Await, cst.NamedExpr, cst.Yield)):
            return False
        if isinstance(each, cst.Call):
            named = file.dotted(each.func) if isinstance(each.func, (cst.Name, cst.Attribute)) else None
            if (named or file.code(each.func)) not in _ONLY_ASKS:
                return False
    return True
