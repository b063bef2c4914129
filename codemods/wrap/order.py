"""What stands above the constructor call and must not: an optimizer of the parameters that sharding replaces.

FSDP1 with use_orig_params=True goes on training the parameters that were there before. FSDP2 puts new ones in their
place, and an optimizer that holds the old ones updates nothing, without an error (16 of 16 parameters, measured on
torch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.vocabulary import File

_READERS = frozenset({"parameters", "named_parameters"})
_OPTIMIZER = re.compile(r"optim|adam|sgd|lion|adagrad|rmsprop|shampoo|lamb|muon", re.IGNORECASE)
_NOT_ONE = re.compile(r"lr_scheduler|zero_grad|optim_state_dict|\.step$|load_state_dict|scheduler", re.IGNORECASE)
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def has_optimizer_before(file: File, call: cst.Call, module: cst.BaseExpression, depth: int = 2) -> bool:
    """Whether an optimizer gets the module's parameters above the call, by a name or in a calling function too."""
    name = _root_text(file, module)
    for other in _calls_above(file, call, name):
        if _gives_parameters_to_optimizer(file, other, name):
            return True
    if depth == 0:
        return False
    return any(
        has_optimizer_before(where, caller, argument, depth - 1)
        for where, caller, argument in file.passed_to(call, name)
    )


def keeps_parameters_from_before(file: File, call: cst.Call, module: cst.BaseExpression) -> bool:
    """Whether a dict or list of the module's parameters is kept above the call: an average of weights, say."""
    name = _root_text(file, module)
    for other in _calls_above(file, call, name):
        if isinstance(other.func, cst.Attribute) and other.func.attr.value in _READERS:
            if file.code(other.func.value) == name and _is_kept(file, other):
                return True
    return False


def _is_kept(file: File, parameters: cst.Call) -> bool:
    for node in file.ancestors(parameters):
        if isinstance(node, cst.Call) and file.code(node.func) not in {"dict", "list", "tuple"}:
            return False
        if isinstance(node, cst.GeneratorExp):
            return False
        if isinstance(node, cst.Assign):
            return isinstance(node.value, (cst.DictComp, cst.ListComp, cst.SetComp, cst.Call))
        if isinstance(node, (cst.BaseCompoundStatement, cst.SimpleStatementLine)):
            return False
    return False


def _calls_above(file: File, call: cst.Call, name: str) -> Iterator[cst.Call]:
    """The calls that run before this one: above it in its function, or at the top for a name from there."""
    here = file.span(call)[0]
    for other in file.calls(file.scope(call)):
        if file.span(other)[0] < here and not _is_on_another_way(file, other, call):
            yield other
    if not isinstance(file.scope(call), cst.Module) and not file.is_local(name.split(".")[0], call):
        yield from file.calls(file.top)


def _gives_parameters_to_optimizer(file: File, other: cst.Call, name: str) -> bool:
    if _is_optimizer(file, other):
        receiver = other.func.value if isinstance(other.func, cst.Attribute) else None
        texts = [file.code(argument.value) for argument in other.args]
        return name in texts or (receiver is not None and file.code(receiver) == name)
    if isinstance(other.func, cst.Attribute) and other.func.attr.value in _READERS:
        return file.code(other.func.value) == name and _reaches(file, other)
    return False


def _reaches(file: File, parameters: cst.Call) -> bool:
    for node in file.ancestors(parameters):
        if isinstance(node, cst.Call) and _is_optimizer(file, node):
            return True
        if isinstance(node, cst.Assign):
            return any(_is_used_by_optimizer(file, use) for use in file.uses(node))
        if isinstance(node, (cst.BaseCompoundStatement, cst.SimpleStatementLine)):
            return False
    return False


def _is_used_by_optimizer(file: File, use: cst.Name) -> bool:
    return any(isinstance(node, cst.Call) and _is_optimizer(file, node) for node in file.ancestors(use))


def _is_optimizer(file: File, call: cst.Call) -> bool:
    """`torch.optim.AdamW(...)`, `getattr(torch.optim, name)(...)`, `build_optimizer(...)`; a scheduler is none."""
    text = file.code(call.func)
    return bool(_OPTIMIZER.search(text)) and not _NOT_ONE.search(text)


def _is_on_another_way(file: File, other: cst.Call, call: cst.Call) -> bool:
    """Whether `other` stands in a branch that leaves the function before the call can be reached."""
    around = set(file.ancestors(call))
    for node in file.ancestors(other):
        if node in around:
            return False
        if isinstance(node, cst.IndentedBlock) and node.body and isinstance(node.body[-1], cst.SimpleStatementLine):
            if isinstance(node.body[-1].body[-1], _LEAVES):
                return True
    return False


def _root_text(file: File, module: cst.BaseExpression) -> str:
    """The text of the module itself: `net` in `net.cuda()`."""
    while isinstance(module, cst.Call) and isinstance(module.func, cst.Attribute):
        module = module.func.value
    return file.code(module)
