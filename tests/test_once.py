"""Questions that are kept: asked the same again, they are not worked out again."""

from __future__ import annotations

from dataclasses import dataclass, field

from codemods.reading.code.once import once


@dataclass(eq=False)
class _File:
    answers: dict[object, object] = field(default_factory=dict)


def test_each_question_is_worked_out_once_a_file() -> None:
    asked: list[tuple[str, _File, int]] = []

    @once
    def ask(node: str, ctx: _File, depth: int = 3) -> int:
        asked.append((node, ctx, depth))
        return depth

    first, second = _File(), _File()
    assert [ask("a", first), ask("a", first), ask("a", first, 2), ask("a", second)] == [3, 3, 2, 3]
    assert asked == [("a", first, 3), ("a", first, 2), ("a", second, 3)]


def test_none_is_an_answer() -> None:
    asked: list[str] = []

    @once
    def ask(node: str, ctx: _File) -> None:
        asked.append(node)

    file = _File()
    ask("a", file)
    ask("a", file)
    assert asked == ["a"]
