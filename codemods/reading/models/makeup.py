"""What the model of one constructor call is made of: the classes that it is seen to build, and what they build.

What another model of the same program holds says nothing about this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from codemods.api import Context

from ..code.scripts import is_test
from ..code.shapes import annotation_of, is_call_to
from ..wraps.wrapped import wrapped_module

_MOST = 300
"""How many classes and functions are read for one model."""

_KNOWN = ("torch.", "builtins.", "collections.", "functools.", "itertools.", "math.", "typing.", "abc.")
"""Libraries whose classes hold no modules but those that are named."""


_BY_NAME = frozenset({"hydra.utils.instantiate", "importlib.import_module"})
_TRANSFORMER = "timm.models.vision_transformer.VisionTransformer"
_TRANSFORMERS = ("deit", "vit_")
"""How timm's names of those models begin."""


@dataclass
class Makeup:
    """The classes of one model, as far as the program shows them."""

    classes: list[tuple[Context, cst.ClassDef]] = field(default_factory=list)
    made: list[tuple[Context, cst.Call]] = field(default_factory=list)
    """The calls that make the model itself."""
    from_libraries: set[str] = field(default_factory=set)
    """What it takes from libraries: `torch.nn.BatchNorm2d`, `timm.create_model`."""
    is_whole: bool = True
    """Whether all its classes are seen."""

    @property
    def is_seen(self) -> bool:
        """Whether any of it is seen."""
        return bool(self.from_libraries or self.classes)

    @property
    def is_by_name(self) -> bool:
        """Whether a part may be of a class that run time finds by its name."""
        return not self.from_libraries.isdisjoint(_BY_NAME)


def makeup(ctx: Context, call: cst.Call) -> Makeup:
    """What the model of a constructor call is made of."""
    found = Makeup()
    module = wrapped_module(call)
    if module is None:
        found.is_whole = False
        return found
    seen: set[cst.CSTNode] = set()
    for origin in ctx.origins(module):
        if origin.node is call:
            continue  # `self.model = FSDP(self.model)`: what is wrapped, once more
        if isinstance(origin.node, cst.Call):
            found.made.append((origin.file, origin.node))
            _read_call(origin.file, origin.node, found, seen)
            if not found.is_seen:
                found.is_whole = False
        elif not origin.is_none:
            found.is_whole = False
    if found.made and not is_test(ctx.path) and all(is_test(where.path) for where, _ in found.made):
        found.is_whole = False  # a library: what its users wrap is not what its tests do
    return found


def may_hold(ctx: Context, definition: cst.ClassDef) -> set[cst.CSTNode]:
    """The classes of which an object of a class may hold some: what it makes, what that makes, what it is given."""
    found, seen = Makeup(), set[cst.CSTNode]()
    _read_bases(ctx, definition, found, seen)
    _read_inside(ctx, definition.body, found, seen)
    for where, call in ctx.called_as_named(definition):
        for argument in call.args:
            _read_inside(where, argument.value, found, seen)
            for origin in where.origins(argument.value):
                if isinstance(origin.node, cst.Call):
                    _read_call(origin.file, origin.node, found, seen)
    return {node for _, node in found.classes}


def _read_call(ctx: Context, call: cst.Call, found: Makeup, seen: set[cst.CSTNode]) -> None:
    """What a call makes, and what it is given."""
    _read_name(ctx, call.func, found, seen, is_called=True)
    for argument in call.args:
        _read_inside(ctx, argument.value, found, seen)


def _read_inside(ctx: Context, node: cst.CSTNode, found: Makeup, seen: set[cst.CSTNode]) -> None:
    for inner in ctx.inside(node):
        said = _said(ctx, inner)
        if said is not None:
            found.from_libraries.add(said)
            found.is_whole = False
        elif isinstance(inner, cst.Call):
            _read_name(ctx, inner.func, found, seen, is_called=True)
        for value in () if _is_of_super(ctx, inner) else _values(inner):
            _read_name(ctx, value, found, seen, is_called=False)


def _said(ctx: Context, node: cst.CSTNode) -> str | None:
    """The class that the program says a library's call makes: `vit: VisionTransformer = timm.create_model(name)`, or
    `timm.create_model("vit_base_patch16_224")`.
    """
    if not isinstance(node, cst.Call) or ctx.dotted(node.func) is None:
        return None
    statement = ctx.parent(node)
    annotation = annotation_of(statement) if isinstance(statement, cst.Assign) else None
    if annotation is not None:
        return ctx.dotted(annotation.annotation)
    name = node.args[0].value if node.args and ctx.dotted(node.func) == "timm.create_model" else None
    text = name.raw_value if isinstance(name, cst.SimpleString) else ""
    return _TRANSFORMER if text.startswith(_TRANSFORMERS) and "resnet" not in text else None


def _is_of_super(ctx: Context, node: cst.CSTNode) -> bool:
    """`super(Block, self)` names the class without making one."""
    call = ctx.parent(node) if isinstance(node, cst.Arg) else None
    return isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == "super"


def _values(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """A class that is passed on: `norm_layer=nn.BatchNorm2d`, as an argument, a default or an item of a dict."""
    given: cst.BaseExpression | None = None
    if isinstance(node, (cst.Arg, cst.DictElement, cst.Element)):
        given = node.value
    elif isinstance(node, cst.Param):
        given = node.default
    elif isinstance(node, (cst.Assign, cst.AnnAssign)):
        given = node.value
    name = given.attr.value if isinstance(given, cst.Attribute) else given.value if isinstance(given, cst.Name) else ""
    if given is not None and name[:1].isupper() and not name.isupper() and name not in {"True", "False", "None"}:
        yield given


def _read_name(
    ctx: Context, node: cst.BaseExpression, found: Makeup, seen: set[cst.CSTNode], *, is_called: bool
) -> None:
    dotted = ctx.dotted(node)
    if dotted is not None:
        found.from_libraries.add(dotted)
        if is_called and not dotted.startswith(_KNOWN) and _makes_modules(dotted):
            found.is_whole = False
        return
    origins = ctx.origins(node) if isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)) else ()
    for origin in origins:
        if origin.node in seen or len(seen) > _MOST:
            continue
        if isinstance(origin.node, cst.ClassDef):
            seen.add(origin.node)
            found.classes.append((origin.file, origin.node))
            _read_bases(origin.file, origin.node, found, seen)
            _read_inside(origin.file, origin.node.body, found, seen)
        elif isinstance(origin.node, cst.FunctionDef) and is_called:
            seen.add(origin.node)
            _read_inside(origin.file, origin.node, found, seen)
        elif is_call_to(origin.node, "getattr"):
            seen.add(origin.node)
            _read_inside(origin.file, origin.node, found, seen)  # of a module that is loaded by its name
        elif isinstance(origin.node, (cst.Name, cst.Attribute)):
            made = origin.file.dotted(origin.node)
            found.from_libraries.update([made] if made is not None else [])


def _read_bases(ctx: Context, node: cst.ClassDef, found: Makeup, seen: set[cst.CSTNode]) -> None:
    for base in node.bases:
        value = base.value.value if isinstance(base.value, cst.Subscript) else base.value
        dotted = ctx.dotted(value)
        if dotted is not None and not dotted.startswith(_KNOWN):
            found.is_whole = False
        _read_name(ctx, value, found, seen, is_called=False)


def _makes_modules(dotted: str) -> bool:
    """Whether a library's name may be that of a module or of what makes one: `timm.create_model`, `lib.Encoder`."""
    last = dotted.rsplit(".", 1)[-1]
    return last[:1].isupper() or last.startswith(("from_", "create_", "build_", "make_", "get_", "load_"))
