"""The ledger does to its callers what it is told to, and keeps its book straight."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path

import pytest

from outlive.testing.audit.auditor import Receipt
from outlive.testing.ledger import (
    ANSWERS,
    BREAKS_AFTER,
    BREAKS_BEFORE,
    HANGS_AFTER,
    HANGS_BEFORE,
    REFUSES,
    Ledger,
    Manner,
    ReceiverRefused,
    ReplyLost,
)

REQUEST = Receipt(run_id="r", effect="pay", key="k1")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


async def test_it_answers_and_remembers(ledger: Ledger) -> None:
    """What was done is found under its key, with the time at which it was."""
    done = await ledger.perform(REQUEST, ANSWERS)

    assert done == ledger.find("k1")
    assert [done] == ledger.receipts()
    assert ledger.find("k2") is None


async def test_a_key_counts_only_where_it_is_honoured(ledger: Ledger) -> None:
    """The same key again is done again, unless the receiver looks at keys."""
    await ledger.perform(REQUEST)
    await ledger.perform(REQUEST)
    assert 2 == len(ledger.receipts())

    await ledger.perform(REQUEST, honours_key=True)
    assert 2 == len(ledger.receipts())


@pytest.mark.parametrize(
    ("manner", "error", "count"),
    [(REFUSES, ReceiverRefused, 0), (BREAKS_BEFORE, ReplyLost, 0), (BREAKS_AFTER, ReplyLost, 1)],
)
async def test_it_raises_before_or_after(
    ledger: Ledger, manner: Manner, error: type[Exception], count: int
) -> None:
    """An error tells the caller nothing about the book, except a refusal."""
    with pytest.raises(error):
        await ledger.perform(REQUEST, manner)

    assert count == len(ledger.receipts())


@pytest.mark.parametrize(("manner", "count"), [(HANGS_BEFORE, 0), (HANGS_AFTER, 1)])
async def test_it_hangs_until_cancelled(ledger: Ledger, manner: Manner, count: int) -> None:
    """A hanging receiver has done it or not."""
    asking = asyncio.create_task(ledger.perform(REQUEST, manner))
    await asyncio.sleep(0)
    assert not asking.done()

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert count == len(ledger.receipts())


async def test_what_is_late_happens_without_its_caller(ledger: Ledger) -> None:
    """A late thing is not found at first, and nothing stops it."""
    with pytest.raises(ReplyLost):
        await ledger.perform(REQUEST, Manner(delay_seconds=2.0, then="break"))

    assert ledger.find("k1") is None
    assert 1 == len(ledger.receipts())


async def test_it_is_never_later_than_it_promised(ledger: Ledger) -> None:
    """A delay beyond what the receiver promises is refused."""
    with pytest.raises(ValueError, match="promises"):
        await ledger.perform(REQUEST, Manner(delay_seconds=6.0))


def test_a_torn_line_never_counted(tmp_path: Path) -> None:
    """A line that a death cut off is no receipt, and does not spoil the next."""
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"run_id": "r", "eff')

    Ledger(path).enter(REQUEST)

    assert ["k1"] == [each.key for each in Ledger(path).receipts()]


def _enter_many(path: str) -> None:
    for number in range(50):
        Ledger(path).enter(Receipt(run_id="r", effect="pay", key=f"k{number}"), honours_key=True)


def test_several_processes_share_one_book(tmp_path: Path) -> None:
    """Of several processes with the same keys, one per key gets its line in."""
    path = str(tmp_path / "ledger.jsonl")
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_enter_many, args=(path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [f"k{number}" for number in range(50)] == sorted(
        (each.key for each in Ledger(path).receipts()), key=lambda key: int(key[1:])
    )
