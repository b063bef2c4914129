"""What any file of the program says, this one or another."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.tables.names import WRAPPER

from .enclosing import enclosing, is_self
from .words import last_name

_SETTINGS = frozenset({"args", "cfg", "conf", "config", "hparams", "opt", "opts"})
"""What programs call their settings."""


def others(ctx: Context, word: str) -> Iterator[Context]:
    """The other files of the program that hold this identifier."""
    return (other for other in ctx.files(word) if other.path != ctx.path)


def imports_wrapper(ctx: Context) -> bool:
    """Whether a file deals with FSDP1: it imports the class, or names it through a module."""
    if any(name.startswith(WRAPPER) for _, name in ctx.references()):
        return True
    return any(alias.evaluated_name == WRAPPER for alias in ctx.nodes(cst.ImportAlias))


def reads_attribute(ctx: Context, name: str) -> bool:
    """Whether any file of the program reads an attribute of this name."""
    return any(not isinstance(file.parent(node), cst.AssignTarget) for file, node in ctx.attributes(name))


def defines_method(ctx: Context, name: str) -> bool:
    """Whether a class of the program has a method of this name."""
    return any(
        function.name.value == name and isinstance(file.scope(function), cst.ClassDef)
        for file in ctx.files(name)
        for function in file.nodes(cst.FunctionDef)
    )


def sets_attribute(ctx: Context, name: str) -> bool:
    """Whether any file of the program assigns to an attribute of this name, annotated or not."""
    return any(_is_target(where.parent(node), node) for where, node in ctx.attributes(name))


def may_be_models_own(ctx: Context, model: cst.BaseExpression, name: str) -> bool:
    """Whether an attribute that FSDP1's wrapper has as well may be one that the program gave to a model.

    Of what is seen to be a wrapped model, settings and plain objects that have one are no matter: `args.rank = 0`,
    `self.rank = 0` of a trainer that inherits from nothing.
    """
    is_sure = ctx.kinds(model) == {ModelKind.FSDP}
    sets = ((where, node) for where, node in ctx.attributes(name) if _is_target(where.parent(node), node))
    return any(not (is_sure and _is_no_model(node.value, where)) for where, node in sets)


def _is_no_model(owner: cst.BaseExpression, ctx: Context) -> bool:
    if is_self(owner, ctx):
        made = enclosing(ctx, owner, cst.ClassDef)
        return made is not None and all(ctx.code(base.value) == "object" for base in made.bases)
    return last_name(owner) in _SETTINGS


def sets_on_itself(ctx: Context, name: str) -> bool:
    """Whether a class of the program, which is no heir of FSDP1's, gives its objects an attribute of this name."""
    return any(
        _is_target(where.parent(node), node) and is_self(node.value, where) and not _is_heir(node, where)
        for where, node in ctx.attributes(name)
    )


def _is_heir(node: cst.CSTNode, ctx: Context) -> bool:
    owner = enclosing(ctx, node, cst.ClassDef)
    return owner is not None and any(ctx.fsdp1(base.value) == WRAPPER for base in owner.bases)


def _is_target(holder: cst.CSTNode | None, node: cst.Attribute) -> bool:
    return isinstance(holder, cst.AssignTarget) or (isinstance(holder, cst.AnnAssign) and holder.target is node)
