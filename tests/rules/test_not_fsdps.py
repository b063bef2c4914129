"""What is not FSDP's is not touched: code that no FSDP model comes to stays byte for byte, without a finding."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ..helpers import Result, code, rewrite, rewrite_files


def stays(files: Mapping[str, str], *names: str) -> Result:
    """The program, of which these files stay as they are, and nothing is said of them."""
    result = rewrite_files({name: code(text) for name, text in files.items()})
    for name in names:
        assert result.after[name] == result.before[name]
    assert [found for found in result.findings if found.path.name in {name.rpartition("/")[2] for name in names}] == []
    return result


OWN_WAY = """
    import importlib

    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
    from torch.distributed.fsdp import fully_shard


    def parallel(parts):
        for part in parts:
            fully_shard(part)
        return parts


    class Pipeline:
        def __init__(self, parts, name):
            self.parts = parallel(parts)
            self.optimizers = [importlib.import_module(name).make(part) for part in self.parts]

        def load(self, state):
            options = StateDictOptions(full_state_dict=True)
            for part, optimizer in zip(self.parts, self.optimizers):
                set_optimizer_state_dict(part, optimizer, state, options=options)

        def norm(self, group):
            grads = [p.grad for part in self.parts for p in part.parameters()]
            total = torch.nn.utils.get_total_norm(grads) ** 2
            dist.all_reduce(total, group=group)
            return total.sqrt()
"""
OF_A_TEST = """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    import weights


    def test_save():
        weights.save(FSDP(torch.nn.Linear(4, 4)), "x.pt")
"""
SAVES = """
    import torch


    def save(model, path):
        torch.save(model.state_dict(), path)
"""


def test_a_way_of_fsdp2_is_not_that_of_a_test_that_still_wraps() -> None:
    """A test hands its models to what it imports, whatever other files import by names that run time makes up."""
    files = {"pipeline.py": OWN_WAY, "weights.py": SAVES, "test_weights.py": OF_A_TEST}
    result = stays(files, "pipeline.py")
    assert "get_model_state_dict(model" in result.after["weights.py"]


def test_a_file_that_a_test_imports_may_get_its_models() -> None:
    test = OF_A_TEST.replace("import weights", "import pipeline\n    import weights")
    files = {"pipeline.py": OWN_WAY, "weights.py": SAVES, "test_weights.py": test}
    result = rewrite_files({name: code(text) for name, text in files.items()})
    assert "with_own_steps(state)" in result.after["pipeline.py"]


@pytest.mark.parametrize("plain", ["full_tensor", "to_local"])
def test_a_norm_that_is_taken_out_of_its_dtensor_is_a_plain_one(plain: str) -> None:
    text = code(f"""
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.tensor import DTensor


        def norm(parts, group):
            total = torch.nn.utils.get_total_norm([p.grad for part in parts for p in part.parameters()])
            if isinstance(total, DTensor):
                total = total.{plain}()
            dist.all_reduce(total, group=group)
            return total


        def build(net):
            return FSDP(net)
    """)
    assert [found for found in rewrite(text).findings if found.rule == "FM402"] == []
    below = text.replace("    dist.all_reduce(total, group=group)\n", "").replace(
        "    if isinstance", "    dist.all_reduce(total, group=group)\n    if isinstance"
    )
    assert [found.level.value for found in rewrite(below).findings if found.rule == "FM402"] == ["manual"]


IMPORTS = """\
import os

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
"""
PLAIN = 'torch.save(model.state_dict(), "plain.pt")'

WAYS = {
    "the else of two flags": """
def main(args, net):
    if args.distributed and args.fsdp:
        model = FSDP(net)
    else:
        model = DDP(net)
    if args.distributed and args.fsdp:
        print("sharded")
    else:
        {plain}
""",
    "neither of two flags": """
def main(args, net):
    model = net
    if not args.plain and args.fsdp:
        model = FSDP(net)
    if args.plain or not args.fsdp:
        {plain}
""",
    "a flag that is set up before": """
def start(args):
    if "RANK" not in os.environ:
        args.distributed = False
        return
    args.distributed = True


def main(args, net):
    start(args)
    model = net
    if args.distributed:
        model = FSDP(net)
    if not args.distributed:
        {plain}
""",
    "an annotation of a model that is or is not sharded": """
from typing import Union


def save(model: Union[torch.nn.Module, FSDP], zero):
    if zero:
        print("sharded")
    else:
        {plain}


def main(args, net):
    model = FSDP(net) if args.zero else args.compiled(net)
    save(model, args.zero)
""",
    "the other way of the flags that FSDP1 was asked under": """
from torch.distributed.fsdp import StateDictType


class Trainer:
    def __init__(self, cf, net):
        self.model = net
        if cf.with_ddp and cf.with_fsdp:
            self.model = FSDP(net)
        elif cf.with_ddp:
            self.model = DDP(net)

    def save(self, cf):
        model = self.model
        if cf.with_ddp and cf.with_fsdp:
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                torch.save(model.state_dict(), "full.pt")
        else:
            {plain}
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_on_which_nothing_is_wrapped(way: str) -> None:
    result = rewrite(IMPORTS + "\n" + WAYS[way].format(plain=PLAIN))
    assert f"    {PLAIN}\n" in result.text
    assert [found for found in result.findings if found.rule == "FM304" and found.level.value != "rewritten"] == []


TOGETHER = {
    "one of two flags": WAYS["the else of two flags"].replace(
        "args.distributed and args.fsdp:\n        print", "args.x:\n        print"
    ),
    "a flag that changes": WAYS["a flag that is set up before"].replace(
        "    if not args", "    args.distributed = args.late\n    if not args"
    ),
    "another flag beside those of the wrap": WAYS["the other way of the flags that FSDP1 was asked under"].replace(
        "model = self.model\n        if cf.", "model = self.model\n        if cf.whole and cf."
    ),
}


@pytest.mark.parametrize("way", TOGETHER)
def test_a_way_on_which_the_model_may_be_wrapped(way: str) -> None:
    assert f"    {PLAIN}\n" not in rewrite(IMPORTS + "\n" + TOGETHER[way].format(plain=PLAIN)).text


SETTINGS = """
class Settings:
    def __init__(self):
        self._config = None

    @property
    def config(self):
        return self._config

    def load(self, config):
        self._config = config


settings = Settings()
others = Settings()
"""
ELSEWHERE = """
import torch
from settings import NAME


def save(model):
    if NAME.config.zero.fsdp:
        print("sharded")
    else:
        torch.save(model.state_dict(), "plain.pt")
"""
BY_SETTINGS = f"""
{IMPORTS}
from save import save
from settings import settings


def main(net, config):
    settings.load(config)
    if settings.config.zero.fsdp:
        net = FSDP(net)
    save(net)
"""


@pytest.mark.parametrize("name", ["settings", "others"])
def test_a_way_of_a_flag_that_another_file_asks(name: str) -> None:
    files = {"settings.py": SETTINGS, "save.py": ELSEWHERE.replace("NAME", name), "train.py": BY_SETTINGS}
    result = rewrite_files(files)
    assert (f"        {PLAIN}\n" in result.after["save.py"]) is (name == "settings")


def test_what_one_trainer_loads_before_it_wraps_is_not_what_another_wrapped() -> None:
    """Two trainers of a program, of which each run has one: the first loads its weights where it makes the model."""
    models = """
        import torch


        class Base(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(4, 4)


        class First(Base):
            def __init__(self, path):
                super().__init__()
                self.net.load_state_dict(torch.load(path))


        class Second(Base):
            pass
    """
    shard = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def shard(net):
            return FSDP(net)
    """
    train = """
        import sys

        import torch

        from models import First, Second
        from shard import shard


        class One:
            def __init__(self, config):
                self.model = First(config.path)
                self.model.net = shard(self.model.net)


        class Other:
            def __init__(self, config):
                self.model = Second()
                self.model.net = shard(self.model.net)


        def main(config):
            if config.kind == "other":
                trainer = Other(config)
            elif config.kind == "one":
                trainer = One(config)
    """
    stays({"models.py": models, "shard.py": shard, "train.py": train}, "models.py")


OF_INPUTS = {
    "made with a gradient": "x = torch.zeros(8, requires_grad=True)\nloss = model(x).sum()\nloss.backward()",
    "asked for its gradient": "x = start.clone().requires_grad_(True)\nmodel(x).sum().backward()",
    "a batch that is asked for it": "x.requires_grad_()\nmodel(x).sum().backward()",
}


@pytest.mark.parametrize("made", OF_INPUTS)
def test_the_gradient_of_an_input_is_no_parameters(made: str) -> None:
    lines = "".join(f"    {line}\n" for line in (*OF_INPUTS[made].splitlines(), "dist.all_reduce(x.grad.abs())"))
    text = IMPORTS + "import torch.distributed as dist\n\n\ndef attack(net, x, start):\n    model = FSDP(net)\n" + lines
    assert [found for found in rewrite(text).findings if found.rule == "FM402"] == []
    of_model = text.replace("x.grad", "next(model.parameters()).grad")
    assert [found.rule for found in rewrite(of_model).findings if found.level.value == "manual"] == ["FM402"]


BY_HAND = """
class {name}(torch.nn.Module):
    def __init__(self, module, group):
        super().__init__()
        self.module, self.group = module, group

    def reduce(self):
        for param in self.module.parameters():
            dist.all_reduce(param.grad.data, group=self.group)


def {function}(model, group, use_ddp):
    if {flag}:
        grads = [param.grad for param in model.parameters()]
        dist.all_reduce(torch.cat([grad.flatten() for grad in grads]), group=group)


def build(net):
    return FSDP(net)
"""


def test_what_is_called_ddps_is_data_parallelism() -> None:
    head = IMPORTS + "import torch.distributed as dist\n\n"

    def manual(**names: str) -> list[str]:
        return [f.rule for f in rewrite(head + BY_HAND.format(**names)).findings if f.level.value == "manual"]

    assert manual(name="DistributedDataParallel", function="sync", flag="use_ddp") == []
    assert manual(name="SimpleDDP", function="test_ddp_sync", flag="group") == []
    assert manual(name="Sharder", function="sync", flag="group") == ["FM402", "FM402"]


COUNTED = """
def train(net, log):
    trained = {made}
    log({count})
    model = FSDP(net)
    return torch.optim.SGD({given}, lr=0.1)
"""
KEPT = "[p for p in net.parameters() if p.requires_grad]"
FILTERED = "filter(lambda p: p.requires_grad, net.parameters())"


@pytest.mark.parametrize("made", [KEPT, FILTERED])
@pytest.mark.parametrize("count", ["sum(p.numel() for p in trained)", "sum([p.size().numel() for p in trained])"])
def test_parameters_that_are_only_counted_were_never_trained_by_anything(made: str, count: str) -> None:
    text = COUNTED.format(made=made, count=count, given="model.parameters()")
    assert [found for found in rewrite(IMPORTS + text).findings if found.level.value == "manual"] == []


@pytest.mark.parametrize(
    ("count", "given"), [("len(trained)", "trained"), ("trained", "model.parameters()"), ("trained[0]", "trained")]
)
def test_parameters_that_something_else_gets_are_told(count: str, given: str) -> None:
    found = rewrite(IMPORTS + COUNTED.format(made=KEPT, count=count, given=given)).findings
    assert "FM405" in [each.rule for each in found if each.level.value == "manual"]


def test_an_example_beside_another_that_wraps() -> None:
    """Both use one library, and no run loads both; somewhere else a module is imported by a name made up."""
    averages = """
        def average(model, other):
            for name, value in other.state_dict().items():
                value.copy_(model.state_dict()[name])
    """
    plain = "import averages\nimport layers\n\n\ndef main(make, other):\n    averages.average(make(layers), other)\n"
    wraps = """
        import importlib

        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        import layers


        def main(name):
            return FSDP(importlib.import_module(name).make(layers))
    """
    files = {"layers.py": "WIDTH = 4\n", "averages.py": averages, "plain.py": plain, "wraps.py": wraps}
    stays(files, "averages.py", "plain.py")
    both = rewrite_files({name: code(text) for name, text in {**files, "plain.py": "import wraps\n" + plain}.items()})
    assert [found.rule for found in both.findings if found.path.name == "averages.py"] == ["FM304"]


ENTRIES = {
    "pipe/__init__.py": "",
    "pipe/load.py": """
        import importlib


        def load(name):
            return getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2])()
    """,
    "train.py": """
        import argparse

        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        from pipe.load import load


        def main(args):
            pipe = load(args.pipe)
            pipe.encoder.model = FSDP(pipe.encoder.model)


        if __name__ == "__main__":
            main(argparse.ArgumentParser().parse_args())
    """,
    "app.py": """
        import torch

        from pipe.load import load


        def serve(name, batch):
            pipe = load(name)
            with torch.no_grad():
                pipe.model(batch)
            for p in pipe.model.parameters():
                p.data = p.data.half()
            pipe.model.head = torch.nn.Linear(2, 2)


        if __name__ == "__main__":
            serve("pipe.made.Pipe", torch.ones(2))
    """,
}


def test_two_scripts_beside_something_that_is_loaded_by_its_name() -> None:
    """No such name leads to a script: a demonstration on one GPU was given what only a sharded model needs."""
    stays(ENTRIES, "app.py", "pipe/load.py")
    in_package = {("pipe/app.py" if name == "app.py" else name): text for name, text in ENTRIES.items()}
    result = rewrite_files({name: code(text) for name, text in in_package.items()})
    assert "FM416" in [found.rule for found in result.findings if found.path.name == "app.py"]


def test_gradients_of_another_script_beside_something_that_is_loaded_by_its_name() -> None:
    """Each test of context parallelism of NeMo Automodel was told of an example that wraps (FM402)."""
    test = """
        import argparse

        import torch.distributed as dist

        from pipe.load import load


        def compare(layer, x):
            layer(x).sum().backward()
            gradient = layer.q.weight.grad.detach().clone()
            dist.all_reduce(gradient)
            print(gradient)


        if __name__ == "__main__":
            compare(load("pipe.layers.Attention"), argparse.ArgumentParser().parse_args())
    """
    stays({**ENTRIES, "run_attention.py": test}, "run_attention.py")


def test_a_script_that_loads_nothing_by_a_name_made_up() -> None:
    """A script beside verl's trainers was said to run with them: 300 lines of support, for parts of models."""
    alone = """
        import argparse

        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision

        from library import made

        precision = MixedPrecision(param_dtype=torch.bfloat16)
        model = FSDP(made(), mixed_precision=precision)

        if __name__ == "__main__":
            print(argparse.ArgumentParser().parse_args())
    """
    trainer = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def wrap(model, precision):
            for name, part in model.named_children():
                setattr(model, name, FSDP(part, mixed_precision=precision))
            return model
    """
    files = {**ENTRIES, "pipe/trainer.py": trainer, "alone.py": alone}
    result = rewrite_files({name: code(text) for name, text in files.items()})
    assert "fully_shard(made(), mp_policy=precision)" in result.after["alone.py"]
    files["alone.py"] = alone.replace("from library import made", "from pipe.load import load as made")
    other = rewrite_files({name: code(text) for name, text in files.items()})
    assert "shard_model(" in other.after["alone.py"]


def test_a_module_that_is_named_in_the_call_is_no_name_made_up() -> None:
    made = 'getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2])()'
    files = {name: text.replace(made, 'importlib.import_module("pipe.made").Pipe()') for name, text in ENTRIES.items()}
    stays({("pipe/app.py" if name == "app.py" else name): text for name, text in files.items()}, "pipe/app.py")


KEPT_PATH = {
    "shard.py": """
        from typing import Optional

        from torch.distributed.fsdp import CPUOffload
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import fully_shard


        def shard(model, config, offload: "Optional[CPUOffload]" = None):
            if config.strategy == "fsdp2":
                return fully_shard(model)
            return FSDP(model, cpu_offload=offload)
    """,
    "scaler.py": """
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


        def make():
            return ShardedGradScaler()
    """,
}


def test_what_serves_a_path_of_fsdp1_that_is_kept_needs_nobody() -> None:
    """In its file, annotations in quotes included, and where nothing else of the program could be wrapped."""
    result = stays(KEPT_PATH)
    assert result.report.changes == ()
    assert {found.level.value for found in result.findings} == {"kept"}
    assert {found.line for found in result.findings if found.path.name == "shard.py"} == {8, 11}


OWN_CLASS = {
    "manual.py": """
        import torch
        import torch.distributed as dist
        from torch import nn


        class Manual(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module
                self.params = list(module.parameters())
                self._flat_param = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in self.params]))

            def state_dict(self, *args, **kwargs):
                return self.module.state_dict(*args, **kwargs)

            def load_state_dict(self, state_dict, strict=True):
                result = self.module.load_state_dict(state_dict, strict)
                self._flat_param.data.copy_(torch.cat([p.detach().reshape(-1) for p in self.params]))
                return result

            def sync(self):
                grads = torch.cat([p.grad.reshape(-1) for p in self.params])
                dist.all_reduce(grads, group=None)
                self._flat_param.grad = grads
    """,
    "checkpoints.py": """
        import torch

        from manual import Manual


        def save(model, path):
            if isinstance(model, Manual):
                torch.save(model.state_dict(), path)


        def load(model, path):
            if isinstance(model, Manual):
                model.load_state_dict(torch.load(path))
    """,
    "train.py": """
        import sys

        import torch
        from torch import nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        from checkpoints import load, save
        from manual import Manual


        def main(manual):
            net = nn.Linear(8, 8)
            model = Manual(net) if manual else FSDP(net)
            load(model, "m.pt")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                model(torch.ones(2, 8)).sum().backward()
                if manual:
                    model.sync()
                else:
                    model.clip_grad_norm_(1.0)
                optimizer.step()
            save(model, "m.pt")


        main(MANUAL)
    """,
}


@pytest.mark.parametrize("manual", ["sys.argv[1] == 'manual'", "True"])
def test_a_class_of_the_program_that_is_made_where_nothing_is_wrapped(manual: str) -> None:
    """What its objects hold is not wrapped either, though the same module is, in the other branch."""
    files = {**OWN_CLASS, "train.py": OWN_CLASS["train.py"].replace("MANUAL", manual)}
    names = ["manual.py", "checkpoints.py"] if manual != "True" else ["checkpoints.py"]
    result = stays(files, *names)
    assert "class Manual" in result.after["manual.py"]
    assert "state_dict(self.module" not in result.after["manual.py"]
    assert "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in result.after["train.py"]


def test_a_class_of_which_a_wrapped_model_can_be_tells_nothing() -> None:
    """FSDP2 wraps in place: its model is an object of the class that was wrapped."""
    other = "\n\n        class Other(Manual):\n            pass\n\n\n        def main("
    text = OWN_CLASS["train.py"].replace("\n\n        def main(", other).replace("MANUAL", "sys.argv[1]")
    text = text.replace("else FSDP(net)", "else FSDP(Other(net))")
    result = rewrite_files({name: code(each) for name, each in {**OWN_CLASS, "train.py": text}.items()})
    assert "get_model_state_dict" in result.after["checkpoints.py"]
