"""What each check of a parity run means: the text of `explain S3` and of the page, and the report's next step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PAGES = Path(__file__).with_name("checks.md")


@dataclass(frozen=True, slots=True)
class About:
    """One check, as checks.md tells of it; `docs` is the whole text below its heading."""

    id: str
    title: str
    docs: str

    def part(self, heading: str) -> str:
        """One paragraph, without its heading; a list with its lines joined."""
        found = re.search(rf"\*\*{re.escape(heading)}\.\*\*\s+(.*?)(?=\n\n\*\*|\Z)", self.docs, re.DOTALL)
        return found[1].strip() if found else ""

    @property
    def compares(self) -> str:
        return self.part("What it compares")

    @property
    def causes(self) -> tuple[str, ...]:
        lines = self.part("Usual causes of a difference").splitlines()
        return tuple(line.removeprefix("* ") for line in lines if line.startswith("* "))

    @property
    def cure(self) -> str:
        return self.part("What to do")


@cache
def catalogue() -> Mapping[str, About]:
    """All checks by their ids, in the order of the report."""
    pages = re.split(r"^# ", _PAGES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = [(heading.split(" ", 1), docs) for heading, _, docs in (page.partition("\n") for page in pages)]
    return {name: About(name, title, docs.strip()) for (name, title), docs in found}


UNSEEDED = "seed it in every process, or check with --seed"
"""How a row ends that is undecided because the original differs from itself."""


def asks_for_seed(detail: str) -> bool:
    """Whether a row is undecided because the original differs from itself."""
    return detail.endswith(UNSEEDED)


def next_step(check: str, detail: str) -> str:
    """What to do about a check that failed or is undecided, and where more is said."""
    about = catalogue().get(check)
    if about is None:
        return ""
    cure = f"S{UNSEEDED[1:]}." if asks_for_seed(detail) else about.cure
    return f"{cure} More: fsdp-migrate explain {check}"
