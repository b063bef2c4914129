"""What every test can use."""

from __future__ import annotations

from hypothesis import settings

# Machines of continuous integration are slow and shared: a deadline for each example only makes tests flaky.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
