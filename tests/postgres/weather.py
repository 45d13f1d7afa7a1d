"""Workers that drive runs while the server, or the way to it, is troubled again and again.

Every run takes steps and effects without end until it is let go. After each trouble, the time is
measured until every run has an acknowledged event that is younger than the server's return.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from outlive.model.run import fold
from tests.harness.processes import until
from tests.processes import cast, players
from tests.processes.stage import Stage, read_appends

WORKERS, RUNS = 2, 6
#: Effects that need no human when they are in doubt.
KINDS = ("keyed", "checked")
PATIENCE_SECONDS = 60.0
#: A run with no effect in doubt is driven again by then.
STILL_SECONDS_MAX = players.LEASE_SECONDS + 2.0
LOOK_SECONDS = 0.02


class Tail:
    """What a process wrote since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def acknowledged(self) -> list[tuple[str, float]]:
        """Runs, and when something of theirs was acknowledged."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")
        self._at += len(whole[0]) + len(whole[1])
        lines = read_appends(whole[0].decode() + "\n") if whole[0] else []
        return [(run_id, at) for run_id, _, _, _, done, at in lines if done]


class Weather:
    """The test's side: runs under way, and how long they stood still."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.run_ids = [f"r{n}" for n in range(RUNS)]
        #: For each trouble, seconds from the server's return until all runs were driven but those
        #: with an effect in doubt, which must wait until it can't be running any more.
        self.still: list[float] = []
        self.waited_in_doubt = 0
        self._tails: dict[Path, Tail] = {}
        #: By run, when it was first driven after the last trouble.
        self._driven: dict[str, float] = {}
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
        since = time.time()
        in_doubt = self._wait_for_most(since)
        self.wait_for_all(since, afresh=False)
        self.waited_in_doubt += len(in_doubt)
        self.still += [max(at - since for r, at in self._driven.items() if r not in in_doubt)]

    def _wait_for_most(self, since: float) -> set[str]:
        """Until all are driven, or those that are not have had their time; which have a doubt."""
        self._driven.clear()
        while time.time() < since + STILL_SECONDS_MAX:
            if self._is_driven(since):
                return set()
            time.sleep(LOOK_SECONDS)
        late = set(self.run_ids) - set(self._driven)
        return {run_id for run_id in late if fold(self.stage.events(run_id)).effects}

    def wait_for_all(self, since: float, *, afresh: bool = True) -> None:
        """Until every run has an event of later than that."""
        if afresh:
            self._driven.clear()
        what, seconds = "all runs to be driven", PATIENCE_SECONDS
        until(lambda: self._is_driven(since), what, seconds=seconds)

    def _is_driven(self, since: float) -> bool:
        for path in self.stage.folder.glob("appends-*.jsonl"):
            tail = self._tails.setdefault(path, Tail(path))
            for run_id, at in tail.acknowledged():
                if at > since:
                    self._driven[run_id] = min(at, self._driven.get(run_id, at))
        return len(self._driven) == len(self.run_ids)

    def end(self) -> int:
        """Let all runs end; how many effects there were, each once, as the auditor says."""
        (self.stage.folder / "go").touch()
        until(self._is_over, "all runs to end", seconds=PATIENCE_SECONDS)
        assert [] == self.stage.audit(events_min=9)
        return len(self.stage.receipts())

    def _is_over(self) -> bool:
        return {"completed"} == {self.stage.status(run_id) for run_id in self.run_ids}
