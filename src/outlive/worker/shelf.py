"""Where the blobs of one family are kept: the store itself."""

from __future__ import annotations

from outlive.journal.immediate import run_immediate
from outlive.journal.lane import Lane
from outlive.store import Node, Store


class StoreShelf:
    """Chunks of one family as nodes of the store."""

    def __init__(self, store: Store, lane: Lane, family: str) -> None:
        self._store, self._lane, self.family = store, lane, family

    async def put(self, node: Node) -> None:
        """Durable when this returns."""
        await self._lane(self._store.put_blob(self.family, node))

    async def get(self, family: str, address: bytes) -> bytes | None:
        """A node's bytes."""
        found = await self._lane(self._store.get_blobs(family, [address]))
        return found.get(address)

    def put_plain(self, node: Node) -> None:
        """The same, from a thread of its own."""
        run_immediate(self._store.put_blob(self.family, node))

    def get_plain(self, family: str, address: bytes) -> bytes | None:
        """The same, from a thread of its own."""
        return run_immediate(self._store.get_blobs(family, [address])).get(address)
