"""FM101: what several calls of one function need is computed once."""

from __future__ import annotations

import textwrap

import pytest

from ..helpers import check_transformed, code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def bf16():
    return MixedPrecision(param_dtype=torch.bfloat16)


"""
CALL = (
    "FSDP({}, auto_wrap_policy=ModuleWrapPolicy({{torch.nn.Linear}}), mixed_precision=args.precision, "
    "sharding_strategy=ShardingStrategy[args.strategy], device_id=torch.cuda.current_device())"
)
READ = "mp_policy = MixedPrecisionPolicy()\n"
CHOSEN = "fsdp_kwargs = strategy_kwargs(args.strategy)\n"


def wrapping(text: str, call: str = CALL) -> str:
    """A function that wraps two models, rewritten."""
    body = code(text).replace("FSDP(model)", call.format("model")).replace("FSDP(ema)", call.format("ema"))
    return rewrite(HEAD + body).text


SHARED = {
    "one after the other": """
        def wrap(args, model, ema):
            model = FSDP(model)
            print("wrapped")
            ema = FSDP(ema)
            return model, ema
        """,
    "the second one under a condition": """
        def wrap(args, model, ema):
            model = FSDP(model)
            if ema is not None:
                ema = FSDP(ema)
            return model, ema
        """,
    "both in a loop": """
        def wrap(args, pairs):
            for model, ema in pairs:
                model = FSDP(model)
                ema = FSDP(ema)
        """,
}


@pytest.mark.parametrize("text", SHARED.values(), ids=SHARED)
def test_computed_once(text: str) -> None:
    after = wrapping(text)
    assert after.count(READ) == after.count(CHOSEN) == 1
    assert after.count("block_mp_policy = replace(mp_policy, cast_forward_inputs=False)\n") == 1
    assert after.count("fully_shard(module, mp_policy=block_mp_policy") == 2


COMPUTED_AGAIN = {
    "what is read is set in between": """
        def wrap(args, model, ema):
            model = FSDP(model)
            args.strategy = "NO_SHARD"
            ema = FSDP(ema)
            return model, ema
        """,
    "what is read is handed to something in between": """
        def wrap(args, model, ema):
            model = FSDP(model)
            change(args)
            ema = FSDP(ema)
            return model, ema
        """,
    "the first one under a condition": """
        def wrap(args, model, ema):
            if model is not None:
                model = FSDP(model)
            ema = FSDP(ema)
            return model, ema
        """,
    "one of two ways": """
        def wrap(args, model, ema):
            if args.ema:
                ema = FSDP(ema)
            else:
                model = FSDP(model)
            return model, ema
        """,
    "the second one in a loop": """
        def wrap(args, model, emas):
            model = FSDP(model)
            for ema in emas:
                ema = FSDP(ema)
                args = args.next
        """,
    "functions of their own": """
        def wrap(args, model, ema):
            model = FSDP(model)

            def other(ema):
                ema = FSDP(ema)
                return ema

            return model, other(ema)
        """,
}


@pytest.mark.parametrize("text", COMPUTED_AGAIN.values(), ids=COMPUTED_AGAIN)
def test_computed_again(text: str) -> None:
    after = wrapping(text)
    in_function = after.count(f"        {READ}") == after.count(f"        {CHOSEN}") == after.count("def shard(") == 1
    assert in_function or after.count(READ) == after.count(CHOSEN) == 2


def test_what_the_program_calls_is_called_as_often() -> None:
    call = (
        "FSDP({}, auto_wrap_policy=ModuleWrapPolicy({{torch.nn.Linear}}), mixed_precision=bf16() if args.low else None)"
    )
    after = wrapping(SHARED["one after the other"], call)
    assert after.count("        mp_policy = bf16() if args.low") == after.count("def shard(module):") == 1


def test_what_differs_is_computed_for_each() -> None:
    text = """
        def wrap(args, model, ema):
            model = FSDP(model)
            ema = FSDP(ema)
            return model, ema
        """
    body = code(text).replace("FSDP(model)", CALL.format("model"))
    body = body.replace("FSDP(ema)", CALL.format("ema").replace("args.strategy", "args.other"))
    after = rewrite(HEAD + body).text
    assert after.count(READ) == 1
    assert after.count("fsdp_kwargs = strategy_kwargs(args.strategy)\n") == 1
    assert after.count("fsdp_kwargs = strategy_kwargs(args.other)\n") == 1


LONG = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from net import Block, Net


def main(args, rank):
    student, teacher = Net(), Net()
    settings = {
        "auto_wrap_policy": ModuleWrapPolicy({Block}),
        "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.float32),
        "sync_module_states": True,
        "device_id": torch.cuda.current_device(),
    }
    student = FSDP(student, **settings)
    if args.distill:
        teacher = FSDP(teacher, **settings)
    return student, teacher
"""


IN_FUNCTION = """
    mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    # Inputs are cast at the root only.
    block_mp_policy = replace(mp_policy, cast_forward_inputs=False)

    def shard(module):
        for tensor in (*module.parameters(), *module.buffers()):
            on_device = tensor.data.to(torch.cuda.current_device())
            dist.broadcast(on_device, src=0)
            tensor.data.copy_(on_device)
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(torch.float32)
        for submodule in module.modules():
            if isinstance(submodule, Block):
                fully_shard(submodule, mp_policy=block_mp_policy)
        fully_shard(module, mp_policy=mp_policy)

    shard(student)
    if args.distill:
        shard(teacher)
    return student, teacher
"""


def test_a_block_for_several_models_is_a_function() -> None:
    assert IN_FUNCTION in rewrite(LONG).text


def test_a_function_gives_the_module_where_that_is_used() -> None:
    text = rewrite(LONG.replace("teacher = FSDP(teacher, **settings)", "args.put(FSDP(args.made(), **settings))")).text
    assert "        return fully_shard(module, mp_policy=mp_policy)\n" in text
    assert "        args.put(shard(args.made()))\n" in text
    text = rewrite(LONG.replace("student = FSDP(student,", "args.student = FSDP(Net(),")).text
    assert "\n    args.student = shard(Net())\n" in text


BY_ITSELF = {
    "few lines": LONG.replace('        "sync_module_states": True,\n', "").replace(", buffer_dtype=torch.float32", ""),
    "another policy": LONG.replace("(teacher, **settings)", "(teacher, **settings | {'auto_wrap_policy': None})"),
    "a comment at an argument": LONG.replace(
        "(teacher, **settings)", "(\n            teacher,  # frozen\n            **settings,\n        )"
    ),
    "a lambda": LONG.replace("teacher = FSDP(teacher, **settings)", "args.put(lambda net: FSDP(net, **settings))"),
}


@pytest.mark.parametrize("text", BY_ITSELF.values(), ids=BY_ITSELF)
def test_no_function(text: str) -> None:
    assert "def shard(" not in rewrite(text).text


def test_a_function_stands_above_the_loop_and_leaves_the_name_of_the_user() -> None:
    text = LONG.replace("    student = FSDP(", "    for student, shard in args.pairs:\n      student = FSDP(")
    text = text.replace("    if args.distill:\n", "    for teacher in args.teachers:\n")
    after = rewrite(text).text
    assert after.index("    def shard_module(module):\n") < after.index("    for student, shard in args.pairs:\n")
    assert "\n      shard_module(student)\n" in after


def test_what_another_branch_puts_into_the_dict_is_not_given() -> None:
    check_transformed(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy


        def build(net, Block, args):
            kwargs = dict(limit_all_gathers=True)
            if args.wrap == "none":
                net = FSDP(net, **kwargs)
            elif args.wrap == "blocks":
                kwargs["auto_wrap_policy"] = ModuleWrapPolicy({Block})
                net = FSDP(net, **kwargs)
            elif args.wrap == "root":
                net = FSDP(net, **kwargs)
            return net
        """,
        """
        from torch.distributed.fsdp import fully_shard


        def build(net, Block, args):
            if args.wrap == "none":
                fully_shard(net)
            elif args.wrap == "blocks":
                for module in net.modules():
                    if module is not net and isinstance(module, Block):
                        fully_shard(module)
                fully_shard(net)
            elif args.wrap == "root":
                fully_shard(net)
            return net
        """,
    )


def test_a_precision_in_a_dict_that_is_not_spelled_out_stays() -> None:
    """It is read there at run time; the call that is spelled out becomes `fully_shard` beside it."""
    after = rewrite(
        HEAD
        + code(
            """
            def options(policy):
                return {"mixed_precision": bf16(), "auto_wrap_policy": policy}


            def wrap(model, other, policy):
                given = dict(options(policy))
                given["auto_wrap_policy"] = given["auto_wrap_policy"](model)
                model = FSDP(model, **given)
                other = FSDP(other, mixed_precision=bf16(), device_id=torch.cuda.current_device())
                return model, other
            """
        )
    )
    assert "    return MixedPrecision(param_dtype=torch.bfloat16)\n" in after.text
    assert 'mixed_precision = given.get("mixed_precision")' in after.text
    assert "fully_shard(other, mp_policy=" in after.text


BY_HAND = """
def wrap(args, model):
    bf16 = MixedPrecision(param_dtype=torch.bfloat16)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = FSDP(block, mixed_precision=bf16)
    {}
"""
WHOLE = {
    "below, in the same block": ("return FSDP(model, mixed_precision=bf16)", True),
    "by another precision": ("return FSDP(model, mixed_precision=MixedPrecision(reduce_dtype=torch.bfloat16))", True),
    "by arguments that only run time knows": ("return FSDP(model, mixed_precision=bf16, **args.more)", True),
    "under a condition": ("if args.whole:\n        model = FSDP(model, mixed_precision=bf16)\n    return model", False),
    "where the function may have returned": (
        "if args.parts:\n        return model\n    return FSDP(model, mixed_precision=bf16)",
        False,
    ),
    "of another model": ("return FSDP(args.model, mixed_precision=bf16), model", False),
}


@pytest.mark.parametrize(("whole", "is_native"), WHOLE.values(), ids=WHOLE)
def test_the_parts_of_a_model_cast_no_inputs_where_the_whole_is_seen_to_be_wrapped(whole: str, is_native: bool) -> None:
    after = rewrite(HEAD + BY_HAND.format(whole)).text
    part = "model.blocks[i] = fully_shard(block, mp_policy=block_mp_policy)"
    assert (part in after, "shard_model" in after) == (is_native, not is_native)


def test_the_one_call_of_a_program_may_wrap_parts_and_the_model_around_them() -> None:
    after = rewrite(HEAD + BY_HAND.format("return model"))
    written = """
        for i, block in enumerate(model.blocks):
            fully_shard(block, mp_policy=bf16)
            cast_at_root(block)
            model.blocks[i] = block
        return model
        """
    assert textwrap.indent(code(written), "    ") in after.text
    assert after.own == {"cast_at_root"}


KEPT = """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy


    class Trainer:
        def __init__(self, policy, reference):
            shared_kwargs = dict(
                auto_wrap_policy=ModuleWrapPolicy({{torch.nn.Linear}}),
                device_id=torch.cuda.current_device(),
            )
            self.shared_kwargs = shared_kwargs
            self.policy = FSDP(policy, **shared_kwargs)
            self.reference = FSDP(reference, **shared_kwargs)
    {}"""


def test_dict_that_becomes_an_attribute_which_nothing_reads() -> None:
    text = rewrite(code(KEPT.format(""))).text
    assert "shared_kwargs" not in text
    assert "self.reference = fully_shard(reference)" in text


READERS = {
    "a method": "\n        def show(self, change):\n            change(self.shared_kwargs)\n",
    "by a name": "\n        def show(self, change):\n            change(getattr(self, 'shared_kwargs'))\n",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_dict_that_becomes_an_attribute_which_is_read(reader: str) -> None:
    assert "self.shared_kwargs = shared_kwargs" in rewrite(code(KEPT.format(reader))).text


LOOPS = [
    pytest.param(
        "for i, block in enumerate(model.blocks):\n        model.blocks[i] = FSDP(checkpoint_wrapper(block), **kwargs)",
        "for i, block in enumerate(model.blocks):\n"
        "        model.blocks[i] = fully_shard(checkpoint_wrapper(block), mp_policy=block_mp_policy)",
        id="loop",
    ),
    pytest.param(
        "model.blocks = nn.ModuleList(FSDP(b, **kwargs) for b in model.blocks)",
        "model.blocks = nn.ModuleList(fully_shard(b, mp_policy=block_mp_policy) for b in model.blocks)",
        id="generator",
    ),
]


@pytest.mark.parametrize(("before", "after"), LOOPS)
def test_what_no_turn_changes_stands_once_above_the_loop(before: str, after: str) -> None:
    head = """\
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


def build(model):
    kwargs = dict(mixed_precision=MixedPrecision(param_dtype=torch.bfloat16), use_orig_params=True)
    """
    text = rewrite(
        f"{head}{before}\n    model.head = FSDP(model.head, **kwargs)\n    return FSDP(model, **kwargs)\n"
    ).text
    assert text.endswith(f"""
def build(model):
    mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    # Inputs are cast at the root only.
    block_mp_policy = replace(mp_policy, cast_forward_inputs=False)
    {after}
    fully_shard(model.head, mp_policy=block_mp_policy)
    return fully_shard(model, mp_policy=mp_policy)
""")


MADE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, CPUOffload, ShardingStrategy


def settings(args):
    kwargs = dict(sharding_strategy=ShardingStrategy[args.strategy], use_orig_params=True)
    if args.offload:
        kwargs["cpu_offload"] = CPUOffload(offload_params=True)
    return kwargs


def build(net, args):
    torch.cuda.set_device(args.rank)
    return FSDP(net, **{})
"""


def test_dict_that_is_made_where_it_is_spread_gets_a_name() -> None:
    text = rewrite(MADE.format("settings(args)")).text
    assert '    fsdp_kwargs = settings(args)\n    strategy = fsdp_kwargs["sharding_strategy"]\n' in text
    assert "shard_model" not in text
    assert "    fsdp_kwargs = {**settings(args)}\n" in rewrite(MADE.format("{**settings(args)}")).text


RECURSIVE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


def wrap_blocks(module, cls, **kwargs):
    for name, child in module.named_children():
        wrap_blocks(child, cls, **kwargs)
        if isinstance(child, cls):
            setattr(module, name, FSDP(child, **kwargs))


def build(model, cls):
    mp = MixedPrecision(param_dtype=torch.bfloat16)
    wrap_blocks(model, cls, mixed_precision=mp, use_orig_params=True)
    {}FSDP({}, mixed_precision=mp, use_orig_params=True)
"""


def test_a_function_that_calls_itself_with_its_arguments_wraps_parts() -> None:
    text = rewrite(RECURSIVE.format("return ", "model")).text
    assert text.endswith("""
def wrap_blocks(module, cls, **kwargs):
    mp_policy = kwargs["mixed_precision"]
    # Inputs are cast at the root only.
    block_mp_policy = replace(mp_policy, cast_forward_inputs=False)
    for name, child in module.named_children():
        wrap_blocks(child, cls, **kwargs)
        if isinstance(child, cls):
            fully_shard(child, mp_policy=block_mp_policy)


def build(model, cls):
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    wrap_blocks(model, cls, mixed_precision=mp, use_orig_params=True)
    return fully_shard(model, mp_policy=mp)
""")
    assert "shard_model" in rewrite(RECURSIVE.format("return ", "model.other")).text
    assert "shard_model" in rewrite(RECURSIVE.format("if cls:\n        return ", "model")).text


def test_a_mesh_of_groups_is_made_once() -> None:
    text = """
        def wrap(model, emas, kwargs):
            model = FSDP(model, **kwargs)
            for ema in emas:
                ema = FSDP(ema, **kwargs)


        def start(args, group, model, emas):
            torch.cuda.set_device(args.rank)
            kwargs = dict(process_group=None, sharding_strategy=ShardingStrategy.FULL_SHARD)
            if args.hybrid:
                kwargs["process_group"] = (group, group)
                kwargs["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD
            wrap(model, emas, kwargs)
    """
    result = rewrite(HEAD + code(text))
    assert result.text.count("mesh = hsdp_mesh_from_groups(") == 1
    assert result.text.count("fully_shard(model, mesh=mesh)") + result.text.count("fully_shard(ema, mesh=mesh)") == 2


def test_a_mesh_that_a_later_call_takes_keeps_its_name() -> None:
    call = 'FSDP(torch.nn.Linear(8, 8), device_id=torch.device("cpu"))'
    result = rewrite(HEAD + code(f"def wrap():\n    gen = {call}\n    critic = {call}\n    return gen, critic\n"))
    assert result.text.count("cpu_mesh = init_device_mesh(") == 1
    assert "    fully_shard(gen, mesh=cpu_mesh)\n" in result.text
    assert "    fully_shard(critic, mesh=cpu_mesh)\n" in result.text


def test_two_functions_share_nothing() -> None:
    """What stands in the one is not seen in the other: the program was not written."""
    text = """
        import torch
        from functools import partial
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        from nets import Block, Head


        def build(generator, critic, mesh):
            mp = MixedPrecision(param_dtype=torch.bfloat16)
            first = partial(FSDP, mixed_precision=mp, auto_wrap_policy=ModuleWrapPolicy({Block}), device_mesh=mesh)
            second = partial(FSDP, mixed_precision=mp, auto_wrap_policy=ModuleWrapPolicy({Head}), device_mesh=mesh)
            return first(generator), second(critic)
        """
    after = rewrite(code(text)).program
    assert after.count("block_mp_policy = replace(mp, cast_forward_inputs=False)") == 2
    assert "mp_policy=mp, mesh=fsdp_mesh)\n\n    def second(model):\n" in after
    chain = "def build(net, mesh):\n    given = partial(FSDP, device_mesh=mesh)\n    wrap = partial(given, {})\n"
    head = "from functools import partial\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    chained = rewrite(f"{head}{chain.format('use_orig_params=True')}    return wrap(net)\n").program
    assert "    def wrap(model):\n        fsdp_mesh = first_dimension(mesh)\n" in chained
