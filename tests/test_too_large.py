"""FM004: what is not followed to its end is said, of a program that wraps a model."""

import pytest

from fsdp_migrate.pyanalysis import aliases, solver

from .helpers import rewrite

PROGRAM = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

HANDLERS = {}


def register(handler):
    HANDLERS[handler.__name__] = handler
    return handler


@register
def save(model):
    return model.state_dict()


@register
def norm(model):
    return model.clip_grad_norm_(1.0)


def main(net, name):
    model = FSDP(net)
    return HANDLERS[name](model)
"""


def test_a_program_that_is_followed_to_its_end() -> None:
    assert "FM004" not in {finding.rule for finding in rewrite(PROGRAM).findings}


def test_too_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST_WORK", 20)
    monkeypatch.setattr(solver, "MOST_WORK_BEHIND", 5)
    (found,) = (finding for finding in rewrite(PROGRAM).findings if finding.rule == "FM004")
    assert "more leads here than is followed" in found.message


def test_too_much_work_for_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others lead to is followed as before."""
    monkeypatch.setattr(solver, "MOST_WORK_OF_ONE", 20)
    monkeypatch.setattr(solver, "MOST_WORK_BEHIND", 5)
    (found,) = (finding for finding in rewrite(PROGRAM).findings if finding.rule == "FM004")
    assert "more leads here than is followed" in found.message


def test_too_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliases, "_MOST_STEPS", 1)
    found = [finding for finding in rewrite(PROGRAM).findings if finding.rule == "FM004"]
    assert [finding.line for finding in found] == [13], "the function that goes by more names"


def test_a_program_that_wraps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST_WORK", 20)
    monkeypatch.setattr(solver, "MOST_WORK_BEHIND", 5)
    text = PROGRAM.replace("FSDP(net)", "net")
    assert "FM004" not in {finding.rule for finding in rewrite(text).findings}


def test_a_class_in_a_class_that_inherits_from_that_of_a_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """`class Config(Base.Config)` (torchtitan): which classes inherit is asked of those that name the base alone."""
    monkeypatch.setattr(solver, "MOST_WORK", 10_000)
    monkeypatch.setattr(solver, "MOST_WORK_BEHIND", 10_000)
    classes = ["class C0:\n    class Config:\n        pass\n"]
    classes += [f"class C{i}(C{i - 1}):\n    class Config(C{i - 1}.Config):\n        pass\n" for i in range(1, 25)]
    use = (
        "def main(net):\n    config = C0.Config()\n    config.model = FSDP(net)\n    return config.model.state_dict()\n"
    )
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    assert "FM004" not in {finding.rule for finding in rewrite("\n\n".join([head, *classes, use])).findings}
