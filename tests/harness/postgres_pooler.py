"""A real pgbouncer in front of a server: its clients have a connection per transaction only."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.harness.postgres_server import (
    HOST,
    ROLE,
    NoPostgres,
    PostgresServer,
    end_with_parent,
    free_port,
    other_user,
)

START_SECONDS = 30.0
_SETTINGS = """
[databases]
postgres = host={host} port={server_port} dbname=postgres user={role} password={password}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
logfile = {folder}/log
"""


def _unpacked() -> Path:
    return Path(sys.prefix) / "pgbouncer"


def pooler_program() -> Path:
    """The program, of the system or unpacked beside this Python."""
    beside = str(_unpacked() / "usr" / "sbin")
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path=beside)
    if found is None:
        raise NoPostgres("no pgbouncer: install it, or run `make setup`, which unpacks it")
    return Path(found)


class PostgresPooler:
    """Few connections to the server, shared by any number of clients, one transaction each."""

    def __init__(self, server: PostgresServer, *, connections: int = 4) -> None:
        self.port = free_port()
        self._user = other_user() if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="outlive-pooler-"))
        self._connections = connections
        self._settings = self._folder / "settings"
        self._settings.touch(0o600)
        self._write(server)
        self._process = self._spawn(self._settings)

    def point_to(self, server: PostgresServer) -> None:
        """Lead to another server from here on, as whoever runs it does after a failover."""
        self._write(server)
        self._process.send_signal(signal.SIGHUP)

    def url(self, server: PostgresServer) -> str:
        """The way to a server through this pooler."""
        return server.url(port=self.port)

    def _write(self, server: PostgresServer) -> None:
        self._settings.write_text(
            _SETTINGS.format(
                host=HOST,
                server_port=server.port,
                role=ROLE,
                password=server.password,
                port=self.port,
                connections=self._connections,
                folder=self._folder,
            )
        )

    def _spawn(self, settings: Path) -> subprocess.Popen[bytes]:
        # A copy: another user may not get to where the program is.
        program = Path(shutil.copy(pooler_program(), self._folder))
        for library in _unpacked().glob("usr/lib/*/*.so.*"):
            shutil.copy(library, self._folder)
        how: dict[str, Any] = {}
        if self._user is not None:
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
            how = {"user": self._user.pw_uid, "group": self._user.pw_gid}
        return subprocess.Popen(
            [program, settings],
            env={"LD_LIBRARY_PATH": str(self._folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_parent,
            **how,
        )

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection((HOST, self.port)).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise NoPostgres(f"pgbouncer did not start:\n{(self._folder / 'log').read_text()}")

    def remove(self) -> None:
        """End it and take its files away."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self._wait_until_ready()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.remove()
