"""**What it does.** Finds model classes that name `ABC` before `nn.Module` among their bases.

**Why.** `fully_shard` changes the class of the object. With `ABC` first the layouts differ: `TypeError: __class__
assignment: 'FSDPM' object layout differs from 'M'`. FSDP1 took both orders.

## Example

```python
from abc import ABC

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(ABC, nn.Module):
    pass


def build():
    return FSDP(Net())
```

## Use instead

```python
from abc import ABC

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module, ABC):
    pass


def build():
    return FSDP(Net())
```

## Fix safety

Nothing is changed. `ABC` has no methods, so that swapping the two bases changes nothing else.

## References

- https://docs.python.org/3/library/abc.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.vocabulary import Check, File, Finding, Level, finding

CODE = "FM415"

_EMPTY = frozenset({"abc.ABC", "typing.Generic", "typing.Protocol"})


def find(file: File) -> Iterator[Finding]:
    """One finding for each class."""
    for node in file.nodes(cst.ClassDef):
        names = [file.dotted(base.value) or "" for base in node.bases]
        if "torch.nn.Module" in names and any(name in _EMPTY for name in names[: names.index("torch.nn.Module")]):
            yield finding(
                CODE,
                Level.MANUAL,
                file,
                node.name,
                "fully_shard cannot change the class of an object whose class has ABC before nn.Module",
                f"class {node.name.value}(nn.Module, ABC)",
            )


CHECK = Check(CODE, "abstract-base-first", __doc__, words=("ABC", "Generic", "Protocol"), find=find)
