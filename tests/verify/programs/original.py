"""The FSDP1 program."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import torch
import torch.distributed as dist
from model import Block, Transformer, batches, load_options, loss_of, optimizer_for
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def main() -> None:
    options = load_options()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234 + 1000 * options.seed + (rank if options.sync_module_states else 0))
    model = Transformer(options)
    mixed = None
    if options.precision == "bf16":
        reduce = torch.float32 if options.reduce == "fp32" else torch.bfloat16
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=reduce)
    mesh = None
    if options.strategy == "HYBRID_SHARD":
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard"))
    model = FSDP(
        model,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
        mixed_precision=mixed,
        sharding_strategy=ShardingStrategy[options.strategy],
        device_mesh=mesh,
        device_id=torch.device("cpu"),
        use_orig_params=options.use_orig_params,
        sync_module_states=options.sync_module_states,
    )
    if options.checkpointing:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    optimizer = optimizer_for(options, model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)) if options.schedule else None
    torch.manual_seed(99 + rank + 1000 * options.seed)
    data = batches(options, rank)
    for step in range(options.steps):
        for micro in range(options.accumulate):
            last = micro == options.accumulate - 1
            with nullcontext() if last else model.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=options.autocast):
                    loss = loss_of(model, data[step * options.accumulate + micro])
                (loss / options.accumulate).backward()
        if options.clip:
            model.clip_grad_norm_(options.clip)
        if options.evaluate_early and step % options.evaluate_early == 0:
            with torch.no_grad():
                loss_of(model, data[0])
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
