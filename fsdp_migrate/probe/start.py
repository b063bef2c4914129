"""What happens once to each FSDP root, at its first forward: weights are fingerprinted, and perturbed or transplanted.

The first forward is the one moment at which every kind of initialisation (constructor, broadcast, `to_empty` and reset,
a loaded checkpoint) is over and nothing was computed yet.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel

from fsdp_migrate.probe.float8 import local_part
from fsdp_migrate.probe.names import clean, join
from fsdp_migrate.probe.settings import Settings
from fsdp_migrate.probe.sketch import hashed, sketch
from fsdp_migrate.probe.transplant import load_weights, save_weights
from fsdp_migrate.probe.units import fsdp2_groups, fsdp2_sharded
from fsdp_migrate.probe.views import Piece, pieces
from fsdp_migrate.probe.writer import RecordWriter

_EDGE = 1024
"""Elements at either end of a weight that are compared between ranks when it is handed to FSDP."""


class Start:
    """Knows which roots were already prepared."""

    def __init__(self, settings: Settings, rank: int, world: int, writer: RecordWriter) -> None:
        self._settings, self._rank, self._world, self._writer = settings, rank, world, writer
        self._pending: set[int] = set()
        self._handed: dict[tuple[int, str], tuple[int, int]] = {}
        """Which record of a handover, and which place in it, a module's parameter has."""
        self._handovers = 0
        self._as_sharded: dict[int, float | None] = {}
        self._before_training: dict[str, float] | None = None

    def handed_over(self, module: nn.Module, api: str, evened: bool = False) -> None:
        """`module` is about to be sharded: note what this rank holds now, before only a slice of it is left.

        If ranks hold different weights at this point and nothing evens them out, each will contribute slices of its own
        and the sharded model is a patchwork: the mark of a dropped `sync_module_states`, which has them `evened` out.
        """
        digests: list[tuple[str, float | None]] = []
        seen: set[int] = set()
        wrappers = [each for each in module.modules() if isinstance(each, FullyShardedDataParallel)]
        wrapped = {
            id(each) for wrapper in wrappers for each in wrapper.modules()
        }  # shards already, unlike on each rank
        for prefix, owner in module.named_modules():
            if id(owner) in wrapped:
                continue
            for name, param in owner._parameters.items():
                if type(param) is nn.Parameter and id(param) not in seen:
                    seen.add(id(param))
                    self._handed[id(owner), name] = (self._handovers, len(digests))
                    digests.append((clean(join(prefix, name)), None if param.is_meta else _edges(param)))
        if digests:
            self._handovers += 1
            self._writer.write("handed", api=api, cls=type(module).__name__, evened=evened, digests=digests)

    def sharded(self, group: Any) -> None:
        """`fully_shard` has cut up the weights of a unit: what this rank holds of them now may be drawn or loaded anew
        before it is used, and then it does not matter what it was."""
        for fsdp_param in group.fsdp_params:
            self._as_sharded[id(fsdp_param)] = _digest(fsdp_param.sharded_param)

    def expect(self, module: nn.Module) -> None:
        """`module` is sharded; its first forward is still to come.

        Once training has begun it is no start any more: a model that is made then has what was trained, or saved.
        """
        if self._before_training is None:
            self._pending.add(id(module))

    def before_forward(self, module: nn.Module, roots: list[tuple[int, nn.Module]]) -> None:
        """Called before every forward of every module; cheap unless `module` is a root that waits."""
        if id(module) not in self._pending or all(module is not root for _, root in roots):
            return
        self._prepare(module, roots, late=False)

    def waits(self, module: nn.Module) -> bool:
        return id(module) in self._pending

    def training_begins(self, roots: list[tuple[int, nn.Module]]) -> None:
        """The first optimizer is about to step. Roots that have no forward of their own, such as behind a registered
        forward method, are looked at now; those that nothing was computed with yet, when their turn comes."""
        with_gradient = {p.fqn.split(":")[0] for p in pieces(roots, self._world) if p.grad is not None}
        for number, root in roots:
            if id(root) in self._pending and str(number) in with_gradient:
                self._prepare(root, roots, late=True)
        waiting = [(number, root) for number, root in roots if id(root) in self._pending]
        self._before_training = {p.fqn: _edges(p.values) for p in pieces(waiting, self._world)}

    @torch.no_grad()
    def _prepare(self, root: nn.Module, roots: list[tuple[int, nn.Module]], late: bool) -> None:
        self._pending -= {id(module) for module in root.modules()}
        number = next(i for i, known in roots if known is root)
        mine = list(pieces([(number, root)], self._world))
        known = self._before_training
        if known is not None and any(known.get(p.fqn) != _edges(p.values) for p in mine):
            return  # an average of the trained weights, or a copy of them
        self._note_redrawn(number, root)
        self._writer.write("autocast", dtype=_autocast_dtype(mine))
        self._write("param@init", mine)
        self._write_buffers(number, root)
        if late:
            return
        if self._settings.save_init is not None:
            save_weights(self._settings.save_init, self._rank, number, mine)
        if self._settings.load_init is not None:
            moved = load_weights(self._settings.load_init, number, mine)
            self._writer.write("transplant", root=number, params=moved)
            self._write("param@start", mine)
        if self._settings.perturb is not None:
            for piece in mine:
                perturb(piece, self._settings.perturb)

    def _note_redrawn(self, number: int, root: nn.Module) -> None:
        """Say which weights this rank no longer holds as `fully_shard` left them."""
        infos = [
            fsdp_param._module_info
            for _, group in fsdp2_groups(root)
            for fsdp_param in group.fsdp_params
            if self._as_sharded.get(id(fsdp_param)) != _digest(fsdp2_sharded(fsdp_param))
        ]
        if infos:
            places = [self._handed.get((id(info.module), info.param_name), (-1, -1)) for info in infos]
            self._writer.write("redrawn", root=number, handed=places)

    def _write(self, which: str, some: list[Piece]) -> None:
        for piece in some:
            self._writer.write(
                "piece",
                which=which,
                fqn=piece.fqn,
                rep=piece.replicas,
                N=piece.numel,
                dtype=str(piece.values.dtype),
                **sketch(piece.values, piece.index),
            )

    def _write_buffers(self, number: int, root: nn.Module) -> None:
        for name, buffer in root.named_buffers():
            if buffer.is_floating_point():
                values = buffer.detach().double()
                self._writer.write(
                    "buffer", fqn=f"{number}:{clean(name)}", sum=float(values.sum()), sq=float((values**2).sum())
                )


def perturb(piece: Piece, seed: int) -> None:
    """Move each element by one unit in the last place, up or down by a hash of its name and global position.

    The global random state is not touched: drawing from it would shift every dropout mask of the run, and the "noise
    floor" would measure that (0.56 instead of 7e-7 on step-0 gradients in the prototype). Replicas move alike.
    """
    values = piece.values
    if not values.numel() or not values.is_floating_point():
        return
    salt = zlib.crc32(piece.fqn.encode()) + (seed << 32)
    up = (hashed(piece.index(0, values.numel(), values.device), salt) >> 17) & 1
    values.copy_(one_ulp(values, up.bool()))


def one_ulp(values: Tensor, up: Tensor) -> Tensor:
    """The neighbouring representable number, upwards where `up`."""
    if values.dtype == torch.float16:  # torch.nextafter has no half kernel on the CPU
        return torch.where(up, values * (1 + 2**-10), values * (1 - 2**-10))
    infinity = torch.full_like(values, float("inf"))
    return torch.nextafter(values, torch.where(up, infinity, -infinity))


def _autocast_dtype(some: list[Piece]) -> str | None:
    device = some[0].values.device.type if some else "cpu"
    return str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else None


def _digest(param: Tensor) -> float | None:
    local = local_part(param)
    return None if local.is_meta else _edges(local)


def _edges(param: Tensor) -> float:
    flat = param.detach().reshape(-1)
    ends = torch.cat([flat[:_EDGE], flat[-_EDGE:]]).double()
    weights = torch.arange(1, ends.numel() + 1, dtype=torch.float64, device=ends.device).sqrt()
    return float((ends * weights).sum())
