"""Flat parameters that are moved to the CPU and back (FM443)."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._runtime_utils import _lazy_init


"""
MOVE = code(
    """
    def move(model, device):
        _lazy_init(model, model)
        assert model._is_root, "only a root"
        for handle in model._all_handles:
            if handle._offload_params:
                continue
            flat_param = handle.flat_param
            handle.flat_param_to(device, non_blocking=True)
            flat_param._local_shard = flat_param.data
        return model


    def main(net):
        return move(FSDP(net), "cpu")
    """
)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("        flat_param._local_shard = flat_param.data\n", "        print(flat_param.numel())\n"),
        ("        handle.flat_param_to(device, non_blocking=True)\n", ""),
        ("            continue\n", "            handle.reshard()\n"),
    ],
)
def test_a_loop_that_does_more_needs_a_person(line: str, other: str) -> None:
    assert line in MOVE
    found = {(each.rule, each.level) for each in rewrite(HEAD + MOVE.replace(line, other)).findings}
    assert ("FM401", Level.MANUAL) in found
    assert "FM443" not in {rule for rule, _ in found}


def test_the_model_is_moved() -> None:
    result = rewrite(HEAD + MOVE)
    assert "def move(model, device):\n    model.to(device, non_blocking=True)\n    return model\n" in result.text
    assert ("FM443", Level.REVIEW) in {(each.rule, each.level) for each in result.findings}
    assert "_lazy_init" not in result.text
