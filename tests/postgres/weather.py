"""Workers that drive runs while the server, or the way to it, is troubled again and again.

Every run takes steps and effects without end until it is let go. After each trouble, the time is
measured until every run has an acknowledged event that is younger than the server's return.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tests.processes import cast, players
from tests.processes.stage import Stage, read_appends, until

WORKERS, RUNS = 2, 6
#: Effects that need no human when they are in doubt.
KINDS = ("keyed", "checked")
PATIENCE_SECONDS = 60.0


class Tail:
    """What a process wrote since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def acknowledged(self) -> dict[str, float]:
        """By run, when its latest event was acknowledged."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")
        self._at += len(whole[0]) + len(whole[1])
        lines = read_appends(whole[0].decode() + "\n") if whole[0] else []
        return {run_id: at for run_id, _, _, _, done, at in lines if done}


class Weather:
    """The test's side: runs under way, and how long they stood still."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.run_ids = [f"r{n}" for n in range(RUNS)]
        #: Seconds from the server's return until all runs were driven, for each trouble.
        self.still: list[float] = []
        self._tails: dict[Path, Tail] = {}
        self._latest: dict[str, float] = {}
        asyncio.run(self._submit())
        for _ in range(WORKERS):
            stage.spawn_worker(players.work, ["stormy"])
        self.wait_for_all(time.time())

    async def _submit(self) -> None:
        async with self.stage.open_app() as app:
            for number, run_id in enumerate(self.run_ids):
                await app.submit(cast.stormy, KINDS[number % len(KINDS)], id=run_id)

    def strike(self, trouble: Callable[[], object]) -> None:
        """Make trouble, which ends before this returns, and see that everybody goes on."""
        trouble()
        self.still.append(self.wait_for_all(time.time()))

    def wait_for_all(self, since: float) -> float:
        """Until every run has an event of later than that; how much later the last one's is."""
        until(lambda: self._youngest() > since, "all runs to be driven", seconds=PATIENCE_SECONDS)
        return self._youngest() - since

    def _youngest(self) -> float:
        for path in self.stage.folder.glob("appends-*.jsonl"):
            tail = self._tails.setdefault(path, Tail(path))
            for run_id, at in tail.acknowledged().items():
                self._latest[run_id] = max(at, self._latest.get(run_id, 0.0))
        return min(self._latest.get(run_id, 0.0) for run_id in self.run_ids)

    def end(self) -> int:
        """Let all runs end; how many effects there were, each once, as the auditor says."""
        (self.stage.folder / "go").touch()
        until(self._is_over, "all runs to end", seconds=PATIENCE_SECONDS)
        assert [] == self.stage.audit(events_min=9)
        return len(self.stage.receipts())

    def _is_over(self) -> bool:
        return {"completed"} == {self.stage.status(run_id) for run_id in self.run_ids}
