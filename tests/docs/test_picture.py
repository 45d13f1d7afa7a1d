"""The picture of the demo in the README: recorded from the real demo, fetching nothing."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.record_demo import LIVE_SCREEN_ENDS, draw

ROOT = Path(__file__).parent.parent.parent
PICTURE = ROOT / "docs" / "demo.svg"


def words(svg: str) -> str:
    """The text of a picture."""
    shown = re.sub(r"<[^>]*>", " ", svg[svg.index("</defs>") :]).replace("&#160;", " ")
    return " ".join(shown.split())


def test_the_picture_shows_the_end_of_the_demo() -> None:
    """The README's first screen shows one refund with Outlive and several without."""
    first_screen = (ROOT / "README.md").read_text().splitlines()[:12]
    shown = words(PICTURE.read_text())

    assert any("](docs/demo.svg)" in line for line in first_screen)
    assert "refunded once, wrote once." in shown
    assert re.search(r"The plain agent refunded \d+ times", shown)


def test_the_picture_fetches_nothing() -> None:
    """No font or script of another host is named in it."""
    addresses = set(re.findall(r"https?://[^\"\s]*", PICTURE.read_text()))

    assert {"http://www.w3.org/2000/svg"} == addresses


def test_only_the_last_screen_is_drawn() -> None:
    """What stood on the live screen is gone; what the demo printed after it is drawn."""
    shown = words(draw(f"live{LIVE_SCREEN_ENDS}\x1b[1mone refund\x1b[0m\r\n"))

    assert "one refund" in shown
    assert "live" not in shown
