"""**What it does.** Rewrites `with model.no_sync():` so that gradients are accumulated without a reduce-scatter.

**Why.** FSDP2 has no such context: `model.set_requires_gradient_sync(False)` is a flag that stays until it is set
again, and it is read in the backward pass.

## Example

```python
from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, batches):
    model = FSDP(net)
    for index in range(4):
        with model.no_sync() if index < 3 else nullcontext():
            model(batches[index]).sum().backward()
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def train(net, batches):
    model = fully_shard(net)
    for index in range(4):
        model.set_requires_gradient_sync(index >= 3)
        model(batches[index]).sum().backward()
```

## Fix safety

The flag is set by hand only where this is the program's only backward pass, so that no other one can find it
switched off. Anywhere else the `with` stays and enters `no_sync(model)` of the support module, which sets the flag
back even when the body raises. With bf16 parameters and a float32 reduction FSDP2 accumulates in float32 where
FSDP1 accumulated in bf16. Gradients that were never synchronised survive `zero_grad()` in FSDP2, and FSDP1 dropped
them: a loop that can end between two synchronisations is reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.layout import replace_head
from codemods.vocabulary import SUPPORT, Edit, File, Holds, Import, Level, Outcome, Rule, finding

CODE = "FM201"

_THROUGH_SUPPORT = "no_sync becomes no_sync of the support module"

_OPPOSITE = {
    cst.Equal: "!=",
    cst.NotEqual: "==",
    cst.LessThan: ">=",
    cst.GreaterThan: "<=",
    cst.LessThanEqual: ">",
    cst.GreaterThanEqual: "<",
}


@dataclass(frozen=True)
class Match:
    """One `model.no_sync` in the source."""

    attribute: cst.Attribute
    model: cst.BaseExpression
    held: frozenset[Holds]


def match(node: cst.CSTNode, file: File) -> Match | None:
    if not isinstance(node, cst.Attribute) or node.attr.value != "no_sync":
        return None
    held = file.holds(node.value)
    if not held & {Holds.FSDP, Holds.UNKNOWN}:
        return None
    return Match(node, node.value, held)


def edit(found: Match, file: File) -> Outcome:
    call = file.parent(found.attribute)
    model = file.code(found.model)
    if Holds.FSDP not in found.held:
        return _manual(found, file, f"cannot tell whether `{model}` is an FSDP model")
    if isinstance(call, cst.AssignTarget):
        return _manual(found, file, f"`{model}.no_sync` is replaced by something else")
    item = file.named(Import(SUPPORT, "no_sync"), found.attribute)
    if not isinstance(call, cst.Call) or call.func is not found.attribute:
        partial = file.named(Import("functools", "partial"), found.attribute)
        return Outcome(
            edits=[Edit(*file.span(found.attribute), f"{partial.local}({item.local}, {model})")],
            findings=[finding(CODE, Level.REWRITTEN, file, found.attribute, _THROUGH_SUPPORT)],
            imports=[item, partial],
        )
    block = _conditional_block(call, file)
    if block is not None and Holds.DDP not in found.held:
        return _flag(found, block[0], block[1], file)
    return Outcome(
        edits=[Edit(*file.span(call), f"{item.local}({model})")],
        findings=[finding(CODE, Level.REWRITTEN, file, found.attribute, _THROUGH_SUPPORT)],
        imports=[item],
    )


def _flag(found: Match, block: cst.With, synchronised: str, file: File) -> Outcome:
    model = file.code(found.model)
    edits = replace_head(file, block, f"{model}.set_requires_gradient_sync({synchronised})")
    level, message, cure = Level.REWRITTEN, "no_sync becomes set_requires_gradient_sync", ""
    if not _ends_synchronised(synchronised, block, file):
        level = Level.MANUAL
        message += "; gradients that the last turn left unsynchronised survive zero_grad() in FSDP2, FSDP1 dropped them"
        cure = "synchronise on the last batch too, or make the number of batches a multiple of the accumulation steps"
    return Outcome(edits=edits, findings=[finding(CODE, level, file, found.attribute, message, cure)])


def _conditional_block(call: cst.Call, file: File) -> tuple[cst.With, str] | None:
    """The `with A if c else B:` around the call and the condition under which it synchronises.

    None unless the body holds the only backward pass of the program.
    """
    choice = file.parent(call)
    if not isinstance(choice, cst.IfExp):
        return None
    item = file.parent(choice)
    block = file.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(block, cst.With) or len(block.items) != 1 or block.items[0].asname is not None:
        return None
    if not isinstance(block.body, cst.IndentedBlock) or block.asynchronous is not None:
        return None
    start, end = file.span(block.body)
    if file.text.count(".backward(") != 1 or ".backward(" not in file.text[start:end]:
        return None
    if file.mentions_elsewhere("backward"):
        return None
    if call is choice.body:
        other, synchronised = choice.orelse, _negated(choice.test, file)
    else:
        other, synchronised = choice.body, file.code(choice.test)
    is_null = isinstance(other, cst.Call) and (file.dotted(other.func) or "").endswith("nullcontext")
    return (block, synchronised) if is_null else None


def _negated(test: cst.BaseExpression, file: File) -> str:
    """`not last` becomes `last`, `i < n` becomes `i >= n`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return file.code(test.expression)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1 and not test.lpar:
        target = test.comparisons[0]
        opposite = _OPPOSITE.get(type(target.operator))
        if opposite is not None:
            return f"{file.code(test.left)} {opposite} {file.code(target.comparator)}"
    text = file.code(test)
    simple = isinstance(test, (cst.Name, cst.Attribute, cst.Call)) or bool(test.lpar)
    return f"not {text}" if simple else f"not ({text})"


def _ends_synchronised(synchronised: str, block: cst.With, file: File) -> bool:
    """Whether the last turn of `for i in range(n)` around the block is seen to synchronise."""
    loop = next((node for node in file.ancestors(block) if isinstance(node, cst.For)), None)
    if loop is None or not isinstance(loop.target, cst.Name) or not isinstance(loop.iter, cst.Call):
        return False
    if file.code(loop.iter.func) != "range" or len(loop.iter.args) != 1:
        return False
    count = "".join(file.code(loop.iter.args[0]).split())
    index = loop.target.value
    last = [f"{index}=={count}-1", f"{index}>={count}-1", f"{index}+1=={count}", f"{index}+1>={count}"]
    if count.isdigit():
        last += [f"{index}=={int(count) - 1}", f"{index}>={int(count) - 1}"]
    return "".join(_resolved(synchronised, block, file).split()).strip("()") in last


def _resolved(condition: str, block: cst.With, file: File) -> str:
    """The condition itself, or what the name it consists of was set to in the same loop."""
    if not condition.isidentifier():
        return condition
    choice = block.items[0].item
    names = [n for n in _names(choice) if n.value == condition]
    origins = file.origins(names[0]) if names else []
    if len(origins) == 1 and origins[0].node is not None and origins[0].file is file:
        return file.code(origins[0].node)
    return condition


def _names(node: cst.CSTNode) -> list[cst.Name]:
    if isinstance(node, cst.Name):
        return [node]
    return [name for child in node.children for name in _names(child)]


def _manual(found: Match, file: File, message: str) -> Outcome:
    cure = "call model.set_requires_gradient_sync(False) before backward passes that accumulate, and True for the last"
    return Outcome(findings=[finding(CODE, Level.MANUAL, file, found.attribute, message, cure)])


RULE: Rule[Match] = Rule(
    CODE, "no-sync-context", __doc__, nodes=(cst.Attribute,), methods=("no_sync",), match=match, edit=edit
)
