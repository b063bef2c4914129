"""One row a way of saving and loading with FSDP1: a small program that the test rewrites, and runs before and after."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent, indent

_PROGRAM = """\
import os

import torch
import torch.distributed as dist
{imports}
from net import Block, Net, batch, train
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def save(model, optimizer, path):
    rank = dist.get_rank()
{save}


def load(model, optimizer, path):
    rank = dist.get_rank()
{load}


def main(path, resume=False, steps=3):
    torch.manual_seed(3)
    net = Net()
{before}
    model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({{Block}}), device_id=torch.device("cpu"), {wrap})
{after}
    optimizer = {optimizer}
    if resume:
        result = load(model, optimizer, path)
        return train(model, optimizer, 3, steps), result
    losses = train(model, optimizer, 0, steps)
    result = save(model, optimizer, path)
    dist.barrier()
    return losses + train(model, optimizer, steps, 2), result
"""

ADAM = "torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)"
GROUPS = """torch.optim.AdamW(
        [
            {"params": [p for n, p in model.named_parameters() if "norm" not in n], "weight_decay": 0.3},
            {"params": [p for n, p in model.named_parameters() if "norm" in n], "lr": 0.01},
        ],
        lr=0.05,
    )"""


@dataclass(frozen=True)
class Row:
    """A program that saves, and one that resumes: the same, started twice."""

    name: str
    save: str
    load: str
    wrap: str = "use_orig_params=True"
    imports: str = ""
    before: str = ""
    after: str = ""
    reviewed: str = ""
    """The rule that asks for a look at it."""
    optimizer: str = ADAM
    keeps_order: bool = True
    """Whether the keys of the new file come in the order of the old one."""
    checkpoint_format: str = "keep"
    one_rank: bool = False
    """Whether a single process, too, goes on with what two saved."""
    left_out: str = ""
    """Keys that hold this are not the same in both files, and are not compared."""

    @property
    def module(self) -> str:
        return re.sub(r"\W+", "_", self.name)

    @property
    def program(self) -> str:
        return _PROGRAM.format(
            imports=dedent(self.imports).strip(),
            save=indent(dedent(self.save).strip("\n"), "    "),
            load=indent(dedent(self.load).strip("\n"), "    "),
            before=indent(dedent(self.before).strip("\n"), "    "),
            after=indent(dedent(self.after).strip("\n"), "    "),
            wrap=self.wrap,
            optimizer=self.optimizer,
        )


_FULL_SAVE = """
with FSDP.state_dict_type(
    model,
    StateDictType.FULL_STATE_DICT,
    FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
    FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
):
    state = model.state_dict()
    optim_state = FSDP.optim_state_dict(model, optimizer)
if rank == 0:
    torch.save({"model": state, "optimizer": optim_state}, path)
"""
_FULL_LOAD = """
saved = torch.load(path, map_location="cpu")
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    model.load_state_dict(saved["model"])
    loaded = FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"])
    optimizer.load_state_dict(loaded)
"""
_RESUMED = """
for name in (f"{{path}}.missing", path):
    try:
{load}
    except Exception:
        continue
    return name == path
"""
_USUAL = (
    "StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True), FullOptimStateDictConfig(rank0_only=True)"
)
_USUAL_SAVE = """
state, optim_state = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
if rank == 0:
    torch.save({"model": state, "optimizer": optim_state}, path)
"""
_USUAL_LOAD = """
saved = torch.load(path)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(
    FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"] if rank == 0 else None)
)
"""
_LEGACY_SAVE = """
state = model.state_dict()
optim_state = FSDP.full_optim_state_dict(model, optimizer)
if rank == 0:
    torch.save({"model": state, "optimizer": optim_state}, path)
"""
_LEGACY_LOAD = """
saved = torch.load(path, map_location="cpu")
model.load_state_dict(saved["model"])
"""
_DCP = """
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
"""
_SHARDED_SAVE = """
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
    dist_cp.save_state_dict(
        state_dict=state,
        storage_writer=dist_cp.FileSystemWriter(path),
        planner=DefaultSavePlanner(),
    )
"""
_SCHEDULED = """
for group in optimizer.param_groups:
    group["initial_lr"] = group["lr"] * 10
for parameter, state in optimizer.state.items():
    state["average"] = torch.full_like(parameter, 0.5)
"""
_SEEN = """

def _without_params(optimizer):
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def _kinds(optimizer):
    return sorted({name for state in optimizer.state.values() for name in state})


"""
_SHARDED_LOAD = """
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    state = {"model": model.state_dict()}
    dist_cp.load_state_dict(
        state_dict=state,
        storage_reader=dist_cp.FileSystemReader(path),
        planner=DefaultLoadPlanner(),
    )
    model.load_state_dict(state["model"])
    optim_state = load_sharded_optimizer_state_dict(
        model_state_dict=state["model"],
        optimizer_key="optimizer",
        storage_reader=dist_cp.FileSystemReader(path),
    )
    flattened = FSDP.optim_state_dict_to_load(model, optimizer, optim_state["optimizer"])
    optimizer.load_state_dict(flattened)
"""
_CHOSEN_SAVE = """
kind = "{kind}"
if kind == "full":
    state_dict_type = StateDictType.FULL_STATE_DICT
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    optim_config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
else:
    state_dict_type = StateDictType.SHARDED_STATE_DICT
    config = ShardedStateDictConfig(offload_to_cpu=True)
    optim_config = ShardedOptimStateDictConfig(offload_to_cpu=True)
with FSDP.state_dict_type(model, state_dict_type, config, optim_config):
    state = {{"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}}
if kind != "full":
    dist_cp.save_state_dict(state, dist_cp.FileSystemWriter(path))
elif rank == 0:
    torch.save(state, path)
"""
_CHOSEN_LOAD = """
state_dict_type = StateDictType["{kind}"]
whole = state_dict_type is StateDictType.FULL_STATE_DICT
saved = torch.load(path, map_location="cpu") if whole else None
with FSDP.state_dict_type(model, state_dict_type):
    if saved is None:
        saved = {{"model": model.state_dict()}}
        dist_cp.load_state_dict(saved, dist_cp.FileSystemReader(path))
        saved |= load_sharded_optimizer_state_dict(saved["model"], "optimizer", dist_cp.FileSystemReader(path))
    model.load_state_dict(saved["model"])
    loaded = FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"])
    optimizer.load_state_dict(loaded)
"""
_AC = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
"""
_CHECKPOINTED = "apply_activation_checkpointing({}, check_fn=lambda module: isinstance(module, Block))"
_TIED = """
net.tied = torch.nn.Linear(6, 9, bias=False)
net.tied.weight = net.inp.weight
"""
_OWN = """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
"""
_OWN_SAVE = """
model_state, optim_state = get_state_dict(model, optimizer)
dcp.save({"model": model_state, "optimizer": optim_state}, checkpoint_id=path)
"""
_OWN_LOAD = """
model_state, optim_state = get_state_dict(model, optimizer)
state = {"model": model_state, "optimizer": optim_state}
dcp.load(state, checkpoint_id=path)
set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
"""
_OWN_FULL_SAVE = """
options = StateDictOptions(full_state_dict=True)
state = get_model_state_dict(model, options=options)
optim_state = get_optimizer_state_dict(model, optimizer, options=options)
if rank == 0:
    torch.save({"model": state, "optimizer": optim_state}, path)
"""
_OWN_FULL_LOAD = """
saved = torch.load(path) if rank == 0 else {"model": {}, "optimizer": {}}
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(model, saved["model"], options=options)
set_optimizer_state_dict(model, optimizer, saved["optimizer"], options=options)
"""
_STATEFUL = """
class AppState(Stateful):
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model_state, optim_state = get_state_dict(self.model, self.optimizer)
        return {"model": model_state, "optimizer": optim_state}

    def load_state_dict(self, state):
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
"""
_PLAIN_DCP_SAVE = """
dcp.save({"model": model.state_dict()}, checkpoint_id=path)
"""
_PLAIN_DCP_LOAD = """
state = {"model": model.state_dict()}
dcp.load(state, checkpoint_id=path)
model.load_state_dict(state["model"])
"""
_WHOLE = """
class Whole:
    def __init__(self, rank0_only):
        self.config = FullStateDictConfig(rank0_only=rank0_only)
        self.optim_config = FullOptimStateDictConfig(rank0_only=rank0_only)

    def load(self, model, state):
        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, self.config, self.optim_config)
        model.load_state_dict(state)
"""
_STICKY_DCP_SAVE = """
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    whole = model.state_dict()
Whole(True).load(model, whole)
state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
dist_cp.save(state, checkpoint_id=path)
"""
_STICKY_DCP_LOAD = """
model_state = model.state_dict()
state = {"model": model_state}
dist_cp.load(state_dict=state, storage_reader=dist_cp.FileSystemReader(path), planner=DefaultLoadPlanner())
model.load_state_dict(state.get("model"))
model_state = model.state_dict()
saved = load_sharded_optimizer_state_dict(model_state, "optimizer", dist_cp.FileSystemReader(path))
optim_state = saved.get("optimizer")
loaded = FSDP.optim_state_dict_to_load(model=model, optim=optimizer, optim_state_dict=optim_state)
optimizer.load_state_dict(loaded)
"""
_ASYNC_SAVE = """
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
    dist_cp.async_save(state, checkpoint_id=path).result()
"""
_EITHER = """
if {whole}:
    FSDP.set_state_dict_type(
        {model}, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    )
else:
    FSDP.set_state_dict_type({model}, StateDictType.SHARDED_STATE_DICT)
"""
_KEPT = f"""
class Reader:
    def __init__(self, model, whole):
        self.model = model
        self.whole = whole
{indent(_EITHER.format(whole="whole", model="self.model").strip(), " " * 8)}

    def read(self):
        return self.model.state_dict()
"""
_EITHER_LOAD = """
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    model.load_state_dict(torch.load(path))
"""
_MESH = """
from torch.distributed.device_mesh import init_device_mesh
"""
_WITH_MESH = "use_orig_params=True, device_mesh=init_device_mesh('cpu', (dist.get_world_size(),))"

ROWS = [
    Row("full, use_orig_params", _FULL_SAVE, _FULL_LOAD, one_rank=True),
    Row("full, to DCP", _FULL_SAVE, _FULL_LOAD, keeps_order=False, checkpoint_format="dcp"),
    Row("full, flat", _FULL_SAVE, _FULL_LOAD, wrap="use_orig_params=False", one_rank=True),
    Row("full, device mesh", _FULL_SAVE, _FULL_LOAD, wrap=_WITH_MESH, imports=_MESH),
    Row("full, groups", _FULL_SAVE, _FULL_LOAD, optimizer=GROUPS),
    Row(
        "full, momentum and frozen parameters",
        _FULL_SAVE,
        _FULL_LOAD,
        before="net.inp.requires_grad_(False)",
        optimizer="torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)",
    ),
    Row(
        "full, a parameter that has no gradient",
        _FULL_SAVE,
        _FULL_LOAD,
        before="net.unused = torch.nn.Linear(5, 3)",
        left_out="unused",  # FSDP1 gave it zero gradients, and so weight decay and a state
    ),
    Row(
        "full, a part of the model",
        """
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            state = model.blocks.state_dict()
        if rank == 0:
            torch.save({"blocks": state}, path)
        """,
        "model(batch(0))\nmodel.blocks.load_state_dict(torch.load(path)['blocks'])",
        before="net.inp.requires_grad_(False)\nnet.out.requires_grad_(False)",
        optimizer="torch.optim.SGD(model.blocks.parameters(), lr=0.05)",
        reviewed="FM301",
    ),
    Row(
        "sticky setting",
        """
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        optim_config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
        before = FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, config, optim_config)
        state, optim_state = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
        FSDP.set_state_dict_type(
            model, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config
        )
        if rank == 0:
            torch.save({"model": state, "optimizer": optim_state}, path)
        """,
        """
        saved = torch.load(path)
        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)
        model.load_state_dict(saved["model"])
        loaded = FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"])
        optimizer.load_state_dict(loaded)
        """,
        reviewed="FM100",  # torch's own StateDictType and configs stay
    ),
    Row(
        "full, while the local kind is set between checkpoints",
        _FULL_SAVE,
        _FULL_LOAD,
        after="FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)",
    ),
    Row(
        "one kind in sight, one at run time",
        """
        with FSDP.state_dict_type(model, StateDictType["FULL_STATE_DICT"]):
            everywhere = model.state_dict()
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            def gathered():
                return {name: value.float() for name, value in model.state_dict().items()}

            state = gathered()
        if rank == 0:
            torch.save([state, everywhere], path)
        """,
        "model.load_state_dict(torch.load(path)[0])",
        reviewed="FM100",  # torch's own StateDictType and configs stay
    ),
    Row(
        "a kind that is chosen, whole",
        _CHOSEN_SAVE.format(kind="full"),
        _CHOSEN_LOAD.format(kind="FULL_STATE_DICT"),
        imports=_DCP,
        reviewed="FM100 FM301",
    ),
    Row(
        "a kind that is chosen, each rank's part",
        _CHOSEN_SAVE.format(kind="sharded"),
        _CHOSEN_LOAD.format(kind="SHARDED_STATE_DICT"),
        imports=_DCP,
        reviewed="FM100 FM301",
    ),
    Row(
        "a kind that an if sets",
        "whole = path is not None"
        + _EITHER.format(whole="whole", model="model")
        + "state = model.state_dict()\nif rank == 0:\n    torch.save(state, path)",
        _EITHER_LOAD,
        reviewed="FM301",
    ),
    Row(
        "a kind that an if sets for an object that reads",
        """
        whole = Reader(model, True).read()
        parts = Reader(model, False).read()
        assert parts.keys() >= whole.keys() and len(parts) == 20
        if rank == 0:
            torch.save(whole, path)
        """,
        _EITHER_LOAD,
        imports=_KEPT,
        reviewed="FM301",
    ),
    Row(
        "set above what is read, for two models",
        """
        other = FSDP(Net(), device_id=torch.device("cpu"), use_orig_params=True)
        FSDP.set_state_dict_type(
            model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
            FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
        )
        FSDP.set_state_dict_type(
            other, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        )
        state, optim_state = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
        others = other.state_dict()
        if rank == 0:
            torch.save({"model": state, "optimizer": optim_state, "other": others}, path)
        """,
        """
        saved = torch.load(path)
        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)
        model.load_state_dict(saved["model"])
        loaded = FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"])
        optimizer.load_state_dict(loaded)
        """,
    ),
    Row(
        "set where the model is wrapped",
        _USUAL_SAVE,
        _USUAL_LOAD,
        after=f"FSDP.set_state_dict_type(model, {_USUAL})",
    ),
    Row(
        "scattered from rank 0",
        _LEGACY_SAVE,
        _LEGACY_LOAD
        + """
full = saved["optimizer"] if rank == 0 else None
sharded = FSDP.scatter_full_optim_state_dict(full, model, optim=optimizer)
optimizer.load_state_dict(sharded)
""",
    ),
    Row(
        "scattered from rank 0, flat",
        _LEGACY_SAVE,
        _LEGACY_LOAD
        + """
optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(saved["optimizer"] if rank == 0 else None, model))
""",
        wrap="use_orig_params=False",
    ),
    Row(
        "a state that is loaded below a condition",
        _LEGACY_SAVE,
        _LEGACY_LOAD
        + """
state = saved["optimizer"]
if isinstance(model, torch.nn.Module):
    state = FSDP.optim_state_dict_to_load(model, optimizer, state)
optimizer.load_state_dict(state)
""",
    ),
    Row(
        "a state that is changed before it is loaded",
        _LEGACY_SAVE,
        _LEGACY_LOAD
        + """
state = FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"])
for values in state["state"].values():
    values["exp_avg"] = values["exp_avg"].cpu() * 0.5
optimizer.load_state_dict(dict(state))
""",
        wrap="use_orig_params=False",
    ),
    Row(
        "after an evaluation, the optimizer first",
        """
        with torch.no_grad():
            model(batch(0))
        optim_state = FSDP.full_optim_state_dict(model, optimizer)
        state = model.state_dict()
        if rank == 0:
            torch.save({"model": state, "optimizer": optim_state}, path)
        """,
        """
        with torch.no_grad():
            model(batch(0))
        saved = torch.load(path)
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"]))
        model.load_state_dict(saved["model"])
        """,
    ),
    Row(
        "sharded on every rank",
        _LEGACY_SAVE,
        _LEGACY_LOAD
        + """
sharded = FSDP.shard_full_optim_state_dict(saved["optimizer"], model, optim=optimizer)
optimizer.load_state_dict(sharded)
""",
    ),
    Row(
        "other keys",
        """
        from torch.distributed.fsdp.fully_sharded_data_parallel import OptimStateKeyType

        state = model.state_dict()
        optim_state = FSDP.full_optim_state_dict(model, optimizer)
        if rank == 0:
            plain = Net()
            ids = FSDP.rekey_optim_state_dict(optim_state, OptimStateKeyType.PARAM_ID, plain)
            torch.save({"model": state, "optimizer": ids}, path)
        """,
        """
        from torch.distributed.fsdp.fully_sharded_data_parallel import OptimStateKeyType

        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        plain = Net()
        other = torch.optim.AdamW(plain.parameters())
        named = FSDP.rekey_optim_state_dict(saved["optimizer"], OptimStateKeyType.PARAM_NAME, plain, optim=other)
        sharded = FSDP.shard_full_optim_state_dict(named, model, optim=optimizer)
        optimizer.load_state_dict(sharded)
        """,
        reviewed="FM100",  # torch's own OptimStateKeyType stays
    ),
    Row("DCP", _SHARDED_SAVE, _SHARDED_LOAD, imports=_DCP, one_rank=True),
    Row(
        "DCP, flat",
        _SHARDED_SAVE,
        _SHARDED_LOAD,
        imports=_DCP,
        wrap="use_orig_params=False",
        one_rank=True,
    ),
    Row(
        "DCP, flat, device mesh",
        _SHARDED_SAVE,
        _SHARDED_LOAD,
        imports=_DCP + _MESH,
        wrap=_WITH_MESH.replace("True", "False"),
        one_rank=True,
    ),
    Row(
        "DCP, with what a fresh optimizer does not have",
        _SCHEDULED + _SHARDED_SAVE,
        _SHARDED_LOAD + "return [sorted(group.items()) for group in _without_params(optimizer)], _kinds(optimizer)",
        imports=_DCP + _SEEN,
        optimizer=GROUPS,
    ),
    Row("DCP, device mesh", _SHARDED_SAVE, _SHARDED_LOAD, imports=_DCP + _MESH, wrap=_WITH_MESH, one_rank=True),
    Row(
        "DCP, legacy optimizer calls",
        _SHARDED_SAVE.replace("FSDP.optim_state_dict(", "FSDP.sharded_optim_state_dict("),
        _SHARDED_LOAD.replace(
            'FSDP.optim_state_dict_to_load(model, optimizer, optim_state["optimizer"])',
            'FSDP.flatten_sharded_optim_state_dict(optim_state["optimizer"], model, optimizer)',
        ),
        imports=_DCP,
    ),
    Row(
        "keys that are missing and keys that are not known",
        """
        state = model.state_dict()
        state.pop("inp.bias")
        state["more"] = torch.ones(2)
        if rank == 0:
            torch.save(state, path)
        """,
        """
        try:
            model.load_state_dict(torch.load(path))
        except RuntimeError:
            result = model.load_state_dict(torch.load(path), strict=False)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            again = model.load_state_dict(torch.load(path), strict=False)
        return sorted(result.missing_keys), sorted(result.unexpected_keys), sorted(again.missing_keys)
        """,
    ),
    Row(
        "kept while training goes on",
        """
        config = FullStateDictConfig(offload_to_cpu=False, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            state = model.state_dict()
        everywhere = model.state_dict()
        losses = train(model, optimizer, 9, 1)
        if rank == 0:
            torch.save([state, everywhere], path)
        return losses
        """,
        """
        model.load_state_dict(torch.load(path)[0])
        """,
        imports="from torch.distributed.fsdp import ShardingStrategy",
        reviewed="FM100",  # shard_model reads torch's own ShardingStrategy
        wrap="use_orig_params=True, sharding_strategy=ShardingStrategy.NO_SHARD",
        left_out="count",  # FSDP1 gave the buffers themselves, which go on counting; the support module gives copies
    ),
    Row(
        "kept while training goes on, sharded",
        """
        state = model.state_dict()
        losses = train(model, optimizer, 9, 1)
        if rank == 0:
            torch.save(state, path)
        return losses
        """,
        "model.load_state_dict(torch.load(path))",
    ),
    Row(
        "one state for two models",
        _LEGACY_SAVE,
        _LEGACY_LOAD
        + """
average = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"), use_orig_params=True)
average.load_state_dict(saved["model"])
optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"]))
return round(average(batch(7)).sum().item(), 4), sorted(saved["model"])
""",
    ),
    Row(
        "the best weights are restored twice",
        _LEGACY_SAVE,
        _LEGACY_LOAD
        + """
best = model.state_dict()
best = {name: value.clone() for name, value in best.items()}
for turn in range(2):
    optimizer.zero_grad()
    train(model, optimizer, 5 + turn, 1)
    model.load_state_dict(best)
optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"]))
""",
    ),
    *(
        Row(
            f"resumed if there is a file, {checkpoint_format}",
            _FULL_SAVE,
            _RESUMED.format(load=indent(_FULL_LOAD.replace("path", "name").strip(), " " * 8)),
            keeps_order=checkpoint_format == "keep",
            checkpoint_format=checkpoint_format,
        )
        for checkpoint_format in ("keep", "dcp")
    ),
    Row(
        "saved before the first step",
        "optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)" + _FULL_SAVE,
        _FULL_LOAD,
    ),
    Row(
        "a scheduler that is made after the load",
        """
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        optimizer.step()
        scheduler.step()
        """
        + indent(_LEGACY_SAVE, " " * 8),
        indent(_LEGACY_LOAD, " " * 8)
        + """
        full = saved["optimizer"] if rank == 0 else None
        optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(full, model, optim=optimizer))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return scheduler.base_lrs
        """,
    ),
    Row(
        "an optimizer that keeps nothing",
        _FULL_SAVE,
        _FULL_LOAD,
        optimizer="torch.optim.SGD(model.parameters(), lr=0.05)",
    ),
    Row("compiled", _FULL_SAVE, _FULL_LOAD, after="model = torch.compile(model)"),
    Row("compiled, DCP", _SHARDED_SAVE, _SHARDED_LOAD, imports=_DCP, after="model = torch.compile(model)"),
    Row(
        "compiled, to DCP",
        _FULL_SAVE,
        _FULL_LOAD,
        after="model = torch.compile(model)",
        keeps_order=False,
        checkpoint_format="dcp",
    ),
    Row("compiled before the wrap", _FULL_SAVE, _FULL_LOAD, before="net = torch.compile(net)"),
    Row(
        "compiled parts",
        _FULL_SAVE,
        _FULL_LOAD,
        before="for block in net.blocks:\n    block.up = torch.compile(block.up)",
    ),
    Row(
        "compiled and checkpointed",
        _FULL_SAVE,
        _FULL_LOAD,
        imports=_AC,
        before=_CHECKPOINTED.format("net"),
        after="model = torch.compile(model)",
    ),
    Row("checkpointed blocks", _FULL_SAVE, _FULL_LOAD, imports=_AC, before=_CHECKPOINTED.format("net")),
    Row("tied, flat", _FULL_SAVE, _FULL_LOAD, before=_TIED, wrap="use_orig_params=False"),
    Row(
        "tied and checkpointed, DCP",
        _SHARDED_SAVE,
        _SHARDED_LOAD,
        imports=_DCP + _AC,
        before=_TIED,
        after=_CHECKPOINTED.format("model"),
    ),
    Row("DCP, asynchronous", _ASYNC_SAVE, _SHARDED_LOAD, imports=_DCP + _MESH, wrap=_WITH_MESH),
    Row("DCP of full state dicts", _PLAIN_DCP_SAVE, _PLAIN_DCP_LOAD, imports=_OWN),
    *(
        Row(
            f"DCP of the kind that another function set, {name}",
            _STICKY_DCP_SAVE,
            _STICKY_DCP_LOAD,
            imports=_DCP + _WHOLE,
            after=after,
            reviewed="FM100",  # torch's own configs stay, which Whole keeps
        )
        for name, after in (("plain", ""), ("compiled", "model = torch.compile(model)"))
    ),
    Row(
        "torch's own functions, flat",
        _OWN_SAVE,
        _OWN_LOAD,
        imports=_OWN + _MESH,
        wrap=_WITH_MESH.replace("True", "False"),
        keeps_order=False,
    ),
    Row("torch's own functions, full", _OWN_FULL_SAVE, _OWN_FULL_LOAD, imports=_OWN, keeps_order=False),
    Row(
        "torch's own functions, full, flat",
        _OWN_FULL_SAVE,
        _OWN_FULL_LOAD,
        imports=_OWN,
        wrap="use_orig_params=False",
        keeps_order=False,
    ),
    Row(
        "torch's own functions, stateful",
        'dcp.save({"app": AppState(model, optimizer)}, checkpoint_id=path)',
        'dcp.load({"app": AppState(model, optimizer)}, checkpoint_id=path)',
        imports=_OWN + _MESH + _STATEFUL,
        wrap=_WITH_MESH,
    ),
    Row(
        "inside of summon_full_params",
        """
        with FSDP.summon_full_params(model, writeback=False):
            state = {name: value.clone() for name, value in model.state_dict().items()}
        with FSDP.summon_full_params(model, rank0_only=True, writeback=False):
            module_state = {name: value.clone() for name, value in model.module.state_dict().items()}
        if rank == 0:
            torch.save([state, module_state], path)
        """,
        """
        model.load_state_dict(torch.load(path)[1])
        """,
    ),
    Row(
        "loaded inside of summon_full_params",
        """
        with FSDP.summon_full_params(model, writeback=False):
            state = {name: value.clone() for name, value in model.module.state_dict().items()}
        if rank == 0:
            torch.save(state, path)
        """,
        """
        whole = torch.load(path)
        with FSDP.summon_full_params(model):
            model.module.load_state_dict(whole)
        """,
    ),
]
