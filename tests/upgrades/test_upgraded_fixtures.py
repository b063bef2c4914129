"""The FSDP2 fixtures with each upgrade that applies: before and after run on two ranks, and are compared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from codemods.upgrades import UPGRADES
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.imports import program_files
from fsdp_migrate.project.source import read_source
from fsdp_migrate.render.diff import unified
from fsdp_migrate.upgrade import upgrade
from fsdp_migrate.verify import CheckRequest, Failure, Mark, ParityReport, Verdict
from fsdp_migrate.verify.expectation import expectation
from tests.upgrades.gpt import lay_out_gpt
from tests.verify.together import Pair, check_pairs

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROGRAMS = Path(__file__).parent / "programs"
"""FSDP2 programs of shapes that the fixtures lack, named by their script."""
DIFF_LINES = 15


@dataclass(frozen=True)
class Case:
    """A fixture, what is asked for, and what may differ then."""

    fixture: str
    asked: Mapping[str, str]
    expect: str = "same"
    linears: int = 0
    """How many layers compute in float8."""
    steps: int = 10
    slip: tuple[str, str] = ("", "")
    """What is replaced in the upgraded program, as a person might get it wrong."""
    caught_by: str = ""
    redirect: Literal["auto", "off"] = "auto"
    """Off: CUDA is not pretended, under which `torch.compile` does nothing."""
    saves: int = 0
    """How many checkpoints are compared; those of a fixture become distributed ones first."""

    @property
    def name(self) -> str:
        return "-".join((self.fixture, *self.asked, *filter(None, (self.caught_by,))))

    @property
    def base(self) -> str:
        """What identifies the program before and its runs, which cases share."""
        kind = "resized" if self.sizes else "saving" if self.saves and self.script == "train.py" else "as it is"
        return "-".join((self.fixture, kind, str(self.steps), self.redirect))

    @property
    def sizes(self) -> Sequence[tuple[str, str]]:
        return SIZES.get(self.fixture, ()) if "float8" in self.asked else ()

    @property
    def script(self) -> str:
        return f"{self.fixture}.py" if (PROGRAMS / f"{self.fixture}.py").exists() else "train.py"


SIZES = {
    "accumulation": [("width=37, hidden=51", "width=48, hidden=64")],
    "checkpoint": [("width=27, hidden=45", "width=32, hidden=48")],
    "helpers_package": [("width=39, heads=3, hidden=77", "width=48, heads=3, hidden=80")],
    "mixed_precision": [("89, 11, 42, 3", "89, 11, 48, 3"), ("hidden=75", "hidden=80")],
    "quickstart": [("101, 13, 33, 3, 131", "96, 13, 48, 3, 128")],
    "trainer_class": [("width: int = 35", "width: int = 48"), ("2 * width + 1", "2 * width")],
}
"""Sizes of the fixtures' models, and what stands for them where layers compute in float8: multiples of 16."""
UNITS = {"reshard_after_forward": "2", "prefetch": "True"}
PLAIN = ("quickstart", "accumulation", "batch_norm", "mixed_precision", "trainer_class", "checkpoint", "own_list")
ASYNC = {"async_checkpoint": "True"}
SCALES = "        float8.precompute_float8_dynamic_scale_for_fsdp(model)\n"
SCALES_OF_SELF = SCALES.replace("(model)", "(self.model)")
STEP = "        optimizer.step()\n"
LOADED = 'optim_state_dict=state["optimizer"])\n'
UNFUSED = (".compile()", '.compile(backend="aot_eager")')
"""The same graphs in eager's kernels: equal to the last bit, and in a tenth of the time that inductor takes."""
CASES = [
    Case("gpt", {"float8": "tensorwise"}, "loss within 2%", linears=12),
    Case("gpt", {"float8": "rowwise"}, "loss within 2%", linears=12),
    Case("gpt", {"float8": "tensorwise"}, "loss within 2%", slip=(STEP + SCALES, SCALES + STEP), caught_by="X1"),
    Case("gpt", {"float8": "tensorwise"}, "loss within 2%", slip=(SCALES, ""), caught_by="X1"),
    Case("gpt", {"float8": "tensorwise"}, "loss within 2%", slip=("% 16", "% 999"), caught_by="X1"),
    Case("gpt", {"float8": "tensorwise"}, "loss within 2%", slip=("lr=3e-3", "lr=4e-3"), caught_by="H0"),
    Case("gpt", {"float8": "tensorwise"}, "same", steps=8, caught_by="N1"),
    *(Case(fixture, UNITS, steps=8) for fixture in PLAIN),
    Case("quickstart", {"compile": "True"}, "loss within 1%", steps=8, redirect="off"),
    *(
        Case(fixture, {"compile": "True"}, steps=8, slip=UNFUSED, redirect="off")
        for fixture in ("quickstart", "accumulation", "checkpoint", "lambda_lora", "trainer_class", "helpers_package")
    ),
    Case("quickstart", {"float8": "tensorwise", "compile": "True"}, "loss within 2%", linears=12, slip=UNFUSED),
    *(
        Case(fixture, ASYNC, steps=20, saves=saves)
        for fixture, saves in [("helpers_package", 2), ("resumable_trainer", 1)]
    ),
    *(Case(script, ASYNC, steps=20, saves=saves) for script, saves in [("epochs", 3), ("rounds", 3), ("script", 6)]),
    Case("trainer", UNITS | ASYNC, steps=20, saves=3),
    *(
        Case(script, {"float8": "tensorwise"}, "loss within 2%", linears=6)
        for script in ("epochs", "rounds", "script", "trainer")
    ),
    Case("trainer", {"float8": "tensorwise"}, "loss within 2%", slip=(LOADED + SCALES_OF_SELF, LOADED), caught_by="X1"),
    Case("epochs", UNITS),
    *(
        Case(fixture, {"float8": recipe}, "loss within 2%", linears=linears)
        for recipe, fixture, linears in [
            ("tensorwise", "quickstart", 12),
            ("rowwise", "quickstart", 12),
            ("tensorwise", "accumulation", 6),
            ("tensorwise", "checkpoint", 6),
            ("tensorwise", "helpers_package", 12),
            ("tensorwise", "mixed_precision", 15),
            ("tensorwise", "trainer_class", 6),
        ]
    ),
]


def laid_out(case: Case, folder: Path) -> Path:
    """The fixture's FSDP2 program, with its sizes."""
    if case.fixture == "gpt":
        _migrate(lay_out_gpt(folder), Options())
    elif case.script != "train.py":
        shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    elif case.saves:
        shutil.copytree(FIXTURES / case.fixture / "fsdp1", folder, ignore=shutil.ignore_patterns("__pycache__"))
        _migrate(folder / "train.py", Options(checkpoint_format="dcp"))
    else:
        shutil.copytree(FIXTURES / case.fixture / "fsdp2", folder, ignore=shutil.ignore_patterns("__pycache__"))
    texts = {path: path.read_text() for path in folder.rglob("*.py")}
    for old, new in case.sizes:
        assert any(old in text for text in texts.values()), old
        texts = {path: text.replace(old, new) for path, text in texts.items()}
    for path, text in texts.items():
        path.write_text(text)
    return folder


def _migrate(script: Path, options: Options) -> None:
    for change in migrate([read_source(path) for path in program_files([script])], options).changes:
        change.path.write_text(change.after)


def upgraded_copy(case: Case, folder: Path) -> Path:
    """The same with its upgrades."""
    target = laid_out(case, folder)
    report = upgrade([read_source(path) for path in program_files([target / case.script])], case.asked)
    assert report.errors == ()
    assert not [finding for finding in report.findings if finding.level.value == "manual"]
    assert any(case.slip[0] in change.after for change in report.changes)
    for change in report.changes:
        change.path.write_text(change.after.replace(*case.slip) if case.slip[0] else change.after)
    return target


@pytest.fixture(scope="module")
def checked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[int, ParityReport | Failure]:
    """The comparisons that the selected tests ask for, by the number of the case."""
    root = tmp_path_factory.mktemp("upgrades")
    mine = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    items = [item for item in mine if "checked" in getattr(item, "fixturenames", ())]
    asked = {item.callspec.params["number"] if hasattr(item, "callspec") else 0 for item in items}
    pairs = [_pair(CASES[number], root, f"after{number}") for number in sorted(asked)]
    return dict(zip(sorted(asked), check_pairs(pairs), strict=True))


def _pair(case: Case, root: Path, name: str) -> Pair:
    before = root / case.base
    if not before.exists():
        laid_out(case, before)
    after = upgraded_copy(case, root / name)
    request = CheckRequest(
        original=before / case.script,
        rewritten=after / case.script,
        original_root=before,
        rewritten_root=after,
        world_size=2,
        steps=case.steps,
        redirect=case.redirect,
        expect=expectation(case.expect),
    )
    return Pair(request, root / "runs" / case.base, root / "runs" / name)


@pytest.mark.dist
@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_upgraded_program_trains_as_stated(number: int, checked: Mapping[int, ParityReport | Failure]) -> None:
    case, report = CASES[number], checked[number]
    assert isinstance(report, ParityReport), report
    if case.caught_by:
        assert report.verdict is Verdict.FAIL
        assert case.caught_by in report.failed
        return
    assert report.verdict is Verdict.PASS, f"{report.reason} {report.failed}"
    assert report.is_upgrade
    (files,) = [row for row in report.rows if row.id == "F"] if case.saves else [None]
    assert files is None or (files.mark, files.value) == (Mark.PASS, f"{case.saves} -> {case.saves}"), files
    seen = [row for row in report.rows if row.id == "X1"]
    assert bool(seen) is bool(case.linears)
    for row in seen:
        assert row.mark is Mark.PASS
        assert row.value.startswith(f"0 -> {case.linears},")


@pytest.mark.dist
def test_float8_layers_are_gathered_in_half_the_bytes(checked: Mapping[int, ParityReport | Failure]) -> None:
    report = checked[0]
    assert isinstance(report, ParityReport)
    rows = {row.id: row for row in report.rows}
    before, after = map(int, re.findall(r"(\d+)(?: -> |$)", rows["S3"].detail)[-2:])
    (numel,) = map(int, re.findall(r"(\d+) elements", rows["X1"].detail))
    in_bf16 = 2 * numel * 2  # once in forward, once in backward
    assert before - after == in_bf16 // 2


ASKED = UNITS | {"float8": "tensorwise", "compile": "True"} | ASYNC


@pytest.mark.parametrize("option", UPGRADES)
def test_the_diff_of_a_plain_program_is_short(option: str) -> None:
    path = PROGRAMS / "script.py" if option in ASYNC else FIXTURES / "quickstart" / "fsdp2" / "train.py"
    (change,) = upgrade([read_source(each) for each in program_files([path])], {option: ASKED[option]}).changes
    shown = unified("train.py", (change.before or "").encode(), change.after.encode()).decode().splitlines()
    assert len([line for line in shown[3:] if line[0] in "+-"]) <= DIFF_LINES
