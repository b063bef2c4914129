"""Questions that are answered by asking more of them, in cycles: one answer to each, whatever was asked before.

The questions of a cycle (a strongly connected component, as Tarjan finds them) are solved together: each is worked out
again while what it asks for grows, until nothing grows (the least fixpoint). Then all of them are known for good.

What counts only where something else is not so ("nobody calls it") would make that depend on the order. In a cycle,
such a thing is decided once: by what the cycle comes to while it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")

MAX_DEPTH = 200
"""How many questions are worked out inside each other; those that lie deeper have to wait until these have returned."""

MAX_TURNS = 50
"""How often an answer in a cycle may change, and not only grow: what grows comes to an end."""

MOST_WORK = 20_000_000
"""How many answers are handed out, for all that is asked of one program.

The largest of 65 real training programs takes 9.6 million, in 24 s; the next 6.0. A framework in which everything
leads to everything has no end: what is asked then is left as it stands, and said (`Solver.unfinished`).
"""
MOST_WORK_OF_ONE = 4_000_000
"""The same for what one question leads to, of those that no other asks. The largest of the 65 takes 2.6 million.

Each that was left leaves a quarter of it for the next: they lead to the same.
"""
MOST_WORK_BEHIND = 20_000
"""What is left in any case."""


class _TooFar(Exception):
    """More work than one program is given."""


@dataclass(slots=True, eq=False)
class _Question:
    work: Callable[[], Iterable[Any]]
    rest: Callable[[], Iterable[Any]]
    index: int
    low: int
    """The first open question that this one leads to, as far as is known."""
    found: tuple[Any, ...] = ()
    decided: tuple[Any, ...] | None = None
    """What was found while all that is to be decided was left out."""
    askers: set[_Question] = field(default_factory=set)
    is_new: bool = True
    """To be worked out, since it never was or since something that it asked for has grown."""
    has_undecided: bool = False
    is_deciding: bool = False
    is_looking_back: bool = False
    """Asks for what was found before anything was decided."""
    turns: int = 0
    cuts: int = 0
    """How often it asked for what is still open."""


class Solver:
    """The questions of one program, and what is known of them."""

    def __init__(self, order: Callable[[Any], Any]) -> None:
        """`order` puts the answers of a cycle in an order that does not depend on where it was entered."""
        self._order = order
        self.known: dict[Hashable, tuple[Any, ...]] = {}
        """The answers that are found for good, by question."""
        self._open: dict[Hashable, _Question] = {}
        self._keys: list[Hashable] = []
        """The open questions in the order in which they were first asked."""
        self._working: list[_Question] = []
        self.unfinished: dict[Hashable, None] = {}
        """The questions that were left as they stood, of those that no other question asked."""
        self.spent = 0
        """How many answers were handed out."""
        self._most = MOST_WORK

    def ask(
        self, key: Hashable, work: Callable[[], Iterable[T]], rest: Callable[[], Iterable[T]] = tuple
    ) -> tuple[T, ...]:
        """The answer to a question: what `work` gives, which may ask more. In a cycle, what is known of it so far.

        `rest` stands for what was not found, where that is too much work.
        """
        known = self.found(key)
        if known is not None:
            return known
        if not self._working:
            return self._begin(key, work, rest)
        question = self._open.get(key)
        if question is None:
            question = self._enter(key, work, rest)
            known = self.found(key)
            if known is not None:
                return known
        self.spent += 1 + len(question.found)
        asker = self._working[-1]
        asker.cuts += 1
        asker.low = min(asker.low, question.low)
        question.askers.add(asker)
        if asker.is_looking_back:
            return question.decided or ()
        return question.found

    def found(self, key: Hashable) -> tuple[Any, ...] | None:
        """The answer that is known already."""
        known = self.known.get(key)
        if known is not None:
            self.spent += 1 + len(known)
        return known

    def is_whole(self, ask: Callable[[], T]) -> tuple[T, bool]:
        """What is found, and whether nothing of it can still change."""
        if not self._working:
            return ask(), True
        asker = self._working[-1]
        before = asker.cuts
        return ask(), asker.cuts == before

    def both(self, ask: Callable[[], list[T]]) -> tuple[list[T], list[T] | None]:
        """What is found, and what is found to decide by: None where that has to wait, in a cycle."""
        found, is_whole = self.is_whole(ask)
        return found, found if is_whole else self.decide(ask, None)

    def decide(self, ask: Callable[[], T], meanwhile: U) -> T | U:
        """The answer to what can go from yes to no, or to another one, as more is found; `meanwhile` in a cycle."""
        answer, is_whole = self.is_whole(ask)
        if is_whole or self._working[-1].is_looking_back:
            return answer
        asker = self._working[-1]
        asker.has_undecided = True
        if not asker.is_deciding:
            return meanwhile
        asker.is_looking_back = True
        try:
            return ask()
        finally:
            asker.is_looking_back = False

    def _begin(
        self, key: Hashable, work: Callable[[], Iterable[Any]], rest: Callable[[], Iterable[Any]]
    ) -> tuple[Any, ...]:
        """The answer to what no other question asks."""
        one = MOST_WORK_OF_ONE >> 2 * len(self.unfinished)
        self._most = max(min(MOST_WORK, self.spent + one), self.spent + MOST_WORK_BEHIND)
        try:
            self._enter(key, work, rest)
        except _TooFar:
            self.known.update((each, (*question.found, *question.rest())) for each, question in self._open.items())
            self._open.clear()
            self._keys.clear()
            self.unfinished[key] = None
        return self.known[key]

    def _enter(self, key: Hashable, work: Callable[[], Iterable[Any]], rest: Callable[[], Iterable[Any]]) -> _Question:
        index = len(self._keys)
        question = self._open[key] = _Question(work, rest, index, index)
        self._keys.append(key)
        if len(self._working) >= MAX_DEPTH:
            question.low = 0
            return question
        self._work_out(question)
        if question.low == index:
            self._solve(question)
        return question

    def _work_out(self, question: _Question) -> None:
        if self.spent > self._most:
            raise _TooFar
        question.is_new = False
        self._working.append(question)
        try:
            found = dict.fromkeys(question.work())
        finally:
            self._working.pop()
        question.turns += 1
        if question.turns > MAX_TURNS:
            found.update(dict.fromkeys(question.found))
        if found.keys() != set(question.found):
            question.found = tuple(found)
            for asker in question.askers:
                asker.is_new = True

    def _solve(self, first: _Question) -> None:
        """Find all that there is to the questions that came up since this one, unless they lead to earlier ones."""
        if len(self._keys) == first.index + 1 and first not in first.askers:
            self._close(first, is_cycle=False)
            return
        while self._grow(first):
            members = self._since(first)
            if any(question.has_undecided for question in members):
                for question in members:
                    question.decided = question.found
                    question.is_deciding = True
                    question.is_new = question.has_undecided
                closed = self._grow(first)
                if not closed or len(self._keys) - first.index > len(members):
                    self._take_back(first)
                    if closed:
                        continue
                    return
            self._close(first, is_cycle=True)
            return

    def _grow(self, first: _Question) -> bool:
        """Work out until nothing grows; whether no question led to one before the first."""
        is_growing, step = True, 1
        while is_growing:
            is_growing, step = False, -step
            for index in range(first.index, len(self._keys))[::step]:
                question = self._open[self._keys[index]]
                if question.is_new:
                    is_growing = True
                    self._work_out(question)
                if question.low < first.index:
                    first.low = min(first.low, question.low)
                    return False
        return True

    def _since(self, first: _Question) -> list[_Question]:
        return [self._open[key] for key in self._keys[first.index :]]

    def _take_back(self, first: _Question) -> None:
        """More questions belong to the cycle than were there when it was decided."""
        for question in self._since(first):
            question.is_new = question.decided is None
            question.found = question.decided or ()
            question.decided = None
            question.is_deciding = False

    def _close(self, first: _Question, is_cycle: bool) -> None:
        for key in self._keys[first.index :]:
            found = self._open.pop(key).found
            self.known[key] = tuple(sorted(found, key=self._order)) if is_cycle else found
        del self._keys[first.index :]
