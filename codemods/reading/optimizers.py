"""Which calls make an optimizer, by the words that programs have for it."""

from __future__ import annotations

import re

import libcst as cst

from codemods.api import Context
from codemods.reading.places import place

_OPTIMIZER = re.compile(r"optim|adam|sgd|lion|adagrad|rmsprop|shampoo|lamb\b|muon", re.IGNORECASE)
_NOT_ONE = re.compile(
    r"sched|zero_grad|optim_state_dict|\.step$|load_state_dict|\.(?:add_param_group|append|extend|update|add)$",
    re.IGNORECASE,
)
_NAMED_SO = re.compile(r"(?:^|[._])opt(?:im\w*|s|_\w+)?$", re.IGNORECASE)


def names_optimizer(text: str) -> bool:
    """Whether a text names an optimizer at all."""
    return bool(_OPTIMIZER.search(text))


def is_optimizer(ctx: Context, call: cst.Call) -> bool:
    """`torch.optim.AdamW(...)`, `getattr(torch.optim, name)(...)`, `build_optimizer(...)`; a scheduler is none."""
    text = ctx.code(call.func)
    return names_optimizer(text) and not _NOT_ONE.search(text)


def is_bound_to_optimizer(ctx: Context, call: cst.Call) -> bool:
    """`opt = make(net.parameters())`: what is made of parameters and called an optimizer is one."""
    target = ctx.parent(call)
    names = [place(each.target) for each in target.targets] if isinstance(target, cst.Assign) else []
    return any(name is not None and _NAMED_SO.search(name) for name in names)
