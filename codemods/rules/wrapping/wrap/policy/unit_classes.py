"""What modules of some classes can be: parts of each other, the root, lists of modules."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.models.makeup import may_hold
from codemods.reading.units.policies import class_elements

from ..draft import Draft

_HOLDERS = frozenset({"Module", "ModuleDict", "ModuleList", "Sequential"})
"""Classes of torch.nn that hold modules of any kind, their own too."""


def can_nest(ctx: Context, classes: cst.BaseExpression) -> bool:
    """A module of one class holds another target only when it makes, or is given, one of its own kind."""
    elements = class_elements(classes)
    if elements is None or len(elements) != 1:
        return True
    if _nn_name(ctx, elements[0]) in _HOLDERS or _is_extended(ctx, elements[0]):
        return True
    made = [(each.file, each.node) for each in ctx.origins(elements[0])]
    return any(isinstance(node, cst.ClassDef) and node in may_hold(where, node) for where, node in made)


def _is_extended(ctx: Context, element: cst.BaseExpression) -> bool:
    """Whether a class of the program has this one as a base: its modules may hold both."""
    wanted = {origin.node for origin in ctx.origins(element) if isinstance(origin.node, cst.ClassDef)}
    dotted, files = ctx.dotted(element), ctx.files(last_part(ctx.code(element)))
    bases = [(where, base.value) for where in files for each in where.nodes(cst.ClassDef) for base in each.bases]
    return any(
        wanted & {origin.node for origin in where.origins(base)} or (dotted or "") == where.dotted(base)
        for where, base in bases
    )


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


def can_be_root(draft: Draft, ctx: Context, classes: cst.BaseExpression) -> bool:
    """False when the model's class is seen and is none of the target classes."""
    return draft.for_others or can_make_root(draft.file, draft.module, ctx, classes)


def can_make_root(where: Context, model: cst.BaseExpression, ctx: Context, classes: cst.BaseExpression) -> bool:
    """The same for a model in a file."""
    elements = class_elements(classes)
    if elements is None:
        return True
    wanted = {name for element in elements for name in _class_names(ctx, element)}
    made = [origin for origin in where.origins(model) if not origin.is_none]
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
