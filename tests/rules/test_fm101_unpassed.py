"""FM101: parameters of the wrapping function that no call passes, and that cost a function each, go."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite

HEAD = """\
from functools import partial

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


"""
DEFINITION = """\
def shard_model(model, device_id, process_group=None, sharding_strategy=ShardingStrategy.FULL_SHARD, sync=True):
    return FSDP(
        model, process_group=process_group, sharding_strategy=sharding_strategy, sync_module_states=sync
    )


"""


def test_what_no_call_passes_is_its_default_and_goes() -> None:
    result = rewrite(
        HEAD + DEFINITION + "def main(net):\n    shard = partial(shard_model, device_id=0)\n    return shard(net)\n"
    )
    assert result.text == code(
        """
        from functools import partial

        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard


        def shard_model(model, device_id, *, sync=True):
            if sync:
                for tensor in (*model.parameters(), *model.buffers()):
                    dist.broadcast(tensor.detach(), src=0)
            return fully_shard(model)


        def main(net):
            shard = partial(shard_model, device_id=0)
            return shard(net)
        """
    )
    (found,) = [finding for finding in result.findings if finding.rule == "FM101"]
    assert found.level is Level.REVIEW
    assert "`process_group`, `sharding_strategy` of shard_model go" in found.message


PASSED = {
    "by keyword": "    return shard_model(net, 0, sharding_strategy=choose())\n",
    "by place": "    return shard_model(net, 0, None, choose())\n",
    "into a partial": "    shard = partial(shard_model, sharding_strategy=choose())\n    return shard(net, 0)\n",
    "spread": "    return shard_model(net, 0, **choose())\n",
    "spread by place": "    return shard_model(*choose())\n",
    "as a value": "    return choose(shard_model)(net)\n",
}


@pytest.mark.parametrize("name", PASSED)
def test_what_a_call_may_pass_stays(name: str) -> None:
    text = rewrite(HEAD + DEFINITION + f"def main(net):\n{PASSED[name]}").text
    assert "sharding_strategy=ShardingStrategy.FULL_SHARD, sync=True):" in text


def test_a_function_that_the_program_never_calls_keeps_its_parameters() -> None:
    assert "sharding_strategy=ShardingStrategy.FULL_SHARD, sync=True):" in rewrite(HEAD + DEFINITION).text


@pytest.mark.parametrize(
    ("strategy", "asks"), [("FULL_SHARD", False), ("HYBRID_SHARD", False), ("SHARD_GRAD_OP", True), ("NO_SHARD", True)]
)
def test_a_parameter_that_something_else_reads_stays(strategy: str, asks: bool) -> None:
    read = DEFINITION.replace("    return FSDP", "    print(sharding_strategy, process_group)\n    return FSDP")
    read = read.replace("FULL_SHARD", strategy).replace(
        "        model,", "        model.cuda(), auto_wrap_policy=choose,"
    )
    result = rewrite(HEAD + read + "def main(net):\n    return shard_model(net, 0)\n")
    assert f"sharding_strategy=ShardingStrategy.{strategy}, sync=True):" in result.text
    (found,) = [finding for finding in result.findings if finding.rule == "FM101"]
    named = "`process_group` of shard_model stays, and changes" if asks else "`process_group`, `sharding_strategy` of "
    assert named in found.message, "what is asked no more is said"


IGNORED = """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def shard(model, ignored_modules=None):
        if ignored_modules is None:
            ignored_modules = []
        return FSDP(model, ignored_modules=ignored_modules)


    def train(model):
        model = shard(model)
        model.clip_grad_norm_(1.0)
    """


def test_modules_that_nobody_passes_to_be_ignored() -> None:
    result = rewrite(code(IGNORED))
    assert "def shard(model):\n    return fully_shard(model)\n" in result.text
    assert "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in result.text
    assert not result.support


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shard(model)\n", "shard(model, [model.head])\n"),
        ("ignored_modules = []", "ignored_modules = [model.head]"),
        ("        return FSDP", "        ignored_modules.append(model.head)\n        return FSDP"),
    ],
)
def test_modules_that_may_be_ignored(old: str, new: str) -> None:
    assert "ignored_params=" in rewrite(code(IGNORED.replace(old, new))).text


REST = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def _wrap(model, **kwargs):
    return FSDP(model, limit_all_gathers=True, **kwargs)


def wrap(model, **options):
    return _wrap(model, **options)


def main(net):
"""


def test_what_no_call_hands_over_goes_on_to_fully_shard() -> None:
    result = rewrite(REST + "    return wrap(net)\n")
    assert "    return fully_shard(model, **kwargs)\n" in result.text
    (found,) = [finding for finding in result.findings if finding.rule == "FM101"]
    assert found.level is Level.REVIEW
    assert "`**kwargs`, by which no call of the program passes anything, goes to fully_shard" in found.message


UNREAD = "    unread = [name for name, value in kwargs.items() if value is not None and name not in known]\n"
HANDED_OVER = {
    "by keyword": "    return wrap(net, cpu_offload=None)\n",
    "by a dict": "    return wrap(net, **read())\n",
    "by a partial": "    return partial(wrap, net)\n",
    "as a value": "    return apply(wrap, net)\n",
}


@pytest.mark.parametrize("line", HANDED_OVER.values(), ids=HANDED_OVER.keys())
def test_what_is_handed_over_is_fsdp1s(line: str) -> None:
    text = rewrite(REST + line).text
    assert "shard_model(model, limit_all_gathers=True, **kwargs)" in text or UNREAD in text


def test_what_is_put_into_it_is_handed_over() -> None:
    text = REST.replace("    return FSDP", '    kwargs["device_id"] = 0\n    return FSDP') + "    return wrap(net)\n"
    assert "fully_shard(model, **kwargs)" not in rewrite(text).text
