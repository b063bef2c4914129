"""The parent side of the parity check: launch both programs, watch, merge what the ranks wrote, compare, report.

Imports no torch: everything that needs it runs in the child processes (`fsdp_migrate.probe`).
"""

from __future__ import annotations

from fsdp_migrate.verify.dry_run import dry_run
from fsdp_migrate.verify.report import CheckRow, Curves, Failure, Mark, ParityReport, Setting, Verdict
from fsdp_migrate.verify.request import CheckRequest
from fsdp_migrate.verify.run import run_check
from fsdp_migrate.verify.runner import Progress
from fsdp_migrate.verify.separate import Recording, compare, record

__all__ = [
    "CheckRequest",
    "CheckRow",
    "Curves",
    "Failure",
    "Mark",
    "ParityReport",
    "Progress",
    "Recording",
    "Setting",
    "Verdict",
    "compare",
    "dry_run",
    "record",
    "run_check",
]
