"""Names in strings that are code: what `eval` is given, what `globals()` is asked for, quoted annotations, and paths
that something looks up (`_target_: torch.nn.Linear`).
"""

from __future__ import annotations

import tokenize
from collections.abc import Iterable, Iterator

import libcst as cst

from .definitions import last_name
from .quiet_ast import tokens
from .tree import Tree

_EVALUATES = frozenset({"eval", "exec", "compile"})
_NAMESPACES = frozenset({"globals", "locals", "vars"})
_KEYS = ("target", "class", "cls", "path", "type", "wrapper")
"""What a setting is called that names something by its path."""
_FINDERS = ("locate", "import", "resolve", "instantiate", "lookup", "get_class", "get_obj")


def evaluated_names(tree: Tree) -> Iterator[tuple[cst.BaseExpression, str]]:
    """Each name in a string that is run, and the expression that is evaluated."""
    yield from _names_in(tree, _evaluated(tree))


def annotated_names(tree: Tree) -> Iterator[tuple[cst.BaseExpression, str]]:
    """The same for annotations in quotes, which only type checkers read."""
    inside = (each for annotation in tree.nodes(cst.Annotation) for each in tree.inside(annotation))
    yield from _names_in(tree, dict.fromkeys(each for each in inside if isinstance(each, cst.SimpleString)))


def named_paths(tree: Tree) -> Iterator[tuple[cst.SimpleString, str]]:
    """Each string that is a dotted path and nothing else, where something makes an object of it."""
    for literal in tree.nodes(cst.SimpleString):
        value = literal.evaluated_value
        if isinstance(value, str) and "." in value and all(part.isidentifier() for part in value.split(".")):
            if _is_looked_up(tree, literal):
                yield literal, value


def _is_looked_up(tree: Tree, literal: cst.SimpleString) -> bool:
    """`{"_target_": path}`, `wrapper_class=path`, `locate(path)`; not in a list, or where a test patches it."""
    holder = tree.parents[literal]
    if isinstance(holder, cst.DictElement):
        return isinstance(holder.key, cst.SimpleString) and _says(_KEYS, str(holder.key.evaluated_value))
    if isinstance(holder, cst.Assign):
        return any(_says(_KEYS, last_name(each.target)) for each in holder.targets)
    if not isinstance(holder, cst.Arg):
        return False
    call = cst.ensure_type(tree.parents[holder], cst.Call)
    by_name = holder.keyword is not None and _says(_KEYS, holder.keyword.value)
    return by_name or _says(_FINDERS, last_name(call.func))


def _says(words: Iterable[str], name: str | None) -> bool:
    return any(word in (name or "").lower() for word in words)


def _names_in(tree: Tree, expressions: Iterable[cst.BaseExpression]) -> Iterator[tuple[cst.BaseExpression, str]]:
    for evaluated in expressions:
        names = dict.fromkeys(name for literal in _literals(tree, evaluated) for name in _names(literal))
        for name in names:
            yield evaluated, name


def _evaluated(tree: Tree) -> Iterator[cst.BaseExpression]:
    for call in tree.nodes(cst.Call):
        if isinstance(call.func, cst.Name) and call.func.value in _EVALUATES and call.args:
            yield call.args[0].value
    for item in tree.nodes(cst.Subscript):
        is_namespace = isinstance(item.value, cst.Call) and isinstance(item.value.func, cst.Name)
        if is_namespace and cst.ensure_type(cst.ensure_type(item.value, cst.Call).func, cst.Name).value in _NAMESPACES:
            yield from (each.slice.value for each in item.slice if isinstance(each.slice, cst.Index))


def _literals(tree: Tree, evaluated: cst.BaseExpression) -> Iterator[str]:
    """The strings in an expression, and in what a name in its place is set to."""
    expressions = [evaluated]
    if isinstance(evaluated, cst.Name):
        scope = tree.scope_of[evaluated].lookup(evaluated.value)
        bindings = scope.bindings[evaluated.value] if scope is not None else ()
        expressions += [binding.value for binding in bindings if binding.value is not None]
    for expression in expressions:
        for node in tree.inside(expression):
            if isinstance(node, cst.SimpleString) and isinstance(node.evaluated_value, str):
                yield node.evaluated_value
            elif isinstance(node, cst.FormattedStringText):
                yield node.value


def _names(code: str) -> Iterator[str]:
    """The names in a piece of code, which need not be whole: `ShardingStrategy.` of an f-string."""
    return (token.string for token in tokens(code) if token.type == tokenize.NAME)
