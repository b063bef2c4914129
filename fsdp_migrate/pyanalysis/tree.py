"""One parsed file: its LibCST tree, and where each node stands in the text.

One parse, one position pass and one traversal a file; everything else in `analysis/` reads this index.
Positions are offsets in characters into the text as it was read, because edits are made on the text:
what no edit touches stays byte for byte as the user wrote it.
"""

from __future__ import annotations

from abc import ABCMeta
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, cast

import libcst as cst

from .depth import TooDeep
from .scopes import Binds, Scope, bind, is_binding, turns
from .syntax import AnnotatedAssign, parse

N = TypeVar("N", bound=cst.CSTNode)

_LAYOUT = (
    "whitespace",
    "leading",
    "lines_after",
    "footer",
    "header",
    "trailing_whitespace",
    "lpar",
    "rpar",
    "comma",
    "semicolon",
    "colon",
    "first_colon",
    "second_colon",
    "lbracket",
    "rbracket",
    "lbrace",
    "rbrace",
    "dot",
    "equal",
    "operator",
    "relative",
    "asynchronous",
)
_FIRST: Mapping[type[cst.CSTNode], tuple[str, ...]] = {
    cst.ClassDef: ("decorators", "name"),
    cst.FunctionDef: ("decorators", "name", "params", "returns"),
    cst.IfExp: ("body",),
    AnnotatedAssign: ("targets", "annotation"),
}
"""The fields that stand first in the text, where LibCST declares them later."""
_SEQUENCES = {list, tuple}
_SCOPES = {cst.FunctionDef, cst.ClassDef, cst.Lambda}


_OPEN = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
_CLOSED = (cst.SimpleString, cst.FormattedString, cst.BaseNumber, cst.List, cst.Set, cst.Dict)
"""What needs no brackets around it: because it ends in a name or in brackets, and because it is in signs of its own."""


DEEPEST = 600
"""How many nodes may lie inside each other. In the real programs that were measured, no more than 31 do."""


_WIDTHS = (80, 88, 100, 120)
_USUAL = 100
_EVIDENCE = 100
"""With fewer lines than these, a file does not show how long its lines may be."""


def _indent_of(text: str, first: str) -> str:
    """That of the first block, unless most lines are indented by the other kind."""
    is_tabs = text.count("\n\t") > text.count("\n ")
    if first.startswith("\t") is is_tabs:
        return first
    return "\t" if is_tabs else "    "


def _width_of(text: str) -> int:
    """How long the lines of a file are, but for one in fifty."""
    lengths = [len(line) for line in text.splitlines() if line.strip()]
    longer = {width: sum(length > width for length in lengths) for width in _WIDTHS}
    fitting = [width for width in _WIDTHS if longer[width] * 50 <= len(lengths)]
    shown = fitting[0] if fitting else _WIDTHS[-1]
    return shown if len(lengths) >= _EVIDENCE else _USUAL


class Tree:
    """A parsed file. Raises `libcst.ParserSyntaxError` when the text is not Python, `TooDeep` when it is nested so."""

    def __init__(self, path: Path, text: str, width: int | None = None) -> None:
        """`width` is how long a line may be, where the project says so."""
        self.path = path
        self.text = text
        self._given_width = width
        self.module, self._places = parse(text)
        index = _Index(self.module)
        _pass_over_own_names(index, path)
        self._index = index
        self._stands_for: dict[cst.CSTNode, cst.CSTNode] = {}
        self.order: Mapping[cst.CSTNode, int] = index.order
        """The place of each node in the text, relative to the others."""
        self._last = index.last
        self._in_order = list(index.order)
        self.parents: Mapping[cst.CSTNode, cst.CSTNode] = index.parents
        self.scope_of: Mapping[cst.CSTNode, Scope] = index.scope_of
        self.scope = index.top
        self._by_type = index.by_type
        self.flows: dict[tuple[Scope, str], Any] = {}
        """For `flow`: its walks through this file."""
        self.newline = self.module.default_newline

    @cached_property
    def width(self) -> int:
        """How long a line may be."""
        return self._given_width or _width_of(self.text)

    @cached_property
    def indent(self) -> str:
        """One level of indentation, as most of the file has it."""
        return _indent_of(self.text, self.module.default_indent)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n")[:-1])]

    def nodes(self, kind: type[N]) -> list[N]:
        """All nodes of exactly this type (of assignments: those that say a type as well), in the order of the text."""
        return cast("list[N]", self._by_type.get(kind, []))

    def attributes(self, name: str) -> list[cst.Attribute]:
        """All nodes `x.name`, in the order of the text."""
        return self._by_attribute.get(name, [])

    def names(self, name: str) -> list[cst.Name]:
        """All nodes `name`, in the order of the text."""
        return self._by_name.get(name, [])

    @cached_property
    def bound_in_comprehensions(self) -> frozenset[str]:
        """The names that comprehensions bind."""
        return frozenset(binding.name for part in self.nodes(cst.CompFor) for binding in turns(part))

    def results(self, function: cst.CSTNode, kind: type[N]) -> Sequence[N]:
        """The `return`s or `yield`s of a function itself (those of functions inside it left out)."""
        return cast("Sequence[N]", self._results.get((function, kind), ()))

    @cached_property
    def _results(self) -> Mapping[tuple[cst.CSTNode, type[cst.CSTNode]], list[cst.CSTNode]]:
        found: dict[tuple[cst.CSTNode, type[cst.CSTNode]], list[cst.CSTNode]] = defaultdict(list)
        for kind in (cst.Return, cst.Yield):
            for node in self.nodes(kind):
                found[self.scope_of[node].node, kind].append(node)
        return found

    def named(self, *names: str) -> list[cst.Name | cst.Attribute]:
        """All nodes with one of these names, and then all `x.name`, each in the order of the text."""
        plain = sorted((node for name in {*names} for node in self.names(name)), key=self.order.__getitem__)
        dotted = sorted((node for name in {*names} for node in self.attributes(name)), key=self.order.__getitem__)
        return [*plain, *dotted]

    @cached_property
    def _by_name(self) -> Mapping[str, list[cst.Name]]:
        found: dict[str, list[cst.Name]] = defaultdict(list)
        for node in self.nodes(cst.Name):
            found[node.value].append(node)
        return found

    @cached_property
    def _by_attribute(self) -> Mapping[str, list[cst.Attribute]]:
        found: dict[str, list[cst.Attribute]] = defaultdict(list)
        for node in self.nodes(cst.Attribute):
            found[node.attr.value].append(node)
        return found

    def add_for(self, known: cst.CSTNode, node: cst.CSTNode) -> None:
        """Let a node that is not in the text stand where a known one does. No search of the tree finds it."""
        self._stands_for[node] = known
        self._index.order[node], self._index.last[node] = self._index.order[known], self._index.last[known]
        self._index.scope_of[node] = self._index.scope_of[known]
        self._index.parents[node] = self._index.parents[known]

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """`[start, end)` of the node in characters, its own parentheses included, the white space around it not."""
        return self._places.span(self._stands_for.get(node, node))

    def bare_span(self, node: cst.CSTNode) -> tuple[int, int]:
        """The same without its own parentheses."""
        return self._places.bare_span(self._stands_for.get(node, node))

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, without brackets that change nothing: `(model)` is `model`."""
        is_free = isinstance(node, (*_OPEN, *_CLOSED)) and node.lpar and not self._is_held_together(node)
        start, end = self.bare_span(node) if is_free else self.span(node)
        return self.text[start:end]

    def _is_held_together(self, node: cst.BaseExpression) -> bool:
        """Whether a line ends where only the brackets around the node let it go on."""
        if isinstance(node, _CLOSED):
            return False
        open_part = {cst.Call: "func", cst.Subscript: "value"}.get(type(node))
        start, end = self.bare_span(node if open_part is None else getattr(node, open_part))
        return "\n" in self.text[start:end]

    def position(self, node: cst.CSTNode) -> tuple[int, int]:
        """1-based line and column of the node's first character."""
        start = self.span(node)[0]
        line = bisect_right(self._line_starts, start)
        return line, start - self._line_starts[line - 1] + 1

    def line_start(self, offset: int) -> int:
        """Offset of the first character of the line that holds `offset`."""
        return self._line_starts[bisect_right(self._line_starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Offset just behind the newline of the line that holds `offset`."""
        following = bisect_right(self._line_starts, offset)
        return self._line_starts[following] if following < len(self._line_starts) else len(self.text)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The node's parent, its parent, and so on up to the module."""
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    def inside(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The node and everything within it, in the order of the text."""
        return self._in_order[self.order[node] : self._last[node] + 1]

    @cached_property
    def interrupted(self) -> frozenset[cst.CSTNode]:
        """All in which a turn of a loop ends early."""
        return self._around(cst.Break, cst.Continue)

    @cached_property
    def left_early(self) -> frozenset[cst.CSTNode]:
        """All in which something may not be come to that stands there."""
        return self._around(cst.Break, cst.Continue, cst.Return, cst.Raise)

    def _around(self, *kinds: type[cst.CSTNode]) -> frozenset[cst.CSTNode]:
        return frozenset(outer for kind in kinds for node in self.nodes(kind) for outer in self.ancestors(node))

    def reach(self, node: cst.CSTNode) -> tuple[int, int]:
        """The `order` of a node, and of the last within it."""
        return self.order[node], self._last[node]

    def contains(self, outer: cst.CSTNode, inner: cst.CSTNode) -> bool:
        """Whether `inner` is `outer`, or stands within it."""
        at = self.order.get(inner, -1)
        return outer is inner or self.order.get(outer, at + 1) <= at <= self._last[outer]


def _dotted(node: cst.Name | cst.Attribute) -> tuple[str, ...]:
    return (*_dotted(cast(Any, node.value)), node.attr.value) if isinstance(node, cst.Attribute) else (node.value,)


def _pass_over_own_names(index: _Index, path: Path) -> None:
    """`from a.b.c import Name` in `a/b/c.py`, below what is defined there by that name: it is the same once more."""
    for statement in cast("list[cst.ImportFrom]", index.by_type.get(cst.ImportFrom, [])):
        names = _dotted(statement.module) if not statement.relative and statement.module is not None else ()
        if len(names) < 2 or path.with_suffix("").parts[-len(names) :] != names:
            continue
        for alias in statement.names if not isinstance(statement.names, cst.ImportStar) else ():
            bindings = index.scope_of[alias].bindings.get(alias.evaluated_name, [])
            defined = [each for each in bindings if each.how is Binds.DEFINITION]
            if defined and alias.asname is None:
                bindings[:] = [each for each in bindings if each.node is not alias]


class _Index:
    """The one traversal: parents, nodes by type, scopes and what they bind.

    LibCST's visitors rebuild the tree as they go, which costs more than the parse; reading the fields does not.
    """

    def __init__(self, module: cst.Module) -> None:
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.scope_of: dict[cst.CSTNode, Scope] = {}
        self.by_type: dict[type[cst.CSTNode], list[cst.CSTNode]] = defaultdict(list)
        self.order: dict[cst.CSTNode, int] = {}
        self.last: dict[cst.CSTNode, int] = {}
        """The `order` of the last node within each node."""
        self.top = Scope(module, None)
        self._visit(module, self.top, 0)

    def _visit(self, node: cst.CSTNode, scope: Scope, depth: int) -> None:
        if depth > DEEPEST:
            raise TooDeep
        kind = type(node)
        children, binds = _LAYOUTS[kind]
        order = self.order
        at = order[node] = len(order)
        self.scope_of[node] = scope
        self.by_type[kind].append(node)
        if kind is AnnotatedAssign:
            self.by_type[cst.Assign].append(node)
        if binds:
            bind(scope, node)
        if children is None:
            self.last[node] = at
            return
        inner = Scope(node, scope) if kind in _SCOPES else scope
        for value in children(node):
            if type(value) in _SEQUENCES:
                for child in value:
                    self.parents[child] = node
                    self._visit(child, inner, depth + 1)
            elif type(value) in _NODES:
                self.parents[value] = node
                self._visit(value, inner, depth + 1)
        self.last[node] = len(order) - 1


_Children = Callable[[Any], tuple[Any, ...]]


class _Layouts(dict[type, "tuple[_Children | None, bool]"]):
    """Of each node type, what reads the fields in which there can be nodes, and whether it can bind names."""

    def __missing__(self, kind: type[cst.CSTNode]) -> tuple[_Children | None, bool]:
        texts = {field.name for field in fields(kind) if field.type in (str, "str")}
        names = [name for name in _fields(kind) if name not in texts]
        # of one name, `attrgetter` gives no tuple: the kind of the node, beside it, is no node
        children = attrgetter(*names, "__class__") if names else None
        found = self[kind] = children, is_binding(kind)
        return found


def _kinds(kind: Any) -> Iterator[type]:
    yield kind
    for more in kind.__subclasses__():
        yield from _kinds(more)


_LAYOUTS = _Layouts()
_NODES = frozenset(_kinds(cst.CSTNode))


class _Plain(ABCMeta):
    __instancecheck__ = type.__instancecheck__


def _children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes of syntax right within a node, in the order of the text."""
    read, _ = _LAYOUTS[type(node)]
    found: list[cst.CSTNode] = []
    for value in read(node) if read is not None else ():
        if type(value) in _SEQUENCES:
            found += value
        elif type(value) in _NODES:
            found.append(value)
    return found


def _in_c(kind: Any) -> None:
    """LibCST's nodes are hashed, compared and asked for their classes as any object is, but in Python.

    Each takes a tenth of the time of a run. What is in a node, LibCST finds by rebuilding it, layout and all.
    """
    kind.__hash__ = object.__hash__
    kind.__eq__ = object.__eq__
    kind.__class__ = _Plain
    kind.children = property(_children)
    for more in kind.__subclasses__():
        _in_c(more)


_in_c(cst.CSTNode)


def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a node type that hold syntax (not layout), in the order of the text."""
    names = [field.name for field in fields(kind) if not field.name.startswith(_LAYOUT)]
    first = [name for name in _FIRST.get(kind, ()) if name in names]
    return (*first, *(name for name in names if name not in first))
