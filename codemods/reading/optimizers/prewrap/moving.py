"""Whether statements above a wrap can stand below it and do the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Edit
from codemods.reading.code.enclosing import contains, enclosing
from codemods.reading.code.places import base, meets, place, reads, writes
from codemods.reading.code.words import last_name
from codemods.reading.wraps.manual import is_constructor, is_factory
from codemods.reading.wraps.wrapped import wrapped_place
from codemods.tables.modules import KEEP_PARAMETERS

from .inside import other_names
from .outward import Early
from .references import PrewrapReference, references_above

_STATEMENTS = (cst.Assign, cst.AugAssign, cst.Expr, cst.Assert, cst.Pass)
_STAYING = (cst.Return, cst.Raise, cst.Break, cst.Continue, cst.Yield, cst.Await, cst.FunctionDef, cst.ClassDef)
_RUNS = re.compile(r"train|fit|run|eval|main|loop|step$|backward", re.IGNORECASE)
_SAYS = frozenset({"print", "info", "debug", "warning", "log", "print_rank_0", "pprint", "rank_zero_info"})
_FILLS = frozenset({"append", "extend", "add", "update", "add_param_group"})
_LOOKS = frozenset({"len", "sum", "isinstance", "type", "str", "id", "repr", "hasattr", "issubclass", "any", "all"})
_SAME_FUNCTIONS = frozenset({"apply_activation_checkpointing", "compile", "watch", "DistributedDataParallel", "DDP"})
_RESHAPES = re.compile(r"setattr|add_module|register_|_modules\b|_parameters\b|\bnn\.|del ")


@dataclass(frozen=True)
class Moving:
    """Statements of one block, and the statement of it that they are to stand behind."""

    file: Context
    statements: Sequence[cst.CSTNode]
    behind: cst.CSTNode

    def edits(self) -> list[Edit]:
        """Take the statements away with the comments above them, and write them again."""
        ctx, newline = self.file, self.file.newline
        spans = [_with_comments(ctx, statement) for statement in self.statements]
        texts = [ctx.quote_lines(start, start + len(ctx.text[start:end].rstrip("\r\n"))) for start, end in spans]
        edits = [Edit(start, _behind_blank(ctx, start, end), "") for start, end in _joined(ctx, spans)]
        behind = ctx.whole_lines(self.behind)[1]
        if ctx.text[:behind].endswith(newline):
            behind -= len(newline)
        return [*edits, Edit(behind, behind, "".join(newline + text for text in texts))]


def moving(early: Early) -> Moving | None:
    """What has to stand behind the last wrap of the model, or None when that cannot be proved to be the same."""
    ctx = early.file
    block = _common_block(ctx, early.site, early.holders)
    if block is None or not all(holder.can_move for holder in early.holders):
        return None
    body: list[cst.CSTNode] = list(block.body)
    same = (name for name, is_whole in other_names(ctx, early.site, early.model) if is_whole)
    models = frozenset({early.model, *same})
    held = _held(early, block, models)
    while more := _other_models(early, held) - models:
        models |= more
        held = _held(early, block, models)
    if any(ctx.parent(statement) is not block for statement in held):
        return None
    first = min(body.index(statement) for statement in held)
    while first and _starts_collection(body[first - 1], body[first]):
        first -= 1
        held.add(body[first])
    wraps = _wraps(early, models)
    last = max(i for i, statement in enumerate(body) if any(contains(ctx, statement, call) for call in wraps))
    imported = {name.split(".")[0] for alias in ctx.nodes(cst.ImportAlias) for name in writes(alias)}
    moved: list[cst.CSTNode] = []
    made: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    stays = []
    for statement in body[first : last + 1]:
        read, written = _own(reads(statement), imported), _own(writes(statement), imported)
        others = frozenset(p for p in written if not meets(frozenset({p}), models))
        if any(contains(ctx, statement, call) for call in wraps):
            if statement in held or meets(made, read | written) or meets(needed, others):
                return None
            stays.append(statement)
        elif statement in held or meets(made, read | written):
            if not _is_movable(ctx, statement, statement in held):
                return None
            moved.append(statement)
            made, needed = made | written, needed | read
        else:
            if meets(needed, others) or _disturbs(ctx, statement, models):
                return None
            stays.append(statement)
    if not moved or _is_seen_elsewhere(ctx, early.site, made, stays):
        return None
    return Moving(ctx, moved, body[last])


def _common_block(
    ctx: Context, site: cst.Call, holders: Sequence[PrewrapReference]
) -> cst.IndentedBlock | cst.Module | None:
    """The innermost block with all of them in it; None when another function lies between."""
    for node in ctx.ancestors(site):
        if isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            return None
        if isinstance(node, (cst.IndentedBlock, cst.Module)):
            if all(contains(ctx, node, holder.call) for holder in holders):
                return node
    return None


def _starts_collection(above: cst.CSTNode, statement: cst.CSTNode) -> bool:
    """`decay, no_decay = [], []`, above the loop that fills them."""
    if not isinstance(above, cst.SimpleStatementLine) or not isinstance(above.body[0], cst.Assign):
        return False
    value = above.body[0].value
    values = [element.value for element in value.elements] if isinstance(value, cst.Tuple) else [value]
    empty = all(isinstance(v, (cst.List, cst.Dict)) and not v.elements for v in values)
    return empty and meets(writes(above), writes(statement))


def _held(early: Early, block: cst.CSTNode, models: frozenset[str]) -> set[cst.CSTNode]:
    """The statements of a block by which something gets hold of the parameters of one of these models."""
    holders = (holder for model in models for holder in references_above(early.file, early.site, model))
    return {_statement_in(early.file, block, holder.call) for holder in holders}


def _other_models(early: Early, held: set[cst.CSTNode]) -> frozenset[str]:
    """The other models that the same function wraps, and whose parameters the same statements read."""
    ctx = early.file
    places = {wrapped_place(ctx, c) for c in ctx.calls(ctx.scope(early.site)) if is_constructor(ctx, c)}
    read = frozenset().union(*(reads(statement) for statement in held))
    return frozenset(p for p in places if p is not None and meets(read, frozenset({p})))


def _wraps(early: Early, models: frozenset[str]) -> list[cst.Call]:
    """The calls of this function that wrap one of the models or a part of it, one way or another."""
    ctx = early.file
    found = [early.site]
    for call in ctx.calls(ctx.scope(early.site)):
        given = {base(argument.value) for argument in call.args}
        if is_constructor(ctx, call):
            given = {wrapped_place(ctx, call)}
        elif not _is_made_by_factory(ctx, call) and not any(
            is_constructor(where, c) for where, function in ctx.runs(call) for c in where.calls(function)
        ):
            continue
        if meets(frozenset(g for g in given if g is not None), models):
            found.append(call)
    return found


def _is_made_by_factory(ctx: Context, call: cst.Call) -> bool:
    """`wrapper(model)`, for `wrapper = partial(FSDP, ...)`."""
    made = (origin.node for origin in ctx.origins(call.func) if origin.file is ctx)
    return any(isinstance(node, cst.Call) and is_factory(ctx, node) for node in made)


def _statement_in(ctx: Context, block: cst.CSTNode, node: cst.CSTNode) -> cst.CSTNode:
    for ancestor in ctx.ancestors(node):
        if ancestor is block:
            break
        node = ancestor
    return node


def _own(places: frozenset[str], imported: set[str]) -> frozenset[str]:
    return frozenset(p for p in places if p.split(".")[0] not in imported)


def _is_movable(ctx: Context, statement: cst.CSTNode, held: bool) -> bool:
    for node in ctx.inside(statement):
        if isinstance(node, _STAYING):
            return False
        if isinstance(node, (cst.Name, cst.Attribute)) and ctx.fsdp1(node) is not None:
            return False
        if isinstance(node, cst.BaseSmallStatement) and not isinstance(node, _STATEMENTS):
            return False
        if isinstance(node, cst.SimpleStatementLine) and len(node.body) != 1:
            return False
        if isinstance(node, cst.Expr) and not (
            isinstance(node.value, cst.Call) and last_name(node.value.func) in _SAYS | _FILLS
        ):
            return isinstance(node.value, cst.BaseString)
        if isinstance(node, cst.Call) and not held:
            if _RUNS.search(last_name(node.func)) or (
                isinstance(node.func, cst.Attribute) and place(node.func.value) == "self"
            ):
                return False
    return isinstance(statement, (cst.SimpleStatementLine, cst.If, cst.For))


def _disturbs(ctx: Context, statement: cst.CSTNode, models: frozenset[str]) -> bool:
    """Whether a statement can give a model other parameters, so that the order matters."""
    if isinstance(statement, cst.For) and meets(reads(statement.iter), models):
        if _RESHAPES.search(ctx.code(statement.body)):
            return True
    for node in ctx.inside(statement):
        found = place(node)
        if found is None or not meets(frozenset({found}), models) or isinstance(ctx.parent(node), cst.Attribute):
            continue
        holder = ctx.parent(node)
        if isinstance(holder, cst.AssignTarget):
            value = getattr(ctx.parent(holder), "value", None)
            if not _is_same_module(value, models):
                return True
        elif isinstance(holder, cst.Call) and holder.func is node:
            if isinstance(node, cst.Attribute) and node.attr.value not in KEEP_PARAMETERS:
                return True
        elif isinstance(holder, cst.Arg):
            call = ctx.parent(holder)
            if isinstance(call, cst.Call) and last_name(call.func) not in _LOOKS | _SAYS | _SAME_FUNCTIONS:
                return True
    return False


def _is_same_module(value: object, models: frozenset[str]) -> bool:
    """`model.to(device)`, `torch.compile(model)`: the same parameters."""
    if not isinstance(value, cst.Call):
        return isinstance(value, (cst.Name, cst.Attribute)) and place(value) in models
    if isinstance(value.func, cst.Attribute) and value.func.attr.value in KEEP_PARAMETERS:
        return base(value.func.value) in models
    return last_name(value.func) in _SAME_FUNCTIONS


def _is_seen_elsewhere(ctx: Context, site: cst.Call, made: frozenset[str], stays: Sequence[cst.CSTNode]) -> bool:
    """Whether a function that runs before the new place can read what is moved there, by a name from outside of it."""
    roots = {p for p in made if "." not in p}
    scope = ctx.scope(site)
    if not any(
        n.value in roots and ctx.scope(n) is not scope and _is_within(ctx, scope, n) for n in ctx.nodes(cst.Name)
    ):
        return False
    calls = (node for statement in stays for node in ctx.inside(statement) if isinstance(node, cst.Call))
    return any(ctx.runs(call) for call in calls)


def _is_within(ctx: Context, scope: cst.CSTNode, name: cst.Name) -> bool:
    inner = enclosing(ctx, name, cst.FunctionDef, cst.Lambda)
    return inner is not None and contains(ctx, scope, inner) and not ctx.is_local(name.value, name)


def _with_comments(ctx: Context, statement: cst.CSTNode) -> tuple[int, int]:
    start, end = ctx.whole_lines(statement)
    while start:
        above = ctx.text.rfind("\n", 0, start - 1) + 1
        if not ctx.text[above:start].lstrip().startswith("#"):
            break
        start = above
    return start, end


def _line_end(ctx: Context, offset: int) -> int:
    end = ctx.text.find("\n", offset)
    return end + 1 if end >= 0 else len(ctx.text)


def _joined(ctx: Context, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans with nothing but white space between them as one."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and not ctx.text[joined[-1][1] : start].strip():
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


def _behind_blank(ctx: Context, start: int, end: int) -> int:
    """The end of what is taken away: with the blank line below it, where one above stays or a block starts."""
    above = ctx.text[ctx.text.rfind("\n", 0, max(start - 1, 0)) + 1 : start].strip()
    below = _line_end(ctx, end)
    return below if not ctx.text[end:below].strip() and (not above or above.endswith(":")) else end
