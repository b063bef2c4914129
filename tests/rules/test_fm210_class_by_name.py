"""FM210: an FSDP1 model that is known by the name of its class."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, one_line, rewrite

HEAD = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef use(net, x):\n    model = FSDP(net)\n"
)


def test_noop() -> None:
    check_noop("type(model).__name__ == 'DistributedDataParallel'\n")


STAYS = ["x == 'FullyShardedDataParallel'", "x.strategy in ('FullyShardedDataParallel',)"]


@pytest.mark.parametrize("expression", STAYS)
def test_nothing_to_do(expression: str) -> None:
    result = rewrite(HEAD + f"    return {expression}\n")
    assert result.text.endswith(f"    return {expression}\n")
    assert {level for _, level, _ in result.summary} == {"rewritten"}


CASES = [
    ("type(x).__name__ == 'FullyShardedDataParallel'", "isinstance(x, FSDPModule)"),
    ('x.__class__.__name__ == "FullyShardedDataParallel"', "isinstance(x, FSDPModule)"),
    ("'FullyShardedDataParallel' in type(x).__name__", "isinstance(x, FSDPModule)"),
    ("'FullyShardedDataParallel' not in str(type(x))", "not isinstance(x, FSDPModule)"),
    ("type(x.model).__name__ != 'FullyShardedDataParallel' or x", "not isinstance(x.model, FSDPModule) or x"),
    (
        "type(x).__name__ in ('FullyShardedDataParallel', 'DistributedDataParallel')",
        "isinstance(x, FSDPModule) or type(x).__name__ == 'DistributedDataParallel'",
    ),
    (
        "not type(x).__name__ not in ['A', 'FullyShardedDataParallel', 'B']",
        "not (not isinstance(x, FSDPModule) and type(x).__name__ not in ('A', 'B'))",
    ),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_name_becomes_a_class_test(before: str, after: str) -> None:
    result = rewrite(HEAD + f"    return {before}\n")
    assert result.text.endswith(f"    return {after}\n")
    assert {level for _, level, _ in result.summary} == {"rewritten"}


IN_A_VARIABLE = """\
    kind = type(model).__name__
    several = kind in ("DistributedDataParallel", "FullyShardedDataParallel")
    if "FullyShardedDataParallel" in kind:
        model.clip_grad_norm_(1.0)
    before = x.__class__.__name__
    x = model
    return several or before == "FullyShardedDataParallel"
"""


def test_the_name_in_a_variable() -> None:
    """It was False for ever: gradients were no longer clipped."""
    text = rewrite(HEAD + IN_A_VARIABLE).text
    assert 'several = isinstance(model, FSDPModule) or kind == "DistributedDataParallel"\n' in text
    assert "if isinstance(model, FSDPModule):\n        torch.nn.utils.clip_grad_norm_(" in text
    assert 'before == "FullyShardedDataParallel"' in text  # `x` is another one by then


STOPPED = [
    "'FullyShardedDataParallel_' in type(x).__name__",
    "x.__class__.__name__ in ('FullyShardedDataParallel', OTHER)",
    "type(x()).__name__ == 'FullyShardedDataParallel'",
]


@pytest.mark.parametrize("expression", STOPPED)
def test_other_tests_of_the_name_raise(expression: str) -> None:
    result = check_marked(HEAD + f"    return {expression}\n", "FM210", Level.MANUAL, "name of its class")
    guard = '    if isinstance(x, FSDPModule):\n        raise NotImplementedError("fsdp-migrate FM210: '
    assert (guard in one_line(result.text)) == ("x()" not in expression)  # no name is at hand


UNWRAPPED = """\
def unwrap(model):
    if type(model).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
        return model.module
    return model


def without_ddp(model):
    if type(model).__name__ == "DistributedDataParallel":
        return model.module
    return model


def main(net):
    return unwrap(FSDP(net)), without_ddp(FSDP(net))
"""


def test_what_the_name_of_a_class_says() -> None:
    """Both raised, or were asked about (single-gpu-llm-toolkit)."""
    result = rewrite(HEAD.partition("\n")[0] + "\n\n\n" + UNWRAPPED)
    assert 'if isinstance(model, FSDPModule) or type(model).__name__ == "DistributedDataParallel":' in result.text
    assert 'if type(model).__name__ == "DistributedDataParallel":\n        return model.module\n' in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten"}
