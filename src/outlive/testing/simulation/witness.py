"""Observations from outside a simulation: acknowledgements, reported outcomes, faults, the trace.

The witness stands beside the store and the keepers. It knows nothing of the engine's inside; the
auditor checks its records at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from outlive.envelope import bare
from outlive.journal.codec.parts import whole
from outlive.journal.codec.restore import read_whole
from outlive.journal.lane import run_immediate
from outlive.journal.reader import read_events
from outlive.journal.record import ENVELOPE_BYTES
from outlive.model.events import Event, Fault, Forked, decode_events
from outlive.model.ids import is_run
from outlive.model.mail import ChildNews, parse_letter
from outlive.model.run import fold
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.types import Conflict, Entry, Head, Reading
from outlive.testing.audit.families import check_deletion, check_forks

#: Events that come and go while a run only waits.
WAITING = frozenset(
    {"Claimed", "DriveBegan", "Parked", "KeyHeld", "KeyKept", "Marked"}
    | {"MailRead", "SignalReceived"}
)

#: An outcome as a client was told it: the value's bytes, or the fault.
Outcome = tuple[bytes | None, Fault | None]


def kinds_in(batch: Iterable[Entry]) -> frozenset[str]:
    """The kinds of events that a batch carries."""
    return frozenset(
        type(event).__name__
        for entry in batch
        for event in decode_events(entry.record[ENVELOPE_BYTES:])
    )


def _events(disk: Store, run_id: str) -> Sequence[Event]:
    reading = run_immediate(read_whole(disk, run_id))
    return [] if reading is None else read_events(reading)


class Witness:
    """Records everything that is checked at the end."""

    def __init__(self) -> None:
        #: By run, the last seq that a driver was told is durable.
        self.acknowledged: dict[str, int] = {}
        #: By run, the outcome that somebody who waited for it got.
        self.outcomes: dict[str, Outcome] = {}
        #: (kind of event, kind of fault): how often a fault struck such an event on its way.
        self.struck: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()
        #: Somebody uses a wrong clock: the simulation stops.
        self.is_off = False
        self.broken: list[str] = []
        #: Commits of a driver that had been taken over; each was refused.
        self.zombies = 0
        self.commits = 0
        #: Commits by which some run progressed.
        self.moves = 0
        #: By run, the mail that came in, in order, and the mail that drivers say they took.
        self.mail: dict[str, list[str]] = {}
        self.consumed: dict[str, list[str]] = {}
        #: By run, letters that nobody posted like this: forged, moved, or with a bit flipped.
        self.spoilt: dict[str, set[str]] = {}
        #: Runs that were retried after a failure.
        self.retried: set[str] = set()
        #: Forks that there are or were, and the runs that they share with.
        self.forks: dict[str, str] = {}
        #: Journals that were deleted, as they were then, and where they are kept.
        self.buried: dict[str, Sequence[Event]] = {}
        self.archive = MemoryStore()
        self._trace = blake2b(digest_size=16)

    def note(self, what: str) -> None:
        """Put something into the trace."""
        self._trace.update(what.encode() + b"\0")

    @property
    def trace(self) -> str:
        """A hash of all that happened."""
        return self._trace.hexdigest()

    def strike(self, fault: str, kinds: Iterable[str]) -> None:
        """A fault struck while events of these kinds were on their way to the store."""
        self.faults[fault] += 1
        for kind in kinds:
            self.struck[kind, fault] += 1

    def committed(
        self,
        at: float,
        batch: Sequence[Entry],
        heads: Sequence[Head | None],
        answers: Sequence[Conflict | None],
    ) -> None:
        """A store answered a batch; ``heads`` are those from before."""
        self.commits += 1
        self._trace.update(f"{at:.6f}".encode())
        for entry, head, conflict in zip(batch, heads, answers, strict=True):
            self._trace.update(entry.record if conflict is None else b"refused")
            if conflict is None and (head is None or head.seq == entry.after):
                self.consumed.setdefault(entry.run_id, []).extend(entry.consumed)
            if conflict is None and entry.after == 0:
                self._note_fork(entry)
            is_stale = head is not None and head.epoch > entry.epoch
            self.zombies += is_stale
            if is_stale and head is not None and conflict is None:
                self.broken.append(
                    f"run {entry.run_id}: a commit of epoch {entry.epoch} was answered done "
                    f"after epoch {head.epoch} had begun"
                )

    def _note_fork(self, entry: Entry) -> None:
        first = decode_events(entry.record[ENVELOPE_BYTES:])[0]
        if isinstance(first, Forked):
            self.forks[entry.run_id] = first.run_id

    def posted(self, run_id: str, mail_id: str, said: str) -> None:
        """Somebody left mail, and this is what the store said to that."""
        self.note(f"{run_id} {mail_id} {said}")
        if said == "posted":
            self.mail.setdefault(run_id, []).append(mail_id)

    def told(self, run_id: str, seq: int) -> None:
        """A driver was told that its journal is durable up to this seq."""
        self.acknowledged[run_id] = max(seq, self.acknowledged.get(run_id, 0))

    def check_starts(
        self,
        disk: Store,
        batch: Sequence[Entry],
        heads: Sequence[Head | None],
        answers: Sequence[Conflict | None],
    ) -> None:
        """A child is there only behind its parent's durable intent."""
        for entry, head, refused in zip(batch, heads, answers, strict=True):
            header = entry.header
            # One that is refused may have been there before, and be gone with its parent.
            if (
                is_run(entry.run_id)
                and refused is None
                and head is None
                and header is not None
                and header.parent is not None
            ):
                intents = _events(disk, header.parent)
                if not any(getattr(event, "child_id", "") == entry.run_id for event in intents):
                    self.broken.append(f"run {entry.run_id}: started before it was intended")

    def check_news(self, disk: Store, body: bytes) -> None:
        """Check that the news a parent gets of its child is durable."""
        letter = parse_letter(bare(body))
        if isinstance(letter, ChildNews):
            run = fold(_events(disk, letter.child_id))
            if (run.status, whole(run.value or b""), run.error) != (
                letter.status, letter.value, letter.error
            ):  # fmt: skip
                self.broken.append(
                    f"run {letter.child_id}: its parent was told what is not durable"
                )

    def deleted(self, disk: Store, before: Reading) -> None:
        """Check a deletion: nobody needs the journal, and its traces exist."""
        name = before.head.run_id
        self.note(f"deleted {name}")
        self.buried[name] = read_events(before)
        if is_run(name):
            self.broken += check_deletion(disk, self.archive, before, self.buried[name])
            forks = [fork for fork, shared in self.forks.items() if shared == name]
            self.broken += check_forks(disk, name, forks)

    def outcome(self, run_id: str, outcome: Outcome) -> None:
        """Somebody who waited for a run got its outcome."""
        before = self.outcomes.setdefault(run_id, outcome)
        if before != outcome and run_id not in self.retried:
            self.broken.append(f"run {run_id}: was told to have ended as {before}, then {outcome}")
