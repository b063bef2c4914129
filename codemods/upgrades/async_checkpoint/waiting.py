"""What is written for an asynchronous save: the call, and the lines that wait for it.

Where one function saves in a loop, two of its variables hold the future and its group; else two functions of the
support module do.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Finding, Fix, Import, Level, finding
from codemods.reading.code.enclosing import contains, enclosing, names_around
from codemods.reading.edits.call_layout import call_with
from codemods.reading.edits.dcp_import import dcp_import
from codemods.reading.edits.layout import insertion, lines_below

from .saving import Save, Saving, last_place

FUNCTION = "save_in_background"

_WRITERS = ("torch.save", "json.dump")
_DIST = Import("torch.distributed", alias="dist")
_WAIT = Import(SUPPORT, "wait_for_checkpoint")


def in_variables(program: Saving, save: Save, code: str) -> Fix:
    """The future and its group in variables of the function that saves in a loop."""
    file, call = save.file, save.call
    statements = sorted((each.outermost for each in program.saves if each.outermost is not None), key=file.span)
    first, last = statements[0], statements[-1]
    taken = names_around(file, call)
    saving, group = (_free(name, taken) for name in ("saving", "saving_group"))
    dist, library = file.named(_DIST, first), dcp_import(file, call)
    wait = [f"if {saving} is not None:", f"{file.indent}{saving}.result()"]
    is_first = save.outermost is first and save.frame.loop is None
    edits = [
        insertion(file, first, [f'{saving}, {group} = None, {dist.local}.new_group(backend="gloo")']),
        *([] if is_first else [insertion(file, call, wait)]),
        call_with(file, call, f"{saving} = {library.local}.async_save", f"process_group={group}"),
        *(insertion(file, frame.call, wait) for frame in program.reads),
        lines_below(file, last, wait),
    ]
    return Fix(edits, [_said(save, code)], [dist, library])


def in_functions(program: Saving, save: Save, code: str) -> Fix:
    """The future and its group in a module, behind two functions."""
    file, call = save.file, save.call
    name = file.named(Import(SUPPORT, FUNCTION), call)
    elsewhere = [(where, Fix([edit], imports=[wait])) for where, edit, wait in _waits(program, save)]
    return Fix([Edit(*file.span(call.func), name.local)], [_said(save, code)], [name], elsewhere=elsewhere)


def _waits(program: Saving, save: Save) -> Iterator[tuple[Context, Edit, Import]]:
    """The lines that wait in other places than the next save."""
    for frame in (*program.ends, *program.reads):
        name = frame.file.named(_WAIT, frame.call)
        yield frame.file, insertion(frame.file, frame.call, [f"{name.local}()"]), name
    for file, statement in () if program.ends else filter(None, map(last_place, save.ways)):
        name = file.named(_WAIT, statement)
        yield file, lines_below(file, statement, [f"{name.local}()"]), name


def _said(save: Save, code: str) -> Finding:
    file, call = save.file, save.call
    message = "the checkpoint is written while training goes on, and waited for before the next and at the end"
    early = next((other for other in file.calls(file.scope(call)) if _writes_behind(save, other)), None)
    if early is None:
        hint = "until then each rank holds a copy in the CPU's memory, and what says that it is saved says so early"
        return finding(code, Level.REWRITTEN, file, call, message, hint)
    hint = f"line {file.position(early)[0]} writes a file before the checkpoint is whole: look whether it may"
    return finding(code, Level.REVIEW, file, call, message, hint)


def _writes_behind(save: Save, other: cst.Call) -> bool:
    """Whether a call behind the save, in the same turn of its loop, writes a file: one that says it is there, maybe."""
    file, call = save.file, save.call
    turn = enclosing(file, call, cst.For, cst.While) or file.scope(call)
    is_behind = file.span(other)[0] >= file.span(call)[1] and contains(file, turn, other)
    return is_behind and (file.code(other.func) == "open" or file.dotted(other.func) in _WRITERS)


def _free(name: str, taken: frozenset[str]) -> str:
    return next(each for each in (name, f"checkpoint_{name}", f"async_{name}", f"{name}_") if each not in taken)
