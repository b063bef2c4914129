"""What the caller of a parity check asks for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fsdp_migrate.verify.expectation import Expectation

Device = Literal["cpu", "cuda"]
Init = Literal["auto", "copy", "as-is"]


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Two versions of one program, and how to run them.

    `original` and `rewritten` are the script of each version: a path, absolute or relative to the root of its tree;
    with `as_module` a dotted module name. `original_root` and `rewritten_root` are the two trees (default: the
    directory of the script). Each run gets its own scratch copy of its tree as working directory, so that the user's
    files are safe. `cwd` is the directory inside the tree to start in.

    `world_size` is the number of processes of one node, `nodes` the number of nodes of a cluster job. With more than
    one, either `launcher` starts the processes of all nodes, or the check is called on each node with that node's
    `node_rank` and torchrun's `rdzv_endpoint`, and with a `keep` that all nodes share: each node reads the records of
    all and comes to the same answer. `torchrun_args` go to torchrun as they are. `launcher` is a command in which
    `{probe}` stands for the program and `{n}` for the processes of a node.

    With `resume_args` the program is started a second time with these arguments added, and must go on where the
    checkpoint it found was saved; `from_baseline_checkpoint` does the same with the rewritten program and a checkpoint
    that the original saved. `dry_run_world` compares the structure at that world size in one process.

    `expect` is what is stated of an upgrade: the original is then the FSDP2 program that it was made of.

    `checkpoint_format` is the one that the program was rewritten for: what it saves may differ by that much.

    With `reuse` the original's runs of an earlier check are used again, as long as nothing about them has changed.

    `seed` seeds every process before the program begins, for a program that does not do so itself.

    `steps` is the number of optimizer steps compared. `floor_runs` is how many times the original is run again from
    weights moved by one unit in the last place, to learn how far rounding alone takes it. `allow` holds the ids of
    checks whose failure is intended. `keep` is a directory to leave records and logs in; with `keep_files` also what
    the original and the rewritten program wrote, each in its scratch copy. `hang_timeout` is in seconds
    without a new record from any rank, `start_timeout` the same before the first step.
    """

    original: Path
    rewritten: Path
    world_size: int
    device: Device = "cpu"
    steps: int = 20
    args: tuple[str, ...] = ()
    as_module: bool = False
    original_root: Path | None = None
    rewritten_root: Path | None = None
    cwd: Path = Path(".")
    floor_runs: int = 1
    keep: Path | None = None
    keep_files: bool = False
    hang_timeout: float = 120.0
    start_timeout: float = 600.0
    allow: tuple[str, ...] = ()
    seed: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    init: Init = "auto"
    redirect: Literal["auto", "on", "off"] = "auto"
    spawns: Literal["auto", "yes", "no"] = "auto"
    python: str = sys.executable
    torchrun_args: tuple[str, ...] = ()
    launcher: str | None = None
    nodes: int = 1
    node_rank: int | None = None
    rdzv_endpoint: str | None = None
    resume_args: tuple[str, ...] | None = None
    from_baseline_checkpoint: bool = False
    dry_run_world: int | None = None
    checkpoint_format: str = "keep"
    reuse: bool = False
    expect: Expectation | None = None

    @property
    def ranks(self) -> int:
        """Processes in all."""
        return self.world_size * self.nodes

    @property
    def joins_others(self) -> bool:
        """Whether this is one of several calls of the same check, each on its own node."""
        return self.nodes > 1 and self.launcher is None

    def tree(self, side: Side) -> Path:
        """The root of the version's tree."""
        root = self.original_root if side == "original" else self.rewritten_root
        return (root or self.script(side).parent).resolve()

    @property
    def trees(self) -> tuple[Path, Path]:
        return self.tree("original"), self.tree("rewritten")

    def script(self, side: Side) -> Path:
        return self.original if side == "original" else self.rewritten

    def target(self, side: Side) -> str:
        """The program as it is named inside the tree: a path relative to its root, or the module name."""
        script = self.script(side)
        if self.as_module:
            return str(script)
        root = self.tree(side)
        full = script if script.is_absolute() else _first_existing(root / script, script)
        return str(full.resolve().relative_to(root))


Side = Literal["original", "rewritten"]


def _first_existing(*paths: Path) -> Path:
    return next((path for path in paths if path.exists()), paths[0])
