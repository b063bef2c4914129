"""Small questions about functions and classes, answered from one file."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from .tree import Tree


def is_property(function: cst.FunctionDef) -> bool:
    names = {last_name(decorator.decorator) for decorator in function.decorators}
    return bool(names & {"property", "cached_property"})


def overrides(relative: cst.ClassDef, owner: cst.ClassDef, method: cst.FunctionDef) -> bool:
    """Whether a subclass has its own version of the method, so that its objects never run the one of `owner`."""
    if method.name.value == "__init__" or not any(node is method for node in owner.body.body):
        return False
    return any(isinstance(n, cst.FunctionDef) and n.name.value == method.name.value for n in relative.body.body)


def returns(tree: Tree, function: cst.FunctionDef) -> list[cst.BaseExpression]:
    """The values a function returns itself (those of functions inside it left out)."""
    return [
        node.value for node in tree.nodes(cst.Return) if node.value is not None and tree.scope_of[node].node is function
    ]


def attribute_values(tree: Tree, owner: cst.ClassDef, name: str) -> Iterator[cst.BaseExpression]:
    """The values assigned to `self.name` in the methods of a class."""
    for target in tree.attributes(name):
        holder = tree.parents[target]
        if not isinstance(target.value, cst.Name) or not isinstance(
            holder, (cst.AssignTarget, cst.Element, cst.AnnAssign)
        ):
            continue
        method = next((node for node in tree.ancestors(target) if isinstance(node, cst.FunctionDef)), None)
        if method is None or class_of(tree, method) is not owner or target.value.value != first_parameter(method):
            continue
        if isinstance(holder, cst.AssignTarget):
            yield cst.ensure_type(tree.parents[holder], cst.Assign).value
        elif isinstance(holder, cst.Element):
            yield from _beside(tree, holder)
        elif isinstance(holder, cst.AnnAssign) and holder.target is target and holder.value is not None:
            yield holder.value


def _beside(tree: Tree, element: cst.Element) -> Iterator[cst.BaseExpression]:
    """`b` for the target `self.y` of `self.x, self.y = a, b`."""
    targets = tree.parents[element]
    holder = tree.parents[targets]
    assignment = tree.parents[holder] if isinstance(holder, cst.AssignTarget) else None
    if not isinstance(targets, (cst.Tuple, cst.List)) or not isinstance(assignment, cst.Assign):
        return
    values = assignment.value
    starred = any(isinstance(each, cst.StarredElement) for each in targets.elements)
    if isinstance(values, (cst.Tuple, cst.List)) and len(values.elements) == len(targets.elements) and not starred:
        yield values.elements[targets.elements.index(element)].value


def class_of(tree: Tree, function: cst.FunctionDef) -> cst.ClassDef | None:
    owner = tree.scope_of[function].node
    return owner if isinstance(owner, cst.ClassDef) else None


def first_parameter(function: cst.FunctionDef) -> str | None:
    positional = [*function.params.posonly_params, *function.params.params]
    return positional[0].name.value if positional else None


def last_name(expression: cst.BaseExpression) -> str | None:
    if isinstance(expression, cst.Name):
        return expression.value
    return expression.attr.value if isinstance(expression, cst.Attribute) else None
