"""Those who use a simulated installation: clients that start runs, humans who settle doubts.

Clients try again until they are told that their run has begun. Humans look now and then, take
their time between reading and answering, and say only what they can know: that it happened when
the bank's book has it, that it did not when nothing can come of it any more, and else "give up".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from outlive.engine.starting import start_event
from outlive.errors import OutliveError
from outlive.journal.forking import events_of
from outlive.journal.immediate import run_immediate
from outlive.journal.mail import write_letter
from outlive.journal.restored import read_whole
from outlive.model.events import Event, RunStarted
from outlive.model.ids import recorded_key
from outlive.model.mail import Nudge, Resolve, Verdict
from outlive.model.run import OpenEffect, fold
from outlive.resolving import resolve_letter
from outlive.store import Query, Reading, Store
from outlive.testing.sim_flows import Node, tell_story
from outlive.testing.sim_nature import BEGINNING_MS, Nature, SimClock
from outlive.testing.sim_process import SimProcess
from outlive.testing.sim_world import LIMIT_SECONDS, SETTLE_SECONDS, World

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
    """Looks after runs in doubt and runs in quarantine."""

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
        """What can be said for certain, if anything."""
        if self._world.paid(key) is not None:
            return "happened"
        if watched_seconds < CAUTION_SECONDS or not self._world.is_quiet(key):
            return None
        return "fail" if self._nature.chance(0.3) else "not_happened"

    def _post(self, run_id: str, mail_id: str, letter: Resolve | Nudge) -> None:
        run_immediate(self._disk.post(run_id, mail_id, write_letter(run_id, mail_id, letter)))

    def _nudge(self, run_id: str) -> None:
        self._nudges += 1
        self._post(run_id, f"nudge/{self._nudges}", Nudge("somebody wants it to go on"))

    def _meddle(self) -> None:
        """A word on something that nobody asked about; it must change nothing."""
        runs = run_immediate(self._disk.find(Query(flow="story"), None, 1000)).items
        if runs:
            run_id = self._nature.rng.choice(runs).head.run_id
            self._nudges += 1
            letter = Resolve("0/nothing#1", 1, "not_happened")
            self._post(run_id, f"resolve/0/nothing#1/{self._nudges}", letter)
