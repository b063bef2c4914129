"""Where a program wraps a model: its wrap sites, read off the sources before anything is decided about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import call_by, call_given
from codemods.reading.wraps.manual import (
    class_given,
    context_of,
    factory_inside,
    first_factory,
    is_constructor,
    is_factory,
    is_only_given_on,
    is_written_out,
)
from codemods.reading.wraps.passed_on import calls_of
from codemods.skipped import generated, vendored
from codemods.tables.names import WRAPPER

from ..pyanalysis.program import Program
from ..pyanalysis.tree import Tree
from .files import naming_fsdp1, taking_names, using_models
from .model_kinds import kind_of


@dataclass(frozen=True)
class WrapSite:
    """A call that makes an FSDP model, or what does."""

    file: Context
    call: cst.Call
    context: cst.Call | None
    """The `enable_wrap` that a `wrap` stands in, the partial that is called, and the first of a chain of partials."""
    is_constructor: bool
    """`FSDP(...)`, `partial(FSDP, ...)`, `enable_wrap(wrapper_cls=FSDP)`; if not, a call of what holds the class."""


class WrapFacts:
    """How a program wraps, read off when it is first asked for; implements `codemods.api.Wrapping`."""

    def __init__(
        self,
        program: Program,
        file: Callable[[Tree], Context],
        running: Callable[[Path], Collection[Path]],
        handing: Callable[[Path], Collection[Path]],
    ) -> None:
        """`running` gives the files that a script loads together with one, `handing` those that can give it a model."""
        self._program = program
        self._file = file
        self._running = running
        self._handing = handing
        self._calls: dict[Path, Sequence[tuple[Context, cst.Call]]] = {}

    @cached_property
    def naming(self) -> tuple[Context, ...]:
        """The files that name FSDP1."""
        speaking = naming_fsdp1(self._program)
        taking = map(self._file, taking_names(self._program, speaking)[len(speaking) :])
        return (*map(self._file, speaking), *(file for file in taking if any(file.references())))

    @cached_property
    def foreign(self) -> frozenset[Path]:
        """The files that name FSDP1 and are not the user's: copies of torch's sources, generated files."""
        return frozenset(f.path for f in self.naming if vendored.is_copy(f) or generated.is_generated(f))

    @cached_property
    def own(self) -> tuple[Context, ...]:
        """The user's files that name FSDP1 or, where they wrap anything, can use an FSDP model."""
        return tuple(file for file in self._all if file.path not in self.foreign)

    @cached_property
    def all_sites(self) -> Mapping[cst.Call, WrapSite]:
        """Where the program wraps, files that are not the user's included."""
        return {site.call: site for site in _wrap_sites(self._all)}

    @cached_property
    def sites(self) -> tuple[WrapSite, ...]:
        """Where the user's files wrap."""
        return tuple(site for site in self.all_sites.values() if site.file.path not in self.foreign)

    @cached_property
    def _wrapping(self) -> tuple[WrapSite, ...]:
        """Those that a model comes to."""
        return tuple(s for s in self._making if not (is_factory(s.file, s.call) and is_only_given_on(s.file, s.call)))

    @cached_property
    def _making(self) -> tuple[WrapSite, ...]:
        """Those that are no partial whose calls stand for it."""
        return tuple(s for s in self.sites if not (is_factory(s.file, s.call) and is_written_out(s.file, s.call)))

    @property
    def is_any(self) -> bool:
        return bool(self.sites)

    def is_several(self, path: Path) -> bool:
        running = self._running(path)
        sites = [site for site in self._wrapping if site.file.path in running]
        # the calls of `wrap` in an `enable_wrap` are not all seen
        return len(sites) + any(class_given(site.file, site.call) is not None for site in sites) > 1

    def calls(self, path: Path) -> Sequence[tuple[Context, cst.Call]]:
        if path not in self._calls:  # asked for each expression that may be a model
            running = self._running(path)
            self._calls[path] = [(site.file, site.call) for site in self._making if site.file.path in running]
        return self._calls[path]

    def runs_with(self, path: Path, other: Path) -> bool:
        return other in self._running(path)

    @cached_property
    def is_in_sight(self) -> bool:
        return self._program.mentions("enable_wrap") and all(
            _is_in_sight(file, node) for file in self._naming_own for node, name in file.references() if name == "wrap"
        )

    def compiles(self, path: Path) -> bool:
        return bool(self._compiling) and not self._compiling.isdisjoint(self._handing(path))

    @cached_property
    def _compiling(self) -> frozenset[Path]:
        return frozenset(file.path for file in compiling(self._program, self._file))

    @cached_property
    def _all(self) -> tuple[Context, ...]:
        using = map(self._file, using_models(self._program)) if self._is_wrapping else ()
        return tuple(dict.fromkeys([*self.naming, *using]))

    @cached_property
    def _is_wrapping(self) -> bool:
        """Whether the user's files wrap: what only uses models is read, and followed, for these alone."""
        own = self._naming_own
        return any(any(_constructor_calls(file)) for file in own) or any(_calls_of_values(own))

    @property
    def _naming_own(self) -> tuple[Context, ...]:
        return tuple(file for file in self.naming if file.path not in self.foreign)


def _wrap_sites(files: Sequence[Context]) -> Iterator[WrapSite]:
    """The wrap sites in these files, constructors first."""
    paths = {file.path for file in files}
    constructors = {call: file for file in files for call in _constructor_calls(file)}
    values = {call: file for file, call in _calls_of_values(files) if file.path in paths}
    for call, file in {**constructors, **values}.items():
        yield WrapSite(file, call, _context(file, call), call in constructors)


def _context(file: Context, call: cst.Call) -> cst.Call | None:
    """What another call stands for a part of: both are rewritten in one way."""
    context = context_of(file, call)
    first = first_factory(file, context or call)
    return first if first is not call else None


def _constructor_calls(file: Context) -> Iterator[cst.Call]:
    around = {call for node, _ in file.references() for call in islice(file.ancestors(node), 2)}
    for call in file.nodes(cst.Call) if around else ():
        if call not in around:
            continue  # it neither calls FSDP1 nor takes a name of it
        if is_factory(file, call):
            yield from _given_on(file, call)
        elif is_constructor(file, call) or class_given(file, call) is not None:
            yield call


def _given_on(file: Context, factory: cst.Call) -> Iterator[cst.Call]:
    """A partial of the class, or the one that it stands in, those that are made of it by its name, and its calls where
    it is written out.
    """
    outer = call_given(factory, file)
    if outer is not None and factory_inside(file, outer) is factory:
        yield from _given_on(file, outer)
        return
    yield factory
    assignment = file.parent(factory)
    for use in file.uses(assignment) if isinstance(assignment, cst.Assign) else ():
        outer = call_given(use, file)
        if outer is not None and factory_inside(file, outer) is factory:
            yield from _given_on(file, outer)
        called = call_by(use, file)
        if called is not None and context_of(file, called) is factory:
            yield called


def _calls_of_values(files: Iterable[Context]) -> Iterator[tuple[Context, cst.Call]]:
    """The calls of what holds the class: `WRAPPERS[name](model)`."""
    for file in files:
        for node, name in file.references():
            holder = file.parent(node)
            if name == WRAPPER and not (isinstance(holder, cst.Call) and holder.func is node):
                yield from calls_of(file, node) or ()


def _is_in_sight(file: Context, node: cst.BaseExpression) -> bool:
    call = file.parent(node)
    return isinstance(call, cst.Call) and call.func is node and context_of(file, call) is not None


# Which files give `torch.compile` a model or a part of one: the names of its parameters hold `_orig_mod.` then.

_OPTIONS = frozenset({"fullgraph", "dynamic", "backend", "mode", "options", "disable"})


def compiling(program: Program, file: Callable[[Tree], Context]) -> list[Context]:
    """The files with such a call."""
    holding = (path for path, text in program.texts.items() if "compile(" in text.replace("re.compile(", ""))
    trees = map(program.tree, holding)
    files = [file(tree) for tree in trees if tree is not None]
    return [f for f in files if any(_is_of_module(program, f, call) for call in f.nodes(cst.Call))]


_ENGINES = ("vllm.", "sglang.")


def _is_of_engine(ctx: Context, call: cst.Call) -> bool:
    """Whether a class of an engine that generates, or an heir of one, compiles its own copy of the model."""
    owner = next((outer for outer in ctx.ancestors(call) if isinstance(outer, cst.ClassDef)), None)
    return owner is not None and any((ctx.dotted(base.value) or "").startswith(_ENGINES) for base in owner.bases)


def _is_of_module(program: Program, ctx: Context, call: cst.Call) -> bool:
    """`torch.compile(model)`, or of what is not seen to be a function."""
    if ctx.dotted(call.func) != "torch.compile":
        return False
    given = (each.value for each in call.args if each.keyword is None or each.keyword.value not in _OPTIONS)
    value = next(given, None)
    if value is None or _is_of_engine(ctx, call):
        return False  # a decorator with options: `@torch.compile(fullgraph=True)`
    made = ctx.origins(value)
    if any(isinstance(origin.node, cst.Call) for origin in made):
        return True
    is_method = isinstance(value, cst.Attribute) and any(program.defining(value.attr.value))
    return not is_method and any(kind_of(origin) is ModelKind.UNKNOWN for origin in made)
