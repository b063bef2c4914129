"""`auto_wrap_policy`: which modules become units.

FSDP1 hands each module to a policy and never wraps the root by it; FSDP2 has no policies: a loop over
`model.modules()` calls `fully_shard` on each module that is to be a unit, children before parents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from codemods.dead import assignment_only_for
from codemods.policies import class_elements, policy_classes
from codemods.tables.names import WRAPPER
from codemods.vocabulary import File, Origin, Undecided

from .draft import Draft, Targets


def translate_policy(value: cst.BaseExpression, draft: Draft) -> None:
    """Set `draft.targets`; raise Undecided for a policy that is not a set of classes or a lambda seen in the source."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
    if len(origins) == 1 and _can_be_inlined(draft, origins[0]):
        _inline(value, origins[0], draft)
        return
    _in_place(value, origins, draft)


def _inline(value: cst.BaseExpression, origin: Origin, draft: Draft) -> None:
    """The policy is made in the same function or at the top of the same file: write its classes into the loop."""
    node = origin.node
    draft.quoted.update(word for word in _words(origin))
    condition = _lambda_body(origin)
    if condition is not None:
        draft.targets = Targets(condition, nested=True, may_be_root=True)
    else:
        classes = policy_classes(origin)
        draft.targets = Targets(
            f"isinstance({{module}}, {_isinstance_argument(draft.file, classes)})",
            nested=_may_nest(origin.file, classes),
            may_be_root=_may_be_root(draft, origin.file, classes),
        )
    if isinstance(value, cst.Name) and node is not None:
        statement = assignment_only_for(draft.file, node, lambda use: _is_policy_argument(draft.file, use))
        if statement is not None:
            draft.dead.append(statement)
            draft.inlined.add(node)


def _in_place(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    """The policy is made elsewhere: there it becomes a tuple of classes, and the loop tests against it."""
    optional = nested = may_be_root = False
    for origin in origins:
        if origin.is_none:
            optional = True
            continue
        classes = policy_classes(origin)
        assert origin.node is not None
        nested = nested or len(origins) > 1 or _may_nest(origin.file, classes)
        may_be_root = may_be_root or _may_be_root(draft, origin.file, classes)
        draft.definitions.add(origin.node)
    text = draft.file.code(value)
    if not isinstance(value, (cst.Name, cst.Attribute)):
        name = draft.fresh("unit_classes")
        draft.before.append(f"{name} = {text}")
        text = name
    test = f"isinstance({{module}}, {text}{' or ()' if optional else ''})"
    draft.targets = Targets(test, nested, may_be_root)


def _lambda_body(origin: Origin) -> str | None:
    """The condition of `partial(lambda_auto_wrap_policy, lambda_fn=…)` over `{module}`; None for other policies."""
    node = origin.node
    if not isinstance(node, cst.Call) or origin.file.dotted(node.func) != "functools.partial" or not node.args:
        return None
    if origin.file.fsdp1(node.args[0].value) != "lambda_auto_wrap_policy":
        return None
    function = next((a.value for a in node.args[1:] if a.keyword is not None and a.keyword.value == "lambda_fn"), None)
    if isinstance(function, cst.Lambda) and len(function.params.params) == 1:
        return _substituted(origin.file, function)
    if isinstance(function, (cst.Name, cst.Attribute)):
        return f"{origin.file.code(function)}({{module}})"
    raise Undecided(f"auto_wrap_policy is `{origin.text}`")


def _substituted(file: File, function: cst.Lambda) -> str:
    """The body of a one-parameter lambda with the parameter written `{module}`."""
    parameter = function.params.params[0]
    start, end = file.span(function.body)
    text, offset = file.text[start:end], start
    pieces, position = [], 0
    for use in file.uses(parameter):
        at = file.span(use)[0] - offset
        pieces.append(_escaped(text[position:at]))
        pieces.append("{module}")
        position = at + len(use.value)
    pieces.append(_escaped(text[position:]))
    body = "".join(pieces)
    binds_loosely = (
        isinstance(function.body, (cst.BooleanOperation, cst.IfExp, cst.NamedExpr)) and not function.body.lpar
    )
    return f"({body})" if "\n" in body or binds_loosely else body


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _isinstance_argument(file: File, classes: cst.BaseExpression) -> str:
    elements = class_elements(classes)
    if elements is None:
        return f"tuple({_escaped(file.code(classes))})"
    texts = [_escaped(file.code(element)) for element in elements]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _may_nest(file: File, classes: cst.BaseExpression) -> bool:
    """A module of one class holds another target only when the class makes its own kind."""
    elements = class_elements(classes)
    if elements is None or len(elements) != 1:
        return True
    for origin in file.origins(elements[0]):
        if isinstance(origin.node, cst.ClassDef) and _makes_itself(origin.file, origin.node):
            return True
    return False


def _makes_itself(file: File, definition: cst.ClassDef) -> bool:
    start, end = file.span(definition.body)
    return any(start <= file.span(use)[0] < end and not _in_super(file, use) for use in file.uses(definition))


def _in_super(file: File, use: cst.Name) -> bool:
    """`super(Block, self)` names the class without making one."""
    call = next((node for node in file.ancestors(use) if isinstance(node, cst.Call)), None)
    return call is not None and isinstance(call.func, cst.Name) and call.func.value == "super"


def _may_be_root(draft: Draft, file: File, classes: cst.BaseExpression) -> bool:
    """False when the model's class is seen and is none of the target classes."""
    elements = class_elements(classes)
    if elements is None:
        return True
    wanted = {name for element in elements for name in _class_names(file, element)}
    made = draft.file.origins(draft.module)
    for origin in made:
        if not isinstance(origin.node, cst.Call):
            return True
        names = _constructed(origin.file, origin.node.func)
        if not names or names & wanted:
            return True
    return not made


def _class_names(file: File, element: cst.BaseExpression) -> set[str]:
    names = {last_part(file.code(element))}
    for origin in file.origins(element):
        if isinstance(origin.node, cst.ClassDef):
            names.add(origin.node.name.value)
    return names


def _constructed(file: File, callee: cst.BaseExpression) -> set[str]:
    """The class names behind `Net(...)`, `Net.from_pretrained(...)`, with the bases that the program shows."""
    if isinstance(callee, cst.Attribute) and callee.attr.value in {"from_pretrained", "from_config"}:
        return {last_part(file.code(callee.value))}
    names: set[str] = set()
    for origin in file.origins(callee):
        if isinstance(origin.node, cst.ClassDef):
            names.add(origin.node.name.value)
            names.update(last_part(origin.file.code(base.value)) for base in origin.node.bases)
        elif (
            isinstance(origin.node, (cst.Name, cst.Attribute))
            and last_part(origin.file.code(origin.node))[:1].isupper()
        ):
            names.add(last_part(origin.file.code(origin.node)))
        else:
            return set()
    return names


def _can_be_inlined(draft: Draft, origin: Origin) -> bool:
    """Whether the names used where the policy is made mean the same at the constructor call."""
    if not isinstance(origin.node, cst.BaseExpression) or origin.file is not draft.file:
        return False
    scope = draft.file.scope(origin.node)
    near = scope is draft.file.scope(draft.call) or isinstance(scope, cst.Module)
    return near and draft.file.same_meaning(origin.node, draft.call)


def _words(origin: Origin) -> list[str]:
    return re.findall(r"\w+", origin.file.code(origin.node)) if origin.node is not None else []


def _is_policy_argument(file: File, use: cst.Name) -> bool:
    argument = file.parent(use)
    if not isinstance(argument, cst.Arg) or argument.keyword is None:
        return False
    call = file.parent(argument)
    return (
        argument.keyword.value == "auto_wrap_policy" and isinstance(call, cst.Call) and file.fsdp1(call.func) == WRAPPER
    )


def last_part(dotted: str) -> str:
    return dotted.rsplit(".", 1)[-1]
