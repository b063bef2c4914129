"""FM105: the class in `isinstance`, `case` and annotations."""

from __future__ import annotations

from textwrap import indent

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, check_transformed, code, flat, rewrite, rewrite_files

HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
AFTER = "from torch.distributed.fsdp import FSDPModule, fully_shard\n\n\n"
WRAP = "\n\n\ndef wrap(net):\n    return {}(net)\n"

NOOP = [
    "from torch.distributed.fsdp import FSDPModule\nisinstance(model, FSDPModule)\n",
    "from sharding.nn import FullyShardedDataParallel as FSDP\nisinstance(model, FSDP)\n",
    "isinstance(model, FSDP)\n",
    "from torch.nn.parallel import DistributedDataParallel as FSDP\nisinstance(model, (FSDP, int))\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


CASES = [
    "isinstance(model, {})",
    "isinstance(model, (int, {}))",
    "isinstance(model, ({}, int)) or issubclass(type(model), {})",
    "[m for m in model.modules() if isinstance(m, {})]",
    "(lambda m: isinstance(m, {}))",
    "any(isinstance(m, {}) for m in model)",
    "not isinstance(model.module, {})",
    "isinstance(model, {} | int)",
    "isinstance(model, int | {})",
    "case.assertIsInstance(model, {})",
    "case.assertNotIsInstance(model, (int, {}), 'wrapped')",
]


@pytest.mark.parametrize("test", CASES)
def test_class_test(test: str) -> None:
    text = "def ask(model):\n    return " + test
    check_transformed(
        HEAD + text.replace("{}", "FSDP") + WRAP.format("FSDP"),
        AFTER + text.replace("{}", "FSDPModule") + WRAP.format("fully_shard"),
    )


ANNOTATIONS = [
    "def ask(model: {}) -> {}:\n    return model",
    "def ask(model: Optional[{}], *models: {}, **more: List[{}]):\n    return model",
    "def ask(model: {} | None = None, other: Union[int, {}] = 1):\n    return model",
    "class PrewrapReference:\n    model: {}\n    models: dict[str, list[{}]]",
    "model: {} = None",
    "Named = Annotated[{}, 'sharded']",
]


@pytest.mark.parametrize("text", ANNOTATIONS)
def test_annotation(text: str) -> None:
    typing = "import torch.nn as nn\nfrom typing import Annotated, List, Optional, Union\n\n"
    after = AFTER.replace("FSDPModule, ", "")
    check_transformed(
        typing + HEAD + text.replace("{}", "FSDP") + WRAP.format("FSDP"),
        typing + after + text.replace("{}", "nn.Module") + WRAP.format("fully_shard"),
    )


OWN_WORDS = [
    ("def ask(net: torch.nn.Module, model: FSDP): ...", "def ask(net: torch.nn.Module, model: torch.nn.Module): ..."),
    ("def ask(m: DDP | FSDP | torch.nn.Module): ...", "def ask(m: DDP | torch.nn.Module): ..."),
    ("def ask(m: list[FSDP | torch.nn.Module]): ...", "def ask(m: list[torch.nn.Module]): ..."),
    ("def ask(model: Union[torch.nn.Module, FSDP]): ...", "def ask(model: torch.nn.Module): ..."),
    ("def ask(model: FSDP | torch.nn.Module): ...", "def ask(model: torch.nn.Module): ..."),
    (
        "def ask(m: Union[torch.nn.Module, FSDP, int]): ...",
        "def ask(m: Union[torch.nn.Module, int]): ...",
    ),
]


@pytest.mark.parametrize(("before", "expected"), OWN_WORDS)
def test_annotation_in_the_words_of_the_file(before: str, expected: str) -> None:
    head = "from typing import Union\n\nimport torch\n"
    result = rewrite(head + HEAD + before + WRAP.format("FSDP"))
    assert expected in result.text
    assert "torch.nn as nn" not in result.text


def test_annotation_of_what_a_unit_alone_has() -> None:
    """`nn.Module` has no `set_requires_gradient_sync`; the class itself is asked for by its name."""
    text = (
        "def step(model: {}, kind: type[{}]) -> None:\n    with model.no_sync():\n        model(1).sum().backward()\n"
    )
    result = rewrite(HEAD + text.replace("{}", "FSDP") + WRAP.format("FSDP"))
    assert "def step(model: FSDPModule, kind: type[FSDPModule]) -> None:\n" in result.text


def test_annotation_of_a_result_alone() -> None:
    """Nobody checks types there: it says that what comes back is sharded."""
    result = rewrite(HEAD + "def ask(model, rank=0) -> FSDP:\n    return model" + WRAP.format("FSDP"))
    assert "def ask(model, rank=0) -> FSDPModule:\n" in result.text


def test_annotation_needs_an_import() -> None:
    result = rewrite(HEAD + "def ask(model: FSDP) -> FSDP:\n    return model" + WRAP.format("FSDP"))
    assert "def ask(model: nn.Module) -> nn.Module:\n" in result.text


def test_case() -> None:
    text = (
        "def ask(model):\n    match model:\n"
        "        case {}():\n            return 1\n        case _:\n            return 2"
    )
    check_transformed(
        HEAD + text.replace("{}", "FSDP") + WRAP.format("FSDP"),
        AFTER + text.replace("{}", "FSDPModule") + WRAP.format("fully_shard"),
    )


def test_tuple_of_classes_in_a_constant() -> None:
    text = "KINDS = ({}, int)\n\n\ndef ask(model):\n    return isinstance(model, KINDS)"
    check_transformed(
        HEAD + text.replace("{}", "FSDP") + WRAP.format("FSDP"),
        AFTER + text.replace("{}", "FSDPModule") + WRAP.format("fully_shard"),
    )


@pytest.mark.parametrize(
    "name",
    [
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "fsdp.FullyShardedDataParallel",
        "mod.FullyShardedDataParallel",
    ],
)
def test_class_named_through_a_module(name: str) -> None:
    imports = (
        "import torch.distributed.fsdp\n"
        "from torch.distributed import fsdp\n"
        "import torch.distributed.fsdp.fully_sharded_data_parallel as mod\n"
    )
    result = rewrite(imports + f"model = {name}(net)\nassert isinstance(model, {name})\n")
    assert "model = fully_shard(net)\nassert isinstance(model, FSDPModule)\n" in result.text


def test_class_of_the_users_own_called_like_the_new_one() -> None:
    text = "class FSDPModule:\n    pass\n\n\ndef ask(model):\n    return isinstance(model, {})"
    result = rewrite(HEAD + text.format("FSDP") + WRAP.format("FSDP"))
    assert "    return isinstance(model, fsdp2_FSDPModule)\n" in result.text
    assert "import FSDPModule as fsdp2_FSDPModule\nfrom torch.distributed.fsdp import fully_shard\n" in result.text


def test_class_of_mixed_precision_goes_with_its_objects() -> None:
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


        def wrap(net):
            mp = MixedPrecision(param_dtype=torch.bfloat16)
            assert isinstance(mp, MixedPrecision)
            return FSDP(net, mixed_precision=mp)
        """
    )
    assert "    assert isinstance(mp, MixedPrecisionPolicy)\n" in rewrite(text).text


def test_annotation_of_a_precision_that_fsdp2_code_reads_as_it_is() -> None:
    text = code(
        """
        from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, fully_shard


        def wrap(net, mp: MixedPrecision):
            for block in net.blocks:
                fully_shard(block)
            return fully_shard(net, mp_policy=MixedPrecisionPolicy(param_dtype=mp.param_dtype))
        """
    )
    result = rewrite(text)
    assert result.text == text
    assert "FM105" not in {rule for rule, _, _ in result.summary}


def test_file_that_only_asks_waits_for_the_one_that_wraps() -> None:
    text = HEAD + "def ask(model):\n    return isinstance(model, FSDP)\n"
    result = check_marked(text, "FM105", Level.MANUAL, "not rewritten")
    assert result.text == text
    assert "script that wraps the model" in result.findings[0].hint


EXCLUSIONS = {
    "check_fn=lambda m: getattr(m, 'ckpt', False) and not isinstance(m, FSDP) and not isinstance(m, Other)": (
        "check_fn=lambda m: getattr(m, 'ckpt', False) and not isinstance(m, Other)"
    ),
    "check_fn=lambda m: not isinstance(m, FSDP) and isinstance(m, Block)": "check_fn=lambda m: isinstance(m, Block)",
    "keep=[m for m in model.modules() if isinstance(m, Block) and not isinstance(m, FSDP)]": (
        "keep=[m for m in model.modules() if isinstance(m, Block)]"
    ),
    "keep=[m for m in model.modules() if isinstance(m, nn.Module) and not isinstance(m, FSDP)]": (
        "keep=[m for m in model.modules() if isinstance(m, nn.Module) and not isinstance(m, FSDPModule)]"
    ),
    "keep=[m for m in model.modules() if isinstance(n, Block) and not isinstance(m, FSDP)]": (
        "keep=[m for m in model.modules() if isinstance(n, Block) and not isinstance(m, FSDPModule)]"
    ),
    "keep=lambda m: m.fits and not isinstance(m, FSDP)": "keep=lambda m: m.fits and not isinstance(m, FSDPModule)",
}


@pytest.mark.parametrize("before", EXCLUSIONS)
def test_wrapper_that_was_left_out_is_no_object_of_its_own(before: str) -> None:
    """Under FSDP1 the wrapper and the layer were two objects; the test would now leave the layer out."""
    head = "from torch import nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    result = rewrite(
        f"{head}def main(net, Block, Other, n, apply):\n    model = FSDP(net)\n    apply(model, {before})\n"
    )
    assert f"    apply(model, {EXCLUSIONS[before]})\n" in flat(result.text)


CHECK_FUNCTION = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net):
    model = FSDP(net)

    def check(module):
        {}
        return hasattr(module, "ckpt")

    apply_activation_checkpointing({})
"""


@pytest.mark.parametrize("given", ["model, check_fn=check", "model, print, check"])
def test_check_function_no_longer_leaves_the_layers_out(given: str) -> None:
    """It left out FSDP1's wrappers; each sharded layer is an FSDPModule now, and none would be checkpointed."""
    after = rewrite(code(CHECK_FUNCTION.format("if isinstance(module, FSDP):\n            return False", given))).text
    assert '    def check(module):\n        return hasattr(module, "ckpt")\n' in after


def test_check_function_with_one_condition() -> None:
    text = CHECK_FUNCTION.format("print(module)", "model, check_fn=check")
    text = text.replace('hasattr(module, "ckpt")', 'hasattr(module, "ckpt") and not isinstance(module, FSDP)')
    assert '        return hasattr(module, "ckpt")\n' in rewrite(code(text)).text


def test_other_functions_still_ask() -> None:
    text = CHECK_FUNCTION.format(
        "if isinstance(module, FSDP):\n            return False", "model, print, check_fn=print"
    )
    assert "if isinstance(module, FSDPModule):\n            return False\n" in rewrite(code(text)).text


TAKEN_OFF = """
    def inner(mod):
        {} isinstance(mod, FSDP):
            mod = mod.{}
        return mod


    def main(net):
        return inner(FSDP(net))
"""


@pytest.mark.parametrize("word", ["while", "if"])
@pytest.mark.parametrize("attribute", ["module", "_fsdp_wrapped_module"])
def test_nothing_takes_a_wrapper_off_that_is_not_there(word: str, attribute: str) -> None:
    """A loop from wrapper to wrapper would not end: the model is its own inner model."""
    header = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    result = rewrite(header + code(TAKEN_OFF.format(word, attribute)))
    assert "def inner(mod):\n    return mod\n" in result.text


def test_loop_from_wrapper_to_wrapper_asks_once() -> None:
    text = """
        def depth(mod):
            found = 0
            while isinstance(mod, FSDP):
                found += 1
                mod = mod.module
            return found


        def main(net):
            return depth(FSDP(net))
        """
    header = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    assert "    if isinstance(mod, FSDPModule):\n        found += 1\n" in rewrite(header + code(text)).text
    broken = code(text).replace("found += 1", "if found:\n            break")
    result = rewrite(header + broken)
    assert "    while isinstance(mod, FSDP):\n" in result.text
    assert Level.MANUAL in {each.level for each in result.findings}


BESIDE = [
    pytest.param(
        """
        if isinstance(model, FSDPModule):
            return model.one()
        elif isinstance(model, FSDP):
            return model.module.two()
        else:
            return model.three()
        """,
        """
        if isinstance(model, FSDPModule):
            return model.one()
        else:
            return model.three()
        """,
        id="elif",
    ),
    pytest.param(
        """
        if isinstance(model, FSDP):
            return model.module.two()
        elif isinstance(model, FSDPModule):
            return model.one()
        return model.three()
        """,
        """
        if isinstance(model, FSDPModule):
            return model.one()
        return model.three()
        """,
        id="first",
    ),
    pytest.param(
        """
        if not model:
            return None
        elif isinstance(model, FSDPModule):
            return model.one()
        elif isinstance(model, FSDP):
            return model.module.two()
        """,
        """
        if not model:
            return None
        elif isinstance(model, FSDPModule):
            return model.one()
        """,
        id="last",
    ),
    pytest.param(
        """
        match model:
            case FSDPModule():
                return model.one()
            case FSDP():
                return model.module.two()
            case _:
                return model.three()
        """,
        """
        match model:
            case FSDPModule():
                return model.one()
            case _:
                return model.three()
        """,
        id="case",
    ),
    pytest.param(
        "return isinstance(model, (FSDP, FSDPModule))\n", "return isinstance(model, FSDPModule)\n", id="tuple"
    ),
]


@pytest.mark.parametrize(("before", "after"), BESIDE)
def test_a_way_of_fsdp1_beside_one_of_fsdp2_goes(before: str, after: str) -> None:
    head = "from torch.distributed.fsdp import FSDPModule, {}\n\n\ndef use(model):\n"
    wrap = "\n\n\ndef main(net):\n    return use({}(net))\n"
    result = rewrite(
        head.format("FullyShardedDataParallel as FSDP") + indent(code(before), "    ").rstrip() + wrap.format("FSDP")
    )
    assert result.text == head.format("fully_shard") + indent(code(after), "    ").rstrip() + wrap.format("fully_shard")
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_a_way_of_fsdp1_beside_one_of_another_model_stays() -> None:
    text = """
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP


        def use(model, other):
            if isinstance(other, FSDPModule):
                return other.one()
            elif isinstance(model, FSDP):
                return model.two()


        def main(net):
            return use(FSDP(net), None)
        """
    assert "    elif isinstance(model, FSDPModule):\n        return model.two()\n" in rewrite(code(text)).text


OF_FSDP2 = {
    "made by fully_shard": (
        """
        from shard import shard
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def sample(net):
            model = shard(net)
            is_fsdp = isinstance(model, FSDP)
            assert isinstance(model, (Net, FSDP))
            return is_fsdp
        """,
        """
        from shard import shard


        def sample(net):
            model = shard(net)
            is_fsdp = False
            assert isinstance(model, Net)
            return is_fsdp
        """,
    ),
    "asked beside others": (
        """
        from shard import shard
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def sample(net):
            model = shard(net)
            if (
                model.is_leaf
                or isinstance(model, FSDP)
                or model.is_last
            ):
                return True
            if not (isinstance(model, FSDP) or model.is_leaf):
                return model
            return model.name or isinstance(model, FSDP)
        """,
        """
        from shard import shard


        def sample(net):
            model = shard(net)
            if (
                model.is_leaf
                or model.is_last
            ):
                return True
            if not (model.is_leaf):
                return model
            return model.name or False
        """,
    ),
    "asked for FSDP2's class beside it": (
        """
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, model):
                self.model = model

            def step(self):
                if isinstance(self.model, FSDPModule):
                    self.model.set_is_last_backward(True)

            def clip(self, norm):
                if isinstance(self.model, FSDP):
                    return self.model.clip_grad_norm_(norm)
                return clip_dtensors(self.model, norm)
        """,
        """
        from torch.distributed.fsdp import FSDPModule


        class Trainer:
            def __init__(self, model):
                self.model = model

            def step(self):
                if isinstance(self.model, FSDPModule):
                    self.model.set_is_last_backward(True)

            def clip(self, norm):
                return clip_dtensors(self.model, norm)
        """,
    ),
}
SHARD = "from torch.distributed.fsdp import fully_shard\n\n\ndef shard(net):\n    return fully_shard(net)\n"
OLD = HEAD + "import use\n\n\ndef old(net):\n    return FSDP(net)\n"


@pytest.mark.parametrize(("before", "after"), OF_FSDP2.values(), ids=OF_FSDP2)
def test_a_model_of_the_programs_own_fsdp2_stays_out_of_what_is_for_fsdp1(before: str, after: str) -> None:
    result = rewrite_files({"use.py": code(before), "shard.py": SHARD, "old.py": OLD})
    assert "return fully_shard(net)" in result.after["old.py"]
    assert result.after["use.py"].strip() == code(after).strip()
    assert ("FM105", Level.REVIEW) in {(f.rule, f.level) for f in result.report.findings if f.path.name == "use.py"}


def test_more_than_a_look_inside_is_done_for_fsdp_too() -> None:
    """Asked of DDP alone, what the branch does beside would be left out for FSDP2 without a word."""
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn.parallel import DistributedDataParallel as DDP


        def tell(model):
            if isinstance(model, (DDP, FSDP)):
                print(model.module.width)


        def main(net):
            tell(FSDP(net))
            tell(DDP(net))
    """
    assert "    if isinstance(model, (DDP, FSDPModule)):\n" in rewrite(code(text)).text


LIBRARY = {
    "callbacks.py": """
        from engine.core import State
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def save(state: State, path):
            if isinstance(state.model.inner, FSDP):
                print(path)
    """,
    "test_callbacks.py": """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        import callbacks


        def test_save(model):
            model.inner = FSDP(model.inner)
            callbacks.save(model, "x")
    """,
}


def levels_of(files: dict[str, str]) -> set[Level]:
    result = rewrite_files({name: code(text) for name, text in files.items()})
    return {each.level for each in result.findings if each.rule == "FM105" and each.path.name == "callbacks.py"}


def test_a_model_that_a_library_wraps_needs_a_person() -> None:
    """A test's own constructor call says nothing of it."""
    assert levels_of(LIBRARY) == {Level.MANUAL}


def test_a_model_of_the_programs_own_objects_or_one_that_it_may_wrap_does_not() -> None:
    text = LIBRARY["callbacks.py"]
    own = text.replace("from engine.core import State", "class State:\n            pass\n\n")
    wraps = text.replace("print(path)", "state.model.inner = FSDP(path)")
    elsewhere = {**LIBRARY, "train.py": LIBRARY["test_callbacks.py"]}
    for files in ({**LIBRARY, "callbacks.py": own}, {**LIBRARY, "callbacks.py": wraps}, elsewhere):
        assert levels_of(files) == {Level.REWRITTEN}


@pytest.mark.parametrize(
    ("asked", "named"), [("", "Union[DDP, nn.Module]"), ("isinstance(net, Wrapped)", "Union[DDP, FSDP]")]
)
def test_a_type_that_is_given_a_name_is_an_annotation(asked: str, named: str) -> None:
    text = (
        "from typing import Union\nfrom torch import nn\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nWrapped = Union[DDP, FSDP]\n\n\n"
        f"def build(net: nn.Module) -> Wrapped:\n    print({asked})\n    return FSDP(net)\n"
    )
    assert f"Wrapped = {named}\n" in rewrite(text).text


def test_a_loop_inward_keeps_its_own_brackets_alone() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def unwrap(module):
            while (
                isinstance(module, DMP)
                or isinstance(module, DDP)
                or isinstance(module, FSDP)
            ):
                module = module.module
            return module
        """
    result = rewrite(code(text) + "\n\ndef main(net):\n    return unwrap(FSDP(net))\n")
    assert "    while (\n        isinstance(module, DMP)\n        or isinstance(module, DDP)\n    ):\n" in result.text
