"""What a program sets on parameters, `p.no_decay = True`: `use_orig_params=True` kept it, so new parameters get it."""

from __future__ import annotations

import libcst as cst

from codemods.api import NotStatic
from codemods.reading.parameters.attributes import are_replaced_later, are_set

from ..draft import Draft, Value
from ..emit import place_of
from .placement import is_named


def carry_attributes(use_orig_params: Value | None, draft: Draft) -> None:
    """Set it again behind the root's `fully_shard`, where that is all that FSDP1 kept, and somebody reads any."""
    is_kept = _is_true(use_orig_params, draft)
    if is_kept is False or not are_set(draft.file):
        return
    if not is_kept or draft.draws or are_replaced_later(draft.file) or not _has_place(draft):
        draft.carries_attributes = None
        return
    draft.carries_attributes = True
    name, param = draft.fresh("name", "param_name"), draft.fresh("param", "parameter")
    kept = draft.fresh("attributes", "param_attributes")
    loop = f"for {name}, {param} in {draft.model}.named_parameters()"
    # FSDP1 put new ones in the place of those on meta, too.
    tests, found = ([f"if not {param}.is_meta"], f".get({name}, {{}})") if draft.unit_steps else ([], f"[{name}]")
    parts = [f"{name}: vars({param}).copy()", loop, *tests]
    line = f"{kept} = {{{' '.join(parts)}}}"
    draft.before.append(line if draft.fits(line) else "\n    ".join([f"{kept} = {{", *parts]) + "\n}")
    draft.after.append(f"{loop}:\n    vars({param}).update({kept}{found})")


def _is_true(value: Value | None, draft: Draft) -> bool | None:
    """Whether `use_orig_params` is True; None where only run time knows."""
    if value is None:
        return False
    if not isinstance(value, cst.BaseExpression):
        return None
    origins = draft.file.origins(value)
    if all(is_named(origin, "True") for origin in origins):
        return True
    return False if all(is_named(origin, "False") or origin.is_none for origin in origins) else None


def _has_place(draft: Draft) -> bool:
    """Whether statements can stand around the call."""
    try:
        return draft.is_function or bool(place_of(draft.file, draft.call))
    except NotStatic:
        return False
