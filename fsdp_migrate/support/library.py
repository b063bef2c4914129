"""The functions that can go into a user's `fsdp2_support.py`: their texts, cut out of the modules in `functions/`.

Neither these modules nor torch are imported.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# In the order that the parts of a composed file have: a definition uses only what stands before it.
MODULES = (
    *("units", "meshes", "precision", "states", "meta", "shard", "training", "summon"),
    *("model_state", "local_state", "optimizer_state", "sharded_files", "state_dict_type", "background"),
)


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
