"""FM101: where a constructor call can stand, and what is done with its result."""

from __future__ import annotations

import textwrap

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, check_transformed, code, rewrite, rewrite_files, run_files

BEFORE = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
AFTER = "from torch.distributed.fsdp import fully_shard\n\n\n"
POLICY_BEFORE = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n"
    "from net import Block\n\n\n"
)
POLICY_AFTER = "from torch.distributed.fsdp import fully_shard\n\nfrom net import Block\n\n\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty file"),
        pytest.param("from torch.nn import Module as FSDP\nmodel = FSDP()\n", id="another class called FSDP"),
        pytest.param("def FSDP(model):\n    return model\n\n\nmodel = FSDP(1)\n", id="a function called FSDP"),
        pytest.param(
            "from sharding.nn.data_parallel import FullyShardedDataParallel as FSDP\nmodel = FSDP(1)\n",
            id="the class of another library",
        ),
        pytest.param("from .torch.distributed.fsdp import FSDP\nmodel = FSDP(1)\n", id="a relative import"),
        pytest.param("from torch.distributed.fsdp import fully_shard\nfully_shard(model)\n", id="FSDP2 already"),
        pytest.param('"""FSDP(model) wraps with FullyShardedDataParallel."""\n', id="only in a docstring"),
        pytest.param("# model = FullyShardedDataParallel(model)\nmodel = 1\n", id="only in a comment"),
        pytest.param(
            "import torch.distributed.fsdp\ntorch.distributed.fsdp.fully_shard(model)\n", id="FSDP2 through the module"
        ),
        pytest.param(
            "from torch.nn.parallel import DistributedDataParallel\nm = DistributedDataParallel(m)\n", id="DDP"
        ),
    ],
)
def test_noop(text: str) -> None:
    check_noop(text)


CALLS = [
    pytest.param(
        """
        def wrap(model):
            model = FSDP(model)
            return model
        """,
        """
        def wrap(model):
            fully_shard(model)
            return model
        """,
        id="bound to the same name: in place, without an assignment",
    ),
    pytest.param(
        """
        def wrap(net):
            model = FSDP(net)
            return model
        """,
        """
        def wrap(net):
            model = fully_shard(net)
            return model
        """,
        id="bound to another name",
    ),
    pytest.param(
        """
        def wrap(net):
            return FSDP(module=net)
        """,
        """
        def wrap(net):
            return fully_shard(net)
        """,
        id="module by keyword",
    ),
    pytest.param(
        """
        class Trainer:
            def __init__(self, model):
                self.model = FSDP(model)
        """,
        """
        class Trainer:
            def __init__(self, model):
                self.model = fully_shard(model)
        """,
        id="attribute",
    ),
    pytest.param(
        """
        class Trainer:
            def wrap(self):
                self.model = FSDP(self.model)
        """,
        """
        class Trainer:
            def wrap(self):
                fully_shard(self.model)
        """,
        id="attribute of itself",
    ),
    pytest.param(
        """
        def wrap(net):
            FSDP(net)
        """,
        """
        def wrap(net):
            fully_shard(net)
        """,
        id="result not used",
    ),
    pytest.param(
        """
        def wrap(model, device):
            return FSDP(model.to(device)).train()
        """,
        """
        def wrap(model, device):
            return fully_shard(model.to(device)).train()
        """,
        id="chained calls",
    ),
    pytest.param(
        """
        def wrap(model, sharded):
            model = FSDP(model) if sharded else model
            return model
        """,
        """
        def wrap(model, sharded):
            model = fully_shard(model) if sharded else model
            return model
        """,
        id="conditional expression",
    ),
    pytest.param(
        """
        def wrap(model, optimizer):
            model, optimizer = FSDP(model), optimizer
            return model, optimizer
        """,
        """
        def wrap(model, optimizer):
            model, optimizer = fully_shard(model), optimizer
            return model, optimizer
        """,
        id="tuple assignment",
    ),
    pytest.param(
        """
        def wrap(net):
            model = self_model = FSDP(net)
            return model, self_model
        """,
        """
        def wrap(net):
            model = self_model = fully_shard(net)
            return model, self_model
        """,
        id="two targets",
    ),
    pytest.param(
        """
        def wrap(models):
            models["actor"] = FSDP(models["actor"])
        """,
        """
        def wrap(models):
            models["actor"] = fully_shard(models["actor"])
        """,
        id="item of a dict",
    ),
    pytest.param(
        """
        def wrap(a, b):
            return {"a": FSDP(a), "b": FSDP(b)}, [FSDP(c) for c in (a, b)]
        """,
        """
        def wrap(a, b):
            return {"a": fully_shard(a), "b": fully_shard(b)}, [fully_shard(c) for c in (a, b)]
        """,
        id="dict, list and comprehension",
    ),
    pytest.param(
        """
        def wrap(model):
            for name, child in model.named_children():
                setattr(model, name, FSDP(child))
            return FSDP(model)
        """,
        """
        def wrap(model):
            for name, child in model.named_children():
                fully_shard(child)
            return fully_shard(model)
        """,
        id="setattr in a loop",
    ),
    pytest.param(
        """
        def wrap(net):
            if (model := FSDP(net)) is not None:
                return model
        """,
        """
        def wrap(net):
            if (model := fully_shard(net)) is not None:
                return model
        """,
        id="walrus",
    ),
    pytest.param(
        """
        shard = lambda model: FSDP(model)
        """,
        """
        shard = lambda model: fully_shard(model)
        """,
        id="lambda",
    ),
    pytest.param(
        """
        class Trainer:
            model = FSDP(Net())
        """,
        """
        class Trainer:
            model = fully_shard(Net())
        """,
        id="class attribute",
    ),
    pytest.param(
        """
        def wrap(model):
            def inner():
                async def innermost():
                    nonlocal model
                    model = FSDP(model)
                return innermost
            return inner
        """,
        """
        def wrap(model):
            def inner():
                async def innermost():
                    nonlocal model
                    fully_shard(model)
                return innermost
            return inner
        """,
        id="nested functions",
    ),
    pytest.param(
        """
        def wrap(model):
            yield FSDP(model)
        """,
        """
        def wrap(model):
            yield fully_shard(model)
        """,
        id="yield",
    ),
    pytest.param(
        """
        def wrap(models):
            for model in models: yield FSDP(model)
            while FSDP(models): pass
            assert FSDP(models), "no model"
            del models[FSDP(models)]
            raise ValueError(FSDP(models))
        """,
        """
        def wrap(models):
            for model in models: yield fully_shard(model)
            while fully_shard(models): pass
            assert fully_shard(models), "no model"
            del models[fully_shard(models)]
            raise ValueError(fully_shard(models))
        """,
        id="in any other statement",
    ),
    pytest.param(
        """
        def wrap(model=FSDP(Net())):
            return f"{FSDP(model)}"
        """,
        """
        def wrap(model=fully_shard(Net())):
            return f"{fully_shard(model)}"
        """,
        id="default value and f-string",
    ),
    pytest.param(
        """
        def wrap(model):
            try:
                model = FSDP(model)
            except RuntimeError:
                model = None
            else:
                pass
            finally:
                print(model)
            return model
        """,
        """
        def wrap(model):
            try:
                fully_shard(model)
            except RuntimeError:
                model = None
            else:
                pass
            finally:
                print(model)
            return model
        """,
        id="try",
    ),
]


@pytest.mark.parametrize(("before", "after"), CALLS)
def test_call_becomes_one_call(before: str, after: str) -> None:
    check_transformed(BEFORE + code(before), AFTER + code(after))


LOOPS = [
    pytest.param(
        """
        def wrap(model):
            model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))
            return model
        """,
        """
        def wrap(model):
            for module in model.modules():
                if module is not model and isinstance(module, Block):
                    fully_shard(module)
            fully_shard(model)
            return model
        """,
        id="bound to the same name",
    ),
    pytest.param(
        """
        def wrap(net):
            model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
            return model
        """,
        """
        def wrap(net):
            for module in net.modules():
                if module is not net and isinstance(module, Block):
                    fully_shard(module)
            model = fully_shard(net)
            return model
        """,
        id="bound to another name",
    ),
    pytest.param(
        """
        def wrap(module):
            module = FSDP(module, auto_wrap_policy=ModuleWrapPolicy({Block}))
            return module
        """,
        """
        def wrap(module):
            for submodule in module.modules():
                if submodule is not module and isinstance(submodule, Block):
                    fully_shard(submodule)
            fully_shard(module)
            return module
        """,
        id="the model is called module",
    ),
    pytest.param(
        """
        def wrap(module, submodule):
            return FSDP(module, auto_wrap_policy=ModuleWrapPolicy({Block})), submodule
        """,
        """
        def wrap(module, submodule):
            for layer in module.modules():
                if layer is not module and isinstance(layer, Block):
                    fully_shard(layer)
            fully_shard(module)
            return module, submodule
        """,
        id="module and submodule are taken",
    ),
    pytest.param(
        """
        def wrap(models):
            for module in models:
                module = FSDP(module, auto_wrap_policy=ModuleWrapPolicy({Block}))
                module.train()
        """,
        """
        def wrap(models):
            for module in models:
                for submodule in module.modules():
                    if submodule is not module and isinstance(submodule, Block):
                        fully_shard(submodule)
                fully_shard(module)
                module.train()
        """,
        id="inside a loop over module",
    ),
    pytest.param(
        """
        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net.cuda(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        """,
        """
        class Trainer:
            def __init__(self, net):
                self.model = net.cuda()
                for module in self.model.modules():
                    if module is not self.model and isinstance(module, Block):
                        fully_shard(module)
                fully_shard(self.model)
        """,
        id="an expression that makes the model, bound to an attribute",
    ),
    pytest.param(
        """
        def wrap(prepare):
            return prepare(FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block})))
        """,
        """
        def wrap(prepare):
            model = Net()
            for module in model.modules():
                if isinstance(module, Block):
                    fully_shard(module)
            fully_shard(model)
            return prepare(model)
        """,
        id="inside another call",
    ),
    pytest.param(
        """
        def wrap(prepare, model):
            return prepare(model, FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block})))
        """,
        """
        def wrap(prepare, model):
            sharded_model = Net()
            for module in sharded_model.modules():
                if isinstance(module, Block):
                    fully_shard(module)
            fully_shard(sharded_model)
            return prepare(model, sharded_model)
        """,
        id="inside another call, and model is taken",
    ),
    pytest.param(
        """
        def wrap(model):
            # Shard it.
            model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))  # done
            # And go on.
            return model
        """,
        """
        def wrap(model):
            # Shard it.
            for module in model.modules():
                if module is not model and isinstance(module, Block):
                    fully_shard(module)
            fully_shard(model)  # done
            # And go on.
            return model
        """,
        id="comments around it",
    ),
]


@pytest.mark.parametrize(("before", "after"), LOOPS)
def test_call_with_a_policy_becomes_a_loop(before: str, after: str) -> None:
    net = "class Net:\n    pass\n\n\n" if "Net()" in before else ""
    check_transformed(POLICY_BEFORE + net + code(before), POLICY_AFTER + net + code(after))


IN_FUNCTION = {
    "return [SHARDED for model in models]": "return [shard(model) for model in models]",
    "return {k: SHARDED for k, model in models.items()}": "return {k: shard(model) for k, model in models.items()}",
    "return lambda model: SHARDED": "return lambda model: shard(model)",
    "return [SHARDED if sharded else model]": "return [shard(model) if sharded else model]",
    "model = sharded and SHARDED": "model = sharded and shard(model)",
}


@pytest.mark.parametrize("statement", IN_FUNCTION)
def test_what_cannot_stand_before_the_call_is_a_function(statement: str) -> None:
    call = "FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))"
    head = "def wrap(model, models, sharded):\n    "
    result = rewrite(f"{POLICY_BEFORE}{head}{statement.replace('SHARDED', call)}\n")
    function = """
        def shard(module):
            for submodule in module.modules():
                if submodule is not module and isinstance(submodule, Block):
                    fully_shard(submodule)
            return fully_shard(module)
        """
    assert textwrap.indent(code(function), "    ") in result.text.replace("\n\n", "\n")
    assert f"    {IN_FUNCTION[statement]}\n" in result.text
    assert not result.support


IN_ORDER = {
    "FSDP(block, UNITS) for block in net.blocks": "for block in net.blocks:\n",
    "FSDP(block, UNITS) for i, block in enumerate(net.blocks)": "for i, block in enumerate(net.blocks):\n",
    "FSDP(Outer(block), UNITS) for block in net.blocks": "ModuleList(shard(Outer(block)) for block in net.blocks)\n",
    "FSDP(block, UNITS) for block in reversed(net.blocks)": "(shard(block) for block in reversed(net.blocks))\n",
}


@pytest.mark.parametrize("layers", IN_ORDER)
def test_a_list_of_the_same_layers_becomes_a_loop(layers: str) -> None:
    made = layers.replace("UNITS", "auto_wrap_policy=ModuleWrapPolicy({Block})")
    body = f"from torch import nn\n\n\ndef wrap(net, Outer):\n    net.blocks = nn.ModuleList({made})\n    return net\n"
    assert IN_ORDER[layers] in rewrite(POLICY_BEFORE.rstrip() + "\n" + body).text


TOGETHER = {
    "a, b = FSDP(model, UNITS), FSDP(other, UNITS)": ("a, b = shard(model), shard(other)", 1),
    "return FSDP(model, UNITS), FSDP(other, UNITS)": ("return shard(model), shard(other)", 1),
    "a = {1: FSDP(model, UNITS), 2: FSDP(other, UNITS, ZERO2)}": ("a = {1: shard(model), 2: shard_module(other)}", 2),
    "a = [FSDP(m, UNITS) for m in models], FSDP(other, UNITS)": ("a = [shard(m) for m in models], shard(other)", 1),
}


@pytest.mark.parametrize("statement", TOGETHER)
def test_calls_of_one_statement_that_say_the_same_call_one_function(statement: str) -> None:
    becomes, functions = TOGETHER[statement]
    body = statement.replace("UNITS", "auto_wrap_policy=ModuleWrapPolicy({Block})")
    body = body.replace("ZERO2", "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP")
    head = "from torch.distributed.fsdp import ShardingStrategy\n"
    result = rewrite(f"{head}{POLICY_BEFORE}def wrap(model, models, other):\n    {body}\n")
    assert f"    {becomes}\n" in result.text
    assert result.text.count("    def shard") == functions
    assert not result.support


def test_calls_in_one_another_are_no_calls_beside_one_another() -> None:
    units = "auto_wrap_policy=ModuleWrapPolicy({Block})"
    body = f"def wrap(model, Outer):\n    return [FSDP(Outer(FSDP(model, {units})), {units})]\n"
    assert rewrite(POLICY_BEFORE + body).support == {"shard_model"}


def test_a_function_does_not_see_the_names_of_a_comprehension() -> None:
    call = "FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=device)"
    body = f"def wrap(pairs):\n    return [{call} for model, device in pairs]\n"
    assert rewrite(POLICY_BEFORE + body).support == {"shard_model"}


def test_a_dict_of_arguments_is_spelled_out_in_the_function() -> None:
    body = """
        def wrap(models):
            kwargs = dict(auto_wrap_policy=ModuleWrapPolicy({Block}), sync_module_states=False)
            return [FSDP(model, **kwargs) for model in models]
        """
    result = rewrite(POLICY_BEFORE + code(body))
    assert "    return [shard(model) for model in models]\n" in result.text
    assert "kwargs" not in result.text


PARTIAL = """
    shard = functools.partial(FSDP, limit_all_gathers=True)


    def options():
        return {"auto_wrap_policy": ModuleWrapPolicy({Block})}
    """


@pytest.mark.parametrize("call", ["shard(net, **options())", "shard(*nets)"])
def test_a_partial_that_is_given_a_dict_of_more_where_it_is_called(call: str) -> None:
    text = "import functools\n" + POLICY_BEFORE + code(PARTIAL) + f"\n\ndef wrap(net, nets):\n    return {call}\n"
    result = rewrite(text)
    is_seen = call == "shard(net, **options())"
    assert ("shard = functools.partial(shard_model, limit_all_gathers=True)\n" in result.text) is not is_seen
    assert ("    return fully_shard(net)\n" in result.text) is is_seen
    elsewhere = f"from train import options, shard\n\n\ndef wrap(net, nets):\n    return {call}\n"
    files = {"train.py": "import functools\n" + POLICY_BEFORE + code(PARTIAL), "wrapping.py": elsewhere}
    assert "shard = functools.partial(shard_model, limit_all_gathers=True)\n" in rewrite_files(files).after["train.py"]


def test_what_the_function_around_was_passed_on_is_read_above_it() -> None:
    body = """
        def wrap(models, **kwargs):
            return {name: FSDP(model, **kwargs) for name, model in models.items()}


        def main(models):
            return wrap(models, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        """
    result = rewrite(POLICY_BEFORE + code(body))
    assert "    return {name: shard(model) for name, model in models.items()}\n" in result.text
    assert '    policy = kwargs["auto_wrap_policy"]\n' in result.text
    assert not result.support


THROUGH_SUPPORT = [
    pytest.param(
        """
        def wrap(model):
            a = 1; model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block})); b = 2
            return model, a, b
        """,
        id="semicolons",
    ),
    pytest.param(
        """
        def wrap(net):
            if (model := FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}))) is not None:
                return model
        """,
        id="head of a compound statement",
    ),
]


def test_a_statement_behind_a_colon_becomes_a_block() -> None:
    units = "auto_wrap_policy=ModuleWrapPolicy({Block})"
    body = (
        f"def wrap(model, sharded):\n    if sharded: model = FSDP(model, {units})  # shard it\n"
        f"    else: model = DDP(model)\n    return model\n\n\ndef build(net): return FSDP(net, {units})\n"
        "\n\ndef whole(net): return FSDP(net)\n"
    )
    expected = """
        def wrap(model, sharded):
            if sharded:
                for module in model.modules():
                    if module is not model and isinstance(module, Block):
                        fully_shard(module)
                fully_shard(model)  # shard it
            else: model = DDP(model)
            return model


        def build(net):
            for module in net.modules():
                if module is not net and isinstance(module, Block):
                    fully_shard(module)
            return fully_shard(net)


        def whole(net): return fully_shard(net)
        """
    result = rewrite(POLICY_BEFORE + body)
    assert result.text.endswith(code(expected))
    assert result.support == set()


CHOICES = {
    "model = SHARDED if sharded else DDP(model)": """\
    if sharded:
        for module in model.modules():
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
    else:
        model = DDP(model)
""",
    "model = model if not sharded else SHARDED": """\
    if sharded:
        for module in model.modules():
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
""",
    "return DDP(model) if sharded else SHARDED": """\
    if sharded:
        return DDP(model)
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module)
    return fully_shard(model)
""",
    "whole: nn.Module = SHARDED if sharded else model": """\
    if sharded:
        for module in model.modules():
            if isinstance(module, Block):
                fully_shard(module)
        whole: nn.Module = fully_shard(model)
    else:
        whole = model
""",
}


@pytest.mark.parametrize("statement", CHOICES)
def test_what_a_conditional_expression_chooses_is_chosen_by_an_if(statement: str) -> None:
    call = "FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))"
    head = "def wrap(model, sharded):\n    "
    result = rewrite(f"{POLICY_BEFORE}{head}{statement.replace('SHARDED', call)}\n")
    found = result.text[result.text.index("def wrap") + len(head) - 4 :]
    assert found.replace("module is not model and ", "") == CHOICES[statement]


@pytest.mark.parametrize("before", THROUGH_SUPPORT)
def test_no_statement_can_stand_before_the_call(before: str) -> None:
    result = rewrite(POLICY_BEFORE + code(before))
    assert result.support == {"shard_model"}
    assert code(before).replace("FSDP(", "shard_model(") in result.text
    assert [level for _, level, _ in result.summary] == ["rewritten", "review"]
    assert "ModuleWrapPolicy of torch.distributed.fsdp stays in use" in result.findings[1].message


FACTORIES = [
    pytest.param("use_orig_params=True", "fully_shard", id="nothing is left"),
    pytest.param(
        "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP",
        "partial(fully_shard, reshard_after_forward=False)",
        id="some",
    ),
    pytest.param('device_mesh=mesh["dp"]', 'partial(fully_shard, mesh=mesh["dp"])', id="mesh"),
    pytest.param("device_id=torch.cuda.current_device()", "fully_shard", id="device"),
]


@pytest.mark.parametrize(("arguments", "after"), FACTORIES)
def test_partial_of_the_class(arguments: str, after: str) -> None:
    head = "from functools import partial\n\nimport torch\nfrom torch.distributed.fsdp import ShardingStrategy\n"
    result = rewrite(head + BEFORE + f"wrapper = partial(FSDP, {arguments})\nmodel = wrapper(net)\n")
    assert f"\n\n\nwrapper = {after}\nmodel = wrapper(net)\n" in result.text
    assert "FSDP" not in result.text


@pytest.mark.parametrize("arguments", ["mixed_precision=precision", "**kwargs"])
def test_partial_of_what_only_run_time_knows(arguments: str) -> None:
    use = f"def make(policy, precision, rank, strategy, kwargs):\n    return partial(FSDP, {arguments})\n"
    result = rewrite("from functools import partial\n\n" + BEFORE + use)
    assert f"    return partial(shard_model, {arguments})\n" in result.text
    assert result.support == {"shard_model"}


AS_FUNCTION = [
    pytest.param("device_id=rank", ["torch.cuda.set_device(rank)", "return fully_shard(model)"], id="device"),
    pytest.param(
        "sync_module_states=True",
        [
            "for tensor in (*model.parameters(), *model.buffers()):",
            "    dist.broadcast(tensor.detach(), src=0)",
            "return fully_shard(model)",
        ],
        id="ranks made equal",
    ),
    pytest.param(
        "auto_wrap_policy=ModuleWrapPolicy({Block})",
        [
            "for module in model.modules():",
            "    if module is not model and isinstance(module, Block):",
            "        fully_shard(module)",
            "return fully_shard(model)",
        ],
        id="policy",
    ),
]
STRATEGY_IMPORT = "from torch.distributed.fsdp import ShardingStrategy\n"
WITH_BLOCK = (
    "from functools import partial\n\nfrom net import Block\nfrom torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
)


@pytest.mark.parametrize(("arguments", "lines"), AS_FUNCTION)
def test_partial_that_needs_more_than_arguments_becomes_a_function(arguments: str, lines: list[str]) -> None:
    use = f"def make(rank):\n    return partial(FSDP, {arguments})\n"
    text = rewrite(WITH_BLOCK + BEFORE + use).text
    body = "".join(f"        {line}\n" for line in lines)
    assert text.endswith(f"def make(rank):\n    def shard(model):\n{body}\n    return shard\n")
    named = f"def make(rank):\n    wrapper = partial(FSDP, {arguments})\n    return wrapper\n"
    text = rewrite(WITH_BLOCK + BEFORE + named).text
    assert text.endswith(f"def make(rank):\n    def wrapper(model):\n{body}\n    return wrapper\n")


MORE = "auto_wrap_policy=ModuleWrapPolicy({Block})"


def test_partial_that_is_given_more_where_it_is_called() -> None:
    use = f"wrapper = partial(FSDP, device_mesh=make_mesh())\nmodel = wrapper(net, {MORE})\n"
    text = rewrite(WITH_BLOCK + BEFORE + use).text
    assert "        if module is not sharded_model and isinstance(module, Block):\n" in text
    assert text.endswith("\n\n\nmodel = wrapper(net)\n")
    text = rewrite(WITH_BLOCK + BEFORE + use + "other = wrapper(other)\n").text
    assert f"model = wrapper(net, {MORE})\n" in text
    assert "wrapper = partial(shard_model, device_mesh=make_mesh())\n" in text


CALLED = [
    pytest.param(
        f"wrapper = partial(FSDP, use_orig_params=True)\nmodel = wrapper(net, {MORE})\n",
        "for module in net.modules():\n    if module is not net and isinstance(module, Block):\n"
        "        fully_shard(module)\nmodel = fully_shard(net)\n",
        id="once",
    ),
    pytest.param(
        "wrapper = partial(FSDP, sharding_strategy=ShardingStrategy.FULL_SHARD)\n"
        "for i, block in enumerate(net.blocks):\n"
        "    net.blocks[i] = wrapper(block, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\n"
        "model = wrapper(net, use_orig_params=True)\n",
        "for i, block in enumerate(net.blocks):\n"
        "    net.blocks[i] = fully_shard(block, reshard_after_forward=False)\n"
        "model = fully_shard(net)\n",
        id="what a call says holds",
    ),
    pytest.param(
        "kwargs = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\nwrapper = partial(FSDP, **kwargs)\n"
        "net.head = wrapper(net.head)\nmodel = wrapper(net, use_orig_params=True)\n",
        "fully_shard(net.head, reshard_after_forward=False)\nmodel = fully_shard(net, reshard_after_forward=False)\n",
        id="a dict",
    ),
    pytest.param(
        "wrapper = partial(partial(FSDP, use_orig_params=True), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\n"
        "heads = [wrapper(head, forward_prefetch=True) for head in net.heads]\nmodel = wrapper(net)\n",
        "heads = [fully_shard(head, reshard_after_forward=False) for head in net.heads]\n"
        "model = fully_shard(net, reshard_after_forward=False)\n",
        id="a partial of one, in a comprehension",
    ),
]


@pytest.mark.parametrize(("before", "after"), CALLED)
def test_a_partial_is_written_out_where_its_calls_give_more(before: str, after: str) -> None:
    result = rewrite(WITH_BLOCK + STRATEGY_IMPORT + BEFORE + before)
    assert result.text.endswith("\n\n\n" + after)
    assert "partial" not in result.text


@pytest.mark.parametrize(
    "above",
    ["handed_on(wrapper)\n", "Block = other.Block\n", "wrapper = wrapper\n"],
    ids=["used in another way", "what it was given is bound again", "bound again"],
)
def test_a_partial_that_cannot_be_written_out(above: str) -> None:
    use = f"wrapper = partial(FSDP, {MORE})\n{above}net.head = wrapper(net.head, forward_prefetch=True)\n"
    assert "wrapper = partial(shard_model, " in rewrite(WITH_BLOCK + BEFORE + use).text


@pytest.mark.parametrize(
    "use",
    [
        "def make(rank):\n    wrapper = partial(FSDP, device_id=rank)\n    rank = 1\n    return wrapper\n",
        "def make(ranks):\n    for rank in ranks:\n        use = partial(FSDP, device_id=rank)\n    return use\n",
        "def make(rank):\n    return [partial(FSDP, device_id=rank)]\n",
        "def make(rank):\n    wrapper = partial(FSDP, device_id=rank)\n    return [partial(wrapper)]\n",
    ],
    ids=["bound again", "loop", "expression", "chain"],
)
def test_partial_whose_arguments_a_function_would_read_too_late(use: str) -> None:
    assert "partial(shard_model, device_id=rank)" in rewrite("from functools import partial\n\n" + BEFORE + use).text


def test_partial_stays_one_where_what_it_was_given_is_bound_again() -> None:
    use = "def make(mesh):\n    wrapper = partial(FSDP, device_mesh=mesh['dp'])\n    mesh = None\n    return wrapper\n"
    text = rewrite("from functools import partial\n\n" + BEFORE + use).text
    assert "    wrapper = partial(fully_shard, mesh=mesh['dp'])\n    mesh = None\n" in text


WRAPPER = "wrapper = partial(FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\n"
CHAINS = [
    pytest.param(
        WRAPPER + "half = partial(wrapper, device_mesh=mesh['dp'])\nwrapper(net.head)\nmodel = half(net)\n",
        "wrapper = partial(fully_shard, reshard_after_forward=False)\n"
        "half = partial(fully_shard, mesh=mesh['dp'], reshard_after_forward=False)\n"
        "wrapper(net.head)\nmodel = half(net)\n",
        id="both are called",
    ),
    pytest.param(
        WRAPPER + "half = partial(wrapper, sharding_strategy=ShardingStrategy.FULL_SHARD)\nmodel = half(net)\n",
        "half = fully_shard\nmodel = half(net)\n",
        id="the outer one holds",
    ),
    pytest.param(
        WRAPPER + "half = partial(wrapper, use_orig_params=True)\nquarter = partial(half, device_mesh=mesh['dp'])\n"
        "quarter(net)\n",
        "quarter = partial(fully_shard, mesh=mesh['dp'], reshard_after_forward=False)\nquarter(net)\n",
        id="three",
    ),
    pytest.param(
        "half = partial(partial(FSDP, use_orig_params=True), device_mesh=mesh['dp'])\nmodel = half(net)\n",
        "half = partial(fully_shard, mesh=mesh['dp'])\nmodel = half(net)\n",
        id="in one another",
    ),
    pytest.param(
        WRAPPER + "shard = partial(wrapper, device_id=rank)\nmodel = shard(net)\n",
        "def shard(sharded_model):\n    torch.cuda.set_device(rank)\n"
        "    return fully_shard(sharded_model, reshard_after_forward=False)\n\n\nmodel = shard(net)\n",
        id="a function",
    ),
    pytest.param(
        WRAPPER + "model = partial(wrapper, use_orig_params=True)(net)\n",
        "model = partial(fully_shard, reshard_after_forward=False)(net)\n",
        id="called at once",
    ),
]
CHAIN_HEAD = "from functools import partial\n\nimport torch\nfrom torch.distributed.fsdp import ShardingStrategy\n"


@pytest.mark.parametrize(("use", "after"), CHAINS)
def test_partial_of_a_partial_of_the_class(use: str, after: str) -> None:
    result = rewrite(CHAIN_HEAD + BEFORE + use)
    assert result.text.endswith("\n\n\n" + after)
    assert "\n\n\n\n" not in result.text
    assert not result.support


THROUGH_CHAIN = {
    "what is made once": (
        "wrapper = partial(FSDP, device_mesh=make_mesh())\nhalf = partial(wrapper, use_orig_params=True)\n"
    ),
    "what is bound again": (
        "wrapper = partial(FSDP, device_mesh=mesh['dp'])\nmesh = other\nhalf = partial(wrapper, use_orig_params=True)\n"
    ),
    "what is passed over": "wrapper = partial(FSDP, **kwargs)\nhalf = partial(wrapper, use_orig_params=True)\n",
    "more by a dict": "wrapper = partial(FSDP, use_orig_params=True)\nhalf = partial(wrapper, **kwargs)\n",
    "one of two": (
        "wrapper = partial(FSDP, use_orig_params=True)\nif rank:\n    wrapper = partial(FSDP)\n"
        "half = partial(wrapper, device_id=rank)\n"
    ),
}


@pytest.mark.parametrize("use", THROUGH_CHAIN.values(), ids=THROUGH_CHAIN)
def test_chain_of_partials_goes_one_way(use: str) -> None:
    result = rewrite(CHAIN_HEAD + BEFORE + use + "model = half(net)\n")
    assert result.text.endswith(use.replace("(FSDP", "(shard_model") + "model = half(net)\n")
    assert result.support == {"shard_model"}


@pytest.mark.parametrize(
    "use",
    [
        "wrapper = partial(FSDP, sync_module_states=True)\nnet.head = wrapper(net.head)\nmodel = wrapper(net)\n",
        "wrapper = partial(FSDP)\nnet.head = wrapper(net.head)\nmodel = FSDP(net, sync_module_states=True)\n",
        "blocks = list(map(FSDP, net.blocks))\nmodel = FSDP(net, sync_module_states=True)\n",
    ],
)
def test_parts_that_a_partial_wraps_are_not_sent_again(use: str) -> None:
    assert "if not isinstance(tensor, DTensor):" in rewrite(CHAIN_HEAD + BEFORE + use).text
    alone = "wrapper = partial(FSDP, sync_module_states=True)\nmodel = wrapper(net)\n"
    assert "DTensor" not in rewrite(CHAIN_HEAD + BEFORE + alone).text


def test_optimizer_above_a_call_of_a_partial_of_a_partial_moves_below_it() -> None:
    use = (
        WRAPPER + "half = partial(wrapper, use_orig_params=True)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nnet = half(net)\n"
    )
    text = rewrite(CHAIN_HEAD + BEFORE + "net = make()\n" + use).text
    assert text.endswith("net = half(net)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n")


ZERO_2 = "partial(FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)"
HELD = [
    pytest.param('KINDS = {{"fsdp": {}, "none": lambda m: m}}\n', 'KINDS["fsdp"]', id="table"),
    pytest.param("KINDS = dict(fsdp={})\n", "KINDS.get(kind)", id="dict"),
    pytest.param("class T:\n    wrap = staticmethod({})\n", "T.wrap", id="static method"),
    pytest.param("class T:\n    wrap = {}\n", "T().wrap", id="class"),
    pytest.param("class T:\n    def __init__(self):\n        self.wrap = {}\n", "T().wrap", id="object"),
    pytest.param("def run(wrap):\n    return wrap(net)\n\n\nrun({})\n", "", id="argument"),
    pytest.param("", "map", id="map"),
]
FROM = "from functools import partial\n\nfrom torch.distributed.fsdp import ShardingStrategy\n"


@pytest.mark.parametrize(("above", "used"), HELD)
def test_partial_that_is_called_with_the_model_alone_stays_one(above: str, used: str) -> None:
    use = f"model = {used}(net)\n" if used else ""
    use = f"layers = list(map({ZERO_2}, layers))\n" if used == "map" else use
    result = rewrite(FROM + BEFORE + above.format(ZERO_2) + use)
    partial = "partial(fully_shard, reshard_after_forward=False)"
    assert result.text.endswith((above.format(ZERO_2) + use).replace(ZERO_2, partial))
    assert not result.support


@pytest.mark.parametrize(("above", "used"), HELD[:-1])
def test_partial_that_may_be_given_more(above: str, used: str) -> None:
    above = above.replace("wrap(net)", "wrap(net, device_id=0)")
    for more in (", device_id=0", ", **kwargs", ", group"):
        result = rewrite(FROM + BEFORE + above.format(ZERO_2) + (f"model = {used}(net{more})\n" if used else ""))
        assert result.support == {"shard_model"}


def test_a_partial_of_a_class_becomes_no_method() -> None:
    """A function there would be given the object, and the model behind it."""
    text = "class T:\n    wrap = partial(FSDP, use_orig_params=True)\n\n\nT().wrap(net)\n"
    assert "    wrap = partial(fully_shard)\n" in rewrite(FROM + BEFORE + text).text
    static = text.replace("partial(FSDP, use_orig_params=True)", "staticmethod(partial(FSDP, use_orig_params=True))")
    assert "    wrap = staticmethod(fully_shard)\n" in rewrite(FROM + BEFORE + static).text


def test_the_class_in_a_map_is_fully_shard() -> None:
    assert (
        rewrite(BEFORE + "layers = list(map(FSDP, layers))\n").text
        == AFTER + "layers = list(map(fully_shard, layers))\n"
    )


@pytest.mark.parametrize(
    "held",
    [
        "class T:\n    def __init__(self, rank):\n        self.wrap = {}\n",
        "def run(rank):\n    kinds = dict(fsdp={})\n    return kinds['fsdp'](net)\n",
    ],
    ids=["object", "table"],
)
def test_partial_in_an_expression_that_needs_more_than_arguments(held: str) -> None:
    result = rewrite(FROM + BEFORE + held.format("partial(FSDP, device_id=rank)") + "T(0).wrap(net)\n")
    assert not result.support
    function = (
        "        def shard(model):\n            torch.cuda.set_device(rank)\n            return fully_shard(model)\n\n"
    )
    function = function if "class" in held else function.replace("\n    ", "\n")[4:]
    assert function + held.format("shard").split("\n")[-2 if "class" in held else 1] in result.text


@pytest.mark.parametrize(
    "held",
    [
        "class T:\n    wrap = staticmethod({})\n\n\nT.wrap(net)\n",
        "class T:\n    @classmethod\n    def make(cls, rank):\n        cls.wrap = {}\n\n\nT.wrap(net)\n",
        "class T:\n    def __init__(self, rank):\n        self.wrap = {}\n        rank += 1\n\n\nT(0).wrap(net)\n",
        "def run(rank):\n    return (lambda: dict(fsdp={}))()['fsdp'](net)\n",
    ],
    ids=["class", "class method", "bound again", "lambda"],
)
def test_no_function_stands_for_a_partial_where_it_would_mean_something_else(held: str) -> None:
    result = rewrite(FROM + BEFORE + held.format("partial(FSDP, device_id=rank)"))
    assert "partial(shard_model, device_id=rank)" in result.text


def test_a_function_does_not_read_an_attribute_that_the_program_sets_again() -> None:
    held = "class T:\n    def __init__(self, rank):\n        self.rank = rank\n        self.wrap = {}\n\n\n"
    held += "T(0).wrap(net)\n"
    given = "partial(FSDP, device_id=self.rank)"
    assert "return fully_shard(model)" in rewrite(FROM + BEFORE + held.format(given)).text
    again = rewrite(FROM + BEFORE + held.format(given) + "trainer.rank = 1\n")
    assert "partial(shard_model, device_id=self.rank)" in again.text


STARRED = """
    def shard(*args, **kwargs):
        return FSDP(*args, **kwargs)


    model = shard(net, use_orig_params=True)
"""


def test_one_value_that_is_handed_on_by_its_place_is_the_model() -> None:
    after = code(STARRED).replace("(*args, **kwargs):", "(module, **kwargs):")
    after = after.replace("return FSDP(*args, **kwargs)", "return fully_shard(module)")
    assert rewrite(BEFORE + code(STARRED)).text == AFTER + after


@pytest.mark.parametrize(
    "change",
    [
        ("shard(net, ", "shard(net, group, "),
        ("shard(net, ", "shard(*nets, "),
        ("shard(net, ", "shard(module=net, "),
        ("    return", "    print(args)\n        return"),
        ("    def shard", "    @cache\n    def shard"),
        ("    model = shard(", "    shards = [shard]\n    model = shard("),
    ],
    ids=["two values", "a list", "by name", "read elsewhere", "decorated", "kept"],
)
def test_several_values_that_are_handed_on_by_their_place(change: tuple[str, str]) -> None:
    assert change[0] in STARRED
    assert "    return shard_model(*args, **kwargs)\n" in rewrite(BEFORE + code(STARRED.replace(*change, 1))).text


@pytest.mark.parametrize(
    "arguments", ["**kwargs", "*arguments", "use_orig_params=True, **kwargs"], ids=["kwargs", "args", "both"]
)
def test_arguments_from_elsewhere(arguments: str) -> None:
    result = rewrite(BEFORE + f"def wrap(model, *arguments, **kwargs):\n    return FSDP(model, {arguments})\n")
    assert f"    return shard_model(model, {arguments})\n" in result.text
    assert result.support == {"shard_model"}


def test_all_other_text_stays() -> None:
    text = "x = {'a':1,\n  'b' : 2}   # odd layout\n\n\n\nmodel = FSDP( net )\ny = (1 ,2)\n"
    assert rewrite(BEFORE + text).text == AFTER + text.replace("FSDP( net )", "fully_shard(net)")


MARKED = [
    pytest.param("CLASS = FSDP\n", "FM109", 2, id="another name for the class"),
    pytest.param("WRAPPERS = {'fsdp': FSDP}\n", "FM109", 2, id="the class in a dict"),
    pytest.param("class Mine(FSDP):\n    pass\n", "FM108", 2, id="subclass"),
]


@pytest.mark.parametrize(("text", "rule", "line"), MARKED)
def test_class_as_a_value_is_left_to_a_person(text: str, rule: str, line: int) -> None:
    check_marked(BEFORE.strip() + "\n" + text, rule, Level.MANUAL, "FullyShardedDataParallel", line)


def test_settings_in_variables_go_with_the_last_call_that_took_them() -> None:
    result = rewrite(
        code(
            """
        from torch.distributed.fsdp import CPUOffload, ShardingStrategy, FullyShardedDataParallel as FSDP


        def shard(student, teacher):
            offload = CPUOffload(offload_params=True)
            strategy = ShardingStrategy.SHARD_GRAD_OP

            student = FSDP(student, cpu_offload=offload, sharding_strategy=strategy)
            teacher = FSDP(teacher, cpu_offload=offload)
            return student, teacher
        """
        )
    )
    assert "offload = CPUOffload(" not in result.text
    assert "strategy =" not in result.text


def test_model_that_is_wrapped_again() -> None:
    """It stays bound, and that `fully_shard` will raise is said."""
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    result = rewrite(f"{head}def wrap(encoder):\n    part = FSDP(encoder)\n    return FSDP(part)\n")
    assert result.text.endswith("    part = fully_shard(encoder)\n    return fully_shard(part)\n")
    first, second = result.findings
    assert first.level is Level.REWRITTEN
    assert second.level is Level.MANUAL
    assert "wrapped a second time" in second.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FSDP(FSDP(net))", "fully_shard(net, reshard_after_forward=True)"),
        (
            "FSDP(module=FSDP(net, use_orig_params=True), use_orig_params=True)",
            "fully_shard(net, reshard_after_forward=True)",
        ),
    ],
)
def test_wrapper_of_the_same_arguments_around_a_wrapper(before: str, after: str) -> None:
    """The unit around held no parameter, and `fully_shard` raises for a module that is sharded.

    It was the root, which FSDP1 does not free after forward; the inner one was freed.
    """
    result = rewrite(f"{BEFORE}def shard(net):\n    return {before}\n")
    assert result.text == f"{AFTER}def shard(net):\n    return {after}\n"


def test_wrapper_around_a_wrapper_that_frees_nothing() -> None:
    given = "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n\n"
    result = rewrite(f"{head}def shard(net):\n    return FSDP(FSDP(net, {given}), {given})\n")
    assert "    return fully_shard(net, reshard_after_forward=False)\n" in result.text


def test_wrap_around_wrap() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import enable_wrap, wrap


        def shard(net):
            with enable_wrap(wrapper_cls=FSDP):
                net.head = wrap(wrap(net.head))
                net.layers = list(wrap(wrap(layer)) if layer is not None else None for layer in net.layers)
            return FSDP(net)
    """
    result = rewrite(code(text))
    assert "net.head = fully_shard(net.head)\n" in result.text
    assert "list(fully_shard(layer) if layer is not None else None for layer in net.layers)" in result.text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_wrap_around_wrap_in_a_loop_with_statements_of_its_own() -> None:
    """open_flamingo: what is wrapped is the layer of the loop, whatever is put around it."""
    text = """
        from torch import nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import enable_wrap, wrap


        def shard(net):
            with enable_wrap(wrapper_cls=FSDP, sync_module_states=True):
                net.layers = nn.ModuleList(wrap(wrap(layer)) for layer in net.layers)
    """
    result = rewrite(code(text))
    assert "    for layer in net.layers:\n        for tensor in" in result.text
    assert not result.support


def test_wrapper_of_other_arguments_around_a_wrapper() -> None:
    result = rewrite(f"{BEFORE}def shard(net, policy, mesh):\n    return FSDP(FSDP(net), device_mesh=mesh)\n")
    assert ["wrapped a second time" in f.message for f in result.findings if f.level is Level.MANUAL] == [True]


def test_model_that_one_of_two_ways_wraps_is_wrapped_once() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    branches = "    if deep:\n        model = FSDP(model)\n    else:\n        model = FSDP(model)\n    return model\n"
    result = rewrite(f"{head}def wrap(model, deep):\n{branches}")
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_setting_that_is_used_elsewhere_stays() -> None:
    result = rewrite(
        code(
            """
        from torch.distributed.fsdp import ShardingStrategy, FullyShardedDataParallel as FSDP


        def shard(model):
            strategy = ShardingStrategy.SHARD_GRAD_OP
            print(strategy)
            return FSDP(model, sharding_strategy=strategy)
        """
        )
    )
    assert "strategy = ShardingStrategy.SHARD_GRAD_OP" in result.text


def test_setting_of_another_file_stays() -> None:
    settings = "from torch.distributed.fsdp import CPUOffload\n\noffload = CPUOffload(offload_params=True)\n"
    train = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nfrom settings import offload\n\n"
    result = rewrite_files({"settings.py": settings, "train.py": train + "model = FSDP(net, cpu_offload=offload)\n"})
    assert "offload = CPUOffload(" in result.after["settings.py"]


NEXT = "\n        "


def test_what_units_and_root_share_is_computed_once_where_a_call_is_long() -> None:
    arguments = (
        "net, auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(param_dtype=config.dtype), "
        "cpu_offload=CPUOffload(offload_params=config.offload_parameters)"
    )
    head = (
        "from torch.distributed.fsdp import CPUOffload, MixedPrecision, FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\nfrom net import Block\n\n\n"
    )
    text = rewrite(f"{head}def wrap(net, config):\n    return FSDP({arguments})\n").text
    offload = "CPUOffloadPolicy() if config.offload_parameters else OffloadPolicy()"
    assert f"    offload_policy = {offload}\n    for module in " in text
    assert text.count(offload) == 1
    assert "fully_shard(module, mp_policy=block_mp_policy, offload_policy=offload_policy)\n" in text
    long = arguments.replace("config.offload", "config.of_what_is_left_of_the_memory_of_this_machine.offload")
    text = rewrite(f"{head}def wrap(net, config):\n    return FSDP({long})\n").text
    offload = offload.replace("config.offload", "config.of_what_is_left_of_the_memory_of_this_machine.offload")
    first, _, other = offload.partition(" else ")
    value = f"{first.replace(' if ', NEXT + 'if ')}{NEXT}else {other}"
    assert f"    offload_policy = ({NEXT}{value}\n    )\n    for module in " in text


def test_value_of_several_lines_keeps_them() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    init = "lambda unit: unit.to_empty(device='cuda')\n        if config.meta else None"
    text = rewrite(
        f"{head}def wrap(net, config):\n    return FSDP(\n        net,\n        param_init_fn={init},\n    )\n"
    ).text
    assert f"    init_fn = {' '.join(init.split())}\n" in text


HOLDER = (
    "from torch import nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n\n"
    "def wrap(lora, Part):\n    parts = nn.ModuleDict()\n    parts['a'] = lora\n"
)


def test_container_as_root_goes_through_the_support_module() -> None:
    """`fully_shard` refuses a module without a forward; FSDP1's root had nothing to gather there."""
    result = rewrite(
        HOLDER.replace("from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n", "") + "    return FSDP(parts)\n"
    )
    assert "shard_model(parts)" in result.text
    assert "a container without a forward" in result.findings[0].message


@pytest.mark.parametrize("other", ["Net(config)", "config.make()", "given"])
def test_what_may_be_another_model_than_a_container_has_a_root(other: str) -> None:
    """Without one it would train unsharded, and `fully_shard` refuses the container, so that nothing is silent."""
    result = rewrite(
        "from torch import nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n\n"
        "def build(config, given, Part):\n    if config.pipeline:\n        model = nn.ModuleList([Part(), Part()])\n"
        f"    else:\n        model = {other}\n    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy([Part]))\n"
    )
    assert result.text.endswith("    return fully_shard(model)\n")
    assert "which FSDP1 took" in result.findings[0].message


LOOP = (
    "    mp_policy = MixedPrecisionPolicy(param_dtype=dtype)\n"
    "    for module in parts.modules():\n        if isinstance(module, Part):\n"
    "            fully_shard(module, mp_policy=mp_policy)\n"
)


@pytest.mark.parametrize(
    ("start", "end"), [("return ", "    return parts\n"), ("parts = ", ""), ("whole = ", "    whole = parts\n")]
)
def test_container_with_a_policy_has_units_and_no_root(start: str, end: str) -> None:
    """Nobody calls the container, so that each unit is a root, and casts its inputs."""
    given = "ModuleWrapPolicy([Part]), mixed_precision=MixedPrecision(param_dtype=dtype)"
    head = HOLDER.replace("import Fully", "import MixedPrecision, Fully").replace("Part):", "Part, dtype):")
    result = rewrite(f"{head}    {start}FSDP(parts, auto_wrap_policy={given})\n")
    assert result.text.endswith(f"    parts['a'] = lora\n{LOOP}{end}")
    assert "what it holds beside them is not" in result.findings[0].message


@pytest.mark.parametrize("policy", ["", ", auto_wrap_policy=ModuleWrapPolicy([Part])"])
def test_container_that_is_given_a_forward_keeps_its_root(policy: str) -> None:
    """Its root trained what lies beside the units: without one that would train unsharded, and torch raises for one."""
    head = HOLDER.replace("Part):", "Part, step):")
    result = rewrite(f"{head}    parts.forward = step\n    parts = FSDP(parts{policy})\n    return parts\n")
    assert "    fully_shard(parts)\n" in result.text
    found = [finding for finding in result.findings if finding.level is Level.MANUAL]
    assert ["is given a forward" in finding.message for finding in found] == [True]


def test_a_class_in_tabs_goes_on_in_tabs() -> None:
    """In a file whose other blocks have spaces."""
    text = (
        "from torch import nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n\n"
        "def rank_of(args):\n    return args.rank\n\n\n"
        "class Trainer:\n\tdef wrap(self, model):\n"
        "\t\tself.model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))\n"
    )
    result = rewrite(text)
    assert (
        "\t\t\tif module is not model and isinstance(module, nn.Linear):\n\t\t\t\tfully_shard(module)\n" in result.text
    )


UNKNOWN = [
    pytest.param("FSDP(net, use_orig_params=True, post_param_init_fn=init)", id="a keyword"),
    pytest.param("FSDP(net, post_param_init_fn=init, **settings(net))", id="a keyword beside what is not seen"),
    pytest.param("FSDP(net, **dict(use_orig_params=True, post_param_init_fn=init))", id="of a dict"),
]


@pytest.mark.parametrize("call", UNKNOWN)
def test_an_argument_that_is_none_of_fsdp1s_leaves_the_call(call: str) -> None:
    """A changed FSDP takes it (SageMaker's does), and dropping it, or handing it on, would train otherwise or raise."""
    text = BEFORE + f"def build(net, other, init, settings):\n    model = {call}\n    return model, FSDP(other)\n"
    result = rewrite(text)
    assert f"    model = {call}\n" in result.text
    assert "fully_shard(other)" in result.text
    found = [finding for finding in result.findings if finding.level is Level.MANUAL]
    assert "post_param_init_fn, which torch's FSDP does not take" in found[0].message
    assert [finding.line for finding in found] == [found[0].line]
    assert result.text.index("raise NotImplementedError") < result.text.index(call)


def test_an_argument_and_a_policy_of_torch_1_11() -> None:
    header = BEFORE + "from torch.distributed.fsdp.wrap import default_auto_wrap_policy\n\n\n"
    text = rewrite(
        header + "def build(net):\n    return FSDP(net, fsdp_auto_wrap_policy=default_auto_wrap_policy)\n"
    ).text
    assert (
        "    for unit in units_by_size(net, int(1e8), whole=nn.MultiheadAttention):\n        fully_shard(unit)\n"
        in text
    )
    assert "default_auto_wrap_policy" not in text
    text = rewrite(
        BEFORE + "def build(net, opts):\n    return FSDP(net, *opts.fsdp, fsdp_auto_wrap_policy=opts.policy)\n"
    ).text
    assert "shard_model(net, *opts.fsdp, auto_wrap_policy=opts.policy)\n" in text


def test_the_former_name_of_an_argument_is_told() -> None:
    """In a dict it is left to a person."""
    result = rewrite(BEFORE + "def build(net, policy):\n    return FSDP(net, **dict(fsdp_auto_wrap_policy=policy))\n")
    (found,) = result.findings
    assert found.level is Level.MANUAL
    assert found.hint == "fsdp_auto_wrap_policy has been auto_wrap_policy since torch 1.12"


MISSPELT = """\
from functools import partial

import torch.distributed.fsdp as fsdp

from net import Block


def build(net, model):
    settings = {"sharding_strategy": fsdp.ShardingStrategy.FULL_SHARD}
    settings["auto_wrap_policy"] = partial(fsdp.wrap._module_wrap_policy, module_classes={Block})
    settings["use_cpu_offload"] = True
    model = fsdp.FullyShardedDataParallel(net, **settings)
    return model.state_dict()
"""


def test_a_misspelt_argument_is_told_and_what_waits_for_the_call_once() -> None:
    result = rewrite(MISSPELT)
    assert result.text == MISSPELT
    waits, call = (each for each in dict.fromkeys((f.rule, f.message, f.hint) for f in result.findings))
    assert (call[0], "use_cpu_offload" in call[1]) == ("FM101", True)
    assert call[2].startswith("write cpu_offload if that is meant; else ")
    assert (waits[0], waits[2]) == ("FM100", "mend the constructor call that is left as it is, then run again")
    mended = rewrite(MISSPELT.replace('settings["use_cpu_offload"] = True', 'settings["cpu_offload"] = None'))
    assert "isinstance(module, Block):\n" in mended.text


def test_no_gap_below_a_docstring_where_a_statement_went() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n\n"
    body = "    full = ShardingStrategy.FULL_SHARD\n\n    print(net)\n    return FSDP(net, sharding_strategy=full)\n"
    for doc in ('"""Shards."""', '"""Shards.\n\n    All: of it.\n    """'):
        text = rewrite(f"{head}def shard(net):\n    {doc}\n{body}").text
        assert text.endswith(f"def shard(net):\n    {doc}\n    print(net)\n    return fully_shard(net)\n")
        kept = rewrite(f"{head}def shard(net):\n    text = {doc}\n{body}").text
        assert kept.endswith(f"    text = {doc}\n\n    print(net)\n    return fully_shard(net)\n")


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        ("mixed_precision=MixedPrecision(param_dtype=x)", "self.net = model = fully_shard(model, mp_policy=mp_policy)"),
        ("param_init_fn=x.init, mixed_precision=MixedPrecision(buffer_dtype=x)", "self.net = model"),
    ],
)
def test_bound_to_two_names_of_which_one_is_the_model(arguments: str, after: str) -> None:
    """`self.net = model = model` stood there (LLM-QAT)."""
    head = BEFORE.replace("\n\n\n", ", MixedPrecision\n\n\n") + "class Trainer:\n    def wrap(self, model, x):\n"
    assert rewrite(f"{head}        self.net = model = FSDP(model, {arguments})\n").text.endswith(f"        {after}\n")


def test_a_program_of_which_no_call_can_be_rewritten_stays_beside_another() -> None:
    """Its other files became FSDP2's, around a call that raises."""
    saves = "import torch\n\n\ndef clip(model):\n    model.clip_grad_norm_(1.0)\n    return model.state_dict()\n"
    files = {
        "one/clip.py": saves,
        "one/train.py": MISSPELT + "\n\nfrom clip import clip\n\nclip(build(None, None))\n",
        "two/train.py": MISSPELT.replace("use_cpu_offload", "forward_prefetch"),
    }
    result = run_files(files)
    assert {path for path in files if result.after[path] == files[path]} == {"one/clip.py", "one/train.py"}
    told = "FSDP1 stays as it is here, as long as no constructor call of the program can be rewritten"
    assert told in {finding.message for finding in result.findings}
