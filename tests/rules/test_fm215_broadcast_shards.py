"""FM215: parameters of the modules of a wrapped model, broadcast over a group of the program's own."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, flat, rewrite

PROGRAM = """
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def share(model, group):
        for prefix, module in model.named_modules(prefix="", remove_duplicate=True):
            members = dict(module._parameters.items())
            for name, v in members.items():
                if v is not None:
                    dist.broadcast(v, {arguments})


    def main(net, group, flag):
        model = {model}
        share(model, group)
        return model
"""


def program(model: str = "FSDP(net)", arguments: str = "src=0, group=group") -> str:
    return code(PROGRAM.format(model=model, arguments=arguments))


@pytest.mark.parametrize("arguments", ["src=0, group=group", "0, group"])
def test_this_ranks_piece_is_broadcast(arguments: str) -> None:
    result = rewrite(program(arguments=arguments))
    assert f"dist.broadcast(v.detach().to_local(), {arguments})" in result.text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_a_broadcast_by_names_in_a_numbered_loop() -> None:
    text = (
        program()
        .replace("in members.items()", "in enumerate(members.items())")
        .replace("for name, v", "for i, (name, v)")
    )
    result = rewrite(text.replace("dist.broadcast(v,", "dist.broadcast(tensor=v,"))
    assert "dist.broadcast(tensor=v.detach().to_local(), src=0, group=group)" in result.text


@pytest.mark.parametrize("model", ["FSDP(net) if flag else net", "FSDP(net, ignored_modules=[net.head])"])
def test_what_may_be_plain_is_asked(model: str) -> None:
    result = rewrite(program(model))
    broadcast = "dist.broadcast(v.detach().to_local() if isinstance(v, DTensor) else v, src=0, group=group)"
    assert broadcast in flat(result.text)
    assert "from torch.distributed.tensor import DTensor\n" in result.text


@pytest.mark.parametrize(("model", "arguments"), [("net", "src=0, group=group"), ("FSDP(net)", "src=0")])
def test_other_broadcasts_stay(model: str, arguments: str) -> None:
    assert f"dist.broadcast(v, {arguments})" in rewrite(program(model, arguments)).text
