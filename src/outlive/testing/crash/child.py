"""The child of a crash test: runs the scene on a real store, and dies at its point.

It is forked with everything imported, opens a store and an app of its own in its folder, calls the
scene, and leaves a diary. The point at which it dies is set up here: store calls and moments are
counted in the process itself; system calls are counted by strace, which attaches to the right
thread (strace counts per thread).
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import msgspec

from outlive.app.app import App
from outlive.app.seal import sealed
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.open import open_store
from outlive.stores.seam import Store
from outlive.stores.types import Entry
from outlive.testing.crash.failing_store import CallFault, FailingStore, kill_this_process
from outlive.testing.crash.points import Diary, MomentFault, Order, SyscallFault
from outlive.testing.ledger import Ledger

LEDGER, ACKNOWLEDGED = "ledger.jsonl", "acknowledged.jsonl"
DIARY, TRACE, LOG = "diary.json", "trace.txt", "child.log"
ATTACH_SECONDS_MAX = 20.0
_PR_SET_PTRACER = 0x59616D61


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The arguments of a scene: an app to start runs in, and the outside world."""

    app: App
    folder: Path
    ledger: Ledger


Scene: TypeAlias = Callable[[Stage], Awaitable[object]]


def perform(scene: Scene, order: Order) -> None:
    """Run the scene in this process, which is a child made for it."""
    folder = Path(order.folder)
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.dump_traceback_later(order.limit_seconds, exit=True)
    child = _Child(folder, order)
    child.watch_threads()
    asyncio.run(child.play(scene))
    child.write_diary()


def open_trial_store(url: str, ports: Ports, lease_seconds: float) -> Store:
    """The store of a trial; sealed, where the environment has a key."""
    store = open_store(url, ports=ports, lease_seconds=lease_seconds)
    key = Settings.from_environment().key
    return sealed(store, key, ports) if key else store


class _Child:
    def __init__(self, folder: Path, order: Order) -> None:
        self._folder, self._order = folder, order
        self._moments: list[str] = []
        self._threads: dict[int, str] = {}
        self._tracers: list[subprocess.Popen[bytes]] = []
        self._store: FailingStore | None = None

    async def play(self, scene: Scene) -> None:
        order = self._order
        ports = Ports(failpoint=self._moment)
        settings = Settings(
            lease_seconds=order.lease_seconds,
            poll_seconds=order.poll_seconds,
            idle_seconds=order.idle_seconds,
        )
        inner = open_trial_store(order.store, ports, order.lease_seconds)
        fault = order.point if isinstance(order.point, CallFault) else None
        self._store = FailingStore(inner, fault, witness=self._witness())
        async with App(self._store, ports=ports, settings=settings) as app:
            ledger = Ledger(self._folder / LEDGER)
            await scene(Stage(app=app, folder=self._folder, ledger=ledger))

    def _moment(self, name: str) -> None:
        self._moments.append(name)
        point = self._order.point
        if isinstance(point, MomentFault) and point.number == len(self._moments):
            kill_this_process()

    def _witness(self) -> Callable[[Entry], None]:
        path = self._folder / ACKNOWLEDGED
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def watch(entry: Entry) -> None:
            os.write(file, msgspec.json.encode([entry.run_id, entry.last]) + b"\n")

        return watch

    def write_diary(self) -> None:
        calls = self._store.calls if self._store is not None else []
        diary = Diary(calls=calls, moments=self._moments, threads=self._threads)
        (self._folder / DIARY).write_bytes(msgspec.json.encode(diary))

    # system calls

    def watch_threads(self) -> None:
        """Let every thread check at its start whether it is to be traced."""
        threading.setprofile(self._born)
        self._enter_thread()

    def _born(self, frame: FrameType, event: str, arg: Any) -> None:
        sys.setprofile(None)
        self._enter_thread()

    def _enter_thread(self) -> None:
        name, tid = threading.current_thread().name, threading.get_native_id()
        self._threads[tid] = name
        point = self._order.point
        if self._order.trace and name == "MainThread":
            trace = ",".join(f"?{name}" for name in self._order.trace)
            self._attach(tid, ["-f", "-e", f"trace={trace}", "-o", str(self._folder / TRACE)])
        elif isinstance(point, SyscallFault) and point.thread == name:
            inject = f"inject={point.syscall}:signal=KILL:when={point.number}"
            self._attach(tid, ["-e", f"trace={point.syscall}", "-e", inject, "-o", "/dev/null"])

    def _attach(self, tid: int, options: list[str]) -> None:
        # Where only ancestors may trace, allow our own child, too.
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        command = ["strace", "-qq", "-p", str(tid), *options]
        self._tracers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        until = time.monotonic() + ATTACH_SECONDS_MAX
        while not _is_traced(tid):
            if time.monotonic() > until:
                raise RuntimeError(f"strace did not attach: {command}")
            time.sleep(0.001)


def _is_traced(tid: int) -> bool:
    status = Path(f"/proc/self/task/{tid}/status").read_text()
    return "TracerPid:\t0\n" not in status
