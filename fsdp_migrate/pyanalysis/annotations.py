"""The classes that an annotation names: `Net`, `"Net"`, `Optional[Net]`, `Net | None`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from .tree import Tree

if TYPE_CHECKING:
    from .symbols import Symbols

UNKNOWN = "?"
"""Stands for a part of an annotation that names no class: `list[Net]`."""

_CHOICES = frozenset({"Optional", "Union"})


def annotated_classes(symbols: Symbols, tree: Tree, parameter: cst.Param) -> list[str]:
    """The dotted names of the classes that a parameter is annotated with, None left out."""
    if parameter.annotation is None:
        return []
    annotation = parameter.annotation.annotation
    named = _named(_parsed(tree.code(annotation)))
    return list(dict.fromkeys(symbols.dotted_at(tree, annotation, name) or name for name in named))


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text})", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _named(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and node.value is None:
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _named(_parsed(node.value))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from (*_named(node.left), *_named(node.right))
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] in _CHOICES:
        given = node.slice
        for part in given.elts if isinstance(given, ast.Tuple) else [given]:
            yield from _named(part)
    elif isinstance(node, (ast.Name, ast.Attribute)):
        yield ast.unparse(node)
    else:
        yield UNKNOWN
