"""What a step costs: measured without the probe's own work, and said when the rewritten program costs more."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fsdp_migrate.probe.meter import Meter
from fsdp_migrate.verify import ParityReport
from tests.verify.test_unseen import report

MIB = 2**20


class FakeCuda:
    """A GPU whose clock and memory the test moves."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock, self.waiting, self.peak = 0.0, 0.0, 0
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        patch.setattr(torch.cuda, "synchronize", self.synchronize)
        patch.setattr(torch.cuda, "max_memory_allocated", lambda: self.peak)
        patch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: setattr(self, "peak", 0))
        patch.setattr("fsdp_migrate.probe.meter.time.perf_counter", lambda: self.clock)

    def work(self, seconds: float, peak: int) -> None:
        """Asked for at once, done later."""
        self.waiting += seconds
        self.peak = max(self.peak, peak)

    def synchronize(self) -> None:
        self.clock += self.waiting
        self.waiting = 0.0


def test_the_gpu_is_waited_for_and_the_probe_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeCuda(monkeypatch)
    meter = Meter()
    for seconds, peak in ((1.0, 500), (2.0, 400)):
        gpu.work(seconds, peak)
        with meter.set_aside():
            gpu.work(10.0, 9000)
        gpu.work(0.5, 300)
        assert meter.take() == (seconds + 0.5, peak)


def test_without_cuda_there_is_no_peak() -> None:
    meter = Meter()
    assert meter.take()[1] is None


def costs(seconds: float, peak: float | None, seconds2: float, peak2: float | None) -> ParityReport:
    return report(
        lambda run: replace(run, seconds=(9.0, *[seconds] * 3), peaks=(peak,) * 4),
        lambda run: replace(run, seconds=(9.0, *[seconds2] * 3), peaks=(peak2,) * 4),
    )


def test_a_slower_and_bigger_program_is_said_so() -> None:
    found = costs(0.1, 100 * MIB, 0.123, 112 * MIB)
    assert found.row("T0").value == "0.1000 -> 0.1230"
    assert found.row("M0").value == "100 -> 112 MiB"
    assert found.warnings == (
        "the rewritten program is 23% slower (seconds per step (median): 0.1000 -> 0.1230)",
        "the rewritten program is 12% bigger (peak CUDA memory: 100 -> 112 MiB)",
    )
    assert found.exit_code == 0


def test_one_that_costs_the_same_or_less_is_not() -> None:
    assert costs(0.1, 100 * MIB, 0.105, 103 * MIB).warnings == ()
    assert costs(0.1, 100 * MIB, 0.05, 50 * MIB).warnings == ()


def test_on_a_cpu_the_time_says_nothing() -> None:
    found = costs(0.1, None, 0.2, None)
    assert found.warnings == ()
    assert found.row("T0").value == "0.1000 -> 0.2000"
    with pytest.raises(KeyError):
        found.row("M0")
