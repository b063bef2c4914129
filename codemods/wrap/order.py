"""What stands above the constructor call and must not: an optimizer of the parameters that sharding replaces.

FSDP1 with use_orig_params=True goes on training the parameters that were there before. FSDP2 puts new ones in their place, and an
optimizer that holds the old ones updates nothing, without an error (16 of 16 parameters, measured on torch 2.13).
"""

from __future__ import annotations

import re

import libcst as cst

from codemods.vocabulary import File

_READERS = frozenset({"parameters", "named_parameters"})
_OPTIMIZER = re.compile(r"optim|adam|sgd|lion|adagrad|rmsprop|shampoo|lamb|muon", re.IGNORECASE)


def has_optimizer_before(file: File, call: cst.Call, module: cst.BaseExpression) -> bool:
    """Whether an optimizer gets the module's parameters above the call, in the same function, also through a name."""
    name, here = file.code(module), file.span(call)[0]
    for other in file.calls(file.scope(call)):
        if file.span(other)[0] >= here or not isinstance(other.func, cst.Attribute):
            continue
        if other.func.attr.value in _READERS and file.code(other.func.value) == name and _reaches(file, other):
            return True
    return False


def _reaches(file: File, parameters: cst.Call) -> bool:
    for node in file.ancestors(parameters):
        if isinstance(node, cst.Call) and _is_optimizer(file, node):
            return True
        if isinstance(node, cst.Assign):
            return any(_is_used_by_optimizer(file, use) for use in file.uses(node))
        if isinstance(node, cst.BaseStatement):
            return False
    return False


def _is_used_by_optimizer(file: File, use: cst.Name) -> bool:
    return any(isinstance(node, cst.Call) and _is_optimizer(file, node) for node in file.ancestors(use))


def _is_optimizer(file: File, call: cst.Call) -> bool:
    """`torch.optim.AdamW(...)`, `getattr(torch.optim, name)(...)`, `build_optimizer(...)`; a scheduler is none."""
    text = file.code(call.func)
    return bool(_OPTIMIZER.search(text)) and "lr_scheduler" not in text and "zero_grad" not in text
