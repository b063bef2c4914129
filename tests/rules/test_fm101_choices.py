"""FM101: arguments that the program chooses from several stay the choice they are."""

from __future__ import annotations

import ast
from textwrap import indent

import pytest

from ..helpers import code, flat, rewrite, rewrite_files

HEAD = """\
import argparse

import torch
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
DEVICE = "device_id=torch.cuda.current_device()"
REPLICATED = 'init_device_mesh("cuda", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))'


def written(text: str, head: str = HEAD) -> str:
    """What a program becomes, without its imports and the support functions in it."""
    result = rewrite(head + code(text))
    text, statements = result.text, ast.parse(result.text).body
    ours = [each for each in statements if isinstance(each, ast.FunctionDef) and each.name in result.own]
    imports = [each for each in statements if isinstance(each, (ast.Import, ast.ImportFrom))]
    last = max(each.end_lineno or 0 for each in (*imports, *ours))
    return "\n".join(text.splitlines()[last:]).strip() + "\n"


BY_FLAG = {
    "condition": (
        """
        def wrap(model, zero2):
            return FSDP(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP if zero2 else None)
        """,
        """
        def wrap(model, zero2):
            fsdp_kwargs = {"reshard_after_forward": False} if zero2 else {}
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "condition in a variable": (
        """
        def wrap(model, zero2):
            strategy = ShardingStrategy.SHARD_GRAD_OP if zero2 else None
            return FSDP(model, sharding_strategy=strategy)
        """,
        """
        def wrap(model, zero2):
            fsdp_kwargs = {"reshard_after_forward": False} if zero2 else {}
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "branches": (
        """
        def wrap(model, mode):
            if mode == "zero3":
                strategy = ShardingStrategy.FULL_SHARD
            elif mode == "zero2":
                strategy = ShardingStrategy.SHARD_GRAD_OP
            else:
                raise ValueError(mode)
            return FSDP(model, sharding_strategy=strategy)
        """,
        """
        def wrap(model, mode):
            if mode == "zero3":
                fsdp_kwargs = {}
            elif mode == "zero2":
                fsdp_kwargs = {"reshard_after_forward": False}
            else:
                raise ValueError(mode)
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "dict, by a key": (
        """
        def wrap(model, mode):
            return FSDP(
                model,
                sharding_strategy={
                    "fsdp": ShardingStrategy.FULL_SHARD,
                    "sdp": ShardingStrategy.SHARD_GRAD_OP,
                }[mode],
            )
        """,
        """
        def wrap(model, mode):
            fsdp_kwargs = {"fsdp": {}, "sdp": {"reshard_after_forward": False}}[mode]
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "table, whose keys the command line offers": (
        """
        TABLE = {"fsdp": ShardingStrategy.FULL_SHARD, "sdp": ShardingStrategy.SHARD_GRAD_OP}


        def wrap(model, parser):
            parser.add_argument("--mode", choices=list(TABLE))
            mode = parser.parse_args().mode
            return FSDP(model, sharding_strategy=TABLE.get(mode, ShardingStrategy.FULL_SHARD))
        """,
        """
        TABLE = {"fsdp": {}, "sdp": {"reshard_after_forward": False}}


        def wrap(model, parser):
            parser.add_argument("--mode", choices=list(TABLE))
            mode = parser.parse_args().mode
            fsdp_kwargs = TABLE.get(mode, {})
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "function": (
        """
        def strategy_of(mode):
            if mode == "zero2":
                return ShardingStrategy.SHARD_GRAD_OP
            return ShardingStrategy.FULL_SHARD


        def wrap(model, mode):
            return FSDP(model, sharding_strategy=strategy_of(mode))
        """,
        """
        def strategy_of(mode):
            if mode == "zero2":
                return {"reshard_after_forward": False}
            return {}


        def wrap(model, mode):
            fsdp_kwargs = strategy_of(mode)
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "one of them has a mesh": (
        f"""
        def wrap(model, mode):
            return FSDP(
                model,
                sharding_strategy={{"full": ShardingStrategy.FULL_SHARD, "no": ShardingStrategy.NO_SHARD}}[mode],
                {DEVICE},
            )
        """,
        """
        def wrap(model, mode):
            mesh = None
            if mode == "no":
                # Each rank holds the whole parameters, and gradients are all-reduced.
                shape = (dist.get_world_size(), 1)
                mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            return fully_shard(model, mesh=mesh)
        """,
    ),
    "one of them has a mesh, and all are over one group": (
        f"""
        def wrap(model, mode, groups):
            return FSDP(
                model,
                process_group=groups.data_parallel(),
                sharding_strategy={{"zero2": ShardingStrategy.SHARD_GRAD_OP, "ddp": ShardingStrategy.NO_SHARD}}[mode],
                {DEVICE},
            )
        """,
        """
        def wrap(model, mode, groups):
            fsdp_kwargs = {"zero2": {"reshard_after_forward": False}, "ddp": {}}[mode]
            group = groups.data_parallel()
            mesh = DeviceMesh.from_group(group, "cuda")
            if mode == "ddp":
                # Each rank holds the whole parameters, and gradients are all-reduced.
                mesh = replicate_mesh("cuda", group)
            return fully_shard(model, mesh=mesh, **fsdp_kwargs)
        """,
    ),
    "under several conditions, and some have a mesh": (
        f"""
        def wrap(model, args):
            kwargs = {{}}
            if args.hybrid:
                kwargs["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD
            if args.zero2:
                kwargs["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
            return FSDP(model, auto_wrap_policy=args.policy, **kwargs, {DEVICE})
        """,
        """
        def wrap(model, args):
            strategy = "SHARD_GRAD_OP" if args.zero2 else "HYBRID_SHARD" if args.hybrid else "FULL_SHARD"
            fsdp_kwargs = {
                "FULL_SHARD": {},
                "SHARD_GRAD_OP": {"reshard_after_forward": False},
                "HYBRID_SHARD": {},
            }[strategy]
            if strategy == "HYBRID_SHARD":
                devices = torch.cuda.device_count()  # sharded inside a node, replicated across
                shape = (dist.get_world_size() // devices, devices)
                fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            if args.policy is not None:
                for module in reversed(list(model.modules())):
                    if (
                        module is not model
                        and not isinstance(module, (nn.ModuleList, nn.ModuleDict))
                        and args.policy(module, recurse=False, nonwrapped_numel=0)
                    ):
                        fully_shard(module, **fsdp_kwargs)
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "name that only run time knows, over a group": (
        f"""
        def wrap(model, cfg, group=None):
            return FSDP(model, process_group=group, sharding_strategy=ShardingStrategy[cfg.strategy], {DEVICE})
        """,
        """
        def wrap(model, cfg, group=None):
            fsdp_kwargs = {}
            if cfg.strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
                fsdp_kwargs["reshard_after_forward"] = False
            mesh = mesh_of_group(cfg.strategy, group, "cuda")
            return fully_shard(model, mesh=mesh, **fsdp_kwargs)
        """,
    ),
    "name that only run time knows, over a group or two": (
        f"""
        def wrap(model, cfg, group=None):
            return FSDP(model, process_group=group, sharding_strategy=ShardingStrategy[cfg.strategy], {DEVICE})

        def build(model, cfg, groups):
            return wrap(model, cfg, (groups.shard, groups.replicate))
        """,
        """
        def wrap(model, cfg, group=None):
            fsdp_kwargs = {}
            if cfg.strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
                fsdp_kwargs["reshard_after_forward"] = False
            if isinstance(group, tuple):
                mesh = hsdp_mesh_from_groups(*group, "cuda")
            elif cfg.strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
                raise ValueError("hybrid sharding needs process_group=(shard_group, replicate_group)")
            else:
                mesh = mesh_over_group(cfg.strategy, group, "cuda")
            return fully_shard(model, mesh=mesh, **fsdp_kwargs)

        def build(model, cfg, groups):
            return wrap(model, cfg, (groups.shard, groups.replicate))
        """,
    ),
    "name that only run time knows, over a group each": (
        f"""
        def wrap(model, head, group, head_group, name):
            strategy = getattr(ShardingStrategy, name)
            model = FSDP(model, process_group=group, sharding_strategy=strategy, {DEVICE})
            head = FSDP(head, process_group=head_group, sharding_strategy=strategy, {DEVICE})
            return model, head

        def build(model, name):
            return wrap(model, model.head, dist.new_group([0]), dist.new_group([1]), name)
        """,
        """
        def wrap(model, head, group, head_group, name):
            fully_shard(model, **kwargs_over_group(name, group))
            fully_shard(head, **kwargs_over_group(name, head_group))
            return model, head

        def build(model, name):
            return wrap(model, model.head, dist.new_group([0]), dist.new_group([1]), name)
        """,
    ),
    "table that takes the name of its key": (
        f"""
        def wrap(model, strategy):
            strategy = {{
                "full": ShardingStrategy.FULL_SHARD,
                "zero2": ShardingStrategy.SHARD_GRAD_OP,
                "none": ShardingStrategy.NO_SHARD,
            }}[strategy]
            return FSDP(model, sharding_strategy=strategy, {DEVICE})
        """,
        """
        def wrap(model, strategy):
            fsdp_kwargs = {
                "full": {},
                "zero2": {"reshard_after_forward": False},
                "none": {},
            }[strategy]
            if strategy == "none":
                # Each rank holds the whole parameters, and gradients are all-reduced.
                shape = (dist.get_world_size(), 1)
                fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "table that takes the name of a key that is read below": (
        f"""
        def wrap(model, strategy):
            strategy = {{"zero2": ShardingStrategy.SHARD_GRAD_OP, "none": ShardingStrategy.NO_SHARD}}[strategy]
            print(strategy)
            return FSDP(model, sharding_strategy=strategy, {DEVICE})
        """,
        """
        def wrap(model, strategy):
            strategy = {"zero2": ShardingStrategy.SHARD_GRAD_OP, "none": ShardingStrategy.NO_SHARD}[strategy]
            print(strategy)
            fsdp_kwargs = {
                "FULL_SHARD": {},
                "SHARD_GRAD_OP": {"reshard_after_forward": False},
                "NO_SHARD": {},
            }[strategy.name]
            if strategy.name == "NO_SHARD":
                # Each rank holds the whole parameters, and gradients are all-reduced.
                shape = (dist.get_world_size(), 1)
                fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "look-up of a key that is not seen at the call": (
        f"""
        def chosen(name):
            kinds = {{"zero2": ShardingStrategy.SHARD_GRAD_OP, "none": ShardingStrategy.NO_SHARD}}
            return kinds.get(name, ShardingStrategy.FULL_SHARD)


        def wrap(model, cfg):
            strategy = chosen(cfg.strategy)
            return FSDP(model, sharding_strategy=strategy, {DEVICE})
        """,
        """
        def chosen(name):
            kinds = {"zero2": ShardingStrategy.SHARD_GRAD_OP, "none": ShardingStrategy.NO_SHARD}
            return kinds.get(name, ShardingStrategy.FULL_SHARD)


        def wrap(model, cfg):
            strategy = chosen(cfg.strategy)
            fsdp_kwargs = {
                "FULL_SHARD": {},
                "SHARD_GRAD_OP": {"reshard_after_forward": False},
                "NO_SHARD": {},
            }[strategy.name]
            if strategy.name == "NO_SHARD":
                # Each rank holds the whole parameters, and gradients are all-reduced.
                shape = (dist.get_world_size(), 1)
                fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "name that only run time knows": (
        f"""
        def wrap(model, cfg):
            return FSDP(model, sharding_strategy=ShardingStrategy[cfg.strategy], {DEVICE})
        """,
        """
        def wrap(model, cfg):
            fsdp_kwargs = strategy_kwargs(cfg.strategy)
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "member that only run time knows": (
        f"""
        def wrap(model, cfg):
            return FSDP(model, sharding_strategy=cfg.strategy, {DEVICE})
        """,
        """
        def wrap(model, cfg):
            fsdp_kwargs = strategy_kwargs(cfg.strategy.name if cfg.strategy else "FULL_SHARD")
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "name in a variable": (
        f"""
        def wrap(model, cfg):
            strategy = getattr(ShardingStrategy, cfg.strategy)
            return FSDP(model, sharding_strategy=strategy, {DEVICE})
        """,
        """
        def wrap(model, cfg):
            fsdp_kwargs = strategy_kwargs(cfg.strategy)
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "name that is put together": (
        f"""
        def wrap(model, cfg):
            return FSDP(model, sharding_strategy=ShardingStrategy[f"{{cfg.kind}}_shard".upper()], {DEVICE})
        """,
        """
        def wrap(model, cfg):
            fsdp_kwargs = strategy_kwargs(f"{cfg.kind}_shard".upper())
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "units, and what they are given beside": (
        f"""
        from net import Block
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        def wrap(model, cfg):
            return FSDP(
                model,
                auto_wrap_policy=ModuleWrapPolicy({{Block}}),
                sharding_strategy=ShardingStrategy[cfg.strategy],
                cpu_offload=CPUOffload(offload_params=True),
                {DEVICE},
            )
        """,
        """
        def wrap(model, cfg):
            fsdp_kwargs = strategy_kwargs(cfg.strategy)
            for module in model.modules():
                if module is not model and isinstance(module, Block):
                    fully_shard(module, offload_policy=CPUOffloadPolicy(), **fsdp_kwargs)
            return fully_shard(model, offload_policy=CPUOffloadPolicy(), **fsdp_kwargs)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), BY_FLAG.values(), ids=BY_FLAG)
def test_strategy(before: str, after: str) -> None:
    assert written(before) == code(after)


def test_strategy_that_something_else_reads_is_looked_at() -> None:
    text = written(
        """
        def wrap(model, zero2):
            strategy = ShardingStrategy.SHARD_GRAD_OP if zero2 else ShardingStrategy.FULL_SHARD
            print(strategy)
            return FSDP(model, sharding_strategy=strategy)
        """
    )
    assert "    strategy = ShardingStrategy.SHARD_GRAD_OP if zero2 else ShardingStrategy.FULL_SHARD\n" in text
    assert '"SHARD_GRAD_OP": {"reshard_after_forward": False},\n    }[strategy.name]\n' in text


IN_ATTRIBUTE = {
    "branches": (
        """
        class Trainer:
            def __init__(self, model, mode):
                self.model = model
                if mode == "zero2":
                    self.strategy = ShardingStrategy.SHARD_GRAD_OP
                else:
                    self.strategy = ShardingStrategy.FULL_SHARD

            def wrap(self):
                self.model = FSDP(self.model, sharding_strategy=self.strategy)
        """,
        """
        class Trainer:
            def __init__(self, model, mode):
                self.model = model
                if mode == "zero2":
                    self.fsdp_kwargs = {"reshard_after_forward": False}
                else:
                    self.fsdp_kwargs = {}

            def wrap(self):
                fully_shard(self.model, **self.fsdp_kwargs)
        """,
    ),
    "hybrid ones": (
        f"""
        class Trainer:
            def __init__(self, model, zero2):
                self.model = model
                self._strategy = ShardingStrategy._HYBRID_SHARD_ZERO2 if zero2 else ShardingStrategy.HYBRID_SHARD

            def wrap(self):
                policy = ModuleWrapPolicy({{torch.nn.Linear}})
                self.model = FSDP(self.model, auto_wrap_policy=policy, sharding_strategy=self._strategy, {DEVICE})
        """,
        """
        class Trainer:
            def __init__(self, model, zero2):
                self.model = model
                self._fsdp_kwargs = {"reshard_after_forward": False} if zero2 else {}

            def wrap(self):
                devices = torch.cuda.device_count()  # sharded inside a node, replicated across
                shape = (dist.get_world_size() // devices, devices)
                mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
                for module in self.model.modules():
                    if module is not self.model and isinstance(module, torch.nn.Linear):
                        fully_shard(module, mesh=mesh, **self._fsdp_kwargs)
                fully_shard(self.model, mesh=mesh, **self._fsdp_kwargs)
        """,
    ),
    "a field": (
        """
        @dataclass
        class Config:
            strategy: ShardingStrategy = ShardingStrategy.SHARD_GRAD_OP


        def wrap(model):
            config = Config()
            return FSDP(model, sharding_strategy=config.strategy)
        """,
        """
        @dataclass
        class Config:
            reshard_after_forward: bool = False


        def wrap(model):
            config = Config()
            return fully_shard(model, reshard_after_forward=config.reshard_after_forward)
        """,
    ),
    "a field of several": (
        """
        @dataclass
        class Config:
            strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD


        def wrap(model, small):
            config = Config(strategy=ShardingStrategy.SHARD_GRAD_OP) if small else Config()
            return FSDP(model, sharding_strategy=config.strategy)
        """,
        """
        @dataclass
        class Config:
            strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD


        def wrap(model, small):
            config = Config(strategy=ShardingStrategy.SHARD_GRAD_OP) if small else Config()
            fsdp_kwargs = {
                "FULL_SHARD": {},
                "SHARD_GRAD_OP": {"reshard_after_forward": False},
            }[config.strategy.name]
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "one that something else reads": (
        """
        class Trainer:
            def __init__(self, zero2):
                self.strategy = ShardingStrategy.SHARD_GRAD_OP if zero2 else ShardingStrategy.FULL_SHARD

            def wrap(self, model):
                print(self.strategy)
                return FSDP(model, sharding_strategy=self.strategy)
        """,
        """
        class Trainer:
            def __init__(self, zero2):
                self.strategy = ShardingStrategy.SHARD_GRAD_OP if zero2 else ShardingStrategy.FULL_SHARD

            def wrap(self, model):
                print(self.strategy)
                fsdp_kwargs = {
                    "FULL_SHARD": {},
                    "SHARD_GRAD_OP": {"reshard_after_forward": False},
                }[self.strategy.name]
                return fully_shard(model, **fsdp_kwargs)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), IN_ATTRIBUTE.values(), ids=IN_ATTRIBUTE)
def test_strategy_in_an_attribute(before: str, after: str) -> None:
    head = "from dataclasses import dataclass\n" + HEAD + "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n"
    assert written(before, head) == code(after)


UNSEEN_ATTRIBUTES = {
    "by a computed name": "    for name, value in options.items():\n        setattr(config, name, value)\n",
    "by the name in a string": '    setattr(config, "strategy", options)\n',
    "by keywords nobody spells out": "    config = Config(**options)\n",
    "by place": "    config = Config(options)\n",
    "by the dict of the object": "    config.__dict__.update(options)\n",
    "by vars": "    vars(config).update(options)\n",
    "by a copy": "    import dataclasses\n    config = dataclasses.replace(config, strategy=options)\n",
    "by a library's object": "    import types\n    config = types.SimpleNamespace(strategy=options)\n",
    "by a command line": "    config = parse(Config, options)\n",
    "by a value that is not seen": "    config.strategy = options\n",
    "by a tuple": "    config.strategy, _ = options\n",
}


@pytest.mark.parametrize("line", UNSEEN_ATTRIBUTES.values(), ids=UNSEEN_ATTRIBUTES)
def test_attribute_that_may_be_set_in_another_way(line: str) -> None:
    config = """
    @dataclass
    class Config:
        strategy: ShardingStrategy = ShardingStrategy.SHARD_GRAD_OP


    def wrap(model, options):
        config = Config()
    """
    call = f"    return FSDP(model, sharding_strategy=config.strategy, {DEVICE})\n"
    text = rewrite(HEAD + "from dataclasses import dataclass\n\n" + code(config) + line + call).text
    assert 'strategy_kwargs(config.strategy.name if config.strategy else "FULL_SHARD")' in text
    assert "    strategy: ShardingStrategy = ShardingStrategy.SHARD_GRAD_OP\n" in text


def test_settings_that_are_set_under_names_that_nobody_sees() -> None:
    """What `__init__` stores is not all: `configs()` may set each of them."""
    text = """
    class Config:
        def __init__(self):
            self.mixed_precision = None
            self.sync = False


    def configs(choices):
        for values in choices:
            config = Config()
            for name, value in values.items():
                setattr(config, name, value)
            yield config


    def main(net, choices):
        for config in configs(choices):
            FSDP(net, mixed_precision=config.mixed_precision, sync_module_states=config.sync)
    """
    made = rewrite(HEAD + code(text)).text
    assert "mixed_precision=config.mixed_precision, sync_module_states=config.sync)" in made


def test_strategy_of_another_file_is_chosen_there() -> None:
    result = rewrite_files(
        {
            "train.py": HEAD + "from strategies import of\n\n\ndef wrap(model, mode):\n"
            "    return FSDP(model, sharding_strategy=of(mode))\n",
            "strategies.py": "from torch.distributed.fsdp import ShardingStrategy\n\n\ndef of(mode):\n"
            "    return ShardingStrategy.SHARD_GRAD_OP if mode else ShardingStrategy.FULL_SHARD\n",
        }
    )
    assert result.after["strategies.py"].endswith('    return {"reshard_after_forward": False} if mode else {}\n')
    assert "    fsdp_kwargs = of(mode)\n    return fully_shard(model, **fsdp_kwargs)\n" in result.after["train.py"]
    assert result.support == frozenset()


SPLATS = {
    "display": (
        """
        def wrap(model):
            settings = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)
            return FSDP(model, **settings)
        """,
        """
        def wrap(model):
            return fully_shard(model, reshard_after_forward=False)
        """,
    ),
    "updated under a flag": (
        """
        def wrap(model, args):
            settings = {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
            if args.bf16:
                settings["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16)
            if args.offload:
                settings.update(cpu_offload=CPUOffload(offload_params=True))
            return FSDP(model, **settings)
        """,
        """
        def wrap(model, args):
            mp_policy = MixedPrecisionPolicy()
            if args.bf16:
                mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
            return fully_shard(
                model,
                mp_policy=mp_policy,
                reshard_after_forward=False,
                offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy(),
            )
        """,
    ),
    "either way": (
        """
        def wrap(model, args):
            settings = {}
            if args.zero2:
                settings["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
            else:
                settings["sharding_strategy"] = ShardingStrategy.FULL_SHARD
            return FSDP(model, **settings)
        """,
        """
        def wrap(model, args):
            fsdp_kwargs = {"reshard_after_forward": False} if args.zero2 else {}
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "one dict in another": (
        """
        def wrap(model, zero2):
            shared = dict(use_orig_params=True)
            return FSDP(model, **{**shared, "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP})
        """,
        """
        def wrap(model, zero2):
            return fully_shard(model, reshard_after_forward=False)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), SPLATS.values(), ids=SPLATS)
def test_splat_that_is_spelled_out(before: str, after: str) -> None:
    assert written(before) == code(after)


def test_one_mesh_for_the_branches_that_take_a_choice() -> None:
    text = (
        HEAD
        + f"""\
def wrap(model, mode, size):
    strategy = {{"zero2": ShardingStrategy.SHARD_GRAD_OP, "none": ShardingStrategy.NO_SHARD}}[mode]
    if size:
        model.body = FSDP(model.body, sharding_strategy=strategy, {DEVICE})
    else:
        model = FSDP(model, sharding_strategy=strategy, {DEVICE})
    return model
"""
    )
    result = rewrite(text)
    assert result.text.count("init_device_mesh(") == 1
    assert '    if mode == "none":\n        # Each rank' in result.text
    assert "        fully_shard(model, **strategy)\n" in result.text
    for other in ("    torch.cuda.set_device(mode)\n", "    print(FSDP(mode, process_group=mode))\n"):
        assert rewrite(text.replace("    if size", f"{other}    if size")).text.count("init_device_mesh(") == 2


UPDATED = """\
def wrap(model, ema, mode, units):
    net = model
    if mode == "fsdp":
        settings = dict(
            auto_wrap_policy=ModuleWrapPolicy(units[0]),
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            param_init_fn=lambda m: net.fill(m),
        )
        settings.update(param_init_fn=None)
        model = FSDP(net, **settings)
    net = ema
    print(net)
    if mode == "fsdp":
        settings.update(sharding_strategy=ShardingStrategy.FULL_SHARD)
        settings.update(auto_wrap_policy=None, cpu_offload=CPUOffload(offload_params=True))
        ema = FSDP(net, **settings)
    return model, ema
"""


def test_splat_that_is_updated_for_the_next_call() -> None:
    head = HEAD + "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n\n"
    result = rewrite(head + UPDATED)
    assert result.support == frozenset()
    assert "settings" not in result.text
    assert "    ema = fully_shard(net, offload_policy=CPUOffloadPolicy())\n" in result.text
    assert "    model = fully_shard(net, reshard_after_forward=False)\n" in result.text


def test_splat_that_is_updated_under_another_condition() -> None:
    text = UPDATED.replace("    print(net)\n    if mode", "    print(net)\n    mode = mode.lower()\n    if mode")
    head = HEAD + "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n\n"
    function = rewrite(head + text).text.partition("def shard(module):\n")[2].partition("return")[0]
    assert '        policy = settings["auto_wrap_policy"]\n' in function
    assert '        initialize_unit(module, settings["param_init_fn"])\n' in function


def test_an_update_of_which_nothing_is_left_goes() -> None:
    text = """\
def settings_for(lora):
    settings = {"limit_all_gathers": True}
    if lora:
        settings.update({
            "use_orig_params": True,
        })
    return settings


def wrap(model):
    settings = settings_for(True)
    return FSDP(model, **settings)
"""
    assert "def settings_for():\n    settings = {}\n    return settings\n" in rewrite(HEAD + text).text
    said = text.replace('            "use', '            # peft asks for it\n            "use')
    assert "# peft asks for it" in rewrite(HEAD + said).text


DEFAULTS = {
    "a new one": ("", "", "fully_shard(model, reshard_after_forward=False)"),
    "one that is there": ("sharding_strategy=ShardingStrategy.FULL_SHARD", "", "fully_shard(model)"),
    "one that is None": ("sharding_strategy=None", "", "fully_shard(model)"),
    "under a condition": ("", "if small:\n        ", "fully_shard(model, **fsdp_kwargs)"),
}


@pytest.mark.parametrize(("there", "test", "written"), DEFAULTS.values(), ids=DEFAULTS)
def test_a_default_of_a_splat_is_given_where_it_has_none(there: str, test: str, written: str) -> None:
    default = 'settings.setdefault("sharding_strategy", ShardingStrategy.SHARD_GRAD_OP)'
    above = f"def wrap(model, small):\n    settings = dict({there})\n    {test}{default}\n"
    result = rewrite(f"{HEAD}{above}    return FSDP(model, **settings)\n")
    assert result.text.endswith(f"    return {written}\n")
    assert "settings" not in result.text
    assert ("if small" in result.text) == bool(test)


def test_a_default_of_what_may_be_there_is_read_at_run_time() -> None:
    text = """\
def wrap(model, small):
    settings = {}
    if small:
        settings["sharding_strategy"] = ShardingStrategy.NO_SHARD
    settings.setdefault("sharding_strategy", ShardingStrategy.SHARD_GRAD_OP)
    return FSDP(model, **settings)
"""
    assert 'settings.get("sharding_strategy")' in rewrite(HEAD + text).text


def test_splat_that_is_updated_for_the_next_turn() -> None:
    text = """\
def wrap(models):
    settings = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    for model in models:
        FSDP(model, **settings)
        settings.update(sharding_strategy=ShardingStrategy.FULL_SHARD)
"""
    assert "fully_shard(model, reshard_after_forward=False)" not in rewrite(HEAD + text).text
    alone = text.replace("        settings.update(sharding_strategy=ShardingStrategy.FULL_SHARD)\n", "")
    assert "fully_shard(model, reshard_after_forward=False)" in rewrite(HEAD + alone).text


UNREAD = """\
    unread = [name for name, value in {}.items() if value is not None and name not in known]
    if unread:
        raise TypeError(f"not read for FSDP2: {{unread}}")
"""
UNSEEN = {
    "changed elsewhere": "def wrap(model):\n    settings = {}\n    configure(settings)\n",
    "handed to something else": "def wrap(model):\n    settings = {}\n    other = settings\n    fill(other)\n",
}


@pytest.mark.parametrize("above", UNSEEN.values(), ids=UNSEEN)
def test_splat_that_is_not_seen_whole(above: str) -> None:
    """What the program names of FSDP1's is read, and the rest refused; what others pass, the support module reads."""
    text = rewrite(HEAD + above + "    return FSDP(model, **settings)\n").text
    assert '    if settings.get("sync_module_states"):\n' in text
    assert UNREAD.format("settings") in text
    passed = "def wrap(model, **settings):\n    return FSDP(model, **settings)\n"
    assert "    return shard_model(model, **settings)\n" in rewrite(HEAD + passed).text


def test_variables_go_with_the_splat_that_took_them() -> None:
    text = written(
        """
        def wrap(model):
            offload = CPUOffload(offload_params=True)
            settings = dict(cpu_offload=offload)
            return FSDP(model, **settings)
        """
    )
    assert text == "def wrap(model):\n    return fully_shard(model, offload_policy=CPUOffloadPolicy())\n"


def test_splat_that_is_filled_elsewhere_is_read_entry_by_entry() -> None:
    result = rewrite_files(
        {
            "train.py": HEAD + "from settings import settings_of\n\n\ndef wrap(model, args):\n"
            "    settings, count = settings_of(args)\n    return FSDP(model, **settings)\n",
            "settings.py": "from torch.distributed.fsdp import CPUOffload\n\n\ndef settings_of(args):\n"
            '    found = {"cpu_offload": CPUOffload(args.offload), "use_orig_params": True}\n'
            '    if args.sync:\n        found["sync_module_states"] = True\n    return found, len(found)\n',
        }
    )
    assert result.support == frozenset()
    assert result.after["settings.py"] == result.before["settings.py"]
    assert result.after["train.py"].endswith(
        code(
            """
            def wrap(model, args):
                settings, count = settings_of(args)
                if settings.get("sync_module_states"):
                    for tensor in (*model.parameters(), *model.buffers()):
                        dist.broadcast(tensor.detach(), src=0)
                cpu_offload = settings["cpu_offload"]
                offload_policy = (
                    CPUOffloadPolicy() if cpu_offload and cpu_offload.offload_params else OffloadPolicy()
                )
                return fully_shard(model, offload_policy=offload_policy)
            """
        )
    )


HANDED = """\
def wrap(model, settings):
    return FSDP(model, **settings)


def main(args, model):
    given = dict(cpu_offload=CPUOffload(args.offload), use_orig_params=True)
    if args.sync:
        given["sync_module_states"] = True
    return wrap(model, given)
"""


def test_dict_that_the_calls_of_the_function_hand_in_is_read_entry_by_entry() -> None:
    text = rewrite(HEAD + HANDED).text
    assert '    if settings.get("sync_module_states"):\n' in text
    assert '    cpu_offload = settings["cpu_offload"]\n' in text
    assert "    return fully_shard(model, offload_policy=offload_policy)\n" in text
    assert text.endswith(HANDED[HANDED.index("def main") :])


ON_THE_WAY = {
    "at the top": "GIVEN = {'cpu_offload': None}\nGIVEN['sync_module_states'] = True\nwrap(net, GIVEN)\n",
    "through another function": """\
def between(model, more):
    more["sync_module_states"] = True
    return wrap(model, more)


def main(net):
    return between(net, {"cpu_offload": None})
""",
    "from a function": """\
def made(args):
    return {"cpu_offload": None}


def main(args):
    given = made(args)
    given["sync_module_states"] = True
    return wrap(net, given)
""",
    "in an attribute": """\
class Trainer:
    def __init__(self):
        self.given = {"cpu_offload": None}

    def sync(self):
        self.given["sync_module_states"] = True

    def build(self, net):
        self.sync()
        return wrap(net, self.given)
""",
    "to a class": """\
class Trainer:
    def __init__(self, net, given):
        given["sync_module_states"] = True
        self.model = wrap(net, given)


def main(net):
    made = {"cpu_offload": None}
    return Trainer(net, made)
""",
}


@pytest.mark.parametrize("text", ON_THE_WAY.values(), ids=ON_THE_WAY)
def test_entry_that_a_dict_takes_up_on_its_way(text: str) -> None:
    """None of it was seen outside of the two functions that make the dict and spread it: it was left out."""
    result = rewrite(HEAD + HANDED[: HANDED.index("def main")] + text)
    assert '    if settings.get("sync_module_states"):\n' in result.text
    assert result.support == frozenset()


LOST = {
    "another function has it too": (
        "    return wrap(model, given)",
        "    path.fill(given)\n    return wrap(model, given)",
    ),
    "another name": (
        "    return wrap(model, given)",
        "    more = given\n    more.update(args)\n    return wrap(model, given)",
    ),
    "another function has what a function returned": (
        "    return wrap(model, given)",
        "    return given\n\n\ndef build(args, model):\n    given = main(args, model)\n    model.fill(given)\n"
        "    return wrap(model, given)",
    ),
    "handed on": ("    return FSDP(", "    model.fill(settings)\n    return FSDP("),
    "an entry that goes": ("    return FSDP(", '    del settings["cpu_offload"]\n    return FSDP('),
    "more entries at once": ("    return FSDP(", "    settings |= args.more\n    return FSDP("),
    "one of two functions": (
        "    return wrap(model, given)\n",
        "    return (wrap if args.one else other)(model, given)\n\n\ndef other(model, given):\n"
        "    given[args.key] = True\n    return model\n",
    ),
}


@pytest.mark.parametrize(("old", "new"), LOST.values(), ids=LOST)
def test_dict_that_is_handed_in_and_not_seen_whole(old: str, new: str) -> None:
    assert old in HANDED
    assert UNREAD.format("settings") in rewrite(HEAD + HANDED.replace(old, new)).text


def test_precision_that_is_made_out_of_sight_of_its_wrap_stays_as_it_is() -> None:
    text = rewrite(
        HEAD
        + code(
            """
            def wrap(model, config):
                return FSDP(model, mixed_precision=config.precision)


            def main(config):
                config.update(precision=MixedPrecision(param_dtype=torch.bfloat16))
            """
        )
    ).text
    made = """
    mp_policy = MixedPrecisionPolicy()
    if config.precision is not None:
        mp_policy = MixedPrecisionPolicy(
            param_dtype=config.precision.param_dtype, reduce_dtype=config.precision.reduce_dtype
        )
"""
    assert made in text
    assert "config.update(precision=MixedPrecision(param_dtype=torch.bfloat16))\n" in text


def test_splat_of_a_dict_of_the_class_is_read_entry_by_entry() -> None:
    result = rewrite_files(
        {
            "core.py": "from torch.distributed.fsdp import ShardingStrategy\n\n\nclass Core:\n"
            '    defaults = {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "cpu_offload": None}\n',
            "train.py": HEAD
            + code(
                f"""
                from core import Core


                class Trainer(Core):
                    def wrap(self, model):
                        return FSDP(model, **self.defaults, {DEVICE})


                def main():
                    trainer = Trainer()
                    trainer.defaults["sharding_strategy"] = ShardingStrategy.NO_SHARD
                    return trainer
                """
            ),
        }
    )
    assert result.support == frozenset()
    assert (
        code(
            """
            class Trainer(Core):
                def wrap(self, model):
                    strategy = self.defaults["sharding_strategy"]
                    fsdp_kwargs = {
                        "FULL_SHARD": {},
                        "SHARD_GRAD_OP": {"reshard_after_forward": False},
                        "NO_SHARD": {},
                    }[strategy.name]
                    if strategy.name == "NO_SHARD":
                        # Each rank holds the whole parameters, and gradients are all-reduced.
                        shape = (dist.get_world_size(), 1)
                        fsdp_kwargs["mesh"] = init_device_mesh(
                            "cuda", shape, mesh_dim_names=("replicate", "shard")
                        )
                    return fully_shard(model, **fsdp_kwargs)
            """
        )
        in result.after["train.py"]
    )


CLASS_DICT = """\
class Core:
    defaults = {
        "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP,  # ZeRO 2
        "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True),
        "limit_all_gathers": True,
    }

    def wrap(self, model):
        return FSDP(model, **self.defaults)
"""


def test_dict_of_the_class_that_only_constructor_calls_read() -> None:
    assert written(CLASS_DICT) == code(
        """
        class Core:
            defaults = {
                "reshard_after_forward": False,  # ZeRO 2
                "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16),
            }

            def wrap(self, model):
                return fully_shard(model, **self.defaults)
        """
    )


OTHER_READERS = {
    "an entry": '    print(core.defaults["mixed_precision"])\n',
    "the whole dict": "    print(core.defaults)\n",
    "its entries in turn": "    for name, value in core.defaults.items():\n        print(name, value)\n",
    "another function": "    configure(**core.defaults)\n",
}


@pytest.mark.parametrize("reader", OTHER_READERS.values(), ids=OTHER_READERS)
def test_dict_of_the_class_that_something_else_reads(reader: str) -> None:
    text = rewrite(HEAD + CLASS_DICT + "\n\ndef main():\n    core = Core()\n" + reader).text
    assert "MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True)" in text
    assert 'mixed_precision = self.defaults["mixed_precision"]\n' in text


def test_dict_of_the_class_that_shard_model_reads() -> None:
    text = written(CLASS_DICT + "\n\ndef main():\n    return FSDP(torch.nn.ModuleDict(), **Core.defaults)\n")
    assert "MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True)" in text
    assert "shard_model(torch.nn.ModuleDict(), **Core.defaults)\n" in text


def test_flags_that_say_what_is_so_anyway_are_not_asked_for() -> None:
    text = written(CLASS_DICT.replace("=True)", "=False)") + "\n\nprint(Core.defaults)\n")
    assert "unit_mp_policy" not in text
    taken = "MixedPrecisionPolicy(\n            param_dtype=mixed_precision.param_dtype, reduce_dtype"
    assert f"        mp_policy = {taken}" in text


def test_strategy_of_the_class_is_known_whoever_reads_it() -> None:
    reader = '\n\ndef main():\n    print(Core.defaults["sharding_strategy"])\n'
    text = written(CLASS_DICT + reader)
    assert '"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP,  # ZeRO 2\n' in text
    assert "fully_shard(model, mp_policy=mp_policy, reshard_after_forward=False)\n" in text


def test_dict_that_a_function_returns_holds_policies() -> None:
    text = """
        def settings_of(strategy, offload):
            if strategy == "full":
                strategy = ShardingStrategy.FULL_SHARD
            elif strategy == "zero2":
                strategy = ShardingStrategy.SHARD_GRAD_OP
            offload = CPUOffload(offload_params=True) if offload else None
            return {"sharding_strategy": strategy, "cpu_offload": offload, "use_orig_params": True}


        def wrap(model, args):
            settings = settings_of(args.strategy, args.offload)
            return FSDP(model, **settings)
        """
    assert written(text) == code(
        """
        def settings_of(strategy, offload):
            if strategy == "full":
                shard_kwargs = {}
            elif strategy == "zero2":
                shard_kwargs = {"reshard_after_forward": False}
            offload_policy = CPUOffloadPolicy() if offload else OffloadPolicy()
            return {**shard_kwargs, "offload_policy": offload_policy}


        def wrap(model, args):
            settings = settings_of(args.strategy, args.offload)
            return fully_shard(model, **settings)
        """
    )


SETTINGS = """\
import functools

import torch
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from net import Block


def settings_of(mode):
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    if mode == "full":
        mode = ShardingStrategy.FULL_SHARD
    elif mode == "none":
        mode = ShardingStrategy.NO_SHARD
        policy = None
    precision = MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True)
    device = torch.cuda.current_device()
    return {"auto_wrap_policy": policy, "sharding_strategy": mode, "mixed_precision": precision, "device_id": device}
"""
WRAPS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from settings import settings_of


def wrap(model, teacher, mode):
    kwargs = settings_of(mode)
    model = FSDP(model, **kwargs)
    teacher = FSDP(teacher, **kwargs)
    return model, teacher
"""
LOOPS = """\
    shard(model, **kwargs)
    shard(teacher, **kwargs)
    return model, teacher
"""
BESIDE_MAKER = """\
def shard(model, unit_classes, **fsdp_kwargs):
    for module in model.modules():
        if module is not model and isinstance(module, unit_classes):
            fully_shard(module, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
"""


HANDED_ON = """
def wrap(net, **kwargs):
    {}return FSDP(net, {}**kwargs)


def main(net, other, args):
    net = wrap(net, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)
    other = wrap(other{})
    return net, other, args
"""
SEEN = [
    pytest.param("", "", "", True, id="of which one gives nothing"),
    pytest.param("print(net)\n    ", "", ", use_orig_params=args.x", True, id="of which both give some"),
    pytest.param("", "", ", **args.more", False, id="of which one is not spelled out"),
    pytest.param("kwargs.pop('x', None)\n    ", "", "", False, id="that it changes"),
    pytest.param("print(kwargs)\n    ", "", "", False, id="that something else gets hold of"),
    pytest.param("late = lambda: kwargs.clear()\n    ", "", "", False, id="that a function inside gets hold of"),
    pytest.param("def late(**kwargs):\n        kwargs.clear()\n\n    ", "", "", True, id="of a name it has inside"),
]


@pytest.mark.parametrize(("above", "before", "more", "is_all"), SEEN)
def test_what_callers_give_beyond_the_parameters(above: str, before: str, more: str, is_all: bool) -> None:
    """Where more may be there, that is refused."""
    imported = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n"
    result = rewrite(imported + HANDED_ON.format(above, before, more))
    assert 'kwargs.get("sharding_strategy")' in result.text
    assert ("    if unread:\n        raise TypeError(" in result.text) != is_all


def test_a_function_for_other_files_may_be_given_anything() -> None:
    imported = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n"
    helper, _, main = (imported + HANDED_ON.format("", "", "")).partition("\n\ndef main")
    main = "from helper import wrap\nfrom torch.distributed.fsdp import ShardingStrategy\n\n\ndef main" + main
    text = rewrite_files({"helper.py": helper + "\n", "train.py": main}).after["helper.py"]
    assert "    unread = kwargs.keys() - {" in text


def test_a_function_that_is_handed_on_may_be_given_anything() -> None:
    imported = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n"
    result = rewrite(imported + HANDED_ON.format("", "", "") + "\n\ndef late(run):\n    run(wrap)\n")
    assert "    unread = kwargs.keys() - {" in result.text


def test_a_device_out_of_a_dict_is_set() -> None:
    """One that may be None, or may lack, where there is one."""
    this_rank = SETTINGS.replace("torch.cuda.current_device()", "torch.distributed.get_rank()")
    result = rewrite_files({"settings.py": this_rank, "train.py": WRAPS})
    shard = BESIDE_MAKER.replace("unit_classes, **", "unit_classes, device_id, **").replace(
        "    for module", "    torch.cuda.set_device(device_id)\n    for module"
    )
    assert result.after["settings.py"].endswith(shard)
    assert LOOPS in result.after["train.py"]
    may_be_none = SETTINGS.replace("torch.cuda.current_device()", "1 if mode else None")
    result = rewrite_files({"settings.py": may_be_none, "train.py": WRAPS})
    assert result.support == frozenset()
    assert "    if device_id is not None:\n        torch.cuda.set_device(device_id)\n" in result.after["settings.py"]
    is_set = "import torch\n\n\ndef start(rank):\n    torch.cuda.set_device(rank)\n"
    others = {"settings.py": may_be_none, "train.py": WRAPS.replace("from settings", "import start\nfrom settings")}
    assert rewrite_files({**others, "start.py": is_set}).support == frozenset()


def test_a_device_that_a_dict_may_lack() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def wrap(model, **kwargs):
            return FSDP(model, **kwargs)


        def main(model, args, rank):
            kwargs = {"use_orig_params": True}
            if args.gpu:
                kwargs["device_id"] = rank
            return wrap(model, **kwargs)
        """
    )
    result = rewrite(text)
    assert result.support == frozenset()
    assert (
        '    device_id = kwargs.get("device_id")\n'
        "    if device_id is not None:\n"
        "        torch.cuda.set_device(device_id)\n"
    ) in result.text


def test_dict_of_another_file_goes_on_without_its_policy() -> None:
    result = rewrite_files({"settings.py": SETTINGS, "train.py": WRAPS})
    assert LOOPS in result.after["train.py"]
    assert result.after["settings.py"].endswith(
        code(
            """
            def settings_of(mode):
                unit_classes = (Block,)
                if mode == "full":
                    mesh = None
                elif mode == "none":
                    mesh = init_device_mesh(
                        "cuda", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")
                    )
                    unit_classes = ()
                precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
                return {"unit_classes": unit_classes, "mesh": mesh, "mp_policy": precision}
            """
        )
        + "\n\n"
        + BESIDE_MAKER
    )
    assert "from settings import settings_of, shard\n" in result.after["train.py"]
    assert "import torch.distributed as dist\n" in result.after["settings.py"]


ONE_EACH = WRAPS.replace("    teacher = FSDP(teacher, **kwargs)\n", "")


def test_calls_of_several_files_share_a_function() -> None:
    names = ONE_EACH.replace("model", "module").replace("kwargs", "given")
    result = rewrite_files({"settings.py": SETTINGS, "train.py": ONE_EACH, "tune.py": names})
    assert result.after["settings.py"].count("def shard(model, unit_classes, **fsdp_kwargs):\n") == 1
    assert "    shard(model, **kwargs)\n    return model" in result.after["train.py"]
    assert "    shard(module, **given)\n    return module" in result.after["tune.py"]
    assert "fully_shard" not in result.after["train.py"]


def test_shared_function_has_a_name_of_its_own() -> None:
    named = WRAPS.replace("    kwargs =", "    shard = 1\n    kwargs =")
    result = rewrite_files({"settings.py": SETTINGS, "train.py": named})
    assert "def shard_module(model, unit_classes, **fsdp_kwargs):\n" in result.after["settings.py"]


TWO_MAKERS = (
    SETTINGS
    + "\n\n"
    + code(
        """
        def settings_of_teacher():
            policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            precision = MixedPrecision(reduce_dtype=torch.bfloat16, cast_forward_inputs=True)
            return {"auto_wrap_policy": policy, "mixed_precision": precision, "sync_module_states": True}, 1
        """
    )
)
TWO_DICTS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from settings import settings_of, settings_of_teacher


def wrap(model, teacher, mode):
    kwargs = settings_of(mode)
    model = FSDP(model, **kwargs)
    kwargs, _ = settings_of_teacher()
    teacher = FSDP(teacher, **kwargs)
    return model, teacher
"""


def test_policy_that_only_a_dict_that_goes_on_reads() -> None:
    """It was taken for a member of a list of policies, and its line went: an error of the tool's own."""
    wraps = TWO_DICTS.replace("    kwargs = settings_of(mode)\n    model = FSDP(model, **kwargs)\n", "")
    result = rewrite_files({"settings.py": TWO_MAKERS, "train.py": wraps})
    assert "    unit_classes = (Block,)\n    precision = " in result.after["settings.py"]


def test_functions_beside_two_makers_have_two_names() -> None:
    """Of one name, the second one would have been called for both."""
    result = rewrite_files({"settings.py": TWO_MAKERS, "train.py": TWO_DICTS, "tune.py": TWO_DICTS})
    assert "def shard(model, unit_classes, **fsdp_kwargs):\n" in result.after["settings.py"]
    assert "def shard_module(model, unit_classes, sync_module_states, **fsdp_kwargs):\n" in result.after["settings.py"]
    assert "    shard(model, **kwargs)\n" in result.after["train.py"]
    assert "    shard_module(teacher, **kwargs)\n" in result.after["train.py"]


def test_a_maker_that_is_imported_below_from_the_same_module() -> None:
    below = TWO_DICTS.replace(", settings_of_teacher\n", "\n").replace(
        "    kwargs, _", "    from settings import settings_of_teacher\n\n    kwargs, _"
    )
    result = rewrite_files({"settings.py": TWO_MAKERS, "train.py": below, "tune.py": below})
    assert "    shard_module(teacher, **kwargs)\n" in result.after["train.py"]


def test_dict_that_comes_by_a_name_that_is_bound_again() -> None:
    """A tuple that binds the name of another dict reads none."""
    text = TWO_DICTS.replace("kwargs = settings_of(mode)", "kwargs, _ = settings_of(mode), 0")
    wraps = text.replace("settings_of(mode), 0", "settings_of(mode)")
    maker = TWO_MAKERS.replace('"device_id": device}\n', '"device_id": device}, 2\n')
    result = rewrite_files({"settings.py": maker, "train.py": wraps, "tune.py": wraps})
    assert "    shard(model, **kwargs)\n" in result.after["train.py"]
    assert "ShardingStrategy" not in result.after["settings.py"]


MAY_SAY = SETTINGS.replace("    return {", "    kwargs = {") + (
    "    if torch.cuda.is_available():\n"
    '        kwargs.update({"use_orig_params": False, "forward_prefetch": True})\n'
    "    return kwargs\n"
)


def test_calls_that_say_besides_what_fsdp2_needs_none_of() -> None:
    """Whether a call or the dict says `use_orig_params`, the dict is the same."""
    says = ONE_EACH.replace("**kwargs", "**kwargs, use_orig_params=True")
    result = rewrite_files({"settings.py": MAY_SAY, "train.py": says, "tune.py": ONE_EACH})
    assert "def shard(model, unit_classes, **fsdp_kwargs):\n" in result.after["settings.py"]
    assert "use_orig_params" not in result.after["settings.py"]
    assert "    shard(model, **kwargs)\n" in result.after["train.py"]


def test_calls_that_say_besides_what_fsdp2_needs() -> None:
    """The dict of one is not that of the other."""
    syncs = MAY_SAY.replace("use_orig_params", "sync_module_states")
    says = ONE_EACH.replace("**kwargs", "**kwargs, sync_module_states=True")
    result = rewrite_files({"settings.py": syncs, "train.py": says, "tune.py": ONE_EACH})
    assert "def shard" not in result.after["settings.py"]
    assert 'policy = kwargs["auto_wrap_policy"]\n' in result.after["tune.py"]


ALONE = {
    "one call": ONE_EACH,
    "a maker that is imported with its module": WRAPS.replace(
        "from settings import settings_of", "import settings"
    ).replace("settings_of(", "settings.settings_of("),
    "a maker that is imported where it is used": WRAPS.replace("from settings import settings_of\n", "").replace(
        "    kwargs", "    from settings import settings_of\n\n    kwargs"
    ),
}


@pytest.mark.parametrize("wraps", ALONE.values(), ids=ALONE)
def test_calls_that_share_no_function(wraps: str) -> None:
    result = rewrite_files({"settings.py": SETTINGS, "train.py": wraps})
    assert "def shard" not in result.after["settings.py"]
    assert 'unit_classes = kwargs.pop("unit_classes")\n' in result.after["train.py"]


DOES_NOT_GO_ON = {
    "something reads it behind": ("    return model", "    print(kwargs)\n    return model"),
    "something reads it between": ("    teacher = FSDP", "    print(kwargs)\n    teacher = FSDP"),
    "a loop": ("    model = FSDP", "    for _ in range(2):\n      model = FSDP"),
    "another call needs an entry": ("    return model", "    settings_of(mode)['device_id']\n    return model"),
    "another call goes the other way": (
        "    return model",
        "    import torch\n\n    FSDP(torch.nn.ModuleDict(), **settings_of(mode))\n    return model",
    ),
    "the calls stand in two branches": (
        "    model = FSDP(model, **kwargs)\n",
        "    if mode:\n        model = FSDP(model, **kwargs)\n",
    ),
    "a caller may have made it": (
        "mode):\n    kwargs = settings_of(mode)\n",
        "mode, kwargs=None):\n    if kwargs is None:\n        kwargs = settings_of(mode)\n",
    ),
    "a function remembers the dict": None,
}


@pytest.mark.parametrize("change", DOES_NOT_GO_ON.values(), ids=DOES_NOT_GO_ON)
def test_dict_that_something_else_reads_stays_whole(change: tuple[str, str] | None) -> None:
    settings, wraps = SETTINGS, WRAPS
    if change is None:
        settings = settings.replace("def settings_of", "@functools.lru_cache\ndef settings_of")
    else:
        assert change[0] in wraps
        wraps = wraps.replace(*change)
    result = rewrite_files({"settings.py": settings, "train.py": wraps})
    assert ".pop(" not in result.after["train.py"]
    assert '"auto_wrap_policy": ' in result.after["settings.py"]


def test_calls_that_ask_for_different_entries_read_the_dict_as_it_is() -> None:
    """Of a model that is seen to have no buffers the policy is not asked for what they are cast to."""
    settings = SETTINGS.replace("torch.bfloat16,", "torch.bfloat16, buffer_dtype=torch.bfloat16,")
    other = WRAPS.replace("FSDP(teacher, **kwargs)", "teacher.eval()")
    linear = other.replace("    kwargs =", "    import torch\n\n    model = torch.nn.Linear(2, 2)\n    kwargs =")
    one = rewrite_files({"settings.py": settings, "one.py": linear}).after["one.py"]
    assert one.count("kwargs.pop(") == 1
    both = rewrite_files({"settings.py": settings, "one.py": linear, "two.py": other})
    assert ".pop(" not in both.after["one.py"] + both.after["two.py"]


IMPORTED = {
    "settings.py": "from torch.distributed.fsdp import CPUOffload, ShardingStrategy\n\n\n"
    'kwargs = {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "cpu_offload": CPUOffload(True)}\n',
    "train.py": HEAD
    + code(
        f"""
        from settings import kwargs
        from other import more


        def wrap(model):
            more()
            return FSDP(model, **kwargs, {DEVICE})
        """
    ),
    "other.py": "from settings import kwargs\n\n\ndef more():\n    {}\n",
}


def test_splat_of_a_dict_of_another_module_is_read_entry_by_entry() -> None:
    files = {**IMPORTED, "other.py": IMPORTED["other.py"].format("print(kwargs)")}
    result = rewrite_files(files)
    assert "fully_shard(model, reshard_after_forward=False, offload_policy=offload_policy)" in result.after["train.py"]
    assert result.support == frozenset()
    stored = {**files, "other.py": files["other.py"].replace("print(kwargs)", 'kwargs["forward_prefetch"] = True')}
    assert rewrite_files(stored).support == frozenset()
    precise = {**files, "settings.py": files["settings.py"].replace("CPUOffload, ", "CPUOffload, MixedPrecision, ")}
    precise["settings.py"] += "import torch\n\nkwargs['mixed_precision'] = MixedPrecision(torch.bfloat16)\n"
    assert "if mixed_precision is not None:\n" in rewrite_files(precise).after["train.py"]
    there = precise["settings.py"].replace("{", "{'mixed_precision': MixedPrecision(), ", 1)
    assert "if mixed_precision is not None:\n" not in rewrite_files({**precise, "settings.py": there}).after["train.py"]


@pytest.mark.parametrize("statement", ["change(kwargs)", "kwargs.clear()", "kwargs[change] = 1"])
def test_splat_of_a_dict_that_another_module_may_change_is_asked_for_what_fsdp2_needs(statement: str) -> None:
    result = rewrite_files({**IMPORTED, "other.py": IMPORTED["other.py"].format(statement)})
    assert "    unread = [name for name in known if kwargs.get(name) is not None]\n" in result.after["train.py"]


def test_dicts_of_other_functions_are_not_the_one_that_is_spread() -> None:
    text = rewrite(
        HEAD
        + code(
            """
            def settings_of(args):
                found = {"cpu_offload": CPUOffload(args.offload)}
                return found


            def wrap(model, args):
                found = settings_of(args)
                return FSDP(model, **found)


            def plot(axes):
                found = {}
                found["offload_policy"] = axes
                return found
            """
        )
    ).text
    assert "shard_model" not in text


MESH_IN_SPLAT = """
def wrap(model, args):
    mesh = None
    kwargs = {}
    if args.hybrid:
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
        kwargs["device_mesh"] = mesh
    return FSDP(model, auto_wrap_policy=args.policy, sharding_strategy=args.strategy, **kwargs)
"""


def test_mesh_that_a_splat_may_hold() -> None:
    text = rewrite(HEAD + "from torch.distributed.device_mesh import init_device_mesh\n\n\n" + code(MESH_IN_SPLAT)).text
    made = 'strategy_mesh(args.strategy and args.strategy.name, kwargs.get("device_mesh"))'
    assert f"fsdp_mesh = {made}\n" in text


LOOKED_UP = "{1: ShardingStrategy.HYBRID_SHARD, 2: ShardingStrategy.SHARD_GRAD_OP}.get(zero)"
MAY_MISS = {
    "in the call": f"return FSDP(model, {DEVICE}, sharding_strategy={LOOKED_UP})",
    "above it": f"strategy = {LOOKED_UP}\n    return FSDP(model, {DEVICE}, sharding_strategy=strategy)",
}


@pytest.mark.parametrize("body", MAY_MISS.values(), ids=MAY_MISS)
def test_lookup_that_may_find_nothing(body: str) -> None:
    """FSDP1 took None for FULL_SHARD."""
    text = rewrite(f"{HEAD}\ndef wrap(model, zero):\n    {body}\n").text
    assert f"    strategy = {LOOKED_UP}\n" in text
    assert 'strategy_kwargs(strategy.name if strategy else "FULL_SHARD")' in text
    assert text.count("strategy.name") == 1


FOR_HYBRIDS = {
    "by a test of the strategy": """
        mesh = None
        if cfg.strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
            mesh = MESH
    """,
    "by a test of the strategy and more": """
        mesh = None
        if cfg.hybrid and cfg.strategy == ShardingStrategy.HYBRID_SHARD:
            mesh = MESH
    """,
    "by a function that makes it": """
        mesh = None
        if cfg.strategy == ShardingStrategy.HYBRID_SHARD:
            mesh = make_mesh(cfg)
    """,
}
"""How a program shows that the other strategies come without a mesh."""

FOR_ANY = {
    "by another test": FOR_HYBRIDS["by a test of the strategy"].replace("cfg.strategy in", "cfg.other in"),
    "by a test of another strategy": FOR_HYBRIDS["by a test of the strategy"].replace("HYBRID_SHARD,", "NO_SHARD,"),
    "in the other branch": """
        if cfg.strategy == ShardingStrategy.HYBRID_SHARD:
            mesh = None
        else:
            mesh = MESH
    """,
    "where the strategy changes in between": FOR_HYBRIDS["by a test of the strategy"].rstrip()
    + "\n        cfg.strategy = cfg.late\n    ",
}


def _with_mesh(body: str, strategy: str = "cfg.strategy") -> str:
    made = 'init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))'
    text = f"""
    def make_mesh(cfg):
        return {made}


    def wrap(model, cfg):
{body.rstrip()}
        return FSDP(model, sharding_strategy={strategy}, device_mesh=mesh, {DEVICE})
    """
    imported = "from torch.distributed.device_mesh import init_device_mesh\n\n\n"
    return rewrite(HEAD + imported + code(text.replace("MESH", made))).text


@pytest.mark.parametrize("body", FOR_HYBRIDS.values(), ids=FOR_HYBRIDS)
def test_mesh_of_the_hybrid_strategies_alone(body: str) -> None:
    made = "fsdp_mesh = mesh or strategy_mesh(cfg.strategy and cfg.strategy.name)"
    assert made in _with_mesh(body)


@pytest.mark.parametrize("body", FOR_ANY.values(), ids=FOR_ANY)
def test_mesh_of_any_strategy(body: str) -> None:
    made = "fsdp_mesh = strategy_mesh(cfg.strategy and cfg.strategy.name, mesh)"
    assert made in _with_mesh(body)


BRANCH = """
        if cfg.hybrid:
            strategy = ShardingStrategy.HYBRID_SHARD if cfg.zero3 else ShardingStrategy._HYBRID_SHARD_ZERO2
            mesh = MESH
        else:
            strategy = ShardingStrategy.NO_SHARD if cfg.whole else ShardingStrategy.SHARD_GRAD_OP
            mesh = None
        print(strategy)
"""


def test_mesh_of_the_branch_that_chooses_a_hybrid_strategy() -> None:
    assert "fsdp_mesh = mesh or strategy_mesh(strategy.name)" in _with_mesh(BRANCH, "strategy")


def test_mesh_of_a_branch_that_may_choose_another_strategy() -> None:
    body = BRANCH.replace("ShardingStrategy._HYBRID_SHARD_ZERO2", "ShardingStrategy.FULL_SHARD")
    assert "fsdp_mesh = strategy_mesh(strategy.name, mesh)" in _with_mesh(body, "strategy")


def test_mesh_of_strategies_that_keep_nothing_whole() -> None:
    body = BRANCH.replace("ShardingStrategy._HYBRID_SHARD_ZERO2", "ShardingStrategy.FULL_SHARD").replace("NO_", "FULL_")
    assert "fsdp_mesh = sharding_mesh(strategy.name, mesh)" in _with_mesh(body, "strategy")


BESIDE = BRANCH.replace("print(strategy)", "print(mesh)").replace("NO_SHARD", "FULL_SHARD")


def test_mesh_beside_the_hybrid_strategies_goes_as_it_is() -> None:
    assert "fully_shard(model, mesh=mesh, **fsdp_kwargs)" in _with_mesh(BESIDE, "strategy")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            BESIDE.replace(
                " else ShardingStrategy.SHARD",
                " else ShardingStrategy.HYBRID_SHARD if cfg.x else ShardingStrategy.SHARD",
            ),
            id="a hybrid strategy without a mesh",
        ),
        pytest.param(
            BESIDE.replace(
                "            mesh = MESH", "            mesh = None\n            if cfg.x:\n                mesh = MESH"
            ),
            id="a mesh under another condition",
        ),
        pytest.param(
            BESIDE.replace("ShardingStrategy._HYBRID_SHARD_ZERO2", "ShardingStrategy.FULL_SHARD"),
            id="a mesh for another strategy",
        ),
    ],
)
def test_mesh_that_is_not_just_for_the_hybrid_strategies(body: str) -> None:
    assert "fully_shard(model, mesh=mesh, **fsdp_kwargs)" not in _with_mesh(body, "strategy")


def test_precision_of_the_call_is_not_what_other_objects_hold() -> None:
    text = written(
        """
        class Solver:
            def __init__(self, config):
                self.param_dtype = config.param_dtype
                self.buffer_dtype = config.buffer_dtype


        def wrap(model):
            return FSDP(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        """
    )
    assert "shard_model" not in text


def test_strategy_that_the_shape_of_the_mesh_decides() -> None:
    text = """
        class Worker:
            def __init__(self, size, world):
                if size == world:
                    self.mesh = init_device_mesh("cuda", (world,), mesh_dim_names=("fsdp",))
                else:
                    self.mesh = init_device_mesh("cuda", (world // size, size), mesh_dim_names=("ddp", "fsdp"))

            def wrap(self, model, full):
                if self.mesh.ndim == 2:
                    strategy = ShardingStrategy.HYBRID_SHARD if full else ShardingStrategy._HYBRID_SHARD_ZERO2
                else:
                    strategy = ShardingStrategy.FULL_SHARD if full else ShardingStrategy.SHARD_GRAD_OP
                return FSDP(model, sharding_strategy=strategy, device_mesh=self.mesh)
        """
    header = HEAD + "from torch.distributed.device_mesh import init_device_mesh\n"
    result = rewrite(header + code(text))
    assert "return fully_shard(model, mesh=self.mesh, **fsdp_kwargs)\n" in result.text
    assert not result.support
    other = code(text).replace("self.mesh.ndim == 2", "full > 2")
    assert "        mesh = sharding_mesh(strategy.name, self.mesh)\n" in rewrite(header + other).text
    # FSDP1 raised where a hybrid strategy met a mesh of one dimension: what ran has two, whoever chose it.
    hybrid = code(text).replace(
        "ShardingStrategy.FULL_SHARD if full else ShardingStrategy.SHARD_GRAD_OP", "one(self.mesh)"
    )
    one = """
        def one(mesh, name="full"):
            if name == "hybrid":
                return ShardingStrategy.HYBRID_SHARD
            if mesh.ndim == 1:
                return ShardingStrategy.FULL_SHARD
            return ShardingStrategy.HYBRID_SHARD
        """
    result = rewrite(header + code(one) + "\n\n" + hybrid)
    assert "return fully_shard(model, mesh=self.mesh, **fsdp_kwargs)\n" in result.text
    assert not result.support


def _given_both(strategy: str) -> str:
    text = f"""
        def wrap(model, cfg, mesh=None, group=None):
            if cfg.hybrid:
                mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
            return FSDP(model, device_mesh=mesh, process_group=group{strategy}, {DEVICE})
        """
    header = HEAD + "from torch.distributed.device_mesh import init_device_mesh\n"
    return rewrite(header + code(text)).text


def test_a_group_where_the_mesh_is_none() -> None:
    """FSDP1 refuses both, so that what is given is the one or the other."""
    text = _given_both("")
    made = '    if group is not None:\n        fsdp_mesh = DeviceMesh.from_group(group, "cuda")\n'
    assert f"    fsdp_mesh = first_dimension(mesh)\n{made}    return fully_shard(model, mesh=fsdp_mesh)\n" in text


def test_a_group_where_the_mesh_of_a_hybrid_strategy_is_none() -> None:
    body = FOR_HYBRIDS["by a test of the strategy"].rstrip() + "\n        group = cfg.pairs[0] if cfg.tp else None"
    text = _with_mesh(body, "cfg.strategy, process_group=group")
    made = 'mesh or mesh_of_group(cfg.strategy and cfg.strategy.name, group, "cuda")'
    assert made in " ".join(text.split()).replace("( ", "(").replace(" )", ")")
    assert "import strategy_mesh" not in text, "a function of it calls that one, and this file does not"


def test_a_group_beside_any_mesh_and_any_strategy_is_asked_for_at_run_time() -> None:
    text = _given_both(", sharding_strategy=cfg.strategy")
    assert "else:\n        fsdp_mesh = mesh_of_group(cfg.strategy and cfg.strategy.name, group, " in text
    assert "shard_model" not in text


def test_one_group_for_what_may_be_a_hybrid_strategy_is_left_to_run_time() -> None:
    """FSDP1 refuses it, and a mesh of the group would shard over it without a word."""
    text = f"""
        def wrap(model, args):
            group = dist.new_group([0, 1])
            strategy = ShardingStrategy.HYBRID_SHARD if args.hybrid else ShardingStrategy.FULL_SHARD
            return FSDP(model, process_group=group, sharding_strategy=strategy, {DEVICE})
        """
    head = "import torch.distributed as dist\n" + HEAD
    assert rewrite(head + code(text)).support >= {"shard_model"}


def test_strategies_that_differ_in_their_mesh_alone_become_the_mesh() -> None:
    text = rewrite(
        code(
            """
            import torch
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import ShardingStrategy
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy

            from net import Block


            def wrap(model, hybrid):
                if hybrid:
                    strategy = ShardingStrategy.HYBRID_SHARD
                else:
                    strategy = ShardingStrategy.FULL_SHARD
                return FSDP(
                    model,
                    auto_wrap_policy=ModuleWrapPolicy({Block}),
                    sharding_strategy=strategy,
                    device_id=torch.cuda.current_device(),
                )
            """
        )
    ).text
    assert text.endswith(
        code(
            """
            def wrap(model, hybrid):
                if hybrid:
                    devices = torch.cuda.device_count()  # sharded inside a node, replicated across
                    shape = (dist.get_world_size() // devices, devices)
                    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
                else:
                    mesh = None
                for module in model.modules():
                    if module is not model and isinstance(module, Block):
                        fully_shard(module, mesh=mesh)
                return fully_shard(model, mesh=mesh)
            """
        )
    )


BRANCHES = code(
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import ShardingStrategy


    def wrap(model, settings):
        if settings.hybrid:
            strategy = ShardingStrategy.HYBRID_SHARD if settings.zero == 3 else ShardingStrategy._HYBRID_SHARD_ZERO2
            mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
        else:
            strategy = ShardingStrategy.FULL_SHARD if settings.zero == 3 else ShardingStrategy.SHARD_GRAD_OP
            mesh = None
        return FSDP(model, device_mesh=mesh, sharding_strategy=strategy, device_id=torch.cuda.current_device())
    """
)


MESH_IN_BRANCH = {
    "two branches, one of them empty then": (
        """
        def wrap(model, args):
            if args.hybrid:
                strategy = ShardingStrategy.HYBRID_SHARD if args.whole else ShardingStrategy._HYBRID_SHARD_ZERO2
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
            else:
                strategy = ShardingStrategy.FULL_SHARD if args.whole else ShardingStrategy.SHARD_GRAD_OP
                mesh = None
            return FSDP(model, device_mesh=mesh, sharding_strategy=strategy, device_id=torch.cuda.current_device())
        """,
        """
        def wrap(model, args):
            fsdp_kwargs = {} if args.whole else {"reshard_after_forward": False}
            if args.hybrid:
                fsdp_kwargs["mesh"] = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "None above": (
        """
        def wrap(model, args):
            strategy = ShardingStrategy.SHARD_GRAD_OP
            mesh = None
            if args.hybrid:
                strategy = ShardingStrategy.HYBRID_SHARD
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
            return FSDP(model, device_mesh=mesh, sharding_strategy=strategy, device_id=torch.cuda.current_device())
        """,
        """
        def wrap(model, args):
            fsdp_kwargs = {"reshard_after_forward": False}
            if args.hybrid:
                fsdp_kwargs = {}
                fsdp_kwargs["mesh"] = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "one of three branches": (
        """
        def wrap(model, args):
            if args.mode == "zero2":
                strategy = ShardingStrategy.SHARD_GRAD_OP
                mesh = None
            elif args.mode == "hybrid":
                strategy = ShardingStrategy._HYBRID_SHARD_ZERO2
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
            else:
                strategy = ShardingStrategy.FULL_SHARD
                mesh = None
            return FSDP(model, device_mesh=mesh, sharding_strategy=strategy, device_id=torch.cuda.current_device())
        """,
        """
        def wrap(model, args):
            if args.mode == "zero2":
                fsdp_kwargs = {"reshard_after_forward": False}
            elif args.mode == "hybrid":
                fsdp_kwargs = {"reshard_after_forward": False}
                fsdp_kwargs["mesh"] = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
            else:
                fsdp_kwargs = {}
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "a mesh that is made before the dict": (
        """
        def wrap(model, args):
            if args.hybrid:
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
                strategy = ShardingStrategy._HYBRID_SHARD_ZERO2
            else:
                mesh = None
                strategy = ShardingStrategy.FULL_SHARD
            return FSDP(model, device_mesh=mesh, sharding_strategy=strategy, device_id=torch.cuda.current_device())
        """,
        """
        def wrap(model, args):
            if args.hybrid:
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
                fsdp_kwargs = {"reshard_after_forward": False}
            else:
                mesh = None
                fsdp_kwargs = {}
            return fully_shard(model, mesh=mesh, **fsdp_kwargs)
        """,
    ),
    "a mesh that something else reads": (
        """
        def wrap(model, args):
            strategy = ShardingStrategy.SHARD_GRAD_OP
            mesh = None
            if args.hybrid:
                strategy = ShardingStrategy.HYBRID_SHARD
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
            print(mesh)
            return FSDP(model, device_mesh=mesh, sharding_strategy=strategy, device_id=torch.cuda.current_device())
        """,
        """
        def wrap(model, args):
            fsdp_kwargs = {"reshard_after_forward": False}
            mesh = None
            if args.hybrid:
                fsdp_kwargs = {}
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=NAMES)
            print(mesh)
            return fully_shard(model, mesh=mesh, **fsdp_kwargs)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), MESH_IN_BRANCH.values(), ids=MESH_IN_BRANCH)
def test_mesh_of_the_branch_that_makes_it(before: str, after: str) -> None:
    names = '("replicate", "shard")'
    text = rewrite_files(
        {"train.py": BRANCHES.partition("def ")[0] + code(before.replace("NAMES", names))},
        settings="[tool.ruff]\nline-length = 120\n",
    ).after["train.py"]
    assert text.endswith("\n\n\n" + code(after.replace("NAMES", names)))


GROUPS_IN_BRANCH = {
    "beside a dict": (
        "_HYBRID_SHARD_ZERO2",
        """
            if args.hybrid:
                fsdp_kwargs = {"reshard_after_forward": False}
                fsdp_kwargs["mesh"] = hsdp_mesh_from_groups(shard, replicate, "cuda")
            else:
                fsdp_kwargs = {}
            return fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "alone": (
        "HYBRID_SHARD",
        """
            if args.hybrid:
                mesh = hsdp_mesh_from_groups(shard, replicate, "cuda")
            else:
                mesh = None
            return fully_shard(model, mesh=mesh)
        """,
    ),
}


@pytest.mark.parametrize(("strategy", "body"), GROUPS_IN_BRANCH.values(), ids=GROUPS_IN_BRANCH)
def test_groups_of_the_branch_that_chooses_a_hybrid_strategy(strategy: str, body: str) -> None:
    before = f"""
        def wrap(model, args, shard, replicate):
            if args.hybrid:
                strategy = ShardingStrategy.{strategy}
                groups = (shard, replicate)
            else:
                strategy = ShardingStrategy.FULL_SHARD
                groups = None
            return FSDP(model, process_group=groups, sharding_strategy=strategy, {DEVICE})
        """
    assert written(before) == code("def wrap(model, args, shard, replicate):\n" + indent(code(body), "    "))


GROUPS_OF_RUN_TIME = {
    "one that may not shard": ("ShardingStrategy.FULL_SHARD", "ShardingStrategy.NO_SHARD"),
    "one group": ("groups = None", "groups = shard"),
    "none beside a hybrid one": ("(shard, replicate)", "(shard, replicate) if args.two else None"),
}


@pytest.mark.parametrize(("old", "new"), GROUPS_OF_RUN_TIME.values(), ids=GROUPS_OF_RUN_TIME)
def test_groups_of_other_branches_are_left_to_a_function(old: str, new: str) -> None:
    before = f"""
        def wrap(model, args, shard, replicate):
            if args.hybrid:
                strategy = ShardingStrategy.HYBRID_SHARD
                groups = (shard, replicate)
            else:
                strategy = ShardingStrategy.FULL_SHARD
                groups = None
            return FSDP(model, process_group=groups, sharding_strategy=strategy, {DEVICE})
        """.replace(old, new)
    assert "groups = (shard, replicate)" in written(before)


def test_strategy_by_name_over_a_mesh_of_one_dimension() -> None:
    text = written(
        f"""
        def wrap(model, name):
            mesh = init_device_mesh("cuda", (dist.get_world_size(),))
            return FSDP(model, device_mesh=mesh, sharding_strategy=ShardingStrategy[name], {DEVICE})
        """
    )
    assert "    fsdp_mesh = strategy_mesh(name, mesh)\n" in text
    assert "    return fully_shard(model, mesh=fsdp_mesh, **fsdp_kwargs)\n" in text


def test_what_a_function_chooses_is_named_for_what_it_is() -> None:
    text = written(
        """
        def settings(cfg):
            if cfg.zero2:
                sharding_strategy = ShardingStrategy.SHARD_GRAD_OP
            else:
                sharding_strategy = ShardingStrategy.FULL_SHARD
            return cfg.policy, sharding_strategy


        def wrap(model, cfg):
            policy, chosen = settings(cfg)
            return FSDP(model, sharding_strategy=chosen)
        """
    )
    assert "        fsdp_kwargs = {}\n    return cfg.policy, fsdp_kwargs\n" in text
    assert "    policy, fsdp_kwargs = settings(cfg)\n" in text


def test_a_hybrid_strategy_that_another_file_chooses() -> None:
    """What its mesh needs is imported there."""
    choose = code(
        """
        from torch.distributed.fsdp import ShardingStrategy


        def get_strategy(cfg):
            if cfg.hybrid:
                strategy = ShardingStrategy.HYBRID_SHARD
            else:
                strategy = ShardingStrategy.FULL_SHARD
            return strategy
        """
    )
    wrap = f"    return FSDP(model, sharding_strategy=strategy, auto_wrap_policy=policy, {DEVICE})\n"
    train = (
        f"{HEAD}from choose import get_strategy\n\n\ndef wrap(model, cfg, policy):\n    strategy = get_strategy(cfg)\n"
    )
    result = rewrite_files({"train.py": train + wrap, "choose.py": choose})
    assert "        devices = torch.cuda.device_count()  # sharded inside" in result.after["choose.py"]
    assert "import torch\nimport torch.distributed as dist\n" in result.after["choose.py"]
    assert "fully_shard(model, mesh=mesh)\n" in result.after["train.py"]


def test_a_choice_that_means_something_else_to_two_calls_is_left() -> None:
    """The one call has a mesh, and the other makes one."""
    made = 'init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))'
    text = written(
        f"""
        def strategy_of(name):
            return ShardingStrategy.HYBRID_SHARD if name == "zero3" else ShardingStrategy._HYBRID_SHARD_ZERO2


        def wrap(model, name, policy, init_device_mesh):
            return FSDP(model, sharding_strategy=strategy_of(name), device_mesh={made}, {DEVICE})


        def wrap_other(model, name, policy):
            return FSDP(model, sharding_strategy=strategy_of(name), auto_wrap_policy=policy, {DEVICE})
        """
    )
    assert "return ShardingStrategy.HYBRID_SHARD if" in text
    assert "shard_model" not in text
    assert text.count("[strategy.name]") == 2


OVER_ALL = code(
    """
    import sys

    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    from choose import get_strategy

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = FSDP(Net(), sharding_strategy=get_strategy(sys.argv[1]), device_mesh=mesh, device_id=0)
    """
)
CHOOSE = code(
    """
    from torch.distributed.fsdp import ShardingStrategy


    def get_strategy(name):
        if name == "FULL_SHARD":
            return ShardingStrategy.FULL_SHARD
        elif name == "SHARD_GRAD_OP":
            return ShardingStrategy.SHARD_GRAD_OP
        elif name == "NO_SHARD":
            return ShardingStrategy.NO_SHARD
        elif name == "HYBRID_SHARD":
            return ShardingStrategy.HYBRID_SHARD
        raise ValueError
    """
)


def test_strategies_with_a_mesh_of_their_own_beside_one_of_all_ranks() -> None:
    """The mesh that the call is given is that of the others; with a hybrid one FSDP1 refused it."""
    result = rewrite_files({"train.py": OVER_ALL, "choose.py": CHOOSE})
    assert 'fsdp_kwargs = {"mesh": mesh, **get_strategy(sys.argv[1])}\n' in result.after["train.py"]
    assert "fully_shard(model, **fsdp_kwargs)\n" in result.after["train.py"]
    assert 'return {"mesh": node_mesh("cuda")}\n' in result.after["choose.py"]
    assert f'return {{"mesh": {REPLICATED}}}' in flat(result.after["choose.py"])


def test_strategies_that_are_chosen_before_there_is_a_process_group() -> None:
    """No mesh can be made there: the name is asked at the call."""
    text = written(
        f"""
        def strategy_of(name):
            return ShardingStrategy.NO_SHARD if name == "ddp" else ShardingStrategy.FULL_SHARD


        def start(rank):
            torch.distributed.init_process_group("nccl")


        def wrap(model, name):
            strategy = strategy_of(name)
            start(0)
            return FSDP(model, sharding_strategy=strategy, {DEVICE})
        """
    )
    assert "    start(0)\n    mesh = None\n    if strategy.name == " in text


def test_a_comment_behind_a_strategy_stands_behind_its_arguments() -> None:
    text = written(
        f"""
        def wrap(model, policy, late):
            if late:
                strategy = ShardingStrategy._HYBRID_SHARD_ZERO2  # or SHARD_GRAD_OP, as asked
            else:
                strategy = ShardingStrategy.FULL_SHARD
            return FSDP(model, auto_wrap_policy=policy, sharding_strategy=strategy, {DEVICE})
        """
    )
    assert '            "reshard_after_forward": False,\n        }  # or SHARD_GRAD_OP, as asked\n' in text


def test_no_mesh_beside_a_hybrid_strategy_is_left_to_run_time() -> None:
    made = 'init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))'
    text = rewrite(BRANCHES.replace(made, f"{made} if settings.two else None")).text
    assert "fsdp_mesh = mesh or strategy_mesh(strategy.name)\n" in text


def test_an_assignment_that_became_the_same_in_both_branches_stands_above_them() -> None:
    text = rewrite(BRANCHES).text
    choice = '    fsdp_kwargs = {} if settings.zero == 3 else {"reshard_after_forward": False}\n'
    assert text.count(choice) == 1
    assert f"def wrap(model, settings):\n{choice}    if settings.hybrid:\n        mesh = " in text


def test_an_assignment_with_a_comment_stays_in_its_branch() -> None:
    before = BRANCHES.replace(
        "        strategy = ShardingStrategy.FULL", "        # alone\n        strategy = ShardingStrategy.FULL"
    )
    assert rewrite(before).text.count("fsdp_kwargs = ") == 2


def test_choices_in_a_tuple_that_a_function_returns_are_made_there() -> None:
    result = rewrite(
        code(
            """
            import torch
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy

            from net import Block, Net


            def settings_of(mode):
                precision = None
                if mode == "bf16":
                    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
                strategy = ShardingStrategy.SHARD_GRAD_OP if mode == "zero2" else ShardingStrategy.FULL_SHARD
                return precision, ModuleWrapPolicy({Block}), strategy


            def build(mode):
                precision, policy, strategy = settings_of(mode)
                return FSDP(Net(), auto_wrap_policy=policy, mixed_precision=precision, sharding_strategy=strategy)
            """
        )
    )
    assert "    precision = MixedPrecisionPolicy()\n" in result.text
    assert '    fsdp_kwargs = {"reshard_after_forward": False} if mode == "zero2" else {}\n' in result.text
    assert "    return precision, fsdp_kwargs\n" in result.text
    assert "    precision, fsdp_kwargs = settings_of(mode)\n" in result.text
    assert "isinstance(module, Block)" in result.text, "the policy is always the same"


def test_a_tuple_that_is_not_taken_apart_keeps_its_strategy() -> None:
    text = rewrite(
        code(
            """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import ShardingStrategy

            from net import Net


            def settings_of(mode):
                strategy = ShardingStrategy.SHARD_GRAD_OP if mode == "zero2" else ShardingStrategy.FULL_SHARD
                return mode, strategy


            def build(mode):
                print(settings_of(mode))
                mode, strategy = settings_of(mode)
                return FSDP(Net(), sharding_strategy=strategy)
            """
        )
    ).text
    assert "ShardingStrategy.SHARD_GRAD_OP" in text


def test_a_dict_goes_on_beside_what_units_and_root_do_not_share() -> None:
    text = rewrite(
        code(
            """
            import torch
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy

            from net import Block


            class Trainer:
                kwargs = {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "limit_all_gathers": True}

                def wrap(self, a, b):
                    blocks = ModuleWrapPolicy({Block})
                    a = FSDP(a, auto_wrap_policy=blocks, **self.kwargs)
                    half = MixedPrecision(param_dtype=torch.bfloat16)
                    b = FSDP(b, auto_wrap_policy=blocks, mixed_precision=half, **self.kwargs)
                    return a, b
            """
        )
    ).text
    assert "    fully_shard(a, **self.kwargs)\n" in text
    assert "fully_shard(module, mp_policy=block_mp_policy, **self.kwargs)\n" in text
    assert "    fully_shard(b, mp_policy=half, **self.kwargs)\n" in text


FIELD = """\
from dataclasses import dataclass

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@dataclass
class Config:
    lr: float = 1e-3
    limit_all_gathers: bool = True


def main(model):
    cfg = Config()
    print(cfg.lr)
    return FSDP(model, limit_all_gathers=cfg.limit_all_gathers)
"""


def test_field_that_only_a_dropped_argument_reads_goes() -> None:
    text = rewrite(FIELD).text
    assert "class Config:\n    lr: float = 1e-3\n\n\ndef main" in text


STAYS = {
    "another reader": ("    print(cfg.lr)", "    print(cfg.limit_all_gathers)"),
    "a keyword": ("Config()", "Config(limit_all_gathers=False)"),
    "a place": ("Config()", "Config(1.0, False)"),
    "a command line": ("Config()", "parse(Config)"),
    "its name": ("    print(cfg.lr)", "    print(getattr(cfg, 'limit_all_gathers'))"),
    "setattr": ("    print(cfg.lr)", "    setattr(cfg, model.name, 1)"),
    "another constructor call that stays": (
        "    return",
        "    import torch\n\n    FSDP(torch.nn.ModuleDict(), limit_all_gathers=cfg.limit_all_gathers)\n    return",
    ),
}


@pytest.mark.parametrize("change", STAYS.values(), ids=STAYS)
def test_field_that_something_else_may_read_stays(change: tuple[str, str]) -> None:
    assert change[0] in FIELD
    assert "    limit_all_gathers: bool = True\n" in rewrite(FIELD.replace(*change)).text


SEVERAL = f"""
def wrap(model, mode, bf16, offload):
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({{torch.nn.Linear}}),
        sharding_strategy={{"zero2": ShardingStrategy.SHARD_GRAD_OP, "no": ShardingStrategy.NO_SHARD}}[mode],
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16 if bf16 else torch.float32, cast_forward_inputs=True),
        cpu_offload=CPUOffload(offload_params=offload),
        {DEVICE},
    )
"""
SEVERAL_HEAD = HEAD.rstrip() + "\nfrom torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n"


def test_what_a_call_says_beside_the_choice_is_put_into_the_dict_of_the_choice() -> None:
    assert written(SEVERAL, SEVERAL_HEAD) == code(
        """
        def wrap(model, mode, bf16, offload):
            fsdp_kwargs = {"zero2": {"reshard_after_forward": False}, "no": {}}[mode]
            if mode == "no":
                # Each rank holds the whole parameters, and gradients are all-reduced.
                shape = (dist.get_world_size(), 1)
                fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            fsdp_kwargs["mp_policy"] = MixedPrecisionPolicy(
                param_dtype=torch.bfloat16 if bf16 else torch.float32
            )
            fsdp_kwargs["offload_policy"] = CPUOffloadPolicy() if offload else OffloadPolicy()
            for module in model.modules():
                if module is not model and isinstance(module, torch.nn.Linear):
                    fully_shard(module, **fsdp_kwargs)
            return fully_shard(model, **fsdp_kwargs)
        """
    )


def test_dict_that_lasts_longer_than_the_call_is_not_added_to() -> None:
    table = '{"zero2": ShardingStrategy.SHARD_GRAD_OP, "no": ShardingStrategy.NO_SHARD}'
    assert table in SEVERAL
    text = written(SEVERAL.replace(table, "TABLE"), SEVERAL_HEAD + f"TABLE = {table}\n\n")
    assert 'fsdp_kwargs["' not in text
    shared = "mesh=mesh, mp_policy=mp_policy, offload_policy=offload_policy, **fsdp_kwargs"
    assert f"fully_shard(model, {shared})" in flat(text)


def test_dict_that_another_call_may_read_is_not_added_to() -> None:
    other = f"    teacher = FSDP(model.teacher, {DEVICE})\n"
    text = written(SEVERAL.replace("    return FSDP", other + "    return FSDP"), SEVERAL_HEAD)
    assert 'fsdp_kwargs["' not in text


CHOSEN_BY_NAME = f"""
def get_sharding_strategy(name):
    if name == "zero2":
        return ShardingStrategy.SHARD_GRAD_OP
    return ShardingStrategy.FULL_SHARD


def wrap(model, args):
    return FSDP(model, sharding_strategy=get_sharding_strategy(args.mode), {DEVICE})
"""


def test_function_that_chose_a_strategy_says_what_it_gives_now() -> None:
    assert written(CHOSEN_BY_NAME) == code(
        """
        def get_fsdp_kwargs(name):
            if name == "zero2":
                return {"reshard_after_forward": False}
            return {}


        def wrap(model, args):
            fsdp_kwargs = get_fsdp_kwargs(args.mode)
            return fully_shard(model, **fsdp_kwargs)
        """
    )


NAMED_ELSEWHERE = {
    "as a text": '__all__ = ["get_sharding_strategy"]\n',
    "as a value": "choose = get_sharding_strategy\n",
    "as what it would become": "def get_fsdp_kwargs():\n    return 1\n",
}


@pytest.mark.parametrize("more", NAMED_ELSEWHERE.values(), ids=NAMED_ELSEWHERE)
def test_function_that_others_may_name_keeps_its_name(more: str) -> None:
    assert "def get_sharding_strategy(name):\n" in rewrite(HEAD + code(CHOSEN_BY_NAME) + "\n\n" + more).text


def test_function_that_another_file_imports_keeps_its_name() -> None:
    other = "from train import get_sharding_strategy\n"
    result = rewrite_files({"train.py": HEAD + code(CHOSEN_BY_NAME), "other.py": other})
    assert "def get_sharding_strategy(name):\n" in result.after["train.py"]


UNITS_UNLESS = """
    def policy(name):
        if name == "no":
            return None
        return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})

    def wrap(model, args):
        strategy = {"late": ShardingStrategy.SHARD_GRAD_OP, "no": ShardingStrategy.NO_SHARD}[args.mode]
        return FSDP(
            model, auto_wrap_policy=policy(args.mode), sharding_strategy=strategy, device_id=torch.cuda.current_device()
        )
    """
POLICY = "from functools import partial\nfrom torch.distributed.fsdp.wrap import transformer_auto_wrap_policy\n"
BLOCK = "class Block(torch.nn.Module):\n    pass\n\n"


def test_the_units_are_the_other_side_of_the_test_for_the_mesh() -> None:
    text = rewrite(POLICY + HEAD + BLOCK + code(UNITS_UNLESS)).text
    assert text.count('args.mode == "no"') == 1
    assert 'args.mode != "no"' not in text
    assert "    else:\n        for module in " in text


def test_another_test_for_the_units_stays_its_own() -> None:
    text = rewrite(POLICY + HEAD + BLOCK + code(UNITS_UNLESS.replace('name == "no"', "not name"))).text
    assert 'if args.mode == "no":' in text
    assert "    if args.mode:\n        for module in " in text


def test_a_choice_between_a_value_and_none_is_the_value() -> None:
    """`policy = policy if policy is not None else None` was written for each."""
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy


        def wrap(net, policy=None, mesh=None):
            return FSDP(
                net,
                auto_wrap_policy=policy if policy is not None else None,
                device_mesh=mesh if mesh is not None else None,
            )


        def main(net, kinds, make):
            return wrap(net, make(kinds) if kinds else ModuleWrapPolicy(kinds), None)
        """
    after = rewrite(code(text)).text
    assert "else None" not in after
    assert "    if policy is not None:\n        for module in " in after


OPTION = """
    import argparse

    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

    KINDS = ["FULL_SHARD", "SHARD_GRAD_OP"]


    def wrap(net, cfg):
        return FSDP(net, sharding_strategy=ShardingStrategy[cfg.strategy], device_id=0)


    def main(net):
        parser = argparse.ArgumentParser()
        parser.add_argument("--strategy", choices=KINDS, default="FULL_SHARD")
        args = parser.parse_args()
        return wrap(net, args)
    """


def test_an_option_is_one_of_its_choices() -> None:
    result = rewrite(code(OPTION))
    assert '{"FULL_SHARD": {}, "SHARD_GRAD_OP": {"reshard_after_forward": False}}[cfg.strategy]' in flat(result.text)
    assert not result.support


@pytest.mark.parametrize(
    "edit",
    [
        (", choices=KINDS", ""),
        ('"SHARD_GRAD_OP"]', "other()]"),
        ("parser.parse_args()", "read()"),
        ("return wrap(", 'args.strategy = "HYBRID_SHARD"\n    return wrap('),
    ],
)
def test_an_option_that_may_be_another_is_any(edit: tuple[str, str]) -> None:
    text = code(OPTION)
    assert edit[0] in text
    assert rewrite(text.replace(*edit)).support == {"strategy_kwargs"}


OF_A_CLASS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


class Strategy(Base):
    KINDS = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}

    def setup(self, net):
        return FSDP(net, sharding_strategy=self.KINDS[self.kind], device_id=torch.cuda.current_device())
"""


def test_table_of_a_class_is_chosen_from_where_it_stands() -> None:
    text = rewrite(OF_A_CLASS).text
    assert '    KINDS = {"full": {}, "grad": {"reshard_after_forward": False}}\n' in text
    assert text.endswith(
        "        fsdp_kwargs = self.KINDS[self.kind]\n        return fully_shard(net, **fsdp_kwargs)\n"
    )
    for more in ("class Other(Strategy):\n    KINDS = {}", "print(Strategy.KINDS)", "setattr(Strategy, 'KINDS', {})"):
        assert 'KINDS = {"full": ShardingStrategy.FULL_SHARD' in rewrite(f"{OF_A_CLASS}\n\n{more}\n").text


MESHES = """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def build(net, args):
    if args.replicas > 1:
        mesh = init_device_mesh("cuda", (args.replicas, args.shards), mesh_dim_names=("replicate", "shard"))
        strategy = ShardingStrategy.HYBRID_SHARD
    else:
        mesh = init_device_mesh("cuda", {}
        strategy = ShardingStrategy.FULL_SHARD
    return FSDP(net, device_mesh=mesh, sharding_strategy=strategy)
"""


def test_each_branch_makes_the_mesh_that_its_strategy_needs() -> None:
    text = rewrite(MESHES.format("(args.shards,))")).text
    assert "strategy" not in text
    assert text.endswith("    return fully_shard(net, mesh=mesh)\n")
    other = rewrite(MESHES.format('(args.shards, args.ranks), mesh_dim_names=("shard", "tp"))')).text
    assert "sharding_mesh(strategy.name, mesh)" in other


OF_AN_HEIR = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


class Strategy:
    {}

    def wrap(self, net):
        return FSDP(net, **self.kwargs)


class Half(Strategy):
    kwargs = dict(use_orig_params=True, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
"""


@pytest.mark.parametrize("own", ["kwargs = dict(use_orig_params=True)", "kwargs = {}", "kwargs: dict"])
def test_the_dict_of_a_class_that_an_heir_has_another_of(own: str) -> None:
    text = rewrite(OF_AN_HEIR.format(own)).text
    taken = 'self.kwargs["mixed_precision"]' if own == "kwargs: dict" else 'self.kwargs.get("mixed_precision")'
    assert f"mp_policy = {taken}" in text
    assert "return fully_shard(net, mp_policy=mp_policy)" in text
    assert "mixed_precision=MixedPrecisionPolicy(param_dtype=torch.bfloat16)" in text


BY_A_METHOD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


class Strategy:
    def kwargs(self):
        return dict(use_orig_params=True)

    def wrap(self, net):
        {}


class Half(Strategy):
    def kwargs(self):
        given = super().kwargs()
        given["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16)
        return given
"""


@pytest.mark.parametrize(
    "wrapped", ["return FSDP(net, **self.kwargs())", "kwargs = self.kwargs()\n        return FSDP(net, **kwargs)"]
)
def test_a_dict_that_an_heir_puts_more_into(wrapped: str) -> None:
    text = rewrite(BY_A_METHOD.format(wrapped)).text
    assert 'kwargs.get("mixed_precision")' in text
    assert text.count("MixedPrecisionPolicy(param_dtype=torch.bfloat16)") == 1


@pytest.mark.parametrize("factory", ["lambda: {'forward_prefetch': True}", "make"])
def test_arguments_that_another_file_makes_in_a_way_that_is_not_read(factory: str) -> None:
    """What is told names the argument, which stands in the file of the call."""
    config = code(
        f"""
        from dataclasses import dataclass, field

        from other import make


        @dataclass
        class Config:
            extra: dict = field(default_factory={factory})
        """
    )
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        from config import Config


        def wrap(net, cfg: Config):
            return FSDP(net, use_orig_params=True, **cfg.extra)


        def main(net):
            return wrap(net, Config())
        """
    )
    after = rewrite_files({"config.py": config, "train.py": text}).after["train.py"]
    assert "unread = [name for name, value in cfg.extra.items() if value is not None and name not in known]" in after


PREFETCHES = """\
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from net import Block


def main(net, args):
    settings = dict(auto_wrap_policy=ModuleWrapPolicy({Block}))
    if args.prefetch == "pre":
        settings["backward_prefetch"] = BackwardPrefetch.BACKWARD_PRE
    elif args.prefetch == "post":
        settings["backward_prefetch"] = BackwardPrefetch.BACKWARD_POST
    model = FSDP(net, **settings)
    model(args)
"""


def test_what_falls_away_may_be_put_into_a_dict_under_several_conditions() -> None:
    """The dict stayed in FSDP1's names, and the policy with it (distributed-llm-trainer: 57 lines more than 33)."""
    text = rewrite(PREFETCHES).text
    assert text.endswith(
        "def main(net, args):\n    for module in net.modules():\n"
        "        if module is not net and isinstance(module, Block):\n            fully_shard(module)\n"
        "    model = fully_shard(net)\n    model(args)\n"
    )
    other = PREFETCHES.replace("backward_prefetch", "cpu_offload").replace("BackwardPrefetch.BACKWARD_", "args.")
    assert 'settings["cpu_offload"] = args.P' in rewrite(other).text


JOINED = """
def wrap(model, args):
    kwargs = {"use_orig_params": True}
    kwargs |= {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
    if args.offload:
        kwargs |= dict(cpu_offload=CPUOffload(offload_params=True))
    return FSDP(model, **kwargs)
"""


def test_what_is_added_to_a_dict_by_an_operator() -> None:
    assert written(JOINED) == code(
        """
        def wrap(model, args):
            return fully_shard(
                model,
                reshard_after_forward=False,
                offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy(),
            )
        """
    )


ADDED_OTHERWISE = {
    "of a parameter": ('    kwargs = {"use_orig_params": True}\n', ""),
    "in a loop": ("    if args.offload:", "    for _ in range(args.n):"),
    "of itself": ("|= dict(", "|= dict(**kwargs, "),
    "of what is not seen": ("|= dict(cpu_offload=CPUOffload(offload_params=True))", "|= args.more"),
    "of two dicts": ("    kwargs |= {", "    if args.other:\n        kwargs = {}\n    kwargs |= {"),
    "bound otherwise": ("    if args.offload:", "    for kwargs in args.many:"),
    "by another operator": ("|= dict(cpu_offload=CPUOffload(offload_params=True))", "&= args.more"),
}


@pytest.mark.parametrize(("old", "new"), ADDED_OTHERWISE.values(), ids=ADDED_OTHERWISE)
def test_what_may_be_added_otherwise_is_read_at_run_time(old: str, new: str) -> None:
    text = JOINED.replace(old, new)
    assert text != JOINED
    text = text if "kwargs = {" in text else text.replace("(model, args)", "(model, args, kwargs)")
    assert "offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy(),\n" not in written(text)


EMPTIED = """
def settings_of(args):
    kwargs = {{
        "use_orig_params": True,{said}
        "limit_all_gathers": True,  # as torch says
    }}
    if args.offload:
        kwargs["cpu_offload"] = CPUOffload(offload_params=True)
    return kwargs


def wrap(model, args):
    kwargs = settings_of(args)
    return FSDP(model, **kwargs)
"""


def test_a_dict_of_which_nothing_is_left_stands_on_one_line() -> None:
    assert "    kwargs = {}\n    if args.offload:\n" in written(EMPTIED.format(said=""))
    said = "\n        # what all models share"
    assert "    kwargs = {\n        # what all models share\n    }\n" in written(EMPTIED.format(said=said))


def test_table_in_which_some_have_a_mesh_of_a_node_and_one_of_replicas() -> None:
    """As in Self-Forcing: one mesh, of a shape that is asked for."""
    table = """
        def wrap(model, strategy, policy):
            strategy = {
                "full": ShardingStrategy.FULL_SHARD,
                "hybrid": ShardingStrategy.HYBRID_SHARD,
                "zero2": ShardingStrategy._HYBRID_SHARD_ZERO2,
                "none": ShardingStrategy.NO_SHARD,
            }[strategy]
            return FSDP(model, sharding_strategy=strategy, auto_wrap_policy=policy, device_id=0)
    """
    assert """
    if strategy in ("hybrid", "zero2", "none"):
        # Whole parameters, or shards inside a node.
        shards = 1 if strategy == "none" else torch.cuda.device_count()
        shape = (dist.get_world_size() // shards, shards)
        fsdp_kwargs["mesh"] = init_device_mesh(""" in written(table)


@pytest.mark.parametrize("given", ['SETS["fsdp"]', "[SETS][0]", "None or SETS"])
def test_a_dict_that_another_file_takes_out_of_a_value(given: str) -> None:
    """The tool stopped with an error where it said what is not seen: it looked for the one file's text in the other."""
    made = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        'def build(model, kw):\n    kw["use_orig_params"] = True\n    return FSDP(model, **kw)\n'
    )
    using = f"from a import build\n\nSETS = {{}}\n\n\ndef main(net):\n    return build(net, {given})\n"
    assert {finding.rule for finding in rewrite_files({"a.py": made, "b.py": using}).findings} >= {"FM101"}
