"""Check F: what is seen of a file, and which differences of two programs' files fail."""

from __future__ import annotations

import importlib.machinery
import io
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fsdp_migrate.probe.contents import described
from fsdp_migrate.verify import CheckRow, Mark, Verdict
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.checks.files import files
from fsdp_migrate.verify.records import RankRecords
from fsdp_migrate.verify.run import compare_observations
from fsdp_migrate.verify.saved import SavedFile, saved_files
from tests.verify.runs import Fleet, Program
from tests.verify.test_unseen import run

State = dict[str, object]


def state(moved: float = 0.0) -> State:
    weight = torch.arange(1.0, 7.0).reshape(2, 3) / 10
    return {
        "model": OrderedDict(weight=weight * (1 + moved), bias=torch.ones(3, dtype=torch.bfloat16)),
        "step": 4,
        "loss": 0.5,
        "lr": [0.1, 0.2],
        "name": "tiny",
    }


def saved(
    content: object, path: str = "model.pt", form: str = "torch", ranks: tuple[int, ...] = (0,), step: int = 4
) -> SavedFile:
    (file, *_) = many(content, path, form, ranks, step)
    return file


def many(
    content: object, path: str = "model.pt", form: str = "torch", ranks: tuple[int, ...] = (0,), step: int = 4
) -> tuple[SavedFile, ...]:
    record = {"kind": "file", "format": form, "path": path, "step": step, "problem": ""}
    return saved_files([RankRecords(rank, ({**record, "entries": list(described(content, 2))},)) for rank in ranks])


def judged(
    before: tuple[SavedFile, ...],
    after: tuple[SavedFile, ...],
    floor: tuple[SavedFile, ...] | None = None,
    checkpoint_format: str = "keep",
) -> CheckRow:
    floor = before if floor is None else floor
    runs = [replace(run(api), files=some) for api, some in (("FSDP1", before), ("FSDP2", after), ("FSDP1", floor))]
    return files(Comparison(runs[0], runs[1], (runs[2],), 4, checkpoint_format=checkpoint_format))[0]


def test_the_same_files_pass() -> None:
    assert judged(many(state()), many(state())).mark is Mark.PASS


def test_values_may_move_as_far_as_the_originals_own() -> None:
    before, floor = many(state()), many(state(1e-6))
    assert judged(before, many(state(4e-6)), floor).mark is Mark.PASS
    assert judged(before, many(state(1e-4)), floor).mark is Mark.FAIL


def optimizer(*names: str, first: float = 0.1) -> State:
    """A state with parameter names for keys."""
    state = {name: {"step": 3.0, "exp_avg": torch.full((2,), first + i)} for i, name in enumerate(sorted(names))}
    groups = [{"lr": 0.1, "params": list(names)}]
    return {"model": 1, "optimizer": {"state": {name: state[name] for name in names}, "param_groups": groups}}


def test_names_of_an_optimizers_parameters_come_in_any_order() -> None:
    assert judged(many(optimizer("a.w", "a.b", "head")), many(optimizer("head", "a.b", "a.w"))).mark is Mark.PASS
    other = judged(many(optimizer("a.w", "head")), many(optimizer("a.w", "tail")))
    assert other.mark is Mark.FAIL
    assert "optimizer.state.head" in other.detail
    assert judged(many(optimizer("a.w", "head")), many(optimizer("head", "a.w", first=0.2))).mark is Mark.FAIL


def without(key: str) -> State:
    return {name: value for name, value in state().items() if name != key}


def changed(change: Callable[[State], object]) -> tuple[SavedFile, ...]:
    content = state()
    change(content["model"])  # type: ignore[arg-type]
    return many(content)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ((), "is not written by the rewritten program"),
        ((*many(state()), *many(state(), path="more.pt")), "more.pt of rank 0 at step 4 is written by the rewritten"),
        (many(state(), ranks=(0, 1)), "model.pt of rank 1 at step 4 is written by the rewritten program only"),
        (many(state(), ranks=(1,)), "is not written"),
        (many(state(), step=5), "written at step 5"),
        (many(without("loss")), "keys lost: loss"),
        (many({**state(), "more": 1}), "new: more"),
        (many(dict(reversed(state().items()))), "in another order"),
        (changed(lambda model: model.update(weight=model["weight"].half())), "`model.weight` is float16"),
        (changed(lambda model: model.update(weight=model["weight"].t())), "`model.weight` has the shape [3, 2]"),
        (changed(lambda model: model.update(weight=model["weight"][:1])), "`model.weight` has the shape [1, 3]"),
        (changed(lambda model: model.update(weight=model["weight"] * 1.01)), "`model.weight` has other values"),
        (changed(lambda model: model.update(weight=0.5)), "`model.weight` is a float where the original has a tensor"),
        (many({**state(), "step": 5}), "`step` is 5 where the original has 4"),
        (many({**state(), "loss": 0.6}), "`loss` is 0.6"),
        (many({**state(), "name": "other"}), "`name` is 'other'"),
        (many(state(), path="model", form="dcp"), "written by torch.distributed.checkpoint now"),
    ],
)
def test_what_differs_fails_and_says_where(after: tuple[SavedFile, ...], words: str) -> None:
    row = judged(many(state()), after)
    assert row.mark is Mark.FAIL, row
    assert words in row.detail


def test_a_state_dict_of_dtensors_is_no_full_one() -> None:
    """A leftover FSDP.set_state_dict_type does nothing on an FSDP2 model."""
    record = many(state())[0]
    leaves = {**record.leaves, "model.weight": replace(record.leaves["model.weight"], kind="DTensor")}
    row = judged((record,), (replace(record, leaves=leaves),))
    assert "`model.weight` is a DTensor where the original has a tensor" in row.detail
    sharded = {**record.leaves, "model.weight": replace(record.leaves["model.weight"], kind="ShardedTensor")}
    assert judged((replace(record, leaves=sharded),), (replace(record, leaves=leaves),)).mark is Mark.PASS


def test_what_the_original_does_not_repeat_is_left_out() -> None:
    before, floor, after = ({**state(), "time": time, "run": f"run-{time}"} for time in (1.5, 2.5, 3.5))
    assert judged(many(before), many(after), many(floor)).mark is Mark.PASS
    names = [many(state(), path=f"runs/2024-11-22_10-{minute}/model.pt") for minute in (10, 11, 12)]
    assert judged(names[0], names[2], names[1]).mark is Mark.PASS


def test_a_file_that_became_a_checkpoint_of_all_ranks() -> None:
    before, after = many(state()), many(state(), path="model", form="dcp", ranks=(0, 1))
    assert judged(before, after, checkpoint_format="dcp").mark is Mark.PASS
    wrong = many(state(0.01), path="model", form="dcp", ranks=(0, 1))
    assert "has other values" in judged(before, wrong, checkpoint_format="dcp").detail


def test_a_buffer_may_be_saved_in_another_dtype() -> None:
    before, after = many(state()), changed(lambda model: model.update(bias=model["bias"].float()))
    runs = [
        replace(run(api), files=some, buffers={"0:bias": (3.0, 3.0)})
        for api, some in zip("12", (before, after), strict=True)
    ]
    assert files(Comparison(runs[0], runs[1], (runs[0],), 4))[0].mark is Mark.PASS
    assert judged(before, after).mark is Mark.FAIL


def test_a_file_that_cannot_be_described_is_undecided() -> None:
    broken = (replace(saved(state()), leaves={}, problem="ValueError: odd"),)
    assert judged(broken, broken).mark is Mark.INCONCLUSIVE


def test_nothing_saved_is_for_information() -> None:
    assert judged((), ()).mark is Mark.INFO


def test_a_large_tensor_is_sampled_and_its_pieces_add_up() -> None:
    from fsdp_migrate.probe.contents import _sampled
    from fsdp_migrate.probe.layout import contiguous

    whole = torch.arange(1000.0)
    (all_at_once,) = _sampled(whole, contiguous(0, 1000), 7)
    parts = [*_sampled(whole[:333], contiguous(0, 333), 7), *_sampled(whole[333:], contiguous(333, 667), 7)]
    assert sum(part["n"] for part in parts) == all_at_once["n"] == 143  # type: ignore[misc]
    assert [sum(values) for values in zip(*(part["s"] for part in parts), strict=True)] == pytest.approx(
        all_at_once["s"]
    )  # type: ignore[call-overload]


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The records of a probe that listens to what this process saves, in its third step."""
    import torch.distributed.checkpoint as dcp

    from fsdp_migrate.probe.files import Files
    from fsdp_migrate.probe.settings import Settings

    records: list[dict[str, Any]] = []

    class Recorder:
        settings, world, steps_made, outside = Settings(tmp_path, scratch=tmp_path), 1, 3, None

        @property
        def writer(self) -> Recorder:
            return self

        def write(self, kind: str, **fields: object) -> None:
            records.append({"kind": kind, **fields})

    places = [(torch, "save"), *((module, name) for module in (dcp, dcp.state_dict_saver) for name in DCP)]
    for module, name in places:
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setitem(sys.modules, "safetensors", safetensors())
    monkeypatch.setitem(sys.modules, "safetensors.torch", sys.modules["safetensors"].torch)
    Files(Recorder()).install()  # type: ignore[arg-type]
    return records


DCP = ("save", "async_save", "save_state_dict")


def safetensors() -> Any:
    """A stand-in: the library is no dependency of the tests."""
    package, module = ModuleType("safetensors"), ModuleType("safetensors.torch")
    package.__spec__ = importlib.machinery.ModuleSpec("safetensors", None)
    package.torch = module  # type: ignore[attr-defined]
    module.save_file = lambda tensors, filename, metadata=None: Path(filename).write_text(str(metadata))  # type: ignore[attr-defined]
    return package


def places(heard: list[dict[str, Any]]) -> list[tuple[object, object, object]]:
    return [(record["format"], record["path"], record["step"]) for record in heard]


def keys(record: dict[str, Any]) -> list[str]:
    return [entry["key"] for entry in record["entries"]]


def test_torch_save_is_heard(heard: list[dict[str, Any]], tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "a.pt")
    with (tmp_path / "b.pt").open("wb") as file:
        torch.save(state(), file)
    torch.save(state(), io.BytesIO())
    assert places(heard) == [("torch", "a.pt", 3), ("torch", "b.pt", 3), ("torch", "(a stream)", 3)]


def test_a_distributed_checkpoint_is_heard_once(heard: list[dict[str, Any]], tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    dcp.save({"model": torch.nn.Linear(2, 2)}, checkpoint_id=tmp_path / "c")
    dcp.save({"model": {"w": torch.ones(1)}}, storage_writer=dcp.FileSystemWriter(tmp_path / "d"))
    assert places(heard) == [("dcp", "c", 3), ("dcp", "d", 3)]
    assert [keys(record) for record in heard] == [["model.weight", "model.bias"], ["model.w"]]


@pytest.mark.dist
def test_an_asynchronous_checkpoint_is_heard_as_it_was_when_it_was_asked_for(
    heard: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The program changes its weights while the file is written."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    weight = torch.ones(4)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        saving = dcp.async_save({"w": weight}, checkpoint_id=str(tmp_path / "c"))
        weight.zero_()
        saving.result()
        read = {"w": torch.empty(4)}
        dcp.load(read, checkpoint_id=str(tmp_path / "c"))
    finally:
        dist.destroy_process_group()
    assert places(heard) == [("dcp", "c", 3)]
    assert heard[0]["entries"][0]["parts"][0]["sum"] == 4.0
    assert read["w"].tolist() == [1.0] * 4


def test_safetensors_are_heard(heard: list[dict[str, Any]], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"w": torch.ones(3), "b": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    save_file(filename=str(tmp_path / "more.safetensors"), tensors={"w": torch.ones(3)})
    assert places(heard) == [("safetensors", "model.safetensors", 3), ("safetensors", "more.safetensors", 3)]
    assert keys(heard[0]) == ["w", "b"]
    assert (tmp_path / "model.safetensors").read_text() == "{'format': 'pt'}"


SAVED = {
    name: Program.of("saving.py", "--max-steps", "4", "--scratch", ".", api=api, mutation=mutation)
    for name, api, mutation in (
        ("original", 1, ""),
        ("right", 2, ""),
        ("leftover", 2, "leftover"),
        ("all_ranks", 2, "all_ranks"),
    )
}
FLOOR = Program.of("saving.py", "--max-steps", "4", "--scratch", ".", "--perturb", "1", api=1, mutation="")


@pytest.mark.dist
@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("right", ""),
        ("leftover", "is a DTensor where the original has a tensor"),
        ("all_ranks", "model.pt of rank 1 at step 2 is written by the rewritten program only"),
    ],
)
def test_a_full_checkpoint(fleet: Fleet, which: str, words: str) -> None:
    fleet.programs([*SAVED.values(), FLOOR])
    before, after, floor = fleet.seen(SAVED["original"]), fleet.seen(SAVED[which]), fleet.seen(FLOOR)
    found = compare_observations(Comparison(before, after, (floor,), 4))
    assert found.verdict is (Verdict.FAIL if words else Verdict.PASS), found.reason
    assert found.failed == (("F",) if words else ())
    assert words in found.row("F").detail
