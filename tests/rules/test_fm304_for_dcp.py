"""FM304, FM303: a state dict that `torch.distributed.checkpoint` alone takes is its file's whatever kind is set."""

from __future__ import annotations

import pytest

from ..helpers import code, flat, rewrite

HEAD = """\
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


class Whole:
    def __init__(self, **how):
        self.config = FullStateDictConfig(**how)

    def load(self, model, path):
        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, self.config)
        model.load_state_dict(torch.load(path))


def main(net, optimizer, path, rank):
    model = FSDP(net, use_orig_params=True)
    Whole(rank0_only=True).load(model, path)
    optimizer.step()
"""
SAVED = [
    "state = model.state_dict()\ndcp.save({'model': state}, checkpoint_id=path)\n",
    "state = {'model': model.state_dict()}\ndcp.async_save(state, storage_writer=path).result()\ndel state\n",
    "state = model.state_dict()\nboth = {'model': state}\ndcp.load(state_dict=both, checkpoint_id=path)\n"
    "loaded = both.get('model')\nmodel.load_state_dict(loaded)\n",
    "state = {'model': model.state_dict()}\nif path.exists():\n    dcp.load(state, checkpoint_id=path)\n"
    "    model.load_state_dict(state['model'], strict=False)\n",
]


def lines(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("text", SAVED)
def test_what_dcp_alone_takes_stays_sharded(text: str, compiled: bool) -> None:
    """FSDP1 had a whole one on the first rank alone, and wrote the same file."""
    head = HEAD.replace("FSDP(net, use_orig_params=True)", "torch.compile(FSDP(net))") if compiled else HEAD
    result = rewrite(head + lines(text))
    assert result.text.endswith(lines(text))
    assert not result.support & {"set_state_dict_type", "model_state_dict"}


def test_optimizer_that_dcp_alone_takes_stays_sharded() -> None:
    text = """\
    state = {"optimizer": FSDP.optim_state_dict(model, optimizer)}
    dcp.save(state, checkpoint_id=path)
    state = load_sharded_optimizer_state_dict(model.state_dict(), "optimizer", dcp.FileSystemReader(path))
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"]))
    """
    result = rewrite(HEAD + text)
    assert '    state = {"optimizer": get_optimizer_state_dict(model, optimizer)}\n' in result.text
    assert '    state = read_sharded(model.state_dict(), "optimizer", dcp.FileSystemReader(path))\n' in result.text
    assert 'state["optimizer"], options=StateDictOptions(strict=False))\n' in flat(result.text)
    assert result.support == {"read_sharded"}


SEEN = [
    "state = model.state_dict()\ndcp.save(state, checkpoint_id=path)\nprint(state)\n",
    "state = model.state_dict()\ndcp.save(state, checkpoint_id=path, no_dist=True)\n",
    "state = model.state_dict()\ndcp.save(state, checkpoint_id=path, **path.more)\n",
    "state = model.state_dict()\ndcp.save_state_dict(state, path, path.group)\n",
    "state = model.state_dict()\ndcp.load(state, checkpoint_id=path)\n",
    "state = model.state_dict()\ndcp.load(state, checkpoint_id=path)\nif rank:\n    model.load_state_dict(state)\n",
    "state = model.state_dict()\ndcp.load(state, checkpoint_id=path)\nmodel = net\nmodel.load_state_dict(state)\n",
    "state = torch.load(path) if rank else None\nif state is None:\n    state = model.state_dict()\n"
    "    dcp.load(state, checkpoint_id=path)\nmodel.load_state_dict(state)\n",
    "state = FSDP.optim_state_dict(model, optimizer)\ndcp.load(state, checkpoint_id=path)\n",
]


@pytest.mark.parametrize("text", SEEN)
def test_what_others_see_too_is_of_the_kind_that_is_set(text: str) -> None:
    assert "set_state_dict_type" in rewrite(HEAD + lines(text)).support


def test_local_kind_is_told_of() -> None:
    """FSDP1 saved flat pieces then."""
    found = rewrite(HEAD.replace("FULL_STATE_DICT, self.config", "LOCAL_STATE_DICT") + lines(SAVED[0])).findings
    assert any("files of FSDP1 of this kind do not load" in each.message for each in found)


def test_what_dcp_alone_takes_where_nothing_is_set() -> None:
    text = code(
        """
        import torch.distributed.checkpoint as dcp
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        def save(net, optimizer, path):
            model = FSDP(net)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                dcp.save({"model": model.state_dict()}, checkpoint_id=path)
            dcp.save({"optimizer": FSDP.full_optim_state_dict(model, optimizer)}, checkpoint_id=path + "2")
        """
    )
    result = rewrite(text)
    assert '    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=path)\n' in result.text
    assert '    dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=' in result.text
    assert not result.support
