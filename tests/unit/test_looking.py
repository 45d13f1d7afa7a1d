"""What can be asked of a store, and what is refused because nobody could ever find it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio

import outlive
from outlive.app.app import App
from outlive.errors import UsageError
from outlive.stores.memory import MemoryStore


@outlive.flow
async def greet() -> str:
    return "hello"


@pytest_asyncio.fixture
async def app() -> AsyncIterator[App]:
    async with App(MemoryStore()) as opened:
        await (await opened.start(greet.options(tags={"customer": "7"})))
        yield opened


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            {"status": "complete"},
            "'complete' is not a status; use one of pending, .*completed",
        ),
        ({"status": ["complete"]}, r"status=\['complete'\] is not a status"),
        ({"status": []}, r"status=\[\] is not a status"),
        ({"flow": ["greet"]}, "give one flow, or its name"),
        ({"tag": "customer=7"}, "give a mapping of texts, or a pair: tag="),
        ({"tag": {"customer": 7}}, "give a mapping of texts"),
        ({"tag": ("customer", 7)}, "give a mapping of texts"),
        ({"worker": 7}, "worker=7; give a text"),
        ({"since": "soon"}, "since='soon'; give a datetime, or how long ago"),
        ({"until": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"colour": "red"}, "colour is nothing that runs are found by"),
        ({"limit": 0}, "limit=0 is not a whole number from 1"),
        ({"limit": "10"}, "limit='10' is not a whole number"),
        ({"after": 5}, "after=5; it is the `next` of the page before"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    app: App, asked: dict[str, Any], why: str
) -> None:
    """In words; an empty page would look like an answer."""
    with pytest.raises(UsageError, match=why):
        await app.find(**asked)


async def test_a_flow_stands_for_its_name(app: App) -> None:
    """Whoever has it at hand need not spell it."""
    for asked in ({"flow": greet}, {"flow": "greet"}, {"tag": ("customer", "7"), "limit": 5000}):
        assert 1 == len((await app.find(**asked)).items)
