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

# What is done with the wrapped model

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
