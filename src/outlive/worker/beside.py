"""What a worker does beside its loop: it is woken by its store, and clears away what is old."""

from __future__ import annotations

from collections.abc import Callable

from outlive.worker.setting import Setting
from outlive.worker.upkeep import Upkeep
from outlive.worker.waking import wake_by_store


def begin_beside(setting: Setting, worker: str, poke: Callable[[], object]) -> Callable[[], object]:
    """Begin both, as far as they are wanted; returns what ends them."""
    unwatch = wake_by_store(setting, worker, poke)
    if setting.upkeep is None:
        return unwatch
    upkeep = Upkeep(setting, setting.upkeep, worker)
    upkeep.start()

    def end() -> None:
        upkeep.stop()
        unwatch()

    return end
