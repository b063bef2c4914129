"""Reading the auto-wrap policies that are a set of classes."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.code.shapes import only_returned
from codemods.tables.names import FORMER_POLICIES

CLASS_POLICIES = {
    "transformer_auto_wrap_policy": "transformer_layer_cls",
    "ModuleWrapPolicy": "module_classes",
    "_module_wrap_policy": "module_classes",
}
"""The policies that are a set of classes, with the name of the argument that holds it."""


def policy_call(origin: Origin) -> tuple[str | None, Sequence[cst.Arg]]:
    """What makes a policy, with its arguments: a class, a function inside `partial`, or one that a lambda or a function
    passes all on to and does nothing else; by the name that it has now.
    """
    made, arguments = _made_by(origin)
    return FORMER_POLICIES.get(made or "", made), arguments


def _made_by(origin: Origin) -> tuple[str | None, Sequence[cst.Arg]]:
    node = origin.node
    if isinstance(node, (cst.FunctionDef, cst.Lambda)):
        return _passed_on(node, origin.file)
    if not isinstance(node, cst.Call):
        return origin.file.fsdp1(node) if isinstance(node, cst.BaseExpression) else None, ()
    if origin.file.dotted(node.func) == "functools.partial" and node.args:
        return origin.file.fsdp1(node.args[0].value), node.args[1:]
    return origin.file.fsdp1(node.func), node.args


_GIVEN = ("module", "recurse", "nonwrapped_numel")
"""What FSDP1 calls a policy with, by name."""


def _passed_on(function: cst.FunctionDef | cst.Lambda, ctx: Context) -> tuple[str | None, Sequence[cst.Arg]]:
    """`lambda module, recurse, nonwrapped_numel: policy(module, recurse, nonwrapped_numel, {Block})`."""
    body = function.body if isinstance(function, cst.Lambda) else only_returned(function)
    own = {each.name.value: each.default for each in function.params.params}
    if tuple(own)[: len(_GIVEN)] != _GIVEN or not isinstance(body, cst.Call) or any(each.star for each in body.args):
        return None, ()
    made = ctx.fsdp1(body.func)
    order = (*_GIVEN, CLASS_POLICIES.get(made or "", "min_num_params"))
    named = {
        each.keyword.value if each.keyword is not None else order[min(index, len(_GIVEN))]: each
        for index, each in enumerate(body.args)
    }
    if any(name not in named or ctx.code(named[name].value) != name for name in _GIVEN):
        return None, ()
    rest = [name for name in named if name not in _GIVEN]
    if len(named) != len(body.args) or len(rest) != 1 or rest[0] != order[-1]:
        return None, ()
    given = named[rest[0]].value
    if isinstance(given, cst.Name) and given.value in own:
        default = own[given.value]  # FSDP1 gives nothing in its place
        return (made, [cst.Arg(default, keyword=cst.Name(rest[0]))]) if default is not None else (None, ())
    return made, [named[rest[0]].with_changes(keyword=cst.Name(rest[0]))]


def policy_classes(origin: Origin) -> cst.BaseExpression:
    """The expression that holds the layer classes. Raises NotStatic when the policy is of another kind."""
    made, arguments = policy_call(origin)
    keyword = CLASS_POLICIES.get(made or "")
    for argument in arguments if keyword is not None else ():
        named = argument.keyword is not None and argument.keyword.value == keyword
        if named or (made == "ModuleWrapPolicy" and argument.keyword is None and not argument.star):
            return argument.value
    raise NotStatic(f"auto_wrap_policy: {origin.text}")


def class_elements(classes: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """The classes of a set, tuple or list display; None for any other expression."""
    if isinstance(classes, (cst.Set, cst.Tuple, cst.List)):
        if all(isinstance(element, cst.Element) for element in classes.elements):
            return [element.value for element in classes.elements]
    return None


def class_tuple(ctx: Context, classes: cst.BaseExpression) -> str:
    """The classes as a tuple, which `isinstance` takes."""
    if not isinstance(classes, (cst.Set, cst.Tuple, cst.List)):
        return f"tuple({ctx.quote(classes)})"
    texts = [_element(ctx, element) for element in classes.elements]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def joined_classes(ctx: Context, several: Sequence[cst.BaseExpression]) -> str:
    """The classes of several displays, or other collections, as one tuple."""
    if len(several) == 1:
        return class_tuple(ctx, several[0])
    texts: list[str] = []
    for classes in several:
        elements = class_elements(classes)
        texts += [f"*{ctx.quote(classes)}"] if elements is None else [ctx.quote(element) for element in elements]
    return f"({', '.join(dict.fromkeys(texts))})"


def isinstance_argument(ctx: Context, classes: cst.BaseExpression) -> str:
    """The classes as `isinstance` takes them: a single one is no tuple."""
    elements = class_elements(classes)
    return ctx.quote(elements[0]) if elements is not None and len(elements) == 1 else class_tuple(ctx, classes)


def _element(ctx: Context, element: cst.BaseElement) -> str:
    star = "*" if isinstance(element, cst.StarredElement) else ""
    return f"{star}{ctx.quote(element.value)}"
