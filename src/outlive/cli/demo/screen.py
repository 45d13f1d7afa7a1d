"""The audience's view: two columns that grow on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from outlive.cli.demo.story import Line, Tally

FRAMES_PER_SECOND = 12
#: Narrower terminals show one column above the other.
SIDE_BY_SIDE_COLUMNS_MIN = 100
PANEL_ROWS_MIN = 6
FRAME_ROWS = 2


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

    def tell(self, side: Tally, line: Line) -> None:
        """Print it."""
        at = asyncio.get_running_loop().time() - self._began
        words = f"{line.mark:>3} {line.name:<15} {line.text} {line.detail}".rstrip()
        self._console.print(f"{at:5.1f}s  {side.title:<14} {words}", markup=False, soft_wrap=True)

    def last_frame(self, rows: int) -> RenderableType | None:
        """Everything was printed."""
        return None


class LiveTeller:
    """Redraws both columns a dozen times a second, on a screen of its own."""

    def __init__(self, console: Console, headline: Text, sides: Sequence[Tally]) -> None:
        self._console = console
        self._headline = headline
        self._sides = sides
        self._began = asyncio.get_running_loop().time()
        self._lines: dict[str, list[tuple[float, Line]]] = {side.title: [] for side in sides}
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
        if self._drawing is not None:
            self._drawing.cancel()
        self._live.stop()

    def tell(self, side: Tally, line: Line) -> None:
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
        each = max(rows if is_wide else rows // len(self._sides), PANEL_ROWS_MIN)
        panels = [Layout(self._panel(side, each)) for side in self._sides]
        layout = Layout(height=each if is_wide else each * len(panels))
        (layout.split_row if is_wide else layout.split_column)(*panels)
        return layout

    def _panel(self, side: Tally, rows: int) -> Panel:
        newest = self._lines[side.title][FRAME_ROWS - rows :]
        return Panel(
            Text("\n", no_wrap=True, overflow="ellipsis").join(
                _row(at, line) for at, line in newest
            ),
            title=f"[bold]{side.title}[/] · {side.shows}",
            subtitle=_standing(side),
            border_style=side.style,
            box=box.ROUNDED,
            height=rows,
        )


def _row(at: float, line: Line) -> Text:
    row = Text.assemble((f"{at:4.1f}s", "dim"), f" {line.mark:>2} ")
    row.append(f" {line.name:<14} {line.text} ", line.style)
    row.append(line.detail, line.detail_style)
    return row


def _standing(side: Tally) -> str:
    saved = "" if side.model_calls_saved is None else f" ({side.model_calls_saved} saved)"
    return (
        f"kills [bold]{side.kills}[/] of {side.kills_planned}"
        f" · model calls [bold]{side.model_calls}[/]{saved}"
        f" · letters [bold]{side.mails}[/] · refunds [bold]{side.refunds}[/]"
    )
