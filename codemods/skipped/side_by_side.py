"""**What it does.** Recognises a program that has an FSDP2 path of its own beside its FSDP1 path, behind a switch,
and leaves the FSDP1 path as it is: constructor call, policies, checkpoints and imports.

**Why.** Such a program keeps FSDP1 on purpose, for users who are not ready, or to compare the two. Rewritten, both
branches of the switch would be FSDP2, and code that serves both would be half of one and half of the other.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def shard(model, config):
    if config.strategy == "fsdp2":
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)
    return FSDP(model)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def shard(model, config):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)
```

## Fix safety

Nothing is changed. What counts is where the constructor call stands: in one branch of an `if`, a `match` or a table of
functions whose other branch shards the same model with `fully_shard`, there or in a function that it calls; or in a
method that another class of the same base has with `fully_shard`. A script
of FSDP1 beside an unrelated script of FSDP2 is rewritten as ever.

## References

- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import libcst as cst

from codemods.api import SUPPORT, Check, Context, Finding, KeepReason, Level, Reference, finding
from codemods.plan import PlannedContext
from codemods.reading.scripts import is_script
from codemods.reading.sharding import is_fully_shard
from codemods.reading.words import last_name
from codemods.tables.names import WRAPPER

CODE = "FM110"

_DEPTH = 4
"""Calls that are followed up from the constructor call to the switch, and from there down to `fully_shard`."""
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)
_Definition = cst.FunctionDef | cst.ClassDef


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """The FSDP1 of a file that is left, because the program has an FSDP2 path beside it."""
    beside = ctx.plan.beside(ctx.path)
    if beside is None:
        return
    for node, name in ctx.references():
        call = ctx.parent(node)
        if name == WRAPPER and isinstance(call, cst.Call) and call.func is node:
            yield _constructor(ctx, call, beside)
        else:
            yield serving(node, ctx, beside)


def serving(node: cst.BaseExpression, ctx: Context, beside: KeepReason) -> Finding:
    """A name of FSDP1, in code or in an annotation in quotes, that stays with a path of FSDP1."""
    return finding(CODE, Level.KEPT, ctx, node, f"it serves the FSDP1 path beside FSDP2 ({beside.place})")


def _constructor(ctx: PlannedContext, call: cst.Call, beside: KeepReason) -> Finding:
    own = ctx.plan.switches.get(call)
    if own is None:
        message = f"constructor call is left as it is: it shares code with the FSDP1 path that {beside.place} keeps"
        hint = "migrate it together with that path; if it shares nothing but imports, name its script alone"
        return finding(CODE, Level.MANUAL, ctx, call, message, hint)
    where = "" if own.file.path == ctx.path else f" ({own.place})"
    message = f"constructor call is kept: `{own.text}`{where} chooses between it and an FSDP2 path of the program's own"
    hint = (
        "remove this path when you drop FSDP1; until then `check` passes with "
        f'ignore = ["{CODE}"] under [tool.fsdp-migrate]'
    )
    return finding(CODE, Level.KEPT, ctx, call, message, hint)


class Switches:
    """The searches of one program: up from each constructor call, and from each `fully_shard`."""

    def __init__(self, files: Iterable[Context]) -> None:
        """`files`: those of the program that hold the word `fully_shard`."""
        self._files = files
        self._naming: dict[_Definition, list[tuple[Context, Reference]]] = {}

    def around(self, ctx: Context, call: cst.Call, module: cst.BaseExpression | None) -> KeepReason | None:
        """The switch with this constructor call on one side and `fully_shard` for the same model on the other."""
        return self._around(ctx, call, _roots(module), _DEPTH, set())

    def _around(
        self, ctx: Context, site: cst.BaseExpression, models: set[str], depth: int, seen: set[cst.CSTNode]
    ) -> KeepReason | None:
        """`site` wraps, by itself or in what it names; `models` are the names of what it is handed, as far as seen."""
        if site in seen:
            return None
        seen.add(site)
        results = _results(ctx, site)
        for chosen_by, others in _branches(ctx, site):
            if any(self._shards(ctx, other, models, results) for other in others):
                return KeepReason(ctx, chosen_by)
        for base, where, method in self._of_other_heirs(ctx, site):
            if self._shards(where, method.body, models, set()):  # what each returns is its own
                return KeepReason(ctx, base)
        if depth == 0:
            return None
        for where, outer, handed in self._uses(ctx, site, models, results):
            found = self._around(where, outer, handed, depth - 1, seen)
            if found is not None:
                return found
        return None

    def _of_other_heirs(
        self, ctx: Context, site: cst.CSTNode
    ) -> Iterator[tuple[cst.BaseExpression, Context, cst.FunctionDef]]:
        """The method around a place, as other classes of the same base have it, with the base."""
        method = ctx.scope(site)
        owner = ctx.scope(method) if isinstance(method, cst.FunctionDef) else None
        if not isinstance(method, cst.FunctionDef) or not isinstance(owner, cst.ClassDef):
            return
        for base in owner.bases:
            for definition, where in _definitions(ctx, base.value):
                for other, used in self._names_of(where, definition):
                    heir = other.parent(other.parent(used) or used)
                    if not isinstance(heir, cst.ClassDef) or heir is owner or (other is not ctx and is_script(other)):
                        continue  # another script is another program, and no choice of this one
                    for each in heir.body.body:
                        if isinstance(each, cst.FunctionDef) and each.name.value == method.name.value:
                            yield base.value, other, each

    def _uses(
        self, ctx: Context, site: cst.BaseExpression, models: set[str], results: set[str]
    ) -> Iterator[tuple[Context, cst.BaseExpression, set[str]]]:
        """Where the function around a place is used, as far as the model goes in or comes out there."""
        function = ctx.scope(site)
        if not isinstance(function, cst.FunctionDef):
            return
        passed = [found for model in models for found in ctx.passed_to(site, model)]
        for where, call, argument in passed:
            yield where, call, _roots(argument)
        owner = ctx.scope(function)
        comes_out = isinstance(owner, cst.ClassDef) or bool(results & _returned(ctx, function))
        for where, used in self._names_of(ctx, function):
            if comes_out or isinstance(where.parent(used), cst.DictElement):
                yield where, _call_or_name(where, used), _roots(used) if isinstance(used, cst.Attribute) else set()
        if isinstance(owner, cst.ClassDef):
            for where, used in self._names_of(ctx, owner):
                yield where, _call_or_name(where, used), set()

    def _names_of(self, ctx: Context, definition: _Definition) -> list[tuple[Context, Reference]]:
        if definition not in self._naming:
            self._naming[definition] = list(ctx.references_to(definition))
        return self._naming[definition]

    def _shards(self, ctx: Context, branch: cst.CSTNode, models: set[str], results: set[str]) -> bool:
        """Whether a branch shards the same model: it is handed the same name, or its result goes to the same place."""
        inside = ctx.inside(branch)
        same_result = bool(results) and any(results & _results(ctx, node) for node in (branch, *_values(inside)))
        for node in inside:
            if isinstance(node, cst.Call) and (same_result or _is_handed(node, models)) and self._reaches(ctx, node):
                return True
            if isinstance(node, (cst.Name, cst.Attribute)) and isinstance(ctx.parent(node), cst.DictElement):
                if self._may_lead(node) and self._is_any_leading(_definitions(ctx, node)):
                    return True
        return False

    def _reaches(self, ctx: Context, call: cst.Call) -> bool:
        """Whether a call is `fully_shard`, or leads to it through the program's own code."""
        if is_fully_shard(ctx, call.func):
            return True
        if not self._may_lead(call.func):
            return False
        followed = [found for found in _definitions(ctx, call.func) if not _is_stub(found[0])]
        if self._is_any_leading(followed):
            return True
        # The model's class is not seen, or is the base of what it is: every class that has the method decides.
        heirs = [] if followed else _methods_of_the_name(ctx, call.func)
        return bool(heirs) and all(definition in self._leading for definition, _ in heirs)

    def _may_lead(self, called: cst.BaseExpression) -> bool:
        return not isinstance(called, cst.Attribute) or called.attr.value in self._names

    def _is_any_leading(self, found: Iterable[tuple[_Definition, Context]]) -> bool:
        return any(definition in self._leading for definition, _ in found)

    @cached_property
    def _names(self) -> frozenset[str]:
        """What is called in some place that may lead there."""
        called = [last_name(call.func) for node, ctx in self._leading.items() for _, call in ctx.called_as_named(node)]
        return frozenset([*called, *(node.name.value for node in self._leading)])

    @cached_property
    def _leading(self) -> Mapping[_Definition, Context]:
        """The definitions that call `fully_shard`, and those that lead to them."""
        nearer = {
            outer: ctx
            for ctx in self._files
            for call in ctx.nodes(cst.Call)
            if is_fully_shard(ctx, call.func)
            for outer in _around(ctx, call)
        }
        known = dict(nearer)
        for _ in range(_DEPTH - 1):
            above: dict[_Definition, Context] = {}
            for node, ctx in nearer.items():
                for where, call in ctx.called_as_named(node):
                    outer = [each for each in _around(where, call) if each not in known]
                    if outer and any(found is node for found, _ in _definitions(where, call.func)):
                        above.update(dict.fromkeys(outer, where))
            known |= above
            nearer = above
        return known


def _around(ctx: Context, call: cst.Call) -> list[_Definition]:
    """The functions and classes that a call stands in, in the user's own files."""
    if ctx.path.stem == SUPPORT:
        return []
    return [outer for outer in ctx.ancestors(call) if isinstance(outer, (cst.FunctionDef, cst.ClassDef))]


def _branches(ctx: Context, site: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, list[cst.CSTNode]]]:
    """What chooses whether a place is reached, and what runs instead of it; within its function."""
    inner = site
    for outer in ctx.ancestors(site):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
            return
        if isinstance(outer, (cst.If, cst.IfExp)) and inner is not outer.test:
            others = [outer.orelse] if inner is outer.body else [outer.body]
            yield outer.test, [other for other in others if other is not None]
        elif isinstance(outer, cst.Match) and isinstance(inner, cst.MatchCase):
            yield outer.subject, [case.body for case in outer.cases if case is not inner]
        elif isinstance(outer, cst.Dict):
            yield outer, [element for element in outer.elements if element is not inner]
        elif isinstance(outer, (cst.IndentedBlock, cst.Module)):
            yield from _left_early(outer, inner)
        inner = outer


def _left_early(
    block: cst.IndentedBlock | cst.Module, inner: cst.CSTNode
) -> Iterator[tuple[cst.CSTNode, list[cst.CSTNode]]]:
    """`if v2: return shard(model)` above, or the other way round: what stands below is the other branch."""
    position = next((index for index, statement in enumerate(block.body) if statement is inner), 0)
    for above in block.body[:position]:
        if isinstance(above, cst.If) and _leaves(above):
            yield above.test, [above.body]
    if isinstance(inner, cst.If) and _leaves(inner):
        yield inner.test, list(block.body[position + 1 :])


def _leaves(branch: cst.If) -> bool:
    last = branch.body.body[-1]
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _LEAVES)


def _call_or_name(ctx: Context, used: Reference) -> cst.BaseExpression:
    call = ctx.parent(used)
    return call if isinstance(call, cst.Call) and call.func is used else used


def _results(ctx: Context, site: cst.CSTNode) -> set[str]:
    """Where the value of the statement goes: the texts of its targets, or `return`."""
    for node in ctx.ancestors(site):
        if isinstance(node, cst.Assign):
            return {ctx.code(target.target) for target in node.targets}
        if isinstance(node, cst.AnnAssign):
            return {ctx.code(node.target)}
        if isinstance(node, cst.Return):
            return {"return"}
        if isinstance(node, cst.BaseCompoundStatement):
            break
    return set()


def _values(nodes: Iterable[cst.CSTNode]) -> Iterator[cst.BaseExpression]:
    """An expression of each statement whose value goes somewhere."""
    for node in nodes:
        if isinstance(node, cst.Assign):
            yield node.value
        elif isinstance(node, cst.AnnAssign):
            yield node.target
        elif isinstance(node, cst.Return) and node.value is not None:
            yield node.value


def _returned(ctx: Context, function: cst.FunctionDef) -> set[str]:
    values = [node.value for node in ctx.inside(function) if isinstance(node, cst.Return) and node.value is not None]
    return {"return", *(ctx.code(value) for value in values)}


def _is_handed(call: cst.Call, models: set[str]) -> bool:
    """Whether a call takes a model, as an argument, in `*args`, or by being its method."""
    receiver = _roots(call.func) if isinstance(call.func, cst.Attribute) else set()
    handed = receiver.union(*(_roots(argument.value) for argument in call.args))
    return any(argument.star for argument in call.args) or bool(models & handed)


def _definitions(ctx: Context, callee: cst.BaseExpression) -> Iterator[tuple[_Definition, Context]]:
    """What a name can be the name of, in the user's own files."""
    for origin in ctx.origins(callee):
        if isinstance(origin.node, (cst.FunctionDef, cst.ClassDef)) and origin.file.path.stem != SUPPORT:
            yield origin.node, origin.file


def _methods_of_the_name(ctx: Context, callee: cst.BaseExpression) -> list[tuple[_Definition, Context]]:
    if not isinstance(callee, cst.Attribute):
        return []
    name = callee.attr.value
    found = [
        (node, file) for file in ctx.files(name) for node in file.nodes(cst.FunctionDef) if node.name.value == name
    ]
    return [(node, file) for node, file in found if isinstance(file.scope(node), cst.ClassDef) and not _is_stub(node)]


def _is_stub(definition: _Definition) -> bool:
    """A method that says no more than what it is for: its text, and `raise NotImplementedError` or `pass`."""
    if not isinstance(definition, cst.FunctionDef) or not isinstance(definition.body, cst.IndentedBlock):
        return False
    lines = definition.body.body
    return all(isinstance(line, cst.SimpleStatementLine) and all(map(_says_nothing, line.body)) for line in lines)


def _says_nothing(statement: cst.BaseSmallStatement) -> bool:
    is_text = isinstance(statement, cst.Expr) and isinstance(statement.value, (cst.BaseString, cst.Ellipsis))
    return is_text or isinstance(statement, (cst.Raise, cst.Pass))


def _roots(expression: cst.BaseExpression | None) -> set[str]:
    """The names at the front: `model` in `model.module`, in `model.cuda()` and in `model.inner if x else model`."""
    while isinstance(expression, (cst.Attribute, cst.Subscript, cst.Call)):
        if isinstance(expression, cst.Call):
            expression = expression.func if isinstance(expression.func, cst.Attribute) else None
        else:
            expression = expression.value
    if isinstance(expression, cst.IfExp):
        return _roots(expression.body) | _roots(expression.orelse)
    return {expression.value} if isinstance(expression, cst.Name) else set()


CHECK = Check(CODE, "side-by-side", __doc__, words=("FullyShardedDataParallel", "fsdp"), find=find)
