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
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from . import probes
from .import_scan import Imported, scanned

REPOSITORY = (".git", ".hg")
ROOT_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "README.md")
FRONT_DOOR = 50
WORTH_PROCESSES = 1_500
INSTALLED = frozenset({"site-packages", "dist-packages"})


def program_files(entries: Sequence[Path]) -> tuple[Path, ...]:
    """The files of a program, as real paths: the entries, then what they import, nearest first.

    Packages on the way count (`a/__init__.py` for `import a.b`). A file that does not parse is kept, as a leaf.
    """
    return tuple(import_graph(entries))


def import_graph(
    entries: Sequence[Path], jobs: int = 1, foreign: Container[Path] = (), is_whole: bool = False
) -> dict[Path, tuple[Path, ...]]:
    """For every file of the program, in the order of `program_files`, which of its files it imports.

    Many entries are read in `jobs` processes; 0 is one a processor. What is `foreign` is as good as a library.
    `is_whole`: the entries are all there is, so that one that does not parse may count with what it seems to import.
    """
    by_folder: dict[Path, tuple[Path, ...]] = {}
    roots: dict[Path, tuple[Path, ...]] = {}
    for entry in map(real, entries):
        if entry.parent not in by_folder:
            by_folder[entry.parent] = roots_of(entry)
        roots[entry] = by_folder[entry.parent]
    graph: dict[Path, tuple[Path, ...]] = dict.fromkeys(roots, ())
    search = _Search()
    imports = _scanned_imports if is_whole else imports_of
    parsed = _parsed(tuple(roots), jobs) if is_whole else {}
    queue = deque(roots)
    while queue:
        path = queue.popleft()
        named = parsed[path] if path in parsed else imports(path)
        graph[path] = tuple(dict.fromkeys(_targets(named, search.within(path, roots[path]))))
        if foreign:
            graph[path] = tuple(target for target in graph[path] if target not in foreign)
        for target in graph[path]:
            if target not in graph:
                graph[target] = ()
                roots[target] = roots[path]  # the script's folder stays first on the search path
                queue.append(target)
    return graph


def connected(graph: Mapping[Path, Sequence[Path]], hits: Iterable[Path]) -> tuple[Path, ...]:
    """The part of a graph that has to do with `hits`: they, what imports them, and what any of those imports.

    What imports a package of more than `FRONT_DOOR` importers is not counted: behind `import torch` nothing is near.
    """
    related = reachable(reachable(hits, _importers(graph)), graph)
    return tuple(path for path in graph if path in related)


def beside(
    graph: Mapping[Path, Sequence[Path]], related: Collection[Path], has_models: Callable[[Path], bool]
) -> tuple[Path, ...]:
    """The programs that share files with those of `related`, and have models themselves: what they hand to such a file
    is not FSDP's.
    """
    importers = _importers(graph)
    users = reachable(related, importers).difference(related)
    if not users:
        return ()
    wrapping = [path for path in reachable(users, graph) if has_models(path)]
    found = reachable(users & reachable(wrapping, importers), graph).difference(related)
    return tuple(path for path in graph if path in found)


def _importers(graph: Mapping[Path, Sequence[Path]]) -> dict[Path, list[Path]]:
    """What imports each file; of a package that all import nothing."""
    importers: dict[Path, list[Path]] = {}
    for path, targets in graph.items():
        for target in targets:
            importers.setdefault(target, []).append(path)
    for path, known in importers.items():
        if path.name == "__init__.py" and len(known) > FRONT_DOOR:
            known.clear()
    return importers


def reachable(starts: Iterable[Path], graph: Mapping[Path, Iterable[Path]]) -> set[Path]:
    """Some files, and all that lies behind them in a graph."""
    seen = set(starts)
    stack = list(seen)
    while stack:
        for target in graph.get(stack.pop(), ()):
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def programs(graph: Mapping[Path, Sequence[Path]]) -> tuple[tuple[Path, ...], ...]:
    """The files of a graph, split where nothing connects them: neither an import nor a package that both lie in."""
    links: dict[Path, set[Path]] = {path: set() for path in graph}
    for path, targets in graph.items():
        near = [path.parent / "__init__.py"] if path.name != "__init__.py" else [path.parent.parent / "__init__.py"]
        for target in (*targets, *near):
            if target in links:
                links[path].add(target)
                links[target].add(path)
    found: list[tuple[Path, ...]] = []
    placed: set[Path] = set()
    for path in graph:
        if path not in placed:
            together = reachable([path], links)
            placed |= together
            found.append(tuple(known for known in graph if known in together))
    return tuple(found)


def resolve_module(importing: Path, module: str | None, level: int, roots: Sequence[Path]) -> Path | None:
    """The project's file that `importing`, a real path, gets for a module; None for a library or nothing.

    `roots` are searched in order for absolute imports (`roots_of` makes them). A namespace package has no file.
    """
    parts = module.split(".") if module else []
    if level:
        folder = importing.parent
        for _ in range(level - 1):
            folder = folder.parent
        return _find(folder, parts)
    if not parts:
        return None
    for position, root in enumerate(roots):
        # A script's own folder comes before every library. A package's is not searched at all when it is imported, and
        # where it is, because scripts in it are started by name, it hides nothing that its other files need.
        in_package = probes.is_file(root / "__init__.py")
        if parts[0] in sys.stdlib_module_names and (position or in_package):
            return None
        if parts[0] == "torch" and in_package:
            continue
        if root.name in INSTALLED and not _same_package(importing, root, parts[0]):
            continue
        found = _find(root, parts)
        if found and not (in_package and found == importing):  # a file of a package is named after a library
            return found
    return None


def roots_of(entry: Path) -> tuple[Path, ...]:
    """Where the absolute imports of a script are looked for, nearest first."""
    folder = real(entry).parent
    top = project_root(entry)
    folders = [folder]
    while folders[-1] != top and folders[-1].parent != folders[-1]:
        folders.append(folders[-1].parent)
    sources = [each / "src" for each in folders if each.name != "src" and probes.is_dir(each / "src")]
    return tuple(dict.fromkeys((*folders, *sources)))


def project_root(entry: Path) -> Path:
    """The root of a file's repository; else the highest folder that looks like a project; else its package's.

    The current folder is one: `python -m`, and scripts that put it on their path, take modules from there.
    """
    folder, home, current = real(entry).parent, Path.home(), Path.cwd()
    marked = None
    for candidate in (folder, *folder.parents):
        if candidate.name in INSTALLED or any(probes.exists(candidate / name) for name in REPOSITORY):
            return candidate
        if candidate == home or candidate.parent == candidate:
            break
        if candidate == current or any(probes.exists(candidate / name) for name in ROOT_MARKERS):
            marked = candidate
    if marked:
        return marked
    while probes.is_file(folder / "__init__.py") and folder.parent != folder:
        folder = folder.parent
    return folder


def imports_of(path: Path) -> tuple[Imported, ...]:
    """What a file imports anywhere in it, in the order of the text; () when it cannot be read or parsed."""
    try:
        return parsed_imports(path.read_bytes())
    except OSError:
        return ()


def _scanned_imports(path: Path) -> tuple[Imported, ...]:
    try:
        return imported_in(path.read_bytes())
    except OSError:
        return ()


def imported_in(data: bytes) -> tuple[Imported, ...]:
    """What is imported in a file that is known to be Python, from its bytes."""
    found = scanned(data)
    return parsed_imports(data) if found is None else found


def parsed_imports(data: bytes) -> tuple[Imported, ...]:
    """The same by `ast`, which knows imports by a name in a string too; () when it cannot parse them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the user's business
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(dict.fromkeys(found for node in _in_order(tree) for found in _imported(node)))


def real(path: Path) -> Path:
    """The one name a file has here: absolute, without symlinks, as Python takes a script's."""
    return Path(os.path.realpath(path))


class _Search:
    """`resolve_module` with a memory, for the time that one graph takes: most files import the same things."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, tuple[Path, ...]], dict[tuple[str | None, int], Path | None]] = {}

    def within(self, path: Path, roots: tuple[Path, ...]) -> Callable[[str | None, int], Path | None]:
        known = self._known.setdefault((path.parent, roots), {})

        def find(module: str | None, level: int) -> Path | None:
            key = (module, level)
            if key not in known:
                known[key] = resolve_module(path, module, level, roots)
            return known[key]

        return find


def _parsed(paths: Sequence[Path], jobs: int) -> dict[Path, tuple[Imported, ...]]:
    """What each file imports, ahead of time and in parallel; nothing for trees that are not worth the processes."""
    if len(paths) < WORTH_PROCESSES or jobs == 1:
        return {}
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs or None) as pool:
        return dict(zip(paths, pool.map(_scanned_imports, paths, chunksize=50), strict=True))


def _targets(imports: Iterable[Imported], find: Callable[[str | None, int], Path | None]) -> Iterator[Path]:
    for found in imports:
        parts = found.module.split(".") if found.module else []
        # `a`, `a.b`, `a.b.c` for `a.b.c`: importing a module runs the packages it lies in.
        modules = [".".join(parts[:length]) or None for length in range(0 if found.level else 1, len(parts) + 1)]
        modules += [".".join((*parts, name)) for name in found.names]
        for module in modules:
            target = find(module, found.level)
            if target:
                yield target


def _find(folder: Path, parts: Sequence[str]) -> Path | None:
    if len(parts) > 1 and not probes.is_dir(folder / parts[0]):
        return None
    base = folder.joinpath(*parts)
    package = base / "__init__.py"
    if probes.is_file(package):
        return probes.real(package)
    if not parts:
        return None
    file = base.parent / (parts[-1] + ".py")
    return probes.real(file) if probes.is_file(file) else None


def _same_package(importing: Path, root: Path, package: str) -> bool:
    """Whether both lie in one installed package: the rest of site-packages is not the user's program."""
    return importing.is_relative_to(root) and importing.relative_to(root).parts[0] == package


def _in_order(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes, in the order of the text."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _imported(node: ast.AST) -> Iterable[Imported]:
    if isinstance(node, ast.Import):
        return [Imported(alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = tuple(alias.name for alias in node.names if alias.name != "*")
        return [Imported(node.module, node.level, names)]
    return _called(node) if isinstance(node, ast.Call) else ()


def _called(node: ast.Call) -> Iterable[Imported]:
    """`importlib.import_module("a.b")`, when the name is written out."""
    if ast.unparse(node.func) not in ("importlib.import_module", "import_module", "__import__") or not node.args:
        return ()
    first = node.args[0]
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return ()
    module = first.value.lstrip(".")
    return [Imported(module or None, len(first.value) - len(module))]


def resolver() -> Callable[[Path, str | None, int], Path | None]:
    """Module names to files, looked up from the importing file's own folder up to the project's root.

    The importing files are given as real paths.
    """
    folders: dict[Path, tuple[Path, ...]] = {}
    found: dict[tuple[Path, str | None, int], Path | None] = {}

    def resolve(importing: Path, module: str | None, level: int) -> Path | None:
        folder = importing.parent
        if folder not in folders:
            folders[folder] = roots_of(importing)
        key = (folder, module, level)
        if key not in found:
            found[key] = resolve_module(importing, module, level, folders[folder])
        return found[key]

    return resolve
