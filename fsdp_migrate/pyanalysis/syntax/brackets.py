"""The parentheses of a text: `ast` does not tell which expressions stand in them."""

from __future__ import annotations

import re

from .unknown import Unknown

_GAP = re.compile(r"(?:[ \t\f\r\n]+|\\\r?\n|#[^\n]*)*")
"""What can stand between two tokens inside brackets."""
_QUOTED = r"(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
STRING = re.compile(rf"[A-Za-z]{{0,2}}{_QUOTED}", re.DOTALL)
_TOKEN = re.compile(rf"#[^\n]*|[()]|{_QUOTED}", re.DOTALL)


class Brackets:
    """The pairs of parentheses of one text. Raises `Unknown` when they do not match."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.closing: dict[int, int] = {}
        """Where the parenthesis closes that opens here."""
        self.opening: dict[int, int] = {}
        self.around: dict[tuple[int, int], int] = {}
        """Of what stands directly in a pair, without the gaps around it: where the pair opens."""
        self.inside: dict[int, tuple[int, int]] = {}
        """The other way round."""
        stack: list[int] = []
        comments: dict[int, int] = {}
        for token in _TOKEN.finditer(text):
            at = token.start()
            character = text[at]
            if character == "(":
                stack.append(at)
            elif character == ")":
                if not stack:
                    raise Unknown
                self._pair(stack.pop(), at, comments)
            elif character == "#":
                comments[token.end()] = at
        if stack:
            raise Unknown

    def skip_gap(self, at: int) -> int:
        """The next token inside brackets, from `at` on."""
        found = _GAP.match(self._text, at)
        return found.end() if found else at

    def _pair(self, opening: int, closing: int, comments: dict[int, int]) -> None:
        text = self._text
        self.closing[opening] = closing
        self.opening[closing] = opening
        start = opening + 1
        if text[start] in " \t\f\r\n\\#":
            start = self.skip_gap(start)
        end = closing
        while end > start:
            if end in comments:
                end = comments[end]
            elif text[end - 1] in " \t\f\r\n" or (text[end - 1] == "\\" and text[end] in "\r\n"):
                end -= 1
            else:
                break
        self.around[start, end] = opening
        self.inside[opening] = (start, end)
