"""Expressions of `ast` as LibCST's nodes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import libcst as cst

from .brackets import STRING, Brackets
from .make import maker
from .strings import Hole, Literal, literals, parts
from .unknown import Unknown

_PAREN = (cst.LeftParen(),)
_CLOSED = (cst.RightParen(),)
_COMMA = cst.Comma()
_NO_COMMA = cst.MaybeSentinel.DEFAULT

_name = maker(cst.Name, "value", "lpar", "rpar")
_attribute = maker(cst.Attribute, "value", "attr", "lpar", "rpar")
_call = maker(cst.Call, "func", "args", "lpar", "rpar")
_arg = maker(cst.Arg, "value", "keyword", "star", "comma")
_subscript = maker(cst.Subscript, "value", "slice", "lpar", "rpar")
_subscript_element = maker(cst.SubscriptElement, "slice")
_index = maker(cst.Index, "value", "star")
_slice = maker(cst.Slice, "lower", "upper", "step")
_binary = maker(cst.BinaryOperation, "left", "operator", "right", "lpar", "rpar")
_boolean = maker(cst.BooleanOperation, "left", "operator", "right", "lpar", "rpar")
_unary = maker(cst.UnaryOperation, "operator", "expression", "lpar", "rpar")
_comparison = maker(cst.Comparison, "left", "comparisons", "lpar", "rpar")
_comparison_target = maker(cst.ComparisonTarget, "operator", "comparator")
_if_exp = maker(cst.IfExp, "test", "body", "orelse", "lpar", "rpar")
_lambda = maker(cst.Lambda, "params", "body", "lpar", "rpar")
_parameters = maker(
    cst.Parameters, "params", "star_arg", "kwonly_params", "star_kwarg", "posonly_params", "posonly_ind"
)
_param = maker(cst.Param, "name", "annotation", "default", "star")
_param_star = maker(cst.ParamStar)
_param_slash = maker(cst.ParamSlash)
_annotation = maker(cst.Annotation, "annotation")
_element = maker(cst.Element, "value")
_starred = maker(cst.StarredElement, "value")
_dict = maker(cst.Dict, "elements", "lpar", "rpar")
_dict_element = maker(cst.DictElement, "key", "value")
_starred_dict = maker(cst.StarredDictElement, "value")
_dict_comp = maker(cst.DictComp, "key", "value", "for_in", "lpar", "rpar")
_comp_for = maker(cst.CompFor, "target", "iter", "ifs", "inner_for_in", "asynchronous")
_comp_if = maker(cst.CompIf, "test")
_await = maker(cst.Await, "expression", "lpar", "rpar")
_yield = maker(cst.Yield, "value", "lpar", "rpar")
_from = maker(cst.From, "item")
_named = maker(cst.NamedExpr, "target", "value", "lpar", "rpar")
_string = maker(cst.SimpleString, "value", "lpar", "rpar")
_concatenated = maker(cst.ConcatenatedString, "left", "right", "lpar", "rpar")
_formatted = maker(cst.FormattedString, "parts", "start", "end", "lpar", "rpar")
_formatted_text = maker(cst.FormattedStringText, "value")
_formatted_hole = maker(cst.FormattedStringExpression, "expression", "conversion", "format_spec")
_ellipsis = maker(cst.Ellipsis, "lpar", "rpar")
_NUMBERS: dict[type, Callable[..., Any]] = {
    kind: maker(node, "value", "lpar", "rpar")
    for kind, node in ((int, cst.Integer), (float, cst.Float), (complex, cst.Imaginary))
}
_SEQUENCES: dict[type, Callable[..., Any]] = {
    kind: maker(node, "elements", "lpar", "rpar")
    for kind, node in ((ast.Tuple, cst.Tuple), (ast.List, cst.List), (ast.Set, cst.Set))
}
_COMPREHENSIONS: dict[type, Callable[..., Any]] = {
    kind: maker(node, "elt", "for_in", "lpar", "rpar")
    for kind, node in ((ast.ListComp, cst.ListComp), (ast.SetComp, cst.SetComp), (ast.GeneratorExp, cst.GeneratorExp))
}
_OPERATORS: dict[type, cst.CSTNode] = {
    kind: node()
    for kind, node in {
        ast.Add: cst.Add,
        ast.Sub: cst.Subtract,
        ast.Mult: cst.Multiply,
        ast.MatMult: cst.MatrixMultiply,
        ast.Div: cst.Divide,
        ast.Mod: cst.Modulo,
        ast.Pow: cst.Power,
        ast.LShift: cst.LeftShift,
        ast.RShift: cst.RightShift,
        ast.BitOr: cst.BitOr,
        ast.BitXor: cst.BitXor,
        ast.BitAnd: cst.BitAnd,
        ast.FloorDiv: cst.FloorDivide,
        ast.And: cst.And,
        ast.Or: cst.Or,
        ast.Invert: cst.BitInvert,
        ast.Not: cst.Not,
        ast.UAdd: cst.Plus,
        ast.USub: cst.Minus,
        ast.Eq: cst.Equal,
        ast.NotEq: cst.NotEqual,
        ast.Lt: cst.LessThan,
        ast.LtE: cst.LessThanEqual,
        ast.Gt: cst.GreaterThan,
        ast.GtE: cst.GreaterThanEqual,
        ast.Is: cst.Is,
        ast.IsNot: cst.IsNot,
        ast.In: cst.In,
        ast.NotIn: cst.NotIn,
    }.items()
}
ASYNCHRONOUS = cst.Asynchronous()

Span = tuple[int, int]
_LONE_RETURN = re.compile(r"\r(?!\n)")


class Expressions:
    """Makes the nodes of one text, and remembers where they stand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans: dict[cst.CSTNode, Span] = {}
        """`[start, end)` in characters; of an expression, its own parentheses included."""
        self.bare_spans: dict[cst.CSTNode, Span] = {}
        """Of expressions in parentheses, where they stand within them."""
        self.joined: dict[cst.CSTNode, tuple[cst.Module, int]] = {}
        """Strings that LibCST has parsed: the module each is alone in, and where that would start in the text."""
        self.brackets = Brackets(text)
        self._owned: set[int] = set()
        """Parentheses that belong to a call, a class or a statement."""
        if _LONE_RETURN.search(text) is not None:
            raise Unknown  # `ast` counts a line there
        self._starts = [0]
        for line in text.split("\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._ascii = text.isascii()

    def at(self, line: int, column: int) -> int:
        """A place of `ast`, in characters."""
        start = self._starts[line - 1]
        if self._ascii:
            return start + column
        text = self.text[start : start + column]
        if text.isascii():
            return start + column
        return start + len(text.encode()[:column].decode())

    def span(self, node: Any) -> Span:
        """Where a node of `ast` stands."""
        if self._ascii:
            starts = self._starts
            return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def start(self, node: cst.CSTNode) -> int:
        return self.spans[node][0]

    def end(self, node: cst.CSTNode) -> int:
        return self.spans[node][1]

    def name(self, value: str, start: int) -> cst.Name:
        """The name that has to stand at a place."""
        if not self.text.startswith(value, start):
            raise Unknown
        made: cst.Name = _name(value, (), ())
        self.spans[made] = (start, start + len(value))
        return made

    def dotted(self, value: str, start: int) -> cst.Name | cst.Attribute:
        """`a.b.c` of an import."""
        if not self.text.startswith(value, start):
            raise Unknown
        first, *rest = value.split(".")
        made: cst.Name | cst.Attribute = self.name(first, start)
        end = start + len(first)
        for part in rest:
            attr = self.name(part, end + 1)
            end += 1 + len(part)
            made = _attribute(made, attr, (), ())
            self.spans[made] = (start, end)
        return made

    def expression(self, node: ast.expr | None) -> Any:
        """The node of an expression; None for none."""
        if node is None:
            return None
        start, end = self.span(node)
        return self._within(node, start, end)

    def _within(self, node: ast.expr, start: int, end: int) -> Any:
        make = _MAKERS.get(type(node))
        if make is None:
            raise Unknown
        own = 0
        if isinstance(node, (ast.Tuple, ast.GeneratorExp)) and self.brackets.closing.get(start) == end - 1:
            if isinstance(node, ast.GeneratorExp) and start in self._owned:
                start, end = self.brackets.inside[start]
            else:
                own = 1
        outer_start, outer_end, count = start, end, own
        around, owned = self.brackets.around, self._owned
        opening = around.get((start, end))
        while opening is not None and opening not in owned:
            count += 1
            outer_start, outer_end = opening, self.brackets.closing[opening] + 1
            opening = around.get((outer_start, outer_end))
        made = make(self, node, start, end, _PAREN * count, _CLOSED * count)
        self.spans[made] = (outer_start, outer_end)
        if count:
            self.bare_spans[made] = (start, end)
        return made

    def expressions(self, nodes: Iterable[ast.expr]) -> list[Any]:
        return [self.expression(node) for node in nodes]

    def _name(self, node: ast.Name, start: int, end: int, *parens: Any) -> Any:
        return _name(self.text[start:end], *parens)

    def _attribute(self, node: ast.Attribute, start: int, end: int, *parens: Any) -> Any:
        value = self.expression(node.value)
        return _attribute(value, self.name(node.attr, end - len(node.attr)), *parens)

    def _call(self, node: ast.Call, start: int, end: int, *parens: Any) -> Any:
        self._owned.add(self.brackets.opening[end - 1])
        func = self.expression(node.func)
        return _call(func, self.arguments(node.args, node.keywords), *parens)

    def arguments(self, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> list[cst.Arg]:
        """The arguments of a call or of a class, in the order of the text."""
        found: list[Any] = [*args, *keywords]
        if keywords and args:
            found.sort(key=lambda argument: (argument.lineno, argument.col_offset))
        return [self._argument(each, each is found[-1]) for each in found]

    def _argument(self, node: Any, is_last: bool) -> cst.Arg:
        if isinstance(node, ast.keyword):
            start = self.at(node.lineno, node.col_offset)
            keyword = self.name(node.arg, start) if node.arg is not None else None
            star = "" if node.arg is not None else "**"
            value = self.expression(node.value)
        elif isinstance(node, ast.Starred):
            start, keyword, star = self.at(node.lineno, node.col_offset), None, "*"
            value = self.expression(node.value)
        else:
            keyword, star, value = None, "", self.expression(node)
            start = self.start(value)
        end = self.end(value)
        has_comma = not is_last or self.text[self.brackets.skip_gap(end)] == ","
        made: cst.Arg = _arg(value, keyword, star, _COMMA if has_comma else _NO_COMMA)
        self.spans[made] = (start, end)
        return made

    def _subscript(self, node: ast.Subscript, start: int, end: int, *parens: Any) -> Any:
        value = self.expression(node.value)
        inner = node.slice
        parts: Sequence[ast.expr] = [inner]
        if isinstance(inner, ast.Tuple):
            first, last = self.span(inner)
            # `a[b, c]`, and not `a[(b, c)]`.
            if self.brackets.closing.get(first) != last - 1 and inner.elts:
                parts = inner.elts
        return _subscript(value, [self._subscripted(part) for part in parts], *parens)

    def _subscripted(self, node: ast.expr) -> cst.SubscriptElement:
        span = self.span(node)
        if isinstance(node, ast.Slice):
            made: Any = _slice(self.expression(node.lower), self.expression(node.upper), self.expression(node.step))
        elif isinstance(node, ast.Starred):
            made = _index(self.expression(node.value), "*")
        else:
            value = self.expression(node)
            made, span = _index(value, None), self.spans[value]
        element: cst.SubscriptElement = _subscript_element(made)
        self.spans[made] = self.spans[element] = span
        return element

    def _binary(self, node: ast.BinOp, start: int, end: int, *parens: Any) -> Any:
        left = self.expression(node.left)
        return _binary(left, _OPERATORS[type(node.op)], self.expression(node.right), *parens)

    def _boolean(self, node: ast.BoolOp, start: int, end: int, *parens: Any) -> Any:
        left, *others = self.expressions(node.values)
        operator = _OPERATORS[type(node.op)]
        for right in others[:-1]:
            first = self.start(left)
            left = _boolean(left, operator, right, (), ())
            self.spans[left] = (first, self.end(right))
        return _boolean(left, operator, others[-1], *parens)

    def _unary(self, node: ast.UnaryOp, start: int, end: int, *parens: Any) -> Any:
        return _unary(_OPERATORS[type(node.op)], self.expression(node.operand), *parens)

    def _comparison(self, node: ast.Compare, start: int, end: int, *parens: Any) -> Any:
        left = self.expression(node.left)
        targets, end_of_left = [], self.end(left)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            value = self.expression(comparator)
            target = _comparison_target(_OPERATORS[type(operator)], value)
            self.spans[target] = (end_of_left, self.end(value))
            end_of_left = self.end(value)
            targets.append(target)
        return _comparison(left, targets, *parens)

    def _if_exp(self, node: ast.IfExp, start: int, end: int, *parens: Any) -> Any:
        body = self.expression(node.body)
        return _if_exp(self.expression(node.test), body, self.expression(node.orelse), *parens)

    def _lambda(self, node: ast.Lambda, start: int, end: int, *parens: Any) -> Any:
        params = self.parameters(node.args, start + len("lambda"))
        return _lambda(params, self.expression(node.body), *parens)

    def parameters(self, node: ast.arguments, start: int) -> cst.Parameters:
        """The parameters of a function or lambda."""
        plain = [*node.posonlyargs, *node.args]
        defaults = [None] * (len(plain) - len(node.defaults)) + list(node.defaults)
        made = [self._param(arg, default, "") for arg, default in zip(plain, defaults, strict=True)]
        only = len(node.posonlyargs)
        star: Any = _NO_COMMA
        if node.vararg is not None:
            star = self._param(node.vararg, None, "*")
        elif node.kwonlyargs:
            star = _param_star()
        keyed = zip(node.kwonlyargs, node.kw_defaults, strict=True)
        keyword_only = [self._param(arg, default, "") for arg, default in keyed]
        rest = self._param(node.kwarg, None, "**") if node.kwarg is not None else None
        slash = _param_slash() if only else _NO_COMMA
        found: cst.Parameters = _parameters(made[only:], star, keyword_only, rest, made[:only], slash)
        inside = [self.spans[param] for param in (*made, *keyword_only, star, rest) if param in self.spans]
        ends = [
            self.end(value) for param in made + keyword_only for value in (param.annotation, param.default) if value
        ]
        self.spans[found] = (min(inside)[0], max(ends + [end for _, end in inside])) if inside else (start, start)
        return found

    def _param(self, node: ast.arg, default: ast.expr | None, star: str) -> cst.Param:
        start = self.at(node.lineno, node.col_offset)
        name = self.name(node.arg, start)
        annotation = self.annotation(node.annotation)
        value = self.expression(default)
        made: cst.Param = _param(name, annotation, value, star)
        if star:
            start = self.text.rindex(star, 0, start)
        self.spans[made] = (start, self.end(name))  # LibCST's: without annotation and default
        return made

    def annotation(self, node: ast.expr | None) -> cst.Annotation | None:
        """An annotation, which stands where its expression does; None for none."""
        if node is None:
            return None
        value = self.expression(node)
        made: cst.Annotation = _annotation(value)
        self.spans[made] = self.spans[value]
        return made

    def _sequence(self, node: ast.Tuple | ast.List | ast.Set, start: int, end: int, *parens: Any) -> Any:
        return _SEQUENCES[type(node)]([self.element(each) for each in node.elts], *parens)

    def element(self, node: ast.expr) -> cst.BaseElement:
        """A part of a tuple, list or set."""
        span = self.span(node)
        if isinstance(node, ast.Starred):
            made: Any = _starred(self.expression(node.value))
        else:
            value = self.expression(node)
            made, span = _element(value), self.spans[value]
        self.spans[made] = span
        found: cst.BaseElement = made
        return found

    def _dict(self, node: ast.Dict, start: int, end: int, *parens: Any) -> Any:
        elements = []
        for key, value in zip(node.keys, node.values, strict=True):
            first = self.expression(key)
            second = self.expression(value)
            if first is None:
                element = _starred_dict(second)
                self.spans[element] = (self.text.rindex("**", 0, self.start(second)), self.end(second))
            else:
                element = _dict_element(first, second)
                self.spans[element] = (self.start(first), self.end(second))
            elements.append(element)
        return _dict(elements, *parens)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, start: int, end: int, *parens: Any
    ) -> Any:
        elt = self.expression(node.elt)
        return _COMPREHENSIONS[type(node)](elt, self._for_in(node.generators, self.end(elt)), *parens)

    def _dict_comp(self, node: ast.DictComp, start: int, end: int, *parens: Any) -> Any:
        key, value = self.expression(node.key), self.expression(node.value)
        return _dict_comp(key, value, self._for_in(node.generators, self.end(value)), *parens)

    def _for_in(self, generators: Sequence[ast.comprehension], before: int) -> cst.CompFor:
        first, *others = generators
        target, iterable = self.expression(first.target), self.expression(first.iter)
        ifs, end = [], self.end(iterable)
        for condition in first.ifs:
            test = self.expression(condition)
            made = _comp_if(test)
            self.spans[made] = (end, self.end(test))
            end = self.end(test)
            ifs.append(made)
        inner = self._for_in(others, end) if others else None
        found: cst.CompFor = _comp_for(target, iterable, ifs, inner, ASYNCHRONOUS if first.is_async else None)
        self.spans[found] = (before, self.end(inner) if inner is not None else end)  # LibCST's: with the gap before
        return found

    def _await(self, node: ast.Await, start: int, end: int, *parens: Any) -> Any:
        return _await(self.expression(node.value), *parens)

    def _yield(self, node: ast.Yield, start: int, end: int, *parens: Any) -> Any:
        return _yield(self.expression(node.value), *parens)

    def _yield_from(self, node: ast.YieldFrom, start: int, end: int, *parens: Any) -> Any:
        item = self.expression(node.value)
        found = self.from_(item, self.brackets.skip_gap(start + len("yield")))
        return _yield(found, *parens)

    def from_(self, item: Any, start: int) -> cst.From:
        """`from item`, with its `from` at `start`."""
        if not self.text.startswith("from", start):
            raise Unknown
        made: cst.From = _from(item)
        self.spans[made] = (start, self.end(item))
        return made

    def _named(self, node: ast.NamedExpr, start: int, end: int, *parens: Any) -> Any:
        return _named(self.expression(node.target), self.expression(node.value), *parens)

    def _constant(self, node: ast.Constant, start: int, end: int, *parens: Any) -> Any:
        value = node.value
        text = self.text[start:end]
        if value is None or isinstance(value, bool):
            return _name(text, *parens)
        if value is ...:
            return _ellipsis(*parens)
        if isinstance(value, (str, bytes)):
            token = STRING.match(text)
            if token is not None and token.end() == len(text):  # a whole match could reach over several strings
                return _string(text, *parens)
            return self._strings(start, end, *parens)
        return _NUMBERS[type(value)](text, *parens)

    def _joined(self, node: ast.JoinedStr, start: int, end: int, *parens: Any) -> Any:
        return self._strings(start, end, *parens)

    def _strings(self, start: int, end: int, *parens: Any) -> Any:
        """An f-string, or a string of several parts."""
        try:
            found = [self._literal(each) for each in literals(self.text, start, end, self.brackets)]
        except Unknown:
            return self._parsed(start, end, *parens)
        made = found.pop()
        for left in reversed(found):
            joined = _concatenated(left, made, (), ())
            self.spans[joined] = (self.start(left), self.end(made))
            made = joined
        object.__setattr__(made, "lpar", parens[0])
        object.__setattr__(made, "rpar", parens[1])
        return made

    def _literal(self, string: Literal) -> Any:
        if string.is_formatted:
            found = parts(self.text, string)
            held = [self._hole(part) if isinstance(part, Hole) else self._text(*part) for part in found]
            made = _formatted(held, string.opening, string.closing, (), ())
        else:
            made = _string(self.text[string.start : string.end], (), ())
        self.spans[made] = (string.start, string.end)
        return made

    def _text(self, start: int, end: int) -> Any:
        made = _formatted_text(self.text[start:end])
        self.spans[made] = (start, end)
        return made

    def _hole(self, hole: Hole) -> Any:
        start, end = hole.expression
        text = self.text[start:end]
        value = text.strip()
        start += text.index(value)
        inner = Expressions(value)
        try:
            node = inner.expression(ast.parse(value, mode="eval").body)
        except SyntaxError:
            raise Unknown from None
        for known, new in ((self.spans, inner.spans), (self.bare_spans, inner.bare_spans)):
            known.update((each, (first + start, last + start)) for each, (first, last) in new.items())
        form = [self._text(*hole.form)] if hole.form is not None else None
        made = _formatted_hole(node, hole.conversion, form)
        self.spans[made] = (hole.start, hole.end)
        return made

    def _parsed(self, start: int, end: int, left: Any, right: Any) -> Any:
        """A string of several parts, or with expressions in it, of which not every `ast` tells the places."""
        try:
            module = cst.parse_module(f"({self.text[start:end]})\n")
        except cst.ParserSyntaxError:
            raise Unknown from None
        made = cast(Any, module).body[0].body[0].value
        object.__setattr__(made, "lpar", left)
        object.__setattr__(made, "rpar", right)
        self.joined[made] = (module, start - len(left))
        return made


_MAKERS: dict[type, Callable[..., Any]] = {
    ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute,
    ast.Call: Expressions._call,
    ast.Subscript: Expressions._subscript,
    ast.BinOp: Expressions._binary,
    ast.BoolOp: Expressions._boolean,
    ast.UnaryOp: Expressions._unary,
    ast.Compare: Expressions._comparison,
    ast.IfExp: Expressions._if_exp,
    ast.Lambda: Expressions._lambda,
    ast.Tuple: Expressions._sequence,
    ast.List: Expressions._sequence,
    ast.Set: Expressions._sequence,
    ast.Dict: Expressions._dict,
    ast.ListComp: Expressions._comprehension,
    ast.SetComp: Expressions._comprehension,
    ast.GeneratorExp: Expressions._comprehension,
    ast.DictComp: Expressions._dict_comp,
    ast.Await: Expressions._await,
    ast.Yield: Expressions._yield,
    ast.YieldFrom: Expressions._yield_from,
    ast.NamedExpr: Expressions._named,
    ast.Constant: Expressions._constant,
    ast.JoinedStr: Expressions._joined,
}
