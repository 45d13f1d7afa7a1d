"""Streams: what a step or a flow writes chunk by chunk, for readers in any process.

From a step chunks are provisional: readers may see them before the step's outcome is durable, and
a new attempt withdraws them by one reset. From flow code each chunk is written once per place.
"""

from __future__ import annotations

import threading
from asyncio import wrap_future
from collections.abc import Callable, Generator
from concurrent.futures import Future as PlainFuture
from functools import partial
from types import TracebackType
from typing import Any

from outlive.engine.inputs import encode_own
from outlive.engine.outlet import Outlet, StreamWriter
from outlive.engine.place import Body, branch_for, on_loop, place, refuse_plain
from outlive.engine.publish import call_on_host
from outlive.errors import NotInRun, UsageError, ValueRefused
from outlive.model.defaults import STREAM_CHUNK_BYTES_MAX, STREAM_NAME_CHARS_MAX
from outlive.model.ids import is_text


class Room:
    """What ``put`` returns: awaited in a step, it waits while the store is far behind."""

    __slots__ = ("_outlet",)

    def __init__(self, outlet: Outlet | None) -> None:
        self._outlet = outlet

    def __await__(self) -> Generator[Any, None, None]:
        if self._outlet is not None and self._outlet.is_behind:
            yield from wrap_future(_when_room(self._outlet)).__await__()


def _when_room(outlet: Outlet) -> PlainFuture[None]:
    room: PlainFuture[None] = PlainFuture()
    outlet.when_room(partial(_tell, room))
    return room


def _tell(room: PlainFuture[None]) -> None:
    if not room.done():
        room.set_result(None)


class _FlowStream:
    """A stream that flow code has open."""

    def __init__(self, name: str, verb: str) -> None:
        branch = branch_for(verb)
        self.drive = branch.drive
        step = branch.next_id(f"stream:{name}")
        self.writer = StreamWriter(name, step, in_flow=True)
        on_loop(lambda: self.drive.open_stream(self.writer))

    def put(self, chunk: object) -> None:
        encoded = self.drive.hider.value(_encoded(self.writer.stream, chunk))
        on_loop(lambda: self.drive.put_chunk(self.writer, encoded))


class _BodyStream:
    """A stream that the body of a step or effect has open; it may be in a thread."""

    def __init__(self, name: str, context: Any, step: str) -> None:
        self.context = context
        self.writer = StreamWriter(name, step, in_flow=False)
        self._call(lambda: context.open_stream(self.writer))

    @property
    def is_on_host(self) -> bool:
        here: bool = threading.get_ident() == self.context.env.occupation.thread
        return here

    def _call(self, work: Callable[[], None]) -> None:
        call_on_host(self.context, work)

    def put(self, chunk: object) -> None:
        encoded = self.context.hider.value(_encoded(self.writer.stream, chunk))
        if self.is_on_host:
            self.context.put_chunk(self.writer, encoded)
            return
        outlet = self.context.outlet
        if outlet is not None and outlet.is_behind:
            self._wait(outlet)
        if outlet is not None:
            outlet.check(self.writer)
        self._call(lambda: self.context.take_chunk(self.writer, encoded))

    def _wait(self, outlet: Outlet) -> None:
        """This thread waits until the store has caught up, or the run left memory."""
        room: PlainFuture[None] = PlainFuture()
        self._call(partial(outlet.when_room, partial(_tell, room)))
        room.result()


def _encoded(stream: str, chunk: object) -> bytes:
    try:
        encoded = encode_own(chunk)
    except ValueRefused as refused:
        raise refused.by(f"stream {stream!r} was given") from None
    if len(encoded) > STREAM_CHUNK_BYTES_MAX:
        raise ValueRefused(
            f"it takes {len(encoded)} bytes, and a chunk has at most {STREAM_CHUNK_BYTES_MAX}; "
            "cut it, or return it from a step",
            where=f"stream {stream!r} was given a chunk",
        )
    return encoded


def _opened(name: str) -> _FlowStream | _BodyStream:
    if not is_text(name) or not 0 < len(name) <= STREAM_NAME_CHARS_MAX:
        raise UsageError(f"a stream's name has 1 to {STREAM_NAME_CHARS_MAX} characters: {name!r}")
    here = place.get()
    if type(here) is not Body:
        return _FlowStream(name, "outlive.stream")
    if here.context is None:
        raise NotInRun("outlive.stream", "in a flow or in the body of a step")
    return _BodyStream(name, here.context, here.step)


class StreamOut:
    """An open stream."""

    def __init__(self, opened: _FlowStream | _BodyStream) -> None:
        self._opened = opened

    def put(self, chunk: object) -> Room:
        """Write a chunk: any value that a step may return. Readers see it a moment later.

        It need not be awaited; a step that writes faster than the store awaits it.

        Raises:
            ValueRefused: it can't be recorded, or is larger than 64 KiB.
            StreamFull: the stream is full, or the store is too far behind.
        """
        self._opened.put(chunk)
        is_body = isinstance(self._opened, _BodyStream)
        return Room(self._opened.context.outlet if is_body else None)  # type: ignore[union-attr]


class stream:  # noqa: N801  # used as a verb: ``async with outlive.stream("tokens") as out:``
    """Open a stream of this run, in a flow or in a step; ``handle.stream(name)`` reads it.

    Chunks of a step are provisional until its outcome is durable: if another attempt begins,
    readers get one reset instead of duplicates.
    """

    def __init__(self, name: str) -> None:
        refuse_plain("stream")
        self._name = name
        self._opened: _FlowStream | _BodyStream

    async def __aenter__(self) -> StreamOut:
        self._opened = _opened(self._name)
        return StreamOut(self._opened)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._opened.writer.is_open = False


class PlainStreamOut:
    """An open stream of a plain flow or step."""

    def __init__(self, opened: _FlowStream | _BodyStream) -> None:
        self._opened = opened

    def put(self, chunk: object) -> None:
        """Write a chunk; waits while the store is far behind."""
        self._opened.put(chunk)


class plain_stream:  # noqa: N801  # ``with outlive.stream("tokens") as out:``
    """Open a stream of this run, in a plain flow or a plain step."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._opened: _FlowStream | _BodyStream

    def __enter__(self) -> PlainStreamOut:
        self._opened = _opened(self._name)
        return PlainStreamOut(self._opened)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._opened.writer.is_open = False
