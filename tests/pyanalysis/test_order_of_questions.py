"""An answer does not depend on what was asked before it: also where values go in cycles."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsdp_migrate.fsdp1.library import LIBRARY
from fsdp_migrate.fsdp1.program_model import ProgramModel
from fsdp_migrate.pyanalysis.program import Program
from fsdp_migrate.pyanalysis.tree import Tree

FILE = Path("train.py")
HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nfrom torch import nn\n"
ASKED = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)

CYCLES = [
    pytest.param("def f(a):\n    return g(a)\ndef g(b):\n    return f(b) if b else FSDP(b)\nx = f(net)\n", id="calls"),
    pytest.param("def f(a, h):\n    return h(a, f)\nx = f(net, f)\ny = f(x, lambda a, h: h(y, f))\n", id="callees"),
    pytest.param("a, b = [net], []\na.extend(b)\nb.extend(a)\nb.append(FSDP(a[0]))\nx = b[0]\n", id="lists"),
    pytest.param(
        "class A:\n    def __init__(self, o):\n        self.o = o\n        self.m = o.m\n"
        "p = A(net)\nq = A(p)\np.o = q\nq.o.m = FSDP(p.o.m)\nx = q.m\n",
        id="objects",
    ),
    pytest.param("x = net\nfor i in range(9):\n    x = wrap(x)\ndef wrap(m):\n    return m.module or x\n", id="loop"),
    pytest.param("class A(B):\n    pass\nclass B(A):\n    m = net\nx = A().m\ny = super(A).m\n", id="bases"),
    pytest.param("x = partial(x, FSDP)\nfrom functools import partial\ny = x(y)\n", id="partial of itself"),
]

LINES = """
x = f(x)
y = g(x, y)
x = FSDP(y)
y = nn.Linear(x)
z = f
z = g
f = z
x = z(y)
o = K(x)
o = K(o)
p = o
o = p
o.m = x
p.m = FSDP(p.m)
x = o.m
y = p.m
x = o.f(y)
p.o = o
o.o = p
y = p.o.m
l = [x]
l = [*l, y]
l.append(y)
x = l[0]
for y in l: x = y
d = {'a': l}
l = d['a']
d['a'] = x
d.update(d)
setattr(o, 'm', y)
y = getattr(o, 'm')
z = o.f
x, y = y, x
y = x.module
z = lambda a: z(x)
with o as y: pass
""".strip().splitlines()
DEFINITIONS = """
def f(a):
    {0}
    return {1}
def g(a, b=None):
    {2}
    return f({3})
class K:
    def __init__(self, m):
        self.m = {4}
        self.o = self
    def f(self, a):
        {5}
        self.m = a
        return {6}
    def __enter__(self):
        return self.m
"""
VALUES = ["a", "x", "f(x)", "g(a, x)", "o.m", "K(a)", "FSDP(a)", "y.o", "l[0]", "z(a)", "p", "K"]


@pytest.mark.parametrize("text", CYCLES)
def test_cycles_have_one_answer(text: str) -> None:
    check(text)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=9),
    st.lists(st.sampled_from(LINES), min_size=3, max_size=3),
    st.lists(st.sampled_from(VALUES), min_size=4, max_size=4),
)
def test_generated_programs_have_one_answer(lines: list[str], inner: list[str], values: list[str]) -> None:
    parts = (inner[0], values[0], inner[1], values[1], values[2], inner[2], values[3])
    check(DEFINITIONS.format(*parts) + "\n".join(lines) + "\n")


def check(text: str) -> None:
    program = HEAD + text
    forwards = answers(program, lambda asked: asked)
    assert answers(program, lambda asked: asked[::-1]) == forwards
    for seed in range(3):
        assert answers(program, lambda asked, seed=seed: Random(seed).sample(asked, len(asked))) == forwards


def answers(text: str, ordered) -> dict[int, list[object]]:  # type: ignore[no-untyped-def]
    """What the expressions of a program can be, each by its place."""
    program = Program({FILE: text}, lambda *_: None, LIBRARY)
    tree = program.tree(FILE)
    assert tree is not None
    model = ProgramModel(program)
    asked = [node for kind in ASKED for node in tree.nodes(kind) if is_value(tree, node)]
    return {tree.order[node]: list(shown(tree, model.values.origins(tree, node))) for node in ordered(asked)} | {
        -1: sorted((tree.order[node], *sorted(kind.name for kind in model.file(tree).kinds(node))) for node in asked)
    }


def is_value(tree: Tree, node: cst.CSTNode) -> bool:
    parent = tree.parents[node]
    return not isinstance(parent, (cst.ImportAlias, cst.ImportFrom, cst.AsName)) and node in tree.scope_of


def shown(tree: Tree, origins: Iterable[object]) -> Iterable[object]:
    for origin in origins:
        node, reason = origin.node, origin.reason  # type: ignore[attr-defined]
        yield reason if node is None else tree.order[node]
