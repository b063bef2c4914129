"""How each constructor call of a program is rewritten: decided together, because calls share their arguments.

A policy or a `MixedPrecision` that two calls use can be rewritten where it is made only if both are written
idiomatically; one that goes through the support module needs it as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import libcst as cst

from codemods.api import Context, Emission, Reference
from codemods.reading.class_layout import sharded_classes
from codemods.reading.manual import class_given, context_of
from codemods.reading.passed_on import calls_of
from codemods.rules.checkpoints import state_dict
from codemods.rules.wrapping import wrap
from codemods.tables.names import WRAPPER

from .analysis.program_model import FileContext, ProgramModel
from .analysis.tree import Tree


def decide(facts: ProgramModel, trees: Iterable[Tree]) -> None:
    """Set the way of every constructor call in these files, and which definitions change or stay because of it."""
    facts.wraps_in_sight = facts.program.mentions("enable_wrap") and all(
        _is_in_sight(facts.file(tree), node) for tree in trees for node in _wraps(facts, tree)
    )
    calls: list[tuple[Context, cst.Call]] = [
        (facts.file(tree), call)
        for tree in trees
        for call in wrap.constructor_calls(facts.file(tree), tree.nodes(cst.Call))
    ]
    calls += _calls_of_values(facts, trees)
    contexts = {call: context_of(file, call) for file, call in calls}
    facts.constructors = len(calls) + any(class_given(file, call) is not None for file, call in calls)
    facts.state_dicts_at_run_time = any(
        state_dict.is_settled_at_run_time(call, facts.file(tree)) for tree in trees for call in tree.nodes(cst.Call)
    )
    proposals = {call: wrap.propose(file, call) for file, call in calls}
    facts.emissions = {call: proposal.way for call, proposal in proposals.items()}
    _keep_together(facts, contexts)
    settled = False
    while not settled:
        settled = True
        facts.kept = {
            node for call, way in facts.emissions.items() if way is Emission.SUPPORT for node in proposals[call].reads
        }
        for call, proposal in proposals.items():
            if facts.emissions[call] is Emission.NATIVE and (proposal.rewrites | proposal.inlines) & facts.kept:
                facts.emissions[call] = Emission.SUPPORT
                settled = False
        _keep_together(facts, contexts)
    facts.changed = {
        node for call, way in facts.emissions.items() if way is Emission.NATIVE for node in proposals[call].rewrites
    }
    if facts.program.mentions("ABC", "Generic"):
        made = [(file, call) for file, call in calls if facts.emissions[call] is not Emission.SKIP]
        facts.sharded = {node for file, call in made for _, node in sharded_classes(file, call)}


def _calls_of_values(facts: ProgramModel, trees: Iterable[Tree]) -> list[tuple[Context, cst.Call]]:
    """The calls of what holds the class: `WRAPPERS[name](model)`."""
    found: dict[cst.Call, Context] = {}
    for file in map(facts.file, trees):
        for node, name in file.references():
            holder = file.parent(node)
            if name != WRAPPER or (isinstance(holder, cst.Call) and holder.func is node):
                continue
            found.update((call, where) for where, call in calls_of(file, node) or ())
    return [(where, call) for call, where in found.items() if where.fsdp1(call.func) != WRAPPER]


def _wraps(facts: ProgramModel, tree: Tree) -> list[Reference]:
    return [node for node, name in facts.file(tree).references() if name == "wrap"]


def _is_in_sight(file: FileContext, node: Reference) -> bool:
    call = file.parent(node)
    return isinstance(call, cst.Call) and call.func is node and context_of(file, call) is not None


def _keep_together(facts: ProgramModel, contexts: Mapping[cst.Call, cst.Call | None]) -> None:
    """An `enable_wrap` goes when every `wrap` inside of it becomes `fully_shard`; else all of them go one way."""
    for context in {context for context in contexts.values() if context is not None}:
        inside = [call for call, around in contexts.items() if around is context]
        ways = {facts.emissions[call] for call in inside}
        way = (
            Emission.SKIP
            if Emission.SKIP in ways
            else Emission.SUPPORT
            if Emission.SUPPORT in ways
            else Emission.NATIVE
        )
        facts.emissions.update(dict.fromkeys([context, *inside], way))
