"""Where a program is too large to be followed to its end: what is not seen there is said."""

from __future__ import annotations

from codemods.api import Finding, Level

from .fsdp1.program_model import ProgramModel

CODE = "FM004"
NAME = "too-large-to-follow"
DOCS = """**What it does.** Says which values come from more places than are followed, of a program that wraps a model.

**Why.** In a framework that hands its functions to everything, everything leads to everything. To follow all of it has
no end, so there is a bound on the work of one run, and on the names under which one function is looked for. The largest
of 65 real training programs takes about a third of that work. Behind the bound an FSDP model may come to a place, and
nothing else says so.

## Example

```
src/core.py:512:9: FM004 review more leads here than is followed (also src/jit.py:31)
```

## Use instead

Name the training script, `fsdp-migrate rewrite train.py`, and not the whole tree, or leave out what trains nothing with
`--exclude`. `fsdp-migrate check --run-gpus 2` proves what was written.

## Fix safety

Nothing is changed by it. What is found is as sure as elsewhere; more may be there.

## References

- https://en.wikipedia.org/wiki/Data-flow_analysis
"""

_SHOWN = 5
_HINT = "name the training script alone, or --exclude what trains nothing; check --run-gpus proves what is written"


def too_large(model: ProgramModel) -> tuple[Finding, ...]:
    """One finding at the first such place, of a program that wraps a model."""
    places = model.unfinished() if model.wrapping.is_any else ()
    if not places:
        return ()
    (tree, node), *others = places
    line, column = tree.position(node)
    seen = [f"{where.path.parent.name}/{where.path.name}:{where.position(other)[0]}" for where, other in others]
    more = f" and {len(seen) - _SHOWN} more" if len(seen) > _SHOWN else ""
    also = f" (also {', '.join(seen[:_SHOWN])}{more})" if seen else ""
    message = f"more leads here than is followed{also}: an FSDP model may come there, unseen"
    return (Finding(CODE, Level.REVIEW, tree.path, line, column, message, _HINT),)
