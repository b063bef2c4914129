"""Writes `fsdp2_support.py`: the source text of the functions a program needs, and of what those need.

The text is cut out of the modules in `functions/` with `ast`. Neither they nor torch are imported.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codemods.api import Import

# In the order that the parts of a composed file have: a definition uses only what stands before it.
MODULES = (
    *("policies", "units", "meshes", "precision", "states", "meta", "shard", "training", "summon"),
    *("model_state", "local_state", "optimizer_state", "sharded_files", "state_dict_type"),
)

DOCSTRING = '''"""What this program used of FSDP1, on FSDP2 (`fully_shard`).

Written by fsdp-migrate, and yours from here on: it needs only torch, and a later run keeps what you change.
"""
'''


@dataclass(frozen=True, slots=True)
class Definition:
    """A top-level constant, class or function, with the comments above it and the attributes set on it below."""

    name: str
    text: str
    tree: str
    """What of it matters to Python: tells an edit from a reformatting."""
    uses: frozenset[str]
    """The names it takes from outside of itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file: its definitions in order, and its absolute imports by the name that they bind."""

    definitions: dict[str, Definition]
    imports: dict[str, str]


def read(text: str) -> Source:
    """Take a file apart."""
    lines = text.splitlines()
    statements: dict[str, list[ast.stmt]] = defaultdict(list)
    imports: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            imports.update({alias.asname or alias.name.partition(".")[0]: statement("", alias) for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module and node.module != "__future__":
            imports.update({alias.asname or alias.name: statement(node.module, alias) for alias in node.names})
        elif name := defined(node):
            statements[name].append(node)
    return Source({name: taken(name, nodes, lines) for name, nodes in statements.items()}, imports)


def taken(name: str, nodes: list[ast.stmt], lines: list[str]) -> Definition:
    """One definition out of the statements that make it."""
    inside = [child for node in nodes for child in ast.walk(node)]
    bound = {child.arg for child in inside if isinstance(child, ast.arg)}
    bound |= {child.id for child in inside if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)}
    loaded = {child.id for child in inside if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)}
    text = "\n".join(lines[first_line(nodes[0], lines) : nodes[-1].end_lineno])
    return Definition(name, text, "".join(ast.dump(node) for node in nodes), frozenset(loaded - bound - {name}))


def statement(module: str, alias: ast.alias) -> str:
    """The statement that imports one name."""
    start = f"from {module} import" if module else "import"
    return f"{start} {alias.name} as {alias.asname}" if alias.asname else f"{start} {alias.name}"


def defined(node: ast.stmt) -> str | None:
    """The name that a top-level statement defines, or sets an attribute on."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node.name
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return None
    while isinstance(target, ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def first_line(node: ast.stmt, lines: list[str]) -> int:
    """The index of the line where a statement starts, the decorators and comments above it included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return start


@cache
def library() -> Source:
    """All definitions that can be composed."""
    folder = Path(__file__).parent / "functions"
    definitions: dict[str, Definition] = {}
    imports: dict[str, str] = {}
    for module in MODULES:
        part = read((folder / f"{module}.py").read_text(encoding="utf-8"))
        definitions.update(part.definitions)
        imports.update(part.imports)
    return Source(definitions, imports)


def available() -> frozenset[str]:
    """The names that `compose` knows."""
    return frozenset(library().definitions)


def needed(names: Iterable[str]) -> list[Definition]:
    """The definitions of some names, and all that they use, in the order of the library."""
    definitions = library().definitions
    found: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop()
        if name in found:
            continue
        if name not in definitions:
            raise KeyError(f"no support function is called {name!r}")
        found.add(name)
        queue += definitions[name].uses & definitions.keys()
    return [definition for name, definition in definitions.items() if name in found]


def imports_of(definition: Definition) -> list[Import]:
    """What a definition needs imported."""
    imports = library().imports
    found = []
    for statement in (imports[name] for name in definition.uses if name in imports):
        module, _, names = statement.removeprefix("from ").partition(" import ")
        name, _, alias = (names or module.removeprefix("import ")).partition(" as ")
        found.append(Import(module, name, alias) if names else Import(name, "", alias))
    return found


def compose(names: Iterable[str]) -> str:
    """The text of a support module that holds `names`."""
    definitions = needed(names)
    imports = library().imports
    used = {name for definition in definitions for name in definition.uses if name in imports}
    head = [DOCSTRING, "from __future__ import annotations\n", *import_blocks(imports[name] for name in used)]
    text = body(definitions)
    starts_with_code = definitions and not definitions[0].text.startswith(("def ", "class ", "@"))
    return "\n".join(head) + (text[1:] if starts_with_code else text)  # one blank line behind imports, as isort has it


def body(definitions: Iterable[Definition]) -> str:
    """Definitions as they follow what stands above them in a file."""
    return "".join(f"\n\n{definition.text}\n" for definition in definitions)


def import_blocks(statements: Iterable[str]) -> Iterator[str]:
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
        if len(line) > 88:  # the usual limit, in a file that belongs to somebody else
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


def edited(text: str) -> frozenset[str]:
    """The names of ours that a support module holds in another form. Layout and comments do not count."""
    ours = library().definitions
    return frozenset(
        name for name, theirs in read(text).definitions.items() if name in ours and theirs.tree != ours[name].tree
    )


def update(text: str, names: Iterable[str]) -> str:
    """A support module with `names` added to it. What stands there stays as it is, unless all of it is still ours."""
    held = parse(text)
    missing = [definition for definition in needed(names) if definition.name not in held]
    if not missing:
        return text
    if text == compose(held):
        return compose(held.union(definition.name for definition in missing))
    there = read(text)
    imports = library().imports
    used = {name for definition in missing for name in definition.uses if name in imports and name not in there.imports}
    lines = text.splitlines(keepends=True)
    at = after_imports(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    added = "".join(import_blocks(imports[name] for name in used)).replace("\n", newline)
    below = ("\n" + body(missing)).replace("\n", newline)
    return "".join(lines[:at]) + added + "".join(lines[at:]).rstrip("\r\n") + below


def after_imports(text: str) -> int:
    """The line behind the last import at the top of a file, or behind its docstring."""
    line = 0
    for index, node in enumerate(ast.parse(text).body):
        is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not isinstance(node, (ast.Import, ast.ImportFrom)):
            break
        line = node.end_lineno or line
    return line
