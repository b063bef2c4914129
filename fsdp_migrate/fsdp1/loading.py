"""Which files run together, and which can hand values to each other: by their imports, and by names made up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

import libcst as cst

from codemods.reading.code.scripts import is_test

from ..pyanalysis.closure import Closure
from ..pyanalysis.program import Program
from ..pyanalysis.tree import Tree
from .on_purpose import OnPurpose

_IMPORTS_BY_NAME = ("import_module", "__import__", "instantiate", "locate")
_PARSES = ("parse_args", "parse_known_args")
_READ_ARGUMENTS = ("ArgumentParser", "HfArgumentParser", *_PARSES, "fire", "hydra", "click")


class Loading:
    """What a run of the program loads: nothing of the others comes to a file of it."""

    def __init__(
        self,
        program: Program,
        groups: Iterable[Collection[Path]],
        graph: Mapping[Path, Sequence[Path]] | None,
        is_script: Callable[[Tree], bool],
    ) -> None:
        """`groups` are the files that belong together, `graph` what each file imports, where that is known."""
        self._program = program
        self._is_script = is_script
        self._graph = graph
        self._imported = frozenset(chain.from_iterable(graph.values())) if graph is not None else None
        self._groups = {path: group for group in map(frozenset, groups) for path in group}
        self._loads: dict[Tree, Collection[Path] | None] = {}
        self._running: dict[Path, Collection[Path]] = {}
        self._by_name: dict[frozenset[Path] | None, Collection[Path]] = {}
        self._loaded = Closure[Path](lambda path: (graph or {}).get(path, ()))

    def together(self, path: Path) -> Collection[Path]:
        """The files that some import connects with this one: all, where modules are imported by names made up."""
        group = self._groups.get(path)
        return self._program.texts if group is None or self._imports_by_name(group) else group

    def _imports_by_name(self, group: frozenset[Path] | None) -> bool:
        """Whether a file of a group, or any, imports modules by names made up; to say so in a text is not to do it."""
        return bool(self._importing_by_name(group))

    def _importing_by_name(self, group: frozenset[Path] | None) -> Collection[Path]:
        if group not in self._by_name:
            trees = self._program.mentioning(*_IMPORTS_BY_NAME, within=group)
            self._by_name[group] = [tree.path for tree in trees if _makes_names_up(tree)]
        return self._by_name[group]

    def running_with(self, path: Path) -> Collection[Path]:
        """The files that some script loads together with this one."""
        if path not in self._running:  # asked of each name that can hold a model
            self._running[path] = self._find_running_with(path)
        return self._running[path]

    def _find_running_with(self, path: Path) -> Collection[Path]:
        together = self._groups.get(path, frozenset())
        if self._graph is None or not together or self._imports_by_name(together):
            if path in self._plain_entries:
                return self._loaded.of(path)
            apart = {each for each in self._plain_entries if path not in self._loaded.of(each)}
            apart |= self._entries - {path} if path in self._entries else set()
            return [each for each in self.together(path) if each not in apart]
        users = self._loading.of(path) & together
        scripts = [each for each in users if not self.is_imported(each)] or users
        return frozenset[Path]().union(*map(self._loaded.of, scripts))

    def handing_to(self, path: Path) -> Collection[Path]:
        """The files that something can come from, over others or not, to this one."""
        together = self.running_with(path)
        if self._graph is None or not self._groups.get(path):
            return together
        around = self._on_purpose.around(path)
        return together if self._imports_by_name(around) else around.intersection(together)

    @cached_property
    def _loading(self) -> Closure[Path]:
        """The files that import a file, directly or not."""
        importing = defaultdict(list)
        for path, targets in (self._graph or {}).items():
            for target in targets:
                importing[target].append(path)
        return Closure(lambda path: importing.get(path, ()))

    @cached_property
    def _on_purpose(self) -> OnPurpose:
        return OnPurpose(self._program, self._graph or {})

    def is_imported(self, path: Path) -> bool:
        """Whether another file can import this one."""
        if self._imported is None or path in self._imported:
            return True
        return self._imports_by_name(self._groups.get(path)) and path not in self._entries

    @cached_property
    def _entries(self) -> frozenset[Path]:
        """The scripts that nothing loads by a name made up: they read the command line, or lie in no package.

        A module of a package may have no more than a test of itself there.
        """
        if self._imported is None:
            return frozenset()
        reading = {tree.path for tree in self._program.mentioning(*_READ_ARGUMENTS)}
        return frozenset(
            tree.path
            for tree in self._program.mentioning("__main__", *_PARSES)
            if tree.path not in self._imported
            and (tree.path in reading or tree.path.with_name("__init__.py") not in self._program.texts)
            and self._is_started(tree)
        )

    def _is_started(self, tree: Tree) -> bool:
        return self._is_script(tree) or _reads_arguments_when_loaded(tree)

    @cached_property
    def _plain_entries(self) -> frozenset[Path]:
        """Those of them that load nothing by a name made up, whatever other scripts do."""
        loading = {each: self._importing_by_name(self._groups.get(each)) for each in self._entries}
        return frozenset(each for each, by_name in loading.items() if self._loaded.of(each).isdisjoint(by_name))

    def are_apart(self, one: Tree, other: Tree) -> bool:
        """Whether no value of one file comes to the other: one is a script, which does not load the other."""
        return self._is_without(one, other) or self._is_without(other, one)

    def _is_without(self, script: Tree, other: Tree) -> bool:
        if script not in self._loads:
            alone = not self.is_imported(script.path) and self._is_started(script)
            self._loads[script] = self.running_with(script.path) if alone else None
        loads = self._loads[script]
        return loads is not None and other.path not in loads

    def loaded_by_test(self, path: Path) -> Collection[Path] | None:
        """What a file takes something of that only pytest imports, whatever others import by names made up; None of any
        other file."""
        if self._imported is None or path in self._imported or not is_test(path):
            return None
        return self._on_purpose.reached(path)

    def meets(self, path: Path, others: Iterable[Path]) -> bool:
        """Whether some file takes something of this one, and of another of these, or of what makes names up."""
        if self._graph is None or path not in self._graph:
            return True
        by_name = self._importing_by_name(self._groups.get(path))
        return self._on_purpose.meets(path, frozenset([*by_name, *others]))


def _reads_arguments_when_loaded(tree: Tree) -> bool:
    """Whether a file parses the command line outside of any function, which is a script's, and not a module's to do."""
    names = (name for word in _PARSES for name in tree.names(word))
    return any(isinstance(tree.scope_of[name].node, cst.Module) for name in names)


def _makes_names_up(tree: Tree) -> bool:
    """Whether a file imports modules by names that are made up; the import graph has those that are written out."""
    return any(not _is_literal_import(name, tree) for word in _IMPORTS_BY_NAME for name in tree.names(word))


def _is_literal_import(name: cst.Name, tree: Tree) -> bool:
    """`importlib.import_module("a.b")`, and `from importlib import import_module`."""
    holder = tree.parents[name]
    function = holder if isinstance(holder, cst.Attribute) and holder.attr is name else name
    call = tree.parents[function]
    if isinstance(call, cst.ImportAlias):
        return call.asname is None
    is_called = isinstance(call, cst.Call) and call.func is function and bool(call.args)
    return is_called and isinstance(cst.ensure_type(call, cst.Call).args[0].value, cst.SimpleString)
