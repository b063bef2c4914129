"""From a constructor call to a draft: each argument is handed to the function that knows it."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, NotStatic
from codemods.reading.code.enclosing import contains, enclosing, names_around
from codemods.reading.code.words import is_name
from codemods.reading.values.defaults import is_never_given_more, is_rest_of, star_of_one
from codemods.reading.wraps.chosen_class import chosen_class, takes_alone
from codemods.reading.wraps.manual import arguments as passed_arguments
from codemods.reading.wraps.manual import class_given, factory_inside, is_made_each_time, is_only_given_on

from .draft import Draft, Entry, Note, Switch
from .given import NotFSDP1, read_arguments
from .kwargs.one_dict import gather_arguments
from .kwargs.open_dict import refuse_others
from .kwargs.spread import Spread
from .other_classes import leave_to_others
from .places.as_function import (
    given_later,
    in_expression,
    is_called_plainly,
    is_partial,
    is_statement,
    reads_later,
    refuse_bound_below,
    statement_making,
)
from .settings.unpassed import put_defaults
from .translate import translate

_SETTINGS = frozenset({"cpu_offload", "mixed_precision"})
_REST = (
    "`**{rest}`, by which no call of the program passes anything, goes to fully_shard: FSDP1's arguments raise there"
)


def draft(
    ctx: Context,
    call: cst.Call,
    model: str | None = None,
    asked: frozenset[cst.CSTNode] = frozenset(),
    left: frozenset[cst.CSTNode] = frozenset(),
    for_others: bool = False,
) -> Draft:
    """Translate a constructor call; `model` names the module when the text of the argument cannot be repeated.

    `asked` are policies that become functions of a module, `left` are values that stay what they are, `for_others` is
    a draft's. Raises NotStatic, with the value that stands in the way, when the idiomatic form cannot be proved right.
    """
    given = read_arguments(ctx, call).values.values()
    if any(isinstance(value, Entry) for value in given):
        try:
            return _drafted(ctx, call, model, asked, left, for_others, goes_on=True)
        except NotFSDP1:
            raise
        except NotStatic:
            pass  # something needs the dict as it is
    try:
        return _drafted(ctx, call, model, asked, left, for_others)
    except NotFSDP1:
        raise
    except NotStatic:
        if not any(isinstance(value, Switch) for value in given):
            raise
        try:  # what a condition puts into a dict is there at the call
            return _drafted(ctx, call, model, asked, left, for_others, at_run_time=True)
        except NotStatic:
            pass
        raise


_MODELS = ("module", "model", "net", "sharded_model")
"""What a parameter of the model is called."""


def _drafted(
    ctx: Context,
    call: cst.Call,
    model: str | None,
    asked: frozenset[cst.CSTNode],
    left: frozenset[cst.CSTNode],
    for_others: bool,
    goes_on: bool = False,
    at_run_time: bool = False,
) -> Draft:
    """`goes_on` says whether a dict of arguments goes on to `fully_shard`, `at_run_time` whether it is read at the call
    alone. Raises NotStatic where it cannot.
    """
    given = read_arguments(ctx, call, at_run_time)
    arguments = given.values
    for name in _SETTINGS & arguments.keys():
        if is_name(arguments[name], "False"):
            del arguments[name]  # as if it were None
    module = arguments.pop("module", None)
    if not isinstance(module, cst.BaseExpression):
        raise NotStatic("the wrapped module is not among the arguments")
    chosen = chosen_class(ctx, call)
    star = star_of_one(ctx, module)
    if star is not None:
        model = next(name for name in _MODELS if name not in names_around(ctx, call))
    made = Draft(ctx, call, module, model or _quoted(module, ctx), chosen, asked=asked, left=left, goes_on=goes_on)
    if star is not None:
        start, end = ctx.span(star.name)
        made.edits.append((ctx, Edit(start - 1, end, made.model)))  # with its star
    made.quoted |= {model} if model else set()
    made.for_others = for_others
    _take(given, made)
    put_defaults(arguments, made)
    translate(arguments, made, given.needless)
    _hand_on(given.rest, made)
    gather_arguments(made)
    if chosen is not None:
        leave_to_others(chosen, made)
    return made


def _quoted(module: cst.BaseExpression, ctx: Context) -> str:
    """Brackets around a name say nothing, and a model is compared by its text."""
    is_plain = isinstance(module, (cst.Name, cst.Attribute)) and "\n" not in ctx.code(module)
    return ctx.quote_text(*ctx.bare_span(module)) if is_plain else ctx.quote(module)


def _take(given: Spread, made: Draft) -> None:
    made.dead += given.dead
    made.inlined |= given.made
    if made.chosen is None or all(takes_alone(made.file, each) for each in made.call.args[1:]):
        made.spread = given.entries
    made.freed |= given.freed
    made.keeps |= given.keeps
    if given.name:
        made.quoted.add(given.name)
        made.before.append(f"{given.name} = {given.made_by}")
    refuse_others(given, made)


def _hand_on(rest: str, made: Draft) -> None:
    """What no call of the program passes goes on to `fully_shard`, which refuses each of FSDP1's arguments."""
    if not rest:
        return
    if "**" in {**made.common_kwargs, **made.unit_kwargs, **made.root_kwargs}:
        raise NotStatic(f"arguments come from `**{rest}`")
    made.common_kwargs["**"] = rest
    made.notes.append(
        Note(_REST.format(rest=made.file.plain(rest)), "hand over mesh, reshard_after_forward, offload_policy")
    )


def draft_factory(ctx: Context, call: cst.Call) -> Draft:
    """`partial(FSDP, ...)` becomes a function of the model, which is made where the partial was, and has the same name.

    Raises NotStatic where it cannot say what the partial said.
    """
    if any(argument.keyword is None for argument in passed_arguments(ctx, call)[1:]):
        raise NotStatic("the constructor is passed on as a value, with arguments that have no names")
    inside = factory_inside(ctx, call)
    if inside is not None and _may_be_another(ctx, inside, call):
        raise NotStatic("the constructor is passed on as a value, and what it is given is made once for two partials")
    has_place = is_statement(ctx, call) and not isinstance(ctx.scope(call), cst.ClassDef)
    if not has_place and not is_called_plainly(ctx, call):
        raise NotStatic("the constructor is passed on as a value, in an expression, a loop or a class")
    made = Draft(ctx, call, call.args[0].value, "", is_function=True)
    made.model = made.fresh("model", "net", "sharded_model")
    made.quoted.add(made.model)
    given = read_arguments(ctx, call)
    _take(given, made)
    line = enclosing(ctx, inside, cst.SimpleStatementLine) if inside is not None else None
    if inside is not None and line is not None and is_only_given_on(ctx, inside):
        made.dead.append(line)
    if has_place:
        given.values.update(given_later(made))
    translate({name: value for name, value in given.values.items() if name != "module"}, made)
    gather_arguments(made)
    if not is_partial(made) and (not has_place or reads_later(ctx, call)):
        in_expression(made)
    return made


def _may_be_another(ctx: Context, inside: cst.Call, call: cst.Call) -> bool:
    """Whether what a partial was given is not what it would be where another is made of it."""
    if contains(ctx, call, inside):
        return False
    given = [argument.value for argument in passed_arguments(ctx, inside)[1:]]
    return any(is_made_each_time(value, ctx) or not ctx.same_meaning(value, call) for value in given)


def draft_context(ctx: Context, call: cst.Call) -> Draft:
    """`enable_wrap(wrapper_cls=FSDP, …)`, with `wrap` in other functions, is given a function of the module instead.

    Raises NotStatic where that cannot say what the arguments said.
    """
    given = class_given(ctx, call)
    if given is None:
        raise NotStatic("enable_wrap is given no class that is seen")
    statement_making(ctx, call)
    for where in ctx.files("wrap"):
        for other in where.nodes(cst.Call):
            if where.fsdp1(other.func) == "wrap" and any(_is_setting(where, each) for each in other.args[1:]):
                raise NotStatic("a call of wrap is given arguments of its own")
    refuse_bound_below(ctx, call)
    made = Draft(ctx, call, given, "", is_function=True, is_context=True)
    made.model = made.fresh("module", "model", "wrapped")
    made.quoted.add(made.model)
    spread_out = read_arguments(ctx, call)
    _take(spread_out, made)
    translate(spread_out.values, made)
    gather_arguments(made)
    return made


def _is_setting(ctx: Context, argument: cst.Arg) -> bool:
    """Whether an argument behind the module may be one of FSDP1's: not `**kwargs` that nothing is passed by."""
    function = ctx.scope(argument)
    if argument.star != "**" or not isinstance(function, cst.FunctionDef):
        return True
    return not (is_rest_of(argument.value, function) and is_never_given_more(ctx, function))
