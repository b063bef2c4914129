import os
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import _module_wrap_policy, _or_policy


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


class Strategy:
    def __init__(self, model, mixed=True, reduce_in_full_precision=False, sharding_strategy="shard-grad-op"):
        self.model = model
        self.mixed = mixed
        self.reduce_in_full_precision = reduce_in_full_precision
        if sharding_strategy == "shard-grad-op":
            self.fsdp_sharding_strategy = ShardingStrategy.SHARD_GRAD_OP
        elif sharding_strategy == "full-shard":
            self.fsdp_sharding_strategy = ShardingStrategy.FULL_SHARD
        else:
            raise ValueError(f"{sharding_strategy} is not supported")

    def wrapping_policy(self):
        blocks = partial(_module_wrap_policy, module_classes={Block})
        mlps = partial(_module_wrap_policy, module_classes={nn.Sequential})
        return partial(_or_policy, policies=[blocks, mlps])

    def run_setup(self):
        wrapping_policy = self.wrapping_policy()
        if self.mixed:
            reduce_dtype = torch.bfloat16 if not self.reduce_in_full_precision else torch.float32
            precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype, buffer_dtype=reduce_dtype)
        else:
            precision = MixedPrecision(
                param_dtype=torch.float32, reduce_dtype=torch.float32, buffer_dtype=torch.float32
            )
        self.model = FSDP(
            self.model,
            auto_wrap_policy=wrapping_policy,
            mixed_precision=precision,
            sharding_strategy=self.fsdp_sharding_strategy,
            device_id=torch.cuda.current_device(),
            limit_all_gathers=True,
            use_orig_params=True,
        )
        wrapper = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
        apply_activation_checkpointing(
            self.model, checkpoint_wrapper_fn=wrapper, check_fn=lambda m: isinstance(m, Block)
        )


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    model = Net()
    for parameter in model.inp.parameters():
        parameter.requires_grad = False
    strategy = Strategy(model, sharding_strategy=os.environ.get("SHARDING", "shard-grad-op"))
    strategy.run_setup()
    train(strategy.model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
