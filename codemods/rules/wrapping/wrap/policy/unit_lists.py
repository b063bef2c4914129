"""The list in which a model holds all its modules of one class: `self.blocks = nn.ModuleList(Block() for _ in …)`."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.shapes import only_target

from .....reading.code.enclosing import call_given, contains, enclosing, is_self
from .....reading.models.makeup import Makeup
from .....reading.units.policies import CLASS_POLICIES
from .....reading.wraps.manual import is_constructor
from .....reading.wraps.wrapped import wrapped_module

_EXCHANGED = ("_modules", "add_module", "register_module", "setattr", "set_submodule")
"""By which another module can come to stand in a list, or a module in another place."""
_AROUND = ("apply_activation_checkpointing", "checkpoint_wrapper", "CheckpointWrapper", "offload_wrapper")
"""What puts modules around those of a class."""


def list_of_units(
    ctx: Context, call: cst.Call, built: Makeup, element: Origin, asked: Collection[cst.CSTNode] = ()
) -> str | None:
    """The attribute of the model of a constructor call that holds every module of a class, and nothing else.

    None where some may be elsewhere, or may be wrapped in something else by then. `asked` are names of the class that
    do no more than ask for it.
    """
    definition = element.node
    if not isinstance(definition, cst.ClassDef) or ctx.mentions(*_EXCHANGED) or ctx.wrapping.compiles(ctx.path):
        return None
    around = [(where, name) for word in _AROUND for where, name in _named(ctx, word)]
    if not all(_is_below(*each, ctx, call) or _is_about_another(*each, ctx, call) for each in around):
        return None
    made = _only_made(element.file, definition, asked)
    if made is None:
        return None
    where, one = made
    owner = enclosing(where, one, cst.ClassDef)
    models = {origin.node for file, each in built.made for origin in file.origins(each.func)}
    held = _attribute(where, one)
    if owner is None or models != {owner} or held is None:
        return None
    return held.attr.value if _holds_for_good(where, owner, held, one) else None


def _named(ctx: Context, word: str) -> list[tuple[Context, cst.Name]]:
    """Where the program uses a name, imports left out."""
    found = [(where, name) for where in ctx.files(word) for name in where.nodes(cst.Name) if name.value == word]
    return [(where, name) for where, name in found if enclosing(where, name, cst.ImportFrom, cst.Import) is None]


def _is_below(where: Context, name: cst.Name, ctx: Context, call: cst.Call) -> bool:
    """Whether it stands below the constructor call in its function, and not in a loop with it."""
    if where.path != ctx.path or where.scope(name) is not ctx.scope(call):
        return False
    is_repeated = any(isinstance(node, (cst.For, cst.While)) for node in ctx.ancestors(call))
    return not is_repeated and ctx.span(call)[0] < where.span(name)[0]


def _is_about_another(where: Context, name: cst.Name, ctx: Context, call: cst.Call) -> bool:
    """Whether it checkpoints what another constructor call of the function wraps, and so nothing that this one may."""
    given = where.parent(name)
    asked = where.parent(given) if isinstance(given, cst.Arg) else given
    if not isinstance(asked, cst.Call) or (where.dotted(asked.func) or "").rpartition(".")[2] != _AROUND[0]:
        return False
    if where.path != ctx.path or where.scope(name) is not ctx.scope(call) or not asked.args:
        return False
    if any(isinstance(node, (cst.For, cst.While)) for node in ctx.ancestors(call)):
        return False
    wrapped = wrapped_module(call)
    for other in ctx.calls(ctx.scope(call)):
        holder = ctx.parent(other)
        if other is call or not is_constructor(ctx, other) or not isinstance(holder, cst.Assign):
            continue
        target, module = holder.targets[0].target, wrapped_module(other)
        if not isinstance(module, cst.Name) or not isinstance(wrapped, cst.Name) or module.value == wrapped.value:
            continue  # one may be a part of the other
        if len(holder.targets) == 1 and ctx.code(target) == ctx.code(asked.args[0].value):
            return ctx.span(other)[0] < ctx.span(asked)[0]
    return False


def _only_made(
    ctx: Context, definition: cst.ClassDef, asked: Collection[cst.CSTNode]
) -> tuple[Context, cst.Call] | None:
    """The one call that makes objects of a class; None where there are more, or may be."""
    made: list[tuple[Context, cst.Call]] = []
    for where, reference in ctx.references_to(definition):
        holder = where.parent(reference)
        if isinstance(holder, cst.Call) and holder.func is reference:
            made.append((where, holder))
        elif reference not in asked and not _only_asks(where, reference):
            return None
    return made[0] if len(made) == 1 else None


def _only_asks(ctx: Context, reference: cst.CSTNode) -> bool:
    """Whether a class is named for a policy, for `isinstance`, in an annotation or an import."""
    for node in ctx.ancestors(reference):
        if isinstance(node, (cst.Annotation, cst.Import, cst.ImportFrom)):
            return True
        if isinstance(node, cst.Call):
            asked = [node.func, *(argument.value for argument in node.args[:1])]
            is_policy = any(ctx.fsdp1(each) in CLASS_POLICIES for each in asked)
            return is_policy or (isinstance(node.func, cst.Name) and node.func.value == "isinstance")
        if isinstance(node, (cst.BaseStatement, cst.ClassDef)):
            return False
    return False


def _attribute(ctx: Context, made: cst.Call) -> cst.Attribute | None:
    """`self.blocks` of the only statement that a call stands in: a list of what it makes."""
    if isinstance(enclosing(ctx, made, cst.FunctionDef, cst.Lambda), cst.Lambda):
        return None
    holder = ctx.parent(made)
    if isinstance(holder, cst.Arg):  # self.blocks.append(Block())
        append = ctx.parent(holder)
        func = append.func if isinstance(append, cst.Call) else None
        if not isinstance(func, cst.Attribute) or func.attr.value != "append":
            return None
        return func.value if isinstance(func.value, cst.Attribute) else None
    if not isinstance(holder, (cst.GeneratorExp, cst.ListComp)) or holder.elt is not made:
        return None
    modules = call_given(holder, ctx)
    if modules is None or not _is_list(ctx, modules):
        return None
    target = only_target(ctx.parent(modules))
    return target if isinstance(target, cst.Attribute) else None


def _is_list(ctx: Context, node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and ctx.dotted(node.func) == "torch.nn.ModuleList"


def _holds_for_good(ctx: Context, owner: cst.ClassDef, held: cst.Attribute, made: cst.Call) -> bool:
    """Whether the attribute is that list in every object of the class, with nothing else in it."""
    if not is_self(held.value, ctx):
        return False
    sets = 0
    for where, node in ctx.attributes(held.attr.value):
        inside = where.path == ctx.path and contains(where, owner, node)
        own = is_self(node.value, where)
        if own and not inside:
            around = enclosing(where, node, cst.ClassDef)
            if around is None or _may_come_from(where, around):
                return False
            continue
        holder = where.parent(node)
        if isinstance(holder, cst.AssignTarget):
            assign = cst.ensure_type(where.parent(holder), cst.Assign)
            fills = isinstance(assign.value, cst.Call) and (not assign.value.args or contains(where, assign, made))
            is_list = fills and _is_list(where, assign.value) and _is_unconditional(where, assign)
            if not inside or not own or not is_list:
                return False
            sets += 1
        elif not _only_reads(where, node, holder, made):
            return False
    return sets == 1


def _may_come_from(ctx: Context, node: cst.ClassDef) -> bool:
    """Whether a class may be a subclass of the model's: its bases are not all of a library."""
    return any(ctx.dotted(base.value) is None for base in node.bases)


def _is_unconditional(ctx: Context, assign: cst.Assign) -> bool:
    """Whether it is a statement of `__init__` itself."""
    line = ctx.parent(assign)
    block = ctx.parent(line) if line is not None else None
    function = ctx.parent(block) if block is not None else None
    return isinstance(function, cst.FunctionDef) and function.name.value == "__init__"


_READS = frozenset(
    ("buffers", "children", "modules", "named_parameters", "parameters", "requires_grad_", "state_dict", "train")
)


def _only_reads(ctx: Context, node: cst.Attribute, holder: cst.CSTNode | None, made: cst.Call) -> bool:
    """Whether a use of the list leaves it as it is."""
    if isinstance(holder, (cst.ComparisonTarget, cst.For, cst.CompFor)):
        return not isinstance(holder, cst.For) or holder.iter is node
    if isinstance(holder, cst.Attribute):
        call = ctx.parent(holder)
        return holder.attr.value in _READS or (isinstance(call, cst.Call) and contains(ctx, call, made))
    if isinstance(holder, cst.Arg):
        call = ctx.parent(holder)
        return isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value in _BUILTINS
    if isinstance(holder, cst.Subscript):  # self.blocks[0](x)
        return not isinstance(ctx.parent(holder), (cst.AssignTarget, cst.AugAssign, cst.Del))
    return False


_BUILTINS = frozenset({"enumerate", "iter", "len", "list", "range", "reversed", "tuple", "zip"})
