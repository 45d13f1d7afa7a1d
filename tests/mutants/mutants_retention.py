"""Known-bad variants of deleting what is old."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from outlive.journal.retention import deletion as retiring
from outlive.journal.retention import sweep as sweeping
from outlive.journal.retention.archive import Archived, StoreArchive
from outlive.journal.retention.deletion import Retiree
from outlive.journal.retention.sweep import Sweep
from outlive.stores.seam import Store


def living_parent_ignored(patch: pytest.MonkeyPatch) -> None:
    """Whether somebody waits for a child is not asked."""

    async def may_ask_again(self: Sweep, parent: str) -> bool:
        return False

    patch.setattr(Sweep, "_may_ask_again", may_ask_again)


def tombstone_not_left(patch: pytest.MonkeyPatch) -> None:
    """The id of a deleted run is free at once."""
    real = sweeping.delete_runs

    async def delete_runs(store: Store, retirees: Sequence[Retiree], until: int) -> Sequence[bool]:
        return await real(store, retirees, 0)

    patch.setattr(sweeping, "delete_runs", delete_runs)


def archived_after_deletion(patch: pytest.MonkeyPatch) -> None:
    """What goes is archived when it is gone, if nothing comes between."""
    waiting: list[tuple[StoreArchive, Sequence[Archived]]] = []
    keep, delete_some = StoreArchive.keep, Sweep._delete_some

    async def keep_later(self: StoreArchive, runs: Sequence[Archived]) -> None:
        waiting.append((self, runs))

    async def delete_first(self: Sweep) -> Any:
        await delete_some(self)
        while waiting:
            await keep(*waiting.pop())

    patch.setattr(StoreArchive, "keep", keep_later)
    patch.setattr(Sweep, "_delete_some", delete_first)


def keys_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A run that goes does not tell what came of its keys."""

    async def keep_keys(store: Store, retirees: Sequence[Retiree]) -> frozenset[str]:
        return frozenset()

    patch.setattr(sweeping, "keep_keys", keep_keys)


def living_fork_ignored(patch: pytest.MonkeyPatch) -> None:
    """Whether a fork shares with a run is not asked."""

    async def forked_among(store: Store, run_ids: Sequence[str]) -> set[str]:
        return set()

    patch.setattr(sweeping, "forked_among", forked_among)


def header_believed(patch: pytest.MonkeyPatch) -> None:
    """A run goes if its header says that it is over; its journal is not asked."""
    patch.setattr(retiring, "check_ended", lambda reading, events: None)
