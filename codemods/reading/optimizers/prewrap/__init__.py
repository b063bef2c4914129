"""What is built from a model's parameters before they are sharded, and whether it can stand below or be rebound."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.parameters.of_model import Loop

from .moving import Moving, moving
from .outward import Early, early_holders
from .rebinding import Rebinding, keeps_lists, rebinding

__all__ = ["Early", "Rebinding", "Relocation", "early_holders", "is_only_counted", "keeps_lists", "relocations"]


@dataclass(frozen=True)
class Relocation:
    """What is done with what holds the parameters early: its statements move below the wrap, or it is rebound there."""

    early: Early
    moving: Moving | None
    rebinding: tuple[tuple[cst.Call, Rebinding], ...] | None

    @property
    def is_possible(self) -> bool:
        return self.moving is not None or self.rebinding is not None


def relocations(ctx: Context, call: cst.Call, kept: Collection[Path]) -> tuple[Relocation, ...]:
    """One for each function in which something from above a constructor call holds parameters.

    Nothing moves in the files that are kept.
    """
    return tuple(_relocation(early, kept) for early in early_holders(ctx, call))


def _relocation(early: Early, kept: Collection[Path]) -> Relocation:
    moved = moving(early) if early.file.path not in kept else None
    rebound = rebinding(early, kept) if moved is None else None
    return Relocation(early, moved, tuple(rebound) if rebound is not None else None)


# Whether parameters from before the wrap are only counted: `filter(...)` for a line in the log trains nothing.

_ASKED = frozenset({"dtype", "element_size", "nelement", "numel", "requires_grad", "shape", "size"})


def is_only_counted(made: cst.BaseExpression, ctx: Context) -> bool:
    """Whether all that is done with a collection is to ask how many it holds, and how large they are."""
    statement = enclosing(ctx, made, cst.Assign)
    uses = ctx.uses(statement) if statement is not None else ()
    return bool(uses) and all(_is_counted(use, ctx) for use in uses)


def _is_counted(use: cst.Name, ctx: Context) -> bool:
    holder = ctx.parent(use)
    if isinstance(holder, cst.Arg):
        call = ctx.parent(holder)
        return isinstance(call, cst.Call) and ctx.code(call.func) == "len"
    if isinstance(holder, (cst.For, cst.CompFor)):
        loop = _loop(holder, ctx)
        return loop is not None and _only_asks(loop, holder.target, ctx)
    return False


def _loop(holder: cst.For | cst.CompFor, ctx: Context) -> Loop | None:
    if isinstance(holder, cst.For):
        return holder
    around = ctx.parent(holder)
    return around if isinstance(around, Loop) else None


def _only_asks(loop: Loop, target: cst.BaseExpression, ctx: Context) -> bool:
    names = [node for node in ctx.inside(loop) if isinstance(node, cst.Name) and node.value == ctx.code(target)]
    return all(_is_asked(node, ctx) for node in names if node is not target)


def _is_asked(name: cst.Name, ctx: Context) -> bool:
    outer = ctx.parent(name)
    return isinstance(outer, cst.Attribute) and outer.value is name and outer.attr.value in _ASKED
