"""Names and attributes as places that statements read and write: `model`, `self.optimizer`, `args.lr`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context


def place(node: cst.CSTNode) -> str | None:
    """`self.model` for a name or a chain of attributes on one; None for any other expression."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        owner = place(node.value)
        return f"{owner}.{node.attr.value}" if owner is not None else None
    return None


def item(node: cst.CSTNode | None) -> str | None:
    """`built['model']` for what stands under a name or number of a place; None for any other expression."""
    owner = place(node.value) if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    index = cst.ensure_type(node, cst.Subscript).slice[0].slice if owner is not None else None
    key = index.value if isinstance(index, cst.Index) else None
    value = key.evaluated_value if isinstance(key, (cst.SimpleString, cst.Integer)) else None
    is_name = isinstance(value, str) and value.isidentifier()
    return f"{owner}[{value!r}]" if is_name or isinstance(value, int) else None


def base(node: cst.CSTNode) -> str | None:
    """The place of what is indexed, called or looked into at last: `self.model` in `self.model.layers[0].to(device)`.

    An attribute chain behind an index or a call belongs to what it is reached from.
    """
    found = place(node)
    while found is None and isinstance(node, (cst.Subscript, cst.Call, cst.Attribute)):
        if isinstance(node, cst.Call):
            if not isinstance(node.func, cst.Attribute):
                return None
            node = node.func
        node = node.value
        found = place(node)
    return found


def same(left: str, right: str) -> bool:
    """Whether one place is the other, or lies in it: `model` and `model.encoder`, `built` and `built['model']`."""
    inner, outer = (left, right) if len(left) > len(right) else (right, left)
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


def meets(left: frozenset[str], right: frozenset[str]) -> bool:
    return any(same(one, other) for one in left for other in right)


def assigned(node: cst.Assign) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Each target with its value: `a` with `x` and `b` with `y` of `a, b = x, y`."""
    for target in (each.target for each in node.targets):
        if isinstance(target, cst.Tuple) and isinstance(node.value, cst.Tuple):
            if len(target.elements) == len(node.value.elements):
                yield from ((t.value, v.value) for t, v in zip(target.elements, node.value.elements, strict=True))
                continue
        yield target, node.value


def reads(node: cst.CSTNode) -> frozenset[str]:
    """Every place that is named in a statement or expression, functions that are called left out."""
    return frozenset(_reads(node))


def _reads(node: cst.CSTNode) -> Iterator[str]:
    found = place(node)
    if found is not None:
        yield found
    elif isinstance(node, cst.Call):
        # `model.parameters()` reads the model; `build(model)` does not read `build`.
        if not isinstance(node.func, cst.Name):
            yield from _reads(node.func.value if isinstance(node.func, cst.Attribute) else node.func)
        for argument in node.args:
            yield from _reads(argument.value)
    elif isinstance(node, cst.Attribute):
        yield from _reads(node.value)
    elif isinstance(node, (cst.Assign, cst.AnnAssign, cst.For)):
        for target in _targets(node):
            if not isinstance(target, (cst.Name, cst.Attribute)):
                yield from _reads(target)
        parts = [node.iter, node.body, node.orelse] if isinstance(node, cst.For) else [node.value]
        for part in parts:
            if part is not None:
                yield from _reads(part)
    else:
        for child in node.children:
            yield from _reads(child)


def writes(node: cst.CSTNode) -> frozenset[str]:
    """Every place that a statement binds or changes: targets, and what a method is called on for its effect."""
    return frozenset(_writes(node))


def _writes(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.For, cst.NamedExpr, cst.Del)):
        for target in _targets(node):
            yield from bound(target)
    elif isinstance(node, cst.WithItem) and node.asname is not None:
        yield from bound(node.asname.name)
    elif isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        yield node.name.value
        return
    elif isinstance(node, cst.ImportAlias):
        yield node.evaluated_alias or node.evaluated_name.split(".")[0]
    elif isinstance(node, cst.Expr) and isinstance(node.value, cst.Call) and isinstance(node.value.func, cst.Attribute):
        called = node.value.func.value
        for either in (called.body, called.orelse) if isinstance(called, cst.IfExp) else (called,):
            owner = base(either)
            if owner is not None:
                yield owner
    for child in node.children:
        yield from _writes(child)


def _targets(node: cst.CSTNode) -> list[cst.BaseExpression]:
    if isinstance(node, cst.Assign):
        return [target.target for target in node.targets]
    assert isinstance(node, (cst.AnnAssign, cst.AugAssign, cst.For, cst.NamedExpr, cst.Del))
    return [node.target]


def bound(target: cst.BaseExpression) -> Iterator[str]:
    """The places that an assignment or a loop to this target binds."""
    if isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from bound(element.value)
        return
    found = base(target)
    if found is not None:
        yield found


def bound_texts(target: cst.CSTNode, ctx: Context) -> Iterator[str]:
    """The texts of the names and attributes that a target binds, or puts something into."""
    if isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from bound_texts(element.value, ctx)
    elif isinstance(target, cst.Subscript):
        yield from bound_texts(target.value, ctx)
    elif isinstance(target, (cst.Name, cst.Attribute)):
        yield ctx.code(target)
