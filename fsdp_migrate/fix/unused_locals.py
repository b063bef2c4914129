"""`mp = MixedPrecision(...)` of a function goes when the edits took its last use, so does `state = torch.load(path)`;
of `state = ask(path)`, whose call may do more, the name alone.

At the top of a file only settings of FSDP1 go, which no other program of the tree can want any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from codemods.api import Context, Edit, Fix
from codemods.reading.code.enclosing import is_label
from codemods.reading.edits.layout import removal

from ..edit.apply import Rendered
from ..pyanalysis.tree import Tree
from .collect import Collected, is_left
from .conversions import is_conversion

_READS_LOCALS = frozenset({"eval", "exec", "locals", "vars"})

_LOOKS_UP = frozenset({"bool", "float", "getattr", "hasattr", "int", "isinstance", "len", "str", "type"})
_LOAD = "torch.load"
_MAKES_A_VALUE = frozenset(
    {
        *("dict", "list", "set", "tuple", "frozenset", "functools.partial"),
        *("callable", "isinstance", "issubclass"),
        *("torch.cuda.current_device", "torch.cuda.device_count", "torch.device", "torch.load"),
        *("torch.distributed.get_rank", "torch.distributed.get_world_size"),
    }
)
"""`torch.load` reads a file: nobody reads one for nothing."""
_PLAIN = (
    cst.Name,
    cst.Integer,
    cst.Float,
    cst.SimpleString,
    cst.ConcatenatedString,
    cst.FormattedString,
    cst.FormattedStringExpression,
    cst.FormattedStringText,
    cst.IfExp,
    cst.BooleanOperation,
    cst.UnaryOperation,
    cst.Comparison,
    cst.ComparisonTarget,
    cst.Attribute,
    cst.Tuple,
    cst.List,
    cst.Set,
    cst.Dict,
    cst.Element,
    cst.DictElement,
    cst.Arg,
)
"""What values consist of that can be made, or not made, without a difference."""


def unused_locals(file: Context, made: Collected) -> Iterator[Fix]:
    """One fix after the other: a variable can be all that uses another one."""
    tried: set[tuple[cst.CSTNode, str]] = set()
    while True:
        rendered = made.rendered(file)
        lost = dict.fromkeys(each for each in _lost_uses(file, made, rendered) if each not in tried)
        if not lost:
            return
        tried.update(lost)
        bound = {(scope, name): _statements(file, scope, name, rendered) for scope, name in lost}
        bound = {each: gone for each, gone in bound.items() if gone}
        if not bound:
            continue
        try:
            tree = Tree(file.path, rendered.text)
        except cst.ParserSyntaxError:  # it is reported when the files are written
            return
        for (scope, name), gone in bound.items():
            if gone and not is_read(tree, path_of(file, scope), name):
                yield Fix(edits=_removals(file, gone, made.wanted[file.path].edits))


_Scope = cst.FunctionDef | cst.Module
_WHY = "  # an unknown name is an error"


def _lost_uses(file: Context, made: Collected, rendered: Rendered) -> Iterator[tuple[_Scope, str]]:
    """The names that are read in a place which is gone, with the function that binds them, or the file."""
    edits = sorted((edit.start, edit.end) for edit in made.wanted[file.path].edits if edit.start < edit.end)
    if not edits:
        return
    furthest = 0
    starts = iter(edits)
    following = next(starts, None)
    for name in file.nodes(cst.Name):
        start, end = file.span(name)
        while following is not None and following[0] <= start:
            furthest = max(furthest, following[1])
            following = next(starts, None)
        if end <= furthest and is_read_at(file, name) and not is_left(file, name, rendered):
            function = file.scope(name)
            if isinstance(function, cst.FunctionDef) and file.is_local(name.value, name):
                yield function, name.value
            elif not file.is_read_elsewhere(name.value) and not _is_said(file, name.value):
                yield file.top, name.value


def _is_said(file: Context, name: str) -> bool:
    """Whether it is in `__all__`, or asked for by a text."""
    return any(text.raw_value == name for text in file.nodes(cst.SimpleString))


def _statements(file: Context, scope: _Scope, name: str, rendered: Rendered) -> list[cst.SimpleStatementLine] | None:
    """All that bind a variable; None where one of them does more, or the variable is read otherwise."""
    found: list[cst.SimpleStatementLine] = []
    for node in file.inside(scope):
        if reads_locals(node):
            return None
        if not isinstance(node, cst.Name) or node.value != name or is_label(node, file):
            continue
        if is_read_at(file, node):
            if is_left(file, node, rendered):
                return None
            continue
        statement = _binding(file, node)
        if statement is None or file.scope(node) is not scope:
            return None
        if scope is file.top and not _is_setting(file, _value(statement)):
            return None
        found.append(statement)
    return [statement for statement in found if is_left(file, _target(statement), rendered)]


def reads_locals(node: cst.CSTNode) -> bool:
    """`locals()`, `eval(text)`, `vars()`: `vars(args)` reads another object's."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or node.func.value not in _READS_LOCALS:
        return False
    return node.func.value != "vars" or not node.args


def _binding(file: Context, target: cst.Name) -> cst.SimpleStatementLine | None:
    """`name = value` that does nothing but this."""
    holder = file.parent(target)
    assignment = file.parent(holder) if isinstance(holder, cst.AssignTarget) else None
    line = file.parent(assignment) if assignment is not None else None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    if not isinstance(assignment, cst.Assign) or len(assignment.targets) != 1:
        return None
    value = assignment.value
    return line if _is_run(value) or is_plain(file, value) or _refuses_names(file, value) else None


def _refuses_names(file: Context, value: cst.BaseExpression) -> bool:
    """`getattr(ShardingStrategy, name)`, `ShardingStrategy[name]`: where a name that is none is told."""
    table: cst.BaseExpression | None = None
    if isinstance(value, cst.Subscript):
        table = value.value
    elif isinstance(value, cst.Call) and len(value.args) == 2 and file.code(value.func) == "getattr":
        table = value.args[0].value
    return table is not None and _is_setting(file, table)


def _is_run(value: cst.BaseExpression) -> bool:
    """Whether a call says by itself that it does something: `getattr(table, name)` without a name looks like a slip."""
    return isinstance(value, cst.Call) and not (isinstance(value.func, cst.Name) and value.func.value in _LOOKS_UP)


def _value(line: cst.CSTNode) -> cst.BaseExpression | None:
    """What a statement assigns."""
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    return small.value if isinstance(small, cst.Assign) else None


def _target(line: cst.SimpleStatementLine) -> cst.Name:
    return cst.ensure_type(cst.ensure_type(line.body[0], cst.Assign).targets[0].target, cst.Name)


def is_plain(file: Context, value: cst.BaseExpression) -> bool:
    return all(
        isinstance(node, _PLAIN)
        or not isinstance(node, (cst.BaseExpression, cst.BaseElement))
        or _is_named_item(node)
        or _makes(file, node)
        for node in file.inside(value)
    )


def _is_named_item(node: cst.CSTNode) -> bool:
    """`state["model"]`, which looks up as an attribute does; `loader[0]` may read a file, and draw numbers."""
    at = node.slice[0].slice if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    return isinstance(at, cst.Index) and isinstance(at.value, cst.SimpleString)


def _makes(file: Context, node: cst.CSTNode) -> bool:
    """Whether a call makes a plain object: FSDP1's settings, Python's own containers, what a member stands for."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, (cst.Name, cst.Attribute)):
        return False
    if isinstance(node.func, cst.Name) and node.func.value in _MAKES_A_VALUE:
        return True
    made = file.dotted(node.func) or ""
    if made == _LOAD and _reads_on(file, node):
        return False
    if not made and _looks_up_with_default(node):
        return True
    if made in _MAKES_A_VALUE or (made.startswith(_FSDP) and made.rpartition(".")[2] in _SETTINGS):
        return True
    return is_conversion(node, file)


def _looks_up_with_default(call: cst.Call) -> bool:
    """`settings.get("name", None)`: neither a store over a network nor a queue is asked like this."""
    named = [argument.value for argument in call.args if argument.keyword is None and not argument.star]
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "get" or len(named) != len(call.args):
        return False
    return len(named) == 2 and isinstance(named[0], cst.SimpleString)


def _reads_on(file: Context, load: cst.Call) -> bool:
    """Whether another load may go on where this one ended, in one open file."""
    read = [file.code(argument.value) for argument in load.args[:1]]
    calls = (each for each in file.inside(file.scope(load)) if isinstance(each, cst.Call) and each is not load)
    return any(file.code(argument.value) in read for call in calls for argument in call.args[:1])


def _is_setting(file: Context, value: cst.BaseExpression | None) -> bool:
    """`MixedPrecision(...)`, `StateDictType.FULL_STATE_DICT`."""
    named = value.func if isinstance(value, cst.Call) else value
    made = file.dotted(named) if isinstance(named, (cst.Name, cst.Attribute)) else None
    return made is not None and made.startswith(_FSDP) and not _SETTINGS.isdisjoint(made.split("."))


_FSDP = "torch.distributed.fsdp."
_SETTINGS = frozenset(
    {
        "BackwardPrefetch",
        "CPUOffload",
        "FullOptimStateDictConfig",
        "FullStateDictConfig",
        "LocalStateDictConfig",
        "MixedPrecision",
        "ShardedOptimStateDictConfig",
        "ShardedStateDictConfig",
        "ShardingStrategy",
        "StateDictType",
    }
)


def _removals(file: Context, gone: Collection[cst.CSTNode], edits: Collection[Edit]) -> list[Edit]:
    """The edits that take statements away, and each `if` that only chose between them; a call that does more stays.

    What stands beside them may have gone already, by the other `edits`.
    """
    cuts = [(edit.start, edit.end) for edit in edits if edit.start < edit.end and not edit.text]
    values = {line: value for line in gone if (value := _value(line)) is not None}
    run = {line: value for line, value in values.items() if not is_plain(file, value)}
    left = dict.fromkeys(line for line in gone if line not in run)
    for line in [*left]:
        choice = _choice(file, line)
        while choice is not None and _is_emptied(file, choice, left, cuts):
            for inner in [each for each in left if each in set(file.inside(choice))]:
                del left[inner]
            left[choice] = None
            choice = _choice(file, choice)
    if any(_is_alone(file, statement, cuts) for statement in left):
        return []
    unnamed = [Edit(file.span(line)[0], file.span(value)[0], "") for line, value in run.items()]
    said = [Edit(*2 * (file.span(line)[1],), _WHY) for line, value in run.items() if _refuses_names(file, value)]
    return [*unnamed, *said, *(removal(file, statement) for statement in left)]


def _choice(file: Context, statement: cst.CSTNode) -> cst.If | None:
    """The whole `if` that a statement is a branch of."""
    block = file.parent(statement)
    outer = file.parent(block) if isinstance(block, cst.IndentedBlock) else None
    if isinstance(outer, cst.Else):
        outer = file.parent(outer)
    while isinstance(outer, cst.If) and isinstance(file.parent(outer), cst.If):
        outer = file.parent(outer)
    return outer if isinstance(outer, cst.If) else None


_Spans = Collection[tuple[int, int]]


def _is_emptied(file: Context, choice: cst.If, gone: Collection[cst.CSTNode], cuts: _Spans) -> bool:
    def is_empty(block: cst.BaseSuite) -> bool:
        return all(line in gone or _is_cut(file, line, cuts) for line in block.body)

    if not is_plain(file, choice.test) or not is_empty(choice.body):
        return False
    if isinstance(choice.orelse, cst.If):
        return _is_emptied(file, choice.orelse, gone, cuts)
    return choice.orelse is None or is_empty(choice.orelse.body)


def _is_alone(file: Context, statement: cst.CSTNode, cuts: _Spans) -> bool:
    """Whether its block would be left empty."""
    block = file.parent(statement)
    if not isinstance(block, cst.IndentedBlock):
        return False
    return all(line is statement or _is_cut(file, line, cuts) for line in block.body)


def _is_cut(file: Context, line: cst.CSTNode, cuts: _Spans) -> bool:
    first, last = file.span(line)
    return any(start <= first and last <= end for start, end in cuts)


def is_read_at(file: Context, name: cst.Name) -> bool:
    parent = file.parent(name)
    if isinstance(parent, cst.AnnAssign):
        return parent.target is not name
    binds = (cst.AssignTarget, cst.Param, cst.FunctionDef, cst.ClassDef, cst.Global, cst.Nonlocal, cst.AsName)
    if isinstance(parent, (*binds, cst.ImportAlias, cst.NameItem, cst.AugAssign)):
        return False
    return not is_label(name, file)


def path_of(file: Context, scope: _Scope) -> tuple[str, ...]:
    """`("Trainer", "save")`; nothing for the file."""
    around = [] if isinstance(scope, cst.Module) else [scope, *file.ancestors(scope)]
    named = [node.name.value for node in around if isinstance(node, (cst.FunctionDef, cst.ClassDef))]
    return tuple(reversed(named))


def is_read(tree: Tree, path: tuple[str, ...], name: str) -> bool:
    """Whether the new text of a function, or of the file, reads a name."""
    for node in tree.names(name):
        outer = [each for each in tree.ancestors(node) if isinstance(each, (cst.FunctionDef, cst.ClassDef))]
        parent = tree.parents.get(node)
        inside = tuple(each.name.value for each in reversed(outer))[: len(path)] == path
        is_label = (isinstance(parent, cst.Attribute) and parent.attr is node) or (
            isinstance(parent, cst.Arg) and parent.keyword is node
        )
        binds = isinstance(parent, cst.AssignTarget) or (isinstance(parent, cst.AnnAssign) and parent.target is node)
        binds = binds or (isinstance(parent, cst.Param) and parent.name is node)
        if inside and not is_label and not binds:
            return True
    return False
