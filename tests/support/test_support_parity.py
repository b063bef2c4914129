"""FSDP1 and the composed support module, side by side on gloo: the same units, collectives, losses and values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.support import available, compose

from .launch import HERE, run

torch = pytest.importorskip("torch")
