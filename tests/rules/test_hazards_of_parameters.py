"""FM420 to FM423 and FM211: what a program does with shards and gradients of its own accord."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, rewrite

HEAD = """\
import numpy as np
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def look(net, x, rank):
    model = FSDP(net)
"""
SHARDED_TENSOR = "torch.distributed._shard.sharded_tensor.ShardedTensor"
HAZARDS = {"FM420", "FM421", "FM422", "FM423", "FM211", "FM308", "FM427"}


def test_noop() -> None:
    check_noop("import torch\n[p.norm() for p in model.parameters()]\nmodel.out.weight[3].zero_()\n")


FINE = [
    "return {n: p.clone() for n, p in model.named_parameters()}",
    "return [p.norm() for p in net.parameters()]",
    "with FSDP.summon_full_params(model):\n        print([p.norm() for p in model.parameters()])",
    "with FSDP.summon_full_params(model):\n        model.out.weight[3].zero_()",
    "return [p.full_tensor().norm() for p in model.parameters()]",
    "for p in model.parameters():\n        x[0] = p.requires_grad",
    "model.out.weight.data.mul_(2)",
    "x.out.weight[3].zero_()",
    "mask = torch.zeros_like(x)\n    mask[0] = model.out.weight[3]",
    "mask = torch.zeros(model.out.weight.shape)\n    mask[0] = 1",
    "whole = model.out.weight.grad.full_tensor()\n    whole[0] = 1",
    f"return isinstance(x, {SHARDED_TENSOR}) or isinstance(x, torch.distributed.tensor.DTensor)",
    "return model.embed.weight.size(0)",
    "with model.no_sync():\n        model(x).backward()\n    return [p.grad for p in model.parameters()]",
    "with x.no_sync():\n        x.grad",
    "for p in model.parameters():\n        torch.distributed.broadcast(p.to_local(), src=0)",
    "return torch.tensor([p.norm().item() for p in x])",
    "return torch.distributions.Bernoulli(x.new_full(model.out.weight.size(), 0.5))",
    "x.register_comm_hook(None, x)",
    "for p in model.parameters():\n        p.grad = torch.where(p.grad.abs() < x, torch.zeros_like(p.grad), p.grad)",
    "return x.cat([torch.zeros(p.size(0)) for p in model.parameters()])",
    "for p in model.parameters():\n        p.view(p.size(0), -1)",
    "return torch.nn.utils.parameters_to_vector(net.parameters())",
    "torch.nn.utils.vector_to_parameters(net, net.parameters())",
    "opt = torch.optim.Adam(net.parameters())\n    return [s['exp_avg'].sum() for s in opt.state.values()]",
    "return torch.allclose(x, x)",
    "p = next(model.parameters())\n    return p.new_zeros(p.shape)",
    "return next(net.parameters()).new_zeros(1)",
    "return torch.zeros(1, device=next(model.parameters()).device)",
]


@pytest.mark.parametrize("statement", FINE)
def test_nothing_to_say(statement: str) -> None:
    assert not HAZARDS & {finding.rule for finding in rewrite(HEAD + f"    {statement}\n").findings}


FOUND = [
    ("FM420", Level.REVIEW, "for n, p in model.named_parameters():\n        print(n, p.norm().item())"),
    ("FM420", Level.REVIEW, "return [float(p.grad.abs().max()) for p in model.parameters()]"),
    ("FM420", Level.REVIEW, "return any(torch.isnan(p.grad).any() for p in model.parameters())"),
    ("FM420", Level.REVIEW, "return model.out.weight.mean()"),
    ("FM420", Level.REVIEW, "w = model.out.weight.detach()\n    model.out.weight.copy_(F.normalize(w, dim=-1))"),
    ("FM420", Level.REVIEW, "return [p.data.abs().flatten().topk(5) for p in model.parameters()]"),
    ("FM420", Level.REVIEW, "return sum(p.data.sum() for p in model.parameters())"),
    ("FM420", Level.MANUAL, "if rank == 0:\n        print([p.std() for p in model.parameters()])"),
    ("FM420", Level.MANUAL, "if x.is_main_process:\n        print(model.blocks[0].weight.norm())"),
    ("FM420", Level.REVIEW, "return sum((p**2).sum() for p in model.parameters())"),
    ("FM420", Level.REVIEW, "for p in model.parameters():\n        x += (p**2).sum().item()\n    x.backward()"),
    ("FM420", Level.MANUAL, "(x.loss + sum((p**2).sum() for p in model.parameters())).backward()"),
    (
        "FM420",
        Level.MANUAL,
        "old = {p: p.detach() for p in model.parameters()}\n"
        "    (x.loss + sum(((p - q) ** 2).sum() for p, q in old.items())).backward()",
    ),
    (
        "FM420",
        Level.MANUAL,
        "ps = {n: p for n, p in model.named_parameters()}\n    sum((p**2).sum() for n, p in ps.items()).backward()",
    ),
    (
        "FM420",
        Level.MANUAL,
        "for p, q in zip(model.parameters(), x):\n        rank += ((p - q)**2).sum()\n    rank.backward()",
    ),
    (
        "FM420",
        Level.MANUAL,
        "l1 = 0\n    for p in model.parameters():\n        l1 = l1 + p.abs().sum()\n    x.backward(x + l1)",
    ),
    ("FM421", Level.MANUAL, "model.out.weight[3].zero_()"),
    ("FM421", Level.MANUAL, "model.out.weight.data[3] = 0"),
    ("FM421", Level.MANUAL, "model.blocks[1].bias.data[x] *= 2"),
    ("FM421", Level.MANUAL, "for p in model.parameters():\n        p.data[0] += 1"),
    ("FM421", Level.MANUAL, "mask = torch.zeros_like(model.out.weight.grad)\n    mask[x] = torch.ones_like(mask[x])"),
    ("FM421", Level.MANUAL, "grad = model.inputs().weight.grad\n    mask = torch.zeros_like(grad)\n    mask[x] = 1"),
    ("FM421", Level.MANUAL, "for p in model.parameters():\n        mask = p.detach() > 0\n        (mask * p)[0] = 1"),
    ("FM427", Level.MANUAL, "for p in model.parameters():\n        torch.distributed.broadcast(p.data, src=0)"),
    ("FM427", Level.MANUAL, "return torch.tensor([p.detach().mean() for p in model.parameters()])"),
    ("FM427", Level.MANUAL, "return np.array([p.grad.abs().max() for p in model.parameters()])"),
    ("FM427", Level.MANUAL, "for p in model.parameters():\n        x.append(np.sqrt(p.var()))"),
    ("FM427", Level.MANUAL, "return [p.std().tolist() for p in model.parameters()]"),
    ("FM427", Level.MANUAL, "return [f'{p.std():.3f}' for p in model.parameters()]"),
    ("FM427", Level.MANUAL, "return ['{} {:.3f}'.format(n, p.std()) for n, p in model.named_parameters()]"),
    ("FM427", Level.MANUAL, "return {n: p.detach().cpu().numpy() for n, p in model.named_parameters()}"),
    ("FM427", Level.MANUAL, "return torch.nn.utils.parameters_to_vector(model.parameters())"),
    ("FM427", Level.MANUAL, "p = next(model.parameters())\n    return p.new_zeros(1, 8), p.shape"),
    ("FM427", Level.MANUAL, "return next(model.parameters()).data.new_full((1, 8), 0.5)"),
    ("FM427", Level.MANUAL, "torch.nn.utils.vector_to_parameters(net, model.parameters())"),
    (
        "FM420",
        Level.REVIEW,
        "opt = torch.optim.Adam(model.parameters())\n    return [s['exp_avg'].sum() for s in opt.state.values()]",
    ),
    (
        "FM420",
        Level.REVIEW,
        "o = torch.optim.SGD(model.parameters())\n    s = o.state[x]\n    s['momentum_buffer'].norm()",
    ),
    (
        "FM420",
        Level.REVIEW,
        "o = torch.optim.Adam(model.parameters())\n    s = o.state.get(x)\n    rank += s['exp_avg_sq'].sum()",
    ),
    ("FM427", Level.MANUAL, "return torch._utils._flatten_dense_tensors(list(model.parameters()))"),
    (
        "FM427",
        Level.MANUAL,
        "ps = list(model.parameters())\n    return torch._utils._flatten_dense_tensors([ps[i] for i in x])",
    ),
    ("FM427", Level.MANUAL, "return torch.cat([p.detach().flatten() for p in model.parameters()])"),
    ("FM427", Level.MANUAL, "return torch.cat([p.grad.view(-1) for p in model.parameters()])"),
    ("FM427", Level.MANUAL, "return torch.cat([p.detach().abs().flatten() for p in model.parameters()]).kthvalue(x)"),
    ("FM427", Level.MANUAL, "return all(torch.allclose(p, q) for p, q in zip(model.parameters(), x))"),
    ("FM427", Level.MANUAL, "for p in model.parameters():\n        p.grad.add_(torch.randn(p.grad.shape) * 0.1)"),
    (
        "FM427",
        Level.MANUAL,
        "for p in model.parameters():\n        z = torch.normal(0, 1, p.size())\n        p.data.add_(z)",
    ),
    (
        "FM427",
        Level.MANUAL,
        "for p in model.parameters():\n        p.grad *= 1 if x else 2 * (p * torch.rand(p.size()))",
    ),
    (
        "FM427",
        Level.MANUAL,
        "p = model.out.weight.grad\n    torch.distributions.Bernoulli(p.new_full(p.size(), 0.5)).sample()",
    ),
    ("FM308", Level.MANUAL, f"return [v for v in model.state_dict() if isinstance(v, {SHARDED_TENSOR})]"),
    ("FM422", Level.REVIEW, "return sum(p.numel() for p in model.parameters() if p.requires_grad)"),
    ("FM422", Level.REVIEW, "return sum(p.grad.numel() for p in model.parameters())"),
    ("FM422", Level.REVIEW, "for n, p in model.named_parameters():\n        print(n, p.shape)"),
    ("FM422", Level.REVIEW, "head = model.head\n    return sum(p.numel() for p in head.parameters())"),
    ("FM423", Level.MANUAL, "with model.no_sync():\n        print([p.grad for p in model.parameters()])"),
    ("FM423", Level.MANUAL, "with model.no_sync() if x else x():\n        x(net.out.weight.grad, net.out.bias.grad)"),
    ("FM211", Level.MANUAL, "model.register_comm_hook(None, x)"),
    ("FM211", Level.MANUAL, "FSDP.register_comm_hook(model, None, x)"),
]


@pytest.mark.parametrize(("rule", "level", "statement"), FOUND)
def test_found(rule: str, level: Level, statement: str) -> None:
    check_marked(HEAD + f"    {statement}\n", rule, level)


def test_an_index_of_a_trainers_model() -> None:
    trainer = HEAD.replace(
        "def look(net, x, rank):\n    model = ", "class Look:\n    def look(self, net, x, rank):\n        self.model = "
    )
    assert "class Look" in trainer
    check_marked(f"{trainer}        self.model.out.weight.data[3] = 0\n", "FM421", Level.MANUAL)


STATES = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRU(4, 8)

    def init_hidden(self, size):
        weight = next(self.parameters())
        return weight.new_zeros(1, size, 8)

    def forward(self, x, hidden=None):
        return self.cell(x, hidden if hidden is not None else self.init_hidden(x.size(1)))


"""


def test_a_hidden_state_that_a_method_of_the_model_makes() -> None:
    check_marked(STATES + "model = FSDP(Net())\nhidden = model.module.init_hidden(2)\n", "FM427", Level.MANUAL)
    found = rewrite(STATES + "model = FSDP(Net())\nmodel(torch.ones(3, 2, 4))\n").findings
    assert "FM427" not in {finding.rule for finding in found}  # in a forward its parameters are whole


# What is put together of numbers, each a mean of a parameter, and comes to torch.tensor on any way.
NUMBERS = [
    "numbers = []\n    for p in model.parameters():\n        numbers.append(p.mean())\n"
    "    return torch.tensor(numbers)",
    "numbers = {}\n    for n, p in model.named_parameters():\n        number = torch.mean(p.grad)\n"
    "        numbers[n] = number\n    return torch.linalg.norm(torch.as_tensor(list(numbers.values())))",
    "numbers = [p.mean() for p in model.parameters()]\n    numbers = [number**2 for number in numbers]\n"
    "    return torch.FloatTensor(numbers)",
    "numbers = means(model)\n    return x.new_tensor(numbers)",
    "return torch.tensor([mean(p) for p in model.parameters()])",
    "return torch.tensor(sorted(mean(p) for p in model.parameters()), device=x)",
    "numbers = [mean(p) for p in model.parameters()]\n    return np.mean(numbers)",
    "log = Log()\n    log.add(model)\n    return log.whole()",
]
MEANS = """

def means(model):
    return tuple(p.mean() for p in model.parameters())


def mean(p):
    return p.grad.mean()


class Log:
    def __init__(self):
        self.numbers = []

    def add(self, model):
        for p in model.parameters():
            self.numbers.append(p.mean().float())

    def whole(self):
        return torch.tensor(self.numbers)
"""


PLAIN_NUMBERS = [
    "norms = {n: p.norm().item() for n, p in model.named_parameters()}\n    return torch.tensor(list(norms.values()))",
    "norms = [p.norm() for p in net.parameters()]\n    return torch.tensor(norms), f'{norms[0]:.2f}'",
    "norms = [p.norm() for p in model.parameters()]\n"
    "    return torch.stack(norms), f'{norms[0].item():.2f}', f'{norms[0]}'",
    "print([p.norm() for p in model.parameters()])\n    return torch.tensor([x.norm()]), np.array([x.norm()])",
]


@pytest.mark.parametrize("statement", PLAIN_NUMBERS)
def test_numbers_that_are_plain(statement: str) -> None:
    assert "FM427" not in {finding.rule for finding in rewrite(HEAD + f"    {statement}\n").findings}


@pytest.mark.parametrize("statement", NUMBERS)
def test_numbers_that_are_put_together(statement: str) -> None:
    check_marked(HEAD + f"    {statement}\n" + MEANS, "FM427", Level.MANUAL)
    found = {f.rule for f in rewrite(HEAD.replace("FSDP(net)", "net") + f"    {statement}\n" + MEANS).findings}
    assert "FM427" not in found, "another model"


OPTIMIZER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Masked(torch.optim.Optimizer):
    def step(self):
        for group in self.param_groups:
            for p in group[{key}]:
                grad = p.grad.data
                grad *= torch.distributions.Bernoulli(grad.new_full(grad.size(), 0.5)).sample()


def main(net):
    model = FSDP(net)
    return model, Masked(model.parameters(), {{}})
"""


@pytest.mark.parametrize(("key", "is_found"), [('"params"', True), ('"masks"', False)])
def test_gradients_in_an_optimizer_of_the_programs_own(key: str, is_found: bool) -> None:
    """`Bernoulli` asks whether its values are valid, for which DTensors have no rule (NotImplementedError)."""
    rules = {finding.rule for finding in rewrite(OPTIMIZER.format(key=key)).findings}
    assert ("FM427" in rules) is is_found


HELPED = """\
import torch
from torch import distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def help(given):
    named = list(given)
    {statement}


def main(net, other):
    model = FSDP(net)
    help({handed}.named_parameters())
"""
OF_HELPER = [
    ("FM404", "return [p for n, p in named if p.ndim >= 2], [p for n, p in named if p.ndim < 2]"),
    ("FM404", "params = {n: p for n, p in named}\n    return [p for p in params.values() if len(p.shape) > 1]"),
    ("FM421", "for n, p in named:\n        p.data[0] = 0"),
    ("FM427", "return torch.cat([p.numpy() for n, p in named])"),
    ("FM427", "for n, p in named:\n        dist.broadcast(p.data, 0)"),
]


@pytest.mark.parametrize(("rule", "statement"), OF_HELPER)
def test_parameters_that_a_helper_is_handed(rule: str, statement: str) -> None:
    found = [f.rule for f in rewrite(HELPED.format(statement=statement, handed="model")).findings]
    assert found.count(rule) == 1
    found = [f.rule for f in rewrite(HELPED.format(statement=statement, handed="other")).findings]
    assert rule not in found, "those of another model"


BY_DIMENSION = """\
from torch import optim
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def by_dimension(model):
    return [p for p in model.parameters() if p.ndim < 2]


class Trainer:
    def __init__(self, args, net):
        self.args = args
        if args.fsdp:
            net = FSDP(net)
        parameters = by_dimension(net)
        if self.args.{flag}:
            parameters = {groups}
        self.optimizer = optim.AdamW(parameters)
"""


@pytest.mark.parametrize(
    ("flag", "groups", "count"),
    [("fsdp", "net.parameters()", 0), ("ema", "net.parameters()", 1), ("fsdp", "parameters", 1)],
)
def test_groups_that_the_way_of_fsdp_does_without(flag: str, groups: str, count: int) -> None:
    found = [f.rule for f in rewrite(BY_DIMENSION.format(flag=flag, groups=groups)).findings]
    assert found.count("FM404") == count


STEPPED = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Own(torch.optim.Optimizer):
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                {statement}


def main(net):
    model = FSDP(net)
    return model, {made}
"""
OF_STEP = [
    ("FM404", "if p.grad.ndim == 2:\n                    p.grad.t()"),
    ("FM404", "g = p.grad\n                if len(list(g.size())) > 1:\n                    p.t()"),
    ("FM404", "has = lambda x: x.dim() > 1\n                g = p.grad\n                has(g)"),
    ("FM420", "p.add_(p.grad, alpha=float(p.norm() / p.grad.norm()))"),
    ("FM420", "mask = (state['m'] * p.grad > 0).float()\n                mask.div_(mask.mean().clamp_(min=1e-3))"),
    ("FM420", "u = p.grad + p\n                p.sub_(u / u.norm())"),
    ("FM421", "p.data[0] = 0"),
    ("FM427", 'state["m"] = torch.zeros(p.shape)'),
    ("FM427", 'shape = p.grad.shape\n                state["r"] = torch.zeros(shape[:-1]).to(p)'),
    ("FM427", 'shape = p.grad.shape\n                state["c"] = torch.zeros(shape[:-2] + shape[-1:]).to(p)'),
    ("FM427", "p.data.copy_(torch.from_numpy(p.grad.numpy()))"),
]


@pytest.mark.parametrize(("rule", "statement"), OF_STEP)
def test_an_optimizer_of_the_programs_own(rule: str, statement: str) -> None:
    """FSDP1 handed it flat pieces, which are plain tensors of one dimension."""
    found = {f.rule for f in rewrite(STEPPED.format(statement=statement, made="Own(model.parameters(), {})")).findings}
    assert rule in found
    found = {f.rule for f in rewrite(STEPPED.format(statement=statement, made="None")).findings}
    assert rule not in found, "nobody makes one"


@pytest.mark.parametrize("statement", ['state["m"] = torch.zeros_like(p)', "p.add_(p.grad.sign(), alpha=-0.1)"])
def test_an_optimizer_that_goes_element_by_element(statement: str) -> None:
    text = STEPPED.format(statement=statement, made="Own(model.parameters(), {})")
    assert {f.rule for f in rewrite(text).findings} == {"FM101"}


OWN_PAIRS = """\
class Base(torch.optim.Optimizer):
    def pairs(self):
        for group in self.param_groups:
            for p in group["params"]:
                yield group, p


class Own(Base):
    def step(self):
        for group, p in self.pairs():
            p.data.add_(p.grad, alpha={})


def main(net):
    return Own(FSDP(net).parameters(), {{}})
"""


@pytest.mark.parametrize(("alpha", "is_found"), [("-torch.norm(p.data).item()", True), ("-group['lr']", False)])
def test_norms_of_an_optimizer_that_has_its_parameters_in_another_way(alpha: str, is_found: bool) -> None:
    result = rewrite(HEAD.partition("def look")[0] + OWN_PAIRS.format(alpha))
    assert ("FM420" in {finding.rule for finding in result.findings}) == is_found


def test_an_index_of_what_a_setter_was_given_wrapped() -> None:
    """The root is not wrapped itself, and the model travels through other functions."""
    text = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Model:
    def wrap(self):
        self.net.set_input_embeddings(FSDP(self.net.get_input_embeddings()))


def step(model, x):
    grad = model.net.get_{name}_embeddings().weight.grad
    mask = torch.zeros_like(grad)
    mask[x] = 1
"""
    assert "FM421" in {finding.rule for finding in rewrite(text.format(name="input")).findings}
    assert "FM421" not in {finding.rule for finding in rewrite(text.format(name="output")).findings}


COUNT = "sum(p.numel() for p in model.parameters())"
SHOWN = [
    f"print({COUNT})",
    f'logger.info(f"{{{COUNT} / 1e6:.1f}} M")',
    f"n = {COUNT}\n    print('size', round(n / 1e6, 1))",
    f"n = {COUNT}\n    m = n / 1e6\n    log_rank0('%s', m)",
    "n = 0\n    for p in model.parameters():\n        n += p.data.numel()\n    print(n)",
    "for n, p in model.named_parameters():\n        print(n, p.shape)",
    f"wandb.log({{'size': {COUNT}}})",
]
NOT_SHOWN = [
    f"return {COUNT}",
    f"print({COUNT} * x.world_size)",
    f"n = {COUNT}\n    n = n * x.ranks\n    print(n)",
    f"n = {COUNT}\n    print(n)\n    return n",
    f"if {COUNT} > 3:\n        print('large')",
    f"n = torch.tensor({COUNT})\n    dist.all_reduce(n)\n    print(n)",
]


@pytest.mark.parametrize("body", [*SHOWN, *NOT_SHOWN])
def test_number_that_is_only_shown_leaves_nothing_to_do(body: str) -> None:
    (found,) = [each for each in rewrite(HEAD + f"    {body}\n").findings if each.rule == "FM422"]
    assert found.level is Level.REVIEW
    assert bool(found.hint) is (body in NOT_SHOWN)


RUNNING = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(torch.nn.Linear):
    pass


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(4, 4), Block(4, 4)])

    def forward(self, x):
        loss = sum(block(x).sum() for block in self.blocks)
        {body}

    def touched(self):
        zero = torch.zeros(())
        for p in self.parameters():
            zero = zero + torch.nan_to_num(p).sum() * 0.0
        return zero


def train(x):
    model = FSDP(Net(), {settings})
    with torch.no_grad():
        model(x)
    model(x).backward()
"""
UNITS = "auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True"


@pytest.mark.parametrize(
    ("body", "settings", "is_found"),
    [
        ("return loss + 0.0 * sum(p.sum() for p in self.parameters())", UNITS, True),
        ("return self.touched() if torch.isnan(loss) else loss", UNITS, True),
        ("print([p.sum().item() for p in self.parameters()])\n        return loss", UNITS, False),
        ("return loss + 0.0 * sum(p.sum() for p in self.parameters())", "use_orig_params=True", False),
        ("return loss + 0.0 * sum(p.sum() for p in self.parameters())", UNITS.split(", use")[0], False),
        ("return loss + 0.0 * sum(p.to_local().sum() for p in self.parameters())", UNITS, False),
    ],
)
def test_values_of_its_own_parameters_that_a_model_returns(body: str, settings: str, is_found: bool) -> None:
    """Measured: FSDP1 with use_orig_params=True adds 0; FSDP2 raises of plain tensors beside DTensors."""
    found = rewrite(RUNNING.format(body=body, settings=settings)).findings
    assert [each.level for each in found if each.rule == "FM420"] == [Level.MANUAL] * is_found


PART = """\
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = Net(), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.head(x).sum() + self.net(x)


"""


@pytest.mark.parametrize(("unit", "is_found"), [("Block", True), ("Net", False), ("torch.nn.ReLU", False)])
def test_values_of_its_parameters_that_a_part_of_a_model_returns(unit: str, is_found: bool) -> None:
    body = "return loss + 0.0 * sum(p.sum() for p in self.parameters())"
    text = RUNNING.format(body=body, settings=UNITS.replace("Block", unit)).replace("FSDP(Net()", "FSDP(Outer()")
    found = rewrite(text.replace("def train", f"{PART}def train")).findings
    assert [each.level for each in found if each.rule == "FM420"] == [Level.MANUAL] * is_found
