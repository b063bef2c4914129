"""Where the probe listens. Everything here is patched on classes or looked up at call time by torch itself.

So a program's `from torch.distributed.fsdp import fully_shard` works whether it ran before or after `install`.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
import torch.distributed.checkpoint.state_dict as dcp_state_dict
import torch.distributed.fsdp._init_utils as fsdp1_init_utils
import torch.distributed.tensor._dispatch as dtensor_dispatch
from torch import Tensor, nn
from torch._guards import TracingContext
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fsdp_migrate.probe.files import Files
from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.recorder import Recorder
from fsdp_migrate.probe.uses import Uses


def install(recorder: Recorder) -> None:
    """Start listening, for the life of the process."""
    recorder.comm.install()
    _let_fsdp1_use_cpus()
    _listen_to_wrapping(recorder)
    _listen_to_draws(recorder)
    _listen_to_forward(recorder)
    _listen_to_autograd(recorder)
    register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: recorder.step_begins(optimizer))
    register_optimizer_step_post_hook(lambda optimizer, args, kwargs: recorder.step_ends(optimizer))
    _listen_to_scaler(recorder)
    _ignore_phantom_steps(recorder)
    if recorder.settings.dry_run_world is None:
        if recorder.settings.scratch is not None:
            recorder.uses = Uses(recorder.writer, recorder.settings.scratch)
            recorder.uses.install()
        Files(recorder).install()


def _let_fsdp1_use_cpus() -> None:
    """FSDP1 refuses `sync_module_states=True` for a model on the CPU, although gloo can broadcast it; and it takes the
    number of CPUs, which torch says is one, for the ranks of a node, so that HYBRID_SHARD would shard over one rank."""
    if not torch.cuda.is_available():
        fsdp1_init_utils._check_module_states_for_sync_module_states = lambda module_states: None
        torch.cpu.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _listen_to_wrapping(recorder: Recorder) -> None:
    fsdp1_init = FullyShardedDataParallel.__init__
    fsdp2_init = FSDPState.init
    depth = 0

    @functools.wraps(fsdp1_init)
    def init1(self: FullyShardedDataParallel, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        nonlocal depth
        if depth == 0:  # nested units are made by the outer constructor's policy
            recorder.start.handed_over(module, "FSDP1", evened=bool(kwargs.get("sync_module_states")))
        depth += 1
        try:
            passed_on(fsdp1_init, self, module, *args, **kwargs)
        finally:
            depth -= 1
        recorder.wrapped.add(self)
        recorder.start.expect(self)
        if recorder.uses is not None:
            recorder.uses.made(self)

    @functools.wraps(fsdp2_init)
    def init2(self: FSDPState, modules: Any, *args: Any, **kwargs: Any) -> Any:
        for module in modules if isinstance(modules, (list, tuple)) else (modules,):
            recorder.start.handed_over(module, "FSDP2")
            recorder.wrapped.add(module)
            recorder.start.expect(module)
        return passed_on(fsdp2_init, self, modules, *args, **kwargs)

    FullyShardedDataParallel.__init__ = init1  # type: ignore[method-assign]
    FSDPState.init = init2  # type: ignore[method-assign]
    group_init = FSDPParamGroup.__init__

    @functools.wraps(group_init)
    def init_group(self: FSDPParamGroup, *args: Any, **kwargs: Any) -> None:
        passed_on(group_init, self, *args, **kwargs)
        recorder.start.sharded(self)

    FSDPParamGroup.__init__ = init_group  # type: ignore[method-assign]


def _listen_to_draws(recorder: Recorder) -> None:
    """Random numbers that are drawn into DTensors: where CUDA is only pretended, each rank draws the same ones for its
    slice, while CUDA's generators are moved on by rank."""
    if not recorder.settings.redirect:
        return
    dispatch: Any = dtensor_dispatch
    is_supported = dispatch.is_rng_supported_mesh
    told = False

    @functools.wraps(is_supported)
    def heard(mesh: Any) -> bool:
        nonlocal told
        supported = is_supported(mesh)
        if not supported and not told:
            told = True
            recorder.writer.write("draws_repeat")
        return bool(supported)

    dispatch.is_rng_supported_mesh = heard


def _listen_to_forward(recorder: Recorder) -> None:
    def before(module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling():  # the parts of a compiled unit: nothing of them is asked for
            return
        if recorder.start.waits(module):
            recorder.start.before_forward(module, recorder.wrapped.numbered())
        recorder.forward_begins(module)

    nn.modules.module.register_module_forward_pre_hook(before)


def _listen_to_autograd(recorder: Recorder) -> None:
    backward = torch.autograd.backward
    grad = torch.autograd.grad

    @functools.wraps(backward)
    def heard_backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        recorder.backward_begins(_tensors(tensors))
        try:
            passed_on(backward, tensors, *args, **kwargs)
        except BaseException as error:
            recorder.on_error("backward", error)
            raise
        finally:
            recorder.backward_ends()
        recorder.raise_if_stopping()

    @functools.wraps(grad)
    def heard_grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if TracingContext.try_get() is not None:  # torch.compile traces a backward, and runs none
            return passed_on(grad, outputs, *args, **kwargs)
        recorder.backward_begins(_tensors(outputs))
        try:
            return passed_on(grad, outputs, *args, **kwargs)
        finally:
            recorder.backward_ends()

    torch.autograd.backward = heard_backward
    torch.autograd.grad = heard_grad


def _listen_to_scaler(recorder: Recorder) -> None:
    step = torch.amp.GradScaler.step

    @functools.wraps(step)
    def heard_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = recorder.attempts(optimizer)
        result = passed_on(step, self, optimizer, *args, **kwargs)
        if recorder.attempts(optimizer) == before:
            recorder.step_skipped(optimizer, float(self.get_scale()))
        return result

    torch.amp.GradScaler.step = heard_step  # type: ignore[method-assign]


def _ignore_phantom_steps(recorder: Recorder) -> None:
    """DCP's get/set_state_dict make optimizer state by a step with zero gradients; that is no training step."""
    make_state = dcp_state_dict._init_optim_state

    @functools.wraps(make_state)
    def quietly(*args: Any, **kwargs: Any) -> Any:
        with recorder.paused():
            return passed_on(make_state, *args, **kwargs)

    dcp_state_dict._init_optim_state = quietly


def _tensors(given: Any) -> list[Tensor]:
    return [given] if isinstance(given, Tensor) else [t for t in given if isinstance(t, Tensor)]
