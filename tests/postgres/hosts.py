"""Hosts with addresses of their own, each with a wire to the server that can be cut.

A host is a network namespace with one interface; a cut takes its other end down, and nobody is
told. Where the machine gives no namespaces, a host is a loopback address behind a proxy that
swallows everything while it is cut off.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.harness.postgres_server import PostgresServer
from tests.postgres.proxy import Proxy
from tests.processes import cast, players

_CLONE_NEWNET = 0x40000000
#: Reserved for benchmarks of networks: nobody's real addresses.
NETWORK = "198.18"


@dataclass(frozen=True, slots=True)
class Address:
    """What a process must know to be on a host."""

    url: str
    namespace: str | None = None

    def enter(self) -> None:
        """Move this process there, before it has any thread or connection."""
        if self.namespace is None:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        place = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)
        if libc.setns(place, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"can't enter {self.namespace}")
        os.close(place)


class Host(Protocol):
    """One host, from outside."""

    address: Address

    def cut(self) -> None:
        """Nothing comes or goes any more."""
        ...

    def mend(self) -> None:
        """Everything does again."""
        ...


def work(folder: Path, address: Address, flow: str) -> None:
    """Be a worker on that host, until killed."""
    address.enter()
    players.enter(folder)

    async def main() -> None:
        app = players.open_app(folder, url=address.url)
        async with app, app.worker([getattr(cast, flow)]) as worker:
            (folder / f"ready-{os.getpid()}").touch()
            await worker.wait()

    asyncio.run(main())


# ---------------------------------------------------------------- namespaces


class Namespace:
    """A host by the kernel."""

    def __init__(self, server: PostgresServer, options: str, number: int) -> None:
        me = os.getpid() % 10_000
        self._name, self._near, self._far = f"outlive-{me}-{number}", f"ol{me}n{number}", "wire"
        first = f"{NETWORK}.{me % 256}.{4 * number}".rpartition(".")
        net, base = first[0], int(first[2])
        ours, theirs = f"{net}.{base + 1}", f"{net}.{base + 2}"
        ip("netns", "add", self._name)
        ip("link", "add", self._near, "type", "veth", "peer", self._far, "netns", self._name)
        ip("addr", "add", f"{ours}/30", "dev", self._near)
        ip("link", "set", self._near, "up")
        ip("-n", self._name, "addr", "add", f"{theirs}/30", "dev", self._far)
        ip("-n", self._name, "link", "set", self._far, "up")
        place = f"127.0.0.1:{server.port}"
        url = server.url().replace(place, f"{ours}:{server.port}")
        self.address = Address(f"{url}?{options}", self._name)

    def cut(self) -> None:
        ip("link", "set", self._near, "down")

    def mend(self) -> None:
        ip("link", "set", self._near, "up")

    def remove(self) -> None:
        ip("netns", "del", self._name)


def ip(*words: str) -> None:
    """The command, which must succeed."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def has_namespaces() -> bool:
    """Whether this machine lets us make one."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    name = f"outlive-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return tried.returncode == 0


# ---------------------------------------------------------------- loopback


class Loopback:
    """A host by a proxy."""

    def __init__(self, server: PostgresServer, options: str, proxy: Proxy) -> None:
        self._proxy = proxy
        place = f"127.0.0.1:{server.port}"
        url = server.url().replace(place, f"{proxy.address}:{proxy.port}")
        self.address = Address(f"{url}?{options}")

    def cut(self) -> None:
        self._proxy.swallow()

    def mend(self) -> None:
        self._proxy.mend()


@contextmanager
def two_hosts(
    server: PostgresServer, options: str, *, namespaces: bool
) -> Iterator[tuple[Host, Host]]:
    """Two of them, with a way to the server each."""
    with ExitStack() as stack:
        hosts: list[Host] = []
        for number in range(2):
            if namespaces:
                namespace = Namespace(server, options, number)
                stack.callback(namespace.remove)
                hosts.append(namespace)
            else:
                proxy = stack.enter_context(Proxy(server.port, f"127.0.1.{number + 1}"))
                hosts.append(Loopback(server, options, proxy))
        yield hosts[0], hosts[1]
