"""The rule API: what a rule is handed, and what it gives back.

A codemod is pure. It is handed a node of a parsed file and what the analysis knows about the program
(`Context`), and it answers with a `Fix`: text edits, findings, and the imports the new text needs; or with
None. It prints nothing, reads no file, and imports no other codemod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import libcst as cst

from codemods.tables.versions import OLDEST

if TYPE_CHECKING:
    from codemods.plan import PlannedContext


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose for a run."""

    torch_version: tuple[int, int] = OLDEST
    """The oldest torch that the output has to run on."""
    checkpoint_format: str = "keep"
    """What a full checkpoint becomes: `keep` for one file, `dcp` for a folder that every rank writes to."""
    read_fsdp1_files: bool = False
    """Whether files of LOCAL_STATE_DICT that FSDP1 saved have to load: without, a rank loads what it saved on FSDP2."""
    contract: bool = False
    """Whether to look at FSDP2 code too, for what `fully_shard` needs and does not check."""
    marks: bool = False
    """Whether what is left to a person gets a comment, so that a later `check` still finds it."""
    writes: bool = True
    """Whether new texts are made, or only what would be rewritten is said."""
    sees_all: bool = False
    """Whether a folder is looked through, with all scripts of it that call what the program's modules define."""

    @property
    def saves_by_dcp(self) -> bool:
        return self.checkpoint_format == "dcp"


class NotStatic(Exception):
    """A value is not seen in the source, or not of a kind that can be translated; the message names it."""


class Level(str, Enum):
    """How far the tool got with one construct."""

    REWRITTEN = "rewritten"
    """Replaced by FSDP2 code that trains the same."""
    REVIEW = "review"
    """Replaced; what differs does not change what is trained (memory, speed, logging, checkpoint dtype)."""
    MANUAL = "manual"
    """Not replaced, or what trains may differ, or only a person can decide."""
    KEPT = "kept"
    """Not replaced, because the program keeps it on purpose beside an FSDP2 path of its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One FSDP1 construct, or one broken FSDP2 rule, and what became of it."""

    rule: str
    """`FM` and three digits; `fsdp-migrate explain FM101` tells the rest."""
    level: Level
    path: Path
    line: int
    """1-based, in the file as it was read."""
    column: int
    """1-based, in characters."""
    message: str
    """What is there, in one sentence without a full stop."""
    hint: str = ""
    """What the person should do; empty when there is nothing to do."""
    about: cst.CSTNode | None = field(default=None, compare=False, repr=False)
    """The node, for the pipeline: it knows by it what is left without a word. Not in a report."""
    also: tuple[int, ...] = ()
    """The other lines of the file with the same cause."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace the characters `[start, end)` of the file as it was read by `text`.

    The text is a template: what `Context.quote` gives for a node is filled with the node as its own edits leave it.
    A construct inside of the characters that is not quoted is gone, and its edits with it.
    """

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """`from module import name`; without a name, `import module` or `import module as alias`."""

    module: str
    name: str = ""
    alias: str = ""

    @property
    def local(self) -> str:
        """The name that the importing file uses."""
        return self.alias or self.name or self.module


N = TypeVar("N", bound=cst.CSTNode)

Reference = cst.Name | cst.Attribute
"""An expression that can name something: `FSDP`, `fsdp.FullyShardedDataParallel`."""

SUPPORT = "fsdp2_support"
"""Stands for the program's support module in an `Import`; the pipeline knows where it lies."""


class ModelKind(Enum):
    """What an expression can hold at run time."""

    FSDP = "an FSDP model"
    DDP = "a DDP model"
    OTHER = "something else"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Origin:
    """One place where a value is made. No node: only run time knows, and `reason` says why."""

    file: Context
    node: cst.CSTNode | None
    reason: str = ""

    @property
    def is_none(self) -> bool:
        """Whether the value is the literal None."""
        return isinstance(self.node, cst.Name) and self.node.value == "None"

    @property
    def text(self) -> str:
        """The value's source on one line, cut to sixty characters; the reason when there is none."""
        if self.node is None:
            return self.reason
        text = " ".join(self.file.code(self.node).split())
        return text if len(text) <= 60 else text[:57] + "..."


class Emission(Enum):
    """How a constructor call is rewritten."""

    NATIVE = "native"
    """`fully_shard` calls, as a person would write them."""
    SUPPORT = "support"
    """`shard_model` of the support module, which decides at run time."""
    SKIP = "skip"
    """Not at all: it stays FSDP1."""


@dataclass(frozen=True)
class KeepReason:
    """Why FSDP1 stays where it is.

    Either what stands between it and an FSDP2 path of the program's own (a condition, the subject of a `match`, a table
    of functions; code that models of both come to; a function for FSDP2 beside one for FSDP1), or a subclass of FSDP.
    """

    file: Context
    node: cst.CSTNode
    why: str = "chooses between it and an FSDP2 path of the program's own"
    """What the node does, for a message."""
    is_alone: bool = False
    """Whether no model of the program comes from there, so that nothing else has to stay with it."""

    @property
    def place(self) -> str:
        """The file and line, for a message."""
        return f"{self.file.path.name}:{self.file.position(self.node)[0]}"

    @property
    def text(self) -> str:
        """The source on one line, cut to sixty characters."""
        return Origin(self.file, self.node).text


class Wrapping(Protocol):
    """How a program wraps, as its sources tell before anything is decided."""

    @property
    def is_any(self) -> bool:
        """Whether it wraps anything at all."""

    def is_several(self, path: Path) -> bool:
        """Whether a script that loads this file has more constructor calls: one can wrap a part of another's model."""

    def calls(self, path: Path) -> Sequence[tuple[Context, cst.Call]]:
        """The constructor calls of the scripts that load this file, and what makes them."""

    def runs_with(self, path: Path, other: Path) -> bool:
        """Whether a script loads both files."""

    @property
    def is_in_sight(self) -> bool:
        """Whether every `wrap` stands inside of the `with enable_wrap` that it belongs to."""

    def compiles(self, path: Path) -> bool:
        """Whether a model that comes to this file may be compiled, or a part of it: names hold `_orig_mod.` then."""


class Source(Protocol):
    """A parsed file: its text, and where its nodes stand."""

    @property
    def path(self) -> Path: ...

    @property
    def text(self) -> str: ...

    @property
    def newline(self) -> str: ...

    @property
    def indent(self) -> str:
        """One level of indentation, as most of the file has it."""

    @property
    def width(self) -> int:
        """How long a line may be, as the project says, or the file shows."""

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """`[start, end)` in characters."""

    def bare_span(self, node: cst.CSTNode) -> tuple[int, int]:
        """The same inside of its own parentheses, which stay around what replaces it, with the comments in them."""

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, as the user wrote it, without brackets that change nothing: `(model)` is `model`."""

    def position(self, node: cst.CSTNode) -> tuple[int, int]:
        """1-based line and column."""

    def quote(self, node: cst.CSTNode) -> str:
        """A hole in the text of an edit, filled with the node as its own edits leave it.

        In brackets where it goes over several lines only because of those around it.
        """

    def quote_text(self, start: int, end: int) -> str:
        """The same for the characters `[start, end)`."""

    def quote_lines(self, start: int, end: int) -> str:
        """The same for whole lines, with what is inserted at their edges."""

    def plain(self, template: str) -> str:
        """A template with its holes filled from the source as the user wrote it: for messages, and to measure."""

    def whole_lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """`[start, end)` of the lines that a statement stands on, newline included."""

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None: ...

    def ancestors(self, node: cst.CSTNode) -> Iterable[cst.CSTNode]: ...

    def nodes(self, kind: type[N]) -> Sequence[N]:
        """All nodes of exactly this type in the file, in the order of the text."""

    def inside(self, node: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """A node and everything within it, in the order of the text."""

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """The function, class or module that a node stands in."""

    def calls(self, scope: cst.CSTNode) -> Sequence[cst.Call]:
        """The calls that stand in a function, class or module itself, in the order of the text."""

    @property
    def top(self) -> cst.Module:
        """The file itself, as a scope."""


class Context(Source, Protocol):
    """A file of the program, with what the analysis knows about it and about the others."""

    def dotted(self, node: cst.BaseExpression) -> str | None:
        """The library name behind an expression: `torch.nn.utils.clip_grad_norm_`."""

    def fsdp1(self, node: cst.BaseExpression) -> str | None:
        """The FSDP1 construct a name means, whatever it was imported as: `FullyShardedDataParallel.state_dict_type`."""

    def annotated(self, parameter: cst.Param) -> Sequence[str]:
        """The dotted names of the classes in a parameter's annotation, quoted or not; None is left out."""

    def origins(self, node: cst.BaseExpression) -> Sequence[Origin]:
        """Where the value of an expression can be made, followed through the program."""

    def elements(self, node: cst.BaseExpression) -> Sequence[Origin]:
        """The same for what a loop over the value of an expression binds."""

    def items(self, node: cst.BaseExpression) -> Sequence[Origin]:
        """The same for what is in a dict, under any of its keys."""

    def bound(self, name: cst.Name) -> Sequence[tuple[Context, cst.BaseExpression]] | None:
        """The expressions that a name is bound to where it stands; None where it may be bound in another way."""

    def kinds(self, node: cst.BaseExpression) -> frozenset[ModelKind]:
        """What the value of an expression can be, as far as wrapping is concerned."""

    def holds_parts(self, node: cst.BaseExpression) -> bool:
        """Whether a part of the model that an expression holds may be wrapped here, whatever the model itself is."""

    def excludes(self, node: cst.CSTNode, other: cst.CSTNode) -> bool:
        """Whether a run that comes to one place of this file never comes to the other."""

    def is_met_where_wrapped(self, test: cst.BaseExpression) -> bool:
        """Whether the test of an `if` of this file is met in each run that makes an FSDP model."""

    def uses(self, node: cst.CSTNode) -> Sequence[cst.Name]:
        """The uses, in this file, of the names that a statement or definition binds."""

    def same_meaning(self, expression: cst.BaseExpression, at: cst.CSTNode) -> bool:
        """Whether every name in an expression would have the value it has there if it stood at another place."""

    def named(self, item: Import, at: cst.CSTNode) -> Import:
        """The import to use at a place: under an alias where its name means something else there."""

    def is_imported(self, name: cst.Name) -> bool:
        """Whether a name is bound by an import that names it, in the scope it is looked up in."""

    def is_local(self, name: str, at: cst.CSTNode) -> bool:
        """Whether a name is bound in the function that a node stands in."""

    def references(self) -> Iterable[tuple[Reference, str]]:
        """The outermost names that mean FSDP1, and the construct each one means; import statements left out."""

    def references_to(self, definition: cst.FunctionDef | cst.ClassDef) -> Iterable[tuple[Context, Reference]]:
        """Where the program names a function or class of this file, its own definition left out."""

    def reading(self, name: str, value: cst.CSTNode) -> Iterable[tuple[Context, Reference]]:
        """Where the program reads a variable or an attribute of this name that can hold what is made at a place."""

    def runs(self, call: cst.Call) -> Sequence[tuple[Context, cst.FunctionDef]]:
        """The functions of the program that a call can run."""

    def callers(self, node: cst.CSTNode) -> Sequence[tuple[Context, cst.Call]]:
        """The program's calls of the function around `node`."""

    def called_as_named(self, definition: cst.FunctionDef | cst.ClassDef) -> Iterable[tuple[Context, cst.Call]]:
        """The program's calls that can run a function of this file, or make an object of a class, by the names alone
        that it goes by: what each call runs is not asked."""

    def passed_to(self, node: cst.CSTNode, name: str) -> Sequence[tuple[Context, cst.Call, cst.BaseExpression]]:
        """What the program's calls of the function around `node` pass for its parameter `name`."""

    def mentions(self, *words: str) -> bool:
        """Whether any file of the program holds one of these identifiers."""

    def defines(self, name: str) -> bool:
        """Whether any file of the program defines a function or method of this name."""

    def mentions_elsewhere(self, word: str) -> bool:
        """Whether another file of the program holds this identifier."""

    def is_read_elsewhere(self, name: str) -> bool:
        """Whether another file can read what this one binds to a name at its top."""

    def files(self, word: str) -> Iterable[Context]:
        """The files of the program that hold this identifier, this one among them."""

    def passing(self, keyword: str) -> Sequence[tuple[Context, cst.Call]]:
        """The program's calls that pass an argument of this name."""

    def attributes(self, *names: str) -> Sequence[tuple[Context, cst.Attribute]]:
        """Where the program reads or sets an attribute of one of these names."""

    @property
    def options(self) -> Options:
        """What the user chose for the run."""

    @property
    def answers(self) -> dict[object, object]:
        """What `once` was asked of this file, and what was answered."""

    @property
    def wrapping(self) -> Wrapping:
        """How the program wraps its models."""


FSDP_MODULE = Import("torch.distributed.fsdp", "FSDPModule")
"""What every module is that `fully_shard` was called on."""


@dataclass(frozen=True)
class Raise:
    """What must not be reached with an FSDP2 model, which would pass over it without a word."""

    node: cst.CSTNode
    code: str
    why: str
    model: cst.BaseExpression | None = None
    """The model, or another object, whose class tells the way of FSDP from every other."""
    sharded: Import = FSDP_MODULE
    """The class of what is sharded."""
    certain: bool = False
    """Whether no program comes here that does not use FSDP."""


@dataclass(frozen=True)
class Fix:
    """What a codemod makes of one node."""

    edits: Sequence[Edit] = ()
    findings: Sequence[Finding] = ()
    imports: Sequence[Import] = ()
    raises: Sequence[Raise] = ()
    """What to stop before; where the raises stand is decided for all of a file together."""
    elsewhere: Sequence[tuple[Context, Fix]] = ()
    """What has to change in other files with it."""


@dataclass(frozen=True)
class Rule(Generic[N]):
    """One codemod. The docstring of its module is what `explain` prints."""

    code: str
    name: str
    docs: str
    nodes: tuple[type[N], ...]
    fix: Callable[[N, PlannedContext], Fix | None]
    """What becomes of a node of one of these types; None where it is not the rule's, or right as it is."""
    methods: tuple[str, ...] = ()
    """Methods of a model that the rule has to see in files that never name FSDP1 as well."""
    functions: tuple[str, ...] = ()
    """The same for functions of libraries that are given the model."""
    assigned: tuple[str, ...] = ()
    """The same for attributes of what the model has, where they are assigned to."""


@dataclass(frozen=True)
class Check:
    """A rule that only looks, at a whole file: what it finds is for a person to decide."""

    code: str
    name: str
    docs: str
    words: tuple[str, ...]
    """Identifiers: only files that hold one of them are looked at."""
    find: Callable[[PlannedContext], Iterable[Finding]]
    stops: Callable[[PlannedContext], Iterable[tuple[Context, Raise]]] = lambda ctx: ()
    """What must not be reached, in this file or another, where what is found would be passed over without a word."""


@dataclass(frozen=True)
class Upgrade:
    """What FSDP2 makes possible and FSDP1 did not, written into an FSDP2 program for a user who asks for it.

    Of each model there is one finding: REWRITTEN or REVIEW with the edits, or MANUAL with the reason and no edit.
    """

    code: str
    name: str
    docs: str
    words: tuple[str, ...]
    """Identifiers: only files that hold one of them are looked at."""
    edit: Callable[[Context, str], Iterable[Fix]]
    """What becomes of one file. The text is what was asked for: a number, the name of a recipe, or nothing."""
    is_about_sharding: bool = True
    """Whether it has to be seen how a model is sharded."""


def finding(rule: str, level: Level, ctx: Context, node: cst.CSTNode, message: str, hint: str = "") -> Finding:
    """A finding at the first character of `node`."""
    line, column = ctx.position(node)
    return Finding(rule, level, ctx.path, line, column, message, hint, node)


def left(
    rule: str, level: Level, ctx: Context, node: cst.CSTNode, message: str, hint: str = "", raises: Sequence[Raise] = ()
) -> Fix:
    """A node that stays as it is, with a finding."""
    return Fix(findings=[finding(rule, level, ctx, node, message, hint)], raises=raises)


def rewritten(
    rule: str, ctx: Context, node: cst.CSTNode, edits: Sequence[Edit], message: str, imports: Sequence[Import] = ()
) -> Fix:
    """Edits that make FSDP2 of what stands at a node, with a finding that says so."""
    return Fix(edits, [finding(rule, Level.REWRITTEN, ctx, node, message)], imports)


def replaced(
    rule: str,
    ctx: Context,
    node: cst.CSTNode,
    text: str,
    message: str,
    imports: Sequence[Import] = (),
    around: cst.CSTNode | None = None,
) -> Fix:
    """An expression that becomes another one, or the one around it that does, with a finding that says so."""
    return rewritten(rule, ctx, node, [Edit(*ctx.bare_span(around or node), text)], message, imports)
