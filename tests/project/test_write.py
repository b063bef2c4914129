"""Writing: all files or none, and nothing that was there is lost."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsdp_migrate.project import write as writing
from fsdp_migrate.project.git import at_revision, recoverable
from fsdp_migrate.project.source import UnwritableError
from fsdp_migrate.project.write import Write, keep, write_all


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    git(root, "init", "-q")
    (root / ".gitignore").write_text("ignored/\n")
    (root / "train.py").write_bytes(b"old\n")
    (root / "a b.py").write_bytes(b"old\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".git")


def test_nothing_to_write(tmp_path: Path) -> None:
    assert write_all([]) == ()


def test_a_file_that_says_it_already_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"same")
    before = path.stat().st_ino
    assert write_all([Write(path, b"old", b"same")]) == ()
    assert path.stat().st_ino == before
    assert names(tmp_path) == ["train.py"]


def test_without_git_the_original_is_kept(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "train.py"
    path.write_bytes(b"old\r\n")
    (written,) = write_all([Write(path, b"old\r\n", b"new\r\n")])
    assert path.read_bytes() == b"new\r\n"
    assert written.kept == path.with_name("train.py.orig")
    assert written.kept.read_bytes() == b"old\r\n"


def test_what_git_has_needs_no_copy(repository: Path) -> None:
    writes = [Write(repository / name, b"old\n", b"new\n") for name in ("train.py", "a b.py")]
    assert [written.kept for written in write_all(writes)] == [None, None]
    assert names(repository) == [".gitignore", "a b.py", "train.py"]


@pytest.mark.parametrize("name", ["untracked.py", "ignored/x.py", "staged.py", "train.py"])
def test_what_git_has_not_is_kept(repository: Path, name: str) -> None:
    path = repository / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"mine\n")
    if name == "staged.py":
        git(repository, "add", name)
    (written,) = write_all([Write(path, b"mine\n", b"new\n")])
    assert written.kept is not None
    assert written.kept.read_bytes() == b"mine\n"


def test_one_git_call_for_many_files(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: calls.append(a) or run(*a, **k))
    paths = [repository / "train.py", repository / "a b.py", repository / "nowhere.py"]
    assert recoverable(paths) >= {repository / "train.py", repository / "a b.py"}
    assert len(calls) == 1


def test_git_that_is_not_installed_means_a_copy(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    (written,) = write_all([Write(repository / "train.py", b"old\n", b"new\n")])
    assert written.kept is not None


def test_a_hooks_environment_is_not_asked(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert recoverable([repository / "train.py"]) == {repository / "train.py"}


def test_the_first_original_stays_when_migrated_text_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    first = keep(path, b"model = FSDP(model)")
    second = keep(path, b"fully_shard(model)")
    third = keep(path, b"fully_shard(model)  # edited")
    assert [kept.name for kept in (first, second, third)] == ["train.py.orig", "train.py.orig.1", "train.py.orig.2"]
    assert first.read_bytes() == b"model = FSDP(model)"


def test_a_newer_original_becomes_the_original(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    keep(path, b"FSDP(model)")
    assert keep(path, b"FSDP(model)  # newer").name == "train.py.orig"
    assert (tmp_path / "train.py.orig").read_bytes() == b"FSDP(model)  # newer"
    assert (tmp_path / "train.py.orig.1").read_bytes() == b"FSDP(model)"


def test_the_same_text_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    assert keep(path, b"x") == keep(path, b"x")
    assert names(tmp_path) == ["train.py.orig"]


@settings(max_examples=30)
@given(st.lists(st.sampled_from([b"FSDP(a)", b"FSDP(b)", b"fully_shard(a)", b"fully_shard(b)"]), max_size=6))
def test_no_text_is_ever_lost(tmp_path_factory: pytest.TempPathFactory, texts: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("keep")
    for text in texts:
        keep(folder / "train.py", text)
    assert {path.read_bytes() for path in folder.iterdir()} == set(texts)
    plain = [text for text in texts if b"fully_shard" not in text]
    if plain and texts.count(plain[-1]) == 1:
        assert (folder / "train.py.orig").read_bytes() == plain[-1]


def test_mode_bits_stay(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"old")
    path.chmod(0o751)
    write_all([Write(path, b"old", b"new")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert stat.S_IMODE(path.with_name("train.py.orig").stat().st_mode) == 0o751


def test_a_new_file_gets_the_users_mode(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "fsdp2_support.py"
    write_all([Write(path, None, b"new")])
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_symlink_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "real.py", tmp_path / "train.py"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_all([Write(link, b"old", b"new")])
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"edited")
    with pytest.raises(UnwritableError, match="changed on disk"):
        write_all([Write(path, b"old", b"new")])
    assert path.read_bytes() == b"edited"


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_failure_anywhere_leaves_the_program_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    paths = [tmp_path / name for name in ("a.py", "b.py", "c.py")]
    for path in paths[:2]:
        path.write_bytes(b"old")
    writes = [Write(path, b"old" if path.exists() else None, b"new") for path in paths]
    real = getattr(os, function)
    count = 0

    def failing(*arguments: object) -> object:
        nonlocal count
        count += 1
        if count == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(writing.os, function, failing)
    with pytest.raises(UnwritableError, match="No space left on device"):
        write_all(writes)
    assert [path.read_bytes() for path in paths[:2]] == [b"old", b"old"]
    assert not paths[2].exists()
    assert not list(tmp_path.glob(".*.tmp"))


def test_ctrl_c_between_two_files_puts_the_first_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in paths:
        path.write_bytes(b"old")
    real = os.replace

    def interrupted(source: str, target: Path) -> None:
        if Path(target).name == "b.py":
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(writing.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_all([Write(path, b"old", b"new") for path in paths])
    assert [path.read_bytes() for path in paths] == [b"old", b"old"]


def test_a_revision_is_read_whole(repository: Path) -> None:
    (repository / "train.py").write_bytes(b"changed")
    assert at_revision("HEAD", repository) == {repository / "train.py": b"old\n", repository / "a b.py": b"old\n"}
