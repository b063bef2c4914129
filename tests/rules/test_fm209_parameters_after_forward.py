"""FM209: parameters of a model that ran without a backward behind it."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, code, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, xs, optimizer):
    model = FSDP(net)
"""
RESHARD = "    model.reshard()\n"


def body(text: str) -> str:
    return rewrite(HEAD + text).text.split("    model = fully_shard(net)\n")[1]


NOOP = [
    "import torch\nwith torch.no_grad():\n    model(1)\nmodel.zero_grad()\n",
    "model.zero_grad()\n# FullyShardedDataParallel\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


QUIET = [
    "    with torch.no_grad():\n        model(xs)\n    print(next(model.parameters()).device)\n",
    "    with torch.no_grad():\n        model(xs)\n    print([p.device for p in model.parameters()])\n",
    "    with torch.no_grad():\n        model(xs)\n    first = next(model.parameters())\n"
    "    print(first.device, first.shape)\n",
    "    with torch.no_grad():\n        model(xs)\n    model(xs).sum().backward()\n    model.named_parameters()\n",
    "    with torch.no_grad():\n        model(xs)\n    optimizer.zero_grad()\n",
    "    with torch.no_grad():\n        net.zero_grad()\n",
    "    with torch.no_grad():\n        xs(net)\n    torch.optim.SGD(model.parameters())\n",
    "    loss = model(xs)\n    xs(model.parameters())\n    loss.backward()\n    # no_grad\n",
    "    model(xs).sum().backward()\n    optimizer.step()\n    model.zero_grad()\n    xs(torch.no_grad)\n",
    "    model.zero_grad()\n    model(xs).sum().backward()\n",
    "    optimizer = torch.optim.SGD(model.parameters())\n    model(xs)\n",
    "    model(xs).sum().backward()\n    optimizer = torch.optim.SGD(model.parameters())\n",
    "    model(xs)\n    model.reshard()\n    optimizer = torch.optim.SGD(model.parameters())\n",
    "    torch.set_grad_enabled(True)\n    model(xs)\n    xs(model.parameters())\n",
    "    model.post_init()\n    model.to(xs)\n    optimizer = torch.optim.SGD(model.parameters())\n",
    "    net(xs)\n    optimizer = torch.optim.SGD(model.parameters())\n",
    "    model(xs)\n    print(sum(p.numel() for p in model.parameters()))\n",
    "    with torch.no_grad():\n        model(xs)\n    print(sum(p.numel() for p in model.parameters() if p.shape))\n",
]


EPOCHS = """\
    average = {n: p.clone() for n, p in model.named_parameters()}
    for is_training in (True, False):
        run_epoch(model, optimizer, xs, is_training)
    for n, p in model.named_parameters():
        average[n].lerp_(p, 0.1)


def run_epoch(model, optimizer, xs, is_training):
    torch.set_grad_enabled(is_training)
    loss = model(xs).sum()
    if is_training:
        loss.backward()
        optimizer.step()
    torch.set_grad_enabled(True)
"""


def test_average_behind_a_function_that_switches_gradients_off() -> None:
    loop = "    for n, p in model.named_parameters():\n"
    assert body(EPOCHS) == EPOCHS.replace(loop, f"{RESHARD}{loop}")


@pytest.mark.parametrize("runs", ["", "        model(torch.ones(4))\n"])
def test_object_that_is_named_after_an_evaluation(runs: str) -> None:
    """What is made runs the model only where its `__init__` does."""
    text = "    evaluator = Evaluator(model)\n    return torch.optim.SGD(model.parameters()), evaluator\n\n\n"
    text += f"class Evaluator:\n    def __init__(self, model):\n        self.model = model\n{runs}"
    made = "    return torch.optim.SGD("
    assert body(text) == text.replace(made, f"{RESHARD if runs else ''}{made}")


@pytest.mark.parametrize("text", QUIET)
def test_nothing_to_do(text: str) -> None:
    assert body(text) == text


READS = [
    "optimizer = torch.optim.SGD(model.parameters())",
    "for p in model.parameters():\n        p.requires_grad_(False)",
    "average = {n: p.clone() for n, p in model.named_parameters()}",
    "model.zero_grad()",
]
RUNS = [
    "with torch.no_grad():\n        model(xs)",
    "with torch.inference_mode(), xs:\n        model(xs)",
    "evaluate(model, torch.no_grad)",
    "with torch.no_grad():\n        model.generate(xs)",
    "torch.set_grad_enabled(False)\n    model(xs)\n    torch.set_grad_enabled(True)",
    "with torch.set_grad_enabled(xs.is_training):\n        model(xs)",
]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("read", READS)
def test_parameters_behind_an_evaluation(run: str, read: str) -> None:
    assert body(f"    {run}\n    {read}\n") == f"    {run}\n{RESHARD}    {read}\n"


ONE_LINE = [
    "for x in xs: model(x).sum().backward(); {}model.zero_grad()",
    "if xs: {}xs.update(model.named_parameters())",
]


@pytest.mark.parametrize("line", ONE_LINE)
def test_block_of_one_line_keeps_it(line: str) -> None:
    text = "    with torch.no_grad():\n        model(xs)\n    {}\n"
    assert body(text.format(line.format(""))) == text.format(line.format("model.reshard(); "))


TRAINED = [
    "torch.optim.AdamW(model.parameters(), lr=1)",
    "build_optimizer([p for p in model.parameters() if p.requires_grad])",
    "bnb.optim.Adam8bit(params=list(model.named_parameters()))",
]


@pytest.mark.parametrize("optimizer", TRAINED)
def test_optimizer_behind_a_forward(optimizer: str) -> None:
    assert body(f"    model(xs)\n    return {optimizer}\n") == f"    model(xs)\n{RESHARD}    return {optimizer}\n"


def test_optimizer_of_parameters_in_a_variable() -> None:
    text = "    model(xs)\n{}    params = model.parameters()\n    return torch.optim.SGD(params)\n"
    assert body(text.format("")) == text.format(RESHARD)


LOOPS = [
    "    for x in xs:\n        {}model.zero_grad()\n        model(x).sum().backward()\n        optimizer.step()\n"
    "        evaluate(model, torch.no_grad)\n",
    "    for x in xs:\n        model(x).sum().backward()\n        optimizer.step()\n"
    "        evaluate(model, torch.no_grad)\n        {}model.zero_grad()\n",
]


@pytest.mark.parametrize("text", LOOPS)
def test_gradients_of_a_model_that_is_evaluated_between_steps(text: str) -> None:
    assert body(text.format("")) == text.format("model.reshard()\n        ")


@pytest.mark.parametrize("step", ["", "        torch.nn.utils.clip_grad_value_(net.parameters(), 1)\n"])
def test_gradients_that_are_zeroed_behind_the_forward(step: str) -> None:
    text = "    for x in xs:\n        loss = model(x)\n        {}model.zero_grad()\n        loss.backward()\n" + step
    result = rewrite(HEAD + text.format(""))
    assert result.text.endswith(text.format("model.reshard()\n        "))
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_evaluation_in_another_file_is_supposed() -> None:
    result = rewrite(HEAD + "    xs(torch.no_grad)\n    model.zero_grad()\n")
    assert ("FM209", Level.REWRITTEN.value, 8) in result.summary
    assert "    model.reshard()\n    model.zero_grad()\n" in result.text


@pytest.mark.parametrize(
    "wrap",
    [
        "FSDP(xs.net, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)",
        "FSDP(xs.net, *xs.options)",
        "FSDP(xs.net) if xs else DDP(xs.net)",
    ],
)
def test_more_than_the_root_can_be_whole_or_it_is_not_sharded_for_sure(wrap: str) -> None:
    text = (
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\n\n\n"
        f"def main(xs):\n    model = {wrap}\n    with torch.no_grad():\n        model(xs)\n    model.zero_grad()\n"
    )
    assert "    reshard_all(model)\n    model.zero_grad()\n" in rewrite(text).text


def test_a_part_that_is_a_root_of_its_own_can_be_whole() -> None:
    text = (
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef main(net, xs):\n"
        "    net.head = FSDP(net.head)\n    model = FSDP(net)\n    with torch.no_grad():\n        model.head(xs)\n"
        "        model(xs)\n    model.zero_grad()\n"
    )
    assert "    reshard_all(model)\n    model.zero_grad()\n" in rewrite(text).text


def test_what_is_taken_in_front_has_no_wrapper_either() -> None:
    text = HEAD + "    with torch.no_grad():\n        model(xs)\n    model.module.zero_grad()\n"
    assert rewrite(text).text.endswith("    model.reshard()\n    model.zero_grad()\n")


WRITES = ["p.data.clamp_(-1, 1)", "p.data *= 2", "p.data = xs", "average[0].lerp_(p, 0.1)"]


@pytest.mark.parametrize("write", WRITES)
def test_writes_that_fsdp1_did_not_see_at_once(write: str) -> None:
    text = f"    evaluate(model, torch.no_grad)\n    for p in model.parameters():\n        {write}\n"
    result = check_marked(HEAD + text, "FM209", Level.MANUAL, "FSDP1 did not use what is written")
    assert f"{RESHARD}    for p in" in result.text


AVERAGE = """
    ema = FSDP(xs.net)
    for x in xs:
        model(x).sum().backward()
        optimizer.step()
        for {}:
            {}
        evaluate(ema, torch.no_grad)
"""
AVERAGED = [
    ("p, q in zip(model.parameters(), ema.parameters())", "q.data.lerp_(p.data, 0.1)"),
    ("p, q in zip(model.parameters(), ema.parameters())", "q.data = 0.9 * q.data + 0.1 * p.data"),
    ("(n, p), q in zip(model.named_parameters(), ema.parameters())", "q.mul_(0.9).add_(p, alpha=0.1)"),
    ("n, q in ema.named_parameters()", "q.mul_(0.9).add_(xs[n], alpha=0.1)"),
]


@pytest.mark.parametrize(("head", "write"), AVERAGED)
def test_average_that_is_evaluated(head: str, write: str) -> None:
    result = rewrite(HEAD + AVERAGE.format(head, write))
    assert f"        optimizer.step()\n        ema.reshard()\n        for {head}:\n" in result.text
    levels = [finding.level for finding in result.findings if finding.rule == "FM209"]
    assert levels == [Level.REVIEW]


UPDATES = {
    "side by side": """
    for p, q in zip(model.parameters(), average.parameters()):
        q.lerp_(p, 0.1)
""",
    "by name": """
    averages = OrderedDict(average.named_parameters())
    for name, p in OrderedDict(model.named_parameters()).items():
        averages[name].mul_(0.9).add_(p.data, alpha=0.1)
""",
    "both by name": """
    averages = dict(average.named_parameters())
    params = dict(model.named_parameters())
    for name, p in params.items():
        averages[name].lerp_(p.data, 0.1)
""",
    "one dict after the other": """
    averages = {n: p for n, p in average.named_parameters()}
    for name, p in averages.items():
        p.lerp_(model.get_parameter(name), 0.1)
""",
    "all at once": """
    for p, q in zip(model.parameters(), average.parameters()):
        xs.src.append(p.data)
        xs.dst.append(q.data)
    torch._foreach_lerp_(xs.dst, xs.src, 0.1)
""",
    "by torch's AveragedModel": """
    average.update_parameters(model)
""",
}
LOOP = """
    ema = FSDP(xs.net)
    for x in xs:
        loss = losses.training_losses(model, x)
        loss.backward()
        optimizer.step()
        update(model, ema)
        {}
    save(ema)


@torch.no_grad()
def update(model, average):"""


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_average_in_a_function_of_its_own(update: str) -> None:
    result = rewrite(HEAD + LOOP.format("visualize(ema, x)") + update)
    first = update.splitlines()[1]
    assert f"def update(model, average):\n    average.reshard()\n{first}\n" in result.text
    assert "    model.reshard()" not in result.text
    assert [level for rule, level, _ in result.summary if rule == "FM209"] == ["review"]


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_average_that_nothing_runs(update: str) -> None:
    result = rewrite(HEAD + LOOP.format("print(x)") + update)
    assert "reshard" not in result.text


def test_a_method_of_the_programs_own_is_not_torchs() -> None:
    own = "\n\nclass Ema:\n    def update_parameters(self, model):\n        pass\n"
    text = LOOP.format("visualize(ema, x)") + "\n    average.update_parameters(model)\n" + own
    assert "reshard" not in rewrite(HEAD + text).text


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_average_that_an_object_keeps(update: str) -> None:
    text = LOOP.format("print(x)").replace("update(model, ema)", "xs.ema = ema\n        update(model, xs.ema)")
    text += update + "\n\ndef show(trainer, x):\n    with torch.no_grad():\n        return trainer.ema(x)\n"
    assert "    average.reshard()\n" in rewrite(HEAD + text).text
    text = text.replace("update(model, xs.ema)", "average = xs.ema\n        update(model, average)")
    assert "    average.reshard()\n" in rewrite(HEAD + text).text


def test_average_that_another_function_of_the_file_runs() -> None:
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        ema = FSDP(torch.nn.Linear(2, 2))
        model = FSDP(torch.nn.Linear(2, 2))


        def update():
            for p, q in zip(model.parameters(), ema.parameters()):
                q.lerp_(p, 0.1)


        @torch.no_grad()
        def show(x):
            return ema(x)


        def loss(x):
            return model(x).sum()


        def train(x):
            loss(x).backward()
            update()
        """
    )
    after = rewrite(text).text
    assert "def update():\n    ema.reshard()\n" in after
    assert "model.reshard()" not in after


NOT_AVERAGED = [
    "    reshard_fsdp(model)\n    for p in model.parameters():\n        p.zero_()  # no_grad\n",
    "    with FSDP.summon_full_params(model):\n        for p in model.parameters():\n            p.mul_(xs)#no_grad\n",
    "    with FSDP.summon_full_params(model), torch.no_grad():\n        model.score(xs)\n"
    "        return dict(model.named_parameters())\n",
    "    for p in model.parameters():\n        p.requires_grad_(False)\n    # no_grad\n",
    "    for p in model.parameters():\n        p.mul_(2)\n",
    "    xs()  # no_grad\n    for p in model.parameters():\n        p.grad.mul_(2)\n        p.grad.data.div_(3)\n",
]


@pytest.mark.parametrize("text", NOT_AVERAGED)
def test_nothing_is_averaged(text: str) -> None:
    after = body(text)
    assert "reshard_all" not in after
    assert ".reshard()" not in after


def test_what_ran_before_it_was_wrapped_does_not_count() -> None:
    text = HEAD.replace("model = FSDP(net)", "net.score(xs)\n    net(xs)\n    net = FSDP(net)")
    result = rewrite(text + "    return torch.optim.SGD(net.parameters())\n")
    assert "reshard_all" not in result.text


def test_compiled_model_ran_before() -> None:
    text = HEAD + "    model(xs)\n    model = torch.compile(model)\n    return torch.optim.SGD(model.parameters())\n"
    assert "model.reshard()" in rewrite(text).text


def test_evaluation_below_in_the_same_loop() -> None:
    """The end of a loop's body lies before its start: from the second turn on, the optimizer is built too late."""
    text = code(
        """
        def train(net, batches, epochs):
            model = FSDP(net)
            for epoch in range(epochs):
                optimizer = torch.optim.AdamW(model.parameters())
                for x in batches:
                    optimizer.zero_grad()
                    model(x).sum().backward()
                    optimizer.step()
                evaluate(model, batches)


        def evaluate(model, batches):
            with torch.no_grad():
                for x in batches:
                    model(x)
        """
    )
    result = rewrite("import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n" + text)
    assert "        model.reshard()\n        optimizer = torch.optim.AdamW(model.parameters())\n" in result.text


def test_training_that_ends_a_turn_frees_them() -> None:
    text = code(
        """
        def train(net, average, batches):
            model = FSDP(net)
            for x in batches:
                average.update(model.parameters())
                with torch.no_grad():
                    model(x)
                model(x).sum().backward()
        """
    )
    result = rewrite("import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n" + text)
    assert "reshard_all" not in result.text


def test_an_iterator_that_is_read_behind_a_backward_needs_nothing() -> None:
    text = """\
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Scaler:
            def __init__(self, args):
                self.inner = torch.amp.GradScaler(enabled=args.fp16)

            def __call__(self, loss, optimizer, parameters):
                BODY
                self.inner.step(optimizer)


        def train(net, loader, args):
            model = FSDP(net)
            optimizer = torch.optim.SGD(model.parameters())
            scaler = Scaler(args)
            for x in loader:
                loss = model(x)
                scaler(loss, optimizer, parameters=model.parameters())
                with torch.no_grad():
                    model(x)
    """
    behind = "self.inner.scale(loss).backward()\n                assert parameters is not None"
    before = "parameters = list(parameters)\n                self.inner.scale(loss).backward()"
    assert "reshard_all" not in rewrite(code(text.replace("BODY", behind))).text
    assert "model.reshard()" in rewrite(code(text.replace("BODY", before))).text


@pytest.mark.parametrize(
    ("read", "offloads"),
    [
        ("next(model.parameters()).dtype", False),
        ("{(p.device, p) for p in model.parameters()}", False),
        ("next(model.parameters()).device", True),
    ],
)
def test_more_than_devices_is_asked_of_the_shards(read: str, offloads: bool) -> None:
    head = HEAD
    if offloads:
        head = head.replace("as FSDP", "as FSDP, CPUOffload")
        head = head.replace("FSDP(net)", "FSDP(net, cpu_offload=CPUOffload(True))")
    text = rewrite(f"{head}    with torch.no_grad():\n        model(xs)\n    x = {read}\n").text
    assert f"{RESHARD}    x = {read}\n" in text


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_model_of_an_object_that_is_trained_right_before(update: str) -> None:
    text = LOOP.format("visualize(ema, x)").replace("    for x in xs:", "    xs.model = model\n    for x in xs:")
    text = text.replace("losses.training_losses(model, x)", "xs.model(x)").replace(
        " update(model, ema", " update(xs.model, ema"
    )
    result = rewrite(HEAD + text + update)
    assert "    average.reshard()\n" in result.text
    assert "reshard_all(model)" not in result.text


STEPPED_IN_A_LOOP = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, model, teacher):
        self.model = FSDP(model)
        self.teacher = FSDP(teacher)

    def train(self, batches):
        optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)
        for x in batches:
            with torch.no_grad():
                wanted = self.teacher(x)
            (self.model(x) - wanted).square().mean().backward()
            self.model.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
"""


def test_an_optimizer_that_a_loop_steps_is_no_average() -> None:
    assert "reshard" not in rewrite(STEPPED_IN_A_LOOP).text


APART = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net):
        self.model = FSDP(net)

    def start(self):
        {taken}

    @torch.no_grad()
    def evaluate(self, xs):
        return self.model(xs)

    def train(self, xs):
        for stage in range(3):
            {first}
            self.model(xs).sum().backward()
            {last}
"""
TAKEN = [
    "return torch.optim.SGD(self.model.parameters())",
    "return torch.optim.SGD(self.model.head.parameters())",
    "for m in self.model.modules():\n            torch.optim.SGD([p for p in m.parameters(recurse=False)])",
    "for p in self.model.parameters():\n            p.requires_grad = False",
    "self.model.requires_grad_(False)",
    "self.model.get_submodule('head').requires_grad_(True)\n        self.model.tail.requires_grad_(True)",
]


@pytest.mark.parametrize("taken", TAKEN)
def test_parameters_that_a_function_takes_or_freezes_behind_its_callers_evaluation(taken: str) -> None:
    """What is set on the copies (`requires_grad`), and an optimizer that is made of them, changed nothing."""
    text = rewrite(APART.format(taken=taken, first="self.start()", last="self.evaluate(xs)")).text
    assert f"    def start(self):\n        self.model.reshard()\n        {taken}\n" in text
    first = rewrite(APART.format(taken=taken, first="pass", last="self.evaluate(xs)\n        self.start()")).text
    assert ".reshard()" in first
    for around in (("self.start()", "pass"), ("self.evaluate(xs)", "self.start()")):
        assert ".reshard()" not in rewrite(APART.format(taken=taken, first=around[0], last=around[1])).text


SEVERAL = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Critics:
    def __init__(self, nets):
        self.nets, self.targets = [FSDP(net) for net in nets], [FSDP(net) for net in nets]

    def step(self, x):
        with torch.no_grad():
            y = [{0} for t in self.targets]
        for net, target in zip(self.nets, self.targets):
            for p, q in zip(net.parameters(), target.parameters()):
                q.lerp_(p, 0.1)
"""


@pytest.mark.parametrize(("used", "is_whole"), [("t(x)", True), ("t.training", False)])
def test_average_of_one_of_several_models(used: str, is_whole: bool) -> None:
    assert ("reshard_all(target)" in rewrite(SEVERAL.format(used)).text) == is_whole


CALLBACKS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Validate:
    def run(self, t):
        with torch.no_grad():
            t.model(1)


class Freeze:
    def run(self, t):
        for n, p in t.model.named_parameters():
            p.requires_grad = "head" in n


class Trainer:
    def __init__(self, net, xs):
        self.model, self.callbacks = FSDP(net), [{}]
        for x in xs:
            self.model(x).sum().backward()
            for each in self.callbacks:
                each.run(self)
"""


@pytest.mark.parametrize(("first", "is_whole"), [("Validate(), ", True), ("", False)])
def test_what_freezes_between_callbacks_that_evaluate(first: str, is_whole: bool) -> None:
    assert ("reshard_all(t.model)" in rewrite(CALLBACKS.format(f"{first}Freeze()")).text) == is_whole


def test_context_manager_that_puts_weights_back_behind_an_evaluation() -> None:
    swap = code("""
        @contextlib.contextmanager
        def average(model, shadow):
            backup = [p.detach().clone() for p in model.parameters()]
            with torch.no_grad():
                for p, s in zip(model.parameters(), shadow):
                    p.copy_(s)
            yield
            with torch.no_grad():
                for p, b in zip(model.parameters(), backup):
                    p.copy_(b)
        """)
    used = "    with average(model, optimizer.shadow):\n        {}\n    model(xs).sum().backward()\n"
    text = f"import contextlib\n\n{HEAD}{{}}\n\n{swap}"
    put_back = "        model.reshard()\n        for p, b in zip(model.parameters(), backup):\n"
    evaluated = rewrite(text.format(used.format("with torch.no_grad():\n            print(model(xs))"))).text
    assert evaluated.count("model.reshard()") == 1
    assert put_back in evaluated
    assert "reshard" not in rewrite(text.format(used.format("torch.save(xs, 'x.pt')"))).text


def test_writes_of_a_function_that_is_given_the_parameters() -> None:
    """FSDP1 went on with stale weights of its root in the next forward."""
    text = "    with torch.no_grad():\n        model(xs)\n    put(model.parameters(), xs)\n\n\n"
    text += "def put(params, kept):\n    for k, p in zip(kept, params):\n        {}.data.copy_(1)\n"
    for written, level in (("p", Level.MANUAL), ("k", Level.REWRITTEN)):
        assert [f.level for f in rewrite(HEAD + text.format(written)).findings if f.rule == "FM209"] == [level]


def test_the_inner_module_where_there_is_one_is_the_model() -> None:
    text = '    with torch.no_grad():\n        model(xs)\n    inner = getattr(model, "module", model)\n'
    made = "    return torch.optim.SGD(inner.parameters())\n"
    assert body(text + made) == f"{text}    inner.reshard()\n{made}"


SWAPS = """import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class EMA:
    def __init__(self, model):
        self.model = model
        self.shadow = {n: p.clone() for n, p in model.named_parameters()}

    def swap(self):
        for n, p in self.model.named_parameters():
            self.backup[n] = p.data.clone()
            p.data.copy_(self.shadow[n])

    def restore(self):
        for n, p in self.model.named_parameters():
            p.data.copy_(self.backup[n])


def train(net, loader, optimizer):
    model = FSDP(net)
    ema = EMA(model)
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
        ema.swap()
        with torch.no_grad():
            model(x)
        ema.restore()
"""


def test_method_that_puts_weights_back_of_a_model_that_its_caller_evaluates() -> None:
    result = rewrite(SWAPS)
    assert "    def restore(self):\n        self.model.reshard()\n" in result.text
    assert result.text.count("reshard()") == 1
    assert ("FM209", "review") in {(rule, level) for rule, level, _ in result.summary}


TEACHER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


class Pair:
    def __init__(self, net, other):
        self.student, self.teacher = FSDP(net), FSDP(other)

    @torch.no_grad()
    def target(self, x):
        return self.teacher(x)

    def step(self, x):
        (self.student(x) - self.target(x)).sum().backward()

    def train_teacher(self):
        {}return torch.optim.SGD(self.teacher.parameters())


@torch.no_grad()
def predict(model, x):
    return model(x)


def fit(model):
    {}return torch.optim.SGD(model.parameters())


def load(model, state):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(state)


def main(net, other, xs, state):
    student, teacher = FSDP(net), FSDP(other)
    for x in xs:
        {}
        (student(x) - target).sum().backward()
    {}
"""
NO_GRAD = "with torch.no_grad():\n            target = teacher(x)"
WITHOUT_GRADIENTS = [
    NO_GRAD,
    NO_GRAD.replace("no_grad()", "set_grad_enabled(False)"),
    "target = predict(teacher, x)",
    "target = teacher(x).detach()",
]


@pytest.mark.parametrize("run", WITHOUT_GRADIENTS)
@pytest.mark.parametrize("made", ["fit(teacher)", "torch.optim.SGD(teacher.parameters())", "load(teacher, state)"])
def test_the_backward_of_another_model_frees_nothing(run: str, made: str) -> None:
    """A teacher runs under no_grad, the student's loss goes backward: the teacher is still whole."""
    model = "teacher" if made.startswith("torch") else "model"
    assert f"{model}.reshard()" in rewrite(TEACHER.format("", "", run, made)).text


@pytest.mark.parametrize("made", ["fit(student)", "torch.optim.SGD(student.parameters())", "load(student, state)"])
def test_its_own_backward_does(made: str) -> None:
    assert "reshard()" not in rewrite(TEACHER.format("", "", NO_GRAD, made)).text


def test_what_methods_run_and_train() -> None:
    main = "pair = Pair(net, other)\n    pair.step(xs)\n    pair.train_teacher()"
    text = rewrite(TEACHER.format("", "", NO_GRAD, main)).text
    assert "        self.teacher.reshard()\n        return torch.optim.SGD(self.teacher.parameters())\n" in text


def test_what_a_method_runs_beside_another_model_of_its_object() -> None:
    method = (
        "with torch.no_grad():\n            y = self.teacher(1)\n        self.student(y).sum().backward()\n        "
    )
    text = rewrite(TEACHER.format(method, "", NO_GRAD, "")).text
    assert "        self.teacher.reshard()\n        return torch.optim.SGD(self.teacher.parameters())\n" in text


def test_a_model_in_a_dict() -> None:
    text = "    models = {'a': model}\n    with torch.no_grad():\n        models['a'](xs)\n"
    assert "    reshard_all(models['a'])\n    torch.optim.SGD(models['a'].parameters())\n" in body(
        text + "    torch.optim.SGD(models['a'].parameters())\n"
    )


def test_a_function_that_runs_the_model_of_the_one_around() -> None:
    text = "    @torch.no_grad()\n    def run(x):\n        return model(x)\n\n    net(run(xs)).sum().backward()\n"
    made = "    torch.optim.SGD(model.parameters())\n"
    assert body(text + made) == text + RESHARD + made


def test_functions_of_another_file_beside_an_evaluation() -> None:
    other = (
        "import torch\n\n\n@torch.no_grad()\ndef predict(net, x):\n    return net(x)\n\n\ndef log(x):\n    print(x)\n"
    )
    text = HEAD.replace("import torch\n", "import torch\nfrom other import log, predict\n")
    text += "    log(predict(model, xs))\n    log(xs)\n    net(xs).sum().backward()\n"
    text += "    torch.optim.SGD(model.parameters())\n"
    result = rewrite_files({"train.py": text, "other.py": other})
    assert f"{RESHARD}    torch.optim.SGD(model.parameters())\n" in result.after["train.py"]


def test_a_group_that_is_added_behind_an_evaluation() -> None:
    text = "    with torch.no_grad():\n        model(xs)\n{}"
    text += "    optimizer.add_param_group({{'params': model.parameters()}})\n"
    assert body(text.format("")) == text.format(RESHARD)


@pytest.mark.parametrize("maker", ["torch.optim.SGD", "MAKERS[name]"])
def test_an_optimizer_of_parts_of_the_inner_module(maker: str) -> None:
    text = code(
        f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        MAKERS = {{"sgd": lambda groups, lr: torch.optim.SGD(groups, lr)}}


        def main(net, x, name):
            model = FSDP(net)
            with torch.no_grad():
                model(x)
            return {maker}([{{"params": model.module.head.parameters()}}], 0.1)
        """
    )
    assert f"    model.reshard()\n    return {maker}" in rewrite(text).text


def test_models_that_change_their_parts() -> None:
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def main(net, other, xs):
            student, teacher = FSDP(net), FSDP(other)
            for x in xs:
                optimizer = torch.optim.SGD(student.parameters())
                with torch.no_grad():
                    target = teacher(x)
                (student(x) - target).sum().backward()
                optimizer.step()
                student, teacher = teacher, student
        """
    )
    assert (
        "        student.reshard()\n        optimizer = torch.optim.SGD(student.parameters())\n" in rewrite(text).text
    )


OTHER = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def train(self):
        self.model = FSDP(Net())
        model = self.model
        return make_optimizer(model)


def make_optimizer(model):
    return torch.optim.SGD(model.parameters())


def step(model, xs):
    with torch.no_grad():
        return model(xs)


def evaluate(model, xs):
    return step(model, xs)


def other(xs):
    model = nn.Linear(2, 2)
    evaluate(model, xs)
    model.train()
"""


def test_what_another_model_of_the_same_name_does_is_its_own() -> None:
    """`model.train()` of a plain one may be a call of `Trainer.train` for all that is seen (torchmultimodal)."""
    assert "reshard" not in rewrite(OTHER).text


LATE = """\
import functools
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Task:
    def __init__(self, net):
        self.model = FSDP(net)
        self.made = None

    @functools.cached_property
    def optimizer(self):
        return torch.optim.AdamW(self.model.parameters())

    def asked(self):
        if self.made is None:
            self.made = torch.optim.AdamW(self.model.parameters())
        return self.made

    def step(self, x):
        ABOVE
        loss = self.model(x).sum()
        BELOW
        loss.backward()
        OPTIMIZER.step()
"""


@pytest.mark.parametrize("is_above", [False, True])
@pytest.mark.parametrize("optimizer", ["self.optimizer", "self.asked()"])
def test_optimizer_that_is_made_where_it_is_first_asked_for(optimizer: str, is_above: bool) -> None:
    """Between the first forward and its backward the root's parameters are copies, which it would hold for good."""
    zeroed = [f"{optimizer}.zero_grad()", "x = x + 1"]
    above, below = zeroed if is_above else reversed(zeroed)
    text = rewrite(LATE.replace("OPTIMIZER", optimizer).replace("ABOVE", above).replace("BELOW", below)).text
    made = {"self.optimizer": "        return torch", "self.asked()": "            self.made = torch"}[optimizer]
    indent = made[: -len(made.lstrip())]
    assert (f"{indent}self.model.reshard()\n{made}" in text) is not is_above
    assert text.count("reshard()") == (not is_above)


@pytest.mark.parametrize("is_behind", [True, False])
def test_optimizer_of_a_function_that_is_called_behind_a_forward(is_behind: bool) -> None:
    calls = ["    loss = model(xs)\n", "    optimizer = make(model)\n"]
    text = "".join(calls if is_behind else reversed(calls)) + "    loss.backward()\n\n\n"
    text += "def make(model):\n    return torch.optim.AdamW(model.parameters())\n"
    assert body(text) == (text.replace("    return", f"{RESHARD}    return") if is_behind else text)


@pytest.mark.parametrize("method", ["share_memory()", "type(torch.bfloat16)", "add_module('head', xs)"])
def test_methods_of_all_modules_are_no_forward(method: str) -> None:
    """Before an optimizer they got a reshard (ParlAI)."""
    assert "reshard" not in body(f"    model.{method}\n    return torch.optim.AdamW(model.parameters())\n")


def test_a_method_of_what_may_be_anything_is_no_forward() -> None:
    """`folder.mkdir()` of a setting that a helper of all settings gives, the model among them (xffl)."""
    text = "    net = setting(model, None)\n    folder = setting(None, xs)\n    folder.mkdir()\n    make(net)\n\n\n"
    text += "def setting(value, config):\n    return value if value is not None else config.value\n\n\n"
    text += "def make(model):\n    return torch.optim.AdamW(model.parameters())\n"
    assert "reshard" not in body(text)


DINO = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def train(net, other, xs, optimizer):
    student, teacher = FSDP(net), FSDP(other)
    FREEZE
    for x in xs:
        target = teacher(x)
        loss = (student(x) - target).sum()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(student.parameters(), teacher.parameters()):
                q.data.mul_(0.9).add_(p.data)
"""


@pytest.mark.parametrize(
    ("freeze", "is_frozen"),
    [
        ("for p in teacher.parameters():\n        p.requires_grad = False", True),
        ("for p in teacher.parameters(): p.requires_grad_(False)", True),
        ("teacher.eval().requires_grad_(False)", True),
        ("requires_grad(teacher, False)", True),
        ("requires_grad(teacher)", False),
        ("for n, p in teacher.named_parameters():\n        p.requires_grad = 'norm' in n", False),
        ("teacher.requires_grad_(False)\n    teacher.requires_grad_(True)", False),
        ("print()", False),
    ],
)
def test_average_of_a_frozen_model(freeze: str, is_frozen: bool) -> None:
    """It runs without gradients, and the backward of the other one frees nothing."""
    text = rewrite(DINO.replace("FREEZE", freeze)).text
    loop = "            for p, q in zip("
    assert (f"            teacher.reshard()\n{loop}" in text) is is_frozen


OUTER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Outer:
    def __init__(self, model, every):
        TARGET
        self.anchor = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def go(self):
        for a, p in zip(self.anchor, self.model.parameters()):
            p.data.copy_(a)


def train(net, optimizer, batches):
    model = FSDP(net)
    outer = Outer(model, 2)
    for x in batches:
        model(x).sum().backward()
        optimizer.step()
        outer.go()
"""


@pytest.mark.parametrize("target", ["self.model = model", "self.model, self.every = model, every"])
def test_an_attribute_that_a_tuple_binds_runs_no_model(target: str) -> None:
    assert "reshard" not in rewrite(OUTER.replace("TARGET", target)).text


UNITS = """
class Meta(nn.Module):
    def __init__(self, student, teacher):
        super().__init__()
        self.student = nn.ModuleDict({{"net": FSDP(student)}})
        self.teacher = nn.ModuleDict({{"net": FSDP(teacher)}})

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher.net(x)
        (self.student.net(x) - target).sum().backward()

    @torch.no_grad()
    def update(self):
        own, averages = [], []
        for key in self.student:
            for ms, mt in zip({units}(self.student[key]), {units}(self.teacher[key])):
                own {put} ms.parameters(){end}
                averages {put} mt.parameters(){end}
        torch._foreach_mul_(averages, 0.9)
        torch._foreach_add_(averages, own, alpha=0.1)
"""


@pytest.mark.parametrize("units", ["FSDP.fsdp_modules", "get_units"])
@pytest.mark.parametrize(("put", "end"), [("+=", ""), (".extend(list(", "))")])
def test_average_of_the_units_of_a_teacher(units: str, put: str, end: str) -> None:
    """Plain copies beside DTensors: the first average raised (DINO)."""
    head = (
        "import torch\nfrom torch import nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    )
    text = head + "def get_units(model):\n    return FSDP.fsdp_modules(model)\n\n" + UNITS
    result = rewrite(text.format(units=units, put=put, end=end).replace(" .extend", ".extend"))
    assert "                reshard_all(mt)\n                averages" in result.text


FORWARD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(torch.nn.Module):
    def forward(self, x):
        x = self.loss(x)
        for p in self.parameters():
            if p.requires_grad:
                x = x + p.sum() * 0
        return x

    def generate(self, x):
        with torch.no_grad():
            return self.forward(self.forward(x))


def main(x):
    model = FSDP(Net())
    model.module.generate(x)
    model(x).backward()
"""


def test_nothing_is_resharded_in_a_forward_itself() -> None:
    """What is whole there is in use."""
    assert "FM209" not in {each.rule for each in rewrite(FORWARD).findings}


SEPARATE = "    encoder = FSDP(net)\n    target = FSDP(copy)\n"
TARGET_INSIDE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, copy, batches):
    encoder = FSDP(net)
    target = FSDP(copy)
    opt = torch.optim.AdamW(encoder.parameters())

    def step(x):
        def forward_target(x):
            with torch.no_grad():
                return target(x)

        loss = (encoder(x) - forward_target(x)).pow(2).mean()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for q, k in zip(encoder.parameters(), target.parameters()):
                k.data.mul_(0.9).add_(0.1 * q.detach().data)

    for x in batches:
        step(x)
"""


@pytest.mark.parametrize("made", [SEPARATE, "    encoder, target = wrap(net), wrap(copy)\n"])
def test_a_target_that_a_function_inside_runs_without_gradients_has_had_no_backward(made: str) -> None:
    """JEPA: `loss.backward()` behind it is the encoder's."""
    wrap = "def wrap(net):\n    return FSDP(net)\n\n\ndef main("
    text = TARGET_INSIDE.replace(SEPARATE, made).replace("def main(", wrap)
    assert "            target.reshard()\n            for q, k in zip" in rewrite(text).text


FLAGS_SET_BACK = """\
import contextlib

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Gan:
    def __init__(self, gen, disc):
        self.nets = {{"gen": FSDP(gen), "disc": FSDP(disc)}}

    def step(self, xs):
        with frozen({given}):
            self.nets["disc"](self.nets["gen"](xs)).sum().backward()
            {last}


@contextlib.contextmanager
def frozen(nets):
    for net in nets:
        for p in net.parameters():
            p.requires_grad = False
    yield
    for net in nets:
        for p in net.parameters():
            p.requires_grad = True
"""


def test_context_manager_that_sets_flags_back_behind_an_evaluation() -> None:
    of_dict = FLAGS_SET_BACK.replace("in nets", "in nets.values()")
    of_one = FLAGS_SET_BACK.replace("    for net in nets:\n    ", "").replace("        p.req", "    p.req")
    of_one = of_one.replace("nets)", "net)")
    set_back = ["model.reshard()", "net.reshard()", "reshard_all(net)"]
    for text, given in ((of_dict, "self.nets"), (of_one, 'self.nets["disc"]')):
        evaluated = rewrite(
            text.format(given=given, last='with torch.no_grad():\n                self.nets["disc"](xs)')
        )
        behind = evaluated.text.split("    yield\n")[1]
        assert sum(behind.count(each) for each in set_back) == 1, behind
        assert "reshard" not in evaluated.text.split("def frozen")[1].split("yield")[0]
        assert "reshard" not in rewrite(text.format(given=given, last="xs.add_(1)")).text


def test_optimizer_that_exchanges_weights_around_an_evaluation() -> None:
    used = code("""
        def evaluate(model, optimizer, xs):
            optimizer.eval()
            with torch.no_grad():
                value = model(xs)
            optimizer.train()
            return value
        """)
    body = "    optimizer = AdamWScheduleFree(model.parameters())\n    evaluate(model, optimizer, xs)\n"
    result = rewrite(
        HEAD.replace("import torch\n", "import torch\nfrom schedulefree import AdamWScheduleFree\n") + body + used
    )
    found = [f for f in result.findings if f.rule == "FM209"]
    assert [f.level for f in found] == [Level.REVIEW]
    assert result.text.splitlines()[found[0].line - 1].strip() in {"optimizer.train()", "return value"}
    quiet = rewrite(
        HEAD + body.replace("AdamWScheduleFree", "torch.optim.AdamW") + used.replace("optimizer.train", "model.train")
    )
    assert not any(f.rule == "FM209" for f in quiet.findings)
    trainer = rewrite((HEAD + body + used).replace("optimizer", "trainer").replace("ScheduleFree(", "Trainer("))
    assert not any(f.rule == "FM209" for f in trainer.findings)


FROZEN = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Frozen:
    def __init__(self, net):
        self.net = net

    def __enter__(self):
        for p in self.net.parameters():
            p.requires_grad = False

    def __exit__(self, *raised):
        for p in self.net.parameters():
            p.requires_grad = True


def train(net, xs):
    model = FSDP(net)
    frozen = Frozen(model)
    with {entered}:
        {block}
"""


@pytest.mark.parametrize("entered", ["frozen", "Frozen(model)"])
def test_object_that_sets_flags_back_behind_an_evaluation(entered: str) -> None:
    evaluated = rewrite(FROZEN.format(entered=entered, block="with torch.no_grad():\n            model(xs)")).text
    assert "        self.net.reshard()\n" in evaluated.split("def __exit__")[1]
    assert evaluated.count("reshard()") == 1
    assert "reshard" not in rewrite(FROZEN.format(entered=entered, block="torch.no_grad")).text
