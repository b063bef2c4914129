"""What stands around the wrap, and what is done with the wrapped model: a whole small program for each thing.

To add one, add an entry: a name and a program that defines `main(batches)`, which trains and returns the wrapped model
and the losses. The programs take `Plain` and `Block` from `models`, and `train` for a step as everybody writes it.
"""

from __future__ import annotations

from textwrap import dedent

HEAD = """\
import copy
import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from models import Block, Frozen, Plain, Tied


def train(model, optimizer, batches, scheduler=None):
    losses = []
    for x in batches:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


"""

ROWS: dict[str, str] = {}


def row(name: str, text: str) -> None:
    ROWS[name] = HEAD + dedent(text).strip() + "\n"


# Optimizers from before the wrap

row(
    "optimizer before",
    """
    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer, scheduler and clipped list before",
    """
    def main(batches):
        model = Plain()
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        losses = []
        for x in batches:
            loss = model(x).square().mean()
            loss.backward()
            model.clip_grad_norm_(0.1)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert len(parameters) == len(list(model.parameters()))
        return model, losses
    """,
)
row(
    "groups by dimension before",
    """
    def main(batches):
        model = Plain()
        decay, others = [], []
        for p in model.parameters():
            if p.ndim >= 2:
                decay.append(p)
            else:
                others.append(p)
        optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}], lr=0.1
        )
        model = FSDP(model, use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer passed in",
    """
    def fit(net, optimizer, batches):
        net = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return net, train(net, optimizer, batches)


    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return fit(model, optimizer, batches)
    """,
)
row(
    "optimizer passed through",
    """
    def prepare(net, optimizer):
        return FSDP(net, use_orig_params=True), optimizer


    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        model, optimizer = prepare(model, optimizer)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer of a trainer",
    """
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1, weight_decay=0.5)
            self.wrap()

        def wrap(self):
            self.model = FSDP(self.model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)


    def main(batches):
        trainer = Trainer(Plain())
        return trainer.model, train(trainer.model, trainer.optimizer, batches)
    """,
)
row(
    "optimizer before, changed in between",
    """
    def widen(model):
        model.out = torch.nn.Sequential(model.out, torch.nn.Linear(1, 1))


    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        widen(model)
        optimizer.add_param_group({"params": list(model.out[1].parameters()), "lr": 0.01})
        model = FSDP(model, use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer before, blocks wrapped one by one",
    """
    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        for index, block in enumerate(model.blocks):
            model.blocks[index] = FSDP(block, use_orig_params=True)
        model = FSDP(model, use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "two models, one optimizer before",
    """
    def main(batches):
        first, second = Plain(), Plain()
        optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()], lr=0.1, weight_decay=0.5)
        first = FSDP(first, use_orig_params=True)
        second = FSDP(second, use_orig_params=True)
        losses = []
        for x in batches:
            loss = (first(x) - second(2 * x)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return torch.nn.ModuleList([first, second]), losses
    """,
)
row(
    "groups from a function before",
    """
    def groups(model):
        decay = [p for name, p in model.named_parameters() if "bias" not in name]
        others = [p for name, p in model.named_parameters() if "bias" in name]
        return [{"params": decay, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}]


    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(groups(model), lr=0.1)
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer and model from one function",
    """
    def build():
        model = Plain()
        return model, torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)


    def main(batches):
        model, optimizer = build()
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer of parts from before",
    """
    def main(batches):
        model = Plain()
        head = model.out
        weight = model.inp.weight
        optimizer = torch.optim.AdamW([{"params": head.parameters()}, {"params": [weight], "lr": 0.01}], lr=0.1)
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
TRAINER = """
    class Trainer:
        def __init__(self, model):
            self.model = model
            parameters = [p for p in model.parameters() if p.requires_grad]
            self.optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

        def wrap(self):
            self.model = FSDP(self.model, use_orig_params=True)

        def train(self, batches):
            losses = []
            for x in batches:
                loss = self.model(x).square().mean()
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                losses.append(loss.item())
            return losses


    def main(batches):
        model = Plain()
        trainer = Trainer(model)
        {between}
        return trainer.model, trainer.train(batches)
"""
row(
    "optimizer of an object from before",
    TRAINER.format(between="trainer.model = FSDP(model, use_orig_params=True)"),
)
row(
    "optimizer of an object that is told to wrap",
    TRAINER.format(between="trainer.wrap()"),
)

# Optimizers, and how they group

for kind in ("SGD", "ASGD", "Adam", "NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta", "Adagrad"):
    row(
        kind,
        f"""
        def main(batches):
            model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({{Block}}), use_orig_params=True)
            optimizer = torch.optim.{kind}(model.parameters(), lr=0.01)
            return model, train(model, optimizer, batches)
        """,
    )
row(
    "groups by name",
    """
    def main(batches):
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        others = [p for n, p in model.named_parameters() if "bias" in n or "norm" in n]
        decay = [p for n, p in model.named_parameters() if not ("bias" in n or "norm" in n)]
        optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}], lr=0.1
        )
        return model, train(model, optimizer, batches)
    """,
)

row(
    "fused AdamW",
    """
    def main(batches):
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5, fused=True)
        return model, train(model, optimizer, batches)
    """,
)

# Averages of the parameters

row(
    "average of the shards",
    """
    def main(batches):
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        average = {name: p.detach().clone() for name, p in model.named_parameters()}
        losses = train(model, optimizer, batches)
        for name, p in model.named_parameters():
            average[name].mul_(0.9).add_(p.detach(), alpha=0.1)
            p.data.copy_(average[name])
        return model, losses
    """,
)
row(
    "average by a sharded copy from before",
    """
    def main(batches):
        net = Plain()
        average = copy.deepcopy(net).requires_grad_(False)
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        average = FSDP(average, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = train(model, optimizer, batches)
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters()):
                old.lerp_(new, 0.5)
        return torch.nn.ModuleList([model, average]), losses
    """,
)
row(
    "average over a list from before",
    """
    def main(batches):
        model = Plain()
        parameters = [p for p in model.parameters() if p.requires_grad]
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        average = [p.detach().clone() for p in parameters]
        losses = train(model, optimizer, batches)
        torch._foreach_lerp_(average, [p.detach() for p in parameters], 0.5)
        for p, value in zip(parameters, average):
            p.data.copy_(value)
        return model, losses
    """,
)

# Activation checkpointing and torch.compile, in either order

CHECKPOINTING = """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )


    def main(batches):
        model = Plain()
        {before}
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({{Block}}), use_orig_params=True)
        {after}
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
"""
APPLY = "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))"
row("activation checkpointing after", CHECKPOINTING.format(before="model.train()", after=APPLY))
row("activation checkpointing before", CHECKPOINTING.format(before=APPLY, after="model.train()"))
row(
    "activation checkpointing before, units of its wrappers",
    CHECKPOINTING.replace("checkpoint_wrapper,\n    )", "CheckpointWrapper,\n    )")
    .replace("ModuleWrapPolicy({{Block}})", "ModuleWrapPolicy({{CheckpointWrapper}})")
    .format(before=APPLY, after="model.train()"),
)
row(
    "activation checkpointing of the units",
    CHECKPOINTING.format(
        before="model.train()",
        after="apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, FSDP))",
    ),
)
row(
    "activation checkpointing after, in bf16",
    CHECKPOINTING.replace(
        "ModuleWrapPolicy({{Block}})",
        "ModuleWrapPolicy({{Block}}), mixed_precision=MixedPrecision(torch.bfloat16, torch.float32)",
    )
    .replace("\n    from torch.dist", "\n    from torch.distributed.fsdp import MixedPrecision\n    from torch.dist", 1)
    .format(before="model.train()", after=APPLY),
)
COMPOSABLE = """
    from torch.distributed._composable import checkpoint


    def main(batches):
        model = Plain()
        {before}
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({{Block}}), use_orig_params=True)
        {after}
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
    """
EACH = "[checkpoint(block) for block in model.modules() if isinstance(block, Block)]"
row("composable checkpoint before", COMPOSABLE.format(before=EACH, after="model.train()"))
row("composable checkpoint after", COMPOSABLE.format(before="model.train()", after=EACH))
for kind in ("True", "False"):
    row(
        f"activation checkpointing in forward, use_reentrant={kind}",
        f"""
        from torch.utils.checkpoint import checkpoint


        class Saving(Plain):
            def forward(self, x):
                x = self.inp(x)
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant={kind})
                return self.out(x)


        def main(batches):
            model = FSDP(Saving(), auto_wrap_policy=ModuleWrapPolicy({{Block}}), use_orig_params=True)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
            return model, train(model, optimizer, batches)
        """,
    )
row(
    "compiled before",
    """
    def main(batches):
        model = torch.compile(Plain(), backend="eager")
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "compiled after",
    """
    def main(batches):
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        compiled = torch.compile(model, backend="eager")
        return model, train(compiled, optimizer, batches)
    """,
)
row(
    "blocks compiled before",
    """
    def main(batches):
        model = Plain()
        for block in model.blocks:
            block.compile(backend="eager")
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
    """,
)

# Tied, frozen and several

row(
    "tied weights in one unit",
    """
    def main(batches):
        model = FSDP(Tied(), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)  # `table` gets no gradient
        return model, train(model, optimizer, batches)
    """,
)
row(
    "frozen before",
    """
    def main(batches):
        model = FSDP(Frozen(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "frozen after",
    """
    def main(batches):
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        for name, p in model.named_parameters():
            if "norm" in name:
                p.requires_grad = False
        optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)
        return model, train(model, optimizer, batches)
    """,
)

row(
    "frozen, and an optimizer of all",
    """
    def main(batches):
        model = FSDP(Frozen(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
    """,
)

# Shapes, dtypes and outputs

row(
    "a parameter of one element, and units of two dtypes",
    """
    class Mixed(Plain):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((1,), 0.5))
            self.blocks[1].double()

        def forward(self, x):
            x = self.inp(x) * self.scale
            for block in self.blocks:
                x = block(x)
            return self.out(x.float())


    def main(batches):
        model = FSDP(Mixed(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, train(model, optimizer, batches)
    """,
)
OUTPUTS = """
    import dataclasses
    from collections import OrderedDict, namedtuple

    Pair = namedtuple("Pair", ["out", "size"])


    @dataclasses.dataclass
    class Made:
        out: torch.Tensor
        size: int


    class Telling(Block):
        def forward(self, x):
            out = super().forward(x)
            return {made}


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = torch.nn.Linear(8, 12)
            self.block = Telling()
            self.out = torch.nn.Linear(12, 1)

        def forward(self, x):
            return self.out(self.block(self.inp(x)){taken})


    def main(batches):
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({{Telling}}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
"""
for made, taken in (
    ("(out, 1)", "[0]"),
    ("Pair(out, 1)", ".out"),
    ("OrderedDict(out=out)", '["out"]'),
    ("Made(out, 1)", ".out"),
):
    row(f"a unit that returns {made}", OUTPUTS.format(made=made, taken=taken))
row(
    "ranks that use different parameters",
    """
    class Branching(Plain):
        def forward(self, x):
            return self.out(self.blocks[torch.distributed.get_rank()](self.inp(x)))


    def prepare(model, ddp=False):
        if ddp:
            return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        return FSDP(model, use_orig_params=True)


    def main(batches):
        model = prepare(Branching())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
    """,
)

for torch_only, kind in (("if x.sum() > 0:", "some batches"), ("if x is not None:", "all batches")):
    row(
        f"a layer that {kind} use",
        f"""
        class Choosing(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inp = torch.nn.Linear(8, 6)
                self.extra = torch.nn.Linear(8, 6)
                self.out = torch.nn.Linear(6, 1)

            def forward(self, x):
                hidden = self.inp(x)
                {torch_only}
                    hidden = hidden + self.extra(x)
                return self.out(torch.tanh(hidden))


        def main(batches):
            model = FSDP(Choosing(), use_orig_params=True)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
            return model, train(model, optimizer, batches)
        """,
    )

# What is done with the wrapped model

row(
    "initialised after",
    """
    def init(module):
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=0.3)
            module.bias.data.fill_(0.1)


    def main(batches):
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        torch.manual_seed(5)
        model.apply(init)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "a model and its layers that are abstract first",
    """
    from abc import ABC
    from typing import Generic, TypeVar

    T = TypeVar("T")


    class Layer(ABC, torch.nn.Linear):
        pass


    class Net(Generic[T], torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = Layer(8, 6)
            self.out = Layer(6, 1)

        def forward(self, x):
            return self.out(torch.tanh(self.inp(x)))


    def main(batches):
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Layer}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "a method that runs units only",
    """
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(Block(8), Block(8))

        def encode(self, x):
            return self.body(x)

        def forward(self, x):
            return self.encode(x)


    def main(batches):
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = train(model, optimizer, batches)
        with torch.no_grad():
            return model, losses + [model.encode(x).sum().item() for x in batches]
    """,
)
row(
    "a slice of a sharded Sequential",
    """
    def main(batches):
        net = torch.nn.Sequential(Block(8), Block(8), torch.nn.Linear(8, 1))
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        front = model.module[:2]
        assert type(front) is torch.nn.Sequential
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = train(model, optimizer, batches)
        with torch.no_grad():
            return model, losses + [front(x).sum().item() for x in batches]
    """,
)
row(
    "in a comprehension",
    """
    def main(batches):
        models = [FSDP(Plain(), use_orig_params=True) for _ in range(2)]
        optimizer = torch.optim.AdamW([p for model in models for p in model.parameters()], lr=0.1, weight_decay=0.5)
        losses = []
        for x in batches:
            loss = (models[0](x) - models[1](2 * x)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return torch.nn.ModuleList(models), losses
    """,
)
row(
    "wrapped and called in one expression",
    """
    def main(batches):
        net = Plain()
        first = FSDP(net, use_orig_params=True)(torch.ones(2, 8)).sum().item()
        model = FSDP(Plain(), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, [first, *train(model, optimizer, batches)]
    """,
)

row(
    "forward, module and names",
    """
    def main(batches):
        net = Plain()
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        assert len(model.module.blocks) == 3
        assert sum(isinstance(module, FSDP) for module in model.modules()) == 4
        names = [name.replace("_fsdp_wrapped_module.", "") for name, _ in model.named_parameters()]
        assert "blocks.0.up.weight" in names
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = []
        for x in batches:
            loss = model.forward(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return model, losses
    """,
)
row(
    "kept in a dict",
    """
    def main(batches):
        models = {"actor": FSDP(Plain(), use_orig_params=True)}
        optimizer = torch.optim.AdamW(models["actor"].parameters(), lr=0.1, weight_decay=0.5)
        return models["actor"], train(models["actor"], optimizer, batches)
    """,
)
