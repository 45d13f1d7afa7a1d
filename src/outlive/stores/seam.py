"""The seam: what Outlive asks of storage. A store never reads a record.

A store keeps *journals*: an ordered pile of opaque records per run, with one *head* (last seq,
epoch, link of the last record, lease holder, mail counters) and a small queryable *header*.
Beside them mail, nodes (content-addressed bytes of a family) and tombstones.

The life of a journal, in the verbs below:

1. ``commit`` an entry with ``after=0`` creates it. A driven run's first entry also takes the lease.
2. Its driver commits entries that follow the head's seq *and* carry the head's epoch. One atomic
   check, at one place: that is the fence.
3. Others ``post`` mail; the driver turns it into events and names it ``consumed`` in the commit.
4. The driver ``beat``s. When it is dead, or was silent for a lease, ``claim`` offers its runs.
   An offer is not a lease yet: it is taken by committing an entry with ``lease="take"`` and the
   next epoch after the offer's seq, so that claiming is itself an append.
5. An entry with ``lease="free"`` hands the run back (it waits, or it ended).

The commit that takes a lease is also where the limits of queues are kept: an entry that would
exceed one is refused, and the head stays as it was. A run that waits takes nothing of its queue,
one whose holder is gone still does. Offers of ``claim`` are fair: within a queue by priority, then
by turns among its keys, but one of eight is the run that has waited longest; by turns among queues.

Every store has every verb of ``Store``. Two abilities are optional, and a store names them in
attributes: ``watchable`` and ``transactions``. Stores written elsewhere are checked by
``outlive.testing.StoreSuite``.

Verbs are coroutines. Stores on local files never really suspend; those on a network do.
Failures: a commit that can't be made durable raises ``StoreFailed`` and acknowledges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, overload

from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT
from outlive.ports import Clock, Ports
from outlive.stores.transactions import Transactional
from outlive.stores.types import (
    Answers,
    Changes,
    Claims,
    Count,
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
    Standing,
    Wanted,
    WorkerState,
)


class Watchable(Protocol):
    """The ability to wake a worker, so that it need not wait for its next look."""

    def watch(self, worker: str, callback: Callable[[], object]) -> Callable[[], object]:
        """Call back, on any thread, when there may be something for this worker: mail, or due runs.

        A hint that may come late, in vain or never: a worker without one looks from time to time.
        Returns what ends it.
        """
        ...

    def tell(self, workers: Iterable[str]) -> None:
        """Call back those who watch under these names, in any process; does not wait."""
        ...


class Store(Protocol):
    """A pile of append-only journals. Never interprets a record."""

    # ------------------------------------------------------------------ the store itself

    @property
    def clock(self) -> Clock | None:
        """The clock shared by all users of the store; None: that of this machine.

        A server's clock is learned from answers that it gives anyway, to ``beat`` and ``claim``.
        """
        ...

    @property
    def threads(self) -> int | None:
        """How many calls a server works on at once; None: the work is done in this process."""
        ...

    @property
    def watchable(self) -> Watchable | None:
        """The store's hints for workers, if it gives any."""
        ...

    @property
    def transactions(self) -> Transactional | None:
        """The transactions that it shares with its users, if it can."""
        ...

    async def health(self) -> Health:
        """Settings read back from the store, and what is wrong with them."""
        ...

    async def loss(self) -> Loss | None:
        """What was acknowledged and is known to be missing, after a failover or a restored backup.

        Nothing is driven until somebody accepts the loss. None: nothing is missing.
        """
        ...

    async def accept_loss(self, timeline: int) -> bool:
        """Let the fleet go on without what is missing on this timeline; False: nothing is."""
        ...

    async def close(self) -> None:
        """Release files and connections. Closing twice is fine."""
        ...

    # ------------------------------------------------------------------ journals

    @overload
    async def commit(self, batch: Sequence[Entry]) -> Answers: ...
    @overload
    async def commit(self, batch: Sequence[Entry], *, wait: bool) -> Answers | None: ...
    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Answers | None:
        """Make every entry durable with one flush; answer for each: None (done) or a conflict.

        All or nothing per entry; an entry that conflicts does not disturb the others. Entries of
        one run in one batch follow one another. A repeat of an entry that was done (same run,
        seq and record) is done again as long as the head still has its epoch.

        With ``wait=False`` it takes a moment at most: None if it would take longer (somebody
        writes, an answer is late). Whether the batch is durable is then unknown until the same
        batch is committed with ``wait``.

        Raises:
            StoreFailed: nothing of the batch may be taken as durable.
        """
        ...

    async def commit_together(self, batch: Sequence[Entry]) -> Answers:
        """Make all of these durable with one flush, or nothing: a conflict refuses them all.

        Entries of different journals that nobody holds. Where one conflicts, those without a
        conflict of their own are answered None, and are not stored either.

        Raises:
            UsageError: the store is not one database; nothing was stored.
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

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        """Whole journals without their mail, by run; missing ones are left out."""
        ...

    async def find(self, query: Query, after: str | None = None, limit: int = FIND_LIMIT) -> Page:
        """A page of runs, stable under concurrent writes: none twice, none skipped.

        Where no index knows all that is asked, so many rows are looked at at most; then the page
        is short, and says where to go on.
        """
        ...

    async def count(self, query: Query, most: int = COUNTED_MAX) -> Count:
        """How many runs a query asks for (``runs`` is implied), up to so many."""
        ...

    async def changes(self, after: str | None = None, limit: int = FIND_LIMIT) -> Changes:
        """Runs whose journals grew since ``after``, the ``next`` of an earlier answer.

        In the order in which that became visible: nothing is lost that becomes visible late.
        None: nothing yet; where to look on from now.
        """
        ...

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        """Delete ended runs that still end at their ``seq``, with one flush; leave tombstones.

        All or none of them durable. One that moved on is answered False and does not disturb the
        others.
        """
        ...

    # ------------------------------------------------------------------ mail

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        """Leave mail for runs, in this order, durably, with one flush.

        Mail whose id was ever posted to that run before is not posted again.
        """
        ...

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        """The unread mail of each of these runs, in the order of its posting."""
        ...

    # ------------------------------------------------------------------ nodes

    async def put_blob(self, family: str, node: Node) -> None:
        """Keep a node before any record names it (only streams need this)."""
        ...

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The bodies of these nodes, by address; missing ones are left out."""
        ...

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        """Delete these nodes, even if records name them; missing ones are not an error."""
        ...

    async def families(self, after: str, limit: int) -> Sequence[str]:
        """Families that have nodes, in an order of the store's own: the next ones after ``after``.

        With ``without_runs`` and ``drop_family`` this is what orphan collection needs.
        """
        ...

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        """Those of these families to which no run belongs."""
        ...

    async def drop_family(self, family: str) -> bool:
        """Delete all nodes of a family; False, and nothing is deleted, if it has a run."""
        ...

    # ------------------------------------------------------------------ leases

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        """Due runs without a living holder, and runs of this worker that have mail."""
        ...

    async def standing(self, holder: str | None) -> Standing:
        """What is thought of the holder of a run: unless it is alive, the run may be claimed.

        Nobody (None) is dead. While nothing may be claimed, everybody is alive.
        """
        ...

    async def beat(self, worker: str, about: str = "") -> int:
        """The worker's heartbeat; returns the store's time in ms. The first one registers it.

        ``about`` is what it says of itself, for ``workers``; the store keeps it as it is.
        """
        ...

    async def workers(self) -> Sequence[WorkerState]:
        """Workers that beat and were not released, and those that still hold runs, by id."""
        ...

    async def release(self, worker: str) -> None:
        """The worker ends: free all its leases and forget it."""
        ...

    # ------------------------------------------------------------------ queues

    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        """Set a queue's limits for all workers; unless ``replace``, only where there are none.

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
