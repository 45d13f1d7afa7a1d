"""Readers of streams: all readers of one stream in a process share one look at its run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

from outlive.app.feed import Follower, value_of
from outlive.errors import UsageError
from outlive.journal.codec.codec import Codec
from outlive.journal.reader import Tail
from outlive.model.streams import StreamFold, StreamItem

#: Items that are kept though all readers have them: the next reader may want them, too.
ITEMS_KEPT = 10_000

Key: TypeAlias = tuple[asyncio.AbstractEventLoop, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A chunk of a stream, or a reset: what its step wrote before is withdrawn."""

    #: Counts up from 1 in each stream; to go on behind it later: ``stream(name, after=offset)``.
    offset: int
    #: What was put; None of a reset.
    value: Any
    #: Another attempt of ``step`` begins: forget its chunks.
    reset: bool
    #: The step that wrote it; of flow code the place where it opened the stream.
    step: str
    #: From 1; it rises with each reset of this step.
    attempt: int


class _Reader:
    """The position of one reader."""

    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset


class _Feed:
    """The items of one stream as they become durable, for all its readers on one loop."""

    def __init__(self, follower: Follower, fold: StreamFold) -> None:
        self._follower, self._fold = follower, fold
        self.readers: set[_Reader] = set()
        self._items: list[StreamItem] = []
        #: The offset of the last item that was dropped.
        self.dropped = 0
        self._news = asyncio.Event()
        self._is_over = False
        self._error: BaseException | None = None
        self.task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        try:
            async with aclosing(self._follower.events(Tail())) as found:
                async for seq, event in found:
                    items = self._fold.take(seq, event)
                    if items:
                        self._add(items)
        except Exception as error:
            self._error = error
        finally:
            self._is_over = True
            self._wake()

    def _add(self, items: list[StreamItem]) -> None:
        if not self._items and not self.dropped:
            self.dropped = items[0].offset - 1  # what came before went with its chapter
        self._items += items
        if len(self._items) > 2 * ITEMS_KEPT:
            done = min((reader.offset for reader in self.readers), default=0) - self.dropped
            count = max(0, min(done, len(self._items) - ITEMS_KEPT))
            del self._items[:count]
            self.dropped += count
        self._wake()

    def _wake(self) -> None:
        told, self._news = self._news, asyncio.Event()
        told.set()

    async def items(self, reader: _Reader) -> AsyncGenerator[StreamItem, None]:
        """Every item behind the reader, until the run is over."""
        while True:
            position = max(0, reader.offset - self.dropped)
            if position < len(self._items):
                item = self._items[position]
                reader.offset = item.offset
                yield item
            elif self._is_over:
                if self._error is not None:
                    raise self._error
                return
            else:
                await self._news.wait()


class StreamFeeds:
    """The streams that are read in this process."""

    def __init__(self) -> None:
        self._feeds: dict[Key, _Feed] = {}

    async def read(
        self, follow: Callable[[], Follower], run_id: str, stream: str, after: int
    ) -> AsyncGenerator[StreamItem, None]:
        """Every item of a stream behind an offset."""
        key = (asyncio.get_running_loop(), run_id, stream)
        feed = self._feeds.get(key)
        if feed is None or feed.dropped > after or feed.task.done():
            feed = self._feeds[key] = _Feed(follow(), StreamFold(run_id, stream))
        reader = _Reader(after)
        feed.readers.add(reader)
        try:
            async with aclosing(feed.items(reader)) as found:
                async for item in found:
                    yield item
        finally:
            feed.readers.discard(reader)
            if not feed.readers:
                feed.task.cancel()
                if self._feeds.get(key) is feed:
                    del self._feeds[key]


def chunk_of(item: StreamItem, codec: Codec) -> Chunk:
    """An item for its reader."""
    return Chunk(
        offset=item.offset,
        value=value_of(item.value, codec),
        reset=item.value is None,
        step=item.step,
        attempt=item.attempt,
    )


def check_read(stream: object, after: object) -> None:
    """Refuse what no stream is called, and what is no offset."""
    if type(stream) is not str or not stream:
        raise UsageError(f"stream: {stream!r} is not the name of a stream")
    if type(after) is not int or after < 0:
        raise UsageError(f"stream: after={after!r} is not the offset of a chunk, or 0")
