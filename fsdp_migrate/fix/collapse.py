"""`m.net if isinstance(m, FSDP) else m.inner.net` whose sides the edits made the same is one of them.

A statement that they made the same in both branches of an `if` stands in its place; an assignment at the top of both,
above it.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, Edit, Fix
from codemods.reading.code.only_asks import only_asks
from codemods.reading.edits.layout import comments_in, insertion
from codemods.reading.edits.negation import conjuncts

from ..edit.apply import Overlap, part
from .collect import Collected

_ONLY_ASKS = frozenset(
    {
        "callable",
        "hasattr",
        "isinstance",
        "issubclass",
        "torch.cuda.is_available",
        "torch.distributed.is_initialized",
        "torch.distributed.is_available",
    }
)

_Choice = cst.IfExp | cst.BooleanOperation


def collapsed(file: Context, made: Collected) -> Iterator[Fix]:
    """The fixes, inner choices first: what holds one can come to the same by it."""
    starts = sorted(edit.start for edit in made.wanted[file.path].edits)
    choices: list[_Choice] = [*file.nodes(cst.IfExp), *file.nodes(cst.BooleanOperation)]
    touched = [choice for choice in choices if _is_touched(choice, file, starts)]
    for choice in sorted(touched, key=lambda each: file.span(each)[1] - file.span(each)[0]):
        side = _same(choice, file, made)
        if side is not None:
            yield Fix([Edit(*file.bare_span(choice), file.quote(side))])
    for branches in file.nodes(cst.If):
        lines = _first_lines(branches, file)
        if lines is None or not any(_is_touched(line, file, starts) for line in lines):
            continue
        if not _became_one(*lines, file, made) or not _only_asks(branches.test, file):
            continue
        short = min((line.body[0] for line in lines), key=lambda each: _text(each, file, made).count("\n"))
        text = file.quote(short)
        if len(branches.body.body) == 1:
            above, behind = _comments(branches, lines, file)
            if above is not None:
                yield Fix([Edit(*file.span(branches), f"{above}{text}{behind}")])
        elif any(_has_comment(line, file) for line in lines):
            continue
        elif "\n" not in _text(short, file, made) and _hoists(branches.test, *lines, file, made):
            other = branches.orelse if _is_all_there_is(lines[1], file, made) else None
            gone = [Edit(*file.whole_lines(each), "") for each in (lines[0], other or lines[1])]
            yield Fix([insertion(file, branches, [text]), *gone])
    for branch in file.nodes(cst.If):
        if _is_touched(branch.body, file, starts) and _says_what_is_above(branch, file, made):
            yield Fix([Edit(*file.whole_lines(branch), "")])


def _says_what_is_above(branch: cst.If, file: Context, made: Collected) -> bool:
    """Whether `if fsdp: net = model` came to the same as the line above it, `net = model`."""
    block = file.parent(branch)
    if (
        branch.orelse is not None
        or not isinstance(block, (cst.IndentedBlock, cst.Module))
        or len(branch.body.body) != 1
    ):
        return False
    index, line = list(block.body).index(branch), branch.body.body[0]
    above = block.body[index - 1] if index else None
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(above, cst.SimpleStatementLine):
        return False
    if len(line.body) != 1 or len(above.body) != 1 or "#" in file.code(branch):
        return False
    made_of = above.body[0].value if isinstance(above.body[0], cst.Assign) else None
    is_read = made_of is not None and _only_asks(made_of, file) and only_asks(file, branch.test)
    return is_read and _became_one(line, above, file, made)


def _comments(choice: cst.If, lines: Sequence[cst.SimpleStatementLine], file: Context) -> tuple[str | None, str]:
    """What the one branch says above its line, and behind it, where the other says nothing; None where both do."""
    starts = file.span(choice.test)[1], file.whole_lines(lines[0])[1]
    said = [comments_in(file.text[start : file.span(line)[0]]) for start, line in zip(starts, lines, strict=True)]
    behind = [file.text[file.span(line)[1] : file.whole_lines(line)[1]].rstrip() for line in lines]
    if all(above or after for above, after in zip(said, behind, strict=True)):
        return None, ""
    margin = file.newline + file.text[file.whole_lines(choice)[0] : file.span(choice)[0]]
    above = "".join(f"{comment}{margin}" for comments in said for comment in comments)
    return above, "" if behind[1] else behind[0]  # what is behind the last line stays there


def _is_touched(node: cst.CSTNode, file: Context, starts: Sequence[int]) -> bool:
    """Whether an edit begins in a node; `starts` are where they begin, in order."""
    start, end = file.span(node)
    at = bisect_left(starts, start)
    return at < len(starts) and starts[at] < end


def _first_lines(choice: cst.If, file: Context) -> tuple[cst.SimpleStatementLine, cst.SimpleStatementLine] | None:
    """The statements at the top of an `if` and its `else`, where more than those stands in both, or in neither."""
    if not isinstance(choice.orelse, cst.Else) or not isinstance(file.parent(choice), (cst.IndentedBlock, cst.Module)):
        return None
    blocks = (choice.body, choice.orelse.body)
    if not all(isinstance(block, cst.IndentedBlock) for block in blocks):
        return None
    if (len(blocks[0].body) == 1) is not (len(blocks[1].body) == 1):
        return None
    one, other = (block.body[0] for block in blocks)
    if not isinstance(one, cst.SimpleStatementLine) or not isinstance(other, cst.SimpleStatementLine):
        return None
    return (one, other) if len(one.body) == len(other.body) == 1 else None


def _became_one(one: cst.SimpleStatementLine, other: cst.SimpleStatementLine, file: Context, made: Collected) -> bool:
    """Whether two statements that differed say the same now."""
    first, second = one.body[0], other.body[0]
    kinds = (cst.Assign, cst.Expr)
    if not isinstance(first, kinds) or not isinstance(second, kinds) or file.code(first) == file.code(second):
        return False
    if _are_gone([one], file, made):
        return False
    meaning = _meaning(first, file, made)
    return bool(meaning) and meaning == _meaning(second, file, made)


def _hoists(
    test: cst.BaseExpression,
    one: cst.SimpleStatementLine,
    other: cst.SimpleStatementLine,
    file: Context,
    made: Collected,
) -> bool:
    """Whether a statement of both branches can run before the test: it does nothing else than to assign what that does
    not ask."""
    first = one.body[0]
    if not isinstance(first, cst.Assign) or len(first.targets) != 1 or not _only_asks(first.value, file):
        return False
    target = first.targets[0].target
    if _is_all_there_is(other, file, made) and "#" in file.code(cst.ensure_type(file.parent(other), cst.IndentedBlock)):
        return False
    asked = {node.value for node in file.inside(test) if isinstance(node, cst.Name)}
    return isinstance(target, cst.Name) and target.value not in asked


def _is_all_there_is(line: cst.SimpleStatementLine, file: Context, made: Collected) -> bool:
    """Whether the edits take away what stands below the first of several lines of a block."""
    _, *others = cst.ensure_type(file.parent(line), cst.IndentedBlock).body
    return bool(others) and _are_gone(others, file, made)


def _are_gone(statements: Sequence[cst.CSTNode], file: Context, made: Collected) -> bool:
    empty = [(edit.start, edit.end) for edit in made.wanted[file.path].edits if not edit.text]
    return all(any(low <= start and end <= high for low, high in empty) for start, end in map(file.span, statements))


def _has_comment(line: cst.SimpleStatementLine, file: Context) -> bool:
    start, end = file.whole_lines(line)
    above = file.text[:start].rstrip().rpartition("\n")[2]
    return "#" in above or "#" in file.text[start:end]


def _text(node: cst.CSTNode, file: Context, made: Collected) -> str:
    try:
        return part(file.path, file.text, made.wanted[file.path].edits, *file.span(node))
    except (Overlap, SyntaxError):
        return ""


def _same(choice: _Choice, file: Context, made: Collected) -> cst.BaseExpression | None:
    """The side that says it all."""
    if isinstance(choice, cst.IfExp):
        if not _became_same(choice.body, choice.orelse, file, made) or not _only_asks(choice.test, file):
            return None
        return choice.orelse
    if not isinstance(choice.operator, cst.Or):
        return None
    for kept, other in ((choice.left, choice.right), (choice.right, choice.left)):
        parts = conjuncts(other)
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


def _meaning(node: cst.CSTNode, file: Context, made: Collected) -> str:
    """The new text of an expression or a statement, whatever its layout; "" where it has none."""
    try:
        text = _text(node, file, made)
        return _tree(text) if isinstance(node, cst.BaseExpression) else ast.dump(ast.parse(text)) if text else ""
    except SyntaxError:
        return ""


def _tree(text: str) -> str:
    return ast.dump(ast.parse(f"({text})", mode="eval"))


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
