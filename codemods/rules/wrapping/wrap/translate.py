"""Each argument of a constructor call is handed to the function that knows it, and the draft takes up what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import Context, Level, NotStatic
from codemods.reading.models.makeup import makeup
from codemods.tables.arguments import DROPPED

from .draft import Draft, Entry, Note, Switch, Value
from .kwargs.passed_dict import keep_dict, pass_dict_on
from .kwargs.unread import drop_unread
from .lacks_forward import lacks_forward
from .mesh import given_ranks, translate_mesh
from .policy import switch_policy, translate_policy
from .policy.at_run_time import find_units
from .policy.made_elsewhere import policy_of_entry
from .settings.unused_settings import drop_field
from .strategy import read_strategy, translate_strategy
from .strategy.names import Strategy
from .tensors import ignored
from .tensors.attributes import carry_attributes
from .tensors.batch_norm import find_batch_norm, keep_in_float32
from .tensors.device import device_of_entry, infer_device, translate_device
from .tensors.memory_format import undo_channels_last
from .tensors.meta import meta_of_entry, translate_meta
from .tensors.moved_elsewhere import find_parameters
from .tensors.placement import (
    offload_of_entry,
    switch_offload,
    switch_sync,
    sync_of_entry,
    translate_offload,
    translate_sync,
)
from .tensors.precision import may_be_none, precision_of_entry, switch_precision, translate_precision
from .unused import reduce_unused

Translate = Callable[[cst.BaseExpression, Draft], None]

# The order is the order of the statements written: ranks are made equal before buffers are cast, and the policy comes
# before the precision that depends on there being inner units.
TRANSLATORS: Mapping[str, Translate] = {
    "sync_module_states": translate_sync,
    "auto_wrap_policy": translate_policy,
    "mixed_precision": translate_precision,
    "cpu_offload": translate_offload,
}

SWITCHES: Mapping[str, Callable[[Switch, Draft], None]] = {
    "auto_wrap_policy": switch_policy,
    "mixed_precision": switch_precision,
    "cpu_offload": switch_offload,
    "sync_module_states": switch_sync,
}
"""What can be given under a condition."""

ENTRIES: Mapping[str, Callable[[Entry, Draft], None]] = {
    "auto_wrap_policy": policy_of_entry,
    "sync_module_states": sync_of_entry,
    "mixed_precision": precision_of_entry,
    "cpu_offload": offload_of_entry,
}
"""What can come out of a dict at run time."""


_ANYHOW = frozenset({"device_mesh", "process_group", "sharding_strategy"})
"""What decides over which ranks: however it is given."""

_CONTAINERS = frozenset({"torch.nn.ModuleDict", "torch.nn.ModuleList"})
_NO_ROOT = "the model is a container without a forward: its units are sharded, and what it holds beside them is not"
_MAY_BE_CONTAINER = "where the model is a container without a forward, fully_shard refuses it, which FSDP1 took"
_SHARD_PARTS = "shard what it holds there"
_GIVEN_FORWARD = Note(
    "the model is a container that is given a forward: fully_shard refuses it, and FSDP1's root trained what lies "
    "beside the units",
    "make it an object of a class that has this forward",
    Level.MANUAL,
)


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments by how they are known, without those that FSDP2 needs none of where they are not spelled out."""

    every: Mapping[str, Value]
    spelled: Mapping[str, cst.BaseExpression]
    switched: Mapping[str, Switch]
    entries: Mapping[str, Entry]


def translate(given: Mapping[str, Value], made: Draft, needless: Mapping[str, Entry] = {}) -> None:
    """Fill a draft with what the arguments by name become; `needless` are entries of a dict that the call overrides.

    Raises NotStatic, with the argument that stands in the way.
    """
    found = _sorted(given)
    made.given = frozenset(given)
    made.built = makeup(made.file, made.call)
    _find_root(made)
    nothing = {name for name, value in found.spelled.items() if all(o.is_none for o in made.file.origins(value))}
    made.present = made.given - nothing
    _translate_device(found, made)
    strategy = _translate_ranks(found, made)
    with _writing(next((name for name in ignored.NAMES if name in given), ""), made):
        ignored.translate_ignored(found.spelled, found.switched, found.entries, made)
    found = _without_meta(found, made)
    _translate_each(found, strategy, made)
    if not made.has_root:
        if made.selector is None:
            raise NotStatic("the model is a container without a forward, which fully_shard refuses")
        made.notes.append(Note(_NO_ROOT))
    keep_in_float32(made)
    find_units(made)
    for name in DROPPED:
        if name in found.spelled:
            _note_dropped(name, found.spelled[name], made)
            drop_field(name, found.spelled[name], made)
    reduce_unused(made)
    carry_attributes(given.get("use_orig_params"), made)
    made.says = frozenset((*made.common_kwargs, *made.unit_kwargs, *made.root_kwargs, *made.passed.values()))
    _finish_dict(found, needless, {"sharding_strategy"} if strategy.known is not None else set(), made)


def _sorted(given: Mapping[str, Value]) -> _Given:
    spelled = {name: value for name, value in given.items() if isinstance(value, cst.BaseExpression)}
    switched = {name: value for name, value in given.items() if isinstance(value, Switch) and name not in DROPPED}
    entries = {name: value for name, value in given.items() if isinstance(value, Entry) and name not in DROPPED}
    refused = (switched.keys() - {*_ANYHOW, *SWITCHES, *ignored.AT_RUN_TIME}) | (
        entries.keys() - {"device_id", "param_init_fn", *_ANYHOW, *ENTRIES, *ignored.AT_RUN_TIME}
    )
    if refused:
        raise NotStatic(f"{', '.join(sorted(refused))} is given under a condition, or comes out of a dict")
    return _Given(given, spelled, switched, entries)


def _find_root(made: Draft) -> None:
    """Whether the model itself can be a unit, as containers of modules cannot, and whether it ever runs."""
    own = _made_here(made)
    containers = [each for each in own if each[0].dotted(each[1].func) in _CONTAINERS]
    is_container = bool(containers) and len(containers) == len(own) and _is_seen(made)
    made.has_root = not is_container or _is_given_forward(containers, made)
    made.runs_root = made.has_root and not (own and all(lacks_forward(where, each) for where, each in own))
    if containers and made.has_root:
        made.notes.append(_GIVEN_FORWARD if is_container else Note(_MAY_BE_CONTAINER, _SHARD_PARTS))


def _translate_device(given: _Given, made: Draft) -> None:
    """The device is set before a mesh is made of such devices, and before anything is moved to it."""
    with _writing("device_id", made):
        if "device_id" in given.spelled:
            translate_device(given.spelled["device_id"], made)
        elif "device_id" in given.entries:
            device_of_entry(given.entries["device_id"], made)
    if not made.device_type and not made.device:
        infer_device(made)
        if not made.device_type:
            find_parameters(made)


def _translate_ranks(given: _Given, made: Draft) -> Strategy:
    ranks = given_ranks(given.every, made)
    with _writing("sharding_strategy", made):
        strategy = read_strategy(given.every.get("sharding_strategy"), made, ranks)
    with _writing(ranks.argument if ranks is not None else "sharding_strategy", made):
        translate_mesh(ranks, strategy, made)
    return strategy


def _without_meta(given: _Given, made: Draft) -> _Given:
    """What is left to translate once models on the meta device have their values."""
    with _writing("param_init_fn", made):
        if "param_init_fn" in given.entries:
            return replace(given, entries=meta_of_entry(given.entries, made))
        return replace(given, spelled=translate_meta(given.spelled, made))


def _translate_each(given: _Given, strategy: Strategy, made: Draft) -> None:
    undo_channels_last(made)
    precision = given.every.get("mixed_precision")
    made.may_lack_precision = may_be_none(precision, made.file)
    find_batch_norm(precision, made)
    for name, translate_one in TRANSLATORS.items():
        if name == "cpu_offload":
            translate_strategy(strategy, made)
        with _writing(name, made):
            if name in given.spelled:
                translate_one(given.spelled[name], made)
            elif name in given.switched:
                SWITCHES[name](given.switched[name], made)
            elif name in given.entries:
                ENTRIES[name](given.entries[name], made)


def _finish_dict(given: _Given, needless: Mapping[str, Entry], said: set[str], made: Draft) -> None:
    """What becomes of the dict that arguments come out of."""
    spelled = {name: value for name, value in given.every.items() if isinstance(value, Entry)} | dict(needless)
    if made.goes_on:
        pass_dict_on(spelled, said, made)
    elif spelled:
        keep_dict(spelled, made)
        drop_unread(spelled, said, made)


@contextmanager
def _writing(argument: str, made: Draft) -> Iterator[None]:
    """What is put before the call inside is there for an argument."""
    known = [*made.before]
    yield
    made.written_for |= {text: argument for text in made.before if text not in known}


def _made_here(made: Draft) -> list[tuple[Context, cst.Call]]:
    """The calls that make the model: in the function of the wrap where some are, since a helper that loads any model
    returns those of other programs too.
    """
    own = made.file.scope(made.call)
    return [each for each in made.built.made if each[0].scope(each[1]) is own] or made.built.made


def _is_seen(made: Draft) -> bool:
    """Whether each way that leads to the model begins with a call that makes it, this one aside."""
    origins = made.file.origins(made.module)
    return all(isinstance(origin.node, cst.Call) or origin.is_none for origin in origins)


def _is_given_forward(containers: Iterable[tuple[Context, cst.Call]], made: Draft) -> bool:
    """Whether something is stored as `forward` where the container is made or wrapped."""
    places = {made.file.scope(made.call), *(where.scope(call) for where, call in containers)}
    return any(
        isinstance(where.parent(node), cst.AssignTarget) and where.scope(node) in places
        for where, node in made.file.attributes("forward")
    )


def _note_dropped(name: str, value: cst.BaseExpression, made: Draft) -> None:
    """Dropping never changes what is trained; it can change memory and overlap, and then it is said."""
    text = made.file.code(value)
    if name == "backward_prefetch" and not text.endswith("BACKWARD_PRE"):
        made.notes.append(Note(f"backward_prefetch={text} is dropped: {DROPPED[name]}; memory and overlap may differ"))
    if name == "forward_prefetch" and text not in {"False", "True"}:
        made.notes.append(Note(f"forward_prefetch={text} is dropped: {DROPPED[name]}"))
