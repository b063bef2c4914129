"""Functions that choose units: the body of a lambda becomes the condition of the loop."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.code.words import is_name
from codemods.reading.units.predicates import asked_of_module, substituted

from ..draft import Draft, UnitSelector


def function_targets(
    origin: Origin, function: cst.BaseExpression, draft: Draft, *, as_test: bool = False
) -> UnitSelector:
    """The units that a function of one module chooses. Raises NotStatic for what is no lambda and has no name."""
    if isinstance(function, cst.Lambda) and len(function.params.params) == 1:
        listed = own_list(origin.file, function, draft.file.plain(draft.model))
        if listed is not None and not (draft.ignores or draft.float32_class or as_test):
            return UnitSelector("", nested=False, may_be_root=False, units=origin.file.quote(listed), item="block")
        test, parameter = substituted(origin.file, function), function.params.params[0].name.value
        container = not excludes_containers(origin.file, function.body, parameter)
        return UnitSelector(test, nested=True, may_be_root=True, may_be_container=container)
    if isinstance(function, (cst.Name, cst.Attribute)):
        test = f"{origin.file.quote(function)}({{module}})"
        container = not _definition_excludes_containers(origin.file, function)
        return UnitSelector(test, nested=True, may_be_root=True, may_be_container=container)
    raise NotStatic(f"auto_wrap_policy: {origin.text}")


def policy_targets(origin: Origin) -> UnitSelector | None:
    """The units of a policy that always looks inside, and asks no more than the module."""
    asked, function = asked_of_module(origin), origin.node
    if asked is None or not isinstance(function, cst.Lambda):
        return None
    container = not excludes_containers(origin.file, asked, "module")
    test = substituted(origin.file, function, asked)
    return UnitSelector(test, nested=True, may_be_root=True, may_be_container=container)


def own_list(ctx: Context, function: cst.Lambda, model: str) -> cst.BaseExpression | None:
    """`model.blocks` of `lambda m: m in model.blocks`, where that is seen to be one list of layers, side by side.

    An attribute of the model itself that is not seen is taken for one: of anything else `fully_shard` raises.
    """
    body = function.body
    if not isinstance(body, cst.Comparison) or len(body.comparisons) != 1:
        return None
    target, listed = body.comparisons[0], body.comparisons[0].comparator
    asks = isinstance(target.operator, cst.In) and is_name(body.left, function.params.params[0].name.value)
    inner = {node for node in ctx.inside(listed) if isinstance(node, cst.Name)}
    if not asks or inner & set(ctx.uses(function.params.params[0])):
        return None
    of_model = isinstance(listed, cst.Attribute) and ctx.code(listed.value) == model
    is_unseen = all(origin.node is None for origin in ctx.origins(listed))
    return listed if (of_model and is_unseen) or _is_module_list(ctx, listed, _LISTS) else None


_LISTS = 4
"""Through how many lists of lists of layers a list is followed."""


def _is_module_list(ctx: Context, value: cst.BaseExpression, depth: int) -> bool:
    """Whether an expression holds the layers of one `ModuleList`, as it is or copied into a list."""
    origins = ctx.origins(value)
    return bool(depth and origins) and all(_makes_module_list(origin, depth) for origin in origins)


def _makes_module_list(origin: Origin, depth: int) -> bool:
    node, ctx = origin.node, origin.file
    if isinstance(node, cst.Call):
        if ctx.dotted(node.func) in {"torch.nn.ModuleList", "torch.nn.Sequential"}:
            return True
        copies = isinstance(node.func, cst.Name) and node.func.value in {"list", "tuple"} and len(node.args) == 1
        return copies and _is_module_list(ctx, node.args[0].value, depth - 1)
    if isinstance(node, cst.List) and len(node.elements) == 1:
        return isinstance(node.elements[0], cst.StarredElement) and _is_module_list(
            ctx, node.elements[0].value, depth - 1
        )
    if isinstance(node, cst.ListComp) and node.for_in.inner_for_in is None and isinstance(node.for_in.target, cst.Name):
        return is_name(node.elt, node.for_in.target.value) and _is_module_list(ctx, node.for_in.iter, depth - 1)
    return False


def is_yes_or_no(function: cst.BaseExpression) -> bool:
    """Whether it is a lambda that can only answer True or False."""
    return isinstance(function, cst.Lambda) and len(function.params.params) == 1 and is_bool(function.body)


def is_bool(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.BooleanOperation):
        return is_bool(node.left) and is_bool(node.right)
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Not)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value in {"all", "any", "bool", "hasattr", "isinstance", "issubclass"}
    return isinstance(node, cst.Comparison) or (isinstance(node, cst.Name) and node.value in {"False", "True"})


def _definition_excludes_containers(ctx: Context, function: cst.BaseExpression) -> bool:
    """The same for `def is_unit(module): return …`, and for `if …: return True` followed by `return False`."""
    origins = ctx.origins(function)
    node = origins[0].node
    if len(origins) != 1 or not isinstance(node, cst.FunctionDef) or not isinstance(node.body, cst.IndentedBlock):
        return False
    statements = list(node.body.body)
    parameters = node.params.params
    if not parameters or not statements:
        return False
    condition = _returned(statements[-1])
    if len(statements) == 2 and isinstance(statements[0], cst.If) and statements[0].orelse is None:
        inner = statements[0].body.body
        refuses = isinstance(condition, cst.Name) and condition.value == "False"
        condition = statements[0].test if refuses and len(inner) == 1 and _returned(inner[0]) is not None else None
    elif len(statements) != 1:
        condition = None
    return condition is not None and excludes_containers(origins[0].file, condition, parameters[0].name.value)


def _returned(statement: cst.BaseStatement | cst.BaseSmallStatement) -> cst.BaseExpression | None:
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        return _returned(statement.body[0])
    return statement.value if isinstance(statement, cst.Return) else None


def excludes_containers(ctx: Context, test: cst.BaseExpression, parameter: str) -> bool:
    """Whether the test says no to a list or dict of modules, which has no weight and is of no layer's class."""
    if isinstance(test, cst.BooleanOperation):
        sides = [excludes_containers(ctx, side, parameter) for side in (test.left, test.right)]
        return any(sides) if isinstance(test.operator, cst.And) else all(sides)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        operator = test.comparisons[0].operator
        if is_name(test.left, parameter):  # one of the modules that the user names
            return isinstance(operator, (cst.In, cst.Is, cst.Equal))
        none = test.comparisons[0].comparator
        return isinstance(operator, cst.IsNot) and is_name(none, "None") and _asks_for_weight(test.left, parameter)
    if isinstance(test, cst.Call) and isinstance(test.func, cst.Name) and test.func.value == "isinstance":
        classes = test.args[1].value if len(test.args) == 2 else None
        return classes is not None and is_name(test.args[0].value, parameter) and _are_layers(ctx, classes)
    return _asks_for_weight(test, parameter)


def _asks_for_weight(test: cst.BaseExpression, parameter: str) -> bool:
    """`hasattr(module, "weight")`, `getattr(module, "weight", None)`."""
    if not isinstance(test, cst.Call) or not isinstance(test.func, cst.Name) or len(test.args) < 2:
        return False
    name = test.args[1].value
    asked = isinstance(name, cst.SimpleString) and name.evaluated_value == "weight"
    return test.func.value in {"getattr", "hasattr"} and is_name(test.args[0].value, parameter) and asked


def _are_layers(ctx: Context, classes: cst.BaseExpression) -> bool:
    """Whether these are classes by name, none of which a list or dict of modules is an instance of."""
    named = [e.value for e in classes.elements] if isinstance(classes, (cst.Tuple, cst.Set)) else [classes]
    for node in named:
        name = node.attr.value if isinstance(node, cst.Attribute) else node.value if isinstance(node, cst.Name) else ""
        made = ctx.origins(node)
        is_class = all(isinstance(o.node, (cst.ClassDef, cst.Name, cst.Attribute)) for o in made)
        if not is_class or not name[:1].isupper() or name in {"Module", "ModuleDict", "ModuleList"}:
            return False
    return True
