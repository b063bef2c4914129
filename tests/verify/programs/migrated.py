"""The FSDP2 program, right or with the one mistake that `options.mutation` names."""

from __future__ import annotations

import torch
import torch.distributed as dist
from model import Block, Transformer, batches, load_options, loss_of, optimizer_for
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

OPTIONS = load_options()
MUTATION = OPTIONS.mutation


def shard(model: torch.nn.Module, world: int) -> None:
    """What the FSDP1 constructor did."""
    how: dict[str, object] = {}
    if OPTIONS.precision == "bf16" and MUTATION != "precision_dropped":
        reduce = torch.float32 if OPTIONS.reduce == "fp32" or MUTATION == "reduce_dtype" else torch.bfloat16
        how["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, reduce, cast_forward_inputs=True)
    if MUTATION == "precision_added":
        how["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    if OPTIONS.strategy == "SHARD_GRAD_OP" or MUTATION == "reshard_dropped":
        how["reshard_after_forward"] = False
    if OPTIONS.strategy == "HYBRID_SHARD" and MUTATION != "hybrid_dropped":
        how["mesh"] = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard"))
    if OPTIONS.strategy == "NO_SHARD" and MUTATION != "no_shard_sharded":
        how["mesh"] = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    if MUTATION == "one_block_missed":
        blocks.pop()
    if MUTATION == "blocks_merged":
        fully_shard(blocks, **how)
    elif MUTATION != "root_only":
        for block in blocks:
            fully_shard(block, **how)
    if MUTATION == "inner_linear_sharded":
        fully_shard(model.head, **how)
    if MUTATION != "root_missing":
        fully_shard(model, **how)
        # FSDP1 gives the unused parameters of a group that is used zeros for gradients.
        model.set_reduce_scatter_unused_params(OPTIONS.unused and MUTATION != "unused_left")


def build(rank: int, world: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    seed = 1234 + 1000 * OPTIONS.seed + (MUTATION == "seed_changed")
    torch.manual_seed(seed + (rank if OPTIONS.sync_module_states else 0))
    with torch.device("meta" if OPTIONS.meta else "cpu"):
        model = Transformer(OPTIONS)
    if MUTATION == "untied":
        model.head.weight = torch.nn.Parameter(model.head.weight.detach().clone())
    if MUTATION == "unfrozen":
        model.requires_grad_(True)
    if OPTIONS.checkpointing:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    early = optimizer_for(OPTIONS, model) if MUTATION == "optimizer_first" else None
    if OPTIONS.sync_module_states and MUTATION != "sync_dropped":
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.detach(), 0)
    shard(model, world)
    if OPTIONS.meta:
        materialise(model, rank)
    return model, early or optimizer_for(OPTIONS, model)


def materialise(model: torch.nn.Module, rank: int) -> None:
    model.to_empty(device="cpu")
    torch.manual_seed(1234 + 1000 * OPTIONS.seed + (0 if MUTATION == "shards_repeat" else rank))
    if MUTATION == "reset_forgotten":
        for param in model.parameters():
            torch.nn.init.zeros_(param)
    else:
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    if MUTATION == "norm_zeroed":
        torch.nn.init.zeros_(model.norm.weight)
    model.scale.fill_(0.5)


def clip(model: torch.nn.Module) -> None:
    if MUTATION == "clip_dropped":
        return
    limit = 2 * OPTIONS.clip if MUTATION == "clip_doubled" else OPTIONS.clip
    if MUTATION != "clip_local":
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        return
    local = [p.grad.to_local() for p in model.parameters() if isinstance(p.grad, DTensor)]
    norm = torch.linalg.vector_norm(torch.stack([grad.norm() for grad in local]))
    for grad in local:
        grad.mul_(min(1.0, limit / (float(norm) + 1e-6)))


def synced(last: bool) -> bool:
    """Whether this micro-batch reduces its gradients."""
    return {"no_sync_inverted": not last, "no_sync_always": False, "no_sync_dropped": True}.get(MUTATION, last)


def backward(model: torch.nn.Module, batch: torch.Tensor, last: bool) -> None:
    if MUTATION != "root_missing":
        model.set_requires_gradient_sync(synced(last))
    autocast = OPTIONS.autocast and MUTATION != "autocast_dropped"
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = loss_of(model, batch)
    (loss / (1 if MUTATION == "scaling_lost" else OPTIONS.accumulate)).backward()


def tamper_with_gradients(model: torch.nn.Module, world: int) -> None:
    for name, param in model.named_parameters():
        if MUTATION == "gradients_summed" and param.grad is not None:
            param.grad.mul_(world)
        if MUTATION == "gradient_lost" and name == "blocks.0.up.bias":
            param.grad = None


def tamper_with_optimizer(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        group["lr"] *= 1.01 if MUTATION == "lr_off" else 1.0
        group["weight_decay"] += 0.1 if MUTATION == "weight_decay_off" else 0.0
        if MUTATION == "betas_off":
            group["betas"] = (0.9, 0.95)


def train(rank: int, world: int) -> None:
    model, optimizer = build(rank, world)
    tamper_with_optimizer(optimizer)
    schedule = None
    if OPTIONS.schedule and MUTATION != "schedule_dropped":
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    torch.manual_seed(99 + rank + 1000 * OPTIONS.seed)
    if MUTATION == "data_repeated":
        rank = 0
    data = batches(OPTIONS, rank)
    for step in range(OPTIONS.steps):
        for micro in range(OPTIONS.accumulate):
            last = micro == OPTIONS.accumulate - 1
            backward(model, data[step * OPTIONS.accumulate + micro], last)
        tamper_with_gradients(model, world)
        if OPTIONS.clip:
            clip(model)
        if OPTIONS.evaluate_early and step % OPTIONS.evaluate_early == 0:
            with torch.no_grad():
                loss_of(model, data[0])
            if MUTATION == "resharded":
                for module in model.modules():
                    if isinstance(module, FSDPModule):
                        module.reshard()
        optimizer.step()
        if MUTATION != "zero_grad_lost":
            optimizer.zero_grad()
        if schedule is not None:
            schedule.step()
        if OPTIONS.evaluate and step % 2:
            with torch.no_grad():
                loss_of(model, data[0])
        if MUTATION == "stops_early" and step == 2:
            break


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
