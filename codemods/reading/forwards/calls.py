"""What runs a model, in one call, and whether a backward can follow."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.shapes import is_attribute, parameter_names
from codemods.reading.code.words import is_name, last_name, words
from codemods.reading.models.class_layout import inits
from codemods.reading.models.freezes import is_frozen_here

# Methods of a model that do not run it.
QUIET = frozenset({"parameters", "named_parameters", "modules", "named_modules", "named_buffers", "buffers"})
QUIET |= {"children", "named_children", "train", "eval", "requires_grad_", "zero_grad", "no_sync", "clip_grad_norm_"}
QUIET |= {"state_dict", "load_state_dict", "compile", "dynamo_ctx", "apply"}
QUIET |= {"to", "to_empty", "cuda", "cpu", "float", "half", "bfloat16", "double"}
QUIET |= {"get_submodule", "get_parameter", "get_buffer", "register_buffer", "register_comm_hook"}
QUIET |= {"register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"}
QUIET |= {"add_module", "register_module", "register_parameter", "set_submodule", "share_memory", "type"}
# The same of transformers and peft.
QUIET |= {"gradient_checkpointing_enable", "gradient_checkpointing_disable", "enable_input_require_grads"}
QUIET |= {"resize_token_embeddings", "tie_weights", "post_init", "get_input_embeddings", "get_output_embeddings"}
QUIET |= {"print_trainable_parameters", "init_weights", "reset_parameters", "num_parameters", "get_num_params"}
QUIET |= {"save_pretrained", "push_to_hub", "merge_adapter", "unmerge_adapter", "set_adapter", "add_adapter"}
_RUNS = ("eval", "valid", "test", "generate", "sample", "infer", "predict", "forward")
_NO_GRAD = ("no_grad", "inference_mode")
_SWITCH = "set_grad_enabled"
GRAD_MODES = (*_NO_GRAD, _SWITCH)
"""Words of a program that runs some of its forwards without gradients."""


def model_of_forward(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """The wrapped model of `model(x)`, `nets["model"](x)` and `model.generate(x)`."""
    function = call.func
    if not isinstance(function, (cst.Name, cst.Attribute, cst.Subscript)) or is_attribute(function, *QUIET):
        return None
    if ModelKind.FSDP in ctx.kinds(function):
        return function
    if not isinstance(function, cst.Attribute) or ctx.dotted(function) is not None:
        return None
    return function.value if ModelKind.FSDP in ctx.kinds(function.value) else None


def runs(call: cst.Call, model: str, ctx: Context) -> bool:
    """`model(x)`, `model.generate(x)`, `evaluate(model)`, `self.evaluate()` for `self.model`."""
    function = ctx.code(call.func)
    if function == model:
        return True
    if isinstance(call.func, cst.Attribute) and ctx.code(call.func.value) == model:
        return call.func.attr.value not in QUIET
    is_method = isinstance(call.func, cst.Attribute) and model.startswith(f"{ctx.code(call.func.value)}.")
    given = [argument for argument in call.args if ctx.code(argument.value) == model]
    if given and any(isinstance(origin.node, cst.ClassDef) for origin in ctx.origins(call.func)):
        return any(_calls(init, given, call, where) for where, init in inits(ctx, call))
    if (given or is_method) and any(word in last_name(call.func).lower() for word in _RUNS):
        return True
    if given:
        return any(_calls(definition, given, call, where) for where, definition in ctx.runs(call))
    is_function = model.isidentifier() and isinstance(call.func, cst.Name)
    return is_function and any(where is ctx and _calls_own(f, model, ctx) for where, f in ctx.runs(call))


def _calls_own(function: cst.FunctionDef, model: str, ctx: Context) -> bool:
    """Whether a function calls a model of the file, or of the function around, and does not go backward itself."""
    calls = [node for node in ctx.inside(function.body) if isinstance(node, cst.Call)]
    if model in own_names(function, ctx) or any(is_backward(call) for call in calls):
        return False
    return any(isinstance(call.func, cst.Name) and call.func.value == model for call in calls)


def own_names(function: cst.FunctionDef, ctx: Context) -> set[str]:
    """What a function calls its parameters, and what it binds."""
    targets = (node.target for node in ctx.inside(function.body) if isinstance(node, cst.AssignTarget))
    return {*parameter_names(function), *map(ctx.code, targets)}


def given_names(function: cst.FunctionDef) -> list[str]:
    """The parameters that a call gives, by their order."""
    return [name for name in parameter_names(function) if name != "self"]


def _calls(function: cst.FunctionDef, given: list[cst.Arg], call: cst.Call, ctx: Context) -> bool:
    """Whether a function of the program calls the model that it is given, and does not go backward itself."""
    params = given_names(function)
    if len(params) < len(call.args):
        return False
    names = [a.keyword.value if a.keyword is not None else params[call.args.index(a)] for a in given]
    calls = [node for node in ctx.inside(function.body) if isinstance(node, cst.Call)]
    is_run = any(isinstance(each.func, cst.Name) and each.func.value in names for each in calls)
    return is_run and not any(is_backward(each) for each in calls)


def evaluates(call: cst.Call, model: str, ctx: Context) -> bool:
    """A run of the model; `model(x)` itself only where it is seen that no backward follows."""
    if ctx.code(call.func) != model:
        return runs(call, model, ctx)
    return is_without_backward(call, ctx)


def is_without_backward(call: cst.Call, ctx: Context) -> bool:
    """Whether no backward can follow a run: under `no_grad`, or `model(x).detach()`."""
    return is_attribute(ctx.parent(call), "detach") or may_be_without_grad(call, ctx)


def may_train(call: cst.Call, ctx: Context) -> bool:
    """Whether a backward can follow what a call runs: `targets(x)` may run a model under `no_grad`."""
    ran = [(where, each) for where, function in ctx.runs(call) for each in where.calls(function)]
    forwards = [(where, each) for where, each in ran if model_of_forward(each, where) is not None]
    is_quiet = bool(forwards) and all(is_without_backward(each, where) for where, each in forwards)
    return not is_quiet and not may_be_without_grad(call, ctx)


def is_without_grad(around: Iterable[cst.CSTNode], ctx: Context) -> bool:
    """Whether one of these nodes is a block or a function under `no_grad` or `inference_mode`."""
    heads = [getattr(node, "items", ()) or getattr(node, "decorators", ()) for node in around]
    return any(_stops_grad(node) for head in heads for each in head for node in ctx.inside(each))


def may_be_without_grad(node: cst.CSTNode, ctx: Context) -> bool:
    """The same of a node, also where a switch chooses, `set_grad_enabled(is_training)`, below it as a statement, and
    where a frozen model runs, `teacher(x)`.
    """
    around = list(ctx.ancestors(node))
    if is_without_grad(around, ctx):
        return True
    is_frozen = isinstance(node, cst.Call) and is_frozen_here(ctx.code(node.func), ctx)
    if is_frozen and not any(isinstance(outer, cst.Call) and is_backward(outer) for outer in around):
        return True
    if not ctx.mentions(_SWITCH):
        return False
    entered = [item.item for outer in around if isinstance(outer, cst.With) for item in outer.items]
    said = [each for each in ctx.calls(ctx.scope(node)) if isinstance(ctx.parent(each), cst.Expr)]
    above = [each for each in said if _switches(each) and ctx.span(each)[1] <= ctx.span(node)[0]]
    return any(_may_switch_off(each) for each in (*entered, *above[-1:]))


def _may_switch_off(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and _switches(node) and not any(is_name(a.value, "True") for a in node.args)


def _switches(call: cst.Call) -> bool:
    return last_name(call.func) == _SWITCH


def _stops_grad(node: cst.CSTNode) -> bool:
    """`no_grad` by a name of whoever's: `torch.no_grad`, `maybe_no_grad`, `torch.set_grad_enabled(False)`."""
    if isinstance(node, cst.Call) and _switches(node):
        return any(is_name(argument.value, "False") for argument in node.args)
    return isinstance(node, cst.Name) and any(word in node.value for word in _NO_GRAD)


def is_backward(call: cst.Call) -> bool:
    """`loss.backward()`, `manual_backward(loss)`, `backward_step(loss)`."""
    said = words(last_name(call.func))
    return "backward" in said and "hook" not in said


def is_reshard(call: cst.Call) -> bool:
    name = last_name(call.func)
    return name.startswith("reshard") and not name.startswith("reshard_after")


def frees(call: cst.Call, ctx: Context, model: str) -> bool:
    """Whether no copies of a model's parameters are left behind a call."""
    return is_backward(call) or is_reshard(call) or makes(call, model, ctx)


def makes(call: cst.Call, model: str, ctx: Context) -> bool:
    """Whether the model gets its value by a call: what ran before was not sharded yet."""
    if ctx.dotted(call.func) == "torch.compile" or ctx.code(call.func).startswith(f"{model}."):
        return False  # the same model
    assignment = ctx.parent(call)
    return isinstance(assignment, cst.Assign) and any(ctx.code(each.target) == model for each in assignment.targets)
