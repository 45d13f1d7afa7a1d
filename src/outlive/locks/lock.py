"""Locks over processes and machines: one holder at a time, or ``n`` of them.

A lock is a journal whose *lease* is held, as that of a run is held by its worker. The epoch of the
lease is the fencing token: it rises with every holder. A holder's heart beats while it holds
something. On a local store its death is noticed at once, because the kernel frees its lock file;
one that hangs, or whose server does not hear of it, loses the lock after a lease.

Locks are not reentrant, and who waits is not served in turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Self

import msgspec

from outlive.engine.inputs import encode_own
from outlive.errors import LockLost, TimedOut, UsageError
from outlive.journal.headers import brief_header, first_entry, next_entry
from outlive.journal.record import FORMAT
from outlive.locks.place import OpenPlace, StorePlace
from outlive.model.ids import family_of
from outlive.model.logs import LogAppended, LogBegan, check_log_key, log_brief_after, log_prefix
from outlive.stores.types import Entry, Head, Header, Wanted

LOG = "locks"
#: How long a lock is waited for, unless somebody says otherwise.
TIMEOUT_SECONDS = 30.0
#: The delay between two attempts; it doubles.
_PAUSE_FIRST, _PAUSE_MAX = 0.002, 0.1
#: Behind the last record: only the head is read.
_NO_RECORDS = (1 << 62) - 1
_SLOTS_MAX = 1000
#: What the header of every lock shows: by this ``claim`` finds those whose holder is gone.
_SHOWN = brief_header(log_brief_after(None, LogBegan(0, LOG, "", "")))


class HeldLock:
    """A lock as this process holds it."""

    def __init__(self, place: OpenPlace, key: str, head: Head, header: Header) -> None:
        self.key, self.token = key, head.epoch
        self.why_lost = ""
        self.on_loss: list[Callable[[], object]] = []
        self._place, self._head, self._header = place, head, header

    async def is_ours(self) -> bool:
        """Whether the store still says so."""
        reading = await self._place.store.read(self._head.run_id, _NO_RECORDS)
        head = None if reading is None else reading.head
        return head is not None and (head.worker, head.epoch) == (self._place.holder.id, self.token)

    def lose(self, why: str) -> None:
        """It is not ours any more."""
        self.why_lost = self.why_lost or why
        for call in self.on_loss:
            call()

    async def free(self) -> None:
        """Give it back; notices if it was lost."""
        self._place.holder.forget(self)
        event = LogAppended(self._time(), encode_own("freed"))
        entry = next_entry(self._head, event, self._header, epoch=self.token)
        entry = msgspec.structs.replace(entry, lease="free", header=None)
        (conflict,) = await self._place.store.commit([entry])
        if conflict is not None:
            self.lose("somebody else held it meanwhile: this process was silent for too long")

    def _time(self) -> int:
        return max(0, self._place.now_ms - self._header.started_at)


class Slots:
    """The journals of which one must be held; of a plain lock there is one."""

    def __init__(self, place: OpenPlace, keys: Sequence[str]) -> None:
        self._place, self._keys = place, keys
        self._wanted = Wanted(
            flows={_SHOWN.flow: frozenset({_SHOWN.version})},
            format=FORMAT,
            run_ids=frozenset(log_prefix(LOG) + key for key in keys),
        )

    async def take(self) -> HeldLock | None:
        """Take one of them, if one is free or its holder is gone."""
        await self._place.holder.beat()
        first = int.from_bytes(self._place.ports.entropy(2), "big") if len(self._keys) > 1 else 0
        for number in range(len(self._keys)):
            key = self._keys[(first + number) % len(self._keys)]
            held = await self._take_free(key)
            if held is not None:
                return held
        return await self._take_left()

    async def _take_free(self, key: str) -> HeldLock | None:
        store, journal = self._place.store, log_prefix(LOG) + key
        reading = await store.read(journal, _NO_RECORDS)
        if reading is None:
            await store.commit([self._first(journal, key)])
            reading = await store.read(journal, _NO_RECORDS)
        if reading is None or reading.head.worker is not None:
            return None
        return await self._take(key, reading.head, reading.header)

    def _first(self, journal: str, key: str) -> Entry:
        family = family_of(self._place.ports.entropy(8))
        event = LogBegan(self._place.now_ms, LOG, key, family)
        return first_entry(journal, event, brief_header(log_brief_after(None, event)))

    async def _take_left(self) -> HeldLock | None:
        """Take one whose holder is dead, or was silent for a lease."""
        claims = await self._place.store.claim(self._place.holder.id, self._wanted, 1)
        for offer in claims.offers:
            key = offer.head.run_id.removeprefix(log_prefix(LOG))
            held = await self._take(key, offer.head, offer.header)
            if held is not None:
                return held
        return None

    async def _take(self, key: str, head: Head, header: Header) -> HeldLock | None:
        place, holder = self._place, self._place.holder.id
        at = max(0, place.now_ms - header.started_at)
        # Two threads of one process must not commit the same entry: to the store the second would
        # be a repeat of the first, and both would hold the lock.
        nonce = place.ports.entropy(8).hex()
        event = LogAppended(at, encode_own(f"taken by {holder}, {nonce}"))
        entry = next_entry(head, event, header, epoch=head.epoch + 1, taken_by=holder)
        (conflict,) = await place.store.commit([entry])
        if conflict is not None:
            return None
        head = msgspec.structs.replace(
            head, seq=entry.last, epoch=entry.epoch, link=entry.link, worker=holder
        )
        held = HeldLock(place, key, head, header)
        place.holder.keep(held)
        return held


class DistributedLock:
    """One holder at a time, over all processes that use the store.

    ``with`` in plain code, ``async with`` in async code. ``token`` is the fencing token: give it to
    whatever you write to, and let that refuse a token that is lower than one it has seen. If the
    lock is lost inside an ``async with``, the block is cancelled and ``LockLost`` is raised; in
    plain code ``check()`` raises it, and so does the end of the ``with``.
    """

    def __init__(
        self,
        *,
        resource: str,
        persistence: object = None,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
        on_loss: Callable[[], object] | None = None,
    ) -> None:
        self.resource = check_log_key(resource, "resource")
        if not resource:
            raise UsageError("resource is the name of what is locked, not an empty text")
        self.timeout_seconds = _checked_timeout(timeout_seconds)
        self._place = StorePlace.of(persistence)
        self._owns_place = not (persistence is self._place or hasattr(persistence, "place"))
        self._on_loss = on_loss
        self._held: HeldLock | None = None
        self._mine = threading.Lock()
        self._block: _Block | None = None

    # what it is

    @property
    def token(self) -> int:
        """The fencing token; each holder's is higher than that of the one before."""
        return self._current().token

    @property
    def is_held(self) -> bool:
        """Whether it is held here, as far as is known."""
        return self._held is not None and not self._held.why_lost

    def check(self) -> int:
        """The fencing token, if it is still held here.

        Raises:
            LockLost: it is not.
        """
        held = self._current()
        if held.why_lost:
            raise LockLost(self.resource, held.why_lost)
        return held.token

    def _current(self) -> HeldLock:
        if self._held is None:
            raise UsageError(f"lock {self.resource!r} is not held here; acquire it first")
        return self._held

    def _keys(self) -> list[str]:
        return [self.resource]

    # taking

    def acquire(self, timeout: float | None = None) -> int:
        """Wait for it and take it; the fencing token.

        Raises:
            TimedOut: it was not free within ``timeout`` (default: ``timeout_seconds``).
        """
        wait = self._begin(timeout)
        try:
            while not (held := wait.place.here(wait.slots.take())):
                wait.pause_here()
            return self._hold(held)
        except BaseException:
            self._mine.release()
            raise

    async def aacquire(self, timeout: float | None = None) -> int:
        """As ``acquire``, without blocking the loop."""
        wait = self._begin(timeout)
        try:
            while True:
                work = asyncio.ensure_future(wait.place.beside(wait.slots.take()))
                try:
                    held = await asyncio.shield(work)
                except asyncio.CancelledError:
                    await _give_back(wait.place, work)
                    raise
                if held is not None:
                    return self._hold(held)
                await asyncio.sleep(wait.next_pause())
        except BaseException:
            self._mine.release()
            raise

    def _begin(self, timeout: float | None) -> _Wait:
        if not self._mine.acquire(blocking=False):
            raise UsageError(
                f"lock {self.resource!r} is in use by this object already; locks are not "
                "reentrant: make another DistributedLock for another thread or task"
            )
        try:
            limit = self.timeout_seconds if timeout is None else _checked_timeout(timeout)
            place = self._place.open()
            return _Wait(place, Slots(place, self._keys()), self.resource, limit)
        except BaseException:
            self._mine.release()
            raise

    def _hold(self, held: HeldLock) -> int:
        self._held = held
        if self._on_loss is not None:
            held.on_loss.append(self._on_loss)
        return held.token

    # giving back

    def release(self) -> None:
        """Give it back.

        Raises:
            LockLost: somebody else held it meanwhile.
        """
        held = self._current()
        try:
            if not held.why_lost:
                self._place.open().here(held.free())
        finally:
            self._held = None
            self._mine.release()
        if held.why_lost:
            raise LockLost(self.resource, held.why_lost)

    async def arelease(self) -> None:
        """As ``release``, without blocking the loop."""
        held = self._current()
        try:
            if not held.why_lost:
                await self._place.open().beside(held.free())
        finally:
            self._held = None
            self._mine.release()
        if held.why_lost:
            raise LockLost(self.resource, held.why_lost)

    def close(self) -> None:
        """Close the store, if this object opened it."""
        if self._owns_place:
            self._place.close()

    # blocks

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.release()
        except LockLost:
            if error is None:
                raise

    async def __aenter__(self) -> Self:
        await self.aacquire()
        self._block = _Block(self._current())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        block, self._block = self._block, None
        try:
            await self.arelease()
        except LockLost as lost:
            if block is not None and block.is_ended_by(error):
                raise lost from None
            if error is None:
                raise


class Semaphore(DistributedLock):
    """At most ``n`` holders at a time; ``slot`` says which of the ``n`` places is held.

    Everybody must give the same ``n``. Fencing tokens rise per slot.
    """

    def __init__(
        self,
        n: int,
        *,
        resource: str,
        persistence: object = None,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
        on_loss: Callable[[], object] | None = None,
    ) -> None:
        if type(n) is not int or not 1 <= n <= _SLOTS_MAX:
            raise UsageError(f"n is a number from 1 to {_SLOTS_MAX}, not {n!r}")
        self.n = n
        super().__init__(
            resource=resource,
            persistence=persistence,
            timeout_seconds=timeout_seconds,
            on_loss=on_loss,
        )
        check_log_key(self._keys()[-1], "resource")

    @property
    def slot(self) -> int:
        """The place that is held, from 0."""
        return self._keys().index(self._current().key)

    def _keys(self) -> list[str]:
        return [f"{self.resource}#{number}" for number in range(self.n)]


class _Wait:
    """Waiting for a lock."""

    def __init__(
        self, place: OpenPlace, slots: Slots, resource: str, timeout: float | None
    ) -> None:
        self.place, self.slots = place, slots
        self._resource, self._timeout = resource, timeout
        self._clock = place.ports.clock
        self._began = self._clock.monotonic()
        self._pause = _PAUSE_FIRST

    def next_pause(self) -> float:
        """The time until the next attempt, in seconds."""
        pause, self._pause = self._pause, min(2 * self._pause, _PAUSE_MAX)
        pause *= 0.5 + self.place.ports.entropy(1)[0] / 255
        if self._timeout is None:
            return pause
        left = self._began + self._timeout - self._clock.monotonic()
        if left <= 0:
            raise TimedOut(
                f"lock {self._resource!r} was held by others for {self._timeout:g} s; try again, "
                "or wait longer with timeout_seconds"
            )
        return min(pause, left)

    def pause_here(self) -> None:
        """Wait until the next attempt."""
        threading.Event().wait(self.next_pause())


class _Block:
    """An ``async with`` block, which ends when its lock is lost."""

    def __init__(self, held: HeldLock) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._is_cancelled = self._is_over = False
        held.on_loss.append(self._lost)
        if held.why_lost:
            self._lost()

    def _lost(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self._is_over:
            self._is_cancelled = True
            self._task.cancel()

    def is_ended_by(self, error: BaseException | None) -> bool:
        """Whether the block was cancelled by the loss, and by nothing else."""
        self._is_over = True
        if not self._is_cancelled or self._task is None:
            return False
        others = self._task.uncancel()
        return isinstance(error, asyncio.CancelledError) and others == 0


async def _give_back(place: OpenPlace, work: asyncio.Future[HeldLock | None]) -> None:
    """Whoever waited is gone: what is taken in spite of that is given back."""
    held = await asyncio.shield(work)
    if held is not None:
        await place.beside(held.free())


def _checked_timeout(given: float | None) -> float | None:
    is_number = isinstance(given, int | float) and type(given) is not bool
    if given is None or (is_number and given >= 0):
        return given
    raise UsageError(f"timeout_seconds is a number of seconds, or None for ever, not {given!r}")
