"""FM315: fvcore's `Checkpointer` of a sharded model."""

from __future__ import annotations

import pytest

from ..helpers import rewrite

TEXT = """\
import torch
from fvcore.common.checkpoint import Checkpointer
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


class Own(Checkpointer):
    def save(self, path):
        with FSDP.state_dict_type(self.model, StateDictType.{kind}):
            torch.save(self.model.state_dict(), path)

    def {method}(self, path):
        return self._load_model(torch.load(path))


def main(net, path):
    model = FSDP(net)
    return {made}
"""


@pytest.mark.parametrize(
    ("made", "kind", "method", "said"),
    [
        ("Own(model, path)", "FULL_STATE_DICT", "load", "loads"),
        ("Own(model, path)", "FULL_STATE_DICT", "_load_model", ""),
        ("Own(model, path)", "LOCAL_STATE_DICT", "load", ""),
        ("Own(nn.Linear(4, 4), path), model", "FULL_STATE_DICT", "load", ""),
        ("Checkpointer(model, path)", "LOCAL_STATE_DICT", "load", "saves"),
        ("Checkpointer(nn.Linear(4, 4), path), model", "LOCAL_STATE_DICT", "load", ""),
    ],
)
def test_what_the_library_does_itself(made: str, kind: str, method: str, said: str) -> None:
    """Its load raises for DTensors, and its save would write one rank's shards without a word."""
    result = rewrite(TEXT.format(kind=kind, method=method, made=made))
    found = [finding.message for finding in result.findings if finding.rule == "FM315"]
    assert len(found) == bool(said)
    assert all(f"fvcore's Checkpointer {said} " in message for message in found)
    assert ("raise NotImplementedError(" in result.text) == (said == "saves")


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_load_in_the_full_context_is_rewritten_and_not_asked_for(is_seen: bool) -> None:
    load = (
        "with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT):\n            return super().load(path)"
    )
    text = TEXT.format(kind="FULL_STATE_DICT", method="load", made="Own(model, path)")
    result = rewrite(text.replace("return self._load_model(torch.load(path))", load if is_seen else "return path"))
    assert sum(finding.rule == "FM315" for finding in result.findings) == (not is_seen)
    assert ("with full_state_loads(self.model):" in result.text) == is_seen
