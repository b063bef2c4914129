"""BatchNorm under mixed precision: FSDP1 made units of it, in float32, next to those of the policy.

Without a policy it made none, and BatchNorm computed in low precision with the rest; nor without mixed precision.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.wraps.precision import CLASSES, POSITIONS
from codemods.tables.names import PACKAGE

from ..draft import Draft, Entry, Note, Value
from .precision import hold

_CLASSES = frozenset(
    f"torch.nn.{name}" for dim in ("1d", "2d", "3d") for name in (f"BatchNorm{dim}", f"LazyBatchNorm{dim}")
)
_BASE = "_BatchNorm"
_OTHERS = ("SyncBatchNorm", "convert_sync_batchnorm", _BASE)
_LIBRARIES = (
    *("detectron2", "mmcv", "mmdet", "mmseg", "monai", "segmentation_models_pytorch"),
    *("timm", "torchvision", "ultralytics"),
)
"""Libraries whose models are made of it."""


def find_batch_norm(precision: Value | None, draft: Draft) -> None:
    """Set `draft.float32_class` where the model is seen to hold BatchNorm, and FSDP1 made units of it.

    `MixedPrecision(_module_classes_to_ignore=…)` names other classes in its place, and is read where it may.
    """
    if not {"mixed_precision", "auto_wrap_policy"} <= draft.present:
        return
    named = _named(precision, draft) or _read(precision, draft)
    if named is not None:
        draft.names_float32 = True
        draft.float32_class = draft.held(named, "float32_classes")
        return
    made = draft.built
    classes = {name for name in made.from_libraries if name in _CLASSES}
    others = {name for name in made.from_libraries if name.endswith(_OTHERS)}
    converted = draft.file.mentions("convert_sync_batchnorm")
    if made.is_from(*_LIBRARIES) or others or (classes and converted) or len(classes) > 1:
        draft.float32_class = draft.imported("torch.nn.modules.batchnorm", _BASE)
    elif classes:
        draft.float32_class = f"{draft.imported('torch.nn', alias='nn')}.{classes.pop().rsplit('.', 1)[-1]}"
    elif made.is_by_name or (not made.is_whole and (not made.is_seen or _is_named(draft.file))):
        text = draft.model if draft.is_function else draft.file.code(draft.module)
        draft.notes.append(
            Note(f"`{text}` is taken to hold no BatchNorm, which FSDP1 kept in float32", "check proves it")
        )


def _read(precision: Value | None, draft: Draft) -> str | None:
    """The classes, read at run time, where a `MixedPrecision` that is not in the call may name some."""
    if not draft.file.mentions(CLASSES) or not isinstance(precision, (cst.BaseExpression, Entry)):
        return None
    origins = precision.values if isinstance(precision, Entry) else draft.file.origins(precision)
    if not any(map(_may_name, origins)):
        return None
    draft.precision = hold(precision, draft)
    classes = f"tuple({draft.precision}.{CLASSES})"
    return f"{classes} if {draft.precision} is not None else ()" if draft.may_lack_precision else classes


def _may_name(origin: Origin) -> bool:
    """Whether it is not seen to be a `MixedPrecision` without them, or None."""
    made = origin.node
    if not isinstance(made, cst.Call) or origin.file.fsdp1(made.func) != "MixedPrecision":
        return not origin.is_none
    named = (argument.keyword.value for argument in made.args if argument.keyword is not None)
    return CLASSES in named or len(made.args) == len(POSITIONS) or any(argument.star for argument in made.args)


def _named(precision: Value | None, draft: Draft) -> str | None:
    """The classes that a `MixedPrecision(…)` in the call itself names."""
    if not isinstance(precision, cst.Call) or draft.file.fsdp1(precision.func) != "MixedPrecision":
        return None
    given = [a.value for a in precision.args if a.keyword is not None and a.keyword.value == CLASSES]
    if not given:
        return None
    text = draft.file.quote(given[0])
    return text if isinstance(given[0], cst.Tuple) else f"tuple({text})"


def _is_named(ctx: Context) -> bool:
    names = {name.rsplit(".", 1)[-1] for name in _CLASSES} | {"SyncBatchNorm", _BASE}
    return ctx.mentions(*names, *_LIBRARIES)


def keep_in_float32(draft: Draft) -> None:
    """The policy of those units: inputs are cast up, and outputs back."""
    policy = draft.root_kwargs.get("mp_policy") or draft.common_kwargs.get("mp_policy")
    if not draft.float32_class or policy is None:
        return
    name = draft.fresh("float32_mp_policy" if draft.names_float32 else "norm_mp_policy")
    item, torch = draft.imported(PACKAGE, "MixedPrecisionPolicy"), draft.imported("torch")
    which = "These classes stay in float32, in units of their own"
    which = which if draft.names_float32 else "BatchNorm stays in float32, in units of its own"
    which += ", where there is mixed precision." if draft.casts else "."
    classes = ""
    if draft.casts and not draft.precision:
        classes = draft.fresh("float32_classes")
        line = f"{classes} = {draft.float32_class} if {draft.casts} else ()"
        draft.float32_class, classes = classes, f"{line}\n"
    draft.before.append(
        f"# {which}\n{classes}"
        + draft.assigned(name, item, [f"param_dtype={torch}.float32", f"output_dtype={policy}.param_dtype"])
    )
    draft.float32_kwargs["mp_policy"] = name
