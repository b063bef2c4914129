"""The text of the FSDP2 code for one draft, and where it goes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, NotStatic
from codemods.reading.code.enclosing import call_given, enclosing
from codemods.reading.code.places import bound_texts
from codemods.reading.code.shapes import annotation_of, called_on, front, is_call_to, only_target, went_over
from codemods.reading.code.words import is_name
from codemods.reading.edits.block_layout import extra_indent
from codemods.reading.edits.layout import line_before
from codemods.reading.edits.negation import negated
from codemods.reading.wraps.manual import block_of, context_of, is_constructor
from codemods.reading.wraps.wrapped import same_unit_inside, wrapped_module
from codemods.tables.names import PACKAGE, WRAPPER

from .argument_comments import kept_comments
from .draft import Draft, UnitSelector
from .other_classes import in_branches
from .places.one_test import other_side

_ARGUMENTS = {"offload_policy": "cpu_offload", "mp_policy": "mixed_precision", "**": "sharding_strategy"}
"""What arguments of `fully_shard` were to FSDP1."""

_STEPS = frozenset({"param_init_fn", "sync_module_states"})
"""What becomes a step before each call of `fully_shard`, where it is one."""
_IN_EVERY_CALL = frozenset({"cpu_offload", "sharding_strategy", *_STEPS})
"""What is said of them stands above the calls of `fully_shard`, where no statement is written for them."""

_Line = cst.SimpleStatementLine | cst.SimpleStatementSuite
_LINES = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
_CONDITIONAL = (cst.Lambda, cst.IfExp, cst.BooleanOperation, cst.BaseComp)


@dataclass(frozen=True, slots=True)
class Place:
    """The statement that holds the constructor call, and what it does with the result."""

    line: _Line
    target: str
    """The name or attribute the result is bound to; empty when it is used in another way."""
    direct: bool
    """Whether the call is the statement's whole value."""
    type: cst.Annotation | None = None
    """What the statement says of the target."""
    choice: cst.IfExp | None = None
    """`FSDP(model, …) if sharded else DDP(model)`, where that is the statement's whole value."""
    heads: tuple[str, ...] = ()
    """The loop that comes in its place, and the test in it."""


def place_of(ctx: Context, call: cst.Call) -> Place:
    """Raises NotStatic when no statement can be put before the call: in a lambda, a comprehension, a condition."""
    whole = _whole(ctx, call)
    repeated = _comprehension(ctx, whole, wrapped_module(_innermost(ctx, whole)))
    if repeated is not None:
        return repeated
    choice = _choice_of(ctx, whole)
    for node in ctx.ancestors(choice or call):
        if isinstance(node, _CONDITIONAL):
            raise NotStatic("the call is inside a lambda, a comprehension or a conditional expression")
        if isinstance(node, _LINES):
            break
        if isinstance(node, cst.BaseCompoundStatement):
            raise NotStatic("the call is in the head of a compound statement")
    else:
        raise NotStatic("the call stands in no statement")
    if len(node.body) != 1:
        raise NotStatic("several statements share the line")
    if sum(node is line for line in _statements_of_constructors(ctx, call)) > 1:
        raise NotStatic("another constructor call stands in the same statement")
    statement, value = node.body[0], choice or whole
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = statement.targets[0].target
        simple = isinstance(target, (cst.Name, cst.Attribute))
        name = ctx.code(target) if simple else ""
        return Place(node, name, statement.value is value, annotation_of(statement), choice)
    is_all = isinstance(statement, (cst.Assign, cst.Return, cst.Expr)) and statement.value is value
    return Place(node, "", is_all or is_put_back(ctx, call), choice=choice)


def _choice_of(ctx: Context, call: cst.Call) -> cst.IfExp | None:
    """The conditional expression with the call on one side, where it is all that is assigned or returned."""
    choice = ctx.parent(call)
    if not isinstance(choice, cst.IfExp) or choice.test is call or not is_constructor(ctx, call):
        return None
    holder = ctx.parent(choice)
    return choice if only_target(holder) is not None or isinstance(holder, cst.Return) else None


def _comprehension(ctx: Context, whole: cst.Call, module: cst.BaseExpression | None) -> Place | None:
    """`layers = nn.ModuleList(FSDP(layer) for layer in layers)`, also with None for some: a loop over them instead.

    One over `enumerate(layers)` as well.
    """
    element: cst.CSTNode = whole
    choice = ctx.parent(whole)
    if isinstance(choice, cst.IfExp) and choice.body is whole and is_name(choice.orelse, "None"):
        element = choice
    every = ctx.parent(element)
    if not isinstance(every, (cst.GeneratorExp, cst.ListComp)) or every.elt is not element:
        return None
    loop, holder = every.for_in, call_given(every, ctx)
    statement = ctx.parent(holder) if holder is not None else None
    line = ctx.parent(statement) if statement is not None else None
    is_plain = not loop.ifs and loop.inner_for_in is None and loop.asynchronous is None
    if not is_plain or holder is None or len(holder.args) != 1 or ctx.dotted(holder.func) != "torch.nn.ModuleList":
        return None
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or statement.value is not holder:
        return None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    layer, layers = went_over(loop)
    is_in_order = layers is loop.iter or (is_call_to(loop.iter, "enumerate") and layers is loop.iter.args[0].value)
    if not isinstance(layer, cst.Name) or not is_name(module, layer.value) or not is_in_order:
        return None  # it makes other layers
    if ctx.code(statement.targets[0].target) != ctx.code(layers):
        return None  # it makes another list
    heads = [f"for {ctx.quote(loop.target)} in {ctx.quote(loop.iter)}:"]
    heads += [f"if {ctx.quote(choice.test)}:"] if isinstance(choice, cst.IfExp) and element is choice else []
    return Place(line, "", True, heads=tuple(heads))


def _whole(ctx: Context, call: cst.Call) -> cst.Call:
    """The outermost of the calls around one module that have the same arguments, of which the inner one stays."""
    outer = call_given(call, ctx)
    return call if outer is None or same_unit_inside(ctx, outer) is not call else _whole(ctx, outer)


def _innermost(ctx: Context, call: cst.Call) -> cst.Call:
    """The one that stays of such calls."""
    inner = same_unit_inside(ctx, call)
    return call if inner is None else _innermost(ctx, inner)


def is_put_back(ctx: Context, call: cst.Call) -> bool:
    """`model.add_module(name, FSDP(child))` of `for name, child in model.named_children():`, where it is already."""
    put = call_given(call, ctx)
    if put is None or not isinstance(ctx.parent(put), cst.Expr):
        return False
    loop = enclosing(ctx, call, cst.For)
    walk = loop.iter if loop is not None else None
    model = called_on(put, "add_module")
    given = list(put.args)
    if is_name(put.func, "setattr") and len(given) == 3:
        model, given = given[0].value, given[1:]
    if model is None or loop is None or len(given) != 2 or given[1].value is not call or not call.args:
        return False
    walked = called_on(walk, "named_children")
    is_same = walked is not None and ctx.code(walked) == ctx.code(model)
    return is_same and list(bound_texts(loop.target, ctx)) == [ctx.code(given[0].value), ctx.code(call.args[0].value)]


def _statements_of_constructors(ctx: Context, call: cst.Call) -> list[_Line | None]:
    calls = [other for other in ctx.calls(ctx.scope(call)) if ctx.fsdp1(other.func) == WRAPPER]
    return [_line_around(ctx, other) for other in calls]


def is_repeatable(module: cst.BaseExpression) -> bool:
    """Whether the wrapped expression can be written again without making another module."""
    return isinstance(front(module), cst.Name)


def edits(made: Draft, place: Place) -> list[Edit]:
    """Replace the statement by the loop over the units and the call for the root."""
    indent = line_indent(made, place.line)
    start, end = made.file.span(place.line.body[0])
    if place.choice is not None:
        lines = _sides(place.choice, made, place, indent)
    elif place.heads:
        inner = _lines(made, place, indent + "    " * len(place.heads))
        deep = "    " * len(place.heads)
        lines = ["    " * depth + head for depth, head in enumerate(place.heads)]
        lines += [deep + line if line else line for line in inner]
    elif made.chosen is None:
        lines = _lines(made, place, indent)
    else:
        first, last = made.file.span(made.call)
        head = f"{place.target} = " if place.type is not None else made.file.quote_text(start, first)
        tail = made.file.quote_text(last, end)
        lines = in_branches(head, tail, _lines(made, place, indent + "    "), made)
    text = joined_lines(lines, indent, made.file)
    if isinstance(place.line, cst.SimpleStatementSuite):  # `if sharded: model = FSDP(model)` becomes a block
        start, text = len(made.file.text[:start].rstrip()), f"{made.file.newline}{indent}{text}"
    return [Edit(start, end, text)]


def _sides(choice: cst.IfExp, made: Draft, place: Place, indent: str) -> list[str]:
    """An `if`, with what the expression chose: one side with its statements, and the other as it was."""
    ctx = made.file
    is_first = choice.body is _whole(ctx, made.call)
    other = choice.orelse if is_first else choice.body
    (start, end), (first, last) = ctx.span(place.line.body[0]), ctx.span(choice)
    head = f"{place.target} = " if place.type is not None else ctx.quote_text(start, first)
    returns = isinstance(place.line.body[0], cst.Return)
    inner = "" if returns and not is_first else "    "
    sharded, rest = _lines(made, place, indent + inner), [f"{head}{ctx.quote(other)}{ctx.quote_text(last, end)}"]
    if ctx.code(other) == place.target:  # `model = FSDP(model) if sharded else model`
        return [f"if {ctx.quote(choice.test) if is_first else negated(choice.test, ctx)}:", *_indented(sharded)]
    yes, no = (sharded, rest) if is_first else (rest, sharded)
    return [f"if {ctx.quote(choice.test)}:", *_indented(yes), *(no if returns else ["else:", *_indented(no)])]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def root_call(made: Draft) -> str:
    """`fully_shard(model, …)` in the place of the constructor call."""
    ctx = made.file
    start = ctx.span(made.call)[0]
    line = ctx.text[ctx.text.rfind("\n", 0, start) + 1 : start]
    text = _call(made, {**made.root_kwargs, **made.common_kwargs}, "", len(line))
    indent = line[: len(line) - len(line.lstrip())]
    return joined_lines(text.split("\n"), indent[_taken_out(made) :], ctx)


def partial_of(made: Draft) -> str:
    """`partial(fully_shard, …)` in the place of `partial(FSDP, …)`; `fully_shard` itself where nothing is given.

    A function that stands in a class would take the object first, which a partial does not.
    """
    ctx, call = made.file, made.call
    function, given = made.imported(PACKAGE, "fully_shard"), _keywords({**made.root_kwargs, **made.common_kwargs})
    is_method = isinstance(ctx.scope(call), cst.ClassDef) and call_given(call, ctx) is None
    return f"{ctx.quote(call.func)}({', '.join([function, *given])})" if given or is_method else function


def body_of_function(made: Draft, indent: str) -> list[str]:
    """The lines of a function of the model."""
    width = len(indent) + 4
    lines, root = _above_root(made, width)
    call = _call(made, root, "", width)
    if not made.after and made.has_root:
        return [*lines, *f"return {call}".split("\n")]
    sharded = [call] if made.has_root else []
    return [*lines, *"\n".join([*sharded, *made.after, f"return {made.model}"]).split("\n")]


def _lines(made: Draft, place: Place, indent: str) -> list[str]:
    width = len(indent)
    if made.helper:
        return [f"{made.helper}({made.model}{made.helper_arguments})"]
    lines, root = _above_root(made, width)
    final = _final(made, place, root, width)
    return [*lines, *(final.split("\n") if final else [])]


def body_of_root(made: Draft, indent: str = "") -> list[str]:
    """The lines that shard the units, and the root, with nothing that is returned, in a function of their own."""
    width = len(indent) + 4
    lines, root = _above_root(made, width)
    call = _call(made, root, "", width).split("\n")
    return [*lines, *call, *(each for text in made.after for each in text.split("\n"))]


def _above_root(made: Draft, width: int) -> tuple[list[str], dict[str, str]]:
    """What stands above the call of `fully_shard` for the root, and its arguments."""
    made = _with_value_used_once(made)
    named, common = _named_values(made, width) if made.selector is not None else ([], made.common_kwargs)
    choice = other_side(made, named)
    blocks = [*(block for block in made.before if block is not choice), *named]
    comments = kept_comments(made)
    sources = [made.written_for.get(block, "") for block in blocks]
    places = {*sources, *(["auto_wrap_policy"] if made.selector is not None else [])} - {""}
    told = [each for each in comments if each.argument not in places]
    late = _IN_EVERY_CALL if made.unit_steps else _IN_EVERY_CALL - _STEPS
    lines = [each.told for each in told if each.argument not in late]
    for index, block in enumerate(blocks):
        is_first = sources.index(sources[index]) == index
        lines += [each.text for each in comments if is_first and each.argument == sources[index] != ""]
        lines += block.split("\n")
    lines += [each.told for each in told if each.argument in late]
    unit, root = {**made.unit_kwargs, **common}, {**made.root_kwargs, **common}
    if made.selector is not None:
        selector = replace(made.selector, guard="") if choice else made.selector
        above = [each.text for each in comments if each.argument == "auto_wrap_policy"]
        loop = [*above, *made.unit_comments, *_loop(made, selector, unit, width + 4 * bool(choice))]
        lines += [*choice.split("\n"), "else:", *(f"    {line}" for line in loop)] if choice else loop
    lines.extend(_steps(made, made.model, ""))
    return lines, root


def _with_value_used_once(made: Draft) -> Draft:
    """The mesh, or the dict, that the root's call alone takes goes into it, where other models have another one."""
    if not made.before or made.selector is not None or made.is_alone or made.after or made.unit_steps:
        return made
    last = made.before[-1]
    for key in ("mesh", "**"):
        target = f"{made.common_kwargs[key]} = " if key in made.common_kwargs else "\n"
        common = {**made.common_kwargs, key: last.removeprefix(target)}
        is_short = last.startswith(target) and "\n" not in last and last not in made.lent
        if is_short and made.fits(_call(made, {**made.root_kwargs, **common}, "", 0)):
            return replace(made, before=made.before[:-1], common_kwargs=common)
    return made


def call_lines(made: Draft) -> int:
    """How many lines the arguments of units and root take, where each is spelled out for both."""
    width = len(line_indent(made, _line(made)))
    named, common = _named_values(made, width)
    depth = 8 if made.selector is not None and not made.selector.units else 4
    unit = _call(made, {**made.unit_kwargs, **common}, " " * depth, width, "module")
    root = _call(made, {**made.root_kwargs, **common}, "", width)
    return len("\n".join(named).split("\n")) * bool(named) + len(unit.split("\n")) + len(root.split("\n"))


def _line_around(ctx: Context, call: cst.Call) -> _Line | None:
    return next((node for node in ctx.ancestors(call) if isinstance(node, _LINES)), None)


def _line(made: Draft) -> _Line:
    line = _line_around(made.file, made.call)
    if line is None:
        raise NotStatic("the call stands in no statement")
    return line


def _named_values(made: Draft, width: int) -> tuple[list[str], dict[str, str]]:
    """The arguments that units and root share, computed once where a call with all of them is too long for a line."""
    if "\n" not in _call(made, {**made.unit_kwargs, **made.common_kwargs}, " " * 8, width):
        return [], made.common_kwargs
    blocks, common = [], dict(made.common_kwargs)
    for name, value in made.common_kwargs.items():
        text = made.file.plain(value)
        if "\n" in text or not {"(", " "} & set(text):
            continue
        common[name] = made.fresh("fsdp_kwargs", "shard_kwargs") if name == "**" else made.fresh(name, f"fsdp_{name}")
        blocks.append(in_brackets(common[name], value, made))
        made.written_for.setdefault(blocks[-1], _ARGUMENTS.get(name, ""))
    return blocks, common


def in_brackets(target: str, value: str, made: Draft) -> str:
    """`target = value`, what is in the brackets on a line of its own where it would be too long for one line."""
    line = f"{target} = {value}"
    if "\n" in value or made.fits(line):
        return line
    function, _, arguments = value.partition("(")
    is_call = function.isidentifier() and _closes_at_the_end(arguments)
    return f"{target} = {function if is_call else ''}(\n    {arguments[:-1] if is_call else value}\n)"


def _closes_at_the_end(arguments: str) -> bool:
    """Whether the bracket in front of a text is closed by its last character: not in `) if cond else other()`."""
    depth = 1
    for index, character in enumerate(arguments):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return index == len(arguments) - 1
    return False


def _loop(made: Draft, selector: UnitSelector, kwargs: dict[str, str], width: int) -> list[str]:
    """The loop that shards the units, children first."""
    module = made.fresh(selector.item, "fsdp_unit") if selector.units else made.fresh("module", "submodule", "layer")
    own = {**{name: kwargs.get(name, text) for name, text in made.common_kwargs.items()}, **made.float32_kwargs}
    in_float32 = [*_if("if", _float32_test(made, selector, module), made, width), *_shard(made, module, own, 2, width)]
    if selector.units:
        lines = [f"for {module} in {selector.units}:", *_shard(made, module, kwargs, 1, width)]
        if made.float32_class:
            lines = [lines[0], *in_float32, "    else:", *_shard(made, module, kwargs, 2, width)]
        return _guarded(selector, lines)
    everything = f"{made.model}.modules()"
    if selector.nested or made.float32_class:
        # An initialisation draws its random numbers in FSDP1's order, which the reversed one is not.
        ordered = made.draws and made.imported(SUPPORT, "post_order")
        everything = f"{ordered}({made.model})" if ordered else f"reversed(list({everything}))"
    if selector.own:
        return _guarded(selector, _with_own(made, selector, module, everything, kwargs, width))
    lines = [
        f"for {module} in {everything}:",
        *(in_float32 if made.float32_class else []),
        *_if("elif" if made.float32_class else "if", _unit_test(made, selector, module), made, width),
        *_shard(made, module, kwargs, 2, width),
    ]
    if selector.marks:
        asked = selector.marks.format(module=module)
        lines = [f"for {module} in {made.model}.modules():  # the policy marks parts of some", f"    {asked}", *lines]
    return _guarded(selector, lines)


def _with_own(
    made: Draft, selector: UnitSelector, module: str, everything: str, kwargs: dict[str, str], width: int
) -> list[str]:
    """The loop where a function gives each unit arguments of its own."""
    own = made.fresh("unit_kwargs", "own_kwargs")
    usual = {name: text for name, text in kwargs.items() if name in selector.owned or name == "**"}
    merged = [f"**{text}" if name == "**" else f'"{name}": {text}' for name, text in usual.items()]
    given = f"{{{', '.join([*merged, f'**{own}'])}}}" if merged else own
    kwargs = {**{name: text for name, text in kwargs.items() if name not in usual}, "**": given}
    return [
        f"for {module} in {everything}:",
        f"    {own} = {selector.own.format(module=module)}",
        *_if("if", [*_unit_test(made, selector, module), f"{own} is not None"], made, width),
        *_shard(made, module, kwargs, 2, width),
    ]


def _if(keyword: str, parts: list[str], made: Draft, width: int) -> list[str]:
    """The head of an `if` inside of the loop, a condition a line where they are too many for one."""
    line = f"    {keyword} {' and '.join(parts)}:"
    if width + len(made.file.plain(line)) <= made.file.width or len(parts) == 1:
        return [line]
    return [f"    {keyword} (", f"        {parts[0]}", *(f"        and {part}" for part in parts[1:]), "    ):"]


def _guarded(selector: UnitSelector, lines: list[str]) -> list[str]:
    return [f"if {selector.guard}:", *("    " + line for line in lines)] if selector.guard else lines


def _shard(made: Draft, unit: str, kwargs: dict[str, str], depth: int, width: int) -> list[str]:
    """`fully_shard` of one unit, and what is done to it before."""
    prefix = " " * 4 * depth
    return [*_steps(made, unit, prefix), *_call(made, kwargs, prefix, width, unit).split("\n")]


def _steps(made: Draft, module: str, prefix: str) -> list[str]:
    """What is done to a unit before it is sharded."""
    return [prefix + line for step in made.unit_steps for line in step.format(module=module).split("\n")]


def _float32_test(made: Draft, targets: UnitSelector, module: str) -> list[str]:
    """What the loop asks of a module that mixed precision may have left in float32."""
    own = replace(targets, test="", may_be_root=False, may_be_container=False)
    asked = [] if targets.units else _unit_test(made, own, module)
    return [*asked, f"isinstance({module}, {made.float32_class})"]


def _unit_test(made: Draft, targets: UnitSelector, module: str) -> list[str]:
    """What the loop asks of a module."""
    parts = [f"{module} is not {made.model}"] if targets.may_be_root else []
    if made.ignored_modules:
        parts.append(f"{module} not in {made.ignored_modules}")
    if targets.may_be_container:
        nn = made.imported("torch", "nn")
        parts.append(f"not isinstance({module}, ({nn}.ModuleList, {nn}.ModuleDict))")
    if targets.test:
        parts.append(targets.test.format(module=module))
    return parts


def is_in_place(made: Draft) -> bool:
    """Whether nothing of the statement stays but what shards the model, which is made above."""
    try:
        place = place_of(made.file, made.call)
    except NotStatic:
        return False
    return place.choice is None and is_repeatable(made.module) and _is_in_place(made, place)


def _is_in_place(made: Draft, place: Place) -> bool:
    is_same = place.target == made.file.plain(made.model)
    return place.direct and (bool(place.heads) or isinstance(place.line.body[0], cst.Expr) or is_same)


def _final(made: Draft, place: Place, root: dict[str, str], width: int) -> str:
    ctx = made.file
    sharded = [_call(made, root, "", width)] if made.has_root else []
    statement = place.line.body[0]
    whole = place.choice or _whole(ctx, made.call)
    if _is_in_place(made, place):
        return "\n".join([*sharded, *made.after])
    if place.direct and not made.after and sharded:
        return ctx.quote_text(ctx.span(statement)[0], ctx.span(whole)[0]) + sharded[0]
    start, end = ctx.span(statement)
    inner_start, inner_end = ctx.span(whole)
    head = _other_targets(made, statement) or ctx.quote_text(start, inner_start)
    return "\n".join([*sharded, *made.after, head + made.model + ctx.quote_text(inner_end, end)])


def _other_targets(made: Draft, statement: cst.BaseSmallStatement) -> str:
    """`self.net = ` of `self.net = model = FSDP(model)`, where `model` is that already."""
    targets = [target.target for target in statement.targets] if isinstance(statement, cst.Assign) else []
    others = [each for each in targets if made.file.code(each) != made.file.plain(made.model)]
    return "".join(f"{made.file.quote(each)} = " for each in others) if len(others) < len(targets) else ""


def _call(made: Draft, keywords: dict[str, str], prefix: str, width: int, module: str = "") -> str:
    function = made.imported(PACKAGE, "fully_shard")
    arguments = [module or made.model, *_keywords(keywords)]
    line = f"{prefix}{function}({', '.join(arguments)})"
    if len(made.file.plain(line)) + width <= made.file.width:
        return line
    inner = f"{prefix}    {', '.join(arguments)}\n"
    if "\n" in made.file.plain(inner[:-1]) or len(made.file.plain(inner)) - 1 + width > made.file.width:
        indent = f"{prefix}    "
        inner = "".join(indent + argument.replace("\n", f"\n{indent}") + ",\n" for argument in arguments)
    return f"{prefix}{function}(\n{inner}{prefix})"


def _keywords(keywords: dict[str, str]) -> list[str]:
    named = [f"{name}={value}" for name, value in keywords.items() if name != "**"]
    return [*named, *(f"**{value}" for name, value in keywords.items() if name == "**")]


def line_indent(made: Draft, line: _Line) -> str:
    """How far in a statement stands when it is written: behind a colon, in a block of its own."""
    is_behind_colon = isinstance(line, cst.SimpleStatementSuite)
    before = line_before(made.file, line.body[0])
    indent = before[: len(before) - len(before.lstrip())] + (made.file.indent if is_behind_colon else "")
    return indent[_taken_out(made) :]


def _taken_out(made: Draft) -> int:
    """How many characters the statement goes out with the `enable_wrap` that it stands in."""
    context = context_of(made.file, made.call)
    block = block_of(made.file, context) if context is not None else None
    return extra_indent(made.file, block) if block is not None else 0


def joined_lines(lines: list[str], indent: str, ctx: Context) -> str:
    # A class in tabs, in a file that otherwise has spaces, goes on in tabs.
    unit = "\t" if indent and not indent.strip("\t") else ctx.indent
    written = []
    for line in lines:
        body = line.lstrip(" ")
        depth = (len(line) - len(body)) // 4
        written.append(unit * depth + body)
    first, *rest = written
    return first + "".join(ctx.newline + (indent + line if line else "") for line in rest)
