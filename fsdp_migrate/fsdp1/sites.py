"""Where a program wraps a model: its wrap sites, read off the sources before anything is decided about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.manual import class_given, context_of, is_constructor, is_factory
from codemods.reading.passed_on import calls_of
from codemods.tables.names import WRAPPER


@dataclass(frozen=True)
class WrapSite:
    """A call that makes an FSDP model, or what does."""

    file: Context
    call: cst.Call
    context: cst.Call | None
    """The `enable_wrap` that a `wrap` stands in."""
    is_constructor: bool
    """`FSDP(...)`, `partial(FSDP, ...)`, `enable_wrap(wrapper_cls=FSDP)`; if not, a call of what holds the class."""


def wrap_sites(files: Sequence[Context]) -> tuple[WrapSite, ...]:
    """The wrap sites of a program whose own files these are, constructors first."""
    constructors = {call: file for file in files for call in _constructor_calls(file)}
    own = {file.path for file in files}
    values = {call: file for file, call in _calls_of_values(files) if call not in constructors and file.path in own}
    return tuple(
        WrapSite(file, call, context_of(file, call), call in constructors)
        for call, file in {**constructors, **values}.items()
    )


def models_made(sites: Iterable[WrapSite]) -> int:
    """How many models these sites make, at least; the calls of `wrap` in an `enable_wrap` are not all seen."""
    found = list(sites)
    return len(found) + any(class_given(site.file, site.call) is not None for site in found)


def are_wraps_in_sight(files: Iterable[Context]) -> bool:
    """Whether every `wrap` stands inside of the `with enable_wrap` that it belongs to."""
    return all(_is_in_sight(file, node) for file in files for node, name in file.references() if name == "wrap")


def _constructor_calls(file: Context) -> Iterator[cst.Call]:
    for call in file.nodes(cst.Call):
        if is_constructor(file, call) or is_factory(file, call) or class_given(file, call) is not None:
            yield call


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
