"""Blobs in another store: streamed blobs go there; everything else stays.

Chunks are durable there before the record that references them is written here, as in one store.
Each store knows the other by an id among its nodes, so that neither a wrong store nor an empty one
is mistaken for the right one. In the other store a family has the id of this one in its name:
several stores may share it, and none deletes another's chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from outlive.errors import StoreUnavailable, UsageError
from outlive.model.ids import OWN_PREFIX
from outlive.stores.seam import Store
from outlive.stores.types import Deletion, Health, Node

#: The family of the nodes by which two stores know one another.
PLACES = f"{OWN_PREFIX}places"
#: The prefix of our addresses; those of chunks are hashes.
_OWN = b"outlive."
_ID, _BLOBS = b"outlive.id", b"outlive.blobs"

Entropy = Callable[[int], bytes]


class BlobLocation(msgspec.Struct, frozen=True):
    """The store that keeps another's blobs: its id and its name."""

    id: str
    name: str


_decode = msgspec.msgpack.Decoder(BlobLocation).decode


async def place_of(store: Store) -> BlobLocation | None:
    """The store that keeps the blobs; None: this one does."""
    found = await store.get_blobs(PLACES, [_BLOBS])
    return _decode(found[_BLOBS]) if found else None


async def check_here(store: Store) -> None:
    """Check that the store keeps its blobs itself.

    Raises:
        StoreUnavailable: they are in another store; the message says which.
    """
    place = await place_of(store)
    if place is not None:
        raise StoreUnavailable(
            f"this store keeps its blobs in {place.name}; set OUTLIVE_BLOBS to the URL of that"
        )


async def keep_elsewhere(store: Store, blobs: Store, name: str, entropy: Entropy) -> Store:
    """The store with its blobs in another one, which is found again by its id.

    Raises:
        StoreUnavailable: its blobs are in another store.
        UsageError: both are the same store.
    """
    own, other = await id_of(store, entropy), await id_of(blobs, entropy)
    if own == other:
        raise UsageError(f"OUTLIVE_BLOBS={name} is the store itself; leave it out")
    known = await place_of(store)
    if known is None:
        body = msgspec.msgpack.encode(BlobLocation(other, name))
        await store.put_blob(PLACES, Node(_BLOBS, body))
        known = await place_of(store)
    if known is None or known.id != other:
        kept = "elsewhere" if known is None else f"in {known.name}"
        raise StoreUnavailable(
            f"this store keeps its blobs {kept}; {name} is another place: set OUTLIVE_BLOBS to "
            "the URL of the first"
        )
    return BlobsElsewhere(store, blobs, f"{OWN_PREFIX}blobs/{own}/", name)


async def id_of(store: Store, entropy: Entropy) -> str:
    """A store's id for others; made when it is first needed."""
    found = await store.get_blobs(PLACES, [_ID])
    if not found:
        await store.put_blob(PLACES, Node(_ID, entropy(8).hex().encode()))
        found = await store.get_blobs(PLACES, [_ID])
    return found[_ID].decode()


class BlobsElsewhere:
    """A store with the blobs of another; all other verbs are the first one's own."""

    def __init__(self, store: Store, blobs: Store, prefix: str, name: str) -> None:
        self._store, self._blobs, self._prefix, self._name = store, blobs, prefix, name
        self.clock, self.threads = store.clock, store.threads
        self.watchable, self.transactions = store.watchable, store.transactions
        self.commit, self.commit_together = store.commit, store.commit_together
        self.find = store.find
        self.read, self.read_all = store.read, store.read_all
        self.post, self.mail_of = store.post, store.mail_of
        self.claim, self.standing = store.claim, store.standing
        self.beat, self.release = store.beat, store.release
        self.workers, self.count, self.changes = store.workers, store.count, store.changes
        self.set_queue, self.find_queue = store.set_queue, store.find_queue
        self.queues, self.without_runs = store.queues, store.without_runs
        self.loss, self.accept_loss = store.loss, store.accept_loss

    async def put_blob(self, family: str, node: Node) -> None:
        if node.address.startswith(_OWN):
            await self._store.put_blob(family, node)
        else:
            await self._blobs.put_blob(self._prefix + family, node)

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = dict(await self._store.get_blobs(family, addresses))
        rest = [each for each in addresses if each not in found and not each.startswith(_OWN)]
        if rest:
            found |= await self._blobs.get_blobs(self._prefix + family, rest)
        return found

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        await self._blobs.drop_blobs(self._prefix + family, addresses)
        await self._store.drop_blobs(family, addresses)

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        families: dict[str, str] = {}
        for each in batch:
            found = await self._store.read(each.run_id, 1 << 62, limit=0)
            if found is not None and found.header.family:
                families[each.run_id] = found.header.family
        answers = await self._store.delete(batch)
        touched = {
            families[each.run_id]
            for each, is_gone in zip(batch, answers, strict=True)
            if is_gone and each.run_id in families
        }
        for family in await self._store.without_runs(sorted(touched)) if touched else ():
            # After a kill before this line, orphan collection does it.
            await self._blobs.drop_family(self._prefix + family)
        return answers

    async def families(self, after: str, limit: int) -> Sequence[str]:
        prefix = self._prefix
        here = await self._store.families(after, limit)
        there = await self._blobs.families(prefix + after, limit)
        ours = [name[len(prefix) :] for name in there if name.startswith(prefix)]
        return sorted({*here, *ours})[:limit]

    async def drop_family(self, family: str) -> bool:
        is_dropped = await self._store.drop_family(family)
        if is_dropped:
            await self._blobs.drop_family(self._prefix + family)
        return is_dropped

    async def health(self) -> Health:
        health = await self._store.health()
        other = await self._blobs.health()
        problems = [*health.problems, *(f"its blobs: {each}" for each in other.problems)]
        return Health(
            store=health.store, facts={**health.facts, "blobs": self._name}, problems=problems
        )

    async def close(self) -> None:
        await self._store.close()
        await self._blobs.close()
