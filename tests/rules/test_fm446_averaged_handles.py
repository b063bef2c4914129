"""Loops over FSDP1's handles that write to flat parameters by element (FM446)."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import _traversal_utils
from torch.distributed.fsdp._runtime_utils import _lazy_init


"""
MAIN = """

def main(net, other):
    model, ema = FSDP(net), FSDP(other)
    update(model, ema, 0.9)
"""
OVER = "zip(_traversal_utils._get_fsdp_handles(model), _traversal_utils._get_fsdp_handles(ema))"


def update(body: str, over: str = OVER) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{HEAD}def update(model, ema, decay):\n    for handle, ema_handle in {over}:\n{lines}{MAIN}"


@pytest.mark.parametrize(
    "body",
    [
        "ema_handle.flat_param.data.copy_(handle.flat_param.data.sum())",
        "ema_handle.flat_param.data.copy_(handle.flat_param.data)\nhandle.reshard()",
        "ema_handle.flat_param.data = handle.flat_param.data",
        "ema_handle.flat_param._local_shard.copy_(handle.flat_param._local_shard)",
        "ema_handle.flat_param.data.copy_(torch.sort(handle.flat_param.data)[0])",
        "if handle.flat_param.numel() > 3:\n    ema_handle.flat_param.data.copy_(handle.flat_param.data)",
    ],
)
def test_what_is_not_by_element_needs_a_person(body: str) -> None:
    result = rewrite(update(body))
    assert "FM446" not in {rule for rule, _, _ in result.summary}
    assert ("FM401", Level.MANUAL) in {(each.rule, each.level) for each in result.findings}


@pytest.mark.parametrize("over", [OVER, "zip(model._all_handles, ema._all_handles)"])
@pytest.mark.parametrize(
    ("body", "after"),
    [
        (
            "ema_handle.flat_param.data.mul_(decay).add_(handle.flat_param.data, alpha=1 - decay)",
            "ema_param.data.mul_(decay).add_(param.data, alpha=1 - decay)",
        ),
        (
            "if handle.flat_param is not None and handle.flat_param.requires_grad:\n"
            "    ema_handle.flat_param.lerp_(handle.flat_param.detach().to(decay), 1 - decay)",
            "if param.requires_grad:\n            ema_param.lerp_(param.detach().to(decay), 1 - decay)",
        ),
    ],
)
def test_an_average_is_one_of_parameters(over: str, body: str, after: str) -> None:
    result = rewrite(update(body, over))
    zipped = "zip(model.parameters(), ema.parameters())"
    head = "    model.reshard()\n    ema.reshard()\n"
    assert f"{head}    for param, ema_param in {zipped}:\n        {after}\n" in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_what_starts_the_models_goes() -> None:
    text = HEAD + code(
        """
        def update(model, ema, decay):
            _lazy_init(model, model)
            _lazy_init(ema, ema)
            assert model._is_root and ema._is_root
            for h in model._all_handles:
                h.flat_param.data.mul_(decay)
        """
    )
    after = rewrite(text + MAIN).text
    assert "decay):\n    model.reshard()\n    for param in model.parameters():\n        param.data.mul_" in after
    assert "_lazy_init" not in after
