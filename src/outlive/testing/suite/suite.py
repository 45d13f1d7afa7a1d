"""The one suite that every store must pass. Joining it costs a store a few lines:

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def make_store(self, ports, tmp_path):
            return lambda: MyStore(tmp_path, ports=ports, lease_seconds=LEASE_SECONDS)

``make_store`` opens the same place again at every call. The suite closes what it opened.
It needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.testing.suite.deletion import ClearingRules, DeletionRules, FamilyRules
from outlive.testing.suite.entries import HandClock
from outlive.testing.suite.find import FindingRules
from outlive.testing.suite.journals import JournalRules
from outlive.testing.suite.leases import LeaseRules
from outlive.testing.suite.lists import ListRules
from outlive.testing.suite.mail import MailroomRules, MailRules, NodeRules
from outlive.testing.suite.queues import QueueLimitRules, QueueTurnRules


@pytest.mark.asyncio
class StoreSuite(
    JournalRules,
    MailRules,
    MailroomRules,
    NodeRules,
    DeletionRules,
    FamilyRules,
    ClearingRules,
    LeaseRules,
    FindingRules,
    ListRules,
    QueueLimitRules,
    QueueTurnRules,
):
    """Every verb and every rule of the seam."""

    @pytest.fixture
    def clock(self) -> HandClock:
        """The store's clock; it stands still until a test moves it."""
        return HandClock()

    @pytest.fixture
    def ports(self, clock: HandClock) -> Ports:
        """What a store under test is opened with."""
        return Ports(clock=clock)

    @pytest.fixture
    def store(self, make_store: Callable[[], Store]) -> Iterator[Store]:
        """A store with nothing in it."""
        store = make_store()
        yield store
        asyncio.run(store.close())
