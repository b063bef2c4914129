"""Whether code does nothing else than to look at something: it can as well be run later, or not at all."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.shapes import only_returned
from codemods.tables.names import WRAPPER

_DEPTH = 3
"""Through how many functions of the program."""

_BUILTINS = frozenset(
    {
        *("bool", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"),
        *("getattr", "hasattr", "isinstance", "issubclass", "len", "max", "min"),
    }
)
_KNOWN = frozenset(
    {
        *("functools.partial", "os.environ.get", "os.getenv"),
        *("torch.cuda.current_device", "torch.cuda.device_count", "torch.cuda.is_available", "torch.device"),
        *(f"torch.distributed.{name}" for name in ("get_rank", "get_world_size", "is_available", "is_initialized")),
    }
)


def only_asks(ctx: Context, node: cst.CSTNode, depth: int = _DEPTH) -> bool:
    """Whether a statement does no more than to bind names and to put things under keys, an expression not that."""
    if isinstance(node, (cst.Lambda, cst.FunctionDef)):
        return True  # what is in it runs when it is called
    if isinstance(node, (cst.Await, cst.NamedExpr, cst.Yield, cst.Raise, cst.Return, cst.Del, cst.With)):
        return False
    if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Attribute):
        return False
    if isinstance(node, cst.Call) and not _is_known(ctx, node, depth):
        return False
    return all(only_asks(ctx, child, depth) for child in node.children)


def _is_known(ctx: Context, call: cst.Call, depth: int) -> bool:
    if not isinstance(call.func, (cst.Name, cst.Attribute)):
        return False
    fsdp1 = ctx.fsdp1(call.func)
    if fsdp1 is not None:  # else a setting, or a policy
        return fsdp1.partition(".")[0] not in {WRAPPER, "enable_wrap", "wrap"}
    if ctx.dotted(call.func) in _KNOWN or (isinstance(call.func, cst.Name) and call.func.value in _BUILTINS):
        return True
    runs = ctx.runs(call) if depth else ()
    return bool(runs) and all(_only_answers(where, function, depth - 1) for where, function in runs)


def _only_answers(ctx: Context, function: cst.FunctionDef, depth: int) -> bool:
    """`def is_distributed(): return dist.is_initialized()`."""
    returned = only_returned(function)
    return returned is not None and only_asks(ctx, returned, depth)
