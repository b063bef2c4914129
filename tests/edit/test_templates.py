"""A hole of a template is filled with the node it names; nothing is found by searching text."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.api import Edit
from codemods.template import plain, quote
from fsdp_migrate.edit.apply import Overlap, apply
from tests.helpers import meaning, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


"""
HERE = Path("train.py")


def rewritten(text: str, *edits: Edit) -> str:
    return apply(HERE, text, edits).text


def hole(start: int, end: int) -> str:
    return quote(HERE, (start, end))


def test_hole_is_filled_with_its_own_edits() -> None:
    text = "save(model.module)"
    assert rewritten(text, Edit(0, 18, f"keep({hole(5, 17)})"), Edit(10, 17, "")) == "keep(model)"


def test_edit_of_what_is_not_quoted_is_gone() -> None:
    assert rewritten("f(a, b)", Edit(0, 7, f"g({hole(2, 3)})"), Edit(5, 6, "c")) == "g(a)"


def test_edit_can_quote_what_it_replaces() -> None:
    text = "x = model.module"
    edits = [Edit(4, 16, f"full({hole(4, 16)})"), Edit(4, 16, "unwrap(model)")]
    assert rewritten(text, *edits) == rewritten(text, *reversed(edits)) == "x = full(unwrap(model))"


def test_node_is_quoted_twice() -> None:
    assert rewritten("f(m.a)", Edit(0, 6, f"{hole(2, 5)} + {hole(2, 5)}"), Edit(3, 5, ".b")) == "m.b + m.b"


def test_lines_move_with_their_edits() -> None:
    text = "a = m.module\nwrap(m)\n"
    moved = quote(HERE, (0, 12), is_lines=True)
    edits = [Edit(0, 13, ""), Edit(20, 20, f"\n{moved}"), Edit(5, 12, ""), Edit(0, 0, "raise E\n")]
    assert rewritten(text, *edits) == "raise E\nwrap(m)\nraise E\na = m\n"


def test_what_is_inserted_beside_a_node_is_not_a_part_of_it() -> None:
    assert rewritten("f(a)", Edit(0, 4, f"g({hole(2, 3)}, 1)"), Edit(3, 3, ", b")) == "g(a, 1)"


def test_further_lines_of_a_node_stay_under_its_first() -> None:
    """An argument that is given a name of its own: `precision = Settings(` (easy-to-hard, llama_recipes_pretrain)."""
    text = "def f():\n    wrap(\n        a=Settings(\n            b=1,\n\n            c=2,\n        ),\n    )\n"
    start, end = text.index("Settings"), text.index("),\n") + 1
    edit = Edit(text.index("wrap"), len(text) - 1, f"s = {hole(start, end)}\n    g(s)")
    settings = "Settings(\n        b=1,\n\n        c=2,\n    )"
    assert rewritten(text, edit) == f"def f():\n    s = {settings}\n    g(s)\n"


def test_lines_of_a_text_do_not_move() -> None:
    text = 'def f():\n    g(\n        """a\n        b""",\n    )\n'
    start, end = text.index('"""'), text.index('",\n') + 1
    edit = Edit(text.index("g("), len(text) - 1, f"s = {hole(start, end)}")
    assert rewritten(text, edit) == 'def f():\n    s = """a\n        b"""\n'


def test_lines_that_only_brackets_hold_stay_further_in() -> None:
    text = "def f():\n    g(\n        a=b\n        if c\n        else d,\n    )\n"
    start, end = text.index("b\n"), text.index("d,\n") + 1
    edit = Edit(text.index("g("), len(text) - 1, f"s = ({hole(start, end)})")
    assert rewritten(text, edit) == "def f():\n    s = (b\n        if c\n        else d)\n"


def test_kept_pieces_are_known_by_their_place() -> None:
    result = apply(HERE, "f(FSDP, FSDP)", [Edit(0, 13, f"g({hole(2, 6)})")])
    assert result.text == "g(FSDP)"
    assert result.keeps((2, 6))
    assert not result.keeps((8, 12))


@pytest.mark.parametrize("edits", [[Edit(0, 4, "a"), Edit(2, 6, "b")], [Edit(0, 4, quote(Path("other.py"), (0, 1)))]])
def test_fault_of_a_rule_is_not_written(edits: list[Edit]) -> None:
    with pytest.raises(Overlap):
        apply(HERE, "some text", edits)


def test_plain_is_the_source() -> None:
    assert plain(f"g({hole(2, 3)}, 1)", "f(a)") == "g(a, 1)"


PROGRAMS = {
    "a literal": (
        'model.module.load_state_dict(torch.load("checkpoints/best.module.pt"))',
        'set_model_state_dict(model, torch.load("checkpoints/best.module.pt"), {full})',
    ),
    "a foreign attribute and a literal": (
        'model.module.load_state_dict(load_weights(adapter.module, prefix="student.module"))',
        'set_model_state_dict(model, load_weights(adapter.module, prefix="student.module"), {full})',
    ),
    "a foreign model": (
        "model.module.load_state_dict(ema.module.state_dict())",
        "set_model_state_dict(model, ema.module.state_dict(), {full})",
    ),
    "a foreign object": (
        "model.module.load_state_dict(adapter.weights.state_dict())",
        "set_model_state_dict(model, adapter.weights.state_dict(), {full})",
    ),
    "an FSDP model inside": (
        "model.module.load_state_dict(put(other.module.state_dict()))",
        "set_model_state_dict(model, put(get_model_state_dict(other, options=StateDictOptions(full_state_dict=True))),"
        " {full})",
    ),
    "a name that another begins with": (
        "model.module.load_state_dict(model_module.state)",
        "set_model_state_dict(model, dict(model_module.state), {full})",
    ),
    "a lambda and an f-string": (
        'model.module.load_state_dict(read(lambda m: m.module, f"{adapter.module}.module"))',
        'set_model_state_dict(model, read(lambda m: m.module, f"{adapter.module}.module"), {full})',
    ),
}
FULL = "options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)"


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_the_construct_changes(name: str) -> None:
    before, after = PROGRAMS[name]
    head = "def f(net, inner, adapter, ema, model_module):\n    model = FSDP(net)\n    other = FSDP(inner)\n    "
    last = rewrite(HEAD + head + before + "\n").text.split("fully_shard(inner)\n", 1)[1]
    assert meaning(last).removesuffix("\n").splitlines()[-1] == meaning(after.replace("{full}", FULL))


def test_parameter_of_a_lambda_is_not_the_model_that_was_tested() -> None:
    inside = "(lambda model: model.module), [model.module for model in models]"
    text = f"def f(net, models):\n    model = FSDP(net)\n    if isinstance(model, FSDP):\n        return {inside}\n"
    assert inside in rewrite(HEAD + text).text


def test_value_over_several_lines_takes_its_brackets_along() -> None:
    text = HEAD + (
        "def main(net, rank):\n    return FSDP(\n        net,\n        param_init_fn=lambda module: module.to_empty(\n"
        "            device='cuda', recurse=False)  # empty\n            if rank else None,  # why\n    )\n"
    )
    result = rewrite(text)
    assert result.report.changes
    assert "init_fn = (\n        lambda module: module.to_empty(" in result.text
