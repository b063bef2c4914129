"""Raises: before what FSDP2 would silently ignore, on the way of an FSDP model alone, and once a function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

import libcst as cst

from codemods.api import FSDP_MODULE, Context, Edit, Fix, Import, ModelKind, Raise
from codemods.reading.code.places import place, writes
from codemods.reading.code.shapes import is_attribute
from codemods.reading.edits.layout import insertion
from codemods.reading.wrappers.asked_classes import BLOCKS, LEAVES, blocks, has_left, statements_of, tests_around
from codemods.reading.wraps.manual import is_constructor
from codemods.tables.leftovers import INTERNALS, OF_WRAPPER, STATIC

_PREFIX = "fsdp-migrate "
_MISSING = INTERNALS | OF_WRAPPER | STATIC
_WIDE = frozenset({"BaseException", "Exception", "NotImplementedError", "RuntimeError"})
"""What a NotImplementedError is."""
_RUNS_ITS_BODY = (cst.For, cst.While, cst.With)
_Anchor = tuple[cst.CSTNode, cst.CSTNode]
"""A block, and the statement of it that a raise stands before."""


def placed(ctx: Context, raises: Iterable[Raise]) -> Fix:
    """The edits for what the rules want to stop in one file."""
    edits: list[Edit] = []
    imports: list[Import] = []
    made: list[tuple[_Anchor, str]] = []
    for each in sorted(set(raises), key=lambda each: ctx.span(each.node)):
        guard = _guard(ctx, each)
        if guard is None or _is_covered(ctx, each, guard[0], made):
            continue
        test, needs = guard
        anchor = _anchor(ctx, each, test)
        made.append((anchor, test))
        edits.append(insertion(ctx, anchor[1], _lines(ctx, each, test, anchor[1])))
        imports += needs
    return Fix(edits, imports=imports)


def is_stopped(ctx: Context, node: cst.CSTNode, code: str) -> bool:
    """Whether an earlier run has put a `raise` on the way to the statement that holds `node`."""
    return any(text.startswith(f"{_PREFIX}{code}: ") for _, text in _above(ctx, node))


def _guard(ctx: Context, wanted: Raise) -> tuple[str, list[Import]] | None:
    """The test for an FSDP model, empty where no other comes there; None where none comes, or no name is at hand."""
    if wanted.certain:
        return "", []
    model = wanted.model
    if model is None:
        return ("", []) if True in tests_around(ctx, wanted.node, None) else None
    held = ctx.kinds(model)
    if wanted.sharded.name == "FSDPModule":
        if not held - {ModelKind.DDP} or has_left(ctx, model):
            return None
        if held == {ModelKind.FSDP} and _is_certain(ctx, model):
            return "", []
    name = place(model)
    if name is None or _is_bound_inside(ctx, wanted.node, name.split(".")[0]):
        return ("", []) if held == {ModelKind.FSDP} else None
    item = ctx.named(wanted.sharded, wanted.node)
    if wanted.sharded == FSDP_MODULE and ctx.holds_parts(model):
        return f"any(isinstance(module, {item.local}) for module in {name}.modules())", [item]
    return f"isinstance({name}, {item.local})", [item]


def _is_certain(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether every model that comes here is wrapped in this very function, or was asked for its class."""
    if True in tests_around(ctx, model, ctx.code(model)):
        return True
    made = [origin.node if origin.file is ctx else None for origin in ctx.origins(model)]
    calls = [node for node in made if isinstance(node, cst.Call) and is_constructor(ctx, node)]
    return len(calls) == len(made) and {_function(ctx, call) for call in calls} == {_function(ctx, model)}


def _function(ctx: Context, node: cst.CSTNode) -> cst.CSTNode:
    """The function whose statements a node runs with: that of a lambda's, a default's or a class's body around it."""
    statement = next(inner for _, inner in blocks(ctx, node))
    return next((outer for outer in ctx.ancestors(statement) if isinstance(outer, cst.FunctionDef)), ctx.top)


def _is_bound_inside(ctx: Context, node: cst.CSTNode, name: str) -> bool:
    """Whether a lambda or a comprehension of the same statement binds the name: above it there is no such model."""
    for outer in ctx.ancestors(node):
        if isinstance(outer, BLOCKS):
            return False
        bound: Sequence[cst.CSTNode] = ()
        if isinstance(outer, cst.Lambda):
            bound = (outer.params,)
        elif isinstance(outer, (cst.BaseSimpleComp, cst.DictComp)):
            bound = tuple(n.target for n in ctx.inside(outer.for_in) if isinstance(n, cst.CompFor))
        if any(isinstance(n, cst.Name) and n.value == name for part in bound for n in ctx.inside(part)):
            return True
    return False


def _is_covered(ctx: Context, wanted: Raise, test: str, made: Sequence[tuple[_Anchor, str]]) -> bool:
    """Whether the program has stopped above, for the same model."""
    around = [(outer, inner) for outer, inner in blocks(ctx, wanted.node)]
    for (block, before), other in made:
        if other not in ("", test):
            continue
        for outer, inner in around:
            if outer is block and ctx.span(before)[0] <= ctx.span(inner)[0]:
                return True
    return any(other in ("", test) for other, _ in _above(ctx, wanted.node))


def _above(ctx: Context, node: cst.CSTNode) -> Iterator[tuple[str, str]]:
    """The tests and messages of the tool's own raises that stand above a node, in the blocks around it."""
    for block, inner in blocks(ctx, node):
        for statement in getattr(block, "body", ()):
            if statement is inner:
                break
            test, body = ("", statement)
            if isinstance(statement, cst.If) and statement.orelse is None:
                test, body = ctx.code(statement.test), statement.body.body[-1]
            raised = body.body[-1] if isinstance(body, cst.SimpleStatementLine) else body
            text = _message(raised)
            if text is not None:
                yield test, text


def _message(raised: cst.CSTNode) -> str | None:
    """The text of a `raise NotImplementedError("fsdp-migrate …")`."""
    if not isinstance(raised, cst.Raise) or not isinstance(raised.exc, cst.Call) or not raised.exc.args:
        return None
    given = raised.exc.args[0].value
    text = given.evaluated_value if isinstance(given, (cst.SimpleString, cst.ConcatenatedString)) else None
    return text if isinstance(text, str) and text.startswith(_PREFIX) else None


def _anchor(ctx: Context, wanted: Raise, test: str) -> _Anchor:
    """As early as the same way leads to it: out of loops and contexts, and above what neither leaves nor binds."""
    around = list(blocks(ctx, wanted.node))
    while len(around) > 1 and _fails_before(ctx, around[0][0]):
        around.pop(0)
    name = place(wanted.model) if wanted.model is not None and test else None
    around = _out_of_try(ctx, around, name)
    block, statement = around[0]
    if name is None or "." in name:  # what an attribute holds can be changed by any call
        return block, statement
    for index, (outer, inner) in enumerate(around):
        early = _earliest(ctx, outer, inner, name)
        block, statement = outer, early
        owner = ctx.parent(outer)
        first = statements_of(outer)[0] if statements_of(outer) else None
        if early is not first or index + 1 == len(around) or not isinstance(owner, _RUNS_ITS_BODY):
            break
        if name in _bound_by(owner):
            break
    return block, statement


def _out_of_try(ctx: Context, around: list[_Anchor], name: str | None) -> list[_Anchor]:
    """Above a `try:` that would catch what is raised in it, where nothing in it says what the model is."""
    for index, (block, inner) in enumerate(around[:-1]):
        owner = ctx.parent(block)
        if isinstance(owner, cst.Try) and owner.body is block and any(_catches(ctx, each) for each in owner.handlers):
            above = statements_of(block)[: statements_of(block).index(inner)]
            is_changed = any(_may_change(ctx, each, name) for each in above) if name is not None else bool(above)
            return around if is_changed else _out_of_try(ctx, around[index + 1 :], name)
        if not isinstance(owner, _RUNS_ITS_BODY) or name in _bound_by(owner):
            return around
    return around


def _catches(ctx: Context, handler: cst.ExceptHandler) -> bool:
    """Whether it takes a NotImplementedError, and goes on."""
    kinds = handler.type.elements if isinstance(handler.type, cst.Tuple) else [handler.type]
    names = [each.value if isinstance(each, cst.BaseElement) else each for each in kinds]
    is_wide = any(each is None or (isinstance(each, cst.Name) and each.value in _WIDE) for each in names)
    return is_wide and not any(isinstance(node, cst.Raise) for node in ctx.inside(handler.body))


def _may_change(ctx: Context, statement: cst.CSTNode, name: str) -> bool:
    """Whether a statement binds a model, or may set the attribute that holds it; or leaves."""
    nodes = list(ctx.inside(statement))
    is_called = "." in name and any(isinstance(node, cst.Call) for node in nodes)
    return is_called or name in writes(statement) or any(isinstance(node, LEAVES) for node in nodes)


def _fails_before(ctx: Context, block: cst.CSTNode) -> bool:
    """Whether an `if` asks an FSDP2 model for what it does not have, before it comes to its block: `m._has_params`."""
    owner = ctx.parent(block)
    asked = ctx.inside(owner.test) if isinstance(owner, cst.If) else ()
    if any(isinstance(node, cst.Name) and node.value in {"isinstance", "type"} for node in asked):
        return False
    return any(is_attribute(node, *_MISSING) and ModelKind.FSDP in ctx.kinds(node.value) for node in asked)


def _earliest(ctx: Context, block: cst.CSTNode, statement: cst.CSTNode, name: str) -> cst.CSTNode:
    statements = statements_of(block)
    at = statements.index(statement) if statement in statements else 0
    while at and not _is_barrier(ctx, statements[at - 1], name):
        at -= 1
    return statements[at] if statements else statement


def _is_barrier(ctx: Context, statement: cst.CSTNode, name: str) -> bool:
    """What a raise is not moved above: what may leave, binds the model, or only says what the block is."""
    if any(isinstance(node, LEAVES) for node in ctx.inside(statement)):
        return True
    if name in writes(statement):
        return True
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else statement
    return isinstance(small, (cst.Import, cst.ImportFrom)) or (
        isinstance(small, cst.Expr) and isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))
    )


def _bound_by(owner: cst.CSTNode) -> frozenset[str]:
    parts: Sequence[cst.CSTNode] = owner.items if isinstance(owner, cst.With) else ()
    if isinstance(owner, cst.For):
        parts = [cst.Assign([cst.AssignTarget(owner.target)], owner.iter)]
    return frozenset(name for part in parts for name in writes(part))


def _lines(ctx: Context, wanted: Raise, test: str, anchor: cst.CSTNode) -> list[str]:
    """`raise NotImplementedError(...)`, under its test, within the width of a line."""
    text = f"{_PREFIX}{wanted.code}: {wanted.why}".replace('"', "'")
    start = ctx.span(anchor)[0]
    room = ctx.width - (start - ctx.text.rfind("\n", 0, start) - 1) - (len(ctx.indent) if test else 0)
    lines = [f'raise NotImplementedError("{text}")']
    if len(lines[0]) > room:
        pieces = wrap(text, room - len(ctx.indent) - 3, drop_whitespace=False, break_on_hyphens=False)
        lines = ["raise NotImplementedError(", *(f'{ctx.indent}"{piece}"' for piece in pieces), ")"]
    if not test or wanted.model is None:
        return lines
    # What the model's own expression becomes, it becomes here: `model.module` is the model.
    test = test.replace(ctx.code(wanted.model), ctx.quote(wanted.model), 1)
    return [f"if {test}:", *(f"{ctx.indent}{line}" for line in lines)]
