"""Where a program saves distributed checkpoints, in which order, and what has to wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from codemods.api import SUPPORT, Context
from codemods.reading.code.chains import Chain, Frame, can_follow, chains
from codemods.reading.code.enclosing import enclosing
from codemods.reading.edits.dcp_import import PACKAGES
from codemods.reading.own_fsdp2.shardings import shardings

_DESTROY = "destroy_process_group"
_DESTROYS = (f"torch.distributed.{_DESTROY}", f"torch.distributed.distributed_c10d.{_DESTROY}")


@dataclass(frozen=True)
class Save:
    """One call of `save`, and the ways to it."""

    file: Context
    call: cst.Call
    ways: tuple[Chain, ...]

    @property
    def frame(self) -> Frame:
        """The function that it stands in."""
        return self.ways[0][0]

    @property
    def outermost(self) -> cst.CSTNode | None:
        """The loop around it in its function, or its own statement."""
        return self.frame.loop or self.frame.statement


class Saving:
    """The saves of a program."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.saves = [
            Save(file, call, tuple(chains(file, call))) for file in ctx.files("save") for call in dcp_saves(file)
        ]

    @cached_property
    def ways(self) -> list[Chain]:
        return [way for save in self.saves for way in save.ways]

    @cached_property
    def ends(self) -> list[Frame]:
        """Where the process group is destroyed: all of it."""
        files = self._ctx.files(_DESTROY)
        calls = [(file, call) for file in files for call in file.nodes(cst.Call) if not call.args]
        return [Frame(file, call) for file, call in calls if file.dotted(call.func) in _DESTROYS]

    @cached_property
    def reads(self) -> list[Frame]:
        """What reads a checkpoint, and may do so behind a save."""
        files = {file.path: file for word in READ_WORDS for file in self._ctx.files(word)}
        calls = [(file, call) for file in files.values() for call in dcp_reads(file)]
        return [
            Frame(*each) for each in calls if any(can_follow(way, past) for way in chains(*each) for past in self.ways)
        ]

    @cached_property
    def is_repeated(self) -> bool:
        """Whether anything trains behind a save: it lies on a way through a loop, or not all of its ways are seen."""
        return any(
            frame.loop is not None or (frame is way[-1] and isinstance(frame.scope, cst.FunctionDef))
            for way in self.ways
            for frame in way
        )

    @cached_property
    def is_local(self) -> bool:
        """Whether variables of one function can hold what is being written: that of the loop around all saves.

        It must not run in a loop itself, which would wait in each turn, nor be left from among the saves: by a return,
        by an error that something cleans up behind, with the end of the process group. And without a process group, as
        where it is sharded under a condition, there is no group to be made.
        """
        first = self.saves[0].frame
        together = all(frame.scope is first.scope for frame in (*(way[0] for way in self.ways), *self.reads))
        blocks = {self.saves[0].file.parent(save.outermost) for save in self.saves if together and save.outermost}
        loops = [loop for way in self.ways if (loop := way[0].loop) is not None]
        if len(blocks) != 1 or not loops or any(frame.loop is not None for way in self.ways for frame in way[1:]):
            return False
        inside = {node for loop in loops for node in first.file.inside(loop)}
        ends = {frame.call for end in self.ends for way in chains(end.file, end.call) for frame in way}
        if any(isinstance(node, cst.Return) or node in ends for node in inside):
            return False
        if any(enclosing(frame.file, frame.call, cst.Try) for way in self.ways for frame in way):
            return False
        roots = [each for file in self._ctx.files("fully_shard") for each in shardings(file)]
        ways = [way for each in roots for way in chains(each.file, each.root)]
        return not any(_is_under_a_condition(frame) for way in ways for frame in way)


def _is_under_a_condition(frame: Frame) -> bool:
    """Whether a call is made on one way through its function; whether a file is the script is no question here."""
    choices = [outer for outer in frame.file.ancestors(frame.call) if isinstance(outer, cst.If)]
    return not all(_asks_for_the_script(choice.test) for choice in choices)


def _asks_for_the_script(test: cst.BaseExpression) -> bool:
    left = test.left if isinstance(test, cst.Comparison) else None
    return isinstance(left, cst.Name) and left.value == "__name__"


def last_place(way: Chain) -> tuple[Context, cst.CSTNode] | None:
    """The outermost statement of a way, behind which nothing is saved; None where no loop is seen on it."""
    if not any(frame.loop is not None for frame in way):
        return None
    for frame in reversed(way):
        if frame.loop is not None:
            return frame.file, frame.loop
        if frame.statement is not None and not isinstance(frame.statement.body[0], cst.Return):
            return frame.file, frame.statement
    return None


# Where a program saves and loads through `torch.distributed.checkpoint`.

_SAVES = frozenset({"save", "state_dict_saver.save"})
_READS = frozenset(
    {
        *("load", "state_dict_loader.load", "load_state_dict", "state_dict_loader.load_state_dict"),
        *("load_sharded_optimizer_state_dict", "optimizer.load_sharded_optimizer_state_dict"),
        "format_utils.dcp_to_torch_save",
    }
)


_READ_BY_SUPPORT = ("load_dcp", "read_sharded")
READ_WORDS = ("checkpoint", *_READ_BY_SUPPORT)
"""Identifiers: a file that reads a checkpoint holds one of them."""


def dcp_saves(ctx: Context) -> list[cst.Call]:
    """The calls of `save` in a file."""
    return list(_calls(ctx, _SAVES))


def dcp_reads(ctx: Context) -> list[cst.Call]:
    """The calls in a file that read a checkpoint, those of the support module among them."""
    own = (f"{SUPPORT}.{name}" for name in _READ_BY_SUPPORT)
    through_support = tuple(each for name in own for each in (name, f".{name}"))
    return [
        *_calls(ctx, _READS),
        *(call for call in ctx.nodes(cst.Call) if (ctx.dotted(call.func) or "").endswith(through_support)),
    ]


def _calls(ctx: Context, names: frozenset[str]) -> Iterator[cst.Call]:
    for call in ctx.nodes(cst.Call):
        dotted = ctx.dotted(call.func) or ""
        if any(dotted == f"{package}.{name}" for package in PACKAGES for name in names):
            yield call
