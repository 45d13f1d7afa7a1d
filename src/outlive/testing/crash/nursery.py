"""A process that has everything imported, and forks the children of a crash test.

Run as ``python -m outlive.testing.crash.nursery MODULE:FUNCTION``. It reads orders from its input,
a line each, forks a child for each, and writes a line for each child that ended. It stays
single-threaded, so that forking is safe, and ends with its input.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import selectors
import signal
import sys
import traceback
from typing import NoReturn

import msgspec

from outlive.testing.crash.child import Scene, perform
from outlive.testing.crash.points import ChildExit, Order

_PR_SET_CHILD_SUBREAPER = 36
_decoder = msgspec.json.Decoder(Order)


def load_scene(target: str) -> Scene:
    """The function that MODULE:FUNCTION names."""
    module, _, name = target.partition(":")
    scene: Scene = getattr(importlib.import_module(module), name)
    return scene


class Nursery:
    """Forks children and waits for them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._numbers: dict[int, int] = {}
        self._input = sys.stdin.fileno()
        self._rest = b""

    def main(self) -> None:
        """Serve until the input ends."""
        # Tracers live slightly longer than their tracee: we adopt them, not process 1.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(reader, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._input, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        gc.collect()
        gc.freeze()
        while True:
            for key, _ in selector.select():
                if key.fd == reader:
                    os.read(reader, 4096)
                elif not self._take_orders():
                    return
            self._bury()

    def _take_orders(self) -> bool:
        data = os.read(self._input, 65536)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._fork(_decoder.decode(line))
        return True

    def _fork(self, order: Order) -> None:
        pid = os.fork()
        if pid == 0:
            self._be_child(order)
        self._numbers[pid] = order.number

    def _be_child(self, order: Order) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            perform(self._scene, order)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _bury(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self._numbers.pop(pid, None)
            if number is not None:
                ended = ChildExit(number=number, status=os.waitstatus_to_exitcode(status))
                os.write(1, msgspec.json.encode(ended) + b"\n")


if __name__ == "__main__":
    Nursery(load_scene(sys.argv[1])).main()
