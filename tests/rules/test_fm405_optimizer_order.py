"""FM405: an optimizer that is built before the model is sharded would never update it, without an error."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, one_line, rewrite, rewrite_files

HEAD = """\
import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

"""

RIGHT = [
    pytest.param(
        """
        def main(net):
            model = FSDP(net)
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="below the wrap",
    ),
    pytest.param(
        """
        def main(teacher, net):
            optimizer = torch.optim.AdamW(teacher.parameters())
            model = FSDP(net)
            return model, optimizer
        """,
        id="of another model",
    ),
    pytest.param(
        """
        def main(net, sharded):
            if not sharded:
                return torch.optim.AdamW(net.parameters())
            model = FSDP(net)
            return torch.optim.AdamW(model.parameters())
        """,
        id="in a branch that returns",
    ),
    pytest.param(
        """
        def main(net, args):
            optimizer = torch.optim.AdamW(net.parameters())
            resume(args, net, optimizer)
            if args.sharded:
                model = FSDP(net)
                optimizer = torch.optim.AdamW(model.parameters())
            return optimizer
        """,
        id="built again below the wrap",
    ),
    pytest.param(
        """
        def main(trainer, args):
            trainer.optimizer = torch.optim.AdamW(trainer.net.parameters())
            if args.sharded:
                trainer.net = FSDP(trainer.net)
            if args.kind == "adam":
                trainer.optimizer = torch.optim.Adam(trainer.net.parameters())
            elif args.kind == "sgd":
                trainer.optimizer = torch.optim.SGD(trainer.net.parameters(), lr=0.1)
            else:
                raise ValueError(args.kind)
            trainer.train()
        """,
        id="built again on all ways",
    ),
    pytest.param(
        """
        def main(net):
            count = sum(p.numel() for p in net.parameters())
            sizes = {"all": sum(p.numel() for p in net.parameters()), "head": len(list(net.parameters()))}
            for p in net.parameters():
                p.requires_grad = False
            model = FSDP(net)
            return model, count
        """,
        id="parameters only counted and frozen",
    ),
    pytest.param(
        """
        def main(net, sharded):
            if not sharded:
                optimizer = torch.optim.AdamW(net.parameters())
            else:
                net = FSDP(net)
                optimizer = torch.optim.AdamW(net.parameters())
            return net, optimizer
        """,
        id="in the other branch",
    ),
    pytest.param(
        """
        def main(net, args):
            if args.first:
                net = FSDP(net)
                optimizer = torch.optim.AdamW(net.parameters())
                train(net, optimizer)
            if not args.first:
                net = FSDP(net)
            return net, torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        id="in a run that never comes to the wrap, not first",
    ),
    pytest.param(
        """
        def main(net, args):
            if args.first:
                net = FSDP(net)
                optimizer = torch.optim.AdamW(net.parameters())
                train(net, optimizer)
            if args.first == False:
                net = FSDP(net)
            return net, torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        id="in a run that never comes to the wrap, first == False",
    ),
    pytest.param(
        """
        def main(net, args):
            if args.first:
                net = FSDP(net)
                optimizer = torch.optim.AdamW(net.parameters())
                train(net, optimizer)
            if args.first is False:
                net = FSDP(net)
            return net, torch.optim.SGD(net.parameters(), lr=0.1)
        """,
        id="in a run that never comes to the wrap, first is False",
    ),
    pytest.param(
        """
        def main(net):
            average = {name: p.detach().clone() for name, p in net.named_parameters()}
            net = FSDP(net)
            return net, average
        """,
        id="copies",
    ),
    pytest.param(
        """
        def single(net):
            return torch.optim.AdamW(net.parameters())


        def main(net):
            return FSDP(net)
        """,
        id="in another function",
    ),
    pytest.param(
        """
        def shard(net, optimizer):
            optimizer.param_groups.clear()
            net = FSDP(net)
            optimizer.add_param_group({"params": list(net.parameters())})
            return net


        def main(net):
            optimizer = torch.optim.AdamW(net.parameters())
            return shard(net, optimizer), optimizer
        """,
        id="filled anew by the program",
    ),
]


@pytest.mark.parametrize("text", RIGHT)
def test_right_order_is_rewritten(text: str) -> None:
    result = rewrite(HEAD + "\n" + code(text))
    assert {rule for rule, _, _ in result.summary} == {"FM101"}
    assert {level for _, level, _ in result.summary} == {"rewritten"}
    assert "FSDP(" not in result.text


def body(text: str) -> str:
    """A program without its imports."""
    lines = [line for line in text.splitlines() if not line.startswith(("import ", "from torch", "from fsdp2"))]
    return "\n".join(lines).strip("\n") + "\n"


MOVED = [
    pytest.param(
        """
        def main(model):
            # what trains it
            optimizer = torch.optim.AdamW(model.parameters())
            model = FSDP(model, use_orig_params=True)
            return model, optimizer
        """,
        """
        def main(model):
            fully_shard(model)
            # what trains it
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="same function, with the comment above it",
    ),
    pytest.param(
        """
        def main(net, steps):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, steps)

            model = FSDP(net.cuda(), use_orig_params=True)
            return model, optimizer, scheduler
        """,
        """
        def main(net, steps):
            model = fully_shard(net.cuda())
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, steps)
            return model, optimizer, scheduler
        """,
        id="scheduler from the optimizer, and a blank line",
    ),
    pytest.param(
        """
        def main(net):
            parameters = [p for p in net.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD(parameters, lr=0.1)
            print(sum(p.numel() for p in parameters))
            net = FSDP(net, use_orig_params=True)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            return net, optimizer
        """,
        """
        def main(net):
            fully_shard(net)
            parameters = [p for p in net.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD(parameters, lr=0.1)
            print(sum(p.numel() for p in parameters))
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            return net, optimizer
        """,
        id="parameters in a list",
    ),
    pytest.param(
        """
        def main(net):
            parameters = list(net.parameters())
            net = FSDP(net, use_orig_params=True)
            return net, torch.optim.SGD(parameters, lr=0.1)
        """,
        """
        def main(net):
            fully_shard(net)
            parameters = list(net.parameters())
            return net, torch.optim.SGD(parameters, lr=0.1)
        """,
        id="list for an optimizer below",
    ),
    pytest.param(
        """
        def main(model, lr):
            decay, others = [], []
            for name, p in model.named_parameters():
                if p.ndim < 2:
                    others.append(p)
                else:
                    decay.append(p)

            optimizer = torch.optim.AdamW([{"params": decay}, {"params": others, "weight_decay": 0.0}], lr=lr)

            model.train()
            model = FSDP(model, use_orig_params=True)
            return model, optimizer
        """,
        """
        def main(model, lr):
            model.train()
            fully_shard(model)
            decay, others = [], []
            for name, p in model.named_parameters():
                if p.ndim < 2:
                    others.append(p)
                else:
                    decay.append(p)
            optimizer = torch.optim.AdamW([{"params": decay}, {"params": others, "weight_decay": 0.0}], lr=lr)
            return model, optimizer
        """,
        id="groups by dimension, collected in a loop",
    ),
    pytest.param(
        """
        class Trainer:
            def prepare(self):
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1)
                self.model = FSDP(self.model, use_orig_params=True)
        """,
        """
        class Trainer:
            def prepare(self):
                fully_shard(self.model)
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1)
        """,
        id="attributes",
    ),
    pytest.param(
        """
        def make_optimizer(model):
            return torch.optim.AdamW(model.parameters())


        def main(model):
            optimizer = make_optimizer(model)
            model = FSDP(model, use_orig_params=True)
            return model, optimizer
        """,
        """
        def make_optimizer(model):
            return torch.optim.AdamW(model.parameters())


        def main(model):
            fully_shard(model)
            optimizer = make_optimizer(model)
            return model, optimizer
        """,
        id="made by a function",
    ),
    pytest.param(
        """
        def set_up(model):
            made = torch.optim.AdamW(model.parameters())
            return made, torch.optim.lr_scheduler.StepLR(made, 1)


        def main(model):
            chosen, schedule = set_up(model)
            model = FSDP(model, use_orig_params=True)
            return model, chosen, schedule
        """,
        """
        def set_up(model):
            made = torch.optim.AdamW(model.parameters())
            return made, torch.optim.lr_scheduler.StepLR(made, 1)


        def main(model):
            fully_shard(model)
            chosen, schedule = set_up(model)
            return model, chosen, schedule
        """,
        id="made by a function that says nothing",
    ),
    pytest.param(
        """
        class Net(torch.nn.Module):
            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters())


        def main():
            model = Net()
            optimizer = model.configure_optimizers()
            model = FSDP(model, use_orig_params=True)
            return model, optimizer
        """,
        """
        class Net(torch.nn.Module):
            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters())


        def main():
            model = Net()
            fully_shard(model)
            optimizer = model.configure_optimizers()
            return model, optimizer
        """,
        id="made by a method",
    ),
    pytest.param(
        """
        def wrap(model):
            return FSDP(model, use_orig_params=True)


        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            model = wrap(model)
            return model, optimizer
        """,
        """
        def wrap(model):
            return fully_shard(model)


        def main(model):
            model = wrap(model)
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="wrapped by a function",
    ),
    pytest.param(
        """
        from lion_pytorch import Lion


        def main(model, name):
            if name == "lion":
                optimizer = Lion(model.parameters())
            else:
                optimizer = getattr(torch.optim, name)(model.parameters())
            if name:
                model = FSDP(model, use_orig_params=True)
            return model, optimizer
        """,
        """
        from lion_pytorch import Lion


        def main(model, name):
            if name:
                fully_shard(model)
            if name == "lion":
                optimizer = Lion(model.parameters())
            else:
                optimizer = getattr(torch.optim, name)(model.parameters())
            return model, optimizer
        """,
        id="chosen by name, or of another library",
    ),
    pytest.param(
        """
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(model.parameters())
        model = FSDP(model, use_orig_params=True)
        model(torch.ones(3)).sum().backward()
        """,
        """
        model = torch.nn.Linear(3, 3)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(3)).sum().backward()
        """,
        id="at the top of the file",
    ),
    pytest.param(
        """
        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            for index, layer in enumerate(model.layers):
                model.layers[index] = FSDP(layer, use_orig_params=True)
            model = FSDP(model, use_orig_params=True)
            return model, optimizer
        """,
        """
        def main(model):
            for index, layer in enumerate(model.layers):
                model.layers[index] = fully_shard(layer)
            fully_shard(model)
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="parts wrapped one by one, the last one counts",
    ),
    pytest.param(
        """
        def main(first, second):
            both = torch.optim.AdamW([*first.parameters(), *second.parameters()])
            own = torch.optim.SGD(second.parameters())
            first = FSDP(first, use_orig_params=True)
            second = FSDP(second, use_orig_params=True)
            return first, second, both, own
        """,
        """
        def main(first, second):
            fully_shard(first)
            fully_shard(second)
            both = torch.optim.AdamW([*first.parameters(), *second.parameters()])
            own = torch.optim.SGD(second.parameters())
            return first, second, both, own
        """,
        id="two models, one optimizer of both and one of one",
    ),
    pytest.param(
        """
        def main(model):
            wrapper = functools.partial(FSDP, use_orig_params=True)
            optimizer = torch.optim.AdamW(model.parameters())
            model = wrapper(model)
            return model, optimizer
        """,
        """
        def main(model):
            wrapper = fully_shard
            model = wrapper(model)
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="through a partial",
    ),
    pytest.param(
        """
        class Trainer:
            def __init__(self):
                self.wrap = functools.partial(FSDP, use_orig_params=True)

            def main(self, model):
                optimizer = torch.optim.AdamW(model.parameters())
                model = self.wrap(model)
                return model, optimizer
        """,
        """
        class Trainer:
            def __init__(self):
                self.wrap = fully_shard

            def main(self, model):
                model = self.wrap(model)
                optimizer = torch.optim.AdamW(model.parameters())
                return model, optimizer
        """,
        id="through a partial of an object",
    ),
    pytest.param(
        """
        KINDS = {"fsdp": functools.partial(FSDP, use_orig_params=True)}


        def main(model, kind):
            optimizer = torch.optim.AdamW(model.parameters())
            model = KINDS[kind](model)
            return model, optimizer
        """,
        """
        KINDS = {"fsdp": fully_shard}


        def main(model, kind):
            model = KINDS[kind](model)
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="through a partial in a table",
    ),
    pytest.param(
        """
        def shard(*args):
            return FSDP(*args, use_orig_params=True)


        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            model = shard(model)
            return model, optimizer
        """,
        """
        def shard(module):
            return fully_shard(module)


        def main(model):
            model = shard(model)
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="through a function of any arguments",
    ),
    pytest.param(
        """
        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            model.layers = nn.ModuleList(map(functools.partial(FSDP, use_orig_params=True), model.layers))
            return model, optimizer
        """,
        """
        def main(model):
            model.layers = nn.ModuleList(map(fully_shard, model.layers))
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="through map",
    ),
]


@pytest.mark.parametrize(("before", "after"), MOVED)
def test_what_can_be_proved_moves_below(before: str, after: str) -> None:
    result = rewrite(HEAD + "\n" + code(before))
    assert body(result.text) == code(after)
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}
    assert {"FM101", "FM405"} == {finding.rule for finding in result.findings}


REBOUND = [
    pytest.param(
        """
        def fit(model, optimizer, data):
            policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={torch.nn.Linear})
            model = FSDP(model, auto_wrap_policy=policy, use_orig_params=True)
            for x in data:
                model(x).sum().backward()
                optimizer.step()


        def main(net, data):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            fit(net, optimizer, data)
        """,
        """
        def fit(model, optimizer, data):
            unsharded = list(model.named_parameters())
            for module in model.modules():
                if module is not model and isinstance(module, torch.nn.Linear):
                    fully_shard(module)
            fully_shard(model)
            rebind_optimizer(optimizer, unsharded, model)
            for x in data:
                model(x).sum().backward()
                optimizer.step()


        def main(net, data):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            fit(net, optimizer, data)
        """,
        id="passed in, and used there",
    ),
    pytest.param(
        """
        def prepare(model, optimizer=None):
            model = FSDP(model, use_orig_params=True)
            return model, optimizer


        def main(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            return prepare(net, optimizer=optimizer)


        def evaluate(net):
            return prepare(net)
        """,
        """
        def prepare(model, optimizer=None):
            unsharded = list(model.named_parameters())
            fully_shard(model)
            if optimizer is not None:
                rebind_optimizer(optimizer, unsharded, model)
            return model, optimizer


        def main(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            return prepare(net, optimizer=optimizer)


        def evaluate(net):
            return prepare(net)
        """,
        id="passed in, but not by all",
    ),
    pytest.param(
        """
        def prepare(model, optimizer):
            return FSDP(model, use_orig_params=True), optimizer


        def main(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net, optimizer = prepare(net, optimizer)
            return net, optimizer
        """,
        """
        def prepare(model, optimizer):
            return fully_shard(model), optimizer


        def main(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            unsharded = list(net.named_parameters())
            net, optimizer = prepare(net, optimizer)
            rebind_optimizer(optimizer, unsharded, net)
            return net, optimizer
        """,
        id="passed through a function that returns at once",
    ),
    pytest.param(
        """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                self.wrap()

            def wrap(self):
                self.model = FSDP(self.model, use_orig_params=True)
        """,
        """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                self.wrap()

            def wrap(self):
                unsharded = list(self.model.named_parameters())
                fully_shard(self.model)
                rebind_optimizer(self.optimizer, unsharded, self.model)
        """,
        id="in another method",
    ),
    pytest.param(
        """
        def main(model, sharded):
            optimizer = torch.optim.AdamW(model.parameters())
            add_tokens(model)
            if sharded:
                model = FSDP(model, use_orig_params=True)
            return model, optimizer
        """,
        """
        def main(model, sharded):
            optimizer = torch.optim.AdamW(model.parameters())
            add_tokens(model)
            if sharded:
                unsharded = list(model.named_parameters())
                fully_shard(model)
                rebind_optimizer(optimizer, unsharded, model)
            return model, optimizer
        """,
        id="something between may change the model",
    ),
    pytest.param(
        """
        def main(net, args):
            optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
            args.lr = 0.5
            net = FSDP(net, use_orig_params=True)
            return net, optimizer
        """,
        """
        def main(net, args):
            optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
            args.lr = 0.5
            unsharded = list(net.named_parameters())
            fully_shard(net)
            rebind_optimizer(optimizer, unsharded, net)
            return net, optimizer
        """,
        id="another name in between",
    ),
    pytest.param(
        """
        def main(net):
            optimizer = torch.optim.AdamW(net.parameters())
            trainer = Trainer(net, optimizer)
            net = FSDP(net, use_orig_params=True)
            return net, trainer
        """,
        """
        def main(net):
            optimizer = torch.optim.AdamW(net.parameters())
            trainer = Trainer(net, optimizer)
            unsharded = list(net.named_parameters())
            fully_shard(net)
            rebind_optimizer(optimizer, unsharded, net)
            return net, trainer
        """,
        id="used in between",
    ),
    pytest.param(
        """
        def main(net, sharded):
            runs = []
            for _ in range(2):
                net = torch.nn.Linear(3, 3)
                optimizer = torch.optim.AdamW(net.parameters())
                runs.append((net, optimizer))
            for run in runs:
                net, optimizer = run
                if sharded:
                    net = FSDP(net, use_orig_params=True)
                train(net, optimizer)
        """,
        """
        def main(net, sharded):
            runs = []
            for _ in range(2):
                net = torch.nn.Linear(3, 3)
                optimizer = torch.optim.AdamW(net.parameters())
                runs.append((net, optimizer))
            for run in runs:
                net, optimizer = run
                if sharded:
                    unsharded = list(net.named_parameters())
                    fully_shard(net)
                    rebind_optimizer(optimizer, unsharded, net)
                train(net, optimizer)
        """,
        id="another model each time round",
    ),
    pytest.param(
        """
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(net.parameters())


        def show():
            print(optimizer)


        show()
        net = FSDP(net, use_orig_params=True)
        """,
        """
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(net.parameters())


        def show():
            print(optimizer)


        show()
        unsharded = list(net.named_parameters())
        fully_shard(net)
        rebind_optimizer(optimizer, unsharded, net)
        """,
        id="read by a function in between",
    ),
]


@pytest.mark.parametrize(("before", "after"), REBOUND)
def test_what_cannot_is_rebound(before: str, after: str) -> None:
    result = rewrite(HEAD + "\n" + code(before))
    assert body(result.program) == code(after)
    assert result.support == {"rebind_optimizer"}
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_both_in_another_file() -> None:
    before = {
        "train.py": "import torch\nfrom wrapping import wrap\n\n\ndef main(net):\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    net = wrap(net)\n    return net, optimizer\n",
        "wrapping.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def wrap(model):\n    return FSDP(model, use_orig_params=True)\n",
    }
    result = rewrite_files(before)
    assert result.after["train.py"].endswith(
        "    net = wrap(net)\n    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    return net, optimizer\n"
    )
    assert [finding.path.name for finding in result.findings if finding.rule == "FM405"] == ["train.py"]


OTHER_NAMES = ["net", "net.cuda()", "net.train().to(device)", "torch.compile(net)", "freeze(net)", "Around(net, 1)"]


@pytest.mark.parametrize("value", OTHER_NAMES)
def test_the_model_has_another_name_where_it_is_wrapped(value: str) -> None:
    """Passed over until now: the optimizer updated nothing."""
    text = f"""
        def freeze(net):
            return net


        def main(net, device, Around):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            moved = {value}
            model = FSDP(moved, use_orig_params=True)
            return model, optimizer
    """
    result = rewrite(HEAD + code(text))
    assert [level for rule, level, _ in result.summary if rule == "FM405"] == ["rewritten"]


def test_the_optimizer_of_another_model_that_is_made_of_the_same_settings_stays() -> None:
    text = """
        def main(args, build):
            teacher = build(args)
            optimizer = torch.optim.SGD(teacher.parameters(), lr=0.1)
            net = build(args)
            model = FSDP(net, use_orig_params=True)
            return model, optimizer
    """
    assert "FM405" not in {rule for rule, _, _ in rewrite(HEAD + code(text)).summary}


def test_the_optimizer_of_what_was_wrapped_before_stays() -> None:
    text = """
        def main(Net, path):
            model = Net()
            sharded = FSDP(model)
            optimizer = torch.optim.SGD(sharded.parameters(), lr=0.1)
            model = Net()
            model.load_state_dict(torch.load(path))
            sharded = FSDP(model)
            return sharded, optimizer
    """
    assert "FM405" not in {rule for rule, _, _ in rewrite(HEAD + code(text)).summary}


@pytest.mark.parametrize("copied", ["copy.deepcopy(net)", "torch.optim.swa_utils.AveragedModel(net)"])
def test_the_optimizer_of_what_was_copied_stays(copied: str) -> None:
    text = f"""
        import copy


        def main(net, train):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            average = {copied}
            average = FSDP(average, use_orig_params=True)
            return train(net, average, optimizer)
    """
    result = rewrite(HEAD + code(text))
    assert "FM405" not in {rule for rule, _, _ in result.summary}
    assert "rebind_optimizer" not in result.text


def test_call_that_only_run_time_knows() -> None:
    text = """
        def main(net, **kwargs):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net = FSDP(net, **kwargs)
            return net, optimizer
        """
    after = """
        def main(net, **kwargs):
            net = shard_model(net, **kwargs)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            return net, optimizer
        """
    result = rewrite(HEAD + "\n" + code(text))
    assert body(result.text) == code(after)
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_carriage_returns_are_kept() -> None:
    text = HEAD + code(
        """
        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            add_tokens(model)
            model = FSDP(model, use_orig_params=True)
        """
    )
    result = rewrite(text.replace("\n", "\r\n"))
    assert result.text == rewrite(text).text.replace("\n", "\r\n")
    assert "rebind_optimizer(optimizer, unsharded, model)\r\n" in result.text


@pytest.mark.parametrize("argument", ["", ", use_orig_params=False"])
def test_those_that_trained_nothing_so_far_are_to_review_once_a_wrap(argument: str) -> None:
    text = (
        f"def shard(net):\n    return FSDP(net{argument})\n\n\n"
        "def main(net):\n    opt = torch.optim.SGD(net.parameters())\n    net = shard(net)\n    return opt\n\n\n"
        "def other(net):\n    opt = torch.optim.Adam(net.parameters())\n    net = shard(net)\n    return opt\n"
    )
    result = rewrite(HEAD + text)
    found = [finding for finding in result.findings if finding.rule == "FM405"]
    (said,) = [finding for finding in found if finding.level is not Level.REWRITTEN]
    assert len(found) == 3
    assert said.level is Level.REVIEW
    assert "never trained" in said.message
    assert said.hint


def test_list_of_old_parameters_used_below_needs_a_person() -> None:
    text = code(
        """
        def main(net):
            parameters = list(net.parameters())
            optimizer = torch.optim.SGD(parameters)
            add_tokens(net)
            net = FSDP(net, use_orig_params=True)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            return optimizer
        """
    )
    result = rewrite(HEAD + text)
    (found,) = [finding for finding in result.findings if finding.rule == "FM405"]
    assert found.level is Level.MANUAL
    assert "rebind_optimizer(optimizer, unsharded, net)" in result.text


LEFT = [
    pytest.param(
        """
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(net.parameters())


        def main():
            return FSDP(net)
        """,
        id="no statement to write behind",
    ),
    pytest.param(
        """
        def main(net):
            trainer = Trainer(net, torch.optim.AdamW(net.parameters()))
            trainer.fit(net)
            net = FSDP(net)
            return trainer
        """,
        id="no name",
    ),
    pytest.param(
        """
        def main(net):
            parameters = list(net.parameters())
            add_tokens(net)
            net = FSDP(net)
            return torch.optim.AdamW(parameters)
        """,
        id="built below from parameters of above",
    ),
]


@pytest.mark.parametrize("text", LEFT)
def test_what_is_left_needs_a_person(text: str) -> None:
    result = rewrite(HEAD + "\n" + code(text))
    assert result.after == result.before
    assert [(f.rule, f.level) for f in result.findings if "is left as it is" in f.message] == [("FM101", Level.MANUAL)]
    assert {finding.level for finding in result.findings} == {Level.MANUAL}


def test_one_that_is_left_beside_a_right_one_raises() -> None:
    text = code(
        """
        def main(model, other):
            trainer = Trainer(model, torch.optim.AdamW(model.parameters()))
            trainer.fit(model)
            model = FSDP(model)
            other = FSDP(other)
            return model, trainer, other
        """
    )
    result = rewrite(HEAD + text)
    raised, left = one_line(result.text).splitlines()[9:11]
    assert raised.startswith('    raise NotImplementedError("fsdp-migrate FM101: build the optimizer below the wrap')
    assert left == "    model = FSDP(model)"
    assert "    fully_shard(other)\n" in result.text
    said = next(found.message for found in result.findings if found.rule == "FM101" and found.level is Level.MANUAL)
    assert said.endswith("an optimizer is built before it (`torch.optim.AdamW(model.parameters())`, train.py:8)"), said


def test_optimizer_of_one_file_is_rebound_in_the_file_that_wraps() -> None:
    train = """
        import torch
        from wrapping import prepare


        def main(net, plan):
            optimizer = torch.optim.AdamW(net.parameters())
            plan.look(optimizer)
            net = net.to(plan.device)
            prepare(net, optimizer, plan)
            net(plan).sum().backward()
            optimizer.step()
    """
    wrapping = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def prepare(net, optimizer, plan):
            print("a line that moves everything below it")
            net.model = FSDP(net.model, use_orig_params=True)
    """
    result = rewrite_files({"train.py": code(train), "wrapping.py": code(wrapping)})
    assert result.after["train.py"] == code(train)
    assert "    rebind_optimizer(optimizer, unsharded, net.model)\n" in result.after["wrapping.py"]


@pytest.mark.parametrize("kept", ["optimizer", "trainer.optimizer"])
def test_an_optimizer_of_an_earlier_turn_is_moved_or_rebound(kept: str) -> None:
    """One turn never comes to both places, and the run does."""
    text = f"""
        def main(net, trainer):
            for stage in range(2):
                if stage == 0:
                    {kept} = torch.optim.AdamW(net.parameters())
                if stage == 1:
                    net = FSDP(net, use_orig_params=True)
            return net, {kept}
    """
    assert "FM405" in {finding.rule for finding in rewrite(HEAD + "\n" + code(text)).findings}


OWN_OPTIMIZER = """
class ScheduledOptim{bases}:
    def __init__(self, {given}):
        self.optimizer = {made}
        self.steps = 0

    def step(self):
        self.steps += 1
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()
"""

STEPPED = [
    pytest.param("", "params", "torch.optim.AdamW(params)", "net.parameters()", ".optimizer", id="made inside"),
    pytest.param("", "inner", "inner", "torch.optim.AdamW(net.parameters())", ".optimizer", id="given"),
    pytest.param(
        "(torch.optim.Optimizer)",
        "params",
        "torch.optim.AdamW(params)",
        "net.parameters()",
        "",
        id="an optimizer itself",
    ),
]


@pytest.mark.parametrize(("bases", "given", "made", "argument", "inner"), STEPPED)
def test_the_optimizer_inside_of_an_object_is_rebound(
    bases: str, given: str, made: str, argument: str, inner: str
) -> None:
    """An object of the program's own that steps one has no parameter groups: the program raised."""
    text = f"""
        def main(net, plan):
            optimizer = ScheduledOptim({argument})
            plan.look(optimizer)
            net = FSDP(net, use_orig_params=True)
            train(net, optimizer)
    """
    owner = OWN_OPTIMIZER.format(bases=bases, given=given, made=made)
    result = rewrite(HEAD + owner + "\n\n" + code(text)).text
    assert f"    rebind_optimizer(optimizer{inner}, unsharded, net)\n" in result


def test_the_class_of_such_an_object_can_stand_in_another_file() -> None:
    train = """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        from parts import ScheduledOptim


        def main(net, plan):
            optimizer = ScheduledOptim(net.parameters())
            plan.look(optimizer)
            net = FSDP(net, use_orig_params=True)
            train(net, optimizer)
    """
    parts = "import torch\n\n" + OWN_OPTIMIZER.format(bases="", given="params", made="torch.optim.AdamW(params)")
    parts += "\n    def load(self, state):\n        self.optimizer.load_state_dict(state)\n"
    result = rewrite_files({"train.py": code(train), "parts.py": parts})
    assert "    rebind_optimizer(optimizer.optimizer, unsharded, net)\n" in result.after["train.py"]


def test_comment_on_the_wrap_stays_with_it() -> None:
    text = """
        def main(model):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            model, optimizer = prepare(model, optimizer)
            # Only the layers are units.
            for name, child in model.named_children():
                setattr(model, name, FSDP(child, use_orig_params=True))
            return optimizer
        """
    result = rewrite(HEAD + "\n" + code(text)).text
    assert "    unsharded = list(model.named_parameters())\n    # Only the layers are units.\n    for name" in result


def test_optimizer_that_comes_to_the_wrap_on_two_ways_is_rebound_once() -> None:
    text = """
        def shard(net, optimizer=None):
            net = FSDP(net, use_orig_params=True)
            return net


        def one(net):
            optimizer = torch.optim.AdamW(net.parameters())
            print(optimizer.param_groups)
            return shard(net, optimizer=optimizer), optimizer


        def two(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
            print(optimizer.param_groups)
            return shard(net, optimizer), optimizer
        """
    result = rewrite(HEAD + "\n" + code(text)).program
    assert result.count("rebind_optimizer(") == 1
    assert "if optimizer is not None:\n        rebind_optimizer(optimizer, unsharded, net)" in result


@pytest.mark.parametrize(
    ("wrapped", "written"),
    [
        ('WRAPPERS["fsdp"](net, use_orig_params=True)', 'model = WRAPPERS["fsdp"](net, use_orig_params=True)'),
        ("kind(net)", "        model = DDP(net)"),
    ],
)
def test_an_optimizer_above_a_call_of_what_holds_the_class(wrapped: str, written: str) -> None:
    before = code(f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn.parallel import DistributedDataParallel as DDP

        WRAPPERS = {{"fsdp": FSDP, "ddp": DDP}}


        def main(net, sharded):
            kind = FSDP if sharded else DDP
            optimizer = torch.optim.AdamW(net.parameters())
            model = {wrapped}
            return model, optimizer
        """)
    text = rewrite(before).text
    assert text.index(written) < text.index("optimizer = torch.optim.AdamW")


NO_OPTIMIZERS = [
    "param_millions(net)",
    "optimal_batch_size(net)",
    "million = count(net)",
    "lionize(net)",
    "adamant(net)",
]


@pytest.mark.parametrize("call", NO_OPTIMIZERS)
def test_words_that_only_hold_the_name_of_an_optimizer(call: str) -> None:
    text = f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef main(net):\n    {call}\n"
    result = rewrite(text + "    return FSDP(net)\n")
    assert f"def main(net):\n    {call}\n" in result.text


def test_function_named_after_an_optimizer_that_returns_none() -> None:
    text = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def optimizer_size(net):
    return 8


def main(net):
    size = optimizer_size(net)
    return FSDP(net), size
"""
    assert "    size = optimizer_size(net)\n    return" in rewrite(text).text


def test_optimizer_by_what_the_function_returns() -> None:
    text = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def prepared(net, lr):
    return torch.optim.AdamW(net.parameters(), lr=lr)


def main(net):
    trainer = prepared(net, 0.1)
    model = FSDP(net)
    return model, trainer
"""
    assert "fully_shard(net)\n    trainer = prepared(net, 0.1)\n" in rewrite(text).text.replace("model = ", "")


NOT_MADE_ANEW = [
    pytest.param(
        "use_orig_params=True", "    optimizer = torch.optim.AdamW(model.parameters())\n", id="trained before"
    ),
    pytest.param(
        "", "    step(optimizer)\n    optimizer = torch.optim.AdamW(model.parameters())\n", id="used in between"
    ),
    pytest.param("", "    if again:\n        optimizer = torch.optim.AdamW(model.parameters())\n", id="on one way"),
    pytest.param("", "    optimizer = torch.optim.AdamW(optimizer.param_groups)\n", id="made of the first one"),
    pytest.param("", "    if again:\n        return model, optimizer\n    optimizer = 1\n", id="returned before"),
]


@pytest.mark.parametrize(("argument", "below"), NOT_MADE_ANEW)
def test_an_optimizer_that_lives_on_is_not_left_behind(argument: str, below: str) -> None:
    text = (
        "def main(net, again):\n    optimizer = torch.optim.AdamW(net.parameters())\n    keep(optimizer)\n"
        f"    model = FSDP(net, {argument})\n{below}    return model, optimizer\n"
    )
    assert "FM405" in {rule for rule, _, _ in rewrite(HEAD + text).summary}


def test_an_optimizer_above_a_call_that_wraps_nothing_stays() -> None:
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def wrap(model, use_fsdp=True):
            if not use_fsdp:
                return model
            return FSDP(model)


        def main(net, other):
            optimizer = torch.optim.AdamW(net.parameters())
            plain = wrap(net, use_fsdp=False)
            return plain, optimizer, wrap(other)
        """
    )
    assert rewrite(text).text == text.replace("FSDP(model)", "fully_shard(model)").replace(
        "FullyShardedDataParallel as FSDP", "fully_shard"
    )
