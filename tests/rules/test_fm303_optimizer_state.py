"""FM303: FSDP1's static methods that deal in an optimizer's state."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, rewrite

HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullOptimStateDictConfig, ShardedOptimStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, optimizer, saved, rank):
    model = FSDP(net, use_orig_params=True)
"""


def body(text: str) -> str:
    return rewrite(HEAD + text).text.split("    model = fully_shard(net)\n")[1]


NOOP = [
    "optimizer.load_state_dict(optim_state_dict_to_load(model, optimizer, saved))\n",
    "from other import FSDP\nFSDP.optim_state_dict(model, optimizer)\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


CALLS = [
    ("full_optim_state_dict(model, optimizer)", "full_optim_state_dict(model, optimizer)"),
    ("full_optim_state_dict(model, optim=optimizer)", "full_optim_state_dict(model, optim=optimizer)"),
    (
        "full_optim_state_dict(model, optimizer, rank0_only=False)",
        "full_optim_state_dict(model, optimizer, rank0_only=False)",
    ),
    (
        "full_optim_state_dict(model, optimizer, model.parameters(), rank)",
        "full_optim_state_dict(model, optimizer, rank)",
    ),
    ("sharded_optim_state_dict(model, optimizer)", "sharded_optim_state_dict(model, optimizer)"),
    (
        "sharded_optim_state_dict(model, optimizer, group=dist.group.WORLD)",
        "sharded_optim_state_dict(model, optimizer)",
    ),
    ("optim_state_dict(model, optimizer)", "full_optim_state_dict(model, optimizer, rank0_only=False)"),
    (
        "optim_state_dict(model, optimizer, optimizer.state_dict())",
        "full_optim_state_dict(model, optimizer, rank0_only=False)",
    ),
    ("scatter_full_optim_state_dict(saved, model)", "scatter_full_optim_state_dict(saved, model)"),
    (
        "scatter_full_optim_state_dict(saved, model, None, optimizer)",
        "scatter_full_optim_state_dict(saved, model, optimizer)",
    ),
    (
        "shard_full_optim_state_dict(saved, model, optim=optimizer)",
        "shard_full_optim_state_dict(saved, model, optim=optimizer)",
    ),
    (
        "shard_full_optim_state_dict(saved, model, model.parameters())",
        "shard_full_optim_state_dict(saved, model)",
    ),
    (
        "flatten_sharded_optim_state_dict(saved, model, optimizer)",
        "flatten_sharded_optim_state_dict(saved, model, optimizer)",
    ),
    ("rekey_optim_state_dict(saved, rank, model)", "rekey_optim_state_dict(saved, rank, model)"),
    ("optim_state_dict_to_load(model, optimizer, saved)", "optim_state_dict_to_load(model, optimizer, saved)"),
    (
        "optim_state_dict_to_load(model, optimizer, saved, load_directly=True)",
        "optim_state_dict_to_load(model, optimizer, saved, load_directly=True)",
    ),
    (
        "optim_state_dict_to_load(model=model, optim=optimizer, optim_state_dict=saved, group=None)",
        "optim_state_dict_to_load(model=model, optim=optimizer, optim_state_dict=saved)",
    ),
]


@pytest.mark.parametrize(("before", "after"), CALLS, ids=[before for before, _ in CALLS])
def test_call(before: str, after: str) -> None:
    result = rewrite(HEAD + f"    return FSDP.{before}\n")
    assert result.text.endswith(f"    model = fully_shard(net)\n    return {after}\n")
    assert result.support == {after.split("(")[0]}
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


@pytest.mark.parametrize("last", ["saved", "saved['optim']", "torch.load(saved)"])
def test_order_before_torch_2_1(last: str) -> None:
    text = body(f"    optimizer.load_state_dict(FSDP.optim_state_dict_to_load({last}, model, optimizer))\n")
    assert text == f"    optimizer.load_state_dict(optim_state_dict_to_load(model, optimizer, {last}))\n"


def test_order_that_goes_by_the_version_of_torch() -> None:
    text = body(
        "    if torch.__version__ < '2.1':\n        o = FSDP.optim_state_dict_to_load(saved, model, optimizer)\n"
        "    else:\n        o = FSDP.optim_state_dict_to_load(model, optimizer, saved)\n    return o\n"
    )
    assert text.count("o = optim_state_dict_to_load(model, optimizer, saved)\n") == 2


CONTEXTS = [
    ("StateDictType.FULL_STATE_DICT", "full_optim_state_dict(model, optimizer, rank0_only=False)"),
    (
        "StateDictType.FULL_STATE_DICT, None, FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)",
        "full_optim_state_dict(model, optimizer)",
    ),
    (
        "StateDictType.FULL_STATE_DICT, optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=False)",
        "full_optim_state_dict(model, optimizer, rank0_only=False, offload_to_cpu=False)",
    ),
    ("StateDictType.SHARDED_STATE_DICT", "sharded_optim_state_dict(model, optimizer)"),
    (
        "StateDictType.SHARDED_STATE_DICT, None, ShardedOptimStateDictConfig(offload_to_cpu=False)",
        "sharded_optim_state_dict(model, optimizer, offload_to_cpu=False)",
    ),
]


@pytest.mark.parametrize(("settings", "after"), CONTEXTS)
def test_context_says_what_is_read(settings: str, after: str) -> None:
    text = body(
        f"    with FSDP.state_dict_type(model, {settings}):\n        s = FSDP.optim_state_dict(model, optimizer)\n"
    )
    assert text == f"    s = {after}\n"


def test_arguments_over_several_lines() -> None:
    before = """\
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        s = FSDP.optim_state_dict(
            model,  # the whole of it
            optimizer,
        )
        o = FSDP.optim_state_dict_to_load(
            saved["a"],
            model,
            optimizer,
        )
    return s, o
"""
    after = """\
    s = full_optim_state_dict(
        model,  # the whole of it
        optimizer,
        rank0_only=False,
    )
    o = optim_state_dict_to_load(
        model,
        optimizer,
        saved["a"],
    )
    return s, o
"""
    assert body(before) == after


def test_settings_at_run_time() -> None:
    result = rewrite(
        HEAD + "    FSDP.set_state_dict_type(model, rank)\n    return FSDP.optim_state_dict(model, optimizer)\n"
    )
    assert result.text.endswith("    return optim_state_dict(model, optimizer)\n")
    assert result.support == {"optim_state_dict", "set_state_dict_type"}


GROUP = """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, optimizer, group):
    model = FSDP(net, process_group=group, use_orig_params=True)
    everyone = dist.group.WORLD
    return FSDP.{call}
"""


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("optim_state_dict(model, optimizer, group=group)", "optim_state_dict(model, optimizer, rank0_only=False)"),
        (
            "optim_state_dict(model, optimizer, group=model.process_group)",
            "optim_state_dict(model, optimizer, rank0_only=False)",
        ),
        ("sharded_optim_state_dict(model, optimizer, group=group)", "sharded_optim_state_dict(model, optimizer)"),
        ("full_optim_state_dict(model, optimizer, group=everyone)", "full_optim_state_dict(model, optimizer)"),
        ("full_optim_state_dict(model, optimizer, group=group)", "full_optim_state_dict(model, optimizer)"),
    ],
)
def test_group_of_the_model(call: str, after: str) -> None:
    """Each rank reads over the mesh of the model, and the default group is what is taken without one."""
    result = rewrite(GROUP.format(call=call))
    assert result.text.endswith(f"{after}\n")
    assert "FM303" not in {f.rule for f in result.findings if f.level is not Level.REWRITTEN}


@pytest.mark.parametrize("group", ["", ", group=group"])
def test_state_to_load_into_a_model_with_a_group_of_its_own(group: str) -> None:
    """The first of all ranks would give every group the values of its own."""
    check_marked(
        GROUP.format(call=f"optim_state_dict_to_load(model, optimizer, optimizer.saved{group})"),
        "FM303",
        Level.MANUAL,
        "a process group of its own",
    )


LEFT = [
    ("FSDP.optim_state_dict(*saved)", "not followed"),
    ("FSDP.optim_state_dict(model, optimizer, saved)", "its optim_state_dict is `saved`"),
    ("FSDP.optim_state_dict(model, optimizer, group=rank)", "its group is `rank`"),
    ("FSDP.optim_state_dict_to_load(model, optimizer, saved, is_named_optimizer=True)", "is_named_optimizer"),
    ("FSDP.optim_state_dict_to_load(saved, rank, optimizer)", "which of its arguments is the model"),
    ("FSDP.scatter_full_optim_state_dict(saved, model, rank)", "its optim_input is `rank`"),
    ("FSDP.full_optim_state_dict(optim=optimizer, *saved)", "not followed"),
]


@pytest.mark.parametrize(("text", "words"), LEFT)
def test_what_needs_a_person(text: str, words: str) -> None:
    result = check_marked(HEAD + f"    return {text}\n", "FM303", Level.MANUAL, words)
    assert text in result.text


def test_context_of_another_model_needs_a_person() -> None:
    text = HEAD + "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
    check_marked(text + "        FSDP.optim_state_dict(rank.model, optimizer)\n", "FM303", Level.MANUAL, "for `model`")


FLAT = ["net", "net, auto_wrap_policy=rank", "net, use_orig_params=False", 'net, device_id=torch.device("cpu")']


@pytest.mark.parametrize("arguments", FLAT)
@pytest.mark.parametrize("name", ["full_optim_state_dict", "sharded_optim_state_dict"])
def test_flat_parameters_were_saved_unit_flat_order(name: str, arguments: str) -> None:
    head = HEAD.replace("FSDP(net, use_orig_params=True)", f"FSDP({arguments})")
    text = rewrite(f"{head}    return FSDP.{name}(model, optimizer)\n").text
    assert text.endswith(f"    return {name}(model, optimizer, flat_order=True)\n")


@pytest.mark.parametrize(
    ("kwargs", "flat"), [("", True), ("use_orig_params=False", True), ("use_orig_params=True", False)]
)
def test_flat_parameters_of_a_call_that_spreads_a_dict(kwargs: str, flat: bool) -> None:
    head = HEAD.replace("FSDP(net, use_orig_params=True)", f"FSDP(net, **dict({kwargs}))")
    text = rewrite(f"{head}    return FSDP.full_optim_state_dict(model, optimizer)\n").text
    more = ", flat_order=True" if flat else ""
    assert text.endswith(f"    return full_optim_state_dict(model, optimizer{more})\n")


NOT_SEEN_FLAT = ["net, use_orig_params=rank", "net, **rank", "net, use_orig_params=True"]


@pytest.mark.parametrize("arguments", NOT_SEEN_FLAT)
def test_order_that_the_support_module_sees_by_itself(arguments: str) -> None:
    head = HEAD.replace("FSDP(net, use_orig_params=True)", f"FSDP({arguments})")
    text = rewrite(f"{head}    return FSDP.full_optim_state_dict(model, optimizer)\n").text
    assert text.endswith("    return full_optim_state_dict(model, optimizer)\n")


ALIGNED = """\
    loaded = FSDP.optim_state_dict_to_load(model=model,
                                           optim=optimizer,
                                           optim_state_dict=rank)
    full = FSDP.full_optim_state_dict(model, optimizer, model.parameters(),
                                      rank0_only=False)
    return FSDP.rekey_optim_state_dict(
        loaded,
        full,
        model,
    )
"""


def test_arguments_below_one_another_are_moved_along() -> None:
    assert rewrite(HEAD + ALIGNED).text.endswith(
        """\
    loaded = optim_state_dict_to_load(model=model,
                                      optim=optimizer,
                                      optim_state_dict=rank)
    full = full_optim_state_dict(model, optimizer, rank0_only=False)
    return rekey_optim_state_dict(
        loaded,
        full,
        model,
    )
"""
    )
    inside = "".join(f"    {line}\n" for line in ALIGNED.splitlines()[:3])
    text = rewrite(HEAD + "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n" + inside).text
    assert text.endswith(
        "    loaded = optim_state_dict_to_load(model=model,\n"
        "                                      optim=optimizer,\n"
        "                                      optim_state_dict=rank)\n"
    )


@pytest.mark.parametrize("name", ["scatter_full_optim_state_dict", "shard_full_optim_state_dict"])
@pytest.mark.parametrize(
    "loading", ["    optimizer.load_state_dict({})\n", "    s = {}\n    optimizer.load_state_dict(s)\n"]
)
def test_optimizer_that_the_result_is_loaded_into(name: str, loading: str) -> None:
    """Without one, the support module takes a single group of all parameters for granted."""
    result = rewrite(HEAD + loading.format(f"FSDP.{name}(saved, model)"))
    assert f"{name}(saved, model, optim=optimizer)" in result.text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_static_method_called_on_a_model() -> None:
    text = "    optimizer.load_state_dict(model.optim_state_dict_to_load(model, optimizer, saved))\n"
    result = rewrite(HEAD + text)
    assert result.text.endswith("    optimizer.load_state_dict(optim_state_dict_to_load(model, optimizer, saved))\n")
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_method_of_that_name_on_something_else_stays() -> None:
    text = "    return saved.optim_state_dict_to_load(model, optimizer, saved)\n"
    assert rewrite(HEAD + text).text.endswith(text)
