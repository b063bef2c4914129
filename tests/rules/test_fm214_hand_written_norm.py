"""FM214 and FM402: gradients that are put through a collective by hand."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_noop, code, meaning, rewrite

HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, x, params):
    model = FSDP(net)
"""


def test_noop() -> None:
    check_noop(
        "import torch.distributed as dist\ndef f(p):\n    total = p.grad.norm() ** 2\n    dist.all_reduce(total)\n"
    )


QUIET = [
    "total = torch.zeros(1)\nfor p in model.parameters():\n    if p.grad is not None:\n        total += 1\n"
    "dist.all_reduce(total)",
    "for p in model.parameters():\n    p.grad = None\nloss = model(x)\ndist.all_reduce(loss)",
    "for p in model.parameters():\n    print(p.grad)",
    "own = [p for p in model.parameters() if p.grad is not None]\n"
    "total = torch.stack([p.grad.to_local().norm() for p in own]).sum()\ndist.all_reduce(total)",
    "h = model(x)\nh = h.detach().requires_grad_()\nnet(h).sum().backward()\n"
    "total = h.grad.norm()\ndist.all_reduce(total)",
    "print(model.out.weight.grad)\nmetrics = torch.tensor([x.item()])\ndist.all_reduce(metrics)",
]


def body(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("text", QUIET)
def test_nothing_of_a_gradient_comes_to_the_collective(text: str) -> None:
    assert not {"FM214", "FM402"} & {finding.rule for finding in rewrite(HEAD + body(text)).findings}


LOCAL = "p.grad.to_local()"
SQUARES = [
    "total = torch.zeros(1)\nfor p in model.parameters():\n    total += p.grad.norm() ** 2\ndist.all_reduce(total)",
    "total = 0.0\nfor n, p in model.named_parameters():\n    if p.grad is not None:\n"
    "        norm = p.grad.detach().data.norm(2)\n        total += norm.item() ** 2\n"
    "total = torch.tensor(total)\ndist.all_reduce(total, op=dist.ReduceOp.SUM)",
    "norms = []\nfor p in model.parameters():\n    norms.append(torch.linalg.vector_norm(p.grad, 2.0) ** 2)\n"
    "total = torch.stack(norms).sum()\ndist.all_reduce(total)",
    "total = torch.zeros(1)\nfor p in model.parameters():\n    total += p.grad.norm(dtype=torch.float32) ** 2\n"
    "dist.all_reduce(total)",
    "total = sum(p.grad.float().pow(2).sum() for p in model.parameters())\ndist.all_reduce(total)",
    "total = torch.norm(torch.stack([torch.norm(p.grad.detach()) for p in model.parameters()])) ** 2\n"
    "dist.all_reduce(total, dist.ReduceOp.SUM)",
    "total = sum((p.grad ** 2).sum() for p in model.parameters())\ndist.all_reduce(total)",
    "norms = {}\nfor n, p in model.named_parameters():\n"
    "    norms.setdefault(x, []).append(p.grad.detach().float().pow(2).sum())\n"
    "norms = {name: torch.stack(each).sum() for name, each in norms.items()}\n"
    "for total in norms.values():\n    dist.all_reduce(total)",
    "norms = {x: []}\nfor n, p in model.named_parameters():\n    norms[x].append(p.grad.square().sum())\n"
    "for each in norms.values():\n    total = torch.stack(each).sum()\n    dist.all_reduce(total)",
]


@pytest.mark.parametrize("text", SQUARES)
def test_squares_are_those_of_this_rank(text: str) -> None:
    result = rewrite(HEAD + body(text))
    expected = text.replace("p.grad", LOCAL).replace(f"{LOCAL} is not", "p.grad is not")
    assert meaning(result.text).endswith(meaning(f"if 1:\n{body(expected)}").removeprefix("if 1:\n"))
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_what_is_scaled_by_the_norm_stays_and_elements_are_counted_of_the_piece() -> None:
    text = (
        "norms = [p.grad.norm() for p in model.parameters() if p.grad.numel() > 0]\n"
        "total = torch.stack(norms).pow(2).sum()\ndist.all_reduce(total)\n"
        "for p in model.parameters():\n    p.grad.{}(1 / total.sqrt())"
    )
    for scale in ("mul_", "detach().mul_", "data.div_"):
        result = rewrite(HEAD + body(text.format(scale)))
        assert "[p.grad.to_local().norm() for p in model.parameters() if p.grad.to_local().numel() > 0]" in result.text
        assert f"    p.grad.{scale}(1 / total.sqrt())\n" in result.text
        assert "FM402" not in {finding.rule for finding in result.findings}
    assert "FM402" in {finding.rule for finding in rewrite(HEAD + body(text.format("add_"))).findings}


PARAMETERS = [
    "total = sum(p.detach().float().norm() ** 2 for p in model.parameters())\ndist.all_reduce(total)",
    "total = torch.zeros(1)\nfor n, p in model.named_parameters():\n    if p.requires_grad:\n"
    "        total += p.data.pow(2).sum()\ndist.all_reduce(total)",
]


@pytest.mark.parametrize("text", PARAMETERS)
def test_squares_of_parameters_are_those_of_this_rank(text: str) -> None:
    result = rewrite(HEAD + body(text))
    expected = text.replace("p.de", "p.to_local().de").replace("p.data", "p.to_local().data")
    assert meaning(result.text).endswith(meaning(f"if 1:\n{body(expected)}").removeprefix("if 1:\n"))
    assert {level for _, level, _ in result.summary} == {"rewritten"}


TOGETHER = [
    "norms = {}\nfor n, p in model.named_parameters():\n    if p.grad is not None:\n"
    "        norm = torch.linalg.norm(p.grad)\n        norms[n] = norm\n"
    "total = torch.linalg.norm(torch.tensor(list(norms.values())))\nx(total, norms)",
    "x(torch.tensor([p.grad.detach().norm(2) for p in model.parameters()]))",
    "for n, p in model.named_parameters():\n    print(f'{n} {p.grad.norm():.3f}')",
    "norms = []\nfor p in model.parameters():\n    norms.append(p.grad.data.norm())\nx(np.array(norms))",
]


@pytest.mark.parametrize("text", TOGETHER)
def test_norms_that_become_plain_numbers_are_those_of_this_rank(text: str) -> None:
    result = rewrite("import numpy as np\n" + HEAD + body(text))
    assert result.text.endswith(body(text.replace("p.grad", LOCAL).replace(f"{LOCAL} is not", "p.grad is not")))
    assert [(f.rule, f.level) for f in result.findings if f.rule != "FM101"] == [("FM214", Level.REVIEW)]


def test_norms_of_parameters_that_one_rank_writes_down() -> None:
    """No rank waits for another, as none did."""
    text = "if dist.get_rank() == 0:\n    x(torch.tensor([p.norm() for p in model.parameters()]))"
    result = rewrite(HEAD + body(text))
    assert result.text.endswith(body(text.replace("p.norm", "p.to_local().norm")))
    assert [(f.rule, f.level) for f in result.findings if f.rule != "FM101"] == [("FM214", Level.REVIEW)]


LEFT = {
    "may be another model": "m = model if x else net\nx(torch.tensor([p.grad.norm() for p in m.parameters()]))",
    "one of them is a mean": "x(torch.tensor([f(p.grad) for f in x] + [p.grad.mean() for p in model.parameters()]))",
    "another norm": "x(torch.tensor([p.grad.norm(float('inf')) for p in model.parameters()]))",
    "of another function": "x(torch.tensor(norms(model)))",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_else_becomes_plain_numbers_needs_a_person(name: str) -> None:
    text = "\n\ndef norms(model):\n    return [p.grad.norm() for p in model.parameters()]\n"
    result = rewrite(HEAD + body(LEFT[name]) + text)
    assert "to_local" not in result.text
    assert [f.rule for f in result.findings if f.level is Level.MANUAL] == ["FM427"]


REPORTED = {
    "parameters from elsewhere": "total = sum(p.grad.norm() ** 2 for p in params)\ndist.all_reduce(total)",
    "another norm": "total = sum(p.grad.norm(1) ** 2 for p in model.parameters())\ndist.all_reduce(total)",
    "not squared": "total = sum(p.grad.norm() for p in model.parameters())\ndist.all_reduce(total)",
    "the largest": "total = max(p.grad.norm() ** 2 for p in model.parameters())\n"
    "dist.all_reduce(total, op=dist.ReduceOp.MAX)",
    "means": "total = sum(p.grad.mean() ** 2 for p in model.parameters())\ndist.all_reduce(total)",
    "one of them itself": "for p in model.parameters():\n    x(p.grad.norm() ** 2)\n    dist.all_reduce(p.grad)",
    "a model that may be another": "m = model if x else net\ntotal = sum(p.grad.norm() ** 2 for p in m.parameters())\n"
    "dist.all_reduce(total)",
    "through an attribute": "x.total = model.out.weight.grad.norm()\ndist.all_gather(params, x.total)",
}


@pytest.mark.parametrize("name", REPORTED)
def test_anything_else_needs_a_person(name: str) -> None:
    result = rewrite(HEAD + body(REPORTED[name]))
    assert "to_local" not in result.text
    found = [finding for finding in result.findings if finding.rule == "FM402"]
    assert [finding.level for finding in found] == [Level.MANUAL]


def test_ignored_parameters_stay_plain() -> None:
    text = HEAD.replace("FSDP(net)", "FSDP(net, ignored_modules=[net.out])") + body(SQUARES[0])
    result = rewrite(text)
    assert "to_local" not in result.text
    assert "FM402" in {finding.rule for finding in result.findings}


def test_function_without_a_model() -> None:
    text = code(
        """


        def reduce(tensors):
            dist.all_reduce(torch.stack([t.grad for t in tensors]))
        """
    )
    assert "FM402" in {finding.rule for finding in rewrite(HEAD + "    return model\n" + text).findings}


def test_norm_that_another_function_computes() -> None:
    text = code(
        """


        def local_norm(model):
            total = 0.0
            for p in model.parameters():
                total += torch.linalg.vector_norm(p.grad) ** 2
            return total**0.5


        def norm_over_ranks(model):
            norm = local_norm(model).detach() ** 2
            dist.all_reduce(norm)
            return norm**0.5
        """
    )
    found = [
        f for f in rewrite(HEAD + "    norm_over_ranks(model)\n    return model\n" + text).findings if f.rule == "FM402"
    ]
    assert [(finding.level, finding.line) for finding in found] == [(Level.MANUAL, 19)]


def test_script_without_a_function() -> None:
    text = code(
        """
        model = FSDP(net)
        norms = torch.stack([p.grad.norm() ** 2 for p in model.parameters()])
        dist.all_reduce(norms)
        """
    )
    found = [f for f in rewrite(HEAD[: HEAD.index("\n\ndef")] + text).findings if f.rule == "FM402"]
    assert [(finding.level, finding.line) for finding in found] == [(Level.MANUAL, 6)]


def test_products_of_lists_of_gradients() -> None:
    """PCGrad: what two backward passes left, and how it points, is computed by functions of its own."""
    text = code(
        """


        def grab(model):
            return [p.grad.detach().clone() for p in model.parameters()]


        def dot(a, b):
            s = sum((x * y).sum() for x, y in zip(a, b))
            dist.all_reduce(s)
            return s


        def project(model, losses):
            grads = []
            for loss in losses:
                loss.backward()
                grads.append(grab(model))
            a, b = grads
            if dot(a, b) < 0:
                for p, x in zip(model.parameters(), a):
                    p.grad = x
        """
    )
    result = rewrite(HEAD + "    project(model, x)\n    return model\n" + text)
    found = [finding for finding in result.findings if finding.rule == "FM402"]
    assert [(finding.level, finding.line) for finding in found] == [(Level.MANUAL, 16)]


AVERAGES = [
    "for p in model.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= 2",
    "for p in model.parameters():\n    if p.grad is not None:\n        dist.all_reduce(p.grad.data, group=None)",
    "grads = [p.grad.data for p in model.parameters()]\nflat = _flatten_dense_tensors(grads)\n"
    "dist.all_reduce(flat)\nflat /= dist.get_world_size()",
    "grads = []\nfor p in model.parameters():\n    grads.append(p.grad)\nfor grad in grads:\n    dist.all_reduce(grad)",
]
OTHER_SUMS = [
    "for p in model.parameters():\n    dist.all_reduce(p.grad, group=model.group)",
    "for p in model.parameters():\n    dist.all_reduce(p.grad, op=dist.ReduceOp.MAX)",
    "grads = [p.grad for p in model.parameters()]\ngrads = [norm_of(g) for g in grads]\n"
    "for grad in grads:\n    dist.all_reduce(grad)",
    "for p in model.parameters():\n    dist.all_reduce(p.grad.abs())",
]


def unseen(text: str) -> set[str]:
    """The rules that speak of a function whose model is not seen."""
    function = "\n\ndef average(model):\n" + "".join(f"    {line}\n" for line in text.splitlines())
    return {finding.rule for finding in rewrite(HEAD + "    return model\n" + function).findings}


@pytest.mark.parametrize("text", AVERAGES)
def test_data_parallelism_by_hand_is_a_plain_models(text: str) -> None:
    """FSDP1's shards of different ranks are different parameters: a program that adds them up trains something else."""
    assert "FM402" not in unseen(text)
    wrapped = [f.rule for f in rewrite(HEAD + body(text)).findings if f.level is Level.MANUAL]
    assert wrapped == ["FM402"]


@pytest.mark.parametrize("text", OTHER_SUMS)
def test_other_sums_of_gradients_may_be_of_shards(text: str) -> None:
    assert "FM402" in unseen(text)


THROUGH_A_METHOD = code(
    """


    class Optim:
        def __init__(self, model):
            self.params = [p for p in model.parameters() if p.requires_grad]

        def reduce(self, total):
            dist.all_reduce(total)
            return total.sqrt()

        def norm(self):
            {}
            return self.reduce(total)
    """
)


@pytest.mark.parametrize(
    ("made", "is_found"),
    [
        ("total = torch.stack([p.grad.float().square().sum() for p in self.params]).sum()", True),
        ("total = torch.stack([p.grad.to_local().square().sum() for p in self.params]).sum()", False),
        ("total = torch.zeros(len(self.params))", False),
    ],
)
def test_a_norm_that_another_function_gives_to_the_collective(made: str, is_found: bool) -> None:
    text = HEAD + "    return Optim(model)\n" + THROUGH_A_METHOD.replace("{}", made)
    assert ("FM402" in {finding.rule for finding in rewrite(text).findings}) is is_found


@pytest.mark.parametrize(("over", "is_found"), [("ignored", False), ("model.parameters()", True)])
def test_gradients_of_what_is_ignored_stay_plain(over: str, is_found: bool) -> None:
    text = (
        "import torch.distributed as dist\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def main(net):\n    ignored = [p for p in net.parameters() if p.requires_grad]\n"
        "    model = FSDP(net, ignored_states=ignored)\n"
        f"    for p in {over}:\n        dist.all_reduce(p.grad)\n"
    )
    assert ("FM402" in {each.rule for each in rewrite(text).findings}) is is_found
