"""`fsdp-migrate rules` and `fsdp-migrate explain FM101`."""

from __future__ import annotations

from fsdp_migrate.console import err, out
from fsdp_migrate.rulebook import rulebook


def list_all() -> int:
    """One line a rule."""
    out("".join(f"{rule.code}  {rule.name}\n" for rule in rulebook().values()))
    return 0


def explain(code: str) -> int:
    """The text of one rule; 2 when there is no such rule."""
    rules = rulebook()
    rule = rules.get(code.upper())
    if rule is None:
        err(f"error: there is no rule {code}\n    fsdp-migrate rules lists them: {', '.join(rules)}\n")
        return 2
    out(f"# {rule.code} {rule.name}\n\n{rule.docs.strip()}\n")
    return 0
