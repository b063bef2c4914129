"""One finding a cause: what a function does with FSDP1's own objects, and what is not FSDP's at all."""

from __future__ import annotations

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
        dist.all_reduce(param.grad)
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
