"""One run in memory, as all parts of the engine see it: its journal, its world, its standing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from outlive.engine.definitions import Flow
from outlive.engine.host import Host, Occupation
from outlive.engine.loop import FlowLoop
from outlive.engine.notices import Notices, Repeats
from outlive.engine.ops import Limits, Op, PendingOps, expire
from outlive.engine.outlet import Outlet, StreamWriter
from outlive.engine.peers import Kin, Lease, Peer
from outlive.engine.place import Body
from outlive.engine.transactions import Transactions
from outlive.errors import OutliveError
from outlive.journal.codec.scalars import pack
from outlive.journal.keeper import Keeper
from outlive.journal.log import RunLog
from outlive.journal.redaction import Hider
from outlive.model.defaults import IDLE_MS
from outlive.model.events import (
    Answered,
    CancelRequested,
    DeadlinePassed,
    Event,
    SignalReceived,
    Tagged,
)
from outlive.model.redaction import MARK
from outlive.model.run import Run
from outlive.model.usage import Usage, add_usage
from outlive.ports import Ports, SystemClock

#: What is left of a run that left memory, for those who call too late.
_KEPT = frozenset(
    {"draining", "env", "flow", "hider", "is_live", "is_replaying", "log", "misfit", "run_id"}
    | {"_last_at", "chapter", "start_event", "started_at", "stopped"}
)
_MAIL = (SignalReceived, CancelRequested, Answered)
#: What is shown of a published value whose name is redacted.
MARKED = pack(MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """What surrounds a run: given by its worker."""

    host: Host
    keeper: Keeper
    ports: Ports
    lease: Lease
    peer: Peer
    kin: Kin
    worker: str
    #: A run whose branches all wait for longer than this leaves memory.
    idle_ms: int = IDLE_MS
    #: What transactional steps need; None: the store shares no transaction.
    transactions: Transactions | None = None
    #: What is not recorded.
    hider: Hider = field(default_factory=Hider)
    #: What people are told.
    notices: Notices = field(default_factory=lambda: Notices(SystemClock()))
    #: Keeps what flow code logs from being written again on replay.
    repeats: Repeats = field(default_factory=Repeats)
    occupation: Occupation = field(default_factory=Occupation)
    limits: Limits[Op] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", Limits(self.host, expire))


def _nothing(*_: object) -> None:
    """What a run that left memory does."""


class RunContext:
    """What every part is given; the drive fills in what only the whole can do."""

    #: Let the flow run as far as it can.
    activate: Callable[[], None] = staticmethod(_nothing)
    #: Something came from outside: look at it, unless the flow is running.
    attend: Callable[[], None] = staticmethod(_nothing)
    #: Nothing more to do here: look later whether all of it waits.
    rest: Callable[[], None] = staticmethod(_nothing)
    #: The flow no longer waits for this op.
    abandon: Callable[[Op], None] = staticmethod(_nothing)
    #: The run can't go on here: nothing of the flow runs any further.
    refuse: Callable[[OutliveError], None] = staticmethod(_nothing)
    #: The engine itself failed: stop driving this run, say so, try again later.
    broke: Callable[[Exception], None] = staticmethod(_nothing)
    #: A body was ended from outside: whoever drives the run next goes on, as after a kill.
    interrupted: Callable[[], None] = staticmethod(_nothing)
    #: The flow stops here, and this is how it ended.
    cut: Callable[[Any], None] = staticmethod(_nothing)
    #: Nothing will ever wake this flow: say so instead of waiting for ever.
    stop_stuck: Callable[[], None] = staticmethod(_nothing)
    #: Calls once mail posted before an instant has been taken: it beats a timer.
    after_mail: Callable[[int, Callable[[], None]], None] = staticmethod(_nothing)
    #: The flow returned, raised, or was stopped.
    flow_is_over: Callable[[], bool]
    #: Something of the run is under way, is about to be, or has just ended.
    is_busy: Callable[[], bool]
    #: What the code asks for, and what of that comes from outside, by id.
    asked: Callable[[], list[str]]
    open_waits: Callable[[], list[str]]
    #: Whether the flow takes the new way at this place.
    is_patched: Callable[[str], bool]
    #: What it publishes and streams, once it does.
    outlet: Outlet | None = None

    def __init__(self, flow: Flow[Any, Any], log: RunLog, run: Run, env: Env) -> None:
        self.flow, self.log, self.env = flow, log, env
        self.hider = env.hider.for_run()
        self.run_id = log.run_id
        start = self.start_event = run.start
        self.chapter = run.chapter
        self.started_at = start.started_at
        self._last_at = run.at
        #: By model: what it was used for so far.
        self.usage = dict(run.usage)
        self.loop = FlowLoop(self.run_id)  # type: ignore[abstract]  # the rest is refused by name
        self.main: asyncio.Task[Any] | None = None
        #: Events that the flow has not seen.
        self.inbox: deque[Event] = deque()
        self.waiting = PendingOps()
        #: What the flow asked for, and what has not been begun.
        self.to_start: list[Op] = []
        #: The first difference between code and journal, or why the run can't go on here.
        self.misfit: OutliveError | None = None
        #: The arguments of the next chapter, once the flow has asked for it.
        self.carries: bytes | None = None
        #: The run left memory.
        self.stopped = False
        #: Nothing more is begun; the run leaves memory as soon as nothing runs.
        self.draining = False
        #: The journal is behind; timers and bodies run.
        self.is_live = False
        #: The flow goes through what it did before, in another driver or an earlier stay in memory.
        self.is_replaying = False
        if run.published or run.streams or run.told:
            self.telling().resume(run)

    def let_go(self) -> None:
        """The run left memory: whoever still calls is told so by ``stopped``.

        Its parts know one another: left as they are they would wait for the garbage collector,
        whose work was measured to be a third of the cost of a short run.
        """
        mine, self.__dict__ = self.__dict__, {}
        for name in _KEPT:
            self.__dict__[name] = mine[name]

    def at(self) -> int:
        """Now, in ms since the run's start; never falls."""
        now = self.env.ports.clock.now_ms() - self.started_at
        if now > self._last_at:
            self._last_at = now
        return self._last_at

    def note(self, event: Event, mail_id: str | None = None) -> None:
        """Append; the flow does not see it."""
        self.log.append(self.hider.event(event) if self.hider.is_on else event, mail_id)
        if self.outlet is not None:
            self.outlet.flush()

    def record(self, event: Event, mail_id: str | None = None) -> None:
        """Append and deliver."""
        if self.hider.is_on:
            event = self.hider.event(event)
        self.log.append(event, mail_id)
        if self.outlet is not None:
            self.outlet.flush()
        self.inbox.append(event)
        self.activate()

    def telling(self) -> Outlet:
        """Where the run writes what it tells those who watch it."""
        if self.outlet is None:
            self.outlet = Outlet(self.log, self.env.host, self.at, self.log.append)
            self.outlet.on_chunks = self._wake_readers
        return self.outlet

    def _wake_readers(self) -> None:
        self.env.peer.wake_readers(self.run_id)

    def flush(self) -> None:
        """Write what was told and not written: it comes before what is recorded next."""
        if self.outlet is not None and not self.stopped:
            self.outlet.flush()

    def publish(self, values: Mapping[str, bytes]) -> None:
        """Show values to those who watch the run; of one that left memory nobody hears."""
        if not self.stopped:
            hider = self.hider
            shown = {n: MARKED if n in hider.names else hider.value(v) for n, v in values.items()}
            self.telling().publish(shown)

    def open_stream(self, writer: StreamWriter) -> None:
        """Open a stream; of a run that left memory nobody hears."""
        if not self.stopped:
            self.telling().open(writer)

    def put_chunk(self, writer: StreamWriter, chunk: bytes) -> None:
        """Write a chunk into an open stream, if it can be taken."""
        if not self.stopped:
            self.telling().check(writer)
            self.telling().put(writer, chunk)

    def take_chunk(self, writer: StreamWriter, chunk: bytes) -> None:
        """The same for one that was checked in its thread."""
        if not self.stopped:
            self.telling().put(writer, chunk)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Change tags of the run."""
        known = self.start_event.tags
        hidden = {name: self.hider.text(value) for name, value in tags.items()}
        fresh = {name: value for name, value in hidden.items() if known.get(name) != value}
        if fresh and not self.stopped:
            self.start_event = replace(self.start_event, tags={**known, **fresh})
            self.flush()  # what flow code published before comes before
            self.note(Tagged(self.at(), fresh, self.telling().told))

    def used(self, inside: Body | None) -> tuple[Usage, ...] | None:
        """What an attempt's body used of models, to be recorded with its end, once."""
        if inside is None or inside.usage is None:
            return None
        used = tuple(inside.usage.values())
        inside.usage = None
        add_usage(self.usage, used)
        return used

    def when_durable(self, callback: Callable[..., None], *args: Any) -> None:
        """Call once everything appended so far is durable."""
        self.log.wait(self.log.seq, callback, *args)

    def shelf(self) -> Any:
        """Where the run's blobs are kept."""
        return self.env.peer.shelf(self.log.run.start.family)

    def drop(self, op: Op) -> None:
        """Nobody waits for this op and nothing comes of it."""
        self.waiting.drop(op)
        self.rest()

    def end_replay(self) -> None:
        """The flow is where it was, or goes no further."""
        if self.is_replaying:
            self.is_replaying = False
            self.env.repeats.end()

    @property
    def takes_mail(self) -> bool:
        """The replay is over and everything that was open has been begun."""
        return self.is_live and not self.stopped

    @property
    def is_overdue(self) -> bool:
        """The deadline is the next event, but for mail."""
        rest = (event for event in self.inbox if not isinstance(event, _MAIL))
        return isinstance(next(rest, None), DeadlinePassed)
