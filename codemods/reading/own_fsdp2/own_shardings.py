"""Where a program shards by its own `fully_shard`, beside what the tool makes of its FSDP1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import libcst as cst

from codemods.api import SUPPORT, Context
from codemods.reading.code.words import last_name
from codemods.reading.own_fsdp2.shardings import WORDS, is_fully_shard

DEPTH = 4
"""Calls that are followed from a place down to `fully_shard`."""

_OF_LIBRARIES = ("apply_fsdp2", "fsdp2_prepare_model")
"""What shards by `fully_shard` for others: verl's function and accelerate's, both in their `fsdp_utils`."""
SHARDING = (*WORDS, *_OF_LIBRARIES)

Definition = cst.FunctionDef | cst.ClassDef


class OwnShardings:
    """The calls of one program that are `fully_shard`, or lead to it through the program's own code."""

    def __init__(self, files: Iterable[Context]) -> None:
        """`files`: those of the program that hold one of the words."""
        self._files = files

    def reaches(self, ctx: Context, call: cst.Call) -> bool:
        """Whether a call is `fully_shard`, or leads to it."""
        if _shards(ctx, call.func):
            return True
        if not self._may_lead(call.func):
            return False
        followed = [found for found, _ in definitions(ctx, call.func) if not _is_stub(found)]
        if any(found in self._leading for found in followed):
            return True
        # The model's class is not seen, or is the base of what it is: every class that has the method decides.
        heirs = [] if followed else _methods_of_the_name(ctx, call.func)
        return bool(heirs) and all(definition in self._leading for definition in heirs)

    def leads(self, ctx: Context, named: cst.BaseExpression) -> bool:
        """Whether what a name means leads to `fully_shard` when it is called."""
        return self._may_lead(named) and any(found in self._leading for found, _ in definitions(ctx, named))

    def _may_lead(self, called: cst.BaseExpression) -> bool:
        return not isinstance(called, cst.Attribute) or called.attr.value in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        """What is called in some place that may lead there."""
        called = [last_name(call.func) for node, ctx in self._leading.items() for _, call in ctx.called_as_named(node)]
        return frozenset([*called, *(node.name.value for node in self._leading)])

    @cached_property
    def _leading(self) -> Mapping[Definition, Context]:
        """The definitions that call `fully_shard`, and those that lead to them."""
        nearer = {
            outer: ctx
            for ctx in self._files
            for call in ctx.nodes(cst.Call)
            if _shards(ctx, call.func)
            for outer in _around(ctx, call)
        }
        known = dict(nearer)
        for _ in range(DEPTH - 1):
            above: dict[Definition, Context] = {}
            for node, ctx in nearer.items():
                for where, call in ctx.called_as_named(node):
                    outer = [each for each in _around(where, call) if each not in known]
                    if outer and any(found is node for found, _ in definitions(where, call.func)):
                        above.update(dict.fromkeys(outer, where))
            known |= above
            nearer = above
        return known


def _shards(ctx: Context, callee: cst.BaseExpression) -> bool:
    """Whether an expression is `fully_shard`, or a library's function that is known to call it."""
    return is_fully_shard(ctx, callee) or (last_name(callee) in _OF_LIBRARIES and ctx.dotted(callee) is not None)


def definitions(ctx: Context, callee: cst.BaseExpression) -> Iterator[tuple[Definition, Context]]:
    """What a name can be the name of, in the user's own files."""
    for origin in ctx.origins(callee):
        if isinstance(origin.node, (cst.FunctionDef, cst.ClassDef)) and origin.file.path.stem != SUPPORT:
            yield origin.node, origin.file


def is_handed(call: cst.Call, models: set[str]) -> bool:
    """Whether a call takes a model, as an argument, in `*args`, or by being its method."""
    receiver = roots(call.func) if isinstance(call.func, cst.Attribute) else set()
    handed = receiver.union(*(roots(argument.value) for argument in call.args))
    return any(argument.star for argument in call.args) or bool(models & handed)


def roots(expression: cst.BaseExpression | None) -> set[str]:
    """The names at the front: `model` in `model.module`, in `model.cuda()` and in `model.inner if x else model`."""
    while isinstance(expression, (cst.Attribute, cst.Subscript, cst.Call)):
        if isinstance(expression, cst.Call):
            expression = expression.func if isinstance(expression.func, cst.Attribute) else None
        else:
            expression = expression.value
    if isinstance(expression, cst.IfExp):
        return roots(expression.body) | roots(expression.orelse)
    return {expression.value} if isinstance(expression, cst.Name) else set()


def _around(ctx: Context, call: cst.Call) -> list[Definition]:
    """The functions and classes that a call stands in, in the user's own files."""
    if ctx.path.stem == SUPPORT:
        return []
    return [outer for outer in ctx.ancestors(call) if isinstance(outer, (cst.FunctionDef, cst.ClassDef))]


def _methods_of_the_name(ctx: Context, callee: cst.BaseExpression) -> list[Definition]:
    if not isinstance(callee, cst.Attribute):
        return []
    name = callee.attr.value
    found = [
        (node, file) for file in ctx.files(name) for node in file.nodes(cst.FunctionDef) if node.name.value == name
    ]
    return [node for node, file in found if isinstance(file.scope(node), cst.ClassDef) and not _is_stub(node)]


def _is_stub(definition: Definition) -> bool:
    """A method that says no more than what it is for: its text, and `raise NotImplementedError` or `pass`."""
    if not isinstance(definition, cst.FunctionDef) or not isinstance(definition.body, cst.IndentedBlock):
        return False
    lines = definition.body.body
    return all(isinstance(line, cst.SimpleStatementLine) and all(map(_says_nothing, line.body)) for line in lines)


def _says_nothing(statement: cst.BaseSmallStatement) -> bool:
    is_text = isinstance(statement, cst.Expr) and isinstance(statement.value, (cst.BaseString, cst.Ellipsis))
    return is_text or isinstance(statement, (cst.Raise, cst.Pass))
