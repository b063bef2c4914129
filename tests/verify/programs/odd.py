"""Training loops that are not the usual one; `options.json` names which. No FSDP: the event stream is tested."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LOOP = json.loads(Path(__file__).with_name("options.json").read_text())["loop"]


def reentrant_checkpoint(model: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x.requires_grad_()
    for _ in range(3):
        checkpoint(model, x, use_reentrant=True).sum().backward()
        optimizer.step()


def lbfgs(model: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


def optimizer_in_backward(model: nn.Module, x: Tensor) -> None:
    optimizers = {param: torch.optim.SGD([param], 0.1) for param in model.parameters()}

    def step(param: Tensor) -> None:
        optimizers[param].step()
        optimizers[param].zero_grad()

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        model(x).sum().backward()


class Subclass(torch.optim.AdamW):
    def step(self, closure: Callable[[], Tensor] | None = None) -> None:
        super().step(closure)


def subclassed_optimizer(model: nn.Module, x: Tensor) -> None:
    optimizer = Subclass(model.parameters(), 1e-3)
    for _ in range(3):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def scaler_that_skips(model: nn.Module, x: Tensor) -> None:
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=2.0**20), torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        loss = model(x).sum() * (float("inf") if step == 0 else 1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def autograd_grad(model: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    params = list(model.parameters())
    for _ in range(3):
        for param, grad in zip(params, torch.autograd.grad(model(x).sum(), params), strict=True):
            param.grad = grad
        optimizer.step()


def two_optimizers(model: nn.Module, x: Tensor) -> None:
    first, second = list(model.parameters())[:2], list(model.parameters())[2:]
    optimizers = [torch.optim.SGD(first, 0.1), torch.optim.AdamW(second, 0.1)]
    for _ in range(3):
        for optimizer in optimizers:
            model(x).sum().backward()
            optimizer.step()
            model.zero_grad()


def accumulation_and_scheduler(model: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        for _ in range(4):
            model(x).sum().backward()
        optimizer.step()
        scheduler.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[LOOP](nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(3, 4))
