"""Keyed logs: what is appended is kept, found, read and dropped, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import outlive
from outlive import App
from outlive.app.log import LogView, LogWrite
from outlive.errors import AppClosed, RunIdTaken, UsageError, ValueRefused
from outlive.journal.seal.places import is_sealed
from outlive.stores.memory import MemoryStore
from outlive.stores.shared import not_one_database
from outlive.stores.types import Entry

MANY = 100


@dataclass
class Message:
    role: str
    text: str


def values(entries: Any) -> list[Any]:
    return [entry.value for entry in entries]


async def test_entries_come_back_in_order(app: App) -> None:
    """Of each key its own, of any plain type, large or small."""
    log = app.log("chat")
    said: list[Any] = [{"role": "user", "n": 1}, b"bytes", None, "x" * 2_000, [1, (2, 3)], 7.5]
    for value in said:
        await log.append("a", lambda view, value=value: [value])
    await log.append("b", lambda view: ["other"])

    entries = await log.read("a")
    assert said == values(entries)
    assert sorted(entry.seq for entry in entries) == [entry.seq for entry in entries]
    assert said[3:] == values(await log.read("a", after=entries[2].seq))
    assert ["other"] == values(await log.read("b"))
    assert [] == list(await log.read("c"))


async def test_a_decision_sees_the_entries_and_the_time(app: App) -> None:
    """And nobody else appends between its look and its append."""
    log = app.log("counter")

    def count(view: LogView) -> list[int]:
        last = view.last
        assert len(view) == len(view.entries)
        assert last is None or last.at <= view.now
        return [1 if last is None else last.value + 1]

    await asyncio.gather(*(log.append("n", count) for _ in range(MANY)))

    assert list(range(1, MANY + 1)) == values(await log.read("n"))


async def test_equal_values_of_two_writers_are_two_entries(
    place: str, key: str | None, app: App
) -> None:
    """Written in the same millisecond behind the same entry, neither is taken for the other."""
    is_shared = place.startswith("memory")
    other = App(app.store, drive=False) if is_shared else outlive.open(place, key=key, drive=False)
    async with other:
        logs = (app.log("same"), other.log("same"))
        for log in logs * 30:
            await log.append("k", lambda view: ["x"])

        assert ["x"] * 60 == values(await logs[0].read("k"))


async def test_two_apps_count_together(place: str, key: str | None, app: App) -> None:
    """Conflicts are decided again, never lost."""
    if place.startswith("memory"):
        other = App(app.store, drive=False)
    else:
        other = outlive.open(place, key=key, drive=False)
    logs = [app.log("counter"), other.log("counter")]
    count = lambda view: [len(view) + 1]  # noqa: E731
    await asyncio.gather(*(logs[n % 2].append("n", count) for n in range(40)))

    assert list(range(1, 41)) == values(await logs[0].read("n"))
    assert list(range(1, 41)) == values(await logs[1].read("n"))


async def test_a_refusal_is_raised_and_appends_nothing(app: App) -> None:
    """Whatever it raises; None appends nothing either."""

    class Taken(Exception):
        pass

    def refuse(view: LogView) -> None:
        raise Taken(view.key)

    log = app.log("tokens")
    with pytest.raises(Taken, match="t"):
        await log.append("t", refuse)
    assert [] == list(await log.append("t", lambda view: None))
    assert [] == list(await log.read("t"))
    assert [] == list((await log.find()).items)


async def test_a_hundred_at_once_are_few_commits(app: App) -> None:
    """Of new keys, and of known ones."""
    log, group = app.log("inbox"), app._logs.group
    for _ in range(2):
        before = group.counts.commits
        await asyncio.gather(*(log.append(f"m{n}", lambda view: ["hi"]) for n in range(MANY)))

        assert 5 >= group.counts.commits - before


async def test_keys_are_found_by_prefix_and_tag(app: App) -> None:
    """By pages, and only those of the log."""
    log, other = app.log("inbox"), app.log("inbox2")
    for number in range(7):
        write = LogWrite(values=[number], tags={"token": f"t{number % 2}", "all": "yes"})
        await log.append(f"{'ab'[number % 2]}/{number}", lambda view, write=write: write)
    await other.append("a/x", lambda view: LogWrite(values=[1], tags={"all": "yes"}))

    page = await log.find("a/", limit=3)
    rest = await log.find("a/", limit=3, after=page.next)
    assert ["a/0", "a/2", "a/4", "a/6"] == [k.key for k in (*page.items, *rest.items)]
    tagged = await log.find(tag=("token", "t1"))
    assert ["b/1", "b/3", "b/5"] == [each.key for each in tagged.items]
    assert {"token": "t1", "all": "yes"} == tagged.items[0].tags
    assert 7 == len((await log.find(tag=("all", "yes"))).items)
    await log.append("b/1", lambda view: LogWrite(tags={"token": "new"}))
    assert ["b/1"] == [each.key for each in (await log.find(tag=("token", "new"))).items]
    assert [1] == values(await log.read("b/1"))


async def test_dropped_keys_are_gone(app: App) -> None:
    """With their tags; under the same key a new log may begin."""
    log = app.log("sessions")
    for key in ("a", "b", "c"):
        await log.append(key, lambda view: LogWrite(values=["x" * 3_000], tags={"t": "1"}))

    assert 2 == await log.drop(["a", "b", "nobody"])
    assert [] == list(await log.read("a"))
    assert ["c"] == [each.key for each in (await log.find(tag=("t", "1"))).items]
    await log.append("a", lambda view: [len(view)])
    assert [0] == values(await log.read("a"))
    assert ["c", "a"] == [each.key for each in (await log.find()).items]


async def test_a_window_ends(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the key is empty for everybody, and a new one may begin."""
    log, clock = app.log("tokens", keep="1h"), app._reader.ports.clock
    await log.append("t", lambda view: LogWrite(values=["first"], tags={"k": "v"}))
    (found,) = (await log.find()).items
    assert found.expires_at is not None
    assert found.expires_at - found.started_at >= timedelta(hours=1)

    later = clock.now_ms() + 2 * 3_600_000
    monkeypatch.setattr(type(clock), "now_ms", lambda self: later)
    assert [] == list(await log.read("t"))
    assert [] == list((await log.find()).items)
    seen: list[int] = []
    await log.append("t", lambda view: [seen.append(len(view)) or "second"])
    assert [0] == seen
    assert ["second"] == values(await log.read("t"))
    assert [] == list((await log.find(tag=("k", "v"))).items)


async def test_a_key_gets_due(app: App) -> None:
    """By the store's clock, the earliest first, until its time is taken away."""
    log = app.log("locks", keep="1h")
    for key, seconds in (("a", -5), ("b", -9), ("c", 600)):
        decide = lambda view, s=seconds: LogWrite(  # noqa: E731
            values=["held"], wake_at=view.now + timedelta(seconds=s)
        )
        await log.append(key, decide)

    assert ["b", "a"] == [each.key for each in await log.due()]
    await log.append("b", lambda view: LogWrite(wake_at=None))
    assert ["a"] == [each.key for each in await log.due()]


async def test_values_of_a_class(app: App) -> None:
    """A log may say which class its values have."""
    log = app.log("messages", type=Message)
    await log.append("k", lambda view: [Message("user", "hi")])

    assert [Message("user", "hi")] == values(await log.read("k"))


async def test_what_can_not_be_kept_is_refused(app: App) -> None:
    """A value that no journal takes, a decision of another kind: nobody else is disturbed."""
    log = app.log("chat")
    answers = await asyncio.gather(
        log.append("a", lambda view: [object()]),
        log.append("b", lambda view: "text"),
        log.append("c", lambda view: [1]),
        return_exceptions=True,
    )

    assert isinstance(answers[0], ValueRefused)
    assert isinstance(answers[1], UsageError)
    assert [1] == values(await log.read("c"))


HOSTILE = [
    "../x", "a/b//c", " ", "%_", "a'; DROP TABLE runs; --", "\U0010ffff", "é" * 200, "\n\r\t", "",
    "outlive/log/chat/a", "~1:x", "key/1",
]  # fmt: skip


async def test_hostile_keys_are_keys_like_others(app: App) -> None:
    """Each is itself and no other."""
    log = app.log("chat")
    for key in HOSTILE:
        await log.append(key, lambda view: [view.key])

    assert HOSTILE == [each.key for each in (await log.find()).items]
    for key in HOSTILE:
        assert [key] == values(await log.read(key))
    assert len(HOSTILE) == await log.drop(HOSTILE)


@pytest.mark.parametrize("key", ["\0", "a\ud800", "é" * 201, 7, None, b"a"])
async def test_what_no_store_can_keep_is_no_key(key: Any) -> None:
    """It is refused before anything is touched."""
    async with outlive.open("memory://", drive=False) as app:
        log = app.log("chat")
        for call in (
            log.append(key, lambda view: [1]),
            log.read(key),
            log.drop([key]),
            log.find(key),
        ):
            with pytest.raises(UsageError, match="is a text of at most 400 bytes"):
                await call


@pytest.mark.parametrize("name", ["", "a/b", "\0", "x" * 65, "a\nb", "\ud800", 7])
async def test_names_of_logs_are_checked(name: Any) -> None:
    """No log can be taken for another."""
    async with outlive.open("memory://", drive=False) as app:
        with pytest.raises(UsageError, match="the name of a log"):
            app.log(name)


async def test_a_closed_app_says_so() -> None:
    """Whoever still has the log."""
    app = outlive.open("memory://", drive=False)
    log = app.log("chat")
    await app.aclose()
    for call in (log.append("a", lambda view: [1]), log.read("a"), log.drop(["a"])):
        with pytest.raises(AppClosed):
            await call


async def test_several_keys_are_appended_to_together(app: App) -> None:
    """New ones and known ones, decided on the views of all of them."""
    log = app.log("stock")
    await log.append("shop", lambda view: [3])

    def move(views: Any) -> Any:
        left = views["shop"].last.value
        if not left:
            raise ValueError("sold out")
        return {"shop": [left - 1], views["ann"].key: ["x" * 2_000]}

    for _ in range(3):
        entries = await log.append_all(["shop", "ann"], move)
        assert [1, 1] == [len(entries[key]) for key in ("shop", "ann")]
    with pytest.raises(ValueError, match="sold out"):
        await log.append_all(["shop", "ann"], move)

    assert [3, 2, 1, 0] == values(await log.read("shop"))
    assert 3 == len(await log.read("ann"))


async def test_transfers_keep_their_sum(place: str, key: str | None, app: App) -> None:
    """Two apps move between the same keys at once: nothing is lost or made of nothing."""
    is_memory = place.startswith("memory")
    other = App(app.store, drive=False) if is_memory else outlive.open(place, key=key, drive=False)
    logs = [app.log("accounts"), other.log("accounts")]
    names = ["a", "b", "c", "d"]
    for name in names:
        await logs[0].append(name, lambda view: [10])

    def transfer(giver: str, taker: str) -> Any:
        def decide(views: Any) -> Any:
            return {
                giver: [views[giver].last.value - 1],
                taker: [views[taker].last.value + 1],
            }

        return decide

    moves = []
    for number in range(40):
        giver, taker = names[number % 4], names[(number * 7 + 1) % 4]
        if giver != taker:
            work = transfer(giver, taker)
            moves.append(logs[number % 2].append_all([giver, taker], work))
    await asyncio.gather(*moves)

    ends = [(await logs[0].read(name))[-1].value for name in names]
    lengths = [len(await logs[0].read(name)) for name in names]
    assert 40 == sum(ends)
    assert 4 + 2 * len(moves) == sum(lengths)


async def test_together_and_alone_share_flushes(app: App) -> None:
    """A hundred appends at once, half of them for two keys each, are a few commits."""
    log, group = app.log("inbox"), app._logs.group
    both = [
        log.append_all([f"m{n}", f"t{n}"], lambda views: {key: [1] for key in views})
        for n in range(MANY // 2)
    ]
    alone = [log.append(f"a{n}", lambda view: [1]) for n in range(MANY // 2)]
    await asyncio.gather(*both, *alone)

    assert 5 >= group.counts.commits
    assert 150 == len((await log.find(limit=1000)).items)


async def test_a_decision_about_other_keys_is_refused(app: App) -> None:
    """What it was not asked about, a key twice, a text instead of keys."""
    log = app.log("stock")
    with pytest.raises(UsageError, match="it was asked about"):
        await log.append_all(["a", "b"], lambda views: {"c": [1]})
    for keys in (["a", "a"], [], "ab"):
        with pytest.raises(UsageError, match="each once"):
            await log.append_all(keys, lambda views: {})


async def test_a_store_that_is_not_one_database_refuses_by_name() -> None:
    """Nothing is appended, and single keys work as ever."""

    class Files(MemoryStore):
        async def commit_together(self, batch: Sequence[Entry]) -> Any:
            raise not_one_database("file:///folder")

    async with App(Files(), drive=False) as app:
        log = app.log("stock")
        with pytest.raises(UsageError, match="file:///folder can't commit several journals as one"):
            await log.append_all(["a", "b"], lambda views: {key: [1] for key in views})
        assert [] == list((await log.find()).items)
        await log.append("a", lambda view: [1])
        assert [1] == values(await log.read("a"))


async def test_a_dropped_key_may_stay_reserved(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a window of its own nobody begins it anew; then anybody may."""
    log, clock = app.log("tokens"), app._reader.ports.clock
    await log.append("t", lambda view: ["first"])
    await log.append("u", lambda view: ["first"])
    assert 1 == await log.drop(["t"], reserve="1h")
    answers = await asyncio.gather(
        *(log.append(key, lambda view: ["second"]) for key in ("t", "u")), return_exceptions=True
    )

    assert isinstance(answers[0], RunIdTaken)
    assert ["first", "second"] == values(await log.read("u"))
    if app.store.clock is None and not is_sealed(app.store):
        later = clock.now_ms() + 2 * 3_600_000
        monkeypatch.setattr(type(clock), "now_ms", lambda self: later)
        await log.append("t", lambda view: ["third"])
        assert ["third"] == values(await log.read("t"))
