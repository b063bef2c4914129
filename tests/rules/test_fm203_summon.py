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
    "with {}(model):\n        x()",
    "with {}(model, writeback=False, rank0_only=True, offload_to_cpu=True):\n        x()",
    "with {}(model, writeback=False, recurse=False):\n        model.embed(x)",
    "with {}(model, recurse=False):\n        model.generate(x)",
    "with {}(model, writeback=False, recurse=False):\n        model.generate(x, model.weight)",
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


GENERATES = [
    (
        "with {}(model, writeback=False, recurse=False):\n        return model.generate(x)",
        "with {}:\n        return model.generate(x)",
    ),
    ("with {}(model, recurse=False, writeback=False), x:\n        model(x)", "with {}, x:\n        model(x)"),
    (
        "context = lambda: {}(model, writeback=False, recurse=False) if x else nothing()\n"
        "    with context():\n        model.generate(x)",
        "context = lambda: {} if x else nothing()\n    with context():\n        model.generate(x)",
    ),
]


@pytest.mark.parametrize(("before", "after"), GENERATES)
def test_to_generate_the_root_alone_is_gathered(before: str, after: str) -> None:
    result = rewrite(HEAD + "    " + before.format("FSDP.summon_full_params") + "\n")
    assert result.text.endswith("    " + after.format("unsharded(model)") + "\n")
    assert result.support == {"unsharded"}


def test_around_nothing_it_goes() -> None:
    result = rewrite(HEAD + "    with FSDP.summon_full_params(model):\n        pass\n    return model\n")
    assert result.text.endswith("    model = fully_shard(net)\n    return model\n")
    assert not result.support


@pytest.mark.parametrize("load", ["model.load_state_dict(x)", "model.module.load_state_dict(x)"])
def test_state_dict_that_is_loaded_inside_raises(load: str) -> None:
    text = HEAD + f"    with FSDP.summon_full_params(model):\n        {load}\n"
    result = check_marked(text, "FM203", Level.MANUAL, "load_state_dict")
    assert '    raise NotImplementedError("fsdp-migrate FM203: load_state_dict inside' in one_line(result.text)


def test_summoned_model_of_another_function() -> None:
    text = HEAD + "    read(model)\n\n\ndef read(m):\n    with m.summon_full_params(m):\n        print(m)\n"
    assert rewrite(text).text.endswith("    with summon_full_params(m):\n        print(m)\n")


def test_name_of_the_users_own() -> None:
    text = "def summon_full_params(model):\n    return model\n\n\n"
    head, rest = HEAD.split("\n\n\n")
    result = rewrite(f"{head}\n\n\n{text}{rest}    return FSDP.summon_full_params(model)\n")
    assert result.text.endswith("    return fsdp2_summon_full_params(model)\n")
