"""Whether calls of support functions fit them: what would be a TypeError in the user's program is not written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from fsdp_migrate.support.library import library


def misfits(tree: ast.AST, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The calls that a support function does not take: what it is called here, and a sentence. `names` are those."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            wrong = _misfit(names[node.func.id], node)
            if wrong:
                yield node.func.id, f"the rewritten text calls `{node.func.id}` {wrong}"


def _misfit(name: str, call: ast.Call) -> str:
    definition = library().definitions.get(name)
    function = ast.parse(definition.text).body[-1] if definition is not None else None
    if not isinstance(function, ast.FunctionDef):
        return ""
    taken = function.args
    positional = [each.arg for each in (*taken.posonlyargs, *taken.args)]
    named = {each.arg for each in (*taken.args, *taken.kwonlyargs)}
    given = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    if len(given) > len(positional) and taken.vararg is None:
        return f"with {len(given)} positional arguments, and it takes {len(positional)}"
    keywords = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
    unknown = [] if taken.kwarg is not None else [each for each in keywords if each not in named]
    # What a call lacks it lacked under FSDP1 too: that is the user's.
    return f"with `{unknown[0]}`, which it does not take" if unknown else ""
