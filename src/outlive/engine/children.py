"""Other runs: started as effects of the engine, awaited or on their own.

The intent names the child's id, a function of run and step unless the flow gives one, and is
durable before the child is started: a repeat is a no-op. An awaited child posts its outcome to the
parent before it counts as ended; the parent may have left memory meanwhile. Children that are
awaited end with their parent.
"""

from __future__ import annotations

import asyncio
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from outlive.engine.binding import Bound
from outlive.engine.definitions import Flow
from outlive.engine.faults import exception_of
from outlive.engine.flowloop import FlowLoop
from outlive.engine.ops import Env, Recorder
from outlive.engine.starting import start_event
from outlive.errors import RunFailed
from outlive.journal.log import RunLog
from outlive.model.events import (
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    MailRead,
    ParentTold,
    RunStarted,
)
from outlive.model.ids import check_run_id
from outlive.model.mail import Cancel, ChildNews
from outlive.model.run import Run


class Parent(Recorder, Protocol):
    """What children ask of the drive."""

    loop: FlowLoop
    start_event: RunStarted

    @property
    def is_live(self) -> bool:
        """The journal is behind."""
        ...

    def misfits(self, event: ChildIntended, asked: str) -> None:
        """Code and journal differ about a child."""
        ...


class _Child:
    __slots__ = ("bound", "event", "flow", "future", "is_awaited", "is_orphan")

    def __init__(self, flow: Flow[Any, Any], event: ChildIntended, bound: Bound) -> None:
        self.flow, self.event, self.bound = flow, event, bound
        self.future: asyncio.Future[Any] | None = None
        self.is_awaited = self.is_orphan = False


class Children:
    """The children of one run."""

    def __init__(self, drive: Parent, run: Run) -> None:
        self._drive = drive
        self._intended = set(run.children)
        self._started = set(run.children_started)
        self._open: dict[str, _Child] = {}
        #: Being begun: the run can't leave memory before they are started.
        self.beginning = 0

    def open_ids(self) -> list[str]:
        """Children that the flow waits for."""
        return [step for step, child in self._open.items() if not child.is_orphan]

    # what flow code calls

    async def run(self, step: str, flow: Flow[Any, Any], bound: Bound, *, awaited: bool) -> Any:
        """Start a child and wait for its outcome, or only for its start."""
        args = flow.args_codec.encode(bound)
        child_id = check_run_id(flow.preset.id or _derived_id(self._drive.run_id, step))
        digest = blake2b(args, digest_size=16).digest()
        child = _Child(flow, ChildIntended(0, step, child_id, flow.name, args, digest), bound)
        child.is_awaited = awaited
        child.future = self._drive.loop.create_future()
        self._open[step] = child
        if self._drive.is_live:
            self._begin(child)
        try:
            event = await child.future
        except asyncio.CancelledError:
            self._abandon(step, child)
            raise
        return child_id if isinstance(event, ChildSpawned) else _outcome(child, event)

    def _abandon(self, step: str, child: _Child) -> None:
        if self._drive.stopped or step not in self._open:
            return
        child.is_orphan = True
        if self._drive.is_live:
            self._cancel(child)

    def _cancel(self, child: _Child) -> None:
        if child.is_awaited:
            kin, mail_id = self._drive.env.kin, f"cancel/{self._drive.run_id}/{child.event.step}"
            post = kin.post(child.event.child_id, mail_id, Cancel(f"run {self._drive.run_id}"))
            self._drive.env.host.create_task(post)

    def cut(self) -> None:
        """The flow is stopped: children that it waited for are told to stop, too."""
        for step, child in list(self._open.items()):
            self._abandon(step, child)

    # beginning

    def go_live(self) -> None:
        """The replay is over: begin what the last driver did not, cancel what nobody wants."""
        for child in list(self._open.values()):
            if child.is_orphan:
                self._cancel(child)
            elif child.event.step not in self._started:
                self._begin(child)

    def _begin(self, child: _Child) -> None:
        drive = self._drive
        self.beginning += 1
        if child.event.step not in self._intended:
            self._intended.add(child.event.step)
            drive.note(msgspec.structs.replace(child.event, at=drive.at()))
        drive.when_durable(partial(self._start, child))

    def _start(self, child: _Child) -> None:
        if not self._drive.stopped:
            self._drive.env.host.create_task(self._start_run(child))

    async def _start_run(self, child: _Child) -> None:
        drive, parent = self._drive, self._drive.start_event
        ports = drive.env.ports
        event = start_event(
            child.flow,
            child.event.child_id,
            child.bound,
            seed=_seed(parent.seed, child.event.step),
            now=ports.clock.now_ms(),
        )
        event = msgspec.structs.replace(
            event, family=parent.family, parent=drive.run_id, is_awaited=child.is_awaited
        )
        fault = await drive.env.kin.start_child(child.event.child_id, event, child.flow)
        self.beginning -= 1
        if drive.stopped or child.event.step not in self._open:
            return
        step, child_id = child.event.step, child.event.child_id
        if fault is not None:
            drive.record(ChildEnded(drive.at(), step, child_id, "failed", b"", fault))
        else:
            drive.record(ChildSpawned(drive.at(), step, child_id))

    # deliveries

    def compare(self, event: ChildIntended) -> None:
        """An intent in the journal: the code must ask for the same child."""
        child = self._open.get(event.step)
        if child is None or child.event.child_id != event.child_id:
            self._drive.misfits(event, "another child" if child else "")
        self._intended.add(event.step)

    def deliver(self, event: ChildSpawned | ChildEnded) -> None:
        """Wake who waits for it."""
        self._started.add(event.step)
        child = self._open.get(event.step)
        if child is not None and child.is_awaited and isinstance(event, ChildSpawned):
            return
        self._open.pop(event.step, None)
        if child is not None and child.future is not None and not child.future.done():
            child.future.set_result(event)

    def take_news(self, news: ChildNews, mail_id: str) -> None:
        """A child ended."""
        drive = self._drive
        for step, child in self._open.items():
            if child.event.child_id == news.child_id and child.is_awaited:
                ended = ChildEnded(
                    drive.at(), step, news.child_id, news.status, news.value, news.error
                )
                drive.record(ended, mail_id)
                return
        drive.note(MailRead(drive.at(), mail_id, "nobody waits for this child"), mail_id)


def _outcome(child: _Child, event: ChildEnded) -> Any:
    codec = child.flow.value_codec
    if event.error is None:
        return codec.decode(event.value)
    failed = RunFailed(event.child_id, event.error.type_name, event.error.message)
    raise failed from exception_of(event.error, {}, codec)


def _derived_id(run_id: str, step: str) -> str:
    tail = blake2b(f"{run_id}\0{step}".encode(), digest_size=6).hexdigest()
    return f"{run_id[:100]}.{tail}"


def _seed(seed: bytes, step: str) -> bytes:
    return blake2b(step.encode(), key=seed, digest_size=16).digest()


async def tell_parent(env: Env, log: RunLog, run: Run) -> None:
    """Post the outcome to the parent and write that down; safe to repeat."""
    parent = run.start.parent
    assert parent is not None, "an awaited run has a parent"
    news = ChildNews(log.run_id, run.status, run.value or b"", run.error)
    await env.kin.post(parent, f"child/{log.run_id}", news)
    log.append(ParentTold(max(run.at, env.ports.clock.now_ms() - run.start.started_at)))
