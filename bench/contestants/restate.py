"""Restate: its server with its own log beside us, a service under Hypercorn, as its documents tell.

The server's data lie in the folder, and its settings are its own; they are read back from it. The
service speaks its bidirectional protocol (HTTP/2), with the limits that the documents recommend for
production. Runs are started over its HTTP ingress on connections that are kept, and a start is
answered when the run has ended: the invocation is in the log before its handler is called.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hypercorn
import hypercorn.asyncio
import restate

from bench.contest import (
    STARTS_AT_ONCE,
    STEPS_PER_RUN,
    Answer,
    Marks,
    Stopwatch,
    argument_of,
    die,
    free_port,
    main,
)

#: Where npm puts it, below this environment.
PACKAGES = Path(sys.prefix) / "packages" / "node_modules" / "@restatedev"
HOST = "127.0.0.1"
#: Of Hypercorn's, and of connections kept to the ingress.
MANY = 2_147_483_647
START_SECONDS = 60.0
PR_SET_PDEATHSIG = 1
#: What of its settings says how durable its log is.
LOG_SETTINGS = ("default-provider", "rocksdb-disable-wal", "rocksdb-disable-wal-fsync")

MARKS = Marks()
#: Whether the process was asked to prepare a store, and to die when it is prepared.
DYING = threading.Event()
#: When the server's call of a handler came in.
CALLED: list[float] = []
#: Ended with the process, and not before.
LOOP = asyncio.new_event_loop()
SERVING: list[asyncio.Task[None]] = []

bench = restate.Service("Bench")


async def work(argument: str) -> str:
    """A trivial step."""
    return MARKS.body(argument)


async def last() -> None:
    """The first new step: the process dies in it, and the next one is measured up to it."""
    if DYING.is_set():
        die()
    MARKS.begun["last"].append(time.perf_counter())


@bench.handler()
async def run_steps(ctx: restate.Context, asked: dict[str, Any]) -> int:
    """Steps, one after the other."""
    for number in range(asked["count"]):
        await ctx.run_typed("work", work, argument=argument_of(asked["run"], number))
    return int(asked["count"])


@bench.handler()
async def one(ctx: restate.Context, asked: dict[str, Any]) -> int:
    """A long past."""
    for number in range(asked["count"]):
        await ctx.run_typed("work", work, argument=argument_of("past", number))
    await ctx.run_typed("last", last)
    return int(asked["count"])


def server_program() -> Path:
    """The server that came for this machine.

    Raises:
        SystemExit: none did.
    """
    found = sorted(PACKAGES.glob("restate-server-*/bin/restate-server"))
    if not found:
        raise SystemExit("there is no Restate server for this machine: npm brought none")
    return found[0]


def server_version() -> str:
    """Of the package."""
    told = PACKAGES / "restate-server" / "package.json"
    return str(json.loads(told.read_text())["version"]) if told.exists() else "missing"


class Ports:
    """Where everybody listens: the same places again for whoever goes on in a folder."""

    def __init__(self, folder: Path) -> None:
        note = folder / "ports.json"
        if not note.exists():
            names = ("service", "ingress", "admin", "node")
            note.write_text(json.dumps({name: free_port() for name in names}))
        told: dict[str, int] = json.loads(note.read_text())
        self.service, self.ingress = told["service"], told["ingress"]
        self.admin, self.node = told["admin"], told["node"]

    def settings(self) -> dict[str, str]:
        """As the server takes them from its surroundings."""
        return {
            "RESTATE_BIND_IP": HOST,
            "RESTATE_ADVERTISED_HOST": HOST,
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_PORT": str(self.node),
            "RESTATE_INGRESS__BIND_PORT": str(self.ingress),
            "RESTATE_ADMIN__BIND_PORT": str(self.admin),
            "RESTATE_NODE_NAME": "bench",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LOG_FILTER": "error",
            "DO_NOT_TRACK": "1",
        }


def end_with_parent() -> None:
    """Called in the child: it ends when who began it is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


class Server:
    """The server process on a folder."""

    def __init__(self, folder: Path) -> None:
        self.ports = Ports(folder)
        self._program = server_program()
        self._environment = {**os.environ, **self.ports.settings()}
        with open(folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                [self._program, "--no-logo", "--base-dir", folder / "restate"],
                env=self._environment,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,
            )

    def ask(self, path: str, body: Any = None) -> Any:
        """Something of the admin side."""
        data = None if body is None else json.dumps(body).encode()
        head = {"content-type": "application/json"}
        request = urllib.request.Request(
            f"http://{HOST}:{self.ports.admin}{path}", data=data, headers=head
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            said = answer.read()
        return json.loads(said) if said else None

    async def until(self, act: Callable[[], Any]) -> Any:
        """Do it as soon as that works."""
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                return await asyncio.to_thread(act)
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
            await asyncio.sleep(0.05)

    def settings(self) -> Answer:
        """How durable its log is, by its own account."""
        done = subprocess.run(
            [self._program, "--dump-config"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        log = done.stdout.partition("[bifrost]")[2]
        lines = (line.partition(" = ") for line in log.splitlines())
        told: Answer = {}
        for name, _, value in lines:
            if name in LOG_SETTINGS:
                told.setdefault(name, value.strip('"'))
        return told


class Client:
    """One connection to the ingress that is kept; no library stands between."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, handler: str, asked: dict[str, Any]) -> bytes:
        """Start a run, and wait for its outcome."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        body = json.dumps(asked).encode()
        writer.write(
            f"POST /Bench/{handler} HTTP/1.1\r\nhost: {HOST}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if " 200 " not in head.partition("\r\n")[0]:
            raise RuntimeError(head.partition("\r\n")[0])
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        return await reader.readexactly(length)


def noting(app: Any) -> Any:
    """The same application; when it is called is written down."""

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and "/invoke/" in scope["path"]:
            CALLED.append(time.perf_counter())
        await app(scope, receive, send)

    return noted


def serve(port: int) -> asyncio.Task[None]:
    """The service, as production has it; it ends with the process."""
    config = hypercorn.Config()
    config.bind = [f"{HOST}:{port}"]
    config.loglevel = "ERROR"
    config.h2_max_concurrent_streams = MANY
    config.keep_alive_max_requests = MANY
    config.keep_alive_timeout = MANY
    app: Any = noting(restate.app(services=[bench]))
    return asyncio.ensure_future(hypercorn.asyncio.serve(app, config, shutdown_trigger=for_ever))


async def for_ever() -> None:
    """Nobody shuts it down."""
    await asyncio.Event().wait()


async def running(folder: Path) -> Server:
    """Server and service, ready for calls."""
    server = Server(folder)
    SERVING.append(serve(server.ports.service))
    place = f"http://{HOST}:{server.ports.service}"
    await server.until(lambda: server.ask("/health"))
    await server.until(lambda: server.ask("/deployments", {"uri": place}))
    return server


def measured(
    folder: Path, operations: int, act: Callable[[list[Client]], Awaitable[Any]], at_once: int
) -> Answer:
    """Do this with server and service up, and tell what it cost."""

    async def main() -> Answer:
        server = await running(folder)
        watch = Stopwatch(server.process.pid)
        clients = [Client(server.ports.ingress) for _ in range(at_once)]
        await clients[0].call("run_steps", {"run": "first", "count": 0})
        with watch.running():
            await act(clients)
        return {**watch.answer(operations, MARKS.gaps()), "settings": server.settings()}

    return LOOP.run_until_complete(main())


def sequential(size: int, folder: Path) -> Answer:
    """One run."""
    return measured(folder, size, lambda c: c[0].call("run_steps", {"run": "0", "count": size}), 1)


def many(size: int, folder: Path) -> Answer:
    """Many runs at once."""

    async def act(clients: list[Client]) -> None:
        await asyncio.gather(
            *(
                client.call("run_steps", {"run": str(run), "count": STEPS_PER_RUN})
                for run, client in enumerate(clients)
            )
        )

    return measured(folder, size * STEPS_PER_RUN, act, size)


def starts(size: int, folder: Path) -> Answer:
    """Runs of one step."""
    left = iter(range(size))

    async def each(client: Client) -> None:
        for run in left:
            await client.call("run_steps", {"run": str(run), "count": 1})

    async def act(clients: list[Client]) -> None:
        await asyncio.gather(*map(each, clients))

    return measured(folder, size, act, min(size, STARTS_AT_ONCE))


def prepare(size: int, folder: Path) -> Answer:
    """Record a long past, and die; the server, too."""

    async def main() -> None:
        server = await running(folder)
        DYING.set()
        await Client(server.ports.ingress).call("one", {"count": size})

    LOOP.run_until_complete(main())
    return {}


def resume(size: int, folder: Path) -> Answer:
    """From the server's call of the handler to the body of the first new step."""

    async def main() -> Answer:
        server = Server(folder)
        watch = Stopwatch(server.process.pid)
        with watch.running():
            SERVING.append(serve(server.ports.service))
            while not MARKS.begun["last"]:
                await asyncio.sleep(0.01)
        return {**watch.answer(size, []), "settings": server.settings()}

    told = LOOP.run_until_complete(main())
    reached = MARKS.begun["last"][0]
    began = max(called for called in CALLED if called < reached)
    return {**told, "p50": reached - began, "repeated": MARKS.count() - 1}


if __name__ == "__main__":
    main(
        {
            "sequential": sequential,
            "many": many,
            "starts": starts,
            "prepare-one": prepare,
            "resume-one": resume,
        },
        f"restate-sdk {version('restate-sdk')}, server {server_version()}",
    )
    # At once: what still serves would be waited for. The server ends with us.
    sys.stdout.flush()
    os._exit(0)
