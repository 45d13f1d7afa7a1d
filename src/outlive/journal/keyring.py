"""The keys of a sealed store: one secret for all that it compares, a data key per family.

Data keys are nodes of their family, wrapped by a master key. Which of them sealed a thing is said
by the thing itself, so a key is never guessed and never replaced. Each has two places; to change
its wrapping, the free one is filled before the other is emptied, so that a kill in between loses
nothing. Whoever drops both has erased what the key sealed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from outlive.errors import CorruptRecord
from outlive.journal.key_places import COMMON, SECRET_ID, key_places
from outlive.journal.master_keys import KEY_BYTES, MasterKeys
from outlive.journal.seal import Seal, Veil
from outlive.store import Node, Query, Store

_SEALS_MAX = 10_000


class Keyring:
    """Finds keys, makes them, and changes what wraps them."""

    def __init__(self, store: Store, keys: MasterKeys) -> None:
        self._store, self._keys = store, keys
        self._veil: Veil | None = None
        #: Nothing in the store was ever written without a seal.
        self.is_pure = False
        self._seals: dict[tuple[str, bytes], Seal] = {}
        self._lock = threading.Lock()

    async def veil(self) -> Veil:
        """What hides that which the store compares; made when the store is sealed first."""
        if self._veil is None:
            found = await self._wrapped(COMMON, SECRET_ID)
            if not found:
                await self._make_secret()
                found = await self._wrapped(COMMON, SECRET_ID)
            secret = self._keys.unwrap(found, _place(COMMON, SECRET_ID), "this store")
            self.is_pure = secret[KEY_BYTES:] == b"pure"
            self._veil = Veil(secret[:KEY_BYTES])
        return self._veil

    async def _make_secret(self) -> None:
        is_empty = not (await self._store.find(Query(), limit=1)).items
        secret = self._keys.entropy(KEY_BYTES) + (b"pure" if is_empty else b"")
        await self._store.put_blob(COMMON, self._node(COMMON, SECRET_ID, secret))

    def new_seal(self, family: str) -> tuple[Seal, Node]:
        """A data key, and the node that must be stored with what it seals first."""
        seal = Seal.new(self._keys.entropy)
        self._remember(family, seal)
        return seal, self._node(family, seal.id, seal.secret)

    async def seal(self, family: str, key_id: bytes) -> Seal | None:
        """The data key of that id; None: it is gone.

        Raises:
            WrongKey: it is there and wrapped with another master key.
        """
        known = self._seals.get((family, key_id)) if family else (await self.veil()).common
        if known is not None:
            return known
        found = await self._wrapped(family, key_id)
        if not found:
            return None
        what = f"family {family}"
        seal = Seal(self._keys.unwrap(found, _place(family, key_id), what))
        if seal.id != key_id:
            raise CorruptRecord(family, 1, f"its data key is not {key_id.hex()}")
        self._remember(family, seal)
        return seal

    async def rewrap(self, family: str, key_id: bytes) -> bool:
        """Have the current master key, and no other, wrap this data key; False: it does already."""
        places = key_places(key_id)
        found = await self._store.get_blobs(family, places)
        old = [address for address, body in found.items() if not self._keys.is_current(body)]
        if not old:
            return False
        place = _place(family, key_id)
        if len(old) == len(found):
            secret = self._keys.unwrap(list(found.values()), place, f"family {family}")
            free = [address for address in places if address not in found] or old[:1]
            if free == old[:1]:
                await self._store.drop_blobs(family, free)
            await self._store.put_blob(family, Node(free[0], self._keys.wrap(secret, place)))
            old = [address for address in old if address != free[0]]
        await self._store.drop_blobs(family, old)
        return True

    async def rewrap_secret(self) -> bool:
        """The same for what belongs to no run."""
        return await self.rewrap(COMMON, SECRET_ID)

    async def erase(self, family: str, key_id: bytes) -> None:
        """Drop a data key: what it sealed is gone for good."""
        await self._store.drop_blobs(family, key_places(key_id))
        with self._lock:
            self._seals.pop((family, key_id), None)

    async def _wrapped(self, family: str, key_id: bytes) -> Sequence[bytes]:
        places = key_places(key_id)
        return list((await self._store.get_blobs(family, places)).values())

    def _node(self, family: str, key_id: bytes, secret: bytes) -> Node:
        return Node(key_places(key_id)[0], self._keys.wrap(secret, _place(family, key_id)))

    def _remember(self, family: str, seal: Seal) -> None:
        with self._lock:
            while len(self._seals) >= _SEALS_MAX:
                del self._seals[next(iter(self._seals))]
            self._seals[family, seal.id] = seal


def _place(family: str, key_id: bytes) -> bytes:
    return b"key\0" + key_id + family.encode()
