"""`device_id`, and where the model is without it: FSDP2 moves each unit to the current device.

Nobody checks that the device has been set: without it all ranks of a node land on the first one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import indent

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import bound_once
from codemods.reading.edits.negation import negated
from codemods.reading.processes.accelerators import names_another
from codemods.reading.processes.current_device import WORDS, device_calls, is_set_elsewhere

from ..draft import Draft, Entry
from ..mesh.ranks import is_any_accelerator

_RANK = re.compile(r"(?:\w+\.)*(?:(?:local_|global_)?rank|gpu|gpu_id|device_id)", re.IGNORECASE)


def translate_device(value: cst.BaseExpression, draft: Draft) -> None:
    """`device_id`: FSDP2 moves each unit to the current device, so that device must have been set."""
    ctx = draft.file
    if isinstance(value, cst.IfExp) and (found := _gpu_side(value, ctx)) is not None:
        _set_under(*found, draft)
        draft.device = ctx.quote(value)
        return
    _set(ctx.origins(value), ctx.quote(value), isinstance(value, (cst.Name, cst.Attribute)), draft)


def _gpu_side(value: cst.IfExp, ctx: Context) -> tuple[cst.BaseExpression, str] | None:
    """Of a choice between a GPU and none, `rank if torch.cuda.is_available() else None`: the GPU, and when it is."""
    yes, no = (all(o.is_none or is_cpu(o) for o in ctx.origins(side)) for side in (value.body, value.orelse))
    if yes == no:
        return None
    return (value.body, ctx.quote(value.test)) if no else (value.orelse, negated(value.test, ctx))


def _set_under(device: cst.BaseExpression, test: str, draft: Draft) -> None:
    """Set a device where there is one; what kind it is is not known of a run without."""
    lines, known = len(draft.before), (draft.device_type, draft.any_device)
    is_variable = isinstance(device, (cst.Name, cst.Attribute))
    _set(draft.file.origins(device), draft.file.quote(device), is_variable, draft, is_there=True)
    draft.device_type, draft.any_device = known
    draft.before[lines:] = [f"if {test}:\n" + indent(text, "    ") for text in draft.before[lines:]]


def _set(origins: Sequence[Origin], text: str, is_variable: bool, draft: Draft, *, is_there: bool = False) -> None:
    """Set the device; `is_there` says that it is asked around whether there is a GPU."""
    if all(origin.is_none for origin in origins):
        return
    if all(is_cpu(origin) for origin in origins):
        draft.device_type = "cpu"
        return
    draft.device = text
    if all(is_cuda(origin) for origin in origins):
        _found(origins, draft)
    elif all(map(_is_device, origins)) and (is_variable or any(map(_may_be_cpu, origins))):
        draft.any_device = text
    if all(_is_current(origin) or _is_mps(origin) for origin in origins):
        return
    if _device_is_set(draft) and not _is_another(origins, draft):
        return
    torch = draft.imported("torch")
    if is_any_accelerator(draft):
        draft.before.append(f"{torch}.get_device_module({draft.any_device}).set_device({text})")
    elif is_there:
        draft.before.append(f"{torch}.cuda.set_device({text})")
    elif is_variable and any(origin.is_none for origin in origins):
        draft.before.append(f"if {text} is not None:\n    {torch}.cuda.set_device({text})")
    elif any(_may_be_cpu(origin) or _is_mps(origin) for origin in origins):
        draft.before.append(f"if {torch}.cuda.is_available():\n    {torch}.cuda.set_device({text})")
    else:
        draft.before.append(f"{torch}.cuda.set_device({text})")


def _found(devices: Sequence[Origin], draft: Draft) -> None:
    """The devices are of CUDA; the index of one is that of any accelerator that the program runs on."""
    if all(map(_names_cuda, devices)) or not names_another(draft.file):
        draft.device_type = "cuda"


def device_of_entry(value: Entry, draft: Draft) -> None:
    """`device_id` that comes out of a dict; where that may have none, what kind it is is not known of a run without."""
    statements, known = len(draft.before), (draft.device_type, draft.any_device)
    _set(value.values, value.text, False, draft)
    may_be_none = value.may_lack or any(origin.is_none for origin in value.values)
    if may_be_none and len(draft.before) > statements:
        del draft.before[statements:]
        draft.device_type, draft.any_device = known
        draft.device = draft.held(value.text, "device_id", "fsdp_device_id")
        line = f"{draft.imported('torch')}.cuda.set_device({draft.device})"
        draft.before.append(f"if {draft.device} is not None:\n    {line}")


def infer_device(draft: Draft) -> None:
    """Without `device_id`, FSDP1 computed where the parameters were: `model.to(rank)` said which device is meant."""
    for call in _moves(draft):
        assert isinstance(call.func, cst.Attribute)
        if call.func.attr.value == "cuda":
            draft.device_type = "cuda"
        elif _is_gpu(draft.file, call.args[0].value):
            _found(draft.file.origins(call.args[0].value), draft)
        else:
            continue
        _set_device(call, draft)


def is_on_gpu(draft: Draft) -> bool:
    """Whether the model is seen to be moved to a GPU as a whole before it is wrapped."""
    ctx, device = draft.file, draft.file.plain(draft.device)
    return any(
        not call.args or ctx.code(call.args[0].value) == device or _is_gpu(ctx, call.args[0].value)
        for call in _moves(draft)
    )


def is_there(draft: Draft) -> bool:
    """Whether the line that gives the model its name moves it to this device: `model = Net().to(rank)`."""
    ctx = draft.file
    made = bound_once(ctx, draft.module)
    moves = [*(_spine(made)[1] if made is not None else ()), *_moves(draft)]
    places = [call.args[0].value for call in moves if call.args]
    is_same = all(ctx.code(place) == ctx.plain(draft.device) for place in places) and len(places) == len(moves)
    return made is not None and bool(_spine(made)[1]) and is_same and ctx.same_meaning(places[0], draft.call)


def _moves(draft: Draft) -> Iterator[cst.Call]:
    """`.to(device)` and `.cuda()` of the model, above the call or in its argument."""
    ctx, end = draft.file, draft.file.span(draft.call)[1]
    name, found = _spine(draft.module)
    yield from found
    for statement in ctx.nodes(cst.SimpleStatementLine):
        if ctx.scope(statement) is not ctx.scope(draft.call) or ctx.span(statement)[1] > end:
            continue
        for small in statement.body:
            if isinstance(small, cst.Expr) and _spine(small.value)[0] == name:
                yield from _spine(small.value)[1]
            if isinstance(small, cst.Assign) and ctx.code(small.targets[0].target) == name:
                yield from _spine(small.value)[1]


def _spine(node: cst.BaseExpression) -> tuple[str, list[cst.Call]]:
    """The name at the start of `net.to(rank).train()`, and the calls that move it."""
    moves = []
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if node.func.attr.value == "cuda" or (node.func.attr.value == "to" and node.args):
            moves.append(node)
        node = node.func.value
    return (node.value if isinstance(node, cst.Name) else ""), moves


def _is_gpu(ctx: Context, value: cst.BaseExpression) -> bool:
    """Whether a device is seen to be a GPU; a rank that is passed in is a number, which means one."""
    named_so = _RANK.fullmatch(ctx.code(value)) is not None
    return all(is_cuda(origin) or (named_so and origin.node is None) for origin in ctx.origins(value))


def _set_device(call: cst.Call, draft: Draft) -> None:
    """Say before sharding which device the call has moved the model to, where nothing else does."""
    ctx = draft.file
    device = call.args[0].value if call.args and call.args[0].keyword is None else None
    if device is None or _device_is_set(draft) or any(_is_current(origin) for origin in ctx.origins(device)):
        return
    module = "get_device_module()" if is_any_accelerator(draft) else "cuda"
    line = f"{draft.imported('torch')}.{module}.set_device({ctx.quote(device)})"
    if ctx.plain(line) not in map(ctx.plain, draft.before):
        draft.before.append(line)


def _device_is_set(draft: Draft) -> bool:
    """Whether the program sets the device: above the call in its own function, or in another one."""
    ctx, here = draft.file, draft.file.span(draft.call)[0]
    if is_set_elsewhere(ctx):
        return True
    own = ctx.calls(ctx.scope(draft.call))
    return any(node not in own or ctx.span(node)[0] < here for node in device_calls(ctx))


def _is_another(origins: Sequence[Origin], draft: Draft) -> bool:
    """`device_id=gpus[rank]`, in a program that only sets `rank`: FSDP1 went to the device that it was given."""
    if not any(map(_is_picked, origins)):
        return False
    ctx = draft.file
    files = {ctx.path: ctx} | {other.path: other for word in WORDS for other in ctx.files(word)}
    given = [(file, call.args[0].value) for file in files.values() for call in device_calls(file) if call.args]
    return not any(
        _is_picked(Origin(file, device)) or any(map(_is_picked, file.origins(device))) for file, device in given
    )


def _is_picked(origin: Origin) -> bool:
    """Whether an item of a list is in it: `f"cuda:{gpus[rank]}"`; those of `os.environ` have names."""
    items = (
        (n for n in origin.file.inside(origin.node) if isinstance(n, cst.Subscript)) if origin.node is not None else ()
    )
    keys = (item.slice[0].slice for item in items if len(item.slice) == 1)
    return any(isinstance(key, cst.Index) and not isinstance(key.value, cst.SimpleString) for key in keys)


def _is_current(origin: Origin) -> bool:
    """`torch.cuda.current_device()`, or a CUDA device without an index."""
    node = origin.node
    if isinstance(node, cst.Call) and (origin.file.dotted(node.func) or "").endswith(".current_device"):
        return True
    return _device_name(origin) == "cuda"


def is_cuda(origin: Origin) -> bool:
    """Whether it is seen to be a CUDA device; an index of one is a call of `int` or of `get_rank`, or a number."""
    node = origin.node
    if isinstance(node, cst.Integer) or _is_current(origin) or _device_name(origin).startswith("cuda"):
        return True
    if not isinstance(node, cst.Call):
        return False
    called = origin.file.dotted(node.func) or origin.file.code(node.func)
    return called == "int" or called.endswith((".get_rank", ".get_node_local_rank"))


def _names_cuda(origin: Origin) -> bool:
    """Whether it is one of CUDA by its name: no index of a device, nor another accelerator's current one."""
    node = origin.node
    if isinstance(node, cst.Call) and (origin.file.dotted(node.func) or "").startswith("torch.cuda."):
        return True
    is_index = isinstance(node, cst.Call) and bool(node.args) and isinstance(node.args[0].value, cst.Integer)
    return _device_name(origin).startswith("cuda") and not is_index


def _is_device(origin: Origin) -> bool:
    return isinstance(origin.node, cst.Call) and origin.file.dotted(origin.node.func) == "torch.device"


def is_cpu(origin: Origin) -> bool:
    return _device_name(origin) == "cpu"


def _is_mps(origin: Origin) -> bool:
    """Apple's, of which there is one, that need not be set."""
    return _device_name(origin).partition(":")[0] == "mps"


def _device_name(origin: Origin) -> str:
    """`cuda` for `torch.device("cuda")`, `cuda:` for any device with an index, `cpu`; empty for what is not seen."""
    node, index = origin.node, ""
    if isinstance(node, cst.Call) and origin.file.dotted(node.func) == "torch.device" and node.args:
        index = ":" if len(node.args) > 1 else ""
        node = node.args[0].value
    if isinstance(node, cst.SimpleString):
        return str(node.raw_value) + index
    if isinstance(node, cst.FormattedString) and node.parts and isinstance(node.parts[0], cst.FormattedStringText):
        return node.parts[0].value
    return "cuda:" if index == "" and isinstance(node, cst.Integer) and node is not origin.node else ""


def _may_be_cpu(origin: Origin) -> bool:
    """Whether the CPU is named anywhere in it: `torch.device("cuda" if … else "cpu")`."""
    return origin.node is not None and bool(re.search(r"[\"']cpu[\"']", origin.file.code(origin.node)))
