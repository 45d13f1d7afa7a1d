"""Looking before one's time, because the store says that there is something to be seen."""

from __future__ import annotations

from collections.abc import Callable

from outlive.store import Watchable
from outlive.worker.setting import Setting


def wake_by_store(
    setting: Setting, worker: str, poke: Callable[[], object]
) -> Callable[[], object]:
    """Poke the worker, on its own loop, at the store's hints, if it gives any; returns the end."""
    if not isinstance(setting.store, Watchable):
        return _nothing
    return setting.store.watch(worker, lambda: setting.host.call_threadsafe(poke))


def _nothing() -> None:
    pass
