"""Small programs for the analysis: one expression of them is marked with a name, and asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import libcst as cst

from fsdp_migrate.fsdp1.library import LIBRARY
from fsdp_migrate.fsdp1.program_model import FileContext, ProgramModel
from fsdp_migrate.project.imports import resolve_module, roots_of
from fsdp_migrate.pyanalysis.program import Program

from ..helpers import code

_WRAPS = """
    from torch.distributed.fsdp import FullyShardedDataParallel

    FullyShardedDataParallel(make())
    """
"""So that something is wrapped, as in any program that the rules look at."""


@contextmanager
def facts_of(files: Mapping[str, str] | str) -> Iterator[dict[str, FileContext]]:
    """What the analysis knows about each file of a program."""
    texts = {"train.py": files} if isinstance(files, str) else dict(files)
    texts["wraps.py"] = _WRAPS
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / ".git").mkdir()
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(code(text), encoding="utf-8")
        program = Program(
            {folder / file: code(text) for file, text in texts.items()},
            lambda importing, module, level: resolve_module(importing, module, level, roots_of(importing)),
            LIBRARY,
        )
        facts = ProgramModel(program)
        trees = {file: program.tree(folder / file) for file in texts}
        yield {file: facts.file(tree) for file, tree in trees.items() if tree is not None}


def marked(file: FileContext) -> cst.BaseExpression:
    """The argument of the call `ask(expression)`."""
    (call,) = [call for call in file.tree.nodes(cst.Call) if file.code(call.func) == "ask"]
    return call.args[0].value


def origins(files: Mapping[str, str] | str) -> list[str]:
    """Where the value of the marked expression of train.py can be made: its text, or `?` and the reason."""
    with facts_of(files) as facts:
        file = facts["train.py"]
        return [("" if origin.node is not None else "?") + origin.text for origin in file.origins(marked(file))]


def held(files: Mapping[str, str] | str) -> set[str]:
    """What the marked expression of train.py can hold."""
    with facts_of(files) as facts:
        file = facts["train.py"]
        return {holds.name for holds in file.kinds(marked(file))}


def dotted(files: Mapping[str, str] | str) -> str | None:
    """The library name behind the marked expression of train.py."""
    with facts_of(files) as facts:
        return facts["train.py"].dotted(marked(facts["train.py"]))
