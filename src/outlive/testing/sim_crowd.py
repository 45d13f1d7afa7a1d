"""Those who write to simulated runs: signals, requests, answers, and orders to stop.

They post by mail ids of their own, at times twice, as any client must do that did not hear whether
the first came in; the store refuses the second. Some answer what was answered, or what nobody asks
any more. They go on as long as a run is open, so that whoever waits for them gets on at last.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from outlive.engine.typed import encode_own
from outlive.errors import OutliveError
from outlive.journal.forking import events_of
from outlive.journal.immediate import run_immediate
from outlive.journal.mail import write_letter
from outlive.journal.restored import read_whole
from outlive.model.events import Event, QuestionAsked, SignalReceived
from outlive.model.mail import Answer, Cancel, Letter, Signal
from outlive.model.run import fold
from outlive.retrying import retry_entry
from outlive.store import LAST_CHAPTER, Posted, Query, Store
from outlive.testing.sim_faults import FAULTY_SECONDS, Plan
from outlive.testing.sim_nature import Nature, SimClock
from outlive.testing.sim_process import SimProcess
from outlive.testing.sim_store import SimDisk
from outlive.testing.sim_talk import MESSAGE, SIGNALS
from outlive.testing.sim_witness import Witness

#: What the arguments of a run contain whose flow waits for mail.
_WAITS_FOR_MAIL = (b"signal", b"requests")
#: Of so many signals a flow has heard enough: fewer and fewer come.
SIGNALS_MANY = 5
#: How often a failed run is given another try.
RETRIES_MAX = 2
#: The share of letters that are flipped, and which ones may be.
FLIPPED = 0.3
_SPOILABLE = ("signal/", "answer/", "child/")
_APPROVALS = (b"true", b"true", b"false", b'{"granted": true, "note": "fine"}')


class Crowd:
    """All who write to runs."""

    def __init__(
        self,
        nature: Nature,
        disk: Store,
        witness: Witness,
        plan: Plan,
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
        """Perhaps it goes better at another try; a child's parent has long gone on."""
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
        """Post it after a while; at times once more, not having heard of the first."""
        nature = self._nature
        delay = nature.mostly_short(2.0)
        nature.after(delay, self._post, run_id, mail_id, letter)
        if nature.chance(0.2):
            nature.after(delay + nature.mostly_short(2.0), self._post, run_id, mail_id, letter)

    def _post(self, run_id: str, mail_id: str, letter: Letter) -> None:
        body = write_letter(run_id, mail_id, letter)
        said: Posted = run_immediate(self._disk.post(run_id, mail_id, body))
        self._witness.posted(run_id, mail_id, said)


class Forger:
    """Somebody who can write the disk and has no key: forges letters, and flips bits of others.

    In a store without a key anybody can make a letter that looks right; so there the forged ones
    are those of another run, at the wrong place.
    """

    def __init__(self, nature: Nature, disk: SimDisk, witness: Witness, *, sealed: bool) -> None:
        self._nature, self._disk, self._witness, self._sealed = nature, disk, witness, sealed
        #: Its own, so that all else goes as in a world without it.
        self._rng = random.Random(f"forger {nature.seed}")
        self._numbers = 0
        disk.arrive, disk.on_spoilt = self._flip, self._note

    def look(self) -> None:
        """Write past everybody else, and come back later."""
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
        said = run_immediate(self._disk.post(run_id, mail_id, body))
        if said == "posted":
            self._note(run_id, mail_id)

    def _flip(self, run_id: str, mail_id: str, body: bytes) -> bytes:
        """At times one bit of a letter, if somebody writes it again or it can be had elsewhere."""
        is_over = self._nature.now > FAULTY_SECONDS
        if is_over or not mail_id.startswith(_SPOILABLE) or self._rng.random() > FLIPPED:
            return body
        place, bit = self._rng.randrange(len(body)), 1 << self._rng.randrange(8)
        return body[:place] + bytes((body[place] ^ bit,)) + body[place + 1 :]

    def _note(self, run_id: str, mail_id: str) -> None:
        self._witness.note(f"spoilt {run_id} {mail_id}")
        self._witness.spoilt.setdefault(run_id, set()).add(mail_id)
