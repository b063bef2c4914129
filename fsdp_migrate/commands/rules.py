"""`fsdp-migrate rules` and `fsdp-migrate explain FM101`, or the check of a parity run: `explain S3`."""

from __future__ import annotations

from fsdp_migrate.console import err, out
from fsdp_migrate.rulebook import rulebook


def list_all() -> int:
    """One line a rule."""
    out("".join(f"{rule.code}  {rule.name}\n" for rule in rulebook().values()))
    return 0


def explain(code: str) -> int:
    """The text of one rule or check; 2 when there is no such."""
    if not code.upper().startswith("FM"):
        return _explain_check(code)
    rules = rulebook()
    rule = rules.get(code.upper())
    if rule is None:
        err(f"error: there is no rule {code}\n    fsdp-migrate rules lists them: {', '.join(rules)}\n")
        return 2
    out(f"# {rule.code} {rule.name}\n\n{rule.docs.strip()}\n{_comments(rule.code)}")
    return 0


def _explain_check(code: str) -> int:
    from fsdp_migrate.verify.catalogue import catalogue

    checks = {name.upper(): about for name, about in catalogue().items()}
    about = checks.get(code.upper())
    if about is None:
        err(f"error: there is no rule or check {code}\n    rules begin with FM, checks are {', '.join(catalogue())}\n")
        return 2
    out(f"# {about.id} {about.title}\n\n{about.docs}\n")
    return 0


def _comments(code: str) -> str:
    """The comments that speak of a rule."""
    if code[2:3] not in "1234":
        return ""
    return f"""
## Comments

`# fsdp-migrate: todo[{code}]` stands where `rewrite` left something to you, and is found until you take it away.
`# fsdp-migrate: ignore[{code}]` on a line silences the rule there.
"""
