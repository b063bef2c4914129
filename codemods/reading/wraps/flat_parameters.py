"""Whether FSDP1 kept one flat parameter for a unit, as it did without `use_orig_params=True`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.wraps.manual import arguments, is_constructor


def may_have_had_flat_parameters(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a constructor call that a model is seen to come from made flat parameters, or could: it says nothing, or
    `use_orig_params=args.use_orig_params`. In `**arguments` only a program that says it somewhere can say True."""
    return any(
        not _keeps_parameters(where, call)
        and not (any(each.star for each in arguments(where, call)) and _is_said_elsewhere(where))
        for where, call in constructor_calls(model, ctx)
    )


def _is_said_elsewhere(ctx: Context) -> bool:
    """Whether the program has the word for anything else than `use_orig_params=False`, or the same in a dict."""
    for where in ctx.files("use_orig_params"):
        words = [node for node in where.nodes(cst.Name) if node.value == "use_orig_params"]
        texts = [node for node in where.nodes(cst.SimpleString) if node.evaluated_value == "use_orig_params"]
        for holder in map(where.parent, (*words, *texts)):
            if not isinstance(holder, (cst.Arg, cst.DictElement)) or where.code(holder.value) != "False":
                return True
    return False


def constructor_calls(model: cst.BaseExpression, ctx: Context) -> list[tuple[Context, cst.Call]]:
    """The constructor calls that a model is seen to come from."""
    made = [(o.file, o.node) for o in ctx.origins(model) if isinstance(o.node, cst.Call)]
    return [(where, call) for where, call in made if is_constructor(where, call)]


def makes_flat_parameters(ctx: Context, call: cst.Call) -> bool:
    """Whether a constructor call is seen not to say `use_orig_params=True`."""
    passed = arguments(ctx, call)
    if any(argument.star for argument in passed):
        return False
    given = [a.value for a in passed if a.keyword is not None and a.keyword.value == "use_orig_params"]
    return all(o.node is not None and o.file.code(o.node) == "False" for value in given for o in ctx.origins(value))


def had_original_parameters(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether each constructor call that a model is seen to come from says `use_orig_params=True`."""
    calls = constructor_calls(model, ctx)
    return bool(calls) and all(_keeps_parameters(where, call) for where, call in calls)


def _keeps_parameters(ctx: Context, call: cst.Call) -> bool:
    given = [a.value for a in arguments(ctx, call) if a.keyword is not None and a.keyword.value == "use_orig_params"]
    made = [origin for value in given for origin in ctx.origins(value)]
    return bool(made) and all(o.node is not None and o.file.code(o.node) == "True" for o in made)
