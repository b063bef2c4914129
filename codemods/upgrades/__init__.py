"""What FSDP2 makes possible, and FSDP1 did not: each is written when it is asked for, into a program that is FSDP2.

The names are the options of `fsdp-migrate upgrade`.
"""

from __future__ import annotations

from codemods.api import Upgrade

from . import async_checkpoint, compile, float8, prefetch, reshard_after_forward

UPGRADES: dict[str, Upgrade] = {
    "reshard_after_forward": reshard_after_forward.UPGRADE,
    "prefetch": prefetch.UPGRADE,
    "float8": float8.UPGRADE,
    "compile": compile.UPGRADE,
    "async_checkpoint": async_checkpoint.UPGRADE,
}
