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

Where another backward pass can come before the flag is set again, it is set back behind the block. Where the model
may be DDP's, or the block is left by `break` or an exception that is caught, the `with` stays and enters
`no_sync(model)` of the support module, or `unsynced(model)` where only FSDP models come. With bf16 parameters and a
float32 reduction FSDP2 accumulates in float32 where FSDP1 accumulated in bf16. Gradients that were never synchronised
survive `zero_grad()` in FSDP2, and FSDP1 dropped them: where a loop can end between two synchronisations,
`discard_unsynced_gradients(model)` of the support module is put behind each `zero_grad()` that can come before the next
step. Where that cannot be seen, it is reported. A `no_sync` around the forward alone, with the backward behind it,
leaves nothing over: FSDP1 synchronised there too.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, NotStatic, Rule, finding, left
from codemods.reading.code.enclosing import enclosing, upward
from codemods.reading.code.facts import NOTHING, Facts, facts_of, without
from codemods.reading.code.once import once
from codemods.reading.code.onward import Way, set_in
from codemods.reading.edits.block_layout import leave_context
from codemods.reading.edits.layout import removal
from codemods.reading.edits.negation import conjuncts, negated
from codemods.reading.gradients.unsynced import (
    Unsynced,
    backwards_in,
    computes_gradients,
    discard,
    discard_gradients,
    drops_behind,
    leaves_backward_behind,
    model_beside,
)

from .last_turn import holds_on_last_turn
from .sync_choice import SyncChoice, sync_choice

CODE = "FM201"

_SETTER = "set_requires_gradient_sync"
_FLAG = f"no_sync becomes {_SETTER}"
_NOTHING = "no_sync around the forward alone goes: the backward behind it synchronised, as it does now"
_FORWARD_ALONE = "; around the forward alone it does nothing, as before: the backward behind it synchronises"


@dataclass(frozen=True)
class Flag:
    """What is written in the place of a choice."""

    synchronised: str
    """A template: when the backward synchronises."""
    guard: cst.BaseExpression | None
    """The class test without which the model may be another one."""
    is_reset: bool
    """Whether the flag is set back behind the block, because another backward would find it."""


def fix(node: cst.Attribute | cst.Call, ctx: Context) -> Fix | None:
    if isinstance(node, cst.Call):
        return _with_discard(node, ctx)
    if not _may_be_fsdp1s(node, ctx):
        return None
    call, held = ctx.parent(node), ctx.kinds(node.value)
    model = ctx.code(node.value)
    is_called = isinstance(call, cst.Call) and call.func is node
    if ModelKind.FSDP not in held and not is_called and not _is_asked_for(node, ctx):
        return _manual(node, ctx, f"cannot tell whether `{model}` is an FSDP model")
    if isinstance(call, cst.AssignTarget):
        return _manual(node, ctx, f"`{model}.no_sync` is replaced by something else")
    if _is_nested(node, ctx):
        return _manual(node, ctx, f"`{model}.no_sync` stands inside of another one")
    choice = sync_choice(node, ctx)
    flag = _flag(node.value, choice, ctx) if choice is not None else None
    if choice is not None and flag is not None:
        return _with_discards(node, choice, ctx, _set_by_hand(node.value, choice, flag, ctx), [], _FLAG)
    name = "unsynced" if held == {ModelKind.FSDP} else "no_sync"
    item = ctx.named(Import(SUPPORT, name), node)
    through_support = f"no_sync becomes {name}, a support function"
    if isinstance(call, cst.Call) and is_called:
        is_plain = choice is not None and choice.test is None and choice.item.asname is None
        if name == "unsynced" and choice is not None and is_plain and _holds_forward_alone(call, ctx):
            return _rewritten(node, ctx, leave_context(ctx, choice.block, choice.item), [], _NOTHING)
        edits = [Edit(*ctx.bare_span(call), f"{item.local}({ctx.quote(node.value)})")]
        if _holds_forward_alone(call, ctx):
            return _rewritten(node, ctx, edits, [item], through_support + _FORWARD_ALONE)
        return _with_discards(node, choice, ctx, edits, [item], through_support)
    partial = ctx.named(Import("functools", "partial"), node)
    edits = [Edit(*ctx.bare_span(node), f"{partial.local}({item.local}, {ctx.quote(node.value)})")]
    return _with_discards(node, choice, ctx, edits, [item, partial], through_support)


def _may_be_fsdp1s(node: cst.Attribute, ctx: Context) -> bool:
    """`model.no_sync` of what is an FSDP model, or may be one."""
    if node.attr.value != "no_sync":
        return False
    held, call = ctx.kinds(node.value), ctx.parent(node)
    if ModelKind.FSDP in held:
        return True
    if held & {ModelKind.UNKNOWN, ModelKind.DDP} != {ModelKind.UNKNOWN}:
        return False
    if isinstance(call, cst.Call) and call.args:
        return False  # FSDP1's takes nothing: this is accelerate's, or the program's own
    return not _is_missed(node, ctx)


def _with_discard(call: cst.Call, ctx: Context) -> Fix | None:
    """Of a `zero_grad` in another file than the `no_sync` whose gradients it drops."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "zero_grad":
        return None
    if not _is_dropping(call, ctx):
        return None  # said first: what is a model beside it takes long, in a function of a thousand names
    model = model_beside(call, ctx)
    if model is None:
        return None
    line, item = discard(call, model, ctx)
    message = "zero_grad drops what no_sync left unsynchronised, as under FSDP1"
    return Fix([line], [finding(CODE, Level.REWRITTEN, ctx, call, message)], [item])


def _is_asked_for(node: cst.Attribute, ctx: Context) -> bool:
    """`model.no_sync if hasattr(model, "no_sync") and accumulates else …`: the function takes what has one."""
    test = f"hasattr({ctx.code(node.value)}, "
    asked = (
        part
        for inner, outer in upward(ctx, node)
        if isinstance(outer, (cst.If, cst.IfExp)) and inner is outer.body
        for part in conjuncts(outer.test)
    )
    return any(ctx.code(part).startswith(test) and "no_sync" in ctx.code(part) for part in asked)


def _is_missed(node: cst.Attribute, ctx: Context) -> bool:
    """`try: context = optimizer.no_sync()` with `except AttributeError:`, which a function would raise too late."""
    for inner, outer in upward(ctx, node):
        if isinstance(outer, cst.Try) and outer.body is inner:
            caught = [ctx.code(handler.type) for handler in outer.handlers if handler.type is not None]
            return any("AttributeError" in text for text in caught)
    return False


def _is_nested(node: cst.Attribute, ctx: Context) -> bool:
    """Whether a `with` around this one accumulates already: the inner one must not turn it off."""
    own = enclosing(ctx, node, cst.With)
    around = [outer for outer in ctx.ancestors(node) if isinstance(outer, cst.With) and outer is not own]
    entered = [each for block in around for item in block.items for each in ctx.inside(item)]
    return any(isinstance(each, cst.Attribute) and ctx.code(each) == ctx.code(node) for each in entered)


def _flag(model: cst.BaseExpression, choice: SyncChoice, ctx: Context) -> Flag | None:
    """How the flag is set; None where the model may be DDP's, or the backward is not seen in the block."""
    block = choice.block
    if (
        not isinstance(block.body, cst.IndentedBlock)
        or block.asynchronous is not None
        or choice.item.asname is not None
    ):
        return None
    if not backwards_in(block.body, ctx) or _enters_several(block, ctx) or _is_tried(block, ctx):
        return None
    asked = conjuncts(choice.test) if choice.test is not None and choice.accumulates else []
    guard = next((part for part in asked if _is_class_test(part, model, ctx)), None)
    if guard is None and not ctx.kinds(model) <= {ModelKind.FSDP, ModelKind.OTHER}:
        return None
    is_reset = choice.test is None or (guard is not None and len(asked) == 1) or _is_found_by_others(choice, ctx)
    if is_reset and (guard is not None or _leaves(block.body, ctx)):
        return None
    rest = [part for part in asked if part is not guard]
    if choice.test is None:
        synchronised = "False"
    elif guard is not None and len(asked) == 2:
        synchronised = negated(rest[0], ctx)
    elif guard is not None:
        synchronised = f"not ({' and '.join(ctx.quote(part) for part in rest)})"
    else:
        test = ctx.bare_span(choice.test)  # the call has brackets of its own
        synchronised = negated(choice.test, ctx) if choice.accumulates else ctx.quote_text(*test)
    return Flag(synchronised, guard, is_reset)


def _enters_several(block: cst.With, ctx: Context) -> bool:
    """`with a.no_sync(), b.no_sync():`."""
    entered = [node for item in block.items for node in ctx.inside(item) if isinstance(node, cst.Attribute)]
    return sum(node.attr.value == "no_sync" for node in entered) > 1


def _is_tried(block: cst.With, ctx: Context) -> bool:
    """Whether the function goes on behind an exception of the block, which leaves the flag as it was set."""
    around = [node for node in ctx.ancestors(block) if isinstance(node, cst.Try) and node.handlers]
    return any(ctx.scope(node) is ctx.scope(block) for node in around)


def _is_class_test(part: cst.BaseExpression, model: cst.BaseExpression, ctx: Context) -> bool:
    """`isinstance(model, FSDP)`."""
    if not isinstance(part, cst.Call) or ctx.code(part.func) != "isinstance" or len(part.args) != 2:
        return False
    return ctx.code(part.args[0].value) == ctx.code(model) and ctx.fsdp1(part.args[1].value) is not None


def _is_found_by_others(choice: SyncChoice, ctx: Context) -> bool:
    """Whether another backward can come behind the block before the flag is set again."""
    own = set(ctx.inside(choice.block))
    set_again = {choice.block, choice.chosen}
    way = Way(lambda node, _: computes_gradients(node) and node not in own, lambda node, _: node in set_again)
    way.last_turns = _last_turns(choice, ctx)
    way.behind(choice.block, ctx)
    return bool(way.found) or any(
        computes_gradients(call) and call not in own
        for where, _ in way.lost
        for file in {where, *where.files("backward")}
        for call in file.nodes(cst.Call)
    )


def _leaves(body: cst.IndentedBlock, ctx: Context) -> bool:
    """Whether a block is left by anything but its end."""
    return any(isinstance(node, (cst.Return, cst.Break, cst.Continue, cst.Yield)) for node in ctx.inside(body))


def _set_by_hand(model: cst.BaseExpression, choice: SyncChoice, flag: Flag, ctx: Context) -> list[Edit]:
    """The flag in the place of the choice, the block's body one level out, and the flag set back where it has to be."""
    block, owner = choice.block, ctx.quote(model)
    place = choice.chosen or block
    start = ctx.whole_lines(place)[0]
    indent = ctx.text[start : ctx.span(place)[0]]
    line = _one_line_or_three(f"{owner}.{_SETTER}(", flag.synchronised, indent, ctx)
    if flag.guard is not None:
        inner = _one_line_or_three(f"{owner}.{_SETTER}(", flag.synchronised, indent + ctx.indent, ctx)
        line = f"if {ctx.quote(flag.guard)}:{ctx.newline}{indent}{ctx.indent}{inner}"
    edits = [] if choice.default is None else [removal(ctx, choice.default)]
    if choice.chosen is not None:
        edits.append(Edit(*ctx.span(choice.chosen), line))
    edits += leave_context(ctx, block, choice.item, line if choice.chosen is None else "")
    if flag.is_reset:
        end = ctx.whole_lines(block.body.body[-1])[1]
        gap = "" if ctx.text[:end].endswith("\n") else ctx.newline
        edits.append(Edit(end, end, f"{gap}{indent}{owner}.{_SETTER}(True){ctx.newline}"))
    return edits


def _one_line_or_three(head: str, argument: str, indent: str, ctx: Context) -> str:
    line = f"{head}{argument})"
    if len(indent) + len(ctx.plain(line)) <= ctx.width or ctx.newline in ctx.plain(line):
        return line
    return f"{head}{ctx.newline}{indent}{ctx.indent}{argument}{ctx.newline}{indent})"


def _with_discards(
    node: cst.Attribute, choice: SyncChoice | None, ctx: Context, edits: list[Edit], imports: list[Import], message: str
) -> Fix:
    """A loop that can end between two synchronisations: FSDP1's `zero_grad` dropped what was left over."""
    try:
        discards, support = discard_gradients(_left_by(node, choice, ctx), ctx)
    except NotStatic as reason:
        message += (
            "; gradients that the last turn left unsynchronised survive zero_grad() in FSDP2, FSDP1 dropped them"
            f" ({reason})"
        )
        hint = "synchronise on the last batch too, or make the number of batches a multiple of the accumulation steps"
        return _rewritten(node, ctx, edits, imports, message, Level.MANUAL, hint)
    return _rewritten(node, ctx, [*edits, *discards], [*imports, *support], message)


def _left_by(node: cst.Attribute, choice: SyncChoice | None, ctx: Context) -> Unsynced:
    if choice is None:
        return Unsynced(node.value, [node])
    starts: list[cst.CSTNode] = [*backwards_in(choice.block.body, ctx)]
    starts = starts or [choice.block]
    return Unsynced(node.value, starts, _facts(choice, ctx), _last_turns(choice, ctx))


def _is_dropping(call: cst.Call, ctx: Context) -> bool:
    """Whether a `zero_grad` is where another file's unsynchronised gradients went."""
    accumulating = ((where, node) for where, node in ctx.attributes("no_sync") if where.path != ctx.path)
    return any(call in _dropped_by(node, where) for where, node in accumulating)


@once
def _dropped_by(node: cst.Attribute, ctx: Context) -> frozenset[cst.CSTNode]:
    """What can drop the gradients that this `no_sync` leaves, once it is written."""
    if not _may_be_fsdp1s(node, ctx) or not _is_written(node, ctx):
        return frozenset()
    return frozenset(call for _, call in drops_behind(_left_by(node, sync_choice(node, ctx), ctx), ctx))


def _is_written(node: cst.Attribute, ctx: Context) -> bool:
    """Whether this `no_sync` becomes one that leaves gradients behind."""
    call = ctx.parent(node)
    is_called = isinstance(call, cst.Call) and call.func is node
    is_seen = ModelKind.FSDP in ctx.kinds(node.value) or is_called or _is_asked_for(node, ctx)
    if isinstance(call, cst.AssignTarget) or not is_seen:
        return False
    return not (_is_nested(node, ctx) or (isinstance(call, cst.Call) and _holds_forward_alone(call, ctx)))


def _facts(choice: SyncChoice, ctx: Context) -> Facts:
    """What is true of a turn that accumulates: the condition, and those of the branches that the block stands in."""
    facts = facts_of(choice.test, choice.accumulates, ctx) if choice.test is not None else NOTHING
    for inner, outer in upward(ctx, choice.block):
        if isinstance(outer, (cst.FunctionDef, cst.For, cst.While)):
            break
        if isinstance(outer, cst.If):
            facts |= facts_of(outer.test, inner is outer.body, ctx)
    return without(facts, set_in(choice.block))


def _last_turns(choice: SyncChoice, ctx: Context) -> frozenset[cst.CSTNode]:
    """The loop around a block, where its last turn is seen to synchronise."""
    loop = enclosing(ctx, choice.block, cst.For)
    if loop is None or choice.test is None:
        return frozenset()
    condition = negated(choice.test, ctx) if choice.accumulates else ctx.quote(choice.test)
    return frozenset({loop} if holds_on_last_turn(ctx.plain(condition), choice.test, loop, ctx) else ())


def _rewritten(
    node: cst.Attribute,
    ctx: Context,
    edits: list[Edit],
    imports: list[Import],
    message: str,
    level: Level = Level.REWRITTEN,
    hint: str = "",
) -> Fix:
    return Fix(edits, [finding(CODE, level, ctx, node, message, hint)], imports)


def _holds_forward_alone(call: cst.Call, ctx: Context) -> bool:
    """Whether the backward is seen behind the `with` that the call opens, and none in it."""
    block = next((node for node in ctx.ancestors(call) if isinstance(node, (cst.With, cst.BaseSmallStatement))), None)
    return isinstance(block, cst.With) and leaves_backward_behind(block, ctx)


def _manual(node: cst.Attribute, ctx: Context, message: str) -> Fix:
    hint = "call model.set_requires_gradient_sync(False) before backward passes that accumulate, and True for the last"
    return left(CODE, Level.MANUAL, ctx, node, message, hint)


RULE: Rule[cst.Attribute | cst.Call] = Rule(
    CODE, "no-sync-context", __doc__, nodes=(cst.Attribute, cst.Call), fix=fix, methods=("no_sync", "zero_grad")
)
