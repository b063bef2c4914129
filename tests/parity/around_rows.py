"""What stands around the wrap, and what is done with the wrapped model: a whole small program for each thing.

To add one, add an entry: a name and a program that defines `main(batches)`, which trains and returns the wrapped model
and the losses, with `train` for steps as everybody writes them. Where only the model is special, `trained` takes how it
is made. Imports are found by the names that are used.
"""

from __future__ import annotations

from textwrap import dedent, indent

from .programs import with_imports

TRAIN = """\
def train(model, optimizer, batches):
    losses = []
    for x in batches:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


"""
BLOCKS = "auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True"
PLAIN = f"model = FSDP(Plain(), {BLOCKS})"
FROZEN = f"model = FSDP(Frozen(), {BLOCKS})"
ADAMW = "torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)"

ROWS: dict[str, str] = {}


def whole(text: str) -> str:
    return with_imports(TRAIN + dedent(text).strip() + "\n")


def training(model: str, optimizer: str = ADAMW, above: str = "") -> str:
    """A program that makes a model, and then an optimizer that trains it."""
    main = f"{dedent(model).strip()}\noptimizer = {optimizer}\nreturn model, train(model, optimizer, batches)"
    return whole(dedent(above).strip() + f"\n\n\ndef main(batches):\n{indent(main, '    ')}")


def row(name: str, text: str) -> None:
    ROWS[name] = whole(text)


def trained(name: str, model: str, optimizer: str = ADAMW, above: str = "") -> None:
    ROWS[name] = training(model, optimizer, above)


# Optimizers from before the wrap

row(
    "optimizer before",
    """
    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer, scheduler and clipped list before",
    """
    def main(batches):
        model = Plain()
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        losses = []
        for x in batches:
            loss = model(x).square().mean()
            loss.backward()
            model.clip_grad_norm_(0.1)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert len(parameters) == len(list(model.parameters()))
        return model, losses
    """,
)
row(
    "groups by dimension before",
    """
    def main(batches):
        model = Plain()
        decay, others = [], []
        for p in model.parameters():
            if p.ndim >= 2:
                decay.append(p)
            else:
                others.append(p)
        optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}], lr=0.1
        )
        model = FSDP(model, use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer among the arguments of an object that another method wraps",
    """
    class Trainer:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def fit(self, batches):
            self.model = FSDP(self.model, use_orig_params=True)
            return train(self.model, self.optimizer, batches)


    def main(batches):
        model = Plain()
        trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        losses = trainer.fit(batches)
        return trainer.model, losses
    """,
)
row(
    "parameters that are picked by their identity above the wrap",
    """
    def main(batches):
        model = Plain()
        first = next(iter(model.children()))
        slow = list(map(id, first.parameters()))
        model = FSDP(model, use_orig_params=True)
        groups = [
            {"params": [p for p in model.parameters() if id(p) in slow], "lr": 0.01},
            {"params": [p for p in model.parameters() if id(p) not in slow]},
        ]
        return model, train(model, torch.optim.SGD(groups, lr=0.1, momentum=0.9), batches)
    """,
)
row(
    "groups that a method of the model gives above the wrap",
    """
    class Grouped(Plain):
        def groups(self):
            decayed = [m.weight for m in self.modules() if isinstance(m, torch.nn.Linear)]
            others = [p for name, p in self.named_parameters() if name.endswith("bias")]
            return [{"params": decayed, "weight_decay": 0.1}, {"params": others}]


    def main(batches):
        model = Grouped()
        groups = model.groups()
        model = FSDP(model, use_orig_params=True)
        return model, train(model, torch.optim.SGD(groups, lr=0.1, momentum=0.9), batches)
    """,
)
row(
    "optimizer in a dict that a function returns",
    """
    def build():
        model = Plain()
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}


    def main(batches):
        built = build()
        model = FSDP(built["model"], use_orig_params=True)
        return model, train(model, built["optimizer"], batches)
    """,
)
row(
    "optimizer passed in",
    """
    def fit(net, optimizer, batches):
        net = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return net, train(net, optimizer, batches)


    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return fit(model, optimizer, batches)
    """,
)
row(
    "optimizer passed through",
    """
    def prepare(net, optimizer):
        return FSDP(net, use_orig_params=True), optimizer


    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        model, optimizer = prepare(model, optimizer)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer of a trainer",
    """
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1, weight_decay=0.5)
            self.wrap()

        def wrap(self):
            self.model = FSDP(self.model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)


    def main(batches):
        trainer = Trainer(Plain())
        return trainer.model, train(trainer.model, trainer.optimizer, batches)
    """,
)
row(
    "optimizer before, changed in between",
    """
    def widen(model):
        model.out = torch.nn.Sequential(model.out, torch.nn.Linear(1, 1))


    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        widen(model)
        optimizer.add_param_group({"params": list(model.out[1].parameters()), "lr": 0.01})
        model = FSDP(model, use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer before, blocks wrapped one by one",
    """
    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        for index, block in enumerate(model.blocks):
            model.blocks[index] = FSDP(block, use_orig_params=True)
        model = FSDP(model, use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "two models, one optimizer before",
    """
    def main(batches):
        first, second = Plain(), Plain()
        optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()], lr=0.1, weight_decay=0.5)
        first = FSDP(first, use_orig_params=True)
        second = FSDP(second, use_orig_params=True)
        losses = []
        for x in batches:
            loss = (first(x) - second(2 * x)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return torch.nn.ModuleList([first, second]), losses
    """,
)
row(
    "groups from a function before",
    """
    def groups(model):
        decay = [p for name, p in model.named_parameters() if "bias" not in name]
        others = [p for name, p in model.named_parameters() if "bias" in name]
        return [{"params": decay, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}]


    def main(batches):
        model = Plain()
        optimizer = torch.optim.AdamW(groups(model), lr=0.1)
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer and model from one function",
    """
    def build():
        model = Plain()
        return model, torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)


    def main(batches):
        model, optimizer = build()
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
row(
    "optimizer of parts from before",
    """
    def main(batches):
        model = Plain()
        head = model.out
        weight = model.inp.weight
        optimizer = torch.optim.AdamW([{"params": head.parameters()}, {"params": [weight], "lr": 0.01}], lr=0.1)
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        return model, train(model, optimizer, batches)
    """,
)
TRAINER = """
    class Trainer:
        def __init__(self, model):
            self.model = model
            parameters = [p for p in model.parameters() if p.requires_grad]
            self.optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

        def wrap(self):
            self.model = FSDP(self.model, use_orig_params=True)

        def train(self, batches):
            losses = []
            for x in batches:
                loss = self.model(x).square().mean()
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                losses.append(loss.item())
            return losses


    def main(batches):
        model = Plain()
        trainer = Trainer(model)
        {between}
        return trainer.model, trainer.train(batches)
"""
row(
    "optimizer of an object from before",
    TRAINER.format(between="trainer.model = FSDP(model, use_orig_params=True)"),
)
row(
    "optimizer of an object that is told to wrap",
    TRAINER.format(between="trainer.wrap()"),
)

# What is set on parameters before the wrap

WRAPPED_BLOCKS = """
for index, block in enumerate(model.blocks):
    model.blocks[index] = wrapper(block, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
model = wrapper(model)
"""
BFLOAT16 = "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)"
trained(
    "a partial whose calls give more",
    f"wrapper = partial(FSDP, sharding_strategy=ShardingStrategy.FULL_SHARD, {BFLOAT16}, use_orig_params=True)\n"
    f"model = Plain()\n{WRAPPED_BLOCKS}",
)
trained(
    "a partial of a dict, whose calls give more",
    f"kwargs = dict({BFLOAT16}, use_orig_params=True)\nwrapper = partial(FSDP, **kwargs)\n"
    f"model = Plain()\n{WRAPPED_BLOCKS}",
)

BY_ATTRIBUTE = """
def groups_of(model):
    found = {}
    for p in model.parameters():
        key = getattr(p, "no_weight_decay", False), getattr(p, "lr_scale", 1.0)
        found.setdefault(key, []).append(p)
    assert len(found) == 3
    return [
        {"params": params, "weight_decay": 0.0 if no_decay else 0.5, "lr": 0.1 * scale}
        for (no_decay, scale), params in found.items()
    ]
"""
MARKED = """\
for p in model.parameters():
    p.no_weight_decay = p.ndim < 2
model.out.weight.lr_scale = 0.25
"""
trained(
    "groups by attributes of parameters",
    f"model = Plain()\n{MARKED}model = FSDP(model, {BLOCKS})",
    "torch.optim.AdamW(groups_of(model))",
    BY_ATTRIBUTE,
)
trained(
    "groups by attributes of parameters, through a partial",
    f"shard = partial(FSDP, {BLOCKS})\nmodel = Plain()\n{MARKED}model = shard(model)",
    "torch.optim.AdamW(groups_of(model))",
    BY_ATTRIBUTE,
)
trained(
    "groups by attributes of parameters, from before the wrap",
    f"model = Plain()\n{MARKED}optimizer = torch.optim.AdamW(groups_of(model))\nmodel = FSDP(model, {BLOCKS})",
    "optimizer",
    BY_ATTRIBUTE,
)
trained(
    "groups by attributes of parameters, units by hand",
    f"""\
model = Plain()
{MARKED}for i, block in enumerate(model.blocks):
    model.blocks[i] = FSDP(block, use_orig_params=True)
model = FSDP(model, use_orig_params=True)""",
    "torch.optim.AdamW(groups_of(model))",
    BY_ATTRIBUTE,
)
trained(
    "groups by an attribute of a tied weight",
    "model = TiedTable()\nmodel.inp.weight.lr_scale = 0.25\nmodel = FSDP(model, use_orig_params=True)",
    'torch.optim.AdamW([{"params": [p], "lr": 0.1 * getattr(p, "lr_scale", 1.0)} for p in model.parameters()])',
)
trained(
    "groups by an attribute that flat parameters never had",
    "model = Plain()\nmodel.out.weight.lr_scale = 0.25\n"
    "model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))",
    'torch.optim.SGD([{"params": [p], "lr": 0.1 * getattr(p, "lr_scale", 1.0)} for p in model.parameters()])',
)

# Optimizers, and how they group

for kind in ("SGD", "ASGD", "Adam", "NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta", "Adagrad"):
    trained(kind, PLAIN, f"torch.optim.{kind}(model.parameters(), lr=0.01)")
trained(
    "groups by name",
    """
    model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    others = [p for n, p in model.named_parameters() if "bias" in n or "norm" in n]
    decay = [p for n, p in model.named_parameters() if not ("bias" in n or "norm" in n)]
    """,
    'torch.optim.AdamW([{"params": decay, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}], lr=0.1)',
)
trained("fused AdamW", PLAIN, "torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5, fused=True)")

# Averages of the parameters

row(
    "average of the shards",
    """
    def main(batches):
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        average = {name: p.detach().clone() for name, p in model.named_parameters()}
        losses = train(model, optimizer, batches)
        for name, p in model.named_parameters():
            average[name].mul_(0.9).add_(p.detach(), alpha=0.1)
            p.data.copy_(average[name])
        return model, losses
    """,
)
row(
    "average by a sharded copy from before",
    """
    def main(batches):
        net = Plain()
        average = deepcopy(net).requires_grad_(False)
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        average = FSDP(average, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = train(model, optimizer, batches)
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters()):
                old.lerp_(new, 0.5)
        return torch.nn.ModuleList([model, average]), losses
    """,
)
for flat in ("True", "False"):
    row(
        f"average over handles, use_orig_params={flat}",
        f"""
        @torch.no_grad()
        def update(model, average):
            _lazy_init(model, model)
            _lazy_init(average, average)
            for handle, average_handle in zip(_get_fsdp_handles(model), _get_fsdp_handles(average)):
                if handle.flat_param is not None and handle.flat_param.requires_grad:
                    average_handle.flat_param.data.mul_(0.5).add_(handle.flat_param.data, alpha=0.5)


        def main(batches):
            net = Plain()
            average = deepcopy(net).requires_grad_(False)
            model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({{Block}}), use_orig_params={flat})
            average = FSDP(average, auto_wrap_policy=ModuleWrapPolicy({{Block}}), use_orig_params={flat})
            optimizer = {ADAMW}
            losses = train(model, optimizer, batches)
            update(model, average)
            losses += train(model, optimizer, batches)
            update(model, average)
            with torch.no_grad():
                losses += [average(x).sum().item() for x in batches]
            return torch.nn.ModuleList([model, average]), losses
        """,
    )
row(
    "average over the parameters of units",
    """
    @torch.no_grad()
    def update(model, average):
        params, averages = [], []
        for unit, other in zip(FSDP.fsdp_modules(model), FSDP.fsdp_modules(average)):
            _reshard(other, other._handle, True)
            params += unit.params
            averages += other.params
        torch._foreach_mul_(averages, 0.5)
        torch._foreach_add_(averages, params, alpha=0.5)


    def main(batches):
        net = Plain()
        average = deepcopy(net).requires_grad_(False)
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
        average = FSDP(average, auto_wrap_policy=ModuleWrapPolicy({Block}))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = []
        for x in batches:
            losses += train(model, optimizer, [x])
            with torch.no_grad():
                losses.append(average(x).sum().item())
            update(model, average)
        return torch.nn.ModuleList([model, average]), losses
    """,
)
row(
    "average over a list from before",
    """
    def main(batches):
        model = Plain()
        parameters = [p for p in model.parameters() if p.requires_grad]
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        average = [p.detach().clone() for p in parameters]
        losses = train(model, optimizer, batches)
        torch._foreach_lerp_(average, [p.detach() for p in parameters], 0.5)
        for p, value in zip(parameters, average):
            p.data.copy_(value)
        return model, losses
    """,
)

# Activation checkpointing and torch.compile, in either order


def around(
    name: str, before: str = "model.train()", after: str = "model.train()", arguments: str = BLOCKS, above: str = ""
) -> None:
    """What is done right before the wrap, or right behind it."""
    trained(name, f"model = Plain()\n{before}\nmodel = FSDP(model, {arguments})\n{after}", above=above)


APPLY = "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))"
around("activation checkpointing after", after=APPLY)
around("activation checkpointing before", before=APPLY)
around(
    "activation checkpointing before, units of its wrappers",
    before=APPLY,
    arguments="auto_wrap_policy=ModuleWrapPolicy({CheckpointWrapper}), use_orig_params=True",
)
around(
    "activation checkpointing of the units",
    after="apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, FSDP))",
)
around(
    "activation checkpointing after, in bf16",
    after=APPLY,
    arguments=f"{BLOCKS}, mixed_precision=MixedPrecision(torch.bfloat16, torch.float32)",
)
EACH = "[checkpoint(block) for block in model.modules() if isinstance(block, Block)]"
COMPOSABLE = "from torch.distributed._composable import checkpoint"
around("composable checkpoint before", before=EACH, above=COMPOSABLE)
around("composable checkpoint after", after=EACH, above=COMPOSABLE)
around("blocks compiled before", before='for block in model.blocks:\n    block.compile(backend="eager")')
trained(
    "compiled before",
    """
    model = torch.compile(Plain(), backend="eager")
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    """,
)
for kind in ("True", "False"):
    trained(
        f"activation checkpointing in forward, use_reentrant={kind}",
        "model = FSDP(Saving(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)",
        above=f"""
        from torch.utils.checkpoint import checkpoint


        class Saving(Plain):
            def forward(self, x):
                x = self.inp(x)
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant={kind})
                return self.out(x)
        """,
    )
row(
    "compiled after",
    """
    def main(batches):
        model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        compiled = torch.compile(model, backend="eager")
        return model, train(compiled, optimizer, batches)
    """,
)
# Tied, frozen and several

trained(
    "trained adapters beside frozen layers, each a unit",
    """
    net = Plain()
    for block in net.blocks:
        block.up = Lora(block.up)
    model = FSDP(net, auto_wrap_policy=fsdp_auto_wrap_policy(Block))
    """,
    above="""
    class Lora(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.weight = base.weight
            self.down = nn.Linear(base.in_features, 2, bias=False)
            self.up = nn.Linear(2, base.out_features, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))


    def fsdp_auto_wrap_policy(layer):
        def lambda_policy_fn(module):
            return (
                len(list(module.named_children())) == 0
                and getattr(module, "weight", None) is not None
                and module.weight.requires_grad
            )

        lambda_policy = partial(lambda_auto_wrap_policy, lambda_fn=lambda_policy_fn)
        layer_policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={layer})
        return partial(_or_policy, policies=[lambda_policy, layer_policy])
    """,
)

trained(
    "tied weights in one unit",
    "model = FSDP(Tied(), use_orig_params=True)",
    "torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)",  # `table` gets no gradient
)
trained(
    "frozen before",
    FROZEN,
    "torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.5)",
)
trained(
    "frozen after",
    """
    model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    for name, p in model.named_parameters():
        if "norm" in name:
            p.requires_grad = False
    """,
    "torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)",
)

trained("frozen, and an optimizer of all", FROZEN)

# Roots that hold nothing to train, or nothing at all

trained(
    "a root whose own parameters are frozen",
    f"""
    net = Plain()
    net.inp.requires_grad_(False)
    net.out.requires_grad_(False)
    model = FSDP(net, {BLOCKS})
    """,
    "torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.5)",
)
trained(
    "a root without parameters of its own",
    "model = FSDP(torch.nn.Sequential(Block(8), Block(8)), auto_wrap_policy=ModuleWrapPolicy({Block}))",
)
trained(
    "a dict of modules as a root, which has no forward",
    "model = FSDP(Net(), use_orig_params=True)",
    above="""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            parts = nn.ModuleDict({"first": Block(8), "second": Block(8)})
            self.parts = FSDP(parts, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
            self.out = nn.Linear(8, 1)

        def forward(self, x):
            return self.out(self.parts["second"](self.parts["first"](x)))
    """,
)
row(
    "a frozen model beside a trained one",
    f"""
    def main(batches):
        net = Plain()
        teacher = deepcopy(net).requires_grad_(False)
        teacher = FSDP(teacher, {BLOCKS})
        model = FSDP(net, {BLOCKS})
        optimizer = {ADAMW}
        losses = []
        for x in batches:
            with torch.no_grad():
                wanted = teacher(x)
            loss = (model(x) - 2 * wanted).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return torch.nn.ModuleList([model, teacher]), losses
    """,
)

# Shapes, dtypes and outputs

trained(
    "a parameter of one element, and units of two dtypes",
    "model = FSDP(Mixed(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)",
    "torch.optim.SGD(model.parameters(), lr=0.1)",
    above="""
    class Mixed(Plain):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((1,), 0.5))
            self.blocks[1].double()

        def forward(self, x):
            x = self.inp(x) * self.scale
            for block in self.blocks:
                x = block(x)
            return self.out(x.float())
    """,
)
OUTPUTS = """
    import dataclasses
    from collections import OrderedDict, namedtuple

    Pair = namedtuple("Pair", ["out", "size"])


    @dataclasses.dataclass
    class Made:
        out: torch.Tensor
        size: int


    class Telling(Block):
        def forward(self, x):
            out = super().forward(x)
            return {made}


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = torch.nn.Linear(8, 12)
            self.block = Telling()
            self.out = torch.nn.Linear(12, 1)

        def forward(self, x):
            return self.out(self.block(self.inp(x)){taken})
"""
for made, taken in (
    ("(out, 1)", "[0]"),
    ("Pair(out, 1)", ".out"),
    ("OrderedDict(out=out)", '["out"]'),
    ("Made(out, 1)", ".out"),
):
    trained(
        f"a unit that returns {made}",
        "model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Telling}), use_orig_params=True)",
        above=OUTPUTS.format(made=made, taken=taken),
    )
trained(
    "ranks that use different parameters",
    "model = prepare(Branching())",
    above="""
    class Branching(Plain):
        def forward(self, x):
            return self.out(self.blocks[torch.distributed.get_rank()](self.inp(x)))


    def prepare(model, ddp=False):
        if ddp:
            return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        return FSDP(model, use_orig_params=True)
    """,
)

row(
    "layers that batches pick, of the root and units",
    """
    class Picking(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = torch.nn.Linear(8, 12)
            self.blocks = torch.nn.ModuleList([Block(), Block()])
            self.outs = torch.nn.ModuleList([torch.nn.Linear(12, 1), torch.nn.Linear(12, 1)])

        def forward(self, x, task):
            return self.outs[task](self.blocks[task](self.inp(x)))


    def main(batches):
        model = FSDP(Picking(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = []
        for task, x in enumerate(batches):
            loss = model(x, task % 2).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return model, losses
    """,
)
for torch_only, kind in (("if x.sum() > 0:", "some batches"), ("if x is not None:", "all batches")):
    trained(
        f"a layer that {kind} use",
        "model = FSDP(Choosing(), use_orig_params=True)",
        above=f"""
        class Choosing(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inp = torch.nn.Linear(8, 6)
                self.extra = torch.nn.Linear(8, 6)
                self.out = torch.nn.Linear(6, 1)

            def forward(self, x):
                hidden = self.inp(x)
                {torch_only}
                    hidden = hidden + self.extra(x)
                return self.out(torch.tanh(hidden))
        """,
    )

for cut, kind in (
    ("hidden = self.extra(x).detach()", "detached"),
    ("with torch.no_grad(): hidden = self.extra(x)", "blind"),
):
    trained(
        f"a layer that trains nowhere, {kind}",
        "model = FSDP(Probing(), use_orig_params=True)",
        "torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)",
        above=f"""
        class Probing(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.extra = torch.nn.Linear(8, 6)
                self.out = torch.nn.Linear(6, 1)

            def forward(self, x):
                {cut}
                return self.out(hidden)
        """,
    )

# What is done with the wrapped model

row(
    "evaluated before the optimizer is made",
    f"""
    def main(batches):
        {PLAIN}
        with torch.no_grad():
            first = model(torch.ones(2, 8)).sum().item()
        optimizer = {ADAMW}
        return model, [first, *train(model, optimizer, batches)]
    """,
)
row(
    "evaluated in bf16",
    f"""
    def main(batches):
        bf16 = MixedPrecision(torch.bfloat16, torch.float32)
        model = FSDP(Plain(), {BLOCKS}, mixed_precision=bf16)
        optimizer = {ADAMW}
        losses = train(model, optimizer, batches)
        model.eval()
        with torch.no_grad():
            seen = [model(x) for x in batches]
        assert {{each.dtype for each in seen}} <= {{torch.bfloat16}}
        return model, losses + [each.sum().item() for each in seen]
    """,
)
row(
    "a copy from before, which stays whole",
    f"""
    def main(batches):
        net = Plain()
        teacher = deepcopy(net)
        model = FSDP(net, {BLOCKS})
        optimizer = {ADAMW}
        losses = []
        for x in batches:
            with torch.no_grad():
                wanted = teacher(x)
            loss = (model(x) - 2 * wanted).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return model, losses
    """,
)
row(
    "its units as a list",
    f"""
    def main(batches):
        {PLAIN}
        units = FSDP.fsdp_modules(model)
        optimizer = {ADAMW}
        return model, [len(units), *train(model, optimizer, batches)]
    """,
)
trained(
    "a class with slots",
    "model = FSDP(Net(), use_orig_params=True)",
    above="""
    class Net(Plain):
        __slots__ = ("scale",)

        def __init__(self):
            super().__init__()
            self.scale = 2

        def forward(self, x):
            return super().forward(x) * self.scale
    """,
)

trained(
    "initialised after",
    """
    model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    torch.manual_seed(5)
    model.apply(init)
    """,
    above="""
    def init(module):
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=0.3)
            module.bias.data.fill_(0.1)
    """,
)
trained(
    "a model and its layers that are abstract first",
    "model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Layer}), use_orig_params=True)",
    above="""
    from abc import ABC
    from typing import Generic, TypeVar

    T = TypeVar("T")


    class Layer(ABC, torch.nn.Linear):
        pass


    class Net(Generic[T], torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = Layer(8, 6)
            self.out = Layer(6, 1)

        def forward(self, x):
            return self.out(torch.tanh(self.inp(x)))
    """,
)
row(
    "a method that runs units only",
    """
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(Block(8), Block(8))

        def encode(self, x):
            return self.body(x)

        def forward(self, x):
            return self.encode(x)


    def main(batches):
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = train(model, optimizer, batches)
        with torch.no_grad():
            return model, losses + [model.encode(x).sum().item() for x in batches]
    """,
)
row(
    "a slice of a sharded Sequential",
    """
    def main(batches):
        net = torch.nn.Sequential(Block(8), Block(8), torch.nn.Linear(8, 1))
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        front = model.module[:2]
        assert type(front) is torch.nn.Sequential
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = train(model, optimizer, batches)
        with torch.no_grad():
            return model, losses + [front(x).sum().item() for x in batches]
    """,
)
row(
    "in a comprehension",
    """
    def main(batches):
        models = [FSDP(Plain(), use_orig_params=True) for _ in range(2)]
        optimizer = torch.optim.AdamW([p for model in models for p in model.parameters()], lr=0.1, weight_decay=0.5)
        losses = []
        for x in batches:
            loss = (models[0](x) - models[1](2 * x)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return torch.nn.ModuleList(models), losses
    """,
)
row(
    "wrapped and called in one expression",
    """
    def main(batches):
        net = Plain()
        first = FSDP(net, use_orig_params=True)(torch.ones(2, 8)).sum().item()
        model = FSDP(Plain(), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        return model, [first, *train(model, optimizer, batches)]
    """,
)

row(
    "forward, module and names",
    """
    def main(batches):
        net = Plain()
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        assert len(model.module.blocks) == 3
        assert sum(isinstance(module, FSDP) for module in model.modules()) == 4
        names = [name.replace("_fsdp_wrapped_module.", "") for name, _ in model.named_parameters()]
        assert "blocks.0.up.weight" in names
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        losses = []
        for x in batches:
            loss = model.forward(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return model, losses
    """,
)
row(
    "kept in a dict",
    """
    def main(batches):
        models = {"actor": FSDP(Plain(), use_orig_params=True)}
        optimizer = torch.optim.AdamW(models["actor"].parameters(), lr=0.1, weight_decay=0.5)
        return models["actor"], train(models["actor"], optimizer, batches)
    """,
)
