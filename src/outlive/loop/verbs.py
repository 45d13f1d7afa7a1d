"""The loop's public functions: coroutines, or plain calls where nothing has to be awaited.

A loop without async handlers is plain code, as a flow written with ``def`` is. Called where no
event loop runs, nobody could await: then these functions wait themselves. Type checkers see
coroutines; ``outlive.sync.loop`` has the same functions for plain code alone.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from outlive.engine.definitions import Effect
from outlive.errors import DefinitionRefused
from outlive.journal.lane import run_immediate
from outlive.loop import driver as driving
from outlive.loop.driver import Where, class_of, is_saved, kinds_of
from outlive.loop.loop import UNAWAITED, Loop
from outlive.portal import run_blocking

T = TypeVar("T")
L = TypeVar("L", bound=Loop)
S = TypeVar("S")


def step_once(loop: Loop) -> Coroutine[Any, Any, None]:
    """Make one transition in memory; nothing is saved. If it fails, the loop is restored.

    Attributes that can't be copied, such as a client or a lock, stay as they are.
    """
    kind = class_of(loop)
    loop.check_awaited()
    work = partial(driving.step_once, loop)
    return _noted(loop, _done_or_awaited([kind], work, in_thread=True))


def drive(loop: L, store: Where = None) -> Coroutine[Any, Any, L]:
    """Drive a loop to its end, or continue the one with its id; return the ended loop.

    ``store`` is a URL (default: ``OUTLIVE_STORE``), an app, or an object with ``save`` and
    ``load``; nothing is loaded from such an object here: ``resume`` continues its snapshot.

    Raises:
        RunFailed: a handler raised; ``outlive retry`` retries the loop.
        IncompatibleCheckpoint: it was left by code with another schema.
        RunIdTaken: the id belongs to another request, or to a loop that ended and is not kept.
    """
    kind = class_of(loop)
    loop.check_awaited()
    work = partial(driving.drive, loop, store)
    return _noted(loop, _done_or_awaited([kind], work, in_thread=is_plain(store)))


def resume(
    store: Where = None, id: str | None = None, loop: type[L] | None = None
) -> Coroutine[Any, Any, L | None]:
    """Continue a loop that was left, to its end; None: there is none.

    Without an ``id`` it is the only one that is under way, or the one whose snapshot an object
    has. ``loop`` is its class; without it, all loops that this process has defined are searched.

    Raises:
        IncompatibleCheckpoint: it was left by code with another schema.
        UsageError: several loops are under way, or several classes match.
    """
    kinds = kinds_of(loop)
    work: Any = partial(driving.resume, store, id, kinds)
    return _done_or_awaited(kinds.values(), work, in_thread=is_plain(store))


def load(
    store: Where = None, id: str | None = None, loop: type[L] | None = None
) -> Coroutine[Any, Any, L | None]:
    """A loop at its last checkpoint, without driving it; None: there is none."""
    kinds = kinds_of(loop)
    work: Any = partial(driving.load, store, id, kinds)
    return _done_or_awaited(kinds.values(), work, in_thread=is_plain(store))


def _noted(loop: Loop, outcome: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Remember a coroutine until it is awaited."""
    if inspect.iscoroutine(outcome):
        vars(loop)[UNAWAITED] = outcome
    return outcome


def _done_or_awaited(
    kinds: Iterable[type[Loop]], work: Callable[[], Coroutine[Any, Any, T]], *, in_thread: bool
) -> Coroutine[Any, Any, T]:
    kinds = list(kinds)
    if any(each.machine.is_async for each in kinds) or _is_loop_running():
        return work()
    outcome: Any = done(kinds, work, in_thread=in_thread)
    return outcome  # type: ignore[no-any-return]  # see above: type checkers know one side


def done(
    kinds: Iterable[type[Loop]], work: Callable[[], Coroutine[Any, Any, T]], *, in_thread: bool
) -> T:
    """The outcome; ``in_thread``: only handlers could wait in it, so this thread runs it."""
    if in_thread and not any(each.machine.is_async for each in kinds):
        return run_immediate(work())
    return run_blocking(work)


def is_plain(store: Where) -> bool:
    """Whether the object saves, loads and deletes without being awaited."""
    verbs = (getattr(store, name, None) for name in ("save", "load", "delete"))
    return is_saved(store) and not any(map(inspect.iscoroutinefunction, verbs))


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Arranged(Generic[S]):
    """A plan in its new order, and the reasons."""

    #: All actions of the given plan.
    plan: list[S]
    #: A sentence for each action that was moved.
    why: list[str]


def arrange(
    plan: Sequence[S],
    tool: Callable[[S], Any],
    needs: Callable[[S], Collection[int]] | None = None,
) -> Arranged[S]:
    """Reorder actions: those that can't be repeated come last.

    ``tool`` returns the function of an action: an effect can't be repeated, a step or any other
    function can; or it returns True for an action that can be repeated. ``needs`` returns the
    positions in the plan of actions whose outcome an action needs: it stays after them.

    Raises:
        DefinitionRefused: an action needs one that does not come before it.
    """
    held: dict[int, str] = {}
    for position, action in enumerate(plan):
        needed = _checked(position, () if needs is None else needs(action))
        if not _is_repeatable(tool(action)):
            held[position] = (
                "it can't be repeated: a crash before it means deciding again, not acting again"
            )
        elif behind := [each for each in needed if each in held]:
            held[position] = f"it needs the outcome of action {behind[-1] + 1}, which is held back"
    order = [at for at in range(len(plan)) if at not in held] + list(held)
    why = [
        f"action {old + 1} ({plan[old]!r}) comes {'last' if last else f'at {new + 1}'}: {held[old]}"
        for new, old in enumerate(order)
        if old in held and new != old
        for last in [new == len(order) - 1]
    ]
    return Arranged([plan[at] for at in order], why)


def _is_repeatable(tool: Any) -> bool:
    return tool if isinstance(tool, bool) else not isinstance(tool, Effect)


def _checked(position: int, needed: Collection[int]) -> list[int]:
    for each in needed:
        if not 0 <= each < position:
            raise DefinitionRefused(
                f"action {position + 1} of the plan needs the one at {each}; "
                "positions count from 0, and what is needed comes before"
            )
    return sorted(needed)
