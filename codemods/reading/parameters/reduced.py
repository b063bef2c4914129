"""What is computed of a tensor: numbers that tell of all of it, where a sharded one has a part on each rank."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.words import last_name

_REDUCTIONS = frozenset({"all", "any", "count_nonzero", "max", "mean", "min", "norm", "std", "sum", "var"})
_FUNCTIONS = _REDUCTIONS | {"histc", "histogram", "isfinite", "isinf", "isnan", "vector_norm"}
_ELEMENTWISE = frozenset({"abs", "clone", "detach", "double", "exp", "float", "log", "pow", "sqrt", "square", "to"})
_TOGETHER = frozenset(
    {"amax", "amin", "cumsum", "kthvalue", "log_softmax", "median", "normalize", "quantile", "softmax"}
)
_TOGETHER |= {"argsort", "sort", "topk"}
"""What looks at several elements for each that it gives."""
_FLAT = frozenset({"contiguous", "cpu", "flatten", "ravel", "reshape", "view"})
_VIEWS = frozenset({"T", "data", "grad"})


def reduction_of(tensor: cst.BaseExpression, ctx: Context) -> cst.Call | None:
    """The call that makes one number, or a few, of a tensor: `p.norm()`, `(p ** 2).sum()`, `torch.isnan(p.grad)`.

    Or others by all of it: `F.normalize(p, dim=-1)`, `p.abs().flatten().topk(9)`.
    """
    node: cst.CSTNode = tensor
    while True:
        holder = ctx.parent(node)
        if isinstance(holder, cst.Attribute) and holder.value is node:
            call, name = ctx.parent(holder), holder.attr.value
            is_method = isinstance(call, cst.Call) and call.func is holder
            if isinstance(call, cst.Call) and is_method and name in _REDUCTIONS | _TOGETHER:
                return call
            if name not in (_ELEMENTWISE | _FLAT if is_method else _VIEWS):
                return None
            node = call if isinstance(call, cst.Call) and is_method else holder
        elif isinstance(holder, cst.Arg):
            call = ctx.parent(holder)
            if not isinstance(call, cst.Call) or call.args[0] is not holder:
                return None
            name = last_name(call.func)
            if name in _FUNCTIONS | _TOGETHER:
                return call
            if name not in _ELEMENTWISE | _FLAT:
                return None
            node = call
        elif isinstance(holder, (cst.BinaryOperation, cst.UnaryOperation, cst.Comparison, cst.ComparisonTarget)):
            node = holder
        else:
            return None


def operand_of(call: cst.Call, ctx: Context) -> tuple[cst.BaseExpression | None, bool]:
    """What a call computes with, `p` of `p.norm()` and `torch.norm(p)`, and whether a number comes of it.

    None of what gives plain values (`p.item()`), or is not known.
    """
    is_function = (ctx.dotted(call.func) or "").startswith("torch.")
    name = last_name(call.func)
    reduces = name in (_FUNCTIONS if is_function else _REDUCTIONS)
    if not reduces and name not in _ELEMENTWISE:
        return None, False
    if is_function:
        return call.args[0].value if call.args else None, reduces
    return call.func.value if isinstance(call.func, cst.Attribute) else None, reduces
