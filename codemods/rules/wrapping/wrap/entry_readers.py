"""Who else reads a dict that is spread into constructor calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.choices import Place, readers
from codemods.reading.chosen_class import takes_alone


def keys_read(
    ctx: Context, value: cst.Name | cst.Attribute, displays: Collection[Place], names: Collection[str]
) -> frozenset[str] | None:
    """The keys whose values something else takes than a constructor call; None where that may be any.

    `displays` is where the dict is made, `names` what it is called on its way.
    """
    if isinstance(value, cst.Name) and all(isinstance(where.scope(node), cst.FunctionDef) for where, node in displays):
        uses: list[Place] = []
        for where, display in displays:
            found = readers(where, display, value)
            if found is None:
                return None
            uses += found
    else:
        uses = list(_named(ctx, names))
    keys: set[str] = set()
    for where, use in uses:
        taken = _taken(where, use)
        if taken is None:
            return None
        keys |= taken
    return frozenset(keys)


def _named(ctx: Context, names: Collection[str]) -> Iterator[Place]:
    """Everything of these names, in all files of the program."""
    for name in names:
        for where in ctx.files(name):
            for attribute in where.nodes(cst.Attribute):
                if attribute.attr.value == name:
                    yield where, attribute
            for node in where.nodes(cst.Name):
                holder = where.parent(node)
                is_part = isinstance(holder, cst.Attribute) and holder.attr is node
                is_label = isinstance(holder, (cst.Arg, cst.Param)) and holder.children[0] is node
                if node.value == name and not is_part and not (is_label and getattr(holder, "value", None) is not node):
                    yield where, node


def _taken(where: Context, use: cst.BaseExpression) -> set[str] | None:
    """The keys that are read where a dict stands; None where they may be any."""
    holder = where.parent(use)
    if isinstance(holder, (cst.AssignTarget, cst.AnnAssign)):
        return set()
    if isinstance(holder, cst.Arg):
        return set() if holder.star == "**" and takes_alone(where, holder) else None
    if isinstance(holder, cst.Subscript) and holder.value is use:
        index = holder.slice[0].slice
        key = index.value if isinstance(index, cst.Index) else None
        if not isinstance(key, cst.SimpleString):
            return None
        return set() if isinstance(where.parent(holder), cst.AssignTarget) else {str(key.evaluated_value)}
    if isinstance(holder, cst.Attribute) and holder.attr.value == "update":
        return set()  # seen where what is put into it is gathered
    return None
