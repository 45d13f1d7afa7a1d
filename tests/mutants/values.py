"""Mutants of the rules by which values are stored once, and the small tests that kill them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from outlive.errors import CorruptRecord
from outlive.journal.codec import restore as restored
from outlive.journal.codec import values
from outlive.journal.codec.deltas import Atom, Delta
from outlive.journal.codec.values import Values, opened
from outlive.stores.memory import MemoryStore
from tests.values.test_stored_once import CountingStore, Writer, values_in


def hash_not_verified(patch: pytest.MonkeyPatch) -> None:
    """A node is taken for what its address says."""
    patch.setattr(restored, "payload_of", lambda address, body: opened(body))


def node_without_its_commit(patch: pytest.MonkeyPatch) -> None:
    """A record names nodes that its commit does not bring."""
    real = Values.take_nodes

    def take_nodes(self: Values) -> tuple[Any, ...]:
        return real(self)[1:]

    patch.setattr(Values, "take_nodes", take_nodes)


def boundaries_by_position(patch: pytest.MonkeyPatch) -> None:
    """Pieces are looked for only where they were."""

    def difference(old: bytes, new: bytes, atom: Atom) -> Delta:
        delta: Delta = []
        for at in range(0, len(new), 64):
            piece = new[at : at + 64]
            delta += (at, len(piece)) if old[at : at + 64] == piece else (piece,)
        return delta

    patch.setattr(values, "difference", difference)


def nodes_are_verified(folder: Path) -> None:
    """A node that holds something else is never a value."""
    store = MemoryStore()
    Writer(store).step(["a" * 600, "b" * 600], None)
    kept = store._nodes["family"]
    (one, body), (_, other) = list(kept.items())[:2]
    assert body != other
    kept[one] = other

    with pytest.raises(CorruptRecord):
        values_in(store)


def nodes_travel_with_their_record(folder: Path) -> None:
    """Whatever a record names is there when the record is."""
    store = MemoryStore()
    Writer(store).step({"messages": ["a" * 600, "b" * 600]}, "c" * 600)

    assert [({"messages": ["a" * 600, "b" * 600]}, "c" * 600)] == values_in(store)


def what_is_new_does_not_depend_on_its_place(folder: Path) -> None:
    """A message at the front of a long list costs what one at its end does."""
    rng, store = random.Random(1), CountingStore()
    writer = Writer(store)
    messages = [{"role": "user", "content": f"{rng.random()}" * 40} for _ in range(200)]
    writer.step(messages, None)
    store.brought.clear()

    for _ in range(8):
        messages.insert(0, {"role": "user", "content": f"{rng.random()}" * 40})
        writer.step(messages, None)

    written = sum(len(record.body) for record in store._journals["r"].records[-8:])
    brought = sum(len(node.body) for node in store.brought)
    assert written + brought < 8 * 1_400
