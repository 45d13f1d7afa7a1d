"""What a store may offer beyond its verbs, sealed: only what the store below offers is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from outlive.clearing import Clearing, Deletion
from outlive.collecting import Collecting
from outlive.errors import CorruptRecord, Erased
from outlive.journal.master_keys import MasterKeys
from outlive.journal.sealed_store import SealedStore
from outlive.journal.sealed_transactions import SealedEnlisting, SealedTransactional
from outlive.store import (
    Conflict,
    Entry,
    Mail,
    Mailroom,
    Posted,
    Posting,
    Prompt,
    Queueing,
    QueueLimits,
    QueueState,
    Reading,
    Store,
    Watchable,
)
from outlive.transactional import Enlisting, Transactional


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
