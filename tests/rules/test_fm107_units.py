"""`FSDP.fsdp_modules`: the list of units (FM107)."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, code, rewrite

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, x):
    model = FSDP(net)
"""


def test_another_function_of_that_name_stays() -> None:
    result = rewrite(HEAD.replace("net, x", "net, x, fsdp_modules") + "    return fsdp_modules(model)\n")
    assert "    return fsdp_modules(model)\n" in result.text
    assert {rule for rule, _, _ in result.summary} == {"FM101"}


@pytest.mark.parametrize("expression", ["x.fsdp_modules(x)", "x.fsdp_modules()"])
def test_what_only_fsdp1_has_is_reported_of_what_is_not_seen(expression: str) -> None:
    result = rewrite(HEAD + f"    return {expression}\n")
    assert f"    return {expression}\n" in result.text
    assert {rule for rule, _, _ in result.summary} == {"FM101", "FM207"}


def test_method_of_that_name_in_the_program() -> None:
    own = "\n\nclass Units:\n    def fsdp_modules(self):\n        return []\n"
    result = rewrite(HEAD + "    return x.fsdp_modules()\n" + own)
    assert {rule for rule, _, _ in result.summary} == {"FM101"}


@pytest.mark.parametrize("arguments", ["model, root_only=True", "model, True", "*x"])
def test_more_than_the_model_is_reported(arguments: str) -> None:
    check_marked(HEAD + f"    return FSDP.fsdp_modules({arguments})\n", "FM107", Level.MANUAL)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FSDP.fsdp_modules(model)", "[m for m in model.modules() if isinstance(m, FSDPModule)]"),
        ("FSDP.fsdp_modules(module=model)", "[m for m in model.modules() if isinstance(m, FSDPModule)]"),
        ("model.fsdp_modules(model)", "[m for m in model.modules() if isinstance(m, FSDPModule)]"),
        ("FSDP.fsdp_modules(x or model)", "[m for m in (x or model).modules() if isinstance(m, FSDPModule)]"),
        (
            "[m for m in FSDP.fsdp_modules(model)]",
            "[m for m in model.modules() if isinstance(m, FSDPModule)]",
        ),
    ],
)
def test_becomes_a_list_of_modules(before: str, after: str) -> None:
    assert f"    return {after}\n" in rewrite(HEAD + f"    return {before}\n").text


def test_a_variable_in_the_expression_keeps_its_meaning() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        nets = [FSDP(net) for net in make()]
        units = [FSDP.fsdp_modules(m) for m in nets]
        """
    )
    assert (
        "units = [[unit for unit in m.modules() if isinstance(unit, FSDPModule)] for m in nets]" in rewrite(text).text
    )


@pytest.mark.parametrize("listed", ["[u for u in FSDP.fsdp_modules(model)]", "FSDP.fsdp_modules(model)"])
def test_list_of_the_list_is_one_list(listed: str) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    result = rewrite(f"{head}def count(net):\n    model = FSDP(net)\n    return len({listed})\n")
    assert result.text.endswith("    return len([m for m in model.modules() if isinstance(m, FSDPModule)])\n")


def test_list_made_of_the_units_stays() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    made = "[u.name for u in FSDP.fsdp_modules(model)]"
    result = rewrite(f"{head}def ranks(net):\n    model = FSDP(net)\n    return {made}\n")
    assert "[u.name for u in [m for m in model.modules() if isinstance(m, FSDPModule)]]" in result.text
