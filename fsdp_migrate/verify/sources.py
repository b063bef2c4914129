"""The Python files of one program: the script, and what it imports from its own tree.

Not the whole tree: a repository holds many programs, and one of them starting its own processes says nothing of the
others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from fsdp_migrate.project.source import text_or_nothing


def program_files(root: Path, target: str, as_module: bool) -> list[Path]:
    """The target's file first, then what it imports, as far as plain import statements say. Unreadable files count as
    empty; nothing is imported."""
    start = main_file([root], target) if as_module else root / target
    if start is None or not start.is_file():
        return []
    homes = [start.parent, root]
    found, waiting = [start], [start]
    while waiting:
        file = waiting.pop()
        for imported in _imports(file, homes):
            if imported not in found:
                found.append(imported)
                waiting.append(imported)
    return found


def main_file(places: list[Path], name: str) -> Path | None:
    """What `python -m name` runs."""
    return _module_file(places, f"{name}.__main__") or _module_file(places, name)


def mention(files: list[Path], words: tuple[str, ...]) -> bool:
    """Whether any of the files contains any of the words."""
    return any(word in text for text in map(text_or_nothing, files) for word in words)


_SPAWNS = frozenset({"spawn", "start_processes"})


def always_spawns(script: Path) -> bool:
    """Whether a script calls `mp.spawn` itself, under no other condition than that it is the one that is run."""
    tree = _tree(script)
    body = [] if tree is None else list(tree.body)
    for statement in tuple(body):
        if isinstance(statement, ast.If) and "__name__" in _names(statement.test):
            body += statement.body
    calls = [s.value for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in _SPAWNS for call in calls)


def _names(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def reads_rank(files: list[Path]) -> bool:
    """Whether a program asks for its rank, as under torchrun: a rank that it sets in `os.environ` is its own."""
    for file in files:
        tree = _tree(file)
        nodes = [] if tree is None else list(ast.walk(tree))
        stores = (node for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
        set_here = {id(node.slice) for node in stores}
        read = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in set_here]
        if any(isinstance(value, str) and value.endswith("RANK") for value in read):
            return True
    return False


def imported(file: Path) -> Iterator[tuple[str, list[str]]]:
    """(module, names from it) of each absolute import of a file."""
    tree = _tree(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, [alias.name for alias in node.names if alias.name != "*"]


def _imports(file: Path, homes: list[Path]) -> Iterator[Path]:
    tree = _tree(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            names, places = [alias.name for alias in node.names], homes
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)]
            places = [file.parents[node.level - 1]] if node.level else homes
        else:
            continue
        for name in filter(None, names):
            imported = _module_file(places, name)
            if imported is not None:
                yield imported


def _module_file(places: list[Path], name: str) -> Path | None:
    path = Path(*name.split("."))
    candidates = [place / form for place in places for form in (path.with_suffix(".py"), path / "__init__.py")]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _tree(file: Path) -> ast.Module | None:
    try:
        return ast.parse(text_or_nothing(file))
    except (SyntaxError, ValueError):
        return None
