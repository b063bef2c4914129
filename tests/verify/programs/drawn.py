"""An FSDP1 program with all that `options.json` can ask for; fsdp-migrate itself makes the FSDP2 program of it."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from model import Block, Options, Transformer, batches, load_options, loss_of, optimizer_for
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def wrap(model: Transformer, options: Options) -> FSDP:
    mixed = None
    if options.precision == "bf16":
        reduce = torch.float32 if options.reduce == "fp32" else torch.bfloat16
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=reduce)
    mesh = None
    if options.strategy == "HYBRID_SHARD":
        mesh = init_device_mesh("cuda", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))
    wrapped = FSDP(
        model,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
        mixed_precision=mixed,
        sharding_strategy=ShardingStrategy[options.strategy],
        device_mesh=mesh,
        device_id=torch.cuda.current_device(),
        use_orig_params=options.use_orig_params,
        sync_module_states=options.sync_module_states,
    )
    if options.checkpointing:
        apply_activation_checkpointing(wrapped, check_fn=lambda module: isinstance(module, Block))
    return wrapped


def again(model: FSDP, optimizer: torch.optim.Optimizer, options: Options) -> tuple[FSDP, torch.optim.Optimizer]:
    """Another model and optimizer, with what these two have learned."""
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        weights = model.state_dict()
        learned = FSDP.optim_state_dict(model, optimizer)
    model = wrap(Transformer(options), options)
    optimizer = optimizer_for(options, model)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(weights)
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, learned))
    return model, optimizer


def main() -> None:
    options = load_options()
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(1234 + 1000 * options.seed + (rank if options.sync_module_states else 0))
    model = wrap(Transformer(options), options)
    teacher = None
    if options.teacher:
        teacher = wrap(Transformer(options).requires_grad_(False), options)
        teacher.eval()
    optimizer = optimizer_for(options, model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)) if options.schedule else None
    torch.manual_seed(99 + rank + 1000 * options.seed)
    data = [batch.cuda() for batch in batches(options, rank)]
    for step in range(options.steps):
        if options.restore and step == options.restore:
            model, optimizer = again(model, optimizer, options)
        for micro in range(options.accumulate):
            last = micro == options.accumulate - 1
            batch = data[step * options.accumulate + micro]
            with nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", torch.bfloat16, enabled=options.autocast):
                    loss = loss_of(model, batch)
                    if teacher is not None:
                        with torch.no_grad():
                            aim = teacher(batch[:, :-1])
                        loss = loss + F.mse_loss(model(batch[:, :-1]).float(), aim.float())
                (loss / options.accumulate).backward()
        if options.clip:
            model.clip_grad_norm_(options.clip)
        optimizer.step()
        optimizer.zero_grad()
        if schedule is not None:
            schedule.step()
        if options.evaluate and step % 2:
            with torch.no_grad():
                loss_of(model, data[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
