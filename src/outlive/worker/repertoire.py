"""What a worker can drive: flows, and the versions of their runs that each of them accepts.

A run keeps the version it began with. Two versions of one flow may stand side by side: a run goes
to the code of its own version, else to the newest that was learned and accepts it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outlive.engine.definitions import Flow, not_a_flow
from outlive.engine.schedules import SCHEDULE
from outlive.errors import FlowNotRegistered, UsageError, WrongVersion
from outlive.journal.record import FORMAT
from outlive.model.retention import Retention
from outlive.stores.types import Wanted

#: Driven by workers of any queues: a schedule is in none, its runs are where it says.
_UNQUEUED = frozenset({SCHEDULE.name})


def check_flows(flows: object) -> list[Flow[Any, Any]]:
    """What a worker is given to drive: flows, and nothing else."""
    if not isinstance(flows, Iterable):
        given = flows.name if isinstance(flows, Flow) else repr(flows)
        raise UsageError(f"a worker is given a list of flows: write [{given}]")
    able = list(flows)
    for flow in able:
        if not isinstance(flow, Flow):
            raise not_a_flow(flow)
    return each_once(able)


def each_once(flows: Iterable[Flow[Any, Any]]) -> list[Flow[Any, Any]]:
    """These flows, each once; several versions of one are fine.

    Raises:
        UsageError: two of them have the same name and version.
    """
    found: dict[tuple[str, str], Flow[Any, Any]] = {}
    for flow in flows:
        known = found.setdefault((flow.name, flow.version), flow)
        if known.fn is not flow.fn:
            raise _namesakes(known, flow)
    return list(found.values())


def _namesakes(known: Flow[Any, Any], other: Flow[Any, Any]) -> UsageError:
    one, two = known.fn.__module__, other.fn.__module__
    if one == two:
        one, two = _place_of(known), _place_of(other)
    both = f"{one} has two flows" if one == two else f"{one} and {two} both have a flow"
    return UsageError(
        f"{both} named {other.name!r} of version {other.version!r}; "
        "give one another name or version: @outlive.flow(name=...)"
    )


def _place_of(flow: Flow[Any, Any]) -> str:
    """Where in the program its function is defined."""
    fn = flow.fn
    return f"{fn.__module__}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


def all_of(flows: Iterable[Flow[Any, Any]], queues: frozenset[str] | None = None) -> Repertoire:
    """What a worker drives that takes whatever there is of these flows: schedules, too."""
    return Repertoire((SCHEDULE, *flows), queues)


class Repertoire:
    """The flows of one worker."""

    def __init__(
        self, flows: Iterable[Flow[Any, Any]], queues: frozenset[str] | None = None
    ) -> None:
        #: Only runs of these queues (None: any).
        self._queues = queues
        #: By name, in the order of learning.
        self._flows: dict[str, list[Flow[Any, Any]]] = {}
        for flow in flows:
            self.learn(flow)

    def learn(self, flow: Flow[Any, Any]) -> bool:
        """Drive runs of this flow, too; True if that is news.

        What is defined anew at the same place, as in a notebook, replaces what was there.

        Raises:
            UsageError: a flow of another place has its name and version.
        """
        known = self._flows.setdefault(flow.name, [])
        for position, each in enumerate(known):
            if each is flow:
                return False
            if each.version == flow.version:
                if each.fn is not flow.fn and _place_of(each) != _place_of(flow):
                    raise _namesakes(each, flow)
                known[position] = flow
                return each.fn is not flow.fn or each.versions != flow.versions
        known.append(flow)
        return True

    def find(self, name: str, version: str) -> Flow[Any, Any]:
        """The code for a run of this flow and version.

        Raises:
            FlowNotRegistered: nobody here knows the flow.
            WrongVersion: the flow is known, and does not accept that version.
        """
        known = self._flows.get(name)
        if not known:
            raise FlowNotRegistered(name, list(self._flows))
        if known[-1].version == version:
            return known[-1]
        own = [flow for flow in known if flow.version == version]
        able = own or [flow for flow in known if version in flow.versions]
        if not able:
            accepted = ", ".join(sorted(self.versions()[name]))
            raise WrongVersion(
                f"the run was started with version {version!r} of flow {name!r}; this code drives "
                f"{accepted}: add accepts=({version!r},) if it can drive it"
            )
        return able[-1]

    def versions(self) -> dict[str, frozenset[str]]:
        """By flow, the versions of runs that can be driven here."""
        return {
            name: frozenset().union(*(flow.versions for flow in known))
            for name, known in self._flows.items()
        }

    def retentions(self) -> dict[str, Retention]:
        """By flow, what its own code says of old runs."""
        newest = {name: known[-1].retention for name, known in self._flows.items()}
        return {name: rules for name, rules in newest.items() if rules is not None}

    def wanted(self, *, only: frozenset[str] | None) -> Wanted:
        """What to ask a store for: any run that can be driven here, or some of them only."""
        return Wanted(
            flows=self.versions(),
            format=FORMAT,
            run_ids=only,
            queues=self._queues,
            unqueued=_UNQUEUED,
        )
