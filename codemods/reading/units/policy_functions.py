"""Policies that say of each module by itself whether it is a unit.

FSDP1 asks a policy two things: whether to look inside of a module, and whether to wrap it, given how many of its
parameters lie in no unit yet. One that always looks inside, never counts and leaves nothing behind can be asked by a
loop over all modules; one that marks a child when it is asked of the root, too, once it has been asked of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import call_given
from codemods.reading.code.shapes import parameter_names
from codemods.reading.code.words import last_name
from codemods.reading.units.policies import CLASS_POLICIES, class_elements, policy_call

_RECURSE, _NUMEL = "recurse", "nonwrapped_numel"
_BY_MODULE = frozenset({*CLASS_POLICIES, "always_wrap_policy", "lambda_auto_wrap_policy"})
_GOES_ON = (cst.Assign, cst.AnnAssign, cst.Expr, cst.Del, cst.Import, cst.ImportFrom, cst.Pass)
_OTHERS = ("CustomPolicy", "_Policy", "size_based_auto_wrap_policy")
"""The policies that count parameters, or are asked in another way."""


def are_by_module(origins: Sequence[Origin], ctx: Context, or_mark: bool = False) -> bool:
    """Whether all of them are, or mark parts of modules; of one that is not seen, whether the program has no others."""
    return all(_is_by_module(origin, ctx, or_mark) for origin in origins if not origin.is_none)


def _is_by_module(origin: Origin, ctx: Context, or_mark: bool) -> bool:
    made, arguments = policy_call(origin)
    if made in _BY_MODULE:
        return True
    if made == "_or_policy" and len(arguments) == 1:
        elements = class_elements(arguments[0].value)
        if elements is not None:
            return all(are_by_module(origin.file.origins(element), ctx, or_mark) for element in elements)
    if made is not None and made != "_or_policy":
        return False
    node = origin.node
    if isinstance(node, cst.FunctionDef):
        return _is_function_by_module(node, origin.file, or_mark)
    if isinstance(node, cst.Lambda):
        return _is_true(node.body) and not _counts(node, origin.file)
    if isinstance(node, cst.Call) and origin.file.dotted(node.func) == "functools.partial" and node.args and not made:
        return are_by_module(origin.file.origins(node.args[0].value), ctx, or_mark)
    if isinstance(node, cst.Call) and not made and _is_of_library(node.func, origin.file):
        return False
    return _has_no_others(ctx, or_mark)


def _is_of_library(callee: cst.BaseExpression, ctx: Context) -> bool:
    """Whether what gives a policy is a library's function, or a method that no class of the program has."""
    if isinstance(callee, cst.Attribute) and callee.attr.value not in {"get", "pop"}:
        return True
    return ctx.dotted(callee) is not None


def _has_no_others(ctx: Context, or_mark: bool) -> bool:
    if uses(ctx, *_OTHERS):
        return False
    functions = [(where, node) for where in ctx.files(_NUMEL) for node in where.nodes(cst.FunctionDef)]
    asked = [(where, node) for where, node in functions if _NUMEL in parameter_names(node)]
    return all(_is_function_by_module(node, where, or_mark) for where, node in asked)


def leaves_something(origins: Sequence[Origin]) -> bool:
    """Whether one of them is a function that is seen to store more than variables of its own."""
    nodes = [(origin.file, origin.node) for origin in origins]
    return any(isinstance(node, cst.FunctionDef) and stores(node, where) for where, node in nodes)


def _is_function_by_module(function: cst.FunctionDef, ctx: Context, or_mark: bool) -> bool:
    leaves_nothing = not stores(function, ctx) or (or_mark and only_marks_parts(function, ctx))
    return _always_looks_inside(function) and not _counts(function, ctx) and leaves_nothing


def stores(function: cst.FunctionDef, ctx: Context) -> bool:
    """Whether it sets attributes, elements or variables of others, or adds to a list: `seen.append(module)`."""
    for node in ctx.inside(function.body):
        if isinstance(node, (cst.Global, cst.Nonlocal)):
            return True
        if isinstance(node, (cst.AssignTarget, cst.AugAssign)):
            if isinstance(node.target, (cst.Attribute, cst.Subscript)):
                return True
        elif isinstance(node, cst.Call) and last_name(node.func) in STORING and not _fills_own(node, ctx):
            return True
    return False


def _fills_own(call: cst.Call, ctx: Context) -> bool:
    """`found.append(x)` of a list that the function makes itself."""
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    made = ctx.bound(owner) if isinstance(owner, cst.Name) else None
    function = ctx.scope(call)
    return bool(made) and all(
        where is ctx and isinstance(each, (cst.List, cst.Dict, cst.Set)) and ctx.scope(each) is function
        for where, each in made or ()
    )


def uses(ctx: Context, *names: str) -> bool:
    """Whether the program uses one of these policies of FSDP1; an import is no use."""
    return any(
        used.split(".")[-1] == name for name in names for where in ctx.files(name) for _, used in where.references()
    )


def _counts(function: cst.FunctionDef | cst.Lambda, ctx: Context) -> bool:
    """Whether it reads the number of parameters; `del` does not."""
    inside = ctx.inside(function.body)
    read = [node for node in inside if isinstance(node, cst.Name) and node.value == _NUMEL]
    return any(not isinstance(ctx.parent(node), cst.Del) for node in read)


def _always_looks_inside(function: cst.FunctionDef) -> bool:
    """Whether it answers True where `recurse` is."""
    return _RECURSE in parameter_names(function) and _answer(function.body.body) is True


def _answer(statements: Iterable[cst.BaseStatement | cst.BaseSmallStatement]) -> bool | None:
    """True where these statements return True for `recurse`, None where they go on, False for anything else."""
    for statement in statements:
        if isinstance(statement, cst.If):
            answer = _answer_of_if(statement)
        elif isinstance(statement, cst.SimpleStatementLine):
            answer = _answer(statement.body)
        elif isinstance(statement, cst.Return):
            answer = statement.value is not None and _is_true(statement.value)
        elif isinstance(statement, _GOES_ON):
            answer = False if _binds(statement) else None
        else:
            answer = False
        if answer is not None:
            return answer
    return None


def _answer_of_if(statement: cst.If) -> bool | None:
    body = _answer(statement.body.body)
    orelse = statement.orelse
    otherwise = _answer_of_if(orelse) if isinstance(orelse, cst.If) else _answer(orelse.body.body) if orelse else None
    if _is_recurse(statement.test):
        return body
    if isinstance(statement.test, cst.UnaryOperation) and _is_recurse(statement.test.expression):
        return otherwise
    return body if body is otherwise else False


def _is_true(value: cst.BaseExpression) -> bool:
    """Whether an expression is True where `recurse` is."""
    if isinstance(value, cst.BooleanOperation):
        return isinstance(value.operator, cst.Or) and (_is_true(value.left) or _is_true(value.right))
    if isinstance(value, cst.IfExp):
        return _is_true(value.body) and (_is_recurse(value.test) or _is_true(value.orelse))
    return _is_recurse(value) or (isinstance(value, cst.Name) and value.value == "True")


def _is_recurse(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == _RECURSE


def _binds(statement: cst.BaseSmallStatement) -> bool:
    targets = [each.target for each in statement.targets] if isinstance(statement, cst.Assign) else []
    return any(not isinstance(target, (cst.Name, cst.Attribute)) or _is_recurse(target) for target in targets)


# Policies that mark parts of the module that they are asked of: `module.output.is_unit = True`.
#
# A mark is set whatever else is asked of that module, and read of the marked module itself. Once such a policy has been
# asked of every module, all marks are there, and it leaves nothing more behind.

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
        target = node.target if isinstance(node, cst.AssignTarget) else None
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
    call = call_given(node, ctx)
    if call is None or last_name(call.func) not in _READERS:
        return False
    of = call.args[0].value
    return isinstance(of, cst.Name) and of.value == module
