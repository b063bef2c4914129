"""**What it does.** Rewrites `isinstance(x, FullyShardedDataParallel)` into a test for `FSDPModule`, and annotations
with the class into `nn.Module`.

**Why.** `fully_shard` gives each sharded module's class the mix-in `FSDPModule`; a sharded module is never an
instance of `FullyShardedDataParallel`, so the old test would be False without a word. `FSDPModule` by itself is no
`nn.Module`: it has no `parameters()`, and what was typed would be no longer. A function that says of its result alone
what it is, and of none of its parameters, says it to readers: `-> FSDP` becomes `-> FSDPModule` there.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def units(net):
    model = FSDP(net)
    return [module for module in model.modules() if isinstance(module, FSDP)]
```

## Use instead

```python
from torch.distributed.fsdp import FSDPModule, fully_shard


def units(net):
    model = fully_shard(net)
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
```

## Fix safety

The same modules answer True. `isinstance(x, Block)` is now True for a sharded block as well, since it is no longer
hidden in a wrapper. So `isinstance(x, Block) and not isinstance(x, FSDP)`, and `not isinstance(x, FSDP)` in the
`check_fn` of activation checkpointing, lose the second half: it kept the wrapper out, and would keep the layer out.
So does `if isinstance(x, FSDP): return False` in the function that is passed as `check_fn`.
The class goes from a tuple, also from one that a variable holds, where all tests by it go on with `x.module` alone:
FSDP2 has no wrapper. A class that is called, or compared, is none that is tested for, and stays (FM109).
Asked of a model that the program shards by `fully_shard` itself, and wraps nowhere, the answer stays False: a test for
`FSDPModule` would let FSDP2's models into what was written for FSDP1's.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Fix, Import, Level, Reference, Rule, finding, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import call_given, enclosing
from codemods.reading.code.shapes import class_test
from codemods.reading.edits.layout import removal
from codemods.reading.edits.negation import conjuncts
from codemods.reading.models.library_models import library_around
from codemods.reading.own_fsdp2.shardings import shards_itself
from codemods.reading.wrappers.asked_classes import asking_for, without_class, without_test
from codemods.reading.wrappers.beside_fsdp2 import answered, without_own_branch
from codemods.reading.wrappers.steps import Step, is_only_unwrapped, loop_inward, recursion_under
from codemods.tables.names import PACKAGE, WRAPPER

from .module_type import module_type, union_without

CODE = "FM105"


def fix(node: Reference, ctx: PlannedContext) -> Fix | None:
    if _counterpart(node, ctx) is None or not (_is_class_test(node, ctx) or _is_annotation(node, ctx)):
        return None
    excluded, asking = _exclusion(node, ctx), _asking_alone(node, ctx)
    if excluded is None and asking is not None and _leaves_wrapper_out(asking, ctx):
        excluded = removal(ctx, asking)
    if excluded is not None:
        message = "the layer itself is sharded, there is no wrapper beside it to leave out"
        return rewritten(CODE, ctx, node, [excluded], message)
    beside = without_own_branch(node, ctx) if ctx.fsdp1(node) == WRAPPER else None
    if beside is not None:
        message = "what is asked of FSDP1's class goes: the program has a way of its own for FSDP2's beside it"
        return rewritten(CODE, ctx, node, [beside], message)
    no = answered(node, ctx) if ctx.fsdp1(node) == WRAPPER else None
    if no is not None:
        message = "FSDP1's class is asked of a model that the program shards by fully_shard itself: the answer stays no"
        return Fix([no], [finding(CODE, Level.REVIEW, ctx, node, message)])
    if asking is not None and _takes_off(asking, ctx):
        message = "an FSDP2 model has no wrapper to take off"
        return rewritten(CODE, ctx, node, [removal(ctx, asking)], message)
    if isinstance(asking, cst.While):
        return _loop(node, asking, ctx)
    test = _test_with(node, ctx) if ctx.fsdp1(node) == WRAPPER else None
    loop = loop_inward(ctx.code(test.args[0].value), node, ctx) if test is not None else None
    if test is not None and loop is not None and loop.test is not test:
        return _of_loop_inward(node, test, ctx)
    recursion = _recursion(node, ctx)
    if recursion is not None:
        return _without_recursion(node, recursion, ctx)
    if is_only_unwrapped(node, ctx):
        message = "an FSDP2 model has no wrapper to look inside: only the other classes have one"
        return rewritten(CODE, ctx, node, [without_class(ctx, node)], message)
    if _is_module_annotation(node, ctx):
        message = "annotation becomes nn.Module: fully_shard works in place"
        findings = [finding(CODE, Level.REWRITTEN, ctx, node, message)]
        shorter = union_without(node, ctx)
        if shorter is not None:
            return Fix([shorter], findings)
        written, imports = module_type(node, ctx)
        return Fix([Edit(*ctx.bare_span(node), written)], findings, imports)
    item = ctx.named(Import(PACKAGE, _counterpart(node, ctx) or ""), node)
    what = "annotation" if _is_annotation(node, ctx) else "class check"
    level, message, hint = Level.REWRITTEN, f"{what} becomes {item.name}", ""
    asked = _asked_model(node, ctx)
    library = library_around(asked, ctx) if asked is not None and ctx.fsdp1(node) == WRAPPER else ""
    if library:
        level = Level.MANUAL
        message += f", for a model that {library} wraps: where that is by FSDP1 it never holds"
        hint = f"see how {library} wraps the model, and migrate with a version of it that calls fully_shard"
    return Fix([Edit(*ctx.bare_span(node), item.local)], [finding(CODE, level, ctx, node, message, hint)], [item])


def _asked_model(node: Reference, ctx: Context) -> cst.BaseExpression | None:
    """`m` of `isinstance(m, FSDP)`."""
    call = call_given(node, ctx)
    return call.args[0].value if call is not None else None


def _asking_alone(node: Reference, ctx: Context) -> cst.If | cst.While | None:
    """The statement whose whole test is `isinstance(m, FSDP)`."""
    call = call_given(node, ctx)
    statement = ctx.parent(call) if call is not None else None
    return statement if isinstance(statement, (cst.If, cst.While)) and statement.test is call else None


def _takes_off(statement: cst.If | cst.While, ctx: Context) -> bool:
    """Whether `m = m.module` is all that it does."""
    asked = cst.ensure_type(statement.test, cst.Call).args[0].value
    body = statement.body.body
    line = body[0] if len(body) == 1 else None
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else line
    if not isinstance(small, cst.Assign) or len(small.targets) != 1 or statement.orelse is not None:
        return False
    if isinstance(ctx.parent(statement), cst.If):  # an `elif`
        return False
    inner, model = small.value, ctx.code(asked)
    if not isinstance(inner, cst.Attribute) or inner.attr.value not in {"module", "_fsdp_wrapped_module"}:
        return False
    return ctx.code(small.targets[0].target) == model == ctx.code(inner.value)


def _loop(found: Reference, loop: cst.While, ctx: PlannedContext) -> Fix:
    """A loop from wrapper to wrapper would not end: an FSDP2 model is asked once."""
    leaves = [each for each in ctx.inside(loop) if isinstance(each, (cst.Break, cst.Continue))]
    if leaves or loop.orelse is not None:
        message = "a loop from wrapper to wrapper: an FSDP2 model has none, and the loop would not end"
        hint = "take the loop away, with what it does for each wrapper"
        return left(CODE, Level.MANUAL, ctx, found, message, hint)
    start = ctx.span(loop)[0]
    item = ctx.named(Import(PACKAGE, _counterpart(found, ctx) or ""), found)
    edits = [Edit(start, start + len("while"), "if"), Edit(*ctx.bare_span(found), item.local)]
    return rewritten(CODE, ctx, found, edits, f"class check becomes {item.name}, and is asked once", [item])


def _test_with(node: Reference, ctx: Context) -> cst.Call | None:
    """`isinstance(m, FSDP)`, and `isinstance(m, (FSDP, DDP))`."""
    holder = ctx.parent(node)
    argument = ctx.parent(ctx.parent(holder) or node) if isinstance(holder, cst.Element) else holder
    call = ctx.parent(argument) if isinstance(argument, cst.Arg) else None
    return call if isinstance(call, cst.Call) else None


def _of_loop_inward(found: Reference, test: cst.Call, ctx: Context) -> Fix:
    """FSDP1's class goes from the test: what it led to is asked of other wrappers alone."""
    edit = without_class(ctx, found) if isinstance(ctx.parent(found), cst.Element) else _without_test(test, ctx)
    if edit is None:
        message = "a loop from wrapper to wrapper: an FSDP2 model has none, and the loop would not end"
        return left(CODE, Level.MANUAL, ctx, found, message, "take the test away, with what it does for each wrapper")
    return rewritten(CODE, ctx, found, [edit], "an FSDP2 model has no wrapper to look inside: the loop would not end")


def _without_test(test: cst.Call, ctx: Context) -> Edit | None:
    """`a or isinstance(m, FSDP)` becomes `a`, and the branch goes that it decides alone about."""
    holder = ctx.parent(test)
    shorter = without_test(ctx, test)
    if shorter is not None:
        return shorter
    if isinstance(holder, cst.BooleanOperation) and isinstance(holder.operator, cst.Or):
        kept = holder.left if holder.right is test else holder.right
        return Edit(*ctx.bare_span(holder), ctx.quote(kept))
    if isinstance(holder, cst.IfExp) and holder.test is test:
        return Edit(*ctx.bare_span(holder), ctx.quote(holder.orelse))
    if not isinstance(holder, cst.If) or holder.test is not test:
        return None
    start, is_first = ctx.span(holder)[0], not isinstance(ctx.parent(holder), cst.If)
    if holder.orelse is None:
        return removal(ctx, holder) if is_first else None
    following = ctx.span(holder.orelse)[0]
    if not is_first:
        return Edit(start, following, "")
    return Edit(start, following + len("elif"), "if") if isinstance(holder.orelse, cst.If) else None


def _recursion(node: Reference, ctx: Context) -> Step | None:
    """The step of `return strip(m.module)` under `isinstance(m, FSDP)`, or under a tuple with it."""
    call = _test_with(node, ctx)
    return recursion_under(call, ctx) if call is not None else None


def _without_recursion(found: Reference, step: Step, ctx: Context) -> Fix:
    """The class goes from the test; with no other in it, so does what stands under it."""
    told = [finding(CODE, Level.REWRITTEN, ctx, found, "an FSDP2 model has no wrapper to take off")]
    choice, classes = step.statement, step.classes
    if isinstance(classes, cst.Tuple):
        return Fix([without_class(ctx, found)], told)
    if isinstance(choice, cst.IfExp) and choice.body is step.recursion:
        return Fix([Edit(*ctx.bare_span(choice), ctx.quote(choice.orelse))], told)
    lines = choice.body.body if isinstance(choice, cst.If) else ()
    small = lines[0].body[0] if len(lines) == 1 and isinstance(lines[0], cst.SimpleStatementLine) else None
    is_alone = isinstance(choice, cst.If) and choice.orelse is None and not isinstance(ctx.parent(choice), cst.If)
    if is_alone and isinstance(small, cst.Return) and small.value is step.recursion:
        return Fix([removal(ctx, choice)], told)
    message = "a recursion from wrapper to wrapper: an FSDP2 model has none, and it would not end"
    hint = "take the test away, with what it does for each wrapper"
    return left(CODE, Level.MANUAL, ctx, found, message, hint)


def _exclusion(node: Reference, ctx: Context) -> Edit | None:
    """Takes `and not isinstance(m, FSDP)` away where it kept the wrapper of a layer out, and not the layer."""
    test = call_given(node, ctx)
    negation = ctx.parent(test) if test is not None else None
    both = ctx.parent(negation) if isinstance(negation, cst.UnaryOperation) else None
    if test is None or not isinstance(both, cst.BooleanOperation):
        return None
    if not isinstance(both.operator, cst.And) or not _picks_layers(test.args[0].value, both, ctx):
        return None
    if both.right is negation:
        return Edit(ctx.span(both.left)[1], ctx.span(negation)[1], "")
    return Edit(ctx.span(both.left)[0], ctx.span(both.right)[0], "")


def _leaves_wrapper_out(statement: cst.If | cst.While, ctx: Context) -> bool:
    """`if isinstance(m, FSDP): return False` in what says which modules activation checkpointing is applied to."""
    line = statement.body.body[0] if len(statement.body.body) == 1 else None
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else line
    if not isinstance(small, cst.Return) or small.value is None or ctx.code(small.value) != "False":
        return False
    is_alone = statement.orelse is None and not isinstance(ctx.parent(statement), cst.If)
    return isinstance(statement, cst.If) and is_alone and _is_check_function(statement, ctx)


def _is_check_function(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether the function around is the `check_fn` of activation checkpointing."""
    function = enclosing(ctx, node, cst.FunctionDef)
    uses = ctx.references_to(function) if function is not None else ()
    return any(_is_check_argument(where.parent(use), where) for where, use in uses)


def _is_check_argument(argument: cst.CSTNode | None, ctx: Context) -> bool:
    if not isinstance(argument, cst.Arg):
        return False
    if argument.keyword is not None:
        return argument.keyword.value == "check_fn"
    call = ctx.parent(argument)
    is_applied = isinstance(call, cst.Call) and (ctx.dotted(call.func) or "").endswith(_APPLIES_CHECKPOINTS)
    return isinstance(call, cst.Call) and is_applied and call.args.index(argument) == _CHECK_FN_AT


def _picks_layers(module: cst.BaseExpression, inner: cst.BooleanOperation, ctx: Context) -> bool:
    """Whether a condition asks for the layer's class as well, or says what activation checkpointing is applied to."""
    for outer in ctx.ancestors(inner):
        if _is_check_argument(outer, ctx):
            return True
    if _is_check_function(inner, ctx):
        return True
    asked = _outermost(inner, ctx)
    return any(_is_layer_test(part, module, ctx) for part in conjuncts(asked))


def _outermost(node: cst.BooleanOperation, ctx: Context) -> cst.BooleanOperation:
    """The whole of `a and b and c`."""
    holder = ctx.parent(node)
    while isinstance(holder, cst.BooleanOperation) and isinstance(holder.operator, cst.And):
        node, holder = holder, ctx.parent(holder)
    return node


def _is_layer_test(node: cst.BaseExpression, module: cst.BaseExpression, ctx: Context) -> bool:
    """`isinstance(m, Block)`, for the same `m` and a class that FSDP1's wrapper was no instance of."""
    asked = class_test(node, ctx)
    if asked is None or not isinstance(asked[1], (cst.Name, cst.Attribute)) or ctx.fsdp1(asked[1]) == WRAPPER:
        return False
    return ctx.code(asked[0]) == ctx.code(module) and ctx.dotted(asked[1]) != "torch.nn.Module"


def _counterpart(node: Reference, ctx: PlannedContext) -> str | None:
    """FSDP2's class for one of FSDP1's; `MixedPrecision` keeps its own where run time reads it as FSDP1 had it."""
    name = ctx.fsdp1(node)
    is_read = ctx.plan.reads_precision or (not ctx.plan.wraps and shards_itself(ctx))
    if name == "MixedPrecision" and not is_read:
        return "MixedPrecisionPolicy"
    return "FSDPModule" if name == WRAPPER else None


def _is_class_test(node: cst.BaseExpression, ctx: Context) -> bool:
    """The second argument of `isinstance` or `issubclass`, alone or in a tuple, which a variable may hold."""
    if isinstance(ctx.parent(node), cst.MatchClass):
        return True
    tests = asking_for(ctx, node)
    if isinstance(ctx.parent(node), cst.Element):
        return tests is not None
    return any(isinstance(test, cst.Call) for _, test in tests or ())  # a class by itself may be called, too


def _is_annotation(node: cst.BaseExpression, ctx: Context) -> bool:
    """In an annotation, or in a type that is given a name: `Wrapped = Union[DDP, FSDP]`."""
    inner: cst.CSTNode = node
    for ancestor in ctx.ancestors(node):
        if isinstance(ancestor, cst.Annotation):
            return True
        if isinstance(ancestor, cst.Assign):
            is_type = isinstance(inner, cst.Subscript) and ctx.dotted(inner.value) in _ALTERNATIVES
            return is_type and not _is_tested(ancestor, ctx)
        if not isinstance(ancestor, (cst.Subscript, cst.SubscriptElement, cst.Index, cst.BinaryOperation, cst.Tuple)):
            return False
        inner = ancestor
    return False


def _is_tested(alias: cst.Assign, ctx: Context) -> bool:
    """Whether a named type is what `isinstance` is asked for anywhere, of which any module would be one."""
    names = [target.target.value for target in alias.targets if isinstance(target.target, cst.Name)]
    reads = [(where, read) for name in names for where, read in ctx.reading(name, alias.value)]
    reads += [(ctx, use) for use in ctx.uses(alias)]
    calls = [where.parent(holder) for where, read in reads if isinstance(holder := where.parent(read), cst.Arg)]
    return len(names) < len(alias.targets) or any(isinstance(call, cst.Call) for call in calls)


def _is_module_annotation(node: Reference, ctx: Context) -> bool:
    """Whether an annotation means the model, and neither the class nor what only a sharded module has."""
    if ctx.fsdp1(node) != WRAPPER or not _is_annotation(node, ctx):
        return False
    around: list[cst.CSTNode] = []
    for outer in ctx.ancestors(node):
        around.append(outer)
        if isinstance(outer, (cst.Annotation, cst.Assign)):
            break
    if any(isinstance(each, cst.Subscript) and ctx.code(each.value) in _OF_CLASSES for each in around):
        return False
    parameter = ctx.parent(around[-1])
    if isinstance(parameter, cst.FunctionDef) and around[-1] is around[0]:
        return not _is_for_readers(parameter)
    if not isinstance(parameter, cst.Param):
        return True
    uses = [ctx.parent(use) for use in ctx.uses(parameter)]
    return not any(isinstance(use, cst.Attribute) and use.attr.value in _OF_UNITS for use in uses)


def _is_for_readers(function: cst.FunctionDef) -> bool:
    """Whether what it gives back is all that it says of types: it says that this is sharded, and no checker asks."""
    params = (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params)
    return bool(params) and all(param.annotation is None for param in params)


_ALTERNATIVES = frozenset({"typing.Annotated", "typing.Optional", "typing.Union"})
_OF_CLASSES = frozenset({"type", "Type", "typing.Type"})
_APPLIES_CHECKPOINTS = ".apply_activation_checkpointing"
_CHECK_FN_AT = 2
"""Where `apply_activation_checkpointing(model, checkpoint_wrapper_fn, check_fn)` takes it (torch 2.13)."""
_OF_UNITS = frozenset({"no_sync"})
"""What becomes a call of `FSDPModule`'s own methods."""

RULE: Rule[Reference] = Rule(CODE, "fsdp-class-check", __doc__, nodes=(cst.Name, cst.Attribute), fix=fix)
