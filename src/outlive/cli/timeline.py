"""A timeline on a terminal: one mark per kind of event, branches indented, bookkeeping dimmed.

Only this module and ``output`` know rich, and they import it when they draw. Elsewhere the same
rows are plain columns.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from outlive.cli.output import safe, took
from outlive.views.rows import Row


class Look(NamedTuple):
    """The look of a kind of event."""

    mark: str
    style: str


_DONE, _BAD, _ASKS = Look("●", "green"), Look("✗", "red"), Look("?", "bold yellow")
_BEGUN, _QUIET = Look("○", "cyan"), Look("·", "dim")
_LOOKS = {
    "started": Look("▶", "bold"),
    "chapter": Look("▶", "bold"),
    "retried": Look("↻", "bold"),
    "intended": _BEGUN,
    "child intended": _BEGUN,
    "child started": _BEGUN,
    "done": _DONE,
    "answered": _DONE,
    "child completed": _DONE,
    "raised": _BAD,
    "child failed": _BAD,
    "child cancelled": _BAD,
    "child refused": _BAD,
    "attempt failed": Look("↻", "yellow"),
    "in doubt": _ASKS,
    "asked": _ASKS,
    "closed": Look("✗", "yellow"),
    "signal": Look("»", "magenta"),
    "replied": Look("«", "magenta"),
    "taken": Look("«", "magenta"),
    "timer fired": Look("◷", "blue"),
    "cancel asked": Look("✗", "bold red"),
    "deadline passed": Look("✗", "bold red"),
    "undoing": Look("↶", "bold yellow"),
    "completed": Look("■", "bold green"),
    "failed": Look("■", "bold red"),
    "cancelled": Look("■", "bold red"),
    "quarantined": Look("■", "bold red"),
}
#: Widths of all columns but the last where each row is printed as it comes.
_WIDTHS = (4, 9, 28, 18, 8)
#: The largest indent of a branch.
_DEPTH_MAX = 6


def draw(rows: Sequence[Row], details: Sequence[str]) -> None:
    """Print all rows, in columns as wide as they need."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("SEQ", justify="right", style="dim", no_wrap=True)
    table.add_column("TIME", justify="right", style="dim", no_wrap=True)
    table.add_column("STEP", overflow="fold", max_width=40)
    table.add_column("WHAT", no_wrap=True)
    table.add_column("TOOK", justify="right", no_wrap=True)
    table.add_column("DETAIL", overflow="fold")
    for row, detail in zip(rows, details, strict=True):
        table.add_row(*_cells(row, detail))
    _console().print(table)


def draw_row(row: Row, detail: str) -> None:
    """Print one row as it comes."""
    from rich.text import Text

    line = Text()
    *cells, last = _cells(row, detail)
    for cell, width in zip(cells, _WIDTHS, strict=True):
        cell.truncate(width, overflow="ellipsis", pad=True)
        line.append_text(cell)
        line.append("  ")
    line.append_text(last)
    _console().print(line, soft_wrap=True)
    sys.stdout.flush()


def _cells(row: Row, detail: str) -> list[Any]:
    from rich.text import Text

    look = _LOOKS.get(row.what, _QUIET)
    quiet = "dim" if look is _QUIET else ""
    tries = f" (try {row.attempt})" if row.attempt is not None and row.attempt > 1 else ""
    what = Text(f"{_mark(look)} {row.what}{tries}", style=look.style)
    return [
        Text(str(row.seq), style="dim"),
        Text(since(row.at), style="dim"),
        _place(row),
        what,
        Text(took(row.duration_ms)),
        Text(safe(detail), style=quiet),
    ]


def _place(row: Row) -> Any:
    """The step, indented by the depth of its branch."""
    from rich.text import Text

    depth = min(row.branch.count("."), _DEPTH_MAX)
    place = Text()
    if depth and row.step:
        line = "│ " if _is_unicode() else "| "
        place.append(f"{line * depth}{safe(row.branch)} ", style="dim")
    return place.append(safe(row.step))


def _mark(look: Look) -> str:
    return look.mark if _is_unicode() else "*" if look is not _QUIET else "."


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")


def _console() -> Any:
    from rich.console import Console

    width = shutil.get_terminal_size().columns
    return Console(width=width, highlight=False, markup=False, emoji=False)


def since(milliseconds: int) -> str:
    """Time since the start, rounded to a useful precision."""
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"+{seconds:.3f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"+{days}d {hours:02}h"
    return f"+{hours}h {minutes:02}m" if hours else f"+{minutes}m {rest:02}s"
