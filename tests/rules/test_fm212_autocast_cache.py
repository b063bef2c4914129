"""FM212: an autocast around several forwards of a wrapped model."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, code, rewrite, rewrite_files

HEAD = """\
from contextlib import nullcontext
from functools import partial

import torch
from torch.amp import autocast
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision

"""
LOW = "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)"


def test_noop() -> None:
    check_noop(
        "import torch\nwith torch.autocast('cuda'):\n    for x in data:\n        model(x)\n        optim.step()\n"
    )


def train(body: str, arguments: str = "use_orig_params=True") -> str:
    return HEAD + (
        f"\ndef train(net, other, optimizer, batches, x):\n    model = FSDP(net, {arguments})\n"
        f"    {code(body).strip().replace(chr(10), chr(10) + '    ')}\n"
    )


STAYS = {
    "another model": "with torch.autocast('cuda'):\n    for x in batches:\n        other(x)\n        optimizer.step()",
    "another context": "with other.context():\n    for x in batches:\n        model(x)\n        optimizer.step()",
    "no cache": "with torch.autocast('cuda', cache_enabled=False):\n    for x in batches:\n        model(x)",
    "turned off": "with torch.autocast('cuda', enabled=False):\n    for x in batches:\n        model(x)",
    "float32": "with torch.autocast('cuda', dtype=torch.float32):\n    for x in batches:\n        model(x)",
    "no forward": "with torch.autocast('cuda'):\n    for x in batches:\n        model.eval()",
}
ONCE = {
    "one forward": "with torch.autocast('cuda'):\n    model(x).sum().backward()",
    "one forward a turn": "for x in batches:\n    with torch.autocast('cuda'):\n        loss = model(x)",
    "one or the other": "with torch.autocast('cuda'):\n    if x:\n        model(x)\n    else:\n        model(-x)",
    "only without gradients": "with torch.no_grad(), torch.autocast('cuda'):\n    for x in batches:\n        model(x)",
    "two models": "teacher = FSDP(other)\nwith torch.autocast('cuda'):\n    (teacher(x) - model(x)).backward()",
    "no_grad around": "with torch.no_grad():\n    with torch.autocast('cuda'):\n        model(x) + model.generate(x)",
}


@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str) -> None:
    text = train(STAYS[name])
    result = rewrite(text)
    assert {finding.rule for finding in result.findings} <= {"FM101", "FM209"}
    assert result.text.count("autocast(") == text.count("autocast(")
    assert result.text.count("cache_enabled") == text.count("cache_enabled")


@pytest.mark.parametrize("name", ONCE)
def test_one_forward_would_keep_a_copy_of_the_whole_model(name: str) -> None:
    result = rewrite(train(ONCE[name]))
    assert "torch.autocast('cuda', cache_enabled=False)" in result.text
    assert ("FM212", "rewritten") in {(rule, level) for rule, level, _ in result.summary}


def test_one_forward_in_a_context_that_is_not_followed_is_to_review() -> None:
    check_marked(train("with x.autocast():\n    loss = model(x)"), "FM212", Level.REVIEW, "low-precision copy")


def test_low_precision_is_not_cast_again() -> None:
    result = rewrite(train("with torch.autocast('cuda'):\n    for x in batches:\n        model(x)", LOW))
    assert "with torch.autocast('cuda'):\n" in result.text


def test_low_precision_that_a_helper_has_by_default() -> None:
    """Of the unwrapped model of a run without FSDP autocast keeps what it kept before."""
    text = code(
        """
        from functools import partial

        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


        class Net(torch.nn.Linear):
            pass


        def shard(net, device, dtype=torch.bfloat16):
            return FSDP(net, mixed_precision=MixedPrecision(param_dtype=dtype), device_id=device)


        def main(batches, rank, fsdp):
            wrap = partial(shard, device=rank)
            model = Net(2, 2)
            if fsdp:
                model = wrap(model)
            with torch.autocast("cuda", torch.bfloat16):
                for x in batches:
                    model(x)
        """
    )
    assert "cache_enabled" not in rewrite(text).text
    passed = text.replace("device=rank)", "device=rank, dtype=None)")
    assert "cache_enabled=False" in rewrite(passed).text
    assert "cache_enabled=False" in rewrite(text.replace("=torch.bfloat16)", "=torch.float32)")).text


FROZEN = [
    "net.requires_grad_(False)\n",
    "net.eval().requires_grad_(False)\n",
    "for p in net.parameters():\n    p.requires_grad = False\n",
]


@pytest.mark.parametrize("statement", FROZEN)
def test_of_frozen_parameters_nothing_is_kept(statement: str) -> None:
    """torch caches the casts of leaves that are trained (`cached_cast` of autocast_mode.cpp)."""
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def score(net, batches):
        {}    teacher = FSDP(net)
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                return [teacher(x) for x in batches]
        """
    )
    given = "".join(f"    {line}\n" for line in statement.splitlines())
    assert 'torch.autocast("cuda", torch.bfloat16):' in rewrite(text.format(given)).text
    assert 'torch.autocast("cuda", torch.bfloat16, cache_enabled=False):' in rewrite(text.format("")).text


@pytest.mark.parametrize("statement", ["net.add_adapter(batches)", "other = adapted(net)", "net.requires_grad_(True)"])
def test_of_what_is_frozen_and_added_to_copies_are_kept(statement: str) -> None:
    text = code(
        f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def score(net, batches, adapted):
            net.requires_grad_(False)
            {statement}
            model = FSDP(net)
            with torch.autocast("cuda", torch.bfloat16):
                return [model(x) for x in batches]
        """
    )
    assert "cache_enabled=False" in rewrite(text).text


LOOP = "    for x in batches:\n        model(x).sum().backward()\n        optimizer.step()"
GETS = {
    "a loop": ("with torch.autocast('cuda', torch.bfloat16):\n" + LOOP, "torch.bfloat16, cache_enabled=False)"),
    "a loop, no arguments": ("with torch.cuda.amp.autocast():\n" + LOOP, "with torch.cuda.amp.autocast(cache_enabled"),
    "imported": ("with autocast('cuda'):\n" + LOOP, "with autocast('cuda', cache_enabled=False):"),
    "trailing comma": ("with autocast(\n    'cuda',\n):\n" + LOOP, "        'cuda',\n        cache_enabled=False,\n"),
    "two forwards": ("with autocast('cuda'):\n    model(x)\n    model(-x)", "'cuda', cache_enabled=False)"),
    "two under one condition": (
        "with autocast('cuda'):\n    if x:\n        model(x)\n        model(-x)",
        "'cuda', cache_enabled=False)",
    ),
    "an evaluation first": (
        "with autocast('cuda'):\n    with torch.no_grad():\n        model(x)\n    model(x).sum().backward()",
        "'cuda', cache_enabled=False)",
    ),
    "evaluations and steps": (
        "with autocast('cuda'):\n    for x in batches:\n        with torch.no_grad():\n            model(x)\n"
        "        optimizer.step()",
        "'cuda', cache_enabled=False)",
    ),
    "a name": ("amp = autocast('cuda')\nwith x, amp:\n" + LOOP, "amp = autocast('cuda', cache_enabled=False)"),
    "a name or nothing": (
        "amp = autocast('cuda') if x else nullcontext()\nwith amp:\n" + LOOP,
        "autocast('cuda', cache_enabled=False) if x",
    ),
    "a partial": (
        "amp = partial(autocast, 'cuda')\nwith amp():\n" + LOOP,
        "partial(autocast, 'cuda', cache_enabled=False)",
    ),
    "a lambda": ("amp = lambda: autocast('cuda')\nwith amp():\n" + LOOP, "autocast('cuda', cache_enabled=False)\n"),
    "a forward in a lambda": (
        "run = lambda x: model(x).sum().backward()\nwith autocast('cuda'):\n    for x in batches:\n        run(x)",
        "with autocast('cuda', cache_enabled=False):",
    ),
    "one argument a line": (
        "with autocast(\n    'cuda',\n    enabled=x,\n):\n" + LOOP,
        "autocast(\n        'cuda',\n        enabled=x,\n        cache_enabled=False,\n    ):\n",
    ),
    "a class or nothing": (
        "amp = torch.cuda.amp.autocast if x else nullcontext\nwith amp():\n" + LOOP,
        "amp = partial(torch.cuda.amp.autocast, cache_enabled=False) if x else nullcontext\n",
    ),
    "a class": ("amp = torch.cuda.amp.autocast\nwith amp():\n" + LOOP, "with amp(cache_enabled=False):"),
}


def test_the_entry_of_another_engine_stays() -> None:
    entries = "'torch_ddp': autocast('cuda'), 'torch_fsdp': autocast('cuda')"
    text = rewrite(train("with {" + entries + "}[x]:\n    model(x).sum().backward()")).text
    assert "'torch_ddp': autocast('cuda'), 'torch_fsdp': autocast('cuda', cache_enabled=False)" in text


@pytest.mark.parametrize("name", GETS)
def test_gets_the_argument(name: str) -> None:
    body, expected = GETS[name]
    result = rewrite(train(body))
    assert expected in result.text
    assert result.text.count("cache_enabled=False") == 1
    assert ("FM212", "rewritten") in {(rule, level) for rule, level, _ in result.summary}


def test_decorated() -> None:
    text = code(
        """
        @torch.autocast("cuda")
        def epoch(model, optimizer, batches):
            for x in batches:
                model(x).sum().backward()
                optimizer.step()


        def main(net, optimizer, batches):
            epoch(FSDP(net), optimizer, batches)
        """
    )
    assert '@torch.autocast("cuda", cache_enabled=False)\n' in rewrite(HEAD + text).text


def test_through_functions_and_files() -> None:
    files = {
        "train.py": HEAD
        + code(
            """
            from context import make
            from loop import epoch


            def main(net, optimizer, batches):
                model = FSDP(net)
                with make():
                    epoch(model, optimizer, batches)
            """
        ),
        "context.py": "import torch\n\n\ndef make():\n    return torch.autocast('cuda')\n",
        "loop.py": "def epoch(model, optimizer, batches):\n    for x in batches:\n        step(model, optimizer, x)\n"
        "\n\ndef step(model, optimizer, x):\n    model(x).sum().backward()\n    optimizer.step()\n",
    }
    result = rewrite_files(files)
    assert result.after["context.py"] == files["context.py"].replace("'cuda'", "'cuda', cache_enabled=False")
    assert result.after["loop.py"] == files["loop.py"]
    assert [each.path.name for each in result.findings if each.rule == "FM212"] == ["context.py"]


def test_in_a_file_that_does_not_name_fsdp() -> None:
    files = {
        "train.py": HEAD + "from loop import epoch\n\n\ndef main(net, x):\n    epoch(FSDP(net), x)\n",
        "loop.py": "from torch import autocast\n\n\ndef epoch(model, batches):\n    with autocast('cuda'):\n"
        "        for x in batches:\n            model(x).sum().backward()\n",
    }
    assert "autocast('cuda', cache_enabled=False)" in rewrite_files(files).after["loop.py"]


UNSEEN = [
    "with x.autocast():\n" + LOOP,
    "with torch.autocast('cuda', **x):\n" + LOOP,
    "with torch.autocast('cuda', cache_enabled=x):\n" + LOOP,
    "with torch.cuda.amp.autocast(True, x, True):\n" + LOOP,
    "amp = partial(autocast, 'cuda') if x else other\nwith amp():\n" + LOOP,
]


@pytest.mark.parametrize("body", UNSEEN)
def test_not_followed(body: str) -> None:
    check_marked(train(body), "FM212", Level.MANUAL, "keeps casts")


SAMPLER = code(
    """
    import torch
    from registry import MODELS


    class Sampler:
        def __init__(self, name):
            self.model = MODELS[name]

        @torch.no_grad()
        def __call__(self, batches):
            with torch.autocast("cuda", torch.bfloat16):
                return [self.model(x) for x in batches]
    """
)
TRAINED = code(
    """
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from registry import MODELS
    {}


    def main(batches):
        dist.init_process_group("nccl")
        MODELS["net"] = FSDP(MODELS["net"])
        {}


    if __name__ == "__main__":
        main([])
    """
)
USED = 'import train\nfrom sampler import Sampler\n\nif __name__ == "__main__":\n    Sampler("net")([])\n'


def sampler(top: str = "import torch", bottom: str = "pass", **others: str) -> str:
    files = {"sampler.py": SAMPLER, "registry.py": "MODELS = {}\n", "train.py": TRAINED.format(top, bottom)}
    files |= {f"{name}.py": text for name, text in others.items()}
    return rewrite_files(files).after["sampler.py"]


TRAINS = {"top": "from sampler import Sampler", "bottom": 'Sampler("net")(batches)'}


def test_script_without_a_process_group() -> None:
    assert sampler(generate=USED) == SAMPLER
    assert "cache_enabled=False" in sampler(**TRAINS)
    assert "cache_enabled=False" in sampler(**TRAINS, generate=USED)
    for above in ("train.main([])", "train.dist.init_process_group()"):
        grouped = USED.replace('    Sampler("net")', f'    {above}\n    Sampler("net")')
        assert "cache_enabled=False" in sampler(generate=grouped)


def test_a_group_that_others_make() -> None:
    """A function that nobody calls is for who loads its file."""
    makes = "import torch.distributed as dist\n\n\ndef setup():\n    dist.init_process_group()\n"
    files = {"top": "import groups", "groups": makes, "both": "import train, sampler\n"}
    assert sampler(generate=USED.removeprefix("import train\n"), **files) == SAMPLER
    assert "cache_enabled=False" in sampler(generate=USED, **files)
    assert "cache_enabled=False" in sampler(generate="import sampler\n", **files)


def test_method_that_nobody_calls() -> None:
    assert sampler(generate="import train, sampler\n") == SAMPLER
    module = SAMPLER.replace("class Sampler:", "class Sampler(torch.nn.Module):")
    for text in (module, SAMPLER.replace("    @torch.no_grad()\n", "")):
        assert "cache_enabled=False" in sampler(sampler=text, generate="import train, sampler\n")


BY_KEY = code(
    """
    with {
        "bf16": torch.autocast("cuda", torch.bfloat16),
        "fp32": nullcontext(),
    }[x.precision]:
        model(x)
    """
)


def test_precision_by_the_same_setting() -> None:
    table = '{"fp32": torch.float32, "bf16": %s}[x.precision]'
    given = f"mixed_precision=MixedPrecision(param_dtype={table})"
    assert "cache_enabled" not in rewrite(train(BY_KEY, given % "torch.bfloat16")).text
    assert "cache_enabled=False" in rewrite(train(BY_KEY, given % "torch.float32")).text
    other = (given % "torch.bfloat16").replace("x.precision", "x.amp")
    assert "cache_enabled=False" in rewrite(train(BY_KEY, other)).text


KEPT = {
    "an attribute": ("self.amp = torch.autocast('cuda'%s) if x else Kept(x)", "kept.amp", "Kept(1)"),
    "a property": (
        "pass\n\n    @property\n    def amp(self):\n        return torch.autocast('cuda'%s)",
        "kept.amp",
        "Kept(1)",
    ),
    "a method": ("pass\n\n    def amp(self):\n        return torch.autocast('cuda'%s)", "kept.amp()", "Kept(1)"),
    "a method, by way of a name": (
        "pass\n\n    def amp(self):\n        context = torch.autocast('cuda'%s)\n        return context",
        "kept.amp()",
        "Kept(1)",
    ),
    "an argument": ("self.amp = torch.autocast('cuda'%s)", "kept", "Kept(1).amp"),
}


@pytest.mark.parametrize("name", KEPT)
def test_context_that_another_file_enters(name: str) -> None:
    made, entered, given = KEPT[name]
    files = {
        "kept.py": f"import torch\n\n\nclass Kept:\n    def __init__(self, x):\n        {made}\n",
        "step.py": f"def step(net, kept, x):\n    with {entered}:\n        (net(x) + net(-x)).backward()\n",
        "train.py": f"{HEAD}from kept import Kept\nfrom step import step\n\n\ndef train(net, x):\n"
        f"    step(FSDP(net), {given}, x)\n",
    }
    after = rewrite_files({path: text.replace("%s", "") for path, text in files.items()}).after
    assert after["kept.py"] == files["kept.py"].replace("%s", ", cache_enabled=False")
    found = rewrite_files({path: text.replace("%s", ", cache_enabled=True") for path, text in files.items()}).findings
    assert [(f.path.name, f.level) for f in found if f.rule == "FM212"] == [("step.py", Level.MANUAL)]


NET = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)

    def generate(self, x):
        return self.forward(self.forward(x))
"""
SHARDED = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from alone import SIZE
from net import Net

model = FSDP(Net())
with torch.autocast("cuda"):
    model(torch.ones(SIZE, 4)).sum().backward()
print(model.module.generate(torch.ones(2, 4)))
"""
ALONE = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from net import Net

SIZE = 4


def base(model):
    if hasattr(model, "module"):
        model = model.module
    if hasattr(model, "_orig_mod"):
        model = model._orig_mod
    return model


def main(several):
    model = Net()
    if several:
        model = DDP(model)
    inner = base(model)
    with torch.autocast("cuda"):
        inner.generate(torch.ones(2, 4))
    torch.save(inner.state_dict(), "x.pt")


if __name__ == "__main__":
    main(True)
"""


def test_a_script_that_wraps_nothing_and_runs_the_same_class() -> None:
    """What `generate` runs of itself there is no wrapped model; nor is what is taken out of DDP, or of nothing."""
    result = rewrite_files({"net.py": NET, "sharded.py": SHARDED, "alone.py": ALONE})
    assert "cache_enabled=False" in result.after["sharded.py"]
    assert result.after.get("alone.py", ALONE) == ALONE
    assert {each.path.name for each in result.findings} == {"net.py", "sharded.py"}


def test_what_a_function_returns_is_handed_to_a_function() -> None:
    """The search for where it is entered went on for ever."""
    text = HEAD + code("""
        def amp():
            return autocast('cuda')


        def run(model, batches, context):
            for batch in batches:
                with context:
                    model(batch).sum().backward()


        def main(net, batches):
            model = FSDP(net, use_orig_params=True)
            run(model, batches, amp())
        """)
    assert "return autocast('cuda', cache_enabled=False)" in rewrite(text).text
