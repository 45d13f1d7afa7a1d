"""No test here leaves a thread of a flow behind."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from outlive import sync
from tests.harness.theatre import Theatre
from tests.harness.world import theatre_of

PATIENCE_SECONDS = 20.0
#: Threads that are left behind on purpose are named so by their tests.
LEFT_ON_PURPOSE = "left-behind"


def flow_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    ours = ("outlive-flow", "outlive-sync")
    return [name for name in names if name.startswith(ours) and LEFT_ON_PURPOSE not in name]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever a test does, in the end every thread has unwound."""
    yield
    until = time.monotonic() + PATIENCE_SECONDS
    while flow_threads():
        assert time.monotonic() < until, flow_threads()
        time.sleep(0.002)


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Theatre]:
    """In memory, leaving it at every wait."""
    async with theatre_of("memory-0", tmp_path) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The store that the environment names, as a script finds it."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    monkeypatch.setenv("OUTLIVE_STORE", url)
    monkeypatch.setenv("OUTLIVE_POLL_SECONDS", "0.02")
    yield url
    sync.close()
