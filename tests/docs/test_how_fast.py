"""How fast it is: the page is made of the committed results, and begins with its point."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import page

FIRST_SCREEN_LINES = 25


@pytest.fixture
def again(tmp_path: Path) -> Path:
    """The page, written once more from the committed results."""
    path = tmp_path / page.PAGE.name
    page.main(["--page", str(path)])
    return path


def test_the_page_is_made_of_the_committed_results(again: Path) -> None:
    """Nobody changed a figure by hand."""
    assert again.read_text() == page.PAGE.read_text()


def test_the_first_screen_has_one_table_and_one_picture(again: Path) -> None:
    """A reader gets the point without scrolling: how it compares, on both stores."""
    first = page.PAGE.read_text().splitlines()[:FIRST_SCREEN_LINES]
    picture = again.with_name(f"{again.stem}-overview.svg")
    words = " ".join(ElementTree.parse(picture).getroot().itertext())

    assert 1 == sum(line.startswith("| medians |") for line in first)
    assert 1 == sum(line.startswith("![") for line in first)
    assert 2 == " ".join(first).count("times as long as a bare commit")
    for name in ("Outlive, effect, SQLite", "Outlive, effect, PostgreSQL", "DBOS", "Restate"):
        assert name in words
