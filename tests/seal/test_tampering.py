"""Whoever can write the store but has no key can break a run, and never change what it says."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import outlive
from outlive.app.open import open_app
from outlive.errors import CorruptRecord, Erased, WrongKey
from outlive.journal.reader import read_events
from outlive.journal.seal.keys import MasterKeys
from outlive.journal.seal.seal import Seal
from tests.conftest import Figure

Break = Callable[[sqlite3.Connection], object]


@outlive.step
async def think(word: str) -> str:
    return word * 2


@outlive.flow
async def talk(word: str) -> str:
    for _ in range(4):
        word = await think(word)
        await outlive.sleep(0)
    return word


@pytest.fixture
async def url(tmp_path: Path, key: str) -> str:
    """A sealed store with two runs of several records."""
    url = f"sqlite:///{tmp_path / 'o.db'}"
    async with open_app(url, key=key) as app:
        for run_id in ("a", "b"):
            await (await app.start(talk, run_id, id=run_id)).outcome()
    return url


def swap(where: str, there: str) -> Break:
    """Let two records change places."""

    def work(db: sqlite3.Connection) -> None:
        find = "SELECT r.id, r.body FROM records r JOIN runs ON runs.id = r.run WHERE "
        (one, body_one), (two, body_two) = (
            db.execute(f"{find} {each} ORDER BY r.seq DESC LIMIT 1").fetchone()
            for each in (where, there)
        )
        db.execute("UPDATE records SET body = ? WHERE id = ?", (body_two, one))
        db.execute("UPDATE records SET body = ? WHERE id = ?", (body_one, two))

    return work


def sql(statement: str) -> Break:
    """Anything else."""
    return lambda db: db.execute(statement)


LAST = "id = (SELECT max(id) FROM records WHERE run = (SELECT id FROM runs WHERE run_id = 'a'))"
BREAKS = {
    "swapped between runs": swap("run_id = 'a'", "run_id = 'b'"),
    "swapped within a run": swap("run_id = 'a'", "run_id = 'a' AND r.seq < 3"),
    "renamed": sql("UPDATE runs SET run_id = CASE run_id WHEN 'a' THEN 'b2' ELSE 'a' END"),
    "cut": sql(f"UPDATE records SET body = substr(body, 1, length(body) - 1) WHERE {LAST}"),
    "cut to nothing": sql(f"UPDATE records SET body = x'' WHERE {LAST}"),
    "replayed": sql(
        f"UPDATE records SET body = (SELECT body FROM records WHERE run = 1 AND seq = 1) "
        f"WHERE {LAST}"
    ),
    "head moved back": sql("UPDATE runs SET seq = seq - 1 WHERE run_id = 'a'"),
    "another link": sql("UPDATE runs SET link = zeroblob(16) WHERE run_id = 'a'"),
    "not sealed": sql(f"UPDATE records SET body = x'4f6c01000101' WHERE {LAST}"),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_what_was_tampered_with_is_refused(
    name: str, url: str, key: str, tmp_path: Path
) -> None:
    """It is named with its run, and nothing of it is believed."""
    db = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    BREAKS[name](db)
    db.close()

    async with open_app(url, key=key) as app:
        with pytest.raises(CorruptRecord) as refused:
            read_events(await app.read("a"))

    assert "a" == refused.value.run_id


async def test_a_wrong_key_and_a_missing_key_are_named(url: str, key: str, other_key: str) -> None:
    """The message says which key is needed; the right one finds everything as it was."""
    named = MasterKeys.parse(key, os.urandom).ids[0]
    with pytest.raises(WrongKey, match=f"is sealed with key {named}; no key was given"):
        open_app(url, key="")
    with pytest.raises(WrongKey, match=f"is sealed with key {named}; the keys given are"):
        open_app(url, key=other_key)

    async with open_app(url, key=f"{other_key},{key}") as app:
        assert "a" * 16 == await (await app.get("a", talk)).outcome()
        assert 2 == len((await app.find()).items)


async def test_keys_are_dropped_for_good(url: str, key: str, tmp_path: Path) -> None:
    """Without its data key a run is gone, and says so; the other one is as it was."""
    db = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    db.execute("DELETE FROM nodes WHERE family = 'a'")
    db.close()

    async with open_app(url, key=key) as app:
        with pytest.raises(Erased, match="run a was erased"):
            read_events(await app.read("a"))
        assert "b" * 16 == await (await app.get("b", talk)).outcome()


def test_no_nonce_comes_twice(figure: Figure, full: bool) -> None:
    """Other places or contents have other nonces."""
    seal, count = Seal.new(os.urandom), 1_000_000 if full else 100_000
    begin = len(seal.close(b"", b"")) - 28

    nonces = {seal.close(b"", b"%d" % place)[begin : begin + 12] for place in range(count)}
    nonces |= {seal.close(b"%d" % body, b"p")[begin : begin + 12] for body in range(1000)}

    figure("sealed: different nonces", f"{len(nonces)} of {count + 1000}")
    assert count + 1000 == len(nonces)


@pytest.mark.parametrize("text", ["", "short", "c2hvcnQ=", "A" * 43, "ä" * 32])
def test_what_is_no_key_is_refused_by_number(text: str, key: str) -> None:
    """The message says which one it is, and not what was given."""
    with pytest.raises(outlive.errors.UsageError, match="key 2 is not 32 bytes") as refused:
        open_app("memory://", key=f"{key},{text}")

    assert not text or text not in str(refused.value)
