"""`auto_wrap_policy`: which modules become units.

FSDP1 hands each module to a policy and never wraps the root by it; FSDP2 has no policies: a loop over
`model.modules()` calls `fully_shard` on each module that is to be a unit, children before parents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import SUPPORT, Context, NotStatic, Origin
from codemods.reading.choices import Option, written
from codemods.reading.dead import assignment_only_for
from codemods.reading.enclosing import enclosing
from codemods.reading.layout import comments_in, lost_comments
from codemods.reading.optional_results import optional_result
from codemods.reading.policies import (
    CLASS_POLICIES,
    class_elements,
    isinstance_argument,
    joined_classes,
    policy_call,
    policy_classes,
)
from codemods.reading.policy_functions import are_by_module, uses
from codemods.reading.predicates import class_policies, predicates
from codemods.reading.unit_lists import list_of_units
from codemods.tables.arguments import POSITIONS
from codemods.tables.names import WRAPPER

from .condition import function_targets, is_yes_or_no
from .draft import Draft, Entry, Note, Switch, UnitSelector
from .handed_in import hand_in_units
from .in_place import chosen_for, keep_none, put_for_none, rename, renamed

_ATTENTION = ("torch.nn.MultiheadAttention", "torch.nn.Transformer")
"""Layers of `torch.nn` inside of which a size-based policy does not look."""


def translate_policy(value: cst.BaseExpression, draft: Draft) -> None:
    """Set `draft.selector`. Raises NotStatic where the units depend on more than a function of the policy can see."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
    chosen = _chosen_above(value, draft)
    state = draft.state()
    if chosen is not None:
        try:
            switch_policy(chosen.switch, draft)
            if draft.selector is not None and not draft.definitions - state["definitions"]:
                draft.dead += chosen.statements
                draft.inlined |= chosen.made
                return
        except NotStatic:
            pass
        draft.restore(state)
    if _returned_or_none(value, draft):
        return
    try:
        if len(origins) == 1 and can_be_inlined(draft, origins[0]) and not _asks_for_classes(origins[0]):
            draft.selector = _targets(origins[0], draft)
            _bury(value, origins[0], draft, lambda use: _is_policy_argument(draft, use))
        else:
            _made_elsewhere(value, origins, draft)
    except NotStatic:
        if any(policy_call(origin)[0] == "CustomPolicy" for origin in origins):
            raise  # its function may give units arguments of their own
        draft.restore(state)
        _at_run_time(value, origins, draft)


def _returned_or_none(value: cst.BaseExpression, draft: Draft) -> bool:
    """A policy, or None, that a function of this file returns for this call alone: its condition is asked here."""
    ctx = draft.file
    argument = ctx.parent(value)
    if draft.is_function or argument is None or ctx.parent(argument) is not draft.call:
        return False
    found = optional_result(ctx, value)
    model = ctx.plain(draft.model)
    if found is None or any(
        isinstance(node, (cst.Name, cst.Attribute)) and ctx.code(node) == model for node in ctx.inside(value)
    ):
        return False  # it may be another model above the call
    state = draft.state()
    origin = Origin(ctx, found.made)
    try:
        if _asks_for_classes(origin):
            return False
        draft.selector = replace(_targets(origin, draft), guard=found.test)
    except NotStatic:
        draft.restore(state)
        return False
    draft.quoted.update(re.findall(r"\w+", ctx.plain(found.test)))
    draft.dead.append(found.function)
    draft.inlined.add(found.made)
    return True


@dataclass(frozen=True)
class _Chosen:
    """A policy that a condition above the call decides about, for this call alone."""

    switch: Switch
    statements: list[cst.CSTNode]
    """Those that do nothing else."""
    made: set[cst.CSTNode]


def _chosen_above(value: cst.BaseExpression, draft: Draft) -> _Chosen | None:
    """`if several: policy = A` and `else: policy = None`, or None above of it."""
    ctx = draft.file
    bound = ctx.bound(value) if isinstance(value, cst.Name) else None
    if bound is None or len(bound) != 2 or any(where.path != ctx.path for where, _ in bound):
        return None
    made = [each for _, each in bound]
    lines = [assignment_only_for(ctx, each, lambda use: use is value) for each in made]
    choices = [ctx.parent(block) for line in lines if line is not None and (block := ctx.parent(line)) is not None]
    choices = [ctx.parent(each) if isinstance(each, cst.Else) else each for each in choices]
    choice = choices[-1] if len(choices) == 2 else None
    if not isinstance(choice, cst.If) or isinstance(ctx.parent(choice), cst.If) or _has_comments(ctx, choice):
        return None
    branches = [choice.body.body, *([choice.orelse.body.body] if isinstance(choice.orelse, cst.Else) else [])]
    if isinstance(choice.orelse, cst.If) or any(len(branch) != 1 or branch[0] not in lines for branch in branches):
        return None
    if not ctx.same_meaning(choice.test, draft.call) or not ctx.same_meaning(made[0], draft.call):
        return None
    if not ctx.same_meaning(made[1], draft.call):
        return None
    by_line = dict(zip(lines, made, strict=True))
    if len(branches) == 1:
        before = next(line for line in lines if line is not branches[0][0])
        if before is None or ctx.parent(before) is not ctx.parent(choice) or _has_comments(ctx, before):
            return None
        return _Chosen(Switch(choice.test, made[1], made[0]), [before, choice], set(made))
    switch = Switch(choice.test, by_line[branches[0][0]], by_line[branches[1][0]])
    return _Chosen(switch, [choice], set(made))


def _has_comments(ctx: Context, statement: cst.CSTNode) -> bool:
    return bool(comments_in(ctx.text[slice(*ctx.whole_lines(statement))]) or lost_comments(ctx, statement))


def switch_policy(value: Switch, draft: Draft) -> None:
    """`auto_wrap_policy` that a condition decides about, where one side has none."""
    sides = [side for side in (value.body, value.orelse) if side is not None]
    present = [side for side in sides if not (isinstance(side, cst.BaseExpression) and _is_none(side, draft))]
    if not present:
        return
    if len(present) > 1 or not isinstance(present[0], cst.BaseExpression):
        raise NotStatic("auto_wrap_policy is given under a condition")
    translate_policy(present[0], draft)
    if draft.selector is None:
        return
    test = written(draft.file, value.test, {})
    if present[0] is not value.body:
        test = f"not {test}" if isinstance(value.test, (cst.Name, cst.Attribute, cst.Call)) else f"not ({test})"
    guard = f"{test} and {draft.selector.guard}" if draft.selector.guard else test
    draft.selector = replace(draft.selector, guard=guard)


def _is_none(value: cst.BaseExpression, draft: Draft) -> bool:
    return all(origin.is_none for origin in draft.file.origins(value))


def _at_run_time(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    """The policy stays an object that is asked, by one function, which modules it picks."""
    if draft.ignores:
        raise NotStatic(f"auto_wrap_policy: {origins[0].text}")
    draft.keeps.update(origin.node for origin in origins if origin.node is not None)
    text = draft.file.quote(value)
    if not isinstance(value, (cst.Name, cst.Attribute)):
        name = draft.fresh("policy", "wrap_policy")
        draft.before.append(f"{name} = {written(draft.file, value, {})}")
        text = name
    seen = [origin for origin in origins if not isinstance(origin.node, cst.Subscript)]  # what a seen table holds
    _ask(text, origins, bool(seen) and all(_is_policy(origin) for origin in seen), draft)


def policy_of_entry(value: Entry, draft: Draft) -> None:
    """A policy that comes out of a dict."""
    if draft.ignores:
        raise NotStatic("auto_wrap_policy comes out of a dict")
    if all(origin.is_none for origin in value.values):
        return
    state = draft.state()
    try:
        _classes_in_dict(value, draft)
        return
    except NotStatic:
        draft.restore(state)
    name = draft.fresh("policy", "wrap_policy")
    draft.before.append(f"{name} = {value.text}")
    _ask(name, value.values, bool(value.values) and all(_is_policy(origin) for origin in value.values), draft)


def _classes_in_dict(value: Entry, draft: Draft) -> None:
    """A dict that goes on holds the classes, until the loop takes them out of it. Raises NotStatic."""
    origins, nodes = value.values, {origin.node for origin in value.values}
    if not draft.goes_on or not value.is_only_given or value.may_lack or len(value.stored) != 1 or nodes & draft.left:
        raise NotStatic("auto_wrap_policy comes out of a dict")
    ((where, source),) = value.stored
    classes = _classes_of(origins, draft)
    draft.keeps -= nodes
    if len(classes.present) < len(origins) and not put_for_none(source, draft, "auto_wrap_policy", "()", where):
        raise NotStatic("auto_wrap_policy comes out of a dict, and None is read elsewhere")
    found = chosen_for(where, source, lambda ctx, node: node in nodes)
    if found is not None:
        rename(where, found, draft, ("unit_classes",))
    draft.passed["auto_wrap_policy"] = "unit_classes"
    name = draft.fresh("unit_classes", "fsdp_unit_classes")
    draft.before.append(f"{name} = {value.text}")
    draft.selector = classes.selector(f"isinstance({{module}}, {name})")


def _ask(text: str, origins: Sequence[Origin], is_given: bool, draft: Draft) -> None:
    """Ask a policy which modules it picks: of each module, where it looks at no more than the module."""
    guard = "" if is_given else f"{text} is not None"
    draft.notes.append(
        Note(f"which modules `{draft.file.plain(text)}` picks is seen at run time", "check compares the units")
    )
    if are_by_module(origins, draft.file):
        test = f"{text}({{module}}, recurse=False, nonwrapped_numel=0)"
        container = not all(_picks_layers(origin) for origin in origins if not origin.is_none)
        draft.selector = UnitSelector(test, nested=True, may_be_root=True, may_be_container=container, guard=guard)
        return
    if uses(draft.file, "CustomPolicy", "_Policy"):
        raise NotStatic("auto_wrap_policy may be an object that gives units arguments of their own")
    # Mixed precision looked inside of every module, for those that stay in float32.
    more = "" if "mixed_precision" in draft.present else ", look_inside=False"
    more += f", kept={draft.float32_class}" if draft.float32_class else ""
    units = f"{draft.imported(SUPPORT, 'policy_units')}({draft.model}, {text}{more})"
    draft.selector = UnitSelector("", nested=True, may_be_root=False, units=units, guard=guard)


def _picks_layers(origin: Origin) -> bool:
    """Whether it is a policy of classes none of which a list or dict of modules is an instance of."""
    try:
        classes = policy_classes(origin)
    except NotStatic:
        return False
    return class_elements(classes) is not None and not _may_be_container(origin.file, classes)


def _is_policy(origin: Origin) -> bool:
    """Whether it is a policy for sure, and not None."""
    return isinstance(origin.node, (cst.FunctionDef, cst.Lambda)) or policy_call(origin)[0] is not None


def _targets(origin: Origin, draft: Draft, *, as_test: bool = False) -> UnitSelector:
    """The units of a policy that is made in the same function, or at the top of the same file."""
    draft.quoted.update(_words(origin))
    made, arguments = policy_call(origin)
    if made == "always_wrap_policy":
        return UnitSelector("", nested=True, may_be_root=True, may_be_container=True)
    if made == "size_based_auto_wrap_policy":
        return _by_size(origin, arguments, draft)
    if made == "_or_policy":
        return _any_of(origin, arguments, draft)
    if made == "lambda_auto_wrap_policy":
        return function_targets(origin, _argument(arguments, "lambda_fn"), draft, as_test=as_test)
    if made == "CustomPolicy":
        function = _argument(arguments, "lambda_fn", first=True)
        if not is_yes_or_no(function):
            raise NotStatic("auto_wrap_policy: CustomPolicy, which may give units arguments of their own")
        return function_targets(origin, function, draft, as_test=as_test)
    classes = policy_classes(origin)
    listed = _in_a_list(origin.file, classes, draft) if not as_test else None
    if listed is not None:
        return UnitSelector("", nested=False, may_be_root=False, units=f"{draft.model}.{listed}", item=_one_of(listed))
    return UnitSelector(
        f"isinstance({{module}}, {isinstance_argument(draft.file, classes)})",
        nested=_may_nest(origin.file, classes),
        may_be_root=_may_be_root(draft, origin.file, classes),
        may_be_container=_may_be_container(origin.file, classes),
    )


def _in_a_list(ctx: Context, classes: cst.BaseExpression, draft: Draft) -> str | None:
    """The attribute of the model that is the list of all modules of a class."""
    elements = class_elements(classes)
    if elements is None or len(elements) != 1 or draft.ignores or draft.float32_class:
        return None
    origins = ctx.origins(elements[0])
    return list_of_units(draft.file, draft.call, draft.built, origins[0]) if len(origins) == 1 else None


def _one_of(listed: str) -> str:
    """`block` of `blocks`."""
    return listed[:-1] if listed.endswith("s") and listed[:-1].isidentifier() else "block"


def _any_of(origin: Origin, arguments: Sequence[cst.Arg], draft: Draft) -> UnitSelector:
    """`_or_policy`: the units of several policies."""
    policies = class_elements(_argument(arguments, "policies"))
    if not policies:
        raise NotStatic(f"auto_wrap_policy: {origin.text}")
    found = []
    for policy in policies:
        made = origin.file.origins(policy)
        if len(made) != 1 or not can_be_inlined(draft, made[0]) or _asks_for_classes(made[0]):
            raise NotStatic(f"auto_wrap_policy: {origin.text}")
        units = _targets(made[0], draft, as_test=True)
        if units.units:  # not a test, so that it cannot be one of several
            raise NotStatic(f"auto_wrap_policy: {origin.text}")
        found.append(units)
        _bury(policy, made[0], draft, lambda use: any(node is origin.node for node in draft.file.ancestors(use)))
    if not all(targets.test for targets in found):
        return UnitSelector("", nested=True, may_be_root=True, may_be_container=True)
    return UnitSelector(
        _test_of_classes(origin, draft) or f"({' or '.join(targets.test for targets in found)})",
        nested=True,
        may_be_root=any(targets.may_be_root for targets in found),
        may_be_container=any(targets.may_be_container for targets in found),
    )


def _test_of_classes(origin: Origin, draft: Draft) -> str:
    """One question for all classes, where the policies ask for no more than those."""
    try:
        members = class_policies(origin)
    except NotStatic:
        return ""
    classes = joined_classes(draft.file, [policy_classes(member) for member in members])
    return f"isinstance({{module}}, {classes})"


def _by_size(origin: Origin, arguments: Sequence[cst.Arg], draft: Draft) -> UnitSelector:
    """`size_based_auto_wrap_policy` with its defaults; what it excludes by other classes is asked at run time."""
    named = {argument.keyword.value if argument.keyword is not None else "": argument.value for argument in arguments}
    may_hold_attention = any(name.startswith(_ATTENTION) for name in draft.built.from_libraries)
    if named.keys() - {"min_num_params"} or (may_hold_attention and "mixed_precision" not in draft.present):
        raise NotStatic(f"auto_wrap_policy: {origin.text}")
    if draft.ignores or draft.float32_class:
        raise NotStatic("auto_wrap_policy by size, which counts what it leaves out")
    size = draft.file.quote(named["min_num_params"]) if named else "int(1e8)"
    units = f"{draft.imported(SUPPORT, 'units_by_size')}({draft.model}, {size})"
    return UnitSelector("", nested=True, may_be_root=False, units=units)


def _bury(value: cst.BaseExpression, origin: Origin, draft: Draft, expected: Callable[[cst.Name], bool]) -> None:
    """A policy in a variable goes with its last use."""
    if isinstance(value, cst.Name) and origin.node is not None:
        statement = assignment_only_for(draft.file, origin.node, expected)
        if statement is not None:
            draft.dead.append(statement)
            uses = draft.file.uses(cst.ensure_type(statement, cst.SimpleStatementLine).body[0])
            if not uses or value is min(uses, key=lambda use: draft.file.span(use)):  # once, of several calls
                draft.unit_comments += lost_comments(draft.file, statement)
            draft.inlined.add(origin.node)


def _argument(arguments: Sequence[cst.Arg], name: str, first: bool = False) -> cst.BaseExpression:
    for argument in arguments:
        if argument.keyword is not None and argument.keyword.value == name:
            return argument.value
    if first and arguments and arguments[0].keyword is None and not arguments[0].star:
        return arguments[0].value
    raise NotStatic(f"auto_wrap_policy without {name}")


def _made_elsewhere(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    """The policy changes where it is made: into its classes, or into a function that the loop asks of each module."""
    if _checkpointing_asks(origins, draft.file):
        raise NotStatic("auto_wrap_policy is given to apply_activation_checkpointing as well")
    state = draft.state()
    nodes = {origin.node for origin in origins}
    try:
        if nodes & (draft.asked | draft.left):
            raise NotStatic("auto_wrap_policy is asked elsewhere")
        hand_in_units(value, draft, _one_flat_class)
        return
    except NotStatic:
        draft.restore(state)
    try:
        if nodes & draft.asked:
            raise NotStatic("auto_wrap_policy is asked elsewhere")
        _in_place(value, origins, draft)
    except NotStatic:
        draft.restore(state)
        if draft.ignores:
            raise
        _as_function(value, origins, draft)


def _one_flat_class(origin: Origin, model: cst.Name) -> str:
    """The test of a policy of one class, none of whose modules is the root, or lies in another one."""
    classes = policy_classes(origin)
    if _may_nest(origin.file, classes) or _may_be_container(origin.file, classes) or _asks_for_classes(origin):
        raise NotStatic("auto_wrap_policy of modules in modules")
    if _may_make_root(origin.file, model, origin.file, classes):
        raise NotStatic("auto_wrap_policy that may pick the root")
    return f"isinstance({{module}}, {isinstance_argument(origin.file, classes)})"


def _checkpointing_asks(origins: Sequence[Origin], ctx: Context) -> bool:
    """Whether activation checkpointing is given the policy too, which has to stay one for it."""
    made = {origin.node for origin in origins if not origin.is_none}
    for where, call in ctx.passing("auto_wrap_policy"):
        if (where.dotted(call.func) or "").endswith(".apply_activation_checkpointing"):
            given = _argument(call.args, "auto_wrap_policy")
            if made & {origin.node for origin in where.origins(given)}:
                return True
    return False


def _as_function(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    present = [origin for origin in origins if not origin.is_none]
    keep_none(origins, draft)
    made = predicates(present)
    nodes = {each.origin.node for each in made if each.origin.node is not None}
    draft.definitions |= nodes
    draft.predicates |= nodes
    text = draft.file.quote(value)
    if not isinstance(value, (cst.Name, cst.Attribute)):
        name = draft.fresh("is_unit", "is_unit_module")
        draft.before.append(f"{name} = {written(draft.file, value, {})}")
        text = name
    draft.selector = UnitSelector(
        f"{text}({{module}})",
        nested=True,
        may_be_root=True,
        may_be_container=any(_picks_container(each.origin, draft) for each in made),
        guard=f"{text} is not None" if len(present) < len(origins) else "",
    )


def _picks_container(origin: Origin, draft: Draft) -> bool:
    """Whether a list or dict of modules may be a unit of a policy, or of one that is written inside of it."""
    made, arguments = policy_call(origin)
    if made == "_or_policy":
        elements = class_elements(_argument(arguments, "policies")) or []
        inner = [Origin(origin.file, each) for each in elements if isinstance(each, cst.Call)]
        return any(_picks_container(each, draft) for each in inner)
    if made == "lambda_auto_wrap_policy":
        function = _argument(arguments, "lambda_fn")
        return function_targets(origin, function, draft, as_test=True).may_be_container
    return _may_be_container(origin.file, policy_classes(origin))


@dataclass(frozen=True)
class _Classes:
    """Policies that become the tuples of their classes where they are made."""

    present: Sequence[Origin]
    """Those that are not None."""
    nested: bool
    may_be_root: bool
    may_be_container: bool

    def selector(self, test: str) -> UnitSelector:
        return UnitSelector(test, self.nested, self.may_be_root, self.may_be_container)


def _classes_of(origins: Sequence[Origin], draft: Draft) -> _Classes:
    """Let policies become their classes. Raises NotStatic for one that asks for more."""
    nested = may_be_root = may_be_container = False
    present = [origin for origin in origins if not origin.is_none]
    for origin in present:
        members = class_policies(origin)
        if any(member.node in draft.asked for member in members):
            raise NotStatic("auto_wrap_policy is asked elsewhere")
        nested = nested or len(present) > 1 or len(members) > 1
        for member in members:
            classes = policy_classes(member)
            nested = nested or _may_nest(member.file, classes)
            may_be_root = may_be_root or _may_be_root(draft, member.file, classes)
            may_be_container = may_be_container or _may_be_container(member.file, classes)
        draft.definitions |= {each.node for each in (origin, *members) if each.node is not None}
    return _Classes(present, nested, may_be_root, may_be_container)


def _in_place(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    """The policy is made elsewhere: there it becomes a tuple of classes, and the loop tests against it."""
    classes = _classes_of(origins, draft)
    optional = len(classes.present) < len(origins)
    if optional and put_for_none(value, draft, "auto_wrap_policy", "()"):
        optional = False
    elif optional:
        keep_none(origins, draft)
    text = draft.file.quote(value)
    if isinstance(value, cst.Name) and "polic" in value.value.lower():
        made = [Option(each.file, each.node, False) for each in origins if isinstance(each.node, cst.BaseExpression)]
        text = renamed(value, made, draft, "auto_wrap_policy", ("unit_classes", "fsdp_unit_classes"))
    elif not isinstance(value, (cst.Name, cst.Attribute)):
        name = draft.fresh("unit_classes")
        draft.before.append(f"{name} = {text}")
        text = name
    test = f"isinstance({{module}}, {text}{' or ()' if optional else ''})"
    draft.selector = classes.selector(test)


def _asks_for_classes(origin: Origin) -> bool:
    """Whether the classes are asked from a module: `fully_shard` changes the class of each unit, so that the same
    question within the loop has another answer from the second module on.
    """
    made, arguments = policy_call(origin)
    if made not in CLASS_POLICIES:
        return False
    return any(_asks_for_class(node) for argument in arguments for node in origin.file.inside(argument.value))


def _asks_for_class(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) or (isinstance(node, cst.Attribute) and node.attr.value == "__class__")


_HOLDERS = frozenset({"Module", "ModuleDict", "ModuleList", "Sequential"})
"""Classes of torch.nn that hold modules of any kind, their own too."""


def _may_nest(ctx: Context, classes: cst.BaseExpression) -> bool:
    """A module of one class holds another target only when the class makes its own kind."""
    elements = class_elements(classes)
    if elements is None or len(elements) != 1:
        return True
    if _nn_name(ctx, elements[0]) in _HOLDERS:
        return True
    for origin in ctx.origins(elements[0]):
        if isinstance(origin.node, cst.ClassDef) and _makes_itself(origin.file, origin.node):
            return True
    return False


def _may_be_container(ctx: Context, classes: cst.BaseExpression) -> bool:
    """Whether a list or dict of modules is an instance of one of the classes."""
    elements = class_elements(classes)
    return elements is not None and any(
        _nn_name(ctx, element) in {"Module", "ModuleDict", "ModuleList"} for element in elements
    )


def _nn_name(ctx: Context, element: cst.BaseExpression) -> str:
    """`Sequential` for torch.nn's class of that name, whatever it was imported as."""
    dotted = ctx.dotted(element) or ""
    return last_part(dotted) if dotted.startswith("torch.nn.") else ""


def _makes_itself(ctx: Context, definition: cst.ClassDef) -> bool:
    """Whether the class names itself in its body, or is a base of another one, whose modules may hold both."""
    start, end = ctx.span(definition.body)
    uses = ctx.uses(definition)
    inside = (use for use in uses if start <= ctx.span(use)[0] < end)
    return any(not _in_super(ctx, use) for use in inside) or any(_is_base(ctx, use) for use in uses)


def _is_base(ctx: Context, use: cst.Name) -> bool:
    argument = ctx.parent(use)
    return isinstance(argument, cst.Arg) and isinstance(ctx.parent(argument), cst.ClassDef)


def _in_super(ctx: Context, use: cst.Name) -> bool:
    """`super(Block, self)` names the class without making one."""
    call = enclosing(ctx, use, cst.Call)
    return call is not None and isinstance(call.func, cst.Name) and call.func.value == "super"


def _may_be_root(draft: Draft, ctx: Context, classes: cst.BaseExpression) -> bool:
    """False when the model's class is seen and is none of the target classes."""
    return _may_make_root(draft.file, draft.module, ctx, classes)


def _may_make_root(where: Context, model: cst.BaseExpression, ctx: Context, classes: cst.BaseExpression) -> bool:
    """The same for a model in a file."""
    elements = class_elements(classes)
    if elements is None:
        return True
    wanted = {name for element in elements for name in _class_names(ctx, element)}
    made = where.origins(model)
    for origin in made:
        if not isinstance(origin.node, cst.Call):
            return True
        names = _constructed(origin.file, origin.node.func)
        if not names or names & wanted:
            return True
    return not made


def _class_names(ctx: Context, element: cst.BaseExpression) -> set[str]:
    names = {last_part(ctx.code(element))}
    for origin in ctx.origins(element):
        if isinstance(origin.node, cst.ClassDef):
            names.add(origin.node.name.value)
    return names


def _constructed(ctx: Context, callee: cst.BaseExpression) -> set[str]:
    """The class names behind `Net(...)`, `Net.from_pretrained(...)`, with the bases that the program shows."""
    if isinstance(callee, cst.Attribute) and callee.attr.value in {"from_pretrained", "from_config"}:
        return {last_part(ctx.code(callee.value))}
    names: set[str] = set()
    for origin in ctx.origins(callee):
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


def can_be_inlined(draft: Draft, origin: Origin) -> bool:
    """Whether the names used where the policy is made mean the same at the constructor call."""
    if not isinstance(origin.node, cst.BaseExpression) or origin.file is not draft.file:
        return False
    scope = draft.file.scope(origin.node)
    near = scope is draft.file.scope(draft.call) or isinstance(scope, cst.Module)
    return near and draft.file.same_meaning(origin.node, draft.call)


def _words(origin: Origin) -> list[str]:
    return re.findall(r"\w+", origin.file.code(origin.node)) if origin.node is not None else []


def _is_policy_argument(draft: Draft, use: cst.Name) -> bool:
    ctx = draft.file
    if draft.spread.get(use) == "auto_wrap_policy":
        return True
    argument = ctx.parent(use)
    call = ctx.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(argument, cst.Arg) or not isinstance(call, cst.Call) or ctx.fsdp1(call.func) != WRAPPER:
        return False
    if argument.keyword is not None:
        return argument.keyword.value == "auto_wrap_policy"
    return call.args[POSITIONS.index("auto_wrap_policy") :][:1] == (argument,)


def last_part(dotted: str) -> str:
    return dotted.rsplit(".", 1)[-1]
