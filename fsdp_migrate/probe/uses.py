"""File and line of each use of FSDP1's API by the program's own files, for the account of what a rewrite dealt with.

Calls of what only FSDP1 has, and settings of an FSDP1 model that are changed: on an FSDP2 model they do nothing, and
raise nothing. The constructor is not among them: which units there are is compared by what they are.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.writer import RecordWriter


class Uses:
    """Writes one record for each place, once for models of FSDP1 and once for others."""

    def __init__(self, writer: RecordWriter, root: Path) -> None:
        self._writer, self._root = writer, str(root.resolve()) + os.sep
        self._seen: set[tuple[str, int, str, bool]] = set()
        self._settings: set[str] = set()

    def install(self) -> None:
        for name, member in list(vars(FSDP).items()):
            if name.startswith("_") or hasattr(nn.Module, name):
                continue
            if isinstance(member, (staticmethod, classmethod)):
                setattr(FSDP, name, type(member)(self._heard(name, member.__func__)))
            elif callable(member):
                setattr(FSDP, name, self._heard(name, member))
        self._listen_to_settings()

    def made(self, model: FSDP) -> None:
        """An FSDP1 unit is complete: what its constructor has set are its settings."""
        self._settings |= {name for name in vars(model) if not name.startswith("_")} - vars(nn.Module()).keys()

    def _heard(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def heard(*args: Any, **kwargs: Any) -> Any:
            self._note(name, [arg for arg in (*args, *kwargs.values()) if isinstance(arg, nn.Module)])
            return passed_on(function, *args, **kwargs)

        return heard

    def _listen_to_settings(self) -> None:
        set_attribute = FSDP.__setattr__

        def heard(model: FSDP, name: str, value: Any) -> None:
            if name in self._settings:
                self._note(name, [model])
            passed_on(set_attribute, model, name, value)

        FSDP.__setattr__ = heard  # type: ignore[method-assign,assignment]

    def _note(self, name: str, models: list[nn.Module]) -> None:
        frame = sys._getframe(2)
        path = os.path.abspath(frame.f_code.co_filename)
        if not path.startswith(self._root):
            return
        sharded = not models or any(isinstance(module, FSDP) for model in models for module in model.modules())
        place = (path.removeprefix(self._root), frame.f_lineno, name, sharded)
        if place not in self._seen:
            self._seen.add(place)
            self._writer.write("use", path=place[0], line=place[1], name=name, sharded=sharded)
