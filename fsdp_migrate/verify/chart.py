"""Line charts as SVG text: enough for a report page, with no library and no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 34


@dataclass(frozen=True, slots=True)
class Line:
    """One series by step; `style` is its CSS class. A value that is None or not finite leaves a gap."""

    name: str
    values: Sequence[float | None]
    style: str


def line_chart(lines: Sequence[Line], unit: str, log: bool = False, from_zero: bool = False) -> str:
    """An `<svg>` of `lines` over the step. With `log` the axis is logarithmic, and zeros lie on its lower edge; with
    `from_zero` it starts there.

    Empty when no line has a value.
    """
    known = [value for line in lines for value in line.values if _usable(value, log)]
    length = max((len(line.values) for line in lines), default=0)
    if not length or (not known and not log):
        return ""
    scale = _Scale.of([float(v) for v in known if v is not None], length, log, from_zero)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(unit)} by step">',
        *_grid(scale, unit),
        *(_path(line, scale) for line in lines),
        "</svg>",
    ]
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    length: int
    log: bool

    @classmethod
    def of(cls, values: list[float], length: int, log: bool, from_zero: bool) -> _Scale:
        if log:
            exponents = [math.log10(value) for value in values] or [-8.0, -7.0]
            return cls(math.floor(min(exponents)) - 1.0, math.ceil(max(exponents)) + 0.2, length, log)
        low, high = 0.0 if from_zero else min(values), max(values)
        # Never zoom into less than 2 % of the value: rounding would look like a difference.
        least = 0.02 * max(abs(low), abs(high)) or 1.0
        if high - low < least:
            low, high = (low + high - least) / 2, (low + high + least) / 2
        step = _round_step((high - low) / 4)
        return cls(math.floor(low / step) * step, math.ceil(high / step) * step, length, log)

    def x(self, step: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / max(1, self.length - 1)

    def y(self, value: float) -> float:
        at = value
        if self.log:
            at = math.log10(value) if value > 0 else self.low
        share = (min(max(at, self.low), self.high) - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share

    def ticks(self) -> list[tuple[float, str]]:
        if self.log:
            first, last = math.ceil(self.low) + 1, math.floor(self.high)
            every = max(1, (last - first) // 5)
            return [(0.0, "0"), *((10.0**n, f"1e{n}") for n in range(first, last + 1, every))]
        step = _round_step((self.high - self.low) / 4)
        count = round((self.high - self.low) / step)
        return [(self.low + i * step, f"{round(self.low + i * step, 12):.6g}") for i in range(count + 1)]


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1.0, 2.0, 2.5, 5.0, 10.0) if power * digit >= least * 0.999)


def _grid(scale: _Scale, unit: str) -> list[str]:
    parts = []
    for value, label in scale.ticks():
        y = scale.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for step in range(0, scale.length, max(1, round(_round_step(scale.length / 5)))):
        x = scale.x(step)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{step}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{_HEIGHT - 3}" text-anchor="middle">step</text>')
    parts.append(f"<title>{escape(unit)}</title>")
    return parts


def _path(line: Line, scale: _Scale) -> str:
    commands, pen_down = [], False
    for step, value in enumerate(line.values):
        if value is None or not math.isfinite(value):
            pen_down = False
            continue
        commands.append(f"{'L' if pen_down else 'M'}{scale.x(step):.1f} {scale.y(value):.1f}")
        pen_down = True
    return f'<path class="line {line.style}" d="{" ".join(commands)}"><title>{escape(line.name)}</title></path>'


def _usable(value: float | None, log: bool) -> bool:
    return value is not None and math.isfinite(value) and (value > 0 or not log)
