"""The blocking verbs without an app: on the default store, which the environment names."""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar

from outlive.app.schedules import Schedule
from outlive.app.signatures import RunVerb
from outlive.engine.definitions import Flow
from outlive.engine.notices import OnWait
from outlive.engine.place import refuse_in_run
from outlive.engine.signatures import typed
from outlive.portal import interrupts
from outlive.settings import Settings
from outlive.stores.types import Page
from outlive.sync.app import CALL, App, open_app
from outlive.sync.handle import Handle, PlainEnsureVerb, PlainStartVerb, PlainSubmitVerb

T = TypeVar("T")


class DefaultApp:
    """The app of this process on the store that the environment names, opened at first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._app: App | None = None
        self._of: tuple[int, str] | None = None

    def get(self) -> App:
        """The app; a new one after a fork, or when the environment names another store."""
        wanted = os.getpid(), Settings.from_environment().store
        with self._lock:
            if self._app is not None and self._of != wanted:
                self._let_go(self._app)
            if self._app is None:
                self._app, self._of = open_app(), wanted
            return self._app

    def close(self) -> None:
        """Close the store; the next verb opens it again."""
        with self._lock:
            if self._app is not None:
                self._let_go(self._app)

    def _let_go(self, app: App) -> None:
        is_ours = self._of is not None and self._of[0] == os.getpid()
        self._app = self._of = None
        if is_ours:
            app.close()


default_app = DefaultApp()


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
    """Start a run, or continue the one of that id, and return its outcome.

    What it waits for is logged; ``on_wait="raise"`` raises ``InDoubt`` or ``Waiting`` instead.
    """
    refuse_in_run("outlive.run", CALL)
    with interrupts.held():
        with open_app(store) as app:
            outcome = app.run(flow, *args, id=id, on_wait=on_wait, **kwargs)
        del app  # its finalizers drop a Ctrl-C, unless that is held
    return outcome


@typed[PlainStartVerb]()
def start(flow: Flow[..., Any], /, *args: Any, id: str | None = None, **kwargs: Any) -> Handle[Any]:
    """Start a run here, or continue the one of that id, on the default store."""
    return default_app.get().start(flow, *args, id=id, **kwargs)


@typed[PlainSubmitVerb]()
def submit(flow: Flow[..., Any] | str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
    """Start a run that a worker elsewhere drives, on the default store."""
    return default_app.get().submit(flow, *args, **kwargs)


@typed[PlainEnsureVerb]()
def ensure(flow: Flow[..., Any], /, *args: Any, id: str, **kwargs: Any) -> Handle[Any]:
    """Start a run on the default store unless there is one of that id."""
    return default_app.get().ensure(flow, *args, id=id, **kwargs)


def get(run_id: str, flow: Flow[Any, Any] | None = None) -> Handle[Any]:
    """The handle of a run on the default store; an outcome of a class of yours needs the flow."""
    return default_app.get().get(run_id, flow)


def find(**query: Any) -> Page:
    """A page of runs on the default store."""
    return default_app.get().find(**query)


def fork(run_id: str, **how: Any) -> Handle[Any]:
    """Start a run that continues from a place in another one: ``at=``, ``set=``, ``id=``."""
    return default_app.get().fork(run_id, **how)


def schedule(name: str, flow: Flow[..., Any] | str, *args: Any, **kwargs: Any) -> Schedule:
    """Start a run of this flow at each instant of ``cron``, or ``every`` so often."""
    return default_app.get().schedule(name, flow, *args, **kwargs)


def unschedule(name: str) -> bool:
    """Remove a schedule; runs that it started continue. False: there was no such schedule."""
    return default_app.get().unschedule(name)


def pause_schedule(name: str) -> Schedule:
    """Fire nothing until it is resumed; instants meanwhile do not count as missed."""
    return default_app.get().pause_schedule(name)


def resume_schedule(name: str) -> Schedule:
    """Fire again, from the next instant on."""
    return default_app.get().resume_schedule(name)


def fire_schedule(name: str) -> Handle[Any]:
    """Start a run of a schedule now, in addition to its instants, even if it is paused."""
    return default_app.get().fire_schedule(name)


def schedules() -> list[Schedule]:
    """All schedules on the default store, by name."""
    return default_app.get().schedules()


def close() -> None:
    """Close the default store; the next verb opens it again."""
    default_app.close()
