"""What a call is passed by `**kwargs`, where the dict is in sight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from codemods.api import Context, Origin

Entries = Mapping[str, tuple[tuple[Context, cst.BaseExpression], ...]]
"""Each key, with all values that it can have."""

_ADDS = ("update", "setdefault", "__setitem__")


def entries(ctx: Context, value: cst.BaseExpression) -> Entries | None:
    """The keys of a dict, wherever it is made, and what is put into it behind; None where only run time knows."""
    found: dict[str, list[tuple[Context, cst.BaseExpression]]] = {}
    origins = ctx.origins(value)
    for each in (*map(_of_display, origins), *_added(ctx, value, origins)):
        if each is None:
            return None
        for key, values in each.items():
            found.setdefault(key, []).extend(values)
    return {key: tuple(values) for key, values in found.items()} if origins else None


def _of_display(origin: Origin) -> Entries | None:
    """Of `{...}` and of `dict(...)`."""
    node, found = origin.node, dict[str, tuple[tuple[Context, cst.BaseExpression], ...]]()
    if isinstance(node, cst.Dict):
        for element in node.elements:
            if isinstance(element, cst.StarredDictElement):
                inner = entries(origin.file, element.value)
                if inner is None:
                    return None
                found.update(inner)
            elif isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
                found[str(element.key.evaluated_value)] = ((origin.file, element.value),)
            else:
                return None
        return found
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "dict":
        if all(each.keyword is not None for each in node.args):
            return {each.keyword.value: ((origin.file, each.value),) for each in node.args if each.keyword is not None}
    return None


def _added(ctx: Context, value: cst.BaseExpression, origins: Sequence[Origin]) -> Iterator[Entries | None]:
    """What is stored under a key of one of these dicts; None for any other way to change it."""
    made = {id(origin.node) for origin in origins}
    for file in {each.path: each for each in (ctx, *(origin.file for origin in origins))}.values():
        for assign in file.nodes(cst.Assign):
            for target in (each.target for each in assign.targets):
                if isinstance(target, cst.Subscript) and _is_one_of(file, target.value, made):
                    key = _plain_key(target)
                    yield {key: ((file, assign.value),)} if key is not None else None
        for call in file.nodes(cst.Call):
            if isinstance(call.func, cst.Attribute) and call.func.attr.value in _ADDS:
                if _is_one_of(file, call.func.value, made):
                    yield None


def _plain_key(target: cst.Subscript) -> str | None:
    index = target.slice[0].slice
    key = index.value if isinstance(index, cst.Index) else None
    return str(key.evaluated_value) if isinstance(key, cst.SimpleString) else None


def _is_one_of(file: Context, node: cst.BaseExpression, made: set[int]) -> bool:
    return any(id(origin.node) in made for origin in file.origins(node))
