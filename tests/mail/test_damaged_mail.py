"""Mail that is not what was posted: found, kept aside, and the run goes on."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from outlive.app.open import open_app
from outlive.cli.entry import main
from outlive.envelope import disclose, enclose, enclose_old
from outlive.errors import StoreUnavailable, WrongVersion
from outlive.journal.mail import Unreadable, read_letter
from outlive.model.events import MailRead
from outlive.model.mail import Signal, encode_letter
from outlive.stores.postgres.schema import ENVELOPES_SINCE, MIGRATIONS
from outlive.stores.sqlite.schema import _UPGRADES as STEPS
from outlive.stores.types import Mail
from outlive.testing.suite.entries import post_one
from tests.harness.schemas import taken_back
from tests.mail.forger import Forger
from tests.mail.waiting_scene import PAID, events_of, found, paying, until_aside

EARLIER = "earlier"
LETTER = encode_letter(Signal("pay", b"1000", True))


def test_no_flipped_bit_is_believed() -> None:
    """Of the envelope, the digest and the letter; nor any cut."""
    whole = enclose("r", "signal/1", LETTER)
    flipped = [
        whole[:place] + bytes((whole[place] ^ 1 << bit,)) + whole[place + 1 :]
        for place in range(len(whole))
        for bit in range(8)
    ]

    assert LETTER == disclose("r", "signal/1", whole)
    for spoilt in [*flipped, *(whole[:end] for end in range(len(whole))), whole + b"x"]:
        mail = Mail(mail_id="signal/1", body=spoilt, posted_at=0)
        assert isinstance(read_letter("r", mail), Unreadable)


@pytest.mark.parametrize("place", [("r", "signal/2"), ("s", "signal/1"), ("rs", "ignal/1")])
def test_a_letter_counts_at_its_own_place_only(place: tuple[str, str]) -> None:
    """Moved to another run or id it is nothing."""
    assert disclose(*place, enclose("r", "signal/1", LETTER)) is None


@pytest.mark.parametrize("body", [b"", b"O", LETTER, "text", None, 7, b"\xff" * 40])
def test_what_is_not_in_an_envelope_is_damage(body: object) -> None:
    """Whatever a column holds, a driver can ask for it."""
    mail = Mail(mail_id="m", body=body, posted_at=0)  # type: ignore[arg-type]

    assert isinstance(read_letter("r", mail), Unreadable)


def test_only_what_is_bare_is_put_into_an_envelope() -> None:
    """What is sealed is bound to its place already."""
    assert enclose("r", "m", LETTER) == enclose_old("r", "m", LETTER)
    assert b"Ol sealed" == enclose_old("r", "m", b"Ol sealed")


async def begin(forger: Forger, *amounts: int, key: str = "") -> None:
    """A run that is told to pay, and has not read it."""
    PAID.clear()
    async with open_app(forger.url, key=key) as app:
        await app.start(paying, id="p")
    async with open_app(forger.url, key=key, drive=False) as app:
        for amount in amounts:
            await (await app.get("p")).signal("pay", amount, id=f"pay-{amount}")


async def test_a_flipped_bit_pays_nothing(forger: Forger) -> None:
    """1000 is not paid as 9192, and the letter behind it is read."""
    await begin(forger, 1000, 3)
    body = forger.body("p", "signal/pay-1000")
    place = random.randrange(len(body))
    spoilt = body[:place] + bytes((body[place] ^ 1 << random.randrange(8),)) + body[place + 1 :]
    forger.put("p", "signal/pay-1000", spoilt)

    async with open_app(forger.url, drive=False) as app:
        (why,) = await found(app)
        assert why.startswith("mail 'signal/pay-1000' can't be read: its checksum does not hold")
    async with open_app(forger.url) as app, app.worker([paying]):
        (aside,) = await until_aside(app, 1, "p")
        assert ("signal/pay-1000", spoilt) == (aside.mail_id, aside.unreadable)
        await (await app.get("p")).signal("pay", 0)
        assert 3 == await (await app.get("p", paying)).outcome()
    assert [3] == PAID


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_a_whole_letter_of_an_unknown_kind_is_kept_aside(
    forger: Forger, key: str, sealed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """As all that can't be read: named by run and id, and the run goes on."""
    await begin(forger, 3, key=key if sealed else "")
    keys = {"key": key} if sealed else {}
    async with open_app(forger.url, **keys, drive=False) as app:
        body = enclose("p", "signal/new", msgspec.msgpack.encode([99, "pay", b"5"]))
        assert "posted" == await post_one(app.store, "p", "signal/new", body)

    async with open_app(forger.url, **keys) as app, app.worker([paying]):
        (aside,) = await until_aside(app, 1, "p")
        assert "signal/new" == aside.mail_id
        assert "this release does not know its kind" in aside.why
        await (await app.get("p")).signal("pay", 0)
        assert 3 == await (await app.get("p", paying)).outcome()
        assert any("mail 'signal/new' was kept aside" in why for why in await found(app))
    assert [3] == PAID


async def test_swapped_bodies_pay_nothing(
    forger: Forger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is at the place of the other; `show` and `verify` name both."""
    await begin(forger, 1, 2)
    one, two = (forger.body("p", f"signal/pay-{amount}") for amount in (1, 2))
    forger.put("p", "signal/pay-1", two)
    forger.put("p", "signal/pay-2", one)

    async with open_app(forger.url) as app, app.worker([paying]):
        await until_aside(app, 2, "p")
        await (await app.get("p")).signal("pay", 0)
        assert 0 == await (await app.get("p", paying)).outcome()

    for command in (["show", "p"], ["verify"], ["verify", "p"]):
        assert 3 == await asyncio.to_thread(main, [*command, "--store", forger.url])
        said = capsys.readouterr()
        for amount in (1, 2):
            assert f"mail 'signal/pay-{amount}' was kept aside" in said.out + said.err
    assert not PAID


async def test_letters_under_way_are_taken_along(forger: Forger) -> None:
    """An upgrade puts them into envelopes; a bare letter that comes later is damage."""
    await begin(forger, 4, 5)
    make_old(forger, {4: LETTER.replace(b"1000", b"   4"), 5: b"\xc1 no letter"})

    with pytest.raises(WrongVersion, match="`outlive worker` brings it up to date"):
        open_app(forger.url, drive=False)
    async with open_app(forger.url) as app, app.worker([paying]):
        while not PAID:
            await asyncio.sleep(0.01)
        forger.post("p", "signal/bare", LETTER)
        aside = await until_aside(app, 2, "p")
        events = await events_of(app, "p")
    assert [4] == PAID
    assert ["signal/pay-5", "signal/bare"] == [event.mail_id for event in aside]
    assert "it is not a letter" in aside[0].why
    assert 2 == len([event for event in events if isinstance(event, MailRead)])


async def test_sealed_letters_under_way_stay_as_they_are(forger: Forger, key: str) -> None:
    """They are bound to their place, and nobody has to open them."""
    await begin(forger, 4, key=key)
    make_old(forger, {})
    sealed = forger.body("p", "signal/pay-4")

    async with open_app(forger.url, key=key) as app:
        assert sealed == forger.body("p", "signal/pay-4")
        async with app.worker([paying]):
            while not PAID:
                await asyncio.sleep(0.01)
    assert [4] == PAID


async def test_tables_do_not_change_under_a_worker(forger: Forger) -> None:
    """It is named; when it is gone, the next one brings them up to date."""
    await begin(forger)
    async with open_app(forger.url) as app, app.worker([paying]):
        await asyncio.sleep(0.05)
        now = set_schema(forger, EARLIER)
        with pytest.raises(StoreUnavailable, match="workers of it are alive"):
            open_app(forger.url)
        set_schema(forger, now)
    make_old(forger, {})
    async with open_app(forger.url):
        assert now == set_schema(forger, now)


def make_old(forger: Forger, bodies: dict[int, bytes]) -> None:
    """The store as the schema before envelopes had it."""
    for amount, body in bodies.items():
        forger.put("p", f"signal/pay-{amount}", body)
    is_file = forger.url.startswith("sqlite")
    later = STEPS[5] if is_file else MIGRATIONS[ENVELOPES_SINCE + 1]
    for undone in taken_back(later):
        forger.sql(undone)
    if not is_file:
        forger.sql("DROP FUNCTION {s}post_v2")
        forger.sql(
            "CREATE FUNCTION {s}post_v1(text, text, bytea, bytea, bigint)"
            " RETURNS void LANGUAGE sql AS $$ $$"
        )
    set_schema(forger, EARLIER)


def set_schema(forger: Forger, version: str) -> str:
    """Let the store name this schema, or that before envelopes; the one that it named."""
    if version == EARLIER:
        version = "4" if forger.url.startswith("sqlite") else str(ENVELOPES_SINCE - 1)
    ((before,),) = forger.sql("SELECT value FROM {s}meta WHERE name = 'outlive.schema'")
    forger.sql("UPDATE {s}meta SET value = %s WHERE name = 'outlive.schema'", version)
    return str(before)
