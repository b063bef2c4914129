"""All that each of some things leads to, over others or not: found once for those that lead to each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Closure(Generic[T]):
    """Strongly connected components, as Tarjan finds them, without recursion."""

    def __init__(self, onward: Callable[[T], Iterable[T]]) -> None:
        """`onward`: what a thing leads to at once."""
        self._onward = onward
        self._known: dict[T, frozenset[T]] = {}

    def of(self, start: T) -> frozenset[T]:
        """The thing itself, and all that it leads to."""
        if start not in self._known:
            self._find(start)
        return self._known[start]

    def _find(self, start: T) -> None:
        index: dict[T, int] = {}
        low: dict[T, int] = {}
        opened: list[T] = []
        ways: list[tuple[T, Iterator[T]]] = []

        def enter(each: T) -> None:
            index[each] = low[each] = len(index)
            opened.append(each)
            ways.append((each, iter(self._onward(each))))

        enter(start)
        while ways:
            each, onward = ways[-1]
            following = next((other for other in onward if other not in self._known), None)
            if following is None:
                ways.pop()
                if low[each] == index[each]:
                    self._close(opened, opened.index(each))
                if ways:
                    low[ways[-1][0]] = min(low[ways[-1][0]], low[each])
            elif following in index:
                low[each] = min(low[each], index[following])
            else:
                enter(following)

    def _close(self, opened: list[T], first: int) -> None:
        """What has been opened since the first leads to each other, and to what is known."""
        members = opened[first:]
        del opened[first:]
        found = set(members)
        for other in (other for each in members for other in self._onward(each)):
            if other not in found:
                found |= self._known[other]
        self._known.update(dict.fromkeys(members, frozenset(found)))
