"""**What it does.** Rewrites `model.clip_grad_norm_(max_norm)` into `torch.nn.utils.clip_grad_norm_`.

**Why.** An FSDP2 model has no such method; on DTensor gradients the function of `torch.nn.utils` computes the
global norm. It returns a DTensor: where the value is used, `.full_tensor()` makes it the plain tensor that FSDP1
returned.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, batch):
    model = FSDP(net)
    model(batch).sum().backward()
    return model.clip_grad_norm_(1.0)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def step(net, batch):
    model = fully_shard(net)
    model(batch).sum().backward()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
```

## Fix safety

Equal norms for p = 1, 2, 3 (4.73994970 on both sides, torch 2.13). For the infinity norm, which fails on a rank
with an empty shard, and for a norm type that only run time knows, the support module's `clip_grad_norm_` is called.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.layout import call_text
from codemods.vocabulary import SUPPORT, Edit, File, Holds, Import, Level, Outcome, Rule, finding

CODE = "FM202"

_FUNCTION = "clip_grad_norm_"


@dataclass(frozen=True)
class Match:
    """One `model.clip_grad_norm_` in the source."""

    attribute: cst.Attribute
    held: frozenset[Holds]


def match(node: cst.CSTNode, file: File) -> Match | None:
    if not isinstance(node, cst.Attribute) or node.attr.value != _FUNCTION:
        return None
    if file.dotted(node) is not None:
        return None
    held = file.holds(node.value)
    return Match(node, held) if held & {Holds.FSDP, Holds.UNKNOWN} else None


def edit(found: Match, file: File) -> Outcome:
    call = file.parent(found.attribute)
    model = file.code(found.attribute.value)
    if Holds.FSDP not in found.held:
        return _manual(found, file, f"cannot tell whether `{model}` is an FSDP model")
    if not isinstance(call, cst.Call) or call.func is not found.attribute:
        return _manual(found, file, f"`{model}.{_FUNCTION}` is kept for later, and an FSDP2 model has no such method")
    start, end = file.span(call)
    callee_start, callee_end = file.span(found.attribute)
    arguments = file.text[callee_end:end].lstrip()[1:]
    if not _plain_norm(call) or file.may_ignore_parameters(found.attribute.value):
        item = file.named(Import(SUPPORT, _FUNCTION), call)
        return Outcome(
            edits=[Edit(callee_start, end, f"{item.local}({model}, {arguments.lstrip()}")],
            findings=[
                finding(CODE, Level.REWRITTEN, file, call, f"{_FUNCTION} becomes {_FUNCTION} of the support module")
            ],
            imports=[item],
        )
    torch = file.named(Import("torch"), call)
    function = f"{torch.local}.nn.utils.{_FUNCTION}"
    suffix = "" if isinstance(file.parent(call), cst.Expr) else ".full_tensor()"
    inner = f"{model}.parameters(), {arguments.lstrip()[:-1]}"
    written = call_text(file, call, function, inner, suffix)
    return Outcome(
        edits=[Edit(start, end, written)],
        findings=[finding(CODE, Level.REWRITTEN, file, call, f"{_FUNCTION} becomes {function}")],
        imports=[torch],
    )


def _plain_norm(call: cst.Call) -> bool:
    """Whether the norm type is left out or a finite number in the source."""
    if any(argument.star for argument in call.args):
        return False
    positional = [argument.value for argument in call.args if argument.keyword is None]
    named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
    norm = positional[1] if len(positional) > 1 else named.get("norm_type")
    return norm is None or isinstance(norm, (cst.Integer, cst.Float))


def _manual(found: Match, file: File, message: str) -> Outcome:
    cure = "for an FSDP2 model call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
    return Outcome(findings=[finding(CODE, Level.MANUAL, file, found.attribute, message, cure)])


RULE: Rule[Match] = Rule(
    CODE, "clip-grad-norm-method", __doc__, nodes=(cst.Attribute,), methods=(_FUNCTION,), match=match, edit=edit
)
