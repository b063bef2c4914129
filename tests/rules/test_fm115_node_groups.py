"""FM115: FSDP1's private function for the groups of nodes."""

from __future__ import annotations

import pytest

from ..helpers import flat, rewrite

HEAD = """\
from torch.distributed.distributed_c10d import _get_default_group
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._init_utils import _init_intra_and_inter_node_groups


def wrap(net, args):
    {statement}
    return FSDP(net)
"""
MADE = "_init_intra_and_inter_node_groups"


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        (
            f"intra, inter = {MADE}(_get_default_group())",
            "inter, intra = init_device_mesh("
            '"cuda", (dist.get_world_size() // torch.cuda.device_count(), torch.cuda.device_count())).get_all_groups()',
        ),
        (
            f"args.intra, args.inter = {MADE}(None, args.count)",
            "args.inter, args.intra = init_device_mesh("
            '"cuda", (dist.get_world_size() // args.count, args.count)).get_all_groups()',
        ),
    ],
)
def test_two_groups(statement: str, after: str) -> None:
    assert f"    {after}\n" in flat(rewrite(HEAD.format(statement=statement)).text)


@pytest.mark.parametrize("statement", [f"groups = {MADE}(_get_default_group())", f"a, b = {MADE}(args.group, 8)"])
def test_what_is_not_seen_is_reported(statement: str) -> None:
    result = rewrite(HEAD.format(statement=statement))
    assert statement in result.text
    assert "FM401" in {rule for rule, level, _ in result.summary if level == "manual"}
