"""The command line: options in, one call each, exit code out.

Nothing heavy is imported up here. `--help` and a tree without FSDP are answered without LibCST, and torch is only ever
imported by the programs that `check --run-gpus` starts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from . import __version__, config
from .config import Config, ConfigError
from .console import err, out

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
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="Processes for large trees; 0 is one a processor.")]
Quiet = Annotated[bool | None, typer.Option("--quiet", "-q", help="Only what needs you, and the last line.")]
StdinName = Annotated[Path | None, typer.Option(help="What the file on standard input is called.")]
Format = Annotated[str | None, typer.Option(help=f"One of {', '.join(config.OUTPUT_FORMATS)}.")]
TorchVersion = Annotated[str | None, typer.Option(help="The oldest torch that the output has to run on.")]


class _WithProgramArguments(TyperCommand):
    """Keeps what follows `--` for the training script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            split = args.index("--")
            ctx.meta["program_args"] = tuple(args[split + 1 :])
            args = args[:split]
        return super().parse_args(ctx, args)


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        out(f"fsdp-migrate {__version__}\n")
        raise typer.Exit


@app.command()
def rewrite(
    paths: Paths = None,
    diff: Annotated[bool, typer.Option("--diff", help="Print a diff that git apply takes; write nothing.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write a copy of the program here instead.")] = None,
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

    options = _options(
        torch_version=torch_version, exclude=exclude, select=select,
        ignore=ignore, strict=strict, jobs=jobs, quiet=quiet, output_format=output_format,
    )  # fmt: skip
    if diff and output:
        raise typer.BadParameter("--diff writes nothing: leave out --output")
    chosen = _paths(paths, options)
    if not chosen:
        raise typer.BadParameter("name the scripts or folders to rewrite")
    _finish(lambda: command.run(chosen, options, diff, output, stdin_filename))


@app.command(cls=_WithProgramArguments)
def check(
    context: typer.Context,
    paths: Paths = None,
    run_gpus: Annotated[int | None, typer.Option(help="Run both programs on N GPUs and compare.", metavar="N")] = None,
    run_cpus: Annotated[int | None, typer.Option(help="The same on N CPU processes.", metavar="N")] = None,
    baseline: Annotated[str | None, typer.Option(help="What to compare with: PATH, or git:REV.")] = None,
    steps: Annotated[int | None, typer.Option(help="How many optimizer steps are compared.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed both programs, should they not do it themselves.")] = None,
    allow: Annotated[list[str] | None, typer.Option(help="A check that may fail, such as S3. Repeatable.")] = None,
    launcher: Annotated[str | None, typer.Option(help='Instead of torchrun: "srun -N2 … {probe}".')] = None,
    keep: Annotated[str | None, typer.Option(help="Leave the records of the runs in this folder.")] = None,
    html: Annotated[str | None, typer.Option(help="Write a page with the curves of both runs to this file.")] = None,
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
    """Report FSDP1 that is left and FSDP2 used wrongly; with --run-gpus or --run-cpus, compare the training too.

    What follows -- goes to the training script.

    Exit code 0: clean, or the same training. 1: findings, or not the same. 2: an error, or it could not be decided.
    """
    options = _options(
        run_gpus=run_gpus, run_cpus=run_cpus, baseline=baseline, steps=steps, torch_version=torch_version,
        exclude=exclude, select=select, ignore=ignore, strict=strict, jobs=jobs, quiet=quiet, seed=seed,
        allow=allow, launcher=launcher, keep=keep, html=html, output_format=output_format,
        args=context.meta.get("program_args"),
    )  # fmt: skip
    if options.run_gpus and options.run_cpus:
        raise typer.BadParameter("give --run-gpus or --run-cpus, not both")
    if run_gpus or run_cpus or (options.run_gpus + options.run_cpus and not paths):
        from .commands import parity

        script = _script(paths, options)
        _finish(lambda: parity.run(script, options))
    if baseline or context.meta.get("program_args"):
        raise typer.BadParameter("--baseline and arguments after -- go with --run-gpus N or --run-cpus N")
    from .commands import lint

    chosen = _paths(paths, options) or [Path()]
    _finish(lambda: lint.run(chosen, options, stdin_filename))


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


def _options(**given: object) -> Config:
    """The configuration file under the options given; a mistake in either ends the run with exit code 2."""
    try:
        return config.load(Path.cwd()).override(**given)
    except ConfigError as error:
        err(f"error: {error}\n")
        raise typer.Exit(2) from None


def _paths(paths: list[Path] | None, options: Config) -> list[Path]:
    if paths and Path("-") in paths and len(paths) > 1:
        raise typer.BadParameter("- is a whole program: it takes no other PATH beside it")
    return paths or [Path(path) for path in options.paths]


def _script(paths: list[Path] | None, options: Config) -> Path:
    if paths and len(paths) > 1:
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
    app()
