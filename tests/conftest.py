"""What every test may ask for: figures to be printed at the end, whether to run in full, and by
which markers it says what it needs to have to itself.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.harness.fixtures import chance, own_postgres, postgres, stretch, trials, url

__all__ = ["chance", "own_postgres", "postgres", "stretch", "trials", "url"]

# Before anything imports them: the suite's asserts shall explain themselves like those of a test.
for _topic in ("journals", "mail", "deletion", "leases", "find", "queues"):
    pytest.register_assert_rewrite(f"outlive.testing.suite.{_topic}")

# A shell without job control starts what it puts into the background with SIGINT ignored, and all
# processes below inherit that: no Ctrl-C would ever reach a program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Figure = Callable[[str, object], None]
Stretch = Callable[[], float]

#: What a test may have to itself: see the marker ``alone`` in pyproject.toml.
TIME = "time"
QUEUES = ("postgres", "processes", "sweep")
#: Which tests a phase of ``scripts/run_tests.py`` runs.
PHASES = ("together", "queues", TIME)
SLOWEST = 20
IS_FULL = os.environ.get("OUTLIVE_TEST_FULL") == "1"

# A shell lets what it begins in the background ignore Ctrl-C; what a test begins shall not.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
    return IS_FULL


# what a test needs to have to itself


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--phase``: only the tests of this phase, and the slowest of them listed at the end."""
    parser.addoption("--phase", choices=PHASES, help="run only the tests of this phase")


# Before xdist reads the groups and -m deselects.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put each test into its phase and queue; note the quarantined."""
    wanted = config.getoption("--phase")
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        resource = _resource(item)
        if resource in QUEUES:
            item.add_marker(pytest.mark.xdist_group(resource))
        _quarantine(item)
        is_wanted = wanted in (None, _phase(resource)) and (IS_FULL or not _only_in_full(item))
        (chosen if is_wanted else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = chosen


def _resource(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("alone")
    if marker is None:
        return None
    resource: str = marker.args[0] if marker.args else TIME
    if resource not in (TIME, *QUEUES):
        raise pytest.UsageError(f"{item.nodeid}: alone({resource!r}) is not one of {QUEUES}")
    return resource


def _only_in_full(item: pytest.Item) -> bool:
    return item.get_closest_marker("full") is not None


def _phase(resource: str | None) -> str:
    return "together" if resource is None else TIME if resource == TIME else "queues"


def _quarantine(item: pytest.Item) -> None:
    """Run it, say how it went with the reason at the end, and go on."""
    marker = item.get_closest_marker("quarantine")
    if marker is None:
        return
    if not marker.args or not isinstance(marker.args[0], str):
        raise pytest.UsageError(f"{item.nodeid}: quarantine needs its reason")
    item.user_properties.append(("quarantine", marker.args[0]))
    item.add_marker(pytest.mark.xfail(reason=marker.args[0], strict=False))


# what is printed at the end


def _reports(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    # Reports of a passed teardown are kept under the empty key; of a failed one under "error".
    for reports in terminalreporter.stats.values():
        yield from (report for report in reports if isinstance(report, pytest.TestReport))


def _figures(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    for report in _reports(terminalreporter):
        if report.when == "teardown":
            yield from (str(line) for name, line in report.user_properties if name == "figure")


def _quarantined(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    for report in _reports(terminalreporter):
        if report.when == "call" or report.outcome != "passed":
            for name, reason in report.user_properties:
                if name == "quarantine":
                    how = "passed" if report.outcome == "passed" else "failed"
                    yield f"{report.nodeid} ({how}): {reason}"


def _slowest(terminalreporter: pytest.TerminalReporter) -> list[tuple[str, float]]:
    seconds: Counter[str] = Counter()
    for report in _reports(terminalreporter):
        seconds[report.nodeid] += report.duration  # type: ignore[assignment]
    return seconds.most_common(SLOWEST)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what the tests counted and measured, whether they passed or not."""
    for line in sorted(set(_figures(terminalreporter))):
        terminalreporter.write_line(f"figure: {line}")
    for line in sorted(set(_quarantined(terminalreporter))):
        terminalreporter.write_line(f"quarantine: {line}")
    if config.getoption("--phase"):
        for test, seconds in _slowest(terminalreporter):
            terminalreporter.write_line(f"slow: {seconds:.1f} s {test}")
