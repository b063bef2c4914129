"""Modules that run time loads by their names: `import_module(args.task)`, hydra's `_target_`.

A file that no other imports, and that nobody starts, is there to be loaded so. Where it deals with what a wrapped model
is asked for, it is part of each program that loads modules by name.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from .source import UnreadableError, read_source

WORDS = ("import_module", "__import__", "instantiate", "locate")
"""What a file is looked at for."""
_ALWAYS = frozenset({"import_module", "__import__"})
_LOADERS = ("hydra", "pydoc")
_DEALS = re.compile(r"\b(?:state_dict|clip_grad_norm_|no_sync|FullyShardedDataParallel)\b")
_NEVER_LOADED = re.compile(r"(?:test_.*|.*_test|conftest|setup)\.py$")


def loading_calls(text: str) -> Iterator[ast.Call]:
    """The calls that load a module by a name made at run time."""
    if not any(word in text for word in WORDS):
        return
    tree = parsed(text)
    nodes = list(ast.walk(tree)) if tree is not None else []
    loads = any(imports_of_library(node, _LOADERS) for node in nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _ALWAYS or (loads and name in WORDS):
                yield node


def links(graph: Iterable[Path], known: Mapping[Path, Sequence[Path]]) -> dict[Path, tuple[Path, ...]]:
    """What the files of a program load besides what they import, among all files that are `known`."""
    loading = [path for path in graph if next(loading_calls(_text(path)), None) is not None]
    imported = {target for targets in known.values() for target in targets} if loading else set()
    modules = tuple(path for path in known if path not in imported and is_loadable(path)) if loading else ()
    return {path: tuple(module for module in modules if module != path) for path in loading}


def is_loadable(path: Path) -> bool:
    """Whether a file deals with what a wrapped model is asked for, and is no script."""
    text = "" if _NEVER_LOADED.match(path.name) else _text(path)
    tree = parsed(text) if _DEALS.search(text) else None
    return tree is not None and not any(map(_starts, tree.body))


def _starts(statement: ast.stmt) -> bool:
    """`main()`, and `if __name__ == "__main__":`."""
    if isinstance(statement, ast.If):
        return any(isinstance(node, ast.Constant) and node.value == "__main__" for node in ast.walk(statement.test))
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name)


def _text(path: Path) -> str:
    try:
        return read_source(path).text
    except UnreadableError:
        return ""


def imports_of_library(node: ast.AST, modules: Sequence[str]) -> bool:
    """Whether a statement imports one of these, or from it."""
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in modules for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in modules


def parsed(text: str) -> ast.Module | None:
    """None where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
