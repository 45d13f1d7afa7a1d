"""A reader of streams as users write it: it shows what counts, and checks what it is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from outlive.app.streams import Chunk


class Screen:
    """What somebody sees who follows a stream, by the step that wrote it."""

    def __init__(self) -> None:
        self.shown: dict[str, list[Any]] = {}
        self.resets: list[str] = []
        self.offset = 0
        self._attempts: dict[str, int] = {}

    def take(self, chunk: Chunk) -> None:
        """Show a chunk, or withdraw what its step wrote."""
        assert self.offset + 1 == chunk.offset, "none is missing, none comes twice"
        self.offset = chunk.offset
        attempt = self._attempts.setdefault(chunk.step, 1)
        assert attempt + chunk.reset == chunk.attempt, "each reset begins an attempt"
        self._attempts[chunk.step] = chunk.attempt
        if chunk.reset:
            assert chunk.value is None
            assert self.shown.get(chunk.step), "there is something to withdraw"
            self.shown[chunk.step] = []
            self.resets.append(chunk.step)
        else:
            self.shown.setdefault(chunk.step, []).append(chunk.value)

    async def follow(self, chunks: AsyncIterator[Chunk]) -> None:
        """Take all chunks until the run is over."""
        async for chunk in chunks:
            self.take(chunk)
