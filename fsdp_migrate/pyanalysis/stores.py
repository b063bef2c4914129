"""Who sets an attribute, in all the ways Python has for it: the stores of a file, by the attribute's name.

`obj.net = value`, `self.net, self.optimizer = build()`, `setattr(obj, "net", value)`, `vars(obj)["net"] = value`,
`obj.__dict__.update(net=value)`, `obj.__dict__.update(values)`, `module.add_module("net", value)`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import libcst as cst

from .definitions import last_name
from .scopes import ANY, EACH, Path, parts
from .tree import Tree


@dataclass(frozen=True, slots=True)
class AttributeStore:
    """A part of `value` becomes the attribute of `owner`."""

    tree: Tree
    owner: cst.BaseExpression
    key: str | cst.BaseExpression
    """The attribute's name, or the expression that says it."""
    value: cst.BaseExpression
    path: Path = ()
    is_item: bool = False
    """It is the item of that name of a table, which may have none."""

    def of_name(self, name: str) -> AttributeStore:
        """What a table stores under a name."""
        return replace(self, key=name, path=(name,), is_item=True)


TABLES = "whole tables"
"""The name for the stores of whole tables, whose items become the attributes of their names; not of other objects'."""


def stores_in(tree: Tree) -> Mapping[str | None, list[AttributeStore]]:
    """The stores of a file by name; under None those whose name is an expression, and whole tables.

    A formatted name is one as well, with a star for what is put in: what is stored under `f"net{i}"` is read under it.
    """
    found: dict[str | None, list[AttributeStore]] = defaultdict(list)
    for store in (*_assigned(tree), *_called(tree)):
        found[store.key if isinstance(store.key, str) else None].append(store)
        if store.key is store.value and table_owner(store.value) is None:
            found[TABLES].append(store)
        elif isinstance(store.key, cst.FormattedString):
            name = formatted_name(store.key)
            found[name].append(replace(store, key=name))
    return found


def formatted_name(text: cst.FormattedString) -> str:
    """`net*` for `f"net{i}"`."""
    return "".join(part.value if isinstance(part, cst.FormattedStringText) else "*" for part in text.parts)


def _assigned(tree: Tree) -> Iterator[AttributeStore]:
    for assignment in tree.nodes(cst.Assign):
        for target in assignment.targets:
            yield from _targets(tree, target.target, assignment.value, ())
    for loop in tree.nodes(cst.For):
        yield from _targets(tree, loop.target, loop.iter, (EACH,))


def _targets(tree: Tree, target: cst.CSTNode, value: cst.BaseExpression, path: Path) -> Iterator[AttributeStore]:
    for part, at in parts(target, path):
        if isinstance(part, cst.Attribute):
            yield AttributeStore(tree, part.value, part.attr.value, value, at)
        elif isinstance(part, cst.Subscript):
            owner, index = table_owner(part.value), part.slice[0].slice
            if owner is not None and isinstance(index, cst.Index):
                yield AttributeStore(tree, owner, _key(index.value), value, at)


def _called(tree: Tree) -> Iterator[AttributeStore]:
    for call in tree.nodes(cst.Call):
        name, values = last_name(call.func), [argument.value for argument in call.args]
        of = call.func.value if isinstance(call.func, cst.Attribute) else None
        if len(values) == 3 and (name == "setattr" or (name == "__setattr__" and of is not None)):
            yield AttributeStore(tree, values[0], _key(values[1]), values[2])
        elif len(values) == 2 and name in {"__setattr__", "add_module", "register_module"} and of is not None:
            yield AttributeStore(tree, of, _key(values[0]), values[1])
        elif name == "update" and of is not None:
            yield from _updated(tree, call, table_owner(of))


def _updated(tree: Tree, call: cst.Call, owner: cst.BaseExpression | None) -> Iterator[AttributeStore]:
    for argument in call.args if owner is not None else ():
        assert owner is not None
        if argument.keyword is not None:
            yield AttributeStore(tree, owner, argument.keyword.value, argument.value)
        elif isinstance(argument.value, cst.Dict):
            for element in argument.value.elements:
                if isinstance(element, cst.DictElement):
                    yield AttributeStore(tree, owner, _key(element.key), element.value)
        else:
            yield AttributeStore(tree, owner, argument.value, argument.value, (ANY,))


def table_owner(table: cst.BaseExpression) -> cst.BaseExpression | None:
    """The object of `vars(obj)` and `obj.__dict__`."""
    if isinstance(table, cst.Attribute) and table.attr.value == "__dict__":
        return table.value
    is_vars = isinstance(table, cst.Call) and last_name(table.func) == "vars" and len(table.args) == 1
    return table.args[0].value if isinstance(table, cst.Call) and is_vars else None


def _key(node: cst.BaseExpression) -> str | cst.BaseExpression:
    return str(node.evaluated_value) if isinstance(node, cst.SimpleString) else node
