"""The words of an identifier: `build_AdamW` says build, adam and w; `param_millions` says nothing of Lion."""

from __future__ import annotations

from functools import cache

import libcst as cst


@cache
def words(identifier: str) -> frozenset[str]:
    """In lower case: what underscores part, and what capitals part within that."""
    found: set[str] = set()
    for part in identifier.split("_"):
        found.add(part.lower())
        found.update(_humps(part))
    return frozenset(word for word in found if word)


def _humps(part: str) -> list[str]:
    starts = [i for i in range(1, len(part)) if _begins(part, i)]
    return [part[start:end].lower() for start, end in zip([0, *starts], [*starts, len(part)], strict=True)]


def _begins(part: str, index: int) -> bool:
    """`S` of `fooState`, `A` of `CPUAdam`, `8` of `Adam8bit`; not the `P` of `CPU`."""
    letter, before, following = part[index], part[index - 1], part[index + 1 : index + 2]
    if letter.isdigit():
        return not before.isdigit()
    return letter.isupper() and (not before.isupper() or following.islower())


def last_name(node: cst.BaseExpression) -> str:
    """What a call calls: `clip` of `utils.clip`, `nets` of `nets[0]`; nothing of what has no name."""
    if isinstance(node, cst.Subscript):
        return last_name(node.value)
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def is_name(node: object, name: str) -> bool:
    """Whether it is this name, and nothing else."""
    return isinstance(node, cst.Name) and node.value == name
