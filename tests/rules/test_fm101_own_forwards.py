"""FM101: what the model's own classes show: one policy for all units, and the list that holds them."""

from __future__ import annotations

import pytest

from ..helpers import code, rewrite

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU())
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x, mask=None):
        h = self.norm(x)
        return x + self.scale * self.mlp(h)


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.inp = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block(8) for _ in range(depth)])

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return x


def wrap():
    model = Net(2)
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=MixedPrecision(torch.bfloat16, torch.float32),
        device_id=torch.cuda.current_device(),
    )
"""
LIST = "    for block in model.blocks:\n        fully_shard(block, mp_policy="
ONE_POLICY = "fully_shard(block, mp_policy=mp_policy)"


def test_what_is_cast_already_is_not_cast_again_and_the_list_holds_the_units() -> None:
    assert rewrite(PROGRAM).text.endswith(
        code(
            """
            def wrap():
                model = Net(2)
                mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
                for block in model.blocks:
                    fully_shard(block, mp_policy=mp_policy)
                return fully_shard(model, mp_policy=mp_policy)
            """
        )
    )


SAME = {
    "attention": (
        "h = self.norm(x)\n",
        "h = self.norm(x)\n        q, k = h.view(2, -1, 8).chunk(2)\n"
        "        h = F.scaled_dot_product_attention(q, k, k)\n",
    ),
    "a residual, a number": ("return x + self.scale * self.mlp(h)", "return x + 0.5 * self.mlp(h) / 2"),
    "a mask that is handed on": ("x = block(x)", "x = block(x, mask=x > 0)"),
    "appended": (
        "self.blocks = nn.ModuleList([Block(8) for _ in range(depth)])",
        "self.blocks = nn.ModuleList()\n        for _ in range(depth):\n            self.blocks.append(Block(8))",
    ),
    "frozen by name": ("    model = Net(2)\n", "    model = Net(2)\n    model.inp.requires_grad_(False)\n"),
}


@pytest.mark.parametrize("name", SAME)
def test_one_policy_and_the_list_where_both_are_seen(name: str) -> None:
    before, after = SAME[name]
    assert before in PROGRAM
    text = rewrite(PROGRAM.replace(before, after)).text
    assert LIST in text
    assert ONE_POLICY in text


CAST = {
    "a buffer": ("self.norm(x)\n", "self.norm(x + self.table)\n"),
    "a table of positions": ("x = block(x)", "x = block(x, torch.arange(8.0))"),
    "made in float32": ("x = block(x)", "x = block(x, torch.ones(8))"),
    "to float32": ("x = self.inp(x)", "x = self.inp(x).float()"),
    "to another dtype": ("x = self.inp(x)", "x = self.inp(x).to(torch.float32)"),
    "softmax in float32": ("h = self.norm(x)", "h = F.softmax(self.norm(x), dim=-1, dtype=torch.float32)"),
    "whole numbers divided": ("x = block(x)", "x = block(x, x.argmax(-1) / 2)"),
    "of a number": ("x = block(x)", "x = block(x, (x > 0) * 0.5)"),
    "autocast": ("        x = self.inp(x)", '        with torch.autocast("cuda"):\n            x = self.inp(x)'),
    "a field of an input": ("x = self.inp(x)", "x = self.inp(x.values)"),
    "an entry of an input": ("x = self.inp(x)", 'x = self.inp(x["values"])'),
    "a layer of a library": ("nn.Linear(dim, dim)", "timm.Mlp(dim)"),
    "a layer that is not known": ("nn.GELU()", "nn.TransformerEncoderLayer(8, 2)"),
    "a function": ("h = self.norm(x)", "h = helper(self.norm, x)"),
    "a lambda": ("h = self.norm(x)", "h = (lambda y: self.norm(y))(x)"),
    "a module by another name": ("h = self.norm(x)", "norm = self.norm\n        h = norm(x.float())"),
    "another method": (
        "    def forward(self, x):",
        "    def encode(self, x):\n        return self.inp(x)\n\n    def forward(self, x):",
    ),
    "called from outside": ("def wrap():\n", "def look(model, x):\n    return model.blocks[0](x)\n\n\ndef wrap():\n"),
    "run from outside": (
        "def wrap():\n",
        "def look(model, x):\n    for each in model.blocks:\n        x = each(x)\n    return x\n\n\ndef wrap():\n",
    ),
    "exchanged": ("    model = Net(2)\n", "    model = Net(2)\n    model.inp = Table()\n"),
    "a hook": ("    model = Net(2)\n", "    model = Net(2)\n    model.register_forward_pre_hook(hook)\n"),
    "a part with a policy of its own": (
        "    model = Net(2)\n",
        "    model = Net(2)\n    model.inp = FSDP(model.inp, mixed_precision=MixedPrecision(torch.float16))\n",
    ),
    "a base of a library": ("class Block(nn.Module)", "class Block(lib.Base)"),
    "another class": ("class Block(nn.Module)", "class Inner(nn.Linear):\n    pass\n\n\nclass Block(Inner)"),
}


@pytest.mark.parametrize("name", CAST)
def test_inputs_are_cast_at_the_root_only_where_another_dtype_may_reach_a_unit(name: str) -> None:
    before, after = CAST[name]
    assert before in PROGRAM
    text = rewrite(PROGRAM.replace(before, after)).text
    assert "block_mp_policy = replace(mp_policy, cast_forward_inputs=False)\n" in text


ELSEWHERE = {
    "one more": ("self.inp = nn.Linear(8, 8)", "self.inp = Block(8)"),
    "some of them": ("[Block(8) for _ in range(depth)]", "[Block(8) if _ else nn.Linear(8, 8) for _ in range(depth)]"),
    "with others": (
        "        self.blocks = nn.ModuleList([Block(8) for _ in range(depth)])\n",
        "        self.blocks = nn.ModuleList([Block(8) for _ in range(depth)])\n"
        "        self.blocks.append(nn.Linear(8, 8))\n",
    ),
    "set anew": ("    model = Net(2)\n", "    model = Net(2)\n    model.blocks = nn.ModuleList()\n"),
    "set at an index": ("    model = Net(2)\n", "    model = Net(2)\n    model.blocks[0] = nn.Linear(8, 8)\n"),
    "cut": ("    model = Net(2)\n", "    model = Net(2)\n    del model.blocks[0]\n"),
    "handed on": ("    model = Net(2)\n", "    model = Net(2)\n    change(model.blocks)\n"),
    "set by name": ("    model = Net(2)\n", "    model = Net(2)\n    setattr(model.blocks, name, nn.Linear(8, 8))\n"),
    "checkpointed before": ("    model = Net(2)\n", "    model = Net(2)\n    apply_activation_checkpointing(model)\n"),
    "a subclass": ("def wrap():\n", "class Other(Block):\n    pass\n\n\ndef wrap():\n"),
    "of a subclass": (
        "def wrap():\n    model = Net(2)\n",
        "class Other(Net):\n    pass\n\n\ndef wrap():\n    model = Other(2)\n",
    ),
    "made elsewhere": ("def wrap():\n", "def more(net):\n    net.head = Block(8)\n\n\ndef wrap():\n"),
    "as a value": ("def wrap():\n", "layers = dict(block=Block)\n\n\ndef wrap():\n"),
    "not always": (
        "        self.blocks = nn.ModuleList([Block(8) for _ in range(depth)])\n",
        "        if depth:\n            self.blocks = nn.ModuleList([Block(8) for _ in range(depth)])\n",
    ),
    "a part of what is wrapped": (
        "def wrap():\n    model = Net(2)\n",
        "class Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = Net(2)\n\n\n"
        "def wrap():\n    model = Outer()\n",
    ),
    "compiled": ("    model = Net(2)\n", "    model = Net(2)\n    model.inp = torch.compile(model.inp)\n"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_modules_of_a_class_that_may_be_elsewhere_are_looked_for(name: str) -> None:
    before, after = ELSEWHERE[name]
    assert before in PROGRAM
    text = rewrite(PROGRAM.replace(before, after)).text
    assert "isinstance(module, Block)" in text or "isinstance(submodule, Block)" in text


TEACHER = {
    "another model": ("apply_activation_checkpointing(model)\n", "    for block in teacher.blocks:\n"),
    "this one": ("apply_activation_checkpointing(teacher)\n", "        if isinstance(module, Block):\n"),
}


@pytest.mark.parametrize("name", TEACHER)
def test_what_is_checkpointed_above_holds_none_of_another_model(name: str) -> None:
    checkpointed, looked_for = TEACHER[name]
    start = PROGRAM.index("def wrap():")
    wrap = code(
        """
        def wrap():
            model, teacher = Net(2), Net(2)
            model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))
            CHECKPOINTED
            teacher = FSDP(teacher, auto_wrap_policy=ModuleWrapPolicy({Block}))
            return model, teacher
        """
    )
    text = rewrite(PROGRAM[:start] + wrap.replace("CHECKPOINTED\n", checkpointed)).text
    assert looked_for in text
