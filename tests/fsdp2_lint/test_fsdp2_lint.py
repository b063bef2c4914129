"""FM5xx: what `fully_shard` needs and does not check, in any FSDP2 code."""

from __future__ import annotations

import pytest

from codemods.api import Level
from fsdp_migrate.support import available, compose, everything

from ..helpers import code, contract

HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard

"""

RIGHT = [
    """
    def main(model):
        for name, child in model.named_children():
            for i in range(len(child)):
                child[i] = fully_shard(child[i])
        fully_shard(model.inp)
        return fully_shard(model)
    """,
    """
    def main(model, args):
        if args.sharded:
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)
        if not args.sharded:
            torch.save(model.state_dict(), "model.pt")
    """,
    """
    def wrap(model, use_fsdp=True, kind="sharded"):
        if not use_fsdp:
            return model
        if kind == "sharded":
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)
        return model


    def main(net, other):
        optimizer = torch.optim.AdamW(net.parameters())
        net = wrap(net, use_fsdp=False)
        other_optimizer = torch.optim.AdamW(other.parameters())
        other = wrap(other, kind="whole")
        return net, optimizer, other, other_optimizer
    """,
    """
    from torchao import float8


    def main(model, teacher):
        float8.convert_to_float8_training(model)
        fully_shard(model)
        float8.convert_to_float8_training(teacher)
    """,
    """
    from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp as scales


    def main(actor, critic, first, second, batches):
        scales(actor)
        for batch in batches:
            actor(batch).backward()
            first.step()
            scales(actor)
            second_optimizer.step()
            scales(critic)
    """,
    """
    from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp


    def main(model, optimizer, batches):
        for batch in batches:
            precompute_float8_dynamic_scale_for_fsdp(model)
            optimizer.step()
            precompute_float8_dynamic_scale_for_fsdp(model)
    """,
    """
    import torch.distributed.checkpoint as dcp


    class Saver:
        def save(self, state):
            if self.future is not None:
                self.future.result()
            self.future = dcp.async_save(state, checkpoint_id="last")
    """,
    """
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp


    def main(states):
        saving = None
        for state in states:
            if saving is not None:
                saving.result()
            saving = dcp.async_save(state, checkpoint_id="last")
        saving.result()
        dist.destroy_process_group()
    """,
    """
    import re


    def main(model, regex):
        regex = re.compile("layers")
        for layer in model.layers:
            layer.compile()
            fully_shard(layer)
        fully_shard(model)
        return torch.compile(model.loss)
    """,
    """
    def main(model, teacher):
        optimizer = torch.optim.AdamW(teacher.parameters())
        for layer in reversed(list(model.modules())):
            fully_shard(layer)
        fully_shard(model)
        return optimizer, torch.optim.AdamW(model.parameters())
    """,
    """
    def main(model, early):
        if early:
            optimizer = torch.optim.AdamW(model.parameters())
            return optimizer
        fully_shard(model)
        return torch.optim.AdamW(model.parameters())
    """,
    """
    def main(model):
        optimizer = torch.optim.AdamW(model.parameters())
        names = {id(p): name for name, p in model.named_parameters()}
        fully_shard(model)
        params = dict(model.named_parameters())
        for group in optimizer.param_groups:
            group["params"] = [params[names[id(p)]] for p in group["params"]]
        return optimizer
    """,
    """
    def main(encoder, decoder):
        fully_shard(encoder)
        for layer in decoder.layers:
            fully_shard(layer)
        fully_shard(decoder)
    """,
    """
    def main(model, whole):
        if whole:
            fully_shard(model)
        else:
            for layer in model.layers:
                fully_shard(layer)
    """,
    """
    class Net(torch.nn.Module):
        def forward(self, x):
            return super().forward(x)


    def main(model, plain, x):
        fully_shard(model)
        return model(x), plain.forward(x)
    """,
    """
    def main(model, x):
        dist.fsdp.register_fsdp_forward_method(model, "forward")
        fully_shard(model)
        return model.forward(x)
    """,
    """
    def save(model, rank, path):
        options = StateDictOptions(full_state_dict=True)
        state = get_model_state_dict(model, options=options)
        full = {name: p.full_tensor() for name, p in model.named_parameters()}
        if rank == 0:
            torch.save((state, full), path)
    """,
    """
    def save(model, rank, world_size, path):
        if rank == 0 and world_size == 1:
            return model.weight.full_tensor()
        if rank == 0:
            print("saving")
        else:
            print("waiting")
        if rank != 0:
            print("on another rank")
        return model.weight.full_tensor()
    """,
    """
    def save(model, rank):
        if rank == 0:
            return get_model_state_dict(model)
    """,
    """
    def save(model, path):
        fully_shard(model)
        with full_params(model, writeback=False):
            torch.save(model.state_dict(), path)
    """,
    """
    def save(model, plain, rank):
        fully_shard(model)
        torch.save(plain.state_dict(), "plain.pt")
        torch.save(model.state_dict(), f"shards-{rank}.pt")
    """,
    """
    def main(model, device):
        model.to(device)
        model.cuda()
        fully_shard(model)
    """,
    """
    def main(model, local_rank):
        torch.cuda.set_device(local_rank)
        model.cuda(local_rank)
        fully_shard(model)
    """,
    """
    from net import Net

    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    """,
    """
    from net import Net

    model = Net()
    model.apply(fully_shard)
    fully_shard(model)
    """,
    """
    from net import Net


    def shard(module):
        return fully_shard(module)


    model = Net()
    shard(model.encoder)
    shard(model)
    """,
    """
    from net import Net


    def shard(module):
        return fully_shard(module)


    model = Net()
    for layer in model.layers:
        shard(layer)
    """,
    """
    class Net(torch.nn.Module):
        def shard(self):
            fully_shard(self.encoder)
    """,
]


@pytest.mark.parametrize("text", RIGHT)
def test_right_code_is_clean(text: str) -> None:
    assert contract(HEAD + code(text)).summary == []


OUTPUT = """\
from dataclasses import dataclass


@dataclass
class Output:
    logits: torch.Tensor


{registered}class Net(torch.nn.Module):
    def forward(self, x):
        return Output(x)


def main():
    net = Net()
    fully_shard(net)
"""


def test_dataclass_that_pytree_does_not_know() -> None:
    """Which torch 2.12 looks into by itself."""
    alone, registered = (
        OUTPUT.format(registered=text) for text in ("", "torch.export.register_dataclass(Output)\n\n\n")
    )
    looked = (contract(HEAD + alone), contract(HEAD + registered), contract(HEAD + alone, (2, 12)))
    assert ["FM512" in {finding.rule for finding in each.findings} for each in looked] == [True, False, False]
    of_dicts = alone.replace("@dataclass\nclass Output:\n    logits: torch.Tensor", "class Output(dict):\n    pass")
    (hint,) = (finding.hint for finding in contract(HEAD + of_dicts).findings if finding.rule == "FM512")
    assert "register_pytree_node(Output)" in hint


def test_one_finding_for_all_outputs_of_one_call() -> None:
    """A library's wrapper may shard any of hundreds of models."""
    kinds = "".join(f"@dataclass\nclass Output{n}:\n    x: torch.Tensor\n\n\n" for n in range(5))
    ways = "".join(f"        if x.ndim == {n}:\n            return Output{n}(x)\n" for n in range(5))
    head = f"{HEAD}\nfrom dataclasses import dataclass\n\n\n"
    text = f"{head}{kinds}class Net(torch.nn.Module):\n    def forward(self, x):\n{ways}\n\n"
    looked = contract(text + "def main():\n    net = Net()\n    fully_shard(net)\n")
    (hint,) = (finding.hint for finding in looked.findings if finding.rule == "FM512")
    assert "(Output2) and the same of 2 others below the classes" in hint


WRONG = [
    (
        """
        from torchao import float8


        def main(model):
            for layer in model.layers:
                fully_shard(layer)
            float8.convert_to_float8_training(model, config=None)
            return fully_shard(model)
        """,
        ("FM508", 12),
    ),
    (
        """
        from torchao import float8


        def main(self, scaler, optimizer):
            self.model(1).backward()
            float8.precompute_float8_dynamic_scale_for_fsdp(self.model)
            scaler.step(optimizer)
        """,
        ("FM509", 11),
    ),
    (
        """
        from torch.distributed.checkpoint import async_save


        def main(state):
            future = async_save(state)
        """,
        ("FM511", 10),
    ),
    (
        """
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp


        def main(state):
            future = dcp.async_save(state, checkpoint_id="last")
            dist.destroy_process_group()
            future.result()
        """,
        ("FM511", 11),
    ),
    (
        """
        def shard(model):
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)


        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            shard(model)
            return optimizer
        """,
        ("FM502", 13),
    ),
    (
        """
        def shard(model, use_fsdp):
            if not use_fsdp:
                return
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)


        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            shard(model, use_fsdp=True)
            return optimizer
        """,
        ("FM502", 15),
    ),
    (
        """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                fully_shard(self.model)
        """,
        ("FM502", 9),
    ),
    (
        """
        def main(model):
            model = fully_shard(model)
            fully_shard(model.encoder)
        """,
        ("FM503", 8),
    ),
    (
        """
        def main(model):
            fully_shard(model)
            for name, module in model.named_modules():
                if "layer" in name:
                    fully_shard(module)
        """,
        ("FM503", 10),
    ),
    (
        """
        def main(net, x):
            model = fully_shard(net)
            return model.forward(x)
        """,
        ("FM504", 8),
    ),
    (
        """
        def save(model):
            if dist.get_rank() == 0:
                return {name: p.full_tensor() for name, p in model.named_parameters()}
        """,
        ("FM505", 8),
    ),
    (
        """
        def save(model, rank):
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            if rank != 0:
                return
            torch.save(get_model_state_dict(model, options=options), "model.pt")
        """,
        ("FM505", 10),
    ),
    (
        """
        def save(model, accelerator):
            if accelerator.is_main_process:
                print(model.weight.full_tensor())
        """,
        ("FM505", 8),
    ),
    (
        """
        def main(model):
            fully_shard(model)
            if dist.get_rank() == 0:
                torch.save({"model": model.state_dict(), "step": 3}, "model.pt")
        """,
        ("FM506", 9),
    ),
    (
        """
        def main(model, rank):
            model = model.to(f"cuda:{rank}")
            fully_shard(model)
        """,
        ("FM507", 7),
    ),
    (
        """
        def main(model, rank):
            model.to(fr'cuda:{rank["local"]}')
            fully_shard(model)
        """,
        ("FM507", 7),
    ),
    (
        """
        def main(model, local_rank):
            model.to(local_rank)
            fully_shard(model)
        """,
        ("FM507", 7),
    ),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_broken_contract_is_found(text: str, expected: tuple[str, int]) -> None:
    summary = contract(HEAD + code(text)).summary
    assert [(rule, line) for rule, level, line in summary if level == "manual"] == [expected]


ROOT_ONLY = [
    """
    from net import Net

    model = Net()
    fully_shard(model)
    """,
    """
    from net import Net


    def shard(model):
        model.train()
        return fully_shard(model)


    if __name__ == "__main__":
        shard(Net())
        net = Net()
        train(shard)
    """,
    """
    from net import Net


    class Trainer:
        def __init__(self, bf16):
            self.model = Net()
            if bf16:
                fully_shard(self.model, mp_policy=bf16)
            else:
                fully_shard(self.model)
    """,
]


@pytest.mark.parametrize("text", ROOT_ONLY)
def test_only_the_root_is_sharded(text: str) -> None:
    (found,) = contract(HEAD + code(text)).findings
    assert (found.rule, found.level) == ("FM501", Level.REVIEW)


def test_own_support_module_is_clean() -> None:
    assert contract(compose(everything(available()))).summary == []


def test_two_loops_over_one_model_shard_parts_of_it() -> None:
    result = contract(
        """
        from torch.distributed.fsdp import fully_shard
        from units import Norm, units_of


        def shard(policy, model):
            for module in model.modules():
                if isinstance(module, Norm):
                    fully_shard(module)
            for unit in units_of(model, policy):
                fully_shard(unit)
            fully_shard(model)
        """
    )
    assert result.findings == ()


def test_two_models_whose_units_one_policy_finds() -> None:
    result = contract(
        """
        from torch.distributed.fsdp import fully_shard
        from units import units_of


        def shard(policy, student, teacher):
            for unit in units_of(student, policy):
                fully_shard(unit)
            fully_shard(student)
            for unit in units_of(teacher, policy):
                fully_shard(unit)
            fully_shard(teacher)
        """
    )
    assert result.findings == ()
