"""Whatever a folder holds: one file that cannot be read is reported, and the others are rewritten all the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsdp_migrate.config import Config
from fsdp_migrate.render.view import Command, View
from fsdp_migrate.session import examine, gather

FSDP1 = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef f(model):\n    return FSDP(model)\n"
)
DEEP = {
    "parentheses": "(" * 5_000 + "1" + ")" * 5_000,
    "lists": "[" * 5_000 + "]" * 5_000,
    "lists that Python takes": "[" * 150 + "a" + "]" * 150,
    "a sum": "a + " * 20_000 + "a",
    "a sum on many lines": "(" + "a +\n" * 5_000 + "a)",
    "signs": "-" * 20_000 + "a",
    "and": "a and " * 20_000 + "a",
    "attributes": "a" + ".b" * 20_000,
    "calls": "a" + "()" * 900,
    "lambdas": "lambda: " * 10_000 + "1",
    "strings": "(" + "'a' " * 5_000 + ")",
    "branches": "1\nif a: pass\n" + "elif a: pass\n" * 5_000,
}
TAKEN = {"lists that Python takes"}


def look(folder: Path) -> View:
    """What a run over a folder answers, having rewritten the good file in it."""
    (folder / "good.py").write_text(FSDP1)
    view = examine(gather([folder], Config(jobs=1)), Config(jobs=1), Command.REWRITE, folder)
    changed = {change.path.name for change in view.report.changes}
    assert "good.py" in changed
    assert all(error.message and error.hint for error in view.report.errors)
    return view


def failed(view: View) -> set[str]:
    return {error.path.name for error in view.report.errors}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_reported(tmp_path: Path, name: str) -> None:
    """A crash of LibCST's parser would end this process."""
    (tmp_path / "deep.py").write_text(f"{FSDP1}x = {DEEP[name]}\n")
    assert failed(look(tmp_path)) == (set() if name in TAKEN else {"deep.py"})


def test_a_chain_of_values_without_end(tmp_path: Path) -> None:
    steps = "".join(f"def f{i}(model):\n    return f{i + 1}(model)\n\n\n" for i in range(150))
    (tmp_path / "chain.py").write_text(
        f"{FSDP1}\n\n{steps}def f150(model):\n    return FSDP(model)\n\n\nf0(a).no_sync()\n"
    )
    assert not failed(look(tmp_path))


def test_circular_imports(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("from two import *\nfrom two import b\n\na = b\n" + FSDP1)
    (tmp_path / "two.py").write_text("from one import *\nfrom one import a\n\nb = a\n" + FSDP1)
    view = look(tmp_path)
    assert not failed(view)
    assert len(view.report.changes) == 3


def test_links_that_lead_nowhere_or_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to(tmp_path / "b.py")
    (tmp_path / "b.py").symlink_to(tmp_path / "a.py")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nobody.py")
    (tmp_path / "up").symlink_to(tmp_path)
    look(tmp_path)
    view = examine(gather([tmp_path / "a.py"], Config()), Config(), Command.REWRITE, tmp_path)
    assert failed(view) == {"a.py"}


def test_a_generated_file_of_a_megabyte(tmp_path: Path) -> None:
    rows = "".join(f"    {i}: '{'x' * 500}',\n" for i in range(2_000))
    (tmp_path / "table.py").write_text(f"{FSDP1}TABLE = {{\n{rows}}}\n")
    assert not failed(look(tmp_path))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200), st.booleans())
@example(b"\0", True)
@example(b"\xff\xfe", True)
@example(b"# -*- coding: no-such-codec -*-\n", False)
@example("# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"), False)
@example("x = 'é' + 'ü'\n".encode("latin-1") + "y = 'é'\n".encode(), False)
def test_any_bytes_at_all(data: bytes, behind: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = FSDP1.encode()
        (folder / "odd.py").write_bytes(text + data if behind else data + text)
        assert failed(look(folder)) <= {"odd.py"}
