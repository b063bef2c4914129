"""Each run imports the program from its own copy of the tree, however Python was told where the tree is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from fsdp_migrate.probe.own_copy import import_from


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for place in ("tree/src/pkg", "tree/venv/site-packages", "copy/src/pkg", "copy/venv/site-packages", "other"):
        (tmp_path / place).mkdir(parents=True)
    return tmp_path / "tree"


@pytest.mark.parametrize(
    ("entry", "moved"),
    [
        ("tree/src", "copy/src"),  # PYTHONPATH=src, or a .pth file of an editable install
        ("tree", "copy"),
        ("tree/not-copied", "tree/not-copied"),
        ("tree/venv/site-packages", "tree/venv/site-packages"),
        ("copy/src", "copy/src"),
        ("other", "other"),
    ],
)
def test_entries_of_the_path(tree: Path, monkeypatch: pytest.MonkeyPatch, entry: str, moved: str) -> None:
    home = tree.parent
    monkeypatch.setattr(sys, "path", ["", str(home / entry)])
    import_from(home / "copy", (home / "elsewhere", tree))
    assert sys.path == ["", str(home / moved)]


def test_finders_of_editable_installs(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What setuptools installs for `pip install -e .`: a module with a finder and a table of packages."""
    module = ModuleType("__editable___pkg_0_1_finder")
    exec("MAPPING = {}\nclass _EditableFinder: pass", module.__dict__)
    module.MAPPING.update(pkg=str(tree / "src/pkg"), more=str(tree.parent / "other"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, module._EditableFinder])
    import_from(tree.parent / "copy", (tree,))
    places = {"pkg": str(tree.parent / "copy/src/pkg"), "more": str(tree.parent / "other")}
    assert places == module.MAPPING


def test_without_a_copy_nothing_is_moved(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tree)])
    import_from(None, (tree,))
    assert sys.path == [str(tree)]
