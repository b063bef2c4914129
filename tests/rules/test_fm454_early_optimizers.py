"""FM454: optimizers of a model that is wrapped, which come to the wrap on ways that are not followed."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite

HEAD = code(
    """
    import torch
    from torch import nn
    from torch.optim import Adam
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    """
)
NOT_SEEN = {
    "of a model that a function keeps": """
        NET = None


        def build(size):
            global NET
            if NET is None:
                NET = nn.Linear(size, size)
            return NET


        def wrap(net):
            return FSDP(net, use_orig_params=True)


        def main(size):
            net = build(size)
            optimizer = Adam(net.parameters())
            return finish(size), optimizer


        def finish(size):
            return wrap(build(size))
        """,
    "in one object with the model": """
        from types import SimpleNamespace


        def main():
            net = nn.Linear(2, 2)
            state = SimpleNamespace(model=net, optimizer=Adam(net.parameters()))
            state.model = FSDP(state.model, use_orig_params=True)
            return state
        """,
    "in one dict": """
        def main():
            net = nn.Linear(2, 2)
            state = {"model": net, "optimizer": Adam(net.parameters())}
            state["model"] = FSDP(state["model"], use_orig_params=True)
            return state
        """,
    "in a base class, by a method": """
        class Base:
            def __init__(self):
                self.net = nn.Linear(2, 2)
                self.optimizer = self.build()

            def build(self):
                return Adam(self.net.parameters())


        class Sharded(Base):
            def __init__(self):
                super().__init__()
                self.net = FSDP(self.net, use_orig_params=True)
        """,
    "of groups that a library makes": """
        from timm.optim.optim_factory import param_groups_weight_decay


        def main():
            net = nn.Linear(2, 2)
            groups = param_groups_weight_decay(net, 0.1)
            optimizer = Adam(groups)
            return FSDP(net, use_orig_params=True), optimizer
        """,
    "among what is wrapped, of a list": """
        def prepare(objects):
            return [FSDP(each, use_orig_params=True) if isinstance(each, nn.Module) else each for each in objects]


        def main():
            net = nn.Linear(2, 2)
            return prepare([net, Adam(net.parameters())])
        """,
    "in a function inside": """
        def main():
            net = nn.Linear(2, 2)
            optimizer = Adam(net.parameters())

            def wrap():
                nonlocal net
                net = FSDP(net, use_orig_params=True)

            wrap()
            return net, optimizer
        """,
}
SEEN = {
    "of another model that the same function makes": """
        def build(size):
            return nn.Linear(size, size)


        def alone(size):
            net = build(size).to("cuda")
            return net, Adam(net.parameters())


        def wrap(net):
            return FSDP(net)


        def sharded(size):
            return wrap(build(size))
        """,
    "below, of the module inside": """
        def main():
            net = nn.Linear(2, 2)
            wrapped = FSDP(net)
            return wrapped, Adam(net.parameters())
        """,
    "below what wraps, calls further in": """
        class Sharded(nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = self.shard(net)

            def shard(self, net):
                return FSDP(net)


        def by_kind(net):
            return Sharded(net)


        def accelerate(net, is_sharded):
            if is_sharded:
                net = by_kind(net)
            return net


        def main(is_sharded):
            net = nn.Linear(2, 2)
            net = accelerate(net, is_sharded)
            return net, Adam(net.parameters())
        """,
    "below what wraps": """
        def wrap(net):
            return FSDP(net)


        def main():
            net = nn.Linear(2, 2)
            wrapped = wrap(net)
            return wrapped, Adam(net.parameters())
        """,
    "of the other way": """
        def main(args):
            net = nn.Linear(2, 2)
            if args.fsdp:
                net = FSDP(net)
                optimizer = Adam(net.parameters())
            else:
                optimizer = Adam(net.parameters())
            return net, optimizer
        """,
    "of a list that moves below": """
        def main():
            net = nn.Linear(2, 2)
            parameters = [p for p in net.parameters() if p.requires_grad]
            optimizer = Adam(parameters)
            return FSDP(net, use_orig_params=True), optimizer
        """,
    "of another model": """
        def main():
            net, other = nn.Linear(2, 2), nn.Linear(2, 2)
            optimizer = Adam(other.parameters())
            return FSDP(net), optimizer
        """,
    "of the model of an object that has wrapped it": """
        class Trainer:
            def __init__(self):
                self.net = nn.Linear(2, 2)
                self.net = FSDP(self.net)
                self.set_up()

            def set_up(self):
                self.optimizer = Adam(self.net.parameters())
        """,
}


@pytest.mark.parametrize("name", NOT_SEEN)
def test_what_may_be_built_above_the_wrap_needs_a_person(name: str) -> None:
    result = rewrite(HEAD + "\n" + code(NOT_SEEN[name]))
    assert [finding.level for finding in result.findings if finding.rule == "FM454"] == [Level.MANUAL]


@pytest.mark.parametrize("name", SEEN)
def test_what_is_built_below_it_does_not(name: str) -> None:
    assert "FM454" not in {finding.rule for finding in rewrite(HEAD + "\n" + code(SEEN[name])).findings}
