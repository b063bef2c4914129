"""FM304: state dicts of models that nothing wraps, and parts of which are wrapped."""

from __future__ import annotations

import pytest

from ..helpers import code, flat, rewrite, rewrite_files

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4)])

    def shard(self):
        self.head = FSDP(self.head)


def save(model, path):
    torch.save(model.state_dict(), path)


"""
READ = "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"

WRAPPED = [
    "model = Model()\nmodel.shard()\nsave(model, 'a.pt')\n",
    "model = Model()\nfor i, b in enumerate(model.blocks):\n    model.blocks[i] = FSDP(b)\nsave(model, 'a.pt')\n",
    "model = Model()\nsetattr(model, 'head', FSDP(model.head))\nsave(model, 'a.pt')\n",
]


@pytest.mark.parametrize("text", WRAPPED)
def test_the_model_around_wrapped_parts_is_read_whole(text: str) -> None:
    assert f"torch.save({READ}, path)" in rewrite(HEAD + text).text


def test_a_model_two_levels_up_is_read_whole() -> None:
    text = """\
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Model()


model = Outer()
model.model.shard()
save(model, "a.pt")
"""
    assert READ in rewrite(HEAD + text).text


def test_the_class_reads_its_own_state() -> None:
    text = """\
class Own(Model):
    def save(self, path):
        torch.save(self.state_dict(), path)


model = Own()
model.shard()
model.save("a.pt")
"""
    assert READ.replace("model,", "self,") in rewrite(HEAD + text).text


def test_what_was_set_for_the_model_is_what_it_is_read_with() -> None:
    text = """\
def keep(model):
    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True))
    return model.state_dict()


model = Model()
model.shard()
keep(model)
"""
    after = rewrite(HEAD[: HEAD.index("def save")] + text).text
    assert "return get_model_state_dict(" in after
    assert "StateDictOptions(full_state_dict=True, cpu_offload=True)" in after


NOT_WRAPPED = [
    "model = Model()\nmodel.load_state_dict(torch.load('a.pt'))\nmodel.shard()\n",
    "other = nn.Linear(1, 1)\ntorch.save(other.state_dict(), 'b.pt')\nmodel = Model()\nmodel.shard()\n",
]


@pytest.mark.parametrize("text", NOT_WRAPPED)
def test_what_holds_no_wrapped_part_yet_stays(text: str) -> None:
    line = next(line for line in text.splitlines() if "state_dict" in line)
    assert line in rewrite(HEAD + text).text


def test_a_part_that_is_put_back_is_not_wrapped_by_it() -> None:
    text = """\
def train(build, config):
    vae = build(config.vae)
    vae.net = vae.net.to("cpu").eval()
    text_encoder = Encoder()
    text_encoder.net = FSDP(text_encoder.net)
    model = build(config.model)
    torch.save(model.state_dict(), "a.pt")
    torch.save(vae.state_dict(), "b.pt")


class Encoder:
    net = None
"""
    result = rewrite(HEAD.replace("    def shard(self):\n        self.head = FSDP(self.head)\n", "") + text).text
    assert 'torch.save(model.state_dict(), "a.pt")' in result
    assert 'torch.save(vae.state_dict(), "b.pt")' in result


def test_the_way_without_fsdp_stays() -> None:
    text = """\
def main(args):
    model = Model()
    if args.fsdp:
        model.shard()
    if args.fsdp:
        torch.save(model.state_dict(), "a.pt")
    else:
        torch.save(model.state_dict(), "b.pt")
"""
    after = rewrite(HEAD + text).text
    assert f'torch.save({READ}, "a.pt")' in flat(after)
    assert 'torch.save(model.state_dict(), "b.pt")' in after


def test_a_script_that_does_not_wrap_stays() -> None:
    evaluate = "import torch\nfrom model import Model\n\nmodel = Model()\nmodel.load_state_dict(torch.load('a.pt'))\n"
    train = "from model import Model, save\n\nmodel = Model()\nmodel.shard()\nsave(model, 'a.pt')\n"
    after = rewrite_files({"model.py": HEAD, "train.py": train, "evaluate.py": evaluate}).after
    assert after["evaluate.py"] == evaluate
    assert READ in after["model.py"]


SOLVER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Solver:
    def __init__(self, model, names):
        self.model = model
        for name in names:
            part = shard(getattr(self.model, name))
            setattr(self.model, name, part)

    def load(self, state):
        if hasattr(self.model, "module"):
            self.model.module.load_state_dict(state)
        else:
            self.model.load_state_dict(state)

    def save(self, path):
        torch.save(self.model.state_dict(), path)


def shard(module):
    return FSDP(module)


def main(net, names, path):
    solver = Solver(net, names)
    solver.load(torch.load(path))
    solver.save(path)
"""


def test_parts_that_a_helper_wraps() -> None:
    after = rewrite(SOLVER).text
    assert f"torch.save({READ.replace('model,', 'self.model,')}, path)" in flat(after)
    assert (
        "            self.model.module.load_state_dict(state)\n        else:\n            set_model_state_dict("
        in after
    )


def test_an_fsdp2_model_has_no_module_to_be_asked_for() -> None:
    """It takes the other way now; the way of DDP stays what it was."""
    text = """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn.parallel import DistributedDataParallel as DDP


        def save(model, path):
            if hasattr(model, "module"):
                torch.save(model.module.state_dict(), path)
            else:
                torch.save(model.state_dict(), path)


        def main(net, path, sharded):
            save(FSDP(net) if sharded else DDP(net), path)
    """
    after = rewrite(code(text)).text
    assert "torch.save(model.module.state_dict(), path)" in after
    assert "torch.save(whole_state_dict(model), path)" in after


def test_an_object_that_holds_a_model_and_is_none() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class State:
            def __init__(self, model):
                self.model = model

            def state_dict(self):
                return {"steps": 1}


        def main(net):
            state = State(net)
            state.model = FSDP(state.model)
            return state.state_dict()
    """
    assert "return state.state_dict()\n" in rewrite(code(text)).text


def test_what_may_be_such_an_object_is_asked() -> None:
    own = "class Own:\n    def load_state_dict(self, state):\n        print(state)\n\n\n"
    text = own + SOLVER.replace("Solver(net, names)", "Solver(net if names else Own(), names)")
    after = rewrite(text).text
    assert "            if isinstance(self.model, nn.Module):\n" in after
    assert "            else:\n                self.model.load_state_dict(state)\n" in after


INNER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def use(model, state):
    {use}
    return state


def main(net, state, sharded):
    use({made}, state)
"""
IN_A_LINE = (
    'state = model.module.state_dict() if hasattr(model, "module") else model.state_dict()',
    'model.module.load_state_dict(state) if hasattr(model, "module") else model.load_state_dict(state)',
)
IN_BRANCHES = (
    'if hasattr(model, "module"):\n        state = model.module.state_dict()\n'
    "    else:\n        state = model.state_dict()",
    'if hasattr(model, "module"):\n        model.module.load_state_dict(state)\n'
    "    else:\n        model.load_state_dict(state)",
)
OWNER = "\n\nclass Other:\n    def __init__(self, module):\n        self.module = module\n"


@pytest.mark.parametrize("use", [*IN_A_LINE, *IN_BRANCHES])
@pytest.mark.parametrize("more", ["", OWNER])
def test_a_choice_of_what_is_inside_of_no_wrapper_is_one_call(use: str, more: str) -> None:
    after = rewrite(INNER.format(use=use, made="FSDP(net)") + more).text
    assert "hasattr" not in after
    assert after.count("el_state_dict(") == 1


@pytest.mark.parametrize("use", [*IN_A_LINE, *IN_BRANCHES])
def test_a_choice_that_ddp_needs_stays_one(use: str) -> None:
    after = rewrite(INNER.format(use=use, made="FSDP(net) if sharded else DDP(net)")).text
    inner, outer = use.replace("model.state_dict()", "whole_state_dict(model)"), "load_full_state_dict(model, state)"
    assert inner.replace("model.load_state_dict(state)", outer).split() == flat(use_of(after)).split()


def use_of(text: str) -> str:
    return text.partition("def use(model, state):\n")[2].partition("\n    return state")[0]


def test_a_choice_with_a_comment_or_more_in_it_stays() -> None:
    use = IN_BRANCHES[1].replace("    else:", "        print(state)\n    else:")
    for each in (use, IN_BRANCHES[1].replace("    else:", "    else:  # not wrapped")):
        assert "hasattr" in rewrite(INNER.format(use=each, made="FSDP(net)")).text


NESTED = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    pass


class Sampler:
    def state_dict(self):
        return {}


KINDS = {}
KINDS["net"] = Net
KINDS["sampler"] = Sampler


def build(cfg):
    return KINDS[cfg.kind](cfg)


def get_module(module, path):
    for name in path.split("."):
        module = getattr(module, name)
    return module


def set_module(module, path, value):
    owners = []
    for name in path.split("."):
        owners.append((module, name))
        module = getattr(module, name)
    for owner, name in owners[::-1]:
        setattr(owner, name, value)
        value = owner


class Solver:
    def __init__(self, cfg):
        self.model = build(cfg.model)
        self.scheduler = build(cfg.scheduler)
        for name in cfg.sharded:
            set_module(self.model, name, FSDP(get_module(self.model, name)))

    def load(self, state):
        if hasattr(self.model, "module"):
            self.model.module.load_state_dict(state["model"])
        else:
            self.model.load_state_dict(state["model"])
        self.scheduler.load_state_dict(state["scheduler"])

    def save(self, names):
        state = {"scheduler": self.scheduler.state_dict()}
        for name in names:
            module = get_module(self.model, name)
            if isinstance(module, FSDP):
                state[name] = module.state_dict()
            else:
                state[name] = module.state_dict()
        return state
"""


def test_what_a_registry_makes_may_hold_wrapped_parts() -> None:
    """Where a test says that the model itself is not wrapped, too; what is named like a scheduler is none."""
    after = flat(rewrite(NESTED).text)
    read = "get_model_state_dict(module, options=StateDictOptions(full_state_dict=True))"
    assert f"if isinstance(module, FSDPModule): state[name] = {read} else:" in " ".join(after.split())
    choice = f"({read} if isinstance(module, nn.Module) else module.state_dict())"
    assert f"state[name] = {choice}" in " ".join(after.split())
    assert "if isinstance(self.model, nn.Module): set_model_state_dict(" in " ".join(after.split())
    assert "self.scheduler.load_state_dict(state" in after
    assert "self.scheduler.state_dict()" in after


UNWRAP = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def unwrap(model):
    {taken}


def save(model):
    if isinstance(model, FSDP):
        return None
    {state}


def run(net, sharded):
    save(FSDP(net) if sharded else DDP(net))
"""
TAKEN = [
    pytest.param("return model.module if isinstance(model, (DDP, FSDP)) else model", True, id="choice"),
    pytest.param("while hasattr(model, 'module'):\n        model = model.module\n    return model", True, id="loop"),
    pytest.param("model = FSDP(model.net)\n    return model", False, id="something else"),
]


@pytest.mark.parametrize(("taken", "is_seen"), TAKEN)
@pytest.mark.parametrize(
    "state", ["return unwrap(model).state_dict()", "raw = unwrap(model)\n    return raw.state_dict()"]
)
def test_what_is_taken_out_of_another_model_is_none_of_fsdps(taken: str, is_seen: bool, state: str) -> None:
    text = rewrite(UNWRAP.format(taken=taken, state=state)).text
    assert (state in text) == is_seen


BACKENDS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


class Local:
    def wrap(self, model):
        return model.cuda()

    def save(self, model, path):
        torch.save(self.read(model), path)

    def read(self, model):
        return model.state_dict()


class Sharded(BASES):
    def wrap(self, model):
        return FSDP(model)

    def save(self, model, path):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            torch.save(model.state_dict(), path)


def main(backend, net, path):
    backend.save(backend.wrap(net), path)
"""


@pytest.mark.parametrize("bases", ["Local", "object"])
def test_class_that_prepares_other_models_itself(bases: str) -> None:
    """Its `read` is for its own models: the class that wraps has a `save` of its own, and nothing else calls `read`."""
    result = rewrite(BACKENDS.replace("BASES", bases))
    assert "return model.state_dict()" in result.text
    assert "FM304" not in {finding.rule for finding in result.findings}


@pytest.mark.parametrize(
    "changed",
    [
        ("    def wrap(self, model):\n        return model.cuda()\n\n", ""),
        ("        with FSDP", "        super().save(model, path)\n        with FSDP"),
        ("path)\n", "path)\n    return backend.read(net)\n"),
    ],
)
def test_class_whose_models_are_not_seen_to_be_others(changed: tuple[str, str]) -> None:
    before, after = changed
    text = BACKENDS.replace("BASES", "object")
    at = text.rindex(before)
    result = rewrite(text[:at] + after + text[at + len(before) :])
    assert "FM304" in {finding.rule for finding in result.findings}
