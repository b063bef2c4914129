"""FM203: `with FSDP.summon_full_params(model)`."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, one_line, rewrite

HEAD = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef use(net, x):\n    model = FSDP(net)\n"
)


def test_another_librarys_class_stays() -> None:
    check_noop("from other import FSDP\nwith FSDP.summon_full_params(model):\n    pass\n")


CASES = [
    "with {}(model):\n        pass",
    "with {}(model, writeback=False, rank0_only=True, offload_to_cpu=True):\n        pass",
    "with {}(model, writeback=False, recurse=False):\n        model.generate(x)",
    "with {}(model): x(model)",
    "with x, {}(model) as y:\n        pass",
    "with x:\n        with {}(model):\n            x()",
    "return {}(model)",
    "x.enter_context({}(model))",
    "context = lambda: {}(model) if x else contextlib.nullcontext()",
    "return partial({}, model, with_grads=True)",
    "with {}(model):\n        return model.state_dict()",
    "with {}(model):\n        x.load_state_dict(net)",
]


@pytest.mark.parametrize("statement", CASES)
@pytest.mark.parametrize("owner", ["FSDP", "model"])
def test_context_is_the_support_modules(statement: str, owner: str) -> None:
    result = rewrite(HEAD + "    " + statement.format(f"{owner}.summon_full_params") + "\n")
    assert result.text.endswith("    " + statement.format("summon_full_params") + "\n")
    assert result.support == {"summon_full_params"}
    assert {level for _, level, _ in result.summary} == {"rewritten"}


@pytest.mark.parametrize("load", ["model.load_state_dict(x)", "model.module.load_state_dict(x)"])
def test_state_dict_that_is_loaded_inside_raises(load: str) -> None:
    text = HEAD + f"    with FSDP.summon_full_params(model):\n        {load}\n"
    result = check_marked(text, "FM203", Level.MANUAL, "load_state_dict")
    assert '    raise NotImplementedError("fsdp-migrate FM203: load_state_dict inside' in one_line(result.text)


def test_summoned_model_of_another_function() -> None:
    text = HEAD + "    read(model)\n\n\ndef read(m):\n    with m.summon_full_params(m):\n        pass\n"
    assert rewrite(text).text.endswith("    with summon_full_params(m):\n        pass\n")


def test_name_of_the_users_own() -> None:
    text = "def summon_full_params(model):\n    return model\n\n\n"
    head, rest = HEAD.split("\n\n\n")
    result = rewrite(f"{head}\n\n\n{text}{rest}    return FSDP.summon_full_params(model)\n")
    assert result.text.endswith("    return fsdp2_summon_full_params(model)\n")
