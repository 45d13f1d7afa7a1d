"""A process that plays a run with checkpoints again and again, each time killed somewhere else.

python -m tests.checkpoints.victim lane|here URL-TEMPLATE FOLDER NUMBER...

The first word says where it appends: on threads of the lane, or on its own loop at once. Each
number is that of a store call before or behind which a child is killed (even: before, odd:
behind); then another child plays to the end. One line of JSON each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from outlive import Retry
from outlive.checkpoints import DurableRunner, SnapshotStore
from outlive.journal import lane as immediate
from outlive.ports import Ports
from outlive.stores.open import open_store
from outlive.stores.postgres import commit as postgres_prompt
from outlive.testing.crash.failing_store import CallFault, FailingStore

STEPS = 4
#: Longer than any answer takes: the calls of the store are always the same.
PATIENT_SECONDS = 60.0


async def play(runner: DurableRunner, receipts: Path) -> Any:
    """Plain checkpoints, an automatic run, going back, a fork, and cleaning up."""
    state = await runner.resume("plain")
    state = state or {"results": [], "last_step": -1}
    for number in range(state["last_step"] + 1, STEPS):
        state["results"].append(f"result {number} " * 60)
        state["last_step"] = number
        await runner.checkpoint("plain", f"s{number}", state, {"n": number})

    @runner.step(retry=Retry(attempts=2, delay=0))
    async def add(state: dict[str, Any], number: int) -> int:
        with receipts.open("a") as file:
            file.write(f"{number}\n")
        state["sum"] += number
        total: int = state["sum"]
        return total

    async with runner.auto("auto", {"sum": 0}) as run:
        sums = [await add(run.state, number) for number in range(1, STEPS)]
    if len(await runner.list_checkpoints("plain")) == STEPS:
        await runner.rollback("plain", "s1")
    await runner.fork("plain", "fork")
    await runner.checkpoint("fork", "own", {"results": ["own"]})
    await runner.checkpoint("gone", "s", {"text": "g" * 700})
    await runner.cleanup("gone")
    return {
        "sums": sums,
        "plain": [each.state for each in await runner.list_checkpoints("plain")],
        "auto": await runner.store.status("auto"),
        "fork": [[each.step_id, each.state] for each in await runner.list_checkpoints("fork")],
        "gone": await runner.resume("gone"),
        "runs": sorted(run.run_id for run in await runner.store.runs()),
    }


async def live(url: str, receipts: Path, fault: CallFault | None) -> tuple[Any, list[str]]:
    store = FailingStore(open_store(url, ports=Ports(), lease_seconds=15), fault)
    snapshots = SnapshotStore(store)
    told = await play(DurableRunner(snapshots), receipts)
    await snapshots.close()
    await store.close()
    return told, store.calls


def child(url: str, receipts: Path, fault: CallFault | None) -> tuple[int, Any]:
    """Play in a process of its own; its exit code, and what it told."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        told = asyncio.run(live(url, receipts, fault))
        with os.fdopen(writing, "w") as file:
            json.dump(told, file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(said) if said else None


def main(where: str, template: str, folder: str, *numbers: str) -> None:
    immediate.SLOW_SECONDS = postgres_prompt.MOMENT_SECONDS = PATIENT_SECONDS
    immediate.QUICK_TIMES = {"here": 0, "lane": sys.maxsize}[where]
    for text in numbers:
        number = int(text)
        url = template.replace("NUMBER", text.replace("-", "whole_"))
        receipts = Path(folder) / f"receipts-{text}"
        receipts.touch()
        code = 0
        if number >= 0:
            at = number // 2 + 1
            fault = CallFault(number=at, when="after" if number % 2 else "before")
            code, _ = child(url, receipts, fault)
        ended, told = child(url, receipts, None)
        line = {"killed": code == -signal.SIGKILL, "code": code, "ended": ended, "told": told}
        print(json.dumps({**line, "receipts": receipts.read_text().split()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
