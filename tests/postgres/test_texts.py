"""Texts that a database can't keep never get as far: they would stop everybody's commits."""

from __future__ import annotations

import random

import psycopg
import pytest

import outlive
from outlive.errors import StoreUnavailable
from outlive.model.ids import NAME_BYTES_MAX, NAME_CHARS_MAX
from outlive.stores.postgres.store import PostgresStore
from tests.harness.postgres_server import PostgresServer


async def test_the_longest_names_fit_the_indices(url: str) -> None:
    """Four of them are one entry of an index, which has a bound of the server's own."""
    chance = random.Random(1)  # what repeats itself would be compressed

    def longest() -> str:
        return "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(NAME_CHARS_MAX))

    @outlive.flow(name=longest(), version=longest(), queue=longest(), queue_key=longest())
    async def named() -> int:
        return 1

    assert NAME_BYTES_MAX == len(named.name.encode())
    async with outlive.open(url) as app, app.worker([named]):
        assert 1 == await (await app.submit(named)).outcome("20s")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_does_not_keep_every_text_is_refused(
    postgres: PostgresServer, encoding: str
) -> None:
    """When it is opened, not when the first text comes that it lacks."""
    name = f"db_{encoding.lower()}"
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")

    with pytest.raises(StoreUnavailable, match=f"has encoding {encoding}.* ENCODING 'UTF8'"):
        PostgresStore(postgres.url().replace("/postgres", f"/{name}"))
