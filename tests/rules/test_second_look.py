"""A second look at a migrated program: what stays on purpose is a note, and nothing is left to a person."""

from __future__ import annotations

from codemods.api import Level

from ..helpers import code, rewrite, run_files

CHOSEN_AT_RUN_TIME = code(
    """
    import sys
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import MixedPrecision


    def main(args, make_model):
        dist.init_process_group("nccl")
        mp_policy = None
        if args["precision"] == "fp32":
            pass
        elif args["precision"] == "fp16_autocast":
            mp_policy = MixedPrecision(torch.float32, torch.float32, torch.float32)
        elif args["precision"] == "bf16_buffers":
            mp_policy = MixedPrecision(torch.bfloat16, torch.bfloat16, buffer_dtype=torch.float32)
        else:
            raise ValueError("no such precision")
        model = FSDP(make_model(), mixed_precision=mp_policy, device_id=torch.cuda.current_device())
        return model
    """
)


def test_settings_that_stay_are_no_work_that_is_left() -> None:
    first = rewrite(CHOSEN_AT_RUN_TIME)
    assert "MixedPrecision(torch.bfloat16" in first.text, "else there is nothing to look at"
    again = run_files(first.after)
    assert [(finding.rule, finding.level) for finding in again.findings] == [("FM100", Level.REVIEW)]


def test_a_definition_alone_still_wants_the_script_that_wraps() -> None:
    alone = rewrite("from torch.distributed.fsdp import MixedPrecision\n\nPOLICY = MixedPrecision(None, None)\n")
    assert [finding.level for finding in alone.findings] == [Level.MANUAL]


LOCAL = code(
    """
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import StateDictType


    def save(model, writer, kind):
        if kind == StateDictType.LOCAL_STATE_DICT:
            with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
                dcp.save(model.state_dict(), storage_writer=writer)


    def main(net, writer, kind):
        model = FSDP(net, device_id=torch.cuda.current_device())
        save(model, writer, kind)
    """
)


def test_what_was_left_to_a_person_does_not_ask_for_a_script_that_was_named() -> None:
    again = run_files(rewrite(LOCAL).after)
    hints = {finding.hint for finding in again.findings if finding.level is Level.MANUAL}
    assert hints
    assert not any("name the script" in hint for hint in hints)
