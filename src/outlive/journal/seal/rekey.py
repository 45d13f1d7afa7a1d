"""Changing the master key of a store, and forgetting a family for good.

Records are never rewritten: only what wraps the data keys changes. Both go family by family, and
both can be killed anywhere and begun again: what is done is found done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from outlive.errors import UsageError
from outlive.journal.codec.restore import not_found
from outlive.journal.seal.keys import MasterKeys
from outlive.journal.seal.places import WRAPPED_BYTES
from outlive.journal.seal.seal import Seal, data_key_id
from outlive.journal.seal.sealed_store import SealedStore
from outlive.stores.seam import Store
from outlive.stores.types import LAST_CHAPTER, PAGE_MAX, Deletion, Found, Query


async def rekey(store: SealedStore, tell: Callable[[str], None]) -> int:
    """Have the first master key wrap every data key; how many it did not before."""
    await store.keyring.veil()
    count = int(await store.keyring.rewrap_secret())
    seen: set[tuple[str, bytes]] = set()
    async for found in _runs(store.below):
        key = await _data_key(store, found)
        if key is not None and key not in seen:
            seen.add(key)
            if await store.keyring.rewrap(*key):
                tell(key[0])
                count += 1
    return count


async def erase(store: Store, run_id: str, *, keep_until: int) -> list[str]:
    """Drop the data key of a run's family, then its runs; their ids.

    Raises:
        RunNotFound: there is no such run.
        UsageError: a run of the family has not ended.
    """
    below: Store = store.below if isinstance(store, SealedStore) else store
    reading = await below.read(run_id, LAST_CHAPTER, limit=0)
    if reading is None:
        raise await not_found(below, run_id)
    family = reading.header.family
    members = [found async for found in _runs(below) if found.header.family == family]
    for found in members:
        if found.header.ended_at is None:
            raise UsageError(
                f"run {found.head.run_id} of the same family has not ended; cancel it first"
            )
    if isinstance(store, SealedStore):
        for key in {await _data_key(store, found) for found in members} - {None}:
            assert key is not None
            await store.keyring.erase(*key)
    # The run that was named goes last, so that it can be named again after a kill.
    for found in sorted(members, key=lambda found: found.head.run_id == run_id):
        head = found.head
        gone = Deletion(run_id=head.run_id, seq=head.seq, digest=b"", keep_until=keep_until)
        await below.delete([gone])
    return [found.head.run_id for found in members]


async def _data_key(store: SealedStore, found: Found) -> tuple[str, bytes] | None:
    """The family of a run and the id of its data key, if it has one of its own."""
    reading = await store.below.read(found.head.run_id, LAST_CHAPTER, limit=1)
    if reading is None or not reading.records or not found.header.family:
        return None
    key_id = data_key_id(reading.records[0].body)
    return None if key_id is None else (found.header.family, key_id)


async def _runs(store: Store) -> AsyncIterator[Found]:
    after: str | None = None
    while True:
        page = await store.find(Query(), after, PAGE_MAX)
        for found in page.items:
            yield found
        if page.next is None:
            return
        after = page.next


_PLACE = b"archive\0"


class SealedCover:
    """The key of one file."""

    def __init__(self, seal: Seal, wrapped: bytes) -> None:
        self._seal, self.wrapped = seal, wrapped

    def close(self, body: bytes, number: int) -> bytes:
        """A run as the file has it."""
        return self._seal.close(body, _place(number))

    def open(self, sealed: bytes, number: int) -> bytes | None:
        """The run again; None: it is not what was written there."""
        return self._seal.open(sealed, _place(number))


class ArchiveKeys:
    """Makes and finds the keys of files."""

    def __init__(self, keys: MasterKeys) -> None:
        self._keys = keys

    def new(self) -> SealedCover:
        """A key for a file that is to be written."""
        seal = Seal.new(self._keys.entropy)
        wrapped = self._keys.wrap(seal.secret, _PLACE)
        assert len(wrapped) == WRAPPED_BYTES, "keys have one size"
        return SealedCover(seal, wrapped)

    def find(self, wrapped: bytes, what: str) -> SealedCover:
        """The key of a file that was written.

        Raises:
            WrongKey: another master key wraps it.
        """
        return SealedCover(Seal(self._keys.unwrap([wrapped], _PLACE, what)), wrapped)


def _place(number: int) -> bytes:
    return b"archived run %d" % number
