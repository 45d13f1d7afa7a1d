"""A failing store fails at the call that was named, and at no other."""

from __future__ import annotations

import pytest

from outlive.errors import StoreUnavailable
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry
from outlive.testing.crash.failing_store import CallFault, FailingStore
from outlive.testing.suite.entries import entry


class Killed(BaseException):
    """Stands in for the death of the process."""


def kill() -> None:
    raise Killed


def failing(fault: CallFault | None) -> tuple[FailingStore, list[Entry]]:
    witnessed: list[Entry] = []
    inner = MemoryStore(ports=Ports(), lease_seconds=1.0)
    return FailingStore(inner, fault, witness=witnessed.append, kill=kill), witnessed


async def test_without_a_fault_it_only_counts() -> None:
    """Every call goes through and is written down; what was acknowledged is witnessed."""
    store, witnessed = failing(None)

    await store.commit([entry("r", 0)])
    await store.read("r")

    assert ["commit", "read"] == store.calls
    assert ["r"] == [entry.run_id for entry in witnessed]


async def test_killed_before_nothing_has_happened() -> None:
    """Before the call the store knows nothing of it."""
    store, witnessed = failing(CallFault(number=2, when="before"))
    await store.commit([entry("r", 0)])

    with pytest.raises(Killed):
        await store.commit([entry("s", 0)])

    assert 1 == len(witnessed)
    assert await store.read("s") is None


async def test_killed_after_it_has_happened() -> None:
    """After the call the store has it, and it was witnessed."""
    store, witnessed = failing(CallFault(number=1, when="after"))

    with pytest.raises(Killed):
        await store.commit([entry("r", 0)])

    assert 1 == len(witnessed)
    assert await store.read("r") is not None


async def test_calls_of_one_verb_can_be_counted() -> None:
    """A fault at the second commit does not care how often the store was read."""
    store, _ = failing(CallFault(number=2, verb="commit"))
    await store.commit([entry("r", 0)])
    await store.read("r")
    await store.read("r")

    with pytest.raises(Killed):
        await store.commit([entry("s", 0)])


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_reply_is_lost(when: str) -> None:
    """The caller can't tell whether it was done."""
    fault = CallFault(number=1, when=when, how="reply_lost")  # type: ignore[arg-type]
    store, _ = failing(fault)

    with pytest.raises(StoreUnavailable):
        await store.commit([entry("r", 0)])

    assert (await store.read("r") is not None) == (when == "after")
