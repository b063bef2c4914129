"""Whether what reaches each part of a model has the dtype of its parameters already.

FSDP1 casts inputs at the root only, FSDP2 at every unit. Where the program's own `forward`s show that nothing else than
what was cast there, or computed from parameters, is handed to a module, casting it again does nothing, and one
`MixedPrecisionPolicy` does for all. Anything that is not seen counts as something else: a buffer, a table of positions,
a layer of a library, an `autocast`, a unit that is called from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

import libcst as cst

from codemods.api import Context

from .....reading.code.enclosing import is_self
from .....reading.models.makeup import Makeup, makeup
from .....reading.wraps.manual import is_constructor


class _Level(IntEnum):
    """What is known of a value; the least of several holds for all of them."""

    UNKNOWN = 0
    CAST = 1
    """In the dtype of the parameters, if it holds numbers with a point at all."""
    FLOAT = 2
    """In the dtype of the parameters."""


_ELSEWHERE = (
    *("autocast", "summon_full_params", "register_forward_pre_hook", "register_forward_hook"),
    *("add_module", "register_module", "set_submodule", "_modules"),
)
"""What changes dtypes, or modules, where a `forward` does not show it."""

_LOOKS = frozenset(
    (
        *("bias", "buffers", "children", "modules", "named_parameters", "parameters", "requires_grad_"),
        *("state_dict", "weight"),
    )
)
"""Attributes of a module that do not compute with it."""

_COMPUTE = frozenset(
    ("Bilinear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "GroupNorm", "LayerNorm", "Linear", "RMSNorm")
)
"""Layers of `torch.nn` that give what their parameters are of."""
_PASS = frozenset(
    (
        *("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d"),
        *("Dropout", "Dropout1d", "Dropout2d", "ELU", "Flatten", "GELU", "Identity", "LeakyReLU", "Mish", "ReLU"),
        *("SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "Unflatten"),
    )
)
"""Those that give what they are given."""
_SHAPED = frozenset(
    (
        *("chunk", "clone", "contiguous", "detach", "expand", "expand_as", "flatten", "flip", "masked_fill", "max"),
        *("min", "narrow", "permute", "repeat", "reshape", "roll", "select", "split", "squeeze", "sum", "t"),
        *("transpose", "unbind", "unflatten", "unsqueeze", "view", "view_as"),
    )
)
"""Methods of a tensor, and functions of torch, that keep its dtype whatever it is."""
_SMOOTH = frozenset(
    ("exp", "gelu", "log_softmax", "mean", "relu", "rsqrt", "sigmoid", "silu", "softmax", "sqrt", "square", "tanh")
)
"""Those that keep it where it is a floating one."""
_JOINED = frozenset({"bmm", "cat", "concat", "einsum", "matmul", "stack"})
_FUNCTIONAL = frozenset({*_SMOOTH, "dropout", "scaled_dot_product_attention"})
_ASKED = frozenset({"dim", "item", "numel", "size"})
_PLAIN = frozenset({"enumerate", "int", "isinstance", "len", "list", "range", "reversed", "tuple", "zip"})


def are_cast(ctx: Context, built: Makeup) -> bool:
    """Whether no module of a model is handed a tensor of another dtype than that of the parameters."""
    if not built.is_whole or not built.made or ctx.mentions(*_ELSEWHERE):
        return False
    if not _is_alone(ctx, built):
        return False
    classes = {node: _Class(where, node) for where, node in built.classes if not _is_plain(node)}
    if not classes or not all(each.is_seen for each in classes.values()):
        return False
    if not all(_makes_one_of(where, call, classes) for where, call in built.made):
        return False
    if any(_is_called_from_outside(ctx, each, classes) for each in classes.values()):
        return False
    levels = dict.fromkeys(classes, _Level.FLOAT)
    while True:
        found = {node: _Forward(each, levels).level() for node, each in classes.items()}
        if not all(found.values()):
            return False
        if found == levels:
            return True
        levels = found


def _is_alone(ctx: Context, built: Makeup) -> bool:
    """Whether no constructor call wraps a part of the model, which another policy may compute in another dtype."""
    classes = {node for _, node in built.classes}
    for where, call in ctx.wrapping.calls(ctx.path):
        made = makeup(where, call).made if is_constructor(where, call) else []
        if not made or any(_class_around(file, each) in classes for file, each in made):
            return False
    return True


def _is_plain(node: cst.ClassDef) -> bool:
    """Whether it is no module: a dataclass of settings."""
    return not node.bases and not any(each.name.value == "forward" for each in _methods(node))


def _makes_one_of(ctx: Context, call: cst.Call, classes: Mapping[cst.ClassDef, _Class]) -> bool:
    origins = ctx.origins(call.func)
    return bool(origins) and all(origin.node in classes for origin in origins)


def _methods(node: cst.ClassDef) -> list[cst.FunctionDef]:
    body = node.body.body if isinstance(node.body, cst.IndentedBlock) else ()
    return [each for each in body if isinstance(each, cst.FunctionDef)]


class _Class:
    """A class of modules: what it computes with, and what it computes."""

    def __init__(self, ctx: Context, node: cst.ClassDef) -> None:
        self.ctx, self.node = ctx, node
        self.forward = next((each for each in _methods(node) if each.name.value == "forward"), None)
        self.held: dict[str, list[cst.BaseExpression]] = {}
        """What each attribute is set to, and what is put into it."""
        for method in _methods(node):
            for inner in ctx.inside(method):
                self._read(inner)

    def _read(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.Assign):
            for each in node.targets:
                if isinstance(each.target, cst.Attribute) and is_self(each.target.value, self.ctx):
                    self.held.setdefault(each.target.attr.value, []).append(node.value)
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "append":
            owner = node.func.value
            if isinstance(owner, cst.Attribute) and is_self(owner.value, self.ctx) and node.args:
                self.held.setdefault(owner.attr.value, []).append(node.args[0].value)

    @property
    def is_seen(self) -> bool:
        """Whether it is `nn.Module` with a `forward`, and nothing else of it computes."""
        bases = [self.ctx.dotted(base.value) for base in self.node.bases]
        if bases != ["torch.nn.Module"] or self.node.decorators or self.forward is None or self.forward.decorators:
            return False
        others = (each for each in _methods(self.node) if each.name.value not in {"__init__", "forward"})
        return not any(self._computes(each) for each in others)

    def _computes(self, method: cst.FunctionDef) -> bool:
        calls = [each for each in self.ctx.inside(method) if isinstance(each, cst.Call)]
        return any(not self._is_harmless(each) for each in calls)

    def _is_harmless(self, call: cst.Call) -> bool:
        dotted = self.ctx.dotted(call.func) or ""
        return dotted.startswith(("torch.nn.init.", "builtins.")) or (
            isinstance(call.func, cst.Name) and call.func.value in {*_PLAIN, "super", "print"}
        )


def _is_called_from_outside(ctx: Context, held: _Class, classes: Mapping[cst.ClassDef, _Class]) -> bool:
    """Whether something that the class holds may be called, or exchanged, elsewhere than in its methods."""
    modules = [name for name, values in held.held.items() if any(_may_be_module(held.ctx, each) for each in values)]
    for where, node in ctx.attributes(*modules) if modules else ():
        if is_self(node.value, where) and _class_around(where, node) in classes:
            continue
        if is_self(node.value, where) and not _is_module_class(where, node):
            continue
        if not _only_looks(where, node):
            return True
    return False


def _may_be_module(ctx: Context, value: cst.BaseExpression) -> bool:
    return any(isinstance(each, cst.Call) for each in ctx.inside(value))


def _class_around(ctx: Context, node: cst.CSTNode) -> cst.CSTNode | None:
    return next((outer for outer in ctx.ancestors(node) if isinstance(outer, cst.ClassDef)), None)


def _is_module_class(ctx: Context, node: cst.CSTNode) -> bool:
    """Whether the class around may be one of modules, a subclass of one of these too."""
    around = _class_around(ctx, node)
    return not isinstance(around, cst.ClassDef) or bool(around.bases)


def _only_looks(ctx: Context, node: cst.Attribute) -> bool:
    """`m in model.blocks`, `model.head.parameters()`, and a loop over the list in which nothing is called."""
    holder = ctx.parent(node)
    if isinstance(holder, cst.Attribute):
        return holder.attr.value in _LOOKS
    if isinstance(holder, cst.ComparisonTarget):
        return True
    if isinstance(holder, cst.For) and holder.iter is node and isinstance(holder.target, cst.Name):
        name = holder.target.value
        calls = [each for each in ctx.inside(holder.body) if isinstance(each, cst.Call)]
        wraps = all(not (isinstance(each.func, cst.Name) and each.func.value == name) for each in calls)
        return wraps and all(_is_torch(ctx, each) for each in calls)
    return False


def _is_torch(ctx: Context, call: cst.Call) -> bool:
    return ctx.fsdp1(call.func) is not None or (ctx.dotted(call.func) or "").startswith("torch.distributed.")


class _Forward:
    """One `forward`, whose parameters are cast."""

    def __init__(self, of: _Class, levels: Mapping[cst.ClassDef, _Level]) -> None:
        self.of, self.ctx, self.levels = of, of.ctx, levels
        self.names: dict[str, _Level] = {}
        self.modules: dict[str, list[cst.BaseExpression]] = {}
        """What the variables of loops over lists of modules stand for."""
        self.refused = False

    def level(self) -> _Level:
        """The level of what is returned; unknown where a module may be handed something else."""
        function = cst.ensure_type(self.of.forward, cst.FunctionDef)
        given = function.params
        stars = [each for each in (given.star_arg, given.star_kwarg) if isinstance(each, cst.Param)]
        for param in (*given.posonly_params, *given.params[1:], *given.kwonly_params, *stars):
            self.names[param.name.value] = _Level.CAST
        statements = [node for node in self.ctx.inside(function.body) if isinstance(node, _STATEMENTS)]
        if any(isinstance(node, _OTHERS) for node in self.ctx.inside(function.body)):
            return _Level.UNKNOWN
        while True:
            before = dict(self.names)
            self.refused = False
            for node in statements:
                self._bind(node)
            if before == self.names:
                break
        found = [_Level.FLOAT]
        for inner in self.ctx.inside(function.body):
            if isinstance(inner, cst.Return) and inner.value is not None:
                found.append(self.of_value(inner.value))
            elif isinstance(inner, cst.Call):
                self.of_value(inner)  # also one whose result is not used
        return _Level.UNKNOWN if self.refused else min(found)

    def _is_no_grad(self, entered: cst.BaseExpression) -> bool:
        return isinstance(entered, cst.Call) and self.ctx.dotted(entered.func) == "torch.no_grad"

    def _bind(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.Assign):
            value = self.of_value(node.value)
            for each in node.targets:
                self._set(each.target, value)
        elif isinstance(node, cst.AugAssign):
            self._set(node.target, self._joined(node.target, node.value, isinstance(node.operator, _INEXACT_INPLACE)))
        elif isinstance(node, cst.With):
            self.refused |= not all(self._is_no_grad(item.item) for item in node.items)
        elif isinstance(node, cst.For):
            held = self._held_in(node.iter)
            if held is not None and isinstance(node.target, cst.Name):
                self.modules[node.target.value] = held
            else:
                self._set(node.target, self.of_value(node.iter))

    def _set(self, target: cst.BaseExpression, value: _Level) -> None:
        if isinstance(target, cst.Name):
            self.names[target.value] = min(self.names.get(target.value, _Level.FLOAT), value)
        elif isinstance(target, (cst.Tuple, cst.List)):
            for each in target.elements:
                self._set(each.value, value)
        elif isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name):
            self._set(target.value, value)
        else:
            self.refused = True

    def _held_in(self, value: cst.BaseExpression) -> list[cst.BaseExpression] | None:
        """The modules of `self.blocks`; None for anything else."""
        if not isinstance(value, cst.Attribute) or not is_self(value.value, self.ctx):
            return None
        made = self.of.held.get(value.attr.value, [])
        lists = [each for each in made if isinstance(each, cst.Call) and self._nn(each) in {"ModuleList", "Sequential"}]
        if len(lists) != 1:
            return None
        return [*(each for each in made if each is not lists[0]), *_elements(lists[0])]

    def _nn(self, call: cst.Call) -> str:
        dotted = self.ctx.dotted(call.func) or ""
        return dotted.rsplit(".", 1)[1] if dotted.startswith("torch.nn.") and dotted.count(".") == 2 else ""

    def of_value(self, node: cst.BaseExpression) -> _Level:
        """The level of an expression."""
        if isinstance(node, cst.Name):
            self.refused |= node.value in self.modules
            constant = node.value in {"True", "False", "None"}
            return _Level.CAST if constant else self.names.get(node.value, _Level.UNKNOWN)
        if isinstance(node, (cst.Integer, cst.BaseString, cst.Ellipsis)):
            return _Level.CAST
        if isinstance(node, (cst.Tuple, cst.List)):
            return min((self.of_value(each.value) for each in node.elements), default=_Level.CAST)
        if isinstance(node, cst.Dict):
            return min((self.of_value(each.value) for each in node.elements), default=_Level.CAST)
        if isinstance(node, cst.BinaryOperation):
            return self._joined(node.left, node.right, isinstance(node.operator, _INEXACT))
        if isinstance(node, cst.BooleanOperation):
            return min(self.of_value(node.left), self.of_value(node.right))
        if isinstance(node, cst.Comparison):
            return _Level.CAST
        if isinstance(node, cst.UnaryOperation):
            return self.of_value(node.expression)
        if isinstance(node, cst.IfExp):
            return min(self.of_value(node.body), self.of_value(node.orelse))
        if isinstance(node, cst.Subscript):
            by_name = any(isinstance(each, cst.BaseString) for index in node.slice for each in index.slice.children)
            return _Level.UNKNOWN if by_name else self.of_value(node.value)  # a dict of a library is not cast
        if isinstance(node, cst.Attribute):
            return self._of_attribute(node)
        return self._of_call(node) if isinstance(node, cst.Call) else _Level.UNKNOWN

    def _joined(self, left: cst.BaseExpression, right: cst.BaseExpression, is_inexact: bool) -> _Level:
        """Of an operation: a number with a point, or a division, makes such numbers of whole ones too."""
        with_point = [isinstance(side, cst.Float) for side in (left, right)]
        sides = [self.of_value(side) for side, skip in zip((left, right), with_point, strict=True) if not skip]
        if not all(sides):
            return _Level.UNKNOWN
        best = max(sides, default=_Level.CAST)
        if best is _Level.FLOAT:
            return best
        return _Level.UNKNOWN if is_inexact or any(with_point) else _Level.CAST

    def _of_attribute(self, node: cst.Attribute) -> _Level:
        if is_self(node.value, self.ctx):
            made = self.of.held.get(node.attr.value, [])
            calls = [each for each in made if isinstance(each, cst.Call)]
            parameters = [each for each in calls if self._nn(each) == "Parameter"]
            self.refused |= len(parameters) < len(calls)  # a module that goes elsewhere
            return _Level.FLOAT if made and len(parameters) == len(made) else _Level.UNKNOWN
        if not self.of_value(node.value):
            return _Level.UNKNOWN
        if node.attr.value in {"T", "mT"}:
            return self.of_value(node.value)
        return _Level.CAST if node.attr.value in {"device", "dtype", "ndim", "shape"} else _Level.UNKNOWN

    def _of_call(self, call: cst.Call) -> _Level:
        given = [_Level.CAST if isinstance(each.value, cst.Float) else self.of_value(each.value) for each in call.args]
        least = min(given, default=_Level.CAST)
        made = self._modules_called(call.func)
        if made is not None:
            self.refused |= not least
            return min((self._of_module(each, least) for each in made), default=_Level.UNKNOWN)
        found = self._of_function(call, given)
        tells_dtype = any(each.keyword is not None and each.keyword.value == "dtype" for each in call.args)
        return found if least and not tells_dtype else _Level.UNKNOWN

    def _escapes(self) -> _Level:
        self.refused = True
        return _Level.UNKNOWN

    def _modules_called(self, func: cst.BaseExpression) -> list[cst.BaseExpression] | None:
        """What makes the modules that a call can run; None where it is no call of a module."""
        if isinstance(func, cst.Name):
            return self.modules.get(func.value)
        if isinstance(func, cst.Subscript):
            return self._held_in(func.value)
        if isinstance(func, cst.Attribute) and is_self(func.value, self.ctx):
            return self.of.held.get(func.attr.value)
        return None

    def _of_module(self, made: cst.BaseExpression, given: _Level) -> _Level:
        if isinstance(made, cst.Call):
            name = self._nn(made)
            if name in _COMPUTE:
                return _Level.FLOAT
            if name in _PASS:
                return given
            if name == "Sequential":
                level = given
                for each in _elements(made):
                    level = self._of_module(each, level)
                return level
            origins = self.ctx.origins(made.func) if not name else ()
            if origins:
                return min(self._of_class(origin.node) for origin in origins)
        return self._escapes()

    def _of_class(self, node: cst.CSTNode | None) -> _Level:
        found = self.levels.get(node) if isinstance(node, cst.ClassDef) else None
        return found if found is not None else self._escapes()

    def _of_function(self, call: cst.Call, given: Sequence[_Level]) -> _Level:
        dotted, func = self.ctx.dotted(call.func) or "", call.func
        name, first = dotted.rsplit(".", 1)[-1], given[0] if given else _Level.UNKNOWN
        if dotted.startswith("torch.nn.functional."):
            return first if name in _FUNCTIONAL and first is _Level.FLOAT else _Level.UNKNOWN
        if dotted.startswith("torch.") and dotted.count(".") == 1:
            return min(given, default=_Level.UNKNOWN) if name in _JOINED else self._of_method(name, first)
        if isinstance(func, cst.Name) and func.value in _PLAIN:
            return min(given, default=_Level.CAST)
        if isinstance(func, cst.Attribute) and not dotted and self.of_value(func.value):
            return self._of_method(func.attr.value, self.of_value(func.value))
        return self._escapes()

    def _of_method(self, name: str, of: _Level) -> _Level:
        if name in _ASKED:
            return _Level.CAST
        if name in _SHAPED:
            return of
        return of if name in _SMOOTH and of is _Level.FLOAT else _Level.UNKNOWN


_STATEMENTS = (cst.Assign, cst.AugAssign, cst.For, cst.With)
_OTHERS = (cst.FunctionDef, cst.ClassDef, cst.Lambda, cst.Try, cst.NamedExpr, cst.BaseComp, cst.Global, cst.Nonlocal)
"""What binds names in ways that are not followed."""
_INEXACT = (cst.Divide, cst.Power)
_INEXACT_INPLACE = (cst.DivideAssign, cst.PowerAssign)


def _elements(made: cst.Call) -> Iterator[cst.BaseExpression]:
    """What makes the modules of a list: its arguments, the elements of a list display, what a comprehension yields."""
    for argument in made.args:
        value = argument.value
        if isinstance(value, (cst.ListComp, cst.GeneratorExp)):
            yield value.elt
        elif isinstance(value, (cst.List, cst.Tuple)):
            yield from (each.value for each in value.elements)
        else:
            yield value
