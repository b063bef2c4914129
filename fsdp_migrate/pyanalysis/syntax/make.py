"""Nodes of LibCST, made without the checks and copies of their constructors: `ast` has parsed what they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, cast

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
        name, factory = field.name, cast(Any, field.default_factory)
        names[f"set_{name}"] = next(
            c.__dict__[name].__set__ for c in kind.__mro__ if hasattr(c.__dict__.get(name), "__set__")
        )
        if name not in given:
            names[f"default_{name}"] = field.default if field.default is not MISSING else factory()
        lines.append(f"    set_{name}(node, {name if name in given else f'default_{name}'})")
    lines.append("    return node")
    exec("\n".join(lines), names)  # as dataclasses makes its own `__init__`
    made: Callable[..., Any] = names["make"]
    return made
