"""FM453: Lightning's FSDP strategy around a model that FSDP2 shards."""

from __future__ import annotations

import pytest

from ..helpers import rewrite, rewrite_files

TEXT = """\
import lightning as L
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Module(L.LightningModule):
    def configure_model(self):
        self.model = FSDP(self.model)


def main(module, strategy):
    L.Trainer({given}).fit(module)
"""


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ("strategy='fsdp'", True),
        ("strategy=FSDPStrategy(cpu_offload=True)", True),
        ("strategy=DDPStrategy()", False),
        ("strategy='ddp'", False),
        ("strategy=strategy", False),
        ("", False),
    ],
)
def test_strategy_of_a_trainer(given: str, is_told: bool) -> None:
    found = {finding.rule for finding in rewrite(TEXT.format(given=given)).findings}
    assert ("FM453" in found) == is_told


def test_script_that_shards_nothing() -> None:
    other = "import lightning as L\n\nL.Trainer(strategy='fsdp')\n"
    result = rewrite_files({"one.py": TEXT.format(given=""), "other.py": other})
    assert "FM453" not in {finding.rule for finding in result.findings}
