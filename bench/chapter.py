"""A chapter of the page: one file of results, who took part, goals, and a section per work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cases import Contestant
from bench.figures import Look, Results
from bench.goals import Goal
from bench.plan import CONTESTANTS
from bench.plots import Curve, Point, draw
from bench.sections import Column, Form, Section

#: More other work than this, and the page says so.
QUIET_LOAD = 1.0
#: Rounds that differ by more than this say more of the machine than of a contestant.
WIDE_SPREAD = 2.0

#: (what it is, work, size, what of a sample, how it is written)
Headline = tuple[str, str, int, Look, Form]
#: (its head, what was counted, how many digits behind the point)
Counted = tuple[str, str, int]


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """All that one chapter says, but for the figures."""

    name: str
    title: str
    #: Before everything else.
    words: str
    #: What stands above the table of contestants, and above that of counts.
    words_of_contestants: str
    words_of_counts: str
    headlines: Sequence[Headline]
    sections: Sequence[Section]
    goals: Sequence[Goal]
    counted: Sequence[Counted]
    works_counted: Sequence[str] = ("sequential", "many")

    def contestants(self) -> dict[str, Contestant]:
        """Everyone who may take part."""
        return {name: each for name, each in CONTESTANTS.items() if each.chapter == self.name}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """As Markdown has it."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def written(chapter: Chapter, results: Results, folder: Path, stem: str) -> list[str]:
    """All of it; its pictures go into the folder."""
    plots = draw_plots(chapter, results, folder, stem)
    lines = [*opening(chapter, results), *goals(chapter, results)]
    for wanted in chapter.sections:
        lines += section(results, wanted, plots)
    lines += [*counts(chapter, results), *contestants(chapter, results)]
    return [*lines, *machine(results)]


def opening(chapter: Chapter, results: Results) -> list[str]:
    """What was measured, when, on what."""
    told = results.told
    lines = [
        f"## {chapter.title}",
        "",
        chapter.words,
        "",
        f"Measured on {told['on']} at {told['commit']} in {told['minutes']:.0f} minutes, the "
        f"contestants taking turns. Rounds: {told['rounds']}.",
        "",
        *noise(results),
    ]
    return [*lines, told["note"], ""] if told.get("note") else lines


def machine(results: Results) -> list[str]:
    """On what it was measured."""
    rows = ([name, value] for name, value in results.told["machine"].items())
    return ["### The machine", "", *table(["machine", ""], rows), ""]


def noise(results: Results) -> list[str]:
    """How far the figures can be relied on."""
    machine = results.told["machine"]
    busy = max(float(machine[f"load {when}"].split()[0]) for when in ("before", "after"))
    wide, all_of_them = results.wide(WIDE_SPREAD)
    lines = []
    if all_of_them:
        lines += [
            f"In {wide} of {all_of_them} rows the slowest round took more than "
            f"{WIDE_SPREAD:.0f} times as long as the fastest: there, look at the range rather "
            "than the median.",
            "",
        ]
    if busy > QUIET_LOAD:
        lines += [
            f"**The machine was busy with other work** (load up to {busy:.1f} on "
            f"{machine['cores']} cores, including the contestants themselves). A process that "
            "waits for the disk then also waits for a processor: compare within a table, and "
            "measure on a quiet machine before you rely on a figure.",
            "",
        ]
    return lines


def contestants(chapter: Chapter, results: Results) -> list[str]:
    """Who took part, with what settings, promising what."""
    rows = []
    for name, each in chapter.contestants().items():
        found = results.first(name, "version")
        if found is None:
            continue
        settings: dict[str, Any] = results.first(name, "settings") or {}
        said = ", ".join(f"{key}={value}" for key, value in settings.items())
        title = f"{each.title} (where runs wait)" if name.endswith("waiting") else each.title
        rows.append([title, found, f"`{said}`", each.durable])
    head = ["contestant", "version", "settings, read back", "durable before the next step began"]
    return ["### Who took part", "", chapter.words_of_contestants, "", *table(head, rows), ""]


def goals(chapter: Chapter, results: Results) -> list[str]:
    """Which are reached."""
    rows = []
    for goal in chapter.goals:
        bound, value, verdict = goal.verdict(results)
        rows.append([goal.text, bound, value, verdict])
    words = (
        "What was aimed at, and whether these results reach it. Ratios are taken within each "
        "round, where contestants ran right after one another. The median of the rounds decides; "
        "if some rounds disagree, their number is given."
    )
    return ["### Goals", "", words, "", *table(["goal", "bound", "measured", ""], rows), ""]


def section(results: Results, wanted: Section, plots: dict[str, str]) -> list[str]:
    """One work: words, a curve, a table."""
    work = wanted.work
    rows = [
        row(results, (work, size, name), wanted.columns)
        for size in results.sizes(work)
        for name in results.contestants(work, size)
        if results.samples(work, size, name) or results.problem(work, size, name)
    ]
    if not rows:
        return []
    head = [wanted.sizes, "contestant", *(column[0] for column in wanted.columns), "command"]
    used = [n for n in range(len(head)) if n < 2 or any(cells[n] for cells in rows)]
    lines = [f"### {wanted.title}", "", wanted.words, ""]
    if work in plots:
        lines += [f"![{wanted.title}: {wanted.plot[0] if wanted.plot else ''}]({plots[work]})", ""]
    return [
        *lines,
        *table((head[n] for n in used), ([cells[n] for n in used] for cells in rows)),
        "",
    ]


def row(results: Results, key: tuple[str, int, str], columns: Iterable[Column]) -> list[str]:
    """One contestant at one size."""
    work, size, name = key
    cells = [f"{size:,}", CONTESTANTS[name].title]
    problem = "" if results.samples(*key) else results.problem(*key)
    for _, look, form in columns:
        found = results.figure(work, size, name, look)
        cells.append(found.told(form) if found else problem.replace("|", "/"))
        problem = ""
    command = results.command(*key).removeprefix("python -m bench.contestants.")
    return [*cells, f"`{command.removeprefix('python -m ')}`"]


def counts(chapter: Chapter, results: Results) -> list[str]:
    """What was counted, per step."""
    rows = []
    for work in chapter.works_counted:
        for name, each in chapter.contestants().items():
            found = results.counts(work, name)
            if not found:
                continue
            what = "one run" if work == "sequential" else "many runs"
            rows.append([what, each.title, *cells_of(chapter, found), sizes_of(each, work, found)])
    if not rows:
        return []
    head = ["work", "contestant", *(head for head, *_ in chapter.counted), "sizes"]
    title = "### Counted, per step"
    return [title, "", chapter.words_of_counts, "", *table(head, rows), ""]


def cells_of(chapter: Chapter, found: dict[str, Any]) -> list[str]:
    """What was counted of one contestant, or why it was not."""
    problem = str(found.get("error", ""))
    cells = []
    for _, what, digits in chapter.counted:
        # Less for more runs: they share better, and one more costs nothing.
        cells.append(f"{max(0.0, found[what]):,.{digits}f}" if what in found else problem)
        problem = ""
    return cells


def sizes_of(contestant: Contestant, work: str, found: dict[str, Any]) -> str:
    """What was run twice; the counts are the difference."""
    small, large = found["sizes"]
    if contestant.chapter == "sqlite":
        words = f"{contestant.module} {work} {small} FOLDER {contestant.kind}".rstrip()
        return f"`{words}`, and `{large}`"
    return f"{small} and {large}"


def draw_plots(chapter: Chapter, results: Results, folder: Path, stem: str) -> dict[str, str]:
    """Curves over the sizes, wherever there are at least two of them."""
    drawn = {}
    for wanted in chapter.sections:
        if wanted.plot is None:
            continue
        title, look, form = wanted.plot
        every = (curve_of(results, wanted.work, name, look) for name in chapter.contestants())
        curves = [curve for curve in every if len(curve.points) > 1]
        if curves:
            drawn[wanted.work] = f"{stem}-{wanted.work}.svg"
            (folder / drawn[wanted.work]).write_text(draw(title, wanted.sizes, form, curves))
    return drawn


def curve_of(results: Results, work: str, name: str, look: Look) -> Curve:
    """A contestant's figures at each size that it did."""
    found = {size: results.figure(work, size, name, look) for size in results.sizes(work)}
    points = [
        Point(size=size, middle=figure.middle, least=figure.least, most=figure.most)
        for size, figure in found.items()
        if figure is not None
    ]
    contestant = CONTESTANTS[name]
    title = contestant.title.replace("`", "")
    return Curve(name=title, colour=contestant.colour, points=points)
