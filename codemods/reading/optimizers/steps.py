"""Where a program lets its optimizers step, and what stands for a model there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import call_by, enclosing, is_label, is_self
from codemods.reading.code.places import bound, place
from codemods.reading.code.shapes import alone
from codemods.reading.code.words import last_name, words
from codemods.reading.optimizers.makers import is_named_optimizer, is_optimizer
from codemods.tables.optimizers import NOT_ONE


@dataclass(frozen=True)
class Trained:
    """A model, by the nodes that make it; and in the function that shards it, by its names there: the one that the
    program goes on with first."""

    made: frozenset[int]
    file: Context
    scope: cst.CSTNode
    names: tuple[str, ...]

    def name_in(self, ctx: Context, node: cst.CSTNode) -> str | None:
        """The place that a node reads, if it can hold the model."""
        if not isinstance(node, (cst.Name, cst.Attribute)) or is_self(node, ctx):
            return None
        where = place(node)
        if where is None or is_label(node, ctx):
            return None
        if isinstance(ctx.parent(node), (cst.AssignTarget, cst.Param, cst.ImportAlias)):
            return None
        if any(id(origin.node) in self.made for origin in ctx.origins(node)):
            return where
        is_here = ctx.path == self.file.path and ctx.scope(node) is self.scope
        return where if is_here and where in self.names else None


@dataclass(frozen=True)
class Made:
    """One call that makes an optimizer."""

    file: Context
    call: cst.Call

    @property
    def given(self) -> Iterator[cst.BaseExpression]:
        """What stands for models in its arguments."""
        for argument in self.call.args:
            for node in self.file.inside(argument.value):
                if isinstance(node, cst.Attribute) and node.attr.value in ("parameters", "named_parameters"):
                    yield node.value

    def name_of(self, model: Trained) -> str | None:
        """What a model is called in its arguments, if that name lasts; None where it is not for this model."""
        gone = _deleted(self.file, self.call)
        names = (model.name_in(self.file, each) for each in self.given)
        return next((name for name in names if name is not None and name not in gone), None)


@dataclass(frozen=True)
class Step:
    """One call of `optimizer.step()`, or of `scaler.step(optimizer)`."""

    file: Context
    call: cst.Call
    optimizer: cst.BaseExpression

    @property
    def statement(self) -> cst.SimpleStatementLine | None:
        """The statement that it is all of; None inside of a longer line."""
        line = enclosing(self.file, self.call, cst.SimpleStatementLine)
        small = alone(line)
        return line if isinstance(small, (cst.Expr, cst.Assign)) and small is self.file.parent(self.call) else None

    def trains(self, model: Trained) -> bool:
        """Whether its optimizer is not seen to be made of other models."""
        known = [Made(o.file, o.node) for o in self.file.origins(self.optimizer) if isinstance(o.node, cst.Call)]
        given = [(each.file, value) for each in known for value in each.given]
        return not given or any(model.name_in(where, value) for where, value in given)

    @property
    def is_never_made(self) -> bool:
        """Whether it stands in a function, not a method, that is named nowhere in the program."""
        function = self.file.scope(self.call)
        if not isinstance(function, cst.FunctionDef) or isinstance(self.file.scope(function), cst.ClassDef):
            return False
        if function.decorators or self.file.attributes(function.name.value):  # of a module that run time chooses, maybe
            return False
        return next(iter(self.file.references_to(function)), None) is None

    @property
    def made(self) -> list[Made]:
        """The calls that make its optimizer; none where it may be made in another way."""
        origins = self.file.origins(self.optimizer)
        found = [Made(o.file, o.node) for o in origins if isinstance(o.node, cst.Call) and is_optimizer(o.file, o.node)]
        return found if len(found) == len(origins) else []

    def name_of(self, model: Trained) -> str | None:
        """What a model is called in the function of the step; None where nothing there stands for it."""
        around = self.file.inside(self.file.scope(self.call))
        found = {text for node in around if (text := model.name_in(self.file, node)) is not None}
        found -= _deleted(self.file, self.call)
        return min(found, key=lambda text: (text != model.names[0], len(text), text), default=None)


def optimizer_steps(ctx: Context) -> Iterator[Step]:
    """All of the program, schedulers left out."""
    for where, attribute in ctx.attributes("step"):
        call = call_by(attribute, where)
        if call is None:
            continue
        if call.args and _is_scaler(where, attribute.value):
            yield Step(where, call, call.args[0].value)
        elif _is_optimizer(where, attribute.value):
            yield Step(where, call, attribute.value)


def _deleted(ctx: Context, at: cst.CSTNode) -> set[str]:
    """The places that are deleted somewhere in the function of a node."""
    deleted = (node.target for node in ctx.inside(ctx.scope(at)) if isinstance(node, cst.Del))
    return {each for target in deleted for each in bound(target)}


def _is_scaler(ctx: Context, node: cst.BaseExpression) -> bool:
    made = [o for o in ctx.origins(node) if isinstance(o.node, cst.Call)]
    return any(last_name(o.node.func).endswith("GradScaler") for o in made if isinstance(o.node, cst.Call)) or (
        last_name(node).endswith("scaler")
    )


def _is_optimizer(ctx: Context, node: cst.BaseExpression) -> bool:
    if words(last_name(node)) & NOT_ONE:  # a function may return both
        return False
    made = [o for o in ctx.origins(node) if isinstance(o.node, cst.Call)]
    if made:
        return any(is_optimizer(o.file, o.node) for o in made if isinstance(o.node, cst.Call))
    return is_named_optimizer(last_name(node))
