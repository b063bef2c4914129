"""FM304: state dicts of models outside of any context."""

from __future__ import annotations

import re

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, code, flat, meaning, one_line, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, optimizer, path):
    model = FSDP(net)
"""


def body(text: str) -> str:
    return rewrite(HEAD + text).text.split("    model = fully_shard(net)\n")[1]


NOOP = [
    "torch.save(model.state_dict(), path)\n",
    "from torch.distributed.fsdp import fully_shard\nmodel = fully_shard(net)\nmodel.state_dict()\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


STAYS = [
    "    torch.save(optimizer.state_dict(), path)\n",
    "    other = torch.nn.Linear(1, 1)\n    other.load_state_dict(other.state_dict())\n",
    "    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, path)\n    return scheduler.state_dict()\n",
]


@pytest.mark.parametrize("text", STAYS)
def test_what_is_not_a_wrapped_model_stays(text: str) -> None:
    assert body(text) == text


def test_arguments_of_another_class_stay_where_settings_are_kept() -> None:
    context = "    with FSDP.state_dict_type(model, StateDictType[path]):\n     torch.save(model.state_dict(), path)\n"
    text = "    torch.save(model.state_dict(only_rank_0=True), path)\n"
    head = HEAD.replace("\n\n\ndef", "\nfrom torch.distributed.fsdp import StateDictType\n\n\ndef")
    assert rewrite(head + context + text).text.endswith(text)


def test_model_before_it_is_wrapped_stays() -> None:
    head, wrap = HEAD[: HEAD.index("    model")], "    model = FSDP(net)\n"
    text = "    net.load_state_dict(torch.load(path))\n"
    assert rewrite(head + text + wrap).text.endswith(text + "    model = fully_shard(net)\n")


@pytest.mark.parametrize("again", ["", "    load(model, rank, path)\n"])
def test_what_one_rank_loads_before_the_model_is_wrapped_stays(again: str) -> None:
    """`sync_module_states` sends it to the others: with `broadcast_from_rank0` the first rank would wait for them."""
    load = "        if rank == 0:\n            model.load_state_dict(torch.load(path))\n"
    text = f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        def load(model, rank, path, kind="full"):
            if kind == "full":
                if rank == 0:
                    model.load_state_dict(torch.load(path))
            else:
                with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                    model.load_state_dict(torch.load(path))


        def main(rank, path):
            net = torch.nn.Linear(4, 4)
            load(net, rank, path)
            model = FSDP(net, device_id=rank, sync_module_states=True)
            {again.strip() or "pass"}
    """
    assert load in rewrite(code(text)).text


def test_the_way_that_no_fsdp_model_takes_stays() -> None:
    """Where the program gathers the model of the other way itself: a single process has no group to broadcast in."""
    text = """
        import torch.distributed.checkpoint.state_dict as dcp
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def load(model, state, context=None):
            if context is not None and context.strategy == "fsdp":
                dcp.set_model_state_dict(model, state)
                return
            model.load_state_dict(state)


        def save(model, context=None):
            if context is None or context.strategy != "fsdp":
                return model.state_dict()
            return dcp.get_model_state_dict(model)


        def main(net, context, state):
            model = FSDP(net)
            load(model, state, context)
            return save(model, context)
    """
    made = rewrite(code(text)).text
    assert "    model.load_state_dict(state)\n" in made
    assert "    return model.state_dict()\n" in made


def test_state_of_the_programs_own_sampler_stays() -> None:
    text = """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.utils.data import Sampler


        class Batches(Sampler[list[int]]):
            def state_dict(self):
                return {"size": 4}

            def load_state_dict(self, state):
                assert state == self.state_dict()


        def main(net, trainer, state):
            for part in (FSDP(net), trainer.sampler):
                part.load_state_dict(state)
    """
    assert "assert state == self.state_dict()" in rewrite(code(text)).text


def test_a_model_that_its_class_has_just_made_stays() -> None:
    """What is wrapped under this name is of an object that is not seen."""
    text = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Encoder(torch.nn.Module):
    def __init__(self, path):
        super().__init__()
        self.net = torch.nn.Linear(2, 2).eval()
        self.net.load_state_dict(torch.load(path))


def main(encoder):
    encoder.net = FSDP(encoder.net)
"""
    assert "        self.net.load_state_dict(torch.load(path))\n" in rewrite(text).text


READ = "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
READS = ["torch.save({}, path)", "return {}", "state = {{'model': {}}}", "state = {}['a']", "keys = set({})"]
DESCRIBED = [
    "keys = list({}.keys())",
    "print(len({}))",
    "for name, value in {}.items():\n        print(name, value.shape)",
]


@pytest.mark.parametrize("text", READS)
def test_reading(text: str) -> None:
    assert body(f"    {text}\n".format("model.state_dict()")) == f"    {text}\n".format(READ)


@pytest.mark.parametrize("text", DESCRIBED)
def test_what_is_only_asked_for_names_and_sizes_is_not_gathered(text: str) -> None:
    read = f"    {text}\n".format("model.state_dict()")
    assert body(read) == read


def test_names_that_only_the_first_rank_gets_are_asked_for_as_before() -> None:
    config = "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))"
    head = "    from torch.distributed.fsdp import FullStateDictConfig, StateDictType\n"
    assert "keys = list(model.state_dict().keys())" not in body(
        f"{head}    {config}\n    keys = list(model.state_dict().keys())\n"
    )


LOADS = [
    "model.load_state_dict(path)",
    "model.load_state_dict(state_dict=path)",
    "missing = model.load_state_dict(path)",
]


@pytest.mark.parametrize("text", LOADS)
def test_loading(text: str) -> None:
    options = "options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)"
    before = text.split("model.")[0]
    assert meaning(body(f"    {text}\n")) == f"{before}set_model_state_dict(model, path, {options})"


LENIENT = [
    ("model.load_state_dict(path, strict=False)", ", strict=False"),
    ("model.load_state_dict(path, strict=True)", ""),
    ("model.load_state_dict(path, optimizer)", ", strict=optimizer"),
]


@pytest.mark.parametrize(("text", "strict"), LENIENT)
def test_loading_what_does_not_fit(text: str, strict: str) -> None:
    options = f"options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True{strict})"
    assert meaning(body(f"    {text}\n")) == f"set_model_state_dict(model, path, {options})"


def test_keys_that_do_not_fit_are_asked_for() -> None:
    text = body("    return model.load_state_dict(path, strict=False)\n")
    assert text == "    return load_full_state_dict(model, path, strict=False)\n"


OWN_LOAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


class Net(nn.Module):
    def load_state_dict(self, state_dict):
        super().load_state_dict({key: value for key, value in state_dict.items() if "head" in key}, strict=False)


def load(path):
    model = FSDP(Net())
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.load_state_dict(path)", "load_past_own_method(model, path)"),
        ("model.load_state_dict(path, strict=False)", "load_past_own_method(model, path, strict=False)"),
        (
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n        model.load_state_dict(path)",
            "load_past_own_method(model, path)",
        ),
        (
            "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n        model.load_state_dict(path)",
            "nn.Module.load_state_dict(model, path)",
        ),
    ],
)
def test_a_method_of_the_class_that_the_wrapper_went_past(before: str, after: str) -> None:
    """FSDP1 loaded everything; torch's function calls the method, with keywords that it does not take."""
    result = rewrite(f"{OWN_LOAD}    {before}\n")
    assert result.text.endswith(f"    {after}\n")
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


KEYS = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def merge(module, destination, prefix, *args):
    {hook}


class Net(nn.Module):
    def state_dict(self, *args, **kwargs):
        state = super().state_dict(*args, **kwargs)
        {method}
        return state


def save(path):
    net = Net()
    net.register_state_dict_post_hook(merge)
    model = FSDP(net)
    torch.save(model.state_dict(), path)
"""


@pytest.mark.parametrize(
    ("hook", "method", "reader"),
    [
        (
            "for key, value in destination.items():\n        destination[key] = value.half()",
            "print(state)",
            "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))",
        ),
        ('destination[f"{prefix}weight"] = module.a + module.b', "pass", "whole_state_dict(model)"),
        ("pass", 'state.update({"net.more": self.more})', "whole_state_dict(model)"),
    ],
)
def test_keys_that_the_program_adds(hook: str, method: str, reader: str) -> None:
    """Torch's function raises for a key that is no parameter and no buffer, also of a model that is not sharded."""
    text = KEYS.replace("{hook}", hook).replace("{method}", method)
    assert f"    torch.save({reader}, path)\n" in rewrite(text).text


@pytest.mark.parametrize(
    ("wraps", "saves", "is_left"),
    [
        ("dist.get_world_size() == 1", "dist.get_world_size() > 1", True),
        ("world_size < 2", "dist.get_world_size() != 1 and path", False),
        ("path", "dist.get_world_size() > 1", False),
    ],
)
def test_a_save_where_nothing_is_wrapped(wraps: str, saves: str, is_left: bool) -> None:
    text = (
        "import torch\nimport torch.distributed as dist\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        f"def build(net, path, world_size):\n    if {wraps}:\n        return net\n    return FSDP(net)\n\n\n"
        "def save(net, path):\n    model = build(net, path, 2)\n"
        f"    if {saves}:\n        return model\n    torch.save(model.state_dict(), path)\n"
    )
    assert ("torch.save(model.state_dict(), path)" in rewrite(text).text) is is_left


MARKED = [
    ("model.state_dict(prefix='model.')", "arguments"),
    ("model.state_dict(keep_vars=True)", "arguments"),
    ("model.load_state_dict(path, assign=True)", "arguments"),
]


@pytest.mark.parametrize(("text", "words"), MARKED)
def test_arguments_without_a_counterpart(text: str, words: str) -> None:
    result = check_marked(HEAD + f"    return {text}\n", "FM304", Level.MANUAL, words)
    assert f"    return {text}\n" in result.text


def test_ddp_model_keeps_the_prefix_of_its_keys() -> None:
    text = HEAD.replace("FSDP(net)", "FSDP(net) if path else torch.nn.parallel.DistributedDataParallel(net)")
    result = rewrite(text + "    model.load_state_dict(path)\n    return model.state_dict()\n")
    assert result.text.endswith("    load_full_state_dict(model, path)\n    return whole_state_dict(model)\n")
    assert result.support == {"load_full_state_dict", "whole_state_dict"}


def test_another_model_inside_a_context_is_written_where_it_comes_to_stand() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        class Trainer:
            def __init__(self, net, average):
                self.model = FSDP(net)
                self.average = FSDP(average)

            def load(self, state):
                with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):
                    self.model.load_state_dict(state["model"])
                    if state.get("the average, of \\"all\\" weights"):
                        self.average.load_state_dict(state["the average, of \\"all\\" weights"])
        """
    )
    after = """\
        if state.get("the average, of \\"all\\" weights"):
            set_model_state_dict(
                self.average,
                state["the average, of \\"all\\" weights"],
                options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
            )
"""
    assert rewrite(text).text.endswith(after)


NET = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


class Net(nn.Module):
    pass


class Trainer:
    def __init__(self):
        self.net = Net()
        self.wrapped = FSDP(self.net)

    def save(self, path, net=None):
        SAVED


"""
INNER = [
    "wrapped = FSDP(net)\nreturn net.state_dict()",
    "wrapped = FSDP(module=net)\nif path:\n    state = {'model': net.state_dict()}",
    "with FSDP.state_dict_type(FSDP(net), StateDictType.FULL_STATE_DICT):\n    pass\n"
    "wrapped = FSDP(net)\nwith FSDP.state_dict_type(wrapped, StateDictType.FULL_STATE_DICT):\n    net.state_dict()",
]


@pytest.mark.parametrize("text", INNER)
def test_module_inside_of_the_wrapper_needs_a_person(text: str) -> None:
    body = "".join(f"    {line}\n" for line in text.splitlines())
    text = NET.replace("SAVED", "pass") + f"def use(path):\n    net = Net()\n{body}"
    check_marked(text, "FM304", Level.MANUAL, "inside of the wrapper")


@pytest.mark.parametrize("made", ["Net()", "path.net"])
def test_module_inside_of_a_trainers_wrapper_needs_a_person(made: str) -> None:
    """Where it is wrapped and read in one method."""
    both = f"self.net = {made}\n        self.wrapped = FSDP(self.net)\n        return self.net.state_dict()"
    text = NET.replace("        self.net = Net()\n        self.wrapped = FSDP(self.net)\n", "        pass\n")
    check_marked(text.replace("SAVED", both), "FM304", Level.MANUAL, "inside of the wrapper")


def test_module_inside_of_the_wrapper_in_another_method_needs_a_person() -> None:
    text = NET.replace("SAVED", "torch.save(self.net.state_dict(), path)")
    check_marked(text, "FM304", Level.MANUAL, "inside of the wrapper")


NOT_INNER = [
    "state = net.state_dict()\nwrapped = FSDP(net)",
    "wrapped = FSDP(net)\nnet = Net()\nstate = net.state_dict()",
    "if path:\n    wrapped = FSDP(net)\nelse:\n    state = net.state_dict()",
    "wrapped = FSDP(net)\nnet.load_state_dict(path)",
]


@pytest.mark.parametrize("text", NOT_INNER)
def test_module_that_is_not_inside_of_a_wrapper_there(text: str) -> None:
    body = "".join(f"    {line}\n" for line in text.splitlines())
    result = rewrite(NET.replace("SAVED", "net.state_dict()") + f"def use(path):\n    net = Net()\n{body}")
    assert not [finding for finding in result.findings if "inside of the wrapper" in finding.message]


KEPT = ["    best = model.state_dict()\n    return best\n", "    return model.state_dict()\n"]


@pytest.mark.parametrize("text", KEPT)
def test_state_that_is_kept_is_a_copy_where_nothing_is_gathered(text: str) -> None:
    head = HEAD.replace("FSDP(net)", "FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD)")
    head = head.replace(
        "import FullyShardedDataParallel as FSDP", "import FullyShardedDataParallel as FSDP, ShardingStrategy"
    )
    result = rewrite(head + text).text
    assert result.endswith(text.replace("model.state_dict()", "full_state_dict(model)"))
    saved = rewrite(head + "    torch.save(model.state_dict(), path)\n").text
    assert saved.endswith(f"    torch.save({READ}, path)\n")


@pytest.mark.parametrize("module", ["", ".module", "._fsdp_wrapped_module"])
def test_parameters_are_whole_inside_of_summon(module: str) -> None:
    head = "    with FSDP.summon_full_params(model, rank0_only=True, writeback=False):\n"
    assert body(f"{head}        s = model{module}.state_dict()\n").endswith("        s = model.state_dict()\n")


@pytest.mark.parametrize("model", ["model", "model.module"])
@pytest.mark.parametrize(
    "guard",
    [
        *("rank == 0", "rank <= 0", "rank in (-1, 0)", "not rank", "rank == 0 and path", "path.ddp_rank == 0"),
        *("path.master_process", "path.is_main()", "path.is_master(rank)", "path.is_rank_zero"),
    ],
)
def test_state_that_one_rank_reads_alone_raises(guard: str, model: str) -> None:
    text = f"""
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def save(net, rank, path):
            model = FSDP(net)
            if {guard}:
                path.save({model}.state_dict())
        """
    result = check_marked(text, "FM304", Level.MANUAL, "on one rank alone", line=7)
    message = "model.state_dict() is read on one rank alone: gathering it would wait for the others"
    assert f'        raise NotImplementedError("fsdp-migrate FM304: {message}")\n        path.save(' in one_line(
        result.text
    )


@pytest.mark.parametrize(
    ("test", "guard", "is_alone"),
    [
        ("rank == 0", "if first:", True),
        ("rank == 0 or not path.parallel", "if first and path:", True),
        ("rank == 0 or path.world_size == 1", "if not first:\n        return\n    if path:", True),
        ("rank == 0 or path.all", "if first:", False),
        ("path.every == 0", "if first:", False),
    ],
)
def test_one_rank_that_has_a_name(test: str, guard: str, is_alone: bool) -> None:
    text = f"""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, rank, path):
    first = {test}
    model = FSDP(net)
    {guard}
        path.save(model.state_dict())
"""
    found = [finding.message for finding in rewrite(text).findings if finding.rule == "FM304"]
    assert ["on one rank alone" in message for message in found] == [is_alone]


@pytest.mark.parametrize("other", ["DDP(net)", "net"])
def test_state_that_one_rank_reads_of_a_model_that_may_not_be_sharded(other: str) -> None:
    text = f"""
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn.parallel import DistributedDataParallel as DDP


        def save(net, rank, path):
            model = FSDP(net) if path.fsdp else {other}
            if rank == 0:
                path.save(model.state_dict())
        """
    result = check_marked(text, "FM304", Level.MANUAL, "on one rank alone", line=8)
    assert result.text.endswith("    if rank == 0:\n        path.save(whole_state_dict(model))\n")
    assert "raise" not in result.text


@pytest.mark.parametrize(
    ("read", "code"),
    [
        ("torch.save(self.model.state_dict(), path)", "FM304"),
        (
            "with FSDP.state_dict_type(self.model, FULL):\n            torch.save(self.model.state_dict(), path)",
            "FM301",
        ),
    ],
)
@pytest.mark.parametrize(("other", "is_alone"), [("if self.is_main:", True), ("if path:", False)])
def test_state_that_a_method_reads_which_one_rank_calls(read: str, code: str, other: str, is_alone: bool) -> None:
    text = f"""\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

FULL = StateDictType.FULL_STATE_DICT


class Trainer:
    def __init__(self, net, rank):
        self.model, self.is_main = FSDP(net), rank == 0

    def save(self, path):
        {read}

    def train(self, path, every):
        if every and self.is_main:
            self.save(path)
        {other}
            self.save(path)
"""
    (found,) = [each for each in rewrite(text).findings if each.rule == code]
    assert (found.level is Level.MANUAL) is is_alone
    assert ("one rank alone" in found.message) is is_alone


def test_a_rank_that_is_no_process() -> None:
    text = "    if path.lora_rank == 0:\n        return model.state_dict()\n"
    assert "return get_model_state_dict(model" in body(text.replace("path", "net"))


def test_state_that_one_rank_reads_where_there_is_no_other() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def save(net, rank, world_size, path):
            model = FSDP(net)
            if rank == 0 and world_size == 1:
                path.save(model.state_dict())
        """
    assert "get_model_state_dict(model, options=" in rewrite(code(text)).text


READ_AGAIN = [
    "state = torch.load(path)\n    model.load_state_dict(state)\n    optimizer(state)",
    "state = torch.load(path)\n    model.load_state_dict(state['model'])\n    return state",
    "state = torch.load(path)\n    best = state[0]\n    model.load_state_dict(best)\n    optimizer(state[0])",
    "state = torch.load(path)\n    for _ in path:\n        model.load_state_dict(state)",
    "model.load_state_dict(path.best)",
    "step, state = path.best\n    model.load_state_dict(state)",
    "state, optim = path\n    model.load_state_dict(state)\n    return path",
    "for state in path:\n        model.load_state_dict(state)\n    return path",
    "for key, state in path.kept.items():\n        model.load_state_dict(state)",
    "kept = [torch.load(each) for each in path]\n    for key, (_, state) in enumerate(kept):\n"
    "        model.load_state_dict(state)\n    optimizer(kept)",
    "given = [path.best if optimizer else None]\n    optimizer(given)\n    model.load_state_dict(given[0])",
    "given = [None]\n    given[0] = path.best\n    model.load_state_dict(given[0])",
    "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n        state = torch.load(path)\n"
    "        model.load_state_dict(state)\n        optimizer(state)",
]
READ_ONCE = [
    "state, optim = torch.load(path)\n    model.load_state_dict(state)\n    return optim",
    "model.load_state_dict(torch.load(path)['model'])",
    "state = torch.load(path)\n    model.load_state_dict(state)\n    del state",
    "state = torch.load(path)\n    model.load_state_dict(state['model'])\n    optimizer(state['optimizer'])",
    "for name in path:\n        state = torch.load(name)\n        model.load_state_dict(state)",
    "state = torch.load(path)\n    for name in path:\n        model.load_state_dict(state[name])",
    "for state in map(torch.load, path):\n        model.load_state_dict(state)",
    "for state in [torch.load(path)]:\n        model.load_state_dict(state)\n    return path",
    "given = [torch.load(path) if optimizer else None]\n    optimizer(given)\n    model.load_state_dict(given[0])",
    "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n        state = torch.load(path)\n"
    "        model.load_state_dict(state)\n        optimizer(state)",
]


@pytest.mark.parametrize(("statement", "again"), [*((s, True) for s in READ_AGAIN), *((s, False) for s in READ_ONCE)])
def test_state_that_is_read_again_is_not_filled_with_shards(statement: str, again: bool) -> None:
    text = HEAD.replace(" as FSDP", " as FSDP, StateDictType") + f"    {statement}\n"
    (loaded,) = re.findall(
        r"set_model_state_dict\(model, (.*?)(?:, options.*)?\)\n", meaning(rewrite(text).text) + "\n"
    )
    assert loaded.startswith("dict(") is again


def test_state_that_a_caller_reads_again() -> None:
    text = HEAD + "    return load(model, path)\n\n\ndef load(model, state):\n    model.load_state_dict(state)\n"
    assert "set_model_state_dict(model, state, options" in meaning(rewrite(text).text)
    again = text.replace("return load(model, path)", "load(model, path)\n    return path")
    assert "set_model_state_dict(model, dict(state), options" in meaning(rewrite(again).text)


GROUPS = HEAD.replace("FSDP(net)", "FSDP(net, {given}, device_id=0)")


@pytest.mark.parametrize("given", ["process_group=rank", 'device_mesh=path["dp"]', "process_group=(rank, path)"])
def test_model_with_a_group_of_its_own(given: str) -> None:
    """Torch's own functions give the file to the first rank of all, and broadcast from it."""
    text = GROUPS.format(given=given).replace(" as FSDP", " as FSDP, FullStateDictConfig, StateDictType")
    assert "load_full_state_dict(model, path)" in rewrite(text + "    model.load_state_dict(path)\n").text
    config = "FullStateDictConfig(offload_to_cpu=True, rank0_only=True)"
    block = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {config}):\n        "
    read = rewrite(text + block + "return model.state_dict()\n").text
    assert "full_state_dict(model, offload_to_cpu=True, rank0_only=True)" in read
    assert "load_full_state_dict(model, path)" in rewrite(text + block + "model.load_state_dict(path)\n").text


SAVED_BY_GROUP = """
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def save(net, optimizer, group, path):
    model = FSDP(net, process_group=group, use_orig_params=True)
    rank = {rank}
    {context}
        state = model.state_dict()
    optim_state = FSDP.full_optim_state_dict(model, optimizer)
    print(f"{{len(optim_state)}} entries")
    if {asked} == 0:
        torch.save({{"model": state, "optimizer": optim_state}}, path)
"""
CONTEXTS = [
    "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):",
    "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True))\n    if True:",
]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("rank", ['int(os.environ["RANK"])', "dist.get_rank()", "path.rank"])
def test_group_of_its_own_whose_state_the_worlds_first_rank_saves(context: str, rank: str) -> None:
    """The first rank of all is the first of its group; what the others of the first ranks have, nobody looks at."""
    after = meaning(rewrite(SAVED_BY_GROUP.format(context=context, rank=rank, asked="rank")).text)
    assert "full_state_dict=True, cpu_offload=True" in after
    assert "state = get_model_state_dict(model, options" in after
    assert "optim_state = get_optimizer_state_dict(model, optimizer, options" in after


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(
    ("rank", "asked"),
    [("dist.get_rank(group)", "rank"), ("0", "path.data_parallel_rank"), ("0", "dist.get_rank(group)")],
)
def test_group_of_its_own_whose_first_rank_saves(context: str, rank: str, asked: str) -> None:
    after = rewrite(SAVED_BY_GROUP.format(context=context, rank=rank, asked=asked)).text
    assert "= full_state_dict(model, offload_to_cpu=True, rank0_only=True)" in after
    assert "= full_optim_state_dict(model, optimizer, rank0_only=True)" in after


@pytest.mark.parametrize("context", CONTEXTS)
def test_hybrid_model_whose_first_rank_of_each_node_saves(context: str) -> None:
    """It has the model, and the world's first alone has the optimizer's state. Measured: torch 2.13, 4 ranks."""
    text = SAVED_BY_GROUP.format(context=context, rank='int(os.environ["LOCAL_RANK"])', asked="local_rank")
    text = text.replace("process_group=group", "sharding_strategy=ShardingStrategy.HYBRID_SHARD")
    text = text.replace("StateDictType\n", "ShardingStrategy, StateDictType\n", 1).replace(
        "rank = int", "local_rank = int"
    )
    after = meaning(rewrite(text).text)
    assert "state = full_state_dict(model, offload_to_cpu=True, rank0_only=True)" in after
    assert "optim_state = get_optimizer_state_dict(model, optimizer, " in after


@pytest.mark.parametrize(
    "given",
    [
        "process_group=torch.distributed.group.WORLD",
        "process_group=None",
        'device_mesh=torch.distributed.device_mesh.init_device_mesh("cuda", (8,))',
    ],
)
def test_model_over_all_ranks(given: str) -> None:
    text = GROUPS.format(given=given) + "    model.load_state_dict(path)\n"
    assert "set_model_state_dict(" in rewrite(text).text


ANY = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(net):
    keep(net.parts, "last.pt")
    return FSDP(net)


def keep(part, path):
    module = part.find(path)
    {statement}
"""


def test_what_may_be_wrapped_is_for_a_person() -> None:
    """It may be a plain model as well, whose lines nobody wants changed."""
    text = ANY.format(statement="torch.save(module.state_dict(), path)")
    assert "torch.save(module.state_dict(), path)" in check_marked(text, "FM304", words="cannot be seen").text


def test_what_may_be_wrapped_is_for_a_person_in_an_attribute_too() -> None:
    kept = "class Keep:\n    def keep(self, part, path):\n        self.found_model = part.find(path)\n"
    text = ANY[: ANY.index("def keep")] + kept + "        torch.save(self.found_model.state_dict(), path)\n"
    check_marked(text, "FM304", words="cannot be seen")


def test_a_function_that_gathers_dtensors_itself_is_fsdp2_already() -> None:
    gathered = "{k: v.full_tensor() for k, v in module.state_dict().items()}"
    text = ANY.format(statement=f"torch.save({gathered}, path)")
    result = rewrite(text)
    assert gathered in result.text
    assert "FM304" not in {finding.rule for finding in result.findings}


def test_load_of_what_may_be_wrapped_stays() -> None:
    """Whole tensors are not loaded into shards without an error."""
    assert rewrite(ANY.format(statement="module.load_state_dict(path)")).text.endswith(
        "    module.load_state_dict(path)\n"
    )


@pytest.mark.parametrize(
    "statement", ["part.optimizer.load_state_dict(path)", "torch.save(part.scheduler.state_dict(), path)"]
)
def test_what_is_no_model_stays(statement: str) -> None:
    assert rewrite(ANY.format(statement=statement)).text.endswith(f"    {statement}\n")


ALONE = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, path, world):
    {start}
    model = FSDP(net) if world > 1 else net
    model.load_state_dict(torch.load(path))
"""


@pytest.mark.parametrize(
    ("start", "after"),
    [
        ("dist.init_process_group()", "set_model_state_dict("),
        ("if not dist.is_initialized():\n        dist.init_process_group()", "set_model_state_dict("),
        ("if world > 1:\n        dist.init_process_group()", "load_full_state_dict("),
    ],
)
def test_load_in_a_process_without_a_group(start: str, after: str) -> None:
    assert after in rewrite(ALONE.format(start=start)).text


SCRIPT = """\
import os

import torch
import torch.distributed as dist
from build import build

if __name__ == "__main__":
    {start}
    model = build(torch.nn.Linear(2, 2))
    model.load_state_dict(torch.load("model.pt"))
"""


def test_load_in_a_script_that_may_make_no_group() -> None:
    """Another script makes one in any case: torch's function, which broadcasts, would raise here (Causal-Forcing)."""
    wrap = "    return FSDP(net) if sharded else net\n"
    files = {
        "build.py": HEAD.partition("\n\n\n")[0] + f"\n\n\ndef build(net, sharded=False):\n{wrap}",
        "train.py": SCRIPT.format(start="dist.init_process_group()").replace("import os\n\n", ""),
        "sample.py": SCRIPT.format(start='if "RANK" in os.environ:\n        dist.init_process_group("nccl")'),
    }
    after = rewrite_files(files).after
    assert "set_model_state_dict(" in after["train.py"]
    assert "load_full_state_dict(" in after["sample.py"]


OBJECTS = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Counter:
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def take(objects):
    for each in objects.values():
        BODY


def use(net):
    take({"model": FSDP(net), "counter": Counter()})
"""


def test_what_may_be_no_module_keeps_its_method() -> None:
    after = rewrite(OBJECTS.replace("BODY", "state = each.state_dict()")).text
    full = "get_model_state_dict(each, options=StateDictOptions(full_state_dict=True))"
    assert f"state = ( {full} if isinstance(each, nn.Module) else each.state_dict() )" in " ".join(after.split())


def test_what_is_asked_to_be_a_module_is_a_model_and_the_rest_none() -> None:
    body = (
        "if isinstance(each, nn.Module):\n            print(each.state_dict())\n"
        "        else:\n            each.load_state_dict({})\n            print(each.state_dict())"
    )
    after = rewrite(OBJECTS.replace("BODY", body)).text
    assert "print(get_model_state_dict(each, options=StateDictOptions(full_state_dict=True)))" in after
    assert "each.load_state_dict({})\n            print(each.state_dict())" in after


def test_state_read_on_another_way() -> None:
    """Torch puts DTensors into what it loads: a copy is loaded where the program looks at it again, and not else."""
    text = "    {0}\n    if path:\n        model.load_state_dict(state)\n    else:\n        print(state)\n"
    assert "set_model_state_dict(model, state, " in meaning(body(text.format("state = torch.load(path)")))
    assert "dict(state)" in body(text.format("state = torch.load(path)") + "    print(state)\n")
    looped = text.format("state = torch.load(path)\n    while net:").replace("\n    ", "\n        ")
    assert "dict(state)" in body(looped.replace("        state =", "    state =").replace("        while", "    while"))


UNSEEN = """\
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(net):
    return FSDP(net)


def use(model, path):
"""


@pytest.mark.parametrize(
    "text",
    [
        "for k, v in model.state_dict().items():\n    print(k, list(v.shape), v.numel() * v.element_size())\n",
        "return sum(v.numel() for v in model.state_dict().values())\n",
        "return len(model.state_dict()), list(model.state_dict().keys())\n",
        'state = {"m": model.state_dict()}\ndcp.load(state, checkpoint_id=path)\nmodel.load_state_dict(state["m"])\n',
        "state = model.state_dict()\ndcp.load(state, checkpoint_id=path)\nmodel.load_state_dict(state)\n",
    ],
)
def test_what_sharded_tensors_serve_as_well(text: str) -> None:
    """Sizes are those of the whole, and torch.distributed.checkpoint fills shards in place."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    result = rewrite(UNSEEN + lines)
    assert result.text.endswith(lines)
    assert "FM304" not in {finding.rule for finding in result.findings}


@pytest.mark.parametrize(
    "text",
    [
        "for k, v in model.state_dict().items():\n    print(k, v.shape, v)\n",
        "for v in model.state_dict().values():\n    n = v.numel()\nreturn v\n",
        "return [v for v in model.state_dict().values()]\n",
        "state = model.state_dict()\ndcp.load(state, checkpoint_id=path)\ntorch.save(state, path)\n",
        "state = model.state_dict()\nmodel.load_state_dict(state)\n",
    ],
)
def test_what_takes_the_tensors_themselves(text: str) -> None:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    check_marked("import torch\n" + UNSEEN + lines, "FM304", Level.MANUAL, "cannot be seen whether")


FLAG = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def wrap(net):
    return FSDP(net)


def save(model, parts, {flag}):
    if {flag}:
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            return model.state_dict()
    else:
        part_model = parts[0]
        return part_model.state_dict()
"""


@pytest.mark.parametrize(("flag", "is_found"), [("use_fsdp", False), ("full", True)])
def test_the_way_on_which_a_flag_says_that_there_is_no_fsdp(flag: str, is_found: bool) -> None:
    found = [f.level for f in rewrite(FLAG.format(flag=flag)).findings if f.rule == "FM304"]
    assert found == ([Level.MANUAL] if is_found else [])


FOREIGN = """\
import torch
from smdistributed.checkpoint import SmType, sm_state_dict_type
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, optimizer, path):
    model = FSDP(net)
    with {context}:
        state = model.state_dict()
        optim = FSDP.optim_state_dict(model, optimizer)
    torch.save([state, optim], path)
"""


def test_state_dict_in_a_context_of_another_library() -> None:
    """It says what the state dict is, for an FSDP that it has changed."""
    context = "sm_state_dict_type(model, SmType.LOCAL)"
    result = rewrite(FOREIGN.format(context=context))
    assert f"    with {context}:\n" in result.text
    assert "        state = model.state_dict()\n" in result.text
    assert "        optim = FSDP.optim_state_dict(model, optimizer)\n" in result.text
    assert result.text.index("raise NotImplementedError") < result.text.index("model.state_dict()")
    manual = {finding.rule for finding in result.findings if finding.level is Level.MANUAL}
    assert manual == {"FM303", "FM304"}


@pytest.mark.parametrize("context", ["torch.profiler.profile(model)", "timed(model)", "sm_state_dict_type(net)"])
def test_state_dict_in_a_context_that_is_seen_or_is_not_given_the_model(context: str) -> None:
    own = "\n\ndef timed(model):\n    return torch.profiler.record_function(model)\n"
    result = rewrite(FOREIGN.format(context=context) + own)
    assert "get_model_state_dict(model" in result.text
    assert Level.MANUAL not in {finding.level for finding in result.findings}


def test_load_above_the_wrap_stays() -> None:
    """Each rank reads its file before its device is set: a broadcast there would come from cuda:0 of every rank."""
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, model, rank, path):
                self.model = model
                if path:
                    self.load(path)
                torch.cuda.set_device(rank)
                self.model = FSDP(self.model, device_id=torch.cuda.current_device())

            def load(self, path):
                self.model.load_state_dict(torch.load(path)["model"])
        """
    )
    result = rewrite(text)
    assert '        self.model.load_state_dict(torch.load(path)["model"])\n' in result.text
    assert "broadcast" not in result.text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_the_way_of_another_engine_is_left_alone() -> None:
    """`if backend == "ddp":` beside the same question for "fsdp"."""
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def save(trainer, backend, rank, path):
            if backend == "ddp":
                if rank == 0:
                    torch.save(trainer.model.module.state_dict(), path)
            elif backend == "fsdp":
                torch.save(trainer.model.state_dict(), path)


        def load(trainer, backend, state):
            if backend == "torch_ddp":
                trainer.model.module.load_state_dict(state)
            {}


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)


        def main(net, backend):
            trainer = Trainer(net)
            load(trainer, backend, None)
            save(trainer, backend, 0, "x")
        """
    )
    other = 'elif backend == "fsdp":\n        trainer.model.load_state_dict(state)'
    after = rewrite(text.format(other))
    assert "            torch.save(trainer.model.module.state_dict(), path)\n" in after.text
    assert "        trainer.model.module.load_state_dict(state)\n" in after.text
    assert Level.MANUAL not in {finding.level for finding in after.findings}
    alone = rewrite(text.format("print(state)")).text
    assert "trainer.model.module.load_state_dict(state)" not in alone


KEPT_AT_RUN_TIME = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def contexts(module, kind):
    return FSDP.state_dict_type(module=module, state_dict_type=kind)


class Wrapper:
    def __init__(self, net):
        self.model = FSDP(net)

    def state(self, destination=None, prefix="", keep_vars=False):
        return self.model.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)

    def load(self, state_dict, strict=True, **kwargs):
        return self.model.load_state_dict(state_dict=state_dict, strict=strict, **kwargs)

    def take(self, state_dict):
        self.model.load_state_dict(state_dict, assign=True)
"""


def test_what_is_decided_at_run_time_takes_what_it_is_passed() -> None:
    """Functions of the support module under FSDP1's names, with FSDP1's parameters: else the calls are TypeErrors."""
    result = rewrite(KEPT_AT_RUN_TIME)
    assert "state_dict_type(module=module, state_dict_type=kind)" in result.text
    passed = "self.model, destination=destination, prefix=prefix, keep_vars=keep_vars"
    assert f"state_dict_of({passed})" in meaning(result.text)
    assert "load_model_state_dict(self.model, state_dict=state_dict, strict=strict, **kwargs)" in result.text
    assert "self.model.load_state_dict(state_dict, assign=True)" in result.text
    assert {f.line for f in result.findings if f.rule == "FM304" and f.level is Level.MANUAL} == {19}


WORLD = """\
import random
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def world():
    if not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size()


def several():
    return {several}


model = torch.nn.Linear(4, 4)
if several():
    model = FSDP(model)
if not several():
    torch.save(model.state_dict(), "model.pt")
"""


def test_a_function_that_asks_for_the_group_is_told_the_same_everywhere() -> None:
    assert "torch.save(model.state_dict()," in rewrite(WORLD.format(several="world() > 1")).text


@pytest.mark.parametrize("several", ["random.random() > 0.5", "STARTED", "world() > limit()"])
def test_a_function_whose_answer_can_change_says_nothing(several: str) -> None:
    text = WORLD.format(several=several).replace("model = torch", "STARTED = False\nmodel = torch")
    assert "torch.save(get_model_state_dict(model, " in flat(rewrite(text).text)


BUILD = """\
import torch

NETS = []


def build():
    NETS.append(torch.nn.Linear(4, 4))
    return NETS[0]
"""
SHARDED = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
import build

{start}
    build.build()
    build.NETS[0] = FSDP(build.NETS[0])
"""
SAVED = """\
import torch
import build{more}

{start}
    build.build()
    torch.save(build.NETS[0].state_dict(), "model.pt")
"""
MAIN = 'if __name__ == "__main__":'


def saved(start: str, more: str = "") -> str:
    files = {
        "build.py": BUILD,
        "sharded.py": SHARDED.format(start=start),
        "saved.py": SAVED.format(start=start, more=more),
    }
    return rewrite_files(files).after["saved.py"]


def test_a_script_has_nothing_of_a_script_that_it_does_not_load() -> None:
    text = saved(MAIN, "\n\nNOTE = 'see import_module'")
    assert "torch.save(build.NETS[0].state_dict()," in text


@pytest.mark.parametrize(
    ("start", "more"),
    [("def run():", ""), (MAIN, "\nimport sharded"), (MAIN, ", importlib\nimportlib.import_module('sharded')")],
)
def test_what_another_may_load_beside_it_or_it_loads_itself_comes_to_it(start: str, more: str) -> None:
    assert "get_model_state_dict" in saved(start, more) or "whole_state_dict" in saved(start, more)


PARTS = ["model.encoder", "model.blocks[0]", "model.module.encoder", "model.llm.lm_head"]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_model_is_gathered_as_the_model_is(part: str) -> None:
    result = rewrite(f"{HEAD}    torch.save({part}.state_dict(), path)\n    {part}.load_state_dict(torch.load(path))\n")
    named = part.replace(".module", "")
    options = "StateDictOptions(full_state_dict=True"
    assert meaning(result.text.split("    model = fully_shard(net)\n")[1]) == meaning(
        f"""
        torch.save(get_model_state_dict({named}, options={options})), path)
        set_model_state_dict({named}, torch.load(path), options={options}, broadcast_from_rank0=True))
        """
    )
    (read,) = [f for f in result.findings if f.rule == "FM304" and f.message.startswith("state_dict")]
    assert read.level is Level.REVIEW
    assert "lies in units" in read.message


def test_a_part_that_one_rank_reads_is_asked_about() -> None:
    check_marked(f"{HEAD}    if path.rank == 0:\n        torch.save(model.encoder.state_dict(), path)\n", "FM304")


BESIDE = ["model.optimizer", "model.lr_scheduler", "path.encoder", "net.tokenizer.sampler"]


@pytest.mark.parametrize("other", BESIDE)
def test_what_is_no_part_of_a_model_stays(other: str) -> None:
    assert f"    torch.save({other}.state_dict(), path)\n" in body(f"    torch.save({other}.state_dict(), path)\n")


WHOLE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def write(state, path, epoch=0):
    if state:
        torch.save({"model": state, "epoch": epoch}, path)


def keep(state, path):
    path.kept = state


def use(net, rank, path, batches):
    model = FSDP(net, device_id=torch.cuda.current_device(), sharding_strategy=ShardingStrategy.NO_SHARD)
"""
GONE = [
    "    state = model.state_dict()\n    if rank == 0:\n        torch.save(state, path)\n        print(len(state))\n",
    "    state = model.state_dict()\n    out = {}\n    out['m'] = state\n    out['n'] = 1\n    torch.save(out, path)\n",
    "    write(model.state_dict(), path)\n",
    "    state = model.state_dict()\n    if 'w' in state:\n        write(path=path, state=state)\n    del state\n",
    "    for batch in batches:\n        model(batch).backward()\n        state = model.state_dict()\n"
    "        torch.save(state, path)\n",
]
KEPT = [
    "    return model.state_dict()\n",
    "    keep(model.state_dict(), path)\n",
    "    state = model.state_dict()\n    path.train()\n    torch.save(state, path)\n",
    "    state = None\n    for batch in batches:\n        if batch:\n            state = model.state_dict()\n"
    "    torch.save(state, path)\n",
    "    state = model.state_dict()\n    torch.save(state, path)\n    path.best = state\n",
    "    state = model.state_dict()\n    path.send(lambda: state)\n",
    "    state = model.state_dict()\n    for name in state.values():\n        path.send(name)\n",
    "    path.send(model.state_dict())\n",
]


@pytest.mark.parametrize("text", GONE)
def test_state_that_is_saved_before_the_model_trains_on_may_be_the_models_own(text: str) -> None:
    result = rewrite(WHOLE + text)
    assert "get_model_state_dict(model, options=" in result.text
    assert not result.support


@pytest.mark.parametrize("text", KEPT)
def test_state_that_may_be_kept_while_the_model_trains_is_a_copy(text: str) -> None:
    assert rewrite(WHOLE + text).support == {"full_state_dict"}


def test_what_is_read_whole_is_loaded_whole() -> None:
    """Where only run time knows the model and the kind of its state dict: full tensors do not go into shards."""
    text = """
        import torch
        import torch.distributed.checkpoint as dcp
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Sharded:
            def load(self, model, path):
                state = {"model": model.state_dict()}
                dcp.load(state, checkpoint_id=path)
                print(state)
                model.load_state_dict(state.get("model"))


        class Full:
            def load(self, model, path):
                FSDP.set_state_dict_type(model, KIND, CONFIG)
                model.load_state_dict(torch.load(path))


        def train(net, path, checkpoints):
            model = FSDP(net)
            checkpoints.load(model, path)
    """
    after = rewrite(code(text)).text
    assert 'state = {"model": model_state_dict(model)}' in after
    assert 'load_model_state_dict(model, state.get("model"))' in after


SETS = "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):\n        "
BY_CLASS = [
    "    torch.save(READ), path)\n",
    "    LOADtorch.load(path), strict=False)\n",
    f"{SETS}torch.save(READ), path)\n",
    f"{SETS}LOADtorch.load(path) if net else None)\n",
    "    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)\n    return READ)\n",
]


@pytest.mark.parametrize("text", BY_CLASS)
def test_method_that_is_called_by_the_class_is_the_methods(text: str) -> None:
    head = HEAD.replace("as FSDP\n", "as FSDP, FullStateDictConfig, StateDictType\n")
    as_method = text.replace("READ", "model.state_dict(").replace("LOAD", "model.load_state_dict(")
    by_class = text.replace("READ", "FSDP.state_dict(model").replace("LOAD", "FSDP.load_state_dict(model, ")
    result = rewrite(head + by_class)
    assert result.text == rewrite(head + as_method).text
    assert not [found for found in result.findings if found.level is Level.MANUAL]


def test_another_method_that_is_called_by_the_class_is_to_be_called_on_the_model() -> None:
    found = [each for each in rewrite(HEAD + "    FSDP.named_parameters(model)\n").findings if each.rule == "FM100"]
    assert [(each.level, each.hint) for each in found] == [
        (Level.MANUAL, "write model.named_parameters(...), and run again")
    ]


INSIDE = """\
import torch
from library import Net
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def inner(model):
    {}


def save(model, path):
    model = inner(model)
    torch.save(model.state_dict(), path)


def main(path):
    save({}(Net.load(path)), path)
    return FSDP(Net.load(path))
"""
HAS_MODULE = 'if hasattr(model, "module"):\n        return model.module\n    return model'
IS_DDP = "return model.module if isinstance(model, DDP) else None"


@pytest.mark.parametrize(
    ("inner", "made", "is_told"),
    [(HAS_MODULE, "DDP", False), (HAS_MODULE, "path.wrap", True), (IS_DDP, "path.wrap", False)],
)
def test_what_a_function_takes_out_of_ddp(inner: str, made: str, is_told: bool) -> None:
    found = {finding.rule for finding in rewrite(INSIDE.format(inner, made)).findings}
    assert ("FM304" in found) == is_told


HUB = """\
import torch
from library import Hub
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(Hub, nn.Module):
    pass


def resume(model, path):
    torch.save(model.state_dict(), path)


def main(path):
    model = Net.from_pretrained(path)
    resume(model, path)
    return FSDP(model)
"""


@pytest.mark.parametrize(("made", "is_told"), [("Net.from_pretrained", False), ("path.wrap", True)])
def test_a_method_of_a_library_makes_an_object_of_the_programs_class(made: str, is_told: bool) -> None:
    found = {finding.rule for finding in rewrite(HUB.replace("Net.from_pretrained", made)).findings}
    assert ("FM304" in found) == is_told


TRAINER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net, config, world):
        self.sharded = config.fsdp and world.size > 1
        if self.sharded:
            net = self.wrap(net)
        self.model = net

    def wrap(self, net):
        {more}
        return FSDP(net)

    def save(self, path):
        if not self.sharded:
            torch.save(self.model.state_dict(), path)
"""


@pytest.mark.parametrize(("more", "is_left"), [("pass", True), ("self.sharded = False", False)])
def test_a_flag_that_is_put_together_and_set_once(more: str, is_left: bool) -> None:
    """Where it is asked again, it is what the model was wrapped by."""
    assert ("torch.save(self.model.state_dict(), path)" in rewrite(TRAINER.format(more=more)).text) is is_left


ASKED_AGAIN = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net, args):
        self.args = args
        self.model = self.wrap(net)

    @property
    def sharded(self):
        return {gives}

    def wrap(self, net):
        return FSDP(net) if self.sharded else net

    def save(self, path):
        {more}
        if not self.sharded:
            torch.save(self.model.state_dict(), path)
"""


@pytest.mark.parametrize(
    ("gives", "more", "is_left"),
    [
        ("self.args.fsdp and torch.distributed.get_world_size() > 1", "pass", True),
        ('not self.args.single or self.args.kind == "fsdp"', "pass", True),
        ("self.args.fsdp and self.args.count() > 1", "pass", False),
        ("self.args.fsdp and self.args.world > 1", "self.args.fsdp = False", False),
    ],
)
def test_a_property_that_is_put_together_of_what_stays(gives: str, more: str, is_left: bool) -> None:
    text = rewrite(ASKED_AGAIN.replace("{gives}", gives).replace("{more}", more)).text
    assert ("torch.save(self.model.state_dict(), path)" in text) is is_left


ANY_IN_CONTEXT = """\
import torch
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def kind(module):
    return FSDP.state_dict_type(
        module, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    )


class Strategy:
    def setup(self, module):
        return FSDP(module)

    def save(self, path, state):
        found = [each for each in state.values() if isinstance(each, FSDP)]
        {context}
            for key, value in state.items():
                if isinstance(value, torch.nn.Module):
                    state[key] = {value}
        torch.save(state, path)
"""
_DIRECT = """\
with FSDP.state_dict_type(
            found[0], StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        ):"""


@pytest.mark.parametrize(
    ("context", "after"),
    [
        (_DIRECT, "full_state_dict(value, offload_to_cpu=True, rank0_only=True)"),
        ("entered = kind(found[0])\n        with entered:", "model_state_dict(value)"),
    ],
)
def test_what_may_be_the_model_of_a_context_under_any_name(context: str, after: str) -> None:
    """The context went, and what one rank saved was its own shards (gapetron, a copy of Lightning's strategy)."""
    text = ANY_IN_CONTEXT.replace("{context}", context).replace("{value}", "value.state_dict()")
    if context == _DIRECT:
        text = text[: text.index("def kind")] + text[text.index("class Strategy") :]
    result = rewrite(text)
    assert f"state[key] = {after}\n" in result.text
    assert "FM304" in {finding.rule for finding in result.findings}


@pytest.mark.parametrize("name", ["optimizer", "args"])
def test_what_is_no_model_in_a_context_stays(name: str) -> None:
    text = ANY_IN_CONTEXT.replace("{context}", _DIRECT).replace("{value}", f"{name}.state_dict()")
    text = text.replace("path, state):", f"path, state, {name}):")
    assert f"state[key] = {name}.state_dict()\n" in rewrite(text).text


SAVED_TOGETHER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import get_scheduler


class Checkpointer:
    def __init__(self, **objects):
        self.objects = objects

    def save(self, path):
        torch.save({{name: item.state_dict() for name, item in self.objects.items()}}, path)


def main(net, optimizer):
    Checkpointer(model=FSDP(net), other={other}).save("last.pt")
"""


@pytest.mark.parametrize("other", ["torch.optim.SGD(net.parameters(), 0.1)", 'get_scheduler("linear", optimizer)'])
def test_what_is_saved_beside_a_model_in_a_loop_is_read_as_before(other: str) -> None:
    """torch's function takes modules alone: it raised for an optimizer (AttributeError at the first checkpoint)."""
    text = " ".join(rewrite(SAVED_TOGETHER.format(other=other)).text.split())
    read = "get_model_state_dict(item, options=StateDictOptions(full_state_dict=True))"
    assert f"name: ( {read} if isinstance(item, nn.Module) else item.state_dict() )" in text, text


def test_what_is_asked_to_be_a_module_may_be_the_model() -> None:
    """Nothing was said of it, and one rank saved its own shards."""
    text = ANY.format(statement="if isinstance(part, torch.nn.Module):\n        torch.save(part.state_dict(), path)")
    text = text.replace('    keep(net.parts, "last.pt")\n', "")
    check_marked(text, "FM304", words="cannot be seen")


BY_DEVICE = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, args, gpus, device, path):
    model = FSDP(net)
    if {test}:
        path.save(model.state_dict())
"""


@pytest.mark.parametrize(
    "test", ["args.gpu == 0", "args.gpu_id == 0 and path", "device == 0", "args.process_index == 0"]
)
def test_the_number_of_a_device_is_a_rank(test: str) -> None:
    """`if self.device == 0:` gathered there, and waited for ever, without a word (segmentation_distributed)."""
    check_marked(BY_DEVICE.format(test=test), "FM304", words="read on one rank alone")


@pytest.mark.parametrize(
    "test",
    [
        "RANK in {-1, 0}",
        'int(os.environ["RANK"]) == 0',
        'int(os.environ.get("LOCAL_RANK", 0)) == 0',
        "args._rank == 0",
        "args.is_global_zero",
        "args.is_local_main_process",
    ],
)
def test_other_spellings_of_the_first_rank(test: str) -> None:
    text = BY_DEVICE.format(test=test).replace("from torch", "import os\n\nfrom torch", 1)
    check_marked(text, "FM304", words="read on one rank alone")


@pytest.mark.parametrize("test", ["gpus == 0", "args.num_gpu == 0", "not args.gpu", "device", 'device == "cuda"'])
def test_what_else_is_said_of_devices_is_none(test: str) -> None:
    assert {level for _, level, _ in rewrite(BY_DEVICE.format(test=test)).summary} == {"rewritten"}


XLAS = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
import torchacc


class Trainer:
    def __init__(self, net, args):
        self.model = FSDP(net) if args.accelerator == "cuda" else torchacc.accelerate(net)

    def save(self):
        torchacc.save({{"model": self.model.state_dict(){}}})
"""


def test_what_has_the_shard_metadata_of_xla_is_no_model_of_ours() -> None:
    """Its own shards were saved with them; torch's function knows nothing of either (FlashModels)."""
    text = XLAS.format(', "shard_metadata": self.model.get_shard_metadata()')
    assert "model.state_dict()," in rewrite(text).text
    assert "model.state_dict()" not in rewrite(XLAS.format("")).text


TWO = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def main(net, average, group, policy):
    model = FSDP(net, {})
    average = FSDP(average)
    average.load_state_dict(model.state_dict())
"""


@pytest.mark.parametrize(
    ("arguments", "is_kept"),
    [
        ("", True),
        ("auto_wrap_policy=policy, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", True),
        ("sharding_strategy=ShardingStrategy.NO_SHARD", False),
        ("process_group=group", False),
        ("group", False),
        ("**policy", False),
    ],
)
def test_shards_go_from_model_to_model_as_they_are(arguments: str, is_kept: bool) -> None:
    """It was gathered on all ranks, and cut again: nine lines (CSYE7105)."""
    text = rewrite(TWO.format(arguments)).text
    assert ("    average.load_state_dict(model.state_dict())\n" in text) == is_kept


OF_TRAINER = """\
import torch
import transformers
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(trainer: {kind}, path: str):
    torch.save(trainer.model.state_dict(), path)


def main(net):
    return FSDP(net)
"""


@pytest.mark.parametrize(("kind", "is_told"), [("transformers.Trainer", False), ("Trainer", True)])
def test_a_model_of_transformers_own_trainer(kind: str, is_told: bool) -> None:
    """That one wraps its model itself: such a function is copied with others, and never called here."""
    assert ("FM304" in {each.rule for each in rewrite(OF_TRAINER.format(kind=kind)).findings}) is is_told


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ("", ""),
        ("offload_to_cpu=True, rank0_only=False", ", offload_to_cpu=True"),
        ("offload_to_cpu=True, rank0_only=True", ", offload_to_cpu=True, rank0_only=True"),
    ],
)
def test_what_was_set_holds_where_the_model_may_be_ddps(fields: str, arguments: str) -> None:
    """Whole on the GPU of each rank, a model that needs sharding may not have room."""
    text = code(f"""
        import torch
        from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType
        from torch.nn.parallel import DistributedDataParallel as DDP


        def wrap(net, sharded):
            if sharded:
                net = FSDP(net)
                FSDP.set_state_dict_type(net, StateDictType.FULL_STATE_DICT, FullStateDictConfig({fields}))
            else:
                net = DDP(net)
            return net


        def save(model, path):
            torch.save(model.state_dict(), path)


        def main(net, sharded):
            save(wrap(net, sharded), "model.pt")
        """)
    name = "full_state_dict" if arguments else "whole_state_dict"
    assert f"torch.save({name}(model{arguments}), path)" in rewrite(text).text


@pytest.mark.parametrize(("more", "is_told"), [("", False), (", assign=True", False), (", strict=False", True)])
def test_what_goes_back_into_the_same_model_stays(more: str, is_told: bool) -> None:
    text = code(f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def own(base_model):
            base_model.load_state_dict(base_model.state_dict(){more})
            return base_model


        def main(net):
            return FSDP(net)
        """)
    result = rewrite(text)
    assert f"base_model.load_state_dict(base_model.state_dict(){more})" in result.text
    assert ("FM304" in {finding.rule for finding in result.findings}) is is_told


@pytest.mark.parametrize(
    ("asked", "is_plain"),
    [
        ("self.use_fsdp", True),
        ("self.cfg.fsdp", True),
        ('hasattr(self.cfg, "use_fsdp") and self.cfg.use_fsdp', True),
        ('getattr(self.cfg, "fsdp", False)', True),
        ("self.saves", False),
        ("rank == 0", False),
    ],
)
def test_otherwise_of_a_flag_and_the_class(asked: str, is_plain: bool) -> None:
    text = f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, model, cfg):
                self.cfg = cfg
                self.use_fsdp = cfg.use_fsdp
                self.model = model
                if self.use_fsdp:
                    self.model = FSDP(model)

            def save(self, path, rank):
                if {asked} and isinstance(self.model, FSDP):
                    state = self.model.state_dict()
                else:
                    state = self.model.state_dict()
                torch.save(state, path)
        """
    below = rewrite(code(text)).text.split("        else:")[1]
    assert below.startswith("\n            state = self.model.state_dict()\n") == is_plain
