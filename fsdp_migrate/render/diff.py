"""A unified diff that `git apply` takes.

It is made of bytes, because a diff has to carry the file's own line ends and encoding; lines end at `\n` only, as
they do for git.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

NO_NEWLINE = b"\\ No newline at end of file\n"


def unified(name: str, before: bytes | None, after: bytes) -> bytes:
    """The diff of one file under its `/`-separated name; `before` is None for a new file. Empty when they are equal."""
    if before == after:
        return b""
    old, new = _lines(before or b""), _lines(after)
    header = [f"diff --git {_quoted('a/' + name)} {_quoted('b/' + name)}\n".encode()]
    if before is None:
        header.append(b"new file mode 100644\n")
    if not old and not new:
        return b"".join(header)
    source = "/dev/null" if before is None else _in_header("a/" + name)
    header += [f"--- {source}\n".encode(), f"+++ {_in_header('b/' + name)}\n".encode()]
    return b"".join(header) + b"".join(_hunks(old, new))


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    # difflib.unified_diff passes over lines that are frequent, such as blank ones: they would look changed.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(n=3):
        yield f"@@ -{_span(group[0][1], group[-1][2])} +{_span(group[0][3], group[-1][4])} @@\n".encode()
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                yield from (_ended(b" " + line) for line in old[start:end])
                continue
            yield from (_ended(b"-" + line) for line in old[start:end])
            yield from (_ended(b"+" + line) for line in new[new_start:new_end])


def _span(start: int, end: int) -> str:
    """Where the lines `[start, end)` stand, counted from 1; no lines stand behind the one before them."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    ended = [line + b"\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n" + NO_NEWLINE


def _quoted(name: str) -> str:
    """As git quotes names that hold quotes, backslashes or control characters."""
    if not any(character in '"\\' or ord(character) < 32 for character in name):
        return name
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    inner = "".join(
        escapes.get(character, f"\\{ord(character):03o}" if ord(character) < 32 else character) for character in name
    )
    return f'"{inner}"'


def _in_header(name: str) -> str:
    """A tab ends a name that holds a space, or git would stop at the space."""
    quoted = _quoted(name)
    return quoted + "\t" if " " in name and quoted == name else quoted
