"""FM101: `auto_wrap_policy`, and which modules become units."""

from __future__ import annotations

from textwrap import indent

import pytest

from codemods.api import Level

from ..helpers import Result, check_transformed, code, contract, rewrite, rewrite_files

IMPORTS = """\
from functools import partial

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    _or_policy,
    always_wrap_policy,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

from net import Block, Head
"""
PARTIAL = "from functools import partial\n\n"
AFTER = "from torch.distributed.fsdp import fully_shard\n\nfrom net import Block, Head\n"
WITH_NN = "from torch import nn\n" + AFTER
LOOP = """

def wrap(model):
    for module in {modules}:
        if module is not model and {test}:
            fully_shard(module)
    return fully_shard(model)
"""


def imports(policy: str) -> str:
    """The imports of a program with this policy: nothing that was unused before is taken away."""
    return IMPORTS if "partial" in policy else IMPORTS.removeprefix(PARTIAL)


def test_no_policy_and_none_are_one_unit() -> None:
    for policy in ("", ", auto_wrap_policy=None", ", None, None, None, None"):
        before = IMPORTS.removeprefix(PARTIAL) + f"\n\ndef wrap(model):\n    return FSDP(model{policy})\n"
        check_transformed(before, AFTER + "\n\ndef wrap(model):\n    return fully_shard(model)\n")


def test_a_policy_that_is_called_is_said_to_have_raised() -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy\n\n\n"
        "def wrap(net):\n    policy = size_based_auto_wrap_policy(min_num_params=1e6)\n"
        "    return FSDP(net, auto_wrap_policy=policy)\n"
    )
    result = rewrite(text)
    assert "units_by_size(net, 1e6, whole=nn.MultiheadAttention)" in result.text
    assert any("FSDP1 raised" in each.message and each.level is Level.REVIEW for each in result.findings)
    partial = text.replace("size_based_auto_wrap_policy(min", "partial(size_based_auto_wrap_policy, min")
    result = rewrite(f"from functools import partial\n{partial}")
    assert not any("FSDP1 raised" in each.message for each in result.findings)


def test_model_without_a_policy_is_said_to_be_one_unit() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nfrom net import Net\n\n"
    result = rewrite(head + "model = FSDP(Net())\n")
    (found,) = result.findings
    assert found.level is Level.REWRITTEN
    assert "without a policy the whole model is one unit, as it was under FSDP1" in found.message
    (advice,) = contract(result.text).findings
    assert (advice.rule, advice.level) == ("FM501", Level.REVIEW), "which `check` does not fail for"
    by_hand = rewrite(head + "model = Net()\nmodel.head = FSDP(model.head)\nmodel = FSDP(model)\n")
    assert not any("one unit" in finding.message for finding in by_hand.findings)


ONE_CLASS = [
    "ModuleWrapPolicy({Block})",
    "ModuleWrapPolicy([Block])",
    "ModuleWrapPolicy((Block,))",
    "ModuleWrapPolicy(module_classes={Block})",
    "partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})",
    "partial(transformer_auto_wrap_policy, transformer_layer_cls=(Block,))",
]


@pytest.mark.parametrize("policy", ONE_CLASS)
def test_one_class_needs_no_order(policy: str) -> None:
    check_transformed(
        imports(policy) + f"\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy={policy})\n",
        AFTER + LOOP.format(modules="model.modules()", test="isinstance(module, Block)"),
    )


CHILDREN_FIRST = "reversed(list(model.modules()))"


def test_comments_inside_the_call_stand_above_what_replaces_it() -> None:
    before = (
        IMPORTS.removeprefix(PARTIAL)
        + """

def wrap(model):
    return FSDP(
        model,  # the root
        # One unit a block.
        auto_wrap_policy=ModuleWrapPolicy(
            {
                Block,
            }
        ),
    )
"""
    )
    loop = LOOP.format(modules="model.modules()", test="isinstance(module, Block)")
    comments = "    # the root\n    # One unit a block.\n"
    check_transformed(before, AFTER + loop.replace("    for ", comments + "    for "))


SETTINGS_ABOVE = """

def wrap(model):
    # settings
    prefetch = BackwardPrefetch.BACKWARD_PRE  # the fastest

    # no offload
    offload = CPUOffload(offload_params=False)

    # for both
    strategy = ShardingStrategy.FULL_SHARD
    print("wrapping")
    return FSDP(
        model,
        # blocks
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        # overlap
        backward_prefetch=prefetch,  # with the backward
        # enough memory
        # everywhere
        cpu_offload=offload,
        # the first
        sharding_strategy=strategy,
        # names
        use_orig_params=True,
        # speed, and
        # what is kept
        limit_all_gathers=True,
        mixed_precision=MixedPrecision(),  # full
        sync_module_states=False,  # loaded by all
        # process_group = None,  # of the world
        # not yet
        param_init_fn=None,
    )
"""


def test_a_comment_on_what_comes_into_a_dict_of_arguments_stays() -> None:
    text = code(
        """
        from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy


        def wrap(net, strategy, offload, block, dtype):
            return FSDP(
                net,
                sharding_strategy=strategy,
                auto_wrap_policy=ModuleWrapPolicy({block}),
                mixed_precision=MixedPrecision(param_dtype=dtype, cast_forward_inputs=True),
                # Weights live on the CPU.
                cpu_offload=CPUOffload(offload_params=True) if offload else None,
            )
        """
    )
    assert "    # Weights live on the CPU.\n" in rewrite(text).text


def test_comments_on_what_is_gone_go_with_it() -> None:
    head = IMPORTS.removeprefix(PARTIAL).replace(
        "import Full", "import BackwardPrefetch, CPUOffload, MixedPrecision, ShardingStrategy, Full"
    )
    text = rewrite(head + SETTINGS_ABOVE).text
    comments = [line.split("#")[1].strip() for line in text.splitlines() if "#" in line]
    own = "Inputs are cast at the root only."
    assert comments == ["for both", "speed, and", "what is kept", "full", own, "blocks"]
    assert "def wrap(model):\n    # for both\n    print(" in text
    assert "    # full\n    mp_policy = " in text  # each above what its argument has become
    assert "    # blocks\n    for module in model.modules():\n" in text


def test_an_argument_that_is_commented_out_goes_with_all_its_lines() -> None:
    switched_off = "# mixed_precision=MixedPrecision(\n        #     torch.float16,\n        # ),\n        # small\n"
    call = f"FSDP(\n        model,\n        {switched_off}        device_id=0,\n    )"
    text = rewrite(f"{IMPORTS}def wrap(model):\n    return {call}\n").text
    assert [line.strip() for line in text.splitlines() if "#" in line] == ["# small"]


_ALL = "module, recurse, nonwrapped_numel"
NESTED = [
    pytest.param("ModuleWrapPolicy({Block, Head})", "isinstance(module, (Block, Head))", id="two classes"),
    pytest.param(
        "partial(transformer_auto_wrap_policy, transformer_layer_cls={Block, Head})",
        "isinstance(module, (Block, Head))",
        id="two classes in a partial",
    ),
    pytest.param(
        "partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Block))",
        "isinstance(module, Block)",
        id="lambda",
    ),
    pytest.param("partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in layers)", "module in layers", id="item"),
    pytest.param(
        'partial(lambda_auto_wrap_policy, lambda_fn=lambda m: getattr(m, "weight", None) is not None and leaf(m))',
        '(getattr(module, "weight", None) is not None and leaf(module))',
        id="what has a weight",
    ),
    pytest.param(
        "CustomPolicy(lambda m: isinstance(m, (Block, Head)))", "isinstance(module, (Block, Head))", id="custom"
    ),
    pytest.param("CustomPolicy(lambda_fn=lambda m: m is model.head)", "module is model.head", id="custom, by name"),
    pytest.param(
        "partial(_or_policy, policies=[ModuleWrapPolicy({Block}), "
        "partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m is model.head)])",
        "(isinstance(module, Block) or module is model.head)",
        id="or",
    ),
]


OTHERWISE = [
    "transformer_auto_wrap_policy(module, True, nonwrapped_numel, {Block})",
    "transformer_auto_wrap_policy(model, recurse, nonwrapped_numel, {Block})",
    f"transformer_auto_wrap_policy({_ALL}, {{Block}}) or recurse",
]


@pytest.mark.parametrize("body", OTHERWISE)
def test_a_lambda_that_passes_something_else_on_is_asked_at_run_time(body: str) -> None:
    text = rewrite(
        IMPORTS + f"\n\ndef wrap(model):\n    return FSDP(model, None, None, None, lambda {_ALL}: {body})\n"
    ).text
    assert "isinstance(module, Block)" not in text


def test_a_policy_that_another_call_asks_at_run_time_is_asked_by_both() -> None:
    text = """
        from plugins import other_policy


        def make_policy(block):
            leaves = partial(lambda_auto_wrap_policy, lambda_fn=lambda module: not list(module.children()))
            blocks = partial(transformer_auto_wrap_policy, transformer_layer_cls={block})
            return partial(_or_policy, policies=[leaves, blocks])


        def pretrain(model):
            return FSDP(model, auto_wrap_policy=make_policy(Block))


        def finetune(model, args):
            policy = make_policy(Block)
            return FSDP(model, auto_wrap_policy=policy if args.peft else other_policy())
        """
    assert rewrite(IMPORTS + code(text)).support == {"policy_units"}


def test_a_lambda_that_passes_classes_on() -> None:
    policy = f"lambda {_ALL}: transformer_auto_wrap_policy({_ALL}, {{Block, Head}})"
    text = rewrite(IMPORTS + f"\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy={policy})\n").text
    assert "if submodule is not model and isinstance(submodule, (Block, Head)):" in text
    assert "lambda module" not in text


def test_a_lambda_that_passes_a_size_on() -> None:
    policy = f"lambda {_ALL}: size_based_auto_wrap_policy({_ALL}, min_num_params=50)"
    text = rewrite(IMPORTS + f"\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy={policy})\n").text
    assert "units_by_size(model, 50, whole=nn.MultiheadAttention)" in text


HANDING_ON = f"""
    from net import Net


    def policy({_ALL}):
        \"\"\"Only the blocks.\"\"\"
        # not the head
        return transformer_auto_wrap_policy({_ALL}, transformer_layer_cls={{Block}})


    def wrap(args):
        net = Net()
        return FSDP(net, auto_wrap_policy=policy)
"""


def test_a_function_that_passes_classes_on_goes_with_its_last_use() -> None:
    assert rewrite(IMPORTS + code(HANDING_ON)).text.endswith(
        code(
            """
            def wrap(args):
                net = Net()
                # not the head
                for module in net.modules():
                    if isinstance(module, Block):
                        fully_shard(module)
                return fully_shard(net)
            """
        )
    )


def test_a_function_that_passes_its_own_size_on() -> None:
    policy = f"def policy({_ALL}, size=50):\n    return size_based_auto_wrap_policy({_ALL}, min_num_params=size)\n"
    text = rewrite(f"{IMPORTS}{policy}\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy=policy)\n").text
    assert "units_by_size(model, 50, whole=nn.MultiheadAttention)" in text
    assert "def policy" not in text


OTHER_FUNCTIONS = {
    "it does more": ("        return", "        print(module)\n        return"),
    "a decorator": ("    def policy", "    @cache\n    def policy"),
    "other classes each time": ("{Block}", "set(classes())"),
    "another answer to whether to look inside": (f"policy({_ALL}, tr", "policy(module, True, nonwrapped_numel, tr"),
    "a name that is another one at the call": ("net = Net()", "Block, net = args.block, Net()"),
}


@pytest.mark.parametrize("change", OTHER_FUNCTIONS.values(), ids=OTHER_FUNCTIONS)
def test_a_function_that_passes_something_else_on_is_asked_at_run_time(change: tuple[str, str]) -> None:
    assert change[0] in HANDING_ON
    text = rewrite(IMPORTS + code(HANDING_ON.replace(*change))).text
    assert "def policy" in text
    assert "isinstance(module" not in text.partition("def wrap")[2].replace("isinstance(module, (nn.", "")


def test_a_function_that_passes_classes_on_stays_where_something_else_asks_it() -> None:
    text = rewrite(IMPORTS + code(HANDING_ON + "\n\n    print(policy(Block(), False, 0))\n")).text
    assert "def policy" in text
    assert "isinstance(module, Block):" in text


def test_a_function_of_another_file_that_passes_classes_on_is_asked_in_the_loop() -> None:
    above, below = code(HANDING_ON).split("\n\n\ndef wrap")
    files = {
        "policies.py": IMPORTS + above + "\n",
        "train.py": f"{IMPORTS}from policies import policy\n\n\ndef wrap{below}",
    }
    result = rewrite_files(files)
    assert "and policy(module, recurse=False, nonwrapped_numel=0):\n" in result.after["train.py"]
    assert not result.support


@pytest.mark.parametrize(("policy", "test"), NESTED)
def test_units_that_may_nest_go_children_first(policy: str, test: str) -> None:
    check_transformed(
        imports(policy) + f"\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy={policy})\n",
        AFTER + LOOP.format(modules=CHILDREN_FIRST, test=test),
    )


def test_a_list_that_the_model_itself_holds_is_looped_over() -> None:
    policy = "partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.layers)"
    check_transformed(
        imports(policy) + f"\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy={policy})\n",
        AFTER
        + "\n\ndef wrap(model):\n    for block in model.layers:\n"
        + "        fully_shard(block)\n    return fully_shard(model)\n",
    )


NO_CONTAINERS = "not isinstance(module, (nn.ModuleList, nn.ModuleDict))"
ANY = [
    pytest.param(
        'partial(lambda_auto_wrap_policy, lambda_fn=lambda m: f"{type(m).__name__}" in {"Block"})',
        'f"{type(module).__name__}" in {"Block"}',
        id="lambda with braces",
    ),
    pytest.param(
        "partial(lambda_auto_wrap_policy, lambda_fn=lambda m: any(p.m for p in m.parameters()))",
        "any(p.m for p in module.parameters())",
        id="attribute of the parameter's name",
    ),
    pytest.param(
        "partial(lambda_auto_wrap_policy, lambda_fn=lambda m: (lambda m: m)(m.m))",
        "(lambda m: m)(module.m)",
        id="lambda in a lambda with the same parameter",
    ),
    pytest.param("partial(lambda_auto_wrap_policy, lambda_fn=is_unit)", "is_unit(module)", id="function"),
    pytest.param(
        "partial(lambda_auto_wrap_policy, lambda_fn=model.is_unit)", "model.is_unit(module)", id="bound method"
    ),
    pytest.param(
        "partial(_or_policy, policies=[ModuleWrapPolicy({Block}), "
        "partial(lambda_auto_wrap_policy, lambda_fn=is_unit)])",
        "(isinstance(module, Block) or is_unit(module))",
        id="or",
    ),
    pytest.param("ModuleWrapPolicy({Block, nn.ModuleList})", "isinstance(module, (Block, nn.ModuleList))", id="class"),
    pytest.param("ModuleWrapPolicy({nn.Module})", "isinstance(module, nn.Module)", id="base class"),
    pytest.param("always_wrap_policy", "", id="always"),
]


ANY_LOOP = """

def wrap(model):
    for module in reversed(list(model.modules())):
        if (
            module is not model
            and not isinstance(module, (nn.ModuleList, nn.ModuleDict))
            and {test}
        ):
            fully_shard(module)
    return fully_shard(model)
"""


@pytest.mark.parametrize(("policy", "test"), ANY)
def test_policy_that_may_pick_a_list_of_modules(policy: str, test: str) -> None:
    helper = "\n\ndef is_unit(m):\n    return True\n" if "is_unit)" in policy and "model." not in policy else ""
    nn = "import torch.nn as nn\n" if "nn." in policy else ""
    first, rest = imports(policy).split("from torch", 1)
    above = (nn + AFTER if nn else WITH_NN) + helper
    check_transformed(
        f"{first}{nn}from torch{rest}{helper}\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy={policy})\n",
        above + (ANY_LOOP.format(test=test) if test else LOOP.format(modules=CHILDREN_FIRST, test=NO_CONTAINERS)),
    )


FUNCTIONS = [
    pytest.param("    return isinstance(m, Block)", True, id="of a class"),
    pytest.param('    return not m.done and hasattr(m, "weight")', True, id="with a weight"),
    pytest.param(
        '    if len(list(m.named_children())) == 0 and getattr(m, "weight", None) is not None:\n'
        "        return True\n    return False",
        True,
        id="leaves with a weight",
    ),
    pytest.param("    return isinstance(m, Block) or m.done", False, id="or something else"),
    pytest.param("    return isinstance(m, CLASSES)", False, id="of classes that are not seen"),
    pytest.param("    return isinstance(m.inner, Block)", False, id="by its child"),
    pytest.param("    if m.done:\n        return True\n    return isinstance(m, Block)", False, id="two answers"),
    pytest.param("    if isinstance(m, Block):\n        m.seen = 1\n    return False", False, id="no answer"),
]


@pytest.mark.parametrize(("body", "excludes"), FUNCTIONS)
def test_function_that_says_no_to_lists(body: str, excludes: bool) -> None:
    policy = "partial(lambda_auto_wrap_policy, lambda_fn=is_unit)"
    wrap = f"def wrap(model):\n    return FSDP(model, auto_wrap_policy={policy})\n"
    text = rewrite(IMPORTS + f"\nCLASSES = (Block, list)\n\n\ndef is_unit(m):\n{body}\n\n\n{wrap}").text
    assert ("        if module is not model and is_unit(module):\n" in text) == excludes
    assert (NO_CONTAINERS in text) != excludes


ASKED = """
def wrap(model):
    policy = ModuleWrapPolicy({classes})
    return FSDP(model, auto_wrap_policy=policy)
"""
ASKED_ONCE = """
def wrap(model):
    unit_classes = {classes}
    for module in reversed(list(model.modules())):
        if module is not model and isinstance(module, unit_classes):
            fully_shard(module)
    return fully_shard(model)
"""


@pytest.mark.parametrize("asked", ["type(model.blocks[0])", "model.blocks[0].__class__", "find_class(model)"])
def test_classes_that_a_module_is_asked_for_are_asked_before_it_is_sharded(asked: str) -> None:
    """`fully_shard` changes the class of a unit: within the loop, the second block would be no instance."""
    source = imports("") + "\n" + ASKED
    expected = AFTER + "\n" + ASKED_ONCE
    one_class = expected.replace("reversed(list(model.modules()))", "model.modules()").format(classes=f"({asked},)")
    check_transformed(source.format(classes="{" + asked + "}"), one_class)


def test_an_expression_is_asked_once_before_the_loop() -> None:
    rewritten = rewrite(
        imports("") + "\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy(set([Block])))\n"
    ).text
    assert "    unit_classes = tuple(set([Block]))\n    for module in reversed" in rewritten
    assert "isinstance(module, unit_classes):" in rewritten


def test_classes_of_which_some_are_unpacked_stay_one_tuple() -> None:
    source = "\n\ndef wrap(model, more):\n    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block, *more}))\n"
    assert "isinstance(module, (Block, *more)):" in rewrite(imports("") + source).text


def test_policies_that_only_an_or_policy_used_go_with_it() -> None:
    text = rewrite(
        IMPORTS
        + code(
            """
            def wrap(model):
                lambda_policy = partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m is model.head)
                blocks = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
                policy = partial(_or_policy, policies=[lambda_policy, blocks])
                return FSDP(model, auto_wrap_policy=policy)
            """
        )
    ).text
    test = "(module is model.head or isinstance(module, Block))"
    assert text.endswith(LOOP.format(modules=CHILDREN_FIRST, test=test).lstrip("\n"))
    assert "policy" not in text


def test_lambda_whose_parameter_is_called_module() -> None:
    policy = "partial(lambda_auto_wrap_policy, lambda_fn=lambda module: module.depth > 1)"
    result = rewrite(IMPORTS + f"\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy={policy})\n")
    assert "            and submodule.depth > 1\n" in result.text
    assert "        if (\n            submodule is not model\n" in result.text


def test_class_that_makes_its_own_kind_may_nest() -> None:
    check_transformed(
        code(
            """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy


            class Block:
                def __init__(self, depth):
                    super(Block, self).__init__()
                    self.inner = Block(depth - 1) if depth else None


            def wrap(model):
                return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))
            """
        ),
        code(
            """
            from torch.distributed.fsdp import fully_shard


            class Block:
                def __init__(self, depth):
                    super(Block, self).__init__()
                    self.inner = Block(depth - 1) if depth else None


            def wrap(model):
                for module in reversed(list(model.modules())):
                    if module is not model and isinstance(module, Block):
                        fully_shard(module)
                return fully_shard(model)
            """
        ),
    )


def test_root_of_another_class_needs_no_guard() -> None:
    before = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy


        class Block:
            def __init__(self):
                super(Block, self).__init__()


        class Net(BASE):
            pass


        def wrap():
            model = Net().cuda()
            model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))
            return model
        """
    )
    for made in ("Net().cuda()", "Net() if FLAG else None"):  # FSDP1 refused None
        text = before.replace("BASE", "object").replace("Net().cuda()", made)
        assert "        if isinstance(module, Block):\n" in rewrite(text).text
    guarded = "        if module is not model and isinstance(module, Block):\n"
    assert guarded in rewrite(before.replace("BASE", "Block")).text
    assert guarded in rewrite(before.replace("Net().cuda()", "Block()")).text
    assert guarded in rewrite(before.replace("Net().cuda()", "make()").replace("BASE", "object")).text


NAMED = """
{top}

def wrap(model):
{local}    model = FSDP(model, auto_wrap_policy=policy)
    return model
"""


@pytest.mark.parametrize("place", ["top", "local"])
def test_policy_in_a_variable_goes_with_its_last_use(place: str) -> None:
    line = "policy = ModuleWrapPolicy({Block})\n"
    before = IMPORTS + NAMED.format(top=line if place == "top" else "", local="    " + line if place == "local" else "")
    result = rewrite(before)
    assert "policy" not in result.text
    assert "isinstance(module, Block)" in result.text
    assert result.support == frozenset()


def test_policy_shared_by_two_calls() -> None:
    before = IMPORTS + code(
        """
        def wrap(a, b):
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            a = FSDP(a, auto_wrap_policy=policy)
            b = FSDP(b, auto_wrap_policy=policy)
            return a, b
        """
    )
    result = rewrite(before)
    assert "policy" not in result.text
    assert result.text.count("isinstance(module, Block)") == 2


def test_policy_used_for_something_else_too_stays() -> None:
    before = IMPORTS + code(
        """
        def wrap(model):
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            apply_activation_checkpointing(model, auto_wrap_policy=policy)
            model = FSDP(model, auto_wrap_policy=policy)
            return model
        """
    )
    result = rewrite(before)
    assert "    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})\n" in result.text
    assert "apply_activation_checkpointing(model, auto_wrap_policy=policy)\n" in result.text
    assert "isinstance(module, Block)" in result.text
    assert not result.support


def test_policy_shared_with_a_dynamic_call_stays_for_both() -> None:
    before = IMPORTS + code(
        """
        policy = ModuleWrapPolicy({Block})


        def wrap(a, b, **kwargs):
            a = FSDP(a, auto_wrap_policy=policy)
            b = FSDP(b, auto_wrap_policy=policy, **kwargs)
            return a, b
        """
    )
    result = rewrite(before)
    assert result.support == {"shard_model"}
    assert "policy = ModuleWrapPolicy({Block})\n" in result.text
    assert "a = shard_model(a, auto_wrap_policy=policy)\n" in result.text


def test_policy_that_may_be_none() -> None:
    check_transformed(
        code(
            """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy

            from net import Block


            def wrap(model, several):
                policy = None
                if several:
                    policy = ModuleWrapPolicy({Block})
                return FSDP(model, auto_wrap_policy=policy)
            """
        ),
        code(
            """
            from torch.distributed.fsdp import fully_shard

            from net import Block


            def wrap(model, several):
                if several:
                    for module in model.modules():
                        if module is not model and isinstance(module, Block):
                            fully_shard(module)
                return fully_shard(model)
            """
        ),
    )


_ONE_POLICY_OR_NONE = code(
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    from net import Block


    def policy_of(mode, depth=2):
        if mode == "whole":
            return None
        return ModuleWrapPolicy({Block})


    def wrap(model, args):
        return FSDP(model, auto_wrap_policy=policy_of(args.mode))
    """
)


def _guarded(test: str) -> str:
    return code(
        f"""
        from torch.distributed.fsdp import fully_shard

        from net import Block


        def wrap(model, args):
            if {test}:
                for module in model.modules():
                    if module is not model and isinstance(module, Block):
                        fully_shard(module)
            return fully_shard(model)
        """
    )


@pytest.mark.parametrize(
    ("old", "new", "test"),
    [
        ("", "", 'args.mode != "whole"'),
        ('mode == "whole"', 'mode != "units" and depth', None),  # of the default, which is not said
        ('mode == "whole"', 'not mode or mode == "whole"', 'not (not args.mode or args.mode == "whole")'),
        ('    if mode == "whole":', '    # one unit\n    if mode == "whole":', None),
        ('    if mode == "whole":', '    print(mode)\n    if mode == "whole":', None),
        ('mode == "whole"', "mode.startswith('w')", None),
        ("Policy({Block})", "Policy({mode.block})", None),
        ("policy_of(args.mode)", "policy_of(args.mode())", None),
        ("policy_of(args.mode)", "policy_of(model)", None),
        ("def wrap(model, args):", "def wrap(model, args, Block):", None),
        ("def wrap(model", '__all__ = ["policy_of"]\n\n\ndef wrap(model', None),
        ("def wrap(model", "log = [policy_of]\n\n\ndef wrap(model", None),
    ],
)
def test_a_policy_or_none_that_a_function_returns_for_one_call_is_asked_for_there(
    old: str, new: str, test: str | None
) -> None:
    before = _ONE_POLICY_OR_NONE.replace(old, new)
    assert old == new or before != _ONE_POLICY_OR_NONE
    if test is not None:
        check_transformed(before, _guarded(test))
    else:
        assert "def policy_of(" in rewrite(before).text


@pytest.mark.parametrize(("asked", "model"), [("self.mode", "self.model"), ("self.model.mode", "model")])
def test_what_the_condition_asks_is_not_the_model_that_the_call_sets(asked: str, model: str) -> None:
    before = _ONE_POLICY_OR_NONE.replace(
        "return FSDP(model, auto_wrap_policy=policy_of(args.mode))",
        f"self.model = FSDP(Net(), auto_wrap_policy=policy_of({asked}))",
    ).replace("def wrap(model, args)", "def wrap(self, args)")
    after = rewrite(before).text
    assert "def policy_of(" not in after
    assert f'    {model} = Net()\n    if {asked} != "whole":\n        for module in {model}.modules():\n' in after


def test_none_of_a_function_of_policies_becomes_no_classes() -> None:
    check_transformed(
        code(
            """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy

            from net import Block


            def policy_of(several):
                if not several:
                    return None
                return ModuleWrapPolicy({Block})


            def wrap(model, several):
                return FSDP(model, auto_wrap_policy=policy_of(several))


            def wrap_again(model, several):
                return FSDP(model, auto_wrap_policy=policy_of(several))
            """
        ),
        code(
            """
            from torch.distributed.fsdp import fully_shard

            from net import Block


            def policy_of(several):
                if not several:
                    return ()
                return (Block,)


            def wrap(model, several):
                unit_classes = policy_of(several)
                for module in model.modules():
                    if module is not model and isinstance(module, unit_classes):
                        fully_shard(module)
                return fully_shard(model)


            def wrap_again(model, several):
                unit_classes = policy_of(several)
                for module in model.modules():
                    if module is not model and isinstance(module, unit_classes):
                        fully_shard(module)
                return fully_shard(model)
            """
        ),
    )


def test_a_condition_that_is_another_one_by_then_keeps_the_variable() -> None:
    before = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        from net import Block


        def wrap(model, several):
            policy = None
            if several:
                policy = ModuleWrapPolicy({Block})
            several = False
            return FSDP(model, auto_wrap_policy=policy)
        """
    )
    text = rewrite(before).text
    assert "    unit_classes = ()\n    if several:\n        unit_classes = (Block,)\n    several = False\n" in text
    assert "isinstance(module, unit_classes)" in text


RETURNED = code(
    """
    from functools import partial

    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import _module_wrap_policy, _or_policy

    from net import Block, Head


    def policy():
        blocks = partial(_module_wrap_policy, module_classes={Block})
        heads = partial(_module_wrap_policy, module_classes={Head})
        return partial(_or_policy, policies=[blocks, heads])


    def wrap(model):
        return FSDP(model, auto_wrap_policy=policy())
    """
)


def test_classes_that_a_function_returns_for_one_call_are_named_there() -> None:
    check_transformed(
        RETURNED,
        code(
            """
            from torch.distributed.fsdp import fully_shard

            from net import Block, Head


            def wrap(model):
                for module in reversed(list(model.modules())):
                    if module is not model and isinstance(module, (Block, Head)):
                        fully_shard(module)
                return fully_shard(model)
            """
        ),
    )


METHOD = code(
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    from net import Block


    class Strategy:
        def units(self):
            policy = ModuleWrapPolicy({Block})
            return policy

        def wrap(self, model):
            policy = self.units()
            return FSDP(model, auto_wrap_policy=policy)
    """
)


def test_classes_that_a_method_returns_for_one_call_are_named_there() -> None:
    assert rewrite(METHOD).text.endswith(
        code(
            """
            class Strategy:
                def wrap(self, model):
                    for module in model.modules():
                        if module is not model and isinstance(module, Block):
                            fully_shard(module)
                    return fully_shard(model)
            """
        )
    )


KEPT_FUNCTIONS = {
    "another call": (RETURNED, "def wrap(", "def show():\n    print(policy())\n\n\ndef wrap("),
    "something else that it does": (RETURNED, "    heads =", "    print(Head)\n    heads ="),
    "something else that it names": (RETURNED, "    heads =", "    size = len(Head.layers)\n    heads ="),
    "a comment": (RETURNED, "    heads =", "    # As before.\n    heads ="),
    "its name as a text": (RETURNED, "def wrap(", '__all__ = ["policy"]\n\n\ndef wrap('),
    "a parameter": (RETURNED.replace("policy()", "policy(True)"), "def policy(True)", "def policy(several)"),
    "an heir": (
        METHOD,
        "class Strategy:",
        "class Other:\n    def units(self):\n        return None\n\n\nclass Strategy:",
    ),
    "a base": (METHOD, "class Strategy:", "class Strategy(Block):"),
    "another object": (
        METHOD,
        "    def wrap",
        "    def show(self, other):\n        print(other.units)\n\n    def wrap",
    ),
}


@pytest.mark.parametrize("case", KEPT_FUNCTIONS.values(), ids=KEPT_FUNCTIONS)
def test_function_that_does_more_than_to_return_classes_stays(case: tuple[str, str, str]) -> None:
    before, part, instead = case
    assert part in before
    text = rewrite(before.replace(part, instead)).text
    assert "def policy(" in text or "def units(self):" in text


def test_by_size() -> None:
    for policy, size in {
        "size_based_auto_wrap_policy": "int(1e8)",
        "partial(size_based_auto_wrap_policy, min_num_params=int(1e6))": "int(1e6)",
    }.items():
        result = rewrite(f"{IMPORTS}\n\ndef wrap(model, args):\n    return FSDP(model, auto_wrap_policy={policy})\n")
        loop = f"    for unit in units_by_size(model, {size}, whole=nn.MultiheadAttention):\n"
        loop += "        fully_shard(unit)\n    return fully_shard(model)\n"
        assert result.text.endswith(loop)
        assert result.support == {"units_by_size"}


@pytest.mark.parametrize("layer", ["nn.MultiheadAttention(8, 2)", "nn.TransformerEncoderLayer(8, 2)"])
def test_by_size_around_attention(layer: str) -> None:
    head = f"import torch\nfrom torch import nn\n{IMPORTS}\nmodel = FSDP(nn.Sequential({layer}), auto_wrap_policy="
    result = rewrite(f"{head}size_based_auto_wrap_policy)\n")
    assert result.support == {"units_by_size"}
    assert "whole=nn.MultiheadAttention" in result.text
    seen = rewrite(f"{head}size_based_auto_wrap_policy)\n".replace(layer, "nn.Linear(8, 2)"))
    assert "MultiheadAttention" not in seen.text
    more = ", mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)"  # FSDP1 looked for BatchNorm inside
    assert "policy_units" in rewrite(f"{head}size_based_auto_wrap_policy{more})\n").support


AT_RUN_TIME = [
    pytest.param("partial(size_based_auto_wrap_policy, force_leaf_modules={Block})", False, id="by size, with leaves"),
    pytest.param(
        "partial(_or_policy, policies=[ModuleWrapPolicy({Block}), size_based_auto_wrap_policy])",
        False,
        id="or, one by size",
    ),
    pytest.param("size_based_auto_wrap_policy if args.size else make_policy()", True, id="perhaps by size"),
    pytest.param("library.make_policy()", True, id="a library's"),
    pytest.param("always_wrap_policy if args.all else lambda **asked: big(**asked)", False, id="a lambda"),
    pytest.param("partial(_or_policy, policies=[args.net.units(), always_wrap_policy])", False, id="a method's"),
]
WRAP = "\n\ndef wrap(model, args, make_policy, POLICIES, classes, kwargs):\n"


def _asked(policy: str) -> Result:
    result = rewrite(IMPORTS + WRAP + f"    return FSDP(model, auto_wrap_policy={policy})\n")
    (found,) = [found for found in result.findings if found.rule == "FM101"]
    assert found.level is Level.REVIEW
    assert "which modules `policy` picks is seen at run time" in found.message
    return result


@pytest.mark.parametrize(("policy", "may_be_none"), AT_RUN_TIME)
def test_policies_that_count_are_asked_by_a_function(policy: str, may_be_none: bool) -> None:
    result = _asked(policy)
    loop = "for unit in policy_units(model, policy):\n    fully_shard(unit)\n"
    loop = f"if policy is not None:\n{indent(loop, '    ')}" if may_be_none else loop
    body = f"policy = {policy}\n{loop}return fully_shard(model)\n"
    assert result.text.endswith(indent(body, "    "))
    assert result.support == {"policy_units"}


BY_MODULE = [
    pytest.param("partial(_or_policy, policies=POLICIES)", False, id="or, not seen"),
    pytest.param("make_policy()", True, id="made elsewhere"),
    pytest.param("POLICIES[args.kind]", True, id="subscript"),
    pytest.param("ModuleWrapPolicy(*classes)", False, id="star"),
    pytest.param("partial(transformer_auto_wrap_policy, **kwargs)", False, id="star star"),
    pytest.param("always_wrap_policy if args.all else None", True, id="conditional"),
]
BY_LOOP = """for module in reversed(list(model.modules())):
    if (
        module is not model
        and not isinstance(module, (nn.ModuleList, nn.ModuleDict))
        and policy(module, recurse=False, nonwrapped_numel=0)
    ):
        fully_shard(module)
"""


@pytest.mark.parametrize(("policy", "may_be_none"), BY_MODULE)
def test_policies_that_only_look_at_the_module_are_asked_in_the_loop(policy: str, may_be_none: bool) -> None:
    result = _asked(policy)
    loop = f"if policy is not None:\n{indent(BY_LOOP, '    ')}" if may_be_none else BY_LOOP
    body = f"policy = {policy}\n{loop}return fully_shard(model)\n"
    assert result.text.endswith(indent(body, "    "))
    assert not result.support


def test_a_policy_that_is_seen_gives_units_no_arguments_of_their_own() -> None:
    """Though another file has a `CustomPolicy`, which is another object."""
    other = f"{IMPORTS}policy = CustomPolicy(lambda module: {{}} if module.large else False)\n"
    wrap = "def wrap(model):\n    return FSDP(model, auto_wrap_policy=policy)\n"
    own = f"def policy({_ALL}):\n    return nonwrapped_numel > 100\n\n\n"
    assert rewrite_files({"train.py": f"{IMPORTS}import other\n\n\n{own}{wrap}", "other.py": other}).support == {
        "policy_units"
    }
    unseen = f"{IMPORTS}import other\nfrom plugins import policy\n\n\n{wrap}"
    assert rewrite_files({"train.py": unseen, "other.py": other}).support == {"shard_model"}


def test_policy_that_is_not_seen_may_count_where_another_file_counts() -> None:
    wrap = "import policies\n" + IMPORTS + WRAP + "    return FSDP(model, auto_wrap_policy=make_policy())\n"
    for counting in (
        "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy\n\npolicy = size_based_auto_wrap_policy\n",
        "def policy(module, recurse, nonwrapped_numel):\n    return nonwrapped_numel > 100\n",
        "def policy(module, recurse, nonwrapped_numel):\n    return recurse and is_large(module)\n",
    ):
        assert rewrite_files({"train.py": wrap, "policies.py": counting}).support == {"policy_units"}
    objects = "from torch.distributed.fsdp.wrap import CustomPolicy\n\npolicy = CustomPolicy(choose)\n"
    assert rewrite_files({"train.py": wrap, "policies.py": objects}).support == {"shard_model"}


OWN_FUNCTIONS = {
    "if recurse:\n        return True\n    return isinstance(module, Block)": True,
    "wrap = isinstance(module, Block)\n    if recurse:\n        return True\n    else:\n        return wrap": True,
    "del nonwrapped_numel\n    return True if recurse else isinstance(module, Block)": True,
    "return recurse or isinstance(module, Block)": True,
    "if not recurse:\n        return isinstance(module, Block)\n    return True": True,
    "return isinstance(module, Block)": False,
    "return not recurse or isinstance(module, Block)": False,
    "return recurse or nonwrapped_numel > 100": False,
    "recurse = module.inner\n    return recurse or isinstance(module, Block)": False,
    "if isinstance(module, Block):\n        return False\n    return recurse": False,
    "for kind in KINDS:\n        return False\n    return recurse": False,
    "if hasattr(module, 'out'):\n        module.out.unit = True\n    return recurse or hasattr(module, 'unit')": True,
    "module.out.unit = True\n    return recurse or hasattr(module.out, 'unit')": False,
    "module.unit = True\n    return recurse or getattr(module, 'unit', False)": False,
    "if recurse:\n        return True\n    module.out.unit = True\n    return module.unit": False,
    "SEEN.append(module)\n    return recurse or isinstance(module, Block)": False,
}


@pytest.mark.parametrize("body", OWN_FUNCTIONS)
def test_own_policy_function(body: str) -> None:
    policy = f"def policy(module, recurse, nonwrapped_numel):\n    {body}\n"
    wrap = "def wrap(model):\n    return FSDP(model, auto_wrap_policy=policy)\n"
    result = rewrite(f"{IMPORTS}\n\n{policy}\n\n{wrap}")
    assert result.support == (set() if OWN_FUNCTIONS[body] else {"policy_units"})
    assert policy in result.text


OWN_LAMBDAS = {
    "lambda module, recurse, **_: recurse or isinstance(module, Block)": "isinstance(submodule, Block)",
    "lambda module, recurse, nonwrapped_numel: recurse or (module is head or isinstance(module, Block))": (
        "(submodule is head or isinstance(submodule, Block))"
    ),
    "lambda module, recurse, nonwrapped_numel: recurse or nonwrapped_numel > 100": "",
    "lambda module, recurse, **more: recurse or is_unit(module, **more)": "",
    "lambda module, recurse, **_: isinstance(module, Block) or recurse": "",
    "lambda module, recurse, **_: recurse and isinstance(module, Block)": "",
}


@pytest.mark.parametrize("policy", OWN_LAMBDAS)
def test_lambda_that_always_looks_inside_is_its_test(policy: str) -> None:
    wrap = f"def wrap(model, head):\n    policy = {policy}\n    return FSDP(model, auto_wrap_policy=policy)\n"
    text = rewrite(f"{IMPORTS}\n\n{wrap}").text
    assert (f"and {OWN_LAMBDAS[policy]}:\n" in text and policy not in text) == bool(OWN_LAMBDAS[policy])


def test_mixed_precision_looks_inside_of_everything() -> None:
    text = "from torch.distributed.fsdp import MixedPrecision\n" + IMPORTS + "\n\ndef wrap(model):\n"
    policy = "partial(size_based_auto_wrap_policy, force_leaf_modules={Block})"
    result = rewrite(f"{text}    return FSDP(model, auto_wrap_policy={policy}, mixed_precision=MixedPrecision())\n")
    assert "for unit in policy_units(model, policy, look_inside=True):" in result.text


@pytest.mark.parametrize(("found", "looks_inside"), [("[]", True), ("SEEN", False)])
def test_mixed_precision_looks_inside_of_what_a_policy_that_fills_a_list_of_its_own_says(
    found: str, looks_inside: bool
) -> None:
    """What is stored elsewhere is stored when it is asked."""
    policy = (
        f"def policy(module, recurse, nonwrapped_numel):\n    found = {found}\n    found.append(nonwrapped_numel)\n"
    )
    wrap = "def wrap(model):\n    return FSDP(model, auto_wrap_policy=policy, mixed_precision=MixedPrecision())\n"
    more = "from torch.distributed.fsdp import MixedPrecision\n\nSEEN = []\n"
    text = rewrite(f"{IMPORTS}\n{more}\n\n{policy}    return sum(found) > 100\n\n\n{wrap}").text
    assert ("look_inside=True" in text) is looks_inside


@pytest.mark.parametrize(
    "policy", ["CustomPolicy(lambda m: m.settings)", "CustomPolicy(lambda m: {'cpu_offload': None})"]
)
def test_units_with_arguments_of_their_own(policy: str) -> None:
    result = rewrite(IMPORTS + WRAP + f"    return FSDP(model, auto_wrap_policy={policy})\n")
    assert f"    return shard_model(model, auto_wrap_policy={policy})\n" in result.text
    assert any("shard_model logs how many" in found.hint for found in result.findings)


OWN_LISTS = {
    "model.blocks": "a list of layers",
    "model.get_blocks()": "a method that copies it",
    "model.chosen()": "a method that takes some of them, which may nest",
}


@pytest.mark.parametrize("listed", OWN_LISTS)
def test_own_list_of_the_model(listed: str) -> None:
    text = IMPORTS.replace("from net import Block, Head", "from torch import nn") + code(
        """


        class Net(nn.Module):
            def __init__(self):
                self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

            def get_blocks(self):
                return list(self.blocks)

            def chosen(self):
                return [self.blocks, *self.blocks]


        def wrap():
            model = Net()
            policy = partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in LISTED)
            return FSDP(model, auto_wrap_policy=policy)
        """
    )
    body = rewrite(text.replace("LISTED", listed)).text.split("    model = Net()\n")[1]
    loop = f"    for block in {listed}:\n        fully_shard(block)\n"
    if listed == "model.chosen()":
        test = f"module is not model and module in {listed}"
        loop = (
            f"    for module in reversed(list(model.modules())):\n        if {test}:\n            fully_shard(module)\n"
        )
    assert body == loop + "    return fully_shard(model)\n"


NESTING_BY_KIND = [
    pytest.param("nn.Sequential", "reversed(list(model.modules()))", id="a class that holds modules of any kind"),
    pytest.param("nn.TransformerEncoderLayer", "model.modules()", id="a layer"),
    pytest.param("Base", "reversed(list(model.modules()))", id="a class with subclasses"),
]


@pytest.mark.parametrize(("name", "modules"), NESTING_BY_KIND)
def test_one_class_that_may_hold_its_own_kind(name: str, modules: str) -> None:
    classes = "\n\nclass Base:\n    pass\n\n\nclass Other(Base):\n    pass\n"
    wrap = f"\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({{{name}}}))\n"
    assert f"    for module in {modules}:\n" in rewrite("from torch import nn\n" + IMPORTS + classes + wrap).text


HOLDING = {
    "given one": (
        """
        class Layer(nn.Module):
            def __init__(self, inner=None):
                super(Layer, self).__init__()
                self.inner = inner


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.outer = Layer({inner})
        """,
        {"nn.Sequential(nn.Linear(4, 4), Layer())": True, "nn.Linear(4, 4)": False},
    ),
    "made by what it makes": (
        """
        class Layer(nn.Module):
            def __init__(self, depth):
                super().__init__()
                self.pair = Pair(depth - 1) if depth else None


        class Pair(nn.Module):
            def __init__(self, depth):
                super().__init__()
                self.one = {inner}


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.top = Pair(3)
        """,
        {"Layer(depth)": True, "nn.Linear(4, 4)": False},
    ),
    "a library's": (
        """
        from layers import Layer


        class Adapted({inner}):
            def __init__(self):
                super().__init__()
                self.layer = Layer()


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(Adapted(), Layer())
        """,
        {"Layer": True, "nn.Module": False},
    ),
}
HOLDING_CASES = [(text, inner, nests) for text, inners in HOLDING.values() for inner, nests in inners.items()]


@pytest.mark.parametrize(("text", "inner", "nests"), HOLDING_CASES)
def test_one_class_whose_modules_may_hold_each_other(text: str, inner: str, nests: bool) -> None:
    """Parents first, `fully_shard` raises for the child."""
    wrap = "\n\ndef wrap():\n    model = Net()\n    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Layer}))\n"
    written = rewrite("from torch import nn\n" + IMPORTS + "\n\n" + code(text.format(inner=inner)) + wrap).text
    modules = "reversed(list(model.modules()))" if nests else "model.modules()"
    assert f"    for module in {modules}:\n        if isinstance(module, Layer):\n" in written


COMMENTED = """\
partial(
        transformer_auto_wrap_policy,
        transformer_layer_cls={
            # Head,  # stays whole
            Block,  # only these
        },
    )"""


def test_comments_on_a_policy_go_to_the_loop() -> None:
    body = f"    print(model)\n    # The layers of the tower.\n    policy = {COMMENTED}\n\n    print(model)\n"
    text = rewrite(IMPORTS + f"\n\ndef wrap(model):\n{body}    return FSDP(model, auto_wrap_policy=policy)\n").text
    assert (
        "    print(model)\n\n    print(model)\n    # The layers of the tower.\n    # Head,  # stays whole\n"
        "    # only these\n    for module in model.modules():\n" in text
    )


def test_comments_in_a_policy_that_a_function_returns_stay_there() -> None:
    text = IMPORTS + f"\n\ndef policy():\n    return {COMMENTED}\n"
    text = rewrite(text + "\n\ndef wrap(model):\n    return FSDP(model, auto_wrap_policy=policy())\n").text
    assert "def policy():\n    # Head,  # stays whole\n    # only these\n    return (Block,)\n" in text


def test_policy_of_a_script_goes_with_its_wrap_though_another_file_has_one_of_the_same_name() -> None:
    script = (
        "import helper\n"
        "from helper import Block, Net\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n"
        "blocks_policy = ModuleWrapPolicy({Block})\n"
        "model = FSDP(Net(), auto_wrap_policy=blocks_policy)\n"
    )
    classes = "class Block(nn.Module):\n    pass\n\n\nclass Net(nn.Module):\n    pass\n"
    other = f"from torch import nn\n\nblocks_policy = None\n\n\n{classes}"
    result = rewrite_files({"train.py": script, "helper.py": other})
    assert "policy" not in result.after["train.py"]
    imported = rewrite_files({"train.py": script, "helper.py": other, "more.py": "from train import blocks_policy\n"})
    assert "blocks_policy = " in imported.after["train.py"]


def test_what_tools_are_told_of_a_line_goes_with_it() -> None:
    text = rewrite(
        code(
            """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


            def wrap(model, policy):
                return FSDP(
                    model,
                    # as large as a block
                    auto_wrap_policy=(
                        policy if policy.is_set else None
                    ),
                    use_orig_params=True,
                    device_id=0,  # type: ignore[arg-type]  # noqa
                )
            """
        )
    ).text
    assert "type: ignore" not in text
    assert "    # as large as a block\n" in text
    assert "    wrap_policy = policy if policy.is_set else None\n" in text


FUNCTIONS = code(
    """
    def setup(model, *, auto_wrap_policy=None):
        return FSDP(model, auto_wrap_policy=auto_wrap_policy)


    def one(model):
        return setup(model, auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}))


    def two(model):
        return setup(model, auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks))


    def get_policy(custom):
        def is_lora(module):
            return hasattr(module, "weight") and module.weight.requires_grad

        lora = partial(lambda_auto_wrap_policy, lambda_fn=is_lora)
        blocks = partial(
            transformer_auto_wrap_policy,
            transformer_layer_cls=(Block, Head),  # what has attention
        )
        if custom:
            return blocks
        policies = [lora, blocks]
        policies.extend([partial(lambda_auto_wrap_policy, lambda_fn=is_lora)])
        return partial(_or_policy, policies=policies)


    def three(model, args):
        policy = get_policy(args.custom)
        return FSDP(model, auto_wrap_policy=policy)


    def four(model):
        return FSDP(model, auto_wrap_policy=get_policy(True))
    """
)
FUNCTIONS_AFTER = code(
    """
    def setup(model, *, auto_wrap_policy=None):
        for module in reversed(list(model.modules())):
            if module is not model and auto_wrap_policy(module):
                fully_shard(module)
        return fully_shard(model)


    def one(model):
        return setup(model, auto_wrap_policy=lambda module: isinstance(module, Block))


    def two(model):
        return setup(model, auto_wrap_policy=lambda m: m in model.blocks)


    def get_policy(custom):
        def is_lora(module):
            return hasattr(module, "weight") and module.weight.requires_grad

        def blocks(module):
            # what has attention
            return isinstance(module, (Block, Head))

        if custom:
            return blocks
        policies = [is_lora, blocks]
        policies.extend([is_lora])
        return lambda module: any(policy(module) for policy in policies)


    def three(model, args):
        policy = get_policy(args.custom)
        for module in reversed(list(model.modules())):
            if module is not model and policy(module):
                fully_shard(module)
        return fully_shard(model)


    def four(model):
        is_unit = get_policy(True)
        for module in reversed(list(model.modules())):
            if module is not model and is_unit(module):
                fully_shard(module)
        return fully_shard(model)
    """
)


def test_policies_of_several_kinds_become_functions() -> None:
    result = rewrite(IMPORTS + "\n\n" + FUNCTIONS)
    assert result.text == AFTER + "\n\n" + FUNCTIONS_AFTER
    assert not result.support
    assert {each.level for each in result.findings} == {Level.REWRITTEN}


NO_FUNCTION = [
    pytest.param("CLASSES", "CLASSES = {Head}", id="a variable that gets another value"),
    pytest.param("{type(model[0])}", "", id="a class that is asked from a module"),
    pytest.param("CLASSES", "extra.append(make_policy())", id="a list with a policy that is not seen"),
]


def test_classes_that_are_handed_over_as_a_list() -> None:
    text = """
        def get_policy(names, lora):
            blocks = partial(transformer_auto_wrap_policy, transformer_layer_cls=set(names))
            return partial(_or_policy, policies=[partial(lambda_auto_wrap_policy, lambda_fn=lora), blocks])


        def wrap(model, args):
            return FSDP(model, auto_wrap_policy=get_policy(args.names, args.lora))
        """
    result = rewrite(IMPORTS + "\n\n" + code(text)).text
    assert "    return lambda module: lora(module) or isinstance(module, tuple(names))\n" in result
    assert "blocks" not in result


def test_a_policy_that_only_a_list_reads_is_said_in_its_function() -> None:
    text = """
        def get_policy(names, lora):
            # the adapters
            adapters = partial(
                lambda_auto_wrap_policy,
                lambda_fn=lora,  # each by itself
            )
            blocks = partial(transformer_auto_wrap_policy, transformer_layer_cls=(Block, *names))
            policy = partial(_or_policy, policies=[adapters, blocks])
            return policy


        def wrap(model, args):
            return FSDP(model, auto_wrap_policy=get_policy(args.names, args.lora))
        """
    function = """
        def get_policy(names, lora):
            # the adapters
            def policy(module):
                # each by itself
                return lora(module) or isinstance(module, (Block, *names))

            return policy
        """
    assert code(function) in rewrite(IMPORTS + "\n\n" + code(text)).text


def test_a_comment_stays_right_above_what_it_is_about() -> None:
    text = """
        def get_policy(net, lora):
            size = len(net)
            # each block is a unit
            # of its own
            blocks = partial(transformer_auto_wrap_policy, transformer_layer_cls=(Block,))
            if not lora:
                return blocks

            def trains(module):
                return module.trains or size

            # what trains and what does not
            lora_policy = partial(lambda_auto_wrap_policy, lambda_fn=trains)

            policies = [lora_policy, blocks]
            return partial(_or_policy, policies=policies)


        def wrap(model, args):
            return FSDP(model, auto_wrap_policy=get_policy(model, args.lora))
        """
    function = """
        def get_policy(net, lora):
            size = len(net)

            # each block is a unit
            # of its own
            def blocks(module):
                return isinstance(module, Block)

            if not lora:
                return blocks

            def trains(module):
                return module.trains or size

            # what trains and what does not
            policies = [trains, blocks]
            return lambda module: any(policy(module) for policy in policies)
        """
    assert code(function) in rewrite(IMPORTS + "\n\n" + code(text)).text


def test_a_lambda_that_gets_a_name_is_a_function() -> None:
    """As linters want it (E731)."""
    text = """
        def get_policy(names, lora):
            if lora:
                policy = partial(lambda_auto_wrap_policy, lambda_fn=lambda layer: lora(layer))
            else:
                policy = partial(transformer_auto_wrap_policy, transformer_layer_cls=names)
            return policy


        def wrap(model, args):
            return FSDP(model, auto_wrap_policy=get_policy(args.names, args.lora))
        """
    written = rewrite(IMPORTS + "\n\n" + code(text)).text
    assert "        def policy(layer):\n            return lora(layer)\n\n    else:\n" in written
    assert "= lambda" not in written


def test_a_policy_that_something_else_reads_stays() -> None:
    text = """
        def get_policy(names, lora):
            blocks = partial(transformer_auto_wrap_policy, transformer_layer_cls=set(names))
            if lora is None:
                return blocks
            return partial(_or_policy, policies=[partial(lambda_auto_wrap_policy, lambda_fn=lora), blocks])


        def wrap(model, args):
            return FSDP(model, auto_wrap_policy=get_policy(args.names, args.lora))
        """
    result = rewrite(IMPORTS + "\n\n" + code(text)).text
    assert "    def blocks(module):\n        return isinstance(module, tuple(names))\n\n" in result
    assert "    return lambda module: lora(module) or blocks(module)\n" in result


@pytest.mark.parametrize(("classes", "behind"), NO_FUNCTION)
def test_policies_that_no_function_can_stand_for(classes: str, behind: str) -> None:
    text = """
        def wrap(model, args, make_policy):
            CLASSES = {Block}
            extra = []
            blocks = partial(transformer_auto_wrap_policy, transformer_layer_cls=GIVEN)
            BEHIND
            if args.lora:
                policy = partial(_or_policy, policies=extra)
            else:
                policy = partial(_or_policy, policies=[blocks, partial(lambda_auto_wrap_policy, lambda_fn=args.test)])
            return FSDP(model, auto_wrap_policy=policy)
        """
    result = rewrite(IMPORTS + "\n\n" + code(text).replace("GIVEN", classes).replace("BEHIND", behind or "pass"))
    assert "            and policy(module, recurse=False, nonwrapped_numel=0)\n" in result.text


def test_policy_that_activation_checkpointing_is_given_too_stays_one() -> None:
    text = """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing


        def get_policy():
            return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


        def main(model):
            policy = get_policy()
            model = FSDP(model, auto_wrap_policy=policy)
            apply_activation_checkpointing(model, auto_wrap_policy=policy)
        """
    result = rewrite(IMPORTS + code(text))
    assert "    return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})\n" in result.text
    assert "policy(module, recurse=False, nonwrapped_numel=0)" in result.text


MADE = """
def get_policy():
    return partial(_or_policy, policies=[
        partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
        partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m.is_unit),
    ])


def main(model):
    return FSDP(model, auto_wrap_policy=get_policy())
"""


@pytest.mark.parametrize(
    "use",
    [
        "state.fsdp_plugin.auto_wrap_policy = policy",
        "Plugin(auto_wrap_policy=policy)",
        "FSDPStrategy(activation_checkpointing_policy=policy)",
    ],
)
def test_policy_that_a_library_asks_as_well_stays_one(use: str) -> None:
    head = "from accelerate import FullyShardedDataParallelPlugin as Plugin\n"
    head += "from lightning.fabric.strategies import FSDPStrategy\n" + IMPORTS
    result = rewrite(f"{head}{MADE}\n\ndef other(state):\n    policy = get_policy()\n    {use}\n")
    assert MADE.partition("\n\n\ndef main")[0] in result.text
    assert "policy(module, recurse=False, nonwrapped_numel=0)" in result.text


@pytest.mark.parametrize(
    "use",
    [
        "own = Settings()\n    "
        "own.auto_wrap_policy = get_policy()\n    FSDP(net, auto_wrap_policy=own.auto_wrap_policy)",
        "return Settings(auto_wrap_policy=get_policy())",
    ],
)
def test_policy_that_only_the_program_reads_becomes_a_function(use: str) -> None:
    own = "\n\nclass Settings:\n    auto_wrap_policy: object\n"
    result = rewrite(f"{IMPORTS}{own}\n{MADE}\n\ndef other(net):\n    {use}\n")
    assert "    return lambda m: isinstance(m, Block) or m.is_unit\n" in result.text.replace("module", "m")


def test_arguments_that_ask_the_model_from_before_ask_it() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision\n"
    head += "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\nfrom net import Block, Net\n\n\n"
    call = "FSDP(\n        Net(),\n        auto_wrap_policy=ModuleWrapPolicy({Block}),\n"
    call += "        mixed_precision=MixedPrecision(param_dtype=model.dtype),\n    )"
    text = rewrite(f"{head}def again(model):\n    model = {call}\n    return model\n").text
    assert "    sharded_model = Net()\n" in text
    assert "MixedPrecisionPolicy(param_dtype=model.dtype)" in text
    assert "    model = fully_shard(sharded_model, " in text


HANDED = """\
from functools import partial

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy, transformer_auto_wrap_policy

from net import Block, Encoder


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))


def shard(model, *, policy):
    model = FSDP(model, auto_wrap_policy=policy)
    return model


def encoder():
    model = Encoder()
    return shard(model, policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}))


def main():
    model = Net()
    model = shard(model, policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.layers))
    return model
"""


def test_a_policy_that_is_handed_in_becomes_the_units() -> None:
    text = rewrite(HANDED).text
    assert (
        "def shard(model, *, units):\n    for unit in units:\n        fully_shard(unit)\n    fully_shard(model)\n"
        in text
    )
    assert "shard(model, units=[module for module in model.modules() if isinstance(module, Block)])" in text
    assert "    model = shard(model, units=model.layers)\n" in text


NOT_HANDED = {
    "no list": ("lambda m: m in model.layers", "lambda m: isinstance(m, nn.Linear)"),
    "a list of something else": ("m in model.layers", "m in Net().layers"),
    "a default": ("*, policy)", "*, policy=None)"),
    "another reader": ("    return model\n\n\ndef enc", "    print(policy)\n    return model\n\n\ndef enc"),
    "a call that is not seen": ("    return model\n\n\ndef enc", "    return model\n\n\nSHARDS = [shard]\n\n\ndef enc"),
    "another model": ("    model = FSDP(model,", "    model = model.inner\n    model = FSDP(model,"),
    "a class that may nest": ("={Block}", "={Block, nn.Sequential}"),
    "the root's class": ("model = Encoder()", "model = Block()"),
}


@pytest.mark.parametrize("change", NOT_HANDED.values(), ids=NOT_HANDED)
def test_a_policy_that_stays_one(change: tuple[str, str]) -> None:
    assert change[0] in HANDED
    assert "units" not in rewrite(HANDED.replace(*change)).text.replace("policy_units", "")


def test_a_policy_that_cannot_be_written_twice_is_asked() -> None:
    """What one way of reading it had noted is forgotten with it."""
    text = """
        def wrap(model, classes, size):
            if classes is not None:
                policy = ModuleWrapPolicy(classes)
            else:
                policy = partial(size_based_auto_wrap_policy, min_num_params=size) if size else None
            return FSDP(model, auto_wrap_policy=policy)
        """
    result = rewrite(IMPORTS + "\n\n" + code(text))
    assert "for unit in policy_units(model, policy):" in result.text
    assert result.support == {"policy_units"}


IN_TUPLE = """\
from functools import partial

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Block(nn.Module):
    pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = Block()


def get_settings(args, block):
    name = args.name.lower()
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={block})
    return name, policy, args.steps


def main(args):
    name, policy, steps = get_settings(args, Block)
    model = FSDP(Net(), auto_wrap_policy=policy)
    return model, name, steps
"""


def test_a_constant_policy_among_what_a_function_returns_is_asked_for_at_the_loop() -> None:
    result = rewrite(IN_TUPLE.replace("{block})", "{block})  # the largest"))
    after = code(result.text)
    assert "# the largest\n    for module in model.modules():\n" in result.text
    assert "def get_settings(args):\n    name = args.name.lower()\n    return name, args.steps\n" in after
    assert "    name, steps = get_settings(args)\n" in after
    assert "        if isinstance(module, Block):\n            fully_shard(module)\n" in after


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("policy, args.steps", "    steps = get_settings(args)\n"),
        ("args.steps, policy", "    steps = get_settings(args)\n"),
        ("(args.steps, policy)", "    (steps) = get_settings(args)\n"),
    ],
)
def test_of_two_values_the_other_one_is_returned(settings: str, wanted: str) -> None:
    names = settings.replace("args.", "")
    before = IN_TUPLE.replace("return name, policy, args.steps", f"return {settings}")
    before = before.replace("    name, policy, steps =", f"    {names} =").replace("model, name, steps", "model, steps")
    after = code(rewrite(before).text)
    assert wanted in after
    assert "isinstance(module, Block)" in after


@pytest.mark.parametrize(
    "change",
    [
        ("    return model, name, steps", "    return model, name, steps, policy"),
        ("    return model, name, steps", "    return model, get_settings(args, Block)"),
        ("(args, Block)\n", "(args, layer := Block)\n"),
        ("    model = FSDP", "    layer = policy\n    model = FSDP"),
        ("    name = args.name.lower()\n", "    name = args.name.lower()\n    block = args.layer\n"),
        (
            "    name = args.name.lower()\n",
            "    name = args.name.lower()\n    if not name:\n        return 1, None, 2\n",
        ),
        ("    name, policy, steps = get", "    name, *policy, steps = get"),
        ("(args, Block)\n", "(*args)\n"),
    ],
)
def test_a_policy_among_what_a_function_returns_that_stays_there(change: tuple[str, str]) -> None:
    """It is read elsewhere, or may be another one."""
    assert change[0] in IN_TUPLE
    after = rewrite(IN_TUPLE.replace(*change)).text
    assert "isinstance(module, Block)" not in after


def test_a_class_that_has_another_name_by_then_is_returned() -> None:
    again = "    name, policy, steps = get_settings(args, layer)\n    layer = args.layer\n"
    before = IN_TUPLE.replace("    name, policy, steps = get_settings(args, Block)\n", again)
    after = rewrite(before.replace("def main(args):", "def main(args, layer):")).text
    assert "isinstance(module, layer)" not in after


OWN_ARGUMENTS = """
    import torch
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import CustomPolicy

    from net import Block, Net


    def choose(module):
        if isinstance(module, Block):
            return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
        return False


    def main():
        model = FSDP(Net(), auto_wrap_policy=CustomPolicy(choose))
        return model
"""


def test_a_function_that_gives_units_arguments_of_their_own() -> None:
    after = rewrite(code(OWN_ARGUMENTS)).text
    assert '        return {"reshard_after_forward": False}\n    return None\n' in after
    loop = """
        def main():
            model = Net()
            for module in reversed(list(model.modules())):
                unit_kwargs = choose(module)
                if module is not model and unit_kwargs is not None:
                    fully_shard(module, **unit_kwargs)
            fully_shard(model)
            return model
        """
    assert after.endswith(code(loop))


AT_RUN_TIME = {
    "a mesh of its own": ("ShardingStrategy.SHARD_GRAD_OP}", "ShardingStrategy.NO_SHARD}"),
    "a group of its own": ('"sharding_strategy"', '"process_group"'),
    "another mesh for the rest": ("(choose))", "(choose), sharding_strategy=ShardingStrategy.NO_SHARD)"),
    "others ask it too": ("        return model", "        return choose(model)"),
    "it counts": ("        if isinst", "        seen.append(module)\n        if isinst"),
    "a dict that is not shown": ('{"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}', "settings(module)"),
}


@pytest.mark.parametrize(("old", "new"), AT_RUN_TIME.values(), ids=AT_RUN_TIME)
def test_arguments_of_units_that_run_time_decides(old: str, new: str) -> None:
    text = OWN_ARGUMENTS.replace(old, new)
    assert text != OWN_ARGUMENTS
    assert "shard_model" in rewrite(code(text)).support


def test_what_is_switched_off_in_a_policy_goes_with_it() -> None:
    """`#100` stood alone above the loop (qatree)."""
    before = """
        import functools
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


        def wrap(net):
            policy = functools.partial(
                #default_auto_wrap_policy,
                size_based_auto_wrap_policy,
                min_num_params=20000#100
            )  # large
            return FSDP(net, auto_wrap_policy=policy)
        """
    text = rewrite(code(before)).text
    assert "default_auto_wrap_policy" not in text
    assert "    # large\n    for unit in units_by_size(net, 20000, whole=nn.MultiheadAttention):\n" in text
    assert "100\n" not in text


def test_partial_of_a_function_that_is_asked_at_run_time_is_not_none() -> None:
    text = _asked("partial(lambda module, recurse, nonwrapped_numel, of: recurse or module in of, of=classes)").text
    assert "policy(submodule, recurse=False, nonwrapped_numel=0)" in text
    assert "policy is not None" not in text


def test_a_comment_that_goes_on_below_an_argument_that_goes() -> None:
    text = (
        "from torch import nn\nfrom torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n\n"
        "def main(net):\n    return FSDP(\n        net,\n        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),\n"
        "        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,  # others:\n"
        "                                                          # BACKWARD_POST,\n"
        "                                                          # and none\n"
        "    )\n"
    )
    written = rewrite(text).text
    assert "fully_shard(net)" in written
    assert "#" not in written
