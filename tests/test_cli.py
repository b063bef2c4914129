"""The commands as a user calls them: what is printed where, what is written, and the exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fsdp_migrate.cli import app

FSDP1 = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main():
    model = torch.nn.Linear(2, 2)
    model = FSDP(model)
    return model
"""
LEFT = f"{FSDP1}\n\ndef units(m):\n    return FSDP.fsdp_modules(m, True)\n"
FSDP2 = "from torch.distributed.fsdp import fully_shard\n\n\ndef main(model):\n    return fully_shard(model)\n"
PLAIN = "import torch\n\nprint(torch.ones(2))\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return tmp_path


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def command(*arguments: str, cwd: Path, **more: object) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    line = [sys.executable, "-m", "fsdp_migrate", *arguments]
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, check=False, **more)  # type: ignore[call-overload, no-any-return]


# Nothing to do


@pytest.mark.parametrize("arguments", [("rewrite", "train.py"), ("check", "train.py"), ("check",), ("rewrite", ".")])
def test_no_fsdp(project: Path, arguments: tuple[str, ...]) -> None:
    (project / "train.py").write_text(PLAIN)
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (
        0,
        "Found 0 FSDP1 constructs in 1 Python file: there is no FSDP here.\n",
    )
    assert result.stderr == ""


@pytest.mark.parametrize("name", ["rewrite", "check"])
def test_fsdp2_already(project: Path, name: str) -> None:
    (project / "train.py").write_text(FSDP2)
    result = run(name, "train.py")
    assert result.exit_code == 0
    assert result.stdout == "Found 0 FSDP1 constructs in 1 Python file: this is FSDP2 already.\n"
    assert (project / "train.py").read_text() == FSDP2


def test_fsdp1_in_words_only(project: Path) -> None:
    (project / "train.py").write_text("# once a\n# FullyShardedDataParallel\n")
    result = run("rewrite", "train.py")
    assert (result.exit_code, result.stdout) == (
        0,
        "Found 0 FSDP1 constructs in 1 Python file, but FSDP1 is still named in them (train.py:2).\n",
    )


def test_an_empty_folder(project: Path) -> None:
    assert run("check", ".").stdout == "Found 0 FSDP1 constructs in 0 Python files: there is no FSDP here.\n"


# Errors


@pytest.mark.parametrize("name", ["rewrite", "check"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x = '\xe9'\n", "error line 1: byte 0xe9 is not UTF-8, and no other encoding is declared"),
        (b"def f(:\n", "error line 1:"),
        (FSDP1.encode() + b"def f(:\n", "error line "),
        (b"\0", "error holds null bytes"),
        (None, "error does not exist"),
    ],
)
def test_a_file_that_cannot_be_read(project: Path, name: str, content: bytes | None, message: str) -> None:
    path = project / "bad.py"
    if content is not None:
        path.write_bytes(content)
    (project / "good.py").write_text(FSDP1)
    result = run(name, "bad.py", "good.py")
    assert result.exit_code == 2
    assert f"bad.py: {message}" in result.stderr
    assert result.stdout.splitlines()[-1].endswith("1 file could not be read or written.")
    assert content is None or path.read_bytes() == content
    assert ("fully_shard" in (project / "good.py").read_text()) == (name == "rewrite")


def test_mistakes_in_the_configuration(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.fsdp-migrate]\nstepz = 1\n")
    result = run("check")
    assert result.exit_code == 2
    assert "unknown key 'stepz'" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("rewrite",),
        ("rewrite", "--nonsense"),
        ("rewrite", "train.py", "--diff", "--output", "x"),
        ("rewrite", "train.py", "--checkpoint-format", "zip"),
        ("rewrite", "train.py", "-", "--diff"),
        ("check", "--output-format", "xml"),
        ("check", "train.py", "--run-gpus", "1", "--run-cpus", "1"),
        ("check", "train.py", "--run-cpus", "1", "--dry-run-world", "8"),
        ("check", "train.py", "-m", "train", "--run-cpus", "1"),
        ("check", "-m", "none.such", "--run-cpus", "1"),
        ("check", "train.py", "--steps", "3"),
        ("check", "train.py", "--steps", "3", "--dry-run-world", "8"),
        ("check", "train.py", "--run-cpus", "2", "--from-baseline-checkpoint"),
        ("record", "train.py", "--output", "kept"),
        ("record", "none.py", "--run-cpus", "1", "--output", "kept"),
        ("check", "--run-cpus", "2"),
        ("check", "a.py", "b.py", "--run-cpus", "2"),
        ("check", "train.py", "--baseline", "x"),
        ("check", "train.py", "--", "--epochs", "1"),
        ("explain", "FM999"),
        ("nonsense",),
    ],
)
def test_usage_errors(project: Path, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr
    assert not result.stdout


def test_a_fault_of_the_pipeline_writes_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "train.py").write_text(FSDP1)
    monkeypatch.setattr("fsdp_migrate.pipeline.migrate", lambda *_: 1 / 0)
    result = run("rewrite", "train.py")
    assert result.exit_code == 2
    assert "ZeroDivisionError" in result.stderr
    assert "nothing was written" in result.stderr
    assert (project / "train.py").read_text() == FSDP1


def test_a_result_that_is_not_python_is_not_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsdp_migrate.findings import Change, Report

    path = project / "train.py"
    path.write_text(FSDP1)
    broken = Report(changes=(Change(path.resolve(), FSDP1, "def f(:\n"),))
    monkeypatch.setattr("fsdp_migrate.pipeline.migrate", lambda *_: broken)
    result = run("rewrite", "train.py")
    assert result.exit_code == 2
    assert "not valid Python" in result.stderr
    assert path.read_text() == FSDP1


# rewrite


def test_rewrite_in_place_keeps_the_original(project: Path) -> None:
    (project / "train.py").write_text(FSDP1)
    result = run("rewrite", "train.py")
    assert result.exit_code == 0
    assert "Rewrote train.py (the original is train.py.orig)" in result.stdout
    assert result.stdout.splitlines()[-1] == "Found 1 FSDP1 construct: 1 rewritten, 0 need review, 0 need you."
    assert (project / "train.py.orig").read_text() == FSDP1
    again = (project / "train.py").read_text()
    assert "fully_shard(model)" in again
    assert run("rewrite", "train.py").stdout.endswith("this is FSDP2 already.\n")
    assert (project / "train.py").read_text() == again


def test_rewrite_follows_the_programs_imports(project: Path) -> None:
    (project / "train.py").write_text("from wrap import main\n\nmain()\n")
    (project / "wrap.py").write_text(FSDP1)
    assert "Rewrote wrap.py" in run("rewrite", "train.py").stdout


def test_something_that_needs_you(project: Path) -> None:
    (project / "train.py").write_text(LEFT)
    result = run("rewrite", "train.py")
    assert result.exit_code == 1
    assert " FM107 manual " in result.stdout


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_byte_order_mark_stay(project: Path, end: str) -> None:
    path = project / "train.py"
    path.write_bytes(b"\xef\xbb\xbf" + FSDP1.replace("\n", end).encode())
    assert run("rewrite", "train.py").exit_code == 0
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    assert data.count(b"\n") == data.count(end.encode())


def test_checkpoint_format(project: Path) -> None:
    (project / "train.py").write_text(FSDP1.replace("return model", "torch.save(model.state_dict(), 'a')"))
    assert b"dcp.save(" not in command("rewrite", "--diff", "train.py", cwd=project).stdout
    result = command("rewrite", "--diff", "--checkpoint-format", "dcp", "train.py", cwd=project)
    assert b"+    dcp.save(get_model_state_dict(model), checkpoint_id='a')" in result.stdout


def test_diff_writes_nothing_and_git_takes_it(project: Path) -> None:
    path = project / "train.py"
    path.write_text(FSDP1)
    result = command("rewrite", "--diff", "train.py", cwd=project)
    assert result.returncode == 0
    assert path.read_text() == FSDP1
    assert result.stdout.startswith(b"diff --git a/train.py b/train.py\n")
    assert b"Found 1 FSDP1 construct" in result.stderr
    subprocess.run(["git", "apply", "-"], cwd=project, input=result.stdout, check=True)
    after = path.read_text()
    path.write_text(FSDP1)
    run("rewrite", "train.py")
    assert path.read_text() == after


def test_output_writes_the_whole_program_elsewhere(project: Path) -> None:
    (project / "train.py").write_text("from wrap import main\n\nmain()\n")
    (project / "wrap.py").write_text(FSDP1)
    result = run("rewrite", "train.py", "--output", "new")
    assert result.exit_code == 0
    assert (project / "wrap.py").read_text() == FSDP1
    assert "fully_shard" in (project / "new" / "wrap.py").read_text()
    assert (project / "new" / "train.py").read_text() == (project / "train.py").read_text()
    assert run("rewrite", "train.py", "--output", ".").exit_code == 2


def test_output_keeps_the_layout_of_a_folder(project: Path) -> None:
    (project / "recipes").mkdir()
    (project / "recipes" / "wrap.py").write_text(FSDP1)
    (project / "train.py").unlink(missing_ok=True)
    assert run("rewrite", ".", "--output", "../new").exit_code == 0
    assert "fully_shard" in (project.parent / "new" / "recipes" / "wrap.py").read_text()


_SHARED = """\
import torch


def save(model, path):
    torch.save(model.module.state_dict(), path)
"""
_OTHER = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from shared import save

CHANNELS = torch.channels_last
save(DDP(torch.nn.Linear(2, 2), find_unused_parameters=True), "x.pt")
"""


@pytest.mark.parametrize("other", [_OTHER, _OTHER.replace("DDP(", "torch.nn.DataParallel(")])
def test_what_another_script_hands_to_a_shared_file_stays_what_it_was(project: Path, other: str) -> None:
    (project / "shared.py").write_text(_SHARED)
    (project / "train.py").write_text(f"from shared import save\n{FSDP1}\n\nsave(main(), 'x.pt')\n")
    assert run("rewrite", ".", "--diff").stdout.count("unwrap(model)") == 0
    alone = run("rewrite", "train.py", "--diff").stdout
    (project / "other.py").write_text(other)
    both = run("rewrite", ".", "--diff").stdout
    assert "+    torch.save(whole_state_dict(unwrap(model)), path)" in both
    assert "other.py" not in both
    of_script = "diff --git a/train.py"
    assert both[both.index(of_script) :] == alone[alone.index(of_script) :]


LOADING = """\
import torch


def train(model, optimizer, x):
    model(x).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return norm


def load(model, path):
    model.load_state_dict(torch.load(path))
"""
CALLING = """\
import torch
import torch.distributed as dist
from shared import load, train

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train(model, optimizer, torch.ones(2, 2))
torch.save(model.state_dict(), "x.pt")
load(model, "x.pt")
"""


@pytest.mark.parametrize(("name", "is_read"), [("plain.py", True), ("tests/test_plain.py", False)])
def test_a_script_that_wraps_nothing_can_still_call_a_shared_file(project: Path, name: str, is_read: bool) -> None:
    """It has no process group, and its norms are plain: a test of such a file says nothing of the program."""
    (project / "shared.py").write_text(LOADING)
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(CALLING)
    sharded = CALLING.replace("torch.nn.Linear(2, 2)", "FSDP(torch.nn.Linear(2, 2))")
    sharded = sharded.replace("model = ", "dist.init_process_group()\nmodel = ")
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    (project / "sharded.py").write_text(head + sharded)
    assert run("rewrite", ".").exit_code in (0, 1)
    shared = (project / "shared.py").read_text()
    assert (project / name).read_text() == CALLING
    assert ("def load_full_state_dict(" in shared) is is_read
    assert ("norm = full_tensor(" in shared) is is_read
    assert ("set_model_state_dict(" in shared) is not is_read
    if is_read:
        subprocess.run([sys.executable, name], cwd=project, check=True)


def test_standard_input(project: Path) -> None:
    result = command("rewrite", "-", cwd=project, input=FSDP1.replace("\n", "\r\n").encode())
    assert result.returncode == 0
    assert b"fully_shard(model)\r\n" in result.stdout
    assert b"stdin.py:7:" in result.stderr


def test_standard_input_without_fsdp_comes_back(project: Path) -> None:
    data = b"\xef\xbb\xbfx = 1\r\n"
    assert command("rewrite", "-", cwd=project, input=data).stdout == data


def test_standard_input_has_the_name_it_is_given(project: Path) -> None:
    result = command("check", "-", "--stdin-filename", "src/a.py", cwd=project, input=FSDP1.encode())
    assert result.returncode == 1
    assert result.stdout.startswith(b"src/a.py:7:")


def test_standard_input_that_cannot_be_read(project: Path) -> None:
    result = command("check", "-", cwd=project, input=b"\xe9")
    assert result.returncode == 2
    assert b"stdin.py: error line 1" in result.stderr


def test_read_only_files_are_left_alone(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "train.py").write_text(FSDP1)
    monkeypatch.setattr("fsdp_migrate.project.write.os.access", lambda *_: False)
    result = run("rewrite", "train.py")
    assert result.exit_code == 2
    assert "read-only" in result.stderr
    assert (project / "train.py").read_text() == FSDP1


# check


def test_settings_that_stay_pass_the_gate(project: Path) -> None:
    """Torch's own enums are plain data, which FSDP2 code reads as well."""
    given = "model = FSDP(model, sharding_strategy=ShardingStrategy[os.environ['STRATEGY']])"
    text = FSDP1.replace("as FSDP\n", "as FSDP, ShardingStrategy\n").replace("model = FSDP(model)", given)
    (project / "train.py").write_text(f"import os\n{text}")
    (project / "kinds.py").write_text(
        "from torch.distributed.fsdp import ShardingStrategy\n\nKINDS = {'full': ShardingStrategy.FULL_SHARD}\n"
    )
    assert run("rewrite", ".").exit_code == 0
    left = run("check")
    assert "ShardingStrategy of torch.distributed.fsdp stays in use" in left.stdout
    assert (left.exit_code, run("check", "--strict").exit_code) == (0, 1)


def test_check_finds_what_is_left_and_writes_nothing(project: Path) -> None:
    (project / "train.py").write_text(FSDP1)
    result = run("check")
    assert result.exit_code == 1
    assert result.stdout.startswith("train.py:7:")
    assert "FM101 rewritable" in result.stdout
    assert (project / "train.py").read_text() == FSDP1


@pytest.mark.parametrize("output_format", ["json", "sarif"])
@pytest.mark.parametrize("text", [FSDP1, PLAIN])
def test_documents_for_machines(project: Path, output_format: str, text: str) -> None:
    (project / "train.py").write_text(text)
    result = run("check", "--output-format", output_format)
    assert result.exit_code == int(text is FSDP1)
    json.loads(result.stdout)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--ignore", "FM101"), 0),
        (("--ignore", "FM1"), 0),
        (("--select", "FM2"), 0),
        (("--select", "FM101"), 1),
        (("--ignore", "FM1", "--select", "FM101"), 1),
    ],
)
def test_select_and_ignore(project: Path, options: tuple[str, ...], code: int) -> None:
    (project / "train.py").write_text(FSDP1)
    assert run("check", *options).exit_code == code


def test_a_comment_silences_a_finding_and_is_counted(project: Path) -> None:
    (project / "train.py").write_text(FSDP1.replace("FSDP(model)", "FSDP(model)  # fsdp-migrate: ignore[FM101]"))
    result = run("check")
    assert result.exit_code == 0
    assert result.stdout.endswith("1 ignored.\n")


def test_exclude(project: Path) -> None:
    (project / "train.py").write_text(FSDP1)
    assert run("check", "--exclude", "train.py").exit_code == 0


def test_the_configuration_names_the_paths(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.fsdp-migrate]\npaths = ["src"]\noutput-format = "concise"\n')
    (project / "src").mkdir()
    (project / "src" / "train.py").write_text(FSDP1)
    (project / "other.py").write_text(FSDP1)
    result = run("check")
    assert "src/train.py:7" in result.stdout
    assert "other.py" not in result.stdout


# The rest


def test_version() -> None:
    assert run("--version").stdout.startswith("fsdp-migrate 0.")


def test_rules_and_explain() -> None:
    listed = run("rules").stdout.splitlines()
    codes = [line.split()[0] for line in listed]
    assert codes == sorted(set(codes))
    assert {"FM001", "FM101"} <= set(codes)
    for code in codes:
        result = run("explain", code)
        assert result.exit_code == 0
        assert result.stdout.startswith(f"# {code} ")
    assert run("explain", "fm101").exit_code == 0


def test_a_reader_that_goes_away_is_no_error(project: Path) -> None:
    (project / "train.py").write_text(FSDP1)
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    line = [sys.executable, "-m", "fsdp_migrate", "check", "train.py"]
    done = subprocess.run(line, cwd=project, env=environment, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""


def test_ctrl_c_is_quiet(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (project / "train.py").write_text(FSDP1)
    monkeypatch.setattr("fsdp_migrate.pipeline.migrate", interrupted)
    result = run("rewrite", "train.py")
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr
    assert (project / "train.py").read_text() == FSDP1


# Imports that are not followed

LOADS = "import importlib, sys\n\nbuild = importlib.import_module(sys.argv[1]).main\nbuild()\n"


@pytest.mark.parametrize("name", ["rewrite", "check"])
def test_fsdp1_behind_an_import_by_name_is_told(project: Path, name: str) -> None:
    (project / "train.py").write_text(LOADS)
    (project / "configs").mkdir()
    for index in range(7):
        (project / "configs" / f"c{index}.py").write_text(FSDP1)
    (project / "other.py").write_text(PLAIN + "# FullyShardedDataParallel\n")
    result = run(name, "train.py")
    assert result.exit_code == 1
    assert "train.py:3:9" in result.stdout
    assert "unused ignore" not in result.stdout
    assert "FSDP1 is in configs/c0.py, configs/c1.py, configs/c2.py, configs/c3.py, configs/c4.py and 2 more" in (
        result.stdout
    )
    assert (project / "train.py").read_text() == LOADS
    assert run(name, ".").exit_code == (0 if name == "rewrite" else 1)


@pytest.mark.parametrize("loads", ["importlib.import_module('json').main", "sys.argv"])
def test_imports_that_are_followed_hide_nothing(project: Path, loads: str) -> None:
    (project / "train.py").write_text(f"import importlib, sys\n\nbuild = {loads}\n")
    (project / "other.py").write_text(FSDP1)
    result = run("rewrite", "train.py")
    assert (result.exit_code, "there is no FSDP here" in result.stdout) == (0, True)


def test_a_tree_without_fsdp1_hides_nothing(project: Path) -> None:
    (project / "train.py").write_text(LOADS)
    (project / "other.py").write_text(FSDP2)
    assert run("rewrite", "train.py").exit_code == 0


GIVEN = "import torch\n\n\ndef main(model):\n    torch.save(model.state_dict(), 'model.pt')\n"
LOADED = "import importlib, sys\n" + FSDP1 + "importlib.import_module(sys.argv[1]).main(main())\n"


def test_what_is_loaded_by_name_is_part_of_the_program(project: Path) -> None:
    (project / "train.py").write_text(LOADED)
    (project / "task.py").write_text(GIVEN)
    (project / "started.py").write_text(GIVEN + "\n\nif __name__ == '__main__':\n    main(torch.nn.Linear(4, 4))\n")
    result = run("rewrite", "train.py", "--diff")
    assert "the model may come to task.py, unseen" in result.stderr + result.stdout
    for paths in (["train.py", "task.py"], ["."]):
        result = run("rewrite", *paths, "--diff")
        assert "unseen" not in result.stderr + result.stdout
        assert "get_model_state_dict(model" in result.stdout
        assert "started.py" not in result.stdout


# The torch that a project asks for

PINS = [
    ("requirements.txt", "numpy\ntorch==2.1.0+cu118  # the cluster's\n", "2:1", "torch==2.1.0+cu118"),
    ("requirements/train.txt", "torch >=2.0, <2.6\n", "1:1", "torch >=2.0, <2.6"),
    ("pyproject.toml", '[project]\ndependencies = ["numpy", "torch>=2.4.0"]\n', "2:27", "torch>=2.4.0"),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.1"\n', "2:1", 'torch = "^2.1'),
    ("setup.py", "setup(install_requires=['torch>1.12', 'six'])\n", "1:26", "torch>1.12"),
    ("environment.yml", "dependencies:\n  - pytorch=2.5.1\n", "2:5", "pytorch=2.5.1"),
]


@pytest.mark.parametrize(("name", "text", "place", "asked"), PINS)
def test_an_older_torch_is_told_where_it_is_asked_for(
    project: Path, name: str, text: str, place: str, asked: str
) -> None:
    (project / "train.py").write_text(FSDP1)
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(text)
    result = run("rewrite", "train.py", "--diff")
    assert f"{name}:{place}: FM003 review" in result.stderr + result.stdout
    assert f"needs torch >= 2.6, and the project asks for {asked}\n" in result.stderr + result.stdout
    assert "FM003" not in run("check", "train.py").stdout


RECENT = [
    "torch\n",
    "torch>=2.6\n",
    "torch==2.7.1\n",
    "torch~=2.6\n",
    "torch>=2.1,>=2.6,<3\n",
    "torch<=2.6\n",
    "torchvision>=0.9\ntorch-geometric==1.0\npytorch-lightning==1.9\nopen_clip.torch==1.0\n",
    "# torch==2.0\n",
]


@pytest.mark.parametrize("text", RECENT)
def test_a_recent_torch_is_not_told(project: Path, text: str) -> None:
    (project / "train.py").write_text(FSDP1)
    (project / "requirements.txt").write_text(text)
    assert "FM003" not in run("rewrite", "train.py").stdout


def test_an_older_torch_is_told_once_and_of_the_nearest_project(project: Path) -> None:
    (project / "requirements.txt").write_text("torch==1.13\n")
    (project / "examples").mkdir()
    (project / "examples" / "train.py").write_text(FSDP1)
    (project / "examples" / "requirements.txt").write_text("torch==2.2\n")
    (project / "examples" / "requirements-dev.txt").write_text("torch==2.3\n")
    result = run("rewrite", ".")
    assert result.stdout.count("FM003") == 1
    assert "asks for torch==2.3 (also in requirements.txt:1)" in result.stdout
    assert "FM003" not in run("rewrite", ".").stdout, "nothing is left to rewrite"


UPGRADABLE = """\
from torch.distributed.fsdp import fully_shard


def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
"""


def test_upgrade_writes_what_is_asked_for(project: Path) -> None:
    (project / "train.py").write_text(UPGRADABLE)
    shown = run("upgrade", "train.py", "--reshard-after-forward", "8", "--diff")
    assert shown.exit_code == 0
    assert "+        fully_shard(layer, reshard_after_forward=8)" in shown.stdout
    assert (project / "train.py").read_text() == UPGRADABLE
    done = run("upgrade", "train.py", "--reshard-after-forward", "8")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "Found 1 place to upgrade: 1 upgraded, 0 need review, 0 need you."
    again = run("upgrade", "train.py", "--reshard-after-forward", "8")
    assert again.exit_code == 0
    assert again.stdout == "Nothing to upgrade: what was asked for is there already.\n"


def test_upgrade_refuses(project: Path) -> None:
    (project / "train.py").write_text("import torch\n")
    assert run("upgrade", "train.py", "--prefetch").exit_code == 2
    (project / "train.py").write_text(UPGRADABLE)
    assert run("upgrade", "train.py").exit_code == 2
    assert run("upgrade", "train.py", "--reshard-after-forward", "1").exit_code == 2
    assert run("check", "train.py", "--run-cpus", "2", "--expect", "less loss").exit_code == 2


def test_float8_alone_is_tensorwise(project: Path) -> None:
    text = UPGRADABLE + "    optimizer = torch.optim.SGD(model.parameters())\n    optimizer.step()\n"
    (project / "train.py").write_text("import torch\n" + text)
    alone, named = (
        run("upgrade", "train.py", option, "--diff").stdout for option in ("--float8", "--float8=tensorwise")
    )
    assert alone == named
    assert "+    optimizer.step()\n" not in alone
    assert "precompute_float8_dynamic_scale_for_fsdp(model)" in alone
    assert run("upgrade", "train.py", "--float8=columnwise").exit_code == 2
