"""What a codemod is told about a file: the analysis behind the vocabulary's `Context`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from keyword import iskeyword
from pathlib import Path
from typing import cast

import libcst as cst

from codemods.api import SUPPORT, Context, Import, ModelKind, Options, Origin, Reference, Wrapping
from codemods.reading.code.scripts import is_script
from codemods.reading.models.plain_objects import is_plain_self
from codemods.reading.wrappers.inner_module import is_asked_for
from codemods.tables.names import TAKES_MODEL_FIRST, fsdp1_name, present_name

from ..pyanalysis.annotations import annotated_classes
from ..pyanalysis.calls import argument_for, parameters
from ..pyanalysis.conditions import Conditions
from ..pyanalysis.evaluated import annotated_names, evaluated_names, named_paths
from ..pyanalysis.order import Order
from ..pyanalysis.origin import Origin as Made
from ..pyanalysis.program import Program
from ..pyanalysis.scopes import ANY, EACH, Binding, Binds, Scope, Some
from ..pyanalysis.stores import AttributeStore
from ..pyanalysis.symbols import Outside
from ..pyanalysis.tree import Tree
from ..pyanalysis.uses import is_whole, same_meaning, uses
from ..pyanalysis.values import Values
from .class_tests import class_test, is_excluded, is_given_to_wrapper
from .holders import holds_parts, parts_wrapped
from .loading import Loading
from .model_kinds import kind_of, kinds_of
from .not_yet import is_wrapped_below
from .other_classes import is_of_another_class
from .own_makers import is_made_by_another
from .settled import Settled
from .sites import WrapFacts
from .source import ParsedSource

_NO_MODELS = ("torch.optim.", "torch.utils.data.", "torch.Tensor", "torch.amp.", "torch.cuda.amp.")
"""Classes whose objects are no modules."""
_INSIDE = frozenset({"module", "_orig_mod"})
"""What DDP, and torch.compile, call the model inside of them."""
_DEPTH = 3
"""How many wrappers, one in another, are looked into."""
_MAY_BE_FSDP = frozenset({ModelKind.FSDP, ModelKind.UNKNOWN})


class ProgramModel:
    """The analysis of a program, a `FileContext` a file. What it says follows from the sources alone."""

    def __init__(
        self,
        program: Program,
        options: Options | None = None,
        groups: Iterable[Collection[Path]] = (),
        graph: Mapping[Path, Sequence[Path]] | None = None,
    ) -> None:
        """`groups` are the files that belong together; what one of them says is nothing to another.

        `graph` tells what each file imports, where that is known.
        """
        self.program = program
        self.loading = Loading(program, groups, graph, lambda tree: is_script(self.file(tree)))
        self.options = options or Options()
        self.values = Values(program, self._is_model)
        self.conditions = Conditions(self.values)
        self.wrapping = WrapFacts(program, self.file, self.loading.running_with, self.loading.handing_to)
        self.order = Order(self.values, self.conditions.exclude)
        self.settled = Settled()
        self.fsdp1: dict[cst.BaseExpression, str | None] = {}
        self.references: dict[Tree, Sequence[tuple[Reference, str]]] = {}
        self._files: dict[Tree, FileContext] = {}
        self._handed: dict[Tree, bool] = {}

    def unfinished(self) -> Sequence[tuple[Tree, cst.CSTNode]]:
        """Where more leads to a value than is followed, in the order of the text."""
        found = [(self.program.holder(node), node) for node in dict.fromkeys(self.values.unfinished())]
        return sorted(found, key=lambda each: (self.program.place(each[0].path), each[0].order[each[1]]))

    @cached_property
    def parts_wrapped(self) -> Sequence[tuple[Context, cst.CSTNode, cst.BaseExpression]]:
        """Where a wrapped module becomes a part of something, and of what."""
        own = (file for file in self.wrapping.naming if file.path not in self.wrapping.foreign)
        return parts_wrapped(own)

    def may_hand_models(self, tree: Tree) -> bool:
        """Whether a model that is wrapped anywhere, and is not followed, can come to a file; one that speaks of FSDP1
        may be handed a library's."""
        if tree not in self._handed:
            near = [
                site.file for site in self.wrapping.sites if self._may_hand(cast("FileContext", site.file).tree, tree)
            ]
            is_near = bool(near) and self.loading.meets(tree.path, (file.path for file in near))
            self._handed[tree] = is_near or (self.wrapping.is_any and any(self.file(tree).references()))
        return self._handed[tree]

    def _may_hand(self, wrapping: Tree, tree: Tree) -> bool:
        loads = self.loading.loaded_by_test(wrapping.path)
        return not self.loading.are_apart(wrapping, tree) and (loads is None or tree.path in loads)

    def _is_model(self, made: Made) -> bool:
        file = self.file(made.tree)
        if isinstance(made.node, cst.Call) and file.fsdp1(made.node.func) == "wrap":
            return True  # whether anything is wrapped in the program may be what is being asked
        return kind_of(_origin(made, file)) in {ModelKind.FSDP, ModelKind.DDP}

    def file(self, tree: Tree) -> FileContext:
        if tree not in self._files:
            self._files[tree] = FileContext(tree, self, self.file)
        return self._files[tree]


class FileContext(ParsedSource):
    """One file; implements `codemods.api.Context`."""

    def __init__(self, tree: Tree, model: ProgramModel, files: Callable[[Tree], FileContext]) -> None:
        """`files` gives the contexts of other files, of the same kind as this one."""
        super().__init__(tree)
        self._facts = model
        self._file = files
        self._program = model.program
        self._together = model.loading.together(tree.path)
        self._kinds: dict[cst.BaseExpression, frozenset[ModelKind]] = {}
        self.answers: dict[object, object] = {}

    def bare_span(self, node: cst.CSTNode) -> tuple[int, int]:
        return self.tree.bare_span(node)

    def dotted(self, node: cst.BaseExpression) -> str | None:
        return self._program.symbols.dotted(self.tree, node)

    def fsdp1(self, node: cst.BaseExpression) -> str | None:
        known = self._facts.fsdp1
        if node not in known:  # each rule asks this of each name
            dotted = self.dotted(node)
            known[node] = fsdp1_name(dotted) if dotted is not None else None
        return known[node]

    def annotated(self, parameter: cst.Param) -> Sequence[str]:
        return annotated_classes(self._program.symbols, self.tree, parameter)

    def origins(self, node: cst.BaseExpression) -> Sequence[Origin]:
        found = self._facts.values.origins(self.tree, node)
        if not found:
            # Bound by a comprehension or an `except`, or only by itself: no origin is not the same as no value.
            return [Origin(self, None, f"`{self.code(node)}` is not followed")]
        return [_origin(made, self._file(made.tree)) for made in found]

    def elements(self, node: cst.BaseExpression) -> Sequence[Origin]:
        return self._parts(node, EACH)

    def items(self, node: cst.BaseExpression) -> Sequence[Origin]:
        return self._parts(node, ANY)

    def _parts(self, node: cst.BaseExpression, step: Some) -> Sequence[Origin]:
        return [_origin(made, self._file(made.tree)) for made in self._facts.values.origins(self.tree, node, (step,))]

    def bound(self, name: cst.Name) -> Sequence[tuple[FileContext, cst.BaseExpression]] | None:
        found = self._facts.values.bound(self.tree, name)
        return None if found is None else [(self._file(tree), value) for tree, value in found]

    def kinds(self, node: cst.BaseExpression) -> frozenset[ModelKind]:
        if node not in self._kinds:  # several rules ask this of each call on the way
            self._kinds[node] = self._find_kinds(node)
        return self._kinds[node]

    def _find_kinds(self, node: cst.BaseExpression) -> frozenset[ModelKind]:
        if isinstance(node, cst.Name) and self._is_annotated_otherwise(node):
            return frozenset({ModelKind.OTHER})
        tested = class_test(self, node)
        if isinstance(node, cst.Attribute) and node.attr.value == "module":
            if is_asked_for(node, self):
                return frozenset({ModelKind.OTHER})  # no FSDP2 model comes there: it has no such attribute
            if tested is None:
                tested = class_test(self, node.value)  # what is asked is the model itself
            if self.kinds(node.value) == {ModelKind.DDP}:
                return frozenset({ModelKind.OTHER})
        if tested is not None and ModelKind.FSDP in tested:
            return tested
        if is_plain_self(self, node):
            return frozenset({ModelKind.OTHER})
        origins = [origin for origin in self.origins(node) if not self._is_elsewhere(origin, node)]
        origins = [origin for origin in origins if not self._is_another_self(origin, node)]
        origins = [origin for origin in origins if not self._is_anothers(origin, node)]
        held = frozenset(kind for origin in origins for kind in kinds_of(origin))
        if ModelKind.UNKNOWN in held and self._is_seen_as_ddps(node, origins):
            held = held - {ModelKind.UNKNOWN} | {ModelKind.OTHER}
        if self._facts.values.objects.is_self(self.tree, node):
            held -= {ModelKind.UNKNOWN}  # whoever calls the method: an object of this class
        is_open = held == {ModelKind.UNKNOWN} or (
            self._is_parameter(node) and not held & {ModelKind.FSDP, ModelKind.DDP}
        )  # whatever else calls of a method of that name pass: FSDP1 took nothing but a model there
        if is_open and is_given_to_wrapper(self, node):
            held |= {ModelKind.FSDP}
        is_unsure = ModelKind.FSDP in held and self._facts.wrapping.is_any
        if not is_unsure and not self._facts.may_hand_models(self.tree):
            # Nothing is wrapped in this program: what is not followed is not an FSDP model either.
            held -= {ModelKind.UNKNOWN}
        if held & _MAY_BE_FSDP and tested is None and is_excluded(self, node):
            return _but_fsdp(held)
        if tested is not None or (held & _MAY_BE_FSDP and self._is_where_nothing_is_wrapped(node)):
            return _but_fsdp(held)
        if held > {ModelKind.FSDP} and self._facts.settled.is_wrapped_by_then(self, node):
            return frozenset({ModelKind.FSDP})
        return held

    def stores(self, node: cst.Attribute) -> Sequence[tuple[FileContext, AttributeStore]]:
        """What can have set an attribute."""
        found = self._facts.values.objects.stores(self.tree, node.value, node.attr.value, node)
        return [(self._file(store.tree), store) for store in found]

    def _is_parameter(self, node: cst.BaseExpression) -> bool:
        bindings = self.tree.scope_of[node].bindings.get(node.value, ()) if isinstance(node, cst.Name) else ()
        return any(binding.how is Binds.PARAMETER for binding in bindings)

    def _is_seen_as_ddps(self, node: cst.BaseExpression, origins: Sequence[Origin]) -> bool:
        """Whether all that is not known of it is what a function took out of a DDP model: `model.module`."""
        if any(each.node is not None and ModelKind.UNKNOWN in kinds_of(each) for each in origins):
            return False
        unknown = [made for made in self._facts.values.origins(self.tree, node) if made.node is None]
        return bool(unknown) and all(self._is_inside_of_ddp(made) for made in unknown)

    def _is_inside_of_ddp(self, made: Made, depth: int = _DEPTH) -> bool:
        """`model.module` of a DDP model, or of one that is none or not wrapped; `model._orig_mod` of such a one."""
        if made.read is None or made.read.attr.value not in _INSIDE:
            return False
        file = self._file(made.tree)
        if file.is_ddps(made.read.value):
            return True
        around = file._facts.values.origins(file.tree, made.read.value)
        return bool(around) and all(
            not kinds_of(_origin(each, self._file(each.tree))) & _MAY_BE_FSDP
            if each.node is not None
            else depth > 0 and self._is_inside_of_ddp(each, depth - 1)
            for each in around
        )

    def is_ddps(self, model: cst.BaseExpression) -> bool:
        """Whether it is a DDP model, as it was made, or by the tests around it."""
        ddp = frozenset({ModelKind.DDP})
        return class_test(self, model) == ddp or all(kinds_of(each) == ddp for each in self.origins(model))

    def _is_another_self(self, origin: Origin, node: cst.BaseExpression) -> bool:
        """Whether a wrapped model runs no method of the class whose `self` this is, or `self.module`."""
        if kind_of(origin) is not ModelKind.FSDP:
            return False
        while isinstance(node, cst.Attribute) and node.attr.value in self._program.library.inner:
            node = node.value
            if all(made.node is not origin.node for made in self.origins(node)):
                return False  # `self.module` of an object that keeps its model under this name
        owner = self._facts.values.objects.class_of_self(self.tree, node)
        return owner is not None and is_of_another_class(self, origin, [Origin(self, owner)])

    def _is_anothers(self, origin: Origin, node: cst.BaseExpression) -> bool:
        """Whether another class has wrapped it, whose objects take it back themselves."""
        return kind_of(origin) in {ModelKind.FSDP, ModelKind.DDP} and is_made_by_another(self, origin, node)

    def _is_where_nothing_is_wrapped(self, node: cst.BaseExpression) -> bool:
        """Whether a run that comes here makes no FSDP model at all: `if args.zero:` wraps, and this is its `else`."""
        conditions, calls = self._facts.conditions, self._facts.wrapping.calls(self.path)
        return (
            bool(calls)
            and conditions.says_anything(self.tree, node)
            and all(conditions.exclude(self.tree, node, cast("FileContext", file).tree, call) for file, call in calls)
        )

    def _is_annotated_otherwise(self, name: cst.Name) -> bool:
        """Whether it is a parameter that is said to be no model: `optimizer: Optional[torch.optim.Optimizer]`."""
        scope = self.tree.scope_of[name].lookup(name.value)
        bindings = scope.bindings[name.value] if scope is not None else []
        if len(bindings) != 1 or not isinstance(bindings[0].node, cst.Param):
            return False
        classes = self.annotated(bindings[0].node)
        return bool(classes) and all(each.startswith(_NO_MODELS) for each in classes)

    def holds_parts(self, node: cst.BaseExpression) -> bool:
        return self._facts.may_hand_models(self.tree) and holds_parts(self, node)

    def excludes(self, node: cst.CSTNode, other: cst.CSTNode) -> bool:
        return self._facts.conditions.exclude(self.tree, node, self.tree, other)

    def is_met_where_wrapped(self, test: cst.BaseExpression) -> bool:
        conditions, calls = self._facts.conditions, self._facts.wrapping.calls(self.path)
        return bool(calls) and all(conditions.meets(self.tree, test, cast("FileContext", f).tree, c) for f, c in calls)

    @property
    def parts_wrapped(self) -> Sequence[tuple[Context, cst.CSTNode, cst.BaseExpression]]:
        """Where the program makes a wrapped module a part of something, and of what."""
        return self._facts.parts_wrapped

    @property
    def loaded_with(self) -> Collection[Path]:
        """The files that some script loads together with this one."""
        return self._facts.loading.running_with(self.path)

    def comes_before(self, node: cst.CSTNode, file: Context, other: cst.CSTNode) -> bool:
        """Whether `other`, in the same or another file, never ran when the program comes to `node`."""
        return self._facts.order.precedes(self.tree, node, cast("FileContext", file).tree, other)

    def family(self, owner: Origin) -> list[Origin]:
        """A class, those of the program that it inherits from, and those that inherit from it."""
        tree, node = cast("FileContext", owner.file).tree, cst.ensure_type(owner.node, cst.ClassDef)
        return [Origin(self._file(where), each) for where, each in self._facts.values.objects.family(tree, node)]

    def lineage(self, file: Context, owner: cst.ClassDef) -> list[cst.ClassDef]:
        """A class, and those of the program that it inherits from."""
        bases = self._facts.values.objects.bases(cast("FileContext", file).tree, owner)
        return [owner, *(base for _, base in bases)]

    @cached_property
    def given_to_wrapper(self) -> Mapping[str, Sequence[cst.BaseExpression]]:
        """By their text: the models that the file hands to static methods of FSDP."""
        found: dict[str, list[cst.BaseExpression]] = defaultdict(list)
        for node, name in self.references():
            call = self.parent(node)
            if name in TAKES_MODEL_FIRST and isinstance(call, cst.Call) and call.func is node and call.args:
                found[self.code(call.args[0].value)].append(call.args[0].value)
        return found

    def _is_elsewhere(self, origin: Origin, node: cst.BaseExpression) -> bool:
        """Whether a model that is wrapped at `origin` never comes to `node`: another script or way, or further down."""
        call = origin.node
        if not isinstance(call, cst.Call) or kind_of(origin) not in {ModelKind.FSDP, ModelKind.DDP}:
            return False
        tree = cast("FileContext", origin.file).tree
        if self._facts.loading.are_apart(tree, self.tree):
            return True
        return self._is_set_below(tree, call, node) or self._facts.order.precedes(self.tree, node, tree, call)

    def _is_set_below(self, tree: Tree, call: cst.Call, node: cst.BaseExpression) -> bool:
        """`use(self.model)`, then `self.model = FSDP(self.model)` in the same function, or what a helper returns."""
        if isinstance(node, cst.Name):
            return tree is self.tree and is_wrapped_below(self, call, node)
        if tree is self.tree and tree.scope_of[call] is tree.scope_of[node]:
            statement = next((n for n in tree.ancestors(call) if isinstance(n, cst.Assign)), None)
            bindings = [statement] if statement is not None else []
        else:
            bindings = self._bound_by_helper(call, node)
        return bool(bindings) and all(self._is_bound_below(each, node) for each in bindings)

    def _bound_by_helper(self, call: cst.Call, node: cst.BaseExpression) -> list[cst.Assign]:
        """The statements of a function that alone bind this place to what comes of a constructor call elsewhere."""
        if not isinstance(node, cst.Attribute):
            return []
        text, scope = self.code(node), self.tree.scope_of[node]
        near = (each for each in self.tree.nodes(cst.Assign) if self.tree.scope_of[each] is scope)
        named = {each.value: each for each in near if [self.code(t.target) for t in each.targets] == [text]}
        stores = self._facts.values.objects.stores(self.tree, node.value, node.attr.value, node) if named else ()
        binding = [store for store in stores if self._binds(store, call)]
        return [named[store.value] for store in binding] if all(each.value in named for each in binding) else []

    def _binds(self, store: AttributeStore, call: cst.Call) -> bool:
        """Whether what comes of a call becomes an attribute here; `self.net = self.net.to(0)` hands on what it was."""
        values = self._facts.values
        kept = store.value
        while (same := values.ways.same(store.tree, kept)) is not None:
            kept = same
        if isinstance(kept, cst.Attribute) and kept.attr.value == store.key:
            return False
        return any(origin.node is call for origin in values.origins(store.tree, store.value, store.path))

    def _is_bound_below(self, statement: cst.Assign, node: cst.BaseExpression) -> bool:
        tree = self.tree
        if tree.order[node] > tree.order[statement] and not tree.contains(statement, node):
            return False
        targets = [each.target for each in statement.targets]
        return self.code(node) in map(self.code, targets) and node not in targets

    @property
    def options(self) -> Options:
        return self._facts.options

    @property
    def wrapping(self) -> Wrapping:
        return self._facts.wrapping

    def references(self) -> Iterator[tuple[Reference, str]]:
        known = self._facts.references
        if self.tree not in known:  # each check asks for them
            known[self.tree] = list(self._references())
        return iter(known[self.tree])

    def _references(self) -> Iterator[tuple[Reference, str]]:
        for node in self._program.symbols.candidates(self.tree):
            parent = self.parent(node)
            if isinstance(node, cst.Name) and iskeyword(node.value):
                continue
            if isinstance(node, cst.Name) and isinstance(parent, cst.AssignTarget):
                continue
            if isinstance(parent, cst.Arg) and parent.keyword is node:
                continue
            if isinstance(parent, cst.Attribute) and (parent.attr is node or self.fsdp1(parent) is not None):
                continue
            name = self.fsdp1(node)
            if name is None:
                continue
            if not any(isinstance(ancestor, (cst.Import, cst.ImportFrom)) for ancestor in self.ancestors(node)):
                yield node, name

    def evaluated(self) -> Iterator[tuple[cst.BaseExpression, str]]:
        """The strings that are evaluated, or looked up as a path, with the FSDP1 constructs that they name."""
        yield from self._constructs(evaluated_names(self.tree))
        for literal, path in named_paths(self.tree):
            construct = fsdp1_name(path)
            if construct is not None:
                yield literal, construct

    def quoted(self) -> Iterator[tuple[cst.BaseExpression, str]]:
        """The same for annotations in quotes."""
        return self._constructs(annotated_names(self.tree))

    def _constructs(self, names: Iterable[tuple[cst.BaseExpression, str]]) -> Iterator[tuple[cst.BaseExpression, str]]:
        for node, name in names:
            scope = self.tree.scope_of[node].lookup(name)
            for binding in scope.bindings[name] if scope is not None else ():
                symbol = self._program.symbols.of_binding(self.tree, binding) if binding.how is Binds.IMPORT else None
                construct = fsdp1_name(symbol.dotted) if isinstance(symbol, Outside) else None
                if construct is not None:
                    yield node, construct

    def references_to(self, definition: cst.FunctionDef | cst.ClassDef) -> Iterator[tuple[FileContext, Reference]]:
        return self.reading(definition.name.value, definition)

    def reading(self, name: str, value: cst.CSTNode) -> Iterator[tuple[FileContext, Reference]]:
        names = sorted(self._program.known_as(name))
        for tree in self._program.mentioning(*names):
            file = self._file(tree)
            for node in tree.named(*names):
                if is_whole(tree, node):
                    if any(origin.node is value for origin in self._facts.values.origins(tree, node)):
                        yield file, node

    def uses(self, node: cst.CSTNode) -> Sequence[cst.Name]:
        return uses(self.tree, node)

    def named(self, item: Import, at: cst.CSTNode) -> Import:
        item = replace(item, alias=self._name_here(item, at) or item.alias)
        scope: Scope | None = self.tree.scope_of[at]
        while scope is not None:
            if any(not self._is_import_of(item, binding) for binding in scope.bindings.get(item.local, ())):
                return replace(item, alias=f"fsdp2_{item.local}")
            scope = scope.parent
        return item

    def _name_here(self, item: Import, at: cst.CSTNode) -> str | None:
        """What the file calls a module already, `tdist` or `th`, where it goes by one name and by nothing else."""
        bound = (
            (name, bindings)
            for name, bindings in self.tree.scope.bindings.items()
            if not item.name and all(self._is_import_of(item, binding) for binding in bindings)
        )
        lookup = self.tree.scope_of[at].lookup
        names = [name for name, _ in bound if lookup(name) is self.tree.scope]
        return None if item.local in names else next(iter(names), None)

    def _is_import_of(self, item: Import, binding: Binding) -> bool:
        """Whether a binding is this very import. Of the project's own modules only the support module can be."""
        if binding.how is not Binds.IMPORT:
            return False
        wanted = f"{item.module}.{item.name}" if item.name else item.module
        symbol = self._program.symbols.of_binding(self.tree, binding)
        if isinstance(symbol, Outside):
            return present_name(symbol.dotted) == wanted
        return item.module == SUPPORT

    def same_meaning(self, expression: cst.BaseExpression, at: cst.CSTNode) -> bool:
        return same_meaning(self.tree, expression, at)

    def is_imported(self, name: cst.Name) -> bool:
        scope = self.tree.scope_of[name].lookup(name.value)
        return scope is not None and any(b.how is Binds.IMPORT for b in scope.bindings[name.value])

    def is_local(self, name: str, at: cst.CSTNode) -> bool:
        return name in self.tree.scope_of[at].bindings

    def passed_to(self, node: cst.CSTNode, name: str) -> Sequence[tuple[FileContext, cst.Call, cst.BaseExpression]]:
        function = self.scope(node)
        if not isinstance(function, cst.FunctionDef):
            return ()
        values, found = self._facts.values, []
        for tree, call, run, bound, by_alias in values.callers.of(self.tree, function):
            argument = argument_for(run.arguments, parameters(function, bound), name)
            if argument is not None and not (by_alias and values.shifts(tree, call.func)):
                found.append((self._file(tree), call, argument))
        return found

    def callers(self, node: cst.CSTNode) -> Sequence[tuple[FileContext, cst.Call]]:
        function = self.scope(node)
        if not isinstance(function, cst.FunctionDef):
            return ()
        return [(self._file(site.tree), site.call) for site in self._facts.values.callers.of(self.tree, function)]

    def called_as_named(self, definition: cst.FunctionDef | cst.ClassDef) -> Iterator[tuple[FileContext, cst.Call]]:
        found = self._facts.values.callers.named(self.tree, definition)
        return ((self._file(tree), call) for tree, call in found)

    def runs(self, call: cst.Call) -> Sequence[tuple[FileContext, cst.FunctionDef]]:
        return [(self._file(tree), node) for tree, node in self._facts.values.functions(self.tree, call.func)]

    def mentions(self, *words: str) -> bool:
        return self._program.mentions(*words, within=self._together)

    def passing(self, keyword: str) -> Sequence[tuple[FileContext, cst.Call]]:
        found = self._arguments(keyword)
        return [(self._file(tree), cst.ensure_type(tree.parents[a], cst.Call)) for tree, a in found]

    def _arguments(self, keyword: str) -> Iterator[tuple[Tree, cst.Arg]]:
        for tree in self._program.mentioning(keyword, within=self._together):
            for node in tree.nodes(cst.Arg):
                if node.keyword is not None and node.keyword.value == keyword:
                    yield tree, node

    def attributes(self, *names: str) -> Sequence[tuple[FileContext, cst.Attribute]]:
        trees = self._program.mentioning(*names, within=self._together)
        return [(self._file(tree), node) for tree in trees for name in names for node in tree.attributes(name)]

    def files(self, word: str) -> Iterator[FileContext]:
        return map(self._file, self._program.mentioning(word, within=self._together))

    def defines(self, name: str) -> bool:
        return self._program.defines(name)

    def mentions_elsewhere(self, word: str) -> bool:
        return self._program.mentions(word, within=frozenset(self._together) - {self.path})

    def is_read_elsewhere(self, name: str) -> bool:
        return self.mentions_elsewhere(name) and self._facts.loading.is_imported(self.path)


def _but_fsdp(held: frozenset[ModelKind]) -> frozenset[ModelKind]:
    """What is left where a test says that it is no FSDP model; what is not seen is none either."""
    known = held - {ModelKind.FSDP, ModelKind.UNKNOWN}
    return known | {ModelKind.OTHER} if ModelKind.UNKNOWN in held else known


def _origin(made: Made, file: FileContext) -> Origin:
    """As the rule API has it: what a parameter takes that no call gives is no expression that a rule could read."""
    is_given = isinstance(made.node, cst.Param) and bool(made.reason)
    return Origin(file, None if is_given else made.node, made.reason)
