"""FM405: what functions and objects of the program build from the parameters before the model is sharded, or keep."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite, rewrite_files
from .test_fm405_optimizer_order import HEAD, body

WRAP = "    net = FSDP(net, use_orig_params=True)\n"
SHARD = "    fully_shard(net)\n"

# What stands above `def main(net):`, and the statement in it that stands before the wrap.
FINE = {
    "an object of copies and counts": (
        """
        class Info:
            def __init__(self, model):
                self.count = sum(p.numel() for p in model.parameters())
                self.names = [name for name, _ in model.named_parameters()]
                self.start = {name: p.detach().clone() for name, p in model.named_parameters()}
        """,
        "made = Info(net)",
    ),
    "an object of the model": (
        """
        class PrewrapReference:
            def __init__(self, model):
                self.model = model

            def parameters(self):
                return list(self.model.parameters())
        """,
        "made = PrewrapReference(net)",
    ),
    "an object that copies the parameters it is given": (
        """
        class Start:
            def __init__(self, parameters):
                self.values = [p.detach().clone() for p in parameters]
        """,
        "made = Start(net.parameters())",
    ),
    "a function of values": (
        """
        def norm(model):
            parameters = list(model.parameters())
            return sum(p.norm() for p in parameters)
        """,
        "made = norm(net)",
    ),
    "a function that counts each parameter once": (
        """
        def count(model):
            total, seen = 0, set()
            for p in model.parameters():
                if p not in seen:
                    seen.add(p)
                    total += p.numel()
            return total
        """,
        "made = count(net)",
    ),
    "a function of names and sizes": (
        """
        def sizes(model):
            names, found = [], []
            for name, p in model.named_parameters():
                names.append(name)
                found.append((p.numel(), torch.zeros_like(p)))
            return names, found
        """,
        "made = sizes(net)",
    ),
    "a function of parameters": ("", "made = torch.nn.utils.get_total_norm(net.parameters())"),
    "a dtype": ("", "made = net.head.weight.dtype"),
    "a weight that is initialised": ("", "made = net.head.weight; torch.nn.init.zeros_(made)"),
    "a weight that is only asked": ("", "weight = net.head.weight; made = weight.shape"),
    "an argument of a part": ("", "config = net.config; made = torch.nn.Linear(config.width, 2)"),
    "options": ("", "made = opt = parse(net)"),
    "an object of another model": (
        """
        class Trainer:
            def __init__(self, model):
                self.optimizer = torch.optim.SGD(model.parameters())
        """,
        "made = Trainer(torch.nn.Linear(2, 2))",
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_what_holds_no_parameters_stays(name: str) -> None:
    above, statement = FINE[name]
    head = HEAD + code(above) + f"\n\ndef main(net):\n    {statement}\n"
    result = rewrite(head + WRAP + "    return net\n")
    assert result.text.endswith(f"    {statement}\n{SHARD}    return net\n")
    assert {finding.rule for finding in result.findings} == {"FM101"}


TRAINER = """
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters())
    """

MOVED = {
    "groups from a function": (
        """
        def groups(model):
            decay, others = [], []
            for name, p in model.named_parameters():
                (others if "bias" in name else decay).append(p)
            return [{"params": decay}, {"params": others, "weight_decay": 0.0}]
        """,
        ["made = torch.optim.AdamW(groups(net))"],
    ),
    "groups from a function, in two steps": (
        """
        def trained(model):
            return [p for p in model.parameters() if p.requires_grad]


        def groups(model):
            return [{"params": trained(model), "lr": 0.1}]
        """,
        ["parameters = groups(net)", "made = torch.optim.AdamW(parameters)"],
    ),
    "parameters from a generator": (
        """
        def trained(model):
            for p in model.parameters():
                if p.requires_grad:
                    yield p
        """,
        ["made = torch.optim.AdamW(trained(net))"],
    ),
    "a table from a function": (
        """
        def table(model):
            by_name = {}
            for name, p in model.named_parameters():
                by_name[name] = p
            return by_name
        """,
        ["made = table(net)"],
    ),
    "a trainer": (TRAINER, ["made = Trainer(net)"]),
    "a trainer whose base builds the optimizer": (
        code(TRAINER)
        + """

class Tuned(Trainer):
    def __init__(self, model, rate):
        super().__init__(model)
        self.rate = rate
        """,
        ["made = Tuned(net, 0.1)"],
    ),
    "an object of a list": (
        """
        class Clipper:
            def __init__(self, model):
                self.parameters = list(model.parameters())
        """,
        ["made = Clipper(net)"],
    ),
    "an object that keeps the parameters it is given": (
        """
        class Clipper:
            def __init__(self, parameters):
                self.parameters = list(parameters)
        """,
        ["made = Clipper(net.parameters())"],
    ),
    "an object of a library": (
        "from torch_ema import ExponentialMovingAverage\n",
        ["made = ExponentialMovingAverage(net.parameters(), decay=0.9)"],
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_what_holds_them_moves_below(name: str) -> None:
    above, statements = MOVED[name]
    head = HEAD + code(above) + "\n\ndef main(net):\n"
    lines = "".join(f"    {statement}\n" for statement in statements)
    result = rewrite(head + lines + WRAP + "    return net, made\n")
    assert result.text.endswith(SHARD + lines + "    return net, made\n")
    assert {(finding.rule, finding.level) for finding in result.findings} == {
        ("FM101", Level.REWRITTEN),
        ("FM405", Level.REWRITTEN),
    }


SEEN = {
    "a factory that is passed in": ("steps = 3", "opt = make(net.parameters())"),
    "two names": ("steps = 3", "self.opt = made = make(net.parameters())"),
    "another name of the model": ("inner = net", "made = torch.optim.SGD(inner.parameters(), lr=0.1)"),
    "the name of the model before": ("self.net = inner = net", "made = torch.optim.SGD(self.net.parameters(), lr=0.1)"),
    "a part of the model": ("head = net.head", "made = torch.optim.SGD(head.parameters(), lr=0.1)"),
    "one parameter of several": (
        "head = net.head",
        'weight = net.embed.weight\n    made = torch.optim.SGD([{"params": head.parameters()}, {"params": [weight]}])',
    ),
    "one parameter": ("steps = 3", "weight = net.head.weight\n    made = torch.optim.SGD([weight], lr=0.1)"),
}


@pytest.mark.parametrize("name", SEEN)
def test_parameters_are_seen_under_other_names(name: str) -> None:
    above, below = SEEN[name]
    head = HEAD + f"def main(self, net, make):\n    {above}\n"
    result = rewrite(head + f"    {below}\n    net = FSDP(net, use_orig_params=True)\n    return net, weight\n")
    assert body(result.text).endswith(f"    {above}\n{SHARD}    {below}\n    return net, weight\n")
    assert {finding.rule for finding in result.findings} == {"FM101", "FM405"}


REBOUND = {
    "of an object": (
        TRAINER,
        """
        def main(net):
            trainer = Trainer(net)
            add_tokens(net)
            net = FSDP(net, use_orig_params=True)
            return trainer
        """,
        """
        def main(net):
            trainer = Trainer(net)
            add_tokens(net)
            unsharded = list(net.named_parameters())
            fully_shard(net)
            rebind_optimizer(trainer.optimizer, unsharded, net)
            return trainer
        """,
    ),
    "of an object that does more to the model": (
        """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.model.load_state_dict(torch.load("start.pt"))
                self.optimizer = torch.optim.SGD(self.model.parameters())
        """,
        """
        def main(net):
            trainer = Trainer(net)
            net = FSDP(net, use_orig_params=True)
            return trainer
        """,
        """
        def main(net):
            trainer = Trainer(net)
            unsharded = list(net.named_parameters())
            fully_shard(net)
            rebind_optimizer(trainer.optimizer, unsharded, net)
            return trainer
        """,
    ),
    "of a function that builds the model too": (
        """
        def build(config):
            model = torch.nn.Linear(config.width, 2)
            optimizer = torch.optim.SGD(model.parameters())
            return model, optimizer
        """,
        """
        def main(config):
            net, opt = build(config)
            net = FSDP(net, use_orig_params=True)
            return net, opt
        """,
        """
        def main(config):
            net, opt = build(config)
            unsharded = list(net.named_parameters())
            fully_shard(net)
            rebind_optimizer(opt, unsharded, net)
            return net, opt
        """,
    ),
    "of a dict that a function returns": (
        """
        def build(config):
            model = torch.nn.Linear(config.width, 2)
            optimizer = torch.optim.SGD(model.parameters())
            return {"model": model, "optimizer": optimizer}
        """,
        """
        def main(config):
            built = build(config)
            net = built["model"]
            net = FSDP(net, use_orig_params=True)
            return net, built["optimizer"]
        """,
        """
        def main(config):
            built = build(config)
            net = built["model"]
            unsharded = list(net.named_parameters())
            fully_shard(net)
            rebind_optimizer(built["optimizer"], unsharded, net)
            return net, built["optimizer"]
        """,
    ),
    "of a dict that a function fills": (
        """
        def build(config):
            out = {}
            out["model"] = torch.nn.Linear(config.width, 2)
            out["optimizer"] = torch.optim.SGD(out["model"].parameters())
            return out
        """,
        """
        def main(config):
            built = build(config)
            net = FSDP(built["model"], use_orig_params=True)
            return net, built["optimizer"]
        """,
        """
        def main(config):
            built = build(config)
            unsharded = list(built["model"].named_parameters())
            net = fully_shard(built["model"])
            rebind_optimizer(built["optimizer"], unsharded, built["model"])
            return net, built["optimizer"]
        """,
    ),
    "of a pair that is taken as one thing": (
        """
        def build(config):
            model = torch.nn.Linear(config.width, 2)
            return model, torch.optim.SGD(model.parameters())
        """,
        """
        def main(config):
            pair = build(config)
            net = FSDP(pair[0], use_orig_params=True)
            return net, pair[1]
        """,
        """
        def main(config):
            pair = build(config)
            unsharded = list(pair[0].named_parameters())
            net = fully_shard(pair[0])
            rebind_optimizer(pair[1], unsharded, pair[0])
            return net, pair[1]
        """,
    ),
    "in a method of the object that wraps": (
        """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.configure()
                self.wrap()

            def configure(self):
                self.model.load_state_dict(torch.load("start.pt"))
                self.optimizer = torch.optim.SGD(self.model.parameters())
        """,
        """
            def wrap(self):
                self.model = FSDP(self.model, use_orig_params=True)
        """,
        """
            def wrap(self):
                unsharded = list(self.model.named_parameters())
                fully_shard(self.model)
                rebind_optimizer(self.optimizer, unsharded, self.model)
        """,
    ),
    "among the arguments of the function that wraps": (
        "",
        """
        def wrap(model, optimizer):
            model = FSDP(model, use_orig_params=True)
            return model, optimizer


        def main(net):
            return wrap(net, torch.optim.SGD(net.parameters()))
        """,
        """
        def wrap(model, optimizer):
            unsharded = list(model.named_parameters())
            fully_shard(model)
            rebind_optimizer(optimizer, unsharded, model)
            return model, optimizer


        def main(net):
            return wrap(net, torch.optim.SGD(net.parameters()))
        """,
    ),
}
METHOD = """
            def wrap(self):
                self.model = FSDP(self.model, use_orig_params=True)
"""
METHOD_AFTER = """
            def wrap(self):
                unsharded = list(self.model.named_parameters())
                fully_shard(self.model)
                rebind_optimizer(self.optimizer, unsharded, self.model)
"""
GIVEN = """
        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer
        """


def told(above: str, *lines: str) -> tuple[str, str, str]:
    """A trainer that a method wraps, and what makes one and has it wrap."""
    main = "".join(f"            {line}\n" for line in lines)
    main = f"\n\n        def main(net):\n{main}" if lines else ""
    return above, METHOD + main, METHOD_AFTER + main


REBOUND |= {
    "in an object that is told to wrap": told(TRAINER, "trainer = Trainer(net)", "trainer.wrap()", "return trainer"),
    "in an object that nobody is seen to tell to wrap": told(TRAINER),
    "in an object that is made and told to wrap in one line": told(TRAINER, "Trainer(net).wrap()"),
    "among the arguments of the object": told(
        GIVEN, "trainer = Trainer(net, torch.optim.SGD(net.parameters()))", "trainer.wrap()"
    ),
    "above the object that is given it": told(
        GIVEN, "optimizer = torch.optim.SGD(net.parameters())", "Trainer(net, optimizer).wrap()"
    ),
}


@pytest.mark.parametrize("name", REBOUND)
def test_optimizer_of_an_object_is_rebound(name: str) -> None:
    above, before, after = (part.strip("\n") for part in REBOUND[name])
    dedented = ["\n".join(line[8:] for line in part.splitlines()) + "\n" for part in (before, after)]
    gap = "\n" if dedented[0].startswith(" ") else "\n\n"
    result = rewrite(HEAD + code(above).rstrip() + "\n" + gap + dedented[0])
    assert result.text.endswith(dedented[1])
    assert result.support == {"rebind_optimizer"}
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_list_that_an_object_keeps_beside_its_optimizer_needs_a_person() -> None:
    trainer = """
        class Trainer:
            def __init__(self, model):
                self.parameters = list(model.parameters())
                self.optimizer = torch.optim.SGD(self.parameters)
        """
    main = "\n\ndef main(net):\n    trainer = Trainer(net)\n    add_tokens(net)\n" + WRAP + "    return net, trainer\n"
    result = rewrite(HEAD + code(trainer) + main)
    assert "    rebind_optimizer(trainer.optimizer, unsharded, net)\n" in result.text
    (found,) = [finding for finding in result.findings if finding.rule == "FM405"]
    assert found.level is Level.MANUAL
    assert "a list of the parameters from before the wrap" in found.message


LEFT = {
    "an object from a function, with the optimizer in it": (
        """
        class State:
            def __init__(self, model, rule):
                self.model = model
                self.rule = rule


        def build(model):
            model.load_state_dict(torch.load("start.pt"))
            return State(model, torch.optim.SGD(model.parameters()))
        """,
        "trainer = build(net)",
    ),
    "an object that is used in between": (
        TRAINER.replace("self.optimizer = torch", "self.optimizers = [torch").replace("())", "())]"),
        "trainer = Trainer(net)\n    trainer.fit(net)",
    ),
    "a list in an object that loads the model": (
        """
        class Clipper:
            def __init__(self, model):
                model.load_state_dict(torch.load("start.pt"))
                self.parameters = list(model.parameters())
        """,
        "trainer = Clipper(net)",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_needs_a_person(name: str) -> None:
    above, statements = LEFT[name]
    result = rewrite(
        HEAD + code(above) + f"\n\ndef main(net):\n    {statements}\n" + WRAP + "    return net, trainer\n"
    )
    assert result.after == result.before
    assert {finding.level for finding in result.findings} == {Level.MANUAL}


def test_object_from_a_function_that_builds_the_model_too_needs_a_person() -> None:
    text = code(
        """
        class State:
            def __init__(self, model, rule):
                self.model = model
                self.rule = rule


        def build(config):
            model = torch.nn.Linear(config.width, 2)
            return State(model, torch.optim.SGD(model.parameters()))


        def main(config):
            state = build(config)
            state.model = FSDP(state.model, use_orig_params=True)
            return state
        """
    )
    result = rewrite(HEAD + text)
    assert result.after == result.before
    assert {finding.level for finding in result.findings} == {Level.MANUAL}


def test_class_of_another_file() -> None:
    files = {
        "trainer.py": "import torch\n\n\n" + code(TRAINER),
        "train.py": HEAD + "from trainer import Trainer\n\n\ndef main(net):\n    trainer = Trainer(net)\n" + WRAP,
    }
    result = rewrite_files(files)
    assert result.after["trainer.py"] == files["trainer.py"]
    assert body(result.after["train.py"]).endswith(SHARD + "    trainer = Trainer(net)\n")


GENERATED = """\
# Generated by a tool. DO NOT EDIT.
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from wrapping import prepare, wrap


def main(net):
    optimizer = torch.optim.SGD(net.parameters())
"""
WRAPPING = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(net):
    return FSDP(net, use_orig_params=True)


def prepare(net, optimizer):
    net = FSDP(net, use_orig_params=True)
    return net, optimizer
"""


def test_file_that_is_kept_is_not_edited() -> None:
    files = {"train.py": GENERATED + "    return wrap(net), optimizer\n", "wrapping.py": WRAPPING}
    result = rewrite_files(files)
    assert "raise NotImplementedError" in result.after["wrapping.py"], "the wrap whose optimizer cannot be moved"
    assert "    fully_shard(net)\n    return net, optimizer\n" in result.after["wrapping.py"]
    assert result.after["train.py"] == files["train.py"]
    assert not [finding for finding in result.findings if finding.rule == "FM405"]


def test_optimizer_of_a_file_that_is_kept_is_rebound_where_the_model_is_wrapped() -> None:
    files = {"train.py": GENERATED + "    return prepare(net, optimizer)\n", "wrapping.py": WRAPPING}
    result = rewrite_files(files)
    assert "    rebind_optimizer(optimizer, unsharded, net)\n" in result.after["wrapping.py"]
    assert result.after["train.py"] == files["train.py"]


@pytest.mark.parametrize(
    "made",
    [
        "runs = [(net, torch.optim.AdamW(net.parameters())) for net in nets]",
        "runs = []\n    for net in nets:\n        runs.append((net, torch.optim.AdamW(net.parameters())))",
    ],
)
def test_optimizers_of_several_models_need_a_person(made: str) -> None:
    text = (
        f"{HEAD}\ndef main(nets):\n    {made}\n"
        "    for net, optimizer in runs:\n        net = FSDP(net, use_orig_params=True)\n        net.train(optimizer)\n"
    )
    result = rewrite(text)
    assert result.text == text
    assert "manual" in {level for _, level, _ in result.summary}


def test_what_a_function_is_given_by_the_name_of_its_model_is_not_the_model() -> None:
    text = """
        def fixtures(model, args):
            model = build(args)
            if args.fsdp:
                model = FSDP(model, use_orig_params=True)
            optimizer = torch.optim.SGD(list(model.parameters()))
            return model, optimizer


        def main(args):
            first, one = fixtures(args.model, args)
            second, other = fixtures(args.model, args)
            return first, one, second, other
    """
    assert not [level for rule, level, _ in rewrite(HEAD + code(text)).summary if rule == "FM405" or level == "manual"]


BY_WAY_OF_A_NAME = {
    "groups": """
        def groups(model):
            decay, others = [], []
            for name, p in model.named_parameters():
                (others if "bias" in name else decay).append(p)
            found = [{"params": decay}, {"params": others, "weight_decay": 0.0}]
            return found


        def main(net):
            optimizer = torch.optim.AdamW(groups(net))
            net = FSDP(net, use_orig_params=True)
            return net, optimizer
    """,
    "two results": """
        def build(config):
            model = torch.nn.Linear(config.width, 2)
            optimizer = torch.optim.SGD(model.parameters())
            both = model, optimizer
            return both


        def main(config):
            net, optimizer = build(config)
            net = FSDP(net, use_orig_params=True)
            return net, optimizer
    """,
    "a list that an object keeps": """
        class Clipper:
            def __init__(self, parameters):
                found = list(parameters)
                self.parameters = found


        def main(net):
            clipper = Clipper(net.parameters())
            net = FSDP(net, use_orig_params=True)
            return net, clipper
    """,
    "a property, where a method wraps the model": """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.SGD(self.trained)

            @property
            def trained(self):
                return [p for p in self.model.parameters() if p.requires_grad]

            def wrap(self):
                self.model = FSDP(self.model, use_orig_params=True)


        def main(net):
            trainer = Trainer(net)
            trainer.wrap()
            return trainer
    """,
    "the model, where a method wraps it": """
        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.SGD(model.parameters())

            def wrap(self):
                inner = self.model.to("cuda")
                self.model = FSDP(inner, use_orig_params=True)


        def main(net):
            trainer = Trainer(net)
            trainer.wrap()
            return trainer
    """,
}


@pytest.mark.parametrize("text", BY_WAY_OF_A_NAME.values(), ids=BY_WAY_OF_A_NAME)
def test_what_holds_them_is_seen_by_way_of_a_name(text: str) -> None:
    """Passed over until now: the optimizer updated nothing."""
    result = rewrite(HEAD + code(text))
    assert [level for rule, level, _ in result.summary if rule == "FM405"] == ["rewritten"]
