"""FM451: the flat parameters of units, collected for functions that take each element by itself."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, decay):
    model = FSDP(net)
    params = []
"""
TAKES = ["params += model.params", "params.extend(model.params)"]


@pytest.mark.parametrize("takes", TAKES)
def test_what_goes_to_functions_of_each_element(takes: str) -> None:
    result = rewrite(f"{HEAD}    {takes}\n    torch._foreach_mul_(params, decay)\n")
    assert f"    {takes.replace('model.params', 'unit_params(model)')}\n" in result.text
    assert {each.level for each in result.findings} == {Level.REWRITTEN}


@pytest.mark.parametrize(
    "use",
    [
        "params += model.params\n    print(params[0].shape)",
        "params += model.params\n    torch._foreach_norm(params)",
        "params += model.params\n    return params",
        "params += model.params\n    params.append(decay)",
        "print(model.params[0].grad)",
    ],
)
def test_any_other_use_needs_a_person(use: str) -> None:
    result = rewrite(f"{HEAD}    {use}\n")
    assert "unit_params" not in result.text
    assert ("FM207", Level.MANUAL) in {(each.rule, each.level) for each in result.findings}
