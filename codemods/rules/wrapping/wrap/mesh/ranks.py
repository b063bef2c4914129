"""The group or the mesh that a constructor call is given, in whichever way it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import NotStatic, Origin
from codemods.reading.code.shapes import indexed_front
from codemods.reading.processes.accelerators import DEVICE_TYPE, names_another
from codemods.reading.values.choices import written

from ..draft import Draft, Entry, Switch, Value


@dataclass(frozen=True, slots=True)
class Ranks:
    """`device_mesh` or `process_group`, where it is not None for sure."""

    argument: str
    text: str
    origins: tuple[Origin, ...]
    node: cst.BaseExpression | None
    """The argument itself, where the call shows it."""
    may_be_none: bool
    instead: Ranks | None = None
    """The group that is given where the mesh is None: FSDP1 refuses both."""

    @property
    def is_one_group(self) -> bool:
        """Whether it is no pair of groups, which a hybrid strategy needs."""
        nodes = (self.node, *(origin.node for origin in self.origins))
        is_pair = any(isinstance(node, cst.Tuple) for node in nodes)
        return self.argument == "process_group" and not self.may_be_none and not is_pair

    @property
    def is_made(self) -> bool:
        """Whether its text would make another one each time it is written: `make_groups()[0]` does, too."""
        return self.node is None or not isinstance(indexed_front(self.node), cst.Name)

    def held(self, draft: Draft, *names: str) -> str:
        """Its text, which can be repeated: under one of these names, where it would make another one each time."""
        return draft.held(self.text, *names) if self.is_made else self.text


def ranks_of(argument: str, value: Value | None, draft: Draft) -> Ranks | None:
    """What an argument gives; None where that is nothing. Raises NotStatic."""
    if value is None:
        return None
    if isinstance(value, Entry):
        none = value.may_lack or _may_be_none(value.values)
        return None if _is_none(value.values) else Ranks(argument, value.text, value.values, None, none)
    if isinstance(value, Switch):
        return _switched(argument, value, draft)
    origins = tuple(draft.file.origins(value))
    is_unseen = _may_be_none(origins) and not isinstance(value, cst.Call)  # what a library makes is taken for a group
    none = is_unseen or any(origin.is_none for origin in origins)
    return None if _is_none(origins) else Ranks(argument, draft.file.quote(value), origins, value, none)


def _switched(argument: str, value: Switch, draft: Draft) -> Ranks | None:
    """One that a condition decides about."""
    sides: list[cst.BaseExpression] = []
    texts = ["None", "None"]
    for index, side in enumerate((value.body, value.orelse)):
        if isinstance(side, cst.BaseExpression):
            sides.append(side)
            texts[index] = draft.file.quote(side)
        elif side is not None:
            raise NotStatic(f"{argument} is given under several conditions")
    origins = [origin for side in sides for origin in draft.file.origins(side)]
    if _is_none(origins):
        return None
    text = f"{texts[0]} if {written(draft.file, value.test, {})} else {texts[1]}"
    return Ranks(argument, text, tuple(origins), None, len(sides) < 2 or _may_be_none(origins))


def _is_none(origins: Sequence[Origin]) -> bool:
    return all(origin.is_none for origin in origins)


def _may_be_none(origins: Sequence[Origin]) -> bool:
    """Whether a parameter or an attribute can hold None."""
    return any(origin.is_none or origin.node is None for origin in origins)


CUDA = '"cuda"'


def device_type(draft: Draft) -> str:
    """The text of the kind of device that a mesh is made for: CUDA where the program speaks of nothing else.

    Of one that speaks of none, it is what the machine has, as under FSDP1.
    """
    other = another_type(draft)
    if not other and not draft.device_type and not draft.file.mentions("cuda"):
        return f'{CUDA} if {draft.imported("torch")}.cuda.is_available() else "cpu"'
    return other or CUDA


def another_type(draft: Draft) -> str:
    """The same where it need not be CUDA; empty where it is, or is not seen."""
    if draft.any_device:
        return f"{draft.any_device}.type"
    if is_any_accelerator(draft):
        return f"{draft.imported('torch')}.{DEVICE_TYPE}"
    return '"cpu"' if draft.device_type == "cpu" else ""


def is_any_accelerator(draft: Draft) -> bool:
    """Whether the program also runs on another one, and does not name CUDA for this model."""
    return not draft.device_type and names_another(draft.file)


def counted(device: str, draft: Draft) -> str:
    """The number of devices of a kind, which is written as `device_type` does."""
    torch = draft.imported("torch")
    if draft.any_device:
        return f"{torch}.get_device_module({draft.any_device}).device_count()"
    return f"{torch}.{'cuda' if device.startswith(CUDA) else 'accelerator'}.device_count()"
