"""The how-to's page in a real browser and by a real client, while its worker is killed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.docs.test_snippets import blocks
from tests.examples.conftest import SECONDS_MAX, Desk
from tests.harness.processes import until

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "stream-tokens-to-a-browser.md"
TEXT = "You asked: Why? I looked everywhere and found nothing at all. "

pytestmark = [pytest.mark.alone("processes")]


class Site:
    """The how-to's application, served; and its worker."""

    def __init__(self, desk: Desk, *, pause: float) -> None:
        folder = desk.folder
        for _, kind, body in blocks(PAGE):
            named = re.match(r"# (\w+\.py)\n", body)
            if kind == "python" and named:
                text = body.replace("asyncio.sleep(0.03)", f"asyncio.sleep({pause})")
                (folder / named[1]).write_text(text)
        self.desk = desk
        self.worker = self.desk.start("outlive", "worker", "talk")
        server = self.desk.start("uvicorn", "page:app", "--port", "0")
        said = server.says("running on http://")
        self.address = re.findall(r"running on (http://\S+)", said)[0]

    def ask(self, name: str) -> str:
        """Ask a question; the answer's address."""
        url = f"{self.address}/answers/{name}"
        assert 202 == httpx.post(url, params={"question": "Why?"}, timeout=60).status_code
        return url

    def replace_worker(self) -> None:
        """The worker dies in the middle of whatever it does, and another comes."""
        self.worker.kill()
        self.worker = self.desk.start("outlive", "worker", "talk")


@pytest.fixture
def site(desk: Desk) -> Site:
    return Site(desk, pause=0.1)


def events(url: str, after: int = 0) -> Iterator[dict[str, str]]:
    """Server-sent events behind an id, as a browser gets them."""
    headers = {"Last-Event-ID": str(after)} if after else {}
    with httpx.stream("GET", f"{url}/tokens", headers=headers, timeout=60) as answer:
        event: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(":")
                event[name] = value.strip()
            else:
                yield event
                event = {}


def test_a_client_that_comes_and_goes_misses_nothing(site: Site) -> None:
    """It leaves after every third event; meanwhile the worker is killed once."""
    url = site.ask("a-1")
    shown, after, resets, is_over = "", 0, 0, False
    while not is_over:
        for count, event in enumerate(events(url, after), 1):
            if event["event"] == "end":
                is_over = True
                break
            assert after + 1 == int(event["id"])
            after = int(event["id"])
            if event["event"] == "reset":
                shown, resets = "", resets + 1
            else:
                shown += json.loads(event["data"])
            if count == 3:
                break
        if after == 3:
            site.replace_worker()

    assert (TEXT, 1) == (shown, resets)


def test_a_browser_shows_each_word_once(site: Site) -> None:
    """A page in Chromium, whose worker is killed while it shows the answer."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser, "chromium is missing: apt-get install chromium"
    url = site.ask("a-2")
    seen = events(url)
    until(lambda: int(next(seen)["id"]) >= 3, "the first words")
    looking = subprocess.Popen(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--virtual-time-budget=20000", "--dump-dom", url),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    site.replace_worker()
    page, _ = looking.communicate(timeout=SECONDS_MAX)

    assert f'<p id="text">{TEXT}</p>' in page
    assert "<title>done</title>" in page
    assert 1 == sum(event["event"] == "reset" for event in events(url))
