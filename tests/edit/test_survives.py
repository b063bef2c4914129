"""What is not FSDP's is not touched inside a rewritten call: literals, comments, foreign names, lambdas."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from codemods.api import Level, Options
from fsdp_migrate.pipeline import migrate
from fsdp_migrate.project.source import Source
from tests.helpers import rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def f(net, inner, adapter, ema, fsdp, model_module):
    model = FSDP(net)
    other = FSDP(inner)
"""
FOREIGN = ("adapter", "ema", "fsdp", "model_module")

NOISE = st.sampled_from(
    [
        '"best.module.pt"',
        "'model.module'",
        'r"FSDP(model)\\d"',
        'f"{adapter.module}.module"',
        '"""model.state_dict()\n    model.module"""',
        'b"model.no_sync()"',
        '"model" ".module"',
        "3.0",
        "...",
    ]
)
NAMES = st.sampled_from(
    [
        "adapter.module",
        "adapter.model.module.weight",
        "ema.module.state_dict()",
        "fsdp.FSDP",
        "fsdp.model.no_sync",
        "model_module",
        "model_module.module",
        "ema.clip_grad_norm_",
        "(lambda model: model.module)",
        "[module for module in adapter.modules()]",
    ]
)
COMMENTS = st.sampled_from(["", "", "  # model.module, FSDP", "  # FSDP.state_dict_type(model)"])


def calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Calls of several rules, and of nobody, around what is given."""
    forms = [
        "model.module.head({0})",
        "other.module.body.forward({0}, {1})",
        "read({0}, x={1})",
        "model.module.load_state_dict(read({0}, {1}))",
        "model.clip_grad_norm_(norm({0}, {1}))",
        "ShardedGradScaler(init_scale=scale({0}, {1}))",
        "merged(model.state_dict(), {0}, {1})",
        "merged(other.module.state_dict(), {0})",
        "getattr(model.module, name({0}))",
        "isinstance(model, FSDP) and {0}",
        "FSDP.optim_state_dict(model, optimizer({0}))",
        "{{'a': {0}, **{{'b': {1}}}}}",
        "({0} if model.module.ready else {1})",
    ]
    broken = st.tuples(st.sampled_from(forms), inner, inner, COMMENTS, st.booleans())

    def build(parts: tuple[str, str, str, str, bool]) -> str:
        form, first, second, comment, is_broken = parts
        text = form.format(first, second)
        return f"({comment}\n        {text}\n    )" if is_broken or comment else f"({text})"

    return broken.map(build)


EXPRESSIONS = st.recursive(NOISE | NAMES, calls, max_leaves=8)


def literals(text: str) -> Counter[str]:
    found = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return Counter(repr(value) for value in found if not isinstance(value, bool) and value is not None)


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def foreign(text: str) -> Counter[str]:
    """Every chain of attributes and every lambda that begins with a foreign name."""
    tree, found = ast.parse(text), Counter[str]()
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found[ast.dump(node)] += 1
        if isinstance(node, ast.Attribute) and node not in inner:
            base: ast.AST = node
            while isinstance(base, ast.Attribute):
                inner.add(base)
                base = base.value
            if isinstance(base, ast.Name) and base.id in FOREIGN:
                found[ast.dump(node)] += 1
    return found


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)
@given(EXPRESSIONS, EXPRESSIONS)
def test_what_is_not_fsdps_survives(first: str, second: str) -> None:
    before = f"{HEAD}    result = model.module.run({first})\n    {second}\n    return result\n"
    result = rewrite(before)
    after = result.text
    assert not literals(before) - literals(after)
    assert not comments(before) - comments(after)
    assert foreign(before) == foreign(after)
    assert result.report.changes
    assert all(each.level is not Level.KEPT for each in result.findings)


def test_a_file_of_a_newer_python_gets_support_functions(tmp_path: Path) -> None:
    """`def f[T]` is no Python to 3.10 and 3.11, which read it through LibCST."""
    text = HEAD.replace("def f(", "def unwrap[T](x: T) -> T:\n    return x\n\n\ndef f(")
    source = Source(tmp_path / "train.py", text + "    with model.no_sync():\n        model(1)\n")
    changes = {change.path.name: change.after for change in migrate([source], Options()).changes}
    assert "with unsynced(model):\n" in changes["train.py"]
    assert "def unsynced(" in changes["train.py"]
