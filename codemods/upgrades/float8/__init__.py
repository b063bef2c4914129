"""**What it does.** With `--float8`, the linear layers compute in float8, and what FSDP2 gathers of their weights is
float8, too. With `--float8=rowwise` (or `rowwise_with_gw_hp`) they are scaled row by row, and gathered as they were.

**Why.** On GPUs that multiply in float8 (compute capability 8.9 and up) large matrices are multiplied up to twice as
fast, and half as much is gathered as in bf16. It takes torchao, and `torch.compile` to be fast: without, the casts
cost more than is gained. The parameters stay what they are, so do the optimizer and the checkpoints: a full or a
distributed one loads into either program. FSDP1 gathers one flat buffer of one dtype, which is why it could not.

Measured with torchao 0.18 and torch 2.13 on 2 gloo ranks, products emulated: a GPT of 3 blocks (64 wide, vocabulary
96, AdamW) under a bf16 policy has a loss of 0.9867 at its 50th step, with float8 0.9932 (0.66 % more), with rowwise
scales 0.9909; a step gathers 329 KB in place of 624 KB, the converted weights half of what they were. Converted after
`fully_shard`, the first forward raises `got mixed torch.Tensor and DTensor`. Scales that are computed before the step
are those of weights that are gone: 0.9967.

On an H100 (torch 2.11, one rank, a GPT of 0.5 billion parameters): 254 ms a step where bf16 takes 122, and 117 with
`--compile`; rowwise scales 279 and 121. README has the table.

## Example

```python
import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def main(batches):
    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead

```python
import warnings

import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torchao import float8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def main(batches):
    model = Net()
    if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9):
        float8.convert_to_float8_training(
            model,
            config=float8.Float8LinearConfig(enable_fsdp_float8_all_gather=True),
            module_filter_fn=lambda linear, name: (
                name != "head" and not any(size % 16 for size in linear.weight.shape)
            ),
        )
    else:
        warnings.warn("no float8: it needs a GPU of compute capability 8.9")
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
        float8.precompute_float8_dynamic_scale_for_fsdp(model)
        optimizer.zero_grad()
```

## Fix safety

The training is not the same to the bit: state how much may differ, and check it (`check --expect 'loss within 2%'`).
The layer that makes the output stays as it is, and layers with sizes that are no multiples of 16, which the kernels
refuse. Layers are converted above the first `fully_shard` of their model; the scales of all weights are computed
together behind each step of an optimizer, which saves an all-reduce a weight. Where the function
of the step does not know the model, a hook of the optimizer computes them (`register_step_post_hook`). They are
computed behind a `load_state_dict`, too, that may come behind a step. A model of which no step is seen is left as it
is, and said.

## References

- https://docs.pytorch.org/ao/stable/workflows/training.html
- https://dev-discuss.pytorch.org/t/enabling-float8-all-gather-in-fsdp2/2359
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from codemods.api import Context, Finding, Fix, Import, Level, Upgrade, finding
from codemods.reading.edits.layout import insertion
from codemods.reading.own_fsdp2.shardings import Sharding, cannot, helpers, loops_without_root, rootless, shardings
from codemods.upgrades.float8.conversion import output_heads

from .conversion import CONVERT, conversion
from .recipes import FLOAT8, RECIPES, TENSORWISE
from .scales import Scales, scales

__all__ = ["RECIPES", "UPGRADE"]

CODE = "FM603"

_BY_HAND = "convert its layers above the first fully_shard"


def edit(ctx: Context, recipe: str) -> Iterator[Fix]:
    """One fix for each model; none where the program converts its layers itself."""
    if ctx.mentions(CONVERT):
        return
    unseen = [where for where in ctx.files("fully_shard") if loops_without_root(where)]
    yield from rootless(CODE, ctx, "which model is sharded here is not seen", _BY_HAND)
    for sharding in shardings(ctx):
        if unseen:
            why = f"{unseen[0].path.name} shards parts of a model that is not seen there: they may be this one's"
            yield cannot(CODE, ctx, sharding.root, why, _BY_HAND)
        else:
            yield _of_model(sharding, recipe)


def _of_model(sharding: Sharding, recipe: str) -> Fix:
    ctx, first = sharding.file, sharding.first
    computed = scales(sharding) if recipe == TENSORWISE else Scales()
    why, hint = _obstacle(sharding)
    if why or computed.why or first is None:
        why, hint = (why, hint) if why else (computed.why or "its parts are sharded elsewhere", computed.hint or hint)
        return cannot(CODE, ctx, sharding.root, why, hint)
    library = ctx.named(FLOAT8, first)
    heads = output_heads(ctx, sharding.root.args[0].value)
    edits = [insertion(ctx, first, conversion(sharding, library.local, heads, recipe))]
    said = _finding(sharding, heads, recipe)
    return Fix(edits, [said], [library, Import("torch"), Import("warnings")], elsewhere=computed.fixes)


def _obstacle(sharding: Sharding) -> tuple[str, str]:
    if not sharding.is_named:
        return "the model has no name before it is sharded", "give it one, and run again"
    if others := helpers(sharding):
        return f"`{others[0]}` shards, too: what it is called for may be a part of `{sharding.known_as}`", _BY_HAND
    return "", _BY_HAND


def _finding(sharding: Sharding, heads: Sequence[str] | None, recipe: str) -> Finding:
    ctx, model = sharding.file, sharding.known_as
    scales = "" if recipe == TENSORWISE else f" ({recipe})"
    gathered = " and are gathered in it" if recipe == TENSORWISE else ""
    message = f"the linear layers of `{model}` compute in float8{scales}{gathered}"
    hint = "it needs torchao, and is fast under --compile; `check --expect` tells what the loss makes of it"
    if heads is None:
        message += "; which of them makes the output is not seen: those whose name ends in `head` stay as they are"
        return finding(CODE, Level.REVIEW, ctx, sharding.root, message, "name the output layer in module_filter_fn")
    return finding(CODE, Level.REWRITTEN, ctx, sharding.root, f"{message}; `{', '.join(heads)}` stays as it is", hint)


UPGRADE = Upgrade(CODE, "float8-training", __doc__, words=("fully_shard",), edit=edit)
