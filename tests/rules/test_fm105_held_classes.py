"""FM105: classes that a variable holds for a test, `KINDS = (DDP, FSDP)`, and those that are only unwrapped."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import Result, code, rewrite, rewrite_files

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
"""
MAIN = """

def main(net, ddp):
    return inner(DDP(net) if ddp else FSDP(net))
"""
UNWRAPPED = {
    "in a loop": "    while isinstance(m, {}):\n        m = m.module\n    return m\n",
    "once": "    if isinstance(m, {}):\n        m = m.module\n    return m\n",
    "in a choice": "    return m.module if isinstance(m, {}) else m\n",
    "for an attribute": "    if isinstance(m, {}):\n        return m.module.width\n    return m.width\n",
    "by itself": "    return inner(m.module) if isinstance(m, {}) else m\n",
}
HELD = {
    "global": ("\nKINDS = ({})\n\n\ndef inner(m):\n", "KINDS"),
    "annotated": ("\nKINDS: tuple = ({})\n\n\ndef inner(m):\n", "KINDS"),
    "list": ("\nKINDS = [{}]\n\n\ndef inner(m):\n", "tuple(KINDS)"),
    "more beside it": ("\nKINDS = ({})\n\n\ndef inner(m):\n", "KINDS + (int,)"),
    "local": ("\n\ndef inner(m):\n    kinds = ({})\n", "kinds"),
    "default": ("\n\ndef inner(m, kinds=({})):\n", "kinds"),
}


def display(line: str, *names: str) -> str:
    inside = ", ".join(names)
    return line.replace("({})", f"({inside}{',' * (len(names) == 1)})").replace("[{}]", f"[{inside}]")


@pytest.mark.parametrize(("line", "asked"), HELD.values(), ids=HELD)
@pytest.mark.parametrize("body", UNWRAPPED.values(), ids=UNWRAPPED)
def test_a_class_that_is_only_unwrapped_goes(line: str, asked: str, body: str) -> None:
    program = line + body.format(asked) + MAIN
    after = rewrite(HEAD + display(program, "DDP", "FSDP")).text
    assert after.partition("as DDP\n")[2] == display(program, "DDP").replace("FSDP(", "fully_shard(")


@pytest.mark.parametrize("body", UNWRAPPED.values(), ids=UNWRAPPED)
def test_a_class_that_is_written_in_the_test_goes_too(body: str) -> None:
    after = rewrite(f"{HEAD}\n\ndef inner(m):\n{body.format('(DDP, FSDP)')}{MAIN}").text
    assert after.partition("as DDP\n")[2].startswith(f"\n\ndef inner(m):\n{body.format('DDP')}")


def test_a_class_that_another_file_asks_for_goes() -> None:
    kinds = f"{HEAD}\nKINDS = (DDP, FSDP)\n"
    for imported, asked in (("from kinds import KINDS", "KINDS"), ("import kinds", "kinds.KINDS")):
        loop = UNWRAPPED["in a loop"].format(asked)
        train = f"{HEAD}{imported}\n\n\ndef inner(m):\n{loop}{MAIN}"
        result = rewrite_files({"kinds.py": kinds, "train.py": train})
        assert result.after["kinds.py"].endswith("\nKINDS = (DDP,)\n")
        assert f"def inner(m):\n{loop}" in result.after["train.py"]


def test_a_class_that_is_passed_to_the_test_goes() -> None:
    loop = UNWRAPPED["in a loop"].format("kinds")
    after = rewrite(f"{HEAD}\n\ndef inner(m, kinds):\n{loop}{MAIN.replace('(net))', '(net), (DDP, FSDP))')}").text
    assert f"def inner(m, kinds):\n{loop}" in after
    assert "fully_shard(net), (DDP,))\n" in after


def test_classes_that_a_recursion_hands_on() -> None:
    body = "    if isinstance(m, kinds):\n        return inner(m.module, kinds)\n    return m\n"
    after = rewrite(f"{HEAD}\n\ndef inner(m, kinds=(DDP, FSDP)):\n{body}{MAIN}").text
    assert f"def inner(m, kinds=(DDP,)):\n{body}" in after


UNWRAP_MODEL = """
    class Float16Module:
        def __init__(self, module):
            self.module = module


    KINDS = ({})


    def inner(model, module_instances=KINDS):
        if not isinstance(model, list):
            model = [model]
        unwrapped = []
        for each in model:
            while isinstance(each, module_instances):
                each = each.module
            unwrapped.append(each)
        return unwrapped
"""


@pytest.mark.parametrize("before", ["DDP, FSDP, Float16Module", "DDP, Float16Module"])
def test_the_unwrapping_of_lists_of_models(before: str) -> None:
    after = rewrite(HEAD + code(UNWRAP_MODEL).format(before) + MAIN).text
    expected = code(UNWRAP_MODEL).format("DDP, Float16Module") + MAIN.replace("FSDP(", "fully_shard(")
    assert after.partition("as DDP\n")[2] == expected


MORE = {
    "asked elsewhere": "    assert isinstance(m, {})\n" + UNWRAPPED["in a loop"],
    "state dict": "    if isinstance(m, {}):\n        return m.module.state_dict()\n    return m.state_dict()\n",
}


@pytest.mark.parametrize("body", MORE.values(), ids=MORE)
def test_a_test_that_does_more_still_holds_for_fsdp2(body: str) -> None:
    """Without FSDP's class its models would come to the plain `m.state_dict()`, which gathers nothing."""
    held = f"\nKINDS = (DDP, FSDP)\n\n\ndef inner(m):\n{body.replace('{}', 'KINDS')}"
    assert "KINDS = (DDP, FSDPModule)\n" in rewrite(HEAD + held + MAIN).text


def test_a_state_dict_is_gathered_where_the_classes_are_written_in_the_test() -> None:
    body = MORE["state dict"].format("(DDP, FSDP)")
    after = rewrite(f"{HEAD}\n\ndef inner(m):\n{body}{MAIN}").text
    assert "isinstance(m, (DDP, FSDPModule)):\n        return whole_state_dict(unwrap(m))\n" in after


CALLED = {
    "table": "\nKINDS = (DDP, FSDP)\n\n\ndef build(net, at):\n    return KINDS[at](net)\n",
    "identity": "\nKINDS = (DDP, FSDP)\n\n\ndef build(net, at):\n    return type(net) in KINDS\n",
    "unpacked": "\nKIND, other = (FSDP, DDP)\n\n\ndef build(net, at):\n    return KIND(net)\n",
}


@pytest.mark.parametrize("text", CALLED.values(), ids=CALLED)
def test_a_class_that_is_used_otherwise_is_no_class_test(text: str) -> None:
    """`FSDPModule(net)` makes no model."""
    result = rewrite(f"{HEAD}{text}\n\ndef main(net):\n    return build(FSDP(net), 1)\n")
    assert "FSDPModule" not in result.text
    assert ("FM109", Level.MANUAL) in {(each.rule, each.level) for each in result.findings}


CLIP = """\
    if isinstance(m, {}):
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0, foreach=False)
    else:
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
"""


def clipped(program: str) -> list[int]:
    """The lines at which an FSDP model is clipped by its own shards."""
    result: Result = rewrite("import torch\n" + HEAD + program + MAIN)
    return [each.line for each in result.findings if each.rule == "FM206"]


@pytest.mark.parametrize(("line", "asked"), HELD.values(), ids=HELD)
def test_what_a_test_by_a_variable_says_of_a_model(line: str, asked: str) -> None:
    program = display(line, "DDP", "FSDP") + CLIP.format(asked)
    at = ("import torch\n" + HEAD + program).split("\n").index(f"    if isinstance(m, {asked}):")
    assert clipped(program) == [at + 2]


OF_CLASS = """
class Inner:
    KINDS = (DDP, FSDP)

    def clip(self, m):
        if isinstance(m, self.KINDS):
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0, foreach=False)
        else:
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)


def inner(m):
    Inner().clip(m)
"""


@pytest.mark.parametrize(("more", "found"), [("", 1), ("\n\nclass Other(Inner):\n    KINDS = (DDP,)\n", 2)])
def test_what_a_test_by_a_variable_of_the_class_says(more: str, found: int) -> None:
    assert len(clipped(OF_CLASS + more)) == found


def test_a_list_that_grows_says_nothing() -> None:
    line = "\nKINDS = [FSDP]\n\n\ndef inner(m):\n    KINDS.append(m)\n"
    assert len(clipped(line + CLIP.format("tuple(KINDS)"))) == 2


def test_classes_that_are_added_later() -> None:
    body = "    kinds = (DDP,)\n    kinds += (FSDP,)\n" + UNWRAPPED["in a loop"].format("kinds")
    after = rewrite(f"{HEAD}\n\ndef inner(m):\n{body}{MAIN}").text
    assert "    kinds += (FSDPModule,)\n    while isinstance(m, kinds) and not isinstance(m, FSDPModule):\n" in after
