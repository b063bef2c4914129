"""`x: T = value` outside of a class body: an assignment that says a type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import libcst as cst

from .make import maker


@dataclass(frozen=True, slots=True)
class AnnotatedAssign(cst.Assign):
    """An assignment as any other, with a type in between.

    LibCST has one node for these and for the fields of a class, so that whoever asks for assignments had to think of
    both. In a class body, and without a value, it stays `AnnAssign`.
    """

    annotation: cst.Annotation = field(kw_only=True)


annotated_assign = maker(AnnotatedAssign, "targets", "annotation", "value")
assign_target = maker(cst.AssignTarget, "target")


class Converter(cst.CSTVisitor):
    """Puts these in place of what LibCST made of them. `same(new, old)` is told what stands where another node did."""

    def __init__(self, same: Callable[[cst.CSTNode, cst.CSTNode], None]) -> None:
        super().__init__()
        self._same = same
        self._classes = [False]
        """Of each definition around, whether it is a class."""

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._classes.append(True)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._classes.append(False)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self._classes.pop()

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._classes.pop()

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        self._convert(node)

    def visit_SimpleStatementSuite(self, node: cst.SimpleStatementSuite) -> None:
        self._convert(node)

    def _convert(self, line: cst.SimpleStatementLine | cst.SimpleStatementSuite) -> None:
        if not self._classes[-1] and any(isinstance(each, cst.AnnAssign) for each in line.body):
            # the nodes are frozen for the sake of LibCST's own transformers, and nobody has this one yet
            object.__setattr__(line, "body", [self._converted(each) for each in line.body])

    def _converted(self, node: cst.BaseSmallStatement) -> cst.BaseSmallStatement:
        if not isinstance(node, cst.AnnAssign) or node.value is None:
            return node
        target = assign_target(node.target)
        made: AnnotatedAssign = annotated_assign([target], node.annotation, node.value)
        self._same(target, node.target)
        self._same(made, node)
        return made
