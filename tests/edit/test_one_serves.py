"""Where one support function serves for two, the other is not written."""

from __future__ import annotations

from ..helpers import rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def make(net):
    model = FSDP(net, use_orig_params=True)
    return torch.compile(model)


"""
WHOLE = """\
def save(net, path):
    torch.save(make(net).state_dict(), path)


"""
FULL = """\
def export(net, path):
    model = make(net)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
        state = model.state_dict()
    torch.save(state, path)
"""


def test_each_alone() -> None:
    assert "torch.save(whole_state_dict(make(net)), path)" in rewrite(HEAD + WHOLE).text
    assert "whole_state_dict" not in rewrite(HEAD + FULL).text


def test_both_in_one_file() -> None:
    text = rewrite(HEAD + WHOLE + FULL).text
    assert "torch.save(full_state_dict(make(net)), path)" in text
    assert "whole_state_dict" not in text


OTHER = "import torch\nfrom first import make\n\n\n"


def test_each_in_its_own_file_keeps_what_can_stand_in_it() -> None:
    result = rewrite_files({"first.py": HEAD + FULL, "second.py": OTHER + WHOLE})
    assert "whole_state_dict(make(net))" in result.after["second.py"]


def test_two_files_that_share_the_lesser() -> None:
    files = {"first.py": HEAD + FULL, "second.py": OTHER + WHOLE, "third.py": "import second\n" + OTHER + WHOLE}
    result = rewrite_files(files)
    assert not any("whole_state_dict" in text for text in result.after.values())


def test_name_that_means_something_else() -> None:
    both = WHOLE + FULL.replace("state = ", "full_state_dict = ").replace("(state,", "(full_state_dict,")
    text = rewrite(HEAD + both).text
    assert "fsdp2_full_state_dict(make(net)), path)" in text or "whole_state_dict(make(net)), path)" in text
