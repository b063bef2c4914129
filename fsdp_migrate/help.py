"""Help in groups. What typer draws with rich takes twice the start-up time of this program; this is plain text."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

_ARGUMENTS = "Arguments"
_GENERAL = "Options"


class Grouped(TyperCommand):
    """A command that lists its options by their `rich_help_panel`, in the order in which the groups first appear."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: []}
        for param in self.get_params(ctx):
            line = param.get_help_record(ctx)
            if line is not None:
                title = _ARGUMENTS if param.param_type_name == "argument" else _panel(param)
                groups.setdefault(title, []).append(line)
        for title, lines in groups.items():
            if not lines:
                continue
            with formatter.section(title):
                formatter.write_dl(lines)


class WithProgramArguments(Grouped):
    """Keeps what follows `--` for the training script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            split = args.index("--")
            ctx.meta["program_args"] = tuple(args[split + 1 :])
            args = args[:split]
        return super().parse_args(ctx, args)


FLOAT8_RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")


class WithRecipe(TyperCommand):
    """`--float8` alone is `--float8=tensorwise`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"{each}={FLOAT8_RECIPES[0]}" if each == "--float8" else each for each in args])


def _panel(param: Any) -> str:
    return getattr(param, "rich_help_panel", None) or _GENERAL
