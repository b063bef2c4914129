"""`enable_wrap` and `wrap` that stay in use: the support module has them under the same names.

`from torch.distributed.fsdp.wrap import wrap` is changed where imports are written. What is named through a module, or
comes by a star import, is changed here.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import


def move(node: cst.BaseExpression, name: str, ctx: Context) -> Fix:
    """The edit for one use, which means `name`."""
    root = name.split(".")[0]
    inner = node
    for _ in range(name.count(".")):
        inner = cst.ensure_type(inner, cst.Attribute).value
    if isinstance(inner, cst.Name):
        starred = not ctx.is_imported(inner)
        return Fix(imports=[Import(SUPPORT, root)] if starred else [])
    item = ctx.named(Import(SUPPORT, root), node)
    return Fix(edits=[Edit(*ctx.bare_span(inner), item.local)], imports=[item])
