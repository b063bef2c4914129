"""The FSDP class as a value: FM109."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_transformed, code, rewrite, rewrite_files

HEAD = """\
import functools

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


"""

KEPT = {
    "a class test of the table": """\
        KINDS = {"fsdp": FSDP, "ddp": DDP}


        def is_wrapped(net, kind):
            return isinstance(KINDS[kind](net), KINDS[kind])
        """,
    "a loop over the table": """\
        KINDS = {"fsdp": FSDP, "ddp": DDP}


        def which(net):
            return [name for name, kind in KINDS.items() if kind in type(net).__mro__]
        """,
    "a method of the value": """\
        def build(net, sharded):
            kind = FSDP if sharded else DDP
            kind.register(net)
            return kind(net)
        """,
    "returned": """\
        def kind(sharded):
            return FSDP if sharded else DDP


        model = kind(True)(net)
        """,
    "handed to a library": """\
        registry.register(FSDP)
        """,
    "an attribute": """\
        class Trainer:
            wrapper = FSDP
        """,
    "an attribute that is called elsewhere": """\
        class Config:
            wrapper = FSDP


        def build(net):
            return Config.wrapper(net)
        """,
    "an optimizer above": """\
        def build(torch, net, sharded):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            kind = FSDP if sharded else DDP
            return kind(net), optimizer
        """,
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_value_that_is_not_only_called_stays(text: str) -> None:
    result = rewrite(HEAD + code(text) + "\n\ndef other(net):\n    return FSDP(net)\n")
    assert ("FM109", Level.MANUAL) in {(finding.rule, finding.level) for finding in result.findings}
    assert "shard_model" not in result.text


@pytest.mark.parametrize(("before", "after"), [("!=", "not isinstance"), ("is", "isinstance")])
def test_a_test_of_the_type_becomes_isinstance(before: str, after: str) -> None:
    text = HEAD + "def main(net):\n    model = FSDP(net)\n    return {}\n"
    result = rewrite(text.format(f"net if type(model) {before} FSDP else None"))
    assert f"    return net if {after}(model, FSDPModule) else None\n" in result.text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


PASSED = {
    "a conditional": """\
        def build(net, sharded, **kwargs):
            kind = FSDP if sharded else DDP
            return kind(net, **kwargs)
        """,
    "branches that do more": """\
        def build(net, sharded):
            if sharded:
                kind = FSDP
            else:
                kind = DDP
                print("replicated")
            return kind(net)
        """,
    "a table, asked in two ways": """\
        KINDS = {"fsdp": FSDP, "ddp": DDP}


        def build(net, name):
            if name not in KINDS:
                raise ValueError(f"one of {list(KINDS.keys())}")
            first = KINDS[name](net.first)
            second = KINDS.get(name)
            return first, second(net.second)
        """,
    "a table that dict makes": """\
        KINDS = dict(fsdp=FSDP, ddp=DDP)


        def build(net, name):
            return KINDS[name](net)
        """,
    "a default": """\
        def build(net, kind=FSDP):
            return kind(net)
        """,
    "an argument": """\
        def build(net, kind):
            return kind(net)


        def main(net):
            return build(net, FSDP), build(net, kind=FSDP)
        """,
}


@pytest.mark.parametrize("text", PASSED.values(), ids=PASSED)
def test_value_that_is_only_called_becomes_shard_model(text: str) -> None:
    result = rewrite(HEAD + code(text))
    assert "shard_model" in result.support
    assert "FSDP" not in result.text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_table_that_another_file_uses_stays() -> None:
    files = {
        "kinds.py": HEAD + 'KINDS = {"fsdp": FSDP, "ddp": DDP}\n',
        "train.py": HEAD + "from kinds import KINDS\n\nisinstance(model, KINDS[kind])\nmodel = FSDP(net)\n",
    }
    result = rewrite_files(files)
    assert "shard_model" not in result.after["kinds.py"]
    assert ("FM109", Level.MANUAL) in {(finding.rule, finding.level) for finding in result.findings}


def test_another_name_for_the_class_is_the_class() -> None:
    check_transformed(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel

        FSDP = FullyShardedDataParallel


        def build(net):
            kind = FSDP
            model = kind(net)
            assert isinstance(model, FSDP)
            return model
        """,
        """
        from torch.distributed.fsdp import FSDPModule, fully_shard


        def build(net):
            model = fully_shard(net)
            assert isinstance(model, FSDPModule)
            return model
        """,
    )


def test_another_name_that_is_still_used_stays() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel

        FSDP = FullyShardedDataParallel


        def build(net):
            model = FSDP(net)
            return model, FSDP.fsdp_modules(model, True)
        """
    )
    result = rewrite(text)
    assert "FSDP = FullyShardedDataParallel" in result.text
    assert "raise NotImplementedError" in result.text


def test_what_a_type_variable_stands_for() -> None:
    head = "from typing import TypeVar\n\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
    result = rewrite(f'{head}T = TypeVar("T", bound=FSDP)\n\n\ndef wrap(net):\n    return FSDP(net)\n')
    assert 'T = TypeVar("T", bound=FSDPModule)\n' in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_a_class_that_a_recursion_hands_on() -> None:
    """The program ended the tool: its calls were looked for without end."""
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def wrap(net, kind=FSDP):
            if net.small:
                return wrap(net.part, kind)
            return kind(net)


        def main(net):
            return FSDP(net), wrap(net)
    """
    assert "def wrap(net, kind=shard_model):\n" in rewrite(code(text)).text
