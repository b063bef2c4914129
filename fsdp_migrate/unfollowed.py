"""Modules that are imported by names made at run time: what lies behind them is not part of the program that is read.

`rewrite train.py` would find no FSDP where the config that it loads by name builds the model.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from codemods.api import Finding, Level
from codemods.tables.names import WRAPPER

from .project.discover import discover
from .project.imports import project_root
from .project.source import Source, UnreadableError, read_source

CODE = "FM002"
NAME = "imports-not-followed"
DOCS = """**What it does.** Says that a program without FSDP imports modules by names that are made at run time, and
which files of its tree hold FSDP1.

**Why.** Imports are followed without running anything. What `import_module(args.config)` loads is not known, and the
model may be wrapped there.

## Example

```python
import importlib


def load(args):
    return importlib.import_module(args.config).build()
```

## Use instead

Name the files that wrap the model beside the script: `fsdp-migrate rewrite train.py configs/base.py`, or the whole
folder: `fsdp-migrate rewrite .`.

## Fix safety

Nothing is changed.

## References

- https://docs.python.org/3/library/importlib.html#importlib.import_module
"""

WORDS = ("import_module", "__import__", "instantiate", "locate")
"""What a file is looked at for."""
_ALWAYS = frozenset({"import_module", "__import__"})
_LOADERS = ("hydra", "pydoc")
_SHOWN = 5


def hidden(sources: Mapping[Path, Source], exclude: Sequence[str]) -> tuple[Finding, ...]:
    """One finding at the first such import, where files that the program does not name hold FSDP1."""
    calls = ((path, call) for path, source in sources.items() for call in _calls(source.text))
    path, call = next(calls, (None, None))
    if path is None or call is None:
        return ()
    root = project_root(path)
    found = [hit for hit in discover([root], exclude).hits if hit not in sources and _wraps(hit)]
    if not found:
        return ()
    names = [hit.relative_to(root).as_posix() for hit in found]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    message = (
        "a module is imported by a name made at run time, which is not followed;"
        f" FSDP1 is in {', '.join(names[:_SHOWN])}{more}"
    )
    hint = "name those that this program loads beside the script, or the whole folder"
    return (Finding(CODE, Level.MANUAL, path, call.lineno, call.col_offset + 1, message, hint),)


def _calls(text: str) -> Iterator[ast.Call]:
    if not any(word in text for word in WORDS):
        return
    tree = _parsed(text)
    nodes = list(ast.walk(tree)) if tree is not None else []
    loads = any(_imports(node, _LOADERS) for node in nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _ALWAYS or (loads and name in WORDS):
                yield node


def _imports(node: ast.AST, modules: Sequence[str]) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in modules for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in modules


def _wraps(path: Path) -> bool:
    """Whether a file names FSDP1's class, imported or as an attribute of torch's package."""
    try:
        tree = _parsed(read_source(path).text)
    except UnreadableError:
        return False
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Attribute) and node.attr == WRAPPER:
            return True
        if _imports(node, ("torch",)) and any(a.name == WRAPPER for a in getattr(node, "names", ())):
            return True
    return False


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
