"""What a run tells those who watch it: published values, and the chunks of its streams.

Neither is delivered to the flow and neither is progress. Both are gathered for a moment, so that a
fast writer costs few commits, and go along at once with whatever else the run records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outlive.engine.host import Cancellable, Host
from outlive.errors import StreamFull, UsageError
from outlive.journal.log import RunLog
from outlive.model.defaults import (
    PUBLISH_SECONDS,
    STREAM_BACKLOG_BYTES,
    STREAM_BATCH_BYTES,
    STREAM_BYTES_MAX,
    STREAM_SECONDS,
    STREAMS_MAX,
)
from outlive.model.events import Event, Published, Streamed, StreamReset
from outlive.model.run import Run, publish
from outlive.model.streams import Written

#: What a chunk costs beside its bytes.
CHUNK_OVERHEAD = 16


class StreamWriter:
    """A stream that a step's attempt, or the flow at one place, has open."""

    __slots__ = ("in_flow", "is_open", "known", "step", "stream")

    def __init__(self, stream: str, step: str, *, in_flow: bool) -> None:
        self.stream, self.step, self.in_flow = stream, step, in_flow
        self.is_open = True
        #: Chunks at this place that the journal has: the flow puts them once more.
        self.known = 0


class Outlet:
    """The outlet of one run."""

    def __init__(
        self, log: RunLog, host: Host, at: Callable[[], int], write: Callable[[Event], object]
    ) -> None:
        self._log, self._host, self._at, self._write = log, host, at, write
        #: Called when chunks have become durable.
        self.on_chunks: Callable[[], object] | None = None
        #: The newest value of each name, durable or not.
        self.shown: dict[str, bytes] = {}
        #: The same without what was not written yet.
        self._written: dict[str, bytes] = {}
        self._values: dict[str, bytes] = {}
        self._timer: Cancellable | None = None
        #: By stream: its last offset, and its bytes in this chapter.
        self.offsets: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._past = Written()
        #: Calls of flow code to publish or to tag, so far.
        self.told = 0
        self._open: dict[str, list[StreamWriter]] = {}
        self._batch: dict[StreamWriter, list[bytes]] = {}
        self._batch_bytes = self._undurable = 0
        self._stream_timer: Cancellable | None = None
        #: It is time to write, as soon as the batch before is durable.
        self._is_late = False
        self._waiting: list[Callable[[], object]] = []

    def resume(self, run: Run) -> None:
        """Go on behind what the journal has."""
        self.shown, self._written = dict(run.published), dict(run.published)
        self.offsets, self._sizes = dict(run.streams), dict(run.stream_bytes)

    def replay(self, past: Written) -> None:
        """What the writers of this chapter have written so far."""
        self._past = past
        for stream, place in sorted(past.stale):
            self._reset(stream, place)

    # published values

    def count_call(self) -> bool:
        """Flow code publishes or tags; whether the journal does not have that yet."""
        self.told += 1
        return self.told > self._past.told

    def publish(self, values: Mapping[str, bytes]) -> None:
        """Write these with the next commit, or soon with one of their own."""
        fresh = {name: each for name, each in values.items() if self.shown.get(name) != each}
        if not fresh:
            return
        publish(self.shown, fresh)
        self._values |= fresh
        if self._timer is None:
            self._timer = self._host.call_later(PUBLISH_SECONDS, self._publish_late)

    def _publish_late(self) -> None:
        self._timer = None
        self.flush()

    # streams

    def begin(self, step: str) -> None:
        """An attempt of a step begins: what one before it wrote is withdrawn."""
        for stream in sorted(self._past.steps.pop(step, ())):
            self._reset(stream, step)

    def _reset(self, stream: str, step: str) -> None:
        past, offset = self._past, self.offsets.get(stream, 0) + 1
        attempt = past.attempts[stream, step] = past.attempts.get((stream, step), 1) + 1
        self.offsets[stream] = offset
        self._write(StreamReset(self._at(), stream, step, attempt, offset))

    def end(self, step: str) -> None:
        """The attempt is over: its chunks come before its end, and it writes no more."""
        for writer in self._open.pop(step, ()):
            writer.is_open = False
        self.flush()

    def open(self, writer: StreamWriter) -> None:
        """Open a stream.

        Raises:
            UsageError: the run has too many.
        """
        if writer.stream not in self.offsets and len(self.offsets) >= STREAMS_MAX:
            raise UsageError(f"stream {writer.stream!r}: a run has at most {STREAMS_MAX} streams")
        self.offsets.setdefault(writer.stream, 0)
        if writer.in_flow:
            writer.known = self._past.places.get((writer.stream, writer.step), 0)
        else:
            self._open.setdefault(writer.step, []).append(writer)

    def check(self, writer: StreamWriter) -> None:
        """Refuse what can't be taken; called on any thread."""
        if not writer.is_open:
            raise UsageError(f"stream {writer.stream!r} is closed: put chunks inside its `with`")
        if writer.known:
            return
        if self._sizes.get(writer.stream, 0) >= STREAM_BYTES_MAX:
            raise StreamFull(
                writer.stream,
                f"it has {STREAM_BYTES_MAX} bytes, and more are not kept; "
                "outlive.carry() begins a chapter that may stream as much again",
            )
        if self.is_behind and not writer.in_flow:
            raise StreamFull(
                writer.stream,
                f"the store is {STREAM_BACKLOG_BYTES} bytes behind; "
                "write `await out.put(chunk)`, which waits for it",
            )

    def put(self, writer: StreamWriter, chunk: bytes) -> None:
        """Write a chunk, soon; one that the journal has is not written again."""
        if writer.known:
            writer.known -= 1
            return
        self._batch.setdefault(writer, []).append(chunk)
        size = len(chunk) + CHUNK_OVERHEAD
        self._batch_bytes += size
        self._sizes[writer.stream] = self._sizes.get(writer.stream, 0) + len(chunk)
        if self._batch_bytes >= STREAM_BATCH_BYTES and not self._undurable:
            self._write_chunks()
        elif self._stream_timer is None:
            self._stream_timer = self._host.call_later(STREAM_SECONDS, self._stream_late)

    def _stream_late(self) -> None:
        self._stream_timer = None
        self._is_late = bool(self._undurable)
        if not self._is_late:
            self._write_chunks()

    def _write_chunks(self) -> None:
        batch, size = self._batch, self._batch_bytes
        self._batch, self._batch_bytes, self._is_late = {}, 0, False
        if self._stream_timer is not None:
            self._stream_timer.cancel()
            self._stream_timer = None
        for writer, chunks in batch.items():
            self._write_batch(writer, chunks)
        if size:
            self._undurable += size
            self._log.wait(self._log.seq, self._durable, size)

    def _write_batch(self, writer: StreamWriter, chunks: list[bytes]) -> None:
        stream, step, past = writer.stream, writer.step, self._past
        offset = self.offsets.get(stream, 0) + 1
        self.offsets[stream] = offset + len(chunks) - 1
        if not writer.in_flow:
            past.steps.setdefault(step, set()).add(stream)
        attempt = past.attempts.get((stream, step), 1)
        now = self._at()
        self._write(Streamed(now, stream, step, attempt, offset, chunks, writer.in_flow))

    def _durable(self, size: int) -> None:
        self._undurable -= size
        if self._is_late and not self._undurable:
            self._write_chunks()
        if self.on_chunks is not None:
            self.on_chunks()
        if not self.is_behind:
            self._let_go()

    @property
    def is_behind(self) -> bool:
        """So much is not durable that no more is taken."""
        return self._batch_bytes + self._undurable >= STREAM_BACKLOG_BYTES

    def when_room(self, callback: Callable[[], object]) -> None:
        """Call once more is taken, or the run leaves memory."""
        if self.is_behind:
            self._waiting.append(callback)
        else:
            callback()

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    # both

    def flush(self) -> None:
        """Write what was gathered."""
        if self._batch:
            self._write_chunks()
        if self._values:
            written, told = self._written, self._values
            self._values = {}
            fresh = {name: each for name, each in told.items() if written.get(name) != each}
            publish(written, fresh)
            if fresh:
                self._write(Published(self._at(), fresh, self.told))

    def stop(self) -> None:
        """The run leaves memory."""
        self._values, self._batch = {}, {}
        self._batch_bytes = self._undurable = 0
        for timer in (self._timer, self._stream_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._stream_timer = None
        for writers in self._open.values():
            for writer in writers:
                writer.is_open = False
        self._let_go()
