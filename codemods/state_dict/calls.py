"""The calls in the body of a `state_dict_type` context, and what each becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from codemods.optimizer_loading import arguments_by_name, optimizer_loading
from codemods.tables.state_dicts import DCP
from codemods.vocabulary import SUPPORT, Edit, File, Import, Undecided

from .config import Settings

PREFIX = "FullyShardedDataParallel."


@dataclass
class Body:
    """The rewritten calls of one body."""

    edits: list[Edit] = field(default_factory=list)
    imports: set[Import] = field(default_factory=set)
    options: list[tuple[cst.Call, str, bool]] = field(default_factory=list)
    """Calls that take `options=`, its value, and whether the call's own arguments were written anew."""
    emptied: list[cst.SimpleStatementLine] = field(default_factory=list)
    """Statements that have nothing left to do."""

    def call(self, function: str, node: cst.Call, options: str, bare: bool = False) -> None:
        """`node` becomes a call of a DCP function that takes these options."""
        self.imports.add(Import(DCP, function))
        if options:
            self.options.append((node, options, bare))
            self.imports.add(Import(DCP, "StateDictOptions"))


def rewrite_calls(block: cst.With, chosen: Settings, file: File) -> Body:
    """Raises Undecided when the body does something with state dicts that has no counterpart."""
    written = Body()
    for node in _calls(block.body):
        static = (file.fsdp1(node.func) or "").removeprefix(PREFIX)
        if static == "optim_state_dict":
            _read_optimizer(node, chosen, file, written)
        elif static == "optim_state_dict_to_load":
            loading = optimizer_loading(node, file)
            written.edits.append(loading.edit(file, "load_optim_state_dict"))
            written.imports.add(Import(SUPPORT, "load_optim_state_dict"))
            written.emptied += loading.emptied
        elif static:
            raise Undecided(f"its body calls `{file.code(node.func)}`")
        elif isinstance(node.func, cst.Attribute) and file.code(node.func.value) == file.code(chosen.model):
            _rewrite_method(node, node.func.attr.value, chosen, file, written)
    return written


def _calls(node: cst.CSTNode) -> Iterator[cst.Call]:
    for child in node.children:
        yield from _calls(child)
    if isinstance(node, cst.Call):
        yield node


def _rewrite_method(node: cst.Call, method: str, chosen: Settings, file: File, written: Body) -> None:
    model = file.code(chosen.model)
    start, end = file.span(node)
    if method == "state_dict" and not node.args:
        written.edits.append(Edit(start, end - 1, f"get_model_state_dict({model}"))
        written.call("get_model_state_dict", node, chosen.reading)
    elif method == "load_state_dict" and len(node.args) == 1:
        written.edits.append(Edit(start, file.span(node.args[0].value)[0], f"set_model_state_dict({model}, "))
        written.call("set_model_state_dict", node, chosen.loading)
    elif method in {"state_dict", "load_state_dict"}:
        raise Undecided(f"`{model}.{method}` takes arguments of its own")


def _read_optimizer(node: cst.Call, chosen: Settings, file: File, written: Body) -> None:
    """`FSDP.optim_state_dict(m, o)`; a third argument may only be what it is anyway, `o.state_dict()`."""
    arguments = arguments_by_name(node)
    if not {"model", "optim"} <= set(arguments):
        raise Undecided("optim_state_dict takes arguments that are not followed")
    optimizer = file.code(arguments["optim"])
    state = arguments.get("optim_state_dict")
    if state is not None and file.code(state) != f"{optimizer}.state_dict()":
        raise Undecided("optim_state_dict converts a state that is not the optimizer's own")
    plain = len(node.args) == 2 and all(argument.keyword is None for argument in node.args)
    if plain:
        written.edits.append(Edit(*file.span(node.func), "get_optimizer_state_dict"))
    else:
        start, end = file.span(node)
        head = f"get_optimizer_state_dict({file.code(arguments['model'])}, {optimizer}"
        written.edits.append(Edit(start, end - 1, head))
    written.call("get_optimizer_state_dict", node, chosen.reading, bare=not plain)
