"""Each rule's docstring is what `explain` prints: it has all its headings, and its example is true."""

from __future__ import annotations

import re

import pytest

from codemods import FSDP2_LINT, HAZARDS, RULES, SKIPPED, leftover
from codemods.api import Check, Level, Upgrade
from codemods.upgrades import UPGRADES
from fsdp_migrate import suppress
from fsdp_migrate.pipeline import Options
from fsdp_migrate.rulebook import rulebook

from .helpers import contract, rewrite, rewrite_files
from .upgrades.upgraded import upgraded

CHECKS = [*HAZARDS, *SKIPPED, *FSDP2_LINT]
ASKED = dict.fromkeys(UPGRADES, "True") | {"reshard_after_forward": "8", "float8": "tensorwise"}
DOCS = {rule.code: rule.docs for rule in RULES} | {leftover.CODE: leftover.__doc__ or ""}
# Rewritten only where an option asks for it.
ASKED_FOR = {"FM312": Options(checkpoint_format="dcp")}
HEADINGS = ["**What it does.**", "**Why.**", "## Example", "## Use instead", "## Fix safety", "## References"]


def section(docs: str, heading: str) -> str:
    """What stands between a heading and the next one."""
    return docs.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def snippet(docs: str, heading: str) -> str:
    """The code under a heading."""
    (found,) = re.findall(r"```python\n(.*?)```", section(docs, heading), re.DOTALL)
    return str(found)


def test_codes_and_names_are_distinct() -> None:
    rules = [*RULES, *CHECKS, *UPGRADES.values()]
    assert len({rule.code for rule in rules}) == len(rules)
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(re.fullmatch(r"FM[1-4]\d\d", rule.code) for rule in [*RULES, *HAZARDS, *SKIPPED])
    assert all(re.fullmatch(r"FM5\d\d", rule.code) for rule in FSDP2_LINT)
    assert all(re.fullmatch(r"FM6\d\d", upgrade.code) for upgrade in UPGRADES.values())
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name) for rule in rules)


@pytest.mark.parametrize("code", [*DOCS, *(each.code for each in (*CHECKS, *UPGRADES.values())), suppress.CODE])
def test_headings_are_all_there_in_order(code: str) -> None:
    docs = ({each.code: each.docs for each in (*CHECKS, *UPGRADES.values())} | DOCS).get(code, suppress.DOCS)
    places = [docs.find(heading) for heading in HEADINGS]
    assert -1 not in places
    assert places == sorted(places)
    for heading in ("Fix safety", "References"):
        assert section(docs, heading).strip()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_example_becomes_what_is_to_be_used_instead(rule) -> None:  # type: ignore[no-untyped-def]
    beside = {"fsdp2_support.py": ""} if "fsdp2_support" in snippet(rule.docs, "Use instead") else {}
    result = rewrite_files({"train.py": snippet(rule.docs, "Example"), **beside}, ASKED_FOR.get(rule.code))
    assert rule.code in {finding.rule for finding in result.findings}
    decided_by_a_person = {finding.rule for finding in result.findings if finding.level is Level.MANUAL}
    assert decided_by_a_person == set()
    assert result.after["train.py"] == snippet(rule.docs, "Use instead")


@pytest.mark.parametrize(("name", "upgrade"), UPGRADES.items(), ids=UPGRADES)
def test_example_is_upgraded_to_what_is_to_be_used_instead(name: str, upgrade: Upgrade) -> None:
    result = upgraded(snippet(upgrade.docs, "Example"), **{name: ASKED[name]})
    assert [finding.rule for finding in result.findings] == [upgrade.code]
    assert Level.MANUAL not in {finding.level for finding in result.findings}
    assert result.text == snippet(upgrade.docs, "Use instead")


@pytest.mark.parametrize("code", DOCS)
def test_what_is_to_be_used_instead_is_clean(code: str) -> None:
    result = rewrite(snippet(DOCS[code], "Use instead"))
    assert result.summary == []
    assert result.after == result.before


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_example_is_found_and_what_is_to_be_used_instead_is_not(check: Check) -> None:
    run = contract if check in FSDP2_LINT else rewrite
    found = [finding for finding in run(snippet(check.docs, "Example")).findings if finding.rule == check.code]
    assert found
    assert all(finding.hint for finding in found)
    instead = run(snippet(check.docs, "Use instead"))
    assert check.code not in {finding.rule for finding in instead.findings}


def test_example_of_what_is_left_is_reported_and_stopped() -> None:
    result = rewrite(snippet(DOCS[leftover.CODE], "Example"))
    (found,) = [finding for finding in result.findings if finding.level is Level.MANUAL]
    assert found.hint
    assert "raise NotImplementedError" in result.text


@pytest.mark.parametrize("code", rulebook())
def test_rulebook_explains_every_code(code: str) -> None:
    info = rulebook()[code]
    assert info.code == code
    assert info.name
    assert "What it does" in info.docs
