"""`nn.Module` as a type, in the words of the file."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Import

_MODULE = "torch.nn.Module"


def module_type(at: cst.CSTNode, ctx: Context) -> tuple[str, list[Import]]:
    """How `nn.Module` is written at a place, with the import that it needs where the file does not name it yet."""
    for node in ctx.nodes(cst.Attribute):
        if ctx.dotted(node) == _MODULE and ctx.same_meaning(node, at):
            return ctx.quote(node), []
    nn = ctx.named(Import("torch", "nn"), at)
    return f"{nn.local}.Module", [nn]


def union_without(found: cst.BaseExpression, ctx: Context) -> Edit | None:
    """`nn.Module | FSDP | None` or `Union[nn.Module, FSDP]` without `FSDP`, which would name the same type again."""
    union, types = found, [found]
    for outer in ctx.ancestors(found):
        if isinstance(outer, cst.BinaryOperation) and isinstance(outer.operator, cst.BitOr):
            union, types = outer, _alternatives(outer)
        elif isinstance(outer, cst.Subscript) and ctx.dotted(outer.value) == "typing.Union":
            union, types = outer, [each.slice.value for each in outer.slice if isinstance(each.slice, cst.Index)]
            break
        elif not isinstance(outer, (cst.SubscriptElement, cst.Index)):
            break
    others = [each for each in types if each is not found]
    if not any(ctx.dotted(each) == _MODULE for each in others):
        return None
    kept = [ctx.quote(each) for each in others]
    if len(kept) == 1:
        return Edit(*ctx.span(union), kept[0])
    if isinstance(union, cst.BinaryOperation):
        return Edit(*ctx.span(union), " | ".join(kept))
    return Edit(ctx.span(types[0])[0], ctx.span(types[-1])[1], ", ".join(kept))


def _alternatives(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The types of `A | B | C`."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitOr):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [node]
