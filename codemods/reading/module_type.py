"""`nn.Module` as a type, in the words of the file."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Import

_MODULE = "torch.nn.Module"


def module_type(at: cst.CSTNode, ctx: Context) -> tuple[str, list[Import]]:
    """How `nn.Module` is written at a place, with the import that it needs where the file does not name it yet."""
    for node in ctx.nodes(cst.Attribute):
        if ctx.dotted(node) == _MODULE and ctx.same_meaning(node, at):
            return ctx.quote(node), []
    nn = ctx.named(Import("torch.nn", alias="nn"), at)
    return f"{nn.local}.Module", [nn]


def beside_module(found: cst.BaseExpression, ctx: Context) -> cst.BaseExpression | None:
    """The whole of `nn.Module | FSDP` or `Union[nn.Module, FSDP]`, whose two types are the same one now."""
    around = (each for each in ctx.ancestors(found) if not isinstance(each, (cst.SubscriptElement, cst.Index)))
    outer = next(around, None)
    if isinstance(outer, cst.BinaryOperation):
        types = [outer.left, outer.right]
    elif isinstance(outer, cst.Subscript) and ctx.dotted(outer.value) == "typing.Union":
        types = [each.slice.value for each in outer.slice if isinstance(each.slice, cst.Index)]
    else:
        return None
    others = [each for each in types if each is not found]
    return outer if len(others) == 1 and ctx.dotted(others[0]) == _MODULE else None
