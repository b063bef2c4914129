"""The options of the commands that run programs: `check` and `record`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_WHAT = "What to run"
_COMPARE = "What to compare"
_HOW = "How to start it"
_RESULTS = "What is left"


def _option(panel: str, text: str, metavar: str | None = None, *names: str) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel)


RunGpus = Annotated[int | None, _option(_WHAT, "Run on N GPUs.", "N")]
RunCpus = Annotated[int | None, _option(_WHAT, "Run on N CPU processes and gloo; CUDA calls too.", "N")]
Module = Annotated[str | None, _option(_WHAT, "Run this module, as python -m does.", "NAME", "--module", "-m")]
Baseline = Annotated[str | None, _option(_WHAT, "The FSDP1 program: PATH, or git:REV.", "WHERE")]
DryRunWorld = Annotated[
    int | None,
    _option(
        _WHAT,
        "Compare structure and communication as on N ranks, in one process without any GPU; memory is estimated.",
        "N",
    ),
]
Seed = Annotated[int | None, _option(_WHAT, "Seed every process, should the program not do so.", "N")]

Expect = Annotated[
    str | None,
    _option(_COMPARE, "Compare an upgrade with the FSDP2 program it was made of: same, or 'loss within 2%'.", "WHAT"),
]
Steps = Annotated[int | None, _option(_COMPARE, "Optimizer steps. [20]", "N")]
FloorRuns = Annotated[
    int | None,
    _option(
        _COMPARE, "Runs of the original from weights one ulp away, which tell how far rounding alone goes. [1]", "N"
    ),
]
Init = Annotated[
    str | None,
    _option(
        _COMPARE,
        "Start both from the original's weights: copy, as-is, or auto (where a deferred one draws others).",
        "WAY",
    ),
]
ResumeArgs = Annotated[
    str | None,
    _option(
        _COMPARE,
        'Run again with these arguments too, such as "--resume": it must go on where its checkpoint was saved.',
        "ARGS",
    ),
]
FromBaselineCheckpoint = Annotated[
    bool | None, _option(_COMPARE, "Resume from the original's checkpoint as well.", None, "--from-baseline-checkpoint")
]
Allow = Annotated[list[str] | None, _option(_COMPARE, "A check that may fail, such as S3. Repeatable.", "CHECK")]

Nnodes = Annotated[
    int | None,
    _option(_HOW, "Nodes. Call the same command on each, with a folder for the records that all share.", "N"),
]
NodeRank = Annotated[int | None, _option(_HOW, "Which of them this is.", "K")]
RdzvEndpoint = Annotated[str | None, _option(_HOW, "Where they meet.", "HOST:PORT")]
TorchrunArgs = Annotated[str | None, _option(_HOW, "More for torchrun, as it is.", "ARGS")]
Launcher = Annotated[
    str | None,
    _option(_HOW, 'Instead of torchrun: "srun -N2 -n16 {probe}"; {n} is the number after --run-gpus.', "COMMAND"),
]
HangTimeout = Annotated[float | None, _option(_HOW, "Seconds without a step after which it hangs. [120]", "S")]
StartTimeout = Annotated[float | None, _option(_HOW, "The same before the first step. [600]", "S")]
Python = Annotated[str | None, _option(_HOW, "The Python to run it with, if not this one.", "PATH")]
Spawns = Annotated[
    str | None,
    _option(_HOW, "Whether the program starts its own processes: yes, no, or auto (looks for mp.spawn).", "ANSWER"),
]
Redirect = Annotated[
    str | None,
    _option(
        _HOW, "With --run-cpus, whether CUDA calls go to the CPU: on, off, or auto (when there are some).", "ANSWER"
    ),
]

Fresh = Annotated[
    bool | None,
    _option(_HOW, "Run the original although nothing about it has changed since the last check.", None, "--fresh"),
]
Keep = Annotated[str | None, _option(_RESULTS, "Leave the records of the runs here.", "DIR")]
Html = Annotated[str | None, _option(_RESULTS, "Write a page with the curves of both runs.", "FILE")]

Script = Annotated[Path | None, typer.Argument(help="The training script.")]
Recorded = Annotated[Path, typer.Option("--output", help="The folder for the recording.", metavar="DIR")]
SaveInit = Annotated[bool, _option(_COMPARE, "Keep the initial weights, for --init-from.", None, "--save-init")]
InitFrom = Annotated[
    Path | None,
    _option(
        _COMPARE,
        "A recording made with --save-init: if this program draws other weights, run it again from those.",
        "DIR",
    ),
]
