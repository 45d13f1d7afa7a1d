"""What every test may ask for: figures to be printed at the end, and whether to run in full."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.harness.fixtures import chance, own_postgres, postgres, trials, url

__all__ = ["chance", "own_postgres", "postgres", "trials", "url"]

# Before anything imports them: the suite's asserts shall explain themselves like those of a test.
for _topic in ("journals", "mail", "deletion", "leases", "finding", "queues", "turns"):
    pytest.register_assert_rewrite(f"outlive.testing.store_suite_{_topic}")

Figure = Callable[[str, object], None]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Call ``figure(name, value)``: printed as ``figure: name = value`` after all tests."""

    def add(name: str, value: object) -> None:
        # A report's properties travel from the workers of xdist to the summary, in order.
        record_property("figure", f"{name} = {value}")

    return add


@pytest.fixture(scope="session")
def full() -> bool:
    """True when counts that are too long for every day are wanted (``make test-full``)."""
    return os.environ.get("OUTLIVE_TEST_FULL") == "1"


def _figures(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "teardown":
                yield from (str(line) for name, line in report.user_properties if name == "figure")
    # Reports of a passed teardown are kept under the empty key; of a failed one under "error".


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests counted and measured, whether they passed or not."""
    for line in sorted(set(_figures(terminalreporter))):
        terminalreporter.write_line(f"figure: {line}")
