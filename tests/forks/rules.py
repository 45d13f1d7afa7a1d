"""What forks owe everybody, on every store: one set of rules, one class per store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import outlive
from outlive import Retention
from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.errors import ForkRefused, RunFailed, ValueRefused
from outlive.model.events import (
    EffectDone,
    EffectIntended,
    Event,
    Forked,
    RunRetried,
    RunStarted,
    StepDone,
)
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.seam import Store
from outlive.stores.types import Deletion, Query
from tests.forks import flows
from tests.forks.flows import seen

SETTINGS = Settings(lease_seconds=30.0, poll_seconds=0.02, idle_seconds=0.0)


async def place_of(handle: Handle[Any], kind: type[Event], number: int = 1) -> int:
    """The seq of the n-th event of a kind."""
    places = [seq for seq, event in enumerate(await handle.read(), 1) if isinstance(event, kind)]
    return places[number - 1]


class ForkRules:
    """Rules of forks."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    @pytest.fixture
    async def app(self, store: Store) -> AsyncIterator[App]:
        seen.paid.clear(), seen.planned.clear(), seen.undone.clear()
        async with App(store, ports=Ports(), settings=SETTINGS) as app:
            yield app

    async def test_what_is_shared_is_not_run_again(self, app: App) -> None:
        """Steps and effects before the cut are known; those after it are run."""
        handle = await app.start(flows.buy, "a", id="first")
        await handle

        fork = await handle.fork(at=await place_of(handle, EffectDone), id="fork")

        assert ["receipt a-1", "receipt a-2"] == await fork.outcome("20s")
        assert (["a"], ["a-1", "a-2", "a-2"]) == (seen.planned, seen.paid)

    async def test_nothing_is_copied(self, app: App) -> None:
        """The fork's journal begins with where it parts, in the family of the other run."""
        handle = await app.start(flows.buy, "a", id="first")
        await handle
        fork = await handle.fork(at=await place_of(handle, StepDone))
        await fork.outcome("20s")

        events = await fork.read()

        assert isinstance(events[0], Forked)
        assert not any(isinstance(event, (RunStarted, StepDone)) for event in events)
        assert "first" == (await app.read(fork.id)).header.family

    async def test_a_step_may_get_another_outcome(self, app: App) -> None:
        """All that came after it is run anew, with that; the other run stays as it was."""
        handle = await app.start(flows.buy, "a", id="first")
        before = await handle

        fork = await app.fork("first", set={"fork_plan": ["b"]})

        assert ["receipt b"] == await fork.outcome("20s")
        assert before == await handle
        assert (["a"], ["a-1", "a-2", "b"]) == (seen.planned, seen.paid)

    async def test_an_answer_may_be_another(self, app: App) -> None:
        """What a human said can be tried otherwise."""
        handle = await app.start(flows.asks, id="first")
        await handle.question("20s")
        await handle.answer("this")
        assert "THIS" == await handle.outcome("20s")

        fork = await handle.fork(set={"ask#1": "that"})

        assert "THAT" == await fork.outcome("20s")

    async def test_a_question_that_is_open_is_asked_again(self, app: App) -> None:
        """The fork waits for an answer of its own."""
        handle = await app.start(flows.asks, id="first")
        await handle.question("20s")
        fork = await handle.fork(at=len(await handle.read()))

        await fork.answer("mine")

        assert "MINE" == await fork.outcome("20s")
        assert 1 == len(await handle.questions())

    async def test_chance_is_its_own_behind_the_cut(self, app: App) -> None:
        """Before it, it is what the flow saw."""
        handle = await app.start(flows.chance, "a", id="first")
        first, second = await handle

        fork = await handle.fork(at=await place_of(handle, StepDone))
        same, other = await fork.outcome("20s")

        assert (first, False) == (same, second == other)

    async def test_a_users_key_stays_with_who_has_it(self, app: App) -> None:
        """The fork gets the outcome of the other run's effect."""
        handle = await app.start(flows.once, "a", id="first")
        outcome = await handle

        fork = await handle.fork(at=await place_of(handle, StepDone))

        assert (outcome, ["a"]) == (await fork.outcome("20s"), seen.paid)

    async def test_what_is_shared_is_not_undone(self, app: App) -> None:
        """A fork that ends badly takes back what it did, and nothing of the other run."""
        handle = await app.start(flows.fails, "a", id="first")
        with pytest.raises(RunFailed):
            await handle
        seen.undone.clear()

        fork = await handle.fork(at=await place_of(handle, StepDone))
        with pytest.raises(RunFailed):
            await fork.outcome("20s")

        assert ["a-own"] == seen.undone

    async def test_children_of_what_is_shared_are_known(self, app: App) -> None:
        """They are the other run's; those that come later are the fork's own."""
        handle = await app.start(flows.parent, id="first")
        assert 16 == await handle.outcome("20s")

        fork = await handle.fork(at=await place_of(handle, StepDone), id="fork")

        assert 16 == await fork.outcome("20s")
        children = await app.find(flow="fork_child")
        assert ["first", "first", "fork"] == [each.header.parent for each in children.items]

    async def test_what_is_under_way_is_not_forked(self, app: App) -> None:
        """Behind an intent nobody knows the end; the refusal says where it can be done."""
        handle = await app.start(flows.buy, "a", id="first")
        await handle
        intent = await place_of(handle, EffectIntended)

        with pytest.raises(ForkRefused, match=f"fork it at {intent - 1} or {intent + 1}"):
            await handle.fork(at=intent)
        with pytest.raises(ForkRefused, match="it is over"):
            await handle.fork(at=len(await handle.read()))
        with pytest.raises(ForkRefused, match="its chapter goes from seq 1"):
            await handle.fork(at=1000)
        with pytest.raises(ForkRefused, match=r"ended at seq \d+, and all"):
            await handle.fork(at=intent + 1, set={"fork_plan": []})
        with pytest.raises(ForkRefused, match=r"fork_pay is one of 0/fork_pay#1 at \d+, 0/fork_"):
            await handle.fork(set={"fork_pay": ""})
        with pytest.raises(ForkRefused, match="say where"):
            await handle.fork()
        marks = await app.store.find(Query(prefix="outlive/"))
        assert [] == list(marks.items)

    async def test_what_makes_no_sense_is_refused_before_anything_is_written(
        self, app: App
    ) -> None:
        """One step by its name, a seq that is a number, an answer that its question takes."""
        asking = await app.start(flows.asks, id="asks")
        await asking.question("20s")
        await asking.answer("this")
        await asking.outcome("20s")
        before = await app.store.find(Query())
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"at": "3"}, "at='3' is not a seq"),
            ({"at": True}, "at=True is not a seq"),
            ({"set": ["ask"]}, r"write set=\{'plan#1': value\}"),
            ({"set": {1: "a"}}, "set is not a dict"),
            ({"set": {"ask": object()}}, "the outcome of ask is not JSON"),
            ({"set": {"ask": "a", "other": 1}}, "replace one outcome.* fork the fork there"),
            ({"set": {"ask": 5}}, "0/ask#1 refuses this answer: .*string is wanted, not int"),
        ]

        for given, why in wrong:
            with pytest.raises(ForkRefused, match=why):
                await app.fork("asks", **given)
        with pytest.raises(outlive.errors.RunNotFound):
            await app.fork("nobody", at=1)

        assert before == await app.store.find(Query())

    async def test_an_outcome_that_the_step_can_not_return_is_named(self, app: App) -> None:
        """Only its code knows what it may be, so whoever drives the fork says it."""
        await (await app.start(flows.buy, "a", id="first"))
        fork = await app.fork("first", set={"fork_plan": 5}, id="fork")

        with pytest.raises(ValueRefused, match=r"gave step 0/fork_plan#1 .* is no list\[str\]"):
            await fork.outcome("20s")

    async def test_every_place_of_a_run_leads_to_its_end(self, app: App) -> None:
        """Forked behind each event that allows it, the flow ends as it did."""
        for flow, arguments in ((flows.gathers, ()), (flows.sleeps, ()), (flows.parent, ())):
            handle = await app.start(flow, *arguments, id=flow.name)
            outcome = await handle.outcome("20s")
            count = 0
            for seq in range(1, len(await handle.read()) + 1):
                try:
                    fork = await handle.fork(at=seq)
                except ForkRefused:
                    continue
                assert outcome == await fork.outcome("20s")
                count += 1
            assert count >= 3

    async def test_a_fork_can_be_forked(self, app: App) -> None:
        """In its own part; nothing that either shares is run again."""
        handle = await app.start(flows.buy, "a", id="first")
        await handle
        fork = await handle.fork(at=await place_of(handle, StepDone), id="fork")
        await fork.outcome("20s")
        again = await fork.fork(at=await place_of(fork, EffectDone), id="again")

        assert ["receipt a-1", "receipt a-2"] == await again.outcome("20s")
        assert ["a-1", "a-2", "a-1", "a-2", "a-2"] == seen.paid
        assert ["a"] == seen.planned

    async def test_a_fork_can_be_tried_again(self, app: App) -> None:
        """What failed is run again, also where that is in what it shares."""
        handle = await app.start(flows.retried, "a", id="first")
        with pytest.raises(RunFailed):
            await handle
        fork = await handle.fork(at=await place_of(handle, StepDone))
        with pytest.raises(RunFailed):
            await fork.outcome("20s")
        seen.paid.append("a")

        await app.retry(fork.id)
        again = await app.resume(fork.id, [flows.retried])

        assert "paid" == await again.outcome("20s")
        assert ["a", "a-b", "a-b"] == seen.planned

    async def test_a_run_that_was_tried_again_can_be_forked(self, app: App) -> None:
        """What its retry dropped stays dropped in the fork, and in a fork of that."""
        handle = await app.start(flows.retried, "a", id="first")
        with pytest.raises(RunFailed):
            await handle
        seen.paid.append("a")
        await app.retry("first")
        assert "paid" == await (await app.resume("first", [flows.retried])).outcome("20s")
        events = await handle.read()
        at = next(seq for seq, event in enumerate(events, 1) if isinstance(event, RunRetried))

        fork = await handle.fork(at=at)
        assert "paid" == await fork.outcome("20s")
        again = await fork.fork(at=1)

        assert "paid" == await again.outcome("20s")
        assert ["a", "a-b"] == seen.planned

    async def test_the_last_chapter_can_be_forked(self, app: App) -> None:
        """And the fork may begin chapters of its own."""
        handle = await app.start(flows.chapters, 2, [], id="first")
        outcome = await handle
        last = (await app.read("first")).header.chapter

        with pytest.raises(ForkRefused, match=f"from seq {last} to"):
            await handle.fork(at=2)
        fork = await handle.fork(at=last)

        assert outcome == await fork.outcome("20s")
        assert ["c2", "c1", "c0", "c0"] == seen.planned

    async def test_what_is_forked_stays_as_long_as_its_fork(self, app: App) -> None:
        """Retention takes the fork first, then what it shared with."""
        handle = await app.start(flows.buy, "a", id="first")
        await handle
        fork = await handle.fork(at=await place_of(handle, StepDone), id="fork")
        await fork.outcome("20s")
        rules = Retention(completed=0, flows={"none": Retention()})

        first = await app.retain(rules)
        second = await app.retain(rules)

        assert {"kept: a fork was made of it": 1, "deleted": 1} == dict(first.fates)
        assert {"deleted": 1} == dict(second.fates)
        assert [] == list((await app.store.find(Query())).items)

    async def test_a_fork_made_while_its_run_is_being_deleted(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever comes first wins: the run stays, or the fork is refused."""
        handle = await app.start(flows.buy, "a", id="first")
        await handle
        at = await place_of(handle, StepDone)
        real, forks = app.store.delete, []

        async def delete(batch: Sequence[Deletion]) -> Any:
            if "first" in {each.run_id for each in batch} and not forks:
                monkeypatch.setattr(app.store, "delete", real)
                forks.append(await app.fork("first", at=at, id="fork"))
            return await real(batch)

        monkeypatch.setattr(app._reader, "lane", _here)
        monkeypatch.setattr(app.store, "delete", delete)
        await app.retain(Retention(completed=0))

        assert ["receipt a-1", "receipt a-2"] == await forks[0].outcome("20s")
        with pytest.raises(outlive.errors.RunNotFound):
            await app.fork("gone", at=1)


async def _here(work: Any) -> Any:
    return await work
