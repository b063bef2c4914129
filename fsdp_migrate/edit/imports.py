"""The imports of a rewritten file: what the new text needs is added, what it no longer uses goes.

Works on the new text, so that nothing has to be known about which edit needed what.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import libcst as cst

from codemods.api import SUPPORT, Import
from codemods.tables.names import MANUAL_WRAPPING, PACKAGE, fsdp1_name, present_name

from .. import support
from ..pyanalysis.depth import parse_safely
from ..pyanalysis.evaluated import annotated_names, evaluated_names
from ..pyanalysis.flow import reaching
from ..pyanalysis.scopes import Scope
from ..pyanalysis.symbols import dotted_name
from ..pyanalysis.syntax import AnnotatedAssign
from ..pyanalysis.tree import Tree
from .import_layout import Layout, Statement, root_of


def is_vocabulary(name: str) -> bool:
    """Whether the support module has an FSDP1 name too: `enable_wrap`."""
    return name.split(".")[0] in MANUAL_WRAPPING


@dataclass(frozen=True)
class Tidied:
    """What has to become of a file's imports, before it is known where the support module lies."""

    before: Tree
    tree: Tree
    removals: dict[Statement, list[cst.ImportAlias]]
    additions: Sequence[Import]
    kept: frozenset[str] = frozenset()
    """What stays at the top for other files."""

    @cached_property
    def support(self) -> support.Asked:
        """The names of the support module that the new text imports, with what its calls pass.

        FSDP1's own names can be called from anywhere, and with all that FSDP1 took.
        """
        names = self._added
        if not names:
            return {}
        here = {
            bound_by(alias): dotted_name(alias.name)
            for statement, alias in aliases(self.tree)
            if _imported(statement, alias).split(".")[-2:-1] == [SUPPORT]
        }
        known = parse_safely(self.tree.text)  # None: it is of a newer Python than the one that runs us
        calls = support.asked_by(known, {**here, **names}) if known is not None else {}
        hidden = [name for name in names.values() if name not in calls or is_vocabulary(name)]
        return support.joined(calls, support.everything(hidden))

    @property
    def _added(self) -> dict[str, str]:
        """The support functions that the new text imports now, by what it calls them."""
        return {item.local: item.name for item in self.additions if item.module == SUPPORT}

    def misfits(self) -> Iterator[tuple[str, str]]:
        """The new text's calls that a support function does not take: its name, and a sentence."""
        known = parse_safely(self.tree.text) if self._added else None
        if known is not None:
            yield from support.misfits(known, self._added)

    def text(self, support_module: str = SUPPORT, otherwise: str = "", own: Collection[str] = ()) -> str:
        """The new text, with the support functions imported from `support_module`, such as `.fsdp2_support`.

        From `otherwise` where that fails: the file is loaded in ways that no one form serves. `own` are the names that
        the project's modules go by in this file, which are imported in a group of their own.
        """
        named = [replace(item, module=support_module) if item.module == SUPPORT else item for item in self.additions]
        written = _write(self.tree, self.removals, named, support_module, otherwise, own)
        if not any(_is_in_if(self.tree, statement) for statement in self.removals):
            return written
        # An `if TYPE_CHECKING:` may have gone with what it held, and then its name has lost its use.
        again = tidy(self.before, Tree(self.tree.path, written, self.tree.width), (), self.kept)
        return _write(again.tree, again.removals, ())


def _is_in_if(tree: Tree, statement: Statement) -> bool:
    return any(isinstance(outer, cst.If) for outer in tree.ancestors(statement))


def tidy(before: Tree, tree: Tree, wanted: Iterable[Import], kept: frozenset[str] = frozenset()) -> Tidied:
    """Add `wanted`, move FSDP1's vocabulary to the support module, and drop imports that lost their last use.

    `kept` are those of the top that other files take from there.
    """
    used, annotated = _uses(tree), _annotated(tree)
    lost = _uses(before) | _annotated(before)
    # What a function imports itself is not read at the top.
    read = {name for path, name in used | annotated if not path}
    additions = {item for item in wanted if item.local.split(".")[0] in read and not is_bound(tree, item)}
    removals: dict[Statement, list[cst.ImportAlias]] = {}
    for statement, alias in aliases(tree):
        name = bound_by(alias)
        here = (_path_of(tree.scope_of[statement]), name)
        fsdp1 = fsdp1_name(_imported(statement, alias))
        is_used = here in used and not (fsdp1 is not None and _is_only_beside(tree, alias, name))
        if not is_used and (here in annotated or here in {((), each) for each in kept}):
            continue
        if not is_used and (here in lost or fsdp1 is not None):
            removals.setdefault(statement, []).append(alias)
        elif fsdp1 is not None and fsdp1 in MANUAL_WRAPPING and isinstance(statement, cst.ImportFrom):
            removals.setdefault(statement, []).append(alias)
            additions.add(Import(SUPPORT, fsdp1, "" if name == fsdp1 else name))
    return Tidied(before, tree, removals, _once(additions), kept)


def _is_only_beside(tree: Tree, alias: cst.ImportAlias, name: str) -> bool:
    """Whether all that reads a name in a function has it from another import, in another branch."""
    scope = tree.scope_of[alias]
    bindings = scope.bindings.get(name, [])
    if not isinstance(scope.node, cst.FunctionDef) or len(bindings) < 2:
        return False
    uses = [use for use in tree.names(name) if _is_use(tree, use) and tree.scope_of[use].lookup(name) is scope]
    return not any(binding.node is alias for use in uses for binding in reaching(tree, use, name))


def _once(additions: Collection[Import]) -> list[Import]:
    """Of `from torch import nn` and `import torch.nn as nn`, which two rules may ask for, the first."""
    found: dict[tuple[str, str], Import] = {}
    for item in sorted(additions):
        found.setdefault((f"{item.module}.{item.name}".rstrip("."), item.local), item)
    return list(found.values())


def _is_for_fsdp(item: Import) -> bool:
    return item.module == PACKAGE or item.module.split(".")[-1] == SUPPORT


_Use = tuple[tuple[str, ...], str]
"""A name, and the path to the scope that it is bound in: `("Trainer", "save")`."""


def _uses(tree: Tree) -> frozenset[_Use]:
    """What is read, in code and in strings that are run."""
    used = {_use(tree, name, name.value) for name in tree.nodes(cst.Name) if _is_use(tree, name)}
    used |= {_use(tree, node, name) for node, name in evaluated_names(tree)}
    return frozenset(used | {((), name) for name in _exported(tree)})


def is_read(tree: Tree, scope: Scope, name: str) -> bool:
    """Whether a file reads, or exports, a name of one of its scopes."""
    return (_path_of(scope), name) in _uses(tree) | _annotated(tree)


def names_at_top(tree: Tree, removals: Mapping[Statement, list[cst.ImportAlias]]) -> frozenset[str]:
    """What the top of a file binds besides the imports that go."""
    gone = {alias for found in removals.values() for alias in found}
    bound = tree.scope.bindings.items()
    return frozenset(name for name, found in bound if any(binding.node not in gone for binding in found))


_ANNOTATED = (cst.FunctionDef, cst.AnnAssign, AnnotatedAssign)


def _annotated(tree: Tree) -> frozenset[_Use]:
    """Those in quoted annotations; of a function, they are looked up outside of it."""
    found = set()
    for node, name in annotated_names(tree):
        holder = next(each for each in tree.ancestors(node) if isinstance(each, _ANNOTATED))
        found.add(_use(tree, holder, name))
    return frozenset(found)


def _use(tree: Tree, node: cst.CSTNode, name: str) -> _Use:
    scope = tree.scope_of[node].lookup(name)
    return (_path_of(scope) if scope is not None else (), name)


def _path_of(scope: Scope) -> tuple[str, ...]:
    if scope.parent is None:
        return ()
    name = scope.node.name.value if isinstance(scope.node, (cst.FunctionDef, cst.ClassDef)) else "<lambda>"
    return (*_path_of(scope.parent), name)


def _is_use(tree: Tree, name: cst.Name) -> bool:
    parent = tree.parents.get(name)
    if isinstance(parent, (cst.ImportAlias, cst.AsName)) or (isinstance(parent, cst.Attribute) and parent.attr is name):
        return False
    if isinstance(parent, (cst.Arg, cst.Param)) and getattr(parent, "keyword", None) is name:
        return False
    if isinstance(parent, (cst.Attribute, cst.ImportFrom)):
        return not any(isinstance(node, (cst.Import, cst.ImportFrom)) for node in tree.ancestors(name))
    return not isinstance(parent, cst.AssignTarget)


def _exported(tree: Tree) -> Iterable[str]:
    """The strings of `__all__`."""
    for binding in tree.scope.bindings.get("__all__", ()):
        if isinstance(binding.value, (cst.List, cst.Tuple)):
            for element in binding.value.elements:
                if isinstance(element.value, cst.SimpleString):
                    yield str(element.value.evaluated_value)


def aliases(tree: Tree) -> list[tuple[Statement, cst.ImportAlias]]:
    found: list[tuple[Statement, cst.ImportAlias]] = []
    for plain in tree.nodes(cst.Import):
        found.extend((plain, alias) for alias in plain.names)
    for statement in tree.nodes(cst.ImportFrom):
        if not isinstance(statement.names, cst.ImportStar):
            found.extend((statement, alias) for alias in statement.names)
    return found


def bound_by(alias: cst.ImportAlias) -> str:
    if alias.asname is not None:
        return cst.ensure_type(alias.asname.name, cst.Name).value
    return dotted_name(alias.name).split(".")[0]


def _imported(statement: Statement, alias: cst.ImportAlias) -> str:
    if isinstance(statement, cst.Import):
        # `import torch.distributed.fsdp as fsdp` imports no construct yet.
        return ""
    module = dotted_name(statement.module) if statement.module is not None and not statement.relative else ""
    return f"{module}.{dotted_name(alias.name)}"


def is_bound(tree: Tree, item: Import) -> bool:
    """Whether the top of the file has this import already, in whichever spelling."""
    wanted = f"{item.module}.{item.name}" if item.name else item.module
    for statement, alias in aliases(tree):
        if tree.scope_of[statement] is not tree.scope:
            continue
        is_plain = isinstance(statement, cst.Import)
        imported = dotted_name(alias.name) if is_plain else present_name(_imported(statement, alias))
        local = imported if is_plain and alias.asname is None else bound_by(alias)
        # `import torch.nn` binds `torch` as well.
        if (imported == wanted and local == item.local) or (is_plain and bound_by(alias) == wanted == item.local):
            return True
    return False


def _inside_functions(
    tree: Tree, removals: Collection[Statement], additions: Iterable[Import], layout: Layout, support_module: str
) -> dict[Statement, list[Import]]:
    """What is imported in the functions that imported FSDP1, by the statement that it comes to stand at.

    Such an import is put off on purpose: nothing that only these functions use is then imported at the top.
    """
    found: dict[Statement, list[Import]] = {}
    removals = [statement for statement in removals if root_of(statement) == "torch"]
    if any(layout.is_top_level(statement) for statement in removals):
        return found
    homes: dict[Import, list[Statement | None]] = {}
    is_put_off = puts_off_torch(tree)
    for item in additions:
        is_with_torch = item.module.startswith("torch.") or item.module in {"torch", support_module}
        is_torchs = (item.name and _is_for_fsdp(item)) or (is_put_off and is_with_torch)
        if is_torchs and not layout.homes_of(item.module):
            uses = [name for name in tree.nodes(cst.Name) if name.value == item.local and _is_use(tree, name)]
            uses = [name for name in uses if tree.scope_of[name].lookup(item.local) in (None, tree.scope)]
            homes[item] = [next((s for s in removals if _reaches(tree, s, use)), None) for use in uses]
    # A module that the top has to import anyway is not put off.
    at_top = {item.module for item, places in homes.items() if None in places}
    for item, places in homes.items():
        for home in dict.fromkeys(places):
            if home is not None and item.module not in at_top:
                found.setdefault(home, []).append(item)
    return found


def _reaches(tree: Tree, statement: Statement, use: cst.Name) -> bool:
    """Whether what a statement imports in a function is there at a use below it, also behind a `try:` around it."""
    block = tree.parents[tree.parents[statement]]
    guard = tree.parents.get(block)
    block = tree.parents[guard] if isinstance(guard, cst.Try) and guard.body is block else block
    inside = isinstance(block, cst.IndentedBlock) and tree.scope_of[statement] is not tree.scope
    return inside and tree.order[statement] < tree.order[use] and tree.contains(block, use)


def puts_off_torch(tree: Tree) -> bool:
    """Whether a file imports torch in functions alone: it can be loaded where there is none, to start the program."""
    statements: list[Statement] = [*tree.nodes(cst.Import), *tree.nodes(cst.ImportFrom)]
    scopes = [tree.scope_of[each] for each in statements if root_of(each) == "torch"]
    return bool(scopes) and tree.scope not in scopes


def _needed_at(tree: Tree, additions: Iterable[Import]) -> int | None:
    """Where the top of the file itself, and no function, first uses something that is added."""
    names = {item.local.split(".")[0] for item in additions}
    uses = [name for name in tree.nodes(cst.Name) if name.value in names and _is_use(tree, name)]
    return min((tree.span(use)[0] for use in uses if tree.scope_of[use] is tree.scope), default=None)


def _module(statement: Statement) -> str:
    return dotted_name(statement.module) if isinstance(statement, cst.ImportFrom) and statement.module else ""


def _keeps_names(statement: Statement, removals: Mapping[Statement, list[cst.ImportAlias]]) -> bool:
    """Whether something is left of a statement that names are taken out of."""
    names = () if isinstance(statement.names, cst.ImportStar) else statement.names
    return len(names) > len(removals.get(statement, ()))


def _write(
    tree: Tree,
    removals: dict[Statement, list[cst.ImportAlias]],
    additions: Sequence[Import],
    support_module: str = SUPPORT,
    otherwise: str = "",
    own: Collection[str] = (),
) -> str:
    layout = Layout(tree, own, _needed_at(tree, additions))
    names: dict[str, list[Import]] = {}
    if otherwise:
        layout.insert([item for item in additions if item.module == support_module], otherwise)
        additions = [item for item in additions if item.module != support_module]
    guarded = [statement for statement in removals if layout.is_guarded(statement)]
    keeping = next((statement for statement in guarded if _keeps_names(statement, removals)), None)
    joined: list[Import] = []
    if guarded and not any(layout.is_top_level(each) for each in removals if root_of(each) == "torch"):
        # `try: from torch.distributed.fsdp import …`: what comes instead may be missing too.
        stays = [item for item in additions if item.name and _is_for_fsdp(item)]
        joined = [item for item in stays if keeping is not None and item.module == _module(keeping)]
        layout.put_before(guarded[0], [item for item in stays if item not in joined])
        lost = {bound_by(alias) for statement in guarded for alias in removals[statement]}
        layout.rename_fallback(guarded[0], lost, {item.local for item in stays})
        additions = [item for item in additions if item not in stays]
    optional = layout.optional("torch")
    if optional is not None:  # a file that does without torch, where there is none
        there = [item for item in additions if _is_for_fsdp(item) or item.module.split(".")[0] == "torch"]
        layout.put_before(optional, there, behind=True)
        additions = [item for item in additions if item not in there]
    inside = _inside_functions(tree, removals, additions, layout, support_module)
    additions = [item for item in additions if not any(item in items for items in inside.values())]
    for item in additions:
        names.setdefault(item.module if item.name else f"import {item.module} as {item.alias}", []).append(item)
    for statement, gone in removals.items():
        module = _module(statement)
        kept = [other for other in layout.homes_of(module) if _keeps_names(other, removals)]
        is_home = statement in (kept or layout.homes_of(module))
        taken = names.pop(module, []) if is_home else []
        if statement is keeping:
            taken = [*taken, *joined]
        here = inside.get(statement, [])
        layout.put_before(statement, [item for item in here if item.module != module])
        layout.change(statement, gone, [*taken, *(item for item in here if item.module == module)])
        if here and isinstance(tree.parents.get(tree.parents[tree.parents[statement]]), cst.Try):
            layout.rename_fallback(statement, set(map(bound_by, gone)), {item.local for item in here})
    for module, items in names.items():
        home = next((each for each in layout.homes_of(module) if _keeps_names(each, removals)), None)
        if home is not None:
            layout.change(home, [], items)
        else:
            layout.insert(items)
    return layout.text()
