"""The nodes made from `ast` are those of LibCST's parser, at the same places."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import libcst as cst
import pytest

from fsdp_migrate.pyanalysis.room import room_for_trees
from fsdp_migrate.pyanalysis.syntax import parse
from fsdp_migrate.pyanalysis.syntax.places import Known, Measured
from fsdp_migrate.pyanalysis.tree import Tree, _fields

ROOT = Path(__file__).parents[2]
STDLIB = Path(sysconfig.get_paths()["stdlib"])
LIBRARY = ("argparse", "ast", "asyncio/tasks", "doctest", "enum", "functools", "inspect", "tarfile")
OWN = [path for room in ("fsdp_migrate", "codemods", "fixtures") for path in sorted((ROOT / room).rglob("*.py"))]
"""Of which every third is looked at: all take a minute and a half."""
NOT_ASKED = (cst.Parameters, cst.ParamStar, cst.ParamSlash, cst.ImportStar)
"""Nodes of which nobody asks the place."""

CASES = {
    "parentheses": "((a)).b((c), (d for d in e), *(f), **(g))\nx = (yield)\n",
    "generator": "f(x for x in y)\nf((x for x in y))\nf( # c\n  (x) for x in y # d\n)\n",
    "tuples": "(a), (b)\n(a, b)\n((a), b)\nfor (a), b in c: pass\ndel a, (b)\ndel (a, b)\nc = a[(b, c)], a[b, c]\n",
    "commas": "f(a,)\nf(a, b=1 , )\nf(a # c\n, )\n",
    "imports": "import a, b as c\nfrom a import (b, c as d,)\nfrom . import b\nfrom .. c import d\nfrom e import *\n",
    "with": "with (a): pass\nwith (a, b): pass\nwith (a), b: pass\nwith (a as b, c): pass\nwith (a, b) as c: pass\n",
    "strings": "a = 'x' 'y'\nb = ('x'\n  f'{c!r:>{d}} e' \"z\")\ng = f'''{\nh}'''\ni = b'x'\nj = rb'\\''\n",
    "strings in three quotes": "a = (r'''b'''\n '''c''')\n",
    "words": "é = f(ß.a, 'ü', b) + f'ä{c}'  # ö\nd = é.b\n",
    "statements": "a; b; c = d = e\nif a: b; c\nelif d: e\nelse: f\nif a:\n  b\nelse:\n  if c: d\n",
    "else": "for a in b:\n    c; # else\n    # else\nelse: # no\n    d\nwhile a:\n  b\nelse:\n  c\n",
    "try": "try:\n\ta\nexcept (b, c) as d:\n\te\nexcept f: g\nelse:\n\th\n# finally\nfinally:\n\ti\n",
    "functions": "@a\n@ b.c(d)\nasync def f(a, /, b: c = d, *e, g=1, **h) -> i: await j\ndef g(): pass\n",
    "classes": "@a\nclass A (B, metaclass=C): ...\nclass D(): pass\n",
    "lambdas": "lambda: a\nlambda a, *, b=1: (a)\nf(lambda *a, **b: (yield), (lambda: a))\n",
    "comprehensions": "{a: b for a in c if d if e for f in g}\n[a async for a in b]\n{a for a, in b}\n{**a, b: c}\n\n",
    "operators": "a and b and c or d\nnot a in b is not c\n-1 ** 2\na if b else c\n(a := b)\n",
    "slices": "(a)[b:c, ::d]\na[b:, c] += 1\n",
    "raise": "raise\nraise a\nraise a from (b)\nglobal c, d\ndef f():\n  yield from a\n  nonlocal b\n",
    "line breaks": "a = (\r\n  b,\r\n)\r\nif a:\r\n\tb\r\n",
    "continued": "a = b \\\n  + c\nf(a, \\\n  b)\nassert a, \\\n  b\n",
    "head": "#!x\n\n# a\n\n'''doc'''\n# b\na\n",
    "no line": "",
    "no last line break": "a",
}


def texts() -> Iterator[pytest.param]:
    for name, text in CASES.items():
        yield pytest.param(text, id=name)
    for name in LIBRARY:
        yield pytest.param((STDLIB / f"{name}.py").read_text(encoding="utf-8"), id=name)


@pytest.mark.parametrize("text", list(texts()))
def test_nodes_and_places_are_those_of_libcst(text: str) -> None:
    compare(text)


def test_nodes_and_places_of_our_sources() -> None:
    for path in OWN[::3]:
        compare(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["match a:\n  case b: c\n"])
def test_what_is_not_known_is_parsed_by_libcst(text: str) -> None:
    module, places = parse(text)
    assert module.code == text
    assert isinstance(places, Measured)


ANNOTATED = """
class A:
    field: int = f()
    def g(self):
        self.x: int = f()
        y: int
if a: z: int = f()
"""


@pytest.mark.parametrize("more", ["", "match a:\n  case b: c\n"], ids=["ast", "libcst"])
def test_annotated_assignments_are_assignments_but_for_fields(more: str) -> None:
    tree = Tree(Path("a.py"), ANNOTATED + more)
    assert [tree.code(node) for node in tree.nodes(cst.Assign)] == ["self.x: int = f()", "z: int = f()"]
    assert [tree.code(target) for target in tree.nodes(cst.AssignTarget)] == ["self.x", "z"]
    assert [tree.code(node) for node in tree.nodes(cst.AnnAssign)] == ["field: int = f()", "y: int"]


def test_layout_fields_hold_defaults_that_can_be_read() -> None:
    tree = Tree(Path("a.py"), "f(  a )\n")
    call = tree.nodes(cst.Call)[0]
    assert tree.module.code_for_node(call) == "f(a)"
    assert tree.code(call) == "f(  a )"


def compare(text: str) -> None:
    with warnings.catch_warnings(), room_for_trees():
        warnings.simplefilter("ignore")
        ast.parse(text)
        made, places = parse(text)
        module = cst.parse_module(text)
        assert isinstance(places, Known)
        assert made.default_indent == module.default_indent
        assert made.default_newline == module.default_newline
        first = [line.comment for line in (*module.header, *(module.body[0].leading_lines if module.body else ()))]
        assert [line.comment.value for line in made.header if line.comment][: len(first)] == [
            c.value for c in first if c
        ]
        measured = Measured(module)
        measured.convert()
        for ours, theirs in pairs(made, module):
            assert type(ours) is type(theirs)
            if isinstance(theirs, (cst.Module, *NOT_ASKED)):
                continue
            start, end = measured.span(theirs)
            assert places.span(ours) == (start, end), text[start:end]
            if isinstance(theirs, cst.BaseExpression):
                assert len(ours.lpar) == len(theirs.lpar), text[start:end]
            if isinstance(theirs, (cst.Arg, cst.ImportAlias)):
                assert isinstance(ours.comma, cst.Comma) == isinstance(theirs.comma, cst.Comma), text[start:end]
            if isinstance(theirs, cst.ImportFrom):
                assert len(ours.relative) == len(theirs.relative)
                assert (ours.lpar is None) == (theirs.lpar is None)


def pairs(ours: cst.CSTNode, theirs: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """The nodes of two trees that have the same place in them."""
    yield ours, theirs
    for name in _fields(type(theirs)):
        mine, other = getattr(ours, name), getattr(theirs, name)
        if not isinstance(other, (list, tuple)):
            mine, other = [mine], [other]
        assert len(mine) == len(other), name
        for left, right in zip(mine, other, strict=True):
            if isinstance(right, cst.CSTNode):
                yield from pairs(left, right)
            elif isinstance(right, str) and name not in {"encoding", "default_indent", "default_newline", "indent"}:
                assert left == right
    for name in ("operator", "asynchronous"):
        assert type(getattr(ours, name, None)) is type(getattr(theirs, name, None))
