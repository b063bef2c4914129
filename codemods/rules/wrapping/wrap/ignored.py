"""`ignored_modules` and `ignored_states`: what FSDP1 neither sharded nor looked into.

FSDP2 knows parameters alone, as `ignored_params` of every `fully_shard` since torch 2.7; the loop over the units keeps
out of ignored modules by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from codemods.api import NotStatic, Origin
from codemods.reading.choices import written
from codemods.reading.model_parameters import READERS
from codemods.reading.policies import class_elements
from codemods.tables.versions import exists

from .draft import Draft, Note, Switch

NAMES = ("ignored_modules", "ignored_states", "ignored_parameters")
"""The arguments; the last one is what the second was called up to torch 2.0."""

SWITCHED = ("ignored_modules",)
"""Those that can be given under a condition."""

_WIDTH = 72
"""Sets longer than this are broken, one loop a line."""

_COLLECTORS = frozenset({"filter", "frozenset", "list", "set", "tuple"})
_MODULES = frozenset({"modules", "named_modules", "children", "named_children"})
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp)


def translate_ignored(
    arguments: Mapping[str, cst.BaseExpression], switched: Mapping[str, Switch], draft: Draft
) -> None:
    """Set `ignored_params`, and what the loop leaves out. Raises NotStatic for values of an unknown kind."""
    if switched.keys() & {*SWITCHED}:
        if any(name in arguments for name in NAMES):
            raise NotStatic("ignored_modules is given under a condition")
        _ignore_modules(*_under_condition(switched["ignored_modules"], draft), arguments, draft)
        return
    given = [name for name in NAMES if name in arguments and not draft.is_none(arguments[name])]
    if not given:
        return
    name, value = given[0], arguments[given[0]]
    if not exists("ignored_params", draft.file.options.torch_version):
        draft.notes.append(Note(f"{name}: fully_shard has ignored_params since torch 2.7"))
    if len(given) > 1:
        raise NotStatic(" and ".join(given))
    if name == "ignored_modules" or not _are_parameters(value, draft):
        _ignore_modules(value, draft.file.quote(value), arguments, draft)
    else:
        _ignore(_as_set(value, draft), arguments, draft)


def _ignore_modules(
    value: cst.BaseExpression, text: str, arguments: Mapping[str, cst.BaseExpression], draft: Draft
) -> None:
    draft.ignores_modules = True
    _ignore(_parameters_of_modules(value, text, draft, _has_units(arguments, draft)), arguments, draft)


def _ignore(parameters: str, arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> None:
    if _has_units(arguments, draft) or "sync_module_states" in arguments:
        parameters = draft.ignored = draft.held(parameters, "ignored_params", "fsdp_ignored_params")
    draft.ignores = True
    draft.common_kwargs["ignored_params"] = parameters


def _has_units(arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> bool:
    if "auto_wrap_policy" not in arguments:
        return "auto_wrap_policy" in draft.present  # under a condition, or out of a dict
    return not draft.is_none(arguments["auto_wrap_policy"])


def _under_condition(given: Switch, draft: Draft) -> tuple[cst.BaseExpression, str]:
    """The modules that a condition ignores, and the text of them, or of none."""
    value = given.body
    if not isinstance(value, cst.BaseExpression) or given.orelse is not None:
        raise NotStatic("ignored_modules is given under a condition")
    text = draft.file.quote(value)
    is_asked = draft.file.code(given.test) == draft.file.code(value)  # what is empty ignores nothing
    return value, text if is_asked else f"({text} if {written(draft.file, given.test, {})} else ())"


def _parameters_of_modules(value: cst.BaseExpression, text: str, draft: Draft, units: bool) -> str:
    """The set of their parameters; where there are units, their modules get a name first."""
    elements = class_elements(value) or []
    single = elements[0] if len(elements) == 1 and isinstance(elements[0], (cst.Name, cst.Attribute)) else None
    single = single if text == draft.file.quote(value) else None
    root, roots = draft.fresh("module", "submodule"), text
    if any(origin.is_none for origin in draft.file.origins(value)):
        roots = f"({roots}) or ()" if isinstance(value, (cst.IfExp, cst.Lambda)) else f"{roots} or ()"
    if units:
        found = f"set({draft.file.quote(single)}.modules())" if single else _all("child", root, roots, "modules", draft)
        roots = draft.ignored_modules = draft.held(found, "ignored", "fsdp_ignored")
    return (
        f"set({draft.file.quote(single)}.parameters())" if single else _all("param", root, roots, "parameters", draft)
    )


def _all(item: str, root: str, roots: str, method: str, draft: Draft) -> str:
    """What a method of several modules yields, as a set."""
    loops = [item, f"for {root} in {roots}", f"for {item} in {root}.{method}()"]
    line = f"{{{' '.join(loops)}}}"
    return line if len(draft.file.plain(line)) <= _WIDTH else "{\n    " + "\n    ".join(loops) + "\n}"


def _as_set(value: cst.BaseExpression, draft: Draft) -> str:
    elements = class_elements(value)
    if elements:
        return f"{{{', '.join(draft.file.quote(element) for element in elements)}}}"
    if isinstance(value, _COMPREHENSIONS):
        start, end = draft.file.span(value.elt)[0], draft.file.span(value.for_in)[1]
        return f"{{{draft.file.quote_text(start, end)}}}"
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.func.value in {"list", "tuple"}:
        return f"set({draft.file.quote(value.args[0].value)})"
    return f"set({draft.file.quote(value)})"


def _are_parameters(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether `ignored_states` holds parameters, not modules. Raises NotStatic where that is not seen."""
    made = draft.file.origins(value)
    if any(origin.is_none for origin in made):
        raise NotStatic("ignored_states may be None")
    kinds = {_holds_parameters(origin, origin.node) for origin in made}
    found = kinds.pop()
    if kinds or found is None:
        raise NotStatic("ignored_states: modules or parameters")
    return found


def _holds_parameters(origin: Origin, node: cst.CSTNode | None) -> bool | None:
    """True for a collection of parameters, False for one of modules, None for what is not seen."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        method = node.func.attr.value
        return True if method in READERS else False if method in _MODULES else None
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in _COLLECTORS and node.args:
        return _holds_parameters(origin, node.args[-1].value)
    if isinstance(node, _COMPREHENSIONS):
        return _holds_parameters(origin, node.for_in.iter) if node.for_in.inner_for_in is None else None
    elements = class_elements(node) if isinstance(node, cst.BaseExpression) else None
    if elements and all(isinstance(e, cst.Attribute) and e.attr.value in {"bias", "weight"} for e in elements):
        return True
    return None
