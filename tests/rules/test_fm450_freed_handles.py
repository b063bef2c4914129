"""Units that are resharded by FSDP1's own function (FM450)."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp._runtime_utils import _reshard


"""
MAIN = """\


def main(net, x):
    model = FSDP(net)
    y = model(x)
    free(model)
    return y
"""
UNITS = code(
    """
    def free(model):
        for m in FSDP.fsdp_modules(model):
            if m._has_params and m.sharding_strategy is not ShardingStrategy.NO_SHARD:
                torch.distributed.fsdp._runtime_utils._reshard(m, m._handle, True)
    """
)
HANDLES = code(
    """
    def free(x):
        if isinstance(x, FSDP):
            handles = x._handles
            true_list = [True for h in handles]
            _reshard(x, handles, true_list)
    """
)


def test_units_are_resharded() -> None:
    result = rewrite(HEAD + UNITS + MAIN)
    units = "    for m in model.modules():\n        if isinstance(m, FSDPModule):\n            m.reshard()\n"
    assert f"def free(model):\n{units}" in result.text
    assert "ShardingStrategy" not in result.text
    assert ("FM450", Level.REWRITTEN) in {(each.rule, each.level) for each in result.findings}
    assert not any(each.level is Level.MANUAL for each in result.findings)


ASKED = HANDLES.replace("x._handles", 'getattr(x, "_handles", None)').replace(
    "        true_list", "        if not handles:\n            return\n        true_list"
)


@pytest.mark.parametrize("handles", [HANDLES, ASKED, ASKED.replace("not handles", "handles is None")])
def test_what_only_the_call_takes_goes_with_it(handles: str) -> None:
    result = rewrite(HEAD + handles + MAIN)
    assert "def free(x):\n    if isinstance(x, FSDPModule):\n        x.reshard()\n" in result.text
    assert not any(each.level is Level.MANUAL for each in result.findings)


def test_a_comment_on_the_call_stays() -> None:
    for said, stays in (("# issue 117742", True), ("# pyre-ignore: a handle may be missing", False)):
        text = UNITS.replace("            torch", f"            {said}\n            torch")
        assert (f"            {said}\n            m.reshard()\n" in rewrite(HEAD + text + MAIN).text) is stays


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[True for h in handles]", "[h.is_last for h in handles]"),
        ("_reshard(x, handles, true_list)", "_reshard(x, handles, true_list)\n        print(handles)"),
        ("handles = x._handles", "handles = x.inner._handles"),
        ("true_list)", "True and False)"),
    ],
)
def test_what_is_freed_otherwise_needs_a_person(before: str, after: str) -> None:
    assert before in HANDLES
    found = {(each.rule, each.level) for each in rewrite(HEAD + HANDLES.replace(before, after) + MAIN).findings}
    assert ("FM401", Level.MANUAL) in found
    assert "FM450" not in {rule for rule, _ in found}


BY_NAME = """\
def is_sharded(x):
    return isinstance(x, FSDP) and x.sharding_strategy is not ShardingStrategy.NO_SHARD


""" + HANDLES.replace("isinstance(x, FSDP)", "is_sharded(x) and x._has_params")


def test_a_test_by_name_goes_where_it_is_in_front_of_such_a_call_alone() -> None:
    result = rewrite(HEAD + BY_NAME + MAIN)
    assert "def is_sharded(x):\n    return isinstance(x, FSDPModule)\n" in result.text
    assert "    if is_sharded(x):\n        x.reshard()\n" in result.text
    assert not any(each.level is Level.MANUAL for each in result.findings)
    for other in ("print(is_sharded)", "print(is_sharded(net))", "if is_sharded(net):\n        print(net)"):
        result = rewrite(HEAD + BY_NAME + MAIN.replace("free(model)", other))
        assert [each.rule for each in result.findings if each.level is Level.MANUAL] == ["FM207"]


def test_what_is_done_without_handles_needs_a_person() -> None:
    text = HEAD + ASKED.replace("            return\n", "            print(x)\n            return\n") + MAIN
    found = {(each.rule, each.level) for each in rewrite(text).findings}
    assert ("FM401", Level.MANUAL) in found


def test_another_condition_needs_a_person() -> None:
    result = rewrite(HEAD + UNITS.replace("m._has_params and", "m._is_root and") + MAIN)
    assert "_runtime_utils._reshard(m, m._handle, True)\n" in result.text
    assert ("FM401", Level.MANUAL) in {(each.rule, each.level) for each in result.findings}
    result = rewrite(HEAD + UNITS.replace("m._has_params and", "m.training and") + MAIN)
    assert "        if m.training:\n" in result.text
    one = HANDLES.replace("_handles", "_handle").replace("isinstance(x, FSDP)", "isinstance(x, FSDP) and x._has_params")
    result = rewrite(HEAD + one + MAIN)
    assert "def free(x):\n    if isinstance(x, FSDPModule):\n        x.reshard()\n" in result.text
    result = rewrite(HEAD + UNITS.replace("m._has_params and m.sharding_strategy is not", "m.training is not") + MAIN)
    assert "        if m.training is not ShardingStrategy.NO_SHARD:\n" in result.text
    assert "            m.reshard()\n" in result.text
