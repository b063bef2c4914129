"""What a name means across the files of a program: an outside name, a definition, or one of its modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from .flow import reaching
from .library import Library
from .scopes import Binding, Binds, Scope
from .tree import Tree

Resolve = Callable[[Path, "str | None", int], "Path | None"]
"""`(importing file, module, level) -> file`, None when the module is not the program's own."""


@dataclass(frozen=True, slots=True)
class Outside:
    """A name of a library: `torch.optim.AdamW`."""

    dotted: str


@dataclass(frozen=True, slots=True)
class Defined:
    """Bound in a scope of the program by these bindings, imports left out."""

    tree: Tree
    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class OwnModule:
    """A file of the program."""

    tree: Tree


Symbol = Outside | Defined | OwnModule


class Symbols:
    """Follows names through imports, re-exports and star imports of the program's own files."""

    def __init__(
        self,
        tree_of: Callable[[Path], Tree | None],
        resolve: Resolve,
        library: Library,
        brings: Callable[[Path, str], bool],
    ) -> None:
        """`brings`: whether `from file import *` can bring a name."""
        self._tree_of = tree_of
        self._brings = brings
        self._resolve = resolve
        self._library = library
        self._following: set[tuple[Path, str]] = set()
        self._known: dict[tuple[Scope, str], Symbol | None] = {}
        self._behind: dict[cst.BaseExpression, Symbol | None] = {}
        self._starring: dict[Tree, Sequence[Path | str]] = {}
        self._whole: dict[Tree, frozenset[str]] = {}
        self._candidates: dict[Tree, frozenset[str] | None] = {}

    def file_of(self, importing: Path, module: str | None, level: int) -> Path | None:
        """The program's file that another one gets for a module; None for a library's, and for none."""
        return self._resolve(importing, module, level)

    def of(self, tree: Tree, expression: cst.BaseExpression) -> Symbol | None:
        """The symbol behind `a` or `a.b.c`; None for any other expression, and for builtins."""
        if self._following:
            return self._find(tree, expression)  # in a cycle of imports: not the whole truth
        if expression not in self._behind:
            self._behind[expression] = self._find(tree, expression)
        return self._behind[expression]

    def _find(self, tree: Tree, expression: cst.BaseExpression) -> Symbol | None:
        if isinstance(expression, cst.Name):
            scope = tree.scope_of[expression]
            imported = self._of_import_above(tree, scope, expression)
            return imported if imported is not None else self._of_name(tree, scope, expression.value)
        if isinstance(expression, cst.Attribute):
            symbol = self._member(self.of(tree, expression.value), expression.attr.value)
            is_open = symbol is None or isinstance(symbol, Outside)
            return (self._below_folder(tree, expression) if is_open else None) or symbol
        return None

    def _below_folder(self, tree: Tree, expression: cst.Attribute) -> OwnModule | None:
        """`lib.utils.distributed`, where a folder on the way has no `__init__.py`, so that no file stands for it."""
        names: list[str] = []
        owner: cst.BaseExpression = expression
        while isinstance(owner, cst.Attribute):
            names.insert(0, owner.attr.value)
            owner = owner.value
            symbol = self.of(tree, owner)
            if isinstance(symbol, OwnModule):
                found = self._submodule(symbol.tree, ".".join(names)) if len(names) > 1 else None
                return found if isinstance(found, OwnModule) else None
        dotted = ".".join([owner.value, *names]) if isinstance(owner, cst.Name) else ""
        if dotted not in self._imported_whole(tree):
            return None
        path = self._resolve(tree.path, dotted, 0)
        own = self._tree_of(path) if path is not None else None
        return OwnModule(own) if own is not None else None

    def _imported_whole(self, tree: Tree) -> frozenset[str]:
        """The dotted names of `import a.b.c`."""
        if tree not in self._whole:
            aliases = (alias for statement in tree.nodes(cst.Import) for alias in statement.names)
            self._whole[tree] = frozenset(dotted_name(alias.name) for alias in aliases if alias.asname is None)
        return self._whole[tree]

    def every(self, tree: Tree, expression: cst.Name | cst.Attribute) -> list[Symbol]:
        """`of`, and what else in the program another branch imports by the name: `if a: import b as m; else: …`."""
        symbol = self.of(tree, expression)
        others: Iterable[Symbol | None] = ()
        if isinstance(expression, cst.Name):
            scope = tree.scope_of[expression].lookup(expression.value)
            bindings = scope.bindings[expression.value] if scope is not None else ()
            if len(bindings) > 1 and self._of_import_above(tree, tree.scope_of[expression], expression) is None:
                imports = _not_overwritten(tree, [binding for binding in bindings if binding.how is Binds.IMPORT])
                others = (self.of_binding(tree, binding) for binding in imports)
        elif isinstance(expression.value, (cst.Name, cst.Attribute)) and isinstance(symbol, Defined):
            others = (self._member(owner, expression.attr.value) for owner in self.every(tree, expression.value)[1:])
        own = (other for other in others if other is not None and not isinstance(other, Outside))
        return list(dict.fromkeys([*([] if symbol is None else [symbol]), *own]))

    def dotted(self, tree: Tree, expression: cst.BaseExpression) -> str | None:
        """The library name behind an expression: `nn.Linear` is `torch.nn.Linear`."""
        symbol = self.of(tree, expression)
        return symbol.dotted if isinstance(symbol, Outside) else None

    def candidates(self, tree: Tree) -> Iterator[cst.Name | cst.Attribute]:
        """All `a`, and then all `a.b`, that can be a library's by what a file binds: most names are its own."""
        if tree not in self._candidates:
            self._candidates[tree] = self._outside_names(tree)
        known = self._candidates[tree]
        for node in tree.nodes(cst.Name):
            if known is None or node.value in known:
                yield node
        for attribute in tree.nodes(cst.Attribute):
            first: cst.BaseExpression = attribute
            while isinstance(first, cst.Attribute):
                first = first.value
            if isinstance(first, cst.Name) and (known is None or first.value in known):
                yield attribute

    def _outside_names(self, tree: Tree) -> frozenset[str] | None:
        """What some scope of a file imports, or binds by what can be the wrapper's class; None for any name at all."""
        if self._star_imports(tree):
            return None
        scopes = dict.fromkeys(tree.scope_of.values())
        return frozenset(name for scope in scopes for name, bound in scope.bindings.items() if _can_be_outside(bound))

    def dotted_at(self, tree: Tree, at: cst.CSTNode, name: str) -> str | None:
        """The same for a name in a string, `nn.Linear`, as it would be read where `at` stands."""
        first, _, rest = name.partition(".")
        symbol = self._of_name(tree, tree.scope_of[at], first)
        return ".".join(filter(None, [symbol.dotted, rest])) if isinstance(symbol, Outside) else None

    def _star_imports(self, tree: Tree) -> Sequence[Path | str]:
        """The modules a file imports everything from: a file of the program, or a dotted name."""
        if tree not in self._starring:
            stars = (node for node in tree.nodes(cst.ImportFrom) if isinstance(node.names, cst.ImportStar))
            self._starring[tree] = [self._path_of(tree, node) or _module_name(node) for node in stars]
        return self._starring[tree]

    def _of_import_above(self, tree: Tree, scope: Scope, use: cst.Name) -> Symbol | None:
        """Of several imports that a function binds one name by, in its branches, the only one that comes to a use.

        A use in a function within it has the one that comes to that function.
        """
        found = scope.lookup(use.value)
        bindings = found.bindings[use.value] if found is not None and isinstance(found.node, cst.FunctionDef) else ()
        if len(bindings) < 2 or any(binding.how is not Binds.IMPORT for binding in bindings):
            return None
        around = (use, *tree.ancestors(use))
        place = next((node for node in around if tree.scope_of.get(node) is found), use)
        above = reaching(tree, place, use.value)
        return self.of_binding(tree, above[0]) if len(above) == 1 else None

    def _of_name(self, tree: Tree, scope: Scope, name: str) -> Symbol | None:
        if self._following:
            return self._look_up(tree, scope, name)
        key = (scope, name)
        if key not in self._known:
            self._known[key] = self._look_up(tree, scope, name)
        return self._known[key]

    def _look_up(self, tree: Tree, scope: Scope, name: str) -> Symbol | None:
        found = scope.lookup(name)
        if found is None:
            return self._starred(tree, name)
        bindings = found.bindings[name]
        imports = [binding for binding in bindings if binding.how is Binds.IMPORT]
        if not imports:
            return self._alias_of_wrapper(tree, bindings) or Defined(tree, found, name)
        if found is not scope:
            imports = _not_overwritten(tree, imports)
        symbols = [self.of_binding(tree, binding) for binding in imports]
        # `try: from torch… import X` / `except ImportError: X = None`: the import is what runs.
        return next((symbol for symbol in symbols if symbol is not None), None)

    def _alias_of_wrapper(self, tree: Tree, bindings: Sequence[Binding]) -> Outside | None:
        """`Alias = Wrapper`, which `import … as Alias` says as well."""
        value = bindings[0].value
        if len(bindings) != 1 or bindings[0].how is not Binds.VALUE or not isinstance(value, (cst.Name, cst.Attribute)):
            return None
        key = (tree.path, f"{bindings[0].name} at {tree.order[bindings[0].node]}")
        if key in self._following:
            return None
        self._following.add(key)
        try:
            symbol = self.of(tree, value)
        finally:
            self._following.discard(key)
        is_wrapper = isinstance(symbol, Outside) and self._library.is_wrapper(symbol.dotted)
        return symbol if is_wrapper and isinstance(symbol, Outside) else None

    def _starred(self, tree: Tree, name: str) -> Symbol | None:
        for module in self._star_imports(tree):
            if isinstance(module, str):
                if self._library.exports(module, name):
                    return Outside(f"{module}.{name}")
                continue
            own = self._tree_of(module) if self._brings(module, name) else None
            symbol = self.top_level(own, name) if own is not None else None
            if symbol is not None:
                return symbol
        return None

    def top_level(self, tree: Tree, name: str) -> Symbol | None:
        """What a file has by a name, defined there or imported."""
        key = (tree.path, name)
        if key in self._following:
            return None
        self._following.add(key)
        try:
            return self._of_name(tree, tree.scope, name)
        finally:
            self._following.discard(key)

    def _member(self, owner: Symbol | None, name: str) -> Symbol | None:
        if isinstance(owner, Outside):
            return Outside(f"{owner.dotted}.{name}")
        if isinstance(owner, OwnModule):
            return self.top_level(owner.tree, name) or self._submodule(owner.tree, name)
        return None

    def _submodule(self, tree: Tree, name: str) -> Symbol | None:
        if tree.path.name != "__init__.py":
            return None
        path = self._resolve(tree.path, name, 1)
        found = self._tree_of(path) if path is not None else None
        return OwnModule(found) if found is not None else None

    def of_binding(self, tree: Tree, binding: Binding) -> Symbol | None:
        """What an import binds."""
        alias = cst.ensure_type(binding.node, cst.ImportAlias)
        statement = tree.parents[alias]
        if isinstance(statement, cst.Import):
            return self._plain_import(tree, alias)
        statement = cst.ensure_type(statement, cst.ImportFrom)
        name = cst.ensure_type(alias.name, cst.Name).value
        module = self._own_module(tree, statement)
        if module is not None:
            return self.top_level(module, name) or self._submodule(module, name)
        submodule = self._resolve(tree.path, ".".join(filter(None, [_module_name(statement), name])), _level(statement))
        own = self._tree_of(submodule) if submodule is not None else None
        if own is not None:
            return OwnModule(own)
        return Outside(f"{_module_name(statement)}.{name}") if not statement.relative else None

    def _plain_import(self, tree: Tree, alias: cst.ImportAlias) -> Symbol | None:
        dotted = dotted_name(alias.name)
        bound = dotted if alias.asname is not None else dotted.split(".")[0]
        path = self._resolve(tree.path, bound, 0)
        own = self._tree_of(path) if path is not None else None
        return OwnModule(own) if own is not None else Outside(bound)

    def _own_module(self, tree: Tree, statement: cst.ImportFrom) -> Tree | None:
        path = self._path_of(tree, statement)
        return self._tree_of(path) if path is not None else None

    def _path_of(self, tree: Tree, statement: cst.ImportFrom) -> Path | None:
        return self._resolve(tree.path, _module_name(statement) or None, _level(statement))


def dotted_name(node: cst.BaseExpression) -> str:
    """`a.b.c` of an import as text."""
    if isinstance(node, cst.Attribute):
        return f"{dotted_name(node.value)}.{node.attr.value}"
    return cst.ensure_type(node, cst.Name).value


def _can_be_outside(bindings: Sequence[Binding]) -> bool:
    return any(each.how is Binds.IMPORT or isinstance(each.value, (cst.Name, cst.Attribute)) for each in bindings)


def _not_overwritten(tree: Tree, imports: Sequence[Binding]) -> list[Binding]:
    """Without an import that a later one in the same block replaces, before any function of the block can run."""
    last = {tree.parents[tree.parents[tree.parents[binding.node]]]: binding for binding in imports}
    return [binding for binding in imports if binding in last.values()]


def _module_name(node: cst.ImportFrom) -> str:
    return dotted_name(node.module) if node.module is not None else ""


def _level(node: cst.ImportFrom) -> int:
    return len(node.relative)
