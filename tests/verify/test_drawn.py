"""What the tool makes of a program with options drawn at random trains as the program did."""

from __future__ import annotations

import pytest

from fsdp_migrate.verify import Verdict
from tests.verify.drawn import drawn, judged

FIRST = [drawn(number) for number in range(12)]


@pytest.mark.dist
def test_each_of_the_first_dozen_passes() -> None:
    found = list(judged(FIRST))
    assert len(found) == len(FIRST)
    assert [(case.name, case.options, reason) for case, verdict, reason in found if verdict is not Verdict.PASS] == []
