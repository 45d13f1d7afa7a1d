"""A worker in its own process, told what to do line by line: so that a test can kill or stop it.

Commands on stdin, an answer in one line each on stdout:

    hold RUN          create the run, held by this worker
    append RUN AFTER  append an event in epoch 1
    take RUN AFTER N  take the run over in epoch N
    fork              fork a child that lives on for a minute; answers with its pid
    close             close the store and end
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import entry, held, takeover


def main(path: str, worker: str) -> None:
    store = SQLiteStore(path, lease_seconds=1.0)
    asyncio.run(store.beat(worker))
    print("ready", flush=True)
    for line in sys.stdin:
        print(asyncio.run(obey(store, worker, line.split())), flush=True)
        if line.split() == ["close"]:
            return


async def obey(store: SQLiteStore, worker: str, words: list[str]) -> str:
    match words:
        case ["hold", run_id]:
            (answer,) = await store.commit([held(run_id, worker)])
        case ["append", run_id, after]:
            record = f"{worker} {after}".encode()
            (answer,) = await store.commit([entry(run_id, int(after), record)])
        case ["take", run_id, after, epoch]:
            late = takeover(run_id, int(after), worker, epoch=int(epoch))
            (answer,) = await store.commit([late])
        case ["fork"]:
            return str(fork())
        case _:
            await store.close()
            return "closed"
    return "done" if answer is None else f"conflict {answer.seq} {answer.epoch}"


def fork() -> int:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    return child


if __name__ == "__main__":
    main(*sys.argv[1:])
