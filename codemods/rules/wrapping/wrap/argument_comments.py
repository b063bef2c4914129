"""What the user said of the constructor's arguments: it stands above what each has become."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from codemods.reading.wraps.manual import argument_name
from codemods.tables.arguments import ARGUMENTS, DROPPED, POSITIONS

from .draft import Draft

_WRITTEN_AS = {"sharding_strategy": {"reshard_after_forward", "mesh", "**"}, "cpu_offload": {"offload_policy", "**"}}
"""What some arguments become, where they become anything."""

_DEFAULTS = {argument.name: argument.default for argument in ARGUMENTS}

_PRAGMAS = ("noqa", "pragma:", "pylint:", "pyright:", "type: ignore")
"""What tools are told of a line, which says nothing without it."""

_COMMENTED_OUT = tuple(f"{name}=" for name in POSITIONS)
"""An argument that the constructor was not given, and nothing has now."""


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment between the arguments."""

    argument: str
    """The one that it is about; empty where it stands behind all of them."""
    text: str
    told: str
    """The same where that argument has no statement: what stood behind an argument says which one it is about."""


def kept_comments(made: Draft) -> list[Comment]:
    """The comments between the arguments, but for those on an argument that is gone."""
    code = made.file.code(made.call)
    lines = code.split("\n")
    named = {line: name for name, _, first, last in _argument_lines(made) for line in range(first, last + 1)}
    gone = _lines_of_gone(made)
    skipped = {line for first, last in gone for line in range(first, last + 1)}
    for first, last in gone:
        below = lines[last + 1].lstrip() if last + 1 < len(lines) else ""
        above = list(takewhile(lambda line: lines[line].lstrip().startswith("#"), range(first - 1, 0, -1)))
        # A line alone is about the argument; more can be about all that follow.
        if len(above) == 1 or last + 1 in skipped or below.startswith(("#", ")")):
            skipped.update(above)
    comments, depth = [], 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        line, column = token.start[0] - 1, token.start[1]
        text = token.string.lstrip("# ")
        if token.type != tokenize.COMMENT or line in skipped or text.startswith(_PRAGMAS):
            continue
        is_behind = bool(lines[line][:column].strip())
        if (depth and not is_behind) or text.replace(" ", "").startswith(_COMMENTED_OUT):
            depth = max(depth + _opened(text), 0)  # with its further lines
            continue
        depth = 0
        name = named.get(line, "") or next((named[each] for each in range(line, len(lines)) if each in named), "")
        is_told = is_behind and named.get(line, "") and name not in text
        shown = f"# {text}" if is_behind else token.string
        comments.append(Comment(name, shown, f"# {name}: {text}" if is_told else token.string))
    return comments


def _opened(text: str) -> int:
    """How many brackets a line opens and does not close."""
    return sum(text.count(each) for each in "([{") - sum(text.count(each) for each in ")]}")


def _lines_of_gone(made: Draft) -> list[tuple[int, int]]:
    """The lines of arguments that nothing is written for, the first and the last of each."""
    written = {**made.unit_kwargs, **made.root_kwargs, **made.common_kwargs}
    return [
        (first, last)
        for name, value, first, last in _argument_lines(made)
        if name in DROPPED
        or name not in made.present
        or value == _DEFAULTS.get(name)
        or (name in _WRITTEN_AS and not written.keys() & _WRITTEN_AS[name])
        or (name == "device_id" and not {name, "sync_module_states"} & {*made.written_for.values()})
    ]


def _argument_lines(made: Draft) -> Iterator[tuple[str, str, int, int]]:
    """The arguments by keyword, with what each is given, and its first and last line, counted from the call's."""
    start = made.file.position(made.call)[0]
    for argument in made.call.args:
        if argument.keyword is not None:
            first, value = made.file.position(argument)[0] - start, made.file.code(argument.value)
            yield argument_name(argument), value, first, first + value.count("\n")
