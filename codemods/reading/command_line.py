"""What a program lets its user choose on the command line: `parser.add_argument("--strategy", choices=[…])`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context


def choices_of(ctx: Context, value: cst.BaseExpression) -> frozenset[str] | None:
    """The texts that `args.strategy` can be, where the option of this name says so; None where nothing is said."""
    if not isinstance(value, cst.Attribute):
        return None
    found: frozenset[str] = frozenset()
    for _, call in ctx.passing("choices"):
        given = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
        if not _is_option(call) or _destination(call, given.get("dest")) != value.attr.value:
            continue
        texts = _texts(given["choices"])
        if texts is None:
            return None
        found |= texts
    return found or None


def _is_option(call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "add_argument"


def _destination(call: cst.Call, dest: cst.BaseExpression | None) -> str | None:
    if dest is not None:
        return str(dest.evaluated_value) if isinstance(dest, cst.SimpleString) else None
    flags = [a.value for a in call.args if a.keyword is None]
    texts = [str(flag.evaluated_value) for flag in flags if isinstance(flag, cst.SimpleString)]
    long = [text for text in texts if text.startswith("--")] or texts
    return long[0].lstrip("-").replace("-", "_") if long else None


def _texts(choices: cst.BaseExpression) -> frozenset[str] | None:
    if not isinstance(choices, (cst.List, cst.Tuple, cst.Set)):
        return None
    values = [element.value for element in choices.elements]
    if not all(isinstance(value, cst.SimpleString) for value in values):
        return None
    return frozenset(str(value.evaluated_value) for value in values if isinstance(value, cst.SimpleString))
