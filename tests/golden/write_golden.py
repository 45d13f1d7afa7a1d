r"""Writes the golden stores, with the release whose stores they are to be: never with a newer one.

    GOLDEN_TIMEOUT=60s PYTHONPATH=OLD/src:. \
        OLD/.venv/bin/python -m tests.golden.write_golden FOLDER [NAME...]

OLD is a checkout of that release. Each store becomes FOLDER/NAME.tar.xz: the file of SQLite as its
killed processes left it, or a dump of PostgreSQL, and the ledger of what happened so far. Every
scene is a process of its own. What must be so at the end is compared with the manifest.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import psycopg

from outlive.app.app import App
from outlive.app.open import open_app
from outlive.journal.mail import read_letter
from outlive.ports import Ports
from outlive.settings import Settings
from tests.golden import scenes
from tests.golden.flows import KEY, TIMEOUT, Here, obey_kill, settings_environment

MANIFEST = Path(__file__).parent / "manifest.json"
TABLE = "CREATE TABLE bookings (what TEXT NOT NULL)"
NAMES = ("sqlite-plain", "sqlite-sealed", "sqlite-mixed", "postgres-plain", "postgres-sealed")
SCENE_SECONDS = 120
Scene: TypeAlias = Callable[[App], Awaitable[None]]


def play(scene: Scene, *, idle: float = 0.0, dies_at: str = "") -> int:
    """A scene in a process of its own; its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(SCENE_SECONDS)
            asyncio.run(_play(scene, idle, dies_at))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def _play(scene: Scene, idle: float, dies_at: str) -> None:
    def failpoint(moment: str) -> None:
        if moment == dies_at:
            obey_kill()

    settings = Settings.from_environment({**os.environ, "OUTLIVE_IDLE_SECONDS": str(idle)})
    async with open_app(ports=Ports(failpoint=failpoint), settings=settings) as app:
        await scene(app)


def write_all(is_mixed: bool) -> None:
    """Every scene, in order, on the store of the environment."""
    for scene, how, wanted in scenes.SCENES:
        if is_mixed and scene is scenes.SEALED_FROM:
            os.environ["OUTLIVE_KEY"] = KEY
        began = time.monotonic()
        code = play(scene, **how)
        name = getattr(scene, "__name__", str(scene))
        print(f"  {name}: {code} in {time.monotonic() - began:.1f} s", flush=True)
        if code != wanted:
            raise SystemExit(f"scene {name} ended with {code}, not {wanted}")
    if play(check) != scenes.KILLED:
        raise SystemExit("nothing was written")


async def check(app: App) -> None:
    """That every run stands where the manifest says, with its mail, and none is left out of it.

    Killed at the end, so that SQLite's log is as a killed process leaves it.
    """
    manifest: dict[str, Any] = json.loads(MANIFEST.read_text())
    wanted = {name: [each["before"], each["mail"]] for name, each in manifest.items()}
    found = await standings(app)
    wrong = [
        f"{run_id}: {found.get(run_id)}, not {wanted.get(run_id)}"
        for run_id in sorted(found | wanted)
        if found.get(run_id) != wanted.get(run_id)
    ]
    print("\n".join(wrong), flush=True)
    if wrong:
        raise SystemExit("the store is not as the manifest says")
    obey_kill()


async def standings(app: App) -> dict[str, list[Any]]:
    """By run: its status, and the kinds of letters that nobody has read."""
    found: dict[str, list[Any]] = {}
    for each in (await app.find(limit=1000)).items:
        reading = await app.read(each.head.run_id)
        letters = [type(read_letter(each.head.run_id, mail)).__name__ for mail in reading.mail]
        found[each.head.run_id] = [each.header.status, letters]
    return found


def pack(folder: Path, archive: Path) -> None:
    """All files of a folder, but for what SQLite makes anew."""
    with lzma.open(archive, "wb", preset=9) as out, tarfile.open(fileobj=out, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith("-shm"):
                entry = tar.gettarinfo(path, path.relative_to(folder).as_posix())
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                with path.open("rb") as file:
                    tar.addfile(entry, file)


def write_sqlite(folder: Path, is_mixed: bool) -> None:
    """A file, and the folder of its workers."""
    os.environ["OUTLIVE_STORE"] = f"sqlite:///{folder}/store.db"
    open_app().close()
    with sqlite3.connect(folder / "store.db") as db:
        db.execute(TABLE)
    db.close()
    write_all(is_mixed)


def write_postgres(folder: Path, is_mixed: bool) -> None:
    """A dump of a database, as SQL that any connection can carry out."""
    # Where the old release has it.
    from outlive.testing.postgres_server import HOST, ROLE, PostgresServer

    with PostgresServer() as server:
        os.environ["OUTLIVE_STORE"] = server.url()
        child = os.fork()
        if not child:
            open_app().close()
            os._exit(0)
        os.waitpid(child, 0)
        with psycopg.connect(server.url()) as connection:
            connection.execute(TABLE)
        write_all(is_mixed)
        place = f"host={HOST} port={server.port} user={ROLE} dbname=postgres"
        dumped = subprocess.run(
            [server.programs / "pg_dump", "--no-owner", "--no-privileges", "--inserts",
             "--rows-per-insert=200", "--encoding=UTF8", f"--dbname={place}"],
            env={**os.environ, "PGPASSWORD": server.password},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        # Words to psql, and to newer servers only, are not for other connections.
        lines = [line for line in dumped.stdout.splitlines() if not line.startswith("\\")]
        (folder / "dump.sql").write_text("\n".join(lines))


def write(name: str, target: Path) -> None:
    """One golden store."""
    kind, _, sealed = name.partition("-")
    os.environ.pop("OUTLIVE_KEY", None)
    if sealed == "sealed":
        os.environ["OUTLIVE_KEY"] = KEY
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        Here.ledger = folder / "ledger.txt"
        {"sqlite": write_sqlite, "postgres": write_postgres}[kind](folder, sealed == "mixed")
        target.mkdir(parents=True, exist_ok=True)
        pack(folder, target / f"{name}.tar.xz")
    print(f"{name}: {(target / f'{name}.tar.xz').stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    if TIMEOUT not in os.environ:
        raise SystemExit(f"set {TIMEOUT}=60s: effects hang for a while before they are killed")
    os.environ.update(settings_environment())
    for each in sys.argv[2:] or NAMES:
        write(each, Path(sys.argv[1]))
