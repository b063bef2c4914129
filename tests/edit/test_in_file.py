"""Support functions that stand in the user's own file."""

from __future__ import annotations

from ..helpers import SUPPORT, rewrite, rewrite_files

HEAD = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


"""
WRAP = """\
# Shards.
def wrap(model):
    return FSDP(model, auto_wrap_policy=size_based_auto_wrap_policy)
"""


def test_what_only_the_wrap_needs_stands_above_it() -> None:
    result = rewrite(HEAD + "class Net(nn.Module):\n    pass\n\n\n" + WRAP)
    assert result.own == {"units_by_size"}
    assert SUPPORT not in result.after
    above, below = result.text.split("def units_by_size(")
    assert above.endswith("class Net(nn.Module):\n    pass\n\n\n")
    assert "\n    return units\n\n\n# Shards.\ndef wrap(model):\n" in below


def test_in_the_file_s_own_steps() -> None:
    result = rewrite(HEAD + WRAP.replace("    ", "  "))
    assert "\n  units: list[nn.Module] = []\n\n  def visit(module: nn.Module) -> int:" in result.text


def test_a_name_that_is_taken_keeps_it_in_a_file_of_its_own() -> None:
    result = rewrite(HEAD + "nn = None\n\n\n" + WRAP)
    assert result.own == set()
    assert SUPPORT in result.after


def test_two_files_share_one() -> None:
    result = rewrite_files({"a.py": HEAD + WRAP, "b.py": "import a\n" + HEAD + WRAP})
    assert result.own == set()
    assert SUPPORT in result.after


def test_long_ones_have_a_file_of_their_own() -> None:
    line = "    return FSDP(model, auto_wrap_policy=policy, param_init_fn=init, sync_module_states=True)\n"
    result = rewrite(HEAD + "def wrap(model, policy, init):\n" + line)
    assert result.own == set()
