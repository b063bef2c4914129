"""A raise stands on the way of an FSDP model alone, once a function, and as early as the same way leads to it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from codemods.tables.leftovers import RESHARDING_HINT

from ..helpers import code, one_line, rewrite, rewrite_files

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
from torch.nn.parallel import DistributedDataParallel as DDP


def build(net, args):
    return FSDP(net) if args.fsdp else DDP(net)


"""


class FSDPModule:
    """Stands for what `fully_shard` makes of a module."""


class DDPModule:
    """Stands for any other model."""

    def modules(self) -> list[object]:
        return [self]


def function(text: str, **names: object) -> Callable[..., Any]:
    """The last function of a rewritten program, to be run with stubs in the place of what it imports."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    space: dict[str, Any] = {"FSDPModule": FSDPModule, "FSDP": _Fsdp, **names}
    exec(compile(tree, "train.py", "exec"), space)
    last = [node for node in tree.body if isinstance(node, ast.FunctionDef)][-1]
    made = space[last.name]
    assert callable(made)
    return made


class _Fsdp:
    """FSDP1's class: its functions find none of its own modules in another model, and do nothing."""

    def __getattr__(self, name: str) -> Callable[..., str]:
        return lambda *_, **__: "done"

    fsdp_modules = staticmethod(lambda *_, **__: "done")
    some_new_function = staticmethod(lambda *_, **__: "done")


USES = [
    "return FSDP.fsdp_modules(model, root_only=True)",
    "for _ in range(2):\n        kept = FSDP.fsdp_modules(model, root_only=True)\n    return kept",
    "with args:\n        return FSDP.some_new_function(model)",
]


@pytest.mark.parametrize("statement", USES)
def test_a_model_that_is_not_sharded_goes_its_way(statement: str) -> None:
    result = rewrite(HEAD + f"def use(model, args):\n    {statement}\n")
    assert "raise NotImplementedError" in result.text
    use = function(result.text)

    class Nothing:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    assert use(DDPModule(), Nothing()) == "done"
    with pytest.raises(NotImplementedError, match="fsdp-migrate FM"):
        use(FSDPModule(), Nothing())


def test_once_a_function_and_at_its_start() -> None:
    text = code(
        """
        def report(model, batches):
            '''Says what the units are.'''
            seen = []
            for batch in batches:
                seen += FSDP.fsdp_modules(model, root_only=True)
                FSDP.some_new_function(model)
            return seen, FSDP.fsdp_modules(model, root_only=True)
        """
    )
    after = code(
        """
        def report(model, batches):
            '''Says what the units are.'''
            if isinstance(model, FSDPModule):
                raise NotImplementedError("fsdp-migrate FM107: fsdp_modules finds nothing in an FSDP2 model")
            seen = []
            for batch in batches:
        """
    )
    result = rewrite(HEAD + text)
    assert after in one_line(result.text)
    assert result.text.count("raise NotImplementedError") == 1


EARLY = [
    ("if args:\n        {}", "if args:\n        if isinstance(model"),
    ("if not args:\n        return\n    {}", "return\n    if isinstance(model"),
    ("model = args.model\n    {}", "args.model\n    if isinstance(model"),
    ("print(args)\n    {}", "args):\n    if isinstance(model"),
    ("for model in args:\n        {}", "in args:\n        if isinstance(model"),
    ("for x in args:\n        if x:\n            break\n        {}", "break\n        if isinstance(model"),
    ("with args as model:\n        {}", "as model:\n        if isinstance(model"),
]


@pytest.mark.parametrize(("statement", "after"), EARLY)
def test_as_early_as_the_same_way_leads_there(statement: str, after: str) -> None:
    use = "x = FSDP.fsdp_modules(model, root_only=True)"
    assert after in rewrite(HEAD + f"def use(model, args):\n    {statement.format(use)}\n").text


def test_two_models_are_asked_each() -> None:
    use = "def use(a, b):\n    FSDP.some_new_function(a)\n    FSDP.some_new_function(b)\n"
    result = rewrite(HEAD + use)
    assert "isinstance(a, FSDPModule)" in result.text
    assert "isinstance(b, FSDPModule)" in result.text


def test_above_a_statement_that_is_rewritten_itself() -> None:
    use = "def use(model, x):\n    FSDP.summon_full_params(model)\n    FSDP.some_new_function(model)\n"
    text = rewrite(HEAD + use).text
    assert text.index("raise NotImplementedError") < text.index("    summon_full_params(model)\n")


NEVER = [
    "if isinstance(model, FSDP):\n        return model\n    {}",
    "if isinstance(model, FSDPModule):\n        return model\n    {}",
    "if isinstance(model, DDP):\n        {}",
    "model = DDP(model)\n    {}",
]


@pytest.mark.parametrize("statement", NEVER)
def test_no_raise_where_no_fsdp_model_comes(statement: str) -> None:
    head = HEAD.replace("as FSDP,", "as FSDP, FSDPModule,")
    use = "x = getattr(model, '_handle', None), FSDP.some_new_function(model)"
    result = rewrite(head + f"def use(model):\n    {statement.format(use)}\n")
    assert "raise" not in result.text


def test_no_raise_where_no_model_has_a_name() -> None:
    result = rewrite(HEAD + "def use(models):\n    return [FSDP.some_new_function(m) for m in models]\n")
    assert "raise" not in result.text
    assert ("FM100", "manual", 10) in result.summary


def test_model_that_is_looked_up_under_no_grad_needs_no_synchronising() -> None:
    """Nothing is accumulated there: what the default does was right, and is right."""
    text = code(
        """
        import contextlib
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Pipeline:
            def __init__(self, net, args):
                self.model = FSDP(net) if args.fsdp else net

            @torch.no_grad()
            def sample(self, x):
                with getattr(self.model, "no_sync", contextlib.nullcontext)():
                    return self.model(x)

            def predict(self, x):
                with torch.inference_mode():
                    with getattr(self.model, "no_sync", contextlib.nullcontext)():
                        return self.model(x)

            def train(self, x):
                self.model(x).backward()
        """
    )
    result = rewrite(text)
    assert "raise" not in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten"}


def test_a_second_run_over_a_half_of_a_program_adds_no_second_raise() -> None:
    files = {
        "build.py": HEAD,
        "train.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "from build import build\n\n\ndef use(net, args, xs):\n    model = build(net, args)\n    for x in xs:\n"
        "        x.units = FSDP.fsdp_modules(model, root_only=True)\n    return build(net, args)\n",
    }
    first = rewrite_files(files)
    again = rewrite_files({**first.after, "build.py": HEAD})
    assert again.after["train.py"].count("raise NotImplementedError") == 1


LOST = """\
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def mark(net):
    for layer in net.layers:
        layer.weight.is_split = True


def build(net):
    mark(net)
    model = FSDP(net, use_orig_params=original)
    share(model)
    return model


def share(model):
    for module in model.modules():
        for name, param in module._parameters.items():
            {read}


def groups(model):
    return [p for p in model.parameters() if getattr(p, "is_split", False)]
"""
READS = [
    "if getattr(param, 'is_split', False):\n                continue",
    "split = hasattr(param, 'is_split')",
]


@pytest.mark.parametrize("read", READS)
def test_an_attribute_that_sharding_loses_is_not_asked_for_in_silence(read: str) -> None:
    text = rewrite(LOST.replace("{read}", read)).text
    raised = " ".join(text[: text.index(read)].split())
    assert "if isinstance(param, DTensor): raise NotImplementedError(" in raised
    assert "fsdp-migrate FM441: " in text
    assert "from torch.distributed.tensor import DTensor\n" in text
    assert text.count("FM441: ") - text.count("todo[FM441]") == 2
    above = text[: text.index("    return [p for p")].splitlines()
    assert "if isinstance(model, FSDPModule):" in "\n".join(above[-5:])


def test_an_attribute_that_is_read_plainly_fails_by_itself() -> None:
    text = rewrite(LOST.replace("{read}", "print(param.is_split)").partition("\n\n\ndef groups")[0] + "\n").text
    assert "NotImplementedError" not in text


ASKED_FIRST = [
    """
    def free(model):
        for m in FSDP.fsdp_modules(model):
            if m._has_params and m.sharding_strategy is not args:
                torch.distributed.fsdp._runtime_utils._reshard(m, m._handle, True)
    """,
    """
    def free(model):
        for m in model.modules():
            if isinstance(m, FSDP):
                if m.check_is_root():
                    torch.distributed.fsdp._runtime_utils._post_backward_final_callback(m, m)
    """,
]


@pytest.mark.parametrize("use", ASKED_FIRST)
def test_a_test_that_fails_by_itself_stands_below_the_raise(use: str) -> None:
    result = rewrite("import torch\nimport torch.distributed.fsdp._runtime_utils\n" + HEAD + code(use))
    text = result.text
    assert {finding.hint for finding in result.findings if finding.rule == "FM401"} == {RESHARDING_HINT}
    assert text.index("raise NotImplementedError") < min(
        text.index(each) for each in ("_has_params", "check_is_root()") if each in text
    )


def test_a_model_of_which_only_a_part_is_sharded_is_asked_for_its_modules() -> None:
    text = """
        from engine import state_dict_context
        from torch import nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(2, 2)


        def save():
            net = Net()
            net.inner = FSDP(net.inner)
            with state_dict_context(net, "full"):
                return net.state_dict()
    """
    result = rewrite(code(text))
    assert "if any(isinstance(module, FSDPModule) for module in net.modules()):\n" in result.text


def test_a_raise_stands_above_a_try_that_would_catch_it() -> None:
    """`except Exception: print("not loaded")` around a leftover: the run would go on with a word of it."""
    use = """
    def load(model, full):
        try:
            sharded = FSDP.some_new_function(model)
            print("loaded")
        except {}:
            print("not loaded"){}


    def main(net, args):
        load(build(net, args), {{}})
    """
    for kind, more, is_above in [
        ("Exception as error", "", True),
        ("(OSError, RuntimeError)", "", True),
        ("OSError", "", False),
        ("Exception", "\n            raise", False),
    ]:
        text = rewrite(HEAD + code(use.format(kind, more))).text
        assert (text.index("raise NotImplementedError") < text.index("    try:")) is is_above
