"""What holds a model's parameters from before they are sharded: optimizers, parameter lists, groups.

FSDP1 with use_orig_params=True goes on training the parameters that were there before. FSDP2 puts new ones in their
place, and an optimizer that holds the old ones updates nothing, without an error (16 of 16 parameters, measured on
torch 2.13). Everything here is about finding such holders, and which call wraps the model afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.reading.manual import is_constructor, is_factory
from codemods.reading.places import base, bound, place, same
from codemods.vocabulary import File

READERS = frozenset({"parameters", "named_parameters"})
_OPTIMIZER = re.compile(r"optim|adam|sgd|lion|adagrad|rmsprop|shampoo|lamb\b|muon", re.IGNORECASE)
_NOT_ONE = re.compile(
    r"sched|zero_grad|optim_state_dict|\.step$|load_state_dict|\.(?:add_param_group|append|extend|update|add)$",
    re.IGNORECASE,
)
_IGNORED = frozenset({"ignored_parameters", "ignored_states"})
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


@dataclass(frozen=True)
class Holder:
    """A call above the wrap by which something gets hold of the parameters."""

    call: cst.Call
    is_optimizer: bool
    """Whether it makes an optimizer; if not, it only keeps parameters, for an optimizer or for something else."""


@dataclass(frozen=True)
class Step:
    """A call by which the model comes to be wrapped, and the place that the model has there."""

    file: File
    site: cst.Call
    model: str


@dataclass(frozen=True)
class Early:
    """The holders in one function, and the call there that wraps the model or leads to where it is wrapped."""

    file: File
    site: cst.Call
    model: str
    """The place of the wrapped model in that function."""
    holders: tuple[Holder, ...]
    inner: tuple[Step, ...]
    """The calls that lead from here to the constructor call, which comes first."""


def early_holders(file: File, call: cst.Call) -> list[Early]:
    """For one constructor call: in its own function, and in those that call it with the model."""
    found: list[Early] = []
    for site in _calls_of_factory(file, call) if is_factory(file, call) else [call]:
        model = wrapped_place(file, site)
        if model is not None:
            found += _early(Step(file, site, model), (), 2)
    return found


def _calls_of_factory(file: File, call: cst.Call) -> Iterator[cst.Call]:
    """`wrapper(model)`, for `wrapper = partial(FSDP, ...)`."""
    assignment = file.parent(call)
    for use in file.uses(assignment) if isinstance(assignment, cst.Assign) else ():
        parent = file.parent(use)
        if isinstance(parent, cst.Call) and parent.func is use:
            yield parent


def _early(step: Step, inner: tuple[Step, ...], depth: int) -> Iterator[Early]:
    file, site, model = step.file, step.site, step.model
    holders = holders_above(file, site, model)
    if holders:
        yield Early(file, site, model, holders, inner)
    for where, caller, outer in _outside(file, site, model) if depth else ():
        yield from _early(Step(where, caller, outer), (*inner, step), depth - 1)


def _outside(file: File, site: cst.Call, model: str) -> Iterator[tuple[File, cst.Call, str]]:
    """The calls that lead here, with the place that the model has there."""
    name, _, rest = model.partition(".")
    for where, caller, argument in file.passed_to(site, name):
        outer = base(argument)
        if outer is not None:
            yield where, caller, f"{outer}.{rest}" if rest else outer
    if rest:
        for where, caller in file.callers(site):
            if isinstance(caller.func, cst.Attribute) and place(caller.func.value) == name:
                yield where, caller, model


def holders_above(file: File, site: cst.Call, model: str) -> tuple[Holder, ...]:
    """The holders of one model's parameters above a call."""
    return tuple(holder for other in calls_above(file, site, model) for holder in _holder(file, other, model))


def wrapped_place(file: File, call: cst.Call) -> str | None:
    """The place of the model that a constructor call wraps, or a part of it; a loop variable stands for its loop."""
    module = wrapped_module(call)
    if module is None:
        return None
    found = base(module)
    for node in file.ancestors(module):
        if isinstance(node, (cst.For, cst.CompFor)) and found in set(bound(node.target)):
            return next(iter(sorted(_over(node.iter))), None)
    return found


def wrapped_module(call: cst.Call) -> cst.BaseExpression | None:
    """What a constructor call wraps, also when its other arguments are not seen."""
    named = (a.value for a in call.args if a.keyword is not None and a.keyword.value == "module")
    first = call.args[0] if call.args and not call.args[0].star and call.args[0].keyword is None else None
    return next(named, first.value if first is not None else None)


def _over(iterated: cst.BaseExpression) -> set[str]:
    """What is looped over: `model` in `enumerate(model.layers)`."""
    if isinstance(iterated, cst.Call) and not isinstance(iterated.func, cst.Attribute):
        return {found for argument in iterated.args for found in _over(argument.value)}
    found = base(iterated)
    return {found} if found is not None else set()


def calls_above(file: File, call: cst.Call, model: str) -> Iterator[cst.Call]:
    """The calls that run before this one: above it in its function, or at the top for a name from there."""
    here = file.span(call)[0]
    for other in file.calls(file.scope(call)):
        if file.span(other)[0] < here and not is_on_another_way(file, other, call):
            yield other
    if not isinstance(file.scope(call), cst.Module) and not file.is_local(model.split(".")[0], call):
        yield from file.calls(file.top)


def _holder(file: File, other: cst.Call, model: str) -> Iterator[Holder]:
    if is_constructor(file, other):
        return
    if is_optimizer(file, other):
        owner = base(other.func.value) if isinstance(other.func, cst.Attribute) else None
        given = [place(argument.value) for argument in other.args]
        if any(found is not None and same(found, model) for found in [*given, owner]):
            yield Holder(other, True)
    elif isinstance(other.func, cst.Attribute) and other.func.attr.value in READERS:
        owner = base(other.func.value)
        if owner is not None and same(owner, model):
            yield from _reader(file, other)
    elif _is_bound(file, other):
        yield from _builder(file, other, model)


def _reader(file: File, parameters: cst.Call) -> Iterator[Holder]:
    """`model.parameters()`, where an optimizer or a variable keeps them."""
    outermost = parameters
    for node in file.ancestors(parameters):
        if isinstance(node, cst.Call):
            if is_optimizer(file, node):
                yield Holder(node, True)
                return
            outermost = node
        elif isinstance(node, (cst.Assign, cst.AnnAssign)):
            kept = node.value is not None and _is_kept(file, node.value, parameters)
            targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else [node.target]
            if kept and not _are_ignored(file, *targets):
                yield Holder(outermost, False)
            return
        elif isinstance(node, cst.AugAssign):
            yield Holder(outermost, False)
            return
        elif isinstance(node, cst.Expr):
            if _is_collecting(file, node.value):
                yield Holder(outermost, False)
            return
        elif isinstance(node, cst.For):
            if any(_is_collecting(file, call) for call in _inside(node.body)):
                yield Holder(parameters, False)
            return
        elif isinstance(node, (cst.BaseCompoundStatement, cst.SimpleStatementLine)):
            return


def _is_kept(file: File, value: cst.BaseExpression, parameters: cst.Call) -> bool:
    """Whether an assigned value holds the parameters themselves: not a copy, a count or another call's result."""
    if value is parameters:
        return True
    if isinstance(value, cst.Call):
        return file.code(value.func) in {"dict", "list", "tuple", "filter", "set"} and all(
            not isinstance(argument.value, cst.BaseComp) or _keeps(file, argument.value) for argument in value.args
        )
    if isinstance(value, cst.BaseComp):
        return _keeps(file, value)
    return isinstance(value, (cst.List, cst.Dict, cst.Tuple))


def _keeps(file: File, loop: cst.BaseComp) -> bool:
    """Whether a comprehension collects what it loops over, and not something that is made of it."""
    variables = list(bound(loop.for_in.target))
    if len(variables) == 2 and file.code(loop.for_in.iter).endswith(".named_parameters()"):
        variables = variables[1:]
    assert isinstance(loop, (cst.DictComp, cst.BaseSimpleComp))
    collected = loop.value if isinstance(loop, cst.DictComp) else loop.elt
    return any(
        isinstance(node, cst.Name)
        and node.value in variables
        and not isinstance(file.parent(node), (cst.Attribute, cst.Arg))
        for node in _inside(collected)
    )


def _is_collecting(file: File, call: cst.CSTNode) -> bool:
    return (
        isinstance(call, cst.Call)
        and isinstance(call.func, cst.Attribute)
        and call.func.attr.value in {"append", "extend", "add", "add_param_group"}
        and not _are_ignored(file, call.func.value)
    )


def _are_ignored(file: File, *targets: cst.BaseExpression) -> bool:
    """Whether a collection is what a constructor call ignores: those parameters stay as they are."""
    calls = (call for call in file.nodes(cst.Call) if is_constructor(file, call))
    ignored = {place(a.value) for call in calls for a in call.args if a.keyword and a.keyword.value in _IGNORED}
    return any(place(target) in ignored - {None} for target in targets)


def _builder(file: File, other: cst.Call, model: str) -> Iterator[Holder]:
    """`optimizer, scheduler = set_up(model)`, where the program's own `set_up` makes an optimizer."""
    for index, argument in enumerate(other.args):
        given = place(argument.value)
        if given is None or not same(given, model):
            continue
        for where, function in file.runs(other):
            names = [parameter.name.value for parameter in function.params.params]
            names = names[1:] if names[:1] == ["self"] else names
            name = argument.keyword.value if argument.keyword is not None else ([*names, ""])[min(index, len(names))]
            for call in where.calls(function):
                if is_optimizer(where, call) and _mentions(call, name):
                    yield Holder(other, True)
                    return


def _mentions(call: cst.Call, name: str) -> bool:
    return any(isinstance(node, cst.Name) and node.value == name for arg in call.args for node in _inside(arg.value))


def _is_bound(file: File, call: cst.Call) -> bool:
    return isinstance(file.parent(call), (cst.Assign, cst.AnnAssign))


def is_optimizer(file: File, call: cst.Call) -> bool:
    """`torch.optim.AdamW(...)`, `getattr(torch.optim, name)(...)`, `build_optimizer(...)`; a scheduler is none."""
    text = file.code(call.func)
    return bool(_OPTIMIZER.search(text)) and not _NOT_ONE.search(text)


def _inside(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _inside(child)


def is_on_another_way(file: File, other: cst.Call, call: cst.Call) -> bool:
    """Whether `other` stands in a branch that leaves the function before the call, or in the call's `else`."""
    around = set(file.ancestors(call))
    inner: cst.CSTNode = other
    for node in file.ancestors(other):
        if node in around:
            return isinstance(node, cst.If) and inner is not node.test
        if isinstance(node, cst.IndentedBlock) and node.body and isinstance(node.body[-1], cst.SimpleStatementLine):
            if isinstance(node.body[-1].body[-1], _LEAVES):
                return True
        inner = node
    return False
