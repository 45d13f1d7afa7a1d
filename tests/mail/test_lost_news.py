"""News of a child that can't be read: the child's own journal says the same."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.model.events import ChildEnded, ChildSpawned, MailRead
from tests.mail.forger import Forger
from tests.mail.waiting_scene import events_of, until_aside


@outlive.flow
async def kid(name: str) -> str:
    return name + await outlive.wait_signal("go", str)


@outlive.flow
async def mother() -> list[str]:
    """Waits for two children."""
    one, two = kid.options(id="one"), kid.options(id="two")
    return await asyncio.gather(outlive.call(one, "a"), outlive.call(two, "b"))


async def until_news(forger: Forger, key: str) -> str:
    """A child ends while nobody drives its parent: the id of its news."""
    async with open_app(forger.url, key=key) as app:
        await app.start(mother, id="m")
        while 2 > sum(isinstance(each, ChildSpawned) for each in await events_of(app, "m")):
            await asyncio.sleep(0.01)
    async with open_app(forger.url, key=key) as app, app.worker([kid]):
        handle = await app.get("one", kid)
        await handle.signal("go", "!")
        assert "a!" == await handle.outcome()
    ((mail_id,),) = forger.sql(
        f"SELECT mail_id FROM {{s}}mail WHERE body IS NOT NULL AND {forger.of_run}", "m"
    )
    return str(mail_id)


def flip(forger: Forger, mail_id: str) -> None:
    """One bit of what the letter says."""
    body = forger.body("m", mail_id)
    forger.put("m", mail_id, body[:-1] + bytes((body[-1] ^ 4,)))


async def end(app: App) -> None:
    """The other child ends, and with it the parent."""
    await (await app.get("two")).signal("go", "?")
    async with asyncio.timeout(20):
        assert ["a!", "b?"] == await (await app.get("m", mother)).outcome()


@pytest.mark.parametrize("is_sealed", [False, True], ids=["", "sealed"])
async def test_a_parent_goes_on_without_readable_news(
    forger: Forger, key: str, is_sealed: bool
) -> None:
    """The letter is kept aside, and the child's journal is asked."""
    given = key if is_sealed else ""
    mail_id = await until_news(forger, given)
    flip(forger, mail_id)

    async with open_app(forger.url, key=given) as app, app.worker([mother, kid]):
        await end(app)
        events = await events_of(app, "m")
    (aside,) = [each for each in events if isinstance(each, MailRead)]
    assert (mail_id, True) == (aside.mail_id, bool(aside.unreadable))
    assert ["one", "two"] == [each.child_id for each in events if isinstance(each, ChildEnded)]


async def test_a_driver_that_comes_later_asks_too(
    forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that put the letter aside died before it asked."""
    mail_id = await until_news(forger, "")
    flip(forger, mail_id)
    with monkeypatch.context() as patch:
        patch.setattr("outlive.engine.children.Children.ask_again", lambda self: None)
        async with open_app(forger.url) as app, app.worker([mother, kid]):
            await until_aside(app, 1, "m")

    async with open_app(forger.url) as app, app.worker([mother, kid]):
        await end(app)
