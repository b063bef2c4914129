"""Faults that were found late, each with the smallest program that showed it."""

from __future__ import annotations

from codemods.api import Level

from ..helpers import rewrite

HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


def test_parameters_kept_from_before_the_wrap_need_a_person() -> None:
    body = "def f(net):\n    ema = dict(net.named_parameters())\n    model = FSDP(net)\n    return model, ema\n"
    result = rewrite(HEAD + body)
    assert [(f.rule, f.level) for f in result.findings if f.level is not Level.REWRITTEN] == [("FM405", Level.MANUAL)]


def test_unwrap_loop_looks_inside_the_other_wrappers_only() -> None:
    body = "def bare(m):\n    while isinstance(m, (DDP, FSDP)):\n        m = m.module\n    return m\nmodel = FSDP(x)\n"
    result = rewrite(HEAD + "from torch.nn.parallel import DistributedDataParallel as DDP\n" + body)
    assert "while isinstance(m, DDP):\n        m = m.module" in result.text


def test_name_bound_inside_a_dropped_argument_stays_bound() -> None:
    result = rewrite(HEAD + "def f(net):\n    m = FSDP(net, use_orig_params=(u := True))\n    return m, u\n")
    assert "use_orig_params=(u := True)" in result.text


def test_method_that_the_program_replaces_needs_a_person() -> None:
    result = rewrite(HEAD + "def f(net, other):\n    model = FSDP(net)\n    model.no_sync = other\n")
    assert "model.no_sync = other" in result.text
    assert [finding.rule for finding in result.findings if finding.level is Level.MANUAL] == ["FM201"]


def test_with_at_the_end_of_a_file_without_a_newline() -> None:
    body = "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n    x = model.state_dict()"
    text = HEAD + "model = FSDP(net)\n" + body
    result = rewrite(text.replace("as FSDP", "as FSDP, StateDictType", 1))
    assert result.text.endswith("options=StateDictOptions(full_state_dict=True))")


def test_sharded_optimizer_state_is_not_loaded_without_a_word() -> None:
    imports = "from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict as load\n"
    result = rewrite(HEAD + imports + "def f(net, x, r):\n    model = FSDP(net)\n    return load(model, x, r)\n")
    assert "FM305" in {finding.rule for finding in result.findings}


def test_groups_by_dimension_are_reported() -> None:
    body = "def f(net):\n    model = FSDP(net)\n    return [p for p in model.parameters() if p.ndim >= 2]\n"
    assert ("FM404", Level.MANUAL) in {(finding.rule, finding.level) for finding in rewrite(HEAD + body).findings}


def test_groups_by_dimension_that_a_function_is_asked_for() -> None:
    body = "def f(net):\n    model = FSDP(net)\n    flat = lambda n, p: {}\n"
    body += "    return [p for n, p in model.named_parameters() if flat(n, p)]\n"
    for question, is_told in {"p.ndim < 2": True, "p.requires_grad": False}.items():
        found = {(finding.rule, finding.level) for finding in rewrite(HEAD + body.format(question)).findings}
        assert (("FM404", Level.MANUAL) in found) == is_told


def test_groups_that_timm_makes_by_dimension_are_reported_and_so_are_their_files() -> None:
    body = """
from timm.optim import create_optimizer_v2, optim_factory
def f(net, path):
    model = FSDP(net)
    groups = optim_factory.add_weight_decay(model, 0.05)
    torch.save({"optimizer": torch.optim.AdamW(groups).state_dict()}, path)
    return create_optimizer_v2(model, "sgd")
"""
    found = [f.rule for f in rewrite(f"import torch\n{HEAD}{body}").findings if f.level is Level.MANUAL]
    assert sorted(found) == ["FM307", "FM404"]


def test_groups_by_dimension_of_the_plain_model_are_as_they_were() -> None:
    body = "def f(net):\n    n = sum(p.ndim for p in net.parameters())\n    return FSDP(net), n\n"
    assert "FM404" not in {finding.rule for finding in rewrite(HEAD + body).findings}


def test_last_argument_of_a_file_without_a_newline() -> None:
    body = "def f(net, optim, s):\n    m = FSDP(net)\n    return FSDP.optim_state_dict_to_load(\n        m, optim, s,\n"
    assert rewrite(HEAD + body + "        is_named_optimizer=False)").text.endswith(")")
