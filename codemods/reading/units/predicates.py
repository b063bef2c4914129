"""Auto-wrap policies as functions that say of one module whether it becomes a unit.

`partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})` is `lambda module: isinstance(module, Block)`:
what a policy is asked besides, whether to look inside and how many parameters there are, only a policy by size hears.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.code.enclosing import bound_once
from codemods.reading.code.shapes import alone
from codemods.reading.units.policies import (
    CLASS_POLICIES,
    class_elements,
    isinstance_argument,
    policy_call,
    policy_classes,
)


@dataclass(frozen=True, slots=True)
class Predicate:
    """One policy: how it is written as a function, and as a test of `{module}`."""

    origin: Origin
    tests: tuple[str, ...]
    """Any of them makes a module a unit."""
    function: str = ""
    """A function that is there already, where that is all the policy asks."""
    written: cst.Lambda | None = None
    """The same where the policy spells it out."""


def predicates(origins: Sequence[Origin]) -> list[Predicate]:
    """All policies that become functions with these, each where it is made. Raises NotStatic where one cannot."""
    found: dict[cst.CSTNode, Predicate] = {}
    for origin in origins:
        if origin.node is None or not _is_seen(origin):
            raise NotStatic(f"auto_wrap_policy: {origin.text}")
        for each in (origin, *_named_members(origin)):
            assert each.node is not None
            found[each.node] = predicate(each)
    return list(found.values())


def predicate(origin: Origin) -> Predicate:
    """One policy. Raises NotStatic where it asks for more than the module, or for what may be another thing later."""
    made, arguments = policy_call(origin)
    ctx = origin.file
    if made in CLASS_POLICIES:
        classes = _collection(policy_classes(origin))
        if any(isinstance(each, cst.Call) or _is_own_class(each) for each in ctx.inside(classes)):
            raise NotStatic("the class of a module is another one once it is sharded")
        _assert_settled(ctx, classes)
        return Predicate(origin, (f"isinstance({{module}}, {isinstance_argument(ctx, classes)})",))
    if made == "lambda_auto_wrap_policy":
        function = _argument(origin, arguments, "lambda_fn")
        if isinstance(function, (cst.Name, cst.Attribute)):
            _assert_settled(ctx, function)
            return Predicate(origin, (f"{ctx.quote(function)}({{module}})",), ctx.quote(function))
        if isinstance(function, cst.Lambda) and len(function.params.params) == 1:
            return Predicate(origin, (substituted(ctx, function),), ctx.quote(function), function)
    if made == "_or_policy":
        policies = _argument(origin, arguments, "policies")
        elements = class_elements(policies)
        if elements is None:
            _assert_settled(ctx, policies)
            return Predicate(origin, (f"any(policy({{module}}) for policy in {ctx.quote(policies)})",))
        for name in elements:
            if isinstance(name, cst.Name):
                _assert_settled(ctx, name)
        return Predicate(origin, tuple(test for element in elements for test in _tests_of(ctx, element)))
    raise NotStatic(f"auto_wrap_policy: {origin.text}")


def class_policies(origin: Origin) -> list[Origin]:
    """A policy of classes, or those that `_or_policy` asks, where all are that. Raises NotStatic for any other."""
    made, arguments = policy_call(origin)
    if made != "_or_policy":
        policy_classes(origin)
        if not isinstance(origin.node, cst.Call):
            raise NotStatic(f"auto_wrap_policy: {origin.text}")  # a function that hands on to it stays one
        return [origin]
    elements = class_elements(_argument(origin, arguments, "policies"))
    members = [said_in_list(origin.file, element) or element for element in elements or ()]
    if not members or not all(isinstance(member, cst.Call) for member in members):
        raise NotStatic(f"auto_wrap_policy: {origin.text}")
    return [policy for member in members for policy in class_policies(Origin(origin.file, member))]


def _collection(classes: cst.BaseExpression) -> cst.BaseExpression:
    """`names` of `set(names)`: a tuple is made of it anyway."""
    if isinstance(classes, cst.Call) and len(classes.args) == 1 and isinstance(classes.func, cst.Name):
        argument = classes.args[0]
        if classes.func.value in {"frozenset", "list", "set", "tuple"} and not argument.star:
            return argument.value
    return classes


def _is_own_class(node: cst.CSTNode) -> bool:
    """`module.__class__`"""
    return isinstance(node, cst.Attribute) and node.attr.value == "__class__"


def _tests_of(ctx: Context, element: cst.BaseExpression) -> tuple[str, ...]:
    made = said_in_list(ctx, element) or element
    if isinstance(made, cst.Call):  # made on the spot, or for this alone
        return predicate(Origin(ctx, made)).tests
    return (f"{ctx.quote(element)}({{module}})",)


def said_in_list(ctx: Context, element: cst.BaseExpression) -> cst.Call | None:
    """The policy that has a name for nothing but this element of a list of policies: it is said there."""
    made = bound_once(ctx, element)
    assignment = ctx.parent(made) if isinstance(made, cst.Call) else None
    line = ctx.parent(assignment) if isinstance(assignment, cst.Assign) and len(assignment.targets) == 1 else None
    if not isinstance(made, cst.Call) or not isinstance(assignment, cst.Assign) or line is None or alone(line) is None:
        return None
    block, uses = ctx.parent(line), ctx.uses(assignment)
    is_private = list(uses) == [element] and any(outer is block for outer in ctx.ancestors(element))
    return made if is_private and ctx.scope(made) is ctx.scope(element) else None


def _named_members(origin: Origin) -> Iterator[Origin]:
    """The policies that `_or_policy` holds under a name, and theirs: they are made elsewhere."""
    made, arguments = policy_call(origin)
    if made != "_or_policy":
        return
    policies = _argument(origin, arguments, "policies")
    shown = class_elements(policies)
    for element in shown if shown is not None else _collected(origin.file, policies):
        for member in origin.file.origins(element):
            if not _is_seen(member):
                raise NotStatic(f"auto_wrap_policy: {origin.text}")
            if member.node is not element or shown is None:
                yield member
            yield from _named_members(member)


def _collected(ctx: Context, name: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a list that one function makes and adds to. Raises NotStatic where it does anything else."""
    bound = ctx.bound(name) if isinstance(name, cst.Name) else None
    if not isinstance(name, cst.Name) or bound is None or len(bound) != 1 or bound[0][0] is not ctx:
        raise NotStatic(f"auto_wrap_policy of {ctx.code(name)}")
    made = bound[0][1]
    elements = class_elements(made)
    if elements is None:
        raise NotStatic(f"auto_wrap_policy of {ctx.code(name)}")
    for use in ctx.uses(cst.ensure_type(_statement(ctx, made), cst.Assign)):
        if use is not name:
            elements += _added(ctx, use)
    return elements


def _statement(ctx: Context, made: cst.BaseExpression) -> cst.CSTNode | None:
    parent = ctx.parent(made)
    if not isinstance(parent, cst.Assign):
        raise NotStatic("auto_wrap_policy of a list")
    return parent


def _added(ctx: Context, use: cst.Name) -> list[cst.BaseExpression]:
    """What `policies.append(a)` or `policies.extend([a, b])` adds."""
    attribute = ctx.parent(use)
    call = ctx.parent(attribute) if isinstance(attribute, cst.Attribute) and attribute.value is use else None
    if isinstance(call, cst.Call) and isinstance(attribute, cst.Attribute) and len(call.args) == 1:
        value = call.args[0].value
        if attribute.attr.value == "append":
            return [value]
        elements = class_elements(value) if attribute.attr.value == "extend" else None
        if elements is not None:
            return elements
    raise NotStatic(f"auto_wrap_policy of {use.value}")


def _argument(origin: Origin, arguments: Sequence[cst.Arg], name: str) -> cst.BaseExpression:
    if len(arguments) == 1 and arguments[0].keyword is not None and arguments[0].keyword.value == name:
        return arguments[0].value
    raise NotStatic(f"auto_wrap_policy: {origin.text}")


def _is_seen(origin: Origin) -> bool:
    """Whether it is made by a call that stands in the program, which can be written anew."""
    return isinstance(origin.node, cst.Call) and policy_call(origin)[0] is not None


def _assert_settled(ctx: Context, expression: cst.BaseExpression) -> None:
    """Raises NotStatic for a variable that gets another value behind the policy, which a function would read."""
    at = ctx.span(expression)[0]
    scope = ctx.scope(expression)
    for name in ctx.inside(expression):
        if not isinstance(name, cst.Name) or not ctx.is_local(name.value, expression):
            continue
        around = [each for each in ctx.ancestors(expression) if isinstance(each, (cst.For, cst.While))]
        bindings = [each for each in ctx.inside(scope) if _binds(each, name.value)]
        if any(ctx.span(each)[0] > at for each in bindings) or any(ctx.scope(loop) is scope for loop in around):
            raise NotStatic(f"{name.value} gets another value")


def _binds(node: cst.CSTNode, name: str) -> bool:
    if isinstance(node, (cst.AssignTarget, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor)):
        return isinstance(node.target, cst.Name) and node.target.value == name
    return isinstance(node, cst.AsName) and isinstance(node.name, cst.Name) and node.name.value == name


def asked_of_module(origin: Origin) -> cst.BaseExpression | None:
    """`isinstance(module, Block)` of `lambda module, recurse, **_: recurse or isinstance(module, Block)`."""
    function, ctx = origin.node, origin.file
    body = function.body if isinstance(function, cst.Lambda) else None
    if not isinstance(function, cst.Lambda) or not isinstance(body, cst.BooleanOperation):
        return None
    first, recurse = [*function.params.params, None, None][:2]
    if first is None or recurse is None or (first.name.value, recurse.name.value) != ("module", "recurse"):
        return None
    read = {node.value for node in ctx.inside(body.right) if isinstance(node, cst.Name)}
    others = (*function.params.params[1:], *function.params.kwonly_params, function.params.star_kwarg)
    is_left = isinstance(body.left, cst.Name) and body.left.value == "recurse" and isinstance(body.operator, cst.Or)
    return body.right if is_left and not any(each is not None and each.name.value in read for each in others) else None


def substituted(ctx: Context, function: cst.Lambda, part: cst.BaseExpression | None = None) -> str:
    """The body of a lambda, or a part of it, with the first parameter written `{module}`."""
    parameter, part = function.params.params[0], part or function.body
    start, end = ctx.span(part)
    pieces, position = [], start
    for use in ctx.uses(parameter):
        at = ctx.span(use)[0]
        if not start <= at < end:
            continue
        pieces += [ctx.quote_text(position, at), "{module}"]
        position = at + len(use.value)
    body = "".join([*pieces, ctx.quote_text(position, end)])
    binds_loosely = isinstance(part, (cst.BooleanOperation, cst.IfExp, cst.NamedExpr)) and not part.lpar
    return f"({body})" if "\n" in ctx.plain(body) or binds_loosely else body
