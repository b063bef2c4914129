"""The command line: options in, one call each, exit code out.

Nothing heavy is imported up here. `--help` and a tree without FSDP are answered without LibCST, and torch is only ever
imported by the programs that `check --run-gpus` starts.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from . import __version__, config
from . import run_options as run
from .config import Config, ConfigError
from .console import err, out
from .help import FLOAT8_RECIPES, Grouped, WithProgramArguments, WithRecipe

app = typer.Typer(
    help="Move PyTorch training programs from FSDP1 to FSDP2, and prove that they train the same.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Paths = Annotated[
    list[Path] | None, typer.Argument(help="Training scripts, or folders; - is standard input.", readable=False)
]
Exclude = Annotated[list[str] | None, typer.Option(help="Leave out files, as a line of a gitignore would. Repeatable.")]
Select = Annotated[list[str] | None, typer.Option(help="Report only these rules: FM101, or FM1 for all FM1xx.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Do not report these rules.")]
Strict = Annotated[bool | None, typer.Option("--strict", help="Findings to review fail the run too.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", help="Processes that read the imports of 400 files or more; 0: one a processor."),
]
NoCache = Annotated[bool | None, typer.Option("--no-cache", help="Look at everything again, and keep nothing.")]
Quiet = Annotated[bool | None, typer.Option("--quiet", "-q", help="Only what needs you, and the last line.")]
StdinName = Annotated[Path | None, typer.Option(help="What the file on standard input is called.")]
Format = Annotated[str | None, typer.Option(help=f"One of {', '.join(config.OUTPUT_FORMATS)}.")]
CheckpointFormat = Annotated[str | None, typer.Option(help="Full checkpoints: keep them one file, or dcp.")]
ReadFsdp1Files = Annotated[
    bool | None,
    typer.Option("--read-fsdp1-files", help="Files by rank (LOCAL_STATE_DICT): load those that FSDP1 saved, too."),
]
TorchVersion = Annotated[str | None, typer.Option(help="The oldest torch that the output has to run on.")]


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        out(f"fsdp-migrate {__version__}\n")
        raise typer.Exit


@app.command()
def rewrite(
    context: typer.Context,
    paths: Paths = None,
    diff: Annotated[bool, typer.Option("--diff", help="Print a diff that git apply takes; write nothing.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write a copy of the program here instead.")] = None,
    checkpoint_format: CheckpointFormat = None,
    read_fsdp1_files: ReadFsdp1Files = None,
    torch_version: TorchVersion = None,
    exclude: Exclude = None,
    select: Select = None,
    ignore: Ignore = None,
    strict: Strict = None,
    jobs: Jobs = None,
    quiet: Quiet = None,
    output_format: Format = None,
    stdin_filename: StdinName = None,
) -> None:
    """Rewrite a program from FSDP1 to FSDP2: the scripts named, and the project's own files that they import.

    Exit code 0: all done. 1: something needs you. 2: a file could not be read or written.
    """
    from .commands import rewrite as command

    options = _options(context)
    if diff and output:
        raise typer.BadParameter("--diff writes nothing: leave out --output")
    chosen = _paths(paths, options)
    if not chosen:
        raise typer.BadParameter("name the scripts or folders to rewrite")
    _finish(lambda: command.run(chosen, options, diff, output, stdin_filename))


@app.command(cls=WithRecipe)
def upgrade(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="A training script that shards with fully_shard.", readable=False)],
    reshard_after_forward: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=2, help="Units stay split over N ranks, those of a node, between forward and backward."
        ),
    ] = None,
    prefetch: Annotated[bool, typer.Option("--prefetch", help="Each unit is told which one comes next.")] = False,
    float8: Annotated[
        str | None,
        typer.Option(
            metavar="[RECIPE]",
            help="Linear layers compute in float8 (torchao): tensorwise, rowwise, rowwise_with_gw_hp.",
        ),
    ] = None,
    per_unit: Annotated[bool, typer.Option("--compile", help="Each unit is compiled by itself.")] = False,
    async_checkpoint: Annotated[
        bool, typer.Option("--async-checkpoint", help="Distributed checkpoints are written while training goes on.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print a diff that git apply takes; write nothing.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write a copy of the program here instead.")] = None,
    exclude: Exclude = None,
    strict: Strict = None,
    quiet: Quiet = None,
    output_format: Format = None,
) -> None:
    """Write into a program that is FSDP2 what FSDP1 could not do. Each option is a choice of yours: none is a default.

    Exit code 0: all done. 1: something needs you. 2: nothing to upgrade, or a file could not be read or written.
    """
    from .commands import upgrade as command

    options = _options(context)
    if diff and output:
        raise typer.BadParameter("--diff writes nothing: leave out --output")
    if float8 is not None and float8 not in FLOAT8_RECIPES:
        raise typer.BadParameter(f"--float8 takes one of {', '.join(FLOAT8_RECIPES)}, not {float8!r}")
    units = {"reshard_after_forward": reshard_after_forward, "prefetch": prefetch}
    given = {**units, "float8": float8, "compile": per_unit, "async_checkpoint": async_checkpoint}
    asked = {name: str(value) for name, value in given.items() if value}
    _finish(lambda: command.run(script, asked, options, diff, output))


@app.command(cls=WithProgramArguments)
def check(
    context: typer.Context,
    paths: Paths = None,
    checkpoint_format: CheckpointFormat = None,
    read_fsdp1_files: ReadFsdp1Files = None,
    torch_version: TorchVersion = None,
    exclude: Exclude = None,
    select: Select = None,
    ignore: Ignore = None,
    strict: Strict = None,
    jobs: Jobs = None,
    no_cache: NoCache = None,
    quiet: Quiet = None,
    output_format: Format = None,
    stdin_filename: StdinName = None,
    run_gpus: run.RunGpus = None,
    run_cpus: run.RunCpus = None,
    dry_run_world: run.DryRunWorld = None,
    baseline: run.Baseline = None,
    module: run.Module = None,
    seed: run.Seed = None,
    steps: run.Steps = None,
    floor_runs: run.FloorRuns = None,
    init: run.Init = None,
    resume_args: run.ResumeArgs = None,
    from_baseline_checkpoint: run.FromBaselineCheckpoint = None,
    allow: run.Allow = None,
    expect: run.Expect = None,
    nnodes: run.Nnodes = None,
    node_rank: run.NodeRank = None,
    rdzv_endpoint: run.RdzvEndpoint = None,
    torchrun_args: run.TorchrunArgs = None,
    launcher: run.Launcher = None,
    hang_timeout: run.HangTimeout = None,
    start_timeout: run.StartTimeout = None,
    python: run.Python = None,
    spawns: run.Spawns = None,
    redirect: run.Redirect = None,
    fresh: run.Fresh = None,
    keep: run.Keep = None,
    html: run.Html = None,
) -> None:
    """Report FSDP1 that is left and FSDP2 used wrongly; with --run-gpus or --run-cpus, compare the training too.

    What follows -- goes to the training script.

    Exit code 0: clean, or the same training. 1: findings, or not the same. 2: an error, or it could not be decided.
    """
    options = _options(context)
    asked = _given_for_a_run(context)
    idle = next((option for option in asked if option in config.NOT_IN_A_DRY_RUN), None)
    if options.dry_run_world and idle:
        raise typer.BadParameter(f"a dry run computes nothing: {idle} has no effect on it")
    if from_baseline_checkpoint and not options.resume_args:
        raise typer.BadParameter("--from-baseline-checkpoint needs --resume-args, which make the program resume")
    if options.kinds_of_run and (asked or not paths):
        from .commands import parity

        script = _script(paths or [], options)
        _finish(lambda: parity.run(script, options))
    if asked:
        raise typer.BadParameter(f"{asked[0]} goes with --run-gpus N, --run-cpus N or --dry-run-world N")
    from .commands import lint

    chosen = _paths(paths, options) or [Path()]
    _finish(lambda: lint.run(chosen, options, stdin_filename))


@app.command(cls=WithProgramArguments)
def record(
    context: typer.Context,
    output: run.Recorded,
    script: run.Script = None,
    quiet: Quiet = None,
    run_gpus: run.RunGpus = None,
    run_cpus: run.RunCpus = None,
    module: run.Module = None,
    seed: run.Seed = None,
    steps: run.Steps = None,
    floor_runs: run.FloorRuns = None,
    save_init: run.SaveInit = False,
    init_from: run.InitFrom = None,
    nnodes: run.Nnodes = None,
    node_rank: run.NodeRank = None,
    rdzv_endpoint: run.RdzvEndpoint = None,
    torchrun_args: run.TorchrunArgs = None,
    launcher: run.Launcher = None,
    hang_timeout: run.HangTimeout = None,
    start_timeout: run.StartTimeout = None,
    python: run.Python = None,
    spawns: run.Spawns = None,
    redirect: run.Redirect = None,
) -> None:
    """Run one program and record its training, for `compare`: the first half of a check, as a job of its own.

    What follows -- goes to the training script.

    Exit code 0: recorded. 2: it could not be run.
    """
    options = _options(context)
    if not options.run_gpus and not options.run_cpus:
        raise typer.BadParameter("say where to run it: --run-gpus N or --run-cpus N")
    from .commands import parity

    chosen = _script([script] if script else [], options)
    _finish(lambda: parity.record(chosen, options, output, save_init, init_from))


@app.command(cls=Grouped)
def compare(
    context: typer.Context,
    original: Annotated[Path, typer.Argument(help="The recording of the FSDP1 program.")],
    rewritten: Annotated[Path, typer.Argument(help="The recording of the FSDP2 program.")],
    quiet: Quiet = None,
    output_format: Format = None,
    allow: run.Allow = None,
    html: run.Html = None,
) -> None:
    """Compare two recordings: the second half of a check. Nothing is run.

    Exit code 0: the same training. 1: not the same. 2: it could not be decided.
    """
    options = _options(context)
    from .commands import parity

    _finish(lambda: parity.compare(original, rewritten, options))


@app.command()
def explain(code: Annotated[str, typer.Argument(help="A rule, such as FM101.")]) -> None:
    """Tell what a rule does and why, with an example."""
    from .commands import rules

    _finish(lambda: rules.explain(code))


@app.command("rules")
def list_rules() -> None:
    """List all rules."""
    from .commands import rules

    _finish(rules.list_all)


def _options(context: typer.Context) -> Config:
    """The configuration file under the options given; a mistake in either ends the run with exit code 2.

    A script and a kind of run that are given replace those of the file.
    """
    names = {field.name for field in fields(Config)} - {"paths", "script"}
    given = {name: value for name, value in context.params.items() if name in names and value not in (None, (), [])}
    if given.keys() & set(config.KINDS_OF_RUN):
        given = {**dict.fromkeys(config.KINDS_OF_RUN, 0), **given}
    if context.params.get("paths") or context.params.get("script"):
        if "module" in given:
            raise typer.BadParameter("give a SCRIPT or --module NAME, not both")
        given["module"] = ""
    try:
        options = config.load(Path.cwd()).override(**given, args=context.meta.get("program_args"))
    except ConfigError as error:
        err(f"error: {error}\n")
        raise typer.Exit(2) from None
    if len(options.kinds_of_run) > 1:
        raise typer.BadParameter(f"give one of {', '.join(options.kinds_of_run)}")
    return options


def _given_for_a_run(context: typer.Context) -> list[str]:
    """The options on the command line that only a run has."""
    given = [
        max(param.opts, key=len)
        for param in context.command.params
        if getattr(param, "rich_help_panel", None) and context.params[param.name or ""] not in (None, (), [])
    ]
    return given + (["what follows --"] if context.meta.get("program_args") else [])


def _paths(paths: list[Path] | None, options: Config) -> list[Path]:
    if paths and Path("-") in paths and len(paths) > 1:
        raise typer.BadParameter("- is a whole program: it takes no other PATH beside it")
    return paths or [Path(path) for path in options.paths]


def _script(paths: list[Path], options: Config) -> Path:
    if options.module:
        from .verify.sources import main_file

        found = main_file([Path.cwd()], options.module)
        if found is None:
            raise typer.BadParameter(f"there is no module {options.module} below the current folder")
        return found
    if len(paths) > 1:
        raise typer.BadParameter(f"a run takes one script, not {len(paths)}; its arguments go after --")
    if not paths and not options.script:
        raise typer.BadParameter('name the SCRIPT to run, or set script = "train.py" in [tool.fsdp-migrate]')
    return paths[0] if paths else Path(options.script)


def _finish(run: Callable[[], int]) -> NoReturn:
    """End with the exit code of `run`. What it does not expect is a fault of this program, and says so."""
    try:
        code = run()
    except Exception:
        import traceback

        err(traceback.format_exc())
        err("error: this is a fault of fsdp-migrate; nothing was written\n    please report it with the text above\n")
        code = 2
    raise typer.Exit(code)


def main() -> None:
    """The console script."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(newline="\n")  # the same bytes on every system
    gc.disable()  # a command ends soon, and looking at the millions of objects of its trees takes a tenth of its time
    try:
        app()
    finally:
        gc.freeze()  # or the interpreter would look at them all before it ends
