"""Reading `optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))`, in one statement or two.

An FSDP1 checkpoint (use_orig_params=False) shares one `step` tensor between parameters, and
`set_optimizer_state_dict` copies none: every parameter would count the same step, and Adam's bias correction would be
wrong without an error (measured on torch 2.13). `load_optim_state_dict` of the support module clones them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from codemods.vocabulary import Edit, File, Undecided

_ORDER = ("model", "optim", "optim_state_dict")


@dataclass(frozen=True)
class Loading:
    """The call that loads, what it loads where, and the statement that has nothing left to do."""

    load: cst.Call
    arguments: Mapping[str, cst.BaseExpression]
    emptied: tuple[cst.SimpleStatementLine, ...]

    def edit(self, file: File, function: str) -> Edit:
        """One call of `function(model, optimizer, state)` in place of the two."""
        texts = [file.code(self.arguments[name]) for name in _ORDER]
        return Edit(*file.span(self.load), f"{function}({', '.join(texts)})")


def optimizer_loading(node: cst.Call, file: File) -> Loading:
    """From the inner call. Raises Undecided when what it returns is not loaded in one place, by the same optimizer."""
    arguments = arguments_by_name(node)
    if set(arguments) != set(_ORDER):
        raise Undecided("optim_state_dict_to_load takes arguments that are not followed")
    load = _loading_call(node, file)
    optimizer = file.code(arguments["optim"])
    if file.code(cst.ensure_type(load.func, cst.Attribute).value) != optimizer:
        raise Undecided(f"the state made for `{optimizer}` is loaded into another optimizer")
    if any(ancestor is load for ancestor in file.ancestors(node)):
        return Loading(load, arguments, ())
    made_in = next(n for n in file.ancestors(node) if isinstance(n, cst.SimpleStatementLine))
    return Loading(load, arguments, (made_in,))


def arguments_by_name(node: cst.Call) -> Mapping[str, cst.BaseExpression]:
    """`(model, optim, optim_state_dict)` by position or name. Raises Undecided for anything else."""
    found = {}
    for index, argument in enumerate(node.args):
        if argument.star or index >= len(_ORDER):
            raise Undecided("an optimizer's state is read or loaded with arguments that are not followed")
        found[argument.keyword.value if argument.keyword is not None else _ORDER[index]] = argument.value
    return found


def _loading_call(node: cst.Call, file: File) -> cst.Call:
    holder = file.parent(node)
    if isinstance(holder, cst.Assign):
        uses = file.uses(holder)
        holder = file.parent(uses[0]) if len(uses) == 1 else None
    load = file.parent(holder) if isinstance(holder, cst.Arg) else None
    if (
        isinstance(load, cst.Call)
        and isinstance(load.func, cst.Attribute)
        and load.func.attr.value == "load_state_dict"
    ):
        return load
    raise Undecided("what optim_state_dict_to_load returns is not loaded in one place")
