"""FM447: parameters that are told apart by their pointers."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite

HEAD = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"

LEFT = {
    "before the wrap": """\
        def count(net):
            pointers = {p.data_ptr() for p in net.parameters()}
            return FSDP(net), len(pointers)
        """,
    "of what is gathered": """\
        def save(net):
            model = FSDP(net)
            state = model.state_dict()
            return {value.data_ptr() for value in state.values()}
        """,
    "of a batch": """\
        def run(net, batch):
            model = FSDP(net)
            return model(batch), batch.data_ptr()
        """,
}
FOUND = {
    "in a comprehension": """\
        def pointers(net):
            model = FSDP(net)
            return [p.data_ptr() for p in model.parameters()]
        """,
    "in a loop, of the data": """\
        def pointers(net):
            model = FSDP(net)
            for name, p in model.named_parameters():
                print(name, p.data.data_ptr())
        """,
    "of a named parameter": """\
        def is_tied(net):
            model = FSDP(net)
            return model.head.weight.data_ptr() == model.embedding.weight.data_ptr()
        """,
    "in a function that is handed the model": """\
        def pointers(module):
            return {p.data_ptr() for p in module.parameters()}


        def main(net):
            model = FSDP(net)
            return pointers(model)
        """,
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_other_pointers_are_left_alone(text: str) -> None:
    assert "FM447" not in {finding.rule for finding in rewrite(HEAD + code(text)).findings}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_a_pointer_of_a_sharded_parameter_needs_a_person(text: str) -> None:
    found = [finding for finding in rewrite(HEAD + code(text)).findings if finding.rule == "FM447"]
    assert found
    assert {finding.level for finding in found} == {Level.MANUAL}
