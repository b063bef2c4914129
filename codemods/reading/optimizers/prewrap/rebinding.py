"""Where an optimizer from before the wrap can be given the sharded parameters, under which name."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import
from codemods.reading.code.enclosing import names_around
from codemods.reading.code.places import bound, item, meets, place, reads
from codemods.reading.code.shapes import parameters
from codemods.reading.edits.layout import statement_start
from codemods.reading.optimizers.makers import is_optimizer
from codemods.reading.wraps.wrapped import calls_above, wrapped_module

from .entering import aliases, arguments_of, own_inits
from .inner_optimizer import inner_optimizer
from .keeping import written_by
from .outward import Early, Step

_NAMED_SO = re.compile(r"opt", re.IGNORECASE)


@dataclass(frozen=True)
class Rebinding:
    """Statements before and behind the one that wraps."""

    file: Context
    line: cst.CSTNode
    model: str
    optimizer: str
    inner: str
    """`.optimizer`, where the program steps an object of its own around it."""
    may_be_none: bool

    def edits(self, site: cst.Call) -> tuple[list[Edit], Import]:
        ctx = self.file
        item = ctx.named(Import(SUPPORT, "rebind_optimizer"), site)
        taken = names_around(ctx, site)
        names = (f"unsharded{suffix}" for suffix in ("", "_parameters", *range(2, len(taken) + 3)))
        kept = next(name for name in names if name not in taken)
        start, end = ctx.whole_lines(self.line)
        indent = ctx.text[start : ctx.span(self.line)[0]]
        newline = ctx.newline
        if ctx.text[:end].endswith(newline):
            end -= len(newline)
        call = f"{item.local}({self.optimizer}{self.inner}, {kept}, {self.model})"
        if self.may_be_none:
            call = f"if {self.optimizer} is not None:{newline}{indent}{ctx.indent}{call}"
        before = f"{indent}{kept} = list({self.model}.named_parameters()){newline}"
        above = statement_start(ctx, self.line)[1]  # the line above may go
        return [Edit(above, above, before), Edit(end, end, f"{newline}{indent}{call}")], item


def rebinding(early: Early, kept: Collection[Path]) -> list[tuple[cst.Call, Rebinding]] | None:
    """A rebinding for each optimizer that is built early; None where one has no name at the wrap, outside of `kept`."""
    optimizers = _optimizers(early)
    if not optimizers:
        return None
    found = [_rebinding(early, optimizer, inner, kept) for optimizer, inner in optimizers.items()]
    return [each for each in found if each is not None] if None not in found else None


def keeps_lists(early: Early) -> bool:
    """Whether a list or dict of the old parameters is used below the wrap."""
    ctx, here = early.file, early.file.span(early.site)[1]
    for holder in early.holders:
        if holder.is_optimizer:
            continue
        for statement in (n for n in ctx.ancestors(holder.call) if isinstance(n, cst.Assign)):
            if any(ctx.span(use)[0] > here for use in ctx.uses(statement)):
                return True
    return False


def _optimizers(early: Early) -> dict[str, str] | None:
    """The places of the optimizers, and where each has the one that it steps; None when one has no place, or is built
    below the wrap from older parameters."""
    ctx = early.file
    kept: frozenset[str] = frozenset()
    calls = [holder.call for holder in early.holders if holder.is_optimizer and not holder.name]
    for holder in early.holders:
        if not holder.is_optimizer:
            kept |= written_by(ctx, holder.call)
    for call in ctx.calls(ctx.scope(early.site)) if kept else ():
        if is_optimizer(ctx, call) and meets(reads(call), kept) and call not in calls:
            if call not in list(calls_above(ctx, early.site, early.model)):
                return None
            calls.append(call)
    found = {holder.name: "" for holder in early.holders if holder.is_optimizer and holder.name}
    for made in calls:
        kept_in = _kept_in(ctx, made)
        names = _names_of(ctx, kept_in)
        inner = inner_optimizer(ctx, kept_in) if isinstance(kept_in, cst.Call) else ""
        if not names or inner is None:
            return None
        found |= {name: inner for name in names if name not in found}
    return found


def _kept_in(ctx: Context, made: cst.BaseExpression) -> cst.BaseExpression:
    """`ScheduledOptim(AdamW(…), 100)` of the `AdamW(…)` in it, which that steps."""
    holder = ctx.parent(made)
    outer = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    return outer if isinstance(outer, cst.Call) and inner_optimizer(ctx, outer) else made


def _names_of(ctx: Context, call: cst.BaseExpression) -> list[str]:
    """What the optimizer that a call makes is bound to; of several names the ones that say so."""
    holder = ctx.parent(call)
    while isinstance(holder, (cst.Element, cst.Tuple, cst.IfExp)):
        holder = ctx.parent(holder)
    if not isinstance(holder, cst.Assign) or len(holder.targets) != 1:
        return []
    target = holder.targets[0].target
    names = list(bound(target))
    if isinstance(target, (cst.Tuple, cst.List)):
        return [name for name in names if _NAMED_SO.search(name)]
    return [name for name in names if place(target) == name]


def _rebinding(early: Early, optimizer: str, inner: str, kept: Collection[Path]) -> tuple[cst.Call, Rebinding] | None:
    """As far in as the optimizer is passed along with the model: nothing may use it before."""
    outer = Step(early.file, early.site, early.model)
    levels = [(outer, optimizer, False)]
    for step in reversed(early.inner):
        outer, name, may_be_none = levels[-1]
        inside = _inside_of(step, outer.site, name)
        if inside is None:
            break
        levels.append((step, inside[0], inside[1] or may_be_none))
    for step, name, may_be_none in reversed(levels):
        line = _line(step, early) if "(" not in name else None
        if line is not None and step.file.path not in kept:
            module = wrapped_module(step.site)
            model = step.file.code(module) if module is not None and item(module) is not None else step.model
            return step.site, Rebinding(step.file, line, model, name, inner, may_be_none)
    return None


def _inside_of(step: Step, caller: cst.Call, optimizer: str) -> tuple[str, bool] | None:
    """The name that the optimizer has in the called function, and whether it can be None there."""
    receiver = place(caller.func.value) if isinstance(caller.func, cst.Attribute) else None
    if receiver is not None and optimizer.startswith(f"{receiver}."):
        return f"self{optimizer[len(receiver) :]}", False
    function = step.file.scope(step.site)
    if not isinstance(function, cst.FunctionDef):
        return None
    for parameter in parameters(function):
        for where, call, value in step.file.passed_to(step.site, parameter.name.value):
            if call is caller and optimizer in {place(value), where.code(value)}:
                return parameter.name.value, parameter.default is not None
    return _kept_inside(step, caller, optimizer)


def _kept_inside(step: Step, made: cst.Call, optimizer: str) -> tuple[str, bool] | None:
    """`self.optimizer`, where the object was made with the optimizer: `Trainer(net, optimizer)`."""
    for where, init in own_inits(step.file, step.site):
        for caller, call in where.callers(init.body.body[0]):
            for name, argument in arguments_of(init, call) if call is made else ():
                if optimizer in {place(argument.value), caller.code(argument.value)}:
                    kept = sorted(each for each in aliases(where, init, frozenset({name})) if each.startswith("self."))
                    return (kept[0], False) if kept else None
    return None


def _line(step: Step, early: Early) -> cst.CSTNode | None:
    """The statement that wraps: the whole loop or `with` where it stands in one, and the optimizer does not."""
    found: cst.CSTNode | None = None
    around = {node for holder in early.holders for node in early.file.ancestors(holder.call)}
    for node in step.file.ancestors(step.site):
        if isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            break
        if isinstance(node, cst.For) and _binds(node, step.model):
            break  # another model each time round
        if isinstance(node, (cst.Return, cst.Raise)) or (found is None and isinstance(node, cst.BaseComp)):
            return None
        if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1:
            found = node
        elif isinstance(node, (cst.For, cst.With)) and found is not None and node not in around:
            found = node
    return found


def _binds(node: cst.CSTNode, model: str) -> bool:
    """Whether the model gets its name in a loop."""
    targets: list[cst.BaseExpression] = []
    if isinstance(node, cst.Assign):
        targets = [target.target for target in node.targets]
    elif isinstance(node, cst.For):
        targets = [node.target]
    return any(model in bound(target) for target in targets) or any(_binds(child, model) for child in node.children)
