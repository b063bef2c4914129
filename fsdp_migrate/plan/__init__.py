"""The decisions about a program, made once and together: which files stay, and what becomes of each wrap site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import libcst as cst

from codemods.api import Emission, Fix
from codemods.plan import Plan, WrapPlan
from codemods.reading.models.class_layout import sharded_classes
from codemods.reading.state_dicts.settings import Settings
from codemods.reading.state_dicts.usual_setting import usual_settings
from codemods.rules.checkpoints import state_dict
from codemods.rules.wrapping.wrap import Proposal
from codemods.rules.wrapping.wrap.places.local_function import put_in_functions
from codemods.rules.wrapping.wrap.places.shared import share
from codemods.tables.state_dicts import SETTINGS

from ..fsdp1.program_model import ProgramModel
from ..fsdp1.sites import WrapSite
from ..project.imports import connected
from . import emissions, kept
from .context import PlannedModel


def make_plan(model: ProgramModel, graph: kept.Graph) -> Plan:
    """Decide about a program, of which `graph` tells what each file imports."""
    switches = kept.switches(model)
    skipped = kept.skipped(model, switches, graph)
    sites = [site for site in model.wrapping.sites if site.file.path not in skipped]
    proposed = emissions.proposals(sites, model.wrapping.foreign | skipped.keys())
    decided = emissions.decide(sites, proposed)
    natives = [each.draft for call, each in proposed.items() if decided[call] is Emission.NATIVE and each.draft]
    share(natives)
    put_in_functions(natives)
    plan = Plan(
        wraps={call: _wrap_plan(proposed[call], decided[call]) for call in proposed},
        skipped=skipped,
        foreign=model.wrapping.foreign,
        switches=switches,
        skipped_wraps=frozenset(model.wrapping.all_sites.keys() - proposed.keys()),
        changed=emissions.changed(proposed, decided),
        predicates=emissions.predicates(proposed),
        unchanged=emissions.unchanged(proposed, decided),
        sharded=frozenset(_sharded(model, [site for site in sites if decided[site.call] is not Emission.SKIP])),
        near=_near(model, graph),
    )
    plan = replace(plan, usual_settings=_usual_settings(model, plan))
    found, files = _state_dicts(model, plan)
    keeping = frozenset(files[call] for call, fix in found.items() if fix is None)
    return replace(plan, state_dicts=found, keeping=keeping)


def _near(model: ProgramModel, graph: kept.Graph) -> frozenset[Path]:
    """What imports a file that wraps, and what any of those import; of a test, what it loads and what names FSDP1."""
    wrapping = {site.file.path for site in model.wrapping.all_sites.values()}
    loaded = {path: loads for path in wrapping if (loads := model.loading.loaded_by_test(path)) is not None}
    wrapping -= loaded.keys()
    if not graph:
        return frozenset(model.program.texts)
    if any(model.loading.together(path) is model.program.texts for path in wrapping):
        # Modules are imported by names that are made up: all but the other scripts.
        return frozenset().union(*loaded.values(), *map(model.loading.running_with, wrapping))
    naming = [file.path for file in model.wrapping.naming if any(file.references())] if loaded else []
    return frozenset(connected(graph, wrapping)).union(naming, *loaded.values())


def _wrap_plan(proposal: Proposal, emission: Emission) -> WrapPlan:
    draft = proposal.draft if emission is Emission.NATIVE else None
    shared = "it shares a value with a call that only run time decides" if emission is Emission.SUPPORT else ""
    reason = "" if emission is Emission.NATIVE else proposal.reason or shared
    return WrapPlan(emission, draft, reason, proposal.relocations)


def _sharded(model: ProgramModel, sites: Iterable[WrapSite]) -> set[cst.ClassDef]:
    if not model.program.mentions("ABC", "Generic"):
        return set()
    return {owner for site in sites for _, owner in sharded_classes(site.file, site.call)}


def _usual_settings(model: ProgramModel, plan: Plan) -> Mapping[Path, Settings]:
    """None where models stay FSDP1's, whose kind is set as it was."""
    own = model.wrapping.own
    return usual_settings(own[0]) if own and not plan.skipped_wraps else {}


def _state_dicts(model: ProgramModel, plan: Plan) -> tuple[Mapping[cst.Call, Fix | None], Mapping[cst.Call, Path]]:
    """What becomes of each state-dict setting where it stands, under a plan that says it can, None where it cannot; and
    the file of each."""
    planned = PlannedModel(model, plan)
    files = [planned.of(each) for each in model.wrapping.own if not plan.is_kept(each.path)]
    calls = [(file, call) for file in files for call in file.nodes(cst.Call) if state_dict.is_setting(call, file)]
    found = {call: state_dict.in_place(call, file) for file, call in calls}
    blocks = {call for file, call in calls if file.fsdp1(call.func) not in SETTINGS}
    paths = {call: file.path for file, call in calls}
    kept = {paths[call] for call, fix in found.items() if fix is None and call not in blocks}
    for file, call in calls:  # one that is kept can put back what others set
        if call not in blocks and any(path == file.path or file.wrapping.runs_with(file.path, path) for path in kept):
            found[call] = None
    return found, paths
