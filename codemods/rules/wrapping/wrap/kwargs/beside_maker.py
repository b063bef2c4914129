"""What several calls do with the `**kwargs` that one function of the program makes goes into a function beside it.

`shard(model, **kwargs)` stands where `FSDP(model, **kwargs)` stood, in the other files too.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import
from codemods.reading.code.enclosing import enclosing

from ..argument_comments import kept_comments
from ..draft import Draft
from ..emit import body_of_root
from .one_dict import says

_LINES = 5
"""Fewer are read faster than behind a name."""
_DICT, _MODEL = "fsdp_kwargs", "model"
_NAMES = ("shard", "shard_module", "apply_fsdp2")


def put_beside_maker(drafts: Iterable[Draft]) -> None:
    """Let the calls whose dict one function makes, and that say the same, call one function."""
    homes: dict[cst.FunctionDef, list[Draft]] = {}
    for draft in drafts:
        where, display = draft.display or (None, None)
        home = where.scope(display) if where is not None and display is not None else None
        if where is not None and isinstance(home, cst.FunctionDef) and isinstance(where.parent(home), cst.Module):
            homes.setdefault(home, []).append(draft)
    names: set[str] = set()
    for home, found in homes.items():
        alike: dict[str, list[Draft]] = {}
        for draft in found:
            is_one = len(found) > 1 and _is_in_place(draft) and _module_of(draft, home) is not None
            text = _body(draft) if is_one else ""
            if text.count("\n") >= _LINES - 1:
                alike.setdefault(_renamed(text, {name: f"_{n}" for n, name in enumerate(_bound(text))}), []).append(
                    draft
                )
        for calling in alike.values():
            if len(calling) > 1:
                _put(home, _body(calling[0]), calling, names)


def _put(home: cst.FunctionDef, text: str, calling: Sequence[Draft], names: set[str]) -> None:
    """Write the function, by a name that is none of `names`, those of the others."""
    assert calling[0].display is not None
    where = calling[0].display[0]
    used = _names(text) - {*_bound(text), _MODEL, _DICT}
    items = {item.local: item for item in calling[0].imports if item.local in used}
    taken = {node.value for context in (where, *(each.file for each in calling)) for node in context.nodes(cst.Name)}
    name = next((each for each in _NAMES if each not in taken | names), "")
    if not name or used - items.keys() - set(dir(builtins)):
        return
    named = [where.named(item, home) for item in items.values()]
    if any(item.module == SUPPORT for item in named) or {item.local for item in named} != items.keys():
        return
    names.add(name)
    end = where.whole_lines(home)[1]
    lines = ["", "", *_definition(name, text, where.width)]
    added = "".join(_in_layout(line, where) + where.newline for line in lines)
    for draft in calling:
        draft.helper, draft.helper_arguments = name, f", **{draft.common_kwargs['**']}"
        written = [draft.file.plain(edit.text) for context, edit in draft.edits if context.path == draft.file.path]
        draft.imports = {item for item in draft.imports if any(says(text, item.local) for text in written)}
        module = _module_of(draft, home)
        draft.imports |= {Import(module, name)} if module else set()
    first = calling[0]
    first.edits.append((where, Edit(end, end, added)))
    for item in named:
        if where.path == first.file.path:
            first.imports.add(item)
        else:
            first.imports_elsewhere.append((where, item))


def _in_layout(line: str, where: Context) -> str:
    body = line.lstrip(" ")
    return where.indent * ((len(line) - len(body)) // 4) + body


def _body(draft: Draft) -> str:
    """What is written for the call, as the body of a function of the model and the dict; "" where that is not known."""
    model, held = (draft.file.plain(each) for each in (draft.model, draft.common_kwargs.get("**", "")))
    text = draft.file.plain("\n".join(body_of_root(draft)))
    if not model.isidentifier() or not held.isidentifier() or not text.isascii():
        return ""
    names = _names(text)
    if (_MODEL in names and model != _MODEL) or (_DICT in names and held != _DICT):
        return ""
    return _renamed(text, {model: _MODEL, held: _DICT})


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Other names for variables, but not for keywords, attributes and what comments say."""
    lines = text.split("\n")
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id in names]
    for node in sorted(found, key=lambda each: -each.col_offset):
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + names[node.id] + line[node.col_offset + len(node.id) :]
    return "\n".join(lines)


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _bound(text: str) -> list[str]:
    """The names that the text binds, each once, as they come."""
    names = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(node.id for node in names if isinstance(node.ctx, ast.Store)))


def _definition(name: str, text: str, width: int) -> Iterator[str]:
    """What is taken out of the dict first is a parameter of its own."""
    taken = list(takewhile(bool, map(_taken, ast.parse(text).body)))
    body = "\n".join(text.split("\n")[len(taken) :])
    keys = {each.local: each.key for each in taken if each is not None}
    if (_names(body) - keys.keys()) & set(keys.values()):
        keys, body, taken = {}, text, []
    needed = [each.key for each in taken if each is not None and not each.is_optional]
    optional = [f"{each.key}=None" for each in taken if each is not None and each.is_optional]
    parameters = [_MODEL, *needed, *optional, f"**{_DICT}"]
    head = f"def {name}({', '.join(parameters)}):"
    if len(head) <= width:
        yield head
    else:
        yield from (f"def {name}(", *(f"    {each}," for each in parameters), "):")
    yield from (f"    {line}" if line else line for line in _renamed(body, keys).split("\n"))


class _Taken(NamedTuple):
    """`local = fsdp_kwargs.pop("key")`, or `.pop("key", None)`."""

    local: str
    key: str
    is_optional: bool


def _taken(statement: ast.stmt) -> _Taken | None:
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None
    call = statement.value
    if (
        not isinstance(call, ast.Call)
        or ast.unparse(call.func) != f"{_DICT}.pop"
        or statement.lineno != call.end_lineno
    ):
        return None
    key = call.args[0]
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or not key.value.isidentifier():
        return None
    return _Taken(statement.targets[0].id, key.value, len(call.args) > 1)


def _module_of(draft: Draft, home: cst.FunctionDef) -> str | None:
    """The module that the file of a call imports the maker from; "" where it is the same file, None where none is.

    What is imported in a function alone may not be importable at the top.
    """
    ctx = draft.file
    if draft.display is not None and ctx.path == draft.display[0].path:
        return ""
    found = [each for each in ctx.nodes(cst.ImportFrom) if each.module is not None and not each.relative]
    at_top = {ctx.code(each.module) for each in found if each.module and isinstance(ctx.scope(each), cst.Module)}
    for node in found:
        names = node.names if isinstance(node.names, Sequence) else ()
        is_it = any(isinstance(each.name, cst.Name) and each.name.value == home.name.value for each in names)
        if is_it and node.module is not None and ctx.code(node.module) in at_top:
            return ctx.code(node.module)
    return None


def _is_in_place(draft: Draft) -> bool:
    """`model = FSDP(model, …)`, with nothing else that the statement or the draft does."""
    ctx, line = draft.file, enclosing(draft.file, draft.call, cst.SimpleStatementLine)
    statement = line.body[0] if line is not None and len(line.body) == 1 else None
    if not isinstance(statement, cst.Assign) or statement.value is not draft.call or len(statement.targets) != 1:
        return False
    is_same = ctx.code(statement.targets[0].target) == ctx.plain(draft.model)
    is_plain = not (draft.is_function or draft.float32_class or draft.unit_comments or kept_comments(draft))
    return is_same and is_plain and draft.has_root
