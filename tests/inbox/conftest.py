"""Inboxes on every backend, and envelopes as the real package makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sw4rm.envelope import build_envelope

from outlive.inbox import (
    JSONFilePersistence,
    PersistentActivityBuffer,
    SQLitePersistence,
    StorePersistence,
)

Backend = Callable[[], Any]


class OwnPersistence:
    """A backend of a user's own, with the methods that the document names."""

    def __init__(self) -> None:
        self.saved: tuple[dict[str, dict[str, Any]], list[str]] = ({}, [])

    def save_records(self, records: dict[str, dict[str, Any]], order: list[str]) -> None:
        self.saved = records, order

    def load_records(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        return self.saved

    def clear(self) -> None:
        self.saved = {}, []


@pytest.fixture(params=["json", "sqlite", "postgres", "own"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Opens the same place each time it is called."""
    opened: list[Any] = []
    own = OwnPersistence()

    def make() -> Any:
        match request.param:
            case "json":
                made: Any = JSONFilePersistence(tmp_path / "activity.json")
            case "sqlite":
                made = SQLitePersistence(tmp_path / "activity.sqlite3")
            case "postgres":
                made = StorePersistence(request.getfixturevalue("url"))
            case _:
                return own
        opened.append(made)
        return made

    yield make
    for each in opened:
        if hasattr(each, "close"):
            each.close()


@pytest.fixture
def inbox(backend: Backend) -> PersistentActivityBuffer:
    return PersistentActivityBuffer(persistence=backend())


def envelope(token: str | None = None, **fields: Any) -> dict[str, Any]:
    """As the real package builds one: with bytes in it."""
    given: dict[str, Any] = {"producer_id": "agent-1", "message_type": 1, "payload": b"\0\xff"}
    made = build_envelope(**(given | {"idempotency_token": token} | fields))
    return dict(made)
