"""What is sealed opens only where it belongs, even where no chain of records would notice."""

from __future__ import annotations

import os

from outlive.journal.record import SEAL_BROKEN
from outlive.journal.seal.keys import MasterKeys, new_key
from outlive.journal.seal.sealed_store import SealedStore
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Node, StoredRecord
from outlive.testing.suite.entries import entry, header, post_one

KEYS = MasterKeys.parse(new_key(os.urandom), os.urandom)


async def test_a_record_opens_at_its_own_seq_only() -> None:
    """The data key is the same; the place is not."""
    disk = MemoryStore(ports=Ports(), lease_seconds=60)
    store = SealedStore(disk, KEYS)
    await store.commit([entry("r", 0, header=header(family="r"))])
    reading = await disk.read("r")
    assert reading is not None
    (record,) = reading.records

    async def opened(run_id: str, seq: int) -> bytes:
        return await store._open_record(run_id, "r", StoredRecord(seq, record.body))

    assert SEAL_BROKEN != await opened("r", 1)
    assert SEAL_BROKEN == await opened("r", 2)
    assert SEAL_BROKEN == await opened("another", 1)


async def test_mail_opens_under_its_own_id_only() -> None:
    """Bodies that changed places are not what was posted."""
    disk = MemoryStore(ports=Ports(), lease_seconds=60)
    store = SealedStore(disk, KEYS)
    await store.commit([entry("r", 0, header=header(family="r"))])
    await post_one(store, "r", "yes", b"approved")
    below = await disk.read("r")
    assert below is not None
    sealed = below.mail[0].body

    await post_one(disk, "r", "no", sealed)
    reading = await store.read("r")

    assert reading is not None
    opened = {mail.mail_id: (mail.body, mail.is_sealed) for mail in reading.mail}
    assert {"yes": (b"approved", True), "no": (sealed, False)} == opened
    refused = {mail.mail_id: mail.refused for mail in reading.mail}
    assert "" == refused["yes"]
    assert refused["no"].startswith("its seal does not hold")


async def test_a_node_opens_in_its_own_family_and_at_its_own_address_only() -> None:
    """What lies elsewhere is left as it is, so that its hash tells."""
    disk = MemoryStore(ports=Ports(), lease_seconds=60)
    store = SealedStore(disk, KEYS)
    await store.commit([entry("r", 0, header=header(family="r"), nodes=(Node(b"a", b"one"),))])
    await store.commit([entry("r", 1, nodes=(Node(b"b", b"two"),))])
    veil = await store.keyring.veil()
    nodes, here, there = disk._nodes["r"], veil.address(b"a", "r"), veil.address(b"b", "r")
    nodes[here], nodes[there] = nodes[there], nodes[here]

    found = await store.get_blobs("r", [b"a", b"b"])

    assert not {b"one", b"two"} & set(found.values())
