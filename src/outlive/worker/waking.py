"""When to look again: before one's time if the store calls, else when the next run gets due."""

from __future__ import annotations

from collections.abc import Callable

from outlive.ports import Clock
from outlive.store import Claims, Watchable
from outlive.worker.setting import Setting

#: Looks for what is due do not follow one another faster than this, whatever a store says.
_AHEAD_MS_MIN = 1


def next_look(claims: Claims, clock: Clock) -> float | None:
    """When the next run gets due, in monotonic time.

    The store's clock decides what is due, and ours may be ahead of it.
    """
    if claims.next_at is None:
        return None
    return clock.monotonic() + max(_AHEAD_MS_MIN, claims.next_at - claims.now) / 1000


def wake_by_store(
    setting: Setting, worker: str, poke: Callable[[], object]
) -> Callable[[], object]:
    """Poke the worker, on its own loop, at the store's hints, if it gives any; returns the end."""
    if not isinstance(setting.store, Watchable):
        return _nothing
    return setting.store.watch(worker, lambda: setting.host.call_threadsafe(poke))


def _nothing() -> None:
    pass
