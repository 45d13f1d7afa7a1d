"""Replay journals on this Python: ``replay_golden.py FOLDER [LOOP]``.

Each is replayed whole (no body may run, the same outcome, nothing new but claim and end), and gone
on with behind every fourth event (in full tests: every one); what came of that is replayed in turn.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from outlive.app.app import App
from outlive.engine import attempts
from outlive.model.events import Event
from outlive.stores.memory import MemoryStore
from tests.order.journals import write
from tests.replay.golden_files import Golden, ids_of, load
from tests.replay.golden_flows import CHANCE, GOLDEN, LEDGER
from tests.replay.hosts import run_on
from tests.replay.write_golden import SETTINGS, outcome_of

STRIDE = 1 if os.environ.get("OUTLIVE_TEST_FULL") == "1" else 4
FLOWS = {flow.name: flow for flow in GOLDEN}


class Bodies:
    """Counts the bodies that the engine launches."""

    def __init__(self) -> None:
        self.launched = 0
        launch = attempts.launch

        def counting(*args: Any) -> None:
            self.launched += 1
            launch(*args)

        for module in ("steps", "effects"):
            sys.modules[f"outlive.engine.{module}"].launch = counting  # type: ignore[attr-defined]


async def drive(golden: Golden, events: list[Event]) -> tuple[list[Any], list[Event]]:
    """Go on behind these events: the outcome, and the whole journal."""
    store = write(MemoryStore(), golden.run_id, events)
    async with App(store, settings=SETTINGS) as app:
        handle = await app.start(FLOWS[golden.flow], id=golden.run_id)
        return await outcome_of(handle), await handle.read()


async def replay(golden: Golden, events: list[Event], outcome: list[Any], bodies: Bodies) -> None:
    """All of it but the end."""
    before = bodies.launched
    again, journal = await drive(golden, events[:-1])
    found = {
        "outcome": again,
        "bodies": bodies.launched - before,
        "prefix kept": journal[: len(events) - 1] == events[:-1],
        "new events": len(journal) - len(events) + 1,
    }
    wanted = {"outcome": outcome, "bodies": 0, "prefix kept": True, "new events": 2}
    assert found == wanted, (golden.run_id, found, outcome)


async def replay_all(folder: Path) -> dict[str, Any]:
    bodies, cuts, replayed = Bodies(), 0, 0
    for golden in load(folder):
        events = golden.events()
        assert ids_of(events) == golden.ids
        await replay(golden, events, golden.outcome, bodies)
        replayed += 1
        for cut in range(1 + replayed % STRIDE, len(events) - 1, STRIDE):
            CHANCE.seed(cut)
            LEDGER.clear()
            outcome, journal = await drive(golden, events[:cut])
            assert outcome[0] == golden.outcome[0], (golden.run_id, cut, outcome)
            assert journal[:cut] == events[:cut], (golden.run_id, cut)
            await replay(golden, journal, outcome, bodies)
            cuts += 1
    version = ".".join(map(str, sys.version_info[:3]))
    return {"python": version, "replayed": replayed, "cuts": cuts, "bodies": bodies.launched}


def main(folder: str, loop: str = "asyncio") -> None:
    print(json.dumps(run_on(loop, lambda: replay_all(Path(folder)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
