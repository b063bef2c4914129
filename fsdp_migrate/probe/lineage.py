"""The optimizers of a program, and how far it has got: one may take another's place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch.optim import Optimizer

_RUNAWAY = 20
"""Stop after this many times the wanted steps in all, when one of several optimizers never gets to its share."""
_PASSED_OVER = 2
"""Backwards after which an optimizer that only younger ones follow is taken to be done with."""


@dataclass(slots=True)
class Seen:
    """What is known about one optimizer; `steps` counts the ones it made, `attempts` the skipped ones too."""

    number: int
    steps: int = 0
    attempts: int = 0
    depth: int = 0
    hyper: list[dict[str, object]] = field(default_factory=list)
    held: frozenset[int] = frozenset()
    roots: frozenset[int] = frozenset()
    waits: bool = False
    """A root of its was called since it last stepped."""
    passed_over: int = 0
    """Backwards since it last stepped after which a younger optimizer stepped."""
    passed_in: int = -1
    replaced: bool = False
    """A younger one that holds some of its parameters has stepped since."""

    @property
    def is_done(self) -> bool:
        return self.replaced or (self.passed_over >= _PASSED_OVER and bool(self.roots) and not self.waits)


class Lineage:
    """All optimizers, in the order of their first step."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Optimizer, Seen]] = {}

    def of(self, optimizer: Optimizer) -> Seen:
        known = self._known.get(id(optimizer))
        if known is None:  # the optimizer is kept alive with it, so that its id is not given to another
            known = self._known[id(optimizer)] = (optimizer, Seen(len(self._known)))
        return known[1]

    def called(self, root: int) -> None:
        """A root had a forward that will have a backward."""
        for seen in self._all():
            seen.waits |= root in seen.roots

    def attempted(self, seen: Seen, backward: int) -> None:
        """`seen` stepped, or was skipped, after so many backwards."""
        seen.attempts += 1
        seen.passed_over, seen.waits, seen.replaced = 0, False, False
        for older in self._all():
            if older.number < seen.number and older.passed_in != backward:
                older.passed_in = backward
                older.passed_over += 1
                older.replaced |= bool(older.held & seen.held)

    def is_enough(self, wanted: int) -> bool:
        """Whether each optimizer that is still in use has made the wanted steps. Those of one whose place another has
        taken (over the same parameters, or over a model that was built again) count for its heirs."""
        inherited = sum(seen.attempts for seen in self._all() if seen.is_done)
        in_use = min(seen.attempts for seen in self._all() if not seen.is_done)
        return inherited + in_use >= wanted or sum(seen.attempts for seen in self._all()) >= _RUNAWAY * wanted

    def _all(self) -> Iterable[Seen]:
        return [seen for _, seen in self._known.values()]
