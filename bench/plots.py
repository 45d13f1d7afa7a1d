"""Curves as SVG, drawn by hand: two logarithmic axes, a line per contestant, ranges as bars."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 40, 50
#: The name by which SVG is known; nothing is fetched from there.
NAMESPACE = "http://www.w3.org/2000/svg"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A median at a size, and how far the rounds lie apart."""

    size: float
    middle: float
    least: float
    most: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A contestant's costs over the sizes."""

    name: str
    colour: str
    points: list[Point]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One median of one contestant."""

    name: str
    colour: str
    value: float


class Axis:
    """A logarithmic scale over whole decades."""

    def __init__(self, values: list[float], begin: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)) + 1e-9)
        self.high = max(math.ceil(math.log10(max(values)) - 1e-9), self.low + 1)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        """Where a value is drawn."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self._begin + share * (self._end - self._begin)

    def marks(self) -> list[float]:
        """The decades."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Some words."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin line of the grid."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def render(curve: Curve, across: Axis, up: Axis) -> list[str]:
    """A contestant's line, with a dot per size and a bar from the least to the most."""
    parts, places = [], []
    for point in curve.points:
        x, y = across.at(point.size), up.at(point.middle)
        places.append(f"{x:.1f},{y:.1f}")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{curve.colour}"/>')
        parts.append(
            f'<line x1="{x:.1f}" y1="{up.at(point.least):.1f}" x2="{x:.1f}" '
            f'y2="{up.at(point.most):.1f}" stroke="{curve.colour}" stroke-width="1.5"/>'
        )
    path = " ".join(places)
    line = f'<polyline points="{path}" fill="none" stroke="{curve.colour}" stroke-width="2"/>'
    return [line, *parts]


def draw(title: str, across_title: str, form: Callable[[float], str], curves: list[Curve]) -> str:
    """A whole picture."""
    every = [point for curve in curves for point in curve.points]
    across = Axis([point.size for point in every], LEFT, WIDTH - RIGHT)
    up = Axis([end for point in every for end in (point.least, point.most)], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 22, title),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, across_title, "middle"),
    ]
    for mark in across.marks():
        parts.append(line(across.at(mark), TOP, across.at(mark), HEIGHT - BOTTOM))
        parts.append(text(across.at(mark), HEIGHT - BOTTOM + 18, f"{mark:,.0f}", "middle"))
    for mark in up.marks():
        parts.append(line(LEFT, up.at(mark), WIDTH - RIGHT, up.at(mark)))
        parts.append(text(LEFT - 8, up.at(mark) + 4, form(mark), "end"))
    for number, curve in enumerate(curves):
        parts += render(curve, across, up)
        name = text(WIDTH - RIGHT + 14, TOP + 20 * number, curve.name)
        parts.append(f'<g fill="{curve.colour}">{name}</g>')
    return "\n".join([*parts, "</svg>", ""])


def draw_bars(title: str, form: Callable[[float], str], bars: list[Bar]) -> str:
    """Horizontal bars over one logarithmic axis, each with its name and its value."""
    step, left = 24, 200
    bottom = TOP + step * len(bars)
    axis = Axis([bar.value for bar in bars], left, WIDTH - 70)
    height = bottom + 30
    parts = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(12, 22, title),
    ]
    for mark in axis.marks():
        parts.append(line(axis.at(mark), TOP, axis.at(mark), bottom))
        parts.append(text(axis.at(mark), bottom + 18, form(mark), "middle"))
    for number, bar in enumerate(bars):
        y, end = TOP + step * number, axis.at(bar.value)
        parts.append(text(left - 8, y + 16, bar.name, "end"))
        parts.append(
            f'<rect x="{left}" y="{y + 4}" width="{end - left:.1f}" height="16" '
            f'fill="{bar.colour}"/>'
        )
        parts.append(text(end + 6, y + 16, form(bar.value)))
    return "\n".join([*parts, "</svg>", ""])
