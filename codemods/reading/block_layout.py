"""Edits that take the body of a block one level out."""

from __future__ import annotations

import io
import tokenize

import libcst as cst

from codemods.vocabulary import Edit, File

from .layout import line_end


def replace_head(file: File, block: cst.With | cst.If, line: str = "") -> list[Edit]:
    """Edits that put one line, or nothing, in the place of `with ...:` and take the body one level out.

    Lines inside a multi-line string keep their text: their white space is the string's.
    """
    start = file.whole_lines(block)[0]
    indent = file.text[start : file.span(block)[0]]
    colon = _behind_colon(file, block)
    first = line_end(file, colon) + 1
    comment = file.text[colon : first - 1].strip()
    line = f"{comment}{file.newline}{indent}{line}" if comment and line else line or comment
    while not file.text[first : line_end(file, first)].strip():
        first = line_end(file, first) + 1
    head = Edit(start, first, f"{indent}{line}{file.newline}" if line else "")
    return [head, *dedent(file, block, first)]


def dedent(file: File, block: cst.With | cst.If, offset: int) -> list[Edit]:
    """Take the body one level out, from a line of it on."""
    extra = extra_indent(file, block)
    end = _behind_comments(file, block, extra)
    strings = _multi_line_strings(file, block.body)
    edits = []
    while 0 < offset < end:
        following = file.text.find("\n", offset) + 1
        line = file.text[offset : following or len(file.text)]
        inside_string = any(left < offset <= right for left, right in strings)
        if not inside_string and line.strip() and not line[:extra].strip():
            edits.append(Edit(offset, offset + extra, ""))
        offset = following
    return edits


def extra_indent(file: File, block: cst.With | cst.If) -> int:
    """How many characters the body is further in than the `with`."""
    statement = block.body.body[0]
    inner = file.span(statement)[0] - file.whole_lines(statement)[0]
    return inner - (file.span(block)[0] - file.whole_lines(block)[0])


def _behind_colon(file: File, block: cst.With | cst.If) -> int:
    """The offset behind the colon of the head; brackets and lambdas in it have colons of their own."""
    start = file.span(block)[0]
    lines = io.StringIO(file.text[start:], newline="").readline
    depth = lambdas = offset = 0
    starts = _line_starts(file.text[start:])
    for token in tokenize.generate_tokens(lines):
        if token.string in {"(", "[", "{"}:
            depth += 1
        elif token.string in {")", "]", "}"}:
            depth -= 1
        elif token.string == "lambda" and not depth:
            lambdas += 1
        elif token.string == ":" and token.type == tokenize.OP and not depth:
            if not lambdas:
                offset = starts[token.end[0] - 1] + token.end[1]
                break
            lambdas -= 1
    return start + offset


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _behind_comments(file: File, block: cst.With | cst.If, extra: int) -> int:
    """The end of the body, with comments that follow its last statement at its own indentation."""
    end = file.span(block.body.body[-1])[1]
    inner = extra + file.span(block)[0] - file.whole_lines(block)[0]
    offset = file.text.find("\n", end) + 1
    while offset:
        line_end = file.text.find("\n", offset)
        line = file.text[offset : line_end if line_end >= 0 else len(file.text)]
        if line.strip() and not (line.lstrip().startswith("#") and len(line) - len(line.lstrip()) >= inner):
            break
        if line.strip():
            end = offset + len(line)
        offset = line_end + 1
    return end


def _multi_line_strings(file: File, node: cst.CSTNode) -> list[tuple[int, int]]:
    if isinstance(node, (cst.SimpleString, cst.FormattedString)):
        start, end = file.span(node)
        return [(start, end)] if "\n" in file.text[start:end] else []
    return [span for child in node.children for span in _multi_line_strings(file, child)]
