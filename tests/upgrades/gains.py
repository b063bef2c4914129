"""`make gains`: a small GPT as FSDP1, as FSDP2, and with each upgrade, on 4 CPU processes; a table in Markdown.

What a CPU can show: how much is gathered, how weights are split in between, and what training makes of it. Memory and
time are a GPU's; float8 is emulated, and what `torch.compile` makes is inductor's code for the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.source import read_source
from fsdp_migrate.upgrade import upgrade
from fsdp_migrate.verify import CheckRequest, Failure
from fsdp_migrate.verify.observation import Observation
from tests.upgrades.gpt import lay_out_gpt
from tests.verify.together import observe_together

RANKS, STEPS, TAIL = 4, 50, 5
VARIANTS: dict[str, Mapping[str, str] | None] = {
    "FSDP1": None,
    "FSDP2": {},
    "`--reshard-after-forward 2`": {"reshard_after_forward": "2"},
    "`--prefetch`": {"prefetch": "True"},
    "`--float8`": {"float8": "tensorwise"},
    "`--float8=rowwise`": {"float8": "rowwise"},
    "`--compile`": {"compile": "True"},
}


def laid_out(asked: Mapping[str, str] | None, folder: Path) -> CheckRequest:
    """The program of one row."""
    script = lay_out_gpt(folder)
    if asked is not None:
        _write(migrate([read_source(script)], Options()).changes)
        _write(upgrade([read_source(script)], asked).changes if asked else ())
    # Where CUDA is pretended `torch.compile` does nothing.
    redirect: Literal["auto", "off"] = "off" if asked and "compile" in asked else "auto"
    return CheckRequest(
        script, script, RANKS, original_root=folder, rewritten_root=folder, steps=STEPS, redirect=redirect
    )


def _write(changes: object) -> None:
    for change in changes:  # type: ignore[attr-defined]
        change.path.write_text(change.after)


def table(seen: Mapping[str, Observation | Failure]) -> str:
    """One row a program; what could not be run says why."""
    lines = [
        "| | all-gathers a step | KB gathered a step | float8 layers | loss of the last steps | against FSDP2 |",
        "|---|---|---|---|---|---|",
    ]
    plain = seen["FSDP2"]
    assert not isinstance(plain, Failure), plain.message
    for name, run in seen.items():
        if isinstance(run, Failure):
            lines.append(f"| {name} | {run.message} | | | | |")
            continue
        usual = Counter(tuple(step["all_gather"]) for step in run.comm[1:]).most_common(1)[0][0]
        layers = run.float8.linears if run.float8 is not None else 0
        ratio = _loss(run) / _loss(plain) - 1
        against = "the same" if _losses(run) == _losses(plain) else f"{ratio:+.2%}"
        gathered, fewer = f"{usual[1] / 1000:.0f}", Counter(run.gathered_among_fewer[1:]).most_common(1)[0][0]
        gathered += f", of which {fewer / 1000:.0f} among 2 ranks" if fewer else ""
        lines.append(f"| {name} | {usual[0]} | {gathered} | {layers} | {_loss(run):.4f} | {against} |")
    return "\n".join(lines)


def _losses(run: Observation) -> list[tuple[float, ...]]:
    return [loss.values for loss in run.losses]


def _loss(run: Observation) -> float:
    last = [value for values in _losses(run)[-TAIL:] for value in values]
    return sum(last) / len(last)


def measured() -> str:
    """Run them all."""
    with TemporaryDirectory(prefix="gains-") as name:
        root = Path(name).resolve()
        homes = {variant: root / f"runs{number}" for number, variant in enumerate(VARIANTS)}
        programs = {
            variant: laid_out(VARIANTS[variant], home.with_suffix(".program")) for variant, home in homes.items()
        }
        seen = observe_together({homes[variant]: request for variant, request in programs.items()})
        return table({variant: seen[home] for variant, home in homes.items()})


if __name__ == "__main__":
    print(measured())
