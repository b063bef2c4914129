"""`--compile`: which units, and what stands in the way."""

from __future__ import annotations

import pytest

from tests.helpers import code
from tests.upgrades.upgraded import upgraded

HEAD = "import torch\nfrom torch.distributed.fsdp import fully_shard\n"
PLAIN = """
def shard(model):
    fully_shard(model.tokens)
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)
"""


def test_each_unit_above_its_sharding() -> None:
    result = upgraded(HEAD + code(PLAIN), compile="True")
    expected = PLAIN.replace(
        "    fully_shard(model.tokens)", "    model.tokens.compile()\n    fully_shard(model.tokens)"
    )
    expected = expected.replace("        fully_shard(layer)", "        layer.compile()\n        fully_shard(layer)")
    assert result.text == HEAD + code(expected)
    assert result.summary == [("FM604", "rewritten", 7)]


def test_a_function_that_is_compiled_is_no_obstacle() -> None:
    text = HEAD + "\nloss = torch.compile(torch.nn.functional.cross_entropy)\n" + PLAIN
    assert upgraded(text, compile="True").summary == [("FM604", "rewritten", 10)]


def test_checkpointing_below_is_said() -> None:
    text = HEAD + code(PLAIN).replace(
        "    return fully_shard(model)", "    fully_shard(model)\n    apply_activation_checkpointing(model)"
    )
    (found,) = upgraded(text, compile="True").findings
    assert (found.level.value, "line 8" in found.hint) == ("review", True)


NESTED = {
    "inner ones first": "    for layer in reversed(list(model.modules())):\n        fully_shard(layer)\n",
    "several loops": "    for norm in norms(model):\n        fully_shard(norm)\n"
    "    for layer in model.modules():\n        fully_shard(layer)\n",
}


@pytest.mark.parametrize("loops", NESTED.values(), ids=NESTED)
def test_units_that_may_lie_inside_of_one_another_are_said(loops: str) -> None:
    text = HEAD + f"\n\ndef shard(model):\n{loops}    fully_shard(model)\n"
    (found,) = upgraded(text, compile="True").findings
    assert (found.level.value, "inside of another" in found.hint) == ("review", True)


REFUSED = {
    "compiled as a whole": PLAIN.replace("    return ", "    model = torch.compile(model)\n    return "),
    "only the root": "def shard(model):\n    fully_shard(model)\n",
    "units inside of units": PLAIN.replace(
        "        fully_shard(layer)", "        fully_shard(layer.mlp)\n        fully_shard(layer)"
    ),
    "a part of what is looped over": PLAIN.replace("fully_shard(layer)", "fully_shard(layer.mlp)"),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_is_not_compiled_says_why(text: str) -> None:
    result = upgraded(HEAD + code(text), compile="True")
    assert result.text == HEAD + code(text)
    assert [finding.level.value for finding in result.findings] == ["manual"]
