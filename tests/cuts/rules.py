"""What agents, their exchange and their cuts owe everybody, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlive.checkpoints import Cut, DurableRunner, Exchange, SnapshotStore, restore_cut
from outlive.checkpoints.agents.agents import LEDGER
from outlive.checkpoints.agents.exchange import KEPT_MANY
from outlive.errors import CutRefused, ExchangeRefused, LeaseLost, ValueRefused, WrongVersion
from outlive.stores.seam import Store

Kept = dict[str, Any]


async def ada_asks_bob(runner: DurableRunner, *messages: Any) -> Exchange:
    """An agent that has sent something to another one."""
    ada = await runner.exchange("ada", peers=["bob"])
    for message in messages:
        ada.send("bob", message)
    await ada.checkpoint("asked", {"asked": len(messages)})
    return ada


async def kept_by(runner: DurableRunner, agent: str) -> Kept:
    """The messages in an agent's ledger."""
    snapshot = await runner.store.get_latest_snapshot(agent)
    assert snapshot is not None, agent
    kept: Kept = snapshot.metadata[LEDGER]["kept"]
    return kept


class ExchangeRules:
    """Messages between agents."""

    @pytest.fixture
    async def runner(self, store: Store) -> AsyncIterator[DurableRunner]:
        async with SnapshotStore(store) as snapshots:
            yield DurableRunner(snapshots, enabled=True)

    async def test_messages_come_in_order_once(self, runner: DurableRunner) -> None:
        """What is sent arrives in the order of sending, and not again."""
        await ada_asks_bob(runner, 1, {"two": [2]}, "three")
        bob = await runner.exchange("bob", peers=["ada"])

        found = [await bob.receive(timeout=0) for _ in range(4)]

        assert [("ada", 1, 1), ("ada", 2, {"two": [2]}), ("ada", 3, "three")] == [
            (each.sender, each.number, each.body) for each in found if each is not None
        ]
        assert found[3] is None

    async def test_nothing_counts_before_it_is_saved(self, runner: DurableRunner) -> None:
        """A message leaves with the next state; one that was taken is there again without it."""
        ada = await runner.exchange("ada", peers=["bob"])
        bob = await runner.exchange("bob", peers=["ada"])
        ada.send("bob", "early")
        before = await bob.receive(timeout=0)
        await ada.checkpoint("sent", {})
        first = await bob.receive(timeout=0)

        again = await (await runner.exchange("bob", peers=["ada"])).receive(timeout=0)

        assert before is None
        assert first is not None
        assert first == again

    async def test_what_was_saved_stays_taken(self, runner: DurableRunner) -> None:
        """Behind a saved state an agent goes on with the next message, and has its state."""
        await ada_asks_bob(runner, "one", "two")
        bob = await runner.exchange("bob", peers=["ada"])
        await bob.receive(timeout=0)
        await bob.checkpoint("heard", {"heard": ["one"]})

        again = await runner.exchange("bob", peers=["ada"])
        message = await again.receive(timeout=0)

        assert ("heard", {"heard": ["one"]}) == (again.step_id, again.state)
        assert message is not None
        assert (2, "two") == (message.number, message.body)

    async def test_a_message_is_a_copy(self, runner: DurableRunner) -> None:
        """What becomes of a message on either side changes nothing on the other."""
        ada = await runner.exchange("ada", peers=["bob"])
        message = {"list": [1]}
        ada.send("bob", message)
        message["list"].append(2)
        state = {"x": [1]}
        await ada.checkpoint("sent", state)
        state["x"].append(2)
        bob = await runner.exchange("bob", peers=["ada"])

        taken = await bob.receive(timeout=0)

        assert taken is not None
        assert {"list": [1]} == taken.body
        assert {"x": [1]} == ada.state

    async def test_the_later_one_has_the_agent(self, runner: DurableRunner) -> None:
        """Of two who opened an agent the first can't save any more; nor can one who did not."""
        first = await ada_asks_bob(runner, "one")
        second = await runner.exchange("ada", peers=["bob"])
        first.send("bob", "from a zombie")

        with pytest.raises(LeaseLost):
            await first.checkpoint("asked", {})
        with pytest.raises(LeaseLost):
            await runner.checkpoint("ada", "asked", {})

        await second.checkpoint("asked", {})
        assert {"bob": ["one"]} == await kept_by(runner, "ada")

    async def test_who_was_overtaken_is_not_put_back(self, runner: DurableRunner) -> None:
        """One who lost its agent hears just that, also when its peers know more than it does."""
        first = await ada_asks_bob(runner, "one")
        second = await runner.exchange("ada", peers=["bob"])
        second.send("bob", "two")
        await second.checkpoint("asked", {})
        bob = await runner.exchange("bob", peers=["ada"])
        for _ in range(2):
            await bob.receive(timeout=0)
        await bob.checkpoint("heard", {})

        with pytest.raises(LeaseLost):
            await first.receive(timeout=0)

        assert await second.receive(timeout=0) is None

    async def test_who_leaves_lets_others_in(self, runner: DurableRunner) -> None:
        """An agent that was left can be deleted; who lost it before leaves nothing."""
        first = await ada_asks_bob(runner, "one")
        second = await runner.exchange("ada", peers=["bob"])

        await first.leave()
        with pytest.raises(LeaseLost):
            await runner.cleanup("ada")
        await second.leave()

        assert 1 == await runner.cleanup("ada")

    async def test_what_was_taken_is_dropped(self, runner: DurableRunner) -> None:
        """A message stays with its sender until its receiver's state is saved, and no longer."""
        ada = await ada_asks_bob(runner, "one", "two")
        bob = await runner.exchange("bob", peers=["ada"])
        await bob.receive(timeout=0)
        await ada.look()
        await ada.checkpoint("asked", {})
        unsaved = await kept_by(runner, "ada")
        await bob.checkpoint("heard", {})
        await ada.look()
        await ada.checkpoint("asked", {})

        assert {"bob": ["one", "two"]} == unsaved
        assert {"bob": ["two"]} == await kept_by(runner, "ada")

    async def test_who_only_sends_drops_as_well(self, runner: DurableRunner) -> None:
        """A sender that never receives looks by itself when much is under way."""
        ada = await ada_asks_bob(runner, *range(KEPT_MANY))
        bob = await runner.exchange("bob", peers=["ada"])
        for _ in range(KEPT_MANY):
            await bob.receive(timeout=0)
        await bob.checkpoint("heard", {})

        await ada.checkpoint("asked", {})

        assert {"bob": []} == await kept_by(runner, "ada")

    async def test_an_agent_put_back_alone_is_noticed(self, runner: DurableRunner) -> None:
        """Neither it nor its peers go on: its numbers would mean other messages."""
        ada = await ada_asks_bob(runner)
        ada.send("bob", "one")
        await ada.checkpoint("sent", {})
        bob = await runner.exchange("bob", peers=["ada"])
        await bob.receive(timeout=0)
        await bob.checkpoint("heard", {})
        await ada.leave()
        await runner.rollback("ada", "asked")

        with pytest.raises(ExchangeRefused, match=r"'bob' is ahead of 'ada'.*restore a cut"):
            await runner.exchange("ada", peers=["bob"])
        with pytest.raises(ExchangeRefused, match="restore a cut"):
            await bob.receive(timeout=0)
        with pytest.raises(CutRefused, match="'bob' is ahead of the others"):
            await runner.cut(["ada", "bob"])

    async def test_a_receiver_waits_no_longer_than_it_says(self, runner: DurableRunner) -> None:
        """A time limit that passes is no message."""
        bob = await runner.exchange("bob", peers=["ada"])

        assert await bob.receive(timeout=0.02) is None

    async def test_nonsense_is_refused(self, runner: DurableRunner) -> None:
        """What can't be sent, or opened so, says why."""
        ada = await ada_asks_bob(runner, "one")

        with pytest.raises(ExchangeRefused, match="'cyd' is not one of its peers"):
            ada.send("cyd", "hello")
        with pytest.raises(ValueRefused, match="message"):
            ada.send("bob", object())
        with pytest.raises(ExchangeRefused, match="that is ours"):
            await ada.checkpoint("asked", {}, {LEDGER: {}})
        with pytest.raises(ExchangeRefused, match="'bob': name them, too"):
            await runner.exchange("ada", peers=["cyd"])
        with pytest.raises(ExchangeRefused, match="its own peer"):
            await runner.exchange("ada", peers=["ada"])
        with pytest.raises(ExchangeRefused, match="a list of ids"):
            await runner.exchange("ada", peers="bob")
        await ada.checkpoint("asked", {})  # nobody took the agent by a refused call

    async def test_states_have_a_schema(self, runner: DurableRunner) -> None:
        """An agent of another schema is refused, also where a cut brought it."""
        old = DurableRunner(runner.store, schema_version="1", enabled=True)
        new = DurableRunner(runner.store, schema_version="2", enabled=True)
        await ada_asks_bob(old, "one")

        with pytest.raises(WrongVersion):
            await new.exchange("ada", peers=["bob"])
        cut = await old.cut(["ada", "bob"])
        assert {"ada": "1"} == cut.schemas


class CutRules(ExchangeRules):
    """Cuts of agents, and restoring them into another store."""

    @pytest.fixture
    async def other(self, other_store: Store) -> AsyncIterator[DurableRunner]:
        async with SnapshotStore(other_store) as snapshots:
            yield DurableRunner(snapshots, enabled=True)

    @pytest.fixture
    async def cut(self, runner: DurableRunner) -> Cut:
        """Two agents, one of which has not begun, and two messages."""
        await ada_asks_bob(runner, "one", "two")
        return await runner.cut(["ada", "bob"], name="noon")

    async def test_a_cut_has_states_and_messages(self, cut: Cut) -> None:
        """It has everything: states, who has not begun, what is under way."""
        ada = cut.agents["ada"]

        assert ada is not None
        assert ("asked", {"asked": 2}) == (ada.step_id, ada.state)
        assert cut.agents["bob"] is None
        assert {("ada", "bob"): ["one", "two"]} == cut.in_flight
        assert ("noon", "taken") == (cut.name, cut.status)

    async def test_a_cut_needs_nothing_else(self, runner: DurableRunner, cut: Cut) -> None:
        """It stays as it is when agents go on, or go."""
        ada = await runner.exchange("ada", peers=["bob"])
        await ada.checkpoint("later", {"asked": 99})
        await ada.leave()
        await runner.cleanup("ada")

        assert cut == await runner.get_cut("noon")
        assert cut == await runner.cut(["bob", "ada"], name="noon")
        assert ["noon"] == await runner.list_cuts()

    async def test_cuts_go_by_name(self, runner: DurableRunner, cut: Cut) -> None:
        """They are listed in their order, and deleted one by one; a name is given if none is."""
        other = await runner.cut(["ada", "bob"])
        names = await runner.list_cuts()

        await runner.delete_cut("noon")

        assert ["noon", other.name] == names
        assert [other.name] == await runner.list_cuts()
        with pytest.raises(CutRefused, match="no cut has this name"):
            await runner.get_cut("noon")
        with pytest.raises(CutRefused, match="no cut has this name"):
            await runner.delete_cut("noon")
        assert cut.cut_id != (await runner.cut(["ada", "bob"], name="noon")).cut_id

    async def test_cuts_are_no_runs(self, runner: DurableRunner, cut: Cut) -> None:
        """Who lists runs with checkpoints does not see them."""
        assert ["ada"] == [run.run_id for run in await runner.store.runs()]

    async def test_half_a_team_is_no_cut(self, runner: DurableRunner, cut: Cut) -> None:
        """Whoever is left out, misspelled, or another's is named."""
        with pytest.raises(CutRefused, match="'ada' exchanges messages with 'bob': add them"):
            await runner.cut(["ada"])
        with pytest.raises(CutRefused, match="'bobb': no checkpoint, and"):
            await runner.cut(["ada", "bob", "bobb"])
        with pytest.raises(CutRefused, match="there is one of that name, of 'ada', 'bob'"):
            await runner.cut(["ada", "bob", "cyd"], name="noon")
        with pytest.raises(CutRefused, match="a list of ids"):
            await runner.cut("ada")
        with pytest.raises(CutRefused, match="between 1 and"):
            await runner.cut([])
        with pytest.raises(CutRefused, match="at most 400 bytes"):
            await runner.cut(["ada"], name="x" * 401)

    async def test_agents_go_on_elsewhere(self, cut: Cut, other: DurableRunner) -> None:
        """A restored agent has its state, its snapshot's id and time, and its messages."""
        await restore_cut(cut, into=other.store)
        ada = await other.exchange("ada", peers=["bob"])
        bob = await other.exchange("bob", peers=["ada"])
        first, second = [await bob.receive(timeout=0) for _ in range(2)]
        restored = await other.store.get_latest_snapshot("ada")

        assert {"asked": 2} == ada.state
        assert bob.state is None
        assert first is not None
        assert second is not None
        assert ("one", "two") == (first.body, second.body)
        was = cut.agents["ada"]
        assert was is not None
        assert restored is not None
        assert (was.snapshot_id, was.created_at) == (restored.snapshot_id, restored.created_at)
        assert 3 == ada.send("bob", "three")

    async def test_restoring_again_is_nothing(self, cut: Cut, other: DurableRunner) -> None:
        """What is restored stays as it is, however far its agents have come."""
        await restore_cut(cut, into=other)
        ada = await other.exchange("ada", peers=["bob"])
        await ada.checkpoint("later", {"asked": 99})

        await restore_cut(cut, into=other)

        assert {"asked": 99} == (await other.exchange("ada", peers=["bob"])).state
        assert "restored" == (await other.get_cut("noon")).status

    async def test_a_cut_needs_room(
        self, runner: DurableRunner, cut: Cut, other: DurableRunner
    ) -> None:
        """It is not restored over agents that are there, nor beside another of its name."""
        with pytest.raises(CutRefused, match="it was taken there"):
            await restore_cut(cut, into=runner)
        await other.checkpoint("bob", "begun", {})
        with pytest.raises(CutRefused, match="'bob': there already"):
            await restore_cut(cut, into=other)
        assert [] == await other.list_cuts()
        await other.cleanup("bob")
        await restore_cut(cut, into=other)
        await runner.delete_cut("noon")
        second = await runner.cut(["ada", "bob"], name="noon")
        with pytest.raises(CutRefused, match="another cut of that name"):
            await restore_cut(second, into=other)

    async def test_agents_without_messages_are_cut_as_well(
        self, runner: DurableRunner, other: DurableRunner
    ) -> None:
        """Runs that only have checkpoints are agents that do not talk."""
        await runner.checkpoint("x", "s1", {"n": 1})
        await runner.checkpoint("y", "s2", {"n": 2}, {"agent": "why"})

        await restore_cut(await runner.cut(["x", "y"]), into=other)

        assert ({"n": 1}, {"n": 2}) == (await other.resume("x"), await other.resume("y"))
        (snapshot,) = await other.list_checkpoints("y")
        assert "why" == snapshot.metadata["agent"]

    async def test_a_restored_cut_can_be_deleted(self, cut: Cut, other: DurableRunner) -> None:
        """Its agents stay: it has done what it was for."""
        await restore_cut(cut, into=other)

        await other.delete_cut("noon")

        assert [] == await other.list_cuts()
        assert {"asked": 2} == await other.resume("ada")

    async def test_who_saves_without_the_exchange_sends_nothing(
        self, runner: DurableRunner, other: DurableRunner
    ) -> None:
        """Messages of an agent that was left are where they were, whoever saves it then."""
        ada = await ada_asks_bob(runner, "one", "two")
        bob = await runner.exchange("bob", peers=["ada"])
        await bob.receive(timeout=0)
        await bob.checkpoint("heard", {})
        await ada.leave()
        await runner.checkpoint("ada", "alone", {"by": "itself"})
        await runner.checkpoint("ada", "alone again", {"by": "itself"})

        cut = await runner.cut(["ada", "bob"])
        await restore_cut(cut, into=other)
        for place in (runner, other):
            ada = await place.exchange("ada", peers=["bob"])
            bob = await place.exchange("bob", peers=["ada"])
            taken = await bob.receive(timeout=0)

            assert {"by": "itself"} == ada.state
            assert taken is not None
            assert (2, "two") == (taken.number, taken.body)
            assert await bob.receive(timeout=0) is None
