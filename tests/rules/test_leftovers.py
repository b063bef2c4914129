"""What no rule rewrites is named, with a hint, and raises where FSDP2 would ignore it: FM1xx, FM2xx, FM3xx, FM4xx."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, code, one_line, rewrite

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, x):
    model = FSDP(net)
"""
UNITS = "FSDP.fsdp_modules(model, root_only=True)"
RAISE = 'raise NotImplementedError("fsdp-migrate FM107: fsdp_modules finds nothing in an FSDP2 model")\n'

SILENT = [
    pytest.param(f"    with {UNITS}:\n        pass\n", f"    {RAISE}    with", id="with"),
    pytest.param(f"    with x, {UNITS} as y: pass\n", f"    {RAISE}    with", id="a, b"),
    pytest.param(f"    return {UNITS}\n", f"    {RAISE}    return", id="return"),
    pytest.param(f"    x = 1; y = {UNITS}\n", f"    {RAISE}    x = 1", id="semicolon"),
    pytest.param(f"    if x: {UNITS}\n", f"    if x:\n        {RAISE}        {UNITS}", id="behind a colon"),
    pytest.param(f"    if x:\n        pass\n    elif {UNITS}:\n        pass\n", f"    {RAISE}    if x", id="elif"),
    pytest.param(f"    while {UNITS}:\n        pass\n", f"    {RAISE}    while", id="while"),
    pytest.param(f"    for _ in {UNITS}:\n        pass\n", f"    {RAISE}    for", id="for"),
    pytest.param(f"    try:\n        {UNITS}\n    finally:\n        x()\n", f"    try:\n        {RAISE}", id="try"),
    pytest.param(f"    return lambda: {UNITS}\n", f"    {RAISE}    return", id="lambda"),
    pytest.param(f"    return [m for m in {UNITS}]\n", f"    {RAISE}    return", id="comprehension"),
    pytest.param(f"    @{UNITS}\n    def inner():\n        pass\n", f"    {RAISE}    @FSDP", id="decorator"),
    pytest.param(f"    def inner(y={UNITS}):\n        pass\n", f"    {RAISE}    def", id="default value"),
    pytest.param(f"    class Inner:\n        y = {UNITS}\n", f"    class Inner:\n        {RAISE}", id="class body"),
    pytest.param(f"    match {UNITS}:\n        case _: pass\n", f"    {RAISE}    match", id="match"),
]


@pytest.mark.parametrize(("statement", "after"), SILENT)
def test_silent_leftover_raises(statement: str, after: str) -> None:
    result = check_marked(HEAD + statement, "FM107", Level.MANUAL, "fsdp_modules")
    assert f"    model = fully_shard(net)\n{after}" in one_line(result.text)


def test_at_the_top_of_the_file() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(net)
        units = FullyShardedDataParallel.fsdp_modules(model, True)
        """
    )
    assert f"model = fully_shard(net)\n{RAISE}units = FullyShardedDataParallel" in one_line(rewrite(text).text)


def test_class_named_through_a_module_and_a_star_import() -> None:
    text = code(
        """
        import torch.distributed.fsdp as F
        from torch.distributed.fsdp import *

        model = F.FullyShardedDataParallel(net)
        F.FullyShardedDataParallel.fsdp_modules(model, True)
        FullyShardedDataParallel.fsdp_modules(model, True)
        """
    )
    result = rewrite(text)
    assert result.text.count("raise NotImplementedError") == 1, "once, for the same model"
    assert {finding.rule for finding in result.findings} == {"FM101", "FM107"}


def test_quotes_and_windows_newlines() -> None:
    text = (HEAD + f"    with {UNITS}:\n        pass\n").replace("\n", "\r\n")
    result = rewrite(text)
    assert RAISE.replace("\n", "\r\n") in one_line(result.text)
    assert "\n" not in result.text.replace("\r\n", "")


def test_builtins_beside_a_star_import_are_not_fsdp1() -> None:
    text = code(
        """
        from torch.distributed.fsdp import *

        model = FullyShardedDataParallel(net)
        print(True, len(list(model.parameters())))
        """
    )
    assert {finding.rule for finding in rewrite(text).findings} == {"FM101"}


NAMED = [
    (UNITS, "FM107"),
    ("FSDP.optim_state_dict(*x)", "FM303"),
    ("x._handle", "FM401"),
    ("model._handle.flat_param", "FM401"),
    ("[p._local_shard for p in x]", "FM401"),
    ("isinstance(x, FlatParameter)", "FM401"),
    ("model.register_comm_hook(x, x)", "FM211"),
    ("model.state_dict_type(model, x)", "FM207"),
    ("model.set_state_dict_type(model, x)", "FM207"),
    ("model.optim_state_dict(*x)", "FM207"),
    ("model.apply(x)", "FM403"),
    ("FSDP", "FM109"),
    ("{'fsdp': FSDP}", "FM109"),
    ("FSDP.some_new_method(model)", "FM100"),
]


@pytest.mark.parametrize(("expression", "rule"), NAMED)
def test_named_with_its_rule_and_a_cure(expression: str, rule: str) -> None:
    head = HEAD if "Flat" not in expression else HEAD.replace("as FSDP", "as FSDP, FlatParameter")
    result = check_marked(head + f"    return {expression}\n", rule, Level.MANUAL, line=6)
    assert f"    return {expression}\n" in result.text or "raise NotImplementedError" in result.text


STAYS = [
    "getattr(x.meter, 'no_sync_')",
    "getattr(model, 'config')",
    "x.apply(model)",
    "x.plugin.set_state_dict_type('FULL_STATE_DICT')",
    "'_fsdp_wrapped_module.' in x",
    "x.replace('_fsdp_wrapped_module.', '')",
    "model.named_parameters()",
]


@pytest.mark.parametrize("expression", STAYS)
def test_nothing_to_report(expression: str) -> None:
    result = rewrite(HEAD + f"    return {expression}\n")
    assert {level for _, level, _ in result.summary} == {"rewritten"}
    assert f"    return {expression}\n" in result.text


def test_subclass() -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel\n\n\n"
        "class Mine(FullyShardedDataParallel):\n    pass\n"
    )
    result = check_marked(text, "FM108", Level.MANUAL, "subclass", line=4)
    assert result.text == text


def test_private_helpers() -> None:
    text = HEAD.replace("\n\n\ndef", "\nfrom torch.distributed.fsdp._common_utils import _is_fsdp_flattened\n\n\ndef")
    result = rewrite(text + "    return _is_fsdp_flattened(x)\n")
    assert result.text.endswith("    return isinstance(x, DTensor)\n")  # what FSDP1 had flattened, FSDP2 shards
    assert {level for _, level, _ in result.summary} == {"rewritten"}
    check_marked(text + "    return list(map(_is_fsdp_flattened, x))\n", "FM401", Level.MANUAL, "internals")
    hook = "from torch.distributed.fsdp._runtime_utils import _pre_backward_hook\n"
    result = check_marked(
        f"{hook}{HEAD}    _pre_backward_hook(x, model, None, None)\n", "FM401", Level.MANUAL, "internals"
    )
    assert "module.unshard()" in next(each.hint for each in result.findings if each.rule == "FM401")


def test_program_without_a_constructor_is_only_reported() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


        def save(model):
            with FSDP.summon_full_params(model):
                return model.state_dict(), MixedPrecision()
        """
    )
    result = rewrite(text)
    assert result.text == text
    assert {finding.level for finding in result.findings} == {Level.MANUAL}


def test_patched_internals_are_reported() -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, _runtime_utils\n\n"
        "_runtime_utils._lazy_init = print\n\n\ndef shard(net):\n    return FSDP(net)\n"
    )
    assert [finding.rule for finding in rewrite(text).findings if finding.line == 3] == ["FM401"]


@pytest.mark.parametrize(
    "statement", ["model._sync_gradients = False", "model.limit_all_gathers = x", "model._handle = x"]
)
def test_attribute_of_the_wrapper_that_is_set_raises(statement: str) -> None:
    """FSDP2 would keep the attribute, and never look at it."""
    rule = "FM401" if "_handle" in statement else "FM207"
    result = check_marked(HEAD + f"    {statement}\n", rule, Level.MANUAL, line=6)
    assert f'    raise NotImplementedError("fsdp-migrate {rule}: ' in one_line(result.text)
    assert result.text.endswith(f"    {statement}\n")


@pytest.mark.parametrize("name", ["params", "rank"])
def test_attribute_that_a_program_may_have_too(name: str) -> None:
    for read in (f"model.{name}", f"getattr(model, '{name}', 0)", f"hasattr(model, '{name}')"):
        text = HEAD + f"    return {read}\n"
        asked = "FM207" if read.startswith("model") else "FM205"
        is_rewritten = read == "model.rank"
        manual = {rule for rule, level, _ in rewrite(text).summary if level == "manual"}
        assert manual == (set() if is_rewritten else {asked})
        own = text.replace("return", f"net.{name} = 1\n    return")
        assert {level for _, level, _ in rewrite(own).summary} == {"rewritten"}


SETTINGS = """

class Settings:
    def __init__(self, asked):
        self.fsdp = asked.fsdp


def start(net, name, asked):
    settings = Settings(asked)
    setattr(settings, name, FSDP(net))
    if settings.fsdp.sharding_strategy == {}:
        print(settings.fsdp.sharding_strategy)
"""


def test_a_setting_that_is_a_text_is_not_the_wrappers() -> None:
    for value, is_found in (("'full'", False), ("asked.strategy", True)):
        assert ("FM207" in {each.rule for each in rewrite(HEAD + SETTINGS.format(value)).findings}) is is_found


RECURSIVE = """\
from functools import partial

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import _recursive_wrap, lambda_auto_wrap_policy


def apply_checkpointing(model, wrapper=checkpoint_wrapper, check_fn=bool):
    policy = partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    return _recursive_wrap(model, policy, wrapper_cls=wrapper, ignored_modules=set(), ignored_params=set())


def main(net):
    apply_checkpointing(FSDP(net))
"""


def test_what_wraps_in_something_else_than_fsdp1_goes_on() -> None:
    result = rewrite(RECURSIVE)
    assert "raise" not in result.text
    assert "    return _recursive_wrap(model, policy, wrapper_cls=wrapper, " in result.text
    assert {level for _, level, _ in result.summary} == {"rewritten", "review"}


def test_what_wraps_in_fsdp1_stops() -> None:
    text = RECURSIVE.replace("wrapper=checkpoint_wrapper", "wrapper=FSDP")
    assert "raise NotImplementedError" in rewrite(text).text


def test_what_torch_has_no_more_asks_no_person() -> None:
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def policy(ordered):
            if ordered:
                from torch.distributed.fsdp.wrap import HandleInitMode, ParamExecOrderPolicy

                return ParamExecOrderPolicy(HandleInitMode.MODULE_LEVEL)
            return None


        model = FSDP(net)
        """
    result = rewrite(code(text))
    assert "return ParamExecOrderPolicy(HandleInitMode.MODULE_LEVEL)" in result.text
    found = [each for each in result.findings if each.rule == "FM100"]
    assert [(each.level, "no more" in each.message or "any more" in each.message) for each in found] == [
        (Level.REVIEW, True),
        (Level.REVIEW, True),
    ]


@pytest.mark.parametrize(("defined", "is_told"), [("_local_shard", False), ("own", True)])
def test_method_of_the_programs_own_named_like_an_internal(defined: str, is_told: bool) -> None:
    text = (
        "from library import Base\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        f"class Check(Base):\n    def {defined}(self, tensor):\n        return tensor.narrow(0, 0, 1)\n\n"
        "    def check(self, net, tensor):\n        self.model = FSDP(net)\n        return self._local_shard(tensor)\n"
    )
    assert ("FM401" in {finding.rule for finding in rewrite(text).findings}) == is_told


OWN_CLIPPING = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, _runtime_utils
from torch.distributed.fsdp.fully_sharded_data_parallel import _get_grad_norm


def clip(module):
    _runtime_utils._lazy_init(module, module)
    sharded = set()
    for handle in module._all_handles:
        sharded.add(handle.flat_param)
    return _get_grad_norm(sharded, 2.0)


def main(net):
    return clip(FSDP(net))
"""


def test_what_a_private_function_is_given_beside_a_model_does_not_raise() -> None:
    """`if isinstance(sharded, FSDPModule):` of a set stopped nothing (easy-to-hard: 12 such tests)."""
    text = rewrite(OWN_CLIPPING).text
    assert text.count("raise NotImplementedError(") == 1
    assert text.index("raise NotImplementedError(") < text.index("_runtime_utils._lazy_init(module, module)")
    assert "isinstance(sharded, FSDPModule)" not in text


@pytest.mark.parametrize("module", ["torch.distributed.fsdp", "torch.distributed.fsdp.fully_sharded_data_parallel"])
def test_path_that_something_looks_up(module: str) -> None:
    text = f'PARALLEL = {{"_target_": "{module}.FullyShardedDataParallel", "use_orig_params": True}}\n'
    (found,) = rewrite(text).findings
    assert (found.rule, found.level) == ("FM109", Level.MANUAL)
    (found,) = rewrite(f'import pydoc\nwrap = pydoc.locate("{module}.FullyShardedDataParallel")\n').findings
    assert (found.rule, found.level) == ("FM109", Level.MANUAL)
    assert not rewrite('PARALLEL = {"_target_": "torch.distributed.fsdp.fully_shard"}\n').findings
    assert not rewrite(f'IGNORED = [("py:class", "{module}.FullyShardedDataParallel")]\n').findings
    assert not rewrite(f'@mock.patch("{module}.FullyShardedDataParallel")\ndef test(wrapper):\n    ...\n').findings
