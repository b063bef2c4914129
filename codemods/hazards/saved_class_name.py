"""**What it does.** Finds `save_pretrained` and `push_to_hub` of a sharded model, which write the name of its class.

**Why.** `fully_shard` gives a module a class of its own: `FSDPLlamaForCausalLM`. transformers leaves the prefix out
since 4.57; an older one writes it to `architectures` in config.json, and what looks the class up there fails (vLLM).
FSDP1's wrapper handed the call on to the model inside, whose class had its own name.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, path, state):
    model = FSDP(net)
    model.save_pretrained(path, state_dict=state)
```

## Use instead

Ask for transformers >= 4.57, or write the name behind it:

```python
import json


def name_class(path, name):
    with open(f"{path}/config.json") as file:
        config = json.load(file)
    config["architectures"] = [name]
    with open(f"{path}/config.json", "w") as file:
        json.dump(config, file, indent=2)
```

## Fix safety

Nothing is changed: it is reported, once a file.

## References

- https://github.com/huggingface/transformers/pull/40207
"""

from __future__ import annotations

from collections.abc import Iterator

from codemods.api import Check, Context, Finding, Level, ModelKind, finding

CODE = "FM448"

_SAVES = ("save_pretrained", "push_to_hub")
_MESSAGE = (
    "writes the class's name, to which fully_shard adds FSDP: transformers before 4.57 has it in config.json"
    " (`architectures`)"
)


def find(ctx: Context) -> Iterator[Finding]:
    """One finding at the first of a file."""
    for where, saves in ctx.attributes(*_SAVES):
        if where.path == ctx.path and ModelKind.FSDP in ctx.kinds(saves.value):
            hint = "ask for transformers >= 4.57, or write the name into config.json behind it"
            yield finding(CODE, Level.REVIEW, ctx, saves, f"{saves.attr.value} {_MESSAGE}", hint)
            return


CHECK = Check(CODE, "saved-class-name", __doc__, words=_SAVES, find=find)
