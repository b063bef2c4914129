"""**What it does.** Gives `model.save_pretrained(...)` of a sharded model the gathered state dict; where that cannot be
done, it is reported.

**Why.** It reads `state_dict()` of the model itself. On an FSDP2 model that is this rank's part of it, as DTensors.
Under FSDP1 the units inside of the model were gathered, and what the root itself sharded was not, unless a context or
a setting asked for whole tensors.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM


def save(name, path):
    model = FSDP(AutoModelForCausalLM.from_pretrained(name))
    model.save_pretrained(path)
```

## Use instead

```python
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM


def save(name, path):
    model = fully_shard(AutoModelForCausalLM.from_pretrained(name))
    model.save_pretrained(
        path, state_dict=get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    )
```

## Fix safety

Every rank reads the state dict and saves, as before. Only the `save_pretrained` of transformers and peft is given one:
that of diffusers takes none, and says nothing. A part (`model.llm.save_pretrained(path)`) is saved in the same way.
Where one rank alone saves, or `push_to_hub` does, it is reported. Inside of `FSDP.state_dict_type` with
FULL_STATE_DICT the model is gathered as before.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, NotStatic, Rule, finding, left
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import upward
from codemods.reading.code.shapes import receiver
from codemods.reading.code.words import last_name, words
from codemods.reading.models.parts import model_around
from codemods.reading.parameters.of_model import is_summoned
from codemods.reading.processes.one_rank import is_on_one_rank
from codemods.reading.state_dicts.own_keys import adds_keys
from codemods.reading.state_dicts.settings import context_of, settings
from codemods.tables.names import WRAPPER
from codemods.tables.state_dicts import DCP

CODE = "FM314"

_SAVES = ("save_pretrained", "push_to_hub")
_TAKE_STATE = ("transformers", "peft")
_NO_MODULES = frozenset(
    {"config", "cfg", "extractor", "feature", "processor", "scheduler", "tok", "tokenizer", "vocab"}
)
_TAKE_NONE = ("diffusers", "PyTorchModelHubMixin", "ModelHubMixin")
"""Whose `save_pretrained` passes over a state dict that it is given."""


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    if not ctx.plan.migrates or not _saves_model(call, ctx) or is_summoned(call, ctx) or _is_gathered(call, ctx):
        return None
    name = ctx.code(call.func)
    if not _takes_state(call, ctx):
        message = f"`{name}` reads the state dict of a sharded model itself: each rank's part of it"
        hint = "give it state_dict=get_model_state_dict(...) with full_state_dict=True, read on every rank"
        return left(CODE, Level.MANUAL, ctx, call, message, hint)
    model = _owner(call)
    imports: Sequence[Import]
    if ctx.kinds(model_around(model, ctx) or model) == {ModelKind.FSDP} and not adds_keys(ctx):
        imports = [ctx.named(Import(DCP, f), call) for f in ("get_model_state_dict", "StateDictOptions")]
        options = f"options={imports[1].local}(full_state_dict=True)"
        state = f"state_dict={imports[0].local}({ctx.quote(model)}, {options})"
    else:
        imports = [ctx.named(Import(SUPPORT, "whole_state_dict"), call)]
        state = f"state_dict={imports[0].local}({ctx.quote(model)})"
    given = [ctx.quote(argument.value) for argument in call.args if argument.keyword is None]
    given += [f"{a.keyword.value}={ctx.quote(a.value)}" for a in call.args if a.keyword is not None]
    text = f"{ctx.quote(call.func)}({', '.join([*given, state])})"
    message = (
        f"`{name}` gets the gathered state dict; of FSDP1's it gathered what lies in units, and the root's own not"
    )
    return Fix([Edit(*ctx.bare_span(call), text)], [finding(CODE, Level.REVIEW, ctx, call, message)], imports)


def _takes_state(call: cst.Call, ctx: Context) -> bool:
    """Whether it is transformers' or peft's, on every rank, of no DDP model, whose keys would keep their prefix."""
    if cst.ensure_type(call.func, cst.Attribute).attr.value != "save_pretrained" or is_on_one_rank(call, ctx):
        return False
    if any(argument.star for argument in call.args) or context_of(call, ctx) is not None:
        return False
    held = ctx.kinds(_owner(call))
    if ModelKind.DDP in held or (ModelKind.UNKNOWN in held and _owner(call) is not receiver(call)):
        return False
    return _holds(ctx, _TAKE_STATE) and not _holds(ctx, _TAKE_NONE)


def _holds(ctx: Context, names: Sequence[str]) -> bool:
    return any(next(iter(ctx.files(name)), None) is not None for name in names)


def _owner(call: cst.Call) -> cst.BaseExpression:
    """The model of `model.save_pretrained` and of `model.module.save_pretrained`."""
    owner = receiver(call)
    return owner.value if isinstance(owner, cst.Attribute) and owner.attr.value == "module" else owner


def _saves_model(call: cst.Call, ctx: Context) -> bool:
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _SAVES or ctx.runs(call):
        return False
    if any(argument.keyword is not None and argument.keyword.value == "state_dict" for argument in call.args):
        return False
    owner = _owner(call)
    if _may_be_module(owner) and model_around(owner, ctx) is not None:
        return True
    held = ctx.kinds(owner)
    return ModelKind.FSDP in held and (held == {ModelKind.FSDP} or not _has_no_wrapped_part(owner, call, ctx))


def _may_be_module(owner: cst.BaseExpression) -> bool:
    """Whether `model.llm` is no tokenizer, config or whatever else of a model a library saves."""
    return not words(last_name(owner)) & _NO_MODULES


def _has_no_wrapped_part(owner: cst.BaseExpression, call: cst.Call, ctx: Context) -> bool:
    """Whether this is the other way of `if isinstance(owner.base, FSDP):`, where the program saves a plain model."""
    for inner, outer in upward(ctx, call):
        if isinstance(outer, cst.If) and inner is outer.orelse and isinstance(outer.test, cst.Call):
            asked = [argument.value for argument in outer.test.args]
            is_test = ctx.code(outer.test.func) == "isinstance" and len(asked) == 2 and ctx.fsdp1(asked[1]) == WRAPPER
            if is_test and ctx.code(asked[0]).startswith(f"{ctx.code(owner)}."):
                return True
    return False


def _is_gathered(call: cst.Call, ctx: Context) -> bool:
    context = context_of(call, ctx)
    try:
        return context is not None and settings(context, ctx).is_full
    except NotStatic:
        return False


RULE = Rule(CODE, "saved-by-a-library", __doc__, nodes=(cst.Call,), fix=fix, methods=_SAVES)
