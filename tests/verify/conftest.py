"""The runs that the tests of a session share."""

from __future__ import annotations

import pytest

from tests.verify.runs import Fleet


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet"))
