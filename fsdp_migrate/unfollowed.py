"""Modules that are imported by names made at run time: what lies behind them is not part of the program that is read.

`rewrite train.py` would find no FSDP where the config that it loads by name builds the model.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from codemods.api import Finding, Level
from codemods.tables.names import WRAPPER

from .project.discover import discover
from .project.imports import import_graph, project_root
from .project.loaded import imports_of_library, links, loading_calls, parsed
from .project.source import Source, UnreadableError, read_source

CODE = "FM002"
NAME = "imports-not-followed"
DOCS = """**What it does.** Says that a program imports modules by names that are made at run time, and which files of
its tree hold FSDP1; of a program that wraps a model, which files may be handed it.

**Why.** Imports are followed without running anything. What `import_module(args.config)` loads is not known: the model
may be wrapped there, or saved. A state dict that is saved as it is has each rank's own shards in it.

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

_SHOWN = 5
_HINT = "name those that this program loads beside the script, or the whole folder"


def hidden(sources: Mapping[Path, Source], exclude: Sequence[str], is_wrapping: bool) -> tuple[Finding, ...]:
    """One finding at the first such import, where files that the program does not name hold FSDP1.

    Of a program that is seen to wrap a model (`is_wrapping`): where they can be handed it.
    """
    calls = ((path, call) for path, source in sources.items() for call in loading_calls(source.text))
    path, call = next(calls, (None, None))
    if path is None or call is None:
        return ()
    root = project_root(path)
    tree = discover([root], exclude)
    found = [each for each in tree.hits if each not in sources and _wraps(each)]
    if is_wrapping:
        whole = import_graph([each for each in tree.files if each not in tree.foreign], is_whole=True)
        found = [each for each in links(sources, whole)[path] if each not in sources]
    if not found:
        return ()
    names = [each.relative_to(root).as_posix() for each in found]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    said = f"{', '.join(names[:_SHOWN])}{more}"
    if is_wrapping:
        message = f"a module is imported by a name made at run time: the model may come to {said}, unseen"
        return (Finding(CODE, Level.REVIEW, path, call.lineno, call.col_offset + 1, message, _HINT),)
    message = f"a module is imported by a name made at run time, which is not followed; FSDP1 is in {said}"
    return (Finding(CODE, Level.MANUAL, path, call.lineno, call.col_offset + 1, message, _HINT),)


def _wraps(path: Path) -> bool:
    """Whether a file names FSDP1's class, imported or as an attribute of torch's package."""
    try:
        tree = parsed(read_source(path).text)
    except UnreadableError:
        return False
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Attribute) and node.attr == WRAPPER:
            return True
        if imports_of_library(node, ("torch",)) and any(a.name == WRAPPER for a in getattr(node, "names", ())):
            return True
    return False
