"""`# fsdp-migrate: todo[...]`: what `rewrite` left to a person is found by `check` until it is done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fsdp_migrate.cli import app

from .helpers import code

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, args):
    model = FSDP(net)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, list[tuple[str, str, int]]]:
    result = CliRunner().invoke(app, [*arguments, "--output-format", "json"])
    found = json.loads(result.stdout)["findings"]
    return result.exit_code, [(each["rule"], each["level"], each["line"]) for each in found]


LASTING = [
    ("FM205", "    return getattr(model, 'summon_full_params', None)\n"),
    ("FM213", "    for p in model.parameters():\n        p.data = p.data.half()\n"),
    ("FM207", "    return model.training_state\n"),
    ("FM401", "    return model._handle\n"),
    ("FM205 in a line", "    if args: x = getattr(model, 'fsdp_modules', None)\n"),
    ("FM303", "    return FSDP.optim_state_dict(*args)\n"),
    ("FM107", "    return FSDP.fsdp_modules(model, root_only=True)\n"),
]


@pytest.mark.parametrize(("rule", "body"), LASTING, ids=[rule for rule, _ in LASTING])
def test_what_is_left_is_found_until_it_is_done(project: Path, rule: str, body: str) -> None:
    script = project / "train.py"
    script.write_text(HEAD + body)
    status, first = run("rewrite", "train.py")
    assert status == 1
    left = {rule for rule, level, _ in first if level == "manual"}
    written = script.read_text()
    assert max(map(len, written.splitlines())) <= 100
    for _ in range(2):
        status, again = run("check", "train.py")
        assert (status, {rule for rule, level, _ in again if level == "manual"}) == (1, left)
        status, twice = run("rewrite", "train.py")
        assert (status, {rule for rule, level, _ in twice if level == "manual"}) == (1, left)
        assert script.read_text() == written, "a second run changes nothing"


def test_the_comment_stands_above_and_goes_when_it_is_done(project: Path) -> None:
    script = project / "train.py"
    script.write_text(HEAD + "    # why\n    return getattr(model, 'summon_full_params', None)\n")
    run("rewrite", "train.py")
    assert script.read_text() == code(
        """
        import torch
        from torch.distributed.fsdp import fully_shard


        def main(net, args):
            model = fully_shard(net)
            # fsdp-migrate: todo[FM205] ask isinstance(model, FSDPModule) instead, and call what replaces
            #   the method
            raise NotImplementedError(
                "fsdp-migrate FM205: a method of FSDP1 is looked up by its name, and an FSDP2 model does "
                "not have it"
            )
            # why
            return getattr(model, 'summon_full_params', None)
        """
    )
    result = CliRunner().invoke(app, ["check", "train.py"])
    assert result.exit_code == 1
    assert "train.py:7:5" in result.stdout
    assert "left to a person: ask isinstance(model, FSDPModule) instead, and call what replaces the method" in (
        " ".join(result.stdout.split())
    )
    lines = script.read_text().splitlines(keepends=True)
    script.write_text("".join(lines[:6]) + "    return model\n")
    assert CliRunner().invoke(app, ["check", "train.py"]).exit_code == 0


def test_nothing_is_marked_where_fsdp1_is_still_named(project: Path) -> None:
    (project / "train.py").write_text(HEAD + "    return FSDP.fsdp_modules(model, root_only=True)\n")
    run("rewrite", "train.py")
    assert "todo" not in (project / "train.py").read_text()


def test_nothing_is_marked_in_a_program_that_is_not_rewritten(project: Path) -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef f(m):\n    return m._handle\n"
    (project / "train.py").write_text(text)
    run("rewrite", "train.py")
    assert (project / "train.py").read_text() == text


def test_check_marks_nothing_and_a_comment_in_a_string_is_none(project: Path) -> None:
    text = HEAD + "    return model._handle, '# fsdp-migrate: todo[FM101] x'\n"
    (project / "train.py").write_text(text)
    run("check", "train.py")
    assert (project / "train.py").read_text() == text


def test_ignored_on_its_line(project: Path) -> None:
    (project / "train.py").write_text("# fsdp-migrate: todo[FM205] x  # fsdp-migrate: ignore[FM205]\nx = 1\n")
    assert run("check", "train.py") == (0, [])


def test_explained() -> None:
    shown = CliRunner().invoke(app, ["explain", "FM205"]).stdout
    assert "fsdp-migrate: todo[FM205]" in shown


def test_the_same_in_one_function_is_said_once(project: Path) -> None:
    script = project / "train.py"
    script.write_text(HEAD + "    print(model._handle)\n    return model._handle\n\n\ndef other(m):\n    return m\n")
    run("rewrite", "train.py")
    comments = [line.strip() for line in script.read_text().splitlines() if "todo[FM401]" in line]
    assert [comment.endswith("as above") for comment in comments] == [False, True]
    assert {rule for rule, _, _ in run("check", "train.py")[1]} == {"FM401"}


def test_what_keeps_a_file_as_it_is_needs_no_comment(project: Path) -> None:
    other = "from fairscale.nn import FullyShardedDataParallel as FSDP\n\n\ndef wrap(net):\n    return FSDP(net)\n"
    (project / "other.py").write_text(other)
    (project / "train.py").write_text("import other\n" + HEAD)
    assert run("rewrite", "train.py")[0] == 1
    assert (project / "other.py").read_text() == other
    assert run("check", "train.py") == (1, [("FM113", "manual", 5)])


def test_above_a_comment_of_a_context_that_goes(project: Path) -> None:
    script = project / "train.py"
    gathers = "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)"
    inside = f"        # gather\n        with {gathers}:\n            return model.state_dict()\n"
    script.write_text(HEAD.replace("as FSDP", "as FSDP, StateDictType") + f"    if args.rank == 0:\n{inside}")
    run("rewrite", "train.py")
    lines = script.read_text().splitlines()
    found = next(i for i, line in enumerate(lines) if "todo[FM301]" in line)
    assert lines[found + 1] == "        # gather"
