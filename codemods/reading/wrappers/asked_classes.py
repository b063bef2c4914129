"""The classes that a test asks for, and who asks for a class, be it over a variable: `KINDS = (DDP, FSDP)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, Edit, ModelKind, Origin
from codemods.reading.code.enclosing import call_by, enclosing, is_self, upward
from codemods.reading.code.shapes import called_on, class_test
from codemods.reading.code.words import last_name
from codemods.reading.edits.layout import comments_in
from codemods.reading.edits.negation import conjuncts
from codemods.reading.wraps.passed_on import Seen, all_of, parameters_given
from codemods.tables.names import WRAPPER

Asking = tuple[Context, cst.BaseExpression]
_DISPLAYS = (cst.Tuple, cst.List, cst.Set)
_STATEMENTS = (cst.Assign, cst.AnnAssign, cst.AugAssign)
_DEEPEST = 4
"""Variables that hold what other variables hold."""
_ASKING_METHODS = frozenset({"assertIsInstance", "assertNotIsInstance"})
"""unittest's."""


def classes_of(ctx: Context, asked: cst.BaseExpression, depth: int = _DEEPEST) -> Iterator[Asking]:
    """Each class of `(A, B)`, `KINDS`, `KINDS + (A,)`, `tuple(KINDS)`; what is not seen through, as it stands."""
    if isinstance(asked, _DISPLAYS):
        for element in asked.elements:
            yield from classes_of(ctx, element.value, depth)
    elif isinstance(asked, cst.BinaryOperation):  # `KINDS + (A,)`, and `A | B`
        yield from classes_of(ctx, asked.left, depth)
        yield from classes_of(ctx, asked.right, depth)
    elif isinstance(asked, cst.Call) and _makes_tuple(ctx, asked):
        yield from classes_of(ctx, asked.args[0].value, depth)
    else:
        held = _held(ctx, asked) if depth and ctx.dotted(asked) is None else None
        if held is None or not isinstance(held.node, cst.BaseExpression):
            yield ctx, asked
        else:
            yield from classes_of(held.file, held.node, depth - 1)


def _held(ctx: Context, variable: cst.BaseExpression) -> Origin | None:
    """The one tuple, or list to which nothing is added, that a variable holds."""
    if isinstance(variable, cst.Attribute) and is_self(variable.value, ctx):
        of_class = _of_class(ctx, variable)
        if of_class is not None:
            return Origin(ctx, of_class)
    made = ctx.origins(variable)
    held = made[0].node if len(made) == 1 else None
    if isinstance(held, cst.List):
        put_in = [each for each in ctx.elements(variable) if each.node is not None]
        return made[0] if len(put_in) == len(held.elements) else None
    is_tuple = isinstance(held, cst.Call) and _makes_tuple(made[0].file, held)
    return made[0] if is_tuple or isinstance(held, (cst.Tuple, cst.BinaryOperation)) else None


def _of_class(ctx: Context, read: cst.Attribute) -> cst.Tuple | None:
    """The tuple in the body of the class around, where nothing of the program sets another under this name."""
    name = read.attr.value
    set_to = [
        (where, node)
        for where in ctx.files(name)
        for node in where.nodes(cst.Assign)
        if any(last_name(target.target) == name for target in node.targets)
    ]
    if len(set_to) != 1 or set_to[0][0].path != ctx.path:
        return None
    statement = set_to[0][1]
    is_own = ctx.scope(statement) is enclosing(ctx, read, cst.ClassDef)
    return statement.value if is_own and isinstance(statement.value, cst.Tuple) else None


def _makes_tuple(ctx: Context, call: cst.Call) -> bool:
    return ctx.code(call.func) == "tuple" and len(call.args) == 1


def asking_for(ctx: Context, value: cst.BaseExpression, seen: Seen = frozenset()) -> Sequence[Asking] | None:
    """The calls that ask for a class; None where it is used in any other way.

    Where others than those that are seen may ask, something that is no call is among them.
    """
    if value in seen:
        return []  # handed on in a recursion
    seen |= {value}
    holder = ctx.parent(value)
    if isinstance(holder, (cst.Element, cst.StarredElement)):
        holder = ctx.parent(holder)
    if isinstance(holder, (*_DISPLAYS, cst.BinaryOperation)):
        return asking_for(ctx, holder, seen)
    if isinstance(holder, cst.IfExp) and holder.test is not value:
        return asking_for(ctx, holder, seen)
    if isinstance(holder, cst.Arg):
        return _of_argument(ctx, holder, seen)
    if isinstance(holder, cst.FormattedStringExpression):
        return [(ctx, value)]  # `f"one of {KINDS}"`
    if isinstance(holder, _STATEMENTS):
        return _of_variable(ctx, holder, value, seen)
    if isinstance(holder, (cst.Param, cst.CompFor, cst.For)):
        return all_of(asking_for(ctx, use, seen) for use in ctx.uses(holder))
    return None


def _of_argument(ctx: Context, argument: cst.Arg, seen: Seen) -> Sequence[Asking] | None:
    call = ctx.parent(argument)
    if not isinstance(call, cst.Call):
        return None
    if _asks(ctx, call):
        return [(ctx, call)]
    if _makes_tuple(ctx, call):
        return asking_for(ctx, call, seen)
    given = parameters_given(ctx, argument)
    uses = [(where, use) for where, each in given for use in where.uses(each)]
    return all_of(asking_for(where, use, seen) for where, use in uses) if given else None


def _asks(ctx: Context, call: cst.CSTNode | None) -> bool:
    if not isinstance(call, cst.Call):
        return False
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value in _ASKING_METHODS
    return ctx.code(call.func) in {"isinstance", "issubclass"}


def _of_variable(
    ctx: Context, statement: cst.Assign | cst.AnnAssign | cst.AugAssign, value: cst.BaseExpression, seen: Seen
) -> Sequence[Asking] | None:
    targets = [each.target for each in statement.targets] if isinstance(statement, cst.Assign) else [statement.target]
    target, made = targets[0], {origin.node for origin in ctx.origins(value) if origin.node is not None}
    if len(targets) > 1 or not isinstance(target, (cst.Name, cst.Attribute)):
        return None
    if isinstance(target, cst.Name) and isinstance(ctx.scope(statement), cst.FunctionDef):
        return all_of(asking_for(ctx, use, seen) for use in ctx.uses(statement))
    name = target.value if isinstance(target, cst.Name) else target.attr.value
    uses = [use for each in made for use in ctx.reading(name, each)]
    found = {node for _, node in uses}
    others = (each for each in ctx.attributes(name) if each[1] not in found and each[1] is not target)
    lost = [each for each in others if any(origin.node is None for origin in each[0].origins(each[1]))]
    return all_of([lost[:1], *(asking_for(where, use, seen) for where, use in uses)])


def without_class(ctx: Context, found: cst.BaseExpression) -> Edit:
    """Takes a class out of the tuple, or the list, that it is an element of."""
    display = ctx.parent(ctx.parent(found) or found)
    assert isinstance(display, (cst.Tuple, cst.List))
    kept = [each for each in display.elements if each.value is not found]
    texts = [("*" if isinstance(each, cst.StarredElement) else "") + ctx.quote(each.value) for each in kept]
    holder = ctx.parent(display)
    is_of_test = isinstance(holder, cst.Arg) and _asks(ctx, ctx.parent(holder))
    if is_of_test and len(kept) == 1 and isinstance(kept[0], cst.Element):
        return Edit(*ctx.span(display), texts[0])
    if isinstance(display, cst.List):
        return Edit(*ctx.span(display), f"[{', '.join(texts)}]")
    return Edit(*ctx.span(display), f"({', '.join(texts)}{',' if len(texts) == 1 else ''})")


# What a program asks a model for its class, and where a model that is asked goes on.

LEAVES = (cst.Return, cst.Raise, cst.Break, cst.Continue, cst.Yield)
BLOCKS = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)


def model_of(ctx: Context, node: cst.CSTNode) -> cst.BaseExpression | None:
    """The model that a construct of FSDP1 is given, or asks for its class; None where none is at hand."""
    call = call_by(node, ctx)
    if call is None:
        test = ctx.parent(node)
        asked = asked_for_class(ctx, test) if isinstance(test, (cst.Comparison, cst.ComparisonTarget)) else None
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
            model = called_on(outer.for_in.iter, *_WALKS)
            if model is not None:
                return model
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
            if isinstance(statement, cst.If) and statement.orelse is None and leaves(statement.body):
                if True in _asked(ctx, statement.test, name):
                    return True
    return False


def leaves(body: cst.BaseSuite) -> bool:
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
    found: set[bool] = set()
    for asked, kind in filter(None, (class_test(part, ctx) for part in conjuncts(test))):
        dotted = ctx.dotted(kind) if not isinstance(kind, cst.Tuple) else None
        if dotted and model in (None, ctx.code(asked)):
            found.add(ctx.fsdp1(kind) == WRAPPER or dotted.endswith(".FSDPModule"))
    return found


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


def without_test(ctx: Context, test: cst.CSTNode) -> Edit | None:
    """Takes `isinstance(m, FSDP)` out of what is asked by `or`; None where it stands alone, or with comments."""
    holder = ctx.parent(test)
    if not isinstance(holder, cst.BooleanOperation) or not isinstance(holder.operator, cst.Or):
        return None
    if holder.right is test:
        start, end = ctx.span(holder.left)[1], ctx.span(test)[1]
    else:
        start, end = ctx.span(test)[0], ctx.span(holder.right)[0]
    return None if comments_in(ctx.text[start:end]) else Edit(start, end, "")


def is_only_true_or_false(ctx: Context, either: cst.CSTNode) -> bool:
    """Whether nothing but the truth of an expression counts."""
    holder = ctx.parent(either)
    while isinstance(holder, (cst.BooleanOperation, cst.UnaryOperation)):
        either, holder = holder, ctx.parent(holder)
    return isinstance(holder, (cst.If, cst.While, cst.IfExp, cst.Assert)) and holder.test is either
