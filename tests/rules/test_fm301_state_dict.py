"""FM301: `with FSDP.state_dict_type(...)`."""

from __future__ import annotations

import pytest

from codemods.vocabulary import Level

from ..helpers import check_marked, check_noop, code, meaning, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, ShardedStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, optimizer, path, rank):
    model = FSDP(net)
"""
FULL = "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)"
RAISES = '    raise NotImplementedError("fsdp-migrate FM301: state_dict_type does nothing on an FSDP2 model")\n'


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
    pytest.param("", "full_state_dict=True", Level.REWRITTEN, id="no config"),
    pytest.param(", None", "full_state_dict=True", Level.REWRITTEN, id="None"),
    pytest.param(", FullStateDictConfig()", "full_state_dict=True", Level.REWRITTEN, id="default config"),
    pytest.param(
        ", FullStateDictConfig(offload_to_cpu=True, rank0_only=True)",
        "full_state_dict=True, cpu_offload=True",
        Level.REWRITTEN,
        id="CPU of rank 0",
    ),
    pytest.param(
        ", FullStateDictConfig(True, True)", "full_state_dict=True, cpu_offload=True", Level.REWRITTEN, id="by position"
    ),
    pytest.param(
        ", state_dict_config=FullStateDictConfig(rank0_only=True)",
        "full_state_dict=True, cpu_offload=True",
        Level.REVIEW,
        id="device of rank 0",
    ),
    pytest.param(
        ", FullStateDictConfig(offload_to_cpu=True)", "full_state_dict=True", Level.REVIEW, id="CPU of every rank"
    ),
    pytest.param(
        ", FullStateDictConfig(offload_to_cpu=rank, rank0_only=True)",
        "full_state_dict=True, cpu_offload=rank",
        Level.REWRITTEN,
        id="offloading known at run time",
    ),
]


@pytest.mark.parametrize(("config", "options", "level"), CONFIGS)
def test_reading_a_full_state_dict(config: str, options: str, level: Level) -> None:
    head = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT{config}):\n"
    result = rewrite(HEAD + head + "        s = model.state_dict()\n")
    text = result.text.split("    model = fully_shard(net)\n")[1]
    inline = f"    s = get_model_state_dict(model, options=StateDictOptions({options}))\n"
    named = f"    options = StateDictOptions({options})\n    s = get_model_state_dict(model, options=options)\n"
    assert text in {inline, named}
    assert [finding.level for finding in result.findings if finding.rule == "FM301"] == [level]


def test_sharded_state_dict_needs_no_options() -> None:
    head = "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig()):\n"
    inside = "        s = {'model': model.state_dict()}\n        model.load_state_dict(s['model'])\n"
    assert body(head + inside) == (
        "    s = {'model': get_model_state_dict(model)}\n    set_model_state_dict(model, s['model'])\n"
    )


def test_model_and_optimizer_share_the_options() -> None:
    configs = "FullStateDictConfig(True, True), FullOptimStateDictConfig(True, True)"
    head = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {configs}):\n"
    inside = "        s = model.state_dict()\n        o = FSDP.optim_state_dict(model, optimizer)\n"
    assert meaning(body(head + inside)) == meaning(
        """
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        s = get_model_state_dict(model, options=options)
        o = get_optimizer_state_dict(model, optimizer, options=options)
        """
    )


def test_name_options_is_taken() -> None:
    head = HEAD.replace("rank)", "options)")
    inside = f"    with {FULL}:\n        s = model.state_dict(), FSDP.optim_state_dict(model, optimizer), options\n"
    text = rewrite(head + inside).text
    assert "    state_dict_options = StateDictOptions(full_state_dict=True)\n" in text
    assert "options=state_dict_options), options\n" in text


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
        load_optim_state_dict(model, optimizer, saved["optimizer"])
        """
    )


TO_LOAD = [
    "optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved))",
    "optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model=model, optim=optimizer, optim_state_dict=saved))",
    "optimizer.load_state_dict(FSDP.optim_state_dict_to_load(optim_state_dict=saved, model=model, optim=optimizer))",
    "o = FSDP.optim_state_dict_to_load(model, optimizer, saved)\n        optimizer.load_state_dict(o)",
    "o = FSDP.optim_state_dict_to_load(model, optimizer, saved)\n    optimizer.load_state_dict(o)",
]


@pytest.mark.parametrize("text", TO_LOAD)
def test_loading_an_optimizer(text: str) -> None:
    head = HEAD.replace("rank)", "saved)")
    result = rewrite(head + f"    with {FULL}:\n        {text}\n")
    assert result.text.endswith("    model = fully_shard(net)\n    load_optim_state_dict(model, optimizer, saved)\n")
    assert result.support == {"load_optim_state_dict"}


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
        |            torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), file)
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


REFUSED = [
    pytest.param(f"with {FULL} as context:\n        model.state_dict()", "shares its `with`", id="as"),
    pytest.param(f"with torch.no_grad(), {FULL}:\n        model.state_dict()", "shares its `with`", id="a, b"),
    pytest.param(f"with {FULL}: model.state_dict()", "`with` of its own", id="one line"),
    pytest.param(f"context = {FULL}\n    return context", "`with` of its own", id="kept for later"),
    pytest.param(
        f"with {FULL} if rank else path:\n        model.state_dict()", "`with` of its own", id="conditional expression"
    ),
    pytest.param(f"with {FULL}:\n        path(model)", "passes `model`", id="the model is passed on"),
    pytest.param(
        "with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):\n        model.state_dict()",
        "the type is",
        id="local state dict",
    ),
    pytest.param(
        "with FSDP.state_dict_type(model, StateDictType[path]):\n        model.state_dict()", "the type is", id="by name"
    ),
    pytest.param("with FSDP.state_dict_type(*path):\n        model.state_dict()", "`*args`", id="star"),
    pytest.param(
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, path):\n        model.state_dict()",
        "the config is",
        id="config that run time makes",
    ),
    pytest.param(
        f"with {FULL}:\n        model.state_dict(prefix='m.')", "takes arguments of its own", id="prefix of the keys"
    ),
    pytest.param(
        f"with {FULL}:\n        o = FSDP.optim_state_dict_to_load(model, optimizer, path)\n    return o",
        "not loaded in one place",
        id="what is to be loaded is returned",
    ),
    pytest.param(
        f"with {FULL}:\n        o = FSDP.optim_state_dict_to_load(model, optimizer, path)\n    rank.load_state_dict(o)",
        "another optimizer",
        id="what is to be loaded goes into another optimizer",
    ),
]


@pytest.mark.parametrize(("statement", "words"), REFUSED)
def test_refused_and_raises(statement: str, words: str) -> None:
    result = check_marked(HEAD + f"    {statement}\n", "FM301", Level.MANUAL, words)
    assert RAISES in result.text


def test_code_that_reads_state_dicts_itself_is_not_called_from_a_body() -> None:
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
    check_marked(text, "FM301", Level.MANUAL, "self.state")


def test_settings_for_good_are_refused() -> None:
    text = HEAD + "    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)\n    return model.state_dict()\n"
    result = check_marked(text, "FM302", Level.MANUAL, "set_state_dict_type")
    assert [(f.rule, f.level) for f in result.findings if f.rule == "FM304"] == [("FM304", Level.MANUAL)]
    assert "    return model.state_dict()\n" in result.text
