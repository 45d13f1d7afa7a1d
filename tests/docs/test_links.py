"""Every link from one of our pages to another leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
LINK = re.compile(r"\]\((?!https?://)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """A reader who follows a link arrives, at the heading if one is named."""
    dead = []
    for link in LINK.finditer(CODE.sub("", page.read_text())):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        if not target.exists() or (link["anchor"] and link["anchor"] not in anchors(target)):
            dead.append(link[0])

    assert [] == dead


def test_every_page_is_linked() -> None:
    """No page of docs/ is lost: some other page leads to it."""
    linked = {
        (page.parent / link["path"]).resolve()
        for page in PAGES
        for link in LINK.finditer(page.read_text())
        if link["path"]
    }

    assert [] == [
        page.relative_to(ROOT).as_posix()
        for page in sorted(ROOT.glob("docs/**/*.md"))
        if page.resolve() not in linked
    ]


ABOUT_THE_CODE = [
    ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/decisions/*.md")),
]  # fmt: skip


@pytest.mark.parametrize("page", ABOUT_THE_CODE, ids=lambda page: page.name)
def test_files_of_the_code_are_there(page: Path) -> None:
    """A page about the code names files that are there, from the root or from the package."""
    named = set(re.findall(r"`([\w/]+\.(?:py|sql|sh))`", page.read_text()))
    tops = (ROOT, ROOT / "src" / "outlive")

    assert [] == sorted(path for path in named if not any((top / path).exists() for top in tops))
