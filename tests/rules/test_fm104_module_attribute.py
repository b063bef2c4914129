"""FM104: `.module` and `.forward(...)` of a wrapped model."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_noop, code, rewrite, rewrite_files

HEAD = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef use(net, x):\n    model = FSDP(net)\n"
)

NOOP = [
    "from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(net).module.generate()\n",
    "model.module.forward(x)\n",
    "import torch.distributed.fsdp\nself.module.forward(x)\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


STAYS = [
    "    return net.module, net.forward(x)\n",
    "    return x.module.forward(x)\n",
    "    model.module = x\n",
    "    return model.forward\n",
    '    return model.module if hasattr(model, "module") else model\n',
    "    if hasattr(model, 'module'):\n        model = model.module\n",
    "    return model.modules(), model.forwarded(x)\n",
]


@pytest.mark.parametrize("text", STAYS)
def test_what_stays(text: str) -> None:
    assert rewrite(HEAD + text).text.endswith(text)


def test_an_attribute_of_what_is_not_seen_decides_at_run_time() -> None:
    """What `unit` is, nobody says: an average and a DDP model have a `.module` that has to stay."""
    text = "class Unit:\n    def __init__(self, net):\n        self.model = FSDP(net)\n\n\ndef test_unit(unit):\n"
    result = rewrite(
        f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n{text}"
        "    assert unit.model.module.width == 3\n"
    )
    assert "    assert unwrap(unit.model).width == 3\n" in result.text


def test_a_model_is_what_fsdp1_is_given_whatever_others_pass_to_a_method_of_that_name() -> None:
    """Nobody is seen to call `update` of an average, but of a progress bar."""
    text = (
        "class Average:\n    def update(self, net):\n        with FSDP.summon_full_params(net):\n"
        "            for n, p in net.module.named_parameters():\n                self.shadow[n] = p.detach().clone()\n"
        "\n\ndef show(bar, net):\n    bar.update(1)\n    return FSDP(net)\n"
    )
    result = rewrite(f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n{text}")
    assert "        for n, p in net.named_parameters():\n" in result.text


CASES = [
    ("    return model.module\n", "    return model\n"),
    ("    return model.module.config.width\n", "    return model.config.width\n"),
    ("    return model.forward(x, y=1)\n", "    return model(x, y=1)\n"),
    ("    print(model.module, sep=model.module.sep)\n", "    print(model, sep=model.sep)\n"),
    ("    model.module.head = x\n", "    model.head = x\n"),
    ('    return f"{model.module}"\n', '    return f"{model}"\n'),
    (
        "    return (\n        model\n        .module\n        .config\n    )\n",
        "    return (\n        model\n        .config\n    )\n",
    ),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_fsdp_model(before: str, after: str) -> None:
    result = rewrite(HEAD + before)
    assert result.text.endswith(after)
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_ddp_or_fsdp_is_unwrapped_at_run_time() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn.parallel import DistributedDataParallel as DDP


        def use(net, sharded):
            model = FSDP(net) if sharded else DDP(net)
            return model.module.config
        """
    )
    result = rewrite(text)
    assert "    return unwrap(model).config\n" in result.text
    assert result.support == {"unwrap"}


@pytest.mark.parametrize("flag", ["state.is_model_ddp", "use_ddp", "args.ddp and not cfg.fsdp"])
def test_way_of_ddp_by_the_name_of_its_flag_is_unwrapped_at_run_time(flag: str) -> None:
    lines = f"    if {flag}:\n        return model.module.config\n    return model.module.width\n"
    after = f"    if {flag}:\n        return unwrap(model).config\n    return model.width\n"
    assert rewrite(HEAD + lines).text.endswith(after)


def test_model_with_a_module_of_its_own_is_not_asked_for_one() -> None:
    text = HEAD + '    return model.module if hasattr(model, "module") else model\n'
    owner = "\n\nclass Net:\n    def __init__(self, m):\n        self.module = m\n"
    assert 'return unwrap(model) if hasattr(model, "module") else model' in rewrite(text + owner).text


BOTH = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def shard(net, sharded):
    if sharded:
        return FSDP(net)
    return DDP(net)


def validate(model, loader):
    {above}
    losses = []
    for batch in loader:
        {first}
        losses.append(model.module.loss(model(batch)))
    return losses


def main(net, sharded, loader):
    validate(shard(net, sharded), loader)
"""


def test_model_that_is_read_several_times_is_unwrapped_once() -> None:
    result = rewrite(code(BOTH.format(above="model.eval()", first="print(model.module.heads)")))
    assert (
        "    module = unwrap(model)\n    for batch in loader:\n        print(module.heads)\n"
        "        losses.append(module.loss(model(batch)))\n"
    ) in result.text
    assert result.text.replace("def unwrap(model)", "").count("unwrap(model)") == 1


def test_model_that_may_not_be_wrapped_is_unwrapped_where_it_is_read_for_sure() -> None:
    """A model that is not wrapped has no module to take out."""
    text = BOTH.replace("    if sharded:", "    if not sharded:\n        return net\n    if net:")
    first = "if batch:\n            print(model.module.a, model.module.b)"
    result = rewrite(code(text.format(above="pass", first=first)))
    assert (
        "        if batch:\n            module = unwrap(model)\n            print(module.a, module.b)\n"
        "        losses.append(unwrap(model).loss(model(batch)))\n"
    ) in result.text


def test_name_that_the_function_has_is_not_taken() -> None:
    result = rewrite(code(BOTH.format(above="print(model.module.heads)", first="module = batch")))
    assert "    inner_model = unwrap(model)\n    print(inner_model.heads)\n" in result.text


REBOUND = [
    pytest.param("model = model.eval()", "print(model.module.heads)", id="another model in between"),
    pytest.param("pass", "pass", id="read once"),
]


@pytest.mark.parametrize(("above", "first"), REBOUND)
def test_model_that_is_unwrapped_where_it_is_read(above: str, first: str) -> None:
    result = rewrite(code(BOTH.format(above=above, first=first)))
    assert "losses.append(unwrap(model).loss(model(batch)))\n" in result.text


def test_data_parallel_or_fsdp_is_unwrapped_at_run_time() -> None:
    text = HEAD.replace("use(net, x)", "use(net, x, one)") + "    if one:\n        model = torch.nn.DataParallel(net)\n"
    assert "unwrap(model).save()" in rewrite("import torch\n" + text + "    model.module.save()\n").text


@pytest.mark.parametrize(
    "expression",
    [
        'model.module if hasattr(model, "module") else model',
        'model.module if x and hasattr(model, "module") else model',
    ],
)
def test_module_that_is_asked_for_stays(expression: str) -> None:
    text = code(
        f"""
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn.parallel import DistributedDataParallel as DDP


        def bare(net, x):
            model = FSDP(net) if x else DDP(net)
            return {expression}
        """
    )
    assert f"    return {expression}\n" in rewrite(text).text


def test_model_that_a_condition_chooses_is_unwrapped_at_run_time() -> None:
    text = HEAD + "    return model.module if state.is_ddp else model\n"
    assert "return unwrap(model) if state.is_ddp else model\n" in rewrite(text).text


OF_FLAG = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, ddp, other):
    {above}
    if ddp:
        model = FSDP(model)
    {below}
    raw_model = model.module if {test} else model
    return raw_model.generate()
"""


@pytest.mark.parametrize("above", ["pass", "if other:\n        model = torch.compile(model)"])
def test_what_is_asked_under_the_condition_of_the_wrap_is_that_model(above: str) -> None:
    assert "    raw_model = model\n" in rewrite(OF_FLAG.format(above=above, below="pass", test="ddp")).text


@pytest.mark.parametrize(
    ("below", "test"),
    [
        ("pass", "other"),
        ("ddp = other", "ddp"),
        ("if other:\n        model = DDP(model)", "ddp"),
        ("model = torch.compile(model)", "ddp"),
    ],
)
def test_what_may_be_another_wrappers_is_unwrapped_at_run_time(below: str, test: str) -> None:
    assert f"(model) if {test} else model" in rewrite(OF_FLAG.format(above="pass", below=below, test=test)).text


def test_wrapper_that_is_asked_for_by_its_whole_name_is_fsdp1_s_own() -> None:
    text = HEAD.replace(" as FSDP", "").replace("FSDP(", "FullyShardedDataParallel(")
    result = rewrite(text + "    return model.module if isinstance(model, FullyShardedDataParallel) else model\n")
    assert result.text.endswith("    return model\n")


def test_what_a_condition_chooses_is_unwrapped_with_what_follows_too() -> None:
    text = HEAD + "    return model.module.eval() if dist.is_initialized() else model.eval()\n"
    assert "return unwrap(model).eval() if dist.is_initialized() else model.eval()\n" in rewrite(text).text


TESTS = [
    ("if isinstance(m, FSDP):\n        return m.module", "return m"),
    ("if isinstance(m, (FSDP, DDP)):\n        return m.module", "return unwrap(m)"),
    ("if isinstance(m, FSDP) or isinstance(m, DDP):\n        return m.module", "return unwrap(m)"),
    ("if not (isinstance(m, FSDP) or isinstance(m, DDP)):\n        return m\n    return m.module", "return unwrap(m)"),
    ("if not isinstance(m, FSDP):\n        return m\n    return m.module", "return m"),
    ("if isinstance(m, DDP):\n        return m.module", "return m.module"),
    ("if isinstance(m, torch.nn.Module):\n        return m.module", "return unwrap(m)"),
    ("if x and not isinstance(m, DDP):\n        return m.module", "return m"),
    ("match m:\n        case DDP():\n            return m.module", "return m.module"),
    ("match m:\n        case FSDP():\n            return m.module", "return m"),
    ("match m:\n        case FSDP() | DDP():\n            return m.module", "return unwrap(m)"),
    (
        "match m:\n        case FSDP():\n            return m\n        case _:\n            return m.module",
        "return m.module",
    ),
    ("return isinstance(m, FSDP) and m.module.x", "and m.x"),
    ("return isinstance(m, FSDP) or m.module.x", "or m.module.x"),
]


@pytest.mark.parametrize(("body", "after"), TESTS)
def test_what_a_test_of_the_class_says(body: str, after: str) -> None:
    text = (
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\n\n\n"
        f"def bare(m, x):\n    {body}\n\n\ndef use(net, x):\n    return bare(FSDP(net) if x else DDP(net), x)\n"
    )
    assert f"{after}\n\n\ndef use" in rewrite(text).text


def test_function_that_asks_for_more_says_what_is_none() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn.parallel import DistributedDataParallel as DDP


        def is_fsdp(module):
            '''By class or by state.'''
            if isinstance(module, FSDP):
                return True
            return hasattr(module, "_state")


        def bare(model):
            return None if is_fsdp(model) else model.module


        def use(net, one):
            return bare(FSDP(net) if one else DDP(net))
        """
    )
    assert "    return None if is_fsdp(model) else model.module\n" in rewrite(text).text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("m._fsdp_wrapped_module.config", "m.config"),
        ("hasattr(m, '_fsdp_wrapped_module') and m._fsdp_wrapped_module.config", "m.config"),
        (
            "isinstance(m, Block) or (hasattr(m, '_fsdp_wrapped_module') and "
            "isinstance(m._fsdp_wrapped_module, Block))",
            "isinstance(m, Block)",
        ),
        ("getattr(m, '_fsdp_wrapped_module', m)", "getattr(m, '_fsdp_wrapped_module', m)"),
        ("m._handle.reshard(True)", "m.reshard()"),
        ("m.inner._handle.reshard()", "m.inner.reshard()"),
    ],
)
def test_what_only_fsdp1_has_of_a_model_that_is_not_followed(before: str, after: str) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    result = rewrite(f"{head}def use(net, m):\n    model = FSDP(net)\n    return model, {before}\n")
    assert result.text.endswith(f"    return model, {after}\n")
    assert {level for _, level, _ in result.summary} == {"rewritten"}


@pytest.mark.parametrize("caught", ["", " AttributeError", " Exception as e", " KeyError"])
def test_a_way_without_the_inner_module_where_there_is_none(caught: str) -> None:
    tried = f"    try:\n        model{{}}.grow(x)\n    except{caught}:\n        model.grow(x)\n"
    text = HEAD + tried
    kept = rewrite(text.format(".module")).text.endswith(tried.format(".module"))
    assert kept == ("KeyError" not in caught)
    assert rewrite(text.format(".module").replace("        model.grow", "        net.grow")).text.count(".module") == 0


def test_a_try_that_catches_nothing() -> None:
    text = HEAD + "    try:\n        model{}.grow(x)\n    finally:\n        model.grow(x)\n"
    assert rewrite(text.format(".module")).text.endswith(text.format("")[len(HEAD) :])


def test_a_loop_that_takes_wrappers_off_goes() -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef use(net, m):\n"
    loop = "    while hasattr(m, '_fsdp_wrapped_module'):\n        m = m._fsdp_wrapped_module\n"
    result = rewrite(f"{head}    model = FSDP(net)\n{loop}    return model, m\n")
    assert result.text.endswith("    model = fully_shard(net)\n    return model, m\n")


@pytest.mark.parametrize("given", ["", ", process_group=None", ", sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"])
def test_world_size_of_a_model_over_all_ranks(given: str) -> None:
    text = HEAD.replace("FSDP\n", "FSDP, ShardingStrategy\n", 1).replace("FSDP(net)", f"FSDP(net{given})")
    result = rewrite(text + "    return x / model.world_size + model.rank\n")
    assert result.text.endswith("    return x / dist.get_world_size() + dist.get_rank()\n")
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


@pytest.mark.parametrize(
    "given",
    [
        "process_group=x",
        "device_mesh=x",
        "sharding_strategy=x",
        "sharding_strategy=ShardingStrategy.HYBRID_SHARD, process_group=x",
        "**x",
    ],
)
def test_world_size_of_a_model_over_what_is_not_seen(given: str) -> None:
    text = HEAD.replace("FSDP\n", "FSDP, ShardingStrategy\n", 1).replace("FSDP(net)", f"FSDP(net, {given})")
    result = rewrite(text + "    return x / model.world_size + model.rank\n")
    assert result.text.endswith(
        "    return x / dist.get_world_size(group_of(model)) + dist.get_rank(group_of(model))\n"
    )
    assert "FM207" not in {finding.rule for finding in result.findings}


def test_a_trainer_and_settings_that_have_a_rank_too() -> None:
    text = """
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net, args):
                self.model = FSDP(net)
                args.rank = self.rank = self.model.rank
        """
    assert rewrite(code(text)).text.endswith("args.rank = self.rank = dist.get_rank()\n")


@pytest.mark.parametrize("name", ["rank", "world_size"])
def test_a_model_that_has_a_rank_of_its_own(name: str) -> None:
    own = f"    net.{name} = x\n    return model.{name}\n"
    assert rewrite(HEAD + own).text.endswith(own)


def test_device_that_the_wrapper_computes_on() -> None:
    result = rewrite(HEAD + "    return x.to(model.compute_device)\n")
    assert result.text.endswith("    return x.to(next(model.parameters()).device)\n")
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}


def test_device_where_parameters_lie_elsewhere() -> None:
    text = HEAD.replace("FSDP\n", "FSDP, CPUOffload\n", 1)
    text = text.replace("FSDP(net)", "FSDP(net, cpu_offload=CPUOffload(True))")
    result = rewrite(text + "    return x.to(model.compute_device)\n")
    assert "FM207" in {finding.rule for finding in result.findings if finding.level is Level.MANUAL}


@pytest.mark.parametrize("given", ["", ", process_group=None", ", sharding_strategy=ShardingStrategy.NO_SHARD"])
def test_group_of_a_model_over_all_ranks(given: str) -> None:
    text = HEAD.replace("FSDP\n", "FSDP, ShardingStrategy\n", 1).replace("FSDP(net)", f"FSDP(net{given})")
    result = rewrite(text + "    return gather(x, model.process_group)\n")
    assert result.text.endswith("    return gather(x, dist.group.WORLD)\n")
    assert not [finding for finding in result.findings if finding.level is Level.MANUAL]


@pytest.mark.parametrize("given", ["device_mesh=x", "sharding_strategy=x", "process_group=x"])
def test_group_of_a_model_over_what_is_not_seen(given: str) -> None:
    result = rewrite(HEAD.replace("FSDP(net)", f"FSDP(net, {given})") + "    return gather(x, model.process_group)\n")
    assert result.text.endswith("    return gather(x, group_of(model))\n")
    assert "FM207" not in {finding.rule for finding in result.findings}


def test_group_where_ddp_has_one_too() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.nn.parallel import DistributedDataParallel as DDP


        def use(net, sharded, x):
            model = FSDP(net) if sharded else DDP(net)
            return gather(x, model.process_group)
        """
    assert rewrite(code(text)).text.endswith("    return gather(x, group_of(model))\n")


@pytest.mark.parametrize("after", ["model.process_group = x\n", "net.process_group\n"])
def test_group_that_is_set_or_is_not_the_wrappers(after: str) -> None:
    assert rewrite(f"{HEAD}    {after}").text.endswith(f"    {after}")


def test_choice_by_a_condition_beside_a_model_that_is_always_wrapped() -> None:
    text = """
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def save(model):
            return model.module.state_dict() if dist.is_initialized() else model.state_dict()


        def main(net, sharded):
            save(FSDP(net) if sharded else net)
        """
    assert "unwrap(model)" in rewrite(code(text)).text


def test_a_class_that_keeps_a_model_as_module_keeps_it() -> None:
    text = """\
        from torch import nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Bare:
            def __init__(self, module):
                self.module = module

            def run(self, x):
                return self.module.generate(x)


        class Shell(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def unwrap(self):
                return self.module


        def use(net, x):
            model = FSDP(Shell(net))
            objects = [model, Bare(model)]
            for each in objects:
                each.run(x)
            return model.unwrap(), model.module.unwrap()
    """
    after = rewrite(code(text)).text
    assert "return self.module.generate(x)" in after
    assert "        return self.module\n" in after
    assert "return model.unwrap(), model.unwrap()" in after


def test_a_choice_between_the_inner_module_and_the_module_is_none() -> None:
    text = (
        "    if hasattr(model, '_fsdp_wrapped_module'):\n        inner = model._fsdp_wrapped_module\n"
        "    else:\n        inner = model\n    return inner\n"
    )
    assert rewrite(HEAD + text).text.endswith("fully_shard(net)\n    inner = model\n    return inner\n")


GUARDED = """
    {}
        if isinstance(model, (DDP, FSDP)):
            print(model.module.a)
            print(model.module.b)
"""


@pytest.mark.parametrize("guard", ["if model is not None:", "for _ in loader:"])
def test_what_may_not_be_wrapped_is_not_unwrapped_above_the_question(guard: str) -> None:
    """`unwrap(None)` and `unwrap(plain)` raise: neither has a `.module`."""
    head = BOTH[: BOTH.index("    {above}")]
    text = head + GUARDED.format(guard).lstrip("\n") + BOTH[BOTH.index("\n\ndef main") :]
    after = rewrite(code(text)).text
    assert "        if isinstance(model, (DDP, FSDPModule)):\n            module = unwrap(model)\n" in after


@pytest.mark.parametrize("flag", ["args.fsdp", "use_fsdp", "fsdp_kind is not None"])
def test_the_choice_of_another_wrapper_without_fsdp_stays(flag: str) -> None:
    line = f"    return model.net if {flag} else model.module.net\n"
    assert rewrite(HEAD + line).text.endswith(line)


@pytest.mark.parametrize("own", ["", "    net.module = net.inner\n"])
def test_a_loop_that_asks_for_the_attribute_goes_on_as_it_did(own: str) -> None:
    """`model = model` would never end for what has a `module` of its own."""
    loop = '    while hasattr(model, "module"):\n        model = model.module\n    return model\n'
    assert rewrite(HEAD + own + loop).text.endswith(loop)


BY_FLAG = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def shard(net, cfg):
    if cfg.fsdp:
        net = FSDP(net)
    elif cfg.enable_ddp:
        net = DDP(net)
    return net


def save(model, cfg):
    if cfg.enable_ddp:
        model = model.module
    return model.width


def main(net, cfg):
    save(shard(net, cfg), cfg)
"""


def test_flag_that_ddp_s_model_is_made_by_says_that_it_is_one() -> None:
    assert "        model = model.module\n" in rewrite(BY_FLAG).text
    for flag in ("cfg.enable_ddp and cfg.fsdp", "cfg.enable_ddp"):
        both = BY_FLAG.replace("if cfg.fsdp:", f"if {flag}:", 1)
        assert "        model = unwrap(model)\n" in rewrite(both).text


def test_function_that_asks_for_ddp_s_class() -> None:
    owner = "\n\ndef is_ddp(model):\n    return isinstance(model, {})\n"
    text = BY_FLAG.replace("if cfg.enable_ddp:\n        model", "if is_ddp(model):\n        model")
    assert "        model = model.module\n" in rewrite(text + owner.format("DDP")).text
    assert "        model = unwrap(model)\n" in rewrite(text + owner.format("(DDP, FSDP)")).text


STEPS = [
    ("while isinstance(m, (DDP, FSDP)):\n        m = m.module", "while isinstance(m, DDP):\n        m = m.module"),
    ("while isinstance(m, DDP):\n        m = m.module", "while isinstance(m, DDP):\n        m = m.module"),
    (
        "while isinstance(m, (int, str)):\n        m = m.module",
        "while isinstance(m, (int, str)) and not isinstance(m, FSDPModule):\n        m = m.module",
    ),
    (
        "while isinstance(m, (DDP, FSDP)):\n        print(m)\n        m = m.module",
        "while isinstance(m, (DDP, FSDPModule)):\n        print(m)\n        if isinstance(m, FSDPModule):\n"
        "            break\n        m = m.module",
    ),
    ("while isinstance(m, FSDP):\n        m = m.module", ""),
    (
        "while hasattr(m, '_orig_mod') or isinstance(m, FSDP):\n"
        "        m = m.module if isinstance(m, FSDP) else m._orig_mod",
        "while hasattr(m, '_orig_mod'):\n        m = m._orig_mod",
    ),
    (
        "while isinstance(m, (DDP, FSDP)) or hasattr(m, '_orig_mod'):\n"
        "        m = getattr(m, 'module', None) or m._orig_mod",
        "while isinstance(m, DDP) or hasattr(m, '_orig_mod'):\n        m = getattr(m, 'module', None) or m._orig_mod",
    ),
    (
        "while True:\n"
        "        if isinstance(m, FSDP):\n            m = m.module\n        elif hasattr(m, '_orig_mod'):\n"
        "            m = m._orig_mod\n        else:\n            return m",
        "while True:\n        if hasattr(m, '_orig_mod'):\n            m = m._orig_mod\n        else:\n"
        "            return m",
    ),
    (
        "while True:\n"
        "        if hasattr(m, '_orig_mod'):\n            m = m._orig_mod\n        elif isinstance(m, FSDP):\n"
        "            m = m.module\n        else:\n            return m",
        "while True:\n        if hasattr(m, '_orig_mod'):\n            m = m._orig_mod\n        else:\n"
        "            return m",
    ),
    (
        "while True:\n"
        "        if isinstance(m, (DDP, FSDP)):\n            m = m.module\n            continue\n        break",
        "while True:\n        if isinstance(m, DDP):\n            m = m.module\n            continue\n        break",
    ),
    (
        "if isinstance(m, (DDP, FSDP)):\n        return strip(m.module)",
        "if isinstance(m, DDP):\n        return strip(m.module)",
    ),
    ("if isinstance(m, FSDP):\n        return strip(m.module)", ""),
    ("return strip(m.module) if isinstance(m, FSDP) else m", "return m"),
    (
        "if hasattr(m, 'module'):\n        return strip(m.module)",
        "if hasattr(m, 'module'):\n        return strip(m.module)",
    ),
    (
        "while isinstance(m, KINDS):\n        m = m.module",
        "while isinstance(m, KINDS) and not isinstance(m, FSDPModule):\n        m = m.module",
    ),
    (
        "if is_wrapped(m):\n        return strip(m.module)",
        "if is_wrapped(m) and not isinstance(m, FSDPModule):\n        return strip(m.module)",
    ),
    (
        "if isinstance(m, DDP) or isinstance(m, FSDP):\n        return strip(m.module)",
        "if (isinstance(m, DDP) or isinstance(m, FSDPModule)) and not isinstance(m, FSDPModule):\n"
        "        return strip(m.module)",
    ),
]
STRIPS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

KINDS = (DDP, FSDP)


def is_wrapped(m):
    return isinstance(m, KINDS)


def strip(m):
    {}
    return m


def main(net, args):
    net = FSDP(net) if args.fsdp else DDP(net)
    return strip(net)
"""


@pytest.mark.parametrize(("before", "after"), STEPS)
def test_steps_from_wrapper_to_wrapper_end_at_an_fsdp2_model(before: str, after: str) -> None:
    text = rewrite(STRIPS.format(before)).text
    body = text.partition("def strip(m):\n")[2].partition("\n\n\n")[0]
    assert body.strip() == f"{after}\n    return m".strip()


def test_a_loop_over_something_else_goes_on() -> None:
    body = "step = 0\n    while step < 3:\n        m = m.module\n        step += 1"
    assert "    while step < 3:\n" in rewrite(STRIPS.format(body)).text


def test_a_recursion_that_does_more_is_left_to_a_person() -> None:
    body = "if isinstance(m, FSDP):\n        print(m)\n        return strip(m.module)"
    found = rewrite(STRIPS.format(body)).findings
    assert ("FM105", Level.MANUAL) in {(finding.rule, finding.level) for finding in found}


@pytest.mark.parametrize("line", ["model.forward = model.module.forward", "model = model.module  # the inner one"])
def test_nothing_is_set_to_itself(line: str) -> None:
    text = HEAD + f"    print(model)\n    {line}\n    return model\n"
    assert rewrite(text).text.endswith("    print(model)\n    return model\n")


def test_a_wrapper_of_ones_own_keeps_its_attribute() -> None:
    own = (
        "class Own(nn.Module):\n    def __init__(self, module):\n        super().__init__()\n"
        "        self._fsdp_wrapped_module = module\n\n    def forward(self, x):\n"
        "        return self._fsdp_wrapped_module(x)\n\n\n"
        "def inner(own):\n    return [each._fsdp_wrapped_module for each in own.blocks]\n"
    )
    text = HEAD + f"    return model._fsdp_wrapped_module, Own(net)\n\n\n{own}"
    result = rewrite("from torch import nn\n" + text)
    assert own in result.text
    assert {each.rule for each in result.findings} == {"FM101", "FM104"}
    assert "    return model, Own(net)\n" in result.text


@pytest.mark.parametrize(
    ("said", "after"),
    [
        ("isinstance(block, FSDP)", "block"),
        ("not isinstance(block, FSDP)", "block.module"),
        ("isinstance(block, (str, FSDP))", "block.module"),
    ],
)
def test_what_an_assertion_says_of_a_model(said: str, after: str) -> None:
    text = HEAD + f"    block = net.blocks[0]\n    assert {said}\n    return block.module, model\n"
    assert rewrite(text).text.endswith(f"    return {after}, model\n")


BRANCHES = {
    "the last of several": (
        """
        def strip(m):
            if hasattr(m, "_orig_mod"):
                return strip(m._orig_mod)
            elif hasattr(m, "_fsdp_wrapped_module"):
                return strip(m._fsdp_wrapped_module)
            else:
                return m
        """,
        """
        def strip(m):
            if hasattr(m, "_orig_mod"):
                return strip(m._orig_mod)
            else:
                return m
        """,
    ),
    "the first of several": (
        """
        def strip(m):
            if hasattr(m, "_fsdp_wrapped_module"):
                m = m._fsdp_wrapped_module
            elif hasattr(m, "_orig_mod"):
                m = m._orig_mod
            return m
        """,
        """
        def strip(m):
            if hasattr(m, "_orig_mod"):
                m = m._orig_mod
            return m
        """,
    ),
    "alone": (
        """
        def strip(m):
            if hasattr(m, "_fsdp_wrapped_module"):
                return strip(m._fsdp_wrapped_module)
            return m
        """,
        """
        def strip(m):
            return m
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), BRANCHES.values(), ids=BRANCHES)
def test_a_branch_for_what_only_a_wrapper_has_goes(before: str, after: str) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    wrap = "\n\ndef main(net):\n    model = FSDP(net)\n    return strip(model)\n"
    assert code(after) in rewrite(head + code(before) + wrap).text


@pytest.mark.parametrize(("made", "is_wrapper"), [("create_ddp_model(net)", True), ("build_model(net)", False)])
def test_module_of_a_librarys_ddp_in_a_script_beside(made: str, is_wrapper: bool) -> None:
    files = {
        "evaluation.py": "def evaluate(model):\n    return model.module.time\n",
        "train_ddp.py": code(
            f"""
            from detectron2.engine.defaults import build_model, create_ddp_model
            from evaluation import evaluate


            def main(net, xs):
                model = {made}
                with model.no_sync():
                    model(xs)
                return evaluate(model)
            """
        ),
        "train_fsdp.py": code(
            """
            from evaluation import evaluate
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


            def main(net):
                model = FSDP(net)
                return evaluate(model)
            """
        ),
    }
    text = rewrite_files(files).after["evaluation.py"]
    assert ("unwrap(model).time" in text) is is_wrapper


PARTS = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x):
        return self.up.forward(x)


class Deep(Block):
    def forward(self, x):
        return super().forward(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 4)
        self.blocks = nn.ModuleList([Block(), Deep()])

    def forward(self, x):
        x = self.embed.forward(x)
        for block in self.blocks:
            x = block.forward(x)
        return self.blocks[0].forward(x)


def embed(data, head):
    model = FSDP(Net(){policy})
    return head.forward(model.embed.forward(data))
"""


def test_forward_of_a_part_that_can_be_a_unit() -> None:
    """FSDP1's wrapper of a unit gathers in its own `forward`; FSDP2's hooks hang on the call of the unit."""
    text = rewrite(PARTS.replace("{policy}", ", auto_wrap_policy=ModuleWrapPolicy({Block, nn.Embedding})")).text
    assert "return head.forward(model.embed(data))" in text
    assert "x = self.embed(x)" in text
    assert "x = block(x)" in text
    assert "return self.blocks[0](x)" in text
    assert "return self.up.forward(x)" in text
    assert "return super().forward(x)" in text


def test_forward_of_a_part_where_the_model_is_one_unit() -> None:
    assert rewrite(PARTS.replace("{policy}", "")).text.count(".forward(") == PARTS.count(".forward(")


@pytest.mark.parametrize(
    "policy",
    [
        "partial(size_based_auto_wrap_policy, min_num_params=100)",
        "partial(lambda_auto_wrap_policy, lambda_fn=lambda module: len(list(module.children())) == 1)",
        "always_wrap_policy",
    ],
)
def test_forward_of_a_part_that_a_policy_of_no_classes_can_pick(policy: str) -> None:
    """By size, or by a function: any layer that a class of the model runs can be a unit; not those of another class."""
    names = "lambda_auto_wrap_policy, size_based_auto_wrap_policy, always_wrap_policy"
    text = PARTS.replace("ModuleWrapPolicy", names).replace("{policy}", f", auto_wrap_policy={policy}")
    text = text.replace("from torch import nn\n", "from functools import partial\n\nfrom torch import nn\n")
    other = "class Other(nn.Module):\n    def __init__(self):\n        self.up = nn.Linear(4, 4)\n\n"
    other += "    def forward(self, x):\n        return self.up.forward(x)\n\n\ndef embed("
    text = rewrite(text.replace("def embed(", other)).text
    for called in ("self.embed(x)", "block(x)", "self.blocks[0](x)", "self.up(x)", "model.embed(data)"):
        assert called in text
    assert text.count("super().forward(x)") == 1
    assert text.count("self.up.forward(x)") == 1
