"""From PATH arguments to files: named ones always, folders without what is nobody's code, bytes before parsing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fsdp_migrate.config import Config
from fsdp_migrate.project.discover import discover, speaks_of_fsdp
from fsdp_migrate.session import gather

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel\n"


def fill(root: Path, *names: str, text: str = FSDP) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path, *paths: str, exclude: tuple[str, ...] = ()) -> list[str]:
    result = discover([root / path for path in paths or (".",)], exclude)
    return [path.relative_to(root.resolve()).as_posix() for path in result.hits]


def test_an_empty_folder(tmp_path: Path) -> None:
    assert discover([tmp_path]).files == ()


def test_files_without_fsdp_are_looked_at_and_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "b/c.py", text="import torch\n")
    result = discover([tmp_path])
    assert len(result.files) == 2
    assert result.hits == ()


def test_the_order_is_fixed(tmp_path: Path) -> None:
    fill(tmp_path, "z.py", "a/z.py", "a/b/c.py", "m.py", "a.py")
    assert found(tmp_path) == ["a/b/c.py", "a/z.py", "a.py", "m.py", "z.py"]


def test_folders_that_are_nobodys_code(tmp_path: Path) -> None:
    fill(tmp_path, "train.py", ".venv/x.py", "venv/x.py", "node_modules/x.py", "__pycache__/x.py", "build/x.py")
    fill(tmp_path, "lib/site-packages/x.py", ".git/x.py", "env/lib/x.py", "a/.ipynb_checkpoints/x-checkpoint.py")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert found(tmp_path) == ["train.py"]


def test_a_folder_named_env_can_be_the_users(tmp_path: Path) -> None:
    fill(tmp_path, "env/train.py")
    assert found(tmp_path) == ["env/train.py"]


def test_an_excluded_folder_that_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "build/train.py")
    assert found(tmp_path, "build") == ["build/train.py"]


def test_named_files_always_count(tmp_path: Path) -> None:
    fill(tmp_path, "notes.txt", "plain.py", text="x = 1\n")
    assert found(tmp_path, "notes.txt", "plain.py", "missing.py") == ["notes.txt", "plain.py", "missing.py"]


def test_a_path_given_twice_is_one_file(tmp_path: Path) -> None:
    fill(tmp_path, "train.py")
    assert found(tmp_path, "train.py", ".", "./train.py") == ["train.py"]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("legacy", ["a/train.py"]),
        ("legacy/", ["a/train.py"]),
        ("a/*.py", ["legacy/old.py"]),
        ("train.py", ["legacy/old.py"]),
        ("**/old.py", ["a/train.py"]),
        ("nothing", ["a/train.py", "legacy/old.py"]),
    ],
)
def test_exclude(tmp_path: Path, pattern: str, left: list[str]) -> None:
    fill(tmp_path, "legacy/old.py", "a/train.py")
    assert found(tmp_path, exclude=(pattern,)) == left


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("generated/\n*_pb2.py\n")
    fill(tmp_path, "train.py", "generated/x.py", "a/b_pb2.py", "a/b.py")
    return tmp_path


def test_gitignore_is_respected(repository: Path) -> None:
    assert found(repository) == ["a/b.py", "train.py"]
    assert found(repository, "a") == ["a/b.py"]


def test_an_ignored_folder_that_is_named(repository: Path) -> None:
    assert found(repository, "generated") == ["generated/x.py"]


def test_deleted_files_are_gone(repository: Path) -> None:
    subprocess.run(["git", "-C", str(repository), "add", "."], check=True)
    (repository / "train.py").unlink()
    assert found(repository) == ["a/b.py"]


def test_a_repository_inside_is_searched(repository: Path) -> None:
    subprocess.run(["git", "init", "-q", str(repository / "inner")], check=True)
    fill(repository, "inner/run.py")
    assert "inner/run.py" in found(repository)


@pytest.mark.parametrize(
    "text",
    [
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
        "import torch.distributed.fsdp as f",
        "from torch.distributed import fsdp",
        "from torch.distributed.fsdp.wrap import wrap",
        "from torch.distributed._composable.fsdp import fully_shard",
        "torch.distributed.fsdp.FullyShardedDataParallel(m)",
        "from fsdp2_support import shard_model",
    ],
)
def test_bytes_that_speak_of_fsdp(tmp_path: Path, text: str) -> None:
    fill(tmp_path, "x.py", text=text)
    assert speaks_of_fsdp(tmp_path / "x.py")


@pytest.mark.parametrize("text", ["", "import torch", "use_fsdp = True", "from torch.nn.parallel import DDP"])
def test_bytes_that_do_not(tmp_path: Path, text: str) -> None:
    fill(tmp_path, "x.py", text=text)
    assert not speaks_of_fsdp(tmp_path / "x.py")


def test_torch_itself_is_named_once_and_left_alone(tmp_path: Path) -> None:
    own = "torch/distributed/fsdp/fully_sharded_data_parallel.py"
    fill(tmp_path, "torch/__init__.py", own, "torch/distributed/fsdp/wrap.py", "torchtools/a.py", "train.py")
    assert found(tmp_path) == [own, "torchtools/a.py", "train.py"]
    assert found(tmp_path, "torch/distributed/fsdp/wrap.py") == ["torch/distributed/fsdp/wrap.py"]
    program = gather([tmp_path], Config())
    assert tmp_path.resolve() / "torch/__init__.py" not in program.sources


def test_a_folder_of_the_name_torch_without_a_package_is_the_users(tmp_path: Path) -> None:
    names = ["torch/distributed/fsdp/fully_sharded_data_parallel.py", "torch/distributed/fsdp/wrap.py"]
    fill(tmp_path, *names)
    assert found(tmp_path) == names
