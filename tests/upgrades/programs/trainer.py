"""A trainer that saves in a method, and goes back to what it saved when the loss grows."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from net import batches, build_model
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


class Trainer:
    def __init__(self, lr=1e-2):
        self.model = build_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.saved = None

    def state(self):
        weights, moments = get_state_dict(self.model, self.optimizer)
        return {"model": weights, "optimizer": moments}

    def save(self, step):
        self.saved = f"runs/step{step}"
        dcp.save(self.state(), checkpoint_id=self.saved)

    def go_back(self):
        state = self.state()
        dcp.load(state, checkpoint_id=self.saved)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def train_step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def fit(self, steps):
        for step, (x, y) in enumerate(batches(dist.get_rank(), steps)):
            print(f"step {step:2d}  loss {self.train_step(x, y):.4f}")
            if step % 5 == 4:
                self.save(step)
            if step % 8 == 7:
                self.go_back()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Trainer().fit(20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
