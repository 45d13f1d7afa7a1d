"""The show: two worlds, one plan of kills, a verdict."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from outlive.cli.demo.kills import SEED_MAX, plan_kills
from outlive.cli.demo.options import parse_options
from outlive.cli.demo.processes import module_command
from outlive.cli.demo.screen import LineTeller, LiveTeller, Screen
from outlive.cli.demo.side import Pace, Setting, Side
from outlive.cli.demo.story import Tally
from outlive.cli.demo.verdict import failures, incoherences, render_table, verdict
from outlive.cli.demo.watch import JournalReader, nonces_of
from outlive.errors import OutliveError
from outlive.ports import Ports

DURABLE = module_command("outlive.cli.demo.agent")
PLAIN = module_command("outlive.cli.demo.agent_plain")

STAGE = Pace(think_seconds=0.6, ponder_seconds=0.2, pause_seconds=0.45)
FAST = Pace(think_seconds=0.06, ponder_seconds=0.03, pause_seconds=0.0)
SHOW_SECONDS_MAX = 120.0
#: Names of sockets are short on every system.
FOLDER_CHARS_MAX = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
#: Headline, table, verdict and the shell's prompt.
CLOSING_ROWS = 19


def run_show(argv: Sequence[str]) -> int:
    """Play it, print the figures and the verdict; the exit code says whether it held."""
    asked = parse_options(argv)
    seed = _any_seed() if asked.seed is None else asked.seed
    console = StageConsole(highlight=False)
    show = Show(console, seed, FAST if asked.fast else STAGE)
    with _folder(keep=asked.keep) as folder:
        try:
            code = asyncio.run(show.play(folder))
        except (KeyboardInterrupt, asyncio.CancelledError):
            console.print("stopped; every process that was started has ended")
            return BROKEN_PIPE if console.quiet else INTERRUPTED
        except OutliveError as error:
            console.print(f"outlive demo: {error}", markup=False, soft_wrap=True)
            return error.exit_code
        if asked.keep:
            console.print(f"kept: {folder}", soft_wrap=True)
    return code


class StageConsole(Console):
    """A console whose audience may leave."""

    on_leaving: Callable[[], object] | None = None

    def on_broken_pipe(self) -> None:
        """Nobody reads any more: end the show; and nothing may try to print at exit."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if self.on_leaving is not None:
            self.on_leaving()


class Show:
    """Both sides, from the first start to the verdict."""

    def __init__(self, console: StageConsole, seed: int, pace: Pace) -> None:
        self._console = console
        self._seed = seed
        self._pace = pace
        self._plan = plan_kills(seed)
        planned = len(self._plan)
        self._ours = Tally(
            title="with Outlive", shows="its journal", style="green", kills_planned=planned
        )
        self._plain = Tally(
            title="plain Python", shows="what the world saw", style="red", kills_planned=planned
        )

    async def play(self, folder: Path) -> int:
        """The exit code."""
        self._let_stop()
        headline = Text.from_markup(
            f"[bold]outlive demo[/] · seed [bold]{self._seed}[/] · each agent gets "
            f"[bold red]{len(self._plan)} SIGKILLs[/] at the same moments"
        )
        self._console.print(headline, soft_wrap=True)
        teller = self._teller(headline)
        try:
            async with asyncio.timeout(SHOW_SECONDS_MAX), teller:
                await self._play_both(folder, teller)
                await asyncio.sleep(self._pace.pause_seconds)
        except TimeoutError:
            self._ours.faults.append(f"not over within {SHOW_SECONDS_MAX:g} s")
        self._close(teller)
        return 1 if failures(self._ours, self._plain) else 0

    def _let_stop(self) -> None:
        """A request to terminate ends the show as Ctrl-C does: with all its children."""
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        self._console.on_leaving = task.cancel

    def _close(self, teller: Screen) -> None:
        """What remains on the screen."""
        frame = teller.last_frame(self._console.height - CLOSING_ROWS)
        if frame is not None:
            self._console.print(frame)
        self._console.print(render_table(self._ours, self._plain))
        self._console.print(
            verdict(self._ours, self._plain), soft_wrap=not self._console.is_terminal
        )
        self._console.print(f"[dim]once more: outlive demo --seed {self._seed}[/]")

    def _teller(self, headline: Text) -> Screen:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            return LiveTeller(self._console, headline, (self._ours, self._plain))
        return LineTeller(self._console)

    async def _play_both(self, folder: Path, teller: Screen) -> None:
        with_outlive, plainly = folder / "outlive", folder / "plain"
        with_outlive.mkdir()
        plainly.mkdir()
        async with JournalReader(f"sqlite:///{with_outlive}/outlive.db") as reader:
            ours = Side(self._setting(with_outlive, DURABLE, teller), self._ours, reader)
            plain = Side(self._setting(plainly, PLAIN, teller), self._plain, None)
            async with asyncio.TaskGroup() as group:
                group.create_task(ours.play())
                group.create_task(plain.play())
            await self._audit(ours, reader)

    def _setting(self, folder: Path, command: Sequence[str], teller: Screen) -> Setting:
        return Setting(
            folder=folder, command=command, plan=self._plan, pace=self._pace, teller=teller
        )

    async def _audit(self, ours: Side, reader: JournalReader) -> None:
        """Whether what went out is what the journal says."""
        tally = self._ours
        try:
            outcome = str(await reader.outcome())
        except OutliveError as error:
            tally.faults.append(str(error))
            return
        if outcome != tally.outcome:
            tally.faults.append(f"the agent said {tally.outcome!r}, the journal {outcome!r}")
        refunds, letters = ours.ledger("bank").read(), ours.ledger("post").read()
        tally.faults += incoherences(outcome, refunds, letters, nonces_of(reader.events))


def _any_seed() -> int:
    return int.from_bytes(Ports().entropy(4), "big") % (SEED_MAX + 1)


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """A folder of our own whose name leaves room for a socket's."""
    is_short = len(tempfile.gettempdir()) <= FOLDER_CHARS_MAX
    folder = Path(tempfile.mkdtemp(prefix="outlive-demo-", dir=None if is_short else "/tmp"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder)
