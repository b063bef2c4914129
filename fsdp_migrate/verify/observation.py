"""One run as the checks see it: the ranks' partial sums added up."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from fsdp_migrate.verify.accounting import Use
from fsdp_migrate.verify.records import RankRecords, Record
from fsdp_migrate.verify.saved import SavedFile, saved_files
from fsdp_migrate.verify.sketches import Sketch


@dataclass(frozen=True, slots=True)
class Unit:
    """One shard group, see `fsdp_migrate.probe.units.Unit`."""

    root: int
    fqn: str
    api: str
    params: tuple[str, ...]
    numel: int
    padded_numel: int
    reduced_numel: int
    storage_dtype: str
    param_dtype: str
    reduce_dtype: str
    strategy: str
    shard_world: int

    @property
    def key(self) -> tuple[int, tuple[str, ...]]:
        return self.root, self.params

    @property
    def name(self) -> str:
        return self.fqn or "(root)"


Sketches = dict[str, Sketch]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """One optimizer. `params` are its groups' parameter names; `hyper` its settings at each step it made."""

    cls: str
    params: tuple[tuple[str, ...], ...]
    hyper: tuple[list[dict[str, Any]], ...]
    norms: tuple[float, ...]
    norms_before: tuple[float | None, ...]
    state_bytes: int
    stirs: bool

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(sorted(name for group in self.params for name in group))

    def settings(self, step: int) -> dict[str, dict[str, Any]]:
        """Hyper-parameters of every parameter at one step, by name."""
        return {name: hyper for names, hyper in zip(self.params, self.hyper[step], strict=True) for name in names}


@dataclass(frozen=True, slots=True)
class Loss:
    """One backward's loss on each rank; `step` is the optimizer step it led to."""

    step: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Float8:
    """The linear layers that compute in float8."""

    linears: int
    """In the model with the most."""
    numel: int
    """Elements of the weights that are gathered in float8."""
    steps: int
    """Forwards that were the first behind a step of an optimizer, where any weight is gathered in float8."""
    precomputed: int
    """Those at which each weight had a scale that was computed from it as it was."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished run."""

    world: int
    units: tuple[Unit, ...]
    steps: tuple[int, ...]
    """Optimizer steps seen on each rank."""
    losses: tuple[Loss, ...]
    uneven_losses: bool
    optimizers: tuple[Optimizer, ...]
    init: Sketches
    start: Sketches
    gradients: Sketches
    without_gradient: frozenset[str]
    end: Sketches
    buffers: dict[str, tuple[float, float]]
    carried: tuple[bool, ...]
    """At each step, whether its first backward found gradients of the step before."""
    comm: tuple[dict[str, tuple[int, int]], ...]
    forwards: int
    """Forwards of FSDP roots, with gradients, over all steps on the first rank."""
    unit_forwards: int
    """The same of the unit that is called most often in a step."""
    recomputed: int
    """Forwards of FSDP units inside of a backward, in the step with the most: activation checkpointing."""
    loss_dtypes: tuple[str, ...]
    """Of the tensors that backwards began with."""
    seconds: tuple[float, ...]
    peaks: tuple[float | None, ...]
    flags: dict[str, Any]
    autocast: str | None
    ranks_disagree: tuple[str, ...]
    meta_params: bool
    redrawn: bool
    """Whether weights got other values after `fully_shard` and before the first forward."""
    draws_repeat: bool
    """Whether random numbers were drawn into DTensors where each rank draws the same ones, unlike on CUDA."""
    errors: tuple[str, ...]
    outside: tuple[str, ...]
    """Files it wrote outside its scratch copy, but for temporary ones; `written` has all."""
    written: tuple[str, ...]
    read_back: tuple[str, ...]
    """Files it read that an earlier run of the check had written."""
    float8: Float8 | None
    """None where torchao's float8 was not imported."""
    ends: tuple[str, ...]
    files: tuple[SavedFile, ...]
    uses: frozenset[Use]
    evaluated_before_step: int | None
    """The first step before which a forward without gradients came between backward and step."""
    gathered_among_fewer: tuple[int, ...] = ()
    """The bytes that each step gathers among fewer ranks than there are."""

    @property
    def fsdp1(self) -> int:
        return sum(unit.api == "FSDP1" for unit in self.units)

    @property
    def fsdp2(self) -> int:
        return sum(unit.api == "FSDP2" for unit in self.units)


def merge(ranks: list[RankRecords]) -> Observation:
    """Add up the ranks of one run. `ranks` is not empty."""
    lead = ranks[0]
    losses, uneven = _losses(ranks)
    unit_record = lead.first("units")
    steps = [list(rank.of("step")) for rank in ranks]
    together = list(zip(*steps, strict=False))
    return Observation(
        world=len(ranks),
        units=tuple(_unit(raw) for raw in unit_record["units"]) if unit_record else (),
        steps=tuple(len(mine) for mine in steps),
        losses=losses,
        uneven_losses=uneven,
        optimizers=_optimizers(ranks),
        init=_sketches(ranks, "param@init"),
        start=_sketches(ranks, "param@start"),
        gradients=_sketches(ranks, "grad@0"),
        without_gradient=frozenset(r["fqn"] for rank in ranks for r in rank.of("missing") if r["local"]),
        end=_sketches(ranks, "param@end"),
        buffers={r["fqn"]: (r["sum"], r["sq"]) for r in lead.of("buffer")},
        carried=tuple(any(step["carried"] for step in group) for group in together),
        comm=tuple({kind: (c[0], c[1]) for kind, c in step["comm"].items()} for step in steps[0]),
        gathered_among_fewer=tuple(step["comm"].get("all_gather", (0, 0, 0))[2] for step in steps[0]),
        forwards=sum(step["forwards"] for step in steps[0]),
        unit_forwards=max((step.get("unit_forwards", 0) for step in steps[0]), default=0),
        recomputed=max((step.get("recomputed", 0) for step in steps[0]), default=0),
        loss_dtypes=tuple(sorted({r["dtype"] for rank in ranks for r in rank.of("loss_dtype")})),
        seconds=tuple(max(step["seconds"] for step in group) for group in together),
        peaks=tuple(_largest([step["peak_bytes"] for step in group]) for group in together),
        flags=_without_envelope(lead.first("flags")),
        autocast=next((r["dtype"] for r in lead.of("autocast") if r["dtype"]), None),
        ranks_disagree=_disagreements(ranks),
        redrawn=any(rank.first("redrawn") for rank in ranks),
        draws_repeat=any(rank.first("draws_repeat") for rank in ranks),
        meta_params=any(value is None for r in lead.of("handed") for _, value in r["digests"]),
        errors=tuple(
            f"rank {rank.rank}: {r['type']} in {r['where']}: {r['message']}" for rank in ranks for r in rank.of("error")
        ),
        outside=_outside(ranks, temporary=False),
        written=(*_outside(ranks, temporary=False), *_outside(ranks, temporary=True)),
        read_back=tuple(sorted({r["path"] for rank in ranks for r in rank.of("read_back")})),
        evaluated_before_step=_first_evaluation(lead),
        float8=_float8(ranks),
        files=saved_files(ranks),
        uses=frozenset(Use(r["path"], r["line"], r["name"], r["sharded"]) for rank in ranks for r in rank.of("use")),
        ends=tuple(str((rank.end or {}).get("reason", "none")) for rank in ranks),
    )


_ROUNDING = 1e-3
"""Of a scale: it is computed in another precision than it is looked at here."""


def _float8(ranks: list[RankRecords]) -> Float8 | None:
    together = list(zip(*(rank.of("float8") for rank in ranks), strict=False))
    if not together:
        return None
    first = [group[0] for group in together if group[0]["first"]]
    behind = [group for group in together if not group[0]["first"] and group[0]["filled"]]
    return Float8(
        linears=max((record["linears"] for record in first), default=0),
        numel=max((record["numel"] for record in first), default=0),
        steps=len(behind),
        precomputed=sum(_are_precomputed([record["filled"] for record in group]) for group in behind),
    )


def _are_precomputed(filled: list[list[float | None]]) -> bool:
    """Whether the largest element of each weight, over all ranks, is the largest number of float8."""
    largest = [max((part for part in parts if part is not None), default=0.0) for parts in zip(*filled, strict=True)]
    return all(abs(each - 1.0) < _ROUNDING for each in largest)


def _outside(ranks: list[RankRecords], temporary: bool) -> tuple[str, ...]:
    records = (r for rank in ranks for r in rank.of("outside"))
    return tuple(sorted({r["path"] for r in records if r.get("temporary", False) is temporary}))


def _unit(raw: Record) -> Unit:
    return Unit(**{**raw, "params": tuple(raw["params"])})


def _without_envelope(record: Record | None) -> dict[str, Any]:
    return {key: value for key, value in (record or {}).items() if key not in ("kind", "t")}


def _largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _sketches(ranks: list[RankRecords], which: str) -> Sketches:
    merged: Sketches = {}
    for rank in ranks:
        for r in rank.of("piece"):
            if r["which"] != which:
                continue
            whole = merged.setdefault(r["fqn"], Sketch([0.0] * len(r["s"])))
            whole.add(r, 1.0 / r["rep"])
            whole.numel, whole.replicas = r["N"], r["rep"]
            whole.heads[rank.rank] = tuple(r["head"])
    return merged


def _losses(ranks: list[RankRecords]) -> tuple[tuple[Loss, ...], bool]:
    """The backwards that all ranks made, and whether some rank made more than another within the same steps."""
    streams: list[list[tuple[int, float]]] = []
    for rank in ranks:
        stream: list[tuple[int, float]] = []
        step = 0
        for r in rank.records:
            if r["kind"] in ("step", "skipped"):
                stream += [(step, value) for value in r["losses"]]
                step += 1
        streams.append(stream)
    uneven = len({len(stream) for stream in streams}) > 1
    return tuple(Loss(group[0][0], tuple(value for _, value in group)) for group in zip(*streams, strict=False)), uneven


def _optimizers(ranks: list[RankRecords]) -> tuple[Optimizer, ...]:
    lead = ranks[0]
    found = []
    for record in lead.of("optimizer"):
        number = record["opt"]
        per_rank = [[s for s in rank.of("step") if s["opt"] == number] for rank in ranks]
        hyper: list[list[dict[str, Any]]] = []
        for step in per_rank[0]:
            hyper.append(step["hyper"] or (hyper[-1] if hyper else record["hyper"]))
        together = list(zip(*per_rank, strict=False))
        found.append(
            Optimizer(
                cls=record["cls"],
                params=tuple(tuple(names) for names in record["params"]),
                hyper=tuple(hyper),
                norms=tuple(math.sqrt(sum(s["norm_at_step"] or 0.0 for s in group)) for group in together),
                norms_before=tuple(_root_of_sum([s["norm_before"] for s in group]) for group in together),
                state_bytes=sum(r["bytes"] for rank in ranks for r in rank.of("state") if r["opt"] == number),
                stirs=record["stirs"],
            )
        )
    return tuple(found)


def _first_evaluation(rank: RankRecords) -> int | None:
    step = 0
    for record in rank.records:
        if record["kind"] == "step":
            step += 1
        elif record["kind"] == "evaluated_before_step":
            return step
    return None


def _root_of_sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return math.sqrt(sum(known)) if len(known) == len(parts) else None


def _disagreements(ranks: list[RankRecords]) -> tuple[str, ...]:
    """Names of the weights that ranks held different values of when they handed them to FSDP, and that were used as
    they were."""
    found: set[str] = set()
    redrawn = {tuple(place) for rank in ranks for r in rank.of("redrawn") for place in r["handed"]}
    seen: dict[tuple[int, int], float | None] = defaultdict(lambda: None)
    for rank in ranks:
        for order, record in enumerate(rank.of("handed")):
            if record["evened"]:
                continue
            for place, (name, digest) in enumerate(record["digests"]):
                known = seen[order, place]
                if known is None:
                    seen[order, place] = digest
                elif digest is not None and digest != known and (order, place) not in redrawn:
                    found.add(name)
    return tuple(sorted(found))
