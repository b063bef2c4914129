"""How import statements are written: names taken out and put in, in the layout that the user has."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import Any, NamedTuple

import libcst as cst

from codemods.api import SUPPORT, Edit, Import
from codemods.reading.code.words import is_name

from ..pyanalysis.symbols import dotted_name
from ..pyanalysis.tree import Tree
from .apply import HEAD

_OWN = 3

Statement = cst.Import | cst.ImportFrom


_GAP = re.compile(r"(?:(?<=\n)[ \t]*\r?\n)*\Z")
"""The blank lines at the end of a text."""
_BEGINS = re.compile(rf"{HEAD.pattern}|\n[ \t]+#[^\n]*\n\Z")
"""What no gap is left under: the head of a block, and a comment in one."""


class Layout:
    """The import statements of one file, and the edits to them."""

    def __init__(self, tree: Tree, own: Collection[str] = (), needed_at: int | None = None) -> None:
        """`own` are the names that the file finds modules of its project under, `utils` of `from utils import seed`.

        `needed_at` is where the top of the file first uses what is added: that is imported above it.
        """
        self._tree = tree
        self._own = own
        self._edits: list[Edit] = []
        self._inserted: dict[int, list[_New]] = {}
        self._filled: set[cst.CSTNode] = set()
        self._removed: list[Statement] = []
        self._combines = any(map(_has_combined, tree.nodes(cst.ImportFrom)))
        self._top = [
            (line, line.body[0])
            for line in _leading(tree.module)
            if isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], (cst.Import, cst.ImportFrom))
        ]
        self._above = [(line, s) for line, s in self._top if needed_at is None or tree.span(line)[0] < needed_at]
        ends = [tree.line_end(tree.span(each)[1] - 1) for each in _leading(tree.module) if _sets_path(tree, each)]
        self._path_is_set = max(ends, default=0) if needed_at is None else 0
        """Behind the last statement at the top of the file that changes `sys.path`."""

    def is_top_level(self, statement: Statement) -> bool:
        return any(statement is found for _, found in self._top)

    def homes_of(self, module: str) -> list[cst.ImportFrom]:
        """The statements at the top of the file that import names from this module, and can take what is added."""
        found = [each for _, each in self._above if isinstance(each, cst.ImportFrom)]
        return [each for each in found if not isinstance(each.names, cst.ImportStar) and _full_module(each) == module]

    def change(self, statement: Statement, gone: Sequence[cst.ImportAlias], added: Sequence[Import]) -> None:
        """Take aliases out of a statement and put names into it; an empty one goes altogether."""
        assert not isinstance(statement.names, cst.ImportStar)
        kept = [alias for alias in statement.names if alias not in gone]
        if self.is_top_level(statement) and not self._combines:
            here = _joining(kept, added)
            apart = [item for item in added if item not in here]
            if apart:
                self.insert(apart)
            added = here
        if not kept and not added:
            self._removed.append(statement)
        elif self._is_one_a_line(statement) and not self._fits_one_line(statement, len(kept) + len(added)):
            self._change_lines(statement, gone, added)
        else:
            names = _ordered([self._alias_text(alias) for alias in kept], [_name(item) for item in added])
            self._rewrite(statement, names)

    def is_guarded(self, statement: Statement) -> bool:
        """Whether a statement stands in a `try:` at the top of the file, for libraries that may not be there."""
        block = self._tree.parents[self._tree.parents[statement]]
        guard = self._tree.parents.get(block)
        at_top = isinstance(guard, cst.Try) and self._tree.parents.get(guard) is self._tree.module
        return at_top and isinstance(guard, cst.Try) and guard.body is block

    def optional(self, root: str) -> Statement | None:
        """The last statement of a `try:` that alone imports from a library, which may not be there."""
        if any(root_of(statement) == root for _, statement in self._top):
            return None
        statements: list[Statement] = [*self._tree.nodes(cst.Import), *self._tree.nodes(cst.ImportFrom)]
        guarded = [each for each in statements if root_of(each) == root and self.is_guarded(each)]
        return max(guarded, key=self._tree.span, default=None)

    def put_before(self, statement: Statement, items: Sequence[Import], behind: bool = False) -> None:
        """New statements above one that is not at the top of the file, or behind it."""
        if not items:
            return
        tree = self._tree
        start, end = tree.span(statement)
        offset = tree.line_start(start)
        indent = tree.text[offset:start]
        offset = tree.line_end(end) if behind else offset
        for item in items:
            if not item.name:
                self._inserted.setdefault(offset, []).append(_New("", indent + _of_module(item), ""))
        modules = dict.fromkeys(item.module for item in items if item.name)
        for module in modules:
            names = sorted((_name(item) for item in items if item.name and item.module == module), key=_sort_key)
            text = _wrapped(f"from {module} import ", names, tree.width, len(indent)).replace("\n", f"\n{indent}")
            self._inserted.setdefault(offset, []).append(_New("", indent + text, ""))
        self._filled.add(tree.parents[tree.parents[statement]])

    def rename_fallback(self, statement: Statement, gone: Collection[str], names: Collection[str]) -> None:
        """`except ImportError: FSDP = None`, for the names that the `try:` imports instead, once in each block."""
        new = " = ".join(sorted((name for name in names if name not in gone), key=_sort_key))
        guard = self._tree.parents[self._tree.parents[self._tree.parents[statement]]]
        blocks: set[cst.CSTNode] = set()
        for assignment in self._tree.nodes(cst.Assign):
            target = assignment.targets[0].target
            line = self._tree.parents[assignment]
            if not new or not isinstance(target, cst.Name) or target.value in names or target.value not in gone:
                continue
            if not self._tree.contains(guard, assignment) or len(assignment.targets) > 1:
                continue
            if self._tree.parents[line] not in blocks:
                self._edits.append(Edit(*self._tree.span(target), new))
                blocks.add(self._tree.parents[line])
            elif isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
                start = self._tree.span(assignment)[0]
                self._edits.append(Edit(self._tree.line_start(start), self._tree.line_end(start), ""))

    def insert(self, items: Sequence[Import], otherwise: str = "") -> None:
        """A new statement at the place where the file's own order puts it; in a `try` with a second module to ask."""
        first = items[0]
        names = sorted((_name(item) for item in items if item.name), key=_sort_key)
        parts = _by_alias(items) if names and not self._combines and not otherwise else [list(items)]
        if len(parts) > 1:
            for part in parts:
                self.insert(part)
            return
        if names:
            text = _wrapped(f"from {first.module} import ", names, self._tree.width)
        else:
            text = _of_module(first)
        if otherwise:
            second = _wrapped(f"from {otherwise} import ", names, self._tree.width, 4)
            indented = "\n    ".join(text.split("\n")), "\n    ".join(second.split("\n"))
            text = f"try:\n    {indented[0]}\nexcept ImportError:  # started from its own folder\n    {indented[1]}"
        offset, before, after, key = self._place(first)
        self._inserted.setdefault(offset, []).append(_New(before, text, after, key))

    def text(self) -> str:
        """The file with all changes made."""
        edits = [*self._edits, *self._removals()]
        for offset, statements in self._inserted.items():
            joined = "".join(map(_joined, _of_one_group(statements)))
            edits.append(Edit(offset, offset, joined.replace("\n", self._tree.newline)))
        text, position, written = self._tree.text, 0, ""
        for edit in sorted(edits):
            written += text[position : edit.start]
            position = edit.end
            if edit.text or (written and not written.endswith("\n")):
                is_apart = not written.strip() or written.endswith(("\n\n", "\n\r\n"))
                written += edit.text.lstrip("\r\n") if is_apart else edit.text
                continue
            # Lines went: of the blank lines before and behind them, the more stay.
            is_first = not written.strip() or _BEGINS.search(written) is not None
            gap = _GAP.search(written)
            room = None if is_first or gap is None else gap.group().count("\n")
            while room is None or room > 0:
                line_end = self._tree.line_end(position)
                if line_end == position or self._tree.text[position:line_end].strip():
                    break
                position = line_end
                room = room - 1 if room is not None else None
        return written + text[position:]

    def _removals(self) -> Iterator[Edit]:
        """Take statements away; a block that they leave empty goes with its `if`, or gets a `pass`."""
        gone: set[cst.CSTNode] = set()
        for statement in self._removed:
            line = self._tree.parents[statement]
            if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
                gone.add(line)
            else:
                yield Edit(*self._tree.span(statement), "pass")
        for line in [*gone]:
            guard = self._emptied_if(line, gone) or self._emptied_try(line, gone)
            if guard is not None:
                gone.add(guard)
        for line in gone:
            block = self._tree.parents[line]
            start, end = self._tree.span(line)
            if isinstance(block, cst.IndentedBlock) and not gone.isdisjoint(self._owners(block)):
                continue
            if self._is_emptied(block, gone) and line is cst.ensure_type(block, cst.IndentedBlock).body[0]:
                yield Edit(start, end, "pass")
            else:
                first = self._tree.line_start(start)
                yield Edit(first - self._heading_above(line, gone), self._tree.line_end(end - 1), "")

    def _heading_above(self, line: cst.CSTNode, gone: Collection[cst.CSTNode]) -> int:
        """The length of the comments above a statement that goes, where no import is left under them."""
        tree, (start, end) = self._tree, self._tree.span(line)
        last = tree.line_end(end - 1)
        while following := [other for other in gone if tree.line_start(tree.span(other)[0]) == last]:
            last = tree.line_end(tree.span(following[0])[1] - 1)
        below = tree.text[last : tree.line_end(last)].strip()
        offset = tree.line_start(start)
        if self._tree.parents[line] is not tree.module or (below and not below.startswith("#")):
            return 0
        if any(offset <= place <= last for place in self._inserted):
            return 0
        above = tree.text[:offset].splitlines(keepends=True)
        return sum(map(len, takewhile(_is_comment, reversed(above)))) if not all(map(_is_comment, above)) else 0

    def _is_emptied(self, block: cst.CSTNode, gone: Collection[cst.CSTNode]) -> bool:
        is_block = isinstance(block, cst.IndentedBlock) and block not in self._filled
        return is_block and all(line in gone for line in cst.ensure_type(block, cst.IndentedBlock).body)

    def _emptied_if(self, line: cst.CSTNode, gone: Collection[cst.CSTNode]) -> cst.If | None:
        """`if TYPE_CHECKING:` with nothing left under it, nor under its `else:`, where asking does nothing."""
        guard = self._tree.parents.get(self._tree.parents[line])
        if isinstance(guard, cst.If) and isinstance(guard.orelse, cst.Else):
            blocks = (guard.body, guard.orelse.body)
            is_gone = all(self._is_emptied(block, gone) for block in blocks)
            return guard if is_gone and not self._is_elif(guard) and not self._asks(guard.test) else None
        if not isinstance(guard, cst.If) or guard.orelse is not None or not self._is_emptied(guard.body, gone):
            return None
        holder = self._tree.parents[guard]
        only = isinstance(holder, cst.IndentedBlock) and len(holder.body) == 1
        return None if self._is_elif(guard) or self._asks(guard.test) or only else guard

    def _owners(self, block: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
        """The statement that a block is of, and the `if` that an `else:` is of."""
        owner = self._tree.parents[block]
        return (owner, self._tree.parents[owner]) if isinstance(owner, cst.Else) else (owner,)

    def _is_elif(self, guard: cst.If) -> bool:
        return isinstance(self._tree.parents[guard], cst.If)

    def _asks(self, test: cst.BaseExpression) -> bool:
        """Whether a test may do something."""
        return any(isinstance(node, (cst.Call, cst.NamedExpr, cst.Await)) for node in self._tree.inside(test))

    def _emptied_try(self, line: cst.CSTNode, gone: Collection[cst.CSTNode]) -> cst.Try | None:
        """`try:` in a function with nothing left under it, where all that else happens is `FSDP = None`."""
        guard = self._tree.parents.get(self._tree.parents[line])
        if not isinstance(guard, cst.Try) or not self._is_emptied(guard.body, gone) or guard.orelse or guard.finalbody:
            return None
        names = {bound.evaluated_alias or bound.evaluated_name for each in self._removed for bound in _names(each)}
        rest = [each for handler in guard.handlers for each in handler.body.body]
        sets = [each.body[0] for each in rest if isinstance(each, cst.SimpleStatementLine) and len(each.body) == 1]
        targets = [each.targets[0].target for each in sets if isinstance(each, cst.Assign) and len(each.targets) == 1]
        is_all = len(targets) == len(rest) and all(isinstance(t, cst.Name) and t.value in names for t in targets)
        holder = self._tree.parents[guard]
        is_one_of_several = isinstance(holder, cst.IndentedBlock) and len(holder.body) > 1
        return guard if is_all and is_one_of_several else None

    def _rewrite(self, statement: Statement, names: Sequence[str]) -> None:
        start, end = self._tree.span(statement)
        if isinstance(statement, cst.Import):
            self._edits.append(Edit(start, end, f"import {', '.join(names)}"))
            return
        head = f"from {'.' * len(statement.relative)}{_module(statement)} import "
        indent = self._tree.text[self._tree.line_start(start) : start]
        text = _wrapped(head, names, self._tree.width, len(indent)).replace("\n", self._tree.newline + indent)
        self._edits.append(Edit(start, end, text))

    def _is_one_a_line(self, statement: Statement) -> bool:
        if isinstance(statement, cst.Import) or statement.lpar is None or isinstance(statement.names, cst.ImportStar):
            return False
        lines = [self._tree.position(alias)[0] for alias in statement.names]
        return len(set(lines)) == len(lines) and lines[0] != self._tree.position(statement)[0]

    def _fits_one_line(self, statement: Statement, count: int) -> bool:
        """One or two names without comments need no line each."""
        return count <= 2 and "#" not in self._tree.code(statement)

    def _change_lines(self, statement: Statement, gone: Sequence[cst.ImportAlias], added: Sequence[Import]) -> None:
        tree = self._tree
        aliases = list(cst.ensure_type(statement, cst.ImportFrom).names)  # type: ignore[arg-type]
        for alias in gone:
            start, end = tree.span(alias)
            self._edits.append(Edit(tree.line_start(start), tree.line_end(end - 1), ""))
        first = tree.span(aliases[0])[0]
        indent = tree.text[tree.line_start(first) : first]
        kept = [alias for alias in aliases if alias not in gone]
        is_sorted = [self._alias_text(a) for a in kept] == sorted((self._alias_text(a) for a in kept), key=_sort_key)
        for item in added:
            text = _name(item)
            following = next((a for a in kept if _sort_key(self._alias_text(a)) > _sort_key(text)), None)
            anchor = following if is_sorted else None
            if anchor is not None:
                offset = tree.line_start(tree.span(anchor)[0])
            else:
                last = aliases[-1]
                offset = tree.line_end(tree.span(last)[1] - 1)
                self._need_comma(last, gone)
            self._edits.append(Edit(offset, offset, f"{indent}{text},{tree.newline}"))

    def _need_comma(self, last: cst.ImportAlias, gone: Sequence[cst.ImportAlias]) -> None:
        if last in gone or isinstance(last.comma, cst.Comma):
            return
        end = self._tree.span(last)[1]
        if Edit(end, end, ",") not in self._edits:
            self._edits.append(Edit(end, end, ","))

    def _alias_text(self, alias: cst.ImportAlias) -> str:
        text = dotted_name(alias.name)
        return f"{text} as {cst.ensure_type(alias.asname.name, cst.Name).value}" if alias.asname is not None else text

    def _place(self, item: Import) -> tuple[int, str, str, tuple[object, ...]]:
        """Offset of the new line, the blank line it needs before or behind it, and its place among other new ones: what
        goes in front of an import of its own group comes last.
        """
        tree = self._tree
        dots = len(item.module) - len(item.module.lstrip("."))
        new = _Key(dots, bool(item.name), item.module.lower())
        root = "." if item.module.startswith(".") else item.module.split(".")[0]
        # The support module is the project's own, also where nothing else of its package is imported.
        is_own = item.module.split(".")[-1] == SUPPORT and all(root_of(s) != root for _, s in self._above)
        level = _OWN if is_own else self._group(root)
        if is_own and root != "." and self._path_is_set:
            return self._below_path(new)
        if not self._above:
            above_definition = isinstance(tree.module.body[0], (cst.FunctionDef, cst.ClassDef))
            return self._after_docstring(), "", "\n\n" if above_definition else "\n", ((0, level), *_by_kind(new))
        group = [(line, s) for line, s in self._above if self._group(root_of(s)) == level]
        if not group:
            later = [line for line, s in self._above if self._group(root_of(s)) > level]
            if later:
                return tree.line_start(tree.span(later[0])[0]), "", "\n", ((0, level), *_by_kind(new))
            end = tree.line_end(tree.span(self._above[-1][0])[1] - 1)
            below = "\n" if tree.text[end : tree.line_end(end)].strip() else ""
            return end, "\n", below, ((0, level), *_by_kind(new))
        keys = [_key(statement) for _, statement in group]
        order = next((order for order in (_by_kind, _by_module) if _is_sorted(list(map(order, keys)))), None)
        among = group if order else [(line, s) for line, s in group if root_of(s) == root] or group
        key = (order or _by_kind)(new)
        for line, statement in among:
            if (order or _by_kind)(_key(statement)) > key or _is_of_later_name(statement, item):
                return tree.line_start(tree.span(line)[0]), "", "", ((1, level), *key)
        return tree.line_end(tree.span(among[-1][0])[1] - 1), "", "", ((0, level), *key)

    def _below_path(self, new: _Key) -> tuple[int, str, str, tuple[object, ...]]:
        """Below what changes `sys.path`: a script may find the module by that alone."""
        tree = self._tree
        own = [line for line, s in self._above if self._group(root_of(s)) == _OWN]
        last = max((tree.line_end(tree.span(line)[1] - 1) for line in own), default=0)
        end = max(last, self._path_is_set)
        is_joined = end == last
        below = "\n" if tree.text[end : tree.line_end(end)].strip() and not is_joined else ""
        return end, "" if is_joined else "\n", below, ((0, _OWN), *_by_kind(new))

    def _group(self, root: str) -> int:
        return _OWN if root in self._own else _group(root)

    def _after_docstring(self) -> int:
        body = self._tree.module.body
        first = body[0] if body else None
        if isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Expr):
            if isinstance(first.body[0].value, (cst.SimpleString, cst.ConcatenatedString)):
                return self._tree.line_end(self._tree.span(first)[1] - 1)
        return self._tree.span(first)[0] if first is not None else 0


def _leading(module: cst.Module) -> Iterable[cst.CSTNode]:
    """The statements before the first function or class: where imports stand."""
    for statement in module.body:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            return
        yield statement


def _sets_path(tree: Tree, statement: cst.CSTNode) -> bool:
    """Whether a statement has `sys.path.insert(…)`, or gives `sys.path` a value."""
    for node in tree.inside(statement):
        changed = node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else None
        if isinstance(node, (cst.AssignTarget, cst.AugAssign)):
            changed = node.target.value if isinstance(node.target, cst.Subscript) else node.target
        if isinstance(changed, cst.Attribute) and changed.attr.value == "path" and is_name(changed.value, "sys"):
            return True
    return False


def _has_combined(statement: cst.ImportFrom) -> bool:
    """Whether a statement imports something under another name beside others, which isort has apart unless told."""
    names = () if isinstance(statement.names, cst.ImportStar) else statement.names
    return len(names) > 1 and any(alias.asname is not None for alias in names)


def _joining(kept: Sequence[cst.ImportAlias], added: Sequence[Import]) -> Sequence[Import]:
    """Those that can stand in a statement with what is left of it, where names under an alias stand alone."""
    if any(alias.asname is not None for alias in kept):
        return ()
    return [item for item in added if not item.alias] or ([] if kept else added[:1])


def _by_alias(items: Sequence[Import]) -> list[list[Import]]:
    """The names that keep theirs together, and each of the others alone, in the order of isort."""
    plain = sorted((item for item in items if not item.alias), key=lambda item: _sort_key(item.name))
    parts = [*([plain] if plain else []), *([item] for item in items if item.alias)]
    return sorted(parts, key=lambda part: _sort_key(part[0].name))


def _is_of_later_name(statement: Statement, item: Import) -> bool:
    """Whether a statement imports from the same module, and only names that come behind in the order of isort."""
    if isinstance(statement, cst.Import) or isinstance(statement.names, cst.ImportStar):
        return False
    first = dotted_name(statement.names[0].name)
    return _full_module(statement) == item.module and bool(item.name) and _sort_key(first) > _sort_key(item.name)


class _New(NamedTuple):
    """A statement, and the blank line that it needs before it or behind it."""

    before: str
    text: str
    after: str
    key: tuple[Any, ...] = ()
    """What new statements at one place are sorted by, their group first."""


def _joined(group: Sequence[_New]) -> str:
    lines = "".join(f"{each.text}\n" for each in sorted(group, key=lambda each: each.key))
    return f"{group[0].before}{lines}{group[-1].after}"


def _of_one_group(statements: Iterable[_New]) -> Iterator[list[_New]]:
    """Statements that come to stand at one place, by whether they are of the standard library, or the project's own."""
    in_order = sorted(statements, key=lambda each: each.key[:1])
    yield from (list(part) for _, part in groupby(in_order, key=lambda each: each.key[:1]))


def _names(statement: Statement) -> Sequence[cst.ImportAlias]:
    return () if isinstance(statement.names, cst.ImportStar) else statement.names


def _is_comment(line: str) -> bool:
    return line.startswith("#")


def _module(statement: Statement) -> str:
    if isinstance(statement, cst.Import):
        return dotted_name(statement.names[0].name)
    return dotted_name(statement.module) if statement.module is not None else ""


def _of_module(item: Import) -> str:
    return f"import {item.module}" + (f" as {item.alias}" if item.alias else "")


def _full_module(statement: Statement) -> str:
    """With the dots of a relative import."""
    dots = "." * len(statement.relative) if isinstance(statement, cst.ImportFrom) else ""
    return dots + _module(statement)


def root_of(statement: Statement) -> str:
    if isinstance(statement, cst.ImportFrom) and statement.relative:
        return "."
    return _module(statement).split(".")[0]


def _group(root: str) -> int:
    """0 for `__future__`, 1 for the standard library, 2 for libraries, _OWN for the project's own modules."""
    if root == "__future__":
        return 0
    if root in sys.stdlib_module_names:
        return 1
    return _OWN if root in {"", ".", SUPPORT} else 2


def _name(item: Import) -> str:
    return f"{item.name} as {item.alias}" if item.alias else item.name


class _Key(NamedTuple):
    """What import statements are sorted by."""

    dots: int
    is_from: bool
    module: str


def _key(statement: Statement) -> _Key:
    module = _full_module(statement).lower()
    return _Key(len(module) - len(module.lstrip(".")), isinstance(statement, cst.ImportFrom), module)


def _by_kind(key: _Key) -> tuple[object, ...]:
    """`import x` before `from x`, as isort has it unless told: `force_sort_within_sections`."""
    return key.dots > 0, -key.dots, key.is_from, key.module


def _by_module(key: _Key) -> tuple[object, ...]:
    return key.dots > 0, -key.dots, key.module, key.is_from


def _is_sorted(keys: Sequence[tuple[Any, ...]]) -> bool:
    return list(keys) == sorted(keys)


def _ordered(kept: list[str], added: Sequence[str]) -> list[str]:
    names = sorted([*kept, *added], key=_sort_key)
    return names if _is_sorted([_sort_key(name) for name in kept]) else [*kept, *added]


def _sort_key(name: str) -> tuple[int, str, str]:
    """Constants, classes, functions, as isort has it with its default settings, then by name."""
    name = name.split()[0]
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name.lower(), name


def _wrapped(head: str, names: Sequence[str], width: int, indent: int = 0) -> str:
    line = head + ", ".join(names)
    if len(line) + indent <= width:
        return line
    return f"{head}(\n" + "".join(f"    {name},\n" for name in names) + ")"
