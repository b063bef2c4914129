"""The report for a pull request: per program, what needs a person first."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.config import Config
from fsdp_migrate.render import markdown
from fsdp_migrate.render.view import Command
from fsdp_migrate.session import examine, gather

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n\n\n"
FILES = {
    "a/train.py": IMPORT + "from lib import wrap\n\nmodel = wrap(net, *given)\nFSDP.set_state_dict_type(model, mode)\n",
    "a/lib.py": IMPORT + "def wrap(net, *options):\n    return FSDP(net, *options)\n",
    "b/train.py": IMPORT + "model = FSDP(net)\nFSDP.register_comm_hook(model, None, hook)\n",
}


@pytest.fixture
def page(tmp_path: Path) -> str:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return markdown.render(examine(gather([tmp_path], Config()), Config(), Command.REWRITE, tmp_path))


def test_each_program_has_a_part_named_after_its_script(page: str) -> None:
    assert [line for line in page.splitlines() if line.startswith("### ")] == ["### `a/train.py`", "### `b/train.py`"]


def test_way_of_each_place_is_told_with_its_reason(page: str) -> None:
    first, second = page.split("### `b/train.py`")
    through = first.split("through `fsdp2_support.py`** ")[1]
    assert "`a/lib.py:5` FM101" in through
    assert "arguments come from `*options`" in through
    assert "`b/train.py:4` FM101" in second.split("Rewritten as FSDP2 code")[1]


def test_what_needs_a_person_is_a_box_to_tick_with_the_cure(page: str) -> None:
    second = page.split("### `b/train.py`")[1]
    assert "- [ ] `b/train.py:5` FM211 gradients go through a hook" in second
    assert second.index("Needs you") < second.index("Rewritten")


def test_proof_is_offered_for_each_program(page: str) -> None:
    assert "`fsdp-migrate check b/train.py --run-gpus N -- ARGUMENTS`" in page
