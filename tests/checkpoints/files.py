"""What a checkpoint file holds, and whether two hold the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

Entry = Sequence[Any]
"""The path of keys to a leaf, its type with dtype and shape, and its value."""


def described(path: str) -> list[Entry]:
    """Keys, dtypes, shapes and values of what a file holds, in its order; a DCP checkpoint has none."""
    if not Path(path).is_dir():
        return list(leaves("", torch.load(path)))
    dcp_to_torch_save(path, f"{path}.pt")
    return sorted(leaves("", torch.load(f"{path}.pt")), key=str)


def leaves(key: str, value: Any) -> Iterator[Entry]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(f"{key}/{name!r}", item)
    elif isinstance(value, (list, tuple)):  # torch makes a list of `betas`, which everybody unpacks
        for index, item in enumerate(value):
            yield from leaves(f"{key}/{index}", item)
    elif isinstance(value, torch.Tensor):
        yield [key, f"{type(value).__name__} {value.dtype} {list(value.shape)}", value.double().flatten().tolist()]
    else:
        yield [key, type(value).__name__, value]


def compare(old: Sequence[Entry], new: Sequence[Entry], in_order: bool = True) -> None:
    """Assert that both files have the same keys in the same order, shapes, dtypes and values.

    An optimizer's state has parameter names for keys, and whoever loads it goes by them: their order says nothing.
    """
    ordered = by_name if in_order else unordered
    old, new = ordered(old), ordered(new)
    assert [entry[:2] for entry in new] == [entry[:2] for entry in old], "keys, dtypes, shapes"
    for (key, _, value), (_, _, other) in zip(old, new, strict=True):
        assert other == (pytest.approx(value, rel=1e-6, abs=1e-6) if isinstance(value, list) else value), key


def unordered(entries: Sequence[Entry]) -> list[Entry]:
    """The same, whatever the order of keys and of names in a parameter group."""
    return sorted(([re.sub(r"(/'params')/\d+", r"\1", key), *rest] for key, *rest in entries), key=str)


_OPTIMIZER = re.compile(r"(?P<above>.*)/'(?:state|param_groups)'/.*")


def by_name(entries: Sequence[Entry]) -> list[Entry]:
    """The same, with an optimizer's state in alphabetical order, behind all else."""
    rest = [entry for entry in entries if not _OPTIMIZER.fullmatch(entry[0])]
    return rest + unordered([entry for entry in entries if _OPTIMIZER.fullmatch(entry[0])])
