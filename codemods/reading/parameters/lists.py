"""Parameters that come in lists: what is put into one, and what the groups of an optimizer were made of."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import key_of

_GROUPS = "param_groups"
_PARAMS = "params"
_DEPTH = 2
"""How many functions an optimizer is handed on through, if what it is an attribute of is not followed."""


def put_in(made: cst.CSTNode, ctx: Context) -> Iterator[cst.BaseExpression]:
    """What fills a list that is empty at first: `for p in ps: some.append(p)` what it goes over, `some.extend(ps)` and
    `some += ps` what they add."""
    name = _name_of(made, ctx) if isinstance(made, cst.List) else ""
    if not name:
        return
    for call in _calls_around(made, name, ctx):
        method = ctx.code(call.func)
        if method == f"{name}.append":
            yield from (loop.iter for loop in ctx.ancestors(call) if isinstance(loop, cst.For) and _takes(loop, call))
        elif method == f"{name}.extend":
            yield from (argument.value for argument in call.args)
    for added in ctx.nodes(cst.AugAssign):
        if ctx.code(added.target) == name and _is_near(added, made, name, ctx):
            yield added.value


def appended(made: cst.CSTNode, ctx: Context) -> Iterator[cst.BaseExpression]:
    """What is put into a list that is empty at first, and what it is filled with: groups, or parameters."""
    yield from put_in(made, ctx)
    name = _name_of(made, ctx) if isinstance(made, cst.List) else ""
    for call in _calls_around(made, name, ctx) if name else ():
        if ctx.code(call.func) == f"{name}.append":
            yield from (argument.value for argument in call.args)


def given_to_optimizer(group: cst.CSTNode, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """What the optimizer was made of whose parameters `optimizer.param_groups[0]["params"]` are, or `group["params"]`
    in a loop over its groups."""
    owner = cst.ensure_type(group, cst.Subscript).value if is_group(group) else None
    made = {call: where for each in _optimizers(owner, ctx) for where, call in makers(each, ctx)} if owner else {}
    yield from ((where, argument.value) for call, where in made.items() for argument in call.args)


def is_group(node: cst.CSTNode) -> bool:
    """`group["params"]`."""
    return isinstance(node, cst.Subscript) and key_of(node) == _PARAMS


def makers(optimizer: cst.BaseExpression, ctx: Context, depth: int = _DEPTH) -> Iterator[tuple[Context, cst.Call]]:
    """The calls that make an optimizer; for an attribute of an object that is not followed, all that make one of this
    name."""
    origins = ctx.origins(optimizer)
    yield from ((origin.file, origin.node) for origin in origins if isinstance(origin.node, cst.Call))
    if not depth or any(origin.node is not None for origin in origins):
        return
    if isinstance(optimizer, cst.Name):
        for where, _, value in ctx.passed_to(optimizer, optimizer.value):
            yield from makers(value, where, depth - 1)
    elif isinstance(optimizer, cst.Attribute):
        for where, attribute in ctx.attributes(optimizer.attr.value):
            holder = where.parent(attribute)
            statement = where.parent(holder) if isinstance(holder, cst.AssignTarget) else None
            if isinstance(statement, cst.Assign) and isinstance(statement.value, cst.Call):
                yield where, statement.value


def heads(loop: cst.For | cst.BaseComp) -> Iterator[cst.For | cst.CompFor]:
    """The loop itself; of a comprehension all that it goes over, the outermost first."""
    if isinstance(loop, cst.For):
        yield loop
        return
    head: cst.CompFor | None = loop.for_in
    while head is not None:
        yield head
        head = head.inner_for_in


def loops_around(one: cst.BaseExpression, ctx: Context) -> Iterator[cst.BaseExpression]:
    """What the loops around go over that give one parameter, or one group: `for p in model.parameters()`."""
    for loop in ctx.ancestors(one) if isinstance(one, cst.Name) else ():
        for head in heads(loop) if isinstance(loop, (cst.For, cst.BaseComp)) else ():
            if isinstance(one, cst.Name) and one.value in bound(head.target):
                yield head.iter


def _optimizers(group: cst.BaseExpression, ctx: Context) -> Iterator[cst.BaseExpression]:
    if isinstance(group, cst.Subscript):
        yield from _read(group.value)
        return
    for loop in ctx.ancestors(group):
        for head in heads(loop) if isinstance(loop, (cst.For, cst.BaseComp)) else ():
            if isinstance(group, cst.Name) and group.value in bound(head.target):
                yield from (owner for node in ctx.inside(head.iter) for owner in _read(node))


def _read(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """`optimizer` of `optimizer.param_groups`."""
    if isinstance(node, cst.Attribute) and node.attr.value == _GROUPS:
        yield node.value


def _calls_around(made: cst.CSTNode, name: str, ctx: Context) -> Iterator[cst.Call]:
    """The calls that can fill a list: those of its function, or of the class that keeps it as an attribute."""
    return (call for call in ctx.nodes(cst.Call) if _is_near(call, made, name, ctx))


def _is_near(node: cst.CSTNode, made: cst.CSTNode, name: str, ctx: Context) -> bool:
    if "." not in name:
        return ctx.scope(node) is ctx.scope(made)
    return enclosing(ctx, node, cst.ClassDef) is enclosing(ctx, made, cst.ClassDef)


def _name_of(made: cst.CSTNode, ctx: Context) -> str:
    """`b` of `b = []`, and of `a, b = [], []`; `self.b`."""
    element = ctx.parent(made)
    display = ctx.parent(element) if isinstance(element, cst.Element) else None
    statement = ctx.parent(display) if isinstance(display, cst.Tuple) else element
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return ""
    target: cst.BaseExpression = statement.targets[0].target
    if isinstance(display, cst.Tuple) and isinstance(target, cst.Tuple):
        pairs = zip(target.elements, display.elements, strict=False)
        target = next((t.value for t, e in pairs if e is element), target)
    return ctx.code(target) if isinstance(target, (cst.Name, cst.Attribute)) else ""


def _takes(loop: cst.For, call: cst.Call) -> bool:
    """Whether a call is handed what the loop goes over."""
    given = {argument.value.value for argument in call.args if isinstance(argument.value, cst.Name)}
    return not given.isdisjoint(bound(loop.target))
