"""Calls of what run time finds by a name: `getattr(module, name)(net)`, `hydra.utils.instantiate(config, net)`.

Such a call can run each definition that takes its arguments, and that no other call is seen to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from .aliases import Aliases, Named, Place, Steps
from .calls import Run, parameters, runs
from .containers import constant
from .definitions import last_name, takes_object
from .stores import formatted_name
from .symbols import Defined, OwnModule
from .tree import Tree

if TYPE_CHECKING:
    from .values import Values

Definition = cst.FunctionDef | cst.ClassDef
_CALLING = frozenset({"hydra.utils.call", "hydra.utils.instantiate"})
"""They call what their first argument names, with the others and with what the configuration has."""
_FINDING = frozenset({"hydra.utils.get_class", "hydra.utils.get_method", "pydoc.locate"})
_WORDS = (
    *("__import__", "call", "eval", "get_class", "get_method"),
    *("getattr", "globals", "import_module", "instantiate", "locate"),
)


class Lookup(NamedTuple):
    """What is known of a definition that is looked up by a name."""

    name: cst.BaseExpression | str | None = None
    """The name, or what makes it."""
    module: Tree | None = None
    """The file that has the name; None: any."""
    is_method: bool = False

    @property
    def is_anything(self) -> bool:
        return self.module is None and not self.is_method and not isinstance(self.name, str)


@dataclass(frozen=True)
class DynamicCall:
    """A call whose callee is known by a name alone."""

    tree: Tree
    call: cst.Call
    run: Run
    lookup: Lookup

    @cached_property
    def given(self) -> Sequence[str | None]:
        """The last names of what is given by position."""
        return [last_name(each.value) for each in self.run.arguments if not each.star and each.keyword is None]

    @cached_property
    def named(self) -> frozenset[str]:
        """The parameters that are named."""
        return frozenset(each.keyword.value for each in self.run.arguments if each.keyword is not None)


class _Taken(NamedTuple):
    """What a function takes."""

    positional: Sequence[str]
    names: frozenset[str]
    needed: frozenset[str]
    takes_more: bool
    takes_any_name: bool


def _taken(tree: Tree, function: cst.FunctionDef) -> _Taken:
    params = function.params
    positional = parameters(function, takes_object(tree, function))
    return _Taken(
        positional,
        names=frozenset([*positional, *(each.name.value for each in params.kwonly_params)]),
        needed=frozenset(each.name.value for each in (*params.params, *params.kwonly_params) if each.default is None),
        takes_more=isinstance(params.star_arg, cst.Param),
        takes_any_name=params.star_kwarg is not None,
    )


class Lookups:
    """Answers for one program, by names and scopes alone: no question about values leads here and back."""

    def __init__(self, values: Values, named: Named) -> None:
        self._values = values
        self._steps = Steps(named)
        self._program = values.program
        self._calling: dict[cst.FunctionDef, Sequence[DynamicCall]] = {}
        self._written: dict[str, bool] = {}

    def calling(self, tree: Tree, function: cst.FunctionDef, defined: Definition) -> Sequence[DynamicCall]:
        """What can run a function, or the class whose objects it makes: what has its name, and fits its parameters."""
        if function not in self._calling:
            self._calling[function] = list(self._find_calling(tree, function, defined))
        return self._calling[function]

    def _find_calling(self, tree: Tree, function: cst.FunctionDef, defined: Definition) -> Iterator[DynamicCall]:
        is_method = isinstance(tree.scope_of[defined].node, cst.ClassDef)
        taken = _taken(tree, function)
        for each in self.calls:
            if each.lookup.is_method is is_method and _fits(each, taken):
                if self._can_be(tree, defined.name.value, each.lookup):
                    yield each

    def _can_be(self, tree: Tree, name: str, lookup: Lookup) -> bool:
        if isinstance(lookup.name, cst.FormattedString) and not fnmatchcase(name, formatted_name(lookup.name)):
            return False
        if isinstance(lookup.name, str) and lookup.name != name:
            return False
        if lookup.module is not None:
            symbol = self._program.symbols.top_level(lookup.module, name)
            return isinstance(symbol, Defined) and symbol.tree is tree
        return not lookup.is_method or isinstance(lookup.name, cst.FormattedString) or self._is_written(name)

    def _is_written(self, name: str) -> bool:
        """Whether the program has a name as a text somewhere."""
        if name not in self._written:
            texts = (text for tree in self._program.mentioning(name) for text in tree.nodes(cst.SimpleString))
            self._written[name] = any(name in text.value and constant(text) == name for text in texts)
        return self._written[name]

    @cached_property
    def calls(self) -> Sequence[DynamicCall]:
        """All that the program has."""
        return list(self._find())

    @cached_property
    def by_call(self) -> Mapping[cst.Call, Sequence[DynamicCall]]:
        """The same: of one that can be of several files, each."""
        found: dict[cst.Call, list[DynamicCall]] = defaultdict(list)
        for each in self.calls:
            found[each.call].append(each)
        return found

    def _find(self) -> Iterator[DynamicCall]:
        for tree in self._program.mentioning(*_WORDS):
            nodes: list[cst.Call | cst.Subscript] = [*tree.nodes(cst.Call), *tree.nodes(cst.Subscript)]
            for node in nodes:
                if isinstance(node, cst.Call) and self._program.symbols.dotted(tree, node.func) in _CALLING:
                    yield DynamicCall(tree, node, Run(node.func, tuple(node.args[1:])), Lookup())
                elif isinstance(node, cst.Call) and _imports(node):
                    yield from self._of_module(tree, node)
                else:
                    lookup = self._lookup(tree, node)
                    yield from self._of(tree, node, lookup) if lookup is not None else ()

    def _of(self, tree: Tree, node: cst.BaseExpression, lookup: Lookup) -> Iterator[DynamicCall]:
        for where, use in self._uses(tree, node, attributes=2 if lookup.is_method else 1):
            call = where.parents[use]
            if isinstance(call, cst.Call) and runs(call).target is use:
                yield DynamicCall(where, call, runs(call), lookup)

    def _of_module(self, tree: Tree, module: cst.Call) -> Iterator[DynamicCall]:
        """`import_module(name).train(net)`."""
        for where, use in self._uses(tree, module):
            member = where.parents[use]
            call = where.parents[member]
            if isinstance(member, cst.Attribute) and isinstance(call, cst.Call) and call.func is member:
                yield DynamicCall(where, call, runs(call), Lookup(member.attr.value))

    def _uses(self, tree: Tree, node: cst.BaseExpression, attributes: int = 1) -> Iterator[tuple[Tree, cst.CSTNode]]:
        yield from Aliases(self._steps, [Place(tree, node, attributes)]).places

    def _lookup(self, tree: Tree, node: cst.Call | cst.Subscript) -> Lookup | None:
        if isinstance(node, cst.Subscript):
            return Lookup(module=tree) if _is_globals(node.value) else None
        name = last_name(node.func)
        if name == "getattr" and len(node.args) > 1:
            return self._attribute(tree, node.args[0].value, node.args[1].value)
        if name == "eval" or (name == "get" and isinstance(node.func, cst.Attribute) and _is_globals(node.func.value)):
            return Lookup(module=tree)
        return Lookup() if self._program.symbols.dotted(tree, node.func) in _FINDING else None

    def _attribute(self, tree: Tree, owner: cst.BaseExpression, name: cst.BaseExpression) -> Lookup | None:
        """Of a module: one of the program's own, or one that run time names as well; a method of anything else."""
        known = constant(name)
        named = known if isinstance(known, str) else name
        symbol = self._program.symbols.of(tree, owner)
        if isinstance(symbol, OwnModule):
            return Lookup(named, symbol.tree)
        bound = self._values.bound(tree, owner) if isinstance(owner, cst.Name) else None
        for where, value in bound or [(tree, owner)]:
            if _imports(value):
                return Lookup(named, where if isinstance(value, cst.Subscript) else None)
        return Lookup(name, is_method=True) if known is None else None


def _fits(call: DynamicCall, taken: _Taken) -> bool:
    """Whether the arguments fit the parameters; of what can be anything, by a name as well."""
    given, named = call.given, call.named
    if len(given) > len(taken.positional) and not taken.takes_more:
        return False
    if not taken.takes_any_name and not named <= taken.names:
        return False
    if call.lookup.is_anything:
        return bool(named) or any(name == own for name, own in zip(given, taken.positional, strict=False))
    if any(each.star for each in call.run.arguments):
        return True
    return taken.needed.isdisjoint(taken.names.difference(taken.positional[: len(given)], named))


def _imports(made: cst.BaseExpression) -> bool:
    """`import_module(name)`, `sys.modules[__name__]`."""
    if isinstance(made, cst.Subscript):
        return isinstance(made.value, cst.Attribute) and made.value.attr.value == "modules"
    if not isinstance(made, cst.Call) or last_name(made.func) not in {"import_module", "__import__"}:
        return False
    return bool(made.args) and constant(made.args[0].value) is None


def _is_globals(expression: cst.BaseExpression) -> bool:
    return isinstance(expression, cst.Call) and last_name(expression.func) == "globals"
