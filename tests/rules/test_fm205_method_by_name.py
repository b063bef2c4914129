"""FM205: methods of FSDP1's wrapper that are looked up by name."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, code, one_line, rewrite

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def use(net, x):
    model = FSDP(net)
"""
EITHER = HEAD.replace("FSDP(net)", "FSDP(net) if x else DDP(net)")

NOOP = [
    "hasattr(model, 'no_sync')\n",
    "getattr(model, 'clip_grad_norm_', None)\n# FullyShardedDataParallel\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


STAYS = [
    "getattr(x.meter, 'no_sync_')",
    "getattr(model, 'config')",
    "getattr(model, 'module', model)",
    "getattr(model, '_fsdp_wrapped_module', model)",
    "hasattr(net.meter, 'process_group')",
    "getattr(x.meter, '_handle')",
    "getattr(model, x)",
]


@pytest.mark.parametrize("expression", STAYS)
def test_nothing_to_do(expression: str) -> None:
    result = rewrite(HEAD + f"    return {expression}\n")
    assert result.text.endswith(f"    return {expression}\n")
    assert {level for _, level, _ in result.summary} == {"rewritten"}


CASES = [
    ("hasattr(model, 'no_sync')", "isinstance(model, FSDPModule)"),
    ('hasattr(model, "clip_grad_norm_")', "isinstance(model, FSDPModule)"),
    ("hasattr(model, 'summon_full_params') and x", "isinstance(model, FSDPModule) and x"),
    ("not hasattr(model, 'state_dict_type')", "not isinstance(model, FSDPModule)"),
    ("getattr(model, 'no_sync', None)", "partial(unsynced, model)"),
    ("getattr(model, 'no_sync')()", "partial(unsynced, model)()"),
    ("getattr(model, 'clip_grad_norm_')(1.0)", "partial(clip_grad_norm_, list(model.parameters()))(1.0)"),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_method_by_name(before: str, after: str) -> None:
    result = rewrite(HEAD + f"    return {before}\n")
    assert result.text.endswith(f"    return {after}\n")
    assert {level for _, level, _ in result.summary} == {"rewritten"}


DDP_OR_FSDP = [
    ("hasattr(model, 'no_sync')", "(isinstance(model, FSDPModule) or hasattr(model, 'no_sync'))"),
    ("hasattr(model, 'clip_grad_norm_')", "isinstance(model, FSDPModule)"),
    (
        "getattr(model, 'no_sync', x)",
        "partial(unsynced, model) if isinstance(model, FSDPModule) else getattr(model, 'no_sync', x)",
    ),
]


@pytest.mark.parametrize(("before", "after"), DDP_OR_FSDP)
def test_model_that_may_be_ddp(before: str, after: str) -> None:
    text = " ".join(rewrite(EITHER + f"    return {before}\n").text.split())
    assert text.endswith((f"return {after}", f"return {after[1:-1]}", f"return ( {after} )"))


STOPPED = [
    (HEAD, "getattr(model, 'summon_full_params', None)"),
    (HEAD, "getattr(model, 'state_dict_type', None)"),
    (HEAD, "hasattr(model, 'fsdp_modules')"),
    (HEAD, "getattr(model, '_handle', None)"),
    (HEAD, "hasattr(model, 'sharding_strategy')"),
]


@pytest.mark.parametrize(("head", "expression"), STOPPED)
def test_what_has_no_counterpart_raises(head: str, expression: str) -> None:
    result = check_marked(head + f"    return {expression}\n", "FM205", Level.MANUAL, "by its name")
    raised = 'raise NotImplementedError("fsdp-migrate FM205: a method of FSDP1 is looked up by'
    guard = "    if isinstance(model, FSDPModule):\n        " if head == EITHER else "    "
    assert f"{guard}{raised}" in one_line(result.text)
    assert result.text.endswith(f"    return {expression}\n")


def test_a_test_for_what_only_sets_the_speed_is_reported_and_stays() -> None:
    text = (
        HEAD
        + "    if hasattr(model, '_exec_order_data'):\n        model._exec_order_data._forward_prefetch_limit = 2\n"
    )
    result = check_marked(text, "FM205", Level.REVIEW, "gathers ahead")
    assert {level for _, level, _ in result.summary} == {"rewritten", "review"}
    assert "raise" not in result.text


def test_model_that_is_not_known() -> None:
    text = HEAD + "    return model\n\n\ndef step(m):\n    return hasattr(m, 'no_sync')\n"
    result = check_marked(text, "FM205", Level.MANUAL, "by its name")
    assert "raise" not in result.text


UNSEEN = {
    "both ways clip": """
        def step(trainer):
            if hasattr(trainer.model, "clip_grad_norm_"):
                trainer.model.clip_grad_norm_(1.0)
            else:
                torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        """,
    "in one expression": """
        def step(model):
            has_own = hasattr(model, "clip")
            return (
                model.clip_grad_norm_(1.0)
                if hasattr(model, "clip_grad_norm_")
                else torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            )
        """,
}


@pytest.mark.parametrize("text", UNSEEN.values(), ids=UNSEEN)
def test_what_has_no_method_of_its_own_is_clipped_by_torch_already(text: str) -> None:
    text = "import torch\n" + HEAD + "    return model\n\n" + code(text)
    result = rewrite(text)
    assert result.text.endswith(text.partition("    return model\n")[2])
    assert {level for _, level, _ in result.summary} == {"rewritten"}


ANOTHERS = """
    import {0}
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def build(net, args):
        return FSDP(net) if args.accelerator == "cuda" else {0}.accelerate(net)


    def train(net, args):
        model = build(net, args)
        if hasattr(model, "clip_grad_norm_"):
            model.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    """


def test_another_librarys_wrapper_goes_on_to_clip_by_its_own_method() -> None:
    """XLA's has one of the same name; an FSDP2 model has none, and is clipped by torch, as the program has it."""
    text = "import torch\n" + code(ANOTHERS.format("torchacc"))
    kept = text.partition("def train")[2]
    assert rewrite(text).text.endswith(kept)
    assert "hasattr" not in rewrite(text.replace("torchacc", "tools")).text


def test_norms_that_fsdp1_never_took_are_not_told_of() -> None:
    text = "import torch\n" + code(ANOTHERS.format("tools"))
    assert "FM206" not in {rule for rule, _, _ in rewrite(text).summary}


OTHERWISE = [
    "    else:\n        torch.nn.utils.clip_grad_norm_(trainer.head.parameters(), 1.0)\n",
    "    else:\n        print(trainer)\n",
    "    elif trainer.clips:\n        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)\n",
    "",
]


@pytest.mark.parametrize("other", OTHERWISE)
def test_what_has_no_method_of_its_own_is_not_clipped(other: str) -> None:
    head = "import torch\n" + HEAD + "    return model\n\n\ndef step(trainer):\n"
    asked = '    if hasattr(trainer.model, "clip_grad_norm_"):\n        trainer.model.clip_grad_norm_(1.0)\n'
    result = rewrite(head + asked + other)
    assert asked.splitlines()[1] in result.text
    assert "manual" in {level for rule, level, _ in result.summary if rule == "FM205"}


def test_group_that_is_looked_up() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef use(net, x):\n"
    read = '    return x(getattr(model, "process_group", None))\n'
    assert rewrite(f"{head}    model = FSDP(net)\n{read}").text.endswith("    return x(dist.group.WORLD)\n")
    assert rewrite(f"{head}    model = FSDP(net, process_group=x)\n{read}").text.endswith("return x(group_of(model))\n")
