"""How FSDP1 can be imported, and what the import statements are like afterwards."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from codemods.api import Import, Level
from fsdp_migrate.edit.imports import tidy
from fsdp_migrate.pyanalysis.tree import Tree

from ..helpers import check_transformed, code, rewrite, rewrite_files

USES = [
    ("from torch.distributed.fsdp import FullyShardedDataParallel", "FullyShardedDataParallel"),
    ("from torch.distributed.fsdp import FullyShardedDataParallel as F", "F"),
    (
        "from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel",
        "FullyShardedDataParallel",
    ),
    ("import torch.distributed.fsdp", "torch.distributed.fsdp.FullyShardedDataParallel"),
    ("import torch.distributed.fsdp as fsdp", "fsdp.FullyShardedDataParallel"),
    ("import torch", "torch.distributed.fsdp.FullyShardedDataParallel"),
    ("import torch as t", "t.distributed.fsdp.FullyShardedDataParallel"),
    ("import torch.distributed as dist", "dist.fsdp.FullyShardedDataParallel"),
    ("from torch import distributed", "distributed.fsdp.FullyShardedDataParallel"),
    ("from torch.distributed import fsdp", "fsdp.FullyShardedDataParallel"),
    ("from torch.distributed import fsdp as f", "f.FullyShardedDataParallel"),
    ("from torch.distributed.fsdp import fully_sharded_data_parallel as f", "f.FullyShardedDataParallel"),
    ("import torch.distributed.fsdp.fully_sharded_data_parallel as f", "f.FullyShardedDataParallel"),
    ("from torch.distributed.fsdp import *", "FullyShardedDataParallel"),
]


@pytest.mark.parametrize(("statement", "name"), USES)
def test_every_way_to_import_is_found(statement: str, name: str) -> None:
    result = rewrite(f"{statement}\n\n\ndef wrap(net):\n    return {name}(net)\n")
    assert result.text.endswith("\n\n\ndef wrap(net):\n    return fully_shard(net)\n")
    assert [rule for rule, _, _ in result.summary] == ["FM101"]


SHADOWED = [
    pytest.param("def wrap(FSDP):\n    return FSDP(1)\n", id="parameter"),
    pytest.param("def wrap():\n    FSDP = print\n    return FSDP(1)\n", id="local name"),
    pytest.param("def wrap():\n    from other import FSDP\n    return FSDP(1)\n", id="another import in the function"),
]


@pytest.mark.parametrize("text", SHADOWED)
def test_name_that_means_something_else_here(text: str) -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n" + text
    assert "return FSDP(1)" in rewrite(text + "\n\nmodel = FSDP(net)\n").text


LAYOUTS = [
    pytest.param(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, StateDictType\n",
        "from torch.distributed.fsdp import fully_shard\n",
        id="names that nothing uses go too",
    ),
    pytest.param(
        """
        import os

        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn import Module
        """,
        """
        import os

        import torch
        from torch.distributed.fsdp import fully_shard
        from torch.nn import Module
        """,
        id="in its place",
    ),
    pytest.param(
        """
        from torch.distributed.fsdp import (
            BackwardPrefetch,
            CPUOffload,
            FSDPModule,
            FullyShardedDataParallel as FSDP,  # the wrapper
            register_fsdp_forward_method,
        )

        print(FSDPModule, register_fsdp_forward_method)
        """,
        """
        from torch.distributed.fsdp import (
            FSDPModule,
            fully_shard,
            register_fsdp_forward_method,
        )

        print(FSDPModule, register_fsdp_forward_method)
        """,
        id="one a line",
    ),
    pytest.param(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # policies
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
        """,
        """
        from torch.distributed.fsdp import fully_shard
        """,
        id="whole statements go",
    ),
    pytest.param(
        """
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        fully_shard(other)
        """,
        """
        from torch.distributed.fsdp import fully_shard

        fully_shard(other)
        """,
        id="imported already",
    ),
    pytest.param(
        """
        '''Trains.'''
        from __future__ import annotations

        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        """,
        """
        '''Trains.'''
        from __future__ import annotations

        from torch.distributed.fsdp import fully_shard
        """,
        id="docstring and future import",
    ),
    pytest.param(
        """
        #!/usr/bin/env python
        # Copyright
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        """,
        """
        #!/usr/bin/env python
        # Copyright
        from torch.distributed.fsdp import fully_shard
        """,
        id="comments at the top",
    ),
]


@pytest.mark.parametrize(("before", "after"), LAYOUTS)
def test_layout(before: str, after: str) -> None:
    check_transformed(
        code(before) + "\n\ndef wrap(model):\n    return FSDP(model)\n",
        code(after) + "\n\ndef wrap(model):\n    return fully_shard(model)\n",
    )


def test_import_stays_in_the_functions_that_had_it() -> None:
    check_transformed(
        """
        import os


        def wrap(model):
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            return FSDP(model)


        def is_wrapped(model):
            try:
                from torch.distributed.fsdp import FullyShardedDataParallel

                return isinstance(model, FullyShardedDataParallel)
            except ImportError:
                return False


        def gathered(model):
            from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FSDP
            with FSDP.summon_full_params(model):
                return os.fspath(model.path)
        """,
        """
        import os


        def wrap(model):
            from torch.distributed.fsdp import fully_shard

            return fully_shard(model)


        def is_wrapped(model):
            try:
                from torch.distributed.fsdp import FSDPModule

                return isinstance(model, FSDPModule)
            except ImportError:
                return False


        def gathered(model):
            from fsdp2_support import summon_full_params
            with summon_full_params(model):
                return os.fspath(model.path)
        """,
    )


GUARDED = """\
def measure(model):
    try:
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    except ImportError:
        FSDP = None

    if FSDP is not None and isinstance(model, FSDP):
        return model
    return None
"""


@pytest.mark.parametrize("is_at_top", [True, False])
def test_try_import_in_a_function(is_at_top: bool) -> None:
    """It goes where the top of the file has the class, and imports the new one where that may be missing as well."""
    wrap = f"{USES[1][0]}\n\n\ndef wrap(model):\n    return {USES[1][1]}(model)\n"
    files = {"train.py": wrap + "\n\n" + GUARDED if is_at_top else wrap, "measure.py": GUARDED}
    made = rewrite_files(files).after["train.py" if is_at_top else "measure.py"]
    assert "pass" not in made
    guard = (
        "        from torch.distributed.fsdp import FSDPModule\n    except ImportError:\n        FSDPModule = None\n"
    )
    assert (guard in made) is not is_at_top
    assert "def measure(model):\n    " + ("if" if is_at_top else "try") in made


def test_try_import() -> None:
    text = code(
        """
        try:
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        except ImportError:
            FSDP = None


        def wrap(model):
            return FSDP(model)
        """
    )
    result = rewrite(text)
    assert "    return fully_shard(model)\n" in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_type_checking_import() -> None:
    text = code(
        """
        from __future__ import annotations

        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from torch.distributed.fsdp import FullyShardedDataParallel


        def use(model: FullyShardedDataParallel) -> None:
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            FSDP(model)
        """
    )
    result = rewrite(text)
    assert "def use(model: nn.Module) -> None:\n" in result.text
    assert "FullyShardedDataParallel" not in result.text


VOCABULARY = [
    ("from torch.distributed.fsdp import ShardingStrategy", "ShardingStrategy"),
    ("from torch.distributed.fsdp.api import ShardingStrategy as S", "S"),
    ("import torch.distributed.fsdp as fsdp", "fsdp.ShardingStrategy"),
    ("import torch", "torch.distributed.fsdp.ShardingStrategy"),
    ("from torch.distributed.fsdp import *", "ShardingStrategy"),
]


@pytest.mark.parametrize(("statement", "name"), VOCABULARY)
def test_settings_that_are_still_read_stay_torchs_own(statement: str, name: str) -> None:
    wrapper = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP"
    call = f"    return FSDP(model, *key, sharding_strategy={name}[key])\n"
    result = rewrite(f"{wrapper}\n{statement}\n\n\ndef wrap(model, key):\n{call}")
    assert result.support == {"shard_model"}
    assert f"sharding_strategy={name}[key]" in result.text
    assert ("FM100", "review") in [(rule, level) for rule, level, _ in result.summary]


EXACT = (
    "# -*- coding: utf-8 -*-\nname = 'ünïcödé → 模型'  # naïve\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
)
USE = "x = '→→→'; y = '模型'\ndef wrap(model):\n    s = '→'; return FSDP(model), '模型'\n"


def test_text_before_the_call_that_is_not_ascii() -> None:
    after = EXACT.replace("FullyShardedDataParallel as FSDP", "fully_shard")
    assert rewrite(EXACT + USE).text == after + USE.replace("FSDP(", "fully_shard(")


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("indent", ["    ", "\t", "  "], ids=["four", "tab", "two"])
def test_newlines_and_indentation(newline: str, indent: str) -> None:
    before = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        from net import Block


        def wrap(model):
            if model:
                model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))
            return model
        """
    )
    after = code(
        """
        from torch.distributed.fsdp import fully_shard
        from net import Block


        def wrap(model):
            if model:
                for module in model.modules():
                    if module is not model and isinstance(module, Block):
                        fully_shard(module)
                fully_shard(model)
            return model
        """
    )
    result = rewrite(before.replace("    ", indent).replace("\n", newline))
    assert result.text == after.replace("    ", indent).replace("\n", newline)


def test_file_without_a_newline_at_its_end() -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(net)"
    assert rewrite(text).text == "from torch.distributed.fsdp import fully_shard\nmodel = fully_shard(net)"


def test_groups_of_imports_are_one_line_apart() -> None:
    text = rewrite(
        code(
            """
            import torch

            from torch.distributed.fsdp import MixedPrecision, FullyShardedDataParallel as FSDP


            def wrap(model, precision=MixedPrecision(), **more):
                return FSDP(model, mixed_precision=precision, **more)
            """
        )
    ).text
    settings = "from torch.distributed.fsdp import MixedPrecision\n"
    assert text.startswith(f"import torch\n\n{settings}\nfrom fsdp2_support import shard_model\n\n\ndef wrap")


def test_what_stands_in_front_of_its_own_group_comes_last_of_what_is_new_there() -> None:
    """The standard library below torch: `replace` went between two imports of torch."""
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        from functools import partial


        def wrap(model):
            policy = ModuleWrapPolicy({torch.nn.Linear})
            precision = MixedPrecision(param_dtype=torch.bfloat16)
            room = partial(torch.nn.Module.to_empty, device="cuda")
            return FSDP(
                model,
                auto_wrap_policy=policy,
                mixed_precision=precision,
                param_init_fn=room,
                sync_module_states=True,
            )
        """
    )
    head = "import DTensor\nfrom dataclasses import replace\nfrom functools import partial\n"
    assert head in rewrite(text).text


def test_own_modules_stand_behind_libraries_where_both_are_new() -> None:
    train = """
        import torch


        class Trainer:
            def __init__(self, net, *more):
                self.model = torch.distributed.fsdp.FullyShardedDataParallel(net, *more)

            def state(self):
                return self.model.state_dict()
        """
    start = "import sys\n\nfrom app.train import Trainer\n\nTrainer(None, *sys.argv).state()\n"
    after = rewrite_files({"app/train.py": code(train), "app/__init__.py": "", "start.py": start}).after["app/train.py"]
    top = after[: after.index("class ")]
    assert top.index("from torch.") < top.index("\n\nfrom app.fsdp2_support import"), top


@pytest.mark.parametrize("gap", [0, 1, 2])
def test_of_the_blank_lines_around_an_import_that_goes_the_more_stay(gap: int) -> None:
    first = "from torch.distributed.fsdp import fully_shard\n"
    goes = "\n" * gap + "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    wrap = "\n\ndef wrap(net):\n    return FSDP(net)\n"
    assert rewrite(first + goes + wrap).text == first + wrap.replace("FSDP", "fully_shard")


def test_blank_lines_of_spaces_are_blank() -> None:
    """Two of them stayed (translate_vi_en_bidir)."""
    head = "from torch.distributed.fsdp import fully_shard\n\n\ndef wrap(net):\n    net.start()\n    \n"
    goes = "    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n    \n"
    assert rewrite(f"{head}{goes}    return FSDP(net)\n").text == f"{head}    return fully_shard(net)\n"


def test_form_feeds_and_odd_blank_lines_stay() -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\x0c\n   \nmodel = FSDP(net)\n\n\n\n"
    assert rewrite(text).text == text.replace("FullyShardedDataParallel as FSDP", "fully_shard").replace(
        "FSDP(", "fully_shard("
    )


def test_what_a_failed_import_leaves_is_asked_for_as_before() -> None:
    check_transformed(
        """
        try:
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import MixedPrecision
        except ImportError:
            FSDP = None
            MixedPrecision = None


        def wrap(net, dtype):
            if FSDP is None:
                raise RuntimeError("no FSDP")
            return FSDP(net, mixed_precision=MixedPrecision(param_dtype=dtype))


        def is_sharded(model):
            return FSDP is not None and isinstance(model, FSDP)
        """,
        """
        try:
            from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
        except ImportError:
            FSDPModule = MixedPrecisionPolicy = fully_shard = None


        def wrap(net, dtype):
            if FSDPModule is None:
                raise RuntimeError("no FSDP")
            mp_policy = MixedPrecisionPolicy(param_dtype=dtype)
            return fully_shard(net, mp_policy=mp_policy)


        def is_sharded(model):
            return FSDPModule is not None and isinstance(model, FSDPModule)
        """,
    )


def test_guarded_imports_stay_guarded() -> None:
    check_transformed(
        """
        try:
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        except ImportError:
            FSDP = None

        import os


        def units(net):
            model = FSDP(net)
            return [module for module in model.modules() if isinstance(module, FSDP)]
        """,
        """
        try:
            from torch.distributed.fsdp import FSDPModule, fully_shard
        except ImportError:
            FSDPModule = fully_shard = None

        import os


        def units(net):
            model = fully_shard(net)
            return [module for module in model.modules() if isinstance(module, FSDPModule)]
        """,
    )


def test_module_that_the_top_imports_anyway_is_not_put_off() -> None:
    text = code(
        """
        import os


        def wrap(model, kwargs):
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            return FSDP(model, *kwargs)


        def step(net, kwargs):
            model = wrap(net, kwargs)
            with model.summon_full_params(model):
                net.run(model)
            return os.fspath(model.path)
        """
    )
    assert rewrite(text).text.startswith(
        "import os\n\nfrom fsdp2_support import shard_model, summon_full_params\n\n\ndef wrap"
    )


def test_file_that_puts_off_torch_still_does() -> None:
    text = code(
        """
        import functools
        import launcher


        def worker(rank, net):
            import torch
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import MixedPrecision, StateDictType
            from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

            mixed = MixedPrecision(param_dtype=torch.bfloat16)
            policy = functools.partial(size_based_auto_wrap_policy, min_num_params=7)
            model = FSDP(
                net, auto_wrap_policy=policy, mixed_precision=mixed, sync_module_states=rank, device_id=rank
            )
            model(rank).sum().backward()
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                torch.save(model.state_dict(), "model.pt")


        launcher.run(worker)
        """
    )
    after = rewrite(text).text
    assert "get_model_state_dict" in after
    assert after.startswith("from dataclasses import replace\nimport launcher\n\n\ndef worker")


def test_import_that_is_needed_outside_too_goes_to_the_top() -> None:
    check_transformed(
        """
        def wrap(model):
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            return FSDP(model)


        def rewrap(model):
            import torch.distributed.fsdp as fsdp

            return fsdp.FullyShardedDataParallel(model), fsdp
        """,
        """
        from torch.distributed.fsdp import fully_shard


        def wrap(model):
            return fully_shard(model)


        def rewrap(model):
            import torch.distributed.fsdp as fsdp

            return fully_shard(model), fsdp
        """,
    )


EMPTIED = [
    pytest.param(
        """
        import torch
        if torch.__version__ > "2":
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
        else:
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        scaler = ShardedGradScaler()
        model = FSDP(net)
        """,
        """
        import torch
        from torch.distributed.fsdp import fully_shard

        scaler = torch.amp.GradScaler()
        model = fully_shard(net)
        """,
        id="a scaler in a conditional import",
    ),
    pytest.param(
        """
        from typing import TYPE_CHECKING

        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        if TYPE_CHECKING:
            from torch.distributed.fsdp import MixedPrecision
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        model = FSDP(net)
        """,
        """
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(net)
        """,
        id="imports for type checkers",
    ),
    pytest.param(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def scaler():
            if ready():
                from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
                from torch.distributed.fsdp import MixedPrecision

        model = FSDP(net)
        """,
        """
        from torch.distributed.fsdp import fully_shard

        def scaler():
            if ready():
                pass

        model = fully_shard(net)
        """,
        id="a condition that does something",
    ),
]


@pytest.mark.parametrize(("before", "after"), EMPTIED)
def test_block_that_loses_all_its_imports(before: str, after: str) -> None:
    check_transformed(before, after)


def test_import_of_a_function_is_not_kept_by_another_ones_use() -> None:
    result = rewrite(
        code(
            """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            def scaler():
                from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
                return ShardedGradScaler()

            def other(model, ShardedGradScaler):
                return FSDP(model), ShardedGradScaler
            """
        )
    )
    assert "import ShardedGradScaler" not in result.text


EVALUATED = [
    pytest.param('eval(f"ShardingStrategy.{name}")', id="eval of an f-string"),
    pytest.param('eval("ShardingStrategy." + name)', id="eval of a sum"),
    pytest.param("eval(source)", id="eval of a name"),
    pytest.param('globals()["ShardingStrategy"][name]', id="globals"),
    pytest.param("getattr(ShardingStrategy, name)", id="getattr"),
]


@pytest.mark.parametrize("value", EVALUATED)
def test_name_in_a_string_that_is_evaluated_keeps_its_import(value: str) -> None:
    result = rewrite(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n\n"
        'source = "ShardingStrategy.FULL_SHARD"\n\n\n'
        f"def wrap(net, name):\n    return FSDP(net, *name, sharding_strategy={value})\n"
    )
    tree = ast.parse(result.text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert "ShardingStrategy" in imported
    assert value in result.text


def test_class_in_a_string_that_is_evaluated_is_reported() -> None:
    result = rewrite(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        'model = FSDP(net)\nother = eval("FSDP")(net)\n'
    )
    assert "FullyShardedDataParallel as FSDP" in result.text
    assert [(each.rule, each.line) for each in result.findings if each.level is Level.MANUAL] == [("FM109", 5)]


def test_annotation_in_quotes_becomes_that_of_a_module() -> None:
    result = rewrite(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        'def wrap(net) -> "FSDP":\n    return FSDP(net)\n'
    )
    assert "FullyShardedDataParallel" not in result.text
    assert "from torch import nn\n" in result.text
    assert 'def wrap(net) -> "nn.Module":' in result.text


def test_annotation_in_quotes_keeps_its_import() -> None:
    result = rewrite(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        'def wrap(net) -> "list[FSDP]":\n    return [FSDP(net)]\n'
    )
    assert "import FullyShardedDataParallel as FSDP" in result.text
    assert [each.level for each in result.findings] == [Level.REVIEW, Level.REWRITTEN]


def test_heading_of_imports_that_go_goes_too() -> None:
    text = """
        import torch

        # -- Policies
        from torch.distributed.fsdp.wrap import always_wrap_policy
        from torch.distributed.fsdp.api import ShardingStrategy

        # -- Model
        from net import Net
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        model = FSDP(Net(), sharding_strategy=ShardingStrategy.FULL_SHARD)
        """
    assert rewrite(code(text)).text.startswith("import torch\n\n# -- Model\nfrom net import Net\n")


WITHIN = """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    import torch.distributed as tdist
    import infinity.dist as dist

    model = FSDP(Net(), sync_module_states=True, device_id=dist.get_local_rank())
    """


def test_module_of_the_project_that_has_the_same_name() -> None:
    """`dist.broadcast` would be another function: what the file calls torch.distributed is used."""
    files = {
        "train.py": code(WITHIN),
        "infinity/__init__.py": "",
        "infinity/dist.py": "import torch.distributed as tdist\n\n\ndef get_local_rank():\n    return 0\n",
    }
    result = rewrite_files(files).after["train.py"]
    assert "    tdist.broadcast(tensor.detach(), src=0)\n" in result
    assert "import torch.distributed as dist" not in result


def test_module_of_the_project_is_all_that_has_the_name() -> None:
    files = {
        "train.py": code(WITHIN).replace("import torch.distributed as tdist\n", ""),
        "infinity/__init__.py": "",
        "infinity/dist.py": "def get_local_rank():\n    return 0\n",
    }
    result = rewrite_files(files).after["train.py"]
    assert "    fsdp2_dist.broadcast(tensor.detach(), src=0)\n" in result
    assert "import torch.distributed as fsdp2_dist\n" in result


def test_name_that_the_function_imports_itself_is_not_imported_again() -> None:
    text = """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy


        def wrap(model):
            from torch.distributed.device_mesh import init_device_mesh

            replicate = init_device_mesh("cuda", (2,))
            hybrid = {"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "auto_wrap_policy": ModuleWrapPolicy({Block})}
            return replicate, FSDP(model, **hybrid)
        """
    result = rewrite(code(text)).text
    assert result.count("import init_device_mesh") == 1
    assert "    from torch.distributed.device_mesh import init_device_mesh\n" in result


def test_two_ways_to_import_one_thing_are_one() -> None:
    before, after = (Tree(Path("train.py"), f"import torch\n\nx = {value}\n") for value in ("torch.nn", "nn"))
    written = tidy(before, after, [Import("torch.nn", alias="nn"), Import("torch", "nn")]).text()
    assert written == "from torch import nn\n\nx = nn\n"


def test_fully_shard_by_its_former_name_is_the_same() -> None:
    text = """
        from torch.distributed._composable.fsdp import fully_shard
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def wrap(model, other):
            {}
            return fully_shard(other)
        """
    expected = text.replace("        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n", "")
    check_transformed(text.format("FSDP(model)"), expected.format("fully_shard(model)"))


def test_a_file_that_does_without_torch_still_does() -> None:
    text = code(
        """
        import os

        try:
            import torch
            import torch.distributed as dist

            HAS_TORCH = True
        except ImportError:
            HAS_TORCH = False


        def save(model, path):
            torch.save(model.state_dict(), path)
        """
    )
    wrap = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from saving import save


        def main(net):
            save(FSDP(net), "model.pt")
        """
    )
    after = rewrite_files({"train.py": wrap, "saving.py": text}).after["saving.py"]
    block = after[after.index("try:") : after.index("except ImportError")]
    assert "model_state_dict" in after or "state_dict import" in after
    assert after.count("from torch.") == block.count("    from torch.") > 0
    assert "fsdp2_support" not in after.replace(block, "")


def test_what_a_guarded_statement_keeps_is_joined_by_what_is_new() -> None:
    """Nothing of torch is imported outside of the `try:`, under no form of the statement."""
    text = """
        try:
            import torch
            from torch.distributed.fsdp import (
                FullyShardedDataParallel as FSDP,
                ShardingStrategy,
            )
        except ImportError:
            torch = None


        def wrap(net, name):
            strategies = {"full": ShardingStrategy.FULL_SHARD, "none": ShardingStrategy.NO_SHARD}
            return FSDP(net, sharding_strategy=strategies.get(name, ShardingStrategy.FULL_SHARD) if name else read())
    """
    after = rewrite(code(text)).text
    block = after[after.index("try:") : after.index("except ImportError")]
    assert after.count("import torch") == block.count("import torch") > 1
    assert after.count("from torch") == block.count("from torch")
    assert block.count("from torch.distributed.fsdp import") == 1
    assert "fully_shard" in block


def test_a_module_under_two_names() -> None:
    """A support function in the file has `dist`, which the user's function has for something else."""
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def main(model, flag):
            dist = flag
            model = FSDP(model, sync_module_states=True)
            return dist, model.clip_grad_norm_(1.0, norm_type=flag)
    """
    assert "import torch.distributed as dist\nimport torch.distributed as fsdp2_dist\n" in rewrite(code(text)).text


@pytest.mark.parametrize("below", ["ShardingStrategy", "FullyShardedDataParallel, ShardingStrategy"])
def test_what_the_top_of_a_file_uses_is_imported_above_it(below: str) -> None:
    text = code(
        f"""
        import torch
        from torch.distributed.fsdp import MixedPrecision

        PRECISION = MixedPrecision(param_dtype=torch.bfloat16)

        from torch.distributed.fsdp import {below}


        def wrap(net):
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            return FSDP(net, mixed_precision=PRECISION)


        def strategy(name):
            return ShardingStrategy[name]
        """
    )
    naming = [line for line in rewrite(text).text.splitlines() if "MixedPrecisionPolicy" in line]
    assert [line.split()[0] for line in naming] == ["from", "PRECISION"]


GAPS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, path):
    model = FSDP(net)
    if path:{head}
        policy = None

        # Of all ranks.
        from torch.distributed.fsdp import StateDictType

        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = model.state_dict()
        torch.save(state, path)
"""


@pytest.mark.parametrize("head", ["", "  # where it is asked for"])
def test_no_gap_is_left_behind_what_goes(head: str) -> None:
    text = rewrite(GAPS.format(head=head)).text
    assert "        # Of all ranks.\n        state = " in text
    text = rewrite(GAPS.format(head=head).replace("        policy = None\n\n        # Of all ranks.\n", "")).text
    assert f"    if path:{head}\n        state = " in text
    wrapped = f"    if path:{head}\n        policy = ModuleWrapPolicy({{Block}})\n\n"
    wrapped += "        net = FSDP(net, auto_wrap_policy=policy)\n"
    imported = "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\nfrom net import Block\n"
    text = rewrite(imported + GAPS.split("    model")[0] + wrapped).text
    assert f"    if path:{head}\n        for module in net.modules():\n" in text


IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


@pytest.mark.parametrize(
    ("test", "is_gone"), [("NEW > 0", True), ("torch.cuda.is_available()", False)], ids=["asks nothing", "asks"]
)
def test_choice_between_imports_goes_with_both(test: str, is_gone: bool) -> None:
    old = "from torch.distributed.fsdp import CPUOffload"
    head = f"import torch\n{IMPORT}\nNEW = 1\nif {test}:\n    {old}\n\nelse:\n    {old} as Other\n"
    result = rewrite(f"{head}\n\ndef wrap(net):\n    return FSDP(net)\n")
    assert ("pass" not in result.text) is is_gone


def test_choice_between_imports_that_is_all_of_a_branch_leaves_a_pass() -> None:
    old = "from torch.distributed.fsdp import CPUOffload"
    inner = f"    if NEW > 1:\n        {old}\n    else:\n        {old} as Other\n"
    head = f"{IMPORT}\nNEW = 1\nif NEW > 0:\n{inner}else:\n    raise ImportError\n"
    result = rewrite(f"{head}\n\ndef wrap(net):\n    return FSDP(net)\n")
    assert "if NEW > 0:\n    pass\nelse:\n    raise ImportError\n" in result.text
