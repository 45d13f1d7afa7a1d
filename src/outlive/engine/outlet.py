"""What a run tells those who watch it: published values, and the chunks of its streams.

Neither is delivered to the flow and neither is progress. Both are gathered for a moment, so that a
fast writer costs few commits, and go along at once with whatever else the run records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outlive.engine.host import Cancellable, Host
from outlive.journal.log import RunLog
from outlive.model.defaults import PUBLISH_SECONDS
from outlive.model.events import Event, Published
from outlive.model.run import Run, publish


class Outlet:
    """The outlet of one run."""

    def __init__(
        self, log: RunLog, host: Host, at: Callable[[], int], write: Callable[[Event], object]
    ) -> None:
        self._log, self._host, self._at, self._write = log, host, at, write
        #: The newest value of each name, durable or not.
        self.shown: dict[str, bytes] = {}
        #: The same without what was not written yet.
        self._written: dict[str, bytes] = {}
        self._values: dict[str, bytes] = {}
        self._timer: Cancellable | None = None

    def resume(self, run: Run) -> None:
        """Go on behind what the journal has."""
        self.shown, self._written = dict(run.published), dict(run.published)

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

    def flush(self) -> None:
        """Write what was gathered."""
        if self._values:
            written, told = self._written, self._values
            self._values = {}
            fresh = {name: each for name, each in told.items() if written.get(name) != each}
            publish(written, fresh)
            if fresh:
                self._write(Published(self._at(), fresh))

    def stop(self) -> None:
        """The run leaves memory."""
        self._values = {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
