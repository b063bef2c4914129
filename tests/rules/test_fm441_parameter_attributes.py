"""What is set on parameters goes over to the sharded ones, where FSDP1 kept it and somebody reads it."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import Result, code, rewrite, rewrite_files

HEAD = """\
from functools import partial

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from net import Block, Net


"""
MARKED = code(
    """
    def main(rank, original, device):
        net = Net()
        for p in net.parameters():
            p.no_decay = p.ndim < 2
        {wrap}
        return model, [p for p in model.parameters() if getattr(p, "no_decay", False)]
    """
)
CARRIED = """\
    attributes = {name: vars(param).copy() for name, param in net.named_parameters()}
    for module in net.modules():
        if isinstance(module, Block):
            fully_shard(module)
    fully_shard(net)
    for name, param in net.named_parameters():
        vars(param).update(attributes[name])
"""


def wrapped(wrap: str, text: str = MARKED) -> Result:
    return rewrite(HEAD + text.replace("{wrap}", wrap))


def lost(result: Result) -> bool:
    return Level.MANUAL in {finding.level for finding in result.findings if finding.rule == "FM441"}


@pytest.mark.parametrize("head", ["net = FSDP(net", "model = FSDP(net"])
def test_is_set_again_behind_the_root(head: str) -> None:
    below = "\n    model = net" if head.startswith("net") else ""
    result = wrapped(f"{head}, auto_wrap_policy=ModuleWrapPolicy({{Block}}), use_orig_params=True){below}")
    assert CARRIED in result.text.replace("module is not net and ", "")
    assert [(f.rule, f.level) for f in result.findings] == [("FM101", Level.REWRITTEN)]
    assert "goes over to the new ones" in result.findings[0].message


def test_is_set_again_in_the_function_that_a_partial_becomes() -> None:
    result = wrapped("shard = partial(FSDP, use_orig_params=True)\n    model = shard(net)")
    assert "attributes = {name: vars(param).copy() for name, param in sharded_model.named_parameters()}" in result.text
    assert "vars(param).update(attributes[name])\n        return sharded_model\n" in result.text
    assert not lost(result)


@pytest.mark.parametrize("given", ["", ", use_orig_params=False", ", use_orig_params=None"])
def test_flat_parameters_had_none(given: str) -> None:
    result = wrapped(f"model = FSDP(net{given})")
    assert "attributes" not in result.text
    assert "FM441" not in {finding.rule for finding in result.findings}


@pytest.mark.parametrize(
    "text",
    [
        MARKED.replace('if getattr(p, "no_decay", False)', "if p.ndim"),
        MARKED.replace("p.no_decay = p.ndim < 2", "p.grad = None"),
        MARKED.replace("net.parameters():\n", "[]:\n"),
    ],
    ids=["not read", "of every tensor", "not set"],
)
def test_nothing_is_written_that_nobody_needs(text: str) -> None:
    assert text != MARKED
    assert "vars(" not in wrapped("model = FSDP(net, use_orig_params=True)", text).text


REFUSED = {
    "only run time knows": "model = FSDP(net, use_orig_params=original)",
    "moved later": "model = FSDP(net, use_orig_params=True)\n    model.to(device)",
    "moved at once": "model = FSDP(net, use_orig_params=True).to(device)",
    "cast later": "model = FSDP(net, use_orig_params=True)\n    model.float()",
    "initialised": "net.to('meta')\n    model = FSDP(net, use_orig_params=True, param_init_fn=lambda m: m.reset())",
    "no place": "model, = [FSDP(each, use_orig_params=True) for each in [net]]",
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_left_to_a_person(name: str) -> None:
    result = wrapped(REFUSED[name])
    assert lost(result)
    assert "vars(" not in result.text


def test_what_was_on_meta_had_lost_it() -> None:
    result = wrapped(
        "init = (lambda m: m.to_empty(device=device, recurse=False)) if rank else None\n    "
        "model = FSDP(net, param_init_fn=init, sync_module_states=True, use_orig_params=True)"
    )
    kept = "attributes = { name: vars(param).copy() for name, param in net.named_parameters() if not param.is_meta }"
    assert kept in " ".join(result.text.split())
    assert "vars(param).update(attributes.get(name, {}))" in result.text


def test_names_of_the_function_are_left_alone() -> None:
    text = MARKED.replace("net = Net()", "net, name, param, attributes = Net(), 1, 2, 3")
    result = wrapped("model = FSDP(net, use_orig_params=True)", text)
    assert "param_attributes = { param_name: vars(parameter).copy()" in " ".join(result.text.split())


def test_set_in_another_file() -> None:
    net = code(
        """
        import torch
        from torch import nn


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(3))
                self.scale.no_decay = True
        """
    )
    train = "from net import Net\n" + HEAD.replace("from net import Block, Net\n", "") + MARKED
    train = train.replace("net.parameters():\n", "[]:\n").replace("{wrap}", "model = FSDP(net, use_orig_params=True)")
    result = rewrite_files({"net.py": net, "train.py": train})
    assert "vars(param).update(attributes[name])" in result.after["train.py"]
    assert result.after["net.py"] == net


CONSTANT = {
    "names.py": 'IS_EXPERT = "is_expert"\n',
    "experts.py": code(
        """
        from names import IS_EXPERT


        def is_expert(p):
            return hasattr(p, IS_EXPERT) and getattr(p, IS_EXPERT)
        """
    ),
    "train.py": HEAD
    + code(
        """
        import names
        from experts import is_expert
        from names import IS_EXPERT


        def main(original):
            net = Net()
            for p in net.parameters():
                setattr(p, IS_EXPERT, True)
            model = FSDP(net, use_orig_params=original)
            return model, [p for p in model.parameters() if is_expert(p)]
        """
    ),
}


@pytest.mark.parametrize("name", ["IS_EXPERT", "names.IS_EXPERT"])
def test_its_name_is_a_constant_of_another_file(name: str) -> None:
    result = rewrite_files(CONSTANT | {"train.py": CONSTANT["train.py"].replace("(p, IS_EXPERT", f"(p, {name}")})
    assert [f.level for f in result.findings if f.rule == "FM441"] == [Level.MANUAL]
    assert "FM441: fully_shard replaced the parameters: set `is_expert` again" in result.after["experts.py"]


def test_a_constant_that_may_be_either_names_nothing() -> None:
    names = 'import sys\n\nIS_EXPERT = "is_expert" if sys.argv[1:] else "expert"\n'
    result = rewrite_files(CONSTANT | {"names.py": names})
    assert "FM441" not in {f.rule for f in result.findings}


SET = {
    "in a comprehension": "[setattr(p, 'no_decay', True) for p in net.parameters()]",
    "in a function of its own": "for p in net.parameters():\n        mark(p)",
    "of a list of them": "params = list(net.parameters())\n    for p in params:\n        p.no_decay = True",
    "of a weight by a name of its own": "weight = net.head.weight\n    weight.no_decay = True",
    "of some in a tuple": "for p in (net.head.weight, net.head.bias):\n        p.no_decay = True",
    "of one that is got": "net.get_parameter('head.weight').no_decay = True",
    "of an attribute that is not seen": "rank.model.scale.no_decay = True",
}


@pytest.mark.parametrize("name", SET)
def test_set_otherwise(name: str) -> None:
    text = MARKED.replace("for p in net.parameters():\n        p.no_decay = p.ndim < 2", SET[name])
    mark = "\n\ndef mark(param):\n    param.no_decay = True\n"
    assert lost(wrapped("model = FSDP(net, use_orig_params=original)", text + mark))


@pytest.mark.parametrize("owner", ["self", "model.scale"])
def test_of_something_else(owner: str) -> None:
    text = MARKED.replace("for p in net.parameters():\n        p.no_decay = p.ndim < 2", "pass")
    text += f"\n\ndef mark(self, model):\n    {owner}.no_decay = True\n"
    text = text.replace('getattr(p, "no_decay", False)', 'getattr(rank, "no_decay", False)')
    assert not lost(wrapped("model = FSDP(net, use_orig_params=original)", text))


def test_what_is_asked_only_where_it_is_set_is_not_lost() -> None:
    text = MARKED.replace("p.no_decay = p.ndim < 2", 'if not hasattr(p, "no_decay"):\n            p.no_decay = True')
    text = text.replace(' if getattr(p, "no_decay", False)', "")
    result = wrapped("model = FSDP(net, use_orig_params=original)", text)
    assert not lost(result)
    assert "raise" not in result.text


def test_what_a_method_of_the_model_sets_by_a_computed_name() -> None:
    text = """
        class Kernel(torch.nn.Module):
            def register(self, name, tensor, lr):
                self.register_parameter(name, torch.nn.Parameter(tensor))
                setattr(getattr(self, name), "_optim", {"lr": lr})


        def main(net):
            model = FSDP(net, use_orig_params=True)
            params = list(model.parameters())
            return [p for p in params if hasattr(p, "_optim")]
        """
    assert "vars(param).update(attributes[name])" in rewrite(HEAD + code(text)).text
