"""FM458: units that are frozen at their first forward, and train later in mixed precision."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision

LOW = MixedPrecision(param_dtype=torch.bfloat16)


"""
PHASES = """\
    def train(net, fit):
        net.requires_grad_(False)
        model = FSDP(net, use_orig_params=True, mixed_precision=LOW)
        fit(model)
        {thaw}
        fit(model)
    """
SWITCH = """\
    def switch(net, flag):
        for p in net.parameters():
            p.requires_grad = flag


    def train(net, other, fit):
        model = FSDP(net, use_orig_params=True, mixed_precision=LOW)
        rival = FSDP(other, use_orig_params=True, mixed_precision=LOW)
        switch(model, False)
        fit(rival)
        switch(model, True)
    """


def levels(text: str) -> list[Level]:
    return [each.level for each in rewrite(HEAD + code(text)).findings if each.rule == "FM458"]


@pytest.mark.parametrize(
    "thaw",
    [
        "model.requires_grad_(True)",
        "model.requires_grad_()",
        "model.head.requires_grad_(True)",
        "for p in model.parameters():\n        p.requires_grad = True",
        "for n, p in model.named_parameters():\n        p.requires_grad_('head' in n)",
    ],
)
def test_what_begins_to_train_needs_a_person(thaw: str) -> None:
    assert levels(PHASES.replace("{thaw}", thaw.replace("\n", "\n    "))) == [Level.MANUAL]


def test_what_is_switched_on_and_off_is_for_review() -> None:
    assert levels(SWITCH) == [Level.REVIEW]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (", mixed_precision=LOW", ""),
        ("net.requires_grad_(False)", "net.train()"),
        ("{thaw}", "model.requires_grad_(False)"),
        ("{thaw}", "fit.inputs.requires_grad_(True)"),
    ],
)
def test_nothing_to_say(before: str, after: str) -> None:
    text = PHASES.replace(before, after).replace("{thaw}", "model.requires_grad_(True)")
    assert levels(text) == []


HEAD_ONLY = """\
    def freeze(model):
        {frozen}
        {thawed}


    def train(net, fit):
        model = FSDP(net, use_orig_params=True, mixed_precision=LOW)
        freeze(model)
        fit(model)
    """


@pytest.mark.parametrize(
    "frozen", ["model.requires_grad_(False)", "for p in model.parameters():\n            p.requires_grad = False"]
)
@pytest.mark.parametrize(
    "thawed",
    ["model.head.requires_grad_(True)", "for p in model.head.parameters():\n            p.requires_grad = True"],
)
def test_a_part_that_is_left_to_train_where_the_whole_is_frozen(frozen: str, thawed: str) -> None:
    text = HEAD_ONLY.format(frozen=frozen, thawed=thawed)
    assert levels(text) == []
    assert levels(text.replace("fit(model)", "fit(model)\n        freeze(model)\n        fit(model)")) == [Level.REVIEW]
    assert levels(text.replace("        freeze(model)", "        for _ in range(3):\n            freeze(model)"))
    assert levels(text.replace(thawed, f"fit(model)\n        {thawed}"))


def test_a_model_that_is_made_where_its_head_alone_is_left_to_train() -> None:
    text = """\
        def build(make):
            net = make()
            net.requires_grad_(False)
            net.head.requires_grad_(True)
            return FSDP(net, use_orig_params=True, mixed_precision=LOW)


        def train(make, fit):
            fit(build(make))


        def evaluate(make, score):
            score(build(make))
        """
    assert levels(text) == []
