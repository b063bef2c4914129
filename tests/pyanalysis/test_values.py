"""Values followed through calls, classes and files."""

from __future__ import annotations

import pytest

from .programs import dotted, origins

CASES = [
    pytest.param("def f():\n    return 1\nask(f())\n", ["1"], id="return"),
    pytest.param("def f(x):\n    if x:\n        return 1\n    return 2\nask(f(0))\n", ["1", "2"], id="two returns"),
    pytest.param("def f():\n    def g():\n        return 1\n    return g()\nask(f())\n", ["1"], id="inner function"),
    pytest.param("def f(a):\n    return a\nask(f(1))\n", ["1"], id="parameter"),
    pytest.param("def f(a, b=2):\n    return b\nask(f(1))\n", ["2"], id="default"),
    pytest.param("def f(a, b=2):\n    ask(b)\nf(1, 3)\nf(1)\nf(1, b=4)\n", ["3", "2", "4"], id="all callers"),
    pytest.param("def f(*, b):\n    ask(b)\nf(b=1)\n", ["1"], id="keyword only"),
    pytest.param("def f():\n    return 1, 2\na, b = f()\nask(b)\n", ["2"], id="tuple of a function"),
    pytest.param("class C:\n    def f(self, a):\n        ask(a)\nC().f(1)\n", ["1"], id="method"),
    pytest.param("class C:\n    def f(self, a):\n        ask(a)\nx.f(1)\n", ["1"], id="method of an unknown receiver"),
    pytest.param("class C:\n    def __init__(self, a):\n        ask(a)\nC(1)\n", ["1"], id="constructor"),
    pytest.param(
        "class C:\n    def __init__(self):\n        self.a = 1\n    def f(self):\n        ask(self.a)\n",
        ["1"],
        id="attribute",
    ),
    pytest.param(
        "class C:\n    def __init__(self):\n        self.a = 1\nc = C()\nask(c.a)\n", ["1"], id="of an object"
    ),
    pytest.param(
        "class B:\n    def __init__(self):\n        self.a = 1\nclass C(B):\n    def f(self):\n        ask(self.a)\n",
        ["1"],
        id="attribute of a base class",
    ),
    pytest.param(
        "class B:\n    def f(self):\n        ask(self.a)\nclass C(B):\n    def __init__(self):\n        self.a = 1\n",
        ["1"],
        id="attribute of a subclass",
    ),
    pytest.param(
        "class B:\n    def f(self):\n        ask(self.a)\ndef make(base):\n    class C(base):\n"
        "        def __init__(self):\n            self.a = 1\n    return C\n@make\nclass D(B):\n    pass\n",
        ["1"],
        id="attribute of a subclass that a decorator makes",
    ),
    pytest.param(
        "class B:\n    def f(self):\n        ask(self.a)\n"
        "class C(B):\n    def __init__(self):\n        self.a = 1\n    def f(self):\n        pass\n"
        "class D(B):\n    def __init__(self):\n        self.a = 2\n",
        ["2"],
        id="a subclass that overrides the method never runs it",
    ),
    pytest.param(
        "class B:\n    def f(self):\n        ask(self.g())\n    def g(self):\n        return 1\n"
        "class C(B):\n    def f(self):\n        pass\n    def g(self):\n        return 2\n"
        "class D(B):\n    def g(self):\n        return 3\n",
        ["1", "3"],
        id="nor what its own methods make",
    ),
    pytest.param(
        "class B:\n    def f(self):\n        ask(self.g())\n    def g(self):\n        return 1\n"
        "class C(B):\n    def f(self):\n        pass\n    def g(self):\n        return 2\n"
        "    def h(self):\n        super().f()\n",
        ["1", "2"],
        id="but where another of its methods asks for it",
    ),
    pytest.param(
        "from functools import partial\ndef f(a, b):\n    ask(a)\ndef g():\n    h = partial(f, b=2)\n    h(1)\n",
        ["1"],
        id="partial that is called",
    ),
    pytest.param("import torch\na = torch.compile(x)\nask(a)\n", ["x"], id="torch.compile"),
    pytest.param("from typing import cast\na = cast(int, x)\nask(a)\n", ["x"], id="typing.cast"),
    pytest.param("from other import cast\na = cast(int, x)\nask(a)\n", ["cast(int, x)"], id="another cast"),
    pytest.param("ask(x.to(1).cuda().train())\n", ["x"], id="methods that return the module"),
]


@pytest.mark.parametrize(("text", "found"), CASES)
def test_origins(text: str, found: list[str]) -> None:
    assert origins(text) == found


UNKNOWN = [
    "def f(a):\n    ask(a)\nf(*x)\n",
    "def f(a):\n    ask(a)\nf(**x)\n",
    "class C:\n    def f(self):\n        ask(self.never_set)\n",
    "def f(**kwargs):\n    ask(kwargs)\n",
    "from functools import partial\ndef f(a, b):\n    return b\nask(partial(f, 1)(b=2))\n",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_only_run_time_knows(text: str) -> None:
    assert [found for found in origins(text) if not found.startswith("?")] == []
    assert origins(text)


ESCAPES = {
    "given on": "    h(1)\n    x.run(h)\n",
    "kept": "    h(1)\n    x.h = h\n",
    "returned": "    h(1)\n    return h\n",
}


@pytest.mark.parametrize("uses", ESCAPES.values(), ids=ESCAPES)
def test_partial_that_others_may_call_is_given_more_than_is_seen(uses: str) -> None:
    text = "from functools import partial\ndef f(a, b):\n    ask(a)\ndef g():\n    h = partial(f, b=2)\n" + uses
    assert any(found.startswith("?") for found in origins(text))


FILES = [
    pytest.param({"lib.py": "a = 1\n", "train.py": "from lib import a\nask(a)\n"}, id="from"),
    pytest.param({"lib.py": "a = 1\n", "train.py": "from lib import a as b\nask(b)\n"}, id="as"),
    pytest.param({"lib.py": "a = 1\n", "train.py": "import lib\nask(lib.a)\n"}, id="module"),
    pytest.param({"lib.py": "a = 1\n", "train.py": "import lib as l\nask(l.a)\n"}, id="module alias"),
    pytest.param({"lib.py": "a = 1\n", "train.py": "from lib import *\nask(a)\n"}, id="star"),
    pytest.param(
        {"lib/__init__.py": "from .x import a\n", "lib/x.py": "a = 1\n", "train.py": "from lib import a\nask(a)\n"},
        id="package",
    ),
    pytest.param(
        {"lib/__init__.py": "from .x import *\n", "lib/x.py": "a = 1\n", "train.py": "import lib\nask(lib.a)\n"},
        id="re-export",
    ),
    pytest.param(
        {"lib/__init__.py": "", "lib/x.py": "a = 1\n", "train.py": "import lib.x\nask(lib.x.a)\n"}, id="submodule"
    ),
    pytest.param(
        {"lib/__init__.py": "", "lib/x.py": "a = 1\n", "train.py": "from lib import x\nask(x.a)\n"}, id="from package"
    ),
    pytest.param({"lib.py": "def f(b):\n    return b\n", "train.py": "from lib import f\nask(f(1))\n"}, id="function"),
    pytest.param(
        {"lib.py": "from train import f\nf(1)\n", "train.py": "def f(a):\n    ask(a)\n"}, id="caller elsewhere"
    ),
    pytest.param(
        {
            "lib.py": "class B:\n    def __init__(self):\n        self.a = 1\n",
            "train.py": "import lib\nask(lib.B().a)\n",
        },
        id="class elsewhere",
    ),
    pytest.param(
        {
            "lib.py": "class B:\n    def f(self):\n        return self.a\n",
            "train.py": "from lib import B\nclass C(B):\n    def __init__(self):\n        self.a = 1\nask(C().a)\n",
        },
        id="subclass here",
    ),
]


@pytest.mark.parametrize("files", FILES)
def test_across_files(files: dict[str, str]) -> None:
    assert origins(files) == ["1"]


NAMES = [
    ("import torch\nask(torch.nn.Linear)\n", "torch.nn.Linear"),
    ("import torch.nn as nn\nask(nn.Linear)\n", "torch.nn.Linear"),
    ("from torch import nn\nask(nn.Linear)\n", "torch.nn.Linear"),
    ("from torch.nn import Linear as L\nask(L)\n", "torch.nn.Linear"),
    ("try:\n    from torch.nn import Linear\nexcept ImportError:\n    Linear = None\nask(Linear)\n", "torch.nn.Linear"),
    ("from torch.nn import Linear\ndef f(Linear):\n    ask(Linear)\n", None),
    ("ask(print)\n", None),
    ("ask(x[0].y)\n", None),
    ("from . import nothing\nask(nothing)\n", None),
    (
        "from torch.distributed.fsdp import *\nask(FullyShardedDataParallel)\n",
        "torch.distributed.fsdp.FullyShardedDataParallel",
    ),
]


@pytest.mark.parametrize(("text", "name"), NAMES)
def test_library_name(text: str, name: str | None) -> None:
    assert dotted(text) == name


def test_two_files_that_import_each_other() -> None:
    files = {"a.py": "from b import *\n", "b.py": "from a import *\n", "train.py": "from a import x\nask(x)\n"}
    assert dotted(files) in {None, "a.x"}


def test_two_lists_that_extend_each_other() -> None:
    text = "a = [1]\nb = []\na.extend(b)\nb.extend(a)\nfor item in a:\n    ask(item)\n"
    assert "1" in origins(text)


def test_a_dict_made_of_its_own_values_comes_to_an_end() -> None:
    text = "nets = {'a': x}\nfor _ in y:\n    nets = dict(nets.values())\nask(nets['a'])\n"
    assert "x" in origins({"train.py": text})
