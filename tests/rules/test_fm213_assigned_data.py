"""FM213: `p.data = value` for a parameter of a wrapped model."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, one_line, rewrite, rewrite_files

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, x, optimizer):
    model = FSDP(net)
"""


def test_noop() -> None:
    check_noop("for p in model.parameters():\n    p.data = x\n")


STAYS = [
    "for p in net.parameters():\n        p.data = x",
    "for p in model.parameters():\n        x.data = p",
    "for p in model.parameters():\n        p.data -= x",
    "for p in model.parameters():\n        p.data.copy_(x)",
    "for p, q in zip(model.parameters(), x):\n        q.data = p.data",
    "for p in model.parameters():\n        x(p)\n    p.data = x",
    "x.data = model",
    "for batch in x['batches']:\n        batch.data = x",
    "with FSDP.summon_full_params(model):\n        for p in model.parameters():\n            p.data = x",
    "for p in model.parameters():\n        if p.ndim == 0:\n            p.data = p.data.unsqueeze(0)",
    "for p in model.parameters():\n        if p.dim() < 1:\n            p.data = p.data.unsqueeze(0)",
]


@pytest.mark.parametrize("statement", STAYS)
def test_stays(statement: str) -> None:
    result = rewrite(HEAD + f"    {statement}\n")
    assert not {"FM213", "FM404"} & {finding.rule for finding in result.findings}


IN_PLACE = [
    ("for p in model.parameters():\n        {}", "p", "x"),
    ("for n, p in model.named_parameters():\n        if p.requires_grad:\n            {}", "p", "x[n].lerp(p, 0.1)"),
    ("for p, q in zip(model.parameters(), x):\n        {}", "p", "q"),
    ("for q, (n, p) in zip(x, model.named_parameters()):\n        {}", "p", "q"),
    ("for i, p in enumerate(model.parameters()):\n        {}", "p", "x[i]"),
    ("for group in optimizer.param_groups:\n        for p in group['params']:\n            {}", "p", "x"),
    (
        "ps = [p for g in optimizer.param_groups for p in g['params']]\n    for q, p in zip(x, ps):\n        {}",
        "p",
        "q",
    ),
    ("{}", "model.out.weight", "x"),
    ("{}; x()", "model.blocks[0].bias", "x + 1"),
    ("for n, p in model.named_parameters():\n        {}", "p", "past[n].to(x)"),
    ("for p in model.parameters():\n        {}", "p", "p.grad.to(x)"),
]


@pytest.mark.parametrize(("text", "param", "value"), IN_PLACE)
def test_is_written_in_place(text: str, param: str, value: str) -> None:
    result = rewrite(HEAD + "    " + text.format(f"{param}.data = {value}") + "\n")
    assert result.text.endswith("    " + text.format(f"{param}.data.copy_({value})") + "\n")
    assert ("FM213", "rewritten") in {(rule, level) for rule, level, _ in result.summary}


AVERAGE = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class MoCo(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.q, self.k, self.m = encoder(), encoder(), 0.9
        for q, k in zip(self.q.parameters(), self.k.parameters()):
            k.data = q.data.clone()

    def update(self):
        for q, k in zip(self.q.parameters(), self.k.parameters()):
            k.data = k.data * self.m + q.data * (1 - self.m)

    def forward(self, x):
        self.update()
        return self.q(x), self.k(x)


def build(encoder):
    return FSDP({}(encoder))
"""


def test_a_model_that_averages_its_own_parts_in_its_forward() -> None:
    """FSDP1 took over what it found in the parameters of units; with FSDP2 the average was lost, without a word."""
    result = rewrite(AVERAGE.format("MoCo"))
    assert "            k.data.copy_(k.data * self.m + q.data * (1 - self.m))\n" in result.text
    assert "            k.data = q.data.clone()\n" in result.text
    assert "copy_" not in rewrite(AVERAGE.format("encoder")).text
    assert "copy_" not in rewrite(AVERAGE.format("MoCo").replace("        self.update()\n", "")).text


HANDED = [
    ("params", "params", "model.parameters()"),
    ("params", "zip(x, params)", "list(model.parameters())"),
    ("params", "enumerate(params)", "[p for p in model.parameters() if p.requires_grad]"),
]


@pytest.mark.parametrize(("name", "over", "given"), HANDED)
def test_parameters_that_a_function_is_given(name: str, over: str, given: str) -> None:
    target = "p" if over == name else "_, p"
    set_all = f"def set_all({name}, x):\n    for {target} in {over}:\n        p.data = x\n"
    files = {"utils.py": set_all, "train.py": f"import utils\n{HEAD}    utils.set_all({given}, x)\n"}
    assert "        p.data.copy_(x)\n" in rewrite_files(files).after["utils.py"]
    plain = {**files, "train.py": files["train.py"].replace(given, given.replace("model", "net"))}
    plain["train.py"] = plain["train.py"].replace("    model = FSDP(net)\n", "    FSDP(x)\n")
    assert rewrite_files(plain).after["utils.py"] == set_all


def test_master_weights_that_a_parameter_carries_raise() -> None:
    text = "    for p in model.parameters():\n        p.data = p._master\n"
    result = rewrite(HEAD + text)
    assert [(f.level, f.hint) for f in result.findings if f.rule == "FM213"] == [
        (Level.MANUAL, "let mp_policy cast for the forward, so that the parameters themselves are the master weights")
    ]
    assert "raise NotImplementedError" in result.text


EITHER = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Policy:
    def __init__(self, net):
        self.model = net

    def wrap(self):
        self.model = FSDP(self.model)

    def share(self, others):
        for name, param in self.model.named_parameters():
            {}
"""


def test_a_model_that_is_not_sharded_has_its_tensors_exchanged_as_before() -> None:
    """They were copies of what the engine has, and no longer the same, without a word."""
    result = rewrite(EITHER.format("param.data = others[name]"))
    copied = "if isinstance(param, DTensor):\n    param.data.copy_(others[name])\nelse:\n    param.data = others[name]"
    assert copied.replace("\n", "\n            ") in result.text
    assert "from torch.distributed.tensor import DTensor\n" in result.text
    named = EITHER.replace("        for", "        params = dict(self.model.named_parameters())\n        for")
    named = named.replace("in self.model.named_parameters()", "in params.items()")
    assert copied.replace("\n", "\n            ") in rewrite(named.format("param.data = others[name]")).text
    assert "param.data.copy_(1); x()" in rewrite(EITHER.format("param.data = 1; x()")).text


def test_a_new_tensor_is_the_same_in_place() -> None:
    """Nobody else has it, or what it replaces (StableCascade)."""
    average = "param.data = param.data * 0.9 + others[name]"
    copied = average.replace(" = ", ".copy_(", 1) + ")"
    assert f"            {copied}\n" in rewrite(EITHER.format(average)).text
    kept = EITHER.format(f"kept[name] = param.data\n            {average}")
    assert f"                {copied}\n            else:\n                {average}\n" in rewrite(kept).text


def test_value_in_parentheses() -> None:
    text = "    for p in model.parameters():\n        p.data = (\n            x\n        )\n"
    assert "        p.data.copy_(\n            x\n        )\n" in rewrite(HEAD + text).text


def test_value_that_a_generator_is_sent() -> None:
    text = "    for p in model.parameters():\n        p.data = yield x\n"
    assert "        p.data.copy_((yield x))\n" in rewrite(HEAD + text).text


MOVES = ["p.data.to('cpu')", "p.data.float()", "p.to(x, non_blocking=True)", "p.data.to(x.to(1)).clone()"]


@pytest.mark.parametrize("value", MOVES)
def test_what_moves_the_parameter_raises(value: str) -> None:
    text = HEAD + f"    for p in model.parameters():\n        p.data = {value}\n"
    result = check_marked(text, "FM213", Level.MANUAL, "moved or cast")
    raised = '            raise NotImplementedError("fsdp-migrate FM213: a sharded'
    assert f"        if isinstance(p, DTensor):\n{raised}" in one_line(result.text)


def test_what_moves_it_by_way_of_a_variable_raises() -> None:
    """Written in place, it kept the old dtype without a word."""
    text = HEAD + "    for p in model.parameters():\n        half = p.data.half()\n        p.data = half\n"
    check_marked(text, "FM213", Level.MANUAL, "moved or cast")


@pytest.mark.parametrize("value", ["p.data.unsqueeze(0)", "p.view(-1)", "p.data[:3]"])
def test_what_gives_the_parameter_another_shape_raises(value: str) -> None:
    """Written in place it would be broadcast into the old shape, or fail."""
    text = HEAD + f"    for p in model.parameters():\n        p.data = {value}\n"
    assert f"        p.data = {value}\n" in check_marked(text, "FM213", Level.MANUAL, "another shape").text


def test_another_tensor_in_the_shape_of_the_parameter() -> None:
    text = HEAD + "    for p in model.parameters():\n        p.data = x.view(p.shape)\n"
    assert "        p.data.copy_(x.view(p.shape))\n" in rewrite(text).text


def test_block_of_one_line_raises_where_it_is_run() -> None:
    text = "    for p in model.parameters():\n        if x: p.data = p.data.half()\n"
    raised = "        if x:\n            if isinstance(p, DTensor):\n                raise NotImplementedError("
    assert raised in rewrite(HEAD + text).text


def test_more_in_a_zip_than_names() -> None:
    text = "    for p, *rest in zip(x, x, model.parameters()):\n        p.data = x\n"
    assert text in rewrite(HEAD + text).text


def test_optimizer_of_another_program_in_the_folder_stays() -> None:
    other = "def outer(optimizer, x):\n    for group in optimizer.param_groups:\n        for p in group['params']:\n"
    files = {"train.py": HEAD + "    return model\n", "local.py": other + "            p.data = x\n"}
    assert rewrite_files(files).after["local.py"] == files["local.py"]


ABOVE = """
from functools import partial

import torch
from net import Net
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard_model(model, device_id):
    model = FSDP(model, device_id=device_id)
    return model


def cast(model, dtype):
    for module in model.modules():
        for name, param in module.named_parameters(recurse=False):
            param.data = param.data.to(dtype)


class Run:
    def __init__(self, quant):
        shard = partial(shard_model, device_id=0)
        if quant:
            with torch.device("meta"):
                self.model = Net(quant)
            requantize(self.model)
        else:
            self.model = Net()
        self.model.eval()
        cast(self.model, torch.bfloat16)
        self.model = shard(self.model)
"""
WRAP = "\n    def wrap(self):\n        self.model = shard_model(self.model, 0)\n"


@pytest.mark.parametrize(
    ("old", "new", "is_sharded"),
    [
        ("", "", False),
        ("            self.model = Net()\n", "            self.model = shard(Net())\n", True),
        ("        self.model.eval()\n", "        self.wrap()\n", True),
        ("    for module in", "    model = FSDP(model)\n    for module in", True),
        (
            "        self.model = shard(self.model)\n",
            "        self.model = shard(self.model)\n        cast(self.model.head, 1)\n",
            True,
        ),
        (
            "        self.model = shard(self.model)\n",
            "        self.model = shard(self.model)\n        cast(self.model, 1)\n",
            True,
        ),
    ],
    ids=["above", "wrapped in one", "wrapped by a method", "wrapped inside", "for a part below", "called below too"],
)
def test_cast_by_a_function_that_is_called_above_the_wrap_alone(old: str, new: str, is_sharded: bool) -> None:
    text = ABOVE + (WRAP if "self.wrap()" in new else "")
    result = rewrite(text.replace(old, new) if old else text)
    assert ("FM213" in {finding.rule for finding in result.findings}) is is_sharded
