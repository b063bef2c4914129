"""The texts that an option of the command line can be: `parser.add_argument("--strategy", choices=[...])`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.words import last_name


def argument_choices(value: cst.CSTNode, ctx: Context) -> frozenset[str] | None:
    """What `args.strategy` can be, where each parser of the program says so, and nothing else sets it.

    None where that is not seen. Where run time sets it by a name, it may be another text all the same.
    """
    if not isinstance(value, cst.Attribute):
        return None
    made = ctx.origins(value.value)
    if not made or not all(isinstance(o.node, cst.Call) and last_name(o.node.func) == "parse_args" for o in made):
        return None
    name = value.attr.value
    if any(isinstance(where.parent(node), cst.AssignTarget) for where, node in ctx.attributes(name)):
        return None
    found = [_texts(where, call) for where, call in _options(name, ctx)]
    return frozenset().union(*(each for each in found if each)) if found and all(found) else None


def _options(name: str, ctx: Context) -> Iterator[tuple[Context, cst.Call]]:
    """The calls that add an option which is stored under a name."""
    for where in ctx.files("add_argument"):
        for call in where.nodes(cst.Call):
            if last_name(call.func) == "add_argument" and name in _stored_as(call):
                yield where, call


def _stored_as(call: cst.Call) -> list[str]:
    """`strategy` for `"--strategy"` or `dest="strategy"`; both, where it has both."""
    texts = [a.value for a in call.args if a.keyword is None or a.keyword.value == "dest"]
    names = [str(text.evaluated_value) for text in texts if isinstance(text, cst.SimpleString)]
    return [each.lstrip("-").replace("-", "_") for each in names]


def _texts(ctx: Context, call: cst.Call) -> frozenset[str]:
    """What `choices` says; nothing where that is not all texts."""
    given = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "choices"]
    made = [origin.node for value in given for origin in ctx.origins(value)]
    if len(made) != 1 or not isinstance(made[0], (cst.List, cst.Tuple, cst.Set)):
        return frozenset()
    elements = [element.value for element in made[0].elements]
    texts = [str(each.evaluated_value) for each in elements if isinstance(each, cst.SimpleString)]
    return frozenset(texts) if len(texts) == len(elements) else frozenset()
