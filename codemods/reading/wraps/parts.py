"""Whether a constructor call may wrap a part of a model that is wrapped as well."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.shapes import front, is_attribute, is_call_to, parameter_names

from ..code.enclosing import contains, enclosing, is_self
from ..code.places import bound
from .manual import is_constructor, is_factory
from .passed_on import calls_of_partial, mapped_over
from .wrapped import wrapped_module, wrapped_place

_EMBEDDINGS = ("get_input_embeddings", "get_output_embeddings")
"""What gives a part that holds no other one."""

_REPEATED = (cst.For, cst.While, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


def wraps_parts(ctx: Context, call: cst.Call) -> bool:
    """Whether it wraps what a model holds: in a loop, as a function that is handed on, beside others `model.head`."""
    if is_factory(ctx, call):
        is_mapped = mapped_over(ctx, call) is not None
        return is_mapped or any(_is_part(*each) for each in calls_of_partial(ctx, call))
    callers = ctx.callers(call)
    given = [
        (ctx, wrapped_module(call)),
        *(
            (where, argument.value)
            for where, each in callers
            for argument in each.args
            if _may_be_module(ctx, call, argument)
        ),
    ]
    is_one_of_several = len(callers) > 1 or ctx.wrapping.is_several(ctx.path)
    is_part = is_one_of_several and any(_is_held(where, module) for where, module in given)
    return is_part or _is_repeated(ctx, call) or _is_passed_on(ctx, call)


def is_for_parts_and_all(ctx: Context, factory: cst.Call) -> bool:
    """Whether a partial of the class is called for parts of a model, and again."""
    return len(calls_of_partial(ctx, factory)) > 1 and wraps_parts(ctx, factory)


def _is_part(ctx: Context, call: cst.Call) -> bool:
    return _is_held(ctx, wrapped_module(call)) or enclosing(ctx, call, *_REPEATED) is not None


def _may_be_module(ctx: Context, call: cst.Call, argument: cst.Arg) -> bool:
    """Whether an argument of a call of the function around is for a parameter: no setting that goes into `**kwargs`."""
    function = ctx.scope(call)
    if argument.keyword is None or not isinstance(function, cst.FunctionDef):
        return True
    return argument.keyword.value in parameter_names(function)


def root_around(ctx: Context, call: cst.Call) -> cst.Call | None:
    """The call below this one that wraps the model whose part this one wraps, and that runs wherever this one does."""
    place, here, around = f"{wrapped_place(ctx, call)}.", ctx.span(call)[0], set(ctx.ancestors(call))
    own, function = ctx.code(wrapped_module(call) or call), _function_of(ctx, call)
    for other in sorted(ctx.calls(function), key=lambda each: ctx.span(each)[0]):
        module = wrapped_module(other) if is_constructor(ctx, other) else None
        model = ctx.code(module) if module is not None else own
        if ctx.span(other)[0] <= here or model == own or not place.startswith(f"{model}."):
            continue
        line = enclosing(ctx, other, cst.SimpleStatementLine)
        is_reached = line is not None and ctx.parent(line) in around and not _leaves_between(ctx, call, other)
        return other if is_reached else None
    return _root_of_caller(ctx, call)


def _root_of_caller(ctx: Context, call: cst.Call) -> cst.Call | None:
    """The same of a function that wraps parts of a model that it is given, by one call of it besides its own."""
    name, function, module = wrapped_place(ctx, call), ctx.scope(call), wrapped_module(call)
    if name is None or not isinstance(function, cst.FunctionDef) or name not in parameter_names(function):
        return None
    if module is None or ctx.code(module) == name:
        return None  # it is the model itself
    given = [
        (where, each, value) for where, each, value in ctx.passed_to(call, name) if where.scope(each) is not function
    ]
    if len(given) != 1 or given[0][0].path != ctx.path:
        return None
    _, calling, value = given[0]
    below = [each for each in ctx.calls(ctx.scope(calling)) if ctx.span(each)[0] > ctx.span(calling)[0]]
    for other in sorted(below, key=lambda each: ctx.span(each)[0]):
        whole = wrapped_module(other) if is_constructor(ctx, other) else None
        line = enclosing(ctx, other, cst.SimpleStatementLine)
        if whole is not None and ctx.code(whole) == ctx.code(value) and line is not None:
            is_reached = ctx.parent(line) in set(ctx.ancestors(calling)) and not _leaves_between(ctx, calling, other)
            return other if is_reached else None
    return None


def are_units_apart(ctx: Context, call: cst.Call) -> bool:
    """Whether all that the program wraps are parts of one object, `self`, by paths of which none leads on to another.

    Then each of them is a root: what holds them is no FSDP model.
    """
    calls = list(ctx.wrapping.calls(ctx.path))
    if any(where is not ctx or ctx.scope(other) is not ctx.scope(call) for where, other in calls):
        return False
    paths = {_path(ctx, other) for _, other in calls if ctx.fsdp1(other.func) != "enable_wrap"}
    if not paths or not all(path.startswith("self.") for path in paths):
        return False
    return not any(one != two and f"{two}.".startswith(f"{one}.") for one in paths for two in paths)


def _path(ctx: Context, call: cst.Call) -> str:
    """`self.net.layers` for what a loop over that wraps; nothing for what is no attribute, or one of the embeddings."""
    module = wrapped_module(call)
    while isinstance(module, cst.Call) and is_constructor(ctx, module):
        module = wrapped_module(module)
    name = module.value if isinstance(module, cst.Name) else ""
    for node in ctx.ancestors(call):
        loop = node.for_in if isinstance(node, cst.BaseComp) else node
        if name and isinstance(loop, (cst.For, cst.CompFor)) and name in set(bound(loop.target)):
            module, name = loop.iter, ""
            module = module.args[0].value if is_call_to(module, "enumerate") else module
    if isinstance(module, cst.Call) and not module.args and is_attribute(module.func, *_EMBEDDINGS):
        module = module.func
    is_path = isinstance(module, cst.Attribute) and is_self(front(module), ctx)
    return ctx.code(module) if module is not None and is_path else ""


def are_given_apart(ctx: Context, call: cst.Call, where: Context, other: cst.Call) -> bool:
    """Whether one function is given two parameters, of which one is wrapped, and the other or its parts are."""
    function = ctx.scope(call)
    if not isinstance(function, cst.FunctionDef) or where.scope(other) is not function:
        return False
    places = {wrapped_place(ctx, each) or "" for each in (call, other)}
    names = {place.partition(".")[0] for place in places}
    given = set(parameter_names(function)) - {"self"}
    return len(names) == 2 and names <= given and bool(places & given)


def _function_of(ctx: Context, call: cst.Call) -> cst.CSTNode:
    """A comprehension is part of the function that it stands in."""
    return enclosing(ctx, call, cst.FunctionDef, cst.ClassDef, cst.Lambda) or ctx.top


def _leaves_between(ctx: Context, call: cst.Call, other: cst.Call) -> bool:
    """Whether what runs the first of two calls may go past the second."""
    first, last = ctx.span(call)[0], ctx.span(other)[0]
    for node in ctx.inside(_function_of(ctx, call)):
        if isinstance(node, (cst.Return, cst.Break, cst.Continue)) and first < ctx.span(node)[0] < last:
            loop = None if isinstance(node, cst.Return) else enclosing(ctx, node, cst.For, cst.While)
            if not contains(ctx, node, other) and (loop is None or contains(ctx, loop, other)):
                return True
    return False


def _is_held(ctx: Context, module: cst.BaseExpression | None) -> bool:
    if not isinstance(module, (cst.Attribute, cst.Subscript)):
        return False
    owner = enclosing(ctx, module, cst.ClassDef) if is_self(module.value, ctx) else None
    methods = owner.body.body if owner is not None else ()
    is_trainers = owner is not None and not any(
        isinstance(each, cst.FunctionDef) and each.name.value == "forward" for each in methods
    )
    return not is_trainers


def is_called_again(ctx: Context, call: cst.Call) -> bool:
    """Whether the program calls the function of a call several times, or in a loop."""
    calls = [each for where, each in ctx.callers(call) if where.dotted(each.func) != "functools.partial"]
    return len(calls) > 1 or _is_repeated(ctx, call)


def _is_repeated(ctx: Context, call: cst.Call) -> bool:
    """Whether the call, or one of its function, stands in a loop."""
    calls = [(ctx, call), *ctx.callers(call)]
    return any(enclosing(where, each, *_REPEATED) is not None for where, each in calls)


def _is_passed_on(ctx: Context, call: cst.Call) -> bool:
    """Whether something else calls the function of the call: it is given to it as a value.

    What a script is started with, `fire.Fire(main)`, calls it once.
    """
    function = enclosing(ctx, call, cst.FunctionDef, cst.Lambda)
    if not isinstance(function, cst.FunctionDef):
        return function is not None
    if not ctx.wrapping.is_several(ctx.path) and _keeps_its_own(ctx, function, call):
        return False  # whoever calls it again has nothing of what was wrapped before
    names = ctx.references_to(function)
    return any(isinstance(where.parent(name), cst.Arg) and not _is_start(where, name) for where, name in names)


def _keeps_its_own(ctx: Context, function: cst.FunctionDef, call: cst.Call) -> bool:
    """Whether a function makes the model that it wraps, and gives nothing back: `mp.spawn(worker, nprocs=8)`."""
    module, inside = wrapped_module(call), ctx.inside(function)
    made = ctx.origins(module) if module is not None else ()
    is_given = any(isinstance(node, cst.Yield) or (isinstance(node, cst.Return) and node.value) for node in inside)
    return bool(made) and not is_given and all(isinstance(o.node, cst.Call) and o.node in inside for o in made)


def _is_start(ctx: Context, name: cst.CSTNode) -> bool:
    """Whether it stands under `if __name__ == "__main__"`."""
    branch = enclosing(ctx, name, cst.If, cst.FunctionDef)
    test = branch.test if isinstance(branch, cst.If) else None
    return isinstance(test, cst.Comparison) and isinstance(test.left, cst.Name) and test.left.value == "__name__"
