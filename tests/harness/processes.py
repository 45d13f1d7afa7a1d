"""Processes that share a folder: how they are forked, waited for, ended, and what they left there.

Each wait is bounded, and whoever opens a ``SharedFolder`` ends with nobody alive in it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from outlive.journal.codec.restore import read_whole
from outlive.journal.lane import run_immediate
from outlive.journal.reader import read_events
from outlive.model.events import Claimed
from outlive.stores.types import Found, Query, Reading
from outlive.testing.audit.auditor import Policy, Receipt, audit
from outlive.testing.ledger import Ledger
from tests.harness.stores import Shared, open_shared, store_url

T = TypeVar("T")

ROOT = Path(__file__).parent.parent.parent
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.02
PAGE = 1000

#: Forked from a server that has everything imported: a child costs some 10 ms. What is imported is
#: the same for all children of a process of tests; tests.workers.deploy must not be among it.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(
    ["outlive", "outlive.cli", "outlive.testing.ledger", "tests.processes.players"]
)


def until(look: Callable[[], T], what: str, *, seconds: float = WAIT_SECONDS) -> T:
    """Look until there is something; return it."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(LOOK_SECONDS)
    return found


async def eventually(
    look: Callable[[], Awaitable[T]], what: str, *, seconds: float = WAIT_SECONDS
) -> T:
    """The same in a loop, where looking takes a while and others go on meanwhile."""
    end = time.monotonic() + seconds
    while not (found := await look()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        await asyncio.sleep(LOOK_SECONDS)
    return found


def seconds_until(look: Callable[[], object], what: str, *, seconds: float = WAIT_SECONDS) -> float:
    """The same; return how long it took."""
    began = time.monotonic()
    until(look, what, seconds=seconds)
    return time.monotonic() - began


def pid_of(child: BaseProcess) -> int:
    assert child.pid is not None, "it was not started"
    return child.pid


def state_of(child: BaseProcess) -> str:
    """The kernel's letter for it: T is stopped."""
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2][0]


def end_child(child: BaseProcess) -> None:
    """Kill it if it lives, and bury it."""
    if child.is_alive():
        os.kill(pid_of(child), signal.SIGKILL)
    child.join()
    child.close()


class SharedFolder:
    """A folder, the store that its processes share, and what a test may ask of both."""

    #: By effect, what the auditor expects.
    policies: Mapping[str, Policy] = {}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._store: Shared | None = None

    @property
    def url(self) -> str:
        """Where the journals are."""
        return store_url(self.folder)

    def move_to(self, url: str) -> None:
        """Keep the journals there, for everybody who comes after this."""
        (self.folder / "store.url").write_text(url)

    @property
    def store(self) -> Shared:
        """The shared store, as a reader sees it."""
        if self._store is None:
            self._store = open_shared(self.url)
        return self._store

    def close(self) -> None:
        if self._store is not None:
            run_immediate(self._store.close())

    def reading(self, run_id: str) -> Reading | None:
        return run_immediate(read_whole(self.store, run_id))

    def events(self, run_id: str, *kinds: type[Any]) -> list[Any]:
        """The journal's events of these kinds (all, if none is named)."""
        reading = self.reading(run_id)
        events = [] if reading is None else read_events(reading)
        return [event for event in events if not kinds or isinstance(event, kinds)]

    def status(self, run_id: str) -> str:
        reading = self.reading(run_id)
        return "" if reading is None else reading.header.status

    def claims(self, run_id: str) -> list[Claimed]:
        return self.events(run_id, Claimed)

    def find(self, query: Query | None = None) -> Iterator[Found]:
        """Every journal, page by page."""
        after: str | None = None
        while True:
            page = run_immediate(self.store.find(query or Query(), after, PAGE))
            yield from page.items
            after = page.next
            if after is None:
                return

    def run_ids(self, prefix: str = "") -> list[str]:
        return [each.head.run_id for each in self.find(Query(prefix=prefix))]

    def receipts(self) -> list[Receipt]:
        """All that happened."""
        return [each for path in self.folder.glob("*.ledger") for each in Ledger(path).receipts()]

    def acknowledged(self) -> Mapping[str, int]:
        """By run, the last seq that any process here was told is durable, if they note it."""
        return {}

    def audit(self, *, events_min: int = 3) -> list[str]:
        """Every broken promise, over all runs and the ledgers."""
        return audit(
            {run_id: self.events(run_id) for run_id in self.run_ids()},
            self.receipts(),
            policies=self.policies,
            acknowledged=self.acknowledged(),
            events_min=events_min,
        )
