"""The checks in report order. Each takes a `Comparison` and answers with rows; none prints, runs or reads anything."""

from __future__ import annotations

from collections.abc import Callable

from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.checks.end import end_weights, memory_and_time
from fsdp_migrate.verify.checks.files import files
from fsdp_migrate.verify.checks.gradients import carried_over, gradient_owners, gradients, norms
from fsdp_migrate.verify.checks.initial import initial_weights
from fsdp_migrate.verify.checks.losses import first_loss, trajectory
from fsdp_migrate.verify.checks.optimizers import hyper_parameters, state_bytes
from fsdp_migrate.verify.checks.structure import communication, dtypes, groups
from fsdp_migrate.verify.checks.vacuity import environment, vacuity
from fsdp_migrate.verify.report import CheckRow

Check = Callable[[Comparison], list[CheckRow]]

ALL: tuple[Check, ...] = (
    vacuity,  # first: when nothing was seen, no later row means anything
    environment,
    hyper_parameters,
    groups,
    dtypes,
    communication,
    state_bytes,
    initial_weights,
    first_loss,
    norms,
    gradients,
    gradient_owners,
    carried_over,
    trajectory,
    files,
    end_weights,
    memory_and_time,
)

__all__ = ["ALL", "Check", "Comparison"]
