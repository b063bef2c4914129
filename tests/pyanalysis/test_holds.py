"""What an expression can hold: an FSDP model, a DDP model, something else."""

from __future__ import annotations

import pytest

from .programs import held

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


class Net:
    pass


net = Net()
"""

CASES = [
    pytest.param("ask(FSDP(net))\n", {"FSDP"}, id="the call itself"),
    pytest.param("m = FSDP(net)\nask(m)\n", {"FSDP"}, id="name"),
    pytest.param("m = FSDP(net).to(0)\nask(m)\n", {"FSDP"}, id="moved"),
    pytest.param("m = torch.compile(FSDP(net))\nask(m)\n", {"FSDP"}, id="compiled"),
    pytest.param("m = FSDP(net) if x else DDP(net)\nask(m)\n", {"FSDP", "DDP"}, id="DDP or FSDP"),
    pytest.param("m = Net()\nif x:\n    m = FSDP(m)\nask(m)\n", {"FSDP", "OTHER"}, id="wrapped or not"),
    pytest.param("m = Net()\nask(m)\nm = FSDP(m)\n", {"OTHER"}, id="before it is wrapped"),
    pytest.param("m = torch.optim.SGD(FSDP(net).parameters())\nask(m)\n", {"OTHER"}, id="optimizer of the model"),
    pytest.param("def f(m):\n    ask(m)\n", {"UNKNOWN"}, id="parameter nobody passes"),
    pytest.param(
        "def f(objs):\n    objs['m'] = FSDP(net)\n    g(objs)\n"
        "def g(objs):\n    for m in objs.values():\n        ask(m)\n",
        {"FSDP", "UNKNOWN"},
        id="put into what nobody passes, and passed on",
    ),
    pytest.param("def f(m):\n    ask(m)\nf(FSDP(net))\nf(DDP(net))\n", {"FSDP", "DDP"}, id="parameter"),
    pytest.param("def f():\n    return FSDP(net), 1\nm, _ = f()\nask(m)\n", {"FSDP"}, id="one of two"),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = FSDP(net)\n    def f(self):\n        ask(self.m)\n",
        {"FSDP"},
        id="attribute",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = FSDP(net)\n"
        "    def f(self):\n        ask(self.m)\n        self.m = self.m.train()\n",
        {"FSDP"},
        id="before it is stored again, as it is",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = FSDP(net)\n"
        "    def f(self):\n        ask(self.m)\n        if x:\n            self.m = torch.compile(self.m.to(0))\n",
        {"FSDP"},
        id="before it is compiled",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = FSDP(net)\n"
        "    def f(self):\n        ask(self.m)\n        self.m = prepared(self.m)\n"
        "def prepared(m):\n    return m.train()\n",
        {"FSDP"},
        id="before a helper gives it back",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = net\n"
        "    def f(self):\n        ask(self.m)\n        self.m = wrapped(self.m)\n        self.m = self.m.to(0)\n"
        "def wrapped(m):\n    return FSDP(m)\n",
        {"OTHER"},
        id="before a helper wraps it, and it is stored again",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = {'a': FSDP(net)}\n"
        "    def f(self):\n        ask(self.m['a'])\n        self.m['a'] = self.m['a'].cuda()\n",
        {"FSDP", "UNKNOWN"},
        id="an item, before it is stored again",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = FSDP(net)\n"
        "def f(t):\n    for x in y:\n        ask(t.m)\n        t.m = t.m.train()\nf(T())\n",
        {"FSDP"},
        id="of another's attribute, before it is stored again",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = net\n        self.load()\n        self.m = FSDP(self.m)\n"
        "    def load(self):\n        ask(self.m)\n        torch.load(1)\n",
        {"OTHER"},
        id="before the wrap, in a method of the name of a library's function",
    ),
    pytest.param(
        "class T:\n    def __init__(self, m):\n        self.m = m\n    def f(self):\n        ask(self.m)\n"
        "class A(T):\n    def __init__(self):\n        super(A, self).__init__(FSDP(net))\n"
        "class B(T):\n    def __init__(self):\n        super(B, self).__init__(DDP(net))\n",
        {"FSDP", "DDP"},
        id="attribute of a base, as Python 2 called it",
    ),
    pytest.param(
        "class T:\n    def __init__(self, m):\n        self.m = m\n    def f(self):\n        ask(self.m)\n"
        "class A(T):\n    def __init__(self, m):\n        pass\n"
        "class B(A):\n    def __init__(self):\n        super(A, self).__init__(FSDP(net))\n",
        {"FSDP"},
        id="attribute of the base of a base",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.n, self.m = net, FSDP(net)\n"
        "    def f(self):\n        ask(self.m)\n",
        {"FSDP"},
        id="one of two attributes",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.m = net\n        self.m = FSDP(self.m)\n"
        "    def f(self):\n        ask(self.m)\n",
        {"FSDP"},
        id="attribute set twice",
    ),
    pytest.param("def f(m):\n    if isinstance(m, FSDP):\n        ask(m)\n", {"FSDP"}, id="inside a class test"),
    pytest.param("def f(m):\n    if isinstance(m, FSDP) and x:\n        ask(m)\n", {"FSDP"}, id="inside one with and"),
    pytest.param(
        "def f(m):\n    if isinstance(m, FSDP):\n        pass\n    else:\n        ask(m)\nf(FSDP(net))\nf(DDP(net))\n",
        {"DDP"},
        id="else of a class test",
    ),
    pytest.param(
        "def f(m):\n    if not isinstance(m, FSDP):\n        ask(m)\nf(FSDP(net))\nf(DDP(net))\n", {"DDP"}, id="not"
    ),
    pytest.param(
        "def f(m):\n    if isinstance(m, FSDP):\n        return 1\n    ask(m)\nf(FSDP(net))\nf(DDP(net))\n",
        {"DDP"},
        id="behind a class test that leaves",
    ),
    pytest.param(
        "def f(m):\n    if isinstance(m, FSDP):\n        return m\n    m = FSDP(m)\n    ask(m)\nf(net)\n",
        {"FSDP"},
        id="wrapped behind a class test that leaves",
    ),
    pytest.param(
        "def is_fsdp(x):\n    return isinstance(x, FSDP)\ndef f(m):\n    if is_fsdp(m):\n        ask(m)\n",
        {"FSDP"},
        id="class test of the program's own",
    ),
    pytest.param(
        "def is_fsdp(x):\n    return THERE and isinstance(x, FSDP)\n"
        "def f(m):\n    if is_fsdp(m):\n        pass\n    else:\n        ask(m)\nf(FSDP(net))\nf(DDP(net))\n",
        {"DDP"},
        id="else of a class test of the program's own",
    ),
    pytest.param(
        "def is_big(x):\n    return x.big and isinstance(x, FSDP)\n"
        "def f(m):\n    if is_big(m):\n        pass\n    else:\n        ask(m)\nf(FSDP(net))\nf(DDP(net))\n",
        {"FSDP", "DDP"},
        id="a test of more than the class",
    ),
    pytest.param("def f(m, n):\n    if isinstance(n, FSDP):\n        ask(m)\n", {"UNKNOWN"}, id="test of another name"),
    pytest.param(
        "def f(m):\n    if not isinstance(m, FSDP):\n        m = FSDP(m)\n        ask(m)\nf(net)\n",
        {"FSDP"},
        id="wrapped where it was not yet",
    ),
    pytest.param(
        "def f(m):\n    while isinstance(m, DDP):\n        m = m.module\n        ask(m)\nf(DDP(FSDP(net)))\n",
        {"UNKNOWN"},
        id="inside, and set below the test of a loop",
    ),
    pytest.param(
        "def f(m):\n    match m:\n        case DDP():\n            ask(m)\n            m = m.module\n            m(1)\n"
        "f(FSDP(net))\nf(DDP(net))\n",
        {"DDP"},
        id="case that sets it below",
    ),
    pytest.param(
        "def f(m):\n    while isinstance(m, DDP):\n        ask(m)\nf(FSDP(net))\nf(DDP(net))\n", {"DDP"}, id="loop"
    ),
    pytest.param(
        "class B:\n    def f(self):\n        ask(self.m)\n"
        "class C(B):\n    def __init__(self):\n        self.m = FSDP(net)\n"
        "class D(B):\n    def __init__(self):\n        self.m = DDP(net)\n    def f(self):\n        pass\n",
        {"FSDP"},
        id="overridden method",
    ),
]


OTHER_NAMES = [
    pytest.param(
        "    if isinstance(m, FSDP):\n        pass\n    else:\n        n = m\n        ask(n)\n", {"DDP"}, id="name"
    ),
    pytest.param("    n = m\n    if not isinstance(m, FSDP):\n        ask(n)\n", {"DDP"}, id="set above the test"),
    pytest.param("    n = m\n    if isinstance(m, FSDP):\n        return\n    ask(n)\n", {"DDP"}, id="left above"),
    pytest.param(
        "    if isinstance(m, FSDP):\n        x.m = m\n    else:\n        x.m = m\n        ask(x.m)\n",
        {"DDP"},
        id="attribute",
    ),
    pytest.param(
        "    n = m\n    m = net\n    if not isinstance(m, FSDP):\n        ask(n)\n", {"FSDP", "DDP"}, id="another"
    ),
    pytest.param(
        "    if not isinstance(m, FSDP):\n        x.m = m\n"
        "        if x:\n            x.m = FSDP(m)\n        ask(x.m)\n",
        {"FSDP", "DDP"},
        id="set again",
    ),
    pytest.param(
        "    if not isinstance(m, FSDP):\n        x.m = m\n        shard(x)\n        ask(x.m)\n",
        {"FSDP", "DDP"},
        id="set by a call",
    ),
]


@pytest.mark.parametrize(("text", "found"), OTHER_NAMES)
def test_what_is_said_of_a_model_is_said_under_its_other_names(text: str, found: set[str]) -> None:
    shard = "class X:\n    pass\nx = X()\ndef shard(x):\n    x.m = FSDP(x.m)\n"
    assert held(f"{HEAD}{shard}def f(m):\n{text}f(FSDP(net))\nf(DDP(net))\n") == found


BASE = """
class A:
    def __init__(self, net):
        self.m = net
    def shard(self):
        self.m = FSDP(self.m)
"""
ABOVE = [
    pytest.param("super().__init__(m)\n        if isinstance(m, FSDP):\n            return\n", {"DDP"}, id="base"),
    pytest.param(
        "super().__init__(m)\n        if isinstance(m, FSDP):\n            return\n        self.shard()\n",
        {"FSDP", "DDP"},
        id="set again by a method",
    ),
    pytest.param(
        "super().__init__(o)\n        if isinstance(m, FSDP):\n            return\n", {"FSDP", "DDP"}, id="another"
    ),
]


@pytest.mark.parametrize(("lines", "found"), ABOVE)
def test_what_is_said_of_a_model_is_said_of_what_a_base_makes_of_it(lines: str, found: set[str]) -> None:
    heir = f"class B(A):\n    def __init__(self, m, o):\n        {lines}        ask(self.m)\n"
    made = "".join(f"B({m}, {o})\n" for m, o in (("FSDP(net)", "DDP(net)"), ("DDP(net)", "FSDP(net)")))
    assert held(HEAD + BASE + heir + made) == found
    shards = BASE.replace("self.m = net\n", "self.m = net\n        self.shard()\n")
    assert "FSDP" in held(HEAD + shards + heir + made)


FOLLOWED = [
    pytest.param("m = None\ndef f():\n    global m\n    m = FSDP(net)\ndef g():\n    ask(m)\n", id="global"),
    pytest.param(
        "def f():\n    m = None\n    def g():\n        nonlocal m\n        m = FSDP(net)\n    g()\n    ask(m)\n",
        id="nonlocal",
    ),
    pytest.param(
        "class T:\n    def __init__(self):\n        self._m = FSDP(net)\n"
        "    @property\n    def m(self):\n        return self._m\n    def f(self):\n        ask(self.m)\n",
        id="property",
    ),
    pytest.param("ms = {'a': FSDP(net)}\nask(ms['a'])\n", id="item of a dict"),
    pytest.param("f = lambda m: FSDP(m)\nask(f(net))\n", id="lambda"),
    pytest.param("from functools import partial\nf = partial(FSDP, use_orig_params=True)\nask(f(net))\n", id="partial"),
]


@pytest.mark.parametrize("text", FOLLOWED)
def test_model_is_followed(text: str) -> None:
    assert "FSDP" in held(HEAD + text)


NOT_FOLLOWED = [
    pytest.param("for m in x.values():\n    ask(m)\n", id="loop variable"),
    pytest.param("ask(x.model)\n", id="attribute of something else"),
    pytest.param("ask(x[0])\n", id="item of something else"),
    pytest.param("ask(x())\n", id="call of something else"),
]


@pytest.mark.parametrize("text", NOT_FOLLOWED)
def test_what_is_not_seen_is_unknown(text: str) -> None:
    assert "UNKNOWN" in held(HEAD + "def main(x):\n" + "".join(f"    {line}\n" for line in text.splitlines()))


@pytest.mark.parametrize(("text", "found"), CASES)
def test_holds(text: str, found: set[str]) -> None:
    assert held(HEAD + text) == found


STORED = [
    pytest.param("ms = {}\nms[k] = FSDP(net)\nask(ms[k])\n", id="stored under a name"),
    pytest.param("ms = {}\nms['a'] = FSDP(net)\nask(ms[k])\n", id="read by a name"),
    pytest.param("ms = [FSDP(net), net]\nfor m in ms:\n    ask(m)\n", id="loop over a list"),
    pytest.param("ms = []\nms.append(FSDP(net))\nfor i, m in enumerate(ms):\n    ask(m)\n", id="appended"),
    pytest.param("ms = {'a': net}\nms['a'] = FSDP(net)\nfor m in ms.values():\n    ask(m)\n", id="values"),
    pytest.param("ms = {'a': FSDP(net)}\nfor k, m in ms.items():\n    ask(m)\n", id="items"),
    pytest.param("ms = {'a': FSDP(net)}\nx = [ask(m) for m in ms.values()]\n", id="comprehension"),
    pytest.param("ms = [FSDP(m) for m in x]\nfor m in ms:\n    ask(m)\n", id="list comprehension"),
    pytest.param("a = [FSDP(net)]\nb = [net]\nfor m, n in zip(a, b):\n    ask(m)\n", id="zip"),
    pytest.param(
        "ms = [FSDP(net)]\nwhile ms:\n    for m in ms:\n        ask(m)\n    ms = list(ms)\n    ms = [*ms]\n",
        id="a list made of itself",
    ),
    pytest.param("for m in (FSDP(net), net):\n    ask(m)\n", id="loop over a tuple"),
    pytest.param("ps = [(FSDP(net), 1)]\nfor m, n in ps:\n    ask(m)\n", id="pairs"),
    pytest.param("ms = torch.nn.ModuleDict({'a': net})\nms['a'] = FSDP(ms['a'])\nask(ms.a)\n", id="module dict"),
    pytest.param("def f(ms):\n    ms['a'] = FSDP(net)\nd = {'a': net}\nf(d)\nask(d['a'])\n", id="stored by a function"),
    pytest.param(
        "class T:\n    def __init__(self):\n        self.ms = torch.nn.ModuleDict({'a': net})\n"
        "        for k in self.ms:\n            self.ms[k] = FSDP(self.ms[k])\n"
        "t = T()\nfor m in t.ms.values():\n    ask(m)\n",
        id="attribute of another object",
    ),
]


@pytest.mark.parametrize("text", STORED)
def test_what_is_put_into_a_container_comes_out(text: str) -> None:
    assert "FSDP" in held(HEAD + text)


NOT_STORED = [
    pytest.param("ms = {'a': FSDP(net), 'b': net}\nask(ms['b'])\n", id="another key"),
    pytest.param("ms = {'a': FSDP(net)}\nfor m in ms:\n    ask(m)\n", id="keys"),
    pytest.param("ms = {'a': FSDP(net)}\nfor m, n in ms.items():\n    ask(m)\n", id="key of items"),
    pytest.param("a = [net]\na[0] = FSDP(net)\nb = [net]\nask(b[0])\n", id="another container"),
    pytest.param("ms = [FSDP(net)]\nm = net\nx = [m for m in ms]\nask(m)\n", id="behind a comprehension"),
]


@pytest.mark.parametrize("text", NOT_STORED)
def test_what_is_put_elsewhere_does_not_come_out(text: str) -> None:
    assert "FSDP" not in held(HEAD + text)


ARGS = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
WAYS = [
    pytest.param("m = FSDP(net) if args.f else DDP(net)\nif args.f:\n    ask(m)\n", {"FSDP"}, id="same condition"),
    pytest.param("m = FSDP(net) if args.f else DDP(net)\nif not args.f:\n    ask(m)\n", {"DDP"}, id="its negation"),
    pytest.param("m = FSDP(net) if args.f else DDP(net)\nx = 0 if args.f else ask(m)\n", {"DDP"}, id="expression"),
    pytest.param(
        "m = FSDP(net) if args.f else DDP(net)\nif args.f and x:\n    0\nelse:\n    ask(m)\n",
        {"FSDP", "DDP"},
        id="else of and",
    ),
    pytest.param(
        "m = FSDP(net) if args.f else DDP(net)\nif args.g:\n    ask(m)\n", {"FSDP", "DDP"}, id="another condition"
    ),
    pytest.param(
        "def w(a):\n    if a.kind == 'ddp':\n        return DDP(net)\n    return FSDP(net)\n"
        "m = w(args)\nif args.kind == 'ddp':\n    ask(m)\n",
        {"DDP"},
        id="early return",
    ),
    pytest.param(
        "m = FSDP(net) if args.kind == 'fsdp' else DDP(net)\nif args.kind == 'ddp':\n    ask(m)\n",
        {"DDP"},
        id="another constant",
    ),
    pytest.param(
        "def w():\n    return FSDP(net)\nm = w() if args.f else DDP(net)\nif not args.f:\n    ask(m)\n",
        {"DDP"},
        id="wrapped by a function",
    ),
    pytest.param(
        "class T:\n    def __init__(self, m, zero):\n        self.m = m\n        self.zero = zero\n"
        "    def f(self):\n        if not self.zero:\n            ask(self.m)\n"
        "T(FSDP(net) if args.f else DDP(net), args.f)\n",
        {"DDP"},
        id="flag kept by an object",
    ),
    pytest.param(
        "def f(a, b):\n    if a.f:\n        m = FSDP(net)\n    else:\n        m = DDP(net)\n"
        "    if not b.f:\n        ask(m)\n",
        {"FSDP", "DDP"},
        id="flag of another object",
    ),
    pytest.param(
        "flag = x\nm = FSDP(net) if flag else DDP(net)\nif y:\n    flag = z\nif not flag:\n    ask(m)\n",
        {"FSDP", "DDP"},
        id="flag set in between",
    ),
    pytest.param(
        "m = FSDP(net) if args.f else DDP(net)\nargs.f = False\nif not args.f:\n    ask(m)\n",
        {"FSDP", "DDP"},
        id="attribute set in between",
    ),
]


@pytest.mark.parametrize(("text", "found"), WAYS)
def test_models_on_other_ways_are_left_out(text: str, found: set[str]) -> None:
    assert held(HEAD + ARGS + text) == found


BELOW = "class T:\n    def __init__(self, net):\n        self.m = Net()\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("        ask(self.m)\n        self.m = FSDP(self.m)\n", {"OTHER"}, id="above"),
        pytest.param("        self.m = FSDP(ask(self.m))\n", {"OTHER"}, id="in the call"),
        pytest.param("        self.m = FSDP(self.m)\n        ask(self.m)\n", {"FSDP"}, id="below"),
        pytest.param(
            "        self.m = FSDP(self.m)\n    def f(self):\n        ask(self.m)\n", {"FSDP"}, id="elsewhere"
        ),
        pytest.param(
            "        if net:\n            self.m = FSDP(self.m)\n    def f(self):\n        ask(self.m)\n",
            {"FSDP", "OTHER"},
            id="under a condition",
        ),
        pytest.param(
            "        self.f()\n        self.m = FSDP(self.m)\n    def f(self):\n        ask(self.m)\nT(1).f()\n",
            {"FSDP", "OTHER"},
            id="in a method that runs before",
        ),
        pytest.param(
            "        self.g()\n        self.m = FSDP(self.m)\n    def g(self):\n        self.f()\n"
            "    def f(self):\n        ask(self.m)\nT(1).f()\n",
            {"FSDP", "OTHER"},
            id="in what that runs",
        ),
        pytest.param(
            "        self.m = FSDP(self.m)\n    def f(self):\n        ask(self.m)\n"
            "    def unwrap(self):\n        self.m = self.m.module\n        self.m = Net()\n",
            {"FSDP", "OTHER"},
            id="set in another method",
        ),
        pytest.param(
            "        self.m = FSDP(self.m)\n    def f(self):\n        ask(self.m)\nt = T(1)\nt.m = Net()\n",
            {"FSDP", "OTHER"},
            id="set from outside",
        ),
        pytest.param(
            "        self.m = FSDP(self.m)\n        if net:\n            self.m = Net()\n"
            "    def f(self):\n        ask(self.m)\n",
            {"FSDP", "OTHER"},
            id="set again below",
        ),
        pytest.param(
            "        self.m = FSDP(self.m)\n    def f(self):\n        ask(self.m)\n"
            "class U(T):\n    def __init__(self, net):\n        super().__init__(net)\n        self.m = Net()\n",
            {"FSDP", "OTHER"},
            id="set by an heir",
        ),
        pytest.param(
            "        self.m = FSDP(self.m)\n        self.show(self.m)\n    def show(self, m):\n        ask(m)\n",
            {"FSDP"},
            id="passed on",
        ),
        pytest.param(
            "        self.show(self.m)\n        self.m = FSDP(self.m)\n        self.show(self.m)\n"
            "    def show(self, m):\n        ask(m)\n",
            {"FSDP", "OTHER"},
            id="passed on before as well",
        ),
        pytest.param(
            "        self.m = FSDP(self.m)\n        self.show(self.m, 2)\n"
            "    def show(self, m, n):\n        ask(m)\n        if n:\n            self.show(m, n - 1)\n",
            {"FSDP", "OTHER"},
            id="by itself",
        ),
        pytest.param(
            "        self.m = FSDP(self.m)\n        self.update(self.m)\n        {}.update(a=1)\n"
            "        unseen().update(b)\n        unseen().update({1: 2})\n    def update(self, m):\n        ask(m)\n",
            {"FSDP", "OTHER", "UNKNOWN"},
            id="of a name that others have",
        ),
        pytest.param(
            "        self.m = FSDP(self.m)\n        self.update(self.m)\n        {}.update(a=1)\n"
            "        unseen().update({1: 2})\n    def update(self, m):\n        ask(m)\n",
            {"FSDP"},
            id="of a name that dicts have",
        ),
    ],
)
def test_an_attribute_is_not_wrapped_yet_above_the_wrap(text: str, found: set[str]) -> None:
    assert held(HEAD + BELOW + text) == found


def test_an_attribute_is_set_by_heirs_that_never_name_the_class() -> None:
    program = {
        "train.py": "class Base:\n    def f(self):\n        ask(self.m)\n",
        "middle.py": "import train as t\nMade = t.Base\nclass Middle(Made):\n    pass\n",
        "leaf.py": HEAD
        + "from middle import Middle as Parent\nclass Leaf(\n    Parent,\n):\n"
        + "    def __init__(self):\n        self.m = FSDP(net)\n",
    }
    assert held(program) == {"FSDP"}


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ('nets["b"] = DDP(net)', {"FSDP"}),
        ('nets["a"] = DDP(net)', {"FSDP", "DDP"}),
        ("nets[key] = DDP(net)", {"FSDP", "DDP"}),
        ('(nets) [\n    "a"\n] = DDP(net)', {"FSDP", "DDP"}),
        ('nets["a" ""] = DDP(net)', {"FSDP", "DDP"}),
    ],
)
def test_what_another_file_stores_counts_under_its_key(store: str, found: set[str]) -> None:
    program = {
        "train.py": HEAD + 'from shared import nets\nimport other\nnets["a"] = FSDP(net)\nask(nets["a"])\n',
        "shared.py": "nets = {}\n",
        "other.py": "from torch.nn.parallel import DistributedDataParallel as DDP\nfrom shared import nets\n"
        f"from net import net, key\n{store}\n",
    }
    assert held(program) == found | {"UNKNOWN"}  # more can be put there unseen


def test_ddp_model_in_a_field() -> None:
    text = "import dataclasses\n@dataclasses.dataclass\nclass State:\n    m: object = None\nask(State(m=DDP(net)).m)\n"
    assert held(HEAD + text) == {"DDP"}
