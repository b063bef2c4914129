"""What the tests of the upgrades share: an upgrade of a small program, and what must hold for every result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from codemods.api import Finding
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.source import Source
from fsdp_migrate.upgrade import upgrade
from tests.helpers import undefined


@dataclass(frozen=True)
class Upgraded:
    """The files after an upgrade, and what was said."""

    files: Mapping[str, str]
    findings: tuple[Finding, ...]

    @property
    def text(self) -> str:
        (text,) = self.files.values()
        return text

    @property
    def summary(self) -> list[tuple[str, str, int]]:
        """Rule, level and line of every finding."""
        return [(finding.rule, finding.level.value, finding.line) for finding in self.findings]

    @property
    def said(self) -> str:
        (finding,) = self.findings
        return finding.message


def upgraded(text: str, **asked: str) -> Upgraded:
    """Upgrade a program of one file."""
    return upgraded_files({"train.py": text}, **asked)


def upgraded_files(files: Mapping[str, str], **asked: str) -> Upgraded:
    """Upgrade a program: the result compiles, no name in it is left undefined, a second run changes nothing, `rewrite`
    has nothing to do with it, and the lint for FSDP2 code finds no more than before."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / ".git").mkdir()
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        first = upgrade(_sources(folder, files), asked)
        assert first.errors == ()
        after = dict(files) | {c.path.relative_to(folder).as_posix(): c.after for c in first.changes}
        second = upgrade(_sources(folder, after), asked)
        assert second.changes == (), "a second run must change nothing"
        found = [len(_contract(folder, each)) for each in (files, after)]
    assert found[1] <= found[0], "an upgrade that the lint finds fault with"
    for path, text in after.items():
        compile(text, path, "exec", dont_inherit=True)
        assert undefined(text) <= undefined(files.get(path, "")), "a name lost its import"
    assert "\0" not in "".join([*after.values(), *(f"{f.message}{f.hint}" for f in first.findings)])
    return Upgraded(after, first.findings)


def _sources(folder: Path, files: Mapping[str, str]) -> list[Source]:
    return [Source(folder / path, text) for path, text in files.items()]


def _contract(folder: Path, files: Mapping[str, str]) -> tuple[Finding, ...]:
    report = migrate(_sources(folder, files), Options(contract=True))
    return tuple(finding for finding in report.findings if finding.rule.startswith("FM5"))
