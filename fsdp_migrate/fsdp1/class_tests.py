"""What tests of a class around a use say of a model: `if isinstance(model, FSDP):`, in all its spellings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import libcst as cst

from codemods.api import Context, ModelKind, Origin
from codemods.reading.code.enclosing import is_self
from codemods.reading.code.shapes import is_call_to
from codemods.reading.code.words import last_name, words
from codemods.reading.wrappers.asked_classes import Asking, classes_of
from codemods.reading.wrappers.named_classes import named_classes
from codemods.tables.leftovers import BY_NAME
from codemods.tables.names import WRAPPER

from ..pyanalysis.definitions import first_parameter, returns
from ..pyanalysis.flow import reaching
from ..pyanalysis.tests_around import leaves
from .model_kinds import object_of
from .other_classes import is_asked_for_another
from .taken_out import model_given

if TYPE_CHECKING:
    from .program_model import FileContext


def class_test(file: FileContext, node: cst.BaseExpression, names: int = 2) -> frozenset[ModelKind] | None:
    """What `if isinstance(model, FSDP):` around a use of `model` says about it; None without one.

    What is said of another name of the same model is said of it: `self.model = model` above, or in that branch.
    """
    said = _said_around(file, node, node)
    same = _other_name(file, node) if said is None and names else None
    if same is None:
        return said
    said = _said_around(file, node, same)
    return said if said is not None else class_test(file, same, names - 1)


def is_excluded(file: FileContext, node: cst.BaseExpression) -> bool:
    """Whether tests say that it is no FSDP model of which a function has taken it: `unwrap(model).state_dict()`."""
    given = model_given(file, node)
    if given is None:
        return False
    said = class_test(file, given)
    if said is None and isinstance(given, cst.Name):
        said = _said_around(file, node, given)
    return said is not None and ModelKind.FSDP not in said


def _said_around(file: FileContext, place: cst.CSTNode, node: cst.BaseExpression) -> frozenset[ModelKind] | None:
    """The same of what `node` holds, by the tests around a place where that has not been bound anew."""
    for test, met in _seen_through(file, place, node):
        asked = _asked_for(file, test, node)
        is_of_fsdp = asked is not None and ModelKind.FSDP in asked
        if asked is not None and not _is_same(file, test, node):
            # `if isinstance(model, FSDP): model = model.module`: FSDP2's is the same model
            if not (met and is_of_fsdp and place is node):
                continue
        if asked is not None and met:
            return asked
        if is_of_fsdp or (not met and _asks_for_model(file, test, node)):
            return frozenset()
        if not met and isinstance(test, cst.BaseExpression) and _asks_for_torch(file, test):
            return frozenset()
    return None


def _other_name(file: FileContext, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """`model`, of `self.model = model` further up in the same function, on every way to here."""
    if isinstance(node, cst.Name):
        value = bound_here(file, node)
    else:
        value = set_above(file, node) or _given_to_base(file, node) if isinstance(node, cst.Attribute) else None
    return value if isinstance(value, (cst.Name, cst.Attribute)) else None


def bound_here(file: FileContext, name: cst.Name) -> cst.BaseExpression | None:
    """What the one binding of a name gives it that reaches a place, and stands in the same function."""
    bound = file.bound(name) or ()
    made = [value for where, value in bound if where.path == file.path and file.scope(value) is file.scope(name)]
    return made[0] if len(made) == len(bound) == 1 else None


def set_above(file: FileContext, node: cst.Attribute) -> cst.BaseExpression | None:
    """The same of the last line above that sets an attribute, in a block that the place stands in as well."""
    tree = file.tree
    above = [each for each in _stores(file, node) if tree.order[each] < tree.order[node]]
    statement = file.parent(above[-1]) if above else None
    block = file.parent(file.parent(statement) or statement) if isinstance(statement, cst.Assign) else None
    if not isinstance(statement, cst.Assign) or block is None or tree.contains(statement, node):
        return None
    is_here = tree.contains(block, node) and not _is_set_between(file, node, tree.order[above[-1]])
    return statement.value if is_here else None


def _given_to_base(file: FileContext, node: cst.Attribute) -> cst.BaseExpression | None:
    """`model` of `super().__init__(model)` above, where that sets `self.model = model`, and nothing else does below."""
    tree, name = file.tree, node.attr.value
    if not is_self(node.value, file):
        return None
    calls = [each for each in file.calls(file.scope(node)) if file.code(each.func) == "super().__init__"]
    functions = file.runs(calls[0]) if len(calls) == 1 else ()
    if (
        len(functions) != 1
        or tree.order[calls[0]] > tree.order[node]
        or _is_set_between(file, node, tree.order[calls[0]])
    ):
        return None
    where, function = functions[0]
    owner = first_parameter(function)
    lines = (each for each in where.inside(function) if isinstance(each, cst.Assign))
    made = [each.value for each in lines if [where.code(t.target) for t in each.targets] == [f"{owner}.{name}"]]
    if len(made) != 1 or not isinstance(made[0], cst.Name) or _set(where, where.calls(function), name):
        return None
    given = where.passed_to(made[0], made[0].value)
    return next((value for _, call, value in given if call is calls[0]), None)


def _stores(file: FileContext, node: cst.BaseExpression) -> Iterator[cst.AssignTarget]:
    """Where the function sets what `node` reads."""
    name = node.attr.value if isinstance(node, cst.Attribute) else None
    named = map(file.parent, file.tree.attributes(name)) if name is not None else file.tree.nodes(cst.AssignTarget)
    text, scope = file.code(node), file.scope(node)
    for each in named:
        if isinstance(each, cst.AssignTarget) and file.scope(each) is scope and file.code(each.target) == text:
            yield each


def _seen_through(
    file: FileContext, place: cst.CSTNode, node: cst.BaseExpression
) -> Iterator[tuple[cst.CSTNode, bool]]:
    """The same tests, and what those are that have a name: `is_fsdp = FSDP is not None and isinstance(model, FSDP)`."""
    for test, met in _tests_around(file, place, node):
        yield from _left_unset(file, test, met)
        said = (bound_here(file, test) or test) if isinstance(test, cst.Name) else test
        for part, holds in _parts(said, met) if isinstance(said, cst.BaseExpression) else [(said, met)]:
            asked = _without_availability(file, part)
            if said is test or _is_same(file, asked, node):
                yield asked, holds
            else:
                yield test, met


def _left_unset(file: FileContext, test: cst.CSTNode, met: bool) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """What did not hold above where `state is None`, since each way on which it held set a state dict."""
    target = test.comparisons[0] if isinstance(test, cst.Comparison) and len(test.comparisons) == 1 else None
    name = test.left if isinstance(test, cst.Comparison) else None
    if target is None or not isinstance(name, cst.Name) or file.code(target.comparator) != "None":
        return
    if not isinstance(target.operator, cst.Is if met else cst.IsNot):
        return
    order, bound = file.tree.order, reaching(file.tree, name, name.value)
    for binding in bound:
        way = _only_way_to(file, binding.node) if not binding.path and _is_state_dict(binding.value) else None
        if way is None or not file.tree.contains(file.parent(way[0]) or way[0], name):
            continue
        if all(each is binding or order[each.node] < order[way[0]] for each in bound):
            yield from _parts(way[0].test, not way[1])


def _is_state_dict(value: cst.BaseExpression | None) -> bool:
    return (
        isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "state_dict"
    )


def _only_way_to(file: FileContext, node: cst.CSTNode) -> tuple[cst.If, bool] | None:
    """The `if` that alone decides about a statement, and what its test is then."""
    inner = node
    for outer in file.tree.ancestors(node):
        if isinstance(outer, cst.If):
            return outer, inner is outer.body
        if not isinstance(outer, (cst.SimpleStatementLine, cst.IndentedBlock, cst.With, cst.Else)):
            return None
        inner = outer
    return None


def _without_availability(file: FileContext, test: cst.CSTNode) -> cst.CSTNode:
    """`isinstance(model, FSDP)` of `HAS_FSDP and isinstance(model, FSDP)`: without the class there is no such model."""
    while isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        if not _asks_for_import(file, test.left):
            break
        test = test.right
    return test


def _asks_for_import(file: FileContext, test: cst.BaseExpression) -> bool:
    """`FSDP is not None`, and a name that is False in an `except`, as an import settles it."""
    if isinstance(test, cst.Comparison):
        target = test.comparisons[0]
        return isinstance(target.operator, cst.IsNot) and file.fsdp1(test.left) == WRAPPER
    values = [origin.node for origin in file.origins(test)] if isinstance(test, cst.Name) else []
    words = sorted(value.value for value in values if isinstance(value, cst.Name))
    return words == ["False", "True"] and any(_is_fallback(origin) for origin in file.origins(test))


def _asks_for_torch(file: FileContext, test: cst.BaseExpression) -> bool:
    """The same where the import is one of torch's: without it there is no FSDP model."""
    if not _asks_for_import(file, test):
        return False
    if isinstance(test, cst.Comparison):
        return True
    blocks = [
        outer
        for origin in file.origins(test)
        if origin.node is not None and _is_fallback(origin)
        for outer in origin.file.ancestors(origin.node)
        if isinstance(outer, cst.Try)
    ]
    return any(isinstance(each, _IMPORTS) and _names_torch(each) for block in blocks for each in _lines(block))


_IMPORTS = (cst.Import, cst.ImportFrom)


def _lines(block: cst.Try) -> Iterator[cst.CSTNode]:
    for line in block.body.body:
        yield from line.body if isinstance(line, cst.SimpleStatementLine) else ()


def _names_torch(statement: cst.Import | cst.ImportFrom) -> bool:
    if isinstance(statement, cst.Import):
        return any(alias.evaluated_name.split(".")[0] == "torch" for alias in statement.names)
    module = statement.module
    while isinstance(module, cst.Attribute):
        module = module.value if isinstance(module.value, (cst.Name, cst.Attribute)) else None
    return not statement.relative and isinstance(module, cst.Name) and module.value == "torch"


def _is_fallback(origin: Origin) -> bool:
    """Whether a value is made in an `except`."""
    around = origin.file.ancestors(origin.node) if origin.node is not None else ()
    return any(isinstance(outer, cst.ExceptHandler) for outer in around)


def is_given_to_wrapper(file: FileContext, node: cst.BaseExpression) -> bool:
    """Whether the function hands the same value to a function of FSDP's own: `FSDP.summon_full_params(model)`."""
    if not isinstance(node, (cst.Name, cst.Attribute)):
        return False
    given = file.given_to_wrapper.get(file.code(node), ())
    return any(file.scope(other) is file.scope(node) and _is_same(file, other, node) for other in given)


def _tests_around(
    file: FileContext, place: cst.CSTNode, node: cst.BaseExpression
) -> Iterator[tuple[cst.CSTNode, bool]]:
    """The conditions and the cases that hold, or do not hold, at a place, and may be of `node`; the nearest first."""
    inner = place
    for outer in file.tree.ancestors(place):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)) or _binds(file, outer, node):
            return
        if isinstance(outer, (cst.If, cst.IfExp)) and inner is not outer.test:
            yield from _parts(outer.test, inner is outer.body)
        elif isinstance(outer, cst.While) and inner is outer.body:
            yield from ((test, met) for test, met in _parts(outer.test, met=True) if _is_same(file, test, node))
        elif isinstance(outer, cst.BooleanOperation) and inner is outer.right:
            yield from _parts(outer.left, isinstance(outer.operator, cst.And))
        elif isinstance(outer, cst.Match) and isinstance(inner, cst.MatchCase):
            yield inner, True
            yield from ((case, False) for case in outer.cases[: outer.cases.index(inner)])
        elif isinstance(outer, (cst.IndentedBlock, cst.Module)):
            yield from _left_above(file, outer.body, inner, node)
        inner = outer


def _binds(file: FileContext, outer: cst.CSTNode, node: cst.BaseExpression) -> bool:
    """Whether a lambda or a comprehension gives the name at the start of an expression a meaning of its own."""
    bound: Sequence[cst.CSTNode] = ()
    if isinstance(outer, cst.Lambda):
        bound = file.inside(outer.params)
    elif isinstance(outer, cst.BaseComp):
        loops = [each for each in file.inside(outer) if isinstance(each, cst.CompFor)]
        bound = [name for loop in loops for name in file.inside(loop.target)]
    names = {each.value for each in bound if isinstance(each, cst.Name)}
    return bool(names) and not names.isdisjoint(n.value for n in file.inside(node) if isinstance(n, cst.Name))


def _left_above(
    file: FileContext, statements: Sequence[cst.CSTNode], inner: cst.CSTNode, node: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """`if isinstance(model, FSDP): return …` above: the condition does not hold here; that of an `assert` does."""
    for statement in takewhile(lambda statement: statement is not inner, statements):
        for test, met in _settled_by(statement):
            asked = _without_availability(file, test)
            says_something = _asked_for(file, asked, node) is not None or _asks_for_model(file, asked, node)
            if says_something and _is_same(file, test, node):
                yield test, met


def _settled_by(statement: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
    if isinstance(statement, cst.If) and statement.orelse is None and leaves(statement.body):
        yield from _parts(statement.test, met=False)
    for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
        if isinstance(small, cst.Assert):
            yield from (part for part in _parts(small.test, met=True) if not _names_several(part[0]))


def _names_several(test: cst.BaseExpression) -> bool:
    """`isinstance(model, (nn.Module, FSDP))`, which tells nothing of what it is."""
    return isinstance(test, cst.Call) and any(isinstance(each.value, cst.Tuple) for each in test.args)


def _is_same(file: FileContext, test: cst.CSTNode, node: cst.BaseExpression) -> bool:
    """Whether the model has not been bound anew between a test of it and its use."""
    if isinstance(test, cst.MatchCase):
        test = cst.ensure_type(file.parent(test), cst.Match).subject
    text = file.code(node)
    if not isinstance(node, cst.Name):
        return not _is_set_between(file, node, file.tree.order[test])
    asked = [n for n in file.inside(test) if isinstance(n, cst.Name) and n.value == text]
    return all(reaching(file.tree, n, text) == reaching(file.tree, node, text) for n in asked)


def _is_set_between(file: FileContext, node: cst.BaseExpression, at: int) -> bool:
    """Whether the function sets an attribute between two places, or calls a function that does."""
    order = file.tree.order
    first, last = sorted((at, order[node]))
    between = (file.parent(each) or each for each in _stores(file, node) if first < order[each] < last)
    if not all(file.tree.contains(each, node) for each in between):
        return True
    calls = [call for call in file.calls(file.scope(node)) if first < order[call] < last]
    return isinstance(node, cst.Attribute) and _set(file, calls, node.attr.value)


def _set(file: Context, calls: Sequence[cst.Call], name: str) -> bool:
    """Whether a function that one of these calls sets an attribute of this name."""
    inside = (each for call in calls for where, function in file.runs(call) for each in where.inside(function))
    targets = (each.target for each in inside if isinstance(each, cst.AssignTarget))
    return any(isinstance(each, cst.Attribute) and each.attr.value == name for each in targets)


def _asked_for(file: FileContext, test: cst.CSTNode, node: cst.BaseExpression) -> frozenset[ModelKind] | None:
    """What a model is where a test is met: `isinstance(m, FSDP) or isinstance(m, DDP)`; None when unsaid."""
    if isinstance(test, cst.MatchCase):
        return _matched(file, test, node)
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or):
        left, right = _asked_for(file, test.left, node), _asked_for(file, test.right, node)
        return None if left is None or right is None else left | right
    if isinstance(test, cst.Comparison):
        return _named(file, test, node)
    if not isinstance(test, cst.Call) or not test.args or file.code(test.args[0].value) != file.code(node):
        return None
    if len(test.args) == 1:
        functions = file.runs(test)
        if functions and all(_is_class_test(where, function) for where, function in functions):
            return frozenset({ModelKind.FSDP})
        is_wider = functions and all(_is_wider_test(where, function) for where, function in functions)
        return frozenset({ModelKind.FSDP, ModelKind.UNKNOWN}) if is_wider else None
    if len(test.args) != 2 or file.code(test.func) != "isinstance":
        return None
    asked = list(classes_of(file, test.args[1].value))
    return frozenset({ModelKind.OTHER}) if is_asked_for_another(file, node, asked) else _said_by(asked)


def _named(file: FileContext, test: cst.Comparison, node: cst.BaseExpression) -> frozenset[ModelKind] | None:
    """`type(model).__name__ == "DistributedDataParallel"`."""
    named = named_classes(file, test)
    if named is None or named.is_negated or file.code(named.asked) != file.code(node):
        return None
    names = {each.evaluated_value for each in named.classes}
    if names <= {"DataParallel", "DistributedDataParallel"}:
        return frozenset({ModelKind.DDP})
    return frozenset({ModelKind.FSDP, ModelKind.DDP}) if WRAPPER in names else None


def _said_by(asked: Sequence[Asking]) -> frozenset[ModelKind] | None:
    """What an object of one of these classes is; None where they say nothing of models."""
    kinds = frozenset(_kind_of_class(file, one) for file, one in asked)
    return kinds if ModelKind.FSDP in kinds or kinds == {ModelKind.DDP} else None


def _matched(file: FileContext, case: cst.MatchCase, node: cst.BaseExpression) -> frozenset[ModelKind] | None:
    """`match model:` with `case DDP():`, or `case DDP() | FSDP():`."""
    subject = cst.ensure_type(file.parent(case), cst.Match).subject
    pattern = case.pattern
    asked = [element.pattern for element in pattern.patterns] if isinstance(pattern, cst.MatchOr) else [pattern]
    classes = [one.cls for one in asked if isinstance(one, cst.MatchClass)]
    if file.code(subject) != file.code(node) or case.guard is not None or len(classes) < len(asked):
        return None
    return _said_by([(file, each) for each in classes])


def _kind_of_class(file: Context, asked: cst.BaseExpression) -> ModelKind:
    """By its name where it is an attribute of something that is not followed: `types.DistributedDataParallel`."""
    if file.fsdp1(asked) == WRAPPER:
        return ModelKind.FSDP
    return object_of(file.dotted(asked) or (file.code(asked) if isinstance(asked, cst.Attribute) else None))


def _asks_for_model(file: FileContext, test: cst.CSTNode, node: cst.BaseExpression) -> bool:
    """`isinstance(model, nn.Module)`, and `hasattr(model, "clip_grad_norm_")`, which becomes a test of the class."""
    if not isinstance(test, cst.Call) or len(test.args) != 2 or file.code(test.args[0].value) != file.code(node):
        return False
    asked, function = test.args[1].value, file.code(test.func)
    if function == "hasattr":
        is_for_model = isinstance(asked, cst.SimpleString) and asked.evaluated_value in BY_NAME
    else:
        is_for_model = function == "isinstance" and file.dotted(asked) == "torch.nn.Module"
    return is_for_model and _is_same(file, test, node)


def _is_wider_test(file: FileContext, function: cst.FunctionDef) -> bool:
    """`def is_fsdp(module):` that begins with `if isinstance(module, FSDP): return True`, and asks for more."""
    body = function.body.body[function.get_docstring() is not None :]
    first = body[0] if body else None
    if not isinstance(first, cst.If) or file.code(first.body).strip() != "return True":
        return False
    return _is_isinstance(file, first.test, first_parameter(function))


def _is_isinstance(file: FileContext, test: cst.BaseExpression, name: str | None) -> bool:
    """Whether a test is `isinstance(name, FSDP)`."""
    if not isinstance(test, cst.Call) or len(test.args) != 2 or file.code(test.func) != "isinstance":
        return False
    return file.code(test.args[0].value) == name and file.fsdp1(test.args[1].value) == WRAPPER


def _is_class_test(file: FileContext, function: cst.FunctionDef) -> bool:
    """`def is_fsdp(module): return isinstance(module, FSDP)`, with `AVAILABLE and` before it or without."""
    returned = returns(file.tree, function)
    if len(returned) != 1:
        return False
    test, name = returned[0], first_parameter(function)
    while isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        if any(isinstance(n, cst.Name) and n.value == name for n in file.inside(test.left)):
            return False
        test = test.right
    return _is_isinstance(file, test, name)


def _parts(test: cst.BaseExpression, met: bool) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """The conditions that must be as they are for `test` to be met, or not to be: `a and not b` met is a, and not b.

    `use_fsdp and isinstance(model, FSDP)` asks one thing twice: where it is not met, neither is.
    """
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        yield from _parts(test.expression, not met)
    elif isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And if met else cst.Or):
        yield from _parts(test.left, met)
        yield from _parts(test.right, met)
    elif isinstance(test, cst.BooleanOperation) and not met and _speaks_of_fsdp(test.left):
        yield from _parts(test.right, met)
    else:
        yield test, met


def _speaks_of_fsdp(flag: cst.BaseExpression) -> bool:
    """`use_fsdp`, `self.args.fsdp`, and `hasattr(args, "fsdp") and args.fsdp`."""
    if isinstance(flag, cst.BooleanOperation) and isinstance(flag.operator, cst.And):
        return _speaks_of_fsdp(flag.left) and _speaks_of_fsdp(flag.right)
    if is_call_to(flag, "getattr", "hasattr") and len(flag.args) > 1:
        name = flag.args[1].value
        return isinstance(name, cst.SimpleString) and "fsdp" in words(name.raw_value)
    return isinstance(flag, (cst.Attribute, cst.Name)) and "fsdp" in words(last_name(flag))
