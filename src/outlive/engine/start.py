"""The first event of a run: who starts it, with what."""

from __future__ import annotations

import sys
from typing import Any

from outlive.engine.definitions import Flow
from outlive.model.events import RunStarted
from outlive.model.ids import digest
from outlive.model.queues import DEFAULT_QUEUE

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def start_event(
    flow: Flow[Any, Any], run_id: str, args: bytes, *, seed: bytes, now: int
) -> RunStarted:
    """The first event of a run that stands alone."""
    options = flow.preset
    return RunStarted(
        flow=flow.name,
        version=flow.version,
        args=args,
        digest=digest(args),
        seed=seed,
        python=_PYTHON,
        started_at=now,
        family=run_id,
        queue=options.queue or DEFAULT_QUEUE,
        deadline_at=None if options.deadline is None else options.deadline_from(now),
        tags=dict(options.tags),
        pins=dict(options.pins),
        place=options.place,
    )
