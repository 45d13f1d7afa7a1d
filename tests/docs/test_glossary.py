"""The glossary binds: one row per word, and the words that names may not use stand in it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_tidy import BANNED_WORDS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "glossary.md").read_text()
#: Rows of the tables, without their heads.
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| we say")
]


def test_every_row_is_complete() -> None:
    """A word, what it is, what others call it, and what we do not call it."""
    assert ROWS
    assert [] == [row for row in ROWS if len(row) != 4 or not row[0] or not row[1]]


def test_every_word_has_one_row() -> None:
    """One word, one concept."""
    words = [row[0] for row in ROWS]

    assert sorted(set(words)) == sorted(words)


def test_words_that_names_must_use_are_explained() -> None:
    """What test_tidy demands in place of a synonym is found in the glossary."""
    explained = {word for row in ROWS for word in re.split(r"[ ,()`]+", row[0])}

    assert set() == set(BANNED_WORDS.values()) - explained


def test_people_from_elsewhere_find_the_handle() -> None:
    """The main words of other systems stand beside ours."""
    elsewhere = " ".join(row[2] for row in ROWS)
    known = {
        "workflow", "activity", "event history", "continue-as-new", "signal", "task queue",
        "thread", "checkpoint", "interrupt", "time travel", "awakeable", "idempotency key",
    }  # fmt: skip

    assert set() == {word for word in known if word not in elsewhere}
