"""FM301: `with FSDP.state_dict_type(...)`."""

from __future__ import annotations

import textwrap

import pytest

from codemods.api import Level
from fsdp_migrate.pipeline import Options

from ..helpers import check_marked, check_noop, code, flat, meaning, rewrite, rewrite_files, run_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, ShardedStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, optimizer, path, rank):
    model = FSDP(net)
"""
FULL = "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)"


def body(text: str) -> str:
    return rewrite(HEAD + text).text.split("    model = fully_shard(net)\n")[1]


NOOP = [
    "with model.state_dict_type(model, FULL):\n    pass\n",
    "from torch.distributed.checkpoint.state_dict import get_model_state_dict\nget_model_state_dict(model)\n",
    "from other import FSDP\nwith FSDP.state_dict_type(model):\n    model.state_dict()\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


CONFIGS = [
    pytest.param("", "full_state_dict=True", id="no config"),
    pytest.param(", None", "full_state_dict=True", id="None"),
    pytest.param(", FullStateDictConfig()", "full_state_dict=True", id="default config"),
    pytest.param(
        ", FullStateDictConfig(offload_to_cpu=True, rank0_only=True)",
        "full_state_dict=True, cpu_offload=True",
        id="CPU of rank 0",
    ),
    pytest.param(", FullStateDictConfig(True, True)", "full_state_dict=True, cpu_offload=True", id="by position"),
    pytest.param(
        ", FullStateDictConfig(offload_to_cpu=rank, rank0_only=True)",
        "full_state_dict=True, cpu_offload=rank",
        id="offloading known at run time",
    ),
]


@pytest.mark.parametrize(("config", "options"), CONFIGS)
def test_reading_a_full_state_dict(config: str, options: str) -> None:
    head = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT{config}):\n"
    text = body(head + "        s = model.state_dict()\n")
    inline = f"    s = get_model_state_dict(model, options=StateDictOptions({options}))\n"
    named = f"    options = StateDictOptions({options})\n    s = get_model_state_dict(model, options=options)\n"
    assert text in {inline, named}


THROUGH_SUPPORT = [
    pytest.param("state_dict_config=FullStateDictConfig(rank0_only=True)", "rank0_only=True", id="device of rank 0"),
    pytest.param("FullStateDictConfig(offload_to_cpu=True)", "offload_to_cpu=True", id="CPU of every rank"),
    pytest.param("FullStateDictConfig(rank, path)", "offload_to_cpu=rank, rank0_only=path", id="known at run time"),
]


@pytest.mark.parametrize(("config", "arguments"), THROUGH_SUPPORT)
def test_what_no_options_give_comes_from_the_support_module(config: str, arguments: str) -> None:
    head = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {config}):\n"
    result = rewrite(HEAD + head + "        s = model.state_dict()\n")
    assert result.text.endswith(f"    s = full_state_dict(model, {arguments})\n")
    assert {f.level for f in result.findings if f.rule != "FM100"} == {Level.REWRITTEN}


def test_config_that_is_made_of_local_values_elsewhere() -> None:
    head = HEAD.replace("def use", "def config(cpu):\n    return FullStateDictConfig(cpu, True)\n\n\ndef use")
    inside = "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config(rank)):\n"
    result = rewrite(head + inside + "        s = model.state_dict()\n")
    assert "    with state_dict_type(model, StateDictType.FULL_STATE_DICT, config(rank)):\n" in result.text


ELSE = "if rank != 0:\n        print(rank)\n    else:\n     with {}:"


@pytest.mark.parametrize("head", ["if rank != 0:\n        return\n    with {}:", "if rank == 0:\n     with {}:", ELSE])
@pytest.mark.parametrize(("kind", "level"), [("FULL", Level.MANUAL), ("SHARDED", Level.REWRITTEN)])
def test_one_rank_alone_that_gathers_waits_for_the_others(head: str, kind: str, level: Level) -> None:
    context = head.format(FULL.replace("FULL", kind))
    text = HEAD + f"    {context}\n        state = model.state_dict()\n"
    result = run_files({"train.py": text}, None)  # the gate says so of the result too
    assert {finding.level for finding in result.findings if finding.rule == "FM301"} == {level}


def test_ranks_that_leave_behind_the_read_have_read() -> None:
    for put, filled in (("state", ""), ("state['model']", "    state = {}\n    state.update(x)\n")):
        read = f"    with {FULL}:\n        {put} = model.state_dict()\n"
        result = rewrite(f"{HEAD}{filled}{read}    if rank > 0:\n        return\n    torch.save(state, path)\n")
        assert {finding.level for finding in result.findings if finding.rule == "FM301"} == {Level.REWRITTEN}
        assert "get_model_state_dict(" in result.text


def test_sharded_state_dict_needs_no_options() -> None:
    head = "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig()):\n"
    inside = "        s = {'model': model.state_dict()}\n        model.load_state_dict(s['model'])\n"
    assert body(head + inside) == (
        "    s = {'model': get_model_state_dict(model)}\n    set_model_state_dict(model, s['model'])\n"
    )


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ("torch.save({'model': model.state_dict()}, path)", True),
        ("model.load_state_dict(shard)", True),
        ("torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id=path)", False),
    ],
)
def test_files_of_single_ranks_do_not_load(use: str, told: bool) -> None:
    """FSDP1 saved ShardedTensors, for which torch's function raises (torch 2.13)."""
    context = "FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)"
    kept = "FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)"
    for setting in (f"with {context}:\n        {use}", f"{kept}\n    {use}"):
        text = f"{HEAD}    shard = torch.load(path)['model']\n    {setting}\n"
        found = [each for each in rewrite(text).findings if each.rule == "FM301"]
        assert [each.level is Level.REVIEW and "ShardedTensors" in each.message for each in found] == [told]


def test_sharded_state_dict_on_the_cpu() -> None:
    configs = "ShardedStateDictConfig(offload_to_cpu=True)"
    head = f"    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, {configs}):\n"
    text = body(head + "        s = model.state_dict()\n        model.load_state_dict(s)\n")
    options = "options=StateDictOptions(cpu_offload=True)"
    assert text == f"    s = get_model_state_dict(model, {options})\n    set_model_state_dict(model, s)\n"


def test_calls_share_the_options() -> None:
    configs = "FullStateDictConfig(True, True), FullOptimStateDictConfig(True, True)"
    head = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {configs}):\n"
    inside = "        s = model.state_dict()\n        t = model.state_dict()\n"
    assert meaning(body(head + inside)) == meaning(
        """
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        s = get_model_state_dict(model, options=options)
        t = get_model_state_dict(model, options=options)
        """
    )


WALKS = [
    pytest.param("for m in model.modules():", id="its modules"),
    pytest.param("for _, m in model.named_children():", id="by their names"),
    pytest.param("for m in (m for part in model.blocks for m in part.modules()):", id="out of a generator"),
]


@pytest.mark.parametrize("walk", WALKS)
def test_units_of_the_model_are_read_as_the_context_says(walk: str) -> None:
    text = f"""
        def save(model):
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
                {walk}
                    if isinstance(m, FSDP):
                        torch.save(m.state_dict(), m.path)
        """
    result = rewrite(HEAD + code(text))
    assert "torch.save(full_state_dict(m, offload_to_cpu=True, rank0_only=True), m.path)" in result.text


def test_units_of_another_model_are_not() -> None:
    text = """
        def save(net, other):
            model, other = FSDP(net), FSDP(other)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
                for m in other.modules():
                    if isinstance(m, FSDP):
                        torch.save(m.state_dict(), m.path)
        """
    assert "(m, options=StateDictOptions(full_state_dict=True))" in rewrite(HEAD + code(text)).text


def test_contexts_one_after_the_other_share_the_options() -> None:
    pair = "        s = model.state_dict(), model.state_dict()\n"
    text = body(f"    with {FULL}:\n{pair}    print(s)\n    with {FULL}:\n{pair}    return s\n")
    read = "get_model_state_dict(model, options=options)"
    assert text == (
        f"    options = StateDictOptions(full_state_dict=True)\n    s = {read}, {read}\n    print(s)\n"
        f"    s = {read}, {read}\n    return s\n"
    )


def test_other_options_get_the_name_anew() -> None:
    loads = "        model.load_state_dict(path)\n        model.load_state_dict(rank)\n"
    reads = "        s = model.state_dict(), model.state_dict()\n"
    text = body(f"    with {FULL}:\n{reads}    with {FULL}:\n{loads}    with {FULL}:\n{reads}")
    assert text.count("    options = StateDictOptions(") == 3


def test_name_options_is_taken() -> None:
    head = HEAD.replace("rank)", "options)")
    inside = f"    with {FULL}:\n        s = model.state_dict(), model.state_dict(), options\n"
    text = rewrite(head + inside).text
    assert "    state_dict_options = StateDictOptions(full_state_dict=True)\n" in text
    assert "options=state_dict_options), options" in flat(text)


def test_settings_that_one_place_makes() -> None:
    """An attribute or a parameter is as good as a literal, where all that can be in it is seen."""
    kept = (
        "    rank = StateDictType.FULL_STATE_DICT\n    on = True\n    made = FullStateDictConfig(on, rank0_only=on)\n"
    )
    text = body(kept + "    with FSDP.state_dict_type(model, rank, made):\n        return model.state_dict()\n")
    assert "return get_model_state_dict(model, options=" in text
    assert "StateDictOptions(full_state_dict=True, cpu_offload=True)" in text


def test_loading() -> None:
    inside = code(
        """
            saved = torch.load(path)
            model.load_state_dict(saved["model"])
            loaded = FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"])
            optimizer.load_state_dict(loaded)
        """
    )
    text = body(f"    with {FULL}:\n" + "".join(f"        {line}\n" for line in inside.splitlines()))
    assert meaning(text) == meaning(
        """
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        saved = torch.load(path)
        set_model_state_dict(model, saved["model"], options=options)
        set_optimizer_state_dict(
            model,
            optimizer,
            with_own_steps(saved["optimizer"]),
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False),
        )
        """
    )


BROADCAST = "full_state_dict=True, broadcast_from_rank0=True"
LENIENT = [
    (
        "FULL",
        "model.load_state_dict(path, strict=False)",
        f"{BROADCAST}, strict=False",
    ),
    ("FULL", "model.load_state_dict(path, False)", f"{BROADCAST}, strict=False"),
    (
        "FULL",
        "model.load_state_dict(path, strict=rank)",
        f"{BROADCAST}, strict=rank",
    ),
    ("FULL", "model.load_state_dict(path, strict=True)", BROADCAST),
    ("SHARDED", "model.load_state_dict(path, strict=False)", "strict=False"),
]


@pytest.mark.parametrize(("kind", "call", "options"), LENIENT)
def test_loading_what_does_not_fit(kind: str, call: str, options: str) -> None:
    text = body(f"    with FSDP.state_dict_type(model, StateDictType.{kind}_STATE_DICT):\n        {call}\n")
    named = f"options = StateDictOptions({options})\nset_model_state_dict(model, path, options=options)"
    inline = f"set_model_state_dict(model, path, options=StateDictOptions({options}))"
    assert meaning(text) in {named, inline}


def test_keys_that_do_not_fit_are_asked_for() -> None:
    text = body(f"    with {FULL}:\n        missing = model.load_state_dict(path, strict=False)\n")
    assert text == "    missing = load_full_state_dict(model, path, strict=False)\n"


BODIES = [
    pytest.param(
        """
        |    with CONTEXT:
        |        # gather
        |        if rank:
        |            s = model.state_dict()
        |        else:
        |            s = None
        |
        |        for _ in s:
        |            with open(path) as file:
        |                # inner
        |                file.read()
        |    return s
        """,
        """
        |    # gather
        |    if rank:
        |        s = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        |    else:
        |        s = None
        |
        |    for _ in s:
        |        with open(path) as file:
        |            # inner
        |            file.read()
        |    return s
        """,
        id="blocks and comments",
    ),
    pytest.param(
        '''
        |    with CONTEXT:
        |        s = """
        |          keep
        |  this
        |        """, model.state_dict()
        |    return s
        ''',
        '''
        |    s = """
        |          keep
        |  this
        |        """, get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        |    return s
        ''',
        id="string over several lines",
    ),
    pytest.param(
        '''
        |    with CONTEXT:
        |        s = f"""
        |          {rank
        |  }
        |        """ + str(model.state_dict())
        |    return s
        ''',
        '''
        |    s = f"""
        |          {rank
        |  }
        |        """ + str(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)))
        |    return s
        ''',
        id="f-string over several lines",
    ),
    pytest.param(
        """
        |    with torch.no_grad():
        |        with CONTEXT:
        |            with open(path) as file:
        |                torch.save(model.state_dict(), file)
        """,
        """
        |    with torch.no_grad():
        |        with open(path) as file:
        |            torch.save(
        |                get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), file
        |            )
        """,
        id="nested with",
    ),
    pytest.param(
        """
        |    if rank:
        |        with CONTEXT:
        |            s = model.state_dict()
        |    elif path:
        |        with CONTEXT:
        |            pass
        |    else:
        |        s = None
        """,
        """
        |    if rank:
        |        s = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        |    elif path:
        |        pass
        |    else:
        |        s = None
        """,
        id="the only statement of a branch",
    ),
    pytest.param(
        """
        |    with CONTEXT:
        |        return {k: v.cpu() for k, v in model.state_dict().items()}
        """,
        """
        |    options = StateDictOptions(full_state_dict=True)
        |    return {k: v.cpu() for k, v in get_model_state_dict(model, options=options).items()}
        """,
        id="return from inside",
    ),
]


@pytest.mark.parametrize(("before", "after"), BODIES)
def test_body_is_taken_one_level_out(before: str, after: str) -> None:
    lines = code(before).replace("|", "").replace("CONTEXT", FULL)
    assert body(lines) == code(after).replace("|", "")


@pytest.mark.parametrize("place", ["top", "function"])
def test_config_in_a_name_goes_with_it(place: str) -> None:
    line = "config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n"
    top, local = (line, "") if place == "top" else ("", "    " + line)
    head = HEAD.replace("\n\n\ndef", f"\n\n{top}\n\ndef")
    with_config = FULL.replace("DICT)", "DICT, config)")
    result = rewrite(head + local + f"    with {with_config}:\n        s = model.state_dict()\n    return s\n")
    assert "FullStateDictConfig" not in result.text
    assert "config =" not in result.text
    assert "cpu_offload=True" in result.text


COMMENTS = [
    pytest.param("x = 1\n\n\n# made once\nCONFIG\n\n\ny = 2\n", "x = 1\n\n\ny = 2\n", id="goes too"),
    pytest.param("x = 1\n\n# made once\n# for all\nCONFIG\n\ny = 2\n", "x = 1\n\ny = 2\n", id="two lines"),
    pytest.param("# settings\nCONFIG\ny = 2\n", "# settings\ny = 2\n", id="of what follows too"),
    pytest.param("# settings\n\nCONFIG\n\ny = 2\n", "# settings\n\ny = 2\n", id="of a section"),
    pytest.param("x = 1\nCONFIG\n\ny = 2\n", "x = 1\n\ny = 2\n", id="none"),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("above", "left"), COMMENTS)
def test_comment_of_a_config_goes_with_it(above: str, left: str, newline: str) -> None:
    config = "config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)"
    head = HEAD.replace("\n\n\ndef", "\n\n\n" + above.replace("CONFIG", config) + "\n\ndef")
    inside = f"    with {FULL.replace('DICT)', 'DICT, config)')}:\n        s = model.state_dict()\n    return s\n"
    text = rewrite((head + inside).replace("\n", newline)).text
    assert left.replace("\n", newline) + f"{newline}{newline}def use" in text
    assert "made once" not in text


def test_model_in_an_attribute() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)

            def save(self):
                with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):
                    return self.model.state_dict()
        """
    )
    wanted = "        return get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True))\n"
    assert rewrite(text).text.endswith(f"    def save(self):\n{wanted}")


@pytest.mark.parametrize("items", ["torch.no_grad(), {}", "{}, torch.no_grad()"])
def test_the_context_beside_it_stays(items: str) -> None:
    block = f"with {items.format(FULL)}:\n        return model.state_dict()"
    text = rewrite(f"{HEAD}    {block}\n").text
    wanted = "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
    assert text.endswith(f"    with torch.no_grad():\n        return {wanted}\n")


AT_RUN_TIME = [
    pytest.param(f"with {FULL} as context:\n        model.state_dict()", id="as"),
    pytest.param(f"with path, {FULL}:\n        model.state_dict()", id="a, b"),
    pytest.param(f"with {FULL}: model.state_dict()", id="one line"),
    pytest.param(f"context = {FULL}\n    return context", id="kept for later"),
    pytest.param(f"with {FULL} if rank else path:\n        model.state_dict()", id="conditional expression"),
    pytest.param("with FSDP.state_dict_type(model, StateDictType[path]):\n        model.state_dict()", id="by name"),
    pytest.param("with FSDP.state_dict_type(*path):\n        model.state_dict()", id="star"),
    pytest.param(
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, path):\n        model.state_dict()",
        id="config that run time makes",
    ),
    pytest.param(f"with {FULL}:\n        model.state_dict(prefix='m.')", id="prefix of the keys"),
    pytest.param("FSDP.set_state_dict_type(model, path)\n    return model.state_dict()", id="settings for good"),
    pytest.param("return FSDP.get_state_dict_type(model)", id="asking for the settings"),
]


@pytest.mark.parametrize("statement", AT_RUN_TIME)
def test_what_is_not_seen_in_one_place_is_decided_at_run_time(statement: str) -> None:
    result = rewrite(HEAD + f"    {statement}\n")
    after = (
        statement.replace("FSDP.", "")
        .replace("model.state_dict(", "model_state_dict(model")
        .replace("model_state_dict(modelp", "state_dict_of(model, p")
    )
    assert f"    model = fully_shard(net)\n    {after}\n" in result.text
    assert {f.level for f in result.findings if f.rule != "FM100"} == {Level.REWRITTEN}
    assert result.support & {"state_dict_type", "set_state_dict_type", "get_state_dict_type"}


IN_PLACE = f"""\
    with {FULL}:
        state = model.state_dict()
"""
WRITTEN = "    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\n"


@pytest.mark.parametrize(
    "beside",
    [
        "    with FSDP.state_dict_type(model, StateDictType[path]):\n        return model.state_dict()\n",
        "    FSDP.set_state_dict_type(model, path)\n    return model.state_dict()\n",
    ],
)
def test_context_goes_beside_a_setting_that_stays(beside: str) -> None:
    result = rewrite(HEAD + IN_PLACE + beside)
    assert f"    model = fully_shard(net)\n{WRITTEN}" in result.text
    assert result.support & {"state_dict_type", "set_state_dict_type"}
    assert result.text.endswith(beside.replace("FSDP.", "").replace("model.state_dict()", "model_state_dict(model)"))


@pytest.mark.parametrize(("read", "level"), [("trainer.save(path)", "review"), ("model.state_dict()", "rewritten")])
def test_a_setting_whose_reads_are_not_in_sight_is_told(read: str, level: str) -> None:
    """FSDP1 gathered for whoever read the state dict; a library reads this rank's shards of an FSDP2 model."""
    text = HEAD + (
        f"    trainer.model = model\n    FSDP.set_state_dict_type(model, path)\n    return {read}\n"
    ).replace("(model, path)", "(model, KINDS[path])").replace("save(path)", "save()")
    (told,) = [each for each in rewrite(text).findings if each.rule == "FM301"]
    assert told.level.value == level


def test_function_that_a_body_defines_and_calls() -> None:
    text = body(
        f"""\
    with {FULL}:
        def keep():
            return model.state_dict()

        state = keep()
"""
    )
    assert text.startswith("\n    def keep():\n        return get_model_state_dict(model, options=StateDictOptions(")
    called_below = f"    with {FULL}:\n        def keep():\n            return model.state_dict()\n    keep()\n"
    assert "state_dict_type" in rewrite(HEAD + called_below).support


LOADING = code(
    """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    from torch.nn.parallel import DistributedDataParallel as DDP


    def load_optimizer(model, optimizer, state):
        assert isinstance(model, torch.nn.Module)
        found = FSDP.optim_state_dict_to_load(model, optimizer, state)
        optimizer.load_state_dict(found)


    def load(model, optimizer, path):
        if isinstance(model, FSDP):
            with FSDP.state_dict_type(model, StateDictType.{0}):
                model.load_state_dict(torch.load(path)["model"])
                load_optimizer(model, optimizer, torch.load(path)["optimizer"])
        elif isinstance(model, DDP):
            model.module.load_state_dict(model.module.state_dict())


    def main(net, path):
        model = FSDP(net, use_orig_params=True)
        load(model, torch.optim.AdamW(model.parameters()), path)
    """
)


def test_body_that_calls_what_loads_the_optimizer() -> None:
    """What is loaded into an optimizer is whole or sharded, as where that is called."""
    full = rewrite(LOADING.replace("{0}", "FULL_STATE_DICT"))
    assert full.support == set()
    assert "options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)" in full.text
    sharded = rewrite(LOADING.replace("{0}", "SHARDED_STATE_DICT"))
    assert "state, options=StateDictOptions(strict=False))\n" in flat(sharded.text)
    assert "        model.module.load_state_dict(model.module.state_dict())\n" in sharded.text
    assert {f.level for f in full.findings} == {Level.REWRITTEN}
    assert [f.rule for f in sharded.findings if f.level is not Level.REWRITTEN] == ["FM301"], "FSDP1's files"


def test_body_that_calls_what_loads_either_kind() -> None:
    text = LOADING.replace("{0}", "FULL_STATE_DICT")
    sharded = "FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)"
    result = rewrite(f"{text}    with {sharded}:\n        load_optimizer(model, 1, path)\n")
    assert result.support == {"optim_state_dict_to_load"}


ASSERTED = code(
    """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


    class Strategy:
        def __init__(self, net, kind=StateDictType.FULL_STATE_DICT):
            self.model = FSDP(net)
            assert kind {0} StateDictType.FULL_STATE_DICT, "not yet implemented"
            self.kind = kind

        def save(self):
            with FSDP.state_dict_type(self.model, self.kind):
                return self.model.state_dict()


    def main(net, **settings):
        Strategy(net, **settings).save()
    """
)


def test_kind_that_the_program_asserts() -> None:
    assert "        return get_model_state_dict(self.model, " in rewrite(ASSERTED.replace("{0}", "==")).text
    chosen = '        is_full = self.kind.name == "FULL_STATE_DICT"\n'
    assert chosen in rewrite(ASSERTED.replace("{0}", "!=")).text


OF_CLASS = code(
    """
    import torch
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


    class Core:
        save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)

        def save(self, net, rank, path):
            model = FSDP(net)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, self.save_policy):
                state = model.state_dict()
            if rank == 0:
                torch.save(state, path)
    """
)


def test_config_of_a_class() -> None:
    result = rewrite(OF_CLASS)
    assert result.support == set()
    assert "class Core:\n    def save(" in result.text
    assert {f.level for f in result.findings} == {Level.REWRITTEN}
    stored = OF_CLASS.replace("        model = FSDP", "        self.save_policy = rank\n        model = FSDP")
    assert "state_dict_type" in rewrite(stored).support


CONTAINER = code(
    """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


    class Pair:
        def __init__(self, net, other):
            self.encoder, self.decoder = FSDP(net), FSDP(other)

        def load_state_dict(self, state):
            self.encoder.load_state_dict(state["encoder"])
            self.decoder.load_state_dict(state["decoder"])


    def load(model, path):
        assert isinstance(model, torch.nn.Module) or isinstance(model, Pair)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            model.load_state_dict(torch.load(path))


    def main(net, other, path):
        load(FSDP(net), path)
        load(Pair(net, other), path)
    """
)


def test_object_that_gives_its_models_what_this_rank_has_read() -> None:
    """Torch would broadcast what the first of all ranks has read, past its own method."""
    result = rewrite(CONTAINER)
    assert "set_model_state_dict(model," not in result.text
    assert "state_dict_type" not in result.text  # which sets what is so without it
    assert result.support <= {"load_full_state_dict"}


CHOSEN = """\
    if rank:
        config = FullStateDictConfig({0})
    else:
        config = FullStateDictConfig({1})
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
"""


def test_config_that_a_condition_chooses_which_nobody_can_ask_below() -> None:
    """What one of them needs on every rank, every rank has."""
    chosen = (
        CHOSEN.replace("if rank:", "if rank.is_first():").replace("{0}", "True, True").replace("{1}", "True, False")
    )
    assert "    state = full_state_dict(model, offload_to_cpu=True)\n" in rewrite(HEAD + chosen).text


@pytest.mark.parametrize(
    ("first", "second", "after"),
    [
        ("True, True", "offload_to_cpu=True, rank0_only=True", "options = StateDictOptions("),
        ("True, True", "True, False", "state = full_state_dict(model, offload_to_cpu=True, rank0_only=rank)"),
        ("True, False", "True, True", "state = full_state_dict(model, offload_to_cpu=True, rank0_only=not rank)"),
        ("False, True", "", "state = full_state_dict(model, rank0_only=rank)"),
    ],
)
def test_config_that_a_condition_chooses(first: str, second: str, after: str) -> None:
    """A copy for every rank is more than the memory may hold: the ranks have what they had."""
    text = rewrite(HEAD + CHOSEN.replace("{0}", first).replace("{1}", second)).text
    assert f"    model = fully_shard(net)\n    {after}" in text
    other = CHOSEN.replace("{0}", "True").replace("{1}", "False")
    assert "state_dict_type" in rewrite(HEAD + other).support


def test_code_that_reads_state_dicts_itself_is_called_from_a_body() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)

            def save(self):
                with FSDP.state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT):
                    return self.state()

            def state(self):
                return self.model.state_dict()
        """
    )
    result = rewrite(text)
    assert "        with state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT):\n" in result.text
    assert "        return model_state_dict(self.model)\n" in result.text


def test_class_that_gathers_by_itself_needs_no_setting() -> None:
    """A whole state dict is what its own `state_dict` reads without a context, too; only where it lies can differ."""
    text = code(
        """
        from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


        class Pair:
            def __init__(self, encoder, decoder):
                self.encoder = FSDP(encoder)
                self.decoder = FSDP(decoder)

            def state_dict(self):
                return {**self.encoder.state_dict(), **self.decoder.state_dict()}


        def save(model, path):
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True)):
                torch.save(model.state_dict(), path)


        def main(encoder, decoder, path):
            save(Pair(encoder, decoder), path)
        """
    )
    result = rewrite(text)
    assert "state_dict_type" not in "".join(result.after.values())
    (found,) = (each for each in result.findings if each.rule == "FM301")
    assert found.level is Level.REVIEW
    assert "gathers by itself" in found.message


def test_other_objects_have_state_dicts_too() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        class Schedule:
            def state_dict(self):
                return dict(self.__dict__)


        def keep(optimizer, path):
            return path, optimizer.state_dict()


        def save(net, optimizer, path):
            model = FSDP(net)
            schedule = Schedule()
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                return model.state_dict(), schedule.state_dict(), keep(optimizer, path)
        """
    )
    wanted = "    return get_model_state_dict(model), schedule.state_dict(), keep(optimizer, path)\n"
    assert rewrite(text).text.endswith(f"    schedule = Schedule()\n{wanted}")


READING = Options(read_fsdp1_files=True)
_LOCAL = "FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT)"


@pytest.mark.parametrize(
    ("statements", "after"),
    [
        ("optimizer.save(optimizer.state_dict(), path)", "optimizer.save(optimizer.state_dict(), path)"),
        ("optimizer.save(model.state_dict(), path)", "optimizer.save(model.state_dict(), path)"),
        (
            "name = path.format(1)\n        optimizer.load_state_dict(path.load(name))",
            "name = path.format(1)\n    load_local_optim_state_dict(model, optimizer, path.load(name))",
        ),
        ("model.load_state_dict(path.load(1))", "load_local_state_dict(model, path.load(1))"),
        (
            "return model.load_state_dict(path, strict=False), optimizer.load_state_dict(path)",
            "return load_local_state_dict(model, path, strict=False),"
            " load_local_optim_state_dict(model, optimizer, path)",
        ),
    ],
)
def test_local_state_dict_that_fsdp1_saved_loads_where_it_is_asked_for(statements: str, after: str) -> None:
    made = "    params = model.parameters()\n    optimizer = torch.optim.AdamW(params)\n"
    text = HEAD + f"{made}    with {_LOCAL}:\n        {statements}\n"
    result = rewrite(text.replace("from torch", "import torch\nfrom torch", 1), READING)
    assert meaning(result.text).endswith(meaning(f"if 1:\n{made}    {after}\n").removeprefix("if 1:\n"))
    assert {level for _, level, _ in result.summary} == {"rewritten", "review"}


@pytest.mark.parametrize(
    ("statements", "after"),
    [
        ("optimizer.save(model.state_dict(), path)", "optimizer.save(model.state_dict(), path)"),
        (
            "name = path.format(1)\n        optimizer.load_state_dict(path.load(name))",
            "name = path.format(1)\n    optimizer.load_state_dict(refuse_flat_state(path.load(name)))",
        ),
        ("model.load_state_dict(path.load(1))", "model.load_state_dict(path.load(1))"),
        (
            "return model.load_state_dict(path, strict=False), optimizer.load_state_dict(path)",
            "return model.load_state_dict(refuse_flat_state(path), strict=False),"
            " optimizer.load_state_dict(refuse_flat_state(path))",
        ),
    ],
)
def test_local_state_dict_is_what_each_rank_has(statements: str, after: str) -> None:
    made = "    optimizer = torch.optim.AdamW(model.parameters())\n"
    text = HEAD + f"{made}    with {_LOCAL}:\n        {statements}\n"
    result = rewrite(text.replace("from torch", "import torch\nfrom torch", 1))
    assert meaning(result.text).endswith(meaning(f"if 1:\n{made}    {after}\n").removeprefix("if 1:\n"))
    assert result.support <= {"refuse_flat_state"}
    (review,) = [f for f in result.findings if f.level is Level.REVIEW]
    assert "--read-fsdp1-files" in review.hint


def test_optimizer_of_a_rank_that_is_loaded_outside_of_the_context() -> None:
    """Loading never asked for the context."""
    body = (
        f"    optimizer.load_state_dict(path.load())\n    with {_LOCAL}:\n        path.save(optimizer.state_dict())\n"
    )
    program = HEAD + "    optimizer = path.optimizer(model)\n" + body + body.split("\n", 1)[1]
    text = rewrite(program, READING).text
    assert text.count("load_local_optim_state_dict(model, optimizer, path.load())") == 1
    assert "LOCAL_STATE_DICT" not in text
    assert rewrite(program).text.count("optimizer.load_state_dict(refuse_flat_state(path.load()))") == 1


def test_optimizer_in_a_context_for_another_model() -> None:
    """The context changed nothing for it: the model is the one that the optimizer was made for."""
    other = "    other = FSDP(path.net)\n    optimizer = path.optimizer(model.parameters())\n"
    body = f"    with {_LOCAL.replace('model,', 'other,')}:\n        optimizer.load_state_dict(path.load())\n"
    assert "load_local_optim_state_dict(model, optimizer, path.load())" in rewrite(HEAD + other + body, READING).text


@pytest.mark.parametrize(
    "statement", ["path.save(model)", "FSDP.optim_state_dict(model, path)", "path.model.state_dict()"]
)
def test_local_state_dict_for_what_is_not_seen_needs_a_person(statement: str) -> None:
    check_marked(HEAD + f"    with {_LOCAL}:\n        {statement}\n", "FM301", Level.MANUAL, "LOCAL_STATE_DICT")


def test_local_state_dict_that_is_only_set() -> None:
    setter = "set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)"
    result = rewrite(HEAD + f"    FSDP.{setter}\n    return model.state_dict()\n")
    assert result.text.endswith(f"    {setter}\n    return model_state_dict(model)\n")
    (review,) = [f for f in result.findings if f.level is Level.REVIEW and f.rule != "FM100"]
    assert "do not load" in review.message


def test_names_that_mean_something_else_there() -> None:
    head = (
        "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):\n"
    )
    text = rewrite(HEAD + head + "        full_state_dict = model.state_dict()\n    return full_state_dict\n").text
    assert "    full_state_dict = fsdp2_full_state_dict(model, rank0_only=True)\n" in text
    text = body(
        f"    with {FULL}:\n        get_model_state_dict = model.state_dict()\n    get_model_state_dict.clear()\n"
    )
    assert "    get_model_state_dict = fsdp2_get_model_state_dict(model, options=options)\n" in text


def test_what_is_loaded_has_a_line_of_its_own() -> None:
    text = body(f"    with {FULL}:\n        model.load_state_dict(\n            rank.load(path)\n        )\n")
    assert text.startswith("    set_model_state_dict(\n        model,\n        rank.load(path),\n        options=")
    assert text.endswith("),\n    )\n")


SET = """\
    FSDP.set_state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    )
"""
READ = "    state = model.state_dict()\n    optim_state = FSDP.optim_state_dict(model, optimizer)\n"


def test_kind_that_is_set_above_what_is_read() -> None:
    head = HEAD.replace("FullStateDictConfig,", "FullStateDictConfig, FullOptimStateDictConfig,")
    result = rewrite(head + SET + READ)
    assert meaning(result.text.split("fully_shard(net)\n")[1]) == meaning(
        "options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
        "state = get_model_state_dict(model, options=options)\n"
        "optim_state = get_optimizer_state_dict(model, optimizer, options=options)"
    )
    assert result.support == set()
    assert {f.level for f in result.findings} == {Level.REWRITTEN}


SEEN_ELSEWHERE = [
    SET + READ + "    return path.other(model), rank.state_dict()\n",
    "    if rank:\n" + textwrap.indent(SET, "    ") + READ,
    READ + SET,
    SET.replace("    FSDP", "    before = FSDP", 1) + READ,
    "    for _ in path:\n" + textwrap.indent(READ, "    ") + textwrap.indent(SET, "    "),
]


@pytest.mark.parametrize("inside", SEEN_ELSEWHERE)
def test_kind_that_is_not_set_above_everything_that_is_read(inside: str) -> None:
    head = HEAD.replace("FullStateDictConfig,", "FullStateDictConfig, FullOptimStateDictConfig,")
    assert "set_state_dict_type" in rewrite(head + inside).support


def test_kind_that_changes_nothing_for_a_model_that_is_not_seen_to_be_wrapped() -> None:
    text = """\
    FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)


def main(path, rank):
    model = path.make()
    model.load_state_dict(path.load())
    use(model, 1, 2, 3)
"""
    assert rewrite(HEAD + text).support == set()


def test_local_kind_that_nothing_reads_goes() -> None:
    local = "    FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)\n"
    text = body(f"{local}    with {FULL}:\n        s = model.state_dict()\n")
    assert text == "    s = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\n"


BEFORE_AND_BELOW = [
    SET + READ + "\n\ndef load(model, path):\n    FSDP(model).load_state_dict(path)\n",
    "    model.state_dict()\n" + SET + READ.splitlines(True)[0] + "\n\nuse(1, 2, 3, 4)\n",
    "    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n"
    "\n\ndef read(model, path):\n    model = FSDP(model)\n    return model.state_dict()\n",
]


@pytest.mark.parametrize("inside", BEFORE_AND_BELOW)
def test_kind_that_changes_nothing_for_what_is_not_below_it(inside: str) -> None:
    head = HEAD.replace("FullStateDictConfig,", "FullStateDictConfig, FullOptimStateDictConfig,")
    assert rewrite(head + inside).support == set()


def test_line_above_a_call_goes_with_the_block_that_is_taken_away() -> None:
    text = rewrite(
        code(
            """
            import torch
            from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


            def save(net, optimizer_of, batch):
                model = FSDP(net)
                optimizer = torch.optim.SGD(model.parameters())
                with torch.no_grad():
                    model(batch)
                with FSDP.state_dict_type(
                    model,
                    StateDictType.FULL_STATE_DICT,
                    FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
                    FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
                ):
                    optim_state = FSDP.optim_state_dict(model, optimizer)
                    model_state = model.state_dict()
                torch.save([optim_state, model_state], "x.pt")
            """
        )
    ).text
    assert "\n    model.reshard()\n    optim_state = " in text


HANDED_ON = [
    "path(model)",
    "path({'model': model})",
    "path(*[model], state=path)",
    "model.save_pretrained(path)",
    "objects = [model]\n        path(objects)",
]


@pytest.mark.parametrize("body", HANDED_ON)
def test_a_library_that_is_given_the_model_reads_whole_tensors(body: str) -> None:
    result = rewrite(HEAD + f"    with {FULL}:\n        {body}\n")
    assert f"    with full_state_dicts(model):\n        {body}\n" in result.text
    assert result.support == {"full_state_dicts"}


SAVER = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
from library import Saver, write


class Own(Saver):
    def __init__(self, net):
        super().__init__()
        self.model = FSDP(net)

    def save(self, path):
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):
            {}

    def own(self, path):
        {}
"""


@pytest.mark.parametrize(
    ("body", "own", "is_kept"),
    [
        ("super().save(path)", "pass", True),
        ("self.write(path)", "pass", True),
        ("write(self, path)", "pass", True),
        ("self.own(path)", "super().save(path)", True),
        ("self.own(self.model.state_dict())", "write(path)", False),
        ("self.log(self.model.state_dict())", "pass", False),
    ],
)
def test_a_class_with_the_model_whose_base_is_not_seen(body: str, own: str, is_kept: bool) -> None:
    text = rewrite(SAVER.format(body, own)).text
    assert ("with full_state_dicts(self.model):" in text) == is_kept


@pytest.mark.parametrize("body", ["super().load(path)", "self.load_state(path)", "return write.restore(self, path)"])
def test_a_library_loads_whole_tensors(body: str) -> None:
    """A checkpointer's own load into the sharded model raised, of plain tensors (SDSH)."""
    text = rewrite(SAVER.format(body, "pass")).text
    assert f"with full_state_loads(self.model):\n            {body}\n" in text


def test_a_library_that_loads_and_saves() -> None:
    text = rewrite(SAVER.format("super().load(path)\n            super().save(path)", "pass")).text
    assert "with full_state_loads(self.model), full_state_dicts(self.model):" in text


def test_settings_of_a_context_for_a_library_are_kept() -> None:
    context = "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))"
    result = rewrite(HEAD + f"    with {context}:\n        path(model)\n")
    assert "    with full_state_dicts(model, rank0_only=True):\n        path(model)\n" in result.text


@pytest.mark.parametrize(
    "body", ["path(model.state_dict())", "model.save_pretrained(path, state_dict=model.state_dict())", "len(model)"]
)
def test_a_library_that_is_given_a_state_dict_needs_no_context(body: str) -> None:
    result = rewrite(HEAD + f"    with {FULL}:\n        {body}\n")
    assert "full_state_dicts" not in result.text


def test_a_context_around_a_method_that_gathers_two_calls_further_down_stays() -> None:
    text = """\
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)

            def collect(self):
                return self.gather()

            def gather(self):
                return self.model.state_dict()

            def save(self):
                with FSDP.state_dict_type(self.model, StateDictType.KIND):
                    return self.collect()


        Trainer(net).save()
    """
    sharded = rewrite(code(text.replace("KIND", "SHARDED_STATE_DICT"))).text
    assert "with state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT):" in sharded
    assert "return model_state_dict(self.model)" in sharded
    local = rewrite(code(text.replace("KIND", "LOCAL_STATE_DICT")))
    assert [f.rule for f in local.findings if f.level is Level.MANUAL] == ["FM301"]


@pytest.mark.parametrize(
    ("options", "after"),
    [
        (READING, "load_local_optim_state_dict(model, optimizer, saved[1])"),
        (Options(), "optimizer.load_state_dict(refuse_flat_state(saved[1]))"),
    ],
)
def test_local_optimizer_of_a_helper(options: Options, after: str) -> None:
    """Which model an optimizer was made for is seen where the helper is called."""
    text = code(
        f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        def load(model, optimizer, path):
            saved = torch.load(path)
            with {_LOCAL}:
                model.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])


        def main(net, rank):
            fsdp_model = FSDP(net)
            load(fsdp_model, torch.optim.AdamW(fsdp_model.parameters()), f"{{rank}}.pt")
        """
    )
    assert f"    {after}\n" in rewrite(text, options).text


SCRIPT = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import FullStateDictConfig, StateDictType

KEPT = 3
kind = StateDictType.FULL_STATE_DICT
config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)


def save(model, path):
    with FSDP.state_dict_type(model, kind, config):
        torch.save(model.state_dict(), path)


save(FSDP(torch.nn.Linear(2, 2)), KEPT)
"""


def test_settings_at_the_top_of_a_file_go_with_their_last_use() -> None:
    text = rewrite(SCRIPT).text
    assert "kind =" not in text
    assert "config =" not in text
    assert "\nKEPT = 3\n" in text


@pytest.mark.parametrize("read", ["print(kind)", "__all__ = ['kind']", "def again():\n    return kind"])
def test_settings_at_the_top_of_a_file_stay_where_something_reads_them(read: str) -> None:
    assert "\nkind = StateDictType.FULL_STATE_DICT\n" in rewrite(f"{SCRIPT}\n\n{read}\n").text


def test_a_part_of_the_model_is_read_with_the_options_of_the_context() -> None:
    configs = "FullStateDictConfig(True, True)"
    head = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {configs}):\n"
    inside = "        s = model.encoder.state_dict()\n        t = model.module.state_dict()\n"
    result = rewrite(HEAD + head + inside)
    assert meaning(result.text.split("    model = fully_shard(net)\n")[1]) == meaning(
        """
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        s = get_model_state_dict(model.encoder, options=options)
        t = get_model_state_dict(model, options=options)
        """
    )
    (context,) = [f for f in result.findings if f.rule == "FM301"]
    assert context.level is Level.REVIEW
    assert "lies in units" in context.message


def test_a_part_of_a_model_that_nobody_is_seen_to_pass_is_read_as_the_context_says() -> None:
    """The context says that it is FSDP1's: the part stayed as it was, and each rank saved its own shards."""
    save = """\


def save(model, state):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
        s = model.connector.state_dict()
        model.module.blocks[0].load_state_dict(state)
        t = model.optimizer.state_dict()
"""
    text = rewrite(HEAD + save).text
    assert "s = get_model_state_dict(\n        model.connector, options=" in text
    assert "set_model_state_dict(\n        model.blocks[0],\n" in text
    assert "t = model.optimizer.state_dict()" in text


def test_a_part_that_one_rank_reads_in_the_context_is_asked_about() -> None:
    inside = f"    with {FULL}:\n        if rank == 0:\n            s = model.encoder.state_dict()\n"
    check_marked(HEAD + inside, "FM304", words="one rank alone")


CHECKPOINTS = """\
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, ShardedStateDictConfig
    from torch.distributed.fsdp import StateDictType


    class Whole:
        def __init__(self, on_cpu, first_only):
            self.config = FullStateDictConfig(offload_to_cpu=on_cpu, rank0_only=first_only)

        def save(self, net, path):
            model = FSDP(net)
            config = self.config
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                return model.state_dict()

        def load(self, net, path):
            model = FSDP(net)
            FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, self.config)
            model.load_state_dict(torch.load(path))


    class Sharded:
        def __init__(self, on_cpu):
            self.config = ShardedStateDictConfig(offload_to_cpu=on_cpu)

        def save(self, net, path):
            model = FSDP(net)
            FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, self.config)
            state = model.state_dict()
            dcp.save({"model": state}, checkpoint_id=path)

        def load(self, net, path):
            model = FSDP(net)
            FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, self.config)
            state = {"model": model.state_dict()}
            dcp.load(state, checkpoint_id=path)
            loaded = state.get("model")
            model.load_state_dict(loaded)
    """


def test_fields_of_a_config_that_an_object_keeps_are_read_off_it() -> None:
    result = rewrite(code(CHECKPOINTS))
    text = flat(result.text)
    assert "        return full_state_dict(model, offload_to_cpu=config.offload_to_cpu, rank0_only=" in text
    assert "rank0_only=config.rank0_only)\n" in text
    assert "        config = self.config\n" in result.text
    assert "StateDictOptions(cpu_offload=self.config.offload_to_cpu)" in result.text
    assert result.support == {"full_state_dict"}


COMPILED = """\


    def main(net, path):
        Whole(True, True).load(torch.compile(net), path)
    """


@pytest.mark.parametrize("read", ["", "            print(state)\n"])
def test_kind_that_is_set_for_a_compiled_model(read: str) -> None:
    text = (CHECKPOINTS + COMPILED).replace(", checkpoint_id=path)\n\n", f", checkpoint_id=path)\n{read}\n", 1)
    result = rewrite(code(text))
    if read:
        assert "set_state_dict_type" in result.support
        return
    assert "        state = model.state_dict()\n" in result.text
    assert "        load_full_state_dict(model, torch.load(path))\n" in result.text
    assert '        state = {"model": model.state_dict()}\n' in result.text
    assert "        model.load_state_dict(loaded)\n" in result.text
    assert result.support == {"full_state_dict", "load_full_state_dict"}


def test_what_one_rank_reads_meets_no_kind() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        def save(net, rank, path):
            model = FSDP(net)
            if rank == 0:
                path.save(model.state_dict())


        def shards(net):
            model = FSDP(net)
            FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
            return model.state_dict()
        """
    assert (
        "    return get_model_state_dict(model)\n"
        in check_marked(text, "FM304", Level.MANUAL, "on one rank alone").text
    )


OWN_CONTEXT = """\
from contextlib import contextmanager

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


@contextmanager
def sharded(model):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        yield {given}


def save(net, write):
    model = FSDP(net)
    with sharded(model) as state:
        write({written})
"""


def test_context_of_the_programs_own_sets_the_kind_for_what_it_yields_to() -> None:
    """It is no full state dict that is read in it."""
    text = rewrite(OWN_CONTEXT.format(given="model", written="model.state_dict()")).text
    assert "    with state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n" in text
    assert "write(model_state_dict(model))" in text
    text = rewrite(OWN_CONTEXT.format(given="model.state_dict()", written="state")).text
    assert "    yield get_model_state_dict(model)\n" in text


def test_a_kind_that_another_script_keeps() -> None:
    """`state_dict_type` as a value is kept at run time, for the scripts that load the file alone."""
    keeps = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n\n\n"
        "def context(model):\n    return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)\n"
    )
    saves = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def save(net):\n    model = FSDP(net)\n    return model.state_dict()\n"
    )
    apart = rewrite_files({"one.py": keeps, "other.py": saves})
    assert "return get_model_state_dict(model, options=" in apart.after["other.py"]
    together = rewrite_files({"one.py": keeps, "other.py": saves.replace("\n\n\ndef", "\nimport one\n\n\ndef")})
    assert "return model_state_dict(model)" in together.after["other.py"]


@pytest.mark.parametrize("head", ["    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n", ""])
def test_load_on_one_rank(head: str) -> None:
    """FSDP1 gathered what it loads into, and waited for the others as well."""
    indent = "    " * (1 + bool(head))
    text = (
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n\n\n"
        f"def load(net, path, rank):\n    model = FSDP(net)\n{head}{indent}if rank == 0:\n"
        f"{indent}    model.load_state_dict(torch.load(path))\n"
    )
    told = [finding for finding in rewrite(text).findings if finding.level is Level.MANUAL]
    assert ["one rank alone loads" in finding.message for finding in told] == [True]
    everywhere = rewrite(text.replace("if rank == 0:", "if path:"))
    assert not [finding for finding in everywhere.findings if finding.level is Level.MANUAL]


OWN_FILE = """\
from contextlib import contextmanager

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, FullStateDictConfig, StateDictType


@contextmanager
def whole(model, on_cpu=True, *, all_ranks):
    config = FullStateDictConfig(offload_to_cpu=on_cpu, rank0_only=not all_ranks)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        yield


def kind_of(model, kind, config):
    return FSDP.state_dict_type(model, kind, config)


def other():
    return 1
"""
USES_IT = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardedStateDictConfig, StateDictType

from contexts import kind_of, other, whole


def main(net, path, rank):
    model = FSDP(net)
    with whole(model, all_ranks=False):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, path)
    config = ShardedStateDictConfig(offload_to_cpu=True)
    with kind_of(model, StateDictType.SHARDED_STATE_DICT, config):
        other(model.state_dict())
    with whole(model, all_ranks=True):
        model.load_state_dict(torch.load(path))
"""


def test_contexts_of_the_programs_own_go_where_no_block_needs_them() -> None:
    result = rewrite_files({"contexts.py": OWN_FILE, "train.py": USES_IT})
    assert result.after["contexts.py"] == "def other():\n    return 1\n"
    assert "from contexts import other\n" in result.after["train.py"]
    assert result.after["train.py"].endswith(
        code(
            """
            def main(net, path, rank):
                model = fully_shard(net)
                options = StateDictOptions(full_state_dict=True, cpu_offload=True)
                state = get_model_state_dict(model, options=options)
                if rank == 0:
                    torch.save(state, path)
                other(get_model_state_dict(model, options=StateDictOptions(cpu_offload=True)))
                options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
                set_model_state_dict(model, torch.load(path), options=options)
            """
        )
    )
    assert result.support == frozenset()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    with FSDP.state_dict_type(", "    model.eval()\n    with FSDP.state_dict_type("),
        ("        yield\n", "        yield model\n"),
        ("def other():\n", "def other(model):\n    return whole(model, all_ranks=True)\n\n\ndef more():\n"),
    ],
    ids=["it does more", "it yields something", "something else calls it"],
)
def test_contexts_of_the_programs_own_that_are_more_stay(old: str, new: str) -> None:
    assert old in OWN_FILE
    result = rewrite_files({"contexts.py": OWN_FILE.replace(old, new, 1), "train.py": USES_IT})
    assert "def whole(" in result.after["contexts.py"]
    assert "state_dict_type" in result.support


BEST = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


class Best:
    def keep(self, model):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            self.state = model.state_dict()

    def restore(self, model):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            model.load_state_dict(self.state)


def main(xs, best):
    model = FSDP(nn.Sequential(nn.Linear(2, 2), {layer}))
    best = Best()
    best.keep(model)
    model(xs).sum().backward()
    {between}
    best.restore(model)
"""


def test_restored_behind_a_forward_of_the_caller() -> None:
    """A forward without a backward leaves the root whole, and torch would load into the copies, and raise."""
    text = rewrite(BEST.format(layer="nn.ReLU()", between="loss = model(xs)")).text
    assert "        model.reshard()\n        set_model_state_dict(model, dict(self.state), " in text
    assert ".reshard()" not in rewrite(BEST.format(layer="nn.ReLU()", between="pass")).text


@pytest.mark.parametrize(("layer", "is_own"), [("nn.BatchNorm1d(2)", True), ("nn.SyncBatchNorm(2)", False)])
def test_each_rank_gets_the_statistics_back_that_it_kept(layer: str, is_own: bool) -> None:
    text = rewrite(BEST.format(layer=layer, between="pass")).text
    assert ("broadcast_from_rank0=True" not in text) == is_own


def test_a_configuration_that_another_context_needs_stays() -> None:
    setting = "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, cfg)"
    text = (
        "from torch.distributed.fsdp import FullStateDictConfig, StateDictType\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def main(net):\n    model = FSDP(net)\n    cfg = FullStateDictConfig(rank0_only=True)\n"
        f"    with {setting}:\n        state = model.state_dict()\n    later = {setting}\n    return state, later\n"
    )
    assert "    cfg = FullStateDictConfig(rank0_only=True)\n" in rewrite(text).text


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("return self.rank == 0", True),
        ("if self.use_fsdp:\n            return self.rank == 0\n        return True", True),
        ("if self.rank == 0:\n            return True\n        return True", False),
    ],
)
def test_a_method_that_says_whether_this_rank_loads(body: str, is_told: bool) -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\nclass Loader:\n"
        f"    def says(self):\n        {body}\n\n    def load(self, net, state):\n        model = FSDP(net)\n"
        "        if self.says():\n            model.load_state_dict(state)\n"
    )
    assert any("one rank alone loads" in each.message for each in rewrite(text).findings) is is_told


KIND_CHOSEN = """
    import torch
    from torch.distributed.fsdp import (
        FullStateDictConfig,
        FullyShardedDataParallel as FSDP,
        LocalStateDictConfig,
        ShardedStateDictConfig,
        StateDictType,
    )


    def save(model, path, cfg):
        {0}
        with FSDP.state_dict_type(model, kind, config):
            state = model.state_dict()
        torch.save(state, path)


    def load(model, path, kind):
        with FSDP.state_dict_type(model, kind):
            model.load_state_dict(torch.load(path), strict=False)


    def main(net, cfg):
        model = FSDP(net)
        load(model, "in", cfg.kind)
        save(model, "out", cfg)
    """
WHOLE, PARTS = "FullStateDictConfig(True, rank0_only=True)", "ShardedStateDictConfig(True)"


@pytest.mark.parametrize(
    ("choice", "options"),
    [
        (
            f"""
        kind = StateDictType.SHARDED_STATE_DICT if cfg.parts else StateDictType.FULL_STATE_DICT
        config = {PARTS} if cfg.parts else {WHOLE}
        """,
            "full_state_dict=not cfg.parts, cpu_offload=True",
        ),
        (
            f"""
        if cfg.whole:
            kind, config = StateDictType.FULL_STATE_DICT, None
        else:
            kind, config = StateDictType.SHARDED_STATE_DICT, {PARTS}
        """,
            "full_state_dict=cfg.whole, cpu_offload=not cfg.whole",
        ),
        (
            f"""
        if cfg.kind == "full":
            kind = StateDictType.FULL_STATE_DICT
            config = {WHOLE}
        elif cfg.kind == "sharded":
            kind = StateDictType.SHARDED_STATE_DICT
            config = {PARTS}
        else:
            kind = StateDictType.LOCAL_STATE_DICT
            config = LocalStateDictConfig(offload_to_cpu=True)
        """,
            "full_state_dict=is_full, cpu_offload=True",
        ),
    ],
    ids=["if expression", "a pair", "three kinds"],
)
def test_kind_that_the_program_chooses(choice: str, options: str) -> None:
    result = rewrite(code(KIND_CHOSEN.format(choice.strip())))
    assert f"StateDictOptions({options})" in flat(result.text)
    assert ("config = " in result.text) == ("kind, config" in choice)
    is_full = '    is_full = kind.name == "FULL_STATE_DICT"\n'
    assert is_full in result.text
    assert "full_state_dict=is_full, broadcast_from_rank0=is_full, strict=False" in flat(result.text)
    assert not result.support


def test_chosen_kind_whose_whole_state_is_kept_on_every_rank() -> None:
    choice = """
        kind = StateDictType.SHARDED_STATE_DICT if cfg.parts else StateDictType.FULL_STATE_DICT
        config = ShardedStateDictConfig(True) if cfg.parts else FullStateDictConfig(True, rank0_only=cfg.first)
        """
    assert "state_dict_type" in rewrite(code(KIND_CHOSEN.format(choice.strip()))).support


def test_kind_that_is_imported_nowhere() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def load(net, state):
            model = FSDP(net)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                model.load_state_dict(state)
        """
    assert "StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)" in flat(rewrite(code(text)).text)


NEVER_WRAPPED = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType
from torch.nn.parallel import DistributedDataParallel as DDP


class Head(nn.Module):
    pass


def save(net, path, rank, ddp):
    model = FSDP(net)
    head = Head()
    if ddp:
        head = DDP(head)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    if hasattr(head, "_orig_mod"):
        with FSDP.state_dict_type(head, StateDictType.FULL_STATE_DICT, config):
            state = head._orig_mod.state_dict()
    if rank == 0:
        torch.save(head.state_dict(), path)
    return model
"""


def test_context_of_a_model_that_is_never_wrapped_goes() -> None:
    result = rewrite(NEVER_WRAPPED)
    assert '    if hasattr(head, "_orig_mod"):\n        state = head._orig_mod.state_dict()\n' in result.text
    assert result.support == frozenset()
    assert "FullStateDictConfig" not in result.text


BY_A_LIBRARY = """\
from library import Parallel
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


class Wrapper:
    def wrap(self, outer):
        outer.inner = FSDP(outer.inner)


def save(net, path):
    outer = Parallel(net, wrapper=Wrapper())
    with FSDP.state_dict_type(outer, StateDictType.FULL_STATE_DICT):
        path.save(outer.state_dict())
    return outer.state_dict()
"""
WHOLE = "get_model_state_dict(outer, options=StateDictOptions(full_state_dict=True))"


@pytest.mark.parametrize("wrapper", ["Wrapper()", "Wrapper().wrap"])
def test_model_of_a_library_that_is_handed_what_wraps_a_part_of_it(wrapper: str) -> None:
    """It was said to be never wrapped, and its shards were saved (trec)."""
    text = rewrite(BY_A_LIBRARY.replace("Wrapper()", wrapper)).text
    assert text.endswith(f"    path.save({WHOLE})\n    return {WHOLE}\n")


MAY_BE_WRAPPED = {
    "one of several": ("head = DDP(head)", "head = FSDP(head)"),
    "one that is handed in": ("    head = Head()\n", "    head = net.head\n"),
    "one around what is wrapped": ("    head = Head()\n", "    head = Head()\n    head.net = model\n"),
}


@pytest.mark.parametrize(("old", "new"), MAY_BE_WRAPPED.values(), ids=MAY_BE_WRAPPED)
def test_context_of_a_model_that_may_be_wrapped_says_what_is_read(old: str, new: str) -> None:
    assert "state = head._orig_mod.state_dict()" not in rewrite(NEVER_WRAPPED.replace(old, new)).text


IN_SETTINGS = """\
import argparse

from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def save(args, model, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, args.config):
        state = model.state_dict()
    path.save(state)


def main(net, path):
    args = argparse.ArgumentParser().parse_args()
    args.config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    save(args, FSDP(net), path)
"""


def test_config_that_is_put_into_settings_of_the_command_line() -> None:
    """73 lines of support, and more beside them, to read what the program says in one place."""
    result = rewrite(IN_SETTINGS)
    assert result.support == set()
    assert "    state = get_model_state_dict(model, options=options)\n" in result.text
    assert "StateDictConfig" not in result.text
    assert [found.rule for found in result.findings] == ["FM301", "FM101"]


@pytest.mark.parametrize(
    "more",
    [
        "    setattr(args, path.name, path.value)\n",
        "    args.config = path.config\n",
        "    parser.add_argument('--config')\n",
    ],
)
def test_config_of_settings_that_something_else_may_fill(more: str) -> None:
    result = rewrite(IN_SETTINGS.replace("    save(args", f"{more}    save(args"))
    assert "state_dict_type" in result.support


def test_config_of_settings_that_is_read_elsewhere_stays() -> None:
    result = rewrite(IN_SETTINGS + "    print(args.config)\n")
    assert result.support == set()
    assert "    args.config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n" in result.text


def test_kind_that_is_put_into_settings_of_the_command_line() -> None:
    kind = "StateDictType.FULL_STATE_DICT if net.is_small else StateDictType.SHARDED_STATE_DICT"
    text = IN_SETTINGS.replace("StateDictType.FULL_STATE_DICT, args.config", "args.kind")
    result = rewrite(text.replace("    save(args", f"    args.kind = {kind}\n    save(args"))
    assert 'args.kind.name == "FULL_STATE_DICT"' in result.text
    assert "state_dict_type" not in result.support


def test_config_of_settings_that_a_function_makes_is_still_made() -> None:
    made = "\n\ndef make(path):\n    path.note()\n    return FullStateDictConfig(True, True)\n"
    result = rewrite(
        IN_SETTINGS.replace("FullStateDictConfig(offload_to_cpu=True, rank0_only=True)", "make(path)") + made
    )
    assert result.support == set()
    assert "    args.config = make(path)\n" in result.text


def test_configs_that_are_all_that_a_method_makes_stay() -> None:
    """Both gone, the method had no body, and nothing of the program was written."""
    text = """\
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


class Whole:
    def __init__(self):
        self.config = FullStateDictConfig()
        self.optim_config = FullOptimStateDictConfig()
        MORE

    def read(self, net):
        model = FSDP(net)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, self.config, self.optim_config):
            return model.state_dict()
"""
    kept = rewrite(text.replace("        MORE\n", ""))
    assert "        self.config = FullStateDictConfig()\n        self.optim_config = " in kept.text
    assert "    def __init__(self):\n        self.name = 1\n" in rewrite(text.replace("MORE", "self.name = 1")).text


def test_where_nothing_wraps_the_model_may_be_a_librarys() -> None:
    """It was said that FSDP never wraps it, which a program that nothing wraps does not show."""
    text = code("""
        import torch
        from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


        def save(model, path):
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True)):
                torch.save(model.state_dict(), path)


        def main(net):
            save(torch.nn.parallel.DistributedDataParallel(net), "model.pt")
        """)
    result = check_marked(text, "FM301", Level.MANUAL, "not rewritten")
    assert not any("never wrapped" in finding.message for finding in result.findings)
