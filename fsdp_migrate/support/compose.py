"""Writes `fsdp2_support.py`: the functions that a program needs, cut to its calls, and what those need."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

from codemods.api import Import

from .cut import MARKS, Asked, asked_by, cut, defaults
from .layout import WIDE, fitted, without_types
from .library import Definition, available, library, read

DOCSTRING = '''"""What this program used of FSDP1, on FSDP2: by fsdp-migrate, yours to edit."""
'''


def imports_of(definition: Definition) -> list[Import]:
    """What a definition needs imported."""
    imports = library().imports
    found = []
    for statement in (imports[name] for name in definition.uses if name in imports):
        module, _, names = statement.removeprefix("from ").partition(" import ")
        name, _, alias = (names or module.removeprefix("import ")).partition(" as ")
        found.append(Import(module, name, alias) if names else Import(name, "", alias))
    return found


@cache
def unannotated(definition: Definition) -> Definition:
    """A function without the types in it."""
    return read(without_types(definition.text)).definitions[definition.name]


USUAL = 88
WIDTHS = (80, USUAL, 100, WIDE)
"""How long lines can be, as the program's are."""


def compose(asked: Asked, typed: bool = True, width: int = USUAL) -> str:
    """The text of a support module for these calls; `typed` or not, and as wide, as the program is."""
    definitions = _styled(cut(asked), typed)
    imports = library().imports
    used = {name for definition in definitions for name in definition.uses if name in imports}
    future = ["from __future__ import annotations\n"] if typed else []
    head = [DOCSTRING, *future, *import_blocks((imports[name] for name in used), width)]
    text = body(definitions)
    starts_with_code = definitions and not definitions[0].text.startswith(("def ", "class ", "@"))
    text = text[1:] if starts_with_code else text  # one blank line behind imports, as isort has it
    return fitted("\n".join(head) + text, width)


def _styled(definitions: Iterable[Definition], typed: bool) -> list[Definition]:
    return [each if typed else unannotated(each) for each in definitions]


def is_typed(text: str) -> bool:
    """Whether a support module says what its functions take and give."""
    nodes = list(ast.walk(ast.parse(text)))
    return any(isinstance(each, ast.arg) and each.annotation is not None for each in nodes)


def body(definitions: Iterable[Definition]) -> str:
    """Definitions as they follow what stands above them in a file."""
    return "".join(f"\n\n{definition.text}\n" for definition in definitions)


def import_blocks(statements: Iterable[str], width: int) -> Iterator[str]:
    """Import statements as isort has them: the standard library first, plain imports before `from` ones."""
    sections: dict[bool, list[str]] = defaultdict(list)
    members: dict[str, list[str]] = defaultdict(list)
    for line in sorted(statements):
        words = line.split()
        if words[0] == "import":
            sections[is_third_party(words[1])].append(line)
        else:
            members[words[1]].append(line.partition(" import ")[2])
    for module in sorted(members):
        listed = ", ".join(sorted(members[module], key=by_kind))
        line = f"from {module} import {listed}"
        if len(line) > width:
            line = f"from {module} import (\n    " + listed.replace(", ", ",\n    ") + ",\n)"
        sections[is_third_party(module)].append(line)
    for third_party in sorted(sections):
        yield "\n".join(sections[third_party]) + "\n"


def is_third_party(module: str) -> bool:
    return module.partition(".")[0] not in sys.stdlib_module_names


def by_kind(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


def parse(text: str) -> frozenset[str]:
    """The names of ours that a support module holds."""
    return available() & read(text).definitions.keys()


def held(text: str) -> Asked:
    """The calls that a support module is cut to: what its functions still have a parameter for may be passed."""
    source = read(text)
    there = {name: each for name, each in source.definitions.items() if name in library().definitions}
    present = {name: _parameters(each) & defaults(name).keys() for name, each in there.items()}
    present |= {name: frozenset() for name in MARKS & source.imports.keys()}
    inner = frozenset[str]().union(*(each.uses for each in there.values()))
    outer = {name: given for name, given in present.items() if name not in inner - MARKS}
    return outer if _width(text, outer) else present


def _width(text: str, asked: Asked) -> int | None:
    """How wide a support module for these calls was written, the usual if short; None where that is not all of it."""
    return next((width for width in (USUAL, *WIDTHS) if text == compose(asked, is_typed(text), width)), None)


def _parameters(definition: Definition) -> frozenset[str]:
    function = ast.parse(definition.text).body[0]
    if not isinstance(function, ast.FunctionDef):
        return frozenset()
    return frozenset(arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs))


def joined(first: Asked, second: Asked) -> Asked:
    """The calls of two."""
    names = {**first, **second}
    return {name: first.get(name, frozenset()) | second.get(name, frozenset()) for name in names}


def update(text: str, asked: Asked) -> str:
    """A support module that serves these calls too. What stands there stays, unless all of it is still ours."""
    there = read(text)
    present = {name: _parameters(each) for name, each in there.definitions.items()}
    functions = {name: given for name, given in asked.items() if name not in MARKS}
    is_served = all(name in present and given <= present[name] for name, given in functions.items())
    known = [library().definitions[name] for name in present.keys() & library().definitions.keys()]
    if is_served and not any(each.uses & asked.keys() & MARKS - there.imports.keys() for each in known):
        return text
    before, typed = held(text), is_typed(text)
    width = _width(text, before)
    if width is not None:
        return compose(joined(before, asked), typed, width)
    if is_served:
        return text
    missing = [
        each
        for each in cut(joined(asked, asked_by(ast.parse(text), {name: name for name in library().definitions})))
        if each.name not in present
    ]
    missing = _styled(missing, typed)
    imports = library().imports
    used = {name for definition in missing for name in definition.uses if name in imports and name not in there.imports}
    lines = text.splitlines(keepends=True)
    at = after_imports(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    added = "".join(import_blocks((imports[name] for name in used), USUAL)).replace("\n", newline)
    below = ("\n" + fitted(body(missing), USUAL)).replace("\n", newline)
    return "".join(lines[:at]) + added + "".join(lines[at:]).rstrip("\r\n") + below


def unserved(text: str, asked: Asked) -> list[str]:
    """What these calls pass and a support module that the user edited has no parameter for: `no_sync(enabled)`."""
    there = {name: _parameters(each) for name, each in read(update(text, asked)).definitions.items()}
    return sorted(f"{name}({each})" for name, given in asked.items() if given for each in given - there[name])


def after_imports(text: str) -> int:
    """The line behind the last import at the top of a file, or behind its docstring."""
    line = 0
    for index, node in enumerate(ast.parse(text).body):
        is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not isinstance(node, (ast.Import, ast.ImportFrom)):
            break
        line = node.end_lineno or line
    return line
