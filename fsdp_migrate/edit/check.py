"""What a rewritten file must hold before it is written, whatever the rules did."""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from collections import Counter
from collections.abc import Iterator

from ..pyanalysis.quiet_ast import parsed

_KNOWN = frozenset(dir(builtins)) | {"__file__", "__annotations__", "__path__"}


def faults(before: str, after: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a new text that was not wrong with the old one: the name it is about, and a sentence."""
    old, new = _nodes(before), _nodes(after)
    if old is None:
        return
    if new is None:
        yield "", "the rewritten text is not Python"
        return
    undefined = _undefined(new, after)
    for name in sorted(undefined - _undefined(old, before) if undefined else ()):
        yield name, f"the rewritten text uses `{name}`, which is not defined"
    imported = _imported(new) - _imported(old)
    for name in sorted(imported - _used(new) if imported else ()):
        yield name, f"the rewritten text imports `{name}`, and does not use it"


def _nodes(text: str) -> list[ast.AST] | None:
    """All of a text; None when it is not Python."""
    tree = parsed(text)
    return list(ast.walk(tree)) if tree is not None else None


def _undefined(nodes: list[ast.AST], text: str) -> frozenset[str]:
    """The names that are used somewhere and bound nowhere; nothing where a star import can bind any."""
    if any(alias.name == "*" for node in _imports(nodes) for alias in node.names):
        return frozenset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        top = symtable.symtable(text, "program", "exec")
    bound = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    known = bound - _of_themselves(nodes[0]) | _KNOWN
    found: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or table is top):
                found.add(symbol.get_name())
            if symbol.is_declared_global() and symbol.is_assigned():
                known.add(symbol.get_name())
    return frozenset(found - known)


def _of_themselves(module: ast.AST) -> set[str]:
    """The names that only `x = f(x)` binds, outside functions: a snippet that leaves out where it has `x` from."""
    stores: Counter[str] = Counter()
    statements = [*ast.iter_child_nodes(module)]
    while statements:
        node = statements.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            stores.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stores[node.name] += 1
            continue
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores[node.id] += 1
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            stores[name] -= any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node.value))
        statements += ast.iter_child_nodes(node)
    return {name for name, count in stores.items() if not count}


def _imported(nodes: list[ast.AST]) -> frozenset[str]:
    names = (alias for node in _imports(nodes) for alias in node.names if alias.name != "*")
    return frozenset(alias.asname or alias.name.split(".")[0] for alias in names)


def _used(nodes: list[ast.AST]) -> frozenset[str]:
    """The names that are read, and the strings: `__all__`, annotations in quotes, what is evaluated."""
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    words = {word for string in strings for word in "".join(c if c.isidentifier() else " " for c in string).split()}
    return frozenset(names | strings | words)


def _imports(nodes: list[ast.AST]) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
