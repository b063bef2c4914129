"""torchao's float8 on a machine without the hardware: products are emulated, in the numbers that it would compute."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_CONFIG = "torchao.float8.config"


def redirect_float8() -> None:
    """Once the program imports torchao, `Float8LinearConfig` asks for emulation, and the GPU that is pretended is one
    that has float8: compute capability 9.0 in the place of 8.0."""
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _CONFIG:
            return None
        sys.meta_path.remove(self)  # the other finders know where it lies
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def then_emulate(module: ModuleType) -> None:
                execute(module)
                _emulate(module.Float8LinearConfig)

            spec.loader.exec_module = then_emulate  # type: ignore[method-assign]
        return spec


def _emulate(config: Any) -> None:
    after_init = config.__post_init__

    @functools.wraps(after_init)
    def emulated(self: Any) -> None:
        object.__setattr__(self, "emulate", True)
        after_init(self)

    config.__post_init__ = emulated
