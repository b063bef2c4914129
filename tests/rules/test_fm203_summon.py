"""FM203: `with FSDP.summon_full_params(model)`."""

from __future__ import annotations

import pytest

from ..helpers import check_noop, code, rewrite

HEAD = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef use(net, x):\n    model = FSDP(net)\n"
)


def test_another_librarys_class_stays() -> None:
    check_noop("from other import FSDP\nwith FSDP.summon_full_params(model):\n    pass\n")


CASES = [
    "with {}(model):\n        x()",
    "with {}(model, writeback=False, rank0_only=True, offload_to_cpu=True):\n        x()",
    "with {}(model, writeback=False, recurse=False):\n        model.embed(x)",
    "with {}(model, writeback=False, recurse=False):\n        model.generate(x, model.weight)",
    "with {}(model, writeback=False):\n        model(x)\n        compare(model=net)",
    "with {}(model, writeback=False):\n        compare(x)",
    "with {}(model): x(model)",
    "with x, {}(model) as y:\n        pass",
    "with x:\n        with {}(model):\n            x()",
    "return {}(model)",
    "x.enter_context({}(model))",
    "context = lambda: {}(model) if x else contextlib.nullcontext()",
    "return partial({}, model, with_grads=True)",
    "with {}(model):\n        x.load_state_dict(net)",
]


@pytest.mark.parametrize("statement", CASES)
@pytest.mark.parametrize("owner", ["FSDP", "model"])
def test_context_is_the_support_modules(statement: str, owner: str) -> None:
    result = rewrite(HEAD + "    " + statement.format(f"{owner}.summon_full_params") + "\n")
    assert result.text.endswith("    " + statement.format("summon_full_params") + "\n")
    assert result.support == {"summon_full_params"}
    assert {level for _, level, _ in result.summary} == {"rewritten"}


GENERATES = [
    (
        "with {}(model, writeback=False, recurse=False):\n        return model.generate(x)",
        "with {}:\n        return model.generate(x)",
    ),
    ("with {}(model, writeback=False):\n        model.generate(x)", "with {}:\n        model.generate(x)"),
    ("with {}(model, recurse=False):\n        model.generate(x)", "with {}:\n        model.generate(x)"),
    ("with {}(model, recurse=False, writeback=False), x:\n        model(x)", "with {}, x:\n        model(x)"),
    (
        "context = lambda: {}(model, writeback=False, recurse=False) if x else nothing()\n"
        "    with context():\n        model.generate(x)",
        "context = lambda: {} if x else nothing()\n    with context():\n        model.generate(x)",
    ),
]


@pytest.mark.parametrize(("before", "after"), GENERATES)
def test_to_generate_the_root_alone_is_gathered(before: str, after: str) -> None:
    result = rewrite(HEAD + "    " + before.format("FSDP.summon_full_params") + "\n")
    assert result.text.endswith("    " + after.format("unsharded(model)") + "\n")
    assert result.support == {"unsharded"}


@pytest.mark.parametrize("body", ["model(x)", "model.module(x)", "model.generate(x)", "model.module.generate(x)"])
def test_writeback_behind_a_forward_was_wrong_in_fsdp1(body: str) -> None:
    result = rewrite(HEAD + f"    with FSDP.summon_full_params(model):\n        {body}\n")
    assert f"    with unsharded(model):\n        {body.replace('.module', '')}\n" in result.text
    assert ("FM203", "review") in {(rule, level) for rule, level, _ in result.summary}


def test_writeback_around_more_than_a_forward_is_told_too() -> None:
    result = rewrite(HEAD + "    with FSDP.summon_full_params(model):\n        model(x)\n        x.keep(model)\n")
    assert "with summon_full_params(model):" in result.text
    assert ("FM203", "review") in {(rule, level) for rule, level, _ in result.summary}


def test_the_root_that_is_not_summoned_with_its_units_is_broken_by_its_own_forward_alone() -> None:
    summons = HEAD + "    with FSDP.summon_full_params(model, recurse=False):\n        "
    for body, level in (("model(x)", "review"), ("model.module(x)", "rewritten"), ("model.generate(x)", "rewritten")):
        assert ("FM203", level) in {(rule, each) for rule, each, _ in rewrite(f"{summons}{body}\n").summary}


def test_what_holds_the_model_is_handed_on() -> None:
    head = HEAD.replace("def use(net, x):\n    model = FSDP", "def use(net, x):\n    x.model = FSDP")
    block = (
        "    with FSDP.summon_full_params(x.model, writeback=False, recurse=True):\n        x.model(1)\n        {}\n"
    )
    for statement in ("compare(x)", "compare(trainer=x)", "x.evaluate()"):
        assert "with summon_full_params(x.model, writeback" in rewrite(head + block.format(statement)).text
    assert "with unsharded(x.model):" in rewrite(head + block.format("x.tokenizer.decode(1)")).text


SAMPLER = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net, config):
        self.model, self.config = FSDP(net), config

    def samples(self, batch):
        {}

    def evaluate(self, batch):
        with FSDP.summon_full_params(self.model, writeback=False, recurse=False):
            return self.samples(batch)
"""


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("return self.model.generate(batch, max_length=self.config.length)", "unsharded(self.model)"),
        ("return self.config.run(self.model)", "summon_full_params("),
        ("return self.config.run(self)", "summon_full_params("),
        ("return self.model.weight.sum()", "full_params("),
    ],
)
def test_a_method_that_generates_is_looked_into(body: str, name: str) -> None:
    """The family's older half calls one in the context (LLMDivideAndConquer: 137 lines of support -> 9)."""
    assert f"with {name}" in rewrite(SAMPLER.format(body)).text


def test_to_generate_in_mixed_precision_is_for_review() -> None:
    before = HEAD.replace("FSDP(", "FSDP(mixed_precision=MixedPrecision(param_dtype=torch.bfloat16), module=", 1)
    imported = "import torch\nfrom torch.distributed.fsdp import MixedPrecision\n"
    block = "    with FSDP.summon_full_params(model, writeback=False, recurse=False):\n        model.generate(x)\n"
    result = rewrite(imported + before + block)
    assert ("FM203", "review") in {(rule, level) for rule, level, _ in result.summary}


READS = [
    (
        "for n, p in model.named_parameters():\n        x[n].mul_(0.9).add_(p.detach().float().cpu(), alpha=0.1)",
        "for n, p in model.named_parameters():\n"
        "        x[n].mul_(0.9).add_(p.full_tensor().detach().float().cpu(), alpha=0.1)",
    ),
    (
        "for p in model.parameters():\n        x.append((p.data.clone(), p.shape, 2 * p.data > p.numel()))",
        "for p in model.parameters():\n"
        "        x.append((p.full_tensor().data.clone(), p.shape, 2 * p.full_tensor().data > p.numel()))",
    ),
    (
        "y = [float(p.norm()) for p in model.parameters()]",
        "y = [float(p.full_tensor().norm()) for p in model.parameters()]",
    ),
    (
        'for n, p in model.named_parameters():\n        if n.startswith("head"):\n'
        '            x[n.replace("head.", "")] = p.clone()',
        "for n, p in model.named_parameters():\n        whole = p.full_tensor()\n"
        '        if n.startswith("head"):\n            x[n.replace("head.", "")] = whole.clone()',
    ),
    ("y = model.net.weight.data.norm()", "y = model.net.weight.full_tensor().data.norm()"),
    (
        "y, z = [sum(p.square().sum() for p in model.parameters()).sqrt()], [p.mean() for p in model.parameters()]",
        "y, z = (\n        [sum(p.full_tensor().square().sum() for p in model.parameters()).sqrt()],\n"
        "        [p.full_tensor().mean() for p in model.parameters()],\n    )",
    ),
    (
        "return model.state_dict()",
        "return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))",
    ),
]
HEAD_OF_TORCH = f"import torch\n{HEAD}"


@pytest.mark.parametrize("options", ["", ", writeback=False", ", recurse=True, rank0_only=False"])
@pytest.mark.parametrize(("before", "after"), READS)
def test_what_is_read_is_gathered_there(before: str, after: str, options: str) -> None:
    body = before.replace("\n    ", "\n        ")
    result = rewrite(HEAD + f"    with FSDP.summon_full_params(model{options}):\n        {body}\n")
    assert result.text.endswith(f"    model = fully_shard(net)\n    {after}\n")
    assert not result.support
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_the_model_by_its_name() -> None:
    block = "    with FSDP.summon_full_params(module=model, writeback=False):\n        return model.state_dict()\n"
    wanted = "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
    assert rewrite(HEAD + block).text.endswith(f"    return {wanted}\n")


def test_two_models_of_one_block() -> None:
    text = HEAD_OF_TORCH + "    other = FSDP(x)\n"
    text += "    with FSDP.summon_full_params(model), FSDP.summon_full_params(other):\n"
    for name, after in {
        "weight": "model.weight.full_tensor(), other.weight.full_tensor()",
        "table": "full_tensor(model.table), full_tensor(other.table)",  # it may be a buffer
    }.items():
        result = rewrite(text + f"        torch.testing.assert_close(model.{name}, other.{name})\n")
        assert result.text.endswith(f"    other = fully_shard(x)\n    torch.testing.assert_close({after})\n")


def test_after_an_evaluation_the_model_is_resharded() -> None:
    text = HEAD_OF_TORCH + "    with torch.no_grad():\n        model(x)\n    with FSDP.summon_full_params(model):\n"
    result = rewrite(text + "        y = [p.norm() for p in model.parameters()]\n")
    assert result.text.endswith("    model.reshard()\n    y = [p.full_tensor().norm() for p in model.parameters()]\n")


def test_what_is_written_becomes_each_ranks_shard() -> None:
    loop = "        for n, p in model.named_parameters():\n            if n in x:\n"
    write = "                p.data.copy_(x[n].to(p.dtype))\n"
    result = rewrite(HEAD + "    with FSDP.summon_full_params(model):\n" + loop + write)
    assert result.text.endswith(
        "            if n in x:\n            write_shard(p, x[n].to(p.dtype))\n".replace("            if", "        if")
    )
    assert result.support == {"write_shard"}


LOOKED_INTO = [
    pytest.param("for p in model.parameters():\n        p.mul_(x)", id="in place, by what may be a tensor"),
    pytest.param("for p in model.parameters():\n        p.lerp_(1, 0.5)", id="in place, by two"),
    pytest.param("for p in model.parameters():\n        p.view(-1).zero_()", id="in place, of a view"),
    pytest.param("for p in model.parameters():\n        p.data = x", id="another tensor"),
    pytest.param("for p in model.parameters():\n        p[0] = x", id="a part"),
    pytest.param("for p in model.parameters():\n        torch.nn.init.normal_(p)", id="by a function"),
    pytest.param("for p in model.parameters():\n        x.append(p)", id="kept"),
    pytest.param("for p in model.parameters():\n        x.append(p.grad.norm())", id="gradients"),
    pytest.param(
        "for p in model.parameters():\n        if x:\n            print(p.norm())\n            break", id="left early"
    ),
    pytest.param(
        "for p, q in zip(list(model.parameters()), x):\n        torch.testing.assert_close(p, q)", id="in a pair"
    ),
    pytest.param("for m in model.modules():\n        print(m.weight)", id="of the modules"),
    pytest.param("y = model.table.norm()", id="attribute"),
    pytest.param("y = torch.optim.swa_utils.AveragedModel(x)\n    y.update_parameters(model.module)", id="averaged"),
    pytest.param("for m in model.modules():\n        print(m.weight.quantile(0.5))", id="asked for its quantile"),
    pytest.param("x.model.load_weights(model.state_dict().items())\n    x.reset_prefix_cache()", id="given to vLLM"),
]


@pytest.mark.parametrize("body", LOOKED_INTO)
@pytest.mark.parametrize("writeback", ["", ", writeback=False", ", writeback=x"])
def test_what_is_not_run_has_whole_parameters_put_in(body: str, writeback: str) -> None:
    body = body.replace("\n    ", "\n        ")
    result = rewrite(HEAD_OF_TORCH + f"    with FSDP.summon_full_params(model{writeback}):\n        {body}\n")
    assert f"    with full_params(model{writeback}):\n" in result.text
    assert result.support == {"full_params"}


def test_gradients_that_are_looked_at_are_whole_beside_the_parameters() -> None:
    """Not where they are written, which FSDP1 took back: that is the longer function's."""
    body = "        for n, p in model.named_parameters():\n            if p.grad is not None:\n"
    body += "                x.setdefault(n, []).append(p.grad.kthvalue(1))\n"
    looks, writes = (f"with_grads=True, writeback={flag}" for flag in (False, True))
    result = rewrite(HEAD_OF_TORCH + f"    with FSDP.summon_full_params(model, {looks}):\n{body}")
    assert f"with full_params(model, {looks}):" in result.text
    assert result.support == {"full_params"}
    result = rewrite(HEAD_OF_TORCH + f"    with FSDP.summon_full_params(model, {writes}):\n{body}")
    assert result.support == {"summon_full_params"}


KEPT = [
    pytest.param("for p in model.parameters():\n        x(p.norm())", id="unknown function"),
    pytest.param("y = [p.norm() for p in model.parameters()]\n    x.save()", id="unknown method"),
    pytest.param("y = [p.norm() for p in model.parameters()]\n    model(x)", id="forward"),
    pytest.param("if x:\n        model.load_state_dict(x)", id="load on some ranks"),
    pytest.param("model.load_state_dict(x, assign=True)", id="load that puts others in their place"),
    pytest.param("yield model.weight", id="what comes next"),
]


@pytest.mark.parametrize("body", KEPT)
def test_what_is_not_seen_through_stays_in_a_context(body: str) -> None:
    body = body.replace("\n    ", "\n        ")
    result = rewrite(HEAD_OF_TORCH + f"    with FSDP.summon_full_params(model):\n        {body}\n")
    assert "    with summon_full_params(model):\n" in result.text


def test_ranks_that_leave_what_the_first_one_looks_into() -> None:
    block = code(
        """
        with FSDP.summon_full_params(model, rank0_only=True, writeback=False):
            if torch.distributed.get_rank() != 0:
                return
            for m in model.modules():
                print(m.weight)
        """
    )
    result = rewrite(HEAD_OF_TORCH + "".join(f"    {line}\n" for line in block.strip().split("\n")))
    assert "    with full_params(model, rank0_only=True, writeback=False):\n" in result.text


CHANGED = ["for p in model.parameters():\n        p.mul_(0.5)", "model.net.weight.data.clamp_(-1, 2 ** -1)"]


@pytest.mark.parametrize("body", CHANGED)
def test_what_changes_each_element_by_itself_changes_the_shards(body: str) -> None:
    block = f"    with FSDP.summon_full_params(model):\n        {body.replace(chr(10), chr(10) + '    ')}\n"
    assert rewrite(HEAD + block).text.endswith(f"    model = fully_shard(net)\n    {body}\n")
    assert "full_params" in rewrite(HEAD + block.replace("(model)", "(model, writeback=False)")).support


ALIKE = [
    "e.mul_(0.9).add_(p, alpha=1 - 0.9)",
    "e.data.lerp_(p.data, args.rate)",
    "e.copy_(args.decay * e.data + (1 - args.decay) * p.detach())",
    "e.mul_(args.decay)\n            e.add_(p.data * (1 - args.decay))",
]
AVERAGED = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def train(net, average, args, mesh):
    model = FSDP(net)
    ema = FSDP(average, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    model.train()
    with torch.no_grad(), FSDP.summon_full_params(ema), FSDP.summon_full_params(model, writeback=False):
        for e, p in zip(ema.parameters(), model.parameters()):
            {}
"""


@pytest.mark.parametrize("update", ALIKE)
def test_two_models_that_are_sharded_alike_are_averaged_shard_by_shard(update: str) -> None:
    result = rewrite(AVERAGED.format(update))
    assert f"        for e, p in zip(ema.parameters(), model.parameters()):\n            {update}\n" in result.text
    assert "summon" not in result.text
    assert result.support == {"reshard_all"}  # what an evaluation would leave whole


NOT_ALIKE = {
    "another mesh": ("FSDP(net)", "FSDP(net, device_mesh=mesh)"),
    "a strategy that is not seen": ("FSDP(net)", "FSDP(net, sharding_strategy=args.strategy)"),
    "whole parameters": ("SHARD_GRAD_OP", "NO_SHARD"),
    "something ignored": ("FSDP(net)", "FSDP(net, ignored_modules=[net.head])"),
    "one that is not sharded": ("FSDP.summon_full_params(ema), ", ""),
    "a number of the whole": ("e.lerp_(p, 0.1)", "e.mul_(p.norm())"),
    "a matrix": ("e.lerp_(p, 0.1)", "e.copy_(p @ p)"),
    "a tensor of the program's": ("e.lerp_(p, 0.1)", "e.mul_(torch.rand(2))"),
    "what is written into the other": ("e.lerp_(p, 0.1)", "p.lerp_(e, 0.1)"),
    "what is kept": ("e.lerp_(p, 0.1)", "args.kept = e"),
    "what is read below": ("e.lerp_(p, 0.1)", "e.lerp_(p, 0.1)\n        args.last = e"),
    "more than two": ("model.parameters())", "model.parameters(), args.rates)"),
    "what FSDP1 lost": ("summon_full_params(ema)", "summon_full_params(ema, writeback=False)"),
}


@pytest.mark.parametrize(("old", "new"), NOT_ALIKE.values(), ids=NOT_ALIKE)
def test_models_that_may_not_be_sharded_alike_are_whole(old: str, new: str) -> None:
    text = AVERAGED.format("e.lerp_(p, 0.1)").replace(old, new)
    assert new in text
    result = rewrite(text)
    assert result.support & {"full_params", "full_tensor", "summon_full_params"}


BY_NAME = """\
from collections import OrderedDict

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def train(net, average, args, mesh):
    model = FSDP(net)
    ema = FSDP(average, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    model.train()
    with torch.no_grad(), FSDP.summon_full_params(ema), FSDP.summon_full_params(model, writeback=False):
        averages = OrderedDict(ema.named_parameters())
        params = dict(model.named_parameters())
        for name, p in params.items():
            averages[name].lerp_(p, 0.1)
"""
IN_OTHER_WORDS = {
    "as DiT has it": ("averages[name].lerp_(p, 0.1)", "averages[name].mul_(0.9).add_(p.data, alpha=1 - 0.9)"),
    "without a table of the other": ("params.items()", "model.named_parameters()"),
    "under names without a prefix": (
        ":\n            av",
        ":\n            name = name.replace('module.', '')\n            av",
    ),
    "of some": (
        "averages[name].lerp_",
        "if p.requires_grad and name in averages:\n                averages[name].lerp_",
    ),
    "of both": ("lerp_(p, 0.1)", "copy_(0.9 * averages[name] + 0.1 * p.detach())"),
}


@pytest.mark.parametrize(("old", "new"), IN_OTHER_WORDS.values(), ids=IN_OTHER_WORDS)
def test_two_models_are_averaged_shard_by_shard_by_names(old: str, new: str) -> None:
    text = BY_NAME.replace(old, new)
    assert new in text
    result = rewrite(text)
    assert "summon" not in result.text
    assert result.support == {"reshard_all"}


NOT_BY_NAME = {
    "another mesh": ("FSDP(net)", "FSDP(net, device_mesh=mesh)"),
    "whole parameters": ("SHARD_GRAD_OP", "NO_SHARD"),
    "one that is not sharded": ("FSDP.summon_full_params(ema), ", ""),
    "what FSDP1 lost": ("summon_full_params(ema)", "summon_full_params(ema, writeback=False)"),
    "a norm": ("lerp_(p, 0.1)", "mul_(p.norm())"),
    "another entry": ("averages[name].lerp_(p", "averages['out.weight'].lerp_(p"),
    "a name of another parameter": (":\n            av", ":\n            name = args.names[name]\n            av"),
    "the other one written": ("averages[name].lerp_(p, 0.1)", "p.lerp_(averages[name], 0.1)"),
    "an entry that is kept": ("averages[name].lerp_", "args.kept = averages[name]\n            averages[name].lerp_"),
    "a table that is kept": ("        for name", "        args.kept = averages\n        for name"),
    "a table that is read below": ("(p, 0.1)\n", "(p, 0.1)\n    print(averages['out.weight'].sum())\n"),
    "a table that is read in the block": ("(p, 0.1)\n", "(p, 0.1)\n        print(params['out.weight'].sum())\n"),
    "two loops": (
        "(p, 0.1)\n",
        "(p, 0.1)\n        for n, q in ema.named_parameters():\n            print(n, q.sum())\n",
    ),
}


@pytest.mark.parametrize(("old", "new"), NOT_BY_NAME.values(), ids=NOT_BY_NAME)
def test_models_that_may_be_read_as_a_whole_by_names_are_whole(old: str, new: str) -> None:
    text = BY_NAME.replace(old, new)
    assert new in text
    assert rewrite(text).support & {"full_params", "full_tensor", "summon_full_params"}


def test_gradients_are_gathered_where_they_are_read() -> None:
    loop = "for p in model.parameters():\n{0}    if p.grad is not None:\n{0}        x.append({1}.norm().item())\n"
    text = f"    with FSDP.summon_full_params(model, with_grads=True):\n        {loop.format(' ' * 8, 'p.grad')}"
    assert rewrite(HEAD + text).text.endswith(f"    {loop.format(' ' * 4, 'p.grad.full_tensor()')}")


def test_what_is_entered_beside_it_stays() -> None:
    text = HEAD_OF_TORCH + "    with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):\n"
    result = rewrite(text + "        for p in model.parameters():\n            if x:\n                y = p.norm()\n")
    body = "    model.reshard()\n    with torch.no_grad():\n        for p in model.parameters():\n"
    assert result.text.endswith(
        f"{body}            whole = p.full_tensor()\n            if x:\n                y = whole.norm()\n"
    )


OFFLOADED = [
    ("y[n] = p.detach().clone().float().cpu()", "y[n] = p.full_tensor().detach().clone().float().cpu()"),
    ("y[n] = p.norm().cpu()", "y[n] = p.full_tensor().cpu().norm().cpu()"),
    ("p.data.copy_(y[n].to(p.device))", "write_shard(p, y[n].to(p.device))"),
]


@pytest.mark.parametrize(("read", "after"), OFFLOADED)
def test_what_is_read_on_the_cpu_is_read_there(read: str, after: str) -> None:
    loop = "for n, p in model.named_parameters():\n    "
    text = "    with FSDP.summon_full_params(model, offload_to_cpu=True):\n        {}        {}\n"
    result = rewrite(HEAD + text.format(loop, read))
    assert result.text.endswith(f"    {loop}    {after}\n")
    assert "full_params" in rewrite(HEAD + text.format(loop, f"{read}; y[n].to(p.device)")).support


@pytest.mark.parametrize(
    ("options", "function"),
    [
        ("rank0_only=True", "summon_full_params"),
        ("rank0_only=True, writeback=False", "summon_full_params"),
        ("recurse=False", "full_params"),
        ("with_grads=True, recurse=False", "summon_full_params"),
    ],
)
def test_options_that_ask_for_more_stay_in_a_context(options: str, function: str) -> None:
    text = f"    with FSDP.summon_full_params(model, {options}):\n        y = [p.norm() for p in model.parameters()]\n"
    assert f"    with {function}(model, {options}):\n" in rewrite(HEAD + text).text


LOOKED_INTO = """\
class Lora(nn.Module):
    def merge(self):
        self.base.weight.data += self.up @ self.down


def reset(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight)


"""
QUIET = [
    ("", "model.apply(reset)"),
    (", offload_to_cpu=x", "model.apply(reset)"),
    ("", "for m in model.modules():\n            if isinstance(m, Lora):\n                m.merge()"),
    (", writeback=False, rank0_only=True", "if rank == 0:\n            print([p.norm() for p in model.parameters()])"),
]


@pytest.mark.parametrize(("options", "block"), QUIET)
def test_what_only_looks_into_a_model_needs_no_hooks(options: str, block: str) -> None:
    start = HEAD.replace("def use(net, x", f"{LOOKED_INTO}def use(net, x, rank=0")
    text = f"from torch import nn\n{start}    with FSDP.summon_full_params(model{options}):\n        {block}\n"
    assert f"    with full_params(model{options}):\n        {block}\n" in rewrite(text).text
    run = text.replace("self.up @ self.down", "self(1)").replace("nn.init.normal_(", "module(")
    run = run.replace("p.norm()", "model(p)")
    assert f"    with summon_full_params(model{options}):\n" in rewrite(run).text


def test_two_usual_options_side_by_side_go() -> None:
    body = ":\n        for m in model.modules():\n            print(m.weight)\n"
    result = rewrite(HEAD + f"    with FSDP.summon_full_params(model, writeback=True, recurse=True){body}")
    assert f"    with full_params(model){body}" in result.text


def test_what_is_lost_stays_lost() -> None:
    text = "    with FSDP.summon_full_params(model, writeback=False):\n"
    text += "        for p in model.parameters():\n            p.copy_(x)\n"
    assert "    with full_params(model, writeback=False):\n" in rewrite(HEAD + text).text


def test_around_nothing_it_goes() -> None:
    result = rewrite(HEAD + "    with FSDP.summon_full_params(model):\n        pass\n    return model\n")
    assert result.text.endswith("    model = fully_shard(net)\n    return model\n")
    assert not result.support


@pytest.mark.parametrize("model", ["model", "model.module"])
def test_state_dict_that_is_loaded_inside(model: str) -> None:
    text = f"    with FSDP.summon_full_params(model):\n        {model}.load_state_dict(x)\n"
    result = rewrite(HEAD + text)
    assert "summon_full_params" not in result.text
    assert "    set_model_state_dict(\n        model, x, options=StateDictOptions(full_state_dict=True" in result.text
    lost = rewrite(HEAD + text.replace("params(model)", "params(model, writeback=False)"))
    assert "    with summon_full_params(model, writeback=False):\n" in lost.text


def test_state_dict_of_a_part_that_is_loaded_inside() -> None:
    load = "model.head.load_state_dict(x)"
    result = rewrite(HEAD + f"    with FSDP.summon_full_params(model):\n        {load}\n")
    assert f"    with summon_full_params(model):\n        {load}\n" in result.text


def test_state_dict_that_another_model_loads_inside() -> None:
    """An average on the CPU, an evaluation of a plain copy: what is loaded there is none of the shards."""
    load = (
        "    twin = {}\n    with FSDP.summon_full_params(model, writeback=False):\n        twin.load_state_dict({})\n"
    )
    head = HEAD.replace("\n\n\n", "\nfrom torch import nn\n\n\n")
    result = rewrite(head + load.format("nn.Linear(2, 2)", "model.module.state_dict(), strict=False"))
    assert not result.support
    assert "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), strict=False" in result.text
    named = '{k.replace("a.", ""): v for k, v in model.state_dict().items()}'
    assert "summon_full_params" not in rewrite(head + load.format("nn.Linear(2, 2)", named)).text
    for unseen in ("net", "model.head", "x"):
        text = rewrite(head + load.format(unseen, "model.state_dict()")).text
        assert "    with summon_full_params(model, writeback=False):\n" in text


def test_summoned_model_of_another_function() -> None:
    text = HEAD + "    read(model)\n\n\ndef read(m):\n    with m.summon_full_params(m):\n        print(m)\n"
    assert rewrite(text).text.endswith("    with summon_full_params(m):\n        print(m)\n")


def test_name_of_the_users_own() -> None:
    text = "def summon_full_params(model):\n    return model\n\n\n"
    head, rest = HEAD.split("\n\n\n")
    result = rewrite(f"{head}\n\n\n{text}{rest}    return FSDP.summon_full_params(model)\n")
    assert result.text.endswith("    return fsdp2_summon_full_params(model)\n")


BESIDE = """\
from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def old(net):
    return FSDP(net)


def main(net, batch):
    model = fully_shard(net)
    is_fsdp = isinstance(model, FSDP)
    context = (
        FSDP.summon_full_params(model)
        if is_fsdp
        else nullcontext()
    )
    with context:
        print(model.weight)
"""


def test_model_of_the_programs_own_fully_shard_is_not_summoned() -> None:
    text = rewrite(BESIDE).text
    assert text.endswith("    model = fully_shard(net)\n    print(model.weight)\n")
    assert "summon" not in text
    assert "summon_full_params(model)\n        if is_fsdp" in rewrite(BESIDE.replace("= fully_shard(", "= old(")).text


LOSSES = [
    ("loss = x.mm(model.weight).mean()", "loss.backward()", "manual"),
    ("x[0] = x.mm(model.out.weight).mean()", "loss = x.mean()\n    loss.backward()", "manual"),
    ("x.append(torch.nn.functional.linear(x, model.weight, model.bias))", "scaler.scale(sum(x)).backward()", "manual"),
    ("loss = sum(p.pow(2).sum() for p in model.parameters())", "loss += model(x)\n    loss.backward()", "review"),
    ("loss = x.mm(model.weight).mean().item()", "loss = model(x)\n    loss.backward()", ""),
    ("x.append(model.weight.detach())", "loss = x[0].sum()\n    loss.backward()", ""),
    ("loss = model(x)", "loss.backward()", ""),
    ("loss = x.mm(model.weight)", "print(loss)", ""),
    ("with torch.no_grad():\n            loss = x.mm(model.weight)", "loss.backward()", ""),
]


@pytest.mark.parametrize(("inside", "below", "level"), LOSSES)
def test_a_loss_of_what_is_summoned(inside: str, below: str, level: str) -> None:
    """FSDP1 raised, but for sums over flat parameters, which had no gradient of it either."""
    text = HEAD_OF_TORCH + f"    with FSDP.summon_full_params(model):\n        {inside}\n    {below}\n"
    result = rewrite(text)
    found = {f.level.value for f in result.findings if "loss" in f.message}
    assert found == ({level} if level else set())
    assert ("raise NotImplementedError(" in result.text) == (level == "manual")
    of_original = rewrite(text.replace("FSDP(net)", "FSDP(net, use_orig_params=True)"))
    assert any(f.level.value == "manual" and f.rule == "FM203" for f in of_original.findings) == bool(level)


@pytest.mark.parametrize(("put", "is_told"), [("model.weight.data = x", True), ("model.weight.data.copy_(x)", False)])
def test_a_run_on_data_that_is_put_in_the_place_of_the_models(put: str, is_told: bool) -> None:
    text = HEAD_OF_TORCH + f"    with FSDP.summon_full_params(model):\n        {put}\n        model(x)\n"
    assert any("in the place of its own" in f.message for f in rewrite(text).findings) == is_told
