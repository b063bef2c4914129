"""FM301, FM304: a compiled model has `_orig_mod.` in its names, and so have the files that it saved."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullStateDictConfig, ShardedStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def loss_of(output):
    return output.sum()


class Trainer:
    def train_step(self, batch):
        return batch


def use(net, trainer, path):
"""
WRAP = "    model = FSDP(net, use_orig_params=True)\n"
COMPILE = "    model = torch.compile(model)\n"


def body(text: str, wrap: str = WRAP + COMPILE) -> str:
    return rewrite(HEAD + wrap + text).text.split(rewrite(HEAD + wrap).text.split("def use")[1])[1]


NAMES_STAY = [
    pytest.param("    model = torch.compile(model)\n", id="function"),
    pytest.param("    other = torch.compile(module=model)\n", id="keyword"),
    pytest.param("    from torch import compile\n    other = compile(model)\n", id="by its name"),
    pytest.param("    net.layers = [torch.compile(layer) for layer in net.layers]\n", id="layers"),
    pytest.param("    net.head = torch.compile(net.head, dynamic=True)\n", id="a part"),
]


@pytest.mark.parametrize("compile_", NAMES_STAY)
def test_names_stay_as_they_were(compile_: str) -> None:
    result = rewrite(HEAD + WRAP + compile_ + "    torch.save(model.state_dict(), path)\n")
    assert result.text.endswith("    torch.save(whole_state_dict(model), path)\n")
    assert {f.level for f in result.findings if f.rule != "FM100"} == {Level.REWRITTEN}


@pytest.mark.parametrize("context", ["model", "compiled"])
def test_context_of_either_name(context: str) -> None:
    """The first rank alone had it, on the CPU; under the other name each rank gathered it on its device."""
    config = "FullStateDictConfig(offload_to_cpu=True, rank0_only=True)"
    text = f"    with FSDP.state_dict_type({context}, StateDictType.FULL_STATE_DICT, {config}):\n"
    text += "        state = compiled.state_dict()\n    return state\n"
    made = body(text, WRAP + "    compiled = torch.compile(model)\n")
    assert "    state = full_state_dict(compiled, offload_to_cpu=True, rank0_only=True)\n" in made


NO_MODULE = [
    pytest.param("    criterion = torch.compile(loss_of)\n", id="function"),
    pytest.param("    criterion = torch.compile(lambda output: output.sum())\n", id="lambda"),
    pytest.param("    criterion = torch.compile(torch.nn.functional.mse_loss)\n", id="library"),
    pytest.param("    trainer.train_step = torch.compile(trainer.train_step)\n", id="method"),
    pytest.param("    model.compile()\n", id="in place"),
    pytest.param("    @torch.compile(fullgraph=True)\n    def norm(x):\n        return x\n\n", id="decorator"),
]


@pytest.mark.parametrize("compile_", NO_MODULE)
def test_functions_have_no_names(compile_: str) -> None:
    text = rewrite(HEAD + WRAP + compile_ + "    torch.save(model.state_dict(), path)\n").text
    assert "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))" in text


def test_an_engine_compiles_a_model_of_its_own() -> None:
    """vLLM's model runners in copies of verl: `get_model_state_dict` in the place of 14 lines of support."""
    runner = """
import torch
from BASE import ModelRunner


class Runner(ModelRunner):
    def load(self):
        self.model = torch.compile(self.model)
"""
    save = "import runner\n" + HEAD + WRAP + "    torch.save(model.state_dict(), path)\n"
    for base, is_engines in (("vllm.worker.model_runner", True), ("trainers", False)):
        text = rewrite_files({"runner.py": runner.replace("BASE", base), "train.py": save}).after["train.py"]
        assert ("get_model_state_dict(model, " in text) is is_engines


@pytest.mark.parametrize("more", ["", ", strict=False", ", strict=path"])
def test_loading(more: str) -> None:
    assert body(f"    model.load_state_dict(path{more})\n") == f"    load_full_state_dict(model, path{more})\n"


def test_full_context() -> None:
    head = "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):\n"
    assert body(head + "        state = model.state_dict()\n        model.load_state_dict(state)\n") == (
        "    state = full_state_dict(model, offload_to_cpu=True, rank0_only=True)\n"
        "    load_full_state_dict(model, state)\n"
    )


def test_sharded_state_dict_of_fsdp2_has_the_same_names() -> None:
    head = "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
    lines = ["state = {'model': model.state_dict()}", "model.load_state_dict(state['model'], strict=False)"]
    inside = "".join(f"        {line}\n" for line in lines)
    assert body(head + inside) == "".join(f"    {line}\n" for line in lines)


def test_sharded_state_dict_on_the_cpu() -> None:
    config = "ShardedStateDictConfig(offload_to_cpu=True)"
    head = f"    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, {config}):\n"
    text = body(head + "        state = model.state_dict()\n")
    assert text == head.replace("FSDP.", "") + "        state = model_state_dict(model)\n"


def test_a_compiled_model_is_unwrapped_of_both() -> None:
    """What `torch.compile` gives is no FSDP2 model: `.module` of it would be an AttributeError."""
    use = "    return model.module if trainer.use_ddp else model\n"
    assert body(use) == "    return unwrap_compiled(model) if trainer.use_ddp else model\n"
    assert body(use, WRAP) == "    return unwrap(model) if trainer.use_ddp else model\n"


def test_model_that_was_compiled_is_the_model() -> None:
    assert body("    model._orig_mod.load_state_dict(path)\n") == "    load_full_state_dict(model._orig_mod, path)\n"


OTHER = "import torch\nfrom checkpoint import save\n\n\ndef use(net):\n    save(torch.compile(net))\n"
SAVING = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model):
    torch.save(model.state_dict(), "model.pt")


def train(net):
    save(FSDP(net))
"""


def test_another_program_is_compiled() -> None:
    apart = rewrite_files({"checkpoint.py": SAVING, "other.py": OTHER.replace("from checkpoint import save\n", "")})
    assert "get_model_state_dict(model, options" in apart.after["checkpoint.py"]
    shared = {"checkpoint.py": SAVING.replace("import torch\n", "import torch\nimport shared\n", 1), "shared.py": ""}
    beside = rewrite_files({**shared, "other.py": OTHER.replace("from checkpoint import save", "import shared")})
    assert "get_model_state_dict(model, options" in beside.after["checkpoint.py"]
    together = rewrite_files({"checkpoint.py": SAVING, "other.py": OTHER})
    assert "whole_state_dict(model)" in together.after["checkpoint.py"]


def test_package_that_is_passed_on_the_way() -> None:
    """`import tool.checkpoint` runs `tool/__init__.py`, and with it what compiles; nothing is taken from there."""
    package = {
        "tool/__init__.py": "from tool.serving import serve\n",
        "tool/serving.py": "import torch\n\n\ndef serve(net):\n    return torch.compile(net)\n",
        "tool/checkpoint.py": SAVING,
    }
    script = "from tool.checkpoint import train\n\n\ndef main(net):\n    train(net)\n"
    apart = rewrite_files({**package, "train.py": script})
    assert "get_model_state_dict(model, options" in apart.after["tool/checkpoint.py"]
    taken = rewrite_files({**package, "train.py": f"import tool\n{script}".replace("(net)\n", "(tool.serve(net))\n")})
    assert "whole_state_dict(model)" in taken.after["tool/checkpoint.py"]
    by_name = f"import importlib\n{script}".replace("train(net)", "train(importlib.import_module(net).net)")
    assert "whole_state_dict(model)" in rewrite_files({**package, "train.py": by_name}).after["tool/checkpoint.py"]


TESTED = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, path):
    if isinstance(model, FSDP):
        state = model.state_dict()
    else:
        state = model.state_dict()
    torch.save(state, path)


def main(net, path):
    model = FSDP(net)
    COMPILED
    save(model, path)
"""


@pytest.mark.parametrize(
    ("compiled", "is_read_whole"),
    [
        ("model = torch.compile(model)", True),
        ("model = torch.compile(model, fullgraph=True) if path else model", True),
        ("model.compile()", False),
        ("model.block = torch.compile(model.block)", False),
        ("", False),
    ],
)
def test_a_compiled_model_is_no_instance_of_fsdp(compiled: str, is_read_whole: bool) -> None:
    """What `torch.compile` gives holds the FSDP model, and FSDP1 gave whole tensors there."""
    text = rewrite(TESTED.replace("COMPILED", compiled)).text
    other = text[text.index("    else:\n        state = ") :].split("\n    torch.save")[0]
    assert ("state = model.state_dict()" not in other) is is_read_whole
