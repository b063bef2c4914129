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
            mp_policy = MixedPrecision(torch.float32, torch.float32, torch.bfloat16)
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


LEFT = code(
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import StateDictType, fully_shard


    def save(model):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            return model.state_dict()


    def main(net):
        fully_shard(net)
        return save(net)
    """
)


def test_what_is_left_in_an_fsdp2_program_does_not_ask_for_a_script_that_wraps() -> None:
    found = run_files({"train.py": LEFT}).findings
    hints = {finding.hint for finding in found if finding.level is Level.MANUAL}
    assert "the model is FSDP2 already: write by hand what is left of FSDP1 here" in hints
    assert not any("name the script" in hint for hint in hints)
