"""FSDP1's sharding strategies and what they are in FSDP2.

Measured on torch 2.13 (gloo, 2 and 4 ranks): same shard groups and the same number of all-gathers and
reduce-scatters a step. `reshard_after_forward` is left out for FULL_SHARD: FSDP1 never frees the root after
forward, and that is FSDP2's default; an explicit True would free it (torch >= 2.8).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Strategy:
    """One member of `ShardingStrategy`."""

    name: str
    reshard_after_forward: str
    """The argument for every `fully_shard` call; empty to leave it out."""
    mesh: str
    """The mesh it needs: "" for the default one, else the dimension names."""


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy("FULL_SHARD", "", ""),
        Strategy("SHARD_GRAD_OP", "False", ""),
        Strategy("HYBRID_SHARD", "", "replicate, shard"),
        Strategy("_HYBRID_SHARD_ZERO2", "False", "replicate, shard"),
        Strategy("NO_SHARD", "", "replicate, shard of size 1"),
    )
}
