"""Who calls a function, and what is passed for its parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice, product
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, cast

import libcst as cst

from .aliases import Aliases, Named, Place, Steps, Use
from .calls import Run, argument_for, parameters, runs
from .containers import Part
from .definitions import (
    called_by,
    class_of,
    first_parameter,
    is_property,
    is_setter,
    is_static,
    is_super,
    last_name,
    takes_object,
)
from .lookups import Lookups
from .objects import is_container
from .scopes import EACH
from .tree import Tree

if TYPE_CHECKING:
    from .values import Values

Function = cst.FunctionDef | cst.Lambda
_MAKERS = ("__init__", "__new__")
_CLASSES = ("cls", "__class__", None)
"""What a class is called within itself: `cls(net)`, `self.__class__(net)`, `type(self)(net)`."""
MOST_REGISTERED = 40
"""Definitions under one decorator that are followed through it."""
_Numbered = tuple[int, cst.Call, Run]
"""A call, its place among those of its file, and what it runs."""


class CallSite(NamedTuple):
    """A call that runs a function."""

    tree: Tree
    call: cst.Call
    run: Run
    """What it runs the function as, with which arguments."""
    bound: bool
    """Whether it binds the first parameter (a method)."""
    by_alias: bool
    """Whether it calls the function by another name than its own, or by none."""


class Callers:
    """Answers for one program."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._program = values.program
        self._called: dict[Tree, dict[str | None, list[_Numbered]]] = {}
        self._running: dict[tuple[Tree, int, str | None], Mapping[Function, Sequence[_Numbered]]] = {}
        self._found: dict[tuple[cst.BaseExpression, int], list[tuple[Tree, Function]]] = {}
        self._aliases: dict[Function | cst.ClassDef, Aliases] = {}
        self.cut_short: dict[Function | cst.ClassDef, None] = {}
        """What gets more names than are followed."""
        self._named = named = Named(values.program)
        self._steps = Steps(named, self._targets, self._registering, values.solver.is_whole)
        self._lookups = Lookups(values, named)
        self._decorating: dict[str, Sequence[tuple[Tree, cst.Decorator]]] = {}
        self._sole: dict[str, list[tuple[Tree, cst.FunctionDef]]] = {}

    def of(self, tree: Tree, function: Function) -> Sequence[CallSite]:
        """The program's calls of a function."""
        return self._values.ask(("callers", function), lambda: self._find(tree, function))

    def passed(self, tree: Tree, function: Function, parameter: cst.Param) -> Iterator[Part | None]:
        """What the program's calls pass for a parameter, its default where they leave it out; None when unclear."""
        name = parameter.name.value
        if isinstance(function, cst.FunctionDef) and is_setter(function) and name != first_parameter(function):
            yield from self._values.objects.stored_through(tree, function)
        for where, call, run, bound, by_alias in self.of(tree, function):
            if bound and name == first_parameter(function):
                yield from self._receiver(where, call, run.target, function)
                continue
            if by_alias and run.target is call.func and self._values.shifts(where, call.func):
                yield None
                continue
            positional = parameters(function, bound)
            value = argument_for(run.arguments, positional, name)
            if value is not None:
                yield Part(where, value)
            elif any(argument.star for argument in run.arguments) or self._values.is_partial(where, call):
                yield from self._unpacked(where, run.arguments, positional, name)
                if any(argument.star for argument in run.arguments) or not _is_only_called(where, call):
                    yield None
            else:
                yield Part(tree, parameter.default) if parameter.default is not None else None
        if self._values.solver.decide(lambda: not self.of(tree, function), False):
            yield from self._looked_up(tree, function, name)
        if name in parameters(function, takes_object(tree, function))[:1]:
            for where, definition in self._decorated(tree, function):
                yield Part(where, cast(cst.BaseExpression, definition))
        for where, call in self._maps(tree, function):
            index = next((i for i, known in enumerate(parameters(function, bound=False)) if known == name), -1)
            if 0 <= index < len(call.args) - 1:
                yield Part(where, call.args[index + 1].value, (EACH,))

    def _looked_up(self, tree: Tree, function: Function, name: str) -> Iterator[Part]:
        """What is passed where a name of run time's leads to the function, or to the class that it makes objects of."""
        if isinstance(function, cst.Lambda):
            return
        owner = class_of(tree, function)
        defined = owner if owner is not None and function.name.value in _MAKERS else function
        if defined is not function and not isinstance(tree.scope_of[defined].node, cst.Module):
            return
        positional = parameters(function, takes_object(tree, function))
        for each in self._lookups.calling(tree, function, defined):
            value = argument_for(each.run.arguments, positional, name)
            if value is not None:
                yield Part(each.tree, value)
            else:
                yield from self._unpacked(each.tree, each.run.arguments, positional, name)

    def found_by_name(self, call: cst.Call) -> Iterator[tuple[Tree, cst.FunctionDef]]:
        """The functions of a file, named by run time, that a call can run: `getattr(module, name)(net)`."""
        for each in self._lookups.by_call.get(call, ()):
            module = each.lookup.module
            if module is not None:
                for function in (node for node in module.module.body if isinstance(node, cst.FunctionDef)):
                    if each in self._lookups.calling(module, function, function):
                        yield module, function

    def _decorated(self, tree: Tree, function: Function) -> Iterator[tuple[Tree, cst.FunctionDef | cst.ClassDef]]:
        """The definitions that a function is called with: `@register("name")` calls what `register("name")` returns."""
        if isinstance(function, cst.Lambda):
            return
        around = (node for node in tree.ancestors(function) if isinstance(node, cst.FunctionDef))
        owner = class_of(tree, function) if function.name.value == "__call__" else None
        names = self._program.known_as(*(each.name.value for each in (function, *around)))
        names |= {name for klass in [owner] if klass is not None for name in self._program.known_as(klass.name.value)}
        for where, decorator in (found for name in sorted(names) for found in self._decorators(name)):
            if any(found is function for _, found in self._targets(where, decorator.decorator)):
                yield where, cast(cst.FunctionDef | cst.ClassDef, where.parents[decorator])

    def _decorators(self, name: str) -> Sequence[tuple[Tree, cst.Decorator]]:
        """The decorators of a name. A registry of a whole framework would lead from everything to everything."""
        if name not in self._decorating:
            decorators = ((tree, each) for tree in self._program.mentioning(name) for each in tree.nodes(cst.Decorator))
            found = [each for each in decorators if last_name(called_by(each[1])) == name]
            self._decorating[name] = found if len(found) <= MOST_REGISTERED else []
        return self._decorating[name]

    def starred(self, tree: Tree, parameter: cst.Param, key: object) -> Iterator[tuple[Tree, cst.BaseExpression]]:
        """What `*args[key]` or `**kwargs[key]` of a function can be; no key: any of them."""
        function = tree.scope_of[parameter].node
        if not isinstance(function, Function):
            return
        by_keyword = function.params.star_kwarg is parameter
        for where, _, run, bound, _ in self.of(tree, function):
            named = {known.name.value for known in (*function.params.params, *function.params.kwonly_params)}
            skipped = len(parameters(function, bound))
            for index, argument in enumerate(run.arguments):
                if argument.star:
                    continue
                keyword = argument.keyword.value if argument.keyword is not None else None
                is_mine = keyword is not None and keyword not in named if by_keyword else keyword is None
                at = keyword if by_keyword else index - skipped
                if is_mine and (by_keyword or index >= skipped) and key in {None, at}:
                    yield where, argument.value

    def _receiver(
        self, tree: Tree, call: cst.Call, target: cst.BaseExpression, function: Function
    ) -> Iterator[Part | None]:
        """What `self` is in a call of a method; of `__init__`, the new object; of `__call__`, what is called."""
        if isinstance(function, cst.FunctionDef) and function.name.value == "__call__" != last_name(target):
            yield Part(tree, target)
            return
        if self._makes_object(tree, target):
            yield Part(tree, call)
        if not self._values.solver.decide(lambda: self._makes_object(tree, target), True):
            is_method = isinstance(target, cst.Attribute) and not is_super(target.value)
            yield Part(tree, cst.ensure_type(target, cst.Attribute).value) if is_method else None

    def _makes_object(self, tree: Tree, target: cst.BaseExpression) -> bool:
        return any(isinstance(origin.node, cst.ClassDef) for origin in self._values.origins(tree, target))

    def _unpacked(self, tree: Tree, arguments: Sequence[cst.Arg], positional: list[str], name: str) -> Iterator[Part]:
        """`f(*given)`, `f(**given)`."""
        for index, argument in enumerate(arguments):
            if argument.star == "**":
                yield Part(tree, argument.value, (name,))
            elif argument.star == "*" and name in positional and positional.index(name) >= index:
                yield Part(tree, argument.value, (positional.index(name) - index,))

    def _find(self, tree: Tree, function: Function) -> Iterator[CallSite]:
        owner = _owner(tree, function)
        names = self._own_names(tree, function, owner)
        for where, run_by in self._where_called(tree, function, owner, names):
            for _, call, run in self._calls_of(where, run_by, function):
                by_alias = last_name(run.target) not in names
                yield CallSite(where, call, run, self._is_bound(where, run.target, function, owner), by_alias)

    def named(self, tree: Tree, definition: cst.FunctionDef | cst.ClassDef) -> Iterator[tuple[Tree, cst.Call]]:
        """The calls that can run a function, or make an object of a class, by the names alone that it goes by."""
        owner = _owner(tree, definition)
        names = self._own_names(tree, definition, owner)
        for where, run_by in self._where_called(tree, definition, owner, names):
            calls = self._calls(where)
            yield from ((where, call) for name in calls.keys() & run_by for _, call, _ in calls[name])

    def _where_called(
        self, tree: Tree, called: Function | cst.ClassDef, owner: cst.ClassDef | None, names: set[str]
    ) -> Iterator[tuple[Tree, set[str | None]]]:
        """The files that can call a function or class, and by which names."""
        # Nobody knows what `super()` is: such a call leads somewhere only where one method alone has the name.
        through_super = any(self.only_method(name) for name in names)
        aliases = self._aliases_of(tree, called, owner, names)
        known = names | aliases.names
        makes = isinstance(called, cst.ClassDef) or (
            owner is not None and isinstance(called, cst.FunctionDef) and called.name.value in _MAKERS
        )
        family = called if isinstance(called, cst.ClassDef) else owner
        heirs = [where for where, _ in self._values.objects.family(tree, family)] if family is not None else []
        others = [tree, *aliases.locals, *aliases.nameless, *heirs]
        for where in dict.fromkeys([*self._program.calling(known, through_super), *others]):
            run_by = {*known, *aliases.locals.get(where, ()), *(_CLASSES if makes else ())}
            if where in aliases.nameless:
                run_by.add(None)
            yield where, run_by

    def _own_names(self, tree: Tree, function: Function | cst.ClassDef, owner: cst.ClassDef | None) -> set[str]:
        if isinstance(function, cst.Lambda):
            return set()
        if owner is not None and function.name.value in _MAKERS:
            # Heirs without one of their own are made by it, too.
            heirs = (heir.name.value for _, heir in self._values.objects.heirs(tree, owner))
            return {function.name.value, *self._program.known_as(owner.name.value, *heirs)}
        return {function.name.value} if owner is not None else self._program.known_as(function.name.value)

    def _is_bound(self, tree: Tree, target: cst.BaseExpression, function: Function, owner: cst.ClassDef | None) -> bool:
        if owner is None or not isinstance(function, cst.FunctionDef) or is_static(function):
            return False
        if not isinstance(target, cst.Attribute) or first_parameter(function) == "cls":
            return True
        # `Base.__init__(self, net)`: the class passes no object.
        return self._values.solver.decide(lambda: not self._is_class(tree, target.value), True)

    def _is_class(self, tree: Tree, receiver: cst.BaseExpression) -> bool:
        made = self._values.origins(tree, receiver)
        return bool(made) and all(isinstance(origin.node, cst.ClassDef) for origin in made)

    def _aliases_of(
        self, tree: Tree, function: Function | cst.ClassDef, owner: cst.ClassDef | None, names: set[str]
    ) -> Aliases:
        """By names alone, so that what calls run is only looked at from near."""
        if function not in self._aliases:
            places = self._as_values(tree, function, owner, names)
            found, is_whole = self._values.solver.is_whole(
                lambda: self._values.plainly(lambda: Aliases(self._steps, places))
            )
            if found.is_cut_short:
                self.cut_short[function] = None
            if not is_whole:
                return found
            self._aliases[function] = found
        return self._aliases[function]

    def _as_values(
        self, tree: Tree, function: Function | cst.ClassDef, owner: cst.ClassDef | None, names: set[str]
    ) -> Iterator[Place]:
        """Where a function is no callee; of `__call__`, where the objects are made that have it."""
        found: Iterable[tuple[Tree, cst.BaseExpression]]
        if isinstance(function, cst.Lambda):
            found = [(tree, function)] if function in tree.parents else []
        elif owner is None or isinstance(function, cst.ClassDef):
            yield from [Place(tree, function)] if function.decorators else []
            found = self._uses(tree, function)
        elif function.name.value == "__call__":
            classes = [(tree, owner), *self._values.objects.heirs(tree, owner)]
            yield from (Place(*call) for klass in classes for call in self.calls_of_class(*klass))
            return
        elif function.name.value in _MAKERS:
            classes = [(tree, owner), *self._values.objects.heirs(tree, owner)]
            yield from (Place(*klass) for klass in classes)
            found = (use for klass in classes for use in self._uses(*klass))
        elif is_property(function):
            found = []
        else:
            # Others have methods of the name, too: who hands one on makes the object as a rule, or names its class.
            makers = sorted(self._program.known_as(owner.name.value))
            trees = dict.fromkeys([tree, *self._program.mentioning(*makers)])
            found = ((where, use) for where in trees for use in where.attributes(function.name.value))
        for where, use in found:
            call = where.parents[use]
            if not isinstance(call, cst.Call) or call.func is not use:
                yield Place(where, use)

    def _uses(self, tree: Tree, definition: cst.FunctionDef | cst.ClassDef) -> Iterator[Use]:
        return self._named.uses(tree, tree.scope_of[definition], definition.name.value)

    def _maps(self, tree: Tree, function: Function) -> Iterator[tuple[Tree, cst.Call]]:
        """`map(function, …)`."""
        trees: Iterable[Tree] = [tree]
        if isinstance(function, cst.FunctionDef) and class_of(tree, function) is None:
            trees = self._program.mentioning(*sorted(self._program.known_as(function.name.value)))
        for where in trees:
            for _, call, _ in self._calls(where).get("map", ()):
                if call.args and any(found is function for _, found in self._targets(where, call.args[0].value)):
                    yield where, call

    def _calls(self, tree: Tree) -> Mapping[str | None, Sequence[_Numbered]]:
        """The calls in a file, by the name of what they run."""
        if tree not in self._called:
            self._called[tree] = defaultdict(list)
            for place, call in enumerate(tree.nodes(cst.Call)):
                run = runs(call)
                self._called[tree][last_name(run.target)].append((place, call, run))
                if run.target is not call.func:  # `pool.submit(f, a)`: the program may have a `submit` of its own
                    self._called[tree][last_name(call.func)].append((place, call, Run(call.func, tuple(call.args))))
        return self._called[tree]

    def _calls_of(self, tree: Tree, names: Set[str | None], function: Function) -> list[_Numbered]:
        """The calls in a file that run a function by one of these names."""
        known = self._calls(tree).keys() & names
        found = [each for name in known for each in self._by_function(tree, name, function)]
        return sorted(found, key=itemgetter(0))

    def _by_function(self, tree: Tree, name: str | None, function: Function) -> Sequence[_Numbered]:
        key = tree, self._values.level, name
        if key not in self._running:
            found, is_whole = self._values.solver.is_whole(lambda: self._find_running(tree, name))
            if not is_whole:
                return found.get(function, ())
            self._running[key] = found
        return self._running[key].get(function, ())

    def _find_running(self, tree: Tree, name: str | None) -> Mapping[Function, Sequence[_Numbered]]:
        """By what they run: the calls in a file of something with one name."""
        found: dict[Function, list[_Numbered]] = defaultdict(list)
        for each in self._calls(tree)[name]:
            for function in dict.fromkeys(target for _, target in self._targets(tree, each[2].target)):
                found[function].append(each)
        return found

    def calls_of_class(self, tree: Tree, owner: cst.ClassDef) -> Iterator[tuple[Tree, cst.Call]]:
        """Where objects of a class are made."""
        names = self._program.known_as(owner.name.value)
        calling = self._program.calling(names, through_super=False)
        within = dict.fromkeys(where for where, _ in self._values.objects.family(tree, owner))
        for where, name in [*product(calling, sorted(names)), *product(within, _CLASSES)]:
            for _, call, run in self._calls(where).get(name, ()):
                if any(origin.node is owner for origin in self._values.origins(where, run.target)):
                    yield where, call

    def _targets(self, tree: Tree, callee: cst.BaseExpression) -> list[tuple[Tree, Function]]:
        """The functions of the program that a call can run."""
        key = (callee, self._values.level)
        if key not in self._found:
            found, is_whole = self._values.solver.is_whole(
                lambda: self._values.test(
                    lambda: self._all_targets(tree, callee), lambda: self._plain_targets(tree, callee)
                )
            )
            if not is_whole:
                return found
            self._found[key] = found
        return self._found[key]

    def _plain_targets(self, tree: Tree, callee: cst.BaseExpression) -> list[tuple[Tree, Function]]:
        if isinstance(callee, cst.Attribute) and self._values.program.symbols.of(tree, callee) is None:
            if not is_super(callee.value) and not self._values.objects.is_self(tree, callee.value):
                return list(self.only_method(callee.attr.value))
        return self._seen_targets(tree, callee)

    def _all_targets(self, tree: Tree, callee: cst.BaseExpression) -> list[tuple[Tree, Function]]:
        found = self._seen_targets(tree, callee)
        if not isinstance(callee, cst.Attribute) or self._values.program.symbols.dotted(tree, callee) is not None:
            return found  # `torch.load(path)` is no method of the program's that is called `load`
        if self._values.solver.decide(lambda: self._may_be_any(tree, callee), False):
            # The receiver is not known: a method name that only one class of the program defines is enough.
            return [*found, *self.only_method(callee.attr.value)]
        return found

    def _may_be_any(self, tree: Tree, method: cst.Attribute) -> bool:
        """Whether nothing is seen that a method call runs, and what it is called on is no list or dict."""
        made = self._values.origins(tree, method.value)
        is_table = bool(made) and all(each.node is not None and is_container(each.node) for each in made)
        return not is_table and not self._seen_targets(tree, method)

    def _seen_targets(self, tree: Tree, callee: cst.BaseExpression) -> list[tuple[Tree, Function]]:
        found: list[tuple[Tree, Function]] = list(self._values.functions(tree, callee))
        for origin in self._values.callees(tree, callee):
            if isinstance(origin.node, cst.ClassDef):
                objects = self._values.objects
                found.extend(made for name in _MAKERS for made in objects.methods(origin.tree, origin.node, name))
            elif isinstance(origin.node, cst.Lambda):
                found.append((origin.tree, origin.node))
        return found

    def _registering(self, tree: Tree, definition: cst.FunctionDef | cst.ClassDef) -> Iterator[tuple[Tree, cst.Param]]:
        """The parameters of the program's functions that a definition becomes where it stands."""
        own = [
            each for each in definition.decorators if (tree, each) in self._decorators(last_name(called_by(each)) or "")
        ]
        made = [found for each in own for found in self._targets(tree, each.decorator)]
        if isinstance(definition, cst.ClassDef):
            bases = self._values.objects.bases(tree, definition)
            made += [found for base in bases[:1] for found in self._values.objects.methods(*base, "__init_subclass__")]
        for where, function in made:
            positional = [*function.params.posonly_params, *function.params.params]
            yield from ((where, each) for each in positional[takes_object(where, function) :][:1])

    def only_method(self, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        """The method of this name, when the program has no second one."""
        if name not in self._sole:
            found = list(islice(self.methods_named(name), 2))
            self._sole[name] = found if len(found) == 1 else []
        return self._sole[name]

    def methods_named(self, name: str) -> Iterator[tuple[Tree, cst.FunctionDef]]:
        for where in self._program.defining(name):
            for function in where.nodes(cst.FunctionDef):
                if function.name.value == name and class_of(where, function) is not None:
                    yield where, function


def _is_only_called(tree: Tree, call: cst.Call) -> bool:
    """Whether what a call makes goes into a variable of a function that is called and nothing else: `f = partial(g)`.

    Its calls are seen, so that nothing is passed unseen.
    """
    holder = tree.parents.get(call)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
    scope = tree.scope_of[call]
    if not isinstance(target, cst.Name) or not isinstance(scope.node, cst.FunctionDef):
        return False
    named = (node for node in tree.inside(scope.node) if isinstance(node, cst.Name) and node.value == target.value)
    uses = [(node, tree.parents.get(node)) for node in named if node is not target]
    return all(isinstance(use, cst.Call) and use.func is node for node, use in uses)


def _owner(tree: Tree, function: Function | cst.ClassDef) -> cst.ClassDef | None:
    """The class that a method stands in."""
    return class_of(tree, function) if isinstance(function, cst.FunctionDef) else None
