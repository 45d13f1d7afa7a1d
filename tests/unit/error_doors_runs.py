"""Doors at which users meet errors of runs and stores."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

import outlive
from outlive import errors
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.checkpoints import DurableRunner, SnapshotStore
from outlive.engine.host import LoopHost
from outlive.journal.headers import next_entry
from outlive.journal.keeper import ThreadKeeper
from outlive.journal.log import RunLog
from outlive.journal.reader import read_events
from outlive.journal.retention.archive import read_archive, write_archive
from outlive.journal.seal.keys import MasterKeys, new_key
from outlive.journal.seal.sealed_store import SealedStore
from outlive.model.events import RunQuarantined, RunStarted
from outlive.stores.sqlite.store import SQLiteStore
from tests.stores.faulty import Faults
from tests.unit.error_doors import (
    PATIENCE_SECONDS,
    QUICK,
    Place,
    break_down,
    count,
    decline,
    echo,
    listen,
    pay,
    raises,
    refund,
    serve,
)

# RunError


@raises(errors.StepFailed, r"BankDown: no route")
async def fail_in_step(place: Place) -> None:
    @outlive.flow
    async def failing() -> None:
        await break_down()

    await place.fail(failing)


@raises(errors.TimedOut, r"run r was not over within 0\.01 s, and goes on as it can; `")
async def wait_too_short(place: Place) -> None:
    await (await place.waiting(listen)).outcome(timeout=0.01)


@raises(errors.InDoubt, r"effect 0/pay#1 \(key \w+\) is in doubt: ConnectionResetError: no reply")
async def pay_unknown(place: Place) -> None:
    @outlive.flow
    async def paying() -> None:
        await pay()

    await place.fail(paying)


@raises(errors.KeyTaken, r"key 'refund' is held by .*0/refund#1.* with other arguments; .*into it")
async def refund_twice(place: Place) -> None:
    @outlive.flow
    async def refunding() -> int:
        return await refund(1) + await refund(2)

    await place.fail(refunding)


@raises(errors.NotApproved, r"0/refund#1 needs a human's yes to exactly these .*approve\(refund,")
async def refund_unapproved(place: Place) -> None:
    @outlive.flow
    async def hasty() -> int:
        with suppress(errors.TimedOut):
            await outlive.approve(refund, 1, within=0.01)
        return await refund(1)

    await place.fail(hasty)


@raises(errors.NotHappened, r"the bank is closed")
async def decline_all(place: Place) -> None:
    @outlive.flow
    async def declining() -> None:
        await decline()

    await place.fail(declining)


@raises(errors.RunFailed, r"run r failed: StepFailed: BankDown: no route")
async def fail_run(place: Place) -> None:
    @outlive.flow
    async def broken() -> None:
        await break_down()

    await (await place.app.start(broken, id="r"))


@raises(errors.RunCancelled, r"run r was cancelled")
async def cancel_run(place: Place) -> None:
    handle = await place.waiting(listen)
    await handle.cancel()
    await handle


@raises(errors.RunQuarantined, r"run r is quarantined: it killed five; look at it, then resume it")
async def wait_quarantined(place: Place) -> None:
    handle = await place.app.submit(echo, id="r")
    reading = await place.app.read("r")
    put_aside = RunQuarantined(0, "it killed five")
    header = msgspec.structs.replace(
        reading.header, status="quarantined", wake_at=None, reason=put_aside.reason
    )
    await place.store.commit([next_entry(reading.head, put_aside, header, epoch=0)])
    await handle


@raises(
    errors.RequestRefused, r"run r could not read request q: .*int.*; send what the flow waits for"
)
async def request_wrongly(place: Place) -> None:
    await (await place.waiting(serve)).request("add", "one", id="q")


@raises(errors.NoReply, r"run r ended \(completed\) without a reply to request q; `outlive show r`")
async def request_in_vain(place: Place) -> None:
    await (await place.waiting(serve)).request("add", 0, id="q")


@raises(
    errors.ReplayMismatch, r"run r, seq \d+: the journal has .*, the code .*; put the old code back"
)
async def change_code(place: Place) -> None:
    @outlive.flow(name="changing")
    async def before() -> None:
        await count(1)
        await outlive.wait_signal("go")

    @outlive.flow(name="changing")
    async def after() -> None:
        await count(2)
        await outlive.wait_signal("go")

    await place.waiting(before)
    async with App(place.store, settings=QUICK) as other:
        await (await other.resume("r", [after]))


# StoreError


@raises(errors.StoreUnavailable, r"there is no store at sqlite:.*; see --store and OUTLIVE_STORE")
async def open_nothing(place: Place) -> None:
    open_app(f"sqlite:///{place.folder}/none.db", must_exist=True)


@raises(errors.StoreFailed, r"o\.db.*injected.*")
async def write_to_bad_disk(place: Place) -> None:
    faults = Faults()
    store = SQLiteStore(place.folder / "o.db", connect=faults.connect)
    async with App(store, settings=QUICK) as app:
        faults.errors = {"COMMIT": sqlite3.SQLITE_IOERR, "INSERT": sqlite3.SQLITE_IOERR}
        await app.submit(echo)


@raises(errors.UnsafeSettings, r"o\.db.*synchronous.*")
async def open_unsafe(place: Place) -> None:
    faults = Faults()
    faults.answers["PRAGMA synchronous"] = 0
    SQLiteStore(place.folder / "o.db", connect=faults.connect)


@raises(
    errors.WrongVersion, r"run r was started with version '1' of flow 'echo'; .*accepts=\('1',\)"
)
async def resume_other_version(place: Place) -> None:
    @outlive.flow(name="echo", version="2")
    async def later(value: int = 0) -> int:
        return value

    await place.app.submit(echo, id="r")
    await place.app.resume("r", [later])


@raises(errors.CorruptRecord, r"run r, seq 1: .*; `outlive verify` lists all damage")
async def read_damaged(place: Place) -> None:
    url = f"sqlite:///{place.folder}/o.db"
    async with outlive.open(url, drive=False) as app:
        await app.submit(echo, id="r")
    db = sqlite3.connect(place.folder / "o.db", isolation_level=None)
    db.execute("UPDATE records SET body = zeroblob(80)")
    db.close()
    async with outlive.open(url, drive=False) as app:
        await (await app.get("r")).read()


@raises(errors.BlobMissing, r"blob 00+ of family gone: chunk 00+ is not there")
async def read_a_blob_that_is_gone(place: Place) -> None:
    blob = outlive.Blob("gone", 5, bytes(16))
    async for _ in place.app.chunks(blob):
        pass


@raises(errors.CorruptArchive, r"archive .*cut.outlive: it is cut at run 1")
async def read_cut_archive(place: Place) -> None:
    path = place.folder / "cut.outlive"
    write_archive(path, [])
    path.write_bytes(path.read_bytes()[:-1])
    list(read_archive(path))


@raises(errors.LeaseLost, r"run r is driven by another worker now")
async def append_as_zombie(place: Place) -> None:
    """No verb raises it: the journal of a driver that lost its run says so, and it is dropped."""
    await place.app.submit(echo, id="r")
    (started,) = await (await place.app.get("r")).read()
    told: asyncio.Future[errors.OutliveError] = asyncio.get_running_loop().create_future()
    writer = ThreadKeeper(place.store)
    host = LoopHost(asyncio.get_running_loop(), ThreadPoolExecutor(1))
    log = RunLog(writer.keeper, host, "r", worker="zombie")
    log.on_failure = told.set_result
    assert isinstance(started, RunStarted), started
    log.append(msgspec.structs.replace(started, python="another"))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            raise await told
    finally:
        await asyncio.to_thread(writer.close)


@raises(errors.WrongKey, r"this store is sealed with key [0-9a-f]{8}; no key was given: set OUTL.*")
async def open_without_the_key(place: Place) -> None:
    url = f"sqlite:///{place.folder / 'o.db'}"
    async with open_app(url, key=new_key(os.urandom)) as app:
        await app.submit(echo)
    open_app(url, key="")


@raises(errors.Erased, r"run r was erased: its family's data key is gone, .*")
async def read_what_was_erased(place: Place) -> None:
    store = SealedStore(place.store, MasterKeys.parse(new_key(os.urandom), os.urandom))
    await App(store, settings=QUICK).submit(echo, id="r")
    place.store._nodes.pop("r")
    store._runs.clear()
    store.keyring._seals.clear()
    read_events(await App(store, settings=QUICK).read("r"))


@raises(
    errors.ExchangeRefused, r"agent 'ada' can't .* 'bob' is not one of its peers; name it in peers"
)
async def an_agent_that_sends_to_a_stranger(place: Place) -> None:
    async with SnapshotStore(place.store) as store:
        exchange = await DurableRunner(store, enabled=True).exchange("ada", peers=["cyd"])
        exchange.send("bob", "hello")


@raises(errors.CutRefused, r"cut 'noon': no cut has this name; list_cuts")
async def a_cut_that_is_not_there(place: Place) -> None:
    async with SnapshotStore(place.store) as store:
        await DurableRunner(store).get_cut("noon")
