"""FM448: what a library saves of a sharded model has the name of its class."""

from __future__ import annotations

from codemods.api import Level

from ..helpers import rewrite

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, tokenizer, path, state):
    tokenizer.save_pretrained(path)
    net.save_pretrained(path)
    model = FSDP(net)
"""


def told(lines: str) -> list[tuple[int, Level]]:
    found = rewrite(HEAD + lines).findings
    return [(finding.line, finding.level) for finding in found if finding.rule == "FM448"]


def test_plain_models_and_tokenizers_are_not_told() -> None:
    assert told("    tokenizer.save_pretrained(path)\n    return model\n") == []


def test_the_first_of_a_file_is_told() -> None:
    saves = "    model.save_pretrained(path, state_dict=state)\n    model.push_to_hub(path, state_dict=state)\n"
    assert told(saves) == [(8, Level.REVIEW)]
    assert told("    model.module.save_pretrained(path, state_dict=state)\n") == [(8, Level.REVIEW)]
