"""Programs in which a model goes a long way through other objects before it is used.

A journey starts where a model is made, passes some carriers (each is one way in which Python programs hand a value on)
and ends in a few uses. Everything a journey defines has a number of its own, so that two journeys never meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from textwrap import indent

HEAD = """\
import asyncio
import collections
import concurrent.futures
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import operator
import sys
import threading
import types
import typing
import weakref

import torch
from options import args
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    pass
"""


@dataclass
class Draft:
    """A program while it is written."""

    random: Random
    top: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    count: int = 0

    def number(self) -> int:
        self.count += 1
        return self.count


Lines = list[str]
Rest = Callable[[Lines, str], None]
"""What comes behind a carrier: it is given where to write, and an expression that holds the model there."""
Carrier = Callable[[Draft, Lines, str, Rest], None]

CARRIERS: dict[str, Carrier] = {}


def carrier(function: Carrier) -> Carrier:
    CARRIERS[function.__name__] = function
    return function


def define(head: str, body: Lines) -> str:
    return f"{head}\n" + indent("\n".join(body) or "pass", "    ")


def _simple(name: str, top: str, lines: str, expression: str) -> None:
    """A carrier that is text: `M` is the model that comes, `N` a number."""

    def carry(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
        number = str(draft.number())

        def fill(text: str) -> str:
            return text.replace("_N", number).replace("$", model)

        if top:
            draft.top.append(fill(top))
        here.extend(fill(lines).splitlines())
        rest(here, fill(expression))

    CARRIERS[name] = carry


_BOX = "class Box_N:\n    def __init__(self):\n        self.net = Net()\n        self.other = None"

_SIMPLE: dict[str, tuple[str, str, str]] = {
    "name": ("", "model_N = $", "model_N"),
    "two names": ("", "model_N, other_N = $, None", "model_N"),
    "walrus": ("", "print((model_N := $) is None)", "model_N"),
    "conditional": ("", "model_N = $ if args else None", "model_N"),
    "boolean or": ("", "model_N = None or $", "model_N"),
    "chained assignment": ("", "model_N = other_N = $", "model_N"),
    "annotated": ("", "model_N: nn.Module = $", "model_N"),
    "method that returns the model": ("", "model_N = $.train()", "model_N"),
    "outer attribute": (_BOX, "box_N = Box_N()\nbox_N.net = $", "box_N.net"),
    "outer attribute, twice": (
        f"{_BOX}\n\n\nclass Outer_N:\n    def __init__(self):\n        self.box = Box_N()",
        "outer_N = Outer_N()\nouter_N.box.net = $",
        "outer_N.box.net",
    ),
    "new attribute": ("class Box_N:\n    pass", "box_N = Box_N()\nbox_N.net = $", "box_N.net"),
    "setattr": (_BOX, 'box_N = Box_N()\nsetattr(box_N, "net", $)', "box_N.net"),
    "setattr by a variable": (
        _BOX,
        'box_N = Box_N()\nfor key_N in ("net", "other"):\n    setattr(box_N, key_N, $)',
        "box_N.net",
    ),
    "getattr": (_BOX, "box_N = Box_N()\nbox_N.net = $", 'getattr(box_N, "net")'),
    "vars": (_BOX, 'box_N = Box_N()\nvars(box_N)["net"] = $', "box_N.net"),
    "__dict__": (_BOX, 'box_N = Box_N()\nbox_N.__dict__["net"] = $', "box_N.net"),
    "__dict__.update": (_BOX, "box_N = Box_N()\nbox_N.__dict__.update(net=$)", "box_N.net"),
    "object.__setattr__": (_BOX, 'box_N = Box_N()\nobject.__setattr__(box_N, "net", $)', "box_N.net"),
    "tuple of attributes": (_BOX, "box_N = Box_N()\nbox_N.net, box_N.other = $, None", "box_N.net"),
    "built in the class": (
        "class Trainer_N:\n    def __init__(self, model):\n        self.model, self.rest = self.build(model)\n\n"
        "    def build(self, model):\n        return model, 1",
        "trainer_N = Trainer_N($)",
        "trainer_N.model",
    ),
    "method of an heir": (
        "class Base_N:\n    def __init__(self, net):\n        self.net = net\n\n"
        "    def make(self):\n        raise NotImplementedError\n\n    def run(self):\n        return self.make()\n\n\n"
        "class Heir_N(Base_N):\n    def make(self):\n        return self.net",
        "heir_N = Heir_N($)",
        "heir_N.run()",
    ),
    "class within a class": (
        "class Outer_N:\n    class Held:\n        def __init__(self, net):\n            self.net = net\n\n"
        "    def hold(self, net):\n        return self.Held(net)",
        "held_N = Outer_N().hold($)",
        "held_N.net",
    ),
    "dataclass within a class": (
        "class Outer_N:\n    @dataclasses.dataclass\n    class Held:\n        net: nn.Module = None\n\n\n"
        "class Heir_N(Outer_N):\n    @dataclasses.dataclass\n    class Held(Outer_N.Held):\n        more: int = 0\n\n"
        "    def hold(self, net):\n        return self.Held(net=net)",
        "held_N = Heir_N().hold($)",
        "held_N.net",
    ),
    "setter": (
        f"{_BOX}\n\n    def put(self, net):\n        self.net = net",
        "box_N = Box_N()\nbox_N.put($)",
        "box_N.net",
    ),
    "getter": (
        f"{_BOX}\n\n    def put(self, net):\n        self.net = net\n\n    def get(self):\n        return self.net",
        "box_N = Box_N()\nbox_N.put($)",
        "box_N.get()",
    ),
    "property": (
        f"{_BOX}\n\n    @property\n    def model(self):\n        return self.net",
        "box_N = Box_N()\nbox_N.net = $",
        "box_N.model",
    ),
    "property with a setter": (
        f"{_BOX}\n\n    @property\n    def model(self):\n        return self.net\n\n"
        "    @model.setter\n    def model(self, value):\n        self.net = value",
        "box_N = Box_N()\nbox_N.model = $",
        "box_N.model",
    ),
    "__call__": (
        "class Box_N:\n    def __init__(self, net):\n        self.net = net\n\n"
        "    def __call__(self):\n        return self.net",
        "box_N = Box_N($)",
        "box_N()",
    ),
    "called object": (
        "class Keep_N:\n    def __call__(self, net):\n        self.net = net\n        return self\n\n\n"
        "def given_N(keep, net):\n    return keep(net)",
        "box_N = given_N(Keep_N(), $)",
        "box_N.net",
    ),
    "__getitem__": (
        "class Box_N:\n    def __init__(self, net):\n        self.net = net\n\n"
        "    def __getitem__(self, key):\n        return self.net",
        "box_N = Box_N($)",
        "box_N[0]",
    ),
    "fluent setter": (
        f"{_BOX}\n\n    def put(self, net):\n        self.net = net\n        return self",
        "box_N = Box_N().put($)",
        "box_N.net",
    ),
    "dataclass": (
        "@dataclasses.dataclass\nclass State_N:\n    net: object\n    step: int = 0",
        "state_N = State_N($)",
        "state_N.net",
    ),
    "dataclass by keyword": (
        "@dataclasses.dataclass\nclass State_N:\n    step: int = 0\n    net: object = None",
        "state_N = State_N(net=$)",
        "state_N.net",
    ),
    "dataclass set later": (
        "@dataclasses.dataclass\nclass State_N:\n    step: int = 0\n    net: object = None",
        "state_N = State_N()\nstate_N.net = $",
        "state_N.net",
    ),
    "dataclass replaced": (
        "@dataclasses.dataclass\nclass State_N:\n    step: int = 0\n    net: object = None",
        "state_N = dataclasses.replace(State_N(), net=$)",
        "state_N.net",
    ),
    "copy": (_BOX, "box_N = Box_N()\nbox_N.net = $\ncopy_N = copy.copy(box_N)", "copy_N.net"),
    "namespace": ("", "space_N = types.SimpleNamespace(net=$)", "space_N.net"),
    "namespace set later": ("", "space_N = types.SimpleNamespace()\nspace_N.net = $", "space_N.net"),
    "filled": (
        f"{_BOX}\n\n\ndef fill_N(box, net):\n    box.net = net",
        "box_N = Box_N()\nfill_N(box_N, $)",
        "box_N.net",
    ),
    "filled and given back": (
        f"{_BOX}\n\n\ndef fill_N(box, net):\n    box.net = net\n    return box",
        "box_N = fill_N(Box_N(), $)",
        "box_N.net",
    ),
    "class attribute": ("class Registry_N:\n    net = None", "Registry_N.net = $", "Registry_N.net"),
    "class method": (
        "class Registry_N:\n    net = None\n\n    @classmethod\n    def put(cls, net):\n        cls.net = net",
        "Registry_N.put($)",
        "Registry_N.net",
    ),
    "global": (
        "MODEL_N = None\n\n\ndef set_N(net):\n    global MODEL_N\n    MODEL_N = net\n\n\n"
        "def get_N():\n    return MODEL_N",
        "set_N($)",
        "get_N()",
    ),
    "dict": ("", 'nets_N = {}\nnets_N["a"] = $', 'nets_N["a"]'),
    "dict literal": ("", 'nets_N = {"a": $, "b": None}', 'nets_N["a"]'),
    "dict call": ("", "nets_N = dict(a=$)", 'nets_N["a"]'),
    "dict get": ("", 'nets_N = {"a": $}', 'nets_N.get("a")'),
    "dict update": ("", 'nets_N = {"a": None}\nnets_N.update({"a": $})', 'nets_N["a"]'),
    "dict update by keyword": ("", "nets_N = {}\nnets_N.update(a=$)", 'nets_N["a"]'),
    "dict setdefault": ("", 'nets_N = {}\nnets_N.setdefault("a", $)', 'nets_N["a"]'),
    "dict merged": ("", 'first_N = {"a": $}\nnets_N = {**first_N, "b": None}', 'nets_N["a"]'),
    "dict or": ("", 'nets_N = {"b": None} | {"a": $}', 'nets_N["a"]'),
    "dict pop": ("", 'nets_N = {"a": $}\nmodel_N = nets_N.pop("a")', "model_N"),
    "dict of dicts": ("", 'nets_N = {"a": {"b": $}}', 'nets_N["a"]["b"]'),
    "dict comprehension": ("", 'nets_N = {key: $ for key in ("a", "b")}', 'nets_N["a"]'),
    "list": ("", "nets_N = [None, $]", "nets_N[-1]"),
    "list append": ("", "nets_N = []\nnets_N.append($)", "nets_N[0]"),
    "list insert": ("", "nets_N = []\nnets_N.insert(0, $)", "nets_N[0]"),
    "list extend": ("", "nets_N = []\nnets_N.extend([$])", "nets_N[0]"),
    "list added": ("", "nets_N = [None] + [$]", "nets_N[1]"),
    "list augmented": ("", "nets_N = []\nnets_N += [$]", "nets_N[0]"),
    "list sliced": ("", "nets_N = [None, $]", "nets_N[1:][0]"),
    "list pop": ("", "nets_N = [$]\nmodel_N = nets_N.pop()", "model_N"),
    "list comprehension": ("", "nets_N = [net for net in ($,)]", "nets_N[0]"),
    "unpacked list": ("", "(model_N,) = [$]", "model_N"),
    "starred": ("", "model_N, *rest_N = [$, None]", "model_N"),
    "starred rest": ("", "first_N, *rest_N = [None, $]", "rest_N[0]"),
    "nested tuple": ("", "(model_N, a_N), b_N = ($, 1), 2", "model_N"),
    "next": ("", "model_N = next(iter([$]))", "model_N"),
    "map": ("", "nets_N = list(map(lambda net: net, [$]))", "nets_N[0]"),
    "list in an object": (
        "class Box_N:\n    def __init__(self):\n        self.nets = []\n\n"
        "    def add(self, net):\n        self.nets.append(net)",
        "box_N = Box_N()\nbox_N.add($)",
        "box_N.nets[0]",
    ),
    "dict in an object": (
        "class Box_N:\n    def __init__(self):\n        self.nets = {}",
        'box_N = Box_N()\nbox_N.nets["a"] = $',
        'box_N.nets["a"]',
    ),
    "identity": ("def same_N(net):\n    return net", "model_N = same_N($)", "model_N"),
    "lambda": ("", "same_N = lambda net: net", "same_N($)"),
    "lambda that holds it": ("", "held_N = $\nget_N = lambda: held_N", "get_N()"),
    "partial": ("def same_N(step, net):\n    return net", "get_N = functools.partial(same_N, 1, $)", "get_N()"),
    "partial by keyword": (
        "def same_N(step, net):\n    return net",
        "get_N = functools.partial(same_N, net=$)",
        "get_N(1)",
    ),
    "stars": ("def same_N(*nets):\n    return nets[0]", "model_N = same_N($)", "model_N"),
    "stars passed on": (
        "def same_N(a, net):\n    return net",
        "given_N = (1, $)\nmodel_N = same_N(*given_N)",
        "model_N",
    ),
    "double stars": ('def same_N(**nets):\n    return nets["net"]', "model_N = same_N(net=$)", "model_N"),
    "double stars passed on": (
        "def same_N(net):\n    return net",
        'given_N = {"net": $}\nmodel_N = same_N(**given_N)',
        "model_N",
    ),
    "one of two returned": ("def two_N(net):\n    return 1, net", "_, model_N = two_N($)", "model_N"),
    "two returned, by index": ("def two_N(net):\n    return 1, net", "model_N = two_N($)[1]", "model_N"),
    "dict returned": ('def state_N(net):\n    return {"net": net}', "state_N_ = state_N($)", 'state_N_["net"]'),
    "object returned": (
        f"{_BOX}\n\n\ndef make_N(net):\n    box = Box_N()\n    box.net = net\n    return box",
        "box_N = make_N($)",
        "box_N.net",
    ),
    "static method": (
        "class Tools_N:\n    @staticmethod\n    def same(net):\n        return net",
        "model_N = Tools_N.same($)",
        "model_N",
    ),
    "closure": (
        "def keep_N(net):\n    def get():\n        return net\n\n    return get",
        "get_N = keep_N($)",
        "get_N()",
    ),
    "context manager": (
        "@contextlib.contextmanager\ndef hold_N(net):\n    yield net",
        "with hold_N($) as model_N:\n    pass",
        "model_N",
    ),
    "context manager that is a class": (
        "class Hold_N:\n    def __init__(self, net):\n        self.net = net\n\n"
        "    def __enter__(self):\n        return self.net\n\n    def __exit__(self, *_):\n        pass",
        "with Hold_N($) as model_N:\n    pass",
        "model_N",
    ),
    "tried": ("", "try:\n    model_N = $\nexcept RuntimeError:\n    model_N = None", "model_N"),
    "cast": ("", "model_N = typing.cast(nn.Module, $)", "model_N"),
    "compiled": ("", "model_N = torch.compile($)", "model_N"),
    "copied itself": ("", "model_N = copy.copy($)", "model_N"),
    "weak proxy": ("", "model_N = weakref.proxy($)", "model_N"),
    "NamedTuple": (
        "class Pair_N(typing.NamedTuple):\n    net: object\n    step: int = 0",
        "pair_N = Pair_N($)",
        "pair_N.net",
    ),
    "NamedTuple unpacked": (
        "class Pair_N(typing.NamedTuple):\n    net: object\n    step: int = 0",
        "model_N, step_N = Pair_N($)",
        "model_N",
    ),
    "getattr with default": (_BOX, "box_N = Box_N()\nbox_N.net = $", 'getattr(box_N, "net", None)'),
    "loop over zip": ("", "for net_N, step_N in zip([$], [1]):\n    pass", "net_N"),
    "loop over enumerate": ("", "for step_N, net_N in enumerate([$]):\n    pass", "net_N"),
    "loop over items": ("", 'for key_N, net_N in {"a": $}.items():\n    pass', "net_N"),
    "loop over values": ("", 'for net_N in {"a": $}.values():\n    pass', "net_N"),
    "reversed": ("", "nets_N = list(reversed([$]))", "nets_N[0]"),
    "sorted": ("", "nets_N = sorted([$], key=id)", "nets_N[0]"),
    "chained lists": ("", "nets_N = list(itertools.chain([$], []))", "nets_N[0]"),
    "deque": ("", "nets_N = collections.deque([$])", "nets_N[0]"),
    "deque append": ("", "nets_N = collections.deque()\nnets_N.append($)\nmodel_N = nets_N.popleft()", "model_N"),
    "defaultdict": ("", 'nets_N = collections.defaultdict(list)\nnets_N["a"].append($)', 'nets_N["a"][0]'),
    "nested list": ("", 'nets_N = {"a": []}\nnets_N["a"].append($)', 'nets_N["a"][0]'),
    "nested dict": ("", 'nets_N = {"a": {}}\nnets_N["a"]["b"] = $', 'nets_N["a"]["b"]'),
    "dict of a getter": (
        "class Box_N:\n    def __init__(self):\n        self.nets = {}\n\n    def all(self):\n        return self.nets",
        'box_N = Box_N()\nbox_N.nets["a"] = $',
        'box_N.all()["a"]',
    ),
    "dict filled through a getter": (
        "class Box_N:\n    def __init__(self):\n        self.nets = {}\n\n    def all(self):\n        return self.nets",
        'box_N = Box_N()\nbox_N.all()["a"] = $',
        'box_N.nets["a"]',
    ),
    "OrderedDict": ("", "nets_N = collections.OrderedDict(a=$)", 'nets_N["a"]'),
    "OrderedDict of pairs": ("", 'nets_N = collections.OrderedDict([("a", $)])', 'nets_N["a"]'),
    "dict of pairs": ("", 'nets_N = dict([("a", $)])', 'nets_N["a"]'),
    "dict of zip": ("", 'nets_N = dict(zip(["a"], [$]))', 'nets_N["a"]'),
    "dict fromkeys": ("", 'nets_N = dict.fromkeys(["a"], $)', 'nets_N["a"]'),
    "dict in a loop": ("", 'nets_N = {}\nfor key_N in ("a", "b"):\n    nets_N[key_N] = $', 'nets_N["b"]'),
    "set": ("", "nets_N = {$}\nmodel_N = nets_N.pop()", "model_N"),
    "cached property": (
        "class Box_N:\n    def __init__(self, net):\n        self._net = net\n\n    @functools.cached_property\n"
        "    def net(self):\n        return self._net",
        "box_N = Box_N($)",
        "box_N.net",
    ),
    "decorated": (
        "def loud_N(function):\n    @functools.wraps(function)\n    def inner(*a, **k):\n"
        "        return function(*a, **k)\n    return inner\n\n\n@loud_N\ndef same_N(net):\n    return net",
        "model_N = same_N($)",
        "model_N",
    ),
    "iterated object": (
        "class Box_N:\n    def __init__(self, net):\n        self.net = net\n\n    def __iter__(self):\n"
        "        yield self.net",
        "for model_N in Box_N($):\n    pass",
        "model_N",
    ),
    "yield from": (
        "def inner_N(net):\n    yield net\n\n\ndef each_N(net):\n    yield from inner_N(net)",
        "for model_N in each_N($):\n    pass",
        "model_N",
    ),
    "thread": (
        "def work_N(box, net):\n    box.append(net)",
        "nets_N = []\nthread_N = threading.Thread(target=work_N, args=(nets_N, $))\nthread_N.start()\nthread_N.join()",
        "nets_N[0]",
    ),
    "sequential": ("", "nets_N = nn.Sequential($)", "nets_N[0]"),
    "module list append": ("", "nets_N = nn.ModuleList()\nnets_N.append($)", "nets_N[0]"),
    "module dict set": ("", 'nets_N = nn.ModuleDict()\nnets_N["a"] = $', 'nets_N["a"]'),
    "part of a module": (
        "class Outer_N(nn.Module):\n    def __init__(self, net):\n        super().__init__()\n        self.net = net",
        "outer_N = Outer_N($)",
        "outer_N.net",
    ),
    "add_module": (
        "class Outer_N(nn.Module):\n    pass",
        'outer_N = Outer_N()\nouter_N.add_module("net", $)',
        "outer_N.net",
    ),
    "get_submodule": (
        "class Outer_N(nn.Module):\n    def __init__(self, net):\n        super().__init__()\n        self.net = net",
        "outer_N = Outer_N($)",
        'outer_N.get_submodule("net")',
    ),
    "closure by nonlocal": (
        "",
        "def outer_N(net):\n    held = None\n    def put():\n        nonlocal held\n        held = net\n    put()\n"
        "    return held\nmodel_N = outer_N($)",
        "model_N",
    ),
    "exit stack": (
        "@contextlib.contextmanager\ndef hold_N(net):\n    yield net",
        "with contextlib.ExitStack() as stack_N:\n    model_N = stack_N.enter_context(hold_N($))",
        "model_N",
    ),
    "nullcontext": ("", "with contextlib.nullcontext($) as model_N:\n    pass", "model_N"),
    "class with a registry": (
        "class Registry_N:\n    _items = {}\n\n    @classmethod\n    def register(cls, name, net):\n"
        "        cls._items[name] = net\n\n    @classmethod\n    def get(cls, name):\n"
        "        return cls._items[name]",
        'Registry_N.register("a", $)',
        'Registry_N.get("a")',
    ),
    "singleton": (
        "class Store_N:\n    _one = None\n\n    def __new__(cls):\n        if cls._one is None:\n"
        "            cls._one = super().__new__(cls)\n        return cls._one",
        "Store_N().net = $",
        "Store_N().net",
    ),
    "method bound": (
        f"{_BOX}\n\n    def get(self):\n        return self.net",
        "box_N = Box_N()\nbox_N.net = $\nget_N = box_N.get",
        "get_N()",
    ),
    "data class factory": (
        "@dataclasses.dataclass\nclass State_N:\n    nets: dict = dataclasses.field(default_factory=dict)",
        'state_N = State_N()\nstate_N.nets["a"] = $',
        'state_N.nets["a"]',
    ),
    "attributes as a dict": (_BOX, "box_N = Box_N()\nbox_N.net = $\nnets_N = dict(vars(box_N))", 'nets_N["net"]'),
    "while": ("", "model_N = None\nwhile model_N is None:\n    model_N = $", "model_N"),
    "swap": ("", "a_N, b_N = None, $\na_N, b_N = b_N, a_N", "a_N"),
    "function table": (
        'def same_N(net):\n    return net\n\n\nTABLE_N = {"a": same_N}',
        'model_N = TABLE_N["a"]($)',
        "model_N",
    ),
    "matched": ("", "match 1:\n    case 1:\n        model_N = $", "model_N"),
    "match of all": ("", "match $:\n    case model_N:\n        pass", "model_N"),
    "match of a list": ("", "match [$, 1]:\n    case [model_N, _]:\n        pass", "model_N"),
    "match of a dict": ("", 'match {"net": $}:\n    case {"net": model_N}:\n        pass', "model_N"),
    "match of a class": ("", "match ($, 1):\n    case (nn.Module() as model_N, _):\n        pass", "model_N"),
    "middle of a tuple": ("", "first_N, *mid_N, last_N = 1, $, 2\nmodel_N = mid_N[0]", "model_N"),
    "loop left": ("", "for model_N in [$]:\n    break", "model_N"),
    "found in a loop": (
        "",
        "for net_N in [None, $]:\n    if net_N is not None:\n        model_N = net_N\n        break",
        "model_N",
    ),
    "awaited": (
        "async def build_N(net):\n    return net\n\n\nasync def put_N(box, net):\n    box.append(await build_N(net))",
        "nets_N = []\nasyncio.run(put_N(nets_N, $))",
        "nets_N[0]",
    ),
    "reduced": (
        "def step_N(net, turn):\n    return net",
        "model_N = functools.reduce(step_N, [1, 2], $)",
        "model_N",
    ),
    "asyncio.run": ("async def build_N(net):\n    return net", "model_N = asyncio.run(build_N($))", "model_N"),
    "task": (
        "async def build_N(net):\n    return net\n\n\nasync def main_N(net):\n"
        "    task = asyncio.create_task(build_N(net))\n    return await task",
        "model_N = asyncio.run(main_N($))",
        "model_N",
    ),
    "__new__": (
        "class Same_N:\n    def __new__(cls, net):\n        return net",
        "model_N = Same_N($)",
        "model_N",
    ),
    "async with": (
        "class Hold_N:\n    def __init__(self, net):\n        self.net = net\n\n    async def __aenter__(self):\n"
        "        return self.net\n\n    async def __aexit__(self, *_):\n        pass\n\n\n"
        "async def put_N(box, net):\n    async with Hold_N(net) as model:\n        box.append(model)",
        "nets_N = []\nasyncio.run(put_N(nets_N, $))",
        "nets_N[0]",
    ),
    "class of self": (
        (
            "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n\n"
            "    def other(self, net):\n        return type(self)(net)"
        ),
        "model_N = Box_N().other($).net",
        "model_N",
    ),
    "__class__ of self": (
        (
            "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n\n"
            "    def other(self, net):\n        return self.__class__(net)"
        ),
        "model_N = Box_N().other($).net",
        "model_N",
    ),
    "class that makes itself": (
        (
            "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n\n    @classmethod\n"
            "    def make(cls, net):\n        return cls(net)"
        ),
        "model_N = Box_N.make($).net",
        "model_N",
    ),
    "object without __init__": (
        (
            "class Box_N:\n    @classmethod\n    def make(cls, net):\n        self = cls.__new__(cls)\n"
            "        self.net = net\n        return self"
        ),
        "model_N = Box_N.make($).net",
        "model_N",
    ),
    "heir made by cls": (
        (
            "class Box_N:\n    @classmethod\n    def make(cls, net):\n        return cls(net)\n\n\n"
            "class Heir_N(Box_N):\n    def __init__(self, net=None):\n        self.net = net"
        ),
        "model_N = Heir_N.make($).net",
        "model_N",
    ),
    "dataclass made by cls": (
        (
            "@dataclasses.dataclass\nclass State_N:\n    net: object\n\n    @classmethod\n"
            "    def make(cls, net):\n        return cls(net)"
        ),
        "state_N = State_N.make($)",
        "state_N.net",
    ),
    "super chain": (
        (
            "class A_N:\n    def get(self):\n        return self.net\n\n\nclass B_N(A_N):\n    def get(self):\n"
            "        return super().get()\n\n\nclass C_N(B_N):\n    def __init__(self, net):\n"
            "        self.net = net\n\n    def get(self):\n        net = super().get()\n        return net"
        ),
        "model_N = C_N($).get()",
        "model_N",
    ),
    "base's method": (
        (
            "class Base_N:\n    def get(self):\n        return self.net\n\n\nclass Heir_N(Base_N):\n"
            "    def __init__(self, net):\n        self.net = net\n\n    def get(self):\n"
            "        return Base_N.get(self)"
        ),
        "model_N = Heir_N($).get()",
        "model_N",
    ),
    "mixin": (
        (
            "class Saves_N:\n    def get(self):\n        return self.net\n\n\nclass Base_N:\n"
            "    def __init__(self, net):\n        self.net = net\n\n\nclass Trainer_N(Saves_N, Base_N):\n"
            "    pass"
        ),
        "model_N = Trainer_N($).get()",
        "model_N",
    ),
    "cooperative mixins": (
        (
            "class A_N:\n    def put(self, net):\n        self.net = net\n\n\nclass B_N:\n"
            "    def put(self, net):\n        super().put(net)\n\n\nclass C_N(B_N, A_N):\n    pass"
        ),
        "c_N = C_N()\nc_N.put($)\nmodel_N = c_N.net",
        "model_N",
    ),
    "method beside a mixin": (
        (
            "class Saves_N:\n    def get(self):\n        return self.model()\n\n\nclass Base_N:\n"
            "    def __init__(self, net):\n        self.net = net\n\n    def model(self):\n"
            "        return self.net\n\n\nclass Trainer_N(Saves_N, Base_N):\n    pass"
        ),
        "model_N = Trainer_N($).get()",
        "model_N",
    ),
    "mixin that stores": (
        (
            "class Saves_N:\n    def put(self, net):\n        self.net = net\n\n\nclass Base_N:\n"
            "    def get(self):\n        return self.net\n\n\nclass Trainer_N(Saves_N, Base_N):\n    pass"
        ),
        "t_N = Trainer_N()\nt_N.put($)\nmodel_N = t_N.get()",
        "model_N",
    ),
    "mixin of a base": (
        (
            "class Saves_N:\n    def get(self):\n        return self.net\n\n\nclass Mid_N(Saves_N):\n    pass\n"
            "\n\nclass Base_N:\n    def __init__(self, net):\n        self.net = net\n\n\n"
            "class Trainer_N(Mid_N, Base_N):\n    pass"
        ),
        "model_N = Trainer_N($).get()",
        "model_N",
    ),
    "getattr by a text made": (
        "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n        self.other = None",
        "box_N = Box_N($)\nname_N = 'ne'\nmodel_N = getattr(box_N, f'{name_N}t')",
        "model_N",
    ),
    "getattr by a variable": (
        "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n        self.other = None",
        "box_N = Box_N($)\nname_N = 'net'\nmodel_N = getattr(box_N, name_N)",
        "model_N",
    ),
    "getattr in a loop": (
        "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n        self.other = None",
        "box_N = Box_N($)\nfor name_N in ('net',):\n    model_N = getattr(box_N, name_N)",
        "model_N",
    ),
    "getattr by a parameter": (
        (
            "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n"
            "        self.other = None\n\n\ndef take_N(box, name='net'):\n    return getattr(box, name)"
        ),
        "model_N = take_N(Box_N($))",
        "model_N",
    ),
    "setattr and getattr by texts made": (
        "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n        self.other = None",
        "box_N = Box_N()\ni_N = 1\nsetattr(box_N, f'net{i_N}', $)\nmodel_N = getattr(box_N, f'net{i_N}')",
        "model_N",
    ),
    "attributes updated": (
        "class Box_N:\n    def __init__(self, **kw):\n        self.__dict__.update(kw)",
        "model_N = Box_N(net=$).net",
        "model_N",
    ),
    "items of vars": (
        "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n        self.other = None",
        "box_N = Box_N($)\nfor key_N, model_N in vars(box_N).items():\n    break",
        "model_N",
    ),
    "items of __dict__": (
        "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n        self.other = None",
        "box_N = Box_N($)\nfor key_N, model_N in box_N.__dict__.items():\n    break",
        "model_N",
    ),
    "values of vars": (
        "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n        self.other = None",
        "box_N = Box_N($)\nmodel_N = list(vars(box_N).values())[0]",
        "model_N",
    ),
    "__dict__ by a variable": (
        "class Box_N:\n    def __init__(self, net=None):\n        self.net = net\n        self.other = None",
        "box_N = Box_N($)\nkey_N = 'net'\nmodel_N = box_N.__dict__[key_N]",
        "model_N",
    ),
    "__dict__ of self": (
        (
            "class Box_N:\n    def __init__(self, net):\n        self.net = net\n\n    def all(self):\n"
            "        for k, v in self.__dict__.items():\n            if isinstance(v, nn.Module):\n"
            "                yield v"
        ),
        "for model_N in Box_N($).all():\n    break",
        "model_N",
    ),
    "fields of a dataclass": (
        "@dataclasses.dataclass\nclass State_N:\n    net: object",
        ("state_N = State_N($)\nfor f_N in dataclasses.fields(state_N):\n    model_N = getattr(state_N, f_N.name)"),
        "model_N",
    ),
    "dict of its own, by attribute": (
        "class AttrDict_N(dict):\n    def __getattr__(self, name):\n        return self[name]",
        "box_N = AttrDict_N(net=$)",
        "box_N.net",
    ),
    "dict of its own, set by attribute": (
        "class AttrDict_N(dict):\n    __getattr__ = dict.__getitem__\n    __setattr__ = dict.__setitem__",
        "box_N = AttrDict_N()\nbox_N['net'] = $",
        "box_N.net",
    ),
    "dict of its own, item as attribute": (
        (
            "class AttrDict_N(dict):\n    def __getattr__(self, name):\n        return self[name]\n\n"
            "    def __setattr__(self, name, value):\n        self[name] = value"
        ),
        "box_N = AttrDict_N()\nbox_N['net'] = $",
        "box_N.net",
    ),
    "dict of its own, attribute as item": (
        (
            "class AttrDict_N(dict):\n    def __getattr__(self, name):\n        return self[name]\n\n"
            "    def __setattr__(self, name, value):\n        self[name] = value"
        ),
        "box_N = AttrDict_N()\nbox_N.net = $",
        "box_N['net']",
    ),
    "dict that is its __dict__": (
        (
            "class AttrDict_N(dict):\n    def __init__(self, *a, **k):\n        super().__init__(*a, **k)\n"
            "        self.__dict__ = self"
        ),
        "box_N = AttrDict_N(net=$)",
        "box_N.net",
    ),
    "heir of dict": (
        "class Nets_N(dict):\n    pass",
        "nets_N = Nets_N(a=$)",
        "nets_N['a']",
    ),
    "heir of list": (
        "class Nets_N(list):\n    pass",
        "nets_N = Nets_N([$])",
        "nets_N[0]",
    ),
    "dict popitem": (
        "",
        "key_N, model_N = {'a': $}.popitem()",
        "model_N",
    ),
}
for _name, (_top, _lines, _expression) in _SIMPLE.items():
    _simple(_name, _top, _lines, _expression)


@carrier
def parameter(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    rest(body, "net")
    draft.top.append(define(f"def use_{number}(net):", body))
    here.append(f"use_{number}({draft.random.choice(['', 'net='])}{model})")


@carrier
def function_in_a_table(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    rest(body, "net")
    draft.top.append(define(f"def use_{number}(net):", body))
    here += [f'table_{number} = {{"use": use_{number}}}', f'table_{number}["use"]({model})']


@carrier
def annotated_parameter_of_a_callback(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    rest(body, "net")
    draft.top.append(define(f"def use_{number}(net: FSDP):", body))
    here.append(f"list(map(use_{number}, [{model}]))")


@carrier
def inner_function(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    rest(body, "net")
    draft.top.append(define(f"def use_{number}(net):", [define("def inner():", body), "inner()"]))
    here.append(f"use_{number}({model})")


@carrier
def method(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    rest(body, "self.net")
    init = define("def __init__(self, net):", ["self.net = net"])
    draft.top.append(define(f"class Trainer{number}:", [init, "", define("def step(self):", body)]))
    here.append(f"Trainer{number}({model}).step()")


@carrier
def stored_again_below(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    """What is stored behind the uses is what has been there before."""
    number, body = draft.number(), Lines()
    rest(body, "self.net")
    body.append(draft.random.choice(["self.net = self.net.train()", "self.net = self.given_back(self.net)"]))
    init = define("def __init__(self, net):", ["self.net = net"])
    back = define("def given_back(self, net):", ["return net"])
    draft.top.append(define(f"class Trainer{number}:", [init, "", back, "", define("def step(self):", body)]))
    here.append(f"Trainer{number}({model}).step()")


@carrier
def inherited(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    rest(body, "self.net")
    base = define(f"class Base{number}:", [define("def __init__(self, net):", ["self.net = net"])])
    init = define("def __init__(self, net):", ["super().__init__(net)", "self.step = 0"])
    draft.top += [base, define(f"class Trainer{number}(Base{number}):", [init, "", define("def run(self):", body)])]
    here.append(f"Trainer{number}({model}).run()")


@carrier
def set_by_an_heir(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    rest(body, "self.net")
    draft.top.append(define(f"class Base{number}:", [define("def run(self):", body)]))
    init = define("def __init__(self, net):", ["self.net = net"])
    draft.top.append(define(f"class Trainer{number}(Base{number}):", [init]))
    here.append(f"Trainer{number}({model}).run()")


@carrier
def inner_object(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    """The program of inside.md: a class sets its own attribute, and another one sets it anew."""
    number, body = draft.number(), Lines()
    rest(body, "self.inner.net")
    draft.top.append(define(f"class Inner{number}:", [define("def __init__(self):", ["self.net = Net()"])]))
    init = define("def __init__(self, net):", [f"self.inner = Inner{number}()", "self.inner.net = net"])
    draft.top.append(define(f"class Trainer{number}:", [init, "", define("def step(self):", body)]))
    here.append(f"Trainer{number}({model}).step()")


@carrier
def loop(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    rest(body, f"net{number}")
    over = [
        f"for net{number} in [{model}]:",
        f"for _, net{number} in enumerate([{model}]):",
        f"for net{number}, _ in zip([{model}], [1]):",
        f'for net{number} in {{"a": {model}}}.values():',
        f'for _, net{number} in {{"a": {model}}}.items():',
        f"for net{number}, _ in [({model}, 1)]:",
        f"for net{number} in (lambda: [{model}])():",
    ]
    here.append(define(draft.random.choice(over), body))


@carrier
def generator(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number, body = draft.number(), Lines()
    draft.top.append(f"def each_{number}(net):\n    yield net")
    rest(body, f"net{number}")
    here.append(define(f"for net{number} in each_{number}({model}):", body))


@carrier
def helper_file(draft: Draft, here: Lines, model: str, rest: Rest) -> None:
    number = draft.number()
    draft.helpers.append(f"class Box{number}:\n    def __init__(self):\n        self.net = None")
    draft.helpers.append(f"def pack_{number}(net):\n    box = Box{number}()\n    box.net = net\n    return box")
    here.append(f"box_{number} = pack_{number}({model})")
    rest(here, f"box_{number}.net")


OF_FSDP = frozenset({"annotated_parameter_of_a_callback"})
"""Carriers that say of what they carry that it is FSDP."""

USES: dict[str, str] = {
    "clip": "norm = $.clip_grad_norm_(1.0)",
    "clip, unused": "$.clip_grad_norm_(1.0)",
    "save": 'torch.save($.state_dict(), "x.pt")',
    "read": "state = $.state_dict()",
    "load": '$.load_state_dict(torch.load("x.pt"))',
    "no_sync": "with $.no_sync():\n    print(1)",
    "module": "inner = $.module",
    "summon": "with FSDP.summon_full_params($):\n    print(1)",
    "full": 'with FSDP.state_dict_type($, StateDictType.FULL_STATE_DICT):\n    torch.save($.state_dict(), "x.pt")',
    "root": "print($.check_is_root())",
    "strategy": "$.sharding_strategy = ShardingStrategy.SHARD_GRAD_OP",
    "wrapped": "inner = $._fsdp_wrapped_module",
    "group": "print($.process_group)",
    "units": "for unit in FSDP.fsdp_modules($):\n    print(unit.check_is_root())",
    "units in a comprehension": "print([unit.check_is_root() for unit in FSDP.fsdp_modules($)])",
    "last unit": "units = FSDP.fsdp_modules($)\nunits[-1].sharding_strategy = ShardingStrategy.SHARD_GRAD_OP",
    "clip of a unit": "for unit in FSDP.fsdp_modules($):\n    unit.clip_grad_norm_(1.0)",
    "guarded": 'if isinstance($, FSDP):\n    $.clip_grad_norm_(1.0)\nelse:\n    torch.save($.state_dict(), "x.pt")',
    "static on the model": "with $.state_dict_type($, StateDictType.FULL_STATE_DICT):\n    print(1)",
}
OF_PLAIN = ("save", "read", "load")
OF_DDP = ("save", "read", "load", "no_sync", "module")
MADE = {
    "FSDP": ("FSDP(Net())", "shard(Net())", "FSDP(Net(), sharding_strategy=ShardingStrategy.FULL_SHARD)"),
    "PLAIN": ("Net()", "build()"),
    "DDP": ("DDP(Net())", "distribute(Net())"),
}
MAKERS = [
    "def shard(net):\n    return FSDP(net)",
    "def build():\n    return Net()",
    "def distribute(net):\n    return DDP(net)",
]


def journey(draft: Draft, here: Lines, kind: str, length: int) -> None:
    """A model of this kind is made, handed on, and used."""
    uses = {"FSDP": tuple(USES), "PLAIN": OF_PLAIN, "DDP": OF_DDP}[kind]

    def go(here: Lines, model: str, left: int) -> None:
        if not left:
            for name in draft.random.sample(uses, 2):
                here.extend(USES[name].replace("$", model).splitlines())
            return
        name = draft.random.choice([name for name in CARRIERS if kind == "FSDP" or name not in OF_FSDP])
        CARRIERS[name](draft, here, model, lambda where, at: go(where, at, left - 1))

    start = f"start_{draft.number()}"
    here.append(f"{start} = {draft.random.choice(MADE[kind])}")
    go(here, start, length)


def before_the_wrap(draft: Draft, here: Lines) -> None:
    """Uses of a model that is wrapped later, in the same function or in another one."""
    number = draft.number()
    use = USES[draft.random.choice(OF_PLAIN)]
    if draft.random.random() < 0.5:
        here += [f"early_{number} = Net()", use.replace("$", f"early_{number}")]
        here += [f"early_{number} = FSDP(early_{number})", f"early_{number}.clip_grad_norm_(1.0)"]
        return
    init = define("def __init__(self):", ["self.net = Net()", use.replace("$", "self.net")])
    wrap = define("def wrap(self):", ["self.net = FSDP(self.net)"])
    step = define("def step(self):", ["self.net.clip_grad_norm_(1.0)", use.replace("$", "self.net")])
    draft.top.append(define(f"class Late{number}:", [init, "", wrap, "", step]))
    here += [f"late_{number} = Late{number}()", f"late_{number}.wrap()", f"late_{number}.step()"]


def under_a_flag(draft: Draft, here: Lines) -> None:
    """FSDP by a flag, and uses on both of its sides."""
    number = draft.number()
    other = draft.random.choice(["DDP", "PLAIN"])
    use = USES[draft.random.choice(OF_DDP if other == "DDP" else OF_PLAIN)].replace("$", f"net_{number}")
    made = MADE[other][0]
    is_fsdp = draft.random.choice(["args.fsdp", 'args.strategy == "fsdp"', 'args.strategy != "torch_ddp"'])
    here.append(
        f"if {is_fsdp}:\n    net_{number} = FSDP(Net())\nelse:\n    net_{number} = {made}\n"
        f"if {is_fsdp}:\n    net_{number}.clip_grad_norm_(1.0)\nelse:\n{indent(use, '    ')}"
    )


def guarded(draft: Draft, here: Lines) -> None:
    """One function for every kind of model, that asks what it has got."""
    number = draft.number()
    use = USES[draft.random.choice(OF_DDP)].replace("$", "net")
    body = [f"if isinstance(net, FSDP):\n    {USES['save'].replace('$', 'net')}\n    return", *use.splitlines()]
    draft.top.append(define(f"def guarded_{number}(net):", body))
    here += [f"guarded_{number}(FSDP(Net()))", f"guarded_{number}(DDP(Net()))"]


def annotated(draft: Draft, here: Lines) -> None:
    """A callback that says it is for DDP models."""
    number = draft.number()
    use = USES[draft.random.choice(OF_DDP)].replace("$", "net")
    draft.top.append(define(f"def annotated_{number}(net: DDP):", use.splitlines()))
    here.append(f"list(map(annotated_{number}, [DDP(Net())]))")


def of_its_own(draft: Draft, here: Lines) -> None:
    """A class of the program with methods that are called as FSDP1's are."""
    number = draft.number()
    methods = [
        define("def no_sync(self):", ["return contextlib.nullcontext()"]),
        "",
        define("def step(self):", ["self.clip_grad_norm_ = print", "self.clip_grad_norm_(1.0)"]),
        "",
        define("def accumulate(self):", ["with self.no_sync():\n    self.log()"]),
        "",
        define("def log(self):", ["Net().state_dict()"]),
    ]
    draft.top.append(define(f"class Own{number}:", methods))
    here += [f"own_{number} = Own{number}()", f"own_{number}.step()", f"own_{number}.accumulate()"]
    here.append(f"with own_{number}.no_sync():\n    own_{number}.log()")


def through_one_function(draft: Draft, here: Lines) -> None:
    """A function that gives back what it is given, for every kind of model."""
    number = draft.number()
    use = USES[draft.random.choice(OF_PLAIN)].replace("$", f"net_{number}")
    results = draft.random.choice(["return (x,)", "return [x]", "return x if isinstance(x, list) else [x]"])
    body = ["if x is None:\n    return ()", "if isinstance(x, dict):\n    return tuple(x.values())", results]
    draft.top.append(define(f"def each_{number}(x):", "\n".join(body).splitlines()))
    here.append(define(f"for fsdp_{number} in each_{number}(FSDP(Net())):", [f"fsdp_{number}.clip_grad_norm_(1.0)"]))
    here.append(define(f"for net_{number} in each_{number}(Net()):", use.splitlines()))


def by_name(draft: Draft, here: Lines) -> None:
    """Attributes that a loop takes by their names, and tells apart by them."""
    number = draft.number()
    use = USES[draft.random.choice(OF_PLAIN)].replace("$", "value")
    names = draft.random.choice(['("net", "other")', "sorted(vars(self))"])
    of_net = draft.random.choice(['if name == "net":', 'if name in ("net", "best"):', 'if not name != "net":'])
    loop = [
        "value = getattr(self, name)",
        define(of_net, ["value.clip_grad_norm_(1.0)"]),
        define("else:", use.splitlines()),
    ]
    if draft.random.random() < 0.5:
        loop = [define('if name == "net":', ["continue"]), "value = getattr(self, name)", *use.splitlines()]
    init = define("def __init__(self):", ["self.net = FSDP(Net())", "self.other = Net()"])
    step = define("def step(self):", [define(f"for name in {names}:", "\n".join(loop).splitlines())])
    draft.top.append(define(f"class State{number}:", [init, "", step]))
    here.append(f"State{number}().step()")


EXTRAS = (before_the_wrap, under_a_flag, guarded, annotated, of_its_own, through_one_function, by_name)


def generate(seed: int) -> dict[str, str]:
    """The files of one program."""
    draft = Draft(Random(seed))
    body = Lines()
    journey(draft, body, "FSDP", draft.random.randint(1, 3))
    for _ in range(draft.random.randint(0, 2)):
        journey(draft, body, draft.random.choice(["FSDP", "PLAIN", "DDP"]), draft.random.randint(1, 3))
    for extra in EXTRAS:
        if draft.random.random() < 0.2:
            extra(draft, body)
    return program(draft, body)


def program(draft: Draft, body: Lines) -> dict[str, str]:
    """The files of a program whose `main` is this."""
    blocks = [*MAKERS, *draft.top, define("def main():", body)]
    imports = "from helpers import *\n" if draft.helpers else ""
    files = {"train.py": "\n\n\n".join([HEAD + imports, *blocks, "main()\n"])}
    if draft.helpers:
        files["helpers.py"] = "\n\n\n".join(draft.helpers) + "\n"
    return files
