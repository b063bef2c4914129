"""Support functions cut to the calls that a program makes: what no call can reach is not there.

A parameter that every call leaves at its default, or is given the same literal by the other support functions, is
replaced by that value. Then the branches go that this rules out, the functions that nobody calls any more, and the
sentences of a docstring that name a parameter which is gone: they write it in backticks.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import libcst as cst

from .branches import rebound, specialised
from .layout import laid_out
from .library import Definition, library, read

Asked = Mapping[str, frozenset[str]]
"""The support functions that a program calls, each with the parameters that are passed, and the `TYPES` it names."""

_Values = dict[str, dict[str, str | None]]
"""What each parameter of each function is: a literal, or None where run time decides."""


TYPES = frozenset({"CustomPolicy"})
"""Classes whose objects reach the functions only where the program names them. They are asked for like functions."""

KINDS = frozenset({"ShardedStateDictConfig"})
"""What stands for checkpoints that are not FULL_STATE_DICT: the same, where a call sets another kind."""

MARKS = TYPES | KINDS
"""What is asked for like functions and is none."""

_SETS_KIND = frozenset({"set_state_dict_type", "state_dict_type"})


def everything(names: Iterable[str]) -> Asked:
    """For calls that may pass anything."""
    asked = {name: frozenset(defaults(name)) for name in names}
    return {**asked, **dict.fromkeys(MARKS, frozenset[str]())} if asked else asked


@cache
def defaults(name: str) -> dict[str, str | None]:
    """The parameters of a function with their defaults; none of a class, or where any number can be passed."""
    node = _function(name)
    if node is None or node.args.vararg or node.args.kwarg:
        return {}
    args = [*node.args.posonlyargs, *node.args.args]
    given = [*[None] * (len(args) - len(node.args.defaults)), *node.args.defaults, *node.args.kw_defaults]
    pairs = zip([*args, *node.args.kwonlyargs], given, strict=True)
    return {arg.arg: written(default) if default is not None else None for arg, default in pairs}


def written(node: ast.expr) -> str:
    """An expression's text, with the quotes of this project."""
    plain = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return json.dumps(ast.literal_eval(node)) if plain else ast.unparse(node)


def passed(name: str, call: ast.Call) -> dict[str, ast.expr | None]:
    """What a call gives to each parameter; None for what cannot be told from the call."""
    known = defaults(name)
    found: dict[str, ast.expr | None] = dict(zip(known, call.args, strict=False))
    found |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in known}
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(not keyword.arg for keyword in call.keywords):
        return dict.fromkeys(known)
    return found


def cut(asked: Asked) -> list[Definition]:
    """The definitions that a program needs, as far as it can reach them, in the order of the library."""
    return [*_cut(frozenset((name, frozenset(given)) for name, given in asked.items()))]


@cache  # the same is asked of one function, of those of a file, and of those of a program
def _cut(asked: frozenset[tuple[str, frozenset[str]]]) -> tuple[Definition, ...]:
    never = MARKS - dict(asked).keys()
    values = _values({name: given for name, given in sorted(asked) if name not in MARKS}, never)
    gone = {name: frozenset(_constants(name, given)) for name, given in values.items()}
    names = [name for name in library().definitions if name in values]
    return tuple(_written(name, _text(name, values, never), gone) for name in names)


def _written(name: str, text: str, gone: Mapping[str, frozenset[str]]) -> Definition:
    used = sorted(gone.keys() & {name, *read(text).definitions[name].uses})
    return _laid_out(name, text, tuple((each, gone[each]) for each in used))


@cache
def _laid_out(name: str, text: str, gone: tuple[tuple[str, frozenset[str]], ...]) -> Definition:
    order = {each: tuple(defaults(each)) for each, _ in gone}
    return read(laid_out(text, name, dict(gone), order)).definitions[name]


def _values(asked: Asked, never: frozenset[str]) -> _Values:
    values: _Values = {}
    for name, given in asked.items():
        own = defaults(name)
        # What has no default and is not passed either, the calls inside of the support functions say.
        known = {each for each in own if own[each] or each in given}
        values[name] = {each: None if each in given else _literal(own[each]) for each in known}
    changed = True
    while changed:
        changed = False
        for name in list(values):
            for callee, arguments in _calls(_text(name, values, never)):
                changed |= _join(values, callee, arguments)
    return values


def _join(values: _Values, name: str, arguments: Mapping[str, str | None]) -> bool:
    """Learn of a call; whether anything was new about it."""
    if name not in values:
        values[name] = dict(arguments)
        return True
    changed = False
    for each, given in arguments.items():
        if each not in values[name]:
            values[name][each] = given
            changed = True
        elif values[name][each] not in (None, given):
            values[name][each] = None
            changed = True
    return changed


def asked_by(tree: ast.AST, names: Mapping[str, str]) -> Asked:
    """The support functions that code uses, with the parameters that it passes. `names` are what it calls them."""
    nodes = list(ast.walk(tree))
    called = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    found: dict[str, frozenset[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            name, call = names[node.id], called.get(id(node))
            given: Mapping[str, object] = passed(name, call) if call is not None else defaults(name)
            found[name] = found.get(name, frozenset()) | given.keys()
            if name in _SETS_KIND and not _is_full(given.get("state_dict_type")):
                found |= dict.fromkeys(KINDS, frozenset[str]())
    return found


def _is_full(kind: object) -> bool:
    return isinstance(kind, ast.Attribute) and kind.attr == "FULL_STATE_DICT"


@cache
def _calls(text: str) -> Sequence[tuple[str, Mapping[str, str | None]]]:
    """The support functions that a definition uses, with the literals that they are given."""
    return [(name, _given(name, call)) for name, call in _uses(ast.parse(text))]


def _given(name: str, call: ast.Call | None) -> Mapping[str, str | None]:
    own = defaults(name)
    if call is None:
        return dict.fromkeys(own)
    given = {each: written(arg) if arg is not None else None for each, arg in passed(name, call).items()}
    return {each: _literal(given[each] if each in given else own[each]) for each in own}


def _uses(tree: ast.AST) -> Iterator[tuple[str, ast.Call | None]]:
    """Where a definition uses support functions, with the call if it calls them there."""
    nodes = list(ast.walk(tree))
    called = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    bound = {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
            if node.id in library().definitions:
                yield node.id, called.get(id(node))


@cache
def _literal(text: str | None) -> str | None:
    """The text of a value that can stand in the place of a parameter in the function's body."""
    if text is None:
        return None
    plain = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.USub, ast.Load, ast.Name)
    nodes = list(ast.walk(ast.parse(text, mode="eval").body))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return text if all(isinstance(node, plain) for node in nodes) and names <= library().imports.keys() else None


def _constants(name: str, values: Mapping[str, str | None]) -> dict[str, str]:
    """The parameters that are replaced; not those that the function binds anew."""
    node = _function(name)
    taken = rebound(node) if node is not None else frozenset()
    return {each: text for each, text in values.items() if text is not None and each not in taken}


def _text(name: str, values: _Values, never: frozenset[str]) -> str:
    uses = library().definitions[name].uses
    no_types = dict.fromkeys(never & TYPES & uses, "()")  # `isinstance(value, ())` never holds
    constants = tuple(sorted({**_constants(name, values[name]), **no_types}.items()))
    return _specialised(name, constants, is_full=never >= KINDS and "StateDictType" in uses)


@cache
def _specialised(name: str, constants: tuple[tuple[str, str], ...], is_full: bool) -> str:
    text = library().definitions[name].text
    if not constants and not is_full:
        return text
    module = cst.parse_module(text)
    if is_full:
        module = module.visit(_OnlyFull())
    body = [
        specialised(node, dict(constants)) if isinstance(node, cst.FunctionDef) and node.name.value == name else node
        for node in module.body
    ]
    return module.with_changes(body=body).code


class _OnlyFull(cst.CSTTransformer):
    """Answers `kind is StateDictType.FULL_STATE_DICT` where there is no other kind."""

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        kind = updated_node.comparisons[0].comparator
        if not isinstance(kind, cst.Attribute) or not kind.attr.value.endswith("_STATE_DICT"):
            return updated_node
        return cst.Name(str(kind.attr.value == "FULL_STATE_DICT"))


@cache
def _function(name: str) -> ast.FunctionDef | None:
    if name not in library().definitions:
        raise KeyError(f"no support function is called {name!r}")
    body = ast.parse(library().definitions[name].text).body
    return next((node for node in body if isinstance(node, ast.FunctionDef)), None)
