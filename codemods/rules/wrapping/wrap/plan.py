"""From a constructor call to a draft: each argument is handed to the function that knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import libcst as cst

from codemods.api import Context, Edit, Level, NotStatic
from codemods.reading.code.enclosing import contains, enclosing, names_around
from codemods.reading.code.words import is_name
from codemods.reading.models.makeup import makeup
from codemods.reading.values.defaults import is_never_given_more, is_rest_of, star_of_one
from codemods.reading.wraps.chosen_class import chosen_class, takes_alone
from codemods.reading.wraps.manual import argument_name, class_given, context_of, factory_inside, is_only_given_on
from codemods.reading.wraps.manual import arguments as passed_arguments
from codemods.tables.arguments import DROPPED, POSITIONS
from codemods.tables.names import WRAPPER

from .draft import Draft, Entry, Note, Switch, Value
from .kwargs.entries import of_dict
from .kwargs.one_dict import gather_arguments
from .kwargs.open_dict import is_given_from_outside, of_open_dict, refuse_others
from .kwargs.passed_dict import keep_dict, pass_dict_on
from .kwargs.splats import spread
from .kwargs.spread import Spread
from .kwargs.unread import drop_unread
from .lacks_forward import lacks_forward
from .mesh import given_ranks, translate_mesh
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
from .policy import switch_policy, translate_policy
from .policy.at_run_time import find_units
from .policy.made_elsewhere import policy_of_entry
from .settings.unpassed import put_defaults
from .settings.unused_settings import drop_field
from .strategy import read_strategy, translate_strategy
from .tensors import ignored
from .tensors.attributes import carry_attributes
from .tensors.batch_norm import find_batch_norm, keep_in_float32
from .tensors.device import device_of_entry, infer_device, translate_device
from .tensors.memory_format import undo_channels_last
from .tensors.meta import meta_of_entry, translate_meta
from .tensors.moved_elsewhere import find_parameters
from .tensors.placement import (
    offload_of_entry,
    switch_offload,
    switch_sync,
    sync_of_entry,
    translate_offload,
    translate_sync,
)
from .tensors.precision import may_be_none, precision_of_entry, switch_precision, translate_precision
from .unused import reduce_unused

Translate = Callable[[cst.BaseExpression, Draft], None]

# The order is the order of the statements written: ranks are made equal before buffers are cast, and the policy comes
# before the precision that depends on there being inner units.
TRANSLATORS: Mapping[str, Translate] = {
    "sync_module_states": translate_sync,
    "auto_wrap_policy": translate_policy,
    "mixed_precision": translate_precision,
    "cpu_offload": translate_offload,
}

SWITCHES: Mapping[str, Callable[[Switch, Draft], None]] = {
    "auto_wrap_policy": switch_policy,
    "mixed_precision": switch_precision,
    "cpu_offload": switch_offload,
    "sync_module_states": switch_sync,
}
"""What can be given under a condition."""

ENTRIES: Mapping[str, Callable[[Entry, Draft], None]] = {
    "auto_wrap_policy": policy_of_entry,
    "sync_module_states": sync_of_entry,
    "mixed_precision": precision_of_entry,
    "cpu_offload": offload_of_entry,
}
"""What can come out of a dict at run time."""


_SAME_EACH_TIME = frozenset({"functools.partial", "torch.cuda.current_device", "torch.device"})
_CONTAINERS = frozenset({"torch.nn.ModuleDict", "torch.nn.ModuleList"})
_SETTINGS = frozenset({"cpu_offload", "mixed_precision"})
_REST = (
    "`**{rest}`, by which no call of the program passes anything, goes to fully_shard: FSDP1's arguments raise there"
)
_NO_ROOT = "the model is a container without a forward: its units are sharded, and what it holds beside them is not"
_MAY_BE_CONTAINER = "where the model is a container without a forward, fully_shard refuses it, which FSDP1 took"
_SHARD_PARTS = "shard what it holds there"
_GIVEN_FORWARD = Note(
    "the model is a container that is given a forward: fully_shard refuses it, and FSDP1's root trained what lies "
    "beside the units",
    "make it an object of a class that has this forward",
    Level.MANUAL,
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
    _translate(arguments, made, given.needless)
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


def _translate(given: Mapping[str, Value], made: Draft, needless: Mapping[str, Entry] = {}) -> None:
    made.given = frozenset(given)
    arguments = {name: value for name, value in given.items() if isinstance(value, cst.BaseExpression)}
    switched = {name: value for name, value in given.items() if isinstance(value, Switch) and name not in DROPPED}
    entries = {name: value for name, value in given.items() if isinstance(value, Entry) and name not in DROPPED}
    anyhow = {"sharding_strategy", "device_mesh", "process_group"}
    refused = (switched.keys() - {*anyhow, *SWITCHES, *ignored.AT_RUN_TIME}) | (
        entries.keys() - {"device_id", "param_init_fn", *anyhow, *ENTRIES, *ignored.AT_RUN_TIME}
    )
    if refused:
        raise NotStatic(f"{', '.join(sorted(refused))} is given under a condition, or comes out of a dict")
    made.built = makeup(made.file, made.call)
    own = _made_here(made)
    containers = [each for each in own if each[0].dotted(each[1].func) in _CONTAINERS]
    is_container = bool(containers) and len(containers) == len(own) and _is_seen(made)
    made.has_root = not is_container or _is_given_forward(containers, made)
    made.runs_root = made.has_root and not (own and all(lacks_forward(where, each) for where, each in own))
    if containers and made.has_root:
        made.notes.append(_GIVEN_FORWARD if is_container else Note(_MAY_BE_CONTAINER, _SHARD_PARTS))
    nothing = {name for name, value in arguments.items() if all(o.is_none for o in made.file.origins(value))}
    made.present = made.given - nothing
    # The device is set before a mesh is made of such devices, and before anything is moved to it.
    with _writing("device_id", made):
        if "device_id" in arguments:
            translate_device(arguments["device_id"], made)
        elif "device_id" in entries:
            device_of_entry(entries["device_id"], made)
    if not made.device_type and not made.device:
        infer_device(made)
        if not made.device_type:
            find_parameters(made)
    ranks = given_ranks(given, made)
    with _writing("sharding_strategy", made):
        strategy = read_strategy(given.get("sharding_strategy"), made, ranks)
    with _writing(ranks.argument if ranks is not None else "sharding_strategy", made):
        translate_mesh(ranks, strategy, made)
    with _writing(next((name for name in ignored.NAMES if name in given), ""), made):
        ignored.translate_ignored(arguments, switched, entries, made)
    with _writing("param_init_fn", made):
        if "param_init_fn" in entries:
            entries = meta_of_entry(entries, made)
        else:
            arguments = translate_meta(arguments, made)
    undo_channels_last(made)
    made.may_lack_precision = may_be_none(given.get("mixed_precision"), made.file)
    find_batch_norm(given.get("mixed_precision"), made)
    for name, translate in TRANSLATORS.items():
        if name == "cpu_offload":
            translate_strategy(strategy, made)
        with _writing(name, made):
            if name in arguments:
                translate(arguments[name], made)
            elif name in switched:
                SWITCHES[name](switched[name], made)
            elif name in entries:
                ENTRIES[name](entries[name], made)
    if not made.has_root:
        if made.selector is None:
            raise NotStatic("the model is a container without a forward, which fully_shard refuses")
        made.notes.append(Note(_NO_ROOT))
    keep_in_float32(made)
    find_units(made)
    for name in DROPPED:
        if name in arguments:
            _note_dropped(name, arguments[name], made)
            drop_field(name, arguments[name], made)
    reduce_unused(made)
    carry_attributes(given.get("use_orig_params"), made)
    made.says = frozenset((*made.common_kwargs, *made.unit_kwargs, *made.root_kwargs, *made.passed.values()))
    spelled = {name: value for name, value in given.items() if isinstance(value, Entry)} | dict(needless)
    said = {"sharding_strategy"} if strategy.known is not None else set()
    if made.goes_on:
        pass_dict_on(spelled, said, made)
    elif spelled:
        keep_dict(spelled, made)
        drop_unread(spelled, said, made)


@contextmanager
def _writing(argument: str, made: Draft) -> Iterator[None]:
    """What is put before the call inside is there for an argument."""
    known = [*made.before]
    yield
    made.written_for |= {text: argument for text in made.before if text not in known}


def _made_here(made: Draft) -> list[tuple[Context, cst.Call]]:
    """The calls that make the model: in the function of the wrap where some are, since a helper that loads any model
    returns those of other programs too.
    """
    own = made.file.scope(made.call)
    return [each for each in made.built.made if each[0].scope(each[1]) is own] or made.built.made


def _is_seen(made: Draft) -> bool:
    """Whether each way that leads to the model begins with a call that makes it, this one aside."""
    origins = made.file.origins(made.module)
    return all(isinstance(origin.node, cst.Call) or origin.is_none for origin in origins)


def _is_given_forward(containers: Iterable[tuple[Context, cst.Call]], made: Draft) -> bool:
    """Whether something is stored as `forward` where the container is made or wrapped."""
    places = {made.file.scope(made.call), *(where.scope(call) for where, call in containers)}
    return any(
        isinstance(where.parent(node), cst.AssignTarget) and where.scope(node) in places
        for where, node in made.file.attributes("forward")
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
    _translate({name: value for name, value in given.values.items() if name != "module"}, made)
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


def is_made_each_time(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether another call of it could give something else: not a setting, and not a policy that holds no state."""
    if not isinstance(value, cst.Call) or ctx.fsdp1(value.func) is not None:
        return False
    return ctx.dotted(value.func) not in _SAME_EACH_TIME


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
    _translate(spread_out.values, made)
    gather_arguments(made)
    return made


def _is_setting(ctx: Context, argument: cst.Arg) -> bool:
    """Whether an argument behind the module may be one of FSDP1's: not `**kwargs` that nothing is passed by."""
    function = ctx.scope(argument)
    if argument.star != "**" or not isinstance(function, cst.FunctionDef):
        return True
    return not (is_rest_of(argument.value, function) and is_never_given_more(ctx, function))


class NotFSDP1(NotStatic):
    """An argument that torch's FSDP1 does not take: the class is a changed one, or the program does not run."""


def _check_names(names: Iterable[str]) -> None:
    unknown = sorted(set(names) - {*POSITIONS, *ignored.NAMES})
    if unknown:
        raise NotFSDP1(", ".join(unknown))


def read_arguments(ctx: Context, call: cst.Call, at_run_time: bool = False) -> Spread:
    """The arguments by name; those that come by the name of a dict as entries of it, where they are read at run time.

    Raises NotFSDP1 for a name that is none of FSDP1's, and NotStatic for `*args`, and for a `**kwargs` that the program
    does not spell out.
    """
    wrapper = class_given(ctx, call)
    passed = [argument for argument in passed_arguments(ctx, call) if argument.value is not wrapper]
    _check_names(name for argument in passed if (name := argument_name(argument)))
    found = Spread()
    opened: list[cst.BaseExpression] = []
    for index, argument in enumerate(passed):
        if _binds(argument.value):
            raise NotStatic("an argument binds a name, which would be gone with it")
        if argument.star == "**":
            try:
                if at_run_time and isinstance(argument.value, cst.Name):
                    found.add(of_dict(ctx, call, argument.value))
                else:
                    found.add(spread(ctx, call, argument.value))
            except NotStatic:
                if ctx.fsdp1(call.func) != WRAPPER or is_given_from_outside(ctx, call, argument.value):
                    raise  # another class may take it, the `with` around it give more, or another program
                opened.append(argument.value)
        elif argument.star and star_of_one(ctx, argument.value) is not None:
            found.values["module"] = argument.value
        elif argument.star:
            raise NotStatic(f"arguments come from `{argument.star}{ctx.code(argument.value)}`")
        elif argument.keyword is not None:
            name = argument_name(argument)
            entry = found.values.get(name)
            if name in DROPPED and isinstance(entry, Entry):
                found.needless[name] = entry
            found.values[name] = _itself(argument.value, ctx)
        elif index < len(POSITIONS):
            found.values[POSITIONS[index]] = argument.value
    for value in opened:
        found.add(of_open_dict(ctx, call, value, found.values))
    if wrapper is not None or context_of(ctx, call) is not None:
        found.values.pop("wrapper_cls", None)
    _check_names(found.values)
    found.values = {name: _in_any_case(name, value, ctx) for name, value in found.values.items()}
    return found


_TRUE_WHERE_GIVEN = frozenset(
    {"auto_wrap_policy", "cpu_offload", "mixed_precision", "process_group", "sharding_strategy"}
)
"""Arguments whose values are false where they are None, and in no other case."""


def _in_any_case(name: str, value: Value, ctx: Context) -> Value:
    """`x` of what is put into a dict under `if x is not None:`, where None is as good as no argument."""
    if (
        not isinstance(value, Switch)
        or value.orelse is not None
        or not isinstance(value.body, (cst.Name, cst.Attribute))
    ):
        return value
    text, test = ctx.code(value.body), ctx.code(value.test)
    is_asked = test == f"{text} is not None" or (test == text and name in _TRUE_WHERE_GIVEN)
    return value.body if is_asked else value


def _itself(value: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """`x` of `x if x is not None else None`."""
    if not isinstance(value, cst.IfExp) or not isinstance(value.body, (cst.Name, cst.Attribute)):
        return value
    text = ctx.code(value.body)
    return value.body if is_name(value.orelse, "None") and ctx.code(value.test) == f"{text} is not None" else value


def _binds(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.NamedExpr) or any(_binds(child) for child in node.children)


def _note_dropped(name: str, value: cst.BaseExpression, made: Draft) -> None:
    """Dropping never changes what is trained; it can change memory and overlap, and then it is said."""
    text = made.file.code(value)
    if name == "backward_prefetch" and not text.endswith("BACKWARD_PRE"):
        made.notes.append(Note(f"backward_prefetch={text} is dropped: {DROPPED[name]}; memory and overlap may differ"))
    if name == "forward_prefetch" and text not in {"False", "True"}:
        made.notes.append(Note(f"forward_prefetch={text} is dropped: {DROPPED[name]}"))
