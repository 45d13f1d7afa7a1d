"""Blobs elsewhere: what is put as a stream goes into another store; all else stays where it was.

Chunks are durable there before the record that names them is written here, as they would be in
one store. Each of the two knows the other by an id that it keeps among its nodes, so that neither
a wrong place nor an empty one is taken for the right one. In the other store a family has the id of
this one in its name: several may share a place, and none clears away what is another's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from outlive.errors import StoreUnavailable, UsageError
from outlive.model.ids import OWN_PREFIX
from outlive.stores.seam import Store, delete_all
from outlive.stores.types import Deletion, Health, Node, Reading

#: The family of what two stores know of one another.
PLACES = f"{OWN_PREFIX}places"
#: Addresses that begin so are ours; those of chunks are hashes.
_OWN = b"outlive."
_ID, _BLOBS = b"outlive.id", b"outlive.blobs"

Entropy = Callable[[int], bytes]


class BlobLocation(msgspec.Struct, frozen=True):
    """Where a store keeps its blobs: the other's id, and what it is called."""

    id: str
    name: str


_decode = msgspec.msgpack.Decoder(BlobLocation).decode


async def place_of(store: Store) -> BlobLocation | None:
    """Where a store keeps its blobs; None: with all else."""
    found = await store.get_blobs(PLACES, [_BLOBS])
    return _decode(found[_BLOBS]) if found else None


async def check_here(store: Store) -> None:
    """Its blobs are where all else is.

    Raises:
        StoreUnavailable: they are elsewhere; the message says where.
    """
    place = await place_of(store)
    if place is not None:
        raise StoreUnavailable(
            f"this store keeps its blobs in {place.name}; set OUTLIVE_BLOBS to the URL of that"
        )


async def keep_elsewhere(store: Any, blobs: Any, name: str, entropy: Entropy) -> Store:
    """The store with its blobs in another one, which is found again by its id.

    Raises:
        StoreUnavailable: its blobs are in another place.
        UsageError: that is the store itself.
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
    """What a store is called by others; made when it is first asked for."""
    found = await store.get_blobs(PLACES, [_ID])
    if not found:
        await store.put_blob(PLACES, Node(_ID, entropy(8).hex().encode()))
        found = await store.get_blobs(PLACES, [_ID])
    return found[_ID].decode()


class BlobsElsewhere:
    """A store with the blobs of another; whatever it does not say itself, the first one does."""

    clock: Any
    commit: Any
    read: Any
    post: Any
    find: Any
    claim: Any
    beat: Any
    release: Any

    def __init__(self, store: Any, blobs: Any, prefix: str, name: str) -> None:
        self._store, self._blobs, self._prefix, self._name = store, blobs, prefix, name
        for verb in dir(store):
            if not verb.startswith("_") and not hasattr(type(self), verb):
                setattr(self, verb, getattr(store, verb))

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

    async def delete(self, run_id: str, *, seq: int, digest: bytes, keep_until: int) -> bool:
        one = Deletion(run_id=run_id, seq=seq, digest=digest, keep_until=keep_until)
        return (await self.delete_all([one]))[0]

    async def delete_all(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        """See ``Clearing``."""
        families: dict[str, str] = {}
        for each in batch:
            found: Reading | None = await self._store.read(each.run_id, 1 << 62, limit=0)
            if found is not None and found.header.family:
                families[each.run_id] = found.header.family
        answers: Sequence[bool] = await delete_all(self._store, batch)
        touched = {
            families[each.run_id]
            for each, is_gone in zip(batch, answers, strict=True)
            if is_gone and each.run_id in families
        }
        for family in await self._store.without_runs(sorted(touched)) if touched else ():
            # Killed before this, whoever looks for orphans does it.
            await self._blobs.drop_family(self._prefix + family)
        return answers

    async def families(self, after: str, limit: int) -> Sequence[str]:
        """See ``Collecting``."""
        prefix = self._prefix
        here = await self._store.families(after, limit)
        there = await self._blobs.families(prefix + after, limit)
        ours = [name[len(prefix) :] for name in there if name.startswith(prefix)]
        return sorted({*here, *ours})[:limit]

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        """See ``Collecting``."""
        found: Sequence[str] = await self._store.without_runs(families)
        return found

    async def drop_family(self, family: str) -> bool:
        """See ``Collecting``."""
        is_dropped: bool = await self._store.drop_family(family)
        if is_dropped:
            await self._blobs.drop_family(self._prefix + family)
        return is_dropped

    async def health(self) -> Health:
        health: Health = await self._store.health()
        other: Health = await self._blobs.health()
        problems = [*health.problems, *(f"its blobs: {each}" for each in other.problems)]
        return Health(
            store=health.store, facts={**health.facts, "blobs": self._name}, problems=problems
        )

    async def close(self) -> None:
        await self._store.close()
        await self._blobs.close()
