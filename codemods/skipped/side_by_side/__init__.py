"""**What it does.** Recognises a program that has an FSDP2 path of its own beside its FSDP1 path, behind a switch,
and leaves the FSDP1 path as it is: constructor call, policies, checkpoints and imports.

**Why.** Such a program keeps FSDP1 on purpose, for users who are not ready, or to compare the two. Rewritten, both
branches of the switch would be FSDP2, and code that serves both would be half of one and half of the other: an average
that reads the DTensors of the FSDP2 model would be handed gathered tensors.

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
functions whose other branch shards the same model with `fully_shard`, there or in a function that it calls (verl's
`apply_fsdp2` and accelerate's `fsdp2_prepare_model` are known to do so); or in a method that another class of the same
base has with `fully_shard`; or whether its model's state dict is read or loaded by code that models of the program's
own `fully_shard` come to as well. A script of FSDP1 beside a script of FSDP2 that shares none is rewritten as ever.

## References

- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, KeepReason, Level, ModelKind, Reference, finding
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import upward
from codemods.reading.code.scripts import is_script, is_test
from codemods.reading.own_fsdp2.own_shardings import DEPTH, Definition, OwnShardings, definitions, is_handed, roots
from codemods.tables.names import WRAPPER

from .own_models import OwnModels

CODE = "FM110"

STATE_METHODS = ("state_dict", "load_state_dict")

_SHARED = "also serves models that the program shards by its own fully_shard"
_OF_HEIR = "does the same with fully_shard, in another class of the same base"
_OFFERED = "stands beside it and does the same with fully_shard, and the program does not call FSDP1's"

_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


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
    if own is None and is_test(ctx.path):
        message = f"constructor call is kept: it is a test of what the FSDP1 path beside FSDP2 shares ({beside.place})"
        return finding(CODE, Level.KEPT, ctx, call, message)
    if own is None:
        message = f"constructor call is left as it is: it shares code with the FSDP1 path that {beside.place} keeps"
        hint = "migrate it together with that path; if it shares nothing but imports, name its script alone"
        return finding(CODE, Level.MANUAL, ctx, call, message, hint)
    message = f"constructor call is kept: `{own.text}` ({own.place}) {own.why}"
    hint = (
        "remove this path when you drop FSDP1; until then `check` passes with "
        f'ignore = ["{CODE}"] under [tool.fsdp-migrate]'
    )
    return finding(CODE, Level.KEPT, ctx, call, message, hint)


class Switches:
    """The searches of one program: up from each constructor call to what chooses it."""

    def __init__(self, own: OwnShardings) -> None:
        """`own`: the program's own ways to `fully_shard`."""
        self._own = own
        self._naming: dict[Definition, list[tuple[Context, Reference]]] = {}

    def around(self, ctx: Context, call: cst.Call, module: cst.BaseExpression | None) -> KeepReason | None:
        """The switch with this constructor call on one side and `fully_shard` for the same model on the other."""
        return self._around(ctx, call, roots(module), DEPTH, set())

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
        for where, method in self._of_other_heirs(ctx, site):
            if self._shards(where, method.body, models, set()):  # what each returns is its own
                return KeepReason(where, method.name, _OF_HEIR)
        if depth == 0:
            return None
        uses = list(self._uses(ctx, site, models, results))
        if not uses:
            return self._offered_beside(ctx, site, models)
        for where, outer, handed in uses:
            found = self._around(where, outer, handed, depth - 1, seen)
            if found is not None:
                return found
        return None

    def _offered_beside(self, ctx: Context, site: cst.CSTNode, models: set[str]) -> KeepReason | None:
        """Of a library that offers a function for each: the one that shards by `fully_shard` what both take."""
        function = ctx.scope(site)
        if not isinstance(function, cst.FunctionDef) or is_script(ctx):
            return None
        for other in _siblings(ctx, function):
            taken = models & _parameters(function) & _parameters(other)
            shards = (is_handed(call, taken) and self._own.reaches(ctx, call) for call in ctx.calls(other))
            is_inner = any(where.path == ctx.path for where, _ in self._names_of(ctx, other))
            if taken and any(shards) and _gives_back(ctx, other) and not is_inner:
                return KeepReason(ctx, other.name, _OFFERED, is_alone=True)
        return None

    def _of_other_heirs(self, ctx: Context, site: cst.CSTNode) -> Iterator[tuple[Context, cst.FunctionDef]]:
        """The method around a place, as other classes of the same base have it."""
        method = ctx.scope(site)
        owner = ctx.scope(method) if isinstance(method, cst.FunctionDef) else None
        if not isinstance(method, cst.FunctionDef) or not isinstance(owner, cst.ClassDef):
            return
        for base in owner.bases:
            for definition, where in definitions(ctx, base.value):
                for other, used in self._names_of(where, definition):
                    heir = other.parent(other.parent(used) or used)
                    if not isinstance(heir, cst.ClassDef) or heir is owner or (other is not ctx and is_script(other)):
                        continue  # another script is another program, and no choice of this one
                    for each in heir.body.body:
                        if isinstance(each, cst.FunctionDef) and each.name.value == method.name.value:
                            yield other, each

    def _uses(
        self, ctx: Context, site: cst.BaseExpression, models: set[str], results: set[str]
    ) -> Iterator[tuple[Context, cst.BaseExpression, set[str]]]:
        """Where the function around a place is used, as far as the model goes in or comes out there."""
        function = ctx.scope(site)
        if not isinstance(function, cst.FunctionDef):
            return
        passed = [found for model in models for found in ctx.passed_to(site, model)]
        for where, call, argument in passed:
            yield where, call, roots(argument)
        owner = ctx.scope(function)
        comes_out = isinstance(owner, cst.ClassDef) or bool(results & _returned(ctx, function))
        for where, used in self._names_of(ctx, function):
            if comes_out or isinstance(where.parent(used), cst.DictElement):
                yield where, _call_or_name(where, used), roots(used) if isinstance(used, cst.Attribute) else set()
        if isinstance(owner, cst.ClassDef):
            for where, used in self._names_of(ctx, owner):
                yield where, _call_or_name(where, used), set()

    def _names_of(self, ctx: Context, definition: Definition) -> list[tuple[Context, Reference]]:
        if definition not in self._naming:
            self._naming[definition] = list(ctx.references_to(definition))
        return self._naming[definition]

    def _shards(self, ctx: Context, branch: cst.CSTNode, models: set[str], results: set[str]) -> bool:
        """Whether a branch shards the same model: it is handed the same name, or its result goes to the same place."""
        inside = ctx.inside(branch)
        same_result = bool(results) and any(results & _results(ctx, node) for node in (branch, *_values(inside)))
        for node in inside:
            if isinstance(node, cst.Call) and (same_result or is_handed(node, models)) and self._own.reaches(ctx, node):
                return True
            if isinstance(node, (cst.Name, cst.Attribute)) and isinstance(ctx.parent(node), cst.DictElement):
                if self._own.leads(ctx, node):
                    return True
        return False


def shared(files: Iterable[Context], own: OwnShardings) -> Iterator[tuple[cst.Call, KeepReason]]:
    """The constructor calls whose models come to a state dict that models of the program's own `fully_shard` come to.

    What is right for the one is not for the other there: FSDP1 gathers, and a program that reads its own FSDP2 model
    reads DTensors.
    """
    models = OwnModels(own)
    for ctx in files:
        for call in ctx.nodes(cst.Call):
            if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in STATE_METHODS:
                continue
            model = call.func.value
            if ctx.kinds(model) > {ModelKind.FSDP} and models.come_to(ctx, model):
                for origin in ctx.origins(model):
                    if isinstance(origin.node, cst.Call):
                        yield origin.node, KeepReason(ctx, call, _SHARED)


def _branches(ctx: Context, site: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, list[cst.CSTNode]]]:
    """What chooses whether a place is reached, and what runs instead of it; within its function."""
    for inner, outer in upward(ctx, site):
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


def _siblings(ctx: Context, function: cst.FunctionDef) -> list[cst.FunctionDef]:
    """The other functions of the file or class that a function is defined in."""
    owner = ctx.scope(function)
    others = owner.body if isinstance(owner, cst.Module) else owner.body.body if isinstance(owner, cst.ClassDef) else ()
    return [each for each in others if isinstance(each, cst.FunctionDef) and each is not function]


def _gives_back(ctx: Context, function: cst.FunctionDef) -> bool:
    return any(isinstance(node, cst.Return) and node.value is not None for node in ctx.inside(function))


def _parameters(function: cst.FunctionDef) -> set[str]:
    return {each.name.value for each in (*function.params.posonly_params, *function.params.params)}


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
        elif isinstance(node, cst.Return) and node.value is not None:
            yield node.value


def _returned(ctx: Context, function: cst.FunctionDef) -> set[str]:
    values = [node.value for node in ctx.inside(function) if isinstance(node, cst.Return) and node.value is not None]
    return {"return", *(ctx.code(value) for value in values)}


CHECK = Check(CODE, "side-by-side", __doc__, words=("FullyShardedDataParallel", "fsdp"), find=find)
