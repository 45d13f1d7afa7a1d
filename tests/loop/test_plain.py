"""Loops in plain code, and loops whose snapshots somebody else keeps."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from outlive import sync
from outlive.errors import (
    IncompatibleCheckpoint,
    NotInRun,
    RunIdRefused,
    UsageError,
    ValueRefused,
)
from outlive.loop import Loop, Snapshot, State, drive, load, resume, step_once
from outlive.sync import loop as blocking
from tests.loop.agents import Agent, Clerk, Kept, KeptClerk, send


def loop_module() -> Any:
    import outlive.loop

    return outlive.loop


class Shelf:
    """Keeps every snapshot that it was given, and the last of them."""

    def __init__(self) -> None:
        self.saved: list[Snapshot] = []
        self.deleted = 0

    def save(self, snapshot: Snapshot) -> None:
        self.saved.append(snapshot)

    def load(self) -> Any:
        return self.saved[-1] if self.saved else None

    def delete(self) -> None:
        self.deleted += 1


class File:
    """As a script would write it: write, then rename."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, snapshot: Snapshot) -> None:
        beside = self.path.with_suffix(".tmp")
        beside.write_text(json.dumps(snapshot))
        os.replace(beside, self.path)

    def load(self) -> Any:
        return json.loads(self.path.read_text()) if self.path.exists() else None


class AsyncShelf(Shelf):
    """The same, to be awaited."""

    async def save(self, snapshot: Snapshot) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().save(snapshot)

    async def load(self) -> Any:
        await asyncio.sleep(0)
        return super().load()


class Archive(Shelf):
    """Only its delete is awaited."""

    async def delete(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().delete()


class Client:
    """Something that a loop uses; a copy of it would be another one."""

    calls = 0


class Unlucky(KeptClerk):
    """Fails in the middle of what it observes, when its client is called first."""

    def setup(self) -> None:
        self.client, self.lock = Client(), Lock()
        self.notes: list[str] = []

    def on_observing(self) -> State:
        following = super().on_observing()
        self.notes.append(self.heard)
        self.heard, self.size = "half", 1
        self.client.calls += 1
        if self.client.calls == 1:
            raise ConnectionError("once")
        return following


def drive_with_checkpoint(loop: Loop, store: Any) -> None:
    """The loop of those who write it by themselves."""
    while loop.state not in (State.COMPLETE, State.FAILED):
        step_once(loop)
        store.save(loop.snapshot())
    store.save(loop.snapshot())


def test_a_driver_of_ones_own_needs_no_store_of_ours() -> None:
    """One transition after another, each snapshot with the next number."""
    loop, shelf = Clerk("a b", id="x"), Shelf()
    drive_with_checkpoint(loop, shelf)

    assert (State.COMPLETE, ["a found", "b found"]) == (loop.state, loop.results)
    # What EXECUTING heard is on the loop and in no snapshot: that of before it counts.
    assert [1, 1, 3, 4, 4, 6, 7, 7] == [each.seq for each in shelf.saved]
    with pytest.raises(UsageError, match=r"loop x is over \(COMPLETE\)"):
        step_once(loop)


class Careful(Clerk):
    """What it hears is in its context, where every snapshot has it."""

    def on_executing(self) -> State:
        self.context["heard"] = self.use(self.current)
        return State.OBSERVING

    def on_observing(self) -> State:
        self.heard = self.context["heard"]
        following = super().on_observing()
        del self.heard
        return following


class Listener(Clerk):
    """What it hears has a place that ``setup`` makes."""

    def setup(self) -> None:
        self.heard: Any = None


@pytest.mark.parametrize("kind", [Clerk, Careful, Listener])
def test_it_goes_on_from_whatever_a_driver_of_ones_own_saved(kind: type[Clerk]) -> None:
    """Killed behind any transition, also in the middle of the work: nothing is missing."""
    whole, shelf = kind("a a b", id="x"), Shelf()
    drive_with_checkpoint(whole, shelf)
    for number in range(1, len(shelf.saved) + 1):
        loop = kind.from_dict(json.loads(json.dumps(shelf.saved[number - 1])))
        if not loop.is_over:
            drive_with_checkpoint(loop, Shelf())

        assert ["a found", "a found", "b found"] == loop.results
        assert whole.snapshot() == loop.snapshot()


def test_what_a_snapshot_has_whole_is_not_done_again() -> None:
    """Behind work that is all in the parts, the snapshot is of that very moment."""
    shelf = Shelf()
    drive_with_checkpoint(Careful("a b", id="x"), shelf)

    assert [1, 2, 3, 4, 5, 6, 7, 7] == [each.seq for each in shelf.saved]


def test_it_is_told_where_something_went_that_a_handler_had_set() -> None:
    """The reason, and where to keep it instead."""
    loop = Clerk.from_dict(Snapshot(1, "a", "OBSERVING", ["a"]))
    with pytest.raises(AttributeError) as raised:
        step_once(loop)

    (note,) = raised.value.__notes__
    assert "anything else that a handler sets is gone after a checkpoint: keep 'heard'" in note
    assert "self.context, or make it in setup()" in note


def test_a_verb_that_nobody_awaits_is_refused_at_the_next_call() -> None:
    """The driver of one's own does not go round for ever over handlers that are async."""
    loop, shelf = Kept("a", id="x"), Shelf()
    with pytest.raises(UsageError, match="step_once was called on loop x and not awaited") as told:
        drive_with_checkpoint(loop, shelf)
    assert "outlive.sync.loop.step_once(...)" in str(told.value)
    assert [] == shelf.saved
    drive(loop, shelf)
    with pytest.raises(UsageError, match="drive was called on loop x and not awaited"):
        drive(loop, shelf)

    asyncio.run(step_once(loop))
    blocking.step_once(loop)
    assert 2 == loop.seq


async def test_a_transition_that_is_cancelled_before_it_begins_may_be_made_again() -> None:
    """It was not forgotten."""
    loop = Kept("a", id="x")
    task = asyncio.create_task(step_once(loop))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await step_once(loop)

    assert 1 == loop.snapshot().seq


BASE = """
from outlive.loop import Loop, State

class Clerk(Loop):
    def on_planning(self): return State.EXECUTING
    def on_executing(self): return State.OBSERVING
    def on_observing(self): return State.REFLECTING
    def on_reflecting(self): return State.COMPLETE

loop = Loop.from_dict({"version": 1, "request": "x", "state": "OBSERVING"})
print(type(loop).__name__, loop.state.name)

class Second(Clerk):
    pass

try:
    Loop.from_dict(loop.snapshot())
except Exception as error:
    print(error)
"""


def test_the_base_class_makes_a_loop_of_the_only_kind_there_is() -> None:
    """As scripts have one; of several it does not guess."""
    done = subprocess.run([sys.executable, "-c", BASE], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()

    assert "Clerk OBSERVING" == first
    assert "several kinds of loop are defined (Clerk, Second)" in second
    assert "YourLoop.from_dict(snapshot)" in second


def test_snapshots_are_saved_at_the_named_transitions() -> None:
    """After planning, observing, reflecting and at the end, when it is let go of."""
    shelf = Shelf()
    loop: Any = drive(Clerk("a b", id="x"), shelf)

    states = ["EXECUTING", "REFLECTING", "EXECUTING", "REFLECTING", "COMPLETE"]
    assert states == [each.state for each in shelf.saved]
    assert (1, True) == (shelf.deleted, loop.is_over)


def test_from_every_snapshot_it_goes_on_to_the_same_end() -> None:
    """Whatever came after it was lost."""
    shelf = Shelf()
    whole: Any = drive(Clerk("a b c", id="x"), shelf)
    for number in range(1, len(shelf.saved) + 1):
        again = Shelf()
        again.saved = shelf.saved[:number]
        loop: Any = resume(again, loop=Clerk)

        assert whole.snapshot() == loop.snapshot()
    assert None is resume(Shelf(), loop=Clerk)


def test_saved_snapshots_do_not_change_with_the_loop() -> None:
    """Each is as it was saved."""
    shelf = Shelf()
    drive(Clerk("a b", id="x"), shelf)

    assert [0, 1, 1, 2, 2] == [len(each.results) for each in shelf.saved]


def test_what_is_not_in_the_snapshot_is_gone_after_a_checkpoint() -> None:
    """Without a journal as with one: whoever is resumed would not have it either."""

    class Forgetful(Clerk):
        def on_reflecting(self) -> State:
            self.context["heard"] = hasattr(self, "heard")
            return super().on_reflecting()

    loop: Any = drive(Forgetful("a"), Shelf())

    assert {"heard": False} == loop.context


def test_an_end_in_the_middle_of_the_work_is_saved() -> None:
    """No checkpoint follows executing, but for the last."""

    class Clumsy(Clerk):
        def on_executing(self) -> State:
            return State.FAILED

    shelf = Shelf()
    drive(Clumsy("a"), shelf)

    assert ["EXECUTING", "FAILED"] == [each.state for each in shelf.saved]


def test_snapshots_live_in_a_file_as_well(tmp_path: Path) -> None:
    """A script's own store: the last one is what was renamed last."""
    file = File(tmp_path / "loop.json")
    loop: Any = drive(KeptClerk("a b", id="x"), file)

    assert loop.snapshot() == file.load()
    ended: Any = resume(file, loop=KeptClerk)
    assert loop.snapshot() == ended.snapshot()
    file.save(Snapshot(**{**loop.snapshot(), "version": 7}))
    with pytest.raises(IncompatibleCheckpoint, match="has version 7, this code reads 1"):
        resume(file, loop=KeptClerk)


async def test_a_store_may_be_awaited() -> None:
    """And so may the handlers."""

    class Reader(Agent):
        pass

    shelf = AsyncShelf()
    loop = await drive(Reader("a b", id="x"), shelf)
    shelf.saved = shelf.saved[:2]
    again = await resume(shelf, loop=Reader)

    assert again is not None
    assert loop.snapshot() == again.snapshot()


def test_only_deleting_may_be_awaited_too() -> None:
    """In plain code the loop comes back, and is gone from there."""
    shelf = Archive()
    loop: Any = drive(Clerk("a", id="x"), shelf)

    assert (1, ["a found"]) == (shelf.deleted, loop.results)


def test_a_transition_that_fails_leaves_all_of_the_loop_as_it_was() -> None:
    """What handlers set beside its parts, too; what is no value stays itself."""
    loop = Unlucky("a", id="x")
    step_once(loop)
    step_once(loop)
    client, lock, names = loop.client, loop.lock, set(vars(loop))
    with pytest.raises(ConnectionError):
        step_once(loop)

    assert ("a found", [], [], 0) == (loop.heard, loop.notes, loop.results, loop.cursor)
    assert (client, lock, names) == (loop.client, loop.lock, set(vars(loop)))
    step_once(loop)
    assert (["a found"], ["a found"]) == (loop.notes, loop.results)


def test_a_loop_whose_handler_failed_can_be_driven_again() -> None:
    """From where it stood: nothing of what the handler had done is done twice."""
    loop, shelf = Unlucky("a", id="x"), Shelf()
    with pytest.raises(ConnectionError):
        drive(loop, shelf)
    assert (State.OBSERVING, []) == (loop.state, loop.results)
    drive(loop, shelf)

    assert ["a found"] == shelf.saved[-1].results


def test_a_snapshot_is_that_of_its_loop() -> None:
    """Whoever asks for another one is told that it is not there."""
    shelf = Shelf()
    shelf.save(Clerk("a", id="x").snapshot())

    assert None is resume(shelf, "y", Clerk)
    assert None is load(shelf, "y", Clerk)
    seen: Any = load(shelf, "x", Clerk)
    assert (State.PLANNING, 1) == (seen.state, len(shelf.saved))
    ended: Any = resume(shelf, "x", Clerk)
    assert State.COMPLETE is ended.state
    wrong: Any = 5
    with pytest.raises(RunIdRefused, match="a run id is a non-empty text, not 5"):
        resume(shelf, wrong, Clerk)


def test_a_part_of_another_type_is_refused_at_its_transition() -> None:
    """The loop is as it was, and nothing is saved."""

    class Careless(Clerk):
        def on_planning(self) -> State:
            self.plan = None  # type: ignore[assignment]
            return State.COMPLETE

    loop, shelf = Careless("a"), Shelf()
    with pytest.raises(ValueRefused, match=r"\$\.plan: this part of a snapshot is a list, not"):
        drive(loop, shelf)

    assert (State.PLANNING, [], []) == (loop.state, loop.plan, shelf.saved)


async def test_without_a_journal_effects_are_refused() -> None:
    """A snapshot alone could not keep them from happening twice; the loop is as it was."""
    loop = Agent("!a", id="x")
    await step_once(loop)
    before = loop.snapshot()
    with pytest.raises(NotInRun, match="send was called outside a run"):
        await step_once(loop)

    assert before == loop.snapshot()
    assert "x/1/mail" == loop.key("mail")


def test_a_snapshot_does_not_say_of_which_class_it_is() -> None:
    """Where there are several, that has to be said."""
    with pytest.raises(UsageError, match=r"several kinds of loop are defined .*loop=YourLoop"):
        asyncio.run(_resumed(Shelf()))


async def _resumed(shelf: Shelf) -> None:
    shelf.save(Clerk("a").snapshot())
    await resume(shelf)


def test_what_keeps_no_loops_is_refused() -> None:
    """In words that say what does."""
    nothing: Any = 7
    with pytest.raises(UsageError, match="7 can't keep loops; give a URL"):
        drive(Clerk("a"), nothing)


@pytest.mark.parametrize("verbs", [loop_module(), blocking], ids=["async", "blocking"])
def test_what_is_no_loop_is_refused(verbs: Any, tmp_path: Path) -> None:
    """A class where a loop is meant, a name or the base where a class is, an id that is none."""
    where = f"sqlite:///{tmp_path / 'loops.db'}"
    for verb in (verbs.step_once, partial(verbs.drive, store=where)):
        with pytest.raises(
            UsageError, match=r"Clerk'> is not a loop; make one: YourLoop\(request\)"
        ):
            verb(Clerk)
    for kind in ("Clerk", Loop, State):
        for verb in (verbs.resume, verbs.load):
            with pytest.raises(UsageError, match=r"loop=.* is not a loop that can be driven; give"):
                verb(where, "x", kind)
    with pytest.raises(RunIdRefused, match="a run id is a non-empty text, not 5"):
        verbs.resume(where, 5, Clerk)


def test_plain_loops_need_no_await(tmp_path: Path) -> None:
    """On a store of ours, as on their own; a loop with async handlers is awaited as ever."""
    where = f"sqlite:///{tmp_path / 'loops.db'}"
    loop: Any = drive(KeptClerk("a !b", id="x"), where)
    seen: Any = load(where, "x", KeptClerk)
    other = asyncio.run(drive(Kept("a", id="y"), where))

    assert ["a found", "!b sent under send:!b"] == loop.results == seen.results
    assert (State.COMPLETE, State.COMPLETE) == (loop.state, other.state)


def test_the_blocking_side_has_every_verb(tmp_path: Path) -> None:
    """For loops of either kind, by URL or with an app."""
    where = f"sqlite:///{tmp_path / 'loops.db'}"
    with sync.open(where) as app:
        assert State.COMPLETE is blocking.drive(Kept("a", id="x"), app).state
        assert State.COMPLETE is blocking.drive(KeptClerk("a", id="y"), app).state
        assert None is blocking.resume(app, "z", Kept)
        assert app.delete("x")
        assert None is blocking.load(app, "x", Kept)
    seen = blocking.load(where, "y", KeptClerk)
    assert seen is not None
    assert seen.is_over
    loop = Agent("a")
    blocking.step_once(loop)
    assert State.EXECUTING is loop.state
    assert set(blocking.__all__) == {*blocking.__all__, *vars(loop_module())["__all__"]}


def test_an_effect_is_declared_once_and_used_by_both_kinds() -> None:
    """The tools of the async agent are those of the clerk."""
    assert "send" == send.definition.name
