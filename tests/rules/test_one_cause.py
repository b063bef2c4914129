"""One finding a cause: what a function does with FSDP1's own objects, and what is not FSDP's at all."""

from __future__ import annotations

import pytest

from fsdp_migrate.causes import by_cause

from ..helpers import code, rewrite, rewrite_files


def told(text: str) -> list[tuple[str, int]]:
    """Rule and line of what needs a person, as it is printed."""
    report = by_cause(rewrite(code(text)).report)
    return [(found.rule, found.line) for found in report.findings if found.level.value == "manual"]


def test_a_function_on_handles_is_one_finding() -> None:
    text = """
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import _traversal_utils
        from torch.distributed.fsdp._runtime_utils import _lazy_init


        def build(net):
            return FSDP(net)


        def clip(model: FSDP):
            _lazy_init(model, model)
            if not model._is_root:
                raise RuntimeError("not the root")
            model._assert_state(1)
            for handle in _traversal_utils._get_fsdp_handles(model):
                for param in handle.flat_param._params:
                    print(param)
            return model.compute_device
    """
    assert told(text) == [("FM401", 12)]
    (found,) = [f for f in rewrite(code(text)).findings if f.line == 12 and f.level.value == "manual"]
    assert found.message.startswith("`_lazy_init`, `_get_fsdp_handles`, `flat_param` are FSDP1's own")


def test_the_norms_of_a_function_on_handles_go_with_them() -> None:
    """A copy of FSDP1's clipping is one cause: whoever writes it anew writes its collectives anew."""
    text = """
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import _traversal_utils


        def build(net):
            return FSDP(net)


        def clip(model: FSDP):
            params = [p for h in _traversal_utils._get_fsdp_handles(model) for p in h.flat_param._params]
            total = torch.stack([p.grad.norm() ** 3 for p in params]).sum()
            dist.all_reduce(total)
            return total
    """
    assert told(text) == [("FM401", 12)]
    of_handles = "_traversal_utils._get_fsdp_handles(model) for p in h.flat_param._params"
    assert told(text.replace(of_handles, "model.heads for p in h.parameters()")) == [("FM402", 14)]


def test_an_attribute_that_a_class_of_the_program_has() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Recorder:
            def __init__(self):
                self._handles: dict[str, list] = {}

            def stop(self):
                for handles in self._handles.values():
                    print(handles)


        def build(net):
            return FSDP(net)
    """
    assert told(text) == []


def test_an_attribute_that_the_classes_of_the_file_have() -> None:
    text = """
        import torch
        from torch import nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Rotated(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.flat_param = torch.cat([p.detach().reshape(-1) for p in inner.parameters()])


        def rotate(module, buffer):
            module.flat_param.data.copy_(buffer)


        def build(net):
            return FSDP(net)
    """
    assert told(text) == []
    seen = "        module.flat_param.data.copy_(buffer)"
    wrapped = text.replace(seen, f"        module = FSDP(module)\n    {seen}")
    assert told(wrapped) == []
    assert told(wrapped.replace("flat_param", "_local_shard")) == [("FM401", 14)]
    assert told(text.replace("self.flat_param =", "inner.flat_param =")) == [("FM401", 9)]


def test_an_annotated_attribute_is_the_programs_own() -> None:
    text = """
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net):
                self.rank: int = dist.get_rank()
                self.model = FSDP(net)

            def log(self, trainer):
                if self.model.rank:
                    print(trainer)
    """
    assert told(text) == []


def test_tests_of_sharded_tensors_in_a_file_are_one_finding() -> None:
    text = """
        from torch.distributed._shard.sharded_tensor import ShardedTensor
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def build(net):
            return FSDP(net)


        def one(state):
            return isinstance(state, ShardedTensor)


        def other(item):
            return isinstance(item, ShardedTensor)
    """
    assert told(text) == [("FM308", 10)]


WRAPS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    return FSDP(net)
"""
SUMS = """\
import torch.distributed as dist


def average(model):
    for param in model.parameters():
        dist.all_reduce(param.grad.norm())
"""


def rules(files: dict[str, str]) -> set[tuple[str, str]]:
    found = rewrite_files(files).findings
    return {(each.rule, each.path.name) for each in found if each.level.value == "manual"}


def test_a_program_beside_it_that_wraps_nothing() -> None:
    """Both import the same helpers, and no process runs both."""
    helpers = "def seed():\n    return 1\n"
    files = {
        "helpers.py": helpers,
        "train.py": "from helpers import seed\n" + WRAPS,
        "ddp.py": "from helpers import seed\n" + SUMS,
    }
    assert rules(files) == set()
    files["train.py"] = "from ddp import average\n" + files["train.py"]
    assert rules(files) == {("FM402", "ddp.py")}


def test_a_test_that_runs_no_fsdp() -> None:
    files = {"train.py": WRAPS, "test_sums.py": "from train import build\n" + SUMS}
    assert rules(files) == set()
    files["test_sums.py"] += "\n\ndef test_it():\n    average(build('fsdp'))\n"
    assert rules(files) == {("FM402", "test_sums.py")}


NONE = {
    "a module puts a layer into itself": """
        import torch.nn as nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Net(nn.Module):
            def forward(self, x):
                if self.head is None:
                    self.head = nn.Linear(2, 2)
                return self.head(x)

            def tie(self):
                self.head.weight = self.body.weight


        def build():
            model = FSDP(Net())
            model(1)
            return model
    """,
    "a class that is no module's": """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def build(net):
            model = FSDP(net)
            return type(model) is dict
    """,
    "no gradients where it is entered": """
        import contextlib

        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def sample(net, x):
            model = FSDP(net)
            no_sync = getattr(model, "no_sync", contextlib.nullcontext)
            with torch.no_grad(), no_sync():
                return model(x)
    """,
    "wrapped by a function further down": """
        import models
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def shard(model):
            return FSDP(model)


        def main(name, state):
            model = models.__dict__[name]()
            known = model.state_dict()
            state = {key: value for key, value in state.items() if key in known}
            model.load_state_dict(state)
            model = shard(model)
            return model
    """,
    "the group of the model": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def save(net, optimizer, group, path):
            model = FSDP(net, process_group=group)
            torch.save(FSDP.optim_state_dict(model, optimizer, group=group), path)
    """,
    "the optimizer's state in a variable": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def save(net, optimizer, path):
            model = FSDP(net)
            own = optimizer.state_dict()
            torch.save(FSDP.optim_state_dict(model=model, optim=optimizer, optim_state_dict=own), path)
    """,
    "where it is no FSDP model": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import FullStateDictConfig, StateDictType


        def build(net):
            return FSDP(net)


        def save(model, path):
            if isinstance(model, FSDP):
                with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
                    state = model.state_dict()
            else:
                state = model.state_dict()
            torch.save(state, path)
    """,
    "a DDP model by a name that is not followed": """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Strategy:
            def __init__(self, net, pl):
                self.model = FSDP(net)
                self.pl = pl

            def accumulate(self, optimizer, x):
                if isinstance(self.model, self.pl.types.DistributedDataParallel):
                    with self.model.no_sync():
                        self.model(x).backward()
                optimizer.zero_grad()
    """,
    "data that is copied": """
        import copy

        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def build(config, net):
            held = {"steps": 3}
            if config:
                held = FSDP(net)
            return copy.deepcopy(held)
    """,
    "torch that is imported by pytest": """
        import pytest
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        torch = pytest.importorskip("torch")


        def train(net):
            model = FSDP(net)
            model(1).backward()
            return model


        def reference(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    """,
    "clipped by torch where it is no FSDP model": """
        import warnings

        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def build(net):
            return FSDP(net)


        def clip(module, norm):
            if isinstance(module, FSDP):
                with warnings.catch_warnings():
                    return module.clip_grad_norm_(norm)
            return torch.nn.utils.clip_grad_norm_(module.parameters(), norm)
    """,
    "gradients of a model that is not sharded": """
        import torch.distributed as dist
        from torch import nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def compare(net, x):
            plain = nn.Linear(2, 2)
            plain(x).sum().backward()
            for param in plain.parameters():
                dist.all_reduce(param.grad)
            return plain, FSDP(net)
    """,
    "the number of ranks": """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net):
                self.model = net
                self.model = FSDP(module=self.model)

            def tell(self):
                print(self.model.world_size)
    """,
    "an autocast out of a table": """
        import contextlib

        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def main(net, args, batches):
            model = FSDP(net)
            for x in batches:
                with {
                    "bf16": torch.autocast("cuda", torch.bfloat16),
                    "fp32": contextlib.nullcontext(),
                }[args.precision]:
                    loss = model(x) + model(x)
                loss.backward()
    """,
    "a module that initialises itself": """
        import torch
        import torch.nn as nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Net(nn.Module):
            def reset(self):
                with torch.no_grad():
                    self.embedding.weight[0].zero_()


        def build():
            return FSDP(Net())
    """,
}


@pytest.mark.parametrize("text", NONE.values(), ids=NONE.keys())
def test_needs_no_person(text: str) -> None:
    assert told(text) == []


def test_a_layer_that_comes_from_outside() -> None:
    text = """
        import torch.nn as nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)
                self.model.head = nn.Linear(2, 2)
    """
    assert told(text) == [("FM416", 8)]


def test_the_class_that_a_mock_stands_for() -> None:
    text = code(
        """
        from unittest.mock import MagicMock

        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def build(net):
            return FSDP(net)


        def test_it():
            return MagicMock(spec=FSDP)
        """
    )
    result = rewrite(text)
    assert "    return MagicMock(spec=FSDPModule)\n" in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_fairscale_has_no_torch_gradients() -> None:
    text = """
        import torch.distributed as dist
        from fairscale.nn import FullyShardedDataParallel


        class Wrapper(FullyShardedDataParallel):
            def sync(self):
                for param in self.parameters():
                    dist.all_reduce(param.grad)
    """
    assert told(text) == [("FM113", 5)]
