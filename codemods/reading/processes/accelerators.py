"""Whether a program also runs on another accelerator than CUDA: FSDP1 took the kind of device that it found."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

_KINDS = ("xpu", "npu", "hpu", "mlu", "musa")
_ANY = "accelerator"

DEVICE_TYPE = "accelerator.current_accelerator().type"
"""In the module `torch`: the kind of the devices that the program finds."""


def names_another(ctx: Context) -> bool:
    """Whether any file of the program names one: `torch.xpu`, `"npu"`, `f"xpu:{rank}"`, `torch.accelerator`."""
    attributes = ctx.attributes(*_KINDS, _ANY)
    if any(file.dotted(node) == f"torch.{node.attr.value}" for file, node in attributes):
        return True
    return any(_is_named(node, kind) for kind in _KINDS for file in ctx.files(kind) for node in _strings(file))


def sets_another(ctx: Context, call: cst.Call) -> bool:
    """Whether a call that sets the current device sets none of CUDA: `torch.xpu.set_device(rank)`."""
    return (ctx.dotted(call.func) or "").startswith(tuple(f"torch.{kind}." for kind in _KINDS))


def _strings(ctx: Context) -> list[str]:
    """The texts of strings, and the first words of those that are put together."""
    plain = [str(node.raw_value) for node in ctx.nodes(cst.SimpleString)]
    firsts = (node.parts[0] for node in ctx.nodes(cst.FormattedString) if node.parts)
    return plain + [part.value for part in firsts if isinstance(part, cst.FormattedStringText)]


def _is_named(text: str, kind: str) -> bool:
    return text == kind or text.startswith(f"{kind}:")
