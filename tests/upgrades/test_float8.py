"""`--float8`: where layers are converted, which ones, and where scales are computed."""

from __future__ import annotations

import pytest

from tests.helpers import code, flat
from tests.upgrades.upgraded import upgraded, upgraded_files

HEAD = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(64, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        return self.out(torch.relu(self.stem(x)))


"""
MAIN = """
def main(batches, scaler, scheduler):
    model = Net()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for index, batch in enumerate(batches):
        model(batch).sum().backward()
        if index % 4 == 3:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
"""


def program(text: str) -> str:
    return HEAD + code(text)


def test_scales_are_computed_behind_the_step_only() -> None:
    result = upgraded(program(MAIN), float8="tensorwise")
    assert result.summary == [("FM603", "rewritten", 18)]
    step = "            optimizer.step()\n"
    behind = f"{step}            float8.precompute_float8_dynamic_scale_for_fsdp(model)\n"
    assert behind + "            scheduler.step()\n" in result.text
    assert result.text.count("precompute_float8") == 1
    assert 'name != "out"' in result.text


def test_a_scaler_steps_for_the_optimizer() -> None:
    text = program(MAIN).replace("optimizer.step()", "scaler.step(optimizer)")
    result = upgraded(text, float8="tensorwise")
    assert "scaler.step(optimizer)\n            float8.precompute_float8_dynamic_scale" in result.text


@pytest.mark.parametrize("recipe", ["rowwise", "rowwise_with_gw_hp"])
def test_rows_are_scaled_where_they_are_used(recipe: str) -> None:
    result = upgraded(program(MAIN), float8=recipe)
    assert f'config=float8.Float8LinearConfig.from_recipe_name("{recipe}"),' in result.text
    assert "precompute" not in result.text
    assert "enable_fsdp_float8_all_gather" not in result.text
    assert "get_device_capability() >= (9, 0)" in result.text


def test_what_the_program_converts_itself_is_left_alone() -> None:
    text = program(MAIN).replace("    fully_shard(", "    convert_to_float8_training(model)\n    fully_shard(")
    text = "from torchao.float8 import convert_to_float8_training\n" + text
    result = upgraded(text, float8="tensorwise")
    assert (result.text, result.findings) == (text, ())


def test_layers_are_converted_behind_loading_and_before_the_first_unit() -> None:
    text = program(MAIN).replace(
        "    fully_shard(model)\n",
        "    model.load_state_dict(torch.load('init.pt'))\n"
        "    # Each layer is a unit.\n"
        "    for layer in (model.stem, model.out):\n"
        "        fully_shard(layer)\n"
        "    fully_shard(model)\n",
    )
    result = upgraded(text, float8="tensorwise")
    before, behind = result.text.split("    if torch.cuda.is_available()")
    assert before.endswith("load('init.pt'))\n")
    assert "# Each layer is a unit.\n    for layer in" in behind


def test_the_other_branch_is_not_converted() -> None:
    text = program(
        """
        def wrap(model, ddp):
            if ddp:
                return nn.parallel.DistributedDataParallel(model)
            return fully_shard(model)


        def train(model, optimizer, batch):
            model(batch).sum().backward()
            optimizer.step()


        model = wrap(Net(), False)
        train(model, torch.optim.SGD(model.parameters()), torch.ones(1, 64))
        """
    )
    result = upgraded(text, float8="tensorwise")
    assert "DistributedDataParallel(model)\n    if torch.cuda.is_available()" in result.text
    assert "optimizer.step()\n    float8.precompute_float8_dynamic_scale_for_fsdp(model)\n" in result.text


REFUSED = {
    "the model has no name": """
        def main(batch):
            model = fully_shard(Net())
            optimizer = torch.optim.SGD(model.parameters())
            model(batch).sum().backward()
            optimizer.step()
        """,
    "no step is seen": """
        def main():
            model = Net()
            fully_shard(model)
            return Trainer(model)
        """,
    "the model is not at hand": """
        def train(optimizer, losses):
            for loss in losses:
                loss.backward()
                optimizer.step()


        def main(losses):
            model = Net()
            fully_shard(model)
            train(torch.optim.SGD(model.parameters()), losses)
        """,
    "the optimizer has no name": """
        def main(batch):
            model = Net()
            fully_shard(model)
            Updater(torch.optim.SGD(model.parameters())).update(model(batch).sum())


        class Updater:
            def __init__(self, optimizer):
                self.optimizer = optimizer

            def update(self, loss):
                loss.backward()
                self.optimizer.step()
        """,
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_nothing_is_half_done(text: str) -> None:
    result = upgraded(program(text), float8="tensorwise")
    assert result.text == program(text)
    assert [finding.level.value for finding in result.findings] == ["manual"]
    assert result.said.startswith("not upgraded: ")


def test_a_model_of_another_library_keeps_what_ends_in_head() -> None:
    text = program(MAIN).replace("Net()", "AutoModel.from_pretrained('gpt2')")
    result = upgraded("from transformers import AutoModel\n" + text, float8="tensorwise")
    assert result.summary == [("FM603", "review", 19)]
    assert 'not name.endswith("head")' in result.text


def test_each_optimizer_computes_the_scales_of_its_own_model() -> None:
    text = program(
        """
        class Trainer:
            def __init__(self):
                self.actor, self.critic = Net(), Net()
                fully_shard(self.actor)
                fully_shard(self.critic)
                self.first = torch.optim.SGD(self.actor.parameters())
                self.second = torch.optim.SGD(self.critic.parameters())

            def step(self, batch):
                (self.actor(batch) - self.critic(batch)).sum().backward()
                self.first.step()
                self.second.step()
        """
    )
    result = upgraded(text, float8="tensorwise")
    assert "self.first.step()\n        float8.precompute_float8_dynamic_scale_for_fsdp(self.actor)\n" in result.text
    assert "self.second.step()\n        float8.precompute_float8_dynamic_scale_for_fsdp(self.critic)\n" in result.text
    assert result.text.count("precompute") == 2


def test_a_step_in_another_file() -> None:
    files = {
        "train.py": program(
            """
            from loop import train


            def main(batches):
                model = Net()
                model = fully_shard(model)
                train(model, torch.optim.SGD(model.parameters()), batches)
            """
        ),
        "loop.py": code(
            """
            def train(net, optimizer, batches):
                for batch in batches:
                    net(batch).sum().backward()
                    optimizer.step()
            """
        ),
    }
    result = upgraded_files(files, float8="tensorwise")
    assert "optimizer.step()\n        float8.precompute_float8_dynamic_scale_for_fsdp(net)\n" in result.files["loop.py"]
    assert "from torchao import float8\n" in result.files["loop.py"]


def test_a_scheduler_that_comes_with_the_optimizer_steps_for_itself() -> None:
    text = program(
        """
        def prepare(model):
            optimizer = torch.optim.SGD(model.parameters())
            return optimizer, torch.optim.lr_scheduler.LinearLR(optimizer)


        def main(batches):
            model = Net()
            fully_shard(model)
            optimizer, lr_scheduler = prepare(model)
            for batch in batches:
                model(batch).sum().backward()
                optimizer.step()
                lr_scheduler.step()
        """
    )
    result = upgraded(text, float8="tensorwise")
    assert result.text.count("precompute") == 1
    assert "optimizer.step()\n        float8.precompute_float8_dynamic_scale_for_fsdp(model)\n" in result.text


def test_a_name_that_is_deleted_is_not_taken() -> None:
    text = program(
        """
        def main(batches, ddp):
            model = Net()
            if ddp:
                parallel_model = nn.parallel.DistributedDataParallel(model)
            else:
                parallel_model = fully_shard(model)
            del model
            optimizer = torch.optim.SGD(parallel_model.parameters())
            for batch in batches:
                parallel_model(batch).sum().backward()
                optimizer.step()
        """
    )
    assert "precompute_float8_dynamic_scale_for_fsdp(parallel_model)\n" in upgraded(text, float8="tensorwise").text


def test_the_trainer_is_not_its_model() -> None:
    text = program(
        """
        class Trainer:
            def __init__(self, policy, lr):
                self.policy = fully_shard(policy)
                self.lr = lr

            def train(self, batches):
                optimizer = torch.optim.SGD(self.policy.parameters())
                scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.lr / step)
                for batch in batches:
                    self.policy(batch).sum().backward()
                    optimizer.step()
                    scheduler.step()


        def main(name, batches):
            TrainerClass = globals()[name]
            model = Net()
            trainer = TrainerClass(model, 0.1)
            trainer.train(batches)


        Trainer(Net(), 0.1).train([])
        """
    )
    assert "precompute_float8_dynamic_scale_for_fsdp(self.policy)\n" in upgraded(text, float8="tensorwise").text


UPDATER = """
    class Updater:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def update(self, loss):
            loss.backward()
            self.optimizer.step()


    def main(batches):
        model = Net()
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        updater = Updater(optimizer)
        for batch in batches:
            updater.update(model(batch).sum())
    """


def test_a_step_that_does_not_know_its_model_has_a_hook() -> None:
    result = upgraded(program(UPDATER), float8="tensorwise")
    assert result.summary == [("FM603", "rewritten", 27)]
    hook = "optimizer.register_step_post_hook(lambda *_: float8.precompute_float8_dynamic_scale_for_fsdp(model))\n"
    assert f"lr=1e-3)\n    {hook}    updater = " in flat(result.text)
    assert result.text.count("precompute") == 1


def test_a_step_of_a_longer_line_has_a_hook() -> None:
    before = program(MAIN).replace("            optimizer.step()\n", "            loss = 1; optimizer.step()\n")
    result = upgraded(before, float8="tensorwise")
    assert "optimizer.register_step_post_hook(lambda *_: " in flat(result.text)
    assert result.text.count("precompute") == 1


def test_a_model_that_is_deleted_has_no_hook() -> None:
    before = program(UPDATER.replace("        for batch", "        del model\n        for batch"))
    result = upgraded(before, float8="tensorwise")
    assert (result.text, [level for _, level, _ in result.summary]) == (before, ["manual"])


def test_scales_are_computed_behind_weights_that_are_loaded_into_a_model_that_has_trained() -> None:
    load = "model.load_state_dict(torch.load('best.pt'))\n"
    before = program(MAIN).replace("    for index", f"    {load}    for index") + f"    {load}"
    result = upgraded(before, float8="tensorwise")
    behind = "    float8.precompute_float8_dynamic_scale_for_fsdp(model)\n"
    assert result.text.endswith(f"    {load}{behind}")
    assert f"    {load}    for index" in result.text
    again = "        if index == 9:\n            set_model_state_dict(model, {})\n"
    before = program(MAIN).replace("        model(batch)", f"{again}        model(batch)")
    before = "from torch.distributed.checkpoint.state_dict import set_model_state_dict\n" + before
    result = upgraded(before, float8="tensorwise")
    assert f"set_model_state_dict(model, {{}})\n        {behind}" in result.text


STEPS = """
    def train(net, optimizer, loss):
        net.train()
        optimizer.step()


    def other(optimizer, loss):
        loss.backward()
        optimizer.step()


    def main():
        model = Net()
        fully_shard(model)
        train(model, torch.optim.SGD(model.parameters()), 1)
        CALL
    """


def test_a_step_of_a_function_that_is_called_nowhere_steps_for_others() -> None:
    unused = upgraded(program(STEPS.replace("CALL", "")), float8="tensorwise")
    assert (unused.text.count("precompute"), unused.summary[0][1]) == (1, "rewritten")
    by_name = upgraded(program(STEPS.replace("CALL", "recipes[0].other(1, 2)")), float8="tensorwise")
    assert (by_name.text.count("precompute"), by_name.summary[0][1]) == (0, "manual")


PARTS = {
    "a loop in a helper": """
        def shard_parts(net):
            for layer in (net.stem, net.out):
                fully_shard(layer)
        """,
    "a helper for each part": """
        def shard_part(layer):
            fully_shard(layer)


        def shard_parts(net):
            shard_part(net.stem)
        """,
}


@pytest.mark.parametrize("helper", PARTS.values(), ids=PARTS)
def test_parts_that_another_function_shards_are_not_converted_too_late(helper: str) -> None:
    main = code(MAIN).replace("    fully_shard(model)", "    shard_parts(model)\n    fully_shard(model)")
    text = HEAD + code(helper) + "\n\n" + main
    result = upgraded(text, float8="tensorwise")
    assert result.text == text
    assert {finding.level.value for finding in result.findings} == {"manual"}
