"""Every promise of the docs has tests that are there, and one of them kills real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.mutants import MUTANTS
from tests.promises import DEFECTS, PROMISES, Defect, Trial

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "what-it-promises.md"
#: How tests kill: by themselves, with a crash lab, or by a process that does it at a moment.
KILL = re.compile(r"SIGKILL|\bkill|crash_at|\bcrash\(")
TRIALS = sorted({trial for trials in PROMISES.values() for trial in trials})


def test_every_promise_has_its_tests() -> None:
    """Those that the docs number, and no others."""
    numbered = re.findall(r"^\| (P\d+) \|", PAGE.read_text(), re.M)

    assert numbered
    assert numbered == list(PROMISES)


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.test)
def test_every_test_of_a_promise_is_there(trial: Trial) -> None:
    """Under the name and in the file that the table gives."""
    path, name = trial.test.split("::")

    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.M)


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_is_tried_by_a_kill(promise: str) -> None:
    """A simulated death is not enough."""
    kills = [trial.test.partition("::")[0] for trial in PROMISES[promise] if trial.kills]

    assert kills
    assert [] == [path for path in kills if not KILL.search((ROOT / path).read_text())]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.defect)
def test_every_test_of_a_defect_is_there(defect: Defect) -> None:
    """Under the name and in the file that the table gives, and so is its mutant."""
    path, name = defect.test.split("::")
    mutants = re.findall("\u201c(.*?)\u201d", defect.seen)

    assert re.search(rf"^ *(async )?def {name}\(", (ROOT / path).read_text(), re.M)
    assert set(mutants) <= set(MUTANTS)
