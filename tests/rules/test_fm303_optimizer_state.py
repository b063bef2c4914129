"""FM303: FSDP1's static methods that deal in an optimizer's state."""

from __future__ import annotations

import textwrap

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, code, meaning, rewrite

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


FULL_ON_RANK_0 = "options=StateDictOptions(full_state_dict=True, cpu_offload=True)"
LOADED = "options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)"


def changed(text: str) -> str:
    """What a body becomes, on one line."""
    return f"{textwrap.indent(meaning(body(text)), '    ')}\n"


NOOP = [
    "optimizer.load_state_dict(optim_state_dict_to_load(model, optimizer, saved))\n",
    "from other import FSDP\nFSDP.optim_state_dict(model, optimizer)\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


READS = [
    ("full_optim_state_dict(model, optimizer)", f"model, optimizer, {FULL_ON_RANK_0}"),
    ("full_optim_state_dict(model, optim=optimizer)", f"model, optimizers=optimizer, {FULL_ON_RANK_0}"),
    ("full_optim_state_dict(model, optimizer, model.parameters())", f"model, optimizer, {FULL_ON_RANK_0}"),
    ("sharded_optim_state_dict(model, optimizer)", "model, optimizer, options=StateDictOptions(cpu_offload=True)"),
    (
        "sharded_optim_state_dict(model, optimizer, group=dist.group.WORLD)",
        "model, optimizer, options=StateDictOptions(cpu_offload=True)",
    ),
]


@pytest.mark.parametrize(("before", "after"), READS, ids=[before for before, _ in READS])
def test_read(before: str, after: str) -> None:
    result = rewrite(HEAD + f"    return FSDP.{before}\n")
    assert f"    return get_optimizer_state_dict({after})\n" in f"{meaning(result.text)}\n"
    assert result.support == set()
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


ON_EVERY_RANK = [
    "full_optim_state_dict(model, optimizer, rank0_only=False)",
    "full_optim_state_dict(model, optimizer, model.parameters(), rank)",
    "optim_state_dict(model, optimizer)",
    "optim_state_dict(model, optimizer, optimizer.state_dict())",
]


@pytest.mark.parametrize("before", ON_EVERY_RANK)
def test_full_state_on_the_cpu_of_every_rank(before: str) -> None:
    """Torch's function gives it to the first rank only: as good where only that one looks at it."""
    only = (
        f"    state = FSDP.{before}\n    if rank == 0:\n        torch.save({{'optim': state}}, saved)\n    del state\n"
    )
    assert f"state = get_optimizer_state_dict(model, optimizer, {FULL_ON_RANK_0})\n" in changed(only)
    for elsewhere in ("if rank >= 0", "if local_rank == 0", "for _ in saved"):
        text = changed(only.replace("if rank == 0", elsewhere))
        assert "state = full_optim_state_dict(model, optimizer" in text, elsewhere


TO_LOAD = "optim_state_dict_to_load(model, optimizer, saved)"
HANDED_ON = [
    "scatter_full_optim_state_dict(saved, model, None, optimizer)",
    "shard_full_optim_state_dict(saved, model, optim=optimizer)",
    "flatten_sharded_optim_state_dict(saved, model, optimizer)",
    TO_LOAD,
    "optim_state_dict_to_load(model, optimizer, saved, load_directly=True)",
    "optim_state_dict_to_load(model=model, optim=optimizer, optim_state_dict=saved, group=None)",
]


@pytest.mark.parametrize("before", HANDED_ON)
def test_state_that_is_handed_on(before: str) -> None:
    result = rewrite(HEAD + f"    return FSDP.{before}\n")
    assert result.text.endswith(f"    model = fully_shard(net)\n    return {TO_LOAD}\n")
    assert result.support == {"optim_state_dict_to_load"}
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_other_keys() -> None:
    result = rewrite(HEAD + "    return FSDP.rekey_optim_state_dict(saved, rank, model)\n")
    assert result.text.endswith("    return rekey_optim_state_dict(saved, rank, model)\n")
    assert result.support == {"rekey_optim_state_dict"}


LOADS = [
    "optimizer.load_state_dict(FSDP.{})\n",
    "new = FSDP.{}\n    optimizer.load_state_dict(new)\n",
    "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n        new = FSDP.{}\n"
    "    optimizer.load_state_dict(new)\n",
]
MADE_READY = [
    "optim_state_dict_to_load(model, optimizer, saved)",
    "optim_state_dict_to_load(saved, model, optimizer)",
    "optim_state_dict_to_load(optim_state_dict=saved, optim=optimizer, model=model)",
    "shard_full_optim_state_dict(saved, model)",
]


@pytest.mark.parametrize("made_ready", MADE_READY)
@pytest.mark.parametrize("load", LOADS)
def test_load(load: str, made_ready: str) -> None:
    """One call for both: what torch's function sets need not be handed to the optimizer any more."""
    result = rewrite(HEAD + "    " + load.format(made_ready))
    assert f"{meaning(result.text)}\n".endswith(
        f"    model = fully_shard(net)\n    set_optimizer_state_dict(model, optimizer, saved, {LOADED})\n"
    )
    assert result.support == set()


def test_what_lets_go_of_the_loaded_state_goes_too() -> None:
    text = f"    new = FSDP.{MADE_READY[0]}\n    print(1)\n    optimizer.load_state_dict(new)\n    del new\n"
    assert changed(text) == f"    set_optimizer_state_dict(model, optimizer, saved, {LOADED})\n    print(1)\n"
    under_a_condition = text.replace("    del new\n", "    if rank:\n        del new\n")
    assert "        del new\n" in rewrite(HEAD + under_a_condition).text


def test_load_directly() -> None:
    text = "    FSDP.optim_state_dict_to_load(model, optimizer, saved, load_directly=True)\n"
    assert changed(text) == f"    set_optimizer_state_dict(model, optimizer, saved, {LOADED})\n"


def test_state_that_only_rank_0_has() -> None:
    """Torch tells the other ranks no setting that their optimizers do not have, such as a scheduler's."""
    text = "    state = torch.load(saved) if rank == 0 else None\n    optimizer.load_state_dict({})\n"
    scattered = text.format("FSDP.scatter_full_optim_state_dict(state, model)")
    assert body(scattered).endswith("    load_optimizer_state(model, optimizer, state)\n")
    config = "FullOptimStateDictConfig(rank0_only=True)"
    context = (
        f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, {config}):\n        state = 1\n"
    )
    loaded = context.replace("state = 1", MADE_READY[0].join(["optimizer.load_state_dict(FSDP.", ")"]))
    assert body(loaded).endswith("    load_optimizer_state(model, optimizer, saved)\n")
    assert LOADED in changed(scattered.replace(" if rank == 0 else None", ""))


def test_steps_that_flat_parameters_shared() -> None:
    text = HEAD.replace(", use_orig_params=True", "") + "    " + LOADS[0].format(MADE_READY[0])
    assert f"set_optimizer_state_dict(model, optimizer, with_own_steps(saved), {LOADED})" in meaning(rewrite(text).text)


ELSEWHERE = [
    "new = FSDP.{}\n    rank.load_state_dict(new)\n",
    "new = FSDP.{}\n    if rank:\n        optimizer.load_state_dict(new)\n",
    "return optimizer.load_state_dict(FSDP.{})\n",
]


@pytest.mark.parametrize("load", ELSEWHERE)
def test_state_that_does_not_go_straight_to_the_optimizer(load: str) -> None:
    assert MADE_READY[0] in body("    " + load.format(MADE_READY[0]))


LATER = [
    "new = FSDP.{}\n    optimizer.load_state_dict(new)\n    return new\n",
    "new = saved\n    if rank:\n        new = FSDP.{}\n    optimizer.load_state_dict(new)\n    return new\n",
    "new = saved\n    if rank:\n        new = FSDP.{}\n    print(rank)\n    optimizer.load_state_dict(new)\n",
    "new = FSDP.{}\n    del new[rank]\n    optimizer.load_state_dict(rank.fixed(new))\n",
]


@pytest.mark.parametrize("load", LATER)
def test_state_that_is_loaded_later(load: str) -> None:
    """The optimizer has it already: the program goes on with its own state dict."""
    result = rewrite(HEAD + "    " + load.format(MADE_READY[0]))
    indent = "        " if "        new" in load else "    "
    before, after = load.split("new = FSDP.{}\n")
    assert f"    {before}set_optimizer_state_dict(\n" in result.text
    assert result.text.endswith(f"{indent})\n{indent}new = optimizer.state_dict()\n{after}")
    assert result.support == set()


@pytest.mark.parametrize("more", ["", "        print(rank)\n"])
def test_load_below_an_if_is_for_the_other_way(more: str) -> None:
    load = "optimizer.load_state_dict(new)\n    del new, path\n"
    text = f"    new = saved\n    if rank:\n        new = FSDP.{MADE_READY[0]}\n{more}    {load}"
    written = f"        set_optimizer_state_dict(model, optimizer, saved, {LOADED})\n"
    assert changed(text) == f"    new = saved\n    if rank:\n{written}{more}    else:\n        {load}"


def test_what_stands_between_the_if_and_the_load() -> None:
    text = f"    new = saved\n    if rank:\n        new = FSDP.{MADE_READY[0]}\nGAP    optimizer.load_state_dict(new)\n"
    for gap, kept in (("\n\n", ""), ("\n    # go on\n", "\n    # go on\n"), ("    # on\n\n", "    # on\n")):
        written = rewrite(HEAD + text.replace("GAP", gap)).text
        assert written.endswith(f"        )\n{kept}    else:\n        optimizer.load_state_dict(new)\n")


def test_a_name_that_goes_is_let_go_of_no_more() -> None:
    text = "    new = FSDP.{}\n    optimizer.load_state_dict(new)\n    del saved, new, path\n"
    written = f"    set_optimizer_state_dict(model, optimizer, saved, {LOADED})\n"
    assert changed(text.format(MADE_READY[0])) == f"{written}    del saved, path\n"


def test_what_is_let_go_behind_a_block_is_no_use() -> None:
    text = f"    with saved:\n        new = FSDP.{MADE_READY[0]}\n        optimizer.load_state_dict(new)\n    del new\n"
    assert "optimizer.load_state_dict" not in changed(text)


def test_sharded_state() -> None:
    text = """\
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        new = FSDP.optim_state_dict_to_load(model, optimizer, saved)
    optimizer.load_state_dict(new)
"""
    after = "    set_optimizer_state_dict(model, optimizer, saved, options=StateDictOptions(strict=False))\n"
    assert changed(text) == after
    assert changed("    " + LOADS[0].format("flatten_sharded_optim_state_dict(saved, model, optimizer)")) == after


def test_optimizer_that_has_not_stepped() -> None:
    """Torch's function makes it take a step that counts, when it is read and when it is loaded without a state."""
    made = "    optimizer = torch.optim.AdamW(model.parameters())\n"
    read = "    state = FSDP.full_optim_state_dict(model, optimizer)\n"
    load = "    " + LOADS[0].format(MADE_READY[0])
    assert f"= read_optimizer_state(model, optimizer, {FULL_ON_RANK_0})" in changed(made + read)
    assert "optimizer.load_state_dict(optim_state_dict_to_load(" in body(made + read + load)
    for step in (
        "    optimizer.step()\n",
        "    rank.train(optimizer)\n",
        "    for x in saved:\n        rank.step(x)\n",
    ):
        assert "= get_optimizer_state_dict(" in body(made + step + read), step
        assert "set_optimizer_state_dict(" in body(made + step + read + load), step


@pytest.mark.parametrize(
    ("test", "may_be_first"),
    [
        ("if step % 10 == 0:", True),
        ("if not step % self.every:", True),
        ("if (step + 1) % 10 == 0:", False),
        ("if step and step % 10 == 0:", False),
        ("if True:", False),
    ],
)
@pytest.mark.parametrize("made", ["", "    saver = Saver(model, optimizer)\n"])
def test_state_that_the_first_turn_of_a_loop_reads(test: str, may_be_first: bool, made: str) -> None:
    """Above the step of the same turn; an object that is only made of the optimizer does not step it."""
    text = f"    optimizer = torch.optim.AdamW(model.parameters())\n{made}    for step in range(9):\n        {test}\n"
    text += "            state = FSDP.full_optim_state_dict(model, optimizer)\n        optimizer.step()\n"
    text += "\n\nclass Saver:\n    def __init__(self, model, optimizer):\n        self.optimizer = optimizer\n"
    assert ("state = read_optimizer_state(" in body(text)) is may_be_first


@pytest.mark.parametrize(("steps", "may_be_first"), [("other", True), ("optimizer", False)])
def test_the_step_of_another_optimizer_is_not_its_own(steps: str, may_be_first: bool) -> None:
    made = (
        "    optimizer = torch.optim.AdamW(model.parameters())\n    other = torch.optim.SGD(model.head.parameters())\n"
    )
    text = f"{made}    {steps}.step()\n    state = FSDP.full_optim_state_dict(model, optimizer)\n"
    assert ("state = read_optimizer_state(" in body(text)) is may_be_first


def test_optimizer_without_a_state() -> None:
    load = "    " + LOADS[0].format(MADE_READY[0])
    plain = "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    assert "optim_state_dict_to_load(" in body(plain + load)
    assert "set_optimizer_state_dict(" in body(plain.replace("lr=", "momentum=0.9, lr=") + load)


def test_evaluation_before() -> None:
    """It leaves other parameters in the model than those that the optimizer has, until the model's state is read."""
    evaluated = "    with torch.no_grad():\n        model(rank)\n"
    read = "    state = FSDP.full_optim_state_dict(model, optimizer)\n"
    assert "    model.reshard()\n    state = get_optimizer_state_dict(" in body(evaluated + read)
    state = "    other = model.state_dict()\n"
    assert "reshard" not in body(evaluated + state + read)
    assert "    model.reshard()\n    state = get_optimizer_state_dict(" in body(evaluated + state + evaluated + read)
    load = "    " + LOADS[0].format(MADE_READY[0])
    assert "    model.reshard()\n    set_optimizer_state_dict(" in body(evaluated + load)


def test_compiled_model_keeps_its_names() -> None:
    """Torch's functions take `_orig_mod.` out of the names, which FSDP1 left there."""
    text = "    model = torch.compile(model)\n    return FSDP.full_optim_state_dict(model, optimizer)\n"
    read = f"get_optimizer_state_dict(model, optimizer, {FULL_ON_RANK_0})"
    assert f"return with_compiled_names(model, {read})" in changed(text)
    chosen = text.replace("    return FSDP.full_", "    FSDP.set_state_dict_type(model, rank)\n    return FSDP.")
    assert "return with_compiled_names(model, optim_state_dict(model, optimizer))" in changed(chosen)
    every = text.replace("optimizer)", "optimizer, rank0_only=False)")
    assert "return with_compiled_names(model, full_optim_state_dict(model, optimizer))" in changed(every)
    load = f"    model = torch.compile(model)\n    optimizer.load_state_dict(FSDP.{TO_LOAD})\n"
    assert f"set_optimizer_state_dict(model, optimizer, without_compiled_names(saved), {LOADED})" in changed(load)


@pytest.mark.parametrize("last", ["saved", "saved['optim']", "torch.load(saved)"])
def test_order_before_torch_2_1(last: str) -> None:
    text = body(f"    return FSDP.optim_state_dict_to_load({last}, model, optimizer)\n")
    assert text == f"    return optim_state_dict_to_load(model, optimizer, {last})\n"


def test_order_told_by_the_optimizer() -> None:
    """A model whose units alone are wrapped, or a DDP one, is told by what it is not."""
    lines = "    ddp_model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\n"
    lines += "    optimizer = torch.optim.AdamW(model.parameters())\n"
    lines += "    osd = FSDP.optim_state_dict_to_load({}, {}, {})\n    optimizer.load_state_dict(osd)\n"
    for order in (("saved", "ddp_model", "optimizer"), ("ddp_model", "optimizer", "saved")):
        loaded = f"set_optimizer_state_dict(ddp_model, optimizer, with_own_steps(saved), {LOADED})"
        assert loaded in changed(lines.format(*order))


def test_what_is_said_of_an_argument_stays_with_it() -> None:
    text = body(
        "    if rank:\n        # state\n        o = FSDP.optim_state_dict_to_load(\n            model,  # the root\n"
        "            optimizer,\n            saved,  # by all ranks\n        )\n        optimizer.load_state_dict(o)\n"
    )
    loaded = f"model,  # the root\n            optimizer,\n            saved,  # by all ranks\n            {LOADED},\n"
    assert f"        # state\n        set_optimizer_state_dict(\n            {loaded}        )\n" in text


def test_order_that_goes_by_the_version_of_torch() -> None:
    text = body(
        "    if torch.__version__ < '2.1':\n        o = FSDP.optim_state_dict_to_load(saved, model, optimizer)\n"
        "    else:\n        o = FSDP.optim_state_dict_to_load(model, optimizer, saved)\n    return o\n"
    )
    assert text == "    o = optim_state_dict_to_load(model, optimizer, saved)\n    return o\n"


CONTEXTS = [
    ("StateDictType.FULL_STATE_DICT", "full_optim_state_dict(model, optimizer)"),
    (
        "StateDictType.FULL_STATE_DICT, None, FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)",
        f"get_optimizer_state_dict(model, optimizer, {FULL_ON_RANK_0})",
    ),
    (
        "StateDictType.FULL_STATE_DICT, optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=False)",
        "get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))",
    ),
    (
        "StateDictType.SHARDED_STATE_DICT",
        "get_optimizer_state_dict(model, optimizer, options=StateDictOptions(cpu_offload=True))",
    ),
    (
        "StateDictType.SHARDED_STATE_DICT, None, ShardedOptimStateDictConfig(offload_to_cpu=False)",
        "get_optimizer_state_dict(model, optimizer)",
    ),
]


@pytest.mark.parametrize(("settings", "after"), CONTEXTS)
def test_context_says_what_is_read(settings: str, after: str) -> None:
    text = body(
        f"    with FSDP.state_dict_type(model, {settings}):\n        s = FSDP.optim_state_dict(model, optimizer)\n"
    )
    options = text.split("options = ")[1].split("\n")[0] if "    options = " in text else ""
    assert text.replace(f"    options = {options}\n", "").replace("=options", f"={options}") == f"    s = {after}\n"


def test_options_that_the_model_and_the_optimizer_share() -> None:
    config = "FullStateDictConfig(True, True), FullOptimStateDictConfig(True, True)"
    text = f"""\
    from torch.distributed.fsdp import FullStateDictConfig
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {config}):
        m = model.state_dict()
        o = FSDP.optim_state_dict(model, optimizer)
    return m, o
"""
    after = """\
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    m = get_model_state_dict(model, options=options)
    o = get_optimizer_state_dict(model, optimizer, options=options)
    return m, o
"""
    assert body(text).endswith(after)


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
    )
    o = optim_state_dict_to_load(model, optimizer, saved["a"])
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
        ("optim_state_dict(model, optimizer, group=group)", "full_optim_state_dict(model, optimizer)"),
        (
            "optim_state_dict(model, optimizer, group=model.process_group)",
            "full_optim_state_dict(model, optimizer)",
        ),
        (
            "sharded_optim_state_dict(model, optimizer, group=group)",
            "get_optimizer_state_dict(model, optimizer, options=StateDictOptions(cpu_offload=True))",
        ),
        (
            "full_optim_state_dict(model, optimizer, group=everyone)",
            "full_optim_state_dict(model, optimizer, rank0_only=True)",
        ),
        (
            "full_optim_state_dict(model, optimizer, group=group)",
            "full_optim_state_dict(model, optimizer, rank0_only=True)",
        ),
    ],
)
def test_group_of_the_model(call: str, after: str) -> None:
    """Each rank reads over the mesh of the model, and the default group is what is taken without one."""
    result = rewrite(GROUP.format(call=call))
    assert result.text.endswith(f"{after}\n")
    assert "FM303" not in {f.rule for f in result.findings if f.level is not Level.REWRITTEN}


@pytest.mark.parametrize("call", ["optim_state_dict_to_load", "shard_full_optim_state_dict"])
def test_state_that_each_rank_of_a_group_of_its_own_has(call: str) -> None:
    """Each group goes on with its own: nothing comes from the first of all ranks."""
    made = "model, optimizer, saved" if call == "optim_state_dict_to_load" else "saved, model, optim=optimizer"
    text = GROUP.format(call=f"{call}({made})").replace("return FSDP", "state = FSDP")
    text = text.replace("group):", "group, torch, path):\n    saved = torch.load(path)['optimizer']")
    result = rewrite(text + "    optimizer.load_state_dict(state)\n")
    after = "options=StateDictOptions(full_state_dict=True, strict=False)"
    assert meaning(result.text).endswith(f"    set_optimizer_state_dict(model, optimizer, saved, {after})")
    assert {finding.level for finding in result.findings if finding.rule == "FM303"} == {Level.REWRITTEN}


@pytest.mark.parametrize(
    "load",
    [
        "optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(saved, model, optim=optimizer))",
        "return FSDP.optim_state_dict_to_load(model, optimizer, saved)",
    ],
)
def test_state_that_the_first_rank_would_give_to_every_group(load: str) -> None:
    text = GROUP.format(call="optim_state_dict(model, optimizer)")
    text = text[: text.index("    return")].replace("group):", "group, saved):") + f"    {load}\n"
    check_marked(text, "FM303", Level.MANUAL, "a process group of its own")


@pytest.mark.parametrize("group", ["", ", group=group"])
def test_state_to_load_into_a_model_with_a_group_of_its_own(group: str) -> None:
    """The first of all ranks would give every group the values of its own."""
    check_marked(
        GROUP.format(call=f"optim_state_dict_to_load(model, optimizer, optimizer.saved{group})"),
        "FM303",
        Level.MANUAL,
        "a process group of its own",
    )


def test_mesh_of_all_ranks_that_a_library_makes() -> None:
    text = GROUP.format(call="optim_state_dict_to_load(model, optimizer, optimizer.saved)")
    text = text.replace("process_group=group", "device_mesh=hsdp_device_mesh(2, 2)")
    text = "\nfrom llama_recipes.utils.fsdp_utils import hsdp_device_mesh" + text
    assert "return optim_state_dict_to_load(model, optimizer, optimizer.saved)\n" in rewrite(text).text


LEFT = [
    ("FSDP.optim_state_dict(*saved)", "not followed"),
    ("FSDP.optim_state_dict(model, optimizer, saved)", "its optim_state_dict is `saved`"),
    ("FSDP.optim_state_dict_to_load(model, optimizer, saved, is_named_optimizer=True)", "is_named_optimizer"),
    ("FSDP.optim_state_dict_to_load(saved, rank, optimizer)", "which of its arguments is the model"),
    ("FSDP.scatter_full_optim_state_dict(saved, model, rank)", "its optim_input is `rank`"),
    ("FSDP.scatter_full_optim_state_dict(saved, model)", "which optimizer loads it"),
    ("FSDP.full_optim_state_dict(optim=optimizer, *saved)", "not followed"),
]


@pytest.mark.parametrize(("text", "words"), LEFT)
def test_what_needs_a_person(text: str, words: str) -> None:
    result = check_marked(HEAD + f"    return {text}\n", "FM303", Level.MANUAL, words)
    assert text in result.text


def test_context_of_another_model_needs_a_person() -> None:
    text = HEAD + "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
    check_marked(text + "        FSDP.optim_state_dict(rank.model, optimizer)\n", "FM303", Level.MANUAL, "for `model`")


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
    loaded = optim_state_dict_to_load(model, optimizer, rank)
    full = full_optim_state_dict(model, optimizer)
    return rekey_optim_state_dict(
        loaded,
        full,
        model,
    )
"""
    )
    inside = "".join(f"    {line}\n" for line in ALIGNED.splitlines()[:3])
    context = "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
    text = rewrite(f"{HEAD}{context}{inside}    return loaded\n").text
    assert text.endswith("    loaded = optim_state_dict_to_load(model, optimizer, rank)\n    return loaded\n")


def test_static_method_called_on_a_model() -> None:
    text = "    optimizer.load_state_dict(model.optim_state_dict_to_load(model, optimizer, saved))\n"
    result = rewrite(HEAD + text)
    assert f"{meaning(result.text)}\n".endswith(f"    set_optimizer_state_dict(model, optimizer, saved, {LOADED})\n")
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_method_of_that_name_on_something_else_stays() -> None:
    text = "    return saved.optim_state_dict_to_load(model, optimizer, saved)\n"
    assert rewrite(HEAD + text).text.endswith(text)


def test_result_that_nothing_uses() -> None:
    """A mistake that a recipe of torch's spread: the state is made ready, and never given to the optimizer."""
    text = (
        "    full = torch.load(saved)\n    sharded = FSDP.scatter_full_optim_state_dict(full, model)\n    print(rank)\n"
    )
    result = rewrite(HEAD + text)
    written = f"    set_optimizer_state_dict(model, optimizer, full, {LOADED})\n"
    assert changed(text) == f"    full = torch.load(saved)\n{written}    print(rank)\n"
    (found,) = [f for f in result.findings if f.level is Level.REVIEW]
    assert "never loaded" in found.message
    used = HEAD + text.replace("print(rank)", "return sharded")
    check_marked(used, "FM303", Level.MANUAL, "which optimizer loads it")


def test_result_that_nothing_uses_where_no_optimizer_is_at_hand() -> None:
    """FSDP1 went on with a fresh optimizer: so does the program, and is told."""
    text = HEAD.replace("optimizer, ", "optimizer_path, ") + (
        "    full = torch.load(saved)\n    sharded = FSDP.scatter_full_optim_state_dict(full, model)\n    print(rank)\n"
    )
    result = rewrite(text)
    (found,) = [f for f in result.findings if f.rule == "FM303"]
    assert found.level is Level.REVIEW
    assert "never loaded" in found.message
    assert result.text.endswith("saved, rank):\n    fully_shard(net)\n    print(rank)\n")


@pytest.mark.parametrize(
    "call", ["FSDP.optim_state_dict(model, optimizer)", "FSDP.full_optim_state_dict(model, optimizer)"]
)
@pytest.mark.parametrize("made", ["    optimizer = Shell(torch.optim.SGD(net.parameters()))\n", ""])
def test_an_object_around_an_optimizer_needs_a_person(call: str, made: str) -> None:
    text = (
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "class Shell:\n    def __init__(self, optim):\n        self.optim = optim\n\n\n"
        f"def use(net, optimizer: Shell):\n    model = FSDP(net)\n{made}    return {call}\n"
    )
    found = [f for f in rewrite(text).findings if f.rule == "FM303"]
    assert [f.level for f in found] == [Level.MANUAL]
    assert "torch.optim.Optimizer" in found[0].message


TURNS = """\
def load(model, optimizer, saved):
    ready = FSDP.optim_state_dict_to_load(model, optimizer, saved)
    optimizer.load_state_dict(ready)


def resume(net, optimizer, saved, get_local_rank, world):
    model = FSDP(net, use_orig_params=True)
    for turn in range(world):
        if {test}:
            load(model, optimizer, saved)
        dist.barrier()
"""


def test_ranks_that_load_in_turns_would_wait_for_each_other() -> None:
    """FSDP1 flattened what each rank had read; torch's function broadcasts it."""
    text = HEAD.partition("def use")[0] + TURNS.format(test="turn == get_local_rank()")
    found = [finding for finding in rewrite(text).findings if finding.level is Level.MANUAL]
    assert [(finding.rule, "one after the other" in finding.message) for finding in found] == [("FM303", True)]


def test_a_loop_that_is_about_no_ranks_has_no_turns() -> None:
    text = HEAD.partition("def use")[0] + TURNS.format(test="turn == world - 1")
    assert "set_optimizer_state_dict(" in rewrite(text).text


def test_arguments_aligned_with_the_bracket() -> None:
    """Another name moves the bracket: what is put behind them stands on their last line."""
    settings = "FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)"
    head = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, {settings}):\n        "
    for before, function in ((head, "optim_state_dict"), ("    ", "full_optim_state_dict")):
        first = f"{before}state = FSDP.{function}("
        margin = " " * len(first.split("\n")[-1])
        *_, line, last = body(f"{first}model,\n{margin}optimizer)\n").splitlines()
        assert last.startswith(" " * line.index("model") + "optimizer, options=")


def test_own_state_made_for_the_call_alone() -> None:
    """What the optimizer's own state dict was asked for goes with the argument; else it stays."""
    text = "    own = optimizer.state_dict()\n"
    text += "    state = FSDP.optim_state_dict(model, optimizer, optim_state_dict=own)\n"
    assert "own" not in body(text)
    assert "own = optimizer.state_dict()" in body(f"{text}    print(own)\n")
    assert "own = changed(optimizer)" in body(text.replace("optimizer.state_dict()", "changed(optimizer)"))


def test_an_optimizer_of_a_loop_over_models_and_optimizers_is_no_model() -> None:
    """Its own rule takes the call; FSDP1's was left in a branch for modules."""
    text = """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        def setup(net):
            return FSDP(net)


        class Wrapped(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner


        def unwrap(x):
            return x.inner if isinstance(x, Wrapped) else x


        def load(path, state):
            model = unwrap(next(v for v in state.values() if isinstance(unwrap(v), FSDP)))
            saved = torch.load(path)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                for k, v in state.items():
                    v = unwrap(v)
                    if isinstance(v, torch.nn.Module):
                        v.load_state_dict(saved[k])
                    elif isinstance(v, torch.optim.Optimizer):
                        v.load_state_dict(FSDP.optim_state_dict_to_load(model, v, saved[k]))


        def train(net, path):
            model = Wrapped(setup(net))
            load(path, {"model": model, "optimizer": torch.optim.SGD(model.parameters())})
    """
    result = rewrite(code(text))
    assert "FSDP." not in result.text
    assert result.text.count("isinstance(v, ") == 2


READ_ALONE = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, optimizer, rank, path):
    model = FSDP(net)
    if rank != 0:
        return
    path.save(FSDP.full_optim_state_dict(model, optimizer))
"""


def test_a_state_that_one_rank_reads_alone() -> None:
    """It was said to be done, and `check` said that it hangs (CasCoD); so it did under FSDP1."""
    check_marked(READ_ALONE, "FM303", Level.MANUAL, "one rank alone reads there")
    sharded = rewrite(READ_ALONE.replace("full_optim", "sharded_optim"))
    assert {level for code, level, _ in sharded.summary if code == "FM303"} == {"rewritten"}
