"""**What it does.** Turns an auto-wrap policy that is made away from the constructor call into the tuple of its
classes; one of several that are not all a set of classes becomes a function that says whether a module is a unit.

**Why.** FSDP2 has no policies. The loop that replaces the constructor call asks `isinstance(module, classes)`, or
`policy(module)`, so the place that made the policy makes the classes or the function now, and everything in between,
functions and imports, goes on as it was.

## Example

```python
from functools import partial

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Block:
    pass


def get_policy():
    return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


def shard(model):
    return FSDP(model, auto_wrap_policy=get_policy())


def shard_again(model):
    return FSDP(model, auto_wrap_policy=get_policy())
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


class Block:
    pass


def get_policy():
    return (Block,)


def shard(model):
    unit_classes = get_policy()
    for module in model.modules():
        if module is not model and isinstance(module, unit_classes):
            fully_shard(module)
    return fully_shard(model)


def shard_again(model):
    unit_classes = get_policy()
    for module in model.modules():
        if module is not model and isinstance(module, unit_classes):
            fully_shard(module)
    return fully_shard(model)
```

## Fix safety

Done only where every constructor call that the policy can reach is rewritten into such a loop.

## References

- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from itertools import pairwise

import libcst as cst

from codemods.api import Context, Edit, Fix, NotStatic, Origin, Rule, rewritten
from codemods.plan import PlannedContext
from codemods.reading.edits.layout import comments_in, insertion, lost_comments, removal
from codemods.reading.units.policies import joined_classes, policy_classes
from codemods.reading.units.predicates import class_policies, predicate, said_in_list

CODE = "FM102"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    if call not in ctx.plan.changed:
        return None
    is_function = call in ctx.plan.predicates
    try:
        policies = [] if is_function else class_policies(Origin(ctx, call))
    except NotStatic:
        return None
    line = _line_of_member(call, ctx)
    if line is not None:
        message = "auto-wrap policy becomes a part of what says whether a module is a unit"
        edits = [Edit(*ctx.whole_lines(line), "")]
    elif is_function:
        message = "auto-wrap policy becomes a function that says whether a module is a unit"
        edits = _function(call, ctx)
    elif any(outer in ctx.plan.changed for outer in ctx.ancestors(call)):
        return None  # written in the list of another one, which says its classes
    else:
        text = joined_classes(ctx, [policy_classes(each) for each in policies])
        message = f"auto-wrap policy becomes the classes {ctx.plain(text)}"
        edits = _expression(text, call, ctx)
    return rewritten(CODE, ctx, call, edits, message)


def _line_of_member(node: cst.CSTNode, ctx: PlannedContext) -> cst.SimpleStatementLine | None:
    """The line of a policy that only a list of policies reads, whose function says it."""
    _, line = _assigned(node, ctx)
    uses = ctx.uses(cst.ensure_type(line.body[0], cst.Assign)) if line is not None else ()
    if len(uses) != 1 or not isinstance(ctx.parent(uses[0]), cst.Element) or said_in_list(ctx, uses[0]) is not node:
        return None
    return line if any(outer in ctx.plan.changed for outer in ctx.ancestors(uses[0])) else None


def _expression(text: str, node: cst.CSTNode, ctx: PlannedContext) -> list[Edit]:
    comments = _comments(node, ctx)
    return [Edit(*ctx.bare_span(node), text), *([insertion(ctx, node, comments)] if comments else [])]


def _function(node: cst.CSTNode, ctx: PlannedContext) -> list[Edit]:
    """A `def` where the policy has a name, as linters want it; else a lambda."""
    made = predicate(Origin(ctx, node))
    if made.function and (made.written is None or not _assigned(node, ctx)[0]):
        return _named_after(made.function, node, ctx) or _expression(made.function, node, ctx)
    if made.written is not None:
        parameter, tests = made.written.params.params[0].name.value, [ctx.quote(made.written.body)]
    else:
        words = {each.value for each in ctx.inside(node) if isinstance(each, cst.Name)}
        parameter = next(name for name in ("module", "layer", "submodule") if name not in words)
        tests = [each.replace("{module}", parameter) for each in made.tests]
    name, line = _assigned(node, ctx)
    if not name or line is None:
        return _expression(f"lambda {parameter}: {' or '.join(tests)}", node, ctx)
    start, end = ctx.whole_lines(line)
    indent = " " * (ctx.position(line)[1] - 1)
    inner = [*_comments(node, ctx), *_returned(tests, indent, ctx)]
    lines = [f"{indent}def {name}({parameter}):", *(f"{indent}{ctx.indent}{each}" for each in inner)]
    if not ctx.text[end:].startswith(("\n", "\r\n")):
        lines.append("")
    made_here = [Edit(start, end, "".join(each + ctx.newline for each in lines))]
    above, said = _over_comments(_text_above(line, ctx))
    if above.rstrip(" \t").endswith(("\n\n", ":\n")) or _ends_blank(line, ctx):
        return made_here
    return [Edit(start - len(said), start - len(said), ctx.newline), *made_here]


def _named_after(function: str, node: cst.CSTNode, ctx: PlannedContext) -> list[Edit]:
    """The function itself wherever a local variable would be no more than another name of it; else nothing."""
    name, line = _assigned(node, ctx)
    scope, called = ctx.scope(node), cst.parse_expression(ctx.plain(function))
    if not name or line is None or not isinstance(scope, cst.FunctionDef) or not isinstance(called, cst.Name):
        return []
    said = called.value
    uses = ctx.uses(cst.ensure_type(line.body[0], cst.Assign))
    named = [each for each in ctx.inside(scope) if isinstance(each, cst.Name) and each.value == name]
    value = next(each for each in ctx.inside(node) if isinstance(each, cst.Name) and each.value == said)
    bound = cst.ensure_type(line.body[0], cst.Assign).targets[0].target
    lines = ctx.whole_lines(line)
    if {*uses, bound} != set(named) or _comments(node, ctx) or comments_in(ctx.text[slice(*lines)]):
        return []
    if not all(ctx.scope(use) is scope and ctx.same_meaning(value, use) for use in uses):
        return []
    below = ctx.text[lines[1] :]
    end = lines[1] + len(below) - len(below.lstrip("\r\n"))
    # What is said above it stays, and stands above what comes next.
    gone = Edit(lines[0], end, "") if lost_comments(ctx, line) else removal(ctx, line)
    return [gone, *(Edit(*ctx.span(use), said) for use in uses)]


def _comments(node: cst.CSTNode, ctx: PlannedContext) -> list[str]:
    """Those within a policy, and within those that it takes in."""
    members = [said_in_list(ctx, each) for each in ctx.inside(node) if isinstance(each, cst.Name)]
    return [comment for each in (*members, node) if each is not None for comment in comments_in(ctx.code(each))]


def _returned(tests: list[str], indent: str, ctx: PlannedContext) -> list[str]:
    line = f"return {' or '.join(tests)}"
    if len(tests) == 1 or len(f"{indent}{ctx.indent}{ctx.plain(line)}") <= ctx.width:
        return [line]
    return ["return (", f"{ctx.indent}{tests[0]}", *(f"{ctx.indent}or {test}" for test in tests[1:]), ")"]


def _line_that_goes(node: cst.CSTNode, ctx: PlannedContext) -> cst.SimpleStatementLine | None:
    """The line of a policy that is said elsewhere, or is a function by another name."""
    made = predicate(Origin(ctx, node)).function
    if made and _named_after(made, node, ctx):
        return _assigned(node, ctx)[1]
    return _line_of_member(node, ctx)


def _text_above(line: cst.SimpleStatementLine, ctx: PlannedContext) -> str:
    """The text above a statement, as the policies that go with it leave it: without their comments, too."""
    statements = list(getattr(ctx.parent(line), "body", ()))
    top = line
    for above in reversed(statements[: statements.index(line)]):
        made = ctx.plan.predicates & set(ctx.inside(above))
        if not any(_line_that_goes(each, ctx) is above for each in made):
            break
        top = above
    lines = ctx.text[: ctx.whole_lines(top)[0]].splitlines(keepends=True)
    while top is not line and lines and lines[-1].lstrip().startswith("#"):
        lines.pop()
    return "".join(lines)


def _over_comments(above: str) -> tuple[str, str]:
    """The text above a statement without the comments right above it, and those: they stay with the statement."""
    lines = above.splitlines(keepends=True)
    first = len(lines)
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return "".join(lines[:first]), "".join(lines[first:])


def _ends_blank(line: cst.SimpleStatementLine, ctx: PlannedContext) -> bool:
    """Whether the statement above becomes a function too, which a blank line is put below."""
    block = getattr(ctx.parent(line), "body", ())
    above = next((before for before, after in pairwise(block) if after is line), None)
    if above is None:
        return False
    made = ctx.plan.predicates & set(ctx.inside(above))
    return any(_assigned(each, ctx)[1] is above and _is_def(each, ctx) for each in made)


def _is_def(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a policy that has a name is written as a function of it."""
    made = predicate(Origin(ctx, node))
    return not made.function or made.written is not None


def _assigned(node: cst.CSTNode, ctx: Context) -> tuple[str, cst.SimpleStatementLine | None]:
    """The name, and the line, of `policy = …`."""
    assignment = ctx.parent(node)
    line = ctx.parent(assignment) if isinstance(assignment, cst.Assign) else None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or not isinstance(assignment, cst.Assign):
        return "", None
    target = assignment.targets[0].target
    return (target.value, line) if len(assignment.targets) == 1 and isinstance(target, cst.Name) else ("", None)


RULE = Rule(CODE, "auto-wrap-policy-definition", __doc__, nodes=(cst.Call,), fix=fix)
