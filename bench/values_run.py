"""The runner of the third chapter: what values take on disk, and what they cost in time.

python -m bench.values_run tiny|quick|full [--out FOLDER] [--stores FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.databases import PLACE as SERVERS
from bench.environments import PLACE, ROOT
from bench.growth import WORKLOADS
from bench.plan import PLANS, Form
from bench.run import RESULTS, conditions, save
from bench.values import Kept, run_on_postgres, run_on_sqlite
from bench.values_costs import curve_lengths, put_costs, read_costs, seal_costs, small_costs
from tests.harness.postgres_server import PostgresServer

PEER_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it is done."""

    #: Of the turns of each workload, and of the workloads.
    share: float
    workloads: int
    effects: int
    rounds: int
    is_full: bool
    has_peer: bool


SIZES: dict[Form, Size] = {
    "tiny": Size(share=0.05, workloads=1, effects=20, rounds=1, is_full=False, has_peer=False),
    "quick": Size(
        share=1.0, workloads=len(WORKLOADS), effects=500, rounds=5, is_full=False, has_peer=True
    ),
    "full": Size(
        share=1.0, workloads=len(WORKLOADS), effects=3_000, rounds=9, is_full=True, has_peer=True
    ),
}
#: Whose state is read back, of the first workload.
TURNS_READ = (1, 2, 5, 10, 20, 50, 100, 150, 199)


def kept_by_all(number: int, size: Size, folder: Path, server: PostgresServer) -> dict[str, Any]:
    """One workload on each store, and by the peer."""
    workload = WORKLOADS[number]
    count = max(2, round(workload.turns * size.share))
    schema = f"values_{number}"
    told: dict[str, Any] = {"workload": workload.name, "turns": count}
    told["sqlite"] = _told(asyncio.run(run_on_sqlite(number, count, folder)))
    url = server.url(schema=schema)
    told["postgres"] = _told(asyncio.run(run_on_postgres(number, count, url, schema)))
    if size.has_peer and number == 0:
        told["langgraph"] = peer(count, folder)
    return told


def _told(kept: Kept) -> dict[str, Any]:
    return {"written": kept.written, "stored": kept.stored, "seconds": kept.seconds}


def peer(count: int, folder: Path) -> dict[str, Any]:
    """The same conversation kept by LangGraph, in its own environment."""
    python = PLACE / "langgraph" / "bin" / "python"
    if not python.exists():
        return {"error": "not installed"}
    command = [str(python), "-m", "bench.contestants.langgraph_values", str(count), str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PEER_SECONDS_MAX, check=False
    )
    if done.returncode:
        return {"error": (done.stderr.splitlines() or ["no reason was told"])[-1]}
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def run(form: Form, out: Path, stores: Path) -> Path:
    """All of it, written down."""
    size = SIZES[form]
    out.mkdir(parents=True, exist_ok=True)
    stores.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"form": form, **conditions(stores)}
    folder = Path(tempfile.mkdtemp(prefix="values-", dir=stores))
    try:
        with PostgresServer(within=SERVERS) as server:
            results["kept"] = []
            for number in range(size.workloads):
                results["kept"].append(kept_by_all(number, size, folder, server))
                say(results["kept"][-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results["puts"] = puts(curve_lengths(size.is_full))
    say(results["puts"])
    results["small"] = small_costs()
    say(results["small"])
    turns = max(2, round(WORKLOADS[0].turns * size.share))
    results["reads"] = read_costs(turns, TURNS_READ)
    say(results["reads"])
    results["seal"] = seal_costs(size.effects, size.rounds)
    say(results["seal"])
    path = out / results_of(form)
    save(results, path)
    print(f"written to {path.name} after {results['minutes']:.1f} minutes", flush=True)
    return path


def puts(lengths: Sequence[tuple[int, int]]) -> list[dict[str, float]]:
    """Each in a process of its own."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as pool:
        return [pool.submit(put_costs, *each).result() for each in lengths]


def say(what: object) -> None:
    """A line for whoever waits."""
    print(what, flush=True)


def results_of(form: str) -> str:
    """The name of the file."""
    return f"{form}-values.json"


def main(words: list[str] | None = None) -> Path:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.values_run")
    parser.add_argument("form", choices=list(PLANS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--stores", type=Path, default=PLACE, help="on the disk to be measured")
    asked = parser.parse_args(words)
    os.environ.pop("OUTLIVE_KEY", None)
    return run(asked.form, asked.out, asked.stores)


if __name__ == "__main__":
    main()
