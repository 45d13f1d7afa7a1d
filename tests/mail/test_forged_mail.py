"""Whoever has a sealed store's file and no key can't say anything to a run."""

from __future__ import annotations

import asyncio
import logging

import pytest

from outlive.app.open import open_app
from outlive.envelope import enclose
from outlive.errors import CorruptRecord
from outlive.model.events import Answered, SignalReceived
from outlive.model.mail import encode_letter
from outlive.stores.transactions import Attempt
from tests.mail.forger import Forger
from tests.mail.waiting_scene import (
    PAID,
    events_of,
    forged_letters,
    found,
    moved,
    paying,
    paying_by_chapters,
    sleeper,
    until_aside,
    until_waiting,
    waiting,
)

FLOWS = [waiting, paying, sleeper]


@pytest.mark.parametrize("form", ["enclosed", "bare"])
async def test_a_sealed_run_takes_no_plain_mail(
    forger: Forger, key: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers, signals, news of children, words on doubts, cancellations: each is kept aside."""
    async with open_app(forger.url, key=key) as app:
        letters = forged_letters(await until_waiting(app))
    for mail_id, letter in letters.items():
        body = encode_letter(letter)
        forger.post("r", mail_id, enclose("r", mail_id, body) if form == "enclosed" else body)
    forger.sql("UPDATE {s}runs SET format = 1 WHERE run_id = %s", "r")

    async with open_app(forger.url, key=key, drive=False) as app:
        told = await found(app)
        assert all(any(repr(mail_id) in why for why in told) for mail_id in letters), told
        assert any("format is -255" in why for why in told)
    with caplog.at_level(logging.ERROR, "outlive"):
        async with open_app(forger.url, key=key) as app, app.worker(FLOWS):
            aside = await until_aside(app, len(letters))
            events = await events_of(app)
            assert not moved(events)
            assert set(letters) == {event.mail_id for event in aside}

            handle = await app.get("r", waiting)
            await handle.answer(True)
            await handle.signal("go", 1)
            while len(moved(await events_of(app))) < 2:
                await asyncio.sleep(0.01)
            kinds = {type(event) for event in moved(await events_of(app))}
            assert {Answered, SignalReceived} == kinds
            told = await found(app)
    assert len(letters) == len([why for why in told if "was kept aside" in why]) == len(told)
    logged = [record.message for record in caplog.records if "kept aside" in record.message]
    assert len(letters) == len(logged)


async def test_a_letter_that_was_read_does_not_count_again(forger: Forger, key: str) -> None:
    """Its seal holds, and the journal knows it."""
    PAID.clear()
    async with open_app(forger.url, key=key) as app:
        await app.start(paying, id="p")
    async with open_app(forger.url, key=key, drive=False) as app:
        await (await app.get("p")).signal("pay", 5, id="one")
        sealed = forger.body("p", "signal/one")
    async with open_app(forger.url, key=key) as app, app.worker(FLOWS):
        while not PAID:
            await asyncio.sleep(0.01)
    forger.put("p", "signal/one", sealed)
    forger.sql("UPDATE {s}runs SET consumed = consumed - 1 WHERE run_id = %s", "p")

    async with open_app(forger.url, key=key, drive=False) as app:
        assert ["mail 'signal/one' was read before: it was put back"] == await found(app)
    async with open_app(forger.url, key=key) as app, app.worker(FLOWS):
        (aside,) = await until_aside(app, 1, "p")
        assert "read before" in aside.why
        await (await app.get("p", paying)).signal("pay", 0)
        assert 5 == await (await app.get("p", paying)).outcome()
    assert [5] == PAID


@pytest.mark.parametrize("restarts", [True, False], ids=["when loaded", "while driven"])
async def test_a_letter_of_an_earlier_chapter_does_not_count_again(
    forger: Forger, key: str, restarts: bool
) -> None:
    """Put back into a sealed store, it is kept aside and named, and the run goes on."""
    PAID.clear()
    async with open_app(forger.url, key=key) as app:
        await app.start(paying_by_chapters, id="p")
    async with open_app(forger.url, key=key, drive=False) as app:
        await (await app.get("p")).signal("pay", 5, id="one")
        sealed = forger.body("p", "signal/one")
    async with open_app(forger.url, key=key) as app, app.worker([paying_by_chapters]):
        handle = await app.get("p", paying_by_chapters)
        for amount in (6, 7):
            while amount - 1 not in PAID:
                await asyncio.sleep(0.01)
            await handle.signal("pay", amount)
        while 7 not in PAID:
            await asyncio.sleep(0.01)
        if not restarts:
            put_back(forger, "signal/one", sealed)
            await until_aside(app, 1, "p")
    if restarts:
        put_back(forger, "signal/one", sealed)

    async with open_app(forger.url, key=key) as app, app.worker([paying_by_chapters]):
        (aside,) = await until_aside(app, 1, "p")
        assert ("signal/one", "can't be read: it was read before: somebody put it back") == (
            aside.mail_id,
            aside.why,
        )
        handle = await app.get("p", paying_by_chapters)
        await handle.signal("pay", 0)
        assert 18 == await handle.outcome()
        assert any("mail 'signal/one' was kept aside" in why for why in await found(app))
    assert [5, 6, 7] == PAID


def put_back(forger: Forger, mail_id: str, body: bytes) -> None:
    """As if it had not been consumed."""
    forger.put("p", mail_id, body)
    forger.sql("UPDATE {s}runs SET consumed = consumed - 1 WHERE run_id = %s", "p")


async def test_a_forged_outcome_of_a_transactional_step_is_refused(
    forger: Forger, key: str
) -> None:
    """A row without the run's seal is damage, not an outcome."""
    async with open_app(forger.url, key=key) as app:
        await app.start(paying, id="p")
    forger.sql(
        "INSERT INTO {s}outcomes (run_id, step, seq, epoch, body) VALUES (%s, %s, 1, 1, %s)",
        "p",
        "0/pay#1",
        b"\x01forged",
    )

    async with open_app(forger.url, key=key, drive=False) as app:
        transactions = app.store.transactions
        assert transactions is not None
        with pytest.raises(CorruptRecord, match="the seal of an outcome does not hold"):
            await transactions.outcome_of(Attempt(run_id="p", step="0/pay#1", seq=1, epoch=1))
