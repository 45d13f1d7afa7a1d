"""What a run knows of the world beside it: its lease, other journals, runs that it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from outlive.engine.blob import Shelf
from outlive.errors import OutliveError, StoreUnavailable
from outlive.model.events import ChapterBegan, EffectDone, EffectRaised, Fault, RunStarted
from outlive.model.mail import ChildNews, Letter
from outlive.stores.types import Mail, Posted


class Lease(Protocol):
    """The right to drive, as far as this process knows."""

    #: How often it lapsed: what was ours before may not be now.
    lapses: int

    def holds(self, since: int) -> bool:
        """It did not lapse since then: no other worker can have been offered the run."""
        ...


class Peer(Protocol):
    """Other journals of the store."""

    async def holder_of(self, journal: str) -> tuple[str, str, bytes] | None:
        """Who holds a key: run, step, digest of its arguments."""
        ...

    def shelf(self, family: str) -> Shelf:
        """Where a family's blobs are kept."""
        ...

    async def mail_of(self, run_id: str, chapter: ChapterBegan | None = None) -> Sequence[Mail]:
        """What was posted to a run, whose last chapter this is, and not consumed."""
        ...

    async def is_over(self, run_id: str) -> bool:
        """Whether a run has ended, or is gone."""
        ...

    def wake_readers(self, run_id: str) -> None:
        """Wake those who read a run's streams in other processes, where the store can."""
        ...

    async def end_of(self, run_id: str, step: str) -> EffectDone | EffectRaised | None:
        """How another run's effect ended, if it did."""
        ...

    async def kept_end(self, journal: str, step: str) -> EffectDone | EffectRaised | None:
        """How the effect ended that a key's journal speaks of, if its run is gone."""
        ...


#: How the start of a child went: it is there, it is over already, or its id is another's.
Started: TypeAlias = Literal["started"] | ChildNews | Fault


class Kin(Protocol):
    """Other runs that a run starts and stops."""

    async def start_child(self, run_id: str, event: RunStarted, flow: Any) -> Started:
        """Start a run of its own, once."""
        ...

    def want(self, flow: Any, run_id: str) -> None:
        """A child that was started: whoever drives its parent can drive it, too."""
        ...

    async def news_of(self, run_id: str) -> ChildNews | None:
        """How a child ended that told its parent; None: it did not, as yet."""
        ...

    async def post(self, run_id: str, mail_id: str, letter: Letter) -> Posted:
        """Leave mail for another run, once."""
        ...


PAUSE_SECONDS = 0.2

T = TypeVar("T")


async def insist(ask: Callable[[], Awaitable[T]], is_over: Callable[[], bool]) -> T | None:
    """The answer; None if nobody wants it any more, or the store is gone for good."""
    while not is_over():
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(PAUSE_SECONDS)
        except OutliveError:
            # Whoever drives the run hears of it from the journal keeper or from its worker.
            return None
    return None
