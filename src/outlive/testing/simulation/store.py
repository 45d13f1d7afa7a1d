"""A store behind an unreliable network: delays, lost replies, slow periods, outages.

Behind it is a real ``MemoryStore``. A request travels, is applied, and its answer travels back;
what is in flight when its process dies may or may not arrive. A commit whose reply is lost is sent
again, the same batch, as a client must that can't know (the store promises that a repeat is
safe).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, overload

from outlive.errors import StoreUnavailable
from outlive.journal.codec.restore import read_whole
from outlive.journal.lane import run_immediate
from outlive.journal.seal.keys import KEY_BYTES, MasterKeys
from outlive.journal.seal.seal import Veil, shown_id
from outlive.journal.seal.sealed_store import SealedStore
from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT
from outlive.ports import RemoteClock
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store, Watchable
from outlive.stores.transactions import Transactional
from outlive.stores.types import (
    Answers,
    Changes,
    Claims,
    Count,
    Deletion,
    Entry,
    Head,
    Health,
    Loss,
    Mail,
    Node,
    Page,
    Posted,
    Posting,
    Query,
    QueueLimits,
    QueueState,
    Reading,
    Standing,
    Wanted,
    WorkerState,
)
from outlive.testing.simulation.faults import STORE_FAULTS, FaultKind, Marksman, Strike
from outlive.testing.simulation.loop import Nature, SimCrash, SimLoop
from outlive.testing.simulation.witness import WAITING, Witness, kinds_in

T = TypeVar("T")

#: A client that hears nothing for so long sends its commit again.
REPEAT_SECONDS = 0.7
_AFTER_ALL = 1 << 62


class SimDisk(MemoryStore):
    """The storage that all processes share; letters may arrive damaged."""

    #: The bytes that arrive of a letter, by run, id and body.
    arrive: Callable[[str, str, bytes], bytes] = staticmethod(lambda run_id, mail_id, body: body)
    #: Told of run and id when that is not what was sent.
    on_spoilt: Callable[[str, str], None]

    def _post(self, run_id: str, mail_id: str, body: bytes) -> Posted:
        arrived = self.arrive(run_id, mail_id, body)
        said: Posted = super()._post(run_id, mail_id, arrived)
        if said == "posted" and arrived != body:
            self.on_spoilt(run_id, mail_id)
        return said


class Link:
    """The state of the network to the store, the same for all processes."""

    def __init__(self, nature: Nature) -> None:
        self._nature = nature
        self._slow_until = 0.0
        self._slow_seconds = 0.0
        self._down_until = 0.0
        self._refuses = False
        self.loses_next_reply = False

    @property
    def is_down(self) -> bool:
        """Whether nothing reaches the store."""
        return self._nature.now < self._down_until

    @property
    def is_slow(self) -> bool:
        """Whether requests take long."""
        return self._nature.now < self._slow_until

    @property
    def refuses(self) -> bool:
        """Whether it is down and refuses; otherwise callers wait."""
        return self.is_down and self._refuses

    def get_slow(self) -> None:
        """Begin a slow period."""
        rng = self._nature.rng
        self._slow_until = self._nature.now + rng.uniform(1.0, 12.0)
        self._slow_seconds = rng.choice((0.3, 1.5, 5.0))

    def go_down(self) -> None:
        """Begin an outage."""
        rng = self._nature.rng
        self._down_until = self._nature.now + rng.choice((0.5, 3.0, 9.0)) * (0.5 + rng.random())
        self._refuses = self._nature.chance(0.4)

    def heal(self) -> None:
        """End all faults."""
        self._slow_until = self._down_until = 0.0
        self.loses_next_reply = False

    def delay(self) -> float:
        """The duration of one way now."""
        seconds = self._nature.mostly_short(0.02)
        if self.is_slow:
            seconds += self._nature.rng.random() * self._slow_seconds
        return seconds

    def wait(self) -> float:
        """The time until the store can be reached."""
        return max(0.0, self._down_until - self._nature.now)


class _Lost:
    """The answer that never came."""


_LOST = _Lost()


class _Sent:
    """A request on its way to the store."""

    __slots__ = ("apply", "is_done")

    def __init__(self, apply: Callable[[], None]) -> None:
        self.apply = apply
        self.is_done = False

    def arrive(self) -> None:
        if not self.is_done:
            self.is_done = True
            self.apply()


class SimStore:
    """The store as one process reaches it."""

    threads: int | None = None
    watchable: Watchable | None = None
    transactions: Transactional | None = None

    def __init__(
        self,
        disk: MemoryStore,
        line: Link,
        nature: Nature,
        witness: Witness,
        marksman: Marksman,
    ) -> None:
        self._disk, self._line, self._nature = disk, line, nature
        self._witness, self._marksman = witness, marksman
        #: Of the process that it belongs to: its loop, and what makes it suffer a fault.
        self.loop: SimLoop
        self.strike: Callable[[FaultKind], None]
        #: The server's clock, if it has one of its own.
        self.clock: RemoteClock | None = None
        #: The kinds of events in the commit that is on its way or not yet answered.
        self.in_air: frozenset[str] = frozenset()
        self._sent: list[_Sent] = []
        #: Of a sealed store: the disk as those see it who have the key, the ids that they gave,
        #: and what was sealed, by what it became.
        self.view: Store = disk
        self.shown: Callable[[str], str] = str
        self.entries: dict[bytes, Entry] = {}
        self.letters: dict[bytes, bytes] = {}

    # the line

    async def _ask(self, work: Callable[[], T]) -> T:
        """Send, apply, answer; with an outage in between, wait for its end or be refused."""
        answer = self.loop.create_future()
        self._send(work, answer, loses_reply=False, applied=None)
        result: T = await answer
        return result

    def _send(
        self,
        work: Callable[[], Any],
        answer: asyncio.Future[Any],
        *,
        loses_reply: bool,
        applied: Callable[[], None] | None,
    ) -> None:
        def apply() -> None:
            self._sent.remove(sent)
            result = work()
            if applied is not None:
                applied()
            if not loses_reply:
                self._reply(answer, result)

        sent = _Sent(apply)
        self._sent.append(sent)
        self._travel(sent, answer)

    def _travel(self, sent: _Sent, answer: asyncio.Future[Any]) -> None:
        line = self._line

        def arrive() -> None:
            if sent.is_done:
                return
            if line.refuses:
                sent.is_done = True
                self._sent.remove(sent)
                self._reply(answer, StoreUnavailable("the store is down"))
            elif line.is_down:
                self._nature.after(line.wait() + line.delay(), arrive)
            else:
                sent.arrive()

        self._nature.after(line.delay(), arrive)

    def _reply(self, answer: asyncio.Future[Any], result: Any) -> None:
        self.loop.call_later(self._line.delay(), _answer, answer, result)

    def settle_sent(self, *, lands: Callable[[], bool]) -> None:
        """The process is dead for certain: what it sent arrives now or never."""
        for sent in list(self._sent):
            if lands() and not self._line.is_down:
                sent.arrive()
            sent.is_done = True
        self._sent.clear()

    # verbs

    @overload
    async def commit(self, batch: Sequence[Entry]) -> Answers: ...
    @overload
    async def commit(self, batch: Sequence[Entry], *, wait: bool) -> Answers | None: ...
    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Answers | None:
        if not wait:
            return None  # the line takes its time
        kinds = kinds_in(self._opened(batch))
        self.in_air = kinds
        strikes = list(self._marksman.strikes(batch, kinds))
        loses_reply = self._strike_line(strikes, kinds)
        if strikes:
            self._strike_owner(strikes, "sent")
            await self._next_turn()
        while True:
            answer = await self._commit_once(batch, strikes, loses_reply)
            if not isinstance(answer, _Lost):
                break
            loses_reply, strikes = False, []
        self.in_air = frozenset()
        return answer

    async def commit_together(self, batch: Sequence[Entry]) -> Answers:
        return await self._ask(_now(self._disk.commit_together, batch))

    def _strike_line(self, strikes: Sequence[Strike], kinds: frozenset[str]) -> bool:
        """Apply network faults; True if this commit's reply will be lost."""
        line, witness = self._line, self._witness
        faults = {strike.fault for strike in strikes}
        if "slow_store" in faults:
            line.get_slow()
        if "store_down" in faults:
            line.go_down()
        loses = line.loses_next_reply or "lost_reply" in faults
        if loses and self._nature.chance(0.3):
            # A process stopped before it can repeat its commit may find another in its place.
            self._nature.after(self._nature.mostly_short(0.1), self.strike, "pause")
        line.loses_next_reply = False
        for struck, name in (
            (line.is_slow, "slow_store"),
            (line.is_down, "store_down"),
            (loses, "lost_reply"),
        ):
            if struck:
                witness.strike(name, kinds)
        return loses

    async def _next_turn(self) -> None:
        """Wait for the next turn: until the end of a pause; a dead process never gets one."""
        if self.loop.is_dead:
            raise SimCrash
        turn = self.loop.create_future()
        self.loop.call_soon(_answer, turn, None)
        await turn

    def _strike_owner(self, strikes: Sequence[Strike], moment: str) -> None:
        for strike in strikes:
            if strike.moment == moment and strike.fault not in STORE_FAULTS:
                self.strike(strike.fault)

    async def _commit_once(
        self, batch: Sequence[Entry], strikes: Sequence[Strike], loses_reply: bool
    ) -> Answers | _Lost:
        loop = self.loop
        answer = loop.create_future()
        self._send(
            lambda: self._apply(batch),
            answer,
            loses_reply=loses_reply,
            applied=lambda: self._strike_owner(strikes, "applied"),
        )
        if loses_reply:
            loop.call_later(REPEAT_SECONDS, _answer, answer, _LOST)
        result: Answers | _Lost = await answer
        if any(strike.moment == "told" for strike in strikes):
            delay = self._nature.mostly_short(0.05)
            self._nature.after(delay, self._strike_owner, strikes, "told")
        return result

    def _apply(self, batch: Sequence[Entry]) -> Answers:
        heads = [self._head(entry.run_id) for entry in batch]
        answers = run_immediate(self._disk.commit(batch))
        opened = self._opened(batch)
        self._witness.committed(self._nature.now, opened, heads, answers)
        self._witness.check_starts(self.view, opened, heads, answers)
        self._witness.moves += not self.in_air <= WAITING
        return answers

    def _opened(self, batch: Sequence[Entry]) -> list[Entry]:
        return [self.entries.get(entry.record, entry) for entry in batch]

    def _head(self, run_id: str) -> Head | None:
        reading = run_immediate(self._disk.read(run_id, _AFTER_ALL))
        return None if reading is None else reading.head

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        return await self._ask(lambda: run_immediate(self._disk.read(run_id, after, limit=limit)))

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        def work() -> Sequence[Posted]:
            answers = run_immediate(self._disk.post(batch))
            for each, posted in zip(batch, answers, strict=True):
                if posted == "posted":  # nobody hears of a refusal: the child may be gone by then
                    self._witness.check_news(self.view, self.letters.get(each.body, each.body))
            return answers

        return await self._ask(work)

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        return await self._ask(_now(self._disk.mail_of, run_ids))

    async def put_blob(self, family: str, node: Node) -> None:
        await self._ask(_now(self._disk.put_blob, family, node))

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return await self._ask(_now(self._disk.get_blobs, family, addresses))

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        await self._ask(_now(self._disk.drop_blobs, family, addresses))

    async def find(self, query: Query, after: str | None = None, limit: int = FIND_LIMIT) -> Page:
        return await self._ask(_now(self._disk.find, query, after, limit))

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        sent_at = self._nature.now
        claims = await self._ask(_now(self._disk.claim, worker, wanted, limit))
        self._notice(claims.now, sent_at)
        return claims

    async def standing(self, holder: str | None) -> Standing:
        return await self._ask(_now(self._disk.standing, holder))

    async def beat(self, worker: str, about: str = "") -> int:
        sent_at = self._nature.now
        now = await self._ask(_now(self._disk.beat, worker, about))
        self._notice(now, sent_at)
        return now

    def _notice(self, now: int, sent_at: float) -> None:
        if self.clock is not None:
            self.clock.notice(now, sent_at)

    async def count(self, query: Query, most: int = COUNTED_MAX) -> Count:
        return await self._ask(_now(self._disk.count, query, most))

    async def changes(self, after: str | None = None, limit: int = FIND_LIMIT) -> Changes:
        return await self._ask(_now(self._disk.changes, after, limit))

    async def workers(self) -> Sequence[WorkerState]:
        return await self._ask(_now(self._disk.workers))

    async def release(self, worker: str) -> None:
        await self._ask(_now(self._disk.release, worker))

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        def work() -> Sequence[bool]:
            names = [self.shown(each.run_id) for each in batch]
            before = [run_immediate(read_whole(self.view, name)) for name in names]
            answers = run_immediate(self._disk.delete(batch))
            for reading, is_gone in zip(before, answers, strict=True):
                if is_gone and reading is not None:
                    self._witness.deleted(self.view, reading)
            return answers

        return await self._ask(work)

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        return await self._ask(_now(self._disk.read_all, run_ids))

    async def families(self, after: str, limit: int) -> Sequence[str]:
        return await self._ask(_now(self._disk.families, after, limit))

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        return await self._ask(_now(self._disk.without_runs, families))

    async def drop_family(self, family: str) -> bool:
        return await self._ask(_now(self._disk.drop_family, family))

    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        def work() -> QueueLimits:
            return run_immediate(self._disk.set_queue(name, limits, replace=replace))

        return await self._ask(work)

    async def find_queue(self, name: str) -> QueueLimits | None:
        return await self._ask(_now(self._disk.find_queue, name))

    async def queues(self) -> Sequence[QueueState]:
        return await self._ask(_now(self._disk.queues))

    async def loss(self) -> Loss | None:
        return None

    async def accept_loss(self, timeline: int) -> bool:
        return False

    async def health(self) -> Health:
        return await self._ask(_now(self._disk.health))

    async def close(self) -> None:
        """The disk stays."""


def _now(verb: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Callable[[], T]:
    return lambda: run_immediate(verb(*args))


def _answer(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


class SimSealed(SealedStore):
    """The sealed store of one process, with keys at hand of its own."""

    def __init__(self, line: SimStore, keys: MasterKeys) -> None:
        super().__init__(line, keys)
        self._line = line

    async def close_entry(self, entry: Entry, veil: Veil) -> Entry:
        closed = await super().close_entry(entry, veil)
        self._line.entries[closed.record] = entry
        return closed

    async def _close_mail(self, run_id: str, mail_id: str, body: bytes) -> bytes:
        closed = await super()._close_mail(run_id, mail_id, body)
        self._line.letters[closed] = body
        return closed


class SimSeal:
    """The seal of the store of one simulation."""

    def __init__(self, disk: MemoryStore, nature: Nature) -> None:
        self._keys = MasterKeys([nature.entropy(KEY_BYTES)], nature.entropy)
        #: The disk as those see it who have the key and are no process.
        self.view = SealedStore(disk, self._keys)
        self._veil = run_immediate(self.view.keyring.veil())

    def over(self, line: SimStore) -> SimSealed:
        """The store as a process has it that reaches the disk by this line."""
        line.view, line.shown = self.view, self._shown
        return SimSealed(line, self._keys)

    def _shown(self, run_id: str) -> str:
        return shown_id(run_id, self._veil)
