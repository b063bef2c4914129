"""Several epochs, each with a checkpoint: torchrun --nproc-per-node 2 epochs.py [--resume runs/epoch0]"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from net import batches, build_model
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--resume", default=None, help="a checkpoint to go on from")
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    first = 0
    if args.resume is not None:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "epoch": 0}
        dcp.load(state, checkpoint_id=args.resume)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        first = state["epoch"] + 1

    for epoch in range(first, args.epochs):
        for index, (x, y) in enumerate(batches(100 * epoch + dist.get_rank(), count=10)):
            is_last = (index + 1) % args.accumulate == 0
            model.set_requires_gradient_sync(is_last)
            loss = F.cross_entropy(model(x), y)
            (loss / args.accumulate).backward()
            if is_last:
                optimizer.step()
                optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}  loss {loss.item():.4f}")
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments, "epoch": epoch}, checkpoint_id=f"runs/epoch{epoch}")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
