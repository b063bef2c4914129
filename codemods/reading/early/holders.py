"""What holds a model's parameters from before they are sharded: optimizers, parameter lists, groups.

FSDP1 with use_orig_params=True goes on training the parameters that were there before. FSDP2 puts new ones in their
place, and an optimizer that holds the old ones updates nothing, without an error (16 of 16 parameters, measured on
torch 2.13). Everything here is about finding such holders, and which call wraps the model afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import libcst as cst

from codemods.reading.manual import is_constructor, is_factory
from codemods.reading.places import base, bound, meets, place, reads, same, writes
from codemods.vocabulary import File

from .entering import aliases, entered, object_of
from .keeping import are_ignored, collected_in, is_collecting, is_kept, passes_on, written_by

READERS = frozenset({"parameters", "named_parameters"})
_OPTIMIZER = re.compile(r"optim|adam|sgd|lion|adagrad|rmsprop|shampoo|lamb\b|muon", re.IGNORECASE)
_NOT_ONE = re.compile(
    r"sched|zero_grad|optim_state_dict|\.step$|load_state_dict|\.(?:add_param_group|append|extend|update|add)$",
    re.IGNORECASE,
)
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)
_READS = READERS | {"children", "modules", "named_children", "named_modules", "requires_grad_", "train", "eval"}
_LOOKS = frozenset({"len", "isinstance", "type", "hasattr", "getattr", "print", "id"})
_DOES = re.compile(r"(?:^|\.)_?(?:train|fit|run|eval|main|loop|step|backward|load|init|wrap|prepare)(?:_\w+)?$")
_PARAMETERS = (".weight", ".bias")
_NAMED_SO = re.compile(r"(?:^|[._])opt(?:im\w*|s|_\w+)?$", re.IGNORECASE)
_DEPTH = 2
"""Into how many functions, one called by the other, is looked for what builds an optimizer."""


@dataclass(frozen=True)
class Holder:
    """A call above the wrap by which something gets hold of the parameters, or the name of one of them."""

    call: cst.BaseExpression
    is_optimizer: bool
    """Whether it makes an optimizer; if not, it only keeps parameters, for an optimizer or for something else."""
    name: str = ""
    """Where the optimizer is kept when that is not what the call returns: `trainer.optimizer`."""
    can_move: bool = True
    """Whether the functions that it runs only read the model, as far as they are the program's own."""


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
    return [early for early in found if not _is_filled_anew(early)]


def _is_filled_anew(early: Early) -> bool:
    """Whether the program itself clears the optimizer's groups and, below the wrap, gives it new ones."""
    return any(_fills_anew(step) for step in (Step(early.file, early.site, early.model), *early.inner))


def _fills_anew(step: Step) -> bool:
    calls = step.file.calls(step.file.scope(step.site))
    texts = {call: step.file.code(call.func) for call in calls if isinstance(call.func, cst.Attribute)}
    here = step.file.span(step.site)[1]
    below = [text for call, text in texts.items() if step.file.span(call)[0] > here]
    return any(text.endswith(".param_groups.clear") for text in texts.values()) and any(
        text.endswith(".add_param_group") for text in below
    )


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
    if rest and name == "self":
        for where, caller in file.callers(site):
            receiver = place(caller.func.value) if isinstance(caller.func, cst.Attribute) else None
            if receiver is not None:
                yield where, caller, f"{receiver}.{rest}"


def holders_above(file: File, site: cst.Call, model: str) -> tuple[Holder, ...]:
    """The holders of one model's parameters above a call."""
    parts = dict(_other_names(file, site, model))
    found: list[Holder] = list(_parameters_above(file, site, model))
    for other in calls_above(file, site, model):
        found += _holder(file, other, model)
        for name, is_all in parts.items():
            if is_all or (isinstance(other.func, cst.Attribute) and other.func.attr.value in READERS):
                found += _holder(file, other, name)
        if _is_one_of_several(file, site) and is_optimizer(file, other) and _is_of_one_of_several(file, other):
            found.append(Holder(other, True))
    return tuple(dict.fromkeys(found))


def _is_one_of_several(file: File, site: cst.Call) -> bool:
    """`for net, optimizer in runs: FSDP(net)`: which of the models it is, is not followed."""
    module = wrapped_module(site)
    return module is not None and _is_turn(file, module)


def _is_of_one_of_several(file: File, optimizer: cst.Call) -> bool:
    """`[AdamW(net.parameters()) for net in nets]`."""
    readers = (node for node in file.inside(optimizer) if isinstance(node, cst.Call))
    return any(
        isinstance(each.func, cst.Attribute) and each.func.attr.value in READERS and _is_turn(file, each.func.value)
        for each in readers
    )


def _is_turn(file: File, node: cst.BaseExpression) -> bool:
    """Whether a name is the variable of a loop or comprehension around it."""
    name = base(node)
    loops = (outer for outer in file.ancestors(node) if isinstance(outer, (cst.For, cst.BaseComp)))
    targets = (outer.target if isinstance(outer, cst.For) else outer.for_in.target for outer in loops)
    return any(name in set(bound(target)) for target in targets)


def _assigned_above(file: File, site: cst.Call) -> Iterator[tuple[cst.Assign, str, str]]:
    """The assignments of one place to another, above a call in its function."""
    scope, here = file.scope(site), file.span(site)[0]
    for node in file.nodes(cst.Assign):
        right = place(node.value)
        if right is not None and file.scope(node) is scope and file.span(node)[0] < here:
            for left in (place(target.target) for target in node.targets):
                if left is not None:
                    yield node, left, right


def _other_names(file: File, site: cst.Call, model: str) -> Iterator[tuple[str, bool]]:
    """`inner = net`, which is all of the model, and `head = net.head`, which is a part of it."""
    for _, left, right in _assigned_above(file, site):
        if right == model or right.startswith(f"{model}."):
            yield left, right == model
        elif left == model:
            yield right, True


def _parameters_above(file: File, site: cst.Call, model: str) -> Iterator[Holder]:
    """`weight = net.head.weight`, where something below the wrap, or an optimizer, uses it."""
    here = file.span(site)[1]
    for node, left, right in _assigned_above(file, site):
        if "." not in left and right.startswith(f"{model}.") and right.endswith(_PARAMETERS):
            if any(
                _collects(file, use) or (file.span(use)[0] > here and not _asks(file, use)) for use in file.uses(node)
            ):
                yield Holder(node.value, False)


def _collects(file: File, use: cst.Name) -> bool:
    """`AdamW([weight])`, `parameters = [weight]`."""
    for node in file.ancestors(use):
        if isinstance(node, (cst.List, cst.Dict, cst.Tuple)) or (
            isinstance(node, cst.Call) and is_optimizer(file, node)
        ):
            return True
        if isinstance(node, (cst.Call, cst.BaseSmallStatement)):
            return False
    return False


def _asks(file: File, use: cst.Name) -> bool:
    """`weight.dtype`: what does not change."""
    outer = file.parent(use)
    return isinstance(outer, cst.Attribute) and outer.attr.value in {"device", "dtype", "ndim", "shape"}


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


def _holder(file: File, other: cst.Call, model: str, depth: int = _DEPTH) -> Iterator[Holder]:
    if is_constructor(file, other):
        return
    made = list(_made_inside(file, other, model, depth)) if depth else []
    if is_optimizer(file, other) and (not any(holder.name for holder in made) or _is_bound(file, other)):
        owner = base(other.func.value) if isinstance(other.func, cst.Attribute) else None
        given = [place(argument.value) for argument in other.args]
        if any(found is not None and same(found, model) for found in [*given, owner]):
            yield Holder(other, True)
    elif isinstance(other.func, cst.Attribute) and other.func.attr.value in READERS:
        owner = base(other.func.value)
        if owner is not None and same(owner, model):
            yield from _reader(file, other)
    else:
        yield from made


def _reader(file: File, parameters: cst.Call) -> Iterator[Holder]:
    """`model.parameters()`, where an optimizer or a variable keeps them."""
    outermost = parameters
    for node in file.ancestors(parameters):
        if isinstance(node, cst.Call):
            if is_optimizer(file, node) or _is_named_so(file, node):
                yield Holder(node, True)
                return
            outermost = node
        elif isinstance(node, (cst.Assign, cst.AnnAssign)):
            kept = node.value is not None and is_kept(file, node.value, parameters)
            targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else [node.target]
            if kept and not are_ignored(file, frozenset(map(place, targets))):
                yield Holder(outermost, False)
            return
        elif isinstance(node, cst.AugAssign):
            yield Holder(outermost, False)
            return
        elif isinstance(node, cst.Expr):
            if is_collecting(node.value) and not are_ignored(file, writes(node)):
                yield Holder(outermost, False)
            return
        elif isinstance(node, cst.For):
            collected = frozenset(collected_in(file, node))
            kept = bool(collected) and not are_ignored(file, collected)
            if kept or any(isinstance(inner, cst.Yield) for inner in file.inside(node.body)):
                yield Holder(parameters, False)
            return
        elif isinstance(node, cst.Return):
            if node.value is not None and is_kept(file, node.value, parameters):
                yield Holder(outermost, False)
            return
        elif isinstance(node, (cst.BaseCompoundStatement, cst.SimpleStatementLine)):
            return


def _is_named_so(file: File, call: cst.Call) -> bool:
    """`opt = make(net.parameters())`: what is made of parameters and called an optimizer is one."""
    target = file.parent(call)
    names = [place(each.target) for each in target.targets] if isinstance(target, cst.Assign) else []
    return any(name is not None and _NAMED_SO.search(name) for name in names)


def _made_inside(file: File, other: cst.Call, model: str, depth: int) -> Iterator[Holder]:
    """`optimizer, scheduler = set_up(model)`, `trainer = Trainer(model)`, `self.configure()`: what the program's own
    functions build from the parameters, and return or keep in their object."""
    for where, function, own in entered(file, other, model):
        places = own | aliases(where, function, own)
        can_move = _only_reads(where, function, places)
        for inner in _built_in(where, function, places, depth):
            outer = _kept_outside(where, function, inner, file, other)
            if outer is None:
                continue
            if outer:
                named = inner.is_optimizer and (bool(inner.name) or _is_bound(where, inner.call))
                yield Holder(other, named, outer, can_move and inner.can_move)
            elif inner.is_optimizer and _is_returned_itself(where, function, inner):
                yield Holder(other, True, "", can_move and inner.can_move)
            else:
                yield from (replace(h, can_move=can_move and inner.can_move) for h in _reader(file, other))


def _is_returned_itself(file: File, function: cst.FunctionDef, inner: Holder) -> bool:
    """`return optimizer`, `return model, optimizer`: not an object that has it somewhere."""
    kept = {inner.name} if inner.name else set(written_by(file, inner.call))
    for node in file.inside(function.body):
        if isinstance(node, cst.Return) and node.value is not None:
            values = [node.value]
            if isinstance(node.value, (cst.Tuple, cst.List)):
                values = [element.value for element in node.value.elements]
            if any(value is inner.call or place(value) in kept for value in values):
                return True
    return False


def _built_in(file: File, function: cst.FunctionDef, places: frozenset[str], depth: int) -> list[Holder]:
    """What one function builds from the parameters, and the optimizers that it builds from that."""
    text = file.code(function.body)
    if depth == 1 and "parameters" not in text and not _OPTIMIZER.search(text):
        return []
    calls = file.calls(function)
    found = [h for call in calls for model in sorted(places) for h in _holder(file, call, model, depth - 1)]
    kept = frozenset(name for holder in found if not holder.is_optimizer for name in written_by(file, holder.call))
    known = {holder.call for holder in found if holder.is_optimizer}
    found += [Holder(call, True) for call in calls if call not in known and _is_made_of(file, call, kept)]
    return found


def _is_made_of(file: File, call: cst.Call, kept: frozenset[str]) -> bool:
    return is_optimizer(file, call) and meets(reads(call), kept)


def _kept_outside(where: File, function: cst.FunctionDef, inner: Holder, file: File, other: cst.Call) -> str | None:
    """Where the caller finds what is built in a function: empty for what it returns, None where nothing stays."""
    kept = frozenset({inner.name}) if inner.name else written_by(where, inner.call)
    stored = {each for each in kept if each.startswith("self.")}
    for node in where.inside(function.body):
        if isinstance(node, (cst.Assign, cst.Return)) and isinstance(node.value, cst.Call):
            if node.value is not inner.call and is_optimizer(where, node.value):
                continue  # found by itself
        if isinstance(node, cst.Assign) and passes_on(where, node.value, kept, inner.call):
            stored |= {found for found in writes(node) if found.startswith("self.")}
        elif isinstance(node, cst.Return) and node.value is not None:
            if passes_on(where, node.value, kept, inner.call):
                return ""
        elif isinstance(node, cst.Yield):
            return ""
    found = object_of(file, function, other)
    return f"{found}{min(stored)[4:]}" if stored and found is not None else None


def _only_reads(where: File, function: cst.FunctionDef, places: frozenset[str], depth: int = _DEPTH) -> bool:
    """Whether a function does nothing to the model that would be something else after sharding."""
    for call in where.calls(function):
        if isinstance(call.func, cst.Attribute) and base(call.func.value) in places:
            if call.func.attr.value not in _READS:
                return False
        elif _DOES.search(where.code(call.func)):
            return False
        elif any(place(argument.value) in places for argument in call.args) and not is_optimizer(where, call):
            inner = [found for p in places for found in entered(where, call, p)]
            if inner and (not depth or not all(_only_reads(*found, depth - 1) for found in inner)):
                return False
            if not inner and where.code(call.func) not in _LOOKS:
                return False
    return True


def _is_bound(file: File, call: cst.BaseExpression) -> bool:
    return isinstance(file.parent(call), (cst.Assign, cst.AnnAssign))


def is_optimizer(file: File, call: cst.Call) -> bool:
    """`torch.optim.AdamW(...)`, `getattr(torch.optim, name)(...)`, `build_optimizer(...)`; a scheduler is none."""
    text = file.code(call.func)
    return bool(_OPTIMIZER.search(text)) and not _NOT_ONE.search(text)


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
