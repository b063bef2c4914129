"""Judges every mutant, and prints which check rejected it: `make mutants`, or with some words to choose by name.

python -m tests.verify.mutants                  # all
python -m tests.verify.mutants quickstart F     # those of a fixture, or with a check that is expected
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from tests.verify.mutants.catalogue import MUTANTS, Mutant
from tests.verify.mutants.judge import Judged, judge


def table(judged: Iterable[Judged]) -> str:
    """One line a mutant, and the counts."""
    found = list(judged)
    lines = ["| mutant | kind | expected | failed |", "|---|---|---|---|"]
    for one in found:
        failed = ", ".join(one.failed) if one.rejected else one.why.splitlines()[0][:120]
        mistake = one.mutant.mistake
        lines.append(f"| {one.mutant.id} | {mistake.kind} | {mistake.expected} | {failed} |")
    kinds = Counter(one.mutant.mistake.kind for one in found)
    lines += [
        "",
        f"{len(found)} mutants ({', '.join(f'{kind} {number}' for kind, number in sorted(kinds.items()))}): "
        f"{sum(one.rejected for one in found)} rejected, {sum(one.as_expected for one in found)} by the expected check",
    ]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    chosen = [m for m in MUTANTS if not words or {m.fixture, m.mistake.expected, m.mistake.kind} & set(words)]
    found: list[Judged] = []
    for _, group in groupby(sorted(chosen, key=_fixture), key=_fixture):
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as home:
            found += judge(list(group), Path(home))
        print(f"{len(found)}/{len(chosen)}", file=sys.stderr, flush=True)
    print(table(found))
    return 0 if all(one.as_expected for one in found) else 1


def _fixture(mutant: Mutant) -> str:
    return mutant.fixture


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
