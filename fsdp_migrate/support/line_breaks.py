"""Lines that are too long, broken as black and ruff break them.

Each is a line of code by itself, a whole statement or whole parts of one in brackets: the lines around it stay.
"""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_ASSIGNS = frozenset({"=", "+=", "-=", "*=", "/=", "//=", "%=", "**=", "|=", "&=", "^=", "@=", ">>=", "<<="})
_TURNS, _COMMAS, _CHOICE, _LOGIC, _TEXTS, _COMPARES = 20, 18, 16, 14, 12, 10
"""What is broken first: comprehensions, then at commas, `if` and `else`, `and` and `or`, between literals."""
_CALCULATES = {"|": 9, "^": 8, "&": 7, "<<": 6, ">>": 6, "+": 5, "-": 5, "*": 4, "/": 4, "//": 4, "%": 4, "@": 4}
_CALCULATES["**"] = 2
_LAYOUT = frozenset({tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER})


_NARROW = 20
"""With less room than this no text is wrapped."""


def broken(text: str, width: int, indent: str, rows: Collection[int]) -> str:
    """A program's text, with those of the rows (counted from 0) broken that are too long and can be."""
    lines = text.split("\n")
    too_long = [row for row in rows if len(lines[row].rstrip("\r")) > width]
    inside = _whole_rows(text) if too_long else {}
    for row in too_long:
        line = lines[row].rstrip("\r")
        if row in inside:
            end = lines[row][len(line) :] + "\n"
            lines[row] = end.join(_of_line(line, width, indent, inside[row])) + end[:-1]
    return "\n".join(lines)


def _whole_rows(text: str) -> dict[int, bool]:
    """The rows whose brackets and literals end in them; whether they stand in brackets themselves."""
    depths: dict[int, list[int]] = {}
    spread: set[int] = set()
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            row, end = token.start[0] - 1, token.end[0] - 1
            if end > row and token.type not in _LAYOUT:
                spread.update(range(row, end + 1))
            seen = depths.setdefault(row, [depth])
            if token.type == tokenize.OP:
                depth += (token.string in _OPEN) - (token.string in _CLOSE)
            seen.append(depth)
    except (tokenize.TokenError, SyntaxError):
        return {}
    continued = {row for row, line in enumerate(text.split("\n")) if line.rstrip("\r").endswith("\\")}
    spread |= continued | {row + 1 for row in continued}
    return {row: seen[0] > 0 for row, seen in depths.items() if row not in spread and seen[-1] == min(seen) == seen[0]}


def _of_line(line: str, width: int, indent: str, is_inside: bool) -> list[str]:
    margin = line[: len(line) - len(line.lstrip())]
    tokens = _tokens(line.lstrip())
    code, comment = line.rstrip(), ""
    if tokens and tokens[-1].text.startswith("#"):
        comment = tokens.pop().text
        code = code[: len(code) - len(comment)].rstrip()
        if is_inside and tokens:
            return [line]
    if comment.startswith("# type:") and tokens:
        first, *rest = _broken(code.lstrip(), _Room(margin, width, indent), is_inside)
        return [f"{first}  {comment}", *rest]  # a line of its own says nothing to a type checker
    above = [f"{margin}{each}" for each in _comment(comment, width - len(margin))]
    return [*above, *(_broken(code.lstrip(), _Room(margin, width, indent), is_inside) if tokens else ())]


def _comment(comment: str, width: int) -> list[str]:
    if width < _NARROW:
        return [comment]
    return wrap(
        comment.lstrip("# "),
        width,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int
    depth: int
    """Of brackets, which have the depth of what is around them."""
    is_operand: bool


@dataclass(frozen=True, slots=True)
class _Room:
    """Where a piece of code stands, and how far it may go."""

    margin: str
    width: int
    indent: str

    def fits(self, code: str) -> bool:
        return len(self.margin) + len(code) <= self.width

    @property
    def inner(self) -> _Room:
        return _Room(self.margin + self.indent, self.width, self.indent)


def _tokens(code: str) -> list[_Token]:
    """The tokens of one line; what belongs to an f-string, a lambda or the target of a turn is one level further in."""
    found: list[_Token] = []
    depth = 0
    waits: list[tuple[str, int]] = []
    """The words that end a lambda's parameters or a turn's target, with the depth that they are at."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        text, kind = token.string, tokenize.tok_name[token.type]
        if token.type in _LAYOUT:
            continue
        if kind == "FSTRING_END" or (token.type == tokenize.OP and text in _CLOSE):
            depth -= 1
        is_operand = token.type in (tokenize.NUMBER, tokenize.STRING) or kind == "FSTRING_END" or text in _CLOSE
        is_operand |= token.type == tokenize.NAME and not (keyword.iskeyword(text) and text not in _VALUES)
        found.append(_Token(text, token.start[1], token.end[1], depth, is_operand))
        if kind == "FSTRING_START" or (token.type == tokenize.OP and text in _OPEN):
            depth += 1
        elif token.type == tokenize.NAME and text in _WAIT_FOR:
            waits.append((_WAIT_FOR[text], depth))
            depth += 1
        elif waits and waits[-1] == (text, depth - 1):
            waits.pop()
            depth -= 1
    return found


_VALUES = frozenset({"True", "False", "None"})
_WAIT_FOR = {"for": "in", "lambda": ":"}


def _delimiters(tokens: Sequence[_Token]) -> dict[int, int]:
    """Where code can be broken outside of its brackets, by index: before a word or an operator, or behind a comma."""
    found: dict[int, int] = {}
    choices: list[int] = []
    for index, (before, token) in enumerate(pairwise(tokens), 1):
        if token.depth:
            continue
        if token.text in ("for", "async"):
            found[index] = _TURNS
        elif token.text == "if":
            choices.append(index)
        elif token.text == "else" and choices:
            found[choices.pop()] = found[index] = _CHOICE
        elif token.text == "," and index < len(tokens) - 1:
            found[index] = _COMMAS
        elif token.text in ("and", "or"):
            found[index] = _LOGIC
        elif token.text in _COMPARING and before.text not in ("not", "is") and before.is_operand:
            found[index] = _COMPARES
        elif token.text in _CALCULATES and before.is_operand:
            found[index] = _CALCULATES[token.text]
        elif before.is_operand and token.text[-1:] in "'\"" and before.text[-1:] in "'\"":
            found[index] = _TEXTS
    conditions = {index: _TURNS for index in choices if _TURNS in found.values()}
    return {index: rank for index, rank in {**found, **conditions}.items() if tokens[index - 1].text != "async"}


_COMPARING = frozenset({"<", ">", "==", "!=", "<=", ">=", "in", "not", "is"})


def _broken(code: str, room: _Room, is_inside: bool) -> list[str]:
    """The lines of one, as short as they have to be and can be."""
    if room.fits(code):
        return [room.margin + code]
    tokens = _tokens(code)
    if tokens[0].text in ("def", "class", "async", "@"):
        return _in_brackets(code, _pairs(tokens)[:1], room) or [room.margin + code]
    delimiters = _delimiters(tokens)
    if not is_inside and (_is_suite(tokens) or ";" in {token.text for token in tokens}):
        return [room.margin + code]
    if is_inside:
        start = _value_of_argument(tokens)
        if start and delimiters and max(delimiters.values()) == _CHOICE:
            return _parenthesized(code, tokens, start, len(tokens) - (tokens[-1].text == ","), room)
        if delimiters:
            return [line for piece in _split(code, tokens, delimiters) for line in _broken(piece, room, True)]
        literal = _LITERAL.fullmatch(code)
        if literal is not None:
            return [room.margin + piece for piece in _words(literal, room.width - len(room.margin))]
        return _in_brackets(code, _pairs(tokens), room) or [room.margin + code]
    start, end = _value_of_statement(tokens)
    pairs = [pair for pair in _pairs(tokens) if start <= pair[0] < end]
    ranks = [rank for index, rank in delimiters.items() if start < index < end]
    if start and ranks and not _reads_without(code, tokens, pairs, ranks, (start, end), room):
        return _parenthesized(code, tokens, start, end, room)
    if start and not pairs and room.inner.fits(code[tokens[start].start : tokens[end - 1].end]):
        return _parenthesized(code, tokens, start, end, room)
    return _in_brackets(code, pairs or _pairs(tokens), room) or [room.margin + code]


def _reads_without(
    code: str,
    tokens: Sequence[_Token],
    pairs: Sequence[tuple[int, int]],
    ranks: Sequence[int],
    span: tuple[int, int],
    room: _Room,
) -> bool:
    """Whether a value of two parts is better broken in brackets that end it, or begin it, than put in some."""
    if ranks.count(max(ranks)) > 1 or max(ranks) == _COMMAS or not pairs:
        return False
    (first, close), (last, end) = pairs[0], pairs[-1]
    begins = first == span[0] and len(pairs) == 1 and room.fits(code[tokens[close].start :])
    return begins or (end == span[1] - 1 and room.fits(code[: tokens[last].end]))


_FIELD = r"{[^{}\s\"']*}"
_LITERAL = re.compile(
    rf"""(?P<literal>"[^"\\]+"|'[^'\\]+'|f"(?:[^"\\{{}}]|{_FIELD})+"|f'(?:[^'\\{{}}]|{_FIELD})+')(?P<comma>,?)"""
)
"""Words without escapes, and plain values between them."""


def _words(found: re.Match[str], width: int) -> list[str]:
    """A long literal as several, cut between words."""
    start, quote = found["literal"].partition(found["literal"][-1])[:2]
    lines = [""]
    for word in re.findall(r"\S+\s*|\s+", found["literal"][len(start) + 1 : -1]):
        if lines[-1] and len(start) + len(lines[-1]) + len(word) + 3 > width:
            lines.append("")
        lines[-1] += word
    literals = [f"{start}{quote}{line}{quote}" for line in lines]
    return [*literals[:-1], literals[-1] + found["comma"]]


def _value_of_argument(tokens: Sequence[_Token]) -> int:
    """The index behind the `=` of an argument; 0 where there is none."""
    return 2 if len(tokens) > 2 and tokens[1].text == "=" else 0


def _is_suite(tokens: Sequence[_Token]) -> bool:
    """Whether a block stands behind its colon: `if done: return model`."""
    return tokens[0].text in _COMPOUND and tokens[-1].text != ":"


_COMPOUND = frozenset({"if", "elif", "else", "while", "for", "with", "try", "except", "finally"})


def _value_of_statement(tokens: Sequence[_Token]) -> tuple[int, int]:
    """Which tokens of a statement can be put in brackets; from 0 where none can."""
    if tokens[0].text in ("return", "if", "elif", "while", "yield"):
        start = 1 + (tokens[1].text == "from")
    elif tokens[0].text == "for":
        start = next(index for index, token in enumerate(tokens) if (token.text, token.depth) == ("in", 1)) + 1
    else:
        start = max((i for i, token in enumerate(tokens) if token.text in _ASSIGNS and not token.depth), default=-1) + 1
    return start, len(tokens) - (tokens[-1].text == ":")


def _split(code: str, tokens: Sequence[_Token], delimiters: dict[int, int]) -> Iterator[str]:
    """The pieces of code between the delimiters that are broken at first."""
    rank = max(delimiters.values())
    cuts = [
        tokens[index].end if rank == _COMMAS else tokens[index].start
        for index in sorted(delimiters)
        if delimiters[index] == rank
    ]
    pieces = [code[start:end].strip() for start, end in pairwise([0, *cuts, len(code)])]
    if rank == _COMMAS and not pieces[-1].endswith(","):
        pieces[-1] += ","
    yield from pieces


def _parenthesized(code: str, tokens: Sequence[_Token], start: int, end: int, room: _Room) -> list[str]:
    head, tail = code[: tokens[start].start], code[tokens[end - 1].end :]
    body = _body(code[len(head) : len(code) - len(tail)], room.inner, True)
    return [f"{room.margin}{head}(", *body, f"{room.margin}){tail}"]


def _body(code: str, room: _Room, is_display: bool) -> Iterator[str]:
    """What stands in brackets of its own lines: of a tuple, a list or a dict each element on its own."""
    tokens = _tokens(code)
    delimiters = _delimiters(tokens)
    is_apart = is_display or tokens[-1].text == ","
    pieces = _split(code, tokens, delimiters) if is_apart and _COMMAS in delimiters.values() else [code]
    for piece in pieces:
        yield from _broken(piece, room, True)


def _pairs(tokens: Sequence[_Token]) -> list[tuple[int, int]]:
    """The outermost brackets that hold something."""
    found, start = [], 0
    for index, token in enumerate(tokens):
        if token.text in _OPEN and not token.depth:
            start = index
        elif token.text in _CLOSE and not token.depth and index > start + 1:
            found.append((start, index))
    return found


def _in_brackets(code: str, pairs: Sequence[tuple[int, int]], room: _Room) -> list[str]:
    """Broken in the last brackets that can be, a subscript only where there are no others; no lines without any."""
    tokens = _tokens(code)
    fitting = [pair for pair in reversed(pairs) if room.fits(code[: tokens[pair[0]].end])] or pairs[:1]
    if not fitting:
        return []
    whole = [(i, j) for i, j in fitting if not _is_subscript(tokens, i) and room.fits(code[tokens[j].start :])]
    start, end = (whole or fitting)[0]
    head, body, tail = code[: tokens[start].end], code[tokens[start].end : tokens[end].start], code[tokens[end].start :]
    if tokens[0].text in ("def", "async") and _COMMAS not in _delimiters(_tokens(body)).values():
        body += "" if body.endswith(",") else ","
    is_display = not start or not tokens[start - 1].is_operand
    return [room.margin + head, *_body(body.strip(), room.inner, is_display), room.margin + tail]


def _is_subscript(tokens: Sequence[_Token], start: int) -> bool:
    return tokens[start].text == "[" and start > 0 and tokens[start - 1].is_operand
