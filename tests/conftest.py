"""What every test can use."""

from __future__ import annotations

import os

from hypothesis import settings

# Machines of continuous integration are slow and shared: a deadline for each example only makes tests flaky. There the
# examples are always the same, so that a red run means that the project changed; new ones are looked for elsewhere.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
