"""FM202: `model.clip_grad_norm_`; FM206: `torch.nn.utils.clip_grad_norm_` on a wrapped model."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, code, flat, one_line, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, args):
    model = FSDP(net)
"""


def body(text: str) -> str:
    return rewrite(HEAD + text).text.split("    model = fully_shard(net)\n")[1]


NOOP = [
    "import torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    "from torch.nn.utils import clip_grad_norm_\nclip_grad_norm_(model.parameters(), 1.0)\n",
    "model.clip_grad_norm_(1.0)\n",
    "engine.clip_grad_norm_(1.0)\n# FullyShardedDataParallel\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


OTHERS = [
    "    other = net.copy()\n    other.train()\n    torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)\n",
    "    tools.clip_grad_norm_(amp.master_params() if args else model.parameters(), 1.0)\n",
    "    tools.clip_grad_norm_(list(net.parameters()) + list(args.parameters()), 1.0)\n",
]


@pytest.mark.parametrize("text", OTHERS)
def test_other_models_and_functions_stay(text: str) -> None:
    assert body(text) == text


UNUSED = [
    ("model.clip_grad_norm_(1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    ("model.clip_grad_norm_(max_norm=1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)"),
    ("model.clip_grad_norm_(args.clip, 2)", "torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip, 2)"),
    (
        "model.clip_grad_norm_(args.clip, norm_type=1.0)",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip, norm_type=1.0)",
    ),
    ("model . clip_grad_norm_ (1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    ("a = 1; model.clip_grad_norm_(a)", "a = 1; torch.nn.utils.clip_grad_norm_(model.parameters(), a)"),
    ("_ = model.clip_grad_norm_(1)", "_ = torch.nn.utils.clip_grad_norm_(model.parameters(), 1)"),
    ("if args: model.clip_grad_norm_(1)", "if args: torch.nn.utils.clip_grad_norm_(model.parameters(), 1)"),
]


@pytest.mark.parametrize(("before", "after"), UNUSED)
def test_result_not_used(before: str, after: str) -> None:
    assert body(f"    {before}\n") == f"    {after}\n"


NORM = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()"
USED = [
    "norm = {}",
    "return {}",
    "norm = {}.item()",
    "print('norm', {})",
    "if {} > 3: pass",
    "norm = {} if args else None",
    "norms = [{}, 1]",
    "norm: float = {}",
    "_ = {}\n    print(_)",
]


@pytest.mark.parametrize("text", USED)
def test_result_becomes_a_plain_tensor(text: str) -> None:
    before = f"    {text}\n".format("model.clip_grad_norm_(1.0)")
    assert body(before) == f"    {text}\n".format(NORM)


SUPPORT = [
    "1.0, float('inf')",
    "1.0, norm_type=float('inf')",
    "1.0, args.norm",
    "1.0, norm_type=args.norm",
    "*args",
    "**args",
    "1.0, 'inf'",
    "1.0, -1",
]


@pytest.mark.parametrize("arguments", SUPPORT)
def test_other_norms_are_computed_by_the_support_module(arguments: str) -> None:
    result = rewrite(HEAD + f"    norm = model.clip_grad_norm_({arguments})\n")
    assert result.text.endswith(f"    norm = clip_grad_norm_(model.parameters(), {arguments})\n")
    assert result.support == {"clip_grad_norm_"}


@pytest.mark.parametrize("arguments", ["ignored_modules=[net.head]", "ignored_states=net.ignored"])
def test_models_that_may_have_plain_parameters(arguments: str) -> None:
    head = HEAD.replace("FSDP(net)", f"FSDP(net, {arguments})")
    result = rewrite(head + "    model.clip_grad_norm_(1.0)\n")
    asked = [f.message for f in result.findings if f.level is Level.MANUAL]
    assert ["ignored parameters are trained" in message for message in asked] == [True]
    assert result.text.endswith("    clip_mixed_grad_norm_(model.parameters(), 1.0)\n")
    of_any = rewrite(head + "    model.clip_grad_norm_(1.0, args.norm)\n")
    assert of_any.text.endswith("    clip_any_grad_norm_(model.parameters(), 1.0, args.norm)\n")


MESHES = [
    pytest.param("NO_SHARD", "FULL_SHARD", True, id="a part of replicas"),
    pytest.param("FULL_SHARD", "NO_SHARD", True, id="all but a part of replicas"),
    pytest.param("NO_SHARD", "NO_SHARD", False, id="all of replicas"),
    pytest.param("SHARD_GRAD_OP", "FULL_SHARD", False, id="all sharded"),
]


@pytest.mark.parametrize(("of_part", "of_model", "is_mixed"), MESHES)
def test_gradients_on_two_meshes_have_no_norm_of_torchs(of_part: str, of_model: str, is_mixed: bool) -> None:
    head = HEAD.replace("as FSDP", "as FSDP, ShardingStrategy")
    part = f"    net.head = FSDP(net.head, sharding_strategy=ShardingStrategy.{of_part})\n"
    model = f"    model = FSDP(net, sharding_strategy=ShardingStrategy.{of_model})\n"
    result = rewrite(head.replace("    model = FSDP(net)\n", part + model) + "    model.clip_grad_norm_(1.0)\n")
    assert result.support == ({"clip_grad_norm_on_meshes_"} if is_mixed else set())


PARTS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def with_parts(net):
    net.head = FSDP(net.head, sharding_strategy=ShardingStrategy.{})
    return net
"""
ROOT = """\
from parts import with_parts
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    net = with_parts(net)
    return net


def train(net, xs):
    model = FSDP(build(net))
    model(xs).sum().backward()
    model.clip_grad_norm_(1.0)
"""


@pytest.mark.parametrize(("of_part", "is_mixed"), [("NO_SHARD", True), ("SHARD_GRAD_OP", False)])
def test_a_part_that_another_file_wraps_may_lie_on_another_mesh(of_part: str, is_mixed: bool) -> None:
    result = rewrite_files({"parts.py": PARTS.format(of_part), "train.py": ROOT})
    assert result.support == ({"clip_grad_norm_on_meshes_"} if is_mixed else set())


NAMED = [
    pytest.param("", "torch.nn.utils.clip_grad_norm_", id="nothing"),
    pytest.param('    args["ignored_modules"] = [net.head]\n', "clip_mixed_grad_norm_", id="what it ignores"),
    pytest.param('    args["cpu_offload"] = CPUOffload(True)\n', "clip_offloaded_grad_norm_", id="offloading"),
]


@pytest.mark.parametrize(("above", "function"), NAMED)
def test_arguments_out_of_sight_are_those_that_the_program_names(above: str, function: str) -> None:
    head = HEAD.replace("as FSDP", "as FSDP, CPUOffload").replace("    model", above + "    model")
    result = rewrite(head.replace("FSDP(net)", "FSDP(net, **args)") + "    model.clip_grad_norm_(1.0)\n")
    assert result.text.endswith(f"    {function}(model.parameters(), 1.0)\n")


SPLATS = {
    "of a function": "def settings(low):\n    offload = CPUOffload(True) if low else None\n"
    "    return {'cpu_offload': offload, 'use_orig_params': True}\n",
    "of one value": "def settings(low):\n    return {'cpu_offload': CPUOffload(True), 'use_orig_params': low}\n",
}


@pytest.mark.parametrize("made", SPLATS.values(), ids=SPLATS)
def test_offloading_by_a_dict_that_goes_on(made: str) -> None:
    text = (
        "from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP\n\n\n"
        f"{made}\n\ndef use(net, args):\n    kwargs = settings(args.low)\n    model = FSDP(net, **kwargs)\n"
        "    model.clip_grad_norm_(1.0)\n"
    )
    result = rewrite(text)
    assert "CPUOffloadPolicy()" in result.text
    assert result.text.endswith("    clip_offloaded_grad_norm_(model.parameters(), 1.0)\n")


@pytest.mark.parametrize("norm", ["2", "NORM"])
def test_norm_type_by_a_name(norm: str) -> None:
    result = rewrite(f"NORM = 2.0\n{HEAD}    model.clip_grad_norm_(1.0, norm_type={norm})\n")
    assert result.text.endswith(f"    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type={norm})\n")
    assert not result.support


def test_model_in_an_attribute_across_methods() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)

            def step(self):
                self.model.clip_grad_norm_(1.0)
        """
    )
    result = rewrite(text)
    assert "        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n" in result.text
    assert result.text.startswith("import torch\nfrom torch.distributed.fsdp import fully_shard\n")


TESTS = [
    "if isinstance(model, FSDP):\n        {}",
    "if isinstance(model, FSDP) and model.training:\n        {}",
    "if not isinstance(model, FSDP):\n        pass\n    else:\n        {}",
]


@pytest.mark.parametrize("test", TESTS)
def test_class_test_tells_what_the_model_is(test: str) -> None:
    text = HEAD.split("def ")[0] + "def clip(model):\n    " + test.format("model.clip_grad_norm_(1.0)")
    result = rewrite(text + "\n\n\ndef wrap(net):\n    return FSDP(net)\n")
    after = test.replace("FSDP", "FSDPModule").format("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert "def clip(model):\n    " + after in result.text


def test_parameter_called_torch() -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel\n\n\ndef step(net, torch):\n"
    use = "    model = FullyShardedDataParallel(net)\n    model.clip_grad_norm_(torch)\n"
    result = rewrite(text + use)
    assert "    fsdp2_torch.nn.utils.clip_grad_norm_(model.parameters(), torch)\n" in result.text


def test_branches_that_call_it_by_another_name_come_to_the_same() -> None:
    text = "from torch import nn\n" + HEAD + "    if isinstance(model, FSDP):\n        model.clip_grad_norm_(1.0)\n"
    text += "    else:\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    assert rewrite(text).text.endswith("(net)\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")


UNSEEN = {
    "model.clip_grad_norm_(1.0)": (
        '    if hasattr(model, "clip_grad_norm_"):\n'
        "        model.clip_grad_norm_(1.0)\n"
        "    else:\n"
        "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    ),
    "return m.clip_grad_norm_(max_norm=c)": (
        'return ( m.clip_grad_norm_(max_norm=c) if hasattr(m, "clip_grad_norm_") else '
        "torch.nn.utils.clip_grad_norm_(m.parameters(), max_norm=c).full_tensor() )"
    ),
    "return lambda m: m.clip_grad_norm_(1.0)": (
        'return lambda m: ( m.clip_grad_norm_(1.0) if hasattr(m, "clip_grad_norm_") else '
        "torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0).full_tensor() )"
    ),
}


@pytest.mark.parametrize(("statement", "after"), UNSEEN.items())
def test_what_is_not_seen_keeps_a_method_of_its_own(statement: str, after: str) -> None:
    """XLA's and fairscale's wrappers have one, with a global norm that nobody else computes of plain shards."""
    text = HEAD + f"    return model\n\n\ndef clip(model, m, c):\n    {statement}\n"
    result = check_marked(text, "FM202", Level.REVIEW, "is not seen")
    assert " ".join(result.text.split()).endswith(" ".join(after.split()))


OF_OTHERS = [
    "def clip(engine):\n    engine.clip_grad_norm_(1.0)\n\n\n"
    "class Engine:\n    def clip_grad_norm_(self, norm):\n        pass\n",
]


@pytest.mark.parametrize("text", OF_OTHERS)
def test_method_that_others_have(text: str) -> None:
    check_marked(HEAD + "    return model\n\n\n" + text, "FM202", Level.MANUAL, "cannot tell")


def test_method_that_is_given_the_parameters() -> None:
    """FSDP1's takes the norm first: this is accelerate's."""
    text = "def clip(accelerator, model):\n    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n"
    result = rewrite(HEAD + "    return model\n\n\n" + text)
    assert "FM202" not in {rule for rule, _, _ in result.summary}
    assert result.text.endswith(text)


def test_function_that_becomes_an_attribute() -> None:
    own = "\n\nclass Trainer:\n    def __init__(self, clip):\n        self.clip_grad_norm_ = clip\n"
    result = rewrite(HEAD + "    return model\n" + own)
    assert "FM202" not in {rule for rule, _, _ in result.summary}


KEPT = ["clip = {}\n    clip(1.0)", "return {}", "clips = [{}]", "args.clip({}, 1.0)"]


@pytest.mark.parametrize("statement", KEPT)
def test_method_kept_for_later(statement: str) -> None:
    result = rewrite(HEAD + f"    {statement}\n".format("model.clip_grad_norm_"))
    assert result.text.endswith(f"    {statement}\n".format("partial(clip_grad_norm_, list(model.parameters()))"))
    assert result.support == {"clip_grad_norm_"}


BY_CLASS = [
    ("FSDP.clip_grad_norm_(model, 1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    ("norm = FSDP.clip_grad_norm_(model, max_norm=1.0)", f"norm = {NORM.replace('1.0', 'max_norm=1.0')}"),
    ("FSDP.clip_grad_norm_(model, 1.0, args.norm)", "clip_grad_norm_(model.parameters(), 1.0, args.norm)"),
    ("FSDP.clip_grad_norm_(model, 1.0, 2)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, 2)"),
]


@pytest.mark.parametrize(("before", "after"), BY_CLASS)
def test_called_through_the_class(before: str, after: str) -> None:
    assert body(f"    {before}\n") == f"    {after}\n"


@pytest.mark.parametrize("arguments", ["*args", "module=args", ""])
def test_called_through_the_class_with_a_model_out_of_sight(arguments: str) -> None:
    check_marked(HEAD + f"    FSDP.clip_grad_norm_({arguments})\n", "FM202", Level.MANUAL)


OFFLOADED = [
    ("CPUOffload(offload_params=True)", True),
    ("CPUOffload(args.offload)", True),
    ("args.offload", True),
    ("None", False),
    ("CPUOffload()", False),
    ("CPUOffload(offload_params=False)", False),
]


@pytest.mark.parametrize(("value", "support"), OFFLOADED)
def test_gradients_kept_on_the_cpu(value: str, support: bool) -> None:
    head = HEAD.replace("as FSDP", "as FSDP, CPUOffload").replace("FSDP(net)", f"FSDP(net, cpu_offload={value})")
    assert ("clip_offloaded_grad_norm_" in rewrite(head + "    model.clip_grad_norm_(1.0)\n").support) == support


GROUPS = [
    ('dist.init_process_group("nccl")', 'dist.init_process_group("cpu:gloo,cuda:nccl")'),
    ("dist.init_process_group(backend='nccl')", "dist.init_process_group(backend='cpu:gloo,cuda:nccl')"),
    (
        'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        'dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")',
    ),
    ("dist.init_process_group()", "dist.init_process_group()"),
    ('dist.init_process_group("gloo")', 'dist.init_process_group("gloo")'),
]
OUT_OF_SIGHT = [
    "dist.init_process_group(args.backend)",
    "dist.init_process_group(*args)",
    'dist.init_process_group("nccl", device_id=args.device)',
    'dist.init_process_group("nccl")\n    print(dist.get_backend())',
    'dist.init_process_group("nccl")\n    group = dist.new_group(args.ranks, backend="nccl")',
    "args.start()",
]


def offloading(start: str) -> str:
    head = HEAD.replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)
    head = head.replace("    model =", f"    {start}\n    model =").replace("as FSDP", "as FSDP, CPUOffload")
    wrap = "FSDP(net, cpu_offload=CPUOffload(args.offload))"
    return f"{head.replace('FSDP(net)', wrap)}    model.clip_grad_norm_(1.0)\n"


@pytest.mark.parametrize(("start", "becomes"), GROUPS)
def test_groups_that_take_cpu_tensors_clip_offloaded_gradients(start: str, becomes: str) -> None:
    result = rewrite(offloading(start))
    assert f"    {becomes}\n" in result.text
    assert result.text.endswith("    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")
    assert not result.support


def test_groups_take_what_a_scaler_finds_in_offloaded_gradients() -> None:
    """`GradScaler` all-reduces it where the gradients are; FSDP1's moved it to the device first."""
    text = offloading('dist.init_process_group("nccl")').replace("model.clip_grad_norm_(1.0)", "ShardedGradScaler()")
    scaler = "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n"
    assert 'dist.init_process_group("cpu:gloo,cuda:nccl")' in rewrite(scaler + text).text


@pytest.mark.parametrize("start", OUT_OF_SIGHT)
def test_groups_that_may_not_take_cpu_tensors(start: str) -> None:
    assert rewrite(offloading(start)).support == {"clip_offloaded_grad_norm_"}


def test_group_that_another_file_of_the_program_joins() -> None:
    """Whoever is in it outside of this program goes on to name NCCL alone."""
    sync = 'import torch.distributed as dist\n\n\ndef join(rank):\n    dist.init_process_group("nccl", rank=rank)\n'
    train = "import sync\n" + offloading('dist.init_process_group("nccl")')
    result = rewrite_files({"train.py": train, "sync.py": sync})
    assert result.after["sync.py"] == sync
    assert 'init_process_group("nccl")' in result.after["train.py"]
    assert result.support == {"clip_offloaded_grad_norm_"}


LAUNCH = """\
import torch.distributed as dist


def launch(backend="nccl"):
    dist.init_process_group(backend=backend)


def is_first():
    return dist.get_rank() == 0
"""
BUILD = """\
import importlib


def build(name):
    return importlib.import_module(name).build()
"""
GENERATE = """\
import argparse
import torch.distributed as dist
from start import {}

parser = argparse.ArgumentParser()
args = parser.parse_args()
dist.init_process_group("nccl")
print(is_first())
"""


@pytest.mark.parametrize(("taken", "is_apart"), [("is_first", True), ("is_first\nfrom train import step", False)])
def test_groups_of_scripts_beside_are_their_own(taken: str, is_apart: bool) -> None:
    """What a script takes of the file that starts the trainers' group is no call of it; it is loaded by no other."""
    train = "from build import build\nfrom start import launch\n" + offloading("launch()")
    files = {"train.py": train, "start.py": LAUNCH, "build.py": BUILD, "generate.py": GENERATE.format(taken)}
    result = rewrite_files(files)
    assert ('launch(backend="cpu:gloo,cuda:nccl")' in result.after["start.py"]) == is_apart
    assert ("clip_offloaded_grad_norm_" in result.support) != is_apart
    assert 'init_process_group("nccl")' in result.after["generate.py"]


def test_groups_of_two_scripts_that_clip_by_one_function() -> None:
    train = "from start import launch\nfrom steps import step\n\nlaunch()\nstep(None, None)\n"
    files = {"train.py": train, "start.py": LAUNCH, "steps.py": offloading("args.start()")}
    files["generate.py"] = GENERATE.format("is_first\nfrom steps import step")
    result = rewrite_files(files)
    assert all("cpu:gloo,cuda:nccl" in result.after[name] for name in ("start.py", "generate.py"))
    assert not result.support


@pytest.mark.parametrize(("use", "plain"), [("", True), ("    print(backend)\n", False)])
def test_a_backend_that_is_the_default_of_a_function(use: str, plain: bool) -> None:
    start = f'def start(backend: str = "nccl"):\n    dist.init_process_group(backend=backend)\n{use}\n\ndef step('
    result = rewrite(offloading("start()").replace("def step(", start))
    assert ('backend: str = "cpu:gloo,cuda:nccl"' in result.text) == plain
    assert ("clip_offloaded_grad_norm_" in result.support) != plain


def test_groups_of_a_model_that_stays_on_the_device_stay() -> None:
    text = offloading('dist.init_process_group("nccl")')
    for other in (text.replace("(args.offload)", "(False)"), text.replace("clip_grad_norm_", "train")):
        assert 'init_process_group("nccl")' in rewrite(other).text


# A forward in between

FORWARDS = [
    "model(args)",
    "loss = model.generate(args)",
    "evaluate(model, args)",
    "if args:\n        with torch.no_grad():\n            args.validate(model)",
]


CLIPS = ["model.clip_grad_norm_(1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"]


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("clip", CLIPS)
def test_forward_between_backward_and_clipping(forward: str, clip: str) -> None:
    text = HEAD + f"    model(args).sum().backward()\n    {forward}\n    {clip}\n"
    rule = "FM202" if clip.startswith("model") else "FM206"
    result = check_marked(text, rule, Level.MANUAL, "stale weights of its root")
    assert result.text.endswith(f"    model.reshard()\n    {CLIPS[1]}\n")


def test_evaluation_by_a_method_of_the_trainer() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)

            def step(self, x):
                self.model(x).sum().backward()
                self.evaluate()
                self.model.clip_grad_norm_(1.0)
        """
    )
    check_marked(text, "FM202", Level.MANUAL, "stale weights")


def test_forward_in_a_function_of_the_program() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def look(x, net):
            return net(x)


        def step(net, x):
            model = FSDP(net)
            model(x).sum().backward()
            look(x, model)
            model.clip_grad_norm_(1.0)
        """
    )
    check_marked(text, "FM202", Level.MANUAL, "stale weights")
    check_marked(text.replace("look(x, model)", "look(x, net=model)"), "FM202", Level.MANUAL, "stale weights")
    for quiet in ("net.train()", "net(x).sum().backward()"):
        levels = {level for _, level, _ in rewrite(text.replace("return net(x)", quiet)).summary}
        assert levels == {"rewritten"}


LEFT_OUT = [
    "if args:\n        loss.backward()",
    "if args:\n        print(loss)\n    else:\n        loss.backward()",
    "if args:\n        loss.backward()\n    elif loss:\n        args.backward()",
    "loss.backward()\n    loss = model(args)\n    if args:\n        loss.backward()",
]


@pytest.mark.parametrize("backward", LEFT_OUT)
def test_a_backward_that_a_condition_leaves_out(backward: str) -> None:
    text = HEAD + f"    loss = model(args)\n    {backward}\n    {CLIPS[0]}\n"
    result = check_marked(text, "FM202", Level.MANUAL, "stale weights of its root")
    assert result.text.endswith(f"    model.reshard()\n    {CLIPS[1]}\n")


QUIET = [
    "if args:\n        loss = model(args)\n        loss.backward()",
    "loss = model(args)\n    if args:\n        scale(loss).backward()\n    else:\n        loss.backward()",
    "loss = model(args)\n    if args:\n        loss.backward()\n    else:\n        return",
    "loss = model(args)\n    if args:\n        loss.backward()\n    if not args:\n        return",
    "model(args).sum().backward()\n    model.train()",
    "model(args).sum().backward()\n    args.unscale_(model.parameters())",
    "evaluate(model)\n    model(args).sum().backward()",
    "model(args).sum().backward()\n    log(model)",
    "model(args)",
]


@pytest.mark.parametrize("before", QUIET)
def test_nothing_runs_in_between(before: str) -> None:
    text = f"    {before}\n    model.clip_grad_norm_(1.0)\n"
    assert body(text).endswith("    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")


def test_a_backward_and_a_clipping_under_one_condition() -> None:
    text = "    loss = model(args)\n    if args:\n        loss.backward()\n    if args and loss:\n        "
    assert "reshard" not in body(f"{text}{CLIPS[0]}\n")


# FM206

DIRECT = [
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "params = [p for p in model.parameters() if p.requires_grad]\n    torch.nn.utils.clip_grad_norm_(params, 1.0)",
    "torch.nn.utils.clip_grad_norm_([p for n, p in model.named_parameters()], 1.0)",
    "torch.nn.utils.clip_grad_norm_(filter(args, model.parameters()), 1.0)",
    "torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)",
    "for p in model.parameters():\n        torch.nn.utils.clip_grad_norm_(p, 1.0)",
    "for part in model.children():\n        torch.nn.utils.clip_grad_norm_(part.parameters(), 1.0)",
    "groups = [{'params': list(part.parameters())} for part in model.children()]\n"
    "    for group in groups:\n        torch.nn.utils.clip_grad_norm_(group['params'], 1.0)",
    "clip = args.partial(torch.nn.utils.clip_grad_norm_, max_norm=1.0)\n    clip(model.parameters())",
    'getattr(torch.nn.utils, f"clip_grad_{args.mode}_")(model.parameters(), 1.0)',
    "clip = getattr(torch.nn.utils, args.clip)\n    norm = clip(list(model.parameters()), 1.0)",
]


@pytest.mark.parametrize("statement", DIRECT)
def test_clipping_by_a_local_norm_is_reported(statement: str) -> None:
    result = check_marked(HEAD + f"    {statement}\n", "FM206", Level.REVIEW, "global norm")
    assert result.text.endswith(f"    model = fully_shard(net)\n    {statement}\n")


def test_clipping_by_value_that_is_looked_up() -> None:
    clip = 'getattr(torch.nn.utils, "clip_grad_value_")(model.parameters(), 1.0)'
    assert "FM206" not in {rule for rule, _, _ in rewrite(f"{HEAD}    {clip}\n").summary}


@pytest.mark.parametrize(
    ("given", "is_mixed"),
    [
        ("[*model.parameters(), *head.parameters()]", True),
        ("list(head.parameters()) + list(model.parameters())", True),
        ("[*model.parameters(), scale]", True),
        ("[p for m in (model, head) for p in m.parameters()]", True),
        ("[*model.head.parameters(), *model.body.parameters()]", False),
        ("model.parameters() if args else head.parameters()", False),
    ],
)
def test_plain_parameters_beside_sharded_ones(given: str, is_mixed: bool) -> None:
    """torch's own raises for them (measured)."""
    above = "    head = torch.nn.Linear(2, 2)\n    scale = torch.nn.Parameter(torch.ones(1))\n"
    text = rewrite(f"{HEAD}{above}    torch.nn.utils.clip_grad_norm_({given}, 1.0)\n").text
    assert text.endswith(f"    {'clip_mixed' if is_mixed else 'torch.nn.utils.clip'}_grad_norm_({given}, 1.0)\n")


def test_parameters_that_a_function_returns() -> None:
    text = HEAD + "    return torch.nn.utils.clip_grad_norm_(params_of(model), 1.0)\n"
    text += "\n\ndef params_of(model):\n    return list(model.parameters())\n"
    result = check_marked(text, "FM206", Level.REVIEW, "global norm")
    assert "clip_grad_norm_(params_of(model), 1.0).full_tensor()" in result.text


GROUPS = [
    "torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]['params'], 1.0)",
    "for group in optimizer.param_groups:\n        torch.nn.utils.clip_grad_norm_(group['params'], 1.0)",
    "ps = [p for g in optimizer.param_groups for p in g['params']]\n    torch.nn.utils.clip_grad_norm_(ps, 1.0)",
    "for group in optimizer.param_groups:\n        ps = []\n        for p in group['params']:\n"
    "            if p.numel():\n                ps.append(p)\n"
    "        torch.nn.utils.clip_grad_norm_(parameters=ps, max_norm=1.0)",
    "ps = []\n    for group in optimizer.param_groups:\n        ps.extend(group['params'])\n"
    "    torch.nn.utils.clip_grad_norm_(ps, 1.0)",
    "ps = []\n    for group in optimizer.param_groups:\n        ps += group['params']\n"
    "    torch.nn.utils.clip_grad_norm_(ps, 1.0)",
]


@pytest.mark.parametrize("statement", GROUPS)
def test_parameters_of_an_optimizer(statement: str) -> None:
    text = HEAD + "    optimizer = torch.optim.SGD(model.parameters())\n" + f"    {statement}\n"
    assert check_marked(text, "FM206", Level.REVIEW, "global norm").text.endswith(f"    {statement}\n")
    other = text.replace("SGD(model.", "SGD(args.")
    assert "FM206" not in {rule for rule, _, _ in rewrite(other).summary}
    gathered = text.replace("SGD(model.parameters())", "SGD(some)").replace(
        "    optimizer =", "    some = []\n    some += list(model.parameters())\n    optimizer =", 1
    )
    check_marked(gathered, "FM206", Level.REVIEW, "global norm")
    grouped = gathered.replace("SGD(some)", "SGD([{'params': some, 'lr': 0.1}])")
    check_marked(grouped, "FM206", Level.REVIEW, "global norm")


def test_parameters_of_an_optimizer_in_a_function_of_another_class() -> None:
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Clip:
            def clip(self, optimizer):
                for group in optimizer.param_groups:
                    ps = []
                    for p in group["params"]:
                        ps.append(p)
                    torch.nn.utils.clip_grad_norm_(ps, 1.0)

            def after(self, trainer):
                self.clip(trainer.optimizer)


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)
                self.optimizer = torch.optim.SGD(self.of(self.model), lr=0.1)
                self.clip = Clip()

            def of(self, module):
                ps = []
                for p in module.parameters():
                    if p.requires_grad:
                        ps.append(p)
                return ps

            def step(self, x):
                self.model(x).sum().backward()
                self.clip.after(self)
        """
    )
    check_marked(text, "FM206", Level.REVIEW, "global norm")
    parts = text.replace(
        "self.model = FSDP(net)", "self.model = net\n        args.put(self.model, FSDP(args.part(net)))"
    )
    for model, is_told in (("args.load(net)", True), ("torch.nn.Linear(2, 2)", False)):
        choice = f"self.model = {model} if args else torch.nn.Linear(2, 2)"
        other = parts.replace("self.model = net", choice).replace("(self, net)", "(self, net, args)")
        assert ("FM206" in {rule for rule, _, _ in rewrite(other).summary}) is is_told


def test_norm_without_clipping() -> None:
    total = "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])"
    result = check_marked(HEAD + f"    return {total}\n", "FM206", Level.REVIEW, "each rank's own norm")
    assert result.text.endswith(f"    return {total}.full_tensor()\n")


def test_norm_that_is_added_up_by_hand_has_a_rule_of_its_own() -> None:
    total = "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])"
    text = HEAD + f"    total = {total} ** 2\n    torch.distributed.all_reduce(total)\n"
    assert {rule for rule, level, _ in rewrite(text).summary if level == "manual"} == {"FM402"}


TRAINER = code(
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    class Trainer:
        model: object

        def clip(self):
            if isinstance(self.model, FSDP):
                self.model.clip_grad_norm_(1.0)
    """
)


@pytest.mark.parametrize(("quote", "other"), [('"', "'"), ("'", '"')])
def test_a_value_of_an_f_string_stays_on_its_line(quote: str, other: str) -> None:
    """Before Python 3.12 it can neither be broken nor hold the quotes around it."""
    head = HEAD.replace("FSDP(net)", "args.wrap(FSDP(net))")
    text = rewrite(f"{head}    print(f{quote}{{model.clip_grad_norm_(1.0).item():.5f}}{quote})\n").text
    (line,) = [line for line in text.splitlines() if "{" in line]
    assert f"if hasattr(model, {other}clip_grad_norm_{other}) else torch.nn.utils.clip_grad_norm_(" in line
    text = body(f"    print(f{quote}{'the state that is saved ' * 4}{{model.state_dict()}}{quote})\n")
    assert "{get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))}" in text


GATHERED = [
    ("get_total_norm([p.grad for p in parameters])", "each rank's own norm"),
    ("clip_grad_norm_([p for p in parameters if p.requires_grad], limit)", "global norm"),
]


@pytest.mark.parametrize("given", ["model.parameters()", "list(model.parameters())", "[p for p in model.parameters()]"])
@pytest.mark.parametrize(("norm", "words"), GATHERED)
def test_parameters_that_a_helper_goes_over(norm: str, words: str, given: str) -> None:
    helper = f"def clip(parameters, limit):\n    return torch.nn.utils.{norm}\n\n\n"
    text = HEAD.replace("def ", f"{helper}def ", 1) + f"    return clip({given}, 1.0)\n"
    marked = check_marked(text, "FM206", Level.REVIEW, words).text
    assert f"    return torch.nn.utils.{norm}.full_tensor()\n" in flat(marked)
    both = f"{text}\n\ndef plain(net):\n    clip(torch.nn.Linear(1, 1).parameters(), 1.0)\n"
    assert f"    return full_tensor(torch.nn.utils.{norm})\n" in flat(rewrite(both).text)


@pytest.mark.parametrize(("offload", "function"), [("args.offload", "clip_offloaded_grad_norm_"), ("False", "")])
def test_a_model_that_is_not_followed_to_a_wrap_that_may_offload(offload: str, function: str) -> None:
    wrap = f"""
        from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP


        def wrap(net, args):
            return FSDP(net, cpu_offload=CPUOffload(offload_params={offload}), device_id=args.device)
        """
    script = "from trainer import Trainer\nfrom wrapping import wrap\n"
    result = rewrite_files({"train.py": script, "trainer.py": TRAINER, "wrapping.py": code(wrap)})
    function = function or "torch.nn.utils.clip_grad_norm_"
    assert f"{function}(self.model.parameters(), 1.0)" in result.after["trainer.py"]


LOCAL = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
OTHER_WAYS = [
    f"if args.enable_fsdp:\n        model.clip_grad_norm_(1.0)\n    else:\n        {LOCAL}",
    f"if not args.enable_fsdp:\n        {LOCAL}\n    else:\n        model.clip_grad_norm_(1.0)",
    f"if args.way == Way.FSDP:\n        model.clip_grad_norm_(1.0)\n    else:\n        {LOCAL}",
    "if is_sharded(model):\n        for m in model.modules():\n            model.clip_grad_norm_(1.0)\n"
    f"    elif args.norm:\n        {LOCAL}\n    else:\n        print(args)",
]
SAME_WAYS = [
    f"if args.whole:\n        model.clip_grad_norm_(1.0)\n    else:\n        {LOCAL}",
    f"if args.fsdp and args.whole:\n        model.clip_grad_norm_(1.0)\n    else:\n        {LOCAL}",
    f"if args.fsdp:\n        {LOCAL}\n    else:\n        model.clip_grad_norm_(1.0)",
    f"if args.fsdp:\n        print(args)\n    else:\n        {LOCAL}",
]


@pytest.mark.parametrize("statement", OTHER_WAYS)
def test_what_clips_where_nothing_is_sharded_stays(statement: str) -> None:
    result = rewrite(HEAD + f"    {statement}\n")
    assert "FM206" not in {rule for rule, _, _ in result.summary}


@pytest.mark.parametrize("statement", OTHER_WAYS[:2])
def test_branches_that_clip_alike_become_one(statement: str) -> None:
    assert body(f"    {statement}\n") == f"    {LOCAL}\n"


@pytest.mark.parametrize("statement", SAME_WAYS)
def test_what_may_clip_a_sharded_model_is_reported(statement: str) -> None:
    result = rewrite(HEAD + f"    {statement}\n")
    assert "FM206" in {rule for rule, _, _ in result.summary}


@pytest.mark.parametrize("use", USED)
def test_local_norm_that_is_used_becomes_a_plain_tensor(use: str) -> None:
    before = f"    {use}\n".format("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert body(before) == f"    {use}\n".format(NORM)


def test_local_norm_of_a_model_that_may_be_ddp() -> None:
    text = HEAD.replace("FSDP(net)", "FSDP(net) if args else torch.nn.parallel.DistributedDataParallel(net)")
    result = rewrite(text + "    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")
    assert "return full_tensor(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))\n" in result.text


GATHERED = [
    "    some = []\n    for p in model.parameters():\n        if p.requires_grad:\n            some.append(p)\n",
    "    names, some = [], []\n    for name, p in model.named_parameters():\n        some.append(p)\n",
]


@pytest.mark.parametrize("loop", GATHERED)
def test_local_norm_of_parameters_that_a_loop_gathers(loop: str) -> None:
    text = HEAD + loop + "    torch.nn.utils.clip_grad_norm_(some, 1.0)\n"
    check_marked(text, "FM206", Level.REVIEW, "global norm")
    counted = HEAD + loop.replace("some.append(p)", "some.append(p.numel())")
    result = rewrite(counted + "    torch.nn.utils.clip_grad_norm_(some, 1.0)\n")
    assert "FM206" not in {rule for rule, _, _ in result.summary}


def test_local_norm_of_parameters_that_a_trainer_gathers() -> None:
    text = code(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)
                self.some = []
                for p in self.model.parameters():
                    self.some.append(p)

            def clip(self):
                torch.nn.utils.clip_grad_norm_(self.some, 1.0)
        """
    )
    check_marked(text, "FM206", Level.REVIEW, "global norm")


def test_local_norm_of_parameters_that_a_function_gathers_and_an_object_keeps() -> None:
    text = HEAD + code(
        """
            some, names = gather(model)
            return Step(names, some).clip()


        def gather(model):
            some, names = [], []
            for name, p in model.named_parameters():
                names.append(name)
                some.append(p)
            return some, names


        class Step:
            def __init__(self, names, some):
                self.names, self.some = names, some

            def clip(self):
                return torch.nn.utils.clip_grad_norm_(self.some, 1.0)
        """
    )
    result = rewrite(text)
    assert "return torch.nn.utils.clip_grad_norm_(self.some, 1.0).full_tensor()\n" in result.text


def test_local_norm_on_the_way_of_another_engine() -> None:
    local = "return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    ask = f"    if args == 'ddp':\n        {local}    else:\n        return model.clip_grad_norm_(1.0)\n"
    result = rewrite(HEAD + ask)
    assert f"    if args == 'ddp':\n        {local}" in result.text
    assert "FM206" not in {rule for rule, _, _ in result.summary}


OTHER_NORMS = [
    ("model.parameters(), 1.0, float('inf')", "model.parameters(), 1.0, float('inf')"),
    ("model.parameters(), max_norm=1.0, norm_type=args", "model.parameters(), max_norm=1.0, norm_type=args"),
    ("model.parameters(), 1.0, norm_type=args, foreach=False", "model.parameters(), 1.0, norm_type=args"),
    ("list(model.parameters()), 1.0, 'inf'", "list(model.parameters()), 1.0, 'inf'"),
    (
        "parameters=model.parameters(), max_norm=1, norm_type=x",
        "parameters=model.parameters(), max_norm=1, norm_type=x",
    ),
    (
        "max_norm=1, norm_type=x, parameters=model.parameters()",
        "max_norm=1, norm_type=x, parameters=model.parameters()",
    ),
]


@pytest.mark.parametrize(("before", "after"), OTHER_NORMS)
def test_other_norms_of_torchs_function(before: str, after: str) -> None:
    assert body(f"    return torch.nn.utils.clip_grad_norm_({before})\n") == f"    return clip_grad_norm_({after})\n"


def test_argument_that_only_torch_has() -> None:
    text = "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, args, error_if_nonfinite=True)\n"
    assert one_line(body(text)).startswith('    raise NotImplementedError("fsdp-migrate FM206: ')


STAY = [
    "torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)",
    "if not isinstance(model, FSDP):\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
]


@pytest.mark.parametrize("statement", STAY)
def test_nothing_to_say_about(statement: str) -> None:
    assert "FM206" not in {rule for rule, _, _ in rewrite(HEAD + f"    {statement}\n").summary}


def test_arguments_with_lines_of_their_own() -> None:
    text = HEAD + "    model.clip_grad_norm_(\n        1.0,  # as before\n        2,\n    )\n"
    lines = "        model.parameters(),\n        1.0,  # as before\n        2,\n    )\n"
    assert rewrite(text).text.endswith(f"    torch.nn.utils.clip_grad_norm_(\n{lines}")
    infinite = text.replace("2,", "math.inf,")
    assert rewrite(infinite).text.endswith(
        "    clip_grad_norm_(\n        model.parameters(),\n        1.0,  # as before\n        math.inf,\n    )\n"
    )


ELSEWHERE = [
    ("world > 1", "world > 1", "else"),
    ("world > 1", "world <= 1", "then"),
    ("world > 1", "world == 1", "then"),
    ("world >= 2", "world == 1", "then"),
    ("1", 'hasattr(model, "clip_grad_norm_")', "else"),
]


@pytest.mark.parametrize(("wrapped", "asked", "branch"), ELSEWHERE)
def test_local_clipping_where_no_wrapped_model_comes(wrapped: str, asked: str, branch: str) -> None:
    local, other = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "model.train()"
    first, second = (local, other) if branch == "then" else (other, local)
    head = HEAD.replace("args", "model, world").replace("    model = FSDP(net)\n", "")
    text = f"{head}    if {wrapped}:\n        model = FSDP(net)\n"
    result = rewrite(f"{text}    if {asked}:\n        {first}\n    else:\n        {second}\n")
    assert "FM206" not in {rule for rule, _, _ in result.summary}
    reached = rewrite(f"{text}    if {asked}:\n        {second}\n    else:\n        {first}\n")
    assert "FM206" in {rule for rule, _, _ in reached.summary}


@pytest.mark.parametrize("asked", ['hasattr(model, "clip_grad_norm_")', "isinstance(model, FSDP)"])
def test_local_clipping_below_a_test_that_leaves(asked: str) -> None:
    """`.full_tensor()`, which a plain tensor lacks, is no part of what runs for DDP."""
    text = f"def clip(model):\n    if {asked}:\n        return model.clip_grad_norm_(1.0)\n"
    local = "    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    result = rewrite(f"{HEAD}    return clip(model)\n\n\n{text}{local}")
    assert result.text.endswith(local)
    assert "FM206" not in {rule for rule, _, _ in result.summary}


@pytest.mark.parametrize("asked", ["world == 2", "world > 0", "world < 3", "other == 1"])
def test_local_clipping_where_a_number_lets_the_wrapped_model_come(asked: str) -> None:
    head = HEAD.replace("args", "model, world, other").replace("    model = FSDP(net)\n", "")
    text = f"{head}    if world > 1:\n        model = FSDP(net)\n    if {asked}:\n"
    result = rewrite(f"{text}        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")
    assert "FM206" in {rule for rule, _, _ in result.summary}


FREEZING = [
    ("net.head.requires_grad_(False)", "ignored_modules=[net.head]", True),
    ("for p in net.head.parameters():\n        p.requires_grad = False", "ignored_modules=[net.head]", True),
    (
        "for p in net.head.parameters():\n        p.requires_grad_(False)",
        "ignored_states=net.head.parameters()",
        True,
    ),
    (
        "idle = [p for p in net.parameters() if not p.requires_grad]",
        "ignored_states=idle",
        True,
    ),
    ("idle = [p for p in net.parameters() if p.requires_grad]", "ignored_states=idle", False),
    (
        "idle = [m for m in net.modules() if m is args]\n    for m in idle:\n        m.requires_grad_(False)",
        "ignored_modules=idle",
        True,
    ),
    (
        "idle = [args]\n    for m in idle:\n        m.requires_grad_(False)\n    idle.append(net.tail)",
        "ignored_modules=idle",
        False,
    ),
    ("net.head.requires_grad_(False)", "ignored_modules=[net.head, net.tail]", False),
    ("if args:\n        net.head.requires_grad_(False)", "ignored_modules=[net.head]", False),
    ("net.head.requires_grad_(args)", "ignored_modules=[net.head]", False),
    ("for p in net.head.parameters():\n        args.requires_grad = False", "ignored_modules=[net.head]", False),
]


@pytest.mark.parametrize(("freezing", "arguments", "is_frozen"), FREEZING)
def test_ignored_modules_that_are_frozen_in_sight(freezing: str, arguments: str, is_frozen: bool) -> None:
    head = HEAD.replace("    model = FSDP(net)", f"    {freezing}\n    model = FSDP(net, {arguments})")
    result = rewrite(head + "    model.clip_grad_norm_(1.0)\n")
    level = Level.REWRITTEN if is_frozen else Level.MANUAL
    assert {f.level for f in result.findings if f.rule == "FM202"} == {level}
    assert result.support == (set() if is_frozen else {"clip_mixed_grad_norm_"})


@pytest.mark.parametrize(
    ("made", "level"),
    [
        ("self.weight = nn.Parameter(weight.detach(), requires_grad=False)", Level.REWRITTEN),
        ("self.weight = nn.Parameter(weight.detach())", Level.MANUAL),
        ("self.weight = weight", Level.MANUAL),
        ("self.weight = nn.Linear(2, 2)", Level.MANUAL),
    ],
)
def test_ignored_modules_of_a_class_that_trains_nothing(made: str, level: Level) -> None:
    quantised = f"class Quantised(nn.Module):\n    def __init__(self, weight):\n        {made}\n"
    wrap = "    model = FSDP(net, ignored_modules=[m for m in net.modules() if isinstance(m, Quantised)])"
    head = HEAD.replace("    model = FSDP(net)", wrap)
    result = rewrite(f"from torch import nn\n{head}    model.clip_grad_norm_(1.0)\n\n\n{quantised}")
    assert {f.level for f in result.findings if f.rule == "FM202"} == {level}


@pytest.mark.parametrize(
    ("made", "above", "level"),
    [
        ("nn.Parameter(torch.ones(2), requires_grad=False)", "", Level.REWRITTEN),
        ("nn.Parameter(torch.ones(2), requires_grad=False)", "net.scale.requires_grad_(True)", Level.MANUAL),
        ("nn.Parameter(torch.ones(2))", "", Level.MANUAL),
    ],
)
def test_ignored_parameter_that_its_class_freezes(made: str, above: str, level: Level) -> None:
    scaled = f"class Scaled(nn.Module):\n    def __init__(self):\n        self.scale = {made}\n"
    wrap = f"    net = Scaled()\n    {above}\n    model = FSDP(net, ignored_states=[net.scale])"
    head = HEAD.replace("    model = FSDP(net)", wrap)
    result = rewrite(f"import torch\nfrom torch import nn\n{head}    model.clip_grad_norm_(1.0)\n\n\n{scaled}")
    assert {f.level for f in result.findings if f.rule == "FM202"} == {level}
    assert "shard_model" not in result.text


def test_norm_of_one_rank_alone_waits_for_the_others() -> None:
    """Under FSDP1 each rank had a norm of its own, and could ask for it alone."""
    clip = "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    text = HEAD + f"    if torch.distributed.get_rank() == 0:\n        {clip}\n        print(norm)\n"
    assert "full_tensor" not in check_marked(text, "FM206", Level.MANUAL, "waits for the others").text


PUT_IN = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Model:
    def wrap(self, **kwargs):
        self.net.set_input_embeddings(FSDP(self.net.get_input_embeddings()))

        def clip_grad_norm_(max_norm):
            self.net.get_{name}_embeddings().clip_grad_norm_(max_norm)

        self.clip_grad_norm_ = clip_grad_norm_
"""


def test_what_is_put_in_comes_out_again() -> None:
    result = rewrite(PUT_IN.format(name="input"))
    clip = "torch.nn.utils.clip_grad_norm_(self.net.get_input_embeddings().parameters(), max_norm)"
    assert clip in result.text
    assert "FM202" not in {f.rule for f in result.findings if f.level is not Level.REWRITTEN}
    check_marked(PUT_IN.format(name="output"), "FM202", Level.MANUAL, "cannot tell whether")


def test_norm_type_of_a_function_in_another_file() -> None:
    files = {
        "train.py": """\
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            from clipping import clip


            def main(net, kind):
                model = FSDP(net)
                clip(model.parameters(), kind)
        """,
        "clipping.py": """\
            import torch


            def clip(parameters, norm_type):
                torch.nn.utils.clip_grad_norm_(parameters, 1.0, norm_type)
        """,
    }
    result = rewrite_files({name: code(text) for name, text in files.items()})
    assert "clip_grad_norm_(parameters, 1.0, norm_type)" in result.after["clipping.py"]
    assert "clip_grad_norm_" in result.support


TIMM = """\
from timm.utils import adaptive_clip_grad, dispatch_clip_grad, model_parameters
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP


def step(net, args):
    model = FSDP(net)
    {}
"""


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("dispatch_clip_grad(model.parameters(), 1.0)", ["review"]),
        ("dispatch_clip_grad(model_parameters(model, exclude_head='agc' in args.mode), 1.0, args.mode)", ["review"]),
        ("dispatch_clip_grad(model.parameters(), value=args.clip, mode='agc')", ["manual"]),
        ("adaptive_clip_grad(model.parameters(), 0.1)", ["manual"]),
        ("dispatch_clip_grad(model.parameters(), 0.1, mode='value')", []),
        ("dispatch_clip_grad(net.other.parameters(), 0.1)", []),
    ],
)
def test_timms_clipping(statement: str, said: list[str]) -> None:
    """By the norm as torch does, by the value of each element as FSDP1 did; AGC raises for DTensors (timm 1.0.9)."""
    result = rewrite(TIMM.format(statement))
    assert [finding.level.value for finding in result.findings if finding.rule == "FM206"] == said
    assert result.text.endswith(f"    {statement}\n")
    offloaded = TIMM.replace("FSDP(net)", "FSDP(net, cpu_offload=CPUOffload(offload_params=True))").format(statement)
    levels = {finding.level.value for finding in rewrite(offloaded).findings if finding.rule == "FM206"}
    assert levels == ({"manual"} if said else set())


SCALER = """\
import torch
from timm.utils import NativeScaler, model_parameters
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def epoch(model, optimizer, scaler, x):
    scaler(model(x), optimizer, clip_grad={}, clip_mode=x.mode, parameters=model_parameters(model))


def main(net, x):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    epoch(model, optimizer, {}(), x)
"""


@pytest.mark.parametrize(
    ("clip", "scaler", "said"),
    [
        ("x.clip", "NativeScaler", ["FM204", "FM206"]),
        ("None", "NativeScaler", ["FM204"]),
        ("x.clip", "x.Scaler", []),
    ],
)
def test_timms_scaler(clip: str, scaler: str, said: list[str]) -> None:
    found = rewrite(SCALER.format(clip, scaler)).findings
    assert sorted(each.rule for each in found if each.level is Level.REVIEW and each.rule != "FM101") == said


SHARED = """\
import torch


def epoch(model, x):
    with torch.no_grad():
        model(x)
    model.zero_grad()
    model(x).sum().backward()
    return clip(model.parameters())


def clip(parameters):
    grads = [p.grad for p in parameters if p.grad is not None]
    return torch.nn.utils.get_total_norm(grads)
"""
PLAIN = "import torch\n\nfrom shared import epoch\n\nepoch(torch.nn.Linear(4, 4), torch.ones(2, 4))\n"
SHARDED = PLAIN.replace("torch.nn.Linear(4, 4)", "FSDP(torch.nn.Linear(4, 4))").replace(
    "\n\n", "\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n", 1
)


def test_what_a_script_that_wraps_nothing_calls_too() -> None:
    """Such a script is not read: what a module's function is given may be plain."""
    written = rewrite_files({"shared.py": SHARED, "sharded.py": SHARDED}).after
    assert "    reshard_all(model)\n    model.zero_grad()" in written["shared.py"]
    assert "    return full_tensor(torch.nn.utils.get_total_norm(grads))\n" in written["shared.py"]
    alone = f"{SHARED}\n\ndef main(net, x):\n    model = FSDP(net)\n    epoch(model, x)\n"
    text = rewrite(
        alone.replace("\n", "\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n", 1)
    ).text
    assert "    model.reshard()\n    model.zero_grad()" in text
    assert "    return torch.nn.utils.get_total_norm(grads).full_tensor()\n" in text


PHASES = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, optimizer, data):
    for x in data:
        {first}
        model(x).sum().backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        {last}


def main(net, phases, data):
    model = FSDP(net)
    for phase in phases:
        for name, p in model.named_parameters():
            p.requires_grad = {flag}
        train(model, torch.optim.AdamW(p for p in model.parameters() if p.requires_grad), data)
"""
TRAINED = "torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)\n"
CLEARED = [
    pytest.param("optimizer.zero_grad()", "pass", "phase in name", True, id="in front of the next backward"),
    pytest.param("pass", "optimizer.zero_grad()", "phase in name", False, id="behind each step"),
    pytest.param("optimizer.zero_grad()", "pass", "True", False, id="nothing is frozen"),
]


@pytest.mark.parametrize(("first", "last", "flag", "is_filtered"), CLEARED)
def test_gradients_of_what_an_earlier_phase_trained(first: str, last: str, flag: str, is_filtered: bool) -> None:
    text = rewrite(PHASES.format(first=first, last=last, flag=flag)).text
    assert (TRAINED in text) == is_filtered
    assert ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in text) != is_filtered


def test_an_optimizer_that_is_made_once_more_makes_no_phase() -> None:
    made = "torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)"
    once = f"if phase == 3:\n            optimizer = {made}\n        train(model, optimizer, data)"
    text = PHASES.format(first="optimizer.zero_grad()", last="pass", flag="phase in name")
    text = text.replace(f"train(model, {made}, data)", once)
    assert TRAINED not in rewrite(text.replace("    for phase", f"    optimizer = {made}\n    for phase")).text


def test_torch_goes_by_the_name_that_it_has() -> None:
    text = (
        "import torch as th\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def step(net):\n    model = FSDP(net)\n    model.clip_grad_norm_(1.0)\n    return th.stack([])\n"
    )
    after = rewrite(text).text
    assert "    th.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in after
    assert "import torch\n" not in after
    both = rewrite("import torch\n" + text).text
    assert "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in both
