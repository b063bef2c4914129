"""FM101: `ignored_modules` and `ignored_states`, where `fully_shard` knows `ignored_params` (torch 2.7)."""

from __future__ import annotations

import pytest

from codemods.api import Level
from fsdp_migrate.pipeline import Options

from ..helpers import Result, code, flat, meaning, rewrite

HEAD = """\
from functools import partial

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy

from net import Block


def wrap(model, args, rank):
"""
BLOCKS = "auto_wrap_policy=ModuleWrapPolicy({Block})"


def wrapped(arguments: str, above: str = "", version: tuple[int, int] = (2, 7)) -> Result:
    return rewrite(f"{HEAD}{above}    return FSDP(model, {arguments})\n", Options(torch_version=version))


def body(arguments: str, above: str = "") -> str:
    return wrapped(arguments, above).text.split("rank):\n")[1]


@pytest.mark.parametrize("argument", ["ignored_modules=None", "ignored_states=None", "ignored_parameters=None"])
def test_nothing_is_ignored(argument: str) -> None:
    assert body(argument) == "    return fully_shard(model)\n"


@pytest.mark.parametrize(
    ("above", "value", "is_nothing"),
    [
        ("", "[]", True),
        ("    ignored_modules = []\n", "ignored_modules", True),
        ("    ignored_modules = []\n    ignored_modules.append(model.head)\n", "ignored_modules", False),
        ("    ignored_modules = [model.head]\n", "ignored_modules", False),
    ],
)
def test_a_list_that_is_empty(above: str, value: str, is_nothing: bool) -> None:
    assert ("ignored_params" not in body(f"{BLOCKS}, ignored_modules={value}", above)) == is_nothing


def test_older_torch_is_said_to_lack_it() -> None:
    for version, found in (((2, 6), True), ((2, 7), False)):
        result = wrapped("ignored_modules=[model.head]", version=version)
        assert result.text.endswith("    return fully_shard(model, ignored_params=set(model.head.parameters()))\n")
        assert ("since torch 2.7" in result.findings[0].message) == found


WITHOUT_UNITS = [
    ("ignored_modules=[model.head]", "set(model.head.parameters())"),
    ("ignored_modules={model.head}", "set(model.head.parameters())"),
    (
        "ignored_modules=[model.head, model.tail]",
        "{param for module in [model.head, model.tail] for param in module.parameters()}",
    ),
    (
        "ignored_modules=args.ignored if args.ignore else None",
        "{param for module in (args.ignored if args.ignore else None) or () for param in module.parameters()}",
    ),
    (
        "ignored_modules=[model.head] if args.ignore else []",
        "{param for module in ([model.head] if args.ignore else []) for param in module.parameters()}",
    ),
    (
        "ignored_modules=args.ignored",
        "{param for module in args.ignored or () for param in module.parameters()}",
    ),
    ("ignored_states=[model.head.weight, model.head.bias]", "{model.head.weight, model.head.bias}"),
    ("ignored_parameters=[model.head.weight]", "{model.head.weight}"),
    ("ignored_states=model.head.parameters()", "set(model.head.parameters())"),
    ("ignored_states=list(model.head.parameters())", "set(model.head.parameters())"),
    (
        "ignored_states=[p for p in model.parameters() if not p.requires_grad]",
        "{p for p in model.parameters() if not p.requires_grad}",
    ),
    (
        'ignored_states=(p for name, p in model.named_parameters() if "norm" in name)',
        '{p for name, p in model.named_parameters() if "norm" in name}',
    ),
    (
        "ignored_states=[m for m in model.modules() if m.frozen]",
        "{param for module in [m for m in model.modules() if m.frozen] for param in module.parameters()}",
    ),
]


@pytest.mark.parametrize(("argument", "parameters"), WITHOUT_UNITS)
def test_set_of_parameters(argument: str, parameters: str) -> None:
    assert meaning(body(argument)) == meaning(f"return fully_shard(model, ignored_params={parameters})")


@pytest.mark.parametrize(
    ("made", "written"),
    [
        ("nn.Parameter(torch.ones(2))", "{net.part}"),
        ("nn.Linear(2, 2)", "set(net.part.parameters())"),
        ("made_elsewhere()", None),
    ],
)
def test_attribute_is_what_its_class_makes(made: str, written: str | None) -> None:
    net = f"class Net(nn.Module):\n    def __init__(self):\n        self.part = {made}\n\n\n"
    head = HEAD.replace("import torch\n", "import torch\nfrom torch import nn\n").replace("def wrap", f"{net}def wrap")
    text = f"{head}    net = Net()\n    return FSDP(net, ignored_states=[net.part])\n"
    result = rewrite(text, Options(torch_version=(2, 7)))
    if written is None:
        assert "    states = [net.part]\n" in result.text
    else:
        assert result.text.endswith(f"    return fully_shard(net, ignored_params={written})\n")


def test_units_keep_out_of_ignored_modules() -> None:
    assert body(f"{BLOCKS}, ignored_modules=[model.head]") == code(
        """
        ignored = set(model.head.modules())
            ignored_params = set(model.head.parameters())
            for module in model.modules():
                if module is not model and module not in ignored and isinstance(module, Block):
                    fully_shard(module, ignored_params=ignored_params)
            return fully_shard(model, ignored_params=ignored_params)
        """
    ).replace("ignored = ", "    ignored = ", 1)


def test_units_may_hold_ignored_parameters() -> None:
    text = body(f"{BLOCKS}, ignored_states=frozen", "    frozen = [p for p in model.parameters() if p.frozen]\n")
    assert "    ignored_params = set(frozen)\n" in text
    assert "        if module is not model and isinstance(module, Block):\n" in text


@pytest.mark.parametrize(
    ("ignored", "said"),
    [
        ("ignored_modules=[model.head]", "ignored=ignored, ignored_params=ignored_params"),
        ("ignored_states=[model.head.weight]", "ignored_params=ignored_params"),
    ],
)
def test_what_is_ignored_is_not_counted(ignored: str, said: str) -> None:
    """FSDP1 asks no policy about ignored modules, and counts no ignored parameters."""
    by_size = body(f"auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params=50), {ignored}")
    assert f"for unit in units_by_size(model, 50, whole=nn.MultiheadAttention, {said}):" in flat(by_size)
    own = body(f"auto_wrap_policy=lambda module, recurse, nonwrapped_numel: nonwrapped_numel > 50, {ignored}")
    assert f"    for unit in policy_units(model, policy, {said}):\n" in own


def test_parameters_that_are_collected_to_be_ignored_are_no_early_holder() -> None:
    loop = "    for name, p in model.named_parameters():\n        if 'norm' in name:\n            frozen.append(p)\n"
    result = wrapped("ignored_states=frozen", "    frozen = []\n" + loop)
    assert [level for _, level, _ in result.summary] == ["rewritten"]


@pytest.mark.parametrize("kwargs", ["dict(ignored_states=frozen)", '{"ignored_states": frozen}'])
def test_parameters_that_are_ignored_through_a_dict_are_no_early_holder(kwargs: str) -> None:
    above = f"    frozen = [p for p in model.parameters() if p.frozen]\n    kwargs = {kwargs}\n"
    assert body("**kwargs", above) == above + "    return shard_model(model, **kwargs)\n"


def test_what_is_ignored_is_not_broadcast() -> None:
    text = body("ignored_modules=[model.head], sync_module_states=True")
    assert "        if tensor not in ignored_params:\n            dist.broadcast(tensor.detach(), src=0)\n" in text
    assert text.endswith("    return fully_shard(model, ignored_params=ignored_params)\n")


def test_ignored_parameters_are_neither_moved_nor_broadcast() -> None:
    frozen = "    frozen = [p for p in model.parameters() if p.frozen]\n"
    text = body("ignored_states=frozen, sync_module_states=True, device_id=rank", frozen)
    assert (
        "        if tensor not in ignored_params:\n"
        "            tensor.data = tensor.data.to(rank)\n"
        "            dist.broadcast(tensor.detach(), src=0)\n"
    ) in text
    assert "model.to(" not in text


def test_buffers_of_ignored_modules_are_broadcast() -> None:
    """FSDP1 takes all buffers there; those that NCCL could broadcast were on the device already."""
    text = body("ignored_modules=[model.head], sync_module_states=True, device_id=rank")
    assert (
        "    for tensor in (*model.parameters(), *model.buffers()):\n"
        "        if tensor not in ignored_params:\n"
        "            tensor.data = tensor.data.to(rank)\n"
        "            dist.broadcast(tensor.detach(), src=0)\n"
    ) in text


def test_buffers_of_ignored_modules_keep_their_dtype() -> None:
    text = body(f"{BLOCKS}, ignored_modules=[model.head], mixed_precision=MixedPrecision(buffer_dtype=torch.float64)")
    assert (
        "    for module in model.modules():\n"
        "        if module not in ignored:\n"
        "            for buffer in module.buffers(recurse=False):\n"
    ) in text


def test_long_sets_are_broken() -> None:
    text = body(f"{BLOCKS}, ignored_modules=[m for name, m in model.named_modules() if name.startswith('lora')]")
    assert "    ignored = {\n        child\n        for module in [m for name" in text


SETS = """\
    ignored = {
        child
        for state in states
        if isinstance(state, nn.Module)
        for child in state.modules()
    }
    ignored_params = {state for state in states if isinstance(state, nn.Parameter)}
    ignored_params |= {param for module in ignored for param in module.parameters()}
    return fully_shard(model, ignored_params=ignored_params)
"""
EITHER = [
    pytest.param("ignored_states=[model.head]", "[model.head]", id="modules or parameters"),
    pytest.param("ignored_states=args.ignored", "list(args.ignored or ())", id="not seen"),
    pytest.param("ignored_parameters=args.ignored", "list(args.ignored or ())", id="by the name of an older torch"),
    pytest.param(
        "ignored_states=args.frozen if args.ignore else None",
        "list((args.frozen if args.ignore else None) or ())",
        id="maybe None",
    ),
    pytest.param(
        "ignored_modules=args.modules, ignored_states=args.states",
        "[*(args.modules or ()), *(args.states or ())]",
        id="one of two",
    ),
]


@pytest.mark.parametrize(("arguments", "states"), EITHER)
def test_modules_or_parameters_that_only_run_time_knows(arguments: str, states: str) -> None:
    assert flat(body(arguments)) == flat(f"    states = {states}\n{SETS}")


def test_ignored_modules_that_may_be_none_at_run_time() -> None:
    text = body(f"{BLOCKS}, ignored_modules=args.ignored")
    assert "    ignored = {child for module in args.ignored or () for child in module.modules()}\n" in text


def test_what_is_ignored_gets_no_values() -> None:
    text = body(f"{BLOCKS}, ignored_modules=args.ignored, param_init_fn=args.init, sync_module_states=True")
    assert "            initialize_unit(module, args.init, ignored)\n" in text
    assert "            broadcast_unit(module, torch.cuda.current_device(), ignored_params=ignored_params)\n" in text
    assert "    initialize_unit(model, args.init, ignored)\n" in text
    assert "    return shard_model(model, " in body("ignored_states=args.ignored, param_init_fn=args.init")


def test_buffers_of_a_model_without_units_beside_ignored_modules() -> None:
    arguments = "ignored_modules=[model.head], mixed_precision=MixedPrecision(buffer_dtype=torch.bfloat16)"
    assert flat(body(arguments)) == f"    return shard_model(model, {arguments})\n"


def test_clipping_goes_through_the_support_module() -> None:
    text = HEAD + "    model = FSDP(model, ignored_modules=[model.head])\n    model.clip_grad_norm_(1.0)\n"
    result = rewrite(text, Options(torch_version=(2, 7)))
    assert result.text.endswith(
        "    fully_shard(model, ignored_params=set(model.head.parameters()))\n"
        "    clip_mixed_grad_norm_(model.parameters(), 1.0)\n"
    )
    assert result.support == {"clip_mixed_grad_norm_"}


OPTIMIZERS = [
    ("model.parameters(), fused=True", True),
    ("model.parameters(), foreach=args.foreach", True),
    ("model.parameters(), fused=False", False),
    ("model.parameters()", False),
    ("values, fused=True", True),
    ("[p for p in model.parameters() if p.requires_grad], fused=True", False),
    ("args.other.parameters(), fused=True", False),
]


@pytest.mark.parametrize(("arguments", "mixed"), OPTIMIZERS)
def test_optimizer_that_takes_all_parameters_together(arguments: str, mixed: bool) -> None:
    for ignored, found in (("[model.head]", mixed), ("None", False)):
        made = f"    model = FSDP(model, ignored_modules={ignored})\n    values = model.parameters()\n"
        text = f"{HEAD}{made}    return torch.optim.AdamW({arguments})\n"
        rules = {finding.rule for finding in rewrite(text, Options(torch_version=(2, 7))).findings}
        assert ("FM124" in rules) == found


def test_a_comprehension_of_ignored_parameters_becomes_that_of_a_set() -> None:
    text = """\
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def use(net):
            return FSDP(net, ignored_parameters=[p for p in net.parameters() if not p.requires_grad])
    """
    assert "{p for p in net.parameters() if not p.requires_grad}" in rewrite(code(text)).text


IN_A_DICT = """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


    def train(model, frozen, several):
        kwargs = dict(use_orig_params=True)
        if frozen:
            kwargs["ignored_modules"] = VALUE
        model = FSDP(model, **kwargs)
        scaler = ShardedGradScaler()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        model.clip_grad_norm_(1.0)
    """


@pytest.mark.parametrize(
    ("value", "roots"),
    [("frozen", "frozen or ()"), ("[model.head]", "([model.head] if frozen else ())")],
)
def test_modules_that_a_condition_ignores(value: str, roots: str) -> None:
    result = rewrite(code(IN_A_DICT.replace("VALUE", value)))
    found = f"{{param for module in {roots} for param in module.parameters()}}"
    text = " ".join(result.text.split()).replace("{ param", "{param").replace("() }", "()}")
    assert f"fully_shard(model, ignored_params={found}" in text.replace("( model", "(model")
    assert result.support == {"clip_mixed_grad_norm_"}
    asked = {finding.rule for finding in result.findings if finding.level is Level.MANUAL}
    assert {"FM124", "FM202", "FM204"} <= asked


def test_parameters_that_a_condition_ignores_are_decided_at_run_time() -> None:
    text = IN_A_DICT.replace("ignored_modules", "ignored_states").replace("VALUE", "frozen")
    assert "shard_model" in rewrite(code(text)).support
