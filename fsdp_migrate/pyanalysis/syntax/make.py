"""Nodes of LibCST, made without the checks and copies of their constructors: `ast` has parsed what they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

import libcst as cst


@cache
def maker(kind: type[cst.CSTNode], *given: str) -> Callable[..., Any]:
    """A function that makes a node from the values of these fields, in this order; the others get their defaults.

    LibCST's nodes are frozen dataclasses with slots: `__init__` goes through `object.__setattr__` for each field, and
    then validates. The slots are set directly here. Defaults that are nodes are shared, since nobody looks at them.
    """
    names: dict[str, Any] = {"new": object.__new__, "kind": kind}
    lines = [f"def make({', '.join(given)}):", "    node = new(kind)"]
    for field in fields(kind):
        name = field.name
        names[f"set_{name}"] = _setter(kind, name)
        if name not in given:
            names[f"default_{name}"] = field.default if field.default is not MISSING else _made(field.default_factory)
        lines.append(f"    set_{name}(node, {name if name in given else f'default_{name}'})")
    lines.append("    return node")
    exec("\n".join(lines), names)  # as dataclasses makes its own `__init__`
    made: Callable[..., Any] = names["make"]
    return made


def _made(factory: Any) -> Any:
    if factory is MISSING:
        raise TypeError("a field without a default has to be given")
    return factory()


def _setter(kind: type, name: str) -> Callable[[Any, Any], None]:
    slot = next((c.__dict__[name] for c in kind.__mro__ if hasattr(c.__dict__.get(name), "__set__")), None)
    if slot is not None:
        found: Callable[[Any, Any], None] = slot.__set__
        return found

    def set_attribute(node: Any, value: Any) -> None:
        object.__setattr__(node, name, value)

    return set_attribute
