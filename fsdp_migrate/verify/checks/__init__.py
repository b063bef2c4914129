"""The checks in report order. Each takes a `Comparison` and answers with rows; none prints, runs or reads anything."""

from __future__ import annotations

from collections.abc import Callable

from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.checks.end import end_weights, memory_and_time
from fsdp_migrate.verify.checks.expected import expected_loss, float8_layers
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

_BIT_BY_BIT: frozenset[Check] = frozenset({first_loss, norms, gradients, trajectory})
"""What compares numbers as exactly as rounding lets them be."""


def checks_for(comparison: Comparison) -> tuple[Check, ...]:
    """All checks; where a tolerance is stated for the loss, that in the place of those that know none."""
    if comparison.expect is None:
        return ALL
    if comparison.expect.loss is None:
        return (*ALL, float8_layers)
    return (*(check for check in ALL if check not in _BIT_BY_BIT), expected_loss, float8_layers)


__all__ = ["ALL", "Check", "Comparison", "checks_for"]
