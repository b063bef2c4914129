"""A model that another function moves to a GPU by its index, in a program that sets no device.

FSDP1 computed where it found the parameters. `fully_shard` moves them to the current device, which is the first GPU for
all ranks then.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.starts import Kind, starts
from codemods.reading.processes.accelerators import names_another, sets_another
from codemods.reading.processes.current_device import WORDS, device_calls
from codemods.tables.names import WRAPPER

from ..draft import Draft

_RANKS = frozenset({"rank", "local_rank"})


def find_parameters(draft: Draft) -> None:
    """Set the device that the parameters are on, before the first of the calls that wrap parts of one model."""
    ctx = draft.file
    if _is_below_another(draft) or any(_sets_cuda(file, draft) for file in _files(ctx)) or not _is_moved(ctx):
        return
    device = draft.fresh("device", "model_device")
    torch = draft.imported("torch")
    test, module = f'{device}.type == "cuda"', f"{torch}.cuda"
    if names_another(ctx):
        test, module = f'{device}.type not in ("cpu", "meta")', f"{torch}.get_device_module({device})"
    found = f"{device} = next({draft.model}.parameters()).device  # FSDP1 computed there"
    draft.before.append(f"{found}\nif {test}:\n    {module}.set_device({device})")


def _is_below_another(draft: Draft) -> bool:
    ctx = draft.file
    above = (call for call in ctx.calls(ctx.scope(draft.call)) if ctx.span(call)[0] < ctx.span(draft.call)[0])
    return any(ctx.fsdp1(call.func) == WRAPPER and not ctx.excludes(call, draft.call) for call in above)


def _files(ctx: Context) -> list[Context]:
    return [file for word in WORDS for file in ctx.files(word)]


def _sets_cuda(ctx: Context, draft: Draft) -> bool:
    """Whether a file sets a GPU where the script that wraps comes to: no function that nobody calls, nor another's."""
    calls = [call for call in device_calls(ctx) if not sets_another(ctx, call)]
    sets = [each for call in calls for each in starts(ctx, call)]
    if any(start.kind is Kind.LOADED for start in sets):
        return True
    wraps = starts(draft.file, draft.call) if sets else []
    if all(start.kind is Kind.OUTSIDE for start in wraps):  # who calls the one may call the other
        return bool(sets)
    paths = {start.file.path for start in wraps}
    return any(start.file.path in paths for start in sets if start.kind is Kind.SCRIPT)


def _is_moved(ctx: Context) -> bool:
    """Whether anything in the program is moved to a GPU by the index: the data is, where the model is."""
    return any(
        isinstance(call, cst.Call) and call.func is moved and bool(call.args) and _is_indexed(file, call.args[0].value)
        for file, moved in ctx.attributes("to", "cuda")
        for call in [file.parent(moved)]
        if file.path == ctx.path or not file.path.name.startswith("test_")
    )


def _is_indexed(ctx: Context, device: cst.BaseExpression) -> bool:
    last = device.attr if isinstance(device, cst.Attribute) else device
    if isinstance(last, cst.Name) and last.value.lower() in _RANKS:
        return True
    return any(_names_index(origin) for origin in ctx.origins(device))


def _names_index(origin: Origin) -> bool:
    """`torch.device("cuda", rank)`, `f"cuda:{rank}"`, `"cuda:" + str(rank)`, `"cuda:%d" % rank`."""
    node, ctx = origin.node, origin.file
    if isinstance(node, cst.Call) and ctx.dotted(node.func) == "torch.device" and node.args:
        if len(node.args) > 1:
            return _first_text(node.args[0].value) == "cuda"
        return any(_names_index(each) for each in ctx.origins(node.args[0].value))
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "format":
        node = node.func.value
    elif isinstance(node, cst.BinaryOperation):
        node = node.left
    elif not isinstance(node, cst.FormattedString):
        return False
    return _first_text(node).startswith("cuda:")


def _first_text(node: cst.CSTNode) -> str:
    """What a string begins with, as far as it is written."""
    if isinstance(node, cst.FormattedString):
        node = node.parts[0] if node.parts else node
        return node.value if isinstance(node, cst.FormattedStringText) else ""
    return str(node.raw_value) if isinstance(node, cst.SimpleString) else ""
