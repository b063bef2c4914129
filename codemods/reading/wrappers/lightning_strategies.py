"""Lightning's own names: the strategy that wraps with FSDP1, and what runs one."""

from __future__ import annotations

_LIBRARIES = ("lightning.", "lightning_fabric.", "pytorch_lightning.")
_STRATEGIES = frozenset({"DDPFullyShardedNativeStrategy", "FSDPStrategy"})
_RUN = frozenset({"Fabric", "Trainer"})


def is_fsdp1_strategy(dotted: str | None) -> bool:
    return _is_of(dotted, _STRATEGIES)


def runs_strategies(dotted: str | None) -> bool:
    return _is_of(dotted, _RUN)


def _is_of(dotted: str | None, names: frozenset[str]) -> bool:
    """Whether it is one of these names in Lightning, which has them in several places."""
    return dotted is not None and dotted.startswith(_LIBRARIES) and dotted.rpartition(".")[2] in names
