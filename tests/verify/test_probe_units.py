"""The probe's arithmetic, in one process and without a process group."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from fsdp_migrate.probe.layout import GlobalIndex, contiguous
from fsdp_migrate.probe.names import clean
from fsdp_migrate.probe.optimizers import hyper_parameters, moves_without_gradient, state_bytes
from fsdp_migrate.probe.settings import parse
from fsdp_migrate.probe.sketch import WIDTH, sketch
from fsdp_migrate.probe.start import Start, one_ulp, perturb
from fsdp_migrate.probe.transplant import load_weights, save_weights
from fsdp_migrate.probe.units import fsdp2_names, module_names
from fsdp_migrate.probe.views import Piece
from fsdp_migrate.probe.writer import RecordWriter


def piece(values: torch.Tensor, index: GlobalIndex, numel: int) -> Piece:
    return Piece("0:w", values, None, index, 1, numel, (0,))


def sums(values: torch.Tensor, index: GlobalIndex) -> list[float]:
    found = sketch(values, index)["s"]
    assert isinstance(found, list)
    return found


def estimate(a: torch.Tensor, b: torch.Tensor) -> float:
    index = contiguous(0, a.numel())
    return math.dist(sums(a, index), sums(b, index)) / math.sqrt(WIDTH)


def test_one_changed_element_is_measured_exactly() -> None:
    a = torch.randn(50_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    b = a.clone()
    b[31_337] += 1e-3
    assert estimate(a, b) == pytest.approx(1e-3, rel=1e-6)


def test_a_distance_is_estimated_within_a_factor_of_two() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        a, b = (torch.randn(5_000, generator=generator) for _ in range(2))
        assert 0.5 < estimate(a, b) / float((a - b).double().norm()) < 2.0


def test_sketches_of_pieces_add_up_whatever_the_layout() -> None:
    whole = torch.arange(60, dtype=torch.float32).reshape(6, 10) / 7
    expected = sums(whole.reshape(-1), contiguous(0, 60))
    rows = [sums(whole[:4].reshape(-1), contiguous(0, 40)), sums(whole[4:].reshape(-1), contiguous(40, 20))]
    columns = [
        sums(whole[:, :3].reshape(-1), GlobalIndex((6, 3), (0, 0), (10, 1))),
        sums(whole[:, 3:].reshape(-1), GlobalIndex((6, 7), (0, 3), (10, 1))),
    ]
    for parts in (rows, columns):
        assert [sum(values) for values in zip(*parts, strict=True)] == pytest.approx(expected)


def test_what_is_sharded_already_is_not_handed_over_again() -> None:
    """FSDP1 around a part that it wrapped before: with `use_orig_params`, its parameters are this rank's shards."""
    written: list[str] = []
    writer = SimpleNamespace(write=lambda kind, **record: written.extend(name for name, _ in record["digests"]))
    part = FullyShardedDataParallel.__new__(FullyShardedDataParallel)
    nn.Module.__init__(part)
    part._modules["_fsdp_wrapped_module"] = nn.Linear(2, 2)
    model = nn.ModuleDict({"part": part, "head": nn.Linear(2, 2)})
    Start(parse(["--out", "x", "--max-steps", "1", "train.py"])[0], 0, 2, cast(RecordWriter, writer)).handed_over(
        model, "FSDP1"
    )
    assert written == ["head.weight", "head.bias"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_perturbation_is_one_unit_in_the_last_place(dtype: torch.dtype) -> None:
    values = torch.linspace(-3, 3, 101).to(dtype)
    moved = values.clone()
    before = torch.get_rng_state()
    perturb(piece(moved, contiguous(0, 101), 101), seed=1)
    assert torch.equal(before, torch.get_rng_state()), "the global random state was touched"
    up = moved > values
    assert 0 < int(up.sum()) < 101
    assert torch.equal(moved, one_ulp(values, up))
    assert bool((moved != values).all())


def test_replicas_and_other_layouts_are_perturbed_alike() -> None:
    whole = torch.linspace(0, 1, 40)
    left, right = whole[:25].clone(), whole[25:].clone()
    together = whole.clone()
    perturb(piece(together, contiguous(0, 40), 40), seed=3)
    perturb(piece(left, contiguous(0, 25), 40), seed=3)
    perturb(piece(right, contiguous(25, 15), 40), seed=3)
    assert torch.equal(torch.cat([left, right]), together)


def test_weights_move_between_layouts(tmp_path: Path) -> None:
    whole = torch.randn(6, 4)
    flat = whole.reshape(-1)
    save_weights(tmp_path, 0, 0, [piece(flat[:7], contiguous(0, 7), 24)])
    save_weights(tmp_path, 1, 0, [piece(flat[7:], contiguous(7, 17), 24)])
    columns = torch.zeros(6 * 2)
    assert load_weights(tmp_path, 0, [piece(columns, GlobalIndex((6, 2), (0, 2), (4, 1)), 24)]) == 1
    assert torch.equal(columns.reshape(6, 2), whole[:, 2:])
    other_size = torch.ones(5)
    assert load_weights(tmp_path, 0, [piece(other_size, contiguous(0, 5), 5)]) == 0
    assert torch.equal(other_size, torch.ones(5))


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("_fsdp_wrapped_module.b.0._checkpoint_wrapped_module._fsdp_wrapped_module.w", "b.0.w"),
        ("_orig_mod.head.weight", "head.weight"),
        ("_fsdp_wrapped_module", ""),
        ("my_orig_mod.w", "my_orig_mod.w"),
    ],
)
def test_names_lose_what_wrappers_put_in(name: str, cleaned: str) -> None:
    assert clean(name) == cleaned


def test_hyper_parameters_are_what_decides_the_update() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight], lr=torch.tensor(0.5), foreach=False)
    found = hyper_parameters(optimizer)[0]
    assert found["lr"] == 0.5
    assert found["betas"] == [0.9, 0.999]
    assert "foreach" not in found
    assert "params" not in found
    assert moves_without_gradient(optimizer)
    assert not moves_without_gradient(torch.optim.SGD([weight], lr=0.1))
    weight.grad = torch.ones(4)
    optimizer.step()
    assert state_bytes(optimizer) == 2 * 4 * 4  # two moments; the step counter does not count


def test_names_are_no_hyper_parameters_and_lose_what_wrappers_put_in() -> None:
    """FSDP1's have prefixes; a program that keeps its parameters' names in the groups must not fail for that."""
    weight = torch.nn.Parameter(torch.ones(4))
    named = {
        "params": [("_fsdp_wrapped_module.w", weight)],
        "like": "_fsdp_wrapped_module.w",
        "norms": ["a._orig_mod.b"],
    }
    (found,) = hyper_parameters(torch.optim.AdamW([named]))
    assert "param_names" not in found
    assert found["like"] == "w"
    assert found["norms"] == ["a.b"]


def test_the_programs_own_options_are_left_alone() -> None:
    settings, target = parse(["--out", "d", "--max-steps", "3", "-m", "pkg.train", "--out", "mine", "-m"])
    assert settings.max_steps == 3
    assert target.name == "pkg.train"
    assert target.as_module
    assert target.args == ("--out", "mine", "-m")


def test_a_module_of_several_names_has_all_of_them() -> None:
    """T5's embedding is one module in three places, and its weight that of the head too."""
    root, inner = torch.nn.Module(), torch.nn.Module()
    root.shared, root.decoder, root.head = torch.nn.Embedding(3, 2), inner, torch.nn.Linear(2, 3)
    inner.embed = root.shared
    info = SimpleNamespace(
        module=root.shared, param_name="weight", shared_modules=[root.head], shared_param_names=["weight"]
    )
    found = fsdp2_names(SimpleNamespace(_module_info=info), module_names(root))
    assert found == ("decoder.embed.weight", "head.weight", "shared.weight")
