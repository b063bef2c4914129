"""What the body of `with FSDP.summon_full_params(model):` does with the whole parameters, where all of that is seen.

Then it needs no context: a parameter is gathered where it is read, and each rank takes its shard of what is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import call_given, contains, enclosing, ifs_around, is_label
from codemods.reading.code.shapes import called_on, class_test, is_attribute
from codemods.reading.code.words import last_name
from codemods.reading.forwards.after_forward import reads_after_forward
from codemods.reading.models.parts import wrapped_around
from codemods.reading.parameters.updated_alike import updated_alike
from codemods.reading.parameters.updated_by_name import updated_by_name
from codemods.reading.processes.one_rank import is_on_one_rank
from codemods.tables.names import SUMMON
from codemods.tables.tensors import (
    ASKS,
    COPIES,
    ELEMENT_BY_ELEMENT,
    FACTS,
    IN_PLACE,
    ON_CONTAINERS,
    ON_TEXTS,
    QUIET_FUNCTIONS,
    READS,
)

_LOOPS = ("parameters", "named_parameters")
_RESETS = ("reset_parameters", "normal_", "uniform_")
_DEPTH = 3
"""How many functions are followed that call each other."""
_ENGINES = ("load_weights", "reset_prefix_cache", "sleep", "wake_up")
"""What vLLM's engines and models have, none of which runs anything."""
_WALKS = frozenset({"buffers", "children", "modules", "named_buffers", "named_children", "named_modules"})
_MODULE = "module"
_CHOICES = (cst.If, cst.IfExp, cst.While, cst.BooleanOperation, cst.Try, cst.FunctionDef, cst.Lambda, cst.ExceptHandler)
_SAME_THERE = frozenset({"data", "detach", "clone", "float"})
"""What gives the same on any device."""
_NEEDLESS = {"recurse": "True", "rank0_only": "False", "offload_to_cpu": "False", "with_grads": "False"}
_PARAMETERS = frozenset({"weight", "bias"})
"""What is no module in any module of torch."""
_SAME_ELEMENTS = frozenset({"data", "grad"})
_SUMS = frozenset({"sum", "all", "any"})
"""Builtin functions whose result is none of what they are given."""


@dataclass
class Body:
    """The parameters that a body reads and writes."""

    models: Sequence[cst.BaseExpression]
    beside: Sequence[cst.BaseExpression] = ()
    """What the block enters as well: `torch.no_grad()`."""
    reads: list[cst.BaseExpression] = field(default_factory=list)
    """Expressions of a whole parameter whose values are looked at."""
    writes: list[tuple[cst.Call, cst.BaseExpression, cst.BaseExpression]] = field(default_factory=list)
    """Calls that copy a value into a parameter: the call, the parameter, the value."""
    changes: list[cst.Call] = field(default_factory=list)
    """Calls that change each element by itself: they stay, and change this rank's shard."""
    alike: list[cst.BaseExpression] = field(default_factory=list)
    """Models whose parameters change by those of another, element by element: this rank's shards by its shards."""
    loads: list[cst.Call] = field(default_factory=list)
    """Calls that load a whole state dict into the model."""
    has_grads: bool = False
    """Whether gradients are whole, too."""
    is_offloaded: bool = False
    """Whether whole parameters lie on the CPU."""
    to_cpu: set[cst.BaseExpression] = field(default_factory=set)
    """Those of the reads that do not say so themselves."""
    gathered: dict[cst.For, tuple[cst.Name, set[cst.BaseExpression]]] = field(default_factory=dict)
    """Loops that gather each parameter first, since not every rank may come to what reads it: its name, the reads."""


def summons(node: cst.CSTNode, ctx: Context) -> bool:
    return isinstance(node, cst.Call) and bool(node.args) and ctx.fsdp1(node.func) == SUMMON


def is_summoned_no_more(node: cst.CSTNode, model: str, ctx: Context) -> bool:
    """Whether the context around a node goes that summons the parameters of the model of this text."""
    for block in ctx.ancestors(node):
        if isinstance(block, cst.With) and (body := body_of(block, ctx)) is not None:
            if model in map(ctx.code, body.models):
                return True
    return False


def body_of(block: cst.With, ctx: Context) -> Body | None:
    """None where anything is done with a model that is not seen through, or where not all ranks read the same."""
    entered = [item.item for item in block.items]
    calls = [each for each in entered if summons(each, ctx)]
    beside = [item for item in block.items if item.item not in calls]
    if not calls or not all(_sets_grad_mode(item, ctx) for item in beside):
        return None
    offloading = [isinstance(call, cst.Call) and _is_true(_given(call).get("offload_to_cpu"), ctx) for call in calls]
    has_grads = all(isinstance(call, cst.Call) and _is_true(_given(call).get("with_grads"), ctx) for call in calls)
    is_whole = not any(is_attribute(node, *_LOOPS, *_WALKS, "state_dict") for node in ctx.inside(block.body))
    if not all(_summons_as_always(call, ctx, all(offloading), has_grads, is_whole) for call in calls):
        return None
    models = [cst.ensure_type(call, cst.Call).args[0].value for call in calls]
    found = Body(models, beside=[item.item for item in beside], is_offloaded=all(offloading), has_grads=has_grads)
    names = {ctx.code(model) for model in found.models}
    names |= {f"{name}.module" for name in names}
    inner = ctx.inside(block.body)
    mine = [node for node in inner if isinstance(node, (cst.Name, cst.Attribute)) and ctx.code(node) in names]
    mine = [node for node in mine if not _is_part_of_name(node, names, ctx)]
    inside = [node for node in inner if isinstance(node, cst.Call)]
    found.loads = [call for call in inside if called_on(call, "load_state_dict") in mine]
    calls_seen = all(call in found.loads or _is_harmless(call, ctx) for call in inside)
    if not mine or not calls_seen or not all(_is_followed(node, block, found, ctx) for node in mine):
        return None
    is_written = bool(found.writes or found.changes or found.loads)
    written = [call for call, model in zip(calls, models, strict=True) if is_written or model in found.alike]
    return found if all(_takes_writes(call, ctx) for call in written) else None


def _sets_grad_mode(item: cst.WithItem, ctx: Context) -> bool:
    call = item.item
    named = ctx.dotted(call.func) if isinstance(call, cst.Call) and item.asname is None else None
    return named in {"torch.no_grad", "torch.enable_grad"}


def is_looked_into(block: cst.With, ctx: Context) -> bool:
    """Whether nothing in a body can run the model, or load into it: each call is of a tensor, a container or torch."""
    inner = list(ctx.inside(block.body))
    if any(isinstance(node, (cst.Yield, cst.Await)) for node in inner):
        return False
    entered = [item.item for item in block.items]
    calls = [node for node in [*inner, *entered] if isinstance(node, cst.Call) and not summons(node, ctx)]
    return (
        all(isinstance(each, cst.Call) for each in entered)
        and all(_summons_to_look(each, block, ctx) for each in entered if summons(each, ctx))
        and all(_is_quiet(each, ctx) for each in calls)
    )


def _summons_to_look(call: cst.BaseExpression, block: cst.With, ctx: Context) -> bool:
    """Whole parameters in their own precision, on every rank, or for what the first one alone does in the block."""
    call = cst.ensure_type(call, cst.Call)
    given = _given(call)
    is_named = len(given) == len(call.args) - 1 and gives_model_first(call)
    if not is_named or not isinstance(call.args[0].value, (cst.Name, cst.Attribute)):
        return False
    if "with_grads" in given and ("writeback" not in given or ctx.code(given["writeback"]) != "False"):
        return False  # what is written to gradients
    if "rank0_only" not in given or is_usual("rank0_only", given["rank0_only"], ctx):
        return True
    if "writeback" not in given or ctx.code(given["writeback"]) != "False":
        return False
    inner = [node for node in ctx.inside(block.body) if isinstance(node, cst.BaseSmallStatement)]
    looking = [node for node in inner if not _leaves(node)]
    return bool(looking) and all(is_on_one_rank(node, ctx) for node in looking)


def _leaves(statement: cst.BaseSmallStatement) -> bool:
    """A bare `return`, `continue` or `pass`, by which the other ranks go on."""
    is_bare = isinstance(statement, cst.Return) and statement.value is None
    return is_bare or isinstance(statement, (cst.Continue, cst.Pass))


def is_usual(name: str, value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether an argument says what `summon_full_params` does without."""
    return {"writeback": "True", **_NEEDLESS}.get(name) == ctx.code(value)


def _is_quiet(call: cst.Call, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether a call neither runs the model nor loads into it: of a tensor, a walk, or of functions that do no more."""
    if _is_harmless(call, ctx) or is_attribute(call.func, *_WALKS, *_RESETS) or _loads_engine(call, ctx):
        return True
    if _is_averaged(call, ctx):
        return True
    if is_attribute(call.func, "apply") and len(call.args) == 1:
        given = [(origin.file, origin.node) for origin in ctx.origins(call.args[0].value)]
        return bool(given) and all(_is_quiet_function(where, each, depth) for where, each in given)
    runs = ctx.runs(call) or _methods_asked_for(call, ctx)
    return bool(runs) and all(_is_quiet_function(where, each, depth) for where, each in runs)


def _is_averaged(call: cst.Call, ctx: Context) -> bool:
    """`average.update_parameters(model)` of torch's AveragedModel, which walks over the parameters of both."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "update_parameters":
        return False
    made = [(each.file, each.node) for each in ctx.origins(call.func.value)]
    return bool(made) and all(
        isinstance(node, cst.Call) and (where.dotted(node.func) or "").endswith("swa_utils.AveragedModel")
        for where, node in made
    )


def _loads_engine(call: cst.Call, ctx: Context) -> bool:
    """`llm.llm_engine.model_executor.….model.load_weights(state.items())` and what goes with it."""
    if not is_attribute(call.func, *_ENGINES) or not isinstance(call.func, cst.Attribute):
        return False
    return ModelKind.FSDP not in ctx.kinds(call.func.value) and not ctx.runs(call)


def _methods_asked_for(call: cst.Call, ctx: Context) -> list[tuple[Context, cst.FunctionDef]]:
    """`merge` of `m.merge()` under `if isinstance(m, LoRALinear):`, for a class of the program's own."""
    if not isinstance(call.func, cst.Attribute):
        return []
    owner, name = ctx.code(call.func.value), call.func.attr.value
    tests = [test for each in ifs_around(ctx, call) if (test := class_test(each.test, ctx)) is not None]
    classes = [origin for asked, kind in tests if ctx.code(asked) == owner for origin in ctx.origins(kind)]
    found = [
        (origin.file, each)
        for origin in classes
        for each in (origin.node.body.body if isinstance(origin.node, cst.ClassDef) else ())
        if isinstance(each, cst.FunctionDef) and each.name.value == name
    ]
    return found if len(found) == len(classes) else []


def _is_quiet_function(ctx: Context, function: cst.CSTNode | None, depth: int) -> bool:
    if not isinstance(function, (cst.FunctionDef, cst.Lambda)) or not depth:
        return False
    inner = list(ctx.inside(function.body))
    is_plain = not any(isinstance(node, (cst.Yield, cst.Await)) for node in inner)
    return is_plain and all(_is_quiet(node, ctx, depth - 1) for node in inner if isinstance(node, cst.Call))


def _is_true(value: cst.BaseExpression | None, ctx: Context) -> bool:
    return value is not None and ctx.code(value) == "True"


def _summons_as_always(
    call: cst.BaseExpression,
    ctx: Context,
    is_offloaded: bool = False,
    has_grads: bool = False,
    is_whole: bool = False,
) -> bool:
    """Whole parameters on every rank, where they are, or on the CPU; `writeback` is the body's affair.

    `is_whole` says that parameters are named one by one: those of other units than the root need not be whole.
    """
    if not isinstance(call, cst.Call) or not summons(call, ctx) or not gives_model_first(call):
        return False
    given = _given(call)
    count = len(given)
    if is_offloaded:
        del given["offload_to_cpu"]
    if has_grads:
        del given["with_grads"]
    if is_whole and "recurse" in given:
        del given["recurse"]
    return (
        isinstance(call.args[0].value, (cst.Name, cst.Attribute))
        and count == len(call.args) - 1
        and all(name == "writeback" or _NEEDLESS.get(name) == ctx.code(value) for name, value in given.items())
    )


def gives_model_first(call: cst.Call) -> bool:
    """`summon_full_params(model, …)`, and `summon_full_params(module=model, …)`."""
    first = next(iter(call.args), None)
    return first is not None and not first.star and (first.keyword is None or first.keyword.value == _MODULE)


def _given(call: cst.Call) -> dict[str, cst.BaseExpression]:
    named = {each.keyword.value: each.value for each in call.args if each.keyword is not None}
    return {name: value for name, value in named.items() if name != _MODULE}


def _takes_writes(call: cst.BaseExpression, ctx: Context) -> bool:
    """Whether what is written is kept, and used in the next forward; FSDP1 did not, behind an evaluation."""
    call = cst.ensure_type(call, cst.Call)
    given = _given(call)
    is_kept = "writeback" not in given or ctx.code(given["writeback"]) == "True"
    return is_kept and not reads_after_forward(call, call.args[0].value, ctx)


def _is_part_of_name(node: cst.CSTNode, names: set[str], ctx: Context) -> bool:
    """Whether it is the model in `model.module`, which is looked at as a whole, or the name of an attribute."""
    holder = ctx.parent(node)
    return isinstance(holder, cst.Attribute) and (holder.attr is node or ctx.code(holder) in names)


def _is_harmless(call: cst.CSTNode, ctx: Context) -> bool:
    """Whether a call is of a tensor, a container or a function of torch: none of those looks for the model itself.

    Nor does a load into another model, `twin.load_state_dict(model.state_dict())`.
    """
    function = cst.ensure_type(call, cst.Call).func
    if isinstance(function, cst.Name) and function.value in QUIET_FUNCTIONS:
        return True
    if (ctx.dotted(function) or "").startswith(("torch.", "collections.OrderedDict")):
        return True
    known = READS | COPIES | ASKS | IN_PLACE | ON_CONTAINERS | ON_TEXTS | {*_LOOPS, "state_dict"}
    if isinstance(function, cst.Attribute) and function.attr.value in known:
        return True
    if is_attribute(function, "load_state_dict"):
        other = cst.ensure_type(function, cst.Attribute).value
        return ModelKind.UNKNOWN not in ctx.kinds(other) and wrapped_around(other, ctx) is None
    runs = ctx.runs(cst.ensure_type(call, cst.Call))
    return bool(runs) and all(_deals_in_texts(where, each) for where, each in runs)


def _deals_in_texts(ctx: Context, function: cst.FunctionDef) -> bool:
    """Whether all that a function does is to ask its arguments for other texts: `name.replace("a.", "")`."""
    own = {each.name.value for each in function.params.params} - {"self", "cls"}
    inner = list(ctx.inside(function.body))
    if any(isinstance(node, (cst.Yield, cst.Await, cst.Subscript)) for node in inner):
        return False
    named = (node for node in inner if isinstance(node, cst.Attribute))
    return all(node.attr.value in ON_TEXTS and _is_of(node.value, own) for node in named) and all(
        isinstance(node.func, cst.Attribute) for node in inner if isinstance(node, cst.Call)
    )


def _is_of(value: cst.BaseExpression, names: set[str]) -> bool:
    """`name`, and what its own methods give."""
    while isinstance(value, (cst.Attribute, cst.Call)):
        value = value.value if isinstance(value, cst.Attribute) else value.func
    return isinstance(value, cst.Name) and value.value in names


def _is_followed(model: cst.CSTNode, block: cst.With, found: Body, ctx: Context) -> bool:
    holder = ctx.parent(model)
    if not isinstance(holder, cst.Attribute) or holder.value is not model:
        return False
    call = ctx.parent(holder)
    if not isinstance(call, cst.Call) or call.func is not holder:
        return _is_read_by_torch(holder, block, found, ctx)
    if call in found.loads and not _is_chosen(call, block, ctx):
        named = {argument.keyword.value for argument in call.args if argument.keyword is not None}
        return ModelKind.FSDP in ctx.kinds(holder.value) and named <= {"state_dict", "strict"}
    if call.args or _is_chosen(call, block, ctx):
        return False
    if holder.attr.value == "state_dict":
        return ModelKind.FSDP in ctx.kinds(holder.value) and not found.is_offloaded
    follow = {"parameters": updated_alike, "named_parameters": updated_by_name}.get(holder.attr.value)
    changed = follow(call, found.models, ctx) if follow is not None else None
    if changed is not None and not found.is_offloaded:
        found.alike.append(changed)
        return True
    loop = ctx.parent(call)
    return holder.attr.value in _LOOPS and _is_seen_loop(loop, call, holder.attr.value, block, found, ctx)


def _is_chosen(node: cst.CSTNode, block: cst.With, ctx: Context, same: str = "") -> bool:
    """Whether some ranks may not come to a place in the block, at which all have to meet.

    `same` is the text of a test that all answer alike.
    """
    choices = (each for each in ctx.ancestors(node) if isinstance(each, _CHOICES) and contains(ctx, block, each))
    return any(not (isinstance(each, cst.If) and ctx.code(each.test) == same) for each in choices)


def _is_read_by_torch(value: cst.Attribute, block: cst.With, found: Body, ctx: Context) -> bool:
    """`torch.testing.assert_close(model.weight, …)`: what it is given is a tensor. `model.weight.shape` is not read."""
    if value.attr.value in FACTS:
        return True
    while isinstance(outer := ctx.parent(value), cst.Attribute):
        value = outer
        if value.attr.value in FACTS | ASKS:
            return True
    if isinstance(outer, cst.Call) and outer.func is value:
        owner = value.value
        while isinstance(owner, cst.Attribute) and owner.attr.value in _SAME_ELEMENTS:
            owner = owner.value
        return last_name(owner) in _PARAMETERS and _is_seen_use(owner, block, found, ctx)
    call = ctx.parent(outer) if isinstance(outer, cst.Arg) else None
    if not isinstance(call, cst.Call) or _is_chosen(call, block, ctx):
        return False
    function = ctx.dotted(call.func) or ""
    if not function.startswith("torch.") or function.endswith("_"):
        return False
    found.reads.append(value)
    found.to_cpu.add(value)
    return True


def _is_seen_loop(
    loop: cst.CSTNode | None, call: cst.Call, method: str, block: cst.With, found: Body, ctx: Context
) -> bool:
    """`for name, p in model.named_parameters():`, in a statement or a comprehension, and all that is done with `p`."""
    if not isinstance(loop, (cst.For, cst.CompFor)) or loop.iter is not call:
        return False
    target: cst.BaseExpression = loop.target
    if method == "named_parameters":
        if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
            return False
        target = target.elements[1].value
    around = loop if isinstance(loop, cst.For) else ctx.parent(loop)
    if not isinstance(target, cst.Name) or around is None:
        return False
    places = ctx.inside(block.body if isinstance(loop, cst.For) else around)  # a comprehension has names of its own
    uses = [n for n in places if isinstance(n, cst.Name) and n.value == target.value and n is not target]
    uses = [use for use in uses if not is_label(use, ctx)]
    if not all(contains(ctx, around, use) for use in uses):
        return False
    before = [*found.reads], [*found.writes], {*found.to_cpu}
    if all(_is_seen_use(use, block, found, ctx) for use in uses):
        return True
    found.reads, found.writes, found.to_cpu = before
    return isinstance(loop, cst.For) and _is_gathered_first(loop, target, uses, block, found, ctx)


def _is_gathered_first(
    loop: cst.For, target: cst.Name, uses: Sequence[cst.Name], block: cst.With, found: Body, ctx: Context
) -> bool:
    """Whether all is seen where each parameter is gathered at the top of the loop: then all ranks meet there."""
    known = len(found.writes)
    inner = list(ctx.inside(loop.body))
    leaves = any(isinstance(node, (cst.Break, cst.Return, cst.Yield)) for node in inner)
    if leaves or not isinstance(loop.body, cst.IndentedBlock):
        return False
    if not all(_is_seen_use(use, block, found, ctx, is_gathered=True) for use in uses):
        return False
    reads = {each for each in found.reads if each in uses}
    for call, _, _ in found.writes[known:]:
        again = [outer for outer in ctx.ancestors(call) if isinstance(outer, (cst.For, cst.While)) and outer in inner]
        if again or any(ctx.span(each)[0] > ctx.span(call)[1] for each in reads):
            return False  # what is read behind a write is what was written
    found.gathered[loop] = target, reads
    return True


def _is_seen_use(
    use: cst.BaseExpression, block: cst.With, found: Body, ctx: Context, is_gathered: bool = False
) -> bool:
    """Whether all that is done with a parameter, or with its gradient, is seen."""
    chain = list(_chain(use, ctx))
    if found.has_grads and chain and is_attribute(chain[0], "grad"):
        return _is_seen_gradient(cst.ensure_type(chain[0], cst.Attribute), block, found, ctx)
    names = [link.attr.value for link in chain if isinstance(link, cst.Attribute)]
    if names and names[0] in FACTS | ASKS:
        return not found.is_offloaded or names[0] != "device" or _is_copied(use, ctx)
    top = chain[-1] if chain else use
    if [name for name in names if name != "data"] == ["copy_"] and isinstance(top, cst.Call) and len(top.args) == 1:
        is_alone = isinstance(ctx.parent(top), cst.Expr) and enclosing(ctx, top, cst.With) is not None
        found.writes.append((top, use, top.args[0].value))
        return is_alone
    if _is_changed_by_element(top, names, ctx):
        found.changes.append(cst.ensure_type(top, cst.Call))
        return True
    if not {*names} <= READS | COPIES | {"data"} or (not is_gathered and _is_chosen(use, block, ctx)):
        return False
    found.reads.append(use)
    if "cpu" not in names or not _SAME_THERE.issuperset(names[: names.index("cpu")]):
        found.to_cpu.add(use)
    return bool(COPIES & {*names}) or _is_only_looked_at(top, ctx)


def _is_seen_gradient(grad: cst.Attribute, block: cst.With, found: Body, ctx: Context) -> bool:
    """The same of a gradient, which every rank has or none; it is no parameter that an evaluation leaves elsewhere."""
    if _asks_whether_there(grad, ctx):
        return True
    chain = list(_chain(grad, ctx))
    names = [link.attr.value for link in chain if isinstance(link, cst.Attribute)]
    if names and names[0] in FACTS | ASKS:
        return True
    if found.is_offloaded or not {*names} <= READS | COPIES | {"data"}:
        return False
    asked = f"{ctx.code(grad)} is not None"
    if _is_chosen(grad, block, ctx, asked):
        return False
    found.reads.append(grad)
    return bool(COPIES & {*names}) or _is_only_looked_at(chain[-1] if chain else grad, ctx)


def _asks_whether_there(grad: cst.CSTNode, ctx: Context) -> bool:
    """`p.grad is not None`."""
    test = ctx.parent(grad)
    return isinstance(test, cst.Comparison) and test.left is grad and ctx.code(test.comparisons[0].comparator) == "None"


def _is_changed_by_element(call: cst.CSTNode, names: Sequence[str], ctx: Context) -> bool:
    """`p.data.mul_(0.5)`, a statement of its own."""
    methods = [name for name in names if name not in {"data", "detach"}]
    if len(methods) != 1 or methods[0] not in ELEMENT_BY_ELEMENT or not isinstance(call, cst.Call):
        return False
    calls = [call, *(node for node in ctx.inside(call.func) if isinstance(node, cst.Call))]
    is_alone = isinstance(ctx.parent(call), cst.Expr) and isinstance(call.func, cst.Attribute)
    return is_alone and all(_is_number(argument.value, ctx) for each in calls for argument in each.args)


def _is_number(value: cst.BaseExpression, ctx: Context) -> bool:
    if isinstance(value, cst.UnaryOperation):
        return _is_number(value.expression, ctx)
    if isinstance(value, cst.BinaryOperation):
        return _is_number(value.left, ctx) and _is_number(value.right, ctx)
    if isinstance(value, cst.Name):
        return all(isinstance(origin.node, cst.BaseNumber) for origin in ctx.origins(value))
    return isinstance(value, cst.BaseNumber)


def _is_copied(use: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it stands in what is copied into a parameter: then it is no matter where that lies."""
    calls = (outer for outer in ctx.ancestors(use) if isinstance(outer, cst.Call))
    return any(isinstance(call.func, cst.Attribute) and call.func.attr.value == "copy_" for call in calls)


def _chain(node: cst.CSTNode, ctx: Context) -> Iterator[cst.CSTNode]:
    """`p.data`, `p.data.clone`, `p.data.clone()` around `p`."""
    outer = ctx.parent(node)
    while (isinstance(outer, (cst.Attribute, cst.Subscript)) and outer.value is node) or (
        isinstance(outer, cst.Call) and outer.func is node
    ):
        yield outer
        node, outer = outer, ctx.parent(outer)


def _is_only_looked_at(value: cst.CSTNode, ctx: Context) -> bool:
    """Whether an expression goes into a calculation, a comparison, a function of torch or a tensor's own method."""
    holder = ctx.parent(value)
    if isinstance(holder, (cst.BinaryOperation, cst.Comparison, cst.ComparisonTarget)):
        return True
    if isinstance(holder, (cst.GeneratorExp, cst.ListComp)) and holder.elt is value:
        total = call_given(holder, ctx)
        return total is not None and isinstance(total.func, cst.Name) and total.func.value in _SUMS
    call = call_given(value, ctx)
    if call is None:
        return False
    function = ctx.dotted(call.func) or ""
    if function.startswith("torch."):
        return not function.endswith("_")
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in IN_PLACE
