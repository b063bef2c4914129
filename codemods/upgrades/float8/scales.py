"""Where the scales of a model's weights are computed: behind each step of its optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Fix
from codemods.reading.code.chains import Frame, can_follow, chains
from codemods.reading.code.places import place
from codemods.reading.edits.layout import lines_below
from codemods.reading.optimizers.steps import Step, Trained, optimizer_steps
from codemods.reading.own_fsdp2.shardings import Sharding

from .recipes import FLOAT8

_PRECOMPUTE = "precompute_float8_dynamic_scale_for_fsdp"
_LOADS = ("load_state_dict", "set_model_state_dict", "set_state_dict")


@dataclass(frozen=True)
class Scales:
    """The lines that compute them, by file; or why there is no place for them, with a cure."""

    fixes: Sequence[tuple[Context, Fix]] = ()
    why: str = ""
    hint: str = ""


def scales(sharding: Sharding) -> Scales:
    """Below each step, where the model is at hand there; else in a hook of the optimizer, where that is made."""
    model = _trained(sharding)
    trained = [step for step in optimizer_steps(sharding.file) if step.trains(model)]
    # A function of a library of the project that this program does not call steps for others.
    steps = [step for step in trained if step.name_of(model) is not None or not step.is_never_made]
    by_hand = f"call {_PRECOMPUTE}(model) behind the step, and convert the model by hand"
    if not steps:
        why = f"no step of an optimizer is seen for `{sharding.known_as}`, behind which scales are computed"
        return Scales(why=why, hint=by_hand)
    lines = [_below_step(step, model) for step in steps]
    if None in lines:
        lines = [hook for step in steps for hook in _hooks(step, model)]
        lost = next((step for step in steps if step.statement is None or step.name_of(model) is None), steps[0])
        if None in lines:
            where = f"{lost.file.path.name}:{lost.file.position(lost.call)[0]}"
            if lost.name_of(model) is not None:
                return Scales(why=f"the step ({where}) is a part of a longer line", hint="give it a line of its own")
            return Scales(why=f"where it steps ({where}), nothing stands for `{sharding.known_as}`", hint=by_hand)
    return Scales([*filter(None, lines), *_below_loads(model, steps)])


def _trained(sharding: Sharding) -> Trained:
    ctx = sharding.file
    made = {id(origin.node) for origin in ctx.origins(sharding.root.args[0].value) if origin.node is not None}
    names = (sharding.known_as, sharding.model)
    return Trained(frozenset({*made, id(sharding.root)}), ctx, ctx.scope(sharding.root), names)


def _below_step(step: Step, model: Trained) -> tuple[Context, Fix] | None:
    name = step.name_of(model)
    return _computed(step.file, step.statement, name) if step.statement is not None and name is not None else None


def _computed(file: Context, statement: cst.CSTNode, model: str, line: str = "{}") -> tuple[Context, Fix]:
    library = file.named(FLOAT8, statement)
    text = line.format(f"{library.local}.{_PRECOMPUTE}({model})")
    return file, Fix([lines_below(file, statement, [text])], imports=[library])


def _hooks(step: Step, model: Trained) -> Iterator[tuple[Context, Fix] | None]:
    """Below each statement that makes its optimizer; None for what is not such a statement."""
    if not step.made:
        yield None
    for made in step.made:
        frame, holder = Frame(made.file, made.call), made.file.parent(made.call)
        name = made.name_of(model)
        target = place(holder.targets[0].target) if isinstance(holder, cst.Assign) else None
        if frame.statement is None or name is None or target is None:
            yield None
        else:
            yield _computed(made.file, frame.statement, name, f"{target}.register_step_post_hook(lambda *_: {{}})")


def _below_loads(model: Trained, steps: Sequence[Step]) -> Iterator[tuple[Context, Fix]]:
    """Below what loads the model where it may have trained: the weights' scales are those from before."""
    past = [way for step in steps for way in chains(step.file, step.call)]
    files = {file.path: file for name in _LOADS for file in model.file.files(name)}
    for file in files.values():
        for call in file.nodes(cst.Call):
            loaded = _loaded(call)
            name = model.name_in(file, loaded) if loaded is not None else None
            statement = Frame(file, call).statement
            if name is None or statement is None:
                continue
            if any(can_follow(way, other) for way in chains(file, call) for other in past):
                yield _computed(file, statement, name)


def _loaded(call: cst.Call) -> cst.BaseExpression | None:
    """What a call loads weights into."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == _LOADS[0]:
        return call.func.value
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return call.args[0].value if isinstance(name, cst.Name) and name.value in _LOADS[1:] and call.args else None
