"""Support functions that stand in the user's own file."""

from __future__ import annotations

import pytest

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
    assert "\n    return [unit for unit in units if unit is not model]\n\n\n# Shards.\ndef wrap(model):\n" in below


def test_in_the_file_s_own_steps() -> None:
    result = rewrite(HEAD + WRAP.replace("    ", "  "))
    assert "\n  units = []\n\n  def visit(module):" in result.text
    others = "def first():\n    pass\n\n\ndef second():\n\tx = 1\n\treturn x\n\n\n"
    result = rewrite(HEAD + others + WRAP.replace("    ", "\t"))
    assert "\n\tunits = []\n\n\tdef visit(module):" in result.text, "of most of it"


def test_a_name_that_is_taken_keeps_it_in_a_file_of_its_own() -> None:
    result = rewrite(HEAD + "nn = None\n\n\n" + WRAP)
    assert result.own == set()
    assert SUPPORT in result.after


def test_two_files_share_one() -> None:
    result = rewrite_files({"a.py": HEAD + WRAP, "b.py": "import a\n" + HEAD + WRAP})
    assert result.own == set()
    assert SUPPORT in result.after


ACCUMULATE = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def step(model, batches, few):
    model = FSDP(model) if few else DDP(model)
    return model.module.config, model
"""


DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\n"
MODULE = """\


def config(model, few):
    model = FSDP(model) if few else DDP(model)
    return model.module.config
"""


def test_each_file_has_what_it_alone_needs() -> None:
    other = ACCUMULATE.split("\n\n\n")[0] + MODULE
    result = rewrite_files({"a.py": "import b\n" + HEAD + WRAP, "b.py": other})
    assert not any(name.endswith(SUPPORT) for name in result.after)
    assert "\n\n\ndef units_by_size(" in result.after["a.py"]
    assert "\n\n\ndef unwrap(" in result.after["b.py"]


def test_what_another_file_needs_too_stays_shared() -> None:
    other = ACCUMULATE.split("\n\n\n")[0] + MODULE
    result = rewrite_files({"a.py": f"import b\n{DDP}{HEAD}{WRAP}{MODULE}", "b.py": other})
    assert "def unwrap(" in result.after[SUPPORT]
    assert "def units_by_size(" not in result.after[SUPPORT]
    assert "\n\n\ndef units_by_size(" in result.after["a.py"]
    assert "import unwrap" in result.after["a.py"]


SAVING = """\


def save(model, optimizer, path):
    model = torch.compile(FSDP(model))
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
        torch.save([model.state_dict(), FSDP.optim_state_dict(model, optimizer)], path)
"""


@pytest.mark.parametrize("shared", [MODULE, ""])
def test_short_ones_do_not_follow_long_ones_to_what_files_share(shared: str) -> None:
    imports = "import b\nimport torch\nfrom torch.distributed.fsdp import FullStateDictConfig, StateDictType\n"
    other = ACCUMULATE.split("\n\n\n")[0] + MODULE
    result = rewrite_files({"a.py": f"{imports}{DDP}{HEAD}{SAVING}{shared}", "b.py": other})
    own = ["full_state_dict", "full_optim_state_dict"]
    assert [f"\ndef {name}(" in result.after["a.py"] for name in own] == [bool(shared)] * 2
    assert [f"\ndef {name}(" in result.after[SUPPORT] for name in [*own, "renamed"]] == [not shared, not shared, True]
    assert "\ndef renamed(" not in result.after["a.py"]


def test_below_code_that_no_blank_line_ends() -> None:
    result = rewrite(HEAD + "def init(module):\n    return module\n" + "nn.Module.init = init\n" + WRAP)
    assert "= init\n\n\ndef units_by_size(" in result.text


def test_long_ones_have_a_file_of_their_own() -> None:
    line = "    return FSDP(model, None, how, auto_wrap_policy=policy, param_init_fn=init, sync_module_states=True)\n"
    result = rewrite(HEAD + "def wrap(model, how, policy, init):\n" + line)
    assert result.own == set()


def test_short_ones_stand_in_the_file_that_uses_them() -> None:
    result = rewrite(ACCUMULATE)
    assert result.own == {"unwrap"}
    assert "\n\n\ndef unwrap(model):\n" in result.text, "no types where the file's own functions have none"


def test_types_where_the_file_has_them() -> None:
    result = rewrite(ACCUMULATE.replace("(model, batches, few)", "(model: nn.Module, batches, few: bool)"))
    assert "\n\n\ndef unwrap(model: Any) -> Any:\n" in result.text
    assert "from typing import Any\n" in result.text


def test_types_of_typing_where_the_file_has_those() -> None:
    policy = "partial(size_based_auto_wrap_policy, force_leaf_modules={nn.Linear})"
    wrap = f"def wrap(model, then: Callable) -> nn.Module:\n    return then(FSDP(model, auto_wrap_policy={policy}))\n"
    result = rewrite("from functools import partial\nfrom typing import Callable\n\n" + HEAD + wrap)
    assert result.own == {"policy_units"}
    assert "collections.abc" not in result.text


def test_programs_of_one_folder_share_a_file() -> None:
    result = rewrite_files({"a.py": ACCUMULATE, "b.py": ACCUMULATE})
    assert result.own == set()
    assert SUPPORT in result.after


def test_programs_of_several_folders_have_their_own() -> None:
    result = rewrite_files({"a/train.py": ACCUMULATE, "b/train.py": ACCUMULATE})
    assert result.own == {"unwrap"}
    assert not any(name.endswith(SUPPORT) for name in result.after)


def test_a_file_that_is_there_takes_them() -> None:
    result = rewrite_files({"a.py": ACCUMULATE, SUPPORT: ""})
    assert result.own == set()
    assert "def unwrap(" in result.after[SUPPORT]


SCRIPT = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from functools import partial

{before}model = torch.nn.Sequential(torch.nn.Linear(4, 4))
# the whole of it
model = FSDP(model, auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params=10))
"""


@pytest.mark.parametrize("before", ["", "def seeded(seed):\n    torch.manual_seed(seed)\n\n\nseeded(0)\n"])
def test_functions_of_a_script_stand_beside_its_own_or_below_the_imports(before: str) -> None:
    text = rewrite(SCRIPT.format(before=before)).text
    above = "torch.manual_seed(seed)\n\n\n" if before else "import fully_shard\n\n\n"
    assert f"{above}def units_by_size(" in text


def test_under_the_name_that_the_file_has_for_it() -> None:
    result = rewrite(ACCUMULATE + "\n\ndef unwrap(box):\n    return box\n")
    assert "\n\n\ndef fsdp2_unwrap(model):\n" in result.text
    assert "return fsdp2_unwrap(model).config" in result.text
    assert SUPPORT not in result.after


def test_modules_go_by_the_names_that_the_file_has_for_them() -> None:
    text = """\
import torch
import torch.distributed as tdist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def wrap(model, name, policy):
    return FSDP(model, sharding_strategy=ShardingStrategy[name], auto_wrap_policy=policy, device_id=0)
"""
    result = rewrite(text)
    assert "strategy_kwargs" in result.own
    assert "tdist.get_world_size()" in result.text
    assert "as dist\n" not in result.text


GENERATE = """\
{0}import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(model: torch.nn.Module, batch):
    model = FSDP(model)
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        return model.generate(batch)
"""


@pytest.mark.parametrize(
    ("head", "decorator"),
    [
        ("import contextlib\n", "contextlib.contextmanager"),
        ("from contextlib import contextmanager\n", "contextmanager"),
        ("import contextlib\nfrom contextlib import contextmanager\n", "contextmanager"),
        ("", "contextmanager"),
    ],
)
def test_names_go_through_the_module_that_the_file_has(head: str, decorator: str) -> None:
    text = rewrite(GENERATE.format(head)).text
    assert f"\n@{decorator}\ndef unsharded(" in text
    assert text.count("contextlib import") == ("." not in decorator)
