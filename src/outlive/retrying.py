"""A failed run is given another try: what failed is run again, what was done stays done."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.errors import RetryRefused
from outlive.journal.entries import next_entry
from outlive.journal.headers import header_of
from outlive.journal.reader import read_events
from outlive.model.events import EffectRaised, Event, RunRetried, RunUndoing
from outlive.model.past import failure_of
from outlive.model.run import apply, fold
from outlive.store import Entry, Reading


def retry_entry(
    reading: Reading, *, now: int, by: str, events: Sequence[Event] | None = None
) -> Entry:
    """The entry that makes a failed run due again; of a fork it takes all events.

    Raises:
        RetryRefused: there is nothing to try again, or it must not be.
    """
    run_id = reading.head.run_id
    events = read_events(reading) if events is None else events
    run = fold(events)
    if run.status != "failed" or run.tells_parent:
        raise RetryRefused(
            run_id, f"it is {run.shown_status}, and only failed runs are tried again"
        )
    failure = failure_of(events, run.seq - len(events) + 1)
    if failure is None:
        assert any(isinstance(event, RunUndoing) for event in events), "or it did not fail"
        raise RetryRefused(run_id, "its effects were undone; start another run")
    seq, event = failure
    if isinstance(event, EffectRaised) and event.happened is not False:
        why = f"it failed of effect {event.step}, which happened or may have"
        raise RetryRefused(run_id, f"{why}; see to that, and start another run")
    at = max(run.at, now - run.start.started_at)
    retried = RunRetried(at, seq, by)
    apply(run, retried)
    header = header_of(run, reading.header.chapter_link)
    return next_entry(reading.head, retried, header, epoch=reading.head.epoch)
