"""FM203: `with FSDP.summon_full_params(model)`."""

from __future__ import annotations

import pytest

from codemods.vocabulary import Level

from ..helpers import check_marked, check_noop, rewrite

HEAD = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef use(net, x):\n    model = FSDP(net)\n"
)


def test_another_librarys_class_stays() -> None:
    check_noop("from other import FSDP\nwith FSDP.summon_full_params(model):\n    pass\n")


CASES = [
    "with {}(model):\n        pass",
    "with {}(model, writeback=False, rank0_only=True, offload_to_cpu=True):\n        pass",
    "with {}(model): x()",
    "with x, {}(model) as y:\n        pass",
    "with x:\n        with {}(model):\n            x()",
]


@pytest.mark.parametrize("statement", CASES)
def test_context_is_the_support_modules(statement: str) -> None:
    result = rewrite(HEAD + "    " + statement.format("FSDP.summon_full_params") + "\n")
    assert result.text.endswith("    " + statement.format("summon_full_params") + "\n")
    assert result.support == {"summon_full_params"}


def test_other_uses_raise() -> None:
    check_marked(HEAD + "    return FSDP.summon_full_params(model)\n", "FM203", Level.MANUAL, "summon_full_params")
