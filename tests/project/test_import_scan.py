"""Imports read off the tokens are those that `ast` finds."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from fsdp_migrate.project.import_scan import scanned
from fsdp_migrate.project.imports import imported_in, imports_of, parsed_imports

ROOT = Path(__file__).parents[2]
STDLIB = Path(sysconfig.get_paths()["stdlib"])
SOURCES = [*ROOT.glob("codemods/**/*.py"), *ROOT.glob("fsdp_migrate/**/*.py"), *STDLIB.glob("*.py")]


@pytest.mark.parametrize(
    "text",
    [
        "import a, b.c as d; import e",
        "if x: import a",
        "from . import a\nfrom .. b . c import (d, # import e\n    f as g,)\n",
        "from .import a\nfrom ...b import*\n",
        "from a \\\n  import b, \\\n  c\n",
        "import a \\\n  , b\nimport c # import d\n",
        'x = "import a"; y = r"\\\\"; import b; z = """\nimport c \\""" """\nimport d\n',
        "def f():\n\timport a\n\tyield from b\n\traise E from e\n\timport c\n",
        "is_import = 1; important = 2; x.import_ = 3\nimport  a",
        "from a import (b)\r\nfrom c import (\r\n  d,\r\n)\r\n",
        "f'{x}import a' f\"{y['import b']}\"\nimport c",
    ],
)
def test_what_stands_in_statements(text: str) -> None:
    found = scanned(text.encode())
    assert found is not None
    assert found == parsed_imports(text.encode())


def test_all_our_sources_and_pythons_own() -> None:
    for path in SOURCES:
        found = scanned(path.read_bytes())
        assert found is None or found == imports_of(path), path


@pytest.mark.parametrize("text", ["import_module('a')\nimport b", "# coding: latin-1\nimport a", "import a\rimport b"])
def test_what_needs_more_than_tokens_is_parsed(text: str) -> None:
    assert scanned(text.encode()) is None
    assert imported_in(text.encode()) == parsed_imports(text.encode())
