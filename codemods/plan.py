"""The decisions about a program, made once for all of it before anything is rewritten.

The analysis, which a `Context` answers for, knows nothing of them: a rule that writes is handed a `PlannedContext`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import libcst as cst

from codemods.api import Context, Emission, Fix, KeepReason

if TYPE_CHECKING:
    from codemods.reading.optimizers.prewrap import Relocation
    from codemods.reading.state_dicts.settings import Settings
    from codemods.rules.wrapping.wrap.draft import Draft


class NotPlanned(Exception):
    """A decision was asked for that no plan holds: the call is no wrap site of the program. A fault of a rule."""


_IN_PLACE = Fix()
"""Of a setting that the plan says nothing about yet: each is tried as if the others went."""


@dataclass(frozen=True)
class WrapPlan:
    """What becomes of one wrap site."""

    emission: Emission
    draft: Draft | None = None
    """The FSDP2 code, where the emission is native; None for an `enable_wrap`, which goes."""
    reason: str = ""
    """Why the emission is not native."""
    relocations: tuple[Relocation, ...] = ()
    """What is done with what holds the parameters from before the wrap."""


@dataclass(frozen=True)
class Plan:
    """The decisions about one program."""

    wraps: Mapping[cst.Call, WrapPlan]
    """The constructor calls in the files that are rewritten, and the calls of what holds the class."""
    skipped: Mapping[Path, KeepReason]
    """The files whose FSDP1 stays, because of an FSDP2 path beside it or of a subclass of FSDP."""
    foreign: frozenset[Path]
    """The files that are not the user's to change: copies of torch's sources, generated files."""
    switches: Mapping[cst.Call, KeepReason]
    """For constructor calls in skipped files: what chooses between it and an FSDP2 path of the program's own."""
    skipped_wraps: frozenset[cst.Call]
    """The wrap sites in skipped files."""
    changed: frozenset[cst.CSTNode]
    """Where values are made that change, because the wrap sites they reach become `fully_shard` calls."""
    predicates: frozenset[cst.CSTNode]
    """The policies among them, should they change, that become functions of a module; others become their classes."""
    unchanged: frozenset[cst.CSTNode]
    """Where values are made that reach `shard_model` of the support module, which takes FSDP1's own."""
    sharded: frozenset[cst.ClassDef]
    """Classes whose objects a wrap site is seen to shard, and their bases."""
    near: frozenset[Path]
    """The files that can run in one process with a wrap site: what only other programs of the tree use is not."""
    state_dicts: Mapping[cst.Call, Fix | None] = field(default_factory=dict)
    """What becomes of each state-dict setting where it stands; None for one that the support module keeps."""
    keeping: frozenset[Path] = frozenset()
    """The files with a setting that the support module keeps at run time, for code that does not see it."""
    usual_settings: Mapping[Path, Settings] = field(default_factory=dict)
    """What is set for every model that comes to a file, where it is wrapped; nothing for most files."""

    def keeps_setting(self, call: cst.Call) -> bool:
        """Whether the support module keeps what this call sets."""
        return self.state_dicts.get(call, _IN_PLACE) is None

    @property
    def migrates(self) -> bool:
        """Whether any model becomes an FSDP2 model."""
        return any(wrap.emission is not Emission.SKIP for wrap in self.wraps.values())

    @property
    def built_before(self) -> frozenset[cst.CSTNode]:
        """What is built from a model's parameters before it is wrapped, and holds the sharded ones then."""
        early = (each.early for wrap in self.wraps.values() for each in wrap.relocations)
        return frozenset(holder.call for each in early for holder in each.holders)

    @property
    def uses_shard_model(self) -> bool:
        """Whether any wrap site goes through the support module."""
        return any(wrap.emission is Emission.SUPPORT for wrap in self.wraps.values())

    @property
    def reads_precision(self) -> bool:
        """Whether any wrap site takes a `MixedPrecision` as FSDP1 had it, which may be made anywhere."""
        drafts = (wrap.draft for wrap in self.wraps.values())
        return self.uses_shard_model or any(draft is not None and draft.reads_precision for draft in drafts)

    @property
    def units_cast(self) -> frozenset[cst.CSTNode]:
        """Where a `MixedPrecision` is made that goes on saying whether units cast their inputs."""
        drafts = (wrap.draft for wrap in self.wraps.values())
        return frozenset(node for draft in drafts if draft is not None for node in draft.units_cast)

    def emission(self, call: cst.Call) -> Emission:
        """How a wrap site is rewritten. Raises NotPlanned for any other call."""
        if call in self.skipped_wraps:
            return Emission.SKIP
        if call not in self.wraps:
            raise NotPlanned("how a call is rewritten that is no wrap site")
        return self.wraps[call].emission

    def is_native(self, call: cst.Call) -> bool:
        """Whether a call, whatever it calls, is a wrap site that becomes `fully_shard`."""
        return call in self.wraps and self.wraps[call].emission is Emission.NATIVE

    def is_drafted(self, call: cst.Call) -> bool:
        """Whether a call makes a model that becomes `fully_shard` calls: no `enable_wrap`, which goes."""
        return self.is_native(call) and self.wraps[call].draft is not None

    def is_kept(self, path: Path) -> bool:
        """Whether nothing in a file is rewritten."""
        return path in self.skipped or path in self.foreign

    def beside(self, path: Path) -> KeepReason | None:
        """The switch whose FSDP1 path a file serves; None for most files."""
        reason = self.skipped.get(path)
        return None if reason is None or isinstance(reason.node, cst.ClassDef) else reason

    @property
    def any_path_beside(self) -> KeepReason | None:
        """A switch that keeps a path of FSDP1; None for most programs."""
        return next((found for path in self.skipped if (found := self.beside(path)) is not None), None)

    def subclass(self, path: Path) -> KeepReason | None:
        """The subclass of FSDP whose models a file serves; None for most files."""
        reason = self.skipped.get(path)
        return reason if reason is not None and isinstance(reason.node, cst.ClassDef) else None


class PlannedContext(Context, Protocol):
    """A file of a program whose plan is made."""

    @property
    def plan(self) -> Plan: ...
