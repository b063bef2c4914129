"""Which bindings of a name reach a use of it."""

from __future__ import annotations

import pytest

from .programs import origins

CASES = [
    pytest.param("a = 1\na = 2\nask(a)\n", ["2"], id="the last one"),
    pytest.param("a = 1\nask(a)\na = 2\n", ["1"], id="not the next one"),
    pytest.param("a = 1\nif x:\n    a = 2\nask(a)\n", ["1", "2"], id="if"),
    pytest.param("if x:\n    a = 1\nelse:\n    a = 2\nask(a)\n", ["1", "2"], id="if and else"),
    pytest.param("if x:\n    a = 1\nelif y:\n    a = 2\nelse:\n    a = 3\nask(a)\n", ["1", "2", "3"], id="elif"),
    pytest.param("a = 1\nif x:\n    a = 2\n    ask(a)\n", ["2"], id="inside a branch"),
    pytest.param("a = 1\nif x:\n    a = 2\nelse:\n    ask(a)\n", ["1"], id="inside the other branch"),
    pytest.param("def f(x):\n    a = 1\n    if x:\n        a = 2\n        return a\n    ask(a)\n", ["1"], id="return"),
    pytest.param("def f(x):\n    a = 1\n    if x:\n        a = 2\n        raise x\n    ask(a)\n", ["1"], id="raise"),
    pytest.param("a = 1\nfor i in x:\n    a = 2\nask(a)\n", ["1", "2"], id="loop"),
    pytest.param("a = 1\nfor i in x:\n    ask(a)\n    a = 2\n", ["1", "2"], id="next turn of the loop"),
    pytest.param(
        "a = 1\nfor i in x:\n    if i:\n        a = 2\n        continue\n    a = 3\nask(a)\n",
        ["1", "2", "3"],
        id="continue late",
    ),
    pytest.param("a = 1\nwhile x:\n    a = 2\nelse:\n    a = 3\nask(a)\n", ["3"], id="else of a loop"),
    pytest.param("a = 1\nfor i in x:\n    if i:\n        continue\n    a = 2\nask(a)\n", ["1", "2"], id="continue"),
    pytest.param("try:\n    a = 1\nexcept E:\n    a = 2\nask(a)\n", ["1", "2"], id="try"),
    pytest.param("a = 0\ntry:\n    a = 1\nexcept E:\n    ask(a)\n", ["0", "1"], id="in an exception handler"),
    pytest.param("try:\n    a = 1\nfinally:\n    a = 2\nask(a)\n", ["2"], id="finally"),
    pytest.param("try:\n    x()\nexcept E:\n    raise\nelse:\n    a = 2\nask(a)\n", ["2"], id="else of a try"),
    pytest.param("with x:\n    a = 1\nask(a)\n", ["1"], id="with"),
    pytest.param("match x:\n    case 1:\n        a = 1\n    case _:\n        a = 2\nask(a)\n", ["1", "2"], id="match"),
    pytest.param("a = 1\na: int = 2\nask(a)\n", ["2"], id="annotated"),
    pytest.param("a: int\na = 1\nask(a)\n", ["1"], id="annotation alone"),
    pytest.param("if (a := 1):\n    ask(a)\n", ["1"], id="walrus"),
    pytest.param("a = b = 1\nask(a)\n", ["1"], id="two targets"),
    pytest.param("a, b = 1, 2\nask(b)\n", ["2"], id="tuple"),
    pytest.param("(a, b), c = x, 2\nask(c)\n", ["2"], id="nested tuple"),
    pytest.param("a = 1; ask(a); a = 2\n", ["1"], id="one line"),
    pytest.param("a = 1\ndef f():\n    ask(a)\na = 2\n", ["2"], id="global name, read when the file is done"),
    pytest.param("a = 1\nif x:\n    a = 2\ndef f():\n    ask(a)\n", ["1", "2"], id="global name in a branch"),
    pytest.param(
        "def f():\n    a = 1\n    def g():\n        ask(a)\n    return g\n", ["1"], id="name of an outer function"
    ),
    pytest.param("a = 1\nf = lambda: ask(a)\n", ["1"], id="lambda"),
    pytest.param("class C:\n    a = 1\n    ask(a)\n", ["1"], id="class body"),
    pytest.param(
        "a = 0\nclass C:\n    a = 1\n    def f(self):\n        ask(a)\n", ["0"], id="method does not see the class"
    ),
    pytest.param("def f():\n    pass\nask(f)\n", ["def f(): pass"], id="function"),
    pytest.param("a = 1 if x else 2\nask(a)\n", ["1", "2"], id="conditional expression"),
    pytest.param("a = x or 2\nask(a)\n", ["x", "2"], id="or"),
    pytest.param("a = 1\nb = a\nc = b\nask(c)\n", ["1"], id="through names"),
]


@pytest.mark.parametrize(("text", "found"), CASES)
def test_reaching(text: str, found: list[str]) -> None:
    assert origins(text) == found


TURNS = [
    pytest.param("for a in x:\n    ask(a)\n    a = 2\n", False, id="bound anew in each turn"),
    pytest.param("for i, (a, b) in x:\n    a = ask(a)\n    a = 2\n", False, id="tuple"),
    pytest.param("for a in x:\n    if x:\n        a = 2\n        continue\n    ask(a)\n", False, id="continue"),
    pytest.param("for a in x:\n    if x:\n        a = 2\n    ask(a)\n", True, id="branch"),
    pytest.param("for a in x:\n    while x:\n        ask(a)\n        a = 2\n", True, id="loop in the loop"),
    pytest.param("for a in x:\n    for i in x:\n        ask(a)\n        a = 2\n", True, id="loop over something else"),
    pytest.param("for a in x:\n    a = 2\nask(a)\n", True, id="behind the loop"),
    pytest.param("while x:\n    ask(a)\n    a = 2\n", True, id="while"),
]


@pytest.mark.parametrize(("text", "reaches"), TURNS)
def test_what_is_left_of_the_last_turn(text: str, reaches: bool) -> None:
    assert ("2" in origins(text)) is reaches


OPAQUE = [
    pytest.param("for a in x:\n    ask(a)\n", id="loop variable"),
    pytest.param("with x as a:\n    ask(a)\n", id="with as"),
    pytest.param("a = 1\na += 1\nask(a)\n", id="augmented"),
    pytest.param("a, *b = x\nask(b)\n", id="starred"),
    pytest.param("def f(a):\n    ask(a)\n", id="parameter nobody passes"),
    pytest.param("try:\n    pass\nexcept E as a:\n    ask(a)\n", id="exception"),
    pytest.param("def f(x):\n    return [ask(a) for a in x]\n", id="comprehension"),
    pytest.param("def f(a, x):\n    if x:\n        return f(a, x - 1)\n    ask(a)\n", id="only recursive callers"),
    pytest.param("def f(a):\n    raise ValueError\n    ask(a)\n", id="behind a raise"),
    pytest.param("a, b = x()\nask(a)\n", id="element of what another function returns"),
]


@pytest.mark.parametrize("text", OPAQUE)
def test_only_run_time_knows(text: str) -> None:
    (found,) = origins(text)
    assert found.startswith("?")


def test_cycles_end() -> None:
    assert origins("a = b = 1\nwhile x:\n    a = b\n    b = a\nask(a)\n") == ["1"]
    (found,) = origins("def f(x):\n    return f(x)\nask(f(1))\n")
    assert found.startswith("?")
