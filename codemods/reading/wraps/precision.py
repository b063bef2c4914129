"""Reading `MixedPrecision(...)`, and writing the `MixedPrecisionPolicy(...)` with the same dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.code.arguments import by_parameter
from codemods.reading.code.words import is_name
from codemods.reading.edits.call_layout import comment_on
from codemods.reading.values.choices import lookup, written
from codemods.reading.values.defaults import is_never_passed, parameter_named

CLASSES = "_module_classes_to_ignore"
"""The field that names the classes which stay in float32, in units of their own."""

POSITIONS = (
    "param_dtype",
    "reduce_dtype",
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_forward_inputs",
    "cast_root_forward_inputs",
    CLASSES,
)
"""The fields of `MixedPrecision`, in the order of its definition (torch 2.13)."""

KEPT = ("param_dtype", "reduce_dtype")
"""Those that `MixedPrecisionPolicy` has too, in the same places."""

SAVED_BUFFERS = (
    "buffer_dtype: buffers are cast where the model is sharded; FSDP1 saved them in checkpoints in their original "
    "dtype, FSDP2 saves what is in the model"
)
"""What differs wherever buffers are cast."""

_BOOLEANS = {"True": True, "False": False}

Fields = Mapping[str, cst.BaseExpression]


def precision_fields(origin: Origin, names_classes: bool = False) -> Fields:
    """The fields that are given and not None. Raises NotStatic for anything but a plain `MixedPrecision(...)`.

    With `names_classes`, which classes stay in float32 is known.
    """
    node = origin.node
    if not isinstance(node, cst.Call) or origin.file.fsdp1(node.func) != "MixedPrecision":
        raise NotStatic(f"mixed_precision: {origin.text}")
    found = by_parameter(node.args, POSITIONS)
    if found is None:
        raise NotStatic("mixed_precision is made from `*args` or `**kwargs`")
    fields = {name: argument.value for name, argument in found.items() if not is_name(argument.value, "None")}
    if CLASSES in fields and not names_classes:
        raise NotStatic(f"mixed_precision with {CLASSES}")
    if flag(fields, "keep_low_precision_grads", False, origin.file):
        raise NotStatic("mixed_precision with keep_low_precision_grads, which FSDP2 does not have")
    return fields


def has_buffer_dtype(origin: Origin) -> bool:
    """Whether it is a `MixedPrecision(...)` that is given a dtype for buffers."""
    node = origin.node
    if not isinstance(node, cst.Call) or origin.file.fsdp1(node.func) != "MixedPrecision":
        return False
    named = [a.value for a in node.args if a.keyword is not None and a.keyword.value == "buffer_dtype"]
    by_place = [a.value for a in node.args[POSITIONS.index("buffer_dtype") :][:1] if a.keyword is None]
    return any(not is_name(value, "None") for value in (*named, *by_place))


def flag(fields: Fields, name: str, default: bool, ctx: Context) -> bool:
    """A field that is one bool, wherever it is made. Raises NotStatic when only run time knows it."""
    value = fields.get(name)
    if value is None:
        return default
    nodes = [origin.node for origin in ctx.origins(value)]
    texts = {node.value if isinstance(node, cst.Name) else "" for node in nodes}
    if len(texts) == 1 and texts <= _BOOLEANS.keys():
        return _BOOLEANS[texts.pop()]
    raise NotStatic(f"mixed_precision: {name} is only known at run time")


def is_low(model: cst.BaseExpression, ctx: Context, chosen: tuple[str, str] | None = None) -> bool:
    """Whether a wrapped model is seen to compute in a low precision of its own, wherever it is made.

    `chosen` is a setting and its value: of a table that is looked up by the setting, only that entry counts.
    """
    made = [(origin.file, origin.node) for origin in ctx.origins(model) if isinstance(origin.node, cst.Call)]
    wraps = [(where, call) for where, call in made if not _makes_plain_model(where, call)]
    return bool(wraps) and all(_wraps_low(where, call, chosen) for where, call in wraps)


def _makes_plain_model(ctx: Context, call: cst.Call) -> bool:
    """`Net(…)` and `Net.from_pretrained(…)`, on the ways on which nothing wraps it."""
    func = call.func
    if isinstance(func, cst.Attribute) and func.attr.value == "from_pretrained":
        func = func.value
    made = ctx.origins(func)
    return bool(made) and all(isinstance(origin.node, cst.ClassDef) for origin in made)


def _wraps_low(ctx: Context, call: cst.Call, chosen: tuple[str, str] | None) -> bool:
    given = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "mixed_precision"]
    return any(all(_has_low_parameters(origin, chosen) for origin in ctx.origins(value)) for value in given)


def _has_low_parameters(origin: Origin, chosen: tuple[str, str] | None) -> bool:
    try:
        dtype = precision_fields(origin).get("param_dtype")
    except NotStatic:
        return False
    if dtype is None:
        return False
    table = lookup(origin.file, dtype) if chosen is not None else None
    if table is not None and chosen is not None and origin.file.code(table.key) == chosen[0]:
        entries = [Origin(table.file, value) for key, value in table.entries if key == chosen[1]]
        return len(entries) == 1 and _is_low(entries[0])
    made = origin.file.origins(_default(origin.file, dtype) or dtype)
    return bool(made) and all(_is_low(each) for each in made)


def _default(ctx: Context, value: cst.BaseExpression) -> cst.BaseExpression | None:
    """What a parameter is that nothing passes."""
    function = ctx.scope(value)
    if not isinstance(value, cst.Name) or not isinstance(function, cst.FunctionDef) or function.decorators:
        return None
    param = parameter_named(value, function)
    return param.default if param is not None and is_never_passed(ctx, function, param) else None


def _is_low(dtype: Origin) -> bool:
    return dtype.node is not None and dtype.file.code(dtype.node).endswith(("bfloat16", "float16", "half"))


def text_of(origin: Origin, fields: Fields, name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else origin.file.code(value)


def policy_arguments(origin: Origin, names_classes: bool = False) -> list[str]:
    """The arguments of `MixedPrecisionPolicy(...)`: None follows the parameter dtype in both APIs, so nothing is
    filled in.
    """
    fields = precision_fields(origin, names_classes)
    return [f"{field}={written(origin.file, fields[field], {})}" for field in KEPT if field in fields]


def policy_lines(origin: Origin) -> list[str] | None:
    """The same where something is said behind one of them, a line for each; None where nothing is."""
    call, fields = cst.ensure_type(origin.node, cst.Call), precision_fields(origin)
    of = {argument.value: argument for argument in call.args}
    said = {field: comment_on(origin.file, of.get(fields[field])) for field in KEPT if field in fields}
    if not any(said.values()):
        return None
    texts = (f"{field}={written(origin.file, fields[field], {})}," for field in said)
    return [f"{text}  {comment}".rstrip() for text, comment in zip(texts, said.values(), strict=True)]


def policy_call(origin: Origin, name: str) -> str:
    """`MixedPrecisionPolicy(...)`, which the file knows as `name`."""
    return f"{name}({', '.join(policy_arguments(origin))})"


def is_precision(ctx: Context, owner: cst.BaseExpression, made: Sequence[Origin], in_call: bool) -> bool:
    """Whether an expression can hold one of these `MixedPrecision`s.

    One that is written in the call is reached through the wrapped model's `mixed_precision` alone.
    """
    if isinstance(owner, cst.Name) and is_receiver(ctx, owner):
        return False
    held = [owner, *(origin.node for origin in ctx.origins(owner))]
    if any(isinstance(node, cst.Attribute) and node.attr.value == "mixed_precision" for node in held):
        return True
    if in_call:
        return any(node is None for node in held) and bool(ctx.attributes("mixed_precision"))
    return any(node is None or any(node is origin.node for origin in made) for node in held)


def is_receiver(ctx: Context, name: cst.Name) -> bool:
    """Whether it is `self`, of a class that is no `MixedPrecision`."""
    for method in ctx.ancestors(name):
        if isinstance(method, cst.FunctionDef) and isinstance(ctx.scope(method), cst.ClassDef):
            owner = cst.ensure_type(ctx.scope(method), cst.ClassDef)
            parameters = method.params.params
            is_other = not any("MixedPrecision" in ctx.code(base.value) for base in owner.bases)
            return bool(parameters) and parameters[0].name.value == name.value and is_other
    return False
