"""`make gains`: the programs of the table are what its rows say; the runs themselves are those of the fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.verify import Failure
from tests.upgrades.gains import VARIANTS, laid_out, table

SAYS = {
    "FSDP1": "FullyShardedDataParallel",
    "FSDP2": "fully_shard(model, mp_policy=mp_policy)",
    "`--reshard-after-forward 2`": "reshard_after_forward=2",
    "`--prefetch`": "set_modules_to_forward_prefetch",
    "`--float8`": "enable_fsdp_float8_all_gather=True",
    "`--float8=rowwise`": 'from_recipe_name("rowwise")',
    "`--compile`": ".compile()",
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_program_of_a_row(variant: str, tmp_path: Path) -> None:
    request = laid_out(VARIANTS[variant], tmp_path / "program")
    assert SAYS[variant] in request.rewritten.read_text()


def test_without_fsdp2_there_is_nothing_to_compare_with() -> None:
    with pytest.raises(AssertionError, match="it hung"):
        table({"FSDP2": Failure("rewritten", "it hung", "")})
