"""Parameter names without the prefixes that wrappers put in, so that FSDP1 and FSDP2 names are equal."""

from __future__ import annotations

WRAPPER_PARTS = frozenset({"_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module", "_orig_mod"})


def clean(name: str) -> str:
    """`_fsdp_wrapped_module.b.0._checkpoint_wrapped_module.w` becomes `b.0.w`."""
    return ".".join(part for part in name.split(".") if part and part not in WRAPPER_PARTS)


def join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
