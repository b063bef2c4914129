"""How a run is started: whose options are whose, what can be forked, and what is imported before."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from fsdp_migrate.probe.settings import parse
from fsdp_migrate.verify import CheckRequest
from fsdp_migrate.verify.forks import Server
from fsdp_migrate.verify.launch import Run, can_fork, command, environment, preload, probe_words

RUN = Run("original", "original", Path("out"), Path("scratch"))


@pytest.fixture
def request_(tmp_path: Path) -> CheckRequest:
    (tmp_path / "parts.py").write_text("from transformers import AutoModel, AutoConfig\nimport wandb\n")
    (tmp_path / "train.py").write_text("import numpy as np\nimport torch\nfrom parts import *\n")
    script = tmp_path / "train.py"
    return CheckRequest(script, script, 2, args=("--logs", "logs", "--standalone", "a b"))


def test_the_programs_options_are_not_torchruns(request_: CheckRequest) -> None:
    words = command(request_, RUN)
    assert not {"--logs", "logs", "a b"} & set(words)
    _, target = parse(words[words.index("fsdp_migrate.probe") + 1 :])
    assert (target.name, target.args) == ("train.py", request_.args)


def test_ranks_are_forked_where_all_are_here_and_none_uses_cuda(request_: CheckRequest) -> None:
    assert can_fork(request_, "original")
    for other in (
        replace(request_, device="cuda"),
        replace(request_, nodes=2),
        replace(request_, launcher="srun {probe}"),
        replace(request_, torchrun_args=("--max-restarts", "1")),
        replace(request_, spawns="yes"),
    ):
        assert not can_fork(other, "original")


SPAWNING = """
import multiprocessing


def child(path):
    open(path, "w").close()


if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child, args=("seen",))
    process.start()
    process.join()
"""


@pytest.mark.dist
def test_what_a_forked_rank_spawns_finds_the_script(tmp_path: Path) -> None:
    """multiprocessing keeps the folder where it was imported, which is the server's."""
    (tmp_path / "train.py").write_text(SPAWNING)
    request = CheckRequest(tmp_path / "train.py", tmp_path / "train.py", 1)
    run = Run("original", "original", tmp_path / "out", tmp_path)
    (tmp_path / "home").mkdir()
    server = Server(sys.executable, environment(request), json.dumps([False, 1, []]), tmp_path / "home" / "log")
    try:
        server.start(probe_words(request, run), tmp_path, environment(request), tmp_path / "log", 1).wait(60)
    finally:
        server.close()
    assert (tmp_path / "seen").exists(), (tmp_path / "log").read_text()


def test_what_takes_long_to_import_is_imported_once(request_: CheckRequest) -> None:
    assert preload(request_) == [["numpy"], ["transformers", "AutoConfig", "AutoModel"]]


def test_packages_with_kernels_see_that_there_is_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsdp_migrate.probe.redirect import cuda_api

    cuda = types.SimpleNamespace()
    cuda_api._devices(cuda, 2)
    answers = {}
    for name in ("train", "bitsandbytes.functional", "torch.nn", "torchtitan"):
        module = types.ModuleType(name)
        module.cuda = cuda  # type: ignore[attr-defined]
        exec("seen = cuda.is_available()", module.__dict__)
        answers[name] = module.seen
    assert answers == {"train": True, "bitsandbytes.functional": False, "torch.nn": False, "torchtitan": True}
    assert "bitsandbytes" not in sys.modules
