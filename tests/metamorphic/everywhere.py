"""A plugin for pytest: each program that a test rewrites is rewritten in other styles too, and what differs is told.

    python -m pytest -q -p tests.metamorphic.everywhere tests/rules

It fails nothing: what it tells has to be read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

import pytest

from codemods import leftover
from fsdp_migrate.pipeline import Options

from .. import helpers
from .layouts import LAYOUTS
from .styles import STYLES, written_as

_rewrite_files = helpers.rewrite_files
_told: list[str] = []
_seen: set[tuple[tuple[str, str], ...]] = set()
_DEFINITIONS = {("FM102", "rewritten"), ("FM103", "rewritten")}
"""Told where the setting has a statement of its own."""


def _and_in_other_styles(
    files: Mapping[str, str], options: Options | None = None, settings: str = ""
) -> helpers.Result:
    result = _rewrite_files(files, options, settings)
    key = tuple(sorted(files.items()))
    if key not in _seen and not settings:
        _seen.add(key)
        plain_texts = {name: written_as(lambda tree: None, text) for name, text in files.items()}
        plain = _decisions(plain_texts, options)
        styled = {s.__name__: {name: written_as(s, text) for name, text in files.items()} for s in STYLES}
        laid_out = {layout.__name__: layout(plain_texts) for layout in LAYOUTS}
        for way, texts in {**styled, **laid_out}.items():
            changed = _decisions(texts, options) if texts != plain_texts else plain
            if changed != plain:
                test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
                lost, more = plain - changed, changed - plain
                _told.append(f"{'LOST' if not more else 'other'} {way} {test}\n    {lost} -> {more}")
    return result


def _decisions(files: Mapping[str, str], options: Options | None) -> Counter[tuple[str, str]]:
    findings = helpers.run_files(files, options).findings
    told = ((f.rule, f.level.value) for f in findings if not leftover.is_about_data(f))
    return Counter(each for each in told if each not in _DEFINITIONS)


helpers.rewrite_files = _and_in_other_styles


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was lost comes last."""
    for line in sorted(_told, reverse=True):
        terminalreporter.write_line(line)
