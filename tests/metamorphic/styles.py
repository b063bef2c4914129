"""Other styles of the same program: what one writes in a line another writes in two, or keeps in an object.

A finding that a style loses is one that real programs lose. `make styles` writes every program of `tests/rules` in each
of them (`everywhere.py`), and lists those that are decided about otherwise. That a name in between makes a program need
more of a person, or less support, is no fault by itself; a finding that is gone, with nothing in its stead, mostly is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy

Style = Callable[[ast.Module], None]
"""Changes a tree in place."""


def variables(tree: ast.Module) -> None:
    """`params = net.parameters()`, then `SGD(params)`: each call that a call is given gets a name above."""
    for block in _blocks(tree):
        for statement in [*block]:
            call = statement.value if isinstance(statement, (ast.Assign, ast.Expr, ast.Return)) else None
            if isinstance(call, ast.Call):
                above = list(_named(call, len(block)))
                at = block.index(statement)
                block[at:at] = above


def _named(call: ast.Call, number: int) -> Iterator[ast.stmt]:
    for place, argument in enumerate(call.args):
        if isinstance(argument, ast.Call):
            name = f"value_{call.lineno}_{number}_{place}"
            yield _set(name, argument)
            call.args[place] = ast.Name(name, ast.Load())
    for keyword in call.keywords:
        if keyword.arg and isinstance(keyword.value, ast.Call):
            name = f"{keyword.arg}_{call.lineno}_{number}"
            yield _set(name, keyword.value)
            keyword.value = ast.Name(name, ast.Load())


def results(tree: ast.Module) -> None:
    """`outcome = …`, then `return outcome`."""
    for block in _blocks(tree):
        last = block[-1]
        if isinstance(last, ast.Return) and last.value is not None and not isinstance(last.value, ast.Name):
            block[-1:] = [_set("outcome", last.value), ast.Return(ast.Name("outcome", ast.Load()))]


def types(tree: ast.Module) -> None:
    """`model: object = …`."""
    outer = {name for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    for block in _blocks(tree):
        for at, each in enumerate(block):
            target = each.targets[0] if isinstance(each, ast.Assign) and len(each.targets) == 1 else None
            name = target.value if isinstance(target, ast.Attribute) else target
            is_own = isinstance(name, ast.Name) and (name.id == "self" if name is not target else name.id not in outer)
            if isinstance(each, ast.Assign) and isinstance(target, (ast.Name, ast.Attribute)) and is_own:
                simple = int(isinstance(target, ast.Name))
                block[at] = ast.AnnAssign(target, ast.Name("object", ast.Load()), each.value, simple)


def other_branch_first(tree: ast.Module) -> None:
    """`if not sharded: … else: …`."""
    for node in ast.walk(tree):
        is_chain = isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        if (isinstance(node, ast.If) and node.orelse and not is_chain) or isinstance(node, ast.IfExp):
            node.body, node.orelse = node.orelse, node.body  # type: ignore[assignment]
            test = node.test
            is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            node.test = test.operand if is_negated and isinstance(test, ast.UnaryOp) else ast.UnaryOp(ast.Not(), test)


def choices_as_branches(tree: ast.Module) -> None:
    """`if big: x = a`, `else: x = b` for `x = a if big else b`."""
    for block in _blocks(tree):
        for at, each in enumerate(block):
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.IfExp):
                yes, no = (ast.Assign(deepcopy(each.targets), side) for side in (each.value.body, each.value.orelse))
                block[at] = ast.If(each.value.test, [yes], [no])


def behind_a_return(tree: ast.Module) -> None:
    """What stands behind `if x: return` stands in its `else`."""
    for block in _blocks(tree):
        for at, each in enumerate(block[:-1]):
            if isinstance(each, ast.If) and not each.orelse and isinstance(each.body[-1], (ast.Return, ast.Raise)):
                each.orelse, block[at + 1 :] = block[at + 1 :], []
                break


def contexts_apart(tree: ast.Module) -> None:
    """`with a:` and in it `with b:`, for `with a, b:`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and len(node.items) > 1:
            node.body = [ast.With(node.items[1:], node.body)]
            node.items = node.items[:1]


def receivers(tree: ast.Module) -> None:
    """`receiver = net.cuda()`, then `receiver.half()`: what a call is a method of gets a name above."""
    for block in _blocks(tree):
        for statement in [*block]:
            call = statement.value if isinstance(statement, (ast.Assign, ast.Expr, ast.Return)) else None
            method = call.func if isinstance(call, ast.Call) else None
            if isinstance(method, ast.Attribute) and isinstance(method.value, ast.Call):
                name = f"receiver_{method.lineno}"
                block.insert(block.index(statement), _set(name, method.value))
                method.value = ast.Name(name, ast.Load())


def by_name(tree: ast.Module) -> None:
    """`FSDP(module=net)`: arguments of what the file defines, and of what is often called, by their names."""
    known = {**_PARAMETERS, **_defined(tree)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and not any(isinstance(each, ast.Starred) for each in call.args):
            func = call.func
            name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
            parameters = known.get(name, [])
            if len(call.args) <= len(parameters):
                given = zip(parameters, call.args, strict=False)
                call.keywords[:0] = [ast.keyword(parameter, value) for parameter, value in given]
                call.args = []


def _defined(tree: ast.Module) -> dict[str, list[str]]:
    """What the functions of a file, and the constructors of its classes, call their parameters."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found[node.name] = _parameters(node)
        elif isinstance(node, ast.ClassDef):
            inits = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            found[node.name] = _parameters(inits[0]) if inits else []
    return found


_PARAMETERS = {
    "FSDP": ["module", "process_group"],
    "FullyShardedDataParallel": ["module", "process_group"],
    "clip_grad_norm_": ["parameters", "max_norm"],
    "load_state_dict": ["state_dict"],
    "save": ["obj", "f"],
    "Adam": ["params", "lr"],
    "AdamW": ["params", "lr"],
    "SGD": ["params", "lr"],
    "broadcast": ["tensor", "src"],
    "all_reduce": ["tensor"],
    "summon_full_params": ["module"],
    "state_dict_type": ["module", "state_dict_type", "state_dict_config"],
    "set_state_dict_type": ["module", "state_dict_type", "state_dict_config"],
}


def _parameters(function: ast.FunctionDef) -> list[str]:
    names = [each.arg for each in function.args.args]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def in_try(tree: ast.Module) -> None:
    """The body of each function stands in a `try`, with a `finally` behind it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not any(isinstance(each, ast.Nonlocal) for each in node.body):
            node.body = [ast.Try(node.body, [], [], [ast.Expr(ast.Call(ast.Name("print", ast.Load()), [], []))])]


def in_main(tree: ast.Module) -> None:
    """A script's statements stand in a function."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    rest = [each for each in tree.body if not isinstance(each, kinds)]
    defined = [each for each in tree.body if isinstance(each, kinds)]
    used = {node.id for each in defined for node in ast.walk(each) if isinstance(node, ast.Name)}
    if rest and not any(name in used for each in rest for name in _stored(each)):
        nothing = ast.arguments([], [], None, [], [], None, [])
        run = ast.Expr(ast.Call(ast.Name("run_all", ast.Load()), [], []))
        tree.body = [*defined, ast.FunctionDef("run_all", nothing, rest, [], None), run]


def _stored(tree: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))]


def attributes(tree: ast.Module) -> None:
    """What a function keeps in variables, a class keeps in attributes: `WithMain().main(x)` for `main(x)`."""
    for node in [*ast.walk(tree)]:
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.decorator_list and method.args.args:
                    _keep(method, method.args.args[0].arg)
    for at, function in reversed([*enumerate(tree.body)]):
        if not isinstance(function, ast.FunctionDef) or any(each.arg == "self" for each in function.args.args):
            continue
        if not function.decorator_list and _keep(function, "self"):
            name = f"With{function.name.title()}"
            call = f"{name}().{function.name}({', '.join(each.arg for each in function.args.args)})"
            body = ast.parse(f"return {call}").body
            plain = ast.FunctionDef(function.name, deepcopy(function.args), body, [], None)
            function.args.args.insert(0, ast.arg("self"))
            tree.body[at : at + 1] = [ast.ClassDef(name, [], [], [function], []), plain]


_OWN = (ast.FunctionDef, ast.Global, ast.Nonlocal, ast.Yield)


def _keep(function: ast.FunctionDef, owner: str) -> bool:
    """Whether something was kept in attributes of `owner`."""
    arguments = function.args
    if any(isinstance(node, _OWN) and node is not function for node in ast.walk(function)):
        return False
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return False
    others = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    targets = [target for node in ast.walk(function) if isinstance(node, ast.Assign) for target in node.targets]
    kept = {id(node) for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    bound = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))]
    names = {node.id for node in bound} - {node.id for node in bound if id(node) not in kept} - others
    function.body = [_Kept(names, owner).visit(each) for each in function.body]
    return bool(names)


class _Kept(ast.NodeTransformer):
    def __init__(self, names: set[str], owner: str) -> None:
        self.names = names
        self.owner = owner

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Attribute(ast.Name(self.owner, ast.Load()), node.id, node.ctx) if node.id in self.names else node


def enumerated(tree: ast.Module) -> None:
    """`for number, x in enumerate(xs)`."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and not (isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name)):
            loop.target = ast.Tuple([ast.Name("number", ast.Store()), loop.target], ast.Store())
            loop.iter = ast.Call(ast.Name("enumerate", ast.Load()), [loop.iter], [])


def listed_in_loops(tree: ast.Module) -> None:
    """`xs = []` and a loop that appends, for `xs = [f(y) for y in ys]`."""
    for block in _blocks(tree):
        for each in [*block]:
            value = each.value if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) else None
            if isinstance(each, ast.Assign) and isinstance(value, ast.ListComp):
                name = ast.Name(each.targets[0].id, ast.Load())  # type: ignore[attr-defined]
                body: ast.stmt = ast.Expr(ast.Call(ast.Attribute(name, "append", ast.Load()), [value.elt], []))
                for made in reversed(value.generators):
                    for test in reversed(made.ifs):
                        body = ast.If(test, [body], [])
                    body = ast.For(made.target, made.iter, [body], [])
                at = block.index(each)
                block[at : at + 1] = [ast.Assign(each.targets, ast.List([], ast.Load())), body]


def pairs(tree: ast.Module) -> None:
    """`pair = f()`, `a = pair[0]`, for `a, b = f()`."""
    for block in _blocks(tree):
        for each in [*block]:
            target = each.targets[0] if isinstance(each, ast.Assign) else None
            if isinstance(each, ast.Assign) and isinstance(target, ast.Tuple) and isinstance(each.value, ast.Call):
                parts = [
                    ast.Assign([one], ast.Subscript(ast.Name("pair", ast.Load()), ast.Constant(n), ast.Load()))
                    for n, one in enumerate(target.elts)
                ]
                at = block.index(each)
                block[at : at + 1] = [_set("pair", each.value), *parts]


def together(tree: ast.Module) -> None:
    """`a, b = x, y` for two assignments of which the second does not read the first."""
    for block in _blocks(tree):
        for at in range(len(block) - 1, 0, -1):
            one, two = block[at - 1 : at + 1]
            if isinstance(one, ast.Assign) and isinstance(two, ast.Assign) and not _depends(one, two):
                targets = ast.Tuple([one.targets[0], two.targets[0]], ast.Store())
                block[at - 1 : at + 1] = [ast.Assign([targets], ast.Tuple([one.value, two.value], ast.Load()))]


def _depends(one: ast.Assign, two: ast.Assign) -> bool:
    targets = [*one.targets, *two.targets]
    is_simple = len(targets) == 2 and all(isinstance(each, (ast.Name, ast.Attribute)) for each in targets)
    return not is_simple or ast.unparse(targets[0]) in ast.unparse(two)


STYLES: tuple[Style, ...] = (
    variables,
    results,
    types,
    other_branch_first,
    choices_as_branches,
    behind_a_return,
    contexts_apart,
    receivers,
    by_name,
    in_try,
    in_main,
    attributes,
    enumerated,
    listed_in_loops,
    pairs,
    together,
)


def written_as(style: Style, text: str) -> str:
    """The text in this style, in the layout of `ast`."""
    tree = ast.parse(text)
    style(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _set(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """The blocks of a program, but for those of classes."""
    found = []
    for node in ast.walk(tree):
        blocks = [getattr(node, field, None) for field in ("body", "orelse", "finalbody")]
        found += [each for each in blocks if isinstance(each, list) and each and not isinstance(node, ast.ClassDef)]
    return found
