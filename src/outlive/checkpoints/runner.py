"""The durable runner: checkpoint, resume, rollback, fork, cleanup.

``checkpoint`` and ``resume`` are for loops of your own. ``auto`` and ``step`` do both for you, at
the boundaries of steps, with retries, and keep a former holder from continuing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from outlive.checkpoints.agents.agents import Agents
from outlive.checkpoints.agents.cuts import Cut, CutJournals, Cuts
from outlive.checkpoints.agents.exchange import Exchange, open_exchange
from outlive.checkpoints.auto import CALL, AutoRules, AutoRun, StepFunction, check_retry, outcome_of
from outlive.checkpoints.schema import Schema, State, Upcasters
from outlive.checkpoints.snapshot import Change, RunSnapshot, SnapshotInfo, changes
from outlive.checkpoints.store import Age, SnapshotStore, draft_of, snapshots_of, unsaved
from outlive.errors import DefinitionRefused, ExchangeRefused, RunNotFound, UsageError
from outlive.model.checkpoints import EndStatus
from outlive.model.defaults import CHECKPOINTS_OLDER_THAN
from outlive.model.retry import ONCE, Duration, Retry, parse_duration
from outlive.ports import Ports
from outlive.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


class DurableRunner:
    """Saves and restores the state of runs. ``enable_auto_snapshot``: whether ``auto`` saves."""

    def __init__(
        self,
        snapshot_store: SnapshotStore | str | None = None,
        enable_auto_snapshot: bool = True,
        *,
        schema_version: str | None = None,
        upcasters: Upcasters | None = None,
        retry: Retry = ONCE,
        exclusive: bool = False,
        enabled: bool | None = None,
        ports: Ports | None = None,
    ) -> None:
        self._closes = not isinstance(snapshot_store, SnapshotStore)
        self.store = (
            snapshot_store
            if isinstance(snapshot_store, SnapshotStore)
            else SnapshotStore(snapshot_store)
        )
        check_retry(retry)
        self.enable_auto_snapshot = enable_auto_snapshot
        self.retry = retry
        self.schema = Schema(schema_version, upcasters)
        self.ports = ports or Ports()
        is_set = Settings.from_environment().durable_enabled if enabled is None else enabled
        self.enabled = is_set
        #: A runner that resumes exclusively holds the run from then on.
        self._holder, self._takes = self.ports.entropy(8).hex() if exclusive else "", exclusive

    # as in the document

    @property
    def snapshot_store(self) -> SnapshotStore:
        """The store of its snapshots."""
        return self.store

    async def checkpoint(
        self, run_id: str, step_id: str, state: State, metadata: Mapping[str, Any] | None = None
    ) -> RunSnapshot:
        """Save the state at a step, as it is now; durable when this returns.

        Raises:
            ValueRefused: a part of the state would not come back as it is.
            LeaseLost: somebody else continued the run since it was resumed here.
        """
        draft = draft_of(step_id, state, metadata, schema=self.schema.of(state))
        if not self.enabled:
            return unsaved(run_id, draft, self.ports.clock.now_ms())
        return await self.store.save(run_id, draft, self._holder, takes=self._takes)

    async def resume(self, run_id: str, from_step: str | None = None) -> State | None:
        """A copy of the state of the last checkpoint, or of a step's; None: there is none.

        Raises:
            WrongVersion: its schema is another, and no upcaster converts it.
        """
        if not self.enabled:
            return None
        await self.store.check(self.schema, run_id, from_step)
        found = await self.store.restore(run_id, from_step, holder=self._holder, takes=self._takes)
        return None if found is None else self._read(*found)

    def _read(self, snapshot: RunSnapshot, schema: str) -> State:
        return self.schema.read(snapshot.state, schema, snapshot.where)

    async def list_checkpoints(self, run_id: str) -> list[RunSnapshot]:
        """The checkpoints, one per step, in the order in which they were saved."""
        return await self.store.list_snapshots(run_id)

    async def cleanup(self, run_id: str) -> int:
        """Delete all checkpoints of a run; return their number.

        Raises:
            LeaseLost: somebody holds the run; the message says how to take it.
        """
        return await self.store.clear(run_id, holder=self._holder)

    # beyond it

    async def history(self, run_id: str) -> list[SnapshotInfo]:
        """All snapshots that were ever saved, including replaced and rolled back ones."""
        return await self.store.history(run_id)

    async def rollback(self, run_id: str, to_step: str, why: str | BaseException = "") -> State:
        """Roll back to a step: later checkpoints no longer count. Return the state there.

        Raises:
            RunNotFound: the run has no checkpoints.
            UsageError: it has no checkpoint of that step.
            WrongVersion: its schema is another, and no upcaster converts it.
        """
        await self.store.check(self.schema, run_id, to_step)
        found = await self.store.roll_back(
            run_id, to_step, why=why, holder=self._holder, takes=self._takes
        )
        return self._read(*found)

    async def diff(
        self, run_id: str, from_step: str, to_step: str | None = None, *, other: str | None = None
    ) -> list[Change]:
        """Differences between the states of two steps (default: to the last), or of two runs."""
        before = await self._get(run_id, from_step)
        after = await self._get(other or run_id, to_step)
        return list(changes(before.state, after.state))

    async def _get(self, run_id: str, step: str | None) -> RunSnapshot:
        found = (
            await self.store.get_latest_snapshot(run_id)
            if step is None
            else await self.store.get_snapshot_by_step(run_id, step)
        )
        if found is not None:
            return found
        if step is None or await self.store.get_latest_snapshot(run_id) is None:
            raise RunNotFound(run_id)
        raise UsageError(f"run {run_id} has no checkpoint of step {step!r}")

    async def fork(self, run_id: str, fork_id: str, at: str | None = None) -> State:
        """Make a run that continues from a step of this one (default: the last); return the state.

        The common part is stored once, and stays when either is deleted. If the fork exists,
        it is left as it is; if it was continued, the returned state is that of its own last
        checkpoint.

        Raises:
            RunNotFound: the run has no checkpoints.
            UsageError: it has no checkpoint of that step.
            RunIdTaken: the other run has checkpoints of its own.
            WrongVersion: its schema is another, and no upcaster converts it.
        """
        await self.store.check(self.schema, run_id, at)
        await self.store.fork(run_id, fork_id, at)
        made = await self.store.find(fork_id)
        assert made is not None, "it was just made"
        return self._read(*made)

    async def finish(
        self, run_id: str, status: EndStatus = "succeeded", error: str | BaseException = ""
    ) -> None:
        """End the run: its checkpoints may be deleted when they are old.

        Raises:
            RunNotFound: the run has no checkpoints.
            UsageError: there is no such status.
            LeaseLost: somebody holds the run; the message says how to take it.
        """
        await self.store.end(run_id, status, error, holder=self._holder, takes=self._takes)

    async def cleanup_old(
        self,
        older_than: Duration = CHECKPOINTS_OLDER_THAN,
        *,
        failed: Duration | None = None,
        unfinished: Duration | None = None,
    ) -> int:
        """Delete the checkpoints of runs that succeeded or were canceled this long ago.

        Checkpoints of failed runs, and of runs that were never ended, are deleted only if their age
        is given: a process that died never releases its run, so a holder that saved nothing for as
        long as ``unfinished`` loses the run. Other runs that are under way are never touched.
        """
        age = Age(
            succeeded=_ms(older_than),
            canceled=_ms(older_than),
            failed=None if failed is None else _ms(failed),
            unfinished=None if unfinished is None else _ms(unfinished),
        )
        return await self.store.clear_old(age)

    def events(self, run_id: str, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Events of a run's checkpoints, by name."""
        return self.store.events(run_id, after)

    # steps

    def auto(self, run_id: str, state: State | None = None, *, cleanup: bool = False) -> AutoRun:
        """A run whose steps are saved automatically: ``async with runner.auto("r") as run``.

        ``state`` is its initial state, if there is no checkpoint. With ``cleanup`` nothing is kept
        once it succeeded.
        """
        rules = AutoRules(
            store=self.store,
            schema=self.schema,
            retry=self.retry,
            ports=self.ports,
            saves=self.enable_auto_snapshot,
            enabled=self.enabled,
        )
        return AutoRun(rules, run_id, {} if state is None else state, cleanup=cleanup)

    @overload
    def step(self, body: Callable[P, Awaitable[R]], /) -> StepFunction[P, R]: ...
    @overload
    def step(
        self, /, *, name: str | None = None, retry: Retry | None = None
    ) -> Callable[[Callable[P, Awaitable[R]]], StepFunction[P, R]]: ...
    def step(
        self, body: Any = None, /, *, name: str | None = None, retry: Retry | None = None
    ) -> Any:
        """Make an async function a step of the current ``auto`` run; a plain function works, too.

        A step with a checkpoint is not run again. Options: ``name=``, and
        ``retry=Retry(attempts=3)``.
        """
        if body is None:
            return lambda function: StepFunction(function, name=name, retry=retry)
        return StepFunction(body, name=name, retry=retry)

    # many agents

    async def exchange(self, run_id: str, peers: Iterable[str]) -> Exchange:
        """Open an agent that exchanges messages with these; a previous holder loses it.

        Raises:
            ExchangeRefused: it has exchanged messages with others as well, it or a peer was rolled
                back alone, or checkpoints are switched off.
            WrongVersion: its schema is another, and no upcaster converts it.
        """
        if not self.enabled:
            why = "checkpoints are switched off, and messages travel with them"
            raise ExchangeRefused(run_id, why)
        agents = Agents(self.store)
        return await open_exchange(agents, self._cuts(), self.schema, run_id, peers)

    async def cut(self, run_ids: Iterable[str], name: str | None = None) -> Cut:
        """Take one state of many agents and the messages in flight; a name gives the same cut.

        Agents may run, or be dead. The cut is durable and complete when this returns; if this is
        killed, there is no cut, and the same call takes it.

        Raises:
            CutRefused: the name belongs to another cut, an agent does not exist or exchanges
                messages with one that is not in the cut, or was rolled back alone.
        """
        return await self._cuts().take(run_ids, name)

    async def list_cuts(self) -> list[str]:
        """The names of all cuts, the oldest first."""
        return await self._cuts().names()

    async def get_cut(self, name: str) -> Cut:
        """The cut of that name.

        Raises:
            CutRefused: there is none.
        """
        return await self._cuts().get(name)

    async def delete_cut(self, name: str) -> None:
        """Delete a cut; if its restore is unfinished, also the agents that it brought here.

        Raises:
            CutRefused: there is none of that name.
            LeaseLost: an agent that it brought here is open.
        """
        await self._cuts().delete(name)

    def _cuts(self) -> Cuts:
        return Cuts(Agents(self.store), CutJournals(self.store))

    async def close(self) -> None:
        """Close the storage, if it was opened here."""
        if self._closes:
            await self.store.close()


async def restore_cut(cut: Cut, *, into: SnapshotStore | DurableRunner) -> None:
    """Restore the agents of a cut into another store, as one: all states, all messages in flight.

    If this is killed, call it again; or the first agent opened there finishes it; or
    ``delete_cut`` takes it back.

    Raises:
        CutRefused: an agent is there already, or another cut of that name.
    """
    store = snapshots_of(into, "into")
    await Cuts(Agents(store), CutJournals(store)).restore(cut)


def _ms(duration: Duration) -> int:
    return round(parse_duration(duration) * 1000)


#: The step at which an agent's answer is saved: no step of its own has this name.
FINAL = "outlive/final"
#: The name in earlier releases.
_FINAL = "final"


class DurableAgentRunner:
    """An agent runner with durable calls; all other attributes are those of the wrapped runner.

    ``agents`` is any object with a method (``invoke_mag`` by default), or a function.
    """

    def __init__(
        self,
        agents: Any,
        durable: DurableRunner | None = None,
        *,
        method: str = "invoke_mag",
    ) -> None:
        self._agents = agents
        self.durable = DurableRunner() if durable is None else durable
        found = getattr(agents, method, agents if callable(agents) else None)
        if found is None:
            raise DefinitionRefused(f"{agents!r} has no method {method!r}; say which is called")
        self._call: Callable[..., Any] = found

    async def invoke_durable(self, run_id: str, *args: Any, **kwargs: Any) -> Any:
        """Call the agent, or return its earlier answer in this run."""
        async with self.durable.auto(run_id) as run:
            if not await self._is_answered(run):
                run.state["result"] = await outcome_of(self._call(*args, **kwargs))
                return (await run.checkpoint(FINAL)).state["result"]
            return run.state["result"]

    async def _is_answered(self, run: AutoRun) -> bool:
        if FINAL in run.done or _FINAL not in run.done:
            return FINAL in run.done
        latest = await self.durable.store.get_latest_snapshot(run.run_id)
        if latest is None or latest.step_id != _FINAL:
            return False
        return CALL not in latest.metadata and "result" in latest.state

    async def invoke_mag_durable(
        self, slug: str, payload: dict[str, Any], run_id: str, **kwargs: Any
    ) -> Any:
        """The same, with the agent's name and its input first."""
        return await self.invoke_durable(run_id, slug, payload, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._agents, name)
