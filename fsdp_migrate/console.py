"""Standard output and standard error. A reader that goes away (`| head`) is not an error."""

from __future__ import annotations

import os
import sys
from typing import IO


def out(text: str) -> None:
    """Results, as UTF-8 wherever the system's own encoding could not hold them."""
    _write(sys.stdout, text)


def err(text: str) -> None:
    """What is wrong, and what became of the files; never part of a result."""
    _write(sys.stderr, text)


def out_bytes(data: bytes) -> None:
    """Bytes as they are: a diff or a file keeps its own encoding and line ends."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:  # a test's or a notebook's stand-in
        out(data.decode("utf-8", "replace"))
        return
    try:
        sys.stdout.flush()
        buffer.write(data)
        buffer.flush()
    except BrokenPipeError:
        _silence(sys.stdout)


def is_coloured(stream: IO[str]) -> bool:
    """Whether somebody looks at the stream and wants colour (NO_COLOR, FORCE_COLOR, TERM=dumb)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _write(stream: IO[str], text: str) -> None:
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = getattr(stream, "encoding", None) or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _silence(stream)


def _silence(stream: IO[str]) -> None:
    """Nobody reads any more: the interpreter must not fail again when it closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
