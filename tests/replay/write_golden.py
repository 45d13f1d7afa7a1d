"""Run the golden flows and write their journals: ``write_golden.py FOLDER SEED [LOOP]``.

The committed ones were written on Python 3.11 into ``tests/replay/golden``. They are never written
again: a release that can't replay them has broken its users' runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from outlive.app.app import App
from outlive.errors import RunFailed
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from tests.replay import golden_flows
from tests.replay.golden_files import Golden, ids_of, save
from tests.replay.hosts import run_on

SETTINGS = Settings(lease_seconds=30.0, poll_seconds=0.01, idle_seconds=60.0)


async def outcome_of(handle: Any) -> list[Any]:
    """How the run ended, as JSON has it."""
    try:
        return ["returned", json.loads(json.dumps(await handle.outcome("60s")))]
    except RunFailed as error:
        return ["failed", error.type_name, error.message]


async def write(folder: Path, seed: int) -> int:
    golden_flows.CHANCE.seed(seed)
    store = MemoryStore()
    async with App(store, settings=SETTINGS) as app:
        for flow in golden_flows.GOLDEN:
            handle = await app.start(flow, id=f"{flow.name}-{seed}")
            outcome = await outcome_of(handle)
            reading = await store.read(handle.id)
            assert reading is not None
            golden = Golden(
                run_id=handle.id,
                flow=flow.name,
                python=".".join(map(str, sys.version_info[:2])),
                outcome=outcome,
                ids=ids_of(await handle.read()),
                records=[(record.seq, record.body) for record in reading.records],
                link=reading.head.link,
                seq=reading.head.seq,
            )
            save(folder, golden)
    return len(golden_flows.GOLDEN)


def main(folder: str, seed: str, loop: str = "asyncio") -> None:
    written = run_on(loop, lambda: write(Path(folder), int(seed)))
    print(json.dumps({"written": written}))


if __name__ == "__main__":
    main(*sys.argv[1:])
