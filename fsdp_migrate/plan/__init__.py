"""The decisions about a program, made once and together: which files stay, and what becomes of each wrap site."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import libcst as cst

from codemods.api import Emission
from codemods.plan import Plan, WrapPlan
from codemods.reading.class_layout import sharded_classes
from codemods.rules.checkpoints import state_dict
from codemods.rules.wrapping.wrap import Proposal

from ..fsdp1.program_model import PlannedModel, ProgramModel
from ..fsdp1.sites import WrapSite
from . import emissions, kept


def make_plan(model: ProgramModel, graph: kept.Graph) -> Plan:
    """Decide about a program, of which `graph` tells what each file imports."""
    switches = kept.switches(model)
    skipped = kept.skipped(model, switches, graph)
    sites = [site for site in model.wrapping.sites if site.file.path not in skipped]
    proposed = emissions.proposals(sites, model.wrapping.foreign | skipped.keys())
    decided = emissions.decide(sites, proposed)
    plan = Plan(
        wraps={call: _wrap_plan(proposed[call], decided[call]) for call in proposed},
        skipped=skipped,
        foreign=model.wrapping.foreign,
        switches=switches,
        skipped_wraps=frozenset(model.wrapping.all_sites.keys() - proposed.keys()),
        changed=emissions.changed(proposed, decided),
        unchanged=emissions.unchanged(proposed, decided),
        sharded=frozenset(_sharded(model, [site for site in sites if decided[site.call] is not Emission.SKIP])),
    )
    return replace(plan, state_dicts_at_run_time=_has_open_state_dicts(model, plan))


def _wrap_plan(proposal: Proposal, emission: Emission) -> WrapPlan:
    draft = proposal.draft if emission is Emission.NATIVE else None
    reason = proposal.reason or "it shares a value with a call that only run time decides"
    return WrapPlan(emission, draft, "" if emission is Emission.NATIVE else reason, proposal.relocations)


def _sharded(model: ProgramModel, sites: Iterable[WrapSite]) -> set[cst.ClassDef]:
    if not model.program.mentions("ABC", "Generic"):
        return set()
    return {owner for site in sites for _, owner in sharded_classes(site.file, site.call)}


def _has_open_state_dicts(model: ProgramModel, plan: Plan) -> bool:
    """Whether some setting of a state-dict type cannot be rewritten where it stands, under a plan that says it can."""
    planned = PlannedModel(model, plan)
    files = [planned.of(file) for file in model.wrapping.naming if not plan.is_kept(file.path)]
    return any(state_dict.is_settled_at_run_time(call, file) for file in files for call in file.nodes(cst.Call))
