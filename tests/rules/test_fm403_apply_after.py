"""FM403: `model.apply(...)` of a wrapped model, which FSDP1 ran on gathered parameters."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, code, rewrite

HEAD = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def init(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight)


def count(module):
    seen.append(type(module))


"""


def test_noop() -> None:
    check_noop("model.apply(init)\n")


FINE = {
    "before the wrap": "net.apply(init)\n    model = FSDP(net)",
    "a function that writes nothing": "model = FSDP(net)\n    model.apply(count)",
    "a lambda that writes nothing": "model = FSDP(net)\n    model.apply(lambda m: setattr(m, 'checkpointed', True))",
    "of something else": "model = FSDP(net)\n    other.apply(init)",
    "of a class": "model = FSDP(net)\n    FSDPFunction.apply(model)",
}


@pytest.mark.parametrize("name", FINE)
def test_stays(name: str) -> None:
    result = rewrite(HEAD + f"def build(net, other):\n    {FINE[name]}\n    return model\n")
    assert {finding.rule for finding in result.findings} == {"FM101"}
    assert "summon_full_params" not in result.text


@pytest.mark.parametrize("function", ["init", "other", "net._init_weights", "lambda m: m.reset_parameters()"])
def test_is_run_on_whole_parameters(function: str) -> None:
    result = rewrite(
        HEAD + f"def build(net, other):\n    model = FSDP(net)\n    model.apply({function})\n    return model\n"
    )
    assert result.text.endswith(
        "    model = fully_shard(net)\n"
        "    with full_params(model):\n"
        f"        model.apply({function})\n"
        "    return model\n"
    )
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_over_several_lines() -> None:
    body = code(
        """
        def build(net):
            net = FSDP(net)
            net = net.apply(
                init
            )  # once
            return net
        """
    )
    inner = "        net = net.apply(\n            init\n        )  # once\n"
    assert rewrite(HEAD + body).text.endswith(f"    with full_params(net):\n{inner}    return net\n")


@pytest.mark.parametrize("statement", ["return model.apply(init)", "x = use(model.apply(init))"])
def test_in_another_statement_needs_a_person(statement: str) -> None:
    check_marked(HEAD + f"def build(net):\n    model = FSDP(net)\n    {statement}\n", "FM403")


def test_a_new_wrap_in_the_receiver_needs_a_person() -> None:
    check_marked(HEAD + "def build(net):\n    FSDP(net).apply(init)\n", "FM403")


@pytest.mark.parametrize("function", ["disable_fake_quant", "quant.enable_observer"])
def test_what_is_named_for_a_switch_is_called_as_it_stands(function: str) -> None:
    imports = "import quant\nfrom quant import disable_fake_quant\n"
    result = rewrite(f"{imports}{HEAD}def build(net):\n    model = FSDP(net)\n    model.apply({function})\n")
    assert result.text.endswith(f"    model = fully_shard(net)\n    model.apply({function})\n")
    assert Level.REVIEW in {finding.level for finding in result.findings if finding.rule == "FM403"}


def test_a_switch_that_is_seen_to_write_is_run_on_whole_parameters() -> None:
    switch = "def enable_scale(module):\n    module.weight.data.fill_(1.0)\n\n\n"
    result = rewrite(f"{HEAD}{switch}def build(net):\n    model = FSDP(net)\n    model.apply(enable_scale)\n")
    assert "with full_params(model):" in result.text
