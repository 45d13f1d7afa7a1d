"""Runs that kill their drivers: counted, watched one at a time, put aside, given new chances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

import outlive
from outlive.errors import RunQuarantined
from outlive.model.events import MailRead
from outlive.model.run import Run
from outlive.stores.types import Head, Header, Offer, Reading
from outlive.worker.chapters import EVENTS_AT_ONCE, Chapter
from outlive.worker.poison import Probation
from tests.harness.theatre import QUICK, Theatre


@pytest_asyncio.fixture
async def theatre() -> AsyncIterator[Theatre]:
    made = Theatre(QUICK, in_real_time=True)
    yield made
    await made.close()


async def make_poison(theatre: Theatre, flow: outlive.Flow[[], Any]) -> None:
    """Claim a run again and again, and die before anything comes of it."""
    for _ in range(5):
        app = theatre.open()
        await app.start(flow, id="poison")
        (worker,) = app._workers.here
        await theatre.until(lambda worker=worker: worker.driving)
        await theatre.crash(app)


@outlive.step
async def never() -> str:
    await asyncio.sleep(3600)
    return "never"


@outlive.flow
async def hopeless() -> str:
    return await never()


async def test_five_claims_without_an_outcome_are_enough(theatre: Theatre) -> None:
    """The sixth worker does not drive the run; it says why."""
    await make_poison(theatre, hopeless)
    app = theatre.open()
    handle = await app.get("poison")

    async with app.worker([hopeless]):
        with pytest.raises(RunQuarantined, match="claimed 5 times"):
            await handle.outcome(timeout=5)
        await asyncio.sleep(0.1)
        assert "quarantined" == await handle.status()


async def test_a_quarantined_run_stays_so_though_it_has_mail(theatre: Theatre) -> None:
    """Mail that it never came to read does not set it free again."""
    await make_poison(theatre, hopeless)
    app = theatre.open()
    await app.nudge("poison", "posted while it was dying")
    handle = await app.get("poison")

    async with app.worker([hopeless]):
        while "quarantined" != await handle.status():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert "quarantined" == await handle.status()

    assert any(isinstance(event, MailRead) for event in await handle.read())


async def test_starting_a_quarantined_run_gives_it_new_chances(theatre: Theatre) -> None:
    """Whoever starts it by hand gets what comes of it, not the old verdict."""
    await make_poison(theatre, hopeless)
    app = theatre.open()
    async with app.worker([hopeless]):
        while "quarantined" != await (await app.get("poison")).status():
            await asyncio.sleep(0.01)

    again = theatre.open()
    handle = await again.start(hopeless, id="poison")

    with pytest.raises(outlive.errors.TimedOut):
        await handle.outcome(timeout=0.5)
    assert "running" == await handle.status()
    await again.aclose()


# ---------------------------------------------------------------- probation


def offer(run_id: str, seq: int = 1, worker: str | None = "dead") -> Offer:
    head = Head(run_id=run_id, seq=seq, epoch=1, link=b"", worker=worker)
    header = Header(flow="f", version="1", format=1, status="running", family=run_id, started_at=0)
    return Offer(head=head, header=header, certain=True)


class Looked:
    """How barren each run is; counts how often it was asked."""

    def __init__(self, barren: dict[str, int], seq: int = 1) -> None:
        self.barren, self.asked, self.seq = barren, 0, seq

    async def __call__(self, run_ids: Sequence[str]) -> dict[str, Chapter]:
        self.asked += len(run_ids)
        return {run_id: self._chapter(run_id) for run_id in run_ids}

    def _chapter(self, run_id: str) -> Chapter:
        there = offer(run_id, seq=self.seq)
        reading = Reading(head=there.head, header=there.header, records=(), mail=())
        return Chapter(reading, [], Run(seq=self.seq, barren=self.barren[run_id]))


async def admitted(probation: Probation, *offers: Offer, has_suspect: bool = False) -> list[str]:
    found = await probation.admit(offers, has_suspect=has_suspect)
    return [each.head.run_id for each in found]


async def test_one_suspect_at_a_time() -> None:
    """The others wait; whoever is above suspicion, or was handed over alive, does not."""
    probation = Probation(Looked({"a": 2, "b": 3, "clean": 1, "fresh": 0}))
    offers = [offer("a"), offer("b"), offer("clean"), offer("fresh"), offer("own", worker=None)]

    assert ["a", "clean", "fresh", "own"] == await admitted(probation, *offers)
    assert 1 == probation.waiting
    assert ["clean", "fresh", "own"] == await admitted(probation, *offers, has_suspect=True)
    assert 2 == probation.waiting
    assert [] == await admitted(probation)
    assert 0 == probation.waiting


async def test_a_suspect_that_waits_is_read_once() -> None:
    """Until its journal moves on."""
    looked = Looked({"a": 2})
    probation = Probation(looked)
    for _ in range(3):
        await admitted(probation, offer("a"), has_suspect=True)
    assert 1 == looked.asked

    looked.seq = 2
    await admitted(probation, offer("a", seq=2), has_suspect=True)
    assert 2 == looked.asked


async def test_what_was_read_of_those_admitted_is_kept_for_whoever_claims_them() -> None:
    """A suspect that has to wait is read again when its turn comes: it may be long."""
    probation = Probation(Looked({"a": 2, "b": 2, "clean": 0}))

    await admitted(probation, offer("a"), offer("b"), offer("clean"))

    assert {"a", "clean"} == set(probation.chapters)


async def test_a_run_that_moved_on_since_it_was_offered_is_left_alone() -> None:
    """Somebody else was faster: its claim would be refused anyway."""
    looked = Looked({"a": 0})
    looked.seq = 2

    assert [] == await admitted(Probation(looked), offer("a", seq=1))


async def test_more_than_fits_into_memory_is_read_in_portions() -> None:
    """The rest comes with the next look, and there is one at once."""
    probation = Probation(Looked({"a": 0, "b": 0}, seq=EVENTS_AT_ONCE))
    offers = [offer("a", seq=EVENTS_AT_ONCE), offer("b", seq=EVENTS_AT_ONCE)]

    assert (["a"], True) == (await admitted(probation, *offers), probation.has_more)
    assert (["a", "b"], False) == (await admitted(probation, *offers), probation.has_more)
