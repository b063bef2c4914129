"""A `state_dict_type` of which run time chooses the kind: a whole state dict where a test holds, else each rank's part.

FSDP1 took no config of another kind than the one that was chosen, so that each config is of the kind of its class.
LOCAL_STATE_DICT, each rank's part as it lies there, is what FSDP2 gives for SHARDED_STATE_DICT as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.code.enclosing import enclosing, names_around
from codemods.reading.edits.dead import assignment_only_for
from codemods.reading.edits.negation import negated
from codemods.reading.state_dicts.setting_helpers import helper_of
from codemods.reading.state_dicts.settings import (
    Settings,
    config_fields,
    context_arguments,
    context_of,
    is_context_argument,
    kind_named,
    settings,
)
from codemods.tables.state_dicts import CONFIG_FIELDS

_FULL, _PARTS, _LOCAL = "FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"


@dataclass(frozen=True, slots=True)
class Choice:
    """The two kinds, and which it is."""

    test: str
    """Whether the state dict is a whole one: a name, or as short."""
    line: str
    """The statement that names it, where that is not there yet."""
    full: Settings
    parts: Settings
    may_be_local: bool
    """Whether LOCAL_STATE_DICT is seen to be among the kinds."""
    dead: tuple[cst.CSTNode, ...]
    """Statements that chose, which only such contexts used."""


def choice(call: cst.Call, ctx: Context) -> Choice:
    """Raises NotStatic where it cannot be asked which kind it is, or the configs of one kind are not seen."""
    if helper_of(call, ctx) is not None:
        raise NotStatic("a function of the program's own sets the type")
    given = context_arguments(call)
    value, model = given.get("state_dict_type"), given.get("module")
    if value is None or model is None:
        raise NotStatic("the type, or the model, is not given")
    kinds = {origin: kind_named(origin).removeprefix("StateDictType.") for origin in ctx.origins(value)}
    if set(kinds.values()) <= {_FULL}:
        raise NotStatic("the type is not chosen")
    test = _test(kinds, call, ctx)
    if not test:
        if not isinstance(value, (cst.Name, cst.Attribute)) or not ctx.same_meaning(value, call):
            raise NotStatic("the type is not in a variable")
        test = f'{ctx.quote(value)}.name == "{_FULL}"'  # torch's own StateDictType, whoever fills it
    full, parts = (_settings(kind, model, given, kinds, call, ctx) for kind in (_FULL, _PARTS))
    dead = tuple(_dead((each for key, each in given.items() if key != "module"), ctx))
    line = ""
    if not ctx.plain(test).removeprefix("not ").replace(".", "_").isidentifier():
        name = next(each for each in ("is_full", "is_full_state_dict") if each not in names_around(ctx, call))
        test, line = name, f"{name} = {test}"
    return Choice(test, line, full, parts, _LOCAL in kinds.values(), dead)


def either(test: str, full: str, parts: str) -> str:
    """The arguments of `StateDictOptions` that are the ones where a test holds, and else the others."""
    one, other = _by_name(full), _by_name(parts)
    found = {}
    for name in dict.fromkeys([*one, *other]):
        yes, no = one.get(name, "False"), other.get(name, "False")
        opposite = test.removeprefix("not ") if test.startswith("not ") else f"not {test}"
        known = {("True", "False"): test, ("False", "True"): opposite}
        found[name] = yes if yes == no else known.get((yes, no), f"{yes} if {test} else {no}")
    return ", ".join(f"{name}={text}" for name, text in found.items())


def _by_name(options: str) -> Mapping[str, str]:
    found, last = dict[str, str](), ""
    for piece in options.split(", ") if options else ():
        name, equals, text = piece.partition("=")
        if equals and name.isidentifier():
            found[last := name] = text
        else:  # the value is a call of several arguments
            found[last] += f", {piece}"
    return found


def _settings(
    kind: str,
    model: cst.BaseExpression,
    given: Mapping[str, cst.BaseExpression],
    kinds: Mapping[Origin, str],
    call: cst.Call,
    ctx: Context,
) -> Settings:
    of_model, of_optimizer = (_fields(given.get(name), name, kind, kinds, call, ctx) for name in _CONFIGS)
    return Settings(model, kind, of_model, of_optimizer)


def _fields(
    value: cst.BaseExpression | None, name: str, kind: str, kinds: Mapping[Origin, str], call: cst.Call, ctx: Context
) -> Mapping[str, str]:
    """Those of the config of one kind. Raises NotStatic where there are several, or it is not seen."""
    classes = _CLASSES[name, kind]
    usual = CONFIG_FIELDS[classes[0]]
    origins = ctx.origins(value) if value is not None else ()
    if any(not origin.is_none and _class(origin) not in CONFIG_FIELDS for origin in origins):
        raise NotStatic(f"the config is `{ctx.code(value)}`" if value is not None else "")
    own = [(o, o.node) for o in origins if isinstance(o.node, cst.Call) and _class(o) in classes]
    made = [{**usual, **config_fields(o, _class(o), node, call, ctx)} for o, node in own]
    may_lack = any(o.is_none and _is_of(o, {*classes}, kinds, ctx) for o in origins)
    found = [*made, *([usual] if may_lack or not made else [])]
    if any(each != found[0] for each in found):
        raise NotStatic("a condition chooses the config")
    return found[0]


_CONFIGS = ("state_dict_config", "optim_state_dict_config")
_CLASSES = {
    ("state_dict_config", _FULL): ("FullStateDictConfig",),
    ("optim_state_dict_config", _FULL): ("FullOptimStateDictConfig",),
    ("state_dict_config", _PARTS): ("ShardedStateDictConfig", "LocalStateDictConfig"),
    ("optim_state_dict_config", _PARTS): ("ShardedOptimStateDictConfig",),
}
"""The configs of each kind: FSDP1 read no optimizer's state as LOCAL_STATE_DICT."""


def _class(origin: Origin) -> str:
    return (isinstance(origin.node, cst.Call) and origin.file.fsdp1(origin.node.func)) or ""


def _is_of(none: Origin, classes: Collection[str], kinds: Mapping[Origin, str], ctx: Context) -> bool:
    """Whether a None can stand for a config of these classes: not in a branch that sets another kind."""
    block = enclosing(ctx, none.node, cst.IndentedBlock) if none.node is not None else None
    nodes = [(origin.node, kind) for origin, kind in kinds.items() if origin.node is not None]
    beside = {kind for node, kind in nodes if any(outer is block for outer in ctx.ancestors(node))}
    own = {kind for kind in beside if any(name.startswith(kind.partition("_")[0].title()) for name in classes)}
    return not beside or bool(own)


def _test(kinds: Mapping[Origin, str], at: cst.Call, ctx: Context) -> str:
    """What the program asked to choose a whole state dict; nothing where that cannot be asked at the context."""
    if "" in kinds.values() or any(origin.file is not ctx for origin in kinds):
        return ""
    full = [o.node for o, kind in kinds.items() if kind == _FULL and o.node is not None]
    others = [o.node for o, kind in kinds.items() if kind != _FULL and o.node is not None]
    if not full or not others:
        return ""
    around = [node for node in ctx.ancestors(full[0]) if isinstance(node, (cst.If, cst.IfExp))]
    for choice in around:
        sides = (choice.body, choice.orelse)
        inside = [[_is_in(node, side, ctx) for node in (*full, *others)] for side in sides]
        if not all(any(each) for each in zip(*inside, strict=True)):
            continue
        if not _is_asked(choice.test, at, ctx):
            return ""
        if inside[0] == [True] * len(full) + [False] * len(others):
            return ctx.quote(choice.test)
        return negated(choice.test, ctx) if inside[1] == [True] * len(full) + [False] * len(others) else ""
    return ""


def _is_in(node: cst.CSTNode, side: cst.CSTNode | None, ctx: Context) -> bool:
    return side is not None and (node is side or any(outer is side for outer in ctx.ancestors(node)))


def _is_asked(test: cst.BaseExpression, at: cst.Call, ctx: Context) -> bool:
    """Whether a test says the same where it is asked again."""
    asks_more = any(isinstance(node, (cst.Await, cst.Call, cst.NamedExpr)) for node in ctx.inside(test))
    return not asks_more and ctx.same_meaning(test, at)


def _dead(values: Iterable[cst.BaseExpression], ctx: Context) -> Iterator[cst.CSTNode]:
    """The statements that chose, with the `if` around them that holds nothing else."""
    lines = {
        line
        for value in values
        for origin in ctx.origins(value)
        if origin.file is ctx and origin.node is not None
        if (line := assignment_only_for(ctx, _chosen(origin.node, ctx), lambda use: is_context_argument(use, ctx)))
    }
    tops = dict.fromkeys(_top(line, ctx) for line in lines)
    whole = [top for top in tops if top is not None and _holds_only(top, lines, ctx)]
    yield from whole
    yield from (line for line in lines if not any(top in ctx.ancestors(line) for top in whole))


def _chosen(node: cst.CSTNode, ctx: Context) -> cst.CSTNode:
    """`A if full else B` of one of its sides."""
    while isinstance(outer := ctx.parent(node), cst.IfExp) and outer.test is not node:
        node = outer
    return node


def _top(line: cst.CSTNode, ctx: Context) -> cst.If | None:
    """The `if` of whose chain a statement stands in a branch."""
    outer = ctx.parent(ctx.parent(line) or line)
    outer = ctx.parent(outer) if isinstance(outer, cst.Else) else outer
    while isinstance(outer, cst.If) and isinstance(around := ctx.parent(outer), cst.If):
        outer = around
    return outer if isinstance(outer, cst.If) else None


def _holds_only(choice: cst.If, lines: Iterable[cst.CSTNode], ctx: Context) -> bool:
    asks_more = any(isinstance(node, (cst.Call, cst.NamedExpr)) for node in ctx.inside(choice.test))
    if asks_more or not all(statement in lines for statement in choice.body.body):
        return False
    if isinstance(choice.orelse, cst.If):
        return _holds_only(choice.orelse, lines, ctx)
    return choice.orelse is None or all(statement in lines for statement in choice.orelse.body.body)


def choice_around(node: cst.CSTNode, ctx: Context) -> Choice | None:
    """That of the context that a node stands in, where its kind is chosen."""
    context = context_of(node, ctx)
    if context is None:
        return None
    try:
        settings(context, ctx)
    except NotStatic:
        try:
            return choice(context, ctx)
        except NotStatic:
            return None
    return None
