"""A wire to the server that counts round trips, from outside and the same way for everybody.

A round trip begins whenever a client says something after the server spoke (or for the first time),
however many messages or packets either side needs.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
CHUNK = 65_536


class RoundTrips:
    """Listens on a port of its own, passes everything on, and counts."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.count = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                Wire(self, client, socket.create_connection((HOST, self._server_port)))

    def add_one(self) -> None:
        """Somebody asked."""
        with self._lock:
            self.count += 1


class Wire:
    """One connection, with a thread for each direction."""

    def __init__(self, told: RoundTrips, client: socket.socket, server: socket.socket) -> None:
        self._told = told
        self._is_servers_turn = False
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target, is_client in ((client, server, True), (server, client, False)):
            threading.Thread(target=self._pass, args=(source, target, is_client)).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        with suppress(OSError):  # either side has ended
            while data := source.recv(CHUNK):
                if is_client and not self._is_servers_turn:
                    self._told.add_one()
                self._is_servers_turn = is_client
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
