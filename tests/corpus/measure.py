"""One repository through the command line, as its maintainer would call it, and what came of it."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fsdp_migrate.edit.in_file import BESIDE_THE_WRAP
from fsdp_migrate.project.style import configured_width
from fsdp_migrate.pyanalysis.tree import Tree

from .scan import (
    Pointed,
    calls_of,
    changed_lines,
    is_test,
    speaks_of_fsdp1,
    support_lines,
    unreported,
    wraps,
)

LIMIT_S = 300
WHOLE_FILE = {"FM111", "FM112"}
"""Rules that speak of a whole file: a copy of torch's sources, a generated one."""
BESIDE = "FM110"
INTERNALS = "FM401"
"""Names of FSDP1's own objects: some of them only need a review."""


@dataclass
class Row:
    """What became of one repository."""

    exit: int
    """Exit code of `rewrite`; -1: it did not end."""
    again: int
    """Exit code of `check` on the result: what was left to a person has to be found again."""
    files: int = 0
    calls: int = 0
    """Constructor calls outside of tests."""
    rewritten: int = 0
    beside: int = 0
    """Those kept because the program has an FSDP2 path of its own."""
    shard_model: int = 0
    """Calls of `shard_model` in the result."""
    run_time: int = 0
    """Calls of small functions beside the native ones, each for one argument that only run time knows."""
    support: list[int] = field(default_factory=list)
    """Lines of each support file."""
    changed: int = 0
    """Changed lines, support files aside."""
    changed_files: int = 0
    review: int = 0
    manual: dict[str, int] = field(default_factory=dict)
    """Findings that ask for a person, by rule."""
    not_python: int = 0
    faults: list[str] = field(default_factory=list)
    """What the tool did wrong: a text that does not parse, FSDP1 left and not reported, a new complaint of ruff."""
    seconds: float = 0.0
    """Processor seconds of `rewrite`."""
    check_seconds: float = 0.0


def measure(folder: Path) -> Row:
    """Rewrite a copy of the repository in place, and check it there; nothing of it is run or imported."""
    with TemporaryDirectory() as name:
        copy = Path(name) / "copy"
        shutil.copytree(folder, copy, symlinks=True)
        code, seconds, text = _run(copy, "rewrite", ".", "--output-format", "json")
        if code not in (0, 1, 2) or not text.startswith("{"):
            return Row(code, -1, faults=["rewrite gave no report"], seconds=seconds)
        report = json.loads(text)
        _, check_seconds, _ = _run(folder, "check", ".", "--no-cache")
        again, _, _ = _run(copy, "check", ".", "--no-cache")
        before, after = _texts(folder, report["changed"]), _texts(copy, report["changed"])
        row = Row(code, again, report["summary"]["files"], seconds=seconds, check_seconds=check_seconds)
        _count_findings(row, report)
        _count_calls(row, report, folder, after)
        _count_lines(row, before, after)
        row.faults += _faults(report, folder, before, after)
        row.faults += _complaints(folder, copy, before)
        return row


def _run(folder: Path, *arguments: str) -> tuple[int, float, str]:
    """Exit code, processor seconds and output of one call."""
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "fsdp_migrate", *arguments]
    # as it is installed: with its bytecode, whatever the shell says of that
    own = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": ""}
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, env=own)
    except subprocess.TimeoutExpired:
        return -1, float(LIMIT_S), ""
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.returncode, round(end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime, 1), done.stdout


def _texts(folder: Path, names: list[str]) -> dict[str, str]:
    paths = {name: folder / name for name in names}
    return {name: path.read_text("utf-8", errors="replace") for name, path in paths.items() if path.is_file()}


def _count_findings(row: Row, report: dict[str, Any]) -> None:
    row.not_python = len(report["errors"])
    row.review = report["summary"]["review"]
    row.manual = dict(sorted(Counter(f["rule"] for f in report["findings"] if f["level"] == "manual").items()))


def _count_calls(row: Row, report: dict[str, Any], folder: Path, after: dict[str, str]) -> None:
    """The constructor calls of the files that speak of FSDP1, before and after."""
    whole = {f["path"] for f in report["findings"] if f["rule"] in WHOLE_FILE}
    unread = {error["path"] for error in report["errors"]}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if name in whole or name in unread or is_test(name):
            continue
        text = path.read_text("utf-8", errors="replace")
        calls = wraps(text) if speaks_of_fsdp1(text) and _is_python(text) else 0
        row.calls += calls
        row.rewritten += calls - (wraps(after[name]) if name in after else calls)
    row.beside = sum(f["rule"] == BESIDE for f in report["findings"])
    written = [text for name, text in after.items() if not _is_support(name)]
    row.shard_model = sum(calls_of("shard_model", text) for text in written)
    row.run_time = sum(calls_of(each, text) for text in written for each in sorted(BESIDE_THE_WRAP))


def _count_lines(row: Row, before: dict[str, str], after: dict[str, str]) -> None:
    row.support = sorted(support_lines({name: text for name, text in after.items() if name not in before}))
    row.changed_files = sum(not _is_support(name) for name in after)
    row.changed = sum(changed_lines(before.get(name, ""), after[name]) for name in after if not _is_support(name))


def _faults(report: dict[str, Any], folder: Path, before: dict[str, str], after: dict[str, str]) -> list[str]:
    found = [f"{e['path']}: {e['message']}" for e in report["errors"] if "fault of fsdp-migrate" in e["message"]]
    for name, text in after.items():
        if not _is_python(text):
            found.append(f"{name}: does not parse")
    asking = [f for f in report["findings"] if f["level"] in ("manual", "kept") or f["rule"] == INTERNALS]
    for name, text in before.items():
        if name not in after or not speaks_of_fsdp1(text) or not _is_python(after[name]):
            continue
        mine = [Pointed(f["rule"], f["line"], f["column"]) for f in asking if f["path"] == name]
        mine += [Pointed(f["rule"], line, 1) for f in asking if f["path"] == name for line in f["also"]]
        if not any(pointed.rule in WHOLE_FILE for pointed in mine):
            staying = {word for f in report["findings"] if f["path"] == name for word in _staying(f)}
            left = [word for word in unreported(text, after[name], mine) if word not in staying]
            found += [f"{name}: {word} is left and not reported" for word in left]
    return list(dict.fromkeys(found))


def _staying(found: Mapping[str, Any]) -> list[str]:
    """The names that a finding says to stay: settings and policies, FSDP1's internals, what torch has no more."""
    if found["rule"] == INTERNALS or "deals in names alone" in found["message"]:
        return re.findall(r"`(\w+)`", found["message"])
    gone = re.match(r"torch has no (\w+)\S* any more", found["message"])
    if gone:
        return [gone[1]]
    names, _, said = found["message"].partition(" of torch.distributed.fsdp stays in use")
    return names.split(", ") if said else []


def _complaints(folder: Path, copy: Path, before: Mapping[str, str]) -> list[str]:
    """What ruff's default rules say of the changed files, and did not say before, at the width that each file has."""
    roots = [str(root / part) for root in (folder, copy) for part in ("", "src")]
    by_width: dict[int, list[str]] = defaultdict(list)
    for name, text in sorted(before.items()):
        by_width[Tree(folder / name, text, configured_width(folder / name)).width].append(name)
    found = []
    for width, names in by_width.items():
        settings = ["--config", f"src = {roots}", "--config", f"line-length = {width}"]
        new = _ruff(copy, names, settings) - _ruff(folder, names, settings)
        found += [f"{name}: ruff {code} {text}" for name, code, text in sorted(new.elements())]
    return found


def _ruff(folder: Path, names: list[str], settings: list[str]) -> Counter[tuple[str, str, str]]:
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "check", "--isolated", "--no-cache", "--output-format=json", *settings]
    done = subprocess.run([*command, *names], cwd=folder, capture_output=True, text=True)
    places = (
        (Path(f["filename"]).relative_to(folder.resolve()).as_posix(), f) for f in json.loads(done.stdout or "[]")
    )
    return Counter((name, f["code"] or "syntax", _LINE.sub("", f["message"])) for name, f in places)


_LINE = re.compile(r" from line \d+")
"""In the messages of F811."""


def _is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, "program", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


def _is_support(name: str) -> bool:
    return name.endswith("fsdp2_support.py")
