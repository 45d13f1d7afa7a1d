"""Connections to one PostgreSQL database: kept for the next, replaced when lost.

Every verb can be repeated: what was done is told from what was not by looking (seq, epoch, mail
mark, tombstone). So whatever a lost connection leaves open is settled in one way: the same
statements are sent again over another one, after growing pauses, until the server answers or the
outage has lasted too long. Nothing is acknowledged before that. Beats have connections of their
own: they never wait for a commit.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal

from outlive.errors import AppClosed, StoreUnavailable, WrongVersion
from outlive.ports import Clock, Ports
from outlive.stores.postgres.connection import (
    SERVER_ENCODING,
    SERVER_VERSION_MIN,
    PostgresConnection,
    Statement,
)
from outlive.stores.postgres.errors import (
    OTHER_TIMELINE,
    Moved,
    ServerRefused,
    Unreachable,
    gone,
    translate,
    unsafe,
)
from outlive.stores.postgres.url import Place
from outlive.stores.postgres.wire import Row

#: What a connection is wanted for. Commits and beats have theirs, so that they never wait.
Purpose = Literal["commit", "beat", "other", "news"]
Kind = Literal["commit", "beat", "other"]

_PAUSE_FIRST, _PAUSE_MAX = 0.02, 1.0
_KEPT_MAX = 8
#: A connection that was not needed for so long is closed: a server has only so many.
_IDLE_SECONDS_MAX = 60.0
_JITTER_PARTS = 256


class Pool:
    """The connections of one store. Safe to use from several threads; does not cross a fork."""

    def __init__(self, place: Place, ports: Ports) -> None:
        self.place = place
        #: Exchanges with the server, for those who count them.
        self.round_trips: Counter[Purpose] = Counter()
        self._ports = ports
        self._lock = threading.Lock()
        #: By kind, with since when: the one used last is used next, so what is left over gets old.
        self._idle: dict[Kind, deque[tuple[float, PostgresConnection]]] = {}
        #: Commits are sent to a server on this timeline alone; None: to any.
        self.timeline: int | None = None
        self._process = os.getpid()
        self._closing = threading.Event()

    @property
    def clock(self) -> Clock:
        """That of this process."""
        return self._ports.clock

    # verbs

    def run(
        self, purpose: Purpose, *statements: Statement, outage_seconds: float | None = None
    ) -> list[list[Row]]:
        """The rows of each statement, however often the connection is lost meanwhile.

        Raises:
            StoreFailed: no server answered in time, or it refused.
            Moved: of commits: another server has taken over; nothing was sent.
        """
        clock, pause, since = self._ports.clock, _PAUSE_FIRST, None
        patience = self.place.outage_seconds if outage_seconds is None else outage_seconds
        while True:
            try:
                return self._once(purpose, statements)
            except (Unreachable, ServerRefused) as error:
                if isinstance(error, ServerRefused) and not error.is_passing:
                    raise translate(error, self.place.name) from error
                now = clock.monotonic()
                since = now if since is None else since
                if now - since >= patience:
                    raise gone(self.place.name, error, patience) from error
            if self._closing.wait(self._jittered(pause)):
                raise AppClosed("the store was closed while its server was away")
            pause = min(pause * 2, _PAUSE_MAX)

    def _once(self, purpose: Purpose, statements: Sequence[Statement]) -> list[list[Row]]:
        db = self._take(purpose)
        try:
            answer = db.run(*statements)
        except ServerRefused as error:
            if error.state == OTHER_TIMELINE and db.expected is not None:
                self.keep("other", db)
                raise Moved from error
            if error.is_of_server:
                self.forget(db)
            else:
                self.give_back(purpose, db)
            raise
        except Unreachable:
            self.forget(db)
            raise
        except BaseException:
            db.close()
            raise
        self.give_back(purpose, db)
        return answer

    def _jittered(self, pause: float) -> float:
        """Up to a half more, so that those who lost one server do not come back as one."""
        return pause * (1 + self._ports.entropy(1)[0] / _JITTER_PARTS / 2)

    # connections

    def open_first(self) -> PostgresConnection:
        """A first connection, for who opens the store; nothing is tried twice.

        Raises:
            StoreUnavailable: there is none to be had; the message says why.
        """
        try:
            return self._open(self.place.conninfo)
        except (Unreachable, ServerRefused) as error:
            raise StoreUnavailable(f"{self.place.name} can't be opened: {error}") from error

    def open_to_listen(self) -> PostgresConnection | None:
        """A session of its own; None: only a pooler is known, which has none to give."""
        db = self._open(self.place.listen_conninfo or self.place.conninfo)
        if db.is_direct:
            return db
        db.close()
        return None

    def _open(self, conninfo: str) -> PostgresConnection:
        db = PostgresConnection(conninfo, self._ports.clock, self.place.limit_seconds)
        try:
            db.look_around()
            self._check(db)
        except BaseException:
            db.close()
            raise
        return db

    def _check(self, db: PostgresConnection) -> None:
        if db.release < SERVER_VERSION_MIN:
            oldest = SERVER_VERSION_MIN // 10_000
            raise WrongVersion(
                f"{self.place.name} is release {db.release // 10_000}; outlive needs {oldest}"
            )
        if db.encoding != SERVER_ENCODING:
            raise StoreUnavailable(
                f"{self.place.name} has encoding {db.encoding}, which can't keep every text; "
                "make a database for outlive WITH ENCODING 'UTF8' TEMPLATE template0"
            )
        if db.problems and not self.place.allow_unsafe:
            raise unsafe(self.place.name, db.problems)

    def _take(self, purpose: Purpose) -> PostgresConnection:
        db = self.take_kept(purpose)
        if db is None:
            db = self._open(self.place.conninfo)
            if purpose == "commit" and not self._is_expected(db):
                self.keep("other", db)
                raise Moved
        db.expected = self.timeline if purpose == "commit" and not db.is_direct else None
        return db

    def _is_expected(self, db: PostgresConnection) -> bool:
        return (
            None in (self.timeline, db.timeline) or not db.is_direct or db.timeline == self.timeline
        )

    def take_kept(self, purpose: Purpose) -> PostgresConnection | None:
        """One that is open already, if there is one: its taker gives it back, or forgets it."""
        self.check_open()
        with self._lock:
            kept = self._idle.get(_kind(purpose))
            while kept:
                db = kept.pop()[1]
                if purpose != "commit" or self._is_expected(db):
                    return db
                db.close()  # to a server that was replaced
            return None

    def give_back(self, purpose: Purpose, db: PostgresConnection) -> None:
        """It was asked something and has answered."""
        self.keep(purpose, db, round_trips=1)

    def keep(self, purpose: Purpose, db: PostgresConnection, *, round_trips: int = 0) -> None:
        """Whoever wants one for this purpose gets it: opening another takes milliseconds."""
        now = self._ports.clock.monotonic()
        dropped = []
        with self._lock:
            self.round_trips[purpose] += round_trips
            kept = self._idle.setdefault(_kind(purpose), deque())
            if len(kept) < _KEPT_MAX and not self._closing.is_set() and db.is_open:
                kept.append((now, db))
            else:
                dropped.append(db)
            while kept and now - kept[0][0] > _IDLE_SECONDS_MAX:
                dropped.append(kept.popleft()[1])
        for each in dropped:
            each.close()

    def forget(self, db: PostgresConnection) -> None:
        """It is lost, and most likely so are those that were opened to the same server."""
        for each in [db, *self._take_all()]:
            each.close()

    def _take_all(self) -> list[PostgresConnection]:
        with self._lock:
            found = [db for kept in self._idle.values() for _, db in kept]
            self._idle.clear()
        return found

    def check_open(self) -> None:
        """Raise if this was closed, or if another process opened it."""
        if self._closing.is_set() or self._process != os.getpid():
            raise AppClosed("the store was closed, or this process was forked; open another")

    @property
    def is_closed(self) -> bool:
        """Nothing more will be asked."""
        return self._closing.is_set()

    def wait_closed(self, seconds: float) -> bool:
        """Whether it was closed within this time."""
        return self._closing.wait(seconds)

    @property
    def is_ours(self) -> bool:
        """This process opened it, not the one that it was forked from."""
        return self._process == os.getpid()

    def close(self) -> None:
        """Let go of all connections. Closing twice is fine."""
        self._closing.set()
        for each in self._take_all():
            each.close()


def _kind(purpose: Purpose) -> Kind:
    return "other" if purpose == "news" else purpose
