"""What the tests of the rules share: the real pipeline over small programs, and what must hold for every result.

Whatever a program looks like, `rewrite_files` asserts that the result compiles, that no name in it is left undefined,
that a second run changes nothing, and that what is left of FSDP1 is named by a finding, and stopped where FSDP2 would
ignore it. What is left is found with `ast` alone, by other code than the tool's.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import textwrap
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from codemods.api import Finding, Level
from codemods.tables.names import PLAIN_DATA
from codemods.tables.versions import OLDEST
from fsdp_migrate.findings import Report
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.source import Source
from fsdp_migrate.render.view import is_fsdp2_lint
from fsdp_migrate.support import available

SUPPORT = "fsdp2_support.py"
K = TypeVar("K")

# Names that only FSDP1 has, written down here so that a name lost from the tool's tables is noticed.
FSDP1 = frozenset(
    [
        "FullyShardedDataParallel",
        "FlatParameter",
        "ShardedGradScaler",
        "OptimStateKeyType",
        "enable_wrap",
        "wrap",
        "BackwardPrefetch",
        "CPUOffload",
        "MixedPrecision",
        "ShardingStrategy",
        "CustomPolicy",
        "ModuleWrapPolicy",
        "_module_wrap_policy",
        "_or_policy",
        "always_wrap_policy",
        "lambda_auto_wrap_policy",
        "size_based_auto_wrap_policy",
        "transformer_auto_wrap_policy",
        "FullOptimStateDictConfig",
        "FullStateDictConfig",
        "LocalOptimStateDictConfig",
        "LocalStateDictConfig",
        "OptimStateDictConfig",
        "ShardedOptimStateDictConfig",
        "ShardedStateDictConfig",
        "StateDictConfig",
        "StateDictSettings",
        "StateDictType",
    ]
)
# Data, not behaviour: where nothing of a program is rewritten, these are left with the call that they belong to.
DATA = FSDP1 - {"FullyShardedDataParallel", "ShardedGradScaler", "enable_wrap", "wrap"}
# Records of settings, which stay torch's own where something still reads them: a note says so.
SETTINGS = PLAIN_DATA
# Methods that do nothing, without a word, on an FSDP2 model.
SILENT = frozenset({"fsdp_modules", "set_state_dict_type", "state_dict_type", "summon_full_params"})


@dataclass(frozen=True)
class Result:
    """One run of the pipeline over a program."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    """Every file as it is after the run, the support module included."""
    report: Report

    @property
    def text(self) -> str:
        """The only file of the program (support module aside)."""
        (name,) = self.before
        return self.after[name]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.report.findings

    @property
    def summary(self) -> list[tuple[str, str, int]]:
        """Rule, level and line of every finding."""
        return [(finding.rule, finding.level.value, finding.line) for finding in self.findings]

    @property
    def support(self) -> frozenset[str]:
        """The support functions that the program imports, or that stand in a file of its own."""
        texts = [text for name, text in self.after.items() if not name.endswith(SUPPORT)]
        nodes = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        imported = {a.name for n in nodes if (n.module or "").endswith("fsdp2_support") for a in n.names}
        return frozenset(imported | {name for name in self.own if self._is_used(name)})

    def _is_used(self, name: str) -> bool:
        """Whether more than the other support functions uses one of them."""
        files = [text for path, text in self.after.items() if not path.endswith(SUPPORT)]
        parts = [node for text in files for node in ast.parse(text).body]
        parts = [part for part in parts if getattr(part, "name", "") not in self.own]
        names = (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Name))
        return any(node.id == name for node in names)

    @property
    def program(self) -> str:
        """The only file, without the support functions that stand in it."""
        lines = self.text.splitlines(keepends=True)
        for node in reversed(ast.parse(self.text).body):
            if isinstance(node, ast.FunctionDef) and node.name in self.own:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
                del lines[first : (node.end_lineno or 0) + 2]
        return "".join(lines)

    @property
    def own(self) -> set[str]:
        """The support functions that stand in a file of the program's own."""
        texts = [text for name, text in self.after.items() if not name.endswith(SUPPORT)]
        defined = {node.name for text in texts for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        return defined & available() - {name for text in self.before.values() for name in _defined(text)}


def _defined(text: str) -> set[str]:
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def code(text: str) -> str:
    """A program written indented inside a test."""
    return textwrap.dedent(text).lstrip("\n")


def rewrite(text: str, options: Options | None = None) -> Result:
    """Rewrite a program of one file, exactly as it is given."""
    return rewrite_files({"train.py": text}, options)


def rewrite_files(files: Mapping[str, str], options: Options | None = None, settings: str = "") -> Result:
    """Rewrite a program of several files, and check what holds for every result.

    `settings` is the project's pyproject.toml.
    """
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / ".git").mkdir()  # the root of a project, so that nothing above is looked at
        if settings:
            (folder / "pyproject.toml").write_text(settings)
        first = _run(files, folder, options)
        second = _run(first.after, folder, replace(options or Options(), contract=True))
    assert first.report.errors == ()
    assert dict(second.after) == dict(first.after), "a second run must change nothing"
    for path, text in first.after.items():
        compile(text, path, "exec", dont_inherit=True)
        if path in first.before:
            assert undefined(text) <= undefined(first.before[path]), "a name lost its import"
            assert _unused_imports(text) <= _unused_imports(first.before[path]), "an import that nothing uses"
    assert "\0" not in "".join([*first.after.values(), *(f"{f.message}{f.hint}" for f in first.findings)])
    check_leftovers(first)
    broken = [finding for finding in second.findings if is_fsdp2_lint(finding) and finding.level is Level.MANUAL]
    assert not broken, "the result breaks FSDP2's contract"
    if not any(finding.level is Level.MANUAL for finding in first.findings):
        left = [finding for finding in second.findings if finding.level is Level.MANUAL]
        assert not left, "what needed nobody is found again"
    return first


def rewrite_all(programs: Mapping[K, Mapping[str, str]], options: Mapping[K, Options] | None = None) -> dict[K, Result]:
    """`rewrite_files` of many programs, on all cores."""
    given = [(options or {}).get(name) for name in programs]
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        return dict(zip(programs, pool.map(rewrite_files, programs.values(), given, chunksize=4), strict=True))


def run_files(files: Mapping[str, str], options: Options | None = None) -> Result:
    """One run of the pipeline over a program of several files, in a folder of its own."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / ".git").mkdir()  # the root of a project, so that nothing above is looked at
        return _run(files, folder, options)


def contract(text: str, torch_version: tuple[int, int] = OLDEST) -> Result:
    """Look at a program of one file as `check` does, which changes nothing; findings about FSDP1 are left out."""
    options = Options(contract=True, torch_version=torch_version)
    with TemporaryDirectory() as name:
        result = _run({"train.py": code(text)}, Path(name).resolve(), options)
    return replace(result, report=replace(result.report, findings=tuple(filter(is_fsdp2_lint, result.findings))))


def check_noop(text: str) -> Result:
    """Nothing is found and nothing is changed."""
    result = rewrite(code(text))
    assert result.summary == []
    assert result.after == result.before
    return result


def check_transformed(before: str, after: str, level: Level = Level.REWRITTEN) -> Result:
    """`before` becomes `after`, with no finding above `level`."""
    result = rewrite(code(before))
    assert result.text == code(after)
    order = [Level.REWRITTEN, Level.REVIEW, Level.MANUAL]
    assert result.findings
    assert max(order.index(finding.level) for finding in result.findings) == order.index(level)
    return result


def check_marked(text: str, rule: str, level: Level = Level.MANUAL, words: str = "", line: int | None = None) -> Result:
    """The rule reports the program once at this level, with these words in the message and a hint."""
    result = rewrite(code(text))
    found = [finding for finding in result.findings if finding.rule == rule and finding.level is level]
    assert len(found) == 1, result.findings
    assert words in found[0].message
    assert found[0].hint or level is not Level.MANUAL
    if line is not None:
        assert found[0].line == line
    return result


def check_leftovers(result: Result) -> None:
    """What is left of FSDP1 is named by a finding that asks for a person, and raises where it would be silent."""
    for name, text in result.after.items():
        if name.endswith(SUPPORT):
            continue
        changed = text != result.before[name]
        lines = [line + "\n" for line in result.before[name].split("\n")]
        # The text at which each finding points: what is left there must start it.
        named = [lines[f.line - 1][f.column - 1 :] for f in result.findings if _is_manual(f, name)]
        tree = ast.parse(text)
        for node, used in leftovers(tree):
            if used.split(".")[0] in DATA and not changed:
                continue
            if used.split(".")[0] in SETTINGS and _is_said_to_stay(result, name, used.split(".")[0]):
                continue
            line = text.splitlines()[node.lineno - 1].strip()
            name_there = re.compile(re.escape(ast.unparse(node)) + r"(?![\w.])")
            at = next((text for text in named if name_there.match(text)), None)
            assert at is not None, f"{used} is left in `{line}` and no finding names it"
            named.remove(at)
            if used.rsplit(".", 1)[-1] in SILENT and result.report.changes and _is_given_a_name(tree, node):
                assert _is_stopped(tree, node), f"`{line}` would be silent on an FSDP2 model"


def leftovers(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """The outermost uses of FSDP1's names outside of import statements."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("torch"):
            bound.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.Import):
            bound.update(
                {a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names}
            )
    inner: set[ast.AST] = set(_shadowed(tree))
    for node in ast.walk(tree):  # outer nodes come first
        if not isinstance(node, (ast.Name, ast.Attribute)) or node in inner:
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            continue
        dotted = ast.unparse(node) if _is_dotted(node) else ""
        first, _, rest = dotted.partition(".")
        full = ".".join(filter(None, [bound.get(first, ""), rest]))
        if not full.startswith("torch.distributed.fsdp."):
            continue
        part: ast.expr = node
        while isinstance(part, ast.Attribute):
            part = part.value
            inner.add(part)
        parts = full.split(".")[3:]
        if parts[0] == "wrap" and len(parts) > 1:  # the module
            parts = parts[1:]
        at = next((index for index, part in enumerate(parts) if part in FSDP1), None)
        if at is not None:
            yield node, ".".join(parts[at:])


def _shadowed(tree: ast.Module) -> Iterator[ast.AST]:
    """The names inside functions that bind them to something of their own."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        own = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("torch"):
                own.update(alias.asname or alias.name for alias in node.names)
        yield from (node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in own)


def one_line(text: str) -> str:
    """The text with each `raise` of the tool on one line."""
    raised = re.compile(r'raise NotImplementedError\(\r?\n((?:\s+".*"\r?\n)+)\s*\)')
    return raised.sub(lambda m: 'raise NotImplementedError("' + "".join(re.findall('"(.*)"', m[1])) + '")', text)


def meaning(text: str) -> str:
    """The text without its layout."""
    return ast.unparse(ast.parse(textwrap.dedent(text)))


def flat(text: str) -> str:
    """The text with what stands in brackets on one line."""
    return re.sub(r"(?<=[(\[{])\s+|,?\s+(?=[)\]}])", "", re.sub(r"(?<=,)\n\s*", " ", text))


def undefined(text: str) -> frozenset[str]:
    """The names that are used somewhere and bound nowhere."""
    top = symtable.symtable(text, "program", "exec")
    known = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    known |= set(dir(builtins)) | {"__file__", "__annotations__"}
    if any(alias.name == "*" for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) for alias in n.names):
        return frozenset()
    found: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            is_global = symbol.is_global() or table is top
            if symbol.is_referenced() and is_global and symbol.get_name() not in known:
                found.add(symbol.get_name())
            if symbol.is_declared_global() and symbol.is_assigned():
                known.add(symbol.get_name())
    return frozenset(found - known)


def _run(files: Mapping[str, str], folder: Path, options: Options | None) -> Result:
    """The files lie on disk too, because modules are looked up there."""
    sources = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        sources.append(Source(path, text))
    report = migrate(sources, options or Options())
    after = dict(files)
    for change in report.changes:
        name = change.path.relative_to(folder).as_posix()
        assert change.before == files.get(name)
        assert change.after != change.before
        after[name] = change.after
    return Result(dict(files), after, report)


def _unused_imports(text: str) -> frozenset[str]:
    tree = ast.parse(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if alias.name != "*"
    }
    quoted = {word for string in strings if " " not in string for word in re.findall(r"\w+", string)}
    return frozenset(imported - names - quoted)


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_said_to_stay(result: Result, name: str, setting: str) -> bool:
    return any(
        finding.rule == "FM100" and setting in finding.message and finding.path.as_posix().endswith(f"/{name}")
        for finding in result.findings
    )


def _is_manual(finding: Finding, name: str) -> bool:
    return finding.level in (Level.MANUAL, Level.KEPT) and finding.path.as_posix().endswith(f"/{name}")


def _is_given_a_name(tree: ast.Module, node: ast.expr) -> bool:
    """Whether a function of FSDP1 is called with a model that can be asked for its class."""
    calls = [call for call in ast.walk(tree) if isinstance(call, ast.Call) and call.func is node]
    return any(isinstance(argument, (ast.Name, ast.Attribute)) for call in calls for argument in call.args)


def _is_stopped(tree: ast.Module, node: ast.expr) -> bool:
    """Whether a `raise NotImplementedError`, under a class test or not, stands above the node in a block around it."""
    for block in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(block, field, None)
            if not isinstance(statements, list):
                continue
            at = next((i for i, s in enumerate(statements) if any(inner is node for inner in ast.walk(s))), 0)
            if any(map(_raises, statements[:at])):
                return True
    return False


def _raises(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If) and ast.unparse(statement.test).startswith("isinstance("):
        return _raises(statement.body[-1])
    return isinstance(statement, ast.Raise) and "NotImplementedError('fsdp-migrate FM" in ast.unparse(statement)
