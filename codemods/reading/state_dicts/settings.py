"""What `FSDP.state_dict_type(...)` asked for, and the calls that give the same state dicts without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.code.arguments import by_parameter
from codemods.reading.code.enclosing import call_given, enclosing
from codemods.reading.edits.dead import assignment_only_for
from codemods.reading.processes.one_rank import is_read_on_each_node, is_read_on_first_rank
from codemods.reading.state_dicts.saves import may_alias
from codemods.reading.state_dicts.setting_helpers import Helper, helper_of, is_context, is_of_this_object
from codemods.reading.wraps.process_groups import has_group_of_its_own, may_be_hybrid
from codemods.tables.state_dicts import CONFIG_FIELDS, CONFIGS, CONTEXT, FULL, FULL_LOAD, SET

_ORDER = ("module", "state_dict_type", "state_dict_config", "optim_state_dict_config")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a context asked for."""

    model: cst.BaseExpression
    kind: str
    """FULL_STATE_DICT or SHARDED_STATE_DICT."""
    config: Mapping[str, str]
    """The texts of the fields of the model's config."""
    optim_config: Mapping[str, str]
    """The same for the optimizer's."""
    dead: tuple[cst.CSTNode, ...] = ()
    """Statements that made a config which only such contexts used."""

    @property
    def is_full(self) -> bool:
        return self.kind == "FULL_STATE_DICT"

    @property
    def reading(self) -> str | None:
        """The arguments of the `StateDictOptions` to read the model with; None where no options give the same."""
        offload, rank0_only = self.config["offload_to_cpu"], self.config.get("rank0_only")
        if rank0_only is None:
            return "" if offload == "False" else f"cpu_offload={offload}"
        if rank0_only == offload == "False":
            return FULL
        return f"{FULL}, cpu_offload={offload}" if rank0_only == "True" and offload != "False" else None

    @property
    def full_arguments(self) -> str:
        """The arguments behind the model for `full_state_dict` of the support module."""
        given = {name: text for name, text in self.config.items() if text != "False"}
        return "".join(f", {name}={text}" for name, text in given.items())

    @property
    def loading(self) -> str:
        """The arguments of the `StateDictOptions` to load the model with."""
        return FULL_LOAD if self.is_full else ""


def reading_options(read: cst.Call, chosen: Settings, ctx: Context) -> str | None:
    """The same for one call: what the first rank alone looks at, it alone needs to have.

    Torch gives the world's first rank what FSDP1 gave the first of the model's own ranks.
    """
    options = chosen.reading
    if options is None and not may_alias(read, ctx) and is_read_on_first_rank(read, ctx):
        options = f"{FULL}, cpu_offload=True"
    if options is None or not options.startswith(f"{FULL}, "):
        return options
    if has_group_of_its_own(ctx, chosen.model):
        return options if is_read_on_first_rank(read, ctx, has_group=True) else None
    is_by_node = is_read_on_each_node(read, ctx) and may_be_hybrid(ctx, chosen.model)
    return None if is_by_node else options


def context_of(node: cst.CSTNode, ctx: Context) -> cst.Call | None:
    """The call of the `state_dict_type` context that a node stands in."""
    for ancestor in ctx.ancestors(node):
        for item in ancestor.items if isinstance(ancestor, cst.With) else ():
            if isinstance(item.item, cst.Call) and is_context(item.item, ctx):
                return item.item
    return None


def is_local(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a node stands in a context of LOCAL_STATE_DICT."""
    context = context_of(node, ctx)
    given = context.args if context is not None else ()
    return any(ctx.fsdp1(argument.value) == "StateDictType.LOCAL_STATE_DICT" for argument in given)


def settings(call: cst.Call, ctx: Context) -> Settings:
    """Raises NotStatic when the type or its config is not seen in the source."""
    helper = helper_of(call, ctx)
    if helper is not None:
        return _of_helper(helper, call, ctx)
    arguments = context_arguments(call)
    model = arguments.get("module")
    if model is None:
        raise NotStatic("the model is not among its arguments")
    kind = _kind(arguments.get("state_dict_type"), ctx)
    names = ("state_dict_config", "optim_state_dict_config")
    of_model, of_optimizer = (
        _config(arguments.get(name), cls, call, ctx) for name, cls in zip(names, CONFIGS[kind], strict=True)
    )
    # A config whose fields are read off it stays.
    read = {
        name
        for name, config in zip(names, (of_model, of_optimizer), strict=True)
        if _is_read(name, config, arguments, ctx)
    }
    dead = list(_dead({name: value for name, value in arguments.items() if name not in read}, ctx))
    return Settings(model, kind, of_model, of_optimizer, _with_conditions(dead, ctx))


def _of_helper(helper: Helper, call: cst.Call, ctx: Context) -> Settings:
    """What a function of the program's own asks for, with what it is passed."""
    inner = context_arguments(helper.inner)
    found = {name: helper.meant(value) for name, value in inner.items()}
    where, model = found.get("module", (helper.file, helper.inner))
    if where is not ctx or (model is inner.get("module") and not is_of_this_object(helper, call, ctx)):
        raise NotStatic("the model is not among its arguments")
    home, value = found.get("state_dict_type", (helper.file, None))
    kind = _kind(value, home)
    configs = []
    for name, expected in zip(_ORDER[2:], CONFIGS[kind], strict=True):
        home, value = found.get(name, (helper.file, None))
        texts = _config(value, expected, call if home is ctx and value is not inner.get(name) else helper.inner, home)
        configs.append(
            {key: _at_call(text, helper, ctx) if home is helper.file else text for key, text in texts.items()}
        )
    passed = {name: value for name, (home, value) in found.items() if home is ctx and value is not inner[name]}
    return Settings(model, kind, configs[0], configs[1], _with_conditions(list(_dead(passed, ctx)), ctx))


def _at_call(text: str, helper: Helper, ctx: Context) -> str:
    """The text of a field where the function is called. Raises NotStatic for one that is only known inside of it."""
    name = text.removeprefix("not ")
    if name in {"False", "True"}:
        return text
    where, value = helper.given.get(name, (helper.file, None))
    said = _constant(value, where) if value is not None else ""
    if said and name != text:
        return "False" if said == "True" else "True"
    if not said and value is not None and where is ctx and isinstance(value, (cst.Name, cst.Attribute)):
        said = text.replace(name, ctx.code(value))
    if not said:
        raise NotStatic(f"`{text}` is only known in {helper.function.name.value}")
    return said


def default(model: cst.BaseExpression) -> Settings:
    """What FSDP1 does where nothing is set: full state dicts on every rank."""
    of_model, of_optimizer = (CONFIG_FIELDS[cls] for cls in CONFIGS["FULL_STATE_DICT"])
    return Settings(model, "FULL_STATE_DICT", of_model, of_optimizer)


def context_arguments(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """What a context is given, by the names of its parameters. Raises NotStatic for what is spread."""
    found = by_parameter(call.args, _ORDER)
    if found is None:
        raise NotStatic("its arguments come from `*args` or `**kwargs`")
    return {name: argument.value for name, argument in found.items()}


def _kind(value: cst.BaseExpression | None, ctx: Context) -> str:
    if value is None:
        raise NotStatic("the type is not given")
    named = ctx.fsdp1(value) or _by_name(value, ctx)
    kinds = (
        {named} if named is not None else _asserted(value, ctx) or {kind_named(origin) for origin in ctx.origins(value)}
    )
    kind = kinds.pop().removeprefix("StateDictType.") if len(kinds) == 1 else ""
    if kind not in CONFIGS:
        raise NotStatic(f"the type is `{ctx.code(value)}`")
    return kind


def _by_name(value: cst.BaseExpression, ctx: Context) -> str | None:
    """`StateDictType.FULL_STATE_DICT` in a file that imports no such name, and gives it to nothing: FSDP1 raised."""
    text, name = ctx.code(value), "StateDictType"
    named = [node for node in ctx.nodes(cst.Name) if node.value == name] if text.startswith(f"{name}.") else []
    is_free = bool(named) and all(isinstance(ctx.parent(node), cst.Attribute) for node in named)
    return text if is_free and text.removeprefix(f"{name}.") in CONFIGS else None


def _asserted(value: cst.BaseExpression, ctx: Context) -> set[str]:
    """`assert kind == StateDictType.FULL_STATE_DICT`, and then `self.kind = kind`: the one store of it in its class."""
    owner = enclosing(ctx, value, cst.ClassDef)
    stores = [node for node in ctx.inside(owner or value) if isinstance(node, cst.Assign)]
    stores = [store for store in stores if any(ctx.code(t.target) == ctx.code(value) for t in store.targets)]
    asserted: list[cst.CSTNode] = list(ctx.inside(ctx.scope(stores[0]))) if len(stores) == 1 else []
    tests = [node.test for node in asserted if isinstance(node, cst.Assert) and isinstance(node.test, cst.Comparison)]
    return {
        ctx.fsdp1(test.comparisons[0].comparator) or ""
        for test in tests
        if len(test.comparisons) == 1
        and isinstance(test.comparisons[0].operator, cst.Equal)
        and ctx.code(test.left) == ctx.code(stores[0].value)
    }


def kind_named(origin: Origin) -> str:
    """`StateDictType.FULL_STATE_DICT`, where a value is made so; else nothing."""
    return (origin.file.fsdp1(origin.node) if isinstance(origin.node, cst.BaseExpression) else None) or ""


def _config(value: cst.BaseExpression | None, expected: str, at: cst.Call, ctx: Context) -> Mapping[str, str]:
    """The fields of a config, as texts that mean the same at the context."""
    if value is None:
        return CONFIG_FIELDS[expected]
    origins = _of_class(value, ctx) or ctx.origins(value)
    try:
        made = [config_fields(origin, expected, value, at, ctx) for origin in origins]
    except NotStatic:
        if not _is_config(value, origins, expected, ctx):
            raise
        return {name: f"{ctx.code(value)}.{name}" for name in CONFIG_FIELDS[expected]}
    if not made:
        raise NotStatic(f"the config is `{ctx.code(value)}`")
    found = dict(made[0])
    for name in CONFIG_FIELDS[expected]:
        texts = {other[name] for other in made}
        if len(texts) == 1:
            continue
        if name != "rank0_only" or not texts <= {"True", "False"}:
            raise NotStatic(f"a condition chooses the config's {name}")
        # Where the condition cannot be asked there, every rank may have what the first one needs.
        found[name] = _choice([(o, fields[name]) for o, fields in zip(origins, made, strict=True)], at, ctx) or "False"
    return found


def _is_config(value: cst.BaseExpression, origins: Sequence[Origin], expected: str, ctx: Context) -> bool:
    """Whether a variable is a config wherever a function reads it: its fields are read off it then."""
    if not isinstance(value, (cst.Name, cst.Attribute)) or not origins:
        return False
    here = [node for node in ctx.inside(ctx.scope(value)) if isinstance(node, cst.AssignTarget)]
    if sum(ctx.code(target.target) == ctx.code(value) for target in here) > 1:
        return False
    made = [(origin.file, origin.node) for origin in origins]
    return all(isinstance(node, cst.Call) and where.fsdp1(node.func) == expected for where, node in made)


def _is_read(name: str, config: Mapping[str, str], arguments: Mapping[str, cst.BaseExpression], ctx: Context) -> bool:
    given = arguments.get(name)
    return given is not None and any(text.startswith(f"{ctx.code(given)}.") for text in config.values())


def _choice(made: Sequence[tuple[Origin, str]], at: cst.Call, ctx: Context) -> str:
    """`not shared` for what is True in the `else` of `if shared:` and False in its body; nothing for any other."""
    nodes = [(origin.node, text) for origin, text in made if origin.file is ctx and origin.node is not None]
    if len(nodes) != 2 or len(made) != 2:
        return ""
    (first, text), (second, _) = nodes
    around = set(ctx.ancestors(second))
    branch = next((outer for outer in ctx.ancestors(first) if outer in around), None)
    if not isinstance(branch, cst.If) or not isinstance(branch.test, (cst.Name, cst.Attribute)):
        return ""
    if not ctx.same_meaning(branch.test, at) or not isinstance(branch.orelse, cst.Else):
        return ""
    is_first = any(outer is branch.body for outer in ctx.ancestors(first))
    if is_first == any(outer is branch.body for outer in ctx.ancestors(second)):
        return ""
    test = ctx.code(branch.test)
    return test if is_first == (text == "True") else f"not {test}"


def _of_class(value: cst.BaseExpression, ctx: Context) -> list[Origin]:
    """`config = FullStateDictConfig(…)` in the body of a class, of which no other file and no store says anything."""
    owner = enclosing(ctx, value, cst.ClassDef)
    name = value.attr.value if isinstance(value, cst.Attribute) else ""
    if owner is None or not name or any(where is not ctx for where in ctx.files(name)):
        return []
    named = [node for node in ctx.nodes(cst.Assign) if any(_last(t.target) == name for t in node.targets)]
    is_one = len(named) == 1 and ctx.scope(named[0]) is owner
    return [Origin(ctx, named[0].value)] if is_one else []


def _last(target: cst.BaseExpression) -> str:
    if isinstance(target, cst.Attribute):
        return target.attr.value
    return target.value if isinstance(target, cst.Name) else ""


def config_fields(
    origin: Origin, expected: str, value: cst.BaseExpression, at: cst.Call, ctx: Context
) -> Mapping[str, str]:
    if origin.is_none:
        return CONFIG_FIELDS[expected]
    if not isinstance(origin.node, cst.Call) or origin.file.fsdp1(origin.node.func) != expected:
        raise NotStatic(f"the config is `{ctx.code(value)}`")
    found = dict(CONFIG_FIELDS[expected])
    for index, argument in enumerate(origin.node.args):
        name = argument.keyword.value if argument.keyword is not None else list(found)[index]
        text = _constant(argument.value, origin.file)
        if not text and origin.file is ctx and ctx.same_meaning(argument.value, at):
            text = ctx.code(argument.value)
        if argument.star or not text:
            raise NotStatic(f"the config's {name} is only known where it is made")
        found[name] = text
    return found


def _constant(value: cst.BaseExpression, ctx: Context) -> str:
    """True or False, where each origin of a value is that; else nothing."""
    texts = {o.file.code(o.node) if o.node is not None else "" for o in ctx.origins(value)}
    return texts.pop() if len(texts) == 1 and texts <= {"True", "False"} else ""


def _dead(arguments: Mapping[str, cst.BaseExpression], ctx: Context) -> Iterator[cst.CSTNode]:
    for name in _ORDER[2:]:
        for origin in ctx.origins(arguments[name]) if name in arguments else ():
            if origin.file is ctx and origin.node is not None:
                statement = assignment_only_for(ctx, origin.node, lambda use: is_context_argument(use, ctx))
                if statement is not None:
                    yield statement
        for origin in _of_class(arguments[name], ctx) if name in arguments else ():
            attribute = cst.ensure_type(arguments[name], cst.Attribute).attr.value
            uses = [node for node in ctx.nodes(cst.Attribute) if node.attr.value == attribute]
            line = enclosing(ctx, origin.node, cst.SimpleStatementLine) if origin.node is not None else None
            if line is not None and all(is_context_argument(use, ctx) for use in uses):
                yield line


def _with_conditions(dead: Sequence[cst.CSTNode], ctx: Context) -> tuple[cst.CSTNode, ...]:
    """Dead statements, with the `if` and `else` around them that hold nothing else."""
    outer = {statement: ctx.parent(ctx.parent(statement) or statement) for statement in dead}
    outer = {node: ctx.parent(each) if isinstance(each, cst.Else) else each for node, each in outer.items()}
    left = {each for each in outer.values() if isinstance(each, cst.If) and not _is_all_dead(each, dead, ctx)}
    found = [each if isinstance(each, cst.If) and each not in left else node for node, each in outer.items()]
    return tuple(dict.fromkeys(found))


def _is_all_dead(choice: cst.If, dead: Sequence[cst.CSTNode], ctx: Context) -> bool:
    if not isinstance(choice.orelse, cst.Else) or any(isinstance(n, cst.Call) for n in ctx.inside(choice.test)):
        return False
    if isinstance(ctx.parent(choice), cst.If):
        return False  # an `elif`
    return all(statement in dead for block in (choice.body, choice.orelse.body) for statement in block.body)


def is_context_argument(use: cst.CSTNode, ctx: Context) -> bool:
    call = call_given(use, ctx)
    return call is not None and (ctx.fsdp1(call.func) in {CONTEXT, SET} or helper_of(call, ctx) is not None)
