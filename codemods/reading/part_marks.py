"""Policies that mark parts of the module that they are asked of: `module.output.is_unit = True`.

A mark is set whatever else is asked of that module, and read of the marked module itself. Once such a policy has been
asked of every module, all marks are there, and it leaves nothing more behind.
"""

from __future__ import annotations

from itertools import takewhile

import libcst as cst

from codemods.api import Context
from codemods.reading.words import last_name

STORING = frozenset({"add", "append", "extend", "insert", "pop", "remove", "setattr", "setdefault", "update"})

_SIMPLE = (cst.Integer, cst.SimpleString)
_READERS = frozenset({"getattr", "hasattr"})


def only_marks_parts(function: cst.FunctionDef, ctx: Context) -> bool:
    """Whether all that a policy stores are such marks."""
    parameters = function.params.params
    body = function.body
    if not parameters or not isinstance(body, cst.IndentedBlock):
        return False
    module = parameters[0].name.value
    first = takewhile(lambda statement: not _answers(statement, ctx), body.body)
    anyway = {id(node) for statement in first for node in ctx.inside(statement)}
    marks = set()
    for node in ctx.inside(body):
        if isinstance(node, (cst.Global, cst.Nonlocal, cst.AugAssign)):
            return False
        if isinstance(node, cst.Call) and last_name(node.func) in STORING:
            return False
        target = node.target if isinstance(node, (cst.AssignTarget, cst.AnnAssign)) else None
        if isinstance(target, (cst.Attribute, cst.Subscript)):
            mark = _mark(node, module, ctx)
            if not mark or id(node) not in anyway:
                return False
            marks.add(mark)
    named = [node for node in ctx.inside(body) if _name(node) in marks]
    read = [node for node in named if not isinstance(ctx.parent(node), cst.AssignTarget)]
    return all(id(node) not in anyway and _is_read_of(node, module, ctx) for node in read)


def _answers(statement: cst.CSTNode, ctx: Context) -> bool:
    """Whether a statement may be the last that runs, or do otherwise when it is asked to look inside."""
    return any(
        isinstance(node, cst.Return) or (isinstance(node, cst.Name) and node.value == "recurse")
        for node in ctx.inside(statement)
    )


def _mark(node: cst.CSTNode, module: str, ctx: Context) -> str:
    """The name of the mark that `module.part.mark = True` sets; empty for any other store."""
    assign = ctx.parent(node)
    target = node.target if isinstance(node, cst.AssignTarget) else None
    if not isinstance(assign, cst.Assign) or not isinstance(target, cst.Attribute):
        return ""
    part = target.value
    is_part = isinstance(part, cst.Attribute) and isinstance(part.value, cst.Name) and part.value.value == module
    is_literal = isinstance(assign.value, _SIMPLE) or ctx.code(assign.value) in ("True", "False")
    return target.attr.value if is_part and is_literal else ""


def _name(node: cst.CSTNode) -> str:
    """The attribute that a node is about."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return str(node.evaluated_value) if isinstance(node, cst.SimpleString) else ""


def _is_read_of(node: cst.CSTNode, module: str, ctx: Context) -> bool:
    """Whether a mark is read of the module that is asked about."""
    if isinstance(node, cst.Attribute):
        return isinstance(node.value, cst.Name) and node.value.value == module
    holder = ctx.parent(node)
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    if not isinstance(call, cst.Call) or last_name(call.func) not in _READERS:
        return False
    of = call.args[0].value
    return isinstance(of, cst.Name) and of.value == module
