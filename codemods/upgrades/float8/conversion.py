"""The lines that convert a model's linear layers, where the hardware can."""

from __future__ import annotations

from collections.abc import Sequence

from codemods.reading.shardings import Sharding

from .recipes import TENSORWISE

CONVERT = "convert_to_float8_training"

_CAPABILITY = {TENSORWISE: "8.9"}
_ROWWISE_CAPABILITY = "9.0"


def conversion(sharding: Sharding, library: str, heads: Sequence[str] | None, recipe: str) -> list[str]:
    ctx = sharding.file
    config = f"{library}.Float8LinearConfig"
    if recipe == TENSORWISE:
        config += "(enable_fsdp_float8_all_gather=True)"
    else:
        config += f'.from_recipe_name("{recipe}")'
    capability = _CAPABILITY.get(recipe, _ROWWISE_CAPABILITY)
    one, two = ctx.indent, ctx.indent * 2
    return [
        f"if torch.cuda.is_available() and torch.cuda.get_device_capability() >= ({capability.replace('.', ', ')}):",
        f"{one}{library}.{CONVERT}(",
        f"{two}{sharding.model},",
        f"{two}config={config},",
        *_filter(sharding, heads),
        f"{one})",
        "else:",
        f'{one}warnings.warn("no float8: it needs a GPU of compute capability {capability}")',
    ]


def _filter(sharding: Sharding, heads: Sequence[str] | None) -> list[str]:
    ctx = sharding.file
    if heads is None:
        stays = 'not name.endswith("head")'
    elif len(heads) == 1:
        stays = f'name != "{heads[0]}"'
    else:
        stays = f"name not in ({', '.join(f'{head!r}'.replace(chr(39), chr(34)) for head in heads)})"
    test = f"{stays} and not any(size % 16 for size in linear.weight.shape)"
    start = f"{ctx.indent * 2}module_filter_fn=lambda linear, name: "
    column = ctx.position(sharding.first or sharding.root)[1] - 1
    if column + len(start) + len(test) + 1 <= ctx.width:
        return [f"{start}{test},"]
    return [f"{start}(", f"{ctx.indent * 3}{test}", f"{ctx.indent * 2}),"]
