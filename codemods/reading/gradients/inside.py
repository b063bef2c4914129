"""What becomes of gradients inside of a function: which names hold something that was made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import bound_texts, place
from codemods.reading.code.shapes import called_on, parameters
from codemods.reading.code.words import last_name
from codemods.reading.models.parts import wrapped_around
from codemods.reading.optimizers.prewrap.keeping import are_ignored
from codemods.reading.parameters.of_model import Reading, gives_parameters, models_around, readings
from codemods.reading.wrappers.ddp import is_in_ddp, is_on_ddp_way
from codemods.reading.wraps.left_out import may_ignore_parameters
from codemods.reading.wraps.process_groups import is_default

_COLLECTIVES = frozenset({"all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"})
_ADDS = frozenset({"append", "extend", "insert", "add_", "copy_", "update", "put"})
_PLAIN = frozenset({"to_local", "full_tensor"})
_SAME_VALUES = frozenset({"detach", "float", "double", "to"})
_LEAF = frozenset({"clone", "detach", "float", "requires_grad_", "to"})
_NORMS = frozenset({"torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm"})
_SQUARED = re.compile(r"\*\*=?\s*2|\.(pow_?\(2|square_?\()")
_FLATTENED = frozenset({"_flatten_dense_tensors", "flatten_dense_tensors"})
_TWO = re.compile(r"(p=|ord=)?2(\.0*)?")


Body = cst.FunctionDef | cst.Module
"""What a script does outside of any function counts as one."""


def collectives_on_gradients(function: Body, ctx: Context) -> list[cst.Call]:
    """The collectives of torch.distributed that get a gradient, or what was computed from one."""
    calls = [call for call in ctx.calls(function) if _is_collective(call, ctx)]
    if not calls:
        return []
    names = _made_of_gradients(function, ctx, _given_gradients(function, ctx))
    return [
        call
        for call in calls
        if any(_holds(argument, names - _plain_above(call, function, ctx), ctx) for argument in call.args)
        and not _is_of_ignored(call, ctx)
    ]


def _is_of_ignored(call: cst.Call, ctx: Context) -> bool:
    """`all_reduce(p.grad)` for each `p` of what the constructor is told to leave alone: those stay plain."""
    first = call.args[0].value if call.args else None
    if not isinstance(first, cst.Attribute) or first.attr.value != "grad":
        return False
    loops = (outer for outer in ctx.ancestors(call) if isinstance(outer, cst.For))
    loop = next((each for each in loops if ctx.code(each.target) == ctx.code(first.value)), None)
    return loop is not None and are_ignored(ctx, frozenset({place(loop.iter)}))


def _plain_above(call: cst.Call, function: Body, ctx: Context) -> set[str]:
    """What is taken out of its DTensor above a call: `if isinstance(norm, DTensor): norm = norm.full_tensor()`."""
    above = (node for node in ctx.inside(function) if isinstance(node, cst.Assign))
    taken = [node for node in above if ctx.span(node)[0] < ctx.span(call)[0] and called_on(node.value, *_PLAIN)]
    return {ctx.code(target.target) for node in taken for target in node.targets}


def added_up_by_hand(function: cst.FunctionDef, ctx: Context) -> list[cst.Attribute]:
    """The `p.grad` of a function that adds their squares up over the ranks, where each can be this rank's piece.

    Empty unless every gradient is seen to be of an FSDP2 model, and nothing but its 2-norm or sum of squares is taken,
    and the number of its elements. What is scaled by the result stays a DTensor.
    """
    calls = collectives_on_gradients(function, ctx)
    if not calls or not all(_adds_up(call, ctx) for call in calls) or not _SQUARED.search(ctx.code(function)):
        return []
    found = []
    for attribute in ctx.nodes(cst.Attribute):
        if attribute.attr.value != "grad" or ctx.scope(attribute) not in _scopes(function, ctx):
            continue
        if isinstance(ctx.parent(attribute), (cst.Comparison, cst.ComparisonTarget)) or _is_scaled(attribute, ctx):
            continue
        is_of_piece = is_squared(attribute, ctx) or _is_counted(attribute, ctx)
        if not is_surely_sharded(attribute.value, ctx) or not is_of_piece:
            return []
        found.append(attribute)
    return found


def _is_scaled(gradient: cst.Attribute, ctx: Context) -> bool:
    """`p.grad.detach().mul_(max_norm / total)`, a statement: by a number, or a tensor of one element."""
    scaled: cst.CSTNode = gradient
    while (outer := _same_values(scaled, ctx)) is not None:
        scaled = outer
    method, call = ctx.parent(scaled), ctx.parent(ctx.parent(scaled) or scaled)
    is_one = isinstance(method, cst.Attribute) and method.value is scaled and method.attr.value in {"mul_", "div_"}
    if not is_one or not isinstance(call, cst.Call) or not isinstance(ctx.parent(call), cst.Expr):
        return False
    if len(call.args) != 1:
        return False
    by = call.args[0].value
    return all(not isinstance(node, cst.Attribute) or node.attr.value != "grad" for node in (by, *ctx.inside(by)))


def _same_values(tensor: cst.CSTNode, ctx: Context) -> cst.CSTNode | None:
    """`p.grad.data` and `p.grad.detach()` around `p.grad`."""
    holder = ctx.parent(tensor)
    if not isinstance(holder, cst.Attribute) or holder.value is not tensor:
        return None
    return {"data": holder, "detach": ctx.parent(holder)}.get(holder.attr.value)


def _is_counted(gradient: cst.Attribute, ctx: Context) -> bool:
    """`p.grad.numel()`: under FSDP1 that of this rank's piece."""
    holder = ctx.parent(gradient)
    return isinstance(holder, cst.Attribute) and holder.value is gradient and holder.attr.value == "numel"


def parameters_added_up(function: cst.FunctionDef, ctx: Context) -> list[cst.BaseExpression]:
    """The same of parameters, `p.detach().norm() ** 2`: a DTensor is no argument of a collective."""
    calls = [call for call in ctx.calls(function) if _is_collective(call, ctx)]
    if not calls or not all(_adds_up(call, ctx) for call in calls) or not _SQUARED.search(ctx.code(function)):
        return []
    inside = ctx.inside(function)
    read = [param for each in readings(ctx) if each.node in inside for param in each.seen(ctx)]
    read = [param for param in read if not _is_asked(param, ctx)]
    is_squares = all(is_surely_sharded(param, ctx) and is_squared(param, ctx) for param in read)
    return read if is_squares else []


def _is_asked(param: cst.BaseExpression, ctx: Context) -> bool:
    """`p.grad`, and `p.requires_grad`; what a loop calls it."""
    holder = ctx.parent(param)
    if isinstance(holder, cst.Attribute):
        return holder.attr.value in {"grad", "requires_grad"}
    return isinstance(holder, (cst.For, cst.CompFor, cst.Element))


def is_data_parallelism(function: Body, ctx: Context) -> bool:
    """Whether gradients of models that are not seen to be wrapped are put together as DDP does: by its own name, or
    whole ones that are added up over all ranks.

    That is data parallelism by hand, of a plain model: FSDP1's shards of different ranks are different parameters.
    Adding them up failed with `use_orig_params=True`, and trained something else without it (0.125820 became 0.133134
    in the second step, torch 2.13).
    """
    calls = collectives_on_gradients(function, ctx)
    says_so = is_in_ddp(function, ctx) or all(is_on_ddp_way(call, ctx) for call in calls)
    if not calls or not (says_so or all(_is_averaged(call, function, ctx) for call in calls)):
        return False
    read = [n for n in ctx.inside(function) if isinstance(n, cst.Attribute) and n.attr.value == "grad"]
    models = [model for gradient in read for model in models_around(gradient.value, ctx)]
    return not any(wrapped_around(model, ctx) for model in models)


def _is_averaged(call: cst.Call, function: Body, ctx: Context) -> bool:
    return _adds_up(call, ctx) and _is_over_all(call, ctx) and _is_whole(call.args[0].value, function, ctx)


def _is_whole(value: cst.BaseExpression, function: Body, ctx: Context, depth: int = 4) -> bool:
    """Whether a value is gradients themselves, or a list or one flat tensor of them: no norm, and nothing else."""
    if isinstance(value, cst.Attribute):
        return value.attr.value == "grad" or (value.attr.value == "data" and _is_whole(value.value, function, ctx))
    if isinstance(value, cst.ListComp):
        return _is_whole(value.elt, function, ctx)
    if isinstance(value, cst.List):
        return all(_is_whole(element.value, function, ctx) for element in value.elements)
    if isinstance(value, cst.Call) and last_name(value.func) in _FLATTENED and len(value.args) == 1:
        return _is_whole(value.args[0].value, function, ctx)
    if not isinstance(value, cst.Name) or not depth:
        return False
    flows = (_flow(node) for node in ctx.inside(function) if not isinstance(node, cst.AugAssign))
    made = [read for read, targets in flows if read is not None and value.value in map(ctx.code, targets)]
    made = [each.elements[0].value if isinstance(each, cst.List) and len(each.elements) == 1 else each for each in made]
    return bool(made) and all(
        isinstance(m, cst.BaseExpression) and _is_whole(m, function, ctx, depth - 1) for m in made
    )


def _is_over_all(call: cst.Call, ctx: Context) -> bool:
    """`all_reduce(x)`, over the default group."""
    groups = [a.value for a in call.args[2:] if a.keyword is None]
    groups += [a.value for a in call.args if a.keyword is not None and a.keyword.value == "group"]
    return all(is_default(ctx, group) for group in groups)


def _scopes(function: cst.FunctionDef, ctx: Context) -> set[cst.CSTNode]:
    """The function and the comprehensions in it."""
    return {function, *(node for node in ctx.inside(function) if isinstance(node, cst.BaseComp))}


def _is_collective(call: cst.Call, ctx: Context) -> bool:
    name = ctx.dotted(call.func) or ""
    return name.startswith("torch.distributed.") and name.rsplit(".", 1)[-1] in _COLLECTIVES


def _adds_up(call: cst.Call, ctx: Context) -> bool:
    named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
    operation = named.get("op") or (call.args[1].value if len(call.args) > 1 and not call.args[1].keyword else None)
    is_sum = operation is None or ctx.code(operation).endswith("ReduceOp.SUM")
    return is_sum and (ctx.dotted(call.func) or "").endswith(".all_reduce")


def is_surely_sharded(param: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a loop variable is seen to be a parameter of an FSDP2 model without plain ones."""
    for reading in _read_around(param, ctx):
        if isinstance(reading.node, cst.Call) and isinstance(reading.node.func, cst.Attribute):
            wrapped = wrapped_around(reading.node.func.value, ctx)
            if wrapped is None:
                return False
            where, model = wrapped
            return where.kinds(model) == {ModelKind.FSDP} and not may_ignore_parameters(where, model)
    return False


def _may_be_sharded(param: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it is not seen to be a parameter of a model that nothing shards, or an activation."""
    if _is_activation(param, ctx) or _is_input(param, ctx) or ctx.kinds(param) == {ModelKind.OTHER}:
        return False
    models = models_around(param, ctx)
    return not models or any(ModelKind.UNKNOWN in ctx.kinds(m) or wrapped_around(m, ctx) is not None for m in models)


def _is_input(leaf: cst.BaseExpression, ctx: Context) -> bool:
    """`x = torch.zeros(n, requires_grad=True)`, `x.requires_grad_()`: a program wants its gradient for itself."""
    made = [(o.file, o.node) for o in ctx.origins(leaf)]
    if any(gives_parameters(node, where) for where, node in made) or models_around(leaf, ctx) or _is_turn(leaf, ctx):
        return False
    asked = (call for call in ctx.nodes(cst.Call) if ctx.scope(call) is ctx.scope(leaf))
    if any(ctx.code(call.func) == f"{ctx.code(leaf)}.requires_grad_" for call in asked):
        return True
    bound = ctx.bound(leaf) if isinstance(leaf, cst.Name) else made
    return bool(bound) and all(isinstance(node, cst.Call) and _is_leaf(node, where) for where, node in bound or ())


def _is_leaf(made: cst.Call, ctx: Context) -> bool:
    """Whether a call makes a tensor that is said to get a gradient: FSDP's parameters come of no such call."""
    if isinstance(made.func, cst.Attribute) and made.func.attr.value == "requires_grad_":
        return not gives_parameters(made.func.value, ctx)
    given = [a.value for a in made.args if a.keyword is not None and a.keyword.value == "requires_grad"]
    is_tensor = (ctx.dotted(made.func) or "").startswith("torch.") and last_name(made.func) != "Parameter"
    return is_tensor and [ctx.code(value) for value in given] == ["True"]


def _is_turn(leaf: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it is the variable of a loop, whatever that goes over."""
    loops = (outer for outer in ctx.ancestors(leaf) if isinstance(outer, (cst.For, cst.BaseComp)))
    targets = (loop.target if isinstance(loop, cst.For) else loop.for_in.target for loop in loops)
    return any(ctx.code(leaf) in bound_texts(target, ctx) for target in targets)


def _is_activation(leaf: cst.BaseExpression, ctx: Context) -> bool:
    """`h = h.detach().requires_grad_()` of what a call gave: what a model computed, cut off from how it did."""
    made = [(o.file, o.node) for o in ctx.origins(leaf)] if isinstance(leaf, cst.Name) else []
    return bool(made) and all(_is_cut_off(node, where) for where, node in made)


def _is_cut_off(node: cst.CSTNode | None, ctx: Context) -> bool:
    methods = list[str]()
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _LEAF:
        methods.append(node.func.attr.value)
        node = node.func.value
    given = [o.node for o in ctx.origins(node)] if isinstance(node, cst.Name) else [node]
    is_given = all(isinstance(each, cst.Call) and not gives_parameters(each, ctx) for each in given)
    return "detach" in methods and bool(given) and is_given


def _read_around(param: cst.BaseExpression, ctx: Context) -> Iterator[Reading]:
    """The loops over parameters whose variable this is."""
    text = ctx.code(param)
    start, end = ctx.span(param)
    for reading in readings(ctx):
        first, last = ctx.span(reading.body)
        if first <= start and end <= last and ctx.code(reading.param) == text:
            yield reading


def is_squared(tensor: cst.BaseExpression, ctx: Context) -> bool:
    """Whether its 2-norm or the sum of its squares is taken: `.norm(2)`, `torch.norm(p.grad)`, `.pow(2).sum()`."""
    node: cst.CSTNode = tensor
    squared = False
    while True:
        holder = ctx.parent(node)
        if isinstance(holder, cst.Arg):
            call = ctx.parent(holder)
            is_norm = isinstance(call, cst.Call) and ctx.dotted(call.func) in _NORMS and call.args[0] is holder
            return is_norm and isinstance(call, cst.Call) and _is_of_two(call.args[1:], ctx)
        if isinstance(holder, cst.BinaryOperation) and _is_square(holder, node):
            node, squared = holder, True
            continue
        if not isinstance(holder, cst.Attribute) or holder.value is not node:
            return False
        method, call = holder.attr.value, ctx.parent(holder)
        if not isinstance(call, cst.Call) or call.func is not holder:
            if method != "data":
                return False
            node = holder
            continue
        if method == "norm":
            return _is_of_two(call.args, ctx)
        if method == "sum" and squared:
            return not call.args
        if method == "square" or (method == "pow" and _is_of_two(call.args, ctx)):
            squared = True
        elif method not in _SAME_VALUES:
            return False
        node = call


def _is_square(power: cst.BinaryOperation, of: cst.CSTNode) -> bool:
    """`p.grad ** 2`."""
    is_two = isinstance(power.right, (cst.Integer, cst.Float)) and power.right.evaluated_value == 2
    return isinstance(power.operator, cst.Power) and power.left is of and is_two


def _is_of_two(arguments: Sequence[cst.Arg], ctx: Context) -> bool:
    orders = [each for each in arguments if each.keyword is None or each.keyword.value != "dtype"]
    return all(_TWO.fullmatch("".join(ctx.code(argument).rstrip(", ").split())) for argument in orders)


def _given_gradients(function: Body, ctx: Context) -> set[str]:
    """The parameters that a caller passes gradients for, or what it makes of them: `self._reduce(total_norm)`."""
    given: set[str] = set()
    if isinstance(function, cst.Module):
        return given
    for param in parameters(function):
        for where, call, value in ctx.passed_to(function.body, param.name.value):
            caller = next((outer for outer in where.ancestors(call) if isinstance(outer, cst.FunctionDef)), None)
            if caller is not None and ".grad" in where.code(caller):
                if _holds(value, _made_of_gradients(caller, where), where):
                    given.add(param.name.value)
    return given


def _made_of_gradients(function: Body, ctx: Context, given: Iterable[str] = (), follow: bool = True) -> set[str]:
    """The names and attributes that are set from gradients in a function, whatever else they are set from, and those
    that it is given."""
    names, nodes = set(given), _nodes_of(function, ctx)
    before = -1
    while before < len(names):
        before = len(names)
        for node in nodes:
            value, targets = _flow(node)
            if value is not None and _holds(value, names, ctx, follow):
                names.update(name for target in targets for name in bound_texts(target, ctx))
    return names


def _nodes_of(function: Body, ctx: Context) -> Sequence[cst.CSTNode]:
    """What stands in a function, or in none."""
    if isinstance(function, cst.FunctionDef):
        return ctx.inside(function.body)
    return [node for node in ctx.inside(function) if enclosing(ctx, node, cst.FunctionDef) is None]


def _flow(node: cst.CSTNode) -> tuple[cst.CSTNode | None, list[cst.CSTNode]]:
    """What is read, and what is set from it."""
    if isinstance(node, cst.Assign):
        return node.value, [target.target for target in node.targets]
    if isinstance(node, (cst.AugAssign, cst.NamedExpr)):
        return node.value, [node.target]
    if isinstance(node, (cst.For, cst.CompFor)):
        return node.iter, [node.target]
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _ADDS:
        into = called_on(node.func.value, "setdefault") or node.func.value  # `norms.setdefault(name, []).append(…)`
        return cst.List([cst.Element(argument.value) for argument in node.args]), [into]
    return None, []


def _holds(node: cst.CSTNode, names: set[str], ctx: Context, follow: bool = True) -> bool:
    """Whether an expression reads `.grad`, one of these names, or what a function of the program made of gradients; a
    plain tensor of a gradient is none, and `p.grad is not None` no value of one.
    """
    if isinstance(node, cst.Comparison) and isinstance(node.comparisons[0].operator, (cst.Is, cst.IsNot)):
        return False
    if isinstance(node, cst.Attribute):
        if node.attr.value in _PLAIN:
            return False
        if node.attr.value == "grad":
            return _may_be_sharded(node.value, ctx)
        if ctx.code(node) in names:
            return True
        return _holds(node.value, names, ctx, follow)
    if isinstance(node, cst.Name):
        return node.value in names
    if follow and isinstance(node, cst.Call):
        if any(_gives_gradients(origin.node, origin.file) for origin in ctx.origins(node.func)):
            return True
    return any(_holds(child, names, ctx, follow) for child in node.children)


def _gives_gradients(function: cst.CSTNode | None, where: Context) -> bool:
    """Whether a function of the program returns what its own statements make of `.grad`."""
    if not isinstance(function, cst.FunctionDef) or ".grad" not in where.code(function):
        return False
    names = _made_of_gradients(function, where, follow=False)
    returned = [
        node.value for node in where.inside(function) if isinstance(node, cst.Return) and node.value is not None
    ]
    return any(_holds(value, names, where, follow=False) for value in returned)
