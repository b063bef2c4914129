"""Every line that used FSDP1 is rewritten or reported, and no line that only ever saw other models is changed.

`make test` looks at some programs; `make oracle` at three thousand.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from .code import WAYS, program_of
from .oracle import judge
from .programs import CARRIERS, EXTRAS, HEAD, OF_FSDP, USES, Draft, Lines, generate, program
from .programs import OF_PLAIN as PLAIN_USES
from .stub import FSDP, run

PROGRAMS = int(os.environ.get("ORACLE", "40"))
PART = 20
_NAMES = sorted(CARRIERS)


@pytest.mark.parametrize("first", range(0, len(_NAMES), 6))
def test_each_way_of_handing_a_model_on(first: int) -> None:
    draft, body = Draft(Random(first)), Lines()
    for index, name in enumerate(_NAMES[first : first + 6]):
        body.append(f"fsdp_{index} = FSDP(Net())")
        uses = draft.random.sample(sorted(USES), 4)
        CARRIERS[name](draft, body, f"fsdp_{index}", lambda here, model, uses=uses: _use(here, model, uses))
        if name not in OF_FSDP:
            body.append(f"net_{index} = Net()")
            CARRIERS[name](draft, body, f"net_{index}", lambda here, model: _use(here, model, PLAIN_USES))
    assert str(judge(program(draft, body))) == ""


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_the_code_that_saves(way: str) -> None:
    files = program_of(way, USES["save"])
    lines = files["train.py"].split("\n")
    assert [line for (_, line), kinds in run(files, True).kinds.items() if FSDP in kinds and "save" in lines[line - 1]]
    assert str(judge(files)) == ""


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_is_no_fsdp_model(extra: object) -> None:
    assert callable(extra)
    for seed in range(4):
        draft, body = Draft(Random(seed)), Lines()
        extra(draft, body)
        extra(draft, body)
        body.append("start = FSDP(Net())")
        assert str(judge(program(draft, body))) == ""


@pytest.mark.parametrize("first", range(0, PROGRAMS, PART))
def test_generated_programs(first: int) -> None:
    wrong = {seed: str(judge(generate(seed))) for seed in range(first, min(first + PART, PROGRAMS))}
    assert not {seed: verdict for seed, verdict in wrong.items() if verdict}


TABLE = """\
class Box:
    def __init__(self, **kw):
        self.__dict__.update(kw)


def main():
    nets = collections.defaultdict(list)
    nets["a"].append($(Net()))
    model = Box(net=nets["a"][0]).net
    #
"""
NUMBERED = """\
class Box:
    def __init__(self):
        self.nets = {}

    def all(self):
        return self.nets


def main():
    box, other, i = Box(), Box(), 1
    box.all()["a"] = $(Net())
    setattr(other, f"net{i}", box.nets["a"])
    model = getattr(other, f"net{i}")
    #
"""


@pytest.mark.parametrize("body", [TABLE, NUMBERED])
def test_what_is_stored_under_a_name_that_is_passed_on(body: str) -> None:
    """A store under a name that run time makes of what came out of another store."""
    sharded = body.replace("$", "FSDP").replace("#", "inner = model.module")
    beside = body.replace("$", "DDP").replace("#", "with model.no_sync():\n        print(1)")
    for text in (sharded, beside.replace("def main():", "def main():\n    FSDP(Net())")):
        assert str(judge({"train.py": f"{HEAD}\n\n{text}\n\nmain()\n"})) == ""


def _use(here: Lines, model: str, uses: tuple[str, ...] | list[str]) -> None:
    for name in uses:
        here.extend(USES[name].replace("$", model).splitlines())
