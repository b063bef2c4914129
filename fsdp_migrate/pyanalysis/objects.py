"""Attributes of objects: which objects an expression can hold, and what is stored in their attributes, by whoever.

Objects are told apart by the place that makes them and by their class. A store whose object is not known counts for
every object that could be meant, if it stores a model: for anything else, that would only blur what is known. One whose
attribute is not known either counts where its object is seen to be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from .calls import argument_for
from .containers import Part
from .definitions import class_of, first_parameter, is_property, is_setter, overrides, returns
from .stores import AttributeStore, stores_in
from .tree import Tree

if TYPE_CHECKING:
    from .values import Origin, Values

Class = tuple[Tree, cst.ClassDef]


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the objects that an expression can hold."""

    classes: tuple[Class, ...]
    sites: frozenset[cst.CSTNode]
    """Where they are made."""
    is_any: bool
    """Any object of the classes: `self`."""
    is_unknown: bool
    """Or something that is not seen."""
    calls: tuple[tuple[Tree, cst.Call], ...] = ()
    """The sites that are calls."""

    def joined(self, other: Seen) -> Seen:
        return Seen(
            (*self.classes, *other.classes),
            self.sites | other.sites,
            self.is_any or other.is_any,
            self.is_unknown or other.is_unknown,
            (*self.calls, *other.calls),
        )


class Objects:
    """Answers for one program."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._program = values.program
        self._bases: dict[cst.ClassDef, list[Class]] = {}
        self._families: dict[cst.ClassDef, list[Class]] = {}
        self._stores: dict[Tree, Mapping[str | None, list[AttributeStore]]] = {}

    def attribute(self, tree: Tree, owner: cst.BaseExpression, name: str, at: cst.CSTNode) -> Iterator[Origin | None]:
        """What `owner.name` can be where `at` stands; None once more can be set that is not seen."""
        method = next((n for n in tree.ancestors(at) if isinstance(n, cst.FunctionDef)), None)
        seen = self.seen(tree, owner)
        found = False
        for where, klass in seen.classes:
            for origin in self._of_class(where, klass, name):
                found = True
                yield origin
            for part in self._fields(where, klass, name, seen):
                if isinstance(part.node, cst.Dict) or _is_dict(part.node):  # one object for all, that stores go into
                    found = True
                    yield from self._values.of_part(part)
                elif self._holds_model(part):
                    yield from self._values.of_part(part)
        for part in self._replaced(seen, name):
            yield from self._values.of_part(part)
        for store in self._candidates(seen, name):
            certain = self._certainty(tree, seen, method, store, name)
            part = Part(store.tree, store.value, store.path)
            if certain or (certain is not None and self._holds_model(part)):
                found = found or bool(seen.classes)
                yield from self._values.of_part(part)
        if not found:
            yield None

    def _replaced(self, seen: Seen, name: str) -> Iterator[Part]:
        """`dataclasses.replace(state, net=model)`, `SimpleNamespace(net=model)`."""
        for where, call in seen.calls:
            library = self._program.symbols.dotted(where, call.func) or ""
            if library.endswith(("dataclasses.replace", "Namespace")):
                yield from (Part(where, a.value) for a in call.args if a.keyword and a.keyword.value == name)

    def seen(self, tree: Tree, receiver: cst.BaseExpression) -> Seen:
        """The objects that the receiver of an attribute can be."""
        owner = self._class_around(tree, receiver)
        if owner is not None:
            return Seen(((tree, owner),), frozenset(), is_any=True, is_unknown=False)
        classes: dict[Class, None] = {}
        sites: set[cst.CSTNode] = set()
        is_any, origins = False, self._values.origins(tree, receiver)
        is_unknown = not origins
        for origin in origins:
            if isinstance(origin.node, cst.ClassDef):
                classes[origin.tree, origin.node] = None
                is_any = True
            elif origin.node is None or isinstance(origin.node, (cst.Param, cst.Subscript)):
                is_unknown = True
            else:
                sites.add(origin.node)
                made = self._classes_made(origin.tree, origin.node)
                classes.update(dict.fromkeys(made))
                if isinstance(origin.node, cst.Call) and not made:
                    is_unknown |= self._program.symbols.dotted(origin.tree, origin.node.func) is None
        found = Seen(tuple(classes), frozenset(sites), is_any, is_unknown, self._calls_in(origins))
        for where, call in found.calls:
            if self._program.symbols.dotted(where, call.func) == "dataclasses.replace" and call.args:
                found = found.joined(self.seen(where, call.args[0].value))
        return found

    def _calls_in(self, origins: Iterable[Origin]) -> tuple[tuple[Tree, cst.Call], ...]:
        return tuple((origin.tree, origin.node) for origin in origins if isinstance(origin.node, cst.Call))

    def parent_method(self, tree: Tree, at: cst.CSTNode, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        """`super().name` in a method."""
        for owner in tree.ancestors(at):
            if isinstance(owner, cst.ClassDef):
                return next(filter(None, (self.methods(*base, name) for base in self.bases(tree, owner))), [])
        return []

    def stored_through(self, tree: Tree, setter: cst.FunctionDef) -> Iterator[Part]:
        """What assignments to a property pass to its setter."""
        owner, name = class_of(tree, setter), setter.name.value
        if owner is None:
            return
        mine = Seen(((tree, owner),), frozenset(), is_any=True, is_unknown=False)
        for store in self._candidates(mine, name):
            if self._certainty(tree, mine, None, store, name) is not None:
                yield Part(store.tree, store.value, store.path)

    def methods(self, tree: Tree, owner: cst.ClassDef, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        """The method that objects of a class run."""
        for where, klass in [(tree, owner), *self.bases(tree, owner)]:
            for node in klass.body.body:
                if isinstance(node, cst.FunctionDef) and node.name.value == name and not is_setter(node):
                    return [(where, node)]
        return []

    def methods_of(self, tree: Tree, receiver: cst.CSTNode, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        """The methods of this name of an object that `receiver` makes: `__call__`, `__enter__`, `__getitem__`."""
        made = self._classes_made(tree, receiver)
        return [found for where, owner in made for found in self.methods(where, owner, name)]

    def _classes_made(self, tree: Tree, node: cst.CSTNode) -> list[Class]:
        if not isinstance(node, cst.Call):
            return []
        made = self._values.origins(tree, node.func)
        return [(origin.tree, origin.node) for origin in made if isinstance(origin.node, cst.ClassDef)]

    def _class_around(self, tree: Tree, receiver: cst.BaseExpression) -> cst.ClassDef | None:
        """The class of `self`."""
        if not isinstance(receiver, cst.Name):
            return None
        for method in tree.ancestors(receiver):
            if isinstance(method, cst.FunctionDef) and class_of(tree, method) is not None:
                bound = tree.scope_of[receiver].lookup(receiver.value)
                is_self = receiver.value == first_parameter(method) and bound is not None and bound.node is method
                return class_of(tree, method) if is_self else None
        return None

    def is_self(self, tree: Tree, expression: cst.BaseExpression) -> bool:
        return self._class_around(tree, expression) is not None

    def _of_class(self, tree: Tree, owner: cst.ClassDef, name: str) -> Iterator[Origin]:
        for where, found in self.methods(tree, owner, name):
            if not is_property(found):
                yield self._values.made(where, found)
            for returned in returns(where, found) if is_property(found) else ():
                yield from self._values.origins(where, returned)

    def _fields(self, tree: Tree, owner: cst.ClassDef, name: str, seen: Seen) -> Iterator[Part]:
        """`net: Module` in the body of a class, and what its generated constructor is given for it."""
        lineage = [(tree, owner), *self.bases(tree, owner)]
        fields = [pair for where, klass in reversed(lineage) for pair in _fields_of(where, klass)]
        if not any(known == name for known, _ in fields):
            return
        yield from (part for known, part in fields if known == name and part is not None)
        if self.methods(tree, owner, "__init__"):
            return
        order = list(dict.fromkeys(known for known, _ in fields))
        for where, call in self._values.callers.calls_of_class(tree, owner):
            value = argument_for(call, order, name)
            if value is not None and (seen.is_any or call in seen.sites):
                yield Part(where, value)

    def _candidates(self, seen: Seen, name: str) -> Iterator[AttributeStore]:
        trees = [where for klass in seen.classes for where, _ in self.family(*klass)]
        trees += self._program.setting(name)
        trees += self._program.mentioning("setattr", "__setattr__", "__dict__", "vars")
        if seen.is_unknown:
            trees += self._program.mentioning(self._program.library.wrapper)
        for tree in dict.fromkeys(trees):
            if tree not in self._stores:
                self._stores[tree] = stores_in(tree)
            yield from self._stores[tree].get(name, ())
            yield from self._stores[tree].get(None, ())

    def _certainty(
        self, tree: Tree, seen: Seen, method: cst.FunctionDef | None, store: AttributeStore, name: str
    ) -> bool | None:
        """Whether a store sets the attribute of an object that is seen; None when it cannot."""
        names = self._names(store)
        if names is not None and name not in names:
            return None
        other = self.seen(store.tree, store.owner)
        if other.is_any and seen.is_any and method is not None and self._is_overridden(seen, other, method):
            return None
        if seen.sites & other.sites or ((seen.is_any or other.is_any) and self._are_related(seen, other)):
            return names is not None
        if names is None:
            return None  # whose it is, and which: it would be every attribute of the program
        return False if seen.is_unknown or other.is_unknown else None

    def _is_overridden(self, seen: Seen, other: Seen, method: cst.FunctionDef) -> bool:
        """Whether objects for which the store runs never run the method of the use."""
        (_, owner), (_, relative) = seen.classes[0], other.classes[0]
        return relative is not owner and overrides(relative, owner, method)

    def _names(self, store: AttributeStore) -> set[str] | None:
        """The names that a store can be for; None: any."""
        if isinstance(store.key, str):
            return {store.key}
        made = [origin.node for origin in self._values.origins(store.tree, store.key)]
        found = {str(node.evaluated_value) for node in made if isinstance(node, cst.SimpleString)}
        # What a loop binds is never known to be all: what is seen of it has to do.
        is_known = found and all(node is None or isinstance(node, cst.SimpleString) for node in made)
        return found if is_known else None

    def _are_related(self, seen: Seen, other: Seen) -> bool:
        mine = {owner for klass in seen.classes for _, owner in self.family(*klass)}
        return any(owner in mine for _, owner in other.classes)

    def _holds_model(self, part: Part) -> bool:
        return any(map(self._values.is_model, self._values.of_part(part)))

    def family(self, tree: Tree, owner: cst.ClassDef) -> list[Class]:
        """A class, the program's classes it inherits from, and those that inherit from it."""
        if owner in self._families:
            return self._families[owner]
        with self._values.whole() as is_whole:
            found = [(tree, owner), *self.bases(tree, owner)]
            names = [owner.name.value]
            for name in names:  # grows: who inherits from an heir may never name the owner
                for where in self._program.inheriting(name):
                    for other in where.nodes(cst.ClassDef):
                        if (where, other) not in found and any(base is owner for _, base in self.bases(where, other)):
                            found.append((where, other))
                            names.append(other.name.value)
        if is_whole():
            self._families[owner] = found
        return found

    def bases(self, tree: Tree, owner: cst.ClassDef) -> list[Class]:
        """The program's classes that a class inherits from, nearest first."""
        if owner in self._bases:
            return self._bases[owner]
        with self._values.whole() as is_whole, self._values.once(owner) as is_first:
            found = list(self._find_bases(tree, owner)) if is_first else []
        if is_whole():
            self._bases[owner] = found
        return found

    def _find_bases(self, tree: Tree, owner: cst.ClassDef) -> Iterator[Class]:
        for argument in owner.bases:
            for origin in self._values.origins(tree, argument.value):
                if isinstance(origin.node, cst.ClassDef):
                    yield origin.tree, origin.node
                    yield from self.bases(origin.tree, origin.node)


def _is_dict(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "dict"


def _fields_of(tree: Tree, owner: cst.ClassDef) -> Iterator[tuple[str, Part | None]]:
    for line in owner.body.body:
        for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                yield small.target.value, Part(tree, small.value) if small.value is not None else None
            elif isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
                yield small.targets[0].target.value, Part(tree, small.value)
