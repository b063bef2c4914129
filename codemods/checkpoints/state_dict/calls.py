"""The model's calls in the body of a `state_dict_type` context, and what each becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from codemods.reading.call_layout import argument_removal
from codemods.reading.dcp_format import is_loaded_by_dcp, is_saved_by_dcp, may_alias
from codemods.reading.model_loading import loading
from codemods.reading.state_dict_settings import Settings
from codemods.tables.state_dicts import DCP, OPTIMIZER_CALLS
from codemods.vocabulary import SUPPORT, Edit, File, Import, Undecided

PREFIX = "FullyShardedDataParallel."


@dataclass
class Body:
    """The rewritten calls of one body."""

    edits: list[Edit] = field(default_factory=list)
    imports: set[Import] = field(default_factory=set)
    options: list[tuple[cst.Call, str]] = field(default_factory=list)
    """Calls that take `options=`, and its value."""

    def name(self, item: Import, node: cst.Call, file: File) -> str:
        """What an import is called where `node` stands."""
        named = file.named(item, node)
        self.imports.add(named)
        return named.local

    def take_options(self, node: cst.Call, options: str, file: File) -> None:
        if options:
            self.options.append((node, f"{self.name(Import(DCP, 'StateDictOptions'), node, file)}({options})"))


def rewrite_calls(block: cst.With, chosen: Settings, file: File) -> Body:
    """Raises Undecided when the body does something with state dicts that has no counterpart.

    FSDP1's static methods that deal in optimizers are left to their own rule.
    """
    written = Body()
    for node in _calls(block.body):
        static = (file.fsdp1(node.func) or "").removeprefix(PREFIX)
        if static and static not in OPTIMIZER_CALLS:
            raise Undecided(f"its body calls `{file.code(node.func)}`")
        if isinstance(node.func, cst.Attribute) and file.code(node.func.value) == file.code(chosen.model):
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
        options = "" if is_saved_by_dcp(node, file) else chosen.reading
        if file.compiles_modules and not options and options is not None:
            return  # FSDP2's own sharded state dict: the new function would take `_orig_mod.` out of the names
        if file.compiles_modules and not chosen.is_full:
            raise Undecided("the new functions take `_orig_mod.` out of the names of a compiled model")
        is_alias = options == "full_state_dict=True" and may_alias(node, file)
        if options is None or is_alias or file.compiles_modules:
            name = written.name(Import(SUPPORT, "full_state_dict"), node, file)
            written.edits.append(Edit(start, end - 1, f"{name}({model}{chosen.full_arguments}"))
        else:
            name = written.name(Import(DCP, "get_model_state_dict"), node, file)
            written.edits.append(Edit(start, end - 1, f"{name}({model}"))
            written.take_options(node, options, file)
    elif method == "load_state_dict":
        _load(node, chosen, file, written)
    elif method == "state_dict":
        raise Undecided(f"`{model}.state_dict` takes arguments of its own")


def _load(node: cst.Call, chosen: Settings, file: File, written: Body) -> None:
    model = file.code(chosen.model)
    load = loading(node, file)
    is_full = chosen.is_full and not is_loaded_by_dcp(load.state, file)
    start, first = file.span(node)[0], file.span(load.state)[0]
    if file.compiles_modules and not is_full:
        return
    if is_full and (file.compiles_modules or (load.is_lenient and load.result_is_used)):
        # Torch reports no missing key when it broadcasts: it fills them in from the model.
        name = written.name(Import(SUPPORT, "load_full_state_dict"), node, file)
        written.edits.append(Edit(start, first, f"{name}({model}, "))
        return
    name = written.name(Import(DCP, "set_model_state_dict"), node, file)
    copies = is_full and load.is_read_again  # torch puts the model's own DTensors into what it loads
    written.edits.append(Edit(start, first, f"{name}({model}, {'dict(' if copies else ''}"))
    if copies:
        end = file.span(load.state)[1]
        written.edits.append(Edit(end, end, ")"))
    if load.strict is not None:
        written.edits += argument_removal(file, node, load.strict)
    strict = f"strict={file.code(load.strict.value)}" if load.strict is not None and load.is_lenient else ""
    written.take_options(node, ", ".join(filter(None, [chosen.loading if is_full else "", strict])), file)
