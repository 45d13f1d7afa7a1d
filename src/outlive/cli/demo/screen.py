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
from rich.table import Table
from rich.text import Text

from outlive.cli.demo.story import Line, Tally

FRAMES_PER_SECOND = 12
#: Narrower terminals show one column above the other.
SIDE_BY_SIDE_COLUMNS_MIN = 100
STYLES = {"outlive": "green", "plain": "red"}


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


class LiveTeller:
    """Redraws both columns a dozen times a second, on a screen of its own."""

    def __init__(self, console: Console, headline: str, sides: Sequence[Tally]) -> None:
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
        at = asyncio.get_running_loop().time() - self._began
        self._lines[side.title].append((at, line))

    async def _draw(self) -> None:
        while True:
            self._live.update(self._frame(), refresh=True)
            await asyncio.sleep(1 / FRAMES_PER_SECOND)

    def _frame(self) -> RenderableType:
        width, height = self._console.size
        is_wide = width >= SIDE_BY_SIDE_COLUMNS_MIN
        rows = (height - 1) if is_wide else (height - 1) // 2
        panels = [Layout(self._panel(side, rows)) for side in self._sides]
        columns = Layout()
        if is_wide:
            columns.split_row(*panels)
        else:
            columns.split_column(*panels)
        frame = Layout()
        frame.split_column(Layout(Text.from_markup(self._headline), size=1), columns)
        return frame

    def _panel(self, side: Tally, rows: int) -> Panel:
        lines = Table.grid(padding=(0, 1))
        for width in (5, 2, 14):
            lines.add_column(width=width, no_wrap=True, justify="right" if width < 14 else "left")
        lines.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for at, line in self._lines[side.title][-(rows - 4) :]:
            said = Text(f"{line.text}  {line.detail}".rstrip(), style=line.style)
            name = Text(line.name, style=line.style)
            lines.add_row(Text(f"{at:4.1f}s", style="dim"), Text(line.mark, "dim"), name, said)
        return Panel(
            Group(lines),
            title=f"[bold]{side.title}",
            subtitle=_subtitle(side),
            border_style=STYLES.get(side.title, "white"),
            box=box.ROUNDED,
        )


def _subtitle(side: Tally) -> str:
    saved = "" if side.model_calls_saved is None else f" ({side.model_calls_saved} saved)"
    return (
        f"kills [bold]{side.kills}[/]/{side.kills_planned}"
        f" · model calls [bold]{side.model_calls}[/]{saved}"
        f" · refunds [bold]{side.refunds}[/] · letters [bold]{side.mails}[/]"
    )
