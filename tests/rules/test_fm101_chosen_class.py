"""FM101: a call of one of several classes, which a condition decides about, becomes an `if` with a call a branch."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel as DDP


class NullDDP(nn.Module):
    def __init__(self, module, *args, **kwargs):
        super().__init__()
        self.module = module


"""


def written(text: str) -> str:
    """What becomes of a function below `HEAD`."""
    result = rewrite(HEAD + code(text))
    assert {finding.level for finding in result.findings} <= {Level.REWRITTEN, Level.REVIEW}
    return result.program.partition("        self.module = module\n\n\n")[2]


WRITTEN = {
    "at the call": (
        """
        def wrap(model, args):
            model = (FSDP if args.fsdp else DDP)(model)
            return model
        """,
        """
        def wrap(model, args):
            if args.fsdp:
                fully_shard(model)
            else:
                model = DDP(model)
            return model
        """,
    ),
    "FSDP is the other one": (
        """
        def wrap(model, args):
            wrapped = (DDP if args.ddp else FSDP)(model)
            return wrapped
        """,
        """
        def wrap(model, args):
            if args.ddp:
                wrapped = DDP(model)
            else:
                wrapped = fully_shard(model)
            return wrapped
        """,
    ),
    "one of three, in a returned value": (
        """
        def wrap(model, args):
            return (DDP if args.ddp else FSDP if args.fsdp else lambda module: module)(model)
        """,
        """
        def wrap(model, args):
            if args.ddp:
                return DDP(model)
            elif args.fsdp:
                return fully_shard(model)
            else:
                return (lambda module: module)(model)
        """,
    ),
    "with more around the call": (
        """
        def wrap(model, args):
            model = (FSDP if args.fsdp else DDP)(model).train()
            return model
        """,
        """
        def wrap(model, args):
            if args.fsdp:
                fully_shard(model)
                model = model.train()
            else:
                model = DDP(model).train()
            return model
        """,
    ),
    "with an annotation": (
        """
        def wrap(net, args):
            model: FSDP = (FSDP if dist.is_initialized() else NullDDP)(net, forward_prefetch=True)
            return model
        """,
        """
        def wrap(net, args):
            if dist.is_initialized():
                model: nn.Module = fully_shard(net)
            else:
                model = NullDDP(net)
            return model
        """,
    ),
    "what is made for the call": (
        """
        def wrap(args):
            model = (FSDP if args.fsdp else DDP)(nn.Linear(4, 4))
            return model
        """,
        """
        def wrap(args):
            if args.fsdp:
                model = nn.Linear(4, 4)
                fully_shard(model)
            else:
                model = DDP(nn.Linear(4, 4))
            return model
        """,
    ),
    "above the call": (
        """
        def wrap(model, args):
            wrapper = FSDP if args.fsdp else DDP
            args.log("wrapping")
            model = wrapper(model)
            return model
        """,
        """
        def wrap(model, args):
            args.log("wrapping")
            if args.fsdp:
                fully_shard(model)
            else:
                model = DDP(model)
            return model
        """,
    ),
    "in the branches of an if above the call": (
        """
        def wrap(model, args):
            if args.ddp:
                wrapper = DDP
            else:
                wrapper = FSDP
            args.log("wrapping")
            return wrapper(model)
        """,
        """
        def wrap(model, args):
            args.log("wrapping")
            if args.ddp:
                return DDP(model)
            else:
                return fully_shard(model)
        """,
    ),
    "a dict for a class that takes no notice": (
        """
        def is_distributed():
            return dist.is_initialized()


        def wrap(model):
            wrapper = FSDP if is_distributed() else NullDDP
            kwargs = dict(auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.cuda.current_device())
            kwargs["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
            model = wrapper(model, **kwargs)
            return model
        """,
        """
        def is_distributed():
            return dist.is_initialized()


        def wrap(model):
            if is_distributed():
                for module in model.modules():
                    if module is not model and isinstance(module, nn.Linear):
                        fully_shard(module, reshard_after_forward=False)
                fully_shard(model, reshard_after_forward=False)
            else:
                model = NullDDP(model)
            return model
        """,
    ),
    "arguments that a class takes no notice of, and one that does more than to ask": (
        """
        def wrap(model, args):
            strategy = ShardingStrategy.SHARD_GRAD_OP if args.zero2 else ShardingStrategy.FULL_SHARD
            model = (FSDP if dist.is_initialized() else NullDDP)(
                model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), sharding_strategy=strategy, device_id=args.next()
            )
            return model
        """,
        """
        def wrap(model, args):
            strategy = {"reshard_after_forward": False} if args.zero2 else {}
            if dist.is_initialized():
                torch.cuda.set_device(args.next())
                for module in model.modules():
                    if module is not model and isinstance(module, nn.Linear):
                        fully_shard(module, **strategy)
                fully_shard(model, **strategy)
            else:
                model = NullDDP(model, device_id=args.next())
            return model
        """,
    ),
    "a dict for a class that is not seen": (
        """
        def wrap(model, args, Other):
            kwargs = {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear})}
            model = (FSDP if args.fsdp else Other)(model, **kwargs)
            return model
        """,
        """
        def wrap(model, args, Other):
            kwargs = {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear})}
            if args.fsdp:
                for module in model.modules():
                    if module is not model and isinstance(module, nn.Linear):
                        fully_shard(module)
                fully_shard(model)
            else:
                model = Other(model, **kwargs)
            return model
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), WRITTEN.values(), ids=WRITTEN)
def test_becomes_an_if(before: str, after: str) -> None:
    assert written(before) == code(after)


AT_RUN_TIME = {
    "what is asked may be another thing at the call": """
        def wrap(args):
            wrapper = FSDP if dist.is_initialized() else DDP
            model = args.build()
            return wrapper(model)
        """,
    "what is asked is set in between": """
        def wrap(model, args):
            wrapper = FSDP if args.fsdp else DDP
            args.fsdp = False
            return wrapper(model)
        """,
    "an if with a comment": """
        def wrap(model, args):
            if args.fsdp:
                # everything
                wrapper = FSDP
            else:
                wrapper = DDP
            return wrapper(model)
        """,
    "the dict of a class that takes no notice does more than to ask": """
        def wrap(model, args):
            kwargs = dict(device_id=args.next())
            return (FSDP if args.fsdp else NullDDP)(model, **kwargs)
        """,
    "an argument is none of FSDP's": """
        def wrap(model, args):
            return (FSDP if args.fsdp else DDP)(model, **({} if args.fsdp else {"device_ids": [0]}))
        """,
    "two calls": """
        def wrap(model, teacher, args):
            wrapper = FSDP if args.fsdp else DDP
            return wrapper(model), wrapper(teacher)
        """,
    "in an expression": """
        def wrap(models, args):
            return [(FSDP if args.fsdp else DDP)(model) for model in models]
        """,
}


@pytest.mark.parametrize("text", AT_RUN_TIME.values(), ids=AT_RUN_TIME)
def test_goes_through_the_support_module(text: str) -> None:
    result = rewrite(HEAD + code(text))
    assert "shard_model" in result.support
    assert {finding.level for finding in result.findings} <= {Level.REWRITTEN, Level.REVIEW}


def test_settings_that_another_class_looks_at_stay() -> None:
    text = """
        def wrap(model, args, Other):
            strategy = ShardingStrategy.SHARD_GRAD_OP
            return (FSDP if args.fsdp else Other)(model, sharding_strategy=strategy)


        def wrap_other(model, strategy=ShardingStrategy.SHARD_GRAD_OP):
            return FSDP(model, sharding_strategy=strategy)
        """
    found = written(text)
    assert "    strategy = ShardingStrategy.SHARD_GRAD_OP\n" in found
    assert "        return Other(model, sharding_strategy=strategy)\n" in found
    assert "        return fully_shard(model, reshard_after_forward=False)\n" in found
