"""Attributes whose every value the program spells out: `self.x = …` in a method, `x: T = …` in a dataclass.

Objects are not told apart: what is said of a name holds for every attribute of this name in the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import upward
from codemods.reading.code.shapes import callee
from codemods.reading.values.choices import Place


@dataclass(frozen=True, slots=True)
class Stored:
    """An attribute that nothing sets unseen."""

    values: Sequence[Place]
    """What is stored, each where it stands."""
    targets: Sequence[tuple[Context, cst.Name]]
    """The names that are bound: `strategy` of `self.strategy = …`, of a field, of an argument that fills the field."""
    reads: Sequence[tuple[Context, cst.Attribute]]


def stored(ctx: Context, name: str) -> Stored | None:
    """What the program stores in attributes of a name; None where something may set one that is not seen.

    That is `setattr` with a name that is computed, `vars`, an object of a library or a copy that takes it as a keyword,
    a class that something else than a plain call makes an object of (a command line, a file), or the name as a string.
    """
    if _is_set_by_name(ctx, name):
        return None
    values: list[Place] = []
    targets: list[tuple[Context, cst.Name]] = []
    reads: list[tuple[Context, cst.Attribute]] = []
    filled: list[tuple[Context, cst.Arg]] = []
    for where, node in ctx.attributes(name):
        holder = where.parent(node)
        if isinstance(holder, cst.AssignTarget):
            assign = cst.ensure_type(where.parent(holder), cst.Assign)
            if len(assign.targets) != 1:
                return None
            values.append((where, assign.value))
            targets.append((where, node.attr))
        elif isinstance(holder, cst.AnnAssign) and holder.target is node:
            values += [(where, holder.value)] if holder.value is not None else []
            targets.append((where, node.attr))
        elif _may_bind(where, node):
            return None
        else:
            reads.append((where, node))
    for where in ctx.files(name):
        for field in _fields(where, name):
            owner = cst.ensure_type(where.scope(field), cst.ClassDef)
            given = _given(where, owner, name)
            if given is None:
                return None
            values += [(where, field.value)] if field.value is not None else []
            targets.append((where, cst.ensure_type(_target(field), cst.Name)))
            filled += given
            for file, argument in given:
                values.append((file, argument.value))
                targets.append((file, cst.ensure_type(argument.keyword, cst.Name)))
    seen = {file.parent(argument) for file, argument in filled}
    if any(call not in seen and _may_make_object(where, call) for where, call in ctx.passing(name)):
        return None
    return Stored(values, targets, reads) if values else None


def _fields(where: Context, name: str) -> Iterator[cst.Assign | cst.AnnAssign]:
    """`name: T = value` and `name = value` in the body of a class."""
    nodes: list[cst.Assign | cst.AnnAssign] = [*where.nodes(cst.AnnAssign), *where.nodes(cst.Assign)]
    for node in nodes:
        target = _target(node)
        if isinstance(target, cst.Name) and target.value == name and isinstance(where.scope(node), cst.ClassDef):
            yield node


def _target(node: cst.Assign | cst.AnnAssign) -> cst.BaseExpression:
    return node.targets[0].target if isinstance(node, cst.Assign) else node.target


def _given(where: Context, owner: cst.ClassDef, name: str) -> list[tuple[Context, cst.Arg]] | None:
    """The arguments that fill a field; None where an object may be made in a way that is not seen."""
    if any(where.dotted(callee(decorator.decorator)) != "dataclasses.dataclass" for decorator in owner.decorators):
        return None
    if not owner.decorators:
        return None if owner.bases else []  # an attribute of a plain class
    found: list[tuple[Context, cst.Arg]] = []
    is_made = False
    for file, reference in where.references_to(owner):
        holder = file.parent(reference)
        if isinstance(holder, cst.Call) and holder.func is reference:
            is_made = True
            if any(argument.keyword is None for argument in holder.args):
                return None
            found += [(file, each) for each in holder.args if each.keyword is not None and each.keyword.value == name]
        elif not isinstance(holder, (cst.Annotation, cst.ImportAlias)):
            return None
    return found if is_made else None


def _is_set_by_name(ctx: Context, name: str) -> bool:
    """Whether something can set attributes that it computes the names of, or has this name as a string."""
    if ctx.mentions("__dict__", "__setattr__"):
        return True
    if any(_is_stored_into(where, call) for where in ctx.files("vars") for call in where.nodes(cst.Call)):
        return True
    for where in ctx.files("setattr"):
        for call in where.nodes(cst.Call):
            if isinstance(call.func, cst.Name) and call.func.value == "setattr" and not _sets_another(call, name):
                return True
    return any(
        str(text.raw_value).lstrip("-").replace("-", "_") == name
        for where in ctx.files(name)
        for text in where.nodes(cst.SimpleString)
    )


def _may_make_object(where: Context, call: cst.Call) -> bool:
    """Whether what takes a name as a keyword may store it: `SimpleNamespace(name=…)`, `replace(config, name=…)`."""
    if where.fsdp1(call.func) is not None or where.runs(call):
        return False
    return not (isinstance(call.func, cst.Name) and call.func.value == "dict")


def _is_stored_into(where: Context, call: cst.Call) -> bool:
    """`vars(config)[name] = …`, `vars(config).update(…)`."""
    if not isinstance(call.func, cst.Name) or call.func.value != "vars":
        return False
    holder = where.parent(call)
    if isinstance(holder, cst.Attribute):
        return holder.attr.value in {"update", "setdefault", "__setitem__"}
    return isinstance(holder, cst.Subscript) and isinstance(where.parent(holder), cst.AssignTarget)


def _sets_another(call: cst.Call, name: str) -> bool:
    key = call.args[1].value if len(call.args) > 1 else None
    return isinstance(key, cst.SimpleString) and key.raw_value != name


def _may_bind(where: Context, node: cst.Attribute) -> bool:
    """Whether an attribute stands where a loop, a `with`, a tuple or `del` binds it, or `+=` changes it."""
    holder = where.parent(node)
    return (
        (isinstance(holder, cst.For) and holder.target is node)
        or (isinstance(holder, cst.AugAssign) and holder.target is node)
        or isinstance(holder, (cst.AsName, cst.Del))
        or (isinstance(holder, (cst.Element, cst.StarredElement)) and _is_unpacked(where, holder))
    )


def _is_unpacked(where: Context, element: cst.CSTNode) -> bool:
    for inner, outer in upward(where, element):
        if isinstance(outer, (cst.AssignTarget, cst.CompFor)):
            return True
        if isinstance(outer, cst.For):
            return outer.target is inner
        if isinstance(outer, cst.BaseStatement):
            return False
    return False
