"""A dict that only constructor calls take as `**kwargs` goes on as that: its keys become those of `fully_shard`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst as cst

from codemods.api import Edit

from .draft import Draft, Entry
from .one_dict import says
from .unread import can_drop

_BECOMES = {
    "mixed_precision": "mp_policy",
    "cpu_offload": "offload_policy",
    "sharding_strategy": "reshard_after_forward",
}


def pass_dict_on(entries: Mapping[str, Entry], said: Collection[str], draft: Draft) -> Collection[str]:
    """The entries that stay in the dict by their new names; none where a call needs more than the dict says.

    `said` are those that the new calls have as literals, which they need not.
    All calls that take the dict have to agree: one that does not reads its keys as they are.
    """
    elements = {name: _element(value, draft) for name, value in entries.items()}
    passed = _passed(entries, elements, draft)
    rest = {name: value for name, value in entries.items() if name not in passed}
    if not passed or not can_drop(rest, said, draft):
        draft.keeps |= {element.key for element in elements.values() if element is not None}
        return ()
    for name in passed:
        element, value = elements[name], entries[name]
        assert element is not None
        draft.definitions |= {element.key, *value.displays}
        quote = draft.file.code(element.key)[0]
        draft.edits.append((draft.file, Edit(*draft.file.span(element.key), f"{quote}{_BECOMES[name]}{quote}")))
        if name == "sharding_strategy":
            draft.definitions.add(element.value)
            draft.keeps.discard(element.value)
            draft.edits.append((draft.file, Edit(*draft.file.span(element.value), "False")))
        policy = draft.common_kwargs.pop(_BECOMES[name])
        draft.before = [text for text in draft.before if text != f"{policy} = {value.text}"]
    draft.common_kwargs["**"] = entries[passed[0]].whole
    return passed


def _passed(entries: Mapping[str, Entry], elements: Mapping[str, cst.DictElement | None], draft: Draft) -> list[str]:
    named, wholes = draft.common_kwargs, {value.whole for value in entries.values()}
    if "**" in named or draft.unit_kwargs or draft.root_kwargs or draft.float32_class or len(wholes) != 1:
        return []
    found = []
    for name, value in entries.items():
        element = elements[name]
        is_nothing = name not in _BECOMES or _BECOMES[name] not in named
        if element is None or not value.is_only_given or value.may_lack or draft.left & {element.key, *value.displays}:
            return []
        if not is_nothing and not _is_as_given(name, value, element, draft):
            return []
        found += [] if is_nothing else [name]
    return found


def _is_as_given(name: str, value: Entry, element: cst.DictElement, draft: Draft) -> bool:
    """Whether `fully_shard` takes what is in the dict, and nothing else that is written needs it."""
    text = draft.common_kwargs[_BECOMES[name]]
    if name == "sharding_strategy":
        return text == "False" and [origin.node for origin in value.values] == [element.value]
    if text == value.text:
        return True
    others = [each for each in draft.before if each != f"{text} = {value.text}"]
    selector = draft.selector
    loop = (selector.guard, selector.test, selector.units) if selector is not None else ()
    read = [*others, *draft.after, *draft.unit_steps, *loop]
    is_read = any(says(draft.file.plain(each), text) for each in read if each)
    return len(others) == len(draft.before) - 1 and text.isidentifier() and not is_read


def _element(value: Entry, draft: Draft) -> cst.DictElement | None:
    """Where the one value stands that the dict has for a key, if that is in this file."""
    if len(value.stored) != 1 or value.stored[0][0].path != draft.file.path or len(value.displays) != 1:
        return None
    element = draft.file.parent(value.stored[0][1])
    is_in = isinstance(element, cst.DictElement) and draft.file.parent(element) in value.displays
    return element if isinstance(element, cst.DictElement) and is_in else None
