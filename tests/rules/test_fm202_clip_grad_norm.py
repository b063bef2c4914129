"""FM202: `model.clip_grad_norm_`; FM206: `torch.nn.utils.clip_grad_norm_` on a wrapped model."""

from __future__ import annotations

import pytest

from codemods.vocabulary import Level

from ..helpers import check_marked, check_noop, code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, args):
    model = FSDP(net)
"""


def body(text: str) -> str:
    return rewrite(HEAD + text).text.split("    model = fully_shard(net)\n")[1]


NOOP = [
    "import torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    "from torch.nn.utils import clip_grad_norm_\nclip_grad_norm_(model.parameters(), 1.0)\n",
    "model.clip_grad_norm_(1.0)\n",
    "engine.clip_grad_norm_(1.0)\n# FullyShardedDataParallel\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


def test_other_models_stay() -> None:
    text = "    other = net.copy()\n    other.train()\n    torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)\n"
    assert body(text) == text


UNUSED = [
    ("model.clip_grad_norm_(1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    ("model.clip_grad_norm_(max_norm=1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)"),
    ("model.clip_grad_norm_(args.clip, 2)", "torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip, 2)"),
    (
        "model.clip_grad_norm_(args.clip, norm_type=1.0)",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip, norm_type=1.0)",
    ),
    ("model . clip_grad_norm_ (1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    ("a = 1; model.clip_grad_norm_(a)", "a = 1; torch.nn.utils.clip_grad_norm_(model.parameters(), a)"),
    ("if args: model.clip_grad_norm_(1)", "if args: torch.nn.utils.clip_grad_norm_(model.parameters(), 1)"),
]


@pytest.mark.parametrize(("before", "after"), UNUSED)
def test_result_not_used(before: str, after: str) -> None:
    assert body(f"    {before}\n") == f"    {after}\n"


NORM = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()"
USED = [
    "norm = {}",
    "return {}",
    "norm = {}.item()",
    "print('norm', {})",
    "if {} > 3: pass",
    "norm = {} if args else None",
    "norms = [{}, 1]",
    "norm: float = {}",
]


@pytest.mark.parametrize("text", USED)
def test_result_becomes_a_plain_tensor(text: str) -> None:
    before = f"    {text}\n".format("model.clip_grad_norm_(1.0)")
    assert body(before) == f"    {text}\n".format(NORM)


SUPPORT = [
    "1.0, float('inf')",
    "1.0, norm_type=float('inf')",
    "1.0, args.norm",
    "1.0, norm_type=args.norm",
    "*args",
    "**args",
    "1.0, 'inf'",
    "1.0, -1",
]


@pytest.mark.parametrize("arguments", SUPPORT)
def test_other_norms_are_computed_by_the_support_module(arguments: str) -> None:
    result = rewrite(HEAD + f"    norm = model.clip_grad_norm_({arguments})\n")
    assert result.text.endswith(f"    norm = clip_grad_norm_(model, {arguments})\n")
    assert result.support == {"clip_grad_norm_"}


@pytest.mark.parametrize("arguments", ["ignored_modules=[net.head]", "ignored_states=net.ignored", "**args"])
def test_models_that_may_have_plain_parameters(arguments: str) -> None:
    result = rewrite(HEAD.replace("FSDP(net)", f"FSDP(net, {arguments})") + "    model.clip_grad_norm_(1.0)\n")
    assert result.text.endswith("    clip_grad_norm_(model, 1.0)\n")
    assert result.support == {"clip_grad_norm_", "shard_model"}


def test_model_in_an_attribute_across_methods() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)

            def step(self):
                self.model.clip_grad_norm_(1.0)
        """
    )
    result = rewrite(text)
    assert "        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n" in result.text
    assert result.text.startswith("import torch\nfrom torch.distributed.fsdp import fully_shard\n")


TESTS = [
    "if isinstance(model, FSDP):\n        {}",
    "if isinstance(model, FSDP) and model.training:\n        {}",
    "if not isinstance(model, FSDP):\n        pass\n    else:\n        {}",
]


@pytest.mark.parametrize("test", TESTS)
def test_class_test_tells_what_the_model_is(test: str) -> None:
    text = HEAD.split("def ")[0] + "def clip(model):\n    " + test.format("model.clip_grad_norm_(1.0)")
    result = rewrite(text + "\n\n\ndef wrap(net):\n    return FSDP(net)\n")
    after = test.replace("FSDP", "FSDPModule").format("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert "def clip(model):\n    " + after in result.text


def test_parameter_called_torch() -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel\n\n\ndef step(net, torch):\n"
    use = "    model = FullyShardedDataParallel(net)\n    model.clip_grad_norm_(torch)\n"
    result = rewrite(text + use)
    assert "    fsdp2_torch.nn.utils.clip_grad_norm_(model.parameters(), torch)\n" in result.text


MARKED = [
    pytest.param("def clip(model):\n    model.clip_grad_norm_(1.0)\n", "cannot tell", id="nobody calls it"),
    pytest.param("clip = FSDP(net).clip_grad_norm_\n", "kept for later", id="not called"),
]


@pytest.mark.parametrize(("text", "words"), MARKED)
def test_marked(text: str, words: str) -> None:
    check_marked(HEAD + "    return model\n\n\n" + text, "FM202", Level.MANUAL, words)


def test_clipping_by_a_local_norm_is_reported() -> None:
    text = HEAD + "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    result = check_marked(text, "FM206", Level.REVIEW, "global norm", line=7)
    assert result.text == text.replace("FullyShardedDataParallel as FSDP", "fully_shard").replace(
        "FSDP(", "fully_shard("
    )
