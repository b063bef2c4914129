"""The diff: `git apply` takes it, whatever the file's line ends, encoding or name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsdp_migrate.render.diff import unified


def apply(folder: Path, patch: bytes) -> None:
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, input=patch, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_no_change_is_no_diff() -> None:
    assert unified("a.py", b"x\n", b"x\n") == b""


def test_what_it_looks_like() -> None:
    assert unified("src/a.py", b"one\r\ntwo", b"one\r\n2") == (
        b"diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n"
        b" one\r\n-two\n\\ No newline at end of file\n+2\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\nb\nc\n", b"a\nB\nc\n"),
        (b"a\r\nb\r\n", b"a\r\nB\r\n"),
        (b"a\rb\r", b"a\rB\r"),
        (b"a\nb", b"a\nb\n"),
        (b"a\nb\n", b"a\nb"),
        (b"", b"a\n"),
        (b"a\n", b""),
        (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n"),
        (b"# coding: latin-1\n# \xe9\nx\n", b"# coding: latin-1\n# \xe9\ny\n"),
        ("é\u2028é\x0c\n".encode(), "é\u2028e\x0c\n".encode()),
        (None, b"new\n"),
        (None, b"no end"),
    ],
)
@pytest.mark.parametrize("name", ["train.py", "a folder/my train.py", "é.py", 'q"u.py', "src/tab\there.py"])
def test_git_applies_it(tmp_path: Path, before: bytes | None, after: bytes, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if before is not None:
        path.write_bytes(before)
    apply(tmp_path, unified(name, before, after))
    assert path.read_bytes() == after


PIECES = [b"a", b"b", b"\r", b"\n", b"\r\n", b"x = 1\n", b"\xff", b"\x0c", b"-- \n"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS.map(b"".join), TEXTS.map(b"".join))
def test_git_applies_any_change(tmp_path: Path, before: bytes, after: bytes) -> None:
    if before == after:
        return
    (tmp_path / "x.py").write_bytes(before)
    apply(tmp_path, unified("x.py", before, after))
    assert (tmp_path / "x.py").read_bytes() == after


def test_frequent_lines_do_not_look_changed() -> None:
    before = b"\n".join([b"x = 1\n"] * 200 + [b"save(state)\n", b"return\n"])
    patch = unified("a.py", before, before.replace(b"save(state)", b"dcp.save(state)"))
    assert [line for line in patch.split(b"\n") if line[:1] in (b"-", b"+")][2:] == [
        b"-save(state)",
        b"+dcp.save(state)",
    ]
