"""FM307: files of an optimizer's own state."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_noop, code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, path, state):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
"""

NOOP = [
    "optimizer = torch.optim.SGD(net.parameters())\noptimizer.load_state_dict(torch.load(path))\n",
    "scheduler.load_state_dict(torch.load(path)['scheduler'])\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(f"import torch\n{text}")


STAYS = [
    "    optimizer.load_state_dict(state)\n",
    "    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, torch.load(path)))\n",
    "    other = torch.optim.SGD(torch.nn.Linear(2, 2).parameters())\n    other.load_state_dict(torch.load(path))\n",
    "    other = torch.optim.SGD([{'params': net.head.parameters()}])\n    torch.save(other.state_dict(), path)\n",
    "    state = optimizer.state_dict()\n    print(state['param_groups'])\n",
    "    torch.save(optimizer.state_dict() if not state.fsdp else {}, path)\n",
    "    if state.use_ddp:\n        torch.save({'optimizer': optimizer.state_dict()}, path)\n",
    "    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)\n    torch.save(scheduler.state_dict(), path)\n",
    "    from transformers.optimization import get_cosine_schedule_with_warmup\n    from torch.optim import AdamW\n"
    "    rate = get_cosine_schedule_with_warmup(AdamW(model.parameters()), 1, 9)\n"
    "    torch.save(rate.state_dict(), path)\n",
    "    saved = {'optimizer': optimizer.state_dict()}\n    optimizer.load_state_dict(saved['optimizer'])\n",
    "    state = dict(optim=optimizer.state_dict())\n    torch.distributed.checkpoint.save(state, path)\n",
    "    return {'optimizer': optimizer.state_dict()}\n",
    "    if isinstance(model, FSDP):\n        pass\n    else:\n        optimizer.load_state_dict(torch.load(path))\n",
    "    if state.use_fsdp:\n        pass\n    else:\n        optimizer.load_state_dict(torch.load(path))\n",
    "    if state.fsdp is not None:\n        pass\n    else:\n        optimizer.load_state_dict(torch.load(path))\n",
    "    if state.kind == 'ddp':\n        optimizer.load_state_dict(torch.load(path))\n"
    "    elif state.kind == 'fsdp':\n        pass\n",
    "    saved = torch.load(path)\n    if state.is_sharded:\n"
    "        saved = FSDP.optim_state_dict_to_load(model, optimizer, saved)\n    optimizer.load_state_dict(saved)\n",
]


@pytest.mark.parametrize("text", STAYS)
def test_other_loads_and_saves_are_left_alone(text: str) -> None:
    assert "FM307" not in {finding.rule for finding in rewrite(HEAD + text).findings}


def test_the_way_of_other_models_beside_fsdps_own_functions() -> None:
    text = "    groups = [{'params': list(model.parameters())}]\n    optimizer = torch.optim.SGD(groups)\n"
    both = f"{text}    if state:\n        return FSDP.optim_state_dict(model, optimizer)\n"
    for before, is_found in ((text, True), (both, False)):
        found = rewrite(f"{HEAD}{before}    torch.save(optimizer.state_dict(), path)\n").findings
        assert ("FM307" in {finding.rule for finding in found}) is is_found


TRAINERS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Plain:
    def __init__(self, net):
        self.net = net

    def start(self):
        self.optimizer = torch.optim.SGD(self.net.parameters())

    def load(self, path):
        self.net.load_state_dict(torch.load(path))
        self.optimizer.load_state_dict(torch.load(path + ".opt"))


class Sharded(Plain):
    def __init__(self, net):
        self.net = FSDP(net)

    def load(self, path):
        self.net.load_state_dict(torch.load(path))
"""


@pytest.mark.parametrize(("model", "is_found"), [("self.model", True), ("self.other", False)])
def test_an_optimizer_that_nobody_passes_beside_a_wrapped_model(model: str, is_found: bool) -> None:
    text = f"""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net, use_fsdp):
        self.model, self.other = FSDP(net) if use_fsdp else net, torch.nn.Linear(1, 1)

    def save(self, path, optimizer):
        torch.save(dict(model={model}.state_dict(), optimizer=optimizer.state_dict()), path)
"""
    assert ("FM307" in {finding.rule for finding in rewrite(text).findings}) is is_found


def test_a_method_that_the_class_of_the_wrap_has_anew_is_for_plain_models() -> None:
    for text, is_found in ((TRAINERS, False), (TRAINERS.replace("def load", "def resume", 1), True)):
        assert ("FM307" in {finding.rule for finding in rewrite(text).findings}) is is_found


BY_IDS = [
    "    plain = torch.nn.Linear(2, 2)\n    chosen = torch.optim.SGD(plain.parameters())\n"
    "    if state:\n        chosen = torch.optim.SGD(model.parameters())\n    torch.save(chosen.state_dict(), path)\n",
    "    optimizer.load_state_dict(torch.load(path))\n",
    "    saved = torch.load(path)\n    optimizer.load_state_dict(saved['optimizer'])\n",
    "    torch.save(optimizer.state_dict(), path)\n",
    "    saved = {'optimizer': optimizer.state_dict()}\n    if state == 0:\n        torch.save(saved, path)\n",
    "    optimizer = torch.optim.SGD(p for p in model.parameters() if p.requires_grad)\n"
    "    torch.save(optimizer.state_dict(), path)\n",
    "    groups = [{'params': [p for n, p in model.named_parameters() if 'norm' in n]}]\n"
    "    optimizer = torch.optim.SGD(params=groups)\n    torch.save(optimizer.state_dict(), path)\n",
    "    optimizer = torch.optim.SGD(model.get_head().parameters())\n    torch.save(optimizer.state_dict(), path)\n",
    "    optimizer = Muon(model.parameters())\n    torch.save(optimizer.state_dict(), path)\n\n\n"
    "class Muon(torch.optim.Optimizer):\n    pass\n",
    "    from apex.optimizers import FusedLAMB\n    optimizer = FusedLAMB(model.parameters())\n"
    "    torch.save(optimizer.state_dict(), path)\n",
    "    named, chosen = dict(model.named_parameters()), []\n    for name, param in named.items():\n"
    "        if 'lora' in name:\n            chosen.append(param)\n    optimizer = torch.optim.SGD(chosen)\n"
    "    torch.save(optimizer.state_dict(), path)\n",
    "    groups = []\n    for block in model.blocks:\n        own = list(block.parameters())\n"
    "        groups.append({'params': own})\n    optimizer = torch.optim.SGD(groups)\n"
    "    torch.save(optimizer.state_dict(), path)\n",
]


@pytest.mark.parametrize("text", BY_IDS)
def test_file_by_parameter_ids_needs_a_person(text: str) -> None:
    result = rewrite(HEAD + text)
    (found,) = [finding for finding in result.findings if finding.rule == "FM307"]
    assert found.level is Level.MANUAL
    # FSDP1's own function in the program as it was, torch's in the rewritten one.
    cure = "get_optimizer_state_dict(model, optimizer" if "save(" in text else "FSDP.optim_state_dict(model, optimizer)"
    assert cure in found.hint
    assert result.text.endswith(text)


@pytest.mark.parametrize(
    "lines",
    [
        ["self.saved = torch.load(path)", "self.optimizer.load_state_dict(self.saved['optimizer'])"],
        ["self.saved = {'optimizer': self.optimizer.state_dict()}", "torch.save(self.saved, path)"],
    ],
)
def test_the_state_in_an_attribute(lines: list[str]) -> None:
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net, path):
                self.model = FSDP(net)
                self.optimizer = torch.optim.AdamW(self.model.parameters())
        """
    )
    result = rewrite(text + "".join(f"        {line}\n" for line in lines))
    assert [finding.level for finding in result.findings if finding.rule == "FM307"] == [Level.MANUAL]


@pytest.mark.parametrize(
    "use",
    [
        "torch.save(optimizer.state_dict(), f'optimizer.{rank:05d}.pt')",
        "state = optimizer.state_dict()\n    torch.save(state, f'optimizer.{rank:05d}.pt')",
        "name = f'{path}.{rank}'\n    torch.save(optimizer.state_dict(), name)",
        "optimizer.load_state_dict(torch.load(path % rank))",
    ],
)
def test_a_file_for_each_rank_is_for_review(use: str) -> None:
    text = (
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def save(net, path, rank):\n    model = FSDP(net)\n"
        f"    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n    {use}\n"
    )
    assert [level for rule, level, _ in rewrite(text).summary if rule == "FM307"] == ["review"]


SOLVER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def write(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)


class Mixed:
    def __init__(self, inner):
        self.inner = inner

    def state_dict(self):
        state = self.inner.state_dict()
        state["scale"] = 1.0
        return state


class Solver:
    def __init__(self, net, path, mixed):
        self.model = FSDP(net)
        self.optimizer = torch.optim.SGD(self.model.parameters())

    def states(self):
        states = {"step": 1}
        states["optimizer"] = self.optimizer.state_dict()
        return states

    def save(self, path):
        states = self.states()
        if states:
            write(states, path)
"""


def test_what_comes_to_a_file_by_a_dict_a_return_and_a_function() -> None:
    assert told(SOLVER) == ['states["optimizer"] = self.optimizer.state_dict()']


def test_an_optimizer_around_another_is_one_cause() -> None:
    mixed = SOLVER.replace(
        "= torch.optim.SGD(self.model.parameters())", "= Mixed(torch.optim.SGD(self.model.parameters()))"
    )
    assert told(mixed) == ["state = self.inner.state_dict()"]
    either = SOLVER + "        if path.mixed:\n            self.optimizer = Mixed(self.optimizer)\n"
    assert told(either) == ['states["optimizer"] = self.optimizer.state_dict()']


def test_beside_functions_for_sharded_optimizers_it_is_the_other_way() -> None:
    other = "\n\ndef full(model, optimizer):\n    return FSDP.optim_state_dict(model, optimizer)\n"
    assert told(SOLVER + other) == []


def test_in_the_body_of_a_test_for_fsdp_it_is_fsdps_way() -> None:
    chosen = (
        "    chosen = [p for p in model.parameters() if p.requires_grad]\n    optimizer = torch.optim.SGD(chosen)\n"
        "    if path.use_fsdp:\n        if path.lora:\n            state = optimizer.state_dict()\n"
        "        else:\n            state = FSDP.optim_state_dict(model, optimizer)\n"
        "        torch.save({'optimizer': state}, path)\n"
        "    else:\n        torch.save(optimizer.state_dict(), path)\n"
    )
    assert told(HEAD + chosen) == ["state = optimizer.state_dict()"]
    way, other = chosen.partition("    if path.use_fsdp:\n")[2].split("    else:\n        torch.save(opt")
    first = chosen.partition("    if path.use_fsdp:\n")[0]
    turned = f"{first}    if not path.use_fsdp:\n        torch.save(opt{other}    else:\n{way}"
    assert told(HEAD + turned) == ["state = optimizer.state_dict()"]


@pytest.mark.parametrize("made", ["SGD(net.parameters())", "SGD(params)"])
def test_an_optimizer_from_before_the_wrap_holds_the_same_parameters(made: str) -> None:
    early = HEAD[: HEAD.index("    model =")] + f"    params = net.parameters()\n    optimizer = torch.optim.{made}\n"
    wrapped = f"{early}    model = FSDP(net, use_orig_params=True)\n    torch.save(optimizer.state_dict(), path)\n"
    assert told(wrapped) == ["torch.save(optimizer.state_dict(), path)"]


def told(text: str) -> list[str]:
    """The statements of which FM307 says that they save."""
    lines = text.splitlines()
    return [lines[f.line - 1].strip() for f in rewrite(text).findings if f.rule == "FM307"]


def test_a_file_by_names_asks_for_the_function_that_loads_it() -> None:
    read = "from torch.distributed.checkpoint.state_dict import get_state_dict, StateDictOptions\n"
    saves = "    _, state = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))\n"
    loads = "    optimizer.load_state_dict(torch.load(path)['optimizer'])\n"
    result = rewrite(f"{read}{HEAD}{loads}{saves}    torch.save({{'optimizer': state}}, path)\n")
    (found,) = [each for each in result.findings if each.rule == "FM307"]
    assert found.level is Level.MANUAL
    assert "by names" in found.message
    assert found.hint.startswith("load it by set_optimizer_state_dict(model, optimizer, state")


def test_the_model_of_a_context_that_shares_a_dict_with_its_optimizer() -> None:
    """What is looked up by a name can be either; `FSDP.state_dict_type(model)` says that it is the model."""
    text = HEAD + "    HELD.update(model=model, optimizer=optimizer)\n\n\nHELD = {}\n\n\n"
    text += "def held(name):\n    return HELD[name]\n"
    text += "\n\ndef save(path):\n    model = held('model')\n    with FSDP.state_dict_type(model, FULL):\n"
    text += "        state = model.state_dict()\n    torch.save(state, path)\n"
    text = text.replace(" as FSDP\n", " as FSDP, StateDictType\n")
    result = rewrite(text.replace("FULL", "StateDictType.FULL_STATE_DICT"))
    assert "state = get_model_state_dict(model, " in result.text
    assert "FM307" not in {finding.rule for finding in result.findings}
