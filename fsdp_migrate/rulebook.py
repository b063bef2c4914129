"""Every rule there is, with the text that `explain` prints."""

from __future__ import annotations

from codemods import FSDP2_LINT, HAZARDS, RULES, SKIPPED, leftover
from codemods.tables import leftovers
from codemods.upgrades import UPGRADES

from . import suppress, too_large, torch_pin, unfollowed
from .render.view import RuleInfo


def rulebook() -> dict[str, RuleInfo]:
    """All rules by code, in the order of their codes."""
    rules = [RuleInfo(rule.code, rule.name, rule.docs) for rule in RULES]
    rules += [RuleInfo(check.code, check.name, check.docs) for check in (*HAZARDS, *SKIPPED, *FSDP2_LINT)]
    rules += [RuleInfo(each.code, each.name, each.docs) for each in UPGRADES.values()]
    rules += [RuleInfo(each.CODE, each.NAME, each.DOCS) for each in (suppress, unfollowed, torch_pin, too_large)]
    rules.append(RuleInfo(leftover.CODE, leftovers.OTHER.name, leftover.__doc__ or ""))
    rows = [*leftovers.LEFTOVERS.values(), *vars(leftovers).values()]
    rules += [
        RuleInfo(row.code, row.name, _docs(row.message, row.hint))
        for row in rows
        if isinstance(row, leftovers.Leftover)
    ]
    book: dict[str, RuleInfo] = {}
    for rule in rules:
        book.setdefault(rule.code, rule)  # several constructs share a code: the first says what it is about
    return dict(sorted(book.items()))


def _docs(message: str, hint: str) -> str:
    general = leftover.__doc__ or ""
    return f"**What it does.** {message[:1].upper()}{message[1:]}.\n\n**Use instead.** {hint}.\n\n{general}"
