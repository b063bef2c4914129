"""What FSDP1's constructor can be asked for: a small program for each thing, rewritten, and run before and after.

To add one, add an entry: a name, the model, and the arguments of the constructor. A program that needs more than that
is written whole: it defines `build()`, which returns the wrapped model. Imports are found by the names that are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

from codemods.tables.versions import OLDEST

from .programs import folder_of, with_imports

BLOCKS = "auto_wrap_policy=ModuleWrapPolicy({Block})"

GROUPS = """\
rank = dist.get_rank()
shard = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
replicate = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank % 2]
"""


@dataclass(frozen=True)
class Row:
    """One thing that FSDP1 can do, and the program that does it."""

    name: str
    program: str
    way: str
    """How the constructor calls are rewritten: idiomatic, or through the support module."""
    world: int = 2
    rel: float = 1e-6
    """How far apart the losses may be."""
    seed_by_rank: bool = False
    optimizer: str = "sgd"
    bf16_input: bool = False
    torch_version: tuple[int, int] = OLDEST

    @property
    def folder(self) -> str:
        return folder_of(self.name)


ROWS: list[Row] = []


def row(name: str, model: str, arguments: str = "", setup: str = "", way: str = "idiomatic", **options: object) -> None:
    """A program that makes a model and wraps it."""
    own = "".join(f"    {line}\n" for line in setup.splitlines())
    given = ", ".join(filter(None, ["model", arguments, "use_orig_params=True"]))
    program(name, f"def build():\n{own}    model = {model}()\n    return FSDP({given})\n", way, **options)


def program(name: str, text: str, way: str = "idiomatic", **options: object) -> None:
    ROWS.append(Row(name, with_imports(dedent(text).strip() + "\n"), way, **options))  # type: ignore[arg-type]


def support(name: str, model: str, arguments: str = "", setup: str = "", **options: object) -> None:
    """What only the support module can decide."""
    row(name, model, arguments, setup, "support", **options)


BF16 = "param_dtype=torch.bfloat16, reduce_dtype=torch.float32"
IN_BF16 = f"mixed_precision=MixedPrecision({BF16})"

# Policies: which modules become units

row("no policy", "Plain")
row("policy None", "Plain", "auto_wrap_policy=None")
row(
    "transformer policy",
    "Plain",
    "auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})",
)
row(
    "transformer policy with two classes that nest",
    "Nested",
    "auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={Block, Outer})",
)
program(
    "transformer policy in a variable, by position",
    """
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls=(Block,))


    def build():
        return FSDP(Plain(), None, None, None, policy)
    """,
)
row("module policy", "Plain", BLOCKS)
row("module policy with a class that holds itself", "SelfNested", "auto_wrap_policy=ModuleWrapPolicy({SelfNested})")
program(
    "module policy with a class that is given one of its own kind",
    """
    class Around(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inp = nn.Linear(8, 8)
            self.inner = inner

        def forward(self, x):
            return torch.tanh(self.inner(self.inp(x)))


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.top = Around(nn.Sequential(nn.Linear(8, 8), Around(nn.Linear(8, 8))))
            self.out = nn.Linear(8, 8)

        def forward(self, x):
            return self.out(self.top(x))


    def build():
        return FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Around}), use_orig_params=True)
    """,
)
row("policy that matches the root", "Nested", "auto_wrap_policy=ModuleWrapPolicy({Nested, Block})")
row(
    "policy that matches containers",
    "Nested",
    "auto_wrap_policy=ModuleWrapPolicy({nn.ModuleDict, nn.ModuleList, Outer})",
)
row("policy of a base class matches everything", "Nested", "auto_wrap_policy=ModuleWrapPolicy({nn.Module})")
row(
    "lambda policy",
    "Plain",
    "auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks)",
)
row(
    "lambda policy that matches containers and nests",
    "Nested",
    "auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: len(list(m.children())) > 1)",
)
row(
    "or policy",
    "Nested",
    "auto_wrap_policy=partial(_or_policy, policies=[ModuleWrapPolicy({Block}), "
    "partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m is model.out), "
    "partial(transformer_auto_wrap_policy, transformer_layer_cls={Outer})])",
)
row(
    "or policy with a size",
    "Nested",
    "auto_wrap_policy=partial(_or_policy, policies=[ModuleWrapPolicy({Block}), "
    "partial(size_based_auto_wrap_policy, min_num_params=100)])",
)
row(
    "or policy with everything",
    "Plain",
    "auto_wrap_policy=partial(_or_policy, policies=[ModuleWrapPolicy({Block}), always_wrap_policy])",
)
row("always wrap policy", "Plain", "auto_wrap_policy=always_wrap_policy")
row("custom policy", "Nested", "auto_wrap_policy=CustomPolicy(lambda m: isinstance(m, (Block, Outer)))")
program(
    "custom policy with arguments for some units",
    """
    def choose(module):
        if isinstance(module, Outer):
            return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "backward_prefetch": None}
        if isinstance(module, Block):
            return {"mixed_precision": MixedPrecision(reduce_dtype=torch.float64)}
        if isinstance(module, nn.Linear) and module.out_features == 1:
            return {"sharding_strategy": ShardingStrategy.NO_SHARD}
        return False


    def build():
        return FSDP(Nested(), auto_wrap_policy=CustomPolicy(choose), use_orig_params=True)
    """,
    "support",
)

program(
    "custom policy with arguments that need no mesh of their own",
    """
    def choose(module):
        if isinstance(module, Outer):
            return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "backward_prefetch": None}
        if isinstance(module, Block):
            return dict(mixed_precision=MixedPrecision(reduce_dtype=torch.float64))
        return isinstance(module, nn.Linear) and module.out_features == 1


    def build():
        low = MixedPrecision(reduce_dtype=torch.bfloat16)
        return FSDP(Nested(), auto_wrap_policy=CustomPolicy(choose), mixed_precision=low, use_orig_params=True)
    """,
)

BY_SIZE = "auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params={})"
for model, size in {"Plain": "300", "Attention": "20", "Nested": "int(4e2)", "BufferFree": "10**9"}.items():
    row(f"size-based policy, {model} by {size}", model, BY_SIZE.format(size))
row("size-based policy with its default of 1e8", "Plain", "auto_wrap_policy=size_based_auto_wrap_policy")
row(
    "size-based policy with exclude",
    "Nested",
    BY_SIZE.format("100, exclude_wrap_modules={Block, nn.ModuleDict}"),
)
row(
    "size-based policy with exclude, which no longer excludes lists",
    "Plain",
    BY_SIZE.format("100, exclude_wrap_modules={Block}"),
)
row("size-based policy with force leaf", "Nested", BY_SIZE.format("100, force_leaf_modules={Block}"))
row(
    "size-based policy in bf16 makes units of BatchNorm",
    "BatchNormed",
    BY_SIZE.format("300") + ", mixed_precision=MixedPrecision(torch.bfloat16, torch.float32)",
)
for asked in (
    "isinstance(module, (Block, Outer))",
    "module.__class__ is not nn.Linear and hasattr(module, 'children')",
):
    policy = f"lambda module, recurse, **_: recurse or {asked}"
    row(f"a policy in the call that always looks inside: {asked}", "Nested", f"auto_wrap_policy={policy}")
program(
    "policy of one's own",
    """
    def policy(module, recurse, nonwrapped_numel):
        return nonwrapped_numel > 400 if recurse else isinstance(module, Block)


    def build():
        return FSDP(Plain(), auto_wrap_policy=policy, use_orig_params=True)
    """,
)
for policy, mark, precision in (
    ("a policy", "module.out.is_unit = True", ""),
    ("a policy with mixed precision", "setattr(module.out, 'is_unit', True)", f", {IN_BF16}"),
):
    program(
        f"{policy} that marks a child when it is asked of the root",
        f"""
        def policy(module, recurse, **kwargs):
            if isinstance(module, Plain):
                {mark}
            return recurse or getattr(module, "is_unit", False) or isinstance(module, Block)


        def build():
            return FSDP(Plain(), auto_wrap_policy=policy, use_orig_params=True{precision})
        """,
    )
row(
    "size-based policy with mixed precision, which looks inside of attention",
    "Attention",
    BY_SIZE.format("300") + ", mixed_precision=MixedPrecision(reduce_dtype=torch.float32)",
)
program(
    "policy passed in, or None",
    """
    def wrap(model, policy=None, precision=None):
        return FSDP(model, auto_wrap_policy=policy, use_orig_params=True)


    def build():
        return wrap(Nested(), globals().get("POLICY", lambda_policy))


    def lambda_policy(module, recurse, nonwrapped_numel):
        return recurse or isinstance(module, (Outer, Block, nn.ModuleDict))
    """,
)
program(
    "policy that run time chooses",
    """
    POLICIES = {"blocks": ModuleWrapPolicy({Block}), "size": partial(size_based_auto_wrap_policy, min_num_params=300)}


    def wrap(model, name):
        return FSDP(model, auto_wrap_policy=POLICIES[name], use_orig_params=True)


    def build():
        return wrap(Plain(), "blocks")
    """,
)
program(
    "policy made in a function, or none",
    """
    def get_policy(kind):
        if kind == "none":
            return None
        return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


    def build():
        return FSDP(Plain(), auto_wrap_policy=get_policy("blocks"), use_orig_params=True)
    """,
)
row("tied weights in one unit", "Tied", BLOCKS)
row("one block under two parents, in one unit", "Shared")
row("frozen and trained parameters in one unit", "Frozen", BLOCKS)
row(
    "attention, which reads the weights of a child",
    "Attention",
    "auto_wrap_policy=ModuleWrapPolicy({nn.MultiheadAttention, Block})",
)

# By hand

program(
    "by hand, items of a list and an attribute",
    """
    def build():
        model = Plain()
        for i in range(len(model.blocks)):
            model.blocks[i] = FSDP(model.blocks[i], use_orig_params=True)
        model.out = FSDP(model.out, use_orig_params=True)
        return FSDP(model, use_orig_params=True)
    """,
)
program(
    "by hand, in the constructor of a module",
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(8, 12)
            self.blocks = nn.ModuleList([FSDP(Block(), use_orig_params=True) for _ in range(2)])
            self.out = FSDP(nn.Linear(12, 1), use_orig_params=True)

        def forward(self, x):
            x = self.inp(x)
            for block in self.blocks:
                x = block(x)
            return self.out(x)


    def build():
        return FSDP(Model(), use_orig_params=True)
    """,
)
program(
    "by hand, with setattr",
    """
    def build():
        model = Nested()
        for parent in list(model.modules()):
            for name, child in parent.named_children():
                if isinstance(child, Block):
                    setattr(parent, name, FSDP(child, use_orig_params=True))
        return FSDP(model, use_orig_params=True)
    """,
)
program(
    "by hand, items of a dict of modules",
    """
    def build():
        model = Nested()
        for name in ("a", "b"):
            model.layers[name] = FSDP(model.layers[name], sync_module_states=True, use_orig_params=True)
        return FSDP(model, sync_module_states=True, use_orig_params=True)
    """,
    seed_by_rank=True,
)
program(
    "a helper whose group and strategy nobody passes",
    """
    def shard(model, dtype, group=None, strategy=ShardingStrategy.SHARD_GRAD_OP, sync=True):
        return FSDP(
            model,
            process_group=group,
            sharding_strategy=strategy,
            auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks),
            mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=torch.float32),
            sync_module_states=sync,
            use_orig_params=True,
        )


    def build():
        return partial(shard, dtype=torch.bfloat16)(Plain())
    """,
    seed_by_rank=True,
)
HANDED_ON = """
def wrap(model, policy, **kwargs):
    return FSDP(model, auto_wrap_policy=policy, use_orig_params=True, **kwargs)


def build():
    policy = ModuleWrapPolicy({{Block}})
    bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    models = [
        wrap(Plain(), policy, mixed_precision=bf16, sync_module_states=True, limit_all_gathers=True),
        wrap(Plain(), policy, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, sync_module_states=True),
    ]
    return models[{}]
"""
program("a helper that hands its kwargs on, with a precision", HANDED_ON.format(0), seed_by_rank=True)
program("a helper that hands its kwargs on, with a strategy", HANDED_ON.format(1), seed_by_rank=True)
program(
    "a helper that hands on kwargs of which one call gives a dict",
    HANDED_ON.format(0).replace("limit_all_gathers=True", "**{f'{each}_all_gathers': True for each in ['limit']}"),
    seed_by_rank=True,
)
program(
    "kwargs that are the fields of a dataclass",
    """
    @dataclass
    class Settings:
        sharding_strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
        sync_module_states: bool = False
        limit_all_gathers: bool = True


    def build():
        settings = Settings(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, sync_module_states=True)
        return FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True, **vars(settings))
    """,
    seed_by_rank=True,
)
program(
    "kwargs that nothing spells out",
    """
    def build():
        bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)
        pairs = [("mixed_precision", bf16), ("sync_module_states", True), ("use_orig_params", True)]
        return FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), **{name: value for name, value in pairs})
    """,
    seed_by_rank=True,
)
program(
    "by hand, kwargs of a copied dict",
    """
    BASE = dict(use_orig_params=True, sync_module_states=True)


    def settings_of(mixed):
        settings = dict(BASE)
        if mixed:
            settings["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        return settings


    def build():
        model = Plain()
        settings = settings_of(True)
        for i, block in enumerate(model.blocks):
            model.blocks[i] = FSDP(block, **settings)
        return FSDP(model, **{**settings, "forward_prefetch": True})
    """,
    seed_by_rank=True,
)
program(
    "by hand, parts of what is not wrapped",
    """
    from torch.distributed.fsdp.wrap import enable_wrap, wrap


    class Holder(Plain):
        def shard(self, kwargs):
            with enable_wrap(wrapper_cls=FSDP, **kwargs):
                self.inp = wrap(self.inp)
                self.blocks = nn.ModuleList(wrap(block) if block else None for block in self.blocks)
                self.out = wrap(self.out)


    def build():
        model = Holder()
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model.shard(dict(mixed_precision=mixed, sync_module_states=True, use_orig_params=True))
        return model
    """,
    seed_by_rank=True,
)
program(
    "enable_wrap, with a dict that only run time knows",
    """
    from torch.distributed.fsdp.wrap import enable_wrap, wrap


    def shard_parts(model, settings):
        with enable_wrap(wrapper_cls=FSDP, **settings):
            for index, block in enumerate(model.blocks):
                model.blocks[index] = wrap(block)
            return wrap(model)


    def build():
        settings = {"use_orig_params": True}
        settings[os.environ.get("SETTING", "sync_module_states")] = True
        return shard_parts(Plain(), settings)
    """,
    seed_by_rank=True,
)
program(
    "by hand, in a context that is put on a stack",
    """
    from contextlib import ExitStack

    from torch.distributed.fsdp.wrap import enable_wrap, wrap


    def build():
        model = Plain()
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        with ExitStack() as stack:
            stack.enter_context(enable_wrap(wrapper_cls=FSDP, mixed_precision=mixed, sync_module_states=True))
            for index, block in enumerate(model.blocks):
                model.blocks[index] = wrap(block)
            model = wrap(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        return model
    """,
    seed_by_rank=True,
)
program(
    "by hand, by partials of a partial",
    """
    from functools import partial


    def build():
        model = Plain()
        zero2 = partial(FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, sync_module_states=True)
        zero3 = partial(zero2, sharding_strategy=ShardingStrategy.FULL_SHARD)
        for index, block in enumerate(model.blocks):
            model.blocks[index] = zero3(block)
        return partial(zero2, forward_prefetch=True)(model)
    """,
    seed_by_rank=True,
)
program(
    "by hand in bf16, by a partial of a partial",
    """
    from functools import partial


    def build():
        model = Plain()
        zero2 = partial(FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, sync_module_states=True)
        half = partial(zero2, mixed_precision=MixedPrecision(torch.bfloat16, torch.float32))
        for index, block in enumerate(model.blocks):
            model.blocks[index] = half(block)
        return half(model)
    """,
    seed_by_rank=True,
)
program(
    "by hand, a closure that is given more",
    """
    def make_wrapper(mixed):
        bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else None

        def wrap(module, **more):
            settings = dict(mixed_precision=bf16, use_orig_params=True)
            settings.update(more)
            return FSDP(module, **settings)

        return wrap


    def build():
        wrap, model = make_wrapper(True), Plain()
        for i, block in enumerate(model.blocks):
            model.blocks[i] = wrap(block, sync_module_states=True)
        return wrap(model, sync_module_states=True)
    """,
    seed_by_rank=True,
)
program(
    "by policy, through a partial",
    """
    def make(dtype):
        mixed = MixedPrecision(param_dtype=dtype, reduce_dtype=torch.float32)
        return partial(
            FSDP,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            mixed_precision=mixed,
            sync_module_states=True,
            use_orig_params=True,
        )


    def build():
        return make(torch.bfloat16)(Plain())
    """,
    seed_by_rank=True,
)
program(
    "by hand, through a partial",
    """
    wrapper = partial(FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)


    def build():
        model = Plain()
        for i, block in enumerate(model.blocks):
            model.blocks[i] = wrapper(block)
        return wrapper(model)
    """,
)
FACTORY = "partial(FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)"
HOLDERS = {
    "in a table": (f'WRAPPERS = {{"fsdp": {FACTORY}, "none": lambda module: module}}', 'WRAPPERS["fsdp"]'),
    "in a class": (f"class Trainer:\n    wrap = staticmethod({FACTORY})", "Trainer.wrap"),
    "of an object": (f"class Trainer:\n    def __init__(self):\n        self.wrap = {FACTORY}", "Trainer().wrap"),
    "with a policy, of an object": (
        "class Trainer:\n    def __init__(self):\n"
        f"        self.wrap = partial(FSDP, {BLOCKS}, sync_module_states=True, use_orig_params=True)",
        "Trainer().wrap",
    ),
}
for kind, (above, wrapper) in HOLDERS.items():
    blocks = f"nn.ModuleList([{wrapper}(block) for block in model.blocks])"
    parts = "" if "policy" in kind else f"    model.blocks = {blocks}\n"
    program(
        f"by hand, through a partial {kind}",
        f"{above}\n\n\ndef build():\n    model = Plain()\n{parts}    return {wrapper}(model)\n",
        seed_by_rank="policy" in kind,
    )
program(
    "by hand, through a function of any arguments",
    """
    def shard(*args, **kwargs):
        return FSDP(*args, **kwargs)


    def build():
        model = Plain()
        for i, block in enumerate(model.blocks):
            model.blocks[i] = shard(block, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)
        return shard(model, use_orig_params=True)
    """,
)
for kind in ("FSDP", FACTORY):
    program(
        f"by hand, through map, {'with arguments' if kind == FACTORY else 'as it is'}",
        f"""
        def build():
            model = Plain()
            model.blocks = nn.ModuleList(map({kind}, model.blocks))
            return {"FSDP" if kind == "FSDP" else FACTORY}(model)
        """,
    )
program(
    "by hand in bf16, through a partial",
    """
    wrapper = partial(FSDP, mixed_precision=MixedPrecision(torch.bfloat16, torch.float32), use_orig_params=True)


    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 8)
            self.register_buffer("table", torch.linspace(0.1, 0.7, 8))

        def forward(self, x):
            return self.lin((x.float() * self.table).to(self.lin.weight.dtype))


    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Scaled()

        def forward(self, x):
            return self.inner(x * 1.001)


    def build():
        model = Around()
        model.inner = wrapper(model.inner)
        return wrapper(model)
    """,
)
program(
    "by hand in bf16, where only the root casts its inputs",
    """
    def build():
        model = Plain()
        bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for i, block in enumerate(model.blocks):
            model.blocks[i] = FSDP(block, mixed_precision=bf16, use_orig_params=True)
        return FSDP(model, mixed_precision=bf16, use_orig_params=True)
    """,
)
program(
    "by hand in bf16, what a block is given is in float32, and buffers are cast",
    """
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 8)
            self.register_buffer("table", torch.linspace(0.1, 0.7, 8))

        def forward(self, x):
            return torch.tanh(self.lin((x * self.table).to(self.lin.weight.dtype)))


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(8, 8)
            self.scaled = nn.ModuleList(Scaled() for _ in range(2))
            self.out = nn.Linear(8, 1)

        def forward(self, x):
            x = self.inp(x)
            for scaled in self.scaled:
                x = scaled(x.float() * 1.001)
            return self.out(x.bfloat16())


    def build():
        model = Net()
        bf16 = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
        kwargs = dict(mixed_precision=bf16, use_orig_params=True)
        model.scaled = nn.ModuleList([FSDP(scaled, **kwargs) for scaled in model.scaled])
        model.out = FSDP(model.out, **kwargs)
        model = FSDP(model, **kwargs)
        return model
    """,
)
program(
    "by hand, parts with a precision that is written in the call and casts, or of another dtype",
    """
    def build():
        model = Plain()
        for name, child in model.named_children():
            if name == "blocks":
                for i in range(len(child)):
                    child[i] = FSDP(
                        child[i],
                        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True),
                        use_orig_params=True,
                    )
        model.inp = FSDP(model.inp, mixed_precision=MixedPrecision(reduce_dtype=torch.bfloat16), use_orig_params=True)
        return FSDP(model, use_orig_params=True)
    """,
)
program(
    "by hand in bf16, the model whole under a flag alone",
    """
    def build(flag=True):
        model = Plain()
        bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for i, block in enumerate(model.blocks):
            model.blocks[i] = FSDP(block, mixed_precision=bf16, use_orig_params=True)
        if flag:
            model = FSDP(model, mixed_precision=bf16, use_orig_params=True)
        return model
    """,
    "support",
)
program(
    "by hand in bf16, parts that are given what is not seen",
    """
    def build():
        model = Plain()
        bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        others = [{"process_group": None}, {}]
        for i, block in enumerate(model.blocks):
            more = others[i % 2]
            model.blocks[i] = FSDP(block, mixed_precision=bf16, use_orig_params=True, **more)
        return FSDP(model, mixed_precision=bf16, use_orig_params=True)
    """,
)
program(
    "by hand, inner modules only",
    """
    def build():
        model = Plain()
        for i, block in enumerate(model.blocks):
            model.blocks[i] = FSDP(block, use_orig_params=True)
        return model
    """,
)

# Strategies

HERE = "device_id=torch.cuda.current_device()"

for strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
    row(f"strategy {strategy}", "Plain", f"{BLOCKS}, sharding_strategy=ShardingStrategy.{strategy}")
no_shard = f"{BLOCKS}, sharding_strategy=ShardingStrategy.NO_SHARD"
row("strategy NO_SHARD", "Plain", f"{no_shard}, {HERE}")
row("strategy NO_SHARD on a device that is not seen", "Plain", no_shard)
row("strategy None", "Plain", f"{BLOCKS}, sharding_strategy=None")
for world in (1, 2):
    row(
        f"strategy by name at run time, world of {world}",
        "Plain",
        f"{BLOCKS}, sharding_strategy=ShardingStrategy[os.environ.get('STRATEGY', 'SHARD_GRAD_OP')]",
        world=world,
    )
row(
    "strategy by a flag",
    "Plain",
    f"{BLOCKS}, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP if zero2 else ShardingStrategy.FULL_SHARD",
    'zero2 = "ZERO3" not in os.environ',
)
for key in ("full", "zero2", "none", "hybrid"):
    row(
        f"strategy by a dict, {key}",
        "Plain",
        f'{BLOCKS}, {HERE}, sharding_strategy={{"full": ShardingStrategy.FULL_SHARD, '
        '"zero2": ShardingStrategy.SHARD_GRAD_OP, "none": ShardingStrategy.NO_SHARD, '
        '"hybrid": ShardingStrategy._HYBRID_SHARD_ZERO2}[key]',
        f'key = "{key}"',
        world=4 if key == "hybrid" else 2,
    )
    program(
        f"strategy by branches, {key}",
        f"""
        def wrap(model, key):
            if key == "full":
                strategy = ShardingStrategy.FULL_SHARD
            elif key == "zero2":
                strategy = ShardingStrategy.SHARD_GRAD_OP
            elif key == "none":
                strategy = ShardingStrategy.NO_SHARD
            else:
                strategy = ShardingStrategy._HYBRID_SHARD_ZERO2
            policy = ModuleWrapPolicy({{Block}})
            device = torch.cuda.current_device()
            return FSDP(model, auto_wrap_policy=policy, device_id=device, sharding_strategy=strategy)


        def build():
            return wrap(Plain(), "{key}")
        """,
        world=4 if key == "hybrid" else 2,
    )
for choice in ("True, 3", "True, 2", "False, 2"):
    program(
        f"mesh and hybrid strategies on one side of a flag: {choice}",
        f"""
        def wrap(model, hybrid, zero):
            if hybrid:
                strategy = ShardingStrategy.HYBRID_SHARD if zero == 3 else ShardingStrategy._HYBRID_SHARD_ZERO2
                mesh = init_device_mesh("cuda", (dist.get_world_size() // 2, 2))
            else:
                strategy = ShardingStrategy.FULL_SHARD if zero == 3 else ShardingStrategy.SHARD_GRAD_OP
                mesh = None
            policy = ModuleWrapPolicy({{Block}})
            device = torch.cuda.current_device()
            return FSDP(
                model, auto_wrap_policy=policy, device_id=device, sharding_strategy=strategy, device_mesh=mesh
            )


        def build():
            return wrap(Plain(), {choice})
        """,
        world=4,
    )
for mode in ("full", "zero2", "hybrid"):
    program(
        f"mesh and hybrid strategies in a branch of their own: {mode}",
        f"""
        def wrap(model, mode):
            strategy = ShardingStrategy.FULL_SHARD
            mesh = None
            if mode == "zero2":
                strategy = ShardingStrategy.SHARD_GRAD_OP
            elif mode == "hybrid":
                strategy = ShardingStrategy._HYBRID_SHARD_ZERO2
                mesh = init_device_mesh("cuda", (dist.get_world_size() // 2, 2))
            policy = ModuleWrapPolicy({{Block}})
            device = torch.cuda.current_device()
            return FSDP(
                model, auto_wrap_policy=policy, device_id=device, sharding_strategy=strategy, device_mesh=mesh
            )


        def build():
            return wrap(Plain(), "{mode}")
        """,
        world=4,
    )
for hybrid, strategy, sync in (
    (True, "_HYBRID_SHARD_ZERO2", False),
    (False, "_HYBRID_SHARD_ZERO2", False),
    (True, "HYBRID_SHARD", True),
    (False, "HYBRID_SHARD", True),
):
    program(
        f"groups of the branch that chooses {strategy}: {hybrid}, synchronised: {sync}",
        f"""
        def wrap(model, hybrid, shard, replicate):
            if hybrid:
                strategy = ShardingStrategy.{strategy}
                process_group = (shard, replicate)
            else:
                strategy = ShardingStrategy.FULL_SHARD
                process_group = None
            policy = ModuleWrapPolicy({{Block}})
            device = torch.cuda.current_device()
            return FSDP(
                model,
                auto_wrap_policy=policy,
                device_id=device,
                sharding_strategy=strategy,
                process_group=process_group,
                sync_module_states={sync},
            )


        def build():
            rank = dist.get_rank()
            shard = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
            replicate = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank % 2]
            return wrap(Plain(), {hybrid}, shard, replicate)
        """,
        world=4,
        seed_by_rank=sync,
    )
for strategy in ("SHARD_GRAD_OP", "NO_SHARD"):
    program(
        f"strategy {strategy} of a function, over a mesh of all ranks",
        f"""
        def strategy_of(name):
            if name == "zero2":
                return ShardingStrategy.SHARD_GRAD_OP
            elif name == "ddp":
                return ShardingStrategy.NO_SHARD
            return ShardingStrategy.FULL_SHARD


        def build():
            mesh = init_device_mesh("cuda", (dist.get_world_size(),))
            strategy = strategy_of("{"ddp" if strategy == "NO_SHARD" else "zero2"}")
            return FSDP(Plain(), {BLOCKS}, sharding_strategy=strategy, device_mesh=mesh)
        """,
    )
for strategy in ("FULL_SHARD", "NO_SHARD"):
    row(
        f"strategy by the name {strategy}, over a mesh of all ranks",
        "Plain",
        f"{BLOCKS}, {HERE}, device_mesh=mesh, sharding_strategy=ShardingStrategy[name], sync_module_states=True",
        f'mesh = init_device_mesh("cuda", (dist.get_world_size(),))\nname = os.environ.get("STRATEGY", "{strategy}")',
        seed_by_rank=True,
    )
for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"):
    row(
        f"strategy by the name {strategy}, on a device that is seen",
        "Plain",
        f"{BLOCKS}, {HERE}, sharding_strategy=ShardingStrategy[os.environ.get('STRATEGY', '{strategy}')]",
        world=4,
    )
    program(
        f"strategy {strategy} that is passed in",
        f"""
        class Config:
            def __init__(self, **values):
                for name, value in values.items():
                    setattr(self, name, value)


        def wrap(model, config):
            policy = ModuleWrapPolicy({{Block}})
            device = torch.cuda.current_device()
            return FSDP(model, auto_wrap_policy=policy, device_id=device, sharding_strategy=config.strategy)


        def build():
            return wrap(Plain(), Config(strategy=ShardingStrategy.{strategy}))
        """,
        world=4,
    )
for mode in ("zero2", "zero3"):
    for kinds in (("SHARD_GRAD_OP", "FULL_SHARD"), ("_HYBRID_SHARD_ZERO2", "HYBRID_SHARD")):
        program(
            f"{' or '.join(kinds)} in an attribute, {mode}",
            f"""
            class Trainer:
                def __init__(self, model, mode):
                    self.model = model
                    if mode == "zero2":
                        self.strategy = ShardingStrategy.{kinds[0]}
                    else:
                        self.strategy = ShardingStrategy.{kinds[1]}

                def wrap(self):
                    self.model = FSDP(self.model, {BLOCKS}, {HERE}, sharding_strategy=self.strategy)


            def build():
                trainer = Trainer(Plain(), "{mode}")
                trainer.wrap()
                return trainer.model
            """,
            world=4,
        )
for strategy in ("SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"):
    program(
        f"two models of one function, {strategy} of run time",
        f"""
        def wrap(model, teacher, settings):
            model = FSDP(
                model, {BLOCKS}, {HERE}, mixed_precision=settings["precision"], sharding_strategy=settings["strategy"]
            )
            teacher = FSDP(
                teacher, {BLOCKS}, {HERE}, mixed_precision=settings["precision"], sharding_strategy=settings["strategy"]
            )
            return teacher


        def build():
            precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            strategy = ShardingStrategy[os.environ.get("STRATEGY", "{strategy}")]
            return wrap(Plain(), Plain(), {{"precision": precision, "strategy": strategy}})
        """,
        world=4,
    )
for strategy in ("zero2", "none"):
    program(
        f"strategy {strategy} out of a table that takes the name of its key",
        f"""
        def wrap(model, strategy):
            strategy = {{
                "full": ShardingStrategy.FULL_SHARD,
                "zero2": ShardingStrategy.SHARD_GRAD_OP,
                "none": ShardingStrategy.NO_SHARD,
            }}[strategy]
            return FSDP(model, {BLOCKS}, {HERE}, sharding_strategy=strategy)


        def build():
            return wrap(Plain(), os.environ.get("STRATEGY", "{strategy}"))
        """,
    )
program(
    "strategy none out of a table, for two branches",
    f"""
    def wrap(model, mode, blocks):
        strategy = {{"zero2": ShardingStrategy.SHARD_GRAD_OP, "none": ShardingStrategy.NO_SHARD}}[mode]
        if blocks:
            model = FSDP(model, {BLOCKS}, {HERE}, sharding_strategy=strategy)
        else:
            model = FSDP(model, {HERE}, sharding_strategy=strategy)
        return model


    def build():
        return wrap(Plain(), os.environ.get("STRATEGY", "none"), blocks=True)
    """,
)
program(
    "strategy in a field of a dataclass",
    f"""
    @dataclass
    class Config:
        strategy: ShardingStrategy = ShardingStrategy.SHARD_GRAD_OP


    def build():
        config = Config()
        return FSDP(Plain(), {BLOCKS}, {HERE}, sharding_strategy=config.strategy)
    """,
)
row("world of one process", "Plain", BLOCKS, world=1)
row("world of one process, SHARD_GRAD_OP", "Plain", "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", world=1)
for strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
    hybrid = f"{BLOCKS}, sharding_strategy=ShardingStrategy.{strategy}"
    row(
        f"{strategy} with a tuple of process groups",
        "Plain",
        f"{hybrid}, process_group=(shard, replicate)",
        GROUPS,
        world=4,
    )
    row(
        f"{strategy} with a mesh",
        "Plain",
        f"{hybrid}, device_mesh=mesh",
        'mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))',
        world=4,
    )
    row(
        f"{strategy} with a mesh without names",
        "Plain",
        f"{hybrid}, device_mesh=mesh",
        'mesh = init_device_mesh("cuda", (2, 2))',
        world=4,
    )
    row(f"{strategy} over the devices of a node", "Plain", f"{hybrid}, {HERE}", world=4)
    row(f"{strategy} over the devices of a node, which are not seen", "Plain", hybrid, world=4)
program(
    "HYBRID_SHARD by hand",
    """
    def build():
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "fsdp"))
        strategy = ShardingStrategy.HYBRID_SHARD
        model = Plain()
        for i, block in enumerate(model.blocks):
            model.blocks[i] = FSDP(block, sharding_strategy=strategy, device_mesh=mesh, use_orig_params=True)
        return FSDP(model, sharding_strategy=strategy, device_mesh=mesh, use_orig_params=True)
    """,
    world=4,
)

# Process groups and meshes

row("process group of the world", "Plain", f"{BLOCKS}, process_group=dist.group.WORLD")
row("process group of some ranks", "Plain", f"{BLOCKS}, process_group=shard", GROUPS, world=4)
row(
    "process group from a call",
    "Plain",
    f"{BLOCKS}, {HERE}, process_group=[dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][dist.get_rank() // 2], "
    "sync_module_states=True",
    world=4,
    seed_by_rank=True,
)
row(
    "hybrid or not, under two conditions",
    "Plain",
    f"{BLOCKS}, {HERE}, **kwargs",
    """\
zero2, hybrid = True, False
kwargs = {}
if hybrid:
    kwargs["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD
if zero2:
    kwargs["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
""",
)
for given in ("shard", "None"):
    program(
        f"process group that is passed in, {given}",
        f"""
        def wrap(model, group=None):
            return FSDP(
                model,
                process_group=group,
                auto_wrap_policy=ModuleWrapPolicy({{Block}}),
                device_id=torch.cuda.current_device(),
                sync_module_states=True,
                use_orig_params=True,
            )


        def build():
            rank = dist.get_rank()
            shard = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
            return wrap(Plain(), {given})
        """,
        world=4,
        seed_by_rank=True,
    )
for strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
    row(
        f"{strategy} with a tuple of process groups, on a device that is seen",
        "Plain",
        f"{BLOCKS}, {HERE}, sharding_strategy=ShardingStrategy.{strategy}, process_group=(shard, replicate)",
        GROUPS,
        world=4,
    )
row(
    "NO_SHARD over some ranks, on a device that is seen",
    "Plain",
    f"{BLOCKS}, {HERE}, process_group=replicate, sharding_strategy=ShardingStrategy.NO_SHARD",
    GROUPS,
    world=4,
)
for mode in ("zero2", "ddp"):
    row(
        f"one process group, {mode} of a dict with NO_SHARD",
        "Plain",
        f"{BLOCKS}, {HERE}, process_group=shard, sync_module_states=True, sharding_strategy="
        f'{{"zero2": ShardingStrategy.SHARD_GRAD_OP, "ddp": ShardingStrategy.NO_SHARD}}[mode]',
        f'{GROUPS}mode = "{mode}"\n',
        world=4,
        seed_by_rank=True,
    )
for name, group in (
    ("NO_SHARD", "shard"),
    ("SHARD_GRAD_OP", "shard"),
    ("NO_SHARD", "shard if rank < 9 else None"),
    ("FULL_SHARD", "shard if rank < 9 else None"),
    ("FULL_SHARD", "None"),
    ("HYBRID_SHARD", "(shard, replicate)"),
):
    program(
        f"{name} by name over {group}",
        f"""
        def wrap(model, name, group):
            return FSDP(
                model,
                auto_wrap_policy=ModuleWrapPolicy({{Block}}),
                process_group=group,
                sharding_strategy=ShardingStrategy[name],
                device_id=torch.cuda.current_device(),
                sync_module_states=True,
                use_orig_params=True,
            )


        def build():
            rank = dist.get_rank()
            shard = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
            replicate = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank % 2]
            return wrap(Plain(), "".join("{name}"), {group})
        """,
        world=4,
        seed_by_rank=True,
    )
for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
    program(
        f"two parts over a group each, {name} by name",
        f"""
        def wrap(model, name, group, head_group):
            strategy = getattr(ShardingStrategy, name)
            model.inp = FSDP(model.inp, process_group=group, sharding_strategy=strategy, {HERE})
            model.out = FSDP(model.out, process_group=head_group, sharding_strategy=strategy, {HERE})
            return model


        def build():
            rank = dist.get_rank()
            shard = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
            pairs = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank % 2]
            return FSDP(wrap(Plain(), "".join("{name}"), shard, pairs), {HERE})
        """,
        world=4,
    )
for strategy in ("SHARD_GRAD_OP", "NO_SHARD"):
    program(
        f"splat of a dict of the class, {strategy}",
        f"""
        class Core:
            defaults = {{"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "use_orig_params": True}}


        class Trainer(Core):
            def wrap(self, model):
                blocks = ModuleWrapPolicy({{Block}})
                return FSDP(model, auto_wrap_policy=blocks, device_id=torch.cuda.current_device(), **self.defaults)


        def build():
            trainer = Trainer()
            trainer.defaults["sharding_strategy"] = ShardingStrategy.{strategy}
            return trainer.wrap(Plain())
        """,
    )
for hybrid in (True, False):
    program(
        f"mesh that a splat may hold, hybrid: {hybrid}",
        f"""
        def wrap(model, hybrid, strategy):
            kwargs = {{}}
            if hybrid:
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
                kwargs["device_mesh"] = mesh
            blocks = ModuleWrapPolicy({{Block}})
            return FSDP(model, auto_wrap_policy=blocks, sharding_strategy=strategy, use_orig_params=True, **kwargs)


        def build():
            return wrap(Plain(), {hybrid}, ShardingStrategy.{"HYBRID_SHARD" if hybrid else "FULL_SHARD"})
        """,
        world=4,
    )
for hybrid in (True, False):
    program(
        f"one process group, or two, hybrid: {hybrid}",
        f"""
        def wrap(model, hybrid):
            rank = dist.get_rank()
            shard = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
            replicate = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank % 2]
            mode = "hsdp" if hybrid else "sdp"
            if hybrid:
                process_group = (shard, replicate)
            else:
                process_group = shard
            return FSDP(
                model,
                auto_wrap_policy=ModuleWrapPolicy({{Block}}),
                process_group=process_group,
                sharding_strategy={{
                    "fsdp": ShardingStrategy.FULL_SHARD,
                    "hsdp": ShardingStrategy.HYBRID_SHARD,
                    "sdp": ShardingStrategy.SHARD_GRAD_OP,
                }}[mode],
                device_id=torch.cuda.current_device(),
                sync_module_states=True,
                use_orig_params=True,
            )


        def build():
            return wrap(Plain(), {hybrid})
        """,
        world=4,
        seed_by_rank=True,
    )
for name in ("FULL_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD"):
    program(
        f"mesh for the hybrid strategies alone, {name}",
        f"""
        def wrap(model, strategy):
            if strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
                mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("global", "local"))
            else:
                mesh = None
            policy = ModuleWrapPolicy({{Block}})
            return FSDP(
                model,
                auto_wrap_policy=policy,
                sharding_strategy=strategy,
                device_mesh=mesh,
                sync_module_states=True,
                use_orig_params=True,
            )


        def build():
            names = dict(os.environ)
            return wrap(Plain(), ShardingStrategy[names.get("STRATEGY", "{name}")])
        """,
        world=4,
        seed_by_rank=True,
    )
row(
    "strategy by a call of dict",
    "Plain",
    f"{BLOCKS}, sharding_strategy=dict(zero3=ShardingStrategy.FULL_SHARD, zero2=ShardingStrategy.SHARD_GRAD_OP)[key]",
    'key = "zero2"',
)
row(
    "strategy by eval of its name",
    "Plain",
    f"{BLOCKS}, {HERE}, sharding_strategy=eval(f'ShardingStrategy.{{key}}')",
    'key = "SHARD_GRAD_OP"',
)
row(
    "precision or none, by a flag in the call",
    "Plain",
    f"{BLOCKS}, mixed_precision=MixedPrecision(torch.bfloat16, torch.float32) if low else None",
    "low = True",
)
row(
    "offload by a flag",
    "Plain",
    f"{BLOCKS}, cpu_offload=CPUOffload(offload_params=True) if offload else None",
    "offload = False",
)
for shape, strategy in (("(4,)", "FULL_SHARD"), ("(2, 2)", "HYBRID_SHARD"), ("(2, 2)", "SHARD_GRAD_OP")):
    program(
        f"mesh of {shape} that comes from a config, {strategy}",
        f"""
        class Config:
            def __init__(self, **values):
                for name, value in values.items():
                    setattr(self, name, value)


        def wrap(model, config):
            return FSDP(
                model,
                auto_wrap_policy=ModuleWrapPolicy({{Block}}),
                device_mesh=config.mesh,
                sharding_strategy=ShardingStrategy.{strategy},
                sync_module_states=True,
                use_orig_params=True,
            )


        def build():
            names = ("replicate", "shard")[:len({shape})]
            return wrap(Plain(), Config(mesh=init_device_mesh("cuda", {shape}, mesh_dim_names=names)))
        """,
        world=4,
        seed_by_rank=True,
    )
program(
    "process group of some ranks, by new_group",
    """
    def build():
        for ranks in ([0, 1], [2, 3]):
            made = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                group = made
        return FSDP(
            Plain(),
            process_group=group,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            device_id=torch.cuda.current_device(),
            sync_module_states=True,
            use_orig_params=True,
        )
    """,
    world=4,
    seed_by_rank=True,
)
row(
    "NO_SHARD over some ranks",
    "Plain",
    f"{BLOCKS}, process_group=replicate, sharding_strategy=ShardingStrategy.NO_SHARD",
    GROUPS,
    world=4,
)
_PAIRS = 'mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("pp", "dp"))'
for which, given, made in (
    ("a mesh of all", "mesh", 'mesh = init_device_mesh("cuda", (4,))'),
    ("a slice of a mesh", 'mesh["pp"]', _PAIRS),
    ("the first of two dimensions", "mesh", _PAIRS),
):
    row(
        f"NO_SHARD over {which}",
        "Plain",
        f"{BLOCKS}, device_mesh={given}, sync_module_states=True, sharding_strategy=ShardingStrategy.NO_SHARD",
        made,
        world=4,
        seed_by_rank=True,
    )
for which, given in (("is handed in", '"one"'), ("may be None", '"none"')):
    program(
        f"NO_SHARD over a mesh that {which}",
        f"""
        def wrap(model, mesh):
            return FSDP(
                model,
                auto_wrap_policy=ModuleWrapPolicy({{Block}}),
                device_mesh=mesh,
                sharding_strategy=ShardingStrategy.NO_SHARD,
                sync_module_states=True,
                device_id=torch.cuda.current_device(),
            )


        def build():
            made = init_device_mesh("cuda", (2, 2), mesh_dim_names=("pp", "dp"))
            return wrap(Plain(), {{"one": made["dp"], "none": None}}["".join({given})])
        """,
        world=4,
        seed_by_rank=True,
    )
row("mesh of one dimension", "Plain", f"{BLOCKS}, device_mesh=mesh", 'mesh = init_device_mesh("cuda", (4,))', world=4)
row(
    "slice of a mesh",
    "Plain",
    f'{BLOCKS}, device_mesh=mesh["dp"]',
    'mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("pp", "dp"))',
    world=4,
)
row(
    "mesh of two dimensions without a hybrid strategy shards over the first",
    "Plain",
    f"{BLOCKS}, device_mesh=mesh",
    'mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))',
    world=4,
)
row(
    "mesh of (4, 1) without a hybrid strategy shards over four",
    "Plain",
    f"{BLOCKS}, device_mesh=mesh, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP",
    'mesh = init_device_mesh("cuda", mesh_shape=(4, 1), mesh_dim_names=("dp", "tp"))',
    world=4,
)
support(
    "nameless mesh of two dimensions",
    "Plain",
    f"{BLOCKS}, device_mesh=mesh",
    'mesh = init_device_mesh("cuda", (2, 2))',
    world=4,
)
program(
    "mesh that is passed in",
    """
    def wrap(model, mesh, strategy):
        return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_mesh=mesh, sharding_strategy=strategy)


    def build():
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
        return wrap(Plain(), mesh, ShardingStrategy.HYBRID_SHARD)
    """,
    world=4,
)

# Mixed precision


def precise(name: str, model: str, fields: str, way: str = "idiomatic", **options: object) -> None:
    row(name, model, f"{BLOCKS}, mixed_precision=MixedPrecision({fields})", "", way, **options)


precise("bf16 parameters, reduced in float32", "Plain", BF16)
precise("bf16, where the reduction follows the parameters", "Plain", "param_dtype=torch.bfloat16")
precise("a reduction in bf16 alone", "Plain", "reduce_dtype=torch.bfloat16")
precise("float16 parameters", "Plain", "param_dtype=torch.float16, reduce_dtype=torch.float32")
precise("bf16 buffers, cast before sharding", "Plain", f"{BF16}, buffer_dtype=torch.bfloat16")
precise("buffers in float64 alone", "Plain", "buffer_dtype=torch.float64")
precise("inputs cast at every unit", "Plain", f"{BF16}, cast_forward_inputs=True")
precise("a root without parameters casts its inputs", "Rootless", BF16)
precise("BatchNorm in float32 units of its own", "BatchNormed", BF16)
precise("BatchNorm with bf16 buffers", "BatchNormed", f"{BF16}, buffer_dtype=torch.bfloat16")
precise("classes kept in float32", "Plain", f"{BF16}, _module_classes_to_ignore=(nn.LayerNorm,)")
KEPT = f"""
    SIZE = partial(size_based_auto_wrap_policy, min_num_params=200)
    POLICIES = {{"blocks": ModuleWrapPolicy({{Block}}), "size": SIZE}}


    def wrap(model, name, classes, casts=True):
        return FSDP(
            model,
            auto_wrap_policy=POLICIES[name],
            mixed_precision=MixedPrecision({BF16}, cast_forward_inputs=casts, _module_classes_to_ignore=classes),
        )


    def build():
        return wrap(CALL)
    """
program(
    "classes kept in float32 around the units of a policy",
    KEPT.replace("CALL", 'Plain(), "size", [Block, nn.LayerNorm]'),
)
program(
    "classes kept in float32 beside the units of a policy", KEPT.replace("CALL", 'Plain(), "blocks", [nn.LayerNorm]')
)
program(
    "classes kept in float32 inside of the blocks of a list",
    f"""
    def build():
        model = Plain()
        return FSDP(
            model,
            auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks),
            mixed_precision=MixedPrecision({BF16}, _module_classes_to_ignore=(nn.LayerNorm,)),
        )
    """,
)
HELD = {
    "handed in": ("precision", "ModuleWrapPolicy({Block})"),
    "of a setting": (
        'getattr(config, "precision", None)',
        "lambda module, recurse, **_: recurse or isinstance(module, Block)",
    ),
    "under a condition": ("precision if config.low else None", "config.policy"),
    "in a variable": ("own", "ModuleWrapPolicy({Block})"),
}
GIVEN = {
    "with classes": ("Plain", f"MixedPrecision({BF16}, _module_classes_to_ignore=[nn.LayerNorm])"),
    "without classes": ("BatchNormed", f"MixedPrecision({BF16})"),
    "None": ("Plain", "None"),
}
for how, (held, policy) in HELD.items():
    for which, (model, given) in GIVEN.items():
        program(
            f"a precision {how} that may name classes kept in float32, {which}",
            f"""
            class Config:
                def __init__(self, **values):
                    for name, value in values.items():
                        setattr(self, name, value)


            def wrap(model, precision, config):
                own = {given}
                return FSDP(model, auto_wrap_policy={policy}, mixed_precision={held}, {HERE})


            def build():
                given = {given}
                if os.environ.get("OTHER"):
                    given = MixedPrecision({BF16}, _module_classes_to_ignore=[Block])
                config = Config(low=True, precision=given, policy=ModuleWrapPolicy([Block]))
                return wrap({model}(), given, config)
            """,
        )
for strategy in ("SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"):
    program(
        f"classes kept in float32 that a keyword of a function may bring, {strategy}",
        f"""
        def wrap(model, auto_wrap_policy, **kwargs):
            def policy(module, recurse, **kwargs):
                return auto_wrap_policy(module, recurse, **kwargs) or module is model.out

            return FSDP(model, auto_wrap_policy=policy, {HERE}, **kwargs)


        def teacher(policy):
            return wrap(Plain(), auto_wrap_policy=policy, sharding_strategy=ShardingStrategy.{strategy})


        def build():
            policy = lambda module, recurse, **_: recurse or isinstance(module, (Block, nn.LayerNorm))
            precision = None
            if not os.environ.get("PRECISE"):
                precision = MixedPrecision({BF16}, _module_classes_to_ignore=(nn.LayerNorm,))
            strategy = ShardingStrategy.{strategy}
            return wrap(Plain(), auto_wrap_policy=policy, mixed_precision=precision, sharding_strategy=strategy)
        """,
        world=4,
    )
for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"):
    mesh = 'init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))' if "HYBRID" in strategy else "None"
    for whole in ("and the model around them", "alone"):
        program(
            f"by a function that is handed on in bf16, parts {whole}, {strategy}",
            f"""
            class Scaled(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = nn.Linear(8, 8)
                    self.register_buffer("table", torch.linspace(0.1, 0.7, 8))

                def forward(self, x):
                    return torch.tanh(self.lin((x * self.table).to(self.lin.weight.dtype)))


            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.scaled = nn.ModuleList(Scaled() for _ in range(2))

                def forward(self, x):
                    for scaled in self.scaled:
                        x = scaled(x.float() * 1.001)
                    return x


            def shard(model, apply, dtype):
                bf16 = MixedPrecision(dtype, torch.float32) if dtype is not None else None
                strategy = ShardingStrategy.{strategy}
                mesh = {mesh}

                def wrap(module):
                    return FSDP(
                        module, device_mesh=mesh, mixed_precision=bf16, sharding_strategy=strategy, {HERE}
                    )

                return apply(model, wrap)


            def apply(model, wrapper):
                for index, child in enumerate(model.scaled):
                    model.scaled[index] = wrapper(child)
                return model if os.environ.get("PARTS", "{whole}") == "alone" else wrapper(model)


            def build():
                return shard(Net(), apply, torch.bfloat16)
            """,
            world=4,
        )
for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"):
    program(
        f"wrap in a context that is given the keywords of a function, {strategy}",
        f"""
        from torch.distributed.fsdp.wrap import enable_wrap, wrap


        def shard(model, **kwargs):
            with enable_wrap(wrapper_cls=FSDP, **kwargs):
                for index, block in enumerate(model.blocks):
                    model.blocks[index] = wrap(block)
                model.out = wrap(model.out, cpu_offload=None)
                model = wrap(model)
            return model


        def build():
            mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
            if os.environ.get("PLAIN"):
                return shard(Plain(), device_mesh=mesh)
            strategy = ShardingStrategy[os.environ.get("STRATEGY", "{strategy}")]
            return shard(Plain(), device_mesh=mesh, sharding_strategy=strategy)
        """,
        world=4,
    )
    if strategy == "SHARD_GRAD_OP":
        continue
    mesh = 'init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))' if "HYBRID" in strategy else "None"
    program(
        f"wrap in a context that is given a dict, {strategy}",
        f"""
        from torch.distributed.fsdp.wrap import enable_wrap, wrap


        def build():
            model = Plain()
            mesh = {mesh}
            kwargs = dict(device_mesh=mesh, sharding_strategy=ShardingStrategy.{strategy}, {HERE})
            with enable_wrap(wrapper_cls=FSDP, **kwargs):
                for index, block in enumerate(model.blocks):
                    model.blocks[index] = wrap(block)
                model.out = wrap(model.out)
                model = wrap(model)
            return model
        """,
        world=4,
    )
program(
    "wrap in the constructors of a model, and the context in another function",
    """
    from contextlib import contextmanager

    from torch.distributed.fsdp.wrap import enable_wrap, wrap


    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = wrap(nn.Linear(8, 8))
            self.register_buffer("table", torch.linspace(0.1, 0.7, 8))

        def forward(self, x):
            return torch.tanh(self.lin(x * self.table.to(x.dtype)))


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(8, 8)
            self.scaled = nn.ModuleList(wrap(Scaled()) for _ in range(2))
            self.out = wrap(nn.Linear(8, 1))

        def forward(self, x):
            x = self.inp(x)
            for scaled in self.scaled:
                x = scaled(x * 1.001)
            return self.out(x)


    @contextmanager
    def sharded(mixed):
        bf16 = MixedPrecision(torch.bfloat16, torch.float32, buffer_dtype=torch.bfloat16) if mixed else None
        strategy = ShardingStrategy.SHARD_GRAD_OP
        with enable_wrap(wrapper_cls=FSDP, mixed_precision=bf16, sharding_strategy=strategy, sync_module_states=True):
            yield


    def build():
        with sharded(True):
            return wrap(Net())
    """,
    seed_by_rank=True,
)
precise("no cast of any input", "Plain", f"{BF16}, cast_root_forward_inputs=False", bf16_input=True)
for kind, made in {
    "a comprehension": "[FSDP(m, {0}) for m in [Plain()]][0]",
    "a dict": "{{name: FSDP(m, {0}) for name, m in dict(a=Plain()).items()}}['a']",
    "a lambda": "(lambda m: FSDP(m, {0}))(Plain())",
    "a condition in a call": "list([FSDP(model, {0}) if model.training else model])[0]",
}.items():
    given = f"{BLOCKS}, {IN_BF16}, sync_module_states=True"
    program(
        f"wrapped in {kind}",
        f"""
        def build():
            model = Plain()
            return {made.format(given)}
        """,
        seed_by_rank=True,
    )
program(
    "parts wrapped in a comprehension, and the model around them",
    f"""
    def build():
        model, bf16 = Plain(), MixedPrecision({BF16}, buffer_dtype=torch.bfloat16)
        blocks = [FSDP(block, mixed_precision=bf16, sync_module_states=True) for block in model.blocks]
        model.blocks = nn.ModuleList(blocks)
        return FSDP(model, mixed_precision=bf16)
    """,
)
for mixed, pure in ((True, False), (False, False), (True, True)):
    program(
        f"buffers in the dtype of the reduction, mixed {mixed}, pure {pure}",
        f"""
        def policy(mixed):
            if mixed:
                return MixedPrecision(torch.float32, torch.bfloat16, torch.bfloat16)
            return None


        def build(pure={pure}):
            chosen = policy({mixed})
            blocks = ModuleWrapPolicy({{Block}})
            return FSDP(Plain(), auto_wrap_policy=blocks, mixed_precision=chosen if not pure else None)
        """,
    )
for low in ("bf16", "half", ""):
    program(
        f"one of two that differ in whether units cast, {low or 'none'}",
        f"""
        full = MixedPrecision(torch.float32, torch.float32, torch.float32)
        bf16 = MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16, cast_forward_inputs=True)
        half = MixedPrecision(
            param_dtype=torch.bfloat16,
            reduce_dtype=torch.float32,
            # Buffer precision.
            buffer_dtype=torch.bfloat16,
        )


        def chosen(low):
            if low == "bf16":
                return bf16
            if low == "half":
                return half
            return full


        def build(low="{low}"):
            blocks = ModuleWrapPolicy({{Block}})
            return FSDP(Masked(), auto_wrap_policy=blocks, mixed_precision=chosen(low) if low else None)
        """,
    )
row("bf16 without a policy", "Plain", f"mixed_precision=MixedPrecision({BF16}, buffer_dtype=torch.bfloat16)")
row(
    "bf16 without a policy, where BatchNorm is cast too",
    "BatchNormed",
    f"mixed_precision=MixedPrecision({BF16}, buffer_dtype=torch.bfloat16)",
)
for kind in ("blocks", "none"):
    program(
        f"bf16 with BatchNorm, whose policy may be None and is {kind}",
        f"""
        def get_policy(kind):
            if kind == "none":
                return None
            return ModuleWrapPolicy({{Block}})


        def build():
            model = BatchNormed()
            policy = get_policy("{kind}")
            precision = MixedPrecision({BF16}, buffer_dtype=torch.bfloat16)
            return FSDP(model, auto_wrap_policy=policy, mixed_precision=precision, use_orig_params=True)
        """,
    )
    program(
        f"bf16 with BatchNorm, whose policy a condition chooses, which is {kind}",
        f"""
        def wrap(model, kind, precision=MixedPrecision({BF16}, buffer_dtype=torch.bfloat16)):
            policy = ModuleWrapPolicy({{Block}}) if kind == "blocks" else None
            return FSDP(model, auto_wrap_policy=policy, mixed_precision=precision, use_orig_params=True)


        def build():
            return wrap(BatchNormed(), "{kind}")
        """,
    )
row("bf16, with masks and integers for the blocks", "Masked", f"{BLOCKS}, {IN_BF16}")
program(
    "mixed precision that may be None",
    """
    def precision(kind):
        if kind == "bf16":
            return MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
        return None


    def build():
        model = Plain()
        blocks = ModuleWrapPolicy({Block})
        return FSDP(model, auto_wrap_policy=blocks, mixed_precision=precision("bf16"), use_orig_params=True)
    """,
)
program(
    "mixed precision that is None this time",
    """
    def build(bf16=False):
        policy = MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16) if bf16 else None
        return FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=policy)
    """,
)
# Without mixed precision, FSDP1 made no units of BatchNorm, and a policy by size did not look inside of attention.
for low in (True, False):
    kind = "given" if low else "None this time"
    program(
        f"BatchNorm, mixed precision {kind}",
        f"""
        def build(low={low}):
            precision = MixedPrecision({BF16}, buffer_dtype=torch.bfloat16) if low else None
            return FSDP(BatchNormed(), auto_wrap_policy=ModuleWrapPolicy({{Block}}), mixed_precision=precision)
        """,
    )
    program(
        f"BatchNorm, mixed precision under a flag, {kind}",
        f"""
        def build(low={low}):
            options = dict(auto_wrap_policy=ModuleWrapPolicy({{Block}}))
            if low:
                options["mixed_precision"] = MixedPrecision({BF16})
            return FSDP(BatchNormed(), **options)
        """,
    )
    program(
        f"BatchNorm, mixed precision passed in, {kind}",
        f"""
        def wrap(model, precision=None):
            policy = ModuleWrapPolicy({{Block}})
            return FSDP(model, auto_wrap_policy=policy, mixed_precision=precision, use_orig_params=True)


        class Config:
            def __init__(self, **values):
                for name, value in values.items():
                    setattr(self, name, value)


        def build():
            precision = MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
            return wrap(BatchNormed(), Config(precision=precision if {low} else None).precision)
        """,
    )
    for policy in ("SIZE", "POLICIES[kind]"):
        program(
            f"{policy} looks inside of attention by mixed precision, {kind}",
            f"""
            SIZE = partial(size_based_auto_wrap_policy, min_num_params=300)
            POLICIES = {{"size": SIZE, "blocks": ModuleWrapPolicy({{Block}})}}


            def precision(low):
                return MixedPrecision(reduce_dtype=torch.float32) if low else None


            def build(kind="size", low={low}):
                return FSDP(Attention(), auto_wrap_policy={policy}, mixed_precision=precision(low))
            """,
        )
program(
    "mixed precision that is set field by field",
    """
    def build():
        precision = MixedPrecision()
        precision.param_dtype = torch.bfloat16
        precision.reduce_dtype = torch.float32
        return FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=precision)
    """,
)

_PASSED_IN = """
    def wrap(model, precision=None):
        policy = ModuleWrapPolicy({Block})
        return FSDP(model, auto_wrap_policy=policy, mixed_precision=precision, use_orig_params=True)


    class Config:
        def __init__(self, **values):
            for name, value in values.items():
                setattr(self, name, value)


    def build():
        config = Config(precision=%s)
        return wrap(Plain(), config.precision)
    """
program(
    "precision that is passed in, with casts at every unit",
    _PASSED_IN % "MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16, cast_forward_inputs=True)",
)
program(
    "precision that is passed in, with no cast of any input",
    _PASSED_IN % "MixedPrecision(torch.bfloat16, torch.float32, cast_root_forward_inputs=False)",
    bf16_input=True,
)
program(
    "precision that is passed in, None this time, where others cast",
    (
        _PASSED_IN
        + "\n\n    LOW = MixedPrecision(torch.bfloat16, cast_forward_inputs=True, cast_root_forward_inputs=False)\n"
    )
    % "None",
)

program(
    "a splat with updates under flags",
    """
    def build(low=True, synced=True):
        settings = dict(auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        if low:
            settings["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if synced:
            settings.update(sync_module_states=True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        return FSDP(Plain(), **settings)
    """,
    seed_by_rank=True,
)
program(
    "a splat with defaults",
    """
    def build(synced=True):
        settings = dict(auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        settings.setdefault("auto_wrap_policy", None)
        settings.setdefault("sharding_strategy", ShardingStrategy.SHARD_GRAD_OP)
        if synced:
            settings.setdefault("sync_module_states", True)
        return FSDP(Plain(), **settings)
    """,
    seed_by_rank=True,
)
program(
    "settings that are handed in",
    f"""
    def wrap(model, settings):
        return FSDP(model, **settings)


    def build():
        given = dict(auto_wrap_policy=ModuleWrapPolicy({{Block}}), {IN_BF16}, use_orig_params=True)
        given["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
        if dist.get_world_size() > 1:
            given["sync_module_states"] = True
        given["device_id"] = torch.cuda.current_device()
        return wrap(Plain(), given)
    """,
    seed_by_rank=True,
)

for mode in ("fsdp", "hsdp"):
    program(
        f"precision, policy and strategy in a tuple that a function returns: {mode}",
        f"""
        def precision_of(mode):
            if mode == "hsdp":
                precision = MixedPrecision(param_dtype=torch.bfloat16)
            else:
                precision = None
            return precision


        def settings_of(mode, block):
            if mode == "hsdp":
                strategy = ShardingStrategy.HYBRID_SHARD
            else:
                strategy = ShardingStrategy.FULL_SHARD
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={{block}})
            return precision_of(mode), policy, strategy


        def build():
            precision, policy, strategy = settings_of("{mode}", Block)
            return FSDP(
                Plain(), auto_wrap_policy=policy, mixed_precision=precision, sharding_strategy=strategy, {HERE}
            )
        """,
        world=4,
    )
for given in ("True", "False"):
    program(
        f"precision and policy that a flag leaves out: {given}",
        f"""
        def precision_of(amp):
            if not amp:
                return None
            return MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


        def wrap(model, given):
            policy = None
            if given:
                policy = ModuleWrapPolicy({{Block}})
            return FSDP(model, auto_wrap_policy=policy, mixed_precision=precision_of(given), {HERE})


        def build():
            return wrap(Plain(), {given})
        """,
    )
for mode in ("full", "zero2", "none"):
    program(
        f"a splat of a dict that a function fills, {mode}",
        f"""
        class Settings:
            low = True
            offload = False


        def settings_of(model, mode, settings):
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls=[Block])
            precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            strategy = {{"full": ShardingStrategy.FULL_SHARD, "zero2": ShardingStrategy.SHARD_GRAD_OP}}.get(mode)
            if mode == "none":
                strategy = ShardingStrategy.NO_SHARD
                policy = None
            fsdp_kwargs = {{
                "auto_wrap_policy": policy,
                "mixed_precision": precision if settings.low else None,
                "sharding_strategy": strategy,
                "device_id": torch.cuda.current_device(),
                "cpu_offload": CPUOffload(offload_params=True) if settings.offload else None,
            }}
            if settings.low:
                fsdp_kwargs.update({{"use_orig_params": True, "sync_module_states": True}})
            return fsdp_kwargs, len(fsdp_kwargs)


        def build():
            model = Plain()
            kwargs, count = settings_of(model, "{mode}", Settings())
            return FSDP(model, **kwargs)
        """,
        seed_by_rank=True,
    )
program(
    "a policy that is handed in",
    """
    def shard(model, *, policy):
        return FSDP(model, auto_wrap_policy=policy, use_orig_params=True, device_id=torch.cuda.current_device())


    def build():
        teacher = Plain()
        shard(teacher, policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}))
        model = Plain()
        return shard(model, policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks))
    """,
)
for mode in ("full", "zero2", "none"):
    program(
        f"a dict that a function returns for two models, {mode}",
        f"""
        def settings_of(mode, offload=False, lora=False):
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={{Block}})
            precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            if mode == "full":
                mode = ShardingStrategy.FULL_SHARD
            elif mode == "zero2":
                mode = ShardingStrategy.SHARD_GRAD_OP
            elif mode == "none":
                mode = ShardingStrategy.NO_SHARD
                policy = None
            device = torch.cuda.current_device()
            offload = CPUOffload(offload_params=True) if offload else None
            kwargs = {{
                "auto_wrap_policy": policy,
                "mixed_precision": precision,
                "sharding_strategy": mode,
                "device_id": device,
                "limit_all_gathers": True,
                "cpu_offload": offload,
            }}
            if not lora:
                kwargs.update({{"use_orig_params": True, "sync_module_states": True}})
            return kwargs


        def build():
            teacher, student = Plain(), Plain()
            kwargs = settings_of("{mode}")
            teacher = FSDP(teacher, **kwargs)
            teacher.requires_grad_(False)
            student = FSDP(student, **kwargs)
            return student
        """,
        seed_by_rank=True,
    )
for mode in ("full", "none"):
    program(
        f"dicts of two functions by one name, {mode}",
        f"""
        def precision_of(low):
            return MixedPrecision(param_dtype=torch.bfloat16 if low else torch.float32, buffer_dtype=torch.float32)


        def settings_of(mode, low=False):
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={{Block}})
            if mode == "full":
                mode = ShardingStrategy.FULL_SHARD
            elif mode == "none":
                mode = ShardingStrategy.NO_SHARD
                policy = None
            kwargs = {{"auto_wrap_policy": policy, "mixed_precision": precision_of(low), "sharding_strategy": mode}}
            if torch.cuda.is_available():
                kwargs.update({{"use_orig_params": True, "device_id": torch.cuda.current_device()}})
            return kwargs, policy


        def settings_of_student():
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={{Block}})
            return {{"auto_wrap_policy": policy, "mixed_precision": precision_of(True), "sync_module_states": True}}, 1


        def build():
            teacher = Plain()
            kwargs, policy = settings_of("{mode}")
            teacher = FSDP(teacher, **kwargs)
            student = Plain()
            kwargs, _ = settings_of_student()
            student = FSDP(student, **kwargs, use_orig_params=True)
            return student
        """,
        seed_by_rank=True,
    )
program(
    "a splat of a dict of the class",
    """
    class Trainer:
        defaults = {
            "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP,
            "cpu_offload": None,
            "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16),
            "limit_all_gathers": True,
        }

        def wrap(self, model):
            device = torch.cuda.current_device()
            return FSDP(model, **self.defaults, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=device)


    def build():
        return Trainer().wrap(Plain())
    """,
)
program(
    "precision and offload that are passed in",
    """
    def wrap(model, precision=None, offload=None):
        policy = ModuleWrapPolicy({Block})
        return FSDP(
            model, auto_wrap_policy=policy, mixed_precision=precision, cpu_offload=offload, use_orig_params=True
        )


    class Config:
        def __init__(self, **values):
            for name, value in values.items():
                setattr(self, name, value)


    def build():
        config = Config(precision=MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16))
        return wrap(Plain(), config.precision)
    """,
)
program(
    "offload that a method of the settings gives",
    """
    class Config:
        offload, params = True, False

        def get_offload(self):
            if not self.offload:
                return None
            return CPUOffload(offload_params=self.params)


    def build():
        config = Config()
        policy = ModuleWrapPolicy({Block})
        return FSDP(Plain(), auto_wrap_policy=policy, cpu_offload=config.get_offload(), use_orig_params=True)
    """,
)

program(
    "device in a dict that a run without GPUs lacks",
    """
    import os


    def wrap(model, **kwargs):
        return FSDP(model, use_orig_params=True, **kwargs)


    def build():
        kwargs = {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
        if torch.cuda.is_available():
            kwargs["device_id"] = int(os.environ["LOCAL_RANK"])
        return wrap(Plain(), **kwargs)
    """,
)

# What is left alone

IGNORING = (2, 7)
"""The first torch whose `fully_shard` takes `ignored_params`."""

for name, arguments in {
    "ignored_modules, one": f'{BLOCKS}, ignored_modules=[model.layers["a"].inner]',
    "ignored_modules, from a loop over names": (
        f"{BLOCKS}, ignored_modules=[m for name, m in model.named_modules() if name.startswith('layers.a.')]"
    ),
    "ignored_states, parameters": f'{BLOCKS}, ignored_states=list(model.layers["a"].inner.up.parameters())',
    "ignored_modules without a policy": "ignored_modules={model.out}",
    "ignored_states without a policy": "ignored_states=[model.out.weight]",
    "ignored_modules in bf16": f'{BLOCKS}, ignored_modules=[model.layers["a"].inner], {IN_BF16}',
    "ignored modules keep their buffers": (
        f'{BLOCKS}, ignored_modules=[model.layers["a"].inner],'
        " mixed_precision=MixedPrecision(buffer_dtype=torch.float64)"
    ),
}.items():
    row(name, "Nested", arguments, torch_version=IGNORING)
for kind, ignored in {"of a policy": f"{BLOCKS}, ", "of one unit": ""}.items():
    program(
        f"ignored_states, parameters of the model's own class, {kind}",
        f"""
        class Scaled(Nested):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.full((1,), 2.0), requires_grad=False)
                self.shift = torch.nn.Parameter(torch.zeros(1))

            def forward(self, x):
                return super().forward(x) * self.scale + self.shift


        def build():
            model = Scaled()
            return FSDP(model, {ignored}ignored_states=[model.scale, model.shift], use_orig_params=True)
        """,
        torch_version=IGNORING,
    )
row(
    "ignored_modules, and sync_module_states",
    "Nested",
    f"{BLOCKS}, ignored_modules=[model.out], sync_module_states=True",
    seed_by_rank=True,
    torch_version=IGNORING,
)
for strategy in ("SHARD_GRAD_OP", "NO_SHARD"):
    for kind, given in {
        "mesh": 'device_mesh=init_device_mesh("cuda", (2,))',
        "group": "dist.new_group([0, 1])",
    }.items():
        program(
            f"a mesh or a group, as a function is given, {strategy}, {kind}",
            f"""
            def shard(model, process_group=None, device_mesh=None):
                return FSDP(
                    model,
                    process_group=process_group,
                    device_mesh=device_mesh,
                    sharding_strategy=ShardingStrategy[os.environ.get("STRATEGY", "{strategy}")],
                    sync_module_states=True,
                    {BLOCKS},
                    use_orig_params=True,
                )


            def build():
                model = Plain()
                if os.environ.get("NO_GROUP"):
                    return shard(model)
                if os.environ.get("IN_GROUP"):
                    return shard(model, dist.new_group([0, 1]))
                if os.environ.get("IN_MESH"):
                    return shard(model, device_mesh=init_device_mesh("cuda", (2,)))
                return shard(model, {given})
            """,
        )
for kind, given in {
    "modules": 'ignored_modules=[model.layers["a"].inner]',
    "parameters": 'ignored_states=list(model.layers["a"].inner.up.parameters())',
    "nothing": "None, None",
}.items():
    program(
        f"ignored_modules or ignored_states, that a function is given, {kind}",
        f"""
        def shard(model, ignored_modules=None, ignored_states=None):
            return FSDP(
                model,
                {BLOCKS},
                ignored_modules=ignored_modules,
                ignored_states=ignored_states,
                sync_module_states=True,
                use_orig_params=True,
            )


        def build():
            model = Nested()
            if os.environ.get("IGNORE_MODULES"):
                return shard(model, [model.layers["a"]])
            if os.environ.get("IGNORE_PARAMETERS"):
                return shard(model, ignored_states=list(model.layers["a"].parameters()))
            return shard(model, {given})
        """,
        torch_version=IGNORING,
    )
for kind, given in {"": "", ", and sync_module_states": ", sync_module_states=True"}.items():
    program(
        f"meta, initialised by a function, beside what is ignored{kind}",
        f"""
        def init(module):
            module.to_empty(device="cuda", recurse=False)
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


        def build():
            with torch.device("meta"):
                model = Nested()
            torch.manual_seed(3)
            model.out = nn.Linear(model.out.in_features, model.out.out_features)
            policy = ModuleWrapPolicy({{Block, Outer}})
            ignored = [model.out]
            return FSDP(model, auto_wrap_policy=policy, ignored_modules=ignored, param_init_fn=init{given})
        """,
        torch_version=IGNORING,
    )
row("ignored_states, a module", "Nested", f'{BLOCKS}, ignored_states=[model.layers["a"].inner]', torch_version=IGNORING)
for size in ("0", "500"):
    row(
        f"ignored module under a size-based policy, {size}",
        "Nested",
        BY_SIZE.format(size) + ', ignored_modules=[model.layers["a"]]',
        torch_version=IGNORING,
    )
row(
    "ignored module under a size-based policy in bf16",
    "Nested",
    f"""{BY_SIZE.format("500")}, {IN_BF16}, ignored_modules=[model.layers["a"].inner]""",
    torch_version=IGNORING,
)
for kind, returned in {
    "hands on to classes": "transformer_auto_wrap_policy(module, recurse, nonwrapped_numel, {Block})",
    "hands on a size": "size_based_auto_wrap_policy(module, recurse, nonwrapped_numel, min_num_params=500)",
    "counts": "recurse or nonwrapped_numel >= 500",
}.items():
    for where, ignored in {
        "": "",
        ", beside ignored modules": 'ignored_modules=[model.layers["a"].inner], ',
        ", beside ignored parameters": 'ignored_states=list(model.layers["a"].inner.up.parameters()), ',
    }.items():
        program(
            f"policy function that {kind}{where}",
            f"""
            def policy(module, recurse, nonwrapped_numel):
                return {returned}


            def build():
                model = Nested()
                return FSDP(model, {ignored}auto_wrap_policy=policy, use_orig_params=True)
            """,
            torch_version=IGNORING,
        )

program(
    "policy function that counts in bf16, beside ignored modules",
    f"""
    def policy(module, recurse, nonwrapped_numel):
        return nonwrapped_numel >= 500


    def build():
        model = Nested()
        ignored = [model.layers["a"].inner]
        return FSDP(model, auto_wrap_policy=policy, ignored_modules=ignored, {IN_BF16}, use_orig_params=True)
    """,
    torch_version=IGNORING,
)
for version in (OLDEST, (2, 13)):
    program(
        f"parameters without a gradient, torch {version}",
        """
        def build(ddp=False):
            model = Unused()
            if ddp:
                return nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Outer}), use_orig_params=True)
        """,
        optimizer="adamw",
        torch_version=version,
    )

program(
    "ignored_modules of an inner unit",
    """
    def build():
        model = Nested()
        model.layers["a"] = FSDP(model.layers["a"], ignored_modules=[model.layers["a"].inner], use_orig_params=True)
        return FSDP(model, use_orig_params=True)
    """,
    torch_version=IGNORING,
)

for choice in ("bf16", "no"):
    program(
        f"a dict that is filled with what is not None, {choice}",
        f"""
        def build(choice="{choice}", strategy=ShardingStrategy.SHARD_GRAD_OP):
            model = Plain()
            policy, precision = None, None
            if choice != "no":
                policy = ModuleWrapPolicy({{Block}})
                if choice == "bf16":
                    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
                elif choice == "fp16":
                    precision = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16)
            kwargs = {{}}
            if policy:
                kwargs["auto_wrap_policy"] = policy
            if precision is not None:
                kwargs["mixed_precision"] = precision
            if strategy:
                kwargs["sharding_strategy"] = strategy
            return FSDP(model, device_id=torch.cuda.current_device(), use_orig_params=True, **kwargs)
        """,
    )
for low in (True, False):
    program(
        f"what a condition adds to a dict by |=, {low}",
        f"""
        def wrap(model, low):
            kwargs = dict(use_orig_params=True, {HERE})
            kwargs |= {{"auto_wrap_policy": ModuleWrapPolicy({{Block}})}}
            if low:
                kwargs |= dict(mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
            else:
                kwargs |= {{"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}}
            return FSDP(model, **kwargs)


        def build():
            return wrap(Plain(), {low})
        """,
    )
    program(
        f"what a function makes and a condition puts into a dict, {low}",
        f"""
        class Args:
            low, prefetch = {low}, "pre"


        def precision_of(low):
            dtype = torch.bfloat16 if low else torch.float32
            return MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype)


        def wrap(model, args):
            kwargs = {{"use_orig_params": True, "auto_wrap_policy": ModuleWrapPolicy({{Block}})}}
            if args.low:
                kwargs["mixed_precision"] = precision_of(args.low)
            if args.prefetch:
                if args.prefetch in ("pre", "post"):
                    kwargs["forward_prefetch"] = args.prefetch == "pre"
            return FSDP(model, {HERE}, **kwargs)


        def build():
            return wrap(Attention(), Args())
        """,
    )
program(
    "ignored_modules that a condition puts into a dict",
    """
    def build(frozen=True):
        model = Nested()
        ignored = (model.layers["a"].inner,) if frozen else ()
        kwargs = dict(use_orig_params=True)
        if ignored:
            kwargs["ignored_modules"] = ignored
        if frozen:
            kwargs.update(auto_wrap_policy=ModuleWrapPolicy({Block}))
        return FSDP(model, **kwargs)
    """,
    torch_version=IGNORING,
)
program(
    "ignored_modules that a condition leaves out of a dict",
    """
    def build(frozen=False):
        model = Nested()
        kwargs = dict(use_orig_params=True, auto_wrap_policy=ModuleWrapPolicy({Block}))
        if frozen:
            kwargs["ignored_modules"] = [model.layers["a"].inner]
        return FSDP(model, **kwargs)
    """,
    torch_version=IGNORING,
)

for frozen in (True, False):
    program(
        f"ignored_modules of a dict that a function returns, by the name of another, {frozen}",
        f"""
        def settings_of_teacher():
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={{Block}})
            kwargs = {{"auto_wrap_policy": policy, "use_orig_params": True}}
            return kwargs, 1


        def settings_of(model, frozen, wraps=True):
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={{Block}})
            if not wraps:
                policy = None
            ignored = []
            if frozen:
                ignored.append(model.layers["a"].inner)
            kwargs = {{
                "auto_wrap_policy": policy,
                "ignored_modules": ignored if ignored else None,
                "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16),
                "sync_module_states": True,
                "use_orig_params": True,
                "device_id": torch.cuda.current_device(),
            }}
            return kwargs, 1


        def build():
            teacher = Plain()
            kwargs, count = settings_of_teacher()
            teacher = FSDP(teacher, **kwargs)
            model = Nested()
            kwargs, count = settings_of(model, {frozen})
            return FSDP(model, **kwargs)
        """,
        seed_by_rank=True,
        torch_version=IGNORING,
    )

# Where values come from, and where they are

row("sync_module_states", "Plain", f"{BLOCKS}, sync_module_states=True", seed_by_rank=True)
program(
    "sync_module_states, with buffers that no checkpoint holds",
    """
    def build():
        model = Plain()
        with torch.no_grad():
            model.blocks[1].scale.mul_(1 + dist.get_rank())
        blocks = ModuleWrapPolicy({Block})
        return FSDP(model, auto_wrap_policy=blocks, sync_module_states=True, use_orig_params=True)
    """,
    seed_by_rank=True,
)
row(
    "sync_module_states with bf16 buffers",
    "Plain",
    f"{BLOCKS}, sync_module_states=True, mixed_precision=MixedPrecision({BF16}, buffer_dtype=torch.bfloat16)",
    seed_by_rank=True,
)
row(
    "sync_module_states within a process group",
    "Plain",
    f"{BLOCKS}, process_group=shard, sync_module_states=True",
    GROUPS,
    world=4,
    seed_by_rank=True,
)
row(
    "sync_module_states within a slice of a mesh",
    "Plain",
    f'{BLOCKS}, device_mesh=mesh["dp"], sync_module_states=True',
    'mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("pp", "dp"))',
    world=4,
    seed_by_rank=True,
)
row(
    "sync_module_states over replicas and shards",
    "Plain",
    f"{BLOCKS}, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh, sync_module_states=True",
    'mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))',
    world=4,
    seed_by_rank=True,
)
row(
    "sync_module_states chosen at run time",
    "Plain",
    f'{BLOCKS}, sync_module_states="NO_SYNC" not in os.environ',
    seed_by_rank=True,
)
program(
    "moved after the wrap",
    """
    def build():
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model.to("cuda").double().float()
    """,
)
row("device_id", "Plain", f"{BLOCKS}, device_id=torch.cuda.current_device()")
row(
    "device_id of this rank",
    "Plain",
    f"{BLOCKS}, device_id=dist.get_rank(), sync_module_states=True",
    seed_by_rank=True,
)
program(
    "device_id out of a dict, which other arguments are put into under flags",
    """
    def settings_of(kind, reduced=False):
        options = {"device_id": dist.get_rank(), "sync_module_states": True}
        if reduced:
            options["mixed_precision"] = MixedPrecision(reduce_dtype=torch.bfloat16)
        if kind == "size":
            options["auto_wrap_policy"] = partial(size_based_auto_wrap_policy, min_num_params=300)
        elif kind == "blocks":
            options["auto_wrap_policy"] = ModuleWrapPolicy({Block})
        return options


    def build():
        options = settings_of("size")
        return FSDP(Plain(), **options)
    """,
    seed_by_rank=True,
)
row("device_id of the CPU", "Plain", f'{BLOCKS}, device_id=torch.device("cpu")')
row(
    "channels_last",
    "ChannelsLast",
    "auto_wrap_policy=ModuleWrapPolicy({nn.Sequential})",
)
program(
    "first rank real, others on meta",
    """
    def build():
        rank = dist.get_rank()
        model = Plain() if rank == 0 else Plain().to("meta")
        return FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            sync_module_states=True,
            param_init_fn=None if rank == 0 else lambda m: m.to_empty(device=torch.device("cuda"), recurse=False),
            use_orig_params=True,
        )
    """,
    seed_by_rank=True,
)
program(
    "first rank real, others on meta, by a dict of a function",
    """
    def settings(rank, low_memory):
        def init(module):
            return module.to_empty(device=torch.device("cuda"), recurse=False)

        options = {"use_orig_params": True, "auto_wrap_policy": ModuleWrapPolicy({Block})}
        if low_memory:
            options["param_init_fn"] = init if rank != 0 else None
            options["sync_module_states"] = True
        return options


    def build():
        rank = dist.get_rank()
        options = settings(rank, True)
        return FSDP(Plain() if rank == 0 else Plain().to("meta"), **options)
    """,
    seed_by_rank=True,
)
program(
    "first rank of each group real, others on meta",
    """
    def build():
        rank = dist.get_rank()
        shard = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
        model = Plain() if rank % 2 == 0 else Plain().to("meta")
        return FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            process_group=shard,
            sync_module_states=True,
            param_init_fn=None if rank % 2 == 0 else lambda m: m.to_empty(device=torch.device("cuda"), recurse=False),
            use_orig_params=True,
        )
    """,
    world=4,
    seed_by_rank=True,
)
program(
    "made by a function on meta, where units nest",
    """
    def make():
        return Nested()


    def build():
        with torch.device("meta"):
            model = make()
        torch.manual_seed(3)
        return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block, Outer}), use_orig_params=True)
    """,
)
program(
    "BatchNorm among units of a lambda, moved to the device",
    """
    def build():
        model = BatchNormed()
        layers = [*model.blocks, *model.norms]
        return FSDP(
            model,
            auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in layers),
            mixed_precision=MixedPrecision(torch.bfloat16, torch.bfloat16),
            use_orig_params=True,
        )
    """,
)
program(
    "meta, each module initialised by itself",
    """
    def build():
        with torch.device("meta"):
            model = Plain()
        torch.manual_seed(3)
        return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    """,
)
program(
    "meta, with buffers that an initialisation makes anew in float32",
    """
    class Scaled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.register_buffer("scale", torch.empty(1))
            self.reset_parameters()

        def reset_parameters(self):
            self.scale = torch.full((1,), 1.003, device=self.scale.device)

        def forward(self, x):
            return self.inner(x * self.scale.float())


    def build():
        with torch.device("meta"):
            model = Scaled(Plain())
        torch.manual_seed(3)
        precision = MixedPrecision(buffer_dtype=torch.bfloat16)
        return FSDP(
            model, auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=precision, use_orig_params=True
        )
    """,
)
program(
    "meta, with tied weights",
    """
    def build():
        with torch.device("meta"):
            model = TiedTable()
        torch.manual_seed(3)
        return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    """,
)
program(
    "meta, initialised by a function",
    """
    def init(module):
        module.to_empty(device="cuda", recurse=False)
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


    def build():
        with torch.device("meta"):
            model = Nested()
        torch.manual_seed(3)
        policy = ModuleWrapPolicy({Block, Outer})
        return FSDP(model, auto_wrap_policy=policy, param_init_fn=init, use_orig_params=True)
    """,
)

# What changed memory and overlap, and never what was computed

for argument in (
    "backward_prefetch=BackwardPrefetch.BACKWARD_POST",
    "backward_prefetch=None",
    "forward_prefetch=True",
    "limit_all_gathers=False",
    "cpu_offload=CPUOffload(offload_params=True)",
    "cpu_offload=CPUOffload(offload_params=False)",
):
    row(argument, "Plain", f"{BLOCKS}, {argument}")
program(
    "use_orig_params=False",
    """
    def build():
        return FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}))
    """,
)
# One of several classes, which a condition decides about

NOTHING = """
class NullDDP(nn.Module):
    def __init__(self, module, *args, **kwargs):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)
"""
for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"):
    program(
        f"FSDP or nothing by a test at the call, {strategy}",
        NOTHING
        + f"""

def build():
    model = Plain()
    wrapped: FSDP = (FSDP if dist.is_initialized() else NullDDP)(
        model,
        {BLOCKS},
        {HERE},
        sharding_strategy=ShardingStrategy.{strategy},
        use_orig_params=True,
    )
    return wrapped
""",
        world=4,
    )
    program(
        f"FSDP or nothing by a test above, with a dict for both, {strategy}",
        NOTHING
        + f"""

def build():
    wrapper = NullDDP if os.environ.get("LOCAL_RUN") else FSDP
    kwargs = dict(
        {HERE},
        {BLOCKS},
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        sharding_strategy=ShardingStrategy[os.environ.get("STRATEGY", "{strategy}")],
    )
    return wrapper(Plain(), **kwargs)
""",
        world=4,
    )
for chosen in ("FSDP", "the other class"):
    test = f'os.environ.get("CLASS", "{chosen}") == "FSDP"'
    program(
        f"a class that looks at what it is given, {chosen}",
        f"""
        class Other(nn.Module):
            def __init__(self, module, mixed_precision=None, **kwargs):
                super().__init__()
                self.module = module.to(mixed_precision.param_dtype)
                self.blocks = [each for each in module.modules() if kwargs["auto_wrap_policy"](each, False, 0)]

            def forward(self, x):
                return self.module(x.bfloat16()) / len(self.blocks)


        def build():
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={{Block}})
            precision = MixedPrecision(param_dtype=torch.bfloat16)
            return (FSDP if {test} else Other)(Plain(), auto_wrap_policy=policy, mixed_precision=precision)
        """,
    )
    program(
        f"FSDP, DDP or neither over a group, {chosen}",
        f"""
        from torch.nn.parallel import DistributedDataParallel as DDP


        def build():
            kind = "FSDP" if {test} else "ddp"
            group = dist.new_group([0, 1])
            model = Plain().cuda()
            model = (FSDP if kind == "FSDP" else DDP if kind == "ddp" else lambda module, **_: module)(
                model, process_group=group
            )
            return model
        """,
    )
program(
    "arguments from a dict",
    """
    def build(**kwargs):
        model = Plain()
        return FSDP(model, **{"auto_wrap_policy": ModuleWrapPolicy({Block}), "use_orig_params": True, **kwargs})
    """,
    "support",
)
