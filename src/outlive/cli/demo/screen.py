"""The audience's view: two columns that grow on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from outlive.cli.demo.story import ScreenLine, Tally

FRAMES_PER_SECOND = 10
#: Narrower terminals show one column above the other.
SIDE_BY_SIDE_COLUMNS_MIN = 100
PANEL_ROWS_MIN = 6
FRAME_ROWS = 2
FRAME_COLUMNS = 4


class LineTeller:
    """One line of text for each thing that happens: for files, logs and tests."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = asyncio.get_running_loop().time()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        pass

    def tell(self, side: Tally, line: ScreenLine) -> None:
        """Print it."""
        at = asyncio.get_running_loop().time() - self._began
        words = f"{line.mark:>3} {line.name:<15} {line.text} {line.detail}".rstrip()
        self._console.print(f"{at:5.1f}s  {side.title:<14} {words}", markup=False, soft_wrap=True)

    def last_frame(self, rows: int) -> RenderableType | None:
        """Everything was printed."""
        return None


class LiveTeller:
    """Redraws both columns ten times a second, on a screen of its own."""

    def __init__(self, console: Console, headline: Text, sides: Sequence[Tally]) -> None:
        self._console = console
        self._headline = headline
        self._sides = sides
        self._began = asyncio.get_running_loop().time()
        self._lines: dict[str, list[tuple[float, ScreenLine]]] = {side.title: [] for side in sides}
        self._live = Live(console=console, screen=True, auto_refresh=False)
        self._drawing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._live.start()
        self._drawing = asyncio.create_task(self._draw())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._live.stop()
        if self._drawing is not None and not self._drawing.cancel():
            self._drawing.result()

    def tell(self, side: Tally, line: ScreenLine) -> None:
        """Show it with the next frame."""
        self._lines[side.title].append((self._now(), line))

    def last_frame(self, rows: int) -> RenderableType | None:
        """Both columns as they stand at the end, this high, if that is worth it."""
        return self._panels(rows) if rows >= 2 * PANEL_ROWS_MIN else None

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    async def _draw(self) -> None:
        while True:
            self._live.update(self._frame(), refresh=True)
            await asyncio.sleep(1 / FRAMES_PER_SECOND)

    def _frame(self) -> RenderableType:
        head = Text.assemble(self._headline, (f"  {self._now():5.1f}s", "dim"))
        return Group(head, self._panels(self._console.height - 1))

    def _panels(self, rows: int) -> RenderableType:
        is_wide = self._console.width >= SIDE_BY_SIDE_COLUMNS_MIN
        high = max(rows if is_wide else rows // len(self._sides), PANEL_ROWS_MIN)
        wide = self._console.width // (len(self._sides) if is_wide else 1)
        panels = [self._panel(side, high, wide) for side in self._sides]
        if not is_wide:
            return Group(*panels)
        columns = Table.grid(expand=True)
        for _ in panels:
            columns.add_column(ratio=1)
        columns.add_row(*panels)
        return columns

    def _panel(self, side: Tally, rows: int, columns: int) -> Panel:
        newest = self._lines[side.title][FRAME_ROWS - rows :]
        text = Text("\n", no_wrap=True, overflow="ellipsis")
        return Panel(
            text.join(_row(at, line, columns - FRAME_COLUMNS) for at, line in newest),
            title=f"[bold]{side.title}[/] · {side.shows}",
            subtitle=_standing(side),
            border_style=side.style,
            box=box.ROUNDED,
            height=rows,
        )


Screen = LineTeller | LiveTeller


def _row(at: float, line: ScreenLine, columns: int) -> Text:
    row = Text.assemble((f"{at:4.1f}s", "dim"), f" {line.mark:>2} ")
    row.append(f" {line.name:<14} {line.text} ", line.style)
    row.append(line.detail, line.detail_style)
    if " on " in line.style:
        row.append(" " * (columns - row.cell_len), line.style)
    return row


def _standing(side: Tally) -> str:
    saved = "" if side.model_calls_saved is None else f" ({side.model_calls_saved} saved)"
    alarm = "red" if side.refunds > 1 else "green"
    return (
        f"[bold {alarm}]refunds {side.refunds}[/] · letters [bold]{side.mails}[/]"
        f" · kills [bold]{side.kills}[/]/{side.kills_planned}"
        f" · calls [bold]{side.model_calls}[/]{saved}"
    )
