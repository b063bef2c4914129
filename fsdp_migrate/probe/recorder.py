"""The event stream of one rank: backwards and optimizer steps, in the order in which the program makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from fsdp_migrate.probe.comm import CommCounter
from fsdp_migrate.probe.flags import numeric_flags
from fsdp_migrate.probe.float8 import float8_state, uses_float8
from fsdp_migrate.probe.lineage import Lineage, Seen
from fsdp_migrate.probe.meter import Meter
from fsdp_migrate.probe.optimizers import (
    group_names,
    hyper_parameters,
    moves_without_gradient,
    names_by_handle,
    state_bytes,
)
from fsdp_migrate.probe.outside import Outside
from fsdp_migrate.probe.settings import Settings
from fsdp_migrate.probe.sketch import sketch
from fsdp_migrate.probe.start import Start
from fsdp_migrate.probe.stopping import StopRun, leave, mark_end
from fsdp_migrate.probe.units import Wrapped, units
from fsdp_migrate.probe.uses import Uses
from fsdp_migrate.probe.views import Piece, pieces, plain_piece, squared_norm
from fsdp_migrate.probe.writer import RecordWriter


class Recorder:
    """Called by the hooks; owns the record file of its rank."""

    def __init__(self, settings: Settings, rank: int, world: int) -> None:
        self.settings, self.rank, self.world = settings, rank, world
        self.writer = RecordWriter(settings.out, rank)
        self.wrapped = Wrapped()
        self.start = Start(settings, rank, world, self.writer)
        self.comm = CommCounter(self.on_error)
        self.stopping = False
        self._paused = False
        self._backward_depth = 0
        self._backwards = 0
        self._gradients_wait = False
        self._forwards = 0
        self._unit_forwards: Counter[int] = Counter()
        self._recomputed = 0
        self._loss_dtypes: set[str] = set()
        self._losses: list[Tensor] = []
        self._norm_before_clip: Tensor | None = None
        self._norm_at_step: Tensor | None = None
        self._carried: Tensor | None = None
        self._optimizers = Lineage()
        self.steps_made = 0
        self.uses: Uses | None = None
        self.outside: Outside | None = None
        self._structure_written = False
        self._float8_noted: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        self._with_first_gradient: set[str] = set()
        self.meter = Meter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing inside is the program's training (e.g. the zero-gradient step with which DCP makes state)."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def on_error(self, where: str, error: BaseException) -> None:
        """An exception that training may go on to swallow."""
        if not isinstance(error, StopRun):
            self.writer.write("error", where=where, type=type(error).__name__, message=str(error)[:500])

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """Losses are read before the backward runs: an optimizer that steps inside it must find its loss."""
        self._leave_if_stop_was_swallowed()
        if self._backward_depth == 0 and not self._paused:
            self._backwards += 1
            self._losses += [_value(tensor) for tensor in tensors]
            self._note_dtypes(tensors)
            if self._carried is None:  # the first backward since a step: what is left of the gradients before it?
                with self.meter.set_aside():
                    self._carried = squared_norm(self._pieces())
        self._backward_depth += 1

    def backward_ends(self) -> None:
        self._backward_depth -= 1
        if self._backward_depth == 0 and not self._paused:
            with self.meter.set_aside():
                self._norm_before_clip = squared_norm(self._pieces())
            self._gradients_wait = True

    def forward_begins(self, module: nn.Module) -> None:
        """Counts the forwards of a root that will have a backward.

        One without gradients, after a backward and before its step, leaves FSDP1's root unsharded over the step: its
        next forward computes with the weights from before it. The parent side must not blame the migration for that.
        """
        if self._paused:
            return
        if torch.is_grad_enabled() and self.wrapped.is_unit(module):
            if self._backward_depth == 0:
                self._unit_forwards[id(module)] += 1
            else:
                self._recomputed += 1
        if not self.wrapped.is_root(module):  # a checkpointed block inside runs without gradients too
            return
        if torch.is_grad_enabled():
            self._forwards += 1
            self._note_float8(module)
            self._optimizers.called(next(number for number, root in self._roots() if root is module))
        elif self._gradients_wait:
            self._gradients_wait = False
            self.writer.write("evaluated_before_step")

    def step_begins(self, optimizer: Optimizer) -> None:
        self._leave_if_stop_was_swallowed()
        if self._paused or self.stopping:
            return
        seen = self._optimizers.of(optimizer)
        seen.depth += 1
        if seen.depth > 1:  # a subclass whose step() calls its parent's
            return
        with self.meter.set_aside():
            mine = self._owned_by(optimizer)
            self._norm_at_step = squared_norm(mine)
            if seen.steps == 0:
                seen.held = frozenset(id(param) for group in optimizer.param_groups for param in group["params"])
                seen.roots = frozenset(int(piece.fqn.split(":")[0]) for piece in mine if ":" in piece.fqn)
                self._write_structure()
                self._write_optimizer(optimizer, seen, mine)

    def step_ends(self, optimizer: Optimizer) -> None:
        if self._paused or self.stopping:
            return
        seen = self._optimizers.of(optimizer)
        seen.depth -= 1
        if seen.depth:
            return
        self._gradients_wait = False
        seconds, peak = self.meter.take()
        hyper = hyper_parameters(optimizer)
        self.writer.write(
            "step",
            opt=seen.number,
            n=seen.steps,
            losses=self._take_losses(),
            norm_before=_number(self._norm_before_clip),
            norm_at_step=_number(self._norm_at_step),
            carried=_number(self._carried),
            hyper=hyper if hyper != seen.hyper else None,
            comm=self.comm.take(),
            forwards=self._forwards,
            unit_forwards=max(self._unit_forwards.values(), default=0),
            recomputed=self._recomputed,
            seconds=seconds,
            peak_bytes=peak,
        )
        seen.hyper, self._carried, self._forwards = hyper, None, 0
        self._unit_forwards.clear()
        self._recomputed = 0
        if seen.steps == 0:
            self.writer.write("state", opt=seen.number, bytes=state_bytes(optimizer))
        seen.steps += 1
        self.steps_made += 1
        self._attempted(seen)

    def attempts(self, optimizer: Optimizer) -> int:
        """How often `optimizer` was asked to step."""
        return self._optimizers.of(optimizer).attempts

    def step_skipped(self, optimizer: Optimizer, scale: float) -> None:
        """A GradScaler found infinities and did not call the optimizer."""
        seen = self._optimizers.of(optimizer)
        self.writer.write("skipped", opt=seen.number, scale=scale, losses=self._take_losses())
        self._attempted(seen)

    def finish(self, reason: str, **fields: object) -> None:
        """The last record. Sketches the weights first, if any optimizer stepped."""
        if self.stopping:
            return
        if reason in ("max_steps", "finished") and self._structure_written:
            self._write_pieces("param@end", self._pieces())
        trailing = self._take_losses()
        self.writer.write("end", reason=reason, trailing_losses=trailing, **fields)
        mark_end(self.settings.out, self.rank)

    def _attempted(self, seen: Seen) -> None:
        self._optimizers.attempted(seen, self._backwards)
        if not self.settings.max_steps or not self._optimizers.is_enough(self.settings.max_steps):
            return
        self.finish("max_steps")
        self.stopping = True
        if self._backward_depth == 0:  # else the engine would carry it through C++; raised where the backward ends
            raise StopRun

    def raise_if_stopping(self) -> None:
        if self.stopping and self._backward_depth == 0:
            raise StopRun

    def _leave_if_stop_was_swallowed(self) -> None:
        if self.stopping and self._backward_depth == 0:
            leave(self.settings.out, 1 if self.settings.dry_run_world is not None else self.world, 0)

    def _roots(self) -> list[tuple[int, nn.Module]]:
        return self.wrapped.numbered()

    def _pieces(self) -> list[Piece]:
        return list(pieces(self._roots(), self.world))

    def _owned_by(self, optimizer: Optimizer) -> list[Piece]:
        held = {id(param): param for group in optimizer.param_groups for param in group["params"]}
        known = [piece for piece in self._pieces() if held.keys() & set(piece.handles)]
        named = {handle for piece in known for handle in piece.handles}
        strangers = [
            plain_piece(f"?{number}.{place}", param, self.world)
            for number, group in enumerate(optimizer.param_groups)
            for place, param in enumerate(group["params"])
            if id(param) not in named
        ]
        return known + strangers

    def _note_dtypes(self, tensors: list[Tensor]) -> None:
        """One unit in the last place of a loss is the least by which two runs can differ."""
        new = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors} - self._loss_dtypes
        for dtype in sorted(new):
            self.writer.write("loss_dtype", dtype=dtype)
        self._loss_dtypes |= new

    def _note_float8(self, root: nn.Module) -> None:
        """At a root's first forward, and the first behind each step: the scales must be those of the weights then."""
        if not uses_float8() or self._float8_noted.get(root) == self.steps_made:
            return
        is_first = root not in self._float8_noted
        self._float8_noted[root] = self.steps_made
        with self.meter.set_aside():
            self.writer.write("float8", first=is_first, **float8_state(root))

    def _take_losses(self) -> list[float]:
        losses, self._losses = self._losses, []
        return [_number(loss) or 0.0 for loss in losses]

    def _write_structure(self) -> None:
        if self._structure_written:
            return
        self._structure_written = True
        self.start.training_begins(self._roots())
        self.writer.write("flags", **numeric_flags())
        self.writer.write("units", units=[asdict(unit) for unit in units(self._roots())])

    def _write_optimizer(self, optimizer: Optimizer, seen: Seen, mine: list[Piece]) -> None:
        self.writer.write(
            "optimizer",
            opt=seen.number,
            cls=type(optimizer).__name__,
            params=group_names(optimizer, names_by_handle(mine)),
            hyper=hyper_parameters(optimizer),
            stirs=moves_without_gradient(optimizer),
        )
        seen.hyper = hyper_parameters(optimizer)
        first = [piece for piece in mine if piece.fqn not in self._with_first_gradient]
        self._with_first_gradient |= {piece.fqn for piece in first}
        self._write_pieces("grad@0", first)

    def _write_pieces(self, which: str, some: list[Piece]) -> None:
        for piece in some:
            values = piece.grad if which == "grad@0" else piece.values
            fields: dict[str, object] = {"which": which, "fqn": piece.fqn, "rep": piece.replicas, "N": piece.numel}
            if values is None:
                self.writer.write("missing", local=piece.values.numel(), **fields)
            else:
                self.writer.write("piece", dtype=str(values.dtype), **fields, **sketch(values, piece.index))


def _value(tensor: Tensor) -> Tensor:
    """A copy of a loss, summed if it is not a scalar; stays on its device, so that the program does not wait."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.detach().double().sum()


def _number(value: Tensor | None) -> float | None:
    return None if value is None else float(value)
