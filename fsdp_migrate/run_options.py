"""The options of the commands that run programs: `check` and `record`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_WHAT = "What to run"
_COMPARE = "What to compare"
_HOW = "How to start it"
_RESULTS = "What is left"

RunGpus = Annotated[int | None, typer.Option(help="Run on N GPUs.", metavar="N", rich_help_panel=_WHAT)]
RunCpus = Annotated[
    int | None,
    typer.Option(help="Run on N CPU processes and gloo; CUDA calls too.", metavar="N", rich_help_panel=_WHAT),
]
Module = Annotated[
    str | None,
    typer.Option("--module", "-m", help="Run this module, as python -m does.", metavar="NAME", rich_help_panel=_WHAT),
]
Baseline = Annotated[
    str | None, typer.Option(help="The FSDP1 program: PATH, or git:REV.", metavar="WHERE", rich_help_panel=_WHAT)
]
DryRunWorld = Annotated[
    int | None,
    typer.Option(
        help="Compare structure and communication as on N ranks, in one process without any GPU; memory is estimated.",
        metavar="N",
        rich_help_panel=_WHAT,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Seed every process, should the program not do so.", metavar="N", rich_help_panel=_WHAT),
]

Expect = Annotated[
    str | None,
    typer.Option(
        help="Compare an upgrade with the FSDP2 program it was made of: same, or 'loss within 2%'.",
        metavar="WHAT",
        rich_help_panel=_COMPARE,
    ),
]
Steps = Annotated[int | None, typer.Option(help="Optimizer steps. [20]", metavar="N", rich_help_panel=_COMPARE)]
FloorRuns = Annotated[
    int | None,
    typer.Option(
        help="Runs of the original from weights one ulp away, which tell how far rounding alone goes. [1]",
        metavar="N",
        rich_help_panel=_COMPARE,
    ),
]
Init = Annotated[
    str | None,
    typer.Option(
        help="Start both from the original's weights: copy, as-is, or auto (where a deferred one draws others).",
        metavar="WAY",
        rich_help_panel=_COMPARE,
    ),
]
ResumeArgs = Annotated[
    str | None,
    typer.Option(
        help='Run again with these arguments too, such as "--resume": it must go on where its checkpoint was saved.',
        metavar="ARGS",
        rich_help_panel=_COMPARE,
    ),
]
FromBaselineCheckpoint = Annotated[
    bool | None,
    typer.Option(
        "--from-baseline-checkpoint",
        help="Resume from the original's checkpoint as well.",
        rich_help_panel=_COMPARE,
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(help="A check that may fail, such as S3. Repeatable.", metavar="CHECK", rich_help_panel=_COMPARE),
]

Nnodes = Annotated[
    int | None,
    typer.Option(
        help="Nodes. Call the same command on each, with a folder for the records that all share.",
        metavar="N",
        rich_help_panel=_HOW,
    ),
]
NodeRank = Annotated[int | None, typer.Option(help="Which of them this is.", metavar="K", rich_help_panel=_HOW)]
RdzvEndpoint = Annotated[str | None, typer.Option(help="Where they meet.", metavar="HOST:PORT", rich_help_panel=_HOW)]
TorchrunArgs = Annotated[
    str | None, typer.Option(help="More for torchrun, as it is.", metavar="ARGS", rich_help_panel=_HOW)
]
Launcher = Annotated[
    str | None,
    typer.Option(
        help='Instead of torchrun: "srun -N2 -n16 {probe}"; {n} is the number after --run-gpus.',
        metavar="COMMAND",
        rich_help_panel=_HOW,
    ),
]
HangTimeout = Annotated[
    float | None,
    typer.Option(help="Seconds without a step after which it hangs. [120]", metavar="S", rich_help_panel=_HOW),
]
StartTimeout = Annotated[
    float | None, typer.Option(help="The same before the first step. [600]", metavar="S", rich_help_panel=_HOW)
]
Python = Annotated[
    str | None, typer.Option(help="The Python to run it with, if not this one.", metavar="PATH", rich_help_panel=_HOW)
]
Spawns = Annotated[
    str | None,
    typer.Option(
        help="Whether the program starts its own processes: yes, no, or auto (looks for mp.spawn).",
        metavar="ANSWER",
        rich_help_panel=_HOW,
    ),
]
Redirect = Annotated[
    str | None,
    typer.Option(
        help="With --run-cpus, whether CUDA calls go to the CPU: on, off, or auto (when there are some).",
        metavar="ANSWER",
        rich_help_panel=_HOW,
    ),
]

Fresh = Annotated[
    bool | None,
    typer.Option(
        "--fresh",
        help="Run the original although nothing about it has changed since the last check.",
        rich_help_panel=_HOW,
    ),
]
Keep = Annotated[
    str | None, typer.Option(help="Leave the records of the runs here.", metavar="DIR", rich_help_panel=_RESULTS)
]
Html = Annotated[
    str | None,
    typer.Option(help="Write a page with the curves of both runs.", metavar="FILE", rich_help_panel=_RESULTS),
]

Script = Annotated[Path | None, typer.Argument(help="The training script.")]
Recorded = Annotated[Path, typer.Option("--output", help="The folder for the recording.", metavar="DIR")]
SaveInit = Annotated[
    bool, typer.Option("--save-init", help="Keep the initial weights, for --init-from.", rich_help_panel=_COMPARE)
]
InitFrom = Annotated[
    Path | None,
    typer.Option(
        help="A recording made with --save-init: if this program draws other weights, run it again from those.",
        metavar="DIR",
        rich_help_panel=_COMPARE,
    ),
]
