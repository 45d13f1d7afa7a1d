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
    """A sentence per store, the picture, the table."""
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
        f"![{title}, beside the peers]({picture})",
        "",
        *medians(found),
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


def medians(found: Found) -> list[str]:
    """A row per contestant and store, a column per figure that all chapters have."""
    shared = [
        headline
        for headline in found[0][0].headlines
        if all(headline[0] in [each[0] for each in chapter.headlines] for chapter, _ in found)
    ]
    rows = []
    for chapter, results in found:
        for name, each in chapter.contestants().items():
            if results.figure(WORK, SIZE, name, field("p50")) is None:
                continue
            cells = [f"{each.title}, {STORES[chapter.name]}"]
            for _, work, size, look, form in shared:
                figure = results.figure(work, size, name, look)
                cells.append(form(figure.middle) if figure else "–")
            size_on_disk = results.counted(WORK, name, "bytes")
            rows.append([*cells, "–" if size_on_disk is None else f"{size_on_disk:,.0f}"])
    return table(["medians", *(words for words, *_ in shared), "bytes per step"], rows)


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
