"""SIGTERM and SIGINT, as a process that drives runs takes them: first drain, then go at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from outlive.cli.output import print_note
from outlive.settings import Settings

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Told:
    """How often the process was told to stop."""

    def __init__(self) -> None:
        self.once = asyncio.Event()
        self._twice = asyncio.Event()
        #: The first signal.
        self.signal: signal.Signals | None = None

    def hear(self, number: signal.Signals) -> None:
        """One more signal."""
        if self.once.is_set():
            self._twice.set()
        else:
            self.signal = number
            self.once.set()

    async def drain(self, drain: Callable[[float | None], Awaitable[bool]]) -> bool:
        """Drain within the limit that is set, or at once when the second signal comes."""
        if self.signal is not None:
            seconds = Settings.from_environment().drain_seconds
            print_note(f"outlive: stopping within {seconds:g} s; a second signal stops at once")
        draining = asyncio.ensure_future(drain(None))
        hurry = asyncio.ensure_future(self._twice.wait())
        await asyncio.wait([draining, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not draining.done():
            await drain(0)
        return await draining


@contextmanager
def listening() -> Iterator[Told]:
    """Hear signals on this loop instead of dying of them."""
    told, loop = Told(), asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, told.hear, number)
    try:
        yield told
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
