"""Methods and attributes of a tensor, by what they do with its values."""

from __future__ import annotations

FACTS = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout"})
"""Attributes that are the same of a DTensor and of the whole of it."""

ASKS = frozenset({"numel", "size", "dim", "nelement", "element_size", "is_floating_point"})
"""Methods that tell no more."""

COPIES = frozenset({"clone", "cpu", "norm", "sum", "mean", "std", "var", "item", "tolist", "all", "any"})
"""What they return is another tensor, or none."""

READS = frozenset({"detach", "float", "double", "half", "bfloat16", "to", "abs", "max", "min", "view", "reshape"})
READS |= {
    "flatten",
    "contiguous",
    "square",
    "pow",
    "isnan",
    "isinf",
    "isfinite",
    "numpy",
    "sqrt",
    "neg",
    "sign",
    "clamp",
}
READS |= {"t", "transpose", "permute", "squeeze", "unsqueeze", "amax", "amin", "median", "trace", "count_nonzero"}
READS |= {"histc", "quantile", "kthvalue", "topk", "sort", "argmax", "argmin", "log", "log10", "log1p", "exp", "round"}
"""What they return may be the same values in another shape."""

IN_PLACE = frozenset({"add_", "mul_", "sub_", "div_", "lerp_", "copy_", "addcmul_", "addcdiv_", "zero_", "fill_"})
IN_PLACE |= {"clamp_", "clamp_min_", "clamp_max_"}
"""Methods that change a tensor, and only read those that they are given."""

ELEMENT_BY_ELEMENT = frozenset({"add_", "mul_", "sub_", "div_", "zero_", "fill_", "clamp_", "clamp_min_", "clamp_max_"})
"""Methods that change each element by itself, so that a shard is changed as its part of the whole is."""

ON_CONTAINERS = frozenset({"append", "extend", "keys", "values", "items", "get", "pop", "format", "join", "setdefault"})

ON_TEXTS = frozenset({"replace", "removeprefix", "removesuffix", "split", "strip", "lstrip", "rstrip", "lower", "join"})
ON_TEXTS |= {"startswith", "endswith"}
"""Methods of texts, of which nothing else has one that looks at a model."""

QUIET_FUNCTIONS = frozenset({"print", "len", "float", "int", "str", "list", "dict", "set", "tuple", "sorted", "zip"})
QUIET_FUNCTIONS |= {"enumerate", "range", "sum", "all", "any", "max", "min", "abs", "round", "isinstance"}
"""Builtin functions that look at what they are given."""
