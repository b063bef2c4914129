"""Small questions about functions and classes, answered from one file."""

from __future__ import annotations

import libcst as cst

from .tree import Tree


def is_property(function: cst.FunctionDef) -> bool:
    return bool(_decorators(function) & {"property", "cached_property"})


def is_setter(function: cst.FunctionDef) -> bool:
    return "setter" in _decorators(function)


def is_context_manager(function: cst.FunctionDef) -> bool:
    return bool(_decorators(function) & {"asynccontextmanager", "contextmanager"})


def is_class_method(function: cst.FunctionDef | cst.Lambda) -> bool:
    if not isinstance(function, cst.FunctionDef):
        return False
    return function.name.value == "__init_subclass__" or "classmethod" in _decorators(function)


def is_static(function: cst.FunctionDef) -> bool:
    return "staticmethod" in _decorators(function)


def _decorators(function: cst.FunctionDef) -> set[str | None]:
    return {last_name(decorator.decorator) for decorator in function.decorators}


def called_by(decorator: cst.Decorator) -> cst.BaseExpression:
    """`register` of `@register`, and of `@register("name")`, whose result is called with the definition."""
    expression = decorator.decorator
    return expression.func if isinstance(expression, cst.Call) else expression


def overrides(tree: Tree, relative: cst.ClassDef, owner: cst.ClassDef, method: cst.FunctionDef) -> bool:
    """Whether a subclass has its own version of the method, so that its objects never run the one of `owner`."""
    name = method.name.value
    if name == "__init__" or not any(node is method for node in owner.body.body):
        return False
    own = [node for node in relative.body.body if isinstance(node, cst.FunctionDef) and node.name.value == name]
    if not own:
        return False
    named = (n.value for n in tree.inside(relative) if isinstance(n, cst.Attribute) and n.attr.value == name)
    return not any(is_super(value) or last_name(value) == owner.name.value for value in named)


def returns(tree: Tree, function: cst.FunctionDef) -> list[cst.BaseExpression]:
    """The values a function returns itself (those of functions inside it left out)."""
    return [node.value for node in tree.results(function, cst.Return) if node.value is not None]


def yields(tree: Tree, function: cst.FunctionDef, delegated: bool = False) -> list[cst.BaseExpression]:
    """The values a generator yields itself, or (`delegated`) what it yields from."""
    given = [node.value for node in tree.results(function, cst.Yield)]
    if delegated:
        return [value.item for value in given if isinstance(value, cst.From)]
    return [value for value in given if value is not None and not isinstance(value, cst.From)]


def is_generator(tree: Tree, function: cst.FunctionDef) -> bool:
    return bool(tree.results(function, cst.Yield))


def class_of(tree: Tree, function: cst.FunctionDef) -> cst.ClassDef | None:
    owner = tree.scope_of[function].node
    return owner if isinstance(owner, cst.ClassDef) else None


def takes_object(tree: Tree, function: cst.FunctionDef | cst.Lambda) -> bool:
    """Whether the first parameter of a method is not the first that is passed."""
    if not isinstance(function, cst.FunctionDef) or class_of(tree, function) is None:
        return False
    return not is_static(function) and function.name.value != "__init_subclass__"


def first_parameter(function: cst.FunctionDef | cst.Lambda) -> str | None:
    positional = [*function.params.posonly_params, *function.params.params]
    return positional[0].name.value if positional else None


def is_super(expression: cst.BaseExpression) -> bool:
    """`super()`, or `super(Owner, self)` as Python 2 had it."""
    return isinstance(expression, cst.Call) and last_name(expression.func) == "super" and len(expression.args) in (0, 2)


def last_name(expression: cst.BaseExpression) -> str | None:
    if isinstance(expression, cst.Name):
        return expression.value
    return expression.attr.value if isinstance(expression, cst.Attribute) else None
