"""Losses that are computed of whole parameters, inside of `summon_full_params`."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context
from codemods.reading.gradients.into_backward import reaches_backward
from codemods.reading.parameters.of_model import whole_readings
from codemods.reading.parameters.reduced import reduction_of


def read_for_loss(block: cst.With, ctx: Context) -> Sequence[cst.BaseExpression]:
    """Where a block reads whole parameters, if a backward goes through what it makes of them."""
    seen = [(reading, each) for reading in whole_readings(block, ctx) for each in reading.seen(ctx)]
    read = [each for reading, each in seen if each is reading.node or each is not reading.param]
    return read if read and reaches_backward(read, ctx) else ()


def are_added_up(read: Sequence[cst.BaseExpression], ctx: Context) -> bool:
    """Whether each is read alone, for its norm, a sum, or another number."""
    return all(reduction_of(each, ctx) is not None for each in read)
