"""`--async-checkpoint`: what becomes asynchronous, what waits for it, and what stays as it is."""

from __future__ import annotations

import pytest

from tests.helpers import code
from tests.upgrades.upgraded import upgraded, upgraded_files

ASKED = {"async_checkpoint": "True"}
HEAD = """\
import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
"""
LOOP = """

def main(model, batches):
    fully_shard(model)
    for step, batch in enumerate(batches):
        state = train(model, batch)
        dcp.save(state, checkpoint_id="last")
"""
FUNCTION = """

def save(model, path):
    dcp.save({"model": model.state_dict()}, checkpoint_id=path)


def main(model, batches):
    fully_shard(model)
    for step, batch in enumerate(batches):
        train(model, batch)
        save(model, f"step{step}")
"""
WAIT = "if saving is not None:\n{0}    saving.result()\n"
SAVED = 'saving = dcp.async_save(state, checkpoint_id="last", process_group=saving_group)\n'


def program(text: str) -> str:
    return HEAD + text


def test_a_loop_keeps_it_in_variables() -> None:
    result = upgraded(program(LOOP), **ASKED)
    start, rest = LOOP.split("    for step")
    body, _ = rest.split("        dcp.save")
    assert result.text == program(
        f'{start}    saving, saving_group = None, dist.new_group(backend="gloo")\n    for step{body}'
        f"        {WAIT.format(' ' * 8)}        {SAVED}    {WAIT.format(' ' * 4)}"
    )
    assert result.summary == [("FM605", "rewritten", 14)]


def test_a_save_behind_the_loop_waits_for_the_one_in_it() -> None:
    result = upgraded(program(LOOP + '    dcp.save(state, checkpoint_id="last")\n'), **ASKED)
    assert result.text.endswith(f"    {WAIT.format(' ' * 4)}    {SAVED}    {WAIT.format(' ' * 4)}")
    assert [level for _, level, _ in result.summary] == ["rewritten", "rewritten"]


def test_a_load_behind_a_save_waits_and_one_before_does_not() -> None:
    load = '    dcp.load(state, checkpoint_id="last")\n'
    before = LOOP.replace("    for step", f"{load}    for step")
    result = upgraded(program(before + load), **ASKED)
    assert result.text.endswith(f"    {WAIT.format(' ' * 4)}{load}")
    assert result.text.count(".result()") == 2
    in_the_loop = LOOP.replace("        state", f"    {load}        state")
    assert f"        {WAIT.format(' ' * 8)}    {load}" in upgraded(program(in_the_loop), **ASKED).text


def test_names_that_are_taken() -> None:
    before = program(LOOP.replace("train(model, batch)", "train(model, saving)").replace("step, batch", "step, saving"))
    assert "checkpoint_saving, saving_group = None" in upgraded(before, **ASKED).text


def test_a_function_that_a_loop_calls_keeps_it_in_a_module() -> None:
    result = upgraded(program(FUNCTION + '\n\nif __name__ == "__main__":\n    main(Net(), data())\n'), **ASKED)
    assert '    save_in_background({"model": model.state_dict()}, checkpoint_id=path)\n' in result.text
    assert result.text.endswith("    main(Net(), data())\n    wait_for_checkpoint()\n")
    assert result.text.count("wait_for_checkpoint()") == 3


def test_what_destroys_the_group_waits_first_in_whatever_file() -> None:
    files = {
        "train.py": program(FUNCTION).replace("import shutil\n", "import shutil\nimport tools\n") + "    tools.end()\n",
        "tools.py": "from torch.distributed import destroy_process_group\n\n\n"
        "def end():\n    destroy_process_group()\n\n\ndef end_of(group):\n    destroy_process_group(group)\n",
    }
    result = upgraded_files(files, **ASKED)
    assert "def end():\n    wait_for_checkpoint()\n    destroy_process_group()\n" in result.files["tools.py"]
    assert result.files["tools.py"].count("wait_for_checkpoint()") == 1
    assert "save_in_background" in result.files["fsdp2_support.py"]


def test_a_method_and_what_goes_back() -> None:
    text = """

        class Trainer:
            def __init__(self, model):
                self.model = fully_shard(model)

            def save(self):
                dcp.save(self.state(), checkpoint_id="last")

            def go_back(self):
                dcp.load(self.state(), checkpoint_id="last")

            def fit(self, batches):
                for batch in batches:
                    if train(self.model, batch) > 1:
                        self.go_back()
                    self.save()
                return self
        """
    result = upgraded(program(code(text)), **ASKED)
    assert "        wait_for_checkpoint()\n        dcp.load(" in result.text
    assert "            self.save()\n        wait_for_checkpoint()\n        return self\n" in result.text


def test_a_return_out_of_the_loop_leaves_nothing_behind() -> None:
    before = FUNCTION.replace(
        "        save(model", "        if step == 8:\n            return model\n        save(model"
    )
    result = upgraded(program(before + "\n\nmodel = main(Net(), data())\n"), **ASKED)
    assert result.text.endswith("model = main(Net(), data())\nwait_for_checkpoint()\n")
    local = LOOP.replace("        dcp.save", "        if step == 8:\n            return\n        dcp.save")
    result = upgraded(program(local + "\n\nmain(Net(), data())\n"), **ASKED)
    assert result.text.endswith("main(Net(), data())\nwait_for_checkpoint()\n")


LEFT = {
    "with the process group": LOOP.replace(
        "        dcp.save", "        if step == 8:\n            dist.destroy_process_group()\n        dcp.save"
    ),
    "by an error": LOOP.replace("    for step", "    try:\n      for step").replace("        ", "          ")
    + "    finally:\n        dist.destroy_process_group()\n",
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_a_loop_that_is_left_otherwise_waits_where_the_group_ends(text: str) -> None:
    result = upgraded(program(text), **ASKED)
    assert "save_in_background(state" in result.text
    (above, _) = result.text.split("dist.destroy_process_group()")
    assert above.rstrip().endswith("wait_for_checkpoint()")


def test_a_load_of_the_support_module_waits_too() -> None:
    load = '    load_dcp("last", model)\n'
    before = HEAD.replace("import os\n", "import os\n\nfrom fsdp2_support import load_dcp\n") + LOOP + load
    support = "def load_dcp(path, model):\n    return {}\n"
    result = upgraded_files({"train.py": before, "fsdp2_support.py": support}, **ASKED)
    assert f"saving.result()\n{load}" in result.files["train.py"]


def test_a_model_that_may_not_be_sharded_may_have_no_process_group() -> None:
    before = program(
        LOOP.replace("    fully_shard(model)", "    if dist.is_initialized():\n        fully_shard(model)")
    )
    assert 'dist.new_group(backend="gloo") if dist.is_initialized() else None' in upgraded(before, **ASKED).text


def test_arguments_below_one_another_and_an_imported_save() -> None:
    before = program(LOOP).replace(
        "checkpoint as dcp", "checkpoint as dcp\nfrom torch.distributed.checkpoint import save"
    )
    before = before.replace(
        'dcp.save(state, checkpoint_id="last")',
        'save(\n            state,\n            checkpoint_id="last",\n        )',
    )
    result = upgraded(before, **ASKED)
    assert (
        'saving = dcp.async_save(\n            state,\n            checkpoint_id="last",\n'
        "            process_group=saving_group,\n        )\n"
    ) in result.text


def test_a_file_that_is_written_behind_it_is_said() -> None:
    result = upgraded(program(LOOP + '        torch.save(step, "last/step.pt")\n'), **ASKED)
    (found,) = result.findings
    assert (found.level.value, "line 15" in found.hint) == ("review", True)


def test_a_program_that_saves_asynchronously_is_left_alone() -> None:
    before = program(LOOP.replace("dcp.save(", "future = dcp.async_save("))
    result = upgraded(before, **ASKED)
    assert (result.text, result.findings) == (before, ())


SAVE = 'dcp.save(state, checkpoint_id="last")'
REFUSED = {
    "one file": LOOP.replace(SAVE, "torch.save(model.state_dict(), 'last.pt')"),
    "no checkpoint": LOOP.replace(SAVE, "print(step)"),
    "nothing trains behind it": "\n\nmodel = fully_shard(Net())\n" + SAVE + "\n",
    "a group of its own": LOOP.replace('"last")', '"last", process_group=model.group)'),
    "one rank alone": LOOP.replace('"last")', '"last", no_dist=True)'),
    "arguments that are not seen": LOOP.replace('checkpoint_id="last")', "**where)"),
    "its metadata is kept": LOOP.replace("dcp.save", "metadata = dcp.save"),
    "errors are caught": LOOP.replace(
        f"        {SAVE}", f"        try:\n            {SAVE}\n        except OSError:\n            pass"
    ),
    "the one before is removed": LOOP + '        shutil.rmtree("older")\n',
    "it is renamed": LOOP + '        os.rename("last", "best")\n',
    "neither a loop nor the end": "\n\ndef on_epoch_end(model, path):\n    fully_shard(model)\n    " + SAVE + "\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_stays_as_it_is_says_why(text: str) -> None:
    result = upgraded(program(text), **ASKED)
    assert result.text == program(text)
    assert [finding.level.value for finding in result.findings] == ["manual"]
    assert result.said.startswith("not upgraded: ")
    assert all(finding.hint for finding in result.findings)
