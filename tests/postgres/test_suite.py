"""The store in PostgreSQL keeps the promises of the seam."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.testing.suite.entries import HandClock
from outlive.testing.suite.suite import StoreSuite
from tests.harness.stores import on_server, opened_again


class TestPostgres(StoreSuite):
    """On a real server; only its clock is ours."""

    deaths_are_certain = False

    @pytest.fixture
    def make_store(self, ports: Ports, clock: HandClock, url: str) -> Iterator[Callable[[], Store]]:
        with opened_again(lambda: on_server(url, ports, clock)) as make:
            yield make
