"""A shared journal: whoever is not first reads on and decides again; nothing is decided twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

from outlive.checkpoints import decide as deciding
from outlive.checkpoints.store import draft_of
from outlive.errors import CorruptRecord, LeaseLost, StoreUnavailable
from outlive.journal import shared
from outlive.journal.lane import run_immediate
from outlive.journal.shared import SharedJournal
from outlive.model.checkpoints import Checkpoints
from outlive.model.ids import checkpoint_journal
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Conflict, Entry
from outlive.testing.crash.failing_store import CallFault, FailingStore

NAME = checkpoint_journal("r")


def journal(store: Any, name: str = NAME) -> SharedJournal[Checkpoints]:
    return SharedJournal(store, name, Checkpoints, os.urandom)


def run(holder: str = "", now: int = 1_000) -> deciding.CheckpointOwner:
    return deciding.CheckpointOwner(
        run_id="r", now=now, seed=os.urandom(8), metadata=b"\x80", holder=holder
    )


def save(of: SharedJournal[Checkpoints], step: str, state: dict[str, Any], holder: str = "") -> int:
    """Save a state; its seq."""
    decide = deciding.save(run(holder), draft_of(step, state))
    return run_immediate(of.append(decide, lambda fold: fold.seq))


def steps(of: SharedJournal[Checkpoints]) -> list[str]:
    return run_immediate(of.look(lambda fold: [saved.event.step for saved in fold.saved]))


def test_two_writers_lose_nothing() -> None:
    """Each goes on behind the other, though neither looks first."""
    store = MemoryStore()
    one, other = journal(store), journal(store)
    expected = []
    for number in range(20):
        save((one, other)[number % 2], f"s{number}", {"n": number})
        expected.append(f"s{number}")

    assert expected == steps(one) == steps(other) == steps(journal(store))


def test_an_append_is_one_call_of_the_store() -> None:
    """What is known of the journal is checked by the commit itself."""
    store = FailingStore(MemoryStore())
    of = journal(store)
    save(of, "first", {})
    before = len(store.calls)
    for number in range(5):
        save(of, f"s{number}", {"texts": ["x" * 600] * number})

    assert ["commit"] * 5 == store.calls[before:]


def test_a_refusal_knows_everything() -> None:
    """Who is out of date reads on before it says no, and before it says that nothing is to do."""
    store = MemoryStore()
    one, other = journal(store), journal(store)
    take = deciding.restore(run("b"), None, takes=True)
    save(one, "s", {})
    run_immediate(other.append(take, lambda fold: None))
    with pytest.raises(LeaseLost):
        save(one, "t", {})
    give = deciding.restore(run(""), None, takes=True)
    run_immediate(other.append(give, lambda fold: None))

    assert save(one, "t", {})
    assert ["s", "t"] == steps(other)


def test_who_is_never_first_is_told() -> None:
    """A bounded number of times, then it is the caller's turn to decide."""

    class Busy(MemoryStore):
        tries = 0

        async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
            self.tries += 1
            return [Conflict(seq=1, epoch=1)]

    store = Busy()
    with pytest.raises(StoreUnavailable, match="changed by others all the time; try again"):
        save(journal(store), "s", {})

    assert shared.TRIES_MAX == store.tries


def test_a_journal_that_began_anew_is_another() -> None:
    """What was decided on the old one never lands in the new one, at whatever seq it is."""
    store = MemoryStore()
    one, other = journal(store), journal(store)
    for step in ("a", "b"):
        save(one, step, {"old": step})
    always = deciding.clear(run(), lambda fold: True)
    run_immediate(other.append(always, lambda fold: None))
    assert run_immediate(other.delete())
    for step in ("x", "y"):
        save(other, step, {"new": step})

    assert 4 == save(one, "z", {"new": "z"})
    assert ["x", "y", "z"] == steps(one) == steps(journal(store))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_is_looked_up(when: Any) -> None:
    """Whether it was stored or not: the next append knows."""
    memory = MemoryStore()
    fault = CallFault(number=3, verb="commit", when=when, how="reply_lost")
    of = journal(FailingStore(memory, fault))
    save(of, "a", {"texts": ["a" * 600]})
    save(of, "b", {"texts": ["a" * 600, "b" * 600]})
    with pytest.raises(StoreUnavailable):
        save(of, "c", {"texts": ["a" * 600, "b" * 600, "c" * 600]})
    save(of, "d", {"texts": ["a" * 600, "b" * 600, "c" * 600, "d" * 600]})

    told = ["a", "b", "c", "d"] if when == "after" else ["a", "b", "d"]
    fresh = journal(memory)
    assert told == steps(of) == steps(fresh)
    last = run_immediate(fresh.look(lambda fold: fold.saved[-1]))
    raw: Any = run_immediate(fresh.values([(last.seq, last.event.state)]))[0]
    assert all(letter * 600 in raw.leaves.values() for letter in "abcd")


def test_nodes_of_a_lost_race_are_not_counted_on() -> None:
    """What a refused entry would have brought is brought by the next one."""
    store = MemoryStore()
    one, other = journal(store), journal(store)
    save(one, "a", {"n": 0})
    save(other, "b", {"text": "b" * 700})
    save(one, "c", {"text": "c" * 700, "more": [f"{n}" * 9 for n in range(500)]})
    save(other, "d", {"text": "d" * 700, "more": [f"{n}" * 9 for n in range(501)]})
    fresh = journal(store)
    saved = run_immediate(fresh.look(lambda fold: list(fold.saved)))
    values = run_immediate(fresh.values([(each.seq, each.event.state) for each in saved]))

    assert 4 == len(values)


def test_a_process_per_step_stores_what_is_new() -> None:
    """Who goes on with another's journal leans on what that has stored."""
    store, sizes = MemoryStore(), []
    state: dict[str, Any] = {"seen": {}}
    for number in range(60):
        state["seen"] |= {os.urandom(6).hex(): os.urandom(20).hex() for _ in range(20)}
        save(journal(store), f"s{number}", state)
        nodes = sum(len(body) for some in store._nodes.values() for body in some.values())
        sizes.append(nodes + sum(len(r.body) for r in store._journals[NAME].records))
    fresh = journal(store)
    last = run_immediate(fresh.look(lambda fold: fold.saved[-1]))
    run_immediate(fresh.values([(last.seq, last.event.state)]))

    assert sizes[-1] < 4 * last.event.size


def test_damage_is_reported_and_nothing_is_kept_of_it() -> None:
    """A record that is not what it was is an error each time, with its place."""
    store = MemoryStore()
    of = journal(store)
    save(of, "a", {})
    save(of, "b", {})
    records = store._journals[NAME].records
    whole = records[1]
    records[1] = type(whole)(whole.seq, whole.body[:-1] + b"!")
    fresh = journal(store)
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=f"run {NAME}, seq 3"):
            steps(fresh)
    records[1] = whole

    assert ["a", "b"] == steps(fresh)
