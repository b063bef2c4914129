"""The tables of `codemods/tables`: one test a row."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest
import torch

from codemods.tables import leftovers
from codemods.tables.arguments import ARGUMENTS, DROPPED, POSITIONS, Argument
from codemods.tables.leftovers import LEFTOVERS, Leftover
from codemods.tables.modules import OF_MODULE
from codemods.tables.names import FSDP1, MANUAL_WRAPPING, SILENT_ON_FSDP2, fsdp1_name
from codemods.tables.state_dicts import CONFIG_FIELDS, OPTIMIZER_CALLS
from codemods.tables.strategies import STRATEGIES

from ..helpers import FSDP1 as KNOWN
from ..helpers import SILENT, rewrite

FUNCTIONS = Path(__file__).parents[2] / "fsdp_migrate" / "support" / "functions"
SUPPORT_FUNCTIONS = [
    node
    for path in sorted(FUNCTIONS.glob("*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef)
]
HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"

# The signature of FullyShardedDataParallel.__init__ in torch 2.13.
SIGNATURE = """
    module process_group sharding_strategy cpu_offload auto_wrap_policy backward_prefetch mixed_precision
    ignored_modules param_init_fn device_id sync_module_states forward_prefetch limit_all_gathers use_orig_params
    ignored_states device_mesh
"""


def test_positions_are_those_of_the_signature() -> None:
    assert list(POSITIONS) == SIGNATURE.split()


@pytest.mark.parametrize("argument", ARGUMENTS[1:], ids=lambda argument: argument.name)
def test_default_of_an_argument_can_go(argument: Argument) -> None:
    default = argument.default
    if default == "BACKWARD_PRE":
        default = "BackwardPrefetch.BACKWARD_PRE"
    head = HEAD + "from torch.distributed.fsdp import BackwardPrefetch\n"
    result = rewrite(head + f"model = FSDP(net, {argument.name}={default})\n")
    assert result.text.endswith("model = fully_shard(net)\n")
    assert [level for _, level, _ in result.summary] == ["rewritten"]


@pytest.mark.parametrize("argument", ARGUMENTS, ids=lambda argument: argument.name)
def test_argument_is_replaced_or_dropped_for_a_reason(argument: Argument) -> None:
    assert bool(argument.becomes) != bool(argument.dropped_because)
    assert (argument.name in DROPPED) == bool(argument.dropped_because)


@pytest.mark.parametrize("argument", ARGUMENTS, ids=lambda argument: argument.name)
def test_argument_by_position_is_the_argument_by_name(argument: Argument) -> None:
    before = [f"{other.name}_value" for other in ARGUMENTS[: ARGUMENTS.index(argument)]]
    names = ", ".join([*before, "value"])
    by_name = ", ".join(
        [f"{other.name}={other.name}_value" for other in ARGUMENTS[: len(before)]] + [f"{argument.name}=value"]
    )
    texts = [
        rewrite(HEAD + f"def wrap({names}):\n    return FSDP({given})\n").findings[0].message
        for given in (names, by_name)
    ]
    assert texts[0] == texts[1]


STRATEGY_ARGUMENTS = {"FULL_SHARD": "", "SHARD_GRAD_OP": ", reshard_after_forward=False"}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy(name: str) -> None:
    head = HEAD + "from torch.distributed.fsdp import ShardingStrategy\n"
    result = rewrite(head + f"model = FSDP(net, sharding_strategy=ShardingStrategy.{name})\n")
    if name in STRATEGY_ARGUMENTS:
        assert result.text.endswith(f"model = fully_shard(net{STRATEGY_ARGUMENTS[name]})\n")
        assert STRATEGIES[name].mesh == ""
    else:
        assert STRATEGIES[name].mesh
        assert result.text.endswith("model = fully_shard(net, mesh=mesh)\n") or result.support == {"shard_model"}


def test_no_other_strategy_exists() -> None:
    assert set(STRATEGIES) == {"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD"}


@pytest.mark.parametrize("name", CONFIG_FIELDS)
def test_fields_of_a_config(name: str) -> None:
    api = pytest.importorskip("torch.distributed.fsdp.api")
    fields = dataclasses.fields(getattr(api, name))
    assert CONFIG_FIELDS[name] == {field.name: str(field.default) for field in fields}


IN_PLACE = {"full_optim_state_dict", "optim_state_dict", "rekey_optim_state_dict"}
"""Calls that the support module has a function of the same name for, which takes the arguments as they are."""


@pytest.mark.parametrize("name", OPTIMIZER_CALLS)
def test_parameters_of_an_optimizer_method(name: str) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    row = OPTIMIZER_CALLS[name]
    old = inspect.signature(getattr(fsdp.FullyShardedDataParallel, name)).parameters
    assert list(row.parameters) == list(old)
    if name not in IN_PLACE:
        return
    kept = [parameter for parameter in row.parameters if parameter not in row.dropped]
    (function,) = [node for node in SUPPORT_FUNCTIONS if node.name == name]
    ours = [argument.arg for argument in function.args.args]
    assert ours[: len(kept)] == kept
    defaults = {a: ast.unparse(d) for a, d in zip(reversed(ours), reversed(function.args.defaults), strict=False)}
    expected = {n: str(old[n].default) for n in kept if old[n].default is not inspect.Parameter.empty}
    expected.pop("rank0_only", None)  # which is written out where it holds
    assert {n: defaults.get(n) for n in expected} == expected


@pytest.mark.parametrize("name", sorted(FSDP1))
def test_name_is_known_wherever_it_is_imported_from(name: str) -> None:
    for module in ("", "api.", "wrap.", "fully_sharded_data_parallel.", "sharded_grad_scaler."):
        is_module = name == "wrap" and not module
        assert fsdp1_name(f"torch.distributed.fsdp.{module}{name}") == (None if is_module else name)
        if name != "wrap":
            assert fsdp1_name(f"torch.distributed.fsdp.{module}{name}.member") == f"{name}.member"
    assert fsdp1_name(f"other.fsdp.{name}") is None
    assert fsdp1_name(name) is None


def test_no_name_was_forgotten() -> None:
    assert set(FSDP1) == KNOWN
    assert {name.split(".")[1] for name in SILENT_ON_FSDP2} == SILENT


FSDP2 = ["fully_shard", "FSDPModule", "MixedPrecisionPolicy", "CPUOffloadPolicy", "OffloadPolicy", "UnshardHandle"]


@pytest.mark.parametrize(
    "name", [*FSDP2, "register_fsdp_forward_method", "_fully_shard.FSDPModule", "_fully_shard._fsdp_api.X"]
)
def test_name_of_fsdp2_is_none_of_fsdp1(name: str) -> None:
    assert fsdp1_name(f"torch.distributed.fsdp.{name}") is None


@pytest.mark.parametrize("name", sorted({*LEFTOVERS} - {"ShardedGradScaler"}))  # it has a rule of its own
def test_leftover(name: str) -> None:
    row = LEFTOVERS[name]
    use = name.replace("FullyShardedDataParallel", "FSDP")
    module = "torch.distributed.fsdp" + (".wrap" if name in MANUAL_WRAPPING else "")
    head = HEAD if use.startswith("FSDP") else HEAD + f"from {module} import {name}\n"
    wrapping = "" if name in MANUAL_WRAPPING else "model = FSDP(net)\n"  # where there is a model, they are rewritten
    result = rewrite(head + f"{wrapping}kept = {use}\n")
    (found,) = [finding for finding in result.findings if finding.rule == row.code]
    assert (found.level.value, found.message, found.hint) == ("manual", row.message, row.hint)
    assert "raise NotImplementedError" not in result.text  # it is given no model that could be sharded


@pytest.mark.parametrize("name", sorted(leftovers.INTERNALS - {"_fsdp_wrapped_module"}))  # what has it is the model
def test_internal_attribute(name: str) -> None:
    result = rewrite(HEAD + f"model = FSDP(net)\nkept = net.{name}\n")
    assert [finding.rule for finding in result.findings] == ["FM101", leftovers.PRIVATE.code]


@pytest.mark.parametrize("name", sorted(leftovers.BY_NAME))
def test_method_looked_up_by_name(name: str) -> None:
    result = rewrite(HEAD + f"model = FSDP(net)\nkept = getattr(model, '{name}', None)\n")
    assert [finding.rule for finding in result.findings] == ["FM101", "FM205"]


WITH_A_RULE = {"compute_device", "fsdp_modules", "process_group"}


@pytest.mark.parametrize("name", sorted((leftovers.STATIC | leftovers.OF_WRAPPER) - WITH_A_RULE))
def test_method_of_the_wrapper_on_a_model(name: str) -> None:
    result = rewrite(HEAD + f"model = FSDP(net)\nkept = model.{name}(model)\n")
    # What reads or loads a state cannot do without the optimizer.
    rule = "FM303" if name == "rekey_optim_state_dict" else leftovers.ON_MODEL.code
    assert [finding.rule for finding in result.findings] == ["FM101", rule]


ROWS = [*LEFTOVERS.values(), *(row for row in vars(leftovers).values() if isinstance(row, Leftover))]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code} {row.message[:30]}")
def test_row_reads_well(row: Leftover) -> None:
    assert re.fullmatch(r"FM[1-5]\d\d", row.code)
    assert row.message
    assert row.hint
    assert not row.message.endswith(".")


def test_what_each_module_has() -> None:
    assert {name for name in dir(torch.nn.Module) if not name.startswith("_")} == OF_MODULE
