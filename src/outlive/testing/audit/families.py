"""Laws between journals: parents and children agree; no run with unread mail sleeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from outlive.journal.lane import run_immediate
from outlive.journal.reader import read_events
from outlive.model import events as ev
from outlive.model.events import Event
from outlive.model.ids import key_journal
from outlive.model.run import ENDED, fold
from outlive.stores.seam import Store
from outlive.stores.types import Found, Posting, Reading
from outlive.testing.audit.waits import ENDS, UNDO, counted, first_seq, numbered

Journals = Mapping[str, Sequence[Event]]

_STATUS: dict[type, str] = {
    ev.RunCompleted: "completed",
    ev.RunFailed: "failed",
    ev.RunCancelled: "cancelled",
}


def check_families(journals: Journals) -> Iterator[str]:
    """Check that every child was intended by its parent, and that the parent got its outcome."""
    for run_id, events in journals.items():
        start = _start_of(events)
        if start is not None and start.parent is not None:
            yield from _check_child(run_id, start, events, journals.get(start.parent))
        for event in counted(events):
            if isinstance(event, (ev.ChildSpawned, ev.ChildEnded)):
                yield from _check_told(run_id, event, journals.get(event.child_id))


def _start_of(events: Sequence[Event]) -> ev.RunStarted | None:
    for event in events:
        if isinstance(event, ev.RunStarted):
            return event
        if isinstance(event, ev.ChapterBegan):
            return event.start
    return None


def _end_of(events: Sequence[Event]) -> Event | None:
    return next((event for event in reversed(events) if isinstance(event, ENDS)), None)


def _check_child(
    run_id: str, start: ev.RunStarted, events: Sequence[Event], parents: Sequence[Event] | None
) -> Iterator[str]:
    told = sum(isinstance(event, ev.ParentTold) for event in events)
    if start.is_awaited and told != 1:
        yield f"run {run_id}: told its parent {told} times how it ended"
    if parents is None:
        yield f"run {run_id}: its parent {start.parent} has no journal"
    elif first_seq(parents) == 1 and not any(_intends(event, run_id) for event in parents):
        yield f"run {run_id}: its parent {start.parent} never intended it"


def _intends(event: Event, child_id: str) -> bool:
    return isinstance(event, ev.ChildIntended) and event.child_id == child_id


def _check_told(
    run_id: str, event: ev.ChildSpawned | ev.ChildEnded, child: Sequence[Event] | None
) -> Iterator[str]:
    who = f"run {run_id}: {event.step}"
    if isinstance(event, ev.ChildSpawned):
        if child is None:
            yield f"{who} was started, and there is no run {event.child_id}"
        return
    if event.status == "refused" or (child is None and event.status == "cancelled"):
        return  # it was another's, or never begun
    end = None if child is None else _end_of(child)
    if end is None:
        yield f"{who} was told that {event.child_id} {event.status}, and it did not end"
        return
    became = (_STATUS[type(end)], getattr(end, "value", b""), getattr(end, "error", None))
    if became != (event.status, event.value, event.error):
        yield f"{who} was told {event!r}, {event.child_id} ended with {end!r}"


def check_deadlines(run_id: str, events: Sequence[Event]) -> Iterator[str]:
    """Check that nobody drives a flow after its deadline; needs clocks that are right.

    A paused driver may be late itself, so only a claim counts.
    """
    start = _start_of(events)
    if start is None or start.deadline_at is None:
        return
    limit = start.deadline_at - start.started_at
    is_late = is_over = False
    known: set[str] = set()
    for seq, event in numbered(events):
        is_late = is_late or (isinstance(event, ev.Claimed) and event.at > limit)
        # Another try has no deadline.
        is_over = is_over or isinstance(event, (ev.DeadlinePassed, ev.RunRetried))
        is_new = isinstance(event, ev.EffectIntended) and event.step not in known
        if isinstance(event, ev.EffectIntended):
            known.add(event.step)
            is_new = is_new and not event.step.startswith(UNDO)
        begins = is_new or isinstance(event, (ev.QuestionAsked, ev.ChildIntended, ev.StepDone))
        if is_late and not is_over and begins:
            yield f"run {run_id}: event {seq} ({type(event).__name__}) comes behind its deadline"
            return


def check_asleep(found: Sequence[Found]) -> Iterator[str]:
    """Check that no open run sleeps with unread mail."""
    for each in found:
        head, header = each.head, each.header
        is_asleep = header.ended_at is None and head.worker is None
        if is_asleep and header.status != "quarantined" and head.posted != head.consumed:
            unread = head.posted - head.consumed
            yield f"run {head.run_id}: is asleep ({header.status}) with {unread} unread"


_AFTER_ALL = 1 << 62


def check_deletion(
    disk: Store, archive: Store, gone: Reading, events: Sequence[Event]
) -> Iterator[str]:
    """Check that a deleted run had ended, is not needed, and left id, keys and archive."""
    run_id, header, run = gone.head.run_id, gone.header, fold(events)
    if header.ended_at is None or run.ended_at is None or run.status not in ENDED:
        yield f"run {run_id}: was deleted while it was {run.status}"
    if gone.head.worker is not None:
        yield f"run {run_id}: was deleted while worker {gone.head.worker} held it"
    if header.parent is not None and _lives(disk, header.parent):
        yield f"run {run_id}: was deleted while its parent {header.parent} lived"
    if run_immediate(disk.post([Posting(run_id, "probe", b"")])) != ["ended"]:
        yield f"run {run_id}: was deleted without a tombstone"
    kept = run_immediate(archive.read(run_id, _AFTER_ALL))
    if kept is None or (kept.head.seq, kept.head.link) != (gone.head.seq, gone.head.link):
        yield f"run {run_id}: was deleted before it was archived"
    for event in events:
        if isinstance(event, ev.EffectIntended) and event.key:
            yield from _check_key(disk, run_id, event)


def check_forks(disk: Store, run_id: str, forks: Sequence[str]) -> Iterator[str]:
    """Check that no fork lost its shared events."""
    for fork in forks:
        if run_immediate(disk.read(fork, _AFTER_ALL)) is not None:
            yield f"run {run_id}: was deleted while its fork {fork} was there"


def _lives(disk: Store, run_id: str) -> bool:
    reading = run_immediate(disk.read(run_id, _AFTER_ALL))
    return reading is not None and reading.header.ended_at is None


def _check_key(disk: Store, run_id: str, intent: ev.EffectIntended) -> Iterator[str]:
    reading = run_immediate(disk.read(key_journal(intent.key)))
    if reading is None:
        return  # it was never claimed: its effect was never attempted
    key = fold(read_events(reading))
    if key.holder is not None and key.holder.run_id == run_id and key.kept is None:
        yield f"run {run_id}: was deleted, and nobody knows what came of key {intent.key}"
