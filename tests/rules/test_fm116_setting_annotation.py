"""FM116: annotations of settings that have become FSDP2's own."""

from __future__ import annotations

import pytest

from ..helpers import code, meaning, rewrite

HEAD = """\
from typing import Optional

import torch
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


"""
STAYS = [
    pytest.param(
        "def wrap(net, strategy: ShardingStrategy):\n    return FSDP(net, sharding_strategy=strategy)\n", id="given"
    ),
    pytest.param(
        "def say(strategy: ShardingStrategy):\n    print(strategy.name)\n\n\n"
        "def wrap(net):\n    say(ShardingStrategy.FULL_SHARD)\n    return FSDP(net)\n",
        id="read otherwise",
    ),
]


@pytest.mark.parametrize("text", STAYS)
def test_what_stays_torchs_own_keeps_its_annotation(text: str) -> None:
    assert "strategy: ShardingStrategy)" in rewrite(HEAD + text).text


def test_variables_and_results() -> None:
    before = code(
        """
        def strategy(name) -> Optional[ShardingStrategy]:
            if name == "zero2":
                return ShardingStrategy.SHARD_GRAD_OP
            return ShardingStrategy.FULL_SHARD


        def wrap(net, args):
            offload: CPUOffload = CPUOffload(offload_params=args.offload)
            return FSDP(net, sharding_strategy=strategy(args.name), cpu_offload=offload)
        """
    )
    result = rewrite(HEAD + before)
    assert "def strategy(name) -> Optional[dict]:\n" in result.text
    assert "offload_policy: OffloadPolicy = CPUOffloadPolicy() if args.offload else OffloadPolicy()\n" in result.text
    assert "FM100" not in {rule for rule, _, _ in result.summary}


def test_one_precision_of_a_program_that_reads_another() -> None:
    before = code(
        """
        def wrap(net, args):
            mp: Optional[MixedPrecision] = MixedPrecision(param_dtype=torch.bfloat16) if args.bf16 else None
            return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}), mixed_precision=mp)


        def other(net, **kwargs):
            return FSDP(net, **kwargs)
        """
    )
    assert "mp: Optional[MixedPrecisionPolicy] = MixedPrecisionPolicy(" in meaning(rewrite(HEAD + before).text)
