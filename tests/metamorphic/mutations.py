"""Changes to a program that mean nothing: after each, the tool has to decide as before.

Every mutation takes the files of a program and a source of chance, and gives the changed files with a way back: what
turns the text of a rewritten file into what it would be without the mutation.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from string import ascii_lowercase
from typing import cast

Files = dict[str, str]
_TYPE = ": object"
WRAPPER = "FullyShardedDataParallel"
_DOTTED = f"torch.distributed.fsdp.{WRAPPER}"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_OWN_NAMES = frozenset({"fsdp_kwargs", "layer", "mesh", "module", "mp_policy", "options", "policy", "submodule"})
_OWN_NAMES |= {"unit_classes"}
"""Names that the tool gives where the program does not: with the user's out of the way, its choice is another one."""


@dataclass(frozen=True)
class Mutant:
    """A changed program. `back` maps the names that it has to the ones before."""

    files: Files
    back: dict[str, str]

    def undone(self, text: str) -> str:
        text = text.replace(_DOTTED, "FSDP").replace("moved_helper.", "").replace(f"{_TYPE} =", " =")
        for new, old in self.back.items():
            text = text.replace(f"{old} as {new}", old)
        return re.sub(r"\b\w+\b", lambda found: self.back.get(found[0], found[0]), text)


Mutation = Callable[[Files, Random], Mutant]


def comments(files: Files, random: Random) -> Mutant:
    """A comment on a line of its own above every second statement."""
    return Mutant({name: _commented(text, random) for name, text in files.items()}, {})


def _commented(text: str, random: Random) -> str:
    lines = text.split("\n")
    tree = ast.parse(text)
    first = {min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) for node in _statements(tree)}
    for line in sorted(first, reverse=True):
        above = lines[line - 2] if line > 1 else ""
        if random.random() < 0.5 and not above.endswith("\\"):
            indent = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
            lines.insert(
                line - 1,
                f"{indent}# FSDP(model) under no_sync(), as FullyShardedDataParallel and model.module have it.",
            )
    return "\n".join(lines)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def layout(files: Files, random: Random) -> Mutant:
    """Other quotes, line breaks and blank lines, and no comments: as `ast` writes a program."""
    return Mutant({name: ast.unparse(ast.parse(text)) + "\n" for name, text in files.items()}, {})


def brackets(files: Files, random: Random) -> Mutant:
    """Brackets around what is assigned, returned, handed over, asked or entered: as formatters break long lines."""
    return Mutant({name: _in_brackets(text) for name, text in files.items()}, {})


def _in_brackets(text: str) -> str:
    tree = ast.parse(text)
    quoted = {inner for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    signs: dict[tuple[int, int], str] = {}
    for node in (value for outer in ast.walk(tree) if outer not in quoted for value in _values(outer)):
        if not isinstance(node, (ast.Starred, ast.GeneratorExp)):
            start, end = (node.lineno, node.col_offset), (cast(int, node.end_lineno), cast(int, node.end_col_offset))
            signs[start] = signs.get(start, "") + "("
            signs[end] = ")" + signs.get(end, "")
    lines = [line.encode() for line in text.split("\n")]
    for (line, column), sign in sorted(signs.items(), reverse=True):
        lines[line - 1] = lines[line - 1][:column] + sign.encode() + lines[line - 1][column:]
    return "\n".join(line.decode() for line in lines)


def _values(node: ast.AST) -> list[ast.expr]:
    """What of a node may stand in brackets of its own."""
    match node:
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Return() | ast.keyword():
            return [node.value] if node.value is not None else []
        case ast.If() | ast.While() | ast.IfExp():
            return [node.test]
        case ast.For():
            return [node.iter]
        case ast.With():
            return [item.context_expr for item in node.items]
        case ast.Call():
            return node.args
        case ast.BoolOp():
            return node.values
    return []


def annotations(files: Files, random: Random) -> Mutant:
    """Each variable and each attribute of `self` is assigned with a type."""
    return Mutant({name: _annotated(text) for name, text in files.items()}, {})


def _annotated(text: str) -> str:
    tree = ast.parse(text)
    outer = {name for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    inner = {stmt for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for stmt in node.body}
    ends = []
    for node in _statements(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and node not in inner:
            target = node.targets[0]
            of_self = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
            if of_self or (isinstance(target, ast.Name) and target.id not in outer):
                ends.append((cast(int, target.end_lineno), cast(int, target.end_col_offset)))
    lines = [line.encode() for line in text.split("\n")]
    for line, column in sorted(ends, reverse=True):
        lines[line - 1] = lines[line - 1][:column] + _TYPE.encode() + lines[line - 1][column:]
    return "\n".join(line.decode() for line in lines)


def local_names(files: Files, random: Random) -> Mutant:
    """Another name of the same length for the locals of functions."""
    taken = {word for text in files.values() for word in re.findall(r"\w+", text)}
    back: dict[str, str] = {}
    changed = {}
    for name, text in files.items():
        places: dict[tuple[int, int], str] = {}
        for function in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)):
            for local in sorted(_locals(function)):
                new = _same_length(local, taken, random)
                if new is not None:
                    taken.add(new)
                    back[new] = local
                    for node in ast.walk(function):
                        if isinstance(node, ast.Name) and node.id == local:
                            places.setdefault((node.lineno, node.col_offset), new)
        changed[name] = _replaced(text, places)
    return Mutant(changed, back)


def _locals(function: ast.FunctionDef) -> set[str]:
    """What only this function's own body binds, and no scope in it binds again."""
    inner = [node for node in ast.walk(function) if node is not function and isinstance(node, _SCOPES)]
    fixed = {a.arg for node in ast.walk(function) if isinstance(node, ast.arguments) for a in _parameters(node)}
    for node in ast.walk(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            fixed.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            fixed.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            fixed.add(node.name)
        elif isinstance(node, ast.JoinedStr):  # its places in the text are not told before Python 3.12
            fixed.update(name.id for name in ast.walk(node) if isinstance(name, ast.Name))
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            targets = [generator.target for generator in node.generators]
            fixed.update(n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
    for scope in inner:
        fixed.add(getattr(scope, "name", ""))
        fixed.update(_stored(scope))
    return {name for name in _stored(function) if name not in fixed | _OWN_NAMES and not name.startswith("_")}


def _parameters(node: ast.arguments) -> list[ast.arg]:
    return [*node.posonlyargs, *node.args, *node.kwonlyargs, *filter(None, (node.vararg, node.kwarg))]


def _stored(scope: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


_SAYS_MODEL = re.compile(r"(?:net|model)s?_?(?=\d+$)")
"""What a name of a generated program says: of an unknown object rules go by that, and a state dict of one is asked."""


def _same_length(name: str, taken: set[str], random: Random) -> str | None:
    kept = said.group() if (said := _SAYS_MODEL.match(name)) else ""
    for _ in range(50):
        new = kept + "".join(random.choice(ascii_lowercase) for _ in name[len(kept) :])
        if new not in taken and not keyword.iskeyword(new) and not hasattr(builtins, new):
            return new
    return None


def _replaced(text: str, places: dict[tuple[int, int], str]) -> str:
    """Columns are counted in bytes, as `ast` does."""
    lines = [line.encode() for line in text.split("\n")]
    for (line, column), new in places.items():
        lines[line - 1] = lines[line - 1][:column] + new.encode() + lines[line - 1][column + len(new) :]
    return "\n".join(line.decode() for line in lines)


def order_of_functions(files: Files, random: Random) -> Mutant:
    """The functions that stand side by side at the top of a file, the other way round."""
    return Mutant({name: _reordered(text) for name, text in files.items()}, {})


def _reordered(text: str) -> str:
    lines = text.split("\n")
    body = ast.parse(text).body
    runs: list[list[ast.FunctionDef]] = [[]]
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and not _evaluated(node):
            runs[-1].append(node)
        elif runs[-1]:
            runs.append([])
    for run in reversed([run for run in runs if len(run) > 1]):
        start, end = run[0].lineno - 1, run[-1].end_lineno or 0
        parts = [lines[node.lineno - 1 : node.end_lineno] for node in run]
        gaps = [lines[a.end_lineno : b.lineno - 1] for a, b in pairwise(run)]
        mixed = parts[-1][:]
        for gap, part in zip(reversed(gaps), reversed(parts[:-1]), strict=True):
            mixed += gap + part
        lines[start:end] = mixed
    return "\n".join(lines)


def _evaluated(function: ast.FunctionDef) -> list[ast.expr]:
    """What runs where the function is defined."""
    return [node for node in (*function.args.defaults, *function.args.kw_defaults) if isinstance(node, ast.Call)]


def alias_of_the_class(files: Files, random: Random) -> Mutant:
    """`FSDP` is imported under another name."""
    changed = {}
    for name, text in files.items():
        tree = ast.parse(text)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and _imports_wrapper(node)]
        strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        if not imports or any("FSDP" in str(value) for value in strings):
            changed[name] = text  # an annotation in a string would lose its name
            continue
        local = next(a.asname or a.name for node in imports for a in node.names if a.name == WRAPPER)
        changed[name] = re.sub(rf"(?<![.\w]){local}\b(?!\s*=[^=])", "Shrd" if local == "FSDP" else local, text)
    return Mutant(changed, {"Shrd": "FSDP"})


def _imports_wrapper(node: ast.ImportFrom) -> bool:
    of_torch = (node.module or "").startswith("torch.distributed.fsdp")
    return of_torch and any(alias.name == WRAPPER for alias in node.names)


def module_of_the_class(files: Files, random: Random) -> Mutant:
    """`FSDP(…)` is written `torch.distributed.fsdp.FullyShardedDataParallel(…)`."""
    changed = {}
    for name, text in files.items():
        tree = ast.parse(text)
        loaded = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "FSDP"]
        imported = any(isinstance(node, ast.ImportFrom) and _imports_wrapper(node) for node in tree.body)
        lines = text.split("\n")
        for node in sorted(loaded, key=lambda n: (n.lineno, n.col_offset), reverse=True):
            line = lines[node.lineno - 1]
            if imported and line[node.col_offset : node.col_offset + 4] == "FSDP":
                lines[node.lineno - 1] = line[: node.col_offset] + _DOTTED + line[node.col_offset + 4 :]
        whole = "\n".join(lines)
        if whole != text:
            after = max(
                (n.lineno for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"), default=0
            )
            docstring = tree.body[0] if ast.get_docstring(tree) is not None else None
            place = max(after, (docstring.end_lineno or 0) if docstring is not None else 0)
            lines.insert(place, "import torch.distributed.fsdp")
            whole = "\n".join(lines)
        changed[name] = whole
    return Mutant(changed, {})


def helper_in_another_file(files: Files, random: Random) -> Mutant:
    """A function that needs nothing of its file but the imports is imported from a file beside it."""
    for name in random.sample(sorted(files), len(files)):
        moved = _moved(name, files, random)
        if moved is not None:
            return Mutant(moved, {})
    return Mutant(files, {})


def _moved(name: str, files: Files, random: Random) -> Files | None:
    tree = ast.parse(files[name])
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    own = {n for node in tree.body for n in _bound(node) if node not in imports}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    free = [node for node in functions if not own & (_names(node) - {node.name})]
    if not free:
        return None
    function = random.choice(free)
    lines = files[name].split("\n")
    head = [line for node in imports for line in lines[node.lineno - 1 : node.end_lineno]]
    body = lines[function.lineno - 1 : function.end_lineno]
    last = max((node.end_lineno or 0 for node in imports), default=0)
    folder, _, _ = name.rpartition("/")
    inside = f"{folder}/__init__.py" in files or any(isinstance(n, ast.ImportFrom) and n.level for n in imports)
    lines[function.lineno - 1 : function.end_lineno] = []
    lines.insert(last, f"from {'.' if inside else ''}moved_helper import {function.name}")
    beside = f"{folder}/moved_helper.py" if folder else "moved_helper.py"
    return {**files, name: "\n".join(lines), beside: "\n".join([*head, "", "", *body, ""])}


def helper_of_a_module(files: Files, random: Random) -> Mutant:
    """The same, and it is called by way of its module."""
    moved = helper_in_another_file(files, random).files
    changed = {}
    for name, text in moved.items():
        found = re.search(r"^from moved_helper import (\w+)$", text, re.MULTILINE)
        tree = ast.parse(text)
        others = [other for other in moved if other not in {name, "moved_helper.py"}]
        if found is None or any(found[1] in moved[other] for other in others):  # they import it from here
            changed[name] = text
            continue
        uses = sorted((n.lineno, n.col_offset) for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == found[1])
        lines = text.split("\n")
        for line, column in reversed(uses):
            lines[line - 1] = f"{lines[line - 1][:column]}moved_helper.{lines[line - 1][column:]}"
        changed[name] = "\n".join(lines).replace(found[0], "import moved_helper")
    return Mutant(changed, {})


def alias_of_a_helper(files: Files, random: Random) -> Mutant:
    """The same, and what is imported from the program's own files has another name where it is imported."""
    moved = helper_in_another_file(files, random).files
    taken = {word for text in moved.values() for word in re.findall(r"\w+", text)}
    back: dict[str, str] = {}
    changed = {}
    for name, text in moved.items():
        tree = ast.parse(text)
        aliases = [alias for node in tree.body if _is_of(moved, node) for alias in cast(ast.ImportFrom, node).names]
        bound = [known for node in tree.body if not _is_of(moved, node) for known in _bound(node)]
        strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        places: dict[tuple[int, int], str] = {}
        for alias in aliases:
            shadowed = any(alias.name in _anywhere(node) for node in ast.walk(tree) if isinstance(node, _SCOPES))
            used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
            if alias.asname or alias.name not in used or alias.name in bound or shadowed or "__all__" in bound:
                continue
            if any(alias.name in value for value in strings):
                continue
            new = _same_length(alias.name, taken, random)
            if new is not None:
                taken.add(new)
                back[new] = alias.name
                places[alias.lineno, alias.col_offset] = new
                for node in ast.walk(tree):
                    if isinstance(node, ast.Name) and node.id == alias.name:
                        places[node.lineno, node.col_offset] = new
        changed[name] = text if not places else _aliased(text, places, back)
    return Mutant(changed, back)


def _is_of(files: Files, node: ast.AST) -> bool:
    """Whether a statement imports from a file of the program, which has no star import of it."""
    if not isinstance(node, ast.ImportFrom) or node.names[0].name == "*":
        return False
    last = (node.module or "").rpartition(".")[2]
    return any(f"/{name}".endswith(f"/{last}.py") for name in files)


def _anywhere(scope: ast.AST) -> set[str]:
    """What a scope binds, its parameters and what it imports too."""
    inner = [each for each in ast.walk(scope) if isinstance(each, (ast.Import, ast.ImportFrom))]
    imported = {(alias.asname or alias.name).partition(".")[0] for each in inner for alias in each.names}
    return _stored(scope) | imported | {node.arg for node in ast.walk(scope) if isinstance(node, ast.arg)}


def _aliased(text: str, places: dict[tuple[int, int], str], back: dict[str, str]) -> str:
    """The uses have the new name, of the same length; the imports have both."""
    imports = {(n.lineno, n.col_offset) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.alias)}
    used = _replaced(text, {place: new for place, new in places.items() if place not in imports})
    lines = used.split("\n")
    for line, column in sorted(imports & places.keys(), reverse=True):
        end = column + len(new := places[line, column])
        lines[line - 1] = f"{lines[line - 1][:end]} as {new}{lines[line - 1][end:]}"
    return "\n".join(lines)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    inner = [each for each in ast.walk(node) if isinstance(each, (ast.Import, ast.ImportFrom))]
    imported = {(alias.asname or alias.name).partition(".")[0] for each in inner for alias in each.names}
    return _stored(node) | imported


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


MUTATIONS: tuple[Mutation, ...] = (
    comments,
    layout,
    brackets,
    annotations,
    local_names,
    order_of_functions,
    alias_of_the_class,
    module_of_the_class,
    helper_in_another_file,
    helper_of_a_module,
    alias_of_a_helper,
)
