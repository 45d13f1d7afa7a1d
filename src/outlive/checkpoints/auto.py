"""Runs whose steps are saved automatically: at the end of each, and only if it succeeded.

``AutoRun`` takes the run when it is entered, so its previous holder can't save any more. A step
with a checkpoint is not run again; one that fails, or is cancelled, leaves the state unchanged.
One that fails is retried by its ``Retry`` policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from inspect import isawaitable
from itertools import count
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar, cast

from outlive.checkpoints import decide as deciding
from outlive.checkpoints.schema import Schema, State, decode, digest, encode
from outlive.checkpoints.snapshot import RunSnapshot
from outlive.checkpoints.store import SnapshotStore, draft_of, unsaved
from outlive.errors import DefinitionRefused, LeaseLost, OutliveError, UsageError, ValueRefused
from outlive.model.retry import Retry
from outlive.ports import Ports

#: Keys in a checkpoint's metadata: the step's outcome, and the identity of its call.
RESULT: Final = "result"
CALL: Final = "call"
#: The depth to which arguments are searched for the run's state.
_DEPTH_MAX: Final = 8


class Done:
    """The steps that count, and those of them that were called since the run was entered."""

    def __init__(self) -> None:
        #: By step: its metadata.
        self.said: dict[str, dict[str, Any]] = {}
        self._called: set[str] = set()
        #: By call: its steps that were not called yet, the earliest last.
        self._waiting: dict[str, list[str]] = {}
        #: By name: the first number that may be free, or of a step without a recorded call.
        self._numbers: dict[str, int] = {}

    def load(self, said: Mapping[str, dict[str, Any]]) -> None:
        """Replace the steps that count; those that were called stay marked."""
        self.said, self._waiting, self._numbers = dict(said), {}, {}
        self._called &= self.said.keys()
        for step_id in reversed(self.said):
            call = self._call(step_id)
            if call is not None and step_id not in self._called:
                self._waiting.setdefault(call, []).append(step_id)

    def take(self, name: str, call: str) -> str | None:
        """The earliest unmatched step that may have been this call; None: it is a new call."""
        found = self._unnoted(name)
        waiting = self._waiting.get(call, [])
        while found is None and waiting:
            step_id = waiting.pop()
            found = step_id if self._call(step_id) == call else None
        if found is not None:
            self._called.add(found)
        return found

    def _unnoted(self, name: str) -> str | None:
        """A step of which an earlier release, or the user, recorded only the name."""
        number = self._numbers.get(name, 1)
        while (step_id := _numbered(name, number)) in self.said:
            if step_id not in self._called and self._call(step_id) is None:
                break
            number += 1
        self._numbers[name] = number
        return step_id if step_id in self.said else None

    def _call(self, step_id: str) -> str | None:
        call = self.said[step_id].get(CALL)
        return call if isinstance(call, str) else None

    def free(self, name: str) -> str:
        """The id of a new step of that name."""
        numbers = count(self._numbers.get(name, 1))
        return next(each for n in numbers if (each := _numbered(name, n)) not in self.said)

    def add(self, step_id: str, said: dict[str, Any]) -> None:
        """Add a step that was just saved."""
        self.said[step_id] = said
        if self._call(step_id) is not None:
            self._called.add(step_id)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}#{number}"


def call_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], state: State) -> str:
    """The identity of a call. Of an argument that can't be saved, only its class counts."""
    named = [part for key in sorted(kwargs) for part in (key, _told(kwargs[key], state))]
    return digest([name, [_told(each, state) for each in args], named])


def _told(value: Any, state: State) -> Any:
    try:
        return digest(_without(value, state, 0))
    except ValueRefused:
        return [type(value).__qualname__]


def _without(value: Any, state: State, depth: int) -> Any:
    """A copy of the value with None in place of the state."""
    kind = type(value)
    if value is state:
        return None
    if depth < _DEPTH_MAX and kind in (list, tuple):
        return kind(_without(part, state, depth + 1) for part in value)
    if depth < _DEPTH_MAX and kind is dict:
        return {key: _without(part, state, depth + 1) for key, part in value.items()}
    return value


P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger("outlive")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRules:
    """The rules by which a runner's runs are saved."""

    store: SnapshotStore
    schema: Schema
    retry: Retry
    ports: Ports
    #: False: only explicit checkpoints are saved.
    saves: bool
    #: False: nothing is saved or restored.
    enabled: bool


class AutoRun:
    """A run and its state, as its steps see it."""

    def __init__(self, rules: AutoRules, run_id: str, state: State, *, cleanup: bool) -> None:
        self.run_id = run_id
        #: The state; change it freely. A failed step restores it.
        self.state: State = _copy(state)
        self._rules, self._cleanup = rules, cleanup
        self._holder = rules.ports.entropy(8).hex()
        self._done = Done()
        self._is_begun = self._is_busy = False
        self._token: Token[AutoRun | None] | None = None

    @property
    def done(self) -> frozenset[str]:
        """The steps that are done."""
        return frozenset(self._done.said)

    async def step(
        self, name: str, body: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a step and save the state, unless that was done before; return the step's outcome.

        A call with another name or other arguments is another step, and so is each further call
        with the same: ``fetch``, ``fetch#2``. The run's state does not count as an argument.
        """
        return await self.perform(StepFunction(body, name=name), *args, **kwargs)

    async def perform(self, step: StepFunction[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The same for a step with its own name and rules."""
        self._check_begun()
        if self._is_busy:
            raise UsageError(
                f"step {step.name} was called while another step of run {self.run_id} runs; "
                "steps of a run share its state, so they come one after the other"
            )
        call = call_of(step.name, args, kwargs, self.state)
        known = self._done.take(step.name, call)
        if known is not None:
            return cast("R", _copy(self._done.said[known]).get(RESULT))
        before, step_id = encode(self.state, "a state"), ""
        self._is_busy = True
        token = _inside.set(self)
        try:
            outcome = await self._attempt(step, lambda: step.body(*args, **kwargs), before)
            if not (self._rules.saves and self._rules.enabled):
                return outcome
            step_id = self._done.free(step.name)
            return cast("R", await self._keep(step_id, call, outcome))
        except BaseException:
            if step_id not in self._done.said:
                self._replace(decode(before, self.run_id, 0))
            raise
        finally:
            _inside.reset(token)
            self._is_busy = False

    async def _attempt(
        self, step: StepFunction[Any, R], body: Callable[[], Awaitable[R]], before: bytes
    ) -> R:
        retry = step.retry or self._rules.retry
        for attempt in range(1, retry.attempts + 1):
            try:
                return await outcome_of(body())
            except Exception as error:
                if attempt == retry.attempts or not isinstance(error, retry.only):
                    raise
                self._replace(decode(before, self.run_id, 0))
                chance = int.from_bytes(self._rules.ports.entropy(4), "big") / (1 << 32)
                await asyncio.sleep(retry.delay_seconds(attempt, chance))
        raise AssertionError("there is at least one attempt")

    async def _keep(self, step_id: str, call: str, outcome: Any) -> Any:
        """Save a step completely, even if the caller is cancelled: then it is known what counts.

        Return the saved outcome.
        """
        said = {CALL: call} if outcome is None else {RESULT: outcome, CALL: call}
        saving = asyncio.ensure_future(self.checkpoint(step_id, said))
        try:
            return (await asyncio.shield(saving)).metadata.get(RESULT)
        except asyncio.CancelledError:
            await asyncio.gather(saving, return_exceptions=True)
            raise

    async def checkpoint(self, step_id: str, metadata: dict[str, Any] | None = None) -> RunSnapshot:
        """Save the state at a step of your own.

        Raises:
            LeaseLost: somebody else continued the run.
        """
        self._check_begun()
        rules = self._rules
        schema = rules.schema.of(self.state)
        draft = draft_of(step_id, self.state, metadata, schema=schema)
        if not rules.enabled:
            return unsaved(self.run_id, draft, rules.ports.clock.now_ms())
        saved = await rules.store.save(self.run_id, draft, self._holder)
        self._done.add(step_id, saved.metadata)
        return saved

    async def rollback(self, to_step: str, why: str | BaseException = "") -> State:
        """Roll back to a step: later checkpoints no longer count, and their steps run again.

        Calls up to this step stay done: continue after it.
        """
        store = self._rules.store
        await store.check(self._rules.schema, self.run_id, to_step)
        found = await store.roll_back(self.run_id, to_step, why=why, holder=self._holder)
        self._take(*found)
        self._done.load(await store.metadata(self.run_id))
        return self.state

    async def begin(self) -> None:
        """Take the run, and continue from its last checkpoint."""
        rules = self._rules
        if rules.enabled:
            await rules.store.check(rules.schema, self.run_id)
            found = await rules.store.restore(self.run_id, holder=self._holder, takes=True)
            if found is not None:
                self._take(*found)
                self._done.load(await rules.store.metadata(self.run_id))
        self._is_begun = True

    async def leave(self, error: BaseException | None) -> None:
        """Record the end of the run; one that was only interrupted is released."""
        if not self._rules.enabled:
            return
        if error is None:
            await self._rules.store.end(self.run_id, "succeeded", holder=self._holder)
            if self._cleanup:
                await self._rules.store.clear(self.run_id)
        elif isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            await self._try("was given up", self._rules.store.let_go(self.run_id, self._holder))
        elif isinstance(error, Exception) and not isinstance(error, LeaseLost):
            end = self._rules.store.end(self.run_id, "failed", error, holder=self._holder)
            await self._try("failed", end)

    async def __aenter__(self) -> Self:
        await self.begin()
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
        await self.leave(error)

    async def _try(self, what: str, saying: Awaitable[None]) -> None:
        """Record the end; if that fails, log it: the original error is more important."""
        try:
            await saying
        except OutliveError as failure:
            logger.warning("run %s %s, and that could not be saved: %s", self.run_id, what, failure)

    def _check_begun(self) -> None:
        if not self._is_begun:
            raise UsageError(
                f"run {self.run_id} was not entered; write `async with runner.auto(...) as run:`"
            )

    def _take(self, snapshot: RunSnapshot, schema: str) -> None:
        self._replace(self._rules.schema.read(snapshot.state, schema, snapshot.where))

    def _replace(self, state: State) -> None:
        """Change the state in place: every reference to the dict sees it."""
        self.state.clear()
        self.state.update(state)


class StepFunction(Generic[P, R]):
    """An async function that is a step of the run around it; a plain function works, too."""

    def __init__(
        self,
        body: Callable[P, Awaitable[R]],
        *,
        name: str | None = None,
        retry: Retry | None = None,
    ) -> None:
        if not callable(body):
            raise DefinitionRefused(
                f"{body!r} can't be called, so it can't be a step; a name is given by name="
            )
        if retry is not None:
            check_retry(retry)
        self.body, self.retry = body, retry
        own = str(getattr(body, "__name__", type(body).__name__))
        self.name = deciding.check_step(own if name is None else name)
        self.__doc__ = body.__doc__

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        run = current_run()
        if run is None or is_within_step(run):
            return await outcome_of(self.body(*args, **kwargs))
        return await run.perform(self, *args, **kwargs)


async def outcome_of(called: Awaitable[R] | R) -> R:
    """Await the outcome of an async function, or pass on that of a plain one."""
    return await called if isawaitable(called) else called


def check_retry(retry: object) -> None:
    """Refuse anything but a retry policy."""
    if not isinstance(retry, Retry):
        raise DefinitionRefused(f"retry={retry!r}: write outlive.Retry(attempts=3)")


def current_run() -> AutoRun | None:
    """The run whose ``async with`` block this code is in."""
    return _current.get()


def is_within_step(run: AutoRun) -> bool:
    """Whether this code is in the body of one of its steps."""
    return _inside.get() is run


def _copy(state: State) -> State:
    return decode(encode(state, "a state"), "", 0)


_current: ContextVar[AutoRun | None] = ContextVar("outlive_auto_run", default=None)
#: The run of the current step's body: steps called there are plain calls.
_inside: ContextVar[AutoRun | None] = ContextVar("outlive_auto_step", default=None)
