"""One parsed file: its LibCST tree, and where each node stands in the text.

One parse, one position pass and one traversal a file; everything else in `analysis/` reads this index.
Positions are offsets in characters into the text as it was read, because edits are made on the text:
what no edit touches stays byte for byte as the user wrote it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper

from .scopes import Scope, bind

N = TypeVar("N", bound=cst.CSTNode)

_UNINTERESTING = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Newline, cst.Comment)


class Tree:
    """A parsed file. Raises `libcst.ParserSyntaxError` when the text is not Python."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.module = wrapper.module
        self._byte_spans = cast(Mapping[cst.CSTNode, CodeSpan], wrapper.resolve(ByteSpanPositionProvider))
        self._characters = None if text.isascii() else _character_offsets(text)
        self._line_starts = [0] + [i + 1 for i, character in enumerate(text) if character == "\n"]
        index = _Index(self.module)
        self.module.visit(index)
        self.parents: Mapping[cst.CSTNode, cst.CSTNode] = index.parents
        self.scope_of: Mapping[cst.CSTNode, Scope] = index.scope_of
        self.scope = index.top
        self._by_type = index.by_type
        self.newline = self.module.default_newline

    def nodes(self, kind: type[N]) -> list[N]:
        """All nodes of exactly this type, in the order of the text."""
        return cast("list[N]", self._by_type.get(kind, []))

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """`[start, end)` of the node in characters, without the white space around it."""
        span = self._byte_spans[node]
        start, end = span.start, span.start + span.length
        if self._characters is None:
            return start, end
        return self._characters[start], self._characters[end]

    def code(self, node: cst.CSTNode) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def position(self, node: cst.CSTNode) -> tuple[int, int]:
        """1-based line and column of the node's first character."""
        start = self.span(node)[0]
        line = bisect_right(self._line_starts, start)
        return line, start - self._line_starts[line - 1] + 1

    def line_start(self, offset: int) -> int:
        """Offset of the first character of the line that holds `offset`."""
        return self._line_starts[bisect_right(self._line_starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Offset just behind the newline of the line that holds `offset`."""
        following = bisect_right(self._line_starts, offset)
        return self._line_starts[following] if following < len(self._line_starts) else len(self.text)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The node's parent, its parent, and so on up to the module."""
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    def contains(self, outer: cst.CSTNode, inner: cst.CSTNode) -> bool:
        return outer is inner or any(node is outer for node in self.ancestors(inner))


class _Index(cst.CSTVisitor):
    """The one traversal: parents, nodes by type, scopes and what they bind."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__()
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.scope_of: dict[cst.CSTNode, Scope] = {}
        self.by_type: dict[type[cst.CSTNode], list[cst.CSTNode]] = defaultdict(list)
        self.top = Scope(module, None)
        self._scopes = [self.top]
        self._path: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _UNINTERESTING):
            return False
        if self._path:
            self.parents[node] = self._path[-1]
        scope = self._scopes[-1]
        self.scope_of[node] = scope
        self.by_type[type(node)].append(node)
        bind(scope, node)
        if isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            self._scopes.append(Scope(node, scope))
        self._path.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, _UNINTERESTING):
            return
        self._path.pop()
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            self._scopes.pop()


def _character_offsets(text: str) -> list[int]:
    """For each offset in the UTF-8 bytes of `text` (and one behind the end), the offset in characters."""
    offsets: list[int] = []
    for index, character in enumerate(text):
        offsets.extend([index] * len(character.encode()))
    return [*offsets, len(text)]
