"""Models that share FSDP1's streams (FM449), and what asks for these (FM205)."""

from __future__ import annotations

from codemods.api import Level

from ..helpers import code, rewrite

TRAINER = code(
    """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    class Trainer:
        def __init__(self, student, teacher):
            self.student = FSDP(student)
            self.teacher = FSDP(teacher)
            self.is_first = True

        def share(self):
            if self.is_first:
                torch.cuda.synchronize()
                self.student._streams = self.teacher._streams
                self.is_first = False
    """
)


def test_streams_are_shared_no_more() -> None:
    result = rewrite(TRAINER)
    assert "            torch.cuda.synchronize()\n            self.is_first = False\n" in result.text
    assert ("FM449", Level.REWRITTEN) in {(each.rule, each.level) for each in result.findings}
    assert not any(each.level is Level.MANUAL for each in result.findings)


def test_streams_of_something_else_stay() -> None:
    result = rewrite(TRAINER.replace("self.teacher._streams", "make_streams(self)"))
    assert "self.student._streams = make_streams(self)\n" in result.text
    assert ("FM401", Level.MANUAL) in {(each.rule, each.level) for each in result.findings}


def test_streams_that_a_model_may_lack() -> None:
    asked = "            streams = getattr(self.teacher, '_streams', None)\n"
    asked += "            if streams is None:\n                return\n"
    text = TRAINER.replace("            torch.cuda", f"{asked}            torch.cuda")
    result = rewrite(text.replace("self.teacher._streams", "streams"))
    assert asked in result.text
    assert "NotImplementedError" not in result.text
    assert ("FM205", Level.REVIEW) in {(each.rule, each.level) for each in result.findings}
    assert not any(each.level is Level.MANUAL for each in result.findings)
