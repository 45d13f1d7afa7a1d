"""Clients of simulated runs: they send signals, requests, answers and cancellations.

They post under mail ids of their own, sometimes twice, as a client must that did not hear whether
the first arrived; the store refuses the second. Some answer closed or answered questions. They
continue as long as a run is open, so that every waiting run gets on eventually.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from outlive.app.forks import Forks
from outlive.app.mail import resolve_letter, retry_entry
from outlive.app.reader import StoreReader
from outlive.engine.inputs import encode_own
from outlive.engine.replay import DONE_BEFORE_RETRY
from outlive.engine.start import start_event
from outlive.errors import OutliveError
from outlive.journal.codec.restore import read_whole
from outlive.journal.fork import events_of
from outlive.journal.lane import run_immediate
from outlive.journal.mail import write_letter
from outlive.model.events import Event, QuestionAsked, RunStarted, SignalReceived, recorded_key
from outlive.model.mail import Answer, Cancel, Letter, Nudge, Resolve, Signal, Verdict
from outlive.model.run import OpenEffect, fold
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.types import LAST_CHAPTER, Entry, Posting, Query, Reading
from outlive.testing.simulation.faults import FAULTY_SECONDS, FaultPlan
from outlive.testing.simulation.flows import MESSAGE, SIGNALS, Node, tell_story
from outlive.testing.simulation.loop import BEGINNING_MS, Nature, SimClock
from outlive.testing.simulation.process import SimProcess
from outlive.testing.simulation.store import SimDisk
from outlive.testing.simulation.witness import Witness
from outlive.testing.simulation.world import LIMIT_SECONDS, SETTLE_SECONDS, World

#: Words in the arguments of a run whose flow waits for mail.
_WAITS_FOR_MAIL = (b"signal", b"requests")
#: From this number of signals on, fewer and fewer come.
SIGNALS_MANY = 5
#: The number of times a failed run is retried.
RETRIES_MAX = 2
#: The share of letters that are flipped, and which ones may be.
FLIPPED = 0.3
_SPOILABLE = ("signal/", "answer/", "child/")
_APPROVALS = (b"true", b"true", b"false", b'{"granted": true, "note": "fine"}')


class Crowd:
    """Everybody who writes to runs."""

    def __init__(
        self,
        nature: Nature,
        disk: Store,
        witness: Witness,
        plan: FaultPlan,
        pick: Callable[[], SimProcess | None],
    ) -> None:
        self._nature, self._disk, self._witness, self._plan = nature, disk, witness, plan
        self._pick = pick
        self._numbers = 0
        self._retries: Counter[str] = Counter()

    def look(self) -> None:
        """Look at every open run, write to some, and come back later."""
        for found in run_immediate(self._disk.find(Query(flow="story"), None, 1000)).items:
            if found.header.ended_at is None:
                self._look_at(found.head.run_id)
            elif found.header.status == "failed" and found.header.parent is None:
                self._think_of_retrying(found.head.run_id)
        self._nature.after(self._nature.rng.uniform(0.4, 2.5), self.look)

    def _look_at(self, run_id: str) -> None:
        events = self._read(run_id)
        if not events:
            return
        rng = self._nature.rng
        is_late = self._nature.now > FAULTY_SECONDS
        if any(word in getattr(events[0], "args", b"") for word in _WAITS_FOR_MAIL):
            came = sum(isinstance(event, SignalReceived) for event in events)
            chance = (0.8 if is_late else self._plan.chatter) * SIGNALS_MANY / (SIGNALS_MANY + came)
            chance = max(chance, 0.3 if is_late else 0.0)
            for _ in range(rng.choice((1, 1, 2))):
                if rng.random() < chance:
                    self._send(run_id)
        for question, asked in fold(events).questions.items():
            if is_late or rng.random() < 0.4:
                self._answer(run_id, question, asked)
        if run_id in self._plan.cancels and rng.random() < 0.25:
            self._soon(run_id, f"cancel/{rng.choice(('ann', 'bob'))}", Cancel("ann"))

    def _think_of_retrying(self, run_id: str) -> None:
        """Retry a failed run at times; not a child, whose parent has long continued."""
        is_over = self._nature.now > FAULTY_SECONDS or self._retries[run_id] >= RETRIES_MAX
        if is_over or not self._nature.chance(self._plan.retrying):
            return
        self._retries[run_id] += 1
        reading, process = run_immediate(read_whole(self._disk, run_id, LAST_CHAPTER)), self._pick()
        if reading is None or process is None:
            return
        try:
            events = run_immediate(events_of(self._disk, reading))
            now = SimClock(self._nature).now_ms()
            entry = retry_entry(reading, now=now, by="ann", events=events)
        except OutliveError:
            return
        self._witness.retried.add(run_id)
        process.commit(entry, lambda is_in: None)

    def _read(self, run_id: str) -> Sequence[Event]:
        reading = run_immediate(read_whole(self._disk, run_id))
        try:
            return [] if reading is None else run_immediate(events_of(self._disk, reading))
        except OutliveError:
            return []

    def _send(self, run_id: str) -> None:
        rng = self._nature.rng
        self._numbers += 1
        name = rng.choice((*SIGNALS, MESSAGE))
        value: object = f"{name}-{self._numbers}"
        if name == MESSAGE and rng.random() < 0.1:
            value = self._numbers  # a text is waited for
        self._soon(run_id, f"signal/{self._numbers}", Signal(name, encode_own(value)))

    def _answer(self, run_id: str, question: str, asked: QuestionAsked) -> None:
        rng = self._nature.rng
        for mail_id, json in self._answers(question, asked):
            self._soon(run_id, mail_id, Answer(question, json, rng.choice(("ann", "bob"))))

    def _answers(self, question: str, asked: QuestionAsked) -> Iterator[tuple[str, bytes]]:
        rng = self._nature.rng
        self._numbers += 1
        if rng.random() < 0.2:
            yield f"answer/{question}/slip/{self._numbers}", b"[17]"
        json = rng.choice(_APPROVALS) if asked.digest else f'"yes {self._numbers}"'.encode()
        yield f"answer/{question}", json
        if rng.random() < 0.2:
            yield f"answer/{question}/again/{self._numbers}", json

    def _soon(self, run_id: str, mail_id: str, letter: Letter) -> None:
        """Post after a while; sometimes once more, as if the first reply was lost."""
        nature = self._nature
        delay = nature.mostly_short(2.0)
        nature.after(delay, self._post, run_id, mail_id, letter)
        if nature.chance(0.2):
            nature.after(delay + nature.mostly_short(2.0), self._post, run_id, mail_id, letter)

    def _post(self, run_id: str, mail_id: str, letter: Letter) -> None:
        body = write_letter(run_id, mail_id, letter)
        (said,) = run_immediate(self._disk.post([Posting(run_id, mail_id, body)]))
        self._witness.posted(run_id, mail_id, said)


class Forger:
    """An attacker who can write the disk and has no key: forges letters, and flips bits.

    In a store without a key anybody can make a valid letter; there the forged ones are those of
    another run, at the wrong place.
    """

    def __init__(self, nature: Nature, disk: SimDisk, witness: Witness, *, sealed: bool) -> None:
        self._nature, self._disk, self._witness, self._sealed = nature, disk, witness, sealed
        #: Its own, so that everything else is as without it.
        self._rng = random.Random(f"forger {nature.seed}")
        self._numbers = 0
        disk.arrive, disk.on_spoilt = self._flip, self._note

    def look(self) -> None:
        """Write directly to the disk, and come back later."""
        found = run_immediate(self._disk.find(Query(flow="story"), None, 1000)).items
        for run_id in [each.head.run_id for each in found if each.header.ended_at is None]:
            if self._rng.random() < 0.3:
                self._forge(run_id)
        if self._nature.now < FAULTY_SECONDS:
            self._nature.after(self._rng.uniform(0.1, 1.0), self.look)

    def _forge(self, run_id: str) -> None:
        self._numbers += 1
        name = f"forged-{self._numbers}"
        mail_id, letter = self._rng.choice(
            (
                (f"signal/{name}", Signal(self._rng.choice(SIGNALS), encode_own(name))),
                (f"cancel/{name}", Cancel(name)),
            )
        )
        place = (run_id, mail_id) if self._sealed else (f"not {run_id}", mail_id)
        body = write_letter(*place, letter)
        (said,) = run_immediate(self._disk.post([Posting(run_id, mail_id, body)]))
        if said == "posted":
            self._note(run_id, mail_id)

    def _flip(self, run_id: str, mail_id: str, body: bytes) -> bytes:
        """Sometimes flip one bit of a letter that is written again or can be found elsewhere."""
        is_over = self._nature.now > FAULTY_SECONDS
        if is_over or not mail_id.startswith(_SPOILABLE) or self._rng.random() > FLIPPED:
            return body
        place, bit = self._rng.randrange(len(body)), 1 << self._rng.randrange(8)
        return body[:place] + bytes((body[place] ^ bit,)) + body[place + 1 :]

    def _note(self, run_id: str, mail_id: str) -> None:
        self._witness.note(f"spoilt {run_id} {mail_id}")
        self._witness.spoilt.setdefault(run_id, set()).add(mail_id)


PATIENCE_SECONDS = 4.0
#: A human who says "not happened" has waited so long since the last attempt began.
CAUTION_SECONDS = LIMIT_SECONDS + SETTLE_SECONDS + 1.0


class Client:
    """Wants one run to exist."""

    def __init__(
        self,
        run_id: str,
        program: list[Node],
        nature: Nature,
        pick: Callable[[], SimProcess | None],
        deadline_seconds: float | None = None,
    ) -> None:
        self.run_id = run_id
        self.is_told = False
        self._deadline_seconds = deadline_seconds
        self._program, self._nature, self._pick = program, nature, pick

    def ask(self) -> None:
        """Ask some process, and again if no answer comes."""
        if self.is_told:
            return
        process = self._pick()
        if process is not None:
            drives_here = self._nature.chance(0.6)
            ask = process.start_run if drives_here else process.submit_run
            ask(self.run_id, self._event(), self._told)
        self._nature.after(PATIENCE_SECONDS, self.ask)

    def _event(self) -> RunStarted:
        """The run's first event, made anew at every try, as the app does."""
        args = tell_story.args_codec.write(tell_story.bind(self._program))
        seed = self._nature.entropy(16)
        event = start_event(tell_story, self.run_id, args, seed=seed, now=BEGINNING_MS)
        if self._deadline_seconds is None:
            return event
        deadline_at = BEGINNING_MS + round(self._deadline_seconds * 1000)
        return msgspec.structs.replace(event, deadline_at=deadline_at)

    def _told(self, is_new: bool) -> None:
        """It has begun; or the id is in use, and only this client uses it."""
        self.is_told = True


class Human:
    """Looks after runs in doubt, runs in quarantine, and retries that can't go on."""

    def __init__(self, nature: Nature, disk: Store, world: World, meddling: float) -> None:
        self._nature, self._disk, self._world = nature, disk, world
        self._meddling = meddling
        self._clock = SimClock(nature)
        #: By run and doubt, since when this human has known of it.
        self._seen_since: dict[tuple[str, str], float] = {}
        self._nudges = 0

    def look(self) -> None:
        """Look at what needs a human, and come back later."""
        rng = self._nature.rng
        for found in run_immediate(self._disk.find(Query(flow="story"), None, 1000)).items:
            status, run_id = found.header.status, found.head.run_id
            is_busybody = found.header.ended_at is None and rng.random() < self._meddling
            if status == "in_doubt" or is_busybody:
                self._look_at(run_id, asked_only=not is_busybody)
            elif status == "quarantined" and rng.random() < 0.5:
                self._nudge(run_id)
            elif DONE_BEFORE_RETRY in found.header.reason:
                self._post(run_id, "cancel/human", Cancel("human"))
        if rng.random() < self._meddling:
            self._meddle()
        self._nature.after(rng.uniform(0.5, 3.0), self.look)

    def _read(self, run_id: str) -> tuple[Reading, Sequence[Event]] | None:
        reading = run_immediate(read_whole(self._disk, run_id))
        try:
            return (
                None
                if reading is None
                else (reading, run_immediate(events_of(self._disk, reading)))
            )
        except OutliveError:
            return None

    def _look_at(self, run_id: str, *, asked_only: bool) -> None:
        read = self._read(run_id)
        if read is None:
            return
        reading, events = read
        for step, effect in fold(events).effects.items():
            if effect.asks or not asked_only:
                self._consider(reading, step, effect)

    def _consider(self, reading: Reading, step: str, effect: OpenEffect) -> None:
        nature, run_id = self._nature, reading.head.run_id
        try:
            mail_id, letter = resolve_letter(reading, step, "fail", b"null", 0)
        except OutliveError:
            return
        since = self._seen_since.setdefault((run_id, mail_id), nature.now)
        verdict = self._verdict(recorded_key(run_id, effect.intent), nature.now - since)
        if verdict is None or nature.rng.random() < 0.4:
            return
        value = msgspec.json.encode(self._world.paid(recorded_key(run_id, effect.intent)))
        letter = msgspec.structs.replace(letter, verdict=verdict, value=value)
        nature.after(nature.mostly_short(6.0), self._post, run_id, mail_id, letter)

    def _verdict(self, key: str, watched_seconds: float) -> Verdict | None:
        """The verdict that is certain, if there is one."""
        if self._world.paid(key) is not None:
            return "happened"
        if watched_seconds < CAUTION_SECONDS or not self._world.is_quiet(key):
            return None
        return "fail" if self._nature.chance(0.3) else "not_happened"

    def _post(self, run_id: str, mail_id: str, letter: Letter) -> None:
        sent = Posting(run_id, mail_id, write_letter(run_id, mail_id, letter))
        run_immediate(self._disk.post([sent]))

    def _nudge(self, run_id: str) -> None:
        self._nudges += 1
        self._post(run_id, f"nudge/{self._nudges}", Nudge("somebody wants it to go on"))

    def _meddle(self) -> None:
        """Resolve something that nobody asked about; it must change nothing."""
        runs = run_immediate(self._disk.find(Query(flow="story"), None, 1000)).items
        if runs:
            run_id = self._nature.rng.choice(runs).head.run_id
            self._nudges += 1
            letter = Resolve("0/nothing#1", 1, "not_happened")
            self._post(run_id, f"resolve/0/nothing#1/{self._nudges}", letter)


T = TypeVar("T")

#: The number of forks of a seed, and how often somebody tries to make one.
FORKS_MAX = 3
PERIOD_SECONDS = 5.0


def forks_of(process: SimProcess, nature: Nature) -> Forks:
    """The part of an app that forks, in a simulated process: without threads."""
    ports = Ports(clock=SimClock(nature), entropy=nature.entropy)

    async def commit(entry: Entry) -> bool:
        (conflict,) = await process.store.commit([entry])
        return conflict is None

    return Forks(StoreReader(process.store, ports, lane=_here), commit)


async def _here(work: Coroutine[Any, Any, T]) -> T:
    return await work


class Forker:
    """Forks a run now and then."""

    def __init__(self, nature: Nature, disk: Store, pick: Callable[[], SimProcess | None]) -> None:
        self._nature, self._disk, self._pick = nature, disk, pick
        self._made = 0

    def look(self) -> None:
        """Fork some run, perhaps, and come back later."""
        nature = self._nature
        if self._made >= FORKS_MAX or nature.now > FAULTY_SECONDS:
            return
        found = run_immediate(self._disk.find(Query(flow="story"), None, 1000)).items
        runs = [each for each in found if each.header.parent is None]
        process = self._pick()
        if runs and process is not None:
            # Rather one that ended: those are the ones that may go.
            ended = [each for each in runs if each.header.ended_at is not None]
            chosen = nature.rng.choice(ended or runs)
            self._made += 1
            at = nature.rng.randint(1, chosen.head.seq)
            self._fork(process, chosen.head.run_id, at)
        nature.after(nature.rng.uniform(0.5, 1.5) * PERIOD_SECONDS, self.look)

    def _fork(self, process: SimProcess, run_id: str, at: int) -> None:
        forks, name = forks_of(process, self._nature), f"fork-{self._made}"

        async def fork() -> None:
            with suppress(OutliveError):
                await forks.fork(run_id, at, None, name)

        process.loop.call_soon(lambda: process.loop.create_task(fork()), context=process.context)
