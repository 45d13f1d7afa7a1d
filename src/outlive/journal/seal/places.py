"""Where a sealed store keeps its wrapped keys: needed by those, too, who have none."""

from __future__ import annotations

from outlive.stores.seam import Store

#: The family of what belongs to no run.
COMMON = "outlive.seal"
#: What the store's secret is called among the data keys.
SECRET_ID = bytes(8)
#: A wrapped key begins with the id of the master key that wraps it.
MASTER_ID_BYTES = 4
#: The wrapped key at the beginning of a sealed archive file.
WRAPPED_BYTES = 64


def key_places(key_id: bytes) -> list[bytes]:
    """The two addresses of a wrapped key; one of them is free, unless it is being rewrapped."""
    return [b"outlive.key.%d." % slot + key_id for slot in (0, 1)]


async def sealed_with(store: Store) -> list[str]:
    """The ids of the master keys that a store is sealed with; none: it is not sealed."""
    wrapped = await store.get_blobs(COMMON, key_places(SECRET_ID))
    return sorted(body[:MASTER_ID_BYTES].hex() for body in wrapped.values())


def is_sealed(store: Store) -> bool:
    """Whether what goes through this store is sealed; what seals is not imported to know."""
    return hasattr(store, "keyring")
