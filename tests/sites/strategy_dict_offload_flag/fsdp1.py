import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.inp = nn.Linear(8, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 8)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def train(model, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.randn(4, 8, device="cuda")
        loss = (model(x).float() - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())


def wrap_policy(mode):
    if mode == "no_shard":
        return None
    return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


def wrap(model, args):
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    sharding_strategy = {
        "zero2": ShardingStrategy.SHARD_GRAD_OP,
        "zero3": ShardingStrategy.FULL_SHARD,
        "no_shard": ShardingStrategy.NO_SHARD,
    }[args.mode]
    return FSDP(
        model,
        auto_wrap_policy=wrap_policy(args.mode),
        cpu_offload=CPUOffload(offload_params=True) if args.cpu_offload is True else None,
        mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype),
        sharding_strategy=sharding_strategy,
        limit_all_gathers=True,
        use_orig_params=True,
        sync_module_states=args.sync_module_states,
        device_id=torch.cuda.current_device(),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["zero2", "zero3", "no_shard"], default="zero3")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--cpu-offload", action="store_true")
    parser.add_argument("--sync-module-states", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    train(wrap(Net(), args))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
