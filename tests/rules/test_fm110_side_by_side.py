"""A program that keeps FSDP1 beside FSDP2, behind a switch of its own, is recognised and left as it is: FM110."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.api import Level
from fsdp_migrate.config import Config
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.render.view import Command, exit_code
from fsdp_migrate.session import examine, gather

from ..helpers import Result, code, rewrite, rewrite_files

HEAD = """\
from functools import partial

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, StateDictType, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


"""

UNRELATED = {
    "a branch that does not wrap": """\
        def shard(model, config):
            if config.fsdp:
                model = FSDP(model)
            else:
                model = model.cuda()
            return model
        """,
    "FSDP2 for another model": """\
        def shard(model, other, config):
            if config.teacher:
                fully_shard(other)
            else:
                model = FSDP(model)
            return model
        """,
    "FSDP2 behind it, not instead of it": """\
        def shard(model, teacher, config):
            if config.fsdp:
                model = FSDP(model)
            fully_shard(teacher)
            return model
        """,
    "classes of one base, of which one shards something else": """\
        class Strategy:
            pass


        class Sharded(Strategy):
            def wrap(self, model):
                return FSDP(model)


        class Other(Strategy):
            def wrap(self, model, teacher):
                fully_shard(teacher)
                return model
        """,
    "a method of the name that shards something else": """\
        class Encoder:
            def prepare(self, teacher):
                fully_shard(teacher)


        class Decoder:
            def prepare(self, teacher):
                self.teacher = teacher.cuda()


        def shard(config):
            model = config.build()
            if config.fsdp:
                model = FSDP(model)
            else:
                model.prepare(config.teacher)
            return model
        """,
    "a script with two commands": """\
        def train(config):
            model = FSDP(build(config))
            return model


        def bench(config):
            net = build(config)
            fully_shard(net)
            return net


        def main(config):
            if config.command == "train":
                train(config)
            else:
                bench(config)
        """,
}


@pytest.mark.parametrize("text", UNRELATED.values(), ids=UNRELATED)
def test_fsdp2_elsewhere_does_not_keep_fsdp1(text: str) -> None:
    result = rewrite(HEAD + code(text))
    assert "FM110" not in {finding.rule for finding in result.findings}
    assert "FSDP(" not in result.text


SWITCHES = {
    "classes of one base": """\
        class Strategy:
            def wrap(self, model):
                return model


        class Sharded(Strategy):
            def wrap(self, model):
                wrapped = FSDP(model, use_orig_params=True)
                return wrapped, StateDictType.FULL_STATE_DICT


        class Sharded2(Strategy):
            def wrap(self, model):
                return [fully_shard(model)], None
        """,
    "if and elif": """\
        def shard(model, strategy):
            if strategy == "fsdp":
                wrapped = FSDP(model, use_orig_params=True)
            elif strategy == "fsdp2":
                for block in model.blocks:
                    fully_shard(block)
                fully_shard(model)
                wrapped = model
            else:
                raise ValueError(strategy)
            return wrapped
        """,
    "else": """\
        def shard(self):
            if self.version == 2:
                fully_shard(self.model)
            else:
                self.model = FSDP(self.model)
        """,
    "an early return": """\
        def shard(model, config):
            if config.v2:
                return fully_shard(model)
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            return FSDP(model, auto_wrap_policy=policy)
        """,
    "an early return of FSDP1": """\
        def shard(model, config):
            if not config.v2:
                return FSDP(model, mixed_precision=MixedPrecision())
            return fully_shard(model)
        """,
    "a conditional expression": """\
        def shard(model, config):
            return fully_shard(model) if config.v2 else FSDP(model)
        """,
    "match": """\
        def shard(model, strategy):
            match strategy:
                case "fsdp":
                    model = FSDP(model)
                case "fsdp2":
                    fully_shard(model)
            return model
        """,
    "a helper": """\
        def apply_fsdp2(model, config):
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)


        class Trainer:
            def build(self, module):
                inner = module.model if self.wrapped else module
                if self.strategy == "fsdp":
                    result = FSDP(module.model if self.wrapped else module)
                elif self.strategy == "fsdp2":
                    apply_fsdp2(inner, self.config)
                    result = inner
                return result
        """,
    "two functions": """\
        def parallelize_v1(model, config):
            model = FSDP(model)
            return model


        def parallelize_v2(model, mesh):
            return fully_shard(model, mesh=mesh)


        def build(net, config):
            if config.mesh is None:
                net = parallelize_v1(net, config)
            else:
                net = parallelize_v2(net, config.mesh)
            return net
        """,
    "a method of a model that a configuration makes": """\
        class Model:
            def apply_fsdp2(self, **kwargs):
                'Shards this model.'
                raise NotImplementedError()


        class Molmo(Model):
            def apply_fsdp2(self, **kwargs):
                self.vision.apply_fsdp2(**kwargs)
                fully_shard(self, **kwargs)


        class Vision:
            def apply_fsdp2(self, **kwargs):
                fully_shard(self, **kwargs)


        def shard(config):
            model = config.build()
            if not config.fsdp2:
                sharded = FSDP(model, **config.fsdp())
            elif config.fsdp2:
                model.apply_fsdp2(**config.fsdp2())
                sharded = model
            return sharded
        """,
    "a method of a base class": """\
        class Model:
            def shard(self):
                raise NotImplementedError


        class Net(Model):
            def shard(self):
                fully_shard(self)


        def main(model: Model, config):
            if config.v1:
                model = FSDP(model)
            else:
                model.shard()
            return model
        """,
    "models that are made inside": """\
        def build_v1(config):
            return FSDP(Net(config))


        def build_v2(config):
            net = Net(config)
            return fully_shard(net)


        def main(config):
            model = build_v2(config) if config.v2 else build_v1(config)
            return model
        """,
    "methods far from the call": """\
        class Accelerator:
            def prepare(self, *args):
                if self.is_fsdp2:
                    result = self._prepare_v2(*args)
                else:
                    result = tuple(self._prepare_one(each) for each in args)
                return result

            def _prepare_v2(self, *args):
                return [fully_shard(each) for each in args]

            def _prepare_one(self, each):
                return self.prepare_model(each)

            def prepare_model(self, model):
                if self.is_fsdp2:
                    raise ValueError("call prepare")
                elif self.is_fsdp:
                    model = FSDP(model, **self.kwargs)
                return model
        """,
    "a table of functions": """\
        def v1(model):
            return FSDP(model)


        def v2(model):
            return fully_shard(model)


        SHARD = {"fsdp": v1, "fsdp2": v2}
        """,
    "classes": """\
        class V1:
            def setup(self, model):
                self.model = FSDP(model)


        class V2:
            def setup(self, model):
                self.model = fully_shard(model)


        def strategy(config):
            if config.v2:
                return V2()
            return V1()
        """,
}


def test_the_path_of_fsdp2_is_named_in_another_class_of_the_base() -> None:
    found = rewrite(HEAD + code(SWITCHES["classes of one base"])).findings
    assert any("`wrap` (train.py:" in each.message and "of the same base" in each.message for each in found)


@pytest.mark.parametrize("text", SWITCHES.values(), ids=SWITCHES)
def test_switch_is_recognised(text: str) -> None:
    before = HEAD + code(text)
    result = rewrite(before)
    assert result.text == before
    assert {(finding.rule, finding.level) for finding in result.findings} == {("FM110", Level.KEPT)}
    (call,) = (finding for finding in result.findings if "constructor call" in finding.message)
    assert "pyproject" in call.hint or "tool.fsdp-migrate" in call.hint


BY_A_LIBRARY = """\
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    {imported}


    class Trainer:
        def build(self, config):
            if config.strategy == "fsdp":
                self.model = FSDP(self.net)
            elif config.strategy == "fsdp2":
                {shards}
                self.model = self.net
    """


@pytest.mark.parametrize(
    ("imported", "shards"),
    [
        ("from verl.utils.fsdp_utils import apply_fsdp2", "apply_fsdp2(self.net, {}, config)"),
        ("import verl.utils.fsdp_utils as utils", "utils.apply_fsdp2(self.net, {}, config)"),
        ("from accelerate.utils import fsdp2_prepare_model", "self.net = fsdp2_prepare_model(config, self.net)"),
    ],
)
def test_a_librarys_function_that_shards_is_the_path_of_fsdp2(imported: str, shards: str) -> None:
    before = code(BY_A_LIBRARY.replace("{imported}", imported).replace("{shards}", shards))
    result = rewrite(before)
    assert result.text == before
    assert {(finding.rule, finding.level) for finding in result.findings} == {("FM110", Level.KEPT)}


@pytest.mark.parametrize(
    ("imported", "shards"),
    [
        ("from verl.utils.fsdp_utils import get_fsdp_wrap_policy", "get_fsdp_wrap_policy(self.net)"),
        ("def apply_fsdp2(net, kwargs, config):\n        net.half()", "apply_fsdp2(self.net, {}, config)"),
    ],
)
def test_what_does_not_shard_is_no_path_of_fsdp2(imported: str, shards: str) -> None:
    before = code(BY_A_LIBRARY.replace("{imported}", imported).replace("{shards}", shards))
    assert "self.model = fully_shard(self.net)" in rewrite(before).text


LIBRARY = {
    "shard.py": HEAD
    + code(
        """
        def shard(model, config):
            if config.strategy == "fsdp2":
                return fully_shard(model)
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            return FSDP(model, auto_wrap_policy=policy, mixed_precision=MixedPrecision())
        """
    ),
    "saving.py": code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import StateDictType


        def save(model):
            if not isinstance(model, FSDP):
                return model.state_dict()
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                return model.state_dict()
        """
    ),
    "train.py": code(
        """
        from saving import save
        from shard import shard


        def main(net, config):
            model = shard(net, config)
            model(1).backward()
            if config.strategy == "fsdp":
                model.clip_grad_norm_(1.0)
            save(model)
        """
    ),
}


def test_what_serves_the_kept_path_is_left_with_it() -> None:
    result = rewrite_files(LIBRARY)
    assert dict(result.after) == dict(result.before)
    assert {finding.level for finding in result.findings} == {Level.KEPT}
    assert {finding.path.name for finding in result.findings} == {"shard.py", "saving.py"}


def _migrate(folder: Path, files: dict[str, str]) -> Result:
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    program = gather([folder], Config())
    report = migrate(tuple(program.sources.values()), Options(), program.imports)
    after = files | {change.path.name: change.after for change in report.changes}
    return Result(files, after, report)


ALONE = code(
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def main(net):
        model = FSDP(net)
        model(1).backward()
        model.clip_grad_norm_(1.0)
    """
)


def test_script_that_shares_nothing_is_rewritten(tmp_path: Path) -> None:
    result = _migrate(tmp_path, LIBRARY | {"alone.py": ALONE})
    assert "model = fully_shard(net)" in result.after["alone.py"]
    assert "torch.nn.utils.clip_grad_norm_" in result.after["alone.py"]
    assert {change.path.name for change in result.report.changes} == {"alone.py"}


def test_script_that_shares_code_is_left_and_says_so(tmp_path: Path) -> None:
    shares = ALONE.replace("\n\n\ndef", "\nfrom saving import save\n\n\ndef") + "    save(model)\n"
    result = _migrate(tmp_path, LIBRARY | {"shares.py": shares, "test_shares.py": shares})
    assert result.after["shares.py"] == result.after["test_shares.py"] == shares
    (found,) = (finding for finding in result.findings if finding.level is Level.MANUAL)
    assert found.path.name == "shares.py"
    assert "shares code" in found.message


def test_gate_fails_until_the_rule_is_ignored_and_rewrite_has_nothing_to_do(tmp_path: Path) -> None:
    for name, text in LIBRARY.items():
        (tmp_path / name).write_text(text)
    program = gather([tmp_path], Config())
    assert exit_code(examine(program, Config(), Command.REWRITE, tmp_path), strict=False) == 0
    assert exit_code(examine(program, Config(), Command.CHECK, tmp_path), strict=False) == 1
    ignored = examine(program, Config(ignore=("FM110",)), Command.CHECK, tmp_path)
    assert exit_code(ignored, strict=False) == 0


def test_second_run_after_a_call_that_was_left_is_not_taken_for_a_switch() -> None:
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def shard(model, config):
            if config.late:
                model = FSDP(model)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            else:
                optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
                warm_up(model, optimizer)
                model = FSDP(model)
            return model, optimizer
        """
    )
    first = rewrite(text)
    assert "raise NotImplementedError" in first.text
    assert "fully_shard(model)" in first.text
    second = rewrite(first.text)
    assert [finding.rule for finding in second.findings] == ["FM101"]


SHARED = "class Recipe:\n    pass\n"
START = '\n\nif __name__ == "__main__":\n    Run()\n'
RECIPE = """\
from shared import Recipe
from torch.distributed.fsdp import {name}


class Run(Recipe):
    def wrap(self, model):
        return {name}(model)
"""


@pytest.mark.parametrize(("end", "is_kept"), [(START, False), ("", True)])
def test_a_class_of_the_same_base_in_another_script(end: str, is_kept: bool) -> None:
    """Recipes that are started by themselves share an interface, and are no choice of one program."""
    recipes = {"old.py": "FullyShardedDataParallel", "new.py": "fully_shard"}
    files = {path: RECIPE.format(name=name) + end for path, name in recipes.items()}
    both = {} if end else {"main.py": "import new\nimport old\nprint(new, old)\n"}
    result = rewrite_files({"shared.py": SHARED, **files, **both})
    assert ("FM110" in {finding.rule for finding in result.findings}) is is_kept


FSDP1_SCRIPT = """\
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    from common import Average
    from net import Net


    def main():
        model = FSDP(Net())
        average = Average(model)
        average.update()
    """
AVERAGE = """\
    class Average:
        def __init__(self, model):
            self.model = model
            self.values = {name: value.clone() for name, value in model.state_dict().items()}

        def update(self):
            for name, value in self.model.state_dict().items():
                self.values[name].lerp_(value, 0.1)
    """
NET = "from torch import nn\n\n\nclass Net(nn.Module):\n    pass\n"

SERVING_BOTH = {
    "in place": """\
        def main():
            model = Net()
            fully_shard(model)
            Average(model).update()
        """,
    "what a function of the program gives back": """\
        def shard(net, mesh):
            for block in net.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(net, mesh=mesh)
            return net


        def main(mesh):
            model = shard(Net(), mesh)
            Average(model).update()
        """,
    "a function that shards what it is handed": """\
        class Setup:
            def prepare(self, config, model):
                fully_shard(model, mesh=config.mesh)


        def main(config):
            net = Net()
            Setup().prepare(config, model=net)
            Average(net).update()
        """,
    "an attribute": """\
        class Trainer:
            def __init__(self, config):
                self.net = config.build()

            def setup(self):
                fully_shard(self.net)

            def fit(self):
                self.setup()
                self.average = Average(self.net)
                self.average.update()
        """,
}

SERVING_ONE = {
    "another model of the script": """\
        def main():
            model, teacher = Net(), Net()
            fully_shard(teacher)
            Average(model).update()
        """,
    "before FSDP2 comes to it, in another run": """\
        def main(config):
            model = Net()
            if config.shard:
                fully_shard(model)
            else:
                Average(model).update()
        """,
    "a function that shards another of its parameters": """\
        def shard(teacher, student):
            fully_shard(teacher)
            return student


        def main():
            model = Net()
            shard(Net(), model)
            Average(model).update()
        """,
}


def _beside(script: str) -> Result:
    head = "from common import Average\nfrom net import Net\nfrom torch.distributed.fsdp import fully_shard\n\n\n"
    files = {"v1.py": code(FSDP1_SCRIPT), "common.py": code(AVERAGE), "net.py": NET, "v2.py": head + code(script)}
    return rewrite_files(files)


@pytest.mark.parametrize("script", SERVING_BOTH.values(), ids=SERVING_BOTH)
def test_state_dicts_that_serve_models_of_both_keep_fsdp1(script: str) -> None:
    result = _beside(script)
    assert result.after == result.before
    (kept,) = [finding for finding in result.findings if "constructor call" in finding.message]
    assert (kept.rule, kept.level) == ("FM110", Level.KEPT)
    assert "state_dict()` (common.py:" in kept.message


@pytest.mark.parametrize("script", SERVING_ONE.values(), ids=SERVING_ONE)
def test_state_dicts_that_serve_models_of_fsdp1_alone_are_rewritten(script: str) -> None:
    result = _beside(script)
    assert "FM110" not in {finding.rule for finding in result.findings}
    assert "fully_shard(" in result.after["v1.py"]


OFFERING = """\
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import fully_shard


    def _shard(model):
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)


    def with_fsdp(model):
        return FSDP(model)


    def with_fsdp2(model):
        return _shard(model)
    """
USING = "from wrapping import with_fsdp\n\n\ndef main():\n    return with_fsdp(build())\n"
OTHER = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nimport wrapping\n\nmodel = FSDP(net)\n"


def test_a_library_that_offers_both_keeps_fsdp1_and_nothing_else_stays_with_it() -> None:
    files = {"wrapping.py": code(OFFERING), "other.py": OTHER}
    result = rewrite_files(files)
    assert result.after["wrapping.py"] == files["wrapping.py"]
    assert "fully_shard(" in result.after["other.py"]
    kept = [finding for finding in result.findings if "constructor call" in finding.message and finding.rule == "FM110"]
    assert [finding.level for finding in kept] == [Level.KEPT]
    assert "`with_fsdp2` (wrapping.py:15) stands beside it" in kept[0].message
    used = rewrite_files({"wrapping.py": code(OFFERING), "main.py": USING.replace("with_fsdp", "with_fsdp2")})
    assert {finding.level for finding in used.findings} == {Level.KEPT}  # nano-qwen: a fallback that nobody calls


@pytest.mark.parametrize(
    "files",
    [
        {"wrapping.py": code(OFFERING), "main.py": USING},
        {"wrapping.py": code(OFFERING) + '\n\nif __name__ == "__main__":\n    with_fsdp(net)\n'},
        {
            "wrapping.py": code(OFFERING)
            .replace("def with_fsdp2(model)", "def with_fsdp2(model, teacher)")
            .replace("return _shard(model)", "return _shard(teacher)")
        },
    ],
    ids=["the program calls it", "a script", "of another parameter"],
)
def test_what_is_offered_beside_fsdp2_and_used_is_rewritten(files: dict[str, str]) -> None:
    result = rewrite_files(files)
    assert "FM110" not in {finding.rule for finding in result.findings}
    assert "FSDP(" not in result.after["wrapping.py"]
