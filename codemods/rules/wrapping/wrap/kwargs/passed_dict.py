"""A dict that only constructor calls take as `**kwargs` goes on as that: its keys become those of `fully_shard`.

What `fully_shard` does not take, and the new code asks for, is taken out of it first: `policy = kwargs.pop("policy")`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations

import libcst as cst

from codemods.api import Context, Edit, NotStatic
from codemods.reading.code.enclosing import contains, enclosing
from codemods.reading.wraps.manual import is_constructor

from ..draft import Agreed, Draft, Entry
from .one_dict import says
from .unread import NEEDLESS, removals

_BECOMES = {
    "mixed_precision": "mp_policy",
    "cpu_offload": "offload_policy",
    "sharding_strategy": "reshard_after_forward",
}

_LOOPS = (cst.For, cst.While, cst.BaseComp, cst.Lambda, cst.Try)


class NotPassed(NotStatic):
    """The dict cannot go on: something else needs its entries as they are."""


def pass_dict_on(entries: Mapping[str, Entry], said: Collection[str], draft: Draft) -> None:
    """Write the entries by their new names, and let the rest go. Raises NotPassed where a call needs the dict as it is.

    `said` are those that the new calls have as literals, which they need not. All calls that take the dict have to
    agree: one that does not reads its keys as they are.
    """
    wholes = {value.whole for value in entries.values()}
    is_changed = draft.left & {node for value in entries.values() for node in (*value.displays, *_keys(value))}
    if "**" in draft.common_kwargs or draft.float32_class or len(wholes) != 1 or is_changed:
        raise NotPassed("the dict stays as it is")
    given = [name for name, value in entries.items() if _is_as_given(name, value, draft)]
    taken = [name for name, value in entries.items() if name not in given and _is_asked(value, draft)]
    passed = [name for name in entries if name in given or (name in draft.passed and name not in taken)]
    gone = [name for name in entries if name not in passed and name not in taken]
    if not passed or any(not _is_needless(name, entries[name], said) for name in gone):
        raise NotPassed("the dict stays as it is")
    (whole,) = wholes
    if taken and not _may_be_emptied(draft, whole, [entries[name] for name in taken]):
        raise NotPassed("something else reads what is in the dict")
    for name in passed:
        _rename(name, entries[name], draft)
    _take_out({name: entries[name] for name in taken}, draft)
    _drop([entries[name] for name in gone], draft)
    draft.definitions |= {node for value in entries.values() for node in (*value.displays, *_keys(value))}
    draft.common_kwargs["**"] = whole
    displays = frozenset(node for value in entries.values() for node in value.displays)
    draft.agreed = Agreed(displays, frozenset(passed), frozenset(taken), frozenset(gone))
    made = [(where, where.parent(element)) for value in entries.values() for where, element in _elements(value)]
    draft.display = next(((where, node) for where, node in made if node in displays), None)


def disagreed(drafts: Iterable[Draft]) -> set[cst.CSTNode]:
    """Where dicts are made of whose entries two calls say something else."""
    said = [draft.agreed for draft in drafts if draft.agreed is not None]
    pairs = ((one, other) for one, other in combinations(said, 2) if one != other)
    return {node for one, other in pairs if one.displays & other.displays for node in one.displays | other.displays}


def keep_dict(entries: Mapping[str, Entry], draft: Draft) -> None:
    """The new code reads the entries by the keys that they have."""
    draft.keeps |= {key for value in entries.values() for key in _keys(value)}


def _keys(value: Entry) -> Iterator[cst.CSTNode]:
    return (element.key for _, element in _elements(value))


def _elements(value: Entry) -> Iterator[tuple[Context, cst.DictElement]]:
    """Where an entry is written in a dict display, and not put into the dict later."""
    for where, stored in value.stored:
        element = where.parent(stored)
        if isinstance(element, cst.DictElement):
            yield where, element


def _is_as_given(name: str, value: Entry, draft: Draft) -> bool:
    """Whether `fully_shard` takes what is in the dict, and nothing else that is written needs it."""
    text = draft.common_kwargs.get(_BECOMES.get(name, ""))
    elements = [*_elements(value)]
    if text is None or not value.is_only_given or value.may_lack or len(elements) != 1 or len(value.stored) != 1:
        return False
    where, element = elements[0]
    if where.parent(element) not in value.displays or len(value.displays) != 1:
        return False
    if name == "sharding_strategy":
        return text == "False" and [origin.node for origin in value.values] == [element.value]
    if text == value.text:
        return True
    others = [each for each in draft.before if each != f"{text} = {value.text}"]
    is_read = any(says(draft.file.plain(each), text) for each in _written(draft, others))
    return len(others) == len(draft.before) - 1 and text.isidentifier() and not is_read


def _written(draft: Draft, before: Collection[str]) -> list[str]:
    """All that is written but the arguments that units and root share."""
    selector = draft.selector
    loop = (selector.guard, selector.test, selector.units) if selector is not None else ()
    own = (*draft.unit_kwargs.values(), *draft.root_kwargs.values())
    return [each for each in (*before, *draft.after, *draft.unit_steps, *loop, *own) if each]


def _is_asked(value: Entry, draft: Draft) -> bool:
    """Whether the new code reads an entry."""
    return any(value.text in each for each in (*_written(draft, draft.before), *draft.common_kwargs.values()))


def _is_needless(name: str, value: Entry, said: Collection[str]) -> bool:
    """Whether an entry that nothing asks for can go from where it is written."""
    nothing = all(origin.is_none for origin in value.values)
    is_needless = name in NEEDLESS or name in said or nothing
    elements = [*_elements(value)]
    return (
        value.is_only_given
        and is_needless
        and len(elements) == len(value.stored)
        and all(isinstance(where.parent(element), cst.Dict) for where, element in elements)
    )


def _may_be_emptied(draft: Draft, whole: str, taken: Collection[Entry]) -> bool:
    """Whether the dict is made anew each time for these calls alone, which stand in one block."""
    ctx, scope = draft.file, draft.file.scope(draft.call)
    splats = [argument.value for argument in draft.call.args if argument.star == "**"]
    name = next((each for each in splats if ctx.quote(each) == whole), None)
    displays = {node: where for value in taken for where, element in _elements(value) for node in value.displays}
    if not isinstance(name, cst.Name) or not isinstance(scope, cst.FunctionDef) or not displays:
        return False
    if any(isinstance(node, cst.Param) and node.name.value == name.value for node in ctx.inside(scope)):
        return False  # a caller may go on with it
    for node, where in displays.items():
        home = where.scope(node)
        if not isinstance(home, cst.FunctionDef) or home.decorators:
            return False
    assigned = [node for node in ctx.inside(scope) if isinstance(node, cst.Assign) and name in ctx.uses(node)]
    if len(assigned) != 1:
        return False
    uses = [use for use in ctx.uses(assigned[0]) if use.value == name.value]
    wraps = (call for call in ctx.calls(scope) if call is draft.call or is_constructor(ctx, call))
    calls = sorted(wraps, key=lambda call: ctx.span(call))
    mine = [call for call in calls if any(argument.value in uses for argument in call.args if argument.star == "**")]
    first = mine[0]
    if calls[calls.index(first) : calls.index(first) + len(mine)] != mine:
        return False
    line = enclosing(ctx, first, cst.SimpleStatementLine)
    block = ctx.parent(line) if line is not None else None
    around = [node for call in mine for node in ctx.ancestors(call) if contains(ctx, scope, node)]
    if block is None or not all(contains(ctx, block, call) for call in mine):
        return False
    if any(isinstance(node, _LOOPS) for node in around):
        return False
    given = {argument.value for call in mine for argument in call.args if argument.star == "**"}
    late = ctx.span(first)[0]
    return all(use in given or (ctx.span(use)[0] < late and ctx.scope(use) is scope) for use in uses)


def _rename(name: str, value: Entry, draft: Draft) -> None:
    ((where, element),) = _elements(value)
    becomes = draft.passed.get(name, _BECOMES.get(name, ""))
    if becomes == "**":
        draft.edits.append((where, Edit(where.span(element.key)[0], where.span(element.value)[0], "**")))
        return
    draft.edits.append((where, _key_edit(where, element, becomes)))
    if name in draft.passed:
        return
    if name == "sharding_strategy":
        draft.definitions.add(element.value)
        draft.keeps.discard(element.value)
        draft.edits.append((where, Edit(*where.span(element.value), "False")))
    policy = draft.common_kwargs.pop(becomes)
    draft.before = [text for text in draft.before if text != f"{policy} = {value.text}"]


def _key_edit(where: Context, element: cst.DictElement, key: str) -> Edit:
    quote = where.code(element.key)[0]
    return Edit(*where.span(element.key), f"{quote}{key}{quote}")


def _take_out(taken: Mapping[str, Entry], draft: Draft) -> None:
    """`name = kwargs.pop("name")` for what the new code reads, in the order of what it is read for."""
    above: list[str] = []
    for name, value in taken.items():
        default = ", None" if value.may_lack else ""
        key = draft.passed.get(name, name)
        if name in draft.passed:
            draft.edits += [(where, _key_edit(where, element, key)) for where, element in _elements(value)]
        own = f'{value.whole}.pop("{key}"{default})'
        target = next((each.partition(" = ")[0] for each in draft.before if each.endswith(f" = {value.text}")), "")
        if not target.isidentifier():
            target = draft.fresh(name, f"fsdp_{name}")
            draft.quoted.add(target)
        line = f"{target} = {own}"
        draft.before = [each for each in draft.before if each != f"{target} = {value.text}"]
        _replace(draft, value.text, target)
        above.append(line)
    draft.before = [*above, *draft.before]


def _replace(draft: Draft, text: str, name: str) -> None:
    draft.before = [each.replace(text, name) for each in draft.before]
    draft.after = [each.replace(text, name) for each in draft.after]
    draft.unit_steps = [each.replace(text, name) for each in draft.unit_steps]
    for kwargs in (draft.common_kwargs, draft.unit_kwargs, draft.root_kwargs):
        kwargs.update({key: value.replace(text, name) for key, value in kwargs.items()})


def _drop(gone: Collection[Entry], draft: Draft) -> None:
    """Take entries out of the displays that they are written in."""
    found: dict[cst.Dict, list[cst.DictElement]] = {}
    files: dict[cst.Dict, Context] = {}
    for value in gone:
        for where, element in _elements(value):
            display = cst.ensure_type(where.parent(element), cst.Dict)
            found.setdefault(display, []).append(element)
            files[display] = where
            draft.keeps -= {origin.node for origin in where.origins(element.value)}
    for display, elements in found.items():
        edits = removals(files[display], display, elements)
        if not edits:
            raise NotPassed("an entry shares its line with a comment")
        draft.definitions.add(display)
        draft.edits += [(files[display], edit) for edit in edits]
