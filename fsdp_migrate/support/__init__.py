"""The functions that can go into a user's `fsdp2_support.py`, and how that file is written."""

from fsdp_migrate.support.compose import available, compose, edited, parse, update

__all__ = ["available", "compose", "edited", "parse", "update"]
