"""Loops for plain code: the verbs of ``outlive.loop``, each waiting for its outcome."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from outlive.loop import (
    Arranged,
    IllegalTransition,
    IncompatibleCheckpoint,
    Loop,
    LoopStore,
    Snapshot,
    State,
    arrange,
)
from outlive.loop import driver as driving
from outlive.loop.verbs import done, is_plain
from outlive.sync.app import App

__all__ = [
    "Arranged",
    "IllegalTransition",
    "IncompatibleCheckpoint",
    "Loop",
    "LoopStore",
    "Snapshot",
    "State",
    "arrange",
    "drive",
    "load",
    "resume",
    "step_once",
]

T = TypeVar("T")
L = TypeVar("L", bound=Loop)
Where: TypeAlias = App | LoopStore | str | None


def step_once(loop: Loop) -> None:
    """One transition, in memory: nothing is saved. If it fails, the loop is as it was."""
    done([driving.class_of(loop)], partial(driving.step_once, loop), in_thread=True)


def drive(loop: L, store: Where = None) -> L:
    """Drive a loop to its end, or go on with the one of its id; the loop, as it ended."""
    return _wait([driving.class_of(loop)], partial(driving.drive, loop), store)


def resume(store: Where = None, id: str | None = None, loop: type[L] | None = None) -> L | None:
    """Go on with a loop that was left, to its end; None: there is none."""
    kinds = driving.kinds_of(loop)
    work: Any = partial(driving.resume, id=id, kinds=kinds)
    found: L | None = _wait(kinds.values(), work, store)
    return found


def load(store: Where = None, id: str | None = None, loop: type[L] | None = None) -> L | None:
    """A loop as its last checkpoint has it, without driving it; None: there is none."""
    kinds = driving.kinds_of(loop)
    work: Any = partial(driving.load, id=id, kinds=kinds)
    found: L | None = _wait(kinds.values(), work, store)
    return found


def _wait(
    kinds: Iterable[type[Loop]], work: Callable[[Any], Coroutine[Any, Any, T]], store: Where
) -> T:
    if isinstance(store, App):
        return store.on_app(work)
    return done(kinds, partial(work, store), in_thread=is_plain(store))
