"""A torch that trains nothing and writes down which lines use FSDP1, DDP and plain models.

Small enough to run thousands of programs in one process: no tensors, no process groups. What a model is asked for is
logged at the line of the program that asks.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

FSDP, DDP, PLAIN = "FSDP", "DDP", "PLAIN"


class Log:
    """Which kinds of model each line of a program has used."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.kinds: dict[tuple[str, int], set[str]] = defaultdict(set)

    def add(self, kind: str) -> None:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename not in self.files:
            assert frame.f_back is not None
            frame = frame.f_back
        self.kinds[frame.f_code.co_filename, frame.f_lineno].add(kind)


def run(files: Mapping[str, str], flag: bool) -> Log:
    """Run `train.py` of a program; its other files are modules beside it."""
    log = Log(files)
    modules = torch_modules(log)
    modules["options"] = ModuleType("options")
    vars(modules["options"]).update(args=SimpleNamespace(fsdp=flag, strategy="fsdp" if flag else "torch_ddp"))
    order = sorted(files, key=lambda name: name == "train.py")
    for name in order:
        modules[name.removesuffix(".py")] = ModuleType(name.removesuffix(".py"))
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        for name in order:
            namespace = modules[name.removesuffix(".py")].__dict__
            namespace.update(print=lambda *_: None)
            exec(compile(files[name], name, "exec", dont_inherit=True), namespace)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return log


def torch_modules(log: Log) -> dict[str, ModuleType]:
    """`torch` and the modules in it that programs of the oracle import."""
    classes = _classes(log)
    names = ("torch", "torch.nn", "torch.nn.parallel", "torch.optim", "torch.distributed", "torch.distributed.fsdp")
    found = {name: ModuleType(name) for name in names}
    for name, module in found.items():
        module.__path__ = []
        if "." in name:
            parent, _, last = name.rpartition(".")
            setattr(found[parent], last, module)
    vars(found["torch"]).update(save=lambda *_: None, load=lambda *_, **__: {}, compile=lambda net: net)
    vars(found["torch.nn"]).update(
        {name: classes[name] for name in ("Module", "ModuleList", "ModuleDict", "Sequential")}
    )
    vars(found["torch.nn.parallel"]).update(DistributedDataParallel=classes["DDP"])
    vars(found["torch.optim"]).update(AdamW=_Optimizer)
    vars(found["torch.distributed.fsdp"]).update(
        FullyShardedDataParallel=classes["FSDP"],
        ShardingStrategy=SimpleNamespace(FULL_SHARD=1, SHARD_GRAD_OP=2),
        StateDictType=SimpleNamespace(FULL_STATE_DICT=1),
    )
    return found


class _Optimizer:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def step(self) -> None:
        pass


def _classes(log: Log) -> dict[str, Any]:
    class Module:
        _kind = PLAIN

        def parameters(self) -> list[Any]:
            return []

        def state_dict(self) -> dict[str, Any]:
            log.add(self._kind)
            return {}

        def load_state_dict(self, state: Any) -> None:
            log.add(self._kind)

        def train(self) -> Any:
            return self

        def add_module(self, name: str, module: Any) -> None:
            setattr(self, name, module)

        register_module = add_module

        def get_submodule(self, name: str) -> Any:
            return getattr(self, name)

    class ModuleList(Module):
        def __init__(self, modules: Iterable[Any] = ()) -> None:
            self._items = list(modules)

        def __iter__(self) -> Iterator[Any]:
            return iter(self._items)

        def __getitem__(self, index: int) -> Any:
            return self._items[index]

        def append(self, module: Any) -> None:
            self._items.append(module)

    class Sequential(ModuleList):
        def __init__(self, *modules: Any) -> None:
            super().__init__(modules)

    class ModuleDict(Module):
        def __init__(self, modules: Mapping[str, Any] | None = None) -> None:
            self._items = dict(modules or {})

        def __getitem__(self, key: str) -> Any:
            return self._items[key]

        def __setitem__(self, key: str, module: Any) -> None:
            self._items[key] = module

    class Wrapper(Module):
        def __init__(self, module: Any, **_: Any) -> None:
            log.add(self._kind)
            self._inner = module

        @property
        def module(self) -> Any:
            log.add(self._kind)
            return self._inner

        def no_sync(self) -> Any:
            log.add(self._kind)
            return nullcontext()

    class DistributedDataParallel(Wrapper):
        _kind = DDP

    class FullyShardedDataParallel(Wrapper):
        _kind = FSDP

        def clip_grad_norm_(self, *_: Any) -> float:
            log.add(FSDP)
            return 1.0

        def check_is_root(self) -> bool:
            log.add(FSDP)
            return True

        @property
        def _fsdp_wrapped_module(self) -> Any:
            log.add(FSDP)
            return self._inner

        @property
        def process_group(self) -> None:
            log.add(FSDP)

        @property
        def sharding_strategy(self) -> int:
            log.add(FSDP)
            return 1

        @sharding_strategy.setter
        def sharding_strategy(self, _: int) -> None:
            log.add(FSDP)

        @staticmethod
        @contextmanager
        def summon_full_params(model: Any, **_: Any) -> Iterator[None]:
            log.add(model._kind)
            yield

        @staticmethod
        @contextmanager
        def state_dict_type(model: Any, *_: Any) -> Iterator[None]:
            log.add(model._kind)
            yield

        @staticmethod
        def fsdp_modules(model: Any) -> list[Any]:
            log.add(model._kind)
            return [model] if isinstance(model, FullyShardedDataParallel) else []

    made = {"DDP": DistributedDataParallel, "FSDP": FullyShardedDataParallel}
    return made | {each.__name__: each for each in (Module, ModuleList, ModuleDict, Sequential)}
