"""Which expressions are FSDP models: what is stored by whoever is followed, and what is none is left alone."""

from __future__ import annotations

import pytest

from ..helpers import code, flat, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel as DDP


def shard(module):
    return FSDP(module)
"""
BOX = """

class Box:
    def __init__(self, make):
        self.net = make()
        self.other = None
"""
USE = "    norm = {0}.clip_grad_norm_(1.0)\n    torch.save({0}.state_dict(), 'x.pt')\n"
USED = (
    "    norm = torch.nn.utils.clip_grad_norm_({0}.parameters(), 1.0).full_tensor()\n"
    "    torch.save(get_model_state_dict({0}, options=StateDictOptions(full_state_dict=True)), 'x.pt')\n"
)

STORES = [
    pytest.param("box.net = shard(box.net)", "box.net", id="from outside"),
    pytest.param('setattr(box, "net", shard(box.net))', "box.net", id="setattr"),
    pytest.param('vars(box)["net"] = shard(box.net)', "box.net", id="vars"),
    pytest.param('box.__dict__["net"] = shard(box.net)', "box.net", id="__dict__"),
    pytest.param("box.__dict__.update(net=shard(box.net))", "box.net", id="update"),
    pytest.param("box.net, box.other = shard(box.net), 1", "box.net", id="tuple"),
    pytest.param("fill(box, shard(box.net))", "box.net", id="filled"),
    pytest.param("nets = []\n    nets.extend([shard(box.net)])", "nets[0]", id="list"),
    pytest.param("nets = {}\n    nets.update(a=shard(box.net))", 'nets["a"]', id="dict"),
]


@pytest.mark.parametrize(("store", "model"), STORES)
def test_any_store_counts(store: str, model: str) -> None:
    fill = "\n\ndef fill(box, net):\n    box.net = net\n"
    result = rewrite(HEAD + BOX + fill + f"\n\ndef main(make):\n    box = Box(make)\n    {store}\n" + USE.format(model))
    assert flat(result.text).endswith(USED.format(model))


def test_program_of_a_distillation() -> None:
    text = code(
        """
        class Trainer:
            def __init__(self, make):
                self.dm = Box(make)
                self.dm.net = shard(self.dm.net)

            def step(self):
                norm = self.dm.net.clip_grad_norm_(1.0)
        """
    )
    result = rewrite(HEAD + BOX + "\n\n" + text)
    assert "norm = torch.nn.utils.clip_grad_norm_(self.dm.net.parameters(), 1.0).full_tensor()\n" in result.text


def test_two_from_a_method() -> None:
    text = code(
        """
        class Trainer:
            def __init__(self, net):
                self.model, self.rest = self.build(net)

            def build(self, net):
                return shard(net), 1

            def step(self):
                norm = self.model.clip_grad_norm_(1.0)
        """
    )
    result = rewrite(HEAD + "\n\n" + text)
    assert "norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).full_tensor()\n" in result.text


REPORTED = [
    "units = FSDP.fsdp_modules(model)\n    units[-1].sharding_strategy = ShardingStrategy.SHARD_GRAD_OP",
    "units = [FSDP(block) for block in made()]\n    units[-1].sharding_strategy = ShardingStrategy.SHARD_GRAD_OP",
    "roots = [unit for unit in FSDP.fsdp_modules(model) if unit.check_is_root()]",
    "for unit in FSDP.fsdp_modules(model):\n        print(unit.check_is_root())",
]


@pytest.mark.parametrize("statements", REPORTED)
def test_units_are_models(statements: str) -> None:
    result = rewrite(HEAD + f"\n\ndef main(net):\n    model = FSDP(net)\n    {statements}\n")
    assert "FM207" in {rule for rule, _, _ in result.summary}


SAYS_SO = [
    "def save(model: FSDP):\n    torch.save(model.state_dict(), 'x.pt')\n",
    "def save(model):\n    FSDP.set_state_dict_type(model, 1)\n    torch.save(model.state_dict(), 'x.pt')\n",
]


@pytest.mark.parametrize("function", SAYS_SO)
def test_annotation_and_being_handed_to_fsdp(function: str) -> None:
    result = rewrite(HEAD + "\n\n" + function)
    assert "torch.save(model.state_dict(), 'x.pt')" not in result.text or "FM304" in {r for r, _, _ in result.summary}


NONE = [
    pytest.param(
        "class Trainer:\n    def __init__(self, net):\n        self.net = net\n        {}\n\n"
        "    def wrap(self):\n        self.net = FSDP(self.net)\n\n\n"
        "def main(net):\n    trainer = Trainer(net)\n    trainer.wrap()\n",
        "self.net.load_state_dict(torch.load('x.pt'))",
        id="before the wrap",
    ),
    pytest.param(
        "class Trainer:\n    def __init__(self, net):\n        self.net = net\n        {}\n"
        "        self.net = shard(self.net)\n",
        "self.kept = self.net.state_dict()",
        id="before a helper wraps it",
    ),
    pytest.param(
        "def save(model):\n    if isinstance(model, FSDP):\n        return None\n    {}\n\n\n"
        "def main(net):\n    save(FSDP(net))\n",
        "return model.module.state_dict()",
        id="behind an isinstance that returned",
    ),
    pytest.param(
        "def save(model):\n    if isinstance(model, FSDP):\n        return None\n    else:\n        {}\n\n\n"
        "def main(net):\n    save(FSDP(net))\n",
        "return model.module.state_dict()",
        id="the else of an isinstance",
    ),
    pytest.param(
        "def main(net, args):\n    net = DDP(net) if args.kind == 'torch_ddp' else FSDP(net)\n"
        "    if args.kind == 'torch_ddp':\n        {}\n",
        "torch.save(net.module.state_dict(), 'x.pt')",
        id="the flag of DDP",
    ),
    pytest.param(
        "def size():\n    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1\n\n\n"
        "def build(net):\n    world = size()\n    if world == 1:\n        return net\n    return shard(net)\n\n\n"
        "def save(net):\n    for part in net.modules():\n        if size() > 1:\n"
        "            part = FSDP.summon_full_params(part)\n        else:\n            {}\n\n\n"
        "def main(net):\n    save(build(net))\n",
        "torch.save(part.state_dict(), 'x.pt')",
        id="one rank alone, for which nothing is wrapped",
    ),
    pytest.param(
        "def save(model: DDP):\n    {}\n\n\ndef main(net):\n    return FSDP(net), save\n",
        "torch.save(model.module.state_dict(), 'x.pt')",
        id="annotated DDP",
    ),
    pytest.param(
        "class Trainer:\n    def no_sync(self):\n        return None\n\n    def step(self):\n        {}\n\n\n"
        "def main(net):\n    return FSDP(net)\n",
        "return self.no_sync()",
        id="a method of the program's own",
    ),
]


@pytest.mark.parametrize(("text", "use"), NONE)
def test_what_is_no_fsdp_model(text: str, use: str) -> None:
    text = HEAD + "\n\n" + text.format(use)
    result = rewrite(text)
    assert f" {use}\n" in result.text
    line = text.split("\n").index(next(line for line in text.split("\n") if line.strip() == use)) + 1
    assert line not in {found for _, _, found in result.summary}


def test_below_one_of_two_wraps_by_a_helper() -> None:
    text = (
        "\n\nclass Trainer:\n    def __init__(self, net, args):\n        self.net = shard(net)\n"
        "        self.kept = self.net.state_dict()\n        if args.again:\n            self.net = shard(args.net)\n"
    )
    assert "self.kept = self.net.state_dict()" not in rewrite(HEAD + text).text


CHOICES = ["(FSDP if args.sharded else Plain)(net)", "wrapper(net)"]


@pytest.mark.parametrize("made", CHOICES)
def test_a_class_that_is_one_of_several_makes_an_fsdp_model_too(made: str) -> None:
    text = (
        "\n\nclass Plain(torch.nn.Module):\n    pass\n\n\n"
        "def main(net, args):\n    wrapper = FSDP if args.sharded else Plain\n"
        f"    model = {made}\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    assert "FM206" in {rule for rule, _, _ in rewrite(HEAD + text).summary}
    other = text.replace("FSDP if", "DDP if")
    assert "FM206" not in {rule for rule, _, _ in rewrite(HEAD + other).summary}


_CHOSEN = """
class Trainer:
    def __init__(self, net):
        if torch.cuda.device_count() > 1:
            self.kind = "fsdp"
        else:
            self.kind = "ddp"
        self.net = FSDP(net) if self.kind == "fsdp" else DDP(net)

    def save(self):
        if self.kind == "ddp":
            {}
"""
_ONLY_DDP = "torch.save(self.net.module.state_dict(), 'x.pt')"


def test_what_another_branch_of_a_kind_chosen_once_holds_is_left_alone() -> None:
    text = HEAD + _CHOSEN.format(_ONLY_DDP)
    assert _ONLY_DDP in rewrite(text).text
    by_argument = (
        HEAD
        + _CHOSEN.format("save_net(self.net, self.kind)")
        + ("\n\ndef save_net(net, kind):\n    if kind == 'ddp':\n        torch.save(net.module.state_dict(), 'x.pt')\n")
    )
    assert "torch.save(net.module.state_dict(), 'x.pt')" in rewrite(by_argument).text


_BY_FLAG = """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

use_fsdp = False
exec(open("configurator.py").read())
model = Net()
if use_fsdp:
    model = FSDP(model)
else:
    model = DDP(model)
{}
"""


def test_a_flag_at_the_top_of_a_script_is_the_same_at_each_place() -> None:
    """The nanoGPT way: a constant that a file of settings may overwrite."""
    line = "raw_model = model.module if args.distributed and not use_fsdp else model"
    assert f"\n{line}\n" in rewrite(_BY_FLAG.format(line)).text
    line = "if not use_fsdp:\n    torch.save(model.state_dict(), 'x.pt')"
    assert f"\n{line}\n" in rewrite(_BY_FLAG.format(line)).text
    line = "use_fsdp = args.sharded\nif not use_fsdp:\n    torch.save(model.state_dict(), 'x.pt')"
    assert "whole_state_dict(model)" in rewrite(_BY_FLAG.format(line)).text


_OTHER_WAY = """
import torch
try:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    AVAILABLE = True
except ImportError:
    FSDP, AVAILABLE = None, False


def save(model, path, other):
    {}
        state = model.state_dict()
    else:
        state = model.state_dict()
    torch.save(state, path)


save(FSDP(Net()), "x.pt", None)
"""
_SAID = [
    "is_fsdp = isinstance(model, FSDP)\n    if is_fsdp:",
    "is_fsdp = FSDP is not None and isinstance(model, FSDP)\n    if is_fsdp:",
    "if FSDP is not None and isinstance(model, FSDP):",
    "if AVAILABLE and isinstance(model, FSDP):",
]
_SET = "state = None\n    if isinstance(model, FSDP):\n        state = model.state_dict()\n    {}if state is not None:"
_SAID.append(_SET.format(""))
_UNSAID = [
    _SET.format("if other:\n        state = None\n    "),
    "is_fsdp = isinstance(model, FSDP)\n    model = other or model\n    if is_fsdp:",
    "if other and isinstance(model, FSDP):",
]


@pytest.mark.parametrize("test", _SAID)
def test_the_other_way_of_a_class_test_that_has_a_name(test: str) -> None:
    text = rewrite(_OTHER_WAY.format(test)).text
    assert "    else:\n        state = model.state_dict()\n" in text


@pytest.mark.parametrize("test", _UNSAID)
def test_what_a_named_class_test_does_not_say(test: str) -> None:
    text = rewrite(_OTHER_WAY.format(test)).text
    assert "    else:\n        state = model.state_dict()\n" not in text


@pytest.mark.parametrize("wrapper", ["offload_wrapper", "checkpoint_wrapper"])
def test_a_model_in_what_saves_activations_is_still_one(wrapper: str) -> None:
    head = f"from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import {wrapper}\n"
    text = f"model = {wrapper}(FSDP(Net()))\nmodel.clip_grad_norm_(1.0)\ntorch.save(model.state_dict(), 'x.pt')\n"
    after = rewrite(head + HEAD + text).text
    assert "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in after
    assert "get_model_state_dict(model, " in after


_TWO_CALLS = """
def main(args, net, ema):
    net = shard(net) if args.fsdp else DDP(net)
    ema = shard(ema) if {} else DDP(ema)
    keep(args, net)
    keep(args, ema)


def keep(args, model):
    if not args.fsdp:
        torch.save(model.module.state_dict(), 'x.pt')
"""


def test_a_helper_that_wraps_under_one_flag_at_all_its_calls() -> None:
    line = "torch.save(model.module.state_dict(), 'x.pt')"
    assert line in rewrite(HEAD + _TWO_CALLS.format("args.fsdp")).text
    assert line not in rewrite(HEAD + _TWO_CALLS.format("args.fsdp or args.ema")).text


CHANGES = [
    pytest.param("def leave(self):\n        self.kind = 'ddp'\n\n    def save", id="set again by a method"),
    pytest.param("def choose(self, n):\n        self.kind = 'ddp' if n else 'fsdp'\n\n    def save", id="chosen again"),
]


@pytest.mark.parametrize("more", CHANGES)
def test_a_kind_that_changes_says_nothing_of_the_model(more: str) -> None:
    result = rewrite(HEAD + _CHOSEN.format(_ONLY_DDP).replace("def save", more))
    assert _ONLY_DDP not in result.text


def test_a_helper_of_two_programs_knows_the_flag_of_each() -> None:
    """`args` is another object in each of them, and each hands over its own with its own model."""
    helper = "import torch\n\n\ndef save(args, model):\n    if args.fsdp:\n        pass\n    else:\n        {}\n"
    line = "torch.save(model.state_dict(), 'x.pt')"
    main = (
        "import argparse\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nfrom save import save\n\n\n"
        "def main(args, net):\n    if args.fsdp:\n        net = FSDP(net)\n    save(args, net)\n\n\n"
        "main(argparse.ArgumentParser().parse_args(), None)\n"
    )
    files = {"one.py": main, "two.py": main, "save.py": helper.format(line)}
    assert line in rewrite_files(files).after["save.py"]
    open_flag = {**files, "save.py": files["save.py"].replace("args.fsdp", "args.other")}
    assert line not in rewrite_files(open_flag).after["save.py"]


_PUT_BY_PATH = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mid = nn.Module()
        self.mid.block = nn.Linear(2, 2)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.ones_(m.weight)
        self.init_weights()

    def init_weights(self):
        def basic(module):
            if isinstance(module, nn.Linear):
                nn.init.ones_(module.weight)
        self.apply(basic)
        nn.init.ones_(self.mid.block.weight)


def get_module(instance, sub_module):
    for sub_mod in sub_module.split('.'):
        instance = getattr(instance, sub_mod)
    return instance


def set_module(instance, sub_module, value):
    instance_list = []
    for sub_mod in sub_module.split('.'):
        instance_list.append((instance, sub_mod))
        instance = getattr(instance, sub_mod)
    instance = value
    for parents_instance, sub_mod in instance_list[::-1]:
        setattr(parents_instance, sub_mod, instance)
        instance = parents_instance

class Solver:
    def __init__(self, cfg, build):
        self.model = build(cfg)
    def wrap(self, names):
        for name in names:
            sub = get_module(self.model, name)
            sub = FSDP(sub)
            set_module(self.model, name, sub)
    def step(self):
        self.model.decoder.clip_grad_norm_(1.0)
"""


def test_store_by_a_name_from_anywhere_is_one_of_its_own_object() -> None:
    """`setattr(owner, name, unit)` in a helper reaches what the helper is given, and not each attribute there is."""
    result = rewrite(_PUT_BY_PATH)
    assert "torch.nn.utils.clip_grad_norm_(self.model.decoder.parameters(), 1.0)" in result.text
    assert {rule for rule, _, _ in result.summary} == {"FM101", "FM202"}


_ANNOTATED = """\
from typing import Optional, Union

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap(net):
    return FSDP(net)


def step(model: {annotation}):
    return model.clip_grad_norm_(1.0), DDP, Optional, Union
"""


@pytest.mark.parametrize(
    ("annotation", "after"),
    [
        ("FSDP", "nn.Module"),
        ('"FSDP"', '"nn.Module"'),
        ("Optional[FSDP]", "Optional[nn.Module]"),
        ('Optional["FSDP"]', 'Optional["nn.Module"]'),
        ("FSDP | None", "nn.Module | None"),
        ("nn.Module | FSDP", "nn.Module"),
    ],
)
def test_annotation_of_a_model(annotation: str, after: str) -> None:
    result = rewrite(_ANNOTATED.format(annotation=annotation))
    assert f"def step(model: {after}):" in result.text
    assert "clip_grad_norm_(model.parameters(), 1.0)" in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_annotation_of_one_model_or_another() -> None:
    """What is done must be right for a DDP model too."""
    text = _ANNOTATED.format(annotation="Union[FSDP, DDP]").replace("model.clip_grad_norm_(1.0)", "model.state_dict()")
    assert "whole_state_dict(model)" in rewrite(text).text


@pytest.mark.parametrize("annotation", ['"FSDPModule"', "FSDPModule"])
def test_function_for_fsdp2_models_of_its_own(annotation: str) -> None:
    text = _ANNOTATED.format(annotation=annotation).replace("model.clip_grad_norm_(1.0)", "model.state_dict()")
    text = text.replace(
        "import FullyShardedDataParallel as FSDP", "import FSDPModule, FullyShardedDataParallel as FSDP"
    )
    assert "return model.state_dict()," in rewrite(text).text


def test_a_cast_for_the_type_checker_is_the_model() -> None:
    text = "from typing import cast\n" + HEAD + "\n\ndef use(net):\n    model = cast(torch.nn.Module, shard(net))\n"
    assert rewrite(text + USE.format("model")).text.endswith(USED.format("model"))


def test_trainers_of_one_base_that_pass_it_models_of_several_kinds() -> None:
    """`super(Own, self)` is `super()`: a base class that DDP's trainer shares with FSDP's has models of both."""
    result = rewrite_files(
        {
            "base.py": code(
                """
                import torch


                class Base:
                    def __init__(self, model, kind):
                        self.model = model
                        self.kind = kind
                        self.name = self.model.module.name if kind else self.model.name

                    def save(self, path):
                        torch.save(self.model.module.state_dict(), path)
                """
            ),
            "train.py": code(
                """
                from base import Base
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
                from torch.nn.parallel import DistributedDataParallel as DDP


                class Sharded(Base):
                    def __init__(self, model):
                        self.model = FSDP(model)
                        super(Sharded, self).__init__(self.model, "fsdp")


                class Replicated(Base):
                    def __init__(self, model):
                        self.model = DDP(model)
                        super(Replicated, self).__init__(self.model, "ddp")
                """
            ),
        }
    )
    base = result.after["base.py"]
    assert "self.name = unwrap(self.model).name if kind else self.model.name" in base
    assert "torch.save(whole_state_dict(unwrap(self.model)), path)" in base


def test_parameter_that_is_said_to_be_an_optimizer_is_no_model() -> None:
    """A getter for everything mixes what it gets; what the function says of its own parameter is more."""
    text = code(
        """
        from typing import Optional

        from torch.optim import Optimizer


        def chosen(value, config, name):
            if value is not None:
                return value
            return getattr(config, name, None)


        def step(model, optimizer: Optional[Optimizer]):
            with torch.no_grad():
                model(torch.ones(4))
            optimizer.zero_grad()
            torch.save(optimizer.state_dict(), "x.pt")


        def main(net, config, optimizer=None):
            model = shard(net)
            step(chosen(model, config, "model"), chosen(optimizer, config, "optimizer"))
        """
    )
    result = rewrite(HEAD + text)
    assert "reshard_all(optimizer)" not in result.text
    assert "optimizer.reshard()" not in result.text
    assert '    torch.save(optimizer.state_dict(), "x.pt")\n' in result.text


GUARDED = """\
import torch

try:
    from {module} import {name}
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

    AVAILABLE = True
except ImportError:
    AVAILABLE = False


def shard(net):
    return FSDP(net) if AVAILABLE else torch.nn.parallel.DistributedDataParallel(net)


def save(model):
    if AVAILABLE:
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            return model.state_dict()
    return model.state_dict() if AVAILABLE else {{"model": model.state_dict()}}


def main(net):
    return save(shard(net))
"""


def test_without_what_torch_has_there_is_no_fsdp_model() -> None:
    text = GUARDED.format(module="torch.distributed.fsdp.wrap", name="wrap")
    assert '{"model": model.state_dict()}' in rewrite(text).text
    other = text.replace(
        "    AVAILABLE = True\nexcept ImportError:\n    AVAILABLE = False\n",
        "except ImportError:\n    pass\ntry:\n    import wandb\n    AVAILABLE = True\nexcept ImportError:\n"
        "    AVAILABLE = False\n",
    )
    assert '{"model": model.state_dict()}' not in rewrite(other).text


BEHIND_ONE_NAME = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


class Ddp:
    def setup(self, net):
        return DDP(net)

    def state(self, model):
        return model.module.state_dict()


class Fsdp:
    def setup(self, net):
        return FSDP(net)

    def state(self, model):
        return model.state_dict()


def run(net, name):
    strategy = {{"ddp": Ddp, "fsdp": Fsdp}}[name]()
    model = strategy.setup(net)
    {}
    return strategy.state(model)
"""


@pytest.mark.parametrize(
    ("between", "is_apart"), [("print(model)", True), ("strategy = Ddp()", False), ("model = FSDP(net)", False)]
)
def test_what_an_object_makes_comes_back_to_an_object_of_its_class(between: str, is_apart: bool) -> None:
    text = rewrite(BEHIND_ONE_NAME.format(between)).text
    assert ("        return model.module.state_dict()\n" in text) == is_apart


OVERRIDDEN = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net):
        self.model = self.wrap(net)

    def wrap(self, net):
        return net

    def state(self):
        return self.model.state_dict()


class Sharded(Trainer):
    def wrap(self, net):
        return FSDP(net)

    {}
"""
OWN = [
    ("def state(self):\n        return None", True),
    ("def state(self):\n        return super().state()", False),
    ("def state(self):\n        return None\n\n    def base(self):\n        return super().state()", False),
    ("def other(self):\n        return None", False),
    ("def state(self):\n        return None\n\n\nplain = Trainer(Sharded.wrap(None, net))", False),
]


@pytest.mark.parametrize(("own", "is_apart"), OWN)
def test_what_a_class_wraps_for_itself_comes_to_no_method_that_it_overrides(own: str, is_apart: bool) -> None:
    text = rewrite(OVERRIDDEN.format(own)).text
    assert ("        return self.model.state_dict()\n" in text) == is_apart


GIVEN_BACK = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import always_wrap_policy


def shard(model):
    for p in model.parameters():
        p.data = p.data.half()
    model = FSDP(model{})
    return model


def prepare(pipe):
    pipe.net = shard(pipe.net)
    pipe.head = shard(pipe.head)
"""


@pytest.mark.parametrize(("given", "is_told"), [(", auto_wrap_policy=always_wrap_policy", False), ("", True)])
def test_what_a_call_makes_does_not_come_back_to_it(given: str, is_told: bool) -> None:
    """With a policy FSDP1 refuses a model of which anything is wrapped; without, blocks can come before the root."""
    found = [finding.rule for finding in rewrite(GIVEN_BACK.format(given)).findings]
    assert ("FM213" in found) == is_told


WORKER = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Linear):
    pass


class Worker:
    def __init__(self):
        self.module = FSDP(Net(2, 2))

    def clip(self):
        self.module.clip_grad_norm_(1.0)
"""


def test_an_object_may_keep_its_model_by_the_name_that_a_wrapper_has_for_it() -> None:
    assert "clip_grad_norm_(self.module.parameters(), 1.0)" in rewrite(WORKER).text


DECORATED = """

def sharded(**options):
    def decorator(build):
        def inner(*args):
            return FSDP(build(*args), **options)
        return inner
    return decorator


def logged(build):
    def inner(*args):
        made = build(*args)
        print(made)
        return made
    return inner


@{above}
def make(net):
    return {made}


@logged
def other():
    return shard(torch.nn.Linear(2, 2))


def main(net):
    model = make(net)
    optimizer = torch.optim.AdamW(model.parameters())
"""


@pytest.mark.parametrize(
    ("above", "made", "is_model"),
    [("sharded(use_orig_params=True)", "net", True), ("logged", "shard(net)", True), ("logged", "net", False)],
)
def test_a_decorator_gives_what_it_makes_of_a_result(above: str, made: str, is_model: bool) -> None:
    """One that hands on what it gets gives each function its own, and not that of the others."""
    text = HEAD + DECORATED.format(above=above, made=made)
    result = rewrite(text + USE.format("model"))
    assert flat(result.text).endswith(USED.format("model")) is is_model
    assert "FM454" not in {finding.rule for finding in result.findings}


def test_methods_of_a_name_that_another_class_has_run_on_the_wrapped_model() -> None:
    net = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return x

    def loss(self, x):
        return self.forward(x).sum()

    def save(self, path):
        torch.save(self.state_dict(), path)
"""
    train = "from net import Net\n" + HEAD + "\n\nmodel = shard(Net())\nmodel.loss(x).backward()\nmodel.save('x.pt')\n"
    result = rewrite_files({"net.py": net, "other.py": net.replace("Net", "Other"), "train.py": train})
    assert "return self(x).sum()" in result.after["net.py"]
    assert "get_model_state_dict(self, " in result.after["net.py"]
    assert result.after.get("other.py", net.replace("Net", "Other")) == net.replace("Net", "Other")
