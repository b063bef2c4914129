"""`_free_storage` of a flat parameter (FM440)."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, rewrite

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.utils import _free_storage


def free(net, x):
    model = FSDP(net)
"""


@pytest.mark.parametrize("argument", ["x", "x.data", "x.flat.data", "model.weight.data"])
def test_other_storage_stays(argument: str) -> None:
    result = rewrite(HEAD + f"    _free_storage({argument})\n")
    assert f"    _free_storage({argument})\n" in result.text
    assert {rule for rule, _, _ in result.summary} == {"FM101"}


@pytest.mark.parametrize(
    "statement", ["x = _free_storage(model._handle.flat_param)", "_free_storage(model._handle.flat_param._local_shard)"]
)
def test_another_use_of_a_handle_is_reported(statement: str) -> None:
    check_marked(HEAD + f"    {statement}\n", "FM401", Level.MANUAL)


def test_a_handle_in_text_that_is_quoted_is_reported() -> None:
    check_marked(HEAD + "    other = FSDP(x._handle, use_orig_params=True)\n", "FM401", Level.MANUAL)


@pytest.mark.parametrize("argument", ["model._handle.flat_param.data", "model._handle.flat_param"])
def test_freeing_a_flat_parameter(argument: str) -> None:
    """14 lines of support in copies of Wan."""
    result = rewrite(HEAD + f"    _free_storage({argument})\n")
    assert result.text.endswith(
        "    model.reshard()\n"
        "    for param in model.parameters():\n"
        "        if isinstance(param, DTensor):\n"
        "            param.to_local().untyped_storage().resize_(0)\n"
    )
    assert "_free_storage" not in result.text
    assert not result.support
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_a_name_that_is_in_use() -> None:
    result = rewrite(
        HEAD + "    param = 1\n    if x:\n        _free_storage(model._handle.flat_param)\n    return param\n"
    )
    assert (
        "        for unit_param in model.parameters():\n            if isinstance(unit_param, DTensor):" in result.text
    )
