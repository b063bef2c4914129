import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


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


class Trainer:
    def __init__(self, policy, reference, config, rank):
        mp_dtype = getattr(torch, config.mp) if config.mp is not None else None
        mp_policy = MixedPrecisionPolicy(param_dtype=mp_dtype, reduce_dtype=mp_dtype)
        for block in policy.blocks:
            fully_shard(block, mp_policy=mp_policy)
        self.policy = fully_shard(policy, mp_policy=mp_policy)
        apply_activation_checkpointing(
            self.policy, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda m: isinstance(m, Block)
        )
        for block in reference.blocks:
            fully_shard(block)
        self.reference = fully_shard(reference)

    def train(self):
        optimizer = torch.optim.RMSprop(self.policy.parameters(), lr=1e-3)
        for step in range(4):
            x = torch.randn(4, 8, device="cuda")
            with torch.no_grad():
                reference = self.reference(x)
            loss = (self.policy(x).float() - reference + x).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if dist.get_rank() == 0:
                print(step, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mp", default="bfloat16")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    Trainer(Net(), Net(), args, torch.cuda.current_device()).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
