"""FM313: full optimizer states that torch's own functions load."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_noop, meaning, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

FULL = StateDictOptions(full_state_dict=True)
SHARDED = StateDictOptions(cpu_offload=True)


def use(net, optimizer, state, options):
    model = FSDP(net)
"""


def body(text: str, head: str = HEAD) -> str:
    return rewrite(head + text).text.split("    model = ")[1].split("\n", 1)[1]


def test_noop() -> None:
    check_noop(
        "from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict\n"
        "set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(full_state_dict=True))\n"
    )


STAYS = [
    "    set_optimizer_state_dict(model, optimizer, state)\n",
    "    set_optimizer_state_dict(model, optimizer, state, options=SHARDED)\n",
    "    set_optimizer_state_dict(model, optimizer, optim_state_dict=state, options=StateDictOptions())\n",
    "    set_state_dict(model, optimizer, model_state_dict=state, optim_state_dict=state)\n",
    "    set_optimizer_state_dict(torch.nn.Linear(2, 2), optimizer, state, options=FULL)\n",
]


@pytest.mark.parametrize("text", STAYS)
def test_what_shares_nothing_stays(text: str) -> None:
    assert body(text) == text


TRAINER = """

class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def last(self):
        if isinstance(self.model, {asked}):
            self.model.set_is_last_backward(True)

    def load(self, state):
        set_optimizer_state_dict(self.model, self.optimizer, state, options=FULL)
"""


@pytest.mark.parametrize("asked", ["FSDPModule", "torch.nn.Linear"])
def test_a_model_of_the_programs_own_fsdp2_shares_nothing(asked: str) -> None:
    head = HEAD.replace("import FullySharded", "import FSDPModule, FullySharded")
    text = rewrite(f"{head}    return model\n{TRAINER.format(asked=asked)}").text
    assert ("with_own_steps(state)" in text) is (asked != "FSDPModule")


def test_original_parameters_had_a_step_each() -> None:
    text = "    set_optimizer_state_dict(model, optimizer, state, options=FULL)\n"
    assert body(text, HEAD.replace("FSDP(net)", "FSDP(net, use_orig_params=True)")) == text


LOADS = [
    "set_optimizer_state_dict(model, optimizer, {}, options=FULL)",
    "set_optimizer_state_dict(model, optimizer, optim_state_dict={}, options=options)",
    "set_optimizer_state_dict(model, optimizer, {}, options=StateDictOptions(full_state_dict=net))",
    "set_state_dict(model, optimizer, model_state_dict=state, optim_state_dict={}, options=FULL)",
]


@pytest.mark.parametrize("text", LOADS)
@pytest.mark.parametrize("flat", ["net", "net, use_orig_params=False", "net, use_orig_params=options"])
def test_each_parameter_gets_a_step_of_its_own(flat: str, text: str) -> None:
    head = HEAD.replace("FSDP(net)", f"FSDP({flat})")
    result = rewrite(f"{head}    {text.format('state')}\n")
    assert meaning(result.text).endswith(meaning(text.format("with_own_steps(state)")))
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_file_that_does_not_name_fsdp1() -> None:
    wrap = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nfrom checkpoint import load\n"
    load = HEAD.split("from torch.distributed.fsdp")[0]
    load += "\n\ndef load(model, optimizer, state):\n"
    load += "    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(full_state_dict=True))\n"
    files = {
        "checkpoint.py": load,
        "train.py": wrap + "\n\ndef main(net, optimizer, state):\n    load(FSDP(net), optimizer, state)\n",
    }
    assert "optimizer, with_own_steps(state), options" in rewrite_files(files).after["checkpoint.py"]
