"""What things lead to, in graphs with and without cycles."""

from hypothesis import given
from hypothesis import strategies as st

from fsdp_migrate.pyanalysis.closure import Closure

NODES = 7


@given(st.sets(st.tuples(st.integers(0, NODES), st.integers(0, NODES))), st.permutations(range(NODES + 1)))
def test_is_what_a_walk_finds(edges: set[tuple[int, int]], order: list[int]) -> None:
    def onward(node: int) -> list[int]:
        return [target for start, target in edges if start == node]

    def walked(start: int) -> set[int]:
        found, queue = {start}, [start]
        while queue:
            new = set(onward(queue.pop())) - found
            found |= new
            queue += new
        return found

    closure = Closure(onward)
    assert {node: closure.of(node) for node in order} == {node: walked(node) for node in order}


def test_long_ways_need_no_recursion() -> None:
    assert len(Closure(lambda node: [node + 1] if node < 2_999 else []).of(0)) == 3_000
