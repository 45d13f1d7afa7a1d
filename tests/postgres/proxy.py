"""A wire between client and server that a test may cut, mute, or let lose one answer."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

_CHUNK = 65_536
_LOOK_SECONDS = 0.05
#: Every question holds that.
ANYTHING = (b"",)
#: Only those of commits hold one of these.
COMMITS = (b".append_v", b".append_one_v", b".commit_v", b".chain_v")


class Proxy:
    """Listens on a port of its own and passes on what is said, as long as it is told to."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._server_port = port
        self._listener = socket.create_server((address, 0))
        self.address = address
        self.port: int = self._listener.getsockname()[1]
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        #: ``lose``: the next answer to a commit is thrown away and its connection cut.
        self._mode: Literal["pass", "mute", "lose", "refuse", "swallow"] = "pass"
        self._losing = ANYTHING
        #: What each client asked last.
        self._asked: dict[socket.socket, bytes] = {}
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_answer(self, to: tuple[bytes, ...] = ANYTHING) -> None:
        """The server does what it is asked, and nobody hears of it."""
        self._losing = to
        self._mode = "lose"

    def mute(self) -> None:
        """Nothing comes back any more, and no connection ends: half open."""
        self._mode = "mute"

    def swallow(self) -> None:
        """Nothing goes through any more, either way, and no connection ends."""
        self._mode = "swallow"

    def refuse(self) -> None:
        """Cut everything and let nobody in."""
        self._mode = "refuse"
        self.cut()

    def mend(self) -> None:
        """As new: what was half open is cut."""
        self._mode = "pass"
        self.cut()

    def cut(self) -> None:
        """End every connection, now."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._end(pair)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._mode == "refuse":
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            threading.Thread(target=self._carry, args=(pair,), daemon=True).start()

    def _carry(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        with suppress(OSError, ValueError):
            while not self._over.is_set():
                ready, _, _ = select.select(pair, [], [], _LOOK_SECONDS)
                if client in ready:
                    data = client.recv(_CHUNK)
                    if not data:
                        break
                    self._asked[client] = data
                    if self._mode != "swallow":
                        server.sendall(data)
                if server in ready and not self._pass_back(client, server):
                    break
        self._end(pair)

    def _pass_back(self, client: socket.socket, server: socket.socket) -> bool:
        data = server.recv(_CHUNK)
        if not data:
            return False
        if self._mode == "lose" and self._is_to_be_lost(client):
            self._mode = "pass"
            self.lost += 1
            return False
        if self._mode not in ("mute", "swallow"):
            client.sendall(data)
        return True

    def _is_to_be_lost(self, client: socket.socket) -> bool:
        asked = self._asked.get(client, b"")
        return any(each in asked for each in self._losing)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
            self._asked.pop(pair[0], None)
        for each in pair:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._over.set()
        # A blocked accept does not notice a close.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
