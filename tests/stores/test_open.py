"""From a URL to a store, or to a line that says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.errors import UnknownStore
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.open import open_store
from outlive.stores.sqlite import SQLiteStore


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


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no store's URL"),
        ("outlive.db", "no store's URL"),
        ("sqlite:/x.db", "no store's URL"),
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
