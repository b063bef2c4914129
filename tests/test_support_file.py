"""Where `fsdp2_support.py` is put, how it is imported, and what later runs do with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate import support
from fsdp_migrate.config import Config
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.imports import program_files
from fsdp_migrate.project.source import read_source
from fsdp_migrate.render.view import Command
from fsdp_migrate.session import examine, gather

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
WRAP = IMPORT + "def wrap(net, *more):\n    return FSDP(net, *more)\n"
ACCUMULATE = (
    IMPORT + "def accumulate(net, batch):\n    model = FSDP(net)\n"
    "    with model.no_sync(): model(batch).sum().backward()\n"
)

SUMMON = "\n\ndef run(net):\n    model = wrap(net)\n    with FSDP.summon_full_params(model):\n        net.run(model)\n"


def run(script: Path) -> dict[str, str]:
    """Migrate a program on disk; what was written, by name."""
    report = migrate([read_source(path) for path in program_files([script])], Options())
    assert not report.errors
    for change in report.changes:
        change.path.write_text(change.after)
    return {str(change.path.relative_to(script.parent.parent)): change.after for change in report.changes}


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_nothing_is_written_when_nothing_needs_it(tmp_path: Path) -> None:
    tree(tmp_path, {"app/train.py": WRAP.replace(", *more", "")})
    assert set(run(tmp_path / "app/train.py")) == {"app/train.py"}


def test_second_program_of_a_folder_adds_to_the_first_ones(tmp_path: Path) -> None:
    tree(tmp_path, {"app/a.py": WRAP, "app/b.py": WRAP + SUMMON})
    run(tmp_path / "app/a.py")
    written = run(tmp_path / "app/b.py")["app/fsdp2_support.py"]
    assert {"shard_model", "summon_full_params"} <= support.parse(written)


def test_functions_have_no_types_where_the_program_has_none(tmp_path: Path) -> None:
    """And a later run of an annotated program adds to it in the same way."""
    wide = {"a.py": "from inner import wrap\n" + WRAP, "inner.py": WRAP}
    script = tree(tmp_path / "wide", wide) / "a.py"
    text = next(text for name, text in run(script).items() if name.endswith("fsdp2_support.py"))
    assert "def shard_model(\n    module,\n" in text
    assert "from typing" not in text
    assert "annotations" not in text
    typed = WRAP.replace("def wrap(net, *more)", "def wrap(net: object, *more: object) -> object")
    more = typed + SUMMON.replace("(net)", "(net: object) -> None", 1)
    script = tree(tmp_path / "wide", {"more.py": more}) / "more.py"
    text = next(text for name, text in run(script).items() if name.endswith("fsdp2_support.py"))
    assert "def summon_full_params(module):" in text


def test_what_the_user_edited_is_kept(tmp_path: Path) -> None:
    tree(tmp_path, {"app/a.py": WRAP, "app/b.py": ACCUMULATE})
    run(tmp_path / "app/a.py")
    path = tmp_path / "app/fsdp2_support.py"
    path.write_text(path.read_text() + "\n\ndef mine() -> int:\n    return 1\n")
    run(tmp_path / "app/b.py")
    assert "def mine() -> int:" in path.read_text()


@pytest.mark.parametrize(
    ("files", "script", "line"),
    [
        pytest.param({"train.py": WRAP}, "train.py", "from fsdp2_support import shard_model", id="script"),
        pytest.param(
            {"train.py": "from pkg.par import wrap\n", "pkg/__init__.py": "", "pkg/par.py": WRAP},
            "train.py",
            "from pkg.fsdp2_support import shard_model",
            id="package imported by name",
        ),
        pytest.param(
            {
                "train.py": "import pkg.run\n",
                "pkg/__init__.py": "",
                "pkg/run.py": "from . import par\n",
                "pkg/par.py": WRAP,
            },
            "train.py",
            "from .fsdp2_support import shard_model",
            id="package with relative imports",
        ),
        pytest.param(
            {
                "train.py": "from pkg.run import run\n",
                "pkg/__init__.py": "from .run import run\n",
                "pkg/run.py": "from pkg.par import wrap\n",
                "pkg/par.py": WRAP,
            },
            "train.py",
            "from pkg.fsdp2_support import shard_model",
            id="package whose __init__ alone imports relatively",
        ),
        pytest.param(
            {"train.py": "from lib.par import wrap\n", "lib/par.py": WRAP},
            "train.py",
            "from lib.fsdp2_support import shard_model",
            id="folder without __init__",
        ),
    ],
)
def test_import_is_written_as_the_program_imports(
    tmp_path: Path, files: dict[str, str], script: str, line: str
) -> None:
    tree(tmp_path / "app", files)
    written = run(tmp_path / "app" / script)
    assert [text for text in written.values() if line in text.splitlines()]


def test_import_joins_those_of_the_program(tmp_path: Path) -> None:
    files = {"model.py": "class Net:\n    pass\n", "train.py": f"import os\n\nfrom model import Net\n{WRAP}"}
    tree(tmp_path / "app", files)
    text = run(tmp_path / "app/train.py")["app/train.py"]
    assert "from fsdp2_support import shard_model\nfrom model import Net\n" in text


def test_programs_of_one_folder_that_nothing_connects_get_one_each(tmp_path: Path) -> None:
    files = {
        "a/train.py": "from lib.par import wrap\n",
        "a/lib/__init__.py": "",
        "a/lib/par.py": WRAP,
        "b/train.py": ACCUMULATE,
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert set(written) == {"a/lib/fsdp2_support.py", "a/lib/par.py", "b/train.py"}
    assert support.parse(written["b/train.py"]) == {"unsynced"}


def test_scripts_side_by_side_share_one(tmp_path: Path) -> None:
    tree(tmp_path, {"app/a.py": WRAP, "app/b.py": ACCUMULATE})
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    (written,) = [change.after for change in view.report.changes if change.path.name == "fsdp2_support.py"]
    assert {"shard_model", "unsynced"} <= support.parse(written)


def test_package_that_a_script_imports_a_module_of_takes_the_scripts(tmp_path: Path) -> None:
    files = {
        "app/train.py": WRAP + "import config.small as config\n",
        "app/config/__init__.py": "from .base import strategy\n",
        "app/config/base.py": "from torch.distributed.fsdp.wrap import wrap\n\nstrategy = wrap\n",
        "app/config/small.py": "from .base import strategy\n",
    }
    tree(tmp_path, files)
    written = run(tmp_path / "app/train.py")
    assert "app/fsdp2_support.py" in written
    assert "from fsdp2_support import wrap" in written["app/config/base.py"]


def test_script_inside_a_package_that_is_started_from_there(tmp_path: Path) -> None:
    files = {"pkg/__init__.py": "", "pkg/train.py": "import utils\n" + WRAP, "pkg/utils.py": "x = 1\n"}
    tree(tmp_path, files)
    assert "from fsdp2_support import shard_model\n" in run(tmp_path / "pkg/train.py")["pkg/train.py"]


def test_package_that_scripts_of_several_folders_import_has_its_own(tmp_path: Path) -> None:
    files = {
        ".git/HEAD": "",
        "pkg/__init__.py": "",
        "pkg/par.py": WRAP,
        "train.py": "from pkg.par import wrap\n" + ACCUMULATE,
        "jobs/train.py": "from pkg import par\n" + ACCUMULATE,
        "jobs/other.py": "import train\n",
        "tools/alone.py": "import shared\n" + ACCUMULATE,
        "tools/shared.py": "import pkg.par\n",
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert {name for name in written if "fsdp2_support" in name} == {"pkg/fsdp2_support.py"}
    for name in ("pkg/par.py", "train.py", "jobs/train.py", "tools/alone.py"):
        assert "from pkg.fsdp2_support import" in written[name]


def test_package_imports_nothing_from_its_tests(tmp_path: Path) -> None:
    files = {
        "setup.py": "",
        "pkg/__init__.py": "",
        "pkg/par.py": WRAP,
        "tests/__init__.py": "",
        "tests/test_a.py": "from pkg.par import wrap\nfrom tests.shared import x\n" + ACCUMULATE,
        "tests/test_b.py": "from pkg.par import wrap\nfrom tests.shared import x\n" + ACCUMULATE,
        "tests/shared.py": "x = 1\n",
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert {name for name in written if "fsdp2_support" in name} == {"pkg/fsdp2_support.py"}
    assert "from pkg.fsdp2_support import unsynced" in written["tests/test_a.py"]


def test_tests_of_several_folders_find_one_module_of_the_name(tmp_path: Path) -> None:
    """pytest puts the folder of each test that lies in no package on the search path, and loads the name once."""
    use = "from pkg.par import wrap\n\n\ndef test(net, other):\n    model = {}\n    with model.no_sync():\n"
    use += "        model(1)\n"
    layouts = {"a": use.format("wrap(net)"), "b": use.format("wrap(net) if net else other.model")}
    tests = {f"tests/{folder}/test_{n}.py": text for folder, text in layouts.items() for n in (1, 2)}
    tree(
        tmp_path,
        {"pyproject.toml": "", "src/pkg/__init__.py": "", "src/pkg/par.py": WRAP.replace("*more", "**more"), **tests},
    )
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert written["tests/a/fsdp2_support.py"] == written["tests/b/fsdp2_support.py"]
    assert "import unsynced\n" in written["tests/a/test_1.py"]
    assert "import no_sync\n" in written["tests/b/test_1.py"]


def test_file_of_a_package_imports_as_it_did(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from .data import load\n",
        "pkg/data.py": "def load(): ...\n",
        "pkg/train.py": "from pkg.data import load\n" + WRAP,
    }
    tree(tmp_path, files)
    assert "\nfrom pkg.fsdp2_support import shard_model\n" in run(tmp_path / "pkg/train.py")["pkg/train.py"]


def test_folder_that_no_name_can_mean_is_no_package(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {"my-app/__init__.py": "", "my-app/train.py": "from utils import x\n" + WRAP, "my-app/utils.py": "x = 1\n"},
    )
    assert "from fsdp2_support import shard_model\n" in run(tmp_path / "my-app/train.py")["my-app/train.py"]


def test_scripts_of_a_folder_that_refuses_to_be_imported_import_from_beside_them(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": "",
        "pkg/__init__.py": "",
        "pkg/data.py": "x = 1\n",
        "recipes/__init__.py": 'raise ModuleNotFoundError("recipes are scripts")\n',
        "recipes/full.py": "from pkg.data import x\n" + WRAP,
        "recipes/lora.py": "from pkg.data import x\n" + WRAP,
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert "recipes/fsdp2_support.py" in written
    for name in ("recipes/full.py", "recipes/lora.py"):
        assert written[name].startswith("from fsdp2_support import shard_model\n")


def test_scripts_beside_an_installed_package_import_from_it(tmp_path: Path) -> None:
    """`python scripts/train.py` finds no `scripts`, whatever another script imports with the parent on its path."""
    files = {
        "pyproject.toml": "",
        "pkg/__init__.py": "",
        "pkg/data.py": "x = 1\n",
        "scripts/train.py": "from pkg.data import x\n" + WRAP,
        "scripts/other.py": "from pkg.data import x\n" + WRAP,
        "launch/big.py": "from scripts.train import wrap\nfrom scripts import other\nwrap(other, *other.x)\n",
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert "pkg/fsdp2_support.py" in written
    for name in ("scripts/train.py", "scripts/other.py"):
        assert "from pkg.fsdp2_support import shard_model\n" in written[name]


def test_script_of_the_tests_of_a_package_in_src_imports_from_beside_it(tmp_path: Path) -> None:
    """`python tests/training/adapters.py` finds what lies beside it, and `src/` because the package is installed."""
    files = {
        "setup.py": "",
        "src/pkg/__init__.py": "x = ()\n",
        "tests/__init__.py": "",
        "tests/training/adapters.py": "from pkg import x\n"
        + WRAP
        + "\n\nif __name__ == '__main__':\n    wrap(x, *x)\n",
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert "from fsdp2_support import shard_model\n" in written["tests/training/adapters.py"]
    assert "tests/training/fsdp2_support.py" in written


def test_a_module_of_a_package_that_nothing_imports_is_found_as_the_others_of_it(tmp_path: Path) -> None:
    """Beside the trainer an old one: no import was seen to work, and nothing of the program was written."""
    files = {
        "main.py": f"from train.trainer import wrap as other, x\n{WRAP}\n\nwrap(x, *x)\nother(x, *x)\n",
        "train/__init__.py": "",
        "train/trainer.py": "x = 1\n" + WRAP,
        "train/old.py": WRAP,
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert "fsdp2_support import shard_model\n" in written["train/old.py"]


def test_scripts_that_import_no_package_import_from_beside_them(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": "",
        "pkg/__init__.py": "",
        "pkg/data.py": "x = 1\n",
        "scripts/shared.py": "from pkg.data import x\n" + WRAP,
        "scripts/train.py": "from shared import wrap, x\n" + ACCUMULATE + "\n\nwrap(x, *x)\n",
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix(): change.after for change in view.report.changes}
    assert "from fsdp2_support import shard_model\n" in written["scripts/shared.py"]


def test_folder_without_an_init_is_no_worse_a_place_than_the_one_around_it(tmp_path: Path) -> None:
    """Of a namespace package nothing says that it is installed, as it is imported all the same."""
    files = {
        "pyproject.toml": "",
        "pkg/utils/data.py": "x = 1\n",
        "pkg/utils/wrap.py": "from pkg.utils.data import x\n" + WRAP,
        "pkg/train.py": "from pkg.utils.wrap import wrap\nfrom pkg.utils.data import x\n\n\nwrap(x, *x)\n",
    }
    tree(tmp_path, files)
    view = examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path)
    written = {change.path.relative_to(tmp_path).as_posix() for change in view.report.changes}
    assert "pkg/utils/fsdp2_support.py" in written
