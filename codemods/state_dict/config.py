"""From the arguments of `FSDP.state_dict_type(...)` to the `StateDictOptions` that give the same state dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from codemods.dead import assignment_only_for
from codemods.tables.state_dicts import CONFIGS, CONTEXT, FULL
from codemods.vocabulary import File, Undecided

_ORDER = ("module", "state_dict_type", "state_dict_config", "optim_state_dict_config")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a context asked for."""

    model: cst.BaseExpression
    reading: str
    """The text of the `StateDictOptions` to read with; empty for sharded state dicts, which need none."""
    loading: str
    """The same for loading."""
    differs: str
    """What is not as FSDP1 had it; empty when everything is."""
    dead: tuple[cst.CSTNode, ...] = ()
    """Statements that made a config which only such contexts used."""


def settings(call: cst.Call, file: File) -> Settings:
    """Raises Undecided when the type or its config is not seen in the source."""
    arguments = _arguments(call)
    model = arguments.get("module")
    if model is None:
        raise Undecided("the model is not among its arguments")
    kind = _kind(arguments.get("state_dict_type"), file)
    if kind == "SHARDED_STATE_DICT":
        return Settings(model, "", "", "")
    reading, differs = _full(arguments, file)
    loading = "StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)"
    return Settings(model, reading, loading, differs, tuple(_dead(arguments, file)))


def _arguments(call: cst.Call) -> dict[str, cst.BaseExpression]:
    found = {}
    for index, argument in enumerate(call.args):
        if argument.star:
            raise Undecided("its arguments come from `*args` or `**kwargs`")
        found[argument.keyword.value if argument.keyword is not None else _ORDER[index]] = argument.value
    return found


def _kind(value: cst.BaseExpression | None, file: File) -> str:
    made = file.fsdp1(value) if value is not None else None
    if made not in {"StateDictType.FULL_STATE_DICT", "StateDictType.SHARDED_STATE_DICT"}:
        raise Undecided(f"the type is `{file.code(value) if value is not None else 'not given'}`")
    return made.split(".")[1]


def _full(arguments: Mapping[str, cst.BaseExpression], file: File) -> tuple[str, str]:
    """The text of the options to read a full state dict, and what differs."""
    found = {_config(arguments[name], file) for name in CONFIGS if name in arguments}
    if len(found) > 1:
        raise Undecided("the model's config and the optimizer's differ")
    offload, rank0_only = found.pop() if found else ("False", "False")
    if rank0_only not in {"True", "False"}:
        raise Undecided("rank0_only is only known at run time")
    if offload not in {"True", "False"}:
        differs = "" if rank0_only == "True" else "the state dict is on rank 0 only where it is offloaded"
        return f"StateDictOptions(full_state_dict=True, cpu_offload={offload})", differs
    row = FULL[offload == "True", rank0_only == "True"]
    offloaded = ", cpu_offload=True" if row.cpu_offload else ""
    return f"StateDictOptions(full_state_dict=True{offloaded})", row.differs


def _config(value: cst.BaseExpression, file: File) -> tuple[str, str]:
    """`(offload_to_cpu, rank0_only)` of a full config, as text."""
    origins = file.origins(value)
    if len(origins) == 1 and origins[0].is_none:
        return "False", "False"
    node = origins[0].node if len(origins) == 1 else None
    if not isinstance(node, cst.Call) or origins[0].file.fsdp1(node.func) not in CONFIGS.values():
        raise Undecided(f"the config is `{file.code(value)}`")
    found = {"offload_to_cpu": "False", "rank0_only": "False"}
    for index, argument in enumerate(node.args):
        name = argument.keyword.value if argument.keyword is not None else list(found)[index]
        found[name] = origins[0].file.code(argument.value)
    return found["offload_to_cpu"], found["rank0_only"]


def _dead(arguments: Mapping[str, cst.BaseExpression], file: File) -> Iterator[cst.CSTNode]:
    for name in CONFIGS:
        for origin in file.origins(arguments[name]) if name in arguments else ():
            if origin.file is file and origin.node is not None:
                statement = assignment_only_for(file, origin.node, lambda use: _is_context_argument(use, file))
                if statement is not None:
                    yield statement


def _is_context_argument(use: cst.Name, file: File) -> bool:
    argument = file.parent(use)
    call = file.parent(argument) if isinstance(argument, cst.Arg) else None
    return isinstance(call, cst.Call) and file.fsdp1(call.func) == CONTEXT
