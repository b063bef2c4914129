"""What a training loop does with an FSDP1 model: a small program for each thing, rewritten, and run before and after.

A row is the body of `train`, behind the wrapped model and its optimizer. What it appends to `seen` is compared:
numbers, texts, lists of them. To add one, add an entry. Imports are found by the names that are used.

Where FSDP1 itself went on with stale weights, the rewritten program is compared with the model that is not sharded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent, indent

from .programs import IMPORTS, folder_of, with_imports

DATA = """\
def batches(count, seed=0):
    data = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    return [torch.randn(6, 8, generator=data) for _ in range(count)]


def loss_of(model, x):
    return model(x).float().square().mean()


"""


@dataclass(frozen=True)
class Loop:
    """One thing that a training loop does, and the program that does it."""

    name: str
    program: str
    levels: frozenset[str]
    """Of the findings."""
    rel: float
    """How far apart the numbers may be."""
    is_stale: bool
    """Whether FSDP1 uses stale weights or gradients."""

    @property
    def unsharded(self) -> str:
        """The same program, with a model that is not sharded."""
        return self.program.replace(IMPORTS["FSDP"], "from tests.parity.unsharded import Unsharded as FSDP")

    @property
    def folder(self) -> str:
        return folder_of(self.name)


LOOPS: list[Loop] = []


def loop(
    name: str,
    body: str,
    arguments: str = "use_orig_params=True",
    model: str = "Plain()",
    optimizer: str = "torch.optim.SGD(model.parameters(), lr=0.05)",
    above: str = "",
    levels: str = "rewritten",
    rel: float = 1e-5,
    is_stale: bool = False,
) -> None:
    text = DATA + (dedent(above).strip() + "\n\n\n" if above else "") + "def train():\n"
    text += indent(
        f"torch.manual_seed(5)\n"
        f"model = FSDP({model}, auto_wrap_policy=ModuleWrapPolicy({{Block}}), {arguments})\n"
        f"optimizer = {optimizer}\n"
        f"seen = []\n{dedent(body).strip()}\nreturn seen\n",
        "    ",
    )
    LOOPS.append(Loop(name, with_imports(text), frozenset(levels.split()), rel, is_stale))


def inside(template: str, body: str) -> str:
    """The body in the place of the word BODY, with its indentation."""
    template = dedent(template)
    at = re.search(r"^( *)BODY$", template, re.MULTILINE)
    assert at is not None
    return template.replace(at[0], indent(dedent(body).strip("\n"), at[1]))


# no_sync

ACCUMULATION = """
for turn in range(2):
    for index, x in enumerate(batches(4, turn)):
        last = index == 3
        BODY
    seen.append(model.clip_grad_norm_(1.0).item())
    optimizer.step()
    optimizer.zero_grad()
"""
CONDITIONAL = """
with nullcontext() if {flag} else model.no_sync():
    loss = loss_of(model, x)
    loss.backward()
seen.append(loss.item())
"""

for pattern in ("NNNS", "SSSS", "NSNS", "SNNS"):
    synchronised = [index for index, letter in enumerate(pattern) if letter == "S"]
    loop(f"no_sync, {pattern}", inside(ACCUMULATION, CONDITIONAL.format(flag=f"index in {synchronised}")))

FORMS = {
    "a block": """
        if last:
            loss_of(model, x).backward()
        else:
            with model.no_sync():
                loss_of(model, x).backward()
        """,
    "a condition": CONDITIONAL.format(flag="last"),
    "a condition the other way round": """
        with model.no_sync() if index < 3 else nullcontext():
            loss_of(model, x).backward()
        """,
    "a name": """
        context = nullcontext() if last else model.no_sync()
        with context:
            loss_of(model, x).backward()
        """,
    "an ExitStack": """
        with ExitStack() as stack:
            if not last:
                stack.enter_context(model.no_sync())
            loss_of(model, x).backward()
        """,
    "a stored method": """
        context = nullcontext if last else model.no_sync
        with context():
            loss_of(model, x).backward()
        """,
    "a function": """
        with accumulating(model, last):
            loss_of(model, x).backward()
        """,
    "the backward outside": """
        with nullcontext() if last else model.no_sync():
            loss = loss_of(model, x)
        loss.backward()
        """,
    "the backward alone": """
        loss = loss_of(model, x)
        with nullcontext() if last else model.no_sync():
            loss.backward()
        """,
    "an evaluation inside": """
        with nullcontext() if last else model.no_sync():
            loss_of(model, x).backward()
            if not last:
                with torch.no_grad():
                    seen.append(loss_of(model, x).item())
        """,
    "an exception": """
        try:
            with model.no_sync() if index < 2 else nullcontext():
                loss_of(model, x).backward()
                if index == 1:
                    raise ValueError
        except ValueError:
            loss_of(model, x).backward()
        """,
}
ABOVE = """
def accumulating(model, last):
    return nullcontext() if last else model.no_sync()
"""
for form, body in FORMS.items():
    loop(
        f"no_sync by {form}",
        inside(ACCUMULATION, body),
        above=ABOVE if form == "a function" else "",
        # It is not seen that no evaluation stands between the last backward and the clipping.
        levels="rewritten manual" if form == "an evaluation inside" else "rewritten",
    )

loop(
    "no_sync around several forwards, one backward outside",
    """
    for turn in range(3):
        optimizer.zero_grad()
        with model.no_sync(), nullcontext():
            loss = 0.0
            for x in batches(3, turn):
                loss += loss_of(model, x) / 3
        loss.backward()
        seen.append([loss.item(), model.clip_grad_norm_(1.0).item()])
        optimizer.step()
    """,
)
loop(
    "no_sync of two models in one block",
    """
    other = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    second = torch.optim.SGD(other.parameters(), lr=0.1)
    for turn in range(3):
        optimizer.zero_grad()
        second.zero_grad()
        for x in batches(2, turn):
            with model.no_sync(), other.no_sync():
                (loss_of(model, x) * loss_of(other, x)).backward()
        (loss_of(model, x) + loss_of(other, x)).backward()
        seen.append([model.clip_grad_norm_(1.0).item(), other.clip_grad_norm_(1.0).item()])
        optimizer.step()
        second.step()
    """,
)
for strategy in ("SHARD_GRAD_OP", "NO_SHARD"):
    loop(
        f"no_sync under {strategy}",
        inside(ACCUMULATION, CONDITIONAL.format(flag="last")),
        f"use_orig_params=True, sharding_strategy=ShardingStrategy.{strategy}",
    )
for reduce, rel in (("bfloat16", 1e-5), ("float32", 1e-2)):  # FSDP1 adds up in bf16, FSDP2 in what it reduces in
    loop(
        f"no_sync in bf16, reduced in {reduce}",
        inside(ACCUMULATION, CONDITIONAL.format(flag="last")),
        f"use_orig_params=True, mixed_precision=MixedPrecision(torch.bfloat16, torch.{reduce})",
        rel=rel,
    )

EPOCHS = """
for epoch in range(3):
    BODY
    for index, x in enumerate(batches(3, epoch)):
        with nullcontext() if index == 1 else model.no_sync():
            loss = loss_of(model, x)
            loss.backward()
        seen.append(loss.item())
        if index == 1:
            optimizer.step()
            optimizer.zero_grad()
"""
for orig in (True, False):
    for zero in ("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)", "model.zero_grad()", "pass"):
        loop(
            f"epoch that ends unsynchronised, then {zero}, use_orig_params={orig}",
            inside(EPOCHS, zero),
            f"use_orig_params={orig}",
        )
loop(
    "evaluation between an unsynchronised end and zero_grad",
    inside(EPOCHS, "with torch.no_grad():\n    loss_of(model, batches(1)[0])\noptimizer.zero_grad()"),
)
loop(
    "zero_grad inside the accumulation",
    """
    for index, x in enumerate(batches(7)):
        if index % 3 == 0:
            optimizer.zero_grad()
        with model.no_sync() if index % 3 < 1 else nullcontext():
            loss_of(model, x).backward()
        if index % 3 == 1:
            seen.append(model.clip_grad_norm_(1.0).item())
            optimizer.step()
    """,
)

# autocast

AUTOCAST = {
    "one forward a step": """
        for x in batches(3):
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model, x)
            BODY
        """,
    "all steps": """
        with torch.autocast("cpu", torch.bfloat16):
            for x in batches(4):
                loss = loss_of(model, x)
                BODY
        """,
    "an evaluation and a step": """
        for x in batches(3):
            with torch.autocast("cpu", torch.bfloat16):
                with torch.no_grad():
                    seen.append(loss_of(model, x).item())
                loss = loss_of(model, x)
            BODY
        """,
    "several forwards, one backward": """
        for turn in range(3):
            with model.no_sync(), torch.autocast("cpu", torch.bfloat16):
                loss = 0.0
                for x in batches(3, turn):
                    loss += loss_of(model, x) / 3
            BODY
        """,
    "steps of a function": """
        def step(model, x):
            loss = loss_of(model, x)
            BODY

        context = partial(torch.autocast, "cpu", torch.bfloat16)
        with context():
            for x in batches(3):
                step(model, x)
        """,
}
STEPPED = """
loss.backward()
seen.append([loss.item(), model.clip_grad_norm_(1.0).item()])
optimizer.step()
optimizer.zero_grad()
"""
for use, body in AUTOCAST.items():
    loop(f"autocast around {use}", inside(body, STEPPED))

# Clipping

CLIPPED = """
for x in batches(3):
    loss_of(model, x).backward()
    BODY
    optimizer.step()
    optimizer.zero_grad()
"""
USES = {
    "logged": "seen.append(model.clip_grad_norm_(0.1).item())",
    "not used": "model.clip_grad_norm_(0.1)\nseen.append(loss_of(model, x).item())",
    "formatted": 'norm = model.clip_grad_norm_(0.1)\nseen.append(f"{norm:.4f} {norm.item():.4f}")',
    "compared": "seen.append(bool(model.clip_grad_norm_(0.1) > 3) + 0.5)",
    "tested": "norm = model.clip_grad_norm_(0.1)\nseen.append(0.0 if torch.isnan(norm) or math.isinf(norm) else 1.0)",
    "added up": "total = torch.zeros(2)\ntotal[1] += model.clip_grad_norm_(0.1)\nseen.append(total.tolist())",
    "reduced": "norm = model.clip_grad_norm_(0.1)\ndist.all_reduce(norm)\nseen.append(norm.item())",
    "given to numpy": "seen.append(float(model.clip_grad_norm_(0.1).numpy()))",
    "by class": "seen.append(FSDP.clip_grad_norm_(model, 0.1).item())",
    "by class, max norm": "seen.append(FSDP.clip_grad_norm_(model, 0.1, norm_type=float('inf')).item())",
    "stored": "clip = model.clip_grad_norm_\nseen.append(clip(0.1).item())",
    "by a parameter": "seen.append(model.clip_grad_norm_(norm_type=len(seen) + 1, max_norm=0.1).item())",
}
for use, body in USES.items():
    loop(f"norm {use}", inside(CLIPPED, body))
for norm in ("1", "2.0", "3", "2.5", '"inf"', 'float("inf")', "math.inf"):
    loop(f"norm type {norm}", inside(CLIPPED, f"seen.append(model.clip_grad_norm_(0.1, {norm}).item())"))
MODELS = {
    "frozen": ("Frozen()", "use_orig_params=True"),
    "replicated": ("Plain()", "use_orig_params=True, sharding_strategy=ShardingStrategy.NO_SHARD"),
    "half sharded": ("Plain()", "use_orig_params=True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"),
    "offloaded": ("Plain()", "use_orig_params=True, cpu_offload=CPUOffload(offload_params=True)"),
    "flat": ("Plain()", "use_orig_params=False"),
    "low precision": ("BufferFree()", "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)"),
}
for kind, (model, arguments) in MODELS.items():
    # What offloading needs of the process group is said where the wrap becomes plain code.
    levels = "rewritten review" if kind == "offloaded" else "rewritten"
    loop(f"norm of a {kind} model", inside(CLIPPED, USES["logged"]), arguments, model, levels=levels)
loop(
    "norm with ignored parameters",
    "loss_of(model, batches(1)[0]).backward()\nseen.append(model.clip_grad_norm_(0.1).item())",
    "use_orig_params=True, ignored_modules=[net.out]",
    "(net := Plain())",
    levels="rewritten manual",
)
loop(
    "norm after an evaluation",
    """
    for x in batches(2)[:1]:
        loss_of(model, x).backward()
        with torch.no_grad():
            seen.append(loss_of(model, x).item())
        seen.append(model.clip_grad_norm_(0.1).item())
        optimizer.step()
    """,
    levels="rewritten manual",
)

# Torch's own functions took a norm of this rank's shards, which is that of the model only where nothing is sharded.

CLIPS = "torch.nn.utils.clip_grad_norm_"
for use, body in {
    "formatted": f'norm = {CLIPS}(model.parameters(), 0.1)\nseen.append(f"{{norm:.3f}}")',
    "with foreach": f"seen.append({CLIPS}(model.parameters(), 0.1, foreach=len(seen) == 0).item())",
    "of a group": f'norm = {CLIPS}(optimizer.param_groups[0]["params"], 0.1)\nseen.append(f"{{norm:.3f}}")',
    "of each group": f"""
        for group in optimizer.param_groups:
            seen.append({CLIPS}(group["params"], 0.1).item())
        """,
    "of all groups": f"""
        params = [p for group in optimizer.param_groups for p in group["params"]]
        seen.append({CLIPS}(params, 0.1).item())
        """,
    "that has to be finite": f"seen.append({CLIPS}(model.parameters(), 0.1, error_if_nonfinite=True).item())",
    "that is not finite": f"""
        for p in model.parameters():
            p.grad.mul_(float("nan"))
        try:
            {CLIPS}(model.parameters(), 0.1, error_if_nonfinite=True)
        except RuntimeError as error:
            seen.append(str(error)[:30])
        """,
    "without clipping": """
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        seen.append(f"{norm:.3f}")
        """,
    "in two steps": """
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, norm)
        seen.append(norm.item())
        """,
}.items():
    loop(
        f"norm of torch {use}",
        inside(CLIPPED, body),
        "use_orig_params=True, sharding_strategy=ShardingStrategy.NO_SHARD",
        levels="rewritten review",
    )

# Between the backward and the step, and in front of a forward, FSDP1 used the root's weights of the last evaluation.

STALE = """
for x in batches(3):
    loss = loss_of(model, x)
    loss.backward()
    seen.append(loss.item())
    BODY
    optimizer.step()
    optimizer.zero_grad()
"""
EVALUATED = "with torch.no_grad():\n    seen.append(loss_of(model, x).item())\n"
for strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
    for use, body in {
        "clipped": f"{EVALUATED}seen.append(model.clip_grad_norm_(0.1).item())",
        "clipped by torch": f"{EVALUATED}seen.append({CLIPS}(model.parameters(), 0.1).item())",
        "written to": f"""
{EVALUATED}
with torch.no_grad():
    for p in model.parameters():
        p.clamp_(-0.1, 0.1)
""",
    }.items():
        loop(
            f"evaluated and {use}, {strategy}",
            inside(STALE, body),
            f"use_orig_params=True, sharding_strategy=ShardingStrategy.{strategy}",
            levels="rewritten manual",
            is_stale=True,
        )
loop(
    "clipping by value", inside(CLIPPED, "torch.nn.utils.clip_grad_value_(model.parameters(), 1e-3)\n" + USES["logged"])
)

# summon_full_params

SUMMONED = """
for x in batches(2):
    loss = loss_of(model, x)
    loss.backward()
    seen.append(loss.item())
    optimizer.step()
    BODY
    optimizer.zero_grad()
"""
SUMMONS = {
    "to read": """
        with FSDP.summon_full_params(model, writeback=False):
            seen.append([p.norm().item() for p in model.parameters()])
            seen.append(list(model.out.weight.shape) + [float(model.inp.weight.numel())])
        """,
    "to read in a loop": """
        with FSDP.summon_full_params(model, writeback=False):
            for name, p in model.named_parameters():
                seen.append([name, p.data.double().sum().item(), p.numel(), (p.detach().clone() * 2).norm().item()])
            seen.append(float(torch.linalg.vector_norm(model.out.weight)))
        """,
    "to copy into": """
        with torch.no_grad():
            with FSDP.summon_full_params(model):
                for name, p in model.named_parameters():
                    if "weight" in name:
                        p.data.copy_(torch.arange(p.numel()).view(p.shape) / 100)
        """,
    "to read a state dict": """
        with FSDP.summon_full_params(model, writeback=False):
            seen.append([[key, value.double().sum().item()] for key, value in model.state_dict().items()])
        """,
    "to write": """
        with FSDP.summon_full_params(model), torch.no_grad():
            model.inp.weight[3].zero_()
            model.out.bias.fill_(0.25)
            model.blocks[1].up.weight.data.mul_(0.9)
            model.blocks[0].down.weight.copy_(torch.ones_like(model.blocks[0].down.weight))
        """,
    "to change and read element by element": """
        with torch.no_grad(), FSDP.summon_full_params(model):
            model.blocks[1].up.weight.data.mul_(0.9)
            for p in model.parameters():
                p.clamp_(-0.25, 0.25)
        with FSDP.summon_full_params(model, with_grads=True):
            seen.append([p.grad.norm().item() for p in model.parameters() if p.grad is not None])
            seen.append([sum(p.pow(2).sum() for p in model.parameters()).sqrt().item()])
            seen.append(model.out.weight.detach().clone().norm().item())
        """,
    "to write what is lost": """
        with FSDP.summon_full_params(model, writeback=False), torch.no_grad():
            model.out.bias.fill_(0.25)
        """,
    "to exchange what is lost": """
        with FSDP.summon_full_params(model):
            for p in model.parameters():
                p.data = p.data * 0.5
        """,
    "to initialise": """
        torch.manual_seed(7)
        with FSDP.summon_full_params(model):
            for name, p in model.named_parameters():
                nn.init.normal_(p, std=0.1)
            nn.init.eye_(model.blocks[1].up.weight)
            nn.init.orthogonal_(model.inp.weight)
        """,
    "of the root alone": """
        with FSDP.summon_full_params(model, recurse=False):
            seen.append([model.inp.weight.norm().item(), model.out.weight.norm().item()])
            model.inp.weight.data.mul_(0.5)
        """,
    "of one unit": """
        with FSDP.summon_full_params(model.blocks[0], recurse=False):
            seen.append(sum(p.norm().item() for p in model.blocks[0].parameters()))
        """,
    "on the first rank": """
        with FSDP.summon_full_params(model, writeback=False, rank0_only=True):
            if dist.get_rank() == 0:
                seen.append([p.norm().item() for p in model.parameters()])
                seen.append(sum(value.double().sum().item() for value in model.state_dict().values()))
        """,
    "to generate": """
        with torch.no_grad(), FSDP.summon_full_params(model, writeback=False, recurse=False):
            seen.append(model.generate(x).sum().item())
        """,
    "to generate, of all units": """
        with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):
            seen.append(model.generate(x).sum().item())
        """,
    "to call a method": """
        with torch.no_grad(), FSDP.summon_full_params(model, writeback=False, recurse=False):
            seen.append(model.embed(x).sum().item())
        """,
    "to evaluate what is lost": """
        with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):
            model.out.weight.mul_(2)
            seen.append(loss_of(model, x).item())
        """,
    "in an ExitStack": """
        with ExitStack() as stack:
            stack.enter_context(FSDP.summon_full_params(model, writeback=False))
            seen.append(model.out.weight.norm().item())
        """,
    "by the model": """
        with model.summon_full_params(model, writeback=False):
            seen.append(model.out.weight.norm().item())
        """,
    "stored": """
        summon = partial(FSDP.summon_full_params, writeback=False)
        with summon(model):
            seen.append(model.out.weight.norm().item())
        """,
    "to average": """
        with FSDP.summon_full_params(model, writeback=False):
            now = {name: p.detach().clone() for name, p in model.named_parameters()}
        for name, value in now.items():
            value.lerp_(torch.ones_like(value), 0.1)
        with FSDP.summon_full_params(model), torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(now[name])
        """,
    "to swap with what is kept": """
        def clean(name):
            return name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")

        with FSDP.summon_full_params(model, writeback=False):
            kept = {clean(name): p.detach().clone().cpu() for name, p in model.named_parameters() if "weight" in name}
        with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):
            for name, p in model.named_parameters():
                cleaned = clean(name)
                if cleaned in kept:
                    kept[cleaned].mul_(0.5).add_(p.detach().float().cpu(), alpha=0.25)
        with FSDP.summon_full_params(model, writeback=True), torch.no_grad():
            for name, p in model.named_parameters():
                if clean(name) in kept:
                    value = p.data.clone().float().cpu()
                    p.data.copy_(kept[clean(name)].to(dtype=p.dtype, device=p.device))
                    kept[clean(name)] = value
        seen.append([value.double().sum().item() for value in kept.values()])
        """,
    "left by an exception": """
        try:
            with FSDP.summon_full_params(model), torch.no_grad():
                model.out.bias.fill_(0.5)
                raise ValueError
        except ValueError:
            seen.append(loss_of(model, x).item())
        """,
}
for use, body in SUMMONS.items():
    # Without a `with` that names it, a value that is read could be a shard's.
    asked = {"in an ExitStack": "review", "stored": "review"}
    levels = f"rewritten {asked.get(use, '')}"
    loop(f"summon_full_params {use}", inside(SUMMONED, body), model="Speaker()", levels=levels)
# FSDP1 lost what was written in front of a call, and went on with stale weights of its root behind it.
loop(
    "summon_full_params to evaluate what was written",
    """
    x = batches(1)[0]
    with torch.no_grad(), FSDP.summon_full_params(model):
        model.out.weight.mul_(2)
        seen.append([loss_of(model, x).item(), loss_of(model, x).item()])
    """,
)
loop(
    "summon_full_params to read and write gradients",
    inside(
        CLIPPED,
        """
        with FSDP.summon_full_params(model, with_grads=True):
            seen.append([p.grad.norm().item() for p in model.parameters()])
            for p in model.parameters():
                p.grad.mul_(0.5)
        """,
    ),
)
ALIKE = {
    "mul_ and add_": "e.mul_(0.9).add_(p, alpha=0.1)",
    "lerp_ of data": "e.data.lerp_(p.data, 0.1)",
    "a copy of a sum": "e.copy_(0.9 * e.detach() + p.data * (1 - 0.9))",
}
for update, statement in ALIKE.items():
    loop(
        f"summon_full_params of two models, {update}",
        f"""
        average = FSDP(Plain(), use_orig_params=True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        for x in batches(3):
            loss_of(model, x).backward()
            optimizer.step()
            optimizer.zero_grad()
            with FSDP.summon_full_params(average), FSDP.summon_full_params(model, writeback=False), torch.no_grad():
                for e, p in zip(average.parameters(), model.parameters()):
                    {statement}
            seen.append(loss_of(average, x).item())
            loss_of(model, x).backward()
            seen.append(loss_of(average, x).item())
        """,
        "use_orig_params=True, sharding_strategy=ShardingStrategy.FULL_SHARD",
    )
BY_NAME = {
    "of both": ("params = OrderedDict(model.named_parameters())", "params.items()"),
    "of one": ("number = 1", "model.named_parameters()"),
}
for tables, (other, given) in BY_NAME.items():
    loop(
        f"summon_full_params of two models by names, in a table {tables}",
        f"""
        from collections import OrderedDict

        average = FSDP(Plain(), use_orig_params=True, auto_wrap_policy=ModuleWrapPolicy({{Block}}))
        for x in batches(3):
            loss_of(model, x).backward()
            optimizer.step()
            optimizer.zero_grad()
            with FSDP.summon_full_params(average), FSDP.summon_full_params(model, writeback=False), torch.no_grad():
                averages = OrderedDict(average.named_parameters())
                {other}
                for name, p in {given}:
                    name = name.replace("module.", "")
                    averages[name].mul_(0.9).add_(p.data, alpha=1 - 0.9)
            seen.append(loss_of(average, x).item())
            loss_of(model, x).backward()
            seen.append(loss_of(average, x).item())
        """,
        "use_orig_params=True, sharding_strategy=ShardingStrategy.FULL_SHARD",
    )
loop(
    "summon_full_params in bf16 reads full precision",
    inside(SUMMONED, SUMMONS["to read"] + SUMMONS["to write"]),
    "use_orig_params=True, mixed_precision=MixedPrecision(torch.bfloat16)",
)

for zero in ("model", "optimizer"):
    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
        loop(
            f"gradients are zeroed between the forward and the backward by the {zero}, {strategy}",
            f"""
            for x in batches(3):
                loss = loss_of(model, x)
                {zero}.zero_grad()
                loss.backward()
                seen.append([loss.item(), model.clip_grad_norm_(1.0).item()])
                optimizer.step()
            """,
            f"use_orig_params=True, sharding_strategy=ShardingStrategy.{strategy}",
            # FSDP1 does not find the old gradients then, and adds the new ones to them.
            is_stale=(zero, strategy) == ("model", "SHARD_GRAD_OP"),
        )
loop(
    "an evaluation in inference_mode",
    """
    for x in batches(3):
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.inference_mode():
            seen.append([loss.item(), loss_of(model, x).item()])
    """,
)
loop(
    "a forward that fails",
    """
    for index, x in enumerate(batches(3)):
        try:
            loss_of(model, x[:, :3] if index == 1 else x)
        except RuntimeError:
            seen.append("failed")
        loss = loss_of(model, x)
        loss.backward()
        seen.append([loss.item(), model.clip_grad_norm_(1.0).item()])
        optimizer.step()
        optimizer.zero_grad()
    """,
)
loop(
    "a parameter of the program's own before the first forward",
    "model.inp.weight = nn.Parameter(torch.ones_like(model.inp.weight))\n" + inside(CLIPPED, USES["logged"]),
    levels="rewritten manual",
)
loop(
    "units are counted",
    "seen.append([float(len(FSDP.fsdp_modules(part))) for part in (model, model.blocks, model.blocks[0], model.out)])",
)
loop(
    "a scaler with an optimizer for ignored parameters",
    """
    scaler = ShardedGradScaler(init_scale=1024.0)
    ignored = torch.optim.SGD(net.out.parameters(), lr=0.05)
    optimizer = torch.optim.SGD([p for n, p in model.named_parameters() if "out." not in n], lr=0.05)
    for x in batches(3):
        loss = loss_of(model, x)
        scaler.scale(loss).backward()
        for each in (optimizer, ignored):
            scaler.step(each)
            each.zero_grad()
        scaler.update()
        seen.append(loss.item())
    """,
    "use_orig_params=True, ignored_modules=[net.out]",
    "(net := Plain())",
    levels="rewritten manual",
)
for use, body in {
    "halved": "for p in model.parameters():\n    p.data = p.data * 0.5",
    "averaged": """
        average = {name: p.detach().clone() * 0.9 for name, p in model.named_parameters()}
        for name, p in model.named_parameters():
            p.data = average[name]
        """,
    "exchanged for an evaluation": """
        kept = [p.data.clone() for p in model.parameters()]
        for p, q in zip(model.parameters(), kept):
            p.data = q * 0.5
        with torch.no_grad():
            seen.append(loss_of(model, x).item())
        for group in optimizer.param_groups:
            for p, q in zip(group["params"], kept):
                p.data = q
        """,
}.items():
    loop(f"parameters {use} by their data", inside(SUMMONED, body))

# An average that is wrapped too. FSDP1 evaluated it with stale weights of its root, up to its next backward: what it
# holds is compared.

AVERAGE = """
average = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
for x in batches(3):
    loss_of(model, x).backward()
    optimizer.step()
    optimizer.zero_grad()
    BODY
    with torch.no_grad():
        loss_of(average, x)
        seen.append(loss_of(model, x).item())
loss_of(average, x).backward()
with FSDP.summon_full_params(average, writeback=False):
    seen.append([p.norm().item() for p in average.parameters()])
"""
MOMENTUM = """
class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = Block(8), Block(8)
        self.k.requires_grad_(False)

    @torch.no_grad()
    def update(self):
        for q, k in zip(self.q.parameters(), self.k.parameters()):
            k.data = k.data * 0.5 + q.data * 0.5

    def forward(self, x):
        self.update()
        return self.q(x) - self.k(x)
"""
loop(
    "a model that averages its own units in its forward",
    """
    for x in batches(4):
        loss = loss_of(model, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    """,
    model="Pair()",
    above=MOMENTUM,
)
UPDATE = """
def update(model, average, decay=0.9):
    with torch.no_grad():
        for p, q in zip(model.parameters(), average.parameters()):
            q.mul_(decay).add_(p, alpha=1 - decay)
"""
for use, body in {
    "in a loop": """
        with torch.no_grad():
            for p, q in zip(model.parameters(), average.parameters()):
                q.lerp_(p, 0.1)
        """,
    "by its data": """
        for p, q in zip(model.parameters(), average.parameters()):
            q.data = 0.9 * q.data + 0.1 * p.data
        """,
    "by name": """
        with torch.no_grad():
            new = dict(model.named_parameters())
            for name, q in average.named_parameters():
                q.lerp_(new[name], 0.1)
        """,
    "by a function": "update(model, average)",
    "in whole parameters": """
        with FSDP.summon_full_params(model, writeback=False), FSDP.summon_full_params(average), torch.no_grad():
            for p, q in zip(model.parameters(), average.parameters()):
                q.lerp_(p, 0.1)
        """,
}.items():
    levels = "rewritten" if use == "in whole parameters" else "rewritten review"
    loop(f"wrapped average {use}", inside(AVERAGE, body), above=UPDATE if "function" in use else "", levels=levels)

# ShardedGradScaler

SCALED = """
scaler = ShardedGradScaler(init_scale=1024.0, growth_interval=2, process_group=dist.group.WORLD)
for turn, x in enumerate(batches(5)):
    loss = loss_of(model, x)
    BODY
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    seen.append([0.0 if math.isinf(loss.item()) else loss.item(), scaler.get_scale()])
    seen.append([float(value) for value in scaler.state_dict().values()])
"""
for use, body in {
    "with clipping": """
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        seen.append(model.clip_grad_norm_(1.0).item())
        """,
    "with an infinite loss of one rank": """
        if turn == 2 and dist.get_rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        """,
    "with an infinite gradient in one shard": """
        scaler.scale(loss).backward()
        for p in model.parameters():
            if turn == 2 and dist.get_rank() == 0 and p.grad is not None:
                p.grad.mul_(float("inf"))
        """,
}.items():
    loop(f"gradient scaler {use}", inside(SCALED, body))

# Norms that are added up by hand

NORMS = {
    "as numbers": """
        total = 0.0
        for p in model.parameters():
            if p.grad is not None:
                norm = p.grad.detach().data.norm(2)
                total += norm.item() ** 2
        total = torch.tensor(total)
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        """,
    "as tensors": """
        total = torch.zeros(())
        for p in model.parameters():
            if p.grad is not None:
                total += p.grad.norm() ** 2
        dist.all_reduce(total)
        """,
    "of squares": """
        total = torch.stack([p.grad.pow(2).sum() for p in model.parameters() if p.grad is not None]).sum()
        dist.all_reduce(total)
        """,
    "of norms": """
        norms = [torch.norm(p.grad) for n, p in model.named_parameters() if p.grad is not None]
        total = torch.norm(torch.stack(norms)) ** 2
        dist.all_reduce(total)
        """,
}
BY_HAND = """
def norm_of(model):
    BODY
    return total ** 0.5
"""
for use, body in NORMS.items():
    loop(f"norm by hand {use}", inside(CLIPPED, "seen.append(norm_of(model).item())"), above=inside(BY_HAND, body))
for strategy in ("SHARD_GRAD_OP", "NO_SHARD"):
    loop(
        f"norm by hand under {strategy}",
        inside(CLIPPED, "seen.append(norm_of(model).item())"),
        f"use_orig_params=True, sharding_strategy=ShardingStrategy.{strategy}",
        above=inside(BY_HAND, NORMS["as tensors"]),
    )

loop(
    "norms of pieces as plain numbers",
    inside(
        CLIPPED,
        """
        norms = {}
        for name, p in model.named_parameters():
            if p.grad is not None:
                norm = torch.linalg.norm(p.grad)
                norms[name] = norm
                print(f"{name} {norm:.3f}")
        own = torch.linalg.norm(torch.tensor(list(norms.values())))
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, own.item())
        seen.append(math.hypot(*every))
        """,
    ),
    levels="rewritten review",
)

# Between an evaluation and the next step

LOOKED_AT = """
for turn, x in enumerate(batches(3)):
    loss = loss_of(model, x)
    loss.backward()
    seen.append(loss.item())
    optimizer.step()
    with torch.no_grad():
        seen.append(loss_of(model, x).item())
    BODY
"""
for strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
    for use, body in {
        "gradients are zeroed by the model": "model.zero_grad()",
        "gradients are zeroed by the optimizer": "optimizer.zero_grad()",
        "an optimizer is built": "model.zero_grad()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "an average follows": """
            optimizer.zero_grad()
            average = {name: p.detach().clone() for name, p in model.named_parameters()}
            with FSDP.summon_full_params(model, writeback=False):
                seen.append(sum(p.norm().item() for p in model.parameters()))
            """,
    }.items():
        loop(
            f"after an evaluation {use}, {strategy}",
            inside(LOOKED_AT, body),
            f"use_orig_params=True, sharding_strategy=ShardingStrategy.{strategy}",
        )

loop(
    "flat parameters moved to the CPU between two steps",
    """
    for x in batches(3, 0):
        loss = loss_of(model, x)
        loss.backward()
        seen.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        move(model, "cpu")
    """,
    above="""
    def move(model, device):
        _lazy_init(model, model)
        assert model._is_root
        for handle in model._all_handles:
            if handle._offload_params:
                continue
            flat_param = handle.flat_param
            handle.flat_param_to(device, non_blocking=True)
            flat_param._local_shard = flat_param.data
    """,
    levels="rewritten review",
)
loop(
    "a model without a forward, whose units cast their inputs",
    """
    for x in batches(3):
        loss = model.run(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss.item())
    """,
    arguments="use_orig_params=True, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)",
    model="Parts()",
    above="""
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Block(8), Outer(8)

        def run(self, x):
            return self.second(self.first(x))


    class Outer(Block):
        def __init__(self, width):
            super().__init__(width)
            self.inner = Inner(width)

        def forward(self, x):
            return self.inner(super().forward(x).float() / 3)


    class Inner(Block):  # inside of a unit, whose inputs are not cast
        def forward(self, x):
            return x + super().forward(x.bfloat16())
    """,
    levels="rewritten review",
)
