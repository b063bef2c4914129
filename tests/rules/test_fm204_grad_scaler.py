"""FM204: `ShardedGradScaler`."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, code, meaning, rewrite, rewrite_files

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def setup(net, args):
    model = FSDP(net)
"""

NOOP = [
    "import torch\nscaler = torch.amp.GradScaler()\n",
    "from torch.cuda.amp import GradScaler as ShardedGradScaler\nscaler = ShardedGradScaler()\n",
    "from fairscale.optim.grad_scaler import ShardedGradScaler\nscaler = ShardedGradScaler()\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


CASES = [
    ("ShardedGradScaler()", "torch.amp.GradScaler()"),
    ("ShardedGradScaler(enabled=args.fp16)", "torch.amp.GradScaler(enabled=args.fp16)"),
    ("ShardedGradScaler(init_scale=2.0 ** 10, process_group=None)", "torch.amp.GradScaler(init_scale=2.0 ** 10)"),
    ('ShardedGradScaler("cuda", 1024.0)', 'torch.amp.GradScaler("cuda", 1024.0)'),
    (
        "ShardedGradScaler('cuda', 2.0, 0.5, 3.0, args, True, None)",
        "torch.amp.GradScaler('cuda', 2.0, backoff_factor=0.5, growth_factor=3.0, growth_interval=args, enabled=True)",
    ),
    ("(ShardedGradScaler if args else object)()", "(torch.amp.GradScaler if args else object)()"),
    ("isinstance(args, ShardedGradScaler)", "isinstance(args, torch.amp.GradScaler)"),
    ("ShardedGradScaler() if args.fp16 else None", "torch.amp.GradScaler() if args.fp16 else None"),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_call(before: str, after: str) -> None:
    result = rewrite(HEAD + f"    return model, {before}\n")
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}
    assert meaning(result.text) == meaning(
        "import torch\nfrom torch.distributed.fsdp import fully_shard\n\n\ndef setup(net, args):\n"
        f"    model = fully_shard(net)\n    return model, {after}\n",
    )


def test_import_inside_the_function() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def setup(net):
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
            scaler = ShardedGradScaler()
            return FSDP(net), scaler
        """
    )
    result = rewrite(text)
    assert "def setup(net):\n    scaler = torch.amp.GradScaler()\n" in result.text


MARKED = [
    pytest.param("ShardedGradScaler(**args)", id="star star"),
]


@pytest.mark.parametrize("text", MARKED)
def test_marked(text: str) -> None:
    check_marked(HEAD + f"    return model, {text}\n", "FM204", Level.MANUAL, "ShardedGradScaler")


@pytest.mark.parametrize(
    ("ignored", "level"),
    [
        ("ignored_modules=[net.head]", Level.MANUAL),
        ("ignored_modules=args.x", Level.MANUAL),
        ("ignored_modules=None", None),
        ("ignored_states=[p for p in net.parameters() if not p.requires_grad]", None),
    ],
)
def test_ignored_parameters_have_plain_gradients(ignored: str, level: Level | None) -> None:
    text = HEAD.replace("FSDP(net)", f"FSDP(net, {ignored})") + "    return model, ShardedGradScaler()\n"
    result = rewrite(text)
    found = [finding for finding in result.findings if finding.rule == "FM204"]
    assert [finding.level for finding in found] == [level or Level.REWRITTEN]
    assert ("plain gradients beside DTensors" in found[0].message) is bool(level)
    assert result.text.endswith("    return model, torch.amp.GradScaler()\n")


ONE_OF_TWO = [
    ("ShardedGradScaler() if rank else torch.amp.GradScaler()", "torch.amp.GradScaler()"),
    (
        "torch.amp.GradScaler(enabled=rank) if not rank else ShardedGradScaler(enabled=rank)",
        "torch.amp.GradScaler(enabled=rank)",
    ),
    (
        "torch.amp.GradScaler() if rank else ShardedGradScaler(enabled=rank)",
        "torch.amp.GradScaler() if rank else torch.amp.GradScaler(enabled=rank)",
    ),
    ("ShardedGradScaler() if rank() else torch.amp.GradScaler()", None),
]


@pytest.mark.parametrize(("before", "after"), ONE_OF_TWO)
def test_a_choice_of_the_same_scaler_is_none(before: str, after: str | None) -> None:
    expected = after or before.replace("Sharded", "torch.amp.")
    result = rewrite("import torch\n" + HEAD.replace("args", "rank") + f"    return {before}\n")
    assert result.text.endswith(f"    return {expected}\n")


def test_a_name_that_each_branch_imports_from_another_library() -> None:
    text = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def setup(net, fair):
    model = FSDP(net)
    if fair:
        from fairscale.optim.grad_scaler import ShardedGradScaler
        return model, ShardedGradScaler(enabled=True)
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    return model, ShardedGradScaler(enabled=False)
"""
    after = rewrite(text).text
    assert "    return model, torch.amp.GradScaler(enabled=False)\n" in after
    assert "        return model, ShardedGradScaler(enabled=True)\n" in after
    assert "fairscale.optim.grad_scaler import ShardedGradScaler" in after
    assert "sharded_grad_scaler import" not in after


def test_a_group_of_its_own_is_told() -> None:
    """GradScaler agrees on it over the mesh of the gradients, which may be smaller."""
    check_marked(HEAD + "    return ShardedGradScaler(process_group=args.group)\n", "FM204", Level.REVIEW)


PLAIN = """
    from torch.amp import GradScaler
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    import torch


    def train(net, other, args):
        model = FSDP(net)
        optimizer = torch.optim.Adam(model.parameters())
        scaler = GradScaler()
        epoch(model, optimizer, scaler, args)


    def epoch(model, optimizer, scaler, args):
        scaler.scale(model(args).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    """
QUIET = [
    ("model.parameters()", "other.parameters()"),
    ("GradScaler()", "GradScaler(enabled=False)"),
    ("scaler = GradScaler()", "scaler = args.ShardedGradScaler() if args else GradScaler()"),
]


@pytest.mark.parametrize(
    ("module", "given"),
    [("torch.amp", "model.parameters()"), ("torch.cuda.amp", '[{"params": model.head.parameters()}]')],
)
def test_plain_scaler_of_a_wrapped_model(module: str, given: str) -> None:
    """Each rank decided by its own shards: scales 65536 and 32768 under FSDP1, 32768 on both now (torch 2.13)."""
    text = code(PLAIN.replace("torch.amp", module).replace("model.parameters()", given))
    result = check_marked(text, "FM204", Level.REVIEW, "its own shards")
    assert "    scaler = GradScaler()\n" in result.text


@pytest.mark.parametrize(("before", "after"), QUIET)
def test_plain_scaler_that_no_wrapped_model_comes_to(before: str, after: str) -> None:
    text = (
        code(PLAIN).replace(before, after).replace("args.Sharded", "torch.distributed.fsdp.sharded_grad_scaler.Sharded")
    )
    assert not [f for f in rewrite(text).findings if f.rule == "FM204" and f.level is Level.REVIEW]


def test_what_another_script_ignores() -> None:
    scales = HEAD + "    return model, ShardedGradScaler()\n"
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
    ignores = f"{head}model = FSDP(net, ignored_modules=[net.head])\n"
    apart = rewrite_files({"one.py": scales, "other.py": ignores})
    assert [finding.level for finding in apart.findings if finding.rule == "FM204"] == [Level.REWRITTEN]
    together = rewrite_files({"one.py": scales, "other.py": f"import one\n{ignores}"})
    assert [finding.level for finding in together.findings if finding.rule == "FM204"] == [Level.MANUAL]


def test_plain_scaler_of_a_script_beside() -> None:
    """A trainer of DDP takes its optimizer from the function that the FSDP trainer takes its own from."""
    shared = "import torch\n\n\ndef optimizer_of(model):\n    return torch.optim.AdamW(model.parameters())\n"
    step = "    scaler = torch.amp.GradScaler()\n    optimizer = optimizer_of(model)\n    scaler.step(optimizer)\n"
    one = (
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        f"from shared import optimizer_of\n\n\ndef train(net):\n    model = FSDP(net)\n{step}"
    )
    other = f"import torch\nfrom shared import optimizer_of\n\n\ndef train(model):\n{step}"
    result = rewrite_files({"shared.py": shared, "one.py": one, "other.py": other})
    assert [finding.path.name for finding in result.findings if finding.rule == "FM204"] == ["one.py"]


def test_the_name_that_the_file_has_is_taken() -> None:
    """`torch.amp.GradScaler()` stood beside `GradScaler("cuda")` (llm_training_demo)."""
    text = (
        "from torch.amp import GradScaler\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n\n\n"
        "def main(net, sharded):\n"
        "    model = FSDP(net)\n"
        "    return model, ShardedGradScaler() if sharded else GradScaler()\n"
    )
    after = rewrite(text).text
    assert after.endswith("    model = fully_shard(net)\n    return model, GradScaler()\n")
    assert "import torch\n" not in after
