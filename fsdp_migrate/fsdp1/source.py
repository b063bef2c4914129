"""One parsed file as the rules see it: its text, and where its nodes stand."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

from codemods import template

from ..pyanalysis.tree import Tree


class ParsedSource:
    """Implements `codemods.api.Source`, most of it as the tree does."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.path, self.text, self.newline, self.top = tree.path, tree.text, tree.newline, tree.module
        self.indent = tree.indent
        self.span, self.code, self.position = tree.span, tree.code, tree.position
        self.ancestors, self.nodes, self.inside = tree.ancestors, tree.nodes, tree.inside

    @property
    def width(self) -> int:
        return self.tree.width

    def quote(self, node: cst.CSTNode) -> str:
        hole = template.quote(self.path, self.tree.span(node))
        return f"({hole})" if isinstance(node, cst.BaseExpression) and self._leans_on_brackets(node) else hole

    def _leans_on_brackets(self, node: cst.BaseExpression) -> bool:
        """Whether an expression goes over several lines only because of brackets around it, which it leaves here."""
        text = self.code(node)
        if "\n" not in text:
            return False
        try:
            ast.parse(text, mode="eval")
        except SyntaxError:
            return True
        return False

    def quote_text(self, start: int, end: int) -> str:
        return template.quote(self.path, (start, end)) if start < end else ""

    def quote_lines(self, start: int, end: int) -> str:
        return template.quote(self.path, (start, end), is_lines=True) if start < end else ""

    def plain(self, template_text: str) -> str:
        return template.plain(template_text, self.text)

    def whole_lines(self, node: cst.CSTNode) -> tuple[int, int]:
        start, end = self.tree.span(node)
        return self.tree.line_start(start), self.tree.line_end(max(start, end - 1))

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self.tree.parents.get(node)

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        return self.tree.scope_of[node].node

    def calls(self, scope: cst.CSTNode) -> Sequence[cst.Call]:
        calls = (node for node in self.tree.inside(scope) if isinstance(node, cst.Call))
        return [call for call in calls if self.scope(call) is scope]
