"""Loops that are runs: driven to their end, gone on with, looked at, let go of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import (
    FlowNotRegistered,
    IllegalTransition,
    IncompatibleCheckpoint,
    RunFailed,
    RunIdTaken,
    UsageError,
)
from outlive.loop import Loop, State, drive, load, resume
from outlive.model.events import ChapterBegan
from tests.harness.processes import eventually
from tests.loop.agents import Agent, Kept, KeptClerk, Release, Stage, look_up

PATIENCE_SECONDS = 20.0


class Patient(Agent):
    """Waits for a word before it reflects."""

    keep = None

    async def on_reflecting(self) -> State:
        await outlive.wait_signal("go")
        return await super().on_reflecting()


async def until(app: App, run_id: str, status: str) -> None:
    handle = await app.get(run_id)

    async def is_so() -> bool:
        return await handle.status() == status

    await eventually(is_so, f"{run_id} to be {status}")


async def left_waiting(app: App, kind: type[Loop] = Patient, id: str = "x") -> None:
    """A loop that was begun and waits."""
    await app.start(kind.flow, "a b", id=id)
    await until(app, id, "waiting")


async def chapters(app: App, run_id: str) -> list[ChapterBegan]:
    events = await (await app.get(run_id)).read()
    return [event for event in events if isinstance(event, ChapterBegan)]


async def test_a_loop_is_driven_to_its_end(app: App) -> None:
    """The loop that was given is what it ended as; effects have their keys."""
    loop = Agent("a !b c", id="x")
    ended = await drive(loop, app)

    assert ended is loop
    assert (State.COMPLETE, 3, 10) == (loop.state, loop.cursor, loop.seq)
    assert ["a found", "!b sent under send:!b", "c found"] == loop.results


async def test_a_loop_that_is_over_is_not_kept(app: App) -> None:
    """There is nothing to go on with; and nobody does it all again under the same id."""
    await drive(Agent("a", id="x"), app)

    assert [] == list((await app.find()).items)
    assert None is await resume(app, "x")
    with pytest.raises(RunIdTaken, match="deleted not long ago"):
        await drive(Agent("a", id="x"), app)


class Usual(Agent):
    """Kept as long as loops are that say nothing."""

    keep = Loop.keep


async def test_the_same_id_behind_the_end_gives_what_it_ended_as(app: App) -> None:
    """As ``outlive.run`` does; nothing is done again."""
    first = await drive(Usual("a !b", id="x"), app)
    again = await drive(Usual("a !b", id="x"), app)

    assert (State.COMPLETE, first.snapshot()) == (again.state, again.snapshot())
    assert Loop.keep is not None


async def test_a_loop_that_is_kept_is_a_run_like_any_other(app: App) -> None:
    """Named after its class, of its version; driven again it is what it was."""
    await drive(Kept("a", id="x"), app)
    (found,) = (await app.find(flow="Kept")).items

    assert ("1", "completed") == (found.header.version, found.header.status)
    again = await drive(Kept("a", id="x"), app)
    assert (again.results, 4) == ((await drive(Kept("a", id="x"), app)).results, again.seq)
    resumed = await resume(app, "x", Kept)
    assert resumed is not None
    assert again.snapshot() == resumed.snapshot()
    with pytest.raises(RunIdTaken, match="has other arguments"):
        await drive(Kept("b", id="x"), app)


async def test_failed_is_an_end_that_the_loop_decided_on(app: App) -> None:
    """The run completed; it is the loop that failed."""
    loop = await drive(Kept("fail", id="x"), app)

    assert (State.FAILED, ["fail found"]) == (loop.state, loop.results)
    assert "completed" == await (await app.get("x")).status()


@pytest.mark.parametrize("request_", [[], {}, 0, "", None], ids=repr)
async def test_an_empty_request_is_a_request(app: App, request_: Any) -> None:
    """A handler gets what was asked for, however little that is."""

    class Curious(Kept):
        async def on_planning(self) -> State:
            self.context["asked"] = repr(self.request)
            return State.COMPLETE

    loop = await drive(Curious(request_, id="x"), app)

    assert (request_, {"asked": repr(request_)}) == (loop.request, loop.context)


async def test_a_loop_that_somebody_else_deleted_is_let_go_of(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drive one loop to its end, and the other one is the first to delete it."""
    delete = app.delete

    async def second(run_id: str) -> bool:
        await delete(run_id)
        return await delete(run_id)

    monkeypatch.setattr(app, "delete", second)

    assert State.COMPLETE is (await drive(Agent("a", id="x"), app)).state


async def test_a_checkpoint_follows_planning_observing_and_reflecting(app: App) -> None:
    """And never executing; each has the parts of the loop as it stood."""
    await drive(Kept("a b", id="x"), app)
    parts = [Kept.flow.args_codec.decode(each.args) for each in await chapters(app, "x")]

    states = ["EXECUTING", "REFLECTING", "EXECUTING", "REFLECTING"]
    assert states == [each["state"] for each in parts]
    assert [1, 3, 4, 6] == [each["seq"] for each in parts]
    assert [[], ["a found"], ["a found"], ["a found", "b found"]] == [p["results"] for p in parts]


async def test_a_checkpoint_can_be_had_less_often(app: App) -> None:
    """After every third transition that may have one."""

    class Seldom(Kept):
        checkpoint_every = 3

    loop = await drive(Seldom("a b c", id="x"), app)

    assert (10, 2) == (loop.seq, len(await chapters(app, "x")))


async def test_a_machine_of_its_own(app: App) -> None:
    """Its states, its moves, its work in whose middle nothing is saved."""
    loop = await drive(Release(3, id="x"), app)

    assert (Stage.DONE, 4) == (loop.state, len(loop.results))
    states = [Release.flow.args_codec.decode(e.args)["state"] for e in await chapters(app, "x")]
    assert ["TEST", "BUILD"] * 2 + ["TEST", "SHIP"] == states


async def test_a_plain_machine_is_a_plain_run(app: App) -> None:
    """The same loop without await, in a thread of its own."""
    loop = await drive(KeptClerk("a !b", id="x"), app)

    assert ["a found", "!b sent under send:!b"] == loop.results
    assert 4 == len(await chapters(app, "x"))


@dataclass(frozen=True)
class Task:
    """What a plan is made of."""

    what: str


class Typed(Kept):
    """A plan of its author's own class."""

    plan: list[Task]

    async def on_planning(self) -> State:
        self.plan = [Task(each) for each in self.request.split()]
        return State.EXECUTING

    async def on_executing(self) -> State:
        self.heard = await look_up(self.plan[self.cursor].what)
        return State.OBSERVING


async def test_parts_may_be_of_classes_that_their_hints_name(app: App) -> None:
    """They come back as themselves at each checkpoint, and at the end; others are refused."""
    loop = await drive(Typed("a b", id="x"), app)
    assert ([Task("a"), Task("b")], ["a found", "b found"]) == (loop.plan, loop.results)

    class Untyped(Typed):
        plan: list[Any]

    with pytest.raises(RunFailed, match=r"\$\.plan\[0\]"):
        await drive(Untyped("a", id="y"), app)


async def test_what_is_not_in_the_snapshot_is_gone_after_a_checkpoint(app: App) -> None:
    """Live as after a crash: no loop gets used to what would not be there."""

    class Forgetful(Kept):
        async def on_planning(self) -> State:
            self.note = "not saved"
            return await super().on_planning()

        async def on_executing(self) -> State:
            self.context["note"] = getattr(self, "note", "gone")
            return await super().on_executing()

    assert {"note": "gone"} == (await drive(Forgetful("a", id="x"), app)).context


async def test_a_handler_that_raises_fails_the_run_which_can_be_tried_again(app: App) -> None:
    """The loop at hand is as it was; what was done stays done."""
    broken = [True]

    class Fragile(Kept):
        async def on_reflecting(self) -> State:
            if broken[0]:
                raise LookupError("no model")
            return await super().on_reflecting()

    loop = Fragile("a", id="x")
    before = loop.snapshot()
    with pytest.raises(RunFailed, match="no model") as failed:
        await drive(loop, app)
    assert isinstance(failed.value.__cause__, LookupError)
    assert before == loop.snapshot()

    broken.clear()
    broken.append(False)
    await app.retry("x")
    assert State.COMPLETE is (await drive(loop, app)).state


async def test_an_illegal_move_fails_the_run_with_its_reason(app: App) -> None:
    """Both states and the legal ones, as without a run."""

    class Jumpy(Kept):
        async def on_planning(self) -> State:
            return State.REFLECTING

    with pytest.raises(RunFailed) as failed:
        await drive(Jumpy("a", id="x"), app)
    assert isinstance(failed.value.__cause__, IllegalTransition)
    assert ["EXECUTING", "COMPLETE", "FAILED"] == failed.value.__cause__.legal


@pytest.mark.parametrize("follows", [State.EXECUTING, State.COMPLETE])
async def test_a_part_of_another_type_is_refused_at_its_transition(
    app: App, follows: State
) -> None:
    """In the middle and at the end: nothing is recorded that could not be loaded."""

    class Careless(Kept):
        async def on_planning(self) -> State:
            self.plan = None  # type: ignore[assignment]
            return follows

    with pytest.raises(RunFailed, match=r"\$\.plan: this part of a snapshot is a list, not NoneT"):
        await drive(Careless("a", id="x"), app)
    seen = await load(app, "x", Careless)

    assert seen is not None
    assert (State.PLANNING, 0) == (seen.state, seen.seq)


# going on


async def test_the_only_loop_under_way_is_found_without_its_id(app: App) -> None:
    """Several have to be told apart; where there is none, that is no error."""
    assert None is await resume(app, loop=Patient)
    await left_waiting(app)
    await (await app.get("x")).signal("go")
    await (await app.get("x")).signal("go")
    resumed = await resume(app, loop=Patient)

    assert resumed is not None
    assert ("x", State.COMPLETE) == (resumed.id, resumed.state)
    await left_waiting(app, id="y")
    await left_waiting(app, id="z")
    with pytest.raises(UsageError, match=r"2 loops are under way \(y, z\); say which: resume\("):
        await resume(app, loop=Patient)


async def test_a_loop_is_looked_at_without_being_driven(app: App) -> None:
    """As its last checkpoint has it."""
    await left_waiting(app)
    seen = await load(app, "x")

    assert isinstance(seen, Patient)
    assert (State.REFLECTING, ["a found"], 3) == (seen.state, seen.results, seen.seq)
    assert None is await load(app, "y")
    await drive(Kept("a", id="k"), app)
    ended = await load(app, "k", Kept)
    assert ended is not None
    assert ended.is_over


async def test_a_run_of_another_flow_is_no_loop(app: App) -> None:
    """It is refused by name."""

    @outlive.flow
    async def other() -> int:
        return 1

    await (await app.start(other, id="x"))
    with pytest.raises(FlowNotRegistered, match="flow 'other' is not registered"):
        await resume(app, "x", Kept)


def versioned(number: int, known: dict[int, Callable[[dict[str, Any]], Any]]) -> type[Loop]:
    """The same loop with another schema."""
    return type("Versioned", (Patient,), {"version": number, "upcasters": known})


async def test_code_of_another_schema_does_not_go_on(app: App) -> None:
    """Neither older nor newer code, by whatever verb; both versions are named."""
    await left_waiting(app, versioned(2, {}))
    for number in (1, 3):
        other = versioned(number, {})
        for verb in (
            resume(app, "x", other),
            drive(other("a b", id="x"), app),
            load(app, "x", other),
        ):
            with pytest.raises(IncompatibleCheckpoint) as refused:
                await verb
            assert (2, number) == (refused.value.found, refused.value.wanted)


async def test_newer_code_goes_on_where_upcasters_lead(app: App) -> None:
    """From the last checkpoint on; what was recorded since then is replayed."""
    await left_waiting(app, versioned(1, {}))
    newer = versioned(
        3,
        {
            1: lambda old: {**old, "context": {"seen": len(old["results"])}},
            2: lambda old: {**old, "results": [f"{each}!" for each in old["results"]]},
        },
    )
    await app._workers.stop()
    for _ in range(2):
        await (await app.get("x")).signal("go")
    loop = await drive(newer("a b", id="x"), app)

    assert ({"seen": 1}, ["a found!", "b found"]) == (loop.context, loop.results)
    assert "3" == (await app.read("x", 1 << 62)).header.version
