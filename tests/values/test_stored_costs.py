"""Values stored once: how much room they take, and how much time."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.growth import WORKLOADS
from bench.values import run_on_postgres, run_on_sqlite
from bench.values_costs import put_costs, read_costs, small_costs
from tests.harness.postgres_server import PostgresServer
from tests.values.test_stored_once import Figure


@pytest.mark.parametrize("number", range(len(WORKLOADS)), ids=lambda n: WORKLOADS[n].name)
async def test_a_file_holds_what_is_new(number: int, tmp_path: Path, figure: Figure) -> None:
    """Tables, indexes and envelopes included."""
    workload = WORKLOADS[number]

    kept = await run_on_sqlite(number, workload.turns, tmp_path)

    figure(f"stored once, SQLite: {workload.name}", f"{kept.ratio:.3f}")
    assert kept.ratio <= workload.on_sqlite


@pytest.mark.parametrize("number", range(len(WORKLOADS)), ids=lambda n: WORKLOADS[n].name)
async def test_a_server_holds_what_is_new(
    number: int, postgres: PostgresServer, figure: Figure
) -> None:
    """Tables, their free space, indexes and envelopes included."""
    workload, schema = WORKLOADS[number], f"once_{number}"

    kept = await run_on_postgres(number, workload.turns, postgres.url(schema=schema), schema)

    figure(f"stored once, PostgreSQL: {workload.name}", f"{kept.ratio:.3f}")
    assert kept.ratio <= workload.on_postgres


@pytest.mark.alone("time")
@pytest.mark.parametrize(("length", "size"), [(50, 1_000), (200, 10_000), (1_000, 1_000)])
def test_a_list_that_is_passed_on_costs_little_per_message(
    length: int, size: int, figure: Figure
) -> None:
    """By the clock of the thread, far from encoding and hashing all of it anew."""
    told = put_costs(length, size)

    costs = f"{told['beyond']:.2f} (whole: {told['whole']:.2f})"
    figure(f"put: us per message of {length} x {size} B", costs)
    assert told["beyond"] < told["whole"]


@pytest.mark.alone("time")
def test_small_values_cost_little_more_than_the_codec(figure: Figure) -> None:
    """Two hundred bytes: nothing of them stands by itself."""
    told = small_costs()

    more = told["put"] - told["codec"]
    figure("put: us of 200 B, and more than the codec", f"{told['put']:.2f}, {more:.2f}")
    assert told["put"] < 4 * told["codec"]


def test_one_state_is_read_with_a_short_chain(figure: Figure) -> None:
    """Of many that a run saved: its own size, and as many versions as its number has bits."""
    told = read_costs(60, (1, 7, 16, 31, 32, 48, 59))

    assert 7 == len(told)
    for each in told:
        assert each["nodes_beyond"] <= each["turn"].bit_length()
        assert each["fetches"] <= each["turn"].bit_length() + 2
        assert each["read_bytes"] <= 1.1 * each["own_bytes"] + 5_000
    figure(
        "values: fetches, nodes beyond its messages to read the 59th state",
        (told[-1]["fetches"], told[-1]["nodes_beyond"]),
    )
