"""The same program once its plan is made: what the rules that write are handed."""

from __future__ import annotations

from pathlib import Path

from codemods.api import Context
from codemods.plan import Plan

from ..fsdp1.program_model import FileContext, ProgramModel
from ..pyanalysis.tree import Tree


class PlannedModel:
    """A program and its plan, a `PlannedFile` a file."""

    def __init__(self, model: ProgramModel, plan: Plan) -> None:
        self.model = model
        self.plan = plan
        self._files: dict[Tree, PlannedFile] = {}

    def file(self, tree: Tree) -> PlannedFile:
        if tree not in self._files:
            self._files[tree] = PlannedFile(tree, self)
        return self._files[tree]

    def of(self, file: Context) -> PlannedFile:
        """The same file, with the plan."""
        return self.at(file.path)

    def at(self, path: Path) -> PlannedFile:
        """One of the program's files, of which something is known."""
        tree = self.model.program.tree(path)
        assert tree is not None
        return self.file(tree)


class PlannedFile(FileContext):
    """One file, once it is decided what becomes of the program; implements `codemods.plan.PlannedContext`."""

    def __init__(self, tree: Tree, planned: PlannedModel) -> None:
        super().__init__(tree, planned.model, planned.file)
        self.plan = planned.plan
