"""`[tool.fsdp-migrate]`: every option, and mistakes named with what would be right."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from fsdp_migrate.config import Config, ConfigError, load, parse


def configured(folder: Path, text: str) -> Config:
    (folder / "pyproject.toml").write_text(f"[tool.fsdp-migrate]\n{text}\n")
    return load(folder)


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path) == Config()


def test_a_file_of_others_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert load(tmp_path) == Config()


def test_every_option_can_be_set(tmp_path: Path) -> None:
    text = """
        paths = ["src"]
        exclude = ["legacy"]
        select = ["FM1", "FM203"]
        ignore = ["FM101"]
        strict = true
        jobs = 2
        no-cache = true
        quiet = true
        output-format = "json"
        torch-version = "2.7"
        checkpoint-format = "dcp"
        read-fsdp1-files = true
        script = "src/train.py"
        module = "jobs.train"
        args = ["--epochs", "1"]
        run-gpus = 8
        run-cpus = 2
        dry-run-world = 64
        baseline = "git:main"
        steps = 5
        floor-runs = 2
        init = "copy"
        resume-args = "--resume 'last one'"
        from-baseline-checkpoint = true
        seed = 1
        nnodes = 2
        node-rank = 1
        rdzv-endpoint = "head:29400"
        torchrun-args = ["--max-restarts", "0"]
        hang-timeout = 60
        start-timeout = 300.5
        python = "python3"
        spawns = "yes"
        redirect = "off"
        launcher = "srun {probe}"
        keep = "records"
        allow = ["S3"]
        fresh = true
        expect = "same"
        html = "parity.html"
    """
    config = configured(tmp_path, text)
    default = Config()
    assert all(getattr(config, field.name) != getattr(default, field.name) for field in fields(Config))
    assert config.torch_version == (2, 7)
    assert config.resume_args == ("--resume", "last one")
    assert config.kinds_of_run == ("--run-gpus", "--run-cpus", "--dry-run-world")
    assert config.script == str(tmp_path / "src/train.py")
    assert config.paths == (str(tmp_path / "src"),)
    assert config.baseline == "git:main"


def test_the_nearest_file_holds(tmp_path: Path) -> None:
    configured(tmp_path, "steps = 3")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert load(tmp_path / "a" / "b").steps == 3
    configured(tmp_path / "a", "steps = 4")
    assert load(tmp_path / "a" / "b").steps == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stepz = 3", "unknown key 'stepz'; valid keys are allow, args, baseline, checkpoint-format"),
        ("output_format = 'json'", "unknown key 'output_format'"),
        ("steps = '3'", "steps must be a whole number from 1 up, not '3'"),
        ("steps = true", "steps must be a whole number"),
        ("steps = 0", "from 1 up"),
        ("strict = 'yes'", "strict must be true or false"),
        ("exclude = 'legacy'", "exclude must be a list of strings"),
        ("select = ['E501']", "select must name rules such as FM101"),
        ("output-format = 'xml'", "output-format must be one of full, concise, json"),
        ("checkpoint-format = 'zip'", "checkpoint-format must be one of keep, dcp"),
        ("torch-version = 2.6", 'torch-version must be a version such as "2.6"'),
        ("torch-version = '2.1'", "must be 2.6 or newer"),
        ("script = 1", "script must be a string"),
        ("hang-timeout = 0", "hang-timeout must be a number of seconds above 0"),
        ("floor-runs = 0", "from 1 up"),
        ("launcher = 'srun train.py'", "launcher must have {probe} where the program goes"),
        ('resume-args = "--resume \'x"', "No closing quotation"),
        ("init = 'zeros'", "init must be one of auto, copy, as-is"),
        ("allow = ['V0']", "allow must name checks of a parity run: A, E0, H0, S1"),
        ("broken = [", "cannot be read"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, text)
    assert message in str(caught.value)
    assert "pyproject.toml" in str(caught.value)


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_the_command_line_comes_first() -> None:
    config = parse({"steps": 3, "strict": True, "select": ["FM1"]}, "here")
    assert config.override(steps=5, strict=None, select=None).steps == 5
    assert config.override(steps=5, strict=None).strict


def test_mistakes_on_the_command_line_are_named() -> None:
    with pytest.raises(ConfigError, match="--output-format must be one of"):
        Config().override(output_format="xml")


def test_codes_may_be_joined_by_commas() -> None:
    assert Config().override(select=["FM1,FM203", "FM3"]).select == ("FM1", "FM203", "FM3")
