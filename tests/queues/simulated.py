"""Eight simulated workers on one store, with one seed: they die, pause, lose replies, clocks jump.

Time is a heap of things to do. Workers follow the protocol of claims and nothing else: look, take,
beat, park, end. What they send travels for a while, so that it may arrive when its sender is dead
or fenced. A judge who sees every commit in the order in which the store did it counts for himself.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from outlive.journal.lane import run_immediate
from outlive.stores.seam import Store
from outlive.stores.types import Conflict, Entry, Offer, QueueLimits
from outlive.testing.suite.entries import (
    LEASE_SECONDS,
    START_MS,
    WANTED,
    HandClock,
    claim_of,
    entry,
    queued,
)

WORKERS = 8
KEYS = ("", "hog", "k1", "k2")
#: A run that is the first of its lane is passed by so many others of its queue at most, for each
#: that was there before it: one of eight is the oldest; and by what eight workers had in hand.
PASSED_PER_OLDER = 8
PASSED_IN_HAND = 2 * WORKERS * 4
END_SECONDS = 3000.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run stands."""

    queue: str
    key: str
    priority: int
    units: int

    @property
    def lane(self) -> tuple[str, str, int]:
        """Those of one lane go one after the other."""
        return self.queue, self.key, self.priority


@dataclass(slots=True)
class Judge:
    """Counts what is held and what began, from what the store acknowledged."""

    limits: dict[str, QueueLimits]
    places: dict[str, Place] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    #: By queue: when units were spent, by a time that never goes back.
    spent: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)
    #: Runs that wait for their first claim, in their order: how many others of their queue have
    #: begun since they were the first of their lane and their key was not full.
    passed: dict[str, int] = field(default_factory=dict)
    passed_most: int = 0
    #: By run that waits: how many of its queue have waited longer, by the store's clock. One that
    #: comes after that was set back counts as older, too.
    older: dict[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    begun: int = 0
    ended: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def expect(self, run_id: str, place: Place, now_ms: int) -> None:
        """One more waits."""
        waiting = [other for other in self.passed if self.places[other].queue == place.queue]
        for other in waiting:
            self.older[other] += now_ms < self.since[other]
        self.places[run_id], self.since[run_id] = place, now_ms
        self.older[run_id], self.passed[run_id] = len(waiting), 0

    def see(self, batch: Sequence[Entry], answers: Sequence[Conflict | None], now: float) -> None:
        """A commit was done."""
        for each, conflict in zip(batch, answers, strict=True):
            if conflict is not None or each.run_id in self.ended:
                continue
            if each.lease == "take":
                self._take(each, now)
            elif each.lease == "free":
                self.held.pop(each.run_id, None)
                if each.header is not None and each.header.ended_at is not None:
                    self.ended.add(each.run_id)
        self._check()

    def _take(self, each: Entry, now: float) -> None:
        assert each.worker is not None
        self.held[each.run_id] = each.worker
        if self.passed.pop(each.run_id, None) is None:
            return  # not its first claim, or told again
        self.begun += 1
        place = self.places[each.run_id]
        self._pass(place)
        self._spend(place, now)

    def _pass(self, place: Place) -> None:
        first: dict[tuple[str, str, int], str] = {}
        for other in self.passed:
            lane = self.places[other].lane
            if lane[0] == place.queue and lane != place.lane:
                first.setdefault(lane, other)
        per_key = self.limits.get(place.queue, QueueLimits()).per_key
        keys = Counter(self.places[run].lane[:2] for run in self.held)
        for lane, other in first.items():
            if per_key is None or not lane[1] or keys[lane[:2]] < per_key:
                self.passed[other] += 1
                self.passed_most = max(self.passed_most, self.passed[other])
                if self.passed[other] > PASSED_PER_OLDER * (self.older[other] + 1) + PASSED_IN_HAND:
                    self.broken.append(f"{other} starves: passed by {self.passed[other]}")

    def _spend(self, place: Place, now: float) -> None:
        limits = self.limits.get(place.queue)
        if limits is None or limits.rate is None:
            return
        spent = self.spent.setdefault(place.queue, deque())
        # One that exceeds the rate alone may begin, and nothing else beside it.
        spent.append((now, min(place.units, limits.rate)))
        while spent[0][0] <= now - limits.rate_ms:
            spent.popleft()
        if sum(units for _, units in spent) > limits.rate:
            self.broken.append(f"{place.queue} spent {list(spent)}, {limits}")

    def _check(self) -> None:
        in_all: Counter[object] = Counter()
        for run_id, worker in self.held.items():
            place = self.places[run_id]
            in_all.update([place.queue, (place.queue, "worker", worker)])
            if place.key:
                in_all[place.queue, "key", place.key] += 1
        for what, held in in_all.items():
            queue = what if isinstance(what, str) else str(what[0])  # type: ignore[index]
            limits = self.limits.get(queue, QueueLimits())
            kind = "all" if isinstance(what, str) else str(what[1])  # type: ignore[index]
            most = {
                "all": limits.concurrency,
                "key": limits.per_key,
                "worker": limits.per_worker,
            }[kind]
            if most is not None and held > most:
                self.broken.append(f"{what} holds {held}, {limits}")


class Simulation:
    """A store, its workers, and what befalls them."""

    def __init__(self, seed: int, make_store: Callable[[HandClock], Store]) -> None:
        self.rng = random.Random(seed)
        self.clock = HandClock()
        self.store = make_store(self.clock)
        self.now = 0.0
        #: The store's clock, without its steps back.
        self.elapsed_ms = 0.0
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self.calm = False
        self.faults: Counter[str] = Counter()
        self.judge = Judge(self._make_limits())
        self.workers = [_Worker(self, number) for number in range(WORKERS)]

    def _make_limits(self) -> dict[str, QueueLimits]:
        rng = self.rng
        made = {}
        for queue in ("q", "r"):
            made[queue] = QueueLimits(
                concurrency=rng.choice((1, 2, 3, None)),
                per_key=rng.choice((1, 2, None)),
                per_worker=rng.choice((1, 2, None)),
                rate=rng.choice((3, 7, None)),
                rate_ms=rng.choice((700, 10_000)),
            )
            run_immediate(self.store.set_queue(queue, made[queue], replace=True))
        return made

    # time

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._todo, (self.now + seconds, next(self.numbers), do))

    def run(self, runs: int) -> None:
        """Submit, let things happen, then let all of it end in peace."""
        for number in range(runs):
            is_early = number < runs // 2
            self.after(number * 0.002 if is_early else self.rng.random() * 20.0, self._submit)
        for _ in range(12):
            self.after(self.rng.random() * 40.0, self._strike)
        self.after(40.0, self._calm_down)
        while self._todo and not self._is_over(runs):
            at, _, do = heapq.heappop(self._todo)
            self.clock.advance(at - self.now)
            self.elapsed_ms += (at - self.now) * 1000
            self.now = at
            do()
            if self.judge.broken or self.now > END_SECONDS:
                return

    def _is_over(self, runs: int) -> bool:
        return len(self.judge.ended) == runs

    def _calm_down(self) -> None:
        self.calm = True

    # runs

    def _submit(self) -> None:
        rng, number = self.rng, len(self.judge.places)
        queue = rng.choice(("q", "q", "q", "r", "free", "default"))
        key = "" if queue == "default" else rng.choice((*KEYS, "hog", "hog", "hog"))
        priority = 0 if queue == "default" else rng.choice((0, 0, 0, -1, 5))
        place = Place(queue, key, priority, rng.choice((1, 1, 1, 2, 3, 9)))
        run_id = f"run-{number}"
        made = queued(
            run_id,
            queue,
            queue_key=key,
            units=place.units,
            priority=priority,
            wake_at=self.clock.now_ms(),
        )
        self.judge.expect(run_id, place, self.clock.now_ms())
        assert [None] == list(run_immediate(self.store.commit([made])))

    def commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        answers = run_immediate(self.store.commit(batch))
        self.judge.see(batch, answers, self.elapsed_ms)
        return answers

    # faults

    def _strike(self) -> None:
        fault = self.rng.choice(("crash", "crash", "silent crash", "pause", "clock", "clock"))
        if self.calm:
            return
        self.faults[fault] += 1
        if fault == "clock":
            jump = self.rng.choice((-40.0, -5.0, -0.3, 0.4, 5.0, 900.0))
            self.clock.wall_ms += round(jump * 1000)
            self.elapsed_ms += max(0.0, jump * 1000)
            return
        victim = self.rng.randrange(WORKERS)
        worker = self.workers[victim]
        if fault == "pause":
            worker.paused_until = self.now + self.rng.uniform(0.5, 3.0) * LEASE_SECONDS
            return
        worker.is_dead = True
        if fault == "crash" and hasattr(self.store, "kill"):
            self.store.kill(worker.id)
        self.workers[victim] = _Worker(self, victim)


class _Worker:
    """One process: looks, takes, drives, beats."""

    def __init__(self, sim: Simulation, number: int) -> None:
        self.sim = sim
        self.id = f"w{number}-{sim.rng.getrandbits(32):08x}"
        self.is_dead = False
        self.paused_until = 0.0
        self._room = sim.rng.choice((1, 2, 4))
        self._mine: set[str] = set()
        run_immediate(sim.store.beat(self.id))
        self._every(LEASE_SECONDS / 3, self._beat)
        self._every(0.3, self._look)

    def _every(self, seconds: float, do: Callable[[], None]) -> None:
        def again() -> None:
            if self.is_dead:
                return
            if self.paused_until <= self.sim.now:
                do()
            self._every(seconds, do)

        self.sim.after(seconds * (0.5 + self.sim.rng.random()), again)

    def _beat(self) -> None:
        run_immediate(self.sim.store.beat(self.id))

    def _look(self) -> None:
        room = self._room - len(self._mine)
        if room <= 0:
            return
        claims = run_immediate(self.sim.store.claim(self.id, WANTED, room))
        if claims.offers:
            number = next(self.sim.numbers)
            batch = [claim_of(offer, self.id, number) for offer in claims.offers]
            self._send(batch, claims.offers)

    def _send(self, batch: list[Entry], offers: Sequence[Offer]) -> None:
        """On its way: it arrives, whatever became of its sender; its answer may be lost."""
        sim, rng = self.sim, self.sim.rng
        self._mine |= {each.run_id for each in batch}
        is_lost = not sim.calm and rng.random() < 0.1
        delay = rng.choice((0.0, 0.01, 0.2)) if sim.calm else rng.choice((0.0, 0.01, 0.2, 5.0))

        def arrive() -> None:
            answers = sim.commit(batch)
            if self.is_dead:
                return
            if is_lost:
                sim.faults["lost reply"] += 1
                sim.after(0.7, lambda: None if self.is_dead else self._send(batch, offers))
                return
            for offer, conflict in zip(offers, answers, strict=True):
                if conflict is None:
                    sim.after(rng.random(), lambda offer=offer: self._leave(offer))
                else:
                    self._mine.discard(offer.head.run_id)

        sim.after(delay, arrive)

    def _leave(self, offer: Offer) -> None:
        """The run parks or ends, when we are awake."""
        sim, rng = self.sim, self.sim.rng
        if self.is_dead:
            return
        if self.paused_until > sim.now:
            sim.after(self.paused_until - sim.now + 0.01, lambda: self._leave(offer))
            return
        head = offer.head
        self._mine.discard(head.run_id)
        changes = {"status": "completed", "wake_at": None, "ended_at": START_MS}
        if rng.random() < 0.3:
            wake_at = sim.clock.now_ms() + rng.choice((0, 500, 3000))
            changes = {"status": "waiting", "wake_at": wake_at}
        shown = msgspec.structs.replace(offer.header, **changes)
        record = b"left by %s" % self.id.encode()
        sim.commit(
            [
                entry(
                    head.run_id,
                    head.seq + 1,
                    record,
                    epoch=head.epoch + 1,
                    lease="free",
                    header=shown,
                )
            ]
        )
