"""FM301: a kind of state dict that every model of the program is given where it is wrapped."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import flat, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictType


def wrap(net):
    model = FSDP(net, use_orig_params=True)
    FSDP.set_state_dict_type(model, StateDictType.{})
    return model


def save(model, optimizer, path):
    path.save(model.state_dict(), FSDP.optim_state_dict(model, optimizer))


def main(net, path, optimizer):
    model = wrap(net)
    optimizer.step()
    save(model, optimizer, path)
"""
SHARDED = "SHARDED_STATE_DICT, ShardedStateDictConfig(False), ShardedOptimStateDictConfig(False)"
FULL = "FULL_STATE_DICT, FullStateDictConfig(True, True), FullOptimStateDictConfig(False)"


def test_sharded_state_dicts_are_fsdp2s_own() -> None:
    result = rewrite(HEAD.format(SHARDED))
    assert "    path.save(model.state_dict(), get_optimizer_state_dict(model, optimizer))\n" in result.text
    assert result.support == set()
    assert "StateDictType" not in result.text
    assert {each.level for each in result.findings} == {Level.REWRITTEN}


def test_full_state_dicts_are_read_as_the_config_says() -> None:
    result = rewrite(HEAD.format(FULL))
    assert "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))" in flat(
        result.text
    )
    assert "get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))" in flat(
        result.text
    )
    assert result.support == set()


def test_model_that_is_not_seen_is_read_by_what_takes_any() -> None:
    more = "\n\ndef keep(box, path):\n    path.save(box.model.state_dict())\n    path.add(len(path.read()))\n"
    result = rewrite(HEAD.format(FULL) + more)
    assert "path.save(full_state_dict(box.model, offload_to_cpu=True, rank0_only=True))" in flat(result.text)
    assert "path.save(box.model.state_dict())\n" in rewrite(HEAD.format(SHARDED) + more).text


NESTED = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardedStateDictConfig, StateDictType


def to_fsdp(net, apply):
    def wrap(module):
        try:
            return FSDP(module)
        except ValueError:
            raise RuntimeError from None

    model = apply(net, wrap)
    if not isinstance(model, FSDP):
        model = wrap(model)
    with path.warnings():
        path.filter()
        FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(False))
    return model
"""
READER = """\
def save(model, path):
    path.save(model.state_dict())
"""


def test_function_inside_of_the_one_that_sets_it() -> None:
    files = {"wrap.py": NESTED, "save.py": READER}
    files["main.py"] = (
        "from save import save\nfrom wrap import to_fsdp\n\nmodel = to_fsdp(net, apply)\nsave(model, path)\n"
    )
    result = rewrite_files(files)
    assert result.after["save.py"] == READER
    assert not result.support


UNUSUAL = [
    ("    return model", "    return model\n\n\ndef other(net):\n    return FSDP(net)"),
    ("    FSDP.set", "    if net.sets:\n        FSDP.set"),
    ("    FSDP.set", "    if net.is_done:\n        return model\n    FSDP.set"),
    ("    FSDP.set", "    net.save(model.state_dict())\n    FSDP.set"),
    ("    FSDP.set", "    save(model, net, net)\n    FSDP.set"),
    ("    save(model", "    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n    save(model"),
    ("    save(model", "    model.set_state_dict_type(model, 1)\n    save(model"),
    ("ShardedStateDictConfig(False)", "net.config"),
    ("set_state_dict_type(model", "set_state_dict_type(net.part"),
    ("ShardedStateDictConfig(False)", "ShardedStateDictConfig(True)"),
]


@pytest.mark.parametrize(("old", "new"), UNUSUAL)
def test_kind_that_is_not_every_models(old: str, new: str) -> None:
    text = HEAD.format(SHARDED)
    assert old in text
    assert "set_state_dict_type" in rewrite(text.replace(old, new, 1)).support


MANAGER = """\
from torch.distributed.fsdp.api import FullStateDictConfig, ShardedStateDictConfig, StateDictType
from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FSDP


class Manager:
    def __init__(self, module: FSDP, engine, whole=False):
        self.module = module
        self.engine = engine

        self.whole = whole
        if whole:
            FSDP.set_state_dict_type(self.module, StateDictType.FULL_STATE_DICT, FullStateDictConfig())
        else:
            FSDP.set_state_dict_type(self.module, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig())

    def __enter__(self):
        params = self.module.state_dict()
        for name in list(params):
            self.engine.weights[name].copy_(params.pop(name))
"""
MANAGED = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from manager import Manager


def main(net, engine, config):
    with Manager(FSDP(net), engine, whole=config.whole):
        engine.generate()
"""


def test_kind_that_an_if_sets_for_another_method() -> None:
    """As verl's sharding managers set it: 77 lines of support to keep the kind."""
    result = rewrite_files({"manager.py": MANAGER, "main.py": MANAGED})
    text = result.after["manager.py"]
    assert not result.support & {"set_state_dict_type", "model_state_dict"}
    assert "        self.whole = whole\n\n    def __enter__" in text
    assert "full_state_dict=self.whole" in flat(text) or " if self.whole else self.module.state_dict()" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        self.whole = whole\n", ""),
        ("        params =", "        self.whole = True\n        params ="),
        ("        params =", "        self.module = self.engine\n        params ="),
        ("        if whole:", "        if whole and engine.is_there():"),
        ("ShardedStateDictConfig())", "ShardedStateDictConfig(offload_to_cpu=True))"),
        ("set_state_dict_type(self.module, StateDictType.SH", "set_state_dict_type(engine.net, StateDictType.SH"),
        ("        else:\n", "        elif engine:\n"),
    ],
)
def test_kind_that_an_if_sets_and_that_cannot_be_asked_again(old: str, new: str) -> None:
    assert old in MANAGER
    result = rewrite_files({"manager.py": MANAGER.replace(old, new, 1), "main.py": MANAGED})
    assert "set_state_dict_type" in result.support


EITHER = """\
def save(net, args):
    model = FSDP(net)
    if args.kind == "parts":
        FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    else:
        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True))
    args.save(model.state_dict())
"""


def test_kind_that_an_if_sets_above() -> None:
    result = rewrite(HEAD.partition("\n\n\n")[0] + "\n\n\n" + EITHER)
    assert "full_state_dict=args.kind != 'parts'" in flat(result.text).replace('"', "'")
    assert "if args.kind" not in result.text
    assert result.support == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    args.save(", "    args = args.inner\n    args.save("),
        ("    args.save(", "    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n    args.save("),
        ('args.kind == "parts"', "args.is_sharded()"),
    ],
)
def test_kind_that_an_if_set_and_something_changed(old: str, new: str) -> None:
    result = rewrite(HEAD.partition("\n\n\n")[0] + "\n\n\n" + EITHER.replace(old, new, 1))
    assert "full_state_dict=args.kind" not in flat(result.text)


def test_kind_that_an_if_sets_beside_one_that_is_kept_at_run_time() -> None:
    """What the support module keeps for others says nothing here: the `if` that set it is gone."""
    saver = """
class Saver:
    def save(self, model, kind, path):
        with FSDP.state_dict_type(model, kind.find(path), kind.config(path)):
            path.save(model.state_dict())
"""
    result = rewrite_files({"manager.py": MANAGER + saver, "main.py": MANAGED})
    text = result.after["manager.py"]
    assert "state_dict_type" in result.support
    assert "self.whole" in text.partition("def __enter__")[2].partition("\n        for")[0]
    assert "model_state_dict(self.module)" not in text.replace("get_model_state_dict", "")
