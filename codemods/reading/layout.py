"""Edits of layout that several codemods make: taking a block one level out, stopping before a statement."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Collection, Sequence
from itertools import pairwise, takewhile

import libcst as cst

from codemods.tables.state_dicts import CONTEXT
from codemods.vocabulary import Edit, File


def is_inside(node: cst.CSTNode, context: str, model: str, file: File) -> bool:
    """Whether the node stands in a `with` that enters this FSDP1 context for the model of this text."""
    by_model = f"{model}.{context.rsplit('.')[-1]}"
    for ancestor in file.ancestors(node):
        if isinstance(ancestor, cst.With):
            for item in ancestor.items:
                call = item.item
                if not isinstance(call, cst.Call) or not call.args:
                    continue
                if file.fsdp1(call.func) == context or file.code(call.func) == by_model:
                    return file.code(call.args[0].value) == model
    return False


WIDTH = 100
"""Lines that the tool writes are broken when they would be longer than this."""


def call_text(file: File, old: cst.CSTNode, function: str, arguments: str, suffix: str = "") -> str:
    """`function(arguments)suffix` in the place of `old`, with the arguments on a line of their own where it is
    long, and each on its own where that is still too long.
    """
    start, end = file.span(old)
    line_start = file.text.rfind("\n", 0, start) + 1
    rest = file.text[end:].split("\n", 1)[0].rstrip()
    text = f"{function}({arguments}){suffix}"
    line = file.text[line_start:start]
    indent = line[: len(line) - len(line.lstrip())]
    # What stands in a block that is taken away is written where it comes to stand.
    gone = sum(_extra_indent(file, block) for block in _contexts_around(old, file))
    if not _is_outermost(file, old) or "\n" in text or len(line) - gone + len(text) + len(rest) <= WIDTH:
        return text
    indent = indent[: len(indent) - gone]
    inner = f"{file.newline}{indent}{file.indent}"
    if len(indent) + len(file.indent) + len(arguments) > WIDTH:
        arguments = "".join(f"{argument},{inner}" for argument in _arguments(arguments))[: -len(inner)]
    return f"{function}({inner}{arguments}{file.newline}{indent}){suffix}"


def space_behind(file: File, argument: cst.Arg) -> str:
    """What stands between an argument and one put behind it: a line break where this one has a line of its own."""
    start = file.span(argument)[0]
    line = file.text[file.text.rfind("\n", 0, start) + 1 : start]
    if line.strip():
        return " "
    gone = sum(_extra_indent(file, block) for block in _contexts_around(argument, file))
    return file.newline + line[: len(line) - gone]


def _contexts_around(node: cst.CSTNode, file: File) -> list[cst.With]:
    """The `with FSDP.state_dict_type(…):` around a node that are taken away."""
    if file.state_dicts_at_run_time:
        return []
    blocks = [block for block in file.ancestors(node) if isinstance(block, cst.With) and len(block.items) == 1]
    calls = [(block, block.items[0].item) for block in blocks]
    return [block for block, call in calls if isinstance(call, cst.Call) and file.fsdp1(call.func) == CONTEXT]


def _arguments(text: str) -> list[str]:
    """The text of a call's arguments, of one line, cut at the commas between them."""
    cuts, depth = [-1], 0
    for token in tokenize.generate_tokens(io.StringIO(f"({text})").readline):
        depth += (token.string in {"(", "[", "{"}) - (token.string in {")", "]", "}"})
        if token.string == "," and depth == 1:
            cuts.append(token.start[1] - 1)
    pieces = [text[start + 1 : end].strip() for start, end in pairwise([*cuts, len(text)])]
    return [piece for piece in pieces if piece]


def _is_outermost(file: File, node: cst.CSTNode) -> bool:
    """Whether the call is a statement's value, with at most `.method()` behind it: there a break reads well."""
    for ancestor in file.ancestors(node):
        if isinstance(ancestor, (cst.Assign, cst.AnnAssign, cst.Return, cst.Expr)):
            return True
        if not isinstance(ancestor, (cst.Attribute, cst.Call)) or getattr(ancestor, "args", None):
            return False
    return False


def replace_head(file: File, block: cst.With | cst.If, line: str = "") -> list[Edit]:
    """Edits that put one line, or nothing, in the place of `with ...:` and take the body one level out.

    Lines inside a multi-line string keep their text: their white space is the string's.
    """
    start = file.whole_lines(block)[0]
    indent = file.text[start : file.span(block)[0]]
    colon = _behind_colon(file, block)
    first = _line_end(file, colon) + 1
    comment = file.text[colon : first - 1].strip()
    line = f"{comment}{file.newline}{indent}{line}" if comment and line else line or comment
    while not file.text[first : _line_end(file, first)].strip():
        first = _line_end(file, first) + 1
    head = Edit(start, first, f"{indent}{line}{file.newline}" if line else "")
    return [head, *dedent(file, block, first)]


def _line_end(file: File, offset: int) -> int:
    """The offset of the newline that ends a line, or of the end of the file."""
    end = file.text.find("\n", offset)
    return end if end >= 0 else len(file.text)


def _behind_colon(file: File, block: cst.With | cst.If) -> int:
    """The offset behind the colon of the head; brackets and lambdas in it have colons of their own."""
    start = file.span(block)[0]
    lines = io.StringIO(file.text[start:], newline="").readline
    depth = lambdas = offset = 0
    starts = _line_starts(file.text[start:])
    for token in tokenize.generate_tokens(lines):
        if token.string in {"(", "[", "{"}:
            depth += 1
        elif token.string in {")", "]", "}"}:
            depth -= 1
        elif token.string == "lambda" and not depth:
            lambdas += 1
        elif token.string == ":" and token.type == tokenize.OP and not depth:
            if not lambdas:
                offset = starts[token.end[0] - 1] + token.end[1]
                break
            lambdas -= 1
    return start + offset


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _extra_indent(file: File, block: cst.With | cst.If) -> int:
    """How many characters the body is further in than the `with`."""
    statement = block.body.body[0]
    inner = file.span(statement)[0] - file.whole_lines(statement)[0]
    return inner - (file.span(block)[0] - file.whole_lines(block)[0])


def dedent(file: File, block: cst.With | cst.If, offset: int) -> list[Edit]:
    """Take the body one level out, from a line of it on."""
    extra = _extra_indent(file, block)
    end = _behind_comments(file, block, extra)
    strings = _multi_line_strings(file, block.body)
    edits = []
    while 0 < offset < end:
        following = file.text.find("\n", offset) + 1
        line = file.text[offset : following or len(file.text)]
        inside_string = any(left < offset <= right for left, right in strings)
        if not inside_string and line.strip() and not line[:extra].strip():
            edits.append(Edit(offset, offset + extra, ""))
        offset = following
    return edits


def append_argument(file: File, call: cst.Call, text: str, block: cst.With) -> Edit:
    """Put one more argument behind the last: on a line of its own where the last one stands on one with a comma.

    The call stands in a block that `replace_head` takes one level out; lines put in have to be written there.
    """
    end = file.span(call)[1] - 1
    if not call.args:
        return Edit(end, end, f", {text}")
    last = call.args[-1]
    start, behind = file.span(last.value)[0], file.span(last.value)[1]
    if not isinstance(last.comma, cst.Comma):
        return Edit(behind, behind, f", {text}")
    comma = file.text.index(",", behind) + 1
    if "\n" not in file.text[comma:end]:
        return Edit(comma, comma, f" {text}")
    line = file.text[file.text.rfind("\n", 0, start) + 1 : start]
    indent = line[: len(line) - len(line.lstrip()) - _extra_indent(file, block)]
    return Edit(comma, comma, f"{file.newline}{indent}{text},")


def argument_removal(file: File, call: cst.Call, argument: cst.Arg) -> list[Edit]:
    """Take one argument out of a call, with its line where it stands alone on one, and the comment on it alone."""
    start, end = file.span(argument)
    if isinstance(argument.comma, cst.Comma):
        end = max(end, file.text.index(",", file.span(argument.value)[1]) + 1)
    line_start = file.text.rfind("\n", 0, start) + 1
    line_end = _line_end(file, end)
    rest = file.text[end:line_end].strip()
    if not file.text[line_start:start].strip() and (not rest or rest.startswith("#")):
        below = file.text[line_end + 1 :].lstrip(" \t")
        if below.startswith(("#", ")", "\r", "\n")):
            line_start -= sum(len(line) + 1 for line in _comments_on_top(file.text[:line_start].split("\n")[:-1]))
        return [Edit(line_start, line_end + 1, "")]
    before = [other for other in call.args if file.span(other)[0] < start]
    if argument is call.args[-1] and before:
        start = file.span(before[-1].value)[1]
    elif argument is not call.args[-1]:
        end = file.span(call.args[call.args.index(argument) + 1])[0]
    return [Edit(start, end, "")]


def renaming(file: File, call: cst.Call, name: str, left_out: Collection[cst.Arg] = ()) -> list[Edit]:
    """Call another function, with arguments that stand below one another moved along."""
    edits = [Edit(*file.span(call.func), name)]
    wider = len(name) - len(file.code(call.func))
    kept = [after for before, after in pairwise([None, *call.args]) if after not in left_out and before not in left_out]
    starts = [file.span(argument)[0] for argument in kept if argument is not None]
    if not starts or "\n" in file.text[file.span(call)[0] : starts[0]]:
        return edits
    columns = [start - file.text.rfind("\n", 0, start) - 1 for start in starts]
    for start, column in zip(starts[1:], columns[1:], strict=True):
        if column == columns[0] and wider and not file.text[start - column : start].strip(" "):
            edits.append(Edit(start + min(wider, 0), start, " " * wider))
    return edits


def removal(file: File, statement: cst.CSTNode) -> Edit:
    """Take a statement away with its lines, and with the comment above that is about nothing else; `pass` where its
    block would be left empty. Of the blank lines around it as many go as there were on one side.
    """
    holder = file.parent(statement)
    if (
        isinstance(holder, cst.IndentedBlock)
        and len(holder.body) == 1
        and not isinstance(file.parent(holder), cst.With)
    ):
        return Edit(*file.span(statement), "pass")
    start, end = file.whole_lines(statement)
    above, below = file.text[:start].split("\n")[:-1], file.text[end:].split("\n")
    if "\n" not in file.newline or len(below) == 1:
        return Edit(start, end, "")
    if not below[0].strip() or below[0].lstrip().startswith("#"):
        start -= sum(len(line) + 1 for line in _comments_on_top(above))
    return Edit(start, end, "")


def _comments_on_top(above: Sequence[str]) -> list[str]:
    """The lines of comments that end these lines; those that begin a file are its own."""
    comments = list(takewhile(lambda line: line.lstrip().startswith("#"), reversed(above)))
    return comments if len(comments) < len(above) else []


def stop(file: File, node: cst.CSTNode, code: str, why: str) -> list[Edit]:
    """Raise before the statement that holds `node`: what FSDP2 would silently ignore must not be reached."""
    if is_stopped(file, node, code):
        return []
    text = why.replace('"', "'")
    return [insertion(file, node, f'{_marker(code)}{text}")')]


def insertion(file: File, node: cst.CSTNode, line: str) -> Edit:
    """Put a line above the statement that holds `node`, in the block that it stands in, be that one of one line."""
    small = _in_one_line(file, node)
    if small is not None:
        start = file.span(small)[0]
        return Edit(start, start, f"{line}; ")
    start, first = statement_start(file, node)
    return Edit(start, start, f"{line}{file.newline}{file.text[first:start]}")


def is_stopped(file: File, node: cst.CSTNode, code: str) -> bool:
    """Whether an earlier run has put a `raise` before the statement that holds `node`."""
    small = _in_one_line(file, node)
    if small is not None:
        start = file.span(small)[0]
        return _marker(code) in file.text[file.text.rfind("\n", 0, start) + 1 : start]
    first = statement_start(file, node)[1]
    return file.text[:first].rstrip().rsplit("\n", 1)[-1].lstrip().startswith(_marker(code))


def _in_one_line(file: File, node: cst.CSTNode) -> cst.CSTNode | None:
    """The small statement that holds a node, in `for batch in batches: step(batch); model.zero_grad()`."""
    inner = node
    for outer in file.ancestors(node):
        if isinstance(outer, cst.SimpleStatementSuite):
            return inner
        if isinstance(outer, (cst.IndentedBlock, cst.Module)):
            return None
        inner = outer
    return None


def _marker(code: str) -> str:
    return f'raise NotImplementedError("fsdp-migrate {code}: '


def statement_start(file: File, node: cst.CSTNode) -> tuple[int, int]:
    """Where the statement that holds a node starts, with its decorators and the comments on it, and its line."""
    statement = node
    for ancestor in file.ancestors(node):
        if isinstance(ancestor, (cst.IndentedBlock, cst.Module)):
            break
        statement = ancestor
    start = file.span(statement)[0]
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and statement.decorators:
        start = file.span(statement.decorators[0])[0]
    return _above_comments(file.text, start, file.text.rfind("\n", 0, start) + 1)


def _above_comments(text: str, start: int, first: int) -> tuple[int, int]:
    """The start of the comments right above a line that are indented like it; those that begin a file are its own."""
    indent, above = text[first:start], first
    while above and not indent.strip():
        line = text.rfind("\n", 0, above - 1) + 1
        if not text.startswith(f"{indent}#", line):
            return above + len(indent), above
        above = line
    return start, first


def _behind_comments(file: File, block: cst.With | cst.If, extra: int) -> int:
    """The end of the body, with comments that follow its last statement at its own indentation."""
    end = file.span(block.body.body[-1])[1]
    inner = extra + file.span(block)[0] - file.whole_lines(block)[0]
    offset = file.text.find("\n", end) + 1
    while offset:
        line_end = file.text.find("\n", offset)
        line = file.text[offset : line_end if line_end >= 0 else len(file.text)]
        if line.strip() and not (line.lstrip().startswith("#") and len(line) - len(line.lstrip()) >= inner):
            break
        if line.strip():
            end = offset + len(line)
        offset = line_end + 1
    return end


def _multi_line_strings(file: File, node: cst.CSTNode) -> list[tuple[int, int]]:
    if isinstance(node, (cst.SimpleString, cst.FormattedString)):
        start, end = file.span(node)
        return [(start, end)] if "\n" in file.text[start:end] else []
    return [span for child in node.children for span in _multi_line_strings(file, child)]
