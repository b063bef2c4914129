"""Listens to what the program saves: `torch.save`, torch.distributed.checkpoint and safetensors."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.state_dict_saver as dcp_saver
from torch.distributed.checkpoint.stateful import Stateful

from fsdp_migrate.probe.contents import described
from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.recorder import Recorder

_INTERNAL = ("torch.", "fsdp_migrate.probe")
"""Who saves on behalf of another, whose call was heard already; or for the probe itself."""


class Files:
    """Writes one record for each file of this rank."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._scratch = (recorder.settings.scratch or Path()).resolve()

    def install(self) -> None:
        self._listen_to_torch_save()
        for name in ("save", "async_save", "save_state_dict"):
            self._listen_to_dcp(name)
        if importlib.util.find_spec("safetensors") is not None:
            self._listen_to_safetensors(importlib.import_module("safetensors.torch"))

    def _listen_to_torch_save(self) -> None:
        save = torch.save

        @functools.wraps(save)
        def heard(obj: object, f: Any, *args: Any, **kwargs: Any) -> Any:
            if not _caller().startswith(_INTERNAL):
                self._note("torch", f, obj)
            return passed_on(save, obj, f, *args, **kwargs)

        torch.save = heard

    def _listen_to_dcp(self, name: str) -> None:
        save = getattr(dcp_saver, name, None)
        if save is None:
            return

        @functools.wraps(save)
        def heard(state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            if not _caller().startswith(_INTERNAL):
                # Converted here once: to ask twice would make a state dict's collectives twice.
                state_dict = {k: v.state_dict() if isinstance(v, Stateful) else v for k, v in state_dict.items()}
                writer = kwargs.get("storage_writer") or next((arg for arg in args if hasattr(arg, "path")), None)
                place = kwargs.get("checkpoint_id") or next((arg for arg in args if isinstance(arg, (str, Path))), None)
                self._note("dcp", place or getattr(writer, "path", None), state_dict)
            return passed_on(save, state_dict, *args, **kwargs)

        for module in (dcp, dcp_saver):
            setattr(module, name, heard)

    def _listen_to_safetensors(self, module: Any) -> None:
        save = module.save_file

        @functools.wraps(save)
        def heard(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            self._note("safetensors", filename, tensors)
            return passed_on(save, tensors, filename, *args, **kwargs)

        module.save_file = heard

    def _note(self, form: str, place: object, state: object) -> None:
        try:
            with torch.no_grad():
                entries, problem = list(described(state, self._recorder.world)), ""
        except Exception as error:  # what cannot be described is still the program's to save
            entries, problem = [], f"{type(error).__name__}: {error}"
        path = self._path(place)
        if self._recorder.outside is not None and os.path.isabs(path):
            self._recorder.outside.wrote(path)
        self._recorder.writer.write(
            "file", format=form, path=path, step=self._recorder.steps_made, entries=entries, problem=problem
        )

    def _path(self, place: object) -> str:
        if not isinstance(place, (str, os.PathLike)):
            place = getattr(place, "name", None)
        if not isinstance(place, (str, os.PathLike)):
            return "(a stream)"
        full = Path(os.path.abspath(os.fspath(place)))
        return str(full.relative_to(self._scratch)) if full.is_relative_to(self._scratch) else str(full)


def _caller() -> str:
    return str(sys._getframe(2).f_globals.get("__name__", ""))
