"""FM121 to FM123: gradients in low precision, evaluation in full precision, a model that is not wrapped itself."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, code, rewrite, rewrite_files

HEAD = "from torch import nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision\n\n\n"


def rules(text: str) -> set[str]:
    return {finding.rule for finding in rewrite(HEAD + code(text)).findings}


FINE = [
    pytest.param(
        "mp = MixedPrecision(keep_low_precision_grads=False)\nmodel = FSDP(net, mixed_precision=mp)\n", id="off"
    ),
    pytest.param("model = FSDP(net)\nother(keep_low_precision_grads=True)\n", id="of something else"),
    pytest.param("model = FSDP(net)\nprint('see FSDP_USE_FULL_PREC_IN_EVAL in the docs')\n", id="a sentence"),
    pytest.param("model = FSDP(net)\n", id="the model itself"),
    pytest.param("models['actor'] = FSDP(models['actor'])\n", id="one of several models"),
    pytest.param("for i in range(2):\n    net.layers[i] = FSDP(net.layers[i])\nmodel = FSDP(net)\n", id="root last"),
    pytest.param(
        "class Trainer:\n    def __init__(self, net):\n        self.model = FSDP(net)\n", id="attribute of no module"
    ),
    pytest.param(
        "def wrap(net):\n    net.layers[0] = FSDP(net.layers[0])\n    return wrapper(FSDP, net)\n", id="passed on"
    ),
]


@pytest.mark.parametrize("text", FINE)
def test_noop(text: str) -> None:
    assert not rules(text) & {"FM121", "FM122", "FM123"}


@pytest.mark.parametrize("value", ["True", "args.keep"])
def test_low_precision_gradients(value: str) -> None:
    text = f"def wrap(net, args):\n    mp = MixedPrecision(keep_low_precision_grads={value})\n"
    result = check_marked(HEAD + text + "    return FSDP(net, mixed_precision=mp)\n", "FM121", line=6)
    assert "    mp_policy = unit_mp_policy(mp, is_root=True)\n" in result.text, "which raises at run time"


def test_full_precision_evaluation() -> None:
    text = 'import os\n\nos.environ["FSDP_USE_FULL_PREC_IN_EVAL"] = "1"\nmodel = FSDP(net)\n'
    check_marked(HEAD + text, "FM122", Level.REVIEW, line=7)


PARTS = [
    pytest.param("for i in range(2):\n    net.layers[i] = FSDP(net.layers[i])\n", id="items"),
    pytest.param("for name, child in net.named_children():\n    setattr(net, name, FSDP(child))\n", id="setattr"),
    pytest.param(
        "class Model(nn.Module):\n    def __init__(self):\n        self.layers = nn.ModuleList([FSDP(Layer())])\n",
        id="a list in a module",
    ),
    pytest.param(
        "class Model(nn.Module):\n    def __init__(self):\n        layer = FSDP(Layer())\n        self.layer = layer\n",
        id="by way of a variable",
    ),
    pytest.param(
        "for n, m in net.named_children():\n    part = FSDP(m)\n    setattr(net, n, part)\n", id="setattr of a name"
    ),
]


@pytest.mark.parametrize("text", PARTS)
def test_only_parts_are_wrapped(text: str) -> None:
    check_marked(HEAD + text, "FM123", Level.REVIEW, words="only modules inside of the model")


def test_model_that_another_file_wraps() -> None:
    wrap = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nfrom net import net\n\nnet = FSDP(net)\n"
    )
    part = HEAD + "net.layers[0] = FSDP(net.layers[0])\n"
    result = rewrite_files({"train.py": wrap, "net.py": part})
    assert "FM123" not in {finding.rule for finding in result.findings}
