"""Statements of `ast` as LibCST's nodes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

import libcst as cst

from .annotated import annotated_assign, assign_target
from .expressions import _COMMA, _NO_COMMA, ASYNCHRONOUS, Expressions
from .make import maker
from .unknown import Unknown

_module = maker(cst.Module, "body", "header", "default_indent", "default_newline")
_line = maker(cst.SimpleStatementLine, "body")
_suite = maker(cst.SimpleStatementSuite, "body")
_block = maker(cst.IndentedBlock, "body")
_expr = maker(cst.Expr, "value")
_return = maker(cst.Return, "value")
_raise = maker(cst.Raise, "exc", "cause")
_assert = maker(cst.Assert, "test", "msg")
_del = maker(cst.Del, "target")
_tuple = maker(cst.Tuple, "elements", "lpar", "rpar")
_import = maker(cst.Import, "names")
_import_from = maker(cst.ImportFrom, "module", "names", "relative", "lpar", "rpar")
_import_star = maker(cst.ImportStar)
_alias = maker(cst.ImportAlias, "name", "asname", "comma")
_as_name = maker(cst.AsName, "name")
_assign = maker(cst.Assign, "targets", "value")
_ann_assign = maker(cst.AnnAssign, "target", "annotation", "value")
_aug_assign = maker(cst.AugAssign, "target", "operator", "value")
_name_item = maker(cst.NameItem, "name")
_if = maker(cst.If, "test", "body", "orelse")
_else = maker(cst.Else, "body")
_while = maker(cst.While, "test", "body", "orelse")
_for = maker(cst.For, "target", "iter", "body", "orelse", "asynchronous")
_tries = {
    kind: maker(node, "body", "handlers", "orelse", "finalbody")
    for kind, node in ((ast.Try, cst.Try), (getattr(ast, "TryStar", None), cst.TryStar))
}
_handlers = {
    kind: maker(node, "body", "type", "name")
    for kind, node in ((ast.Try, cst.ExceptHandler), (getattr(ast, "TryStar", None), cst.ExceptStarHandler))
}
_finally = maker(cst.Finally, "body")
_with = maker(cst.With, "items", "body", "asynchronous")
_with_item = maker(cst.WithItem, "item", "asname")
_function = maker(cst.FunctionDef, "name", "params", "body", "decorators", "returns", "asynchronous")
_decorator = maker(cst.Decorator, "decorator")
_class = maker(cst.ClassDef, "name", "body", "bases", "keywords", "decorators")
_PLAIN = {ast.Pass: maker(cst.Pass), ast.Break: maker(cst.Break), ast.Continue: maker(cst.Continue)}
_NAMES = {ast.Global: maker(cst.Global, "names"), ast.Nonlocal: maker(cst.Nonlocal, "names")}
_AUGMENTED: dict[type[ast.operator], cst.CSTNode] = {
    ast.Add: cst.AddAssign(),
    ast.Sub: cst.SubtractAssign(),
    ast.Mult: cst.MultiplyAssign(),
    ast.MatMult: cst.MatrixMultiplyAssign(),
    ast.Div: cst.DivideAssign(),
    ast.Mod: cst.ModuloAssign(),
    ast.Pow: cst.PowerAssign(),
    ast.LShift: cst.LeftShiftAssign(),
    ast.RShift: cst.RightShiftAssign(),
    ast.BitOr: cst.BitOrAssign(),
    ast.BitXor: cst.BitXorAssign(),
    ast.BitAnd: cst.BitAndAssign(),
    ast.FloorDiv: cst.FloorDivideAssign(),
}
_DOT = cst.Dot()
_ASYNC = re.compile(r"(?:async[ \t]+)?def[ \t]+")
_CLASS = re.compile(r"class[ \t]+")
_FROM = re.compile(r"from[ \t]*([. \t]*)")
_IMPORT = re.compile(r"[ \t]*import[ \t]*")
_AS = re.compile(r"\s+as\s+")
_KEYWORD = re.compile(r"[ \t\r;]*(?:#[^\n]*)?\n(?:[ \t\f]*(?:#[^\n]*)?\r?\n)*[ \t]*")
"""What stands between the end of a block and the `else` behind it."""
_BLANK_OR_COMMENT = re.compile(r"[ \t\f]*(#[^\n]*?)?\r?$")


class Statements(Expressions):
    """Makes the nodes of the statements of one text."""

    _in_class = False

    def module(self, node: ast.Module) -> cst.Module:
        """The whole text."""
        made: cst.Module = _module(self._lines(node.body), self._header(), self._indent(node), self._newline())
        self.spans[made] = (0, len(self.text))
        return made

    def _header(self) -> list[cst.EmptyLine]:
        found: list[cst.EmptyLine] = []
        for line in self.text.split("\n"):
            head = _BLANK_OR_COMMENT.match(line)
            if head is None:
                break
            comment = head.group(1)
            found.append(cst.EmptyLine(comment=cst.Comment(comment) if comment else None))
        return found

    def _indent(self, node: ast.Module) -> str:
        """That of the first block."""
        for outer in node.body:
            for inner in ast.walk(outer) if isinstance(outer, _COMPOUND) else ():
                for body in (getattr(inner, "body", None), getattr(inner, "orelse", None)):
                    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                        first = min(d.lineno for d in [body[0], *getattr(body[0], "decorator_list", [])])
                        line = self.text[self._starts[first - 1] :]
                        indent = line[: len(line) - len(line.lstrip(" \t\f"))]
                        if indent and body[0].col_offset == len(indent):
                            return indent
        return "    "

    def _newline(self) -> str:
        first = self.text.find("\n")
        return "\r\n" if first > 0 and self.text[first - 1] == "\r" else "\n"

    def _lines(self, nodes: Sequence[ast.stmt]) -> list[Any]:
        """Statements, those on one line behind semicolons together."""
        found: list[Any] = []
        small: list[Any] = []
        last = -1
        for node in nodes:
            if isinstance(node, _COMPOUND):
                self._close(small, found)
                found.append(self._compound(node))
                continue
            if node.lineno != last:
                self._close(small, found)
            small.append(self._small(node))
            last = node.end_lineno or 0
        self._close(small, found)
        return found

    def _close(self, small: list[Any], found: list[Any]) -> None:
        if small:
            line = _line(list(small))
            self.spans[line] = (self.start(small[0]), self.end(small[-1]))
            found.append(line)
            small.clear()

    def _body(self, nodes: Sequence[ast.stmt]) -> Any:
        """The block of a compound statement, on its own lines or behind the colon."""
        first = nodes[0]
        decorators = getattr(first, "decorator_list", None) or [first]
        before = self.text[self._starts[decorators[0].lineno - 1] :][: decorators[0].col_offset]
        lines = self._lines(nodes)
        if not before.replace("@", "").strip():
            made = _block(lines)
        elif len(lines) == 1 and isinstance(lines[0], cst.SimpleStatementLine):
            made = _suite(lines[0].body)
        else:
            raise Unknown
        self.spans[made] = (self.start(lines[0]), self.end(lines[-1]))
        return made

    def _else(self, nodes: Sequence[ast.stmt], before: cst.CSTNode, make: Callable[[Any], Any], word: str) -> Any:
        """`else:` or `finally:` behind what ends with `before`; None for none."""
        if not nodes:
            return None
        gap = _KEYWORD.match(self.text, self.end(before))
        start = gap.end() if gap else -1
        if not self.text.startswith(word, start):
            raise Unknown
        made = make(self._body(nodes))
        self.spans[made] = (start, self.end(made.body))
        return made

    def _small(self, node: ast.stmt) -> Any:
        start, end = self.span(node)
        make = _SMALL.get(type(node))
        if make is None:
            raise Unknown
        made = make(self, node, start)
        self.spans[made] = (start, end)
        return made

    def _plain(self, node: ast.stmt, start: int) -> Any:
        return _PLAIN[type(node)]()

    def _expr(self, node: ast.Expr, start: int) -> Any:
        return _expr(self.expression(node.value))

    def _return(self, node: ast.Return, start: int) -> Any:
        return _return(self.expression(node.value))

    def _raise(self, node: ast.Raise, start: int) -> Any:
        raised = self.expression(node.exc)
        cause = self.expression(node.cause)
        return _raise(
            raised, self.from_(cause, self.brackets.skip_gap(self.end(raised))) if cause is not None else None
        )

    def _assert(self, node: ast.Assert, start: int) -> Any:
        return _assert(self.expression(node.test), self.expression(node.msg))

    def _delete(self, node: ast.Delete, start: int) -> Any:
        if len(node.targets) == 1:
            return _del(self.expression(node.targets[0]))
        elements = [self.element(target) for target in node.targets]
        made = _tuple(elements, (), ())
        self.spans[made] = (self.start(elements[0]), self.end(elements[-1]))
        return _del(made)

    def _import(self, node: ast.Import, start: int) -> Any:
        return _import(self._aliases(node.names))

    def _import_from(self, node: ast.ImportFrom, start: int) -> Any:
        found = _FROM.match(self.text, start)
        if found is None or found.group(1).count(".") != node.level:
            raise Unknown
        module = self.dotted(node.module, found.end()) if node.module else None
        if node.names[0].name == "*":
            return _import_from(module, _import_star(), (_DOT,) * node.level, None, None)
        gap = _IMPORT.match(self.text, self.end(module) if module is not None else found.end())
        if gap is None:
            raise Unknown
        names = self._aliases(node.names)
        if self.text[gap.end()] == "(":
            return _import_from(module, names, (_DOT,) * node.level, cst.LeftParen(), cst.RightParen())
        return _import_from(module, names, (_DOT,) * node.level, None, None)

    def _aliases(self, nodes: Sequence[ast.alias]) -> list[cst.ImportAlias]:
        found = []
        for number, node in enumerate(nodes, 1):
            start, end = self.span(node)
            name = self.dotted(node.name, start)
            asname = self._as(node.asname, self.end(name)) if node.asname else None
            has_comma = number < len(nodes) or self.text[self.brackets.skip_gap(end) :][:1] == ","
            alias = _alias(name, asname, _COMMA if has_comma else _NO_COMMA)
            self.spans[alias] = (start, end)
            found.append(alias)
        return found

    def _as(self, name: str, after: int) -> cst.AsName:
        """`as name` behind a place."""
        gap = _AS.match(self.text, after)
        if gap is None:
            raise Unknown
        made: cst.AsName = _as_name(self.name(name, gap.end()))
        self.spans[made] = (after, self.end(made.name))
        return made

    def _assign(self, node: ast.Assign, start: int) -> Any:
        targets = [self._assign_target(each) for each in node.targets]
        return _assign(targets, self.expression(node.value))

    def _assign_target(self, node: ast.expr) -> Any:
        target = self.expression(node)
        made = assign_target(target)
        self.spans[made] = self.spans[target]
        return made

    def _ann_assign(self, node: ast.AnnAssign, start: int) -> Any:
        if node.value is None or self._in_class:
            target, annotation = self.expression(node.target), self.annotation(node.annotation)
            return _ann_assign(target, annotation, self.expression(node.value))
        targets = [self._assign_target(node.target)]
        annotation = self.annotation(node.annotation)
        return annotated_assign(targets, annotation, self.expression(node.value))

    def _aug_assign(self, node: ast.AugAssign, start: int) -> Any:
        return _aug_assign(self.expression(node.target), _AUGMENTED[type(node.op)], self.expression(node.value))

    def _names(self, node: ast.Global | ast.Nonlocal, start: int) -> Any:
        at = start + len("global" if isinstance(node, ast.Global) else "nonlocal")
        items = []
        for name in node.names:
            found = re.compile(rf"\b{re.escape(name)}\b").search(self.text, at)
            if found is None:
                raise Unknown
            item = _name_item(self.name(name, found.start()))
            self.spans[item] = self.spans[item.name]
            items.append(item)
            at = found.end()
        return _NAMES[type(node)](items)

    def _compound(self, node: ast.stmt) -> Any:
        make = _LARGE.get(type(node))
        if make is None:
            raise Unknown
        made, last = make(self, node)
        self.spans[made] = (self.at(node.lineno, node.col_offset), self.end(last))
        return made

    def _if(self, node: ast.If) -> Any:
        test, body = self.expression(node.test), self._body(node.body)
        orelse = node.orelse
        if len(orelse) == 1 and isinstance(orelse[0], ast.If):
            start = self.at(orelse[0].lineno, orelse[0].col_offset)
            if self.text.startswith("elif", start):
                other = self._compound(orelse[0])
                return _if(test, body, other), other
        rest = self._else(orelse, body, _else, "else")
        return _if(test, body, rest), rest or body

    def _while(self, node: ast.While) -> Any:
        test, body = self.expression(node.test), self._body(node.body)
        rest = self._else(node.orelse, body, _else, "else")
        return _while(test, body, rest), rest or body

    def _for(self, node: ast.For | ast.AsyncFor) -> Any:
        target, iterable, body = self.expression(node.target), self.expression(node.iter), self._body(node.body)
        rest = self._else(node.orelse, body, _else, "else")
        is_async = ASYNCHRONOUS if isinstance(node, ast.AsyncFor) else None
        return _for(target, iterable, body, rest, is_async), rest or body

    def _try(self, node: ast.Try) -> Any:
        body = self._body(node.body)
        handlers = [self._handler(each, type(node)) for each in node.handlers]
        last: cst.CSTNode = handlers[-1] if handlers else body
        orelse = self._else(node.orelse, last, _else, "else")
        last = orelse or last
        final = self._else(node.finalbody, last, _finally, "finally")
        return _tries[type(node)](body, handlers, orelse, final), final or last

    def _handler(self, node: ast.ExceptHandler, kind: type) -> Any:
        caught = self.expression(node.type)
        name = self._as(node.name, self.end(caught)) if node.name else None
        made = _handlers[kind](self._body(node.body), caught, name)
        self.spans[made] = (self.at(node.lineno, node.col_offset), self.end(made.body))
        return made

    def _with(self, node: ast.With | ast.AsyncWith) -> Any:
        start = self.text.index("with", self.at(node.lineno, node.col_offset)) + len("with")
        opening = self.brackets.skip_gap(start)
        closing = self.brackets.closing.get(opening)
        if closing is not None and self.text[self.brackets.skip_gap(closing + 1)] == ":":
            self._own_parens_of(node, opening)
        items = []
        for each in node.items:
            item = self.expression(each.context_expr)
            end = self.end(item)
            asname = None
            if each.optional_vars is not None:
                target = self.expression(each.optional_vars)
                asname = _as_name(target)
                self.spans[asname] = (end, self.end(target))
                end = self.end(target)
            made = _with_item(item, asname)
            self.spans[made] = (self.start(item), end)
            items.append(made)
        body = self._body(node.body)
        return _with(items, body, ASYNCHRONOUS if isinstance(node, ast.AsyncWith) else None), body

    def _own_parens_of(self, node: ast.With | ast.AsyncWith, opening: int) -> None:
        first = node.items[0].context_expr
        if not isinstance(first, (ast.Tuple, ast.GeneratorExp)) or self.span(first)[0] != opening:
            self._owned.add(opening)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
        if getattr(node, "type_params", None):
            raise Unknown
        decorators = self._decorators(node.decorator_list)
        found = _ASYNC.match(self.text, self.at(node.lineno, node.col_offset))
        if found is None:
            raise Unknown
        name = self.name(node.name, found.end())
        opening = self.brackets.skip_gap(self.end(name))
        self._owned.add(opening)
        params = self.parameters(node.args, opening + 1)
        returns = self.annotation(node.returns)
        body = self._body_of(node, False)
        is_async = ASYNCHRONOUS if isinstance(node, ast.AsyncFunctionDef) else None
        return _function(name, params, body, decorators, returns, is_async), body

    def _body_of(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, is_class: bool) -> Any:
        outer, self._in_class = self._in_class, is_class
        body = self._body(node.body)
        self._in_class = outer
        return body

    def _decorators(self, nodes: Sequence[ast.expr]) -> list[cst.Decorator]:
        found = []
        for node in nodes:
            value = self.expression(node)
            made = _decorator(value)
            self.spans[made] = (self.text.rindex("@", 0, self.start(value)), self.end(value))
            found.append(made)
        return found

    def _class(self, node: ast.ClassDef) -> Any:
        if getattr(node, "type_params", None):
            raise Unknown
        decorators = self._decorators(node.decorator_list)
        found = _CLASS.match(self.text, self.at(node.lineno, node.col_offset))
        if found is None:
            raise Unknown
        name = self.name(node.name, found.end())
        self._owned.add(self.brackets.skip_gap(self.end(name)))
        arguments = self.arguments(node.bases, node.keywords)
        bases = [a for a in arguments if a.keyword is None and a.star != "**"]
        keywords = [a for a in arguments if a not in bases]
        body = self._body_of(node, True)
        return _class(name, body, bases, keywords, decorators), body


_SMALL: dict[type, Callable[..., Any]] = {
    ast.Pass: Statements._plain,
    ast.Break: Statements._plain,
    ast.Continue: Statements._plain,
    ast.Expr: Statements._expr,
    ast.Return: Statements._return,
    ast.Raise: Statements._raise,
    ast.Assert: Statements._assert,
    ast.Delete: Statements._delete,
    ast.Import: Statements._import,
    ast.ImportFrom: Statements._import_from,
    ast.Assign: Statements._assign,
    ast.AnnAssign: Statements._ann_assign,
    ast.AugAssign: Statements._aug_assign,
    ast.Global: Statements._names,
    ast.Nonlocal: Statements._names,
}
_LARGE: dict[type, Callable[..., Any]] = {
    ast.If: Statements._if,
    ast.While: Statements._while,
    ast.For: Statements._for,
    ast.AsyncFor: Statements._for,
    ast.Try: Statements._try,
    ast.With: Statements._with,
    ast.AsyncWith: Statements._with,
    ast.FunctionDef: Statements._function,
    ast.AsyncFunctionDef: Statements._function,
    ast.ClassDef: Statements._class,
}
if hasattr(ast, "TryStar"):
    _LARGE[ast.TryStar] = Statements._try
_COMPOUND = (*_LARGE, *((ast.Match,) if hasattr(ast, "Match") else ()))
