"""What is written has the lines of the file: none longer than its own, and none broken that has room."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fsdp_migrate.support.line_breaks import broken
from tests.helpers import rewrite_files

ROOT = Path(__file__).parents[2]
READING = sorted((ROOT / "codemods" / "reading").rglob("*.py"))
HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP

model = FSDP(nn.Linear(2, 2))
"""
LONG = "loss_of_the_first_of_all_batches_of_this_epoch"


def written(code: str, width: int = 88) -> str:
    """What becomes of lines behind the head, in a project of this width."""
    settings = f"[tool.black]\nline-length = {width}\n"
    text = rewrite_files({"train.py": HEAD + code}, settings=settings).after["train.py"]
    return text.partition("\nmodel = fully_shard(nn.Linear(2, 2))\n")[2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # inside of a comprehension
        (
            "state = {key: value.cpu() for key, value in model.state_dict().items() if key.startswith('block')}\n",
            "state = {\n"
            "    key: value.cpu()\n"
            "    for key, value in get_model_state_dict(\n"
            "        model, options=StateDictOptions(full_state_dict=True)\n"
            "    ).items()\n"
            "    if key.startswith('block')\n"
            "}\n",
        ),
        # arguments that the user has on a line of their own
        (
            "torch.save(\n"
            "    model.state_dict(), f'checkpoint-of-the-whole-model-{len(list(model.children()))}.pt'\n"
            ")\n",
            "torch.save(\n"
            "    get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)),\n"
            "    f'checkpoint-of-the-whole-model-{len(list(model.children()))}.pt',\n"
            ")\n",
        ),
        # the head of a function
        (
            "def save(model: FSDP, optimizer, model_directory, optimizer_directory, long_name) -> FSDP:\n"
            "    return model\n",
            "def save(\n"
            "    model: nn.Module, optimizer, model_directory, optimizer_directory, long_name\n"
            ") -> nn.Module:\n"
            "    return model\n",
        ),
    ],
)
def test_a_line_that_became_long_is_broken(before: str, after: str) -> None:
    assert written(before) == after


def test_a_line_that_the_user_made_long_stays() -> None:
    line = f"{LONG} = model.module.loss_of_a_batch({LONG}_, what_comes_behind_it_in_the_order_of_the_file)\n"
    assert written(line) == line.replace(".module", "")
    line = f"{LONG} = loss({LONG}_, what_comes_behind_it_in_the_order_of_the_file, isinstance({LONG}, FSDP))\n"
    assert written(line).count("\n") == 1


def test_a_comment_of_the_user_stays_where_it_is() -> None:
    line = f"save_the_whole_model({LONG}, model.state_dict())  # by every rank\n"
    assert written(line).endswith("  # by every rank\n")
    assert written(line).count("\n") == 1


def test_words_of_a_comment_are_not_broken_at_their_hyphens() -> None:
    after = broken("    # Each rank holds the whole parameters, and gradients are all-reduced.\n", 72, "    ", [0])
    assert after.splitlines()[1] == "    # all-reduced."


def test_a_statement_that_became_short_is_on_one_line() -> None:
    line = f"{LONG} = (\n    model.module.loss(batch) if isinstance(model, FSDP) else model.loss(batch)\n)\n"
    assert written(line) == f"{LONG} = model.loss(batch)\n"


def test_arguments_below_one_another_stay_so() -> None:
    line = f"{LONG} = torch.add(model.module.loss_of_a_batch(batch),\n{' ' * 59}1)\n"
    assert written(line) == line.replace(".module", "")


def test_a_statement_that_the_user_has_on_several_lines_stays_there() -> None:
    line = "loss = torch.add(\n    model.module.loss(batch), 1\n)\n"
    assert written(line) == line.replace(".module", "")


def test_a_statement_behind_one_that_goes_stays_as_it_is() -> None:
    gone = "policy = functools.partial(\n    transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear}\n)\n"
    kept = "by_size = functools.partial(\n    size_based_auto_wrap_policy, min_num_params=100\n)\n"
    imports = "import functools\n\nfrom torch.distributed.fsdp.wrap import *\n\n"
    after = written(f"{imports}{gone}\n{kept}\nother = FSDP(nn.Linear(2, 2), auto_wrap_policy=policy)\n")
    assert kept in after
    assert "policy = functools" not in after


def test_brackets_of_an_argument_do_not_stay_around_a_value() -> None:
    after = written("other = FSDP(model, cpu_offload=(CPUOffload(True) if torch.cuda.is_available() else None))\n")
    assert "(CPUOffloadPolicy()" not in after.replace("offload_policy=(", "")


@pytest.mark.parametrize("width", [60, 79])
@pytest.mark.parametrize("path", READING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_broken_lines_mean_the_same(path: Path, width: int) -> None:
    text = path.read_text()
    after = broken(text, width, "    ", range(text.count("\n")))
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(text))
    assert broken(after, width, "    ", range(after.count("\n"))) == after


@pytest.mark.parametrize("width", [80, 88, 100])
def test_support_functions_have_the_width_of_the_file(width: int) -> None:
    code = "def save(model: FSDP, optimizer, path):\n    torch.save(FSDP.optim_state_dict(model, optimizer), path)\n"
    result = rewrite_files({"train.py": HEAD + code}, settings=f"[tool.black]\nline-length = {width}\n")
    assert "def full_optim_state_dict(" in "".join(result.after.values())
    assert max(len(line) for text in result.after.values() for line in text.splitlines()) <= width


def test_what_is_said_to_a_type_checker_stays_behind_its_line() -> None:
    line = "    load(model, optimizer, state or {}, options=options)  # type: ignore[arg-type]\n"
    assert broken(line, 60, "    ", [0]) == line
    assert broken(line, 40, "    ", [0]).splitlines()[0] == "    load(  # type: ignore[arg-type]"
