"""The way to the server may be encrypted, and then it is that server or none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outlive.errors import StoreUnavailable
from outlive.stores.postgres.store import PostgresStore
from outlive.testing.suite.entries import entry
from tests.harness.postgres_server import PostgresServer


def certify(folder: Path, name: str) -> tuple[Path, Path]:
    """A key, and a certificate for ``localhost`` that it signed itself."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [
            *("openssl", *words.split(), "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return key, certificate


@pytest.fixture
def tls_postgres() -> Iterator[PostgresServer]:
    """A server that nobody gets to in the clear."""
    server = PostgresServer().create()
    try:
        owner = server.folder.stat()
        for path in certify(server.folder, "server"):
            os.chown(path, owner.st_uid, owner.st_gid)
            path.chmod(0o600)
        with open(server.data / "postgresql.conf", "a") as settings:
            settings.write(f"ssl = on\nssl_cert_file = '{server.folder}/server.crt'\n")
            settings.write(f"ssl_key_file = '{server.folder}/server.key'\n")
        rules = server.data / "pg_hba.conf"
        rules.write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
        yield server.start()
    finally:
        server.remove()


def url_of(server: PostgresServer, certificate: Path, host: str = "localhost") -> str:
    url = server.url(sslmode="verify-full", sslrootcert=str(certificate))
    return url.replace("@127.0.0.1:", f"@{host}:")


@pytest.mark.alone("postgres")
async def test_a_server_is_known_by_its_certificate(
    tls_postgres: PostgresServer, tmp_path: Path
) -> None:
    """With ``verify-full`` everything is encrypted; another's certificate or name is refused."""
    url = url_of(tls_postgres, tls_postgres.folder / "server.crt")
    store = PostgresStore(url)

    assert [None] == list(await store.commit([entry("r", 0)]))
    with psycopg.connect(url) as db:
        mine = db.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchall()
        in_the_clear = db.execute(
            "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            " WHERE application_name = 'outlive' AND NOT ssl"
        ).fetchall()
    assert ([(True,)], [(0,)]) == (mine, in_the_clear)
    await store.close()

    _, foreign = certify(tmp_path, "foreign")
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        PostgresStore(url_of(tls_postgres, foreign))
    with pytest.raises(StoreUnavailable, match="certificate"):
        PostgresStore(url_of(tls_postgres, tls_postgres.folder / "server.crt", "127.0.0.1"))
    with pytest.raises(StoreUnavailable, match="no encryption"):
        PostgresStore(tls_postgres.url(sslmode="disable"))
