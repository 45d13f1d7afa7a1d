"""Changing the master key, and erasing a family: killed anywhere, begun again, done."""

from __future__ import annotations

import os
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import StoreUnavailable, UsageError, WrongKey
from outlive.journal.seal.keys import MasterKeys
from outlive.journal.seal.rekey import erase, rekey
from outlive.journal.seal.sealed_store import SealedStore
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Query
from outlive.testing.crash.failing_store import CallFault, FailingStore
from tests.conftest import Figure


class Killed(Exception):
    """This process would be gone."""


@outlive.flow
async def leaf(word: str) -> str:
    return word


@outlive.flow
async def tree(word: str) -> str:
    return await outlive.call(leaf, word)


def opened(disk: Any, *keys: str) -> SealedStore:
    return SealedStore(disk, MasterKeys.parse(",".join(keys), os.urandom))


async def grown(key: str) -> MemoryStore:
    """A store with families of their own keys."""
    disk = MemoryStore(ports=Ports(), lease_seconds=60)
    app = App(opened(disk, key))
    for number in range(3):
        await (await app.start(tree, f"word {number}", id=f"r{number}")).outcome()
    await app._workers.stop()
    return disk


async def words(disk: MemoryStore, *keys: str) -> list[str]:
    """What the runs returned, for whoever has these keys."""
    app = App(opened(disk, *keys), drive=False)
    return [await (await app.get(f"r{n}", tree)).outcome() for n in range(3)]


async def test_after_a_rekey_only_the_new_key_opens(key: str, other_key: str) -> None:
    """Nothing is rewritten but what wraps the data keys."""
    disk = await grown(key)
    told: list[str] = []

    assert 4 == await rekey(opened(disk, other_key, key), told.append)

    assert ["r0", "r1", "r2"] == sorted(told)
    assert [f"word {n}" for n in range(3)] == await words(disk, other_key)
    with pytest.raises(WrongKey):
        await words(disk, key)
    assert 0 == await rekey(opened(disk, other_key), told.append)


def strike() -> None:
    raise Killed


async def test_a_killed_rekey_is_begun_again(key: str, other_key: str, figure: Figure) -> None:
    """Whatever call it died at, both keys open everything until it is done, then the new one."""
    faults, killed = [], 0
    calls = FailingStore(await grown(key))
    await rekey(opened(calls, other_key, key), lambda family: None)
    for number in range(1, len(calls.calls) + 1):
        faults += [CallFault(number=number, when=when) for when in ("before", "after")]
    for fault in faults:
        disk = await grown(key)
        failing = FailingStore(disk, fault, kill=strike)
        with pytest.raises((Killed, StoreUnavailable)):
            await rekey(opened(failing, other_key, key), lambda family: None)
        killed += 1

        assert [f"word {n}" for n in range(3)] == await words(disk, other_key, key)
        await rekey(opened(disk, other_key, key), lambda family: None)
        assert [f"word {n}" for n in range(3)] == await words(disk, other_key)

    figure("sealed: rekey killed and begun again", killed)
    assert killed > 0


async def test_an_erased_family_is_gone_and_its_ids_stay_taken(key: str) -> None:
    """Children go with their parent; other families stay."""
    disk = await grown(key)

    erased = await erase(opened(disk, key), "r1", keep_until=1 << 60)

    assert 2 == len(erased)
    assert not disk._nodes.get("r1")
    left = [found.head.run_id for found in (await opened(disk, key).find(Query())).items]
    assert not set(erased) & set(left)
    app = App(opened(disk, key), drive=False)
    assert "word 0" == await (await app.get("r0", tree)).outcome()


async def test_a_killed_erasure_is_begun_again(key: str) -> None:
    """The key goes first: nothing that is left can be read."""
    calls = FailingStore(await grown(key))
    await erase(opened(calls, key), "r1", keep_until=1 << 60)
    assert calls.calls
    for number in range(1, len(calls.calls) + 1):
        disk = await grown(key)
        failing = FailingStore(disk, CallFault(number=number), kill=strike)
        with pytest.raises((Killed, StoreUnavailable)):
            await erase(opened(failing, key), "r1", keep_until=1 << 60)
        await erase(opened(disk, key), "r1", keep_until=1 << 60)
        found = await opened(disk, key).find(Query())
        assert not [each for each in found.items if each.header.family == "r1"]
        assert [f"word {n}" for n in (0, 2)] == [
            await (await App(opened(disk, key), drive=False).get(f"r{n}", tree)).outcome()
            for n in (0, 2)
        ]


async def test_what_goes_on_is_not_erased(key: str) -> None:
    """Cancel it first."""
    disk = MemoryStore(ports=Ports(), lease_seconds=60)
    app = App(opened(disk, key), drive=False)
    await app.submit(tree, "word", id="r")

    with pytest.raises(UsageError, match="has not ended"):
        await erase(opened(disk, key), "r", keep_until=0)
