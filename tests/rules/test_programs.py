"""Programs of several files: what is made in one and used in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.api import Level
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.source import Source

from ..helpers import code, rewrite_files

WRAP = code(
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def shard(net):
        return FSDP(net)
    """
)


def test_model_is_followed_from_the_file_that_wraps_it() -> None:
    result = rewrite_files(
        {
            "wrapping.py": WRAP,
            "train.py": code(
                """
                from wrapping import shard


                def train(net, batch):
                    model = shard(net)
                    with model.no_sync():
                        model(batch).sum().backward()
                    model(batch).sum().backward()
                    model.clip_grad_norm_(1.0)
                    return model.module.config, model.state_dict()
                """
            ),
        }
    )
    text = result.after["train.py"]
    assert "    model.set_requires_gradient_sync(False)\n    model(batch).sum().backward()\n" in text
    assert "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in text
    assert "    return model.config, get_model_state_dict(model, " in text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


REEXPORTS = [
    pytest.param({"lib/__init__.py": "from .wrapping import shard\n"}, "from lib import shard", id="package"),
    pytest.param({"lib/__init__.py": "from .wrapping import *\n"}, "from lib import shard", id="star re-export"),
    pytest.param({"lib/__init__.py": ""}, "from lib.wrapping import shard", id="submodule"),
    pytest.param({"lib/__init__.py": ""}, "from lib.wrapping import *", id="star"),
    pytest.param({"lib/__init__.py": ""}, "from lib import wrapping\nshard = wrapping.shard", id="module attribute"),
    pytest.param({"lib/__init__.py": ""}, "import lib.wrapping\nshard = lib.wrapping.shard", id="dotted module"),
    pytest.param({"lib/__init__.py": ""}, "import lib.wrapping as w\nshard = w.shard", id="module alias"),
]


@pytest.mark.parametrize(("files", "statement"), REEXPORTS)
def test_function_that_wraps_is_found_through_imports(files: dict[str, str], statement: str) -> None:
    train = f"{statement}\n\n\ndef train(net):\n    model = shard(net)\n    model.clip_grad_norm_(1.0)\n"
    result = rewrite_files({"train.py": train, "lib/wrapping.py": WRAP, **files})
    assert "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in result.after["train.py"]


def test_policy_made_in_another_file_becomes_classes_there() -> None:
    result = rewrite_files(
        {
            "train.py": code(
                """
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                from policies import get_policy


                def wrap(model):
                    return FSDP(model, auto_wrap_policy=get_policy())
                """
            ),
            "policies.py": code(
                """
                from functools import partial

                from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

                from blocks import Block, Head


                def get_policy():
                    return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block, Head})
                """
            ),
        }
    )
    assert result.after["policies.py"] == code(
        """
        from blocks import Block, Head


        def get_policy():
            return (Block, Head)
        """
    )
    assert result.after["train.py"] == code(
        """
        from torch.distributed.fsdp import fully_shard

        from policies import get_policy


        def wrap(model):
            unit_classes = get_policy()
            for module in reversed(list(model.modules())):
                if module is not model and isinstance(module, unit_classes):
                    fully_shard(module)
            return fully_shard(model)
        """
    )


def test_policy_of_another_file_that_a_dynamic_call_uses_too_keeps_its_form() -> None:
    files = {
        "a.py": code(
            """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            from policies import POLICY


            def wrap(model):
                return FSDP(model, auto_wrap_policy=POLICY)
            """
        ),
        "policies.py": code(
            """
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy

            from blocks import Block

            POLICY = ModuleWrapPolicy({Block})
            """
        ),
    }
    files["b.py"] = files["a.py"].replace("(model)", "(model, **kwargs)").replace("POLICY)", "POLICY, **kwargs)")
    result = rewrite_files(files)
    assert "POLICY = ModuleWrapPolicy({Block})\n" in result.after["policies.py"]
    assert result.support == {"shard_model"}


def test_strategy_of_a_config_file() -> None:
    result = rewrite_files(
        {
            "train.py": code(
                """
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                from config import Config


                def wrap(model, config: Config):
                    return FSDP(model, sharding_strategy=config.strategy)
                """
            ),
            "config.py": code(
                """
                from dataclasses import dataclass

                from torch.distributed.fsdp import ShardingStrategy


                @dataclass
                class Config:
                    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
                """
            ),
        }
    )
    assert result.after["config.py"] == result.before["config.py"]
    assert "strategy_kwargs(" in result.after["train.py"]


HOMES = [
    pytest.param(
        {"train.py": "", "lib/wrapping.py": "", "lib/__init__.py": ""},
        "from lib import wrapping\n",
        id="script and package",
    ),
    pytest.param({"train.py": "", "wrapping.py": ""}, "import wrapping\n", id="two scripts"),
    pytest.param(
        {"lib/train.py": "", "lib/wrapping.py": "", "lib/__init__.py": ""},
        "from . import wrapping\n",
        id="relative imports",
    ),
]
DYNAMIC = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    "def wrap(net, **kwargs):\n    return FSDP(net, **kwargs)\n"
)


@pytest.mark.parametrize(("files", "statement"), HOMES)
def test_support_module_can_be_imported_where_it_lies(files: dict[str, str], statement: str) -> None:
    made = {name: statement + DYNAMIC if "train" in name else DYNAMIC if "wrapping" in name else "" for name in files}
    result = rewrite_files(made)
    (home,) = [name for name in result.after if name.endswith("fsdp2_support.py")]
    relative = "from .fsdp2_support import shard_model\n"
    absolute = "from fsdp2_support import shard_model\n"
    for name, text in result.after.items():
        if "shard_model(" in text and name != home:
            folder, home_folder = name.rpartition("/")[0], home.rpartition("/")[0]
            assert (relative in text and folder == home_folder) or (absolute in text and home_folder == "")


def test_two_files_share_one_support_module() -> None:
    result = rewrite_files({"a.py": DYNAMIC, "b.py": DYNAMIC.replace("net", "model")})
    assert [name for name in result.after if "support" in name] == ["fsdp2_support.py"]


def test_functions_of_the_users_support_module_stay() -> None:
    first = rewrite_files({"a.py": DYNAMIC})
    mine = first.after["fsdp2_support.py"] + "\n\ndef mine():\n    return 1\n"
    result = rewrite_files({"a.py": DYNAMIC, "fsdp2_support.py": mine})
    assert result.after["fsdp2_support.py"] == mine


def test_file_that_does_not_parse_is_an_error_and_the_rest_goes_on() -> None:
    broken = Source(Path("/nowhere/broken.py"), "from torch.distributed.fsdp import FullyShardedDataParallel\ndef (\n")
    report = migrate([broken, Source(Path("/nowhere/train.py"), WRAP)], Options())
    assert [error.path for error in report.errors] == [broken.path]
    assert [change.path.name for change in report.changes] == ["train.py"]


LIBRARIES = {
    "accelerate": (
        "from accelerate import Accelerator\n",
        "model = Accelerator().prepare(net)\n",
        "where accelerate wraps the model, give it fsdp_version: 2",
    ),
    "lightning": (
        "from lightning.fabric.strategies import FSDPStrategy\n",
        "model = run(FSDPStrategy())\n",
        "where Lightning wraps the model",
    ),
    "elsewhere": ("", "model = net\n", "name the script that wraps the model"),
    "a word": ('"""As lightning does."""\n', "model = net\n", "name the script that wraps the model"),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_model_that_a_library_wraps_is_said_to_be_the_librarys(name: str) -> None:
    head, made, words = LIBRARIES[name]
    text = (
        f"{head}from torch.distributed.fsdp import FullStateDictConfig, StateDictType\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        f"def save(net):\n    {made}    config = FullStateDictConfig(rank0_only=True)\n"
        "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):\n"
        "        return model.state_dict()\n"
    )
    result = rewrite_files({"train.py": text})
    manual = [finding for finding in result.findings if finding.level is Level.MANUAL]
    assert result.text == text
    assert {finding.rule for finding in manual} <= {"FM301", "FM304"}
    assert all(words in finding.hint for finding in manual)
