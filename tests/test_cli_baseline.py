"""What a parity run compares with, and how the two trees come about. Nothing is run here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fsdp_migrate.baseline import BaselineError, Sides, choose, tree_of
from fsdp_migrate.config import Config
from fsdp_migrate.verify import CheckRequest

FSDP1 = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef shard(m):\n    return FSDP(m)\n"
FSDP2 = "from torch.distributed.fsdp import fully_shard\n\n\ndef shard(m):\n    return fully_shard(m)\n"
TRAIN = "from lib.wrap import shard\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = (tmp_path / "project").resolve()
    (root / "lib").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "train.py").write_text(TRAIN)
    (root / "data.txt").write_text("1 2 3")
    monkeypatch.chdir(root)
    return root


def chosen(project: Path, baseline: str = "", script: str = "train.py") -> Sides:
    return choose(project / script, Config(baseline=baseline), project.parent / "scratch")


def texts(sides: Sides, name: str = "lib/wrap.py") -> tuple[str, str]:
    return (sides.original_root / name).read_text(), (sides.rewritten_root / name).read_text()


def commit(project: Path) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True)


@pytest.mark.parametrize("text", ["", FSDP2])
def test_nothing_to_compare_with(project: Path, text: str) -> None:
    (project / "lib" / "wrap.py").write_text(text)
    with pytest.raises(BaselineError) as caught:
        chosen(project)
    assert "--baseline" in caught.value.hint


@pytest.mark.parametrize(
    ("baseline", "script"),
    [("", "missing.py"), ("missing.py", "train.py"), ("git:main", "train.py"), ("lib", "train.py")],
)
def test_what_is_not_there(project: Path, baseline: str, script: str) -> None:
    (project / "lib" / "wrap.py").write_text(FSDP1)
    with pytest.raises(BaselineError):
        chosen(project, baseline, script)


def test_a_program_that_is_fsdp1_against_its_rewritten_copy(project: Path) -> None:
    (project / "lib" / "wrap.py").write_text(FSDP1)
    sides = chosen(project)
    original, rewritten = texts(sides)
    assert original == FSDP1
    assert "fully_shard" in rewritten
    assert sides.original_root == project
    assert (project / "lib" / "wrap.py").read_text() == FSDP1
    assert (sides.rewritten_root / "data.txt").exists()


def test_kept_originals_come_first(project: Path) -> None:
    (project / "lib" / "wrap.py").write_text(FSDP2)
    (project / "lib" / "wrap.py.orig").write_text(FSDP1)
    sides = chosen(project)
    assert texts(sides) == (FSDP1, FSDP2)
    assert "lib/wrap.py" in sides.says


def test_an_original_that_was_restored_is_no_baseline(project: Path) -> None:
    for name in ("wrap.py", "wrap.py.orig"):
        (project / "lib" / name).write_text(FSDP1)
    sides = chosen(project)
    assert texts(sides)[0] == FSDP1
    assert "what rewrite makes of it" in sides.says


def test_then_gits_head(project: Path) -> None:
    (project / "lib" / "wrap.py").write_text(FSDP1)
    commit(project)
    (project / "lib" / "wrap.py").write_text(FSDP2)
    sides = chosen(project)
    assert texts(sides) == (FSDP1, FSDP2)
    assert "HEAD" in sides.says


def test_a_revision(project: Path) -> None:
    (project / "lib" / "wrap.py").write_text(FSDP1)
    commit(project)
    (project / "lib" / "wrap.py").write_text(FSDP2)
    commit(project)
    assert texts(chosen(project, "git:HEAD~1")) == (FSDP1, FSDP2)


def test_a_script_beside_ours(project: Path) -> None:
    (project / "lib" / "wrap.py").write_text(FSDP2)
    (project / "old.py").write_text(FSDP1)
    sides = chosen(project, "old.py")
    assert (sides.original, sides.rewritten) == (Path("old.py"), Path("train.py"))
    assert sides.original_root == sides.rewritten_root == project


def test_a_script_in_another_tree(project: Path, tmp_path: Path) -> None:
    (project / "lib" / "wrap.py").write_text(FSDP2)
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text(FSDP1)
    for baseline in (other, other / "train.py"):
        sides = choose(project / "train.py", Config(baseline=str(baseline)), tmp_path / "scratch")
        assert sides.original_root == other.resolve()
        assert sides.original == Path("train.py")


def test_a_kept_file_that_is_named(project: Path) -> None:
    (project / "train.py").write_text(FSDP2)
    (project / "kept.orig").write_text(FSDP1)
    assert texts(chosen(project, "kept.orig"), "train.py") == (FSDP1, FSDP2)


def test_the_tree_holds_the_program_and_the_current_folder(project: Path) -> None:
    (project / "jobs").mkdir()
    (project / "jobs" / "run.py").write_text("import os\n")
    inside = tree_of(project / "jobs" / "run.py", project / "jobs")
    assert (inside.root, inside.script, inside.cwd) == (project / "jobs", Path("run.py"), Path())
    above = tree_of(project / "jobs" / "run.py", project)
    assert (above.root, above.script, above.cwd) == (project, Path("jobs/run.py"), Path())
    outside = tree_of(project / "jobs" / "run.py", project.parent)
    assert (outside.root, outside.cwd) == (project / "jobs", Path())
    (project / "jobs" / "run.py").write_text("import lib.wrap\n")
    (project / "lib" / "wrap.py").touch()
    wide = tree_of(project / "jobs" / "run.py", project / "jobs")
    assert (wide.root, wide.script, wide.cwd) == (project, Path("jobs/run.py"), Path("jobs"))


def test_a_script_inside_of_a_package_brings_the_folder_that_holds_the_package(project: Path) -> None:
    """An editable install names that folder: a run must find the package in its own copy."""
    package = project / "src" / "pkg"
    (package / "utils").mkdir(parents=True)
    for folder in (package, package / "utils"):
        (folder / "__init__.py").touch()
    (package / "finetune.py").write_text("from pkg.utils import wrap\n")
    tree = tree_of(package / "finetune.py", package)
    assert (tree.root, tree.script, tree.cwd) == (project / "src", Path("pkg/finetune.py"), Path("pkg"))


def test_the_verifier_finds_both_scripts(project: Path) -> None:
    (project / "lib" / "wrap.py").write_text(FSDP1)
    sides = chosen(project)
    request = CheckRequest(
        sides.original, sides.rewritten, 2, original_root=sides.original_root, rewritten_root=sides.rewritten_root
    )
    assert request.target("original") == request.target("rewritten") == "train.py"
