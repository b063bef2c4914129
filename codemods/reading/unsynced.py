"""Where `zero_grad` dropped gradients that no synchronised backward had followed.

FSDP1 kept them in `.grad`. FSDP2 keeps them where no `zero_grad` reaches, and adds them to the next step: an epoch that
ends between two synchronisations changes the next one (last loss 3.045851 before, 2.152269 after, measured on torch
2.13). A `zero_grad` right behind the optimizer's step finds nothing of the kind, since what steps was synchronised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.vocabulary import SUPPORT, Edit, File, Import, Undecided

_SCHEDULER = re.compile(r"sched", re.IGNORECASE)
_LINES = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
_SIMPLE = (*_LINES, cst.BaseSmallStatement)


def discard_gradients(model: cst.BaseExpression, file: File) -> tuple[list[Edit], list[Import]]:
    """The edits that drop the model's unsynchronised gradients behind each `zero_grad` that dropped them so far.

    Raises `Undecided` where one of them is not seen, or the model is not known beside it.
    """
    for other in file.others("zero_grad"):
        if not all(_follows_step(node, other) for node in other.nodes(cst.Attribute) if node.attr.value == "zero_grad"):
            raise Undecided(f"{other.path.name} calls zero_grad")
    if file.sets_attribute("grad"):
        raise Undecided("`.grad` is set by hand")
    edits, imports = [], []
    for call in _dropping(model, file):
        if not isinstance(file.parent(call), cst.Expr) or not _is_known(model, call, file):
            raise Undecided(f"`{file.code(call)}` drops them")
        item = file.named(Import(SUPPORT, "discard_unsynced_gradients"), call)
        edits.append(_behind(call, f"{item.local}({file.code(model)})", file))
        imports.append(item)
    return edits, imports


def _behind(call: cst.Call, text: str, file: File) -> Edit:
    """One more statement behind the one that is this call: on a line of its own where that has one."""
    if any(".no_sync" in file.code(item) for node in file.ancestors(call) for item in getattr(node, "items", ())):
        raise Undecided(f"`{file.code(call)}` stands inside of no_sync")
    line = file.parent(file.parent(call) or call)
    end = file.span(call)[1]
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return Edit(end, end, f"; {text}")
    start = file.whole_lines(line)[0]
    indent = file.text[start : file.span(line)[0]]
    comment = file.text[end:].split("\n", 1)[0].rstrip("\r")
    return Edit(end, end + len(comment), f"{comment}{file.newline}{indent}{text}")


def _dropping(model: cst.BaseExpression, file: File) -> Iterator[cst.Call]:
    """The calls of `zero_grad` that can find unsynchronised gradients of the model."""
    text = file.code(model)
    others = {file.code(node.value) for node in file.nodes(cst.Attribute) if node.attr.value == "no_sync"} - {text}
    for call in file.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "zero_grad":
            continue
        if not follows_step(call, file) and not _is_for(call.func.value, others, text, file):
            yield call


def _is_for(owner: cst.BaseExpression, others: set[str], model: str, file: File) -> bool:
    """Whether what is zeroed is seen to belong to other models that accumulate."""
    made = [file.code(owner), *(o.file.code(o.node) for o in file.origins(owner) if o.node is not None)]
    return any(_names(made, other) for other in others) and not _names(made, model)


def _names(texts: list[str], model: str) -> bool:
    return any(re.search(rf"(?<![\w.]){re.escape(model)}(?!\w)", text) for text in texts)


def _is_known(model: cst.BaseExpression, call: cst.Call, file: File) -> bool:
    """Whether the model's text means the same model beside the call."""
    if file.same_meaning(model, call):
        return True
    owner = model
    while isinstance(owner, cst.Attribute):
        owner = owner.value
    is_self = isinstance(owner, cst.Name) and owner.value == "self" and owner is not model
    return is_self and _class(model, file) is not None and _class(model, file) is _class(call, file)


def _class(node: cst.CSTNode, file: File) -> cst.ClassDef | None:
    """The class whose method a node stands in."""
    function = file.scope(node)
    if not isinstance(function, cst.FunctionDef):
        return None
    holder = file.scope(function)
    return holder if isinstance(holder, cst.ClassDef) else None


def leaves_backward_behind(block: cst.With, file: File) -> bool:
    """Whether a backward is seen behind a block, in the same function, and none in what the block runs."""
    calls = file.calls(file.scope(block))
    end = file.span(block)[1]
    behind = any(_goes_backward(file.code(call.func)) and file.span(call)[0] >= end for call in calls)
    return behind and not _runs_backward(block, file, set())


def _runs_backward(node: cst.CSTNode, file: File, seen: set[cst.CSTNode]) -> bool:
    """Whether a backward stands in some code, or in the functions of the program that it is seen to call."""
    if node in seen:
        return False
    seen.add(node)
    start, end = file.span(node)
    if _goes_backward(file.code(node)):
        return True
    inner = [call for call in file.nodes(cst.Call) if start <= file.span(call)[0] < end]
    return any(_runs_backward(function, where, seen) for call in inner for where, function in file.runs(call))


def _goes_backward(text: str) -> bool:
    return "backward" in text or "autograd.grad" in text


def _follows_step(attribute: cst.Attribute, file: File) -> bool:
    call = file.parent(attribute)
    return isinstance(call, cst.Call) and call.func is attribute and follows_step(call, file)


def follows_step(call: cst.Call, file: File) -> bool:
    """Whether the optimizer has stepped since the last backward, on every way to this call."""
    inner: cst.CSTNode = call
    for outer in file.ancestors(call):
        if isinstance(outer, (cst.IndentedBlock, cst.Module, *_LINES)):
            for statement in reversed(outer.body[: list(outer.body).index(inner)]):
                if _always_steps(statement, file):
                    return True
                if ".backward" in file.code(statement):
                    return False
        if isinstance(outer, (cst.For, cst.While, cst.FunctionDef, cst.ClassDef)):
            return False
        inner = outer
    return False


def _always_steps(statement: cst.CSTNode, file: File) -> bool:
    if isinstance(statement, cst.If):
        other = statement.orelse
        otherwise = other.body if isinstance(other, cst.Else) else other
        return otherwise is not None and _always_steps(statement.body, file) and _always_steps(otherwise, file)
    if isinstance(statement, (cst.With, cst.Try)):
        return _always_steps(statement.body, file)
    if isinstance(statement, cst.IndentedBlock):
        return any(_always_steps(inner, file) for inner in statement.body)
    steps = re.findall(r"([\w.\[\]]+)\.step\(", file.code(statement)) if isinstance(statement, _SIMPLE) else []
    return any(not _SCHEDULER.search(owner) for owner in steps)
