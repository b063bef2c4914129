"""Optimizers that programs use: by the module they come from, and by the names of their classes."""

from __future__ import annotations

MODULES = (
    "adam_mini.",
    "apex.optimizers.",
    "bitsandbytes.optim.",
    "colossalai.nn.optimizer.",
    "dadaptation.",
    "deepspeed.ops.adam.",
    "deepspeed.ops.lamb.",
    "galore_torch.",
    "heavyball.",
    "lion_pytorch.",
    "prodigyopt.",
    "pytorch_optimizer.",
    "schedulefree.",
    "timm.optim.",
    "torch.distributed.optim.",
    "torch.optim.",
    "torch_optimizer.",
    "torchao.optim.",
    "torchao.prototype.low_bit_optim.",
    "transformers.optimization.",
)
ALONE = ("schedulefree.",)
"""Those of them that have nothing else, whatever the words of a name: `AdamWScheduleFree` is no schedule."""

OTHERS = (
    "torch.optim.lr_scheduler.",
    "torch.optim.swa_utils.",
    "torch.optim.Optimizer.",
    "timm.optim.optim_factory.param",
)
"""What those modules have that is no optimizer."""

BY_DIMENSION = frozenset(
    {
        "add_weight_decay",
        "create_optimizer",
        "create_optimizer_v2",
        "param_groups_layer_decay",
        "param_groups_weight_decay",
    }
)
"""What timm has that takes a model, and puts its parameters of one dimension into a group without weight decay."""

NAMES = frozenset(
    {
        "ada",
        "adadelta",
        "adafactor",
        "adagrad",
        "adam",
        "adamax",
        "adamw",
        "adan",
        "asgd",
        "lamb",
        "lars",
        "lion",
        "muon",
        "nadam",
        "optim",
        "optimizer",
        "optimizers",
        "prodigy",
        "radam",
        "rmsprop",
        "rprop",
        "sgd",
        "shampoo",
        "sophia",
    }
)
"""Words by which programs and libraries call what makes an optimizer."""

NOT_ONE = frozenset(
    {
        "add",
        "append",
        "config",
        "extend",
        "group",
        "load",
        "lr",
        "param",
        "params",
        "parameters",
        "save",
        "sched",
        "schedule",
        "scheduler",
        "schedulers",
        "state",
        "step",
        "update",
        "zero",
    }
)
"""Words of what is done with optimizers, or for them."""

BOUND = frozenset({"opt", "opts", "optim", "optims", "optimizer", "optimizers"})
"""Words of the names to which programs bind an optimizer."""
