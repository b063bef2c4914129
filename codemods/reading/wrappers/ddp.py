"""What is DDP's by its own name: a branch, a function, a class."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import ifs_around
from codemods.reading.code.shapes import callee, class_test
from codemods.reading.code.words import last_name, words
from codemods.reading.edits.negation import conjuncts


def is_on_ddp_way(node: cst.CSTNode, ctx: Context) -> bool:
    """`model.module` under `if state.is_ddp:`, by the flag's own name: a DDP model can come there, or any other."""
    return any(_says_ddp(each.test) for each in ifs_around(ctx, node))


def is_ddps_alone(node: cst.CSTNode, ctx: Context) -> bool:
    """The same where no FSDP model comes: the flag is what the program makes DDP's model by, or asks its class for."""
    asked = (callee(part) for each in ifs_around(ctx, node) for part in conjuncts(each.test))
    flags = (last_name(flag) for flag in asked if _says_ddp(flag))
    return any(flag and _chooses_ddp(flag, ctx) for flag in flags)


def _chooses_ddp(flag: str, ctx: Context) -> bool:
    files = list(ctx.files(flag))
    functions = [(file, each) for file in files for each in file.nodes(cst.FunctionDef) if each.name.value == flag]
    if functions:
        return all(_asks_class(file, each) for file, each in functions)
    makes = [(file, call) for file in files for call in file.nodes(cst.Call) if file.dotted(call.func) in _CLASSES]
    wraps = ctx.wrapping.calls(ctx.path)
    is_made = any(_is_under(file, call, flag) for file, call in makes)
    return is_made and not any(_is_under(file, call, flag) for file, call in wraps)


_CLASSES = frozenset(
    {
        *("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel"),
        *("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"),
    }
)


def _asks_class(ctx: Context, function: cst.FunctionDef) -> bool:
    """`return isinstance(self.model, DistributedDataParallel)`."""
    given = [node.value for node in ctx.inside(function) if isinstance(node, cst.Return)]
    tests = [class_test(each, ctx) for each in given]
    return bool(given) and all(test is not None and ctx.dotted(test[1]) in _CLASSES for test in tests)


def _is_under(ctx: Context, node: cst.CSTNode, flag: str) -> bool:
    """Whether it stands where a flag of this name holds."""
    asked = (part for each in ifs_around(ctx, node) for part in conjuncts(each.test))
    return any(isinstance(part, (cst.Name, cst.Attribute)) and last_name(part) == flag for part in asked)


def is_ddps_class(node: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it is the class of a model that is not sharded, torch's or another library's of the same name."""
    return (ctx.dotted(node) or "").rpartition(".")[2] in {"DistributedDataParallel", "DataParallel"}


def is_in_ddp(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a place is in a function or class that is called so: `class DistributedDataParallel`, `test_ddp`."""
    around = (node, *ctx.ancestors(node))
    names = (words(outer.name.value) for outer in around if isinstance(outer, (cst.FunctionDef, cst.ClassDef)))
    return any(name >= _DDP or ("ddp" in name and "fsdp" not in name) for name in names)


_DDP = frozenset({"distributed", "data", "parallel"})


def _says_ddp(test: cst.BaseExpression) -> bool:
    asked = (part for part in conjuncts(test) if isinstance(part, (cst.Name, cst.Attribute)))
    return any("ddp" in words(last_name(part)) for part in asked)
