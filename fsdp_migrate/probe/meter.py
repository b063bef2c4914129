"""Seconds and peak CUDA memory of the program's steps, without what the probe itself needs in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Meter:
    """Runs from one `take()` to the next.

    The GPU works behind the program's back: the clock is read when it is done, or a step would cost as little as it
    takes to ask for it. The peak that torch keeps is started again after each of the probe's own pieces of work, whose
    float64 copies would otherwise be the program's peak.
    """

    def __init__(self) -> None:
        self._began = _now()
        self._aside = 0.0
        self._peak = 0

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """What is done inside is the probe's: no function mode sees it, neither the redirect's nor the program's."""
        began = _now()
        self._peak = max(self._peak, _peak_bytes())
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            if _on_cuda():
                torch.cuda.reset_peak_memory_stats()
            self._aside += _now() - began

    def take(self) -> tuple[float, int | None]:
        """(seconds, peak bytes) since the last time; no peak without CUDA."""
        now = _now()
        seconds, peak = now - self._began - self._aside, max(self._peak, _peak_bytes())
        self._began, self._aside, self._peak = now, 0.0, 0
        return seconds, peak or None


def _now() -> float:
    if _on_cuda():
        torch.cuda.synchronize()
    return time.perf_counter()


def _peak_bytes() -> int:
    return torch.cuda.max_memory_allocated() if _on_cuda() else 0


def _on_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
