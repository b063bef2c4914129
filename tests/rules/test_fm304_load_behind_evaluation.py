"""A load behind an evaluation, which leaves the root's parameters whole."""

from __future__ import annotations

from tests.helpers import code, rewrite

PROGRAM = """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def main(net, batches, best):
        model = FSDP(net)
        optimizer = torch.optim.AdamW(model.parameters())
        for batch in batches:
            model(batch).sum().backward()
            optimizer.step()
        {evaluation}
        model.load_state_dict(best)
"""


def _lines(evaluation: str) -> list[str]:
    after = rewrite(code(PROGRAM).replace("{evaluation}", evaluation)).text
    return [line.strip() for line in after.split("\n")]


def test_no_evaluation() -> None:
    assert "model.reshard()" not in _lines("pass")


def test_it_is_sharded_again_before_the_load() -> None:
    lines = _lines("with torch.no_grad():\n        print(model(batches[0]))")
    assert lines[lines.index("model.reshard()") + 1].startswith("set_model_state_dict(")
