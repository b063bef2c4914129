"""Every mistake, the fixtures it is made in, and the check that is there for it.

The thresholds were frozen long before (see ../cases.py), and none was moved for a mutant.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.verify.mutants.edits import moved_up, replaced, swapped

Edit = Callable[[str], str]


@dataclass(frozen=True)
class Mistake:
    """One kind of mistake, and the fixtures that can make it."""

    name: str
    kind: str
    edit: Edit
    expected: str
    fixtures: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """One wrong migration."""

    mistake: Mistake
    fixture: str

    @property
    def id(self) -> str:
        return f"{self.fixture}: {self.mistake.name}"


def put(pattern: str, by: str, within: type[ast.AST] | None = None) -> Edit:
    return partial(replaced, pattern=pattern, by=by, within=within)


def swap(first: str, second: str) -> Edit:
    return partial(swapped, first=first, second=second)


def move_up(statement: str, before: str) -> Edit:
    return partial(moved_up, statement=statement, before=before)


MESH = '__import__("torch.distributed.device_mesh", fromlist=["x"])'
REPLICAS = f'{MESH}.init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))'
ALONE = f'{MESH}.DeviceMesh("cpu", [dist.get_rank()])'
BF16 = '__import__("torch.distributed.fsdp", fromlist=["x"]).MixedPrecisionPolicy(torch.bfloat16)'
SAVE_DCP = '__import__("torch.distributed.checkpoint", fromlist=["x"]).save(A, checkpoint_id=B, no_dist=True)'

WRAPPING = (
    Mistake(
        "units not sharded",
        "drop",
        put("fully_shard(A, **REST)", "None", ast.For),
        "S1",
        ("quickstart", "mixed_precision", "own_list", "checkpoint"),
    ),
    Mistake(
        "root not sharded",
        "drop",
        put("fully_shard(model, **REST)", "model"),
        "S1",
        ("quickstart", "lambda_lora"),
    ),
    Mistake(
        "replicated, not sharded",
        "group",
        put("fully_shard(A, **REST)", f"fully_shard(A, mesh={REPLICAS}, **REST)"),
        "S1",
        ("quickstart", "mixed_precision", "resumable_trainer"),
    ),
    Mistake(
        "each rank alone",
        "group",
        put("fully_shard(A, **REST)", f"fully_shard(A, mesh={ALONE}, **REST)"),
        "S1",
        ("quickstart", "accumulation"),
    ),
    Mistake(
        "kept gathered after forward",
        "negate",
        put("fully_shard(A, **REST)", "fully_shard(A, reshard_after_forward=False, **REST)", ast.For),
        "S3",
        ("quickstart", "own_list", "batch_norm"),
    ),
    Mistake(
        "resharded after forward",
        "negate",
        put(
            "fully_shard(A, reshard_after_forward=False, **REST)", "fully_shard(A, reshard_after_forward=True, **REST)"
        ),
        "S3",
        ("mixed_precision",),
    ),
    Mistake(
        "kept gathered after backward",
        "negate",
        put("fully_shard(model, **REST)", "fully_shard(model, **REST).set_reshard_after_backward(False)"),
        "S3",
        ("quickstart",),
    ),
    Mistake(
        "mixed precision lost",
        "drop",
        put("fully_shard(A, mp_policy=B, **REST)", "fully_shard(A, **REST)"),
        "S2",
        ("mixed_precision", "own_list", "batch_norm"),
    ),
    Mistake(
        "mixed precision from nowhere",
        "swap",
        put("fully_shard(A, **REST)", f"fully_shard(A, mp_policy={BF16}, **REST)"),
        "S2",
        ("quickstart", "units_by_size"),
    ),
    Mistake(
        "dtypes exchanged",
        "swap",
        put(
            "MixedPrecisionPolicy(param_dtype=A, reduce_dtype=B)", "MixedPrecisionPolicy(param_dtype=B, reduce_dtype=A)"
        ),
        "S2",
        ("mixed_precision", "own_list"),
    ),
    Mistake(
        "reduced in another dtype",
        "swap",
        put(
            "MixedPrecisionPolicy(param_dtype=A, reduce_dtype=B)", "MixedPrecisionPolicy(param_dtype=A, reduce_dtype=A)"
        ),
        "S2",
        ("mixed_precision",),
    ),
)
OPTIMIZERS = (
    Mistake(
        "learning rate 1 % off",
        "rescale",
        put("torch.optim.AdamW(A, lr=B, **REST)", "torch.optim.AdamW(A, lr=1.01 * B, **REST)"),
        "H0",
        ("quickstart", "mixed_precision", "resumable_trainer", "own_list", "units_by_size"),
    ),
    Mistake(
        "learning rate negated",
        "negate",
        put("torch.optim.AdamW(A, lr=B, **REST)", "torch.optim.AdamW(A, lr=B, maximize=True, **REST)"),
        "H0",
        ("quickstart",),
    ),
    Mistake(
        "another weight decay",
        "rescale",
        put("torch.optim.AdamW(A, weight_decay=B, **REST)", "torch.optim.AdamW(A, weight_decay=B * 2, **REST)"),
        "H0",
        ("accumulation", "checkpoint"),
    ),
    Mistake(
        "betas exchanged",
        "swap",
        put("torch.optim.AdamW(A, betas=(B, C), **REST)", "torch.optim.AdamW(A, betas=(C, B), **REST)"),
        "H0",
        ("mixed_precision",),
    ),
    Mistake(
        "another optimizer",
        "swap",
        put("torch.optim.AdamW(A, **REST)", "torch.optim.Adam(A, **REST)"),
        "H0",
        ("own_list",),
    ),
    Mistake(
        "a parameter left out",
        "drop",
        put("torch.optim.AdamW(A.parameters(), **REST)", "torch.optim.AdamW(list(A.parameters())[1:], **REST)"),
        "H0",
        ("quickstart", "batch_norm"),
    ),
    Mistake(
        "optimizer before fully_shard",
        "reorder",
        move_up("torch.optim.AdamW(A, **REST)", "fully_shard(A, **REST)"),
        "H0",
        ("quickstart", "accumulation", "mixed_precision"),
    ),
)
LOOP = (
    Mistake(
        "gradients kept",
        "drop",
        put("A.zero_grad(**REST)", "None"),
        "G1",
        ("quickstart", "mixed_precision", "own_list", "resumable_trainer", "batch_norm", "units_by_size"),
    ),
    Mistake(
        "gradients cleared before the step",
        "reorder",
        swap("A.step()", "A.zero_grad(**REST)"),
        "G0",
        ("own_list", "checkpoint"),
    ),
    Mistake("step before backward", "reorder", swap("A.backward()", "A.step()"), "G0", ("quickstart", "checkpoint")),
    Mistake(
        "gradients cleared after backward",
        "reorder",
        put("A.backward()", "A.backward(), optimizer.zero_grad()"),
        "G0",
        ("quickstart", "mixed_precision"),
    ),
    Mistake(
        "gradients summed",
        "rescale",
        put("A.backward()", "A.backward(), [p.grad.mul_(2) for p in model.parameters()]"),
        "N3",
        ("quickstart", "mixed_precision"),
    ),
    Mistake("schedule forgotten", "drop", put("scheduler.step()", "None"), "H0", ("accumulation",)),
    Mistake(
        "schedule twice",
        "rescale",
        put("scheduler.step()", "scheduler.step(), scheduler.step()"),
        "H0",
        ("accumulation",),
    ),
    Mistake(
        "clipping at half the norm",
        "rescale",
        put("torch.nn.utils.clip_grad_norm_(A, B)", "torch.nn.utils.clip_grad_norm_(A, B / 4)"),
        "N3",
        ("accumulation", "own_list", "resumable_trainer"),
    ),
    Mistake(
        "clipping lost",
        "drop",
        put("torch.nn.utils.clip_grad_norm_(A, B)", "torch.nn.utils.clip_grad_norm_(A, 1e9)"),
        "N4n",
        ("resumable_trainer",),
    ),
    Mistake(
        "clipping by the largest value",
        "swap",
        put("torch.nn.utils.clip_grad_norm_(A, B)", "torch.nn.utils.clip_grad_norm_(A, B, norm_type=1)"),
        "N3",
        ("own_list",),
    ),
    Mistake(
        "synchronisation negated",
        "negate",
        put("A.set_requires_gradient_sync(B)", "A.set_requires_gradient_sync(not B)"),
        "N2",
        ("accumulation", "resumable_trainer"),
    ),
    Mistake(
        "synchronisation always",
        "drop",
        put("A.set_requires_gradient_sync(B)", "None"),
        "S3",
        ("accumulation", "resumable_trainer"),
    ),
    Mistake(
        "synchronisation of the root only",
        "drop",
        put("A.set_requires_gradient_sync(B)", "A.set_requires_gradient_sync(B, recurse=False)"),
        "S3",
        ("accumulation", "resumable_trainer"),
    ),
    Mistake(
        "loss doubled",
        "rescale",
        put("A.backward()", "(A * 2).backward()"),
        "N1",
        ("quickstart", "mixed_precision", "units_by_size"),
    ),
    Mistake("loss negated", "negate", put("A.backward()", "(-A).backward()"), "N1", ("own_list", "checkpoint")),
    Mistake("loss not divided", "drop", put("A / args.accumulate", "A"), "N1", ("accumulation",)),
    Mistake(
        "same data on each rank",
        "rank",
        put("torch.Generator().manual_seed(A)", "torch.Generator().manual_seed(0)"),
        "N1",
        ("quickstart", "mixed_precision", "checkpoint"),
    ),
    Mistake(
        "data of another rank",
        "rank",
        put("DistributedSampler(A, **REST)", "DistributedSampler(A, num_replicas=2, rank=1 - dist.get_rank(), **REST)"),
        "N1",
        ("accumulation",),
    ),
    Mistake(
        "another seed",
        "rank",
        put("torch.manual_seed(A)", "torch.manual_seed(A + 1)"),
        "N0",
        ("quickstart", "accumulation"),
    ),
    Mistake("a run cut short", "drop", put("range(A)", "range(2)", ast.For), "V0", ("quickstart",)),
)
WEIGHTS = (
    Mistake(
        "first values not sent", "drop", put("dist.broadcast(A, **REST)", "None"), "N0", ("own_list", "meta_rank0")
    ),
    Mistake(
        "values of another rank",
        "rank",
        put("dist.broadcast(A, src=0)", "dist.broadcast(A, src=1)"),
        "N0",
        ("own_list",),
    ),
    Mistake(
        "values of another rank of the group",
        "rank",
        put("dist.broadcast(A, group_src=0, **REST)", "dist.broadcast(A, group_src=1, **REST)"),
        "N0",
        ("meta_rank0",),
    ),
)
FILES = (
    Mistake(
        "a sharded state dict",
        "format",
        put("StateDictOptions(full_state_dict=True, **REST)", "StateDictOptions(full_state_dict=False, **REST)"),
        "F",
        ("resumable_trainer",),
    ),
    Mistake(
        "the model's own state dict",
        "format",
        put("get_model_state_dict(A, **REST)", "A.state_dict()"),
        "F",
        ("helpers_package", "resumable_trainer", "lora_units"),
    ),
    Mistake(
        "the optimizer's own state dict",
        "format",
        put("get_optimizer_state_dict(A, B, **REST)", "B.state_dict()"),
        "F",
        ("resumable_trainer", "shared_kwargs"),
    ),
    Mistake(
        "another format", "format", put("torch.save(A, B)", SAVE_DCP), "F", ("helpers_package", "resumable_trainer")
    ),
    Mistake(
        "saved by another rank",
        "rank",
        put("dist.get_rank() == 0", "dist.get_rank() == 1"),
        "F",
        ("resumable_trainer", "helpers_package"),
    ),
    Mistake("saved by every rank", "rank", put("dist.get_rank() == 0", "True"), "F", ("checkpoint",)),
    Mistake(
        "an entry lost",
        "drop",
        put("torch.save(A, B)", 'torch.save({k: v for k, v in A.items() if k != "optimizer"}, B)'),
        "F",
        ("resumable_trainer",),
    ),
    Mistake(
        "keys in another order",
        "reorder",
        put("torch.save(A, B)", "torch.save(dict(reversed(list(A.items()))), B)"),
        "F",
        ("resumable_trainer",),
    ),
    Mistake(
        "weights saved in bf16",
        "rescale",
        put("get_model_state_dict(A, **REST)", "{k: v.bfloat16() for k, v in get_model_state_dict(A, **REST).items()}"),
        "F",
        ("resumable_trainer", "helpers_package"),
    ),
    Mistake(
        "weights saved 1 % off",
        "rescale",
        put("get_model_state_dict(A, **REST)", "{k: v * 1.01 for k, v in get_model_state_dict(A, **REST).items()}"),
        "F",
        ("resumable_trainer", "checkpoint"),
    ),
    Mistake("nothing saved", "drop", put("torch.save(A, B)", "None"), "F", ("helpers_package", "resumable_trainer")),
    Mistake("weights not loaded", "drop", put("set_model_state_dict(A, **REST)", "None"), "N4", ("checkpoint",)),
    Mistake("optimizer not loaded", "drop", put("load_optimizer(**REST)", "None"), "N4", ("checkpoint",)),
)
MISTAKES = (*WRAPPING, *OPTIMIZERS, *LOOP, *WEIGHTS, *FILES)
MUTANTS = tuple(Mutant(mistake, fixture) for mistake in MISTAKES for fixture in mistake.fixtures)
