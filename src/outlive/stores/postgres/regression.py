"""A server that has less than it acknowledged is found out, and nothing is built upon it.

After a failover to a standby that was not waited for, or a restore from a backup, journals end
earlier than this process was told. To go on from there would do again what was done. So the heads
of the runs that are driven here are remembered, also when they wait or have ended, and a head that
went back is an error, not a conflict. What counts is what was known before the server was asked:
other threads commit meanwhile.

A run that is held is remembered as long as that lasts. The others are kept in two generations: when
the younger is full, or old, it becomes the elder, and the elder is forgotten. What was lost is the
newest, so there is no need to remember for long.

Another process may be offered a run whose lost tail it never saw. So the fleet finds out together:
the store says on which timeline of the server it was last used. Whoever first sees another one
writes that down, with the time, and for one lease from then nobody commits, so nobody begins a run,
claims one or starts an effect. In that time every living process compares all that it remembers
with the store, and may leave a mark there. With the mark everybody refuses, whoever starts later
too, until a human accepts the loss. A failover that lost nothing leaves no mark, and all go on.

An id may be used again after its run was deleted, perhaps by another process, and soon. A tombstone
tells that from a loss: it stays for as long as anybody may remember its run, and has ended no
earlier than that run was seen. One that ended before is of a run that had the id before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec

from outlive.errors import AppClosed, StoreError, WentBack
from outlive.ports import Clock
from outlive.stores.postgres.connection import TIMELINE, Statement
from outlive.stores.postgres.pool import Pool
from outlive.stores.postgres.wire import Parameter, Row, int8, text, texts
from outlive.stores.types import Conflict, Entry, Loss

#: Runs in a generation. At some 160 bytes each, two of them are about 32 MB.
RUNS_MAX = 100_000
#: How long a generation is the younger one.
AGE_SECONDS_MAX = 3600.0
#: How long a run may be remembered: so long its tombstone stays, whenever its id is free again.
KEPT_MS_MAX = round(2 * AGE_SECONDS_MAX * 1000)

_HEADS = """
SELECT g.run_id, coalesce(r.seq, 0), coalesce(t.ended_at, -1) FROM unnest($1::text[]) AS g (run_id)
LEFT JOIN {s}.runs r ON r.run_id = g.run_id LEFT JOIN {s}.tombstones t ON t.run_id = g.run_id
"""


class Missing(Exception):
    """A run ends earlier than was acknowledged: its id, where it ended, where it ends."""

    def __init__(self, run_id: str, known: int, found: int) -> None:
        super().__init__(run_id)
        self.run_id, self.known, self.found = run_id, known, found


class DurableSeqs:
    """Up to which seq each run that was driven here is known to be durable."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, int] = {}
        #: Of runs that are not held: up to where, and when that was (ms since 1970).
        self._young: dict[str, tuple[int, int]] = {}
        self._old: dict[str, tuple[int, int]] = {}
        self._young_since = clock.monotonic()

    def known(self, run_ids: Iterable[str]) -> list[int]:
        """Where these runs end at least; 0: nothing is known."""
        now = self._clock.monotonic()
        age = now - self._young_since
        if len(self._young) >= RUNS_MAX or age > AGE_SECONDS_MAX:
            self._old = {} if age > 2 * AGE_SECONDS_MAX else self._young
            self._young, self._young_since = {}, now
        held = self._held.get
        return [held(run_id) or self._left(run_id)[0] for run_id in run_ids]

    def _left(self, run_id: str) -> tuple[int, int]:
        return self._young.get(run_id) or self._old.get(run_id, (0, self._clock.now_ms()))

    def note(self, entry: Entry, known: int, answer: Conflict | None) -> bool:
        """How an entry was answered; whether it is worth a second look.

        It is if its run's head is behind the one that was known, or if the entry was taken though
        more was known: either it is a repeat of one that was done, or the server knows nothing of
        what was done.
        """
        held, run_id = self._held, entry.run_id
        if answer is not None:
            if answer.gone:
                self.forget(run_id)
                return False
            # What is not there may have been deleted long ago.
            is_behind = answer.seq < known and (answer.seq > 0 or run_id in held)
            if held.pop(run_id, None):  # the lease is lost
                self._young[run_id] = known, self._clock.now_ms()
            return is_behind
        last = max(entry.last, known, held.get(run_id, 0))
        if entry.lease == "free" or (run_id in held and _end_of(entry)):
            self._young[run_id] = last, _end_of(entry) or self._clock.now_ms()
            held.pop(run_id, None)
        elif entry.lease == "take" or run_id in held:
            held[run_id] = last
        elif entry.header is not None and entry.after == 0:  # begun here, for others to drive
            self._young[run_id] = last, entry.header.started_at
        return entry.after < known

    def behind(self, heads: Sequence[tuple[str, int]]) -> list[str]:
        """Which of these runs end earlier than is known by now; they may have moved meanwhile."""
        known = self.known(run_id for run_id, _ in heads)
        return [run_id for (run_id, seq), least in zip(heads, known, strict=True) if seq < least]

    def look_again(self, ask: Callable[..., list[Row]], run_ids: Sequence[str]) -> None:
        """Ask where these runs end, if there are any.

        Raises:
            Missing: one ends earlier than is known, and not because it is another run by now.
        """
        if not run_ids:
            return
        known = dict(zip(run_ids, self.known(run_ids), strict=True))
        for run_id, seq, buried_at in ask(_HEADS, texts(list(known))):
            if seq >= known[run_id]:
                continue
            if buried_at < self._left(run_id)[1]:
                raise Missing(run_id, known[run_id], seq)
            self._begin_again(run_id, seq)

    def all(self) -> list[str]:
        """Every run of which something is known."""
        return list({**self._old, **self._young, **self._held})

    def forget(self, run_id: str) -> None:
        """It was deleted."""
        for heads in (self._held, self._young, self._old):
            heads.pop(run_id, None)

    def _begin_again(self, run_id: str, seq: int) -> None:
        is_held = run_id in self._held
        self.forget(run_id)
        if is_held:
            self._held[run_id] = seq


def _end_of(entry: Entry) -> int | None:
    return None if entry.header is None else entry.header.ended_at


#: In ``meta``: the timeline and since when (0: since ever), and what is missing.
_TIMELINE_NAME, _LOSS_NAME = "outlive.timeline", "outlive.lost"
_STATE = f"""
SELECT {{t}}, {{s}}.now_v1($1),
    (SELECT value FROM {{s}}.meta WHERE name = '{_TIMELINE_NAME}'),
    (SELECT value FROM {{s}}.meta WHERE name = '{_LOSS_NAME}')
"""
_REGISTER = f"""
INSERT INTO {{s}}.meta AS m VALUES ('{_TIMELINE_NAME}', {{t}} || ' 0') ON CONFLICT (name)
DO UPDATE SET value = {{t}} || ' ' || {{s}}.now_v1($1)
WHERE split_part(m.value, ' ', 1) <> ({{t}})::text
"""
_MARK = f"INSERT INTO {{s}}.meta VALUES ('{_LOSS_NAME}', $1) ON CONFLICT DO NOTHING"
_ACCEPT = f"DELETE FROM {{s}}.meta WHERE name = '{_LOSS_NAME}' AND value = $1"
#: What a beat and a claim ask beside: the timeline, and the mark.
BESIDE = f"{{t}}, (SELECT value FROM {{s}}.meta WHERE name = '{_LOSS_NAME}')"
#: Runs that are compared with one statement.
_COMPARED_MAX = 10_000


class Regression:
    """Whether the server has all that it acknowledged, as far as this process and others know."""

    def __init__(
        self,
        pool: Pool,
        clock: Clock,
        lease_seconds: float,
        server_time: Callable[[], int | None],
    ) -> None:
        self.seen = DurableSeqs(clock)
        self._pool, self._clock, self._server_time = pool, clock, server_time
        self._lease_seconds = lease_seconds
        self._lock = threading.RLock()
        #: What says so, in SQL; some servers don't.
        self._timeline_sql = TIMELINE
        #: The last one that was compared with.
        self._timeline: int | None = None
        self._paused_until = float("-inf")
        #: It was compared with, and the time that others have for that is over.
        self.is_settled = False
        self.refusal: WentBack | None = None

    def opened(self, timeline: int | None) -> None:
        """The first connection said so."""
        if timeline is None:
            self._timeline_sql = "0::int8"

    def words(self, sql: str) -> str:
        """The statement, for this server and schema."""
        named = sql.replace("{t}", self._timeline_sql)
        return named.replace("{s}", f'"{self._pool.place.schema}"')

    @property
    def pause(self) -> float:
        """Seconds for which nobody commits or claims."""
        return max(0.0, self._paused_until - self._clock.monotonic())

    def admit(self) -> None:
        """Wait until it is certain, as far as it can be, that nothing is missing.

        Raises:
            WentBack: something is.
        """
        while not self.is_settled:
            if self.refusal is not None:
                raise self.refusal
            if self._pool.wait_closed(self.pause):
                raise AppClosed("the store was closed while its server was looked at")
            self._settle()

    def _settle(self) -> None:
        with self._lock:
            timeline, loss = self._ask(f"SELECT {BESIDE}")[0]
            self.notice(timeline, loss)
            if not self.pause and self._timeline == timeline:
                self.is_settled = True

    def notice(self, timeline: int, loss: str | None) -> None:
        """What the server said beside something else.

        Raises:
            WentBack: it has less than it acknowledged, to us or to others.
        """
        if self.refusal is not None:
            raise self.refusal
        if loss is not None:
            raise self._refuse(loss_of(loss))
        if timeline != self._timeline:
            self.compare()

    def compare(self) -> None:
        """The timeline is another one: see whether all that is remembered is there.

        Raises:
            WentBack: it is not.
        """
        with self._lock:
            self.is_settled = False
            timeline, now, known, _ = self._state()
            if known is None or known.partition(" ")[0] != str(timeline):
                self._ask(_REGISTER, int8(self._server_time()))
                timeline, now, known, _ = self._state()
            since = int(known.partition(" ")[2])
            left = (since - now) / 1000 + self._lease_seconds
            self._timeline = self._pool.timeline = timeline
            if since:
                self._paused_until = self._clock.monotonic() + left
            run_ids = self.seen.all()
            for begin in range(0, len(run_ids), _COMPARED_MAX):
                self.look_again(run_ids[begin : begin + _COMPARED_MAX])

    def look_again(self, run_ids: Sequence[str]) -> None:
        """Ask where these runs end, if there are any.

        Raises:
            WentBack: one ends earlier than is known; from now on everybody refuses.
        """
        try:
            self.seen.look_again(self._ask, run_ids)
        except Missing as error:
            timeline = self._state()[0]
            loss = Loss(
                timeline=timeline, run_id=error.run_id, known=error.known, found=error.found
            )
            refusal = self._refuse(loss)
            with suppress(StoreError):
                self._ask(_MARK, text(msgspec.json.encode(loss).decode()))
            raise refusal from None

    def _refuse(self, loss: Loss) -> WentBack:
        self.is_settled = False
        self.refusal = lost_at(self._pool.place.name, loss)
        return self.refusal

    def _state(self) -> Row:
        return self._ask(_STATE, int8(self._server_time()))[0]

    def _ask(self, sql: str, *parameters: Parameter) -> list[Row]:
        return self._pool.run("other", Statement(self.words(sql), parameters))[0]

    # what a human may ask

    def loss(self) -> Loss | None:
        """What is missing, if somebody found out."""
        mark = self._state()[3]
        return None if mark is None else loss_of(mark)

    def accept(self, timeline: int) -> bool:
        """Take the mark away, if it is of this timeline."""
        mark = self._state()[3]
        if mark is None or loss_of(mark).timeline != timeline:
            return False
        self._ask(_ACCEPT, text(mark))
        return True


def lost_at(place: str, loss: Loss) -> WentBack:
    """The error that says so."""
    return WentBack(place, loss.run_id, loss.known, loss.found, loss.timeline)


def loss_of(mark: str) -> Loss:
    """What a mark says; one that can't be read is a mark all the same."""
    try:
        return msgspec.json.decode(mark.encode(), type=Loss)
    except msgspec.DecodeError:
        return Loss(timeline=0, run_id="(unreadable mark)", known=0, found=0)
