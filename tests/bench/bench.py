"""How long the tool takes, in ratios: `make bench [CORPUS=folder of repositories]`.

Everything is measured in one run on one machine, as processor seconds with those of child processes, the best of
three. The large tree is what is installed of `torch`, and `transformers`, which is put below build/ without what it
needs.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "bench"
TREE = HOME / "site-packages"
TOOL = (sys.executable, "-m", "fsdp_migrate")
RUFF = (sys.executable, "-m", "ruff", "check", "--select", "ALL", "--no-cache", "--isolated", "--quiet", "--statistics")
WORDS = ("fsdp", "FullyShardedDataParallel", "fully_shard")
SCAN = """
import os, sys
for folder, folders, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb", buffering=0) as file:
                data = file.read()
            b"fsdp" in data or b"FullyShardedDataParallel" in data or b"fully_shard" in data
"""
TIMES = 3
LIMIT_S = 300


def main() -> None:
    """Print the table."""
    lay_out()
    # as it is installed: with its bytecode, whatever the shell says of that
    own = {"XDG_CACHE_HOME": str(HOME / "cache"), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **own}
    shutil.rmtree(HOME / "cache", ignore_errors=True)
    files = list(TREE.rglob("*.py"))
    print(f"{len(files):,} files, {sum(path.stat().st_size for path in files) / 1e6:.0f} MB\n")
    print("| what | against | ratio | seconds | goal |\n|---|---|---|---|---|")
    bare = best((sys.executable, "-c", "pass"), environment)
    row("`--help`", "`python -c pass`", best((*TOOL, "--help"), environment), bare, "10")
    quiet = HOME / "quiet"
    scan = best((sys.executable, "-c", SCAN, str(quiet)), environment)
    row("nothing found", "bare byte scan", best((*TOOL, "check", str(quiet)), environment), scan, "3")
    grep = best(("grep", "-rlE", "|".join(WORDS), "--include=*.py", str(quiet)), environment)
    row("nothing found", "grep", best((*TOOL, "check", str(quiet)), environment), grep, "")
    ruff = best((*RUFF, str(TREE)), environment, 1)
    cold = best((*TOOL, "check", "--no-cache", str(TREE)), environment, 1)
    row("whole tree, cold", "`ruff check --select ALL --no-cache`", cold, ruff, "1")
    best((*TOOL, "check", str(TREE)), environment, 1)
    warm = best((*TOOL, "check", str(TREE)), environment)
    row("whole tree, warm", "the same", warm, ruff, "1 s")
    one = best((*TOOL, "check", "--no-cache", "train.py"), environment, TIMES, script())
    row("train.py of 300 lines", "`python -c pass`", one, bare, "0.6 s")
    for repository in sorted(Path(sys.argv[1]).iterdir()) if len(sys.argv) > 1 else ():
        rewrite = best((*TOOL, "rewrite", "--diff", "."), environment, 1, repository)
        check = best((*TOOL, "check", "--no-cache", "."), environment, 1, repository)
        row(f"{repository.name}: rewrite", "", rewrite, 0, "5 s")
        row(f"{repository.name}: check", "", check, 0, "2 s")


def lay_out() -> None:
    """The sources of torch and transformers, and those of them that speak of no FSDP."""
    if (HOME / ".ready").exists():
        return
    shutil.rmtree(HOME, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    if subprocess.run((*pip, "--target", str(HOME / "installed"), "transformers"), check=False).returncode:
        print("transformers cannot be installed: torch alone")
    find = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    torch = subprocess.run((sys.executable, "-c", find), check=True, capture_output=True, text=True).stdout.strip()
    for package in (Path(torch), HOME / "installed" / "transformers"):
        for path in package.rglob("*.py"):
            copy(path, TREE / path.relative_to(package.parent))
            if not any(word.encode() in path.read_bytes() for word in WORDS):
                copy(path, HOME / "quiet" / path.relative_to(package.parent))
    (HOME / ".ready").touch()


def copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def script() -> Path:
    """A folder with a training script of about 300 lines."""
    folder = HOME / "script"
    folder.mkdir(exist_ok=True)
    text = (ROOT / "fixtures" / "quickstart" / "fsdp1" / "train.py").read_text(encoding="utf-8")
    helper = "\n\ndef helper_{0}(values):\n    total = sum(values)\n    return total / max(len(values), 1)\n"
    number = 0
    while text.count("\n") < 300:
        text += helper.format(number)
        number += 1
    (folder / "train.py").write_text(text, encoding="utf-8")
    return folder


def best(
    command: Sequence[str], environment: dict[str, str], times: int = TIMES, folder: Path = ROOT
) -> tuple[float, float]:
    """Processor and wall seconds of the fastest of some runs."""
    return min(once(command, environment, folder) for _ in range(times))


def once(command: Sequence[str], environment: dict[str, str], folder: Path) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    try:
        subprocess.run(command, env=environment, cwd=folder, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return float("inf"), float("inf")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.perf_counter() - start


def row(what: str, against: str, took: tuple[float, float], other: tuple[float, float] | int, goal: str) -> None:
    ratio = f"{took[0] / other[0]:.2f}" if isinstance(other, tuple) else ""
    print(f"| {what} | {against} | {ratio} | {took[0]:.2f} ({took[1]:.2f} wall) | {goal} |", flush=True)


if __name__ == "__main__":
    main()
