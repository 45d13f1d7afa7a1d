"""A store on which locks, inboxes and worktree bindings live, and this process as a holder there.

A place is opened by the URL of its store when it is first used. Calls of plain code run on the
caller's own thread, also where a loop runs; those of async code on a thread beside the loop.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from outlive.app.app import App
from outlive.app.reader import StoreReader
from outlive.app.seal import open_sealed
from outlive.errors import AppClosed, StoreError, UsageError
from outlive.journal.group import GroupCommit
from outlive.journal.lane import run_immediate
from outlive.portal import at_exit
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.seam import Store, timed_by

logger = logging.getLogger("outlive")

T = TypeVar("T")
#: Beats within a lease.
BEATS_PER_LEASE = 4


class Held(Protocol):
    """Something that is held as long as the holder's heart beats."""

    async def is_ours(self) -> bool:
        """Whether the store still says so."""
        ...

    def lose(self, why: str) -> None:
        """It is not ours any more."""
        ...


class StorePlace:
    """One store, opened at first use."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        ports: Ports | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not isinstance(url, str | None):
            raise UsageError(f"url is a store's URL, as sqlite:///outlive.db, not {url!r}")
        self.url = url
        self._key, self._ports, self._settings = key, ports or Ports(), settings
        self._store: Store | None = None
        self._is_ours = True
        self._opened: OpenPlace | None = None
        self._opening = threading.Lock()
        self._is_closed = False

    @classmethod
    def of(cls, where: object) -> StorePlace:
        """The place that this names: a URL, an app, a persistence on a store, or None."""
        if isinstance(where, StorePlace):
            return where
        found = getattr(where, "place", None)
        if isinstance(found, StorePlace):
            return found
        if isinstance(where, App):
            place = cls()
            place._store, place._is_ours = where.store, False
            return place
        if isinstance(where, str | None):
            return cls(where)
        raise UsageError(
            f"{type(where).__name__} names no store; give a URL as sqlite:///outlive.db, an app, "
            "or SQLitePersistence or StorePersistence of outlive.inbox"
        )

    @property
    def settings(self) -> Settings:
        """The settings; by default those of the environment."""
        if self._settings is None:
            self._settings = Settings.from_environment()
        return self._settings

    def open(self) -> OpenPlace:
        """The open store."""
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            with self._opening:
                opened = self._opened
                if opened is None:
                    opened = self._opened = self._open()
        opened.reader.check_open()
        return opened

    def _open(self) -> OpenPlace:
        if self._is_closed:
            raise AppClosed("it was closed; make another")
        settings, store = self.settings, self._store
        if store is None:
            store = open_sealed(
                self.url or settings.store,
                settings.key if self._key is None else self._key,
                ports=self._ports,
                lease_seconds=settings.lease_seconds,
            )
            at_exit.watch(self)
        return OpenPlace(store, timed_by(store, self._ports), settings.lease_seconds)

    def close(self) -> None:
        """Give up what is held, and close the store. Closing twice is allowed."""
        with self._opening:
            self._is_closed = True
            opened, self._opened = self._opened, None
        if opened is None or opened.pid != os.getpid():
            return
        opened.holder.close()
        opened.reader.close()
        if self._is_ours:
            run_immediate(opened.store.close())


class OpenPlace:
    """An open store with what is needed to call it."""

    def __init__(self, store: Store, ports: Ports, lease_seconds: float) -> None:
        self.store, self.ports = store, ports
        self.pid = os.getpid()
        self.reader = StoreReader(store, ports)
        self.group = GroupCommit(store, self.reader.lane, ports.clock)
        self.holder = Holder(store, ports, lease_seconds)

    @property
    def now_ms(self) -> int:
        """The store's time."""
        return self.ports.clock.now_ms()

    def here(self, work: Coroutine[Any, Any, T]) -> T:
        """Call the store on this thread."""
        return run_immediate(work)

    async def beside(self, work: Coroutine[Any, Any, T]) -> T:
        """Call the store on a thread beside this loop."""
        return await self.reader.lane(work)


class Holder:
    """This process as a holder of leases: its heart beats while it holds something."""

    def __init__(self, store: Store, ports: Ports, lease_seconds: float) -> None:
        self.id = f"holder-{os.getpid()}-{ports.entropy(8).hex()}"
        self._store, self._clock = store, ports.clock
        self._lease_seconds = lease_seconds
        self._pause = lease_seconds / BEATS_PER_LEASE
        self._beat_at: float | None = None
        self._held: set[Held] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._is_closed = False

    async def beat(self) -> None:
        """Beat, unless it just did."""
        now = self._clock.monotonic()
        if self._beat_at is None or now - self._beat_at >= self._pause / 2:
            await self._store.beat(self.id)
            self._beat_at = now

    def keep(self, held: Held) -> None:
        """Beat for this, and notice when it is lost."""
        with self._lock:
            self._held.add(held)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._run, name="outlive-holder", daemon=True
                )
                self._thread.start()

    def forget(self, held: Held) -> None:
        """It is given up."""
        with self._lock:
            self._held.discard(held)

    def close(self) -> None:
        """Stop, and free what is still held."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if self._beat_at is not None:
            _try(lambda: run_immediate(self._store.release(self.id)))

    def _run(self) -> None:
        idle = 0
        while not self._wake.wait(self._pause):
            with self._lock:
                held = list(self._held)
                idle = 0 if held else idle + 1
                if idle > BEATS_PER_LEASE:
                    self._thread = None
                    return
            if held:
                self._look(held)

    def _look(self, held: list[Held]) -> None:
        began = self._clock.monotonic()
        try:
            run_immediate(self._store.beat(self.id))
            self._beat_at = began
            for each in held:
                if not run_immediate(each.is_ours()):
                    self.forget(each)
                    each.lose("somebody else holds it now: this process was silent for too long")
        except Exception as error:
            # Whoever can't say that it lives will be taken for dead.
            silent = began - (began if self._beat_at is None else self._beat_at)
            logger.warning("a holder of locks can't beat: %s", error)
            if silent >= self._lease_seconds:
                for each in held:
                    self.forget(each)
                    each.lose(f"the store could not be reached for {silent:.0f} s ({error})")


def _try(work: Callable[[], object]) -> None:
    try:
        work()
    except StoreError as error:
        logger.warning("a holder of locks could not say that it ends: %s", error)
