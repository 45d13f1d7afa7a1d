"""The verbs without an app: on the default store, which the environment names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.app.open import open_app
from outlive.app.schedules import Schedule
from outlive.app.signatures import EnsureVerb, RunVerb, StartVerb, SubmitVerb
from outlive.engine.definitions import Flow
from outlive.engine.notices import OnWait
from outlive.engine.place import refuse_in_flow
from outlive.engine.signatures import typed
from outlive.model.defaults import SCHEDULE_MISSED, SCHEDULE_OVERLAP, SCHEDULE_TIME_ZONE
from outlive.model.retry import Duration
from outlive.model.schedules import Missed, Overlap
from outlive.portal import interrupts
from outlive.stores.types import Page

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@typed[RunVerb]()
def run(
    flow: Flow[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    store: str | None = None,
    on_wait: OnWait = "log",
    **kwargs: Any,
) -> Any:
    """Blocking: start a run, or continue the one of that id, and return its outcome.

    Also in a notebook. ``store`` is a URL, if not that of the environment. What the run waits for
    (a doubt, a question, a signal) is logged; ``on_wait="raise"`` raises ``InDoubt`` or ``Waiting``
    instead, and the run keeps its place.
    """
    with interrupts.held():
        with open_app(store) as app:
            outcome = app.run(flow, *args, id=id, on_wait=on_wait, **kwargs)
        del app  # its finalizers drop a Ctrl-C, unless that is held
    return outcome


#: One app per running loop; gone with the loop.
_apps: WeakKeyDictionary[asyncio.AbstractEventLoop, App] = WeakKeyDictionary()


def default_app() -> App:
    """The app of this loop on the default store; opened at first use, gone with the loop."""
    loop = asyncio.get_running_loop()
    app = _apps.get(loop)
    if app is None:
        app = _apps[loop] = open_app()
    return app


def outside(verb: Callable[P, R]) -> Callable[P, R]:
    """Refuse this verb inside a flow, at the call, even if nobody awaits it."""

    @wraps(verb)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_in_flow()
        return verb(*args, **kwargs)

    return checked


@typed[StartVerb]()
@outside
async def start(
    flow: Flow[..., Any], /, *args: Any, id: str | None = None, **kwargs: Any
) -> Handle[Any]:
    """Start a run here, or continue the one of that id, on the default store."""
    return await default_app().start(flow, *args, id=id, **kwargs)


@typed[EnsureVerb]()
@outside
async def ensure(flow: Flow[..., Any], /, *args: Any, id: str, **kwargs: Any) -> Handle[Any]:
    """Start a run unless there is one of that id, whatever its arguments, on the default store."""
    return await default_app().ensure(flow, *args, id=id, **kwargs)


@typed[SubmitVerb]()
@outside
async def submit(
    flow: Flow[..., Any] | str,
    /,
    *args: Any,
    id: str | None = None,
    queue: str | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: Duration | datetime | None = None,
    queue_key: str | None = None,
    priority: int | None = None,
    units: int | None = None,
    connection: Any = None,
    **kwargs: Any,
) -> Handle[Any]:
    """Start a run that a worker elsewhere drives, on the default store.

    A flow that is given by name, ``submit("refund", "7")``, needs no code here: the worker binds
    the arguments, and ``version="2"`` says which version is meant.
    With a ``connection`` to the store's own database the run begins when your transaction commits.
    """
    options: dict[str, Any] = {"id": id, "queue": queue, "tags": tags, "deadline": deadline}
    options |= {"queue_key": queue_key, "priority": priority, "units": units}
    return await default_app().submit(flow, *args, connection=connection, **options, **kwargs)


@outside
async def get(run_id: str, flow: Flow[Any, Any] | None = None) -> Handle[Any]:
    """The handle of a run on the default store; an outcome of a class of yours needs the flow.

    Raises:
        RunNotFound: no run has this id.
    """
    return await default_app().get(run_id, flow)


@outside
async def fork(
    run_id: str,
    *,
    at: int | None = None,
    set: Mapping[str, object] | None = None,
    id: str | None = None,
    by: str = "",
) -> Handle[Any]:
    """Start a run that continues after event ``at`` of another one, on the default store.

    ``set={"plan#1": value}`` gives a step another outcome, and forks after that step.

    Raises:
        ForkRefused: it can't be forked there; the message says where it can.
    """
    return await default_app().fork(run_id, at=at, set=set, id=id, by=by)


@outside
async def find(**query: Any) -> Page:
    """A page of runs: ``find(status=, flow=, tag=, newest=, limit=, after=)`` on the default store.

    It has ``items``, each with ``head`` and ``header``, and ``next``, the ``after`` of the next
    page. ``tag`` is a mapping, or a pair of name and value; ``App.find`` has all that there is.
    """
    return await default_app().find(**query)


@outside
async def schedule(
    name: str,
    flow: Flow[..., Any] | str,
    *args: Any,
    cron: str | None = None,
    every: Duration | None = None,
    tz: str = SCHEDULE_TIME_ZONE,
    missed: Missed = SCHEDULE_MISSED,
    overlap: Overlap = SCHEDULE_OVERLAP,
    queue: str | None = None,
    tags: Mapping[str, str] | None = None,
    queue_key: str | None = None,
    priority: int | None = None,
    units: int | None = None,
    **kwargs: Any,
) -> Schedule:
    """Start a run of this flow at each instant of ``cron``, or ``every`` so often.

    The same call again changes nothing; another definition replaces the first from now on. Of the
    instants that no worker fired at most the last is made up for; ``missed`` says whether that
    holds for one more than five minutes ago: "skip" it, or fire it "once". ``overlap="skip"``
    skips an instant while the last run is still going.
    """
    options: dict[str, Any] = {"cron": cron, "every": every, "tz": tz, "missed": missed}
    options |= {"overlap": overlap, "queue": queue, "tags": tags, "queue_key": queue_key}
    options |= {"priority": priority, "units": units}
    return await default_app().schedule(name, flow, *args, **options, **kwargs)


@outside
async def unschedule(name: str) -> bool:
    """Remove a schedule; runs that it started continue. False: there was no such schedule."""
    return await default_app().unschedule(name)


@outside
async def pause_schedule(name: str) -> Schedule:
    """Fire nothing until it is resumed; instants meanwhile do not count as missed."""
    return await default_app().pause_schedule(name)


@outside
async def resume_schedule(name: str) -> Schedule:
    """Fire again, from the next instant on."""
    return await default_app().resume_schedule(name)


@outside
async def fire_schedule(name: str) -> Handle[Any]:
    """Start a run of a schedule now, in addition to its instants, even if it is paused."""
    return await default_app().fire_schedule(name)


@outside
async def schedules() -> list[Schedule]:
    """All schedules on the default store, by name."""
    return await default_app().schedules()
