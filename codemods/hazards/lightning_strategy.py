"""**What it does.** Finds Lightning's FSDP strategy in a program whose models become FSDP2's.

**Why.** `Trainer(strategy="fsdp")` wraps the module with FSDP1, unless a part of it is wrapped so already. What
`configure_model` shards is no part that it knows, so it wraps that again, and raises in torch ("Attempted to call
resize_()", torch 2.13).

## Example

```python
import lightning
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Module(lightning.LightningModule):
    def configure_model(self):
        self.model = FSDP(self.model)


trainer = lightning.Trainer(strategy="fsdp")
```

## Use instead

```python
import lightning
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard


class Module(lightning.LightningModule):
    def configure_model(self):
        fully_shard(self.model)


trainer = lightning.Trainer(strategy=ModelParallelStrategy())
```

## Fix safety

The strategy is not changed: it is reported where it is given to a `Trainer` or a `Fabric`. One that comes from a
configuration file is not seen.

## References

- https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/tp_fsdp.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Emission, Finding, Level, Origin, finding
from codemods.plan import PlannedContext
from codemods.reading.wrappers.lightning_strategies import is_fsdp1_strategy, runs_strategies

CODE = "FM453"

_MESSAGE = "Lightning's strategy wraps the model with FSDP1, around what is sharded by FSDP2, and raises"
_HINT = "give it ModelParallelStrategy() of lightning.pytorch.strategies, and call fully_shard in configure_model"


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each `Trainer` that is given it."""
    wraps = [call for _, call in ctx.wrapping.calls(ctx.path) if call in ctx.plan.wraps]
    if all(ctx.plan.emission(call) is Emission.SKIP for call in wraps):
        return
    for call in ctx.nodes(cst.Call):
        if not runs_strategies(ctx.dotted(call.func)):
            continue
        given = (a.value for a in call.args if a.keyword is not None and a.keyword.value == "strategy")
        if any(_is_fsdp1(origin) for value in given for origin in ctx.origins(value)):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _is_fsdp1(origin: Origin) -> bool:
    if isinstance(origin.node, cst.SimpleString):
        return str(origin.node.evaluated_value).startswith("fsdp")
    return isinstance(origin.node, cst.Call) and is_fsdp1_strategy(origin.file.dotted(origin.node.func))


CHECK = Check(CODE, "lightning-strategy", __doc__, words=("strategy",), find=find)
