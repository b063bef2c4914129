"""From which folder each file's program finds its modules: what `sys.path` must hold for the imports to work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .imports import Imported, imports_of

BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


class SearchPath:
    """Answers from the import statements of the program's files; `graph` tells which of them each file imports."""

    def __init__(self, graph: Mapping[Path, Sequence[Path]]) -> None:
        self._graph = graph
        self._importers: dict[Path, list[Path]] = {}
        for path, targets in graph.items():
            for target in targets:
                self._importers.setdefault(target, []).append(path)
        self._folders: dict[Path, Path] = {}
        self._statements: dict[Path, tuple[Imported, ...]] = {}

    def folder(self, path: Path) -> Path:
        """The folder from which a file is imported; of a script, that from which it imports."""
        if path not in self._folders:
            self._folders[path] = path.parent  # for files that import each other
            self._folders[path] = self._folder(path)
        return self._folders[path]

    def imported_from(self, folder: Path) -> set[Path]:
        """The other folders whose modules are imported by those that are found from `folder`."""
        return {
            found
            for path, targets in self._graph.items()
            if self.folder(path) == folder
            for target in targets
            if (found := self.folder(target)) != folder
        }

    def is_imported_from_elsewhere(self, folder: Path) -> bool:
        """Whether modules that lie in a folder are imported by scripts that start in another."""
        return any(folder in self.imported_from(other) for other in {self.folder(path) for path in self._graph})

    def imports(self, path: Path, package: Path) -> bool:
        """Whether a file imports a package by its name."""
        names = (found.module or "" for found in self._of(path) if not found.level)
        return any(name.split(".")[0] == package.name for name in names)

    def _folder(self, path: Path) -> Path:
        for importer in self._importers.get(path, ()):
            found = self._between(importer, path)
            if found is not None:
                return found
        for importer in self._importers.get(path, ()):
            if any(found.level for found in self._of(importer)) and path.is_relative_to(self.folder(importer)):
                return self.folder(importer)
        package = root_package(path.parent)
        if package is None:
            return path.parent
        # A script inside a package can be run from there, or as a module of it: its own imports tell.
        own = [target for target in self._graph.get(path, ()) if target.is_relative_to(package)]
        found = next((root for target in own if (root := self._between(path, target))), None)
        relative = any(statement.level for statement in self._of(path))
        is_named = any(self._importers.get(each) for each in self._graph if each.is_relative_to(package))
        return found or (package.parent if relative or is_named else path.parent)

    def _between(self, importer: Path, target: Path) -> Path | None:
        """The folder in which `importer` finds `target` by an absolute name."""
        stem = target.parent if target.name == "__init__.py" else target.with_suffix("")
        for found in self._of(importer):
            if found.level or not found.module:
                continue
            dotted = tuple(found.module.split("."))
            # `import config.model` runs the package `config` too.
            packages = [dotted[:length] for length in range(1, len(dotted))] if target.name == "__init__.py" else []
            for parts in (dotted, *packages, *((*dotted, name) for name in found.names)):
                if stem.parts[-len(parts) :] == parts:
                    return Path(*stem.parts[: -len(parts)])
        return None

    def _of(self, path: Path) -> tuple[Imported, ...]:
        if path not in self._statements:
            self._statements[path] = imports_of(path)
        return self._statements[path]


def is_installed(folder: Path) -> bool:
    """Whether the packages in a folder are found wherever a program starts."""
    return any((folder / name).is_file() for name in BUILD_FILES)


def root_package(folder: Path) -> Path | None:
    """The outermost package that a folder lies in: one whose name could be imported."""
    found = None
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        found, folder = folder, folder.parent
    return found
