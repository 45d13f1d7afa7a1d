"""What must hold of a schedule's journal, whoever was killed while it was written.

An oracle that knows no cleverness: between two decisions all instants are counted one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from outlive.engine.schedules import SCHEDULE
from outlive.model.events import ChapterBegan, ChildIntended, Claimed, Event, RunStarted, TimerFired
from outlive.model.schedules import NAME_TAG, SCHEDULE_PREFIX, Plan, Standing, render_instant

Journals = Mapping[str, Sequence[Event]]


def chapters(events: Sequence[Event]) -> list[tuple[Plan, Standing, list[Event]]]:
    """Each chapter: what the schedule was then, and what happened."""
    found: list[tuple[Plan, Standing, list[Event]]] = []
    for event in events:
        if isinstance(event, (RunStarted, ChapterBegan)):
            there: dict[str, Any] = SCHEDULE.args_codec.decode(event.args)
            found.append((there["plan"], there["standing"], []))
        found[-1][2].append(event)
    return found


def check_schedule(name: str, journals: Journals) -> list[str]:
    """Broken laws, in words; for intervals that catch up once."""
    events = journals[SCHEDULE_PREFIX + name]
    broken = [*_check_decisions(name, chapters(events))]
    fired = Counter(event.child_id for event in events if isinstance(event, ChildIntended))
    broken += [f"{run_id} was fired {times} times" for run_id, times in fired.items() if times > 1]
    there = {run_id for run_id, each in journals.items() if _is_of(name, each[0])}
    broken += [f"{run_id} is there, and nobody intended it" for run_id in there - fired.keys()]
    done = chapters(events)[:-1]
    settled = {e.child_id for _, _, part in done for e in part if isinstance(e, ChildIntended)}
    return broken + [f"{run_id} was fired, and is not there" for run_id in settled - there]


def _check_decisions(name: str, found: list[tuple[Plan, Standing, list[Event]]]) -> Iterator[str]:
    for (plan, standing, events), (_, after, _) in pairwise(found):
        due = instants(plan, standing, after.decided_until)
        wanted = [f"{name}@{render_instant(due[-1])}"] if due else []
        fired = [event.child_id for event in events if isinstance(event, ChildIntended)]
        if wanted != fired:
            yield f"between {standing} and {after}: fired {fired}, not {wanted}"


def instants(plan: Plan, standing: Standing, until: int) -> list[int]:
    """All instants since the last decision, counted."""
    assert plan.every_ms is not None, "these laws are for intervals"
    if standing.state != "active":
        return []
    begin = max(1, (standing.decided_until - standing.anchor_at) // plan.every_ms)
    numbers = range(begin, (until - standing.anchor_at) // plan.every_ms + 1)
    each = (standing.anchor_at + number * plan.every_ms for number in numbers)
    return [instant for instant in each if instant > standing.decided_until]


def _is_of(name: str, first: Event) -> bool:
    return isinstance(first, RunStarted) and first.tags.get(NAME_TAG) == name


def takeovers_while_firing(events: Sequence[Event]) -> int:
    """How often somebody went on with a firing that another one had begun."""
    count, is_firing = 0, False
    for event in events:
        if isinstance(event, TimerFired):
            is_firing = True
        elif isinstance(event, ChapterBegan):
            is_firing = False
        count += is_firing and isinstance(event, Claimed)
    return count
