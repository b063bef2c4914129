"""FM216: names with FSDP1's prefix that are kept in variables."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_noop, code, rewrite

PROGRAM = """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def groups(net, use_fsdp):
        model = FSDP(net, use_orig_params=True)
        if use_fsdp:
            excluded = {name}
        else:
            excluded = "token_emb"
        return [p for name, p in model.named_parameters() if name != excluded]
"""


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ('"_fsdp_wrapped_module.token_emb"', '"token_emb"'),
        ("'_fsdp_wrapped_module.layers.0._fsdp_wrapped_module.weight'", "'layers.0.weight'"),
    ],
)
def test_a_name_in_a_variable_is_the_models(name: str, after: str) -> None:
    result = rewrite(code(PROGRAM.format(name=name)))
    assert f"excluded = {after}\n" in result.text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


@pytest.mark.parametrize("name", ['"_fsdp_wrapped_module"', '"the _fsdp_wrapped_module.token_emb"', '"token_emb"'])
def test_what_is_no_whole_name_stays(name: str) -> None:
    assert f"excluded = {name}\n" in rewrite(code(PROGRAM.format(name=name))).text


def test_noop() -> None:
    check_noop('excluded = "_fsdp_wrapped_module.token_emb"\n')
