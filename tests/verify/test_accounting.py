"""Check A: the lines that used FSDP1, and which of them the rewrite dealt with."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from fsdp_migrate.verify import CheckRow, Mark
from fsdp_migrate.verify.accounting import Use, account
from tests.verify.runs import Fleet, Program

BEFORE = """\
def save(model):
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
    ):
        state = model.state_dict()
    return state

def later(trainer):
    FSDP.set_state_dict_type(trainer.model, StateDictType.FULL_STATE_DICT)
    modules = every(trainer.model)
"""
WITH = Use("train.py", 2, "state_dict_type", True)
LATER = Use("train.py", 10, "set_state_dict_type", True)


def judged(tmp_path: Path, after: str | None, uses: Collection[Use], reported: Collection[int] = ()) -> CheckRow:
    for folder, text in (("before", BEFORE), ("after", after)):
        (tmp_path / folder).mkdir()
        if text is not None:
            (tmp_path / folder / "train.py").write_text(text)
    return account(uses, tmp_path / "before", tmp_path / "after", lambda: {"train.py": reported})


@pytest.mark.parametrize(
    ("after", "uses", "reported", "mark"),
    [
        (BEFORE, [], (), Mark.PASS),
        (BEFORE, [LATER], (), Mark.FAIL),
        (BEFORE, [LATER], (10,), Mark.PASS),
        (BEFORE, [LATER], (11,), Mark.FAIL),
        (BEFORE, [WITH], (4,), Mark.PASS),  # the head of the statement has four lines
        (BEFORE, [WITH], (6,), Mark.FAIL),  # its body is another matter
        (BEFORE.replace("    FSDP.set", "    # fsdp-migrate: FM303\n    FSDP.set"), [LATER], (), Mark.PASS),
        (BEFORE.replace("StateDictType.FULL_STATE_DICT,\n    ", "None\n    "), [WITH], (), Mark.PASS),
        (BEFORE.replace("    return state\n", "    return dict(state)\n"), [LATER, WITH], (), Mark.FAIL),
        (None, [LATER], (), Mark.PASS),
        (BEFORE, [Use("train.py", 10, "set_state_dict_type", False)], (), Mark.PASS),  # on a model without FSDP
        (BEFORE, [Use("train.py", 11, "fsdp_modules", True)], (), Mark.PASS),  # called by another name: made elsewhere
    ],
)
def test_a_line_is_changed_or_reported(
    tmp_path: Path, after: str | None, uses: list[Use], reported: Collection[int], mark: Mark
) -> None:
    row = judged(tmp_path, after, uses, reported)
    assert row.mark is mark, row


def test_what_nobody_dealt_with_is_named(tmp_path: Path) -> None:
    row = judged(tmp_path, BEFORE, [LATER, WITH])
    assert row.value == "2 uses, 0 accounted for"
    assert "train.py:2 state_dict_type, train.py:10 set_state_dict_type" in row.detail
    assert row.items == ("train.py:2 state_dict_type", "train.py:10 set_state_dict_type")


@pytest.mark.dist
def test_uses_are_seen_with_their_lines(fleet: Fleet) -> None:
    seen = fleet.seen(Program.of("leftover.py", "--max-steps", "1", "--scratch", "."))
    assert {use for use in seen.uses if use.sharded} == {
        Use("leftover.py", 13, "set_state_dict_type", True),
        Use("leftover.py", 15, "sharding_strategy", True),
        Use("leftover.py", 19, "clip_grad_norm_", True),
    }
    assert Use("leftover.py", 14, "set_state_dict_type", False) in seen.uses
