"""Any agent runner, made durable: what was done is returned, not done again.

Unlike a wrapper that only saves the end, what the agent does inside can be saved step by step: it
runs within ``DurableRunner.auto``, so functions that are steps are not run twice. What can't be
saved or restored is raised, never passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlive.checkpoints.auto import AutoRun, outcome_of
from outlive.checkpoints.done import CALL
from outlive.checkpoints.runner import DurableRunner
from outlive.errors import DefinitionRefused

#: The step at which an agent's answer is saved: a name that no step of its own has.
FINAL = "outlive/final"
#: As earlier releases named it.
_FINAL = "final"


class DurableAgentRunner:
    """An agent runner with durable calls beside its own; whatever else is asked of it, it answers.

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
        """Call the agent, or return what it answered in this run before."""
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
