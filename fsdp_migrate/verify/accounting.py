"""A: each line that used FSDP1 in the original's run is one that the rewrite changed or reported.

The original itself says which lines those are. A line that nobody dealt with goes on calling FSDP1, which does nothing
on an FSDP2 model and does not say so.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from fsdp_migrate.verify.report import CheckRow, Mark

Reported = Callable[[], Mapping[str, Collection[int]]]
"""Lines of the original that the rewrite has a finding about, by path. Asked only when there is a doubt."""

_TITLE = "every use of FSDP1 is accounted for"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Use:
    """A call of FSDP1's API, or a setting that was changed. `sharded`: on a model of FSDP1."""

    path: str
    line: int
    name: str
    sharded: bool


def account(uses: Collection[Use], original: Path, rewritten: Path, reported: Reported | None) -> CheckRow:
    """`original` and `rewritten` are the roots of the two trees."""
    counted = sorted({use for use in uses if use.sharded}, key=lambda use: (use.path, use.line, use.name))
    files = {path: _File.read(original / path, rewritten / path) for path in {use.path for use in counted}}
    left = [use for use in counted if not files[use.path].deals_with(use)]
    if left and reported is not None:
        lines = reported()
        left = [use for use in left if not files[use.path].spans(use) & set(lines.get(use.path, ()))]
    value = f"{len(counted)} uses, {len(counted) - len(left)} accounted for"
    if not left:
        return CheckRow("A", _TITLE, Mark.PASS, value, "all")
    named = [f"{use.path}:{use.line} {use.name}" for use in left]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    detail = f"neither changed nor reported: {', '.join(named[:_SHOWN])}{more}"
    return CheckRow("A", _TITLE, Mark.FAIL, value, "all", detail, items=tuple(named))


@dataclass(frozen=True, slots=True)
class _File:
    """One file of the original, and its lines that the rewrite changed. No tree: it is gone, or cannot be read."""

    tree: ast.Module | None
    changed: frozenset[int] = frozenset()

    @classmethod
    def read(cls, before: Path, after: Path) -> _File:
        try:
            old, new = (path.read_text(encoding="utf-8", errors="replace") for path in (before, after))
            tree = ast.parse(old)
        except (OSError, SyntaxError, ValueError):
            return cls(None)
        changed: set[int] = set()
        for tag, start, stop, _, _ in SequenceMatcher(None, old.splitlines(), new.splitlines(), False).get_opcodes():
            if tag != "equal":  # what is put in above a line, a marker or a raise, is about that line
                changed |= set(range(start + 1, max(stop, start + 1) + 1))
        return cls(tree, frozenset(changed))

    def deals_with(self, use: Use) -> bool:
        """Whether a line of the statement was changed; or the statement does not name what was called, so that another
        line decides."""
        statement = self._statement(use.line)
        if statement is None:
            return True
        nodes = [node for part in _header(statement) for node in ast.walk(part)]
        named = any(getattr(node, "attr", getattr(node, "id", None)) == use.name for node in nodes)
        return not named or bool(self.spans(use) & self.changed)

    def spans(self, use: Use) -> set[int]:
        """The lines of the statement; of one with a body, those of its head."""
        statement = self._statement(use.line)
        if statement is None:
            return {use.line}
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if isinstance(body, list) and body else statement.end_lineno or statement.lineno
        return set(range(statement.lineno, max(statement.lineno, last) + 1))

    def _statement(self, line: int) -> ast.stmt | None:
        if self.tree is None:
            return None
        holding = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        return max(holding, key=lambda node: (node.lineno, -(node.end_lineno or node.lineno)), default=None)


def _header(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement without the statements in it."""
    return (node for node in ast.iter_child_nodes(statement) if not isinstance(node, ast.stmt))
