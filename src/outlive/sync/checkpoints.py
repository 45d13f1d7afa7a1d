"""Checkpoints for plain code: what the async runner awaits, this waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from outlive.checkpoints import AutoRun as AsyncRun
from outlive.checkpoints import Cut, Message, RunSnapshot, SnapshotInfo, StorageBackend
from outlive.checkpoints import DurableRunner as AsyncRunner
from outlive.checkpoints import Exchange as AsyncExchange
from outlive.checkpoints import SnapshotStore as AsyncStore
from outlive.checkpoints import restore_cut as restore_cut_async
from outlive.checkpoints.auto import StepFunction as AsyncStep
from outlive.checkpoints.auto import is_within_step
from outlive.checkpoints.snapshot import Change
from outlive.checkpoints.store import CheckpointedRun
from outlive.errors import DefinitionRefused
from outlive.model.checkpoints import EndStatus
from outlive.model.defaults import CHECKPOINTS_OLDER_THAN
from outlive.model.retry import Duration, Retry
from outlive.portal import LoopThread, at_exit, check_may_block

T = TypeVar("T")


class Waiting(Protocol):
    """A store for plain code: it awaits elsewhere, and waits here."""

    store: AsyncStore

    def wait(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await this over there, and wait for it here."""
        ...


class Exchange:
    """One agent among others, for plain code; for one thread at a time."""

    def __init__(self, store: Waiting, exchange: AsyncExchange) -> None:
        self._store, self._exchange = store, exchange

    @property
    def run_id(self) -> str:
        """The agent's id."""
        return self._exchange.run_id

    @property
    def peers(self) -> tuple[str, ...]:
        """Those it exchanges messages with."""
        return self._exchange.peers

    @property
    def state(self) -> dict[str, Any] | None:
        """A copy of the state that was saved last; None: the agent has not begun."""
        return self._exchange.state

    @property
    def step_id(self) -> str | None:
        """The step at which it was saved last."""
        return self._exchange.step_id

    def send(self, to: str, message: Any) -> int:
        """Send a message, when the next state is saved; returns its number."""
        return self._exchange.send(to, message)

    def receive(self, timeout: Duration | None = None) -> Message | None:
        """The next message, of each sender in the order of sending; None: none in time."""
        return self._store.wait(partial(self._exchange.receive, timeout))

    def checkpoint(
        self, step_id: str, state: dict[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> RunSnapshot:
        """Save the state with everything that was sent and taken since the last one."""
        return self._store.wait(partial(self._exchange.checkpoint, step_id, state, metadata))

    def look(self) -> None:
        """See what the peers have saved."""
        self._store.wait(self._exchange.look)

    def leave(self) -> None:
        """Let go of the agent, so that anybody may save or delete it; it can be opened again."""
        self._store.wait(self._exchange.leave)


class Exchanging:
    """The verbs of a runner that are about many agents, for plain code."""

    def __init__(self, store: Waiting, runner: AsyncRunner) -> None:
        self.store, self._runner = store, runner

    def exchange(self, run_id: str, peers: Iterable[str]) -> Exchange:
        """Open an agent that exchanges messages with these; whoever had it open has it no more."""
        opened = self.store.wait(partial(self._runner.exchange, run_id, peers))
        return Exchange(self.store, opened)

    def cut(self, run_ids: Iterable[str], name: str | None = None) -> Cut:
        """One state of many agents, with the messages under way; the same name: the same cut."""
        return self.store.wait(partial(self._runner.cut, run_ids, name))

    def list_cuts(self) -> list[str]:
        """The names of the cuts that there are, the oldest first."""
        return self.store.wait(self._runner.list_cuts)

    def get_cut(self, name: str) -> Cut:
        """The cut of that name."""
        return self.store.wait(partial(self._runner.get_cut, name))

    def delete_cut(self, name: str) -> None:
        """Forget a cut; if it is not restored to its end, also the agents that it brought here."""
        self.store.wait(partial(self._runner.delete_cut, name))


def restore_cut(cut: Cut, *, into: Waiting | Exchanging) -> None:
    """Put the agents of a cut into another store, as one: all states, all messages under way."""
    store = into.store if isinstance(into, Exchanging) else into
    store.wait(partial(restore_cut_async, cut, into=store.store))


P = ParamSpec("P")
R = TypeVar("R")


class SnapshotStore:
    """Where snapshots are saved and found, for plain code. Use it as a context manager."""

    def __init__(self, storage_backend: StorageBackend | str | None = None) -> None:
        self.store = AsyncStore(storage_backend)
        self._loop = LoopThread("outlive-checkpoints")
        at_exit.watch(self)

    def wait(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await this over there, and wait for it here."""
        check_may_block("a blocking verb of checkpoints")
        return self._loop.call(work)

    def save_snapshot(
        self,
        run_id: str,
        step_id: str,
        state: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> RunSnapshot:
        """Save the state as it is now; durable when this returns."""
        return self.wait(partial(self.store.save_snapshot, run_id, step_id, state, metadata))

    def get_latest_snapshot(self, run_id: str) -> RunSnapshot | None:
        """The one that was saved last; None: there is none."""
        return self.wait(partial(self.store.get_latest_snapshot, run_id))

    def get_snapshot_by_step(self, run_id: str, step_id: str) -> RunSnapshot | None:
        """The one of a step; None: there is none."""
        return self.wait(partial(self.store.get_snapshot_by_step, run_id, step_id))

    def get_snapshot(self, run_id: str, seq: int) -> RunSnapshot | None:
        """Any that was ever saved, by its place."""
        return self.wait(partial(self.store.get_snapshot, run_id, seq))

    def list_snapshots(self, run_id: str) -> list[RunSnapshot]:
        """One per step, in the order in which they were saved."""
        return self.wait(partial(self.store.list_snapshots, run_id))

    def delete_snapshots(self, run_id: str) -> int:
        """Delete all that is kept of a run; how many snapshots that were."""
        return self.wait(partial(self.store.delete_snapshots, run_id))

    def ensure_run_initialized(self, run_id: str, metadata: dict[str, Any] | None = None) -> None:
        """Begin the run's checkpoints, unless they have begun."""
        self.wait(partial(self.store.ensure_run_initialized, run_id, metadata))

    def history(self, run_id: str) -> list[SnapshotInfo]:
        """All that was ever saved, the last one last, without the states."""
        return self.wait(partial(self.store.history, run_id))

    def status(self, run_id: str) -> str | None:
        """How its owner says that it stands; None: it has no checkpoints."""
        return self.wait(partial(self.store.status, run_id))

    def runs(self, status: str | None = None) -> list[CheckpointedRun]:
        """The runs that have checkpoints."""
        return self.wait(partial(self.store.runs, status))

    def events(self, run_id: str, after: int = 0) -> list[dict[str, Any]]:
        """What happened to a run's checkpoints behind a seq, as named events."""

        async def collect() -> list[dict[str, Any]]:
            return [event async for event in self.store.events(run_id, after)]

        return self.wait(collect)

    def close(self) -> None:
        """Let go of the storage, if it was opened here. Closing twice is fine."""
        if self._loop.is_running:
            self._loop.call(self.store.close)
        self._loop.close()
        at_exit.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class DurableRunner(Exchanging):
    """Saves and restores the state of runs, for plain code; options as the async one's."""

    def __init__(
        self,
        snapshot_store: SnapshotStore | str | None = None,
        enable_auto_snapshot: bool = True,
        **options: Any,
    ) -> None:
        is_store = isinstance(snapshot_store, SnapshotStore)
        self._closes = not is_store
        self.store: SnapshotStore = (
            snapshot_store
            if isinstance(snapshot_store, SnapshotStore)
            else SnapshotStore(snapshot_store)
        )
        runner = AsyncRunner(self.store.store, enable_auto_snapshot, **options)
        super().__init__(self.store, runner)

    @property
    def snapshot_store(self) -> SnapshotStore:
        """Where its snapshots are."""
        return self.store

    def checkpoint(
        self,
        run_id: str,
        step_id: str,
        state: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> RunSnapshot:
        """Save the state at a step, as it is now; durable when this returns."""
        return self.store.wait(partial(self._runner.checkpoint, run_id, step_id, state, metadata))

    def resume(self, run_id: str, from_step: str | None = None) -> dict[str, Any] | None:
        """The state of the last checkpoint, or of that of a step: a copy; None: there is none."""
        return self.store.wait(partial(self._runner.resume, run_id, from_step))

    def list_checkpoints(self, run_id: str) -> list[RunSnapshot]:
        """One per step, in the order in which they were saved."""
        return self.store.list_snapshots(run_id)

    def cleanup(self, run_id: str) -> int:
        """Delete all checkpoints of a run; how many there were."""
        return self.store.wait(partial(self._runner.cleanup, run_id))

    def history(self, run_id: str) -> list[SnapshotInfo]:
        """Everything that was ever saved, also what was saved again or taken back since."""
        return self.store.history(run_id)

    def rollback(self, run_id: str, to_step: str, why: str | BaseException = "") -> dict[str, Any]:
        """Go back: what was saved behind that step no longer counts. The state there."""
        return self.store.wait(partial(self._runner.rollback, run_id, to_step, why))

    def diff(
        self, run_id: str, from_step: str, to_step: str | None = None, *, other: str | None = None
    ) -> list[Change]:
        """Where the states of two steps differ (default: to the last one), or of two runs."""
        return self.store.wait(partial(self._runner.diff, run_id, from_step, to_step, other=other))

    def fork(self, run_id: str, fork_id: str, at: str | None = None) -> dict[str, Any]:
        """Another run that goes on from a step of this one; the state there."""
        return self.store.wait(partial(self._runner.fork, run_id, fork_id, at))

    def finish(
        self, run_id: str, status: EndStatus = "succeeded", error: str | BaseException = ""
    ) -> None:
        """The run is over: its checkpoints may be cleared away when they are old."""
        self.store.wait(partial(self._runner.finish, run_id, status, error))

    def cleanup_old(
        self,
        older_than: Duration = CHECKPOINTS_OLDER_THAN,
        *,
        failed: Duration | None = None,
        unfinished: Duration | None = None,
    ) -> int:
        """Delete the checkpoints of runs that ended so long ago."""
        work = partial(self._runner.cleanup_old, failed=failed, unfinished=unfinished)
        return self.store.wait(partial(work, older_than))

    def events(self, run_id: str, after: int = 0) -> list[dict[str, Any]]:
        """What happened to a run's checkpoints, as named events."""
        return self.store.events(run_id, after)

    @contextmanager
    def auto(
        self, run_id: str, state: dict[str, Any] | None = None, *, cleanup: bool = False
    ) -> Iterator[AutoRun]:
        """A run whose steps are saved by themselves: ``with runner.auto("r") as run``."""
        run = self._runner.auto(run_id, state, cleanup=cleanup)
        self.store.wait(run.begin)
        plain = AutoRun(self.store, run)
        token = _current.set(plain)
        try:
            yield plain
        except BaseException as error:
            self.store.wait(partial(run.leave, error))
            raise
        finally:
            _current.reset(token)
        self.store.wait(partial(run.leave, None))

    @overload
    def step(self, body: Callable[P, R], /) -> StepFunction[P, R]: ...
    @overload
    def step(
        self, /, *, name: str | None = None, retry: Retry | None = None
    ) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...
    def step(
        self, body: Any = None, /, *, name: str | None = None, retry: Retry | None = None
    ) -> Any:
        """Make a plain function a step of the run that ``auto`` is about.

        It is not run again where its checkpoint is there. Also with options: ``name=``, and
        ``retry=Retry(attempts=3)``.
        """
        if body is None:
            return lambda function: StepFunction(function, name=name, retry=retry)
        return StepFunction(body, name=name, retry=retry)

    def close(self) -> None:
        """Let go of the storage, if it was opened here."""
        if self._closes:
            self.store.close()


class AutoRun:
    """A run and its state, as its steps see it from plain code."""

    def __init__(self, store: SnapshotStore, run: AsyncRun) -> None:
        self._store, self._run = store, run

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.run_id

    @property
    def state(self) -> dict[str, Any]:
        """Yours to change. A failed step leaves it as it was before."""
        return self._run.state

    @property
    def done(self) -> frozenset[str]:
        """The steps that need not be run any more."""
        return self._run.done

    @property
    def is_within_step(self) -> bool:
        """Whether this code is in the body of one of its steps."""
        return is_within_step(self._run)

    def step(self, name: str, body: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a plain function as a step, in a thread, and save the state; what it returned."""
        return self.perform(StepFunction(body, name=name), *args, **kwargs)

    def perform(self, step: StepFunction[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The same for a step with a name and rules of its own."""
        return self._store.wait(partial(self._run.perform, step.beside, *args, **kwargs))

    def checkpoint(self, step_id: str, metadata: dict[str, Any] | None = None) -> RunSnapshot:
        """Save the state at a step of your own."""
        return self._store.wait(partial(self._run.checkpoint, step_id, metadata))

    def rollback(self, to_step: str, why: str | BaseException = "") -> dict[str, Any]:
        """Go back to a step: what was saved behind it no longer counts."""
        return self._store.wait(partial(self._run.rollback, to_step, why))


class StepFunction(Generic[P, R]):
    """A plain function that is a step of the run that goes on around it."""

    def __init__(
        self, body: Callable[P, R], *, name: str | None = None, retry: Retry | None = None
    ) -> None:
        if iscoroutinefunction(body):
            raise DefinitionRefused(f"{body!r} is async; it is a step of outlive.checkpoints")
        given: Any = body
        checked: AsyncStep[..., Any] = AsyncStep(given, name=name, retry=retry)
        self.body, self.name = body, checked.name
        #: As the loop calls it: in a thread.
        self.beside = AsyncStep(partial(asyncio.to_thread, body), name=self.name, retry=retry)
        self.__doc__ = body.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        run = _current.get()
        if run is None or run.is_within_step:
            return self.body(*args, **kwargs)
        return run.perform(self, *args, **kwargs)


_current: ContextVar[AutoRun | None] = ContextVar("outlive_plain_run", default=None)
