"""The show: two worlds, one plan of kills, a verdict."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from outlive.cli.demo.kills import SEED_MAX, plan_kills
from outlive.cli.demo.processes import module_command
from outlive.cli.demo.screen import LineTeller, LiveTeller
from outlive.cli.demo.side import Pace, Setting, Side
from outlive.cli.demo.story import Tally
from outlive.cli.demo.verdict import failures, incoherences, render_table, verdict
from outlive.cli.demo.watch import JournalReader, nonces_of
from outlive.ports import Ports

DURABLE = module_command("outlive.cli.demo.agent")
PLAIN = module_command("outlive.cli.demo.agent_plain")

STAGE = Pace(think_seconds=0.75, ponder_seconds=0.2, pause_seconds=0.5)
FAST = Pace(think_seconds=0.06, ponder_seconds=0.03, pause_seconds=0.0)
SHOW_SECONDS_MAX = 120.0
#: Names of sockets are short on every system.
FOLDER_CHARS_MAX = 70
INTERRUPTED = 130


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="outlive demo",
        description="A support agent is killed again and again, in the middle of whatever it does, "
        "and started again each time; it refunds once. Beside it the same agent without Outlive. "
        "Nothing leaves this machine. Ends with 0 only if all went as promised.",
    )
    parser.add_argument(
        "--seed", type=int, help="when to kill; printed, so that it can be repeated"
    )
    parser.add_argument("--fast", action="store_true", help="no pauses for an audience")
    parser.add_argument("--keep", action="store_true", help="keep the journal and the ledgers")
    return parser.parse_args(argv)


def run_show(argv: Sequence[str]) -> int:
    """Play it, print the figures and the verdict; the exit code says whether it held."""
    asked = parse(argv)
    seed = _any_seed() if asked.seed is None else asked.seed
    console = Console(highlight=False)
    show = Show(console, seed, FAST if asked.fast else STAGE)
    with _folder(keep=asked.keep) as folder:
        try:
            code = asyncio.run(show.play(folder))
        except (KeyboardInterrupt, asyncio.CancelledError):
            console.print("stopped; every process that was started has ended")
            return INTERRUPTED
        if asked.keep:
            console.print(f"kept: {folder}", soft_wrap=True)
    return code


class Show:
    """Both sides, from the first start to the verdict."""

    def __init__(self, console: Console, seed: int, pace: Pace) -> None:
        self._console = console
        self._seed = seed
        self._pace = pace
        self._plan = plan_kills(seed)
        planned = len(self._plan)
        self._ours = Tally(title="with Outlive", kills_planned=planned)
        self._plain = Tally(title="plain Python", kills_planned=planned)

    async def play(self, folder: Path) -> int:
        """The exit code."""
        _let_terminate()
        headline = f"[bold]outlive demo[/] · seed {self._seed} · {len(self._plan)} kills"
        self._console.print(headline)
        try:
            async with asyncio.timeout(SHOW_SECONDS_MAX), self._teller(headline) as teller:
                await self._play_both(folder, teller)
        except TimeoutError:
            self._ours.faults.append(f"not over within {SHOW_SECONDS_MAX:g} s")
        self._console.print(render_table(self._ours, self._plain))
        self._console.print(verdict(self._ours, self._plain), soft_wrap=True)
        self._console.print(f"[dim]again: outlive demo --seed {self._seed}[/]")
        return 1 if failures(self._ours, self._plain) else 0

    def _teller(self, headline: str) -> LineTeller | LiveTeller:
        if self._console.is_terminal:
            return LiveTeller(self._console, headline, (self._ours, self._plain))
        return LineTeller(self._console)

    async def _play_both(self, folder: Path, teller: LineTeller | LiveTeller) -> None:
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

    def _setting(
        self, folder: Path, command: Sequence[str], teller: LineTeller | LiveTeller
    ) -> Setting:
        return Setting(
            folder=folder, command=command, plan=self._plan, pace=self._pace, teller=teller
        )

    async def _audit(self, ours: Side, reader: JournalReader) -> None:
        """Whether what went out is what the journal says."""
        tally = self._ours
        if str(await reader.outcome()) != tally.outcome:
            tally.faults.append(f"the agent said {tally.outcome!r}, the journal does not")
        refunds, letters = ours.ledger("bank").read(), ours.ledger("post").read()
        tally.faults += incoherences(tally.outcome, refunds, letters, nonces_of(reader.events))


def _any_seed() -> int:
    return int.from_bytes(Ports().entropy(4), "big") % (SEED_MAX + 1)


def _let_terminate() -> None:
    """A request to terminate ends the show as Ctrl-C does: with all its children."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


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
