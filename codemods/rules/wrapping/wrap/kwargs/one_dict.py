"""Arguments that units and root share, in one dict where they would be spelled out for both."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from codemods.reading.code.enclosing import names_around

from ..draft import Draft
from ..emit import call_lines, in_brackets


def gather_arguments(draft: Draft) -> None:
    """Put two or more arguments of every `fully_shard` into a dict, where that is not longer; of more, a line for each
    that need not be repeated.

    What the new code has named for them alone goes into the dict as it is, where that leaves it on one line.
    """
    named = {name: value for name, value in draft.common_kwargs.items() if name != "**"}
    only_common = not (draft.unit_kwargs or draft.root_kwargs or draft.float32_class)
    if draft.selector is None or len(named) < 2 or not only_common or not draft.is_alone:
        return
    held = draft.common_kwargs.get("**")
    if held is not None and draft.takes_more:
        _put_into(held, named, draft)
    if held is not None and (draft.takes_more or not held.isidentifier()):
        return
    made = {name: index for name, value in named.items() if (index := _made_for(value, draft)) is not None}
    made = {name: index for name, index in made.items() if "\n" not in draft.before[index]}
    own = dict(zip(made, (draft.before[index].partition(" = ")[2] for index in made.values()), strict=True))
    target = held or draft.fresh("fsdp_kwargs", "shard_kwargs")
    may_be_longer = len(named) + (held is not None) - 2
    first = [f"**{held}"] if held is not None else []
    above: list[str] = []
    text = draft.displayed(target, [*first, *(f'"{name}": {own.get(name, value)}' for name, value in named.items())])
    if text is None or _lines(text) + len(first) > call_lines(draft) + len(made) + may_be_longer:
        made, entries = {}, [*first]
        for name, value in named.items():
            is_name = draft.file.plain(value).isidentifier()
            entries.append(f'"{name}": {value if is_name else draft.fresh(name, f"fsdp_{name}")}')
            above += [] if is_name else [f"{entries[-1].partition(': ')[2]} = {value}"]
        text = draft.displayed(target, entries)
        if text is None or not all(map(draft.fits, above)):
            return
        if _lines(text) + len(first) + len(above) > call_lines(draft) + may_be_longer:
            return
    draft.before = [each for index, each in enumerate(draft.before) if index not in made.values()]
    draft.before += [*above, text]
    draft.common_kwargs = {"**": target}


def _put_into(held: str, named: Mapping[str, str], draft: Draft) -> None:
    """What is computed for this call becomes an entry of the dict that it has; a variable of the user's stays one."""
    for name, value in named.items():
        index = _made_for(value, draft)
        if index is None and draft.file.plain(value).isidentifier():
            continue
        text = value if index is None else draft.before[index].removeprefix(f"{value} = ")
        entry = in_brackets(f'{held}["{name}"]', text, draft)
        if index is None:
            draft.before.append(entry)
        else:
            draft.before[index] = entry
        del draft.common_kwargs[name]
    about = [text for text in draft.before if says(draft.file.plain(text), held)]
    sent = [text for text in draft.before if text not in about and _broadcasts(draft.file.plain(text))]
    draft.before = [*(text for text in draft.before if text not in about and text not in sent), *about, *sent]


def _lines(text: str) -> int:
    """Those of the dict, and of the two calls that it is spread into."""
    return len(text.split("\n")) + 2


def _made_for(name: str, draft: Draft) -> int | None:
    """The statement that the new code has for a name alone: nothing else that is written reads it."""
    if not name.isidentifier() or name in names_around(draft.file, draft.call):
        return None
    made = [index for index, text in enumerate(draft.before) if text.startswith(f"{name} = ")]
    if len(made) != 1 or len(ast.parse(draft.file.plain(draft.before[made[0]])).body) != 1:
        return None
    others = [text for index, text in enumerate(draft.before) if index != made[0]]
    chosen = draft.selector
    loop = (chosen.guard, chosen.test, chosen.units) if chosen is not None else ()
    read = [*others, *draft.after, *draft.unit_steps, *loop, draft.common_kwargs.get("**", "")]
    return None if any(says(draft.file.plain(text), name) for text in read if text) else made[0]


def _broadcasts(text: str) -> bool:
    """Whether a statement is the broadcast of the model, which stands behind all that makes the arguments."""
    return any(isinstance(node, ast.Attribute) and node.attr == "broadcast" for node in ast.walk(ast.parse(text)))


def says(text: str, name: str) -> bool:
    """Whether a template holds a name."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return True
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))
