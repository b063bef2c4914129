"""FM101: strategy, offload, mesh, device, initial state, and the arguments that go."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_transformed, code, flat, meaning, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel as FSDP,
    ShardingStrategy,
)


def wrap(model, args, mesh, rank, group):
"""


def body(text: str) -> str:
    """What stands in the function after the rewrite of one whose body this is."""
    return rewrite(HEAD + text).text.split("def wrap(model, args, mesh, rank, group):\n")[1]


PLAIN = "    return fully_shard(model)\n"

DROPPED = [
    "use_orig_params=True",
    "use_orig_params=args.use_orig_params",
    "limit_all_gathers=True",
    "limit_all_gathers=False",
    "forward_prefetch=True",
    "forward_prefetch=False",
    "backward_prefetch=BackwardPrefetch.BACKWARD_PRE",
    "process_group=None",
    "device_mesh=None",
    "device_id=None",
    "sync_module_states=False",
    "mixed_precision=None",
    "mixed_precision=False, cpu_offload=False",
    "cpu_offload=None",
    "cpu_offload=CPUOffload()",
    "cpu_offload=CPUOffload(offload_params=False)",
    "cpu_offload=CPUOffload(False)",
    "sharding_strategy=None",
    "sharding_strategy=ShardingStrategy.FULL_SHARD",
    "ignored_modules=None",
    "ignored_states=None",
    "param_init_fn=None",
    "device_id=torch.cuda.current_device()",
]


@pytest.mark.parametrize("argument", DROPPED)
def test_argument_that_needs_no_replacement(argument: str) -> None:
    result = rewrite(HEAD + f"    return FSDP(model, {argument})\n")
    assert result.text.endswith(PLAIN)
    assert [level for _, level, _ in result.summary] == ["rewritten"]


def test_all_dropped_arguments_are_named() -> None:
    result = rewrite(HEAD + "    return FSDP(model, use_orig_params=True, limit_all_gathers=True)\n")
    assert "no longer needed: limit_all_gathers, use_orig_params" in result.findings[0].message


REVIEWED = [
    ("backward_prefetch=BackwardPrefetch.BACKWARD_POST", "memory and overlap may differ"),
    ("backward_prefetch=None", "memory and overlap may differ"),
    ("forward_prefetch=args.prefetch", "is dropped"),
    ("cpu_offload=CPUOffload(offload_params=True)", "CPU tensors"),
]


@pytest.mark.parametrize(("argument", "words"), REVIEWED)
def test_what_differs_without_changing_what_is_trained_is_said(argument: str, words: str) -> None:
    result = rewrite(HEAD + f"    return FSDP(model, {argument})\n")
    (found,) = result.findings
    assert found.level is Level.REVIEW
    assert words in found.message


ARGUMENTS = [
    ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", "reshard_after_forward=False"),
    ("None, ShardingStrategy.SHARD_GRAD_OP", "reshard_after_forward=False"),
    ("cpu_offload=CPUOffload(offload_params=True)", "offload_policy=CPUOffloadPolicy()"),
    ("cpu_offload=CPUOffload(True)", "offload_policy=CPUOffloadPolicy()"),
    (
        "cpu_offload=CPUOffload(offload_params=args.offload)",
        "offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy()",
    ),
    (
        "cpu_offload=CPUOffload(offload_params=True) if args.offload else None",
        "offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy()",
    ),
    (
        "cpu_offload=CPUOffload(offload_params=args.offload) if args.offload else None",
        "offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy()",
    ),
    (
        "cpu_offload=CPUOffload(offload_params=args.offload) if args.mode or args.is_big else None",
        "offload_policy=CPUOffloadPolicy() if (args.mode or args.is_big) and args.offload else OffloadPolicy()",
    ),
    ('device_mesh=mesh["dp"]', 'mesh=mesh["dp"]'),
    ('device_mesh=init_device_mesh("cuda", (8,))', 'mesh=init_device_mesh("cuda", (8,))'),
    (
        'device_mesh=init_device_mesh("cuda", mesh_shape=(8,), mesh_dim_names=("dp",))',
        'mesh=init_device_mesh("cuda", mesh_shape=(8,), mesh_dim_names=("dp",))',
    ),
]


@pytest.mark.parametrize(("before", "after"), ARGUMENTS)
def test_argument_with_a_counterpart(before: str, after: str) -> None:
    assert meaning(body(f"    return FSDP(model, {before})\n")) == meaning(f"return fully_shard(model, {after})")


def test_arguments_go_to_every_unit() -> None:
    head = HEAD.replace(
        "\n\n\ndef", "\nfrom torch.distributed.fsdp.wrap import ModuleWrapPolicy\nfrom net import Block\n\n\ndef"
    )
    call = "auto_wrap_policy=ModuleWrapPolicy({Block}), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"
    text = rewrite(head + f"    return FSDP(model, {call})\n").text
    assert "            fully_shard(module, reshard_after_forward=False)\n" in text
    assert "    return fully_shard(model, reshard_after_forward=False)\n" in text


def test_long_calls_are_broken_one_argument_a_line() -> None:
    call = "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, cpu_offload=CPUOffload(offload_params=args.offload)"
    offload = "offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy()"
    lines = ["model", "reshard_after_forward=False", offload]
    inner = "".join(f"        {line},\n" for line in lines)
    assert body(f"    return FSDP(model, {call})\n") == f"    return fully_shard(\n{inner}    )\n"


SUPPORT = [
    "sharding_strategy=ShardingStrategy.HYBRID_SHARD",
    "sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2",
    'device_mesh=init_device_mesh("cuda", (2, 4))',
    "process_group=(group, group)",
]


@pytest.mark.parametrize("argument", SUPPORT)
def test_what_only_run_time_knows_goes_through_the_support_module(argument: str) -> None:
    result = rewrite(HEAD + f"    return FSDP(model, {argument})\n")
    assert result.text.endswith(f"    return shard_model(model, {argument})\n")
    assert result.support >= {"shard_model"}


@pytest.mark.parametrize("argument", ["ShardingStrategy.NO_SHARD", "ShardingStrategy[args.strategy]"])
def test_a_mesh_of_a_program_that_names_no_device_is_of_what_the_machine_has(argument: str) -> None:
    result = rewrite(HEAD + f"    return FSDP(model, sharding_strategy={argument})\n")
    assert '"cuda" if torch.cuda.is_available() else "cpu"' in result.text
    assert result.support <= {"strategy_kwargs"}


def test_strategy_that_is_a_parameter_stays_one() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


        def wrap(model, strategy=ShardingStrategy.SHARD_GRAD_OP):
            return FSDP(model, sharding_strategy=strategy)


        wrap(net, strategy=ShardingStrategy.FULL_SHARD)
        """
    )
    result = rewrite(text)
    assert result.text == code(
        """
        from torch.distributed.fsdp import ShardingStrategy, fully_shard


        def wrap(model, strategy=ShardingStrategy.SHARD_GRAD_OP):
            fsdp_kwargs = {
                "FULL_SHARD": {},
                "SHARD_GRAD_OP": {"reshard_after_forward": False},
            }[strategy.name]
            return fully_shard(model, **fsdp_kwargs)


        wrap(net, strategy=ShardingStrategy.FULL_SHARD)
        """
    )


REGISTRY = """\
class Factory:
    @staticmethod
    def wrap(model, strategy: ShardingStrategy):
        return FSDP(model, sharding_strategy=strategy, device_id=torch.cuda.current_device())


Factory.wrap(net, strategy=ShardingStrategy.FULL_SHARD)
Factory.wrap(net, strategy=ShardingStrategy.NO_SHARD)
"""


@pytest.mark.parametrize("value", ['COMPONENTS = [Entity("fsdp", Factory.wrap)]', 'wrappers = {"fsdp": Factory.wrap}'])
def test_any_strategy_can_be_passed_where_the_function_is_a_value(value: str) -> None:
    head = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n\n"
    closed = rewrite(head + REGISTRY).text
    assert 'if strategy.name == "NO_SHARD":' in closed
    after = rewrite(head + REGISTRY + value + "\n").text
    assert "fsdp_kwargs = strategy_kwargs(strategy.name)\n" in after


def test_strategy_in_a_constant() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

        STRATEGY = ShardingStrategy.SHARD_GRAD_OP


        def wrap(model):
            print(STRATEGY)
            return FSDP(model, sharding_strategy=STRATEGY)
        """
    )
    result = rewrite(text)
    assert "    return fully_shard(model, reshard_after_forward=False)\n" in result.text
    assert result.support == frozenset()
    assert "import ShardingStrategy, fully_shard\n" in result.text


DEVICES = [
    pytest.param("device_id=rank", "    torch.cuda.set_device(rank)\n" + PLAIN, id="rank"),
    pytest.param("device_id=0", "    torch.cuda.set_device(0)\n" + PLAIN, id="number"),
    pytest.param(
        'device_id=torch.device("cuda", rank)',
        '    torch.cuda.set_device(torch.device("cuda", rank))\n' + PLAIN,
        id="device",
    ),
    pytest.param(
        "device_id=rank, sync_module_states=True",
        code(
            """
                torch.cuda.set_device(rank)
                model.to(rank)
                for tensor in (*model.parameters(), *model.buffers()):
                    dist.broadcast(tensor.detach(), src=0)
                return fully_shard(model)
            """
        ),
        id="and sync_module_states",
    ),
    pytest.param(
        'device_id=torch.device("cpu")',
        '    cpu_mesh = init_device_mesh("cpu", (dist.get_world_size(),))\n'
        "    return fully_shard(model, mesh=cpu_mesh)\n",
        id="cpu",
    ),
]


@pytest.mark.parametrize(("argument", "after"), DEVICES)
def test_device(argument: str, after: str) -> None:
    wanted = after if after.startswith(" ") else "".join(f"    {line}\n" for line in after.splitlines())
    assert body(f"    return FSDP(model, {argument})\n") == wanted


@pytest.mark.parametrize("call", ["torch.cuda.set_device(rank)", "torch.accelerator.set_device_index(rank)"])
def test_device_that_is_set_above_is_not_set_again(call: str) -> None:
    text = body(f"    {call}\n    return FSDP(model, device_id=rank)\n")
    assert text == f"    {call}\n" + PLAIN


@pytest.mark.parametrize(
    ("device", "is_set_anew"),
    [('torch.device(f"cuda:{gpus[rank]}")', True), ("gpus[rank]", True), ('int(os.environ["LOCAL_RANK"])', False)],
)
def test_a_device_of_a_list_is_another_than_the_rank(device: str, is_set_anew: bool) -> None:
    head = "    torch.cuda.set_device(rank)\n"
    text = body(f"{head}    return FSDP(model, device_id={device})\n")
    assert (f"    torch.cuda.set_device({device})\n" in text) is is_set_anew
    same = f"    gpu = gpus[rank]\n    torch.cuda.set_device(gpu)\n    return FSDP(model, device_id={device})\n"
    assert body(same).count("set_device") == 1


def test_device_that_is_set_below_is_set_above_too() -> None:
    below = "    torch.cuda.set_device(rank)\n"
    text = body("    model = FSDP(model, device_id=rank)\n" + below + "    return model\n")
    assert text == below + "    fully_shard(model)\n" + below + "    return model\n"


def test_sync_module_states() -> None:
    check_transformed(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel


        def wrap(net):
            return FullyShardedDataParallel(net.cuda(), sync_module_states=True)
        """,
        """

        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard


        def wrap(net):
            model = net.cuda()
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), src=0)
            return fully_shard(model)
        """,
    )


SWITCHED = [
    pytest.param("", "args.sync", id="field"),
    pytest.param("", '"NO_SYNC" not in os.environ', id="expression"),
    pytest.param("    sync = rank > 0\n", "sync", id="variable"),
]


@pytest.mark.parametrize(("above", "condition"), SWITCHED)
def test_sync_module_states_that_run_time_switches(above: str, condition: str) -> None:
    text = body(f"{above}    return FSDP(model, device_id=rank, sync_module_states={condition})\n")
    assert text == above + "".join(
        f"    {line}\n"
        for line in [
            "torch.cuda.set_device(rank)",
            f"if {condition}:",
            "    model.to(rank)",
            "    for tensor in (*model.parameters(), *model.buffers()):",
            "        dist.broadcast(tensor.detach(), src=0)",
            "return fully_shard(model)",
        ]
    )


def test_sync_module_states_that_is_switched_off() -> None:
    assert body("    sync = False\n    return FSDP(model, sync_module_states=sync)\n") == PLAIN


def written(text: str) -> str:
    """The lines of the function, without their indentation."""
    return "".join(line.removeprefix("    ") + "\n" for line in body(text).splitlines())


MESH = 'mesh = init_device_mesh("cuda", {}, mesh_dim_names={})'
HYBRID = "sharding_strategy=ShardingStrategy.HYBRID_SHARD, "
BLOCKS = "auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks), "
CUDA = "device_id=torch.cuda.current_device()"
POLICY = "auto_wrap_policy=args.policy, "


@pytest.mark.parametrize("move", ["", ".to(torch.bfloat16)", '.to("cpu")'])
def test_ranks_are_made_equal_without_the_whole_model_on_the_device(move: str) -> None:
    """FSDP1 moved one unit after the other, and sharded each before the next."""
    text = written(f"    model = model{move}\n    return FSDP(model, {POLICY}{CUDA}, sync_module_states=True)\n")
    assert text.partition("if args.policy")[0] == code(
        f"""
        model = model{move}
        for tensor in (*model.parameters(), *model.buffers()):
            on_device = tensor.data.to(torch.cuda.current_device())
            dist.broadcast(on_device, src=0)
            tensor.data.copy_(on_device)
        """
    )


def test_a_device_that_is_chosen_is_asked_for_once() -> None:
    device = "torch.cuda.current_device() if args.gpu else torch.device(rank)"
    text = written(f"    return FSDP(model, {POLICY}device_id={device}, sync_module_states=True)\n")
    assert f"\ndevice = {device}\n" in text
    assert "    on_device = tensor.data.to(device)\n" in text


@pytest.mark.parametrize(
    ("move", "again"), [(".cuda()", "model.to(rank)\n"), (".to(rank)", ""), ('.to("cuda")', "model.to(rank)\n")]
)
def test_a_model_that_is_on_the_device_stays_there(move: str, again: str) -> None:
    call = f"FSDP(model, {POLICY}device_id=rank, sync_module_states=True)"
    text = written(f"    model = model{move}\n    return {call}\n")
    loop = "for tensor in (*model.parameters(), *model.buffers()):\n    dist.broadcast(tensor.detach(), src=0)\n"
    assert text.partition("if args.policy")[0].endswith(f"torch.cuda.set_device(rank)\n{again}{loop}")


NAMED = [
    pytest.param("(2, 4)", '("replicate", "shard")', HYBRID, "mesh=mesh", id="hybrid: as it is"),
    pytest.param("(2, 4)", '("a", "b")', HYBRID, "mesh=mesh", id="hybrid, other names"),
    pytest.param("(8,)", '("dp",)', "", "mesh=mesh", id="one dimension"),
    pytest.param("(4, 2)", '("dp", "tp")', "", 'mesh=mesh["dp"]', id="not hybrid: the first dimension"),
    pytest.param("(8, 1)", '["dp", "tp"]', "", 'mesh=mesh["dp"]', id="not hybrid, where the second has one rank"),
]


@pytest.mark.parametrize(("shape", "names", "strategy", "after"), NAMED)
def test_mesh_whose_dimensions_are_seen(shape: str, names: str, strategy: str, after: str) -> None:
    line = MESH.format(shape, names) + "\n"
    text = written(f"    {line}    return FSDP(model, {strategy}device_mesh=mesh)\n")
    assert text == f"{line}return fully_shard(model, {after})\n"


def test_slice_of_two_names_is_a_hybrid_mesh() -> None:
    text = written(f'    return FSDP(model, {HYBRID}device_mesh=mesh["replicate", "shard"])\n')
    assert text == 'return fully_shard(model, mesh=mesh["replicate", "shard"])\n'


def test_mesh_of_two_dimensions_without_a_hybrid_strategy_is_said() -> None:
    line = MESH.format("(4, 2)", '("dp", "tp")')
    (found,) = rewrite(HEAD + f"    {line}\n    return FSDP(model, device_mesh=mesh)\n").findings
    assert found.level is Level.REVIEW
    assert "FSDP1 sharded over the first, dp, alone" in found.message


@pytest.mark.parametrize(("shape", "level"), [("(8, 1)", Level.REVIEW), ("(2, n)", Level.REWRITTEN), ("(2, 4)", None)])
def test_replicas_of_one_rank_each_were_never_averaged(shape: str, level: Level | None) -> None:
    line = MESH.format(shape, '("replicate", "shard")')
    (found,) = rewrite(HEAD + f"    {line}\n    return FSDP(model, {HYBRID}device_mesh=mesh)\n").findings
    assert found.level is (level or Level.REWRITTEN)
    is_said = "FSDP1 did not average the gradients of shard groups of one rank each" in found.message
    assert is_said == (level is not None)


def test_mesh_is_made_once() -> None:
    policy = HEAD.replace("import torch\n", "from functools import partial\n\nimport torch\n", 1).replace(
        "\n\n\ndef", "\nfrom torch.distributed.fsdp.wrap import lambda_auto_wrap_policy\n\n\ndef"
    )
    text = rewrite(policy + f'    return FSDP(model, {BLOCKS}device_mesh=init_device_mesh("cuda", (8,)))\n').text
    assert text.count("init_device_mesh(") == 1
    assert '    fsdp_mesh = init_device_mesh("cuda", (8,))\n' in text
    assert "        fully_shard(block, mesh=fsdp_mesh)\n    return fully_shard(model, mesh=fsdp_mesh)\n" in text


def test_mesh_is_not_lost_where_the_device_is_the_cpu() -> None:
    line = 'cpus = init_device_mesh("cpu", (2,))\n'
    text = written(f'    {line}    return FSDP(model, device_mesh=cpus, device_id=torch.device("cpu"))\n')
    assert text == f"{line}return fully_shard(model, mesh=cpus)\n"


def test_no_shard_is_a_mesh_without_shards() -> None:
    text = written(f"    return FSDP(model, {CUDA}, sharding_strategy=ShardingStrategy.NO_SHARD)\n")
    made = 'init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))'
    make = f"shape = (dist.get_world_size(), 1)\nfsdp_mesh = {made}"
    comment = "# Each rank holds the whole parameters, and gradients are all-reduced.\n"
    assert text == f"{comment}{make}\nreturn fully_shard(model, mesh=fsdp_mesh)\n"


def test_hybrid_strategy_that_fsdp1_refuses_is_left_to_run_time() -> None:
    argument = f"{CUDA}, sharding_strategy=ShardingStrategy.HYBRID_SHARD"
    assert flat(written(f"    return FSDP(model, {argument})\n")) == f"return shard_model(model, {argument})\n"


@pytest.mark.parametrize("group", ["torch.distributed.group.WORLD", "c10d._get_default_group()"])
def test_group_of_all_ranks_needs_no_mesh(group: str) -> None:
    head = HEAD.replace("import torch\n", "import torch\nimport torch.distributed.distributed_c10d as c10d\n", 1)
    assert rewrite(head + f"    return FSDP(model, process_group={group})\n").text.endswith(PLAIN)


def test_group_that_a_function_may_not_make_needs_no_mesh_then() -> None:
    made = "def some(ranks):\n    return torch.distributed.new_group(ranks) if ranks else None\n\n\n"
    text = rewrite(
        HEAD.replace("def ", made + "def ", 1) + f"    return FSDP(model, process_group=some([]), {CUDA})\n"
    ).text
    assert "    process_group = some([])\n" in text
    assert "if process_group is not None else None" in flat(text)


def test_group_of_some_ranks_becomes_a_mesh() -> None:
    line = "some = torch.distributed.new_group([0, 1])\n"
    text = written(f"    {line}    return FSDP(model, process_group=some, {CUDA})\n")
    make = 'fsdp_mesh = DeviceMesh.from_group(some, "cuda")\n'
    assert text == f"{line}{make}return fully_shard(model, mesh=fsdp_mesh)\n"


SYNCED = [
    pytest.param('device_mesh=mesh["dp"]', 'mesh["dp"].get_group()', id="slice"),
    pytest.param("device_mesh=two", 'two["dp"].get_group()', id="first of two dimensions"),
]


@pytest.mark.parametrize(("argument", "group"), SYNCED)
def test_states_are_synchronised_among_the_ranks_that_shard_together(argument: str, group: str) -> None:
    two = '    two = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))\n'
    text = written(f"{two}    return FSDP(model, {argument}, sync_module_states=True)\n")
    assert f"shard_group = {group}\n" in text
    assert "    dist.broadcast(tensor.detach(), group=shard_group, group_src=0)\n" in text


def test_states_are_synchronised_over_replicas_and_shards() -> None:
    line = MESH.format("(2, 4)", '("replicate", "shard")')
    text = written(f"    {line}\n    return FSDP(model, {HYBRID}device_mesh=mesh, sync_module_states=True)\n")
    assert "    dist.broadcast(tensor.detach(), src=0)\n" in text
    sliced = f'{HYBRID}device_mesh=mesh["a", "b"], sync_module_states=True'
    text = written(f"    return FSDP(model, {sliced})\n")
    assert text.startswith('fsdp_mesh = mesh["a", "b"]\nfor tensor in (*model.parameters(), *model.buffers()):\n')
    assert "    for mesh_group in fsdp_mesh.get_all_groups():\n" in text
    assert "        dist.broadcast(tensor.detach(), group=mesh_group, group_src=0)\n" in text


MOVED = [
    ("model.to(rank)", "rank"),
    ("model.to(args.local_rank)", "args.local_rank"),
    pytest.param("model.to(0)", "0", id="number"),
    pytest.param("model.cuda(0)", "0", id="cuda"),
    pytest.param("model.train().to(int(rank))", "int(rank)", id="among other calls"),
    pytest.param('model.to(f"cuda:{rank}")', 'f"cuda:{rank}"', id="name"),
    pytest.param('model.to(torch.device("cuda", rank))', 'torch.device("cuda", rank)', id="device"),
]


@pytest.mark.parametrize(("moved", "device"), MOVED)
def test_device_that_the_model_is_on_becomes_the_current_one(moved: str, device: str) -> None:
    for line in (moved, f"model = {moved}"):
        text = written(f"    {line}\n    return FSDP(model)\n")
        assert text == f"{line}\ntorch.cuda.set_device({device})\nreturn fully_shard(model)\n"
    assert f"torch.cuda.set_device({device})\n" in written(f"    return FSDP({moved})\n")
    above = "torch.cuda.set_device(rank)\n"
    assert written(f"    {above}    return FSDP({moved})\n") == f"{above}return fully_shard({moved})\n"


@pytest.mark.parametrize(
    "moved", ["model.cuda()", 'model.to("cuda")', "model.to(torch.bfloat16)", "model.to(place)", "args.net.to(0)"]
)
def test_device_that_is_the_current_one_or_not_seen(moved: str) -> None:
    assert written(f"    {moved}\n    return FSDP(model)\n") == f"{moved}\nreturn fully_shard(model)\n"


@pytest.mark.parametrize("device", ['torch.device("cuda")', '"cuda"'])
def test_device_without_an_index_is_the_current_one(device: str) -> None:
    assert body(f"    return FSDP(model, device_id={device})\n") == PLAIN


def test_device_that_may_be_the_cpu() -> None:
    line = 'device = torch.device("cuda" if args.cuda else "cpu", rank)\n'
    text = written(f"    {line}    return FSDP(model, device_id=device)\n")
    guarded = "if torch.cuda.is_available():\n    torch.cuda.set_device(device)\n"
    assert text == f"{line}{guarded}return fully_shard(model)\n"


RESET = "    reset_unit(model, torch.cuda.current_device())\n"
ON_META = [
    pytest.param('    with torch.device("meta"):\n        model = model()\n', id="meta device"),
    pytest.param(
        '    kind = "cpu" if rank == 0 else "meta"\n    with torch.device(kind):\n        model = model()\n',
        id="device by a name",
    ),
    pytest.param(
        '    kind = "meta"\n    with torch.device(device=kind):\n        model = Net.build(model)\n',
        id="made by a method",
    ),
    pytest.param('    model = model.to("meta")\n', id="moved to meta"),
    pytest.param('    model = model(device="meta")\n', id="made on meta"),
    pytest.param("    with accelerate.init_empty_weights():\n        model = model()\n", id="empty weights, by module"),
    pytest.param("    with init_empty_weights():\n        model = model()\n", id="empty weights"),
    pytest.param(
        "    context = init_empty_weights if rank else nullcontext\n    with context():\n        model = model()\n",
        id="empty weights on some ranks",
    ),
]


@pytest.mark.parametrize("above", ON_META)
def test_values_that_fsdp1_filled_in(above: str) -> None:
    assert body(f"{above}    return FSDP(model)\n") == f"{above}{RESET}{PLAIN}"


FILLED = "    with init_empty_weights():\n        model = model()\n    {0}\n"
FILLING = [
    "if args.new:\n        load_model_dict_into_meta(model)\n    else:\n        load_model_dict_into_meta(model, x)",
    "load_model_dict_into_meta(model, args.state)",
    "model.load_state_dict(args.state, assign=True)",
]


@pytest.mark.parametrize("fill", FILLING)
def test_model_that_is_given_its_values_is_on_meta_no_more(fill: str) -> None:
    above = FILLED.format(fill)
    assert body(f"{above}    return FSDP(model)\n") == f"{above}{PLAIN}"


@pytest.mark.parametrize(
    "fill",
    [
        f"if args.fill:\n        {FILLING[1]}",
        f"if rank == 0:\n        {FILLING[1]}",
        "model.load_state_dict(args.state)",
        "fill(net, model)",
    ],
)
def test_model_that_is_not_given_them_by_every_rank(fill: str) -> None:
    above = FILLED.format(fill)
    assert body(f"{above}    return FSDP(model)\n") == f"{above}{RESET}{PLAIN}"


def test_function_that_gives_values() -> None:
    written = body("    return FSDP(model, param_init_fn=args.init, sync_module_states=True, device_id=rank)\n")
    assert written == (
        "    torch.cuda.set_device(rank)\n"
        "    initialize_unit(model, args.init)\n    broadcast_unit(model, rank)\n" + PLAIN
    )


def test_function_that_gives_values_within_a_group() -> None:
    arguments = "param_init_fn=args.init, sync_module_states=args.sync, process_group=group.of(rank)"
    text = body(f"    return FSDP(model, {arguments}, {CUDA})\n")
    assert text.endswith(
        "    shard_group = fsdp_mesh.get_group()\n    initialize_unit(model, args.init)\n"
        "    if args.sync:\n        broadcast_unit(model, torch.cuda.current_device(), shard_group)\n"
        "    return fully_shard(model, mesh=fsdp_mesh)\n"
    )


ROOM = {
    "in the call": ("", "lambda m: m.to_empty(device=torch.device('cuda'), recurse=False) if rank else None"),
    "under a condition": ("", "(lambda m: m.to_empty(device=rank, recurse=False)) if rank else None"),
    "by a function": (
        "    def room(m):\n        return m.to_empty(device='cuda', recurse=False) if rank else m\n\n",
        "room",
    ),
}
ORDER = "for module in reversed(list(model.modules())):"
OF_CLASSES = "    from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n    from net import Block, Net\n\n"


@pytest.mark.parametrize(("above", "init"), ROOM.values(), ids=ROOM)
def test_function_that_only_makes_room_goes_where_the_values_come_from_the_first_rank(above: str, init: str) -> None:
    call = f"FSDP(model, auto_wrap_policy=ModuleWrapPolicy({{Block, Net}}), param_init_fn={init}, SYNC, {CUDA})"
    text = body(f"{OF_CLASSES}{above}    return {call}\n".replace("SYNC", "sync_module_states=True"))
    assert ORDER in text
    assert "            broadcast_unit(module, torch.cuda.current_device())\n" in text
    assert "to_empty" not in text
    kept = body(f"{OF_CLASSES}{above}    return {call}\n".replace("SYNC", "sync_module_states=False"))
    assert "broadcast_unit" not in kept
    assert "initialize_unit(module, " in kept
    other = body(f"{OF_CLASSES}{above}    return {call}\n".replace("SYNC", "sync_module_states=args.low"))
    assert "initialize_unit(module, " in other
    assert "            if args.low:\n                broadcast_unit(module, torch.cuda.current_device())\n" in other


@pytest.mark.parametrize("around", ["(lambda m: {})", "lambda m: {}"])
def test_room_that_is_made_only_where_the_first_ranks_values_come(around: str) -> None:
    init = f"{around.format('m.to_empty(device=rank, recurse=False)')} if args.low and rank != 0 else None"
    text = body(f"    return FSDP(model, param_init_fn={init}, sync_module_states=args.low, {CUDA})\n")
    assert "    if args.low:\n        broadcast_unit(model, torch.cuda.current_device())\n" in text
    assert "to_empty" not in text


def test_a_flag_that_is_written_as_a_choice() -> None:
    text = body(f"    return FSDP(model, sync_module_states=True if args.low else False, {CUDA})\n")
    assert "    if args.low:\n" in text


def test_function_that_only_makes_room_stays_where_something_else_uses_it() -> None:
    above = "    room = lambda m: m.to_empty(device=rank, recurse=False)\n    print(room)\n"
    policy = "auto_wrap_policy=ModuleWrapPolicy({Block, Net})"
    text = body(
        f"{OF_CLASSES}{above}    return FSDP(model, {policy}, param_init_fn=room, sync_module_states=True, {CUDA})\n"
    )
    assert ORDER in text
    assert above in text
    assert "initialize_unit" not in text


def test_function_that_only_makes_room_goes_with_the_choice_of_it() -> None:
    """Lumina-mGPT: 16 lines."""
    above = "    if rank == 0:\n        room = None\n    else:\n        room = lambda m: m.to_empty(device=rank)\n"
    text = body(f"{above}    return FSDP(model, param_init_fn=room, sync_module_states=True, {CUDA})\n")
    assert "room" not in text
    assert "    broadcast_unit(model, torch.cuda.current_device())\n" in text


def test_function_of_another_file_that_only_makes_room() -> None:
    """As in verl's trainers: 16 lines."""
    room = """
        import torch


        def init_fn(x):
            if torch.distributed.get_rank() != 0:
                x = x.to_empty(device=torch.cuda.current_device(), recurse=False)
                torch.cuda.empty_cache()
            return x


        def fill(x):
            x.to_empty(device="cuda", recurse=False)
            torch.nn.init.zeros_(x.weight)
    """
    train = """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from room import fill, init_fn


        def wrap(model):
            return FSDP(model, param_init_fn=init_fn, sync_module_states=True, device_id=torch.cuda.current_device())
    """
    files = {"room.py": code(room), "train.py": code(train)}
    text = rewrite_files(files).after["train.py"]
    assert "init_fn" not in text
    assert "    broadcast_unit(model, torch.cuda.current_device())\n" in text
    filled = rewrite_files({**files, "train.py": files["train.py"].replace("init_fn=init_fn", "init_fn=fill")})
    assert "    initialize_unit(model, fill)\n" in filled.after["train.py"]


def test_function_that_gives_values_keeps_the_order_of_fsdp1() -> None:
    above = "    def give(m):\n        m.to_empty(device=rank, recurse=False)\n        m.reset_parameters()\n\n"
    policy = "auto_wrap_policy=ModuleWrapPolicy({Block, Net})"
    text = body(
        f"{OF_CLASSES}{above}    return FSDP(model, {policy}, param_init_fn=give, sync_module_states=True, {CUDA})\n"
    )
    assert "for module in post_order(model):" in text
    assert "initialize_unit(module, give)" in text


CONTIGUOUS = """\
    for param in model.parameters():  # fully_shard takes no channels_last
        param.data = param.data.contiguous()
"""


@pytest.mark.parametrize(
    "above",
    [
        "    model = model.to(memory_format=torch.channels_last)\n",
        "    for layer in model.layers:\n        layer.to(memory_format=torch.channels_last)\n",
    ],
)
def test_weights_that_are_channels_last(above: str) -> None:
    assert body(f"{above}    return FSDP(model)\n") == f"{above}{CONTIGUOUS}{PLAIN}"


@pytest.mark.parametrize(
    "other",
    [
        "    with torch.device('meta'):\n        other = Net()\n",
        "    other = Net().to('meta')\n",
        "    other = Net().to(memory_format=torch.channels_last)\n",
    ],
)
def test_another_model_says_nothing_about_this_one(other: str) -> None:
    text = f"{HEAD[: HEAD.index('def ')]}class Net(torch.nn.Module):\n    pass\n\n\ndef build():\n{other}"
    text += "    model = Net()\n    return FSDP(model), other\n"
    assert "    return fully_shard(model), other\n" in rewrite_files({"train.py": text}).after["train.py"]


def test_what_is_assumed_of_a_model_that_is_not_seen_is_said_once() -> None:
    other = "def teacher():\n    with torch.device('meta'):\n        return torch.nn.Linear(2, 2)\n\n\n"
    start = HEAD.index("def ")
    (found,) = rewrite_files({"train.py": f"{HEAD[:start]}{other}{HEAD[start:]}    return FSDP(model)\n"}).findings
    assert found.level is Level.REVIEW
    assert "`model` is taken to have its values" in found.message


@pytest.mark.parametrize(
    "statement",
    [
        "for x in loader:\n        x = x.to(memory_format=torch.channels_last)",
        "for batch in loader:\n        x = batch['image'].cuda().to(memory_format=torch.channels_last)",
        "for i, (x, y) in enumerate(loader):\n        x, y = x.to('cuda', memory_format=torch.channels_last), y",
        "x = next(iter(loader)).contiguous(memory_format=torch.channels_last)",
        "x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)",
        "x = torch.randn(2, 3, 8, 8)\n    x = x.to(memory_format=torch.channels_last)",
    ],
)
def test_inputs_that_are_channels_last(statement: str) -> None:
    text = f"    fully_shard(model)\n    {statement}\n    return model\n"
    assert body(text.replace("fully_shard(model)", "model = FSDP(model)")) == text


def test_comments_say_nothing() -> None:
    utils = "# torch.cuda.set_device(rank)\n# with init_empty_weights():\nrank = 0\n"
    files = {"utils.py": utils, "train.py": "import utils\n" + HEAD + "    return FSDP(model, device_id=rank)\n"}
    assert rewrite_files(files).after["train.py"].endswith("    torch.cuda.set_device(rank)\n" + PLAIN)


def test_file_that_may_be_imported_by_a_name_belongs_to_the_program() -> None:
    wrap = HEAD.replace("import torch\n", "import importlib\n\nimport torch\n", 1)
    wrap += "    model = importlib.import_module(args.net).Net()\n    return FSDP(model)\n"
    net = "import torch\n\n\ndef Net():\n    return torch.nn.Linear(2, 2, device='meta')\n"
    (found,) = rewrite_files({"train.py": wrap, "net.py": net}).findings
    assert "is taken to have its values" in found.message


def test_another_program_of_the_folder_says_nothing_about_this_one() -> None:
    meta = "    with torch.device('meta'):\n        model = model()\n"
    other = f"    torch.cuda.set_device(rank)\n{meta}    return FSDP(model)\n"
    result = rewrite_files({"a.py": HEAD + other, "b.py": HEAD + "    return FSDP(model, device_id=rank)\n"})
    assert result.after["b.py"].endswith("    torch.cuda.set_device(rank)\n" + PLAIN)
    assert result.after["a.py"].endswith(f"{RESET}{PLAIN}")


def test_a_name_with_meta_in_it_is_no_device() -> None:
    above = '    model.name = args.get("meta"), "meta-llama/Llama-2-7b"  # meta\n'
    assert body(f"{above}    return FSDP(model)\n") == above + PLAIN


def test_another_caller_of_what_makes_the_model_says_nothing_about_this_one() -> None:
    maker = "class Net(torch.nn.Module):\n    pass\n\n\ndef make():\n    return Net()\n\n\n"
    train = "def train():\n    with torch.device('meta'):\n        model = make()\n    return FSDP(model)\n\n\n"
    test = "def test():\n    model = make()\n    return FSDP(model)\n"
    text = rewrite_files({"train.py": f"{HEAD[: HEAD.index('def ')]}{maker}{train}{test}"}).after["train.py"]
    assert text.count("reset_unit(model, torch.cuda.current_device())") == 1
    assert text.endswith("    model = make()\n    return fully_shard(model)\n")


OFFLOAD_CHOSEN = """
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP


def wrap(model, args):
    if args.offload:
        cpu_offload = CPUOffload(offload_params=True)
    else:
        cpu_offload = None
    return FSDP(model, cpu_offload=cpu_offload)
"""


def test_offload_chosen_by_statements_is_chosen_there() -> None:
    assert rewrite(OFFLOAD_CHOSEN).text.endswith(
        code(
            """
            def wrap(model, args):
                if args.offload:
                    offload_policy = CPUOffloadPolicy()
                else:
                    offload_policy = OffloadPolicy()
                return fully_shard(model, offload_policy=offload_policy)
            """
        )
    )


def test_offload_in_a_variable_of_its_own_is_made_there() -> None:
    before = """
        from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP


        def wrap(model, args):
            offload = CPUOffload(offload_params=args.offload)
            return FSDP(model, cpu_offload=offload)
        """
    result = rewrite(code(before))
    assert "    offload_policy = CPUOffloadPolicy() if args.offload else OffloadPolicy()\n" in result.text
    assert "CPUOffload(" not in result.text


def test_offload_that_something_else_reads_is_read_at_run_time() -> None:
    before = OFFLOAD_CHOSEN.replace("    return", "    if cpu_offload is not None:\n        tell(model)\n    return")
    result = rewrite("from log import tell\n" + before)
    assert "cpu_offload = CPUOffload(offload_params=True)\n" in result.text
    assert "CPUOffloadPolicy() if cpu_offload and cpu_offload.offload_params else OffloadPolicy()" in result.text


def test_offload_that_a_function_chooses_is_chosen_there() -> None:
    before = """
        from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP


        def choose(wanted):
            if wanted:
                return CPUOffload(wanted)
            return None


        def wrap(model, wanted):
            offload = choose(wanted)
            return FSDP(model, cpu_offload=offload)
        """
    text = rewrite(code(before)).text
    assert "        return CPUOffloadPolicy() if wanted else OffloadPolicy()\n    return OffloadPolicy()\n" in text
    assert "    offload_policy = choose(wanted)\n    return fully_shard(model, offload_policy=offload_policy)\n" in text
    read = code(before) + "\n\ndef tell(log, wanted):\n    log(choose(wanted).offload_params)\n"
    text = rewrite(read).text
    assert "    if wanted:\n        return CPUOffload(wanted)\n    return None\n" in text
    assert "offload_policy = CPUOffloadPolicy() if offload and offload.offload_params else OffloadPolicy()" in text


@pytest.mark.parametrize(
    "given",
    [
        "config.get_offload()",
        'config["offload"]',
        "choose(config)",
        "config.offload if config.big else None",
        "config.get_offload() if config.big else None",
        "config.big and CPUOffload(True)",
        "CPUOffload(**config.offload)",
    ],
)
def test_offload_that_a_call_or_a_table_gives_is_read_at_run_time(given: str) -> None:
    """It drew in `shard_model` (SPARSA: 657 lines of support)."""
    before = f"""
        from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP


        def choose(config):
            if not config.offload:
                return None
            return CPUOffload(offload_params=config.params)


        def wrap(model, config):
            return FSDP(model, cpu_offload={given})
        """
    text = rewrite(code(before)).text
    assert f"    cpu_offload = {given}\n    offload_policy = (\n" in text
    assert "CPUOffloadPolicy() if cpu_offload and cpu_offload.offload_params else OffloadPolicy()" in text
    assert "    return fully_shard(model, offload_policy=offload_policy)\n" in text


def test_offload_that_the_program_reads_too_is_read_at_run_time() -> None:
    text = (
        "from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP\n\n\n"
        "def wrap(model, config):\n    off = CPUOffload(offload_params=config.big)\n    print(off)\n"
        "    return FSDP(model, cpu_offload=off)\n"
    )
    assert "CPUOffloadPolicy() if off and off.offload_params else OffloadPolicy()" in rewrite(text).text
    after = rewrite(text.replace("    print(off)\n", "").replace("=off)", "=off if config.on else None)")).text
    assert "    off = CPUOffloadPolicy() if config.big else OffloadPolicy()\n" in after
    assert "fully_shard(model, offload_policy=off if config.on else OffloadPolicy())" in after


def test_ignored_modules_of_a_long_line_are_indented() -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef wrap(model, config):\n"
    text += (
        "    return FSDP(model, ignored_modules=(m for m in model.modules() if config.leaves_out(m) or m is None))\n"
    )
    after = "        ignored_params={\n            param\n            for module in ("
    assert after in rewrite(text).text


def test_a_choice_of_settings_goes_with_the_call_that_took_it() -> None:
    text = (
        "from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP\n\n\n"
        "def main(net, config):\n    offload = CPUOffload(offload_params=True) if config['on'] else None\n"
        "    print(1)\n    return FSDP(net, cpu_offload=offload)\n"
    )
    result = rewrite(text)
    assert "offload =" not in result.text
    assert "CPUOffloadPolicy() if config['on'] else OffloadPolicy()" in result.text
    assert "offload = CPUOffload(" in rewrite(text.replace("print(1)", "print(offload)")).text
    assert "offload = CPUOffload(" in rewrite(text.replace("config['on']", "config.ask()")).text


def test_a_mesh_is_laid_out_for_the_line_that_it_moves_to() -> None:
    before = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


        def wrap(make):
            model = FSDP(
                make(),
                sharding_strategy=ShardingStrategy.HYBRID_SHARD,
                device_mesh=init_device_mesh("cuda", (2, 2)),  # two nodes
            )
            return model
        """
    after = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard


        def wrap(make):
            model = make()
            # two nodes
            mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
            fully_shard(model, mesh=mesh)
            return model
        """
    check_transformed(before, after)


def test_a_group_out_of_a_call_is_made_once() -> None:
    text = """\
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def make_groups(size):
    own = None
    for ranks in ([0, 1], [2, 3]):
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own = group
    return own, size


def wrap(net):
    return FSDP(net, process_group=make_groups(2)[0])
"""
    result = rewrite(text).text
    assert "    group = make_groups(2)[0]\n" in result
    assert result.count("make_groups(2)") == 1


LOADED = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModel


def main(path, {parameter}):
    net = {made}
    return FSDP(net, param_init_fn={init})
"""


@pytest.mark.parametrize(
    ("made", "init", "stays"),
    [
        ("AutoModel.from_pretrained(path)", "lambda module: module.to_empty(device='cuda')", False),
        ("AutoModel.from_pretrained(path, device_map='auto')", "lambda module: module.to_empty(device='cuda')", True),
        ("AutoModel.from_pretrained(path, **more)", "lambda module: module.to_empty(device='cuda')", True),
        ("AutoModel.from_config(path)", "lambda module: module.to_empty(device='cuda')", True),
        ("AutoModel.from_pretrained(path)", "lambda module: module.reset_parameters()", True),
        ("AutoModel.from_pretrained(path)", "init", True),
    ],
)
def test_room_is_not_made_for_a_model_that_is_loaded_on_each_rank(made: str, init: str, stays: bool) -> None:
    """Eleven lines of support that nothing came to (llama2-70b-finetuning)."""
    result = rewrite(LOADED.format(made=made, init=init, parameter="init=None" if init == "init" else "**more"))
    assert ("initialize_unit" in result.text) == stays
    assert result.text.endswith("return fully_shard(net)\n")


def test_class_that_its_own_file_imports() -> None:
    """verl's `fsdp_sft_trainer`: its mesh was not seen, and 20 lines were there to ask for it."""
    train = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Trainer:
            def __init__(self, mesh):
                self.mesh = mesh

            def wrap(self, net):
                return FSDP(net, device_mesh=self.mesh, device_id=0)


        from pkg.train import Trainer


        def main(net, world_size):
            mesh = init_device_mesh("cuda", mesh_shape=(world_size,), mesh_dim_names=("dp",))
            Trainer(mesh=mesh).wrap(net)
    """
    files = {"pkg/__init__.py": "", "pkg/train.py": code(train)}
    assert "        return fully_shard(net, mesh=self.mesh)\n" in rewrite_files(files).after["pkg/train.py"]
    files["pkg/train.py"] = files["pkg/train.py"].replace("from pkg.train", "from pkg.other")
    files["pkg/other.py"] = "import library\n\nTrainer = library.Trainer\n"
    assert "first_dimension(self.mesh)" in rewrite_files(files).after["pkg/train.py"]
