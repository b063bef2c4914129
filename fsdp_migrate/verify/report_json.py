"""The report as JSON, for programs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from fsdp_migrate.verify.report import ParityReport

SCHEMA = 1


def to_json(report: ParityReport) -> str:
    """One object. NaN and infinities, which JSON has no number for, are the strings "nan", "inf" and "-inf"."""
    content = {"schema": SCHEMA, "exit_code": report.exit_code, "failed": list(report.failed), **asdict(report)}
    return json.dumps(_plain(content), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
