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
together behind each step of an optimizer, which saves an all-reduce a weight. A model of which no step is seen, or
not seen in the function of the step, is left as it is, and said. Weights that are loaded into a model that has
trained keep the scales from before until the next step: compute them behind the loading, too.

## References

- https://docs.pytorch.org/ao/stable/workflows/training.html
- https://dev-discuss.pytorch.org/t/enabling-float8-all-gather-in-fsdp2/2359
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, Finding, Fix, Import, Level, Upgrade, finding
from codemods.reading.layout import insertion
from codemods.reading.optimizer_steps import Step, Trained, optimizer_steps
from codemods.reading.output_head import output_heads
from codemods.reading.shardings import Sharding, helpers, loops_without_root, shardings

CODE = "FM603"
TENSORWISE = "tensorwise"
RECIPES = (TENSORWISE, "rowwise", "rowwise_with_gw_hp")

_FLOAT8 = Import("torchao", "float8")
_BY_HAND = "convert its layers above the first fully_shard"
_CAPABILITY = {TENSORWISE: "8.9"}
_ROWWISE_CAPABILITY = "9.0"
_CONVERT = "convert_to_float8_training"
_PRECOMPUTE = "precompute_float8_dynamic_scale_for_fsdp"


def edit(ctx: Context, recipe: str) -> Iterator[Fix]:
    """One fix for each model; none where the program converts its layers itself."""
    if ctx.mentions(_CONVERT):
        return
    unseen = [where for where in ctx.files("fully_shard") if loops_without_root(where)]
    for call in loops_without_root(ctx):
        why = "which model is sharded here is not seen"
        yield Fix(findings=[_cannot(ctx, call, why, _BY_HAND)])
    for sharding in shardings(ctx):
        if unseen:
            why = f"{unseen[0].path.name} shards parts of a model that is not seen there: they may be this one's"
            yield Fix(findings=[_cannot(ctx, sharding.root, why, _BY_HAND)])
        else:
            yield _of_model(sharding, recipe)


def _of_model(sharding: Sharding, recipe: str) -> Fix:
    ctx = sharding.file
    first = sharding.first
    steps = list(_steps(sharding)) if recipe == TENSORWISE else []
    why, hint = _obstacle(sharding, steps, recipe)
    if why or first is None:
        return Fix(findings=[_cannot(ctx, sharding.root, why or "its parts are sharded elsewhere", hint)])
    library = ctx.named(_FLOAT8, first)
    heads = output_heads(ctx, sharding.root.args[0].value)
    edits = [insertion(ctx, first, _conversion(sharding, library.local, heads, recipe))]
    elsewhere = [_after(step, where) for step, where in steps if where is not None]
    said = _finding(sharding, heads, recipe)
    return Fix(edits, [said], [library, Import("torch"), Import("warnings")], elsewhere=elsewhere)


def _obstacle(sharding: Sharding, steps: Sequence[tuple[Step, str | None]], recipe: str) -> tuple[str, str]:
    if not sharding.is_named:
        return "the model has no name before it is sharded", "give it one, and run again"
    if others := helpers(sharding):
        return f"`{others[0]}` shards, too: what it is called for may be a part of `{sharding.known_as}`", _BY_HAND
    behind = f"call {_PRECOMPUTE}(model) behind the step, and convert the model by hand"
    if recipe == TENSORWISE and not steps:
        return f"no step of an optimizer is seen for `{sharding.known_as}`, behind which scales are computed", behind
    for step, where in steps:
        place = f"{step.file.path.name}:{step.file.position(step.call)[0]}"
        if where is None:
            return f"where the optimizer steps ({place}), nothing stands for `{sharding.known_as}`", behind
        if step.statement is None:
            return f"the optimizer's step ({place}) is a part of a longer line", "give it a line of its own"
    return "", _BY_HAND


def _steps(sharding: Sharding) -> Iterator[tuple[Step, str | None]]:
    """Where this model is trained, with what it is called there."""
    ctx = sharding.file
    made = {id(origin.node) for origin in ctx.origins(sharding.root.args[0].value) if origin.node is not None}
    names = (sharding.known_as, sharding.model)
    model = Trained(frozenset({*made, id(sharding.root)}), ctx, ctx.scope(sharding.root), names)
    for step in optimizer_steps(ctx):
        if step.trains(model):
            yield step, step.name_of(model)


def _after(step: Step, model: str) -> tuple[Context, Fix]:
    library = step.file.named(_FLOAT8, step.call)
    return step.file, Fix([step.below(f"{library.local}.{_PRECOMPUTE}({model})")], imports=[library])


def _conversion(sharding: Sharding, library: str, heads: Sequence[str] | None, recipe: str) -> list[str]:
    ctx = sharding.file
    config = f"{library}.Float8LinearConfig"
    if recipe == TENSORWISE:
        config += "(enable_fsdp_float8_all_gather=True)"
    else:
        config += f'.from_recipe_name("{recipe}")'
    capability = _CAPABILITY.get(recipe, _ROWWISE_CAPABILITY)
    one, two = ctx.indent, ctx.indent * 2
    return [
        f"if torch.cuda.is_available() and torch.cuda.get_device_capability() >= ({capability.replace('.', ', ')}):",
        f"{one}{library}.{_CONVERT}(",
        f"{two}{sharding.model},",
        f"{two}config={config},",
        *_filter(sharding, heads),
        f"{one})",
        "else:",
        f'{one}warnings.warn("no float8: it needs a GPU of compute capability {capability}")',
    ]


def _filter(sharding: Sharding, heads: Sequence[str] | None) -> list[str]:
    ctx = sharding.file
    if heads is None:
        stays = 'not name.endswith("head")'
    elif len(heads) == 1:
        stays = f'name != "{heads[0]}"'
    else:
        stays = f"name not in ({', '.join(f'{head!r}'.replace(chr(39), chr(34)) for head in heads)})"
    test = f"{stays} and not any(size % 16 for size in linear.weight.shape)"
    start = f"{ctx.indent * 2}module_filter_fn=lambda linear, name: "
    column = ctx.position(sharding.first or sharding.root)[1] - 1
    if column + len(start) + len(test) + 1 <= ctx.width:
        return [f"{start}{test},"]
    return [f"{start}(", f"{ctx.indent * 3}{test}", f"{ctx.indent * 2}),"]


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


def _cannot(ctx: Context, call: cst.Call, why: str, hint: str) -> Finding:
    return finding(CODE, Level.MANUAL, ctx, call, f"not upgraded: {why}", hint)


UPGRADE = Upgrade(CODE, "float8-training", __doc__, words=("fully_shard",), edit=edit)
