"""Where code runs: in a branch of a flow, in a step's body, or outside any run.

One context variable decides what a call of a step means. Step ids come from the place: branch,
name, and the ordinal of that name in the branch. A branch's id is its parent's plus its ordinal
among the parent's tasks, so ids depend on the structure of the code and on nothing else.

A framework's tasks are its own affair: they may be others after an upgrade. ``PlaceBranch`` is a
branch that all tasks made in it share, so ids there come from names and the caller's ids alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar

from outlive.errors import AmbiguousCall, InsideStep, NotInRun, OutliveError, UsageError
from outlive.model.ids import derived_key
from outlive.model.usage import Usage, add_usage

P = ParamSpec("P")
R = TypeVar("R")


class Driven(Protocol):
    """What a branch knows of the run that it belongs to."""

    run_id: str
    approvals: Any
    #: What is not recorded.
    hider: Any
    #: What was called, and may not have been awaited.
    called: list[Any]

    def note_call(self, made: Any) -> None:
        """A verb was called, and must be awaited."""
        ...

    def refuse_run(self, error: OutliveError) -> None:
        """The run fails with this, whoever catches it."""
        ...

    async def perform(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do a step or effect: from the journal, or for the first time."""
        ...

    async def signal(self, branch: Branch, name: str) -> Any:
        """The next signal of that name, as its event."""
        ...

    async def signal_of(self, branch: Branch, name: str, hint: Any) -> Any:
        """The next signal of that name and type; one of another is refused."""
        ...

    def taken(self, event: Any, hint: Any) -> Any:
        """The value of a signal as the type that the flow wants, which is recorded."""
        ...

    async def question(self, asked: Any, hint: Any) -> tuple[Any, Any]:
        """A human's answer, and its event."""
        ...

    async def child(
        self, branch: Branch, flow: Any, bound: dict[str, Any], *, awaited: bool
    ) -> Any:
        """A run of its own: its outcome, or its id."""
        ...

    async def launch(self, branch: Branch, flow: Any, args: bytes) -> str:
        """A run that is nobody's child, of a flow that is known by name: its id."""
        ...

    async def is_over(self, run_id: str) -> bool:
        """Whether another run has ended, or is gone."""
        ...

    async def carry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """End this chapter; the flow begins anew with these arguments."""
        ...

    def is_patched(self, place: str) -> bool:
        """Whether the flow takes the new way here."""
        ...

    def publish(self, values: Mapping[str, bytes]) -> None:
        """Show values to those who watch the run."""
        ...

    def tag(self, tags: Mapping[str, str]) -> None:
        """Change tags of the run."""
        ...

    def open_stream(self, writer: Any) -> None:
        """Open a stream at a place in the flow."""
        ...

    def put_chunk(self, writer: Any, chunk: bytes) -> None:
        """Write a chunk, once per place."""
        ...

    def is_replaying(self) -> bool:
        """The flow goes through what it did before."""
        ...

    def is_behind(self) -> bool:
        """The journal has something that the flow has not come to yet."""
        ...

    def is_open(self, step: str) -> bool:
        """The flow waits for this."""
        ...

    async def on_host(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Call this on the user's loop and wait for its end; nothing is recorded."""
        ...

    def fired_at_ms(self) -> int:
        """The instant that the run is for, in ms since 1970."""
        ...

    def version(self) -> str:
        """The version of the code that began this chapter."""
        ...

    def pins(self) -> Mapping[str, str]:
        """What was pinned when the run began."""
        ...

    def reply(self, signal_id: str, value: object) -> None:
        """Answer a request."""
        ...

    def refuse(self, signal_id: str, why: Exception) -> None:
        """A signal or request can't be read: whoever wants a reply is told."""
        ...

    async def sleep(self, branch: Branch, seconds: float) -> None:
        """Wait, durably."""
        ...

    def now_ms(self) -> int:
        """The run's time: that of the last delivered event, in ms since 1970."""
        ...

    def chance(self, place: str) -> bytes:
        """Sixteen random bytes that belong to this place."""
        ...


class Branch:
    """One line of execution in a flow, and the numbers it gave out."""

    __slots__ = ("_block", "_ordinals", "_places", "_tasks", "drive", "id")

    def __init__(self, drive: Driven, branch_id: str) -> None:
        self.drive = drive
        self.id = branch_id
        self._ordinals: dict[str, int] = {}
        self._places: dict[str, PlaceBranch] | None = None
        self._tasks = 0
        self._block = (0, 0, 0)

    def next_id(self, name: str) -> str:
        """The id of the next step of that name here."""
        ordinals = self._ordinals
        number = ordinals[name] = ordinals.get(name, 0) + 1
        return f"{self.id}/{name}#{number}"

    def child(self, number: int | None = None) -> Branch:
        """The branch of a task made here."""
        if number is None:
            self._tasks += 1
            number = self._tasks
        return Branch(self.drive, f"{self.id}.{number}")

    def block(self, owner: int, *, size: int, uses: int) -> int:
        """The first of ``size`` numbers set aside for one owner, who asks ``uses`` times."""
        known, first, left = self._block
        if known != owner or not left:
            first, left = self._tasks + 1, uses
            self._tasks += size
        self._block = (owner, first, left - 1)
        return first

    def place(self, name: str) -> PlaceBranch:
        """The place of that name here: entered again, it goes on counting."""
        if self._places is None:
            self._places = {}
        known = self._places.get(name)
        if known is None:
            known = self._places[name] = PlaceBranch(self.drive, f"{self.id}@{name}")
        return known

    def positions(self, name: str) -> Positions:
        """For what runs beside one another here, in an order that is ours: a branch for each."""
        del name
        return Positions(None, "")


class PlaceBranch(Branch):
    """A branch that tasks do not divide: what its calls are named by must tell them apart.

    Of two calls of one name that are open at the same time nobody could say which was the first:
    that depends on tasks. Calls one after another are in the order of what the journal delivers.
    """

    __slots__ = ("_held",)

    def __init__(self, drive: Driven, branch_id: str) -> None:
        super().__init__(drive, branch_id)
        self._held: set[str] = set()

    def next_id(self, name: str) -> str:
        """The id of the next step of that name here; the one before it must have ended."""
        number = self._ordinals.get(name, 0)
        before = f"{self.id}/{name}#{number}"
        if number and (before in self._held or self.drive.is_open(before)):
            error = AmbiguousCall(name, self.id.partition("@")[2], before)
            self.drive.refuse_run(error)
            raise error
        self._ordinals[name] = number + 1
        return f"{self.id}/{name}#{number + 1}"

    def child(self, number: int | None = None) -> Branch:
        """The branch of a task made here: this one."""
        del number
        return self

    def timer_id(self, when_ms: int) -> str:
        """The id of a timer that asyncio sets here: by when it is due, which tasks don't change."""
        return super().next_id(f"{LOOSE_TIMER}{when_ms}")

    def positions(self, name: str) -> Positions:
        """One branch for each of them, by position."""
        return Positions(self, self.next_id(name).partition("/")[2])

    def hold(self, step: str, *, is_open: bool) -> None:
        """What has no wait of its own is open, or has ended."""
        (self._held.add if is_open else self._held.discard)(step)


class Positions:
    """The branches of what one call in a place does beside one another."""

    def __init__(self, owner: PlaceBranch | None, name: str) -> None:
        self._owner, self._name = owner, name

    def __enter__(self) -> Positions:
        if self._owner is not None:
            self._owner.hold(f"{self._owner.id}/{self._name}", is_open=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._owner is not None:
            self._owner.hold(f"{self._owner.id}/{self._name}", is_open=False)

    def take(self, position: int) -> None:
        """What the current task calls from here on belongs to this one of them."""
        if self._owner is not None:
            place.set(self._owner.place(f"{self._name}.{position}"))


#: How the ids of asyncio's own timers begin in a place; a replay may do without these.
LOOSE_TIMER = "timer:"


class Bridge(Protocol):
    """The thread of a plain flow, and its way to the flow's loop."""

    def check(self, name: str) -> None:
        """Refuse calls from any other thread."""
        ...

    def perform(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do a step or effect; this thread waits for it."""
        ...

    def wait(self, work: Callable[[], Any]) -> Any:
        """Await what this makes, on the flow's loop; this thread waits for it."""
        ...

    def beside(self, fn: Callable[[], Any]) -> Any:
        """What runs a plain function in a branch and a thread of its own, to be awaited."""
        ...


class Plain:
    """A branch as plain code sees it: what is awaited elsewhere, its own thread waits for."""

    __slots__ = ("branch", "bridge")

    def __init__(self, branch: Branch, bridge: Bridge) -> None:
        self.branch, self.bridge = branch, bridge

    @property
    def drive(self) -> Driven:
        """The run that this belongs to."""
        return self.branch.drive


#: How often user code may swallow the news that its run left memory.
SWALLOWS_MAX = 100


class RunStopped(BaseException):
    """Raised by every durable call of a run that left memory; never seen by a living flow."""


class Body:
    """The inside of a step: nothing is recorded here, and nothing durable may begin."""

    __slots__ = ("_user_key", "attempt", "context", "refusal", "run_id", "shelf", "step", "usage")

    def __init__(self, run_id: str, step: str, attempt: int, user_key: str | None) -> None:
        self.run_id, self.step, self.attempt, self._user_key = run_id, step, attempt, user_key
        #: What the engine refused here: it counts, whoever caught it.
        self.refusal: InsideStep | None = None
        #: Finds where the blobs of this run are kept; None: nowhere.
        self.shelf: Callable[[], Any] | None = None
        #: The run in memory, of a step's or effect's own body.
        self.context: Any = None
        #: By model: what it has told of, and is not recorded yet.
        self.usage: dict[str, Usage] | None = None

    def refuse(self, name: str) -> InsideStep:
        """Nothing durable may begin here."""
        self.refusal = self.refusal or InsideStep(name, self.step)
        return self.refusal

    def use(self, usage: Usage) -> None:
        """The body used a model."""
        if self.usage is None:
            self.usage = {}
        add_usage(self.usage, (usage,))

    @property
    def key(self) -> str:
        """What the receiver tells repeats by."""
        return self._user_key or derived_key(self.run_id, self.step)


place: ContextVar[Branch | Plain | Body | None] = ContextVar("outlive_place", default=None)


def branch_for(name: str) -> Branch:
    """The branch that this call belongs to; refuses calls from a body or from outside."""
    here = place.get()
    if isinstance(here, Branch):
        return here
    if type(here) is Plain:
        here.bridge.check(name)
        return here.branch
    if type(here) is Body:
        raise here.refuse(name)
    raise NotInRun(name)


def plain_for(name: str) -> Bridge:
    """The thread that a plain verb is called in; refuses calls from async flows and elsewhere."""
    here = place.get()
    if type(here) is Plain:
        here.bridge.check(name)
        return here.bridge
    if isinstance(here, Branch):
        raise UsageError(
            f"outlive.sync.{name} was called in an async flow, which it would block; "
            f"`import outlive` there and await outlive.{name}"
        )
    if type(here) is Body:
        raise here.refuse(f"outlive.{name}")
    raise NotInRun(f"outlive.{name}")


def awaited(verb: Callable[P, R]) -> Callable[P, R]:
    """A verb that must be awaited: called in a plain flow it says so at once."""

    @wraps(verb)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_plain(verb.__name__)
        made: Any = verb(*args, **kwargs)
        here = place.get()
        if isinstance(here, Branch):
            here.drive.note_call(made)
        return made  # type: ignore[no-any-return]  # R is what the verb returns

    return checked


def refuse_plain(name: str) -> None:
    """Nothing can be awaited in a plain flow."""
    if type(place.get()) is Plain:
        raise UsageError(
            f"outlive.{name} must be awaited, which a plain flow can't; write "
            f"`from outlive import sync as outlive` there, then outlive.{name} returns its outcome"
        )


def on_loop(work: Callable[[], R]) -> R:
    """Call what changes the run: here, or from plain code's thread where the run is changed."""
    here = place.get()
    if type(here) is not Plain:
        return work()

    async def call() -> R:
        return work()

    outcome: R = here.bridge.wait(call)
    return outcome


def refuse_in_flow() -> None:
    """What reads or writes the store by itself was called from flow code, which is run again."""
    here = place.get()
    if isinstance(here, (Branch, Plain)):
        error = UsageError(
            "this touches the store, and was called inside a flow; do it in a step, only step "
            "bodies touch the outside; runs are started there with outlive.call or outlive.spawn"
        )
        here.drive.refuse_run(error)
        raise error


def refuse_in_run(name: str, remedy: str) -> None:
    """A verb for the outside was called from within a run."""
    here = place.get()
    if here is None:
        return
    where = f"the body of step {here.step}" if type(here) is Body else "a flow"
    raise UsageError(f"{name} was called inside {where}; {remedy}")
