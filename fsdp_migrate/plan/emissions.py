"""How each wrap site of a program is rewritten: decided together, because they share their arguments.

A policy or a `MixedPrecision` that two calls use can be rewritten where it is made only if both are written
idiomatically; one that goes through the support module needs it as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import libcst as cst

from codemods.api import Emission
from codemods.rules.wrapping.wrap import Proposal, propose
from codemods.rules.wrapping.wrap.kwargs.passed_dict import disagreed
from codemods.rules.wrapping.wrap.places.in_place import contradicted

from ..fsdp1.sites import WrapSite

Proposals = Mapping[cst.Call, Proposal]
Emissions = Mapping[cst.Call, Emission]

_WEAKEST_FIRST = (Emission.SKIP, Emission.SUPPORT, Emission.NATIVE)


def proposals(sites: Iterable[WrapSite], kept: Collection[Path]) -> Proposals:
    """Each wrap site by itself, its draft made; nothing moves in the files that are kept.

    A policy that one site needs as a function of a module becomes one for all; what one needs as it is, others read.
    """
    sites, asked, left = list(sites), frozenset[cst.CSTNode](), frozenset[cst.CSTNode]()
    while True:
        proposed = {site.call: propose(site.file, site.call, kept, asked, left) for site in sites}
        ways = _together(sites, {call: proposal.emission for call, proposal in proposed.items()})
        torn = changed(proposed, ways) & unchanged(proposed, ways)
        drafts = [each.draft for each in proposed.values() if each.draft is not None]
        torn |= disagreed(drafts) | contradicted(drafts)
        if torn - left:
            left |= torn
            continue
        found = predicates(proposed)
        if not any((each.rewrites - each.predicates) & found for each in proposed.values()) or found <= asked:
            return proposed
        asked |= found


def predicates(proposed: Proposals) -> frozenset[cst.CSTNode]:
    """Where the policies are made that become functions of a module."""
    return frozenset(node for proposal in proposed.values() for node in proposal.predicates)


def decide(sites: Collection[WrapSite], proposed: Proposals) -> Emissions:
    """What stays for one wrap site stays for all, and what takes it away goes with it."""
    found = _together(sites, {call: proposal.emission for call, proposal in proposed.items()})
    while True:
        needed = unchanged(proposed, found)
        refused = {
            call
            for call, proposal in proposed.items()
            if found[call] is Emission.NATIVE
            and (
                (proposal.rewrites | proposal.inlines) & needed
                or any(found.get(part) is Emission.SUPPORT for part in proposal.parts)
            )
        }
        if not refused:
            return found
        found = _together(sites, {**found, **dict.fromkeys(refused, Emission.SUPPORT)})


def unchanged(proposed: Proposals, emissions: Emissions) -> frozenset[cst.CSTNode]:
    """Where the values are made that are needed as they were, by `shard_model` or at run time."""
    return frozenset(
        node
        for call, way in emissions.items()
        if way is not Emission.SKIP
        for node in (proposed[call].reads if way is Emission.SUPPORT else proposed[call].keeps)
    )


def changed(proposed: Proposals, emissions: Emissions) -> frozenset[cst.CSTNode]:
    """Where the values are made that change with the `fully_shard` calls they reach."""
    return frozenset(
        node for call, way in emissions.items() if way is Emission.NATIVE for node in proposed[call].rewrites
    )


def _together(sites: Iterable[WrapSite], emissions: Emissions) -> Emissions:
    """An `enable_wrap` goes when every `wrap` inside of it becomes `fully_shard`, and a partial of a partial becomes a
    function of its own; else all of them go one way.
    """
    found = dict(emissions)
    inside: dict[cst.Call, list[cst.Call]] = {}
    for site in sites:
        if site.context is not None:
            inside.setdefault(site.context, []).append(site.call)
    for context, calls in inside.items():
        ways = {found[call] for call in calls}
        found.update(dict.fromkeys([context, *calls], next(way for way in _WEAKEST_FIRST if way in ways)))
    return found
