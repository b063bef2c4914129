"""What the body of a `state_dict_type` context calls, and what of it could read a state dict in turn."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from codemods.api import Context, Edit, ModelKind, NotStatic
from codemods.reading.code.enclosing import contains
from codemods.reading.code.words import last_name, words
from codemods.reading.optimizers.calls import function_of
from codemods.reading.state_dicts.setting import depends_on_setting

from .calls import PREFIX

_ASKING = frozenset({"hasattr", "id", "isinstance", "len", "type"})
"""Builtins that look at a model, and not into its state dict."""

_HOLDERS = frozenset({"accelerator", "checkpointer", "engine", "fabric", "saver", "strategy", "trainer"})
"""What is named like this knows the model."""

_SPEAKS = frozenset({"barrier", "debug", "info", "log", "print", "rank", "warning"})
"""Words of methods that have nothing to do with a model."""

_LOADS = frozenset({"load", "restore", "resume"})
"""Words of functions that read a checkpoint."""

_DEPTH = 6
"""How many functions are followed that a body calls."""


def calls_in(node: cst.CSTNode) -> Iterator[cst.Call]:
    if isinstance(node, cst.Call):
        yield node
    for child in node.children:
        yield from calls_in(child)


def check_own(block: cst.With, ctx: Context, gathered: cst.BaseExpression | None = None) -> None:
    """Raises NotStatic where functions of the program that the body runs read state dicts themselves.

    `gathered` is a model that the context wants whole: so do its class's own methods without a context.
    """
    own = _functions_of(block, ctx)
    for call in calls_in(block.body):
        if gathered is not None and is_state_of(call, gathered, ctx, ("state_dict", "load_state_dict")):
            continue
        if reads_below(call, ctx, own):
            raise NotStatic(f"its body calls `{ctx.code(call.func)}`, which deals in state dicts itself")


def is_state_of(
    call: cst.Call, model: cst.BaseExpression, ctx: Context, methods: Collection[str] = ("state_dict",)
) -> bool:
    """`model.state_dict()`."""
    func = call.func
    return isinstance(func, cst.Attribute) and func.attr.value in methods and ctx.code(func.value) == ctx.code(model)


def reads_below(call: cst.Call, ctx: Context, known: Collection[cst.CSTNode] = ()) -> bool:
    """Whether a function that a call runs, or one that this runs in turn, depends on the kind that is set."""
    seen = set(known)
    queue = [(ctx, call, _DEPTH)]
    for where, each, depth in queue:  # grows
        for file, function in where.runs(each):
            if function in seen:
                continue
            seen.add(function)
            inner = list(calls_in(function.body))
            if any(_asks_for_setting(one, file) for one in inner):
                return True
            queue += [(file, one, depth - 1) for one in inner if depth > 1]
    return False


def _asks_for_setting(call: cst.Call, ctx: Context) -> bool:
    """Whether it does not say itself of which kind a state dict is: what is loaded into an optimizer can be seen."""
    return depends_on_setting(call, ctx) and function_of(call, ctx) != "optim_state_dict_to_load"


def handed_on(block: cst.With, model: cst.BaseExpression, edits: Collection[Edit], ctx: Context) -> list[cst.Call]:
    """The calls of the body that hand the model to code that the program does not show, which could call
    `state_dict()`.
    """
    name, found = ctx.code(model), []
    for call in calls_in(block.body):
        start = ctx.span(call)[0]
        is_rewritten = any(edit.start <= start < edit.end for edit in edits)
        if not is_rewritten and _is_unseen(call, name, ctx):
            found.append(call)
    return found


def loads(call: cst.Call) -> bool:
    """`super().load(path)`, `accelerator.load_state(path)`: it could call `load_state_dict()` as well."""
    return not _LOADS.isdisjoint(words(last_name(call.func)))


def _is_unseen(call: cst.Call, name: str, ctx: Context, depth: int = _DEPTH) -> bool:
    if isinstance(call.func, cst.Name) and call.func.value in _ASKING:
        return False
    if (ctx.fsdp1(call.func) or "").startswith(PREFIX) or any(_is_state(argument) for argument in call.args):
        return False
    functions = ctx.runs(call) if depth else ()
    if functions:
        inner = [(where, each) for where, function in functions for each in calls_in(function.body)]
        return any(_is_unseen(each, "", where, depth - 1) for where, each in inner)
    return (
        _saves(call, name, ctx)
        or _asks_holder(call, name, ctx)
        or any(_holds(argument.value, name, ctx) for argument in call.args)
    )


def _is_state(argument: cst.Arg) -> bool:
    return argument.keyword is not None and argument.keyword.value == "state_dict"


def _saves(call: cst.Call, name: str, ctx: Context) -> bool:
    """`model.save_pretrained(path)`, `trainer.save_model()`."""
    if not isinstance(call.func, cst.Attribute) or not call.func.attr.value.startswith(("save", "push_to_hub")):
        return False
    owner = call.func.value
    if words(last_name(owner)) & _HOLDERS:
        return True
    return ctx.code(owner) == name or ModelKind.FSDP in ctx.kinds(owner)


def _asks_holder(call: cst.Call, name: str, ctx: Context) -> bool:
    """`self.write(path)` for `self.model`, and `super().save(path)`: a method that a base has which is not seen."""
    if not isinstance(call.func, cst.Attribute) or words(call.func.attr.value) & _SPEAKS:
        return False
    owner = call.func.value
    is_base = isinstance(owner, cst.Call) and ctx.code(owner.func) == "super"
    return is_base or _is_around(owner, name, ctx)


def _is_around(owner: cst.BaseExpression, name: str, ctx: Context) -> bool:
    """Whether a model is an attribute of this: `self`, of `self.model`."""
    return isinstance(owner, (cst.Name, cst.Attribute)) and name.startswith(f"{ctx.code(owner)}.")


def _holds(given: cst.BaseExpression, name: str, ctx: Context) -> bool:
    """Whether an argument is the model, or a dict or a list with the model in it."""
    if isinstance(given, (cst.Dict, cst.List, cst.Tuple, cst.Set)):
        return any(_holds(element.value, name, ctx) for element in given.elements)
    if not isinstance(given, (cst.Name, cst.Attribute)):
        return False
    made = [origin for origin in ctx.origins(given) if isinstance(origin.node, (cst.Dict, cst.List, cst.Tuple))]
    if any(_holds(origin.node, "", origin.file) for origin in made if isinstance(origin.node, cst.BaseExpression)):
        return True
    return ctx.code(given) == name or _is_around(given, name, ctx) or ModelKind.FSDP in ctx.kinds(given)


def _functions_of(block: cst.With, ctx: Context) -> list[cst.CSTNode]:
    """The functions that the body defines, where nothing behind it calls them."""
    defined = [node for node in ctx.inside(block.body) if isinstance(node, cst.FunctionDef)]
    names = {function.name.value for function in defined}
    others = [node for node in ctx.nodes(cst.Name) if node.value in names and not contains(ctx, block, node)]
    if others and any(ctx.scope(node) is ctx.scope(block) for node in others):
        raise NotStatic("a function that its body defines is used outside of it")
    return list(defined)
