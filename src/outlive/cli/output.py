"""Output of commands: tables for people, JSON for programs, notes and errors on stderr.

Results go to standard output, everything else to standard error. On a terminal a table is drawn
by rich, which is imported only then; elsewhere it is plain text in columns, with no colours, the
same every time. Text that came from outside is printed with its control characters escaped.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from outlive.ports import Ports
from outlive.stores.seam import Store, timed_by

_STYLES = {
    "completed": "green",
    "running": "cyan",
    "waiting": "blue",
    "pending": "blue",
    "undoing": "yellow",
    "failed": "red",
    "cancelled": "red",
    "in_doubt": "bold yellow",
    "quarantined": "bold red",
    "nobody": "bold yellow",
}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(safe_json(msgspec.json.format(msgspec.json.encode(value), indent=2)))


def print_line(text: str = "") -> None:
    """Print one line of a result."""
    print(safe(text))


def print_text(text: str) -> None:
    """Print a text that a flow returned, with control characters escaped."""
    if sys.stdout.isatty():
        text = "\n".join(safe(line) for line in text.split("\n"))
    print(text)


def print_note(text: str) -> None:
    """Print a note on standard error."""
    print(safe(text), file=sys.stderr, flush=True)


LEVELS = ("debug", "info", "warning", "error")


def log_to_stderr(level: str | None = None, default: str = "warning") -> None:
    """Print warnings of the engine here, unless the user's own code handles them."""
    logger = logging.getLogger("outlive")
    if level is not None or not logger.hasHandlers():
        logger.setLevel((level or default).upper())
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_SafeFormatter("outlive: %(message)s"))
        logger.addHandler(handler)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their column's name."""
    columns = [safe(name) for name in columns]
    cells = [[safe(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells)
    else:
        _print_plain(columns, cells)


def _print_plain(columns: Sequence[str], rows: list[list[str]]) -> None:
    lines = [list(columns), *rows]
    widths = [max(len(line[position]) for line in lines) for position in range(len(columns))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def _print_rich(columns: Sequence[str], rows: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name != columns[-1])
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    width = shutil.get_terminal_size().columns
    Console(width=width, highlight=False, markup=False).print(table)


def safe(text: str) -> str:
    """The text on one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def safe_json(raw: bytes) -> str:
    """Equivalent JSON, with control characters escaped."""
    text = raw.decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped_json(c) for c in text)


def _escaped_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high << 8 | low:04x}" for high, low in pairs)


class _SafeFormatter(logging.Formatter):
    """Lines of a log, with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(safe(line) for line in super().format(record).split("\n"))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def now_ms(store: Store) -> int:
    """The store's time, from which ages are computed (R23)."""
    return timed_by(store, Ports()).clock.now_ms()


def age(milliseconds: int) -> str:
    """A duration in its largest unit: ``42s``, ``3m``, ``5h``, ``2d``."""
    seconds = max(0, milliseconds) // 1000
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def took(milliseconds: int | None) -> str:
    """A duration, rounded to a useful precision."""
    if milliseconds is None:
        return ""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def span(milliseconds: int) -> str:
    """A time to wait: exactly if it is short, in its largest unit if it is long."""
    return took(max(0, milliseconds)) if milliseconds < 60_000 else age(milliseconds)
