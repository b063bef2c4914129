"""The program behind a script: its own imports and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.project.imports import (
    beside,
    connected,
    import_graph,
    imports_of,
    program_files,
    resolve_module,
    roots_of,
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder: the marker keeps the search inside it."""
    (tmp_path / "pyproject.toml").touch()
    return tmp_path.resolve()


def write(root: Path, **files: str) -> None:
    """`pkg__mod="..."` is pkg/mod.py."""
    for name, text in files.items():
        init = name.endswith("__init")
        parts = name.removesuffix("__init").split("__") + (["__init__"] if init else [])
        path = root.joinpath(*parts).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def program(root: Path, entry: str = "train.py") -> list[str]:
    return [str(path.relative_to(root)) for path in program_files([root / entry])]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import os, sys\nimport torch\nfrom torch import nn\n",
        "text = 'import model'\n",
        '"""\nimport model\n"""\n',
        "# import model\n",
        "import nowhere\nfrom . import nothing\nfrom .... import nothing_of_this_name\n",
        "def broken(:\n    import model\n",
        "import model.attribute.deeper\n".replace("model", "other"),
        "importlib.import_module(name)\n",
    ],
)
def test_no_imports_of_the_project(project: Path, text: str) -> None:
    write(project, train=text, model="")
    assert program(project) == ["train.py"]


@pytest.mark.parametrize(
    "text",
    [
        "import model",
        "import model as m",
        "import os, model",
        "from model import Block",
        "from model import *",
        "from . import model",
        "from .model import Block as B",
        "if True:\n    import model",
        "try:\n    import model\nexcept ImportError:\n    model = None",
        "def main():\n    import model",
        "class A:\n    def f(self):\n        from model import Block",
        "async def f():\n    with x:\n        import model",
        "import importlib\nm = importlib.import_module('model')",
        "m = __import__('model')",
        "x = 1; import model",
        "from model import (\n    Block,\n    Head,\n)",
        "from \\\n    model import Block",
    ],
)
def test_every_form_of_import(project: Path, text: str) -> None:
    write(project, train=text, model="")
    assert program(project) == ["train.py", "model.py"]


def test_packages_on_the_way_are_part_of_the_program(project: Path) -> None:
    write(project, train="import a.b.c", a__init="import extra", a__b__init="", a__b__c="", extra="")
    assert program(project) == ["train.py", "a/__init__.py", "a/b/__init__.py", "a/b/c.py", "extra.py"]


def test_namespace_packages(project: Path) -> None:
    write(project, train="from a.b import c", a__b__c="")
    assert program(project) == ["train.py", "a/b/c.py"]


def test_names_that_are_modules(project: Path) -> None:
    write(project, train="from pkg import one, two, three", pkg__init="from .two import three")
    write(project, pkg__one="", pkg__two="")
    assert program(project) == ["train.py", "pkg/__init__.py", "pkg/one.py", "pkg/two.py"]


def test_star_re_exports_are_followed(project: Path) -> None:
    write(project, train="import policies", policies__init="from .wrap import *", policies__wrap="")
    assert program(project) == ["train.py", "policies/__init__.py", "policies/wrap.py"]


def test_relative_imports_climb(project: Path) -> None:
    write(project, **{"pkg__init": "", "pkg__sub__init": "", "pkg__sub__run": "from ..core import x", "pkg__core": ""})
    assert program(project, "pkg/sub/run.py") == ["pkg/sub/run.py", "pkg/__init__.py", "pkg/core.py"]


def test_cycles_end(project: Path) -> None:
    write(project, train="import a", a="import b", b="import a, train")
    assert program(project) == ["train.py", "a.py", "b.py"]


def test_a_file_that_does_not_parse_is_a_leaf(project: Path) -> None:
    write(project, train="import broken", broken="def f(:\n    import other", other="")
    assert program(project) == ["train.py", "broken.py"]


def test_a_missing_entry_stays(project: Path) -> None:
    assert program(project) == ["train.py"]


def test_from_the_project_root(project: Path) -> None:
    write(project, scripts__train="from lib.wrap import shard", lib__wrap="import scripts.helper", scripts__helper="")
    assert program(project, "scripts/train.py") == ["scripts/train.py", "lib/wrap.py", "scripts/helper.py"]


def test_a_readme_marks_the_root_of_a_tree_that_was_downloaded(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    write(tmp_path, pkg__train="from pkg.utils import train", pkg__utils="")
    assert program(tmp_path.resolve(), "pkg/train.py") == ["pkg/train.py", "pkg/utils.py"]


def test_the_current_folder_is_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m lib.train` finds a namespace package of a tree without any mark."""
    write(tmp_path, lib__train="from lib.net import Net", lib__net="")
    assert program(tmp_path.resolve(), "lib/train.py") == ["lib/train.py"]
    monkeypatch.chdir(tmp_path)
    assert program(tmp_path.resolve(), "lib/train.py") == ["lib/train.py", "lib/net.py"]


def test_src_layout(project: Path) -> None:
    write(project, train="import core.model", src__core__model="from core import data", src__core__data="")
    assert program(project) == ["train.py", "src/core/model.py", "src/core/data.py"]


def test_the_scripts_folder_comes_first(project: Path) -> None:
    write(project, a__train="import utils", a__utils="", utils="")
    assert program(project, "a/train.py") == ["a/train.py", "a/utils.py"]


def test_imported_files_search_from_the_script(project: Path) -> None:
    write(project, train="import pkg.run", pkg__run="import utils", utils="", pkg__utils="")
    assert program(project) == ["train.py", "pkg/run.py", "utils.py"]


def test_the_standard_library_is_not_taken_from_above_the_script(project: Path) -> None:
    write(project, scripts__train="import logging, types", logging="", types="")
    assert program(project, "scripts/train.py") == ["scripts/train.py"]


def test_a_file_beside_the_script_hides_the_standard_library(project: Path) -> None:
    write(project, train="import profile", profile="")
    assert program(project) == ["train.py", "profile.py"]


def test_a_file_of_a_package_hides_no_library(project: Path) -> None:
    write(project, pkg__run="import logging, torch, core", pkg__init="", pkg__logging="", pkg__torch="", pkg__core="")
    assert program(project, "pkg/run.py") == ["pkg/run.py", "pkg/core.py"]


def test_installed_packages_are_left_alone(project: Path) -> None:
    site = project / "lib" / "site-packages"
    write(site, lib__run="import torch\nimport lib.core", lib__init="", lib__core="", torch__init="")
    files = program_files([site / "lib" / "run.py"])
    assert [path.name for path in files] == ["run.py", "__init__.py", "core.py"]


def test_a_repository_is_the_root(project: Path) -> None:
    (project / ".git").mkdir()
    write(project, examples__fsdp__train="import mylib", mylib__init="")
    (project / "examples" / "fsdp" / "requirements.txt").touch()
    assert program(project, "examples/fsdp/train.py") == ["examples/fsdp/train.py", "mylib/__init__.py"]


def test_symlinks_are_one_file(project: Path) -> None:
    write(project, real="import model", model="")
    (project / "train.py").symlink_to(project / "real.py")
    assert program(project) == ["real.py", "model.py"]


def test_latin_1_files_are_followed(project: Path) -> None:
    write(project, model="")
    (project / "train.py").write_bytes(b"# coding: latin-1\nx = '\xe9'\nimport model\n")
    assert program(project) == ["train.py", "model.py"]


def test_a_file_of_a_package_is_not_the_library_of_its_name(tmp_path: Path) -> None:
    """`from engine.optimizer import …` in utils/engine/optimizer.py, which is named after what it is for."""
    utils = tmp_path / "utils"
    own = utils / "engine" / "optimizer.py"
    own.parent.mkdir(parents=True)
    for each in (utils / "__init__.py", own.parent / "__init__.py", own, tmp_path / "engine.py"):
        each.write_text("")
    assert resolve_module(own, "engine.optimizer", 0, [own.parent, utils, tmp_path]) is None


def test_resolve_module_finds_what_python_would(project: Path) -> None:
    write(project, pkg__init="", pkg__a="", train="")
    roots = roots_of(project / "train.py")
    inside = project / "pkg" / "a.py"
    assert resolve_module(project / "train.py", "pkg.a", 0, roots) == inside
    assert resolve_module(inside, None, 1, roots) == project / "pkg" / "__init__.py"
    assert resolve_module(inside, "a", 1, roots) == inside
    assert resolve_module(project / "train.py", "pkg.missing", 0, roots) is None
    assert resolve_module(project / "train.py", "torch", 0, roots) is None
    assert resolve_module(project / "train.py", None, 0, roots) is None


def test_imports_keep_the_order_of_the_text(project: Path) -> None:
    write(project, train="import z\ndef f():\n    import y\nimport x\n")
    assert [found.module for found in imports_of(project / "train.py")] == ["z", "y", "x"]


def test_connected_is_what_has_to_do_with_the_hits(project: Path) -> None:
    write(project, train="import wrap, data", wrap="import policy", policy="", data="", other="import data", alone="")
    graph = import_graph(sorted(project.glob("*.py")))
    names = {path.name for path in connected(graph, [project / "wrap.py"])}
    assert names == {"train.py", "wrap.py", "policy.py", "data.py"}


def test_beside_are_programs_that_share_files_and_wrap_models(project: Path) -> None:
    write(project, train="import wrap, data", wrap="", data="", ddp="import data, model", model="", plain="import data")
    graph = import_graph(sorted(project.glob("*.py")))
    related = connected(graph, [project / "wrap.py"])

    def wrapping(name: str) -> set[str]:
        return {path.name for path in beside(graph, related, lambda path: path.name == name)}

    assert wrapping("model.py") == {"ddp.py", "model.py"}
    assert wrapping("ddp.py") == {"ddp.py", "model.py"}
    assert wrapping("data.py") == {"ddp.py", "model.py", "plain.py"}
    assert wrapping("train.py") == set()


def test_many_files_in_several_processes_give_the_same_graph(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, train="import wrap, data", wrap="import policy", policy="", data="def f(:\n")
    files = sorted(project.glob("*.py"))
    alone = import_graph(files)
    monkeypatch.setattr("fsdp_migrate.project.imports.WORTH_PROCESSES", 2)
    assert import_graph(files, jobs=2) == alone
