"""Run the tool over checkouts of real programs, write what became of each, and compare with an older table.

    make ecosystem DIR=FOLDER [BASE=REVISION]

FOLDER holds one folder a repository, `owner__name`. The table is written to tests/corpus/table.md, and as data to
table.json; BASE (HEAD unless told) is the commit whose table.json it is compared with.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import median

from .measure import Row, measure

HERE = Path(__file__).parent
COLUMNS = (
    "repository",
    "exit",
    "check after",
    "files",
    "calls",
    "rewritten",
    "beside FSDP2",
    "native",
    "run-time parts",
    "shard_model",
    "support lines",
    "changed lines",
    "review",
    "manual",
    "manual by rule",
    "faults",
    "rewrite, s",
    "check, s",
)
MARGIN_S = 0.5
"""Changes of the time that are smaller than this, or than a tenth, are noise."""


def cells(name: str, row: Row) -> list[object]:
    """One line of the table."""
    by_rule = ", ".join(f"{rule} {count}" for rule, count in row.manual.items())
    return [
        name,
        row.exit,
        row.again,
        row.files,
        row.calls,
        row.rewritten,
        row.beside,
        row.rewritten - row.shard_model,
        row.run_time,
        row.shard_model,
        " + ".join(map(str, row.support)) or 0,
        row.changed,
        row.review,
        sum(row.manual.values()),
        by_rule,
        len(row.faults),
        f"{row.seconds:.1f}",
        f"{row.check_seconds:.1f}",
    ]


def render(rows: dict[str, Row]) -> str:
    """The table as Markdown, with its sums."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {' | '.join(map(str, cells(name, row)))} |" for name, row in rows.items()]
    calls, rewritten = (sum(getattr(row, key) for row in rows.values()) for key in ("calls", "rewritten"))
    through = sum(row.shard_model for row in rows.values())
    programs = [sum(row.support) for row in rows.values() if row.rewritten]
    manual = sum((Counter(row.manual) for row in rows.values()), Counter[str]())
    lines += [
        "",
        f"{len(rows)} repositories, {calls} constructor calls outside of tests, {rewritten} rewritten, "
        f"{through} calls of `shard_model`.",
        f"Support lines of the {len(programs)} repositories with a rewritten call: median {median(programs or [0]):g}, "
        f"{sum(lines_ <= 60 for lines_ in programs)} with at most 60, {sum(lines_ > 200 for lines_ in programs)} "
        "with more than 200.",
        f"Findings that ask for a person: {manual.total()} "
        f"({', '.join(f'{rule} {count}' for rule, count in manual.most_common())}).",
    ]
    faults = [f"* {name}: {fault}" for name, row in rows.items() for fault in row.faults]
    return "\n".join(lines + (["", "Faults of the tool:", "", *faults] if faults else [])) + "\n"


def compare(old: dict[str, Row], new: dict[str, Row]) -> list[str]:
    """What got better and what got worse, repository by repository."""
    found = []
    for name in sorted(old.keys() & new.keys()):
        before, after = _values(old[name]), _values(new[name])
        for key, value in after.items():
            if before[key] != value and (
                key != "seconds" or abs(value - before[key]) > max(MARGIN_S, before[key] / 10)
            ):
                better = value > before[key] if key == "rewritten" else value < before[key]
                found.append(f"{'better' if better else 'WORSE '} {name}: {key} {before[key]:g} -> {value:g}")
    found += [f"WORSE  {name}: no longer measured" for name in sorted(old.keys() - new.keys())]
    return sorted(found, key=lambda line: not line.startswith("WORSE"))


def _values(row: Row) -> dict[str, float]:
    return {
        "rewritten": row.rewritten,
        "shard_model": row.shard_model,
        "support lines": sum(row.support),
        "manual": sum(row.manual.values()),
        "faults": len(row.faults),
        "seconds": row.seconds,
    }


def load(revision: str) -> dict[str, Row]:
    """The table of another commit; empty where it has none."""
    done = subprocess.run(
        ["git", "show", f"{revision}:./table.json"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {name: Row(**row) for name, row in json.loads(done.stdout or "{}").items()}


def main() -> None:
    if len(sys.argv) not in (2, 3) or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    rows = {}
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        if folder.is_dir():
            name = folder.name.replace("__", "/")
            rows[name] = measure(folder.resolve())
            print(" ".join(map(str, cells(name, rows[name]))), flush=True)
    differences = compare(load(sys.argv[2] if len(sys.argv) == 3 else "HEAD"), rows)
    (HERE / "table.json").write_text(json.dumps({n: asdict(r) for n, r in rows.items()}, indent=1) + "\n")
    (HERE / "table.md").write_text(render(rows))
    print("\n" + "\n".join(differences or ["nothing to compare with, or nothing differs"]))


if __name__ == "__main__":
    main()
