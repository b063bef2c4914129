"""V1: no run of a check may find what another has left.

Each run has its own copy of the program's tree; but a program that is told an absolute folder writes there in every
run, and one that resumes by itself goes on in the second where the first ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fsdp_migrate.verify.report import CheckRow, Mark

_TITLE = "runs are independent"
_OUTSIDE = "outside"


def own_arguments(args: tuple[str, ...], roots: tuple[Path, ...], scratch: Path) -> tuple[str, ...]:
    """The program's arguments for one run: an absolute path in either tree, or of nothing that is there, becomes one
    in the run's own copy. What is there and lies elsewhere is taken to be read."""
    return tuple(_own(arg, roots, scratch) for arg in args)


def moved_arguments(args: tuple[str, ...], roots: tuple[Path, ...]) -> list[str]:
    """Those that each run has its own of."""
    return [arg for arg in args if _own(arg, roots, Path("/")) != arg]


def _own(arg: str, roots: tuple[Path, ...], scratch: Path) -> str:
    option, equals, value = arg.partition("=") if arg.startswith("-") else ("", "", arg)
    path = Path(value)
    if not path.is_absolute() or path == Path(path.anchor):
        return arg
    root = next((root for root in roots if path.is_relative_to(root)), None)
    if root is not None:
        return f"{option}{equals}{scratch / path.relative_to(root)}"
    if path.exists():
        return arg
    return f"{option}{equals}{scratch / _OUTSIDE / path.relative_to(path.anchor)}"


def independence(read_back: Mapping[str, tuple[str, str]], rows: tuple[CheckRow, ...]) -> tuple[CheckRow, ...]:
    """The rows with V1 in front. `read_back` has the runs that wrote and that read each path.

    Reading a cache that another run has filled is well; but where programs differ, that may be why, and then nothing
    is decided.
    """
    if not read_back:
        return rows
    path, (writer, reader) = next(iter(read_back.items()))
    more = f" (and {len(read_back) - 1} more files)" if len(read_back) > 1 else ""
    detail = f"the run `{reader}` read {path}, which the run `{writer}` had written{more}"
    value, items = f"{len(read_back)} files shared", tuple(read_back)
    if not any(row.mark is Mark.FAIL for row in rows):
        return (CheckRow("V1", _TITLE, Mark.INFO, value, "0", detail, warns=True, items=items), *rows)
    shared = CheckRow(
        "V1",
        _TITLE,
        Mark.INCONCLUSIVE,
        value,
        "0",
        f"{detail}: the difference may come from there. Give the program a folder by a relative path",
        items=items,
    )
    return (shared, *(replace(row, mark=Mark.INCONCLUSIVE) if row.mark is Mark.FAIL else row for row in rows))
