"""The loop that saves itself: killed while it reads, it reads on."""

from __future__ import annotations

from tests.examples.conftest import Desk

WORDS = ("python", "own_loop.py")


def test_what_was_read_is_not_read_again(desk: Desk) -> None:
    """Twice killed, once failed: each page is there once."""
    for page in ("one 1", "three 3"):
        script = desk.start(*WORDS)
        script.says(page)
        script.kill()

    said = desk(*WORDS)
    whole = "; ".join(f"what page {page} says" for page in ("one", "two", "three", "four"))
    assert f"one 1\ntwo 2\nthree 3\nfour 4\n{whole}\n" == said
    assert said == desk(*WORDS)
    read = (desk.folder / "read.txt").read_text().split()
    assert 1 == read.count("one")
    assert {"one", "two", "three", "four"} == set(read)
    assert read.count("three") == 1
    assert 4 + 1 <= len(read) <= 4 + 1 + 2
