"""The same program in other files: where its names come from, and where its definitions stand."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

Files = dict[str, str]
Layout = Callable[[Mapping[str, str]], Files]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def names_of_own_module(files: Mapping[str, str]) -> Files:
    """What is imported of torch's FSDP comes from a module of the program's own."""
    found: Files = {}
    taken: list[ast.stmt] = []
    for name, text in files.items():
        tree = ast.parse(text)
        for index, node in enumerate(tree.body):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed.fsdp"):
                taken.append(node)
                bound = [ast.alias(alias.asname or alias.name) for alias in node.names]
                tree.body[index] = ast.ImportFrom("own_names", bound, 0)
        found[name] = _text(tree.body)
    return {**found, "own_names.py": _text(taken)} if taken else dict(files)


def definitions_apart(files: Mapping[str, str]) -> Files:
    """What a file defines stands in another one, which it is imported from."""
    found: Files = {}
    for name, text in files.items():
        tree = ast.parse(text)
        defined = [node for node in tree.body if isinstance(node, _DEFINITIONS)]
        rest = [node for node in tree.body if not isinstance(node, (*_DEFINITIONS, *_IMPORTS))]
        imports = [node for node in tree.body if isinstance(node, _IMPORTS)]
        bound = {each for node in rest for each in _stored(node)}
        if "/" in name or not defined or not rest or any(_read(node) & bound for node in defined):
            found[name] = text  # a definition reads what the file sets
            continue
        stem = f"{name.removesuffix('.py')}_parts"
        names = [ast.alias(node.name) for node in defined]
        found[f"{stem}.py"] = _text([*imports, *defined])
        found[name] = _text([*imports, ast.ImportFrom(stem, names, 0), *rest])
    return found


def functions_apart(files: Mapping[str, str]) -> Files:
    """Each function that needs no other definition stands in a file of its own."""
    found = dict(files)
    for name, text in files.items():
        tree = ast.parse(text)
        imports = [node for node in tree.body if isinstance(node, _IMPORTS)]
        others = {each for node in tree.body if not isinstance(node, _IMPORTS) for each in _stored(node)}
        body: list[ast.stmt] = []
        for node in tree.body:
            if "/" in name or not isinstance(node, ast.FunctionDef) or _read(node) & (others - {node.name}):
                body.append(node)
                continue
            stem = f"{name.removesuffix('.py')}_{node.name}"
            found[f"{stem}.py"] = _text([*imports, node])
            body.append(ast.ImportFrom(stem, [ast.alias(node.name)], 0))
        found[name] = _text(body) if len(found) > len(files) else text
    return found


def _stored(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds where it stands."""
    if isinstance(node, _DEFINITIONS):
        yield node.name
        return
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id


def _read(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _text(body: list[ast.stmt]) -> str:
    return ast.unparse(ast.fix_missing_locations(ast.Module(body, []))) + "\n"


LAYOUTS: tuple[Layout, ...] = (names_of_own_module, definitions_apart, functions_apart)
