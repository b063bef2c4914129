"""`ignored_modules` and `ignored_states`: what FSDP1 neither sharded nor looked into.

FSDP2 knows parameters alone, as `ignored_params` of every `fully_shard` since torch 2.7; the loop over the units keeps
out of ignored modules by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from codemods.api import NotStatic, Origin
from codemods.reading.parameters.of_model import READERS
from codemods.reading.units.policies import class_elements
from codemods.reading.values.choices import written
from codemods.tables.versions import exists

from ..draft import Draft, Entry, Note, Switch

NAMES = ("ignored_modules", "ignored_states", "ignored_parameters")
"""The arguments; the last one is what the second was called up to torch 2.0."""

AT_RUN_TIME = ("ignored_modules",)
"""Those that can be given under a condition, or come out of a dict."""

_WIDTH = 72
"""Sets longer than this are broken, one loop a line."""

_COLLECTORS = frozenset({"filter", "frozenset", "list", "set", "tuple"})
_MODULES = frozenset({"modules", "named_modules", "children", "named_children"})
_PARAMETER = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp)


def translate_ignored(
    arguments: Mapping[str, cst.BaseExpression],
    switched: Mapping[str, Switch],
    entries: Mapping[str, Entry],
    draft: Draft,
) -> None:
    """Set `ignored_params`, and what the loop leaves out. Raises NotStatic for values of an unknown kind."""
    at_run_time = [name for name in AT_RUN_TIME if name in switched or name in entries]
    for name in at_run_time:
        if any(other in arguments for other in NAMES):
            raise NotStatic(f"{name} is given under a condition, or comes out of a dict")
        text = _under_condition(switched[name], draft) if name in switched else _of_entry(entries[name])
        _ignore_modules(text, None, arguments, draft)
    if at_run_time:
        return
    given = [name for name in NAMES if name in arguments and not _is_nothing(arguments[name], draft)]
    if not given:
        return
    name, value = given[0], arguments[given[0]]
    if not exists("ignored_params", draft.file.options.torch_version):
        draft.notes.append(Note(f"{name}: fully_shard has ignored_params since torch 2.7"))
    are_parameters = name != "ignored_modules" and _are_parameters(value, draft)
    if len(given) > 1 or are_parameters is None:
        _ignore_either([arguments[each] for each in given], draft)
    elif are_parameters:
        _ignore(_as_set(value, draft), arguments, draft)
    else:
        _ignore_modules(_or_none_of(value, draft), _single(value), arguments, draft)


def _is_nothing(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether it can only be None, or an empty list that nothing fills: what was in it is commented out."""
    if draft.is_none(value):
        return True
    made = [origin.node for origin in draft.file.origins(value)]
    if not all(isinstance(node, cst.BaseExpression) and class_elements(node) == [] for node in made):
        return False
    if not isinstance(value, cst.Name):
        return class_elements(value) == []
    named = [node for node in draft.file.nodes(cst.Name) if node.value == value.value]
    return sum(not _is_keyword(node, draft) for node in named) == 2  # where it is made, and here


def _is_keyword(name: cst.Name, draft: Draft) -> bool:
    argument = draft.file.parent(name)
    return isinstance(argument, cst.Arg) and argument.keyword is name


def _ignore_modules(
    text: str, single: cst.BaseExpression | None, arguments: Mapping[str, cst.BaseExpression], draft: Draft
) -> None:
    """`text` gives the modules; `single` is the only one where it is spelled out."""
    draft.ignores_modules = True
    is_asked = _has_units(arguments, draft) or "param_init_fn" in draft.present
    _ignore(_parameters_of_modules(text, single, draft, is_asked), arguments, draft)


def _ignore_either(given: Sequence[cst.BaseExpression], draft: Draft) -> None:
    """What only run time knows to be modules or parameters; of two arguments FSDP1 took one."""
    draft.ignores = draft.ignores_modules = draft.ignores_either = True
    texts = [_or_none_of(value, draft) for value in given]
    is_list = len(given) == 1 and isinstance(given[0], (cst.List, cst.Tuple))
    one = texts[0] if is_list else f"list({texts[0]})"
    several = f"[{', '.join(f'*({text})' for text in texts)}]"
    states = draft.held(one if len(texts) == 1 else several, "states", "fsdp_states")
    torch_nn, state = draft.imported("torch", "nn"), draft.fresh("state", "ignored_state")
    loop, child = f"for {state} in {states}", draft.fresh("child", "submodule")
    tests = [f"if isinstance({state}, {torch_nn}.{kind})" for kind in ("Module", "Parameter")]
    modules = _set([child, loop, tests[0], f"for {child} in {state}.modules()"], draft)
    draft.ignored_modules = draft.held(modules, "ignored", "fsdp_ignored")
    draft.ignored = draft.held(_set([state, loop, tests[1]], draft), "ignored_params", "fsdp_ignored_params")
    root = draft.fresh("module", "submodule")
    draft.before.append(f"{draft.ignored} |= {_all('param', root, draft.ignored_modules, 'parameters', draft)}")
    draft.common_kwargs["ignored_params"] = draft.ignored


def _ignore(parameters: str, arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> None:
    if _has_units(arguments, draft) or "sync_module_states" in draft.given:
        parameters = draft.ignored = draft.held(parameters, "ignored_params", "fsdp_ignored_params")
    draft.ignores = True
    draft.common_kwargs["ignored_params"] = parameters


def _has_units(arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> bool:
    if "auto_wrap_policy" not in arguments:
        return "auto_wrap_policy" in draft.present  # under a condition, or out of a dict
    return not draft.is_none(arguments["auto_wrap_policy"])


def _under_condition(given: Switch, draft: Draft) -> str:
    """The modules that a condition ignores, or none."""
    value = given.body
    if not isinstance(value, cst.BaseExpression) or given.orelse is not None:
        raise NotStatic("ignored_modules is given under a condition")
    is_asked = draft.file.code(given.test) == draft.file.code(value)  # what is empty ignores nothing
    if is_asked:
        return _or_none_of(value, draft)
    text = f"({draft.file.quote(value)} if {written(draft.file, given.test, {})} else ())"
    return _or_none_of(value, draft, text)


def _of_entry(value: Entry) -> str:
    """The modules that a dict ignores, or none."""
    return f"{value.text} or ()" if value.may_lack or _may_be_none(value.values) else value.text


def _or_none_of(value: cst.BaseExpression, draft: Draft, text: str = "") -> str:
    """The text of a value, which may be None: one that a comprehension goes over."""
    if not text:
        is_loose = isinstance(value, (cst.IfExp, cst.Lambda)) and not value.lpar
        text = f"({written(draft.file, value, {})})" if is_loose else draft.file.quote(value)
    return f"{text} or ()" if _may_be_none(draft.file.origins(value)) else text


def _may_be_none(origins: Sequence[Origin]) -> bool:
    """Whether it is None somewhere, or what only run time knows: a parameter, an attribute of one, out of a library."""
    return any(origin.is_none or not isinstance(origin.node, _MADE) for origin in origins)


_MADE = (cst.BaseComp, cst.Call, cst.Dict, cst.List, cst.Set, cst.Tuple)


def _single(value: cst.BaseExpression) -> cst.BaseExpression | None:
    """`vae` of `[vae]`."""
    elements = class_elements(value) or []
    return elements[0] if len(elements) == 1 and isinstance(elements[0], (cst.Name, cst.Attribute)) else None


def _parameters_of_modules(text: str, single: cst.BaseExpression | None, draft: Draft, is_asked: bool) -> str:
    """The set of their parameters; where units, or values of units, ask for them, their modules get a name first."""
    root, roots = draft.fresh("module", "submodule"), text
    if is_asked:
        found = f"set({draft.file.quote(single)}.modules())" if single else _all("child", root, roots, "modules", draft)
        roots = draft.ignored_modules = draft.held(found, "ignored", "fsdp_ignored")
    return (
        f"set({draft.file.quote(single)}.parameters())" if single else _all("param", root, roots, "parameters", draft)
    )


def _all(item: str, root: str, roots: str, method: str, draft: Draft) -> str:
    """What a method of several modules yields, as a set."""
    return _set([item, f"for {root} in {roots}", f"for {item} in {root}.{method}()"], draft)


def _set(parts: Sequence[str], draft: Draft) -> str:
    """A set, of which a long one has a line for each part."""
    line = f"{{{' '.join(parts)}}}"
    return line if len(draft.file.plain(line)) <= _WIDTH else "{\n    " + "\n    ".join(parts) + "\n}"


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


def _are_parameters(value: cst.BaseExpression, draft: Draft) -> bool | None:
    """Whether `ignored_states` holds parameters, not modules; None where that is not seen, or there may be none."""
    made = draft.file.origins(value)
    kinds = {None if origin.is_none else _holds_parameters(origin, origin.node) for origin in made}
    return kinds.pop() if len(kinds) == 1 else None


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
    kinds = {_is_parameter(origin, element) for element in elements or ()}
    return kinds.pop() if len(kinds) == 1 else None


def _is_parameter(origin: Origin, element: cst.BaseExpression) -> bool | None:
    """By its name, or by what makes it: `self.scale = nn.Parameter(…)` of the model's class."""
    if isinstance(element, cst.Attribute) and element.attr.value in {"bias", "weight"}:
        return True
    made = {_makes_parameter(each) for each in origin.file.origins(element)}
    return made.pop() if len(made) == 1 else None


def _makes_parameter(origin: Origin) -> bool | None:
    """True for `nn.Parameter(…)`, False for a layer of torch."""
    made = origin.file.dotted(origin.node.func) if isinstance(origin.node, cst.Call) else None
    if made in _PARAMETER:
        return True
    return False if (made or "").startswith("torch.nn.") else None
