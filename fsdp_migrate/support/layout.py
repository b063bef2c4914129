"""How a function is written once parameters are taken out of it: its signature, its calls, its docstring, its lines."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from textwrap import wrap

import libcst as cst

from .line_breaks import broken

WIDE = 120
"""How long the lines of the functions are here."""


@cache
def fitted(text: str, width: int, indent: str = "    ") -> str:
    """Functions as a file has them whose lines may be no longer than this."""
    lines = text.split("\n")
    for row in sorted(_docstrings(ast.parse(text)), reverse=True):
        lines[row : row + 1] = _short_docstring(lines[row], width)
    return broken("\n".join(lines), width, indent, range(len(lines)))


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """The rows, counted from 0, of those that stand on one."""
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and node.body else None
        is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        if first is not None and is_text and first.lineno == first.end_lineno:
            yield first.lineno - 1


def _short_docstring(line: str, width: int) -> list[str]:
    """The first sentence in a line of its own, where it fits, and the quotes behind the last."""
    text = line.strip()
    margin, quotes = line[: len(line) - len(line.lstrip())], text[:3]
    if len(line) <= width or text[-3:] != quotes:
        return [line]
    first, _, rest = text[:-3].partition(". ")
    if not rest or len(margin) + len(first) + 1 > width:
        first, rest = "", text[:-3]
    room = width - len(margin)
    length = room - 3 * (len(rest) <= room)  # one line would take the quotes
    below = wrap(rest, length, break_long_words=False, break_on_hyphens=False)
    below = [f"{margin}{each}" for each in below]
    return [*([f"{margin}{first}.", ""] if first else []), *below, margin + quotes]


def laid_out(text: str, name: str, gone: Mapping[str, Collection[str]], order: Mapping[str, Sequence[str]]) -> str:
    """A definition without the parameters that are gone, its own and those of the functions that it calls.

    Its docstring is the first paragraph of it.
    """
    module = cst.parse_module(text).visit(_Parameters(name, gone, order))
    return _joined(module.code, {each for each in gone if gone[each]})


def without_types(text: str) -> str:
    """A function as a file has it whose own functions say nothing of types."""
    lines = (line.partition("  # type: ignore")[0] for line in text.split("\n"))
    module = cst.parse_module("\n".join(lines)).visit(_Annotations())
    return _joined(module.code, {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)})


class _Annotations(cst.CSTTransformer):
    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        if updated_node.default is None:
            return updated_node.with_changes(annotation=None)
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        return updated_node.with_changes(annotation=None, equal=equal)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        return updated_node.with_changes(returns=None)

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.Assign | cst.AnnAssign:
        if updated_node.value is None:
            return updated_node
        return cst.Assign([cst.AssignTarget(updated_node.target)], updated_node.value)


class _Parameters(cst.CSTTransformer):
    def __init__(self, name: str, gone: Mapping[str, Collection[str]], order: Mapping[str, Sequence[str]]) -> None:
        self.name = name
        self.gone = gone
        self.order = order

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if updated_node.name.value != self.name:
            return updated_node
        gone, params = self.gone[self.name], updated_node.params
        plain = [each for each in params.params if each.name.value not in gone]
        by_name = [each for each in params.kwonly_params if each.name.value not in gone]
        if plain and not by_name:
            plain[-1] = plain[-1].with_changes(comma=params.params[-1].comma)
        changed = params.with_changes(
            params=plain,
            kwonly_params=by_name,
            star_arg=params.star_arg if by_name else cst.MaybeSentinel.DEFAULT,
        )
        function = updated_node.with_changes(params=changed) if gone else updated_node
        doc = function.body.body[0] if isinstance(function.body, cst.IndentedBlock) else None
        string = doc.body[0] if isinstance(doc, cst.SimpleStatementLine) else None
        if not isinstance(string, cst.Expr) or not isinstance(string.value, cst.SimpleString):
            return function
        new = string.value.with_changes(value=_docstring(string.value.value, gone))
        return function.with_deep_changes(string, value=new)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        callee = updated_node.func.value if isinstance(updated_node.func, cst.Name) else ""
        gone = self.gone.get(callee, ())
        if not gone:
            return updated_node
        places = self.order[callee]
        kept = []
        for index, arg in enumerate(updated_node.args):
            given = arg.keyword.value if arg.keyword is not None else places[index] if index < len(places) else ""
            if given not in gone:
                kept.append(arg)
        if len(kept) == len(updated_node.args):
            return updated_node
        if kept:
            kept[-1] = kept[-1].with_changes(comma=updated_node.args[-1].comma)
        return updated_node.with_changes(args=kept)


def _docstring(text: str, gone: Collection[str]) -> str:
    """The first paragraph of a docstring, which says what a function is for; the rest is for whoever changes it here.

    Without the sentences that name a parameter which is gone, but for the first one.
    """
    sentences = " ".join(text.strip('"').strip().split("\n\n")[0].split()).replace(". ", ".\n").split("\n")
    stay = [each for each in sentences[1:] if not any(f"`{name}`" in each for name in gone)]
    return '"""' + " ".join([sentences[0], *stay]) + '"""'


def _joined(text: str, cut: Collection[str]) -> str:
    """Statements on one line where they fit now. `cut` are the functions that have fewer parameters."""
    lines = text.split("\n")
    for start, end, is_cut in sorted(_spread(ast.parse(text), cut), reverse=True):
        line = one_line(lines[start : end + 1], is_cut)
        if line is not None and len(line) <= WIDE:
            lines[start : end + 1] = [line]
    return "\n".join(lines)


def _spread(tree: ast.Module, cut: Collection[str]) -> Iterator[tuple[int, int, bool]]:
    """The statements, or their heads, that take several lines, and whether they became shorter."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        end = (body[0].lineno - 2) if isinstance(body, list) else (node.end_lineno or node.lineno) - 1
        if end > node.lineno - 1:
            names = {
                each.func.id
                for each in ast.walk(node)
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
            }
            names = {node.name} if isinstance(node, ast.FunctionDef) else names
            yield node.lineno - 1, end, not names.isdisjoint(cut)


def one_line(lines: Sequence[str], any_comma: bool = False) -> str | None:
    """Lines joined; None where a comment, a text or a comma behind the last element keeps them apart."""
    whole = lines[0].rstrip()
    if any("#" in line or '"""' in line for line in lines):
        return None
    for line in map(str.strip, lines[1:]):
        if line.startswith((")", "]", "}")):
            if whole.endswith(",") and not any_comma:
                return None
            whole = whole.removesuffix(",") + line
        else:
            whole += line if whole.endswith(("(", "[", "{")) else f" {line}"
    return whole
