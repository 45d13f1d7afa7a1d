"""What is libpq's in a URL stays as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from outlive.errors import UnknownStore
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.postgres.url import parse_place
from tests.harness.postgres_server import PostgresServer

OURS = "schema=apart&limit=3&outage=9&unsafe=yes"
#: The place, and libpq's options.
URLS = [
    ("postgresql:///db", "host=/run/postgresql&port=5433"),
    ("postgresql:///db", "host=a.example&port=5433&user=u&password=p"),
    ("postgresql://", "service=agents"),
    ("postgresql:///", "service=agents"),
    ("postgresql://h/db", "password=a+b"),
    ("postgresql://h/db", "password=a%2Bb&sslmode=require"),
    ("postgresql://u:a#b@h/db", ""),
    ("postgresql://u:p[ss@h/db", ""),
    ("postgresql://u:a?b@h/db", ""),
    ("postgresql://u:p@h1:1,h2:2/db", "ssl=true"),
    ("postgres://u@[::1]:5433/db", "application_name=mine"),
]


@pytest.mark.parametrize(("begin", "query"), URLS)
@pytest.mark.parametrize("is_first", [False, True])
def test_libpq_reads_the_rest(begin: str, query: str, is_first: bool) -> None:
    """As if our options were not there, before or behind its own."""
    options = filter(None, [OURS, query] if is_first else [query, OURS])
    place = parse_place(f"{begin}?{'&'.join(options)}")

    expected = conninfo_to_dict(f"{begin}?{query}")
    assert expected == {n: v for n, v in conninfo_to_dict(place.conninfo).items() if n in expected}
    assert ("apart", 3.0, 9.0, True) == (
        place.schema,
        place.limit_seconds,
        place.outage_seconds,
        place.allow_unsafe,
    )


def test_what_a_value_holds_is_its_own() -> None:
    """An = in it needs no percent; a URL to listen at is decoded once."""
    place = parse_place(
        "postgresql://h/db?options=-csynchronous_commit=on"
        "&listen=postgresql%3A%2F%2Fu%3Aa%252Fb+c%40h2%2Fdb"
    )

    assert "-csynchronous_commit=on" == conninfo_to_dict(place.conninfo)["options"]
    assert place.listen_conninfo is not None
    assert "a/b+c" == conninfo_to_dict(place.listen_conninfo)["password"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hush%zz@h/db",
        "postgresql://u:hush%00@h/db",
        "postgresql://u:hush@[::1/db",
        "postgresql://u:hush/hush@h/db",
        "postgresql://u@h/db?password=hush%zz",
        "postgresql://u@h/db?password=hush hush",
        "postgresql://h/db?listen=postgresql%3A%2F%2Fu%3Ahush%25zz%40h",
    ],
)
def test_a_url_that_can_not_be_read_is_not_repeated(url: str) -> None:
    """What is wrong with it may be in its password."""
    with pytest.raises(UnknownStore, match="percent-encoded there") as caught:
        parse_place(url)

    assert "hush" not in str(caught.value)


async def test_a_service(
    postgres: PostgresServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is looked up by libpq; its name is what is shown."""
    given = conninfo_to_dict(parse_place(url).conninfo)
    names = ("host", "port", "user", "password", "dbname")
    lines = ["[agents]", *(f"{name}={given[name]}" for name in names)]
    (tmp_path / "services.conf").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services.conf"))
    schema = parse_place(url).schema
    store = PostgresStore(f"postgresql://?service=agents&schema={schema}")

    assert f"postgresql of service agents, schema {schema}" == (await store.health()).facts["place"]
    await store.close()
