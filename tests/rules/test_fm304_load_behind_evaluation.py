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


def test_an_evaluation_by_a_function_of_the_file() -> None:
    evaluate = "def evaluate():\n        with torch.no_grad():\n            model(batches[0])\n"
    lines = _lines(f"{evaluate}    evaluate()")
    assert lines[lines.index("model.reshard()") + 1].startswith("set_model_state_dict(")


def test_what_may_be_no_module() -> None:
    """What loads otherwise keeps its own method; an FSDP2 model that is still whole says so."""
    maybe = code(PROGRAM).replace("    model = FSDP(net)", "    model = FSDP(net) if best else Other()")
    other = "class Other:\n    def load_state_dict(self, state):\n        pass\n\n\n"
    text = maybe.replace("def main", f"{other}def main").replace(
        "{evaluation}", "with torch.no_grad():\n        model(batches[0])"
    )
    after = rewrite(text).text
    assert "if isinstance(model, nn.Module):" in after
    assert "set_model_state_dict(" in after


def test_what_a_context_manager_loads_when_its_block_is_left() -> None:
    """The weights of an average are evaluated in the block, and the model's own come back behind it."""
    text = code(
        """
        import torch
        from contextlib import contextmanager
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


        @contextmanager
        def averaged(model, average):
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                model.load_state_dict(average)
            yield
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                model.load_state_dict(torch.load("own.pt"))


        @torch.no_grad()
        def evaluate(model, batch):
            return model(batch)


        def main(net, average, batch):
            model = FSDP(net)
            model(batch).sum().backward()
            with averaged(model, average):
                evaluate(model, batch)
        """
    )
    lines = [line.strip() for line in rewrite(text).text.split("\n")]
    at = lines.index("model.reshard()")
    assert "yield" in lines[:at]
    assert "set_model_state_dict(" in " ".join(lines[at:])
    assert "reshard" not in " ".join(lines[: lines.index("yield")])
