"""`buffer_dtype`: FSDP1 cast the floating-point buffers; FSDP2 leaves them, so they are cast beside `fully_shard`.

A model that is seen to have none needs no loop: its classes are the program's own, no file of it registers a buffer,
and what it takes from libraries are layers that hold parameters only.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import is_self
from codemods.reading.code.program import others

from ..draft import Draft

_LAYERS = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList", "Sequential"),
        *("Bilinear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Identity", "Linear"),
        *("GRU", "GroupNorm", "LSTM", "LayerNorm", "MultiheadAttention", "RMSNorm", "RNN"),
        *("TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"),
        *("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Flatten", "Unflatten"),
        *("ELU", "GELU", "LeakyReLU", "Mish", "PReLU", "ReLU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh"),
        *("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d"),
        *("PixelShuffle", "PixelUnshuffle", "Upsample"),
    )
)
"""Layers of torch that have no buffers."""

_NOT_LAYERS = (
    *("abc.", "builtins.", "collections.", "dataclasses.", "einops.", "functools.", "itertools.", "math.", "typing."),
    *("torch.distributed.", "torch.nn.functional.", "torch.nn.init.", "torch.utils.checkpoint."),
)
_LOADING = ("torch.compile", "torch.load")
"""Of torch itself: what gives a module back."""


def has_no_buffers(draft: Draft) -> bool:
    """Whether the model is seen to hold no buffer, and nothing is written for others too."""
    made = draft.built
    files = {where.path: where for where, _ in (*made.made, *made.classes)} | {draft.file.path: draft.file}
    is_seen = (
        not draft.for_others
        and made.is_whole
        and all(map(_holds_none, made.from_libraries))
        and not _registers_any(draft.file)
    )
    return is_seen and not any(map(_puts_in_later, files.values()))


def _puts_in_later(ctx: Context) -> bool:
    """`model.rope = lib.Rope()`: whether a file sets attributes of objects, but for `self`, to what a library makes."""
    for assignment in ctx.nodes(cst.Assign):
        owners = [each.target.value for each in assignment.targets if isinstance(each.target, cst.Attribute)]
        made = ctx.dotted(assignment.value.func) if isinstance(assignment.value, cst.Call) else None
        if made is not None and not _holds_none(made) and any(not is_self(owner, ctx) for owner in owners):
            return True
    return False


def _holds_none(dotted: str) -> bool:
    is_function = dotted.startswith("torch.") and dotted.count(".") == 1 and dotted not in _LOADING
    return dotted in _LAYERS or is_function or dotted.startswith(_NOT_LAYERS)


def _registers_any(ctx: Context) -> bool:
    words = ("register_buffer", "Buffer", "_buffers")
    return ctx.mentions(*words) or any(True for word in words for _ in others(ctx, word))


def cast_loop(dtype: str, draft: Draft) -> list[str]:
    """The lines that cast the buffers, but for those that FSDP1 left in float32."""
    buffer = draft.fresh("buffer", "module_buffer")
    cast = [f"if {buffer}.is_floating_point():", f"    {buffer}.data = {buffer}.data.to({dtype})"]
    loop = [f"for {buffer} in {draft.model}.buffers():", *("    " + line for line in cast)]
    module = draft.fresh("module", "submodule", "layer")
    kept = [f"{module} not in {draft.ignored_modules}"] if draft.ignored_modules else []
    kept += [_in_low_precision(module, draft)] if draft.float32_class else []
    if kept:
        loop = [
            f"for {module} in {draft.model}.modules():",
            f"    if {' and '.join(kept)}:",
            f"        for {buffer} in {module}.buffers(recurse=False):",
            *("            " + line for line in cast),
        ]
    return loop


def _in_low_precision(module: str, draft: Draft) -> str:
    """Whether a module is of none of the classes that stay in float32, which they do in units of their own only."""
    test = f"not isinstance({module}, {draft.float32_class})"
    guard = draft.selector.guard if draft.selector is not None else ""
    if not guard:
        return test
    policy, plain = guard.removesuffix(" is not None"), draft.file.plain(guard)
    if policy != guard and " " not in plain.removesuffix(" is not None"):
        none = f"{policy} is None"
    else:
        none = f"not ({guard})" if " " in plain else f"not {guard}"
    return f"({none} or {test})" if draft.ignored_modules else f"{none} or {test}"
