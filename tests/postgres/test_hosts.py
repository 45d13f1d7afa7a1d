"""A host is cut off in the middle of an effect, and comes back when its runs are another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

import pytest

from tests.conftest import Figure
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import pid_of, seconds_until, until
from tests.postgres.hosts import NETWORK, has_namespaces, two_hosts, work
from tests.processes import cast
from tests.processes.stage import Stage

pytestmark = pytest.mark.alone("postgres")

KINDS = ("keyed", "checked")
#: A host that hears nothing finds that out after so long.
LIMIT_SECONDS = 1


@pytest.fixture
def wide_postgres() -> Iterator[PostgresServer]:
    """A server that also listens to hosts of the test's own network."""
    server = PostgresServer(settings={"listen_addresses": "*"}).create()
    try:
        with open(server.data / "pg_hba.conf", "a") as rules:
            rules.write(f"host all all {NETWORK}.0.0/15 scram-sha-256\n")
        yield server.start()
    finally:
        server.remove()


def submit(stage: Stage) -> None:
    async def main() -> None:
        async with stage.open_app() as app:
            for kind in KINDS:
                await app.submit(cast.wiring, kind, id=kind)

    asyncio.run(main())


def is_in_the_middle(stage: Stage, worker: BaseProcess, kinds: tuple[str, ...] = KINDS) -> bool:
    return all((stage.folder / f"wiring-{pid_of(worker)}-{kind}").exists() for kind in kinds)


def refusals(stage: Stage, worker: BaseProcess, run_id: str) -> int:
    return sum(
        not done and lease != "take"
        for each, _, _, lease, done, _ in stage.appends(worker)
        if each == run_id
    )


#: Where there are no namespaces, either is by loopback addresses.
WAYS = [
    pytest.param(True, id="namespaces"),
    pytest.param(False, id="loopback", marks=pytest.mark.full),
]


@pytest.mark.parametrize("namespaces", WAYS)
def test_a_host_that_is_cut_off_in_the_middle_of_an_effect(
    wide_postgres: PostgresServer, stage: Stage, figure: Figure, namespaces: bool
) -> None:
    """Its runs are taken over, it is refused when it returns, and each effect happens once."""
    way = "namespaces" if namespaces and has_namespaces() else "loopback addresses and a proxy"
    stage.move_to(wide_postgres.url(schema="hosts"))
    options = f"schema=hosts&limit={LIMIT_SECONDS}"
    hosts = two_hosts(wide_postgres, options, namespaces=way == "namespaces")
    with hosts as (one, other):
        submit(stage)
        lost = stage.spawn_worker(work, one.address, "wiring")
        until(lambda: is_in_the_middle(stage, lost), "both effects to begin")

        one.cut()
        successor = stage.spawn_worker(work, other.address, "wiring")
        seconds = seconds_until(
            lambda: all(len(stage.claims(k)) == 2 for k in KINDS), "the takeover"
        )
        until(lambda: is_in_the_middle(stage, successor, ("keyed",)), "the repeat, by its key")
        assert "running" == stage.status("checked"), "it may still happen, so nobody repeats it"
        (stage.folder / "go").touch()
        until(lambda: all("completed" == stage.status(k) for k in KINDS), "both runs to end")

        one.mend()
        back = seconds_until(
            lambda: all(refusals(stage, lost, k) for k in KINDS), "it to be refused"
        )
        assert lost.is_alive()

    assert [] == stage.audit()
    assert [0, 0] == [stage.stale_appends(kind) for kind in KINDS]
    assert sorted(KINDS) == sorted(receipt.run_id for receipt in stage.receipts())
    figure(f"postgresql: a host cut off ({way}): seconds to takeover", round(seconds, 1))
    figure(f"postgresql: a host cut off ({way}): seconds from return to refusal", round(back, 1))
    figure(f"postgresql: a host cut off ({way}): refused appends, effects twice", (2, 0))
