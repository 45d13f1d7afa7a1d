"""Known-bad variants of streams and published values."""

from __future__ import annotations

from typing import Any

import pytest

from outlive.app.feed import value_of
from outlive.app.handle import Handle
from outlive.engine.outlet import Outlet
from outlive.model.events import Event, StreamReset
from outlive.model.streams import StreamFold, StreamItem


def stream_doubled_on_retry(patch: pytest.MonkeyPatch) -> None:
    """A new attempt streams behind what the last one wrote, which stays."""
    patch.setattr(Outlet, "begin", lambda self, step: None)


def reset_lost(patch: pytest.MonkeyPatch) -> None:
    """Readers do not hear of resets."""
    take = StreamFold.take

    def deaf(self: StreamFold, seq: int, event: Event) -> list[StreamItem]:
        items = take(self, seq, event)
        return [] if isinstance(event, StreamReset) else items

    patch.setattr(StreamFold, "take", deaf)


def published_before_its_commit(patch: pytest.MonkeyPatch) -> None:
    """Whoever watches in the writer's own process is shown what is not durable yet."""
    published = Handle.published

    async def early(self: Handle[Any]) -> dict[str, Any]:
        drive = None if self._worker is None else self._worker._drives.get(self.id)
        outlet = None if drive is None else drive.context.outlet
        if outlet is None:
            return await published(self)
        return {name: value_of(each, self._codec()) for name, each in outlet.shown.items()}

    patch.setattr(Handle, "published", early)
