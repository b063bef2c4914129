"""Where nodes stand in their text, as `[start, end)` in characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol, cast

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper

from .annotated import Converter
from .expressions import Expressions, Span


class Places(Protocol):
    """Answers for the nodes of one text."""

    def span(self, node: cst.CSTNode) -> Span:
        """Where a node stands, its own parentheses included, the white space around it not."""

    def bare_span(self, node: cst.CSTNode) -> Span:
        """The same without its own parentheses."""


class Known:
    """The places that `ast` told, and those inside of strings, which LibCST is asked for."""

    def __init__(self, made: Expressions) -> None:
        self._spans = made.spans
        self._bare = made.bare_spans
        self._joined = made.joined

    def span(self, node: cst.CSTNode) -> Span:
        if node not in self._spans:
            self._look_into_strings()
        return self._spans[node]

    def bare_span(self, node: cst.CSTNode) -> Span:
        whole = self.span(node)
        return self._bare.get(node, whole)

    def _look_into_strings(self) -> None:
        for module, start in self._joined.values():
            measured = Measured(module)
            for node in measured.nodes:
                first, last = measured.span(node)
                self._spans.setdefault(node, (first + start, last + start))
                first, last = measured.bare_span(node)
                self._bare.setdefault(node, (first + start, last + start))
        self._joined.clear()


class Measured:
    """The places in a text that LibCST has parsed: found by writing it again, which takes as long as the parse."""

    def __init__(self, module: cst.Module) -> None:
        self._wrapper = _Wrapper(module, unsafe_skip_copy=True)
        text = module.code
        self._characters = None if text.isascii() else _character_offsets(text)

    def convert(self) -> None:
        """Makes the module's annotated assignments ours: from then on LibCST cannot write it."""
        spans = self._bytes
        self._wrapper.module.visit(Converter(lambda new, old: spans.update({new: spans[old]})))

    @property
    def nodes(self) -> Iterable[cst.CSTNode]:
        return self._bytes

    def span(self, node: cst.CSTNode) -> Span:
        start, end = self.bare_span(node)
        if isinstance(node, cst.BaseExpression) and node.lpar:
            start, end = self.bare_span(node.lpar[0])[0], self.bare_span(node.rpar[-1])[1]
        return start, end

    def bare_span(self, node: cst.CSTNode) -> Span:
        span = self._bytes[node]
        start, end = span.start, span.start + span.length
        if self._characters is None:
            return start, end
        return self._characters[start], self._characters[end]

    @cached_property
    def _bytes(self) -> dict[cst.CSTNode, CodeSpan]:
        return dict(cast(Mapping[cst.CSTNode, CodeSpan], self._wrapper.resolve(ByteSpanPositionProvider)))


class _Wrapper(MetadataWrapper):
    """Positions without the traversal that LibCST makes for its other providers, which takes as long again."""

    def visit_batched(self, visitors: Iterable[cst.BatchableCSTVisitor], *_: object) -> cst.CSTNode:
        found: Any = list(visitors)
        return super().visit_batched(found) if found else self.module


def _character_offsets(text: str) -> list[int]:
    """For each offset in the UTF-8 bytes of `text` (and one behind the end), the offset in characters."""
    offsets: list[int] = []
    for index, character in enumerate(text):
        offsets.extend([index] * len(character.encode()))
    return [*offsets, len(text)]
