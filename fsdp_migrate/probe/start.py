"""What happens once to each FSDP root, at its first forward: weights are fingerprinted, and perturbed or transplanted.

The first forward is the one moment at which every kind of initialisation (constructor, broadcast, `to_empty` and reset,
a loaded checkpoint) is over and nothing was computed yet.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor, nn

from fsdp_migrate.probe.names import clean
from fsdp_migrate.probe.settings import Settings
from fsdp_migrate.probe.sketch import hashed, sketch
from fsdp_migrate.probe.transplant import load_weights, save_weights
from fsdp_migrate.probe.views import Piece, pieces
from fsdp_migrate.probe.writer import RecordWriter

_EDGE = 1024
"""Elements at either end of a weight that are compared between ranks when it is handed to FSDP."""


class Start:
    """Knows which roots were already prepared."""

    def __init__(self, settings: Settings, rank: int, world: int, writer: RecordWriter) -> None:
        self._settings, self._rank, self._world, self._writer = settings, rank, world, writer
        self._pending: set[int] = set()

    def handed_over(self, module: nn.Module, api: str) -> None:
        """`module` is about to be sharded: note what this rank holds now, before only a slice of it is left.

        If ranks hold different weights at this point and nothing evens them out, each will contribute slices of its own
        and the sharded model is a patchwork: the mark of a dropped `sync_module_states`.
        """
        digests: list[tuple[str, float | None]] = []
        for name, param in module.named_parameters():
            if type(param) is nn.Parameter:
                digests.append((name, None if param.is_meta else _edges(param)))
        if digests:
            self._writer.write("handed", api=api, cls=type(module).__name__, digests=digests)

    def expect(self, module: nn.Module) -> None:
        """`module` is sharded; its first forward is still to come."""
        self._pending.add(id(module))

    def before_forward(self, module: nn.Module, roots: list[nn.Module]) -> None:
        """Called before every forward of every module; cheap unless `module` is a root that waits."""
        if id(module) not in self._pending or all(module is not root for root in roots):
            return
        self._prepare(module, roots, late=False)

    def waits(self, module: nn.Module) -> bool:
        return id(module) in self._pending

    def prepare_late(self, roots: list[nn.Module]) -> None:
        """For roots that trained without a forward of their own, such as through a registered forward method."""
        for root in roots:
            if id(root) in self._pending:
                self._prepare(root, roots, late=True)

    @torch.no_grad()
    def _prepare(self, root: nn.Module, roots: list[nn.Module], late: bool) -> None:
        self._pending -= {id(module) for module in root.modules()}
        number = next(i for i, known in enumerate(roots) if known is root)
        mine = [p for p in pieces(roots, self._world) if p.fqn.startswith(f"{number}:")]
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


def _edges(param: Tensor) -> float:
    flat = param.detach().reshape(-1)
    ends = torch.cat([flat[:_EDGE], flat[-_EDGE:]]).double()
    weights = torch.arange(1, ends.numel() + 1, dtype=torch.float64, device=ends.device).sqrt()
    return float((ends * weights).sum())
