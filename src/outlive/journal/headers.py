"""A run's header, made from its fold: what a store may be asked for."""

from __future__ import annotations

from outlive.journal.record import FORMAT
from outlive.model.brief import Brief
from outlive.model.queues import QueuePlace
from outlive.model.run import Run
from outlive.store import Header

_NO_PLACE = QueuePlace()
#: What the text of a sealed store begins with, where only a key tells what it says.
HIDDEN = "~1:"


def header_of(run: Run, chapter_link: bytes = b"") -> Header:
    """What the store shows of this run."""
    if run.brief is not None and run.started is None:
        return brief_header(run.brief)
    if run.started is None:
        return _header_beside(run)
    start, place = run.started, run.started.place or _NO_PLACE
    return Header(
        flow=start.flow,
        version=start.version,
        format=FORMAT,
        status=run.shown_status,
        family=start.family,
        started_at=start.started_at,
        wake_at=run.wake_at,
        ended_at=run.ended_at,
        queue=start.queue,
        queue_key=place.key,
        priority=place.priority,
        units=place.units,
        parent=start.parent,
        tags=start.tags,
        reason=_reason(run),
        chapter=0 if run.chapter is None else run.chapter.seq,
        chapter_link=chapter_link,
    )


def _header_beside(run: Run) -> Header:
    """Of a mark or a key: of which run a mark speaks, only its id tells."""
    if run.marked is not None:
        return key_header("mark", ended_at=run.marked.at)
    if run.kept is not None:
        return key_header("kept", ended_at=run.kept.at)
    return key_header()


def brief_header(brief: Brief) -> Header:
    """The header of a journal that is no run's: never due, never driven."""
    return Header(
        flow="",
        version="",
        format=FORMAT,
        status=brief.status,
        family=brief.family,
        started_at=brief.started_at,
        ended_at=brief.ended_at,
    )


def _reason(run: Run) -> str:
    if run.error is not None:
        return f"{run.error.type_name}: {run.error.message}"[:500]
    return run.reason[:500]


def key_header(
    status: str = "held", *, ended_at: int | None = None, parent: str | None = None
) -> Header:
    """The header of a key's journal, or of a mark: never due, never driven."""
    return Header(
        flow="",
        version="",
        format=FORMAT,
        status=status,
        family="",
        started_at=0,
        wake_at=None,
        ended_at=ended_at,
        parent=parent,
    )
