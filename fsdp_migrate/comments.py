"""The comments that speak to this tool: `# fsdp-migrate: ignore[...]`, `# fsdp-migrate: todo[...]`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

CONTINUED = "#   "
"""What the further lines of a comment begin with."""


@dataclass(frozen=True, slots=True)
class Comment:
    """One of them."""

    line: int
    column: int
    """1-based, of the `#` that it starts with."""
    codes: frozenset[str]
    """What stands in the brackets."""
    text: str
    """What stands behind them."""


def comments(text: str, verb: str) -> Iterator[Comment]:
    """The comments of one file that say this. What looks like one inside a string is none."""
    if "fsdp-migrate:" not in text:
        return
    wanted = re.compile(rf"#\s*fsdp-migrate:\s*{verb}\b(?:\[([^\]]*)\])?(.*)")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return  # the file is reported as one that does not parse
    lines = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    for number, token in lines.items():
        match = wanted.search(token.string)
        if match:
            codes = frozenset(code.strip() for code in (match[1] or "").split(",") if code.strip())
            said = [match[2].strip()]
            while (below := lines.get(number + len(said))) is not None and below.string.startswith(CONTINUED):
                said.append(below.string.removeprefix(CONTINUED).strip())
            yield Comment(number, token.start[1] + match.start() + 1, codes, " ".join(said))
