"""Constructs inside of others: the user's parentheses, calls in arguments of calls, several edits in one statement."""

from __future__ import annotations

import pytest

from ..helpers import code, meaning, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from net import Block


def use(net, other, path):
    model = FSDP(net)
"""
FULL = "options=StateDictOptions(full_state_dict=True)"
LOAD = "options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)"
CLIP = "torch.nn.utils.clip_grad_norm_"

CASES = [
    pytest.param("(model).clip_grad_norm_(1)", f"{CLIP}(model.parameters(), 1)", id="name in parentheses"),
    pytest.param(
        "(model if path else model).clip_grad_norm_((1))",
        f"{CLIP}((model if path else model).parameters(), 1)",
        id="conditional expression clipped",
    ),
    pytest.param(
        "x = (model or other).state_dict()",
        f"x = get_model_state_dict(model or other, {FULL})",
        id="or, then state_dict",
    ),
    pytest.param("x = (model).module, (model).forward(1)", "x = (model, model(1))", id="module and forward"),
    pytest.param("with (model).no_sync(): pass", "with unsynced(model):\n    pass", id="no_sync"),
    pytest.param("x = FSDP((other or net))", "x = fully_shard(other or net)", id="constructor"),
    pytest.param(
        "torch.save(FSDP(other).state_dict(), path)",
        f"torch.save(get_model_state_dict(fully_shard(other), {FULL}), path)",
        id="state_dict of a new model",
    ),
    pytest.param(
        "FSDP(other).clip_grad_norm_(1)", f"{CLIP}(fully_shard(other).parameters(), 1)", id="clipping a new model"
    ),
    pytest.param(
        "ema = FSDP(other); ema.load_state_dict(path(model.state_dict()))",
        f"ema = fully_shard(other)\nset_model_state_dict(ema, path(get_model_state_dict(model, {FULL})), {LOAD})",
        id="a state dict loaded into another model",
    ),
    pytest.param(
        "ema = FSDP(other); ema.load_state_dict(model.state_dict())",
        "ema = fully_shard(other)\nema.load_state_dict(model.state_dict())",
        id="a state dict that goes straight into another model",
    ),
    pytest.param("x = FSDP(FSDP(other))", "x = fully_shard(other)", id="constructor in a constructor"),
    pytest.param(
        "x = {'a': FSDP(other, use_orig_params=True), 'b': [FSDP(m) for m in path]}",
        "x = {'a': fully_shard(other), 'b': [fully_shard(m) for m in path]}",
        id="two in one statement",
    ),
    pytest.param(
        "x = model.clip_grad_norm_(model.clip_grad_norm_(1))",
        f"x = {CLIP}(model.parameters(), {CLIP}(model.parameters(), 1).full_tensor()).full_tensor()",
        id="clipping by a norm",
    ),
    pytest.param(
        "assert isinstance(model.module, FSDP)", "assert isinstance(model, FSDPModule)", id="class of the module"
    ),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_nested(before: str, after: str) -> None:
    result = rewrite(HEAD + f"    {before}\n")
    assert meaning(result.text.split("    model = fully_shard(net)\n")[1]) == meaning(after)


def test_two_calls_of_one_statement_that_need_statements_before_them() -> None:
    text = code(
        """
        |    policy = ModuleWrapPolicy({Block})
        |    return FSDP(net, auto_wrap_policy=policy), FSDP(other, auto_wrap_policy=policy), FSDP(path)
        """
    ).replace("|", "")
    result = rewrite(HEAD + text)
    assert "FSDP" not in result.text
    assert result.support <= {"ModuleWrapPolicy", "shard_model"}
