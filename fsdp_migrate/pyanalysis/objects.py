"""Attributes of objects: which objects an expression can hold, and what is stored in their attributes, by whoever.

Objects are told apart by the place that makes them and by their class. A store whose object is not known counts for
every object that could be meant, if it stores a model: for anything else, that would only blur what is known. One whose
attribute is not known either counts where its object is seen to be the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import libcst as cst

from .calls import argument_for, runs
from .containers import Part
from .definitions import class_of, first_parameter, is_property, is_setter, is_static, last_name, overrides, returns
from .scopes import Path
from .stores import TABLES, AttributeStore, stores_in
from .tree import Tree

if TYPE_CHECKING:
    from .values import Values

_ANY_NAME = ""
"""A name that no store says: what is stored under a computed one counts for it."""

Class = tuple[Tree, cst.ClassDef]
Method = tuple[Tree, cst.FunctionDef | cst.ClassDef]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Is(Enum):
    """What a place in the text is for an expression."""

    SELF = "it can be any object of the class, in a method of which it stands"
    CLASS = "it can be the class"
    OBJECT = "it can be an object of the class that is made at one of its sites"
    SITE = "it can be made there"
    INSIDE = "it can be a wrapper of an object of the class"
    UNKNOWN = "it can be something that is not seen"

    __hash__ = object.__hash__  # that of an enum is written in Python


Fact = tuple[Tree, cst.CSTNode, _Is]


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the objects that an expression can hold."""

    classes: tuple[Class, ...]
    sites: frozenset[cst.CSTNode]
    """Where they are made."""
    is_any: bool
    """Any object of the classes: `self`, or the class itself."""
    is_self: bool
    is_unknown: bool
    """Or something that is not seen."""
    calls: tuple[tuple[Tree, cst.Call], ...] = ()
    """The sites that are calls."""
    inside: tuple[Class, ...] = ()
    """The classes of what they wrap, which they ask for what they lack."""


class Named(NamedTuple):
    """A part of what is the attribute of a name."""

    tree: Tree
    node: cst.BaseExpression
    path: Path
    name: str


class Objects:
    """Answers for one program."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._program = values.program
        self._bases: dict[cst.ClassDef, list[Class]] = {}
        self._families: dict[cst.ClassDef, list[Class]] = {}
        self._beside: dict[cst.ClassDef, list[Class]] = {}
        self._stores: dict[Tree, Mapping[str | None, list[AttributeStore]]] = {}
        self._seen: dict[tuple[cst.BaseExpression, int], tuple[tuple[Fact, ...], Seen]] = {}
        self._computed: dict[tuple[cst.BaseExpression, int], set[str] | None] = {}
        self._unnamed: dict[tuple[Tree, int], list[tuple[AttributeStore, set[str] | None]]] = {}
        self._setting: dict[tuple[str, int, bool, tuple[Class, ...]], list[AttributeStore]] = {}
        self._set_by_name: dict[tuple[object, ...], bool] = {}
        self._by_computed_name: dict[str, list[Tree]] = {}
        self._related: dict[tuple[Class, ...], frozenset[cst.ClassDef]] = {}
        self._methods: dict[cst.ClassDef, Mapping[str, cst.FunctionDef]] = {}
        self._members: dict[cst.ClassDef, Mapping[str, Sequence[cst.FunctionDef | cst.ClassDef]]] = {}
        self._fields_of: dict[cst.ClassDef, Mapping[str, Sequence[Part | None]]] = {}
        self._heirs: dict[cst.ClassDef, list[Class]] = {}
        self._found_in: dict[tuple[cst.ClassDef, str], Sequence[Part | Method]] = {}
        self._classes_around: dict[cst.BaseExpression, cst.ClassDef | None] = {}

    def attribute(
        self, tree: Tree, owner: cst.BaseExpression, name: str, at: cst.CSTNode
    ) -> Iterator[tuple[Part | Method, bool]]:
        """What `owner.name` can be where `at` stands, and whether nothing unseen is to be expected beside it."""
        seen = self.seen(tree, owner)
        for where, klass in seen.classes:
            yield from ((made, True) for made in self._of_class(where, klass, name))
            for other_tree, other in self._others_of_self(where, klass, tree, at) if seen.is_self else ():
                yield from ((made, True) for made in self._defined(other_tree, other, name))
            for part, is_given in self._fields(where, klass, name, seen):
                is_table = is_container(part.node)  # one object for all, that stores go into
                if is_table or is_given or self._holds_model(part):
                    yield part, is_table or is_given
        for where, klass in seen.inside if name not in self._program.library.own else ():
            yield from ((made, True) for made in self._of_class(where, klass, name) if not isinstance(made, Part))
        yield from ((part, False) for part in self._replaced(seen, name))
        for store in self.stores(tree, owner, name, at):
            yield Part(store.tree, store.value, store.path), bool(seen.classes) and not store.is_item

    def _others_of_self(self, where: Tree, klass: cst.ClassDef, tree: Tree, at: cst.CSTNode) -> Iterator[Class]:
        """The classes beside its own that `self` can have: none that has its own version of the method around."""
        method = next((n for n in tree.ancestors(at) if isinstance(n, cst.FunctionDef)), None)
        for heir in self.heirs(where, klass):
            if method is None or not overrides(*heir, klass, method):
                yield heir
        yield from self.beside(where, klass)

    def stores(self, tree: Tree, owner: cst.BaseExpression, name: str, at: cst.CSTNode) -> Iterator[AttributeStore]:
        """What can have set `owner.name` as it is read where `at` stands."""
        method = next((n for n in tree.ancestors(at) if isinstance(n, cst.FunctionDef)), None)
        seen = self.seen(tree, owner)
        for store in self._candidates(seen, name):
            certain = self._certainty(seen, method, store)
            if certain or (certain is not None and self._holds_model(Part(store.tree, store.value, store.path))):
                yield store

    def named(self, tree: Tree, owner: cst.BaseExpression, name: str, at: cst.CSTNode) -> Iterator[Part]:
        """The values of an attribute that is read by its name."""
        yield from (source for source, _ in self.attribute(tree, owner, name, at) if isinstance(source, Part))

    def attributes(self, tree: Tree, owner: cst.BaseExpression, at: cst.CSTNode) -> Sequence[Named]:
        """The models that an attribute can be whose name is not known: `getattr(box, name)`, `vars(box).values()`."""
        return self._values.ask(("attributes", owner), lambda: self._find_attributes(tree, owner, at))

    def _find_attributes(self, tree: Tree, owner: cst.BaseExpression, at: cst.CSTNode) -> Iterator[Named]:
        seen = self.seen(tree, owner)
        if not seen.classes or seen.is_unknown:
            return  # whose they are, and which: it would be every model of the program
        trees = [where for klass in seen.classes for where, _ in self.family(*klass)]
        trees += [tree, *self._program.wrapping]
        stores = [store for where in dict.fromkeys(trees) for of in self._stores_of(where).values() for store in of]
        names = [s.key for s in stores if isinstance(s.key, str) and self._can_be_model(Part(s.tree, s.value, s.path))]
        lineage = [each for klass in seen.classes for each in (klass, *self.bases(*klass))]
        names += [name for where, klass in lineage for name, _ in _fields_of(where, klass)]
        for name in dict.fromkeys([*names, _ANY_NAME]):
            yield from (Named(*part, name) for part in self.named(tree, owner, name, at) if self._can_be_model(part))

    def _replaced(self, seen: Seen, name: str) -> Iterator[Part]:
        """`dataclasses.replace(state, net=model)`, `SimpleNamespace(net=model)`, `EasyDict(net=model)`."""
        for where, call in seen.calls:
            library = self._program.symbols.dotted(where, call.func) or ""
            if library.endswith(("dataclasses.replace", "Namespace", "EasyDict")):
                yield from (Part(where, a.value) for a in call.args if a.keyword and a.keyword.value == name)

    def seen(self, tree: Tree, receiver: cst.BaseExpression) -> Seen:
        """The objects that the receiver of an attribute can be."""
        facts = self._facts(tree, receiver)
        known = self._seen.get((receiver, self._values.level))
        if known is None or known[0] is not facts:
            known = self._seen[receiver, self._values.level] = (facts, _joined(facts))
        return known[1]

    def _facts(self, tree: Tree, receiver: cst.BaseExpression) -> tuple[Fact, ...]:
        return self._values.ask(("seen", receiver), lambda: self._find_facts(tree, receiver))

    def _find_facts(self, tree: Tree, receiver: cst.BaseExpression) -> Iterator[Fact]:
        owner = self.class_of_self(tree, receiver)
        if owner is not None:
            yield tree, owner, _Is.SELF
            return
        origins, decisive = self._values.solver.both(lambda: list(self._values.origins(tree, receiver)))
        if decisive == []:
            yield tree, receiver, _Is.UNKNOWN
        for origin in origins:
            if isinstance(origin.node, cst.ClassDef):
                yield origin.tree, origin.node, _Is.CLASS
            elif origin.node is None or isinstance(origin.node, (cst.Param, cst.Subscript)):
                yield tree, receiver, _Is.UNKNOWN
            else:
                yield origin.tree, origin.node, _Is.SITE
                if isinstance(origin.node, cst.Call):
                    yield from self._made_by(origin.tree, origin.node)

    def _made_by(self, tree: Tree, call: cst.Call) -> Iterator[Fact]:
        made, decisive = self._values.solver.both(lambda: self.classes_made(tree, call))
        yield from ((where, owner, self._made(where, owner)) for where, owner in made)
        library = self._program.symbols.dotted(tree, call.func)
        if library is None and decisive == []:
            yield tree, call, _Is.UNKNOWN
        if library == "dataclasses.replace" and call.args:
            yield from self._facts(tree, call.args[0].value)
        if library is not None and self._program.library.is_wrapper(library) and call.args:
            inside = self._facts(tree, call.args[0].value)
            yield from ((where, owner, _Is.INSIDE) for where, owner, kind in inside if kind is _Is.OBJECT)

    def _made(self, tree: Tree, owner: cst.ClassDef) -> _Is:
        """What a call of a class gives: a singleton is the same object for all calls, as the class is."""
        lineage = [owner, *(base for _, base in self.bases(tree, owner))]
        has_metaclass = any(argument.keyword is not None for each in lineage for argument in each.keywords)
        return _Is.CLASS if has_metaclass or self.methods(tree, owner, "__new__") else _Is.OBJECT

    def parent_method(self, tree: Tree, parent: cst.Call, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        """`super().name` in a method; `super(Base, self).name` is that of a base of the class that it names."""
        around = next((node for node in tree.ancestors(parent) if isinstance(node, cst.ClassDef)), None)
        owners: list[Class] = [(tree, around)] if around is not None else []
        if parent.args and not (around is not None and last_name(parent.args[0].value) == around.name.value):
            made = self._values.origins(tree, parent.args[0].value)
            owners = [(origin.tree, origin.node) for origin in made if isinstance(origin.node, cst.ClassDef)]
        above = (base for owner in owners for base in (*self.bases(*owner), *self.beside(*owner)))
        return next(filter(None, (self.methods(*base, name) for base in above)), [])

    def stored_through(self, tree: Tree, setter: cst.FunctionDef) -> Iterator[Part]:
        """What assignments to a property pass to its setter."""
        owner, name = class_of(tree, setter), setter.name.value
        if owner is None:
            return
        mine = _joined([(tree, owner, _Is.SELF)])
        for store in self._candidates(mine, name):
            if self._certainty(mine, None, store) is not None:
                yield Part(store.tree, store.value, store.path)

    def methods(self, tree: Tree, owner: cst.ClassDef, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        """The method that objects of a class run."""
        for where, klass in [(tree, owner), *self.bases(tree, owner)]:
            if klass not in self._methods:
                self._methods[klass] = _methods_of(klass)
            if name in self._methods[klass]:
                return [(where, self._methods[klass][name])]
        return []

    def methods_of(self, tree: Tree, receiver: cst.CSTNode, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        """The methods of this name of an object that `receiver` makes: `__call__`, `__enter__`, `__getitem__`."""
        made = self.classes_made(tree, receiver)
        return [found for where, owner in made for found in self.methods(where, owner, name)]

    def classes_made(self, tree: Tree, node: cst.CSTNode) -> list[Class]:
        if not isinstance(node, cst.Call):
            return []
        is_bare = last_name(node.func) == "__new__" and node.args  # `cls.__new__(cls)`
        made = self._values.origins(tree, node.args[0].value if is_bare else node.func)
        return [(origin.tree, origin.node) for origin in made if isinstance(origin.node, cst.ClassDef)]

    def class_of_self(self, tree: Tree, receiver: cst.BaseExpression) -> cst.ClassDef | None:
        """The class of `self`."""
        if not isinstance(receiver, cst.Name):
            return None
        if receiver not in self._classes_around:
            self._classes_around[receiver] = self._find_class_of_self(tree, receiver)
        return self._classes_around[receiver]

    def _find_class_of_self(self, tree: Tree, receiver: cst.Name) -> cst.ClassDef | None:
        for method in tree.ancestors(receiver):
            if isinstance(method, cst.FunctionDef) and class_of(tree, method) is not None and not is_static(method):
                bound = tree.scope_of[receiver].lookup(receiver.value)
                is_self = receiver.value == first_parameter(method) and bound is not None and bound.node is method
                return class_of(tree, method) if is_self else None
        return None

    def is_self(self, tree: Tree, expression: cst.BaseExpression) -> bool:
        return self.class_of_self(tree, expression) is not None

    def _kept(self, known: dict[K, V], key: K, find: Callable[[], V]) -> V:
        """What is known under a key. What is found for it stays only where nothing of it can still change."""
        if key not in known:
            found, is_whole = self._values.solver.is_whole(find)
            if not is_whole:
                return found
            known[key] = found
        return known[key]

    def _of_class(self, tree: Tree, owner: cst.ClassDef, name: str) -> Sequence[Part | Method]:
        """What the nearest of a class and its bases defines."""
        return self._kept(self._found_in, (owner, name), lambda: self._find_of_class(tree, owner, name))

    def _find_of_class(self, tree: Tree, owner: cst.ClassDef, name: str) -> Sequence[Part | Method]:
        lineage = [(tree, owner), *self.bases(tree, owner)]
        return next(filter(None, (list(self._defined(where, klass, name)) for where, klass in lineage)), [])

    def _defined(self, tree: Tree, owner: cst.ClassDef, name: str) -> Iterator[Part | Method]:
        """A method, what a property gives, or a class within the class."""
        if owner not in self._members:
            self._members[owner] = _members_of(owner)
        for node in self._members[owner].get(name, ()):
            if isinstance(node, cst.ClassDef) or not (is_property(node) or is_setter(node)):
                yield tree, node
            elif is_property(node):
                yield from (Part(tree, returned) for returned in returns(tree, node))

    def heirs(self, tree: Tree, owner: cst.ClassDef) -> list[Class]:
        """The classes that inherit from one: `self` of its methods can be an object of any of them."""
        return self._kept(self._heirs, owner, lambda: self._find_heirs(tree, owner))

    def _find_heirs(self, tree: Tree, owner: cst.ClassDef) -> list[Class]:
        above = {owner, *(base for _, base in self.bases(tree, owner))}
        return [(where, klass) for where, klass in self.family(tree, owner) if klass not in above]

    def _fields(self, tree: Tree, owner: cst.ClassDef, name: str, seen: Seen) -> Iterator[tuple[Part, bool]]:
        """`net: Module` in the body of a class, and what its generated constructor is given for it.

        `self` can be an object of an heir, whose body may say another one. The second is True where each object that
        can be meant is seen to be given one.
        """
        if seen.is_self:
            own = (field for heir in self.heirs(tree, owner) for field in _fields_of(*heir))
            yield from ((part, False) for field, part in own if field == name and part is not None)
        fields = self._inherited_fields(tree, owner)
        if name not in fields:
            return
        yield from ((part, False) for part in fields[name] if part is not None)
        if self.methods(tree, owner, "__init__"):
            return
        order = list(fields)
        classes = [(tree, owner), *(self.heirs(tree, owner) if seen.is_any else ())]
        made = [pair for klass in classes for pair in self._values.callers.calls_of_class(*klass)]
        passed = [(where, call, argument_for(runs(call).arguments, order, name)) for where, call in made]
        given = {call: Part(where, value) for where, call, value in passed if value is not None}
        is_given = not (seen.is_any or seen.is_unknown) and seen.sites <= given.keys()
        yield from ((part, is_given) for call, part in given.items() if seen.is_any or call in seen.sites)

    def _inherited_fields(self, tree: Tree, owner: cst.ClassDef) -> Mapping[str, Sequence[Part | None]]:
        """Those of a class and its bases by name, in the order in which its generated constructor takes them."""
        return self._kept(self._fields_of, owner, lambda: self._find_inherited_fields(tree, owner))

    def _find_inherited_fields(self, tree: Tree, owner: cst.ClassDef) -> Mapping[str, Sequence[Part | None]]:
        found: dict[str, list[Part | None]] = defaultdict(list)
        for where, klass in (*reversed(self.bases(tree, owner)), (tree, owner)):
            for name, part in _fields_of(where, klass):
                found[name].append(part)
        return found

    def element(self, tree: Tree, call: cst.Call, index: int) -> Iterator[cst.BaseExpression]:
        """What a call of a `NamedTuple` class gives for its field of this place."""
        for where, owner in self.classes_made(tree, call):
            if any(last_name(base.value) == "NamedTuple" for base in owner.bases):
                order = [name for name, _ in _fields_of(where, owner)]
                if -len(order) <= index < len(order):
                    value = argument_for(call.args, order, order[index])
                    yield from [] if value is None else [value]

    def _candidates(self, seen: Seen, name: str) -> list[AttributeStore]:
        """The stores that can be for an attribute of this name."""
        key = (name, self._values.level, seen.is_unknown, seen.classes)
        return self._kept(self._setting, key, lambda: list(self._find_candidates(seen, name)))

    def _find_candidates(self, seen: Seen, name: str) -> Iterator[AttributeStore]:
        trees = [where for klass in seen.classes for where, _ in (*self.family(*klass), *self.beside(*klass))]
        trees += self._program.setting(name)
        trees += self._computing(name)
        if seen.is_unknown:
            trees += self._program.wrapping
        for tree in dict.fromkeys(trees):
            yield from self._stores_of(tree).get(name, ())
            yield from (store for store, names in self._computed_in(tree) if names is None or name in names)
            yield from (store.of_name(name) for store in self._stores_of(tree).get(TABLES, ()) if name != _ANY_NAME)

    def _computing(self, name: str) -> list[Tree]:
        """The files that set attributes by names that are computed, as far as this can be one."""
        if name not in self._by_computed_name:
            trees = self._program.mentioning("setattr", "__setattr__", "__dict__", "vars")
            found = [tree for tree in trees if not self._stores_of(tree).keys().isdisjoint({name, None, TABLES})]
            self._by_computed_name[name] = found
        return self._by_computed_name[name]

    def _computed_in(self, tree: Tree) -> list[tuple[AttributeStore, set[str] | None]]:
        """The stores of a file under computed names, with these; None: any, and what is stored is a model."""
        return self._kept(self._unnamed, (tree, self._values.level), lambda: list(self._find_computed(tree)))

    def _find_computed(self, tree: Tree) -> Iterator[tuple[AttributeStore, set[str] | None]]:
        for store in self._stores_of(tree).get(None, ()):
            names = {store.key} if isinstance(store.key, str) else self.names(store.tree, store.key)
            if names or (names is None and self._holds_model(Part(tree, store.value, store.path))):
                yield store, names

    def is_set_by_name(self, tree: Tree, owner: cst.BaseExpression, sources: Sequence[Part | Method]) -> bool:
        """Whether a setting of an object can be set under a name that nobody sees: `setattr(config, name, value)`.

        Of what is made, a model or a part of one, it is not asked: it would be every attribute of the classes that keep
        their arguments like this.
        """
        if not all(isinstance(source, Part) and self._is_constant(source) for source in sources):
            return False
        seen = self.seen(tree, owner)
        key = (self._values.level, seen.classes, seen.sites, seen.is_any)
        return self._kept(self._set_by_name, key, lambda: self._is_any_set(seen))

    def _is_any_set(self, seen: Seen) -> bool:
        trees = self._program.mentioning("setattr", "__setattr__")
        computed = (store for where in trees for store in self._stores_of(where).get(None, ()))
        return any(self._can_be_same(seen, self._owner(each)) and not self._is_named(each) for each in computed)

    def _is_constant(self, part: Part) -> bool:
        """`None`, `False`, `"full"`, `ShardingStrategy.FULL_SHARD`."""
        node = part.node
        if isinstance(node, cst.Name) and node.value in ("True", "False", "None"):
            return True
        is_named = isinstance(node, (cst.Name, cst.Attribute)) and self._program.symbols.dotted(part.tree, node)
        return bool(is_named) or isinstance(node, (cst.BaseNumber, cst.BaseString))

    def stores_named(self, name: str) -> Iterator[AttributeStore]:
        """Where an attribute of this name is set, of anything but `self`."""
        for tree in self._program.setting(name):
            yield from self._stores_of(tree).get(name, ())

    def _stores_of(self, tree: Tree) -> Mapping[str | None, list[AttributeStore]]:
        if tree not in self._stores:
            self._stores[tree] = stores_in(tree)
        return self._stores[tree]

    def _certainty(self, seen: Seen, method: cst.FunctionDef | None, store: AttributeStore) -> bool | None:
        """Whether a store sets the attribute of an object that is seen; None when it cannot."""
        other = self._owner(store)
        if other.is_self and seen.is_self and method is not None and self._is_overridden(seen, other, method):
            return None
        if self._can_be_same(seen, other):
            return self._is_named(store)
        if store.is_item or not self._is_named(store):
            return None  # whose it is, and which: it would be every attribute of the program
        return False if seen.is_unknown or other.is_unknown else None

    def _owner(self, store: AttributeStore) -> Seen:
        return self._values.test(lambda: self.seen(store.tree, store.owner), lambda: self._seen_plainly(store))

    def _can_be_same(self, seen: Seen, other: Seen) -> bool:
        return bool(seen.sites & other.sites) or ((seen.is_any or other.is_any) and self._are_related(seen, other))

    def _seen_plainly(self, store: AttributeStore) -> Seen:
        owner = self.class_of_self(store.tree, store.owner)
        return _joined([(store.tree, owner or store.owner, _Is.SELF if owner is not None else _Is.UNKNOWN)])

    def _is_overridden(self, seen: Seen, other: Seen, method: cst.FunctionDef) -> bool:
        """Whether objects for which the store runs never run the method of the use."""
        (_, owner), (where, relative) = seen.classes[0], other.classes[0]
        is_heir = any(base is owner for _, base in self.bases(where, relative))
        return is_heir and overrides(where, relative, owner, method)

    def _is_named(self, store: AttributeStore) -> bool:
        return isinstance(store.key, str) or self.names(store.tree, store.key) is not None

    def names(self, tree: Tree, key: cst.BaseExpression) -> set[str] | None:
        """The texts that an expression can be; None: any."""
        values = self._values

        def find() -> set[str] | None:
            return values.test(lambda: values.solver.decide(lambda: self._names_computed(tree, key), set()), set)

        return self._kept(self._computed, (key, values.level), find)

    def _names_computed(self, tree: Tree, key: cst.BaseExpression) -> set[str] | None:
        made = [origin.node for origin in self._values.origins(tree, key)]
        found = {str(node.evaluated_value) for node in made if isinstance(node, cst.SimpleString)}
        # What a loop binds is never known to be all: what is seen of it has to do.
        is_known = found and all(node is None or isinstance(node, cst.SimpleString) for node in made)
        return found if is_known else None

    def _are_related(self, seen: Seen, other: Seen) -> bool:
        owners = [owner for _, owner in other.classes]
        return bool(owners) and not self._relatives(seen.classes).isdisjoint(owners)

    def _relatives(self, classes: tuple[Class, ...]) -> frozenset[cst.ClassDef]:
        """Whose objects can be objects of one of these classes, or be their `self`."""
        return self._kept(self._related, classes, lambda: self._find_relatives(classes))

    def _find_relatives(self, classes: tuple[Class, ...]) -> frozenset[cst.ClassDef]:
        if len(classes) > 1:
            return frozenset[cst.ClassDef]().union(*(self._relatives((each,)) for each in classes))
        return frozenset(owner for each in classes for _, owner in (*self.family(*each), *self.beside(*each)))

    def _holds_model(self, part: Part) -> bool:
        return self._values.test(lambda: self._can_be_model(part), lambda: False)

    def _can_be_model(self, part: Part) -> bool:
        held = [self._values.is_model(origin) for origin in self._values.of_part(part)]
        return any(held)

    def family(self, tree: Tree, owner: cst.ClassDef) -> list[Class]:
        """A class, the program's classes it inherits from, and those that inherit from it."""
        return self._kept(self._families, owner, lambda: self._find_family(tree, owner))

    def _find_family(self, tree: Tree, owner: cst.ClassDef) -> list[Class]:
        found = [(tree, owner), *self.bases(tree, owner)]
        looked_at = {each for _, each in found}
        names = [owner.name.value]
        for name in names:  # grows: who inherits from an heir may never name the owner
            for where in self._program.inheriting(name):
                for other in where.nodes(cst.ClassDef):
                    if other in looked_at or not self._may_inherit(where, other, name):
                        continue
                    looked_at.add(other)
                    if any(base is owner for _, base in self.bases(where, other)):
                        found.append((where, other))
                        names.append(other.name.value)
        return found

    def _may_inherit(self, tree: Tree, heir: cst.ClassDef, name: str) -> bool:
        """Whether a base of a class has this name, or one that may stand for any: where bases lead is asked of few."""
        names = [None if base.star else last_name(base.value) for base in heir.bases]
        if not names or name in names or None in names:
            return bool(names)
        if isinstance(tree.scope_of[heir].node, cst.FunctionDef) or self._program.names_anew(tree, name):
            return True
        return not all(self._program.defines_class(each) for each in names if each is not None)

    def beside(self, tree: Tree, owner: cst.ClassDef) -> list[Class]:
        """The other classes that its heirs inherit from: `self` of a mixin is an object of those, too."""
        return self._kept(self._beside, owner, lambda: list(self._find_beside(tree, owner)))

    def _find_beside(self, tree: Tree, owner: cst.ClassDef) -> Iterator[Class]:
        known = [klass for _, klass in self.family(tree, owner)]
        others = (base for heir in self.heirs(tree, owner) for base in self.bases(*heir))
        yield from (klass for klass in dict.fromkeys(others) if klass[1] not in known)

    def bases(self, tree: Tree, owner: cst.ClassDef) -> list[Class]:
        """The program's classes that a class inherits from, nearest first."""
        if owner in self._bases:
            return self._bases[owner]
        found, decisive = self._values.plainly(
            lambda: self._values.solver.both(lambda: list(self._find_bases(tree, owner, {owner})))
        )
        if found is decisive:
            self._bases[owner] = found
        return decisive or []

    def _find_bases(self, tree: Tree, owner: cst.ClassDef, known: set[cst.ClassDef]) -> Iterator[Class]:
        for argument in owner.bases:
            for origin in self._values.origins(tree, argument.value):
                if isinstance(origin.node, cst.ClassDef) and origin.node not in known:
                    known.add(origin.node)
                    yield origin.tree, origin.node
                    yield from self._find_bases(origin.tree, origin.node, known)


def _joined(facts: Iterable[Fact]) -> Seen:
    classes: dict[Class, None] = {}
    inside: dict[Class, None] = {}
    sites: dict[cst.CSTNode, Tree] = {}
    kinds = {kind for _, _, kind in facts}
    for tree, node, kind in facts:
        if kind is _Is.SITE:
            sites[node] = tree
        elif kind is _Is.INSIDE:
            inside[tree, cst.ensure_type(node, cst.ClassDef)] = None
        elif isinstance(node, cst.ClassDef):
            classes[tree, node] = None
    calls = tuple((tree, node) for node, tree in sites.items() if isinstance(node, cst.Call))
    is_any = not kinds.isdisjoint({_Is.SELF, _Is.CLASS})
    return Seen(tuple(classes), frozenset(sites), is_any, _Is.SELF in kinds, _Is.UNKNOWN in kinds, calls, tuple(inside))


def is_container(node: cst.CSTNode) -> bool:
    """`{}`, `[]`, `dict()`, and `field(default_factory=dict)`, which stands for a container of each object."""
    if isinstance(node, cst.Call):
        return last_name(node.func) in {"OrderedDict", "defaultdict", "deque", "dict", "field", "list", "set"}
    return isinstance(node, (cst.Dict, cst.List, cst.Set))


def _methods_of(owner: cst.ClassDef) -> Mapping[str, cst.FunctionDef]:
    """The methods that stand in a class, of several of one name the first; setters are none."""
    functions = [node for node in owner.body.body if isinstance(node, cst.FunctionDef) and not is_setter(node)]
    return {function.name.value: function for function in reversed(functions)}


def _members_of(owner: cst.ClassDef) -> Mapping[str, Sequence[cst.FunctionDef | cst.ClassDef]]:
    """The functions and classes that stand in a class, by name."""
    found: dict[str, list[cst.FunctionDef | cst.ClassDef]] = defaultdict(list)
    for node in owner.body.body:
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            found[node.name.value].append(node)
    return found


def _fields_of(tree: Tree, owner: cst.ClassDef) -> Iterator[tuple[str, Part | None]]:
    for line in owner.body.body:
        for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                yield small.target.value, Part(tree, small.value) if small.value is not None else None
            elif isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
                yield small.targets[0].target.value, Part(tree, small.value)
