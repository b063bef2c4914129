"""How each constructor call of a program is rewritten: decided together, because calls share their arguments.

A policy or a `MixedPrecision` that two calls use can be rewritten where it is made only if both are written
idiomatically; one that goes through the support module needs it as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from codemods import state_dict, wrap
from codemods.vocabulary import Way

from .analysis.facts import Facts
from .analysis.tree import Tree


def decide(facts: Facts, trees: Iterable[Tree]) -> None:
    """Set the way of every constructor call in these files, and which definitions change or stay because of it."""
    calls = [
        (facts.file(tree), call)
        for tree in trees
        for call in wrap.constructor_calls(facts.file(tree), tree.nodes(cst.Call))
    ]
    facts.constructors = len(calls)
    facts.state_dicts_at_run_time = any(
        state_dict.is_settled_at_run_time(call, facts.file(tree)) for tree in trees for call in tree.nodes(cst.Call)
    )
    proposals = {call: wrap.propose(file, call) for file, call in calls}
    facts.ways = {call: proposal.way for call, proposal in proposals.items()}
    settled = False
    while not settled:
        settled = True
        facts.kept = {node for call, way in facts.ways.items() if way is Way.SUPPORT for node in proposals[call].reads}
        for call, proposal in proposals.items():
            if facts.ways[call] is Way.IDIOMATIC and (proposal.rewrites | proposal.inlines) & facts.kept:
                facts.ways[call] = Way.SUPPORT
                settled = False
    facts.changed = {
        node for call, way in facts.ways.items() if way is Way.IDIOMATIC for node in proposals[call].rewrites
    }
