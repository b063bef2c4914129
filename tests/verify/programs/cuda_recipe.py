"""Written for GPUs alone, as fine-tuning recipes are: fp16 autocast with a scaler, real weights on the first rank only,
a frozen reference model, a loader with a worker and pinned memory, torch.compile, events, and bare device numbers."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.data import DataLoader, Dataset

API = json.loads(Path(__file__).with_name("options.json").read_text())["api"]
LOCAL_RANK = int(os.environ["LOCAL_RANK"])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 40)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Tokens(Dataset[Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * dist.get_rank() + index)
        return torch.randint(0, 40, (9,), generator=generator)


def build() -> nn.Module:
    with torch.device("meta") if dist.get_rank() else contextlib.nullcontext():
        model = Net()
    if API == 1:
        on_gpu = (
            (lambda module: module.to_empty(device=torch.device("cuda"), recurse=False)) if dist.get_rank() else None
        )
        return FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            device_id=torch.cuda.current_device(),
            sync_module_states=True,
            param_init_fn=on_gpu,
            use_orig_params=True,
        )
    weights = {} if dist.get_rank() else model.state_dict()
    model.to("meta")
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device=f"cuda:{LOCAL_RANK}")
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return model


def main() -> None:
    dist.init_process_group("nccl", device_id=torch.device(LOCAL_RANK))
    torch.cuda.set_device(LOCAL_RANK)
    assert torch.cuda.is_available()
    torch.manual_seed(0)
    model, reference = build(), build()
    reference.requires_grad_(False)
    reference.eval()
    trained = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=False)
    scaler = ShardedGradScaler() if API == 1 else torch.amp.GradScaler("cuda")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for ids in DataLoader(Tokens(), batch_size=4, num_workers=1, pin_memory=True):
        begin.record()
        ids = ids.to(LOCAL_RANK, non_blocking=True)
        with torch.cuda.amp.autocast(dtype=torch.float16):
            logits = trained(ids[:, :-1])
            with torch.no_grad():
                expected = reference(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss = loss + 0.1 * (logits.float() - expected.float()).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        end.record()
        torch.cuda.synchronize()
        assert begin.elapsed_time(end) >= 0
        assert torch.cuda.max_memory_allocated(f"cuda:{LOCAL_RANK}") > 0


if __name__ == "__main__":
    main()
