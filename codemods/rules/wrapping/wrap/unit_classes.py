"""What modules of some classes can be: parts of each other, the root, lists of modules."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.enclosing import enclosing
from codemods.reading.policies import (
    class_elements,
)

from .draft import Draft

_HOLDERS = frozenset({"Module", "ModuleDict", "ModuleList", "Sequential"})
"""Classes of torch.nn that hold modules of any kind, their own too."""


def can_nest(ctx: Context, classes: cst.BaseExpression) -> bool:
    """A module of one class holds another target only when the class makes its own kind."""
    elements = class_elements(classes)
    if elements is None or len(elements) != 1:
        return True
    if _nn_name(ctx, elements[0]) in _HOLDERS:
        return True
    for origin in ctx.origins(elements[0]):
        if isinstance(origin.node, cst.ClassDef) and _makes_itself(origin.file, origin.node):
            return True
    return False


def can_be_container(ctx: Context, classes: cst.BaseExpression) -> bool:
    """Whether a list or dict of modules is an instance of one of the classes."""
    elements = class_elements(classes)
    return elements is not None and any(
        _nn_name(ctx, element) in {"Module", "ModuleDict", "ModuleList"} for element in elements
    )


def _nn_name(ctx: Context, element: cst.BaseExpression) -> str:
    """`Sequential` for torch.nn's class of that name, whatever it was imported as."""
    dotted = ctx.dotted(element) or ""
    return last_part(dotted) if dotted.startswith("torch.nn.") else ""


def _makes_itself(ctx: Context, definition: cst.ClassDef) -> bool:
    """Whether the class names itself in its body, or is a base of another one, whose modules may hold both."""
    start, end = ctx.span(definition.body)
    uses = ctx.uses(definition)
    inside = (use for use in uses if start <= ctx.span(use)[0] < end)
    return any(not _in_super(ctx, use) for use in inside) or any(_is_base(ctx, use) for use in uses)


def _is_base(ctx: Context, use: cst.Name) -> bool:
    argument = ctx.parent(use)
    return isinstance(argument, cst.Arg) and isinstance(ctx.parent(argument), cst.ClassDef)


def _in_super(ctx: Context, use: cst.Name) -> bool:
    """`super(Block, self)` names the class without making one."""
    call = enclosing(ctx, use, cst.Call)
    return call is not None and isinstance(call.func, cst.Name) and call.func.value == "super"


def can_be_root(draft: Draft, ctx: Context, classes: cst.BaseExpression) -> bool:
    """False when the model's class is seen and is none of the target classes."""
    return can_make_root(draft.file, draft.module, ctx, classes)


def can_make_root(where: Context, model: cst.BaseExpression, ctx: Context, classes: cst.BaseExpression) -> bool:
    """The same for a model in a file."""
    elements = class_elements(classes)
    if elements is None:
        return True
    wanted = {name for element in elements for name in _class_names(ctx, element)}
    made = where.origins(model)
    for origin in made:
        if not isinstance(origin.node, cst.Call):
            return True
        names = _constructed(origin.file, origin.node.func)
        if not names or names & wanted:
            return True
    return not made


def _class_names(ctx: Context, element: cst.BaseExpression) -> set[str]:
    names = {last_part(ctx.code(element))}
    for origin in ctx.origins(element):
        if isinstance(origin.node, cst.ClassDef):
            names.add(origin.node.name.value)
    return names


def _constructed(ctx: Context, callee: cst.BaseExpression) -> set[str]:
    """The class names behind `Net(...)`, `Net.from_pretrained(...)`, with the bases that the program shows."""
    if isinstance(callee, cst.Attribute) and callee.attr.value in {"from_pretrained", "from_config"}:
        return {last_part(ctx.code(callee.value))}
    names: set[str] = set()
    for origin in ctx.origins(callee):
        if isinstance(origin.node, cst.ClassDef):
            names.add(origin.node.name.value)
            names.update(last_part(origin.file.code(base.value)) for base in origin.node.bases)
        elif (
            isinstance(origin.node, (cst.Name, cst.Attribute))
            and last_part(origin.file.code(origin.node))[:1].isupper()
        ):
            names.add(last_part(origin.file.code(origin.node)))
        else:
            return set()
    return names


def last_part(dotted: str) -> str:
    """`Block` of `models.Block`."""
    return dotted.rsplit(".", 1)[-1]
