"""Counts the collectives FSDP itself issues: all-gather and reduce-scatter, how many and how many bytes.

Only calls made from `torch.distributed.fsdp` count, so that a program's own collectives (metrics, data) do not blur the
comparison. Groups of one rank do not count: FSDP1 and FSDP2 differ in whether they bother to call. FSDP1 on a backend
without `all_gather_into_tensor` (gloo) gathers through the list form; torch 2.13 renamed the tensor forms.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor

from fsdp_migrate.probe.passing import passed_on

_FULL_OPERAND: dict[str, tuple[str, int, tuple[str, ...]]] = {
    # name: (what it is counted as, position and keyword names of the operand of full size)
    "all_gather": ("all_gather", 0, ("tensor_list",)),
    "all_gather_into_tensor": ("all_gather", 0, ("output_tensor", "output")),
    "all_gather_single": ("all_gather", 0, ("output", "output_tensor")),
    "reduce_scatter_tensor": ("reduce_scatter", 1, ("input", "input_tensor")),
    "reduce_scatter_single": ("reduce_scatter", 1, ("input", "input_tensor")),
}


class CommCounter:
    """Counts since the last `take()`. A failure inside a collective goes to `on_error`."""

    def __init__(self, on_error: Callable[[str, BaseException], None]) -> None:
        self._counts: dict[str, list[int]] = {}
        self._inside = False
        self._on_error = on_error

    def take(self) -> dict[str, list[int]]:
        """{"all_gather": [count, bytes, bytes among fewer ranks than there are], …}, and start again from zero."""
        counts, self._counts = self._counts, {}
        return counts

    def install(self) -> None:
        for name, (kind, position, keywords) in _FULL_OPERAND.items():
            original = getattr(dist, name, None)
            if original is not None:
                wrapped = self._wrap(original, kind, position, keywords)
                setattr(dist, name, wrapped)
                setattr(c10d, name, wrapped)

    def _wrap(
        self, original: Callable[..., Any], kind: str, position: int, keywords: tuple[str, ...]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if self._inside or not caller.startswith("torch.distributed.fsdp"):
                return passed_on(original, *args, **kwargs)
            self._inside = True
            try:
                result = passed_on(original, *args, **kwargs)
            except BaseException as error:
                self._on_error(kind, error)
                raise
            finally:
                self._inside = False
            operand = _operand(args, kwargs, position, keywords)
            ranks = _group_size(args, kwargs)
            if ranks > 1:
                self._count(kind, operand, ranks < dist.get_world_size())
            return result

        return counted

    def _count(self, kind: str, operand: object, among_fewer: bool) -> None:
        tensors = operand if isinstance(operand, (list, tuple)) else [operand]
        size = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor))
        entry = self._counts.setdefault(kind, [0, 0, 0])
        entry[0] += 1
        entry[1] += size
        entry[2] += size * among_fewer


def _operand(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, keywords: tuple[str, ...]) -> object:
    if len(args) > position:
        return args[position]
    return next((kwargs[keyword] for keyword in keywords if keyword in kwargs), None)


def _group_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    group = kwargs.get("group")
    if group is None:
        group = next((arg for arg in args if isinstance(arg, dist.ProcessGroup)), None)
    return dist.get_world_size(group)
