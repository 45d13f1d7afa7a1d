"""Journals outlive the Python that wrote them: written on one version, gone on with on another."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.replay.golden_files import ids_of, load
from tests.replay.golden_flows import GOLDEN
from tests.replay.interpreters import environment, find, run_module

GOLDEN_FOLDER = Path(__file__).parent / "golden"
#: Every Python that the package says it runs on.
VERSIONS = ("3.11", "3.12", "3.13")
#: Those of them that this machine has: at least the one that runs the tests.
FOUND = {minor: path for minor in VERSIONS if (path := find(minor)) is not None}

Figure = Callable[[str, object], None]


def loops_of(minor: str) -> list[str]:
    """Tasks that begin eagerly came with 3.12."""
    return ["asyncio", "uvloop"] + ["eager"] * (minor != "3.11")


def replay(python: Path, folder: Path, loop: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        run_module(python, "tests.replay.replay_golden", folder, loop)
    )
    return told


@pytest.mark.parametrize("minor", FOUND)
def test_golden_journals_replay_on_every_python(minor: str, figure: Figure) -> None:
    """On asyncio, uvloop and with eager tasks: no body runs, the same comes out."""
    python = environment(minor, FOUND[minor])

    for loop in loops_of(minor):
        told = replay(python, GOLDEN_FOLDER, loop)

        assert told["python"].startswith(minor)
        assert told["replayed"] == len(list(load(GOLDEN_FOLDER)))
        figure(
            f"golden: Python {told['python']} on {loop}",
            f"{told['replayed']} journals replayed, {told['cuts']} cuts gone on with",
        )


@pytest.mark.parametrize("minor", FOUND)
def test_journals_of_every_python_replay_here(minor: str, tmp_path: Path) -> None:
    """Going back to an older Python is as harmless as going forward, whatever the loop was."""
    python = environment(minor, FOUND[minor])
    oldest = min(FOUND, key=VERSIONS.index)

    for seed, loop in enumerate(loops_of(minor)):
        run_module(python, "tests.replay.write_golden", tmp_path / loop, seed, loop)
        assert {golden.python for golden in load(tmp_path / loop)} == {minor}

        told = replay(environment(oldest, FOUND[oldest]), tmp_path / loop, "asyncio")

        assert told["replayed"] == len(GOLDEN)


@pytest.mark.parametrize("minor", FOUND)
def test_eviction_throws_nothing_into_a_flow_that_waits_in_a_generator(minor: str) -> None:
    """The generator is closed first, then what is around it: no RuntimeError of Python's own."""
    told = json.loads(run_module(environment(minor, FOUND[minor]), "tests.replay.evict"))

    assert told == [["closed"], ["closed"]]


def test_every_python_is_tried(full: bool, figure: Figure) -> None:
    """The one that runs the tests is, and in full all that the package says it runs on."""
    missing = [minor for minor in VERSIONS if minor not in FOUND]
    figure("golden: Pythons not tried, they are not on this machine", ", ".join(missing) or "none")

    assert "{}.{}".format(*sys.version_info[:2]) in FOUND
    assert not (full and missing), f"install Python {' and '.join(missing)}, for instance by pyenv"


def test_every_golden_flow_has_its_journal() -> None:
    """Whole, verified, written on the oldest Python, with the ids that were noted then."""
    journals = list(load(GOLDEN_FOLDER))

    assert {golden.flow for golden in journals} == {flow.name for flow in GOLDEN}
    for golden in journals:
        assert golden.python == VERSIONS[0]
        assert ids_of(golden.events()) == golden.ids
