"""Read a Python file so that it can be written back byte for byte."""

from __future__ import annotations

import ast
import io
import os
import stat
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path

BOM = b"\xef\xbb\xbf"


class FileProblem(Exception):
    """Something is wrong with one file. The run goes on without it; the user is told `message` and `hint`."""

    def __init__(self, path: Path, message: str, hint: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message
        self.hint = hint


class UnreadableError(FileProblem):
    """A file that is not there, not Python source, or not in the encoding it declares."""


class UnwritableError(FileProblem):
    """A file whose new text could not be written. What was on disk before is still there."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it was read: newlines as they stand, without the byte order mark."""

    path: Path
    text: str
    encoding: str = "utf-8"
    """As the file declares it (PEP 263); without a declaration, UTF-8."""
    bom: bool = False


def read_source(path: Path) -> Source:
    """Read one file. Raises `UnreadableError`, and nothing else, whatever the path leads to."""
    if path.suffix == ".ipynb":
        hint = "export it with `jupyter nbconvert --to script`, and name the script"
        raise UnreadableError(path, "is a notebook, and its cells are not read", hint)
    return source_of(path, _read_bytes(path))


def text_or_nothing(path: Path) -> str:
    """What a file says, as far as it is UTF-8; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def source_of(path: Path, data: bytes) -> Source:
    """What `data` says when it is read as the file `path`. Raises `UnreadableError`."""
    if b"\0" in data:
        raise UnreadableError(path, "holds null bytes, so it is not Python source", "leave it out with --exclude")
    bom = data.startswith(BOM)
    body = data[len(BOM) :] if bom else data
    encoding = _declared_encoding(path, data)
    try:
        text = _decode(body, encoding)
    except UnicodeDecodeError as error:
        raise _not_decodable(path, body, encoding, error.start) from None
    except (LookupError, ValueError) as error:
        raise UnreadableError(path, f"cannot be read as {encoding}: {error}", "save it as UTF-8") from None
    source = Source(path, text, encoding, bom)
    if not _comes_back(source, data):
        # Some codecs read several byte sequences as one character: writing the file back would change other lines.
        raise UnreadableError(path, f"would not come back byte for byte from {encoding}", "save it as UTF-8")
    return source


def _comes_back(source: Source, data: bytes) -> bool:
    try:
        return encode(source, source.text) == data
    except UnwritableError:  # some also read what they cannot write
        return False


def encode(source: Source, text: str) -> bytes:
    """The bytes of `text` in the encoding and with the byte order mark of `source`. Raises `UnwritableError`."""
    try:
        body = text.encode(source.encoding)
    except (UnicodeError, ValueError) as error:
        hint = f"save the file as UTF-8, or use only characters that {source.encoding} has"
        raise UnwritableError(source.path, f"the new text does not fit into {source.encoding}: {error}", hint) from None
    return BOM + body if source.bom else body


def check_syntax(source: Source) -> None:
    """Raise `UnreadableError`, with line and column, when the text is not Python to this interpreter."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source.text)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        hint = "mend the syntax first; the file was left as it is"
        raise UnreadableError(source.path, f"{where}{error.msg}", hint) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableError(source.path, f"cannot be parsed: {error}", "leave it out with --exclude") from None


def _read_bytes(path: Path) -> bytes:
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableError(path, "is a directory", "name the Python files in it")
        if not stat.S_ISREG(mode):
            raise UnreadableError(path, "is not a regular file", "pass a program on standard input as -")
        return path.read_bytes()
    except FileNotFoundError:
        raise UnreadableError(path, "does not exist", "check the spelling of the path") from None
    except PermissionError:
        raise UnreadableError(path, "may not be read", "check the permissions of the file and its folder") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableError(path, f"cannot be read: {reason}", "check the path") from None


def _declared_encoding(path: Path, data: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, UnicodeError, LookupError, ValueError) as error:
        if not _starts_as_utf8(data):
            return "utf-8"  # decoding says which byte is wrong
        hint = "declare an encoding that Python knows, or save the file as UTF-8"
        raise UnreadableError(path, f"declares an encoding that cannot be used ({error})", hint) from None
    return "utf-8" if encoding == "utf-8-sig" else encoding


def _starts_as_utf8(data: bytes) -> bool:
    try:
        b"\n".join(data.split(b"\n", 2)[:2]).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decode(body: bytes, encoding: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unicode_escape warns about the user's backslashes
        return body.decode(encoding)


def _not_decodable(path: Path, body: bytes, encoding: str, start: int) -> UnreadableError:
    line = body.count(b"\n", 0, start) + 1
    byte = f"byte 0x{body[start]:02x}" if start < len(body) else "the end"
    message = f"line {line}: {byte} is not {encoding.upper()}"
    if encoding != "utf-8":
        hint = "correct the declaration, or save the file as UTF-8"
        return UnreadableError(path, message + ", which the file declares", hint)
    hint = "save it as UTF-8, or declare its encoding in the first line, as in  # -*- coding: latin-1 -*-"
    return UnreadableError(path, message + ", and no other encoding is declared", hint)
