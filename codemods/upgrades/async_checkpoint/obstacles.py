"""Why a save cannot be made asynchronous."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.enclosing import enclosing
from codemods.reading.shardings import argument

from .saving import Save, Saving, last_place

_GIVEN = {"process_group": "it saves over a group that it is given", "no_dist": "one rank saves it by itself"}
_MOVES = frozenset({"rmtree", "remove", "unlink", "rename", "replace", "move", "symlink", "copytree"})
_MOVING_METHODS = ("unlink", "symlink_to", "rmdir")


def obstacle(program: Saving, save: Save) -> str:
    """The reason, in words; empty where there is none."""
    file, call = save.file, save.call
    if not program.is_repeated:
        return "nothing trains behind it: it is made once, in no loop"
    for name, why in _GIVEN.items():
        if argument(call, name) is not None:
            return why
    if any(each.star == "**" for each in call.args):
        return "what it is called with is not seen"
    if not isinstance(file.parent(call), cst.Expr) or save.frame.statement is None:
        return "it is a part of a longer line"
    around = enclosing(file, call, cst.Try)
    if around is not None and around.handlers and file.scope(around) is file.scope(call):
        return f"errors in saving are caught around it (line {file.position(around)[0]})"
    for other in file.calls(file.scope(call)):
        if file.span(other)[0] > file.span(call)[0] and _moves_files(file, other):
            return f"line {file.position(other)[0]} moves or removes files, which may not be written yet"
    if not program.is_local and not program.ends and any(last_place(way) is None for way in save.ways):
        return "neither a loop in which it is called nor the end of the program is seen"
    return ""


def _moves_files(file: Context, call: cst.Call) -> bool:
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in _MOVING_METHODS:
        return True
    module, _, name = (file.dotted(call.func) or "").rpartition(".")
    return module in ("os", "shutil") and name in _MOVES
