"""`enable_wrap` and `wrap`: FM106."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_noop, check_transformed, code, rewrite, rewrite_files

NOOP = [
    pytest.param("from textwrap import wrap\nwrap('fsdp')\n", id="a function of the same name"),
    pytest.param("def enable_wrap(wrapper_cls):\n    pass\n\n\nenable_wrap(wrapper_cls='fsdp')\n", id="their own"),
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


HEAD = """\
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import enable_wrap, wrap


"""


def test_wraps_in_sight_become_fully_shard() -> None:
    result = check_transformed(
        HEAD
        + code(
            """
            class Net(nn.Module):
                def __init__(self, mesh):
                    super().__init__()
                    with enable_wrap(wrapper_cls=FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP):
                        # the big ones
                        self.one = wrap(nn.Linear(8, 8))
                        self.two = wrap(nn.Linear(8, 8), sharding_strategy=ShardingStrategy.FULL_SHARD)
                    self.head = nn.Linear(8, 2)
            """
        ),
        """
        from torch import nn
        from torch.distributed.fsdp import fully_shard


        class Net(nn.Module):
            def __init__(self, mesh):
                super().__init__()
                # the big ones
                self.one = fully_shard(nn.Linear(8, 8), reshard_after_forward=False)
                self.two = fully_shard(nn.Linear(8, 8))
                self.head = nn.Linear(8, 2)
        """,
    )
    assert [rule for rule, _, _ in result.summary] == ["FM106", "FM101", "FM101"]


def test_keywords_of_the_function_around_are_read_once_for_all_wraps() -> None:
    before = """
        def wrap_parts(net, **kwargs):
            with enable_wrap(wrapper_cls=FSDP, **kwargs):
                net.one = wrap(net.one)
                net.two = wrap(net.two)
            return net


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)


        def main(args):
            torch.cuda.manual_seed(0)
            wrap_parts(Net(), sharding_strategy=args.strategy, device_id=args.rank)
            wrap_parts(Net(), device_id=args.rank)
        """
    after = """
        def wrap_parts(net, **kwargs):
            torch.cuda.set_device(kwargs["device_id"])
            strategy = kwargs.get("sharding_strategy")
            fsdp_kwargs = strategy_kwargs(strategy.name if strategy else "FULL_SHARD")
            fully_shard(net.one, **fsdp_kwargs)
            fully_shard(net.two, **fsdp_kwargs)
            return net
        """
    assert code(after) in rewrite("import torch\n" + HEAD + code(before)).text


def test_a_precision_of_the_context_is_written_anew_where_it_is_made() -> None:
    before = """
        mp_policy = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
        net = make()
        with enable_wrap(wrapper_cls=FSDP, mixed_precision=mp_policy):
            net = wrap(net)
        """
    text = rewrite("import torch\n" + HEAD + code(before)).text
    assert "mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)\n" in text
    assert text.endswith("\nfully_shard(net, mp_policy=mp_policy)\n")


def test_device_that_may_be_another_in_between_is_set_again() -> None:
    before = """
        def wrap_parts(net, args):
            with enable_wrap(wrapper_cls=FSDP, device_id=args.rank):
                net.one = wrap(net.one)
                net.two = wrap(net.two)
                args.prepare()
                net.three = wrap(net.three)
        """
    after = """
        def wrap_parts(net, args):
            torch.cuda.set_device(args.rank)
            fully_shard(net.one)
            fully_shard(net.two)
            args.prepare()
            torch.cuda.set_device(args.rank)
            fully_shard(net.three)
        """
    assert code(after) in rewrite(HEAD + code(before)).text


def test_units_and_what_stands_before_them_go_out_with_the_block() -> None:
    check_transformed(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy, enable_wrap, wrap


        def build(net, Block):
            policy = ModuleWrapPolicy({Block})
            with enable_wrap(
                wrapper_cls=FSDP,
                auto_wrap_policy=policy,
                device_id=torch.cuda.current_device(),
            ):
                # the decoder
                net.decoder = wrap(
                    net.decoder,
                    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,  # kept whole
                    sync_module_states=True,
                )

                for name, child in net.heads.named_children():
                    net.heads.add_module(name, wrap(child))
            return net
        """,
        """
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard


        def build(net, Block):
            # the decoder
            for tensor in (*net.decoder.parameters(), *net.decoder.buffers()):
                on_device = tensor.data.to(torch.cuda.current_device())
                dist.broadcast(on_device, src=0)
                tensor.data.copy_(on_device)
            # sharding_strategy: kept whole
            for module in net.decoder.modules():
                if module is not net.decoder and isinstance(module, Block):
                    fully_shard(module, reshard_after_forward=False)
            fully_shard(net.decoder, reshard_after_forward=False)

            for name, child in net.heads.named_children():
                for module in child.modules():
                    if module is not child and isinstance(module, Block):
                        fully_shard(module)
                fully_shard(child)
            return net
        """,
    )


SUPPORT = {
    "arguments from elsewhere": """\
        def build(net, **kwargs):
            with enable_wrap(wrapper_cls=FSDP, **kwargs):
                return wrap(net)
        """,
    "one in a constructor of the program's own, with arguments of its own": """\
        class Net(nn.Module):
            def __init__(self):
                self.inner = wrap(nn.Linear(8, 8), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        def build():
            with enable_wrap(wrapper_cls=FSDP, mixed_precision=MixedPrecision()):
                return wrap(Net())
        """,
    "one in another function, by arguments from elsewhere": """\
        def inner(net):
            return wrap(net)


        def build(net, **kwargs):
            with enable_wrap(wrapper_cls=FSDP, **kwargs):
                return inner(net)
        """,
    "casts": """\
        def build(net, whole):
            with enable_wrap(wrapper_cls=FSDP, mixed_precision=MixedPrecision()):
                net.inner = wrap(net.inner)
                if whole:
                    net = wrap(net)
                return net
        """,
    "a context with a name": """\
        def build(net):
            with enable_wrap(wrapper_cls=FSDP) as context:
                return wrap(net)
        """,
    "a mesh for all of them": """\
        def build(net):
            with enable_wrap(wrapper_cls=FSDP, device_mesh=make_mesh()):
                net.inner = wrap(net.inner)
                return wrap(net)
        """,
    "a name that changes on the way": """\
        def build(net, mesh, other):
            with enable_wrap(wrapper_cls=FSDP, device_mesh=mesh):
                mesh = other
                return wrap(net)
        """,
    "only one of them is decided": """\
        def build(net, settings):
            with enable_wrap(wrapper_cls=FSDP):
                net.inner = wrap(net.inner, **settings)
                return wrap(net)
        """,
    "a context that is kept, in a loop": """\
        def build(nets, meshes):
            contexts = []
            for mesh in meshes:
                contexts.append(enable_wrap(wrapper_cls=FSDP, device_mesh=mesh))
            for context, net in zip(contexts, nets):
                with context:
                    wrap(net)
        """,
}


@pytest.mark.parametrize("text", SUPPORT.values(), ids=SUPPORT)
def test_what_only_run_time_knows_goes_through_the_support_module(text: str) -> None:
    result = rewrite(HEAD + code(text))
    assert {"enable_wrap", "shard_model", "wrap"} <= result.support
    assert "wrapper_cls=shard_model" in result.text
    assert " wrap(" in result.text
    assert {finding.level for finding in result.findings} <= {Level.REWRITTEN, Level.REVIEW}


OPEN = """\
    def shard_parts(net, settings):
        with enable_wrap(wrapper_cls=FSDP, **settings):
            net.inner = wrap(wrap(net.inner))
            net.blocks = nn.ModuleList(wrap(wrap(block)) for block in net.blocks)


    PARTS = dict(use_orig_params=True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    """


def test_a_dict_that_a_context_is_given_is_read_at_run_time() -> None:
    result = rewrite(HEAD + code(OPEN))
    assert result.support == {"strategy_kwargs"}
    assert result.text.count("raise TypeError") == 1
    assert '    strategy = settings.get("sharding_strategy")\n' in result.text
    assert "    fully_shard(net.inner, **fsdp_kwargs)\n    for block in net.blocks:\n" in result.text
    assert {finding.level for finding in result.findings} <= {Level.REWRITTEN, Level.REVIEW}


def test_a_context_without_a_wrap_in_sight_is_given_a_function() -> None:
    body = """
        @contextmanager
        def wrapping(strategy):
            with enable_wrap(wrapper_cls=FSDP, sharding_strategy=strategy):
                yield
        """
    result = rewrite("from contextlib import contextmanager\n\n" + HEAD.replace(", wrap\n", "\n") + code(body))
    assert "    with enable_wrap(wrapper_cls=shard):\n" in result.text
    assert "shard_model" not in result.support


KEPT = {
    "a stack that is closed above a wrap": """\
        def build(net):
            with ExitStack() as stack:
                stack.enter_context(enable_wrap(wrapper_cls=FSDP))
                net.inner = wrap(net.inner)
                stack.close()
                return wrap(net)
        """,
    "a stack that goes on to others": """\
        def build(net):
            with ExitStack() as stack:
                stack.enter_context(enable_wrap(wrapper_cls=FSDP))
                prepare(net, stack)
                return wrap(net)
        """,
    "a stack that is not entered on each way": """\
        def build(net, args):
            with ExitStack() as stack:
                if args.shard:
                    stack.enter_context(enable_wrap(wrapper_cls=FSDP))
                return wrap(net)
        """,
    "a wrap above the context": """\
        def build(net):
            with ExitStack() as stack:
                net.inner = wrap(net.inner)
                stack.enter_context(enable_wrap(wrapper_cls=FSDP))
                return wrap(net)
        """,
    "a wrap below the stack": """\
        def build(net):
            with ExitStack() as stack:
                stack.enter_context(enable_wrap(wrapper_cls=FSDP))
                net.inner = wrap(net.inner)
            return wrap(net)
        """,
    "a stack of another kind": """\
        def build(net):
            with Stack() as stack:
                stack.enter_context(enable_wrap(wrapper_cls=FSDP))
                return wrap(net)
        """,
    "a context that is kept": """\
        def build(net):
            context = enable_wrap(wrapper_cls=FSDP)
            with context:
                return wrap(net)
        """,
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_context_that_may_not_be_the_only_one_is_given_a_function(text: str) -> None:
    result = rewrite("from contextlib import ExitStack\n" + HEAD + code(text))
    assert result.support == {"enable_wrap", "wrap"}
    assert "enable_wrap(wrapper_cls=shard)" in result.text
    assert " wrap(" in result.text


@pytest.mark.parametrize(
    "entered", ["timer(), {}", "{}, timer()", "(\n            timer(),\n            {},\n        )"]
)
def test_what_else_the_block_enters_stays(entered: str) -> None:
    text = """\
        def build(net):
            with {}:
                net.inner = wrap(net.inner)
                return wrap(net)
        """
    context = "enable_wrap(wrapper_cls=FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)"
    written = rewrite(HEAD + code(text.format(entered.format(context)))).text.replace("\n", "").replace(" ", "")
    assert written.rpartition("defbuild(net):")[2].replace("(timer(),)", "timer()") == (
        "withtimer():fully_shard(net.inner,reshard_after_forward=False)"
        "returnfully_shard(net,reshard_after_forward=False)"
    )


def test_a_context_on_a_stack_goes_and_the_stack_with_it() -> None:
    check_transformed(
        "from contextlib import ExitStack\n\n"
        + HEAD
        + code(
            """
            def build(net):
                with ExitStack() as stack:
                    # all on the way
                    stack.enter_context(enable_wrap(wrapper_cls=FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP))
                    for name, child in net.heads.named_children():
                        net.heads.add_module(name, wrap(child))
                    # the whole
                    net = wrap(net, sharding_strategy=ShardingStrategy.FULL_SHARD)
                return net
            """
        ),
        """
        from torch import nn
        from torch.distributed.fsdp import fully_shard


        def build(net):
            # all on the way
            for name, child in net.heads.named_children():
                fully_shard(child, reshard_after_forward=False)
            # the whole
            fully_shard(net)
            return net
        """,
    )


def test_a_stack_for_more_stays() -> None:
    text = """\
        def build(net, timers):
            with ExitStack() as stack:
                for timer in timers:
                    stack.enter_context(timer)
                stack.enter_context(enable_wrap(wrapper_cls=FSDP))
                stack.callback(timers.clear)
                net = wrap(net)
            return net
        """
    after = """\
        def build(net, timers):
            with ExitStack() as stack:
                for timer in timers:
                    stack.enter_context(timer)
                stack.callback(timers.clear)
                fully_shard(net)
            return net
        """
    assert code(after) in rewrite("from contextlib import ExitStack\n" + HEAD + code(text)).text


def test_a_stack_is_given_a_function_where_constructors_wrap() -> None:
    text = """\
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = wrap(nn.Linear(8, 8))


        def build():
            with ExitStack() as stack:
                stack.enter_context(enable_wrap(wrapper_cls=FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP))
                return wrap(Net())
        """
    result = rewrite("from contextlib import ExitStack\n" + HEAD + code(text))
    assert "        stack.enter_context(enable_wrap(wrapper_cls=shard))\n" in result.text
    assert result.support == {"enable_wrap", "wrap"}


IN_DICT = """\
    def build(net, given):
        params = dict(wrapper_cls=FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        with enable_wrap(**params):
            net.inner = wrap(net.inner)
            return {}
    """


def test_the_class_comes_out_of_a_dict() -> None:
    text = rewrite(HEAD + code(IN_DICT.format("wrap(net)"))).text
    assert text.endswith(
        "    fully_shard(net.inner, reshard_after_forward=False)\n"
        "    return fully_shard(net, reshard_after_forward=False)\n"
    )
    text = rewrite(HEAD + code(IN_DICT.format("given.more(net, lambda net: wrap(net, **given.settings))"))).text
    assert "params = dict(wrapper_cls=shard_model," in text


HELPER = {
    "utils/__init__.py": "",
    "utils/sharding.py": code(
        """
        import contextlib

        try:
            import torch.distributed.fsdp
            from torch.distributed.fsdp.wrap import wrap, enable_wrap
            from torch.distributed.fsdp.fully_sharded_data_parallel import (
                FullyShardedDataParallel as FSDP,
                ShardingStrategy,
            )

            AVAILABLE = True
        except ImportError:
            AVAILABLE = False

            def wrap(module, **kwargs):
                return module


        def is_fsdp(module):
            return AVAILABLE and isinstance(module, FSDP)


        @contextlib.contextmanager
        def maybe_wrap(options):
            if not options["shard"]:
                yield
                return
            strategy = ShardingStrategy.FULL_SHARD if options["zero3"] else ShardingStrategy.SHARD_GRAD_OP
            arguments = dict(sharding_strategy=strategy, limit_all_gathers=False)
            with enable_wrap(wrapper_cls=FSDP, **arguments):
                yield


        def fsdp_wrap(module):
            return wrap(module)
        """
    ),
    "model.py": code(
        """
        from torch import nn

        from utils.sharding import fsdp_wrap


        class Net(nn.Module):
            def __init__(self, layers):
                super().__init__()
                self.layers = nn.ModuleList(fsdp_wrap(nn.Linear(8, 8)) for _ in range(layers))
        """
    ),
    "train.py": code(
        """
        from model import Net
        from utils import sharding


        def main(options):
            with sharding.maybe_wrap(options):
                model = sharding.fsdp_wrap(Net(2))
            return model
        """
    ),
}


IN_CONTEXT = """
    strategy = {} if options["zero3"] else {"reshard_after_forward": False}

    def shard(module):
        return fully_shard(module, **strategy)

    with enable_wrap(wrapper_cls=shard):
        yield
"""


def test_helpers_of_the_project_in_other_files() -> None:
    result = rewrite_files(HELPER)
    assert {change.path.name for change in result.report.changes} == {"sharding.py", "fsdp2_support.py"}
    text = result.after["utils/sharding.py"]
    assert IN_CONTEXT in text
    assert "return wrap(module)" in text
    assert "isinstance(module, FSDPModule)" in text
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_optimizer_above_moves_below_the_context() -> None:
    text = HEAD + code(
        """
        import torch


        def build(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            with enable_wrap(wrapper_cls=FSDP, use_orig_params=True):
                net.inner = wrap(net.inner)
                net = wrap(net)
            return net, optimizer
        """
    )
    result = rewrite(text)
    assert result.text.endswith(
        "    fully_shard(net.inner)\n    fully_shard(net)\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    return net, optimizer\n"
    )
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_optimizer_without_a_name_leaves_all_of_the_context() -> None:
    text = HEAD + code(
        """
        import torch


        def build(net):
            optimizer = Lookahead(torch.optim.SGD(net.parameters(), lr=0.1))
            warm_up(net, optimizer)
            with enable_wrap(wrapper_cls=FSDP):
                net.inner = wrap(net.inner)
                net = wrap(net)
            return net, optimizer
        """
    )
    result = rewrite(text)
    assert result.text == text
    assert {finding.level for finding in result.findings} == {Level.MANUAL}


@pytest.mark.parametrize("put", ["net.add_module(name, {})", "setattr(net, name, {})"])
def test_a_child_that_is_put_back_under_its_name_is_there_already(put: str) -> None:
    text = """
        def wrap_parts(net):
            with enable_wrap(wrapper_cls=FSDP):
                for name, child in net.named_children():
                    {}
        """
    result = rewrite(HEAD + code(text).format(put.format("wrap(child)")))
    assert "    for name, child in net.named_children():\n        fully_shard(child)\n" in result.text
    other = rewrite(HEAD + code(text.replace("net.named", "net.body.named")).format(put.format("wrap(child)")))
    assert f"        {put.format('fully_shard(child)')}\n" in other.text


def test_a_class_that_is_handed_in() -> None:
    text = HEAD + "def build(net, cls):\n    with enable_wrap(wrapper_cls=cls):\n        net.a = wrap(net.a)\n"
    result = rewrite(text + "\n\ndef main(net):\n    build(net, FSDP)\n")
    assert ("FM106", Level.MANUAL.value) in {(rule, level) for rule, level, _ in result.summary}


def test_the_class_in_a_dict_of_the_call_itself() -> None:
    text = HEAD + "def build(net):\n    with enable_wrap({}):\n        net.a = wrap(net.a)\n"
    plain = rewrite(text.format("wrapper_cls=FSDP"))
    assert rewrite(text.format('**{"wrapper_cls": FSDP}')).text == plain.text


OF_CALLS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import enable_wrap, wrap


def precision(cfg):
    return MixedPrecision(param_dtype=cfg.dtype) if cfg.mixed else None


def build(net, cfg):
    with enable_wrap(wrapper_cls=FSDP, mixed_precision=precision(cfg)):
        model = wrap(net)
    return model
"""


def test_an_argument_that_is_a_call_for_one_wrap() -> None:
    """534 lines of support: a call may give several wraps something else each, and here is one (ShallowFlow)."""
    result = rewrite(OF_CALLS)
    assert result.support == frozenset()
    lines = "    mp_policy = precision(cfg)\n    model = fully_shard(net, mp_policy=mp_policy)\n    return model\n"
    assert result.text.endswith(lines)


MORE = {
    "another": ("        model = wrap(net)\n", "        model = wrap(net)\n        cfg.ema = wrap(cfg.ema)\n"),
    "later": ("        model = wrap(net)\n", "        cfg.update()\n        model = wrap(net)\n"),
    "each": ("model = wrap(net)", "model = [wrap(part) for part in net]"),
}


@pytest.mark.parametrize(("old", "new"), MORE.values(), ids=MORE)
def test_an_argument_that_is_a_call_for_more_than_one_wrap(old: str, new: str) -> None:
    assert "shard_model" in rewrite(OF_CALLS.replace(old, new)).support
