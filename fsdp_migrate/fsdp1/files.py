"""The files in which FSDP1, or what serves its models, can stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

import libcst as cst

from codemods import RULES
from codemods.api import SUPPORT, Context
from codemods.reading.code.scripts import is_test
from codemods.tables.leftovers import BY_NAME
from codemods.tables.names import FSDP1, fsdp1_name

from ..pyanalysis.definitions import last_name
from ..pyanalysis.program import Program
from ..pyanalysis.scopes import Binding
from ..pyanalysis.tree import Tree


def naming_fsdp1(program: Program) -> list[Tree]:
    """The files that name FSDP1, by whatever name."""
    return holding(program, ("FullyShardedDataParallel", "fsdp"))


def taking_names(program: Program, naming: Iterable[Tree]) -> list[Tree]:
    """These files, and those that can name FSDP1 by what one of them has at its top: `from own.module import FSDP`,
    without a word of torch's."""
    known, words = dict.fromkeys(naming), set(FSDP1)
    growing = list(known)
    for tree in growing:  # what is imported there can be imported from there
        names = _names_at_top(program, tree, words)
        words |= set(names)
        new = [each for each in holding(program, names) if each not in known]
        known.update(dict.fromkeys(new))
        growing += new
    return growing


def _names_at_top(program: Program, tree: Tree, words: Set[str]) -> list[str]:
    """What a module calls FSDP1's constructs, of what it has by one of these words."""
    names: list[str] = []
    for name, bound in tree.scope.bindings.items():
        if any(source in words or source in names for source in map(_source, bound)):
            dotted = program.symbols.dotted_at(tree, tree.module, name)
            names += [name] if dotted is not None and fsdp1_name(dotted) is not None else []
    return names


def _source(binding: Binding) -> str | None:
    """What a name is another name for."""
    named = binding.node.name if isinstance(binding.node, cst.ImportAlias) else binding.value
    return last_name(named) if named is not None else None


def using_models(program: Program) -> list[Tree]:
    """The files that call a method which means something else on a wrapped model, whether they name FSDP1 or not."""
    methods = {word for rule in RULES for word in rule.methods} | BY_NAME
    functions = {word for rule in RULES for word in rule.functions}
    assigned = {word for rule in RULES for word in rule.assigned}
    uses = re.compile(
        rf"(?:\.|\bimport )(?:{'|'.join(sorted(methods))})\b"
        rf"|\b(?:{'|'.join(sorted(functions))})\b"
        rf"|\.\s*(?:{'|'.join(sorted(assigned))})\b[\s\\)]*=(?!=)"
        rf"|[\"'](?:{'|'.join(sorted(BY_NAME))})[\"']"
    )
    paths = [path for path, text in program.texts.items() if uses.search(text)]
    trees = (program.tree(path) for path in paths if path.stem != SUPPORT)
    return [tree for tree in trees if tree is not None]


def holding(program: Program, words: Iterable[str]) -> list[Tree]:
    """The files that hold one of these identifiers; the tool's own support modules left out."""
    return [tree for tree in program.mentioning(*words) if tree.path.stem != SUPPORT]


def is_other_test(file: Context) -> bool:
    """Whether a file is a test that runs no FSDP: neither a name nor a string of it says so."""
    if not is_test(file.path):
        return False
    strings = (node.raw_value for node in file.nodes(cst.SimpleString))
    return not any("fsdp" in word.lower() for word in (*(n.value for n in file.nodes(cst.Name)), *strings))
