"""`averages = dict(ema.named_parameters())`, then `averages[name].mul_(d).add_(p, alpha=1 - d)` for each name and
parameter of another summoned model: what `updated_alike` says of pairs, by names.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains, enclosing, is_label
from codemods.reading.code.shapes import called_on, is_attribute, is_call_to, only_target
from codemods.reading.code.words import is_name
from codemods.reading.parameters.updated_alike import are_sharded_alike, is_update, whose
from codemods.tables.tensors import ON_TEXTS

_METHOD = "named_parameters"
_TABLES = ("dict", "OrderedDict")


def updated_by_name(call: cst.Call, models: Sequence[cst.BaseExpression], ctx: Context) -> cst.BaseExpression | None:
    """The model whose parameters change, where `call` gives those of one of the two; None where not all is seen."""
    block = enclosing(ctx, call, cst.With)
    inner = list(ctx.inside(block.body)) if block is not None else []
    tables = {node: model for node in inner if (model := _of_table(node, models, ctx)) is not None}
    loops = [node for node in inner if isinstance(node, cst.For) and _gives(node, tables, models, ctx)]
    if len(loops) != 1 or block is None:
        return None
    (loop,) = loops
    given = _gives(loop, tables, models, ctx)
    changed = [(table, model) for table, model in tables.items() if model is not given]
    if given is None or len(changed) != 1 or len(tables) > 2:
        return None
    ((table, model),) = changed
    name, param = [element.value for element in cst.ensure_type(loop.target, cst.Tuple).elements]
    if not isinstance(name, cst.Name) or not isinstance(param, cst.Name) or not _keeps_name(loop, name.value, ctx):
        return None
    held = cst.ensure_type(only_target(table), cst.Name).value

    def is_entry(node: cst.BaseExpression) -> bool:
        return isinstance(node, cst.Subscript) and ctx.code(node) == f"{held}[{name.value}]"

    def is_of_both(node: cst.BaseExpression) -> bool:
        return is_entry(node) or (isinstance(node, cst.Name) and node.value == param.value)

    calls = [node.value for node in ctx.inside(loop.body) if isinstance(node, cst.Expr)]
    seen = [each for each in calls if is_update(each, is_entry, is_of_both, ctx)]
    uses = [node for node in inner if isinstance(node, cst.Name) and node.value == param.value and node is not param]
    uses = [node for node in uses if not is_label(node, ctx) and not is_attribute(ctx.parent(node), "requires_grad")]
    for each in tables:
        entries = [node for node in ctx.uses(each) if not isinstance(ctx.parent(node), cst.ComparisonTarget)]
        uses += [node for node in entries if not contains(ctx, loop.iter, node)]
    is_all = bool(seen) and all(any(contains(ctx, each, use) for each in seen) for use in uses)
    return model if is_all and are_sharded_alike((model, given), ctx) else None


def _of_table(node: cst.CSTNode, models: Sequence[cst.BaseExpression], ctx: Context) -> cst.BaseExpression | None:
    """The model of `table = dict(model.named_parameters())`."""
    made = node.value if isinstance(node, cst.Assign) and isinstance(only_target(node), cst.Name) else None
    if not is_call_to(made, *_TABLES) or len(made.args) != 1 or made.args[0].keyword is not None:
        return None
    return whose(made.args[0].value, _METHOD, models, ctx)


def _gives(
    loop: cst.For, tables: dict[cst.CSTNode, cst.BaseExpression], models: Sequence[cst.BaseExpression], ctx: Context
) -> cst.BaseExpression | None:
    """The model whose names and parameters a loop goes over, in a table too."""
    if not isinstance(loop.target, cst.Tuple) or len(loop.target.elements) != 2:
        return None
    held = called_on(loop.iter, "items")
    found = [model for table, model in tables.items() if held is not None and held in ctx.uses(table)]
    return found[0] if len(found) == 1 else whose(loop.iter, _METHOD, models, ctx)


def _keeps_name(loop: cst.For, name: str, ctx: Context) -> bool:
    """Whether a name stays that of the parameter: `name = name.replace("module.", "")` takes off what stands around."""
    targets = [node for node in ctx.inside(loop.body) if isinstance(node, cst.AssignTarget)]
    bound = [node for node in targets if not isinstance(node.target, cst.Subscript) and name in _names(node, ctx)]
    return all(_is_cut_name(node, name, ctx) for node in bound)


def _names(node: cst.CSTNode, ctx: Context) -> set[str]:
    return {each.value for each in ctx.inside(node) if isinstance(each, cst.Name)}


def _is_cut_name(target: cst.AssignTarget, name: str, ctx: Context) -> bool:
    statement = ctx.parent(target)
    made = called_on(statement.value, *ON_TEXTS) if isinstance(statement, cst.Assign) else None
    return isinstance(target.target, cst.Name) and is_name(made, name)
