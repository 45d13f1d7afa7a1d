"""What a store may offer beyond its verbs, sealed: only what the store below offers is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from outlive.envelope import enclose_old_outcome
from outlive.errors import CorruptRecord, Erased
from outlive.journal.lane import run_immediate
from outlive.journal.seal.keys import MasterKeys
from outlive.journal.seal.seal import Seal
from outlive.journal.seal.sealed_store import SealedStore
from outlive.stores.seam import Clearing, Collecting, Mailroom, Prompt, Queueing, Store, Watchable
from outlive.stores.transactions import (
    AsyncTransaction,
    Attempt,
    Enlisting,
    KeptOutcome,
    Transaction,
    Transactional,
)
from outlive.stores.types import (
    Conflict,
    Deletion,
    Entry,
    Mail,
    Posted,
    Posting,
    QueueLimits,
    QueueState,
    Reading,
)


class _SealedTransaction:
    """A transaction whose outcome is sealed on its way."""

    def __init__(self, below: Transaction, seal: Seal | None, place: bytes) -> None:
        self._below, self._seal, self._place = below, seal, place
        self.connection = below.connection

    @property
    def is_lost(self) -> bool:
        return self._below.is_lost

    def commit(self, outcome: bytes) -> None:
        self._below.commit(_closed(outcome, self._seal, self._place))

    def roll_back(self) -> None:
        self._below.roll_back()

    def abort(self) -> None:
        self._below.abort()


class _SealedAsyncTransaction:
    """The same for a body that awaits."""

    def __init__(self, below: AsyncTransaction, seal: Seal | None, place: bytes) -> None:
        self._below, self._seal, self._place = below, seal, place
        self.connection = below.connection

    @property
    def is_lost(self) -> bool:
        return self._below.is_lost

    async def commit(self, outcome: bytes) -> None:
        await self._below.commit(_closed(outcome, self._seal, self._place))

    async def roll_back(self) -> None:
        await self._below.roll_back()

    def abort(self) -> None:
        self._below.abort()


class SealedTransactional(SealedStore):
    """A sealed store in whose database users keep tables of their own."""

    @property
    def transaction_seconds_max(self) -> float:
        """How long a transaction may stay open at most."""
        return float(self.below.transaction_seconds_max)

    def begin(self, attempt: Attempt, seconds: float) -> Transaction:
        """A transaction for the body of a step, which has about so many seconds."""
        seal = run_immediate(self._seal_of(attempt))
        return _SealedTransaction(self.below.begin(attempt, seconds), seal, _place(attempt))

    async def begin_async(self, attempt: Attempt, seconds: float) -> AsyncTransaction:
        """The same for a body that awaits."""
        seal = await self._seal_of(attempt)
        below = await self.below.begin_async(attempt, seconds)
        return _SealedAsyncTransaction(below, seal, _place(attempt))

    async def outcome_of(self, attempt: Attempt) -> bytes | None:
        """What this attempt, or one before it, has committed."""
        outcome: bytes | None = await self.below.outcome_of(attempt)
        seal = await self._seal_of(attempt)
        if outcome is None or seal is None:
            return outcome
        opened = seal.open(outcome, _place(attempt))
        if opened is None:
            raise CorruptRecord(attempt.run_id, attempt.seq, "the seal of an outcome does not hold")
        return enclose_old_outcome(attempt.run_id, attempt.step, attempt.seq, opened)

    async def outcomes_of(self, run_id: str) -> Sequence[KeptOutcome]:
        """All that is kept of a run's steps; what does not open stays as it was found."""
        kept: Sequence[KeptOutcome] = await self.below.outcomes_of(run_id)
        sealing = await self._sealing_of(run_id) if kept else None
        if sealing is None or sealing.seal is None:
            return kept
        found = []
        for each in kept:
            attempt = Attempt(run_id=run_id, step=each.step, seq=0, epoch=0)
            body = sealing.seal.open(each.body, _place(attempt))
            shown = b"" if body is None else enclose_old_outcome(run_id, each.step, 0, body)
            found.append(KeptOutcome(step=each.step, body=shown))
        return found

    async def forget_outcomes(self, steps: Sequence[tuple[str, str]]) -> None:
        """The journals have these outcomes, of (run, step), themselves."""
        await self.below.forget_outcomes(steps)

    async def _seal_of(self, attempt: Attempt) -> Seal | None:
        sealing = await self._sealing_of(attempt.run_id)
        return None if sealing is None else sealing.seal


class SealedEnlisting(SealedStore):
    """A sealed store in whose database a run can begin in a transaction of the user's."""

    def enlist(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        """Begin a run in the user's own transaction: whether it is in, else the run of that id."""
        sealed = run_immediate(self._close_enlisted(entry))
        is_in, there = self.below.enlist(connection, sealed)
        return is_in, None if there is None else run_immediate(self.open_reading(there))

    async def enlist_async(self, connection: Any, entry: Entry) -> tuple[bool, Reading | None]:
        """The same over a connection that awaits; one that does not is fine, too."""
        sealed = await self._close_enlisted(entry)
        is_in, there = await self.below.enlist_async(connection, sealed)
        return is_in, None if there is None else await self.open_reading(there)

    async def _close_enlisted(self, entry: Entry) -> Entry:
        (sealed,) = await self._close_all([entry])
        self._beginning.pop(sealed.run_id, None)  # whether it comes to be is the user's affair
        return sealed


def _closed(outcome: bytes, seal: Seal | None, place: bytes) -> bytes:
    return outcome if seal is None else seal.close(outcome, place)


def _place(attempt: Attempt) -> bytes:
    return f"outcome of {attempt.step}\0{attempt.run_id}".encode()


class _SealedPrompt(SealedStore):
    async def commit_at_once(self, batch: Sequence[Entry]) -> Sequence[Conflict | None] | None:
        """As ``commit``; None, and nothing is written, if somebody else is writing just now."""
        sealed = await self._close_all(batch)
        answers: Sequence[Conflict | None] | None = await self.below.commit_at_once(sealed)
        if answers is not None:
            self._heard(sealed, answers)
        return answers


class _SealedMailroom(SealedStore):
    async def post_all(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        """Each as ``post`` would, in this order, all with one flush."""
        sealed = [
            replace(each, body=await self._close_mail(each.run_id, each.mail_id, each.body))
            for each in batch
        ]
        posted: Sequence[Posted] = await self.below.post_all(sealed)
        return posted

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        """What each of these runs has waiting, in the order of its posting; runs without: none."""
        opened: dict[str, Sequence[Mail]] = {}
        waiting: Mapping[str, Sequence[Mail]] = await self.below.mail_of(run_ids)
        for run_id, letters in waiting.items():
            family = await self._family_of(run_id) if letters else ""
            opened[run_id] = await self.open_mail(run_id, family, letters)
        return opened

    async def _family_of(self, run_id: str) -> str:
        try:
            sealing = await self._sealing_of(run_id)
        except (CorruptRecord, Erased):  # whoever reads its journal says so
            sealing = None
        return "" if sealing is None else sealing.family


class _SealedWatchable(SealedStore):
    def watch(self, worker: str, callback: Callable[[], object]) -> Callable[[], object]:
        """Call back when there may be something for this worker; returns what ends it."""
        end: Callable[[], object] = self.below.watch(worker, callback)
        return end


class _SealedQueueing(SealedStore):
    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        """Limits for all workers; queues and their keys have names that can be read."""
        held: QueueLimits = await self.below.set_queue(name, limits, replace=replace)
        return held

    async def find_queue(self, name: str) -> QueueLimits | None:
        """The limits of a queue, if any are set."""
        found: QueueLimits | None = await self.below.find_queue(name)
        return found

    async def queues(self) -> Sequence[QueueState]:
        """Every queue that has limits or runs."""
        states: Sequence[QueueState] = await self.below.queues()
        return states


class _SealedCollecting(SealedStore):
    async def families(self, after: str, limit: int) -> Sequence[str]:
        """Families that have nodes; what they are called can be read."""
        found: Sequence[str] = await self.below.families(after, limit)
        return found

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        """Those of these families that no run belongs to."""
        found: Sequence[str] = await self.below.without_runs(families)
        return found

    async def drop_family(self, family: str) -> bool:
        """Forget all nodes of a family, its keys among them."""
        is_dropped: bool = await self.below.drop_family(family)
        if is_dropped:
            self._families.pop(family, None)
        return is_dropped


class SealedClearing(SealedStore):
    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        """These journals from their start, without mail; those that are not there are left out."""
        asked = {await self.place_of(run_id): run_id for run_id in run_ids}
        found: Mapping[str, Reading] = await self.below.read_all(list(asked))
        return {asked[name]: await self.open_reading(each) for name, each in found.items()}

    async def delete_all(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        """Each as ``delete`` would, with one flush."""
        veil = await self.keyring.veil()
        sealed = [
            replace(each, run_id=await self.place_of(each.run_id), digest=veil.digest(each.digest))
            for each in batch
        ]
        answers: Sequence[bool] = await self.below.delete_all(sealed)
        for each, is_gone in zip(sealed, answers, strict=True):
            if is_gone:
                self._forget(each.run_id)
        return answers


_EXTRAS: tuple[tuple[type, type[SealedStore]], ...] = (
    (Prompt, _SealedPrompt),
    (Mailroom, _SealedMailroom),
    (Watchable, _SealedWatchable),
    (Queueing, _SealedQueueing),
    (Collecting, _SealedCollecting),
    (Clearing, SealedClearing),
    (Enlisting, SealedEnlisting),
    (Transactional, SealedTransactional),
)


def seal_store(store: Store, keys: MasterKeys) -> SealedStore:
    """A store that offers what the one below offers, and shows it nothing."""
    parts = tuple(part for extra, part in _EXTRAS if isinstance(store, extra))
    kind: type[SealedStore] = type("SealedStore", (*parts, SealedStore), {})
    return kind(store, keys)
