"""From a URL to a store, or to a line that says what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outlive import flow, sync
from outlive.app.open import open_app
from outlive.errors import UnknownStore
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.open import open_store
from outlive.stores.sqlite.store import SQLiteStore


@flow
async def seven() -> int:
    return 7


async def test_urls_of_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, a file below the working folder, a file anywhere."""
    monkeypatch.chdir(tmp_path)
    urls = ("memory://", "sqlite:///below/relative.db", f"sqlite:///{tmp_path}/absolute.db")
    stores = [open_store(url, ports=Ports(), lease_seconds=5.0) for url in urls]

    assert [MemoryStore, SQLiteStore, SQLiteStore] == [type(store) for store in stores]
    assert (tmp_path / "below" / "relative.db").exists()
    assert (tmp_path / "absolute.db").exists()
    for store in stores:
        await store.close()


@pytest.mark.parametrize("argument", ["url", "blobs"])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Path("x.db"), "is a path; write its URL: 'sqlite:///x.db'"),
        (5, "5 is not the URL of a store; use one of memory://"),
        (b"memory://", "is not the URL of a store"),
    ],
)
def test_what_is_no_text_names_no_store(argument: str, given: Any, why: str) -> None:
    """Refused in words, before anything is opened."""
    for opening in (open_app, sync.open):
        with pytest.raises(UnknownStore, match=why):
            opening(**{"url": "memory://", argument: given})


def test_an_empty_url_is_not_the_default() -> None:
    """Somebody's variable was not set: that is no reason to take another store."""
    with pytest.raises(UnknownStore, match="'' is not the URL of a store"):
        open_app("")


def test_plain_code_may_say_the_settings() -> None:
    """As async code may."""
    with sync.open("memory://", settings=Settings(lease_seconds=7)) as app:
        assert app.run(seven) == 7


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "not the URL of a store"),
        ("outlive.db", "not the URL of a store"),
        ("sqlite:/x.db", "not the URL of a store"),
        ("mysql://host/db", "no store speaks 'mysql'"),
        ("sqlite://", "three slashes"),
        ("sqlite://x.db", "three slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:////", "names no file"),
        ("sqlite:///a\0b", "names no file"),
        ("memory://name", "has no name"),
        *((f"{scheme}://x", "not in this release") for scheme in ("file", "redis", "s3")),
        ("postgresql://x/y?schema=No", "schema"),
    ],
)
def test_urls_of_nothing(url: str, why: str) -> None:
    """One line that says what is wrong and what there is."""
    with pytest.raises(UnknownStore, match=why) as caught:
        open_store(url, ports=Ports(), lease_seconds=5.0)

    assert "\n" not in str(caught.value)
