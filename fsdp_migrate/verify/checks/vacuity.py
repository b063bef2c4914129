"""V0: was anything seen at all? And E0: did both sides run under the same global settings?"""

from __future__ import annotations

import math

from fsdp_migrate.verify.checks.comparison import Comparison, short
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.report import CheckRow, Mark

_TITLE = "something was compared"


def vacuity(comparison: Comparison) -> list[CheckRow]:
    """Two programs that do nothing agree perfectly; that must not pass."""
    original, rewritten = comparison.original, comparison.rewritten
    steps = f"{min(original.steps)} / {min(rewritten.steps)} steps"
    losses = f"{len(original.losses)} / {len(rewritten.losses)} losses"
    groups, api = (original.fsdp1, "FSDP1") if comparison.expect is None else (original.fsdp2, "FSDP2")
    value = f"{groups} {api} / {rewritten.fsdp2} FSDP2 groups, {steps}, {losses}"
    mark, detail = _judge(original, rewritten, comparison.steps_wanted, groups)
    return [CheckRow("V0", _TITLE, mark, value, f"{comparison.steps_wanted} steps", detail)]


def _judge(original: Observation, rewritten: Observation, wanted: int, groups: int) -> tuple[Mark, str]:
    for side, run in (("original", original), ("rewritten", rewritten)):
        if run.errors:
            return Mark.INCONCLUSIVE, f"the {side} program swallowed an error: {run.errors[0]}"
        if len(set(run.steps)) > 1:
            return Mark.INCONCLUSIVE, f"ranks of the {side} program made different numbers of steps: {run.steps}"
    if min(original.steps) == 0:
        return Mark.INCONCLUSIVE, "the original made no optimizer step that could be seen"
    if groups == 0 and not original.fsdp1:
        if original.fsdp2:
            return Mark.INCONCLUSIVE, "the original is FSDP2 already: say with --expect what an upgrade may change"
        return (
            Mark.INCONCLUSIVE,
            "no FSDP1 group was seen in the original program: there is nothing to migrate, or it fell back",
        )
    if not original.losses:
        return Mark.INCONCLUSIVE, "no loss was seen in the original: it calls neither backward() nor autograd.grad()"
    if not all(map(math.isfinite, original.losses[0].values)):
        return Mark.INCONCLUSIVE, "the original's loss is NaN or infinite from the start"
    broken = [name for seen in (original.init, original.gradients) for name, s in seen.items() if s.nonfinite]
    if broken:
        return Mark.INCONCLUSIVE, f"the original has NaN or infinite first weights or gradients: {short(broken[0])}"
    for side, run in (("original", original), ("rewritten", rewritten)):
        torn = [name for seen in (run.init, run.gradients) for name, s in seen.items() if not s.whole]
        if torn:
            return Mark.INCONCLUSIVE, f"only a part of {short(torn[0])} could be seen in the {side} program"
    return _judge_rewritten(original, rewritten, wanted)


def _judge_rewritten(original: Observation, rewritten: Observation, wanted: int) -> tuple[Mark, str]:
    if min(rewritten.steps) == 0:
        return Mark.FAIL, "the rewritten program made no optimizer step"
    if rewritten.fsdp1:
        names = ", ".join(unit.name for unit in rewritten.units if unit.api == "FSDP1")
        return Mark.FAIL, f"the rewritten program still has {rewritten.fsdp1} FSDP1 groups: {names}"
    if rewritten.fsdp2 == 0:
        return Mark.FAIL, "no FSDP2 group was seen in the rewritten program: nothing is sharded"
    if min(original.steps) != min(rewritten.steps):
        return Mark.FAIL, f"steps made: {min(original.steps)} by the original, {min(rewritten.steps)} by the rewritten"
    if not rewritten.losses:
        return Mark.INCONCLUSIVE, "no loss was seen in the rewritten program"
    if len(original.losses) != len(rewritten.losses):
        counts = f"{len(original.losses)} by the original, {len(rewritten.losses)} by the rewritten"
        return Mark.FAIL, f"backward passes within the same steps: {counts}"
    if original.uneven_losses or rewritten.uneven_losses:
        return (
            Mark.INCONCLUSIVE,
            "ranks made different numbers of backward passes; only the common ones could be compared",
        )
    lost = next((loss.step for loss in original.losses if not all(map(math.isfinite, loss.values))), None)
    if lost is not None:
        return Mark.PASS, f"the loss is NaN or infinite from step {lost} on in both: only what came before was compared"
    if min(original.steps) < wanted:
        return Mark.PASS, f"only {min(original.steps)} of {wanted} steps: both programs ended by themselves"
    return Mark.PASS, ""


def environment(comparison: Comparison) -> list[CheckRow]:
    """Global switches that change results must agree, else a difference could be theirs."""
    a, b = comparison.original.flags, comparison.rewritten.flags
    if not a or not b:
        return [CheckRow("E0", "torch's global settings", Mark.NOT_AVAILABLE, detail="not recorded")]
    different = {key: (a.get(key), b.get(key)) for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)}
    if _only_adds_devices(*different.get("backend", (None, None))):
        del different["backend"]
    if comparison.original.autocast != comparison.rewritten.autocast:
        different["autocast"] = (comparison.original.autocast, comparison.rewritten.autocast)
    detail = "; ".join(f"{key}: {left} -> {right}" for key, (left, right) in different.items())
    mark = Mark.FAIL if different else Mark.PASS
    return [CheckRow("E0", "torch's global settings", mark, f"{len(different)} differ", "equal", detail)]


def _only_adds_devices(before: object, after: object) -> bool:
    """Whether each device keeps its backend ("cuda:nccl" -> "cpu:gloo,cuda:nccl").

    What is kept on the CPU by FSDP2 needs a backend there, of which FSDP1 never asked anything.
    """
    return bool(before) and set(str(before).split(",")) <= set(str(after).split(","))
