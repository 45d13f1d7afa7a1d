"""How a run begins, and when the same id means the same run."""

from __future__ import annotations

import sys
from typing import Any

from outlive.engine.definitions import Flow, milliseconds
from outlive.errors import RunIdTaken, WrongVersion
from outlive.journal.headers import header_of
from outlive.journal.record import LINK_START, pack
from outlive.model.events import KIND_BITS, RunStarted, encode_events
from outlive.model.ids import digest
from outlive.model.run import fold
from outlive.store import Entry


def start_event(
    flow: Flow[Any, Any], run_id: str, bound: dict[str, Any], *, seed: bytes, now: int
) -> RunStarted:
    """The first event of a run."""
    options = flow.preset
    args = flow.args_codec.encode(bound)
    return RunStarted(
        flow=flow.name,
        version=flow.version,
        args=args,
        digest=digest(args),
        seed=seed,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        started_at=now,
        family=run_id,
        queue=options.queue or "default",
        deadline_at=None if options.deadline is None else now + milliseconds(options.deadline),
        tags=dict(options.tags),
        pins=dict(options.pins),
    )


def check_same_run(flow: Flow[Any, Any], run_id: str, asked: RunStarted, there: RunStarted) -> None:
    """The run that has this id is the one that was asked for, or the id is taken."""
    if there.flow != asked.flow:
        raise RunIdTaken(run_id, f"it is a run of flow {there.flow!r}, not {asked.flow!r}")
    if there.version not in flow.versions:
        accepted = ", ".join(sorted(flow.versions))
        raise WrongVersion(
            f"run {run_id} was started with version {there.version!r} of flow {there.flow!r}; "
            f"this code drives {accepted}: add accepts=({there.version!r},) if it can drive it"
        )
    if there.digest != asked.digest and not flow.args_codec.same(there.args, asked.args):
        raise RunIdTaken(run_id, f"that run of flow {there.flow!r} has other arguments")


def start_entry(run_id: str, event: RunStarted) -> Entry:
    """A run that somebody else will drive."""
    record, link = pack(
        run_id,
        prev=LINK_START,
        epoch=0,
        seq=1,
        kinds=KIND_BITS[RunStarted],
        body=encode_events([event]),
    )
    header = header_of(fold([event]))
    return Entry(run_id=run_id, after=0, last=1, epoch=0, record=record, link=link, header=header)
