"""Known-bad variants of group commit and of commits over several journals."""

from __future__ import annotations

from typing import Any

import pytest

from outlive.journal.group import Round
from outlive.model.logs import LogState
from outlive.stores.memory import MemoryStore


def group_commit_acknowledges_early(patch: pytest.MonkeyPatch) -> None:
    """Who waits is answered when its entry is in the batch, not when the batch is durable."""
    real = Round._committed

    async def committed(self: Round, entries: Any) -> Any:
        for append in self._decided:
            append.hold_answer()
            append.is_done = True
        self._group._tell(self._decided)
        try:
            return await real(self, entries)
        except Exception:
            return {}

    patch.setattr(Round, "_committed", committed)


def refused_by_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """A refusal is told at once, though it rests on an entry that is not durable yet."""
    real = Round._add

    async def add(self: Round, append: Any, events: Any) -> int:
        grown = await real(self, append, events)
        for each in self._appends:
            if each is not append and not each.is_done and self._group.decide(each) is None:
                each.is_done = True
                self._group._tell([each])
        return grown

    patch.setattr(Round, "_add", add)


def journals_committed_apart(patch: pytest.MonkeyPatch) -> None:
    """What belongs together is a batch like any other."""
    patch.setattr(MemoryStore, "commit_together", MemoryStore.commit)


def stale_view_decides(patch: pytest.MonkeyPatch) -> None:
    """Nobody reads on before it refuses, or says that there is nothing to do."""
    patch.setattr(Round, "_is_certain", lambda self, journal: True)


def window_ignored(patch: pytest.MonkeyPatch) -> None:
    """A key lives on behind its window."""
    patch.setattr(LogState, "is_over", lambda self, now: False)
