"""Every error says what happened, where, and what to do, in one line.

Each is raised through the door at which users meet it, not made by hand. An error class for which
there is no door here fails the last test but one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outlive import errors
from tests.unit import error_doors_loops, error_doors_runs
from tests.unit.error_doors import DOORS, Place

for module in (error_doors_loops, error_doors_runs):
    assert module.__doc__, "its doors are opened by importing it"


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    await made.app.aclose()


#: Errors whose door needs a server or another holder; a test there reads their text.
ELSEWHERE = {
    errors.WentBack: "tests/postgres/test_fleet.py",
    errors.LockLost: "tests/locks/test_locks.py",
}


def leaves() -> set[type[errors.OutliveError]]:
    """Every error of ours that is raised itself, not only as one of a group."""
    classes = {each for each in vars(errors).values() if inspect.isclass(each)}
    classes -= set(ELSEWHERE)
    return {each for each in classes if not classes.intersection(each.__subclasses__())}


@pytest.mark.parametrize("error", DOORS, ids=lambda error: error.__name__)
async def test_an_error_says_what_where_and_what_to_do(
    error: type[errors.OutliveError], place: Place
) -> None:
    """The text that a user meets at this door."""
    door, text = DOORS[error]

    with pytest.raises(error) as met:
        await door(place)

    said, *sides = str(met.value).splitlines()
    assert re.search(text, said), str(met.value)
    # Only other arguments are shown below it, as two lines.
    assert ["- ", "+ "] * (error is errors.ReplayMismatch) == [side[:2] for side in sides]


def test_every_error_has_a_door() -> None:
    """A new error class comes with a test of its text."""
    assert {c.__name__ for c in leaves()} == {c.__name__ for c in DOORS}
    root = Path(__file__).parents[2]
    assert all(error.__name__ in (root / path).read_text() for error, path in ELSEWHERE.items())


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    """The top of `errors` names every class, below the group that it belongs to."""
    drawn = re.findall(r"^ +[│├└─ ]*(\w+)  ", inspect.getdoc(errors) or "", re.MULTILINE)
    classes = [c.__name__ for c in vars(errors).values() if inspect.isclass(c)]

    assert classes[1:] == [name for name in drawn if name in classes]
