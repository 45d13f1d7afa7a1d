"""The verbs without an app: on the store that the environment names."""

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
    """Blocking: start a run, or go on with the one of that id, and return its outcome.

    Also in a notebook. ``store`` is a URL, if not that of the environment. What the run waits for
    (a doubt, a question, a signal) is logged; ``on_wait="raise"`` raises ``InDoubt`` or ``Waiting``
    instead, and the run keeps its place.
    """
    with open_app(store) as app:
        return app.run(flow, *args, id=id, on_wait=on_wait, **kwargs)


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
    """A verb that touches the store: called in a flow it says so at once, awaited or not."""

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
    """Start a run here, or go on with the one of that id, on the default store."""
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
    """Start a run that a worker elsewhere will drive, on the default store.

    By its name a flow needs no code here: ``submit("refund", "7")``. Whoever drives the run binds
    the arguments, and says so if they do not fit; ``version="2"`` says which version is meant.
    With a ``connection`` to the store's own database it begins when your transaction commits.
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
) -> Handle[Any]:
    """A run that goes on from behind event ``at`` of another one, on the default store.

    ``set={"plan#1": value}`` gives a step of it another outcome, and forks behind that.

    Raises:
        ForkRefused: it can't be forked there; the message says where.
    """
    return await default_app().fork(run_id, at=at, set=set, id=id)


@outside
async def find(**query: Any) -> Page:
    """A page of runs: ``find(status=, flow=, tag=, limit=, after=)`` on the default store.

    It has ``items``, each with ``head`` and ``header``, and ``next``, the ``after`` of the next
    page. ``tag`` is a pair of name and value.
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
    """Start a run of this flow at each instant that ``cron`` names, or ``every`` so often.

    The same call again changes nothing; with anything else in it, that holds from now on.
    Of instants at which no worker was there at most the last is fired; ``missed`` says what becomes
    of it after more than five minutes: "skip" it, or catch up "once". ``overlap="skip"``
    leaves an instant out while the last run goes on.
    """
    options: dict[str, Any] = {"cron": cron, "every": every, "tz": tz, "missed": missed}
    options |= {"overlap": overlap, "queue": queue, "tags": tags, "queue_key": queue_key}
    options |= {"priority": priority, "units": units}
    return await default_app().schedule(name, flow, *args, **options, **kwargs)


@outside
async def unschedule(name: str) -> bool:
    """Fire nothing more; runs that were started go on. False: there was no such schedule."""
    return await default_app().unschedule(name)


@outside
async def pause_schedule(name: str) -> Schedule:
    """Fire nothing until it is resumed; instants meanwhile are left out, not missed."""
    return await default_app().pause_schedule(name)


@outside
async def resume_schedule(name: str) -> Schedule:
    """Go on with the next instant."""
    return await default_app().resume_schedule(name)


@outside
async def fire_schedule(name: str) -> Handle[Any]:
    """Start a run of a schedule now, beside its instants, even if it is paused."""
    return await default_app().fire_schedule(name)


@outside
async def schedules() -> list[Schedule]:
    """All schedules on the default store, by name."""
    return await default_app().schedules()
