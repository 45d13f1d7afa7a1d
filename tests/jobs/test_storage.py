"""MasumiJobStorage: the contract of the package's job storage, and what it lacked."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import masumi
import pytest
from masumi.job_manager import InMemoryJobStorage, JobManager, JobStorage
from masumi.models import ValidationRule

from outlive.jobs.masumi import MasumiJobStorage, import_jobs
from tests.harness.postgres_server import PostgresServer
from tests.harness.stores import url_of

JOB = {
    "job_id": "j1", "status": "awaiting_payment", "payment_id": "bid1",
    "identifier_from_purchaser": "0123456789abcdef", "input_data": {"text": "hi", "n": [1]},
    "pay_by_time": 1_794_808_121_903, "submit_result_time": 1_794_851_321,
    "unlock_time": 1_794_872_921_903, "external_dispute_unlock_time": 1_794_894_521_903,
    "agent_identifier": "a" * 60, "seller_vkey": "ab", "input_hash": "e644", "result": None,
    "error": None, "created_at": None,
}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path, request)


@pytest.fixture
def storage(place: str) -> Any:
    storage = MasumiJobStorage(place)
    yield storage
    asyncio.run(storage.close())


@pytest.mark.item(2, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 21, 22, 29, 30, 33, 34, 35)
def test_a_job_is_stored_with_every_field(storage: Any) -> None:
    """What was stored comes back, as a copy, with its times, versions and both names."""
    asyncio.run(storage.create_job("j1", JOB))  # each call has a loop of its own
    asyncio.run(storage.update_job("j1", {"status": "running"}))
    first, second = (asyncio.run(storage.get_job("j1")) for _ in range(2))
    first["input_data"]["n"].append(2)

    assert isinstance(storage, JobStorage)
    assert storage
    assert {"text": "hi", "n": [1]} == second["input_data"]
    assert "bid1" == second["payment_id"] == second["blockchain_identifier"]
    assert 1_794_851_321_000 == second["submit_result_time"]
    assert (2, "Preprod") == (second["version"], second["network"])
    assert second["created_at"] <= second["updated_at"]
    kept = ("identifier_from_purchaser", "agent_identifier", "seller_vkey", "input_hash")
    assert all(second[name] == JOB[name] for name in kept)
    assert asyncio.run(storage.get_job("nobody")) is None


@pytest.mark.item(3, 5, 6, 25, 26, 27, 28, 36)
async def test_what_is_refused_and_what_is_quiet(storage: Any) -> None:
    """Unknown ids, ids that are taken, deletion, and lists by status."""
    await storage.create_job("j1", JOB)
    await storage.create_job("j2", {"job_id": "j2", "status": "pending"})
    with pytest.raises(ValueError, match="Job zz not found in storage"):
        await storage.update_job("zz", {"status": "running"})
    with pytest.raises(ValueError, match="j1"):
        await storage.create_job("j1", JOB)
    await storage.delete_job("nobody")
    listed = await storage.list_jobs()
    listed[0]["status"] = "changed"
    await storage.update_job("j2", {"status": "failed", "error": "why"})

    assert {"j1", "j2"} == {job["job_id"] for job in await storage.list_jobs()}
    assert ["j1"] == [job["job_id"] for job in await storage.list_jobs("awaiting_payment")]
    assert ["why"] == [job["error"] for job in await storage.list_jobs("failed")]
    assert [] == await storage.list_jobs("pending")
    await storage.delete_job("j1")
    assert await storage.get_job("j1") is None
    assert ["j2"] == [job["job_id"] for job in await storage.list_jobs()]


@pytest.mark.item(23)
def test_updates_of_many_threads_survive(storage: Any) -> None:
    """Four threads, fifty updates each, of different fields: all two hundred are there."""
    asyncio.run(storage.create_job("j1", JOB))

    def work(thread: int) -> None:
        async def update() -> None:
            for number in range(50):
                await storage.update_job("j1", {f"f{thread}_{number}": number})

        asyncio.run(update())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    job = asyncio.run(storage.get_job("j1"))

    assert 200 == sum(name.startswith("f") for name in job if "_" in name and name[1].isdigit())


def _update(url: str, process: int) -> None:
    async def work() -> None:
        storage = MasumiJobStorage(url)
        for number in range(10):
            await storage.update_job("j1", {f"f{process}_{number}": number})
        await storage.close()

    asyncio.run(work())


@pytest.mark.alone("processes")
@pytest.mark.item(24, 30)
def test_updates_of_many_processes_survive(
    request: pytest.FixtureRequest, tmp_path: Path, full: bool
) -> None:
    """Processes update one job at the same time, and nothing is lost."""
    for kind in ("sqlite", "postgres") if full else ("sqlite",):
        place, count = url_of(kind, tmp_path, request), 4 if full else 2
        storage = MasumiJobStorage(place)
        asyncio.run(storage.create_job("j1", JOB))
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=_update, args=(place, n)) for n in range(count)]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
        job = asyncio.run(storage.get_job("j1"))
        asyncio.run(storage.close())

        assert job is not None
        assert 10 * count == sum(name.startswith("f") and name[1].isdigit() for name in job)


@pytest.mark.item(1, 18, 20)
@pytest.mark.alone("processes")
def test_a_job_is_durable_when_create_returns(tmp_path: Path) -> None:
    """Killed right after create_job and update_job returned, both are there."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    program = (
        "import asyncio, json, os, signal, sys\n"
        "from outlive.jobs.masumi import MasumiJobStorage\n"
        "async def main():\n"
        "    storage = MasumiJobStorage(sys.argv[1])\n"
        "    await storage.create_job('j1', json.loads(sys.argv[2]))\n"
        "    await storage.update_job('j1', {'status': 'running'})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, url, json.dumps(JOB)], check=False)
    storage = MasumiJobStorage(url)
    job = asyncio.run(storage.get_job("j1"))
    asyncio.run(storage.close())

    assert -signal.SIGKILL == ended.returncode
    assert job is not None
    assert "running" == job["status"]
    times = ("submit_result_time", "created_at")
    assert all(job[name] == JOB[name] for name in JOB if name not in ("status", *times))


@pytest.mark.item(31)
async def test_values_of_pydantic_are_stored(storage: Any) -> None:
    """A schema that the package's validation has changed is stored as plain data."""
    schema = {"input_data": [{"id": "x", "type": "text", "name": "X", "validations": [
        {"validation": "min", "value": "1"}]}]}  # fmt: skip
    masumi.validate_input_data({"x": "long"}, schema)
    await storage.create_job("j1", {**JOB, "awaiting_input_schema": schema})
    job = await storage.get_job("j1")

    assert isinstance(schema["input_data"][0]["validations"][0], ValidationRule)
    (rule,) = job["awaiting_input_schema"]["input_data"][0]["validations"]
    assert {"validation": "min", "value": "1"} == rule


@pytest.mark.item(39)
@pytest.mark.parametrize(
    ("path", "is_legal"),
    [
        (["running", "completed"], True),
        (["running", "running", "awaiting_input", "running", "failed"], True),
        (["failed", "failed"], True),
        (["completed"], False),
        (["running", "completed", "running"], False),
        (["running", "banana"], False),
        (["failed", "completed"], False),
    ],
)
async def test_strict_transitions(tmp_path: Path, path: list[str], is_legal: bool) -> None:
    """In strict mode a status follows only those that it may follow."""
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db", strict=True)
    await storage.create_job("j1", JOB)
    for status in path[:-1]:
        await storage.update_job("j1", {"status": status})
    if is_legal:
        await storage.update_job("j1", {"status": path[-1]})
    else:
        with pytest.raises(ValueError, match=f"to {path[-1]}"):
            await storage.update_job("j1", {"status": path[-1]})
    await storage.close()


@pytest.mark.item(40, 42)
async def test_what_happened_to_a_job_is_told(tmp_path: Path) -> None:
    """Each change has its instant; a deletion takes the contents away and stays known."""
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db")
    await storage.create_job("j1", JOB)
    await storage.update_job("j1", {"status": "running"})
    before = await storage.changes("j1")
    await storage.delete_job("j1")
    (after,) = await storage.changes("j1")
    await storage.close()

    assert {"status": "running"} == before[1]["changed"]
    assert ["deleted_at"] == list(after["changed"])


@pytest.mark.item(42)
async def test_ended_jobs_go_after_their_time(tmp_path: Path) -> None:
    """With ``keep`` an ended job is gone after that time; an open one stays."""
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db", keep="50ms")
    for name in ("j1", "j2"):
        await storage.create_job(name, {**JOB, "job_id": name})
    await storage.update_job("j1", {"status": "failed"})
    await asyncio.sleep(0.2)
    found = [job["job_id"] for job in await storage.list_jobs()]
    await storage.close()

    assert ["j2"] == found


@pytest.mark.item(41)
async def test_a_sealed_store_has_no_plain_text(tmp_path: Path) -> None:
    """With a key neither input nor result can be read in the file."""
    key = subprocess.run(
        [sys.executable, "-m", "outlive", "key"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db", key=key)
    await storage.create_job("j1", {**JOB, "input_data": {"text": "s3cret-in"}})
    await storage.update_job("j1", {"result": "s3cret-out"})
    job = await storage.get_job("j1")
    await storage.close()

    assert job is not None
    assert "s3cret-out" == job["result"]
    files = b"".join(path.read_bytes() for path in tmp_path.glob("jobs.db*") if path.is_file())
    assert b"s3cret" not in files


@pytest.mark.item(4, 17, 47, 48)
async def test_the_managers_methods_write_through(tmp_path: Path) -> None:
    """Each status method of the real JobManager is stored; an answer leaves the input as it was."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    storage = MasumiJobStorage(url)
    await storage.create_job("j1", JOB)
    manager, statuses = JobManager(storage), []

    async def see() -> dict[str, Any]:
        other = MasumiJobStorage(url)  # as a process that was started afterwards
        job = await other.get_job("j1")
        await other.close()
        assert job is not None
        statuses.append(job["status"])
        return job

    await manager.set_job_running("j1")
    await see()
    await manager.set_job_awaiting_input("j1", {"input_data": []}, "Why?")
    asked = await see()
    await manager.resume_job_with_input("j1", {"more": 7})
    resumed = await see()
    await manager.set_job_failed("j1", "no")
    failed = await see()
    await storage.close()

    assert ["running", "awaiting_input", "running", "failed"] == statuses
    assert ({"input_data": []}, "Why?") == (
        asked["awaiting_input_schema"], asked["awaiting_input_message"],
    )  # fmt: skip
    assert (JOB["input_data"], [{"more": 7}]) == (resumed["input_data"], resumed["answers"])
    assert "no" == failed["error"]


@pytest.mark.item(32)
@pytest.mark.alone("time")
async def test_the_loop_goes_on_while_another_writes(tmp_path: Path) -> None:
    """While another process holds the file's lock, the event loop is not blocked."""
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db")
    await storage.create_job("j1", JOB)
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    update = asyncio.create_task(storage.update_job("j1", {"status": "running"}))
    ticks, end = 0, time.monotonic() + 0.5
    while time.monotonic() < end:
        await asyncio.sleep(0.01)
        ticks += 1
    was_waiting = not update.done()
    other.execute("ROLLBACK")
    other.close()
    await update
    await storage.close()

    assert was_waiting
    assert ticks >= 10


@pytest.mark.item(28)
async def test_many_jobs_are_listed_page_by_page(tmp_path: Path, full: bool) -> None:
    """More jobs than a page has are all listed."""
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db")
    count = 100_000 if full else 1_200
    for begin in range(0, count, 200):
        names = [f"j{number}" for number in range(begin, begin + 200)]
        status = "running" if begin == 200 else "completed"
        await asyncio.gather(
            *(storage.create_job(name, {"job_id": name, "status": status}) for name in names)
        )
    everything, running = await storage.list_jobs(), await storage.list_jobs("running")
    await storage.close()

    assert (count, 200) == (len(everything), len(running))


async def test_tables_of_the_document_are_taken_over(tmp_path: Path) -> None:
    """Jobs of a table as the document makes it are taken over once."""
    old = sqlite3.connect(tmp_path / "old.db")
    old.execute(
        "CREATE TABLE jobs (job_id TEXT PRIMARY KEY, data TEXT, status TEXT, updated_at REAL)"
    )
    rows = [(f"j{n}", json.dumps({**JOB, "job_id": f"j{n}"}), "running", n) for n in range(3)]
    old.executemany("INSERT INTO jobs VALUES (?, ?, ?, ?)", rows)
    old.commit()
    old.close()
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db")
    counts = [await import_jobs(tmp_path / "old.db", storage) for _ in range(2)]
    jobs = await storage.list_jobs("running")
    await storage.close()

    assert [3, 0] == counts
    assert ["j0", "j1", "j2"] == sorted(job["job_id"] for job in jobs)


async def test_tables_of_a_postgres_database_are_taken_over(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Jobs of the document's table in PostgreSQL are taken over."""
    import psycopg

    dsn = postgres.url()
    with psycopg.connect(dsn) as old:
        old.execute("DROP TABLE IF EXISTS masumi_jobs")
        old.execute(
            "CREATE TABLE masumi_jobs (job_id TEXT PRIMARY KEY, data JSONB NOT NULL,"
            " status TEXT NOT NULL, updated_at DOUBLE PRECISION NOT NULL)"
        )
        row = ("j1", json.dumps(JOB), "awaiting_payment", 1.0)
        old.execute("INSERT INTO masumi_jobs VALUES (%s, %s, %s, %s)", row)
    storage = MasumiJobStorage(f"sqlite:///{tmp_path}/jobs.db")
    count = await import_jobs(dsn, storage)
    job = await storage.get_job("j1")
    await storage.close()

    assert 1 == count
    assert job is not None
    assert JOB["input_data"] == job["input_data"]


async def test_the_stock_storage_lets_callers_change_it() -> None:
    """Beside it: a list of the package's own storage is live, and completed jobs run again."""
    stock = InMemoryJobStorage()
    await stock.create_job("j1", JOB)
    (await stock.list_jobs())[0]["status"] = "banana"
    job = await stock.get_job("j1")

    assert job is not None
    assert "banana" == job["status"]
