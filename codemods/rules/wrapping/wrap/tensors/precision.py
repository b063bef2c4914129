"""`mixed_precision`: casts that are the same, unit by unit.

FSDP1 casts the inputs of the root (`cast_root_forward_inputs=True`) but not those of the other units
(`cast_forward_inputs=False`); FSDP2 casts them everywhere unless told otherwise. With a float32 buffer in the model
(RoPE tables, masks) the difference is 6e-3 in the loss, measured on torch 2.13.
FSDP1 also cast the buffers (`buffer_dtype`); FSDP2 leaves them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from codemods.api import SUPPORT, Context, Import, Level, NotStatic, Origin
from codemods.reading.code.enclosing import bound_once, contains, is_self
from codemods.reading.code.program import others
from codemods.reading.code.shapes import front
from codemods.reading.code.words import is_name
from codemods.reading.values.choices import lookup, written
from codemods.reading.wraps.manual import arguments, is_constructor
from codemods.reading.wraps.parts import are_given_apart, are_units_apart, root_around, wraps_parts
from codemods.reading.wraps.precision import (
    CLASSES,
    KEPT,
    SAVED_BUFFERS,
    Fields,
    flag,
    is_precision,
    policy_arguments,
    policy_call,
    policy_lines,
    precision_fields,
    text_of,
)
from codemods.tables.names import PACKAGE

from ..draft import Draft, Entry, Note, Switch, Value
from ..places.in_place import keep_none, put_for_none
from .buffers import cast_loop, has_no_buffers
from .unit_inputs import are_cast

_INPUTS = "FSDP1 cast inputs at the root alone, and this model may be a part of another one that is wrapped"
_INNER_UNITS = "units inside of others cast their inputs too, and FSDP1 cast those of the outer one alone"
_OF_ROOT, _OF_UNITS = "MixedPrecisionPolicy of the root", "MixedPrecisionPolicy of units"
"""What a definition becomes: it casts inputs, or does so where units are told to."""
_SHORT = 24
"""An attribute that is longer than this gets a name before it is read several times."""


def translate_precision(value: cst.BaseExpression, draft: Draft) -> None:
    """Set `mp_policy` of the units and of the root; raise NotStatic when the casts are not to be seen."""
    origins = draft.file.origins(value)
    made = [origin for origin in origins if not origin.is_none]
    if not made:
        return
    if draft.precision:
        precision_at_run_time(draft.precision, draft, not draft.may_lack_precision)
        return
    state = draft.state()
    try:
        _as_seen(value, origins, made, draft)
    except NotStatic:
        draft.restore(state)
        precision_at_run_time(hold(value, draft), draft, _are_given(origins), _is_anothers(value, draft.file))


def hold(value: cst.BaseExpression | Entry, draft: Draft) -> str:
    """The `MixedPrecision` as it is, in a variable where it is more than a name."""
    text = value.text if isinstance(value, Entry) else draft.file.quote(value)
    if isinstance(value, cst.IfExp):
        text = written(draft.file, value, {})
    if not isinstance(value, Entry):
        draft.keeps.update(origin.node for origin in draft.file.origins(value) if origin.node is not None)
        is_short = isinstance(value, cst.Name) or len(draft.file.code(value)) <= _SHORT
        if is_short and isinstance(value, (cst.Name, cst.Attribute)):
            return text
    return draft.held(text, "mixed_precision", "fsdp_mixed_precision")


def _as_seen(value: cst.BaseExpression, origins: Sequence[Origin], made: list[Origin], draft: Draft) -> None:
    if any(origin.node in draft.left for origin in made):
        raise NotStatic("mixed_precision is needed as it is for another call")
    fields, casts = _read(made, draft, is_defined=not _is_inside(value, made, draft))
    optional = len(made) < len(origins)
    is_put = optional and not _asks_for_none(fields, made, draft) and _put_for_none(value, draft)
    if optional and not is_put:
        keep_none(origins, draft)
    policy = _policy_expression(value, made, optional and not is_put, draft)
    _ask_whether_cast(policy, fields, draft)
    is_named = isinstance(value, (cst.Name, cst.Attribute))
    given = f"{draft.file.quote(value)} is not None" if is_named and not is_put else ""
    if not _root_casts_buffers(made, draft):
        _cast_buffers(fields, made, policy, optional, draft, given)
    _pass_on(policy, casts, draft)


def precision_of_entry(value: Entry, draft: Draft) -> None:
    """`mixed_precision` that comes out of a dict."""
    state = draft.state()
    try:
        if not draft.precision:
            _of_entry(value, draft)
            return
    except NotStatic:
        draft.restore(state)
    is_given = not value.may_lack and _are_given(value.values)
    precision_at_run_time(draft.precision or hold(value, draft), draft, is_given)


def _of_entry(value: Entry, draft: Draft) -> None:
    """Written anew where it is put into the dict. Raises NotStatic where something else takes it out as well."""
    made = [origin for origin in value.values if not origin.is_none]
    nodes = {origin.node for origin in made if origin.node is not None}
    if not value.is_only_given or not nodes or (nodes | value.displays) & draft.left:
        raise NotStatic("mixed_precision comes out of a dict")
    fields, casts = _read(made, draft)
    optional = value.may_lack or len(made) < len(value.values)
    none = f" or {draft.imported(PACKAGE, 'MixedPrecisionPolicy')}()" if optional else ""
    policy = draft.held(f"{value.text}{none}", "mp_policy", "fsdp_mp_policy")
    draft.definitions |= nodes | value.displays
    draft.options |= dict.fromkeys(nodes, _OF_ROOT)
    draft.keeps -= nodes
    _ask_whether_cast(policy, fields, draft)
    _cast_buffers(fields, made, policy, optional, draft)
    _pass_on(policy, casts, draft)


def may_be_none(value: Value | None, ctx: Context) -> bool:
    """Whether there may be no `MixedPrecision` at run time: not all that is seen of the argument is one."""
    if isinstance(value, Entry):
        return value.may_lack or not _are_given(value.values)
    if isinstance(value, Switch):
        return may_be_none(value.body, ctx) or may_be_none(value.orelse, ctx)
    return value is None or not _are_given(ctx.origins(value))


def _are_given(origins: Sequence[Origin]) -> bool:
    """Whether all that is seen is a `MixedPrecision`, and never None."""
    nodes = [(origin.file, origin.node) for origin in origins]
    return bool(nodes) and all(isinstance(n, cst.Call) and w.fsdp1(n.func) == "MixedPrecision" for w, n in nodes)


def _is_anothers(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether an attribute of this object gives it, and none that the program makes is seen to come there:
    `self.trainer.strategy.mixed_precision_config` of Lightning.
    """
    start = front(value)
    origins = ctx.origins(value)
    is_own = any(isinstance(o.node, cst.Call) and o.file.fsdp1(o.node.func) == "MixedPrecision" for o in origins)
    return not is_own and is_self(front(bound_once(ctx, start) or start), ctx)


def _ask_whether_cast(policy: str, fields: Sequence[Fields], draft: Draft) -> None:
    """What stands for None gives no dtype. Raises NotStatic where it is asked and another one may give none either."""
    if not draft.may_lack_precision:
        return
    given = [name for name in KEPT if all(name in each for each in fields)]
    if given:
        draft.casts = f"{policy}.{given[0]} is not None"
    elif draft.float32_class or (draft.selector is not None and draft.selector.looks_inside):
        raise NotStatic("mixed_precision without dtypes, or None")


def precision_at_run_time(text: str, draft: Draft, is_given: bool = False, is_anothers: bool = False) -> None:
    """A `MixedPrecision`, or None where it may not be given, that only run time knows: its fields are read."""
    if draft.file.mentions(CLASSES) and not draft.precision and draft.selector is not None:
        raise NotStatic(f"mixed_precision with {CLASSES}")
    may_cast = _may_say(draft.file, ("cast_forward_inputs",), 4)
    is_part = draft.selector is None and _is_part(draft)
    if draft.selector is None and not is_part and may_cast and draft.after:
        raise NotStatic("mixed_precision that only run time knows: this call wraps a part of a model")
    draft.reads_precision = True
    draft.casts = f"{text} is not None" if draft.may_lack_precision else ""
    policy = draft.fresh("mp_policy", "fsdp_mp_policy")
    is_in_place = not _may_say(draft.file, ("keep_low_precision_grads",), 3)
    if is_in_place:
        item = draft.imported(PACKAGE, "MixedPrecisionPolicy")
        fields = [f"param_dtype={text}.param_dtype", f"reduce_dtype={text}.reduce_dtype"]
        if _may_say(draft.file, ("cast_root_forward_inputs",), 5):
            fields.append(f"cast_forward_inputs={text}.cast_forward_inputs or {text}.cast_root_forward_inputs")
        read = draft.assigned(policy, item, fields)
        if not is_given:
            below = read.replace("\n", "\n    ")
            read = f"{policy} = {item}()\nif {text} is not None:\n    {below}"
        draft.before.append(read)
    else:
        function = draft.imported(SUPPORT, "unit_mp_policy")
        draft.before.append(f"{policy} = {function}({text}, is_root=True)")
    if (is_anothers or _may_say(draft.file, ("buffer_dtype",), 2)) and not has_no_buffers(draft):
        _refuse_unnamed(draft)
        test = f"{text}.buffer_dtype is not None"
        test = test if is_given else f"{text} is not None and {test}"
        loop = cast_loop(f"{text}.buffer_dtype", draft)
        _place_cast([f"if {test}:", *("    " + line for line in loop)], draft)
    if not is_part and (draft.selector is None or not draft.runs_root):
        draft.common_kwargs["mp_policy"] = policy
        given = "" if is_given else f"{text} is None or "
        _cast_at_outer_units(draft, f"{given}not {text}.cast_forward_inputs" if may_cast else "")
        return
    unit = draft.fresh("block_mp_policy")
    comment = "# Inputs are cast at the root only.\n"
    if is_in_place:
        casts = "False"
        if may_cast:  # without a MixedPrecision there is nothing to cast to
            casts = f"{text}.cast_forward_inputs" if is_given else f"{text} is None or {text}.cast_forward_inputs"
            comment = "# Inputs are cast at the root only, unless it is told to.\n"
        replaced = draft.imported("dataclasses", "replace")
        draft.before.append(comment + draft.assigned(unit, replaced, [policy, f"cast_forward_inputs={casts}"]))
    else:
        draft.before.append(f"{comment}{unit} = {function}({text})")
    if is_part:
        draft.common_kwargs["mp_policy"] = unit
        return
    draft.root_kwargs["mp_policy"], draft.unit_kwargs["mp_policy"] = policy, unit


_FLAGS = {"keep_low_precision_grads": "False", "cast_forward_inputs": "False", "cast_root_forward_inputs": "True"}
"""What can change the casts, or the gradients, from what FSDP1 did without being told, and how it changes nothing."""


def _may_say(ctx: Context, names: Iterable[str], position: int) -> bool:
    """Whether a `MixedPrecision` of the program can say one of these: by its name, from a position on, or spread.

    One that the program does not make can say anything.
    """
    if any(ctx.mentions(name) and not _is_said_as_usual(ctx, name) for name in names):
        return True
    calls = [
        call
        for where in (ctx, *others(ctx, "MixedPrecision"))
        for call in where.nodes(cst.Call)
        if where.fsdp1(call.func) == "MixedPrecision"
    ]
    given = [argument for call in calls for argument in call.args[position:] if argument.keyword is None]
    return not calls or bool(given) or any(argument.star for call in calls for argument in call.args)


def _is_said_as_usual(ctx: Context, name: str) -> bool:
    """Whether all that the program says by a name is what FSDP1 does without."""
    for where in ctx.files(name):
        for node in where.nodes(cst.Name):
            argument = where.parent(node)
            if node.value != name:
                continue
            call = where.parent(argument) if isinstance(argument, cst.Arg) and argument.keyword is node else None
            if not isinstance(call, cst.Call) or not isinstance(argument, cst.Arg):
                return False
            is_fsdp2 = (where.dotted(call.func) or "").endswith(".MixedPrecisionPolicy")
            if not is_fsdp2 and where.fsdp1(call.func) != "MixedPrecision":
                return False
            if not is_fsdp2 and where.code(argument.value) != _FLAGS.get(name):
                return False
        if any(text.raw_value == name for text in where.nodes(cst.SimpleString)):
            return False
    return True


def _refuse_what_is_read(made: Sequence[Origin], draft: Draft) -> None:
    """A `MixedPrecision` that something else reads or changes has to stay one."""
    ctx = draft.file
    found = list(ctx.attributes("buffer_dtype", "keep_low_precision_grads"))
    found += [(w, node) for w, node in ctx.attributes("param_dtype") if isinstance(w.parent(node), cst.AssignTarget)]
    in_call = all(isinstance(origin.file.parent(origin.node), cst.Arg) for origin in made if origin.node is not None)
    # `MixedPrecision(buffer_dtype=DTYPES[cfg.mixed_precision.buffer_dtype])` reads settings, before it is one.
    first = {node for origin in made if origin.node is not None for node in origin.file.inside(origin.node)}
    if any(node not in first and is_precision(where, node.value, made, in_call) for where, node in found):
        raise NotStatic("mixed_precision is read or changed where MixedPrecisionPolicy cannot be")


def _read(made: Sequence[Origin], draft: Draft, is_defined: bool = False) -> tuple[list[Fields], tuple[bool, bool]]:
    """The fields of each `MixedPrecision`, and the cast flags that all of them have.

    With `is_defined`, each is made away from the call, and can say itself whether units cast their inputs.
    """
    _refuse_what_is_read(made, draft)
    fields = [precision_fields(origin, draft.names_float32) for origin in made]
    flags = [(origin.file, each) for origin, each in zip(made, fields, strict=True)]
    casts = {(flag(f, "cast_forward_inputs", False, w), flag(f, "cast_root_forward_inputs", True, w)) for w, f in flags}
    if len(casts) == 1:
        return fields, casts.pop()
    if not is_defined or not all(any(each) for each in casts) or not _has_units_and_root(draft):
        raise NotStatic("mixed_precision is one of several with different cast flags")
    draft.units_cast |= {origin.node for origin in made if origin.node is not None}
    return fields, (True, True)


def _is_inside(value: cst.BaseExpression, made: Sequence[Origin], draft: Draft) -> bool:
    """Whether one of them is made in the argument itself."""
    return any(where.node is value or where.node in draft.file.inside(value) for where in made)


def _has_units_and_root(draft: Draft) -> bool:
    return draft.selector is not None and draft.runs_root and not draft.is_context and not draft.float32_class


def switch_precision(value: Switch, draft: Draft) -> None:
    """`mixed_precision` that a condition decides about: each side has none, or is made in the call or elsewhere."""
    parts = [part for part in (value.body, value.orelse) if part is not None]
    origins = {part: draft.file.origins(part) for part in parts if isinstance(part, cst.BaseExpression)}
    is_mixed = any(len({origin.is_none for origin in found}) != 1 for found in origins.values())
    if len(origins) != len(parts) or is_mixed:
        raise NotStatic("mixed_precision is given under a condition")
    made = [origin for found in origins.values() for origin in found if not origin.is_none]
    if not made:
        return
    fields, casts = _read(made, draft)
    item = draft.imported(PACKAGE, "MixedPrecisionPolicy")
    given = {part: found for part, found in origins.items() if not found[0].is_none}
    by_node: dict[cst.CSTNode, str] = {part: _of_side(part, found, item, draft) for part, found in given.items()}
    yes, no = (by_node.get(part, f"{item}()") if part is not None else f"{item}()" for part in _sides(value))
    policy = draft.fresh("mp_policy", "fsdp_mp_policy")
    line = f"{policy} = {yes} if {written(draft.file, value.test, {})} else {no}"
    if not draft.fits(line) and no == f"{item}()" and value.body is made[0].node:
        line = _under(value.test, made[0], policy, item, draft)
    draft.before.append(line)
    _ask_whether_cast(policy, fields, draft)
    _cast_buffers(fields, made, policy, len(given) < 2, draft)
    _pass_on(policy, casts, draft)


def _of_side(part: cst.BaseExpression, found: Sequence[Origin], item: str, draft: Draft) -> str:
    """One side of a condition; what is made elsewhere is rewritten where it stands."""
    if found[0].node is part:
        return policy_call(found[0], item)
    nodes = {origin.node for origin in found if origin.node is not None}
    if nodes & draft.left:
        raise NotStatic("mixed_precision is needed as it is for another call")
    draft.definitions |= nodes
    draft.options |= dict.fromkeys(nodes, _OF_ROOT)
    return draft.file.quote(part)


def _under(test: cst.BaseExpression, made: Origin, name: str, item: str, draft: Draft) -> str:
    """The policy that a condition sets, where one line would be too long."""
    set_here = draft.assigned(name, item, policy_arguments(made)).split("\n")
    lines = [f"{name} = {item}()", f"if {written(draft.file, test, {})}:", *("    " + line for line in set_here)]
    return "\n".join(lines)


def _sides(value: Switch) -> tuple[cst.CSTNode | None, cst.CSTNode | None]:
    yes, no = value.body, value.orelse
    return yes if isinstance(yes, cst.CSTNode) else None, no if isinstance(no, cst.CSTNode) else None


def _policy_expression(value: cst.BaseExpression, made: list[Origin], optional: bool, draft: Draft) -> str:
    """The text of the root's `MixedPrecisionPolicy`; its definition is rewritten where it stands."""
    if value is made[0].node:
        name = draft.fresh("mp_policy", "fsdp_mp_policy")
        item = draft.imported(PACKAGE, "MixedPrecisionPolicy")
        said = None if contains(draft.file, draft.call, value) else policy_lines(made[0])
        if said is not None:
            draft.before.append(f"{name} = {item}(\n" + "".join(f"    {line}\n" for line in said) + ")")
        else:
            draft.before.append(draft.assigned(name, item, policy_arguments(made[0], draft.names_float32)))
        return name
    inside = set(draft.file.inside(value))
    if isinstance(value, cst.IfExp) and all(origin.node in inside for origin in made):
        item = draft.imported(PACKAGE, "MixedPrecisionPolicy")
        policies = {origin.node: policy_call(origin, item) for origin in made if origin.node is not None}
        nones = [side for side in (value.body, value.orelse) if isinstance(side, cst.Name) and side.value == "None"]
        if len(policies) + len(nones) == 2:
            name = draft.fresh("mp_policy", "fsdp_mp_policy")
            texts: dict[cst.CSTNode, str] = {**policies, **dict.fromkeys(nones, f"{item}()")}
            line = f"{name} = {written(draft.file, value, texts)}"
            if not draft.fits(line) and nones == [value.orelse]:
                line = _under(value.test, made[0], name, item, draft)
            draft.before.append(line)
            return name
    for origin in made:
        assert origin.node is not None
        draft.definitions.add(origin.node)
        draft.options[origin.node] = _OF_UNITS if draft.units_cast else _OF_ROOT
    text = draft.file.quote(value)
    if isinstance(value, cst.Name) and not optional:
        return text
    if optional:
        text = _or_policy(value, text, f"{draft.imported(PACKAGE, 'MixedPrecisionPolicy')}()", draft)
    return draft.held(text, "mp_policy", "fsdp_mp_policy")


def _put_for_none(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether None becomes the policy that says nothing where it is written, away from the call."""
    if isinstance(value, cst.Attribute):
        return False
    item = Import(PACKAGE, "MixedPrecisionPolicy")
    return put_for_none(
        value, draft, "mixed_precision", lambda none: f"{draft.imported_at(none.file, none.node, item)}()"
    )


def _or_policy(value: cst.BaseExpression, text: str, policy: str, draft: Draft) -> str:
    """A policy in the place of None: where None is written, if that is the only one."""
    if not isinstance(value, cst.IfExp):
        return f"{text} or {policy}"
    sides = (value.body, value.orelse)
    nones = [side for side in sides if isinstance(side, cst.Name) and side.value == "None"]
    if any(origin.is_none for side in sides if side not in nones for origin in draft.file.origins(side)):
        return f"({text}) or {policy}"
    return written(draft.file, value, dict.fromkeys(nones, policy))


def _is_part(draft: Draft) -> bool:
    """Whether the call wraps a part of a model, of which FSDP1 cast no inputs: it did so for a root alone.

    Where it wraps parts, and then the model around them, that is seen at run time. Raises NotStatic where it looks like
    a part, and no call is seen to wrap the whole.
    """
    ctx = draft.file
    if are_units_apart(ctx, draft.call):
        return False
    calls = ((where, other) for where, other in ctx.wrapping.calls(ctx.path) if other is not draft.call)
    beside = [(where, other) for where, other in calls if not are_given_apart(ctx, draft.call, where, other)]
    is_alone = not beside or not ctx.wrapping.is_several(ctx.path)
    if draft.is_function or wraps_parts(ctx, draft.call):
        if not draft.is_function and root_around(ctx, draft.call) is not None:
            return True
        if not is_alone:
            raise NotStatic("mixed_precision without a policy: this call may wrap a part of another's model")
        draft.after.append(f"{draft.imported(SUPPORT, 'cast_at_root')}({draft.model})")
        return False
    if is_alone:
        return False
    parts = {other: root_around(where, other) for where, other in beside if wraps_parts(where, other)}
    if any(parts.get(other, other) is None and _may_have_precision(where, other) for where, other in beside):
        raise NotStatic("mixed_precision without a policy: another call may wrap a part of this model")
    draft.parts |= {part for part, root in parts.items() if root is draft.call}
    if any(other not in draft.parts for _, other in beside):
        draft.notes.append(Note(_INPUTS, "pass cast_forward_inputs=False if it is"))
    return False


def _root_casts_buffers(made: Sequence[Origin], draft: Draft) -> bool:
    """Whether the call that wraps the whole model casts the buffers of this part, as it is given the same."""
    ctx = draft.file
    root = root_around(ctx, draft.call) if draft.selector is None and wraps_parts(ctx, draft.call) else None
    if root is None:
        return False
    given = [ctx.items(each.value) if each.star else ctx.origins(each.value) for each in arguments(ctx, root)]
    nodes = {origin.node for origins in given for origin in origins}
    return all(origin.node in nodes for origin in made)


def _may_have_precision(ctx: Context, call: cst.Call) -> bool:
    given = arguments(ctx, call)
    return any(each.star or (each.keyword is not None and each.keyword.value == "mixed_precision") for each in given)


def _pass_on(policy: str, casts: tuple[bool, bool], draft: Draft) -> None:
    cast_units, cast_root = casts
    cast_root = cast_root or cast_units
    if draft.units_cast:
        draft.unit_kwargs["mp_policy"], draft.root_kwargs["mp_policy"] = policy, _held_for_root(policy, draft)
        return
    if draft.is_context and cast_root:  # parts of a model, and then the model around them
        draft.common_kwargs["mp_policy"] = policy
        draft.after += [] if cast_units else [f"{draft.imported(SUPPORT, 'cast_at_root')}({draft.model})"]
        return
    if not cast_root:
        draft.common_kwargs["mp_policy"] = draft.held(_without_casts(policy, draft), "fsdp_mp_policy")
        return
    if draft.selector is None and not cast_units and _is_part(draft):
        draft.common_kwargs["mp_policy"] = _policy_of_part(policy, draft)
        return
    is_same = not draft.ignores and not draft.float32_class and are_cast(draft.file, draft.built)
    if draft.selector is None or cast_units or is_same or not draft.runs_root:  # each unit is a root of its own
        draft.common_kwargs["mp_policy"] = policy
        if not cast_units and not is_same:
            _cast_at_outer_units(draft)
        return
    draft.root_kwargs["mp_policy"] = policy
    draft.unit_kwargs["mp_policy"] = _held_without_casts(policy, draft)


def _held_without_casts(policy: str, draft: Draft) -> str:
    name = draft.fresh("block_mp_policy")
    draft.before.append(f"# Inputs are cast at the root only.\n{name} = {_without_casts(policy, draft)}")
    return name


def _held_for_root(policy: str, draft: Draft) -> str:
    name, replaced = draft.fresh("root_mp_policy"), draft.imported("dataclasses", "replace")
    comment = "# The root casts its inputs in any case.\n"
    draft.before.append(comment + draft.assigned(name, replaced, [policy, "cast_forward_inputs=True"]))
    return name


def _without_casts(policy: str, draft: Draft) -> str:
    return f"{draft.imported('dataclasses', 'replace')}({policy}, cast_forward_inputs=False)"


def _policy_of_part(policy: str, draft: Draft) -> str:
    """That of a part of a model, under a name where there are more."""
    ctx = draft.file
    calls = [each for each in ctx.calls(ctx.scope(draft.call)) if is_constructor(ctx, each)]
    is_one = sum(root_around(ctx, each) is not None for each in calls) < 2
    is_alone = is_one and not any(isinstance(node, cst.For) for node in ctx.ancestors(draft.call))
    return _without_casts(policy, draft) if is_alone else _held_without_casts(policy, draft)


def _cast_at_outer_units(draft: Draft, test: str = "") -> None:
    """Of a model that never runs each unit is a root, but for one inside of another, which casts no inputs."""
    if draft.runs_root or draft.selector is None or not draft.selector.nested:
        return
    if draft.float32_class or draft.precision:
        draft.notes.append(Note(_INNER_UNITS, "cast no inputs in units inside of others", Level.MANUAL))
        return
    unit, module = draft.fresh("unit", "sharded_unit"), draft.imported(PACKAGE, "FSDPModule")
    tests = [*([f"{unit} is not {draft.model}"] if draft.has_root else []), f"isinstance({unit}, {module})"]
    loop = [
        "# Each of them is a root, as the model itself does not run, and a unit inside of it is none.",
        f"for {unit} in {draft.model}.modules():",
        f"    if {' and '.join(tests)}:",
        f"        {draft.imported(SUPPORT, 'cast_at_root')}({unit})",
    ]
    draft.after.append("\n".join([f"if {test}:", *("    " + line for line in loop)] if test else loop))


def _is_dtype(ctx: Context, value: cst.BaseExpression) -> bool:
    """Whether it is seen to be a dtype, and so not None."""
    nodes = [(origin.file, origin.node) for origin in ctx.origins(value)]
    return all(isinstance(node, cst.BaseExpression) and _names_dtype(where, node) for where, node in nodes)


def _names_dtype(ctx: Context, node: cst.BaseExpression) -> bool:
    """Whether it is a dtype of torch, also by its name (`getattr(torch, args.dtype)`), or one of a dict of them."""
    found = lookup(ctx, node)
    if found is not None:
        return all(_is_dtype(where, value) for where, value in found.values)
    if isinstance(node, cst.Call) and is_name(node.func, "getattr") and len(node.args) > 1:
        owner, _, *default = (argument.value for argument in node.args)
        return ctx.dotted(owner) == "torch" and all(_is_dtype(ctx, each) for each in default)
    return (ctx.dotted(node) or "").startswith("torch.")


def _cast_buffers(
    fields: list[Fields], made: list[Origin], policy: str, optional: bool, draft: Draft, given: str = ""
) -> None:
    """`buffer_dtype`: cast the floating-point buffers once.

    `given` is the test of whether there is a `MixedPrecision`, where one can be written.
    """
    texts = {text_of(origin, f, "buffer_dtype") for origin, f in zip(made, fields, strict=True)}
    if texts == {None} or has_no_buffers(draft):
        return
    _refuse_unnamed(draft)
    if None in texts:
        raise NotStatic("mixed_precision is one of several, and only some have a buffer_dtype")
    same = _same_field(made, fields)
    known = all(_is_dtype(origin.file, f["buffer_dtype"]) for origin, f in zip(made, fields, strict=True))
    # Under a condition, one value for all does where it need not be asked for None as well.
    is_one = len(texts) == 1 and (not optional or (bool(given) and known and same is None))
    single = fields[0].get("buffer_dtype") if is_one else None
    is_here = single is not None and made[0].file.path == draft.file.path
    if single is not None and is_here and draft.file.same_meaning(single, draft.call):
        dtype = draft.file.quote(single)
        test = given if optional else "" if known else f"{dtype} is not None"
    elif not known:
        raise NotStatic("buffer_dtype is not a literal dtype")
    elif same is not None:
        dtype = f"{policy}.{same}"
        test = f"{dtype} is not None" if optional else ""
    else:
        raise NotStatic("mixed_precision is one of several with different buffer_dtypes")
    loop = cast_loop(dtype, draft)
    if test:
        loop = [f"if {test}:", *("    " + line for line in loop)]
    _place_cast(loop, draft)


def _place_cast(loop: list[str], draft: Draft) -> None:
    """Before sharding; behind it where units are given their values there, since that can make new buffers."""
    (draft.after if draft.unit_steps else draft.before).append("\n".join(loop))
    draft.notes.append(Note(SAVED_BUFFERS))


def _asks_for_none(fields: Sequence[Fields], made: Sequence[Origin], draft: Draft) -> bool:
    """Whether buffers are cast where there is a `MixedPrecision`, to what it does not say itself."""
    texts = [text_of(origin, f, "buffer_dtype") for origin, f in zip(made, fields, strict=True)]
    return any(texts) and _same_field(made, fields) is None and not has_no_buffers(draft)


def _same_field(made: Sequence[Origin], fields: Sequence[Fields]) -> str | None:
    """The field of the policy that each `MixedPrecision` gives as it gives `buffer_dtype`."""
    pairs = list(zip(made, fields, strict=True))
    same = (n for n in KEPT if all(text_of(o, f, n) == text_of(o, f, "buffer_dtype") for o, f in pairs))
    return next(same, None)


def _refuse_unnamed(draft: Draft) -> None:
    """Buffers of ignored modules are not cast."""
    if draft.ignores_modules and not draft.ignored_modules:
        raise NotStatic("buffer_dtype, which buffers of ignored modules are not cast to")
