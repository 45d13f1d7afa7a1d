"""The site of the docs: it builds without a warning, its links arrive, it fetches nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parent.parent.parent
PARTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "mkdocs.yml"]
FOLDERS = ["docs", "examples", "changelog.d", "scripts"]
#: Elements that a browser fetches by itself, without a reader's click.
FETCHED = {"script", "img", "link", "iframe", "source", "object"}


class Page(HTMLParser):
    """What one page offers to links, and what it links to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        address = given.get("href") or given.get("src") or given.get("data")
        if address and tag in FETCHED and given.get("rel") != "canonical":
            self.fetched.append(address)
        elif address:
            self.links.append(address)


def copy(folder: Path) -> None:
    """What the site is made of, as it lies in the repository."""
    for part in PARTS:
        shutil.copy(ROOT / part, folder)
    for part in FOLDERS:
        shutil.copytree(ROOT / part, folder / part)


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as ``make docs`` does."""
    return subprocess.run(
        ["sh", "scripts/build_site.sh"],
        cwd=folder, env=os.environ | {"BIN": str(Path(sys.executable).parent)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    copy(folder)
    built = build(folder)
    assert 0 == built.returncode, built.stderr
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_arrives(pages: dict[Path, Page]) -> None:
    """A link within the site leads to a file, and to an element if it names one."""
    dead = []
    for path, page in pages.items():
        for link in page.links:
            where = urlsplit(link)
            if where.scheme or where.netloc:
                continue
            target = (path.parent / unquote(where.path)).resolve() if where.path else path
            target = target / "index.html" if target.is_dir() else target
            anchored = where.fragment and target in pages
            if not target.exists() or (
                anchored and unquote(where.fragment) not in pages[target].ids
            ):
                dead.append(f"{path}: {link}")

    assert len(pages) > len(list(ROOT.glob("docs/**/*.md")))
    assert [] == dead


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    """Pages and style sheets load scripts, styles, pictures and fonts from the site alone."""
    foreign = {
        address
        for page in pages.values()
        for address in page.fetched
        if urlsplit(address).scheme or urlsplit(address).netloc
    }
    styles = [
        found
        for sheet in site.rglob("*.css")
        for found in re.findall(
            r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*", sheet.read_text()
        )
    ]

    assert set() == foreign
    assert [] == styles
    # The theme's script would fetch Mermaid if a page had such a diagram.
    assert [] == [path for path in pages if 'class="mermaid"' in path.read_text()]


def test_search_knows_every_page(site: Path, pages: dict[Path, Page]) -> None:
    """A reader finds every page by its words."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {(site / entry["location"].partition("#")[0]).resolve() for entry in index["docs"]}

    assert {path.parent.resolve() for path in pages} == found


def test_dead_links_fail_the_build(tmp_path: Path) -> None:
    """Whoever breaks a link or an anchor is told which."""
    dead = ["nowhere.md", "howto/index.md#nowhere"]
    copy(tmp_path)
    with (tmp_path / "docs" / "glossary.md").open("a") as page:
        page.writelines(f"\n[a link]({link})\n" for link in dead)

    built = build(tmp_path)

    assert 0 != built.returncode
    for link in dead:
        assert link in built.stderr


def test_the_menu_has_every_page(site: Path, pages: dict[Path, Page]) -> None:
    """Every page but single decisions can be reached from the menu of the first page."""
    start = site / "index.html"
    menu = {(site / link / "index.html").resolve() for link in pages[start].links}
    single = re.compile(r"/decisions/\d{4}-")

    assert [] == [
        path.relative_to(site).as_posix()
        for path in sorted(pages)
        if path.resolve() not in menu and path != start and not single.search(path.as_posix())
    ]
