"""The show: two worlds, one plan of kills, a verdict."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from outlive.cli.demo.processes import module_command
from outlive.cli.demo.screen import LineTeller, LiveTeller, Screen
from outlive.cli.demo.side import DemoSetting, DemoSide, DemoTiming
from outlive.cli.demo.story import KILLS_MIN, SEED_MAX, Tally, plan_kills
from outlive.cli.demo.watch import JournalReader, nonces_of
from outlive.errors import OutliveError
from outlive.ports import Ports


class OneLineParser(argparse.ArgumentParser):
    """Says in one line what is wrong and where to look."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(2)


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """``seed`` (or None), ``fast``, ``keep``."""
    parser = OneLineParser(
        prog="outlive demo",
        description="A support agent is killed again and again, in the middle of whatever it does, "
        "and started again each time; it refunds once. Beside it the same agent without Outlive. "
        "Nothing leaves this machine. Ends with 0 only if all went as promised.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, help="when to kill; printed, so that it can be repeated"
    )
    parser.add_argument("--fast", action="store_true", help="no pauses for an audience")
    parser.add_argument("--keep", action="store_true", help="keep the journal and the ledgers")
    return parser.parse_args(argv)


#: The rows that the show is about; they come last.
POINTS = ("mails sent", "refunds at the bank")
NONCE = re.compile(r"~[0-9a-f]{6}")


def incoherences(
    outcome: str,
    refunds: Sequence[dict[str, Any]],
    letters: Sequence[dict[str, Any]],
    journal: set[str],
) -> list[str]:
    """Whether answer, bank and letter speak of the same refund, and of what the journal keeps."""
    found = []
    sent = [*(entry["reason"] for entry in refunds), *(entry["letter"] for entry in letters)]
    unknown = {nonce for text in [outcome, *sent] for nonce in NONCE.findall(text)} - journal
    if unknown:
        found.append(f"answers went out that the journal does not have: {sorted(unknown)}")
    if not NONCE.search(outcome):
        found.append(f"the outcome is not the model's: {outcome!r}")
    for entry in refunds:
        if any(entry["number"] not in text for text in [outcome, *_texts(letters)]):
            found.append(f"refund {entry['number']} is not the one that was told")
    if any(entry["number"] not in outcome for entry in letters):
        found.append("the letter is not the one of the outcome")
    return found


def _texts(letters: Sequence[dict[str, Any]]) -> list[str]:
    return [entry["letter"] for entry in letters]


def failures(ours: Tally, plain: Tally) -> list[str]:
    """List the broken promises; none, if all went well."""
    checks = [
        (ours.kills >= max(KILLS_MIN, ours.kills_planned), f"{ours.kills} kills are too few"),
        (plain.kills >= plain.kills_planned, f"the plain agent died {plain.kills} times only"),
        (ours.refunds == 1, f"the bank refunded {ours.refunds} times"),
        (ours.mails == 1, f"{ours.mails} letters were sent"),
        (plain.refunds > 1, f"the plain agent refunded {plain.refunds} times: nothing was shown"),
    ]
    return [*(why for is_met, why in checks if not is_met), *ours.faults, *plain.faults]


def figures(ours: Tally, plain: Tally) -> list[tuple[str, str, str]]:
    """The rows of the table."""

    def row(name: str, field: str) -> tuple[str, str, str]:
        return name, _shown(getattr(ours, field)), _shown(getattr(plain, field))

    return [
        row("kills", "kills"),
        row("steps run", "steps_run"),
        row("steps replayed", "steps_replayed"),
        row("model calls made", "model_calls"),
        row("model calls saved", "model_calls_saved"),
        ("seconds", f"{ours.seconds:.1f}", f"{plain.seconds:.1f}"),
        row("mails sent", "mails"),
        row("refunds at the bank", "refunds"),
    ]


def _shown(figure: int | None) -> str:
    return "-" if figure is None else str(figure)


def render_table(ours: Tally, plain: Tally) -> Table:
    """The figures side by side."""
    table = Table(title_justify="left", border_style="dim", pad_edge=True)
    table.add_column("", style="bold")
    table.add_column(ours.title, justify="right", style="green", min_width=14)
    table.add_column(plain.title, justify="right", style="red", min_width=14)
    for name, left, right in figures(ours, plain):
        is_point = name in POINTS
        if name == POINTS[0]:
            table.add_section()
        table.add_row(name, left, right, style="bold" if is_point else None)
    return table


def verdict(ours: Tally, plain: Tally) -> str:
    """The sentence that remains."""
    wrong = failures(ours, plain)
    if wrong:
        return "[bold red]✘ not as promised:[/] " + "; ".join(wrong)
    return (
        f"[bold green]✔ killed {ours.kills} times, refunded once, wrote once.[/] "
        f"The plain agent refunded [bold red]{plain.refunds} times[/] "
        f"and wrote [bold red]{plain.mails} letters[/]."
    )


DURABLE = module_command("outlive.cli.demo.agent")
PLAIN = module_command("outlive.cli.demo.agent_plain")

STAGE = DemoTiming(think_seconds=0.6, ponder_seconds=0.2, pause_seconds=0.45)
FAST = DemoTiming(think_seconds=0.06, ponder_seconds=0.03, pause_seconds=0.0)
SHOW_SECONDS_MAX = 120.0
#: Names of sockets are short on every system.
FOLDER_CHARS_MAX = 62
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

    def __init__(self, console: StageConsole, seed: int, pace: DemoTiming) -> None:
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
        """Print the closing screen."""
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
            ours = DemoSide(self._setting(with_outlive, DURABLE, teller), self._ours, reader)
            plain = DemoSide(self._setting(plainly, PLAIN, teller), self._plain, None)
            async with asyncio.TaskGroup() as group:
                group.create_task(ours.play())
                group.create_task(plain.play())
            await self._audit(ours, reader)

    def _setting(self, folder: Path, command: Sequence[str], teller: Screen) -> DemoSetting:
        return DemoSetting(
            folder=folder, command=command, plan=self._plan, pace=self._pace, screen=teller
        )

    async def _audit(self, ours: DemoSide, reader: JournalReader) -> None:
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
