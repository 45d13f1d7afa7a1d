"""The seam: what Outlive asks of storage. A dozen verbs, and it never reads a record.

A store keeps *journals*: an ordered pile of opaque records per run, with one *head* (last seq,
epoch, link of the last record, lease holder, mail counters) and a small queryable *header*.
Beside them mail, nodes (content-addressed bytes of a family) and tombstones.

The life of a journal, in the verbs below:

1. ``commit`` an entry with ``after=0`` creates it. A driven run's first entry also takes the lease.
2. Its driver commits entries that follow the head's seq *and* carry the head's epoch. One atomic
   check, at one place: that is the fence.
3. Others ``post`` mail; the driver turns it into events and names it ``consumed`` in the commit.
4. The driver ``beat``s. When it is dead, or was silent for a lease, ``claim`` offers its runs.
   An offer is no lease yet: it is taken by committing an entry with ``lease=TAKE`` and the next
   epoch after the offer's seq, so that claiming is itself an append.
5. An entry with ``lease=FREE`` hands the run back (it waits, or it ended).

Where a queue has limits (``Queueing``), the commit that takes a lease is also where they are kept:
an entry that would exceed one is refused, and the head stays as it was.

Verbs are coroutines. Stores on local files never really suspend; those on a network do.
Failures: a commit that can't be made durable raises ``StoreFailed`` and acknowledges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from outlive.model.defaults import FIND_LIMIT
from outlive.ports import Clock, Ports
from outlive.stores.types import (
    Claims,
    Conflict,
    Deletion,
    Entry,
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
    Statement,
    Wanted,
)


@runtime_checkable
class Tabling(Protocol):
    """A store that can write rows of a table together with an entry: all of it or nothing."""

    async def commit_with(
        self, entry: Entry | None, statements: Sequence[Statement]
    ) -> Conflict | None:
        """Commit an entry, if it is not refused, with these statements."""
        ...


class Store(Protocol):
    """A pile of append-only journals. Never interprets a record."""

    @property
    def clock(self) -> Clock | None:
        """The clock by which all who share the store go; None: that of this machine.

        A server's clock is learned from answers that it gives anyway, to ``beat`` and ``claim``.
        """
        ...

    async def commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        """Make every entry durable with one flush; answer for each: None (done) or a conflict.

        All or nothing per entry; an entry that conflicts does not disturb the others. Entries of
        one run in one batch follow one another. A repeat of an entry that was done (same run,
        seq and record) is done again as long as the head still has its epoch.

        Raises:
            StoreFailed: nothing of the batch may be taken as durable.
        """
        ...

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        """Records whose first event comes after seq ``after``, and mail; None if no such run.

        ``LAST_CHAPTER`` reads from the record with which the run's last chapter begins; with a
        ``limit``, that many records at most.
        """
        ...

    async def post(self, run_id: str, mail_id: str, body: bytes) -> Posted:
        """Leave mail for a run, durably, unless mail of that id was posted ever before."""
        ...

    async def put_blob(self, family: str, node: Node) -> None:
        """Keep a node before any record names it (only streams need this)."""
        ...

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The nodes that there are among these."""
        ...

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        """Forget these nodes, whoever names them; those that are not there are no error."""
        ...

    async def find(self, query: Query, after: str | None = None, limit: int = FIND_LIMIT) -> Page:
        """A page of runs, stable under concurrent writes: none twice, none skipped."""
        ...

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        """Runs that are due and that no living worker holds, and own runs with mail."""
        ...

    async def beat(self, worker: str) -> int:
        """Say that this worker lives; return the store's time in ms. The first beat enlists it."""
        ...

    async def release(self, worker: str) -> None:
        """The worker is going: free every lease it holds and forget it."""
        ...

    async def delete(self, run_id: str, *, seq: int, digest: bytes, keep_until: int) -> bool:
        """Delete an ended run that still ends at ``seq``; leave a tombstone. False: it moved on."""
        ...

    async def health(self) -> Health:
        """Settings read back from the store, and what is wrong with them."""
        ...

    async def close(self) -> None:
        """Let go of files and connections. Closing twice is fine."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A store that can wake a worker, so that it need not wait for its next look."""

    def watch(self, worker: str, callback: Callable[[], object]) -> Callable[[], object]:
        """Call back, on any thread, when there may be something for this worker: mail, or due runs.

        A hint that may come late, in vain or never: who gets none still looks from time to time.
        Returns what ends it.
        """
        ...


@runtime_checkable
class Recoverable(Protocol):
    """A store that a failover or a restored backup may set back behind what it acknowledged."""

    async def loss(self) -> Loss | None:
        """What is known to be missing; nothing is driven until somebody accepts that."""
        ...

    async def accept_loss(self, timeline: int) -> bool:
        """Let the fleet go on without what is missing on this timeline; False: nothing is."""
        ...


@runtime_checkable
class Prompt(Protocol):
    """A store that keeps nobody waiting for longer than a moment, if asked to."""

    async def commit_at_once(self, batch: Sequence[Entry]) -> Sequence[Conflict | None] | None:
        """As ``commit``; None if that would take longer: somebody writes, or an answer is late.

        Then nobody knows what became of it until the same batch is given to ``commit``.
        """
        ...


@runtime_checkable
class Mailroom(Protocol):
    """A store that handles much mail at once better than one by one."""

    async def post_all(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        """Each as ``post`` would, in this order, all with one flush."""
        ...

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        """What each of these runs has waiting, in the order of its posting; runs without: none."""
        ...


@runtime_checkable
class Queueing(Protocol):
    """A store that keeps limits of queues, in the commits that take leases.

    A run that waits takes nothing of its queue, one whose holder is gone still does. Offers of
    ``claim`` are fair: of one queue by priority, then by turns among its keys, but one of eight
    is the run that has waited longest; by turns among queues.
    """

    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        """Limits for all workers, from now on; unless ``replace``, only where none are set yet.

        What is held already stays held. Answers with the limits that hold.
        """
        ...

    async def find_queue(self, name: str) -> QueueLimits | None:
        """The limits of a queue, if any are set."""
        ...

    async def queues(self) -> Sequence[QueueState]:
        """Every queue that has limits or runs, by name; not the default one."""
        ...


def timed_by(store: Store, ports: Ports) -> Ports:
    """These ports, with the clock of the store's server if it has one."""
    return ports if store.clock is None else replace(ports, clock=store.clock)


@runtime_checkable
class Clearing(Protocol):
    """A store that handles many journals at once better than one by one."""

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        """These journals from their start, without mail; those that are not there are left out."""
        ...

    async def delete_all(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        """Each as ``delete`` would, all or none of them durable, with one flush.

        One that moved on is answered False and does not disturb the others.
        """
        ...


async def read_all(store: Store, run_ids: Sequence[str]) -> Mapping[str, Reading]:
    """As ``Clearing`` has it, from any store."""
    if isinstance(store, Clearing):
        return await store.read_all(run_ids)
    readings = [await store.read(run_id) for run_id in run_ids]
    return {each.head.run_id: each for each in readings if each is not None}


async def delete_all(store: Store, batch: Sequence[Deletion]) -> Sequence[bool]:
    """As ``Clearing`` has it, from any store: at least each by itself is all or nothing."""
    if isinstance(store, Clearing):
        return await store.delete_all(batch)
    return [
        await store.delete(
            each.run_id, seq=each.seq, digest=each.digest, keep_until=each.keep_until
        )
        for each in batch
    ]


@runtime_checkable
class Collecting(Protocol):
    """A store whose nodes can be looked through by family."""

    async def families(self, after: str, limit: int) -> Sequence[str]:
        """Families that have nodes, in an order of their own: the next ones behind ``after``."""
        ...

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        """Those of these families that no run belongs to."""
        ...

    async def drop_family(self, family: str) -> bool:
        """Forget all nodes of a family; False, and nothing is forgotten, if it has a run."""
        ...
