"""What one constructor call becomes, while its arguments are translated one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import libcst as cst

from codemods.api import Context, Edit, Import, Level, Origin
from codemods.reading.code.enclosing import names_around
from codemods.reading.models.makeup import Makeup
from codemods.reading.values.choices import Place
from codemods.reading.wraps.chosen_class import ChosenClass
from codemods.tables.names import WRAPPER


@dataclass(frozen=True, slots=True)
class UnitSelector:
    """Which modules become units of their own."""

    test: str
    """An expression over the loop variable, written `{module}`: `isinstance({module}, Block)`; empty for all."""
    nested: bool
    """Whether a unit may lie inside another one: then children must come first."""
    may_be_root: bool
    """Whether the test may pick the root too, which FSDP1 skips and FSDP2 refuses to shard twice."""
    may_be_container: bool = False
    """Whether it may pick a list or dict of modules: FSDP1 makes an empty unit of it, FSDP2 refuses it."""
    own: str = ""
    """What gives a unit arguments of its own, and None for what is none, in the place of a test."""
    owned: frozenset[str] = frozenset()
    """The names of such arguments."""
    units: str = ""
    """An expression that gives the units themselves, children first, in the place of a test of every module."""
    item: str = "unit"
    """What the loop over them calls one of them."""
    marks: str = ""
    """What is asked of every module before the test, where that marks parts of some; the module is `{module}`."""
    guard: str = ""
    """What has to hold for there to be units at all: `policy is not None`."""
    policy: str = ""
    """The policy of FSDP1's that is asked for them."""
    looks_inside: bool = False
    """Whether mixed precision made it look inside of every module."""


@dataclass(frozen=True, slots=True)
class Note:
    """What differs from FSDP1; of another level than review where it changes what is trained, or only might differ."""

    message: str
    hint: str = ""
    level: Level = Level.REVIEW


@dataclass(frozen=True, slots=True)
class Switch:
    """An argument that a condition decides about; None where it is not given."""

    test: cst.BaseExpression
    body: Value | None
    orelse: Value | None


@dataclass(frozen=True, slots=True)
class Entry:
    """An argument that is taken out of a dict at run time."""

    text: str
    """`kwargs["mixed_precision"]`, or a `get` of it where it may not be there."""
    values: tuple[Origin, ...]
    """Where it can be made, as far as the program shows."""
    may_lack: bool = False
    """Whether the dict may be without it."""
    stored: tuple[Place, ...] = ()
    """What is put into the dict, each where it stands."""
    is_only_given: bool = False
    """Whether nothing but constructor calls, which the dict is spread into, reads it."""
    displays: frozenset[cst.CSTNode] = frozenset()
    """Where the dict is made."""
    whole: str = ""
    """The dict."""


Value: TypeAlias = "cst.BaseExpression | Switch | Entry"
"""What one argument of the constructor is."""


@dataclass(frozen=True)
class Agreed:
    """What becomes of the entries of a dict that goes on to `fully_shard`."""

    displays: frozenset[cst.CSTNode]
    """Where the dict is made."""
    passed: frozenset[str]
    taken: frozenset[str]
    """Those that are taken out of it before."""
    gone: frozenset[str]


@dataclass
class Draft:
    """The FSDP2 code for one constructor call, being written."""

    file: Context
    call: cst.Call
    module: cst.BaseExpression
    """What the constructor wraps, as the user wrote it."""
    model: str
    """The text that names the model once `before` has run."""
    chosen: ChosenClass | None = None
    """The other classes that the call may be of, each of which is called in a branch beside."""
    is_function: bool = False
    """Whether all of it becomes a function of the model, in the place of `partial(FSDP, …)`."""
    is_context: bool = False
    """Whether that is what `enable_wrap` is given, and `wrap` calls elsewhere: for parts of a model, then for all."""
    built: Makeup = field(default_factory=Makeup)
    """What the model is seen to be made of."""
    present: frozenset[str] = frozenset()
    """The names of the arguments that may be something else than None."""
    before: list[str] = field(default_factory=list)
    """Statements before sharding, each possibly of several lines, indented by four spaces within."""
    above: list[tuple[cst.CSTNode, str]] = field(default_factory=list)
    """Those that stand above the statement around the call that may run it more than once, and that statement."""
    shared: list[str] = field(default_factory=list)
    """Those that a call above has as well, so that they are not written for this one."""
    lent: list[str] = field(default_factory=list)
    """Those that a call below has as well, and does not write."""
    after: list[str] = field(default_factory=list)
    """Statements behind the root's `fully_shard`."""
    common_kwargs: dict[str, str] = field(default_factory=dict)
    """Keyword arguments of every `fully_shard` call; under `**`, a dict of more of them."""
    takes_more: bool = False
    """Whether that dict is made for this call alone, each time, so that more can be put into it."""
    unit_kwargs: dict[str, str] = field(default_factory=dict)
    """Those of the inner units only."""
    root_kwargs: dict[str, str] = field(default_factory=dict)
    """Those of the root only."""
    selector: UnitSelector | None = None
    has_root: bool = True
    """Whether the model itself becomes a unit; a container without a forward has nothing to gather for."""
    parts: set[cst.Call] = field(default_factory=set)
    """The calls that wrap parts of this model and are written with it in mind: they are native, or this one is not."""
    runs_root: bool = True
    """Whether the model itself is called; where only its children are, each unit is a root of its own to FSDP1."""
    device: str = ""
    """The text of `device_id`, where FSDP1 moved the model."""
    device_type: str = ""
    """`cuda` or `cpu` where that is seen."""
    any_device: str = ""
    """The name of a `torch.device` where run time alone knows which of them it is."""
    group: str | None = ""
    """The group of ranks that start from equal values, where that is not all of them; None when it is not one group."""
    mesh: str = ""
    """The mesh whose ranks start from equal values, where its groups are only known at run time."""
    mesh_is_optional: bool = False
    """Whether it can be None, which stands for all ranks."""
    ignored_modules: str = ""
    """The name of the set of modules that are ignored, where the loop over the units has to keep out of them."""
    ignored: str = ""
    """The name of the set of parameters that are ignored, where more than one statement asks for it."""
    ignores: bool = False
    ignores_modules: bool = False
    ignores_either: bool = False
    """Whether run time knows whether modules or parameters are ignored."""
    unit_steps: list[str] = field(default_factory=list)
    """Statements before each `fully_shard` call, the root's too; the unit is written `{module}`."""
    draws: bool = False
    """Whether they draw random numbers, so that the units have to come in FSDP1's order."""
    float32_class: str = ""
    """The class that mixed precision left in float32, in units of its own: BatchNorm, where the model has it."""
    may_lack_precision: bool = False
    """Whether there may be no `mixed_precision` at run time."""
    for_others: bool = False
    """Whether what is written is for other models too, so that what one is seen not to need is there."""
    casts: str = ""
    """The test of whether there is, in that case; for the statements behind the root's `mp_policy`."""
    names_float32: bool = False
    """Whether the `MixedPrecision` names those classes itself."""
    precision: str = ""
    """The `MixedPrecision` of run time, or None, where those classes are read from it."""
    units_cast: set[cst.CSTNode] = field(default_factory=set)
    """Where each `MixedPrecision` is made, if they differ in whether units cast their inputs: each says it itself."""
    float32_kwargs: dict[str, str] = field(default_factory=dict)
    """Keyword arguments of those units."""
    carries_attributes: bool | None = False
    """Whether what is set on parameters goes over to the new ones; None where it does not, and may have to."""
    imports: set[Import] = field(default_factory=set)
    definitions: set[cst.CSTNode] = field(default_factory=set)
    """Where values are made that have to change with this call: a policy, a `MixedPrecision(...)`."""
    predicates: set[cst.CSTNode] = field(default_factory=set)
    """Those of them that become functions of a module: policies."""
    asked: frozenset[cst.CSTNode] = frozenset()
    """The policies that become functions for another call, so that they do for this one as well."""
    left: frozenset[cst.CSTNode] = frozenset()
    """Where values are made that another call needs as they are, so that they are read here at run time."""
    given: frozenset[str] = frozenset()
    """The names of the arguments."""
    spread: dict[cst.CSTNode, str] = field(default_factory=dict)
    """The argument that each value is which comes by `**kwargs`."""
    reads_precision: bool = False
    """Whether the new code reads the fields of a `MixedPrecision` that is not followed to where it is made."""
    keeps: set[cst.CSTNode] = field(default_factory=set)
    """Where values are made that the new code reads as they are."""
    options: dict[cst.CSTNode, str] = field(default_factory=dict)
    """What each option of a choice becomes, where it stands."""
    edits: list[tuple[Context, Edit]] = field(default_factory=list)
    """What changes away from the call: options of a choice, where they stand."""
    inlined: set[cst.CSTNode] = field(default_factory=set)
    """Where values are made whose text is written here, and which nothing else may need."""
    freed: set[str] = field(default_factory=set)
    """Names that are used no more once this call is rewritten."""
    quoted: set[str] = field(default_factory=set)
    """The names in text that is written here from elsewhere."""
    dead: list[cst.CSTNode] = field(default_factory=list)
    """Statements that only the old call needed."""
    goes_on: bool = False
    """Whether a dict that arguments come out of goes on to `fully_shard`, so that it has to hold its own."""
    passed: dict[str, str] = field(default_factory=dict)
    """The entries of it that are written anew for that, and the key of each; `**` for a dict of several."""
    says: frozenset[str] = frozenset()
    """The keyword arguments of `fully_shard` that it is given in any way, in a dict too."""
    agreed: Agreed | None = None
    """What becomes of it, which all calls that take it have to say alike."""
    imports_elsewhere: list[tuple[Context, Import]] = field(default_factory=list)
    """What other files need for what is written there."""
    written_for: dict[str, str] = field(default_factory=dict)
    """The argument that each statement before is written for, where that is one."""
    unit_comments: list[str] = field(default_factory=list)
    """What the user said of the policy, where its statement goes."""
    notes: list[Note] = field(default_factory=list)
    display: tuple[Context, cst.CSTNode] | None = None
    """Where a dict is made that goes on to `fully_shard`."""
    helper: str = ""
    """The name of the function that does for several models what is written for this one."""
    helper_arguments: str = ""
    """What it is given behind the model."""

    @property
    def is_alone(self) -> bool:
        """Whether no other constructor call stands in the same function."""
        calls = self.file.calls(self.file.scope(self.call))
        return sum(self.file.fsdp1(call.func) == WRAPPER for call in calls) < 2

    @property
    def left_out(self) -> str:
        """What is ignored, as a support function that chooses units takes it."""
        given = {"ignored": self.ignored_modules, "ignored_params": self.ignored}
        return "".join(f", {name}={text}" for name, text in given.items() if text)

    def copy(self) -> Draft:
        """The same, to be written out."""
        return replace(self, imports=set(self.imports))

    def state(self) -> dict[str, Any]:
        """Everything so far, to go back to when a translation stops half way."""
        return {each.name: _copied(getattr(self, each.name)) for each in fields(self)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Back to a state, which can be gone back to again."""
        for name, value in state.items():
            setattr(self, name, _copied(value))

    def assigned(self, target: str, function: str, arguments: Sequence[str]) -> str:
        """`target = function(arguments)`, on one line, else the arguments on one, else a line for each."""
        line = f"{target} = {function}({', '.join(arguments)})"
        if self.fits(line):
            return line
        if self.fits(f"    {', '.join(arguments)}"):
            return f"{target} = {function}(\n    {', '.join(arguments)}\n)"
        return f"{target} = {function}(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")"

    def displayed(self, target: str, entries: Sequence[str]) -> str | None:
        """`target = {entries}`, an entry a line where it would be too long for one line; None where one is too long."""
        line = f"{target} = {{{', '.join(entries)}}}"
        if self.fits(line):
            return line
        if not all(self.fits(f"    {entry},") for entry in entries):
            return None
        return f"{target} = {{\n" + "".join(f"    {entry},\n" for entry in entries) + "}"

    def looked_up(self, target: str, entries: Sequence[str], key: str) -> str:
        """`target = {entries}[key]`, an entry a line where it would be too long for one line."""
        line = f"{target} = {{{', '.join(entries)}}}[{key}]"
        if self.fits(line):
            return line
        return f"{target} = {{\n" + "".join(f"    {entry},\n" for entry in entries) + f"}}[{key}]"

    def fits(self, line: str) -> bool:
        """Whether a line is short enough at the place of the call."""
        start = self.file.whole_lines(self.call)[0]
        indent = len(self.file.text[start:]) - len(self.file.text[start:].lstrip(" \t"))
        indent += 4 * (self.is_function or self.chosen is not None)
        return indent + len(self.file.plain(line)) <= self.file.width

    def imported(self, module: str, name: str = "", alias: str = "") -> str:
        """Import a name and return what to write for it here."""
        item = self.file.named(Import(module, name, alias), self.call)
        self.imports.add(item)
        return item.local

    def imported_at(self, where: Context, node: cst.CSTNode, item: Import) -> str:
        """The same for what is written in the place of a node, in another file too."""
        if where.path == self.file.path:
            return self.imported(item.module, item.name, item.alias)
        item = where.named(item, node)
        if (where, item) not in self.imports_elsewhere:
            self.imports_elsewhere.append((where, item))
        return item.local

    def is_none(self, value: cst.BaseExpression) -> bool:
        """Whether an expression can only be the literal None."""
        return all(origin.is_none for origin in self.file.origins(value))

    def held(self, text: str, *names: str) -> str:
        """Give an expression a fresh name above the call."""
        name = self.fresh(*names)
        self.before.append(f"{name} = {text}")
        return name

    def fresh(self, *names: str) -> str:
        """The first of these names that neither the function nor the text written into it uses yet."""
        taken = (names_around(self.file, self.call) - self.freed) | self.quoted
        for name in names:
            if name not in taken:
                return name
        return next(f"{names[-1]}_{n}" for n in range(2, 99) if f"{names[-1]}_{n}" not in taken)


def _copied(value: Any) -> Any:
    return copy(value) if isinstance(value, (list, dict, set)) else value
