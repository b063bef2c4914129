"""What a program asks a model for its class, and where a model that is asked goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.enclosing import upward
from codemods.tables.names import WRAPPER

LEAVES = (cst.Return, cst.Raise, cst.Break, cst.Continue, cst.Yield)
BLOCKS = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)


def model_of(ctx: Context, node: cst.CSTNode) -> cst.BaseExpression | None:
    """The model that a construct of FSDP1 is given, or asks for its class; None where none is at hand."""
    call = ctx.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node:
        asked = asked_for_class(ctx, call) if isinstance(call, (cst.Comparison, cst.ComparisonTarget)) else None
        return asked if asked is not None else _walked_over(ctx, node)
    given = [a for a in call.args if not a.star]
    wrapped = [a.value for a in given if ModelKind.FSDP in ctx.kinds(a.value)]
    named = [a.value for a in given if a.keyword is not None and a.keyword.value in {"module", "model"}]
    positional = [a.value for a in given if a.keyword is None]
    return next(iter([*wrapped, *named, *positional]), None)


def _walked_over(ctx: Context, node: cst.CSTNode) -> cst.BaseExpression | None:
    """`model` in `[isinstance(p, FlatParameter) for p in model.parameters()]`."""
    for outer in ctx.ancestors(node):
        if isinstance(outer, (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)):
            over = outer.for_in.iter
            if isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute) and over.func.attr.value in _WALKS:
                return over.func.value
        if isinstance(outer, cst.BaseStatement):
            return None
    return None


_WALKS = frozenset({"parameters", "named_parameters", "modules", "named_modules"})


def asked_for_class(ctx: Context, test: cst.CSTNode) -> cst.BaseExpression | None:
    """`model` in `type(model) is FSDP` and `model.__class__ is FSDP`."""
    compared = ctx.parent(test) if isinstance(test, cst.ComparisonTarget) else test
    for node in ctx.inside(compared) if compared is not None else ():
        if isinstance(node, cst.Call) and ctx.code(node.func) == "type" and len(node.args) == 1:
            return node.args[0].value
        if isinstance(node, cst.Attribute) and node.attr.value == "__class__":
            return node.value
    return None


def has_left(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether no FSDP model comes here: `if isinstance(model, FSDPModule): return …` above, a test for DDP around."""
    name = ctx.code(model)
    if False in tests_around(ctx, model, name):
        return True
    for block, inner in blocks(ctx, model):
        statements = statements_of(block)
        for statement in statements[: statements.index(inner)] if inner in statements else ():
            if isinstance(statement, cst.If) and statement.orelse is None and _leaves(statement.body):
                if True in _asked(ctx, statement.test, name):
                    return True
    return False


def _leaves(body: cst.BaseSuite) -> bool:
    last = body.body[-1]
    return isinstance(last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last, LEAVES)


def tests_around(ctx: Context, node: cst.CSTNode, model: str | None) -> set[bool]:
    """Whether the class tests that are met here ask for FSDP's classes."""
    found: set[bool] = set()
    for inner, outer in upward(ctx, node):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
            break
        if isinstance(outer, cst.If) and inner is outer.body:
            found |= _asked(ctx, outer.test, model)
    return found


def _asked(ctx: Context, test: cst.BaseExpression, model: str | None) -> set[bool]:
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return _asked(ctx, test.left, model) | _asked(ctx, test.right, model)
    if not isinstance(test, cst.Call) or len(test.args) != 2 or ctx.code(test.func) != "isinstance":
        return set()
    asked = test.args[1].value
    if isinstance(asked, cst.Tuple) or model not in (None, ctx.code(test.args[0].value)):
        return set()
    dotted = ctx.dotted(asked) or ""
    return {ctx.fsdp1(asked) == WRAPPER or dotted.endswith(".FSDPModule")} if dotted else set()


def blocks(ctx: Context, node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """The blocks around a node up to its function, each with the statement in it that holds the node."""
    for inner, outer in upward(ctx, node):
        if isinstance(outer, BLOCKS):
            yield outer, inner
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)) and isinstance(inner, BLOCKS):
            return


def statements_of(block: cst.CSTNode) -> Sequence[cst.CSTNode]:
    assert isinstance(block, BLOCKS)
    return block.body
