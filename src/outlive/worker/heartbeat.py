"""Beats: a worker says that it lives, on a thread that neither user code nor commits can block.

The lease is judged from this process by a monotonic time taken *before* the beat was sent, so it
ends here no later than any other worker may think it over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

import msgspec

from outlive import errors
from outlive.engine.host import Occupation
from outlive.engine.loop import FlowLoop
from outlive.errors import OutliveError
from outlive.journal.lane import run_immediate
from outlive.ports import Clock
from outlive.stores.seam import Store
from outlive.stores.types import ABOUT_CHARS_MAX

logger = logging.getLogger("outlive")

#: How often it is looked whether flow code blocks its loop, and after how many looks it is told.
LOOK_SECONDS, BLOCKED_LOOKS = 0.125, 2
#: Lines that are told of.
BLOCKED_MAX = 1000
#: Code that is not the user's.
_LIBRARIES = (
    str(Path(errors.__file__).parents[1]),
    str(Path(asyncio.__file__).parents[1]),
    sysconfig.get_path("purelib"),
    "<frozen",
)
#: Renew at a third of the lease: two lost beats must not lose the runs.
BEATS_PER_LEASE = 3


class LeaseTime:
    """Until when this worker's leases hold, as far as it knows."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self.clock = clock
        self.seconds = lease_seconds
        self._until = float("-inf")
        #: How often the lease was over before it was renewed: what was ours then may not be now.
        self.lapses = 0

    def renewed(self, sent_at: float) -> None:
        """A beat that was sent then has been answered."""
        # By when the answer is here, not by when the beat was sent: it may have been under way for
        # so long that others took our silence for an end before it arrived.
        if self.clock.monotonic() >= self._until:
            self.lapses += 1
        self._until = sent_at + self.seconds

    def revoke(self) -> None:
        """Nothing may begin here any more."""
        self._until = float("-inf")
        self.seconds = float("-inf")

    def holds(self, since: int) -> bool:
        """Nobody was offered our runs: the lease never lapsed since then, and it is not over."""
        return self.lapses == since and self.clock.monotonic() < self._until


class Pulse(Protocol):
    """What beats for a worker."""

    def stop(self) -> None:
        """No further beat. Stopping twice is fine."""
        ...


async def stopped(pulse: Pulse) -> None:
    """For a lane: stopping waits for a beat that is under way, perhaps to a store that is gone."""
    pulse.stop()


class BlockWatch:
    """Warns of flow code that blocks its loop, once per line. Looked through from another thread.

    While flow code computes or calls something that blocks, no other run on that loop goes on.
    """

    def __init__(self, occupation: Occupation) -> None:
        self._occupation = occupation
        self._turn = -1
        self._looks = 0
        self._told: set[tuple[str, int]] = set()

    def look(self) -> None:
        """Called every ``LOOK_SECONDS``: the same turn in three looks has taken two of them."""
        run_id, turn = self._occupation.run_id, self._occupation.turn
        if run_id is None or turn != self._turn:
            self._turn, self._looks = turn, 0
            return
        self._looks += 1
        if self._looks == BLOCKED_LOOKS:
            self._tell(run_id)

    def _tell(self, run_id: str) -> None:
        frame = _flow_frame(sys._current_frames().get(self._occupation.thread))  # noqa: SLF001
        if frame is None or len(self._told) >= BLOCKED_MAX:
            return
        code, line = frame.f_code, frame.f_lineno
        if (code.co_filename, line) not in self._told:
            self._told.add((code.co_filename, line))
            logger.warning(
                "run %s blocks its loop for over %d ms: %s, line %d, in %s; no other run on this "
                "loop goes on meanwhile: do this in a step, a plain one (def) runs in a thread",
                run_id,
                BLOCKED_LOOKS * LOOK_SECONDS * 1000,
                code.co_filename,
                line,
                code.co_qualname,
            )


def _flow_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's own code above the flow's loop."""
    found: FrameType | None = None
    while frame is not None and frame.f_code is not FlowLoop.run_ready.__code__:
        if found is None and not frame.f_code.co_filename.startswith(_LIBRARIES):
            found = frame
        frame = frame.f_back
    return None if frame is None else found


class WorkerInfo(msgspec.Struct, frozen=True):
    """What a worker says of itself when it beats."""

    host: str = ""
    pid: int = 0
    #: By flow, the versions that it drives.
    flows: dict[str, list[str]] = {}


_read_info = msgspec.json.Decoder(WorkerInfo).decode


def read_info(about: str) -> WorkerInfo:
    """What a worker said; of one that said nothing, or nonsense, nothing is known."""
    try:
        return _read_info(about)
    except (msgspec.MsgspecError, ValueError):
        return WorkerInfo()


def introduction(flows: Mapping[str, frozenset[str]]) -> str:
    """What a worker of these flows says of itself; of too many flows, only where it is."""
    host, pid = socket.gethostname(), os.getpid()
    driven = {name: sorted(versions) for name, versions in sorted(flows.items())}
    about = msgspec.json.encode(WorkerInfo(host, pid, driven)).decode()
    if len(about) > ABOUT_CHARS_MAX:
        about = msgspec.json.encode(WorkerInfo(host, pid)).decode()
    return about


def thread_pulses(
    store: Store,
    lease: LeaseTime,
    watch: BlockWatch | None = None,
    flows: Callable[[], Mapping[str, frozenset[str]]] = dict,
) -> Callable[[str, Callable[[OutliveError], None]], Pulse]:
    """What starts beating for a worker, given its id and whom to tell if that fails."""
    return lambda worker, failed: ThreadPulse(store, worker, lease, failed, (watch, flows))


class ThreadPulse:
    """Beats from a thread of its own, for stores whose verbs never suspend."""

    def __init__(
        self,
        store: Store,
        worker: str,
        lease: LeaseTime,
        failed: Callable[[OutliveError], None],
        beside: tuple[BlockWatch | None, Callable[[], Mapping[str, frozenset[str]]]] = (None, dict),
    ) -> None:
        """``beside``: what watches the loop between beats, and the flows that the worker drives."""
        self._watch, self._flows = beside
        self._about = ""
        self._store, self._worker, self._lease = store, worker, lease
        self._failed = failed
        self._stopping = threading.Event()
        self._period = lease.seconds / BEATS_PER_LEASE
        self.beat()
        self._thread = threading.Thread(target=self._main, name="outlive-pulse", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """One beat, now."""
        sent_at = self._lease.clock.monotonic()
        with suppress(RuntimeError):  # a flow is learned just now: the next beat tells
            self._about = introduction(self._flows())
        run_immediate(self._store.beat(self._worker, self._about))
        self._lease.renewed(sent_at)

    def _main(self) -> None:
        while not self._wait():
            try:
                self.beat()
            except OutliveError as error:
                self._lease.revoke()
                self._failed(error)
                return

    def _wait(self) -> bool:
        """Until the next beat is due, watching meanwhile; True: there is none."""
        if self._watch is None:
            return self._stopping.wait(self._period)
        looks = max(1, round(self._period / LOOK_SECONDS))
        for _ in range(looks):
            if self._stopping.wait(self._period / looks):
                return True
            self._watch.look()
        return False

    def stop(self) -> None:
        """No further beat."""
        self._stopping.set()
        self._thread.join()
