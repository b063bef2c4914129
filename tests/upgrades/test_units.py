"""`--reshard-after-forward` and `--prefetch`: what is said of a model, and what is written."""

from __future__ import annotations

import pytest

from tests.helpers import code
from tests.upgrades.upgraded import upgraded, upgraded_files

BOTH = {"reshard_after_forward": "8", "prefetch": "True"}
HEAD = "from torch.distributed.fsdp import fully_shard\n"


def program(text: str) -> str:
    return HEAD + code(text)


REFUSED = {
    "only the root": """
        def shard(model):
            fully_shard(model)
        """,
    "the root is one of the units": """
        def shard(model, units):
            for unit in units(model):
                fully_shard(unit)
        """,
    "FSDP1 is left": """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def shard(model):
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)
            return FSDP(model)
        """,
    "the support module decides": """
        from fsdp2_support import shard_model

        def shard(model, **kwargs):
            return shard_model(model, **kwargs)
        """,
}


def test_what_is_imported_of_fsdp1_stays_as_long_as_fsdp1_is_left() -> None:
    files = {
        "train.py": "from torch.distributed.fsdp.wrap import enable_wrap\nimport wrapping\n",
        "wrapping.py": "from torch.distributed.fsdp import FullyShardedDataParallel\n\n\n"
        "def wrap(model):\n    return FullyShardedDataParallel(model)\n",
    }
    result = upgraded_files(files, prefetch="True")
    assert dict(result.files) == files
    assert result.said.startswith("not upgraded: the program still wraps with FSDP1")


def test_a_function_of_the_program_that_is_called_shard_model() -> None:
    text = program(
        """
        def shard_model(model):
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)


        shard_model(Net())
        """
    )
    result = upgraded(text, reshard_after_forward="8")
    assert result.summary == [("FM601", "rewritten", 5)]


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("option", BOTH)
def test_what_is_not_upgraded_says_why(option: str, text: str) -> None:
    before = program(text)
    result = upgraded(before, **{option: BOTH[option]})
    assert result.text == before
    assert [finding.level.value for finding in result.findings] == ["manual"]
    assert result.said.startswith("not upgraded: ")
    assert all(finding.hint for finding in result.findings)


RUN_TIME = {
    "keywords of run time": "fully_shard(layer, **kwargs)",
    "a value of run time": "fully_shard(layer, reshard_after_forward=kwargs['keep'])",
}


@pytest.mark.parametrize("call", RUN_TIME.values(), ids=RUN_TIME)
def test_what_run_time_decides_is_not_replaced(call: str) -> None:
    before = program(
        f"""
        def shard(model, **kwargs):
            for layer in model.layers:
                {call}
            fully_shard(model)
        """
    )
    result = upgraded(before, reshard_after_forward="8")
    assert result.text == before
    assert result.summary == [("FM601", "manual", 4)]


WRITTEN = {
    "fully_shard(layer)": "fully_shard(layer, reshard_after_forward=8)",
    "fully_shard(layer, reshard_after_forward=False)": "fully_shard(layer, reshard_after_forward=8)",
    "fully_shard(layer, reshard_after_forward=8)": "fully_shard(layer, reshard_after_forward=8)",
    "fully_shard(layer, mesh=mesh)": "fully_shard(layer, mesh=mesh, reshard_after_forward=8)",
    "fully_shard(layer.inner)": "fully_shard(layer.inner, reshard_after_forward=8)",
}


@pytest.mark.parametrize(("call", "expected"), WRITTEN.items())
def test_units_are_resharded_and_the_root_is_not(call: str, expected: str) -> None:
    text = """
        def shard(model, mesh):
            fully_shard(model.tokens)
            for stage in model.stages:
                for layer in stage.layers:
                    CALL
            return fully_shard(model, mesh=mesh)
        """
    result = upgraded(program(text).replace("CALL", call), reshard_after_forward="8")
    tokens = "fully_shard(model.tokens, reshard_after_forward=8)"
    assert result.text == program(text).replace("CALL", expected).replace("fully_shard(model.tokens)", tokens)
    assert result.summary == [("FM601", "rewritten", 7)]


IN_SIGHT = {
    "without it": ("kwargs = {'mesh': mesh}", "**kwargs, reshard_after_forward=8"),
    "with it": ("kwargs = {'reshard_after_forward': False}", '**{**kwargs, "reshard_after_forward": 8}'),
    "with a call": ("kwargs = dict(reshard_after_forward=True)", '**{**kwargs, "reshard_after_forward": 8}'),
    "chosen": (
        "kwargs = {'a': {}, 'b': {'reshard_after_forward': False}}[mesh.kind]",
        '**{**kwargs, "reshard_after_forward": 8}',
    ),
    "put in below": (
        "kwargs = {}\n    kwargs['reshard_after_forward'] = False",
        '**{**kwargs, "reshard_after_forward": 8}',
    ),
    "the same": ("kwargs = {'reshard_after_forward': 8}", "**kwargs"),
}


@pytest.mark.parametrize(("made", "passed"), IN_SIGHT.values(), ids=IN_SIGHT)
def test_arguments_of_a_dict_in_sight(made: str, passed: str) -> None:
    text = f"""
        def shard(model, mesh):
            {made.replace(chr(10), chr(10) + " " * 8)}
            for layer in model.layers:
                fully_shard(layer, **kwargs)
            fully_shard(model, **kwargs)
        """
    before = program(text)
    result = upgraded(before, reshard_after_forward="8")
    assert result.text == before.replace("layer, **kwargs", f"layer, {passed}")
    assert {finding.level.value for finding in result.findings} <= {"rewritten"}


OUT_OF_SIGHT = {
    "a parameter": ("", "model, kwargs"),
    "a function": ("kwargs = settings()", "model"),
    "updated": ("kwargs = {}\n    kwargs.update(settings)", "model"),
    "by another name": ("kwargs = {name: value for name, value in settings}", "model"),
    "a key of run time": ("kwargs = {}\n    kwargs[settings] = False", "model"),
    "a value of run time": ("kwargs = {'reshard_after_forward': settings.keep}", "model"),
}


@pytest.mark.parametrize(("made", "parameters"), OUT_OF_SIGHT.values(), ids=OUT_OF_SIGHT)
def test_arguments_of_a_dict_out_of_sight(made: str, parameters: str) -> None:
    text = f"""
        def shard({parameters}):
            {(made or "pass").replace(chr(10), chr(10) + " " * 8)}
            for layer in model.layers:
                fully_shard(layer, **kwargs)
            fully_shard(model, **kwargs)
        """
    before = program(text)
    result = upgraded(before, reshard_after_forward="8")
    assert (result.text, result.said) == (before, "not upgraded: whether a unit is resharded is decided at run time")


def test_a_call_that_grows_too_long_is_broken() -> None:
    before = program(
        """
        def shard(model, the_mesh_of_the_ranks_of_a_node, the_policy):
            for layer in model.layers:
                fully_shard(layer, mesh=the_mesh_of_the_ranks_of_a_node, mp_policy=the_policy)
            fully_shard(model)
        """
    )
    result = upgraded(before, reshard_after_forward="8")
    arguments = ("layer", "mesh=the_mesh_of_the_ranks_of_a_node", "mp_policy=the_policy", "reshard_after_forward=8")
    broken = "".join(f"\n            {each}," for each in arguments)
    assert result.text == before.replace(", ".join(arguments[:-1]), f"{broken}\n        ")


def test_arguments_below_one_another() -> None:
    before = program(
        """
        def shard(model, mesh):
            for layer in model.layers:
                fully_shard(
                    layer,
                    mesh=mesh,  # of a node
                )
            fully_shard(model)
        """
    )
    result = upgraded(before, reshard_after_forward="2")
    expected = "mesh=mesh,  # of a node\n            reshard_after_forward=2,\n"
    assert result.text == before.replace("mesh=mesh,  # of a node\n", expected)


def test_what_is_returned_is_returned_behind_the_loop() -> None:
    before = program(
        """
        def shard(model):
            for module in model.modules():
                if isinstance(module, Block):
                    fully_shard(module)
            return fully_shard(model)
        """
    )
    result = upgraded(before, prefetch="True")
    assert result.text == (
        "from itertools import pairwise\n\n"
        + before.replace("import fully_shard", "import FSDPModule, fully_shard").replace(
            "    return fully_shard(model)\n",
            "    fully_shard(model)\n"
            "    units = [unit for unit in model.modules() if isinstance(unit, FSDPModule) and unit is not model]\n"
            "    for unit, following in pairwise(units):\n"
            "        unit.set_modules_to_forward_prefetch([following])\n"
            "        following.set_modules_to_backward_prefetch([unit])\n"
            "    return model\n",
        )
    )
    assert result.summary == [("FM602", "review", 6)]


def test_a_comprehension_that_is_too_long_is_broken() -> None:
    before = program(
        """
        def shard(the_model_that_is_trained, unit):
            for module in the_model_that_is_trained.modules():
                if isinstance(module, Block):
                    fully_shard(module)
            fully_shard(the_model_that_is_trained)
        """
    )
    assert upgraded(before, prefetch="True").text.endswith(
        "    units = [\n"
        "        sharded_unit\n"
        "        for sharded_unit in the_model_that_is_trained.modules()\n"
        "        if isinstance(sharded_unit, FSDPModule) and sharded_unit is not the_model_that_is_trained\n"
        "    ]\n"
        "    for sharded_unit, following in pairwise(units):\n"
        "        sharded_unit.set_modules_to_forward_prefetch([following])\n"
        "        following.set_modules_to_backward_prefetch([sharded_unit])\n"
    )


def test_names_of_the_function_are_not_taken() -> None:
    before = program(
        """
        class Trainer:
            def shard(self, units, unit):
                for layer in self.model.layers:
                    fully_shard(layer)
                self.model = fully_shard(self.model)
                return units, unit
        """
    )
    result = upgraded(before, prefetch="True")
    assert "for sharded_unit, following in pairwise(self.model.layers):\n" in result.text
    assert result.summary == [("FM602", "rewritten", 6)]


def test_a_model_that_is_sharded_in_several_ways_has_one_loop_no_more() -> None:
    before = program(
        """
        def shard(model, mesh):
            for layer in model.layers:
                fully_shard(layer)
            if mesh is None:
                fully_shard(model)
            else:
                fully_shard(model, mesh=mesh)
        """
    )
    result = upgraded(before, prefetch="True")
    assert result.text == before
    assert {finding.level.value for finding in result.findings} == {"manual"}


def test_two_models_and_another_file() -> None:
    files = {
        "train.py": "from parallel import shard\nfrom net import A, B\n\nshard(A(), B())\n",
        "net.py": "class A: ...\n\n\nclass B: ...\n",
        "parallel.py": program(
            """
            def shard(actor, critic):
                for layer in actor.layers:
                    fully_shard(layer)
                fully_shard(actor)
                fully_shard(critic)
            """
        ),
    }
    result = upgraded_files(files, reshard_after_forward="8")
    assert result.files["parallel.py"] == files["parallel.py"].replace("(layer)", "(layer, reshard_after_forward=8)")
    assert result.summary == [("FM601", "rewritten", 5), ("FM601", "manual", 6)]


def test_every_call_belongs_to_something_that_is_said() -> None:
    text = program(
        """
        model = fully_shard(Net())
        fully_shard(build())
        for part in parts():
            fully_shard(part)
        """
    )
    result = upgraded(text, reshard_after_forward="8")
    assert result.summary == [("FM601", "manual", 2), ("FM601", "manual", 3), ("FM601", "manual", 5)]
