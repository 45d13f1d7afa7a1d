"""One agent in a world of its own, killed and started again until it ends."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.cli.demo.desk import DeskLedger
from outlive.cli.demo.model import Doom, PretendModel
from outlive.cli.demo.processes import ERRORS_FILE, child, module_command
from outlive.cli.demo.screen import Screen
from outlive.cli.demo.story import Kill, Moment, ScreenLine, Tally
from outlive.cli.demo.watch import JournalReader, count_replays
from outlive.errors import OutliveError
from outlive.ports import Ports

#: Every kill needs one; with more than this something is wrong.
STARTS_MAX = 20
LOOK_SECONDS = 0.1
#: Wait so long after a kill: lines that the desks printed before it are shown first.
BREATH_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTiming:
    """The durations of the demo."""

    think_seconds: float
    ponder_seconds: float
    #: For the audience: between a kill and the next start.
    pause_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSetting:
    """The settings of a side."""

    folder: Path
    command: Sequence[str]
    plan: Sequence[Kill]
    pace: DemoTiming
    screen: Screen


class DemoSide:
    """An agent, its model, its bank, its post office, and its kills."""

    def __init__(self, setting: DemoSetting, tally: Tally, reader: JournalReader | None) -> None:
        self._setting = setting
        self._tally = tally
        self._reader = reader
        self._doom = Doom(setting.plan, setting.pace.think_seconds)
        self._seen: Counter[str] = Counter()
        self._reading = asyncio.Lock()
        self._wake: list[ScreenLine] = []
        think = setting.pace.think_seconds
        self._model = PretendModel(
            self._doom, think, _nonce, self._model_asked, self._model_answered
        )

    async def play(self) -> None:
        """Start the agent until it ends by itself; then count what is in the ledgers."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with AsyncExitStack() as stack:
                await self._open_world(stack)
                await stack.enter_async_context(_beside(self._look()))
                await self._live()
                await self._catch_up()
        except (OSError, OutliveError) as error:
            self._tally.faults.append(str(error))
        self._tally.seconds = loop.time() - began
        self._tally.refunds = len(self.ledger("bank").read())
        self._tally.mails = len(self.ledger("post").read())

    def ledger(self, name: str) -> DeskLedger:
        """The ledger of a desk: what it has really done."""
        return DeskLedger(self._setting.folder / f"{name}.ledger")

    def _errors(self) -> str:
        lines = (self._setting.folder / ERRORS_FILE).read_text(errors="replace").splitlines()
        return lines[-1] if lines else "no word"

    # the world

    async def _open_world(self, stack: AsyncExitStack) -> None:
        path = self._setting.folder / "model.sock"
        server = await asyncio.start_unix_server(self._model.serve, path)
        stack.callback(server.close)
        held = self._doom.plans
        bank = ["--kill-asker"] + ["--hold-request"] * held(Moment.REFUND_ASKED)
        await stack.enter_async_context(self._desk("bank", bank))
        await stack.enter_async_context(
            self._desk("post", ["--hold-reply"] * held(Moment.MAIL_SENT))
        )

    @asynccontextmanager
    async def _desk(self, name: str, tricks: Sequence[str]) -> AsyncIterator[None]:
        ponder = f"--ponder-seconds={self._setting.pace.ponder_seconds}"
        command = module_command("outlive.cli.demo.desk", name, ponder, *tricks)
        async with child(command, self._setting.folder) as process:
            assert process.stdout is not None
            if await process.stdout.readline() != b"open \n":
                raise OutliveError(f"the {name} did not open: {self._errors()}")
            self._tell(ScreenLine(mark="·", name=name, text="open", detail=f"pid {process.pid}"))
            async with _beside(self._listen(name, process.stdout)):
                yield

    async def _listen(self, name: str, words: asyncio.StreamReader) -> None:
        async for line in words:
            word, _, number = line.decode().strip().partition(" ")
            self._desk_said(name, word, number)

    def _desk_said(self, name: str, word: str, number: str) -> None:
        match name, word:
            case "bank", "received":
                self._tally.requests += 1
                self._doom.strikes(Moment.REFUND_ASKED)
            case "post", "received":
                self._tally.requests += 1
            case "bank", "done":
                self._tally.refunds += 1
                self._tell_deed("bank", "refund", number, self._tally.refunds)
            case "post", "done":
                self._tally.mails += 1
                self._tell_deed("post", "letter", number, self._tally.mails)
                self._doom.strikes(Moment.MAIL_SENT)
            case _, "refused":
                # It is the kill that made the asker hang up: told after it.
                self._wake.append(
                    ScreenLine(mark="·", name=name, text="refused: the asker is gone")
                )

    def _tell_deed(self, name: str, what: str, number: str, count: int) -> None:
        self._tell(
            ScreenLine(
                mark="●",
                name=name,
                text=f"{what} {number}",
                detail="" if count == 1 else "AGAIN",
                style="bold yellow" if count == 1 else "bold red",
                detail_style="bold red",
            )
        )

    def _model_asked(self) -> None:
        """Count a call."""
        self._tally.model_calls += 1

    def _model_answered(self, what: str) -> None:
        """Show an answer, unless the journal shows it."""
        self._seen[what] += 1
        if self._reader is None:
            again = self._seen[what] > 1
            detail = f"×{self._seen[what]}" if again else ""
            style = "red" if again else "green"
            self._tell(ScreenLine(mark="·", name="model", text=what, detail=detail, style=style))

    # the agent

    async def _live(self) -> None:
        for start in range(1, STARTS_MAX + 1):
            code = await self._run_agent(start)
            if code == 0:
                return
            if code != -signal.SIGKILL:
                raise OutliveError(f"the agent ended with exit code {code}: {self._errors()}")
            await self._mourn()
        raise OutliveError(f"the agent was started {STARTS_MAX} times and did not end")

    async def _run_agent(self, start: int) -> int:
        setting = self._setting
        async with child(setting.command, setting.folder) as process:
            self._doom.aim(process)
            self._model.greet()
            self._tell_start(start, process)
            assert process.stdout is not None
            self._tally.outcome = (await process.stdout.read()).decode().strip()
            return await process.wait()

    def _tell_start(self, start: int, process: Process) -> None:
        where = "with the same id" if self._reader else "from the beginning"
        self._tell(
            ScreenLine(
                mark="↻" if start > 1 else "▶",
                name="started again" if start > 1 else "started",
                text=f"pid {process.pid}",
                detail=where if start > 1 else "",
                style="bold blue",
            )
        )

    async def _mourn(self) -> None:
        await asyncio.sleep(BREATH_SECONDS)
        await self._catch_up()
        self._tally.kills += 1
        name, moment = f"SIGKILL {self._tally.kills}", self._doom.mourn()
        self._tell(ScreenLine(mark="✗", name=name, text=moment, style="bold white on red"))
        while self._wake:
            self._tell(self._wake.pop(0))
        await asyncio.sleep(self._setting.pace.pause_seconds)

    # telling

    def _tell(self, line: ScreenLine) -> None:
        self._setting.screen.tell(self._tally, line)

    async def _look(self) -> None:
        while True:
            await self._catch_up()
            await asyncio.sleep(LOOK_SECONDS)

    async def _catch_up(self) -> None:
        """Show what became durable since the last look."""
        if self._reader is None:
            return
        async with self._reading:
            for line in await self._reader.read_new():
                self._tell(line)
            replays = count_replays(self._reader.events)
        self._tally.steps_replayed = replays.steps
        self._tally.model_calls_saved = replays.model_calls


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run this as long as the block lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _nonce() -> str:
    return Ports().entropy(3).hex()
