"""The first screen of the page: what it costs in one table and one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.chapter import Chapter, table
from bench.figures import Figure, Results, field, seconds
from bench.plots import Bar, draw_bars

Found = Sequence[tuple[Chapter, Results]]
#: The work of the picture and of the first sentence: trivial steps, one after the other.
WORK, SIZE = "sequential", 200
STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def written(found: Found, folder: Path, stem: str) -> list[str]:
    """A sentence per store, the table, the picture."""
    bars = [bar for chapter, results in found for bar in bars_of(chapter, results)]
    if not bars:  # only other works, or other sizes, were measured
        return []
    picture = f"{stem}-overview.svg"
    title = "Time per step, one step after the other (median, logarithmic)"
    (folder / picture).write_text(draw_bars(title, seconds, bars))
    sentences = [sentence(chapter, results) for chapter, results in found]
    return [
        " ".join(each for each in sentences if each),
        "",
        *medians(found),
        "",
        f"![{title}, beside the peers]({picture})",
        "",
    ]


def sentence(chapter: Chapter, results: Results) -> str:
    """How an effect compares with the bare commit."""
    by_title = figures(chapter, results, WORK, SIZE)
    effect, floor = by_title.get("Outlive, `effect`"), by_title.get("bare commit")
    if effect is None or floor is None:
        return ""
    return (
        f"On {STORES[chapter.name]} an effect takes {seconds(effect.middle)}, "
        f"{effect.middle / floor.middle:.2f} times as long as a bare commit "
        f"({seconds(floor.middle)})."
    )


def figures(chapter: Chapter, results: Results, work: str, size: int) -> dict[str, Figure]:
    """The median of each contestant, by its title."""
    found: dict[str, Figure] = {}
    for name, each in chapter.contestants().items():
        figure = results.figure(work, size, name, field("p50"))
        if figure is not None:
            found.setdefault(each.title, figure)
    return found


def titles(found: Found) -> list[str]:
    """Who has a median of some headline, in the order of the chapters."""
    return list(
        dict.fromkeys(
            each.title
            for chapter, results in found
            for name, each in chapter.contestants().items()
            if results.figure(WORK, SIZE, name, field("p50"))
        )
    )


def medians(found: Found) -> list[str]:
    """A row per store and figure, a column per contestant."""
    columns = titles(found)
    rows = []
    for chapter, results in found:
        names = {each.title: name for name, each in reversed(chapter.contestants().items())}
        for words, work, size, look, form in chapter.headlines:
            cells = []
            for title in columns:
                name = names.get(title)
                figure = results.figure(work, size, name, look) if name else None
                cells.append(form(figure.middle) if figure else "–")
            rows.append([f"{STORES[chapter.name]}: {words}", *cells])
        counted = [
            results.counted(WORK, names[t], "bytes") if t in names else None for t in columns
        ]
        cells = ["–" if size is None else f"{size:,.0f}" for size in counted]
        rows.append([f"{STORES[chapter.name]}: bytes per step", *cells])
    return table(["medians", *columns], rows)


def bars_of(chapter: Chapter, results: Results) -> list[Bar]:
    """A bar per contestant."""
    by_title = figures(chapter, results, WORK, SIZE)
    return [
        Bar(
            name=f"{title.replace('`', '')}, {STORES[chapter.name]}",
            colour=next(e.colour for e in chapter.contestants().values() if e.title == title),
            value=figure.middle,
        )
        for title, figure in by_title.items()
    ]
