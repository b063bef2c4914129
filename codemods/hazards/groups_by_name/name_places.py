"""Questions to the name of a module or parameter that a prefix in it changes.

FSDP1 put `_fsdp_wrapped_module.` in front of the names of what it wrapped, of the model and of each unit: "bias" is in
the same names, and no name begins with "head".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import libcst as cst

from codemods.api import Context
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import called_on
from codemods.reading.code.words import last_name
from codemods.reading.parameters.of_model import Loop

PREFIX = "_fsdp_wrapped_module"

_CONTAINS = (cst.In, cst.NotIn)
_EQUALS = (cst.Equal, cst.NotEqual)
_CLEANS = frozenset({"FSDP_PREFIX", "FSDP_WRAPPED_MODULE", "clean_tensor_name"})
_DIGITS = frozenset("0123456789d|-+*?:()[]")
"""Of what a pattern has for the number of an item: `blocks.(0|1).fc1`, `layers.d+.mlp`."""
_MATCHES = ("match", "fullmatch", "fnmatch", "fnmatchcase")
_NO_PART = ("module.", "_")
"""What names of a model do not begin with, and those of FSDP1 do not either, or as FM418 says."""


def names_of(loop: Loop) -> set[str]:
    """`name` of `for name, p in`, `i` and `name` of `for i, (name, p) in enumerate(`."""
    named = list(bound(loop.target if isinstance(loop, cst.For) else loop.for_in.target))
    return set(named[:-1])


def is_name(node: cst.CSTNode, names: Collection[str]) -> bool:
    return isinstance(node, cst.Name) and node.value in names


def takes_prefix_off(body: cst.CSTNode, ctx: Context) -> bool:
    """Whether code speaks of what FSDP1 put into names."""
    return any(
        (isinstance(node, cst.SimpleString) and PREFIX in node.value)
        or (isinstance(node, cst.Name) and node.value in _CLEANS)
        for node in ctx.inside(body)
    )


def asks_for_place(body: cst.CSTNode, names: Collection[str], ctx: Context) -> bool:
    """Whether code asks where in a name something stands, or for the whole of it."""
    parts = set(_split(body, names, ctx))
    return any(_asks(node, names, parts, ctx) for node in (body, *ctx.inside(body)) if not _is_asserted(node, ctx))


def _is_asserted(node: cst.CSTNode, ctx: Context) -> bool:
    """It was so under FSDP1 too."""
    return isinstance(node, cst.Comparison) and isinstance(ctx.parent(node), cst.Assert)


def _asks(node: cst.CSTNode, names: Collection[str], parts: Collection[str], ctx: Context) -> bool:
    if isinstance(node, cst.Comparison):
        return _compares(node, names)
    if isinstance(node, cst.Subscript):
        return _is_split(node.value, names, parts) and _counts_from_the_front(node)
    return isinstance(node, cst.Call) and (
        _searches_inside(node, names, ctx)
        or _begins(node, names)
        or _matches(node, names, ctx)
        or _counts(node, names, parts)
    )


def _compares(node: cst.Comparison, names: Collection[str]) -> bool:
    """`name == "head.weight"`, `name in ("head.weight",)`, `"layers.0.attention" in name`."""
    asked = [each for each in node.comparisons if isinstance(each.operator, _CONTAINS)]
    if is_name(node.left, names):
        tables = [each.comparator for each in asked if isinstance(each.comparator, (cst.Tuple, cst.List, cst.Set))]
        equal = [each.comparator for each in node.comparisons if isinstance(each.operator, _EQUALS)]
        return bool(tables) or any(not is_name(each, names) for each in equal)
    if not isinstance(node.left, (cst.SimpleString, cst.FormattedString)):
        return False
    return any(is_name(each.comparator, names) for each in asked) and _is_inside_an_item(node.left)


def _is_inside_an_item(literal: cst.SimpleString | cst.FormattedString) -> bool:
    """An item of a list of layers, and what is in it: "layers.0.attention", f"layers.{i}.mlp"."""
    if isinstance(literal, cst.SimpleString):
        text = str(literal.evaluated_value)
    else:
        text = "".join(part.value if isinstance(part, cst.FormattedStringText) else "0" for part in literal.parts)
    parts = text.split(".")
    return any(item.isdigit() and inner for item, inner in pairwise(parts))


def _begins(call: cst.Call, names: Collection[str]) -> bool:
    """`name.startswith("head")`."""
    owner = called_on(call, "startswith")
    if owner is None or not is_name(owner, names) or not call.args:
        return False
    begin = call.args[0].value
    return not isinstance(begin, cst.SimpleString) or not str(begin.evaluated_value).startswith(_NO_PART)


def _matches(call: cst.Call, names: Collection[str], ctx: Context) -> bool:
    """`re.match(r"head", name)`, `pattern.match(name)`, `fnmatch(name, "head.*")`."""
    if not any(is_name(argument.value, names) for argument in call.args):
        return False
    return (ctx.dotted(call.func) or ctx.code(call.func)).rpartition(".")[2] in _MATCHES


def _searches_inside(call: cst.Call, names: Collection[str], ctx: Context) -> bool:
    """`re.search(r"blocks\\.(0|1)\\.fc1", name)`, and `search` of what `re.compile` makes of such a pattern."""
    if last_name(call.func) != "search" or not any(is_name(argument.value, names) for argument in call.args):
        return False
    compiled = called_on(call, "search") if ctx.dotted(call.func) != "re.search" else None
    made = [o.node for o in ctx.origins(compiled)] if compiled is not None else [call]
    patterns = [each.args[0].value for each in made if isinstance(each, cst.Call) and each.args]
    texts = [str(each.evaluated_value) for each in patterns if isinstance(each, cst.SimpleString)]
    parts = [text.replace("\\", "").split(".") for text in texts]
    return any(item and _DIGITS.issuperset(item) and inner for each in parts for item, inner in pairwise(each))


def _counts(call: cst.Call, names: Collection[str], parts: Collection[str]) -> bool:
    """`name.count(".")`, `len(name.split("."))`."""
    owner = called_on(call, "count")
    if owner is not None:
        return is_name(owner, names)
    is_length = isinstance(call.func, cst.Name) and call.func.value == "len" and len(call.args) == 1
    return is_length and _is_split(call.args[0].value, names, parts)


def _split(body: cst.CSTNode, names: Collection[str], ctx: Context) -> Iterator[str]:
    """`parts` of `parts = name.split(".")`."""
    for node in ctx.inside(body):
        if isinstance(node, cst.Assign) and _is_split(node.value, names, ()):
            yield from (each.target.value for each in node.targets if isinstance(each.target, cst.Name))


def _is_split(value: cst.BaseExpression, names: Collection[str], parts: Collection[str]) -> bool:
    """`name.split(".")`, or a variable that holds it."""
    owner = called_on(value, "split")
    return is_name(value, parts) or (owner is not None and is_name(owner, names) and _is_at_dots(value))


def _is_at_dots(call: cst.BaseExpression) -> bool:
    given = call.args if isinstance(call, cst.Call) else ()
    return bool(given) and isinstance(given[0].value, cst.SimpleString) and given[0].value.evaluated_value == "."


def _counts_from_the_front(item: cst.Subscript) -> bool:
    """`[0]` and `[:2]`, not `[-1]`."""
    part = item.slice[0].slice if len(item.slice) == 1 else None
    if isinstance(part, cst.Slice):
        bounds = [each for each in (part.lower, part.upper) if each is not None]
        return any(isinstance(each, cst.Integer) for each in bounds)
    return isinstance(part, cst.Index) and isinstance(part.value, cst.Integer)
