"""Migrations by the tool itself, of options drawn at random, each judged by the checks; writes DRAWN.md.

    python -m tests.verify.drawn             # draws 0 to 749
    python -m tests.verify.drawn 100 40      # 40 of them, from the hundredth on; nothing is written

programs/drawn.py is rewritten once, and that one FSDP2 program runs with every draw: each strategy, precision and the
rest are chosen at run time, as in the repositories people have. The test suite sees the first dozen. One migration
that does not pass, and it ends with exit code 1.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.source import read_source
from fsdp_migrate.verify import Verdict
from tests.verify.runs import STEPS, Case, Fleet
from tests.verify.trees import PROGRAMS

RESULTS = Path(__file__).with_name("DRAWN.md")
COUNT = 750
AT_ONCE = 20
"""Draws that run in one go; nothing of them is kept on the disk for longer."""

RANKS = {2: 8, 4: 1, 1: 1}
"""How often a draw is for so many."""


@cache
def migrated() -> dict[str, str]:
    """What the tool makes of programs/drawn.py, by file name."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("drawn.py", "model.py"):
            shutil.copy(PROGRAMS / name, place)
        report = migrate([read_source(place / "drawn.py")], Options())
    after = {change.path.name: change.after for change in report.changes}
    return {"drawn_fsdp2.py": after.pop("drawn.py"), **after}


def drawn(number: int) -> Case:
    """The draw of this number, always the same; what FSDP1 itself refuses is not drawn."""
    dice = random.Random(number)
    options: dict[str, Any] = {}
    world = dice.choices(list(RANKS), list(RANKS.values()))[0]

    def sometimes(share: float, **given: Any) -> None:
        if dice.random() < share:
            options.update(given)

    options["strategy"] = dice.choice(["FULL_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
    if world == 4:
        options["strategy"] = "HYBRID_SHARD"
    sometimes(0.5, precision="bf16", reduce=dice.choice(["", "fp32"]))
    sometimes(0.4, accumulate=dice.choice([2, 3]))
    sometimes(0.3, checkpointing=True)
    sometimes(0.3, dropout=0.1)
    sometimes(0.3, sync_module_states=True)
    sometimes(0.2, autocast=True)
    sometimes(0.2, evaluate=True)
    sometimes(0.2, tied=True)
    sometimes(0.2, teacher=True)
    sometimes(0.2, decay_groups=True)
    sometimes(0.2, optimizer="SGD", lr=0.05)
    sometimes(0.2, clip=0.0)
    sometimes(0.3, restore=dice.choice([2, 4]))
    sometimes(0.2, schedule=True)
    sometimes(0.25, lora=dice.choice([2, 4]))
    sometimes(0.2, frozen=True)
    # One flat parameter is trained whole, or not at all, and its name says nothing (FM406).
    if not {"lora", "frozen", "decay_groups"} & options.keys():
        sometimes(0.3, use_orig_params=False)
    # FSDP1 itself fails here on torch 2.13, when it frees a unit under no_sync: gradients in bf16 for float32 weights.
    if options["strategy"] == "NO_SHARD" and options.get("reduce"):
        options.pop("accumulate", None)
    scripts, extra = ("drawn.py", "drawn_fsdp2.py"), ("--redirect", "--processes", str(world))
    return Case(f"draw {number}", options, world=world, repeat=number, scripts=scripts, extra=extra)


def features(case: Case) -> Iterator[str]:
    """What the table counts of a draw."""
    yield f"ranks {case.world}"
    for key, value in case.options.items():
        said = "as the precision" if value == "" else value
        yield str(value) if key == "strategy" else key if value is True else f"{key} {said}"


def judged(cases: list[Case]) -> Iterator[tuple[Case, Verdict, str]]:
    """Each of these with its verdict and the reason for it."""
    for start in range(0, len(cases), AT_ONCE):
        some = cases[start : start + AT_ONCE]
        with tempfile.TemporaryDirectory(prefix="drawn-", ignore_cleanup_errors=True) as home:
            fleet = Fleet(Path(home), migrated())
            fleet.observe(some)
            for case in some:
                report = fleet.report(case)
                yield case, report.verdict, report.reason


def page(found: list[tuple[Case, Verdict, str]]) -> str:
    """DRAWN.md."""
    passed = Counter(word for case, verdict, _ in found if verdict is Verdict.PASS for word in features(case))
    drawn_with = Counter(word for case, _, _ in found for word in features(case))
    wrong = [(case, verdict, reason) for case, verdict, reason in found if verdict is not Verdict.PASS]
    return "\n".join(
        [
            "# What the checks make of the tool's own migrations",
            "",
            f"Made by `python -m tests.verify.drawn` on torch {torch.__version__}, gloo, {STEPS} steps a run: what the",
            "tool makes of programs/drawn.py, with options, weights and data drawn at random.",
            "",
            f"- **{len(found)} checks: {len(found) - len(wrong)} PASS**",
            *(f"- {_said(*one)}" for one in wrong),
            "",
            "| drawn with | checks | passed |",
            "|---|---|---|",
            *(f"| {word} | {count} | {passed[word]} |" for word, count in sorted(drawn_with.items())),
            "",
        ]
    )


def _said(case: Case, verdict: Verdict, reason: str) -> str:
    if verdict is Verdict.PASS:
        return f"{case.name}: PASS"
    return f"{case.name} on {case.world} ranks, {case.options}: {verdict.value}, {reason}"


def main(words: list[str]) -> int:
    first, count = (int(words[0]), int(words[1])) if words else (0, COUNT)
    found = []
    for one in judged([drawn(number) for number in range(first, first + count)]):
        print(_said(*one), flush=True)
        found.append(one)
    if not words:
        RESULTS.write_text(page(found), encoding="utf-8")
    return 0 if all(verdict is Verdict.PASS for _, verdict, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
