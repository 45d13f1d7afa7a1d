"""How fast it is: the page begins with its point, and its figures are those of the results."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

from bench import overview, page

FIRST_SCREEN_LINES = 25
TEXT = page.PAGE.read_text()


def test_the_first_screen_has_one_table_and_one_picture() -> None:
    """A reader gets the point without scrolling: how it compares, on both stores."""
    first = TEXT.splitlines()[:FIRST_SCREEN_LINES]
    picture = page.PAGE.with_name(f"{page.PAGE.stem}-overview.svg")
    words = " ".join(ElementTree.parse(picture).getroot().itertext())

    assert 1 == sum(line.startswith("| medians |") for line in first)
    assert [f"]({picture.name})"] == [line[line.index("](") :] for line in first if "![" in line]
    assert 2 == " ".join(first).count("times as long as a bare commit")
    for name in ("Outlive, effect, SQLite", "Outlive, effect, PostgreSQL", "DBOS", "Restate"):
        assert name in words


def test_its_figures_are_those_of_the_results(tmp_path: Path) -> None:
    """No figure of the first screen was typed by hand."""
    for name in ("full.json", "full-postgres.json"):
        shutil.copy(page.RESULTS / name, tmp_path)

    screen = overview.written(page.newest(tmp_path), tmp_path, page.PAGE.stem)

    assert screen
    assert "\n".join(screen) in TEXT
