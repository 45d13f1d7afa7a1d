"""The third seam: stores that can be cleared of many journals at once.

Whoever clears a store away looks at thousands of runs that nobody will look at again. One by one
that is a flush for each; together it is one for all. A store that can't do it is asked one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from outlive.store import Reading, Store


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """An ended run that may go, as somebody saw it: it goes only if it still is so."""

    run_id: str
    #: Where it ended when it was looked at.
    seq: int
    #: What its tombstone says, and how long that stands.
    digest: bytes
    keep_until: int


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
