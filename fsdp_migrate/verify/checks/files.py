"""F: what both programs saved. A checkpoint that another program cannot read is found out hours, or months, later."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from statistics import median

from fsdp_migrate.verify.checks.comparison import Comparison, relative, scientific
from fsdp_migrate.verify.report import CheckRow, Mark
from fsdp_migrate.verify.saved import DCP, Leaf, SavedFile
from fsdp_migrate.verify.thresholds import TINY_GRADIENT

_TITLE = "files that were saved"
_SHARDED = frozenset({"DTensor", "ShardedTensor"})
_SHOWN = 3
_NUMBER = re.compile(r"\d+")


def files(comparison: Comparison) -> list[CheckRow]:
    """File by file, and key by key."""
    before, after = comparison.original.files, comparison.rewritten.files
    if not before and not after:
        return [CheckRow("F", _TITLE, Mark.INFO, "none", detail="neither program saved a checkpoint in these steps")]
    pairs, lost, new = paired_files(before, after)
    problems = [f"{file.name} is not written by the rewritten program" for file in lost]
    problems += [f"{file.name} is written by the rewritten program only" for file in new]
    unseen = [f"{file.name}: {file.problem}" for pair in pairs for file in pair if file.problem]
    for mine, theirs in pairs:
        controls = [control for run in comparison.floors if (control := _counterpart(mine, run.files)) is not None]
        said = list(_differences(mine, theirs, controls, comparison))
        problems += [f"{mine.name}: {problem}" for problem in said]
    value = f"{len(before)} -> {len(after)}"
    if problems:
        more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        detail = "; ".join(problems[:_SHOWN]) + more
        return [CheckRow("F", _TITLE, Mark.FAIL, value, "equal", detail, items=tuple(problems))]
    if unseen:
        return [CheckRow("F", _TITLE, Mark.INCONCLUSIVE, value, "equal", f"could not be looked at: {unseen[0]}")]
    formats = {f"{mine.format} -> {theirs.format}" for mine, theirs in pairs if mine.format != theirs.format}
    detail = f"meant to be written otherwise now: {', '.join(sorted(formats))}" if formats else ""
    return [CheckRow("F", _TITLE, Mark.PASS, value, "equal", detail)]


Pair = tuple[SavedFile, SavedFile]


def paired_files(
    before: Sequence[SavedFile], after: Sequence[SavedFile]
) -> tuple[list[Pair], list[SavedFile], list[SavedFile]]:
    """(both, only before, only after): by name and rank; then by what is left of a name without its numbers, which may
    be a time; then one file that became a checkpoint of all ranks, by the step."""
    pairs: list[Pair] = []
    lost, new = list(before), list(after)
    for key in (_exact, _without_numbers, _by_step):
        for mine in list(lost):
            same = next((theirs for theirs in new if key(mine, theirs)), None)
            if same is not None:
                pairs.append((mine, same))
                lost.remove(mine)
                new.remove(same)
    return pairs, lost, new


def _exact(a: SavedFile, b: SavedFile) -> bool:
    return (a.format, a.path, a.rank, a.again) == (b.format, b.path, b.rank, b.again)


def _without_numbers(a: SavedFile, b: SavedFile) -> bool:
    names = (_NUMBER.sub("", file.path) for file in (a, b))
    return (a.format, a.rank, a.step) == (b.format, b.rank, b.step) and len(set(names)) == 1


def _by_step(a: SavedFile, b: SavedFile) -> bool:
    return a.format != b.format and b.format == DCP and a.rank in (0, None) and a.step == b.step


def _counterpart(file: SavedFile, files: Sequence[SavedFile]) -> SavedFile | None:
    pairs, _, _ = paired_files([file], files)
    return pairs[0][1] if pairs else None


def _differences(
    mine: SavedFile, theirs: SavedFile, controls: list[SavedFile], comparison: Comparison
) -> Iterator[str]:
    together = theirs.format == DCP
    if mine.format != theirs.format and not (together and comparison.checkpoint_format == DCP):
        meant = "; if that is meant, --checkpoint-format dcp compares the contents" if together else ""
        yield f"written by {_FORMATS[theirs.format]} now{meant}"
        return
    if mine.step != theirs.step:
        yield f"written at step {theirs.step}"
    missing, extra = (_only(a, b) for a, b in ((mine, theirs), (theirs, mine)))
    if missing or extra:
        yield f"keys lost: {_some(missing)}, new: {_some(extra)}"
    elif not together and list(mine.leaves) != list(theirs.leaves):
        place = next(i for i, (a, b) in enumerate(zip(mine.leaves, theirs.leaves, strict=True)) if a != b)
        yield f"keys in another order from `{list(mine.leaves)[place]}` on"
    for key in (key for key in mine.leaves if key in theirs.leaves):
        if problem := _shape_problem(mine.leaves[key], theirs.leaves[key], together, _is_buffer(key, comparison)):
            yield f"`{key}` {problem}"
    if comparison.expect is None or comparison.expect.loss is None:  # else the weights may be others
        yield from _value_problems(mine, theirs, controls, comparison)


def _is_buffer(key: str, comparison: Comparison) -> bool:
    """FSDP1 may keep buffers in another dtype (buffer_dtype) and save them so; what they are computes the same, N0b."""
    return any(f".{key}".endswith(f".{name.partition(':')[2]}") for name in comparison.original.buffers)


_FORMATS = {"torch": "torch.save", DCP: "torch.distributed.checkpoint", "safetensors": "safetensors"}


def _shape_problem(mine: Leaf, theirs: Leaf, together: bool, is_buffer: bool) -> str:
    both_sharded = {mine.kind, theirs.kind} <= _SHARDED
    tensors = {mine.kind, theirs.kind} <= _SHARDED | {"tensor"}
    if mine.kind != theirs.kind and not both_sharded and not (together and tensors):
        return f"is a {theirs.kind} where the original has a {mine.kind}"
    if mine.shape != theirs.shape:
        return f"has the shape {list(theirs.shape)} where the original has {list(mine.shape)}"
    if mine.dtype != theirs.dtype and not is_buffer:
        return f"is {theirs.dtype} where the original has {mine.dtype}"
    return ""


def _value_problems(
    mine: SavedFile, theirs: SavedFile, controls: list[SavedFile], comparison: Comparison
) -> Iterator[str]:
    """Tensors within what rounding explains; plain values where the original's own files repeat them. Without a file
    of a floor run to hold them against, values say nothing."""
    if not controls:
        return
    precision, scale = comparison.precision, _overall(mine)
    floors = {
        key: max(_distance(leaf, c.leaves.get(key), scale) for c in controls) for key, leaf in mine.leaves.items()
    }
    usual = median([floor for floor in floors.values() if floor > 0.0] or [0.0])
    for key, leaf in mine.leaves.items():
        other = theirs.leaves.get(key)
        if other is None or _shape_problem(leaf, other, True, False):
            continue
        if leaf.sketch is not None:
            value, limit = _distance(leaf, other, scale), precision.gradient(max(floors[key], usual))
            if value > limit:
                yield f"`{key}` has other values: {scientific(value)} against {scientific(limit)}"
        elif isinstance(leaf.value, float) and isinstance(other.value, float):
            moves = max(relative(leaf.value, _value(control, key)) for control in controls)
            if relative(leaf.value, other.value) > precision.gradient(max(moves, usual)):
                yield f"`{key}` is {other.value!r} where the original has {leaf.value!r}"
        elif leaf.value != other.value and all(_value(control, key) == leaf.value for control in controls):
            yield f"`{key}` is {other.value!r} where the original has {leaf.value!r}"


def _value(file: SavedFile, key: str) -> float:
    """Of a plain leaf, NaN where there is none."""
    leaf = file.leaves.get(key)
    value: float = leaf.value if leaf is not None and leaf.value is not None else math.nan
    return value


def _distance(mine: Leaf, theirs: Leaf | None, scale: float) -> float:
    if mine.sketch is None:
        return 0.0
    if theirs is None or theirs.sketch is None:
        return math.inf
    distance = mine.sketch.distance(theirs.sketch)
    least = TINY_GRADIENT * scale * math.sqrt(mine.sketch.numel)
    return distance / max(mine.sketch.norm, theirs.sketch.norm, least, 1e-30) if distance else 0.0


def _overall(file: SavedFile) -> float:
    """Root mean square of all tensors of a file."""
    sketches = [leaf.sketch for leaf in file.leaves.values() if leaf.sketch is not None]
    numel = sum(sketch.numel for sketch in sketches)
    return math.sqrt(sum(max(0.0, sketch.squares) for sketch in sketches) / numel) if numel else 0.0


def _only(a: SavedFile, b: SavedFile) -> list[str]:
    return [key for key in a.leaves if key not in b.leaves]


def _some(keys: list[str]) -> str:
    return (", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")) or "none"
