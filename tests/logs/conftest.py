"""Apps on each kind of store, sealed and not."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import outlive
from outlive import App
from tests.harness.stores import KINDS, url_of

KEY = base64.b64encode(bytes(32)).decode()


@pytest.fixture(params=["", "sealed"])
def key(request: pytest.FixtureRequest) -> str | None:
    """The key of the store; None: it is not sealed."""
    return KEY if request.param else None


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store is."""
    return url_of(request.param, tmp_path, request)


@pytest.fixture
async def app(place: str, key: str | None) -> AsyncIterator[App]:
    """An app on it."""
    async with outlive.open(place, key=key, drive=False) as opened:
        yield opened
