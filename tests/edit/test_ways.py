"""What a rewritten file imports is found however the file is started: each program is run, on a stub of torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_migrate.config import Config
from fsdp_migrate.edit.search_path import SearchPath
from fsdp_migrate.edit.support_file import places
from fsdp_migrate.render.view import Command
from fsdp_migrate.session import examine, gather

WRAP = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(net, **kwargs):
    return FSDP(net, **kwargs)
"""
ANYTHING = (
    "def __getattr__(name):\n    if name.startswith('__'):\n        raise AttributeError(name)\n    return object\n"
)
SCRIPT = WRAP.replace("wrap", "main") + '\n\nif __name__ == "__main__":\n    print(main)\n'
HERE = "import sys, os\nsys.path.append(os.path.abspath('./'))\n"
MAIN = '\n\nif __name__ == "__main__":\n    print(wrap)\n'

PROGRAMS = {
    "a script and the modules beside it": (
        {
            "app/__init__.py": "",
            "app/train.py": "import par\nfrom models import net\nfrom par import wrap\n"
            + WRAP.replace("wrap", "main")
            + MAIN,
            "app/par.py": WRAP,
            "app/models/__init__.py": "from .net import net\n",
            "app/models/net.py": "net = 1\n",
        },
        ["app/train.py"],
        {
            "app/train.py": "from fsdp2_support import shard_model",
            "app/par.py": "from fsdp2_support import shard_model",
        },
    ),
    "a script in a package that is found too": (
        {
            "setup.py": "",
            "pkg/__init__.py": "from .src.model import wrap\n",
            "pkg/src/__init__.py": "",
            "pkg/src/model.py": WRAP,
            "pkg/train/__init__.py": "",
            "pkg/train/utils.py": WRAP,
            "pkg/train/train.py": "from utils import wrap\nfrom pkg import wrap as other\n" + MAIN,
        },
        ["pkg/train/train.py"],
        {"pkg/src/model.py": "from .fsdp2_support import shard_model"},
    ),
    "a test beside the package that it imports from elsewhere": (
        {
            "src/app/core/par.py": "net = 1\n",
            "tests/core/units/test_par.py": "from app.core.par import net\n" + WRAP + MAIN,
        },
        [],
        {"tests/core/units/test_par.py": "from fsdp2_support import shard_model"},
    ),
    "modules of a folder that the script adds to the path": (
        {
            "app/main.py": "import os\nimport sys\nsys.path.append(os.path.abspath(__file__).rsplit('/', 2)[0])\n"
            "import util.misc as misc\nfrom app.engine import wrap\n" + MAIN,
            "app/engine.py": WRAP,
            "app/util/misc.py": WRAP,
        },
        ["app/main.py"],
        {},
    ),
    "a script that imports from a folder that it adds to the path, in a function alone": (
        {
            "trainer/__init__.py": "",
            "trainer/base.py": WRAP,
            "scripts/eval.py": "import os\nimport sys\n\n"
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
            "if True:\n    sys.path.insert(0, os.path.abspath(__file__).rsplit('/', 2)[0])\n\n\n"
            "def wrap(net, **kwargs):\n    from trainer.base import wrap as other\n\n"
            "    return other if kwargs else FSDP(net, **kwargs)\n" + MAIN,
        },
        ["scripts/eval.py"],
        {"scripts/eval.py": "from trainer.fsdp2_support import shard_model"},
    ),
    "packages that import each other, under no package": (
        {
            "core/__init__.py": WRAP,
            "train/__init__.py": "from .train_b import Core\nfrom .train_c import Core as Other\n",
            "train/train_b.py": HERE + "from core import wrap as base\nCore = base\n" + WRAP + MAIN,
            "train/train_c.py": HERE + "from core import wrap as base\nfrom train import Core\n" + WRAP + MAIN,
        },
        ["train/train_b.py"],
        {},
    ),
    "a member of a package": (
        {
            "pkg/__init__.py": "",
            "pkg/train.py": "from . import par\nfrom .par import wrap\n" + MAIN,
            "pkg/par.py": WRAP,
        },
        ["-m", "pkg.train"],
        {"pkg/par.py": "from .fsdp2_support import shard_model"},
    ),
    "a module that is imported relatively and by its name": (
        {
            "pkg/__init__.py": "from .par import wrap\n",
            "pkg/par.py": "import pkg.other\n" + WRAP,
            "pkg/other.py": "",
            "main.py": "from pkg.par import wrap\n" + MAIN,
        },
        ["main.py"],
        {"pkg/par.py": "from pkg.fsdp2_support import shard_model"},
    ),
}
BOTH = {
    "pkg/__init__.py": "",
    "pkg/par.py": WRAP,
    "pkg/train.py": "from par import wrap\n" + MAIN,
    "main.py": "from pkg.par import wrap\n" + MAIN,
}
EITHER = {
    "pkg/__init__.py": "",
    "pkg/par.py": "try:\n    from .other import other\nexcept ImportError:\n    from other import other\n" + WRAP,
    "pkg/other.py": WRAP.replace("wrap", "other"),
    "pkg/train.py": "try:\n    from .par import wrap\nexcept ImportError:\n    from par import wrap\n" + MAIN,
}


def rewritten(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """The program on disk, rewritten, with a support module and a torch that have any name."""
    (folder / ".git").mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    view = examine(gather([folder], Config()), Config(), Command.REWRITE, folder)
    assert view.report.errors == ()
    for change in view.report.changes:
        change.path.write_text(ANYTHING if change.path.name == "fsdp2_support.py" else change.after)
    for package in ("torch", "torch/distributed", "torch/distributed/fsdp"):
        (folder / ".stubs" / package).mkdir(parents=True)
        (folder / ".stubs" / package / "__init__.py").write_text(ANYTHING)
    return {change.path.relative_to(folder).as_posix(): change.after for change in view.report.changes}


def start(folder: Path, command: list[str], *more: str) -> None:
    paths = os.pathsep.join([str(folder / ".stubs"), *more])
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_starts(tmp_path: Path, name: str) -> None:
    files, command, lines = PROGRAMS[name]
    written = rewritten(tmp_path / "x", files)
    # What has a setup.py is installed.
    start(tmp_path / "x", command, *([str(tmp_path / "x")] if "setup.py" in files else []))
    for path, line in lines.items():
        assert line in written[path].splitlines()


def test_module_of_a_package_that_a_script_beside_it_imports_too(tmp_path: Path) -> None:
    rewritten(tmp_path / "x", BOTH)
    start(tmp_path / "x", ["main.py"])
    start(tmp_path / "x", ["pkg/train.py"])


def test_script_that_takes_its_modules_flat_where_it_is_no_member(tmp_path: Path) -> None:
    written = rewritten(tmp_path / "x", EITHER)
    start(tmp_path / "x", ["-m", "pkg.train"])
    start(tmp_path / "x", ["pkg/train.py"])
    here = "except ImportError:  # started from its own folder\n    from fsdp2_support import shard_model\n"
    assert all(here in written[path] for path in ("pkg/par.py", "pkg/other.py"))


def test_folder_of_the_project_that_is_called_like_a_library(tmp_path: Path) -> None:
    """`import torch` does not mean `app/torch`, so what comes from torch is not one of the project's own modules."""
    texts = {
        "app/__init__.py": "",
        "app/torch/__init__.py": "",
        "app/torch/data.py": "load = 1\n",
        "app/torch/train.py": "import torch\nfrom app.torch.data import load\n",
    }
    paths = {tmp_path / name: text for name, text in texts.items()}
    train = tmp_path / "app/torch/train.py"
    search = SearchPath({**dict.fromkeys(paths, ()), train: [path for path in paths if path != train]}, paths)
    assert search.own_names(train) == {"app"}


def test_what_a_name_made_at_run_time_loads_is_not_imported_from(tmp_path: Path) -> None:
    """`a/lib/load.py` may load `b/kit/extra.py`, but finds no support module in `b/kit`."""
    texts = {
        "a/train.py": "from lib.load import load\n",
        "a/lib/__init__.py": "",
        "a/lib/load.py": "import importlib\nfrom lib.wrap import wrap\n",
        "a/lib/wrap.py": WRAP,
        "b/run.py": "from kit.wrap import wrap\n",
        "b/kit/__init__.py": "",
        "b/kit/extra.py": "",
        "b/kit/wrap.py": WRAP,
    }
    imports = {"a/train.py": ["a/lib/load.py"], "a/lib/load.py": ["a/lib/wrap.py", "b/kit/extra.py"]}
    imports |= {"b/run.py": ["b/kit/wrap.py"]}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = {tmp_path / name: [tmp_path / each for each in imports.get(name, ())] for name in texts}
    known = {tmp_path / name: text for name, text in texts.items()}
    users = [tmp_path / "a/lib/wrap.py", tmp_path / "b/kit/wrap.py"]
    found = places(users, known, SearchPath(graph, known))
    assert [found[user].path.parent for user in users] == [user.parent for user in users]
    assert not any(place.unserved for place in found.values())
