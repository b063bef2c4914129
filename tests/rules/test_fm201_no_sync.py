"""FM201: `with model.no_sync():`."""

from __future__ import annotations

import textwrap

import pytest

from codemods.api import Level
from codemods.rules.training import no_sync

from ..helpers import Result, check_marked, check_noop, code, rewrite, rewrite_files

HEAD = """\
from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


"""


def after(text: str) -> str:
    """What follows the imports of a program that goes on like this."""
    return "def " + rewrite(HEAD + code(text)).text.split("\ndef ", 1)[1]


NOOP = [
    pytest.param("from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(m).no_sync()\n", id="DDP only"),
    pytest.param("def step(model):\n    with model.no_sync():\n        pass\n", id="a program without FSDP1"),
    pytest.param("with accelerator.no_sync(model):\n    pass\n", id="another library's"),
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


HELD_ELSEWHERE = """\
from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, model):
        self.model = model

    def save(self):
        if FSDP is not None and isinstance(self.model, FSDP):
            with FSDP.state_dict_type(self.model, 1):
                return 1
        return self.model.state_dict()

    def step(self, batch, is_last):
        skip = self.model.no_sync if hasattr(self.model, "no_sync") and not is_last else nullcontext
        with skip():
            self.model(batch).sum().backward()
"""


def test_one_that_is_asked_for_of_a_model_that_nobody_is_seen_to_give() -> None:
    """The test of it became one for an FSDP2 model, which has none: the first step raised."""
    files = {"trainer.py": HELD_ELSEWHERE, "train.py": f"{HEAD}model = FSDP(net)\n"}
    text = rewrite_files(files).after["trainer.py"]
    assert "partial(no_sync, self.model)" in text
    assert "return self.model.state_dict()\n" in text


def test_method_of_another_class_stays() -> None:
    text = "class Meter:\n    def no_sync(self):\n        pass\n\n\nMeter().no_sync()\nmodel = FSDP(net)\n"
    assert "Meter().no_sync()\n" in rewrite(HEAD + text).text


LOOP = """
def train(net, batches, n, last):
    model = FSDP(net)
    for i in range(n):
        with {context}:
            model(batches[i]).sum().backward()
"""
FLAGS = [
    ("model.no_sync() if i < n - 1 else nullcontext()", "i >= n - 1"),
    ("model.no_sync() if i != n - 1 else nullcontext()", "i == n - 1"),
    ("model.no_sync() if i + 1 != n else nullcontext()", "i + 1 == n"),
    ("nullcontext() if i == n - 1 else model.no_sync()", "i == n - 1"),
    ("(nullcontext() if i == n - 1 else model.no_sync())", "i == n - 1"),
    (
        "(\n            model.no_sync()\n            if i != n - 1\n            else nullcontext()\n        )",
        "i == n - 1",
    ),
    ("model.no_sync() \\\n            if i != n - 1 else nullcontext()", "i == n - 1"),
]


@pytest.mark.parametrize(("context", "flag"), FLAGS)
def test_only_backward_gets_a_flag(context: str, flag: str) -> None:
    result = rewrite(HEAD + code(LOOP.format(context=context)))
    assert result.text.endswith(
        f"    for i in range(n):\n        model.set_requires_gradient_sync({flag})\n"
        "        model(batches[i]).sum().backward()\n"
    )
    assert {level for _, level, _ in result.summary} == {"rewritten"}
    assert "nullcontext" not in result.text


NEGATED = [
    ("model.no_sync() if not last else nullcontext()", "last"),
    ("model.no_sync() if last else nullcontext()", "not last"),
    ("model.no_sync() if last() else nullcontext()", "not last()"),
    ("model.no_sync() if i % 4 else nullcontext()", "not (i % 4)"),
    ("model.no_sync() if (i + 1) % n != 0 else nullcontext()", "(i + 1) % n == 0"),
    ("model.no_sync() if i % 4 and last else nullcontext()", "not (i % 4 and last)"),
    ("model.no_sync() if 0 < i < n else nullcontext()", "not (0 < i < n)"),
    ("model.no_sync() if (i or last) < n else nullcontext()", "(i or last) >= n"),
    ("model.no_sync() if i in last else nullcontext()", "i not in last"),
    ("model.no_sync() if i is None else nullcontext()", "i is not None"),
]


@pytest.mark.parametrize(("context", "flag"), NEGATED)
def test_without_zero_grad_left_over_gradients_go_on_as_before(context: str, flag: str) -> None:
    result = rewrite(HEAD + code(LOOP.format(context=context)))
    assert result.text.endswith(
        f"        model.set_requires_gradient_sync({flag})\n        model(batches[i]).sum().backward()\n"
    )
    assert {level for _, level, _ in result.summary} == {"rewritten"}


ENUMERATED = [
    "(i + 1) % 4 == 0 or (i + 1) == len(batches)",
    "i == (len(batches) - 1) or not i",
    "i >= len(batches) - 1",
]


@pytest.mark.parametrize("flag", ENUMERATED)
def test_last_turn_of_an_enumeration(flag: str) -> None:
    text = LOOP.replace("range(n)", "enumerate(batches)").replace("for i in", "for i, x in")
    text = text.replace("    for", "    optimizer.zero_grad()\n    for")
    result = rewrite(HEAD + code(text.format(context=f"nullcontext() if {flag} else model.no_sync()")))
    assert f"        model.set_requires_gradient_sync({flag})\n" in result.text
    assert result.support == set()


# What zero_grad drops


EPOCH = """
def train(net, batches, optimizer, schedule, epochs):
    model = FSDP(net)
    for epoch in range(epochs):
{before}
        for i, x in enumerate(batches):
            with nullcontext() if i % 4 == 3 else model.no_sync():
                model(x).sum().backward()
            if i % 4 == 3:
{step}
"""
STEP = "optimizer.step()\noptimizer.zero_grad()"
DISCARD = "discard_unsynced_gradients(model)"


def indented(text: str, by: int) -> str:
    return textwrap.indent(text, " " * by)


DROPS = [
    ("optimizer.zero_grad()", f"optimizer.zero_grad()\n{DISCARD}"),
    ("optimizer.zero_grad()  # all", f"optimizer.zero_grad()  # all\n{DISCARD}"),
    ("model.zero_grad(set_to_none=True)", f"model.zero_grad(set_to_none=True)\n{DISCARD}"),
    ("model.train(); optimizer.zero_grad()", f"model.train(); optimizer.zero_grad(); {DISCARD}"),
    ("if epoch: optimizer.zero_grad()", f"if epoch: optimizer.zero_grad(); {DISCARD}"),
    ("schedule.step()\noptimizer.zero_grad()", f"schedule.step()\noptimizer.zero_grad()\n{DISCARD}"),
]


@pytest.mark.parametrize(("before", "after"), DROPS)
def test_what_zero_grad_dropped_is_discarded(before: str, after: str) -> None:
    result = rewrite(HEAD + code(EPOCH.format(before=indented(before, 8), step=indented(STEP, 16))))
    assert f"range(epochs):\n{indented(after, 8)}\n        for" in result.text
    assert result.text.replace(f"def {DISCARD}", "").count(DISCARD) == 1
    assert result.support == {"discard_unsynced_gradients"}
    assert {level for _, level, _ in result.summary} == {"rewritten"}


SYNCED = [
    STEP,
    "optimizer.step(); optimizer.zero_grad()",
    "if epoch: optimizer.step(); schedule.step(); optimizer.zero_grad()",
    "scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()",
    "if epoch:\n    scaler.step(optimizer)\nelse:\n    optimizer.step()\nschedule.step()\noptimizer.zero_grad()",
    "optimizer.step()\nif epoch:\n    model.zero_grad()",
    "optimizer.step()\nmodel(x).sum().backward()\noptimizer.zero_grad()",  # this one synchronises
    "optimizer.step()\nif x: model(x).sum().backward(); optimizer.zero_grad()",
]


@pytest.mark.parametrize("step", SYNCED)
def test_what_stepped_was_synchronised(step: str) -> None:
    result = rewrite(HEAD + code(EPOCH.format(before="        pass", step=indented(step, 16))))
    assert result.support == set()
    assert {level for _, level, _ in result.summary} == {"rewritten"}


UNSURE = [
    "schedule.step()\noptimizer.zero_grad()",
    "if epoch:\n    optimizer.step()\noptimizer.zero_grad()",
    "if epoch:\n    optimizer.step()\nelif i:\n    pass\nelse:\n    optimizer.step()\noptimizer.zero_grad()",
    "for _ in x:\n    optimizer.zero_grad()\n    optimizer.step()",
]


@pytest.mark.parametrize("step", UNSURE)
def test_a_step_that_may_not_have_been(step: str) -> None:
    text = EPOCH.format(before="        pass", step=indented(step, 16)).replace("nullcontext() if i % 4 == 3 else ", "")
    result = rewrite(HEAD + code(text))
    assert result.text.replace(f"def {DISCARD}", "").count(DISCARD) == 1
    assert result.support == {"discard_unsynced_gradients"}


def test_optimizer_of_another_method() -> None:
    text = code(
        """
        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)
                self.optimizer = SGD(self.model.parameters())

            def start(self):
                self.optimizer.zero_grad()

            def step(self, x):
                with self.model.no_sync():
                    self.model(x).sum().backward()
        """
    )
    result = rewrite(HEAD + text)
    assert "        self.optimizer.zero_grad()\n        discard_unsynced_gradients(self.model)\n" in result.text


def test_each_model_has_its_own_optimizer() -> None:
    text = code(
        """
        def train(nets, x):
            a, b = FSDP(nets[0]), FSDP(nets[1])
            first, second = SGD(a.parameters()), SGD(b.parameters())
            first.zero_grad()
            second.zero_grad()
            with a.no_sync(), b.no_sync():
                b(a(x)).sum().backward()
        """
    )
    result = rewrite(HEAD + text)
    assert (
        "    first.zero_grad()\n    discard_unsynced_gradients(a)\n"
        "    second.zero_grad()\n    discard_unsynced_gradients(b)\n"
        "    with unsynced(a), unsynced(b):\n"
    ) in result.text


def test_an_optimizer_that_may_be_another_models_names_itself() -> None:
    text = code(
        """
        class Trainer:
            def __init__(self, gen, critic, optimizers):
                self.gen, self.critic = FSDP(gen), FSDP(critic)
                self.gen_opt, self.critic_opt = optimizers

            def step(self, i, x):
                with nullcontext() if i % 4 == 3 else self.gen.no_sync():
                    self.gen(x).sum().backward()
                if i % 4 == 3:
                    self.gen_opt.step()
                self.critic_opt.zero_grad()
                self.critic(x).sum().backward()
                self.critic_opt.step()
        """
    )
    result = rewrite(HEAD + text)
    line = "discard_unsynced_gradients(self.gen, self.critic_opt)"
    assert f"        self.critic_opt.zero_grad()\n        {line}\n" in result.text


def test_a_model_that_drops_its_own_gradients_keeps_those_of_another() -> None:
    text = code(
        """
        def train(nets, batches, first):
            a, b = FSDP(nets[0]), FSDP(nets[1])
            for i, x in enumerate(batches):
                with nullcontext() if i % 4 == 3 else a.no_sync():
                    a(x).sum().backward()
                if i % 4 == 3:
                    first.step()
                    a.zero_grad()
                b.zero_grad()
                b(x).sum().backward()
        """
    )
    assert "discard_unsynced_gradients(a" not in rewrite(HEAD + text).text


NOT_SEEN = [
    pytest.param("reset = lambda: optimizer.zero_grad()", "drops them", id="in an expression"),
    pytest.param("for p in net.parameters():\n            p.grad = None", "by hand", id="by hand"),
]


@pytest.mark.parametrize(("before", "words"), NOT_SEEN)
def test_what_is_dropped_out_of_sight_needs_a_person(before: str, words: str) -> None:
    text = HEAD + code(EPOCH.format(before="        " + before, step=indented(STEP, 16)))
    result = check_marked(text, "FM201", Level.MANUAL, words)
    assert "            model.set_requires_gradient_sync(i % 4 == 3)\n" in result.text


def test_zero_grad_where_the_model_is_not_known() -> None:
    text = code(
        """
        def start(optimizer):
            optimizer.zero_grad()


        def train(net, x):
            model = FSDP(net)
            with model.no_sync():
                model(x).sum().backward()
        """
    )
    check_marked(HEAD + text, "FM201", Level.MANUAL, "`optimizer.zero_grad()` drops them")


def test_zero_grad_behind_two_no_syncs_drops_once() -> None:
    text = """
        def train(model, optimizer, loader, amp, n):
            model = FSDP(model)
            optimizer.zero_grad()
            for i, x in enumerate(loader):
                if (i + 1) % n == 0:
                    model(x).sum().backward()
                    optimizer.step()
                elif amp:
                    with model.no_sync():
                        (model(x) / n).sum().backward()
                else:
                    with model.no_sync():
                        model(x).sum().backward()
        """
    assert rewrite(HEAD + code(text)).text.count(f"    {DISCARD}\n") == 1


def test_zero_grad_behind_no_sync_of_this_file_and_of_another_drops_once() -> None:
    engine = """
        def epoch(model, loader, optimizer, backward, n):
            optimizer.zero_grad()
            for i, x in enumerate(loader):
                is_last = (i + 1) % n == 0
                context = nullcontext() if is_last else model.no_sync()
                loss = model(x).sum()
                with context:
                    backward(loss, optimizer, model, is_last)
        """
    scaler = """
        def backward(loss, optimizer, model, is_last):
            if is_last:
                loss.backward()
                optimizer.step()
            else:
                with model.no_sync():
                    loss.backward()
        """
    main = """
        from engine import epoch
        from scaler import backward

        model = FSDP(net)
        for _ in range(3):
            epoch(model, loader, optimizer, backward, 3)
        """
    files = {"main.py": HEAD + code(main), "engine.py": HEAD + code(engine), "scaler.py": code(scaler)}
    assert rewrite_files(files).after["engine.py"].count(f"    {DISCARD}\n") == 1


def test_zero_grad_of_another_file() -> None:
    loop = HEAD + code(EPOCH.format(before="        start(optimizer)", step=indented(STEP, 16)))
    files = {
        "train.py": "from other import start\n" + loop,
        "other.py": "def start(optimizer):\n    optimizer.zero_grad()\n",
    }
    result = rewrite_files(files)
    assert [f.rule for f in result.findings if f.level is Level.MANUAL] == ["FM201"]


def of_another_file(before: str, start: str) -> Result:
    loop = HEAD + code(EPOCH.format(before=f"        {before}", step=indented(STEP, 16)))
    return rewrite_files({"train.py": "from other import start\n" + loop, "other.py": start})


@pytest.mark.parametrize(
    ("before", "start"),
    [
        ("start(model)", "def start(model):\n    model.zero_grad(set_to_none=True)\n"),
        ("start(model, optimizer)", "def start(model, optimizer):\n    model.train()\n    optimizer.zero_grad()\n"),
    ],
)
def test_zero_grad_of_another_file_beside_the_model(before: str, start: str) -> None:
    result = of_another_file(before, start)
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}
    assert result.after["other.py"].endswith(start + "    discard_unsynced_gradients(model)\n")


@pytest.mark.parametrize(
    ("before", "start"),
    [
        ("start(model, net, optimizer)", "def start(model, other, optimizer):\n    optimizer.zero_grad()\n"),
        ("start(model, model, optimizer)", "def start(a, b, optimizer):\n    print(a, b)\n    optimizer.zero_grad()\n"),
        ("start(model, optimizer)", "def start(model, optimizer):\n    model.x = optimizer.zero_grad()\n"),
    ],
)
def test_zero_grad_of_another_file_of_one_of_several_models(before: str, start: str) -> None:
    assert "FM201" in [f.rule for f in of_another_file(before, start).findings if f.level is Level.MANUAL]


def test_zero_grad_of_another_file_that_no_leftover_comes_to() -> None:
    """A last turn that synchronises leaves nothing, and another file is not touched."""
    other = "def step(model, optimizer):\n    optimizer.step()\n    model.zero_grad()\n"
    loop = HEAD + code(EPOCH.format(before="        pass", step=indented(STEP, 16)))
    assert rewrite_files({"train.py": "import other\n" + loop, "other.py": other}).after["other.py"] == other


def test_the_model_beside_zero_grad_is_asked_for_where_another_file_accumulates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes long in a function of a thousand names: half of the time of VideoX-Fun."""
    asked = []
    monkeypatch.setattr(no_sync, "model_beside", lambda call, ctx: asked.append(call))
    train = (
        HEAD + "def train(net, optimizer):\n    model = FSDP(net)\n    optimizer.zero_grad()\n    optimizer.step()\n"
    )
    rewrite_files({"train.py": train, "other.py": "import train\n"})
    assert not asked
    rewrite_files({"train.py": train, "other.py": "import train\n\ndef step(model):\n    return model.no_sync()\n"})
    assert asked


def test_a_main_function_runs_once() -> None:
    """What its decorator of torch's or hydra's does is to start it."""
    text = "from torch.distributed.elastic.multiprocessing.errors import record\n" + HEAD
    loop = """
        {decorator}
        def main(net, optimizer, batches):
            for p in net.parameters():
                p.grad = None
            model = FSDP(net)
            for i, x in enumerate(batches):
                with model.no_sync() if i % 4 < 3 else nullcontext():
                    model(x).sum().backward()
                if i % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()


        main()
    """
    levels = [f.level for f in rewrite(text + code(loop.format(decorator="@record"))).findings if f.rule == "FM201"]
    assert levels == [Level.REWRITTEN]
    levels = [f.level for f in rewrite(text + code(loop.format(decorator="@again"))).findings if f.rule == "FM201"]
    assert levels == [Level.MANUAL]


def test_zero_grad_of_another_file_behind_a_step() -> None:
    loop = HEAD + code(EPOCH.format(before="        pass", step=indented(STEP, 16)))
    other = "def step(optimizer):\n    optimizer.step()\n    optimizer.zero_grad()\n"
    result = rewrite_files({"train.py": "import other\n" + loop, "other.py": other})
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


AROUND_THE_FORWARD = """
def run(model, x):
    {run}
    return model(x).sum()


def train(net, optimizer, batches, amp, last):
    model = FSDP(net)
    optimizer.zero_grad()
    for x in batches:
        with {context}:
            loss = run(model, x)
        {behind}
"""
OUTSIDE = [
    pytest.param("amp, model.no_sync() if x else amp", "pass", "x.scale(loss).backward()", False, id="scaled"),
    pytest.param("model.no_sync()", "pass", "x(loss)", True, id="not seen"),
]


@pytest.mark.parametrize(("context", "run", "behind", "is_left"), OUTSIDE)
def test_nothing_is_left_unsynchronised_where_the_backward_is_outside(
    context: str, run: str, behind: str, is_left: bool
) -> None:
    result = rewrite(HEAD + code(AROUND_THE_FORWARD.format(context=context, run=run, behind=behind)))
    assert f"        with {context.replace('model.no_sync()', 'unsynced(model)')}:\n" in result.text
    assert (DISCARD in result.text or Level.MANUAL in {f.level for f in result.findings}) is is_left
    assert any("forward alone" in finding.message for finding in result.findings) is not is_left


@pytest.mark.parametrize(
    ("context", "left"),
    [
        ("model.no_sync()", "    loss = run(model, x)\n"),
        ("model.no_sync(), amp", "    with amp:\n            loss = run(model, x)\n"),
        ("amp as a, model.no_sync()", "    with amp as a:\n            loss = run(model, x)\n"),
    ],
)
def test_the_forward_alone_needs_no_context(context: str, left: str) -> None:
    text = AROUND_THE_FORWARD.format(context=context, run="pass", behind="loss.backward()")
    result = rewrite(HEAD + code(text))
    assert f"    for x in batches:\n    {left}        loss.backward()\n" in result.text
    assert not result.support
    assert {finding.level for finding in result.findings if finding.rule == "FM201"} == {Level.REWRITTEN}


@pytest.mark.parametrize("run", ["model(x).sum().backward()", "torch.autograd.grad(model(x))"])
def test_a_backward_in_the_block_and_behind_it(run: str) -> None:
    text = AROUND_THE_FORWARD.format(context="model.no_sync()", run=run, behind="loss.backward()")
    result = rewrite(HEAD + code(text))
    assert (
        "        model.set_requires_gradient_sync(False)\n        loss = run(model, x)\n"
        "        model.set_requires_gradient_sync(True)\n        loss.backward()\n"
    ) in result.text
    assert DISCARD in result.text


STEPS = [
    pytest.param("optimizer.zero_grad()", "optimizer.step()", id="the step behind the inner loop"),
    pytest.param(
        "optimizer.zero_grad()",
        "if scaler: scaler.step(optimizer)\n                else: optimizer.step()",
        id="a scaler's",
    ),
    pytest.param("optimizer.zero_grad()", "update(optimizer)", id="in a function"),
]


@pytest.mark.parametrize(("before", "behind"), STEPS)
def test_a_step_on_every_way_to_the_next_zero_grad(before: str, behind: str) -> None:
    text = f"""
        def update(optimizer):
            optimizer.step()


        def train(net, batches, optimizer, scaler, last):
            model = FSDP(net)
            for batch in batches:
                {before}
                for part in batch:
                    with model.no_sync() if not last(part) else nullcontext():
                        if not part:
                            break
                        model(part).sum().backward()
                {behind}
        """
    result = rewrite(HEAD + code(text))
    assert "            model.set_requires_gradient_sync(last(part))\n            if not part:\n" in result.text
    assert not result.support
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_a_batch_without_a_step_leaves_gradients() -> None:
    text = """
        def train(net, batches, optimizer, last):
            model = FSDP(net)
            for batch in batches:
                optimizer.zero_grad()
                for part in batch:
                    with model.no_sync() if not last(part) else nullcontext():
                        model(part).sum().backward()
                {step}
        """
    for step in ("if batch.good: optimizer.step()", "batch.good and optimizer.step()"):
        assert DISCARD in rewrite(HEAD + code(text.format(step=step))).text


def test_what_a_caller_asks_is_what_the_function_was_told() -> None:
    """The step and the zero_grad behind it stand in different functions, under one condition or under two."""
    text = """
        class Go:
            def __call__(self, model, loss, optimizer, update):
                if update:
                    loss.backward()
                    optimizer.step()
                else:
                    with model.no_sync():
                        loss.backward()


        def train(net, batches, optimizer, go):
            model = FSDP(net)
            for i, x in enumerate(batches):
                update = i % 4 == 3
                go(model, model(x).sum(), optimizer, update={update})
                if update:
                    optimizer.zero_grad()


        train(make(), load(), adam(), Go())
        """
    for update, ending in (("update", "\n\n\ntrain("), ("i % 2", f"\n            {DISCARD}\n")):
        result = rewrite(HEAD + code(text.replace("{update}", update)))
        assert f"            optimizer.zero_grad(){ending}" in result.text
        assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_name_that_says_which_turn_is_the_last() -> None:
    text = LOOP.replace("        with", "        last = i == n - 1\n        with")
    result = rewrite(HEAD + code(text.format(context="model.no_sync() if not last else nullcontext()")))
    assert "        model.set_requires_gradient_sync(last)\n" in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_body_is_taken_out_with_its_comments_and_strings() -> None:
    assert after(
        '''
        def train(net, batches):
            model = FSDP(net)
            for i in range(4):
                # accumulate
                with model.no_sync() if i < 3 else nullcontext():  # only the last one
                    # forward
                    text = """
                    keep
                  this
                    """
                    loss = model(batches[i]).sum()

                    if i:
                        loss = loss / 4
                    loss.backward()  # gradients
                    # behind
                # after
                print(text)
        '''
    ) == code(
        '''
        def train(net, batches):
            model = fully_shard(net)
            for i in range(4):
                # accumulate
                # only the last one
                model.set_requires_gradient_sync(i >= 3)
                # forward
                text = """
                    keep
                  this
                    """
                loss = model(batches[i]).sum()

                if i:
                    loss = loss / 4
                loss.backward()  # gradients
                # behind
                # after
                print(text)
        '''
    )


def test_parentheses_in_comments_and_strings_of_the_head() -> None:
    context = '(  # :)\n            nullcontext() if batches[")"] == i else model.no_sync()  # (sync\n        )'
    text = rewrite(HEAD + code(LOOP.format(context=context))).text
    assert '        model.set_requires_gradient_sync(batches[")"] == i)\n        model(batches[i])' in text


KEPT = [
    pytest.param("with model.no_sync() as context:\n        model(1).backward()", id="as"),
    pytest.param("with model.no_sync(): model(1).backward()", id="one line"),
    pytest.param("with model.no_sync() if a else nullcontext(): model(1).backward()", id="one line with a condition"),
    pytest.param("context = model.no_sync() if a else nullcontext()\n    with context:\n        pass", id="in a name"),
    pytest.param("a.enter_context(model.no_sync())", id="exit stack"),
    pytest.param("with model.no_sync() if a else a():\n        model(1).backward()", id="another context"),
    pytest.param("with model.no_sync():\n        for _ in a:\n            step(model)", id="a backward out of sight"),
    pytest.param(
        "for _ in a:\n        with model.no_sync():\n            model(1).backward()\n            break", id="left"
    ),
]


@pytest.mark.parametrize("statement", KEPT)
def test_any_other_form_enters_the_support_modules_context(statement: str) -> None:
    text = f"def train(net, a):\n    model = FSDP(net)\n    {statement}\n"
    result = rewrite(HEAD + text)
    expected = text.replace("model.no_sync()", "unsynced(model)").replace("FSDP(", "fully_shard(")
    assert result.text.endswith(expected)
    assert result.support == {"unsynced"}


BY_FLAG = [
    pytest.param(
        "with model.no_sync():\n    model(1).backward()",
        "{off}\nmodel(1).backward()\n{on}",
        id="always",
    ),
    pytest.param(
        "with model.no_sync():\n    model(1).backward()\nmodel(1).backward()",
        "{off}\nmodel(1).backward()\n{on}\nmodel(1).backward()",
        id="two backwards",
    ),
    pytest.param(
        "for _ in a:\n    with (model.no_sync()):\n        model(1).backward()",
        "for _ in a:\n    {off}\n    model(1).backward()\n    {on}",
        id="in parentheses",
    ),
    pytest.param(
        "with a, model.no_sync():\n    model(1).backward()",
        "{off}\nwith a:\n    model(1).backward()\n{on}",
        id="behind another one",
    ),
    pytest.param(
        "with a, (model.no_sync() if a else nullcontext()):\n    model(1).backward()",
        "{set}(not a)\nwith a:\n    model(1).backward()",
        id="a condition behind another one",
    ),
    pytest.param(
        "with model.no_sync() if a else nullcontext(), a:\n    model(1).backward()",
        "{set}(not a)\nwith a:\n    model(1).backward()",
        id="before another one",
    ),
    pytest.param(
        "with a:\n    with model.no_sync():\n        model(1).backward()",
        "with a:\n    {off}\n    model(1).backward()\n    {on}",
        id="nested",
    ),
    pytest.param(
        "for i in a:\n    with model.no_sync() if i else nullcontext():\n        model(1).backward()\n"
        "model(2).backward()",
        "for i in a:\n    {set}(not i)\n    model(1).backward()\n    {on}\nmodel(2).backward()",
        id="another backward behind the loop",
    ),
    pytest.param(
        "for i in range(a):\n    with model.no_sync() if i < a - 1 else nullcontext():\n        model(1).backward()\n"
        "model(2).backward()",
        "for i in range(a):\n    {set}(i >= a - 1)\n    model(1).backward()\nmodel(2).backward()",
        id="another backward behind a last turn that synchronises",
    ),
    pytest.param(
        "context = model.no_sync() if a else nullcontext()\nprint(a)\nwith context:\n    model(1).backward()",
        "{set}(not a)\nprint(a)\nmodel(1).backward()",
        id="in a name",
    ),
    pytest.param(
        "if a and not a.last:\n    context = model.no_sync()\nelse:\n    context = nullcontext()\n"
        "with context:\n    model(1).backward()",
        "{set}(not a or a.last)\nmodel(1).backward()",
        id="if and else",
    ),
    pytest.param(
        "if a:\n    context = nullcontext()\nelse:\n    context = model.no_sync()\n"
        "with context:\n    model(1).backward()",
        "{set}(a)\nmodel(1).backward()",
        id="else and if",
    ),
    pytest.param(
        "maybe = nullcontext\n# but the last\nif isinstance(model, FSDP) and a != 3:\n    maybe = model.no_sync\n"
        "with maybe():\n    model(1).backward()",
        "# but the last\nif isinstance(model, FSDPModule):\n    {set}(a == 3)\nmodel(1).backward()",
        id="the method, with a class test",
    ),
    pytest.param(
        "with model.no_sync() if a.of_some_strategy in (1, 2, 3, 4, 5) and not a.the_last_micro_batch_of_all_of_them"
        " else nullcontext():\n    model(1).backward()",
        "{set}(\n    a.of_some_strategy not in (1, 2, 3, 4, 5) or a.the_last_micro_batch_of_all_of_them\n)\n"
        "model(1).backward()",
        id="a long condition",
    ),
]


@pytest.mark.parametrize(("before", "after"), BY_FLAG)
def test_the_flag_in_the_place_of_the_context(before: str, after: str) -> None:
    setter = "model.set_requires_gradient_sync"
    after = after.format(set=setter, off=f"{setter}(False)", on=f"{setter}(True)")
    text = "def train(net, a):\n    model = FSDP(net)\n"
    result = rewrite(HEAD + text + indented(before, 4) + "\n")
    assert result.text.endswith(f"    model = fully_shard(net)\n{indented(after, 4)}\n")
    assert not result.support


def test_inside_of_another_one() -> None:
    text = (
        "model = FSDP(net)\nwith model.no_sync():\n    with model.no_sync():\n        pass\n    model(1).backward()\n"
    )
    assert "with model.no_sync():\n" in check_marked(HEAD + text, "FM201", Level.MANUAL, "inside of another").text


def test_ddp_or_fsdp() -> None:
    text = code(
        """
        from torch.nn.parallel import DistributedDataParallel as DDP


        def train(net, batches, sharded):
            model = FSDP(net) if sharded else DDP(net)
            for i in range(4):
                with model.no_sync() if i < 3 else nullcontext():
                    model(batches[i]).sum().backward()
        """
    )
    result = rewrite(HEAD + text)
    assert "        with no_sync(model) if i < 3 else nullcontext():\n" in result.text


def test_name_of_the_users_own() -> None:
    text = "def unsynced(x):\n    return x\n\n\nmodel = FSDP(net)\nwith model.no_sync():\n    unsynced(model)\n"
    result = rewrite(HEAD + text)
    assert "with fsdp2_unsynced(model):\n    unsynced(model)\n" in result.text
    assert "\ndef fsdp2_unsynced(model):\n" in result.text


NOBODY_CALLS_IT = """\
def train(model, batches):
    with model.no_sync():
        for batch in batches:
            model(batch).sum().backward()


def wrap(net):
    return FSDP(net)
"""


def test_model_that_is_not_seen() -> None:
    result = rewrite(HEAD + NOBODY_CALLS_IT)
    assert "    with no_sync(model):\n" in result.text
    assert result.support == {"no_sync"}


def test_model_that_is_not_seen_where_the_program_has_such_a_method() -> None:
    """What no_sync is given is asked: an object of the program's own class runs its own."""
    own = "\n\nclass Trainer:\n    def no_sync(self):\n        return None\n"
    result = rewrite(HEAD + NOBODY_CALLS_IT + own)
    assert "    with no_sync(model):\n" in result.text
    assert result.support == {"no_sync"}


def test_method_that_is_given_the_model_is_not_fsdp1s() -> None:
    result = rewrite(HEAD + NOBODY_CALLS_IT.replace("model.no_sync()", "accelerator.no_sync(model)"))
    assert "    with accelerator.no_sync(model):\n" in result.text
    assert "FM201" not in {rule for rule, _, _ in result.summary}


def test_method_kept_for_later() -> None:
    text = (
        "def train(net, flag):\n    model = FSDP(net)\n"
        "    context = model.no_sync if flag else nullcontext\n    return context()\n"
    )
    result = rewrite(HEAD + text)
    assert "    context = partial(unsynced, model) if flag else nullcontext\n" in result.text
    assert result.support == {"unsynced"}


def test_tabs_and_windows_newlines_stay() -> None:
    text = code(LOOP.format(context="model.no_sync() if i != n - 1 else nullcontext()"))
    before = (HEAD + text).replace("    ", "\t").replace("\n", "\r\n")
    result = rewrite(before)
    assert "\t\tmodel.set_requires_gradient_sync(i == n - 1)\r\n\t\tmodel(batches[i])" in result.text
    assert "\n" not in result.text.replace("\r\n", "")
    assert "    " not in result.text


def test_comment_that_speaks_of_a_backward_pass() -> None:
    text = code(
        """
        model = FSDP(net)
        # loss.backward() accumulates
        for i in range(4):
            with model.no_sync() if i < 3 else nullcontext():
                model(batches[i]).sum().backward()
        """
    )
    result = rewrite(HEAD + text)
    assert "    model.set_requires_gradient_sync(i >= 3)\n" in result.text
    assert not result.support


def test_an_attribute_error_that_is_caught_still_comes() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef use(net, other):\n"
    body = "    try:\n        context = other.no_sync()\n    except AttributeError:\n        context = None\n"
    assert body in rewrite(head + "    model = FSDP(net)\n" + body + "    return model, context\n").text


def test_lines_above_one_of_the_block_come_out_with_it() -> None:
    result = rewrite(
        code(
            """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


            def main(net, batches):
                model = FSDP(net)
                for batch in batches:
                    with model.no_sync():
                        model(batch).sum().backward()
                        FSDP._is_prepared(model)
            """
        )
    )
    lines = result.text.splitlines()
    at = next(index for index, line in enumerate(lines) if "raise NotImplementedError" in line)
    assert lines[at].startswith("        raise")
    assert not lines[at].startswith("         ")
    compile(result.text, "train.py", "exec")


def test_a_line_below_one_of_the_block_comes_out_with_it() -> None:
    result = rewrite(
        code(
            """
            from contextlib import nullcontext
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


            def main(net, batches, optimizer):
                model = FSDP(net)
                for step, batch in enumerate(batches):
                    context = nullcontext() if (step % 2 and batch) else model.no_sync()
                    with context:
                        try:
                            model(batch).sum().backward()
                        except RuntimeError:
                            optimizer.zero_grad()  # dropped
                    if step % 2:
                        optimizer.step()
                        optimizer.zero_grad()
            """
        )
    )
    compile(result.text, "train.py", "exec")
    dropped = "            optimizer.zero_grad()  # dropped\n            discard_unsynced_gradients(model)\n"
    assert dropped in result.text
    assert "model.set_requires_gradient_sync(step % 2 and batch)\n" in result.text
