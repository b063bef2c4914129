"""The table of versions: one test a row, and programs that are written for the oldest torch."""

from __future__ import annotations

import inspect

import pytest

from codemods.api import Level
from codemods.tables.versions import OLDEST, SINCE, exists
from fsdp_migrate.config import Config
from fsdp_migrate.pipeline import Options

from ..helpers import code, rewrite

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", SINCE)
def test_feature_is_one_of_torch(name: str) -> None:
    import torch.distributed.fsdp as fsdp
    from torch.distributed.fsdp._fully_shard import _fsdp_common

    known = {*dir(fsdp), *dir(_fsdp_common), *dir(fsdp.FSDPModule), *inspect.signature(fsdp.fully_shard).parameters}
    installed = tuple(int(part) for part in torch.__version__.split(".")[:2])
    assert (name in known) == exists(name, installed)


@pytest.mark.parametrize("name", SINCE)
def test_feature_is_there_from_its_version_on(name: str) -> None:
    major, minor = SINCE[name]
    assert exists(name, (major, minor))
    assert exists(name, (major, minor + 1))
    assert not exists(name, (major, minor - 1))


def test_oldest_torch_is_that_of_the_options() -> None:
    assert Options().torch_version == OLDEST == Config().torch_version


PROGRAM = code(
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.nn.parallel import DistributedDataParallel


    def wrap(model, ddp):
        if ddp:
            return DistributedDataParallel(model, find_unused_parameters=True)
        return FSDP(model)
    """
)


def test_parameters_without_a_gradient_on_a_torch_that_can() -> None:
    result = rewrite(PROGRAM, Options(torch_version=(2, 13)))
    assert result.text.endswith(
        "    fully_shard(model)\n"
        "    # Parameters without a gradient count as zero, as with FSDP1.\n"
        "    model.set_reduce_scatter_unused_params(True)\n"
        "    return model\n"
    )


def test_parameters_without_a_gradient_on_an_older_torch() -> None:
    result = rewrite(PROGRAM)
    assert result.text.endswith(
        "    fully_shard(model)\n"
        "    # Parameters without a gradient count as zero, as with FSDP1.\n"
        '    if hasattr(model, "set_reduce_scatter_unused_params"):  # torch 2.13\n'
        "        model.set_reduce_scatter_unused_params(True)\n"
        "    return model\n"
    )
    (found,) = result.findings
    assert found.level is Level.REVIEW, "what is written does as FSDP1 did, on the torch that the finding names"
    assert "only torch 2.13 can treat as FSDP1 did" in found.message
    assert "torch 2.13 or newer" in found.hint


def test_parameters_without_a_gradient_where_only_run_time_knows_the_rest() -> None:
    text = PROGRAM.replace("FSDP(model)", "FSDP(model, *ddp)")
    (found,) = rewrite(text).findings
    assert found.level is Level.REVIEW
    assert "only torch 2.13 can treat as FSDP1 did" in found.message
    (found,) = rewrite(text, Options(torch_version=(2, 13))).findings
    assert found.level is Level.REWRITTEN


def test_unused_parameters_of_another_model_say_nothing() -> None:
    other = "class Teacher(Module):\n    pass\n\n\nclass Net(Module):\n    pass\n\n\n"
    text = "from torch.nn import Module\n" + PROGRAM.replace("def wrap(model, ddp):", f"{other}def wrap(ddp):")
    text = text.replace("DistributedDataParallel(model,", "DistributedDataParallel(Teacher(),")
    assert rewrite(text.replace("FSDP(model)", "FSDP(Net())")).text.endswith("    return fully_shard(Net())\n")


@pytest.mark.parametrize("value", ["False", "args.unused"])
def test_program_that_says_all_parameters_get_one(value: str) -> None:
    text = PROGRAM.replace("find_unused_parameters=True", f"find_unused_parameters={value}")
    assert rewrite(text).text.endswith("    return fully_shard(model)\n")


CHOOSING = code(
    """
    import torch
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = nn.CrossEntropyLoss()


    class Head(Loss):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 4)


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.text = nn.Linear(4, 4)
            self.image = {layer}

        def forward(self, x, image=None):
            x = self.text(x)
            {use}
            return x


    def wrap():
        return FSDP(Net())
    """
)


@pytest.mark.parametrize(
    ("layer", "use"),
    [
        ("nn.Linear(4, 4)", "if image is not None:\n            x = x + self.image(image)"),
        ("nn.Linear(4, 4)", "x = self.image(image) if image is not None else x"),
        ("nn.Linear(4, 4)", "head = self.text if image is None else self.image\n        x = head(x)"),
        ("nn.Linear(4, 4)", "is_seen = image is not None\n        if is_seen:\n            x = self.image(x)"),
        ("Head()", "if image is not None:\n            x = self.image(x)"),
        ("nn.Linear(4, 4)", "match image:\n            case None:\n                x = self.image(x)"),
        ("nn.Linear(4, 4)", "x = {'a': self.text, 'b': self.image}[image](x)"),
        ("nn.Linear(4, 4)", "x = getattr(self, image)(x)"),
        ("nn.Linear(4, 4)", "seen = image.get('x')\n        if seen is not None:\n            x = self.image(seen)"),
        ("nn.Linear(4, 4)", "if torch.rand(1) < 0.5:\n            x = self.image(x)"),
        ("nn.ModuleDict({'a': nn.Linear(4, 4)})", "x = [f(x) for n, f in self.image.items() if n in image][0]"),
        (
            "nn.ModuleList([nn.Linear(4, 4)])",
            "for i, layer in enumerate(self.image):\n            if i == image:\n                continue\n"
            "            x = layer(x)",
        ),
        ("nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])", "x = self.image[image](x)"),
        ("nn.ModuleDict({'a': nn.Linear(4, 4)})", "x = sum(self.image[name](x) for name in image)"),
        (
            "nn.Linear(4, 4)",
            "return self.loss(x, image)\n\n"
            "    def loss(self, x, kind=None):\n        x = x if kind is None else self.image(x)",
        ),
        (
            "nn.Parameter(torch.zeros(4))",
            "if image is None:\n            image = self.first(2)\n        return x + image\n\n"
            "    def first(self, rows):\n        return self.image.expand(rows, -1)",
        ),
    ],
)
def test_layer_that_some_batches_use(layer: str, use: str) -> None:
    text = CHOOSING.format(layer=layer, use=use)
    if "self.image[" in use:  # of a part of the model too
        text = text.replace("FSDP(Net())", "FSDP(nn.Sequential(Net()))")
    assert "    if hasattr(" in rewrite(text).text
    assert {finding.level for finding in rewrite(text).findings} == {Level.REVIEW}, "there may be such batches"
    line = "set_reduce_scatter_unused_params(True, recurse=False)\n"  # a unit that is not run had no zeros
    assert line in rewrite(text, Options(torch_version=(2, 13))).text


def test_a_choice_by_what_is_given_by_keyword_alone() -> None:
    use = "if image is not None:\n            x = x + self.image(image)"
    text = CHOOSING.format(layer="nn.Linear(4, 4)", use=use).replace(
        "x, image=None):\n        x = self", "x, *, image=None):\n        x = self"
    )
    assert "set_reduce_scatter_unused_params" in rewrite(text).text


_EXPERTS = "for i, f in enumerate(self.image):\n            mask = image == i\n            "
BY_VALUES = [
    ("nn.Linear(4, 4)", "if x.sum() > 0:\n            pass\n        else:\n            x = self.image(x)"),
    ("nn.Linear(4, 4)", "x = self.image(x) if image.any() else x"),
    (
        "nn.ModuleList([nn.Linear(4, 4)])",
        f"{_EXPERTS}if not mask.any():\n                continue\n            x = f(x)",
    ),
    ("nn.ModuleList([nn.Linear(4, 4)])", f"{_EXPERTS}if mask.sum().item():\n                x = f(x)"),
    ("nn.ModuleList([nn.Linear(4, 4)])", "for e in image.unique().tolist():\n            x = self.image[e](x)"),
    (
        "nn.ModuleList([nn.Linear(4, 4)])",
        "hit = (image > 0).nonzero()\n        for e in hit:\n            f = self.image[e]\n            x = f(x)",
    ),
    (
        "nn.ModuleList([nn.Linear(4, 4)])",
        "counts = image.bincount().tolist()\n        for i in range(4):\n            if counts[i] == 0:\n"
        "                continue\n            f = self.image[i]\n            x = f(x)",
    ),
    (
        "nn.ModuleList([nn.Linear(4, 4)])",
        "for i in range(4):\n            f = self.image[i]\n            rows, _ = torch.where(image == i)\n"
        "            if rows.shape[0] == 0:\n                continue\n            x = f(x)",
    ),
    (
        "nn.ModuleList([nn.Linear(4, 4)])",
        "sizes = image.bincount().tolist()\n        for i, size in enumerate(sizes):\n            if size > 0:\n"
        "                x = self.image[i](x)",
    ),
    (
        "nn.ModuleList([nn.Linear(4, 4)])",
        "top = image.argmax(-1)\n        x = x + sum(self.image[i](x) for i in range(4) if (top == i).sum() > 0)",
    ),
    (
        "nn.ModuleList([nn.Linear(4, 4)])",
        "top = image.argmax(-1)\n        masks = [top == i for i in range(4)]\n"
        "        outs = [f(x) for f, mask in zip(self.image, masks) if mask.any()]\n        x = x + sum(outs)",
    ),
]


@pytest.mark.parametrize(("layer", "use"), BY_VALUES)
def test_layer_that_the_values_of_a_batch_choose_stops_on_an_older_torch(layer: str, use: str) -> None:
    """Ranks have other batches: gradients of different parameters would be mixed up there, without a word."""
    result = rewrite(CHOOSING.format(layer=layer, use=use))
    assert "    model.set_reduce_scatter_unused_params(True, recurse=False)  # torch 2.13\n" in result.text
    assert "hasattr" not in result.text
    (found,) = (finding for finding in result.findings if finding.rule == "FM101")
    assert found.level is Level.REVIEW
    assert "stops there" in found.hint


def test_values_that_choose_no_layer_stop_nothing() -> None:
    use = "if x.max() > 9:\n            print(x)\n        if image is not None:\n            x = self.image(x)"
    assert "    if hasattr(" in rewrite(CHOOSING.format(layer="nn.Linear(4, 4)", use=use)).text


SWITCHED = "if self.is_on:\n            x = self.image(x)"


def test_layer_that_a_switch_of_the_model_leaves_out() -> None:
    """`model.is_on = False` between two epochs; what nothing sets is chosen once, and says nothing."""
    text = CHOOSING.format(layer="nn.Linear(4, 4)\n        self.is_on = True", use=SWITCHED)
    assert rewrite(text).text.endswith("    return fully_shard(Net())\n")
    switched = f"{text}\n\ndef later(model):\n    model.is_on = False\n"
    assert "recurse=False" in rewrite(switched, Options(torch_version=(2, 13))).text
    for other in ("args.is_on = False", "model.is_off = False"):  # of something else
        assert "reduce_scatter" not in rewrite(switched.replace("model.is_on = False", other)).text
    own = switched.replace("def later(model):\n    model", "class Net2:\n    def later(self):\n        self")
    assert "reduce_scatter" not in rewrite(own).text
    deep = CHOOSING.format(
        layer="nn.ModuleList([nn.Linear(4, 4)])\n        self.depth = 1",
        use="for layer in self.image[: self.depth]:\n            x = layer(x)",
    )
    assert "reduce_scatter" not in rewrite(deep).text
    deeper = f"{deep}\n\ndef later(model):\n    model.depth = 2\n"
    assert "recurse=False" in rewrite(deeper, Options(torch_version=(2, 13))).text
    always = switched.replace("        return x", "        x = self.image(x)\n        return x")
    assert "reduce_scatter" not in rewrite(always).text


@pytest.mark.parametrize(
    ("use", "is_cut"),
    [
        ("x = self.image(x)\n        x = x.detach()", True),
        ("x = self.image(x)\n        if self.stop:\n            x = x.detach()", True),
        ("y = self.image(x)\n        x = x + y.detach()", True),
        ("y = self.image(x)\n        x = x + y + y.detach()", False),
        ("y = self.image(x)\n        x = x + y", False),
    ],
)
def test_layer_whose_gradient_is_cut_off_by_the_name_of_what_it_gives(use: str, is_cut: bool) -> None:
    text = CHOOSING.format(layer="nn.Linear(4, 4)", use=use)
    base = text.replace("    def forward", "\n\nclass Own(Net):\n    def forward").replace("FSDP(Net())", "FSDP(Own())")
    for each in (text, base):
        assert ("recurse=False" in rewrite(each, Options(torch_version=(2, 13))).text) is is_cut


OUTPUTS = {
    "as nothing": ("return x, self.image(x)", "out, _ = model(x)", True),
    "by a name that is not read": ("value = self.image(x)\n        return x, value", "out, value = model(x)", True),
    "for the log": ("return x, self.image(x)", "out, value = model(x)\n    print(value.item())", True),
    "not taken": ("return x, self.image(x)", "out = model(x)[0]", True),
    "in some steps": (
        "return {'out': x, 'value': self.image(x).squeeze(-1)}",
        "both = model(x)\n    out = both['out']\n    if step > 2:\n        out = out + both['value']",
        True,
    ),
    "of an object": ("return Out(out=x, value=self.image(x))", "both = model(x)\n    out = both.out", True),
    "by names that are chosen": (
        "both = {'out': x, 'value': torch.mean(self.image(x))}\n        return both",
        "both = model(x)\n    out = sum(both[name] for name in names)",
        True,
    ),
    "by all names": (
        "return {'out': x, 'value': self.image(x)}",
        "both = model(x)\n    out = sum(both[name] for name in both)",
        False,
    ),
    "in each step": ("return x, self.image(x)", "out, value = model(x)\n    out = out + value", False),
    "in a dict": ("return {'out': x, 'value': self.image(x)}", "out = sum(model(x).values())", False),
    "of a layer that gives the rest": ("x = self.image(x)\n        return x, self.text(x)", "out, _ = model(x)", False),
    "that is evaluated": ("return x, self.image(x)", "with torch.no_grad():\n        out, _ = model(x)", False),
}


@pytest.mark.parametrize(("returned", "read", "is_left"), OUTPUTS.values(), ids=OUTPUTS)
def test_output_that_does_not_enter_the_loss(returned: str, read: str, is_left: bool) -> None:
    text = CHOOSING.format(layer="nn.Linear(4, 4)", use=returned)
    lines = f"{read}\n    out.sum().backward()"
    for around, body in (("", lines), ("    for step in range(9):\n    ", lines.replace("\n", "\n    "))):
        whole = f"{text}\n\ndef train(x, step):\n    model = wrap()\n{around}    {body}\n"
        assert ("recurse=False" in rewrite(whole, Options(torch_version=(2, 13))).text) is is_left


@pytest.mark.parametrize(
    ("added", "is_left"),
    [("if step > 2:\n        loss = loss + model.aux", True), ("loss = loss + model.aux", False), ("pass", False)],
)
def test_loss_that_forward_keeps_for_some_steps(added: str, is_left: bool) -> None:
    text = CHOOSING.format(layer="nn.Linear(4, 4)", use="self.aux = self.image(x).mean()")
    text += (
        f"\n\ndef train(x, step):\n    model = wrap()\n    loss = model(x).sum()\n    {added}\n    loss.backward()\n"
    )
    assert ("recurse=False" in rewrite(text, Options(torch_version=(2, 13))).text) is is_left


EARLY = 'if image == "image":\n            return self.image(x)\n        return x + self.image(x) + self.more(x)'
BY_FLAG = (
    "if not self.is_on:\n            return x\n"
    "        if image is None:\n            x = x + 1\n        return self.image(x)"
)
WAYS = {
    "by name": (EARLY, "model(x), model(x, 'image')", True),
    "by keyword": (EARLY, "model(x), model(x, image='image')", True),
    "always the same": (EARLY, "model(x, 'image'), model(x + 1, 'image')", False),
    "in an evaluation": (EARLY, "model(x)\n    with torch.no_grad():\n        model(x, 'image')", False),
    "before the rest": (
        "x = self.image(x)\n        if image is None:\n            return x\n        return self.more(self.more(x))",
        "model(x), model(x, image)",
        True,
    ),
    "all of them": (
        "if image is None:\n            return self.image(x) + self.more(x)\n        return self.more(self.image(x))",
        "model(x), model(x, image)",
        False,
    ),
    "refused": (
        "if image is None:\n            raise ValueError\n        return self.more(self.image(x))",
        "model(x), model(x, image)",
        False,
    ),
    "a switch that stays": (BY_FLAG, "model(x), model(x, image)", False),
    "by a name that is chosen": (EARLY, "model(x, names[step])", True),
    "of a flag that is asked for": (
        "x = self.image(x)\n        if not image:\n            return x\n        return self.more(self.more(x))",
        "model(x, image=step % 2 == 0)",
        True,
    ),
    "by the shape": (
        "x = self.image(x)\n        if image.ndim == 2:\n            return x\n        return self.more(self.more(x))",
        "model(x, image), model(x, x)",
        False,
    ),
    "a switch": (BY_FLAG, "model(x)\n    model.is_on = False", True),
    "by a method": (
        "if image is None:\n            return self.only(x)\n        return self.only(x) + self.more(self.more(x))\n\n"
        "    def only(self, x):\n        return self.image(x)",
        "model(x), model(x, image)",
        True,
    ),
}


@pytest.mark.parametrize(("use", "runs", "is_left"), WAYS.values(), ids=WAYS)
def test_layer_that_one_way_through_forward_leaves_out(use: str, runs: str, is_left: bool) -> None:
    layer = "nn.Linear(4, 4)\n        self.more = nn.Linear(4, 4)\n        self.is_on = True"
    text = CHOOSING.format(layer=layer, use=use)
    text += f"\n\ndef train(x, image):\n    model = wrap()\n    out = {runs}\n    loss(out).backward()\n"
    assert ("recurse=False" in rewrite(text, Options(torch_version=(2, 13))).text) is is_left


OUTER = """\
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x, image=None):
        return self.net(x, image)


def wrap():
"""


@pytest.mark.parametrize(("runs", "is_left"), [(runs, is_left) for use, runs, is_left in WAYS.values() if use == EARLY])
def test_layer_that_one_way_through_a_model_inside_leaves_out(runs: str, is_left: bool) -> None:
    layer = "nn.Linear(4, 4)\n        self.more = nn.Linear(4, 4)"
    text = (
        CHOOSING.format(layer=layer, use=EARLY).replace("def wrap():\n", OUTER).replace("FSDP(Net())", "FSDP(Outer())")
    )
    text += f"\n\ndef train(x, image):\n    model = wrap()\n    out = {runs}\n    loss(out).backward()\n"
    options = Options(torch_version=(2, 13))
    assert ("_unused_params(True, recurse=False)" in rewrite(text, options).text) is is_left
    policy = "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
    text = policy + text.replace("FSDP(Outer())", "FSDP(Outer(), auto_wrap_policy=ModuleWrapPolicy({Net}))")
    assert ("_unused_params(True)" in rewrite(text, options).text) is is_left, "a unit of its own"


BY_CHANCE = {
    "at once": ("if self.training and torch.rand(1) < 0.5:\n            return x\n        x = self.image(x)", True),
    "by a name": (
        "throw = random.random()\n        skip = self.training and throw < 0.5\n        if not skip:\n"
        "            x = self.image(x)",
        True,
    ),
    "by a method": (
        "if self.keeps():\n            x = self.image(x)\n        return x\n\n"
        "    def keeps(self):\n        return random.random() < 0.5",
        True,
    ),
    "as long as": ("while x.max() > 1:\n            x = self.image(x)", True),
    "by values": ("if image.any():\n            x = self.image(x)", True),
    "by values, at once": ("x = self.image(x) if image.sum() > 0 else x", True),
    "by values that come above": ("hits = image.sum().item()\n        if hits:\n            x = self.image(x)", True),
    "for no layer": ("if torch.rand(1) < 0.5:\n            x = x + 1\n        x = self.image(x)", False),
    "in an evaluation": ("if not self.training:\n            return x\n        x = self.image(x)", False),
}


@pytest.mark.parametrize(("use", "is_left"), BY_CHANCE.values(), ids=BY_CHANCE)
def test_layer_that_chance_or_a_batch_leaves_out_of_a_class_inside(use: str, is_left: bool) -> None:
    """Stochastic depth within a unit: FSDP1's flat gradient held zeros for what was not run."""
    text = "import random\n" + CHOOSING.format(layer="nn.Linear(4, 4)", use=use)
    inner = text.replace("FSDP(Net())", "FSDP(nn.Sequential(Net()))")
    options = Options(torch_version=(2, 13))
    assert ("_unused_params(True, recurse=False)" in rewrite(inner, options).text) is is_left
    policy = "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
    unit = policy + inner.replace("(Net()))", "(Net()), auto_wrap_policy=ModuleWrapPolicy({Net}))")
    assert ("_unused_params(True)" in rewrite(unit, options).text) is is_left


RESIDUAL = code(
    """
    import torch
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy


    class Block(nn.Module):
        def __init__(self, fn):
            super().__init__()
            self.p = 0.5
            self.fn = fn
            self.norm = nn.LayerNorm(4)
            self.drop = nn.Dropout(0.1)
            self.rng = torch.Generator().manual_seed(0)

        def forward(self, x, use=True):
            {use}


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(nn.Linear(4, 4)) for _ in range(2)])

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x


    def wrap():
        return FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
    """
)
_DROPS = "if self.training and torch.rand(1, generator=self.rng) < self.p:\n            return "
WHOLE = {
    "all": (f"{_DROPS}x\n        return x + self.drop(self.fn(self.norm(x)))", False),
    "under a condition": ("if use:\n            x = x + self.fn(self.norm(x))\n        return x", False),
    "what it is given": (f"{_DROPS}self.norm(x)\n        return self.fn(self.norm(x))", True),
    "one of two": (f"x = self.fn(x)\n        {_DROPS}x\n        return self.norm(x)", True),
    "two throws": (
        "if torch.rand(1) < self.p:\n            x = self.fn(x)\n        if torch.rand(1) < self.p:\n"
        "            x = self.norm(x)\n        return x",
        True,
    ),
    "a part by a choice": (
        f"{_DROPS}x\n        return self.norm(self.fn(x) if torch.rand(1) < self.p else x)",
        True,
    ),
}


@pytest.mark.parametrize(("use", "is_left"), WHOLE.values(), ids=WHOLE)
def test_unit_that_is_left_out_as_a_whole(use: str, is_left: bool) -> None:
    """FSDP1 had no gradient for it, and no zeros: weight decay and momentum skipped it (torch 2.13, 2 ranks)."""
    text = RESIDUAL.replace("{use}", use)
    assert ("_unused_params(True)" in rewrite(text, Options(torch_version=(2, 13))).text) is is_left


IN_LISTS = {
    "numbers": "for i in random.sample(range(len(self.image)), 1):\n            x = self.image[i](x)",
    "one of them": "x = random.choice(self.image)(x)",
    "beside what is kept": "keep = torch.rand(2) > 0.5\n        for f, kept in zip(self.image, keep):\n"
    "            if not kept:\n                continue\n            x = f(x)",
    "by a list of throws": "keep = [random.random() > 0.5 for _ in self.image]\n"
    "        for i, f in enumerate(self.image):\n            if keep[i]:\n                x = f(x)",
}


@pytest.mark.parametrize("use", IN_LISTS.values(), ids=IN_LISTS)
def test_layers_of_a_list_that_chance_leaves_out(use: str) -> None:
    layers = "nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])"
    text = "import random\n" + CHOOSING.format(layer=layers, use=use)
    assert "    if hasattr(" in rewrite(text).text
    assert "recurse=False" in rewrite(text, Options(torch_version=(2, 13))).text


def test_method_that_is_found_by_its_name() -> None:
    use = (
        "return getattr(self, f'run_{image}')(x)\n\n    def run_both(self, x):\n        return self.image(self.text(x))"
        "\n\n    def run_text(self, x):\n        return self.text(x)"
    )
    text = CHOOSING.format(layer="nn.Linear(4, 4)", use=use)
    assert "recurse=False" in rewrite(text, Options(torch_version=(2, 13))).text
    same = text.replace("return self.text(x)", "return self.text(self.image(x))")
    assert "reduce_scatter" not in rewrite(same, Options(torch_version=(2, 13))).text


@pytest.mark.parametrize(
    ("test", "given", "is_left"),
    [
        ("'image' in image", "self.net(x, image)", True),
        ("image is not None", "self.net(x, image.get('image'))", True),
        ("image is not None", "self.net(x, **image)", True),
        ("image is not None", "self.net(x, image)", False),
    ],
)
def test_layer_that_a_model_inside_runs_by_what_a_batch_holds(test: str, given: str, is_left: bool) -> None:
    text = CHOOSING.format(layer="nn.Linear(4, 4)", use=f"if {test}:\n            x = self.image(x)")
    text = text.replace("def wrap():\n", OUTER.replace("self.net(x, image)", given)).replace("(Net())", "(Outer())")
    text += "\n\ndef train(x, image):\n    model = wrap()\n    loss(model(x, image)).backward()\n"
    assert ("recurse=False" in rewrite(text, Options(torch_version=(2, 13))).text) is is_left


def test_layers_by_their_numbers_are_all_run() -> None:
    """A branch that runs each in another way, and a number that nothing decides."""
    loops = (
        "for i in range(2):\n            if image:\n                x = check(self.image[i], x)\n"
        "            else:\n                x = self.image[i](x)",
        "for i in range(2):\n            x = self.image[i](x)",
        "for i, each in enumerate(image):\n            x = x + self.image[i](each)",
        "x = sum(self.image[i](x) for i in range(2) if i % 2)",
        "for i in range(2):\n            x = getattr(self.image, f'{i}')(x)",
    )
    for loop in loops:
        text = CHOOSING.format(layer="nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])", use=loop)
        assert "reduce_scatter" not in rewrite(text, Options(torch_version=(2, 13))).text


def test_layers_of_a_base_and_experts_inside_of_the_model() -> None:
    text = CHOOSING.format(layer="nn.Linear(4, 4)", use="if image is None:\n            return self.image(x)")
    base = text.replace("    def forward", "\n\nclass Own(Net):\n    def forward").replace("FSDP(Net())", "FSDP(Own())")
    assert "recurse=False" in rewrite(base, Options(torch_version=(2, 13))).text
    chosen = "for i, f in enumerate(self.image):\n            mask = x.argmax(1) == i\n            if not mask.any():\n"
    text = CHOOSING.format(
        layer="nn.ModuleList([nn.Linear(4, 4)])", use=f"{chosen}                continue\n            f(x)"
    )
    inner = text.replace("FSDP(Net())", "FSDP(nn.Sequential(Net()))")
    assert "set_reduce_scatter" in rewrite(inner, Options(torch_version=(2, 13))).text


@pytest.mark.parametrize(("index", "is_some"), [("image", True), ("0", False)])
def test_model_whose_class_is_found_by_a_name(index: str, is_some: bool) -> None:
    """Any class of the program may be the one: a reward model of hydra's kind lost the zeros of its other heads."""
    text = CHOOSING.format(layer="nn.ModuleList([nn.Linear(4, 4)])", use=f"x = self.image[{index}](x)")
    build = (
        "import importlib\n\n\ndef build(target):\n    module, name = target.rsplit('.', 1)\n"
        "    made = getattr(importlib.import_module(module), name)\n    return made()\n\n\n"
    )
    result = rewrite(build + text.replace("def wrap()", "def wrap(args)").replace("Net())\n", "build(args.net))\n"))
    assert ("set_reduce_scatter_unused_params" in result.text) == is_some


@pytest.mark.parametrize(
    ("layer", "use"),
    [
        ("nn.Linear(4, 4)", "x = self.image(x)"),
        ("nn.Linear(4, 4)", "if self.training:\n            x = self.image(x)"),
        (
            "nn.Linear(4, 4)",
            "if image is None:\n            x = self.image(x)\n        else:\n            x = self.image(image)",
        ),
        ("nn.ModuleList([nn.Linear(4, 4)])", "x = self.image[0](x)"),
        (
            "nn.ModuleList([nn.Linear(4, 4)])",
            "for i in range(2):\n            x = self.image[i](x) + self.image[image](x)",
        ),
        (
            "nn.ModuleList([nn.Linear(4, 4)])",
            "for i, layer in enumerate(self.image):\n            x = layer(x)\n            if i == image:\n"
            "                continue",
        ),
        (
            "nn.ModuleList([nn.Linear(4, 4)])",
            "for layer in self.image:\n            x = checkpoint(layer, x) if image else layer(x)",
        ),
        ("nn.CrossEntropyLoss()", "if image is not None:\n            x = self.image(x, image)"),
        ("Loss()", "if image is not None:\n            x = self.image(x)"),
        ("nn.Dropout(0.1)", "if image is not None:\n            x = self.image(x)"),
    ],
)
def test_layer_that_all_batches_use(layer: str, use: str) -> None:
    assert rewrite(CHOOSING.format(layer=layer, use=use)).text.endswith("    return fully_shard(Net())\n")
