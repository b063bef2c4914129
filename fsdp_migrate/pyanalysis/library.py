"""What is known of a library that a program imports, and that its names alone do not tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """A library with a class whose objects wrap another object, and stand for it. Names are dotted: `package.Class`."""

    wrapper: str
    """The name of that class, without its package."""
    is_wrapper: Callable[[str], bool]
    is_model_class: Callable[[str], bool]
    """Whether a parameter that is annotated with a class is such an object, whoever passes it: the wrapper is."""
    is_beside: Callable[[str], bool]
    """Whether it is an object of another kind then, which the program deals with in code of its own."""
    gives_wrappers: Callable[[str], bool]
    """Whether a function returns the wrappers that there are within one."""
    own: frozenset[str]
    """What the wrapper has itself: for anything else it asks what it wraps."""
    inner: frozenset[str]
    """The attributes by which a wrapper gives out what it wraps."""
    exports: Callable[[str, str], bool]
    """Whether `from module import *` brings a name."""
