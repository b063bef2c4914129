"""Which files make up a program: its own imports, followed from the scripts that start it.

Only `ast` looks at the files; nothing of the user's is imported. Where Python would search `sys.path`, the
folders searched here are the script's own, those above it up to the project's root, and a `src` folder beside
any of them: whatever folder the program is started from, its own modules are found.
"""

from __future__ import annotations

import ast
import os
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = (".git", ".hg")
ROOT_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class Imported:
    """One module that a file names: `from ..a import b` is `a`, level 2, names `("b",)`."""

    module: str | None
    level: int = 0
    names: tuple[str, ...] = ()


def program_files(entries: Sequence[Path]) -> tuple[Path, ...]:
    """The files of a program, as real paths: the entries, then what they import, nearest first.

    Packages on the way count (`a/__init__.py` for `import a.b`). A file that does not parse is kept, as a leaf.
    """
    return tuple(import_graph(entries))


def import_graph(entries: Sequence[Path]) -> dict[Path, tuple[Path, ...]]:
    """For every file of the program, in the order of `program_files`, which of its files it imports."""
    roots = {real(entry): roots_of(entry) for entry in entries}
    graph: dict[Path, tuple[Path, ...]] = dict.fromkeys(roots, ())
    queue = deque(roots)
    while queue:
        path = queue.popleft()
        graph[path] = tuple(dict.fromkeys(_targets(path, roots[path])))
        for target in graph[path]:
            if target not in graph:
                graph[target] = ()
                roots[target] = roots[path]  # the script's folder stays first on the search path
                queue.append(target)
    return graph


def connected(graph: Mapping[Path, Sequence[Path]], hits: Iterable[Path]) -> tuple[Path, ...]:
    """The part of a graph that has to do with `hits`: they, what imports them, and what any of those imports."""
    importers: dict[Path, list[Path]] = {}
    for path, targets in graph.items():
        for target in targets:
            importers.setdefault(target, []).append(path)
    related = _reachable(_reachable(hits, importers), graph)
    return tuple(path for path in graph if path in related)


def resolve_module(importing: Path, module: str | None, level: int, roots: Sequence[Path]) -> Path | None:
    """The project's file that `importing` gets for a module; None for a library, the standard library or nothing.

    `roots` are searched in order for absolute imports (`roots_of` makes them). A namespace package has no file.
    """
    parts = module.split(".") if module else []
    if level:
        folder = Path(real(importing)).parent
        for _ in range(level - 1):
            folder = folder.parent
        return _find(folder, parts)
    if not parts:
        return None
    for position, root in enumerate(roots):
        if position and parts[0] in sys.stdlib_module_names:
            return None  # only a file beside the script comes before the standard library
        if root.name in INSTALLED and not _same_package(importing, root, parts[0]):
            continue
        found = _find(root, parts)
        if found:
            return found
    return None


def roots_of(entry: Path) -> tuple[Path, ...]:
    """Where the absolute imports of a script are looked for, nearest first."""
    folder = real(entry).parent
    top = project_root(entry)
    folders = [folder]
    while folders[-1] != top and folders[-1].parent != folders[-1]:
        folders.append(folders[-1].parent)
    sources = [each / "src" for each in folders if each.name != "src" and (each / "src").is_dir()]
    return tuple(dict.fromkeys((*folders, *sources)))


def project_root(entry: Path) -> Path:
    """The root of a file's repository; else the highest folder that looks like a project; else its package's."""
    folder = real(entry).parent
    marked = None
    for candidate in (folder, *folder.parents):
        if candidate.name in INSTALLED or any((candidate / name).exists() for name in REPOSITORY):
            return candidate
        if candidate == Path.home() or candidate.parent == candidate:
            break
        if any((candidate / name).exists() for name in ROOT_MARKERS):
            marked = candidate
    if marked:
        return marked
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def modules_of(path: Path, roots: Sequence[Path] | None = None) -> tuple[str, ...]:
    """The dotted names a file can be imported by, shortest first: `utils`, `pkg.utils`."""
    target = real(path)
    names = []
    for root in roots_of(path) if roots is None else roots:
        if not target.is_relative_to(root):
            continue
        parts = target.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and all(part.isidentifier() for part in parts):
            names.append(".".join(parts))
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (name.count("."), name)))


def imports_of(path: Path) -> tuple[Imported, ...]:
    """What a file imports anywhere in it, in the order of the text; () when it cannot be read or parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the user's business
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(dict.fromkeys(found for node in _import_nodes(tree) for found in _imported(node)))


def real(path: Path) -> Path:
    """The one name a file has here: absolute, without symlinks, as Python takes a script's."""
    return Path(os.path.realpath(path))


def _reachable(starts: Iterable[Path], graph: Mapping[Path, Sequence[Path]]) -> set[Path]:
    seen = set(starts)
    stack = list(seen)
    while stack:
        for target in graph.get(stack.pop(), ()):
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def _targets(path: Path, roots: Sequence[Path]) -> Iterator[Path]:
    for found in imports_of(path):
        yield from _packages(path, found.module, found.level, roots)
        for name in found.names:
            submodule = ".".join(filter(None, (found.module, name)))
            target = resolve_module(path, submodule, found.level, roots)
            if target:
                yield target


def _packages(path: Path, module: str | None, level: int, roots: Sequence[Path]) -> Iterator[Path]:
    """`a`, `a.b`, `a.b.c` for `a.b.c`: importing a module runs the packages it lies in."""
    parts = module.split(".") if module else []
    for length in range(0 if level else 1, len(parts) + 1):
        target = resolve_module(path, ".".join(parts[:length]) or None, level, roots)
        if target:
            yield target


def _find(folder: Path, parts: Sequence[str]) -> Path | None:
    base = folder.joinpath(*parts)
    package = base / "__init__.py"
    if package.is_file():
        return real(package)
    if not parts:
        return None
    file = base.parent / (parts[-1] + ".py")
    return real(file) if file.is_file() else None


def _same_package(importing: Path, root: Path, package: str) -> bool:
    """Whether both lie in one installed package: the rest of site-packages is not the user's program."""
    path = real(importing)
    return path.is_relative_to(root) and path.relative_to(root).parts[0] == package


def _import_nodes(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom | ast.Call]:
    """The statements and calls that can import, depth first: `ast.walk` would lose the order of the text."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Call)):
            yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _imported(node: ast.Import | ast.ImportFrom | ast.Call) -> Iterable[Imported]:
    if isinstance(node, ast.Import):
        return [Imported(alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = tuple(alias.name for alias in node.names if alias.name != "*")
        return [Imported(node.module, node.level, names)]
    return _called(node)


def _called(node: ast.Call) -> Iterable[Imported]:
    """`importlib.import_module("a.b")`, when the name is written out."""
    if ast.unparse(node.func) not in ("importlib.import_module", "import_module", "__import__") or not node.args:
        return ()
    first = node.args[0]
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return ()
    module = first.value.lstrip(".")
    return [Imported(module or None, len(first.value) - len(module))]
