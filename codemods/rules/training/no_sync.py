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
them: where a loop can end between two synchronisations, `discard_unsynced_gradients(model)` of the support module is
put behind each `zero_grad()` that does not directly follow a step. Where that cannot be seen, it is reported. A
`no_sync` around the forward alone, with the backward behind it, leaves nothing over: FSDP1 synchronised there too.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, NotStatic, Rule, finding
from codemods.reading.block_layout import replace_head
from codemods.reading.enclosing import enclosing
from codemods.reading.program import defines_method
from codemods.reading.unsynced import discard_gradients, leaves_backward_behind

CODE = "FM201"

_FLAG = "no_sync becomes set_requires_gradient_sync"
_THROUGH_SUPPORT = "no_sync becomes no_sync of the support module"
_FORWARD_ALONE = "; around the forward alone it does nothing, as before: the backward behind it synchronises"

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
    held: frozenset[ModelKind]


def match(node: cst.CSTNode, ctx: Context) -> Match | None:
    if not isinstance(node, cst.Attribute) or node.attr.value != "no_sync":
        return None
    held = ctx.kinds(node.value)
    if ModelKind.FSDP not in held and held & {ModelKind.UNKNOWN, ModelKind.DDP} != {ModelKind.UNKNOWN}:
        return None
    call = ctx.parent(node)
    if ModelKind.FSDP not in held and isinstance(call, cst.Call) and call.args:
        return None  # FSDP1's takes nothing: this is accelerate's, or the program's own
    return Match(node, node.value, held)


def edit(found: Match, ctx: Context) -> Fix:
    call = ctx.parent(found.attribute)
    model = ctx.code(found.model)
    is_called = isinstance(call, cst.Call) and call.func is found.attribute
    if ModelKind.FSDP not in found.held and (defines_method(ctx, "no_sync") or not is_called):
        return _manual(found, ctx, f"cannot tell whether `{model}` is an FSDP model")
    if isinstance(call, cst.AssignTarget):
        return _manual(found, ctx, f"`{model}.no_sync` is replaced by something else")
    block = _conditional_block(call, ctx) if isinstance(call, cst.Call) else None
    if block is not None and found.held <= {ModelKind.FSDP, ModelKind.OTHER}:
        edits = replace_head(ctx, block[0], f"{ctx.quote(found.model)}.set_requires_gradient_sync({block[1]})")
        if _ends_synchronised(ctx.plain(block[1]), block[0], ctx):
            return _rewritten(found, ctx, edits, [], _FLAG)
        return _with_discards(found, ctx, edits, [], _FLAG)
    item = ctx.named(Import(SUPPORT, "no_sync"), found.attribute)
    if isinstance(call, cst.Call) and call.func is found.attribute:
        edits = [Edit(*ctx.bare_span(call), f"{item.local}({ctx.quote(found.model)})")]
        if _holds_forward_alone(call, ctx):
            return _rewritten(found, ctx, edits, [item], _THROUGH_SUPPORT + _FORWARD_ALONE)
        return _with_discards(found, ctx, edits, [item], _THROUGH_SUPPORT)
    partial = ctx.named(Import("functools", "partial"), found.attribute)
    edits = [Edit(*ctx.bare_span(found.attribute), f"{partial.local}({item.local}, {ctx.quote(found.model)})")]
    return _with_discards(found, ctx, edits, [item, partial], _THROUGH_SUPPORT)


def _with_discards(found: Match, ctx: Context, edits: list[Edit], imports: list[Import], message: str) -> Fix:
    """A loop that can end between two synchronisations: FSDP1's `zero_grad` dropped what was left over."""
    try:
        discards, support = discard_gradients(found.model, ctx)
    except NotStatic as reason:
        message += (
            "; gradients that the last turn left unsynchronised survive zero_grad() in FSDP2, FSDP1 dropped them"
            f" ({reason})"
        )
        hint = "synchronise on the last batch too, or make the number of batches a multiple of the accumulation steps"
        return _rewritten(found, ctx, edits, imports, message, Level.MANUAL, hint)
    return _rewritten(found, ctx, [*edits, *discards], [*imports, *support], message)


def _rewritten(
    found: Match,
    ctx: Context,
    edits: list[Edit],
    imports: list[Import],
    message: str,
    level: Level = Level.REWRITTEN,
    hint: str = "",
) -> Fix:
    return Fix(edits, [finding(CODE, level, ctx, found.attribute, message, hint)], imports)


def _holds_forward_alone(call: cst.Call, ctx: Context) -> bool:
    """Whether the backward is seen behind the `with` that the call opens, and none in it."""
    block = next((node for node in ctx.ancestors(call) if isinstance(node, (cst.With, cst.BaseSmallStatement))), None)
    return isinstance(block, cst.With) and leaves_backward_behind(block, ctx)


def _conditional_block(call: cst.Call, ctx: Context) -> tuple[cst.With, str] | None:
    """The `with A if c else B:` around the call and the condition under which it synchronises.

    None unless the body holds the only backward pass of the program.
    """
    choice = ctx.parent(call)
    if not isinstance(choice, cst.IfExp):
        return None
    item = ctx.parent(choice)
    block = ctx.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(block, cst.With) or len(block.items) != 1 or block.items[0].asname is not None:
        return None
    if not isinstance(block.body, cst.IndentedBlock) or block.asynchronous is not None:
        return None
    backward = [node for file, node in ctx.attributes("backward") if _is_called(node, file)]
    if len(backward) != 1 or backward[0] not in ctx.inside(block.body):
        return None
    if call is choice.body:
        other, synchronised = choice.orelse, _negated(choice.test, ctx)
    else:
        other, synchronised = choice.body, ctx.quote(choice.test)
    is_null = isinstance(other, cst.Call) and (ctx.dotted(other.func) or "").endswith("nullcontext")
    return (block, synchronised) if is_null else None


def _is_called(node: cst.Attribute, ctx: Context) -> bool:
    call = ctx.parent(node)
    return isinstance(call, cst.Call) and call.func is node


def _negated(test: cst.BaseExpression, ctx: Context) -> str:
    """`not last` becomes `last`, `i < n` becomes `i >= n`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return ctx.quote(test.expression)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1 and not test.lpar:
        target = test.comparisons[0]
        opposite = _OPPOSITE.get(type(target.operator))
        if opposite is not None:
            return f"{ctx.quote(test.left)} {opposite} {ctx.quote(target.comparator)}"
    text = ctx.quote(test)
    simple = isinstance(test, (cst.Name, cst.Attribute, cst.Call)) or bool(test.lpar)
    return f"not {text}" if simple else f"not ({text})"


def _ends_synchronised(synchronised: str, block: cst.With, ctx: Context) -> bool:
    """Whether the last turn of the loop around the block is seen to synchronise."""
    loop = enclosing(ctx, block, cst.For)
    if loop is None:
        return False
    turns = _turns(loop, ctx)
    if turns is None:
        return False
    index, count = turns
    last = [f"{index}=={count}-1", f"{index}>={count}-1", f"{index}+1=={count}", f"{index}+1>={count}"]
    if count.isdigit():
        last += [f"{index}=={int(count) - 1}", f"{index}>={int(count) - 1}"]
    condition = cst.parse_expression(_resolved(synchronised, block, ctx))
    for part in _alternatives(condition):
        text = "".join(cst.Module([]).code_for_node(part.with_changes(lpar=(), rpar=())).split())
        if text.replace(f"({index}+1)", f"{index}+1").replace(f"({count}-1)", f"{count}-1") in last:
            return True
    return False


def _turns(loop: cst.For, ctx: Context) -> tuple[str, str] | None:
    """The index and the number of turns of `for i in range(n)` and `for i, x in enumerate(xs)`."""
    call, target = loop.iter, loop.target
    if not isinstance(call, cst.Call) or len(call.args) != 1 or call.args[0].keyword is not None:
        return None
    argument = "".join(ctx.code(call.args[0]).split())
    if ctx.code(call.func) == "range" and isinstance(target, cst.Name):
        return target.value, argument
    if ctx.code(call.func) == "enumerate" and isinstance(target, cst.Tuple):
        return ctx.code(target.elements[0].value), f"len({argument})"
    return None


def _alternatives(condition: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """`a` and `b` of `a or b`."""
    if isinstance(condition, cst.BooleanOperation) and isinstance(condition.operator, cst.Or):
        yield from _alternatives(condition.left)
        yield from _alternatives(condition.right)
    else:
        yield condition


def _resolved(condition: str, block: cst.With, ctx: Context) -> str:
    """The condition itself, or what the name it consists of was set to in the same loop."""
    if not condition.isidentifier():
        return condition
    choice = block.items[0].item
    names = [n for n in _names(choice) if n.value == condition]
    origins = ctx.origins(names[0]) if names else []
    if len(origins) == 1 and origins[0].node is not None and origins[0].file is ctx:
        return ctx.code(origins[0].node)
    return condition


def _names(node: cst.CSTNode) -> list[cst.Name]:
    if isinstance(node, cst.Name):
        return [node]
    return [name for child in node.children for name in _names(child)]


def _manual(found: Match, ctx: Context, message: str) -> Fix:
    hint = "call model.set_requires_gradient_sync(False) before backward passes that accumulate, and True for the last"
    return Fix(findings=[finding(CODE, Level.MANUAL, ctx, found.attribute, message, hint)])


RULE: Rule[Match] = Rule(
    CODE, "no-sync-context", __doc__, nodes=(cst.Attribute,), methods=("no_sync",), match=match, edit=edit
)
