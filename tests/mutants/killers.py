"""One small test per rule: it passes on the real code and fails under the mutant of its name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import CorruptRecord
from outlive.journal.keeper import Keeper
from outlive.journal.lane import run_immediate
from outlive.journal.log import RunLog
from outlive.journal.reader import read_events
from outlive.journal.record import LINK_START, pack
from outlive.model.events import (
    Claimed,
    EffectIntended,
    Event,
    RunStarted,
    TimerFired,
    encode_events,
)
from outlive.ports import Ports, RemoteClock, SystemClock
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Head, Reading, StoredRecord
from outlive.testing.suite.entries import header
from outlive.testing.suite.journals import JournalRules
from outlive.testing.suite.lists import ListRules
from tests.harness.clocks import ShiftedClock
from tests.mutants import (
    killers_logs,
    killers_places,
    killers_retention,
    killers_streams,
    killers_transactions,
    killers_waits,
    redaction,
    values,
)

Scene = Callable[[Path], None]

START = RunStarted("flow", "1", b"", b"", b"", "3.11", 0, "r")


def _on_both_stores(folder: Path, rule: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    """The rule holds on neither store if it is broken: both must be seen to fail."""
    failed = []
    for number, store in enumerate((MemoryStore(), SQLiteStore(str(folder / "rule.db")))):
        try:
            asyncio.run(rule(store))
        except AssertionError as error:
            failed.append((number, error))
        asyncio.run(store.close())
    assert len(failed) in (0, 2), f"only one store breaks the rule: {failed}"
    assert not failed


def stale_epochs_are_refused(folder: Path) -> None:
    """A commit of an epoch that is over is refused, even at the right seq."""
    _on_both_stores(folder, JournalRules().test_a_stale_epoch_is_refused)


def tags_are_found_as_they_are(folder: Path) -> None:
    """A run is found by its new tags, and no longer by the old ones."""
    store = SQLiteStore(str(folder / "tags.db"))
    try:
        asyncio.run(ListRules().test_tags_that_change_are_found_as_they_are(store))
    finally:
        asyncio.run(store.close())


def journals_have_no_gaps(folder: Path) -> None:
    """A commit that does not follow the head is refused."""
    _on_both_stores(folder, JournalRules().test_a_seq_in_the_future_is_refused)


def repeats_end_with_the_epoch(folder: Path) -> None:
    """A repeated commit is done again only while nobody has taken the run over."""
    _on_both_stores(folder, JournalRules().test_a_repeat_after_takeover_is_refused)


# ---------------------------------------------------------------- the journal


class _Side:
    """A side on the keeper's own thread."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)

    def call_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)


class _Watched(MemoryStore):
    """Looks whether anybody was told before it had written."""

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self.told_before: list[str] = []
        self._told = told

    async def commit(self, batch: Any, *, wait: bool = True) -> Any:
        self.told_before += self._told
        return await super().commit(batch, wait=wait)


def nobody_is_told_before_the_store(folder: Path) -> None:
    """An event is durable in the store before its run hears so."""
    told: list[str] = []
    store = _Watched(told)
    keeper = Keeper(store, lambda: None)
    log = RunLog(keeper, _Side(), "r", worker="w")
    log.append(START)
    log.wait(log.append(Claimed(0, 1, "w", True)), lambda: told.append("durable"))

    run_immediate(keeper.flush_once())

    assert ["durable"] == told
    assert [] == store.told_before


def forged_records_are_found(folder: Path) -> None:
    """A whole record of the same run, seq and epoch does not fit into another chain."""
    records, links = _chain(b"mine")
    others, _ = _chain(b"other")
    head = Head(run_id="r", seq=3, epoch=1, link=links[-1])
    forged = [records[0], others[1], records[2]]
    whole = Reading(head=head, header=header(), records=records, mail=[])

    assert 3 == len(read_events(whole))
    with pytest.raises(CorruptRecord) as caught:
        read_events(Reading(head=head, header=header(), records=forged, mail=[]))
    assert 2 == caught.value.seq


def _chain(seed: bytes) -> tuple[list[StoredRecord], list[bytes]]:
    events: list[Event] = [
        RunStarted("flow", "1", b"", b"", seed, "3.11", 0, "r"),
        TimerFired(1, seed.decode()),
        TimerFired(2, "end"),
    ]
    records, links, link = [], [], LINK_START
    for seq, event in enumerate(events, 1):
        body = encode_events([event])
        record, link = pack("r", prev=link, epoch=1, seq=seq, kinds=1, body=body)
        records.append(StoredRecord(seq, record))
        links.append(link)
    return records, links


# ---------------------------------------------------------------- the engine


def _app(store: Store) -> App:
    settings = Settings(lease_seconds=5.0, poll_seconds=0.01, idle_seconds=0.0)
    return App(store, settings=settings)


def _play(scene: Callable[[App, MemoryStore], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        store = MemoryStore()
        async with _app(store) as app, asyncio.timeout(20):
            return await scene(app, store)

    return asyncio.run(main())


def intents_come_first(folder: Path) -> None:
    """While an effect's body runs, its intent is in the store."""
    found: list[bool] = []

    async def play(app: App, store: MemoryStore) -> None:
        @outlive.effect(timeout="5s")
        async def pay() -> None:
            reading = await store.read(outlive.run_id())
            assert reading is not None
            found.append(any(isinstance(e, EffectIntended) for e in read_events(reading)))

        @outlive.flow
        async def shop() -> None:
            await pay()

        await (await app.start(shop, id="r")).outcome()

    _play(play)
    assert [True] == found


def replays_keep_the_order(folder: Path) -> None:
    """What a flow saw first it sees first again, whatever the ids of its branches."""

    async def play(app: App, store: MemoryStore) -> list[str]:
        second_is_done, at_the_end, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @outlive.step
        async def first() -> str:
            await second_is_done.wait()
            return "first"

        @outlive.step
        async def second() -> str:
            second_is_done.set()
            return "second"

        @outlive.step
        async def end() -> None:
            at_the_end.set()
            await may_end.wait()

        @outlive.flow
        async def race() -> list[str]:
            seen = [await each for each in asyncio.as_completed([first(), second()])]
            await end()
            return seen

        await app.start(race, id="r")
        await at_the_end.wait()
        await app.aclose()
        may_end.set()
        async with _app(store) as later:
            told: list[str] = await (await later.start(race, id="r")).outcome()
            return told

    assert ["second", "first"] == _play(play)


def flows_get_copies(folder: Path) -> None:
    """What a flow does to a value it got changes nobody else's, live as on replay."""
    mine = ["kept"]

    async def play(app: App, store: MemoryStore) -> None:
        @outlive.step
        async def lend() -> list[str]:
            return mine

        @outlive.flow
        async def borrow() -> None:
            (await lend()).append("written by the flow")

        await (await app.start(borrow, id="r")).outcome()

    _play(play)
    assert ["kept"] == mine


def keys_belong_to_one_effect(folder: Path) -> None:
    """Of two runs that use a key with the same arguments one does it, and both get its outcome."""
    paid: list[str] = []

    async def play(app: App, store: MemoryStore) -> list[int]:
        @outlive.effect(key="order:{order}")
        async def pay(order: str) -> int:
            paid.append(order)
            return len(paid)

        @outlive.flow
        async def shop(order: str) -> int:
            return await pay(order)  # type: ignore[no-any-return]

        handles = [await app.start(shop, "7", id=run_id) for run_id in ("a", "b")]
        return [await handle.outcome() for handle in handles]

    assert [1, 1] == _play(play)
    assert ["7"] == paid


def exceptions_are_doubts(folder: Path) -> None:
    """An effect that raised after it happened is asked about, not repeated."""
    paid: list[str] = []

    async def play(app: App, store: MemoryStore) -> str:
        async def find() -> Any:
            return paid[0] if paid else outlive.NOT_HAPPENED

        @outlive.effect(check=find, retry=outlive.Retry(attempts=3, delay="1ms"), settle_after=0)
        async def pay() -> str:
            paid.append("paid")
            raise ConnectionError("the line broke")

        @outlive.flow
        async def shop() -> str:
            return await pay()  # type: ignore[no-any-return]

        told: str = await (await app.start(shop, id="r")).outcome()
        return told

    assert "paid" == _play(play)
    assert ["paid"] == paid


class _Served(MemoryStore):
    """A store whose server has the time, on a machine whose clock is an hour ahead of it."""

    def __init__(self) -> None:
        super().__init__()
        self.served = SystemClock()
        self.clock = RemoteClock(ShiftedClock(3_600_000), "the server")
        self.clock.notice(self.served.now_ms(), self.served.monotonic())


def runs_go_by_the_stores_clock(folder: Path) -> None:
    """Where the store's server has a clock, it is the time of runs and of their journals."""

    @outlive.flow
    async def asks() -> float:
        return outlive.now().timestamp()

    async def main() -> tuple[float, int, int]:
        store = _Served()
        async with App(store, ports=Ports(clock=ShiftedClock(3_600_000))) as app:
            told = await (await app.start(asks, id="r")).outcome()
            return told, (await app.read("r")).header.started_at, store.served.now_ms()

    told, started_at, now = asyncio.run(main())
    assert abs(told * 1000 - now) < 60_000
    assert abs(started_at - now) < 60_000


#: By the mutant's name, what kills it.
KILLERS: dict[str, Scene] = {
    "fencing off": stale_epochs_are_refused,
    "tag index stale": tags_are_found_as_they_are,
    "intent after effect": intents_come_first,
    "acknowledge before sync": nobody_is_told_before_the_store,
    "seq check off": journals_have_no_gaps,
    "chain check off": forged_records_are_found,
    "replay order off": replays_keep_the_order,
    "live is not replay": flows_get_copies,
    "key claim off": keys_belong_to_one_effect,
    "repeat answered done after takeover": repeats_end_with_the_epoch,
    "exception taken as nothing happened": exceptions_are_doubts,
    "skew ignored": runs_go_by_the_stores_clock,
    "redaction off": redaction.secrets_stay_out_of_the_journal,
    "living parent ignored": killers_retention.living_parents_keep_their_children,
    "header believed": killers_retention.headers_delete_nothing,
    "living fork ignored": killers_retention.forks_keep_what_they_share,
    "tombstone not left": killers_retention.ids_stay_taken,
    "archived after deletion": killers_retention.what_goes_is_archived_first,
    "keys of deleted runs forgotten": killers_retention.keys_outlive_their_run,
    "mail lost at park": killers_waits.sleepers_hear_their_mail,
    "signal out of order": killers_waits.signals_keep_their_order,
    "mail check off": killers_waits.moved_mail_is_kept_aside,
    "sealed mail check off": killers_waits.plain_mail_is_kept_aside,
    "answer taken twice": killers_waits.answers_count_once,
    "text not compared": killers_waits.answers_are_for_their_text,
    "undo before settling": killers_waits.doubts_are_settled_before_undoing,
    "undone in order": killers_waits.the_last_is_undone_first,
    "deadline ignored after restart": killers_waits.deadlines_survive_restarts,
    "child notified never": killers_waits.parents_hear_of_their_children,
    "parent told too early": killers_waits.parents_hear_what_is_durable,
    "carry drops mail": killers_waits.chapters_keep_the_mail,
    "instant not in the id": killers_waits.each_instant_has_a_run_of_its_own,
    "node hash off": values.nodes_are_verified,
    "node without its commit": values.nodes_travel_with_their_record,
    "boundaries by position": values.what_is_new_does_not_depend_on_its_place,
    **killers_transactions.KILLERS,
    **killers_streams.KILLERS,
    **killers_logs.KILLERS,
    **killers_places.KILLERS,
}
